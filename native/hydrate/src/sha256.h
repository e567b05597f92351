// SHA-256 (FIPS 180-4): portable, and with the processor's SHA instructions where it has them.
//
// Written out here so that the library needs nothing but libc: a process that is captured must not
// have libcrypto mapped that another host may not have.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace coldsnap::hydrate {

class Sha256 {
 public:
  Sha256();
  void update(const void *data, size_t bytes);
  void finish(uint8_t *digest);

  // The same bytes into two hashes; the instructions of both overlap.
  static void update_both(Sha256 &first, Sha256 &second, const void *data, size_t bytes);
  // Different bytes of one length into two hashes; twice as fast as one after the other.
  static void update_two(Sha256 &first, const void *first_data, Sha256 &second,
                         const void *second_data, size_t bytes);

 private:
  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> block_;
  size_t held_ = 0;
  uint64_t total_ = 0;
};

}  // namespace coldsnap::hydrate
