/* A connection has two sides; bytes read from one wait in a buffer until the other takes them, so
 * a slow reader slows its writer and memory stays bounded. */
#include "portmap_pump.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

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

void coldsnap_pump_free_dead(struct pump *pump)
{
	while (pump->dead) {
		struct connection *connection = pump->dead;
		pump->dead = connection->next;
		free(connection);
	}
}

void coldsnap_pump_end_all(struct pump *pump)
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
		coldsnap_pump_watch(pump, &connection->sides[side],
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

/* Its close will tell the peer that it was refused. */
static void end_by_reset(int fd)
{
	struct linger linger = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
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

void coldsnap_pump_add(struct pump *pump, int outer, uint16_t port)
{
	int inner = connect_inside(port);
	struct connection *connection = inner < 0 ? NULL : new_connection(outer, inner);

	if (!connection) {
		end_by_reset(outer);
		close(outer);
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
	if (coldsnap_pump_watch(pump, &connection->sides[1], EPOLLOUT))
		end_connection(pump, connection);
}

void coldsnap_pump_serve(struct pump *pump, struct source *source, uint32_t events)
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
			end_by_reset(connection->sides[0].fd);
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
