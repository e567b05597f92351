/* PID 1 of a unit. It is outside every process image: a restore gets a fresh one. */
#include "coldsnap_report.h"
#include "coldsnap_unit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int bring_loopback_up(void)
{
	struct ifreq request = { .ifr_name = "lo" };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	int failed = ioctl(fd, SIOCGIFFLAGS, &request);
	request.ifr_flags = (short)(request.ifr_flags | IFF_UP);
	failed = failed || ioctl(fd, SIOCSIFFLAGS, &request);
	close(fd);
	return failed ? -1 : 0;
}

/* The next process started in this PID namespace gets number + 1, if that is free. */
static int set_last_pid(pid_t number)
{
	char text[16];
	int length = snprintf(text, sizeof text, "%d", (int)number);
	int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	ssize_t count = write(fd, text, (size_t)length);
	close(fd);
	return count == length ? 0 : -1;
}

static int null_standard_streams(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return -1;
	for (int i = 0; i < COLDSNAP_FIRST_FREE_FD; i++)
		if (dup2(fd, i) < 0)
			return -1;
	if (fd >= COLDSNAP_FIRST_FREE_FD)
		close(fd);
	return 0;
}

/* Whatever the caller had open must not live as long as the unit, nor get into the image. */
static void close_all_but(int first, int second)
{
	for (int fd = COLDSNAP_FIRST_FREE_FD; fd < 1024; fd++)
		if (fd != first && fd != second)
			close(fd);
}

static void exec_root(const struct coldsnap_start *start, int failure_fd)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (getpid() != start->root_pid) {
		coldsnap_report(failure_fd, "error root process got pid %d, not %d", (int)getpid(),
				(int)start->root_pid);
		_exit(1);
	}
	setsid();
	close_all_but(failure_fd, -1);
	execv(start->root_argv[0], start->root_argv);
	coldsnap_report_errno(failure_fd, "run %s", start->root_argv[0]);
	_exit(1);
}

static int start_root(const struct coldsnap_start *start)
{
	int failure[2];
	char text[1100];

	if (pipe2(failure, O_CLOEXEC))
		return coldsnap_report_errno(start->report_fd, "pipe");
	pid_t root = fork();
	if (root < 0)
		return coldsnap_report_errno(start->report_fd, "root process");
	if (root == 0)
		exec_root(start, failure[1]);
	close(failure[1]);
	ssize_t count = read(failure[0], text, sizeof text - 1); /* 0: exec closed it */
	close(failure[0]);
	if (count <= 0)
		return 0;
	text[count - 1] = '\0';
	coldsnap_report(start->report_fd, "%s", text);
	return -1;
}

static int prepare(struct coldsnap_start *start)
{
	if (setsid() < 0)
		return coldsnap_report_errno(start->report_fd, "session");
	prctl(PR_SET_NAME, "coldsnap-init");
	if (coldsnap_unit_mount_all(start))
		return -1;
	/* After the mounts, so that /dev/null is the one of this mount namespace. */
	if (chdir("/") || null_standard_streams())
		return coldsnap_report_errno(start->report_fd, "standard streams");
	if (start->private_network && bring_loopback_up())
		return coldsnap_report_errno(start->report_fd, "loopback");
	if (set_last_pid(start->last_pid))
		return coldsnap_report_errno(start->report_fd, "ns_last_pid");
	return start->root_argv ? start_root(start) : 0;
}

static void end_unit(const struct coldsnap_start *start, int status)
{
	if (WIFEXITED(status))
		coldsnap_report(start->status_fd, "exited %d", WEXITSTATUS(status));
	else
		coldsnap_report(start->status_fd, "killed %d", WTERMSIG(status));
	kill(-1, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void reap(const struct coldsnap_start *start)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == start->root_pid)
			end_unit(start, status);
}

static void block(sigset_t *awaited, int further)
{
	sigemptyset(awaited);
	sigaddset(awaited, SIGCHLD);
	sigaddset(awaited, SIGTERM);
	sigaddset(awaited, SIGINT);
	if (further)
		sigaddset(awaited, further);
	sigprocmask(SIG_BLOCK, awaited, NULL);
}

static void serve(struct coldsnap_start *start, const sigset_t *awaited) __attribute__((noreturn));
static void serve(struct coldsnap_start *start, const sigset_t *awaited)
{
	bool is_started = !start->waits_for_signal;

	for (;;) {
		int number = sigwaitinfo(awaited, NULL);
		if (number == SIGCHLD)
			reap(start);
		else if (number == SIGUSR1 && !is_started && start->root_argv) {
			is_started = true;
			if (start_root(start))
				_exit(1);
		} else if (number == SIGTERM || number == SIGINT)
			kill(start->root_pid, number);
	}
}

void coldsnap_unit_init(struct coldsnap_start *start)
{
	sigset_t awaited;

	block(&awaited, 0);
	close_all_but(start->report_fd, start->status_fd);
	if (prepare(start))
		_exit(1);
	coldsnap_report(start->report_fd, "ready");
	close(start->report_fd);
	serve(start, &awaited);
}

int coldsnap_unit_contain(int argc, char **argv)
{
	static struct coldsnap_start start = { .waits_for_signal = true };
	sigset_t awaited;

	if (argc < 4 || strcmp(argv[0], "--status") != 0 || strcmp(argv[2], "--root-pid") != 0)
		return 64;
	start.root_pid = (pid_t)coldsnap_number(argv[3], 2, INT_MAX);
	if (start.root_pid < 0 || (argc > 4 && (strcmp(argv[4], "--") != 0 || argc == 5)))
		return 64;
	start.root_argv = argc > 5 ? argv + 5 : NULL;
	start.status_fd = open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	if (start.status_fd < 0)
		return 73;
	start.report_fd = start.status_fd;
	block(&awaited, SIGUSR1);
	close_all_but(start.status_fd, -1);
	prctl(PR_SET_NAME, "coldsnap-init");
	coldsnap_report(start.status_fd, "ready");
	serve(&start, &awaited);
}
