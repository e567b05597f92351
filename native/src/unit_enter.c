/* enter PID -- ARGV...
 * enter PID --last-pid N
 *
 * Runs a command inside all namespaces of PID 1 of a unit, its PID namespace included, with the
 * descriptors it was given, and ends as the command ends. CRIU is run this way: what it dumps or
 * restores is then in no namespace but its own, and /proc is right for everybody. The second
 * form sets the last process number given out inside, through this host's /proc: that of a
 * container cannot be written. */
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
static const char *const NAMESPACES[] = { "cgroup", "ipc", "uts", "net", "pid", "mnt" };
enum { NAMESPACE_COUNT = sizeof NAMESPACES / sizeof *NAMESPACES };

static void write_self(const char *folder, const char *path)
{
	char name[PATH_MAX];

	if (snprintf(name, sizeof name, "/sys/fs/cgroup/%s%s/cgroup.procs", folder, path) >=
	    (int)sizeof name)
		return;
	int fd = open(name, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	ssize_t ignored = write(fd, "0", 1);
	(void)ignored;
	close(fd);
}

/* Be counted and limited where the unit is: what CRIU restores inherits that. As far as this host
 * mounts its cgroups at the usual places; elsewhere the caller's cgroup stays. */
static void join_cgroups(int pid)
{
	char name[64], line[PATH_MAX];

	snprintf(name, sizeof name, "/proc/%d/cgroup", pid);
	FILE *file = fopen(name, "re");
	while (file && fgets(line, sizeof line, file)) {
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!path)
			continue;
		*path++ = '\0';
		path[strcspn(path, "\n")] = '\0';
		controllers++;
		if (strncmp(controllers, "name=", 5) == 0)
			controllers += 5;
		if (*controllers == '\0') /* version 2, alone or beside version 1 */
			write_self("unified", path);
		write_self(controllers, path);
	}
	if (file)
		fclose(file);
}

static int set_last_pid(int pid, const char *number)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/ns/pid", pid);
	int namespace = open(path, O_RDONLY | O_CLOEXEC);
	if (namespace < 0 || setns(namespace, CLONE_NEWPID))
		return coldsnap_report_errno(STDERR_FILENO, "enter pid");
	pid_t child = fork();
	if (child == 0) {
		int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
		size_t length = strlen(number);
		if (fd < 0 || write(fd, number, length) != (ssize_t)length)
			_exit(-coldsnap_report_errno(STDERR_FILENO, "ns_last_pid"));
		_exit(0);
	}
	int status = 1;
	if (child < 0 || waitpid(child, &status, 0) != child)
		return coldsnap_report_errno(STDERR_FILENO, "fork");
	return status;
}

static int join(int pid)
{
	int fds[NAMESPACE_COUNT];
	char path[64];

	for (int i = 0; i < NAMESPACE_COUNT; i++) {
		snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, NAMESPACES[i]);
		fds[i] = open(path, O_RDONLY | O_CLOEXEC);
		if (fds[i] < 0 && (i > 0 || errno != ENOENT)) /* no cgroup namespaces: old kernel */
			return coldsnap_report_errno(STDERR_FILENO, "open %s", path);
	}
	join_cgroups(pid);
	for (int i = 0; i < NAMESPACE_COUNT; i++) {
		if (fds[i] >= 0 && setns(fds[i], 0))
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
	long pid = argc >= 3 ? coldsnap_number(argv[0], 1, INT_MAX) : -1;

	if (pid > 0 && argc == 3 && strcmp(argv[1], "--last-pid") == 0 &&
	    coldsnap_number(argv[2], 1, INT_MAX) > 0)
		return set_last_pid((int)pid, argv[2]) ? 125 : 0;
	if (pid < 0 || strcmp(argv[1], "--") != 0) {
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
