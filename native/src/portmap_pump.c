/* One thread, one epoll. A connection has two sides; bytes read from one wait in a buffer until
 * the other takes them, so a slow reader slows its writer and memory stays bounded. */
#include "coldsnap_portmap.h"
#include "coldsnap_report.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum kind { LISTENER, SIGNALS, UNIT_END, DRAIN_END, HOLD_END, OUTER, INNER };

/* What an epoll event points to; the first member of whatever it belongs to. */
struct source {
	enum kind kind;
	int fd;
	uint32_t events; /* what the epoll waits for; 0: it does not know this descriptor */
};

struct listener {
	struct source source;
	uint16_t inner;
};

/* Bytes on their way from one side to the other. */
struct flow {
	unsigned char *bytes;
	size_t start, end;
	bool saw_end;	/* the reading side said it sends no more */
	bool told_end;	/* and the writing side was told so */
};

struct connection {
	struct source sides[2]; /* OUTER, INNER */
	struct flow flows[2];	/* flows[i] carries what sides[i] sends */
	bool is_connected;	/* the inner side */
	bool is_dead;
	struct connection *next, *previous;
};

struct pump {
	struct coldsnap_portmap *map;
	int epoll;
	struct listener listeners[COLDSNAP_MAX_PORTS];
	struct source signals, unit_end, drain_end, hold_end;
	struct connection *first, *dead;
	int count;
	bool is_listening; /* the listeners are in the epoll */
	bool is_held, is_ending;
};

/* A descriptor from which nothing is wanted leaves the epoll: hang-ups would be told for ever. */
static int watch(struct pump *pump, struct source *source, uint32_t events)
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
		watch(pump, &pump->listeners[i].source, wanted ? EPOLLIN : 0);
	pump->is_listening = wanted;
}

/* Close now, free after the current round of events: others of it may still point here. */
static void end_connection(struct pump *pump, struct connection *connection)
{
	if (connection->is_dead)
		return;
	connection->is_dead = true;
	for (int i = 0; i < 2; i++) {
		close(connection->sides[i].fd);
		free(connection->flows[i].bytes);
	}
	if (connection->previous)
		connection->previous->next = connection->next;
	else
		pump->first = connection->next;
	if (connection->next)
		connection->next->previous = connection->previous;
	connection->next = pump->dead;
	pump->dead = connection;
	pump->count--;
}

static void free_dead(struct pump *pump)
{
	while (pump->dead) {
		struct connection *connection = pump->dead;
		pump->dead = connection->next;
		free(connection);
	}
}

static void end_all(struct pump *pump)
{
	while (pump->first)
		end_connection(pump, pump->first);
}

/* Read what sides[from] sends, as far as there is room. -1: the connection is broken. */
static int fill(struct connection *connection, int from)
{
	struct flow *flow = &connection->flows[from];

	while (!flow->saw_end && flow->end < COLDSNAP_BUFFER_BYTES) {
		ssize_t count = recv(connection->sides[from].fd, flow->bytes + flow->end,
				     COLDSNAP_BUFFER_BYTES - flow->end, 0);
		if (count < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -1;
		flow->saw_end = count == 0;
		flow->end += (size_t)count;
	}
	return 0;
}

/* Write what sides[from] sent to the other side. -1: the connection is broken. */
static int drain(struct connection *connection, int from)
{
	struct flow *flow = &connection->flows[from];
	int to = connection->sides[1 - from].fd;

	while (flow->start < flow->end) {
		ssize_t count = send(to, flow->bytes + flow->start, flow->end - flow->start,
				     MSG_NOSIGNAL);
		if (count < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -1;
		flow->start += (size_t)count;
	}
	flow->start = flow->end = 0;
	if (flow->saw_end && !flow->told_end) {
		flow->told_end = true;
		shutdown(to, SHUT_WR);
	}
	return 0;
}

/* Move what can be moved now, then wait for the right events only. */
static void move(struct pump *pump, struct connection *connection)
{
	for (int from = 0; from < 2; from++) {
		/* Twice: what the first round left unread may fit now. More would starve others. */
		for (int round = 0; round < 2; round++)
			if (fill(connection, from) || drain(connection, from)) {
				end_connection(pump, connection);
				return;
			}
	}
	if (connection->flows[0].told_end && connection->flows[1].told_end) {
		end_connection(pump, connection);
		return;
	}
	for (int side = 0; side < 2; side++) {
		struct flow *out = &connection->flows[side], *in = &connection->flows[1 - side];
		bool reads = !out->saw_end && out->end < COLDSNAP_BUFFER_BYTES;
		watch(pump, &connection->sides[side],
		      (reads ? EPOLLIN : 0u) | (in->start < in->end ? EPOLLOUT : 0u));
	}
}

static int connect_inside(uint16_t port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS) {
		close(fd);
		return -1;
	}
	return fd;
}

static void prefer_latency(int fd)
{
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

static void reset(int fd)
{
	struct linger linger = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
	close(fd);
}

static struct connection *new_connection(int outer, int inner)
{
	struct connection *connection = calloc(1, sizeof *connection);

	if (!connection)
		return NULL;
	connection->sides[0] = (struct source){ .kind = OUTER, .fd = outer };
	connection->sides[1] = (struct source){ .kind = INNER, .fd = inner };
	for (int i = 0; i < 2; i++)
		connection->flows[i].bytes = malloc(COLDSNAP_BUFFER_BYTES);
	if (connection->flows[0].bytes && connection->flows[1].bytes)
		return connection;
	free(connection->flows[0].bytes);
	free(connection->flows[1].bytes);
	free(connection);
	return NULL;
}

static void add_connection(struct pump *pump, int outer, uint16_t port)
{
	int inner = connect_inside(port);
	struct connection *connection = inner < 0 ? NULL : new_connection(outer, inner);

	if (!connection) {
		reset(outer);
		if (inner >= 0)
			close(inner);
		return;
	}
	prefer_latency(outer);
	prefer_latency(inner);
	connection->next = pump->first;
	if (pump->first)
		pump->first->previous = connection;
	pump->first = connection;
	pump->count++;
	/* Nothing is read from outside before the inside answers. */
	if (watch(pump, &connection->sides[1], EPOLLOUT))
		end_connection(pump, connection);
}

static void accept_some(struct pump *pump, const struct listener *listener)
{
	for (int i = 0; i < 64 && pump->count < pump->map->max_connections; i++) {
		int fd = accept4(listener->source.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			usleep(10000); /* out of descriptors or memory: do not spin until some end */
		if (fd < 0)
			break;
		add_connection(pump, fd, listener->inner);
	}
	listen_or_not(pump);
}

static void serve(struct pump *pump, struct source *source, uint32_t events)
{
	size_t offset = source->kind == INNER ? sizeof(struct source) : 0;
	struct connection *connection = (void *)((char *)source - offset);

	if (connection->is_dead)
		return;
	if (!connection->is_connected && source->kind == INNER) {
		int failed = 0;
		socklen_t length = sizeof failed;
		getsockopt(source->fd, SOL_SOCKET, SO_ERROR, &failed, &length);
		connection->is_connected = !failed;
		if (failed) { /* refused inside: refuse outside */
			struct linger linger = { .l_onoff = 1 };
			setsockopt(connection->sides[0].fd, SOL_SOCKET, SO_LINGER, &linger,
				   sizeof linger);
			end_connection(pump, connection);
			return;
		}
	}
	if ((events & EPOLLERR) || (!connection->is_connected && (events & EPOLLHUP))) {
		end_connection(pump, connection);
		return;
	}
	if (connection->is_connected)
		move(pump, connection);
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
		end_all(pump);
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
		serve(pump, source, events);
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
	if (watch(pump, &pump->signals, EPOLLIN) || watch(pump, &pump->drain_end, EPOLLIN) ||
	    watch(pump, &pump->hold_end, EPOLLIN))
		return -1;
	if (pump->map->unit != 0) {
		pump->unit_end = (struct source){
			UNIT_END, (int)syscall(SYS_pidfd_open, pump->map->unit, 0), 0
		};
		if (pump->unit_end.fd < 0 || watch(pump, &pump->unit_end, EPOLLIN))
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
		free_dead(&pump);
		listen_or_not(&pump);
		if (pump.is_ending && !is_closed) {
			close_listeners(&pump);
			is_closed = true;
		}
	}
	end_all(&pump);
	free_dead(&pump);
	return 0;
}
