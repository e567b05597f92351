/* libcoldsnap_mmap: file mappings that a restore cannot have become copies in memory.
 *
 * A process image names the files that are mapped: they must be at their places, unchanged, on every
 * host, and a deleted one is a burden. COLDSNAP_MMAP_COPY has patterns of fnmatch(3), with ':'
 * between them, for the full paths of files that are copied instead; "deleted" stands for files
 * without a name. Preloaded, mmap itself makes the copies; coldsnap_mmap_detach makes them of what
 * is mapped already, before a snapshot. Shared mappings that can be written stay, and so does what
 * goes beyond COLDSNAP_MMAP_LIMIT bytes in all (4 GiB). Without COLDSNAP_MMAP_COPY nothing is
 * different. */
#ifndef COLDSNAP_MMAP_H
#define COLDSNAP_MMAP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COLDSNAP_MMAP_ABI 1

uint32_t coldsnap_mmap_abi(void);

/* Copy what is mapped of files of these patterns; NULL: those of COLDSNAP_MMAP_COPY. No other thread
 * may write to private mappings of such files meanwhile. Returns the number of mappings that were
 * replaced, or -1 with errno; those before a failure stay replaced. */
int coldsnap_mmap_detach(const char *patterns);

/* One JSON object: patterns, limit, copies, bytes, left [{path, reason}] (at most 32). Returns the
 * length needed. */
size_t coldsnap_mmap_status(char *text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
