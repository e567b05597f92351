/* One thread, one epoll: listeners, signals, timers, and the connections of portmap_connection.c. */
#include "coldsnap_report.h"
#include "portmap_pump.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* A descriptor from which nothing is wanted leaves the epoll: hang-ups would be told for ever. */
int coldsnap_pump_watch(struct pump *pump, struct source *source, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = source };
	int operation = source->events == 0 ? EPOLL_CTL_ADD :
			events == 0	    ? EPOLL_CTL_DEL :
					      EPOLL_CTL_MOD;

	if (events == source->events)
		return 0;
	source->events = events;
	return epoll_ctl(pump->epoll, operation, source->fd, &event);
}

static void listen_or_not(struct pump *pump)
{
	bool wanted = !pump->is_held && !pump->is_ending && pump->count < pump->map->max_connections;

	if (wanted == pump->is_listening)
		return;
	for (size_t i = 0; i < pump->map->port_count; i++)
		coldsnap_pump_watch(pump, &pump->listeners[i].source, wanted ? EPOLLIN : 0);
	pump->is_listening = wanted;
}

static void accept_some(struct pump *pump, const struct listener *listener)
{
	for (int i = 0; i < 64 && pump->count < pump->map->max_connections; i++) {
		int fd = accept4(listener->source.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			usleep(10000); /* out of descriptors or memory: do not spin until some end */
		if (fd < 0)
			break;
		coldsnap_pump_add(pump, fd, listener->inner);
	}
	listen_or_not(pump);
}

/* Have the timer `source` expire once; 0 seconds: at once, below: never. */
static void set_timer(const struct source *source, int seconds)
{
	struct itimerspec when = { 0 };

	if (seconds >= 0)
		when.it_value = (struct timespec){ .tv_sec = seconds, .tv_nsec = 1 };
	timerfd_settime(source->fd, 0, &when, NULL);
}

static void hold(struct pump *pump, bool is_held)
{
	pump->is_held = is_held;
	set_timer(&pump->hold_end, is_held ? pump->map->hold_seconds : -1);
}

static void take_signal(struct pump *pump)
{
	struct signalfd_siginfo info;

	if (read(pump->signals.fd, &info, sizeof info) != sizeof info)
		return;
	if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT) {
		pump->is_ending = true;
		set_timer(&pump->drain_end, pump->map->drain_seconds);
	}
	if (info.ssi_signo == SIGUSR1 || info.ssi_signo == SIGUSR2)
		hold(pump, info.ssi_signo == SIGUSR1);
	if (info.ssi_signo == SIGHUP)
		coldsnap_pump_end_all(pump);
	listen_or_not(pump);
}

static bool dispatch(struct pump *pump, struct source *source, uint32_t events)
{
	switch (source->kind) {
	case LISTENER:
		accept_some(pump, (const struct listener *)source);
		return true;
	case SIGNALS:
		take_signal(pump);
		return true;
	case HOLD_END: /* whoever held us is gone */
		hold(pump, false);
		return true;
	case OUTER:
	case INNER:
		coldsnap_pump_serve(pump, source, events);
		return true;
	default: /* the unit ended, or the drain did */
		return false;
	}
}

static void block_signals(sigset_t *set)
{
	static const int AWAITED[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 };

	sigemptyset(set);
	for (size_t i = 0; i < sizeof AWAITED / sizeof *AWAITED; i++)
		sigaddset(set, AWAITED[i]);
	sigprocmask(SIG_BLOCK, set, NULL);
}

static int prepare(struct pump *pump)
{
	sigset_t awaited;
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	block_signals(&awaited);
	pump->epoll = epoll_create1(EPOLL_CLOEXEC);
	pump->signals = (struct source){ SIGNALS, signalfd(-1, &awaited, SFD_CLOEXEC), 0 };
	pump->drain_end = (struct source){ DRAIN_END, timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC), 0 };
	pump->hold_end = (struct source){ HOLD_END, timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC), 0 };
	if (coldsnap_pump_watch(pump, &pump->signals, EPOLLIN) || coldsnap_pump_watch(pump, &pump->drain_end, EPOLLIN) ||
	    coldsnap_pump_watch(pump, &pump->hold_end, EPOLLIN))
		return -1;
	if (pump->map->unit != 0) {
		pump->unit_end = (struct source){
			UNIT_END, (int)syscall(SYS_pidfd_open, pump->map->unit, 0), 0
		};
		if (pump->unit_end.fd < 0 || coldsnap_pump_watch(pump, &pump->unit_end, EPOLLIN))
			return -1;
	}
	for (size_t i = 0; i < pump->map->port_count; i++)
		pump->listeners[i] = (struct listener){ { LISTENER, pump->map->ports[i].fd, 0 },
							pump->map->ports[i].inner };
	return 0;
}

static void close_listeners(struct pump *pump)
{
	for (size_t i = 0; i < pump->map->port_count; i++)
		close(pump->listeners[i].source.fd);
}

int coldsnap_portmap_pump(struct coldsnap_portmap *map)
{
	static struct pump pump;
	struct epoll_event events[64];
	bool is_closed = false, goes_on = true;

	pump.map = map;
	if (prepare(&pump))
		return -coldsnap_report_errno(map->report_fd, "prepare to serve");
	/* From here on one of us accepts: those before us stop, and then we begin. */
	for (size_t i = 0; i < map->predecessor_count; i++)
		kill(map->predecessors[i], SIGTERM);
	listen_or_not(&pump);
	coldsnap_report(map->report_fd, "ready");
	close(map->report_fd);
	while (goes_on && !(pump.is_ending && pump.count == 0)) {
		int count = epoll_wait(pump.epoll, events, 64, -1);
		for (int i = 0; i < count && goes_on; i++)
			goes_on = dispatch(&pump, events[i].data.ptr, events[i].events);
		coldsnap_pump_free_dead(&pump);
		listen_or_not(&pump);
		if (pump.is_ending && !is_closed) {
			close_listeners(&pump);
			is_closed = true;
		}
	}
	coldsnap_pump_end_all(&pump);
	coldsnap_pump_free_dead(&pump);
	return 0;
}
