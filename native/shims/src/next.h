/* The dlsym (and dlopen) that this library's own stands before. Where several preloaded libraries
 * have one, each finds the next. */
#ifndef COLDSNAP_NEXT_H
#define COLDSNAP_NEXT_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

typedef void *(*dlsym_function)(void *, const char *);

static inline dlsym_function next_dlsym(void) {
  static dlsym_function _Atomic known;
  dlsym_function function = atomic_load(&known);
  if (function != NULL) return function;
  static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
  for (size_t i = 0; function == NULL && i < sizeof versions / sizeof *versions; ++i)
    function = (dlsym_function)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
  if (function == NULL) abort(); /* of a C library that nobody has: nothing would work */
  dlsym_function next = (dlsym_function)function(RTLD_NEXT, "dlsym");
  if (next != NULL) function = next;
  atomic_store(&known, function);
  return function;
}

#endif
