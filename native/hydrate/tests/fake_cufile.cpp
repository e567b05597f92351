// A libcufile.so.0 without a device, for tests, beside the fake of libcuda whose device memory is
// host memory. FAKE_CUFILE: open, properties, compat, register: what fails; read, errno: reads fail
// by code or by errno from the third on; short: reads give half; empty: nothing; wrong: a byte of
// the third read is another. FAKE_CUFILE_DELAY_US: pause before each read.
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<long> drivers, handles, reads;

bool is(const char *fault) {
  const char *wanted = getenv("FAKE_CUFILE");
  return wanted != nullptr && strcmp(wanted, fault) == 0;
}

struct Result {
  int code, cuda;
};
struct Description {
  int type, padding, descriptor, more;
  const void *operations;
};

}  // namespace

extern "C" {

Result cuFileDriverOpen() {
  if (is("open")) return {5002, 0};
  drivers++;
  reads = 0;
  return {0, 0};
}
Result cuFileDriverClose() {
  drivers--;
  return {0, 0};
}
Result cuFileDriverGetProperties(void *properties) {
  if (is("properties")) return {5003, 0};
  auto *numbers = static_cast<unsigned *>(properties);
  numbers[6] = is("compat") ? 0 : 1 << 4;  // behind two numbers and two sizes: NVMe
  return {0, 0};
}
Result cuFileHandleRegister(void **handle, Description *description) {
  if (is("register") || description->type != 1) return {5027, 0};
  *handle = new int(description->descriptor);
  handles++;
  return {0, 0};
}
void cuFileHandleDeregister(void *handle) {
  delete static_cast<int *>(handle);
  handles--;
}
ssize_t cuFileRead(void *handle, void *memory, size_t bytes, off_t offset, off_t memory_offset) {
  const long number = reads++;
  if (const char *pause = getenv("FAKE_CUFILE_DELAY_US")) usleep(static_cast<unsigned>(atoi(pause)));
  if (number >= 2 && is("read")) return -5030;
  if (number >= 2 && is("errno")) {
    errno = EIO;
    return -1;
  }
  if (is("empty")) return 0;
  if (is("short") && bytes > 1) bytes /= 2;
  // The real one takes any size and memory of an O_DIRECT descriptor, pread does not.
  auto *whole = static_cast<char *>(aligned_alloc(4096, (bytes / 4096 + 2) * 4096));
  const off_t skipped = offset % 4096;
  const ssize_t count = pread(*static_cast<int *>(handle), whole, (bytes / 4096 + 2) * 4096,
                              offset - skipped);
  const ssize_t moved = count < 0 ? count
                        : count - skipped < static_cast<ssize_t>(bytes) ? count - skipped
                                                                        : static_cast<ssize_t>(bytes);
  auto *to = static_cast<char *>(memory) + memory_offset;
  if (moved > 0) memcpy(to, whole + skipped, static_cast<size_t>(moved));
  if (moved > 0 && number == 2 && is("wrong")) to[0] ^= 1;
  free(whole);
  return moved;
}

// What is left over, and the reads so far, for tests.
void fake_cufile_left(long *counts) {
  counts[0] = drivers, counts[1] = handles, counts[2] = reads;
}
}
