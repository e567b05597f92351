/* The index as a file: read with bounds, replaced in one step. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"
#include "index.h"

static const off_t MOST_INDEX_BYTES = 1LL << 30;

static int read_all(int fd, unsigned char *data, size_t bytes)
{
	while (bytes > 0) {
		ssize_t count = read(fd, data, bytes);
		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			return -1;
		if (count == 0) {
			errno = ENODATA;
			return -1;
		}
		data += count;
		bytes -= (size_t)count;
	}
	return 0;
}

static unsigned char *contents(int fd, const char *path, size_t *bytes)
{
	struct stat status;

	if (fstat(fd, &status) != 0)
		return fill_fail_errno(FILL_IO, "%s", path), NULL;
	if (!S_ISREG(status.st_mode) || status.st_size > MOST_INDEX_BYTES || status.st_size < 1)
		return fill_fail(FILL_INVALID, "%s is no index", path), NULL;
	*bytes = (size_t)status.st_size;
	unsigned char *data = malloc(*bytes);
	if (data == NULL || read_all(fd, data, *bytes) != 0) {
		fill_fail_errno(FILL_IO, "%s", path);
		free(data);
		return NULL;
	}
	return data;
}

int fill_index_read(struct fill_index *index, const char *path, bool sealed)
{
	size_t bytes = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	index->data = NULL;
	if (fd < 0)
		return fill_fail_errno(FILL_IO, "%s", path);
	unsigned char *data = contents(fd, path, &bytes);
	close(fd);
	if (data == NULL)
		return -1;
	if (fill_index_parse(index, data, bytes, sealed) != 0) {
		free(data);
		index->data = NULL;
		return -1;
	}
	return 0;
}

static int write_all(int fd, const unsigned char *data, size_t bytes)
{
	while (bytes > 0) {
		ssize_t count = write(fd, data, bytes);
		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			return -1;
		data += count;
		bytes -= (size_t)count;
	}
	return 0;
}

static int sync_folder(const char *path)
{
	char folder[PATH_MAX];
	const char *slash = strrchr(path, '/');
	int length = slash == NULL ? 0 : (int)(slash - path);

	snprintf(folder, sizeof folder, "%.*s%s", length, path, length == 0 && slash ? "/" : "");
	int fd = open(*folder ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	int result = fsync(fd);
	close(fd);
	return result;
}

int fill_index_replace(const struct fill_index *index, const char *path)
{
	char partial[PATH_MAX];
	struct stat status;

	if (snprintf(partial, sizeof partial, "%s.sealing", path) >= (int)sizeof partial)
		return fill_fail(FILL_INVALID, "%s: the path is too long", path);
	if (stat(path, &status) != 0)
		return fill_fail_errno(FILL_IO, "%s", path);
	if (unlink(partial) != 0 && errno != ENOENT)
		return fill_fail_errno(FILL_IO, "%s", partial);
	int fd = open(partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return fill_fail_errno(FILL_IO, "%s", partial);
	bool good = write_all(fd, index->data, index->data_bytes) == 0 &&
		    fchmod(fd, status.st_mode & 07777) == 0 && fsync(fd) == 0;
	int number = errno;
	if (close(fd) != 0 && good)
		good = false, number = errno;
	if (good && rename(partial, path) == 0 && sync_folder(path) == 0)
		return 0;
	errno = good ? errno : number;
	fill_fail_errno(FILL_IO, "%s", path);
	unlink(partial);
	return -1;
}
