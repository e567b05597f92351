/* An NVML without devices, for the tests of libcoldsnap_nvml.
 *
 * Its GPUs are the lines (UUIDs) of the file FAKE_NVML_GPUS, read when it is started. Handles are
 * good until it is shut down; a stale one ends the process (exit code 86). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

enum { GENERATIONS = 64, GPUS = 8 };

struct gpu {
  char uuid[96];
  unsigned index, generation;
};

static struct gpu gpus[GENERATIONS][GPUS];
static unsigned generation, count, starts;

PUBLIC int nvmlInit_v2(void) {
  if (starts++ > 0) return 0;
  const char *path = getenv("FAKE_NVML_GPUS");
  FILE *file = path ? fopen(path, "r") : NULL;
  if (file == NULL || ++generation == GENERATIONS) return 9;
  for (count = 0; count < GPUS && fscanf(file, "%95s", gpus[generation][count].uuid) == 1; ++count) {
    gpus[generation][count].index = count;
    gpus[generation][count].generation = generation;
  }
  fclose(file);
  return 0;
}

PUBLIC int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  return nvmlInit_v2();
}

PUBLIC int nvmlShutdown(void) {
  if (starts == 0) return 1;
  --starts;
  return 0;
}

static struct gpu *checked(struct gpu *gpu, const char *where) {
  struct gpu *first = gpus[0];
  if (starts == 0 || gpu < first || gpu >= first + GENERATIONS * GPUS ||
      gpu->generation != generation) {
    fprintf(stderr, "fake_nvml: %s got a handle that is none\n", where);
    _exit(86);
  }
  return gpu;
}

PUBLIC int nvmlSystemGetDriverVersion(char *text, unsigned bytes) {
  snprintf(text, bytes, "580.159");
  return starts ? 0 : 1;
}

PUBLIC int nvmlDeviceGetCount_v2(unsigned *value) {
  *value = count;
  return starts ? 0 : 1;
}

PUBLIC int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **gpu) {
  if (index >= count) return 2;
  *gpu = &gpus[generation][index];
  return 0;
}

PUBLIC int nvmlDeviceGetHandleByUUID(const char *uuid, struct gpu **gpu) {
  for (unsigned i = 0; i < count; ++i) {
    if (strcmp(gpus[generation][i].uuid, uuid) != 0) continue;
    *gpu = &gpus[generation][i];
    return 0;
  }
  return 6;
}

PUBLIC int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, struct gpu **gpu) {
  return nvmlDeviceGetHandleByIndex_v2((unsigned)atoi(bus), gpu);
}

PUBLIC int nvmlDeviceGetHandleByUUIDV(const void *uuid, struct gpu **gpu) {
  return nvmlDeviceGetHandleByUUID(uuid, gpu);
}

PUBLIC int nvmlDeviceGetUUID(struct gpu *gpu, char *uuid, unsigned bytes) {
  snprintf(uuid, bytes, "%s", checked(gpu, "nvmlDeviceGetUUID")->uuid);
  return 0;
}

PUBLIC int nvmlDeviceGetIndex(struct gpu *gpu, unsigned *index) {
  *index = checked(gpu, "nvmlDeviceGetIndex")->index;
  return 0;
}

PUBLIC int nvmlDeviceGetName(struct gpu *gpu, char *name, unsigned bytes) {
  snprintf(name, bytes, "card %s", checked(gpu, "nvmlDeviceGetName")->uuid);
  return 0;
}

PUBLIC int nvmlDeviceGetP2PStatus(struct gpu *one, struct gpu *other, unsigned kind, int *status) {
  *status = (int)(checked(one, "P2P")->index * 100 + checked(other, "P2P")->index * 10 + kind);
  return 0;
}

PUBLIC int nvmlDeviceGetSamples(struct gpu *gpu, unsigned kind, unsigned long long since,
                                unsigned *type, unsigned *number, void *samples) {
  checked(gpu, "nvmlDeviceGetSamples");
  *type = kind;
  *number = since == 0x123456789abcull ? 1 : 0;
  *(unsigned *)samples = 7;
  return 0;
}
