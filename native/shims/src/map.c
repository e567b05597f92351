/* Which GPU took the place of which: a file that the controller writes at a restore. */
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nvml_shim.h"

enum { MOST_BYTES = 32768 };

static struct pair pairs[MOST_DEVICES];
static size_t count;
static char error[160];
static struct stat seen;

const char *map_error(void) { return error; }

size_t map_pairs(const struct pair **found) {
  *found = pairs;
  return count;
}

static bool is_uuid(const char *text) {
  size_t length = strlen(text);
  if (length < 5 || length >= UUID_BYTES) return false;
  for (const char *at = text; *at != 0; ++at)
    if (!isalnum((unsigned char)*at) && *at != '-') return false;
  return true;
}

/* All or nothing: half a map would lead an engine to other GPUs. */
static size_t parse(char *text, struct pair *into) {
  size_t found = 0;
  char *rest = NULL;
  for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
    if (found == MOST_DEVICES) {
      snprintf(error, sizeof error, "more than %d lines", MOST_DEVICES);
      return 0;
    }
    struct pair *pair = &into[found];
    char more = 0;
    if (sscanf(line, "%u %95s %95s %c", &pair->index, pair->captured, pair->now, &more) != 3 ||
        !is_uuid(pair->captured) || !is_uuid(pair->now) || pair->index >= MOST_DEVICES) {
      snprintf(error, sizeof error, "line %zu is not: INDEX CAPTURED_UUID UUID_NOW", found + 1);
      return 0;
    }
    for (size_t i = 0; i < found; ++i) {
      if (into[i].index == pair->index || strcmp(into[i].captured, pair->captured) == 0 ||
          strcmp(into[i].now, pair->now) == 0) {
        snprintf(error, sizeof error, "line %zu names a GPU again", found + 1);
        return 0;
      }
    }
    ++found;
  }
  return found;
}

static void read_map(int file) {
  static char text[MOST_BYTES + 1];
  static struct pair fresh[MOST_DEVICES];
  error[0] = 0;
  size_t used = 0;
  for (ssize_t got = 1; got > 0 && used < sizeof text; used += (size_t)(got > 0 ? got : 0))
    got = read(file, text + used, sizeof text - used);
  if (used > MOST_BYTES) {
    snprintf(error, sizeof error, "it is larger than %d bytes", MOST_BYTES);
    count = 0;
    return;
  }
  text[used] = 0;
  count = parse(text, fresh);
  memcpy(pairs, fresh, sizeof pairs);
}

/* True when the file is another than at the last call; then it has been read. */
bool map_changed(void) {
  const char *path = getenv("COLDSNAP_NVML_MAP");
  struct stat now;
  if (path == NULL || stat(path, &now) != 0) return false;
  if (now.st_ino == seen.st_ino && now.st_dev == seen.st_dev && now.st_size == seen.st_size &&
      now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec)
    return false;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  bool is_file = fstat(file, &now) == 0 && S_ISREG(now.st_mode);
  if (is_file) {
    seen = now;
    read_map(file);
  }
  close(file);
  return is_file;
}
