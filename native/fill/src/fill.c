#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "batch.h"
#include "failure.h"
#include "pool.h"
#include "verbs.h"

struct filling {
	struct fill_index index;
	struct fill_images images;
	struct fill_targets targets;
	struct fill_pieces pieces;
	bool check;
};

/* A call writes less than it was asked for where the target's memory ends; the next one says why. */
static int write_vector(const struct filling *filling, uint32_t process, unsigned char *from,
			struct iovec *to, size_t count)
{
	const struct fill_target *target = filling->targets.of + process;

	while (count > 0) {
		struct iovec local = { .iov_base = from };
		for (size_t i = 0; i < count; i++)
			local.iov_len += to[i].iov_len;
		ssize_t written = process_vm_writev(target->host, &local, 1, to, count, 0);
		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return fill_target_fail(&filling->targets, process, "write",
						(uint64_t)(uintptr_t)to->iov_base);
		from += written;
		for (; count > 0 && (size_t)written >= to->iov_len; to++, count--)
			written -= (ssize_t)to->iov_len;
		if (count > 0) {
			to->iov_base = (char *)to->iov_base + written;
			to->iov_len -= (size_t)written;
		}
	}
	return 0;
}

static int write_batch(const struct filling *filling, const struct fill_batch *batch,
		       unsigned char *buffer)
{
	struct iovec to[FILL_BATCH_CHUNKS];

	for (size_t i = 0; i < batch->count; i++)
		to[i] = (struct iovec){ .iov_base = (void *)(uintptr_t)batch->chunks[i].address,
					.iov_len = batch->chunks[i].bytes };
	return write_vector(filling, batch->chunks[0].process, buffer, to, batch->count);
}

static int fill_piece(void *context, size_t item, unsigned char *scratch)
{
	struct filling *filling = context;
	struct fill_piece *piece = filling->pieces.list + item;
	struct fill_cursor cursor = piece->first;
	struct fill_batch batch;

	for (uint32_t left = piece->chunks;
	     !fill_failed() && fill_batch_take(&batch, &filling->index, &cursor, &left);) {
		if (fill_batch_read(&batch, &filling->images, scratch) != 0)
			return -1;
		if (filling->check && fill_batch_check(&batch, &filling->index, scratch) != 0)
			return -1;
		if (write_batch(filling, &batch, scratch) != 0)
			return -1;
	}
	return 0;
}

static int refuse_mapped(const struct fill_index *index)
{
	for (uint32_t i = 0; i < index->header->areas; i++)
		if ((index->areas[i].flags & FILL_AREA_MAPPED) != 0)
			return fill_fail(FILL_INVALID,
					 "index: its areas are mapped from the files, not filled");
	return 0;
}

/* A target that ended after its last byte was written is no success either. */
static int check_alive(const struct fill_targets *targets)
{
	for (uint32_t i = 0; i < targets->index->header->processes; i++)
		if (fill_target_ended(targets->of + i)) {
			errno = ESRCH;
			return fill_target_fail(targets, i, "", 0);
		}
	return 0;
}

static void report(struct filling *filling, double seconds, unsigned threads)
{
	const struct fill_header *header = filling->index.header;

	printf("{\"bytes\":%llu,\"seconds\":%.6f,\"threads\":%u,\"pages\":%llu,\"digests\":%s,"
	       "\"runs\":%u,\"processes\":[",
	       (unsigned long long)header->bytes, seconds, threads,
	       (unsigned long long)header->bytes / FILL_PAGE, filling->check ? "true" : "false",
	       header->runs);
	for (uint32_t i = 0; i < header->processes; i++)
		printf("%s{\"pid\":%u,\"bytes\":%llu}", i > 0 ? "," : "",
		       filling->index.processes[i].pid,
		       (unsigned long long)filling->targets.of[i].bytes);
	puts("]}");
}

int fill_verb_fill(const struct fill_options *options)
{
	static struct filling filling; /* not on the stack: threads may outlive a failure */
	static struct fill_pool pool;
	double begun = fill_now();

	filling.check = !options->no_digests;
	if (fill_index_read(&filling.index, options->index, true) != 0 ||
	    refuse_mapped(&filling.index) != 0 ||
	    fill_images_open(&filling.images, &filling.index, options->images) != 0 ||
	    fill_targets_open(&filling.targets, &filling.index, options->pairs,
			      options->pair_count) != 0 ||
	    fill_targets_check(&filling.targets) != 0 ||
	    fill_pieces_make(&filling.pieces, &filling.index) != 0)
		return fill_report_failure("");
	pool = (struct fill_pool){
		.threads = options->threads,
		.deadline = options->deadline,
		.targets = &filling.targets,
		.scratch_bytes = fill_batch_room(&filling.index),
		.count = filling.pieces.count,
		.work = fill_piece,
		.context = &filling,
	};
	if (fill_pool_run(&pool) != 0 || fill_images_unchanged(&filling.images) != 0 ||
	    check_alive(&filling.targets) != 0)
		return fill_report_failure("");
	report(&filling, fill_now() - begun, pool.threads);
	free(filling.pieces.list);
	fill_targets_close(&filling.targets);
	fill_images_close(&filling.images);
	fill_index_free(&filling.index);
	return FILL_DONE;
}
