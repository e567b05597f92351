#include "digest.h"

#include <cstring>

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

void Digest::finish(uint8_t *digest) {
  if (auto *sha256 = std::get_if<Sha256>(&hasher_)) sha256->finish(digest);
  if (auto *blake3 = std::get_if<blake3_hasher>(&hasher_)) {
    blake3_hasher_finalize(blake3, digest, digest_bytes);
  }
}

}  // namespace coldsnap::hydrate
