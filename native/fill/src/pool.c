#include "pool.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "failure.h"

enum { MOST_DEFAULT_THREADS = 16, MOST_THREADS = 256 };

struct shared {
	struct fill_pool *pool;
	atomic_size_t next;
	atomic_uint running;
	int finished; /* eventfd */
};

double fill_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static unsigned thread_count(const struct fill_pool *pool)
{
	unsigned wanted = pool->threads;
	cpu_set_t usable;

	if (wanted == 0) {
		wanted = MOST_DEFAULT_THREADS;
		if (sched_getaffinity(0, sizeof usable, &usable) == 0 &&
		    (unsigned)CPU_COUNT(&usable) < wanted)
			wanted = (unsigned)CPU_COUNT(&usable);
	}
	if (wanted > MOST_THREADS)
		wanted = MOST_THREADS;
	if (wanted > pool->count)
		wanted = (unsigned)pool->count;
	return wanted == 0 ? 1 : wanted;
}

static void *run_thread(void *argument)
{
	struct shared *shared = argument;
	struct fill_pool *pool = shared->pool;
	unsigned char *scratch = NULL;
	uint64_t one = 1;

	if (pool->scratch_bytes > 0) {
		scratch = mmap(NULL, pool->scratch_bytes, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		if (scratch == MAP_FAILED)
			fill_fail_errno(FILL_IO, "memory");
	}
	while (!fill_failed()) {
		size_t item = atomic_fetch_add(&shared->next, 1);
		if (item >= pool->count || pool->work(pool->context, item, scratch) != 0)
			break;
	}
	if (scratch != NULL && scratch != MAP_FAILED)
		munmap(scratch, pool->scratch_bytes);
	if (atomic_fetch_sub(&shared->running, 1) == 1)
		while (write(shared->finished, &one, sizeof one) < 0 && errno == EINTR)
			;
	return NULL;
}

/* Wait for the last thread. 0: all ended; -1: a deadline or a death came first. */
static int watch(const struct shared *shared)
{
	const struct fill_pool *pool = shared->pool;
	uint32_t count = pool->targets == NULL ? 0 : pool->targets->index->header->processes;
	struct pollfd *fds = calloc(count + 1ULL, sizeof *fds);

	if (fds == NULL)
		return fill_fail_errno(FILL_IO, "memory");
	fds[0] = (struct pollfd){ .fd = shared->finished, .events = POLLIN };
	for (uint32_t i = 0; i < count; i++)
		fds[i + 1] = (struct pollfd){ .fd = pool->targets->of[i].pidfd, .events = POLLIN };
	for (;;) {
		double left = pool->deadline - fill_now();
		int wait = pool->deadline <= 0 ? -1 : left <= 0 ? 0 : (int)(left * 1000) + 1;
		int ready = poll(fds, count + 1, wait);
		if (ready < 0 && errno == EINTR)
			continue;
		if (fds[0].revents != 0)
			break;
		for (uint32_t i = 0; ready > 0 && i < count; i++)
			if (fds[i + 1].revents != 0) {
				errno = ESRCH;
				fill_target_fail(pool->targets, i, "", 0);
			}
		if (ready <= 0)
			fill_fail(FILL_DEADLINE, "not done at the deadline");
		free(fds);
		return -1;
	}
	free(fds);
	return 0;
}

static unsigned start_threads(struct shared *shared, pthread_t *threads, unsigned count)
{
	unsigned started = 0;

	atomic_store(&shared->running, count);
	for (; started < count; started++) {
		int number = pthread_create(threads + started, NULL, run_thread, shared);
		if (number == 0)
			continue;
		errno = number;
		if (started == 0)
			fill_fail_errno(FILL_IO, "threads");
		/* The others do it all. */
		if (atomic_fetch_sub(&shared->running, count - started) == count - started) {
			uint64_t one = 1;
			(void)!write(shared->finished, &one, sizeof one);
		}
		break;
	}
	return started;
}

int fill_pool_run(struct fill_pool *pool)
{
	pthread_t threads[MOST_THREADS];
	struct shared *shared = calloc(1, sizeof *shared);

	if (shared == NULL || (shared->finished = eventfd(0, EFD_CLOEXEC)) < 0)
		return fill_fail_errno(FILL_IO, "threads");
	shared->pool = pool;
	pool->threads = start_threads(shared, threads, thread_count(pool));
	if (watch(shared) != 0)
		return -1; /* threads may be anywhere: what they use stays */
	for (unsigned i = 0; i < pool->threads; i++)
		pthread_join(threads[i], NULL);
	close(shared->finished);
	free(shared);
	return fill_failed() ? -1 : 0;
}
