/* Registered buffers, windows and reduction operators: they belong to a communicator and come back
 * with it. */
#include <stdlib.h>
#include <string.h>

#include "calls.h"

/* Bytes of a scalar of this type; 0: unknown. */
static size_t type_bytes(nccl_type type) {
  static const unsigned char sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && (size_t)type < sizeof sizes ? sizes[type] : 0;
}

enum { FIRST_OPERATOR = 0x40000000 };

nccl_op bridge_operator(const struct comm *comm, nccl_op given) {
  if (comm == NULL || given < FIRST_OPERATOR) return given;
  for (const struct operator *one = comm->operators; one != NULL; one = one->next)
    if (one->given == given) return one->real;
  return given;
}

PUBLIC nccl_result ncclRedOpCreatePreMulSum(nccl_op *op, void *scalar, nccl_type type,
                                            int residence, nccl_comm comm) {
  FIND(ncclRedOpCreatePreMulSum)
  ENTER(comm)
  nccl_result result = function(op, scalar, type, residence, real);
  if (known != NULL && result == NCCL_SUCCESS) {
    /* NCCL may use a number again after the communicator was made again; these are used once. */
    static atomic_int number = FIRST_OPERATOR;
    struct operator *made = calloc(1, sizeof *made);
    if (made != NULL) {
      made->real = *op;
      made->given = *op = atomic_fetch_add(&number, 1);
      made->type = type;
      made->residence = residence;
      made->device_scalar = scalar;
      if (residence == NCCL_HOST_IMMEDIATE) memcpy(made->scalar, scalar, type_bytes(type));
      bridge_lock();
      made->next = known->operators;
      known->operators = made;
      bridge_unlock();
    }
  }
  LEAVE
  return result;
}

PUBLIC nccl_result ncclRedOpDestroy(nccl_op op, nccl_comm comm) {
  FIND(ncclRedOpDestroy)
  ENTER(comm)
  nccl_result result = function(bridge_operator(known, op), real);
  if (known != NULL) {
    bridge_lock();
    for (struct operator **at = &known->operators; *at != NULL; at = &(*at)->next) {
      if ((*at)->given != op) continue;
      struct operator *gone = *at;
      *at = gone->next;
      free(gone);
      break;
    }
    bridge_unlock();
  }
  LEAVE
  return result;
}

static struct buffer *new_buffer(void *address, size_t bytes) {
  struct buffer *buffer = calloc(1, sizeof *buffer);
  if (buffer != NULL) {
    buffer->address = address;
    buffer->bytes = bytes;
  }
  return buffer;
}

/* NCCL's window for one that the engine has. */
void *bridge_window(const struct comm *comm, void *given) {
  if (comm == NULL) return given;
  for (const struct buffer *one = comm->buffers; one != NULL; one = one->next)
    if (one->given == given) return one->real;
  return given;
}

/* Keep what was registered; `handle` is what the engine gets. A window's is NCCL's own, because
 * device code may use it; a buffer's is ours. Where NCCL has nothing to hold (registration is off)
 * the engine gets that answer too. */
static nccl_result keep(struct comm *comm, struct buffer *buffer, void **handle,
                        nccl_result result) {
  *handle = NULL;
  if (result != NCCL_SUCCESS || buffer->real == NULL) {
    free(buffer);
    return result;
  }
  buffer->given = buffer->is_window ? buffer->real : buffer;
  bridge_lock();
  struct buffer **last = &comm->buffers; /* made again in the same order, which windows need */
  while (*last != NULL && (*last)->given != buffer->given) last = &(*last)->next;
  bool is_new = *last == NULL;
  if (is_new) {
    *last = buffer;
    *handle = buffer->given;
  }
  bridge_unlock();
  if (is_new) return result;
  free(buffer);
  return bridge_fail(NCCL_SYSTEM_ERROR,
                     "NCCL gave a window the handle that one from before the snapshot has");
}

static void *drop(struct comm *comm, void *handle) {
  void *real = handle;
  bridge_lock();
  for (struct buffer **at = &comm->buffers; *at != NULL; at = &(*at)->next) {
    if ((*at)->given != handle) continue;
    struct buffer *gone = *at;
    real = gone->real;
    *at = gone->next;
    free(gone);
    break;
  }
  bridge_unlock();
  return real;
}

PUBLIC nccl_result ncclCommRegister(nccl_comm comm, void *address, size_t bytes, void **handle) {
  FIND(ncclCommRegister)
  ENTER(comm)
  struct buffer *buffer = known != NULL ? new_buffer(address, bytes) : NULL;
  nccl_result result = function(real, address, bytes, buffer != NULL ? &buffer->real : handle);
  if (buffer != NULL) result = keep(known, buffer, handle, result);
  LEAVE
  return result;
}

PUBLIC nccl_result ncclCommDeregister(nccl_comm comm, void *handle) {
  FIND(ncclCommDeregister)
  ENTER(comm)
  nccl_result result = function(real, known != NULL ? drop(known, handle) : handle);
  LEAVE
  return result;
}

PUBLIC nccl_result ncclCommWindowRegister(nccl_comm comm, void *address, size_t bytes,
                                          void **window, int flags) {
  FIND(ncclCommWindowRegister)
  ENTER(comm)
  struct buffer *buffer = known != NULL ? new_buffer(address, bytes) : NULL;
  if (buffer != NULL) {
    buffer->is_window = true;
    buffer->flags = flags;
  }
  nccl_result result =
      function(real, address, bytes, buffer != NULL ? &buffer->real : window, flags);
  if (buffer != NULL) result = keep(known, buffer, window, result);
  LEAVE
  return result;
}

PUBLIC nccl_result ncclCommWindowDeregister(nccl_comm comm, void *window) {
  FIND(ncclCommWindowDeregister)
  ENTER(comm)
  nccl_result result = function(real, known != NULL ? drop(known, window) : window);
  LEAVE
  return result;
}
