/* fill.index: which bytes of which image files belong where in which process. docs/formats.md. */
#ifndef COLDSNAP_FILL_INDEX_H
#define COLDSNAP_FILL_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FILL_PAGE = 4096,
	FILL_DIGEST_BYTES = 32,
	FILL_NAME_BYTES = 64,
	FILL_AREA_HUGE = 1,   /* may take huge pages */
	FILL_AREA_MAPPED = 2, /* its runs are mapped from the files: compared, never filled */
};

/* As in the file, little-endian. Nothing is padded by the compiler: see index.c. */
struct fill_header {
	char magic[8];
	uint32_t files, processes, areas, runs, chunks;
	uint32_t chunk_bytes, digest_kind, reserved;
	uint64_t bytes;
};

struct fill_file {
	uint64_t bytes;
	char name[FILL_NAME_BYTES];
};

struct fill_process {
	uint32_t pid, reserved;
};

struct fill_area {
	uint32_t process, flags;
	uint64_t start, end;
};

struct fill_run {
	uint32_t process, file;
	uint64_t address, bytes, offset, first_chunk;
};

struct fill_index {
	unsigned char *data; /* the whole file; what follows points into it */
	size_t data_bytes;
	const struct fill_header *header;
	const struct fill_file *files;
	const struct fill_process *processes;
	const struct fill_area *areas;
	const struct fill_run *runs;
	unsigned char *digests;
};

/* Number of chunks of a run. */
uint64_t fill_run_chunks(const struct fill_index *index, const struct fill_run *run);

/* Take `data` as an index if every number in it is sound; `sealed`: its own digest must be right
 * too. `data` stays the caller's. 0, or -1 and failed as FILL_INVALID. */
int fill_index_parse(struct fill_index *index, unsigned char *data, size_t bytes, bool sealed);

/* Read and parse the file at `path`. 0, or -1 and failed. */
int fill_index_read(struct fill_index *index, const char *path, bool sealed);

/* Compute the digest at the end of the index. */
void fill_index_finish(struct fill_index *index);

/* Put the index in the place of the file at `path`, whole or not at all. 0, or -1 and failed. */
int fill_index_replace(const struct fill_index *index, const char *path);

void fill_index_free(struct fill_index *index);

#endif
