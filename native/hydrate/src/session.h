// What calls share: threads, the ring of buffers, CUDA streams.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "blocks.h"
#include "coldsnap_hydrate.h"
#include "control.h"
#include "cuda.h"
#include "cufile.h"
#include "pool.h"

namespace coldsnap::hydrate {

// A buffer of a thread, and whether the device still reads it.
struct Slot {
  uint8_t *memory = nullptr;
  Cuda::Event event = nullptr;
  bool in_flight = false;
  bool is_unhashed = false;  // of a write; guarded by its mutex
};

// What one thread owns for as long as the session lives; its numbers are those of one call.
struct Lane {
  std::vector<Slot> slots;
  size_t next = 0;
  Cuda::Stream stream = nullptr;
  coldsnap_hydrate_metrics spent{};
};

// Holds one of the pool's turns.
class Turn {
 public:
  Turn(Pool &pool, Lane &lane) : pool_(pool) {
    const Timed timed(lane.spent.turn_ns);
    pool_.turns.acquire();
  }
  ~Turn() { pool_.turns.release(); }
  Turn(const Turn &) = delete;
  Turn &operator=(const Turn &) = delete;

 private:
  Pool &pool_;
};

class Session {
 public:
  // Throws Failure: invalid, no memory, no device.
  explicit Session(const coldsnap_hydrate_settings &settings);
  ~Session();
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  void read(const coldsnap_hydrate_request &request, coldsnap_hydrate_metrics &metrics);
  void write(const coldsnap_hydrate_request &request, coldsnap_hydrate_metrics &metrics);
  void copy_rate(uint64_t address, uint64_t bytes, coldsnap_hydrate_metrics &metrics);

  const coldsnap_hydrate_opening &opening() const { return opening_; }

  uint32_t place() const { return settings_.place; }
  uint32_t io() const { return settings_.io; }
  uint64_t slot_bytes() const { return settings_.slot_bytes; }
  bool is_device() const { return cuda_ != nullptr; }
  const Cuda &cuda() const { return *cuda_; }
  // Only of a session with a device.
  Blocks &blocks() { return *blocks_; }
  // Whether the device digests.
  bool can_digest() const { return blocks_ && blocks_->digest() != nullptr; }
  // Whether threads spin while they wait for the device.
  bool spins() const { return spins_; }
  // Only where it was asked for and could be opened.
  const CuFile *cufile() const { return cufile_.get(); }
  Pool &pool() { return *pool_; }
  Lane &lane(unsigned thread) { return lanes_[thread]; }

  // The lane's next buffer, once the device is done with it.
  Slot &take_slot(Lane &lane);
  // Starts the copy of a filled slot to device memory.
  void send(Lane &lane, Slot &slot, Cuda::Address to, size_t bytes);
  // Waits until the device reads nothing of this lane any more, nor of the blocks.
  void settle(Lane &lane);

 private:
  // Runs `task` on every thread; its failure ends the call.
  template <typename Task>
  void run(Control &control, coldsnap_hydrate_metrics &metrics, Task &&task);
  template <typename Way>
  void read_by(const coldsnap_hydrate_request &request, coldsnap_hydrate_metrics &metrics);
  void read_by_ring(const coldsnap_hydrate_request &request, coldsnap_hydrate_metrics &metrics);
  // What made libcufile impossible, if anything.
  std::string read_by_cufile(const coldsnap_hydrate_request &request,
                             coldsnap_hydrate_metrics &metrics);
  void read_measured(const coldsnap_hydrate_request &request, coldsnap_hydrate_metrics &metrics);
  void make_ring();
  void touch_ring();
  void make_streams();
  void open_cufile();
  void open_lanes();
  void clear() noexcept;

  coldsnap_hydrate_settings settings_;
  std::unique_ptr<Cuda> cuda_;
  std::vector<Lane> lanes_;
  uint8_t *ring_ = nullptr;
  size_t ring_bytes_ = 0;
  size_t mapped_bytes_ = 0;  // with the tables of the blocks
  bool spins_ = false;
  coldsnap_hydrate_opening opening_{};
  std::unique_ptr<CuFile> cufile_;
  std::string no_cufile_;  // why there is none
  std::unique_ptr<Blocks> blocks_;
  bool is_pinned_ = false;
  std::unique_ptr<Pool> pool_;
  std::mutex one_call_;
};

}  // namespace coldsnap::hydrate
