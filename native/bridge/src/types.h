/* What this library knows of NCCL's own ABI (2.18 to 2.32): no header of it is needed. */
#ifndef COLDSNAP_NCCL_TYPES_H
#define COLDSNAP_NCCL_TYPES_H

#include <stddef.h>

typedef void *nccl_comm;
typedef void *nccl_stream;
typedef int nccl_result;
typedef int nccl_type;
typedef int nccl_op;

typedef struct {
  char internal[128];
} nccl_id;

enum {
  NCCL_SUCCESS = 0,
  NCCL_SYSTEM_ERROR = 2,
  NCCL_INVALID_ARGUMENT = 4,
  NCCL_INVALID_USAGE = 5,
  NCCL_IN_PROGRESS = 7,
};
enum { NCCL_NO_COLOR = -1, NCCL_HOST_IMMEDIATE = 1 };

/* The beginning of ncclConfig_t; it grows by version, and `size` tells how far it goes. */
struct nccl_config {
  size_t size;
  unsigned magic, version;
  int blocking, cluster, least_blocks, most_blocks;
  const char *net_name;
  int split_share, traffic_class;
  const char *comm_name; /* 2.27 */
};

/* Functions of libnccl that get or give a communicator. */
#define NCCL_WRAPPED(X)                                                                           \
  X(ncclCommInitRank) X(ncclCommInitRankConfig) X(ncclCommInitRankScalable) X(ncclCommInitAll)    \
  X(ncclCommSplit) X(ncclCommShrink) X(ncclCommFinalize) X(ncclCommDestroy) X(ncclCommAbort)      \
  X(ncclCommGetAsyncError) X(ncclCommCount) X(ncclCommCuDevice) X(ncclCommUserRank)               \
  X(ncclGetLastError) X(ncclCommRegister) X(ncclCommDeregister) X(ncclCommWindowRegister)         \
  X(ncclCommWindowDeregister) X(ncclRedOpCreatePreMulSum) X(ncclRedOpDestroy) X(ncclReduce)       \
  X(ncclBcast) X(ncclBroadcast) X(ncclAllReduce) X(ncclReduceScatter) X(ncclAllGather)            \
  X(ncclAlltoAll) X(ncclGather) X(ncclScatter) X(ncclSend) X(ncclRecv)            \
  X(ncclGroupStart) X(ncclGroupEnd) X(ncclGroupSimulateEnd) X(ncclDevCommCreate)                  \
  X(ncclDevCommDestroy) X(ncclCommRevoke) X(ncclCommSuspend) X(ncclCommResume)                    \
  X(ncclCommMemStats) X(ncclAllReduceConfig) X(ncclReduceConfig) X(ncclReduceScatterConfig)       \
  X(ncclBroadcastConfig) X(ncclAllGatherConfig) X(ncclAlltoAllConfig) X(ncclGatherConfig)         \
  X(ncclScatterConfig) X(ncclPutSignal) X(ncclSignal) X(ncclWaitSignal) X(ncclCommGetUniqueId)    \
  X(ncclCommGrow) X(ncclCommQueryProperties) X(ncclWinGetUserPtr) X(ncclTeamWorld)                \
  X(ncclTeamLsa) X(ncclTeamRail)

/* Functions that get none: the engine may have them as they are. */
#define NCCL_HARMLESS(X)                                                                          \
  X(ncclGetVersion) X(ncclGetUniqueId) X(ncclGetErrorString) X(ncclMemAlloc) X(ncclMemFree)       \
  X(ncclResetDebugInit) X(ncclSetEncryption) X(ncclGetLsaDevicePointer)                           \
  X(ncclGetPeerDevicePointer) X(ncclGetMultimemDevicePointer) X(ncclGetLsaMultimemDevicePointer)

enum function {
#define X(name) F_##name,
  NCCL_WRAPPED(X) NCCL_HARMLESS(X)
#undef X
      F_COUNT
};
#endif
