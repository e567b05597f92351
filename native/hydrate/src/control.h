// One call while it runs: how far it is, whether it must stop, what went wrong first.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>

#include "coldsnap_hydrate.h"
#include "failure.h"

namespace coldsnap::hydrate {

using Clock = std::chrono::steady_clock;

inline uint64_t nanoseconds_since(Clock::time_point start) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

// Adds the time of its scope to a counter.
class Timed {
 public:
  explicit Timed(uint64_t &counter) : counter_(counter), start_(Clock::now()) {}
  ~Timed() { counter_ += nanoseconds_since(start_); }
  Timed(const Timed &) = delete;
  Timed &operator=(const Timed &) = delete;

 private:
  uint64_t &counter_;
  Clock::time_point start_;
};

class Control {
 public:
  Control(const coldsnap_hydrate_request &request, uint64_t total);

  // Called often by every thread; throws Failure when the call must end.
  void check();
  bool is_stopped() const { return stopped_.load(std::memory_order_relaxed); }
  void moved(uint64_t bytes);
  // When the first bytes were moved, each eighth of all, and now.
  void tell(coldsnap_hydrate_metrics &metrics) const;
  // The first failure is the one that is told; the rest follow from it.
  void fail(const Failure &failure) noexcept;
  // On the caller's thread, some times a second.
  void report() noexcept;
  // Throws the first failure.
  void conclude() const;

 private:
  const coldsnap_hydrate_request &request_;
  const uint64_t total_;
  const Clock::time_point start_ = Clock::now();
  std::atomic<bool> stopped_ = false;
  std::atomic<uint64_t> done_ = 0;
  std::atomic<uint64_t> first_ns_ = 0;
  std::atomic<uint64_t> marks_[COLDSNAP_HYDRATE_MARKS]{};
  std::mutex mutex_;
  std::optional<Failure> first_;
};

}  // namespace coldsnap::hydrate
