/* What went wrong first, and the one line on stdout that says so. */
#ifndef COLDSNAP_FILL_FAILURE_H
#define COLDSNAP_FILL_FAILURE_H

#include <stdbool.h>

/* Exit statuses; callers tell by them what to do next. */
enum fill_status {
	FILL_DONE = 0,
	FILL_IO = 1,	   /* a file or a target could not be read or written */
	FILL_INVALID = 2,  /* the arguments or the index */
	FILL_DIGEST = 3,   /* an image file does not hold what was sealed */
	FILL_MAPS = 4,	   /* a target is not the process of the index, or its memory is laid out otherwise */
	FILL_DEADLINE = 5,
	FILL_ENDED = 6,	   /* a target ended */
	FILL_DIFFERS = 7,  /* verify: memory and image differ */
};

/* Keep this failure if it is the first one. Any thread. Returns -1, so that callers can return it. */
int fill_fail(enum fill_status status, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The same with the text of errno after the message. */
int fill_fail_errno(enum fill_status status, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Whether something failed: everybody stops. */
bool fill_failed(void);

/* Print the failure as one JSON line; `extra` is empty or more members, each after a comma.
 * Returns its exit status. */
int fill_report_failure(const char *extra);

/* Forget the failure; for tests in one process. */
void fill_forget_failure(void);

#endif
