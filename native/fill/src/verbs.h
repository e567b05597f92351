/* What the program does, each with parsed arguments. Each prints one JSON line and returns an exit
 * status; after a failure threads may still run, so that the caller leaves by _exit. */
#ifndef COLDSNAP_FILL_VERBS_H
#define COLDSNAP_FILL_VERBS_H

#include <stdbool.h>
#include <stddef.h>

#include "target.h"

struct fill_options {
	const char *index, *images;
	struct fill_pair *pairs;
	size_t pair_count;
	unsigned threads;
	double deadline; /* of CLOCK_MONOTONIC; 0: none */
	bool no_digests;
};

int fill_verb_seal(const struct fill_options *options);
int fill_verb_fill(const struct fill_options *options);
int fill_verb_verify(const struct fill_options *options);

#endif
