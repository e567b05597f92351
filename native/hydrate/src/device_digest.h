// BLAKE3 of chunks where they end: in device memory, by a kernel that follows their copies.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda.h"
#include "work.h"

namespace coldsnap::hydrate {

// The largest chunk that the kernel takes.
inline constexpr uint64_t most_device_chunk = uint64_t{128} << 20;

class DeviceDigest {
 public:
  // For up to `chunks` chunks at a time, of `bytes` bytes in all beside the largest, in each of
  // `streams`. Throws Failure where the driver does not take the code, has no memory for it, or a
  // sample comes out wrong. `pinned`: memory for that sample, of at least sample_bytes.
  DeviceDigest(const Cuda &cuda, std::span<const Cuda::Stream> streams, uint32_t chunks,
               uint64_t bytes, uint8_t *pinned);
  ~DeviceDigest();
  DeviceDigest(const DeviceDigest &) = delete;
  DeviceDigest &operator=(const DeviceDigest &) = delete;

  // Has the chunks of `jobs` hashed when the stream, one of those above by its number, comes to it;
  // `digests`, 32 bytes each, is pinned memory.
  void start(std::span<const Job> jobs, uint8_t *digests, size_t stream) const;

  static constexpr uint64_t sample_bytes = 512 << 10;

 private:
  // What launches in one stream share: they come one after the other.
  struct Place {
    Cuda::Stream stream;
    Cuda::Address scratch = 0, arrived = 0, digests = 0;
  };
  void check_sample(uint8_t *pinned) const;
  void finish(Cuda::Stream stream) const noexcept;
  void clear() noexcept;

  const Cuda &cuda_;
  Cuda::Module module_ = nullptr;
  Cuda::Function function_ = nullptr;
  std::vector<Place> places_;
};

}  // namespace coldsnap::hydrate
