/* Which memory may have been restored by mapping an image: a quick look before the kernel is asked. */
#ifndef COLDSNAP_GUARD_RESTORED_H
#define COLDSNAP_GUARD_RESTORED_H

#include <stdbool.h>

/* Whether [start, end) may hold restored memory. False is certain; true is to be asked of vmas.h.
 * In a process that was not restored by mapping this costs one failing system call. */
bool restored_may_be(unsigned long start, unsigned long end);

/* What madvise() set on restored memory, as bits by its numbers, and RESTORED_NO_RESERVE;
 * RESTORED_UNKNOWN where that changed since. */
unsigned restored_advice(unsigned long start, unsigned long end);
void restored_advice_changes(unsigned long start, unsigned long end);

#define RESTORED_NO_RESERVE (1U << 30)
#define RESTORED_UNKNOWN (1U << 31)

/* The range was moved here, so it may hold restored memory from now on. */
void restored_add(unsigned long start, unsigned long end);

#endif
