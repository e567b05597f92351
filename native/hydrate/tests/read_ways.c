/* Threads with pread against io_uring on one file by O_DIRECT: which one the library should have.
 *
 * read_ways FILE [ROUNDS]: one line per depth and size of a read; GB/s and seconds of processor time
 * for the file, medians over rounds in which all ways take turns. */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WAYS = 3, MOST_ROUNDS = 32, HUGE_PAGE = 2 << 20 };

static int file;
static size_t size, piece;
static unsigned depth;
static char *ring;
static atomic_size_t next_place;

struct rings {
  int descriptor;
  atomic_uint *tail, *head, *done;
  unsigned mask, done_mask, *places;
  struct io_uring_sqe *entries;
  struct io_uring_cqe *results;
};

static void give_up(const char *what) {
  perror(what);
  exit(1);
}

static double wall(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double processor(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static size_t length_at(size_t place) { return size - place < piece ? size - place : piece; }

static void *read_pieces(void *number) {
  char *buffer = ring + (size_t)number * piece;
  for (size_t place; (place = atomic_fetch_add(&next_place, piece)) < size;)
    if (pread(file, buffer, length_at(place), (off_t)place) != (ssize_t)length_at(place))
      give_up("pread");
  return NULL;
}

static void by_threads(void) {
  pthread_t threads[256];
  atomic_store(&next_place, 0);
  for (size_t i = 0; i < depth; ++i) pthread_create(&threads[i], NULL, read_pieces, (void *)i);
  for (size_t i = 0; i < depth; ++i) pthread_join(threads[i], NULL);
}

static void *part(const struct rings *rings, size_t bytes, off_t offset) {
  int flags = MAP_SHARED | MAP_POPULATE;
  void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, rings->descriptor, offset);
  if (made == MAP_FAILED) give_up("mmap of io_uring");
  return made;
}

static struct rings open_rings(int fixed) {
  struct io_uring_params made = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
  struct rings rings = {.descriptor = (int)syscall(SYS_io_uring_setup, 256, &made)};
  if (rings.descriptor < 0) give_up("io_uring_setup");
  char *queue = part(&rings, made.sq_off.array + made.sq_entries * 4, IORING_OFF_SQ_RING);
  char *done = part(&rings, made.cq_off.cqes + made.cq_entries * sizeof(struct io_uring_cqe),
                    IORING_OFF_CQ_RING);
  rings.entries = part(&rings, made.sq_entries * sizeof *rings.entries, IORING_OFF_SQES);
  rings.tail = (atomic_uint *)(queue + made.sq_off.tail);
  rings.mask = *(unsigned *)(queue + made.sq_off.ring_mask);
  rings.places = (unsigned *)(queue + made.sq_off.array);
  rings.head = (atomic_uint *)(done + made.cq_off.head);
  rings.done = (atomic_uint *)(done + made.cq_off.tail);
  rings.done_mask = *(unsigned *)(done + made.cq_off.ring_mask);
  rings.results = (struct io_uring_cqe *)(done + made.cq_off.cqes);
  struct iovec buffers = {ring, depth * piece};
  if (fixed && syscall(SYS_io_uring_register, rings.descriptor, IORING_REGISTER_BUFFERS, &buffers, 1))
    give_up("registering the buffers");
  return rings;
}

static void by_rings(int fixed) {
  struct rings rings = open_rings(fixed);
  unsigned idle[256], idle_count = depth, waiting = 0, new_ones = 0;
  for (unsigned i = 0; i < depth; ++i) idle[i] = i;
  for (size_t place = 0; place < size || waiting > 0;) {
    for (; idle_count > 0 && place < size; place += piece, ++waiting, ++new_ones) {
      unsigned slot = idle[--idle_count], tail = atomic_load(rings.tail), at = tail & rings.mask;
      rings.entries[at] = (struct io_uring_sqe){
          .opcode = fixed ? IORING_OP_READ_FIXED : IORING_OP_READ, .fd = file, .off = place,
          .addr = (unsigned long)(ring + slot * piece), .len = (unsigned)length_at(place),
          .user_data = slot};
      rings.places[at] = at;
      atomic_store(rings.tail, tail + 1);
    }
    long taken = syscall(SYS_io_uring_enter, rings.descriptor, new_ones, 1, IORING_ENTER_GETEVENTS,
                         NULL, 0);
    if (taken < 0) give_up("io_uring_enter");
    new_ones -= (unsigned)taken;
    for (unsigned head; (head = atomic_load(rings.head)) != atomic_load(rings.done);) {
      struct io_uring_cqe *result = &rings.results[head & rings.done_mask];
      if (result->res <= 0) give_up("a read of io_uring");
      idle[idle_count++] = (unsigned)result->user_data;
      --waiting;
      atomic_store(rings.head, head + 1);
    }
  }
  close(rings.descriptor);
}

static int by_value(const void *left, const void *right) {
  double one = *(const double *)left, other = *(const double *)right;
  return (one > other) - (one < other);
}

static void measure(int rounds) {
  static const char *const names[WAYS] = {"threads", "io_uring", "io_uring, registered"};
  double rates[WAYS][MOST_ROUNDS], used[WAYS][MOST_ROUNDS];
  for (int round = 0; round < rounds; ++round) {
    for (int turn = 0; turn < WAYS; ++turn) {
      int way = (turn + round) % WAYS;
      posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
      double begin = wall(), before = processor();
      if (way == 0) by_threads();
      else by_rings(way == 2);
      rates[way][round] = (double)size / (wall() - begin) / 1e9;
      used[way][round] = processor() - before;
    }
  }
  printf("%3u x %4zu KiB", depth, piece >> 10);
  for (int way = 0; way < WAYS; ++way) {
    qsort(rates[way], (size_t)rounds, sizeof(double), by_value);
    qsort(used[way], (size_t)rounds, sizeof(double), by_value);
    printf("  %s %.2f GB/s %.3f s", names[way], rates[way][rounds / 2], used[way][rounds / 2]);
  }
  printf("\n");
}

int main(int count, char **arguments) {
  struct stat status;
  if (count < 2 || (file = open(arguments[1], O_RDONLY | O_DIRECT)) < 0 || fstat(file, &status) != 0)
    give_up("read_ways FILE [ROUNDS]");
  int rounds = count > 2 ? atoi(arguments[2]) : 5;
  if (rounds < 1 || rounds > MOST_ROUNDS) rounds = 5;
  size = (size_t)status.st_size / 4096 * 4096;
  size_t room = (size_t)64 << 20;
  char *memory = mmap(NULL, room + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) give_up("mmap");
  ring = (char *)(((size_t)memory + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1));
  madvise(ring, room, MADV_HUGEPAGE);
  memset(ring, 1, room);
  static const unsigned shapes[][2] = {{8, 4096}, {16, 1024}, {32, 1024}, {32, 2048}, {64, 256}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
    depth = shapes[i][0];
    piece = (size_t)shapes[i][1] << 10;
    measure(rounds);
  }
  return 0;
}
