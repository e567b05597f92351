#include "session.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "device_reading.h"
#include "file.h"
#include "reading.h"
#include "writing.h"

namespace coldsnap::hydrate {

namespace {

constexpr uint64_t usual_slot_bytes = 2 << 20;
constexpr uint64_t usual_device_slot_bytes = 1 << 20;
constexpr uint64_t usual_block_bytes = 8 << 20;
constexpr uint64_t most_slot_bytes = 64 << 20;
constexpr uint32_t usual_slots = 3;
constexpr uint32_t most_slots = 64;
constexpr uint32_t most_threads = 256;
constexpr int prefer_node = 1;  // MPOL_PREFERRED

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
  for (const uint64_t bytes : {settings.slot_bytes, settings.block_bytes}) {
    if (!is_aligned(bytes) || bytes > most_slot_bytes) {
      refuse("slots and blocks are a multiple of 4096 bytes, at most 64 MiB");
    }
  }
  settings.threads = std::max(settings.threads, 2U);
  return settings;
}

void add(coldsnap_hydrate_metrics &sum, const coldsnap_hydrate_metrics &part) {
  sum.bytes += part.bytes;
  sum.direct_bytes += part.direct_bytes;
  sum.device_digest_bytes += part.device_digest_bytes;
  sum.file_ns += part.file_ns;
  sum.digest_ns += part.digest_ns;
  sum.wait_ns += part.wait_ns;
  sum.turn_ns += part.turn_ns;
  sum.device_ns += part.device_ns;
}

}  // namespace

Session::Session(const coldsnap_hydrate_settings &settings) : settings_(completed(settings)) {
  try {
    if (settings_.place == COLDSNAP_HYDRATE_CUDA) {
      cuda_ = std::make_unique<Cuda>(settings_.cuda_library, settings_.device);
      cuda_->enter();
    }
    lanes_.resize(settings_.threads);
    if (cuda_) {
      const uint64_t ring = settings_.slots * settings_.slot_bytes * settings_.threads;
      blocks_ = std::make_unique<Blocks>(ring, settings_.block_bytes);
    }
    make_ring();
    if (cuda_) make_streams();
    pool_ = std::make_unique<Pool>(settings_.threads);
  } catch (...) {
    clear();
    throw;
  }
}

Session::~Session() {
  pool_.reset();
  clear();
}

void Session::clear() noexcept {
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
  if (cuda_) {
    // Advice only: the copy works from any node, but not as fast.
    const int node = cuda_->memory_node();
    const unsigned long mask = node >= 0 && node < 64 ? 1UL << node : 0;
    if (mask != 0) syscall(SYS_mbind, ring_, mapped_bytes_, prefer_node, &mask, 64UL, 0U);
    cuda_->pin(ring_, mapped_bytes_);
    is_pinned_ = true;
  }
  for (size_t i = 0; i < lanes_.size(); i++) {
    for (uint32_t j = 0; j < settings_.slots; j++) {
      lanes_[i].slots.push_back({ring_ + i * per_lane + j * settings_.slot_bytes});
    }
  }
}

void Session::make_streams() {
  for (auto &lane : lanes_) {
    lane.stream = cuda_->make_stream();
    for (auto &slot : lane.slots) slot.event = cuda_->make_event();
  }
  const uint32_t digests = settings_.digests;
  blocks_->open(*cuda_, ring_, ring_bytes_, digests != COLDSNAP_HYDRATE_DIGESTS_PROCESSOR,
                digests == COLDSNAP_HYDRATE_DIGESTS_DEVICE);
}

Slot &Session::take_slot(Lane &lane) {
  Slot &slot = lane.slots[lane.next];
  lane.next = (lane.next + 1) % lane.slots.size();
  if (slot.in_flight) {
    const Timed timed(lane.spent.wait_ns);
    cuda_->wait(slot.event);
    slot.in_flight = false;
  }
  return slot;
}

void Session::send(Lane &lane, Slot &slot, Cuda::Address to, size_t bytes) {
  const Timed timed(lane.spent.device_ns);
  slot.in_flight = true;
  cuda_->copy_in(to, slot.memory, bytes, lane.stream);
  cuda_->record(slot.event, lane.stream);
}

void Session::settle(Lane &lane) {
  if (!cuda_) return;
  const Timed timed(lane.spent.device_ns);
  for (auto &slot : lane.slots) slot.in_flight = false;
  cuda_->wait_stream(lane.stream);
  blocks_->settle(*cuda_);
}

template <typename Task>
void Session::run(Control &control, coldsnap_hydrate_metrics &metrics, Task &&task) {
  const auto start = Clock::now();
  const auto guard = [&control](auto &&action) noexcept {
    try {
      action();
    } catch (const Failure &failure) {
      control.fail(failure);
    } catch (const std::bad_alloc &) {
      control.fail(Failure(COLDSNAP_HYDRATE_NO_MEMORY, "out of memory"));
    } catch (const std::exception &error) {
      control.fail(Failure(COLDSNAP_HYDRATE_INTERNAL, error.what()));
    }
  };
  pool_->run(
      [&](unsigned thread) {
        auto &lane = lanes_[thread];
        lane.spent = {};
        guard([&] {
          if (cuda_) cuda_->enter();
          task(thread);
        });
        // Also after a failure: the caller may free the memory when this call returns.
        guard([&] { settle(lane); });
      },
      [&control] { control.report(); });
  metrics = {};
  metrics.struct_bytes = sizeof metrics;
  metrics.threads = pool_->threads();
  metrics.wall_ns = nanoseconds_since(start);
  metrics.ring_bytes = ring_bytes_;
  for (const auto &lane : lanes_) add(metrics, lane.spent);
  control.report();
}

template <typename Way>
void Session::read_by(const coldsnap_hydrate_request &request, coldsnap_hydrate_metrics &metrics) {
  Way reading(*this, request);
  run(reading.control(), metrics, [&](unsigned thread) { reading.work(thread); });
  reading.finish();
}

void Session::read(const coldsnap_hydrate_request &request, coldsnap_hydrate_metrics &metrics) {
  const std::lock_guard lock(one_call_);
  if (cuda_ && DeviceReading::can_take(*this, request)) {
    read_by<DeviceReading>(request, metrics);
  } else {
    read_by<Reading>(request, metrics);
  }
}

void Session::write(const coldsnap_hydrate_request &request, coldsnap_hydrate_metrics &metrics) {
  const std::lock_guard lock(one_call_);
  Writing writing(*this, request);
  run(writing.control(), metrics, [&](unsigned thread) { writing.work(thread); });
  writing.finish();
}

void Session::copy_rate(uint64_t address, uint64_t bytes, coldsnap_hydrate_metrics &metrics) {
  const std::lock_guard lock(one_call_);
  if (!cuda_) throw Failure(COLDSNAP_HYDRATE_INVALID, "this session has no device");
  const coldsnap_hydrate_request plain{};
  Control control(plain, bytes);
  // All of the ring again and again, by one stream: the largest copies that there can be.
  run(control, metrics, [&](unsigned thread) {
    if (thread != 0) return;
    Lane &own = lanes_[thread];
    const Timed timed(own.spent.device_ns);
    for (uint64_t at = 0; at < bytes; at += ring_bytes_) {
      const uint64_t count = std::min<uint64_t>(ring_bytes_, bytes - at);
      cuda_->copy_in(address + at, ring_, count, blocks_->copies());
      own.spent.bytes += count;
    }
  });
  control.conclude();
}

}  // namespace coldsnap::hydrate
