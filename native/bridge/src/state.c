/* Which communicators there are, and who is in a call. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bridge.h"

static atomic_int state = STATE_OPEN;
static atomic_uint epoch;
static atomic_long inside;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct comm *comms, *destroyed;
static _Thread_local unsigned group_depth;

/* Asked once; constructors of other libraries may be here before any of ours. */
bool bridge_is_on(void) {
  static atomic_int known;
  int found = atomic_load(&known);
  if (found == 0) {
    const char *wanted = getenv("COLDSNAP_NCCL_BRIDGE");
    found = wanted != NULL && strcmp(wanted, "on") == 0 ? 1 : 2;
    atomic_store(&known, found);
  }
  return found == 1;
}

int bridge_state(void) { return atomic_load(&state); }

bool bridge_change_state(int from, int to) {
  return atomic_compare_exchange_strong(&state, &from, to);
}

void bridge_set_state(int to) { atomic_store(&state, to); }

uint32_t bridge_epoch(void) { return atomic_load(&epoch); }

void bridge_next_epoch(void) { atomic_fetch_add(&epoch, 1); }

bool bridge_enter(void) {
  /* The order matters: who closes sets the state first and looks at the number after. */
  atomic_fetch_add(&inside, 1);
  if (group_depth > 0 || atomic_load(&state) == STATE_OPEN) return true;
  atomic_fetch_sub(&inside, 1);
  return false;
}

void bridge_leave(void) { atomic_fetch_sub(&inside, 1); }

void bridge_open_group(void) {
  if (group_depth++ == 0) atomic_fetch_add(&inside, 1);
}

bool bridge_close_group(void) {
  if (group_depth == 0) return false;
  if (--group_depth == 0) atomic_fetch_sub(&inside, 1);
  return true;
}

bool bridge_wait_idle(double until) {
  while (atomic_load(&inside) != 0) {
    if (bridge_now() > until) return false;
    nanosleep(&(struct timespec){0, 200000}, NULL);
  }
  return true;
}

/* NULL where the handle is not ours: made by a libnccl that is not bridged, or before. */
struct comm *bridge_comm(nccl_comm handle) {
  struct comm *comm = handle;
  return comm != NULL && (uintptr_t)comm % _Alignof(struct comm) == 0 && comm->magic == COMM_MAGIC
             ? comm
             : NULL;
}

struct comm *bridge_new_comm(const char *identity) {
  struct comm *comm = calloc(1, sizeof *comm);
  if (comm == NULL) return NULL;
  comm->magic = COMM_MAGIC;
  comm->device = -1;
  snprintf(comm->identity, sizeof comm->identity, "%s", identity);
  bridge_lock();
  comm->next = comms;
  comms = comm;
  bridge_unlock();
  return comm;
}

static void free_config(struct nccl_config *config) {
  if (config->size >= offsetof(struct nccl_config, split_share)) free((void *)config->net_name);
  if (config->size >= sizeof *config) free((void *)config->comm_name);
  free(config);
}

void bridge_forget(struct comm *comm) {
  bridge_lock();
  comm->is_dead = true;
  comm->real = NULL;
  struct buffer *buffer = comm->buffers;
  struct operator *operator= comm->operators;
  comm->buffers = NULL;
  comm->operators = NULL;
  for (struct comm **at = &comms; *at != NULL; at = &(*at)->next) {
    if (*at == comm) {
      *at = comm->next;
      comm->next = destroyed;
      destroyed = comm;
      break;
    }
  }
  /* A thread that NCCL holds may still read it where the communicators are unusable. */
  struct nccl_config *config = bridge_state() != STATE_BROKEN ? comm->config : NULL;
  if (config != NULL) comm->config = NULL;
  bridge_unlock();
  if (config != NULL) free_config(config);
  while (buffer != NULL) {
    struct buffer *next = buffer->next;
    free(buffer);
    buffer = next;
  }
  while (operator!= NULL) {
    struct operator *next = operator->next;
    free(operator);
    operator= next;
  }
}

void bridge_lock(void) { pthread_mutex_lock(&lock); }

void bridge_unlock(void) { pthread_mutex_unlock(&lock); }

struct comm *bridge_comms(void) { return comms; }

static int by_identity(const void *left, const void *right) {
  const struct comm *one = *(struct comm *const *)left, *other = *(struct comm *const *)right;
  int order = strcmp(one->identity, other->identity);
  return order != 0 ? order : (one->rank > other->rank) - (one->rank < other->rank);
}

/* All communicators in an order that is the same in every rank, so that nobody waits for one who
 * waits for him; the caller frees the list. */
size_t bridge_sorted(struct comm ***list) {
  bridge_lock();
  size_t count = 0;
  for (struct comm *comm = comms; comm != NULL; comm = comm->next) ++count;
  *list = calloc(count + 1, sizeof **list);
  size_t at = 0;
  if (*list != NULL)
    for (struct comm *comm = comms; comm != NULL; comm = comm->next) (*list)[at++] = comm;
  bridge_unlock();
  if (*list != NULL) qsort(*list, count, sizeof **list, by_identity);
  return *list != NULL ? count : 0;
}

static uint64_t mixed(uint64_t hash, const void *data, size_t bytes) {
  const unsigned char *at = data;
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3ull;
  return hash;
}

/* A name that all ranks of a communicator find by themselves: of its unique id, or of its parent
 * and how it came of it. */
void bridge_identify(char identity[33], const void *data, size_t bytes, const char *more) {
  uint64_t one = mixed(0xcbf29ce484222325ull, data, bytes), other = mixed(~one, data, bytes);
  one = mixed(one, more, strlen(more));
  other = mixed(other, more, strlen(more));
  snprintf(identity, 33, "%016llx%016llx", (unsigned long long)one, (unsigned long long)other);
}

/* With its strings, which the engine may free. NULL: none was given, or it makes no sense. */
struct nccl_config *bridge_copy_config(const void *given) {
  const struct nccl_config *config = given;
  if (config == NULL || config->size < offsetof(struct nccl_config, net_name) ||
      config->size > 4096)
    return NULL;
  struct nccl_config *copy = calloc(1, config->size + sizeof *copy);
  if (copy == NULL) return NULL;
  memcpy(copy, config, config->size);
  if (config->size >= offsetof(struct nccl_config, split_share) && config->net_name != NULL)
    copy->net_name = strdup(config->net_name);
  if (config->size >= sizeof *config && config->comm_name != NULL)
    copy->comm_name = strdup(config->comm_name);
  return copy;
}

double bridge_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
