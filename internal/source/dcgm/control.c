//go:build linux && cgo

#define _GNU_SOURCE
#include "control.h"

#include <dlfcn.h>

#define FUNCTION_NOT_FOUND (-20) /* DCGM_ST_FUNCTION_NOT_FOUND */

int control_set_health(thin_lib *lib, uintptr_t handle, uintptr_t group, unsigned systems) {
    int (*set)(uintptr_t, uintptr_t, unsigned);
    *(void **)&set = dlsym(lib->handle, "dcgmHealthSet");
    return set ? set(handle, group, systems) : FUNCTION_NOT_FOUND;
}

int control_check_health(thin_lib *lib, uintptr_t handle, uintptr_t group, control_health *health) {
    int (*check)(uintptr_t, uintptr_t, control_health *);
    *(void **)&check = dlsym(lib->handle, "dcgmHealthCheck");
    health->version = THIN_VERSION(control_health, 5);
    health->count = 0;
    int code = check ? check(handle, group, health) : FUNCTION_NOT_FOUND;
    if (code != 0) health->count = 0;
    if (health->count > CONTROL_INCIDENTS_MAX) health->count = CONTROL_INCIDENTS_MAX;
    return code;
}

int control_get_peers(thin_lib *lib, uintptr_t handle, control_peers *peers) {
    int (*get)(uintptr_t, control_peers *);
    *(void **)&get = dlsym(lib->handle, "dcgmGetNvLinkP2PStatus");
    peers->version = THIN_VERSION(control_peers, 1);
    peers->count = 0; /* of all GPUs */
    int code = get ? get(handle, peers) : FUNCTION_NOT_FOUND;
    if (code != 0) peers->count = 0;
    if (peers->count > CONTROL_GPUS_MAX) peers->count = CONTROL_GPUS_MAX;
    return code;
}
