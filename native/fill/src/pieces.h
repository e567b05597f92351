/* The runs of an index cut into chunks, and chunks bundled into pieces of work. */
#ifndef COLDSNAP_FILL_PIECES_H
#define COLDSNAP_FILL_PIECES_H

#include <stddef.h>
#include <stdint.h>

#include "index.h"

/* A place in the sequence of all chunks. */
struct fill_cursor {
	uint32_t run;
	uint64_t chunk; /* within the run */
};

/* Consecutive chunks of one process; they may reach over several runs. */
struct fill_piece {
	struct fill_cursor first;
	uint32_t chunks;
	uint64_t order;
};

struct fill_pieces {
	struct fill_piece *list;
	size_t count;
};

/* One chunk: where it comes from and goes to. */
struct fill_chunk {
	uint32_t process, file;
	uint64_t address, offset;
	size_t bytes;
	unsigned char *digest;
};

/* Cut all chunks into pieces. Those of each process are spread evenly over the list, so that the
 * threads share the processes in proportion to their bytes. 0, or -1 and failed. */
int fill_pieces_make(struct fill_pieces *pieces, const struct fill_index *index);

/* The chunk at the cursor, which goes on to the next. */
struct fill_chunk fill_next_chunk(const struct fill_index *index, struct fill_cursor *cursor);

#endif
