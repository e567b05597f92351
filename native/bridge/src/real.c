/* The engine's libnccl, and the engine's searches for functions of it.
 *
 * Libraries that are linked to libnccl find our functions first, because we are preloaded. Those
 * that open it themselves (ctypes, loaders with a libnccl of their own) ask dlsym, so dlsym is ours
 * as well; it changes nothing but the answers for functions that get communicators. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../shims/src/next.h"
#include "bridge.h"

#define X(name) extern nccl_result name(void);
NCCL_WRAPPED(X)
#undef X

static const char *const names[F_COUNT] = {
#define X(name) #name,
    NCCL_WRAPPED(X) NCCL_HARMLESS(X)
#undef X
};
static void *const ours[F_COUNT] = {
#define X(name) (void *)name,
    NCCL_WRAPPED(X)
#undef X
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *_Atomic library; /* handle */
static const void *base;
static char path[4096], foreign[4096], unknown[512];
static _Atomic bool has_foreign, has_unknown;
static void *_Atomic found[F_COUNT];

static int find_by_name(struct dl_phdr_info *info, size_t size, void *result) {
  (void)size;
  const char *name = info->dlpi_name != NULL ? strrchr(info->dlpi_name, '/') : NULL;
  if (name == NULL || strncmp(name, "/libnccl.so", 11) != 0) return 0;
  snprintf(result, sizeof path, "%s", info->dlpi_name);
  return 1;
}

/* Take the library that has this address; with the lock. */
static bool adopt(const void *address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == NULL) return false;
  void *handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == NULL) return false;
  base = info.dli_fbase;
  snprintf(path, sizeof path, "%s", info.dli_fname);
  atomic_store(&library, handle);
  return true;
}

static void *nccl(void) {
  void *handle = atomic_load(&library);
  if (handle != NULL) return handle;
  pthread_mutex_lock(&lock);
  if (atomic_load(&library) == NULL) {
    const char *given = getenv("COLDSNAP_NCCL_LIBRARY");
    char name[sizeof path] = "";
    void *address = next_dlsym()(RTLD_NEXT, "ncclGetVersion");
    if (given != NULL && *given != 0)
      snprintf(name, sizeof name, "%s", given);
    else if (address == NULL || !adopt(address))
      dl_iterate_phdr(find_by_name, name);
    void *opened = name[0] != 0 ? dlopen(name, RTLD_LAZY) : NULL;
    if (opened != NULL) {
      address = next_dlsym()(opened, "ncclGetVersion");
      if (address != NULL) adopt(address);
      dlclose(opened);
    }
  }
  pthread_mutex_unlock(&lock);
  return atomic_load(&library);
}

void *bridge_real(enum function which) {
  void *function = atomic_load(&found[which]);
  if (function != NULL) return function;
  void *handle = nccl();
  if (handle == NULL) return NULL;
  function = next_dlsym()(handle, names[which]);
  atomic_store(&found[which], function);
  return function;
}

const char *bridge_library(void) { return nccl() != NULL ? path : ""; }

const char *bridge_foreign_library(void) { return has_foreign ? foreign : NULL; }

const char *bridge_unknown_used(void) { return has_unknown ? unknown : NULL; }

static void note_unknown(const char *name) {
  pthread_mutex_lock(&lock);
  size_t length = strlen(unknown);
  if (strstr(unknown, name) == NULL && length + strlen(name) + 3 < sizeof unknown)
    snprintf(unknown + length, sizeof unknown - length, "%s%s", length ? ", " : "", name);
  has_unknown = true;
  pthread_mutex_unlock(&lock);
}

/* What the engine gets that asked for `name` and would have got `function`. */
static void *answer(const char *name, void *function) {
  enum function which = 0;
  while (which < F_COUNT && strcmp(names[which], name) != 0) ++which;
  if (which < F_COUNT && ours[which] == NULL) return function;
  if (strncmp(name, "ncclParam", 9) == 0) return function;
  Dl_info info;
  if (dladdr(function, &info) == 0) return function;
  pthread_mutex_lock(&lock);
  bool is_known = atomic_load(&library) != NULL || adopt(function);
  bool is_same = is_known && info.dli_fbase == base;
  if (is_known && !is_same && strncmp(name, "ncclCommInit", 12) == 0) {
    snprintf(foreign, sizeof foreign, "%s", info.dli_fname);
    has_foreign = true;
  }
  pthread_mutex_unlock(&lock);
  if (!is_same) return function;
  if (which < F_COUNT) return ours[which];
  note_unknown(name);
  return function;
}

static bool is_of_nccl(const char *name) {
  return name != NULL && strncmp(name, "nccl", 4) == 0 && name[4] >= 'A' && name[4] <= 'Z';
}

/* Where the answer depends on who asks (RTLD_NEXT, RTLD_DEFAULT), the C library must see the
 * caller's return address: the last line is a jump in every build of this file (-O2), which the
 * tests show. */
__attribute__((visibility("default"), noinline)) void *dlsym(void *restrict handle,
                                                             const char *restrict name) {
  if (is_of_nccl(name) && handle != RTLD_NEXT && bridge_is_on()) {
    void *function = NULL;
    if (handle != RTLD_DEFAULT) {
      function = next_dlsym()(handle, name);
    } else if (nccl() != NULL) {
      /* Ours would be found, whether the engine's library has such a function or not. */
      function = next_dlsym()(nccl(), name);
    }
    if (function != NULL) return answer(name, function);
    if (handle == RTLD_DEFAULT) {
      handle = nccl() != NULL ? nccl() : RTLD_DEFAULT;
      name = "a function that this libnccl lacks"; /* a failure for dlerror to tell */
    }
  }
  return next_dlsym()(handle, name);
}
