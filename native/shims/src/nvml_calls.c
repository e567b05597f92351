/* NVML's functions as the engine gets them.
 *
 * Those that look a device up, or tell its UUID, index and number, are written out. All others that
 * begin with nvmlDevice get their device as first argument (two of them as second too) and have at
 * most six arguments, all of them integers and pointers: each gets one of the forwarders below. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "next.h"
#include "nvml_shim.h"

enum { FORWARDERS = 256, MOST_STARTS = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Read while NVML works on a device, written while it is started anew. Taken with the lock. */
static pthread_rwlock_t at_work = PTHREAD_RWLOCK_INITIALIZER;
static void *_Atomic library;
static unsigned starts, refreshed;

void nvml_lock(void) { pthread_mutex_lock(&lock); }
void nvml_unlock(void) { pthread_mutex_unlock(&lock); }
unsigned nvml_refreshed(void) { return refreshed; }

void nvml_library(void *handle) {
  void *none = NULL;
  atomic_compare_exchange_strong(&library, &none, handle);
}

void *nvml_real(const char *name) {
  void *handle = atomic_load(&library);
  return handle != NULL ? next_dlsym()(handle, name) : NULL;
}

/* Start NVML anew when the GPUs are others; with the lock. */
static void refresh(void) {
  if (!map_changed()) return;
  devices_forget_real();
  ++refreshed;
  nvml_result (*shut)(void) = (nvml_result(*)(void))nvml_real("nvmlShutdown");
  nvml_result (*init)(void) = (nvml_result(*)(void))nvml_real("nvmlInit_v2");
  if (shut == NULL || init == NULL) return;
  pthread_rwlock_wrlock(&at_work);
  for (unsigned i = 0; i < starts && shut() == NVML_SUCCESS; ++i) {
  }
  for (unsigned i = 0; i < starts; ++i) init();
  pthread_rwlock_unlock(&at_work);
}

static nvml_result started(const char *name) {
  nvml_result (*function)(void) = (nvml_result(*)(void))nvml_real(name);
  nvml_lock();
  refresh();
  nvml_result result = function();
  if (result == NVML_SUCCESS && starts < MOST_STARTS) ++starts;
  nvml_unlock();
  return result;
}

static nvml_result init_v2(void) { return started("nvmlInit_v2"); }
static nvml_result init_v1(void) { return started("nvmlInit"); }

static nvml_result init_flags(unsigned flags) {
  nvml_result (*function)(unsigned) = (nvml_result(*)(unsigned))nvml_real("nvmlInitWithFlags");
  nvml_lock();
  refresh();
  nvml_result result = function(flags);
  if (result == NVML_SUCCESS && starts < MOST_STARTS) ++starts;
  nvml_unlock();
  return result;
}

static nvml_result shut_down(void) {
  nvml_result (*function)(void) = (nvml_result(*)(void))nvml_real("nvmlShutdown");
  nvml_lock();
  nvml_result result = function();
  if (result == NVML_SUCCESS && starts > 0) --starts;
  nvml_unlock();
  return result;
}

static nvml_result count_devices(unsigned *count) {
  nvml_result (*function)(unsigned *) =
      (nvml_result(*)(unsigned *))nvml_real("nvmlDeviceGetCount_v2");
  const struct pair *pairs;
  nvml_lock();
  refresh();
  nvml_result result = function(count);
  size_t mapped = map_pairs(&pairs);
  if (result == NVML_SUCCESS && mapped > 0) *count = (unsigned)mapped;
  nvml_unlock();
  return result;
}

/* The engine's handle of one of NVML's; with the lock. */
static nvml_result give(void *real, void **handle) {
  nvml_result (*uuid_of)(void *, char *, unsigned) =
      (nvml_result(*)(void *, char *, unsigned))nvml_real("nvmlDeviceGetUUID");
  nvml_result (*index_of)(void *, unsigned *) =
      (nvml_result(*)(void *, unsigned *))nvml_real("nvmlDeviceGetIndex");
  char uuid[UUID_BYTES];
  unsigned index = 0;
  nvml_result result = uuid_of(real, uuid, sizeof uuid);
  if (result == NVML_SUCCESS) result = index_of(real, &index);
  if (result != NVML_SUCCESS) return result;
  const struct pair *pairs;
  size_t mapped = map_pairs(&pairs);
  for (size_t i = 0; i < mapped; ++i) {
    if (strcmp(pairs[i].now, uuid) != 0) continue;
    snprintf(uuid, sizeof uuid, "%s", pairs[i].captured);
    index = pairs[i].index;
    break;
  }
  void *made = device_handle(uuid, index);
  *handle = made != NULL ? made : real;
  return NVML_SUCCESS;
}

/* UUID that NVML knows a captured one by. */
static const char *uuid_now(const char *uuid) {
  const struct pair *pairs;
  size_t mapped = map_pairs(&pairs);
  for (size_t i = 0; i < mapped; ++i)
    if (strcmp(pairs[i].captured, uuid) == 0) return pairs[i].now;
  return uuid;
}

static nvml_result by_uuid(const char *uuid, void **handle) {
  nvml_result (*function)(const char *, void **) =
      (nvml_result(*)(const char *, void **))nvml_real("nvmlDeviceGetHandleByUUID");
  void *real = NULL;
  if (uuid == NULL || handle == NULL) return NVML_INVALID_ARGUMENT;
  nvml_lock();
  refresh();
  nvml_result result = function(uuid_now(uuid), &real);
  if (result == NVML_SUCCESS) result = give(real, handle);
  nvml_unlock();
  return result;
}

static nvml_result by_index(unsigned index, void **handle) {
  nvml_result (*function)(unsigned, void **) =
      (nvml_result(*)(unsigned, void **))nvml_real("nvmlDeviceGetHandleByIndex_v2");
  nvml_result (*find)(const char *, void **) =
      (nvml_result(*)(const char *, void **))nvml_real("nvmlDeviceGetHandleByUUID");
  const struct pair *pairs;
  void *real = NULL;
  if (handle == NULL) return NVML_INVALID_ARGUMENT;
  nvml_lock();
  refresh();
  size_t mapped = map_pairs(&pairs);
  nvml_result result = mapped > 0 ? NVML_INVALID_ARGUMENT : function(index, &real);
  for (size_t i = 0; i < mapped; ++i)
    if (pairs[i].index == index) result = find(pairs[i].now, &real);
  if (result == NVML_SUCCESS) result = give(real, handle);
  nvml_unlock();
  return result;
}

static nvml_result by_text(const char *name, const char *text, void **handle) {
  nvml_result (*function)(const char *, void **) =
      (nvml_result(*)(const char *, void **))nvml_real(name);
  void *real = NULL;
  if (function == NULL) return NVML_FUNCTION_NOT_FOUND;
  if (handle == NULL) return NVML_INVALID_ARGUMENT;
  nvml_lock();
  refresh();
  nvml_result result = function(text, &real);
  if (result == NVML_SUCCESS) result = give(real, handle);
  nvml_unlock();
  return result;
}

static nvml_result by_bus(const char *bus, void **handle) {
  return by_text("nvmlDeviceGetHandleByPciBusId_v2", bus, handle);
}

static nvml_result by_serial(const char *serial, void **handle) {
  return by_text("nvmlDeviceGetHandleBySerial", serial, handle);
}

static nvml_result get_uuid(void *device, char *uuid, unsigned bytes) {
  if (device_is_ours(device)) {
    const char *known = device_uuid(device);
    if (uuid == NULL) return NVML_INVALID_ARGUMENT;
    if (strlen(known) >= bytes) return NVML_INSUFFICIENT_SIZE;
    memcpy(uuid, known, strlen(known) + 1);
    return NVML_SUCCESS;
  }
  nvml_result (*function)(void *, char *, unsigned) =
      (nvml_result(*)(void *, char *, unsigned))nvml_real("nvmlDeviceGetUUID");
  return function(device, uuid, bytes);
}

static nvml_result get_index(void *device, unsigned *index) {
  if (device_is_ours(device)) {
    if (index == NULL) return NVML_INVALID_ARGUMENT;
    *index = device_index(device);
    return NVML_SUCCESS;
  }
  nvml_result (*function)(void *, unsigned *) =
      (nvml_result(*)(void *, unsigned *))nvml_real("nvmlDeviceGetIndex");
  return function(device, index);
}

typedef nvml_result (*six)(void *, void *, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static struct {
  char name[80];
  void *real;
} forwarded[FORWARDERS];
static unsigned forwarded_count;

static nvml_result forward(unsigned number, void *device, void *other, uintptr_t c, uintptr_t d,
                           uintptr_t e, uintptr_t f) {
  nvml_lock();
  refresh();
  bool is_there = true;
  if (device_is_ours(device)) is_there = (device = device_real(device)) != NULL;
  if (device_is_ours(other)) is_there = (other = device_real(other)) != NULL && is_there;
  pthread_rwlock_rdlock(&at_work);
  nvml_unlock();
  nvml_result result =
      is_there ? ((six)forwarded[number].real)(device, other, c, d, e, f) : NVML_NOT_FOUND;
  pthread_rwlock_unlock(&at_work);
  return result;
}

#define ONE(N)                                                                                    \
  static nvml_result forward_##N(void *a, void *b, uintptr_t c, uintptr_t d, uintptr_t e,         \
                                 uintptr_t f) {                                                   \
    return forward(0x##N, a, b, c, d, e, f);                                                      \
  }
#define SIXTEEN(X, N)                                                                             \
  X(N##0) X(N##1) X(N##2) X(N##3) X(N##4) X(N##5) X(N##6) X(N##7)                                 \
  X(N##8) X(N##9) X(N##a) X(N##b) X(N##c) X(N##d) X(N##e) X(N##f)
#define ALL(X)                                                                                    \
  SIXTEEN(X, 0) SIXTEEN(X, 1) SIXTEEN(X, 2) SIXTEEN(X, 3) SIXTEEN(X, 4) SIXTEEN(X, 5)             \
  SIXTEEN(X, 6) SIXTEEN(X, 7) SIXTEEN(X, 8) SIXTEEN(X, 9) SIXTEEN(X, a) SIXTEEN(X, b)             \
  SIXTEEN(X, c) SIXTEEN(X, d) SIXTEEN(X, e) SIXTEEN(X, f)
ALL(ONE)
#define NAMED(N) forward_##N,
static const six forwarders[FORWARDERS] = {ALL(NAMED)};

static void *forwarder(const char *name, void *real) {
  unsigned at = 0;
  nvml_lock();
  while (at < forwarded_count && strcmp(forwarded[at].name, name) != 0) ++at;
  if (at == forwarded_count && at < FORWARDERS && strlen(name) < sizeof forwarded[at].name) {
    snprintf(forwarded[at].name, sizeof forwarded[at].name, "%s", name);
    forwarded[at].real = real;
    ++forwarded_count;
  }
  bool is_one = at < forwarded_count;
  nvml_unlock();
  return is_one ? (void *)forwarders[at] : NULL;
}

/* What the engine gets for `name`, for which NVML has `real`. */
void *nvml_answer(const char *name, void *real) {
  static const struct {
    const char *name;
    void *function;
  } own[] = {
      {"nvmlInit_v2", (void *)init_v2},
      {"nvmlInit", (void *)init_v1},
      {"nvmlInitWithFlags", (void *)init_flags},
      {"nvmlShutdown", (void *)shut_down},
      {"nvmlDeviceGetCount_v2", (void *)count_devices},
      {"nvmlDeviceGetCount", (void *)count_devices},
      {"nvmlDeviceGetHandleByIndex_v2", (void *)by_index},
      {"nvmlDeviceGetHandleByIndex", (void *)by_index},
      {"nvmlDeviceGetHandleByUUID", (void *)by_uuid},
      {"nvmlDeviceGetHandleByPciBusId_v2", (void *)by_bus},
      {"nvmlDeviceGetHandleByPciBusId", (void *)by_bus},
      {"nvmlDeviceGetHandleBySerial", (void *)by_serial},
      {"nvmlDeviceGetUUID", (void *)get_uuid},
      {"nvmlDeviceGetIndex", (void *)get_index},
  };
  for (size_t i = 0; i < sizeof own / sizeof *own; ++i)
    if (strcmp(own[i].name, name) == 0) return own[i].function;
  /* Another way to look a device up: the handle would be NVML's own. Callers have the others. */
  if (strncmp(name, "nvmlDeviceGetHandleBy", 21) == 0) return NULL;
  if (strncmp(name, "nvmlDevice", 10) != 0) return real;
  void *function = forwarder(name, real);
  return function != NULL ? function : real;
}
