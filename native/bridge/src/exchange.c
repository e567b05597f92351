/* Unique ids by files in a folder. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "bridge.h"

int bridge_folder_publish(void *folder, const char *key, const void *value, size_t bytes) {
  char name[4096], temporary[4200];
  const char *path = ((struct folder *)folder)->path;
  if (snprintf(name, sizeof name, "%s/%s", path, key) >= (int)sizeof name) return -1;
  snprintf(temporary, sizeof temporary, "%s.%ld", name, (long)getpid());
  int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return bridge_fail(-1, "%s cannot be made: errno %d", temporary, errno);
  bool is_whole = write(file, value, bytes) == (ssize_t)bytes;
  if (close(file) == 0 && is_whole && link(temporary, name) == 0) {
    unlink(temporary);
    return 0;
  }
  int error = errno;
  unlink(temporary);
  if (error == EEXIST)
    return bridge_fail(-1, "%s is there already: give every rebuild a folder of its own", name);
  return bridge_fail(-1, "%s cannot be written: errno %d", name, error);
}

int bridge_folder_fetch(void *folder, const char *key, void *value, size_t bytes, double seconds) {
  char name[4096];
  const char *path = ((struct folder *)folder)->path;
  if (snprintf(name, sizeof name, "%s/%s", path, key) >= (int)sizeof name) return -1;
  double until = bridge_now() + seconds;
  for (;;) {
    int file = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file >= 0) {
      ssize_t got = read(file, value, bytes);
      close(file);
      if (got == (ssize_t)bytes) return 0;
      return bridge_fail(-1, "%s has %zd bytes, not %zu", name, got, bytes);
    }
    if (errno != ENOENT) return bridge_fail(-1, "%s cannot be opened: errno %d", name, errno);
    if (bridge_now() > until)
      return bridge_fail(-1, "rank 0 left no unique id in %s in %.0f s", name, seconds);
    nanosleep(&(struct timespec){0, 2000000}, NULL);
  }
}
