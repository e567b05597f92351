/* A libnccl without devices, for the tests of the bridge.
 *
 * Ranks meet through files in FAKE_NCCL_DIR. It ends the process (exit code 86) when it gets a
 * communicator that is not its own or was destroyed: that is what real NCCL would crash of. A fault
 * is set by fake_nccl_fault(): "destroy-hangs", "destroy-fails", "init-hangs", "init-fails",
 * "async-error", "slow". */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

typedef struct {
  char internal[128];
} ncclUniqueId;
typedef struct fake_comm {
  unsigned long magic;
  char name[40];
  int ranks, rank, sequence, is_alive, blocking, polls, splits;
  atomic_int users;
} *ncclComm_t;
struct pending {
  struct fake_comm *comm;
  ncclComm_t *out;
};

enum { ALIVE = 0x0280028, INT32 = 2, PREMUL = 5 };

static char fault[32];
static _Thread_local int depth;
static _Thread_local struct pending waiting[16];
static _Thread_local int waiting_count;
static int scalars[64], scalar_count;
static atomic_int live;

PUBLIC void fake_nccl_fault(const char *name) { snprintf(fault, sizeof fault, "%s", name); }
PUBLIC int fake_nccl_live(void) { return atomic_load(&live); }

static int is(const char *name) { return strcmp(fault, name) == 0; }

static void nap(void) { nanosleep(&(struct timespec){0, 1000000}, NULL); }

static struct fake_comm *checked(ncclComm_t comm, const char *where) {
  if (comm == NULL || comm->magic != ALIVE || !comm->is_alive) {
    fprintf(stderr, "fake_nccl: %s got a communicator that is none: %p\n", where, (void *)comm);
    _exit(86);
  }
  return comm;
}

static void path(char *name, const struct fake_comm *comm, const char *what, int rank) {
  const char *folder = getenv("FAKE_NCCL_DIR");
  snprintf(name, 512, "%s/%s.%s.%d", folder ? folder : "/tmp", comm->name, what, rank);
}

static void put(const struct fake_comm *comm, const char *what, const void *data, size_t bytes) {
  char name[512], temporary[560];
  path(name, comm, what, comm->rank);
  snprintf(temporary, sizeof temporary, "%s.new", name);
  int file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || write(file, data, bytes) != (ssize_t)bytes) _exit(87);
  close(file);
  rename(temporary, name);
}

static void get(const struct fake_comm *comm, const char *what, int rank, void *data, size_t bytes) {
  char name[512];
  path(name, comm, what, rank);
  for (;;) {
    int file = open(name, O_RDONLY);
    if (file >= 0) {
      if (read(file, data, bytes) != (ssize_t)bytes) _exit(88);
      close(file);
      return;
    }
    nap();
  }
}

static void meet(struct fake_comm *comm, const char *what) {
  char byte = 1;
  put(comm, what, &byte, 1);
  for (int rank = 0; rank < comm->ranks; ++rank) get(comm, what, rank, &byte, 1);
}

PUBLIC int ncclGetVersion(int *version) {
  *version = 22809;
  return 0;
}

PUBLIC const char *ncclGetErrorString(int result) { return result == 0 ? "no error" : "an error"; }

PUBLIC const char *ncclGetLastError(ncclComm_t comm) {
  if (comm != NULL) checked(comm, "ncclGetLastError");
  return "fake failure";
}

PUBLIC int ncclGetUniqueId(ncclUniqueId *id) {
  memset(id, 0, sizeof *id);
  int file = open("/dev/urandom", O_RDONLY);
  unsigned char bytes[16];
  if (read(file, bytes, sizeof bytes) != sizeof bytes) return 2;
  close(file);
  for (size_t i = 0; i < sizeof bytes; ++i) snprintf(id->internal + 2 * i, 3, "%02x", bytes[i]);
  return 0;
}

static int init(ncclComm_t *out, int ranks, const char *name, int rank, int blocking) {
  if (is("init-fails")) return 3;
  while (is("init-hangs")) nap();
  struct fake_comm *comm = calloc(1, sizeof *comm);
  *comm = (struct fake_comm){.magic = ALIVE, .ranks = ranks, .rank = rank, .is_alive = 1,
                             .blocking = blocking, .polls = 3};
  snprintf(comm->name, sizeof comm->name, "%.32s", name);
  atomic_fetch_add(&live, 1);
  if (depth > 0) { /* a group: known only when it ends */
    waiting[waiting_count++] = (struct pending){comm, out};
    return 0;
  }
  meet(comm, "init");
  *out = comm;
  return blocking ? 0 : 7;
}

PUBLIC int ncclCommInitRank(ncclComm_t *out, int ranks, ncclUniqueId id, int rank) {
  return init(out, ranks, id.internal, rank, 1);
}

struct config {
  size_t size;
  unsigned magic, version;
  int blocking, numbers[3];
  const char *net_name;
};

PUBLIC int ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                  struct config *config) {
  if (config != NULL && config->net_name != NULL && strcmp(config->net_name, "Socket") != 0) {
    fprintf(stderr, "fake_nccl: the configuration's strings are lost\n");
    _exit(89);
  }
  return init(out, ranks, id.internal, rank, config == NULL || config->blocking != 0);
}

PUBLIC int ncclCommInitAll(ncclComm_t *out, int count, const int *devices) {
  (void)devices;
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  for (int rank = 0; rank < count; ++rank) {
    struct fake_comm *comm = calloc(1, sizeof *comm);
    *comm = (struct fake_comm){.magic = ALIVE, .ranks = count, .rank = rank, .is_alive = 1,
                               .blocking = 1};
    snprintf(comm->name, sizeof comm->name, "%.32s", id.internal);
    atomic_fetch_add(&live, 1);
    out[rank] = comm;
  }
  return 0;
}

/* Colours are worlds of their own only in name: every rank gives the same one in the tests. */
PUBLIC int ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
                         struct config *config) {
  (void)key;
  checked(comm, "ncclCommSplit");
  char name[40];
  snprintf(name, sizeof name, "%d%d%.28s", ++comm->splits % 10, color & 7, comm->name);
  if (color == -1) {
    *out = NULL;
    return 0;
  }
  return init(out, comm->ranks, name, comm->rank, config == NULL || config->blocking != 0);
}

static int end(ncclComm_t comm, const char *where) {
  checked(comm, where);
  while (is("destroy-hangs")) nap();
  if (is("destroy-fails")) return 1;
  if (atomic_load(&comm->users) != 0) {
    fprintf(stderr, "fake_nccl: %s while it is in use\n", where);
    _exit(90);
  }
  comm->is_alive = 0;
  atomic_fetch_sub(&live, 1);
  return 0;
}

PUBLIC int ncclCommDestroy(ncclComm_t comm) { return end(comm, "ncclCommDestroy"); }
PUBLIC int ncclCommAbort(ncclComm_t comm) { return end(comm, "ncclCommAbort"); }

PUBLIC int ncclCommFinalize(ncclComm_t comm) {
  checked(comm, "ncclCommFinalize")->polls = 3;
  return comm->blocking ? 0 : 7;
}

PUBLIC int ncclCommGetAsyncError(ncclComm_t comm, int *error) {
  checked(comm, "ncclCommGetAsyncError");
  *error = is("async-error") ? 6 : !comm->blocking && comm->polls > 0 && comm->polls-- ? 7 : 0;
  return 0;
}

PUBLIC int ncclCommCount(ncclComm_t comm, int *count) {
  *count = checked(comm, "ncclCommCount")->ranks;
  return 0;
}

PUBLIC int ncclCommUserRank(ncclComm_t comm, int *rank) {
  *rank = checked(comm, "ncclCommUserRank")->rank;
  return 0;
}

PUBLIC int ncclCommCuDevice(ncclComm_t comm, int *device) {
  *device = checked(comm, "ncclCommCuDevice")->rank;
  return 0;
}

PUBLIC int ncclGroupStart(void) {
  ++depth;
  return 0;
}

PUBLIC int ncclGroupEnd(void) {
  if (--depth > 0) return 0;
  for (int i = 0; i < waiting_count; ++i) {
    char byte = 1;
    put(waiting[i].comm, "init", &byte, 1);
  }
  for (int i = 0; i < waiting_count; ++i) {
    meet(waiting[i].comm, "init");
    *waiting[i].out = waiting[i].comm;
  }
  waiting_count = 0;
  return 0;
}

PUBLIC int ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int residence,
                                    ncclComm_t comm) {
  (void)type;
  (void)residence;
  checked(comm, "ncclRedOpCreatePreMulSum");
  scalars[scalar_count] = *(int *)scalar;
  *op = PREMUL + scalar_count++; /* another number each time */
  return 0;
}

PUBLIC int ncclRedOpDestroy(int op, ncclComm_t comm) {
  checked(comm, "ncclRedOpDestroy");
  return op >= PREMUL && op < PREMUL + scalar_count ? 0 : 4;
}

/* Sums of int32 over all ranks, times the operator's scalar. */
PUBLIC int ncclAllReduce(const void *from, void *to, size_t count, int type, int op,
                         ncclComm_t comm, void *stream) {
  (void)stream;
  checked(comm, "ncclAllReduce");
  if (type != INT32 || (op != 0 && (op < PREMUL || op >= PREMUL + scalar_count))) return 4;
  atomic_fetch_add(&comm->users, 1);
  if (is("slow")) usleep(200000);
  char what[32];
  snprintf(what, sizeof what, "sum%d", comm->ranks > 1 ? comm->sequence++ : 0);
  int *sum = calloc(count, sizeof *sum), *part = calloc(count, sizeof *part);
  if (comm->ranks > 1) {
    put(comm, what, from, count * sizeof *sum);
    for (int rank = 0; rank < comm->ranks; ++rank) {
      get(comm, what, rank, part, count * sizeof *part);
      for (size_t i = 0; i < count; ++i) sum[i] += part[i];
    }
  } else {
    memcpy(sum, from, count * sizeof *sum);
  }
  for (size_t i = 0; i < count; ++i)
    ((int *)to)[i] = sum[i] * (op >= PREMUL ? scalars[op - PREMUL] : 1);
  free(sum);
  free(part);
  atomic_fetch_sub(&comm->users, 1);
  return 0;
}

PUBLIC int ncclCommRegister(ncclComm_t comm, void *address, size_t bytes, void **handle) {
  checked(comm, "ncclCommRegister");
  unsigned long *made = calloc(2, sizeof *made);
  made[0] = (unsigned long)address;
  made[1] = bytes;
  *handle = made;
  return 0;
}

PUBLIC int ncclCommDeregister(ncclComm_t comm, void *handle) {
  checked(comm, "ncclCommDeregister");
  if (handle == NULL || ((unsigned long *)handle)[1] == 0) {
    fprintf(stderr, "fake_nccl: a handle that is none\n");
    _exit(91);
  }
  free(handle);
  return 0;
}

PUBLIC int ncclDevCommCreate(ncclComm_t comm, const void *wanted, void *made) {
  (void)wanted;
  (void)made;
  checked(comm, "ncclDevCommCreate");
  return 0;
}

PUBLIC int ncclDevCommDestroy(ncclComm_t comm, const void *made) {
  (void)made;
  checked(comm, "ncclDevCommDestroy");
  return 0;
}

/* What a newer libnccl might have. */
PUBLIC int ncclTeleport(ncclComm_t comm) {
  (void)comm;
  return 0;
}
