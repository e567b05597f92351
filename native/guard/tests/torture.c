#include "torture.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

unsigned char *regions[REGIONS];
unsigned char *blocks[BLOCKS];
size_t block_bytes[BLOCKS];

static uintptr_t kept[THREADS * 2 + 8]; /* addresses whose mappings stay as they are */
static size_t kept_count;
static char heap_holds[64 << 10];

unsigned char byte_of(size_t region, size_t at)
{
	return (unsigned char)(1 + (region * 31 + at / 8 * 7 + at) % 255);
}

bool holds(const unsigned char *memory, size_t region, size_t from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (memory[i] != byte_of(region, from + i))
			return false;
	return true;
}

bool is_zero(const unsigned char *memory, size_t bytes)
{
	return bytes == 0 || (memory[0] == 0 && memcmp(memory, memory + 1, bytes - 1) == 0);
}

void say(const char *format, ...)
{
	char line[256];
	va_list arguments;

	va_start(arguments, format);
	int length = vsnprintf(line, sizeof line - 1, format, arguments);
	va_end(arguments);
	line[length++] = '\n';
	if (write(STDOUT_FILENO, line, (size_t)length) != length)
		_exit(3);
}

static void fill(unsigned char *memory, size_t region, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		memory[i] = byte_of(region, i);
}

static void make_regions(void)
{
	for (size_t i = 0; i < REGIONS; i++) {
		/* On the grid of huge pages, and with room of its own behind it. */
		unsigned char *room = mmap(NULL, REGION_BYTES + 4 * HUGE, PROT_NONE,
					   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		unsigned char *start = (unsigned char *)(((uintptr_t)room + 2 * HUGE) &
							 ~(uintptr_t)(HUGE - 1));
		regions[i] = mmap(start, REGION_BYTES, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		fill(regions[i], i, REGION_BYTES);
	}
	for (size_t i = 0; i < BLOCKS; i++) {
		block_bytes[i] = (1 << 20) + i * 300000;
		blocks[i] = malloc(block_bytes[i]);
		fill(blocks[i], 100 + i, block_bytes[i]);
	}
	/* A heap with holes in it. */
	void *small[4000];
	for (size_t i = 0; i < 4000; i++) {
		small[i] = malloc(500 + i % 7 * 100);
		memset(small[i], 0xAA, 500);
	}
	for (size_t i = 0; i < 4000; i += 2)
		free(small[i]);
	snprintf(heap_holds, sizeof heap_holds, "%p", small[3999]);
}

static pthread_barrier_t parked, released;

/* A thread with an arena and a stack of its own, which lives through it all. */
static void *live(void *argument)
{
	size_t number = (size_t)(uintptr_t)argument;
	unsigned char *own[64];

	for (size_t i = 0; i < 64; i++) {
		own[i] = malloc(20000);
		fill(own[i], number, 20000);
	}
	kept[number * 2] = (uintptr_t)&number;
	kept[number * 2 + 1] = (uintptr_t)pthread_self();
	pthread_barrier_wait(&parked);
	pthread_barrier_wait(&released);
	size_t good = 0;
	for (size_t i = 0; i < 64; i++) {
		good += holds(own[i], number, 0, 20000);
		own[i] = realloc(own[i], 30000 + 200000 * (i % 2));
		good += holds(own[i], number, 0, 20000);
		free(own[i]);
		unsigned char *cleared = calloc(1, 25000);
		good += is_zero(cleared, 25000);
		memset(cleared, 7, 25000);
		own[i] = cleared;
	}
	for (size_t i = 0; i < 64; i++)
		free(own[i]);
	return (void *)(uintptr_t)good;
}

static void wait_for(const char *path)
{
	if (write(STDERR_FILENO, "ready\n", 6) != 6)
		_exit(3);
	while (access(path, F_OK) != 0)
		usleep(20000);
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	size_t good = 0;

	if (argc == 2 && strcmp(argv[1], "executed") == 0)
		return run_executed();
	if (argc < 2)
		return 2;
	make_regions();
	pthread_barrier_init(&parked, NULL, THREADS + 1);
	pthread_barrier_init(&released, NULL, THREADS + 1);
	for (size_t i = 0; i < THREADS; i++)
		pthread_create(threads + i, NULL, live, (void *)(uintptr_t)i);
	pthread_barrier_wait(&parked);
	kept_count = THREADS * 2;
	kept[kept_count++] = (uintptr_t)&errno;
	kept[kept_count++] = (uintptr_t)&kept;
	if (strcmp(argv[1], "mapped") == 0 && argc == 3)
		coldsnap_map_image(argv[2], kept, kept_count);
	else if (strcmp(argv[1], "wait") == 0 && argc == 3)
		wait_for(argv[2]);
	else if (strcmp(argv[1], "plain") != 0)
		return 2;
	pthread_barrier_wait(&released);
	for (size_t i = 0; i < THREADS; i++) {
		void *result = NULL;
		pthread_join(threads[i], &result);
		good += (size_t)(uintptr_t)result;
	}
	say("threads that lived through it: %zu", good);
	run_cases(argv[0]);
	say("done");
	return 0;
}
