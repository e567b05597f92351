/* libcoldsnap_nccl: closes NCCL communicators before a snapshot, makes them again after it.
 *
 * Preloaded (LD_PRELOAD) and switched on (COLDSNAP_NCCL_BRIDGE=on), it stands between an engine and
 * its libnccl: the engine's ncclComm_t are then handles of this library, which outlive the
 * communicators behind them. Without the switch every call goes through unchanged.
 *
 * Functions return a code; coldsnap_nccl_error() has one line on this thread's last failure. They
 * print nothing and end nothing. One control call runs at a time. */
#ifndef COLDSNAP_NCCL_H
#define COLDSNAP_NCCL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COLDSNAP_NCCL_ABI 1
#define COLDSNAP_NCCL_ID_BYTES 128
#define COLDSNAP_NCCL_KEY_BYTES 64

enum coldsnap_nccl_code {
  COLDSNAP_NCCL_OK = 0,
  COLDSNAP_NCCL_INVALID = 1,  /* arguments */
  COLDSNAP_NCCL_OFF = 2,      /* not switched on at the start of the process */
  COLDSNAP_NCCL_STATE = 3,    /* closed already, or not closed */
  COLDSNAP_NCCL_BUSY = 4,     /* calls or groups did not end in time; nothing was changed */
  COLDSNAP_NCCL_REFUSED = 5,  /* what exists cannot be made again; nothing was changed */
  COLDSNAP_NCCL_FAILED = 6,   /* NCCL failed; the communicators are unusable */
  COLDSNAP_NCCL_DEADLINE = 7, /* NCCL did not come back; the communicators are unusable */
  COLDSNAP_NCCL_EXCHANGE = 8, /* the ranks could not tell each other; unusable as well */
};

enum coldsnap_nccl_flags {
  COLDSNAP_NCCL_GRAPHS_DROPPED = 1, /* the caller has destroyed every CUDA graph with collectives */
  COLDSNAP_NCCL_ABORT = 2,          /* ncclCommAbort in place of ncclCommDestroy */
};

/* How the ranks of a communicator agree on a new unique id: rank 0 publishes, the others fetch.
 * Both return 0, or the call fails. Keys are of [0-9a-f.] and at most 63 characters; a key is used
 * once in a rebuild, and again when the same image is restored again: start with an empty store. */
struct coldsnap_nccl_exchange {
  void *context;
  int (*publish)(void *context, const char *key, const void *value, size_t bytes);
  int (*fetch)(void *context, const char *key, void *value, size_t bytes, double seconds);
};

uint32_t coldsnap_nccl_abi(void);
const char *coldsnap_nccl_error(void);

/* One JSON object: on, state, library, version, communicators [{identity, ranks, rank, device,
 * captured}], refusals. Returns the length that it needs, with the 0 at its end. */
size_t coldsnap_nccl_status(char *text, size_t bytes);

/* Close every communicator. Call it in all ranks, when no stream has NCCL's work left. */
int coldsnap_nccl_close(uint32_t flags, double seconds);

/* Make them again under their handles, with their registered buffers and reduction operators. Call
 * it in all ranks. `exchange` may be NULL where no communicator has ranks in other processes. */
int coldsnap_nccl_rebuild(const struct coldsnap_nccl_exchange *exchange, double seconds);

/* coldsnap_nccl_rebuild by files in a folder that all ranks share and that was empty before. */
int coldsnap_nccl_rebuild_by_folder(const char *folder, double seconds);

#ifdef __cplusplus
}
#endif
#endif
