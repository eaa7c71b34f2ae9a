/* Calls of libdcgm that some plans need: its health checks, the state of
 * NVLink between GPUs, and the pause of profiling. */
#ifndef DCGM_CONTROL_H
#define DCGM_CONTROL_H

#include "thin.h"

#define CONTROL_INCIDENTS_MAX 1024 /* DCGM_HEALTH_WATCH_MAX_INCIDENTS_V2 */
#define CONTROL_GPUS_MAX 32        /* DCGM_MAX_NUM_DEVICES */

typedef struct { /* dcgmIncidentInfo_t */
    unsigned system, result;
    char message[1024];
    unsigned code;
    thin_entity entity;
} control_incident;

typedef struct { /* dcgmHealthResponse_v5 */
    unsigned version, result, count;
    control_incident incidents[CONTROL_INCIDENTS_MAX];
} control_health;

typedef struct { /* dcgmNvLinkP2PStatus_v1 */
    unsigned version, count;
    struct {
        unsigned id, states[CONTROL_GPUS_MAX];
    } gpus[CONTROL_GPUS_MAX];
} control_peers;

/* Each answers DCGM_ST_FUNCTION_NOT_FOUND where the library is older than the
 * function. */
int control_set_health(thin_lib *lib, uintptr_t handle, uintptr_t group, unsigned systems);
int control_check_health(thin_lib *lib, uintptr_t handle, uintptr_t group, control_health *health);
int control_get_peers(thin_lib *lib, uintptr_t handle, control_peers *peers);
int control_pause_profiling(thin_lib *lib, uintptr_t handle);
int control_resume_profiling(thin_lib *lib, uintptr_t handle);

#endif
