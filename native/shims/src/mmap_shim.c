/* mmap of files that are to be copied: memory of the process's own with their bytes in it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mmap_shim.h"

#define PUBLIC __attribute__((visibility("default")))

void *raw_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
  return (void *)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
}

/* Bytes until the end of the file, at most so many; -1 with errno. */
ssize_t read_all(int file, void *into, size_t bytes, off_t offset) {
  size_t done = 0;
  while (done < bytes) {
    ssize_t got = pread(file, (char *)into + done, bytes - done, offset + (off_t)done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    done += (size_t)got;
  }
  return (ssize_t)done;
}

/* Whether this call maps a file that is to be copied, and can be. */
static bool is_wanted(size_t bytes, int protection, int flags, int file, off_t offset, char *path,
                      size_t room) {
  const char *patterns = rules_given();
  int kind = flags & MAP_TYPE;
  struct stat status;
  if (patterns == NULL || (flags & (MAP_ANONYMOUS | MAP_HUGETLB)) != 0 || file < 0 || bytes == 0 ||
      offset < 0 || offset % sysconf(_SC_PAGESIZE) != 0 || (kind != MAP_PRIVATE && kind != MAP_SHARED && kind != MAP_SHARED_VALIDATE) ||
      fstat(file, &status) != 0 || !S_ISREG(status.st_mode))
    return false;
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, room - 1);
  if (length <= 0) return false;
  path[length] = 0;
  if (!rules_match(patterns, path, status.st_nlink == 0)) return false;
  int access = fcntl(file, F_GETFL) & O_ACCMODE;
  if (access == O_WRONLY) return false; /* mmap refuses it */
  if (kind != MAP_PRIVATE && ((protection & PROT_WRITE) != 0 || access != O_RDONLY)) {
    rules_note_left(path, "shared, and can be written");
    return false;
  }
  return true;
}

static void *copied(void *address, size_t bytes, int protection, int flags, int file, off_t offset,
                    const char *path) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (bytes + page - 1) / page * page;
  if (size < bytes || !rules_take(size, path))
    return raw_mmap(address, bytes, protection, flags, file, offset);
  int kept = flags & ~(MAP_TYPE | MAP_POPULATE | MAP_LOCKED);
#ifdef MAP_SYNC
  kept &= ~MAP_SYNC;
#endif
  /* Made elsewhere and moved: at a fixed place nobody sees it half full. */
  void *made =
      raw_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void *place = MAP_FAILED;
  if (made != MAP_FAILED && read_all(file, made, size, offset) >= 0 &&
      mprotect(made, size, protection) == 0) {
    place = (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0 || address != NULL
                ? raw_mmap(address, size, PROT_NONE,
                           kept | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                : made;
    if (place != MAP_FAILED && place != made)
      place = mremap(made, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, place);
  }
  if (place != MAP_FAILED) {
    rules_count_copy();
    return place;
  }
  int error = errno;
  if (made != MAP_FAILED) munmap(made, size);
  rules_give_back(size);
  errno = error;
  return MAP_FAILED;
}

static void *mapped(void *address, size_t bytes, int protection, int flags, int file,
                    off_t offset) {
  char path[4096];
  int error = errno;
  bool wanted = is_wanted(bytes, protection, flags, file, offset, path, sizeof path);
  errno = error;
  return wanted ? copied(address, bytes, protection, flags, file, offset, path)
                : raw_mmap(address, bytes, protection, flags, file, offset);
}

PUBLIC void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
  return mapped(address, bytes, protection, flags, file, offset);
}

#undef mmap64
PUBLIC void *mmap64(void *address, size_t bytes, int protection, int flags, int file,
                    off64_t offset) {
  return mapped(address, bytes, protection, flags, file, offset);
}
