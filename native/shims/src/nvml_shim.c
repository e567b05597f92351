/* Stands before dlsym and dlopen, for libnvidia-ml alone: everybody opens NVML at run time. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../include/coldsnap_nvml.h"
#include "next.h"
#include "nvml_shim.h"

#define PUBLIC __attribute__((visibility("default")))

static atomic_int mode;

/* Asked once; constructors of other libraries may be here before any of ours. */
enum nvml_mode nvml_shim_mode(void) {
  int found = atomic_load(&mode);
  if (found == 0) {
    const char *wanted = getenv("COLDSNAP_NVML_SHIM");
    found = 1 + (wanted == NULL                ? NVML_OFF
                 : strcmp(wanted, "map") == 0  ? NVML_MAP
                 : strcmp(wanted, "hide") == 0 ? NVML_HIDE
                                               : NVML_OFF);
    atomic_store(&mode, found);
  }
  return (enum nvml_mode)(found - 1);
}

PUBLIC void coldsnap_nvml_show(void) {
  if (nvml_shim_mode() == NVML_HIDE) atomic_store(&mode, 1 + NVML_OFF);
}

PUBLIC uint32_t coldsnap_nvml_abi(void) { return COLDSNAP_NVML_ABI; }

PUBLIC size_t coldsnap_nvml_status(char *text, size_t bytes) {
  static const char *const modes[] = {"off", "map", "hide"};
  const struct pair *pairs;
  nvml_lock();
  int length = snprintf(
      text, bytes, "{\"mode\":\"%s\",\"devices\":%u,\"mapped\":%zu,\"refreshed\":%u,\"error\":\"%s\"}",
      modes[nvml_shim_mode()], devices_count(), map_pairs(&pairs), nvml_refreshed(), map_error());
  nvml_unlock();
  return (size_t)length + 1;
}

/* Where the answer depends on who asks, the C library must see the caller's return address: the
 * last line is a jump in every build of this file (-O2), which the tests show. */
PUBLIC __attribute__((noinline)) void *dlsym(void *restrict handle, const char *restrict name) {
  if (strncmp(name, "nvml", 4) == 0 && handle != RTLD_NEXT &&
      handle != RTLD_DEFAULT && nvml_shim_mode() == NVML_MAP) {
    void *real = next_dlsym()(handle, name);
    if (real == NULL) return NULL;
    nvml_library(handle);
    void *function = nvml_answer(name, real);
    if (function != NULL) return function;
    name = "a function of NVML that coldsnap hides"; /* a failure for dlerror to tell */
  }
  return next_dlsym()(handle, name);
}

static bool is_nvml(const char *file) {
  if (file == NULL) return false;
  const char *name = strrchr(file, '/');
  return strncmp(name != NULL ? name + 1 : file, "libnvidia-ml.so", 15) == 0;
}

PUBLIC __attribute__((noinline)) void *dlopen(const char *file, int flags) {
  static void *(*_Atomic next)(const char *, int);
  void *(*function)(const char *, int) = atomic_load(&next);
  if (function == NULL) {
    function = (void *(*)(const char *, int))next_dlsym()(RTLD_NEXT, "dlopen");
    if (function == NULL) return NULL;
    atomic_store(&next, function);
  }
  if (nvml_shim_mode() == NVML_HIDE && is_nvml(file))
    return function("libnvidia-ml.so is hidden by coldsnap", flags); /* for dlerror's sake */
  return function(file, flags);
}
