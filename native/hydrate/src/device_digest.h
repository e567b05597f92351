// BLAKE3 of chunks where they end: in device memory, by a kernel that follows their copies.
#pragma once

#include <cstdint>

#include "cuda.h"

namespace coldsnap::hydrate {

// The largest chunk that the kernel takes.
inline constexpr uint64_t most_device_chunk = uint64_t{128} << 20;

class DeviceDigest {
 public:
  // As device/blake3.cu has it.
  struct Chunk {
    uint64_t address, bytes;
    uint32_t scratch, reserved;
  };

  // For launches of up to `chunks` chunks, each with at most `bytes` beside its largest. Throws
  // Failure where the driver does not take the code or has no memory for it.
  DeviceDigest(const Cuda &cuda, uint32_t chunks, uint64_t bytes);
  ~DeviceDigest();
  DeviceDigest(const DeviceDigest &) = delete;
  DeviceDigest &operator=(const DeviceDigest &) = delete;

  // `chunks` (pinned memory) is read and `digests` (likewise) written when the stream comes to it;
  // its places in the scratch memory are given here. One stream for all launches.
  void start(Chunk *chunks, uint32_t count, uint8_t *digests, Cuda::Stream stream) const;

 private:
  void clear() noexcept;

  const Cuda &cuda_;
  Cuda::Module module_ = nullptr;
  Cuda::Function function_ = nullptr;
  Cuda::Address scratch_ = 0, arrived_ = 0;
};

}  // namespace coldsnap::hydrate
