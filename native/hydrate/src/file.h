// Files that are not trusted, read and written by O_DIRECT where the file system has it.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "coldsnap_hydrate.h"

namespace coldsnap::hydrate {

inline constexpr uint64_t alignment = COLDSNAP_HYDRATE_ALIGNMENT;

constexpr uint64_t padded(uint64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }
constexpr bool is_aligned(uint64_t number) { return number % alignment == 0; }

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor &&other) noexcept : number_(other.number_) { other.number_ = -1; }
  Descriptor &operator=(Descriptor &&other) noexcept;
  ~Descriptor() { close(); }
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;

  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  void close();

 private:
  int number_;
};

// A regular file open for reading. Safe for many threads.
class InputFile {
 public:
  // Throws Failure: missing, not regular, unreadable, short, grown.
  InputFile(const char *path, uint64_t expected_bytes, uint32_t io);

  // Whether [offset, offset + bytes) is better read by O_DIRECT.
  bool prefers_direct(uint64_t offset, size_t bytes) const;
  // Whether all of it seems to be in the page cache; samples are looked at.
  bool is_cached() const;
  // Throws Failure: short, unreadable.
  void read(void *to, uint64_t offset, size_t bytes) const;
  // Offset, bytes and address are aligned; near the file's end fewer bytes are there, and the rest
  // of `to` is zeroed. Falls back to read() where the file system refuses after all.
  void read_direct(void *to, uint64_t offset, size_t bytes) const;
  // Asks the system to fetch a range that will be read buffered.
  void expect(uint64_t offset, size_t bytes) const;
  bool is_direct() const { return static_cast<bool>(direct_); }
  // For who reads it by other means.
  int direct_or_buffered() const { return is_direct() ? direct_.get() : buffered_.get(); }
  // Throws Failure if the file is no longer what was opened.
  void check_unchanged() const;

 private:
  void check_size(uint64_t expected_bytes) const;
  size_t cached_pages(uint64_t offset, size_t bytes) const;

  std::string path_;
  Descriptor buffered_;
  Descriptor direct_;
  struct stat seen_ {};
  uint32_t io_;
};

// A new regular file that disappears unless it is kept. Writes are safe for many threads.
class OutputFile {
 public:
  // Throws Failure: exists, unwritable, disk full.
  OutputFile(const char *path, uint64_t bytes, uint32_t io);
  ~OutputFile();
  OutputFile(const OutputFile &) = delete;
  OutputFile &operator=(const OutputFile &) = delete;

  bool is_direct() const { return static_cast<bool>(direct_); }
  // One thread at a time: file systems let only one write to a file's pages, and threads that wait
  // for that inside the kernel slow the one that does to a tenth.
  void write(const void *from, uint64_t offset, size_t bytes) const;
  // Offset, bytes and address are aligned. Falls back to write().
  void write_direct(const void *from, uint64_t offset, size_t bytes) const;
  // Makes it read-only and, if asked, durable.
  void keep(bool is_durable);

 private:
  [[noreturn]] void refuse(int number) const;

  std::string path_;
  Descriptor buffered_;
  Descriptor direct_;
  mutable std::mutex one_writer_;
  bool is_kept_ = false;
};

}  // namespace coldsnap::hydrate
