#include "pieces.h"

#include <stdlib.h>

#include "failure.h"

/* Large enough that taking one costs nothing, small enough that all threads end together. */
static const uint64_t PIECE_BYTES = 4 << 20;
enum { PIECE_CHUNKS = 1024, ORDER_BITS = 20 };

struct fill_chunk fill_next_chunk(const struct fill_index *index, struct fill_cursor *cursor)
{
	const struct fill_run *run = index->runs + cursor->run;
	uint64_t into = cursor->chunk * index->header->chunk_bytes, left = run->bytes - into;
	struct fill_chunk chunk = {
		.process = run->process,
		.file = run->file,
		.address = run->address + into,
		.offset = run->offset + into,
		.bytes = left < index->header->chunk_bytes ? left : index->header->chunk_bytes,
		.digest = index->digests + (run->first_chunk + cursor->chunk) * FILL_DIGEST_BYTES,
	};

	if (++cursor->chunk == fill_run_chunks(index, run))
		*cursor = (struct fill_cursor){ .run = cursor->run + 1 };
	return chunk;
}

static struct fill_piece *add_piece(struct fill_pieces *pieces, size_t *room)
{
	if (pieces->count == *room) {
		size_t larger = *room == 0 ? 1024 : *room * 2;
		void *list = realloc(pieces->list, larger * sizeof *pieces->list);
		if (list == NULL)
			return NULL;
		pieces->list = list;
		*room = larger;
	}
	return pieces->list + pieces->count++;
}

static int by_order(const void *left, const void *right)
{
	const struct fill_piece *a = left, *b = right;

	if (a->order != b->order)
		return a->order < b->order ? -1 : 1;
	if (a->first.run != b->first.run)
		return a->first.run < b->first.run ? -1 : 1;
	return (a->first.chunk > b->first.chunk) - (a->first.chunk < b->first.chunk);
}

/* The next piece of the process that `cursor` is at. */
static void cut(const struct fill_index *index, struct fill_piece *piece,
		    struct fill_cursor *cursor)
{
	uint32_t process = index->runs[cursor->run].process;
	uint64_t bytes = 0;

	*piece = (struct fill_piece){ .first = *cursor };
	while (cursor->run < index->header->runs && index->runs[cursor->run].process == process &&
	       bytes < PIECE_BYTES && piece->chunks < PIECE_CHUNKS) {
		bytes += fill_next_chunk(index, cursor).bytes;
		piece->chunks++;
	}
}

static void number_process(struct fill_piece *pieces, size_t count)
{
	for (size_t i = 0; i < count; i++)
		pieces[i].order = ((uint64_t)i << ORDER_BITS) / count;
}

int fill_pieces_make(struct fill_pieces *pieces, const struct fill_index *index)
{
	struct fill_cursor cursor = { 0 };
	size_t room = 0, begun = 0;

	*pieces = (struct fill_pieces){ 0 };
	while (cursor.run < index->header->runs) {
		uint32_t process = index->runs[cursor.run].process;
		struct fill_piece *piece = add_piece(pieces, &room);
		if (piece == NULL)
			return fill_fail_errno(FILL_IO, "memory");
		cut(index, piece, &cursor);
		if (cursor.run < index->header->runs && index->runs[cursor.run].process == process)
			continue;
		number_process(pieces->list + begun, pieces->count - begun);
		begun = pieces->count;
	}
	if (pieces->count > 0)
		qsort(pieces->list, pieces->count, sizeof *pieces->list, by_order);
	return 0;
}
