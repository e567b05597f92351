// The device's BLAKE3, its source compiled for this processor, against the reference: threads are
// threads, blocks come one after the other, the last one first to find it all there.
#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <random>
#include <thread>
#include <vector>

extern "C" {
#include "blake3.h"
}

namespace {
struct Index {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
thread_local Index threadIdx;
Index blockIdx;
std::barrier all(128);
void __syncthreads() { all.arrive_and_wait(); }
void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
unsigned atomicInc(unsigned *counter, unsigned limit) {
  const unsigned old = *counter;
  *counter = old >= limit ? 0 : old + 1;
  return old;
}
}  // namespace

#define __device__
#define __global__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static
#define __launch_bounds__(threads)
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#include "../device/blake3.cu"

namespace {

constexpr size_t most_bytes = 1'200'000;
constexpr size_t lengths[] = {0,     1,     3,       4,       63,      64,      65,      1023,
                              1024,  1025,  2048,    2049,    3072,    5000,    7168,    131'071,
                              131'072, 131'073, 262'144, 400'000, 1'048'576, 1'200'000};
// Neighbours are not zero.
alignas(16) uint8_t memory[most_bytes + 64];

void run(const Chunks &chunks, u32 *scratch, u32 *arrived, u32 *digests) {
  for (u32 number = 0; number < std::size(lengths); number++) {
    // One block more than there is work for.
    const auto groups = static_cast<u32>(lengths[number] / (leaves_per_group * leaf_bytes) + 2);
    for (u32 block = 0; block < groups; block++) {
      blockIdx = {groups - 1 - block, number};
      std::vector<std::thread> threads;
      for (u32 thread = 0; thread < leaves_per_group; thread++) {
        threads.emplace_back([&, thread] {
          threadIdx = {thread, 0};
          coldsnap_blake3(chunks, scratch, arrived, digests);
        });
      }
      for (auto &thread : threads) thread.join();
    }
  }
}

// All lengths in one launch, at an odd place each.
bool is_right(size_t shift) {
  Chunks chunks{};
  u32 used = 0, count = 0;
  for (const size_t bytes : lengths) {
    const size_t leaves = bytes == 0 ? 1 : (bytes + leaf_bytes - 1) / leaf_bytes;
    const auto groups = static_cast<u32>((leaves + leaves_per_group - 1) / leaves_per_group);
    chunks.at[count++] = {reinterpret_cast<u64>(memory + shift), bytes, used, 0};
    used += groups;
  }
  std::vector<u32> scratch(8 * used), arrived(count), digests(8 * count);
  run(chunks, scratch.data(), arrived.data(), digests.data());
  for (size_t i = 0; i < count; i++) {
    uint8_t wanted[32];
    blake3_hasher hasher;
    blake3_hasher_init(&hasher);
    blake3_hasher_update(&hasher, memory + shift, lengths[i]);
    blake3_hasher_finalize(&hasher, wanted, sizeof wanted);
    if (memcmp(digests.data() + 8 * i, wanted, sizeof wanted) != 0 || arrived[i] != 0) {
      fprintf(stderr, "%zu bytes at %zu differ\n", lengths[i], shift);
      return false;
    }
  }
  return true;
}

}  // namespace

int main() {
  std::mt19937 random(1);
  for (auto &byte : memory) byte = static_cast<uint8_t>(random());
  for (const size_t shift : {16, 17, 18, 19, 20}) {
    if (!is_right(shift)) return 1;
  }
  printf("all digests are right\n");
  return 0;
}
