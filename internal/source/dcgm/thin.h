/* The calls to libdcgm that bypass go-dcgm. cgo cannot include a header of
 * another module, so the structures are declared again here, with other names.
 * TestABI compares them with go-dcgm's headers. */
#ifndef DCGM_THIN_H
#define DCGM_THIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define THIN_VERSION(type, n) ((unsigned)(sizeof(type) | (unsigned)(n) << 24))
#define THIN_EMBEDDED ((uintptr_t)0x7fffffff) /* DCGM_EMBEDDED_HANDLE */

#define THIN_ENTITIES_MAX 1024    /* DCGM_GROUP_MAX_ENTITIES_V2 */
#define THIN_HIERARCHY_MAX (32 * 14) /* DCGM_MAX_HIERARCHY_INFO */
#define THIN_GPUS_MAX 32          /* DCGM_MAX_NUM_DEVICES */
#define THIN_SWITCHES_MAX 12      /* DCGM_MAX_NUM_SWITCHES */
#define THIN_GPU_LINKS_MAX 36     /* DCGM_NVLINK_MAX_LINKS_PER_GPU */
#define THIN_GPU_LINKS_MAX_OLD 18 /* DCGM_NVLINK_MAX_LINKS_PER_GPU_LEGACY3 */
#define THIN_SWITCH_LINKS_MAX 256 /* DCGM_NVLINK_MAX_LINKS_PER_NVSWITCH */
#define THIN_CPUS_MAX 8           /* DCGM_MAX_NUM_CPUS */
#define THIN_CORE_WORDS 16        /* DCGM_CPU_CORE_BITMASK_COUNT_V1 */
#define THIN_AFFINITY_WORDS 8     /* DCGM_AFFINITY_BITMASK_ARRAY_SIZE */
#define THIN_INCIDENTS_MAX 1024   /* DCGM_HEALTH_WATCH_MAX_INCIDENTS_V2 */

typedef struct { /* dcgmFieldValue_v1 */
    unsigned version;
    unsigned short field, type;
    int status;
    int64_t ts;
    union {
        int64_t i64;
        double dbl;
        char str[256];
        char blob[4096];
    } value;
} thin_value;

typedef struct { /* dcgmConnectV2Params_v2 */
    unsigned version, persist, timeout_ms, unix_socket;
} thin_connect_v2_params;

typedef struct { /* dcgmConnectV3Params_v1 */
    unsigned version, persist, timeout_ms;
} thin_connect_v3_params;

typedef struct { /* dcgmGroupEntityPair_t */
    unsigned group, id;
} thin_entity;

typedef struct { /* dcgmMigHierarchyInfo_v2 */
    thin_entity entity, parent;
    struct {
        char gpu_uuid[128];
        unsigned nvml_gpu_index, nvml_instance, nvml_compute, nvml_profile, slices;
    } info;
} thin_hierarchy_entry;

typedef struct { /* dcgmMigHierarchy_v2 */
    unsigned version, count;
    thin_hierarchy_entry entries[THIN_HIERARCHY_MAX];
} thin_hierarchy;

typedef struct { /* dcgmNvLinkNvSwitchLinkStatus_t */
    unsigned id, states[THIN_SWITCH_LINKS_MAX];
} thin_switch_links;

#define THIN_LINKS(gpu_links_max)                      \
    struct {                                           \
        unsigned version, gpu_count;                   \
        struct {                                       \
            unsigned id, states[gpu_links_max];        \
        } gpus[THIN_GPUS_MAX];                         \
        unsigned switch_count;                         \
        thin_switch_links switches[THIN_SWITCHES_MAX]; \
    }
typedef THIN_LINKS(THIN_GPU_LINKS_MAX) thin_links;         /* dcgmNvLinkStatus_v5, DCGM 4.6 */
typedef THIN_LINKS(THIN_GPU_LINKS_MAX_OLD) thin_links_old; /* dcgmNvLinkStatus_v4, before DCGM 4.6 */

typedef struct { /* dcgmCpuHierarchyOwnedCores_v1 */
    unsigned version;
    uint64_t words[THIN_CORE_WORDS];
} thin_cores;

typedef struct { /* dcgmCpuHierarchy_v2, with serial numbers */
    unsigned version, count;
    struct {
        unsigned id;
        thin_cores cores;
        char serial[256];
    } cpus[THIN_CPUS_MAX];
} thin_cpus;

typedef struct { /* dcgmCpuHierarchy_v1 */
    unsigned version, count;
    struct {
        unsigned id;
        thin_cores cores;
    } cpus[THIN_CPUS_MAX];
} thin_cpus_old;

#define THIN_PLACE(mask)                         \
    struct {                                     \
        unsigned version;                        \
        unsigned long cpus[THIN_AFFINITY_WORDS]; \
        unsigned count;                          \
        struct {                                 \
            unsigned id;                         \
            mask path, links;                    \
        } paths[THIN_GPUS_MAX - 1];              \
    }
typedef THIN_PLACE(uint64_t) thin_place;     /* dcgmDeviceTopology_v2, DCGM 4.6 */
typedef THIN_PLACE(unsigned) thin_place_old; /* dcgmDeviceTopology_v1, before DCGM 4.6 */

typedef struct { /* dcgmIncidentInfo_t */
    unsigned system, result;
    char message[1024];
    unsigned code;
    thin_entity entity;
} thin_incident;

typedef struct { /* dcgmHealthResponse_v5 */
    unsigned version, result, count;
    thin_incident incidents[THIN_INCIDENTS_MAX];
} thin_health;

typedef struct { /* dcgmNvLinkP2PStatus_v1 */
    unsigned version, count;
    struct {
        unsigned id, states[THIN_GPUS_MAX];
    } gpus[THIN_GPUS_MAX];
} thin_peers;

typedef int (*thin_callback)(unsigned group, unsigned entity, thin_value *values, int n, void *data);

/* A value without its padding; type sample in lib.go has the same layout. */
typedef struct {
    int64_t at;
    uint64_t bits;
    uint32_t entity;
    int32_t status;
    uint16_t field;
    uint8_t type, group;
    uint32_t text;
} thin_sample;

/* The result of one read. Its memory is reused by the next read. */
typedef struct {
    thin_sample *samples;
    size_t n, room;
    char *text;
    size_t text_n, text_room;
    int out_of_memory;
} thin_buffer;

/* Loads the library for the life of the process. Returns NULL on success. On
 * failure it returns the loader's message, or sets *missing and returns the name
 * of a missing function. */
const char *thin_load(const char *soname, int *missing);

int thin_connect(const char *address, bool unix_socket, bool vsock, uintptr_t *handle);
/* Calls a function that DCGM 4.0 may lack. */
int thin_get(const char *function, uintptr_t handle, void *answer);
int thin_latest(uintptr_t handle, uintptr_t group, uintptr_t fields, thin_buffer *buffer);
int thin_since(uintptr_t handle, uintptr_t group, uintptr_t fields, long long from, thin_buffer *buffer);
void thin_free(thin_buffer *buffer);

/* The functions of libdcgm. The loader binds each at its first call, as it does
 * for go-dcgm. */
#ifndef DCGM_AGENT_H
int dcgmInit(void);
int dcgmShutdown(void);
int dcgmConnect_v2(const char *address, thin_connect_v2_params *params, uintptr_t *handle);
int dcgmDisconnect(uintptr_t handle);
int dcgmGetEntityGroupEntities(uintptr_t handle, unsigned group, unsigned *ids, int *n, unsigned flags);
int dcgmGetGpuInstanceHierarchy(uintptr_t handle, thin_hierarchy *h);
int dcgmGetNvLinkLinkStatus(uintptr_t handle, void *links);
int dcgmGetDeviceTopology(uintptr_t handle, unsigned gpu, void *place);
int dcgmGroupCreate(uintptr_t handle, int type, const char *name, uintptr_t *id);
int dcgmGroupDestroy(uintptr_t handle, uintptr_t id);
int dcgmGroupAddEntity(uintptr_t handle, uintptr_t id, unsigned group, unsigned entity);
int dcgmFieldGroupCreate(uintptr_t handle, int n, const unsigned short *ids, const char *name, uintptr_t *id);
int dcgmFieldGroupDestroy(uintptr_t handle, uintptr_t id);
int dcgmWatchFields(uintptr_t handle, uintptr_t group, uintptr_t fields, long long every, double keep_age,
                    int keep_samples);
int dcgmUnwatchFields(uintptr_t handle, uintptr_t group, uintptr_t fields);
int dcgmUpdateAllFields(uintptr_t handle, int wait);
int dcgmGetLatestValues_v2(uintptr_t handle, uintptr_t group, uintptr_t fields, thin_callback, void *data);
int dcgmGetValuesSince_v2(uintptr_t handle, uintptr_t group, uintptr_t fields, long long from, long long *next,
                          thin_callback, void *data);
int dcgmHealthSet(uintptr_t handle, uintptr_t group, unsigned systems);
int dcgmHealthCheck(uintptr_t handle, uintptr_t group, thin_health *health);
const char *errorString(int code);
#endif

#endif
