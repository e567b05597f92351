#include "control.h"

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
