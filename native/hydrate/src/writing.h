// Memory -> file in one pass: threads fetch, digest and write chunks in any order; one thread
// follows in the order of the file and hashes the whole.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>

#include "control.h"
#include "digest.h"
#include "file.h"
#include "session.h"
#include "work.h"

namespace coldsnap::hydrate {

class Writing {
 public:
  // Throws Failure for a bad request or a file that cannot be made.
  Writing(Session &session, const coldsnap_hydrate_request &request);

  Control &control() { return control_; }
  // Thread 0 identifies, the others move; all move where nobody wants the identity now.
  void work(unsigned thread);
  // Throws the first failure of any thread; the file is durable otherwise.
  void finish();

 private:
  // A piece of a chunk in memory, ready to be hashed.
  struct Piece {
    const uint8_t *memory;
    uint64_t bytes;
    Slot *slot;  // busy until hashed; nullptr if the memory is the caller's
  };
  using Order = std::pair<uint64_t, uint64_t>;  // job, offset in it

  void move(Lane &lane);
  void move_job(Lane &lane, uint64_t number, const Job &job);
  Piece fetch(Lane &lane, const Job &job, uint64_t at);
  void put(Lane &lane, const Job &job, uint64_t at, const Piece &piece);
  void publish(Order order, const Piece &piece);
  Slot &take_slot(Lane &lane);

  void identify();
  void identify_job(uint64_t number, const Job &job, Sha256 &body, Sha256 &extent);
  Piece await(Order order);
  void hashed(const Piece &piece);

  Session &session_;
  const coldsnap_hydrate_request &request_;
  Work work_;
  OutputFile file_;
  Control control_;
  const bool is_identified_;
  std::atomic<uint64_t> next_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Order, Piece> ready_;
};

// SHA-256 of a file and of its extents, in one pass on this thread.
void identify_file(const coldsnap_hydrate_request &request);

}  // namespace coldsnap::hydrate
