/* supervise --log PATH --cwd DIR [--deny-io-uring] -- ENGINE ARGV...
 *
 * The root of the process image: a few pages, because CRIU loads the root's memory only after
 * that of all others. It starts the engine, forwards signals, reaps, and ends as the engine ends. */
#include "coldsnap_report.h"
#include "coldsnap_unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { IO_URING_FIRST = 425, IO_URING_LAST = 427, X32_BIT = 0x40000000 };

/* io_uring_setup, _enter and _register answer ENOSYS: CRIU cannot save a ring, and who asks for
 * one falls back to epoll. The numbers are the same on every architecture; x32 sets a bit. */
static int deny_io_uring(void)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* seccomp_data.nr */
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~(unsigned)X32_BIT),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, IO_URING_FIRST, 0, 2),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, IO_URING_LAST, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { .len = sizeof program / sizeof *program, .filter = program };

	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0)
		return 0;
	if (errno != EACCES || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter);
}

static int open_log(const char *path)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0)
		return -1;
	if (dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
		return -1;
	if (fd > STDERR_FILENO)
		close(fd);
	return 0;
}

struct supervise {
	const char *log;
	const char *cwd;
	bool deny_io_uring;
	char **argv;
};

static int parse(struct supervise *options, int argc, char **argv)
{
	int i = 0;

	for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (strcmp(argv[i], "--deny-io-uring") == 0)
			options->deny_io_uring = true;
		else if (strcmp(argv[i], "--log") == 0 && i + 1 < argc)
			options->log = argv[++i];
		else if (strcmp(argv[i], "--cwd") == 0 && i + 1 < argc)
			options->cwd = argv[++i];
		else
			return -1;
	}
	options->argv = argv + i + 1;
	return options->log && options->cwd && i + 1 < argc ? 0 : -1;
}

static void run_engine(const struct supervise *options)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (options->deny_io_uring && deny_io_uring()) {
		coldsnap_report_errno(STDERR_FILENO, "coldsnap: seccomp filter");
		_exit(126);
	}
	execvp(options->argv[0], options->argv);
	coldsnap_report_errno(STDERR_FILENO, "coldsnap: run %s", options->argv[0]);
	_exit(errno == ENOENT ? 127 : 126);
}

static int watch(pid_t engine, const sigset_t *awaited)
{
	for (;;) {
		int status, number = sigwaitinfo(awaited, NULL);
		pid_t pid;

		if (number > 0 && number != SIGCHLD)
			kill(engine, number);
		while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
			if (pid == engine)
				return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	}
}

int coldsnap_unit_supervise(int argc, char **argv)
{
	static const int FORWARDED[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };
	struct supervise options = { 0 };
	sigset_t awaited;

	if (parse(&options, argc, argv))
		return 64;
	if (open_log(options.log))
		return 73;
	if (chdir(options.cwd)) {
		coldsnap_report_errno(STDERR_FILENO, "coldsnap: folder %s", options.cwd);
		return 72;
	}
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigemptyset(&awaited);
	sigaddset(&awaited, SIGCHLD);
	for (size_t i = 0; i < sizeof FORWARDED / sizeof *FORWARDED; i++)
		sigaddset(&awaited, FORWARDED[i]);
	sigprocmask(SIG_BLOCK, &awaited, NULL);
	pid_t engine = fork();
	if (engine < 0)
		return 71;
	if (engine == 0)
		run_engine(&options);
	return watch(engine, &awaited);
}
