/* start --report FD [--status FD] --network private|host --root-pid N --last-pid N
 *       [--tmpfs OPTIONS TARGET] [--bind SOURCE TARGET] [--bind-read-only SOURCE TARGET]
 *       [-- ROOT ARGV...]
 *
 * Makes the namespaces and their PID 1, writes "init PID" and "ready" (or "error ...") to the
 * report and exits; PID 1 lives on. Nothing of this is ever part of a process image. */
#include "coldsnap_report.h"
#include "coldsnap_unit.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int add_mount(struct coldsnap_start *start, enum coldsnap_mount_kind kind, char **words)
{
	if (start->mount_count == COLDSNAP_MAX_MOUNTS || words[1][0] != '/')
		return -1;
	struct coldsnap_mount *mount = &start->mounts[start->mount_count++];
	mount->kind = kind;
	mount->source = words[0];
	mount->target = words[1];
	mount->source_fd = -1;
	return 0;
}

static int take_number(const char *text, long least, long most, int *value)
{
	long number = coldsnap_number(text, least, most);
	*value = (int)number;
	return number < 0 ? -1 : 0;
}

/* How many words the option at words[0] and its values take; -1 if it is not understood. */
static int take_option(struct coldsnap_start *start, int count, char **words)
{
	const char *name = words[0];

	if (count >= 3 && strcmp(name, "--tmpfs") == 0)
		return add_mount(start, COLDSNAP_TMPFS, words + 1) ? -1 : 3;
	if (count >= 3 && strcmp(name, "--bind") == 0)
		return add_mount(start, COLDSNAP_BIND, words + 1) ? -1 : 3;
	if (count >= 3 && strcmp(name, "--bind-read-only") == 0)
		return add_mount(start, COLDSNAP_BIND_READ_ONLY, words + 1) ? -1 : 3;
	if (count < 2)
		return -1;
	if (strcmp(name, "--report") == 0)
		return take_number(words[1], COLDSNAP_FIRST_FREE_FD, 1 << 20, &start->report_fd) ? -1 : 2;
	if (strcmp(name, "--status") == 0)
		return take_number(words[1], COLDSNAP_FIRST_FREE_FD, 1 << 20, &start->status_fd) ? -1 : 2;
	if (strcmp(name, "--root-pid") == 0)
		return take_number(words[1], 2, INT_MAX, &start->root_pid) ? -1 : 2;
	if (strcmp(name, "--last-pid") == 0)
		return take_number(words[1], 1, INT_MAX, &start->last_pid) ? -1 : 2;
	if (strcmp(name, "--network") == 0) {
		start->private_network = strcmp(words[1], "private") == 0;
		return start->private_network || strcmp(words[1], "host") == 0 ? 2 : -1;
	}
	return -1;
}

static int parse(struct coldsnap_start *start, int argc, char **argv)
{
	int i = 0;

	while (i < argc && strcmp(argv[i], "--") != 0) {
		int taken = take_option(start, argc - i, argv + i);
		if (taken < 0)
			return -1;
		i += taken;
	}
	if (i + 1 < argc)
		start->root_argv = argv + i + 1;
	if (start->report_fd < 0 || start->root_pid == 0 || start->last_pid == 0)
		return -1;
	return start->root_argv && start->last_pid != start->root_pid - 1 ? -1 : 0;
}

/* Read what PID 1 reports and pass it on, preceded by its number as the host sees it. */
static int relay(int from, int to, pid_t init)
{
	char text[2048];
	size_t length = 0;
	ssize_t count;

	while (length < sizeof text - 1 && (count = read(from, text + length, sizeof text - 1 - length)) > 0)
		length += (size_t)count;
	text[length] = '\0';
	if (strcmp(text, "ready\n") == 0) {
		coldsnap_report(to, "init %d\nready", (int)init);
		return 0;
	}
	if (length > 0 && text[length - 1] == '\n')
		text[length - 1] = '\0';
	coldsnap_report(to, "%s", length ? text : "error PID 1 of the unit died at once");
	kill(init, SIGKILL);
	waitpid(init, NULL, 0);
	return 1;
}

int coldsnap_unit_start(int argc, char **argv)
{
	static struct coldsnap_start start = { .report_fd = -1, .status_fd = -1 };
	int ready[2];

	if (parse(&start, argc, argv)) {
		fputs("coldsnap-unit start: bad options\n", stderr);
		return 64;
	}
	int flags = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWPID;
	if (start.private_network)
		flags |= CLONE_NEWNET;
	if (unshare(flags))
		return -coldsnap_report_errno(start.report_fd, "new namespaces");
	if (pipe2(ready, O_CLOEXEC))
		return -coldsnap_report_errno(start.report_fd, "pipe");
	pid_t init = fork();
	if (init < 0)
		return -coldsnap_report_errno(start.report_fd, "PID 1 of the unit");
	if (init == 0) {
		close(ready[0]);
		close(start.report_fd);
		start.report_fd = ready[1];
		coldsnap_unit_init(&start);
	}
	close(ready[1]);
	return relay(ready[0], start.report_fd, init);
}
