#include "reading.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "damage.h"

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
      control_(request, work_.total_bytes()),
      is_cached_(session.io() != COLDSNAP_HYDRATE_DIRECT && file_.is_cached()) {}

void Reading::work(unsigned thread) {
  // More threads than cores keep a disk busy; out of the page cache they only get in the way.
  if (is_cached_ && thread >= usable_cores()) return;
  Lane &lane = session_.lane(thread);
  const bool is_paired = request_.algorithm == COLDSNAP_HYDRATE_SHA256 && lane.slots.size() > 1;
  const uint64_t width = is_paired ? 2 : 1;
  uint64_t extent = 0;
  std::vector<Strand> strands;
  for (uint64_t first = next_.fetch_add(width); first < work_.jobs();
       first = next_.fetch_add(width)) {
    control_.check();
    strands.clear();
    for (uint64_t number = first; number < std::min(first + width, work_.jobs()); number++) {
      strands.emplace_back(work_.job(number, extent), request_.algorithm);
    }
    move(lane, strands);
    for (auto &strand : strands) {
      lane.spent.bytes += strand.job.bytes;
      if (strand.digest.is_made() && strand.job.bytes > 0) check_digest(strand.job, strand.digest);
      if (request_.check_padding != 0 && strand.job.padding > 0) check_padding(lane, strand.job);
    }
  }
}

void Reading::finish() {
  control_.conclude();
  file_.check_unchanged();
}

void Reading::move(Lane &lane, std::span<Strand> strands) {
  bool is_direct = false;
  for (auto &strand : strands) {
    const Job &job = strand.job;
    strand.is_direct = job.bytes > 0 && file_.prefers_direct(job.offset, job.bytes);
    is_direct |= strand.is_direct;
    if (!file_.is_direct() && job.bytes > 0) file_.expect(job.offset, job.bytes);
  }
  const auto is_whole = [](const Strand &s) { return s.done == s.job.bytes; };
  if (is_direct) {
    while (!std::ranges::all_of(strands, is_whole)) {
      fetch_all(lane, strands, session_.slot_bytes());
      // A thread that waits for a disk holds no turn.
      const Turn turn(session_.pool(), lane);
      finish_step(lane, strands);
    }
    return;
  }
  // Out of the page cache all of it is processor time.
  const Turn turn(session_.pool(), lane);
  while (!std::ranges::all_of(strands, is_whole)) {
    fetch_all(lane, strands, piece_bytes);
    finish_step(lane, strands);
  }
}

void Reading::fetch_all(Lane &lane, std::span<Strand> strands, uint64_t step) {
  control_.check();
  // The strands go in step, so that no slot is taken again before it was sent.
  for (auto &strand : strands) fetch(lane, strand, step);
}

void Reading::finish_step(Lane &lane, std::span<Strand> strands) {
  digest(lane, strands);
  for (auto &strand : strands) deliver(lane, strand);
}

void Reading::fetch(Lane &lane, Strand &strand, uint64_t step) {
  const Job &job = strand.job;
  const uint64_t in_slot = strand.done % session_.slot_bytes();
  strand.bytes = std::min({job.bytes - strand.done, step, session_.slot_bytes() - in_slot});
  if (strand.bytes == 0) return;
  // By way of a slot also where the caller's memory is aligned: the ring has huge pages, into which
  // a disk delivers 1.6 times as fast as into small ones, and a copy costs little beside that.
  const bool is_straight = session_.place() == COLDSNAP_HYDRATE_HOST && !strand.is_direct;
  if (is_straight) {
    strand.memory = reinterpret_cast<uint8_t *>(job.address + strand.done);
  } else {
    if (in_slot == 0) strand.slot = &session_.take_slot(lane);
    strand.memory = strand.slot->memory + in_slot;
  }
  const Timed timed(lane.spent.file_ns);
  if (strand.is_direct) {
    file_.read_direct(strand.memory, job.offset + strand.done, padded(strand.bytes));
    lane.spent.direct_bytes += strand.bytes;
  } else {
    file_.read(strand.memory, job.offset + strand.done, strand.bytes);
  }
}

void Reading::digest(Lane &lane, std::span<Strand> strands) {
  if (request_.algorithm == COLDSNAP_HYDRATE_UNVERIFIED) return;
  const Timed timed(lane.spent.digest_ns);
  if (strands.size() == 2) {
    auto &a = strands[0], &b = strands[1];
    Digest::update_two(a.digest, a.memory, a.bytes, b.digest, b.memory, b.bytes);
  } else {
    for (auto &strand : strands) strand.digest.update(strand.memory, strand.bytes);
  }
}

void Reading::deliver(Lane &lane, Strand &strand) {
  const uint64_t address = strand.job.address + strand.done;
  if (strand.bytes > 0 && strand.is_direct && session_.place() == COLDSNAP_HYDRATE_HOST) {
    memcpy(reinterpret_cast<uint8_t *>(address), strand.memory, strand.bytes);
  }
  strand.done += strand.bytes;
  control_.moved(strand.bytes);
  if (strand.bytes == 0 || !session_.is_device()) return;
  const uint64_t in_slot = (strand.done - 1) % session_.slot_bytes() + 1;
  if (in_slot < session_.slot_bytes() && strand.done < strand.job.bytes) return;
  session_.send(lane, *strand.slot, strand.job.address + strand.done - in_slot, in_slot);
}

void Reading::check_digest(const Job &job, Digest &digest) const {
  uint8_t found[digest_bytes];
  digest.finish(found);
  if (memcmp(found, request_.digests + job.digest * digest_bytes, digest_bytes) == 0) return;
  throw damaged_chunk(request_, job);
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
    if (!is_zero(slot.memory + skipped, bytes - skipped)) {
      throw damaged_padding(request_, job.extent);
    }
    at += bytes - skipped;
  }
}

}  // namespace coldsnap::hydrate
