#include "session.h"

#include <algorithm>
#include <cstring>

#include "cufile_reading.h"
#include "device_reading.h"
#include "reading.h"
#include "writing.h"

namespace coldsnap::hydrate {

namespace {

void add(coldsnap_hydrate_metrics &sum, const coldsnap_hydrate_metrics &part) {
  sum.bytes += part.bytes;
  sum.direct_bytes += part.direct_bytes;
  sum.device_digest_bytes += part.device_digest_bytes;
  sum.file_ns += part.file_ns;
  sum.digest_ns += part.digest_ns;
  sum.wait_ns += part.wait_ns;
  sum.turn_ns += part.turn_ns;
  sum.device_ns += part.device_ns;
  sum.copy_wait_ns += part.copy_wait_ns;
  sum.digest_wait_ns += part.digest_wait_ns;
  sum.longest_send_ns = std::max(sum.longest_send_ns, part.longest_send_ns);
}

double rate_of(const coldsnap_hydrate_metrics &metrics) {
  return static_cast<double>(metrics.bytes) / static_cast<double>(std::max<uint64_t>(metrics.wall_ns, 1));
}

void set_reason(coldsnap_hydrate_metrics &metrics, const std::string &reason) {
  const size_t bytes = std::min(reason.size(), sizeof metrics.engine_reason - 1);
  memcpy(metrics.engine_reason, reason.data(), bytes);
  metrics.engine_reason[bytes] = 0;
}

// What a second attempt may still take.
coldsnap_hydrate_request left_of(coldsnap_hydrate_request request, Clock::time_point start) {
  constexpr double least = 1e-6;  // 0 would be no deadline
  const double spent = static_cast<double>(nanoseconds_since(start)) / 1e9;
  if (request.seconds > 0) request.seconds = std::max(request.seconds - spent, least);
  return request;
}

}  // namespace

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
  if (lane.stream != nullptr) cuda_->wait_stream(lane.stream);
}

template <typename Task>
void Session::run(Control &control, coldsnap_hydrate_metrics &metrics, Task &&task) {
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
  if (cuda_) {
    guard([this] {
      cuda_->enter();
      blocks_->settle(*cuda_);
    });
  }
  metrics = {};
  metrics.struct_bytes = sizeof metrics;
  metrics.threads = pool_->threads();
  metrics.ring_bytes = ring_bytes_;
  metrics.engine = cuda_ ? COLDSNAP_HYDRATE_ENGINE_RING : COLDSNAP_HYDRATE_ENGINE_HOST;
  for (const auto &lane : lanes_) add(metrics, lane.spent);
  control.tell(metrics);
  control.report();
}

template <typename Way>
void Session::read_by(const coldsnap_hydrate_request &request, coldsnap_hydrate_metrics &metrics) {
  Way reading(*this, request);
  run(reading.control(), metrics, [&](unsigned thread) { reading.work(thread); });
  reading.finish();
}

void Session::read_by_ring(const coldsnap_hydrate_request &request,
                           coldsnap_hydrate_metrics &metrics) {
  if (cuda_ && DeviceReading::can_take(*this, request)) {
    read_by<DeviceReading>(request, metrics);
  } else {
    open_lanes();
    read_by<Reading>(request, metrics);
  }
}

void Session::read(const coldsnap_hydrate_request &request, coldsnap_hydrate_metrics &metrics) {
  const std::lock_guard lock(one_call_);
  const bool is_asked = cuda_ && settings_.engine != COLDSNAP_HYDRATE_ENGINE_RING;
  if (!is_asked) {
    read_by_ring(request, metrics);
  } else if (settings_.engine == COLDSNAP_HYDRATE_ENGINE_MEASURED) {
    read_measured(request, metrics);
  } else {
    const auto start = Clock::now();
    const std::string reason = read_by_cufile(request, metrics);
    if (reason.empty()) return;
    read_by_ring(left_of(request, start), metrics);
    metrics.wall_ns = nanoseconds_since(start);
    set_reason(metrics, reason);
  }
}

std::string Session::read_by_cufile(const coldsnap_hydrate_request &request,
                                    coldsnap_hydrate_metrics &metrics) {
  if (!cufile_) return no_cufile_;
  try {
    if (const char *reason = CuFileReading::why_not(*this, request)) return reason;
    read_by<CuFileReading>(request, metrics);
    metrics.engine = COLDSNAP_HYDRATE_ENGINE_CUFILE;
    return {};
  } catch (const Failure &failure) {
    // Whatever libcufile did, also wrong bytes: what the file holds, the ring's way tells.
    const bool is_wanted = failure.code == COLDSNAP_HYDRATE_CANCELLED ||
                           failure.code == COLDSNAP_HYDRATE_DEADLINE ||
                           failure.code == COLDSNAP_HYDRATE_INVALID;
    if (is_wanted) throw;
    if (failure.code != COLDSNAP_HYDRATE_DIFFERS) return failure.message;
    return text("cuFile brought other bytes: extent %llu, chunk %llu",
                static_cast<unsigned long long>(failure.place.extent),
                static_cast<unsigned long long>(failure.place.chunk));
  }
}

// The first extents by the ring, the next by libcufile, the rest by whichever was faster.
void Session::read_measured(const coldsnap_hydrate_request &request,
                            coldsnap_hydrate_metrics &metrics) {
  const auto start = Clock::now();
  const Trial trial(request);
  if (!cufile_ || !trial.is_worth_it()) {
    read_by_ring(request, metrics);
    set_reason(metrics, cufile_ ? "too little to measure" : no_cufile_);
    return;
  }
  coldsnap_hydrate_metrics by_ring{}, by_cufile{}, rest{};
  read_by_ring(left_of(trial.part(0), start), by_ring);
  std::string reason = read_by_cufile(left_of(trial.part(1), start), by_cufile);
  if (!reason.empty()) {
    read_by_ring(left_of(trial.part(1), start), by_cufile);
  } else if (rate_of(by_cufile) <= rate_of(by_ring)) {
    reason = text("libcufile read %.1f GB/s, the ring %.1f", rate_of(by_cufile), rate_of(by_ring));
  }
  const auto last = left_of(trial.part(2), start);
  std::string later = reason;
  if (reason.empty()) later = read_by_cufile(last, rest);
  if (!later.empty()) read_by_ring(last, rest);
  metrics = rest;
  for (const auto *part : {&by_ring, &by_cufile}) add(metrics, *part);
  metrics.wall_ns = nanoseconds_since(start);
  // Of the last part alone: they do not tell of the whole.
  metrics.first_ns = 0;
  std::fill_n(metrics.mark_ns, COLDSNAP_HYDRATE_MARKS, 0);
  set_reason(metrics, later);
}

void Session::write(const coldsnap_hydrate_request &request, coldsnap_hydrate_metrics &metrics) {
  const std::lock_guard lock(one_call_);
  open_lanes();
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
