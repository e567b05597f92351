#include "target.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "failure.h"

enum { FIRST_MAPS_BYTES = 256 << 10, STATUS_BYTES = 4096 };

bool fill_target_ended(const struct fill_target *target)
{
	struct pollfd poll_fd = { .fd = target->pidfd, .events = POLLIN };

	return poll(&poll_fd, 1, 0) == 1;
}

int fill_target_fail(const struct fill_targets *targets, uint32_t process, const char *what,
		     uint64_t address)
{
	const struct fill_target *target = targets->of + process;
	uint32_t inside = targets->index->processes[process].pid;
	int number = errno;

	if (number == ESRCH || fill_target_ended(target))
		return fill_fail(FILL_ENDED, "process %u (%d here) ended", inside, target->host);
	errno = number;
	return fill_fail_errno(FILL_IO, "process %u (%d here): %s at 0x%llx", inside, target->host,
			       what, (unsigned long long)address);
}

/* A whole file of /proc as text; NULL with errno. */
static char *read_text(const char *path, size_t first_bytes)
{
	size_t room = first_bytes, used = 0;
	char *text = malloc(room);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	while (fd >= 0 && text != NULL) {
		ssize_t count = read(fd, text + used, room - used - 1);
		if (count < 0 && errno == EINTR)
			continue;
		if (count <= 0) {
			int number = errno;
			close(fd);
			text[used] = '\0';
			if (count == 0)
				return text;
			free(text);
			errno = number;
			return NULL;
		}
		used += (size_t)count;
		if (room - used < room / 4) {
			char *larger = realloc(text, room *= 2);
			if (larger == NULL)
				break;
			text = larger;
		}
	}
	int number = errno;
	if (fd >= 0)
		close(fd);
	free(text);
	errno = number;
	return NULL;
}

/* Its number in its own PID namespace, the last of the line NSpid; 0 if there is none. */
static unsigned long innermost_pid(const char *status)
{
	const char *line = strstr(status, "\nNSpid:");
	unsigned long number = 0;
	char *end = NULL;

	if (line == NULL)
		return 0;
	for (line += 7;; line = end) {
		while (*line == '\t' || *line == ' ')
			line++;
		if (*line < '0' || *line > '9')
			return number;
		number = strtoul(line, &end, 10);
	}
}

static int check_number(const struct fill_target *target, uint32_t inside)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/status", target->host);
	char *status = read_text(path, STATUS_BYTES);
	if (status == NULL)
		return fill_fail_errno(FILL_ENDED, "process %u (%d here)", inside, target->host);
	unsigned long number = innermost_pid(status);
	free(status);
	if (number != inside)
		return fill_fail(FILL_MAPS, "process %d here is number %lu in its unit, not %u",
				 target->host, number, inside);
	return 0;
}

static enum fill_vma_kind kind_of(const char *permissions, unsigned long long inode,
				  const char *name)
{
	if (permissions[0] != 'r' || permissions[1] != 'w' || permissions[3] != 'p')
		return FILL_VMA_OTHER;
	if (inode != 0)
		return FILL_VMA_FILE;
	bool plain = *name == '\0' || strcmp(name, "[heap]") == 0 ||
		     strncmp(name, "[anon:", 6) == 0;
	return plain ? FILL_VMA_PLAIN : FILL_VMA_OTHER;
}

static int parse_maps(struct fill_target *target, char *text)
{
	size_t lines = 0;

	for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
		lines++;
	target->vmas = calloc(lines + 1, sizeof *target->vmas);
	if (target->vmas == NULL)
		return -1;
	for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
		unsigned long long start, stop, inode;
		char permissions[5];
		int name = 0;
		*end = '\0';
		if (sscanf(line, "%llx-%llx %4s %*x %*x:%*x %llu %n", &start, &stop, permissions,
			   &inode, &name) != 4 || strlen(permissions) != 4) {
			errno = EPROTO;
			return -1;
		}
		const char *path = name > 0 ? line + name : "";
		target->vmas[target->vma_count++] = (struct fill_vma){
			.start = start, .end = stop, .kind = kind_of(permissions, inode, path)
		};
	}
	return 0;
}

static int read_maps(struct fill_target *target, uint32_t inside)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/maps", target->host);
	char *text = read_text(path, FIRST_MAPS_BYTES);
	int result = text == NULL ? -1 : parse_maps(target, text);
	free(text);
	if (result != 0)
		return fill_fail_errno(fill_target_ended(target) ? FILL_ENDED : FILL_IO,
				       "process %u (%d here): its maps", inside, target->host);
	return 0;
}

static int open_one(struct fill_target *target, uint32_t inside, const struct fill_pair *pairs,
		    size_t pair_count)
{
	for (size_t i = 0; i < pair_count; i++)
		if (pairs[i].inside == inside)
			target->host = pairs[i].host;
	if (target->host == 0)
		return fill_fail(FILL_INVALID, "no --pid for process %u of the index", inside);
	target->pidfd = (int)syscall(SYS_pidfd_open, target->host, 0);
	if (target->pidfd < 0)
		return fill_fail_errno(errno == ESRCH ? FILL_ENDED : FILL_IO,
				       "process %u (%d here)", inside, target->host);
	if (check_number(target, inside) != 0 || read_maps(target, inside) != 0)
		return -1;
	/* Alive after its files in /proc were read: they were its own, not a successor's. */
	if (fill_target_ended(target))
		return fill_fail(FILL_ENDED, "process %u (%d here) ended", inside, target->host);
	return 0;
}

int fill_targets_open(struct fill_targets *targets, const struct fill_index *index,
		      const struct fill_pair *pairs, size_t pair_count)
{
	uint32_t count = index->header->processes;
	int result = 0;

	*targets = (struct fill_targets){ .index = index };
	targets->of = calloc(count + 1ULL, sizeof *targets->of);
	if (targets->of == NULL)
		return fill_fail_errno(FILL_IO, "memory");
	for (uint32_t i = 0; i < count; i++)
		targets->of[i].pidfd = -1;
	for (uint32_t i = 0; i < count && result == 0; i++)
		result = open_one(targets->of + i, index->processes[i].pid, pairs, pair_count);
	for (uint32_t i = 0; i < index->header->runs; i++)
		targets->of[index->runs[i].process].bytes += index->runs[i].bytes;
	return result;
}

static int check_area(const struct fill_targets *targets, const struct fill_area *area, size_t *at)
{
	const struct fill_target *target = targets->of + area->process;
	uint64_t reached = area->start;

	while (*at < target->vma_count && target->vmas[*at].end <= area->start)
		(*at)++;
	for (size_t i = *at; i < target->vma_count && reached < area->end; i++) {
		enum fill_vma_kind kind = target->vmas[i].kind;
		bool fits = kind == FILL_VMA_PLAIN ||
			    (kind == FILL_VMA_FILE && (area->flags & FILL_AREA_MAPPED) != 0);
		if (target->vmas[i].start > reached || !fits)
			break;
		reached = target->vmas[i].end;
	}
	if (reached >= area->end)
		return 0;
	return fill_fail(FILL_MAPS, "process %u: 0x%llx is not private anonymous memory",
			 targets->index->processes[area->process].pid,
			 (unsigned long long)reached);
}

int fill_targets_check(const struct fill_targets *targets)
{
	const struct fill_index *index = targets->index;
	size_t at = 0;

	for (uint32_t i = 0; i < index->header->areas; i++) {
		if (i > 0 && index->areas[i].process != index->areas[i - 1].process)
			at = 0;
		if (check_area(targets, index->areas + i, &at) != 0)
			return -1;
	}
	return 0;
}

void fill_targets_close(struct fill_targets *targets)
{
	for (uint32_t i = 0; targets->of != NULL && i < targets->index->header->processes; i++) {
		if (targets->of[i].pidfd >= 0)
			close(targets->of[i].pidfd);
		free(targets->of[i].vmas);
	}
	free(targets->of);
	targets->of = NULL;
}
