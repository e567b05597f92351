#include "pool.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <csignal>

namespace coldsnap::hydrate {

namespace {

constexpr auto tick_time = std::chrono::milliseconds(50);

// The threads made in its scope take no signals: those are the host program's business.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked &) = delete;
  SignalsBlocked &operator=(const SignalsBlocked &) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

unsigned usable_cores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    return static_cast<unsigned>(CPU_COUNT(&allowed));
  }
  return std::max(1U, std::thread::hardware_concurrency());
}

Pool::Pool(unsigned threads) : turns(usable_cores()) {
  const SignalsBlocked blocked;
  try {
    for (unsigned i = 0; i < threads; i++) threads_.emplace_back([this, i] { serve(i); });
  } catch (...) {
    stop();
    throw;
  }
}

Pool::~Pool() { stop(); }

void Pool::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  posted_.notify_all();
  for (auto &thread : threads_) thread.join();
  threads_.clear();
}

void Pool::run(const Task &task, const std::function<void()> &tick) {
  std::unique_lock lock(mutex_);
  task_ = &task;
  busy_ = threads();
  round_++;
  posted_.notify_all();
  while (!finished_.wait_for(lock, tick_time, [this] { return busy_ == 0; })) {
    lock.unlock();
    tick();
    lock.lock();
  }
  task_ = nullptr;
}

void Pool::serve(unsigned thread) {
  uint64_t served = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    posted_.wait(lock, [&] { return is_ending_ || round_ != served; });
    if (is_ending_) return;
    served = round_;
    const Task &task = *task_;
    lock.unlock();
    task(thread);
    lock.lock();
    if (--busy_ == 0) finished_.notify_one();
  }
}

}  // namespace coldsnap::hydrate
