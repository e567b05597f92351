/* NCCL's functions as the engine sees them: handles in, communicators on. */
#include "calls.h"

#define COLLECTIVE(NAME, PARAMETERS, ARGUMENTS)                                                    \
  PUBLIC nccl_result NAME PARAMETERS {                                                             \
    FIND(NAME)                                                                                     \
    ENTER(comm)                                                                                    \
    if (known != NULL && bridge_is_capturing(stream)) atomic_fetch_add(&known->captured, 1);       \
    nccl_result result = function ARGUMENTS;                                                       \
    LEAVE                                                                                          \
    return result;                                                                                 \
  }

COLLECTIVE(ncclAllReduce,
           (const void *from, void *to, size_t count, nccl_type type, nccl_op op, nccl_comm comm,
            nccl_stream stream),
           (from, to, count, type, bridge_operator(known, op), real, stream))
COLLECTIVE(ncclReduce,
           (const void *from, void *to, size_t count, nccl_type type, nccl_op op, int root,
            nccl_comm comm, nccl_stream stream),
           (from, to, count, type, bridge_operator(known, op), root, real, stream))
COLLECTIVE(ncclReduceScatter,
           (const void *from, void *to, size_t count, nccl_type type, nccl_op op, nccl_comm comm,
            nccl_stream stream),
           (from, to, count, type, bridge_operator(known, op), real, stream))
COLLECTIVE(ncclBcast,
           (void *at, size_t count, nccl_type type, int root, nccl_comm comm, nccl_stream stream),
           (at, count, type, root, real, stream))
COLLECTIVE(ncclBroadcast,
           (const void *from, void *to, size_t count, nccl_type type, int root, nccl_comm comm,
            nccl_stream stream),
           (from, to, count, type, root, real, stream))
COLLECTIVE(ncclAllGather,
           (const void *from, void *to, size_t count, nccl_type type, nccl_comm comm,
            nccl_stream stream),
           (from, to, count, type, real, stream))
COLLECTIVE(ncclAlltoAll,
           (const void *from, void *to, size_t count, nccl_type type, nccl_comm comm,
            nccl_stream stream),
           (from, to, count, type, real, stream))
COLLECTIVE(ncclGather,
           (const void *from, void *to, size_t count, nccl_type type, int root, nccl_comm comm,
            nccl_stream stream),
           (from, to, count, type, root, real, stream))
COLLECTIVE(ncclScatter,
           (const void *from, void *to, size_t count, nccl_type type, int root, nccl_comm comm,
            nccl_stream stream),
           (from, to, count, type, root, real, stream))
COLLECTIVE(ncclSend,
           (const void *from, size_t count, nccl_type type, int peer, nccl_comm comm,
            nccl_stream stream),
           (from, count, type, peer, real, stream))
COLLECTIVE(ncclRecv,
           (void *to, size_t count, nccl_type type, int peer, nccl_comm comm, nccl_stream stream),
           (to, count, type, peer, real, stream))

PUBLIC nccl_result ncclGroupStart(void) {
  FIND(ncclGroupStart)
  if (!bridge_is_on()) return function();
  if (!bridge_enter()) return bridge_closed();
  bridge_open_group();
  bridge_leave();
  return function();
}

PUBLIC nccl_result ncclGroupEnd(void) {
  FIND(ncclGroupEnd)
  nccl_result result = function();
  if (bridge_is_on()) bridge_close_group();
  return result;
}

PUBLIC nccl_result ncclGroupSimulateEnd(void *info) {
  FIND(ncclGroupSimulateEnd)
  nccl_result result = function(info);
  if (bridge_is_on()) bridge_close_group();
  return result;
}

/* Questions have answers while communicators are away, whatever is done to them: watchdogs go on
 * asking, and end the engine when they get an error. */
#define QUESTION(NAME, TYPE, KNOWN, ANSWER)                                                        \
  PUBLIC nccl_result NAME(nccl_comm comm, TYPE *answer) {                                          \
    FIND(NAME)                                                                                     \
    struct comm *known = bridge_is_on() ? bridge_comm(comm) : NULL;                                \
    if (known == NULL || answer == NULL) return function(comm, answer);                            \
    while (!bridge_enter()) {                                                                      \
      int state = bridge_state();                                                                  \
      if (known->is_dead) return bridge_destroyed();                                               \
      if (state == STATE_OPEN) continue; /* open again meanwhile */                                \
      if (state == STATE_BROKEN || !(KNOWN)) return bridge_closed();                               \
      *answer = ANSWER;                                                                            \
      return NCCL_SUCCESS;                                                                         \
    }                                                                                              \
    nccl_result result =                                                                           \
        known->is_dead ? bridge_destroyed() : function(known->real, answer);                       \
    LEAVE                                                                                          \
    return result;                                                                                 \
  }

QUESTION(ncclCommCount, int, known->ranks > 0, known->ranks)
QUESTION(ncclCommUserRank, int, known->ranks > 0, known->rank)
QUESTION(ncclCommCuDevice, int, known->ranks > 0, known->device)
QUESTION(ncclCommGetAsyncError, nccl_result, true, NCCL_SUCCESS)

PUBLIC const char *ncclGetLastError(nccl_comm comm) {
  __typeof__(&ncclGetLastError) function =
      (__typeof__(&ncclGetLastError))bridge_real(F_ncclGetLastError);
  struct comm *known = bridge_is_on() ? bridge_comm(comm) : NULL;
  if (function == NULL || (known != NULL && known->is_dead)) return bridge_error();
  if (known == NULL) return bridge_is_on() && bridge_state() != STATE_OPEN ? bridge_error()
                                                                           : function(comm);
  if (!bridge_enter()) return bridge_error();
  const char *text = function(known->real);
  bridge_leave();
  return text;
}

#define PLAIN(NAME, PARAMETERS, ARGUMENTS)                                                         \
  PUBLIC nccl_result NAME PARAMETERS {                                                             \
    FIND(NAME)                                                                                     \
    ENTER(comm)                                                                                    \
    nccl_result result = function ARGUMENTS;                                                       \
    LEAVE                                                                                          \
    return result;                                                                                 \
  }

PLAIN(ncclCommRevoke, (nccl_comm comm, int flags), (real, flags))
PLAIN(ncclCommSuspend, (nccl_comm comm, int flags), (real, flags))
PLAIN(ncclCommResume, (nccl_comm comm), (real))
PLAIN(ncclCommMemStats, (nccl_comm comm, int which, void *value), (real, which, value))

PUBLIC nccl_result ncclDevCommCreate(nccl_comm comm, const void *wanted, void *made) {
  FIND(ncclDevCommCreate)
  ENTER(comm)
  nccl_result result = function(real, wanted, made);
  if (known != NULL && result == NCCL_SUCCESS) atomic_fetch_add(&known->device_comms, 1);
  LEAVE
  return result;
}

PUBLIC nccl_result ncclDevCommDestroy(nccl_comm comm, const void *made) {
  FIND(ncclDevCommDestroy)
  ENTER(comm)
  nccl_result result = function(real, made);
  if (known != NULL && result == NCCL_SUCCESS) atomic_fetch_sub(&known->device_comms, 1);
  LEAVE
  return result;
}
