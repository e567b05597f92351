/* The parts of libcoldsnap_mmap. */
#ifndef COLDSNAP_MMAP_SHIM_H
#define COLDSNAP_MMAP_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* rules.c */
const char *rules_given(void);
bool rules_match(const char *patterns, const char *path, bool is_deleted);
/* Takes room for a copy; false, and noted, where the limit is reached. */
bool rules_take(size_t bytes, const char *path);
void rules_give_back(size_t bytes);
void rules_note_left(const char *path, const char *reason);
void rules_count_copy(void);

/* copy.c */
void *raw_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset);
ssize_t read_all(int file, void *into, size_t bytes, off_t offset);
#endif
