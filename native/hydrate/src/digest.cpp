#include "digest.h"

#include <algorithm>

#include "failure.h"

namespace coldsnap::hydrate {

Digest::Digest(uint32_t algorithm) {
  switch (algorithm) {
    case COLDSNAP_HYDRATE_UNVERIFIED:
      return;
    case COLDSNAP_HYDRATE_SHA256:
      hasher_.emplace<Sha256>();
      return;
    case COLDSNAP_HYDRATE_BLAKE3:
      blake3_hasher_init(&hasher_.emplace<blake3_hasher>());
      return;
    default:
      throw Failure(COLDSNAP_HYDRATE_INVALID, text("digest algorithm %u is unknown", algorithm));
  }
}

void Digest::update(const void *data, size_t bytes) {
  if (auto *sha256 = std::get_if<Sha256>(&hasher_)) sha256->update(data, bytes);
  if (auto *blake3 = std::get_if<blake3_hasher>(&hasher_)) blake3_hasher_update(blake3, data, bytes);
}

void Digest::update_two(Digest &first, const void *first_data, size_t first_bytes, Digest &second,
                        const void *second_data, size_t second_bytes) {
  auto *one = std::get_if<Sha256>(&first.hasher_), *two = std::get_if<Sha256>(&second.hasher_);
  size_t both = 0;
  if (one != nullptr && two != nullptr) {
    both = std::min(first_bytes, second_bytes);
    Sha256::update_two(*one, first_data, *two, second_data, both);
  }
  first.update(static_cast<const uint8_t *>(first_data) + both, first_bytes - both);
  second.update(static_cast<const uint8_t *>(second_data) + both, second_bytes - both);
}

void Digest::finish(uint8_t *digest) {
  if (auto *sha256 = std::get_if<Sha256>(&hasher_)) sha256->finish(digest);
  if (auto *blake3 = std::get_if<blake3_hasher>(&hasher_)) {
    blake3_hasher_finalize(blake3, digest, digest_bytes);
  }
}

}  // namespace coldsnap::hydrate
