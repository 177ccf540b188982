/*
 * tests/cuda/driver/queue.c -- streams as queues, executed as late and in as strange an order as CUDA allows.
 *
 * Every piece of work carries a vector clock: what is certain to be done before it. It is made when the
 * work is queued, from the work before it on its stream, from the events its stream was told to wait for,
 * and from what the host had waited for by then.
 */
#include "tests/cuda/driver/core.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/cuda/driver/fake.h"

/* A real driver makes the host wait when about this much is queued. */
enum { LONGEST_QUEUE = 1000 };

void clock_join(clock_vector *a, const clock_vector *b)
{
    for (int i = 0; i < MAX_STREAMS; i++) {
        a->at[i] = a->at[i] > b->at[i] ? a->at[i] : b->at[i];
    }
}

op *op_new(enum op_kind kind, stream *s, const char *what)
{
    op *o = calloc(1, sizeof *o);
    if (o) {
        o->kind = kind;
        o->stream = s->slot;
        o->device = s->device;
        o->what = what;
    }
    return o;
}

void record_unref(record *r)
{
    if (r && --r->refs == 0) {
        free(r);
    }
}

void op_free(op *o)
{
    record_unref(o->mark);
    free(o->params);
    free(o);
}

static bool blocked(const op *o)
{
    return o->kind == OP_WAIT && !o->mark->done;
}

static void copy_bytes(const op *o)
{
    memmove((void *)(uintptr_t)o->dst, (const void *)(uintptr_t)o->src, o->size);
}

static bool in_device_memory(const op *o)
{
    return (!o->dst_device || memory_valid(o->dst, o->size)) &&
           (!o->src_device || memory_valid(o->src, o->size));
}

/* Events have the host's time, a little later each. */
static double wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void execute(op *o)
{
    cu_result *broken = &fake.broken[o->device], r = CU_OK;
    const double wall = wall_ms();
    fake.now = fake.now + 0.001 > wall ? fake.now + 0.001 : wall;
    if (o->kind == OP_RECORD) {
        o->mark->done = true;
        o->mark->ms = fake.now;
        return;
    }
    if (*broken || o->kind == OP_WAIT) {
        return;
    }
    if ((o->kind == OP_COPY || o->kind == OP_SET) && !in_device_memory(o)) {
        *broken = CU_ILLEGAL_ADDRESS;
        return;
    }
    if (o->kind == OP_KERNEL && fake.break_next) {
        *broken = fake.break_next;
        fake.break_next = CU_OK;
        return;
    }
    memory_open();
    if (o->kind == OP_COPY) {
        copy_bytes(o);
    } else if (o->kind == OP_SET) {
        memset((void *)(uintptr_t)o->dst, o->value, o->size);
    } else if (o->kind == OP_KERNEL) {
        r = kernel_run(o);
    } else if (o->kind == OP_HOST) {
        o->host(o->host_arg);
    }
    memory_close();
    *broken = r;
}

/* Runs the head of s if it can run. */
static bool run_head(stream *s)
{
    op *o = s->head;
    if (!o || blocked(o)) {
        return false;
    }
    s->head = o->next;
    s->length--;
    if (!s->head) {
        s->tail = &s->head;
    }
    execute(o);
    op_free(o);
    return true;
}

/* One step towards s: its head, or what its head waits for. */
static void step(stream *s)
{
    for (int depth = 0; depth <= MAX_STREAMS && s->head && blocked(s->head); depth++) {
        s = &fake.streams[s->head->mark->stream];
    }
    if (!run_head(s)) {
        abort(); /* waits in a circle cannot be queued */
    }
}

static void run_random(void)
{
    stream *ready[MAX_STREAMS];
    int n = 0;
    for (int i = 0; i < MAX_STREAMS; i++) {
        stream *s = &fake.streams[i];
        if (s->head && !blocked(s->head)) {
            ready[n++] = s;
        }
    }
    if (n) {
        run_head(ready[next_random() % (uint64_t)n]);
    }
}

void run_some(void)
{
    if (fake.order == FAKE_RANDOM) {
        for (uint64_t n = next_random() % 4; n; n--) {
            run_random();
        }
    } else if (fake.order == FAKE_IMMEDIATE) {
        run_all(-1);
    }
}

/* Others may run too, in between: at random. */
static void maybe_others(void)
{
    if (fake.order == FAKE_RANDOM && next_random() % 2) {
        run_random();
    }
}

void run_stream(stream *s)
{
    while (s->head) {
        maybe_others();
        if (s->head) {
            step(s);
        }
    }
}

void run_record(record *r)
{
    while (!r->done) {
        maybe_others();
        if (!r->done) {
            step(&fake.streams[r->stream]);
        }
    }
}

void run_all(int device)
{
    bool any = true;
    while (any) {
        any = false;
        for (int i = 0; i < MAX_STREAMS; i++) {
            stream *s = &fake.streams[i];
            if (s->used && s->head && (device < 0 || s->device == device)) {
                maybe_others();
                if (s->head) {
                    step(s);
                }
                any = true;
            }
        }
    }
}

cu_result submit(stream *s, op *o)
{
    if (s->capture && s->capture->invalid) {
        op_free(o);
        return CU_CAPTURE_INVALIDATED;
    }
    if (s->capture) {
        graph *g = s->capture;
        *g->tail = o;
        g->tail = &o->next;
        g->newest = o;
        return CU_OK;
    }
    clock_join(&s->clock, &fake.host);
    s->clock.at[s->slot]++;
    o->clock = s->clock;
    if (o->kind == OP_RECORD) {
        o->mark->clock = s->clock;
    }
    race_check(o);
    *s->tail = o;
    s->tail = &o->next;
    if (++s->length > LONGEST_QUEUE) {
        step(s);
    }
    run_some();
    return CU_OK;
}

bool image_is_queued(const image *m)
{
    for (int i = 0; i < MAX_STREAMS; i++) {
        for (const op *o = fake.streams[i].head; o; o = o->next) {
            if (o->kind == OP_KERNEL && o->fn->module == m) {
                return true;
            }
        }
    }
    return false;
}

cu_result record_event(stream *s, event *e)
{
    op *o = op_new(OP_RECORD, s, "record");
    record *r = calloc(1, sizeof *r);
    if (!o || !r) {
        if (o) {
            op_free(o);
        }
        free(r);
        return CU_OUT_OF_MEMORY;
    }
    r->refs = 2;
    r->stream = s->slot;
    o->mark = r;
    record_unref(e->last);
    e->last = r;
    e->captured = s->capture;
    return submit(s, o);
}

cu_result wait_event(stream *s, event *e)
{
    if (!e->last) {
        return CU_OK;
    }
    if (e->captured && e->captured->open && !s->capture) {
        s->capture = e->captured; /* the stream joins the recording */
    }
    if (s->capture != e->captured) {
        return CU_CAPTURE_ISOLATION;
    }
    op *o = op_new(OP_WAIT, s, "wait");
    if (!o) {
        return CU_OUT_OF_MEMORY;
    }
    o->mark = e->last;
    o->mark->refs++;
    if (!s->capture) {
        clock_join(&s->clock, &e->last->clock);
    }
    return submit(s, o);
}
