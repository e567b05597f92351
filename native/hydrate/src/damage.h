// What is said of bytes that are not what the index promises.
#pragma once

#include "failure.h"
#include "work.h"

namespace coldsnap::hydrate {

// The digest of a chunk differs.
Failure damaged_chunk(const coldsnap_hydrate_request &request, const Job &job);
// The bytes behind an extent are not zero.
Failure damaged_padding(const coldsnap_hydrate_request &request, uint64_t extent);

bool is_zero(const uint8_t *from, uint64_t bytes);

}  // namespace coldsnap::hydrate
