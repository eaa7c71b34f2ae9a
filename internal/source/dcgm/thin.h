/* The few calls of libdcgm that are made without go-dcgm. The structures of
 * libdcgm's interface are declared here with names of our own, since cgo
 * cannot include a header of another module; a test compares them with
 * go-dcgm's headers. */
#ifndef DCGM_THIN_H
#define DCGM_THIN_H

#include <stddef.h>
#include <stdint.h>

#define THIN_VERSION(type, n) ((unsigned)(sizeof(type) | (unsigned)(n) << 24))
#define THIN_EMBEDDED ((uintptr_t)0x7fffffff) /* DCGM_EMBEDDED_HANDLE */

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

#define THIN_ENTITIES_MAX 1024        /* DCGM_GROUP_MAX_ENTITIES_V2 */
#define THIN_HIERARCHY_MAX (32 * 14) /* DCGM_MAX_HIERARCHY_INFO */

typedef struct { /* dcgmMigHierarchy_v2 */
    unsigned version, count;
    thin_hierarchy_entry entries[THIN_HIERARCHY_MAX];
} thin_hierarchy;

#define THIN_GPUS_MAX 32                /* DCGM_MAX_NUM_DEVICES */
#define THIN_SWITCHES_MAX 12            /* DCGM_MAX_NUM_SWITCHES */
#define THIN_GPU_LINKS_MAX 36           /* DCGM_NVLINK_MAX_LINKS_PER_GPU */
#define THIN_GPU_LINKS_MAX_OLD 18       /* DCGM_NVLINK_MAX_LINKS_PER_GPU_LEGACY3 */
#define THIN_SWITCH_LINKS_MAX 256       /* DCGM_NVLINK_MAX_LINKS_PER_NVSWITCH */
#define THIN_CPUS_MAX 8                 /* DCGM_MAX_NUM_CPUS */
#define THIN_CORE_WORDS 16              /* DCGM_CPU_CORE_BITMASK_COUNT_V1 */
#define THIN_AFFINITY_WORDS 8           /* DCGM_AFFINITY_BITMASK_ARRAY_SIZE */

typedef struct { /* dcgmNvLinkNvSwitchLinkStatus_t */
    unsigned id, states[THIN_SWITCH_LINKS_MAX];
} thin_switch_links;

typedef struct { /* dcgmNvLinkStatus_v5, DCGM 4.6 */
    unsigned version, gpu_count;
    struct {
        unsigned id, states[THIN_GPU_LINKS_MAX];
    } gpus[THIN_GPUS_MAX];
    unsigned switch_count;
    thin_switch_links switches[THIN_SWITCHES_MAX];
} thin_links;

typedef struct { /* dcgmNvLinkStatus_v4, before DCGM 4.6 */
    unsigned version, gpu_count;
    struct {
        unsigned id, states[THIN_GPU_LINKS_MAX_OLD];
    } gpus[THIN_GPUS_MAX];
    unsigned switch_count;
    thin_switch_links switches[THIN_SWITCHES_MAX];
} thin_links_old;

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

typedef struct { /* dcgmDeviceTopology_v2, DCGM 4.6 */
    unsigned version;
    unsigned long cpus[THIN_AFFINITY_WORDS];
    unsigned count;
    struct {
        unsigned id;
        uint64_t path, links;
    } paths[THIN_GPUS_MAX - 1];
} thin_place;

typedef struct { /* dcgmDeviceTopology_v1, before DCGM 4.6 */
    unsigned version;
    unsigned long cpus[THIN_AFFINITY_WORDS];
    unsigned count;
    struct {
        unsigned id, path, links;
    } paths[THIN_GPUS_MAX - 1];
} thin_place_old;

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

/* What one read delivered. The memory is kept for the next read. */
typedef struct {
    thin_sample *samples;
    size_t n, room;
    char *text;
    size_t text_n, text_room;
    int out_of_memory;
} thin_buffer;

/* The library and its functions. */
typedef struct {
    void *handle;
    int (*init)(void);
    int (*shutdown)(void);
    int (*connect_v2)(const char *, thin_connect_v2_params *, uintptr_t *);
    int (*connect_v3)(const char *, thin_connect_v3_params *, uintptr_t *);
    int (*disconnect)(uintptr_t);
    int (*entities)(uintptr_t, unsigned, unsigned *, int *, unsigned);
    int (*hierarchy)(uintptr_t, thin_hierarchy *);
    /* NULL where the library is older than the function */
    int (*links)(uintptr_t, void *);
    int (*cpus)(uintptr_t, void *);
    int (*cpus_old)(uintptr_t, void *);
    int (*place)(uintptr_t, unsigned, void *);
    int (*group_create)(uintptr_t, int, const char *, uintptr_t *);
    int (*group_destroy)(uintptr_t, uintptr_t);
    int (*group_add)(uintptr_t, uintptr_t, unsigned, unsigned);
    int (*fields_create)(uintptr_t, int, const unsigned short *, const char *, uintptr_t *);
    int (*fields_destroy)(uintptr_t, uintptr_t);
    int (*watch)(uintptr_t, uintptr_t, uintptr_t, long long, double, int);
    int (*unwatch)(uintptr_t, uintptr_t, uintptr_t);
    int (*update)(uintptr_t, int);
    int (*latest)(uintptr_t, uintptr_t, uintptr_t, thin_callback, void *);
    int (*since)(uintptr_t, uintptr_t, uintptr_t, long long, long long *, thin_callback, void *);
    const char *(*words)(int);
} thin_lib;

/* Loads the library, for the life of the process. Returns NULL, or what went
 * wrong: the loader's words, or the name of a function that is missing, with
 * *missing set. */
const char *thin_load(thin_lib *lib, const char *soname, int *missing);

int thin_connect(thin_lib *lib, const char *address, int unix_socket, int vsock, unsigned timeout_ms, uintptr_t *handle);
int thin_entities(thin_lib *lib, uintptr_t handle, unsigned group, unsigned ids[THIN_ENTITIES_MAX], int *n);
/* These request the structure of DCGM 4.6, and where that is not understood for
 * the older one, and answer in the newer form. */
int thin_get_links(thin_lib *lib, uintptr_t handle, thin_links *links);
int thin_get_cpus(thin_lib *lib, uintptr_t handle, thin_cpus *cpus);
int thin_get_place(thin_lib *lib, uintptr_t handle, unsigned gpu, thin_place *place);
int thin_instances(thin_lib *lib, uintptr_t handle, thin_hierarchy *h);
/* Makes a group of the members that the engine takes, and leaves out those that it refuses for
 * what they are: codes has the result of each. Without any member there is no group left. */
int thin_create_group(thin_lib *lib, uintptr_t handle, const char *name, const thin_entity *members, int n, int *codes,
                      uintptr_t *id);
int thin_latest(thin_lib *lib, uintptr_t handle, uintptr_t group, uintptr_t fields, thin_buffer *buffer);
int thin_since(thin_lib *lib, uintptr_t handle, uintptr_t group, uintptr_t fields, long long from, long long *next,
               thin_buffer *buffer);
void thin_free(thin_buffer *buffer);

/* The functions that need nothing more than their address called. */
int thin_init(thin_lib *lib);
int thin_shutdown(thin_lib *lib);
int thin_disconnect(thin_lib *lib, uintptr_t handle);
int thin_destroy_group(thin_lib *lib, uintptr_t handle, uintptr_t id);
int thin_create_fields(thin_lib *lib, uintptr_t handle, const char *name, const unsigned short *ids, int n, uintptr_t *id);
int thin_destroy_fields(thin_lib *lib, uintptr_t handle, uintptr_t id);
int thin_watch(thin_lib *lib, uintptr_t handle, uintptr_t group, uintptr_t fields, long long every, double keep_age,
               int keep_samples);
int thin_unwatch(thin_lib *lib, uintptr_t handle, uintptr_t group, uintptr_t fields);
int thin_update(thin_lib *lib, uintptr_t handle);
const char *thin_words(thin_lib *lib, int code);

#endif
