/* libcoldsnap_guard.so: memory that was restored by mapping an image file stays what it was to its
 * program, private anonymous memory. Preloaded at the engine's first start; does nothing until a
 * restore. docs/process-images.md tells what differs and why these calls are enough. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "fresh.h"
#include "move.h"
#include "restored.h"
#include "system.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

#define EXPORTED __attribute__((visibility("default")))

/* The oldest version of each symbol, so that the library loads wherever the engine runs. */
#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver dlsym, dlsym@GLIBC_2.17");
#endif

static unsigned long page_bytes(void)
{
	static atomic_ulong known;
	unsigned long bytes = atomic_load_explicit(&known, memory_order_relaxed);

	if (bytes == 0) {
		bytes = (unsigned long)sysconf(_SC_PAGESIZE);
		atomic_store_explicit(&known, bytes, memory_order_relaxed);
	}
	return bytes;
}

static unsigned long whole_pages(size_t bytes)
{
	return (bytes + page_bytes() - 1) & ~(page_bytes() - 1);
}

/* Collapse what the kernel can; restored memory is left as it is, it was advice. */
static long collapse(unsigned long start, unsigned long end)
{
	struct vmas vmas;
	struct vma vma;
	long result = vmas_open(&vmas, start, VMAS_ONLY), answer = 0;

	if (result != 0)
		return -EAGAIN;
	while (answer == 0 && start < end && (result = vmas_next(&vmas, &vma)) == 1 &&
	       vma.start < end) {
		unsigned long to = vma.end < end ? vma.end : end;
		if (vma.start > start)
			answer = -ENOMEM;
		else if (!vma.restored)
			answer = SYSTEM(SYS_madvise, start, to - start, MADV_COLLAPSE);
		start = to;
	}
	vmas_close(&vmas);
	return answer == 0 && start < end ? -ENOMEM : answer;
}

/* Whether this is the process's only thread: nobody else writes while memory is copied. */
static bool is_alone(void)
{
	struct stat status;

	return SYSTEM(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &status, 0) == 0 &&
	       status.st_nlink == 3;
}

static long advise(unsigned long start, size_t length, int advice)
{
	unsigned long end = start + whole_pages(length);
	bool sound = (start & (page_bytes() - 1)) == 0 && end > start;
	long result = 0;

	switch (sound ? advice : -1) {
	case MADV_DONTNEED:
	case MADV_FREE:
		if (restored_may_be(start, end))
			result = fresh_within(start, end, MADV_DONTNEED);
		break;
	case MADV_DONTNEED_LOCKED:
		if (restored_may_be(start, end))
			result = fresh_within(start, end, MADV_DONTNEED_LOCKED);
		break;
	case MADV_GUARD_INSTALL: /* gives up what was there, where the kernel knows it */
		if (restored_may_be(start, end) && SYSTEM(SYS_madvise, start, length, advice) == 0)
			result = fresh_within(start, end, MADV_DONTNEED_LOCKED);
		break;
	case MADV_WIPEONFORK: /* refused for mappings of files */
		if (restored_may_be(start, end) && is_alone())
			result = whole_within(start, end);
		restored_advice_changes(start, end);
		break;
	case MADV_COLLAPSE:
		if (restored_may_be(start, end))
			return collapse(start, end);
		break;
	case MADV_HUGEPAGE:
	case MADV_NOHUGEPAGE:
	case MADV_DONTFORK:
	case MADV_DOFORK:
	case MADV_DONTDUMP:
	case MADV_DODUMP:
	case MADV_MERGEABLE:
	case MADV_UNMERGEABLE:
	case MADV_NORMAL:
	case MADV_RANDOM:
	case MADV_SEQUENTIAL:
		restored_advice_changes(start, end);
		break;
	default:
		break;
	}
	/* The kernel's answer to the whole counts, also for what was refused above: it meets the same
	 * memory and refuses it too. What could not be found out or made is our own to tell. */
	if (result == -EAGAIN || result == -ENOMEM)
		return result;
	return SYSTEM(SYS_madvise, start, length, advice);
}

EXPORTED int madvise(void *address, size_t length, int advice)
{
	return (int)answered(advise((unsigned long)address, length, advice));
}

EXPORTED void *mremap(void *old, size_t old_bytes, size_t new_bytes, int flags, ...)
{
	va_list more;

	va_start(more, flags);
	void *wanted = (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0 ? va_arg(more, void *) : NULL;
	va_end(more);
	struct move move = {
		.old = (unsigned long)old,
		.old_bytes = whole_pages(old_bytes),
		.new_bytes = whole_pages(new_bytes),
		.flags = flags,
		.wanted = (unsigned long)wanted,
	};
	unsigned long end = move.old + move.old_bytes;
	bool sound = (move.old & (page_bytes() - 1)) == 0 && end > move.old &&
		     move.new_bytes > 0 && (flags & ~7) == 0 &&
		     (move.wanted & (page_bytes() - 1)) == 0 &&
		     ((flags & MREMAP_DONTUNMAP) == 0 || move.old_bytes == move.new_bytes);
	bool apart = (flags & MREMAP_FIXED) == 0 || move.wanted >= end ||
		     move.wanted + move.new_bytes <= move.old;

	if (sound && apart && restored_may_be(move.old, end) && move_is_ours(&move))
		return (void *)answered(move_restored(&move));
	return (void *)answered(SYSTEM(SYS_mremap, old, old_bytes, new_bytes, flags, wanted));
}

/* The C library grows large blocks by a call of its own that nobody can wrap; what it would show
 * then is the image file behind the block, or nothing at all. */
static bool is_restored_block(const void *block, size_t wanted)
{
	enum { MAPPED = 2, FLAGS = 7 };
	size_t head = ((const size_t *)block)[-1];
	unsigned long start = (unsigned long)block & ~(page_bytes() - 1);
	struct vmas vmas;
	struct vma vma;

	if ((head & MAPPED) == 0 || wanted + 2 * sizeof(size_t) <= (head & ~(size_t)FLAGS))
		return false;
	if (!restored_may_be(start, start + (head & ~(size_t)FLAGS)))
		return false;
	if (vmas_open(&vmas, start, VMAS_ONLY) != 0)
		return true;
	bool restored = false;
	unsigned long end = start + (head & ~(size_t)FLAGS);
	while (!restored && vmas_next(&vmas, &vma) == 1 && vma.start < end)
		restored = vma.restored;
	vmas_close(&vmas);
	return restored;
}

typedef void *reallocating(void *block, size_t bytes);
extern void *__libc_realloc(void *block, size_t bytes) __attribute__((weak));
extern size_t malloc_usable_size(void *block);

static reallocating *next_realloc(void)
{
	static _Atomic uintptr_t known;
	uintptr_t found = atomic_load_explicit(&known, memory_order_relaxed);

	if (found == 0) {
		found = (uintptr_t)dlsym(RTLD_NEXT, "realloc");
		if (found == 0)
			found = (uintptr_t)__libc_realloc;
		atomic_store_explicit(&known, found, memory_order_relaxed);
	}
	return (reallocating *)found;
}

EXPORTED void *realloc(void *block, size_t bytes)
{
	reallocating *next = next_realloc();

	/* Only the C library's blocks have a head that can be read. */
	if (block == NULL || bytes == 0 || next != __libc_realloc || !is_restored_block(block, bytes))
		return next(block, bytes);
	void *moved = malloc(bytes);
	if (moved == NULL)
		return NULL;
	size_t held = malloc_usable_size(block);
	memcpy(moved, block, held < bytes ? held : bytes);
	free(block);
	return moved;
}
