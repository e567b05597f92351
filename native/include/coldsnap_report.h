/* How our programs tell their caller what became of them: lines on a descriptor. */
#ifndef COLDSNAP_REPORT_H
#define COLDSNAP_REPORT_H

/* Write one line to `fd`; -1 writes nothing. */
void coldsnap_report(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Write "error WHAT: <text of errno>" to `fd`; returns -1, so that callers can return it. */
int coldsnap_report_errno(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The whole text as a number within [least, most]; -1 if it is none. */
long coldsnap_number(const char *text, long least, long most);

#endif
