// A request, checked, and cut into the jobs that threads take one by one.
#pragma once

#include <cstdint>
#include <vector>

#include "coldsnap_hydrate.h"

namespace coldsnap::hydrate {

inline constexpr uint64_t most_extents = 1'000'000;
inline constexpr uint64_t most_chunk_bytes = uint64_t{1} << 30;
inline constexpr uint64_t most_file_bytes = uint64_t{1} << 53;

// A chunk, or the padding behind an extent.
struct Job {
  uint64_t extent = 0;
  uint64_t chunk = 0;
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;
  uint64_t address = 0;
  uint64_t digest = 0;   // number of its digest in the request's list
  uint64_t padding = 0;  // bytes behind it, up to the next extent or the file's end
  bool ends_extent = false;
};

// All jobs of a request. They are computed when they are asked for: a pack of millions of chunks
// needs no list of them.
class Work {
 public:
  // Throws Failure for a request that contradicts itself; `needs_address`: memory is touched.
  Work(const coldsnap_hydrate_request &request, bool needs_address);

  uint64_t jobs() const { return first_job_.back(); }
  uint64_t total_bytes() const { return total_bytes_; }
  // Starts with `extent` at 0; asked for growing numbers it needs no search.
  Job job(uint64_t number, uint64_t &extent) const;
  Job chunk(uint64_t extent, uint64_t number) const;

 private:
  void check_sizes() const;
  void check_extents();
  void check_overlap() const;

  const coldsnap_hydrate_request &request_;
  std::vector<uint64_t> first_job_;    // of each extent, and the number of all
  std::vector<uint64_t> first_digest_;
  uint64_t total_bytes_ = 0;
};

}  // namespace coldsnap::hydrate
