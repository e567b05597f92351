/* Fresh anonymous memory in the place of restored memory. */
#ifndef COLDSNAP_GUARD_FRESH_H
#define COLDSNAP_GUARD_FRESH_H

#include "vmas.h"

/* Put zeros at [start, end), which is part of `vma` or next to it, with what `vma` has of
 * protection and advice. `flags`: MAP_FIXED, or MAP_FIXED_NOREPLACE. 0 or a negative errno. */
long fresh_memory(unsigned long start, unsigned long end, const struct vma *vma, int flags);

/* Give up what restored memory there is within [start, end), as `discard` (MADV_DONTNEED or
 * MADV_DONTNEED_LOCKED) does it with anonymous memory. It ends early where the kernel refuses, as
 * for locked memory: the caller's own call is then refused too. 0 or a negative errno. */
long fresh_within(unsigned long start, unsigned long end, int discard);

/* Make what restored memory there is within [start, end) anonymous with what it holds. Nobody may
 * write there meanwhile. 0 or a negative errno. */
long whole_within(unsigned long start, unsigned long end);

#endif
