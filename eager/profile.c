/*
 * eager/profile.c -- the profile being taken: buffers of threads, and handing out what they hold.
 *
 * A thread appends records to its own buffer and publishes their end with one store. Whoever hands out (the thread
 * itself when the buffer is full; a flush, the end, the exit of the thread or the program) does so under the lock of
 * the session, reads from where the last one stopped to what is published, and moves nothing: only the owner starts
 * its buffer over. Records are decoded to weft_profile_event there, so recording formats nothing.
 *
 * Invariants: no lock is taken to record unless the buffer is full; a record that began before the session did is not
 * handed out; kept + dropped is the number of events, and kept never exceeds the session's limit.
 */
#include "eager/profile.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "eager/alloc.h"
#include "eager/env.h"
#include "eager/tensor.h"
#include "jit/ir/ir.h"
#include "jit/ir/kir.h"
#include "jit/ir/plain_numbers.h"

enum {
    BUFFER = 64 << 10,
    MAX_RANGES = 32,
    NAME = 64,
    DETAIL = 480, /* bytes of a detail that are kept */
    OPERANDS = 9, /* of an op that are kept, results among them */
    OPERAND_TEXT =
        24 + WF_MAX_RANK * 21, /* bytes of one, and of what separates it from the one before */
    MANY = 1000000,
    SMALL_CHANGE = 4096 /* bytes of memory */
};

/* How an operand lies in a record: dtype, rank, extents; or one of these and 8 bytes. */
enum { ABSENT = 0, SCALAR = 255 };

typedef struct record {
    int64_t start, ns, bytes;
    _Atomic(const char *) site; /* may come later */
    uint64_t flow;
    uint16_t size; /* with what follows: strings, or operands */
    uint8_t kind;
    uint8_t nsrc, ndst, inplace;
    uint16_t op;
    int16_t device, stream;
} record;

typedef struct buffer {
    struct buffer *next;
    int64_t thread;
    char name[32];
    _Atomic uint32_t used; /* bytes published */
    uint32_t out;          /* of those, handed out; under the lock */
    record *last;          /* the last op's, for its site */
    weft_tensor result;    /* that it made or wrote */
    uint32_t depth;        /* ranges */
    int64_t range_start[MAX_RANGES];
    char range[MAX_RANGES][NAME];
    _Alignas(16) char data[BUFFER];
} buffer;

_Atomic bool wf_prof_on;
_Thread_local const char *wf_prof_label __attribute__((tls_model("initial-exec")));
_Thread_local const char *wf_prof_default_site __attribute__((tls_model("initial-exec")));
static _Thread_local buffer *mine __attribute__((tls_model("initial-exec")));

static struct session {
    pthread_mutex_t lock;
    buffer *buffers;
    wf_prof_file *file;
    void (*event)(void *user, const weft_profile_event *e);
    void *user;
    int64_t start;
    bool failed; /* the file could not be written */
    bool handlers;
    _Atomic int64_t limit, kept, dropped, live;
    void (*_Atomic collect)(void);
} session = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_key_t exit_key;
static pthread_once_t set_up_once = PTHREAD_ONCE_INIT, env_once = PTHREAD_ONCE_INIT;

const char *weft_profile_kind_name(weft_profile_kind kind)
{
    static const char *const names[WEFT_PROFILE_KIND_COUNT] = {
        [WEFT_PROFILE_OP] = "op",           [WEFT_PROFILE_CALL] = "call",
        [WEFT_PROFILE_RECORD] = "record",   [WEFT_PROFILE_PLAN] = "plan",
        [WEFT_PROFILE_RUN] = "run",         [WEFT_PROFILE_KERNEL] = "kernel",
        [WEFT_PROFILE_COMPILE] = "compile", [WEFT_PROFILE_BACKWARD] = "backward",
        [WEFT_PROFILE_WORKER] = "worker",   [WEFT_PROFILE_RANGE] = "range",
        [WEFT_PROFILE_MARK] = "mark",       [WEFT_PROFILE_MEMORY] = "memory",
        [WEFT_PROFILE_LAUNCH] = "launch",   [WEFT_PROFILE_DEVICE] = "device"};
    return (unsigned)kind < WEFT_PROFILE_KIND_COUNT ? names[kind] : "invalid";
}

int64_t wf_prof_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* -- handing out, under the lock ------------------------------------------------------------------------ */

static char *put_operand(char *t, const unsigned char **p)
{
    unsigned dtype = (*p)[0], rank = (*p)[1];
    *p += 2;
    if (dtype == ABSENT) {
        return wf_prof_put_text(t, "_");
    }
    if (dtype == SCALAR) {
        uint64_t bits;
        memcpy(&bits, *p, sizeof bits);
        *p += sizeof bits;
        const wf_plain_numbers was = wf_plain_numbers_begin();
        t += snprintf(t, OPERAND_TEXT, "%g", wf_slot_f64((int)rank, bits));
        wf_plain_numbers_end(was);
        return t;
    }
    t = wf_prof_put_text(t, wf_dtype_name((int)dtype));
    *t++ = '[';
    for (unsigned i = 0; i < rank; i++) {
        int64_t dim;
        memcpy(&dim, *p, sizeof dim);
        *p += sizeof dim;
        t = wf_prof_put_text(t, i ? "," : "");
        t = wf_prof_put_int(t, dim);
    }
    *t++ = ']';
    return t;
}

/* "f32[2,3] f32[3] -> f32[2,3]" */
static void put_operands(char *t, const record *r)
{
    const unsigned char *p = (const unsigned char *)(r + 1);
    for (int i = 0; i < r->nsrc; i++) {
        t = put_operand(wf_prof_put_text(t, i ? " " : ""), &p);
    }
    for (int i = 0; i < r->ndst; i++) {
        t = put_operand(wf_prof_put_text(t, i ? " " : r->nsrc ? " -> " : "-> "), &p);
    }
    *t = 0;
}

static void take_back(void)
{
    atomic_fetch_sub_explicit(&session.kept, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&session.dropped, 1, memory_order_relaxed);
}

static void hand_out_record(const buffer *b, const record *r)
{
    char name[WF_NAME_SIZE], detail[OPERANDS * OPERAND_TEXT + 1];
    const char *site = atomic_load_explicit(&r->site, memory_order_acquire);
    weft_profile_event e = {.kind = (weft_profile_kind)r->kind,
                            .name = (const char *)(r + 1),
                            .site = site ? site : "",
                            .start_ns = r->start,
                            .duration_ns = r->ns,
                            .bytes = r->bytes,
                            .thread = b->thread,
                            .thread_name = b->name,
                            .device = r->device,
                            .stream = r->stream,
                            .flow = r->flow};
    if (r->kind == WEFT_PROFILE_OP) {
        e.name = r->inplace ? wf_write_name(r->op, name) : wf_rows[r->op].name;
        put_operands(detail, r);
        e.detail = detail;
    } else {
        e.detail = e.name + strlen(e.name) + 1;
    }
    if (session.event) {
        session.event(session.user, &e);
    }
    if (session.file && !wf_prof_file_put(session.file, &e)) {
        take_back();
        if (session.event) { /* it was handed out: no more than were asked for are */
            atomic_fetch_sub_explicit(&session.limit, 1, memory_order_relaxed);
        } else { /* nobody wants any more */
            atomic_store_explicit(&session.limit, 0, memory_order_relaxed);
        }
    }
}

static void hand_out(buffer *b)
{
    uint32_t used = atomic_load_explicit(&b->used, memory_order_acquire);
    while (b->out < used) {
        const record *r = (const record *)(const void *)(b->data + b->out);
        if (r->start >= session.start) {
            hand_out_record(b, r);
        }
        b->out += r->size;
    }
}

static void sync_file(void)
{
    if (session.file && !wf_prof_file_sync(session.file, atomic_load(&session.kept),
                                           atomic_load(&session.dropped))) {
        session.failed = true;
    }
}

static void hand_out_all(void)
{
    for (buffer *b = session.buffers; b; b = b->next) {
        hand_out(b);
    }
    sync_file();
}

static void collect(void)
{
    void (*f)(void) = atomic_load(&session.collect);
    if (f) {
        f();
    }
}

void wf_prof_set_collector(void (*f)(void))
{
    atomic_store(&session.collect, f);
}

/* -- threads, forks, exits ------------------------------------------------------------------------------- */

/* A thread ends. */
static void close_buffer(void *arg)
{
    buffer *b = arg;
    pthread_mutex_lock(&session.lock);
    if (wf_prof_is_on()) {
        hand_out(b);
        sync_file();
    }
    for (buffer **at = &session.buffers; *at; at = &(*at)->next) {
        if (*at == b) {
            *at = b->next;
            break;
        }
    }
    pthread_mutex_unlock(&session.lock);
    mine = NULL;
    wf_mfree(b);
}

static weft_status finish(void)
{
    collect();
    pthread_mutex_lock(&session.lock);
    bool was_on = atomic_exchange(&wf_prof_on, false);
    if (was_on) {
        hand_out_all();
    }
    if (session.file) {
        wf_prof_file_close(session.file);
    }
    session.file = NULL;
    session.event = NULL;
    bool failed = session.failed;
    pthread_mutex_unlock(&session.lock);
    return !was_on ? WEFT_EINVALID : failed ? WEFT_EIO : WEFT_OK;
}

static void at_exit(void)
{
    finish();
}
static void before_fork(void)
{
    pthread_mutex_lock(&session.lock);
}
static void after_fork(void)
{
    pthread_mutex_unlock(&session.lock);
}
/* The profile is the parent's: the child takes none, and leaves the file alone. */
static void in_child(void)
{
    atomic_store(&wf_prof_on, false);
    if (session.file) {
        wf_prof_file_close(session.file);
    }
    session.file = NULL;
    session.event = NULL;
    session.buffers = mine;
    if (mine) {
        mine->next = NULL;
        mine->thread = gettid();
    }
    after_fork();
}

static void set_up(void)
{
    session.handlers = pthread_key_create(&exit_key, close_buffer) == 0 && atexit(at_exit) == 0 &&
                       at_quick_exit(at_exit) == 0;
    pthread_atfork(before_fork, after_fork, in_child);
}

/* -- recording -------------------------------------------------------------------------------------------- */

static buffer *open_buffer(void)
{
    buffer *b = wf_malloc(sizeof *b);
    if (!b) {
        return NULL;
    }
    memset(b, 0, offsetof(buffer, data));
    b->thread = gettid();
    if (pthread_getname_np(pthread_self(), b->name, sizeof b->name) != 0) {
        snprintf(b->name, sizeof b->name, "thread");
    }
    if (pthread_setspecific(exit_key, b) != 0) { /* its end would not be seen */
        wf_mfree(b);
        return NULL;
    }
    pthread_mutex_lock(&session.lock);
    b->next = session.buffers;
    session.buffers = b;
    pthread_mutex_unlock(&session.lock);
    return mine = b;
}

/* Counts an event; false if there are too many. */
static bool admit(void)
{
    if (atomic_fetch_add_explicit(&session.kept, 1, memory_order_relaxed) <
        atomic_load_explicit(&session.limit, memory_order_relaxed)) {
        return true;
    }
    atomic_fetch_sub_explicit(&session.kept, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&session.dropped, 1, memory_order_relaxed);
    return false;
}

/* Room for a record of this many bytes in the thread's buffer, which is handed out if it is full. NULL: not kept. */
static record *reserve(size_t size)
{
    if (!wf_prof_is_on() || !admit()) {
        return NULL;
    }
    buffer *b = mine ? mine : open_buffer();
    if (!b) {
        take_back();
        return NULL;
    }
    uint32_t used = atomic_load_explicit(&b->used, memory_order_relaxed);
    if (used + size > BUFFER) {
        pthread_mutex_lock(&session.lock);
        if (wf_prof_is_on()) {
            hand_out(b);
            sync_file();
        }
        atomic_store_explicit(&b->used, 0, memory_order_relaxed);
        b->out = 0;
        b->last = NULL;
        used = 0;
        pthread_mutex_unlock(&session.lock);
    }
    return (record *)(void *)(b->data + used);
}

static void publish(const record *r)
{
    uint32_t used = atomic_load_explicit(&mine->used, memory_order_relaxed);
    atomic_store_explicit(&mine->used, used + r->size, memory_order_release);
}

static size_t up(size_t n)
{
    return (n + 15) & ~(size_t)15;
}

static void put_span(int64_t start, int64_t end, int device, int stream, const wf_prof_span *s)
{
    const char *name = s->name ? s->name : "", *detail = s->detail ? s->detail : "";
    size_t nname = strnlen(name, NAME - 1), ndetail = strnlen(detail, DETAIL - 1);
    size_t size = up(sizeof(record) + nname + ndetail + 2);
    record *r = reserve(size);
    if (!r) {
        return;
    }
    *r = (record){.start = start,
                  .ns = end - start,
                  .bytes = s->bytes,
                  .site = s->site,
                  .flow = s->flow,
                  .size = (uint16_t)size,
                  .kind = (uint8_t)s->kind,
                  .device = (int16_t)device,
                  .stream = (int16_t)stream};
    char *text = (char *)(r + 1);
    memcpy(text, name, nname);
    text[nname] = 0;
    memcpy(text + nname + 1, detail, ndetail);
    text[nname + 1 + ndetail] = 0;
    publish(r);
}

void wf_prof_end(int64_t start, const wf_prof_span *s)
{
    put_span(start, s->end ? s->end : wf_prof_clock(), -1, -1, s);
}

void wf_prof_mark(const char *name, const char *detail, const char *site)
{
    if (wf_prof_is_on()) {
        int64_t now = wf_prof_clock();
        put_span(now, now, -1, -1,
                 &(wf_prof_span){WEFT_PROFILE_MARK, .name = name, .detail = detail, .site = site});
    }
}

void wf_prof_device(int device, int stream, int64_t start, int64_t ns, const wf_prof_span *s)
{
    put_span(start, start + ns, device, stream, s);
}

uint64_t wf_prof_new_flow(void)
{
    static _Atomic uint64_t flows;
    return atomic_fetch_add_explicit(&flows, 1, memory_order_relaxed) + 1;
}

void wf_prof_memory(void)
{
    wf_alloc_stats s;
    wf_alloc_get_stats(&s);
    int64_t last = atomic_load_explicit(&session.live, memory_order_relaxed);
    int64_t change = s.live_bytes > last ? s.live_bytes - last : last - s.live_bytes;
    if (wf_prof_is_on() && (last < 0 || (change > SMALL_CHANGE && change > last / 256))) {
        int64_t now = wf_prof_clock();
        atomic_store_explicit(&session.live, s.live_bytes, memory_order_relaxed);
        put_span(now, now, -1, -1,
                 &(wf_prof_span){WEFT_PROFILE_MEMORY, .name = "memory", .bytes = s.live_bytes});
    }
}

/* -- ops -------------------------------------------------------------------------------------------------- */

/* Appends an operand at *p; the bytes of its distinct elements. */
static int64_t describe(wf_ctx *c, weft_tensor t, unsigned char **p)
{
    bool pinned = false;
    wf_why why;
    if (wf_is_scalar(t)) {
        (*p)[0] = SCALAR;
        (*p)[1] = (unsigned char)t.context;
        memcpy(*p + 2, &t.serial, sizeof t.serial);
        *p += 2 + sizeof t.serial;
        return 0;
    }
    wf_slot *s = t.slot && !wf_is_absent(t) ? wf_pin(c, t, &pinned, &why) : NULL;
    if (!s) {
        (*p)[0] = ABSENT;
        (*p)[1] = 0;
        *p += 2;
        return 0;
    }
    const int64_t *d = wf_dims(s), *strides = wf_strides(s);
    int64_t n = (int64_t)wf_dtype_size(s->dtype);
    for (int i = 0; i < s->rank; i++) {
        n *= strides[i] != 0 || d[i] == 0 ? d[i] : 1;
    }
    (*p)[0] = s->dtype;
    (*p)[1] = s->rank;
    memcpy(*p + 2, d, s->rank * sizeof *d);
    *p += 2 + s->rank * sizeof *d;
    if (pinned) {
        wf_unpin(c, s);
    }
    return n;
}

void wf_prof_op(int64_t start, wf_op op, bool inplace, int nsrc, const weft_tensor *src, int ndst,
                const weft_tensor *dst)
{
    int64_t end = wf_prof_clock();
    unsigned char room[OPERANDS * (2 + WF_MAX_RANK * sizeof(int64_t))], *p = room;
    int n = nsrc < OPERANDS - WF_MAX_DST ? nsrc : OPERANDS - WF_MAX_DST;
    int64_t bytes = 0;
    wf_ctx *c = wf_ctx_get();
    for (int i = 0; i < n && c; i++) {
        bytes += describe(c, src[i], &p);
    }
    for (int i = 0; i < ndst && c; i++) {
        bytes += describe(c, dst[i], &p);
    }
    size_t size = up(sizeof(record) + (size_t)(p - room));
    record *r = c ? reserve(size) : NULL;
    if (!r) {
        return;
    }
    *r = (record){.start = start,
                  .ns = end - start,
                  .bytes = wf_rows[op].kind == WF_KIND_VIEW ? 0 : bytes,
                  .site = wf_prof_default_site,
                  .size = (uint16_t)size,
                  .kind = WEFT_PROFILE_OP,
                  .nsrc = (uint8_t)n,
                  .ndst = (uint8_t)ndst,
                  .inplace = inplace,
                  .op = (uint16_t)op,
                  .device = -1,
                  .stream = -1};
    memcpy(r + 1, room, (size_t)(p - room));
    mine->last = r;
    mine->result = ndst ? dst[0] : WEFT_NONE;
    publish(r);
    wf_prof_memory();
}

void wf_prof_site(const char *site, weft_tensor t)
{
    buffer *b = mine;
    if (b && b->last && b->result.slot == t.slot && b->result.serial == t.serial) {
        atomic_store_explicit(&b->last->site, site, memory_order_release);
        b->last = NULL;
    }
}

/* -- public ------------------------------------------------------------------------------------------------ */

void weft_profile_range_begin(const char *name)
{
    buffer *b = !wf_prof_is_on() ? NULL : mine ? mine : open_buffer();
    if (b && b->depth++ < MAX_RANGES) {
        snprintf(b->range[b->depth - 1], NAME, "%s", name ? name : "");
        b->range_start[b->depth - 1] = wf_prof_clock();
    }
}

void weft_profile_range_end(void)
{
    buffer *b = mine;
    if (b && b->depth > 0 && --b->depth < MAX_RANGES && wf_prof_is_on()) {
        wf_prof_end(b->range_start[b->depth],
                    &(wf_prof_span){WEFT_PROFILE_RANGE, .name = b->range[b->depth]});
    }
}

void weft_profile_get_stats(weft_profile_stats *out)
{
    if (out) {
        *out = (weft_profile_stats){.active = wf_prof_is_on(),
                                    .events = atomic_load(&session.kept),
                                    .dropped = atomic_load(&session.dropped)};
    }
}

static int64_t most_bytes(const weft_profile_args *a)
{
    const int64_t each = 50, most = a->max_events > MANY ? a->max_events : MANY;
    return a->max_bytes > 0 ? a->max_bytes : most < INT64_MAX / each ? most * each : INT64_MAX;
}

/* 0, or a status with *why. */
static int begin(const weft_profile_args *a, const char **why)
{
    pthread_once(&set_up_once, set_up);
    pthread_mutex_lock(&session.lock);
    int rc = 0;
    if (wf_prof_is_on()) {
        *why = "a profile is being taken already (WEFT_PROFILE begins one, too)";
        rc = WEFT_EINVALID;
    } else if (!session.handlers) {
        *why = "the system gives no room for exit handlers";
        rc = WEFT_ENOMEM;
    } else if (a->path && !(session.file = wf_prof_file_open(a->path, most_bytes(a), why))) {
        rc = WEFT_EIO;
    } else {
        for (buffer *b = session.buffers; b; b = b->next) { /* what an earlier session left */
            b->out = atomic_load_explicit(&b->used, memory_order_acquire);
        }
        session.event = a->event;
        session.user = a->user;
        session.failed = false;
        session.start = wf_prof_clock();
        atomic_store(&session.limit, a->max_events > 0 ? a->max_events : MANY);
        atomic_store(&session.kept, 0);
        atomic_store(&session.dropped, 0);
        atomic_store(&session.live, -1);
        atomic_store(&wf_prof_on, true);
    }
    pthread_mutex_unlock(&session.lock);
    return rc;
}

weft_status(weft_profile_begin)(const weft_profile_args *args)
{
    wf_ctx *c = wf_ctx_get();
    if (!args || (!args->path && !args->event)) {
        wf_raise_text(c, WEFT_EINVALID, "profile_begin",
                      "neither a path nor a function is given for the events");
        return WEFT_EINVALID;
    }
    const char *why = "";
    int rc = begin(args, &why);
    if (rc) {
        wf_raise_text(c, rc, "profile_begin", "%s%s%s", rc == WEFT_EIO ? args->path : "",
                      rc == WEFT_EIO ? ": " : "", why);
    }
    return (weft_status)rc;
}

static weft_status report(weft_status s, const char *op)
{
    if (s) {
        wf_raise_text(wf_ctx_get(), (int)s, op,
                      s == WEFT_EINVALID ? "no profile is being taken (weft_profile_begin)"
                                         : "the file could not be written (is the disk full?)");
    }
    return s;
}

weft_status weft_profile_flush(void)
{
    collect();
    pthread_mutex_lock(&session.lock);
    bool on = wf_prof_is_on();
    if (on) {
        hand_out_all();
    }
    bool failed = session.failed;
    pthread_mutex_unlock(&session.lock);
    return report(!on ? WEFT_EINVALID : failed ? WEFT_EIO : WEFT_OK, "profile_flush");
}

weft_status weft_profile_end(void)
{
    return report(finish(), "profile_end");
}

static void begin_from_env(void)
{
    const char *path = wf_env()->WEFT_PROFILE, *why = "";
    if (*path &&
        begin(&(weft_profile_args){.path = path, .max_events = wf_env()->WEFT_PROFILE_EVENTS},
              &why)) {
        fprintf(stderr, "weft: WEFT_PROFILE: %s: %s\n", path, why);
    }
}

void wf_prof_from_env(void)
{
    pthread_once(&env_once, begin_from_env);
}
