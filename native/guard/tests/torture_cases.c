#include "torture.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DONTNEED_LOCKED = 24, COLLAPSE = 25, DONTUNMAP = 4, GUARD_INSTALL = 102, GUARD_REMOVE = 103 };

/* The arguments of a call are evaluated in any order; what they do here must come in turn. */
#define SAY2(text, a, b)               \
	do {                           \
		int said_a = (a);      \
		int said_b = (b);      \
		say(text, said_a, said_b); \
	} while (0)
#define SAY3(text, a, b, c)                    \
	do {                                   \
		int said_1 = (a);              \
		int said_2 = (b);              \
		int said_3 = (c);              \
		say(text, said_1, said_2, said_3); \
	} while (0)
#define SAY4(text, a, b, c, d)                         \
	do {                                           \
		int said_1 = (a);                      \
		int said_2 = (b);                      \
		int said_3 = (c);                      \
		int said_4 = (d);                      \
		say(text, said_1, said_2, said_3, said_4); \
	} while (0)

static int failure(int result)
{
	return result == 0 ? 0 : errno;
}

/* Whether the kernel can read (else write) a byte there: by an error instead of a signal. */
static bool can_use(void *memory, bool write_to_it)
{
	int pipe_fds[2];
	char byte = 1;

	if (pipe(pipe_fds) != 0)
		_exit(6);
	bool good = write_to_it ? write(pipe_fds[1], &byte, 1) == 1 && read(pipe_fds[0], memory, 1) == 1
				: write(pipe_fds[1], memory, 1) == 1;
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	return good;
}

/* The child's exit status. */
static int in_child(int (*what)(unsigned char *memory, size_t region), unsigned char *memory,
		    size_t region)
{
	int status = 0;
	pid_t child = fork();

	if (child == 0)
		_exit(what(memory, region));
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

static void discard_cases(void)
{
	unsigned char *r = regions[0];

	memset(r + 5 * PAGE, 9, PAGE);
	SAY2("dontneed: %d, zero %d", failure(madvise(r, REGION_BYTES, MADV_DONTNEED)), is_zero(r, REGION_BYTES));
	memset(r, 5, REGION_BYTES);
	say("written after it: %d", r[REGION_BYTES - 1] == 5);
	SAY2("dontneed again: %d, zero %d", failure(madvise(r, REGION_BYTES, MADV_DONTNEED)), is_zero(r, REGION_BYTES));

	r = regions[1];
	size_t from = (1 << 20) - 3 * PAGE, bytes = 6 * PAGE;
	SAY4("dontneed of some pages: %d, zero %d, before %d, after %d", failure(madvise(r + from, bytes - 100, MADV_DONTNEED)), is_zero(r + from, bytes), holds(r, 1, 0, from), holds(r + from + bytes, 1, from + bytes, REGION_BYTES - from - bytes));
	SAY3("off the page: %d, of nothing: %d, too long: %d", failure(madvise(r + 8, PAGE, MADV_DONTNEED)), failure(madvise(r, 0, MADV_DONTNEED)), failure(madvise(r, (size_t)-1, MADV_DONTNEED)));

	r = regions[2];
	int result = failure(madvise(r, REGION_BYTES, MADV_FREE));
	bool legal = true;
	for (size_t i = 0; i < REGION_BYTES; i += PAGE)
		legal &= is_zero(r + i, PAGE) || holds(r + i, 2, i, PAGE);
	memset(r, 3, REGION_BYTES);
	say("free: %d, legal %d, written %d", result, legal, r[REGION_BYTES - 1] == 3);

	r = regions[3];
	munmap(r + HUGE, PAGE);
	result = failure(madvise(r, REGION_BYTES, MADV_DONTNEED));
	say("dontneed over a gap: %d, zero %d %d", result, is_zero(r, HUGE),
	    is_zero(r + HUGE + PAGE, REGION_BYTES - HUGE - PAGE));
}

static void locked_cases(void)
{
	unsigned char *r = regions[4];

	say("mlock: %d", failure(mlock(r, HUGE)));
	SAY2("dontneed of locked: %d, kept %d", failure(madvise(r, HUGE, MADV_DONTNEED)), holds(r, 4, 0, HUGE));
	SAY2("free of locked: %d, kept %d", failure(madvise(r, HUGE, MADV_FREE)), holds(r, 4, 0, HUGE));
	SAY2("dontneed of locked, asked for: %d, zero %d", failure(madvise(r, PAGE, DONTNEED_LOCKED)), is_zero(r, PAGE));
	say("still locked: %d", failure(madvise(r, PAGE, MADV_DONTNEED)));
	madvise(r + HUGE, PAGE, DONTNEED_LOCKED);
	SAY2("not locked by that: %d, zero %d", failure(madvise(r + HUGE, PAGE, MADV_DONTNEED)),
	     is_zero(r + HUGE, PAGE));
	SAY3("munlock: %d, dontneed: %d, zero %d", failure(munlock(r, HUGE)), failure(madvise(r, HUGE, MADV_DONTNEED)), is_zero(r, HUGE));
}

static void protection_cases(void)
{
	unsigned char *r = regions[5];

	mprotect(r + HUGE, HUGE, PROT_READ);
	SAY3("dontneed of read-only: %d, zero %d, writable %d", failure(madvise(r, REGION_BYTES, MADV_DONTNEED)), is_zero(r, REGION_BYTES), can_use(r + HUGE, true));
	say("the rest is writable: %d", can_use(r, true));
	mprotect(r + HUGE, HUGE, PROT_READ | PROT_WRITE);
	say("writable again: %d", can_use(r + HUGE, true));

	r = regions[6];
	int installed = failure(madvise(r, PAGE, GUARD_INSTALL));
	if (installed == 0) {
		bool guarded = !can_use(r, false);
		int removed = failure(madvise(r, PAGE, GUARD_REMOVE));
		say("guard pages: %d %d, zero %d, others %d", guarded, removed, is_zero(r, PAGE),
		    holds(r + PAGE, 6, PAGE, PAGE));
	} else
		say("guard pages: %d, kept %d", installed, holds(r, 6, 0, PAGE));
}

static int zero_in_child(unsigned char *memory, size_t region)
{
	(void)region;
	return is_zero(memory, HUGE) ? 1 : 2;
}

static int unusable_in_child(unsigned char *memory, size_t region)
{
	(void)region;
	return can_use(memory, false) ? 2 : 1;
}

/* Flags of the mapping at an address that are advice. */
static void say_advice(const char *what, const void *address)
{
	FILE *smaps = fopen("/proc/self/smaps", "r");
	char line[512], kept[64] = "";
	bool here = false;
	unsigned long start, end;

	while (smaps != NULL && fgets(line, sizeof line, smaps) != NULL) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			here = (uintptr_t)address >= start && (uintptr_t)address < end;
		if (!here || strncmp(line, "VmFlags:", 8) != 0)
			continue;
		for (const char *known = "hg nh dc dd mg wf"; ; known += 3) {
			char word[4] = { ' ', known[0], known[1], '\0' };
			if (strstr(line, word) != NULL)
				strcat(kept, word);
			if (known[2] == '\0')
				break;
		}
	}
	if (smaps != NULL)
		fclose(smaps);
	say("%s:%s", what, kept);
}

static void advice_cases(void)
{
	unsigned char *r = regions[7];

	madvise(r, REGION_BYTES, MADV_NOHUGEPAGE);
	madvise(r, REGION_BYTES, MADV_DONTDUMP);
	madvise(r, REGION_BYTES, MADV_DONTNEED);
	say_advice("advice after dontneed", r + HUGE);
	SAY2("dontfork: %d, in the child %d", failure(madvise(r, HUGE, MADV_DONTFORK)), in_child(unusable_in_child, r, 7));
	say_advice("advice of a part", r);
	madvise(r, HUGE, MADV_DOFORK);

	r = regions[8];
	SAY3("wipe on fork: %d, kept %d, in the child %d", failure(madvise(r, REGION_BYTES, MADV_WIPEONFORK)), holds(r, 8, 0, REGION_BYTES), in_child(zero_in_child, r, 8));
	say("keep on fork: %d", failure(madvise(r, REGION_BYTES, MADV_KEEPONFORK)));

	r = regions[9];
	say("huge pages: %d", failure(madvise(r, REGION_BYTES, MADV_HUGEPAGE)));
	SAY2("collapse: %d, kept %d", failure(madvise(r, HUGE, COLLAPSE)), holds(r, 9, 0, REGION_BYTES));
	SAY3("cold: %d, pageout: %d, kept %d", failure(madvise(r, HUGE, MADV_COLD)), failure(madvise(r, HUGE, MADV_PAGEOUT)), holds(r, 9, 0, REGION_BYTES));
	SAY2("populate: %d, kept %d", failure(madvise(r, HUGE, 23)), holds(r, 9, 0, REGION_BYTES));
	say("posix dontneed: %d, kept %d", posix_madvise(r, HUGE, POSIX_MADV_DONTNEED),
	    holds(r, 9, 0, REGION_BYTES));
}

static int write_in_child(unsigned char *memory, size_t region)
{
	bool good = holds(memory, region, 0, REGION_BYTES);

	memset(memory + PAGE, 0x77, HUGE);
	madvise(memory + HUGE + PAGE, PAGE, MADV_DONTNEED);
	good = good && is_zero(memory + HUGE + PAGE, PAGE) && memory[HUGE] == 0x77;
	pid_t second = fork();
	if (second == 0) {
		memset(memory, 0x55, PAGE);
		_exit(memory[PAGE] == 0x77 && is_zero(memory + HUGE + PAGE, PAGE) ? 1 : 2);
	}
	int status = 0;
	waitpid(second, &status, 0);
	return good && WEXITSTATUS(status) == 1 && holds(memory, region, 0, PAGE) ? 1 : 2;
}

static void fork_cases(void)
{
	unsigned char *r = regions[10];

	memset(r, 1, 8);
	for (size_t i = 0; i < 8; i++)
		r[i] = byte_of(10, i);
	SAY2("fork: %d, the parent's %d", in_child(write_in_child, r, 10), holds(r, 10, 0, REGION_BYTES));
	int ready[2], status = 0;
	if (pipe(ready) != 0)
		_exit(6);
	pid_t child = fork();
	if (child == 0) {
		char byte;
		(void)!read(ready[0], &byte, 1);
		_exit(holds(r, 10, 0, REGION_BYTES) ? 1 : 2);
	}
	memset(r, 0x66, REGION_BYTES);
	madvise(r, HUGE, MADV_DONTNEED);
	(void)!write(ready[1], "x", 1);
	waitpid(child, &status, 0);
	close(ready[0]);
	close(ready[1]);
	say("parent writes, child sees: %d", WEXITSTATUS(status));
}

static void resize_cases(void)
{
	unsigned char *r = regions[11], *moved;

	moved = mremap(r, REGION_BYTES, REGION_BYTES + HUGE, 0);
	say("grown in place is refused: %d", moved == MAP_FAILED ? errno : 0);
	munmap(r + REGION_BYTES, HUGE);
	moved = mremap(r, REGION_BYTES, REGION_BYTES + HUGE, 0);
	say("grown in place: %d, kept %d, tail zero %d", moved == r, holds(r, 11, 0, REGION_BYTES),
	    moved == r && is_zero(r + REGION_BYTES, HUGE));
	moved = mremap(r, REGION_BYTES + HUGE, 3 * REGION_BYTES, MREMAP_MAYMOVE);
	SAY4("grown and moved: %d, kept %d, tail zero %d, old unmapped %d", moved != MAP_FAILED && moved != r, holds(moved, 11, 0, REGION_BYTES), is_zero(moved + REGION_BYTES, 2 * REGION_BYTES), !can_use(r, false));
	madvise(moved, 3 * PAGE, MADV_DONTNEED);
	say("dontneed where it went: %d, the rest %d", is_zero(moved, 3 * PAGE),
	    holds(moved + 3 * PAGE, 11, 3 * PAGE, PAGE));
	memset(moved, 1, 3 * REGION_BYTES);
	say("all of it written: %d", moved[3 * REGION_BYTES - 1]);

	r = regions[12];
	moved = mremap(r, REGION_BYTES, HUGE, 0);
	SAY3("shrunk: %d, kept %d, tail unmapped %d", moved == r, holds(r, 12, 0, HUGE), !can_use(r + HUGE, false));
	unsigned char *target = mmap(NULL, REGION_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	moved = mremap(r, HUGE, REGION_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, target);
	say("moved over another: %d, kept %d, tail zero %d", moved == target, holds(moved, 12, 0, HUGE),
	    is_zero(moved + HUGE, HUGE));
	memset(moved, 2, REGION_BYTES);
	target = mmap(NULL, REGION_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	r = regions[13];
	moved = mremap(r, REGION_BYTES, HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, target);
	SAY3("moved and shrunk: %d, kept %d, old unmapped %d", moved == target, holds(moved, 13, 0, HUGE), !can_use(r, false) && !can_use(r + HUGE, false));
	SAY2("dontneed there: %d, zero %d", failure(madvise(moved, HUGE, MADV_DONTNEED)), is_zero(moved, HUGE));

	r = regions[14];
	moved = mremap(r, HUGE, HUGE, MREMAP_MAYMOVE | DONTUNMAP, NULL);
	say("left mapped: %d, kept %d, old zero %d, other half %d", moved != MAP_FAILED && moved != r,
	    holds(moved, 14, 0, HUGE), is_zero(r, HUGE), holds(r + HUGE, 14, HUGE, HUGE));
	say("overlapping: %d", mremap(regions[15], HUGE, HUGE, MREMAP_MAYMOVE | MREMAP_FIXED,
				      regions[15] + PAGE) == MAP_FAILED ? errno : 0);
	say("of nothing: %d", mremap(regions[15], HUGE, 0, MREMAP_MAYMOVE) == MAP_FAILED ? errno : 0);
}

/* A file of our own, not of the image. */
static int other_file(void)
{
	char path[] = "/tmp/coldsnap-torture-XXXXXX";
	int file = mkstemp(path);
	unsigned char page[PAGE];

	unlink(path);
	memset(page, 0xEE, sizeof page);
	for (int i = 0; i < HUGE / PAGE; i++)
		if (write(file, page, sizeof page) != PAGE)
			_exit(6);
	return file;
}

/* What is mapped where restored memory was is not restored memory. */
static void replace_cases(void)
{
	unsigned char *r = regions[15];
	int file = other_file();

	mmap(r, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	say("anonymous over it: zero %d, the rest %d", is_zero(r, PAGE), holds(r + PAGE, 15, PAGE, HUGE));
	mmap(r, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
	r[5] = 0xDD;
	SAY4("dontneed of a shared file over it: %d, kept %d %d, the rest zero %d", failure(madvise(r, REGION_BYTES, MADV_DONTNEED)), r[5] == 0xDD, r[HUGE - 1] == 0xEE, is_zero(r + HUGE, HUGE));
	r = regions[16];
	munmap(r, HUGE);
	unsigned char *again = mmap(r, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0);
	again[5] = 1;
	SAY4("dontneed of a private file in its place: %d %d, kept %d, others %d", again == r, failure(madvise(r, HUGE, MADV_DONTNEED)), r[5] == 0xDD && r[6] == 0xEE, holds(r + HUGE, 16, HUGE, HUGE));
	unsigned char *moved = mremap(r, HUGE, 2 * REGION_BYTES, MREMAP_MAYMOVE);
	say("a file that grows: %d, kept %d", moved != MAP_FAILED, moved[6] == 0xEE);
	munmap(moved, 2 * REGION_BYTES);
	r = regions[17];
	munmap(r, REGION_BYTES);
	say("dontneed of what is gone: %d", failure(madvise(r, REGION_BYTES, MADV_DONTNEED)));
	close(file);
}

static void block_cases(void)
{
	size_t good = 0, written = 0;

	for (size_t i = 0; i < BLOCKS; i++) {
		for (size_t bytes = block_bytes[i]; bytes < 24 << 20; bytes = bytes * 2 + 12345) {
			blocks[i] = realloc(blocks[i], bytes);
			good += blocks[i] != NULL && holds(blocks[i], 100 + i, 0, block_bytes[i]);
			memset(blocks[i] + block_bytes[i], 0x5A, bytes - block_bytes[i]);
			written += blocks[i][bytes - 1] == 0x5A;
		}
		blocks[i] = realloc(blocks[i], 100 << 10);
		good += holds(blocks[i], 100 + i, 0, 100 << 10);
	}
	for (size_t i = 0; i < BLOCKS; i++)
		free(blocks[i]);
	say("blocks that grew: %zu %zu", good, written);

	void *small[3000];
	size_t zero = 0;
	malloc_trim(0);
	for (size_t i = 0; i < 3000; i++) {
		small[i] = calloc(1, 300 + i % 50 * 400);
		zero += is_zero(small[i], 300 + i % 50 * 400);
		memset(small[i], 0xBB, 300);
	}
	for (size_t i = 0; i < 3000; i++)
		free(small[i]);
	say("cleared blocks: %zu", zero);
	malloc_trim(0);
	/* Whether the top of the heap can be given back depends on what else is there. */
	unsigned char *top = sbrk(1 << 20);
	memset(top, 1, 1 << 20);
	bool back = sbrk(-(1 << 20)) == top + (1 << 20) && sbrk(1 << 20) == top;
	say("the heap's end: %d, zero %d", back, is_zero(top, 1 << 20));
}

int run_executed(void)
{
	unsigned char *r = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(r, 1, HUGE);
	bool good = madvise(r, HUGE, MADV_DONTNEED) == 0 && is_zero(r, HUGE);
	return good ? 17 : 18;
}

static void exec_case(const char *program)
{
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		execl(program, program, "executed", (char *)NULL);
		_exit(99);
	}
	waitpid(child, &status, 0);
	say("executed: %d", WEXITSTATUS(status));
}

void run_cases(const char *program)
{
	discard_cases();
	locked_cases();
	protection_cases();
	advice_cases();
	fork_cases();
	resize_cases();
	replace_cases();
	block_cases();
	thread_cases();
	concurrent_cases();
	exec_case(program);
	bool rest = true;
	for (size_t i = 26; i < REGIONS; i++)
		rest &= holds(regions[i], i, 0, REGION_BYTES);
	say("what nobody touched: %d", rest);
}
