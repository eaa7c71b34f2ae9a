//go:build linux && cgo

#define _GNU_SOURCE
#include "thin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define BAD_PARAMETER (-3)      /* DCGM_ST_BADPARAM: of a GPU that is not accessible, for one */
#define OUT_OF_MEMORY (-4)      /* DCGM_ST_MEMORY */
#define GPU_LOST (-18)          /* DCGM_ST_GPU_IS_LOST */
#define GPU_NOT_SUPPORTED (-22) /* DCGM_ST_GPU_NOT_SUPPORTED */

/* The functions that go-dcgm calls for us. It binds them when they are called
 * first, and the process would end there if one were missing. */
static const char *const go_dcgm_functions[] = {
    "dcgmStartEmbedded", "dcgmStopEmbedded", "dcgmVersionInfo", "dcgmHostengineVersionInfo",
    "dcgmGetAllSupportedDevices", "dcgmGetGpuStatus", "dcgmGetDeviceAttributes",
    "dcgmProfGetSupportedMetricGroups",
    /* for the attributes of a GPU that comes back while they are read */
    "dcgmGetDeviceTopology", "dcgmGetLatestValuesForFields",
};

/* dlclose must never unload the library: the addresses that the loader bound
 * for go-dcgm would point nowhere after the next dlopen. */
const char *thin_load(thin_lib *lib, const char *soname, int *missing) {
    *missing = 0;
    if (lib->handle) return NULL;
    void *handle = dlopen(soname, RTLD_LAZY | RTLD_GLOBAL | RTLD_NODELETE);
    if (!handle) return dlerror();
    *missing = 1;
    for (size_t i = 0; i < sizeof go_dcgm_functions / sizeof go_dcgm_functions[0]; i++)
        if (!dlsym(handle, go_dcgm_functions[i])) return go_dcgm_functions[i];
#define LOOK_UP(member, name) \
    if (!(*(void **)&lib->member = dlsym(handle, name))) return name
    LOOK_UP(init, "dcgmInit");
    LOOK_UP(shutdown, "dcgmShutdown");
    LOOK_UP(connect_v2, "dcgmConnect_v2");
    LOOK_UP(disconnect, "dcgmDisconnect");
    LOOK_UP(entities, "dcgmGetEntityGroupEntities");
    LOOK_UP(hierarchy, "dcgmGetGpuInstanceHierarchy");
    LOOK_UP(group_create, "dcgmGroupCreate");
    LOOK_UP(group_destroy, "dcgmGroupDestroy");
    LOOK_UP(group_add, "dcgmGroupAddEntity");
    LOOK_UP(fields_create, "dcgmFieldGroupCreate");
    LOOK_UP(fields_destroy, "dcgmFieldGroupDestroy");
    LOOK_UP(watch, "dcgmWatchFields");
    LOOK_UP(unwatch, "dcgmUnwatchFields");
    LOOK_UP(update, "dcgmUpdateAllFields");
    LOOK_UP(latest, "dcgmGetLatestValues_v2");
    LOOK_UP(since, "dcgmGetValuesSince_v2");
    LOOK_UP(words, "errorString");
#undef LOOK_UP
    /* newer than the library itself: DCGM 4.5 */
    *(void **)&lib->connect_v3 = dlsym(handle, "dcgmConnect_v3");
    *(void **)&lib->links = dlsym(handle, "dcgmGetNvLinkLinkStatus");
    *(void **)&lib->cpus = dlsym(handle, "dcgmGetCpuHierarchy_v2");
    *(void **)&lib->cpus_old = dlsym(handle, "dcgmGetCpuHierarchy");
    *(void **)&lib->place = dlsym(handle, "dcgmGetDeviceTopology");
    lib->handle = handle;
    *missing = 0;
    return NULL;
}

int thin_connect(thin_lib *lib, const char *address, int unix_socket, int vsock, unsigned timeout_ms, uintptr_t *handle) {
    if (vsock) {
        thin_connect_v3_params p = {THIN_VERSION(thin_connect_v3_params, 1), 0, timeout_ms};
        return lib->connect_v3(address, &p, handle);
    }
    thin_connect_v2_params p = {THIN_VERSION(thin_connect_v2_params, 2), 0, timeout_ms, (unsigned)unix_socket};
    return lib->connect_v2(address, &p, handle);
}

int thin_entities(thin_lib *lib, uintptr_t handle, unsigned group, unsigned ids[THIN_ENTITIES_MAX], int *n) {
    *n = THIN_ENTITIES_MAX;
    int code = lib->entities(handle, group, ids, n, 0);
    if (code != 0 || *n < 0 || *n > THIN_ENTITIES_MAX) *n = 0;
    return code;
}

int thin_instances(thin_lib *lib, uintptr_t handle, thin_hierarchy *h) {
    memset(h, 0, sizeof *h);
    h->version = THIN_VERSION(thin_hierarchy, 2);
    int code = lib->hierarchy(handle, h);
    if (h->count > THIN_HIERARCHY_MAX) h->count = THIN_HIERARCHY_MAX;
    return code;
}

int thin_create_group(thin_lib *lib, uintptr_t handle, const char *name, const thin_entity *members, int n, int *codes,
                      uintptr_t *id) {
    int code = lib->group_create(handle, 1 /* DCGM_GROUP_EMPTY */, name, id);
    int taken = 0;
    for (int i = 0; i < n && code == 0; i++) {
        codes[i] = lib->group_add(handle, *id, members[i].group, members[i].id);
        switch (codes[i]) {
        case 0: taken++; break;
        case BAD_PARAMETER: case GPU_LOST: case GPU_NOT_SUPPORTED: break;
        default: /* about the call and not about the member */
            code = codes[i];
            lib->group_destroy(handle, *id);
        }
    }
    if (code == 0 && taken == 0) code = lib->group_destroy(handle, *id), *id = 0;
    return code;
}

/* grow makes room for one more of need bytes in *memory. */
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
        if (group > UINT8_MAX || v->type > UINT8_MAX) continue; /* none of DCGM's: no sample is made of it */
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

int thin_latest(thin_lib *lib, uintptr_t handle, uintptr_t group, uintptr_t fields, thin_buffer *buffer) {
    reset(buffer);
    int code = lib->latest(handle, group, fields, collect, buffer);
    return buffer->out_of_memory ? OUT_OF_MEMORY : code;
}

int thin_since(thin_lib *lib, uintptr_t handle, uintptr_t group, uintptr_t fields, long long from, long long *next,
               thin_buffer *buffer) {
    reset(buffer);
    int code = lib->since(handle, group, fields, from, next, collect, buffer);
    return buffer->out_of_memory ? OUT_OF_MEMORY : code;
}

void thin_free(thin_buffer *buffer) {
    free(buffer->samples);
    free(buffer->text);
    memset(buffer, 0, sizeof *buffer);
}

int thin_init(thin_lib *lib) { return lib->init(); }
int thin_shutdown(thin_lib *lib) { return lib->shutdown(); }
int thin_disconnect(thin_lib *lib, uintptr_t handle) { return lib->disconnect(handle); }
int thin_destroy_group(thin_lib *lib, uintptr_t handle, uintptr_t id) { return lib->group_destroy(handle, id); }

int thin_create_fields(thin_lib *lib, uintptr_t handle, const char *name, const unsigned short *ids, int n, uintptr_t *id) {
    return lib->fields_create(handle, n, ids, name, id);
}

int thin_destroy_fields(thin_lib *lib, uintptr_t handle, uintptr_t id) { return lib->fields_destroy(handle, id); }

int thin_watch(thin_lib *lib, uintptr_t handle, uintptr_t group, uintptr_t fields, long long every, double keep_age,
               int keep_samples) {
    return lib->watch(handle, group, fields, every, keep_age, keep_samples);
}

int thin_unwatch(thin_lib *lib, uintptr_t handle, uintptr_t group, uintptr_t fields) {
    return lib->unwatch(handle, group, fields);
}

int thin_update(thin_lib *lib, uintptr_t handle) { return lib->update(handle, 1); }
const char *thin_words(thin_lib *lib, int code) { return lib->words(code); }
