/* The image files that an index names: opened once, read by offset from many threads. */
#ifndef COLDSNAP_FILL_IMAGES_H
#define COLDSNAP_FILL_IMAGES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "index.h"

struct fill_image {
	int fd;
	struct stat opened;
};

struct fill_images {
	const struct fill_index *index;
	struct fill_image *files;
};

/* Open every file of the index in `folder`: regular, no link, exactly as long as it says.
 * 0, or -1 and failed. */
int fill_images_open(struct fill_images *images, const struct fill_index *index,
		     const char *folder);

/* Read exactly `bytes` at `offset`. 0, or -1 and failed. A file cut meanwhile is a failure here,
 * never a signal, because nothing of it is mapped. */
int fill_images_read(const struct fill_images *images, uint32_t file, void *buffer, size_t bytes,
		     uint64_t offset);

/* Whether every file is still as it was opened. 0, or -1 and failed. */
int fill_images_unchanged(const struct fill_images *images);

void fill_images_close(struct fill_images *images);

#endif
