// A failure on its way to the C border: a code, one line, and the place if there is one.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "coldsnap_hydrate.h"

namespace coldsnap::hydrate {

inline constexpr uint64_t nowhere = ~uint64_t{0};

struct Place {
  uint64_t extent = nowhere;
  uint64_t chunk = nowhere;
};

class Failure : public std::exception {
 public:
  Failure(coldsnap_hydrate_code kind, std::string line, Place where = {})
      : code(kind), message(std::move(line)), place(where) {}
  const char *what() const noexcept override { return message.c_str(); }

  coldsnap_hydrate_code code;
  std::string message;
  Place place;
};

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string text(const char *format, ...);

// "NAME: text of errno".
std::string system_text(const std::string &what, int number);

// The calling thread's message; cut at its fixed size, so that no destructor is left in the thread.
void remember(const char *message) noexcept;
const char *remembered() noexcept;

// Runs `work` at the C border: failures become codes, nothing is thrown across it.
template <typename Work>
int guarded(Work &&work) noexcept {
  try {
    work();
    return COLDSNAP_HYDRATE_OK;
  } catch (const Failure &failure) {
    remember(failure.message.c_str());
    return failure.code;
  } catch (const std::bad_alloc &) {
    remember("out of memory");
    return COLDSNAP_HYDRATE_NO_MEMORY;
  } catch (const std::exception &error) {
    remember(error.what());
    return COLDSNAP_HYDRATE_INTERNAL;
  } catch (...) {
    remember("unknown failure");
    return COLDSNAP_HYDRATE_INTERNAL;
  }
}

}  // namespace coldsnap::hydrate
