// BLAKE3 of chunks where they end: in device memory, by a kernel that follows their copies.
#pragma once

#include <cstdint>
#include <span>

#include "cuda.h"
#include "work.h"

namespace coldsnap::hydrate {

// The largest chunk that the kernel takes.
inline constexpr uint64_t most_device_chunk = uint64_t{128} << 20;

class DeviceDigest {
 public:
  // For up to `chunks` chunks at a time, of `bytes` bytes in all beside the largest. Throws Failure
  // where the driver does not take the code, has no memory for it, or a sample comes out wrong.
  // `pinned`: memory for that sample, of at least sample_bytes.
  DeviceDigest(const Cuda &cuda, uint32_t chunks, uint64_t bytes, uint8_t *pinned,
               Cuda::Stream stream);
  ~DeviceDigest();
  DeviceDigest(const DeviceDigest &) = delete;
  DeviceDigest &operator=(const DeviceDigest &) = delete;

  // Has the chunks of `jobs` hashed when the stream comes to it; `digests`, 32 bytes each, is
  // pinned memory. One stream for all calls.
  void start(std::span<const Job> jobs, uint8_t *digests, Cuda::Stream stream) const;

  static constexpr uint64_t sample_bytes = 512 << 10;

 private:
  void check_sample(uint8_t *pinned, Cuda::Stream stream) const;
  void clear() noexcept;

  const Cuda &cuda_;
  Cuda::Module module_ = nullptr;
  Cuda::Function function_ = nullptr;
  Cuda::Address scratch_ = 0, arrived_ = 0, digests_ = 0;
};

}  // namespace coldsnap::hydrate
