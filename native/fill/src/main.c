/* coldsnap-fill: puts the page bytes of a process image into processes that CRIU made without. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"
#include "pool.h"
#include "verbs.h"

static const char USAGE[] =
	"usage: coldsnap-fill seal   --index FILE --images DIR [--threads N] [--deadline SECONDS]\n"
	"       coldsnap-fill fill   --index FILE --images DIR --pid INSIDE=HOST ... [--threads N]\n"
	"                            [--deadline SECONDS] [--no-digests]\n"
	"       coldsnap-fill verify --index FILE --images DIR --pid INSIDE=HOST ... [--threads N]\n"
	"                            [--deadline SECONDS] [--no-digests]\n";

static const struct {
	const char *name;
	int (*run)(const struct fill_options *options);
	bool takes_targets;
} VERBS[] = {
	{ "seal", fill_verb_seal, false },
	{ "fill", fill_verb_fill, true },
	{ "verify", fill_verb_verify, true },
};

static const struct option OPTIONS[] = {
	{ "index", required_argument, NULL, 'i' },   { "images", required_argument, NULL, 'd' },
	{ "pid", required_argument, NULL, 'p' },     { "threads", required_argument, NULL, 't' },
	{ "deadline", required_argument, NULL, 'l' }, { "no-digests", no_argument, NULL, 'n' },
	{ 0 },
};

/* A whole number in [1, most] up to `stop`; 0 if it is none. */
static unsigned long number(const char *text, char stop, unsigned long most, char **end)
{
	if (*text < '0' || *text > '9')
		return 0;
	unsigned long value = strtoul(text, end, 10);
	return **end == stop && value <= most ? value : 0;
}

static bool add_pair(struct fill_options *options, const char *text)
{
	static const unsigned long LAST_PID = 1 << 22;
	char *end = NULL;
	unsigned long inside = number(text, '=', LAST_PID, &end);
	unsigned long host = inside == 0 ? 0 : number(end + 1, '\0', LAST_PID, &end);

	if (host == 0)
		return false;
	for (size_t i = 0; i < options->pair_count; i++)
		if (options->pairs[i].inside == inside)
			return false;
	options->pairs[options->pair_count++] =
		(struct fill_pair){ .inside = (uint32_t)inside, .host = (pid_t)host };
	return true;
}

static bool set_deadline(struct fill_options *options, const char *text)
{
	char *end = NULL;
	double seconds = strtod(text, &end);

	if (end == text || *end != '\0' || !(seconds > 0 && seconds < 1e6))
		return false;
	options->deadline = fill_now() + seconds;
	return true;
}

static bool set_option(struct fill_options *options, int option, const char *text)
{
	char *end = NULL;

	switch (option) {
	case 'i':
		options->index = text;
		return true;
	case 'd':
		options->images = text;
		return true;
	case 'p':
		return add_pair(options, text);
	case 't':
		options->threads = (unsigned)number(text, '\0', 1024, &end);
		return options->threads > 0 || strcmp(text, "0") == 0;
	case 'l':
		return set_deadline(options, text);
	case 'n':
		return options->no_digests = true;
	default:
		return false;
	}
}

static int refuse(const char *what)
{
	fputs(USAGE, stderr);
	fill_fail(FILL_INVALID, "%s", what);
	return fill_report_failure("");
}

static int run(int argc, char **argv, size_t verb)
{
	struct fill_options options = { .pairs = calloc((size_t)argc, sizeof *options.pairs) };
	int option;

	if (options.pairs == NULL)
		return refuse("memory");
	opterr = 0;
	while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1)
		if (!set_option(&options, option, optarg))
			return refuse("a bad argument");
	if (optind != argc || options.index == NULL || options.images == NULL ||
	    (!VERBS[verb].takes_targets && options.pair_count > 0))
		return refuse("missing or superfluous arguments");
	int status = VERBS[verb].run(&options);
	if (status == FILL_DONE)
		free(options.pairs);
	return status;
}

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof VERBS / sizeof *VERBS; i++)
		if (strcmp(argv[1], VERBS[i].name) == 0) {
			int status = run(argc - 1, argv + 1, i);
			if (fflush(stdout) != 0 && status == FILL_DONE)
				status = FILL_IO;
			if (status != FILL_DONE)
				_exit(status); /* threads may still be inside the kernel */
			return FILL_DONE;
		}
	return refuse("no such verb");
}
