#include "coldsnap_unit.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} MODES[] = {
	{ "start", coldsnap_unit_start },
	{ "contain", coldsnap_unit_contain },
	{ "supervise", coldsnap_unit_supervise },
	{ "enter", coldsnap_unit_enter },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof MODES / sizeof *MODES; i++)
		if (strcmp(argv[1], MODES[i].name) == 0)
			return MODES[i].run(argc - 2, argv + 2);
	fputs("usage: coldsnap-unit start|contain|supervise|enter ...\n", stderr);
	return 64;
}
