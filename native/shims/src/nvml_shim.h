/* The parts of libcoldsnap_nvml. */
#ifndef COLDSNAP_NVML_SHIM_H
#define COLDSNAP_NVML_SHIM_H

#include <stdbool.h>
#include <stddef.h>

typedef int nvml_result;
enum {
  NVML_SUCCESS = 0,
  NVML_UNINITIALIZED = 1,
  NVML_INVALID_ARGUMENT = 2,
  NVML_NOT_FOUND = 6,
  NVML_INSUFFICIENT_SIZE = 7,
  NVML_FUNCTION_NOT_FOUND = 13,
};
enum { UUID_BYTES = 96, MOST_DEVICES = 128 };

enum nvml_mode { NVML_OFF, NVML_MAP, NVML_HIDE };

/* A captured GPU and the one in its place. */
struct pair {
  unsigned index;
  char captured[UUID_BYTES], now[UUID_BYTES];
};

enum nvml_mode nvml_shim_mode(void);

/* map.c: the file of pairs. With the lock of nvml_shim.c. */
bool map_changed(void);
size_t map_pairs(const struct pair **pairs);
const char *map_error(void);

/* devices.c: handles that outlive NVML's. */
void *device_handle(const char *uuid, unsigned index);
bool device_is_ours(const void *handle);
void *device_real(void *handle);
void devices_forget_real(void);
unsigned devices_count(void);
const char *device_uuid(const void *handle);
unsigned device_index(const void *handle);

/* nvml_calls.c */
void nvml_library(void *handle);
void *nvml_real(const char *name);
void *nvml_answer(const char *name, void *real);
void nvml_lock(void);
void nvml_unlock(void);
unsigned nvml_refreshed(void);
#endif
