// A libcuda.so.1 without a device, for tests: device memory is host memory, streams are threads,
// and the one kernel that it knows is played by the reference.
//
// Copies happen late and out of step with each other, and the source is read when the copy happens:
// a buffer that is reused too early gives wrong bytes. FAKE_CUDA_DELAY_US: pause before each copy.
// FAKE_CUDA_PIN_US: what pinning a MiB takes. FAKE_CUDA_MAP_MS: what mapping takes, during which no
// copy can be started, as where a driver has one lock for both.
// FAKE_CUDA_FAIL: name of a function that fails. FAKE_CUDA_WRONG_DIGESTS: the kernel errs.
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

extern "C" {
#include "blake3.h"
}

namespace {

constexpr size_t granularity = 2 << 20;
std::atomic<long> streams, events, pins, handles, mappings, reservations, contexts,
    modules, allocations;
std::atomic<unsigned long long> next_handle = 1;
std::mutex table;
std::map<unsigned long long, size_t> created;

struct Stream {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool is_busy = false, is_ending = false;
  std::thread thread{[this] { serve(); }};

  void serve() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return is_ending || !queue.empty(); });
      if (queue.empty()) return;
      auto action = std::move(queue.front());
      queue.pop_front();
      is_busy = true;
      lock.unlock();
      action();
      lock.lock();
      is_busy = false;
      changed.notify_all();
    }
  }
  void post(std::function<void()> action) {
    const std::lock_guard lock(mutex);
    queue.push_back(std::move(action));
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return queue.empty() && !is_busy; });
  }
  ~Stream() {
    wait();
    {
      const std::lock_guard lock(mutex);
      is_ending = true;
    }
    changed.notify_all();
    thread.join();
  }
};

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0, reached = 0;
};

int fails(const char *name) {
  const char *wanted = getenv("FAKE_CUDA_FAIL");
  return wanted != nullptr && strcmp(wanted, name) == 0 ? 2 : 0;
}

void delay() {
  const char *pause = getenv("FAKE_CUDA_DELAY_US");
  if (pause != nullptr) std::this_thread::sleep_for(std::chrono::microseconds(atoi(pause)));
}

std::mutex driver;

void take(const char *variable, double milliseconds_each) {
  const char *wanted = getenv(variable);
  if (wanted == nullptr) return;
  std::this_thread::sleep_for(
      std::chrono::duration<double, std::milli>(atoi(wanted) * milliseconds_each));
}

template <typename Number>
void *pointer(Number address) {
  return reinterpret_cast<void *>(static_cast<uintptr_t>(address));
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return fails("cuInit"); }
int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? fails("cuDeviceGet") : 101;
}
int cuDeviceGetPCIBusId(char *, int, int) { return 801; }
int cuDevicePrimaryCtxRetain(void **context, int) {
  *context = &contexts;
  contexts++;
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  contexts--;
  return 0;
}
int cuCtxSetCurrent(void *) { return 0; }
int cuGetErrorString(int, const char **text) {
  *text = "fake failure";
  return 0;
}
int cuMemHostRegister_v2(void *, size_t bytes, unsigned) {
  if (const int code = fails("cuMemHostRegister")) return code;
  take("FAKE_CUDA_PIN_US", static_cast<double>(bytes >> 20) / 1000);
  pins++;
  return 0;
}
int cuMemHostUnregister(void *) {
  pins--;
  return 0;
}
int cuStreamCreate(void **stream, unsigned) {
  if (const int code = fails("cuStreamCreate")) return code;
  *stream = new Stream;
  streams++;
  return 0;
}
int cuStreamDestroy_v2(void *stream) {
  delete static_cast<Stream *>(stream);
  streams--;
  return 0;
}
int cuStreamSynchronize(void *stream) {
  static_cast<Stream *>(stream)->wait();
  return fails("cuStreamSynchronize");
}
int cuEventCreate(void **event, unsigned) {
  if (const int code = fails("cuEventCreate")) return code;
  *event = new Event;
  events++;
  return 0;
}
int cuEventDestroy_v2(void *event) {
  delete static_cast<Event *>(event);
  events--;
  return 0;
}
int cuEventRecord(void *event, void *stream) {
  auto *own = static_cast<Event *>(event);
  uint64_t number;
  {
    const std::lock_guard lock(own->mutex);
    number = ++own->recorded;
  }
  static_cast<Stream *>(stream)->post([own, number] {
    const std::lock_guard lock(own->mutex);
    own->reached = number;
    own->changed.notify_all();
  });
  return 0;
}
int cuEventSynchronize(void *event) {
  auto *own = static_cast<Event *>(event);
  std::unique_lock lock(own->mutex);
  own->changed.wait(lock, [own] { return own->reached == own->recorded; });
  return 0;
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, void *stream) {
  if (const int code = fails("cuMemcpyHtoDAsync")) return code;
  const std::lock_guard lock(driver);
  static_cast<Stream *>(stream)->post([=] {
    delay();
    memcpy(pointer(to), from, bytes);
  });
  return 0;
}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, void *stream) {
  if (const int code = fails("cuMemcpyDtoHAsync")) return code;
  static_cast<Stream *>(stream)->post([=] {
    delay();
    memcpy(to, pointer(from), bytes);
  });
  return 0;
}
int cuStreamWaitEvent(void *stream, void *event, unsigned) {
  auto *own = static_cast<Event *>(event);
  uint64_t number;
  {
    const std::lock_guard lock(own->mutex);
    number = own->recorded;
  }
  static_cast<Stream *>(stream)->post([own, number] {
    std::unique_lock lock(own->mutex);
    own->changed.wait(lock, [=] { return own->reached >= number; });
  });
  return fails("cuStreamWaitEvent");
}
int cuModuleLoadData(void **module, const void *image) {
  if (const int code = fails("cuModuleLoadData")) return code;
  const unsigned fat_binary = 0xBA55ED50;
  if (memcmp(image, &fat_binary, sizeof fat_binary) != 0) return 200;
  *module = &modules;
  modules++;
  return 0;
}
int cuModuleUnload(void *) {
  modules--;
  return 0;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  *function = module;
  return strcmp(name, "coldsnap_blake3") == 0 ? fails("cuModuleGetFunction") : 500;
}
int cuLaunchKernel(void *, unsigned x, unsigned y, unsigned, unsigned threads, unsigned, unsigned,
                   unsigned, void *stream, void **arguments, void **) {
  if (const int code = fails("cuLaunchKernel")) return code;
  struct Chunk {
    unsigned long long address, bytes;
    unsigned scratch, reserved;
  };
  struct Chunks {
    Chunk at[64];
  } chunks;
  memcpy(&chunks, arguments[0], sizeof chunks);
  unsigned long long scratch, digests;
  memcpy(&scratch, arguments[1], sizeof scratch);
  memcpy(&digests, arguments[3], sizeof digests);
  if (threads != 128 || y > 64) return 1;
  const bool is_wrong = getenv("FAKE_CUDA_WRONG_DIGESTS") != nullptr;
  static_cast<Stream *>(stream)->post([=] {
    // Two launches at once in one scratch memory spoil each other's digests.
    static std::mutex mutex;
    static std::map<unsigned long long, int> users;
    const auto use = [scratch](int change) {
      const std::lock_guard lock(mutex);
      return users[scratch] += change;
    };
    const bool is_alone = use(1) == 1;
    delay();
    for (unsigned i = 0; i < y; i++) {
      const auto &chunk = chunks.at[i];
      const auto groups = static_cast<unsigned>((chunk.bytes + (1 << 17) - 1) >> 17);
      auto *digest = static_cast<unsigned char *>(pointer(digests)) + 32 * i;
      memset(digest, 0, 32);
      // A launch that leaves something out, or scratch memory that is not there.
      if (groups > x || is_wrong || !is_alone) continue;
      memset(static_cast<char *>(pointer(scratch)) + 32 * chunk.scratch, 0xEE, 32 * groups);
      blake3_hasher hasher;
      blake3_hasher_init(&hasher);
      blake3_hasher_update(&hasher, pointer(chunk.address), chunk.bytes);
      blake3_hasher_finalize(&hasher, digest, 32);
    }
    use(-1);
  });
  return 0;
}
int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
  if (const int code = fails("cuMemAlloc")) return code;
  *address = reinterpret_cast<uintptr_t>(malloc(bytes));
  allocations++;
  return 0;
}
int cuMemFree_v2(unsigned long long address) {
  free(pointer(address));
  allocations--;
  return 0;
}
int cuMemsetD8_v2(unsigned long long to, unsigned char value, size_t bytes) {
  memset(pointer(to), value, bytes);
  return 0;
}
int cuMemGetAllocationGranularity(size_t *bytes, const void *, int) {
  *bytes = granularity;
  return 0;
}
int cuMemAddressReserve(unsigned long long *address, size_t bytes, size_t, unsigned long long hint,
                        unsigned long long) {
  if (bytes % granularity != 0) return 1;
  void *memory = mmap(pointer(hint), bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return 2;
  *address = reinterpret_cast<uintptr_t>(memory);
  reservations++;
  return 0;
}
int cuMemAddressFree(unsigned long long address, size_t bytes) {
  munmap(pointer(address), bytes);
  reservations--;
  return 0;
}
int cuMemCreate(unsigned long long *handle, size_t bytes, const void *properties,
                unsigned long long) {
  if (const int code = fails("cuMemCreate")) return code;
  // Pinned device memory of device 0, as cuda.h has it: type, handle types, location{type, id}.
  const int wanted[] = {1, 0, 1, 0};
  if (memcmp(properties, wanted, sizeof wanted) != 0) return 1;
  *handle = next_handle++;
  const std::lock_guard lock(table);
  created[*handle] = bytes;
  handles++;
  return 0;
}
int cuMemRelease(unsigned long long handle) {
  const std::lock_guard lock(table);
  if (created.erase(handle) != 1) return 1;
  handles--;
  return 0;
}
int cuMemMap(unsigned long long address, size_t bytes, size_t, unsigned long long handle,
             unsigned long long) {
  if (const int code = fails("cuMemMap")) return code;
  const std::lock_guard busy(driver);
  take("FAKE_CUDA_MAP_MS", 1);
  const std::lock_guard lock(table);
  if (created.count(handle) == 0 || created[handle] != bytes) return 1;
  void *memory = mmap(pointer(address), bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return 2;
  mappings++;
  return 0;
}
int cuMemUnmap(unsigned long long address, size_t bytes) {
  if (const int code = fails("cuMemUnmap")) return code;
  void *memory = mmap(pointer(address), bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  mappings--;
  return memory == MAP_FAILED ? 2 : 0;
}
int cuMemSetAccess(unsigned long long, size_t, const void *description, size_t count) {
  const int wanted[] = {1, 0, 3};  // device 0, read and write
  if (count != 1 || memcmp(description, wanted, sizeof wanted) != 0) return 1;
  return fails("cuMemSetAccess");
}
int cuDeviceGetGraphMemAttribute(int, int attribute, void *value) {
  *static_cast<uint64_t *>(value) = attribute == 0 ? 4096 : 1 << 25;
  return 0;
}

// What is left over, for tests.
void fake_cuda_left(long *counts) {
  const long found[] = {streams, events,       pins,     handles, mappings,
                        reservations, contexts, modules, allocations};
  memcpy(counts, found, sizeof found);
}
}
