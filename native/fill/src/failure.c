#include "failure.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 512 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int first_status;
static char first_text[2 * TEXT_BYTES];

static const char *code_of(int status)
{
	static const char *const CODES[] = { "done",	 "io",	  "invalid", "digest",
					     "maps", "deadline", "ended",   "differs" };
	return CODES[status];
}

static void keep(enum fill_status status, const char *text, const char *why)
{
	pthread_mutex_lock(&lock);
	if (atomic_load(&first_status) == FILL_DONE) {
		snprintf(first_text, sizeof first_text, "%s%s%s", text, *why ? ": " : "", why);
		atomic_store(&first_status, (int)status);
	}
	pthread_mutex_unlock(&lock);
}

int fill_fail(enum fill_status status, const char *format, ...)
{
	char text[TEXT_BYTES];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	keep(status, text, "");
	return -1;
}

int fill_fail_errno(enum fill_status status, const char *format, ...)
{
	int number = errno;
	char text[TEXT_BYTES];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	keep(status, text, strerror(number));
	return -1;
}

bool fill_failed(void)
{
	return atomic_load_explicit(&first_status, memory_order_relaxed) != FILL_DONE;
}

/* Names and paths are the caller's and may hold anything. */
static void print_string(const char *text)
{
	putchar('"');
	for (; *text; text++) {
		unsigned char byte = (unsigned char)*text;
		if (byte == '"' || byte == '\\')
			printf("\\%c", byte);
		else if (byte < 0x20 || byte >= 0x7f)
			printf("\\u%04x", byte);
		else
			putchar(byte);
	}
	putchar('"');
}

int fill_report_failure(const char *extra)
{
	pthread_mutex_lock(&lock);
	int status = atomic_load(&first_status);
	printf("{\"error\":");
	print_string(first_text);
	printf(",\"code\":\"%s\"%s}\n", code_of(status), extra);
	fflush(stdout);
	pthread_mutex_unlock(&lock);
	return status;
}

void fill_forget_failure(void)
{
	atomic_store(&first_status, FILL_DONE);
}
