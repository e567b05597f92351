#include "cufile_reading.h"

#include <algorithm>
#include <cstring>

#include "damage.h"
#include "digest.h"

namespace coldsnap::hydrate {

namespace {

// cuFileRead returns when its bytes are there: as many threads as keep several disks busy.
constexpr unsigned most_readers = 16;
constexpr uint64_t least_measured = uint64_t{64} << 20;
constexpr uint64_t share_measured = 16;

}  // namespace

const char *CuFileReading::why_not(const Session &session,
                                   const coldsnap_hydrate_request &request) {
  if (request.check_padding != 0) return "cuFile reads no padding";
  if (request.algorithm == COLDSNAP_HYDRATE_UNVERIFIED) return nullptr;
  if (request.algorithm != COLDSNAP_HYDRATE_BLAKE3) return "the device digests BLAKE3 only";
  if (!session.can_digest()) return "the device does not digest";
  return request.chunk_bytes > most_device_chunk ? "its chunks are too large for the device"
                                                 : nullptr;
}

CuFileReading::CuFileReading(Session &session, const coldsnap_hydrate_request &request)
    : session_(session),
      request_(request),
      work_(request, true),
      file_(request.path, request.file_bytes, session.io()),
      control_(request, work_.total_bytes()),
      handle_(session.cufile()->take(file_.direct_or_buffered())),
      streams_(session.blocks().lanes()) {}

CuFileReading::~CuFileReading() { session_.cufile()->let_go(handle_); }

void CuFileReading::work(unsigned thread) {
  if (thread >= most_readers) return;
  Lane &lane = session_.lane(thread);
  uint64_t extent = 0;
  for (uint64_t number = next_++; number < work_.jobs(); number = next_++) {
    control_.check();
    const Job job = work_.job(number, extent);
    if (job.bytes == 0) continue;
    {
      const Timed timed(lane.spent.file_ns);
      session_.cufile()->read(handle_, job.address, job.bytes, job.offset);
    }
    lane.spent.bytes += job.bytes;
    lane.spent.direct_bytes += job.bytes;
    control_.moved(job.bytes);
    if (request_.algorithm != COLDSNAP_HYDRATE_UNVERIFIED) check_digest(lane, thread, job);
  }
}

void CuFileReading::check_digest(Lane &lane, unsigned thread, const Job &job) {
  const Timed timed(lane.spent.digest_wait_ns);
  Blocks &blocks = session_.blocks();
  const size_t stream = thread % streams_.size();
  const std::lock_guard lock(streams_[stream]);
  uint8_t *found = blocks.block(stream).digests;
  blocks.digest()->start({&job, 1}, found, stream);
  session_.cuda().wait_stream(blocks.digests(stream));
  lane.spent.device_digest_bytes += job.bytes;
  if (memcmp(found, request_.digests + job.digest * digest_bytes, digest_bytes) != 0) {
    throw damaged_chunk(request_, job);
  }
}

void CuFileReading::finish() {
  control_.conclude();
  file_.check_unchanged();
}

Trial::Trial(const coldsnap_hydrate_request &request) : request_(request) {
  if (request.chunk_bytes == 0 || request.extents == nullptr || request.check_padding != 0) return;
  const auto bytes_of = [&](uint64_t i) { return std::min(request.extents[i].length, request.file_bytes); };
  uint64_t total = 0;
  for (uint64_t i = 0; i < request.extent_count; i++) total += bytes_of(i);
  const uint64_t wanted = std::max(least_measured, total / share_measured);
  uint64_t extent = 0, digests = 0;
  for (size_t part = 0; part < 3; part++) {
    for (uint64_t bytes = 0; extent < request.extent_count && (part == 2 || bytes < wanted); extent++) {
      bytes += bytes_of(extent);
      digests += (bytes_of(extent) + request.chunk_bytes - 1) / request.chunk_bytes;
    }
    border_[part + 1] = extent;
    digest_[part + 1] = digests;
  }
}

coldsnap_hydrate_request Trial::part(size_t number) const {
  coldsnap_hydrate_request part = request_;
  part.extents += border_[number];
  part.extent_count = border_[number + 1] - border_[number];
  if (request_.algorithm != COLDSNAP_HYDRATE_UNVERIFIED && request_.digests != nullptr) {
    part.digests += digest_[number] * digest_bytes;
    part.digest_count = digest_[number + 1] - digest_[number];
  }
  part.progress = nullptr;  // its numbers would be of a part
  return part;
}

}  // namespace coldsnap::hydrate
