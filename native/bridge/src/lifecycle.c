/* Ends all communicators and makes them again, in an order that is the same in every rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../include/coldsnap_nccl.h"
#include "bridge.h"

typedef nccl_result (*with_comm)(void *);
typedef nccl_result (*async_error)(void *, nccl_result *);
typedef nccl_result (*ask)(void *, int *);

static int failed(const struct comm *comm, const char *what, nccl_result result) {
  const char *(*text)(void *) = (const char *(*)(void *))bridge_real(F_ncclGetLastError);
  const char *more = text != NULL ? text(NULL) : NULL;
  return bridge_fail(COLDSNAP_NCCL_FAILED, "%s of communicator %s (rank %d of %d) failed: %d%s%s",
                     what, comm->identity, comm->rank, comm->ranks, result,
                     more != NULL && *more ? ": " : "", more != NULL ? more : "");
}

/* A communicator that does not block is ready when it says so. */
static nccl_result settled(void *real, nccl_result result, double until) {
  async_error get = (async_error)bridge_real(F_ncclCommGetAsyncError);
  while (result == NCCL_IN_PROGRESS && get != NULL) {
    nccl_result now = NCCL_SUCCESS;
    nccl_result asked = get(real, &now);
    if (asked != NCCL_SUCCESS) return asked;
    result = now;
    if (result == NCCL_IN_PROGRESS && bridge_now() > until) return result;
  }
  return result;
}

/* What a communicator is, asked while it is there; refused where it has failed. */
int bridge_facts(struct comm *comm) {
  ask count = (ask)bridge_real(F_ncclCommCount), rank = (ask)bridge_real(F_ncclCommUserRank),
      device = (ask)bridge_real(F_ncclCommCuDevice);
  async_error get = (async_error)bridge_real(F_ncclCommGetAsyncError);
  nccl_result error = NCCL_SUCCESS, asked = NCCL_SYSTEM_ERROR;
  if (get == NULL || count == NULL || rank == NULL || device == NULL)
    return bridge_fail(COLDSNAP_NCCL_REFUSED, "libnccl lacks ncclCommCount or the like");
  if ((asked = get(comm->real, &error)) != NCCL_SUCCESS || error != NCCL_SUCCESS)
    return bridge_fail(COLDSNAP_NCCL_REFUSED, "communicator %s has failed already: %d",
                       comm->identity, asked != NCCL_SUCCESS ? asked : error);
  if ((asked = count(comm->real, &comm->ranks)) != NCCL_SUCCESS ||
      (asked = rank(comm->real, &comm->rank)) != NCCL_SUCCESS ||
      (asked = device(comm->real, &comm->device)) != NCCL_SUCCESS)
    return bridge_fail(COLDSNAP_NCCL_REFUSED, "communicator %s does not say what it is: %d",
                       comm->identity, asked);
  return COLDSNAP_NCCL_OK;
}

static int take_back_buffers(struct comm *comm) {
  for (struct buffer *one = comm->buffers; one != NULL; one = one->next) {
    enum function which = one->is_window ? F_ncclCommWindowDeregister : F_ncclCommDeregister;
    nccl_result (*function)(void *, void *) = (nccl_result(*)(void *, void *))bridge_real(which);
    nccl_result result = function(comm->real, one->real);
    if (result != NCCL_SUCCESS) return failed(comm, "taking back a buffer", result);
    one->real = NULL;
  }
  return COLDSNAP_NCCL_OK;
}

int bridge_close_all(uint32_t flags) {
  struct comm **list = NULL;
  size_t count = bridge_sorted(&list);
  bool aborts = (flags & COLDSNAP_NCCL_ABORT) != 0;
  with_comm end = (with_comm)bridge_real(aborts ? F_ncclCommAbort : F_ncclCommDestroy);
  with_comm finalize = (with_comm)bridge_real(F_ncclCommFinalize);
  int code = COLDSNAP_NCCL_OK;
  for (size_t i = 0; i < count && code == COLDSNAP_NCCL_OK; ++i) {
    struct comm *comm = list[i];
    if (comm->real == NULL) continue;
    void *before = bridge_use_device(comm->device);
    code = aborts ? COLDSNAP_NCCL_OK : take_back_buffers(comm);
    bool is_blocking = comm->config == NULL || comm->config->blocking != 0;
    if (code == COLDSNAP_NCCL_OK && !aborts && !is_blocking && !comm->is_finalized) {
      nccl_result result = settled(comm->real, finalize(comm->real), bridge_now() + 3600);
      if (result != NCCL_SUCCESS) code = failed(comm, "finishing", result);
    }
    if (code == COLDSNAP_NCCL_OK) {
      nccl_result result = end(comm->real);
      if (result == NCCL_SUCCESS)
        comm->real = NULL;
      else
        code = failed(comm, "ending", result);
    }
    bridge_put_device_back(before);
  }
  free(list);
  return code;
}

/* The unique id of a communicator: made by its rank 0, told to the others. */
static int agree(struct comm *const *members, size_t count,
                 const struct coldsnap_nccl_exchange *exchange, double until, nccl_id *id) {
  const struct comm *comm = members[0];
  char key[COLDSNAP_NCCL_KEY_BYTES];
  snprintf(key, sizeof key, "%s.%u", comm->identity, (unsigned)bridge_epoch());
  bool is_alone = count == (size_t)comm->ranks;
  if (!is_alone && exchange == NULL)
    return bridge_fail(COLDSNAP_NCCL_EXCHANGE,
                       "communicator %s has ranks in other processes, and nothing was given by "
                       "which they find each other",
                       comm->identity);
  if (comm->rank != 0) {
    bridge_set_error("the exchange failed");
    if (exchange->fetch(exchange->context, key, id, sizeof *id, until - bridge_now()) == 0)
      return COLDSNAP_NCCL_OK;
    return COLDSNAP_NCCL_EXCHANGE;
  }
  nccl_result (*make)(nccl_id *) = (nccl_result(*)(nccl_id *))bridge_real(F_ncclGetUniqueId);
  nccl_result result = make != NULL ? make(id) : NCCL_SYSTEM_ERROR;
  if (result != NCCL_SUCCESS) return failed(comm, "making a unique id", result);
  if (is_alone) return COLDSNAP_NCCL_OK;
  bridge_set_error("the exchange failed");
  return exchange->publish(exchange->context, key, id, sizeof *id) == 0 ? COLDSNAP_NCCL_OK
                                                                        : COLDSNAP_NCCL_EXCHANGE;
}

static nccl_result make_one(struct comm *comm, nccl_id id) {
  typedef nccl_result (*plain)(void **, int, nccl_id, int);
  typedef nccl_result (*configured)(void **, int, nccl_id, int, void *);
  void *before = bridge_use_device(comm->device);
  nccl_result result;
  if (comm->config != NULL)
    result = ((configured)bridge_real(F_ncclCommInitRankConfig))(&comm->real, comm->ranks, id,
                                                                 comm->rank, comm->config);
  else
    result = ((plain)bridge_real(F_ncclCommInitRank))(&comm->real, comm->ranks, id, comm->rank);
  bridge_put_device_back(before);
  return result;
}

static int put_back_buffers(struct comm *comm) {
  typedef nccl_result (*buffer_function)(void *, void *, size_t, void **);
  typedef nccl_result (*window_function)(void *, void *, size_t, void **, int);
  typedef nccl_result (*operator_function)(nccl_op *, void *, nccl_type, int, void *);
  buffer_function buffer = (buffer_function)bridge_real(F_ncclCommRegister);
  window_function window = (window_function)bridge_real(F_ncclCommWindowRegister);
  operator_function make = (operator_function)bridge_real(F_ncclRedOpCreatePreMulSum);
  for (struct buffer *one = comm->buffers; one != NULL; one = one->next) {
    nccl_result result =
        one->is_window ? window(comm->real, one->address, one->bytes, &one->real, one->flags)
                       : buffer(comm->real, one->address, one->bytes, &one->real);
    if (result != NCCL_SUCCESS) return failed(comm, "registering a buffer", result);
  }
  for (struct operator *one = comm->operators; one != NULL; one = one->next) {
    void *scalar = one->residence == NCCL_HOST_IMMEDIATE ? (void *)one->scalar
                                                         : (void *)(uintptr_t)one->device_scalar;
    nccl_result result = make(&one->real, scalar, one->type, one->residence, comm->real);
    if (result != NCCL_SUCCESS) return failed(comm, "making a reduction operator", result);
  }
  return COLDSNAP_NCCL_OK;
}

/* All ranks of one communicator that this process has, at once: each waits for the others. */
static int make_members(struct comm *const *members, size_t count,
                        const struct coldsnap_nccl_exchange *exchange, double until) {
  nccl_result (*start)(void) = (nccl_result(*)(void))bridge_real(F_ncclGroupStart);
  nccl_result (*end)(void) = (nccl_result(*)(void))bridge_real(F_ncclGroupEnd);
  nccl_id id;
  int code = agree(members, count, exchange, until, &id);
  if (code != COLDSNAP_NCCL_OK) return code;
  nccl_result result = count > 1 ? start() : NCCL_SUCCESS;
  if (result != NCCL_SUCCESS) return failed(members[0], "opening a group", result);
  for (size_t i = 0; i < count && (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS); ++i)
    result = make_one(members[i], id);
  nccl_result ended = count > 1 ? end() : NCCL_SUCCESS;
  if (result == NCCL_SUCCESS) result = ended;
  for (size_t i = 0; i < count; ++i) {
    result = settled(members[i]->real, result, until);
    if (result != NCCL_SUCCESS) return failed(members[i], "making", result);
    atomic_store(&members[i]->captured, 0);
    code = put_back_buffers(members[i]);
    if (code != COLDSNAP_NCCL_OK) return code;
  }
  return COLDSNAP_NCCL_OK;
}

int bridge_rebuild_all(const struct coldsnap_nccl_exchange *exchange, double until) {
  struct comm **list = NULL;
  size_t count = bridge_sorted(&list), wanted = 0;
  for (size_t i = 0; i < count; ++i)
    if (!list[i]->is_finalized) list[wanted++] = list[i];
  int code = COLDSNAP_NCCL_OK;
  for (size_t at = 0; at < wanted && code == COLDSNAP_NCCL_OK;) {
    size_t next = at + 1;
    while (next < wanted && strcmp(list[next]->identity, list[at]->identity) == 0) ++next;
    code = make_members(list + at, next - at, exchange, until);
    at = next;
  }
  free(list);
  return code;
}
