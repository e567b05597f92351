/* mremap() of memory that was restored by mapping. */
#ifndef COLDSNAP_GUARD_MOVE_H
#define COLDSNAP_GUARD_MOVE_H

struct move {
	unsigned long old, old_bytes, new_bytes;
	int flags;
	unsigned long wanted; /* with MREMAP_FIXED */
};

/* Do it as the kernel would with anonymous memory. The address, or a negative errno. */
long move_restored(const struct move *move);

/* Whether all of the old range is memory that was one anonymous mapping before it was restored,
 * and some of it is restored. */
int move_is_ours(const struct move *move);

#endif
