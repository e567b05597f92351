#include "batch.h"

#include <string.h>

#include "blake3.h"
#include "failure.h"

static const size_t BATCH_BYTES = 1 << 20;

size_t fill_batch_room(const struct fill_index *index)
{
	size_t chunk = index->header->chunk_bytes;

	return chunk > BATCH_BYTES ? chunk : BATCH_BYTES;
}

bool fill_batch_take(struct fill_batch *batch, const struct fill_index *index,
		     struct fill_cursor *cursor, uint32_t *left)
{
	size_t room = fill_batch_room(index);

	batch->count = batch->bytes = 0;
	while (*left > 0 && batch->count < FILL_BATCH_CHUNKS) {
		struct fill_cursor after = *cursor;
		struct fill_chunk chunk = fill_next_chunk(index, &after);
		if (chunk.bytes > room - batch->bytes)
			break;
		batch->chunks[batch->count++] = chunk;
		batch->bytes += chunk.bytes;
		*cursor = after;
		--*left;
	}
	return batch->count > 0;
}

int fill_batch_read(const struct fill_batch *batch, const struct fill_images *images,
		    unsigned char *buffer)
{
	for (size_t i = 0; i < batch->count;) {
		const struct fill_chunk *first = batch->chunks + i;
		size_t bytes = first->bytes;
		for (i++; i < batch->count && batch->chunks[i].file == first->file &&
			  batch->chunks[i].offset == first->offset + bytes; i++)
			bytes += batch->chunks[i].bytes;
		if (fill_images_read(images, first->file, buffer, bytes, first->offset) != 0)
			return -1;
		buffer += bytes;
	}
	return 0;
}

static void digest_of(const unsigned char *data, size_t bytes, unsigned char *digest)
{
	blake3_hasher hasher;

	blake3_hasher_init(&hasher);
	blake3_hasher_update(&hasher, data, bytes);
	blake3_hasher_finalize(&hasher, digest, FILL_DIGEST_BYTES);
}

int fill_batch_check(const struct fill_batch *batch, const struct fill_index *index,
		     const unsigned char *buffer)
{
	for (size_t i = 0; i < batch->count; i++) {
		const struct fill_chunk *chunk = batch->chunks + i;
		unsigned char digest[FILL_DIGEST_BYTES];
		digest_of(buffer, chunk->bytes, digest);
		if (memcmp(digest, chunk->digest, sizeof digest) != 0)
			return fill_fail(FILL_DIGEST, "%s: the digest of %zu bytes at %llu differs",
					 index->files[chunk->file].name, chunk->bytes,
					 (unsigned long long)chunk->offset);
		buffer += chunk->bytes;
	}
	return 0;
}

void fill_batch_seal(const struct fill_batch *batch, const unsigned char *buffer)
{
	for (size_t i = 0; i < batch->count; i++) {
		digest_of(buffer, batch->chunks[i].bytes, batch->chunks[i].digest);
		buffer += batch->chunks[i].bytes;
	}
}
