// The C border: arguments in, codes out, nothing thrown.
#include "coldsnap_hydrate.h"
#include "digest.h"
#include "failure.h"
#include "region.h"
#include "session.h"
#include "writing.h"

using namespace coldsnap::hydrate;

#define COLDSNAP_EXPORT extern "C" __attribute__((visibility("default")))

struct coldsnap_hydrate_session : Session {
  using Session::Session;
};
struct coldsnap_hydrate_region : Region {
  using Region::Region;
};

namespace {

template <typename Pointer>
Pointer &given(Pointer *pointer, const char *what) {
  if (pointer == nullptr) throw Failure(COLDSNAP_HYDRATE_INVALID, text("%s is NULL", what));
  return *pointer;
}

// Runs a call of a session and fills the caller's numbers also when it fails.
template <typename Call>
int measured(coldsnap_hydrate_metrics *metrics, Call &&call) {
  coldsnap_hydrate_metrics found{};
  found.struct_bytes = sizeof found;
  Place place;
  const int code = guarded([&] {
    if (metrics != nullptr && metrics->struct_bytes != sizeof found) {
      metrics = nullptr;
      throw Failure(COLDSNAP_HYDRATE_INVALID, "the metrics are of another version");
    }
    try {
      call(found);
    } catch (const Failure &failure) {
      place = failure.place;
      throw;
    }
  });
  found.failed_extent = place.extent;
  found.failed_chunk = place.chunk;
  if (metrics != nullptr) *metrics = found;
  return code;
}

}  // namespace

COLDSNAP_EXPORT uint32_t coldsnap_hydrate_abi(void) { return COLDSNAP_HYDRATE_ABI; }

COLDSNAP_EXPORT const char *coldsnap_hydrate_error(void) { return remembered(); }

COLDSNAP_EXPORT int coldsnap_hydrate_open(const coldsnap_hydrate_settings *settings,
                                          coldsnap_hydrate_session **session) {
  return guarded([&] {
    auto &result = given(session, "session");
    result = nullptr;
    result = new coldsnap_hydrate_session(given(settings, "settings"));
  });
}

COLDSNAP_EXPORT void coldsnap_hydrate_close(coldsnap_hydrate_session *session) { delete session; }

COLDSNAP_EXPORT int coldsnap_hydrate_opening_of(const coldsnap_hydrate_session *session,
                                                coldsnap_hydrate_opening *opening) {
  return guarded([&] {
    auto &result = given(opening, "opening");
    if (result.struct_bytes != sizeof result) {
      throw Failure(COLDSNAP_HYDRATE_INVALID, "the opening is of another version");
    }
    result = given(session, "session").opening();
  });
}

COLDSNAP_EXPORT int coldsnap_hydrate_read(coldsnap_hydrate_session *session,
                                          const coldsnap_hydrate_request *request,
                                          coldsnap_hydrate_metrics *metrics) {
  return measured(metrics, [&](coldsnap_hydrate_metrics &found) {
    given(session, "session").read(given(request, "request"), found);
  });
}

COLDSNAP_EXPORT int coldsnap_hydrate_write(coldsnap_hydrate_session *session,
                                           const coldsnap_hydrate_request *request,
                                           coldsnap_hydrate_metrics *metrics) {
  return measured(metrics, [&](coldsnap_hydrate_metrics &found) {
    given(session, "session").write(given(request, "request"), found);
  });
}

COLDSNAP_EXPORT int coldsnap_hydrate_identify(const coldsnap_hydrate_request *request) {
  return guarded([&] { identify_file(given(request, "request")); });
}

COLDSNAP_EXPORT int coldsnap_hydrate_copy_rate(coldsnap_hydrate_session *session, uint64_t address,
                                               uint64_t bytes, coldsnap_hydrate_metrics *metrics) {
  return measured(metrics, [&](coldsnap_hydrate_metrics &found) {
    given(session, "session").copy_rate(address, bytes, found);
  });
}

COLDSNAP_EXPORT int coldsnap_hydrate_digest(uint32_t algorithm, const void *data, uint64_t bytes,
                                            uint8_t *digest) {
  return guarded([&] {
    Digest hasher(algorithm);
    if (!hasher.is_made()) throw Failure(COLDSNAP_HYDRATE_INVALID, "no digest algorithm is named");
    if (bytes > 0) hasher.update(&given(static_cast<const uint8_t *>(data), "data"), bytes);
    hasher.finish(&given(digest, "digest"));
  });
}

COLDSNAP_EXPORT int coldsnap_hydrate_region_make(const char *cuda_library, int32_t device,
                                                 uint64_t bytes, uint64_t address,
                                                 coldsnap_hydrate_region **region) {
  return guarded([&] {
    auto &result = given(region, "region");
    result = nullptr;
    result = new coldsnap_hydrate_region(cuda_library, device, bytes, address);
  });
}

COLDSNAP_EXPORT int coldsnap_hydrate_region_release(coldsnap_hydrate_region *region) {
  return guarded([&] { given(region, "region").release(); });
}

COLDSNAP_EXPORT int coldsnap_hydrate_region_map(coldsnap_hydrate_region *region) {
  return guarded([&] { given(region, "region").map(); });
}

COLDSNAP_EXPORT int coldsnap_hydrate_region_zero(coldsnap_hydrate_region *region) {
  return guarded([&] { given(region, "region").zero(); });
}

COLDSNAP_EXPORT int coldsnap_hydrate_region_state_of(const coldsnap_hydrate_region *region,
                                                     coldsnap_hydrate_region_state *state) {
  return guarded([&] {
    auto &result = given(state, "state");
    if (result.struct_bytes != sizeof result) {
      throw Failure(COLDSNAP_HYDRATE_INVALID, "the state is of another version");
    }
    result = given(region, "region").state();
  });
}

COLDSNAP_EXPORT int coldsnap_hydrate_region_get(coldsnap_hydrate_region *region, uint64_t offset,
                                                void *to, uint64_t bytes) {
  return guarded([&] { given(region, "region").get(offset, to, bytes); });
}

COLDSNAP_EXPORT int coldsnap_hydrate_region_put(coldsnap_hydrate_region *region, uint64_t offset,
                                                const void *from, uint64_t bytes) {
  return guarded([&] { given(region, "region").put(offset, from, bytes); });
}

COLDSNAP_EXPORT int coldsnap_hydrate_region_free(coldsnap_hydrate_region *region) {
  const int code = guarded([&] {
    if (region != nullptr) region->free();
  });
  delete region;
  return code;
}

COLDSNAP_EXPORT int coldsnap_hydrate_graph_memory(const char *cuda_library, int32_t device,
                                                  uint64_t *used, uint64_t *reserved) {
  constexpr int used_now = 0, reserved_now = 2;  // of CUgraphMem_attribute
  return guarded([&] {
    const Cuda cuda(cuda_library, device);
    given(used, "used") = cuda.graph_memory(used_now);
    given(reserved, "reserved") = cuda.graph_memory(reserved_now);
  });
}
