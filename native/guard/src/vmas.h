/* What the kernel says of this process's memory, right now: without locks or allocation, so that
 * signal handlers and forked children may ask too. */
#ifndef COLDSNAP_GUARD_VMAS_H
#define COLDSNAP_GUARD_VMAS_H

#include <stdbool.h>
#include <stddef.h>

/* Where the unit sees its image; what is mapped from there was anonymous memory once. */
#ifndef COLDSNAP_GUARD_FOLDER
#define COLDSNAP_GUARD_FOLDER "/run/coldsnap/image"
#endif

struct vma {
	unsigned long start, end;
	int prot;
	bool private;
	bool restored;	/* a private mapping of an image file */
	bool anonymous; /* private, of no file */
	/* With VMAS_ADVICE: what madvise() set, as bits by its numbers, and MAP_NORESERVE. */
	unsigned advice;
	bool no_reserve;
};

enum vmas_with { VMAS_ONLY, VMAS_ADVICE };

enum { VMAS_LINE = 192, VMAS_BLOCK = 1024 };

struct vmas {
	int fd;
	bool text; /* the kernel has no PROCMAP_QUERY, or advice is wanted */
	enum vmas_with with;
	unsigned long at;
	size_t used, filled, length;
	bool has_vma;
	struct vma vma;
	char block[VMAS_BLOCK], line[VMAS_LINE];
};

/* Go through the VMAs that end after `start`. 0, or a negative errno. */
int vmas_open(struct vmas *vmas, unsigned long start, enum vmas_with with);

/* The next one: 1, 0 at the end, or a negative errno. */
int vmas_next(struct vmas *vmas, struct vma *vma);

void vmas_close(struct vmas *vmas);

#endif
