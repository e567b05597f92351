/* What every wrapped function does first and last. */
#ifndef COLDSNAP_NCCL_CALLS_H
#define COLDSNAP_NCCL_CALLS_H

#include "bridge.h"

#define PUBLIC __attribute__((visibility("default")))

/* `function`: the same in the engine's libnccl. */
#define FIND(NAME)                                                                                \
  __typeof__(&NAME) function = (__typeof__(&NAME))bridge_real(F_##NAME);                          \
  if (function == NULL) return bridge_missing(#NAME);

/* `known`: what stands behind the handle, NULL where it is none of ours; `real`: what NCCL gets. */
#define ENTER(HANDLE)                                                                             \
  struct comm *known = bridge_is_on() ? bridge_comm(HANDLE) : NULL;                               \
  void *real = HANDLE;                                                                            \
  if (known != NULL) {                                                                            \
    if (!bridge_enter()) return bridge_closed();                                                  \
    if (known->is_dead) {                                                                         \
      bridge_leave();                                                                             \
      return bridge_destroyed();                                                                  \
    }                                                                                             \
    real = known->real;                                                                           \
  }

#define LEAVE                                                                                     \
  if (known != NULL) bridge_leave();

nccl_result bridge_missing(const char *name);
nccl_result bridge_closed(void);
nccl_result bridge_destroyed(void);
nccl_op bridge_operator(const struct comm *comm, nccl_op given);
void *bridge_window(const struct comm *comm, void *given);
#endif
