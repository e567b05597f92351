#include "torture.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

static void *short_life(void *argument)
{
	unsigned char deep[64 << 10], *block = calloc(1, 60000);

	memset(deep, (int)(uintptr_t)argument, sizeof deep);
	bool good = is_zero(block, 60000) && deep[100] == (unsigned char)(uintptr_t)argument;
	memset(block, 0xCC, 60000);
	block = realloc(block, 300000);
	good = good && block[59999] == 0xCC;
	free(block);
	return (void *)(uintptr_t)good;
}

/* Threads that come and go, each with memory of an arena and a stack that others had before. */
void thread_cases(void)
{
	size_t good = 0;

	for (int round = 0; round < 50; round++) {
		pthread_t threads[8];
		for (size_t i = 0; i < 8; i++)
			pthread_create(threads + i, NULL, short_life, (void *)(uintptr_t)(i + 1));
		for (size_t i = 0; i < 8; i++) {
			void *result = NULL;
			pthread_join(threads[i], &result);
			good += (size_t)(uintptr_t)result;
		}
	}
	say("short threads: %zu", good);
}

struct share {
	unsigned char *memory;
	size_t bytes;
	unsigned char mark;
};

/* Its own pages of one region: given up, found zero, written, found written, again and again. */
static void *churn(void *argument)
{
	struct share *share = argument;
	size_t wrong = 0;

	for (int round = 0; round < 200; round++) {
		size_t at = (size_t)round % (share->bytes / PAGE - 4) * PAGE;
		memset(share->memory + at, share->mark, 4 * PAGE);
		if (madvise(share->memory + at, 3 * PAGE, round % 3 ? MADV_DONTNEED : MADV_FREE) != 0)
			wrong++;
		if (round % 3 && !is_zero(share->memory + at, 3 * PAGE))
			wrong++;
		if (share->memory[at + 3 * PAGE] != share->mark)
			wrong++;
	}
	return (void *)wrong;
}

static atomic_uint handled_count, handled_wrong;

/* Several may run at once: the signal is the process's, and any thread that does not handle one
 * takes the next. So each has a page of its own. */
static void on_alarm(int number)
{
	int before = errno;
	unsigned char *page = regions[25] +
			      atomic_fetch_add(&handled_count, 1) % (REGION_BYTES / PAGE) * PAGE;

	(void)number;
	memset(page, 1, PAGE);
	if (madvise(page, PAGE, MADV_DONTNEED) != 0 || !is_zero(page, PAGE))
		atomic_fetch_add(&handled_wrong, 1);
	errno = before;
}

void concurrent_cases(void)
{
	pthread_t threads[6];
	struct share shares[6];
	size_t wrong = 0;

	signal(SIGALRM, on_alarm);
	struct itimerval often = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };
	setitimer(ITIMER_REAL, &often, NULL);
	for (size_t i = 0; i < 6; i++) {
		shares[i] = (struct share){ regions[20 + i / 3] + i % 3 * (1 << 20), 1 << 20,
					    (unsigned char)(i + 1) };
		pthread_create(threads + i, NULL, churn, shares + i);
	}
	for (int round = 0; round < 40; round++) {
		unsigned char *moved = mremap(regions[22], REGION_BYTES, REGION_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED,
					      regions[round % 2 ? 23 : 24]);
		wrong += moved == MAP_FAILED || moved[77] != byte_of(22, 77);
		regions[22] = moved;
	}
	for (size_t i = 0; i < 6; i++) {
		void *result = NULL;
		pthread_join(threads[i], &result);
		wrong += (size_t)(uintptr_t)result;
	}
	while (atomic_load(&handled_count) < 5)
		usleep(1000);
	setitimer(ITIMER_REAL, &never, NULL);
	say("at the same time: %zu wrong, in handlers %u wrong", wrong,
	    atomic_load(&handled_wrong));
}
