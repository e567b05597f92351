// The digest of a chunk, in the algorithm that the pack's index names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "coldsnap_hydrate.h"
#include "sha256.h"

extern "C" {
#include "blake3.h"
}

namespace coldsnap::hydrate {

inline constexpr size_t digest_bytes = COLDSNAP_HYDRATE_DIGEST_BYTES;

class Digest {
 public:
  // Throws Failure for an unknown algorithm.
  explicit Digest(uint32_t algorithm);
  void update(const void *data, size_t bytes);
  // Two chunks at once, which costs SHA-256 little more time than one.
  static void update_two(Digest &first, const void *first_data, size_t first_bytes, Digest &second,
                         const void *second_data, size_t second_bytes);
  void finish(uint8_t *digest);
  bool is_made() const { return !std::holds_alternative<std::monostate>(hasher_); }

 private:
  std::variant<std::monostate, Sha256, blake3_hasher> hasher_;
};

}  // namespace coldsnap::hydrate
