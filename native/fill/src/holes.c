#include "holes.h"

#include <stdlib.h>

#include "failure.h"

static int add_hole(struct fill_holes *holes, struct fill_hole hole)
{
	for (uint64_t start = hole.start; start < hole.end; start += FILL_HOLE_BYTES) {
		if (holes->count == holes->room) {
			size_t room = holes->room == 0 ? 1024 : holes->room * 2;
			void *list = realloc(holes->list, room * sizeof *holes->list);
			if (list == NULL)
				return fill_fail_errno(FILL_IO, "memory");
			holes->list = list;
			holes->room = room;
		}
		struct fill_hole *added = holes->list + holes->count++;
		*added = hole;
		added->start = start;
		if (hole.end - start > FILL_HOLE_BYTES)
			added->end = start + FILL_HOLE_BYTES;
	}
	return 0;
}

/* Cut [start, end) of a process where its VMAs end; they cover it, as was checked. */
static int add_holes(struct fill_holes *holes, const struct fill_targets *targets,
		     uint32_t process, uint64_t start, uint64_t end)
{
	const struct fill_target *target = targets->of + process;
	size_t low = 0, high = target->vma_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (target->vmas[middle].end <= start)
			low = middle + 1;
		else
			high = middle;
	}
	for (; start < end && low < target->vma_count; low++) {
		const struct fill_vma *vma = target->vmas + low;
		uint64_t stop = vma->end < end ? vma->end : end;
		struct fill_hole hole = { process, vma->kind == FILL_VMA_PLAIN, start, stop };
		if (add_hole(holes, hole) != 0)
			return -1;
		start = stop;
	}
	return 0;
}

int fill_holes_find(struct fill_holes *holes, const struct fill_targets *targets)
{
	const struct fill_index *index = targets->index;
	const struct fill_run *run = index->runs, *last = run + index->header->runs;

	for (uint32_t i = 0; i < index->header->areas; i++) {
		const struct fill_area *area = index->areas + i;
		uint64_t at = area->start;
		for (; run < last && run->process == area->process && run->address < area->end;
		     run++) {
			if (add_holes(holes, targets, area->process, at, run->address) != 0)
				return -1;
			at = run->address + run->bytes;
		}
		if (add_holes(holes, targets, area->process, at, area->end) != 0)
			return -1;
	}
	return 0;
}
