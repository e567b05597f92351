#include "region.h"

#include "failure.h"
#include "file.h"
#include "work.h"

namespace coldsnap::hydrate {

namespace {

// Runs `copy` on a stream of its own and waits for it.
template <typename Copy>
void run_alone(const Cuda &cuda, Copy &&copy) {
  cuda.enter();
  const Cuda::Stream stream = cuda.make_stream();
  try {
    copy(stream);
    cuda.wait_stream(stream);
  } catch (...) {
    cuda.drop_stream(stream);
    throw;
  }
  cuda.drop_stream(stream);
}

}  // namespace

Region::Region(const char *library, int device, uint64_t bytes, uint64_t wanted)
    : cuda_(library, device) {
  if (bytes == 0 || bytes > most_file_bytes) {
    throw Failure(COLDSNAP_HYDRATE_INVALID, "a region of an impossible size");
  }
  cuda_.enter();
  const uint64_t step = cuda_.granularity();
  bytes_ = (bytes + step - 1) / step * step;
  address_ = cuda_.reserve(bytes_, wanted);
  try {
    // CUDA takes a wanted address as a hint only.
    if (wanted != 0 && address_ != wanted) {
      throw Failure(COLDSNAP_HYDRATE_DEVICE,
                    text("device address 0x%llx is taken", static_cast<unsigned long long>(wanted)));
    }
    map_locked();
  } catch (...) {
    cuda_.unreserve(address_, bytes_);
    throw;
  }
}

Region::~Region() {
  try {
    free();
  } catch (const Failure &) {
    // The driver will not take it back; the process's end will.
  }
}

void Region::free() {
  const std::lock_guard lock(mutex_);
  if (address_ == 0) return;
  cuda_.enter();
  release_locked();
  cuda_.unreserve(address_, bytes_);
  address_ = 0;
}

void Region::map() {
  const std::lock_guard lock(mutex_);
  cuda_.enter();
  map_locked();
}

void Region::map_locked() {
  if (is_mapped_) return;
  const Cuda::Handle handle = cuda_.create(bytes_);
  try {
    cuda_.map(address_, bytes_, handle);
  } catch (...) {
    cuda_.release(handle);
    throw;
  }
  is_mapped_ = true;
  epoch_++;
  // The mapping holds the memory from here on: one unmap gives it back.
  cuda_.release(handle);
}

void Region::release() {
  const std::lock_guard lock(mutex_);
  cuda_.enter();
  release_locked();
}

void Region::release_locked() {
  if (!is_mapped_) return;
  cuda_.unmap(address_, bytes_);
  is_mapped_ = false;
}

void Region::zero() {
  const std::lock_guard lock(mutex_);
  check_range(0, bytes_);
  cuda_.enter();
  cuda_.zero(address_, bytes_);
}

void Region::check_range(uint64_t offset, uint64_t bytes) const {
  if (!is_mapped_) throw Failure(COLDSNAP_HYDRATE_INVALID, "the region has no memory now");
  if (offset > bytes_ || bytes > bytes_ - offset) {
    throw Failure(COLDSNAP_HYDRATE_INVALID, "that is outside the region");
  }
}

void Region::get(uint64_t offset, void *to, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  check_range(offset, bytes);
  run_alone(cuda_, [&](Cuda::Stream stream) {
    cuda_.copy_out(to, address_ + offset, bytes, stream);
  });
}

void Region::put(uint64_t offset, const void *from, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  check_range(offset, bytes);
  run_alone(cuda_, [&](Cuda::Stream stream) {
    cuda_.copy_in(address_ + offset, from, bytes, stream);
  });
}

coldsnap_hydrate_region_state Region::state() const {
  const std::lock_guard lock(mutex_);
  coldsnap_hydrate_region_state state{};
  state.struct_bytes = sizeof state;
  state.mapped = is_mapped_ ? 1 : 0;
  state.address = address_;
  state.bytes = bytes_;
  state.epoch = epoch_;
  return state;
}

}  // namespace coldsnap::hydrate
