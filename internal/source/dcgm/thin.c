//go:build linux && cgo

#define _GNU_SOURCE
#include "thin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define OUT_OF_MEMORY (-4)       /* DCGM_ST_MEMORY */
#define FUNCTION_NOT_FOUND (-20) /* DCGM_ST_FUNCTION_NOT_FOUND */

/* Every libdcgm function that is called, here or by go-dcgm. The loader binds a
 * function at its first call, and a missing one would end the process. */
static const char *const functions[] = {
    "dcgmInit", "dcgmShutdown", "dcgmConnect_v2", "dcgmDisconnect", "dcgmGetEntityGroupEntities",
    "dcgmGetGpuInstanceHierarchy", "dcgmGetNvLinkLinkStatus", "dcgmGroupCreate", "dcgmGroupDestroy",
    "dcgmGroupAddEntity", "dcgmFieldGroupCreate", "dcgmFieldGroupDestroy", "dcgmWatchFields", "dcgmUnwatchFields",
    "dcgmUpdateAllFields", "dcgmGetLatestValues_v2", "dcgmGetValuesSince_v2", "dcgmHealthSet", "dcgmHealthCheck",
    "errorString",
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

int thin_get(const char *function, uintptr_t handle, void *answer) {
    int (*f)(uintptr_t, void *);
    *(void **)&f = dlsym(library, function);
    return f ? f(handle, answer) : FUNCTION_NOT_FOUND;
}

int thin_connect(const char *address, bool unix_socket, bool vsock, uintptr_t *handle) {
    if (vsock) {
        thin_connect_v3_params p = {THIN_VERSION(thin_connect_v3_params, 1), 0, 0};
        int (*connect)(const char *, thin_connect_v3_params *, uintptr_t *);
        *(void **)&connect = dlsym(library, "dcgmConnect_v3");
        return connect ? connect(address, &p, handle) : FUNCTION_NOT_FOUND;
    }
    thin_connect_v2_params p = {THIN_VERSION(thin_connect_v2_params, 2), 0, 0, unix_socket};
    return dcgmConnect_v2(address, &p, handle);
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

int thin_since(uintptr_t handle, uintptr_t group, uintptr_t fields, long long from, thin_buffer *buffer) {
    long long next;
    reset(buffer);
    int code = dcgmGetValuesSince_v2(handle, group, fields, from, &next, collect, buffer);
    return buffer->out_of_memory ? OUT_OF_MEMORY : code;
}

void thin_free(thin_buffer *buffer) {
    free(buffer->samples);
    free(buffer->text);
    memset(buffer, 0, sizeof *buffer);
}
