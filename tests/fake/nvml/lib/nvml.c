/*
 * A libnvidia-ml.so.1 that plays scripts instead of driving hardware. Tests
 * build it against go-nvml's nvml.h. doc.go describes the script language and
 * the ledger.
 *
 * Every function starts with BEGIN and ends with END. BEGIN counts the call,
 * loads the script if it changed, and applies the failures that the script has
 * for the function. Calls may be concurrent; the ledger records whether they are.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "nvml.h"

enum { MAX_GPUS = 16, MAX_SLOTS = 7, MAX_SETTINGS = 256, MAX_RULES = 64, MAX_EVENTS = 256, MAX_PROCESSES = 1024, NAME = 64 };

/* ---------------------------------------------------------------- ledger */

struct entry {
	char name[56];
	_Atomic unsigned long long count;
};

enum { LEDGER = 256 };

static struct entry own_ledger[LEDGER];
static struct entry *ledger = own_ledger;

static _Atomic unsigned long long *entry(const char *name)
{
	for (int i = 0; i < LEDGER; i++) {
		if (ledger[i].name[0] == 0)
			snprintf(ledger[i].name, sizeof ledger[i].name, "%s", name);
		if (strcmp(ledger[i].name, name) == 0)
			return &ledger[i].count;
	}
	abort();
}

/* ----------------------------------------------------------------- world */

struct setting {
	char key[NAME];
	char text[16 * NAME];
	double number;
};

struct slot {
	int used, gi, ci;
	unsigned long long mib;
	char profile[NAME];
};

struct event {
	unsigned long long code;
	unsigned int gi;
};

struct nvmlDevice_st {
	int gpu, slot; /* slot is -1 for the GPU itself */
};

struct nvmlEventSet_st {
	int gpus[MAX_GPUS];
	int first, count;
	struct event events[MAX_EVENTS];
	int from[MAX_EVENTS];
	struct nvmlEventSet_st *next;
};

struct nvmlGpmSample_st {
	int gpu, gi;
	long long taken;
};

struct process {
	int gpu, gi, ci; /* gi is -1 on a GPU without MIG */
	int graphics;
	unsigned int pid, busy;
	unsigned long long mib, at; /* mib is ~0 if unknown; at is the sample's time, or 0 without a sample */
};

struct rule {
	char func[NAME];
	int code, gpu, hang;
};

struct gpu {
	int lost, denied, mig;
	struct slot slots[MAX_SLOTS];
	struct setting settings[MAX_SETTINGS];
	int nsettings;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int inits;
static int frozen; /* the script has "static" and is not read again */
static char script_path[4096];
static struct timespec script_time;
static ino_t script_inode;

static int ngpus;
static char version[NAME]; /* driver version */
static int driver; /* result of every call; 0 for a healthy driver */
static struct gpu gpus[MAX_GPUS];
static struct nvmlDevice_st handles[MAX_GPUS], mig_handles[MAX_GPUS][MAX_SLOTS];
static struct rule rules[MAX_RULES];
static int nrules;
static struct process procs[MAX_PROCESSES];
static int nprocs;
static struct nvmlEventSet_st *sets;
static _Atomic int concurrent;

static struct setting *setting(int gpu, const char *key)
{
	for (int i = 0; i < gpus[gpu].nsettings; i++)
		if (strcmp(gpus[gpu].settings[i].key, key) == 0)
			return &gpus[gpu].settings[i];
	return NULL;
}

static double number(int gpu, const char *key, double otherwise)
{
	struct setting *s = setting(gpu, key);
	return s ? s->number : otherwise;
}

static void queue_event(int gpu, unsigned long long code, unsigned int gi)
{
	for (struct nvmlEventSet_st *s = sets; s; s = s->next) {
		if (!s->gpus[gpu] || s->count == MAX_EVENTS)
			continue;
		int at = (s->first + s->count++) % MAX_EVENTS;
		s->events[at] = (struct event){code, gi};
		s->from[at] = gpu;
	}
}

static void reset_world(void)
{
	ngpus = 2;
	driver = 0;
	snprintf(version, sizeof version, "570.124.06");
	nrules = 0;
	nprocs = 0;
	memset(gpus, 0, sizeof gpus);
	for (int g = 0; g < MAX_GPUS; g++) {
		handles[g] = (struct nvmlDevice_st){g, -1};
		for (int s = 0; s < MAX_SLOTS; s++)
			mig_handles[g][s] = (struct nvmlDevice_st){g, s};
	}
}

static void bad_line(const char *line)
{
	fprintf(stderr, "fakenvml: %s: cannot read \"%s\"\n", script_path, line);
	abort();
}

static void play_line(char *line)
{
	char a[NAME], b[NAME], c[16 * NAME];
	int g, n, m;
	unsigned long long x;

	line[strcspn(line, "#\n")] = 0;
	if (sscanf(line, "%63s", a) != 1)
		return;
	if (sscanf(line, "gpus %d", &n) == 1 && n <= MAX_GPUS) {
		ngpus = n;
	} else if (sscanf(line, "gpu %d instance %d %d %63s %llu", &g, &n, &m, b, &x) == 5 && g < MAX_GPUS) {
		for (int s = 0; s < MAX_SLOTS; s++) {
			struct slot *slot = &gpus[g].slots[s];
			if (slot->used)
				continue;
			*slot = (struct slot){.used = 1, .gi = n, .ci = m, .mib = x};
			snprintf(slot->profile, sizeof slot->profile, "%s", b);
			gpus[g].mig = 1;
			return;
		}
		bad_line(line);
	} else if (sscanf(line, "gpu %d set %63s %1023[^\n]", &g, b, c) == 3 && g < MAX_GPUS) {
		if (gpus[g].nsettings == MAX_SETTINGS)
			bad_line(line);
		struct setting *s = &gpus[g].settings[gpus[g].nsettings++];
		snprintf(s->key, sizeof s->key, "%s", b);
		snprintf(s->text, sizeof s->text, "%s", c);
		s->number = atof(c);
	} else if (sscanf(line, "gpu %d %63s", &g, b) == 2 && g < MAX_GPUS) {
		if (strcmp(b, "lost") == 0)
			gpus[g].lost = 1;
		else if (strcmp(b, "denied") == 0)
			gpus[g].denied = 1;
		else if (strcmp(b, "mig") == 0)
			gpus[g].mig = 1;
		else
			bad_line(line);
	} else if ((n = sscanf(line, "xid %d %llu %d", &g, &x, &m)) >= 2 && g < MAX_GPUS) {
		queue_event(g, x, n == 3 ? (unsigned int)m : 0xFFFFFFFFu);
	} else if ((n = sscanf(line, "fail %63s %d %d", b, &m, &g)) >= 2 && nrules < MAX_RULES) {
		struct rule *r = &rules[nrules++];
		*r = (struct rule){.code = m, .gpu = n == 3 ? g : -1};
		snprintf(r->func, sizeof r->func, "%s", b);
	} else if (sscanf(line, "hang %63s", b) == 1 && nrules < MAX_RULES) {
		struct rule *r = &rules[nrules++];
		*r = (struct rule){.hang = 1, .gpu = -1};
		snprintf(r->func, sizeof r->func, "%s", b);
	} else if (sscanf(line, "version %63s", b) == 1) {
		snprintf(version, sizeof version, "%s", b);
	} else if (sscanf(line, "driver %d", &n) == 1) {
		driver = n;
	} else if (strcmp(a, "process") == 0 && nprocs < MAX_PROCESSES) {
		struct process *p = &procs[nprocs];
		*p = (struct process){.gi = -1};
		char memory[NAME], kind[NAME] = "";
		if (sscanf(line, "process %d/%d/%d pid %u memory %63s", &p->gpu, &p->gi, &p->ci, &p->pid, memory) != 5 &&
		    (sscanf(line, "process %d pid %u memory %63s %63s %u at %llu", &p->gpu, &p->pid, memory, kind, &p->busy, &p->at) < 3 ||
		     (kind[0] && strcmp(kind, "graphics") != 0 && strcmp(kind, "busy") != 0)))
			bad_line(line);
		p->graphics = strcmp(kind, "graphics") == 0;
		p->mib = strcmp(memory, "-") == 0 ? ~0ull : strtoull(memory, NULL, 10);
		nprocs++;
	} else if (strcmp(a, "static") == 0) {
		frozen = 1;
	} else {
		bad_line(line);
	}
}

/* load_script loads the script if it has changed. */
static void load_script(void)
{
	struct stat st;
	char line[1536];

	if (frozen || script_path[0] == 0 || stat(script_path, &st) != 0)
		return;
	if (st.st_ino == script_inode && st.st_mtim.tv_sec == script_time.tv_sec && st.st_mtim.tv_nsec == script_time.tv_nsec)
		return;
	script_inode = st.st_ino;
	script_time = st.st_mtim;
	FILE *f = fopen(script_path, "re");
	if (!f)
		return;
	reset_world();
	while (fgets(line, sizeof line, f))
		play_line(line);
	fclose(f);
}

/* start resets all state. It is called when the first client calls nvmlInit. */
static void start(void)
{
	const char *script = getenv("FAKENVML_SCRIPT"), *path = getenv("FAKENVML_LEDGER");
	snprintf(script_path, sizeof script_path, "%s", script ? script : "");
	script_inode = 0;
	frozen = 0;
	reset_world();
	if (ledger != own_ledger)
		munmap(ledger, sizeof own_ledger);
	ledger = own_ledger;
	memset(own_ledger, 0, sizeof own_ledger);
	if (!path)
		return;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof own_ledger) != 0)
		abort();
	void *map = mmap(NULL, sizeof own_ledger, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		abort();
	ledger = map;
}

/* begin counts the call, loads the script, and returns the error that the call
 * must end with. It returns with the lock held. d may be NULL. */
static nvmlReturn_t begin(const char *func, nvmlDevice_t d)
{
	pthread_mutex_lock(&lock);
	(*entry(func))++;
	int now = ++concurrent;
	_Atomic unsigned long long *most = entry("most-at-once");
	if ((unsigned long long)now > *most)
		*most = now;
	for (;;) {
		load_script();
		int hang = 0;
		for (int i = 0; i < nrules; i++)
			hang |= rules[i].hang && strcmp(rules[i].func, func) == 0;
		if (!hang)
			break;
		*entry("hanging") = 1;
		pthread_mutex_unlock(&lock);
		usleep(1000);
		pthread_mutex_lock(&lock);
	}
	*entry("hanging") = 0;
	if (inits == 0)
		return NVML_ERROR_UNINITIALIZED;
	if (driver)
		return driver;
	if (d) {
		struct gpu *g = &gpus[d->gpu];
		if (g->denied)
			return NVML_ERROR_NO_PERMISSION;
		if (g->lost)
			return NVML_ERROR_GPU_IS_LOST;
		if (d->slot >= 0 && !g->slots[d->slot].used)
			return NVML_ERROR_INVALID_ARGUMENT;
	}
	for (int i = 0; i < nrules; i++)
		if (!rules[i].hang && strcmp(rules[i].func, func) == 0 && (rules[i].gpu < 0 || (d && rules[i].gpu == d->gpu)))
			return rules[i].code;
	return NVML_SUCCESS;
}

static nvmlReturn_t end(nvmlReturn_t code)
{
	concurrent--;
	pthread_mutex_unlock(&lock);
	return code;
}

#define BEGIN(d)                                           \
	do {                                               \
		nvmlReturn_t begun = begin(__func__, (d)); \
		if (begun != NVML_SUCCESS)                 \
			return end(begun);                 \
	} while (0)
#define END(code) return end(code)

/* --------------------------------------------------------------- library */

nvmlReturn_t nvmlInit_v2(void)
{
	pthread_mutex_lock(&lock);
	if (inits == 0)
		start();
	load_script();
	(*entry("nvmlInit_v2"))++;
	int code = driver;
	for (int i = 0; i < nrules; i++)
		if (strcmp(rules[i].func, "nvmlInit_v2") == 0)
			code = rules[i].code;
	if (code == 0) {
		inits++;
		(*entry("open-inits"))++;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

nvmlReturn_t nvmlInit(void) { return nvmlInit_v2(); }

nvmlReturn_t nvmlShutdown(void)
{
	pthread_mutex_lock(&lock);
	(*entry("nvmlShutdown"))++;
	nvmlReturn_t code = NVML_ERROR_UNINITIALIZED;
	if (inits > 0) {
		inits--;
		(*entry("open-inits"))--;
		code = NVML_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

const char *nvmlErrorString(nvmlReturn_t code)
{
	switch (code) {
	case NVML_SUCCESS: return "The operation was successful";
	case NVML_ERROR_UNINITIALIZED: return "NVML was not first initialized with nvmlInit()";
	case NVML_ERROR_INVALID_ARGUMENT: return "A supplied argument is invalid";
	case NVML_ERROR_NOT_SUPPORTED: return "The requested operation is not available on target device";
	case NVML_ERROR_NO_PERMISSION: return "The current user does not have permission for operation";
	case NVML_ERROR_DRIVER_NOT_LOADED: return "NVIDIA driver is not loaded";
	case NVML_ERROR_GPU_IS_LOST: return "The GPU has fallen off the bus or has otherwise become inaccessible";
	case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
	default: return "Some other error";
	}
}

static nvmlReturn_t text(char *to, unsigned int size, const char *from)
{
	if (strlen(from) + 1 > size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(to, from);
	return NVML_SUCCESS;
}

/* said copies the text of a setting. Without the setting, it copies otherwise. The
 * value "-" means not supported. */
static nvmlReturn_t said(int gpu, const char *key, const char *otherwise, char *to, unsigned int size)
{
	struct setting *s = setting(gpu, key);
	if (s && strcmp(s->text, "-") == 0)
		return NVML_ERROR_NOT_SUPPORTED;
	return text(to, size, s ? s->text : otherwise);
}

/* count32 stores the number of a setting, or otherwise without the setting. The
 * value "-" means not supported. */
static nvmlReturn_t count32(int gpu, const char *key, double otherwise, unsigned int *to)
{
	struct setting *s = setting(gpu, key);
	if (s && strcmp(s->text, "-") == 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*to = (unsigned int)(s ? s->number : otherwise);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *to, unsigned int length)
{
	BEGIN(NULL);
	END(text(to, length, version));
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	BEGIN(NULL);
	END(text(version, length, "12.570.124.06"));
}

/* -------------------------------------------------------------- identity */

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
	BEGIN(NULL);
	*count = ngpus;
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	BEGIN(index < MAX_GPUS ? &handles[index] : NULL);
	if (index >= (unsigned int)ngpus)
		END(NVML_ERROR_INVALID_ARGUMENT);
	*device = &handles[index];
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *uuid, unsigned int length)
{
	char own[96];
	BEGIN(d);
	if (d->slot < 0) {
		snprintf(own, sizeof own, "GPU-00000000-0000-4000-8000-%012d", d->gpu);
	} else {
		struct slot *s = &gpus[d->gpu].slots[d->slot];
		snprintf(own, sizeof own, "MIG-00000000-0000-5000-8000-%04d%04d%04d", d->gpu, s->gi, s->ci);
	}
	END(said(d->gpu, d->slot < 0 ? "uuid" : "mig-uuid", own, uuid, length));
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *name, unsigned int length)
{
	char whole[96], own[192];
	BEGIN(d);
	nvmlReturn_t code = said(d->gpu, "name", "NVIDIA H100 80GB HBM3", whole, sizeof whole);
	if (code != NVML_SUCCESS || d->slot < 0)
		END(code != NVML_SUCCESS ? code : text(name, length, whole));
	snprintf(own, sizeof own, "%s MIG %s", whole, gpus[d->gpu].slots[d->slot].profile);
	END(text(name, length, own));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *pci)
{
	BEGIN(d);
	memset(pci, 0, sizeof *pci);
	pci->bus = 0x1b + d->gpu;
	pci->pciDeviceId = 0x233010de;
	pci->pciSubSystemId = 0x16c110de;
	snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t d, nvmlPciInfo_t *pci) { return nvmlDeviceGetPciInfo_v3(d, pci); }

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t d, unsigned int *minor)
{
	BEGIN(d);
	END(count32(d->gpu, "minor", d->gpu, minor));
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t d, nvmlBrandType_t *brand)
{
	BEGIN(d);
	*brand = (nvmlBrandType_t)number(d->gpu, "brand", NVML_BRAND_NVIDIA);
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t d, nvmlDeviceArchitecture_t *architecture)
{
	BEGIN(d);
	*architecture = (nvmlDeviceArchitecture_t)number(d->gpu, "architecture", NVML_DEVICE_ARCH_HOPPER);
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t d, char *serial, unsigned int length)
{
	BEGIN(d);
	END(said(d->gpu, "serial", "1650923012345", serial, length));
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t d, char *version, unsigned int length)
{
	BEGIN(d);
	END(said(d->gpu, "vbios", "96.00.89.00.01", version, length));
}

nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t d, nvmlInforomObject_t object, char *version, unsigned int length)
{
	static const char *const keys[] = {"inforom-oem", "inforom-ecc", "inforom-power"};
	static const char *const values[] = {"2.1", "7.16", "-"};
	BEGIN(d);
	if ((unsigned int)object > NVML_INFOROM_POWER)
		END(NVML_ERROR_INVALID_ARGUMENT);
	if (!setting(d->gpu, keys[object]) && values[object][0] == '-')
		END(NVML_ERROR_NOT_SUPPORTED);
	END(said(d->gpu, keys[object], values[object], version, length));
}

nvmlReturn_t nvmlDeviceGetInforomImageVersion(nvmlDevice_t d, char *version, unsigned int length)
{
	BEGIN(d);
	END(said(d->gpu, "inforom-image", "G520.0200.00.05", version, length));
}

/* ---------------------------------------------------------- measurements */

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t sensor, unsigned int *temp)
{
	(void)sensor;
	BEGIN(d);
	END(count32(d->gpu, "temperature", 30 + d->gpu, temp));
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t d, nvmlTemperatureThresholds_t which, unsigned int *temp)
{
	BEGIN(d);
	switch (which) {
	case NVML_TEMPERATURE_THRESHOLD_SHUTDOWN: *temp = 92; break;
	case NVML_TEMPERATURE_THRESHOLD_SLOWDOWN: *temp = 89; break;
	case NVML_TEMPERATURE_THRESHOLD_MEM_MAX: *temp = 95; break;
	case NVML_TEMPERATURE_THRESHOLD_GPU_MAX: *temp = 87; break;
	default: END(NVML_ERROR_NOT_SUPPORTED);
	}
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned int *power)
{
	BEGIN(d);
	END(count32(d->gpu, "power", 100500, power));
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t d, unsigned int *limit)
{
	BEGIN(d);
	END(count32(d->gpu, "power-limit", 650750, limit));
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t d, unsigned int *limit)
{
	BEGIN(d);
	END(count32(d->gpu, "power-limit-default", 700000, limit));
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t d, unsigned int *limit)
{
	BEGIN(d);
	END(count32(d->gpu, "power-limit-enforced", 650750, limit));
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t d, nvmlClockType_t type, unsigned int *clock)
{
	static const char *const keys[] = {"clock-graphics", "clock-sm", "clock-mem", "clock-video"};
	static const unsigned int values[] = {1980, 1980, 2619, 1545};
	BEGIN(d);
	if ((unsigned int)type > NVML_CLOCK_VIDEO)
		END(NVML_ERROR_INVALID_ARGUMENT);
	END(count32(d->gpu, keys[type], values[type], clock));
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t d, nvmlClockType_t type, unsigned int *clock)
{
	static const unsigned int values[] = {1980, 1980, 2619, 1545};
	BEGIN(d);
	if ((unsigned int)type > NVML_CLOCK_VIDEO)
		END(NVML_ERROR_INVALID_ARGUMENT);
	*clock = values[type];
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t d, nvmlClockType_t type, unsigned int *clock)
{
	BEGIN(d);
	*clock = type == NVML_CLOCK_MEM ? 2619 : 1755;
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *reasons)
{
	BEGIN(d);
	*reasons = (unsigned long long)number(d->gpu, "clock-reasons", 1);
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t d, unsigned int *speed)
{
	BEGIN(d);
	if (!setting(d->gpu, "fan"))
		END(NVML_ERROR_NOT_SUPPORTED);
	END(count32(d->gpu, "fan", 0, speed));
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t d, nvmlPstates_t *state)
{
	BEGIN(d);
	*state = (nvmlPstates_t)number(d->gpu, "pstate", 0);
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t d, unsigned int *count)
{
	BEGIN(d);
	END(count32(d->gpu, "pcie-replays", 0, count));
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t d, unsigned int *value)
{
	BEGIN(d);
	END(count32(d->gpu, "pcie-max-gen", 5, value));
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t d, unsigned int *value)
{
	BEGIN(d);
	END(count32(d->gpu, "pcie-max-width", 16, value));
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t d, unsigned int *value)
{
	BEGIN(d);
	END(count32(d->gpu, "pcie-gen", 5, value));
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t d, unsigned int *value)
{
	BEGIN(d);
	END(count32(d->gpu, "pcie-width", 16, value));
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *utilization)
{
	BEGIN(d);
	if (gpus[d->gpu].mig)
		END(NVML_ERROR_NOT_SUPPORTED);
	utilization->gpu = (unsigned int)number(d->gpu, "utilization", 10);
	utilization->memory = (unsigned int)number(d->gpu, "utilization-memory", 5);
	END(NVML_SUCCESS);
}

/* --------------------------------------------------------------- processes */

static nvmlReturn_t running(nvmlDevice_t d, int graphics, unsigned int *count, nvmlProcessInfo_t *infos)
{
	unsigned int n = 0, room = *count;
	for (int i = 0; i < nprocs; i++) {
		struct process *p = &procs[i];
		if (p->gpu != d->gpu || p->graphics != graphics || p->mib == 0)
			continue;
		struct slot *slot = d->slot >= 0 ? &gpus[d->gpu].slots[d->slot] : NULL;
		if (slot ? p->gi != slot->gi || p->ci != slot->ci : p->gi >= 0)
			continue;
		if (n < room)
			infos[n] = (nvmlProcessInfo_t){.pid = p->pid, .usedGpuMemory = p->mib == ~0ull ? ~0ull : p->mib << 20,
				.gpuInstanceId = (unsigned int)p->gi, .computeInstanceId = (unsigned int)p->ci};
		n++;
	}
	*count = n;
	return n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned int *count, nvmlProcessInfo_t *infos)
{
	BEGIN(d);
	END(running(d, 0, count, infos));
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t d, unsigned int *count, nvmlProcessInfo_t *infos)
{
	BEGIN(d);
	if (d->slot >= 0)
		END(NVML_ERROR_NOT_SUPPORTED);
	END(running(d, 1, count, infos));
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t d, nvmlProcessUtilizationSample_t *samples, unsigned int *count,
					     unsigned long long since)
{
	BEGIN(d);
	if (d->slot >= 0 || gpus[d->gpu].mig)
		END(NVML_ERROR_NOT_SUPPORTED);
	unsigned int n = 0, room = samples ? *count : 0;
	for (int i = 0; i < nprocs; i++) {
		struct process *p = &procs[i];
		if (p->gpu != d->gpu || p->at == 0 || p->at <= since)
			continue;
		if (n < room)
			samples[n] = (nvmlProcessUtilizationSample_t){.pid = p->pid, .timeStamp = p->at, .smUtil = p->busy};
		n++;
	}
	*count = n;
	if (n == 0)
		END(NVML_ERROR_NOT_FOUND);
	END(n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t d, unsigned int *utilization, unsigned int *period)
{
	BEGIN(d);
	*period = 167000;
	END(count32(d->gpu, "utilization-encoder", 0, utilization));
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t d, unsigned int *utilization, unsigned int *period)
{
	BEGIN(d);
	*period = 167000;
	END(count32(d->gpu, "utilization-decoder", 0, utilization));
}

static const unsigned long long MiB = 1024 * 1024;

/* framebuffer stores the frame buffer's memory in bytes. Used memory excludes reserved memory. */
static void framebuffer(nvmlDevice_t d, nvmlMemory_v2_t *m)
{
	unsigned long long total = (unsigned long long)number(d->gpu, "fb-total", 81559) * MiB;
	unsigned long long reserved = (unsigned long long)number(d->gpu, "fb-reserved", 512) * MiB;
	unsigned long long used = (unsigned long long)number(d->gpu, "fb-used", 4096) * MiB;
	if (d->slot >= 0) {
		total = gpus[d->gpu].slots[d->slot].mib * MiB;
		reserved = 64 * MiB;
		used = (unsigned long long)number(d->gpu, "fb-used-instance", 100) * MiB;
	}
	m->total = total;
	m->reserved = reserved;
	m->used = used;
	m->free = total - reserved - used;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, nvmlMemory_v2_t *memory)
{
	BEGIN(d);
	if (memory->version != nvmlMemory_v2)
		END(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	framebuffer(d, memory);
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *memory)
{
	nvmlMemory_v2_t all;
	BEGIN(d);
	framebuffer(d, &all);
	memory->total = all.total;
	memory->free = all.free;
	memory->used = all.used + all.reserved;
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t d, nvmlEnableState_t *mode)
{
	BEGIN(d);
	*mode = NVML_FEATURE_ENABLED;
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t d, nvmlGridLicensableFeatures_t *features)
{
	BEGIN(d);
	memset(features, 0, sizeof *features);
	features->isGridLicenseSupported = (int)number(d->gpu, "license-supported", 0);
	if (features->isGridLicenseSupported) {
		features->licensableFeaturesCount = 2;
		features->gridLicensableFeatures[0].featureCode = NVML_GRID_LICENSE_FEATURE_CODE_NVIDIA_RTX;
		features->gridLicensableFeatures[0].featureState = 1;
		features->gridLicensableFeatures[1].featureCode = NVML_GRID_LICENSE_FEATURE_CODE_VGPU;
		features->gridLicensableFeatures[1].featureState = (unsigned int)number(d->gpu, "license-state", 0);
	}
	END(NVML_SUCCESS);
}

/* ---------------------------------------------------------------- NVLink */

/* A GPU has 18 links to switches by default. "nvlinks" sets their number, and
 * "nvlink.L" one link: "gpu N", "down", or "-" for a missing link. */
static const char *link_to(nvmlDevice_t d, unsigned int link)
{
	char key[NAME];
	if (d->slot >= 0 || link >= (unsigned int)number(d->gpu, "nvlinks", 18))
		return "-";
	snprintf(key, sizeof key, "nvlink.%u", link);
	struct setting *s = setting(d->gpu, key);
	return s ? s->text : "switch";
}

static nvmlReturn_t link_there(nvmlDevice_t d, unsigned int link)
{
	if (link >= NVML_NVLINK_MAX_LINKS)
		return NVML_ERROR_INVALID_ARGUMENT;
	return strcmp(link_to(d, link), "-") == 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t d, unsigned int link, nvmlEnableState_t *active)
{
	BEGIN(d);
	*active = strcmp(link_to(d, link), "down") != 0 ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	END(link_there(d, link));
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t d, unsigned int link, nvmlIntNvLinkDeviceType_t *type)
{
	BEGIN(d);
	*type = strncmp(link_to(d, link), "gpu ", 4) == 0 ? NVML_NVLINK_DEVICE_TYPE_GPU : NVML_NVLINK_DEVICE_TYPE_SWITCH;
	END(strcmp(link_to(d, link), "down") == 0 ? NVML_ERROR_NOT_SUPPORTED : link_there(d, link));
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t d, unsigned int link, nvmlPciInfo_t *pci)
{
	int peer;
	BEGIN(d);
	memset(pci, 0, sizeof *pci);
	pci->bus = sscanf(link_to(d, link), "gpu %d", &peer) == 1 ? 0x1b + (unsigned int)peer : 0x05;
	snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
	END(link_there(d, link));
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t d, nvmlDevice_t peer, nvmlGpuP2PCapsIndex_t index, nvmlGpuP2PStatus_t *status)
{
	char key[NAME];
	BEGIN(d);
	if (index != NVML_P2P_CAPS_INDEX_NVLINK || d == peer)
		END(NVML_ERROR_INVALID_ARGUMENT);
	snprintf(key, sizeof key, "p2p.%d", peer->gpu);
	*status = (nvmlGpuP2PStatus_t)number(d->gpu, key, NVML_P2P_STATUS_OK);
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t d, nvmlGpuFabricInfoV_t *info)
{
	BEGIN(d);
	int summary = info->version == nvmlGpuFabricInfo_v3 && !setting(d->gpu, "fabric-v2");
	if (!summary && info->version != nvmlGpuFabricInfo_v2)
		END(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	for (int i = 0; i < NVML_GPU_FABRIC_UUID_LEN; i++)
		info->clusterUuid[i] = (unsigned char)(i * number(d->gpu, "fabric-uuid", 17));
	info->status = (nvmlReturn_t)number(d->gpu, "fabric-status", NVML_SUCCESS);
	info->cliqueId = (unsigned int)number(d->gpu, "fabric-clique", 7);
	info->state = (nvmlGpuFabricState_t)number(d->gpu, "fabric-state", NVML_GPU_FABRIC_STATE_COMPLETED);
	info->healthMask = (unsigned int)number(d->gpu, "fabric-mask", 0x2);
	if (summary)
		info->healthSummary = NVML_GPU_FABRIC_HEALTH_SUMMARY_HEALTHY;
	END(NVML_SUCCESS);
}

/* ------------------------------------------------------------- placement */

/* GPUs with an odd index are on the second socket, unless "socket" is set. */
static int socket_of(int gpu) { return (int)number(gpu, "socket", gpu % 2); }

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t d, nvmlDevice_t peer, nvmlGpuTopologyLevel_t *level)
{
	char key[NAME];
	BEGIN(d);
	snprintf(key, sizeof key, "path.%d", peer->gpu);
	*level = (nvmlGpuTopologyLevel_t)number(d->gpu, key, socket_of(d->gpu) == socket_of(peer->gpu) ? NVML_TOPOLOGY_NODE : NVML_TOPOLOGY_SYSTEM);
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t d, unsigned int size, unsigned long *nodes, nvmlAffinityScope_t scope)
{
	BEGIN(d);
	if (scope != NVML_AFFINITY_SCOPE_NODE)
		END(NVML_ERROR_INVALID_ARGUMENT);
	memset(nodes, 0, size * sizeof *nodes);
	nodes[0] = (unsigned long)number(d->gpu, "memory-nodes", 1 << socket_of(d->gpu));
	END(NVML_SUCCESS);
}

/* The two sockets have 32 cores with two threads each: 0-31,64-95 and 32-63,96-127. */
nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t d, unsigned int size, unsigned long *cpus)
{
	BEGIN(d);
	memset(cpus, 0, size * sizeof *cpus);
	for (unsigned int i = 0; i < size && i < 2 && !setting(d->gpu, "no-cpus"); i++)
		cpus[i] = 0xFFFFFFFFul << 32 * socket_of(d->gpu);
	END(NVML_SUCCESS);
}

/* --------------------------------------------------------------- samples */

/* The setting "samples.TYPE" is the buffer of a sampling type: "at:value …". */
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t d, nvmlSamplingType_t type, unsigned long long since, nvmlValueType_t *kind,
				  unsigned int *count, nvmlSample_t *samples)
{
	char key[NAME];
	unsigned int n = 0, room = samples ? *count : 0, value;
	unsigned long long at;
	int used;
	BEGIN(d);
	snprintf(key, sizeof key, "samples.%d", (int)type);
	struct setting *s = setting(d->gpu, key);
	if (!s)
		END(NVML_ERROR_NOT_SUPPORTED);
	*kind = NVML_VALUE_TYPE_UNSIGNED_INT;
	for (const char *p = s->text; sscanf(p, " %llu:%u%n", &at, &value, &used) == 2; p += used) {
		if (at <= since)
			continue;
		if (n < room)
			samples[n] = (nvmlSample_t){.timeStamp = at, .sampleValue.uiVal = value};
		n++;
	}
	*count = n;
	END(n == 0 ? NVML_ERROR_NOT_FOUND : samples && n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}

/* field stores the value of one field id: its setting, or else the value of an H100. */
static nvmlReturn_t field(nvmlDevice_t d, nvmlFieldValue_t *v)
{
	char key[NAME];
	if (v->scopeId == 0xFFFFFFFFu)
		snprintf(key, sizeof key, "field.%u.all", v->fieldId);
	else
		snprintf(key, sizeof key, "field.%u.%u", v->fieldId, v->scopeId);
	v->valueType = (nvmlValueType_t)number(d->gpu, "field-type", NVML_VALUE_TYPE_UNSIGNED_LONG_LONG);
	struct setting *s = setting(d->gpu, key);
	if (!s && (v->scopeId == 0 || v->scopeId == 0xFFFFFFFFu)) {
		snprintf(key, sizeof key, "field.%u", v->fieldId);
		s = setting(d->gpu, key);
	}
	if (s) {
		if (strcmp(s->text, "-") == 0)
			return NVML_ERROR_NOT_SUPPORTED;
		if (strcmp(s->text, "denied") == 0)
			return NVML_ERROR_NO_PERMISSION;
		v->value.ullVal = strtoull(s->text, NULL, 10);
		return NVML_SUCCESS;
	}
	switch (v->fieldId) {
	case NVML_FI_DEV_MEMORY_TEMP:
		v->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
		v->value.uiVal = 40;
		return NVML_SUCCESS;
	case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
		v->value.ullVal = 361800000ull;
		return NVML_SUCCESS;
	case NVML_FI_DEV_POWER_INSTANT:
		v->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
		v->value.uiVal = 101250;
		return NVML_SUCCESS;
	case NVML_FI_DEV_NVLINK_GET_STATE:
		v->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
		v->value.uiVal = strcmp(link_to(d, v->scopeId), "down") != 0 ? NVML_NVLINK_STATE_ACTIVE : NVML_NVLINK_STATE_INACTIVE;
		return link_there(d, v->scopeId);
	case NVML_FI_DEV_GET_GPU_RECOVERY_ACTION:
		v->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
		v->value.uiVal = NVML_GPU_RECOVERY_ACTION_NONE;
		return NVML_SUCCESS;
	case NVML_FI_DEV_RETIRED_SBE:
	case NVML_FI_DEV_RETIRED_DBE:
	case NVML_FI_DEV_RETIRED_PENDING:
		return NVML_ERROR_NOT_SUPPORTED;
	}
	if (v->fieldId <= NVML_FI_DEV_ECC_DBE_AGG_CBU || (v->fieldId >= NVML_FI_DEV_PERF_POLICY_POWER && v->fieldId <= NVML_FI_DEV_PERF_POLICY_TOTAL_BASE_CLOCKS) ||
	    (v->fieldId >= NVML_FI_DEV_REMAPPED_COR && v->fieldId <= NVML_FI_DEV_REMAPPED_FAILURE) ||
	    v->fieldId == NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL || v->fieldId == NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL ||
	    v->fieldId == NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL || v->fieldId == NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL ||
	    v->fieldId == NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX || v->fieldId == NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX) {
		v->value.ullVal = 0;
		return NVML_SUCCESS;
	}
	return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t d, int count, nvmlFieldValue_t *values)
{
	struct timespec now;
	BEGIN(d);
	clock_gettime(CLOCK_REALTIME, &now);
	*entry("field-values") += count;
	for (int i = 0; i < count; i++) {
		struct setting *s = setting(d->gpu, "field-time");
		values[i].timestamp = s ? (long long)s->number : now.tv_sec * 1000000ll + now.tv_nsec / 1000;
		values[i].nvmlReturn = field(d, &values[i]);
	}
	END(NVML_SUCCESS);
}

/* ------------------------------------------------------------------- MIG */

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned int *current, unsigned int *pending)
{
	BEGIN(d);
	if (setting(d->gpu, "no-mig"))
		END(NVML_ERROR_NOT_SUPPORTED);
	*current = *pending = gpus[d->gpu].mig;
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, unsigned int *count)
{
	BEGIN(d);
	*count = gpus[d->gpu].mig ? MAX_SLOTS : 0;
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned int index, nvmlDevice_t *mig)
{
	BEGIN(d);
	if (index >= MAX_SLOTS || !gpus[d->gpu].slots[index].used)
		END(NVML_ERROR_NOT_FOUND);
	*mig = &mig_handles[d->gpu][index];
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t d, unsigned int *id)
{
	BEGIN(d);
	if (d->slot < 0)
		END(NVML_ERROR_INVALID_ARGUMENT);
	*id = gpus[d->gpu].slots[d->slot].gi;
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t d, unsigned int *id)
{
	BEGIN(d);
	if (d->slot < 0)
		END(NVML_ERROR_INVALID_ARGUMENT);
	*id = gpus[d->gpu].slots[d->slot].ci;
	END(NVML_SUCCESS);
}

struct nvmlGpuInstance_st {
	int gpu;
	unsigned int gi;
};

static struct nvmlGpuInstance_st instance_handles[MAX_GPUS][MAX_SLOTS];

static struct setting *place(int gpu, unsigned int gi)
{
	char key[NAME];
	snprintf(key, sizeof key, "start-%u", gi);
	return setting(gpu, key);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t d, unsigned int id, nvmlGpuInstance_t *instance)
{
	BEGIN(d);
	for (int s = 0; s < MAX_SLOTS; s++) {
		if (!gpus[d->gpu].slots[s].used || gpus[d->gpu].slots[s].gi != (int)id)
			continue;
		if (!place(d->gpu, id))
			END(NVML_ERROR_NO_PERMISSION);
		instance_handles[d->gpu][s] = (struct nvmlGpuInstance_st){d->gpu, id};
		*instance = &instance_handles[d->gpu][s];
		END(NVML_SUCCESS);
	}
	END(NVML_ERROR_NOT_FOUND);
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
	BEGIN(NULL);
	struct setting *s = place(instance->gpu, instance->gi);
	if (!s)
		END(NVML_ERROR_INVALID_ARGUMENT);
	*info = (nvmlGpuInstanceInfo_t){.device = &handles[instance->gpu], .id = instance->gi, .placement = {.start = (unsigned int)s->number, .size = 1}};
	END(NVML_SUCCESS);
}

/* ------------------------------------------------------------------- GPM */

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t d, nvmlGpmSupport_t *support)
{
	BEGIN(d);
	support->isSupportedDevice = (unsigned int)number(d->gpu, "gpm", 1);
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
	BEGIN(NULL);
	*sample = calloc(1, sizeof **sample);
	(*entry("open-gpm-samples"))++;
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
	pthread_mutex_lock(&lock);
	(*entry("open-gpm-samples"))--;
	free(sample);
	pthread_mutex_unlock(&lock);
	return NVML_SUCCESS;
}

static void take(nvmlGpmSample_t sample, int gpu, int gi)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	*sample = (struct nvmlGpmSample_st){gpu, gi, now.tv_sec * 1000000000ll + now.tv_nsec};
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t d, nvmlGpmSample_t sample)
{
	BEGIN(d);
	if (number(d->gpu, "gpm", 1) == 0)
		END(NVML_ERROR_NOT_SUPPORTED);
	take(sample, d->gpu, -1);
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t d, unsigned int gi, nvmlGpmSample_t sample)
{
	BEGIN(d);
	for (int s = 0; s < MAX_SLOTS; s++) {
		if (gpus[d->gpu].slots[s].used && gpus[d->gpu].slots[s].gi == (int)gi) {
			take(sample, d->gpu, (int)gi);
			END(NVML_SUCCESS);
		}
	}
	END(NVML_ERROR_NOT_FOUND);
}

/* The value of a metric is its setting. Without one, it is the metric's id plus
 * the id of the GPU instance, if any. NVML's rates are in MiB/s. */
nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get)
{
	char key[NAME];
	BEGIN(NULL);
	if (get->version != NVML_GPM_METRICS_GET_VERSION)
		END(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	if (!get->sample1 || !get->sample2 || get->sample1->gpu != get->sample2->gpu || get->sample1->gi != get->sample2->gi ||
	    get->sample1->taken >= get->sample2->taken)
		END(NVML_ERROR_INVALID_ARGUMENT);
	for (unsigned int i = 0; i < get->numMetrics; i++) {
		nvmlGpmMetric_t *m = &get->metrics[i];
		snprintf(key, sizeof key, "gpm.%u", m->metricId);
		struct setting *s = setting(get->sample1->gpu, key);
		m->nvmlReturn = NVML_SUCCESS;
		m->value = m->metricId + (get->sample1->gi > 0 ? get->sample1->gi : 0);
		if (s && strcmp(s->text, "-") == 0)
			m->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		else if (s)
			m->value = s->number;
	}
	END(NVML_SUCCESS);
}

/* ---------------------------------------------------------------- events */

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	BEGIN(NULL);
	*set = calloc(1, sizeof **set);
	(*set)->next = sets;
	sets = *set;
	(*entry("open-event-sets"))++;
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t d, unsigned long long types, nvmlEventSet_t set)
{
	BEGIN(d);
	if (types != nvmlEventTypeXidCriticalError)
		END(NVML_ERROR_NOT_SUPPORTED);
	set->gpus[d->gpu] = 1;
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout)
{
	(void)timeout;
	BEGIN(NULL);
	if (set->count == 0)
		END(NVML_ERROR_TIMEOUT);
	struct event e = set->events[set->first];
	memset(data, 0, sizeof *data);
	data->device = &handles[set->from[set->first]];
	data->eventType = nvmlEventTypeXidCriticalError;
	data->eventData = e.code;
	data->gpuInstanceId = e.gi;
	data->computeInstanceId = 0xFFFFFFFFu;
	set->first = (set->first + 1) % MAX_EVENTS;
	set->count--;
	END(NVML_SUCCESS);
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	pthread_mutex_lock(&lock);
	for (struct nvmlEventSet_st **p = &sets; *p; p = &(*p)->next) {
		if (*p == set) {
			*p = set->next;
			free(set);
			(*entry("open-event-sets"))--;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	return NVML_SUCCESS;
}
