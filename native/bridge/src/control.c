/* coldsnap_nccl.h: what coldsnap's runtime calls. */
#include "../include/coldsnap_nccl.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bridge.h"

#define PUBLIC __attribute__((visibility("default")))

/* NCCL may never come back: what it does is done by a thread that is left behind then. */
struct work {
  pthread_mutex_t lock;
  pthread_cond_t ended;
  bool is_ended, is_left, closes;
  int code;
  uint32_t flags;
  struct coldsnap_nccl_exchange exchange;
  bool has_exchange;
  double until;
  char error[512];
};

static pthread_mutex_t one_call = PTHREAD_MUTEX_INITIALIZER;

static void *do_work(void *argument) {
  struct work *work = argument;
  int code = work->closes ? bridge_close_all(work->flags)
                          : bridge_rebuild_all(work->has_exchange ? &work->exchange : NULL,
                                               work->until);
  pthread_mutex_lock(&work->lock);
  work->code = code;
  snprintf(work->error, sizeof work->error, "%s", bridge_error());
  work->is_ended = true;
  bool is_left = work->is_left;
  pthread_cond_signal(&work->ended);
  pthread_mutex_unlock(&work->lock);
  if (is_left) free(work);
  return NULL;
}

static int run(struct work *work, double seconds) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&work->lock, NULL);
  pthread_cond_init(&work->ended, &attributes);
  pthread_condattr_destroy(&attributes);
  pthread_t thread;
  if (pthread_create(&thread, NULL, do_work, work) != 0) {
    free(work);
    return bridge_fail(COLDSNAP_NCCL_FAILED, "no thread can be made");
  }
  double until = bridge_now() + seconds;
  struct timespec end = {(time_t)until, (long)((until - (double)(time_t)until) * 1e9)};
  pthread_mutex_lock(&work->lock);
  while (!work->is_ended &&
         pthread_cond_timedwait(&work->ended, &work->lock, &end) == 0) {
  }
  bool is_ended = work->is_ended, closes = work->closes;
  work->is_left = !is_ended;
  int code = work->code;
  pthread_mutex_unlock(&work->lock);
  if (!is_ended) {
    pthread_detach(thread);
    return bridge_fail(COLDSNAP_NCCL_DEADLINE, closes
                           ? "NCCL did not end its communicators in %.1f s: does a CUDA graph still "
                             "hold its kernels, or does a rank not take part?"
                           : "NCCL did not make its communicators in %.1f s: does a rank not take "
                             "part?",
                       seconds);
  }
  pthread_join(thread, NULL);
  if (code != COLDSNAP_NCCL_OK) bridge_set_error(work->error);
  pthread_cond_destroy(&work->ended);
  pthread_mutex_destroy(&work->lock);
  free(work);
  return code;
}

static int refusal_of(struct comm *comm, uint32_t flags) {
  if (atomic_load(&comm->device_comms) > 0)
    return bridge_fail(COLDSNAP_NCCL_REFUSED,
                       "communicator %s has device communicators; take them back first",
                       comm->identity);
  if (atomic_load(&comm->captured) > 0 && (flags & COLDSNAP_NCCL_GRAPHS_DROPPED) == 0)
    return bridge_fail(COLDSNAP_NCCL_REFUSED,
                       "CUDA graphs hold %u calls of communicator %s; drop the graphs first",
                       atomic_load(&comm->captured), comm->identity);
  return bridge_facts(comm);
}

/* What cannot be closed and come back. */
static int refusal(uint32_t flags) {
  const char *library = bridge_foreign_library(), *functions = bridge_unknown_used();
  if (library != NULL)
    return bridge_fail(COLDSNAP_NCCL_REFUSED,
                       "%s makes communicators too, beside %s; one libnccl can be bridged", library,
                       bridge_library());
  if (functions != NULL)
    return bridge_fail(COLDSNAP_NCCL_REFUSED,
                       "the engine uses functions of libnccl that the bridge does not know: %s",
                       functions);
  int code = COLDSNAP_NCCL_OK;
  bridge_lock();
  for (struct comm *comm = bridge_comms(); comm != NULL && code == COLDSNAP_NCCL_OK;
       comm = comm->next)
    code = comm->real != NULL ? refusal_of(comm, flags) : COLDSNAP_NCCL_OK;
  bridge_unlock();
  return code;
}

static int close_now(uint32_t flags, double seconds) {
  if (!bridge_is_on())
    return bridge_fail(COLDSNAP_NCCL_OFF, "the bridge is off: COLDSNAP_NCCL_BRIDGE=on is not set");
  double until = bridge_now() + seconds;
  if (!bridge_change_state(STATE_OPEN, STATE_CLOSING))
    return bridge_fail(COLDSNAP_NCCL_STATE, "the communicators are closed already, or unusable");
  int code = COLDSNAP_NCCL_OK;
  if (!bridge_wait_idle(until))
    code = bridge_fail(COLDSNAP_NCCL_BUSY, "calls or groups of NCCL did not end in %.1f s", seconds);
  if (code == COLDSNAP_NCCL_OK) code = refusal(flags);
  struct work *work = code == COLDSNAP_NCCL_OK ? calloc(1, sizeof *work) : NULL;
  if (work == NULL) {
    bridge_set_state(STATE_OPEN);
    return code != COLDSNAP_NCCL_OK ? code : bridge_fail(COLDSNAP_NCCL_FAILED, "no memory");
  }
  work->closes = true;
  work->flags = flags;
  double left = until - bridge_now();
  code = run(work, left > 0.05 ? left : 0.05);
  bridge_set_state(code == COLDSNAP_NCCL_OK ? STATE_CLOSED : STATE_BROKEN);
  return code;
}

static int rebuild_now(const struct coldsnap_nccl_exchange *exchange, double seconds) {
  if (!bridge_is_on())
    return bridge_fail(COLDSNAP_NCCL_OFF, "the bridge is off: COLDSNAP_NCCL_BRIDGE=on is not set");
  struct work *work = calloc(1, sizeof *work);
  if (work == NULL) return bridge_fail(COLDSNAP_NCCL_FAILED, "no memory");
  if (!bridge_change_state(STATE_CLOSED, STATE_REBUILDING)) {
    free(work);
    return bridge_fail(COLDSNAP_NCCL_STATE, "the communicators are not closed, or are unusable");
  }
  work->has_exchange = exchange != NULL;
  if (exchange != NULL) work->exchange = *exchange;
  work->until = bridge_now() + seconds;
  int code = run(work, seconds);
  if (code == COLDSNAP_NCCL_OK) bridge_next_epoch();
  bridge_set_state(code == COLDSNAP_NCCL_OK ? STATE_OPEN : STATE_BROKEN);
  return code;
}

PUBLIC uint32_t coldsnap_nccl_abi(void) { return COLDSNAP_NCCL_ABI; }

PUBLIC const char *coldsnap_nccl_error(void) { return bridge_error(); }

PUBLIC int coldsnap_nccl_close(uint32_t flags, double seconds) {
  if ((flags & ~3u) != 0 || !(seconds > 0 && seconds < 1e6))
    return bridge_fail(COLDSNAP_NCCL_INVALID, "unknown flags, or no sensible number of seconds");
  pthread_mutex_lock(&one_call);
  int code = close_now(flags, seconds);
  pthread_mutex_unlock(&one_call);
  return code;
}

PUBLIC int coldsnap_nccl_rebuild(const struct coldsnap_nccl_exchange *exchange, double seconds) {
  if (!(seconds > 0 && seconds < 1e6) ||
      (exchange != NULL && (exchange->publish == NULL || exchange->fetch == NULL)))
    return bridge_fail(COLDSNAP_NCCL_INVALID, "no sensible number of seconds, or half an exchange");
  pthread_mutex_lock(&one_call);
  int code = rebuild_now(exchange, seconds);
  pthread_mutex_unlock(&one_call);
  return code;
}

PUBLIC int coldsnap_nccl_rebuild_by_folder(const char *path, double seconds) {
  if (path == NULL) return bridge_fail(COLDSNAP_NCCL_INVALID, "no folder");
  /* Kept: a thread that NCCL holds may outlive this call. */
  struct folder *folder = calloc(1, sizeof *folder);
  char *copy = strdup(path);
  if (folder == NULL || copy == NULL) {
    free(folder);
    free(copy);
    return bridge_fail(COLDSNAP_NCCL_FAILED, "no memory");
  }
  folder->path = copy;
  struct coldsnap_nccl_exchange exchange = {folder, bridge_folder_publish, bridge_folder_fetch};
  int code = coldsnap_nccl_rebuild(&exchange, seconds);
  if (code != COLDSNAP_NCCL_DEADLINE) {
    free(copy);
    free(folder);
  }
  return code;
}

struct text {
  char *at;
  size_t bytes, used;
};

static void add(struct text *text, const char *format, ...) {
  va_list values;
  va_start(values, format);
  size_t left = text->used < text->bytes ? text->bytes - text->used : 0;
  int wanted = vsnprintf(left > 0 ? text->at + text->used : NULL, left, format, values);
  va_end(values);
  if (wanted > 0) text->used += (size_t)wanted;
}

static void add_string(struct text *text, const char *name, const char *value) {
  add(text, "\"%s\":\"", name);
  for (; value != NULL && *value != 0; ++value) {
    unsigned char byte = (unsigned char)*value;
    if (byte < 0x20 || byte == '"' || byte == '\\')
      add(text, "\\u%04x", byte);
    else
      add(text, "%c", byte);
  }
  add(text, "\"");
}

PUBLIC size_t coldsnap_nccl_status(char *buffer, size_t bytes) {
  static const char *const states[] = {"open", "closing", "closed", "rebuilding", "unusable"};
  struct text text = {buffer, bytes, 0};
  int version = 0;
  nccl_result (*get)(int *) = (nccl_result(*)(int *))bridge_real(F_ncclGetVersion);
  if (get != NULL) get(&version);
  add(&text, "{\"on\":%s,\"state\":\"%s\",\"rebuilt\":%u,\"version\":%d,",
      bridge_is_on() ? "true" : "false", states[bridge_state()], (unsigned)bridge_epoch(), version);
  add_string(&text, "library", bridge_library());
  add(&text, ",");
  add_string(&text, "other_library", bridge_foreign_library());
  add(&text, ",");
  add_string(&text, "unknown_functions", bridge_unknown_used());
  add(&text, ",\"communicators\":[");
  bridge_lock();
  bool is_first = true;
  for (struct comm *comm = bridge_comms(); comm != NULL; comm = comm->next) {
    add(&text, "%s{\"identity\":\"%s\",\"ranks\":%d,\"rank\":%d,\"device\":%d,\"captured\":%u}",
        is_first ? "" : ",", comm->identity, comm->ranks, comm->rank, comm->device,
        atomic_load(&comm->captured));
    is_first = false;
  }
  bridge_unlock();
  add(&text, "]}");
  return text.used + 1;
}
