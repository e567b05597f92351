#include "work.h"

#include <algorithm>
#include <numeric>

#include "failure.h"
#include "file.h"

namespace coldsnap::hydrate {

namespace {

using Number = unsigned long long;

[[noreturn]] void refuse(std::string message, Place place = {}) {
  throw Failure(COLDSNAP_HYDRATE_INVALID, std::move(message), place);
}

}  // namespace

Work::Work(const coldsnap_hydrate_request &request, bool needs_address) : request_(request) {
  check_sizes();
  check_extents();
  if (needs_address) check_overlap();
}

void Work::check_sizes() const {
  const auto &r = request_;
  if (r.struct_bytes != sizeof r) {
    refuse(text("the request has %u bytes, not %zu", r.struct_bytes, sizeof r));
  }
  if (r.path == nullptr) refuse("the request names no file");
  if (r.extent_count > most_extents) {
    refuse(text("%llu extents, at most %llu are taken", Number{r.extent_count},
                Number{most_extents}));
  }
  if (r.extent_count > 0 && r.extents == nullptr) refuse("the request has no list of extents");
  if (r.file_bytes > most_file_bytes) refuse("the file's size is impossible");
  const bool is_fit = r.chunk_bytes > 0 && is_aligned(r.chunk_bytes) &&
                      r.chunk_bytes <= most_chunk_bytes;
  if (!is_fit) {
    refuse(text("chunks of %llu bytes: must be a multiple of 4096, at most 1 GiB",
                Number{r.chunk_bytes}));
  }
  if (r.algorithm > COLDSNAP_HYDRATE_BLAKE3) {
    refuse(text("digest algorithm %u is unknown", r.algorithm));
  }
  if (!(r.seconds >= 0)) refuse("the deadline is not a number of seconds");
}

void Work::check_extents() {
  const auto &r = request_;
  uint64_t end = 0, chunks = 0, jobs = 0;
  first_job_.reserve(r.extent_count + 1);
  first_digest_.reserve(r.extent_count);
  for (uint64_t i = 0; i < r.extent_count; i++) {
    const auto &extent = r.extents[i];
    const Place place{i, nowhere};
    if (!is_aligned(extent.offset)) {
      refuse(text("extent %llu is at %llu, no multiple of 4096", Number{i}, Number{extent.offset}),
             place);
    }
    // Both are bounded before they are added: their sum cannot wrap around.
    if (extent.offset > r.file_bytes || extent.length > r.file_bytes - extent.offset) {
      refuse(text("extent %llu (%llu bytes at %llu) is outside the file's %llu bytes", Number{i},
                  Number{extent.length}, Number{extent.offset}, Number{r.file_bytes}),
             place);
    }
    if (extent.offset < end) {
      refuse(text("extent %llu at %llu overlaps the one before it, which ends at %llu", Number{i},
                  Number{extent.offset}, Number{end}),
             place);
    }
    end = extent.offset + extent.length;
    total_bytes_ += extent.length;
    const uint64_t count = (extent.length + r.chunk_bytes - 1) / r.chunk_bytes;
    first_job_.push_back(jobs);
    first_digest_.push_back(chunks);
    jobs += std::max<uint64_t>(count, 1);  // an empty extent may have padding behind it
    chunks += count;
  }
  first_job_.push_back(jobs);
  if (r.algorithm == COLDSNAP_HYDRATE_UNVERIFIED) return;
  if (chunks != r.digest_count || (chunks > 0 && r.digests == nullptr)) {
    refuse(text("%llu digests for %llu chunks", Number{r.digest_count}, Number{chunks}));
  }
}

void Work::check_overlap() const {
  const auto &r = request_;
  std::vector<uint64_t> order(r.extent_count);
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&r](uint64_t i) { return r.extents[i].length == 0; });
  const auto address = [&r](uint64_t i) { return r.extents[i].address; };
  std::sort(order.begin(), order.end(),
            [&](uint64_t a, uint64_t b) { return address(a) < address(b); });
  uint64_t end = 0;
  for (const uint64_t i : order) {
    const Place place{i, nowhere};
    if (address(i) == 0 || address(i) > ~r.extents[i].length) {
      refuse(text("extent %llu has an impossible address", Number{i}), place);
    }
    if (address(i) < end) {
      refuse(text("the memory of extent %llu overlaps that of another", Number{i}), place);
    }
    end = address(i) + r.extents[i].length;
  }
}

Job Work::chunk(uint64_t extent, uint64_t number) const {
  return job(first_job_[extent] + number, extent);
}

Job Work::job(uint64_t number, uint64_t &extent) const {
  if (extent >= request_.extent_count || number < first_job_[extent]) extent = 0;
  if (number >= first_job_[extent + 1]) {
    const auto from = first_job_.begin() + static_cast<ptrdiff_t>(extent);
    const auto found = std::upper_bound(from, first_job_.end(), number);
    extent = static_cast<uint64_t>(found - first_job_.begin()) - 1;
  }
  const auto &whole = request_.extents[extent];
  Job job;
  job.extent = extent;
  job.chunk = number - first_job_[extent];
  const uint64_t start = job.chunk * request_.chunk_bytes;
  job.offset = whole.offset + start;
  job.bytes = std::min(request_.chunk_bytes, whole.length - start);
  job.address = whole.address + start;
  job.digest = first_digest_[extent] + job.chunk;
  job.ends_extent = number + 1 == first_job_[extent + 1];
  if (job.ends_extent) {
    const bool is_last = extent + 1 == request_.extent_count;
    const uint64_t next = is_last ? request_.file_bytes : request_.extents[extent + 1].offset;
    job.padding = next - whole.offset - whole.length;
  }
  return job;
}

}  // namespace coldsnap::hydrate
