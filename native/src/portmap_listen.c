#include "coldsnap_portmap.h"
#include "coldsnap_report.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static int fill_address(const struct coldsnap_port *port, struct sockaddr_storage *address,
			socklen_t *length)
{
	struct sockaddr_in *four = (struct sockaddr_in *)address;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;

	memset(address, 0, sizeof *address);
	if (inet_pton(AF_INET, port->address, &four->sin_addr) == 1) {
		four->sin_family = AF_INET;
		four->sin_port = htons(port->port);
		*length = sizeof *four;
		return 0;
	}
	if (inet_pton(AF_INET6, port->address, &six->sin6_addr) == 1) {
		six->sin6_family = AF_INET6;
		six->sin6_port = htons(port->port);
		*length = sizeof *six;
		return 0;
	}
	errno = EINVAL;
	return -1;
}

static bool listens_at(int fd, const struct sockaddr_storage *wanted)
{
	struct sockaddr_storage found;
	socklen_t length = sizeof found;
	int listening = 0;
	socklen_t listening_length = sizeof listening;

	memset(&found, 0, sizeof found);
	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &listening_length) || !listening)
		return false;
	if (getsockname(fd, (struct sockaddr *)&found, &length) ||
	    found.ss_family != wanted->ss_family)
		return false;
	if (found.ss_family == AF_INET) {
		const struct sockaddr_in *a = (const void *)&found, *b = (const void *)wanted;
		return a->sin_port == b->sin_port && a->sin_addr.s_addr == b->sin_addr.s_addr;
	}
	const struct sockaddr_in6 *a = (const void *)&found, *b = (const void *)wanted;
	return a->sin6_port == b->sin6_port &&
	       memcmp(&a->sin6_addr, &b->sin6_addr, sizeof a->sin6_addr) == 0;
}

/* The predecessor's own socket, queue and all: whoever waits in it loses nothing. */
static int take_from(pid_t pid, const struct sockaddr_storage *wanted)
{
	char path[64];
	int process = (int)syscall(SYS_pidfd_open, pid, 0), taken = -1;

	if (process < 0)
		return -1;
	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	DIR *folder = opendir(path);
	struct dirent *entry;
	while (folder && taken < 0 && (entry = readdir(folder))) {
		long number = coldsnap_number(entry->d_name, 0, 1 << 20);
		int fd = number < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, (int)number, 0);
		if (fd >= 0 && listens_at(fd, wanted))
			taken = fd;
		else if (fd >= 0)
			close(fd);
	}
	if (folder)
		closedir(folder);
	close(process);
	return taken;
}

static int listen_anew(const struct sockaddr_storage *address, socklen_t length)
{
	int on = 1;
	int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (address->ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
	if (bind(fd, (const struct sockaddr *)address, length) || listen(fd, BACKLOG)) {
		int number = errno;
		close(fd);
		errno = number;
		return -1;
	}
	return fd;
}

static int listen_at(const struct coldsnap_portmap *map, struct coldsnap_port *port)
{
	struct sockaddr_storage address;
	socklen_t length;

	if (fill_address(port, &address, &length))
		return -1;
	for (size_t i = 0; i < map->predecessor_count && port->fd < 0; i++)
		port->fd = take_from(map->predecessors[i], &address);
	if (port->fd < 0)
		port->fd = listen_anew(&address, length);
	if (port->fd < 0)
		return -1;
	return fcntl(port->fd, F_SETFL, O_NONBLOCK);
}

int coldsnap_portmap_listen(struct coldsnap_portmap *map)
{
	for (size_t i = 0; i < map->port_count; i++) {
		struct coldsnap_port *port = &map->ports[i];
		if (listen_at(map, port))
			return coldsnap_report_errno(map->report_fd, "listen at %s port %d",
						     port->address, port->port);
	}
	return 0;
}

int coldsnap_portmap_enter(const struct coldsnap_portmap *map)
{
	char path[64];

	if (map->unit == 0)
		return 0;
	snprintf(path, sizeof path, "/proc/%d/ns/net", (int)map->unit);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		return coldsnap_report_errno(map->report_fd, "enter the network of process %d",
					     (int)map->unit);
	close(fd);
	return 0;
}
