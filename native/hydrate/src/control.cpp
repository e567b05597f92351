#include "control.h"

#include <algorithm>

namespace coldsnap::hydrate {

Control::Control(const coldsnap_hydrate_request &request, uint64_t total)
    : request_(request), total_(total) {}

void Control::check() {
  if (is_stopped()) throw Failure(COLDSNAP_HYDRATE_CANCELLED, "stopped");
  if (request_.cancel != nullptr && __atomic_load_n(request_.cancel, __ATOMIC_RELAXED) != 0) {
    throw Failure(COLDSNAP_HYDRATE_CANCELLED, "cancelled");
  }
  if (request_.seconds > 0) {
    const std::chrono::duration<double> elapsed = Clock::now() - start_;
    if (elapsed.count() > request_.seconds) {
      throw Failure(COLDSNAP_HYDRATE_DEADLINE,
                    text("not done within %g seconds", request_.seconds));
    }
  }
}

void Control::moved(uint64_t bytes) {
  if (bytes == 0) return;
  constexpr uint64_t marks = COLDSNAP_HYDRATE_MARKS;
  const uint64_t before = done_.fetch_add(bytes, std::memory_order_relaxed);
  const auto passed = [this](uint64_t done) { return std::min(done, total_) * marks / total_; };
  const uint64_t from = passed(before), to = passed(before + bytes);
  if (before > 0 && from == to) return;
  const uint64_t now = nanoseconds_since(start_);
  if (before == 0) first_ns_ = now;
  for (uint64_t mark = from; mark < to; mark++) marks_[mark] = now;
}

void Control::tell(coldsnap_hydrate_metrics &metrics) const {
  metrics.wall_ns = nanoseconds_since(start_);
  metrics.first_ns = first_ns_;
  for (size_t i = 0; i < COLDSNAP_HYDRATE_MARKS; i++) metrics.mark_ns[i] = marks_[i];
}

void Control::fail(const Failure &failure) noexcept {
  const std::lock_guard lock(mutex_);
  if (!first_) first_ = failure;
  stopped_ = true;
}

void Control::report() noexcept {
  if (request_.progress == nullptr) return;
  if (request_.progress(request_.progress_context, done_.load(), total_) != 0) {
    fail(Failure(COLDSNAP_HYDRATE_CANCELLED, "cancelled"));
  }
}

void Control::conclude() const {
  if (first_) throw *first_;
}

}  // namespace coldsnap::hydrate
