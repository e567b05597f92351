/* Items of work for threads, while the caller watches the clock and the targets. */
#ifndef COLDSNAP_FILL_POOL_H
#define COLDSNAP_FILL_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "index.h"
#include "target.h"

struct fill_pool {
	unsigned threads;     /* 0: as many as there are processors, at most 16 */
	double deadline;      /* seconds of CLOCK_MONOTONIC; 0: none */
	const struct fill_targets *targets; /* or NULL; whoever ends, ends the work */
	size_t scratch_bytes; /* of each thread */
	size_t count;
	/* Do item `item`; 0, or -1 and failed. */
	int (*work)(void *context, size_t item, unsigned char *scratch);
	void *context;
};

/* Do all items; `threads` is set to what was used. 0, or -1 and failed. At the deadline, or when
 * a target ended, the failure is recorded and threads may still be inside the kernel: then the
 * program must end. */
int fill_pool_run(struct fill_pool *pool);

double fill_now(void);

#endif
