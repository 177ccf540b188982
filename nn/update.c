/*
 * nn/update.c -- runs an optimiser's update; see nn/update.h.
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/borrow.h"
#include "eager/device.h"
#include "eager/pool.h"
#include "nn/apart.h"
#include "nn/update.h"

enum { GRAIN = 32768 }; /* elements worth a chunk */

static int sources(const wf_line *l)
{
    return l->src[2] != NONE ? 3 : l->src[1] != NONE ? 2 : 1;
}

weft_status wf_update_run_ops(const update *u)
{
    wf_ctx *c = wf_ctx_get();
    if (c->recorder) {
        c->recorder->never(c->recorder, "an optimiser steps a tensor that is not dense f32 or f64");
    }
    weft_tensor value[SCALAR];
    memcpy(value, u->tensor, sizeof u->tensor);
    for (int i = 0; i < u->n; i++) {
        const wf_line *l = &u->line[i];
        weft_tensor src[3];
        int n = sources(l);
        for (int k = 0; k < n; k++) {
            int s = l->src[k];
            src[k] = s >= SCALAR ? weft_f(u->scalar[s - SCALAR]) : value[s];
        }
        int status = l->dst < T0 ? wf_dispatch_inplace(l->op, NULL, n, src, value[l->dst])
                                 : wf_dispatch(l->op, NULL, n, src, 1, &value[l->dst]);
        if (status != WEFT_OK) {
            return (weft_status)status;
        }
        if (l->dst < T0) {
            wf_wrote_as(c, value[l->dst], WF_WRITE_OPTIM_STEP, u->site);
        }
    }
    return WEFT_OK;
}

/* The tensors of an update, held, and which of them are written. */
typedef struct held {
    wf_ctx *c;
    wf_slot *slot[T0];
    wf_hold how[T0];
    bool written[T0];
    int n;
} held;

static void let_go(const held *h)
{
    for (int i = h->n; i-- > 0;) {
        wf_end_hold(h->c, h->slot[i], h->how[i]);
    }
}

/* False: one is not a live tensor; nothing is held. */
static bool hold(held *h, const update *u)
{
    const int n = S0 + u->n_state;
    h->c = wf_ctx_get();
    for (h->n = 0; h->n < n; h->n++) {
        h->written[h->n] = false;
        h->slot[h->n] = wf_take_hold(h->c, u->tensor[h->n], &h->how[h->n]);
        if (!h->slot[h->n]) {
            let_go(h);
            return false;
        }
    }
    for (int i = 0; i < u->n; i++) {
        if (u->line[i].dst < T0) {
            h->written[u->line[i].dst] = true;
        }
    }
    return true;
}

/* Do tensors i and k of as many bytes share some? Imports of the same memory are storages of their own. */
static bool overlap(const held *h, int i, int k, size_t bytes)
{
    const uintptr_t a = (uintptr_t)wf_slot_data(h->slot[i]);
    const uintptr_t b = (uintptr_t)wf_slot_data(h->slot[k]);
    return h->slot[i]->st == h->slot[k]->st || (a < b ? b - a : a - b) < bytes;
}

/* One pass sees the tensors as one axis: all dense, of one type and size, each in memory of its own. */
static bool is_dense(const held *h)
{
    const wf_slot *p = h->slot[P];
    const int64_t n = wf_slot_numel(h->slot[P]);
    bool dense = p->dtype == WEFT_F32 || p->dtype == WEFT_F64;
    for (int i = 0; i < h->n && dense; i++) {
        wf_slot *s = h->slot[i];
        dense = s->dtype == p->dtype && wf_slot_device(s) == wf_slot_device(p) &&
                wf_slot_numel(s) == n && wf_slot_is_contiguous(s);
        for (int k = 0; k < i && dense; k++) {
            dense = !overlap(h, i, k, (size_t)n * wf_dtype_size(p->dtype));
        }
    }
    return dense;
}

/* Declares inputs, lines and outputs. False: a row has no tile kernel. */
static bool build(const update *u, const held *h, wf_program *p, int dtype)
{
    int value[SCALAR + MAX_SCALARS];
    wf_program_init(p);
    for (int i = 0; i < h->n; i++) {
        value[i] = wf_program_input(p, dtype);
    }
    for (int i = 0; i < u->n_scalar; i++) {
        value[SCALAR + i] = wf_program_scalar(p, dtype);
    }
    for (int i = 0; i < u->n; i++) {
        const wf_line *l = &u->line[i];
        int src[3], n = sources(l);
        for (int k = 0; k < n; k++) {
            src[k] = value[l->src[k]];
        }
        value[l->dst] = wf_program_map(p, l->op, dtype, n, src);
    }
    for (int i = 0; i < h->n; i++) {
        if (h->written[i]) {
            wf_program_output(p, value[i]);
        }
    }
    return wf_program_finish(p) == 0;
}

/* The program of the lines, made anew where the update before had others. NULL: a row has no tile kernel. */
static const wf_program *program_of(const update *u, const held *h, built *b, int dtype)
{
    if (!b->tried || b->with != u->with || b->dtype != dtype) {
        b->tried = build(u, h, &b->program, dtype) ? 1 : -1;
        b->with = u->with;
        b->dtype = dtype;
    }
    return b->tried > 0 ? &b->program : NULL;
}

/* n scalars in the program's type. */
static void set_scalars(const double *from, int n, int dtype, float *f32, const void **scalars)
{
    for (int i = 0; i < n; i++) {
        f32[i] = (float)from[i];
        scalars[i] = dtype == WEFT_F32 ? (const void *)&f32[i] : &from[i];
    }
}

/* -- on a device: a kernel for the whole update, and a launch for many of them ------------------------------------- */

enum { TOGETHER = 256 }; /* updates of a flush, at most */

enum { KINDS = 4 }; /* programs of a flush, at most: with decay and without, of f32 and f64 */

typedef struct waiting {
    weft_tensor parameter;
    wf_storage *st[T0]; /* retained */
    wf_view in[T0], out[T0];
    int n, n_out, kind;
    double f64[MAX_SCALARS];
    float f32[MAX_SCALARS];
    const void *scalars[MAX_SCALARS];
} waiting;

typedef struct waiting_room {
    wf_ctx *c;
    int n, kinds, device;
    built kind[KINDS];
    waiting one[TOGETHER];
    wf_program_args args[TOGETHER]; /* of a flush */
} waiting_room;

/* Can they run side by side? A parameter may be two, or lie in memory that is imported twice. */
static bool can_be_together(const waiting_room *all)
{
    const size_t bytes = (size_t)all->n * T0 * sizeof(wf_touched);
    wf_touched *t = wf_alloc(bytes);
    int n = 0;
    for (int i = 0; i < all->n && t; i++) {
        const waiting *w = &all->one[i];
        for (int k = 0; k < w->n; k++) {
            const uintptr_t lo = (uintptr_t)w->in[k].data;
            bool is_out = false;
            for (int o = 0; o < w->n_out; o++) {
                is_out |= w->out[o].data == w->in[k].data;
            }
            t[n++] = (wf_touched){w->st[k], lo, lo + wf_view_bytes(&w->in[k]), is_out};
        }
    }
    const bool apart = t && wf_are_apart(t, n);
    if (t) {
        wf_free(t, bytes);
    }
    return apart;
}

static void empty_room(waiting_room *all)
{
    for (int i = 0; i < all->n; i++) {
        for (int k = 0; k < all->one[i].n; k++) {
            wf_storage_release(all->one[i].st[k]);
        }
    }
    all->n = all->kinds = 0;
}

/* The arguments of updates [begin, end) of a kind. */
static int gather(waiting_room *all, int kind, int begin, int end)
{
    int n = 0;
    for (int i = begin; i < end; i++) {
        const waiting *w = &all->one[i];
        if (w->kind == kind) {
            all->args[n++] = (wf_program_args){.dst = w->out, .src = w->in, .scalars = w->scalars};
        }
    }
    return n;
}

static weft_status flush(waiting_room *all)
{
    wf_why why = {0};
    int rc = 0;
    if (all->n == 0) {
        all->kinds = 0;
        return WEFT_OK;
    }
    const bool together = can_be_together(all);
    for (int i = 0; i < (together ? all->kinds : all->n) && !rc; i++) {
        const int kind = together ? i : all->one[i].kind;
        const int n = gather(all, kind, together ? 0 : i, together ? all->n : i + 1);
        rc = wf_device_programs(all->device, &all->kind[kind].program, n, all->args, &why);
    }
    rc = rc ? wf_raise_status(all->c, "optim_step", 1, &all->one[0].parameter, &why) : 0;
    empty_room(all);
    return (weft_status)rc;
}

weft_status wf_updates_end(updates *all)
{
    const weft_status s = all->room ? flush(all->room) : WEFT_OK;
    if (all->room) {
        wf_free(all->room, sizeof *all->room);
    }
    all->room = NULL;
    return s;
}

/* The kind of updates by the program of b, with room for one of them; -1: there is an error. */
static int find_kind(updates *of, const held *h, const built *b, int device)
{
    waiting_room *all = of->room;
    if (!all) {
        all = of->room = wf_alloc(sizeof *all);
        if (!all) {
            wf_why why = {0};
            wf_fail(&why, WEFT_ENOMEM, "no host memory for the updates of a device's tensors");
            wf_raise_status(h->c, "optim_step", 0, NULL, &why);
            return -1;
        }
        all->n = all->kinds = all->device = 0;
    }
    int k = 0;
    while (k < all->kinds && (all->kind[k].with != b->with || all->kind[k].dtype != b->dtype)) {
        k++;
    }
    if (k == KINDS || all->n == TOGETHER || all->device != device) {
        if (flush(all) != WEFT_OK) {
            return -1;
        }
        k = 0;
    }
    if (k == all->kinds) {
        all->kind[all->kinds++] = *b;
    }
    all->device = device;
    all->c = h->c;
    return k;
}

/* A dense tensor as one axis. A view has room for many, which is left as it is. */
static void set_line(wf_view *v, wf_slot *s)
{
    v->data = wf_slot_data(s);
    v->dtype = s->dtype;
    v->rank = 1;
    v->device = (uint8_t)wf_slot_device(s);
    v->dims[0] = wf_slot_numel(s);
    v->strides[0] = 1;
}

/* One of those that are queued together. */
static weft_status put_off(const update *u, const held *h, const built *b, int device, updates *all)
{
    const int kind = find_kind(all, h, b, device);
    if (kind < 0) {
        return weft_last_status();
    }
    waiting *w = &all->room->one[all->room->n];
    wf_why why;
    wf_why_clear(&why);
    w->n = h->n;
    w->n_out = 0;
    w->kind = kind;
    w->parameter = u->tensor[P];
    for (int i = 0; i < h->n; i++) {
        wf_slot *s = h->slot[i];
        if (wf_device_touch(h->c, s, "optim_step", h->written[i] ? WF_WRITE_OPTIM_STEP : 0, &why)) {
            return (weft_status)wf_raise_status(h->c, "optim_step", 1, &u->tensor[i], &why);
        }
        set_line(&w->in[i], s);
        if (h->written[i]) {
            set_line(&w->out[w->n_out++], s);
        }
    }
    memcpy(w->f64, u->scalar, sizeof w->f64);
    set_scalars(w->f64, u->n_scalar, b->dtype, w->f32, w->scalars);
    for (int i = 0; i < h->n; i++) {
        w->st[i] = h->slot[i]->st;
        wf_storage_retain(w->st[i]);
    }
    all->room->n++;
    return WEFT_OK;
}

/* May the host read the memory of tensor i, and write it where the update does? Else an error is recorded. */
static bool is_usable(const update *u, const held *h, int i)
{
    const wf_storage *st = h->slot[i]->st;
    bool plain = !st->broken && !(h->written[i] && st->read_only) &&
                 !atomic_load_explicit(&st->is_virtual, memory_order_acquire);
    return plain || (h->written[i] ? weft_data_mut(u->tensor[i]) : weft_data(u->tensor[i]));
}

/* A loop made of the lines, over elements of f32. */
typedef struct loop {
    wf_update_fn fn;
    float *at[T0];
    int n;
    float k[WF_UPDATE_SCALARS];
} loop;

/* The last elements, fewer than a step. */
static void run_rest(const loop *l, int64_t begin, int64_t n)
{
    float tile[T0][WF_UPDATE_STEPS] = {0};
    float *at[T0];
    for (int i = 0; i < l->n; i++) {
        at[i] = memcpy(tile[i], l->at[i] + begin, (size_t)n * sizeof(float));
    }
    l->fn(at, l->k, WF_UPDATE_STEPS);
    for (int i = 0; i < l->n; i++) {
        if (i != G) {
            memcpy(l->at[i] + begin, tile[i], (size_t)n * sizeof(float));
        }
    }
}

static void run_chunk(void *arg, int64_t begin, int64_t end)
{
    const loop *l = arg;
    const int64_t rest = (end - begin) % WF_UPDATE_STEPS;
    float *at[T0];
    for (int i = 0; i < l->n; i++) {
        at[i] = l->at[i] + begin;
    }
    l->fn(at, l->k, end - begin - rest);
    if (rest) {
        run_rest(l, end - rest, rest);
    }
}

static void run_loop(const update *u, const held *h)
{
    loop l = {.fn = wf_update_now(u->with), .n = h->n};
    for (int i = 0; i < h->n; i++) {
        l.at[i] = (float *)(void *)wf_slot_data(h->slot[i]);
    }
    for (int i = 0; i < WF_UPDATE_SCALARS; i++) {
        l.k[i] = (float)u->k[i];
    }
    const int64_t n = wf_slot_numel(h->slot[P]);
    if (n <= 2 * GRAIN) {
        run_chunk(&l, 0, n);
    } else {
        wf_parallel_for(n, GRAIN, run_chunk, &l);
    }
}

static void run_program(const held *h, const wf_program *p, const void *const *scalars)
{
    wf_view in[T0], out[T0];
    int n_out = 0;
    for (int i = 0; i < h->n; i++) {
        for (int k = 0; k < (h->written[i] ? 2 : 1); k++) {
            set_line(k ? &out[n_out++] : &in[i], h->slot[i]);
        }
    }
    wf_program_run(p, out, in, scalars);
}

/* One pass over the memory of the host. p: NULL where there is a loop. */
static weft_status run_on_host(const update *u, const held *h, const wf_program *p,
                               const void *const *scalars)
{
    for (int i = 0; i < h->n; i++) {
        if (!is_usable(u, h, i)) {
            return weft_last_status();
        }
    }
    for (int i = 0; i < h->n; i++) {
        if (h->written[i]) {
            wf_storage_wrote(h->slot[i]->st, (wf_op)WF_WRITE_OPTIM_STEP);
        }
    }
    const unsigned mode = wf_fpenv_enter();
    if (p) {
        run_program(h, p, scalars);
    } else {
        run_loop(u, h);
    }
    wf_fpenv_leave(mode);
    return WEFT_OK;
}

/* The lines as a trace records them, in one go. False: nothing was done. */
static bool record(const update *u, const held *h, weft_status *status)
{
    wf_why why;
    wf_why_clear(&why);
    int rc = 0;
    const wf_lines l = {.line = u->line,
                        .n = u->n,
                        .n_tensor = h->n,
                        .tensor = h->slot,
                        .scalars = SCALAR,
                        .n_scalar = u->n_scalar,
                        .scalar = u->scalar,
                        .number = u->of};
    if (!h->c->recorder->lines(h->c->recorder, &l, &rc, &why)) {
        return false;
    }
    for (int i = 0; i < u->n && !rc; i++) {
        const wf_line *k = &u->line[i];
        if (k->dst < T0) {
            wf_storage_wrote(h->slot[k->dst]->st, (wf_op)WF_WRITE_OPTIM_STEP);
        }
    }
    *status = rc ? (weft_status)wf_raise_status(h->c, "optim_step", 1, u->tensor, &why) : WEFT_OK;
    return true;
}

/* In one go. False: nothing was done. */
static bool run_at_once(const update *u, const held *h, built *b, updates *all, weft_status *status)
{
    if (h->c->recorder) { /* a trace fuses the ops itself */
        return record(u, h, status);
    }
    const int dtype = h->slot[P]->dtype, device = wf_slot_device(h->slot[P]);
    if (!is_dense(h)) {
        return false;
    }
    const bool has_loop =
        dtype == WEFT_F32 && device == WF_DEVICE_HOST && wf_update_now(u->with) != NULL;
    const wf_program *p = has_loop ? NULL : program_of(u, h, b, dtype);
    if (!p && !has_loop) {
        return false;
    }
    if (device != WF_DEVICE_HOST) {
        *status = put_off(u, h, b, device, all);
        return true;
    }
    float f32[MAX_SCALARS];
    const void *scalars[MAX_SCALARS];
    set_scalars(u->scalar, u->n_scalar, dtype, f32, scalars);
    *status = run_on_host(u, h, p, scalars);
    return true;
}

/* What was put off comes first, for it may be of the same memory. */
static weft_status run_ops_behind(const update *u, updates *all)
{
    const weft_status s = all->room ? flush(all->room) : WEFT_OK;
    return s == WEFT_OK ? wf_update_run_ops(u) : s;
}

weft_status wf_update_run(const update *u, built *b, updates *all)
{
    held h;
    weft_status status;
    if (!hold(&h, u)) {
        return run_ops_behind(u, all);
    }
    bool done = run_at_once(u, &h, b, all, &status);
    for (int i = 0; i < h.n && done; i++) {
        if (h.written[i]) {
            h.slot[i]->st->write_site = u->site;
        }
    }
    let_go(&h);
    return done ? status : run_ops_behind(u, all);
}
