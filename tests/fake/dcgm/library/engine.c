/* The functions of libdcgm, and the engine's state: connections, groups, field
 * groups, and watches with their samples. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "world.h"

#define EMBEDDED ((dcgmHandle_t)0x7fffffff)
#define MAX_CONNECTIONS 16
#define MAX_GROUPS 64
#define MAX_WATCHES 256
#define FIRST_SAMPLE_US 7000 /* after the watch */
#define FIRST_DEVICE_FIELD 50
#define FIRST_PROFILING_FIELD 1001
#define LAST_PROFILING_FIELD 1096
#define FIRST_SWITCH_FIELD DCGM_FI_FIRST_NVSWITCH_FIELD_ID
#define LAST_SWITCH_FIELD DCGM_FI_LAST_NVSWITCH_FIELD_ID
#define INFOROM_PACE_US 30000000 /* shortest sampling interval of fields 83 and 84, whatever a watch requests */

/* CPU time of calls in libdcgm with a real engine, in microseconds. A batched read costs the same for any number of
 * entities. A read of every sample costs this much for each entity. */
#define COST_BATCH_US 400
#define COST_SINCE_US 500
#define COST_OTHER_US 50

struct sample {
    int64_t ts;
    int status;
    char type;
    int64_t i64;
    double dbl;
    char text[128];
};

/* One field of one entity that is watched, or was. */
struct series {
    int group, field;
    unsigned entity;
    int watchers;
    int64_t interval, keep_age, due, last;
    int keep_samples; /* 0: no limit */
    int taken;        /* samples since the watch */
    struct sample *samples, *block; /* the oldest sample, and the allocated memory */
    int nsamples, capacity;
    int generation, watched; /* script generation at the last sample, and when the watch began */
    const struct rule *rule;
    struct series *next;
};

struct group {
    int used;
    dcgmHandle_t owner;
    char name[DCGM_MAX_STR_LENGTH];
    unsigned health; /* watched systems */
    int n;
    dcgmGroupEntityPair_t members[DCGM_GROUP_MAX_ENTITIES_V2];
};

struct field_group {
    int used;
    dcgmHandle_t owner;
    char name[DCGM_MAX_STR_LENGTH];
    int n;
    unsigned short ids[DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP];
};

struct watch {
    int used;
    dcgmHandle_t owner;
    dcgmGpuGrp_t group_id;
    dcgmFieldGrp_t fields_id;
    struct group group;
    struct field_group fields;
};

struct connection {
    int used, boot;
    dcgmHandle_t handle;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int initialized, embedded_started, boot;
static dcgmHandle_t next_handle = 1;
static struct connection connections[MAX_CONNECTIONS];
static struct group groups[MAX_GROUPS];
static struct field_group field_groups[MAX_GROUPS];
static struct watch watches[MAX_WATCHES];
static int64_t last_event;

#define BUCKETS 8192
static struct series *table[BUCKETS];

static struct series *find_series(int group, unsigned entity, int field, int create) {
    unsigned h = ((unsigned)group * 31u + entity) * 2654435761u + (unsigned)field * 40503u;
    struct series **slot = &table[h % BUCKETS];
    for (struct series *s = *slot; s; s = s->next)
        if (s->field == field && s->entity == entity && s->group == group) return s;
    if (!create) return NULL;
    struct series *s = calloc(1, sizeof *s);
    s->group = group, s->entity = entity, s->field = field;
    s->next = *slot;
    return *slot = s;
}

/* Fields of the node are stored without an entity, once for all clients. */
static struct series *series_of(int group, unsigned entity, int field, int create) {
    if (field < FIRST_DEVICE_FIELD) group = DCGM_FE_NONE, entity = 0;
    return find_series(group, entity, field, create);
}

static void push(struct series *s, const struct sample *x) {
    int old = 0;
    if (s->keep_samples > 0 && s->nsamples >= s->keep_samples) old = s->nsamples - s->keep_samples + 1;
    if (s->keep_age > 0)
        while (old < s->nsamples && s->samples[old].ts < x->ts - s->keep_age) old++;
    s->samples += old, s->nsamples -= old;
    int forgotten = (int)(s->samples - s->block);
    if (forgotten + s->nsamples == s->capacity) {
        /* Move the samples rarely enough that the cost per sample is constant. */
        if (forgotten > 0) memmove(s->block, s->samples, (size_t)s->nsamples * sizeof *x);
        if (forgotten <= s->nsamples) {
            s->capacity = s->capacity ? s->capacity * 2 : 2;
            s->block = realloc(s->block, (size_t)s->capacity * sizeof *x);
        }
        s->samples = s->block;
    }
    s->samples[s->nsamples++] = *x;
}

static void make_blank(struct sample *x, char type, int offset) {
    static const char *texts[] = {DCGM_STR_BLANK, DCGM_STR_NOT_FOUND, DCGM_STR_NOT_SUPPORTED, DCGM_STR_NOT_PERMISSIONED};
    x->type = type;
    x->i64 = DCGM_INT64_BLANK + offset;
    x->dbl = DCGM_FP64_BLANK + offset;
    snprintf(x->text, sizeof x->text, "%s", texts[offset]);
}

/* Reads the identity of a GPU or an instance. Returns 0 if the field is not
 * part of it. */
static int identity(struct series *s, struct sample *x) {
    const char *text = NULL;
    int64_t n = -1;
    if (s->field == 1) text = world.driver;
    else if (s->field == 2) text = world.nvml;
    else if (s->group == DCGM_FE_GPU) {
        struct gpu *g = world_gpu(s->entity);
        if (!g) return 0;
        switch (s->field) {
        case 50: text = g->name; break;
        case 52: n = g->index; break;
        case 54: text = g->uuid; break;
        case 55: n = g->minor; break;
        case 57: text = g->bus; break;
        }
    } else {
        struct instance *i = world_instance((dcgm_field_entity_group_t)s->group, s->entity);
        if (!i) return 0;
        if (s->field == 50) text = i->profile;
        else if (s->field == 54) text = i->uuid;
    }
    if (text && *text) {
        x->type = 's';
        snprintf(x->text, sizeof x->text, "%s", text);
        return 1;
    }
    if (n >= 0) {
        x->type = 'i', x->i64 = n;
        return 1;
    }
    return 0;
}

/* Returns the GPU of an entity that is a GPU or an instance. */
static struct gpu *gpu_of(int group, unsigned entity) {
    if (group == DCGM_FE_GPU) return world_gpu(entity);
    if (group != DCGM_FE_GPU_I && group != DCGM_FE_GPU_CI) return NULL;
    struct instance *i = world_instance((dcgm_field_entity_group_t)group, entity);
    return i ? world_gpu(i->gpu) : NULL;
}

/* Reports whether an entity is a GPU that is lost or missing, or an instance of one. */
static int lost_entity(int group, unsigned entity) {
    if (group != DCGM_FE_GPU && group != DCGM_FE_GPU_I && group != DCGM_FE_GPU_CI) return 0;
    struct gpu *g = gpu_of(group, entity);
    return !g || g->status == DcgmEntityStatusLost;
}

static int lost(struct series *s) { return lost_entity(s->group, s->entity); }

static void take(struct series *s, int64_t ts) {
    if (s->generation != world.generation) {
        s->generation = world.generation;
        s->rule = world_rule(s->group, s->entity, s->field);
    }
    const struct rule *r = s->rule;
    struct sample x = {.ts = ts, .type = 'i'};
    if (r && (r->kind == KIND_NO_DATA || r->kind == KIND_STOPPED)) return;
    if (r && r->kind == KIND_STUCK && s->watched != world.generation) return;
    if (lost(s)) make_blank(&x, r && r->kind == KIND_DOUBLE ? 'd' : 'i', 0);
    else if (r) {
        x.status = r->status;
        switch (r->kind) {
        case KIND_INT: x.i64 = r->i64 + r->step * s->taken; break;
        case KIND_DOUBLE: x.type = 'd', x.dbl = r->dbl + r->dstep * s->taken; break;
        case KIND_STUCK: x.type = 'd', x.dbl = r->dbl; break;
        case KIND_ZERO: x.type = 'd', x.dbl = s->watched == world.generation ? r->dbl : 0; break;
        case KIND_TEXT: x.type = 's', snprintf(x.text, sizeof x.text, "%s", r->text); break;
        default: make_blank(&x, r->blank, (int)(r->kind - KIND_BLANK)); break;
        }
        /* Profiling has its first value after two readings. */
        if (s->field >= FIRST_PROFILING_FIELD && s->field <= LAST_PROFILING_FIELD && s->taken == 0)
            make_blank(&x, x.type, 0);
    } else if (!identity(s, &x))
        make_blank(&x, 'i', 2);
    push(s, &x);
    s->taken++;
    s->last = ts;
}

/* Takes the samples that are due. */
static void advance(struct series *s, int64_t now, int forced) {
    if (!s->watchers) return;
    if (s->field == 230) {
        /* XIDs are events. Some engines start with a sample of 0; a script can request that. While a GPU is lost, or a
         * script blanks the field, the engine appends a blank sample with the current time in each interval. */
        const struct rule *r = world_rule(s->group, s->entity, s->field);
        if (!s->taken && r && r->kind == KIND_INT && r->i64 == 0 && r->step == 0) take(s, now);
        if (!lost(s) && !(r && r->kind == KIND_BLANK)) {
            s->due = now + s->interval;
            return;
        }
        int64_t newest = s->nsamples ? s->samples[s->nsamples - 1].ts : 0;
        if (s->due <= newest) s->due = newest + s->interval;
    }
    if (s->due > now + 2 * s->interval) s->due = now; /* the clock was set back */
    if (forced && (!s->last || now - s->last >= s->interval)) s->due = now;
    if (s->due > now) return;
    int64_t behind = (now - s->due) / s->interval;
    int64_t most = s->keep_samples > 0 ? s->keep_samples : 1000;
    int64_t from = behind < most ? 0 : behind - most + 1;
    for (int64_t i = from; i <= behind; i++) take(s, s->due + i * s->interval);
    s->due += (behind + 1) * s->interval;
}

static void release_watch(struct watch *w) {
    for (int e = 0; e < w->group.n; e++)
        for (int f = 0; f < w->fields.n; f++) {
            struct series *s =
                series_of((int)w->group.members[e].entityGroupId, w->group.members[e].entityId, w->fields.ids[f], 0);
            if (s && s->watchers) s->watchers--;
        }
    w->used = 0;
    count("open.watches", -1);
}

static void release_group(struct group *g) {
    if (g->health) count("open.health", -1);
    g->used = 0;
    count("open.groups", -1);
}

static void release_owner(dcgmHandle_t owner) {
    for (int i = 0; i < MAX_WATCHES; i++)
        if (watches[i].used && watches[i].owner == owner) release_watch(&watches[i]);
    for (int i = 0; i < MAX_GROUPS; i++) {
        if (groups[i].used && groups[i].owner == owner) release_group(&groups[i]);
        if (field_groups[i].used && field_groups[i].owner == owner)
            field_groups[i].used = 0, count("open.fieldgroups", -1);
    }
}

/* The finding for each XID, which the engine reports until it restarts (DcgmHealthWatch.cpp, BuildXidMappings). */
static const struct {
    int64_t xid;
    unsigned system, result, code;
} xid_findings[] = {
    {31, 0x10, 10, 101},        {32, 0x10, 10, 101},        {43, 0x10, 10, 101},         {63, 0x10, 10, 6},
    {64, 0x10, 20, 80},         {48, 0xffffffff, 20, 101},  {74, 0xffffffff, 20, 101},   {79, 0xffffffff, 20, 120},
    {94, 0xffffffff, 10, 131},  {95, 0xffffffff, 20, 81},   {119, 0xffffffff, 20, 101},  {120, 0xffffffff, 20, 101},
    {121, 0x2, 10, 101},        {140, 0xffffffff, 20, 101},
};

#define XID_FINDINGS (sizeof xid_findings / sizeof *xid_findings)

/* State of the health module, indexed by GPU id: which of xid_findings' XIDs occurred, and the violation counters of the
 * last minute. */
static unsigned char had_xid[MAX_GPUS][XID_FINDINGS];
static struct series violations[MAX_GPUS][2];

static void remember_xid(unsigned gpu, int64_t xid) {
    for (size_t i = 0; gpu < MAX_GPUS && i < XID_FINDINGS; i++)
        if (xid_findings[i].xid == xid) had_xid[gpu][i] = 1;
}

/* Reports whether a violation counter of a GPU grew within the last minute: power (0) or heat (1). */
static int violated(unsigned gpu, int which) {
    if (gpu >= MAX_GPUS) return 0;
    struct series *s = &violations[gpu][which];
    int64_t now = world_now(), minute = 60000000;
    if (!s->watchers)
        *s = (struct series){.group = DCGM_FE_GPU, .entity = gpu, .field = which ? 241 : 240, .watchers = 1, .interval = 20000,
                             .keep_age = minute, .due = now, .generation = -1};
    advance(s, now, 0);
    int64_t first = DCGM_INT64_BLANK;
    for (int i = 0; i < s->nsamples; i++) {
        struct sample *x = &s->samples[i];
        if (x->ts < now - minute || x->type != 'i' || x->i64 >= DCGM_INT64_BLANK) continue;
        if (first == DCGM_INT64_BLANK) first = x->i64;
        if (x->i64 != first) return 1;
    }
    return 0;
}

static void forget_health(void) {
    memset(had_xid, 0, sizeof had_xid);
    for (int i = 0; i < MAX_GPUS; i++)
        for (int k = 0; k < 2; k++) free(violations[i][k].block);
    memset(violations, 0, sizeof violations);
}

static void forget_samples(void) {
    forget_health();
    for (int i = 0; i < BUCKETS; i++)
        while (table[i]) {
            struct series *s = table[i];
            table[i] = s->next;
            free(s->block);
            free(s);
        }
}

static struct connection *connection(dcgmHandle_t handle) {
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        if (connections[i].used && connections[i].handle == handle) return &connections[i];
    return NULL;
}

/* Stores an event. A backdated event is inserted in the order of the dates. */
static void happen(const struct event *e, int group, unsigned entity) {
    if (e->field == 230 && group == DCGM_FE_GPU) remember_xid(entity, e->value);
    struct series *s = find_series(group, entity, e->field, 0);
    if (!s || !s->watchers) return;
    struct sample x = {.ts = world_now() - e->back, .type = 'i', .i64 = e->value};
    /* Events at the same time get different timestamps, unless the clock was set back. */
    if (!e->back && s->nsamples && x.ts <= s->samples[s->nsamples - 1].ts && x.ts > s->samples[s->nsamples - 1].ts - 1000000)
        x.ts = s->samples[s->nsamples - 1].ts + 1;
    push(s, &x);
    for (int i = s->nsamples - 1; e->back && i > 0 && s->samples[i - 1].ts > x.ts; i--)
        s->samples[i] = s->samples[i - 1], s->samples[i - 1] = x;
}

/* Drops the watches and samples of detached GPUs. They stay dropped when the GPU is attached again. */
static void forget_detached(void) {
    for (int i = 0; i < BUCKETS; i++)
        for (struct series *s = table[i]; s; s = s->next) {
            struct gpu *g = gpu_of(s->group, s->entity);
            if (g && g->status == DcgmEntityStatusDetached) s->watchers = 0, s->nsamples = 0;
        }
}

static void refresh(void) {
    if (!world_refresh()) return;
    forget_detached();
    if (world.boot != boot) {
        /* The engine was restarted and has lost its state. */
        boot = world.boot;
        for (int i = 0; i < MAX_CONNECTIONS; i++)
            if (connections[i].used) release_owner(connections[i].handle);
        release_owner(EMBEDDED);
        forget_samples();
        last_event = 0;
    }
    for (int i = 0; i < world.nevents; i++) {
        struct event *e = &world.events[i];
        if (e->seq <= last_event) continue;
        last_event = e->seq;
        if (e->group != DCGM_FE_GPU) {
            happen(e, e->group, (unsigned)e->entity);
            continue;
        }
        for (int g = 0; g < world.ngpus; g++)
            if (e->entity == ANY || (unsigned)e->entity == world.gpus[g].id) happen(e, DCGM_FE_GPU, world.gpus[g].id);
    }
}

/* Enters a call: counts it, reads the script, and applies the failures that it
 * has for the function. Returns with the mutex held. */
static dcgmReturn_t enter(const char *function) {
    char name[64];
    snprintf(name, sizeof name, "calls.%s", function);
    count(name, 1);
    count("cost.microseconds", COST_OTHER_US);
    pthread_mutex_lock(&mutex);
    refresh();
    for (int waiting = 0;;) {
        int blocked = 0;
        for (int i = 0; i < world.nfails; i++) {
            struct fail *f = &world.fails[i];
            if (strcmp(f->function, function) && strcmp(f->function, "*")) continue;
            if (f->block) {
                blocked = 1;
                continue;
            }
            if (f->times == 0) continue;
            if (f->after > 0) {
                f->after--;
                continue;
            }
            if (f->times > 0) f->times--;
            if (waiting) count("blocked", -1);
            return (dcgmReturn_t)f->code;
        }
        if (blocked != waiting) count("blocked", blocked ? 1 : -1);
        if (!(waiting = blocked)) return DCGM_ST_OK;
        pthread_mutex_unlock(&mutex);
        usleep(1000);
        pthread_mutex_lock(&mutex);
        refresh();
    }
}

/* Waits in a call without blocking other calls. */
static void hold(int64_t us) {
    if (us <= 0) return;
    count("held", 1);
    pthread_mutex_unlock(&mutex);
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    int64_t ns = end.tv_nsec + us * 1000;
    end.tv_sec += ns / 1000000000;
    end.tv_nsec = ns % 1000000000;
    /* Go's runtime interrupts sleeps with signals. */
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR) continue;
    pthread_mutex_lock(&mutex);
    count("held", -1);
}

/* Enters a call on a connection. */
static dcgmReturn_t enter_on(const char *function, dcgmHandle_t handle) {
    dcgmReturn_t st = enter(function);
    if (st != DCGM_ST_OK) return st;
    if (!initialized) return DCGM_ST_UNINITIALIZED;
    if (handle == EMBEDDED) return embedded_started && !world.down ? DCGM_ST_OK : DCGM_ST_CONNECTION_NOT_VALID;
    struct connection *c = connection(handle);
    return c && c->boot == world.boot && !world.down ? DCGM_ST_OK : DCGM_ST_CONNECTION_NOT_VALID;
}

static dcgmReturn_t leave(dcgmReturn_t st) {
    pthread_mutex_unlock(&mutex);
    return st;
}

#define ENTER(function, handle)                       \
    dcgmReturn_t st = enter_on(function, handle);     \
    if (st != DCGM_ST_OK) return leave(st)

/* ---- life ---- */

dcgmReturn_t dcgmInit(void) {
    dcgmReturn_t st = enter("dcgmInit");
    if (st != DCGM_ST_OK) return leave(st);
    if (!initialized) count("open.init", 1);
    initialized = 1;
    const char *level = getenv("__DCGM_DBG_LVL"), *file = getenv("__DCGM_DBG_FILE");
    if (level && file && !strcmp(file, "-")) {
        char name[32];
        snprintf(name, sizeof name, "log.%s", level);
        count(name, 1);
    }
    return leave(DCGM_ST_OK);
}

static void stop_embedded(void) {
    if (!embedded_started) return;
    embedded_started = 0;
    count("open.embedded", -1);
    release_owner(EMBEDDED);
    forget_samples();
}

static void drop(struct connection *c) {
    release_owner(c->handle);
    c->used = 0;
    count("open.connections", -1);
}

dcgmReturn_t dcgmShutdown(void) {
    dcgmReturn_t st = enter("dcgmShutdown");
    if (st != DCGM_ST_OK) return leave(st);
    if (!initialized) return leave(DCGM_ST_UNINITIALIZED);
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        if (connections[i].used) drop(&connections[i]);
    stop_embedded();
    initialized = 0;
    count("open.init", -1);
    return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmStartEmbedded(dcgmOperationMode_t mode, dcgmHandle_t *handle) {
    (void)mode;
    dcgmReturn_t st = enter("dcgmStartEmbedded");
    if (st != DCGM_ST_OK) return leave(st);
    if (!initialized) return leave(DCGM_ST_UNINITIALIZED);
    if (!embedded_started) count("open.embedded", 1);
    embedded_started = 1;
    const char *home = getenv("DCGM_HOME_DIR");
    if (home && chdir(home) != 0) return leave(DCGM_ST_GENERIC_ERROR);
    *handle = EMBEDDED;
    return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmStopEmbedded(dcgmHandle_t handle) {
    dcgmReturn_t st = enter("dcgmStopEmbedded");
    if (st != DCGM_ST_OK) return leave(st);
    if (handle != EMBEDDED) return leave(DCGM_ST_BADPARAM);
    if (!embedded_started) return leave(DCGM_ST_UNINITIALIZED);
    stop_embedded();
    return leave(DCGM_ST_OK);
}

static dcgmReturn_t connect_to(const char *function, const char *address, dcgmHandle_t *handle) {
    dcgmReturn_t st = enter(function);
    if (st != DCGM_ST_OK) return leave(st);
    note_address(address);
    if (!initialized) return leave(DCGM_ST_UNINITIALIZED);
    if (world.down) {
        hold(world.connect_us);
        return leave(DCGM_ST_CONNECTION_NOT_VALID);
    }
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        if (!connections[i].used) {
            connections[i] = (struct connection){1, world.boot, next_handle++};
            *handle = connections[i].handle;
            count("open.connections", 1);
            return leave(DCGM_ST_OK);
        }
    return leave(DCGM_ST_MAX_LIMIT);
}

dcgmReturn_t dcgmConnect_v2(const char *address, dcgmConnectV2Params_t *params, dcgmHandle_t *handle) {
    if (!params || params->version != dcgmConnectV2Params_version2) return DCGM_ST_VER_MISMATCH;
    char text[512];
    snprintf(text, sizeof text, "%s%s", params->addressIsUnixSocket ? "unix socket " : "", address);
    return connect_to("dcgmConnect_v2", text, handle);
}

dcgmReturn_t dcgmConnect_v3(const char *address, dcgmConnectV3Params_t *params, dcgmHandle_t *handle) {
    if (!params || params->version != dcgmConnectV3Params_version1) return DCGM_ST_VER_MISMATCH;
    return connect_to("dcgmConnect_v3", address, handle);
}

dcgmReturn_t dcgmDisconnect(dcgmHandle_t handle) {
    dcgmReturn_t st = enter("dcgmDisconnect");
    if (st != DCGM_ST_OK) return leave(st);
    if (!initialized) return leave(DCGM_ST_UNINITIALIZED);
    struct connection *c = connection(handle);
    if (!c) return leave(DCGM_ST_BADPARAM);
    drop(c);
    return leave(DCGM_ST_OK);
}

/* ---- versions and discovery ---- */

static dcgmReturn_t write_version(dcgmVersionInfo_t *info, const char *version) {
    if (info->version != dcgmVersionInfo_version2) return DCGM_ST_VER_MISMATCH;
    snprintf(info->rawBuildInfoString, sizeof info->rawBuildInfoString,
             "arch:x86_64;buildid:17;commit:none;version:%s;buildtype:Release", version);
    return DCGM_ST_OK;
}

dcgmReturn_t dcgmVersionInfo(dcgmVersionInfo_t *info) {
    dcgmReturn_t st = enter("dcgmVersionInfo");
    return leave(st != DCGM_ST_OK ? st : write_version(info, world.library));
}

dcgmReturn_t dcgmHostengineVersionInfo(dcgmHandle_t handle, dcgmVersionInfo_t *info) {
    ENTER("dcgmHostengineVersionInfo", handle);
    return leave(write_version(info, world.engine));
}

dcgmReturn_t dcgmGetAllDevices(dcgmHandle_t handle, unsigned ids[DCGM_MAX_NUM_DEVICES], int *n) {
    ENTER("dcgmGetAllDevices", handle);
    for (*n = 0; *n < world.ngpus; ++*n) ids[*n] = world.gpus[*n].id;
    return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetAllSupportedDevices(dcgmHandle_t handle, unsigned ids[DCGM_MAX_NUM_DEVICES], int *n) {
    ENTER("dcgmGetAllSupportedDevices", handle);
    *n = 0;
    for (int i = 0; i < world.ngpus; i++)
        if (world.gpus[i].status == DcgmEntityStatusOk) ids[(*n)++] = world.gpus[i].id;
    return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetGpuStatus(dcgmHandle_t handle, unsigned id, DcgmEntityStatus_t *status) {
    ENTER("dcgmGetGpuStatus", handle);
    struct gpu *g = world_gpu(id);
    if (!g) return leave(DCGM_ST_BADPARAM);
    *status = g->status;
    return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetDeviceAttributes(dcgmHandle_t handle, unsigned id, dcgmDeviceAttributes_t *a) {
    ENTER("dcgmGetDeviceAttributes", handle);
    if (a->version != dcgmDeviceAttributes_version3) return leave(DCGM_ST_VER_MISMATCH);
    struct gpu *g = world_gpu(id);
    if (!g) return leave(DCGM_ST_BADPARAM);
    unsigned version = a->version;
    memset(a, 0, sizeof *a);
    a->version = version;
    snprintf(a->identifiers.deviceName, sizeof a->identifiers.deviceName, "%s", g->name);
    snprintf(a->identifiers.pciBusId, sizeof a->identifiers.pciBusId, "%s", g->bus);
    snprintf(a->identifiers.uuid, sizeof a->identifiers.uuid, "%s", g->uuid);
    snprintf(a->identifiers.driverVersion, sizeof a->identifiers.driverVersion, "%s", world.driver);
    return leave(DCGM_ST_OK);
}

/* DCGM does not support this call on a node with a single GPU. */
dcgmReturn_t dcgmGetDeviceTopology(dcgmHandle_t handle, unsigned id, dcgmDeviceTopology_t *t) {
    ENTER("dcgmGetDeviceTopology", handle);
    dcgmDeviceTopology_v1 *old = (dcgmDeviceTopology_v1 *)t;
    int is_old = t->version == dcgmDeviceTopology_version1;
    if (!is_old && (world.old || t->version != dcgmDeviceTopology_version2)) return leave(DCGM_ST_VER_MISMATCH);
    struct gpu *g = world_gpu(id);
    if (!g) return leave(DCGM_ST_BADPARAM);
    if (world.ngpus < 2) return leave(DCGM_ST_NOT_SUPPORTED);
    for (int i = 0; i < DCGM_AFFINITY_BITMASK_ARRAY_SIZE; i++) t->cpuAffinityMask[i] = g->cpus[i];
    unsigned n = 0;
    for (int i = 0; i < world.npaths; i++) {
        struct path *p = &world.paths[i];
        if (p->a != id && p->b != id) continue;
        unsigned other = p->a == id ? p->b : p->a;
        if (is_old) old->gpuPaths[n].gpuId = other, old->gpuPaths[n].path = (dcgmGpuTopologyLevel_v1_t)p->levels;
        else t->gpuPaths[n].gpuId = other, t->gpuPaths[n].path = (dcgmGpuTopologyLevel_t)p->levels;
        n++;
    }
    t->numGpus = n;
    return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetNvLinkLinkStatus(dcgmHandle_t handle, dcgmNvLinkStatus_v5 *status) {
    ENTER("dcgmGetNvLinkLinkStatus", handle);
    dcgmNvLinkStatus_v4 *old = (dcgmNvLinkStatus_v4 *)status;
    int is_old = status->version == dcgmNvLinkStatus_version4;
    if (!is_old && (world.old || status->version != dcgmNvLinkStatus_version5)) return leave(DCGM_ST_VER_MISMATCH);
    if (world.without & 1u << DCGM_FE_LINK) return leave(DCGM_ST_MODULE_NOT_LOADED);
    for (int i = 0; i < world.ngpus; i++)
        if (is_old) {
            old->gpus[i].entityId = world.gpus[i].id;
            memcpy(old->gpus[i].linkState, world.gpus[i].links, sizeof old->gpus[i].linkState);
        } else {
            status->gpus[i].entityId = world.gpus[i].id;
            memcpy(status->gpus[i].linkState, world.gpus[i].links, sizeof status->gpus[i].linkState);
        }
    status->numGpus = (unsigned)world.ngpus;
    dcgmNvLinkNvSwitchLinkStatus_t *switches = is_old ? old->nvSwitches : status->nvSwitches;
    for (int i = 0; i < world.nswitches; i++) {
        switches[i].entityId = world.switches[i].id;
        memcpy(switches[i].linkState, world.switches[i].links, sizeof switches[i].linkState);
    }
    *(is_old ? &old->numNvSwitches : &status->numNvSwitches) = (unsigned)world.nswitches;
    return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetCpuHierarchy(dcgmHandle_t handle, dcgmCpuHierarchy_v1 *h) {
    ENTER("dcgmGetCpuHierarchy", handle);
    if (h->version != dcgmCpuHierarchy_version1) return leave(DCGM_ST_VER_MISMATCH);
    if (world.without & 1u << DCGM_FE_CPU) return leave(DCGM_ST_MODULE_NOT_LOADED);
    for (int i = 0; i < world.ncpus; i++) {
        h->cpus[i].cpuId = world.cpus[i].id;
        memcpy(h->cpus[i].ownedCores.bitmask, world.cpus[i].cores, sizeof world.cpus[i].cores);
    }
    h->numCpus = (unsigned)world.ncpus;
    return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetCpuHierarchy_v2(dcgmHandle_t handle, dcgmCpuHierarchy_v2 *h) {
    ENTER("dcgmGetCpuHierarchy_v2", handle);
    if (h->version != dcgmCpuHierarchy_version2 || world.old) return leave(DCGM_ST_VER_MISMATCH);
    if (world.without & 1u << DCGM_FE_CPU) return leave(DCGM_ST_MODULE_NOT_LOADED);
    for (int i = 0; i < world.ncpus; i++) {
        h->cpus[i].cpuId = world.cpus[i].id;
        memcpy(h->cpus[i].ownedCores.bitmask, world.cpus[i].cores, sizeof world.cpus[i].cores);
        memcpy(h->cpus[i].serial, world.cpus[i].serial, sizeof world.cpus[i].serial);
    }
    h->numCpus = (unsigned)world.ncpus;
    return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetEntityGroupEntities(dcgmHandle_t handle, dcgm_field_entity_group_t group, dcgm_field_eid_t *ids,
                                        int *n, unsigned flags) {
    (void)flags;
    ENTER("dcgmGetEntityGroupEntities", handle);
    int max = *n;
    *n = 0;
    if (world.without & 1u << group) return leave(DCGM_ST_MODULE_NOT_LOADED);
    if (group == DCGM_FE_SWITCH)
        for (int i = 0; i < world.nswitches && *n < max; i++) ids[(*n)++] = world.switches[i].id;
    if (group == DCGM_FE_CONNECTX)
        for (int i = 0; i < world.ncards && *n < max; i++) ids[(*n)++] = world.cards[i];
    if (group == DCGM_FE_GPU)
        for (int i = 0; i < world.ngpus && *n < max; i++) ids[(*n)++] = world.gpus[i].id;
    for (int i = 0; i < world.ninstances && *n < max; i++)
        if (world.instances[i].group == group) ids[(*n)++] = world.instances[i].id;
    return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetGpuInstanceHierarchy(dcgmHandle_t handle, dcgmMigHierarchy_v2 *h) {
    ENTER("dcgmGetGpuInstanceHierarchy", handle);
    if (h->version != dcgmMigHierarchy_version2) return leave(DCGM_ST_VER_MISMATCH);
    h->count = 0;
    for (int i = 0; i < world.ninstances; i++) {
        struct instance *x = &world.instances[i];
        struct gpu *g = world_gpu(x->gpu);
        dcgmMigHierarchyInfo_v2 *e = &h->entityList[h->count++];
        memset(e, 0, sizeof *e);
        e->entity.entityGroupId = x->group;
        e->entity.entityId = x->id;
        e->parent.entityGroupId = x->group == DCGM_FE_GPU_I ? DCGM_FE_GPU : DCGM_FE_GPU_I;
        e->parent.entityId = x->parent;
        snprintf(e->info.gpuUuid, sizeof e->info.gpuUuid, "%s", g ? g->uuid : "");
        e->info.nvmlGpuIndex = g ? g->index : 0;
        e->info.nvmlInstanceId = x->nvml;
        e->info.nvmlComputeInstanceId = x->nvml_compute;
        e->info.nvmlMigProfileId = 19;
        e->info.nvmlProfileSlices = (unsigned)atoi(x->profile);
    }
    return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmProfGetSupportedMetricGroups(dcgmHandle_t handle, dcgmProfGetMetricGroups_t *m) {
    ENTER("dcgmProfGetSupportedMetricGroups", handle);
    if (m->version != dcgmProfGetMetricGroups_version3) return leave(DCGM_ST_VER_MISMATCH);
    struct gpu *g = world_gpu(m->gpuId);
    if (!g) return leave(DCGM_ST_BADPARAM);
    if (g->status == DcgmEntityStatusLost) return leave(DCGM_ST_GPU_IS_LOST);
    if (g->prof_error) return leave((dcgmReturn_t)g->prof_error);
    m->numMetricGroups = 0;
    for (int i = 0; i < g->nprof; i++) {
        if (i % DCGM_PROF_MAX_FIELD_IDS_PER_GROUP_V2 == 0) {
            m->metricGroups[m->numMetricGroups].majorId = (unsigned short)m->numMetricGroups;
            m->metricGroups[m->numMetricGroups].minorId = 0;
            m->metricGroups[m->numMetricGroups++].numFieldIds = 0;
        }
        dcgmProfMetricGroupInfo_v2 *p = &m->metricGroups[m->numMetricGroups - 1];
        p->fieldIds[p->numFieldIds++] = (unsigned short)g->prof[i];
    }
    return leave(DCGM_ST_OK);
}

/* ---- groups ---- */

static struct group *find_group(dcgmGpuGrp_t id) {
    return id >= 1 && id <= MAX_GROUPS && groups[id - 1].used ? &groups[id - 1] : NULL;
}

static struct field_group *find_fields(dcgmFieldGrp_t id) {
    return id >= 1 && id <= MAX_GROUPS && field_groups[id - 1].used ? &field_groups[id - 1] : NULL;
}

dcgmReturn_t dcgmGroupCreate(dcgmHandle_t handle, dcgmGroupType_t type, const char *name, dcgmGpuGrp_t *id) {
    ENTER("dcgmGroupCreate", handle);
    if (type != DCGM_GROUP_EMPTY || !name || !*name) return leave(DCGM_ST_BADPARAM);
    for (int i = 0; i < MAX_GROUPS && i < world.max_groups; i++)
        if (!groups[i].used) {
            memset(&groups[i], 0, sizeof groups[i]);
            groups[i].used = 1;
            groups[i].owner = handle;
            snprintf(groups[i].name, sizeof groups[i].name, "%s", name);
            *id = (dcgmGpuGrp_t)i + 1;
            count("open.groups", 1);
            return leave(DCGM_ST_OK);
        }
    return leave(DCGM_ST_MAX_LIMIT);
}

dcgmReturn_t dcgmGroupDestroy(dcgmHandle_t handle, dcgmGpuGrp_t id) {
    ENTER("dcgmGroupDestroy", handle);
    struct group *g = find_group(id);
    if (!g) return leave(DCGM_ST_NOT_CONFIGURED);
    release_group(g);
    return leave(DCGM_ST_OK);
}

static dcgmReturn_t add_entity(dcgmGpuGrp_t id, dcgm_field_entity_group_t group, dcgm_field_eid_t entity) {
    struct group *g = find_group(id);
    if (!g) return DCGM_ST_NOT_CONFIGURED;
    if (g->n == DCGM_GROUP_MAX_ENTITIES_V2) return DCGM_ST_MAX_LIMIT;
    if (!world_has(group, entity)) return DCGM_ST_BADPARAM;
    if (lost_entity((int)group, entity)) return DCGM_ST_GPU_IS_LOST;
    struct gpu *whole = group == DCGM_FE_GPU ? world_gpu(entity) : NULL;
    if (whole && whole->status != DcgmEntityStatusOk)
        return whole->status == DcgmEntityStatusUnsupported ? DCGM_ST_GPU_NOT_SUPPORTED : DCGM_ST_BADPARAM;
    for (int i = 0; i < g->n; i++)
        if (g->members[i].entityGroupId == group && g->members[i].entityId == entity) return DCGM_ST_BADPARAM;
    g->members[g->n].entityGroupId = group;
    g->members[g->n++].entityId = entity;
    return DCGM_ST_OK;
}

dcgmReturn_t dcgmGroupAddDevice(dcgmHandle_t handle, dcgmGpuGrp_t id, unsigned gpu) {
    ENTER("dcgmGroupAddDevice", handle);
    return leave(add_entity(id, DCGM_FE_GPU, gpu));
}

dcgmReturn_t dcgmGroupAddEntity(dcgmHandle_t handle, dcgmGpuGrp_t id, dcgm_field_entity_group_t group,
                                dcgm_field_eid_t entity) {
    ENTER("dcgmGroupAddEntity", handle);
    return leave(add_entity(id, group, entity));
}

dcgmReturn_t dcgmFieldGroupCreate(dcgmHandle_t handle, int n, const unsigned short *ids, const char *name,
                                  dcgmFieldGrp_t *id) {
    ENTER("dcgmFieldGroupCreate", handle);
    if (n < 1 || n >= DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP || !name || !*name) return leave(DCGM_ST_BADPARAM);
    for (int i = 0; i < n; i++)
        if (!world_known_field(ids[i])) return leave(DCGM_ST_UNKNOWN_FIELD);
    int slot = -1;
    for (int i = MAX_GROUPS - 1; i >= 0; i--) {
        if (!field_groups[i].used && i < world.max_groups) slot = i;
        else if (field_groups[i].used && !strcmp(field_groups[i].name, name)) return leave(DCGM_ST_DUPLICATE_KEY);
    }
    if (slot < 0) return leave(DCGM_ST_MAX_LIMIT);
    struct field_group *f = &field_groups[slot];
    f->used = 1;
    f->owner = handle;
    f->n = n;
    memcpy(f->ids, ids, (size_t)n * sizeof *ids);
    snprintf(f->name, sizeof f->name, "%s", name);
    *id = (dcgmFieldGrp_t)slot + 1;
    count("open.fieldgroups", 1);
    return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmFieldGroupDestroy(dcgmHandle_t handle, dcgmFieldGrp_t id) {
    ENTER("dcgmFieldGroupDestroy", handle);
    struct field_group *f = find_fields(id);
    if (!f) return leave(DCGM_ST_NO_DATA);
    f->used = 0;
    count("open.fieldgroups", -1);
    return leave(DCGM_ST_OK);
}

/* ---- watches ---- */

/* Returns an error if a member of the group lacks one of the fields, or if the
 * script rejects profiling fields. DCGM rejects the entire watch then. */
static dcgmReturn_t watchable(const struct group *g, const struct field_group *f) {
    for (int i = 0; i < f->n; i++) {
        int of_switches = f->ids[i] >= FIRST_SWITCH_FIELD && f->ids[i] <= LAST_SWITCH_FIELD;
        for (int e = 0; e < g->n; e++) {
            dcgm_link_t link = {.raw = g->members[e].entityId};
            if (g->members[e].entityGroupId == DCGM_FE_LINK && of_switches != (link.parsed.type == DCGM_FE_SWITCH))
                return DCGM_ST_BADPARAM;
        }
        if (f->ids[i] < FIRST_PROFILING_FIELD || f->ids[i] > LAST_PROFILING_FIELD) continue;
        if (world.profiler) return (dcgmReturn_t)world.profiler;
        for (int e = 0; e < g->n; e++) {
            unsigned id = g->members[e].entityId;
            struct instance *x = world_instance(g->members[e].entityGroupId, id);
            struct gpu *gpu = world_gpu(x ? x->gpu : id);
            int has = 0;
            for (int p = 0; gpu && p < gpu->nprof; p++) has |= gpu->prof[p] == f->ids[i];
            if (!has) return g->n > 1 ? DCGM_ST_GROUP_INCOMPATIBLE : DCGM_ST_PROFILING_NOT_SUPPORTED;
        }
    }
    return DCGM_ST_OK;
}

dcgmReturn_t dcgmWatchFields(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields, long long every,
                             double keep_age, int keep_samples) {
    ENTER("dcgmWatchFields", handle);
    struct group *g = find_group(group);
    struct field_group *f = find_fields(fields);
    if (!g || !f) return leave(DCGM_ST_NOT_CONFIGURED);
    if (every <= 0) return leave(DCGM_ST_BADPARAM);
    if ((st = watchable(g, f)) != DCGM_ST_OK) return leave(st);
    struct watch *w = NULL;
    for (int i = 0; i < MAX_WATCHES && !w; i++)
        if (!watches[i].used) w = &watches[i];
    if (!w) return leave(DCGM_ST_MAX_LIMIT);
    *w = (struct watch){1, handle, group, fields, *g, *f};
    count("open.watches", 1);
    if (keep_age == 0 && keep_samples == 0) count("unbounded.watches", 1);
    for (int e = 0; e < g->n; e++)
        for (int i = 0; i < f->n; i++) {
            struct series *s = series_of((int)g->members[e].entityGroupId, g->members[e].entityId, f->ids[i], 1);
            long long requested = every;
            int inforom = f->ids[i] == DCGM_FI_DEV_INFOROM_CHECKSUM || f->ids[i] == DCGM_FI_DEV_INFOROM_VALID;
            if (inforom && requested < INFOROM_PACE_US) requested = INFOROM_PACE_US;
            if (!s->watchers++) {
                s->interval = requested, s->keep_samples = keep_samples, s->keep_age = (int64_t)(keep_age * 1e6);
                s->due = world_now() + FIRST_SAMPLE_US;
                s->taken = 0;
                s->watched = world.generation;
            } else {
                if (requested < s->interval) s->interval = requested;
                if (keep_samples == 0 || (s->keep_samples && keep_samples > s->keep_samples))
                    s->keep_samples = keep_samples;
                if ((int64_t)(keep_age * 1e6) > s->keep_age) s->keep_age = (int64_t)(keep_age * 1e6);
            }
        }
    return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmUnwatchFields(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields) {
    ENTER("dcgmUnwatchFields", handle);
    struct field_group *f = find_fields(fields);
    struct group *g = find_group(group);
    if (!g || !f) return leave(DCGM_ST_NOT_CONFIGURED);
    for (int i = 0; i < MAX_WATCHES; i++)
        if (watches[i].used && watches[i].group_id == group && watches[i].fields_id == fields)
            release_watch(&watches[i]);
    /* DCGM looks for the watch of a node's field under the entity, where it does not find it. */
    for (int i = 0; i < f->n; i++)
        if (f->ids[i] < FIRST_DEVICE_FIELD) {
            count("log.unwatch", g->n);
            return leave(DCGM_ST_NOT_WATCHED);
        }
    return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmUpdateAllFields(dcgmHandle_t handle, int wait) {
    (void)wait;
    ENTER("dcgmUpdateAllFields", handle);
    int64_t now = world_now();
    for (int i = 0; i < BUCKETS; i++)
        for (struct series *s = table[i]; s; s = s->next) advance(s, now, 1);
    return leave(DCGM_ST_OK);
}

/* ---- health and peers ---- */

dcgmReturn_t dcgmHealthSet(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmHealthSystems_t systems) {
    ENTER("dcgmHealthSet", handle);
    struct group *g = find_group(group);
    if (!g) return leave(DCGM_ST_NOT_CONFIGURED);
    count("open.health", (systems != 0) - (g->health != 0));
    g->health = systems;
    return leave(DCGM_ST_OK);
}

/* Adds an incident if the group watches the system and the response has room. */
static void add_incident(dcgmHealthResponse_t *r, const struct group *g, dcgmGroupEntityPair_t at, unsigned system, unsigned result,
                         unsigned code) {
    if (!(g->health & system) || r->incidentCount >= DCGM_HEALTH_WATCH_MAX_INCIDENTS_V2) return;
    dcgmIncidentInfo_t *to = &r->incidents[r->incidentCount++];
    to->system = (dcgmHealthSystems_t)system;
    to->health = (dcgmHealthWatchResults_t)result;
    to->error.code = code;
    to->entityInfo = at;
}

dcgmReturn_t dcgmHealthCheck(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmHealthResponse_t *r) {
    ENTER("dcgmHealthCheck", handle);
    struct group *g = find_group(group);
    if (!g) return leave(DCGM_ST_NOT_CONFIGURED);
    if (r->version != dcgmHealthResponse_version5) return leave(DCGM_ST_VER_MISMATCH);
    r->incidentCount = 0;
    for (int i = 0; i < world.nincidents; i++) {
        struct incident *x = &world.incidents[i];
        dcgmGroupEntityPair_t at = {.entityGroupId = (dcgm_field_entity_group_t)x->group, .entityId = (dcgm_field_eid_t)x->entity};
        // The members of the group are checked. The node is checked if the group has a GPU (MonitorWatches in
        // DcgmHealthWatch.cpp).
        int judged = 0;
        for (int e = 0; e < g->n; e++)
            judged |= x->group == DCGM_FE_NONE ? g->members[e].entityGroupId == DCGM_FE_GPU
                                               : g->members[e].entityGroupId == at.entityGroupId && g->members[e].entityId == at.entityId;
        if (!judged) continue;
        add_incident(r, g, at, x->system, x->result, x->code);
    }
    for (int e = 0; e < g->n; e++) {
        dcgmGroupEntityPair_t at = g->members[e];
        if (at.entityGroupId != DCGM_FE_GPU || at.entityId >= MAX_GPUS) continue;
        for (size_t i = 0; i < XID_FINDINGS; i++)
            if (had_xid[at.entityId][i])
                add_incident(r, g, at, xid_findings[i].system, xid_findings[i].result, xid_findings[i].code);
        if (violated(at.entityId, 0)) add_incident(r, g, at, DCGM_HEALTH_WATCH_POWER, DCGM_HEALTH_RESULT_WARN, 12);
        if (violated(at.entityId, 1)) add_incident(r, g, at, DCGM_HEALTH_WATCH_THERMAL, DCGM_HEALTH_RESULT_WARN, 10);
    }
    return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetNvLinkP2PStatus(dcgmHandle_t handle, dcgmNvLinkP2PStatus_v1 *p) {
    ENTER("dcgmGetNvLinkP2PStatus", handle);
    if (p->version != dcgmNvLinkP2PStatus_version1) return leave(DCGM_ST_VER_MISMATCH);
    p->numGpus = (unsigned)world.ngpus;
    for (int i = 0; i < world.ngpus; i++) {
        p->gpus[i].entityId = world.gpus[i].id;
        for (int j = 0; j < world.ngpus; j++) {
            p->gpus[i].linkStatus[j] = i == j ? DcgmNvLinkP2pStatusOK : DcgmNvLinkP2pStatusNotSupported;
            for (int k = 0; k < world.npeers; k++)
                if (world.peers[k].from == world.gpus[i].id && world.peers[k].to == world.gpus[j].id)
                    p->gpus[i].linkStatus[j] = (dcgmNvLinkGpuP2PStatus_t)world.peers[k].state;
        }
    }
    return leave(DCGM_ST_OK);
}

/* ---- values ---- */

static void write_value(dcgmFieldValue_v1 *v, int field, const struct sample *x) {
    v->version = dcgmFieldValue_version1;
    v->fieldId = (unsigned short)field;
    v->fieldType = (unsigned short)x->type;
    v->status = x->status;
    v->ts = x->ts;
    if (x->type == 'd') v->value.dbl = x->dbl;
    else if (x->type == 's') memcpy(v->value.str, x->text, sizeof x->text);
    else v->value.i64 = x->i64;
}

static void latest(int group, unsigned entity, int field, dcgmFieldValue_v1 *v) {
    struct series *s = series_of(group, entity, field, 0);
    struct sample x = {.type = 'i', .status = DCGM_ST_NOT_WATCHED, .i64 = DCGM_INT64_BLANK};
    if (s) {
        advance(s, world_now(), 0);
        if (s->nsamples) x = s->samples[s->nsamples - 1];
        else if (s->watchers) x.status = DCGM_ST_NO_DATA;
    }
    write_value(v, field, &x);
}

/* Adds values to a reply that were not requested, as in the script. */
static void stray(dcgmFieldValueEntityEnumeration_f callback, void *data) {
    dcgmFieldValue_v1 v;
    for (int i = 0; i < world.nstrays; i++) {
        struct stray *x = &world.strays[i];
        struct sample s = {.ts = world_now(), .type = (char)x->type, .i64 = x->value};
        memset(&v, 0, sizeof v);
        write_value(&v, x->field, &s);
        v.fieldType = (unsigned short)x->type;
        if (x->type == 's') memset(&v.value, 'x', sizeof v.value); /* not terminated */
        callback((dcgm_field_entity_group_t)x->group, (dcgm_field_eid_t)x->entity, &v, 1, data);
    }
}

dcgmReturn_t dcgmGetLatestValues_v2(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields,
                                    dcgmFieldValueEntityEnumeration_f callback, void *data) {
    ENTER("dcgmGetLatestValues_v2", handle);
    struct group *g = find_group(group);
    struct field_group *f = find_fields(fields);
    if (!g || !f) return leave(DCGM_ST_NOT_CONFIGURED);
    count("cost.microseconds", COST_BATCH_US);
    int64_t slow = 0;
    for (int e = 0; e < g->n; e++) {
        struct gpu *gpu = gpu_of((int)g->members[e].entityGroupId, g->members[e].entityId);
        if (gpu && gpu->slow_us > slow) slow = gpu->slow_us;
    }
    hold(slow);
    dcgmFieldValue_v1 v;
    for (int e = 0; e < g->n; e++)
        for (int i = 0; i < f->n; i++) {
            latest((int)g->members[e].entityGroupId, g->members[e].entityId, f->ids[i], &v);
            int node = world.node && f->ids[i] < FIRST_DEVICE_FIELD;
            if (node && e > 0) continue;
            if (callback(node ? DCGM_FE_NONE : g->members[e].entityGroupId, node ? 0 : g->members[e].entityId, &v, 1, data))
                return leave(DCGM_ST_OK);
        }
    stray(callback, data);
    return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetValuesSince_v2(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields, long long since,
                                   long long *next, dcgmFieldValueEntityEnumeration_f callback, void *data) {
    ENTER("dcgmGetValuesSince_v2", handle);
    struct group *g = find_group(group);
    struct field_group *f = find_fields(fields);
    if (!g || !f) return leave(DCGM_ST_NOT_CONFIGURED);
    int64_t now = world_now(), end = now;
    count("cost.microseconds", COST_SINCE_US * g->n);
    dcgmFieldValue_v1 v;
    for (int e = 0; e < g->n; e++)
        for (int i = 0; i < f->n; i++) {
            struct series *s = series_of((int)g->members[e].entityGroupId, g->members[e].entityId, f->ids[i], 0);
            if (s) advance(s, now, 0);
            int first = s ? s->nsamples : 0, sent = 0;
            while (first > 0 && s->samples[first - 1].ts >= since) first--;
            for (int k = first; s && k < s->nsamples; k++) {
                /* timestamps of simultaneous events lie in the future, a microsecond apart */
                if (s->samples[k].ts > end) end = s->samples[k].ts;
                write_value(&v, f->ids[i], &s->samples[k]);
                callback(g->members[e].entityGroupId, g->members[e].entityId, &v, 1, data);
                sent++;
            }
            if (!sent) { /* the placeholder of an empty series */
                struct sample x = {.type = 'i', .status = DCGM_ST_NO_DATA, .i64 = DCGM_INT64_BLANK};
                write_value(&v, f->ids[i], &x);
                callback(g->members[e].entityGroupId, g->members[e].entityId, &v, 1, data);
            }
        }
    stray(callback, data);
    *next = end + 1;
    return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmEntitiesGetLatestValues(dcgmHandle_t handle, dcgmGroupEntityPair_t entities[], unsigned n,
                                         unsigned short fields[], unsigned nfields, unsigned flags,
                                         dcgmFieldValue_v2 values[]) {
    ENTER("dcgmEntitiesGetLatestValues", handle);
    if (flags & DCGM_FV_FLAG_LIVE_DATA) count("live.reads", 1);
    dcgmFieldValue_v1 v;
    for (unsigned e = 0; e < n; e++)
        for (unsigned i = 0; i < nfields; i++) {
            latest((int)entities[e].entityGroupId, entities[e].entityId, fields[i], &v);
            dcgmFieldValue_v2 *to = &values[e * nfields + i];
            to->version = dcgmFieldValue_version2;
            to->entityGroupId = entities[e].entityGroupId;
            to->entityId = entities[e].entityId;
            to->fieldId = v.fieldId;
            to->fieldType = v.fieldType;
            to->status = v.status;
            to->ts = v.ts;
            memcpy(&to->value, &v.value, sizeof(struct sample));
        }
    return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetLatestValuesForFields(dcgmHandle_t handle, int gpu, unsigned short fields[], unsigned n,
                                          dcgmFieldValue_v1 values[]) {
    ENTER("dcgmGetLatestValuesForFields", handle);
    for (unsigned i = 0; i < n; i++) latest(DCGM_FE_GPU, (unsigned)gpu, fields[i], &values[i]);
    return leave(DCGM_ST_OK);
}

const char *errorString(dcgmReturn_t result) {
    static __thread char text[64];
    switch (result) {
    case DCGM_ST_OK: return "Success";
    case DCGM_ST_INIT_ERROR: return "DCGM initialization error";
    case DCGM_ST_TIMEOUT: return "Timeout";
    case DCGM_ST_VER_MISMATCH: return "API version mismatch";
    case DCGM_ST_CONNECTION_NOT_VALID: return "Host engine connection invalid/disconnected";
    default: snprintf(text, sizeof text, "Error %d", (int)result); return text;
    }
}
