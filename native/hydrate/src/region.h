// Device memory whose address outlives its physical memory.
#pragma once

#include <mutex>

#include "coldsnap_hydrate.h"
#include "cuda.h"

namespace coldsnap::hydrate {

class Region {
 public:
  // Throws Failure: no device, or what CUDA refuses; nothing is left then.
  Region(const char *library, int device, uint64_t bytes, uint64_t wanted);
  // Gives back what it still has.
  ~Region();
  Region(const Region &) = delete;
  Region &operator=(const Region &) = delete;

  void map();
  void release();
  void zero();
  void get(uint64_t offset, void *to, uint64_t bytes) const;
  void put(uint64_t offset, const void *from, uint64_t bytes);
  coldsnap_hydrate_region_state state() const;
  // As the destructor, but tells what failed.
  void free();

 private:
  void map_locked();
  void release_locked();
  void check_range(uint64_t offset, uint64_t bytes) const;

  mutable std::mutex mutex_;
  Cuda cuda_;
  uint64_t bytes_ = 0;
  Cuda::Address address_ = 0;
  bool is_mapped_ = false;
  uint64_t epoch_ = 0;
};

}  // namespace coldsnap::hydrate
