// BLAKE3 of a chunk in device memory: proves the bytes where they end, while the next are copied.
//
// A thread hashes a leaf of 1 KiB, a block merges its 128 leaves; the block that ends last merges
// what the others left. Written from the BLAKE3 specification. tests/device_blake3.cpp compiles
// this file for the processor and compares it with the reference; device/build makes blake3.fatbin.
using u8 = unsigned char;
using u32 = unsigned int;
using u64 = unsigned long long;

constexpr u32 chunk_start = 1, chunk_end = 2, parent = 4, root = 8;
constexpr u32 leaf_bytes = 1024, block_bytes = 64, leaves_per_group = 128, most_groups = 1024;

__device__ __forceinline__ u32 rotated(u32 x, int bits) { return x >> bits | x << (32 - bits); }

__device__ __forceinline__ void mix(u32 *v, int a, int b, int c, int d, u32 x, u32 y) {
  v[a] += v[b] + x, v[d] = rotated(v[d] ^ v[a], 16);
  v[c] += v[d], v[b] = rotated(v[b] ^ v[c], 12);
  v[a] += v[b] + y, v[d] = rotated(v[d] ^ v[a], 8);
  v[c] += v[d], v[b] = rotated(v[b] ^ v[c], 7);
}

// The initial state, of which the first half is the key.
__device__ __forceinline__ void begin(u32 *v) {
  constexpr u32 start[8] = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
                            0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};
#pragma unroll
  for (int i = 0; i < 8; i++) v[i] = start[i];
}

__device__ __forceinline__ void compress(u32 *cv, const u32 *m, u64 counter, u32 bytes, u32 flags) {
  constexpr u8 order[7][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                               {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8},
                               {3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1},
                               {10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6},
                               {12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4},
                               {9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7},
                               {11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13}};
  u32 v[16], first[8];
  begin(first);
#pragma unroll
  for (int i = 0; i < 8; i++) v[i] = cv[i];
#pragma unroll
  for (int i = 0; i < 4; i++) v[8 + i] = first[i];
  v[12] = static_cast<u32>(counter), v[13] = static_cast<u32>(counter >> 32);
  v[14] = bytes, v[15] = flags;
#pragma unroll
  for (int round = 0; round < 7; round++) {
    const u8 *o = order[round];
    mix(v, 0, 4, 8, 12, m[o[0]], m[o[1]]), mix(v, 1, 5, 9, 13, m[o[2]], m[o[3]]);
    mix(v, 2, 6, 10, 14, m[o[4]], m[o[5]]), mix(v, 3, 7, 11, 15, m[o[6]], m[o[7]]);
    mix(v, 0, 5, 10, 15, m[o[8]], m[o[9]]), mix(v, 1, 6, 11, 12, m[o[10]], m[o[11]]);
    mix(v, 2, 7, 8, 13, m[o[12]], m[o[13]]), mix(v, 3, 4, 9, 14, m[o[14]], m[o[15]]);
  }
#pragma unroll
  for (int i = 0; i < 8; i++) cv[i] = v[i] ^ v[i + 8];
}

// A block of a leaf as words; `here` bytes of it are there, zeros stand for the rest. Bytes at odd
// addresses are put together from aligned words, which may hold up to three bytes of neighbours.
__device__ __forceinline__ void load(u32 *m, const u8 *from, u32 here, bool is_aligned) {
  if (here == block_bytes && is_aligned) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint4 four = reinterpret_cast<const uint4 *>(from)[i];
      m[4 * i] = four.x, m[4 * i + 1] = four.y, m[4 * i + 2] = four.z, m[4 * i + 3] = four.w;
    }
    return;
  }
  const u32 skipped = static_cast<u32>(reinterpret_cast<u64>(from) % 4);
  const u32 *words = reinterpret_cast<const u32 *>(from - skipped);
  u32 low = here > 0 ? words[0] : 0;
#pragma unroll
  for (u32 i = 0; i < 16; i++) {
    const u32 high = 4 * i + 4 < here + skipped ? words[i + 1] : 0;
    m[i] = static_cast<u32>((static_cast<u64>(high) << 32 | low) >> 8 * skipped);
    if (4 * i + 4 > here) m[i] = 4 * i < here ? m[i] & ((1U << 8 * (here - 4 * i)) - 1) : 0;
    low = high;
  }
}

__device__ void hash_leaf(u32 *cv, const u8 *data, u64 bytes, u64 leaf, bool is_alone) {
  const u64 left = bytes - leaf * leaf_bytes;
  const u32 mine = left < leaf_bytes ? static_cast<u32>(left) : leaf_bytes;
  const u32 blocks = mine == 0 ? 1 : (mine + block_bytes - 1) / block_bytes;
  const bool is_aligned = reinterpret_cast<u64>(data) % 16 == 0;
  begin(cv);
#pragma unroll 1
  for (u32 block = 0; block < blocks; block++) {
    const u32 at = block * block_bytes;
    const u32 here = mine - at < block_bytes ? mine - at : block_bytes;
    const u32 ends = block + 1 == blocks ? chunk_end | (is_alone ? root : 0) : 0;
    u32 m[16];
    load(m, data + leaf * leaf_bytes + at, here, is_aligned);
    compress(cv, m, leaf, here, (block == 0 ? chunk_start : 0) | ends);
  }
}

// Merges `count` chaining values into the first, level by level: neighbours in pairs, an odd one
// goes up as it is, which is the tree of the specification.
__device__ __noinline__ void merge(u32 *cvs, u32 count, bool is_root) {
  while (count > 1) {
    const u32 pairs = count / 2, odd = count % 2;
    const u32 flags = parent | (is_root && count == 2 ? root : 0);
    u32 last[8];
    for (int i = 0; i < 8; i++) last[i] = cvs[(count - 1) * 8 + i];
    __syncthreads();
    for (u32 base = 0; base < pairs; base += leaves_per_group) {
      const u32 at = base + threadIdx.x;
      u32 cv[8], m[16];
      if (at < pairs) {
        begin(cv);
#pragma unroll
        for (int i = 0; i < 16; i++) m[i] = cvs[at * 16 + i];
        compress(cv, m, 0, block_bytes, flags);
      }
      __syncthreads();
      if (at < pairs) {
        for (int i = 0; i < 8; i++) cvs[at * 8 + i] = cv[i];
      }
      __syncthreads();
    }
    if (odd != 0 && threadIdx.x == 0) {
      for (int i = 0; i < 8; i++) cvs[pairs * 8 + i] = last[i];
    }
    __syncthreads();
    count = pairs + odd;
  }
}

// As src/device_digest.cpp has it.
constexpr u32 most_chunks = 64;
struct Chunk {
  u64 address, bytes;
  u32 scratch, reserved;  // number of its first place in the scratch memory
};
struct Chunks {
  Chunk at[most_chunks];
};

// Row y hashes chunk y; every 128 KiB are a block of the row, at most 1024; what a chunk does not
// need ends at once. `scratch`: places of 32 bytes; `arrived`: a word per chunk, zero before and
// after; `digests`: 32 bytes per chunk.
extern "C" __global__ void __launch_bounds__(leaves_per_group)
    coldsnap_blake3(const __grid_constant__ Chunks chunks, u32 *scratch, u32 *arrived,
                    u32 *digests) {
  __shared__ u32 cvs[most_groups * 8];
  __shared__ u32 is_last;
  const Chunk chunk = chunks.at[blockIdx.y];
  const u64 leaves = chunk.bytes == 0 ? 1 : (chunk.bytes + leaf_bytes - 1) / leaf_bytes;
  const u32 groups = static_cast<u32>((leaves + leaves_per_group - 1) / leaves_per_group);
  if (blockIdx.x >= groups) return;
  const u64 first = static_cast<u64>(blockIdx.x) * leaves_per_group;
  const u64 leaf = first + threadIdx.x;
  if (leaf < leaves) {
    u32 cv[8];
    hash_leaf(cv, reinterpret_cast<const u8 *>(chunk.address), chunk.bytes, leaf, leaves == 1);
    for (int i = 0; i < 8; i++) cvs[threadIdx.x * 8 + i] = cv[i];
  }
  __syncthreads();
  const u64 left = leaves - first;
  merge(cvs, left < leaves_per_group ? static_cast<u32>(left) : leaves_per_group, groups == 1);
  if (groups > 1) {
    u32 *own = scratch + static_cast<u64>(chunk.scratch) * 8;
    if (threadIdx.x < 8) own[blockIdx.x * 8 + threadIdx.x] = cvs[threadIdx.x];
    __threadfence();
    __syncthreads();
    // Counts up to the last block of the chunk, then starts again at zero.
    if (threadIdx.x == 0) is_last = atomicInc(arrived + blockIdx.y, groups - 1) == groups - 1;
    __syncthreads();
    if (is_last == 0) return;
    __threadfence();
    for (u32 i = threadIdx.x; i < groups * 8; i += leaves_per_group) {
      cvs[i] = const_cast<volatile u32 *>(own)[i];
    }
    __syncthreads();
    merge(cvs, groups, true);
  }
  if (threadIdx.x < 8) digests[blockIdx.y * 8 + threadIdx.x] = cvs[threadIdx.x];
}
