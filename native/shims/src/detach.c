/* What is mapped already of files that are to be copied. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../include/coldsnap_mmap.h"
#include "mmap_shim.h"

#define PUBLIC __attribute__((visibility("default")))

struct area {
  uintptr_t start, end;
  int protection;
  bool is_shared;
  char path[4096];
  bool is_deleted;
};

static const char suffix[] = " (deleted)";

/* One line of /proc/self/maps; false for what is no file. */
static bool parse(char *line, struct area *area) {
  char access[5];
  int at = 0;
  if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*x %*x:%*x %*u %n", &area->start, &area->end,
             access, &at) != 3 ||
      at == 0 || line[at] != '/')
    return false;
  line[strcspn(line, "\n")] = 0;
  snprintf(area->path, sizeof area->path, "%s", line + at);
  size_t length = strlen(area->path);
  area->is_deleted = length > sizeof suffix - 1 &&
                     strcmp(area->path + length - (sizeof suffix - 1), suffix) == 0;
  if (area->is_deleted) area->path[length - (sizeof suffix - 1)] = 0;
  area->protection = (access[0] == 'r' ? PROT_READ : 0) | (access[1] == 'w' ? PROT_WRITE : 0) |
                     (access[2] == 'x' ? PROT_EXEC : 0);
  area->is_shared = access[3] == 's';
  return true;
}

/* Pages of a mapping, also those that may not be read; what lies behind the end of the file is
 * left zero. */
static int copy_pages(int memory, const struct area *area, char *into) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), size = area->end - area->start;
  for (size_t done = 0; done < size;) {
    ssize_t got = pread(memory, into + done, size - done, (off_t)(area->start + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno != EIO && errno != EFAULT) return -1;
    done += got > 0 ? (size_t)got : page - done % page;
  }
  return 0;
}

static int replace(int memory, const struct area *area) {
  size_t size = area->end - area->start;
  void *made = raw_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return -1;
  if (copy_pages(memory, area, made) == 0 && mprotect(made, size, area->protection) == 0 &&
      mremap(made, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)area->start) != MAP_FAILED)
    return 0;
  int error = errno;
  munmap(made, size);
  errno = error;
  return -1;
}

/* The whole list first: it must not change while it is read. */
static char *read_maps(void) {
  int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (file < 0) return NULL;
  size_t used = 0, room = 1 << 16;
  char *text = malloc(room);
  for (ssize_t got = 1; text != NULL && got > 0; used += (size_t)(got > 0 ? got : 0)) {
    if (room - used < 8192) {
      char *larger = realloc(text, room *= 2);
      if (larger == NULL) free(text);
      text = larger;
      if (text == NULL) break;
    }
    got = read(file, text + used, room - used - 1);
  }
  close(file);
  if (text != NULL) text[used] = 0;
  return text;
}

PUBLIC int coldsnap_mmap_detach(const char *patterns) {
  if (patterns == NULL) patterns = rules_given();
  if (patterns == NULL) return 0;
  int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC), count = 0;
  char *maps = memory >= 0 ? read_maps() : NULL, *rest = NULL;
  struct area *area = malloc(sizeof *area);
  bool is_good = maps != NULL && area != NULL;
  for (char *line = is_good ? strtok_r(maps, "\n", &rest) : NULL; line != NULL && is_good;
       line = strtok_r(NULL, "\n", &rest)) {
    if (!parse(line, area) || !rules_match(patterns, area->path, area->is_deleted)) continue;
    size_t size = area->end - area->start;
    if (area->is_shared && (area->protection & PROT_WRITE) != 0) {
      rules_note_left(area->path, "shared, and can be written");
    } else if (rules_take(size, area->path)) {
      is_good = replace(memory, area) == 0;
      if (is_good) {
        ++count;
        rules_count_copy();
      } else {
        rules_give_back(size);
      }
    }
  }
  int error = errno;
  free(area);
  free(maps);
  if (memory >= 0) close(memory);
  errno = error;
  return is_good ? count : -1;
}
