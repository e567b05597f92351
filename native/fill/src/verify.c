#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batch.h"
#include "failure.h"
#include "holes.h"
#include "pool.h"
#include "verbs.h"

struct open_target {
	int memory, pagemap;
};

struct verifying {
	struct fill_index index;
	struct fill_images images;
	struct fill_targets targets;
	struct open_target *open;
	struct fill_pieces pieces;
	struct fill_holes holes;
	bool check;

	pthread_mutex_t lock;
	uint64_t zero_pages;  /* of holes, that were there and read */
	uint64_t differences; /* pages */
	uint32_t process;     /* of the first */
	uint64_t address;
};

static const uint64_t PAGE_IS_THERE = 3ULL << 62; /* present, or swapped */

static int read_at(int fd, void *buffer, size_t bytes, uint64_t offset)
{
	char *to = buffer;

	while (bytes > 0) {
		ssize_t count = pread(fd, to, bytes, (off_t)offset);
		if (count < 0 && errno == EINTR)
			continue;
		if (count <= 0) {
			errno = count == 0 ? ESRCH : errno; /* its memory is gone */
			return -1;
		}
		to += count;
		bytes -= (size_t)count;
		offset += (uint64_t)count;
	}
	return 0;
}

static int read_memory(const struct verifying *verifying, uint32_t process, void *buffer,
		       size_t bytes, uint64_t address)
{
	if (read_at(verifying->open[process].memory, buffer, bytes, address) == 0)
		return 0;
	return fill_target_fail(&verifying->targets, process, "read", address);
}

static void note_difference(struct verifying *verifying, uint32_t process, uint64_t address)
{
	pthread_mutex_lock(&verifying->lock);
	if (verifying->differences++ == 0 || process < verifying->process ||
	    (process == verifying->process && address < verifying->address)) {
		verifying->process = process;
		verifying->address = address;
	}
	pthread_mutex_unlock(&verifying->lock);
}

static void compare(struct verifying *verifying, const struct fill_chunk *chunk,
		    const unsigned char *wanted, const unsigned char *found)
{
	if (memcmp(wanted, found, chunk->bytes) == 0)
		return;
	for (size_t at = 0; at < chunk->bytes; at += FILL_PAGE)
		if (memcmp(wanted + at, found + at, FILL_PAGE) != 0)
			note_difference(verifying, chunk->process, chunk->address + at);
}

static int verify_piece(struct verifying *verifying, const struct fill_piece *piece,
			unsigned char *scratch)
{
	struct fill_cursor cursor = piece->first;
	unsigned char *memory = scratch + fill_batch_room(&verifying->index);
	struct fill_batch batch;

	for (uint32_t left = piece->chunks;
	     !fill_failed() && fill_batch_take(&batch, &verifying->index, &cursor, &left);) {
		const unsigned char *wanted = scratch;
		if (fill_batch_read(&batch, &verifying->images, scratch) != 0)
			return -1;
		if (verifying->check && fill_batch_check(&batch, &verifying->index, scratch) != 0)
			return -1;
		for (size_t i = 0; i < batch.count; wanted += batch.chunks[i++].bytes) {
			const struct fill_chunk *chunk = batch.chunks + i;
			if (read_memory(verifying, chunk->process, memory, chunk->bytes,
					chunk->address) != 0)
				return -1;
			compare(verifying, chunk, wanted, memory);
		}
	}
	return 0;
}

static bool is_zero(const unsigned char *page)
{
	return page[0] == 0 && memcmp(page, page + 1, FILL_PAGE - 1) == 0;
}

static int verify_hole(struct verifying *verifying, const struct fill_hole *hole,
		       unsigned char *scratch)
{
	size_t pages = (hole->end - hole->start) / FILL_PAGE;
	uint64_t *entries = (uint64_t *)(void *)scratch, read_pages = 0;
	unsigned char *page = scratch + FILL_HOLE_BYTES / FILL_PAGE * sizeof *entries;

	if (hole->plain &&
	    read_at(verifying->open[hole->process].pagemap, entries, pages * sizeof *entries,
		    hole->start / FILL_PAGE * sizeof *entries) != 0)
		return fill_target_fail(&verifying->targets, hole->process, "page map",
					hole->start);
	for (size_t i = 0; i < pages && !fill_failed(); i++) {
		uint64_t address = hole->start + i * FILL_PAGE;
		if (hole->plain && (entries[i] & PAGE_IS_THERE) == 0)
			continue;
		if (read_memory(verifying, hole->process, page, FILL_PAGE, address) != 0)
			return -1;
		read_pages++;
		if (!is_zero(page))
			note_difference(verifying, hole->process, address);
	}
	pthread_mutex_lock(&verifying->lock);
	verifying->zero_pages += read_pages;
	pthread_mutex_unlock(&verifying->lock);
	return 0;
}

static int verify_item(void *context, size_t item, unsigned char *scratch)
{
	struct verifying *verifying = context;

	if (item < verifying->pieces.count)
		return verify_piece(verifying, verifying->pieces.list + item, scratch);
	return verify_hole(verifying, verifying->holes.list + (item - verifying->pieces.count), scratch);
}

static int open_memory(struct verifying *verifying)
{
	uint32_t count = verifying->index.header->processes;

	verifying->open = calloc(count + 1ULL, sizeof *verifying->open);
	if (verifying->open == NULL)
		return fill_fail_errno(FILL_IO, "memory");
	for (uint32_t i = 0; i < count; i++) {
		char path[64];
		snprintf(path, sizeof path, "/proc/%d/mem", verifying->targets.of[i].host);
		verifying->open[i].memory = open(path, O_RDONLY | O_CLOEXEC);
		snprintf(path, sizeof path, "/proc/%d/pagemap", verifying->targets.of[i].host);
		verifying->open[i].pagemap = open(path, O_RDONLY | O_CLOEXEC);
		if (verifying->open[i].memory < 0 || verifying->open[i].pagemap < 0)
			return fill_target_fail(&verifying->targets, i, "open", 0);
	}
	return 0;
}

static int report(const struct verifying *verifying, double seconds, unsigned threads)
{
	const struct fill_header *header = verifying->index.header;
	char members[512], where[96] = "";

	if (verifying->differences > 0)
		snprintf(where, sizeof where, ",\"process\":%u,\"address\":\"0x%llx\"",
			 verifying->index.processes[verifying->process].pid,
			 (unsigned long long)verifying->address);
	snprintf(members, sizeof members,
		 "\"bytes\":%llu,\"seconds\":%.6f,\"threads\":%u,\"pages\":%llu,"
		 "\"zero_pages\":%llu,\"digests\":%s,\"differences\":%llu%s",
		 (unsigned long long)header->bytes, seconds, threads,
		 (unsigned long long)header->bytes / FILL_PAGE,
		 (unsigned long long)verifying->zero_pages, verifying->check ? "true" : "false",
		 (unsigned long long)verifying->differences, where);
	if (verifying->differences == 0) {
		printf("{%s}\n", members);
		return FILL_DONE;
	}
	char extra[sizeof members + 1];
	snprintf(extra, sizeof extra, ",%s", members);
	fill_fail(FILL_DIFFERS, "%llu pages differ, the first in process %u at 0x%llx",
		  (unsigned long long)verifying->differences,
		  verifying->index.processes[verifying->process].pid,
		  (unsigned long long)verifying->address);
	return fill_report_failure(extra);
}

int fill_verb_verify(const struct fill_options *options)
{
	static struct verifying verifying = { .lock = PTHREAD_MUTEX_INITIALIZER };
	static struct fill_pool pool; /* not on the stack: threads may outlive a failure */
	double begun = fill_now();

	verifying.check = !options->no_digests;
	if (fill_index_read(&verifying.index, options->index, true) != 0 ||
	    fill_images_open(&verifying.images, &verifying.index, options->images) != 0 ||
	    fill_targets_open(&verifying.targets, &verifying.index, options->pairs,
			      options->pair_count) != 0 ||
	    fill_targets_check(&verifying.targets) != 0 || open_memory(&verifying) != 0 ||
	    fill_pieces_make(&verifying.pieces, &verifying.index) != 0 ||
	    fill_holes_find(&verifying.holes, &verifying.targets) != 0)
		return fill_report_failure("");
	pool = (struct fill_pool){
		.threads = options->threads,
		.deadline = options->deadline,
		.targets = &verifying.targets,
		.scratch_bytes = 2 * fill_batch_room(&verifying.index),
		.count = verifying.pieces.count + verifying.holes.count,
		.work = verify_item,
		.context = &verifying,
	};
	if (fill_pool_run(&pool) != 0 || fill_images_unchanged(&verifying.images) != 0)
		return fill_report_failure("");
	int status = report(&verifying, fill_now() - begun, pool.threads);
	for (uint32_t i = 0; i < verifying.index.header->processes; i++) {
		close(verifying.open[i].memory);
		close(verifying.open[i].pagemap);
	}
	free(verifying.open);
	free(verifying.holes.list);
	free(verifying.pieces.list);
	fill_targets_close(&verifying.targets);
	fill_images_close(&verifying.images);
	fill_index_free(&verifying.index);
	return status;
}
