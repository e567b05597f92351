#include "device_digest.h"

#include <algorithm>
#include <cstring>

#include "digest.h"
#include "failure.h"

extern "C" const unsigned char coldsnap_blake3_image[];

namespace coldsnap::hydrate {

namespace {

constexpr unsigned threads_per_group = 128;
constexpr uint64_t group_bytes = 128 << 10;

// As device/blake3.cu has it.
constexpr uint32_t most_chunks = 64;
struct Chunk {
  uint64_t address, bytes;
  uint32_t scratch, reserved;
};
struct Chunks {
  Chunk at[most_chunks];
};

uint32_t groups_of(uint64_t bytes) {
  return static_cast<uint32_t>(std::max<uint64_t>((bytes + group_bytes - 1) / group_bytes, 1));
}

}  // namespace

DeviceDigest::DeviceDigest(const Cuda &cuda, std::span<const Cuda::Stream> streams, uint32_t chunks,
                           uint64_t bytes, uint8_t *pinned)
    : cuda_(cuda) {
  const uint64_t parts = groups_of(most_device_chunk) + groups_of(bytes) + chunks;
  try {
    module_ = cuda.load(coldsnap_blake3_image);
    function_ = cuda.function(module_, "coldsnap_blake3");
    for (const auto stream : streams) {
      Place &place = places_.emplace_back(Place{stream});
      place.scratch = cuda.allocate(parts * digest_bytes);
      place.arrived = cuda.allocate(chunks * sizeof(uint32_t));
      place.digests = cuda.allocate(chunks * digest_bytes);
    }
    check_sample(pinned);
  } catch (...) {
    clear();
    throw;
  }
}

DeviceDigest::~DeviceDigest() { clear(); }

void DeviceDigest::finish(Cuda::Stream stream) const noexcept {
  try {
    cuda_.wait_stream(stream);
  } catch (const Failure &) {
    // A stream that failed runs no more.
  }
}

void DeviceDigest::clear() noexcept {
  for (const auto &place : places_) {
    for (const auto address : {place.digests, place.arrived, place.scratch}) {
      if (address != 0) cuda_.free(address);
    }
  }
  if (module_ != nullptr) cuda_.unload(module_);
}

void DeviceDigest::start(std::span<const Job> jobs, uint8_t *digests, size_t stream) const {
  const Place &place = places_[stream];
  uint32_t used = 0;
  for (size_t first = 0; first < jobs.size(); first += most_chunks) {
    const auto part = jobs.subspan(first, std::min<size_t>(most_chunks, jobs.size() - first));
    Chunks chunks{};
    uint32_t most = 1;
    for (size_t i = 0; i < part.size(); i++) {
      const uint32_t groups = groups_of(part[i].bytes);
      chunks.at[i] = {part[i].address, part[i].bytes, used, 0};
      used += groups;
      most = std::max(most, groups);
    }
    Cuda::Address scratch = place.scratch, arrived = place.arrived;
    Cuda::Address made = place.digests + first * digest_bytes;
    void *arguments[] = {&chunks, &scratch, &arrived, &made};
    cuda_.launch(function_, {most, static_cast<unsigned>(part.size())}, threads_per_group,
                 place.stream, arguments);
  }
  cuda_.copy_out(digests, place.digests, jobs.size() * digest_bytes, place.stream);
}

// A device that digests wrongly would refuse good bytes, or worse: it is tried first.
void DeviceDigest::check_sample(uint8_t *pinned) const {
  constexpr uint64_t bytes = sample_bytes - digest_bytes, odd = 1, few = 70'001;
  for (uint64_t i = 0; i < bytes; i++) pinned[i] = static_cast<uint8_t>(i * 2654435761U >> 13);
  uint8_t *found = pinned + sample_bytes - 2 * digest_bytes;
  const uint64_t most = bytes - digest_bytes;
  const Cuda::Address copy = cuda_.allocate(sample_bytes);
  Job jobs[2];
  jobs[0].address = copy, jobs[0].bytes = most;
  jobs[1].address = copy + odd, jobs[1].bytes = few;
  try {
    uint8_t wanted[2][digest_bytes];
    for (int i = 0; i < 2; i++) {
      Digest digest(COLDSNAP_HYDRATE_BLAKE3);
      digest.update(pinned + (i == 0 ? 0 : odd), jobs[i].bytes);
      digest.finish(wanted[i]);
    }
    cuda_.copy_in(copy, pinned, most, places_[0].stream);
    start(jobs, found, 0);
    cuda_.wait_stream(places_[0].stream);
    if (memcmp(found, wanted, sizeof wanted) != 0) {
      throw Failure(COLDSNAP_HYDRATE_DEVICE, "the device digests wrongly");
    }
  } catch (...) {
    finish(places_[0].stream);  // what was started may still write there
    cuda_.free(copy);
    throw;
  }
  cuda_.free(copy);
}

}  // namespace coldsnap::hydrate
