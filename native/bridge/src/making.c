/* Communicators as they come and go: the engine gets a handle, which outlives what is behind it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

nccl_result bridge_missing(const char *name) {
  return bridge_fail(NCCL_SYSTEM_ERROR, "coldsnap's bridge finds no %s: libnccl is not loaded",
                     name);
}

nccl_result bridge_closed(void) {
  if (bridge_state() == STATE_BROKEN)
    return bridge_fail(NCCL_INVALID_USAGE,
                       "coldsnap could not close or make the communicators again; stop the engine");
  return bridge_fail(NCCL_INVALID_USAGE,
                     "the communicators are closed for a snapshot by coldsnap, until it makes them "
                     "again");
}

nccl_result bridge_destroyed(void) {
  return bridge_fail(NCCL_INVALID_ARGUMENT, "this communicator was destroyed before");
}

/* The engine's answer to a call that makes a communicator. */
static nccl_result made(struct comm *comm, nccl_comm *handle, nccl_result result) {
  bool is_good = result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS;
  *handle = is_good ? comm : NULL;
  if (!is_good) bridge_forget(comm);
  bridge_leave();
  return result;
}

/* NULL: closed, or no memory; else between enter and `made`. */
static struct comm *begin(const char *identity, const void *config) {
  if (!bridge_enter()) {
    bridge_closed();
    return NULL;
  }
  struct comm *comm = bridge_new_comm(identity);
  if (comm != NULL)
    comm->config = bridge_copy_config(config);
  else
    bridge_leave();
  return comm;
}

PUBLIC nccl_result ncclCommInitRank(nccl_comm *handle, int ranks, nccl_id id, int rank) {
  FIND(ncclCommInitRank)
  if (!bridge_is_on() || handle == NULL) return function(handle, ranks, id, rank);
  char identity[33];
  bridge_identify(identity, &id, sizeof id, "");
  struct comm *comm = begin(identity, NULL);
  if (comm == NULL) return NCCL_INVALID_USAGE;
  return made(comm, handle, function(&comm->real, ranks, id, rank));
}

PUBLIC nccl_result ncclCommInitRankConfig(nccl_comm *handle, int ranks, nccl_id id, int rank,
                                          void *config) {
  FIND(ncclCommInitRankConfig)
  if (!bridge_is_on() || handle == NULL) return function(handle, ranks, id, rank, config);
  char identity[33];
  bridge_identify(identity, &id, sizeof id, "");
  struct comm *comm = begin(identity, config);
  if (comm == NULL) return NCCL_INVALID_USAGE;
  return made(comm, handle, function(&comm->real, ranks, id, rank, config));
}

PUBLIC nccl_result ncclCommInitRankScalable(nccl_comm *handle, int ranks, int rank, int count,
                                            nccl_id *ids, void *config) {
  FIND(ncclCommInitRankScalable)
  if (!bridge_is_on() || handle == NULL || count < 1 || ids == NULL)
    return function(handle, ranks, rank, count, ids, config);
  char identity[33];
  bridge_identify(identity, ids, (size_t)count * sizeof *ids, "");
  struct comm *comm = begin(identity, config);
  if (comm == NULL) return NCCL_INVALID_USAGE;
  return made(comm, handle, function(&comm->real, ranks, rank, count, ids, config));
}

PUBLIC nccl_result ncclCommInitAll(nccl_comm *handles, int count, const int *devices) {
  FIND(ncclCommInitAll)
  if (!bridge_is_on() || handles == NULL || count < 1) return function(handles, count, devices);
  static atomic_uint number;
  char identity[33], text[64];
  snprintf(text, sizeof text, "all %u %.9f", atomic_fetch_add(&number, 1), bridge_now());
  bridge_identify(identity, handles, sizeof handles, text);
  if (!bridge_enter()) return bridge_closed();
  nccl_result result = function(handles, count, devices);
  for (int i = 0; i < count && result == NCCL_SUCCESS; ++i) {
    struct comm *comm = bridge_new_comm(identity);
    if (comm == NULL) {
      result = NCCL_SYSTEM_ERROR;
      break;
    }
    comm->real = handles[i];
    handles[i] = comm;
  }
  bridge_leave();
  return result;
}

/* A child's name: its parent's, which child of it, and with whom. */
static struct comm *child(struct comm *parent, const char *how, int color, const void *config) {
  char identity[33], text[64];
  snprintf(text, sizeof text, "%s %u %d", how, atomic_fetch_add(&parent->children, 1), color);
  bridge_identify(identity, parent->identity, sizeof parent->identity, text);
  return begin(identity, config);
}

PUBLIC nccl_result ncclCommSplit(nccl_comm comm, int color, int key, nccl_comm *handle,
                                 void *config) {
  FIND(ncclCommSplit)
  ENTER(comm)
  if (known == NULL || handle == NULL) {
    nccl_result result = function(real, color, key, handle, config);
    LEAVE
    return result;
  }
  struct comm *made_comm = child(known, "split", color, config);
  nccl_result result = NCCL_SYSTEM_ERROR;
  if (made_comm != NULL) {
    result = function(real, color, key, &made_comm->real, config);
    result = made(made_comm, handle, result);
    if (color == NCCL_NO_COLOR && *handle != NULL) {
      *handle = NULL; /* this rank has no part in any; NCCL says so, perhaps later */
      bridge_forget(made_comm);
    }
  }
  LEAVE
  return result;
}

PUBLIC nccl_result ncclCommShrink(nccl_comm comm, int *excluded, int count, nccl_comm *handle,
                                  void *config, int flags) {
  FIND(ncclCommShrink)
  ENTER(comm)
  if (known == NULL || handle == NULL) {
    nccl_result result = function(real, excluded, count, handle, config, flags);
    LEAVE
    return result;
  }
  struct comm *made_comm = child(known, "shrink", 0, config);
  nccl_result result = NCCL_SYSTEM_ERROR;
  if (made_comm != NULL) {
    result = function(real, excluded, count, &made_comm->real, config, flags);
    result = made(made_comm, handle, result);
  }
  LEAVE
  return result;
}

PUBLIC nccl_result ncclCommFinalize(nccl_comm comm) {
  FIND(ncclCommFinalize)
  ENTER(comm)
  nccl_result result = function(real);
  if (known != NULL) known->is_finalized = true;
  LEAVE
  return result;
}

/* Handles go at any time, also while there is nothing behind them. */
#define ENDING(NAME)                                                                              \
  PUBLIC nccl_result NAME(nccl_comm comm) {                                                       \
    FIND(NAME)                                                                                    \
    struct comm *closed = bridge_is_on() ? bridge_comm(comm) : NULL;                              \
    int state = bridge_state();                                                                   \
    if (closed != NULL && !closed->is_dead && (state == STATE_CLOSED || state == STATE_BROKEN)) { \
      bridge_forget(closed);                                                                      \
      return NCCL_SUCCESS;                                                                        \
    }                                                                                             \
    ENTER(comm)                                                                                   \
    nccl_result result = real != NULL || known == NULL ? function(real) : NCCL_SUCCESS;           \
    if (known != NULL) bridge_forget(known);                                                      \
    LEAVE                                                                                         \
    return result;                                                                                \
  }

ENDING(ncclCommDestroy)
ENDING(ncclCommAbort)
