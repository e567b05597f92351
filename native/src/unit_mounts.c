#include "coldsnap_report.h"
#include "coldsnap_unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static int fail(const struct coldsnap_start *start, const char *what, const char *path)
{
	return coldsnap_report_errno(start->report_fd, "%s %s", what, path);
}

/* Create the folders above `path`, and `path` itself if it shall be a folder. */
static int make_target(const char *path, bool is_folder)
{
	char partial[PATH_BYTES];
	size_t length = strlen(path);

	if (length == 0 || length >= sizeof partial)
		return errno = ENAMETOOLONG, -1;
	memcpy(partial, path, length + 1);
	for (char *slash = strchr(partial + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(partial, 0755) && errno != EEXIST)
			return -1;
		*slash = '/';
	}
	if (is_folder)
		return mkdir(path, 0755) && errno != EEXIST ? -1 : 0;
	int fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
	if (fd >= 0)
		close(fd);
	return fd < 0 ? -1 : 0;
}

static int make_read_only(const char *target)
{
#ifdef SYS_mount_setattr
	struct mount_attr attributes = { .attr_set = MOUNT_ATTR_RDONLY };
	if (syscall(SYS_mount_setattr, AT_FDCWD, target, AT_RECURSIVE, &attributes,
		    sizeof attributes) == 0)
		return 0;
	if (errno != ENOSYS)
		return -1;
#endif
	struct statvfs now;
	if (statvfs(target, &now))
		return -1;
	/* The flags of statvfs are those of mount for nosuid, nodev, noexec; all must be kept. */
	unsigned long kept = now.f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC);
	return mount(NULL, target, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | kept, NULL);
}

static int mount_tmpfs(const struct coldsnap_start *start, const struct coldsnap_mount *mount_)
{
	if (make_target(mount_->target, true))
		return fail(start, "folder", mount_->target);
	if (mount("tmpfs", mount_->target, "tmpfs", MS_NOSUID | MS_NODEV, mount_->source))
		return fail(start, "tmpfs at", mount_->target);
	return 0;
}

static int mount_bind(const struct coldsnap_start *start, const struct coldsnap_mount *mount_)
{
	char source[64];
	struct stat status;

	if (fstat(mount_->source_fd, &status))
		return fail(start, "look at", mount_->source);
	if (make_target(mount_->target, S_ISDIR(status.st_mode)))
		return fail(start, "mount point", mount_->target);
	snprintf(source, sizeof source, "/proc/self/fd/%d", mount_->source_fd);
	if (mount(source, mount_->target, NULL, MS_BIND | MS_REC, NULL))
		return fail(start, "bind at", mount_->target);
	if (mount_->kind == COLDSNAP_BIND_READ_ONLY && make_read_only(mount_->target))
		return fail(start, "read-only at", mount_->target);
	return 0;
}

/* Sources are opened before any mount is made: a later one may hide them (a new /tmp does). */
static int open_sources(struct coldsnap_start *start)
{
	for (size_t i = 0; i < start->mount_count; i++) {
		struct coldsnap_mount *mount_ = &start->mounts[i];
		if (mount_->kind == COLDSNAP_TMPFS)
			continue;
		mount_->source_fd = open(mount_->source, O_PATH | O_CLOEXEC);
		if (mount_->source_fd < 0)
			return fail(start, "open", mount_->source);
	}
	return 0;
}

int coldsnap_unit_mount_all(struct coldsnap_start *start)
{
	/* Nothing done here may reach the host's mounts, nor what the host mounts later us. */
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return fail(start, "private mounts below", "/");
	if (open_sources(start))
		return -1;
	for (size_t i = 0; i < start->mount_count; i++) {
		struct coldsnap_mount *mount_ = &start->mounts[i];
		int failed = mount_->kind == COLDSNAP_TMPFS ? mount_tmpfs(start, mount_) :
							      mount_bind(start, mount_);
		if (failed)
			return -1;
		if (mount_->source_fd >= 0)
			close(mount_->source_fd);
	}
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL))
		return fail(start, "proc at", "/proc");
	return 0;
}
