/*
 * jit/plan_run.c -- running a plan: addresses, views and scalars of this call, step after step.
 *
 * One block holds what a run needs besides memory of values: small ones lie on the stack, others are kept for the next run.
 * Memory of values is there from the launch that first needs it to the last (plan_buffers.c).
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/api.h"
#include "eager/cuda/runtime.h"
#include "eager/device.h"
#include "eager/kept.h"
#include "eager/pool.h"
#include "eager/profile.h"
#include "eager/rows.h"
#include "jit/ir/build.h"
#include "jit/plan_after.h"

typedef union scalar {
    double f64;
    float f32;
    int64_t i64;
    int32_t i32;
    int16_t i16;
    int8_t i8;
    uint8_t u8;
    uint64_t bits;
} scalar;

enum {
    CHECKS = WF_PROGRAM_INSTS / 32, /* a loss takes that many instructions */
    FEW_BYTES = 4096                /* of a run's room that is on the stack */
};

typedef struct run {
    const wf_plan *p;
    wf_plan_args *a;
    wf_why *why;
    char **memory;         /* by the slots of buffers; NULL where there is none now */
    void **block;          /* per temporary: what to free; NULL: nothing */
    wf_kept *const *kept;  /* and the place that it is from; NULL: none */
    uint8_t *mine;         /* per output: wf_alloc made it */
    uint32_t taken, given; /* of the plan's takes and gives */
    wf_view *view;
    scalar *scalar;
    const void **scalar_at;
    wf_program_args *args;
    uint32_t *small;
    wf_program_checked checked[CHECKS]; /* of the step that runs */
    uint32_t refused;                   /* 1 + the instruction that a step was not begun for */
    wf_view *expected;                  /* of wf_validate_begin */
    uint8_t device;
} run;

/* A kernel or a fill gave rc; it may have left the words to us. */
static int explain(const run *r, int rc)
{
    return rc && r->why->rule[0] == '\0' ? wf_fail(r->why, rc, "out of memory while it ran") : rc;
}

/* The attributes that instruction k has in this call. */
static const wf_attr *attr_of(const run *r, uint32_t k)
{
    return wf_attr_now(r->p->fn, k, r->a->fn);
}

static void view_of(const run *r, const wf_access *a, wf_view *v)
{
    const wf_plan *p = r->p;
    if (a->buffer == WF_BUFFER_ABSENT) {
        v->data = NULL;
        v->dtype = WEFT_DTYPE_DEFAULT;
        v->rank = v->device = 0;
        return;
    }
    int64_t offset = a->offset;
    for (uint32_t t = a->term; t < a->term + (uint32_t)a->nterms; t++) {
        offset += wf_term_value(&p->terms[t], attr_of(r, p->terms[t].ins));
    }
    const wf_buffer *b = a->buffer < 0 ? NULL : &p->buffers[a->buffer];
    v->data = b ? r->memory[b->slot] + b->offset + offset * (int64_t)wf_dtype_size(a->dtype) : NULL;
    v->dtype = a->dtype;
    v->rank = a->rank;
    v->device = r->device;
    const int64_t *dims = p->words + a->shape, *strides = dims + a->rank;
    for (int i = 0; i < a->rank; i++) { /* few: a call of memcpy takes longer */
        v->dims[i] = dims[i];
        v->strides[i] = strides[i];
    }
}

/* A value of the recording as one element of a type, by the rules of dispatch. */
static void put_number(double d, int64_t i, bool real, int dtype, scalar *out)
{
    switch (dtype) {
    case WEFT_F64:
        out->f64 = d;
        break;
    case WEFT_F32:
        out->f32 = real ? (float)d : (float)i;
        break;
    case WEFT_I64:
        out->i64 = i;
        break;
    case WEFT_BOOL:
        out->u8 = d != 0;
        break;
    default: /* narrow integers: the low bytes */
        out->bits = (uint64_t)i;
        break;
    }
}

static void slot_element(const run *r, uint32_t k, int dtype, scalar *out)
{
    const wf_fn *f = r->p->fn;
    if (f->ins[k].op == WF_OP_SCALAR) { /* a CONST is the function's own */
        k = wf_fn_origin(f, k + 1) - 1;
        f = r->a->fn;
    }
    uint32_t slot = f->ins[k].attr;
    bool real = f->slot_kind[slot] == 2;
    double d = wf_slot_f64(f->slot_kind[slot], f->slots[slot]);
    put_number(d, real ? wf_f64_to_i64(d) : (int64_t)f->slots[slot], real, dtype, out);
}

/* A number that the eager kernel of a row makes from its attributes and extents. */
static void row_number(const run *r, const wf_scalar_of *c, scalar *out)
{
    const wf_attr *at = attr_of(r, c->ins);
    double d = (double)c->n;
    if (c->kind == WF_SCALAR_EPS) {
        d = at->n_flt > 0 ? at->flt[0] : 1e-5;
    } else if (c->kind == WF_SCALAR_FREEDOM) {
        d -= at->n_flt > 0 ? at->flt[0] : 1.0;
        d = d > 0 ? d : 0;
    }
    put_number(d, c->n, true, c->dtype, out);
}

/* The same of cross entropy, as eager/loss.c and its kernels make them. */
static void loss_number(const run *r, const wf_scalar_of *c, scalar *out)
{
    const wf_attr *at = attr_of(r, c->ins);
    const double smooth = at->n_flt > 0 ? at->flt[0] : 0.0, share = smooth / (double)c->n;
    const int64_t ignore = at->n_dyn > 0 ? at->dyn[0] : -100;
    double d = 1.0 - smooth;
    if (c->kind == WF_SCALAR_SMOOTH) {
        d = smooth;
    } else if (c->kind == WF_SCALAR_SHARE) {
        d = share;
    } else if (c->kind == WF_SCALAR_THERE) {
        d = c->dtype == WEFT_F32 ? (double)((float)d + (float)share) : d + share;
    }
    put_number(d, ignore, true, c->dtype, out);
}

/* The numbers of a random row: extents, seed, offset and (of integers) the range are its integer slots. */
static void draw_number(const run *r, const wf_scalar_of *c, scalar *out)
{
    const wf_attr *at = attr_of(r, c->ins);
    const int64_t slot = c->n + (c->kind - WF_SCALAR_SEED), flt = c->kind - WF_SCALAR_LOW;
    const bool real = c->dtype == WEFT_F64;
    put_number(real && flt < at->n_flt ? at->flt[flt] : 0, real ? 0 : at->dyn[slot], real, c->dtype,
               out);
}

/* What the eager kernel of the row would fill with: the same kernel fills one element. */
static int fill_element(const run *r, const wf_scalar_of *c, scalar *out)
{
    wf_view one = {.data = out, .dtype = c->dtype, .rank = 0};
    wf_exec e = {
        .op = WF_OP_FULL, .ndst = 1, .dst = &one, .attr = attr_of(r, c->ins), .why = r->why};
    return explain(r, wf_exec_of(WF_OP_FULL)(&e));
}

static int set_scalars(run *r, const wf_plan_step *s, scalar *value, const void **at)
{
    const wf_scalar_of *c = &r->p->scalars[s->scalar];
    int rc = 0;
    for (uint32_t i = 0; i < s->nscalar && !rc; i++) {
        at[i] = &value[i];
        value[i].bits = 0;
        switch ((wf_scalar_kind)c[i].kind) {
        case WF_SCALAR_SLOT_VALUE:
            slot_element(r, c[i].ins, c[i].dtype, &value[i]);
            break;
        case WF_SCALAR_FILL:
            rc = fill_element(r, &c[i], &value[i]);
            break;
        case WF_SCALAR_COUNT:
        case WF_SCALAR_FREEDOM:
        case WF_SCALAR_EPS:
            row_number(r, &c[i], &value[i]);
            break;
        case WF_SCALAR_IGNORE:
        case WF_SCALAR_REST:
        case WF_SCALAR_SMOOTH:
        case WF_SCALAR_SHARE:
        case WF_SCALAR_THERE:
            loss_number(r, &c[i], &value[i]);
            break;
        case WF_SCALAR_SEED:
        case WF_SCALAR_OFFSET:
        case WF_SCALAR_LOW:
        case WF_SCALAR_HIGH:
            draw_number(r, &c[i], &value[i]);
            break;
        case WF_SCALAR_MINUS_ZERO:
            put_number(-0.0, 0, true, c[i].dtype, &value[i]);
            break;
        case WF_SCALAR_ZERO:
            break;
        }
    }
    return rc;
}

static void set_views(run *r, const wf_plan_step *s, wf_view *v)
{
    for (uint32_t i = 0; i < (uint32_t)s->ndst + s->nsrc; i++) {
        view_of(r, &r->p->accesses[s->access + i], &v[i]);
    }
}

int wf_plan_run_program(const wf_plan_program *g, const wf_program_args *a)
{
    return g->kernel ? wf_jitk_run(g->kernel, a) : wf_program_run_on(g->program, a);
}

/* -- several runs of one program ----------------------------------------------------------------------- */

enum { SMALL = 1 << 16 }; /* elements: runs up to this size share a task */

typedef struct many {
    const wf_plan_program *g;
    const wf_program_args *a;
    const uint32_t *small;
} many;

static void run_small(void *arg, int64_t begin, int64_t end)
{
    const many *m = arg;
    for (int64_t i = begin; i < end; i++) {
        wf_plan_run_program(m->g, &m->a[m->small[i]]); /* elementwise: cannot fail */
    }
}

/* Large ones one after the other, each by all threads; small ones side by side. */
static void run_many(const wf_plan_program *g, wf_program_args *a, uint32_t *small, uint32_t n)
{
    int64_t nsmall = 0, elements = 0, bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        bytes += wf_program_moves(g->program, &a[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        int64_t size = wf_view_numel(&a[i].dst[0]);
        if (size > SMALL) {
            a[i].beside = bytes - wf_program_moves(g->program, &a[i]);
            wf_plan_run_program(g, &a[i]);
        } else {
            small[nsmall++] = i;
            elements += size;
        }
    }
    many m = {g, a, small};
    int64_t each = elements / (nsmall ? nsmall : 1) + 1;
    wf_parallel_for(nsmall, SMALL / 4 / each + 1, run_small, &m);
}

/* On a device the program checks; this is what it says. */
static void say_checks(run *r, const wf_plan_step *s, wf_program_args *a)
{
    for (uint32_t i = 0; i < s->ncheck && i < CHECKS; i++) {
        const wf_plan_check *c = &r->p->checks[s->check + i];
        const wf_ins *ins = &r->p->fn->ins[c->ins];
        r->checked[i] = (wf_program_checked){.op = (wf_op)ins->op,
                                             .site = wf_plan_site(r->p, r->a->fn, c->ins),
                                             .bound = c->classes};
        for (int k = 0; k < WF_PROGRAM_CHECKED && k < ins->nsrc; k++) {
            r->checked[i].of[k] = wf_fn_type(r->p->fn, wf_ins_src(r->p->fn, ins)[k]);
        }
    }
    a->checked = s->ncheck <= CHECKS ? r->checked : NULL;
}

/* Class indices that the step (alone in its launch) reads; they lie one after the other along kept axes. */
static int check_indices(run *r, const wf_plan_step *s, const wf_program_args *a)
{
    int rc = 0;
    for (uint32_t i = 0; i < s->ncheck && !rc; i++) {
        const wf_plan_check *c = &r->p->checks[s->check + i];
        const wf_view *v = &a->src[c->source];
        wf_view rows = {.data = v->data, .dtype = v->dtype, .rank = 1, .dims = {1}, .strides = {1}};
        for (int d = v->rank; d-- > 0;) {
            if (!(s->axes >> d & 1) && v->dims[d] != 1) {
                rows.strides[0] = rows.dims[0] == 1 ? v->strides[d] : rows.strides[0];
                rows.dims[0] *= v->dims[d];
            }
        }
        rc = wf_targets_check(&rows, attr_of(r, c->ins), c->classes, r->why);
        r->refused = rc ? c->ins + 1 : 0;
    }
    return rc;
}

/* Views, scalars and arguments of n steps; views from v on. */
static int prepare_programs(run *r, const wf_plan_step *s, uint32_t n, wf_view *v)
{
    scalar *value = r->scalar;
    const void **at = r->scalar_at;
    for (uint32_t i = 0; i < n; i++) {
        set_views(r, &s[i], v);
        int rc = set_scalars(r, &s[i], value, at);
        if (rc) {
            return rc;
        }
        for (uint32_t k = 0; k < s[i].nsrc; k++) { /* an address that is no operand's */
            wf_view *drawn = &v[s[i].ndst + k];
            bool none = r->p->accesses[s[i].access + s[i].ndst + k].buffer == WF_BUFFER_DRAWN;
            drawn->data = none ? (char *)v->data + 1 : drawn->data;
        }
        r->args[i] = (wf_program_args){.dst = v,
                                       .src = v + s[i].ndst,
                                       .scalars = at,
                                       .axes = s[i].axes,
                                       .wait = (r->p->flags & WF_PLAN_SYNC) || r->expected};
        v += s[i].ndst + s[i].nsrc;
        value += s[i].nscalar;
        at += s[i].nscalar;
    }
    if (r->device) {
        say_checks(r, s, r->args);
        return 0;
    }
    return check_indices(r, s, r->args);
}

static int run_programs(run *r, const wf_plan_step *s, uint32_t n)
{
    const wf_plan_program *g = &r->p->programs[s->program];
    int bad = prepare_programs(r, s, n, r->view);
    if (bad) {
        return bad;
    }
    if (r->device) {
        return wf_device_programs(r->device, g->program, (int)n, r->args, r->why);
    }
    if (n == 1) {
        return explain(r, wf_plan_run_program(g, r->args));
    }
    run_many(g, r->args, r->small, n);
    return 0;
}

static int run_row(run *r, const wf_plan_step *s, const wf_epilogue *after, bool *finished)
{
    wf_exec e = {.after = after,
                 .op = (wf_op)s->op,
                 .nsrc = s->nsrc,
                 .ndst = s->ndst,
                 .src = r->view + s->ndst,
                 .dst = r->view,
                 .attr = attr_of(r, s->ins),
                 .why = r->why};
    int rc = r->device ? wf_device_row(r->device, &e) : wf_exec_of((wf_op)s->op)(&e);
    *finished = e.finished;
    if (r->device) { /* or errors of this row would be given the place of the next eager op */
        wf_cuda_sited(wf_plan_site(r->p, r->a->fn, s->ins));
    }
    return explain(r, rc);
}

/* A product or row-wise row, and the group that runs on its rows. */
static int run_product(run *r, const wf_plan_step *s)
{
    wf_plan_after x;
    bool finished = false;
    int rc = prepare_programs(r, &s[1], 1, r->view + s->ndst + s->nsrc);
    if (rc) {
        return rc;
    }
    if (wf_plan_finishes_rows((wf_op)s->op)) { /* of which no cache holds all */
        r->args[0].beside = wf_view_numel(&r->view[0]) * (int64_t)wf_dtype_size(r->view[0].dtype);
    }
    wf_plan_after_open(&x, &r->p->programs[s[1].program], r->args, &r->view[0]);
    rc = run_row(r, s, &(wf_epilogue){wf_plan_after_rows, &x}, &finished);
    if (rc) {
        return rc;
    }
    return explain(r, wf_plan_after_close(&x, finished));
}

/* Calls from here on are made again when numbers change. */
static int mark(const wf_plan_args *a, bool on, wf_why *why)
{
    return a->changes && !a->changes->again ? a->changes->mark(a->device - 1, on, why) : 0;
}

static bool draws(int op)
{
    return op >= WF_OP_RAND && op <= WF_OP_RANDPERM;
}

/* Do its numbers change from run to run? */
static bool step_changes(const run *r, const wf_plan_step *s)
{
    const wf_scalar_of *c = &r->p->scalars[s->scalar];
    const wf_fn *f = r->p->fn;
    bool changes = s->kind == WF_STEP_OP && draws(s->op);
    for (uint32_t i = 0; i < s->nscalar && !changes; i++) {
        const wf_val v = c[i].kind == WF_SCALAR_SLOT_VALUE && f->ins[c[i].ins].op == WF_OP_SCALAR
                             ? wf_fn_origin(f, c[i].ins + 1)
                             : 0;
        changes = c[i].kind == WF_SCALAR_OFFSET ||
                  (v && r->a->changes->slot && r->a->changes->slot[r->a->fn->ins[v - 1].attr]);
    }
    return changes;
}

static int run_launch(run *r, const wf_plan_step *s, uint32_t n);

/* The same for a recording whose numbers change. */
static int run_marked(run *r, const wf_plan_step *s, uint32_t n)
{
    const wf_plan_changes *c = r->a->changes;
    bool changes = false;
    for (uint32_t i = 0; i < n && !changes; i++) {
        changes = step_changes(r, &s[i]);
    }
    if (!changes) {
        return c->again ? 0 : run_launch(r, s, n);
    }
    if (s->kind == WF_STEP_OP && (n > 1 || !draws(s->op))) {
        return wf_fail(r->why, WEFT_EUNSUPPORTED, "%s takes a number that changes",
                       wf_rows[s->op].name);
    }
    int rc = mark(r->a, true, r->why);
    rc = rc ? rc : run_launch(r, s, n);
    return rc ? rc : mark(r->a, false, r->why);
}

/* Runs the n steps of one launch. */
static int run_launch(run *r, const wf_plan_step *s, uint32_t n)
{
    if (s->kind == WF_STEP_MAP) {
        return run_programs(r, s, n);
    }
    if (s->kind == WF_STEP_OP) {
        bool finished;
        set_views(r, s, r->view);
        return n > 1 ? run_product(r, s) : run_row(r, s, NULL, &finished);
    }
    if (r->device) {
        set_views(r, s, r->view);
        return wf_device_copy(r->device, &r->view[0], &r->view[1], r->why);
    }
    for (uint32_t i = 0; i < n; i++) {
        set_views(r, &s[i], r->view);
        if (wf_view_numel(&r->view[0]) > 0) {
            wf_copy(&r->view[0], &r->view[1]);
        }
    }
    return 0;
}

/* The first n steps have run, or the last of them has failed: outputs in whose memory they put something. */
static void mark_begun(const run *r, uint32_t n)
{
    const wf_plan *p = r->p;
    for (uint32_t s = 0; s < n && r->a->began; s++) {
        const wf_access *dst = &p->accesses[p->steps[s].access];
        for (int i = 0; i < p->steps[s].ndst; i++) {
            const wf_buffer *b = dst[i].buffer < 0 ? NULL : &p->buffers[dst[i].buffer];
            if (b && b->place == WF_PLACE_OUTPUT) {
                r->a->began[b->index] = 1;
            }
        }
    }
}

static int run_timed(run *r, const wf_plan_step *s, uint32_t n)
{
    const char *outer = wf_prof_label;
    wf_prof_label = wf_plan_launch_name(r->p, s);
    int64_t start = wf_plan_now();
    int rc = run_launch(r, s, n);
    int64_t end = wf_plan_now();
    wf_prof_label = outer;
    if (r->a->step_ns) {
        r->a->step_ns[s->launch] += end - start;
    }
    if (wf_prof_is_on()) {
        wf_plan_note(r->p, r->a->fn, s, n, start, end);
        if (s->kind == WF_STEP_MAP && r->p->programs[s->program].kernel) {
            wf_jitk_count(r->p->programs[s->program].kernel, end - start);
        }
    }
    if (r->p->tells) {
        wf_plan_tell(r->p, r->a->fn, s, n, end - start, r->device != 0);
    }
    return rc;
}

/* -- memory of a run --------------------------------------------------------------------------------- */

static size_t out_bytes(const wf_plan *p, uint32_t k)
{
    return (size_t)wf_type_bytes(&p->out_type[k]);
}

static int make_result(run *r, uint32_t k)
{
    wf_view *out = &r->a->out[k];
    if (r->a->back) {
        return r->a->back(r->a->user, k, r->why);
    }
    out->data = wf_alloc(out_bytes(r->p, k));
    if (!out->data) {
        return wf_fail(r->why, WEFT_ENOMEM, "out of memory for a result of %zu bytes",
                       out_bytes(r->p, k));
    }
    r->mine[k] = 1;
    wf_view_of_type(out, &r->p->out_type[k], out->data);
    return 0;
}

/* On a device, where a recording of numbers that change is walked through again, it is the same memory then. */
static void *make_on_device(const run *r, size_t bytes, void **address)
{
    void *block =
        mark(r->a, true, r->why) ? NULL : wf_device_alloc(r->device, bytes, address, r->why);
    if (block && mark(r->a, false, r->why)) {
        wf_device_free(block);
        block = NULL;
    }
    return block;
}

static int make_temporary(run *r, const wf_take *t)
{
    void **block = &r->block[t->slot - r->p->ninputs - r->p->noutputs], *address = NULL;
    if (r->device) {
        *block = make_on_device(r, (size_t)t->bytes, &address);
        r->memory[t->slot] = address;
        return *block ? 0 : r->why->code;
    }
    wf_kept *k = r->kept ? r->kept[block - r->block] : NULL;
    *block = k ? wf_kept_take(k) : wf_object((size_t)t->bytes);
    r->memory[t->slot] = *block;
    return *block ? 0
                  : wf_fail(r->why, WEFT_ENOMEM, "out of memory for %lld bytes of temporary values",
                            (long long)t->bytes);
}

static bool needs_memory(const run *r, uint32_t launch)
{
    return r->taken < r->p->ntakes && r->p->takes[r->taken].launch <= launch;
}

/* What is needed from a launch on. */
static int take_memory(run *r, uint32_t launch)
{
    const wf_plan *p = r->p;
    int rc = 0;
    for (; needs_memory(r, launch) && !rc; r->taken++) {
        const wf_take *t = &p->takes[r->taken];
        const uint32_t k = t->slot - p->ninputs;
        if (k >= p->noutputs) {
            rc = make_temporary(r, t);
        } else if (!r->memory[t->slot]) {
            rc = make_result(r, k);
            r->memory[t->slot] = r->a->out[k].data;
        }
    }
    if (wf_prof_is_on()) {
        wf_prof_memory();
    }
    return rc;
}

static void free_temporary(run *r, uint32_t i)
{
    const wf_plan *p = r->p;
    const uint32_t slot = p->ninputs + p->noutputs + i;
    if (r->device) {
        wf_device_free(r->block[i]); /* reused in stream order */
    } else if (r->block[i] && r->kept && r->kept[i]) {
        wf_kept_give(r->kept[i], r->block[i]);
    } else if (r->block[i]) {
        wf_free(r->block[i], (size_t)p->temporary[i]);
    }
    r->block[i] = NULL;
    r->memory[slot] = NULL;
}

/* What a launch was the last to need. */
static void give_memory(run *r, uint32_t launch)
{
    const wf_plan *p = r->p;
    for (; r->given < p->ngives && p->gives[r->given].launch <= launch; r->given++) {
        const uint32_t slot = p->gives[r->given].slot;
        if (slot >= p->ninputs) {
            free_temporary(r, slot - p->ninputs - p->noutputs);
        } else if (r->a->drop) {
            r->a->drop(r->a->user, slot);
        }
    }
}

/* The run is over, or has failed. */
static void free_memory(run *r, bool failed)
{
    const wf_plan *p = r->p;
    for (uint32_t i = 0; i < p->ntemporaries; i++) {
        if (r->block[i]) {
            free_temporary(r, i);
        }
    }
    for (uint32_t k = 0; k < p->noutputs && failed; k++) {
        if (r->mine[k]) {
            wf_free(r->a->out[k].data, out_bytes(p, k));
            r->a->out[k].data = NULL;
        }
    }
}

static int run_steps(run *r)
{
    const wf_plan *p = r->p;
    bool timed = r->a->step_ns || wf_prof_is_on() || p->tells;
    for (uint32_t s = 0, n; s < p->nsteps; s += n) {
        const uint32_t launch = p->steps[s].launch;
        for (n = 1; s + n < p->nsteps && p->steps[s + n].launch == launch;) {
            n++;
        }
        int rc = needs_memory(r, launch) ? take_memory(r, launch) : 0;
        const bool begun = !rc;
        rc = rc              ? rc
             : r->a->changes ? run_marked(r, &p->steps[s], n)
             : timed         ? run_timed(r, &p->steps[s], n)
                             : run_launch(r, &p->steps[s], n);
        const bool right = rc || !r->expected ||
                           wf_validate_launch(p, r->a->fn, &p->steps[s], n, r->device, r->memory,
                                              r->expected, r->why) == 0;
        rc = right ? rc : r->why->code;
        if (rc) {
            uint32_t k = r->refused ? r->refused - 1 : p->steps[s].ins;
            r->a->failed_op = (wf_op)p->fn->ins[k].op;
            r->a->failed_site = wf_plan_site(p, r->a->fn, k);
            /* an index that a device found is another op's, which is named already */
            const bool op = begun && right && p->steps[s].kind == WF_STEP_OP;
            const bool late = op && !r->refused && r->device && rc == WEFT_EINDEX;
            r->a->failed_named = r->refused || op;
            if (r->a->failed_named && !late) {
                wf_plan_name_failure(p, r->a->fn, k, r->why);
            }
            mark_begun(r, begun && !r->refused ? s + n : s);
            return rc;
        }
        if (r->given < p->ngives && p->gives[r->given].launch == launch) {
            give_memory(r, launch);
        }
    }
    const int rc = take_memory(r, p->nlaunches); /* results that no step makes */
    if (rc) {
        mark_begun(r, p->nsteps);
    }
    return rc;
}

/* -- a run -------------------------------------------------------------------------------------------- */

static size_t up(size_t n, size_t size)
{
    return (n * size + 63) / 64 * 64;
}

/* The room's parts, one behind the other. */
static void *part(char **room, size_t n, size_t size)
{
    void *p = *room;
    *room += up(n, size);
    return p;
}

/* Bytes of what a run needs besides memory of values. */
static size_t room_of(const wf_plan *p)
{
    return up(p->ninputs + p->noutputs + p->ntemporaries, sizeof(char *)) +
           up(p->ntemporaries, sizeof(void *)) + up(p->noutputs, 1) +
           up(p->most_views, sizeof(wf_view)) + up(p->most_scalars, sizeof(scalar)) +
           up(p->most_scalars, sizeof(void *)) + up(p->most_steps, sizeof(wf_program_args)) +
           up(p->most_steps, sizeof(uint32_t));
}

static void divide_room(run *r, char *room)
{
    const wf_plan *p = r->p;
    r->memory = part(&room, p->ninputs + p->noutputs + p->ntemporaries, sizeof(char *));
    r->block = part(&room, p->ntemporaries, sizeof(void *));
    r->mine = part(&room, p->noutputs, 1);
    r->view = part(&room, p->most_views, sizeof(wf_view));
    r->scalar = part(&room, p->most_scalars, sizeof(scalar));
    r->scalar_at = part(&room, p->most_scalars, sizeof(void *));
    r->args = part(&room, p->most_steps, sizeof(wf_program_args));
    r->small = part(&room, p->most_steps, sizeof(uint32_t));
    for (uint32_t j = 0; j < p->ninputs; j++) {
        r->memory[j] = r->a->in[j].data;
    }
    for (uint32_t k = 0; k < p->noutputs; k++) {
        r->memory[p->ninputs + k] = r->a->out[k].data;
        r->mine[k] = 0;
    }
    for (uint32_t i = 0; i < p->ntemporaries; i++) {
        r->block[i] = NULL;
    }
}

/* An array of n places is twice as long: what each block is kept in, and behind that each place once. */
static void drop_kept(wf_kept **kept, uint32_t n)
{
    for (uint32_t i = 0; i < n && kept; i++) {
        wf_kept_close(kept[n + i]);
    }
    wf_mfree(kept);
}

/* The array is the plan's, unless another thread was first. */
static wf_kept **publish(wf_kept **_Atomic *at, wf_kept **kept, uint32_t n)
{
    wf_kept **none = NULL;
    if (kept && !atomic_compare_exchange_strong_explicit(at, &none, kept, memory_order_acq_rel,
                                                         memory_order_acquire)) {
        drop_kept(kept, n);
        return none;
    }
    return kept;
}

/* Temporaries of one size that are not there at the same time share a place: all of them wait in as much memory as a run takes.
 * `until`: by place, the launch that gives it back; room for all, and for where each temporary's take and give are. */
static void share_places(const wf_plan *p, wf_kept **kept, uint32_t *until)
{
    const uint32_t n = p->ntemporaries, first = p->ninputs + p->noutputs;
    uint32_t *const last = until + n;
    uint32_t places = 0;
    for (uint32_t i = 0; i < p->ngives; i++) {
        if (p->gives[i].slot >= first) {
            last[p->gives[i].slot - first] = p->gives[i].launch;
        }
    }
    for (uint32_t i = 0; i < p->ntakes; i++) { /* in the order of launches */
        const wf_take *t = &p->takes[i];
        uint32_t k = 0;
        if (t->slot < first || t->bytes < WF_KEPT_FROM) {
            continue;
        }
        while (k < places && (until[k] >= t->launch || !kept[n + k] ||
                              wf_kept_size(kept[n + k]) != (size_t)t->bytes)) {
            k++;
        }
        if (k == places) {
            kept[n + places++] = wf_kept_new((size_t)t->bytes);
        }
        kept[t->slot - first] = kept[n + k];
        until[k] = last[t->slot - first];
    }
}

/* From the second run on. */
static wf_kept **keep_temporaries(wf_plan *p)
{
    const uint32_t n = p->ntemporaries;
    if (!n || !atomic_exchange_explicit(&p->has_run, true, memory_order_relaxed)) {
        return NULL;
    }
    wf_kept **kept = wf_calloc(2 * (size_t)n, sizeof *kept);
    uint32_t *until = wf_malloc(2 * (size_t)n * sizeof *until);
    if (kept && until) {
        share_places(p, kept, until);
    }
    wf_mfree(until);
    return publish(&p->temporary_kept, kept, n);
}

wf_kept *const *wf_plan_results(wf_plan *p)
{
    wf_kept **kept = atomic_load_explicit(&p->result_kept, memory_order_acquire);
    const uint32_t n = p->noutputs;
    if (kept || !n) {
        return kept;
    }
    kept = wf_calloc(2 * (size_t)n, sizeof *kept);
    for (uint32_t k = 0; k < n && kept; k++) {
        if (!p->writes || p->writes[k] < 0) {
            kept[k] = kept[n + k] = wf_kept_new(out_bytes(p, k));
        }
    }
    return publish(&p->result_kept, kept, n);
}

void wf_plan_drop_spare(wf_plan *p)
{
    drop_kept(atomic_load_explicit(&p->result_kept, memory_order_acquire), p->noutputs);
    drop_kept(atomic_load_explicit(&p->temporary_kept, memory_order_acquire), p->ntemporaries);
    wf_free(atomic_exchange_explicit(&p->spare, NULL, memory_order_acquire), room_of(p));
}

/* The room that a run before left, or new room. NULL: no memory. */
static char *get_room(wf_plan *p, size_t bytes)
{
    char *room = atomic_exchange_explicit(&p->spare, NULL, memory_order_acquire);
    return room ? room : wf_alloc(bytes);
}

static void leave_room(wf_plan *p, char *room, size_t bytes)
{
    void *none = NULL;
    if (!atomic_compare_exchange_strong_explicit(&p->spare, &none, room, memory_order_release,
                                                 memory_order_relaxed)) {
        wf_free(room, bytes); /* another thread's */
    }
}

int wf_plan_run_steps(wf_plan *p, wf_plan_args *a, wf_why *why)
{
    _Alignas(64) char few[FEW_BYTES];
    const size_t bytes = room_of(p);
    a->failed_op = WF_OP_INVALID;
    a->failed_site = NULL;
    a->failed_named = false;
    if (a->began) {
        memset(a->began, 0, p->noutputs);
    }
    char *room = bytes <= sizeof few ? few : get_room(p, bytes);
    if (!room) {
        return wf_fail(why, WEFT_ENOMEM, "out of memory for %zu bytes of temporary values", bytes);
    }
    run r = {.p = p, .a = a, .why = why, .device = (uint8_t)a->device};
    r.kept = atomic_load_explicit(&p->temporary_kept, memory_order_acquire);
    r.kept = r.kept || r.device ? r.kept : keep_temporaries(p);
    r.expected = p->validates ? wf_validate_begin(p, a) : NULL;
    divide_room(&r, room);
    unsigned mode = wf_fpenv_enter();
    int rc = run_steps(&r);
    wf_fpenv_leave(mode);
    free_memory(&r, rc != 0);
    wf_validate_end(p, r.expected);
    if (room != few) {
        leave_room(p, room, bytes);
    }
    return rc;
}
