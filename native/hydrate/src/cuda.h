// The part of the CUDA driver API that is needed here, opened at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace coldsnap::hydrate {

class Cuda {
 public:
  using Stream = void *;
  using Event = void *;
  using Address = unsigned long long;
  using Handle = unsigned long long;
  using Module = void *;
  using Function = void *;
  struct Grid {
    unsigned x, y;
  };

  // `library`: path or nullptr for libcuda.so.1. Throws Failure where there is no such device.
  Cuda(const char *library, int device);
  ~Cuda();
  Cuda(const Cuda &) = delete;
  Cuda &operator=(const Cuda &) = delete;

  // Makes the device's primary context, that which PyTorch uses too, current in this thread.
  void enter() const;
  int device() const { return device_; }
  // The memory node next to the device; -1 if unknown.
  int memory_node() const;

  void pin(void *memory, size_t bytes) const;
  void unpin(void *memory) const noexcept;
  Stream make_stream() const;
  void drop_stream(Stream stream) const noexcept;
  // `spins`: who waits for it keeps its core, and knows some 50 microseconds earlier.
  Event make_event(bool spins) const;
  void drop_event(Event event) const noexcept;
  void copy_in(Address to, const void *from, size_t bytes, Stream stream) const;
  void copy_out(void *to, Address from, size_t bytes, Stream stream) const;
  void record(Event event, Stream stream) const;
  void wait(Event event) const;
  void wait_stream(Stream stream) const;
  // What comes later in the stream waits for the event.
  void follow(Stream stream, Event event) const;

  Module load(const void *image) const;
  void unload(Module module) const noexcept;
  Function function(Module module, const char *name) const;
  void launch(Function function, Grid grid, unsigned threads, Stream stream,
              void **arguments) const;
  // Device memory, zeroed.
  Address allocate(size_t bytes) const;
  void free(Address address) const noexcept;

  size_t granularity() const;
  Address reserve(size_t bytes, Address wanted) const;
  void unreserve(Address address, size_t bytes) const;
  Handle create(size_t bytes) const;
  void release(Handle handle) const;
  void map(Address address, size_t bytes, Handle handle) const;
  void unmap(Address address, size_t bytes) const;
  void zero(Address address, size_t bytes) const;
  uint64_t graph_memory(int attribute) const;

 private:
  struct Calls;
  void check(int result, const char *what) const;
  void open(const char *library);

  void *library_ = nullptr;
  Calls *calls_ = nullptr;
  int device_ = 0;
  void *context_ = nullptr;
};

}  // namespace coldsnap::hydrate
