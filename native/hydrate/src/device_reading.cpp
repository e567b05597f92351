#include "device_reading.h"

#include <algorithm>
#include <cstring>

#include "damage.h"
#include "digest.h"

namespace coldsnap::hydrate {

namespace {

constexpr uint64_t parts(uint64_t bytes, uint64_t part) { return (bytes + part - 1) / part; }

}  // namespace

bool DeviceReading::can_take(const Session &session, const coldsnap_hydrate_request &request) {
  if (request.algorithm == COLDSNAP_HYDRATE_UNVERIFIED) return true;
  return request.algorithm == COLDSNAP_HYDRATE_BLAKE3 && session.can_digest() &&
         request.chunk_bytes <= most_device_chunk;
}

DeviceReading::DeviceReading(Session &session, const coldsnap_hydrate_request &request)
    : session_(session),
      blocks_(session.blocks()),
      request_(request),
      work_(request, true),
      file_(request.path, request.file_bytes, session.io()),
      control_(request, work_.total_bytes()),
      is_cached_(session.io() != COLDSNAP_HYDRATE_DIRECT && file_.is_cached()),
      is_checked_(request.algorithm != COLDSNAP_HYDRATE_UNVERIFIED),
      per_block_(parts(blocks_.bytes(), blocks_.piece_bytes())),
      pieces_(parts(request.file_bytes, blocks_.bytes()) * per_block_),
      count_(pieces_ / per_block_),
      changes_(session.spins()) {
  for (uint64_t i = 0; i < blocks_.count(); i++) places_.push_back({i, per_block_});
}

void DeviceReading::work(unsigned thread) {
  // More threads than cores keep a disk busy; out of the page cache they only get in the way.
  if (is_cached_ && thread >= usable_cores()) return;
  Lane &lane = session_.lane(thread);
  for (uint64_t piece = next_piece_++; piece < pieces_; piece = next_piece_++) {
    control_.check();
    const uint64_t number = piece / per_block_;
    await_place(lane, number);
    fill(lane, piece);
    filled(lane, number);
  }
  if (thread == 0) drain(lane);
}

void DeviceReading::finish() {
  control_.conclude();
  file_.check_unchanged();
}

// The part of a piece that is wanted, and its place in the block.
void DeviceReading::fill(Lane &lane, uint64_t piece) {
  const uint64_t number = piece / per_block_, in_block = piece % per_block_ * blocks_.piece_bytes();
  const uint64_t start = number * blocks_.bytes() + in_block;
  const uint64_t length = std::min(blocks_.piece_bytes(), blocks_.bytes() - in_block);
  const Range whole{start, std::min(start + length, request_.file_bytes)};
  if (whole.is_empty()) return;  // behind the file's end
  Range wanted{whole.end, whole.start};
  for (uint64_t i = first_extent_after(whole.start); i < request_.extent_count; i++) {
    const Range part = within(i, whole);
    if (request_.extents[i].offset >= whole.end) break;
    if (part.is_empty()) continue;
    wanted = {std::min(wanted.start, part.start), std::max(wanted.end, part.end)};
  }
  const bool has_padding = request_.check_padding != 0 && request_.extent_count > 0;
  if (has_padding) wanted = {std::max(whole.start, request_.extents[0].offset), whole.end};
  if (wanted.is_empty()) return;
  uint8_t *memory = blocks_.block(number).memory + in_block;
  read(lane, memory + (wanted.start - whole.start), wanted);
  if (is_checked_) digest_small(lane, memory, whole);
  if (has_padding) check_padding(memory + (wanted.start - whole.start), wanted);
}

void DeviceReading::read(Lane &lane, uint8_t *to, Range range) {
  const uint64_t bytes = range.end - range.start;
  if (file_.prefers_direct(range.start, bytes)) {
    const Timed timed(lane.spent.file_ns);
    file_.read_direct(to, range.start, padded(bytes));
    lane.spent.direct_bytes += bytes;
    return;
  }
  if (is_cached_) {
    const Timed timed(lane.spent.file_ns);
    file_.read(to, range.start, bytes);
    return;
  }
  const Turn turn(session_.pool(), lane);
  const Timed timed(lane.spent.file_ns);
  file_.read(to, range.start, bytes);
}

void DeviceReading::digest_small(Lane &lane, const uint8_t *memory, Range piece) {
  const Timed timed(lane.spent.digest_ns);
  for (uint64_t i = first_extent_after(piece.start); i < request_.extent_count; i++) {
    if (request_.extents[i].offset >= piece.end) break;
    each_chunk_ending(i, piece, [&](const Job &job) {
      if (!is_small(job)) return;
      Digest digest(request_.algorithm);
      uint8_t found[digest_bytes];
      digest.update(memory + (job.offset - piece.start), job.bytes);
      digest.finish(found);
      if (memcmp(found, request_.digests + job.digest * digest_bytes, digest_bytes) != 0) {
        throw damaged_chunk(request_, job);
      }
    });
  }
}

void DeviceReading::check_padding(const uint8_t *memory, Range range) const {
  uint64_t at = range.start;
  uint64_t next = first_extent_after(range.start);
  while (at < range.end) {
    const bool is_last = next == request_.extent_count;
    const uint64_t start = is_last ? range.end : request_.extents[next].offset;
    const uint64_t gap_end = std::min(start, range.end);
    if (at < gap_end && !is_zero(memory + (at - range.start), gap_end - at)) {
      throw damaged_padding(request_, next - 1);
    }
    if (is_last) return;
    at = std::max(at, end_of(next));
    next++;
  }
}

void DeviceReading::await_place(Lane &lane, uint64_t number) {
  std::unique_lock lock(mutex_);
  Place &place = places_[number % places_.size()];
  if (place.number == number) return;
  const Timed timed(lane.spent.wait_ns);
  while (place.number != number) {
    if (place.is_sent && !place.is_retiring) {
      place.is_retiring = true;
      lock.unlock();
      retire(lane, place.number);
      lock.lock();
      place = {place.number + places_.size(), per_block_};
      changes_.tell();
    } else {
      changes_.await(lock);
      control_.check();
    }
  }
}

bool DeviceReading::is_ready(uint64_t number) const {
  if (number >= count_) return false;
  const Place &place = places_[number % places_.size()];
  return place.number == number && place.unfilled == 0;
}

void DeviceReading::filled(Lane &lane, uint64_t number) {
  std::unique_lock lock(mutex_);
  if (--places_[number % places_.size()].unfilled > 0) return;
  // In the file's order, so that the end of a chunk comes after its start: who completes the next
  // block sends it, and those behind it that were waiting.
  while (!is_sending_ && is_ready(next_block_)) {
    const uint64_t sent = next_block_;
    is_sending_ = true;
    lock.unlock();
    send(lane, sent);
    lock.lock();
    is_sending_ = false;
    places_[sent % places_.size()].is_sent = true;
    next_block_++;
    changes_.tell();
  }
}

void DeviceReading::send(Lane &lane, uint64_t number) {
  const Timed timed(lane.spent.device_ns);
  const auto begin = Clock::now();
  const Cuda &cuda = session_.cuda();
  Block &block = blocks_.block(number);
  const uint64_t start = number * blocks_.bytes();
  const Range range{start, std::min(start + blocks_.bytes(), request_.file_bytes)};
  uint64_t moved = 0;
  block.jobs.clear();
  for (uint64_t i = first_extent_after(range.start); i < request_.extent_count; i++) {
    const auto &extent = request_.extents[i];
    if (extent.offset >= range.end) break;
    const Range part = within(i, range);
    if (part.is_empty()) continue;
    const uint64_t bytes = part.end - part.start;
    cuda.copy_in(extent.address + (part.start - extent.offset), block.memory + (part.start - start),
                 bytes, blocks_.copies());
    moved += bytes;
    if (is_checked_) send_chunks(lane, block, i, part);
  }
  cuda.record(block.copied, blocks_.copies());
  if (!block.jobs.empty()) {
    cuda.follow(blocks_.digests(number), block.copied);
    blocks_.digest()->start(block.jobs, block.digests, blocks_.lane(number));
    cuda.record(block.digested, blocks_.digests(number));
  }
  lane.spent.longest_send_ns = std::max(lane.spent.longest_send_ns, nanoseconds_since(begin));
  lane.spent.bytes += moved;
  control_.moved(moved);
}

void DeviceReading::send_chunks(Lane &lane, Block &block, uint64_t extent, Range range) {
  each_chunk_ending(extent, range, [&](const Job &job) {
    if (is_small(job)) return;
    block.jobs.push_back(job);
    lane.spent.device_digest_bytes += job.bytes;
  });
}

void DeviceReading::retire(Lane &lane, uint64_t number) {
  const Block &block = blocks_.block(number);
  {
    const Timed timed(lane.spent.copy_wait_ns);
    session_.cuda().wait(block.copied);
  }
  if (block.jobs.empty()) return;
  {
    const Timed timed(lane.spent.digest_wait_ns);
    session_.cuda().wait(block.digested);
  }
  for (size_t i = 0; i < block.jobs.size(); i++) {
    const uint8_t *wanted = request_.digests + block.jobs[i].digest * digest_bytes;
    if (memcmp(block.digests + i * digest_bytes, wanted, digest_bytes) != 0) {
      throw damaged_chunk(request_, block.jobs[i]);
    }
  }
}

void DeviceReading::drain(Lane &lane) {
  const Timed timed(lane.spent.wait_ns);
  const uint64_t first = count_ > places_.size() ? count_ - places_.size() : 0;
  for (uint64_t number = first; number < count_; number++) {
    std::unique_lock lock(mutex_);
    Place &place = places_[number % places_.size()];
    // Another thread may retire the block before this one in the same place.
    while (place.number != number || !place.is_sent) {
      changes_.await(lock);
      control_.check();
    }
    lock.unlock();
    retire(lane, number);
  }
}

uint64_t DeviceReading::end_of(uint64_t extent) const {
  return request_.extents[extent].offset + request_.extents[extent].length;
}

// The first that ends behind `offset`.
uint64_t DeviceReading::first_extent_after(uint64_t offset) const {
  const auto *first = request_.extents, *last = first + request_.extent_count;
  const auto *found = std::partition_point(first, last, [offset](const auto &extent) {
    return extent.offset + extent.length <= offset;
  });
  return static_cast<uint64_t>(found - first);
}

DeviceReading::Range DeviceReading::within(uint64_t extent, Range range) const {
  return {std::max(request_.extents[extent].offset, range.start),
          std::min(end_of(extent), range.end)};
}

// Has its digest made by the thread that reads it.
bool DeviceReading::is_small(const Job &job) const {
  if (job.bytes > small_chunk_bytes) return false;
  const auto piece = [this](uint64_t at) {
    return std::pair(at / blocks_.bytes(), at % blocks_.bytes() / blocks_.piece_bytes());
  };
  return piece(job.offset) == piece(job.offset + job.bytes - 1);
}

template <typename Take>
void DeviceReading::each_chunk_ending(uint64_t extent, Range range, Take &&take) const {
  const Range part = within(extent, range);
  if (part.is_empty()) return;
  const uint64_t offset = request_.extents[extent].offset;
  for (uint64_t chunk = (part.start - offset) / request_.chunk_bytes;; chunk++) {
    const Job job = work_.chunk(extent, chunk);
    if (job.offset + job.bytes > part.end) return;
    take(job);
    if (job.ends_extent) return;
  }
}

}  // namespace coldsnap::hydrate
