//go:build linux && cgo

#define _GNU_SOURCE
#include "thin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define BAD_PARAMETER (-3)       /* DCGM_ST_BADPARAM, for example for an inaccessible GPU */
#define OUT_OF_MEMORY (-4)       /* DCGM_ST_MEMORY */
#define VERSION_MISMATCH (-12)   /* DCGM_ST_VER_MISMATCH */
#define GPU_LOST (-18)           /* DCGM_ST_GPU_IS_LOST */
#define FUNCTION_NOT_FOUND (-20) /* DCGM_ST_FUNCTION_NOT_FOUND */
#define GPU_NOT_SUPPORTED (-22)  /* DCGM_ST_GPU_NOT_SUPPORTED */

/* Every libdcgm function that is called, here or by go-dcgm. The loader binds a
 * function at its first call, and a missing one would end the process. */
static const char *const functions[] = {
    "dcgmInit", "dcgmShutdown", "dcgmConnect_v2", "dcgmDisconnect", "dcgmGetEntityGroupEntities",
    "dcgmGetGpuInstanceHierarchy", "dcgmGetNvLinkLinkStatus", "dcgmGroupCreate", "dcgmGroupDestroy", "dcgmGroupAddEntity",
    "dcgmFieldGroupCreate", "dcgmFieldGroupDestroy", "dcgmWatchFields", "dcgmUnwatchFields", "dcgmUpdateAllFields",
    "dcgmGetLatestValues_v2", "dcgmGetValuesSince_v2", "dcgmHealthSet", "dcgmHealthCheck", "errorString",
    /* called by go-dcgm */
    "dcgmStartEmbedded", "dcgmStopEmbedded", "dcgmVersionInfo", "dcgmHostengineVersionInfo",
    "dcgmGetAllSupportedDevices", "dcgmGetGpuStatus", "dcgmGetDeviceAttributes",
    "dcgmProfGetSupportedMetricGroups",
    /* for the attributes of a GPU that returns while they are read */
    "dcgmGetDeviceTopology", "dcgmGetLatestValuesForFields",
};

static void *library;

/* Keep the library loaded after dlclose. Otherwise the addresses that the
 * loader bound would be invalid after the next dlopen. */
const char *thin_load(const char *soname, int *missing) {
    *missing = 0;
    if (library) return NULL;
    void *handle = dlopen(soname, RTLD_LAZY | RTLD_GLOBAL | RTLD_NODELETE);
    if (!handle) return dlerror();
    *missing = 1;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (!dlsym(handle, functions[i])) return functions[i];
    library = handle;
    *missing = 0;
    return NULL;
}

int thin_loadable(const char *soname) {
    void *handle = dlopen(soname, RTLD_LAZY | RTLD_LOCAL);
    if (handle) dlclose(handle);
    return handle != NULL;
}

/* Calls a function that DCGM 4.0 may lack. */
static int get(const char *function, uintptr_t handle, void *answer) {
    int (*f)(uintptr_t, void *);
    *(void **)&f = dlsym(library, function);
    return f ? f(handle, answer) : FUNCTION_NOT_FOUND;
}

int thin_connect(const char *address, int unix_socket, int vsock, uintptr_t *handle) {
    if (vsock) {
        thin_connect_v3_params p = {THIN_VERSION(thin_connect_v3_params, 1), 0, 0};
        int (*connect)(const char *, thin_connect_v3_params *, uintptr_t *);
        *(void **)&connect = dlsym(library, "dcgmConnect_v3");
        return connect ? connect(address, &p, handle) : FUNCTION_NOT_FOUND;
    }
    thin_connect_v2_params p = {THIN_VERSION(thin_connect_v2_params, 2), 0, 0, (unsigned)unix_socket};
    return dcgmConnect_v2(address, &p, handle);
}

static unsigned at_most(unsigned n, unsigned limit) { return n < limit ? n : limit; }

int thin_entities(uintptr_t handle, unsigned group, unsigned ids[THIN_ENTITIES_MAX], int *n) {
    *n = THIN_ENTITIES_MAX;
    int code = dcgmGetEntityGroupEntities(handle, group, ids, n, 0);
    if (code != 0 || *n < 0 || *n > THIN_ENTITIES_MAX) *n = 0;
    return code;
}

int thin_instances(uintptr_t handle, thin_hierarchy *h) {
    memset(h, 0, sizeof *h);
    h->version = THIN_VERSION(thin_hierarchy, 2);
    int code = dcgmGetGpuInstanceHierarchy(handle, h);
    h->count = code == 0 ? at_most(h->count, THIN_HIERARCHY_MAX) : 0;
    return code;
}

int thin_get_links(uintptr_t handle, thin_links *links) {
    memset(links, 0, sizeof *links);
    links->version = THIN_VERSION(thin_links, 5);
    int code = dcgmGetNvLinkLinkStatus(handle, links);
    if (code == VERSION_MISMATCH) {
        thin_links_old old;
        memset(&old, 0, sizeof old);
        old.version = THIN_VERSION(thin_links_old, 4);
        code = dcgmGetNvLinkLinkStatus(handle, &old);
        memset(links, 0, sizeof *links);
        links->gpu_count = at_most(old.gpu_count, THIN_GPUS_MAX);
        for (unsigned i = 0; i < links->gpu_count; i++) {
            links->gpus[i].id = old.gpus[i].id;
            memcpy(links->gpus[i].states, old.gpus[i].states, sizeof old.gpus[i].states);
        }
        links->switch_count = old.switch_count;
        memcpy(links->switches, old.switches, sizeof old.switches);
    }
    links->gpu_count = code == 0 ? at_most(links->gpu_count, THIN_GPUS_MAX) : 0;
    links->switch_count = code == 0 ? at_most(links->switch_count, THIN_SWITCHES_MAX) : 0;
    return code;
}

int thin_get_cpus(uintptr_t handle, thin_cpus *cpus) {
    memset(cpus, 0, sizeof *cpus);
    cpus->version = THIN_VERSION(thin_cpus, 2);
    int code = get("dcgmGetCpuHierarchy_v2", handle, cpus);
    if (code == VERSION_MISMATCH || code == FUNCTION_NOT_FOUND) {
        thin_cpus_old old;
        memset(&old, 0, sizeof old);
        old.version = THIN_VERSION(thin_cpus_old, 1);
        code = get("dcgmGetCpuHierarchy", handle, &old);
        memset(cpus, 0, sizeof *cpus);
        cpus->count = at_most(old.count, THIN_CPUS_MAX);
        for (unsigned i = 0; i < cpus->count; i++) {
            cpus->cpus[i].id = old.cpus[i].id;
            cpus->cpus[i].cores = old.cpus[i].cores;
        }
    }
    cpus->count = code == 0 ? at_most(cpus->count, THIN_CPUS_MAX) : 0;
    return code;
}

int thin_get_place(uintptr_t handle, unsigned gpu, thin_place *place) {
    memset(place, 0, sizeof *place);
    place->version = THIN_VERSION(thin_place, 2);
    int code = dcgmGetDeviceTopology(handle, gpu, place);
    if (code == VERSION_MISMATCH) {
        thin_place_old old;
        memset(&old, 0, sizeof old);
        old.version = THIN_VERSION(thin_place_old, 1);
        code = dcgmGetDeviceTopology(handle, gpu, &old);
        memset(place, 0, sizeof *place);
        memcpy(place->cpus, old.cpus, sizeof old.cpus);
        place->count = at_most(old.count, THIN_GPUS_MAX - 1);
        for (unsigned i = 0; i < place->count; i++) {
            place->paths[i].id = old.paths[i].id;
            place->paths[i].path = old.paths[i].path;
        }
    }
    place->count = at_most(place->count, THIN_GPUS_MAX - 1);
    return code;
}

int thin_check_health(uintptr_t handle, uintptr_t group, thin_health *health) {
    health->version = THIN_VERSION(thin_health, 5);
    health->count = 0;
    int code = dcgmHealthCheck(handle, group, health);
    health->count = code == 0 ? at_most(health->count, THIN_INCIDENTS_MAX) : 0;
    return code;
}

int thin_get_peers(uintptr_t handle, thin_peers *peers) {
    memset(peers, 0, sizeof *peers); /* no GPU ids: request all GPUs */
    peers->version = THIN_VERSION(thin_peers, 1);
    int code = get("dcgmGetNvLinkP2PStatus", handle, peers);
    peers->count = code == 0 ? at_most(peers->count, THIN_GPUS_MAX) : 0;
    return code;
}

int thin_create_group(uintptr_t handle, const char *name, const thin_entity *members, int n, int *codes, uintptr_t *id) {
    int code = dcgmGroupCreate(handle, 1 /* DCGM_GROUP_EMPTY */, name, id);
    int taken = 0;
    for (int i = 0; i < n && code == 0; i++) {
        codes[i] = dcgmGroupAddEntity(handle, *id, members[i].group, members[i].id);
        switch (codes[i]) {
        case 0: taken++; break;
        case BAD_PARAMETER: case GPU_LOST: case GPU_NOT_SUPPORTED: break;
        default: /* the call failed, not the member */
            code = codes[i];
            dcgmGroupDestroy(handle, *id);
        }
    }
    if (code == 0 && taken == 0) code = dcgmGroupDestroy(handle, *id), *id = 0;
    return code;
}
/* grow makes room in *memory for one more element of need bytes. */
static int grow(void **memory, size_t used, size_t need, size_t *room) {
    if (used + need <= *room) return 1;
    size_t bigger = *room ? *room * 2 : 4096;
    while (bigger < used + need) bigger *= 2;
    void *p = realloc(*memory, bigger);
    if (!p) return 0;
    *memory = p;
    *room = bigger;
    return 1;
}

static int collect(unsigned group, unsigned entity, thin_value *values, int n, void *data) {
    thin_buffer *b = data;
    for (int i = 0; i < n; i++) {
        const thin_value *v = &values[i];
        if (group > UINT8_MAX || v->type > UINT8_MAX) continue; /* not a DCGM value: skip it */
        if (!grow((void **)&b->samples, b->n * sizeof *b->samples, sizeof *b->samples, &b->room)) goto failed;
        thin_sample *s = &b->samples[b->n];
        s->at = v->ts;
        s->entity = entity;
        s->status = v->status;
        s->field = v->field;
        s->type = (uint8_t)v->type;
        s->group = (uint8_t)group;
        s->text = 0;
        if (v->type == 's') {
            size_t len = strnlen(v->value.str, sizeof v->value.str);
            if (!grow((void **)&b->text, b->text_n, len, &b->text_room)) goto failed;
            if (len) memcpy(b->text + b->text_n, v->value.str, len);
            s->text = (uint32_t)b->text_n;
            s->bits = len;
            b->text_n += len;
        } else {
            memcpy(&s->bits, &v->value, sizeof s->bits);
        }
        b->n++;
    }
    return 0;
failed:
    b->out_of_memory = 1;
    return -1; /* ends the enumeration */
}

static void reset(thin_buffer *b) { b->n = b->text_n = 0, b->out_of_memory = 0; }

int thin_latest(uintptr_t handle, uintptr_t group, uintptr_t fields, thin_buffer *buffer) {
    reset(buffer);
    int code = dcgmGetLatestValues_v2(handle, group, fields, collect, buffer);
    return buffer->out_of_memory ? OUT_OF_MEMORY : code;
}

int thin_since(uintptr_t handle, uintptr_t group, uintptr_t fields, long long from, long long *next, thin_buffer *buffer) {
    reset(buffer);
    int code = dcgmGetValuesSince_v2(handle, group, fields, from, next, collect, buffer);
    return buffer->out_of_memory ? OUT_OF_MEMORY : code;
}

void thin_free(thin_buffer *buffer) {
    free(buffer->samples);
    free(buffer->text);
    memset(buffer, 0, sizeof *buffer);
}
