/* Handles of GPUs as the engine has them. They are never taken back: NVML's are not either. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "nvml_shim.h"

static struct device {
  char uuid[UUID_BYTES]; /* as it was when the handle was given */
  unsigned index;
  void *real;
} devices[MOST_DEVICES];
static unsigned count;

/* NULL: there are too many. */
void *device_handle(const char *uuid, unsigned index) {
  for (unsigned i = 0; i < count; ++i)
    if (strcmp(devices[i].uuid, uuid) == 0) return &devices[i];
  if (count == MOST_DEVICES) return NULL;
  struct device *made = &devices[count++];
  snprintf(made->uuid, sizeof made->uuid, "%s", uuid);
  made->index = index;
  return made;
}

bool device_is_ours(const void *handle) {
  uintptr_t at = (uintptr_t)handle, first = (uintptr_t)devices;
  return at >= first && at < first + sizeof devices && (at - first) % sizeof *devices == 0;
}

const char *device_uuid(const void *handle) { return ((const struct device *)handle)->uuid; }

unsigned device_index(const void *handle) { return ((const struct device *)handle)->index; }

unsigned devices_count(void) { return count; }

void devices_forget_real(void) {
  for (unsigned i = 0; i < count; ++i) devices[i].real = NULL;
}

/* NVML's handle of the GPU that is now in this one's place; NULL: NVML knows none. */
void *device_real(void *handle) {
  struct device *device = handle;
  if (device->real != NULL) return device->real;
  const struct pair *pairs;
  size_t mapped = map_pairs(&pairs);
  const char *uuid = device->uuid;
  for (size_t i = 0; i < mapped; ++i)
    if (strcmp(pairs[i].captured, uuid) == 0) uuid = pairs[i].now;
  nvml_result (*find)(const char *, void **) =
      (nvml_result(*)(const char *, void **))nvml_real("nvmlDeviceGetHandleByUUID");
  if (find == NULL || find(uuid, &device->real) != NVML_SUCCESS) device->real = NULL;
  return device->real;
}
