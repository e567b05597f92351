/* Calls into the kernel that none of our own wrappers sees, with the error as a negative result:
 * the caller's errno stays its own. */
#ifndef COLDSNAP_GUARD_SYSTEM_H
#define COLDSNAP_GUARD_SYSTEM_H

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SYSTEM(...)                                          \
	__extension__({                                      \
		int system_errno = errno;                    \
		long system_result = syscall(__VA_ARGS__);   \
		if (system_result == -1)                     \
			system_result = -errno;              \
		errno = system_errno;                        \
		system_result;                               \
	})

/* Give a negative result to the program in the C library's way. */
static inline long answered(long result)
{
	if (result >= 0 || result < -4095)
		return result;
	errno = (int)-result;
	return -1;
}

#endif
