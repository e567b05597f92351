#include "index.h"

#include <stdlib.h>
#include <string.h>

#include "blake3.h"
#include "failure.h"

static const char MAGIC[8] = { 'C', 'S', 'F', 'I', 'L', 'L', '0', '1' };
enum { DIGEST_BLAKE3 = 1, MOST_PROCESSES = 1 << 16, MOST_FILES = 1 << 16, LAST_PID = 1 << 22 };
static const uint64_t LEAST_CHUNK = FILL_PAGE, MOST_CHUNK = 64 << 20;
static const uint64_t MOST_ADDRESS = 1ULL << 63, MOST_FILE_BYTES = 1ULL << 60;

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the index is read in place");
_Static_assert(sizeof(struct fill_header) == 48 && sizeof(struct fill_file) == 72, "format");
_Static_assert(sizeof(struct fill_process) == 8 && sizeof(struct fill_area) == 24, "format");
_Static_assert(sizeof(struct fill_run) == 40, "format");

#define INVALID(...) fill_fail(FILL_INVALID, "index: " __VA_ARGS__)

uint64_t fill_run_chunks(const struct fill_index *index, const struct fill_run *run)
{
	return (run->bytes - 1) / index->header->chunk_bytes + 1;
}

static bool on_page(uint64_t value)
{
	return value % FILL_PAGE == 0;
}

static int check_header(const struct fill_header *header, size_t bytes)
{
	if (memcmp(header->magic, MAGIC, sizeof MAGIC) != 0)
		return INVALID("not an index of this version");
	if (header->digest_kind != DIGEST_BLAKE3)
		return INVALID("digests of kind %u", header->digest_kind);
	uint64_t chunk = header->chunk_bytes;
	if (chunk < LEAST_CHUNK || chunk > MOST_CHUNK || (chunk & (chunk - 1)) != 0)
		return INVALID("chunks of %u bytes", header->chunk_bytes);
	if (header->reserved != 0)
		return INVALID("a reserved field is set");
	if (header->files > MOST_FILES || header->processes > MOST_PROCESSES)
		return INVALID("%u files, %u processes", header->files, header->processes);
	/* None of these can overflow: 32-bit counts of small things. */
	uint64_t wanted = sizeof *header + header->files * (uint64_t)sizeof(struct fill_file) +
			  header->processes * (uint64_t)sizeof(struct fill_process) +
			  header->areas * (uint64_t)sizeof(struct fill_area) +
			  header->runs * (uint64_t)sizeof(struct fill_run) +
			  (header->chunks + 1ULL) * FILL_DIGEST_BYTES;
	if (wanted != bytes)
		return INVALID("%zu bytes long, its counts need %llu", bytes,
			       (unsigned long long)wanted);
	return 0;
}

/* A plain name: no folder, no way out of one, nothing that a terminal would obey. */
static bool good_name(const char *name)
{
	size_t length = strnlen(name, FILL_NAME_BYTES);

	if (length == 0 || length == FILL_NAME_BYTES || name[0] == '.')
		return false;
	for (size_t i = 0; i < length; i++)
		if (name[i] == '/' || name[i] <= ' ' || name[i] > '~')
			return false;
	for (size_t i = length; i < FILL_NAME_BYTES; i++)
		if (name[i] != '\0')
			return false;
	return true;
}

static int check_files(const struct fill_index *index)
{
	for (uint32_t i = 0; i < index->header->files; i++) {
		const struct fill_file *file = index->files + i;
		if (!good_name(file->name))
			return INVALID("file %u has an impossible name", i);
		if (file->bytes > MOST_FILE_BYTES || !on_page(file->bytes))
			return INVALID("file %s of %llu bytes", file->name,
				       (unsigned long long)file->bytes);
	}
	return 0;
}

static int by_number(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	return (a > b) - (a < b);
}

static int check_processes(const struct fill_index *index)
{
	uint32_t count = index->header->processes;
	uint32_t *pids = calloc(count + 1ULL, sizeof *pids);
	int result = 0;

	if (pids == NULL)
		return fill_fail_errno(FILL_IO, "memory");
	for (uint32_t i = 0; i < count; i++)
		pids[i] = index->processes[i].pid;
	qsort(pids, count, sizeof *pids, by_number);
	for (uint32_t i = 0; i < count && result == 0; i++)
		if (index->processes[i].reserved != 0)
			result = INVALID("a reserved field is set");
		else if (pids[i] == 0 || pids[i] > LAST_PID)
			result = INVALID("process %u", pids[i]);
		else if (i > 0 && pids[i] == pids[i - 1])
			result = INVALID("process %u twice", pids[i]);
	free(pids);
	return result;
}

static int check_areas(const struct fill_index *index)
{
	const struct fill_area *before = NULL;

	for (uint32_t i = 0; i < index->header->areas; i++) {
		const struct fill_area *area = index->areas + i;
		if (area->process >= index->header->processes)
			return INVALID("area %u is of no process", i);
		if ((area->flags & ~(uint32_t)(FILL_AREA_HUGE | FILL_AREA_MAPPED)) != 0)
			return INVALID("area %u has unknown flags", i);
		if (!on_page(area->start) || !on_page(area->end) || area->start >= area->end ||
		    area->end > MOST_ADDRESS)
			return INVALID("area %u has impossible bounds", i);
		if (before != NULL && (area->process < before->process ||
				       (area->process == before->process && area->start < before->end)))
			return INVALID("area %u overlaps or is out of order", i);
		before = area;
	}
	return 0;
}

/* The bounds of one run by itself. `chunk`: chunks of all runs before. */
static int check_run(const struct fill_index *index, uint32_t i, uint64_t chunk)
{
	const struct fill_run *run = index->runs + i;

	if (run->process >= index->header->processes || run->file >= index->header->files)
		return INVALID("run %u is of no process or no file", i);
	if (run->bytes == 0 || !on_page(run->address) || !on_page(run->bytes) ||
	    !on_page(run->offset))
		return INVALID("run %u is not made of pages", i);
	uint64_t size = index->files[run->file].bytes;
	if (run->offset > size || run->bytes > size - run->offset)
		return INVALID("run %u is outside its file", i);
	if (run->first_chunk != chunk)
		return INVALID("run %u has the wrong first chunk", i);
	return 0;
}

static int check_runs(const struct fill_index *index)
{
	uint64_t chunks = 0, bytes = 0, from = 0;
	uint32_t area = 0;

	for (uint32_t i = 0; i < index->header->runs; i++) {
		const struct fill_run *run = index->runs + i;
		if (check_run(index, i, chunks) != 0)
			return -1;
		/* Areas are in the same order, so the run's is this one or a later one. */
		while (area < index->header->areas &&
		       (index->areas[area].process < run->process ||
			(index->areas[area].process == run->process &&
			 index->areas[area].end <= run->address))) {
			area++;
			from = 0;
		}
		if (area == index->header->areas || index->areas[area].process != run->process ||
		    run->address < index->areas[area].start ||
		    run->bytes > index->areas[area].end - run->address)
			return INVALID("run %u is in no area, or out of order", i);
		if (run->address < from)
			return INVALID("run %u overlaps or is out of order", i);
		from = run->address + run->bytes;
		chunks += fill_run_chunks(index, run);
		bytes += run->bytes; /* 2^32 runs cannot be here, nor 2^64 bytes in areas */
		if (chunks > index->header->chunks || bytes > MOST_ADDRESS)
			return INVALID("run %u has no digests", i);
	}
	if (chunks != index->header->chunks || bytes != index->header->bytes)
		return INVALID("its totals are not those of its runs");
	return 0;
}

static void own_digest(const struct fill_index *index, unsigned char *digest)
{
	blake3_hasher hasher;

	blake3_hasher_init(&hasher);
	blake3_hasher_update(&hasher, index->data, index->data_bytes - FILL_DIGEST_BYTES);
	blake3_hasher_finalize(&hasher, digest, FILL_DIGEST_BYTES);
}

static int check_seal(const struct fill_index *index)
{
	unsigned char digest[FILL_DIGEST_BYTES];

	own_digest(index, digest);
	if (memcmp(digest, index->data + index->data_bytes - FILL_DIGEST_BYTES, sizeof digest) != 0)
		return INVALID("its own digest differs: it is damaged, or was never sealed");
	return 0;
}

int fill_index_parse(struct fill_index *index, unsigned char *data, size_t bytes, bool sealed)
{
	if (bytes < sizeof *index->header + FILL_DIGEST_BYTES)
		return INVALID("%zu bytes are too few", bytes);
	*index = (struct fill_index){ .data = data, .data_bytes = bytes, .header = (void *)data };
	if (check_header(index->header, bytes) != 0)
		return -1;
	index->files = (const void *)(index->header + 1);
	index->processes = (const void *)(index->files + index->header->files);
	index->areas = (const void *)(index->processes + index->header->processes);
	index->runs = (const void *)(index->areas + index->header->areas);
	index->digests = data + ((const unsigned char *)(index->runs + index->header->runs) - data);
	if (sealed && check_seal(index) != 0)
		return -1;
	if (check_files(index) != 0 || check_processes(index) != 0 || check_areas(index) != 0)
		return -1;
	return check_runs(index);
}

void fill_index_finish(struct fill_index *index)
{
	own_digest(index, index->data + index->data_bytes - FILL_DIGEST_BYTES);
}

void fill_index_free(struct fill_index *index)
{
	free(index->data);
	index->data = NULL;
}
