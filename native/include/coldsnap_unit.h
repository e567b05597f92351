/* coldsnap-unit: the process that is PID 1 of a unit, the one that is the root of its image, and
 * the way into its namespaces. Modes of one static program. */
#ifndef COLDSNAP_UNIT_H
#define COLDSNAP_UNIT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { COLDSNAP_MAX_MOUNTS = 256, COLDSNAP_FIRST_FREE_FD = 3 };

enum coldsnap_mount_kind { COLDSNAP_TMPFS, COLDSNAP_BIND, COLDSNAP_BIND_READ_ONLY };

struct coldsnap_mount {
	enum coldsnap_mount_kind kind;
	const char *source; /* a path; for tmpfs its mount options */
	const char *target;
	int source_fd; /* -1 until opened */
};

struct coldsnap_start {
	int report_fd;
	int status_fd; /* -1, or where the end of the root process is written */
	bool private_network;
	bool waits_for_signal; /* the root is started by SIGUSR1, once ns_last_pid was set */
	pid_t root_pid;	 /* number of the dump root inside the unit */
	pid_t last_pid;	 /* what ns_last_pid is set to before anything is started inside */
	char **root_argv; /* NULL: nothing is started, CRIU will restore the root */
	size_t mount_count;
	struct coldsnap_mount mounts[COLDSNAP_MAX_MOUNTS];
};

/* contain --status PATH --root-pid N [-- ROOT ARGV...]: be PID 1 of a container, whose engine made
 * the namespaces and mounts. SIGUSR1 starts the root: only the host may set ns_last_pid before.
 *
 * Modes; each takes the words after its name and returns an exit status. */
int coldsnap_unit_start(int argc, char **argv);
int coldsnap_unit_contain(int argc, char **argv);
int coldsnap_unit_supervise(int argc, char **argv);
int coldsnap_unit_enter(int argc, char **argv);

/* Make the mounts of `start` in this (new) mount namespace, /proc last. 0, or -1 and reported. */
int coldsnap_unit_mount_all(struct coldsnap_start *start);

/* Be PID 1: start the root if there is one, say "ready" on the report, reap until the root ends.
 * Never returns. */
void coldsnap_unit_init(struct coldsnap_start *start) __attribute__((noreturn));

#endif
