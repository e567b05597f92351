/* What of the areas belongs to no run, and so reads as zero. */
#ifndef COLDSNAP_FILL_HOLES_H
#define COLDSNAP_FILL_HOLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "target.h"

/* The entries of its pages fill a quarter of a megabyte. */
enum { FILL_HOLE_BYTES = 128 << 20 };

/* Within one VMA, at most FILL_HOLE_BYTES. */
struct fill_hole {
	uint32_t process;
	bool plain; /* pages that are not there need not be read */
	uint64_t start, end;
};

struct fill_holes {
	struct fill_hole *list;
	size_t count, room;
};

/* All of them; fill_targets_check() was passed. 0, or -1 and failed. */
int fill_holes_find(struct fill_holes *holes, const struct fill_targets *targets);

#endif
