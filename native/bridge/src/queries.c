/* Groups, questions and what else gets a communicator. */
#include "calls.h"

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

PLAIN(ncclCommGetUniqueId, (nccl_comm comm, nccl_id *id), (real, id))
PLAIN(ncclCommQueryProperties, (nccl_comm comm, void *properties), (real, properties))
PLAIN(ncclWinGetUserPtr, (nccl_comm comm, void *window, void **address),
      (real, bridge_window(known, window), address))

/* Ranks that join later are not known to those that make the communicator again. */
PUBLIC nccl_result ncclCommGrow(nccl_comm comm, int ranks, const nccl_id *id, int rank,
                                nccl_comm *made, void *config) {
  FIND(ncclCommGrow)
  if (!bridge_is_on()) return function(comm, ranks, id, rank, made, config);
  return bridge_fail(NCCL_INVALID_USAGE, "communicators that grow are not bridged by coldsnap");
}

struct team {
  int ranks, rank, stride;
};

#define TEAM(NAME)                                                                                 \
  PUBLIC struct team NAME(nccl_comm comm) {                                                        \
    __typeof__(&NAME) function = (__typeof__(&NAME))bridge_real(F_##NAME);                         \
    struct comm *known = bridge_is_on() ? bridge_comm(comm) : NULL;                                \
    struct team none = {0, 0, 0};                                                                  \
    if (function == NULL || (known != NULL && !bridge_enter())) return none;                       \
    if (known == NULL) return function(comm);                                                      \
    struct team team = known->is_dead ? none : function(known->real);                              \
    bridge_leave();                                                                                \
    return team;                                                                                   \
  }

TEAM(ncclTeamWorld)
TEAM(ncclTeamLsa)
TEAM(ncclTeamRail)

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
