// Waiting for a change that another thread makes: spinning for a while where there are cores for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace coldsnap::hydrate {

class Changes {
 public:
  explicit Changes(bool spins) : spins_(spins) {}

  // With the mutex held that guards what changed.
  void tell() {
    count_.fetch_add(1, std::memory_order_release);
    told_.notify_all();
  }
  // Returns after a change, or for nothing after a while; lets go of the lock meanwhile.
  void await(std::unique_lock<std::mutex> &lock) {
    const uint64_t seen = count_;
    if (spins_) {
      lock.unlock();
      spin(seen);
      lock.lock();
    }
    if (count_ == seen) told_.wait_for(lock, std::chrono::milliseconds(50));
  }

 private:
  // A block of 8 MiB is 150 microseconds on the fastest link; to be woken takes a third of that.
  void spin(uint64_t seen) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(200);
    while (count_.load(std::memory_order_acquire) == seen &&
           std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
  }

  const bool spins_;
  std::atomic<uint64_t> count_ = 0;
  std::condition_variable told_;
};

}  // namespace coldsnap::hydrate
