// The part of libcufile (GPUDirect Storage) that is needed here, opened at run time: a disk's bytes
// into device memory without a copy in host memory. Optional; it was never run on such a machine.
#pragma once

#include <cstdint>
#include <memory>

namespace coldsnap::hydrate {

class CuFile {
 public:
  using Handle = void *;

  // `library`: path or nullptr for libcufile.so.0. Throws Failure where it is missing, does not
  // start, or could only copy through host memory as well ("compatibility mode").
  explicit CuFile(const char *library);
  ~CuFile();
  CuFile(const CuFile &) = delete;
  CuFile &operator=(const CuFile &) = delete;

  // Throws Failure; the descriptor stays the caller's.
  Handle take(int descriptor) const;
  void let_go(Handle file) const noexcept;
  // All of it, or throws Failure.
  void read(Handle file, uint64_t address, uint64_t bytes, uint64_t offset) const;

 private:
  struct Calls;
  void load(const char *name);

  std::unique_ptr<Calls> calls_;
};

}  // namespace coldsnap::hydrate
