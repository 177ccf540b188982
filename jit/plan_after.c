/*
 * jit/plan_after.c -- epilogues: a group that runs on rows of a matrix product, or of a row-wise row, as they are finished.
 *
 * A group behind a product (bias, activation, residual, a norm of its rows) reads the product from memory.
 * Where every operand of the group can be cut into the product's rows, the two are one launch: the thread that
 * finished a block of rows runs the group on them while they are in its caches. The group's program is the same,
 * and no element depends on how rows are cut, so no bit changes. Where the product's blocks are not whole rows,
 * or fewer than threads, the group runs behind it as ever. So with a softmax or the like that stays closed, along its last
 * axis, whose result no cache holds: of smaller ones a launch of its own finds the rows in a cache, too, with fewer calls.
 *
 * Invariant: what the product reads is not written by the group. Both have one launch number, which keeps their
 * memory apart; only the product itself may be overwritten in place (plan_buffers.c).
 */
#include "eager/profile.h"
#include "eager/rows.h"
#include "jit/plan_after.h"

/* The view with all axes before those of a row (n elements) as one; false if it cannot be seen so. */
static bool fold_rows(const wf_view *v, int64_t n, wf_view *out, int *lead)
{
    int64_t row = 1, rows = 1, stride = 0;
    int q = v->rank;
    while (q > 0 && row < n) {
        row *= v->dims[--q];
    }
    if (row != n || q == 0) {
        return false;
    }
    for (int i = q; i-- > 0;) {
        if (v->dims[i] == 1) {
            continue;
        }
        if (rows > 1 && v->strides[i] != stride * rows) {
            return false;
        }
        stride = rows > 1 ? stride : v->strides[i];
        rows *= v->dims[i];
    }
    *out = (wf_view){.data = v->data, .dtype = v->dtype, .device = v->device};
    out->rank = (uint8_t)(v->rank - q + 1);
    out->dims[0] = rows;
    out->strides[0] = stride;
    for (int i = q; i < v->rank; i++) {
        out->dims[1 + i - q] = v->dims[i];
        out->strides[1 + i - q] = v->strides[i];
    }
    *lead = q;
    return true;
}

static void view_of(const wf_planner *b, const wf_access *a, wf_view *v)
{
    *v = (wf_view){.dtype = a->dtype, .rank = a->rank};
    for (int i = 0; i < a->rank; i++) {
        v->dims[i] = b->l.words[a->shape + (uint32_t)i];
        v->strides[i] = b->l.words[a->shape + a->rank + (uint32_t)i];
    }
}

static bool is_product(const wf_planner *b, const wf_plan_step *s)
{
    const wf_access *a = &b->p->accesses[s->access];
    bool rows = s->op == WF_OP_LINEAR || (s->op == WF_OP_MATMUL && a[1].rank > 1 && a[2].rank > 1);
    return s->kind == WF_STEP_OP && rows && a[0].rank > 1 && a[0].buffer >= 0 &&
           (WF_BIT(a[0].dtype) & WF_DT_F) != 0;
}

bool wf_plan_finishes_rows(wf_op op)
{
    return op == WF_OP_SOFTMAX || op == WF_OP_SOFTMAX_BWD || op == WF_OP_LOG_SOFTMAX ||
           op == WF_OP_LOG_SOFTMAX_BWD || op == WF_OP_CROSS_ENTROPY_BWD;
}

/* A row that hands on finished rows (eager/rows.h). */
static bool is_row_wise(const wf_planner *b, const wf_plan_step *s)
{
    const wf_access *a = &b->p->accesses[s->access];
    const wf_attr *at = &b->f->attrs[b->f->ins[s->ins].attr];
    wf_view v;
    if (s->kind != WF_STEP_OP || !wf_plan_finishes_rows((wf_op)s->op) || a[0].rank < 2 ||
        a[0].buffer < 0 || (a[0].dtype != WEFT_F32 && a[0].dtype != WEFT_F64)) {
        return false;
    }
    view_of(b, &a[0], &v);
    const bool last =
        s->op == WF_OP_CROSS_ENTROPY_BWD || at->n_ints == 0 || at->ints[0] == v.rank - 1;
    return last && wf_view_numel(&v) * (int64_t)wf_dtype_size(v.dtype) > WF_STREAM_BYTES;
}

/* Does the group make one result of the row's alone, which nobody else reads, and so in its place, by a few operations? Another operand
 * would have to come from far between the rows, what is written elsewhere could no longer pass the caches, and what computes for
 * long hides in a launch of its own what it reads: softmax times a tensor took 1.15 of the time of two launches. */
static bool takes_its_place(const wf_planner *b, const wf_plan_step *op, const wf_plan_step *s)
{
    const wf_plan *p = b->p;
    const int32_t rows = p->accesses[op->access].buffer;
    bool alone = s->ndst == 1 && s->nsrc == 1 && !p->programs[s->program].program->heavy;
    for (uint32_t i = 0; i < p->nsteps && alone; i++) {
        const wf_plan_step *x = &p->steps[i];
        for (uint32_t n = 0; n < (uint32_t)x->ndst + x->nsrc && x != op && x != s; n++) {
            alone &= p->accesses[x->access + n].buffer != rows;
        }
    }
    for (uint32_t k = 0; k < b->f->noutputs && alone; k++) {
        alone = b->buffer_of[b->l.map[b->f->outputs[k]].root] != rows;
    }
    return alone;
}

bool wf_plan_may_follow(const wf_planner *b, const wf_plan_step *op, const wf_plan_step *s)
{
    const wf_plan *p = b->p;
    if (s->kind != WF_STEP_MAP || s->ncheck ||
        !(is_product(b, op) || (is_row_wise(b, op) && takes_its_place(b, op, s))) ||
        wf_program_draws(p->programs[s->program].program)) {
        return false;
    }
    const wf_access *c = &p->accesses[op->access], *a = &p->accesses[s->access];
    wf_view cv, v, folded;
    bool reads = false;
    view_of(b, c, &cv);
    const int64_t n = cv.dims[cv.rank - 1], count = wf_view_numel(&cv);
    for (int i = 0; i < s->ndst + s->nsrc; i++) {
        int lead = 0;
        view_of(b, &a[i], &v);
        if (a[i].buffer < 0 || wf_view_numel(&v) != count || !fold_rows(&v, n, &folded, &lead) ||
            folded.dims[0] < 2 || (s->axes & ((1u << lead) - 1))) {
            return false;
        }
        bool product = a[i].buffer == c->buffer;
        if (product && (a[i].offset || a[i].nterms || !wf_view_is_contiguous(&v))) {
            return false;
        }
        reads |= product && i >= s->ndst;
    }
    return reads;
}

void wf_plan_after_open(wf_plan_after *x, const wf_plan_program *g, const wf_program_args *a,
                        const wf_view *product)
{
    const wf_program *p = g->program;
    const int64_t n = product->dims[product->rank - 1];
    int lead = 1; /* of every view: wf_plan_may_follow has seen that they fold */
    for (int i = 0; i < p->noutput + p->ninput; i++) {
        fold_rows(i < p->noutput ? &a->dst[i] : &a->src[i - p->noutput], n, &x->view[i], &lead);
    }
    x->g = g;
    x->args = *a;
    x->args.axes = a->axes >> (lead - 1);
    x->timed = wf_prof_is_on();
    atomic_init(&x->status, 0);
    atomic_init(&x->ns, 0);
}

int wf_plan_after_close(wf_plan_after *x, bool finished)
{
    if (!finished) {
        wf_plan_after_rows(x, 0, x->view[0].dims[0]);
    }
    if (x->timed && x->g->kernel) {
        wf_jitk_count(x->g->kernel, atomic_load_explicit(&x->ns, memory_order_relaxed));
    }
    return atomic_load_explicit(&x->status, memory_order_relaxed);
}

void wf_plan_after_rows(void *arg, int64_t first, int64_t count)
{
    wf_plan_after *x = arg;
    const wf_program *p = x->g->program;
    wf_view view[WF_PROGRAM_OUTPUTS + WF_PROGRAM_INPUTS];
    for (int i = 0; i < p->noutput + p->ninput; i++) {
        view[i] = x->view[i];
        view[i].dims[0] = count;
        view[i].data = (char *)view[i].data +
                       first * view[i].strides[0] * (int64_t)wf_dtype_size(view[i].dtype);
    }
    wf_program_args a = x->args;
    a.dst = view;
    a.src = view + p->noutput;
    const int64_t start = x->timed ? wf_plan_now() : 0;
    int rc = wf_plan_run_program(x->g, &a);
    if (x->timed) {
        atomic_fetch_add_explicit(&x->ns, wf_plan_now() - start, memory_order_relaxed);
    }
    if (rc) {
        atomic_store_explicit(&x->status, rc, memory_order_relaxed);
    }
}
