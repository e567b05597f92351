/* The parts of libcoldsnap_nccl. */
#ifndef COLDSNAP_NCCL_BRIDGE_H
#define COLDSNAP_NCCL_BRIDGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "types.h"

enum state { STATE_OPEN, STATE_CLOSING, STATE_CLOSED, STATE_REBUILDING, STATE_BROKEN };

/* A registered buffer or window: the engine's handle, NCCL's now. */
struct buffer {
  void *given, *real;
  void *address;
  size_t bytes;
  int flags;
  bool is_window;
  struct buffer *next;
};

/* A reduction operator that the engine made: its number there, its number now. */
struct operator {
  nccl_op given, real;
  nccl_type type;
  int residence;
  const void *device_scalar;
  unsigned char scalar[16];
  struct operator *next;
};

#define COMM_MAGIC 0x436f6c64536e6170ull

/* What stands behind an engine's ncclComm_t. Never freed: a handle that was destroyed is known as
 * one, and there are few. */
struct comm {
  uint64_t magic;
  void *real; /* written by NCCL, perhaps as late as at the end of a group */
  char identity[33];
  int ranks, rank, device;
  struct nccl_config *config;
  bool is_dead, is_finalized, has_failed;
  atomic_uint children, captured, device_comms;
  struct buffer *buffers;
  struct operator *operators;
  struct comm *next;
};

/* state.c */
bool bridge_is_on(void);
int bridge_state(void);
bool bridge_change_state(int from, int to);
void bridge_set_state(int to);
uint32_t bridge_epoch(void);
void bridge_next_epoch(void);
/* Every call that may touch a communicator is between these two. enter is false where the
 * communicators are closed; then there is nothing to leave. */
bool bridge_enter(void);
void bridge_leave(void);
void bridge_open_group(void);
bool bridge_close_group(void);
bool bridge_wait_idle(double until);
struct comm *bridge_comm(nccl_comm handle);
struct comm *bridge_new_comm(const char *identity);
void bridge_forget(struct comm *comm);
void bridge_lock(void);
void bridge_unlock(void);
struct comm *bridge_comms(void);
size_t bridge_sorted(struct comm ***list);
void bridge_identify(char identity[33], const void *data, size_t bytes, const char *more);
struct nccl_config *bridge_copy_config(const void *config);
double bridge_now(void);

/* failure.c */
int bridge_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *bridge_error(void);
void bridge_set_error(const char *text);

/* real.c */
void *bridge_real(enum function which);
const char *bridge_library(void);
/* Functions that the engine took and that this library cannot stand before; NULL: none. */
const char *bridge_unknown_used(void);
/* Path of a second libnccl that makes communicators, which are not ours to close; NULL: none. */
const char *bridge_foreign_library(void);

/* device.c */
bool bridge_is_capturing(nccl_stream stream);
void *bridge_use_device(int device);
void bridge_put_device_back(void *token);

/* lifecycle.c */
int bridge_close_all(uint32_t flags);
struct coldsnap_nccl_exchange;
int bridge_rebuild_all(const struct coldsnap_nccl_exchange *exchange, double until);
int bridge_facts(struct comm *comm);

/* exchange.c */
struct folder {
  const char *path;
};
int bridge_folder_publish(void *folder, const char *key, const void *value, size_t bytes);
int bridge_folder_fetch(void *folder, const char *key, void *value, size_t bytes, double seconds);
#endif
