// coldsnap_hydrate_cycles N FOLDER [LIBCUDA [LIBCUFILE]]: N sessions, each writes a small file, reads it back,
// meets a failure and is closed. Run under the sanitizers: nothing may be left over.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "coldsnap_hydrate.h"

namespace {

constexpr uint64_t chunk = 8192;
constexpr uint64_t lengths[] = {10'000, 0, 1, 40'960};

int fail(const char *what, int code) {
  fprintf(stderr, "%s: %d: %s\n", what, code, coldsnap_hydrate_error());
  return 1;
}

struct Cycle {
  std::vector<uint8_t> memory = std::vector<uint8_t>(1 << 17);
  std::vector<coldsnap_hydrate_extent> extents;
  std::vector<uint8_t> digests, extent_sha256 = std::vector<uint8_t>(32 * 4);
  uint8_t body_sha256[32] = {};
  coldsnap_hydrate_request request{};

  Cycle(const char *path, int number) {
    uint64_t at = 0, chunks = 0;
    for (const uint64_t length : lengths) {
      extents.push_back({at, length, reinterpret_cast<uint64_t>(memory.data()) + at});
      for (uint64_t i = 0; i < length; i++) {
        memory[at + i] = static_cast<uint8_t>(i * 7 + static_cast<uint64_t>(number));
      }
      chunks += (length + chunk - 1) / chunk;
      at += (length + 4095) / 4096 * 4096;
    }
    digests.resize(chunks * 32);
    request.struct_bytes = sizeof request;
    request.algorithm = number % 2 == 0 ? COLDSNAP_HYDRATE_SHA256 : COLDSNAP_HYDRATE_BLAKE3;
    request.path = path;
    request.file_bytes = at;
    request.extents = extents.data();
    request.extent_count = extents.size();
    request.chunk_bytes = chunk;
    request.digests = digests.data();
    request.digest_count = chunks;
    request.extent_sha256 = extent_sha256.data();
    request.body_sha256 = body_sha256;
  }

  int run(coldsnap_hydrate_session *session, bool with_padding) {
    if (int code = coldsnap_hydrate_write(session, &request, nullptr)) return fail("write", code);
    const auto written = memory;
    memset(memory.data(), 0xEE, memory.size());
    request.check_padding = with_padding ? 1 : 0;
    if (int code = coldsnap_hydrate_read(session, &request, nullptr)) return fail("read", code);
    for (const auto &extent : extents) {
      const auto at = extent.offset;
      if (memcmp(memory.data() + at, written.data() + at, extent.length) != 0) {
        return fail("bytes differ", 0);
      }
    }
    digests[0] ^= 1;
    const int code = coldsnap_hydrate_read(session, &request, nullptr);
    return code == COLDSNAP_HYDRATE_DIFFERS ? 0 : fail("a wrong digest was taken", code);
  }
};

}  // namespace

int main(int count, char **arguments) {
  if (count < 3) return 2;
  const std::string path = std::string(arguments[2]) + "/cycle.pack";
  for (int i = 0; i < atoi(arguments[1]); i++) {
    coldsnap_hydrate_settings settings{};
    settings.struct_bytes = sizeof settings;
    settings.threads = 3;
    settings.slot_bytes = 8192;
    settings.io = static_cast<uint32_t>(i % 3);
    // The fake's device memory is host memory, so the same addresses do for both.
    if (count > 3) {
      settings.place = COLDSNAP_HYDRATE_CUDA;
      settings.cuda_library = arguments[3];
      settings.waits = i % 2 == 0 ? COLDSNAP_HYDRATE_WAITS_SPIN : COLDSNAP_HYDRATE_WAITS_SLEEP;
    }
    if (count > 4) {
      settings.engine = COLDSNAP_HYDRATE_ENGINE_CUFILE;
      settings.cufile_library = arguments[4];
    }
    coldsnap_hydrate_session *session = nullptr;
    if (int code = coldsnap_hydrate_open(&settings, &session)) return fail("open", code);
    const int result = Cycle(path.c_str(), i).run(session, count <= 4);
    coldsnap_hydrate_close(session);
    remove(path.c_str());
    if (result != 0) return result;
  }
  return 0;
}
