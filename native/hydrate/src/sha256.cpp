#include "sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace coldsnap::hydrate {

namespace {

using Compress = void (*)(uint32_t *state, const uint8_t *data, size_t blocks);

constexpr uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_endian(const uint8_t *data) {
  uint32_t word;
  memcpy(&word, data, sizeof word);
  return std::endian::native == std::endian::little ? __builtin_bswap32(word) : word;
}

void compress_portable(uint32_t *state, const uint8_t *data, size_t blocks) {
  for (; blocks > 0; blocks--, data += 64) {
    uint32_t w[64];
    for (int i = 0; i < 16; i++) w[i] = big_endian(data + 4 * i);
    for (int i = 16; i < 64; i++) {
      const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i++) {
      const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + constants[i] + w[i];
      const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const uint32_t added[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; i++) state[i] += added[i];
  }
}

#if defined(__x86_64__)
#define COLDSNAP_SHA __attribute__((target("sha,sse4.1,ssse3")))

// The two registers in the order that the instructions want: ABEF and CDGH.
struct Registers {
  __m128i abef, cdgh;
};

COLDSNAP_SHA inline Registers load(const uint32_t *state) {
  const auto low = _mm_loadu_si128(reinterpret_cast<const __m128i *>(state));
  const auto high = _mm_loadu_si128(reinterpret_cast<const __m128i *>(state + 4));
  const auto badc = _mm_shuffle_epi32(low, 0xB1);
  const auto hgfe = _mm_shuffle_epi32(high, 0x1B);
  return {_mm_alignr_epi8(badc, hgfe, 8), _mm_blend_epi16(hgfe, badc, 0xF0)};
}

COLDSNAP_SHA inline void store(uint32_t *state, Registers registers) {
  const auto feba = _mm_shuffle_epi32(registers.abef, 0x1B);
  const auto dchg = _mm_shuffle_epi32(registers.cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i *>(state), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i *>(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

COLDSNAP_SHA inline __m128i words(const uint8_t *data) {
  const auto order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  return _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i *>(data)), order);
}

COLDSNAP_SHA inline void four_rounds(Registers &r, __m128i keyed) {
  r.cdgh = _mm_sha256rnds2_epu32(r.cdgh, r.abef, keyed);
  r.abef = _mm_sha256rnds2_epu32(r.abef, r.cdgh, _mm_shuffle_epi32(keyed, 0x0E));
}

// `lanes` states take the same data: the schedule is computed once, and the rounds of one state
// fill the time that those of the other wait for their results.
template <int lanes>
COLDSNAP_SHA void compress_lanes(uint32_t *const *states, const uint8_t *data, size_t blocks) {
  Registers now[lanes];
  for (int lane = 0; lane < lanes; lane++) now[lane] = load(states[lane]);
  for (; blocks > 0; blocks--, data += 64) {
    Registers before[lanes];
    for (int lane = 0; lane < lanes; lane++) before[lane] = now[lane];
    __m128i w[4];
    for (int i = 0; i < 4; i++) w[i] = words(data + 16 * i);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
      const auto k = _mm_loadu_si128(reinterpret_cast<const __m128i *>(constants + 4 * i));
      const auto keyed = _mm_add_epi32(w[i % 4], k);
      for (int lane = 0; lane < lanes; lane++) four_rounds(now[lane], keyed);
      if (i < 12) {
        const auto &last = w[(i + 3) % 4];
        auto next = _mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]);
        next = _mm_add_epi32(next, _mm_alignr_epi8(last, w[(i + 2) % 4], 4));
        w[i % 4] = _mm_sha256msg2_epu32(next, last);
      }
    }
    for (int lane = 0; lane < lanes; lane++) {
      now[lane].abef = _mm_add_epi32(now[lane].abef, before[lane].abef);
      now[lane].cdgh = _mm_add_epi32(now[lane].cdgh, before[lane].cdgh);
    }
  }
  for (int lane = 0; lane < lanes; lane++) store(states[lane], now[lane]);
}

// Two messages: one waits for its results while the other computes.
COLDSNAP_SHA void compress_two(uint32_t *const *states, const uint8_t *const *data, size_t blocks) {
  Registers now[2] = {load(states[0]), load(states[1])};
  for (size_t block = 0; block < blocks; block++) {
    const Registers before[2] = {now[0], now[1]};
    __m128i w[2][4];
    for (int i = 0; i < 4; i++) {
      for (int lane = 0; lane < 2; lane++) {
        w[lane][i] = words(data[lane] + 64 * block + 16 * static_cast<size_t>(i));
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
      const auto k = _mm_loadu_si128(reinterpret_cast<const __m128i *>(constants + 4 * i));
#pragma GCC unroll 2
      for (int lane = 0; lane < 2; lane++) {
        four_rounds(now[lane], _mm_add_epi32(w[lane][i % 4], k));
        if (i < 12) {
          const auto &last = w[lane][(i + 3) % 4];
          auto next = _mm_sha256msg1_epu32(w[lane][i % 4], w[lane][(i + 1) % 4]);
          next = _mm_add_epi32(next, _mm_alignr_epi8(last, w[lane][(i + 2) % 4], 4));
          w[lane][i % 4] = _mm_sha256msg2_epu32(next, last);
        }
      }
    }
    for (int lane = 0; lane < 2; lane++) {
      now[lane].abef = _mm_add_epi32(now[lane].abef, before[lane].abef);
      now[lane].cdgh = _mm_add_epi32(now[lane].cdgh, before[lane].cdgh);
    }
  }
  for (int lane = 0; lane < 2; lane++) store(states[lane], now[lane]);
}

void compress_sha_ni(uint32_t *state, const uint8_t *data, size_t blocks) {
  compress_lanes<1>(&state, data, blocks);
}

bool has_sha_ni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b >> 29 & 1) != 0 &&
         __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("ssse3");
}
#else
bool has_sha_ni() { return false; }
#endif

const bool fast = has_sha_ni();

Compress chosen() {
#if defined(__x86_64__)
  if (fast) return compress_sha_ni;
#endif
  return compress_portable;
}

const Compress compress = chosen();

}  // namespace

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19},
      block_{} {}

void Sha256::update(const void *data, size_t bytes) {
  if (bytes == 0) return;
  auto *at = static_cast<const uint8_t *>(data);
  total_ += bytes;
  if (held_ > 0) {
    const size_t taken = std::min(bytes, block_.size() - held_);
    memcpy(block_.data() + held_, at, taken);
    held_ += taken, at += taken, bytes -= taken;
    if (held_ < block_.size()) return;
    compress(state_.data(), block_.data(), 1);
    held_ = 0;
  }
  compress(state_.data(), at, bytes / 64);
  held_ = bytes % 64;
  if (held_ > 0) memcpy(block_.data(), at + bytes - held_, held_);
}

void Sha256::update_both(Sha256 &first, Sha256 &second, const void *data, size_t bytes) {
#if defined(__x86_64__)
  if (fast && first.held_ == 0 && second.held_ == 0) {
    const size_t whole = bytes / 64 * 64;
    uint32_t *const states[] = {first.state_.data(), second.state_.data()};
    compress_lanes<2>(states, static_cast<const uint8_t *>(data), whole / 64);
    first.total_ += whole;
    second.total_ += whole;
    data = static_cast<const uint8_t *>(data) + whole;
    bytes -= whole;
  }
#endif
  first.update(data, bytes);
  second.update(data, bytes);
}

void Sha256::update_two(Sha256 &first, const void *first_data, Sha256 &second,
                        const void *second_data, size_t bytes) {
  const auto *data0 = static_cast<const uint8_t *>(first_data);
  const auto *data1 = static_cast<const uint8_t *>(second_data);
#if defined(__x86_64__)
  if (fast && first.held_ == 0 && second.held_ == 0) {
    const size_t whole = bytes / 64 * 64;
    uint32_t *const states[] = {first.state_.data(), second.state_.data()};
    const uint8_t *const data[] = {data0, data1};
    compress_two(states, data, whole / 64);
    first.total_ += whole;
    second.total_ += whole;
    data0 += whole, data1 += whole, bytes -= whole;
  }
#endif
  first.update(data0, bytes);
  second.update(data1, bytes);
}

void Sha256::finish(uint8_t *digest) {
  const uint64_t bits = total_ * 8;
  uint8_t tail[72] = {0x80};
  const size_t zeros = (held_ < 56 ? 56 : 120) - held_;
  for (size_t i = 0; i < 8; i++) tail[zeros + i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
  update(tail, zeros + 8);
  for (size_t i = 0; i < 8; i++) {
    for (size_t j = 0; j < 4; j++) {
      digest[4 * i + j] = static_cast<uint8_t>(state_[i] >> (24 - 8 * j));
    }
  }
}

}  // namespace coldsnap::hydrate
