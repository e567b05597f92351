// File -> memory: every thread takes the next chunk, reads it, checks it, delivers it.
#pragma once

#include <atomic>
#include <span>

#include "control.h"
#include "digest.h"
#include "file.h"
#include "session.h"
#include "work.h"

namespace coldsnap::hydrate {

class Reading {
 public:
  // Throws Failure for a bad request or file.
  Reading(Session &session, const coldsnap_hydrate_request &request);

  Control &control() { return control_; }
  void work(unsigned thread);
  // Throws the first failure of any thread.
  void finish();

 private:
  // A chunk on its way: the piece of it that is in memory, and its digest so far.
  struct Strand {
    Strand(const Job &its, uint32_t algorithm) : job(its), digest(algorithm) {}
    Job job;
    Digest digest;
    bool is_direct = false;
    uint64_t done = 0;
    Slot *slot = nullptr;
    uint8_t *memory = nullptr;
    uint64_t bytes = 0;
  };

  void move(Lane &lane, std::span<Strand> strands);
  void fetch_all(Lane &lane, std::span<Strand> strands, uint64_t step);
  void finish_step(Lane &lane, std::span<Strand> strands);
  // Reads the next piece, `step` bytes at most, into memory or a slot.
  void fetch(Lane &lane, Strand &strand, uint64_t step);
  void digest(Lane &lane, std::span<Strand> strands);
  void deliver(Lane &lane, Strand &strand);
  void check_digest(const Job &job, Digest &digest) const;
  void check_padding(Lane &lane, const Job &job);

  Session &session_;
  const coldsnap_hydrate_request &request_;
  Work work_;
  InputFile file_;
  Control control_;
  const bool is_cached_;
  std::atomic<uint64_t> next_ = 0;
};

}  // namespace coldsnap::hydrate
