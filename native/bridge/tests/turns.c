/* Threads that call all the time while communicators are closed and made again, under sanitizers:
 * the bridge's sources with a libnccl that is a few functions here. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bridge.h"
#include "coldsnap_nccl.h"

enum { TURNS = 300, THREADS = 4 };

struct real_comm {
  unsigned char poison;
  atomic_int is_alive;
};

static int real_version(int *version) { return *version = 22809, 0; }

static int real_id(nccl_id *id) {
  static atomic_int number;
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "%d", atomic_fetch_add(&number, 1));
  return 0;
}

static int real_init(void **comm, int ranks, nccl_id id, int rank) {
  (void)ranks;
  (void)id;
  (void)rank;
  struct real_comm *made = calloc(1, sizeof *made);
  made->is_alive = 1;
  *comm = made;
  return 0;
}

static int real_end(void *comm) {
  free(comm); /* a late use shows under ASan */
  return 0;
}

static int real_number(void *comm, int *value) {
  (void)comm;
  return *value = 0, 0;
}

static int real_count(void *comm, int *value) {
  (void)comm;
  return *value = 1, 0;
}

static int real_sum(const void *from, void *to, size_t count, int type, int op, void *comm,
                    void *stream) {
  (void)type;
  (void)op;
  (void)stream;
  if (!((struct real_comm *)comm)->is_alive) abort();
  memcpy(to, from, count * sizeof(int));
  return 0;
}

static int real_group(void) { return 0; }

static const char *real_error(void *comm) {
  (void)comm;
  return "";
}

static int real_register(void *comm, void *address, size_t bytes, void **handle) {
  (void)bytes;
  (void)address;
  *handle = comm; /* goes with it, as NCCL's do */
  return 0;
}

static int real_deregister(void *comm, void *handle) {
  return handle == comm ? 0 : 4;
}

void *bridge_real(enum function which) {
  switch ((int)which) {
    case F_ncclGetVersion: return (void *)real_version;
    case F_ncclGetUniqueId: return (void *)real_id;
    case F_ncclCommInitRank: return (void *)real_init;
    case F_ncclCommDestroy:
    case F_ncclCommAbort:
    case F_ncclCommFinalize: return (void *)real_end;
    case F_ncclCommCount: return (void *)real_count;
    case F_ncclCommUserRank:
    case F_ncclCommCuDevice:
    case F_ncclCommGetAsyncError: return (void *)real_number;
    case F_ncclAllReduce: return (void *)real_sum;
    case F_ncclGroupStart:
    case F_ncclGroupEnd: return (void *)real_group;
    case F_ncclGetLastError: return (void *)real_error;
    case F_ncclCommRegister: return (void *)real_register;
    case F_ncclCommDeregister: return (void *)real_deregister;
    default: return NULL;
  }
}

const char *bridge_library(void) { return "here"; }
const char *bridge_unknown_used(void) { return NULL; }
const char *bridge_foreign_library(void) { return NULL; }

int ncclCommInitRank(void **, int, nccl_id, int);
int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *);
int ncclCommDestroy(void *);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclCommRegister(void *, void *, size_t, void **);
int ncclCommDeregister(void *, void *);
int ncclCommSplit(void *, int, int, void **, void *);

static atomic_bool is_over;
static atomic_long good, refused;

static void *work(void *argument) {
  void *comm = argument;
  while (!atomic_load(&is_over)) {
    int given = 5, got = 0;
    if (ncclGroupStart() == 0) {
      if (ncclAllReduce(&given, &got, 1, 2, 0, comm, NULL) != 0 || got != 5) abort();
      ncclGroupEnd();
      atomic_fetch_add(&good, 1);
    }
    int result = ncclAllReduce(&given, &got, 1, 2, 0, comm, NULL);
    if (result != 0 && result != NCCL_INVALID_USAGE) abort();
    atomic_fetch_add(result == 0 ? &good : &refused, 1);
    void *mine = NULL, *handle = NULL;
    nccl_id id;
    real_id(&id);
    if (ncclCommInitRank(&mine, 1, id, 0) == 0) {
      if (ncclCommRegister(mine, &given, sizeof given, &handle) == 0 && handle != NULL) {
        int back = ncclCommDeregister(mine, handle);
        if (back != 0 && back != NCCL_INVALID_USAGE) abort();
      }
      while (ncclCommDestroy(mine) == NCCL_INVALID_USAGE) usleep(100);
    }
  }
  return NULL;
}

int main(void) {
  void *comm[THREADS];
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; ++i) {
    nccl_id id;
    real_id(&id);
    if (ncclCommInitRank(&comm[i], 1, id, 0) != 0) return 2;
    pthread_create(&threads[i], NULL, work, comm[i]);
  }
  char text[65536];
  for (int turn = 0; turn < TURNS; ++turn) {
    if (coldsnap_nccl_close(turn % 2 ? COLDSNAP_NCCL_ABORT : 0, 30) != 0) {
      fprintf(stderr, "close: %s\n", coldsnap_nccl_error());
      return 3;
    }
    if (coldsnap_nccl_status(text, sizeof text) > sizeof text) return 4;
    if (coldsnap_nccl_rebuild(NULL, 30) != 0) {
      fprintf(stderr, "rebuild: %s\n", coldsnap_nccl_error());
      return 5;
    }
    usleep(200);
  }
  atomic_store(&is_over, true);
  for (int i = 0; i < THREADS; ++i) {
    pthread_join(threads[i], NULL);
    if (ncclCommDestroy(comm[i]) != 0) return 6;
  }
  printf("turns %d, good %ld, refused %ld\n", TURNS, atomic_load(&good), atomic_load(&refused));
  return 0;
}
