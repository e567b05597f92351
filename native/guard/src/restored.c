#include "restored.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "system.h"
#include "vmas.h"

/* Restored memory is never made, only moved (restored_add) and given up: a list that was once right
 * stays a superset, and what else is mapped there later is told by the kernel. The list belongs to
 * one image, because a process may be captured and restored again with the list in its memory. */
enum { MOST_RANGES = 8192 };

struct range {
	atomic_ulong start, end; /* end 0: not there yet */
	atomic_uint advice;
};


static struct range ranges[MOST_RANGES];
static atomic_uint range_count;
static atomic_bool everywhere; /* there were more than fit */
static atomic_flag loading = ATOMIC_FLAG_INIT;
static _Atomic uint64_t loaded_for; /* of the stamp; 0: nothing is loaded */

/* What identifies the image that this process sees; 0: none. */
static uint64_t stamp_of_image(void)
{
	struct stat status;
	/* AT_FDCWD: the path is absolute. */
	if (SYSTEM(SYS_newfstatat, AT_FDCWD, COLDSNAP_GUARD_FOLDER, &status, 0) != 0)
		return 0;
	uint64_t stamp = (uint64_t)status.st_dev * 0x9E3779B97F4A7C15 + (uint64_t)status.st_ino;
	stamp = stamp * 0x9E3779B97F4A7C15 + (uint64_t)status.st_ctim.tv_sec;
	stamp = stamp * 0x9E3779B97F4A7C15 + (uint64_t)status.st_ctim.tv_nsec;
	return stamp | 1;
}

static void add(unsigned long start, unsigned long end, unsigned advice)
{
	unsigned at = atomic_fetch_add(&range_count, 1);

	if (at >= MOST_RANGES) {
		atomic_store(&range_count, MOST_RANGES);
		atomic_store(&everywhere, true);
		return;
	}
	atomic_store(&ranges[at].start, start);
	atomic_store(&ranges[at].advice, advice);
	atomic_store(&ranges[at].end, end);
}

void restored_add(unsigned long start, unsigned long end)
{
	add(start, end, RESTORED_UNKNOWN);
}

static unsigned known_ranges(void)
{
	unsigned count = atomic_load(&range_count);

	return count < MOST_RANGES ? count : MOST_RANGES;
}

unsigned restored_advice(unsigned long start, unsigned long end)
{
	if (atomic_load(&loaded_for) == 0)
		return RESTORED_UNKNOWN;
	for (unsigned i = 0; i < known_ranges(); i++)
		if (start >= atomic_load(&ranges[i].start) && end <= atomic_load(&ranges[i].end))
			return atomic_load(&ranges[i].advice);
	return RESTORED_UNKNOWN;
}

void restored_advice_changes(unsigned long start, unsigned long end)
{
	for (unsigned i = 0; i < known_ranges(); i++)
		if (start < atomic_load(&ranges[i].end) && end > atomic_load(&ranges[i].start))
			atomic_store(&ranges[i].advice, RESTORED_UNKNOWN);
}

/* False if the kernel did not tell; then nothing is known. */
static bool load(void)
{
	struct vmas vmas;
	struct vma vma;
	int result = vmas_open(&vmas, 0, VMAS_ADVICE);

	if (result != 0)
		return false;
	for (unsigned i = 0; i < known_ranges(); i++)
		atomic_store(&ranges[i].end, 0);
	atomic_store(&range_count, 0);
	atomic_store(&everywhere, false);
	while ((result = vmas_next(&vmas, &vma)) == 1)
		if (vma.restored)
			add(vma.start, vma.end,
			    vma.advice | (vma.no_reserve ? RESTORED_NO_RESERVE : 0));
	vmas_close(&vmas);
	return result == 0;
}

static bool is_loaded(uint64_t stamp)
{
	if (atomic_load(&loaded_for) == stamp)
		return true;
	/* Whoever comes while another thread loads, or after a fork in the midst of it, goes without. */
	if (atomic_flag_test_and_set(&loading))
		return false;
	atomic_store(&loaded_for, 0);
	bool good = load();
	if (good)
		atomic_store(&loaded_for, stamp);
	atomic_flag_clear(&loading);
	return good;
}

bool restored_may_be(unsigned long start, unsigned long end)
{
	uint64_t stamp = stamp_of_image();

	if (stamp == 0)
		return false;
	if (!is_loaded(stamp) || atomic_load(&everywhere))
		return true;
	for (unsigned i = 0; i < known_ranges(); i++)
		if (start < atomic_load(&ranges[i].end) && end > atomic_load(&ranges[i].start))
			return true;
	return false;
}
