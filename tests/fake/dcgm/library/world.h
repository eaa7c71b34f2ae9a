/* The world that the test library simulates, as read from a script. The syntax
 * of scripts is in ../doc.go. */
#ifndef FAKEDCGM_WORLD_H
#define FAKEDCGM_WORLD_H

#include <pthread.h>
#include <stdint.h>

#include "dcgm_agent.h"
#include "dcgm_fields.h"
#include "dcgm_structs.h"

#define MAX_GPUS 32
#define MAX_INSTANCES 448
#define MAX_SWITCHES DCGM_MAX_NUM_SWITCHES
#define MAX_CPUS DCGM_MAX_NUM_CPUS
#define MAX_CARDS 32
#define MAX_PATHS 1024
#define MAX_RULES 4096
#define MAX_EVENTS 4096
#define MAX_FAILS 64
#define ANY (-1)

/* The kinds of values that a field's samples have. */
enum kind {
    KIND_INT = 1,
    KIND_DOUBLE,
    KIND_TEXT,
    KIND_BLANK,        /* plain blank, status 0, fresh time */
    KIND_NOT_FOUND,    /* blank + 1 */
    KIND_UNSUPPORTED,  /* blank + 2 */
    KIND_NO_PERMISSION,/* blank + 3 */
    KIND_NO_DATA,      /* watched but never sampled */
    KIND_STOPPED,      /* no further samples; the last one stays */
    KIND_STUCK,        /* samples only for watches that began with this script */
    KIND_ZERO          /* 0 for watches that began before this script */
};

struct rule {
    int group, entity; /* ANY, or DCGM_FE_* and an entity id */
    int first, last;   /* field ids */
    enum kind kind;
    int64_t i64, step;
    double dbl, dstep;
    char text[128];
    char blank; /* type of a blank: 'i', 'd' or 's' */
    int status;
};

struct gpu {
    unsigned id, index, minor;
    DcgmEntityStatus_t status;
    char uuid[64], name[128], bus[32];
    int64_t slow_us; /* duration of a read */
    int prof[256], nprof, prof_error;
    dcgmNvLinkLinkState_t links[DCGM_NVLINK_MAX_LINKS_PER_GPU];
    uint64_t cpus[DCGM_AFFINITY_BITMASK_ARRAY_SIZE];
};

struct nvswitch {
    unsigned id;
    dcgmNvLinkLinkState_t links[DCGM_NVLINK_MAX_LINKS_PER_NVSWITCH];
};

struct cpu {
    unsigned id;
    uint64_t cores[DCGM_CPU_CORE_BITMASK_COUNT_V1];
    char serial[DCGM_MAX_STR_LENGTH];
};

/* The connection between two GPUs. */
struct path {
    unsigned a, b;
    uint64_t levels; /* DCGM_TOPOLOGY_* */
};

struct instance {
    dcgm_field_entity_group_t group; /* DCGM_FE_GPU_I or DCGM_FE_GPU_CI */
    unsigned id, parent, gpu, nvml, nvml_compute;
    char profile[64], uuid[64];
};

struct event {
    int64_t seq;
    int group, entity, field;
    int64_t value;
    int64_t back; /* microseconds by which its date precedes its storage */
};

struct incident {
    int group, entity; // of the entity
    unsigned system, result, code;
};

struct peer {
    unsigned from, to, state;
};

struct stray {
    int group, entity, field, type;
    int64_t value;
};

struct fail {
    char function[64];
    int code, times, after; /* times < 0 means always; the first "after" calls succeed */
    int block;
};

struct world {
    int generation;
    char library[32], engine[32], driver[32], nvml[32];
    int boot, down, node;
    int64_t skew_us, connect_us;
    int max_groups;
    struct gpu gpus[MAX_GPUS];
    int ngpus;
    struct instance instances[MAX_INSTANCES];
    int ninstances;
    struct nvswitch switches[MAX_SWITCHES];
    int nswitches;
    struct cpu cpus[MAX_CPUS];
    int ncpus;
    unsigned cards[MAX_CARDS];
    int ncards;
    struct path paths[MAX_PATHS];
    int npaths;
    int old;          /* supports only the structures up to DCGM 4.5 */
    unsigned without; /* a bit for each DCGM_FE_* whose module is missing */
    struct rule rules[MAX_RULES];
    int nrules;
    struct event events[MAX_EVENTS];
    int nevents;
    struct fail fails[MAX_FAILS];
    int nfails;
    unsigned char unknown[65536 / 8];
    struct incident incidents[64];
    int nincidents;
    struct peer peers[64];
    int npeers;
    int profiler;
    struct stray strays[64];
    int nstrays;
};

extern struct world world;

/* Reads the script again if it changed. Returns 1 if it did. */
int world_refresh(void);
struct gpu *world_gpu(unsigned id);
struct instance *world_instance(dcgm_field_entity_group_t group, unsigned id);
int world_has(dcgm_field_entity_group_t group, unsigned id);
const struct rule *world_rule(int group, unsigned entity, int field);
int world_known_field(int field);
int64_t world_now(void); /* microseconds, in the engine's clock */

/* Counters in a file that tests read. */
void count(const char *name, int64_t delta);
void note_address(const char *address);

#endif
