/* Shared by the two halves of the pump: its loop, and its connections. */
#ifndef COLDSNAP_PORTMAP_PUMP_H
#define COLDSNAP_PORTMAP_PUMP_H

#include "coldsnap_portmap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Wait for `events` of a source; 0: for nothing. Returns -1 with errno. */
int coldsnap_pump_watch(struct pump *pump, struct source *source, uint32_t events);

/* Connect an accepted descriptor with a port inside; without success it is reset. */
void coldsnap_pump_add(struct pump *pump, int outer, uint16_t port);

/* Something happened at one side of a connection. */
void coldsnap_pump_serve(struct pump *pump, struct source *source, uint32_t events);

/* End all connections. */
void coldsnap_pump_end_all(struct pump *pump);

/* Free those that ended in this round of events. */
void coldsnap_pump_free_dead(struct pump *pump);

#endif
