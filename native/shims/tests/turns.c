/* Threads that ask NVML all the time while its GPUs become others, under sanitizers. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nvml_shim.h"

enum { THREADS = 4, TURNS = 40 };

static char gpus[512], map[512];
static atomic_bool is_over;
static atomic_long asked;

static void write_file(const char *path, const char *text) {
  char temporary[600];
  snprintf(temporary, sizeof temporary, "%s.new", path);
  FILE *file = fopen(temporary, "w");
  if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0 || rename(temporary, path) != 0)
    exit(2);
}

static void *found(void *all, const char *name) {
  void *real = dlsym(all, name);
  if (real == NULL) exit(3);
  return nvml_answer(name, real);
}

static void *ask(void *all) {
  int (*by_index)(unsigned, void **) = found(all, "nvmlDeviceGetHandleByIndex_v2");
  int (*uuid_of)(void *, char *, unsigned) = found(all, "nvmlDeviceGetUUID");
  int (*name_of)(void *, char *, unsigned) = found(all, "nvmlDeviceGetName");
  int (*count)(unsigned *) = found(all, "nvmlDeviceGetCount_v2");
  while (!atomic_load(&is_over)) {
    void *card = NULL;
    char uuid[96], name[96];
    unsigned number = 0;
    if (by_index(0, &card) != 0 || uuid_of(card, uuid, sizeof uuid) != 0 ||
        name_of(card, name, sizeof name) != 0 || count(&number) != 0)
      exit(4);
    if (strcmp(uuid, "GPU-aa-0") != 0 || strncmp(name, "card GPU-", 9) != 0 || number != 1) exit(5);
    atomic_fetch_add(&asked, 1);
  }
  return NULL;
}

int main(int arguments, char **words) {
  if (arguments < 2) return 1;
  snprintf(gpus, sizeof gpus, "%s/gpus", words[1]);
  snprintf(map, sizeof map, "%s/map", words[1]);
  setenv("FAKE_NVML_GPUS", gpus, 1);
  setenv("COLDSNAP_NVML_MAP", map, 1);
  write_file(gpus, "GPU-aa-0\n");
  void *all = dlopen(NULL, RTLD_LAZY);
  nvml_library(all);
  int (*init)(void) = found(all, "nvmlInit_v2");
  if (init() != 0) return 6;
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; ++i) pthread_create(&threads[i], NULL, ask, all);
  for (int turn = 0; turn < TURNS; ++turn) {
    char line[128];
    write_file(gpus, "GPU-bb-0\nGPU-bb-1\n");
    snprintf(line, sizeof line, "0 GPU-aa-0 GPU-bb-%d\n", turn % 2);
    write_file(map, line);
    usleep(5000);
  }
  atomic_store(&is_over, true);
  for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
  if (nvml_refreshed() < 1) return 7;
  printf("turns %u, asked %ld\n", nvml_refreshed(), atomic_load(&asked));
  return 0;
}
