/* Some chunks that are read, checked and passed on together, while the processor's cache has them. */
#ifndef COLDSNAP_FILL_BATCH_H
#define COLDSNAP_FILL_BATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "images.h"
#include "index.h"
#include "pieces.h"

enum { FILL_BATCH_CHUNKS = 128 };

struct fill_batch {
	struct fill_chunk chunks[FILL_BATCH_CHUNKS];
	size_t count, bytes;
};

/* Bytes that one batch may need. */
size_t fill_batch_room(const struct fill_index *index);

/* Take chunks off the piece; false at its end. `left`: its chunks that were not taken yet. */
bool fill_batch_take(struct fill_batch *batch, const struct fill_index *index,
		     struct fill_cursor *cursor, uint32_t *left);

/* Read them one after the other into `buffer`. 0, or -1 and failed. */
int fill_batch_read(const struct fill_batch *batch, const struct fill_images *images,
		    unsigned char *buffer);

/* Compare them with their digests. 0, or -1 and failed. */
int fill_batch_check(const struct fill_batch *batch, const struct fill_index *index,
		     const unsigned char *buffer);

/* Keep their digests in the index. */
void fill_batch_seal(const struct fill_batch *batch, const unsigned char *buffer);

#endif
