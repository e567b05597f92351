#include "blocks.h"

#include <algorithm>

#include "digest.h"
#include "failure.h"
#include "file.h"

namespace coldsnap::hydrate {

namespace {

// What a thread reads at once: small, so that a block is full soon after it was begun.
constexpr uint64_t most_piece_bytes = 1 << 20;
constexpr uint64_t pieces_per_block = 8;
constexpr uint64_t least_blocks = 4;
constexpr size_t digest_streams = 4;

constexpr uint64_t whole_pages(uint64_t bytes) { return bytes / alignment * alignment; }

}  // namespace

Blocks::Blocks(uint64_t ring_bytes, uint64_t wanted)
    : bytes_(std::max(std::min(wanted, whole_pages(ring_bytes / least_blocks)), alignment)),
      count_(ring_bytes / bytes_),
      piece_bytes_(std::clamp(whole_pages(bytes_ / pieces_per_block), alignment, most_piece_bytes)),
      // Those that are large, and one at each end of a piece.
      most_chunks_(static_cast<uint32_t>(bytes_ / small_chunk_bytes + bytes_ / piece_bytes_ + 3)) {}

uint64_t Blocks::table_bytes() const {
  return std::max(count_ * most_chunks_ * digest_bytes, DeviceDigest::sample_bytes);
}

void Blocks::open(const Cuda &cuda, uint8_t *ring, uint64_t ring_bytes, bool spins) {
  copies_ = cuda.make_stream();
  while (digests_.size() < digest_streams) digests_.push_back(cuda.make_stream());
  tables_ = ring + ring_bytes;
  for (uint64_t i = 0; i < count_; i++) {
    Block &block = blocks_.emplace_back();
    block.memory = ring + i * bytes_;
    block.digests = tables_ + i * most_chunks_ * digest_bytes;
    block.copied = cuda.make_event(spins);
    block.digested = cuda.make_event(spins);
  }
}

void Blocks::open_digest(const Cuda &cuda, bool must_digest) {
  try {
    digest_ = std::make_unique<DeviceDigest>(cuda, digests_, most_chunks_, bytes_, tables_);
  } catch (const Failure &) {
    // Code of a later kind than the driver, no device memory left: the processor does it.
    if (must_digest) throw;
  }
}

void Blocks::close(const Cuda &cuda) noexcept {
  digest_.reset();
  for (auto &block : blocks_) {
    if (block.copied != nullptr) cuda.drop_event(block.copied);
    if (block.digested != nullptr) cuda.drop_event(block.digested);
  }
  blocks_.clear();
  if (copies_ != nullptr) cuda.drop_stream(copies_);
  for (const auto stream : digests_) cuda.drop_stream(stream);
  copies_ = nullptr;
  digests_.clear();
}

void Blocks::settle(const Cuda &cuda) const {
  cuda.wait_stream(copies_);
  for (const auto stream : digests_) cuda.wait_stream(stream);
}

}  // namespace coldsnap::hydrate
