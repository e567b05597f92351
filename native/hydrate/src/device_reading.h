// File -> device memory: threads fill blocks of the ring in the file's order, whole blocks are
// copied one after the other, and the device digests the chunks that are complete.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "blocks.h"
#include "changes.h"
#include "control.h"
#include "file.h"
#include "session.h"
#include "work.h"

namespace coldsnap::hydrate {

class DeviceReading {
 public:
  // Whether the request can go this way: its chunks need not be digested by the processor.
  static bool can_take(const Session &session, const coldsnap_hydrate_request &request);

  // Throws Failure for a bad request or file.
  DeviceReading(Session &session, const coldsnap_hydrate_request &request);

  Control &control() { return control_; }
  void work(unsigned thread);
  // Throws the first failure of any thread.
  void finish();

 private:
  struct Range {
    uint64_t start, end;
    bool is_empty() const { return start >= end; }
  };
  // A place of the ring; guarded by the mutex.
  struct Place {
    uint64_t number = 0;    // of the block that it is open for
    uint64_t unfilled = 0;  // pieces of it
    bool is_sent = false, is_retiring = false;
  };

  void fill(Lane &lane, uint64_t piece);
  void read(Lane &lane, uint8_t *to, Range range);
  void digest_small(Lane &lane, const uint8_t *memory, Range piece);
  void check_padding(const uint8_t *memory, Range range) const;

  void await_place(Lane &lane, uint64_t number);
  void filled(Lane &lane, uint64_t number);
  bool is_ready(uint64_t number) const;
  void send(Lane &lane, uint64_t number);
  void send_chunks(Lane &lane, Block &block, uint64_t extent, Range range);
  // Waits until the device is done with a block and looks at its digests.
  void retire(Lane &lane, uint64_t number);
  void drain(Lane &lane);

  uint64_t end_of(uint64_t extent) const;
  uint64_t first_extent_after(uint64_t offset) const;
  Range within(uint64_t extent, Range range) const;
  bool is_small(const Job &job) const;
  // Calls `take` for the chunks of an extent that end in (range.start, range.end].
  template <typename Take>
  void each_chunk_ending(uint64_t extent, Range range, Take &&take) const;

  Session &session_;
  Blocks &blocks_;
  const coldsnap_hydrate_request &request_;
  Work work_;
  InputFile file_;
  Control control_;
  const bool is_cached_;
  const bool is_checked_;
  const uint64_t per_block_;  // pieces
  const uint64_t pieces_;
  const uint64_t count_;  // blocks of the file
  std::atomic<uint64_t> next_piece_ = 0;

  std::mutex mutex_;
  Changes changes_;
  std::vector<Place> places_;
  uint64_t next_block_ = 0;  // to be sent
  bool is_sending_ = false;
};

}  // namespace coldsnap::hydrate
