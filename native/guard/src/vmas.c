#include "vmas.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "system.h"

/* Linux 6.11; not in the headers of what we are built on. */
struct procmap_query {
	uint64_t size, query_flags, query_addr;
	uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
	uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
	uint64_t vma_name_addr, build_id_addr;
};
#define PROCMAP_QUERY _IOWR('f', 17, struct procmap_query)
enum { QUERY_COVERING_OR_NEXT = 0x10, VMA_SHARED = 0x8 };

static const char PREFIX[] = COLDSNAP_GUARD_FOLDER "/";

int vmas_open(struct vmas *vmas, unsigned long start, enum vmas_with with)
{
	const char *path = with == VMAS_ADVICE ? "/proc/self/smaps" : "/proc/self/maps";

	vmas->fd = (int)SYSTEM(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	vmas->with = with;
#ifdef COLDSNAP_GUARD_TEXT
	vmas->text = true;
#else
	vmas->text = with == VMAS_ADVICE;
#endif
	vmas->at = start;
	vmas->used = vmas->filled = vmas->length = 0;
	vmas->has_vma = false;
	return vmas->fd < 0 ? vmas->fd : 0;
}

void vmas_close(struct vmas *vmas)
{
	SYSTEM(SYS_close, vmas->fd);
}

static void classify(struct vma *vma, unsigned long long inode, const char *name)
{
	vma->restored = vma->private && inode != 0 && strncmp(name, PREFIX, sizeof PREFIX - 1) == 0;
	vma->anonymous = vma->private && inode == 0 &&
			 (*name == '\0' || strncmp(name, "[heap]", 6) == 0 ||
			  strncmp(name, "[anon:", 6) == 0);
}

/* 1, 0 at the end, -ENOTTY on older kernels. */
static int query(struct vmas *vmas, struct vma *vma)
{
	char name[128] = "";
	struct procmap_query asked = {
		.size = sizeof asked,
		.query_flags = QUERY_COVERING_OR_NEXT,
		.query_addr = vmas->at,
		.vma_name_addr = (uintptr_t)name,
		.vma_name_size = sizeof name,
	};
	long result = SYSTEM(SYS_ioctl, vmas->fd, PROCMAP_QUERY, &asked);

	if (result == -ENAMETOOLONG) { /* then it is no image file's */
		asked.vma_name_size = 0;
		asked.vma_name_addr = 0;
		result = SYSTEM(SYS_ioctl, vmas->fd, PROCMAP_QUERY, &asked);
	}
	if (result == -ENOENT)
		return 0;
	if (result < 0)
		return (int)result;
	*vma = (struct vma){ .start = asked.vma_start,
			     .end = asked.vma_end,
			     .prot = (int)(asked.vma_flags & 7),
			     .private = (asked.vma_flags & VMA_SHARED) == 0 };
	classify(vma, asked.inode, name);
	vmas->at = asked.vma_end;
	return 1;
}

/* One line of text without its end; what is too long is cut. 1, 0 at the end, or an error. */
static int next_line(struct vmas *vmas)
{
	vmas->length = 0;
	for (;;) {
		if (vmas->used == vmas->filled) {
			long count = SYSTEM(SYS_read, vmas->fd, vmas->block, sizeof vmas->block);
			if (count == -EINTR)
				continue;
			if (count <= 0)
				return (int)count;
			vmas->used = 0;
			vmas->filled = (size_t)count;
		}
		char byte = vmas->block[vmas->used++];
		if (byte == '\n') {
			vmas->line[vmas->length] = '\0';
			return 1;
		}
		if (vmas->length < sizeof vmas->line - 1)
			vmas->line[vmas->length++] = byte;
	}
}

static unsigned long number(const char **text, unsigned base)
{
	unsigned long value = 0;

	for (;; ++*text) {
		unsigned digit = (unsigned)**text;
		if (digit >= '0' && digit <= '9')
			digit -= '0';
		else if (digit >= 'a' && digit <= 'f')
			digit -= 'a' - 10;
		else
			return value;
		if (digit >= base)
			return value;
		value = value * base + digit;
	}
}

static const char *next_word(const char *text)
{
	while (*text != '\0' && *text != ' ')
		text++;
	while (*text == ' ')
		text++;
	return text;
}

/* "start-end rwxp offset device inode name"; false for the other lines of smaps. */
static bool parse_header(const char *line, struct vma *vma)
{
	const char *at = line;
	unsigned long start = number(&at, 16);

	if (at == line || *at++ != '-')
		return false;
	*vma = (struct vma){ .start = start, .end = number(&at, 16) };
	at = next_word(at);
	vma->prot = (at[0] == 'r' ? PROT_READ : 0) | (at[1] == 'w' ? PROT_WRITE : 0) |
		    (at[2] == 'x' ? PROT_EXEC : 0);
	vma->private = at[3] == 'p';
	at = next_word(next_word(next_word(at)));
	unsigned long inode = number(&at, 10);
	classify(vma, inode, next_word(at));
	return true;
}

static void parse_flags(const char *line, struct vma *vma)
{
	static const struct {
		char name[3];
		unsigned advice;
	} KNOWN[] = {
		{ "hg", MADV_HUGEPAGE }, { "nh", MADV_NOHUGEPAGE }, { "dc", MADV_DONTFORK },
		{ "dd", MADV_DONTDUMP }, { "mg", MADV_MERGEABLE },  { "rr", MADV_RANDOM },
		{ "sr", MADV_SEQUENTIAL },
	};

	for (const char *at = next_word(line); *at != '\0'; at = next_word(at)) {
		for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
			if (at[0] == KNOWN[i].name[0] && at[1] == KNOWN[i].name[1])
				vma->advice |= 1U << KNOWN[i].advice;
		if (at[0] == 'n' && at[1] == 'r')
			vma->no_reserve = true;
	}
}

static int next_of_text(struct vmas *vmas, struct vma *vma)
{
	int result;

	while ((result = next_line(vmas)) == 1) {
		if (parse_header(vmas->line, &vmas->vma))
			vmas->has_vma = true;
		else if (strncmp(vmas->line, "VmFlags:", 8) == 0)
			parse_flags(vmas->line, &vmas->vma);
		else
			continue;
		bool whole = vmas->with == VMAS_ONLY || vmas->line[0] == 'V';
		if (!vmas->has_vma || !whole)
			continue;
		vmas->has_vma = false;
		if (vmas->vma.end <= vmas->at)
			continue;
		*vma = vmas->vma;
		return 1;
	}
	return result;
}

int vmas_next(struct vmas *vmas, struct vma *vma)
{
	if (!vmas->text) {
		int result = query(vmas, vma);
		if (result != -ENOTTY && result != -EINVAL)
			return result;
		vmas->text = true;
	}
	return next_of_text(vmas, vma);
}
