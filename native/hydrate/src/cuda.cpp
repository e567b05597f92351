#include "cuda.h"

#include <dlfcn.h>

#include <cstdio>
#include <memory>

#include "failure.h"

namespace coldsnap::hydrate {

namespace {

// Values and layouts of cuda.h, which is not needed to build this.
constexpr int location_device = 1;
constexpr int allocation_pinned = 1;
constexpr int access_read_write = 3;
constexpr unsigned register_portable = 1;
constexpr unsigned stream_non_blocking = 1;
constexpr unsigned event_blocking = 1, event_without_timing = 2;

struct Location {
  int type, id;
};
struct AllocationFlags {
  unsigned char compression, gpu_direct_rdma;
  unsigned short usage;
  unsigned char reserved[4];
};
struct AllocationProperties {
  int type, handle_types;
  Location location;
  void *windows;
  AllocationFlags flags;
};
struct AccessDescription {
  Location location;
  int flags;
};
static_assert(sizeof(AllocationProperties) == 32);

AllocationProperties properties_for(int device) {
  AllocationProperties properties{};
  properties.type = allocation_pinned;
  properties.location = {location_device, device};
  return properties;
}

}  // namespace

#define COLDSNAP_CUDA_CALLS(call)                                                                \
  call(init, cuInit, (unsigned))                                                                 \
  call(device_get, cuDeviceGet, (int *, int))                                                    \
  call(pci_bus_id, cuDeviceGetPCIBusId, (char *, int, int))                                      \
  call(context_retain, cuDevicePrimaryCtxRetain, (void **, int))                                 \
  call(context_release, cuDevicePrimaryCtxRelease_v2, (int))                                     \
  call(context_set, cuCtxSetCurrent, (void *))                                                   \
  call(error_string, cuGetErrorString, (int, const char **))                                     \
  call(host_register, cuMemHostRegister_v2, (void *, size_t, unsigned))                          \
  call(host_unregister, cuMemHostUnregister, (void *))                                           \
  call(stream_create, cuStreamCreate, (void **, unsigned))                                       \
  call(stream_destroy, cuStreamDestroy_v2, (void *))                                             \
  call(stream_synchronize, cuStreamSynchronize, (void *))                                        \
  call(event_create, cuEventCreate, (void **, unsigned))                                         \
  call(event_destroy, cuEventDestroy_v2, (void *))                                               \
  call(event_record, cuEventRecord, (void *, void *))                                            \
  call(event_synchronize, cuEventSynchronize, (void *))                                          \
  call(copy_in, cuMemcpyHtoDAsync_v2, (unsigned long long, const void *, size_t, void *))        \
  call(copy_out, cuMemcpyDtoHAsync_v2, (void *, unsigned long long, size_t, void *))             \
  call(set_bytes, cuMemsetD8_v2, (unsigned long long, unsigned char, size_t))                    \
  call(granularity, cuMemGetAllocationGranularity, (size_t *, const void *, int))                \
  call(reserve, cuMemAddressReserve,                                                             \
       (unsigned long long *, size_t, size_t, unsigned long long, unsigned long long))           \
  call(unreserve, cuMemAddressFree, (unsigned long long, size_t))                                \
  call(create, cuMemCreate, (unsigned long long *, size_t, const void *, unsigned long long))    \
  call(release, cuMemRelease, (unsigned long long))                                              \
  call(map, cuMemMap,                                                                            \
       (unsigned long long, size_t, size_t, unsigned long long, unsigned long long))             \
  call(unmap, cuMemUnmap, (unsigned long long, size_t))                                          \
  call(set_access, cuMemSetAccess, (unsigned long long, size_t, const void *, size_t))           \
  call(stream_wait, cuStreamWaitEvent, (void *, void *, unsigned))                               \
  call(module_load, cuModuleLoadData, (void **, const void *))                                   \
  call(module_unload, cuModuleUnload, (void *))                                                  \
  call(module_function, cuModuleGetFunction, (void **, void *, const char *))                    \
  call(launch, cuLaunchKernel,                                                                   \
       (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,    \
        void **, void **))                                                                       \
  call(allocate, cuMemAlloc_v2, (unsigned long long *, size_t))                                  \
  call(free, cuMemFree_v2, (unsigned long long))                                                 \
  call(graph_memory, cuDeviceGetGraphMemAttribute, (int, int, void *))

struct Cuda::Calls {
#define COLDSNAP_CUDA_MEMBER(name, symbol, arguments) int(*name) arguments = nullptr;
  COLDSNAP_CUDA_CALLS(COLDSNAP_CUDA_MEMBER)
#undef COLDSNAP_CUDA_MEMBER
};

void Cuda::open(const char *library) {
  const char *name = library != nullptr ? library : "libcuda.so.1";
  library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) {
    const char *reason = dlerror();
    throw Failure(COLDSNAP_HYDRATE_NO_DEVICE,
                  text("no CUDA driver: %s", reason != nullptr ? reason : name));
  }
  auto calls = std::make_unique<Calls>();
#define COLDSNAP_CUDA_LOAD(name, symbol, arguments)                                          \
  calls->name = reinterpret_cast<int(*) arguments>(dlsym(library_, #symbol));                \
  if (calls->name == nullptr) {                                                              \
    throw Failure(COLDSNAP_HYDRATE_NO_DEVICE, "the CUDA driver is too old: it has no " #symbol); \
  }
  COLDSNAP_CUDA_CALLS(COLDSNAP_CUDA_LOAD)
#undef COLDSNAP_CUDA_LOAD
  calls_ = calls.release();
}

Cuda::Cuda(const char *library, int device) : device_(device) {
  try {
    open(library);
    check(calls_->init(0), "cuInit");
    int found = 0;
    check(calls_->device_get(&found, device), "cuDeviceGet");
    device_ = found;
    check(calls_->context_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
  } catch (const Failure &failure) {
    delete calls_;
    // libcuda stays loaded: it does not survive being unloaded.
    throw Failure(COLDSNAP_HYDRATE_NO_DEVICE, failure.message);
  }
}

Cuda::~Cuda() {
  calls_->context_release(device_);
  delete calls_;
}

void Cuda::check(int result, const char *what) const {
  if (result == 0) return;
  const char *reason = nullptr;
  if (calls_->error_string(result, &reason) != 0 || reason == nullptr) reason = "unknown error";
  throw Failure(COLDSNAP_HYDRATE_DEVICE, text("%s: %s (CUDA error %d)", what, reason, result));
}

void Cuda::enter() const { check(calls_->context_set(context_), "cuCtxSetCurrent"); }

int Cuda::memory_node() const {
  char bus[32] = "", path[96];
  if (calls_->pci_bus_id(bus, sizeof bus, device_) != 0) return -1;
  for (char *at = bus; *at != 0; at++) *at = *at >= 'A' && *at <= 'F' ? *at + 32 : *at;
  // The driver writes an eight-digit domain; the system's names have four.
  const char *name = bus + (__builtin_strlen(bus) > 12 ? __builtin_strlen(bus) - 12 : 0);
  snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", name);
  FILE *file = fopen(path, "re");
  if (file == nullptr) return -1;
  int node = -1;
  if (fscanf(file, "%d", &node) != 1) node = -1;
  fclose(file);
  return node;
}

void Cuda::pin(void *memory, size_t bytes) const {
  check(calls_->host_register(memory, bytes, register_portable), "cuMemHostRegister");
}
void Cuda::unpin(void *memory) const noexcept { calls_->host_unregister(memory); }

Cuda::Stream Cuda::make_stream() const {
  Stream stream = nullptr;
  check(calls_->stream_create(&stream, stream_non_blocking), "cuStreamCreate");
  return stream;
}
void Cuda::drop_stream(Stream stream) const noexcept { calls_->stream_destroy(stream); }

Cuda::Event Cuda::make_event(bool spins) const {
  Event event = nullptr;
  const unsigned flags = event_without_timing | (spins ? 0 : event_blocking);
  check(calls_->event_create(&event, flags), "cuEventCreate");
  return event;
}
void Cuda::drop_event(Event event) const noexcept { calls_->event_destroy(event); }

void Cuda::copy_in(Address to, const void *from, size_t bytes, Stream stream) const {
  check(calls_->copy_in(to, from, bytes, stream), "cuMemcpyHtoDAsync");
}
void Cuda::copy_out(void *to, Address from, size_t bytes, Stream stream) const {
  check(calls_->copy_out(to, from, bytes, stream), "cuMemcpyDtoHAsync");
}
void Cuda::record(Event event, Stream stream) const {
  check(calls_->event_record(event, stream), "cuEventRecord");
}
void Cuda::wait(Event event) const {
  check(calls_->event_synchronize(event), "cuEventSynchronize");
}
void Cuda::wait_stream(Stream stream) const {
  check(calls_->stream_synchronize(stream), "cuStreamSynchronize");
}

void Cuda::follow(Stream stream, Event event) const {
  check(calls_->stream_wait(stream, event, 0), "cuStreamWaitEvent");
}

Cuda::Module Cuda::load(const void *image) const {
  Module module = nullptr;
  check(calls_->module_load(&module, image), "cuModuleLoadData");
  return module;
}
void Cuda::unload(Module module) const noexcept { calls_->module_unload(module); }

Cuda::Function Cuda::function(Module module, const char *name) const {
  Function function = nullptr;
  check(calls_->module_function(&function, module, name), "cuModuleGetFunction");
  return function;
}
void Cuda::launch(Function function, Grid grid, unsigned threads, Stream stream,
                  void **arguments) const {
  check(calls_->launch(function, grid.x, grid.y, 1, threads, 1, 1, 0, stream, arguments, nullptr),
        "cuLaunchKernel");
}

Cuda::Address Cuda::allocate(size_t bytes) const {
  Address address = 0;
  check(calls_->allocate(&address, bytes), "cuMemAlloc");
  zero(address, bytes);
  return address;
}
void Cuda::free(Address address) const noexcept { calls_->free(address); }

size_t Cuda::granularity() const {
  const auto properties = properties_for(device_);
  size_t bytes = 0;
  check(calls_->granularity(&bytes, &properties, 1), "cuMemGetAllocationGranularity");
  return bytes;
}

Cuda::Address Cuda::reserve(size_t bytes, Address wanted) const {
  Address address = 0;
  check(calls_->reserve(&address, bytes, 0, wanted, 0), "cuMemAddressReserve");
  return address;
}
void Cuda::unreserve(Address address, size_t bytes) const {
  check(calls_->unreserve(address, bytes), "cuMemAddressFree");
}

Cuda::Handle Cuda::create(size_t bytes) const {
  const auto properties = properties_for(device_);
  Handle handle = 0;
  check(calls_->create(&handle, bytes, &properties, 0), "cuMemCreate");
  return handle;
}
void Cuda::release(Handle handle) const { check(calls_->release(handle), "cuMemRelease"); }

void Cuda::map(Address address, size_t bytes, Handle handle) const {
  check(calls_->map(address, bytes, 0, handle, 0), "cuMemMap");
  const AccessDescription access{{location_device, device_}, access_read_write};
  const int result = calls_->set_access(address, bytes, &access, 1);
  if (result != 0) {
    calls_->unmap(address, bytes);
    check(result, "cuMemSetAccess");
  }
}
void Cuda::unmap(Address address, size_t bytes) const {
  check(calls_->unmap(address, bytes), "cuMemUnmap");
}

void Cuda::zero(Address address, size_t bytes) const {
  check(calls_->set_bytes(address, 0, bytes), "cuMemsetD8");
}

uint64_t Cuda::graph_memory(int attribute) const {
  uint64_t bytes = 0;
  check(calls_->graph_memory(device_, attribute, &bytes), "cuDeviceGetGraphMemAttribute");
  return bytes;
}

}  // namespace coldsnap::hydrate
