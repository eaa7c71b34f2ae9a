#include "world.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "known_fields.h"

struct world world;

/* ---- script ---- */

static struct stat script_stat;

/* Splits a line in place into words separated by blanks. Part of a word may be
 * in double quotes. Returns the number of words. */
static int split(char *line, char *words[], int max) {
    int n = 0;
    char *in = line, *out;
    while (n < max) {
        while (*in == ' ' || *in == '\t' || *in == '\n' || *in == '\r') in++;
        if (*in == 0 || *in == '#') break;
        words[n++] = out = in;
        int quoted = 0;
        while (*in && (quoted || (*in != ' ' && *in != '\t' && *in != '\n' && *in != '\r'))) {
            if (*in == '"') quoted = !quoted;
            else *out++ = *in;
            in++;
        }
        if (*in) in++;
        *out = 0;
    }
    return n;
}

/* Returns the value of the word "key=value", or fallback. */
static const char *option(char *words[], int n, const char *key, const char *fallback) {
    size_t len = strlen(key);
    for (int i = 0; i < n; i++)
        if (!strncmp(words[i], key, len) && words[i][len] == '=') return words[i] + len + 1;
    return fallback;
}

static void copy(char *to, size_t size, const char *from) { snprintf(to, size, "%s", from); }

/* Returns the entity group named by the word before a colon. */
static int parse_group(const char *word) {
    static const struct {
        const char *word;
        int group;
    } groups[] = {
        {"gpu", DCGM_FE_GPU},       {"instance", DCGM_FE_GPU_I},  {"compute", DCGM_FE_GPU_CI},
        {"switch", DCGM_FE_SWITCH}, {"link", DCGM_FE_LINK},       {"cpu", DCGM_FE_CPU},
        {"core", DCGM_FE_CPU_CORE}, {"connectx", DCGM_FE_CONNECTX}, {"none", DCGM_FE_NONE},
    };
    size_t len = strcspn(word, ":");
    for (unsigned i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (strlen(groups[i].word) == len && !strncmp(groups[i].word, word, len)) return groups[i].group;
    return ANY;
}

/* Returns the entity id of the link "gpu:ID:INDEX" or "switch:ID:INDEX". */
static int parse_link(const char *word) {
    dcgm_link_t link = {.raw = 0};
    const char *id = strchr(word, ':'), *index = id ? strchr(id + 1, ':') : NULL;
    if (!index) return ANY;
    link.parsed.type = (dcgm_field_entity_group_t)parse_group(word);
    link.parsed.gpuId = (dcgm_field_eid_t)atoi(id + 1) & 0xff;
    link.parsed.index = (uint32_t)atoi(index + 1) & 0xffff;
    return (int)link.raw;
}

static void parse_target(const char *word, int *group, int *entity) {
    *group = parse_group(word);
    const char *id = strchr(word, ':');
    *entity = !id || id[1] == '*' ? ANY : *group == DCGM_FE_LINK ? parse_link(id + 1) : atoi(id + 1);
}

/* Sets the bits of a list such as "0-3,8". */
static void parse_bits(const char *list, uint64_t *words, int nwords) {
    for (const char *p = list; p && *p; p = strchr(p, ','), p = p ? p + 1 : p) {
        int first = atoi(p), last = first;
        const char *end = strchr(p, ','), *dash = strchr(p, '-');
        if (dash && (!end || dash < end)) last = atoi(dash + 1);
        for (int i = first; i <= last && i < nwords * 64; i++) words[i / 64] |= (uint64_t)1 << (i % 64);
    }
}

static void parse_switch(struct world *w, char *words[], int n) {
    if (w->nswitches == MAX_SWITCHES) return;
    struct nvswitch *s = &w->switches[w->nswitches++];
    s->id = (unsigned)atoi(words[1]);
    int links = atoi(option(words, n, "links", "0"));
    for (int i = 0; i < DCGM_NVLINK_MAX_LINKS_PER_NVSWITCH; i++)
        s->links[i] = i < links ? DcgmNvLinkLinkStateUp : DcgmNvLinkLinkStateDisabled;
}

static void parse_link_state(struct world *w, char *words[], int n) {
    dcgm_link_t link = {.raw = (dcgm_field_eid_t)parse_link(words[1])};
    const char *state = option(words, n, "state", "up");
    dcgmNvLinkLinkState_t to = !strcmp(state, "down")       ? DcgmNvLinkLinkStateDown
                               : !strcmp(state, "disabled") ? DcgmNvLinkLinkStateDisabled
                               : !strcmp(state, "none")     ? DcgmNvLinkLinkStateNotSupported
                                                            : DcgmNvLinkLinkStateUp;
    for (int i = 0; i < w->ngpus; i++)
        if (link.parsed.type == DCGM_FE_GPU && w->gpus[i].id == link.parsed.gpuId &&
            link.parsed.index < DCGM_NVLINK_MAX_LINKS_PER_GPU)
            w->gpus[i].links[link.parsed.index] = to;
    for (int i = 0; i < w->nswitches; i++)
        if (link.parsed.type == DCGM_FE_SWITCH && w->switches[i].id == link.parsed.switchId &&
            link.parsed.index < DCGM_NVLINK_MAX_LINKS_PER_NVSWITCH)
            w->switches[i].links[link.parsed.index] = to;
}

static void parse_cpu(struct world *w, char *words[], int n) {
    if (w->ncpus == MAX_CPUS) return;
    struct cpu *c = &w->cpus[w->ncpus++];
    c->id = (unsigned)atoi(words[1]);
    copy(c->serial, sizeof c->serial, option(words, n, "serial", ""));
    parse_bits(option(words, n, "cores", ""), c->cores, DCGM_CPU_CORE_BITMASK_COUNT_V1);
}

static void parse_path(struct world *w, char *words[], int n) {
    static const char *names[] = {"board", "pix", "pxb", "phb", "node", "sys"};
    if (n < 4 || w->npaths == MAX_PATHS) return;
    struct path *p = &w->paths[w->npaths++];
    p->a = (unsigned)atoi(words[1]), p->b = (unsigned)atoi(words[2]);
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(words[3], names[i])) p->levels = (uint64_t)1 << i;
    int links = atoi(option(words, n, "nvlinks", "0"));
    if (links > 0) p->levels |= (uint64_t)1 << (7 + links); /* DCGM_TOPOLOGY_NVLINK1 is 0x100 */
}

static void parse_fields(const char *word, int *first, int *last) {
    *first = atoi(word);
    const char *dash = strchr(word, '-');
    *last = dash ? atoi(dash + 1) : *first;
}

static void parse_gpu(struct world *w, char *words[], int n) {
    if (w->ngpus == MAX_GPUS) return;
    struct gpu *g = &w->gpus[w->ngpus++];
    g->id = (unsigned)atoi(words[1]);
    g->index = (unsigned)atoi(option(words, n, "index", words[1]));
    g->minor = (unsigned)atoi(option(words, n, "minor", words[1]));
    copy(g->uuid, sizeof g->uuid, option(words, n, "uuid", ""));
    copy(g->name, sizeof g->name, option(words, n, "name", ""));
    for (char *c = g->name; *c; c++)
        if (*c == '+') *c = ' ';
    copy(g->bus, sizeof g->bus, option(words, n, "bus", ""));
    g->slow_us = (int64_t)(atof(option(words, n, "slow", "0")) * 1e6);
    const char *status = option(words, n, "status", "ok");
    g->status = !strcmp(status, "lost")           ? DcgmEntityStatusLost
                : !strcmp(status, "unsupported")  ? DcgmEntityStatusUnsupported
                : !strcmp(status, "inaccessible") ? DcgmEntityStatusInaccessible
                : !strcmp(status, "detached")     ? DcgmEntityStatusDetached
                                                  : DcgmEntityStatusOk;
    for (int i = 0, links = atoi(option(words, n, "links", "0")); i < links && i < DCGM_NVLINK_MAX_LINKS_PER_GPU; i++)
        g->links[i] = DcgmNvLinkLinkStateUp;
    parse_bits(option(words, n, "cpus", ""), g->cpus, DCGM_AFFINITY_BITMASK_ARRAY_SIZE);
    const char *prof = option(words, n, "prof", "none");
    if (!strncmp(prof, "error:", 6)) g->prof_error = atoi(prof + 6);
    else if (!strcmp(prof, "none")) g->prof_error = DCGM_ST_PROFILING_NOT_SUPPORTED;
    else
        for (const char *p = prof; p && *p; p = strchr(p, ','), p = p ? p + 1 : p) {
            int first, last;
            parse_fields(p, &first, &last);
            for (int f = first; f <= last && g->nprof < 256; f++) g->prof[g->nprof++] = f;
        }
}

static void parse_instance(struct world *w, char *words[], int n, dcgm_field_entity_group_t group) {
    if (w->ninstances == MAX_INSTANCES) return;
    struct instance *x = &w->instances[w->ninstances++];
    x->group = group;
    x->id = (unsigned)atoi(words[1]);
    x->nvml = x->nvml_compute = (unsigned)-1;
    if (group == DCGM_FE_GPU_I) {
        x->gpu = x->parent = (unsigned)atoi(option(words, n, "gpu", "0"));
        x->nvml = (unsigned)atoi(option(words, n, "nvml", "0"));
    } else {
        x->parent = (unsigned)atoi(option(words, n, "instance", "0"));
        x->nvml_compute = (unsigned)atoi(option(words, n, "nvml", "0"));
        for (int i = 0; i < w->ninstances; i++)
            if (w->instances[i].group == DCGM_FE_GPU_I && w->instances[i].id == x->parent) {
                x->gpu = w->instances[i].gpu;
                x->nvml = w->instances[i].nvml;
            }
    }
    copy(x->profile, sizeof x->profile, option(words, n, "profile", ""));
    copy(x->uuid, sizeof x->uuid, option(words, n, "uuid", ""));
}

static void parse_value(struct world *w, char *words[], int n) {
    if (n < 4 || w->nrules == MAX_RULES) return;
    struct rule *r = &w->rules[w->nrules++];
    parse_target(words[1], &r->group, &r->entity);
    parse_fields(words[2], &r->first, &r->last);
    const char *kind = words[3], *arg = n > 4 ? words[4] : "0";
    const char *step = n > 5 ? words[5] : "0";
    r->status = atoi(option(words, n, "status", "0"));
    r->blank = 'i';
    if (!strcmp(kind, "int")) r->kind = KIND_INT, r->i64 = atoll(arg), r->step = atoll(step);
    else if (!strcmp(kind, "double")) r->kind = KIND_DOUBLE, r->dbl = atof(arg), r->dstep = atof(step);
    else if (!strcmp(kind, "stuck")) r->kind = KIND_STUCK, r->dbl = atof(arg);
    else if (!strcmp(kind, "zero")) r->kind = KIND_ZERO, r->dbl = atof(arg);
    else if (!strcmp(kind, "text")) r->kind = KIND_TEXT, copy(r->text, sizeof r->text, n > 4 ? arg : "");
    else {
        if (n > 4) r->blank = arg[0];
        r->kind = !strcmp(kind, "notfound")       ? KIND_NOT_FOUND
                  : !strcmp(kind, "unsupported")  ? KIND_UNSUPPORTED
                  : !strcmp(kind, "nopermission") ? KIND_NO_PERMISSION
                  : !strcmp(kind, "nodata")       ? KIND_NO_DATA
                  : !strcmp(kind, "stopped")      ? KIND_STOPPED
                                                  : KIND_BLANK;
    }
}

static void parse_line(struct world *w, char *line) {
    char *words[32];
    int n = split(line, words, 32);
    if (n == 0) return;
    const char *arg = n > 1 ? words[1] : "";
    if (!strcmp(words[0], "library")) copy(w->library, sizeof w->library, arg);
    else if (!strcmp(words[0], "engine")) copy(w->engine, sizeof w->engine, arg);
    else if (!strcmp(words[0], "driver")) copy(w->driver, sizeof w->driver, arg);
    else if (!strcmp(words[0], "nvml")) copy(w->nvml, sizeof w->nvml, arg);
    else if (!strcmp(words[0], "boot")) w->boot = atoi(arg);
    else if (!strcmp(words[0], "down")) w->down = 1;
    else if (!strcmp(words[0], "node")) w->node = 1;
    else if (!strcmp(words[0], "old")) w->old = 1;
    else if (!strcmp(words[0], "skew")) w->skew_us = (int64_t)(atof(arg) * 1e6);
    else if (!strcmp(words[0], "connects")) w->connect_us = (int64_t)(atof(arg) * 1e6);
    else if (!strcmp(words[0], "stray") && n > 5 && w->nstrays < 64)
        w->strays[w->nstrays++] = (struct stray){(int)strtol(arg, NULL, 0), (int)strtol(words[2], NULL, 0),
                                                 (int)strtol(words[3], NULL, 0), words[4][1] ? atoi(words[4]) : words[4][0],
                                                 atoll(words[5])};
    else if (!strcmp(words[0], "profiler")) w->profiler = atoi(arg);
    else if (!strcmp(words[0], "incident") && n > 4 && w->nincidents < 64) {
        struct incident *x = &w->incidents[w->nincidents++];
        parse_target(arg, &x->group, &x->entity);
        x->system = (unsigned)strtoul(words[2], NULL, 0), x->result = (unsigned)atoi(words[3]), x->code = (unsigned)atoi(words[4]);
    }
    else if (!strcmp(words[0], "peer") && n > 3 && w->npeers < 64)
        w->peers[w->npeers++] = (struct peer){(unsigned)atoi(arg), (unsigned)atoi(words[2]), (unsigned)atoi(words[3])};
    else if (!strcmp(words[0], "groups")) w->max_groups = atoi(arg);
    else if (!strcmp(words[0], "gpu") && n > 1) parse_gpu(w, words, n);
    else if (!strcmp(words[0], "instance") && n > 1) parse_instance(w, words, n, DCGM_FE_GPU_I);
    else if (!strcmp(words[0], "compute") && n > 1) parse_instance(w, words, n, DCGM_FE_GPU_CI);
    else if (!strcmp(words[0], "switch") && n > 1) parse_switch(w, words, n);
    else if (!strcmp(words[0], "link") && n > 1) parse_link_state(w, words, n);
    else if (!strcmp(words[0], "cpu") && n > 1) parse_cpu(w, words, n);
    else if (!strcmp(words[0], "connectx") && n > 1 && w->ncards < MAX_CARDS) w->cards[w->ncards++] = (unsigned)atoi(arg);
    else if (!strcmp(words[0], "path")) parse_path(w, words, n);
    else if (!strcmp(words[0], "without")) {
        for (int i = 1; i < n; i++) w->without |= 1u << (parse_group(words[i]) & 31);
    }
    else if (!strcmp(words[0], "value")) parse_value(w, words, n);
    else if (!strcmp(words[0], "unknown")) {
        for (int i = 1; i < n; i++) {
            int f = atoi(words[i]) & 0xffff;
            w->unknown[f / 8] |= (unsigned char)(1 << (f % 8));
        }
    } else if (!strcmp(words[0], "event") && n > 4 && w->nevents < MAX_EVENTS) {
        struct event *e = &w->events[w->nevents++];
        e->seq = atoll(words[1]);
        parse_target(words[2], &e->group, &e->entity);
        e->field = atoi(words[3]);
        e->value = atoll(words[4]);
        e->back = n > 5 ? (int64_t)(atof(words[5]) * 1e6) : 0;
    } else if ((!strcmp(words[0], "fail") || !strcmp(words[0], "block")) && n > 1 && w->nfails < MAX_FAILS) {
        struct fail *f = &w->fails[w->nfails++];
        copy(f->function, sizeof f->function, arg);
        f->block = words[0][0] == 'b';
        f->code = n > 2 ? atoi(words[2]) : 0;
        f->times = n > 3 ? atoi(words[3]) : -1;
        f->after = n > 4 ? atoi(words[4]) : 0;
    }
}

static struct world next_world;

int world_refresh(void) {
    const char *path = getenv("FAKEDCGM_SCRIPT");
    struct stat st;
    if (!path || stat(path, &st)) return 0;
    if (st.st_ino == script_stat.st_ino && st.st_size == script_stat.st_size &&
        st.st_mtim.tv_sec == script_stat.st_mtim.tv_sec && st.st_mtim.tv_nsec == script_stat.st_mtim.tv_nsec)
        return 0;
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    memset(&next_world, 0, sizeof next_world);
    next_world.generation = world.generation + 1;
    next_world.max_groups = DCGM_MAX_NUM_GROUPS;
    char line[1024];
    while (fgets(line, sizeof line, file)) parse_line(&next_world, line);
    fclose(file);
    script_stat = st;
    world = next_world;
    return 1;
}

struct gpu *world_gpu(unsigned id) {
    for (int i = 0; i < world.ngpus; i++)
        if (world.gpus[i].id == id) return &world.gpus[i];
    return NULL;
}

struct instance *world_instance(dcgm_field_entity_group_t group, unsigned id) {
    for (int i = 0; i < world.ninstances; i++)
        if (world.instances[i].group == group && world.instances[i].id == id) return &world.instances[i];
    return NULL;
}

int world_has(dcgm_field_entity_group_t group, unsigned id) {
    dcgm_link_t link = {.raw = id};
    struct gpu *g;
    switch (group) {
    case DCGM_FE_GPU: return world_gpu(id) != NULL;
    case DCGM_FE_SWITCH:
        for (int i = 0; i < world.nswitches; i++)
            if (world.switches[i].id == id) return 1;
        return 0;
    case DCGM_FE_LINK:
        if (link.parsed.type == DCGM_FE_SWITCH) return world_has(DCGM_FE_SWITCH, link.parsed.switchId);
        g = link.parsed.type == DCGM_FE_GPU ? world_gpu(link.parsed.gpuId) : NULL;
        return g && link.parsed.index < DCGM_NVLINK_MAX_LINKS_PER_GPU &&
               g->links[link.parsed.index] != DcgmNvLinkLinkStateNotSupported;
    case DCGM_FE_CPU:
        for (int i = 0; i < world.ncpus; i++)
            if (world.cpus[i].id == id) return 1;
        return 0;
    case DCGM_FE_CPU_CORE:
        for (int i = 0; i < world.ncpus; i++)
            if (id < DCGM_MAX_NUM_CPU_CORES && world.cpus[i].cores[id / 64] >> (id % 64) & 1) return 1;
        return 0;
    case DCGM_FE_CONNECTX:
        for (int i = 0; i < world.ncards; i++)
            if (world.cards[i] == id) return 1;
        return 0;
    default: return world_instance(group, id) != NULL;
    }
}

const struct rule *world_rule(int group, unsigned entity, int field) {
    for (int i = world.nrules - 1; i >= 0; i--) {
        const struct rule *r = &world.rules[i];
        if (field >= r->first && field <= r->last && (r->group == ANY || r->group == group) &&
            (r->entity == ANY || r->entity == (int)entity))
            return r;
    }
    return NULL;
}

int world_known_field(int field) {
    if (world.unknown[(field & 0xffff) / 8] & (1 << (field % 8))) return 0;
    for (unsigned i = 0; i < sizeof known_fields / sizeof known_fields[0]; i++)
        if (known_fields[i] == field) return 1;
    return 0;
}

int64_t world_now(void) {
    struct timeval tv;
    gettimeofday(&tv, NULL);
    return (int64_t)tv.tv_sec * 1000000 + tv.tv_usec + world.skew_us;
}

/* ---- counters ---- */

#define MAX_COUNTERS 96

struct counter {
    char name[56];
    int64_t value;
};

struct counters {
    struct counter list[MAX_COUNTERS];
    char address[512];
};

static struct counters *counters;

static struct counters *counter_file(void) {
    if (counters) return counters;
    const char *path = getenv("FAKEDCGM_COUNTERS");
    int fd = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
    if (fd >= 0 && !ftruncate(fd, sizeof(struct counters)))
        counters = mmap(NULL, sizeof(struct counters), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (!counters || counters == MAP_FAILED) {
        static struct counters own;
        counters = &own;
    }
    return counters;
}

void count(const char *name, int64_t delta) {
    struct counters *c = counter_file();
    for (int i = 0; i < MAX_COUNTERS; i++) {
        if (!c->list[i].name[0]) copy(c->list[i].name, sizeof c->list[i].name, name);
        if (!strcmp(c->list[i].name, name)) {
            __atomic_add_fetch(&c->list[i].value, delta, __ATOMIC_SEQ_CST);
            return;
        }
    }
}

void note_address(const char *address) {
    copy(counter_file()->address, sizeof counters->address, address);
}
