#include "file.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "failure.h"

namespace coldsnap::hydrate {

namespace {

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

struct CacheRange {
  uint64_t offset, bytes;
};
struct CacheState {
  uint64_t cached, dirty, writeback, evicted, recently_evicted;
};

[[noreturn]] void refuse_open(const char *path, int number) {
  if (number == ENOENT || number == ENOTDIR) {
    throw Failure(COLDSNAP_HYDRATE_MISSING, text("%s is missing", path));
  }
  if (number == ELOOP || number == ENXIO) {
    throw Failure(COLDSNAP_HYDRATE_NOT_REGULAR, text("%s is not a regular file", path));
  }
  throw Failure(COLDSNAP_HYDRATE_FILE, system_text(path, number));
}

// A second descriptor of the same file with O_DIRECT; empty where that is not possible.
Descriptor open_direct(const char *path, int flags, const struct stat &known) {
  Descriptor opened(open(path, flags | O_DIRECT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat found {};
  if (!opened || fstat(opened.get(), &found) != 0) return Descriptor();
  const bool is_same = found.st_dev == known.st_dev && found.st_ino == known.st_ino;
  return is_same ? std::move(opened) : Descriptor();
}

// Whether a failed O_DIRECT transfer is worth a buffered one: alignment that this file system or
// device wants and we cannot know.
bool is_refusal(int number) { return number == EINVAL || number == EOPNOTSUPP; }

}  // namespace

Descriptor &Descriptor::operator=(Descriptor &&other) noexcept {
  if (this != &other) {
    close();
    number_ = other.number_;
    other.number_ = -1;
  }
  return *this;
}

void Descriptor::close() {
  if (number_ >= 0) ::close(number_);
  number_ = -1;
}

InputFile::InputFile(const char *path, uint64_t expected_bytes, uint32_t io)
    : path_(path),
      // O_NONBLOCK: the open of a FIFO without a writer must return, not wait.
      buffered_(open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)),
      io_(io) {
  if (!buffered_) refuse_open(path, errno);
  if (fstat(buffered_.get(), &seen_) != 0) refuse_open(path, errno);
  if (!S_ISREG(seen_.st_mode)) refuse_open(path, ELOOP);
  check_size(expected_bytes);
  if (io != COLDSNAP_HYDRATE_BUFFERED) direct_ = open_direct(path, O_RDONLY, seen_);
}

void InputFile::check_size(uint64_t expected_bytes) const {
  const auto found = static_cast<uint64_t>(seen_.st_size);
  if (found == expected_bytes) return;
  const auto code = found < expected_bytes ? COLDSNAP_HYDRATE_SHORT : COLDSNAP_HYDRATE_GROWN;
  throw Failure(code, text("%s has %llu bytes, its index says %llu", path_.c_str(),
                           static_cast<unsigned long long>(found),
                           static_cast<unsigned long long>(expected_bytes)));
}

void InputFile::check_unchanged() const {
  struct stat now {};
  if (fstat(buffered_.get(), &now) != 0) refuse_open(path_.c_str(), errno);
  const bool is_same = now.st_size == seen_.st_size &&
                       now.st_mtim.tv_sec == seen_.st_mtim.tv_sec &&
                       now.st_mtim.tv_nsec == seen_.st_mtim.tv_nsec;
  if (!is_same) {
    throw Failure(COLDSNAP_HYDRATE_CHANGED, text("%s changed while it was read", path_.c_str()));
  }
}

bool InputFile::prefers_direct(uint64_t offset, size_t bytes) const {
  if (!direct_) return false;
  if (io_ == COLDSNAP_HYDRATE_DIRECT) return true;
  const size_t pages = (bytes + alignment - 1) / alignment;
  return cached_pages(offset, bytes) < pages;
}

bool InputFile::is_cached() const {
  constexpr uint64_t samples = 64, sample_bytes = 64 << 10;
  const auto size = static_cast<uint64_t>(seen_.st_size);
  for (uint64_t i = 0; i < samples; i++) {
    const uint64_t at = size / samples * i / alignment * alignment;
    const size_t bytes = std::min(sample_bytes, size - at);
    if (bytes > 0 && cached_pages(at, bytes) < (bytes + alignment - 1) / alignment) return false;
  }
  return true;
}

size_t InputFile::cached_pages(uint64_t offset, size_t bytes) const {
  CacheRange range{offset, bytes};
  CacheState state{};
  if (syscall(SYS_cachestat, buffered_.get(), &range, &state, 0) == 0) return state.cached;
  // Kernels before 6.5 do not tell. RWF_NOWAIT reads a byte only if it is in the cache; both ends
  // of a chunk stand for all of it.
  char byte;
  for (const uint64_t at : {offset, offset + bytes - 1}) {
    iovec part{&byte, 1};
    if (preadv2(buffered_.get(), &part, 1, static_cast<off_t>(at), RWF_NOWAIT) != 1) return 0;
  }
  return bytes / alignment + 1;
}

void InputFile::expect(uint64_t offset, size_t bytes) const {
  posix_fadvise(buffered_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                POSIX_FADV_WILLNEED);
}

void InputFile::read(void *to, uint64_t offset, size_t bytes) const {
  auto *at = static_cast<uint8_t *>(to);
  while (bytes > 0) {
    const ssize_t count = pread(buffered_.get(), at, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Failure(COLDSNAP_HYDRATE_FILE, system_text(path_, errno));
    if (count == 0) {
      throw Failure(COLDSNAP_HYDRATE_SHORT, text("%s ends at byte %llu, inside an extent",
                                                 path_.c_str(),
                                                 static_cast<unsigned long long>(offset)));
    }
    const auto moved = static_cast<size_t>(count);
    at += moved, offset += moved, bytes -= moved;
  }
}

void InputFile::read_direct(void *to, uint64_t offset, size_t bytes) const {
  auto *at = static_cast<uint8_t *>(to);
  const auto size = static_cast<uint64_t>(seen_.st_size);
  while (bytes > 0) {
    const ssize_t count = pread(direct_.get(), at, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && !is_refusal(errno)) {
      throw Failure(COLDSNAP_HYDRATE_FILE, system_text(path_, errno));
    }
    const auto moved = count > 0 ? static_cast<size_t>(count) : 0;
    at += moved, offset += moved, bytes -= moved;
    if (bytes > 0 && (count < 0 || !is_aligned(moved) || moved == 0)) {
      // Refused, or at the file's end: what is there comes by the other way, zeros behind it.
      const size_t there = offset < size ? std::min<uint64_t>(bytes, size - offset) : 0;
      read(at, offset, there);
      memset(at + there, 0, bytes - there);
      return;
    }
  }
}

OutputFile::OutputFile(const char *path, uint64_t bytes, uint32_t io)
    : path_(path),
      buffered_(open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)) {
  if (!buffered_) throw Failure(COLDSNAP_HYDRATE_FILE, system_text(path, errno));
  try {
    struct stat seen {};
    if (fstat(buffered_.get(), &seen) != 0) refuse(errno);
    if (io != COLDSNAP_HYDRATE_BUFFERED) direct_ = open_direct(path, O_WRONLY, seen);
    // Room is taken at once: a full disk is known before anything is moved.
    const auto size = static_cast<off_t>(bytes);
    if (bytes > 0 && fallocate(buffered_.get(), 0, 0, size) != 0) {
      if (errno != EOPNOTSUPP && errno != EINTR) refuse(errno);
      if (ftruncate(buffered_.get(), size) != 0) refuse(errno);
    }
  } catch (...) {
    unlink(path);
    throw;
  }
}

OutputFile::~OutputFile() {
  if (!is_kept_) unlink(path_.c_str());
}

void OutputFile::refuse(int number) const {
  const bool is_full = number == ENOSPC || number == EDQUOT || number == EFBIG;
  if (is_full) {
    const auto message = text("no space left while writing %s", path_.c_str());
    throw Failure(COLDSNAP_HYDRATE_DISK_FULL, message);
  }
  throw Failure(COLDSNAP_HYDRATE_FILE, system_text(path_, number));
}

void OutputFile::write(const void *from, uint64_t offset, size_t bytes) const {
  const std::lock_guard lock(one_writer_);
  auto *at = static_cast<const uint8_t *>(from);
  while (bytes > 0) {
    const ssize_t count = pwrite(buffered_.get(), at, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) refuse(count < 0 ? errno : ENOSPC);
    const auto moved = static_cast<size_t>(count);
    at += moved, offset += moved, bytes -= moved;
  }
}

void OutputFile::write_direct(const void *from, uint64_t offset, size_t bytes) const {
  auto *at = static_cast<const uint8_t *>(from);
  while (bytes > 0) {
    const ssize_t count = pwrite(direct_.get(), at, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && !is_refusal(errno)) refuse(errno);
    const auto moved = count > 0 ? static_cast<size_t>(count) : 0;
    at += moved, offset += moved, bytes -= moved;
    if (bytes > 0 && (count < 0 || moved == 0 || !is_aligned(moved))) {
      write(at, offset, bytes);
      return;
    }
  }
}

void OutputFile::keep(bool is_durable) {
  if (fchmod(buffered_.get(), 0400) != 0) refuse(errno);
  if (is_durable && fsync(buffered_.get()) != 0) refuse(errno);
  is_kept_ = true;
}

}  // namespace coldsnap::hydrate
