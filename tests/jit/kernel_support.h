/*
 * tests/jit/kernel_support.h -- random fused groups, operands of every form for them, and running them
 * natively and on the interpreter.
 */
#ifndef TESTS_JIT_KERNEL_SUPPORT_H
#define TESTS_JIT_KERNEL_SUPPORT_H

#include "tests/gpu/runner.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager/exec.h"
#include "jit/ir/cuda_text.h"
#include "jit/kernels.h"
#include "tests/jit/llvm_support.h"

static uint64_t rng_state = 0xA0761D6478BD642Fu;

static inline uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state;
}
static inline int below(int n)
{
    return (int)(rng() % (uint64_t)n);
}

/* -- random programs -------------------------------------------------------------------------------------- */
/* At most one number is drawn in an expression: which of two arguments comes first is left to the compiler, and every compiler is to draw
 * the same programs (their kernels are on record: tests/jit/nvrtc_record.h). */
static const int storage[] = {WEFT_F32, WEFT_F32, WEFT_BF16, WEFT_F16, WEFT_F64, WEFT_BOOL,
                              WEFT_I32, WEFT_U8,  WEFT_I64,  WEFT_I8,  WEFT_I16};
enum { NSTORAGE = sizeof storage / sizeof *storage, VALUES = 40 };

typedef struct sample {
    wf_program p;
    int value[VALUES], count;
} sample;

static inline void keep(sample *s, int value)
{
    cr_assert_geq(value, 0);
    s->value[s->count++] = value;
}

/* A row, its derivative or a cast of values drawn. False if what was drawn does not exist. */
static inline bool step(sample *s)
{
    static const int computes[] = {WEFT_F32, WEFT_F32, WEFT_F32,  WEFT_F64, WEFT_I32,
                                   WEFT_U8,  WEFT_I64, WEFT_BOOL, WEFT_I16, WEFT_I8};
    const int compute = computes[below(10)];
    const wf_op op = (wf_op)(1 + below(WF_OP_COUNT - 1));
    int src[5];
    if (below(4) == 0) {
        const int type = storage[below(NSTORAGE)];
        keep(s, wf_program_cast(&s->p, s->value[below(s->count)], type));
        return true;
    }
    if (!wf_op_is_elementwise(op) || !(wf_rows[op].types & WF_BIT(compute)))
        return false;
    const int which = below(wf_rows[op].min_src);
    const bool vjp = below(4) == 0 && wf_kir_has_vjp(op, which, compute);
    if (vjp && !wf_vjp_reads(op, which)) /* programs take those as constants */
        return false;
    const int nsrc = wf_rows[op].min_src + (vjp ? 2 : 0);
    for (int k = 0; k < nsrc; k++)
        src[k] = s->value[below(s->count)];
    keep(s, vjp ? wf_program_vjp(&s->p, op, which, compute, nsrc, src)
                : wf_program_map(&s->p, op, compute, nsrc, src));
    return true;
}

static inline void draw(sample *s, int steps)
{
    memset(s, 0, sizeof *s);
    wf_program_init(&s->p);
    const int inputs = 1 + below(5), scalars = below(3);
    for (int i = 0; i < inputs; i++)
        keep(s, wf_program_input(&s->p, storage[below(NSTORAGE)]));
    for (int i = 0; i < scalars; i++)
        keep(s, wf_program_scalar(&s->p, storage[below(NSTORAGE)]));
    while (steps > 0)
        steps -= step(s);
    const int outputs = 1 + below(3);
    for (int o = 0; o < outputs; o++)
        wf_program_output(&s->p, s->value[o == 0 ? s->count - 1 : below(s->count)]);
    cr_assert_eq(wf_program_finish(&s->p), 0);
}

/* -- operands ------------------------------------------------------------------------------------------------ */
enum { MAXOPS = WF_PROGRAM_INPUTS + WF_PROGRAM_OUTPUTS };

typedef struct operands {
    wf_view dst[WF_PROGRAM_OUTPUTS], want[WF_PROGRAM_OUTPUTS], src[WF_PROGRAM_INPUTS];
    const void *scalar[WF_PROGRAM_SCALARS];
    void *memory[2 * MAXOPS + WF_PROGRAM_SCALARS];
    int nmemory;
    uint32_t one;
    unsigned axes;
} operands;

static inline void *keep_memory(operands *o, void *p)
{
    cr_assert_not_null(p);
    o->memory[o->nmemory++] = p;
    return p;
}

static inline void drop_operands(operands *o)
{
    for (int i = 0; i < o->nmemory; i++)
        free(o->memory[i]);
}

/* Row-major views of dims; sources are plain, broadcast along either axis, transposed, with gaps, or one element. */
static inline void make_operands(operands *o, const wf_program *p, int rank, const int64_t *dims,
                                 bool plain, int seed)
{
    memset(o, 0, sizeof *o);
    const int64_t n = rank == 2 ? dims[0] * dims[1] : dims[0];
    /* what a view without elements spans: a row or a column */
    const int64_t reach = dims[0] + (rank == 2 ? dims[1] : 0);
    wf_view base = {.rank = (uint8_t)rank};
    memcpy(base.dims, dims, (size_t)rank * sizeof *dims);
    base.strides[rank - 1] = 1;
    if (rank == 2)
        base.strides[0] = dims[1];
    for (int k = 0; k < p->noutput; k++) {
        wf_view v = base;
        v.dtype = p->type[p->output[k]];
        if (p->rows && p->output_level[k] == WF_LEVEL_ROW) { /* the last axis is reduced */
            v.strides[rank - 1] = 0;
            v.strides[0] = rank == 2;
        }
        for (int w = 0; w < 2; w++) {
            v.data = keep_memory(o, calloc((size_t)n + 8, 8));
            memset(v.data, 0x5A, ((size_t)n + 8) * 8);
            *(w ? &o->want[k] : &o->dst[k]) = v;
        }
    }
    for (int k = 0; k < p->ninput; k++) {
        wf_view v = base;
        v.dtype = p->type[p->input[k]];
        v.data = keep_memory(o, values_new(v.dtype, 2 * (n > 0 ? n : reach) + 1, seed + k));
        const int form = plain ? 9 : below(10);
        if (p->level[p->input[k]] == WF_LEVEL_ROW) {
            v.strides[rank - 1] = 0;
            v.strides[0] = rank == 2 ? 1 + (form < 3) : 0;
        } else if (form == 0 || form == 1) {
            memset(v.strides, 0, sizeof v.strides);
            o->one |= form == 1 ? 1u << k : 0;
        } else if (form == 2 && rank == 2) {
            v.strides[0] = 0;
        } else if (form == 3 && rank == 2) {
            v.strides[0] = 1;
            v.strides[1] = 0;
        } else if (form == 4 && rank == 2) {
            v.strides[0] = 1;
            v.strides[1] = dims[0];
        } else if (form == 5) {
            v.strides[rank - 1] = 2;
            v.strides[0] = rank == 2 ? 2 * dims[1] : 2;
        }
        o->src[k] = v;
    }
    for (int k = 0; k < p->nscalar; k++) {
        const int dtype = p->type[p->scalar[k]];
        char *x = keep_memory(o, values_new(dtype, 64, 0));
        o->scalar[k] = x + (size_t)(seed + k) % 64 * wf_dtype_size(dtype);
    }
}

static inline void check_outputs(const operands *o, const wf_program *p, const char *what,
                                 int width)
{
    const wf_target target = {.arch = what, .width = width};
    for (int k = 0; k < p->noutput; k++) {
        int64_t n = wf_view_numel(&o->dst[k]);
        const size_t size = wf_dtype_size(o->dst[k].dtype);
        if (p->rows && p->output_level[k] == WF_LEVEL_ROW)
            n = o->dst[k].rank == 2 ? o->dst[k].dims[0] : 1;
        llvm_compare(o->dst[k].data, o->want[k].data, o->dst[k].dtype, n, what, &target);
        cr_assert_eq(memcmp((char *)o->dst[k].data + (size_t)n * size,
                            (char *)o->want[k].data + (size_t)n * size, 8),
                     0, "%s wrote past its end", what);
    }
}

static inline void run_both(wf_jitk *k, const wf_program *p, operands *o, int width)
{
    const wf_program_args native = {
        .dst = o->dst, .src = o->src, .scalars = o->scalar, .axes = o->axes};
    const wf_program_args tiles = {
        .dst = o->want, .src = o->src, .scalars = o->scalar, .axes = o->axes};
    cr_assert_eq(wf_jitk_wait(k), WF_JITK_NATIVE, "%s: %s", wf_jitk_name(k), wf_jitk_reason(k));
    const int status = wf_program_run_on(p, &tiles);
    cr_assert_eq(wf_jitk_run(k, &native), status, "%s", wf_jitk_name(k));
    check_outputs(o, p, wf_jitk_name(k), width);
}

/* Every operand of elements as vectors. */
static inline void take_vectors(wf_cu_rows *r, int vector, bool shift)
{
    const wf_rows_kernel *rows = r->k->rows;
    for (int o = 0; o < rows->ndst + r->k->nsrc && vector > 1; o++)
        if (!(o < rows->ndst ? rows->row_dst >> o & 1 : rows->row_src >> (o - rows->ndst) & 1) &&
            !(o >= rows->ndst && (r->k->drawn >> (o - rows->ndst) & 1)))
            r->near |= 1ull << o;
    r->whole = r->near;
    r->vector = r->whole ? vector : 0;
    r->shift = shift && r->whole;
}

#endif
