#include <stdio.h>
#include <stdlib.h>

#include "batch.h"
#include "failure.h"
#include "pool.h"
#include "verbs.h"

struct seal {
	struct fill_index index;
	struct fill_images images;
	struct fill_pieces pieces;
};

static int seal_piece(void *context, size_t item, unsigned char *scratch)
{
	struct seal *seal = context;
	struct fill_piece *piece = seal->pieces.list + item;
	struct fill_cursor cursor = piece->first;
	struct fill_batch batch;

	for (uint32_t left = piece->chunks; fill_batch_take(&batch, &seal->index, &cursor, &left);) {
		if (fill_batch_read(&batch, &seal->images, scratch) != 0)
			return -1;
		fill_batch_seal(&batch, scratch);
	}
	return 0;
}

int fill_verb_seal(const struct fill_options *options)
{
	static struct seal seal; /* not on the stack: threads may outlive a failure */
	static struct fill_pool pool;
	double begun = fill_now();

	if (fill_index_read(&seal.index, options->index, false) != 0 ||
	    fill_images_open(&seal.images, &seal.index, options->images) != 0 ||
	    fill_pieces_make(&seal.pieces, &seal.index) != 0)
		return fill_report_failure("");
	pool = (struct fill_pool){
		.threads = options->threads,
		.deadline = options->deadline,
		.scratch_bytes = fill_batch_room(&seal.index),
		.count = seal.pieces.count,
		.work = seal_piece,
		.context = &seal,
	};
	if (fill_pool_run(&pool) != 0 || fill_images_unchanged(&seal.images) != 0)
		return fill_report_failure("");
	fill_index_finish(&seal.index);
	if (fill_index_replace(&seal.index, options->index) != 0)
		return fill_report_failure("");
	const struct fill_header *header = seal.index.header;
	printf("{\"bytes\":%llu,\"seconds\":%.6f,\"threads\":%u,\"chunks\":%u,\"runs\":%u}\n",
	       (unsigned long long)header->bytes, fill_now() - begun, pool.threads, header->chunks,
	       header->runs);
	free(seal.pieces.list);
	fill_images_close(&seal.images);
	fill_index_free(&seal.index);
	return FILL_DONE;
}
