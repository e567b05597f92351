/* enter PID -- ARGV...
 *
 * Runs a command inside all namespaces of PID 1 of a unit, its PID namespace included, with the
 * descriptors it was given, and ends as the command ends. CRIU is run this way: what it dumps or
 * restores is then in no namespace but its own, and /proc is right for everybody. */
#include "coldsnap_report.h"
#include "coldsnap_unit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The mount namespace last: the others are opened below this /proc. */
static const char *const NAMESPACES[] = { "ipc", "uts", "net", "pid", "mnt" };
enum { NAMESPACE_COUNT = sizeof NAMESPACES / sizeof *NAMESPACES };

static int join(int pid)
{
	int fds[NAMESPACE_COUNT];
	char path[64];

	for (int i = 0; i < NAMESPACE_COUNT; i++) {
		snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, NAMESPACES[i]);
		fds[i] = open(path, O_RDONLY | O_CLOEXEC);
		if (fds[i] < 0)
			return coldsnap_report_errno(STDERR_FILENO, "open %s", path);
	}
	for (int i = 0; i < NAMESPACE_COUNT; i++) {
		if (setns(fds[i], 0))
			return coldsnap_report_errno(STDERR_FILENO, "enter %s", NAMESPACES[i]);
		close(fds[i]);
	}
	return 0;
}

/* Only the command may hold what was passed in: its peer must see the end when it dies. */
static void close_passed(void)
{
	for (int fd = COLDSNAP_FIRST_FREE_FD; fd < 1024; fd++)
		close(fd);
}

static volatile sig_atomic_t command_pid;

/* SIGKILL cannot be forwarded, so SIGQUIT stands for it. */
static void forward(int number)
{
	if (command_pid > 0)
		kill(command_pid, number == SIGQUIT ? SIGKILL : number);
}

static void forward_signals(void)
{
	struct sigaction action = { .sa_handler = forward };

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGQUIT, &action, NULL);
}

int coldsnap_unit_enter(int argc, char **argv)
{
	long pid = argc >= 3 && strcmp(argv[1], "--") == 0 ? coldsnap_number(argv[0], 1, INT_MAX) : -1;

	if (pid < 0) {
		fputs("usage: coldsnap-unit enter PID -- COMMAND...\n", stderr);
		return 64;
	}
	if (join((int)pid))
		return 125;
	pid_t command = fork();
	if (command < 0) {
		coldsnap_report_errno(STDERR_FILENO, "fork");
		return 125;
	}
	if (command == 0) {
		execvp(argv[2], argv + 2);
		coldsnap_report_errno(STDERR_FILENO, "run %s", argv[2]);
		_exit(errno == ENOENT ? 127 : 126);
	}
	command_pid = command;
	forward_signals();
	close_passed();
	int status;
	while (waitpid(command, &status, 0) < 0)
		if (errno != EINTR)
			return 125;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
