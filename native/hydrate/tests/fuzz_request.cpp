// libFuzzer: any bytes as an extent table with digests over a small file. Nothing may crash, and
// what is accepted must have been inside the file and the memory.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "coldsnap_hydrate.h"

namespace {

constexpr size_t file_bytes = 64 << 10;
constexpr size_t memory_bytes = 64 << 10;
constexpr size_t most_extents = 64;

struct Head {
  uint64_t file_bytes, chunk_bytes, digest_count;
  uint8_t algorithm, check_padding, io, place;
};

coldsnap_hydrate_session *open_session(uint32_t io, uint32_t place) {
  coldsnap_hydrate_settings settings{};
  settings.struct_bytes = sizeof settings;
  settings.threads = 2;
  settings.slots = 1;
  settings.slot_bytes = 8192;
  settings.io = io;
  settings.place = place;
  coldsnap_hydrate_session *session = nullptr;
  if (coldsnap_hydrate_open(&settings, &session) != 0) abort();
  return session;
}

const char *make_file() {
  static char path[] = "/tmp/coldsnap-fuzz-XXXXXX";
  const int file = mkstemp(path);
  const std::vector<uint8_t> bytes(file_bytes, 0x5A);
  if (file < 0 || write(file, bytes.data(), bytes.size()) != file_bytes) abort();
  close(file);
  atexit([] { unlink(path); });
  return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *path = make_file();
  static coldsnap_hydrate_session *sessions[2][2] = {
      {open_session(0, 0), open_session(0, 1)}, {open_session(2, 0), open_session(2, 1)}};
  Head head{};
  if (size < sizeof head) return 0;
  memcpy(&head, data, sizeof head);
  data += sizeof head, size -= sizeof head;
  std::vector<coldsnap_hydrate_extent> extents(
      std::min(most_extents, size / sizeof(coldsnap_hydrate_extent)));
  if (!extents.empty()) memcpy(extents.data(), data, extents.size() * sizeof extents[0]);
  // Addresses are the caller's own; here they are kept inside a buffer, which ASan guards.
  std::vector<uint8_t> memory(memory_bytes);
  for (auto &extent : extents) {
    const uint64_t room = extent.length < memory_bytes ? memory_bytes - extent.length : 0;
    if (extent.length > memory_bytes) extent.length |= uint64_t{1} << 40;
    extent.address = reinterpret_cast<uint64_t>(memory.data()) + extent.address % (room + 1);
  }
  std::vector<uint8_t> digests(32 * std::min<uint64_t>(head.digest_count, 256));
  coldsnap_hydrate_request request{};
  request.struct_bytes = sizeof request;
  request.algorithm = head.algorithm % 4;
  request.path = path;
  request.file_bytes = head.file_bytes % 2 == 0 ? file_bytes : head.file_bytes;
  request.extents = extents.data();
  request.extent_count = extents.size();
  request.chunk_bytes = head.chunk_bytes;
  request.digests = digests.data();
  request.digest_count = digests.size() / 32;
  request.check_padding = head.check_padding % 2;
  coldsnap_hydrate_metrics metrics{};
  metrics.struct_bytes = sizeof metrics;
  auto *session = sessions[head.io % 2][head.place % 2];
  if (coldsnap_hydrate_read(session, &request, &metrics) != 0) return 0;
  uint64_t total = 0;
  for (const auto &extent : extents) total += extent.length;
  if (total > file_bytes || metrics.bytes != total) abort();
  return 0;
}
