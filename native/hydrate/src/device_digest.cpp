#include "device_digest.h"

#include <algorithm>

extern "C" const unsigned char coldsnap_blake3_image[];

namespace coldsnap::hydrate {

namespace {

constexpr unsigned threads_per_group = 128;
constexpr uint64_t group_bytes = 128 << 10;
constexpr uint64_t place_bytes = 32;

uint32_t groups_of(uint64_t bytes) {
  return static_cast<uint32_t>(std::max<uint64_t>((bytes + group_bytes - 1) / group_bytes, 1));
}

}  // namespace

DeviceDigest::DeviceDigest(const Cuda &cuda, uint32_t chunks, uint64_t bytes) : cuda_(cuda) {
  const uint64_t places = groups_of(most_device_chunk) + groups_of(bytes) + chunks;
  try {
    module_ = cuda.load(coldsnap_blake3_image);
    function_ = cuda.function(module_, "coldsnap_blake3");
    scratch_ = cuda.allocate(places * place_bytes);
    arrived_ = cuda.allocate(chunks * sizeof(uint32_t));
  } catch (...) {
    clear();
    throw;
  }
}

DeviceDigest::~DeviceDigest() { clear(); }

void DeviceDigest::clear() noexcept {
  if (arrived_ != 0) cuda_.free(arrived_);
  if (scratch_ != 0) cuda_.free(scratch_);
  if (module_ != nullptr) cuda_.unload(module_);
}

void DeviceDigest::start(Chunk *chunks, uint32_t count, uint8_t *digests,
                         Cuda::Stream stream) const {
  uint32_t used = 0, most = 1;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t groups = groups_of(chunks[i].bytes);
    chunks[i].scratch = used;
    used += groups;
    most = std::max(most, groups);
  }
  Cuda::Address chunks_seen = cuda_.seen(chunks), digests_seen = cuda_.seen(digests);
  Cuda::Address scratch = scratch_, arrived = arrived_;
  void *arguments[] = {&chunks_seen, &scratch, &arrived, &digests_seen};
  cuda_.launch(function_, {most, count}, threads_per_group, stream, arguments);
}

}  // namespace coldsnap::hydrate
