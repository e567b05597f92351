#include "reading.h"

#include <algorithm>
#include <cstring>

namespace coldsnap::hydrate {

namespace {

// Small enough to be hashed out of the second-level cache right after it was copied there.
constexpr uint64_t piece_bytes = 256 << 10;

}  // namespace

Reading::Reading(Session &session, const coldsnap_hydrate_request &request)
    : session_(session),
      request_(request),
      work_(request, session.place() != COLDSNAP_HYDRATE_NOWHERE),
      file_(request.path, request.file_bytes, session.io()),
      control_(request, work_.total_bytes()) {}

void Reading::work(unsigned thread) {
  Lane &lane = session_.lane(thread);
  uint64_t extent = 0;
  for (uint64_t number = next_++; number < work_.jobs(); number = next_++) {
    control_.check();
    do_job(lane, work_.job(number, extent));
  }
}

void Reading::finish() {
  control_.conclude();
  file_.check_unchanged();
}

void Reading::do_job(Lane &lane, const Job &job) {
  if (job.bytes > 0) {
    Digest digest(request_.algorithm);
    if (file_.prefers_direct(job.offset, job.bytes)) {
      read_direct(lane, job, digest);
    } else {
      read_buffered(lane, job, digest);
    }
    if (digest.is_made()) check_digest(job, digest);
    lane.spent.bytes += job.bytes;
  }
  if (request_.check_padding != 0 && job.padding > 0) check_padding(lane, job);
}

void Reading::read_buffered(Lane &lane, const Job &job, Digest &digest) {
  if (!file_.is_direct()) file_.expect(job.offset, job.bytes);
  const uint64_t step = session_.place() == COLDSNAP_HYDRATE_HOST ? job.bytes : session_.slot_bytes();
  for (uint64_t at = 0; at < job.bytes; at += step) {
    const uint64_t bytes = std::min(step, job.bytes - at);
    if (session_.place() == COLDSNAP_HYDRATE_HOST) {
      fill(lane, reinterpret_cast<uint8_t *>(job.address), job.offset, bytes, digest);
      continue;
    }
    Slot &slot = session_.take_slot(lane);
    fill(lane, slot.memory, job.offset + at, bytes, digest);
    if (session_.is_device()) session_.send(lane, slot, job.address + at, bytes);
  }
}

void Reading::fill(Lane &lane, uint8_t *to, uint64_t offset, uint64_t bytes, Digest &digest) {
  const Turn turn(session_.pool(), lane);
  for (uint64_t at = 0; at < bytes; at += piece_bytes) {
    const uint64_t count = std::min(piece_bytes, bytes - at);
    control_.check();
    {
      const Timed timed(lane.spent.file_ns);
      file_.read(to + at, offset + at, count);
    }
    if (digest.is_made()) {
      const Timed timed(lane.spent.digest_ns);
      digest.update(to + at, count);
    }
    control_.moved(count);
  }
}

void Reading::read_direct(Lane &lane, const Job &job, Digest &digest) {
  // By way of a slot also where the caller's memory is aligned: the ring has huge pages, into which
  // a disk delivers 1.6 times as fast as into small ones, and a copy costs little beside that.
  for (uint64_t at = 0; at < job.bytes; at += session_.slot_bytes()) {
    const uint64_t bytes = std::min(session_.slot_bytes(), job.bytes - at);
    Slot &slot = session_.take_slot(lane);
    control_.check();
    {
      const Timed timed(lane.spent.file_ns);
      file_.read_direct(slot.memory, job.offset + at, padded(bytes));
    }
    lane.spent.direct_bytes += bytes;
    take_over(lane, slot, job.address + at, bytes, digest);
    if (session_.is_device()) session_.send(lane, slot, job.address + at, bytes);
    control_.moved(bytes);
  }
}

void Reading::take_over(Lane &lane, const Slot &slot, uint64_t address, uint64_t bytes,
                        Digest &digest) {
  const bool is_host = session_.place() == COLDSNAP_HYDRATE_HOST;
  if (!is_host && !digest.is_made()) return;
  const Turn turn(session_.pool(), lane);
  for (uint64_t at = 0; at < bytes; at += piece_bytes) {
    const uint64_t count = std::min(piece_bytes, bytes - at);
    if (digest.is_made()) {
      const Timed timed(lane.spent.digest_ns);
      digest.update(slot.memory + at, count);
    }
    if (is_host) memcpy(reinterpret_cast<uint8_t *>(address + at), slot.memory + at, count);
  }
}

void Reading::check_digest(const Job &job, Digest &digest) const {
  uint8_t found[digest_bytes];
  digest.finish(found);
  if (memcmp(found, request_.digests + job.digest * digest_bytes, digest_bytes) == 0) return;
  throw Failure(COLDSNAP_HYDRATE_DIFFERS,
                text("%s is damaged: extent %llu, chunk %llu (bytes %llu to %llu)", request_.path,
                     static_cast<unsigned long long>(job.extent),
                     static_cast<unsigned long long>(job.chunk),
                     static_cast<unsigned long long>(job.offset),
                     static_cast<unsigned long long>(job.offset + job.bytes)),
                {job.extent, job.chunk});
}

void Reading::check_padding(Lane &lane, const Job &job) {
  Slot &slot = session_.take_slot(lane);
  const uint64_t end = job.offset + job.bytes + job.padding;
  uint64_t at = job.offset + job.bytes;
  while (at < end) {
    control_.check();
    // From the start of the block, so that it can be read by O_DIRECT like the bytes before it.
    const uint64_t skipped = at % alignment;
    const uint64_t bytes = std::min(end - at + skipped, session_.slot_bytes());
    {
      const Timed timed(lane.spent.file_ns);
      if (file_.prefers_direct(at - skipped, bytes)) {
        file_.read_direct(slot.memory, at - skipped, padded(bytes));
      } else {
        file_.read(slot.memory, at - skipped, bytes);
      }
    }
    check_zeros(job, slot.memory + skipped, bytes - skipped);
    at += bytes - skipped;
  }
}

void Reading::check_zeros(const Job &job, const uint8_t *from, uint64_t bytes) const {
  // Equal to itself moved by one, and the first is zero: all are.
  if (from[0] == 0 && memcmp(from, from + 1, bytes - 1) == 0) return;
  throw Failure(COLDSNAP_HYDRATE_PADDING,
                text("%s is damaged: the bytes behind extent %llu are not zero", request_.path,
                     static_cast<unsigned long long>(job.extent)),
                {job.extent, nowhere});
}

}  // namespace coldsnap::hydrate
