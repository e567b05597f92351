// Threads that wait for work and stay for the next.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace coldsnap::hydrate {

// Processors that this process may use.
unsigned usable_cores();

// A semaphore. That of libstdc++ before 13 can sleep for ever (GCC bug 104928).
class Turns {
 public:
  explicit Turns(unsigned count) : left_(count) {}
  void acquire() {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [this] { return left_ > 0; });
    left_--;
  }
  void release() {
    {
      const std::lock_guard lock(mutex_);
      left_++;
    }
    freed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  unsigned left_;
};

class Pool {
 public:
  using Task = std::function<void(unsigned thread)>;

  explicit Pool(unsigned threads);
  ~Pool();
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  unsigned threads() const { return static_cast<unsigned>(threads_.size()); }
  // Runs `task`, which must not throw, on every thread; `tick` on this one until all are done.
  void run(const Task &task, const std::function<void()> &tick);

  // There are more threads than cores, so that enough reads are under way; what costs processor
  // time is done by as many at once as there are cores.
  Turns turns;

 private:
  void serve(unsigned thread);
  void stop();

  std::mutex mutex_;
  std::condition_variable posted_;
  std::condition_variable finished_;
  const Task *task_ = nullptr;
  uint64_t round_ = 0;
  unsigned busy_ = 0;
  bool is_ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace coldsnap::hydrate
