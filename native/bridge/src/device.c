/* The driver, where the process has it: which device is current, whether a stream is captured. */
#include <dlfcn.h>
#include <pthread.h>

#include "bridge.h"

typedef int (*stream_is_capturing)(void *, int *);
typedef int (*context_get)(void **);
typedef int (*context_set)(void *);
typedef int (*device_get)(int *, int);
typedef int (*primary_retain)(void **, int);

static struct {
  stream_is_capturing is_capturing;
  context_get get;
  context_set set;
  device_get device;
  primary_retain retain;
} driver;
static atomic_bool is_ready;
static pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER;

/* False while the process has no libcuda: it is not opened for this. */
static bool find_driver(void) {
  if (atomic_load(&is_ready)) return true;
  pthread_mutex_lock(&finding);
  void *library = atomic_load(&is_ready) ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library != NULL) {
    driver.is_capturing = (stream_is_capturing)dlsym(library, "cuStreamIsCapturing");
    driver.get = (context_get)dlsym(library, "cuCtxGetCurrent");
    driver.set = (context_set)dlsym(library, "cuCtxSetCurrent");
    driver.device = (device_get)dlsym(library, "cuDeviceGet");
    driver.retain = (primary_retain)dlsym(library, "cuDevicePrimaryCtxRetain");
    atomic_store(&is_ready, driver.is_capturing && driver.get && driver.set && driver.device &&
                                driver.retain);
    dlclose(library);
  }
  pthread_mutex_unlock(&finding);
  return atomic_load(&is_ready);
}

bool bridge_is_capturing(nccl_stream stream) {
  int status = 0;
  return find_driver() && driver.is_capturing(stream, &status) == 0 && status != 0;
}

/* Make a device's primary context current; returns what was. Its reference stays: the engine has
 * one as well, for as long as it has communicators. */
void *bridge_use_device(int device) {
  void *before = NULL, *context = NULL;
  int number = 0;
  if (device < 0 || !find_driver() || driver.get(&before) != 0) return NULL;
  if (driver.device(&number, device) == 0 && driver.retain(&context, number) == 0)
    driver.set(context);
  return before;
}

void bridge_put_device_back(void *before) {
  if (find_driver()) driver.set(before);
}
