/* libFuzzer: any bytes as an index. Nothing may crash, and what is accepted must be sound: every
 * chunk inside its file and its area, in order, all bytes once. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "index.h"
#include "pieces.h"

static void check(int condition)
{
	if (!condition)
		abort();
}

static int in_an_area(const struct fill_index *index, const struct fill_chunk *chunk)
{
	for (uint32_t i = 0; i < index->header->areas; i++)
		if (index->areas[i].process == chunk->process &&
		    chunk->address >= index->areas[i].start &&
		    chunk->address + chunk->bytes <= index->areas[i].end)
			return 1;
	return 0;
}

static void check_chunks(const struct fill_index *index)
{
	struct fill_pieces pieces;
	struct fill_cursor cursor = { 0 };
	uint64_t bytes = 0, end = 0, chunks = 0;
	uint32_t process = 0;

	while (cursor.run < index->header->runs) {
		struct fill_chunk chunk = fill_next_chunk(index, &cursor);
		check(chunk.bytes > 0 && chunk.bytes <= index->header->chunk_bytes);
		check(chunk.file < index->header->files && chunk.process < index->header->processes);
		check(chunk.offset + chunk.bytes <= index->files[chunk.file].bytes);
		check(chunk.digest >= index->digests &&
		      chunk.digest + 2 * FILL_DIGEST_BYTES <= index->data + index->data_bytes);
		check(chunk.process >= process && (chunk.process > process || chunk.address >= end));
		check(in_an_area(index, &chunk));
		process = chunk.process;
		end = chunk.address + chunk.bytes;
		bytes += chunk.bytes;
		chunks++;
	}
	check(bytes == index->header->bytes && chunks == index->header->chunks);
	check(fill_pieces_make(&pieces, index) == 0);
	for (size_t i = 0; i < pieces.count; i++)
		chunks -= pieces.list[i].chunks;
	check(chunks == 0);
	free(pieces.list);
	for (uint32_t i = 0; i < index->header->files; i++) {
		const char *name = index->files[i].name;
		check(memchr(name, '\0', FILL_NAME_BYTES) != NULL);
		check(*name != '\0' && *name != '.' && strchr(name, '/') == NULL);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fill_index index;
	unsigned char *copy = malloc(size + 1);

	check(copy != NULL);
	memcpy(copy, data, size);
	fill_forget_failure();
	if (fill_index_parse(&index, copy, size, false) == 0) {
		check(!fill_failed());
		check_chunks(&index);
		fill_index_finish(&index);
		check(fill_index_parse(&index, copy, size, true) == 0);
		copy[size / 2] ^= 1;
		check(fill_index_parse(&index, copy, size, true) != 0);
	} else
		check(fill_failed());
	free(copy);
	return 0;
}
