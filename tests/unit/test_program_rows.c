/*
 * tests/unit/test_program_rows.c -- programs with reductions against the same rows run one after another
 * on whole tensors, bit for bit.
 *
 * ctest: threads timeout=900 optimised
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager/cpuid.h"
#include "eager/exec.h"
#include "eager/map.h"
#include "eager/pool.h"
#include "eager/program.h"
#include "tests/support/effort.h"
#include "tests/support/table.h"
#include "tests/unit/nan.h"

WF_EXEC_DECL(reduce);

#if UNDER_TSAN || UNDER_ASAN
enum { SLOW = 1 };
#else
enum { SLOW = 0 };
#endif

static uint64_t rng_state = 0x9E3779B97F4A7C15u;
static uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state;
}
static int below(int n)
{
    return (int)(rng() % (uint64_t)n);
}

/* A program and, for each of its values, the tensor that the rows give one after another. */
enum { VALUES = 160 };
typedef struct pair {
    wf_program p;
    int rank;
    int64_t dims[WF_MAX_RANK];
    unsigned axes;
    int count;
    struct {
        wf_view v; /* full dims, stride 0 where the level does not reach */
        void *memory;
        int id, level;
    } val[VALUES];
    wf_view src[WF_PROGRAM_INPUTS], dst[WF_PROGRAM_OUTPUTS], want[WF_PROGRAM_OUTPUTS];
    void *out_memory[2 * WF_PROGRAM_OUTPUTS];
    const void *scalars[WF_PROGRAM_SCALARS];
    int nin, nout, nscalar;
} pair;

static int64_t numel(const wf_view *v)
{
    return wf_view_numel(v);
}

static pair *open_pair(int rank, const int64_t *dims, unsigned axes)
{
    pair *w = calloc(1, sizeof *w);
    cr_assert_not_null(w);
    wf_program_init(&w->p);
    w->rank = rank;
    w->axes = axes;
    memcpy(w->dims, dims, (size_t)rank * sizeof *dims);
    return w;
}

/* Dims of a level: reduced axes are 1 below ELEM, all are 1 for ONE. */
static wf_view shape_at(const pair *w, int level, int dtype)
{
    wf_view v = {.dtype = (uint8_t)dtype, .rank = (uint8_t)w->rank};
    int64_t step = 1;
    for (int i = w->rank - 1; i >= 0; i--) {
        const bool reach =
            level == WF_LEVEL_ELEM || (level == WF_LEVEL_ROW && (w->axes >> i & 1) == 0);
        v.dims[i] = reach ? w->dims[i] : 1;
        v.strides[i] = step;
        step *= v.dims[i];
    }
    return v;
}

/* A tensor of the level as a view of full dims. */
static wf_view stretched(const pair *w, wf_view v)
{
    for (int i = 0; i < w->rank; i++) {
        if (v.dims[i] == 1 && w->dims[i] != 1)
            v.strides[i] = 0;
        v.dims[i] = w->dims[i];
    }
    return v;
}

/* A view of full dims cut to the dims of a level. */
static wf_view cut(const pair *w, wf_view v, int level)
{
    const wf_view s = shape_at(w, level, v.dtype);
    memcpy(v.dims, s.dims, sizeof v.dims);
    return v;
}

static wf_view fresh(const pair *w, int level, int dtype, void **memory)
{
    wf_view v = shape_at(w, level, dtype);
    /* begins a line: results may pass the caches */
    const size_t bytes = ((size_t)numel(&v) * wf_dtype_size(dtype) + 64) / 64 * 64;
    *memory = aligned_alloc(64, bytes);
    cr_assert_not_null(*memory);
    memset(*memory, 0, bytes);
    v.data = *memory;
    return v;
}

static int add(pair *w, wf_view v, void *memory, int id, int level)
{
    cr_assert_lt(w->count, VALUES);
    cr_assert_geq(id, 0);
    w->val[w->count].v = stretched(w, v);
    w->val[w->count].memory = memory;
    w->val[w->count].id = id;
    w->val[w->count].level = level;
    return w->count++;
}

/* Random numbers as the type has them (tests/support/table.h). */
enum { NUMBERS = 65521 };
static const char *numbers(int dtype)
{
    static char *of[WEFT_DTYPE_COUNT];
    if (!of[dtype]) {
        double *d = malloc(NUMBERS * sizeof *d);
        of[dtype] = malloc(NUMBERS * wf_dtype_size(dtype));
        wf_view s = {.data = d, .dtype = WEFT_F64, .rank = 1, .dims = {NUMBERS}, .strides = {1}};
        wf_view t = s;
        t.data = of[dtype];
        t.dtype = (uint8_t)dtype;
        for (int64_t i = 0; i < NUMBERS; i++)
            d[i] = ((double)(rng() % 40001) - 20000) / 5000;
        wf_copy(&t, &s);
        free(d);
    }
    return of[dtype];
}

static void fill_random(void *data, int dtype, int64_t n)
{
    table_take(data, numbers(dtype), NUMBERS, below(NUMBERS), n, wf_dtype_size(dtype));
}

enum { PLAIN, TURNED, COLUMN, GAPPED, LAYOUTS };

/* An input: its memory holds the elements in the layout asked for. */
static int input(pair *w, int dtype, int level, int layout)
{
    wf_view v = shape_at(w, level, dtype);
    if (layout == TURNED) { /* first axis innermost */
        int64_t step = 1;
        for (int i = 0; i < w->rank; i++) {
            v.strides[i] = step;
            step *= v.dims[i];
        }
    } else if (layout == COLUMN) {
        for (int i = 0; i < w->rank; i++)
            v.strides[i] = (w->axes >> i & 1) != 0 ? v.strides[i] : 0;
    } else if (layout == GAPPED) {
        for (int i = 0; i < w->rank; i++)
            v.strides[i] *= 2;
    }
    int64_t n = 64;
    for (int i = 0; i < w->rank; i++)
        n += v.dims[i] > 0 ? (v.dims[i] - 1) * v.strides[i] : 0;
    void *memory = malloc((size_t)n * wf_dtype_size(dtype));
    cr_assert_not_null(memory);
    fill_random(memory, dtype, n);
    v.data = memory;
    const int id =
        level == WF_LEVEL_ROW ? wf_program_input_row(&w->p, dtype) : wf_program_input(&w->p, dtype);
    const int k = add(w, v, memory, id, level);
    w->src[w->nin++] = w->val[k].v;
    return k;
}

static int scalar(pair *w, int dtype, double value)
{
    void *memory;
    wf_view v = fresh(w, WF_LEVEL_ONE, dtype, &memory);
    wf_view one = {.data = &value, .dtype = WEFT_F64};
    wf_view to = {.data = memory, .dtype = (uint8_t)dtype};
    wf_copy(&to, &one);
    w->scalars[w->nscalar++] = memory;
    return add(w, v, memory, wf_program_scalar(&w->p, dtype), WF_LEVEL_ONE);
}

static int map(pair *w, wf_op op, int compute, int nsrc, const int *src)
{
    int level = 0, ids[5];
    wf_view views[5];
    for (int k = 0; k < nsrc; k++)
        level = w->val[src[k]].level > level ? w->val[src[k]].level : level;
    for (int k = 0; k < nsrc; k++) {
        ids[k] = w->val[src[k]].id;
        views[k] = cut(w, w->val[src[k]].v, level);
    }
    const int kind = wf_rows[op].kind;
    const bool truth = kind == WF_KIND_PREDICATE || kind == WF_KIND_COMPARE;
    void *memory;
    wf_view d = fresh(w, level, truth ? (int)WEFT_BOOL : compute, &memory);
    cr_assert_eq(wf_exec_map(op, compute, &d, nsrc, views), 0);
    return add(w, d, memory, wf_program_map(&w->p, op, compute, nsrc, ids), level);
}
#define MAP1(w, op, a) map(w, WF_OP_##op, compute, 1, (int[]){a})
#define MAP2(w, op, a, b) map(w, WF_OP_##op, compute, 2, (int[]){a, b})

static int cast(pair *w, int a, int dtype)
{
    if (w->val[a].v.dtype == dtype)
        return a;
    void *memory;
    const int level = w->val[a].level;
    wf_view d = fresh(w, level, dtype, &memory), s = cut(w, w->val[a].v, level);
    wf_copy(&d, &s);
    return add(w, d, memory, wf_program_cast(&w->p, w->val[a].id, dtype), level);
}

static int reduce(pair *w, wf_op op, int a)
{
    const int from = w->val[a].v.dtype;
    const bool truth = op == WF_OP_ANY || op == WF_OP_ALL;
    const bool flt = (WF_BIT(from) & WF_DT_F) != 0;
    const int to = truth ? WEFT_BOOL : from == WEFT_F64 ? WEFT_F64 : flt ? WEFT_F32 : WEFT_I64;
    int64_t ints[WF_MAX_RANK];
    wf_attr attr = {.ints = ints, .flags = WF_FLAG_KEEPDIM, .dtype = (uint8_t)to};
    for (int i = 0; i < w->rank; i++)
        if ((w->axes >> i & 1) != 0)
            ints[attr.n_ints++] = i;
    void *memory;
    wf_view d = fresh(w, WF_LEVEL_ROW, to, &memory);
    wf_why why = {0};
    wf_exec e = {
        .op = op, .nsrc = 1, .ndst = 1, .src = &w->val[a].v, .dst = &d, .attr = &attr, .why = &why};
    cr_assert_eq(wf_exec_reduce(&e), 0, "%s", why.rule);
    const int id = wf_program_reduce(&w->p, op, w->val[a].id);
    cr_assert_geq(id, 0);
    cr_assert_eq(w->p.type[id], to);
    return add(w, d, memory, id, WF_LEVEL_ROW);
}

static int pick(pair *w, int a, int index)
{
    void *memory;
    const wf_view x = w->val[a].v, at = w->val[index].v;
    wf_view d = fresh(w, WF_LEVEL_ROW, x.dtype, &memory);
    const int64_t size = (int64_t)wf_dtype_size(x.dtype), rows = numel(&d);
    for (int64_t r = 0; r < rows; r++) {
        int64_t rest = r, from = 0, t = 0;
        for (int i = w->rank - 1; i >= 0; i--) {
            if ((w->axes >> i & 1) != 0)
                continue;
            from += rest % w->dims[i] * x.strides[i];
            t += rest % w->dims[i] * at.strides[i];
            rest /= w->dims[i];
        }
        int64_t c = at.dtype == WEFT_I64 ? ((int64_t *)at.data)[t] : ((int32_t *)at.data)[t], n = 1;
        for (int i = 0; i < w->rank; i++)
            n *= (w->axes >> i & 1) != 0 ? w->dims[i] : 1;
        if (c < 0 || c >= n)
            continue;
        for (int i = w->rank - 1; i >= 0; i--) {
            if ((w->axes >> i & 1) == 0)
                continue;
            from += c % w->dims[i] * x.strides[i];
            c /= w->dims[i];
        }
        memcpy((char *)d.data + r * size, (const char *)x.data + from * size, (size_t)size);
    }
    return add(w, d, memory, wf_program_pick(&w->p, w->val[a].id, w->val[index].id), WF_LEVEL_ROW);
}

static int iota(pair *w, int dtype)
{
    void *memory;
    wf_view d = fresh(w, WF_LEVEL_ELEM, dtype, &memory);
    const int64_t n = numel(&d);
    double *v = malloc((size_t)(n + 1) * sizeof *v);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, c = 0, step = 1;
        for (int k = w->rank - 1; k >= 0; k--) {
            if ((w->axes >> k & 1) != 0) {
                c += rest % w->dims[k] * step;
                step *= w->dims[k];
            }
            rest /= w->dims[k];
        }
        v[i] = (double)c;
    }
    wf_view s = d;
    s.data = v;
    s.dtype = WEFT_F64;
    wf_copy(&d, &s);
    free(v);
    return add(w, d, memory, wf_program_iota(&w->p, dtype), WF_LEVEL_ELEM);
}

/* An output at its own level, or at ELEM. */
static void output(pair *w, int a, int dtype, int level)
{
    const int k = w->nout++;
    level = w->val[a].level > level ? w->val[a].level : level;
    wf_view d = fresh(w, level, dtype, &w->out_memory[2 * k]);
    w->want[k] = fresh(w, level, dtype, &w->out_memory[2 * k + 1]);
    const wf_view v = cut(w, w->val[a].v, level);
    wf_copy(&w->want[k], &v);
    w->dst[k] = stretched(w, d);
    wf_program_output_at(&w->p, w->val[a].id, (wf_level)level);
}

static void check_outputs(const pair *w, const char *what)
{
    for (int k = 0; k < w->nout; k++) {
        const size_t size = wf_dtype_size(w->dst[k].dtype);
        const int64_t n = numel(&w->want[k]);
        if (memcmp(w->dst[k].data, w->want[k].data, (size_t)n * size) == 0)
            continue;
        for (int64_t i = 0; i < n; i++) {
            const char *a = (const char *)w->dst[k].data + (size_t)i * size;
            const char *b = (const char *)w->want[k].data + (size_t)i * size;
            cr_assert(memcmp(a, b, size) == 0 ||
                          (is_nan(a, w->dst[k].dtype) && is_nan(b, w->dst[k].dtype)),
                      "%s: output %d, element %lld of %lld, rank %d dims %lld %lld, isa %d", what,
                      k, (long long)i, (long long)n, w->rank, (long long)w->dims[0],
                      (long long)w->dims[w->rank - 1], (int)wf_isa());
        }
    }
}

/* far: as beside runs that the caches do not hold. */
static wf_program_args args_of(const pair *w, bool far)
{
    return (wf_program_args){.dst = w->dst,
                             .src = w->src,
                             .scalars = w->scalars,
                             .axes = w->axes,
                             .beside = far ? WF_STREAM_FROM : 0};
}

static void run_once(const pair *w, bool far, const char *what)
{
    for (int k = 0; k < w->nout; k++) {
        wf_view v = w->want[k];
        memset(w->dst[k].data, 0xA5, (size_t)numel(&v) * wf_dtype_size(v.dtype));
    }
    const wf_program_args a = args_of(w, far);
    cr_assert_eq(wf_program_run_on(&w->p, &a), 0);
    check_outputs(w, what);
}

/* Outputs that can, take the memory of an input. */
static void run_in_place(pair *w, const char *what)
{
    bool taken[WF_PROGRAM_INPUTS] = {false};
    bool any = false;
    for (int k = 0; k < w->nout; k++)
        for (int j = 0; j < w->nin; j++)
            if (!taken[j] && w->src[j].dtype == w->dst[k].dtype &&
                memcmp(w->src[j].strides, w->dst[k].strides, sizeof w->dst[k].strides) == 0) {
                w->dst[k].data = w->src[j].data;
                taken[j] = any = true;
                break;
            }
    if (!any)
        return;
    const wf_program_args a = args_of(w, below(2));
    cr_assert_eq(wf_program_run_on(&w->p, &a), 0);
    check_outputs(w, what);
}

/* All instruction sets and thread counts; consumes the pair. */
static void run_pair(pair *w, const char *what)
{
    cr_assert_eq(wf_program_finish(&w->p), 0, "%s", what);
    static const int threads[] = {1, 2, 3, 7};
    wf_set_isa(WF_NISA);
    const int most = (int)wf_isa();
    for (int isa = EFFORT_ONE_ISA ? most : 0; isa <= most; isa++) {
        wf_set_isa(isa);
        for (int t = 0; t < 4; t += EFFORT_THREAD_STEP) {
            if (isa != most && t != isa + 1)
                continue;
            cr_assert_eq(wf_set_num_threads(threads[t]), 0);
            run_once(w, false, what);
            run_once(w, true, what);
        }
    }
    wf_set_isa(WF_NISA);
    run_in_place(w, what);
    for (int i = 0; i < w->count; i++)
        free(w->val[i].memory);
    for (int i = 0; i < 2 * w->nout; i++)
        free(w->out_memory[i]);
    free(w);
}

/* -- single reductions -------------------------------------------------------------------------------- */
static const int64_t lengths[] = {0, 1, 2, 63, 64, 65, 4095, 4096, 4097, 20000};
static const int64_t counts[] = {1, 3, 1000};

static void one_reduction(wf_op op, int dtype, int64_t rows, int64_t n, int layout)
{
    pair *w = open_pair(2, (int64_t[]){rows, n}, 2);
    const int x = input(w, dtype, WF_LEVEL_ELEM, layout);
    const int s = reduce(w, op, x);
    output(w, s, w->val[s].v.dtype, WF_LEVEL_ROW);
    run_pair(w, wf_rows[op].name);
}

Test(program_rows, reductions)
{
    static const wf_op ops[] = {WF_OP_SUM,  WF_OP_PROD, WF_OP_AMAX,
                                WF_OP_AMIN, WF_OP_ANY,  WF_OP_ALL};
    static const int dtypes[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16, WEFT_BOOL,
                                 WEFT_U8,  WEFT_I8,  WEFT_I16, WEFT_I32,  WEFT_I64};
    for (size_t o = 0; o < 6; o++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
                for (size_t r = 0; r < 3; r++) {
                    const bool extreme = ops[o] == WF_OP_AMAX || ops[o] == WF_OP_AMIN;
                    const int64_t n = lengths[i], rows = counts[r];
                    if ((n == 0 && extreme) || (rows * n > 1000000 && (d > 2 || o > 1)) ||
                        (SLOW && rows * n > 100000))
                        continue;
                    one_reduction(ops[o], dtypes[d], rows, n, PLAIN);
                    if (n > 1 && rows < 1000 && d < 3)
                        one_reduction(ops[o], dtypes[d], rows, n, 1 + below(LAYOUTS - 1));
                }
}

/* -- compositions ---------------------------------------------------------------------------------------- */
static int softmax_of(pair *w, int compute, int x)
{
    const int m = reduce(w, WF_OP_AMAX, x);
    const int e = MAP1(w, EXP, MAP2(w, SUB, x, m));
    return MAP2(w, DIV, e, reduce(w, WF_OP_SUM, e));
}

static void compositions(int dtype, int rank, const int64_t *dims, unsigned axes, int layout)
{
    const int compute = dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= (axes >> i & 1) != 0 ? dims[i] : 1;
    { /* softmax, and its rows' sums */
        pair *w = open_pair(rank, dims, axes);
        const int x = cast(w, input(w, dtype, WF_LEVEL_ELEM, layout), compute);
        const int y = softmax_of(w, compute, x);
        output(w, y, dtype, WF_LEVEL_ELEM);
        output(w, reduce(w, WF_OP_SUM, y), compute, WF_LEVEL_ROW);
        run_pair(w, "softmax");
    }
    { /* log_softmax */
        pair *w = open_pair(rank, dims, axes);
        const int x = cast(w, input(w, dtype, WF_LEVEL_ELEM, layout), compute);
        const int d = MAP2(w, SUB, x, reduce(w, WF_OP_AMAX, x));
        const int l = MAP1(w, LOG, reduce(w, WF_OP_SUM, MAP1(w, EXP, d)));
        output(w, MAP2(w, SUB, d, l), dtype, WF_LEVEL_ELEM);
        run_pair(w, "log_softmax");
    }
    { /* softmax backward */
        pair *w = open_pair(rank, dims, axes);
        const int g = cast(w, input(w, dtype, WF_LEVEL_ELEM, layout), compute);
        const int y = cast(w, input(w, dtype, WF_LEVEL_ELEM, PLAIN), compute);
        const int s = reduce(w, WF_OP_SUM, MAP2(w, MUL, g, y));
        output(w, MAP2(w, MUL, y, MAP2(w, SUB, g, s)), dtype, WF_LEVEL_ELEM);
        run_pair(w, "softmax_bwd");
    }
    { /* layer_norm */
        pair *w = open_pair(rank, dims, axes);
        const int x = cast(w, input(w, dtype, WF_LEVEL_ELEM, layout), compute);
        const int weight = cast(w, input(w, dtype, WF_LEVEL_ELEM, COLUMN), compute);
        const int bias = cast(w, input(w, dtype, WF_LEVEL_ELEM, COLUMN), compute);
        const int len = scalar(w, compute, (double)n), eps = scalar(w, compute, 1e-5);
        const int one = scalar(w, compute, 1);
        const int mean = MAP2(w, DIV, reduce(w, WF_OP_SUM, x), len);
        const int c = MAP2(w, SUB, x, mean);
        const int var = MAP2(w, DIV, reduce(w, WF_OP_SUM, MAP2(w, MUL, c, c)), len);
        const int rstd = MAP2(w, DIV, one, MAP1(w, SQRT, MAP2(w, ADD, var, eps)));
        const int y = MAP2(w, ADD, MAP2(w, MUL, MAP2(w, MUL, c, rstd), weight), bias);
        output(w, y, dtype, WF_LEVEL_ELEM);
        output(w, mean, compute, WF_LEVEL_ROW);
        output(w, rstd, compute, WF_LEVEL_ROW);
        run_pair(w, "layer_norm");
    }
    { /* layer_norm backward, dx */
        pair *w = open_pair(rank, dims, axes);
        const int g = cast(w, input(w, dtype, WF_LEVEL_ELEM, PLAIN), compute);
        const int x = cast(w, input(w, dtype, WF_LEVEL_ELEM, layout), compute);
        const int weight = cast(w, input(w, dtype, WF_LEVEL_ELEM, COLUMN), compute);
        const int mean = input(w, compute, WF_LEVEL_ROW, below(2) ? PLAIN : GAPPED);
        const int rstd = input(w, compute, WF_LEVEL_ROW, PLAIN);
        const int len = scalar(w, compute, (double)n);
        const int xhat = MAP2(w, MUL, MAP2(w, SUB, x, mean), rstd);
        const int gw = MAP2(w, MUL, g, weight);
        const int a = MAP2(w, DIV, reduce(w, WF_OP_SUM, gw), len);
        const int b = MAP2(w, DIV, reduce(w, WF_OP_SUM, MAP2(w, MUL, gw, xhat)), len);
        const int d = MAP2(w, SUB, MAP2(w, SUB, gw, a), MAP2(w, MUL, xhat, b));
        output(w, MAP2(w, MUL, rstd, d), dtype, WF_LEVEL_ELEM);
        run_pair(w, "layer_norm_bwd");
    }
    { /* cross entropy with smoothing, and its backward */
        pair *w = open_pair(rank, dims, axes);
        const int x0 = input(w, dtype, WF_LEVEL_ELEM, layout);
        const int x = cast(w, x0, compute);
        const int t = input(w, WEFT_I64, WF_LEVEL_ROW, PLAIN);
        wf_view tv = shape_at(w, WF_LEVEL_ROW, WEFT_I64);
        for (int64_t i = 0; i < numel(&tv); i++)
            ((int64_t *)w->val[t].memory)[i] = (int64_t)(rng() % (uint64_t)(n + 2)) - 1;
        const int zero = scalar(w, compute, 0), len = scalar(w, compute, (double)n);
        const int m0 = reduce(w, WF_OP_AMAX, x);
        const int finite = map(w, WF_OP_ISFINITE, compute, 1, &m0);
        const int m = map(w, WF_OP_WHERE, compute, 3, (int[]){finite, m0, zero});
        const int e = MAP1(w, EXP, MAP2(w, SUB, x, m));
        const int lse = MAP2(w, ADD, m, MAP1(w, LOG, reduce(w, WF_OP_SUM, e)));
        const int nll = MAP2(w, SUB, lse, cast(w, pick(w, x0, t), compute));
        const int smooth = MAP2(w, DIV, reduce(w, WF_OP_SUM, MAP2(w, SUB, lse, x)), len);
        output(w, MAP2(w, ADD, nll, smooth), dtype, WF_LEVEL_ROW);
        output(w, lse, compute, WF_LEVEL_ROW);
        const int at = map(w, WF_OP_EQUAL, WEFT_I64, 2, (int[]){iota(w, WEFT_I64), t});
        const int p = MAP1(w, EXP, MAP2(w, SUB, x, lse));
        const int q = map(w, WF_OP_WHERE, compute, 3, (int[]){at, len, zero});
        output(w, MAP2(w, SUB, p, q), dtype, WF_LEVEL_ELEM);
        run_pair(w, "cross_entropy");
    }
}

Test(program_rows, compositions)
{
    static const int64_t shapes[][2] = {{1, 1},    {5, 1},      {1000, 2}, {1, 63},   {333, 10},
                                        {70, 65},  {65, 700},   {9, 1100}, {3, 4097}, {40, 1024},
                                        {2, 9000}, {1, 150000}, {130, 128}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int layout = 0; layout < LAYOUTS; layout++) {
            if (layout != COLUMN && (layout == PLAIN || !SLOW))
                compositions(WEFT_F32, 2, shapes[i], 2, layout);
            if (shapes[i][1] < 5000 && layout == PLAIN) {
                compositions(WEFT_F64, 2, shapes[i], 2, layout);
                compositions(WEFT_BF16, 2, shapes[i], 2, layout);
                compositions(WEFT_F16, 2, shapes[i], 2, layout);
            }
        }
}

/* As many inputs as there can be, all of them gathered: a number of a phase's set has no bit to spare. */
Test(program_rows, all_inputs)
{
    const int compute = WEFT_F32;
    for (int n = WF_PROGRAM_INPUTS - 1; n <= WF_PROGRAM_INPUTS; n++) {
        pair *w = open_pair(2, (int64_t[]){9, 300}, 2);
        int x = input(w, WEFT_F16, WF_LEVEL_ELEM, PLAIN);
        x = cast(w, x, WEFT_F32);
        for (int i = 1; i < n; i++)
            x = MAP2(w, ADD, x, cast(w, input(w, WEFT_F16, WF_LEVEL_ELEM, PLAIN), WEFT_F32));
        const int m = reduce(w, WF_OP_SUM, x);
        output(w, MAP2(w, SUB, x, m), WEFT_F32, WF_LEVEL_ELEM);
        run_pair(w, "all inputs");
    }
}

/* -1, or `most` where it is one of so many. */
static void put_few(wf_view *v, int of, double most)
{
    const size_t size = wf_dtype_size(v->dtype);
    double numbers[2] = {-1, most}, as_stored[2];
    wf_view from = {.data = numbers, .dtype = WEFT_F64, .rank = 1, .dims = {2}, .strides = {1}};
    wf_view to = from;
    to.data = as_stored;
    to.dtype = v->dtype;
    wf_copy(&to, &from);
    for (int64_t i = 0; i < v->dims[0]; i++)
        for (int64_t j = 0; j < v->dims[1]; j++) {
            const int64_t at = i * v->strides[0] + j * v->strides[1];
            memcpy((char *)v->data + at * (int64_t)size,
                   (char *)as_stored + (rng() % (unsigned)of ? 0 : size), size);
        }
}

/* Values of one byte of inputs that have more and do not lie as they are walked: a tile has room for the inputs' elements. */
Test(program_rows, narrow_values_of_wide_inputs)
{
    static const int dtypes[] = {WEFT_F32, WEFT_F64, WEFT_I64, WEFT_I32};
    for (int d = 0; d < 4; d++)
        for (int layout = 0; layout < LAYOUTS; layout++) {
            if ((d * LAYOUTS + layout) % EFFORT_LIST_STEP != 0)
                continue;
            pair *w = open_pair(2, (int64_t[]){90, 4096}, 1);
            const int x = input(w, dtypes[d], WF_LEVEL_ELEM, layout);
            const int y = input(w, dtypes[d], WF_LEVEL_ELEM, layout);
            const int mask = input(w, WEFT_BOOL, WF_LEVEL_ELEM, PLAIN);
            put_few(&w->val[x].v, 50, 2);
            put_few(&w->val[y].v, 50, 1);
            const int compute = dtypes[d];
            const int less = MAP2(w, LESS, x, y);
            output(w, reduce(w, WF_OP_ANY, less), WEFT_BOOL, WF_LEVEL_ROW);
            output(w, reduce(w, WF_OP_ALL, less), WEFT_BOOL, WF_LEVEL_ROW);
            output(w, reduce(w, WF_OP_ANY, mask), WEFT_BOOL, WF_LEVEL_ROW);
            run_pair(w, "narrow values of wide inputs");
        }
}

Test(program_rows, axes)
{
    for (unsigned axes = 1; axes < 8; axes++)
        for (int layout = 0; layout < LAYOUTS; layout++)
            if (((int)axes * LAYOUTS + layout) % EFFORT_LIST_STEP == 0)
                compositions(WEFT_F32, 3, (int64_t[]){6, 31, 40}, axes, layout);
    for (unsigned axes = 1; axes < 16; axes += EFFORT_LIST_STEP)
        compositions(WEFT_F32, 4, (int64_t[]){3, 5, 7, 66}, axes, below(LAYOUTS));
    compositions(WEFT_F32, 2, (int64_t[]){5000, 37}, 1, PLAIN);
    compositions(WEFT_F32, 2, (int64_t[]){300, 1000}, 1, PLAIN);
    compositions(WEFT_F32, 2, (int64_t[]){70, 2500}, 1,
                 PLAIN); /* groups of 4 KiB, and some that are less */
    compositions(WEFT_F64, 2, (int64_t[]){130, 1030}, 1, PLAIN);
    compositions(WEFT_BF16, 2, (int64_t[]){4200, 130}, 1, PLAIN);
}

Test(program_rows, checks_report)
{
    enum { N = 3000 };
    uint8_t x[N];
    memset(x, 1, sizeof x);
    wf_program p;
    wf_program_init(&p);
    const int v = wf_program_input(&p, WEFT_BOOL);
    wf_program_check(&p, v);
    wf_program_output(&p, wf_program_reduce(&p, WF_OP_ALL, v));
    cr_assert_eq(wf_program_finish(&p), 0);
    uint8_t all[3];
    const wf_view src = {
        .data = x, .dtype = WEFT_BOOL, .rank = 2, .dims = {3, 1000}, .strides = {1000, 1}};
    const wf_view dst = {
        .data = all, .dtype = WEFT_BOOL, .rank = 2, .dims = {3, 1000}, .strides = {1, 0}};
    const wf_program_args a = {.dst = &dst, .src = &src, .axes = 2};
    cr_assert_eq(wf_program_run_on(&p, &a), 0);
    cr_assert(all[0] && all[1] && all[2]);
    x[1500] = 0;
    cr_assert_eq(wf_program_run_on(&p, &a), WEFT_EINDEX);
    cr_assert(all[0] && !all[1] && all[2]);
}

/* -- random programs ---------------------------------------------------------------------------------------- */
static int any_of(const pair *w, int dtype)
{
    for (int tries = 0; tries < 50; tries++) {
        const int k =
            below(4) ? w->count - 1 - below(w->count < 4 ? w->count : 4) : below(w->count);
        if (w->val[k].v.dtype == dtype)
            return k;
    }
    return -1;
}

static void random_step(pair *w)
{
    static const wf_op cheap[] = {WF_OP_ADD, WF_OP_SUB, WF_OP_MUL,    WF_OP_DIV,
                                  WF_OP_NEG, WF_OP_ADD, WF_OP_SQUARE, WF_OP_MUL};
    static const wf_op others[] = {WF_OP_TANH, WF_OP_MAXIMUM, WF_OP_ABS, WF_OP_LERP, WF_OP_SIGMOID};
    static const wf_op sums[] = {WF_OP_SUM, WF_OP_AMAX, WF_OP_AMIN, WF_OP_SUM};
    const int compute = below(4) ? WEFT_F32 : WEFT_F64;
    const int a = any_of(w, compute), b = any_of(w, compute), c = any_of(w, compute);
    if (a < 0 || b < 0 || c < 0) {
        cast(w, below(w->count), compute);
        return;
    }
    const int what = below(12);
    if (what == 0) {
        const int sum = reduce(w, sums[below(4)], a);
        const int n = scalar(w, compute, 7);
        MAP2(w, DIV, sum, n); /* keeps values small */
    } else if (what == 1) {
        const wf_op op = others[below(5)];
        map(w, op, compute, wf_rows[op].min_src, (int[]){a, b, c});
    } else if (what == 2) {
        const int less = MAP2(w, LESS, a, b);
        map(w, WF_OP_WHERE, compute, 3, (int[]){less, b, c});
    } else if (what == 3) {
        static const int halves[] = {WEFT_BF16, WEFT_F16, WEFT_F64, WEFT_F32};
        cast(w, a, halves[below(4)]);
    } else {
        const wf_op op = cheap[below(8)];
        map(w, op, compute, wf_rows[op].min_src, (int[]){a, below(6) ? b : a});
    }
}

static void random_rows(int trial)
{
    static const int64_t shapes[][3] = {{1, 1, 1},    {3, 7, 5},     {2, 50, 20}, {1, 9, 1500},
                                        {4, 6, 200},  {1, 300, 16},  {2, 3, 64},  {1, 2, 5000},
                                        {1, 70, 130}, {1, 5000, 12}, {5, 33, 65}};
    const int rank = 2 + below(2);
    const int64_t *dims = shapes[below(11)] + (rank == 2);
    pair *w = open_pair(rank, dims, 1 + (unsigned)below((1 << rank) - 1));
    for (int i = 1 + below(4); i > 0; i--) {
        static const int dtypes[] = {WEFT_F32, WEFT_F32, WEFT_F32, WEFT_F64, WEFT_BF16};
        input(w, dtypes[below(5)], below(4) ? WF_LEVEL_ELEM : WF_LEVEL_ROW, below(LAYOUTS));
    }
    if (below(2))
        scalar(w, WEFT_F32, 1.25);
    const int steps = 4 + below(24);
    for (int i = 0; i < steps; i++)
        random_step(w);
    for (int i = 1 + below(4); i > 0; i--) {
        const int v =
            below(3) ? w->count - 1 - below(w->count < 5 ? w->count : 5) : below(w->count);
        output(w, v, below(4) ? w->val[v].v.dtype : (int)WEFT_F32,
               below(3) ? WF_LEVEL_ROW : WF_LEVEL_ELEM);
    }
    char what[64];
    snprintf(what, sizeof what, "random %d", trial);
    run_pair(w, what);
}

Test(program_rows, random_programs)
{
    for (int trial = 0; trial < (SLOW ? 150 : 1500); trial++)
        random_rows(trial);
}
