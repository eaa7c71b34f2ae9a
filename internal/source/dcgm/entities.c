//go:build linux && cgo

#include "thin.h"

#include <string.h>

#define VERSION_MISMATCH (-12)   /* DCGM_ST_VER_MISMATCH */
#define FUNCTION_NOT_FOUND (-20) /* DCGM_ST_FUNCTION_NOT_FOUND */

static unsigned at_most(unsigned n, unsigned limit) { return n < limit ? n : limit; }

int thin_get_links(thin_lib *lib, uintptr_t handle, thin_links *links) {
    if (!lib->links) return FUNCTION_NOT_FOUND;
    memset(links, 0, sizeof *links);
    links->version = THIN_VERSION(thin_links, 5);
    int code = lib->links(handle, links);
    if (code == VERSION_MISMATCH) {
        thin_links_old old;
        memset(&old, 0, sizeof old);
        old.version = THIN_VERSION(thin_links_old, 4);
        code = lib->links(handle, &old);
        memset(links, 0, sizeof *links);
        links->gpu_count = at_most(old.gpu_count, THIN_GPUS_MAX);
        for (unsigned i = 0; i < links->gpu_count; i++) {
            links->gpus[i].id = old.gpus[i].id;
            memcpy(links->gpus[i].states, old.gpus[i].states, sizeof old.gpus[i].states);
        }
        links->switch_count = old.switch_count;
        memcpy(links->switches, old.switches, sizeof old.switches);
    }
    links->gpu_count = at_most(links->gpu_count, THIN_GPUS_MAX);
    links->switch_count = at_most(links->switch_count, THIN_SWITCHES_MAX);
    return code;
}

int thin_get_cpus(thin_lib *lib, uintptr_t handle, thin_cpus *cpus) {
    int code = lib->cpus ? VERSION_MISMATCH : FUNCTION_NOT_FOUND;
    memset(cpus, 0, sizeof *cpus);
    if (lib->cpus) {
        cpus->version = THIN_VERSION(thin_cpus, 2);
        code = lib->cpus(handle, cpus);
    }
    if ((code == VERSION_MISMATCH || code == FUNCTION_NOT_FOUND) && lib->cpus_old) {
        thin_cpus_old old;
        memset(&old, 0, sizeof old);
        old.version = THIN_VERSION(thin_cpus_old, 1);
        code = lib->cpus_old(handle, &old);
        memset(cpus, 0, sizeof *cpus);
        cpus->count = at_most(old.count, THIN_CPUS_MAX);
        for (unsigned i = 0; i < cpus->count; i++) {
            cpus->cpus[i].id = old.cpus[i].id;
            cpus->cpus[i].cores = old.cpus[i].cores;
        }
    }
    cpus->count = at_most(cpus->count, THIN_CPUS_MAX);
    return code;
}

int thin_get_place(thin_lib *lib, uintptr_t handle, unsigned gpu, thin_place *place) {
    if (!lib->place) return FUNCTION_NOT_FOUND;
    memset(place, 0, sizeof *place);
    place->version = THIN_VERSION(thin_place, 2);
    int code = lib->place(handle, gpu, place);
    if (code == VERSION_MISMATCH) {
        thin_place_old old;
        memset(&old, 0, sizeof old);
        old.version = THIN_VERSION(thin_place_old, 1);
        code = lib->place(handle, gpu, &old);
        memset(place, 0, sizeof *place);
        memcpy(place->cpus, old.cpus, sizeof old.cpus);
        place->count = at_most(old.count, THIN_GPUS_MAX - 1);
        for (unsigned i = 0; i < place->count; i++) {
            place->paths[i].id = old.paths[i].id;
            place->paths[i].path = old.paths[i].path;
            place->paths[i].links = old.paths[i].links;
        }
    }
    place->count = at_most(place->count, THIN_GPUS_MAX - 1);
    return code;
}
