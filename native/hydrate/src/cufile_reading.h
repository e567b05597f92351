// File -> device memory by libcufile; the device digests each chunk where it lies.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "control.h"
#include "cufile.h"
#include "file.h"
#include "session.h"
#include "work.h"

namespace coldsnap::hydrate {

class CuFileReading {
 public:
  // Why the request cannot go this way; nullptr if it can.
  static const char *why_not(const Session &session, const coldsnap_hydrate_request &request);

  // Throws Failure for a bad request or file, or where libcufile does not take it.
  CuFileReading(Session &session, const coldsnap_hydrate_request &request);
  ~CuFileReading();
  CuFileReading(const CuFileReading &) = delete;
  CuFileReading &operator=(const CuFileReading &) = delete;

  Control &control() { return control_; }
  void work(unsigned thread);
  // Throws the first failure of any thread.
  void finish();

 private:
  void check_digest(Lane &lane, unsigned thread, const Job &job);

  Session &session_;
  const coldsnap_hydrate_request &request_;
  Work work_;
  InputFile file_;
  Control control_;
  CuFile::Handle handle_;
  std::atomic<uint64_t> next_ = 0;
  std::vector<std::mutex> streams_;  // one digest at a time in each
};

// A request in three: two parts to measure by, and the rest. Whole extents.
class Trial {
 public:
  explicit Trial(const coldsnap_hydrate_request &request);
  bool is_worth_it() const { return border_[2] > border_[1] && border_[1] > 0; }
  coldsnap_hydrate_request part(size_t number) const;

 private:
  const coldsnap_hydrate_request &request_;
  uint64_t border_[4] = {};  // extents
  uint64_t digest_[4] = {};  // before each border
};

}  // namespace coldsnap::hydrate
