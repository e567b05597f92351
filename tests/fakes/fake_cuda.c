/* A stand-in for libcuda and libnvidia-ml: the documented state machine of the checkpoint calls
 * and faults on demand, over files in FAKE_CUDA_DIR:
 *
 *   PID          state of that process, by its innermost number (0 running, 1 locked, 2 checkpointed, 3 failed); no file:
 *                a process without CUDA
 *   CALL.PID     what happens instead: "hang", "crash", or a CUDA error code; consumed only
 *                where the text ends in "once"
 *   log          every call, one a line
 *   driver       version of the NVIDIA driver; gpu.N: "UUID|NAME|MAJOR|MINOR|TOTAL|FREE|HOLDER"
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, OPERATING_SYSTEM = 304, ILLEGAL_STATE = 401 };
enum { RUNNING, LOCKED, CHECKPOINTED, FAILED };

static void place(char *path, size_t size, const char *name)
{
	const char *folder = getenv("FAKE_CUDA_DIR");
	snprintf(path, size, "%s/%s", folder ? folder : "/nonexistent", name);
}

static int read_text(const char *name, char *text, size_t size)
{
	char path[4096];
	place(path, sizeof path, name);
	FILE *file = fopen(path, "r");
	if (!file)
		return -1;
	size_t length = fread(text, 1, size - 1, file);
	fclose(file);
	text[length] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return 0;
}

static void write_text(const char *name, const char *text, const char *mode)
{
	char path[4096];
	place(path, sizeof path, name);
	FILE *file = fopen(path, mode);
	if (!file)
		return;
	fputs(text, file);
	fclose(file);
}

/* A restored process has another number on the host, and its old one inside its namespace. */
static int innermost(int pid)
{
	char name[64], line[512];
	int number = pid;

	snprintf(name, sizeof name, "/proc/%d/status", pid);
	FILE *file = fopen(name, "r");
	while (file && fgets(line, sizeof line, file))
		if (strncmp(line, "NSpid:", 6) == 0)
			number = atoi(strrchr(line, '\t') + 1);
	if (file)
		fclose(file);
	return number;
}

static int get_state(int pid)
{
	char name[32], text[32];
	snprintf(name, sizeof name, "%d", innermost(pid));
	return read_text(name, text, sizeof text) ? -1 : atoi(text);
}

static void set_state(int pid, int state)
{
	char name[32], text[32];
	snprintf(name, sizeof name, "%d", innermost(pid));
	snprintf(text, sizeof text, "%d", state);
	write_text(name, text, "w");
}

static int fault(const char *call, int pid)
{
	char name[64], text[64], path[4096], line[96];

	pid = innermost(pid);
	snprintf(line, sizeof line, "%s %d\n", call, pid);
	write_text("log", line, "a");
	snprintf(name, sizeof name, "%s.%d", call, pid);
	if (read_text(name, text, sizeof text))
		return 0;
	if (strstr(text, "once")) {
		place(path, sizeof path, name);
		unlink(path);
	}
	if (strncmp(text, "hang", 4) == 0)
		for (;;)
			pause();
	if (strncmp(text, "crash", 5) == 0)
		abort();
	return atoi(text);
}

static int step(const char *call, int pid, int from, int to)
{
	int code = fault(call, pid), state = get_state(pid);

	if (state < 0)
		return NOT_INITIALIZED;
	if (state == FAILED) /* what was seen on 580 after an out of memory */
		return strcmp(call, "restore") == 0 ? OPERATING_SYSTEM : ILLEGAL_STATE;
	if (code == OUT_OF_MEMORY && strcmp(call, "restore") == 0)
		set_state(pid, FAILED);
	if (code)
		return code;
	if (state != from)
		return ILLEGAL_STATE;
	set_state(pid, to);
	return 0;
}

int cuInit(unsigned flags)
{
	(void)flags;
	return fault("init", 0);
}

int cuCheckpointProcessGetState(int pid, int *state)
{
	int code = fault("state", pid), found = get_state(pid);
	if (code)
		return code;
	if (found < 0)
		return NOT_INITIALIZED;
	*state = found;
	return 0;
}

int cuCheckpointProcessLock(int pid, unsigned *arguments)
{
	(void)arguments;
	return step("lock", pid, RUNNING, LOCKED);
}

int cuCheckpointProcessCheckpoint(int pid, void *arguments)
{
	(void)arguments;
	return step("checkpoint", pid, LOCKED, CHECKPOINTED);
}

struct pair {
	unsigned char from[16], to[16];
};

int cuCheckpointProcessRestore(int pid, void *arguments)
{
	struct {
		struct pair *pairs;
		unsigned count;
	} *given = arguments;
	char line[96];

	for (unsigned i = 0; i < given->count; i++) {
		snprintf(line, sizeof line, "pair %02x %02x\n", given->pairs[i].from[0], given->pairs[i].to[0]);
		write_text("log", line, "a");
	}
	return step("restore", pid, CHECKPOINTED, LOCKED);
}

int cuCheckpointProcessUnlock(int pid, void *arguments)
{
	(void)arguments;
	return step("unlock", pid, LOCKED, RUNNING);
}

/* --- NVML ---------------------------------------------------------------------------------- */

static int gpu_field(void *device, int wanted, char *text, unsigned size)
{
	char name[32], line[512];

	snprintf(name, sizeof name, "gpu.%d", (int)(long)device - 1);
	if (read_text(name, line, sizeof line))
		return 1;
	char *at = line;
	for (int i = 0; i < wanted && at; i++)
		at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL;
	if (!at)
		return 1;
	at[strcspn(at, "|")] = '\0';
	snprintf(text, size, "%s", at);
	return 0;
}

static unsigned long long gpu_number(void *device, int wanted)
{
	char text[64];
	return gpu_field(device, wanted, text, sizeof text) ? 0 : strtoull(text, NULL, 10);
}

int nvmlInit_v2(void)
{
	char text[64];
	return read_text("driver", text, sizeof text) ? 9 : 0;
}

int nvmlShutdown(void)
{
	return 0;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
	return read_text("driver", text, size) ? 1 : 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
	char text[64];

	for (*count = 0; gpu_field((void *)(long)(*count + 1), 0, text, sizeof text) == 0;)
		++*count;
	return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
	*device = (void *)(long)(index + 1);
	return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3])
{
	memory[0] = gpu_number(device, 4);
	memory[1] = gpu_number(device, 5);
	memory[2] = memory[0] - memory[1];
	return 0;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
	*major = (int)gpu_number(device, 2);
	*minor = (int)gpu_number(device, 3);
	return 0;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned size)
{
	return gpu_field(device, 0, text, size);
}

int nvmlDeviceGetName(void *device, char *text, unsigned size)
{
	return gpu_field(device, 1, text, size);
}

struct holder {
	unsigned pid;
	unsigned long long bytes;
	unsigned gpu_instance, compute_instance;
};

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct holder *found)
{
	found[0].pid = (unsigned)gpu_number(device, 6);
	found[0].bytes = gpu_number(device, 4) - gpu_number(device, 5);
	*count = found[0].pid != 0;
	return 0;
}
