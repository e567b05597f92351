/*
 * libcoldsnap_hydrate: model bytes between files and memory, as fast as the machine moves them,
 * every chunk's digest checked on the way.
 *
 * C ABI. No function exits or prints. Functions that can fail return a coldsnap_hydrate_code; the
 * one-line message of the calling thread's last failure is coldsnap_hydrate_error(). CUDA is
 * opened at run time, and only where a CUDA device is asked for.
 *
 * Structures begin with `struct_bytes` = sizeof the structure; what a caller does not set is zero.
 */
#ifndef COLDSNAP_HYDRATE_H
#define COLDSNAP_HYDRATE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COLDSNAP_HYDRATE_ABI 3
#define COLDSNAP_HYDRATE_DIGEST_BYTES 32
#define COLDSNAP_HYDRATE_ALIGNMENT 4096
#define COLDSNAP_HYDRATE_MARKS 8

typedef enum coldsnap_hydrate_code {
  COLDSNAP_HYDRATE_OK = 0,
  COLDSNAP_HYDRATE_INVALID = 1,     /* a request that contradicts itself */
  COLDSNAP_HYDRATE_MISSING = 2,     /* no such file */
  COLDSNAP_HYDRATE_NOT_REGULAR = 3, /* symbolic link, FIFO, device, folder */
  COLDSNAP_HYDRATE_FILE = 4,        /* the system refused: open, read, write */
  COLDSNAP_HYDRATE_SHORT = 5,       /* the file has fewer bytes than expected */
  COLDSNAP_HYDRATE_GROWN = 6,       /* the file has more bytes than expected */
  COLDSNAP_HYDRATE_CHANGED = 7,     /* the file changed while it was read */
  COLDSNAP_HYDRATE_DIFFERS = 8,     /* a chunk's digest differs */
  COLDSNAP_HYDRATE_PADDING = 9,     /* the bytes behind an extent are not zero */
  COLDSNAP_HYDRATE_CANCELLED = 10,
  COLDSNAP_HYDRATE_DEADLINE = 11,
  COLDSNAP_HYDRATE_DISK_FULL = 12,
  COLDSNAP_HYDRATE_NO_MEMORY = 13,
  COLDSNAP_HYDRATE_NO_DEVICE = 14,  /* no CUDA here */
  COLDSNAP_HYDRATE_DEVICE = 15,     /* CUDA refused */
  COLDSNAP_HYDRATE_INTERNAL = 16
} coldsnap_hydrate_code;

typedef enum coldsnap_hydrate_algorithm {
  COLDSNAP_HYDRATE_UNVERIFIED = 0,
  COLDSNAP_HYDRATE_SHA256 = 1,
  COLDSNAP_HYDRATE_BLAKE3 = 2
} coldsnap_hydrate_algorithm;

typedef enum coldsnap_hydrate_place {
  COLDSNAP_HYDRATE_HOST = 0,
  COLDSNAP_HYDRATE_NOWHERE = 1, /* read and verify only; extents need no address */
  COLDSNAP_HYDRATE_CUDA = 2
} coldsnap_hydrate_place;

typedef enum coldsnap_hydrate_io {
  COLDSNAP_HYDRATE_AUTO = 0, /* chunks in the page cache from there, others by O_DIRECT */
  COLDSNAP_HYDRATE_BUFFERED = 1,
  COLDSNAP_HYDRATE_DIRECT = 2 /* O_DIRECT where the file system has it, else buffered */
} coldsnap_hydrate_io;

/* Who makes BLAKE3 digests of chunks that go to a device; SHA-256 is the processor's always. */
typedef enum coldsnap_hydrate_digests {
  COLDSNAP_HYDRATE_DIGESTS_AUTO = 0, /* by the device if it takes our code, else the processor */
  COLDSNAP_HYDRATE_DIGESTS_PROCESSOR = 1,
  COLDSNAP_HYDRATE_DIGESTS_DEVICE = 2
} coldsnap_hydrate_digests;

/* How bytes come from a file to a device. */
typedef enum coldsnap_hydrate_engine {
  COLDSNAP_HYDRATE_ENGINE_RING = 0,     /* by the pinned ring */
  COLDSNAP_HYDRATE_ENGINE_CUFILE = 1,   /* by libcufile; where it fails, by the ring after all */
  COLDSNAP_HYDRATE_ENGINE_MEASURED = 2, /* a part by each, the rest by whichever was faster */
  COLDSNAP_HYDRATE_ENGINE_HOST = 3      /* only told: to host memory there is no choice */
} coldsnap_hydrate_engine;

/* How threads wait for a device. */
typedef enum coldsnap_hydrate_waits {
  COLDSNAP_HYDRATE_WAITS_AUTO = 0, /* spinning where there are 8 cores or more */
  COLDSNAP_HYDRATE_WAITS_SLEEP = 1,
  COLDSNAP_HYDRATE_WAITS_SPIN = 2
} coldsnap_hydrate_waits;

/* A run of bytes in a file and in memory. */
typedef struct coldsnap_hydrate_extent {
  uint64_t offset;  /* in the file; a multiple of 4096 */
  uint64_t length;  /* bytes without padding */
  uint64_t address; /* of host or device memory */
} coldsnap_hydrate_extent;

typedef struct coldsnap_hydrate_settings {
  uint32_t struct_bytes;
  uint32_t place;          /* coldsnap_hydrate_place */
  uint32_t io;             /* coldsnap_hydrate_io */
  uint32_t threads;        /* readers; 0: chosen by the library */
  uint32_t slots;          /* per thread, 1 to 64; 0: 3 */
  int32_t device;          /* CUDA ordinal */
  uint64_t slot_bytes;     /* multiple of 4096, 4 KiB to 64 MiB; 0: 2 MiB, for a device 1 MiB */
  uint64_t block_bytes;    /* of a copy to a device; multiple of 4096, to 64 MiB; 0: 8 MiB */
  uint32_t digests;        /* coldsnap_hydrate_digests */
  uint32_t engine;         /* coldsnap_hydrate_engine */
  uint32_t waits;          /* coldsnap_hydrate_waits */
  uint32_t reserved;
  const char *cuda_library;   /* NULL: libcuda.so.1 */
  const char *cufile_library; /* NULL: libcufile.so.0 */
} coldsnap_hydrate_settings;

/* Gets bytes done and in all, on the caller's thread; anything but 0 cancels. */
typedef int (*coldsnap_hydrate_progress)(void *context, uint64_t done, uint64_t total);

typedef struct coldsnap_hydrate_request {
  uint32_t struct_bytes;
  uint32_t algorithm;     /* of the chunk digests: coldsnap_hydrate_algorithm */
  const char *path;       /* read: a regular file. write: a file that must not exist */
  uint64_t file_bytes;    /* read: what the file must have. write: what it will have */
  const coldsnap_hydrate_extent *extents; /* by offset, disjoint */
  uint64_t extent_count;
  uint64_t chunk_bytes;   /* multiple of 4096; counted from each extent's start */
  uint8_t *digests;       /* 32 bytes per chunk, extent after extent. read: expected; write: made */
  uint64_t digest_count;
  uint8_t *extent_sha256; /* write: 32 bytes per extent, made; read: unused */
  uint8_t *body_sha256;   /* write: 32 bytes, made; read: unused. Both NULL: left to identify */
  uint32_t check_padding; /* read: the bytes up to the next extent must be zero */
  uint32_t is_unsynced;   /* write: the file need not be durable when the call returns */
  const int32_t *cancel;  /* looked at often; anything but 0 cancels. May be NULL */
  double seconds;         /* deadline; 0: none */
  coldsnap_hydrate_progress progress; /* may be NULL */
  void *progress_context;
} coldsnap_hydrate_request;

typedef struct coldsnap_hydrate_metrics {
  uint32_t struct_bytes;
  uint32_t threads;
  uint64_t bytes;          /* moved */
  uint64_t direct_bytes;   /* of these by O_DIRECT */
  uint64_t device_digest_bytes; /* of these checked by the device */
  uint64_t wall_ns;
  /* Summed over the threads. */
  uint64_t file_ns;        /* reading or writing the file */
  uint64_t digest_ns;
  uint64_t wait_ns;        /* for a free place of the ring: the device is the slowest part */
  uint64_t turn_ns;        /* for a free core */
  uint64_t device_ns;      /* starting copies, and waiting for the last ones */
  /* Of wait_ns, in the driver: for a block's copy; then for its digests on the device. */
  uint64_t copy_wait_ns;
  uint64_t digest_wait_ns;
  uint64_t longest_send_ns; /* the longest that starting one block's copies took: a busy driver */
  /* By the clock, since the call began: when each eighth of the bytes had been read, or given to
     the device. What is left of wall_ns behind the last one is the drain. */
  uint64_t first_ns;
  uint64_t mark_ns[COLDSNAP_HYDRATE_MARKS];
  uint64_t ring_bytes;
  uint64_t failed_extent;  /* where it went wrong, all ones if nowhere in particular */
  uint64_t failed_chunk;
  uint32_t engine;         /* coldsnap_hydrate_engine that moved the bytes */
  char engine_reason[124]; /* why it was not the one asked for; else empty */
} coldsnap_hydrate_metrics;

/* What the opening of a session took, by the clock. */
typedef struct coldsnap_hydrate_opening {
  uint32_t struct_bytes;
  int32_t memory_node;  /* of the ring: that next to the device; -1: unknown, or there is one only */
  uint64_t ring_bytes;
  uint64_t wall_ns;
  uint64_t threads_ns;
  uint64_t driver_ns;   /* libcuda, the device's context */
  uint64_t touch_ns;    /* memory of the ring, its pages taken by all threads */
  uint64_t pin_ns;
  uint64_t streams_ns;
  uint64_t digests_ns;  /* the kernel loaded and tried */
  uint64_t cufile_ns;
} coldsnap_hydrate_opening;

typedef struct coldsnap_hydrate_session coldsnap_hydrate_session;

uint32_t coldsnap_hydrate_abi(void);
const char *coldsnap_hydrate_error(void);

/* Threads, ring, streams: made once, used by many calls. One call at a time runs in a session. */
int coldsnap_hydrate_open(const coldsnap_hydrate_settings *settings,
                          coldsnap_hydrate_session **session);
void coldsnap_hydrate_close(coldsnap_hydrate_session *session);
int coldsnap_hydrate_opening_of(const coldsnap_hydrate_session *session,
                                coldsnap_hydrate_opening *opening);

/* File -> memory. After a failure the memory holds unchecked bytes. `metrics` may be NULL. */
int coldsnap_hydrate_read(coldsnap_hydrate_session *session,
                          const coldsnap_hydrate_request *request,
                          coldsnap_hydrate_metrics *metrics);

/*
 * Memory -> file, in one pass; the file is durable (unless is_unsynced) when this returns 0, and
 * gone if it does not. SHA-256 of the body is the work of one core: a caller that cannot wait for
 * it leaves it out and lets coldsnap_hydrate_identify do it later.
 */
int coldsnap_hydrate_write(coldsnap_hydrate_session *session,
                           const coldsnap_hydrate_request *request,
                           coldsnap_hydrate_metrics *metrics);

/* SHA-256 of a regular file and, where `extent_sha256` is not NULL, of each extent; one pass. */
int coldsnap_hydrate_identify(const coldsnap_hydrate_request *request);

/* Ceiling of a CUDA session: copies `bytes` from its ring to `address` and times it. */
int coldsnap_hydrate_copy_rate(coldsnap_hydrate_session *session, uint64_t address, uint64_t bytes,
                               coldsnap_hydrate_metrics *metrics);

int coldsnap_hydrate_digest(uint32_t algorithm, const void *data, uint64_t bytes, uint8_t *digest);

/*
 * Device memory whose address stays while its physical memory goes and comes back.
 * `epoch` counts the times that physical memory was mapped: contents of another epoch are gone.
 */
typedef struct coldsnap_hydrate_region coldsnap_hydrate_region;

typedef struct coldsnap_hydrate_region_state {
  uint32_t struct_bytes;
  uint32_t mapped;
  uint64_t address;
  uint64_t bytes; /* rounded up to the device's granularity */
  uint64_t epoch;
} coldsnap_hydrate_region_state;

/* Reserves an address range and maps physical memory. `address`: wanted address or 0. */
int coldsnap_hydrate_region_make(const char *cuda_library, int32_t device, uint64_t bytes,
                                 uint64_t address, coldsnap_hydrate_region **region);
/* Gives the physical memory back; the address stays reserved. Released already: nothing to do. */
int coldsnap_hydrate_region_release(coldsnap_hydrate_region *region);
/* Maps fresh physical memory at the same address. Mapped already: nothing to do. */
int coldsnap_hydrate_region_map(coldsnap_hydrate_region *region);
int coldsnap_hydrate_region_zero(coldsnap_hydrate_region *region);
int coldsnap_hydrate_region_state_of(const coldsnap_hydrate_region *region,
                                     coldsnap_hydrate_region_state *state);
/* Device <-> host, synchronous: for small things and tests. */
int coldsnap_hydrate_region_get(coldsnap_hydrate_region *region, uint64_t offset, void *to,
                                uint64_t bytes);
int coldsnap_hydrate_region_put(coldsnap_hydrate_region *region, uint64_t offset, const void *from,
                                uint64_t bytes);
int coldsnap_hydrate_region_free(coldsnap_hydrate_region *region);

/* Bytes that CUDA graphs of a device hold: in use, and reserved from the system. */
int coldsnap_hydrate_graph_memory(const char *cuda_library, int32_t device, uint64_t *used,
                                  uint64_t *reserved);

#ifdef __cplusplus
}
#endif
#endif
