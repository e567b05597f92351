// What a session is made of, and how it ends: threads, ring, streams.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "file.h"
#include "session.h"

namespace coldsnap::hydrate {

namespace {

constexpr uint64_t usual_slot_bytes = 2 << 20;
constexpr uint64_t usual_device_slot_bytes = 1 << 20;
constexpr uint64_t usual_block_bytes = 8 << 20;
constexpr uint64_t most_slot_bytes = 64 << 20;
constexpr uint32_t usual_slots = 3;
constexpr uint32_t most_slots = 64;
constexpr uint32_t most_threads = 256;
constexpr unsigned cores_to_spin = 8;
constexpr int prefer_node = 1;  // MPOL_PREFERRED
constexpr size_t huge_page = 2 << 20;
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

// Enough reads under way for a disk, enough cores for the digests. The first thread of a write
// only hashes, so there are two at least.
uint32_t usual_threads() { return std::clamp(usable_cores() * 2, 16U, 32U); }

coldsnap_hydrate_settings completed(coldsnap_hydrate_settings settings) {
  const auto refuse = [](std::string message) {
    throw Failure(COLDSNAP_HYDRATE_INVALID, std::move(message));
  };
  if (settings.struct_bytes != sizeof settings) refuse("the settings are of another version");
  if (settings.threads == 0) settings.threads = usual_threads();
  if (settings.slots == 0) settings.slots = usual_slots;
  const bool is_device = settings.place == COLDSNAP_HYDRATE_CUDA;
  if (settings.slot_bytes == 0) {
    settings.slot_bytes = is_device ? usual_device_slot_bytes : usual_slot_bytes;
  }
  if (settings.block_bytes == 0) settings.block_bytes = usual_block_bytes;
  if (settings.place > COLDSNAP_HYDRATE_CUDA) refuse("an unknown place for the bytes");
  if (settings.io > COLDSNAP_HYDRATE_DIRECT) refuse("an unknown way of reading");
  if (settings.threads > most_threads) refuse(text("at most %u threads", most_threads));
  if (settings.slots > most_slots) refuse(text("at most %u slots per thread", most_slots));
  if (settings.digests > COLDSNAP_HYDRATE_DIGESTS_DEVICE) refuse("an unknown maker of digests");
  if (settings.engine > COLDSNAP_HYDRATE_ENGINE_MEASURED) refuse("an unknown engine");
  if (settings.waits > COLDSNAP_HYDRATE_WAITS_SPIN) refuse("an unknown way of waiting");
  for (const uint64_t bytes : {settings.slot_bytes, settings.block_bytes}) {
    if (!is_aligned(bytes) || bytes > most_slot_bytes) {
      refuse("slots and blocks are a multiple of 4096 bytes, at most 64 MiB");
    }
  }
  settings.threads = std::max(settings.threads, 2U);
  return settings;
}

}  // namespace

Session::Session(const coldsnap_hydrate_settings &settings) : settings_(completed(settings)) {
  const Timed timed(opening_.wall_ns);
  opening_.struct_bytes = sizeof opening_;
  opening_.memory_node = -1;
  spins_ = settings_.waits == COLDSNAP_HYDRATE_WAITS_SPIN ||
           (settings_.waits == COLDSNAP_HYDRATE_WAITS_AUTO && usable_cores() >= cores_to_spin);
  try {
    {
      const Timed threads(opening_.threads_ns);
      pool_ = std::make_unique<Pool>(settings_.threads);
    }
    lanes_.resize(settings_.threads);
    if (settings_.place == COLDSNAP_HYDRATE_CUDA) {
      const Timed driver(opening_.driver_ns);
      cuda_ = std::make_unique<Cuda>(settings_.cuda_library, settings_.device);
      cuda_->enter();
      const uint64_t ring = settings_.slots * settings_.slot_bytes * settings_.threads;
      blocks_ = std::make_unique<Blocks>(ring, settings_.block_bytes);
    }
    make_ring();
    if (cuda_) make_streams();
    if (cuda_ && settings_.engine != COLDSNAP_HYDRATE_ENGINE_RING) open_cufile();
  } catch (...) {
    pool_.reset();
    clear();
    throw;
  }
}

Session::~Session() {
  pool_.reset();
  clear();
}

void Session::clear() noexcept {
  cufile_.reset();
  if (cuda_) {
    for (auto &lane : lanes_) {
      if (lane.stream != nullptr) cuda_->drop_stream(lane.stream);
      for (auto &slot : lane.slots) {
        if (slot.event != nullptr) cuda_->drop_event(slot.event);
      }
    }
    if (blocks_) blocks_->close(*cuda_);
    if (is_pinned_) cuda_->unpin(ring_);
  }
  if (ring_ != nullptr) munmap(ring_, mapped_bytes_);
}

void Session::make_ring() {
  const size_t per_lane = settings_.slots * settings_.slot_bytes;
  ring_bytes_ = per_lane * settings_.threads;
  mapped_bytes_ = ring_bytes_ + (blocks_ ? padded(blocks_->table_bytes()) : 0);
  void *memory = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw Failure(COLDSNAP_HYDRATE_NO_MEMORY, text("no memory for a ring of %zu bytes", ring_bytes_));
  }
  ring_ = static_cast<uint8_t *>(memory);
  madvise(ring_, mapped_bytes_, MADV_HUGEPAGE);
  opening_.ring_bytes = ring_bytes_;
  if (cuda_) {
    // Advice only: the copy works from any node, but not as fast.
    const int node = opening_.memory_node = cuda_->memory_node();
    const unsigned long mask = node >= 0 && node < 64 ? 1UL << node : 0;
    if (mask != 0) syscall(SYS_mbind, ring_, mapped_bytes_, prefer_node, &mask, 64UL, 0U);
    touch_ring();
    const Timed timed(opening_.pin_ns);
    cuda_->pin(ring_, mapped_bytes_);
    is_pinned_ = true;
  }
  for (size_t i = 0; i < lanes_.size(); i++) {
    for (uint32_t j = 0; j < settings_.slots; j++) {
      lanes_[i].slots.push_back({ring_ + i * per_lane + j * settings_.slot_bytes});
    }
  }
}

// Pinning takes what pages are missing one after the other, zeroing each: all threads do it at once.
void Session::touch_ring() {
  const Timed timed(opening_.touch_ns);
  const auto start = reinterpret_cast<uintptr_t>(ring_);
  const auto whole = [](uintptr_t address) { return address / huge_page * huge_page; };
  const size_t parts = pool_->threads();
  const auto border = [&](size_t part) {
    return std::max(start, part == parts ? start + mapped_bytes_
                                         : whole(start + mapped_bytes_ / parts * part));
  };
  pool_->run(
      [&](unsigned thread) {
        const uintptr_t from = border(thread), to = border(thread + 1);
        // Where the kernel cannot, pinning does.
        if (from < to) madvise(reinterpret_cast<void *>(from), to - from, MADV_POPULATE_WRITE);
      },
      [] {});
}

void Session::make_streams() {
  {
    const Timed timed(opening_.streams_ns);
    blocks_->open(*cuda_, ring_, ring_bytes_, spins_);
  }
  const Timed timed(opening_.digests_ns);
  const uint32_t digests = settings_.digests;
  if (digests == COLDSNAP_HYDRATE_DIGESTS_PROCESSOR) return;
  blocks_->open_digest(*cuda_, digests == COLDSNAP_HYDRATE_DIGESTS_DEVICE);
}

void Session::open_cufile() {
  const Timed timed(opening_.cufile_ns);
  try {
    cufile_ = std::make_unique<CuFile>(settings_.cufile_library);
  } catch (const Failure &failure) {
    no_cufile_ = failure.message;
  }
}

// Streams of single threads: for the ways that do not go by blocks, made when one is gone.
void Session::open_lanes() {
  if (!cuda_ || lanes_.back().stream != nullptr) return;
  cuda_->enter();
  for (auto &lane : lanes_) {
    for (auto &slot : lane.slots) {
      if (slot.event == nullptr) slot.event = cuda_->make_event(false);
    }
    if (lane.stream == nullptr) lane.stream = cuda_->make_stream();
  }
}

}  // namespace coldsnap::hydrate
