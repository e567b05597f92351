/* One line per thread on what failed last. */
#include <stdarg.h>
#include <stdio.h>

#include "bridge.h"

static _Thread_local char last[512];

int bridge_fail(int code, const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(last, sizeof last, format, values);
  va_end(values);
  return code;
}

const char *bridge_error(void) { return last; }

void bridge_set_error(const char *text) { snprintf(last, sizeof last, "%s", text); }
