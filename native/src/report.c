#include "coldsnap_report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 1024 };

static void write_line(int fd, const char *line, size_t length)
{
	while (fd >= 0 && length > 0) {
		ssize_t count = write(fd, line, length);
		if (count < 0 && errno == EINTR)
			continue;
		if (count <= 0)
			return; /* nobody listens any more */
		line += count;
		length -= (size_t)count;
	}
}

static size_t shortened(int length)
{
	if (length < 0)
		return 0;
	return length >= LINE_BYTES ? LINE_BYTES - 1 : (size_t)length;
}

void coldsnap_report(int fd, const char *format, ...)
{
	char line[LINE_BYTES + 1];
	va_list arguments;

	va_start(arguments, format);
	size_t length = shortened(vsnprintf(line, LINE_BYTES, format, arguments));
	va_end(arguments);
	line[length++] = '\n';
	write_line(fd, line, length);
}

int coldsnap_report_errno(int fd, const char *format, ...)
{
	int number = errno;
	char what[LINE_BYTES / 2];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(what, sizeof what, format, arguments);
	va_end(arguments);
	coldsnap_report(fd, "error %s: %s", what, strerror(number));
	errno = number;
	return -1;
}

long coldsnap_number(const char *text, long least, long most)
{
	char *end = NULL;

	errno = 0;
	long value = strtol(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || value < least || value > most)
		return -1;
	return value;
}
