/*
 * tests/cuda/driver/core.c -- handles, the control table, what FAKE_CUDA_* variables say.
 */
#include "tests/cuda/driver/core.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/driver/api.h"
#include "tests/cuda/driver/fake.h"

enum { MAX_HANDLES = 1 << 16 };

state fake;
static struct {
    enum kind kind;
    void *object;
} handles[MAX_HANDLES];
static int n_handles;
static int free_handles[MAX_HANDLES], n_free;

/* Not addresses of anything: following one faults. */
cu_handle handle_new(enum kind kind, void *object)
{
    /* Oldest first, so that a dead handle stays dead for long. */
    int i;
    if (n_handles < MAX_HANDLES) {
        i = n_handles++;
    } else if (n_free) {
        i = free_handles[0];
        memmove(free_handles, free_handles + 1, (size_t)--n_free * sizeof *free_handles);
    } else {
        return NULL;
    }
    handles[i].kind = kind;
    handles[i].object = object;
    fake.alive[kind]++;
    return (cu_handle)((uintptr_t)0x100 + (uintptr_t)i * 16);
}

static int handle_index(cu_handle h)
{
    uintptr_t v = (uintptr_t)h;
    return v >= 0x100 && v % 16 == 0 && (v - 0x100) / 16 < (uintptr_t)n_handles
               ? (int)((v - 0x100) / 16)
               : -1;
}

void *handle_get(cu_handle h, enum kind kind)
{
    int i = handle_index(h);
    return i >= 0 && handles[i].kind == kind ? handles[i].object : NULL;
}

void handle_drop(cu_handle h)
{
    int i = handle_index(h);
    if (i >= 0 && handles[i].kind != NOTHING) {
        fake.alive[handles[i].kind]--;
        handles[i].kind = NOTHING;
        free_handles[n_free++] = i;
    }
}

uint64_t next_random(void)
{
    uint64_t z = (fake.random += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* -- the control table ------------------------------------------------------------------------------ */

/* What handles that are forgotten stand for: functions always are, the rest where giving it back was made to fail. */
static void drop_objects(void)
{
    for (int i = 0; i < n_handles; i++) {
        void *object = handles[i].object;
        if (handles[i].kind == EVENT) {
            record_unref(((event *)object)->last);
            free(object);
        } else if (handles[i].kind == FUNCTION) {
            free(object);
        } else if (handles[i].kind == MODULE) {
            image_free(object);
        } else if (handles[i].kind == GRAPH || handles[i].kind == EXEC) {
            graph_free(object);
        }
    }
    n_handles = n_free = 0;
}

static void reset(int devices, size_t memory)
{
    api_lock();
    run_all(-1);
    race_reset();
    memory_reset();
    int order = fake.order;
    bool guard = fake.guard, vm = fake.vm;
    uint64_t random = fake.random;
    int version = fake.version, arch = fake.arch;
    size_t had = fake.memory;
    int count = fake.devices;
    drop_objects();
    memset(&fake, 0, sizeof fake);
    fake.order = order;
    fake.guard = guard;
    fake.vm = vm;
    fake.random = random;
    fake.version = version;
    fake.arch = arch;
    fake.devices = devices > 0 ? devices : count;
    fake.memory = memory ? memory : had;
    api_reset();
    api_unlock();
}

static void set_order(int how, uint64_t seed)
{
    api_lock();
    fake.order = how;
    fake.random = seed;
    api_unlock();
}

static void set_guard(bool on)
{
    api_lock();
    /* Pages are set as they are opened and closed; what exists changes here. */
    fake.guard = true;
    memory_open();
    fake.guard = on;
    if (on) {
        memory_close();
    } else {
        fake.guard = true;
        memory_open();
        memory_close();
        fake.guard = false;
    }
    api_unlock();
}

static void set_vm(bool on)
{
    api_lock();
    fake.vm = on;
    api_unlock();
}

static void set_peers(bool on)
{
    api_lock();
    fake.no_peers = !on;
    api_unlock();
}

static void break_device(int result)
{
    api_lock();
    fake.break_next = result;
    api_unlock();
}

static int64_t alive(const char *kind)
{
    static const char *const names[N_KINDS] = {
        [NOTHING] = "",      [CONTEXT] = "context",   [STREAM] = "stream", [EVENT] = "event",
        [MODULE] = "module", [FUNCTION] = "function", [GRAPH] = "graph",   [EXEC] = "exec",
        [NODE] = "node",     [MEMORY] = "memory",     [HOST] = "host",
    };
    int64_t n = 0;
    api_lock();
    for (int i = 1; i < N_KINDS; i++) {
        n += !kind || strcmp(kind, names[i]) == 0 ? fake.alive[i] : 0;
    }
    api_unlock();
    return n;
}

static size_t bytes(int device)
{
    api_lock();
    size_t n = memory_used(device);
    api_unlock();
    return n;
}

static int64_t queued(void)
{
    int64_t n = 0;
    api_lock();
    for (int i = 0; i < MAX_STREAMS; i++) {
        n += fake.streams[i].length;
    }
    api_unlock();
    return n;
}

static void drain(void)
{
    api_lock();
    run_all(-1);
    api_unlock();
}

static int64_t races(void)
{
    api_lock();
    int64_t n = fake.races;
    api_unlock();
    return n;
}

static const char *fault(void)
{
    return fake.fault;
}

static const char *first_race(void)
{
    return fake.first_race;
}

static bool peek(void *host, uint64_t device, size_t n)
{
    api_lock();
    bool ok = memory_valid(device, n);
    if (ok) {
        memory_open();
        memcpy(host, (const void *)(uintptr_t)device, n);
        memory_close();
    }
    api_unlock();
    return ok;
}

extern const fake_driver fake_driver_control;
__attribute__((visibility("default"))) const fake_driver fake_driver_control = {
    .reset = reset,
    .order = set_order,
    .guard = set_guard,
    .vm = set_vm,
    .peers = set_peers,
    .calls = api_calls,
    .fail = api_fail,
    .failed = api_failed,
    .break_device = break_device,
    .alive = alive,
    .bytes = bytes,
    .queued = queued,
    .drain = drain,
    .races = races,
    .first_race = first_race,
    .fault = fault,
    .peek = peek,
};

static uint64_t number(const char *name, uint64_t dflt)
{
    const char *s = getenv(name);
    return s && *s ? strtoull(s, NULL, 10) : dflt;
}

__attribute__((constructor)) static void start(void)
{
    const char *order = getenv("FAKE_CUDA_ORDER");
    fake.order = !order                         ? FAKE_IMMEDIATE
                 : strcmp(order, "late") == 0   ? FAKE_LATE
                 : strcmp(order, "random") == 0 ? FAKE_RANDOM
                                                : FAKE_IMMEDIATE;
    fake.random = number("FAKE_CUDA_SEED", 1);
    fake.devices = (int)number("FAKE_CUDA_DEVICES", 1);
    fake.devices = fake.devices < MAX_DEVICES ? fake.devices : MAX_DEVICES;
    fake.memory = (size_t)number("FAKE_CUDA_MEMORY", (uint64_t)1 << 30);
    fake.guard = number("FAKE_CUDA_GUARD", 1) != 0;
    fake.vm = number("FAKE_CUDA_VM", 1) != 0;
    fake.version = (int)number("FAKE_CUDA_VERSION", 13000);
    fake.arch = (int)number("FAKE_CUDA_ARCH", 90);
    fake.processors = (int)number("FAKE_CUDA_PROCESSORS", 4);
}
