#include "damage.h"

#include <cstring>

namespace coldsnap::hydrate {

namespace {
using Number = unsigned long long;
}

Failure damaged_chunk(const coldsnap_hydrate_request &request, const Job &job) {
  return Failure(COLDSNAP_HYDRATE_DIFFERS,
                 text("%s is damaged: extent %llu, chunk %llu (bytes %llu to %llu)", request.path,
                      Number{job.extent}, Number{job.chunk}, Number{job.offset},
                      Number{job.offset + job.bytes}),
                 {job.extent, job.chunk});
}

Failure damaged_padding(const coldsnap_hydrate_request &request, uint64_t extent) {
  return Failure(COLDSNAP_HYDRATE_PADDING,
                 text("%s is damaged: the bytes behind extent %llu are not zero", request.path,
                      Number{extent}),
                 {extent, nowhere});
}

bool is_zero(const uint8_t *from, uint64_t bytes) {
  // Equal to itself moved by one, and the first is zero: all are.
  return bytes == 0 || (from[0] == 0 && memcmp(from, from + 1, bytes - 1) == 0);
}

}  // namespace coldsnap::hydrate
