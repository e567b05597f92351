#include "images.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "failure.h"

static int open_one(struct fill_image *image, const struct fill_file *file, int folder)
{
	image->fd = openat(folder, file->name,
			   O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (image->fd < 0 || fstat(image->fd, &image->opened) != 0)
		return fill_fail_errno(FILL_IO, "%s", file->name);
	if (!S_ISREG(image->opened.st_mode))
		return fill_fail(FILL_IO, "%s is not a regular file", file->name);
	if ((uint64_t)image->opened.st_size != file->bytes)
		return fill_fail(FILL_IO, "%s has %lld bytes, the index says %llu", file->name,
				 (long long)image->opened.st_size, (unsigned long long)file->bytes);
	return 0;
}

int fill_images_open(struct fill_images *images, const struct fill_index *index,
		     const char *folder)
{
	uint32_t count = index->header->files;
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	*images = (struct fill_images){ .index = index };
	if (fd < 0)
		return fill_fail_errno(FILL_IO, "%s", folder);
	images->files = calloc(count + 1ULL, sizeof *images->files);
	int result = images->files == NULL ? fill_fail_errno(FILL_IO, "memory") : 0;
	for (uint32_t i = 0; i < count && images->files != NULL; i++)
		images->files[i].fd = -1;
	for (uint32_t i = 0; i < count && result == 0; i++)
		result = open_one(images->files + i, index->files + i, fd);
	close(fd);
	return result;
}

int fill_images_read(const struct fill_images *images, uint32_t file, void *buffer, size_t bytes,
		     uint64_t offset)
{
	char *to = buffer;

	while (bytes > 0) {
		ssize_t count = pread(images->files[file].fd, to, bytes, (off_t)offset);
		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			return fill_fail_errno(FILL_IO, "%s at %llu", images->index->files[file].name,
					       (unsigned long long)offset);
		if (count == 0)
			return fill_fail(FILL_IO, "%s ends at %llu: it was cut meanwhile",
					 images->index->files[file].name,
					 (unsigned long long)offset);
		to += count;
		bytes -= (size_t)count;
		offset += (uint64_t)count;
	}
	return 0;
}

int fill_images_unchanged(const struct fill_images *images)
{
	for (uint32_t i = 0; i < images->index->header->files; i++) {
		const struct stat *before = &images->files[i].opened;
		struct stat now;
		if (fstat(images->files[i].fd, &now) != 0)
			return fill_fail_errno(FILL_IO, "%s", images->index->files[i].name);
		if (now.st_size != before->st_size ||
		    now.st_mtim.tv_sec != before->st_mtim.tv_sec ||
		    now.st_mtim.tv_nsec != before->st_mtim.tv_nsec)
			return fill_fail(FILL_IO, "%s was written meanwhile",
					 images->index->files[i].name);
	}
	return 0;
}

void fill_images_close(struct fill_images *images)
{
	for (uint32_t i = 0; images->files != NULL && i < images->index->header->files; i++)
		if (images->files[i].fd >= 0)
			close(images->files[i].fd);
	free(images->files);
	images->files = NULL;
}
