#include "writing.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

namespace coldsnap::hydrate {

namespace {

constexpr uint8_t zeros[alignment] = {};
constexpr uint64_t piece_bytes = 256 << 10;
constexpr auto look_again = std::chrono::milliseconds(50);

void hash_zeros(Sha256 &body, uint64_t bytes) {
  for (; bytes > 0; bytes -= std::min(bytes, alignment)) {
    body.update(zeros, std::min(bytes, alignment));
  }
}

const coldsnap_hydrate_request &checked(const coldsnap_hydrate_request &request) {
  const bool wants_extents = request.extent_sha256 != nullptr;
  const bool wants_body = request.body_sha256 != nullptr;
  if (wants_extents != wants_body && request.extent_count > 0) {
    throw Failure(COLDSNAP_HYDRATE_INVALID, "the request has no room for the digests it makes");
  }
  return request;
}

}  // namespace

Writing::Writing(Session &session, const coldsnap_hydrate_request &request)
    : session_(session),
      request_(checked(request)),
      work_(request, true),
      file_(request.path, request.file_bytes, session.io()),
      control_(request, work_.total_bytes()),
      is_identified_(request.body_sha256 != nullptr) {
  // What a call before this one left behind when it failed.
  for (unsigned i = 0; i < session.pool().threads(); i++) {
    for (auto &slot : session.lane(i).slots) slot.is_unhashed = false;
  }
}

void Writing::work(unsigned thread) {
  if (thread == 0 && is_identified_) {
    identify();
  } else {
    move(session_.lane(thread));
  }
}

void Writing::finish() {
  control_.conclude();
  file_.keep(request_.is_unsynced == 0);
}

void Writing::move(Lane &lane) {
  uint64_t extent = 0;
  // Jobs are taken in the file's order: the one that the hashing thread waits for is always in
  // some thread's hands, so a slot that waits to be hashed is never waited for in vain.
  for (uint64_t number = next_++; number < work_.jobs(); number = next_++) {
    control_.check();
    move_job(lane, number, work_.job(number, extent));
  }
}

void Writing::move_job(Lane &lane, uint64_t number, const Job &job) {
  Digest digest(request_.algorithm);
  for (uint64_t at = 0; at < job.bytes; at += session_.slot_bytes()) {
    control_.check();
    const Piece piece = fetch(lane, job, at);
    if (is_identified_) publish({number, at}, piece);
    if (digest.is_made()) {
      const Turn turn(session_.pool(), lane);
      const Timed timed(lane.spent.digest_ns);
      digest.update(piece.memory, piece.bytes);
    }
    put(lane, job, at, piece);
    // The hashing thread may still read the slot, but this thread has finished with it.
    lane.spent.bytes += piece.bytes;
    control_.moved(piece.bytes);
  }
  if (digest.is_made() && job.bytes > 0) {
    digest.finish(request_.digests + job.digest * digest_bytes);
  }
}

Writing::Piece Writing::fetch(Lane &lane, const Job &job, uint64_t at) {
  const uint64_t bytes = std::min(session_.slot_bytes(), job.bytes - at);
  const auto *source = reinterpret_cast<const uint8_t *>(job.address + at);
  if (!session_.is_device() && !file_.is_direct()) return {source, bytes, nullptr};
  Slot &slot = take_slot(lane);
  if (session_.is_device()) {
    const Timed timed(lane.spent.device_ns);
    session_.cuda().copy_out(slot.memory, job.address + at, bytes, lane.stream);
    session_.cuda().wait_stream(lane.stream);
  } else {
    const Turn turn(session_.pool(), lane);
    memcpy(slot.memory, source, bytes);
  }
  memset(slot.memory + bytes, 0, padded(bytes) - bytes);
  return {slot.memory, bytes, &slot};
}

void Writing::put(Lane &lane, const Job &job, uint64_t at, const Piece &piece) {
  const Timed timed(lane.spent.file_ns);
  if (file_.is_direct()) {
    file_.write_direct(piece.memory, job.offset + at, padded(piece.bytes));
    lane.spent.direct_bytes += piece.bytes;
  } else {
    file_.write(piece.memory, job.offset + at, piece.bytes);
  }
}

Slot &Writing::take_slot(Lane &lane) {
  Slot &slot = lane.slots[lane.next];
  lane.next = (lane.next + 1) % lane.slots.size();
  const Timed timed(lane.spent.wait_ns);
  std::unique_lock lock(mutex_);
  while (slot.is_unhashed) {
    changed_.wait_for(lock, look_again);
    control_.check();
  }
  return slot;
}

void Writing::publish(Order order, const Piece &piece) {
  const std::lock_guard lock(mutex_);
  if (piece.slot != nullptr) piece.slot->is_unhashed = true;
  ready_.emplace(order, piece);
  changed_.notify_all();
}

void Writing::identify() {
  Sha256 body;
  uint64_t extent = 0;
  Sha256 whole;
  for (uint64_t number = 0; number < work_.jobs(); number++) {
    const Job job = work_.job(number, extent);
    if (number == 0) hash_zeros(body, job.offset);
    if (job.chunk == 0) whole = Sha256();
    identify_job(number, job, body, whole);
    if (job.ends_extent) {
      whole.finish(request_.extent_sha256 + job.extent * digest_bytes);
      hash_zeros(body, job.padding);
    }
  }
  if (work_.jobs() == 0) hash_zeros(body, request_.file_bytes);
  if (request_.body_sha256 != nullptr) body.finish(request_.body_sha256);
}

void Writing::identify_job(uint64_t number, const Job &job, Sha256 &body, Sha256 &extent) {
  for (uint64_t at = 0; at < job.bytes; at += session_.slot_bytes()) {
    const Piece piece = await({number, at});
    Sha256::update_both(body, extent, piece.memory, piece.bytes);
    hashed(piece);
  }
}

Writing::Piece Writing::await(Order order) {
  std::unique_lock lock(mutex_);
  auto found = ready_.find(order);
  while (found == ready_.end()) {
    changed_.wait_for(lock, look_again);
    control_.check();
    found = ready_.find(order);
  }
  const Piece piece = found->second;
  ready_.erase(found);
  return piece;
}

void Writing::hashed(const Piece &piece) {
  if (piece.slot == nullptr) return;
  const std::lock_guard lock(mutex_);
  piece.slot->is_unhashed = false;
  changed_.notify_all();
}

void identify_file(const coldsnap_hydrate_request &request) {
  const Work work(request, false);
  const InputFile file(request.path, request.file_bytes, COLDSNAP_HYDRATE_BUFFERED);
  Control control(request, request.file_bytes);
  std::vector<uint8_t> piece(piece_bytes);
  Sha256 body;
  uint64_t at = 0;
  const auto pass = [&](uint64_t end, Sha256 *extent) {
    while (at < end) {
      control.check();
      const uint64_t bytes = std::min(piece_bytes, end - at);
      file.read(piece.data(), at, bytes);
      if (extent != nullptr) {
        Sha256::update_both(body, *extent, piece.data(), bytes);
      } else {
        body.update(piece.data(), bytes);
      }
      at += bytes;
      control.moved(bytes);
    }
  };
  auto reported = Clock::now();
  for (uint64_t i = 0; i < request.extent_count && request.extent_sha256 != nullptr; i++) {
    pass(request.extents[i].offset, nullptr);
    Sha256 extent;
    pass(request.extents[i].offset + request.extents[i].length, &extent);
    extent.finish(request.extent_sha256 + i * digest_bytes);
    if (nanoseconds_since(reported) > 50'000'000) {
      control.report();
      reported = Clock::now();
    }
  }
  pass(request.file_bytes, nullptr);
  control.report();
  control.conclude();
  file.check_unchanged();
  if (request.body_sha256 != nullptr) body.finish(request.body_sha256);
}

}  // namespace coldsnap::hydrate
