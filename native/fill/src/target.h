/* The processes whose memory is filled or compared. */
#ifndef COLDSNAP_FILL_TARGET_H
#define COLDSNAP_FILL_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "index.h"

/* A number inside the unit's PID namespace and the same process's number here. */
struct fill_pair {
	uint32_t inside;
	pid_t host;
};

enum fill_vma_kind {
	FILL_VMA_OTHER,
	FILL_VMA_PLAIN, /* private, readable, writable, anonymous */
	FILL_VMA_FILE,	/* the same, of a file */
};

struct fill_vma {
	uint64_t start, end;
	enum fill_vma_kind kind;
};

struct fill_target {
	pid_t host;
	int pidfd;
	uint64_t bytes; /* of its runs */
	struct fill_vma *vmas;
	size_t vma_count;
};

struct fill_targets {
	const struct fill_index *index;
	struct fill_target *of; /* one per process of the index */
};

/* Find a target for every process of the index and read its maps; pairs that the index does not
 * name are left alone. 0, or -1 and failed. */
int fill_targets_open(struct fill_targets *targets, const struct fill_index *index,
		      const struct fill_pair *pairs, size_t pair_count);

/* Whether every area of every target is covered by plain memory, those that are mapped from files
 * also by private mappings. 0, or -1 and failed as FILL_MAPS. */
int fill_targets_check(const struct fill_targets *targets);

/* Whether the process has ended. */
bool fill_target_ended(const struct fill_target *target);

/* Fail as FILL_ENDED if the target ended, else as FILL_IO with errno. Returns -1. */
int fill_target_fail(const struct fill_targets *targets, uint32_t process, const char *what,
		     uint64_t address);

void fill_targets_close(struct fill_targets *targets);

#endif
