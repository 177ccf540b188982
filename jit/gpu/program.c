/*
 * jit/gpu/program.c -- programs, copies and fills on views of device memory.
 */
#include "eager/alloc.h"
#include "eager/env.h"
#include "jit/gpu/impl.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static int start(int ordinal, const wf_program *p, const wf_program_args *a, bool later,
                 wf_why *why)
{
    return p->rows ? wf_gpu_rows_program(ordinal, p, a, later, why)
                   : wf_gpu_map_program(ordinal, p, a, later, why);
}

static _Thread_local bool too_late; /* part of this thread's program is queued */

int wf_gpu_too_late(int status)
{
    too_late = too_late || status != 0;
    return status;
}

/* -- destinations of other types ------------------------------------------------------------------------------- */
/* A destination of another type than its value's takes a rounding cast: is there one? */
static bool rounds(const wf_program *p, const wf_program_args *a)
{
    for (int k = 0; k < p->noutput; k++)
        if (a->dst[k].dtype != p->type[p->output[k]])
            return true;
    return false;
}

static int replay(const wf_program *p, const wf_inst *inst, wf_program *q, const int16_t *value)
{
    int src[5] = {-1, -1, -1, -1, -1};
    for (int k = 0; k < inst->nsrc; k++)
        src[k] = inst->src[k] < 0 ? -1 : value[inst->src[k]];
    switch ((wf_inst_kind)inst->kind) {
    case WF_INST_MAP:
        return wf_program_map(q, (wf_op)inst->op, inst->compute, inst->nsrc, src);
    case WF_INST_VJP:
        return wf_program_vjp(q, (wf_op)inst->op, inst->which, inst->compute, inst->nsrc, src);
    case WF_INST_CAST:
        return wf_program_cast(q, src[0], p->type[inst->value]);
    case WF_INST_REDUCE:
        return wf_program_reduce(q, (wf_op)inst->op, src[0]);
    case WF_INST_EXPAND:
        return wf_program_expand(q, src[0], (wf_level)p->level[inst->value]);
    case WF_INST_PICK:
        return wf_program_pick(q, src[0], src[1]);
    case WF_INST_IOTA:
        return wf_program_iota(q, p->type[inst->value]);
    case WF_INST_CHECK:
        if (inst->nsrc > 1)
            wf_program_check_index(q, src[0], src[1]);
        else
            wf_program_check(q, src[0]);
        break;
    }
    return -1;
}

static int redraw(const wf_program *p, int i, wf_program *q, const int16_t *value)
{
    int scalar[WF_DRAW_SCALARS];
    for (int k = 0; k < WF_DRAW_SCALARS; k++)
        scalar[k] = value[p->scalar[p->draw[i].scalar[k]]];
    return wf_program_draw(q, (wf_op)p->draw[i].op, p->type[p->input[i]], scalar);
}

/* q := p with the casts written out. */
static bool write_casts(const wf_program *p, const wf_program_args *a, wf_program *q)
{
    int16_t value[WF_PROGRAM_VALUES];
    wf_program_init(q);
    q->fast = p->fast;
    for (int i = 0; i < p->nscalar; i++)
        value[p->scalar[i]] = (int16_t)wf_program_scalar(q, p->type[p->scalar[i]]);
    for (int i = 0; i < p->ninput && !q->failed; i++) {
        const int v = p->input[i];
        value[v] = (int16_t)(p->draw[i].op != WF_OP_INVALID ? redraw(p, i, q, value)
                             : p->level[v] == WF_LEVEL_ROW  ? wf_program_input_row(q, p->type[v])
                                                            : wf_program_input(q, p->type[v]));
    }
    for (int i = 0; i < p->ninst; i++) {
        const int v = replay(p, &p->inst[i], q, value);
        if (p->inst[i].value >= 0)
            value[p->inst[i].value] = (int16_t)v;
    }
    for (int k = 0; k < p->noutput; k++)
        wf_program_output_at(q, wf_program_cast(q, value[p->output[k]], a->dst[k].dtype),
                             (wf_level)p->output_level[k]);
    return wf_program_finish(q) == 0;
}

int wf_gpu_program_now(int ordinal, const wf_program *p, const wf_program_args *a, wf_why *why)
{
    return start(ordinal, p, a, false, why);
}

int wf_gpu_program(int ordinal, const wf_program *p, uint32_t one, const wf_program_args *a,
                   wf_why *why)
{
    (void)one;
    wf_program q;
    if (rounds(p, a)) {
        if (!write_casts(p, a, &q))
            return wf_fail(why, WEFT_EUNSUPPORTED,
                           "a program is too large for the casts of its results");
        p = &q;
    }
    int known;
    too_late = false;
    if (p->number && wf_gpu_run_known(ordinal, p, a, &known, why))
        return known;
    const bool can_single = wf_gpu_can_single(p);
    if (!can_single || wf_env()->WEFT_JIT != 0) {
        const bool later = wf_env()->WEFT_JIT == 1 && can_single && !a->wait && !p->fast;
        const int status = start(ordinal, p, a, later, why);
        const bool none = !too_late && (status == WEFT_EUNSUPPORTED || status == WEFT_ENOMEM);
        if (status != WF_GPU_PENDING && !(none && can_single))
            return status;
    }
    if (why)
        *why = (wf_why){0};
    wf_gpu_count_single();
    return wf_gpu_run_singles(ordinal, p, a, why);
}

/* Have all runs destinations of the first one's types? */
static bool same_types(const wf_program *p, int n, const wf_program_args *a)
{
    for (int i = 1; i < n; i++)
        for (int k = 0; k < p->noutput; k++)
            if (a[i].dst[k].dtype != a[0].dst[k].dtype)
                return false;
    return true;
}

/* Runs of p, whose results have its types: those that can share launches, then the others. */
static int run_all(int ordinal, const wf_program *p, int n, const wf_program_args *a, uint8_t *done,
                   wf_why *why)
{
    const bool can_single = wf_gpu_can_single(p);
    const int64_t jit = wf_env()->WEFT_JIT;
    const bool later = jit == 1 && can_single && !a->wait && !p->fast;
    int status = 0;
    if (!(can_single && jit == 0))
        status = (p->rows ? wf_gpu_rows_many : wf_gpu_map_many)(ordinal, p, n, a, later, done, why);
    const bool pending = status == WF_GPU_PENDING;
    status = pending ? 0 : status;
    for (int i = 0; i < n && status == 0; i++) {
        if (done[i])
            continue;
        if (pending) { /* and not by a kernel of its own, which nobody will want again */
            wf_gpu_count_single();
            status = wf_gpu_run_singles(ordinal, p, &a[i], why);
        } else {
            status = wf_gpu_program(ordinal, p, 0, &a[i], why);
        }
    }
    return status;
}

int wf_gpu_programs(int ordinal, const wf_program *p, int n, const wf_program_args *a, wf_why *why)
{
    wf_program q;
    wf_why own = {0};
    why = why ? why : &own;
    int status = 0;
    const bool casts = n > 0 && rounds(p, a);
    uint8_t *done = n > 1 && same_types(p, n, a) && (!casts || write_casts(p, a, &q))
                        ? wf_alloc((size_t)n)
                        : NULL;
    if (done) {
        memset(done, 0, (size_t)n);
        status = run_all(ordinal, casts ? &q : p, n, a, done, why);
        wf_free(done, (size_t)n);
        return status;
    }
    for (int i = 0; i < n && status == 0; i++)
        status = wf_gpu_program(ordinal, p, 0, &a[i], why);
    return status;
}

/* Programs of one cast, or of a value everywhere [.][WEFT_DTYPE_DEFAULT], made when they are first needed. */
enum { TYPES = 16 };
static wf_program *_Atomic casts[TYPES][TYPES];

static const wf_program *cast_of(int to, int from, wf_why *why)
{
    wf_program *p = atomic_load_explicit(&casts[to][from], memory_order_acquire), *other = NULL;
    if (p)
        return p;
    p = malloc(sizeof *p);
    if (!p) {
        wf_fail(why, WEFT_ENOMEM, "out of memory for a kernel");
        return NULL;
    }
    wf_program_init(p);
    wf_program_output(p, from == WEFT_DTYPE_DEFAULT
                             ? wf_program_scalar(p, to)
                             : wf_program_cast(p, wf_program_input(p, from), to));
    if (wf_program_finish(p) != 0) {
        free(p);
        wf_fail(why, WEFT_EUNSUPPORTED, "no program writes %s", wf_dtype_name(to));
        return NULL;
    }
    wf_program_number(p);
    if (atomic_compare_exchange_strong(&casts[to][from], &other, p))
        return p;
    free(p);
    return other;
}

static int run_cast(int ordinal, int from, const wf_program_args *a, wf_why *why)
{
    wf_why own = {0};
    int status;
    why = why ? why : &own;
    const wf_program *p = cast_of(a->dst->dtype, from, why);
    return !p ? why->code
           : wf_gpu_run_known(ordinal, p, a, &status, why)
               ? status
               : wf_gpu_map_program(ordinal, p, a, false, why);
}

int wf_gpu_copy(int ordinal, const wf_view *dst, const wf_view *src, wf_why *why)
{
    if (wf_view_numel(dst) == 0)
        return 0;
    if (dst->dtype == src->dtype && wf_view_is_contiguous(dst) && wf_view_is_contiguous(src))
        return wf_cuda_move(ordinal, dst->data, src->data, wf_view_bytes(dst), why);
    int status = 0;
    if (wf_gpu_transpose(ordinal, dst, src, &status, why))
        return status;
    return run_cast(ordinal, src->dtype, &(wf_program_args){.dst = dst, .src = src}, why);
}

int wf_gpu_fill(int ordinal, const wf_view *dst, const void *value, wf_why *why)
{
    return run_cast(ordinal, WEFT_DTYPE_DEFAULT, &(wf_program_args){.dst = dst, .scalars = &value},
                    why);
}
