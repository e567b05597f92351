#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "torture.h"

struct found {
	uintptr_t start, end;
	char name[64];
};

static struct found all[4096];
static char text[1 << 20];

static bool stays(const struct found *found, const uintptr_t *kept, size_t kept_count)
{
	if (found->name[0] != '\0' && strcmp(found->name, "[heap]") != 0)
		return true;
	uintptr_t own[] = { (uintptr_t)&errno, (uintptr_t)all };
	for (size_t i = 0; i < 2; i++)
		if (own[i] >= found->start && own[i] < found->end)
			return true;
	for (size_t i = 0; i < kept_count; i++)
		if (kept[i] >= found->start && kept[i] < found->end)
			return true;
	return false;
}

/* As a restore by mmap leaves it: every plain anonymous mapping becomes a private mapping of a file
 * with the same bytes. Nothing is allocated in here, and no other thread runs. */
void coldsnap_map_image(const char *path, const uintptr_t *kept, size_t kept_count)
{
	size_t count = 0, used = 0;
	int maps = open("/proc/self/maps", O_RDONLY), file = open(path, O_RDWR | O_CREAT, 0600);
	off_t offset = 16 * PAGE;

	if (maps < 0 || file < 0)
		_exit(4);
	for (ssize_t n; (n = read(maps, text + used, sizeof text - used - 1)) > 0;)
		used += (size_t)n;
	close(maps);
	for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
		unsigned long start, stop, inode;
		char permissions[8];
		struct found *found = all + count;
		*end = '\0';
		found->name[0] = '\0';
		if (sscanf(line, "%lx-%lx %7s %*x %*s %lu %63s", &start, &stop, permissions, &inode,
			   found->name) < 4 || strcmp(permissions, "rw-p") != 0 || inode != 0)
			continue;
		found->start = start;
		found->end = stop;
		count += !stays(found, kept, kept_count);
	}
	/* A piece is at most 1 MiB here, so that calls meet several, and holes between them. */
	for (size_t i = 0; i < count; i++)
		for (uintptr_t at = all[i].start; at < all[i].end;) {
			size_t bytes = all[i].end - at < (1 << 20) ? all[i].end - at : 1 << 20;
			if (pwrite(file, (void *)at, bytes, offset) != (ssize_t)bytes ||
			    syscall(SYS_mmap, at, bytes, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_FIXED, file, offset) != (long)at)
				_exit(5);
			at += bytes;
			offset += (off_t)bytes + (i % 2 ? PAGE : 0); /* not always one VMA */
		}
	close(file);
}
