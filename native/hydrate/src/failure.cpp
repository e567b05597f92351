#include "failure.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace coldsnap::hydrate {

namespace {
// Plain memory: a thread_local with a destructor would keep the library from being unloaded.
thread_local char message_of_thread[512];
}  // namespace

std::string text(const char *format, ...) {
  char line[sizeof message_of_thread];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  return line;
}

std::string system_text(const std::string &what, int number) {
  char reason[128];
  return text("%s: %s", what.c_str(), strerror_r(number, reason, sizeof reason));
}

void remember(const char *message) noexcept {
  snprintf(message_of_thread, sizeof message_of_thread, "%s", message);
}

const char *remembered() noexcept { return message_of_thread; }

}  // namespace coldsnap::hydrate
