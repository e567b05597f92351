/* A program that does to its memory what programs do, and says what it saw: the same lines must
 * come whether its memory is anonymous, or was restored. */
#ifndef COLDSNAP_TORTURE_H
#define COLDSNAP_TORTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	PAGE = 4096,
	HUGE = 2 << 20,
	REGION_BYTES = 4 << 20,
	REGIONS = 32,
	BLOCKS = 12,
	THREADS = 4,
};

/* Regions of private anonymous memory apart from all others, filled with bytes of their own. */
extern unsigned char *regions[REGIONS];
/* Blocks of the C library large enough for mappings of their own, filled likewise. */
extern unsigned char *blocks[BLOCKS];
extern size_t block_bytes[BLOCKS];

unsigned char byte_of(size_t region, size_t at);
bool holds(const unsigned char *memory, size_t region, size_t from, size_t bytes);
bool is_zero(const unsigned char *memory, size_t bytes);

/* Say one line. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Map the process's plain memory from a file that is made at `path`, but for mappings that hold one
 * of the `kept` addresses, the caller's thread-local memory and the main stack. */
void coldsnap_map_image(const char *path, const uintptr_t *kept, size_t kept_count);

void run_cases(const char *program);

/* Those with threads: that come and go, and that give up memory while handlers do. */
void thread_cases(void);
void concurrent_cases(void);

/* Do the rest in a process that was executed anew. */
int run_executed(void);

#endif
