/* How fast memory of another process can be filled here: the floor below coldsnap-fill and CRIU.
 *
 *   cc -O2 -pthread -o page_rates tests/bench/page_rates.c
 *   ./page_rates FILE MIB THREADS [huge]
 *
 * FILE has MIB mebibytes at least and is in the page cache; each way runs three times, in turns:
 *   read      the file into a buffer; no target
 *   write     one buffer again and again into a stopped child (process_vm_writev): faults and copy
 *   fill      both, as coldsnap-fill does it
 *   mapped    process_vm_writev out of a mapping of the file
 *   own       pread into the process's own fresh memory, as CRIU does it
 *   populate  MADV_POPULATE_WRITE of own memory: faults alone
 *   copy      UFFDIO_COPY of the file into own memory: a fault that need not clear its page */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STEP = 1 << 20, HUGE = 2 << 20, POPULATE_WRITE = 23, MOST_THREADS = 64, ROUNDS = 3 };
enum way { READ, WRITE, FILL, MAPPED, OWN, POPULATE, COPY, WAYS };
static const char *const NAMES[] = { "read", "write", "fill", "mapped", "own", "populate", "copy" };

static struct {
	enum way way;
	size_t bytes;
	int file, fault_fd;
	pid_t child;
	char *base, *mapping;
	atomic_size_t next;
} job;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void write_there(char *from, size_t at)
{
	struct iovec local = { from, STEP }, remote = { job.base + at, STEP };

	if (process_vm_writev(job.child, &local, 1, &remote, 1, 0) != STEP)
		fail("process_vm_writev");
}

static void copy_there(char *from, size_t at)
{
	struct uffdio_copy copy = { .dst = (uintptr_t)job.base + at, .src = (uintptr_t)from, .len = STEP };

	if (ioctl(job.fault_fd, UFFDIO_COPY, &copy) != 0)
		fail("UFFDIO_COPY");
}

static void step(char *buffer, size_t at)
{
	enum way way = job.way;
	char *to = way == OWN ? job.base + at : buffer;

	if (way == POPULATE) {
		if (madvise(job.base + at, STEP, POPULATE_WRITE) != 0)
			fail("MADV_POPULATE_WRITE");
		return;
	}
	if (way != WRITE && way != MAPPED && pread(job.file, to, STEP, (off_t)at) != STEP)
		fail("pread");
	if (way == WRITE || way == FILL || way == MAPPED)
		write_there(way == MAPPED ? job.mapping + at : buffer, at);
	if (way == COPY)
		copy_there(buffer, at);
}

static void *work(void *unused)
{
	char *buffer = mmap(NULL, STEP, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	memset(buffer, 7, STEP);
	for (size_t at; (at = atomic_fetch_add(&job.next, STEP)) < job.bytes;)
		step(buffer, at);
	munmap(buffer, STEP);
	return unused;
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void take_faults(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register all = { .range = { (uintptr_t)job.base, job.bytes },
				       .mode = UFFDIO_REGISTER_MODE_MISSING };

	job.fault_fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (job.fault_fd < 0 || ioctl(job.fault_fd, UFFDIO_API, &api) != 0 ||
	    ioctl(job.fault_fd, UFFDIO_REGISTER, &all) != 0)
		fail("userfaultfd");
}

static void measure(enum way way, int threads, bool huge)
{
	pthread_t ids[MOST_THREADS];
	char *room = mmap(NULL, job.bytes + 2 * HUGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	job.way = way;
	job.next = 0;
	job.base = (char *)(((uintptr_t)room + HUGE) & ~(uintptr_t)(HUGE - 1));
	madvise(job.base, job.bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	if (way == COPY)
		take_faults();
	job.child = fork();
	if (job.child == 0) {
		pause();
		_exit(0);
	}
	double begun = seconds();
	for (int i = 0; i < threads; i++)
		pthread_create(ids + i, NULL, work, NULL);
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	double rate = (double)job.bytes / (1 << 30) / (seconds() - begun);
	printf("%-9s %s pages, %d threads: %.2f GiB/s\n", NAMES[way], huge ? "huge" : "small", threads,
	       rate);
	kill(job.child, SIGKILL);
	waitpid(job.child, NULL, 0);
	munmap(room, job.bytes + 2 * HUGE);
	if (way == COPY)
		close(job.fault_fd);
}

int main(int argc, char **argv)
{
	if (argc < 4 || atoi(argv[3]) < 1 || atoi(argv[3]) > MOST_THREADS)
		return 2;
	bool huge = argc > 4;
	job.bytes = (size_t)atol(argv[2]) << 20;
	job.file = open(argv[1], O_RDONLY);
	job.mapping = mmap(NULL, job.bytes, PROT_READ, MAP_SHARED, job.file, 0);
	if (job.file < 0 || job.mapping == MAP_FAILED)
		fail(argv[1]);
	for (int round = 0; round < ROUNDS; round++)
		for (enum way way = READ; way < (huge ? COPY : WAYS); way++)
			measure(way, atoi(argv[3]), huge);
	return 0;
}
