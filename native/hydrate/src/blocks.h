// The ring as blocks on their way to a device: runs of a file, filled by many threads in pieces,
// copied as a whole. A copy costs the device some 3 microseconds beside its bytes, so few large
// ones keep the link full; that threads share a block keeps the ring small enough for the
// processor's cache.
#pragma once

#include <memory>
#include <vector>

#include "cuda.h"
#include "device_digest.h"
#include "work.h"

namespace coldsnap::hydrate {

// Chunks of at most this are digested by the thread that read them, if it has all of their bytes.
inline constexpr uint64_t small_chunk_bytes = 64 << 10;

struct Block {
  uint8_t *memory = nullptr;
  Cuda::Event copied = nullptr, digested = nullptr;
  uint8_t *digests = nullptr;  // pinned
  std::vector<Job> jobs;       // whose chunks the device digests
};

class Blocks {
 public:
  // Of `wanted` bytes each, or less where the ring is small.
  Blocks(uint64_t ring_bytes, uint64_t wanted);

  uint64_t bytes() const { return bytes_; }
  uint64_t count() const { return count_; }
  uint64_t piece_bytes() const { return piece_bytes_; }
  // What the device digests at most in one block.
  uint32_t most_chunks() const { return most_chunks_; }
  // Pinned memory that is needed behind the ring.
  uint64_t table_bytes() const;

  // `ring` with its tables is pinned. Throws Failure.
  void open(const Cuda &cuda, uint8_t *ring, uint64_t ring_bytes, bool spins);
  // Has the device digest, if it can. Throws Failure where it cannot and `must_digest`.
  void open_digest(const Cuda &cuda, bool must_digest);
  void close(const Cuda &cuda) noexcept;

  Block &block(uint64_t number) { return blocks_[number % count_]; }
  Cuda::Stream copies() const { return copies_; }
  // The stream, by its number, whose launches digest a block. Several, so that blocks are digested
  // side by side: one alone occupies less than half of an H200, whose clock may still be that of
  // rest when an engine has just come back.
  size_t lanes() const { return digests_.size(); }
  size_t lane(uint64_t number) const { return number % digests_.size(); }
  Cuda::Stream digests(uint64_t number) const { return digests_[lane(number)]; }
  // nullptr where the processor must digest.
  const DeviceDigest *digest() const { return digest_.get(); }
  void settle(const Cuda &cuda) const;

 private:
  uint64_t bytes_, count_, piece_bytes_;
  uint32_t most_chunks_;
  std::vector<Block> blocks_;
  uint8_t *tables_ = nullptr;
  Cuda::Stream copies_ = nullptr;
  std::vector<Cuda::Stream> digests_;
  std::unique_ptr<DeviceDigest> digest_;
};

}  // namespace coldsnap::hydrate
