/* libcoldsnap_nvml: NVML tells an engine after a restore what it remembers of its GPUs.
 *
 * Preloaded, and switched on by COLDSNAP_NVML_SHIM:
 *   "map"   NVML's devices are handles of this library. When the file COLDSNAP_NVML_MAP appears or
 *           changes (the controller writes it at a restore), NVML is started anew, handles lead to
 *           the GPUs that took the place of the captured ones, and UUIDs, indices and the number of
 *           devices are answered as they were. One line per captured GPU:
 *           INDEX CAPTURED_UUID UUID_NOW
 *   "hide"  libnvidia-ml cannot be opened, so that a parked template holds nothing of the driver;
 *           until coldsnap_nvml_show().
 * Without it, every call goes through unchanged. */
#ifndef COLDSNAP_NVML_H
#define COLDSNAP_NVML_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COLDSNAP_NVML_ABI 1

uint32_t coldsnap_nvml_abi(void);

/* End "hide" in this process. */
void coldsnap_nvml_show(void);

/* One JSON object: mode, devices (handles given), mapped (lines of the map), refreshed (how often
 * NVML was started anew), error (what is wrong with the map, or ""). Returns the length needed. */
size_t coldsnap_nvml_status(char *text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
