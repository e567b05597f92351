// File -> memory: every thread takes the next chunk, reads it, checks it, delivers it.
#pragma once

#include <atomic>

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
  void do_job(Lane &lane, const Job &job);
  void read_buffered(Lane &lane, const Job &job, Digest &digest);
  void read_direct(Lane &lane, const Job &job, Digest &digest);
  // Digests a filled slot and copies it to host memory.
  void take_over(Lane &lane, const Slot &slot, uint64_t address, uint64_t bytes, Digest &digest);
  void fill(Lane &lane, uint8_t *to, uint64_t offset, uint64_t bytes, Digest &digest);
  void check_digest(const Job &job, Digest &digest) const;
  void check_padding(Lane &lane, const Job &job);
  void check_zeros(const Job &job, const uint8_t *from, uint64_t bytes) const;

  Session &session_;
  const coldsnap_hydrate_request &request_;
  Work work_;
  InputFile file_;
  Control control_;
  std::atomic<uint64_t> next_ = 0;
};

}  // namespace coldsnap::hydrate
