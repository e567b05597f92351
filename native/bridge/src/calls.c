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
/* 2.32: with settings of one call. */
COLLECTIVE(ncclAllReduceConfig,
           (const void *from, void *to, size_t count, nccl_type type, nccl_op op, nccl_comm comm,
            nccl_stream stream, const void *config),
           (from, to, count, type, bridge_operator(known, op), real, stream, config))
COLLECTIVE(ncclReduceConfig,
           (const void *from, void *to, size_t count, nccl_type type, nccl_op op, int root,
            nccl_comm comm, nccl_stream stream, const void *config),
           (from, to, count, type, bridge_operator(known, op), root, real, stream, config))
COLLECTIVE(ncclReduceScatterConfig,
           (const void *from, void *to, size_t count, nccl_type type, nccl_op op, nccl_comm comm,
            nccl_stream stream, const void *config),
           (from, to, count, type, bridge_operator(known, op), real, stream, config))
COLLECTIVE(ncclBroadcastConfig,
           (const void *from, void *to, size_t count, nccl_type type, int root, nccl_comm comm,
            nccl_stream stream, const void *config),
           (from, to, count, type, root, real, stream, config))
COLLECTIVE(ncclAllGatherConfig,
           (const void *from, void *to, size_t count, nccl_type type, nccl_comm comm,
            nccl_stream stream, const void *config),
           (from, to, count, type, real, stream, config))
COLLECTIVE(ncclAlltoAllConfig,
           (const void *from, void *to, size_t count, nccl_type type, nccl_comm comm,
            nccl_stream stream, const void *config),
           (from, to, count, type, real, stream, config))
COLLECTIVE(ncclGatherConfig,
           (const void *from, void *to, size_t count, nccl_type type, int root, nccl_comm comm,
            nccl_stream stream, const void *config),
           (from, to, count, type, root, real, stream, config))
COLLECTIVE(ncclScatterConfig,
           (const void *from, void *to, size_t count, nccl_type type, int root, nccl_comm comm,
            nccl_stream stream, const void *config),
           (from, to, count, type, root, real, stream, config))
COLLECTIVE(ncclPutSignal,
           (const void *from, size_t count, nccl_type type, int peer, void *window, size_t offset,
            int signal, int context, unsigned flags, nccl_comm comm, nccl_stream stream),
           (from, count, type, peer, bridge_window(known, window), offset, signal, context, flags,
            real, stream))
COLLECTIVE(ncclSignal,
           (int peer, int signal, int context, unsigned flags, nccl_comm comm, nccl_stream stream),
           (peer, signal, context, flags, real, stream))
COLLECTIVE(ncclWaitSignal, (int count, void *signals, nccl_comm comm, nccl_stream stream),
           (count, signals, real, stream))
COLLECTIVE(ncclSend,
           (const void *from, size_t count, nccl_type type, int peer, nccl_comm comm,
            nccl_stream stream),
           (from, count, type, peer, real, stream))
COLLECTIVE(ncclRecv,
           (void *to, size_t count, nccl_type type, int peer, nccl_comm comm, nccl_stream stream),
           (to, count, type, peer, real, stream))
