/* coldsnap-portmap: offers a unit's ports on the host. Listens outside, connects inside. */
#ifndef COLDSNAP_PORTMAP_H
#define COLDSNAP_PORTMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	COLDSNAP_MAX_PORTS = 64,
	COLDSNAP_MAX_PREDECESSORS = 16,
	COLDSNAP_BUFFER_BYTES = 32 << 10,
	COLDSNAP_DEFAULT_CONNECTIONS = 4096,
};

struct coldsnap_port {
	const char *address; /* numeric IPv4 or IPv6 */
	uint16_t port;	     /* on the host */
	uint16_t inner;	     /* on the unit's loopback */
	int fd;
};

struct coldsnap_portmap {
	int report_fd;
	pid_t unit;	       /* PID 1 of the unit; 0: the engine is in our own network */
	int drain_seconds;     /* how long open connections may live after TERM */
	int hold_seconds;      /* a hold that nobody renews ends by itself */
	int max_connections;
	size_t port_count;
	struct coldsnap_port ports[COLDSNAP_MAX_PORTS];
	size_t predecessor_count;
	pid_t predecessors[COLDSNAP_MAX_PREDECESSORS];
};

/* Fill in every port's listening socket: that of a predecessor if one has it, else a new one.
 * 0, or -1 and reported. */
int coldsnap_portmap_listen(struct coldsnap_portmap *map);

/* Enter the network of the unit; all later sockets are made there. 0, or -1 and reported. */
int coldsnap_portmap_enter(const struct coldsnap_portmap *map);

/* Move bytes until TERM and the end of the drain, or until the unit ends. An exit status. */
int coldsnap_portmap_pump(struct coldsnap_portmap *map);

#endif
