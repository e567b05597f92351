/* Parts of the shims by themselves, for the sanitizers: damaged maps of GPUs, and detaching. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "coldsnap_mmap.h"
#include "mmap_shim.h"
#include "nvml_shim.h"

enum { TURNS = 3000, MAPPINGS = 200 };

void *raw_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
  return (void *)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
}

static nvml_result find(const char *uuid, void **handle) {
  *handle = (void *)uuid;
  return NVML_SUCCESS;
}

void *nvml_real(const char *name) { return strcmp(name, "nvmlDeviceGetHandleByUUID") ? NULL : (void *)find; }

static unsigned long seed = 1;

static unsigned next(unsigned below) {
  seed = seed * 6364136223846793005ul + 1442695040888963407ul;
  return (unsigned)(seed >> 33) % below;
}

static void damaged_maps(const char *folder) {
  char path[512], text[9000];
  snprintf(path, sizeof path, "%s/map", folder);
  setenv("COLDSNAP_NVML_MAP", path, 1);
  for (int turn = 0; turn < TURNS; ++turn) {
    int length = 0, lines = (int)next(140);
    for (int i = 0; i < lines; ++i)
      length += snprintf(text + length, sizeof text - (size_t)length, "%d GPU-a%d GPU-b%d\n", i, i, i);
    for (unsigned i = next(4); i > 0 && length > 0; --i)
      text[next((unsigned)length)] = (char)next(256);
    unlink(path);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || write(file, text, (size_t)length) != length) exit(2);
    close(file);
    const struct pair *pairs;
    map_changed();
    size_t count = map_pairs(&pairs);
    if (count > MOST_DEVICES || (count == 0 && lines > 0 && map_error()[0] == 0 && length == 0)) exit(3);
    for (size_t i = 0; i < count; ++i) {
      void *handle = device_handle(pairs[i].captured, pairs[i].index);
      if (handle != NULL && (!device_is_ours(handle) || device_real(handle) == NULL)) exit(4);
    }
    devices_forget_real();
  }
}

static void detaching(const char *folder) {
  char path[512];
  snprintf(path, sizeof path, "%s/data", folder);
  int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  static char block[65536];
  memset(block, 'x', sizeof block);
  if (write(file, block, sizeof block) != sizeof block) exit(5);
  unsigned char *mapped[MAPPINGS];
  for (int i = 0; i < MAPPINGS; ++i) {
    mapped[i] = mmap(NULL, sizeof block, PROT_READ | (i % 2 ? PROT_WRITE : 0), MAP_PRIVATE, file, 0);
    if (i % 2) mapped[i][7] = 'y';
  }
  close(file);
  unlink(path);
  /* Neighbours of the same file are one mapping to the kernel. */
  if (coldsnap_mmap_detach("deleted") < 1 || coldsnap_mmap_detach("deleted") != 0) exit(6);
  for (int i = 0; i < MAPPINGS; ++i) {
    if (mapped[i][0] != 'x' || mapped[i][7] != (i % 2 ? 'y' : 'x') || mapped[i][65535] != 'x') exit(7);
    munmap(mapped[i], sizeof block);
  }
  char text[16];
  size_t wanted = coldsnap_mmap_status(text, sizeof text);
  if (wanted < sizeof text || strlen(text) != sizeof text - 1) exit(8);
  if (rules_match("a:b*::deleted", "/b", false) || !rules_match(":/b*", "/bc", false) ||
      !rules_match("x:deleted", "/b", true))
    exit(9);
}

int main(int count, char **arguments) {
  if (count < 2) return 1;
  damaged_maps(arguments[1]);
  detaching(arguments[1]);
  printf("parts good\n");
  return 0;
}
