/* coldsnap-portmap --report FD [--unit PID] [--drain SECONDS] [--hold SECONDS]
 *                  [--connections N] [--take-from PID]... --port ADDRESS PORT INNER ...
 *
 * Writes "ready" or "error ..." to the report once. Signals: TERM ends (listening at once, open
 * connections within the drain); USR1 holds: who connects now waits in the backlog; HUP closes the
 * connections that are open; USR2 (or --hold seconds without another USR1) goes on. Ends by itself
 * when the unit does. */
#include "coldsnap_portmap.h"
#include "coldsnap_report.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int add_port(struct coldsnap_portmap *map, char **words)
{
	if (map->port_count == COLDSNAP_MAX_PORTS)
		return -1;
	struct coldsnap_port *port = &map->ports[map->port_count++];
	long outer = coldsnap_number(words[1], 1, UINT16_MAX);
	long inner = coldsnap_number(words[2], 1, UINT16_MAX);

	if (outer < 0 || inner < 0)
		return -1;
	*port = (struct coldsnap_port){ .address = words[0],
					.port = (uint16_t)outer,
					.inner = (uint16_t)inner,
					.fd = -1 };
	return 0;
}

static int take_number(const char *text, long least, long most, int *value)
{
	long number = coldsnap_number(text, least, most);

	*value = (int)number;
	return number < 0 ? -1 : 0;
}

/* How many words the option at words[0] takes with its values; -1 if it is not understood. */
static int take_option(struct coldsnap_portmap *map, int count, char **words)
{
	const char *name = words[0];

	if (count >= 4 && strcmp(name, "--port") == 0)
		return add_port(map, words + 1) ? -1 : 4;
	if (count < 2)
		return -1;
	if (strcmp(name, "--report") == 0)
		return take_number(words[1], 3, 1 << 20, &map->report_fd) ? -1 : 2;
	if (strcmp(name, "--unit") == 0)
		return take_number(words[1], 1, INT_MAX, &map->unit) ? -1 : 2;
	if (strcmp(name, "--drain") == 0)
		return take_number(words[1], 0, 86400, &map->drain_seconds) ? -1 : 2;
	if (strcmp(name, "--hold") == 0)
		return take_number(words[1], 0, 86400, &map->hold_seconds) ? -1 : 2;
	if (strcmp(name, "--connections") == 0)
		return take_number(words[1], 1, 100000, &map->max_connections) ? -1 : 2;
	if (strcmp(name, "--take-from") == 0 && map->predecessor_count < COLDSNAP_MAX_PREDECESSORS)
		return take_number(words[1], 1, INT_MAX,
				   &map->predecessors[map->predecessor_count++]) ? -1 : 2;
	return -1;
}

static int parse(struct coldsnap_portmap *map, int argc, char **argv)
{
	for (int i = 1; i < argc;) {
		int taken = take_option(map, argc - i, argv + i);
		if (taken < 0)
			return -1;
		i += taken;
	}
	return map->report_fd >= 0 && map->port_count > 0 ? 0 : -1;
}

int main(int argc, char **argv)
{
	static struct coldsnap_portmap map = {
		.report_fd = -1,
		.drain_seconds = 30,
		.hold_seconds = 600,
		.max_connections = COLDSNAP_DEFAULT_CONNECTIONS,
	};

	if (parse(&map, argc, argv)) {
		fputs("coldsnap-portmap: bad options\n", stderr);
		return 64;
	}
	signal(SIGPIPE, SIG_IGN);
	/* The host's sockets first: after entering the unit, new ones belong to its network. */
	if (coldsnap_portmap_listen(&map) || coldsnap_portmap_enter(&map))
		return 1;
	return coldsnap_portmap_pump(&map);
}
