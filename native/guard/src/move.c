#include "move.h"

#include <stdbool.h>
#include <sys/mman.h>

#include "fresh.h"
#include "restored.h"
#include "system.h"
#include "vmas.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static bool is_error(long result)
{
	return result < 0 && result > -4096;
}

/* Call for every part of [start, end) that is in one VMA. Stops at what is not 0. */
static long each_part(unsigned long start, unsigned long end, void *context,
		      long (*call)(void *context, const struct vma *vma, unsigned long start,
				   unsigned long end))
{
	struct vmas vmas;
	struct vma vma;
	long result = vmas_open(&vmas, start, VMAS_ONLY);

	if (result != 0)
		return -EAGAIN;
	while (start < end && (result = vmas_next(&vmas, &vma)) == 1) {
		unsigned long to = vma.end < end ? vma.end : end;
		result = vma.start > start ? -EFAULT : call(context, &vma, start, to);
		if (result != 0)
			break;
		start = to;
	}
	vmas_close(&vmas);
	if (result == 1)
		result = 0;
	return result == 0 && start < end ? -EFAULT : result;
}

struct survey {
	bool restored;
	int prot; /* -1 before the first part */
	struct vma last;
};

static long survey_part(void *context, const struct vma *vma, unsigned long start,
			unsigned long end)
{
	struct survey *survey = context;

	(void)start;
	(void)end;
	if (!(vma->restored || vma->anonymous) || (survey->prot != -1 && survey->prot != vma->prot))
		return -EFAULT;
	survey->restored |= vma->restored;
	survey->prot = vma->prot;
	survey->last = *vma;
	return 0;
}

static long survey_range(const struct move *move, struct survey *survey)
{
	*survey = (struct survey){ .prot = -1 };
	return each_part(move->old, move->old + move->old_bytes, survey, survey_part);
}

int move_is_ours(const struct move *move)
{
	struct survey survey;

	return survey_range(move, &survey) == 0 && survey.restored;
}

struct shift {
	unsigned long from, to, done; /* `done`: what was moved, as an end of the old range */
	bool leave_empty;
};

static long move_part(void *context, const struct vma *vma, unsigned long start,
		      unsigned long end)
{
	struct shift *shift = context;
	unsigned long to = shift->to + (start - shift->from);
	long result = SYSTEM(SYS_mremap, start, end - start, end - start,
			     MREMAP_MAYMOVE | MREMAP_FIXED, to);

	if (is_error(result))
		return result;
	shift->done = end;
	if (vma->restored)
		restored_add(to, to + (end - start));
	if (!shift->leave_empty)
		return 0;
	/* Its advice is that of where it went; only its protection matters for empty memory. */
	struct vma there = *vma;
	there.start = to;
	there.end = to + (end - start);
	return fresh_memory(start, end, &there, MAP_FIXED);
}

static long put_at(const struct move *move, unsigned long to, const struct survey *survey)
{
	struct shift shift = { .from = move->old, .to = to, .done = move->old,
			       .leave_empty = (move->flags & MREMAP_DONTUNMAP) != 0 };
	unsigned long kept = move->old_bytes < move->new_bytes ? move->old_bytes : move->new_bytes;
	long result = each_part(move->old, move->old + kept, &shift, move_part);
	struct vma last = survey->last;

	last.start = to + (kept > 4096 ? kept - 4096 : 0);
	last.end = to + kept;
	if (result == 0 && move->new_bytes > kept)
		result = fresh_memory(to + kept, to + move->new_bytes, &last, MAP_FIXED);
	if (result != 0) { /* back to where it was: the caller still owns it there */
		struct shift back = { .from = to, .to = move->old, .done = to };
		each_part(to, to + (shift.done - move->old), &back, move_part);
		return result;
	}
	if (move->old_bytes > kept)
		SYSTEM(SYS_munmap, move->old + kept, move->old_bytes - kept);
	return (long)to;
}

long move_restored(const struct move *move)
{
	struct survey survey;
	long result = survey_range(move, &survey);
	unsigned long end = move->old + move->old_bytes;
	bool fixed = (move->flags & MREMAP_FIXED) != 0;
	bool stays = !fixed && (move->flags & MREMAP_DONTUNMAP) == 0;

	if (result != 0)
		return result;
	if (stays && move->new_bytes <= move->old_bytes) {
		if (move->new_bytes < move->old_bytes)
			result = SYSTEM(SYS_munmap, move->old + move->new_bytes,
					move->old_bytes - move->new_bytes);
		return result != 0 ? result : (long)move->old;
	}
	if (stays && fresh_memory(end, move->old + move->new_bytes, &survey.last,
				  MAP_FIXED_NOREPLACE) == 0)
		return (long)move->old;
	if ((move->flags & MREMAP_MAYMOVE) == 0)
		return fixed ? -EINVAL : -ENOMEM;
	long to = SYSTEM(SYS_mmap, fixed ? move->wanted : 0, move->new_bytes, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (fixed ? MAP_FIXED : 0), -1, 0);
	if (is_error(to))
		return to;
	result = put_at(move, (unsigned long)to, &survey);
	if (is_error(result))
		SYSTEM(SYS_munmap, to, move->new_bytes);
	return result;
}
