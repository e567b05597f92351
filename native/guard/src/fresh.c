#include "fresh.h"

#include <string.h>
#include <sys/mman.h>

#include "restored.h"
#include "system.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

/* Bits by madvise's numbers, and RESTORED_NO_RESERVE. */
static unsigned advice_of(const struct vma *vma)
{
	struct vmas vmas;
	struct vma found;
	unsigned advice = restored_advice(vma->start, vma->end);

	if (advice != RESTORED_UNKNOWN || vmas_open(&vmas, vma->start, VMAS_ADVICE) != 0)
		return advice & ~RESTORED_UNKNOWN;
	advice = 0;
	if (vmas_next(&vmas, &found) == 1 && found.start <= vma->start)
		advice = found.advice | (found.no_reserve ? RESTORED_NO_RESERVE : 0);
	vmas_close(&vmas);
	return advice;
}

static void give_advice(unsigned long start, unsigned long end, unsigned advice)
{
	for (int bit = 0; bit < 30; bit++)
		if ((advice >> bit & 1) != 0)
			SYSTEM(SYS_madvise, start, end - start, bit);
}

long fresh_memory(unsigned long start, unsigned long end, const struct vma *vma, int flags)
{
	unsigned advice = advice_of(vma);
	int kind = MAP_PRIVATE | MAP_ANONYMOUS | flags;

	if ((advice & RESTORED_NO_RESERVE) != 0)
		kind |= MAP_NORESERVE;
	long result = SYSTEM(SYS_mmap, start, end - start, vma->prot, kind, -1, 0);
	if (result < 0 && result > -4096)
		return result;
	if ((unsigned long)result != start) { /* before Linux 4.17 NOREPLACE was a hint */
		SYSTEM(SYS_munmap, result, end - start);
		return -EEXIST;
	}
	give_advice(start, end, advice);
	return 0;
}

static long replace(const struct vma *vma, unsigned long start, unsigned long end, int discard)
{
	/* The kernel says by this whether it would have done it to anonymous memory. */
	long result = SYSTEM(SYS_madvise, start, end - start, MADV_DONTNEED);
	bool locked = result == -EINVAL && discard == MADV_DONTNEED_LOCKED;
	if (locked)
		result = SYSTEM(SYS_madvise, start, end - start, MADV_DONTNEED_LOCKED);
	if (result != 0)
		return result;
	result = fresh_memory(start, end, vma, MAP_FIXED);
	if (result == 0 && locked)
		SYSTEM(SYS_mlock2, start, end - start, MLOCK_ONFAULT);
	return result;
}

long fresh_within(unsigned long start, unsigned long end, int discard)
{
	struct vmas vmas;
	struct vma vma;
	long result = vmas_open(&vmas, start, VMAS_ONLY);

	if (result != 0)
		return -EAGAIN; /* what is there is not known: refused rather than wrong */
	while (start < end && (result = vmas_next(&vmas, &vma)) == 1 && vma.start < end) {
		unsigned long from = vma.start > start ? vma.start : start;
		unsigned long to = vma.end < end ? vma.end : end;
		start = to;
		if (vma.restored && (result = replace(&vma, from, to, discard)) != 0)
			break;
	}
	vmas_close(&vmas);
	return result < 0 ? result : 0;
}

static long copy_over(const struct vma *vma, unsigned long start, unsigned long end)
{
	long made = SYSTEM(SYS_mmap, 0, end - start, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (made < 0 && made > -4096)
		return made;
	memcpy((void *)made, (const void *)start, end - start);
	SYSTEM(SYS_mprotect, made, end - start, vma->prot);
	unsigned advice = advice_of(vma);
	long result = SYSTEM(SYS_mremap, made, end - start, end - start,
			     MREMAP_MAYMOVE | MREMAP_FIXED, start);
	if (result < 0 && result > -4096) {
		SYSTEM(SYS_munmap, made, end - start);
		return result;
	}
	give_advice(start, end, advice);
	return 0;
}

long whole_within(unsigned long start, unsigned long end)
{
	struct vmas vmas;
	struct vma vma;
	long result = vmas_open(&vmas, start, VMAS_ONLY);

	if (result != 0)
		return -EAGAIN;
	while (start < end && (result = vmas_next(&vmas, &vma)) == 1 && vma.start < end) {
		unsigned long from = vma.start > start ? vma.start : start;
		start = vma.end < end ? vma.end : end;
		if (vma.restored && (vma.prot & PROT_READ) != 0 &&
		    (result = copy_over(&vma, from, start)) != 0)
			break;
	}
	vmas_close(&vmas);
	return result < 0 ? result : 0;
}
