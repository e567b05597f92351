/* Which files are copied, how much of them, and what was not. */
#include <fnmatch.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../include/coldsnap_mmap.h"
#include "mmap_shim.h"

#define PUBLIC __attribute__((visibility("default")))

enum { MOST_LEFT = 32 };
static const size_t usual_limit = (size_t)4 << 30;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t taken;
static unsigned copies, left_count;
static struct {
  char path[256];
  const char *reason;
} left[MOST_LEFT];

const char *rules_given(void) {
  const char *patterns = getenv("COLDSNAP_MMAP_COPY");
  return patterns != NULL && *patterns != 0 ? patterns : NULL;
}

bool rules_match(const char *patterns, const char *path, bool is_deleted) {
  char one[4096];
  for (const char *at = patterns; *at != 0;) {
    size_t length = strcspn(at, ":");
    if (length > 0 && length < sizeof one) {
      memcpy(one, at, length);
      one[length] = 0;
      bool fits = strcmp(one, "deleted") == 0 ? is_deleted : fnmatch(one, path, 0) == 0;
      if (fits) return true;
    }
    at += length + (at[length] == ':');
  }
  return false;
}

static size_t limit(void) {
  const char *given = getenv("COLDSNAP_MMAP_LIMIT");
  char *end = NULL;
  unsigned long long value = given != NULL ? strtoull(given, &end, 10) : 0;
  return given != NULL && end != given && *end == 0 ? (size_t)value : usual_limit;
}

bool rules_take(size_t bytes, const char *path) {
  pthread_mutex_lock(&lock);
  size_t most = limit();
  bool fits = taken <= most && bytes <= most - taken;
  if (fits) taken += bytes;
  pthread_mutex_unlock(&lock);
  if (!fits) rules_note_left(path, "more than COLDSNAP_MMAP_LIMIT");
  return fits;
}

void rules_give_back(size_t bytes) {
  pthread_mutex_lock(&lock);
  taken -= bytes;
  pthread_mutex_unlock(&lock);
}

void rules_count_copy(void) {
  pthread_mutex_lock(&lock);
  ++copies;
  pthread_mutex_unlock(&lock);
}

void rules_note_left(const char *path, const char *reason) {
  pthread_mutex_lock(&lock);
  bool is_known = false;
  for (unsigned i = 0; i < left_count && !is_known; ++i)
    is_known = strncmp(left[i].path, path, sizeof left[i].path - 1) == 0;
  if (!is_known && left_count < MOST_LEFT) {
    snprintf(left[left_count].path, sizeof left[left_count].path, "%s", path);
    left[left_count++].reason = reason;
  }
  pthread_mutex_unlock(&lock);
}

static void add(char *text, size_t bytes, size_t *used, const char *format, ...) {
  va_list values;
  va_start(values, format);
  size_t room = *used < bytes ? bytes - *used : 0;
  int wanted = vsnprintf(room > 0 ? text + *used : NULL, room, format, values);
  va_end(values);
  if (wanted > 0) *used += (size_t)wanted;
}

static void add_string(char *text, size_t bytes, size_t *used, const char *value) {
  add(text, bytes, used, "\"");
  for (; *value != 0; ++value) {
    unsigned char byte = (unsigned char)*value;
    bool is_plain = byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\';
    add(text, bytes, used, is_plain ? "%c" : "\\u%04x", byte);
  }
  add(text, bytes, used, "\"");
}

PUBLIC size_t coldsnap_mmap_status(char *text, size_t bytes) {
  const char *patterns = rules_given();
  size_t used = 0;
  pthread_mutex_lock(&lock);
  add(text, bytes, &used, "{\"patterns\":");
  add_string(text, bytes, &used, patterns != NULL ? patterns : "");
  add(text, bytes, &used, ",\"limit\":%zu,\"copies\":%u,\"bytes\":%zu,\"left\":[", limit(), copies,
      taken);
  for (unsigned i = 0; i < left_count; ++i) {
    add(text, bytes, &used, "%s{\"path\":", i > 0 ? "," : "");
    add_string(text, bytes, &used, left[i].path);
    add(text, bytes, &used, ",\"reason\":\"%s\"}", left[i].reason);
  }
  add(text, bytes, &used, "]}");
  pthread_mutex_unlock(&lock);
  return used + 1;
}

PUBLIC uint32_t coldsnap_mmap_abi(void) { return COLDSNAP_MMAP_ABI; }
