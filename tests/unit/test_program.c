/*
 * tests/unit/test_program.c -- tile programs against the same rows run one after another, bit for bit.
 *
 * ctest: threads timeout=600 reckons
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eager/cpuid.h"
#include "eager/exec.h"
#include "eager/map.h"
#include "eager/pool.h"
#include "eager/program.h"
#include "eager/program_run.h"
#include "tests/support/effort.h"
#include "tests/unit/nan.h"

static uint64_t rng_state = 0xD1B54A32D192ED03u;

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

enum { VALUES = 64, INPUTS = 5, STEPS = 12 };

/* Values of a random program, each a whole tensor of its own. */
typedef struct world {
    int rank;
    int64_t dims[2], n;
    wf_view v[VALUES];
    int id[VALUES]; /* in the program */
    int count;
    void *memory[VALUES];
} world;

static wf_view fresh(world *w, int dtype)
{
    wf_view v = {.dtype = (uint8_t)dtype, .rank = (uint8_t)w->rank};
    int64_t step = 1;
    for (int i = w->rank - 1; i >= 0; i--) {
        v.dims[i] = w->dims[i];
        v.strides[i] = step;
        step *= w->dims[i];
    }
    v.data = malloc((size_t)(w->n + 1) * 8);
    cr_assert_not_null(v.data);
    return v;
}

static void add_value(world *w, wf_view v, void *memory, int id)
{
    cr_assert_lt(w->count, VALUES);
    cr_assert_geq(id, 0);
    w->v[w->count] = v;
    w->memory[w->count] = memory;
    w->id[w->count++] = id;
}

static void randomise(const wf_view *v, int64_t n)
{
    wf_view d = {
        .data = malloc((size_t)n * 8), .dtype = WEFT_F64, .rank = 1, .dims = {n}, .strides = {1}};
    wf_view s = {.data = v->data, .dtype = v->dtype, .rank = 1, .dims = {n}, .strides = {1}};
    for (int64_t i = 0; i < n; i++)
        ((double *)d.data)[i] = ((double)(rng() % 4001) - 2000) / 300;
    wf_copy(&s, &d);
    free(d.data);
}

static const int storage[] = {WEFT_F32,  WEFT_F32, WEFT_BF16, WEFT_F16, WEFT_F64,
                              WEFT_BOOL, WEFT_I32, WEFT_U8,   WEFT_I64};
enum { NSTORAGE = sizeof storage / sizeof *storage };

static void add_input(world *w, wf_program *p)
{
    wf_view v = fresh(w, storage[below(NSTORAGE)]);
    randomise(&v, w->n);
    const int form = below(6);
    if (form == 0 || (form == 1 && w->rank == 1))
        memset(v.strides, 0, sizeof v.strides);
    else if (form == 1)
        v.strides[0] = 0, v.strides[1] = 1;
    else if (form == 2 && w->rank == 2)
        v.strides[0] = 1, v.strides[1] = 0;
    else if (form == 3 && w->rank == 2)
        v.strides[0] = 1, v.strides[1] = w->dims[0];
    add_value(w, v, v.data, wf_program_input(p, v.dtype));
}

/* One random row or cast, in the program and at once. False if the row drawn does not fit. */
static bool add_step(world *w, wf_program *p)
{
    static const int computes[] = {WEFT_F32, WEFT_F32, WEFT_F32, WEFT_F64, WEFT_I32, WEFT_U8};
    const int compute = computes[below(6)];
    static const wf_op cheap[] = {WF_OP_ADD, WF_OP_SUB,    WF_OP_MUL,     WF_OP_DIV,
                                  WF_OP_NEG, WF_OP_SQUARE, WF_OP_MAXIMUM, WF_OP_MINIMUM};
    const wf_op op = below(2) ? cheap[below(8)] : (wf_op)(1 + below(WF_OP_COUNT - 1));
    int src[5];
    wf_view view[5];
    if (below(4) == 0) {
        const int from = below(w->count), to = storage[below(NSTORAGE)];
        if (w->v[from].dtype == to)
            return false;
        wf_view d = fresh(w, to);
        wf_copy(&d, &w->v[from]);
        add_value(w, d, d.data, wf_program_cast(p, w->id[from], to));
        return true;
    }
    if (!wf_op_is_elementwise(op) || !(wf_rows[op].types & WF_BIT(compute)))
        return false;
    const int kind = wf_rows[op].kind;
    const bool truth = kind == WF_KIND_PREDICATE || kind == WF_KIND_COMPARE;
    const bool vjp = !truth && below(4) == 0 && (compute == WEFT_F32 || compute == WEFT_F64);
    const int nsrc = wf_rows[op].min_src + (vjp ? 2 : 0);
    const int which = kind == WF_KIND_CHOOSE ? 1 + below(2) : below(wf_rows[op].min_src);
    for (int k = 0; k < nsrc; k++) {
        const int recent = w->count < 3 ? w->count : 3;
        const int pick = below(2) ? w->count - 1 - below(recent) : below(w->count);
        src[k] = w->id[pick];
        view[k] = w->v[pick];
    }
    wf_view d = fresh(w, truth ? (int)WEFT_BOOL : compute);
    int id;
    if (vjp) {
        if (!(wf_rows[op].types & WF_DT_F) || !wf_vjp_reads(op, which)) {
            free(d.data);
            return false;
        }
        cr_assert_eq(wf_exec_vjp(op, which, compute, &d, nsrc, view), 0);
        id = wf_program_vjp(p, op, which, compute, nsrc, src);
    } else {
        cr_assert_eq(wf_exec_map(op, compute, &d, nsrc, view), 0, "%s", wf_rows[op].name);
        id = wf_program_map(p, op, compute, nsrc, src);
    }
    add_value(w, d, d.data, id);
    return true;
}

static void compare(const wf_view *got, const wf_view *want, int64_t n, int trial)
{
    const size_t size = wf_dtype_size(got->dtype);
    if (memcmp(got->data, want->data, (size_t)n * size) == 0)
        return;
    for (int64_t i = 0; i < n; i++) { /* NaNs may differ in their bits */
        const char *a = (const char *)got->data + (size_t)i * size;
        const char *b = (const char *)want->data + (size_t)i * size;
        cr_assert(memcmp(a, b, size) == 0 || (is_nan(a, got->dtype) && is_nan(b, got->dtype)),
                  "program %d, element %lld of %lld", trial, (long long)i, (long long)n);
    }
}

/* As beside runs that the caches do not hold: tiles ask for the next ones, results pass the caches. */
static void run_far(const wf_program *p, const wf_view *dst, const wf_view *src, const void *scalar)
{
    cr_assert_eq(wf_program_run_on(p, &(wf_program_args){.dst = dst,
                                                         .src = src,
                                                         .scalars = &scalar,
                                                         .beside = WF_STREAM_FROM}),
                 0);
}

static void random_program(int trial)
{
    static const int64_t shapes[][2] = {{1, 1},    {1, 17},   {1, 4097},   {7, 33}, {257, 5},
                                        {64, 130}, {3, 1000}, {1, 300001}, {0, 5},  {600, 257}};
    world w = {.count = 0};
    const int64_t *shape = shapes[trial % 10 ? trial % 7 : 7 + trial / 10 % 3];
    w.rank = shape[0] == 1 ? 1 : 2;
    w.dims[0] = w.rank == 1 ? shape[1] : shape[0];
    w.dims[1] = shape[1];
    w.n = shape[0] * shape[1];
    wf_program *p = malloc(sizeof *p);
    cr_assert_not_null(p);
    wf_program_init(p);
    wf_view src[INPUTS], dst[4], want[4];
    const int ninput = 1 + below(INPUTS);
    for (int i = 0; i < ninput; i++)
        add_input(&w, p);
    float scalar = (float)below(100) / 16 - 2;
    if (below(2)) { /* a scalar is a tensor of one element repeated */
        wf_view v = fresh(&w, WEFT_F32);
        memcpy(v.data, &scalar, sizeof scalar);
        memset(v.strides, 0, sizeof v.strides);
        add_value(&w, v, v.data, wf_program_scalar(p, WEFT_F32));
    }
    wf_set_isa(WF_NISA);
    for (int i = 0; i < STEPS;)
        i += add_step(&w, p);
    const int noutput = 1 + below(4);
    for (int k = 0; k < noutput; k++) {
        const int v = k == 0 ? w.count - 1 : below(w.count);
        dst[k] = fresh(&w, below(3) ? w.v[v].dtype : storage[below(NSTORAGE)]);
        want[k] = fresh(&w, dst[k].dtype);
        wf_copy(&want[k], &w.v[v]);
        wf_program_output(p, w.id[v]);
    }
    cr_assert_eq(wf_program_finish(p), 0);
    for (int i = 0; i < ninput; i++)
        src[i] = w.v[i];
    const int most = wf_isa();
    for (int isa = 0; isa <= most; isa++) {
        static const int threads[] = {1, 3, 2};
        wf_set_isa(isa);
        cr_assert_eq(wf_set_num_threads(threads[isa % 3]), 0);
        wf_program_run(p, dst, src, (const void *const[]){&scalar});
        for (int k = 0; k < noutput; k++)
            compare(&dst[k], &want[k], w.n, trial);
        for (int k = 0; k < noutput && w.n; k++)
            memset(dst[k].data, 0x5a, (size_t)w.n * wf_dtype_size(dst[k].dtype));
        run_far(p, dst, src, &scalar);
        for (int k = 0; k < noutput; k++)
            compare(&dst[k], &want[k], w.n, trial);
    }
    /* in place: an output of an input's type takes its memory */
    wf_set_isa(WF_NISA);
    for (int k = 0; k < noutput; k++)
        for (int i = 0; i < ninput; i++)
            if (src[i].dtype == dst[k].dtype && src[i].data && w.n &&
                memcmp(src[i].strides, dst[k].strides, sizeof src[i].strides) == 0) {
                free(dst[k].data);
                dst[k].data = src[i].data;
                w.memory[i] = NULL;
                src[i].data = NULL; /* taken, put back below */
                break;
            }
    for (int i = 0; i < ninput; i++)
        src[i].data = w.v[i].data;
    if (trial % 2)
        run_far(p, dst, src, &scalar);
    else
        wf_program_run(p, dst, src, (const void *const[]){&scalar});
    for (int k = 0; k < noutput; k++) {
        compare(&dst[k], &want[k], w.n, trial);
        free(dst[k].data);
        free(want[k].data);
    }
    for (int i = 0; i < w.count; i++)
        free(w.memory[i]);
    free(p);
}

enum { PROGRAMS = 1500 };

Test(program, random_programs)
{
    for (int trial = 0; trial < (int)effort_of(PROGRAMS); trial++)
        random_program(trial);
}

/* As many outputs as a program may have, on their way past the caches: the tiles of all of them have room. */
Test(program, all_outputs_past_the_caches)
{
    enum { N = 70001 };
    static float x[N], y[WF_PROGRAM_OUTPUTS][N];
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 1000);
    wf_program *p = malloc(sizeof *p);
    cr_assert_not_null(p);
    wf_program_init(p);
    const int in = wf_program_input(p, WEFT_F32);
    int v = in;
    wf_view dst[WF_PROGRAM_OUTPUTS];
    const wf_view src = {.data = x, .dtype = WEFT_F32, .rank = 1, .dims = {N}, .strides = {1}};
    for (int k = 0; k < WF_PROGRAM_OUTPUTS; k++) {
        v = wf_program_map(p, WF_OP_ADD, WEFT_F32, 2, (int[]){v, in});
        wf_program_output(p, v);
        dst[k] = src;
        dst[k].data = y[k];
    }
    cr_assert_eq(wf_program_finish(p), 0);
    run_far(p, dst, &src, NULL);
    for (int k = 0; k < WF_PROGRAM_OUTPUTS; k++)
        for (int i = 0; i < N; i++)
            cr_assert(y[k][i] == (float)(k + 2) * x[i], "output %d, element %d", k, i);
    free(p);
}

/* Extremes in chains have the bits of their rows: of zeros of both signs, infinities and NaN, with a tile, an element and
 * a scalar, at every place of a line's end. */
Test(program, chains_of_extremes)
{
    static const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, 1e-42f};
    enum { S = sizeof special / sizeof *special, N = 64 * 5 + 64 + 16 * 3 + 7 };
    static float x[N], y[N], plus[N], got[N], want[N];
    for (int i = 0; i < N; i++) {
        x[i] = special[i % S];
        y[i] = special[i / S % S];
    }
    const wf_view v = {.data = x, .dtype = WEFT_F32, .rank = 1, .dims = {N}, .strides = {1}};
    wf_view dst = v, sum = v, to = v, other[3] = {v, v, v};
    dst.data = got;
    sum.data = plus;
    to.data = want;
    other[0].data = y;
    const int most = wf_isa();
    for (int trial = 0; trial < 2 * (S + 1 + S); trial++) {
        const wf_op op = trial % 2 ? WF_OP_MAXIMUM : WF_OP_MINIMUM;
        const int k = trial / 2, form = k == 0   ? 0
                                        : k <= S ? 1
                                                 : 2; /* a tile, an element, a scalar */
        float one = special[(k + S - 1) % S];
        for (int f = 1; f < 3; f++) {
            other[f].data = &one;
            other[f].strides[0] = 0;
        }
        wf_program *p = malloc(sizeof *p);
        cr_assert_not_null(p);
        wf_program_init(p);
        const int a = wf_program_input(p, WEFT_F32);
        const int b = form < 2 ? wf_program_input(p, WEFT_F32) : wf_program_scalar(p, WEFT_F32);
        const int s = wf_program_map(p, WF_OP_NEG, WEFT_F32, 1, &a);
        wf_program_output(p, wf_program_map(p, op, WEFT_F32, 2, (int[]){s, b}));
        cr_assert_eq(wf_program_finish(p), 0);
        cr_assert_eq(p->chain[0], 1, "the two are a chain");
        for (int isa = 0; isa <= most; isa++) {
            wf_set_isa(isa);
            cr_assert_eq(wf_exec_map(WF_OP_NEG, WEFT_F32, &sum, 1, &v), 0);
            cr_assert_eq(wf_exec_map(op, WEFT_F32, &to, 2, (wf_view[]){sum, other[form]}), 0);
            wf_program_run(p, &dst, (wf_view[]){v, other[form]}, (const void *const[]){&one});
            compare(&dst, &to, N, trial);
        }
        free(p);
    }
    wf_set_isa(WF_NISA);
}

/* out0 = in1, out1 = in0 in the inputs' own memory. */
Test(program, swap_in_place)
{
    enum { N = 5000 };
    float *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);
    for (int i = 0; i < N; i++) {
        a[i] = (float)i;
        b[i] = (float)-i;
    }
    wf_program p;
    wf_program_init(&p);
    const int x = wf_program_input(&p, WEFT_F32), y = wf_program_input(&p, WEFT_F32);
    wf_program_output(&p, y);
    wf_program_output(&p, x);
    cr_assert_eq(wf_program_finish(&p), 0);
    wf_view v[2] = {{.data = a, .dtype = WEFT_F32, .rank = 1, .dims = {N}, .strides = {1}},
                    {.data = b, .dtype = WEFT_F32, .rank = 1, .dims = {N}, .strides = {1}}};
    wf_program_run(&p, v, v, NULL);
    for (int i = 0; i < N; i++)
        cr_assert(a[i] == (float)-i && b[i] == (float)i);
    free(a);
    free(b);
}

Test(program, errors_stick)
{
    wf_program p;
    wf_program_init(&p);
    const int x = wf_program_input(&p, WEFT_F32);
    cr_assert_eq(wf_program_map(&p, WF_OP_ADD, WEFT_F32, 2, (int[]){x, 99}), -1);
    cr_assert_eq(wf_program_map(&p, WF_OP_EXP, WEFT_F32, 1, &x), -1);
    wf_program_output(&p, x);
    cr_assert_eq(wf_program_finish(&p), -1);

    wf_program_init(&p);
    int v = wf_program_input(&p, WEFT_F32);
    cr_assert_eq(wf_program_map(&p, WF_OP_EXP, WEFT_BF16, 1, &v), -1,
                 "rows do not compute in bf16");
    cr_assert_eq(wf_program_finish(&p), -1);

    wf_program_init(&p);
    v = wf_program_input(&p, WEFT_F32);
    for (int i = 0; i < WF_PROGRAM_INSTS + 5; i++)
        v = wf_program_map(&p, WF_OP_NEG, WEFT_F32, 1, &v);
    cr_assert_eq(v, -1);
    cr_assert_eq(wf_program_finish(&p), -1);

    wf_program_init(&p);
    v = wf_program_input(&p, WEFT_F32);
    for (int i = 0; i < WF_PROGRAM_INSTS; i++)
        v = wf_program_map(&p, WF_OP_NEG, WEFT_F32, 1, &v);
    wf_program_output(&p, v);
    cr_assert_eq(wf_program_finish(&p), 0);
    cr_assert_eq(p.nreg, 2, "a chain needs two tiles");
}

/* a = a * s + b, out = a > b, over tensors of many sizes at once: as one by one. */
Test(program, many_tensors)
{
    static const int64_t sizes[] = {1, 0, 7, 8192, 8193, 100000, 64, 3, 20000, 1, 300, 65536};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    wf_program p;
    wf_program_init(&p);
    const int x = wf_program_input(&p, WEFT_F32), y = wf_program_input(&p, WEFT_F32);
    const int z = wf_program_input(&p, WEFT_F32), s = wf_program_scalar(&p, WEFT_F32);
    const int m = wf_program_map(&p, WF_OP_MUL, WEFT_F32, 2, (int[]){x, s});
    const int a = wf_program_map(&p, WF_OP_ADD, WEFT_F32, 2, (int[]){m, y});
    wf_program_output(&p, a);
    wf_program_output(&p, wf_program_map(&p, WF_OP_GREATER, WEFT_F32, 2, (int[]){a, z}));
    cr_assert_eq(wf_program_finish(&p), 0);
    static const int threads[] = {1, 2, 3, 7};
    for (int t = 0; t < 4; t += EFFORT_THREAD_STEP) {
        wf_view src[COUNT][3], dst[COUNT][2];
        wf_program_args args[COUNT];
        float scalar[COUNT], *was[COUNT];
        const void *scalars[COUNT];
        cr_assert_eq(wf_set_num_threads(threads[t]), 0);
        for (int i = 0; i < COUNT; i++) {
            const int64_t n = sizes[i];
            wf_view v = {.dtype = WEFT_F32, .rank = 1, .dims = {n}, .strides = {1}};
            for (int k = 0; k < 3; k++) {
                src[i][k] = v;
                src[i][k].data = malloc((size_t)n * 2 * sizeof(float) + 64);
                randomise(&(wf_view){.data = src[i][k].data, .dtype = WEFT_F32}, 2 * n + 1);
            }
            src[i][2].strides[0] = i % 3 == 0 ? 0 : i % 3 == 1 ? 1 : 2; /* single, flat, gapped */
            dst[i][0] = src[i][0];                                      /* in place */
            dst[i][1] = v;
            dst[i][1].dtype = WEFT_BOOL;
            dst[i][1].data = malloc((size_t)n + 1);
            was[i] = malloc((size_t)n * sizeof(float) + 4);
            memcpy(was[i], src[i][0].data, (size_t)n * sizeof(float));
            scalar[i] = (float)i / 4;
            scalars[i] = &scalar[i];
            args[i] = (wf_program_args){.dst = dst[i], .src = src[i], .scalars = &scalars[i]};
        }
        cr_assert_eq(wf_program_run_many(&p, COUNT, args), 0);
        for (int i = 0; i < COUNT; i++) {
            const float *now = src[i][0].data, *b = src[i][1].data, *c = src[i][2].data;
            for (int64_t e = 0; e < sizes[i]; e++) {
                const float prod = was[i][e] * scalar[i], want = prod + b[e];
                cr_assert_eq(now[e], want, "tensor %d element %lld", i, (long long)e);
                cr_assert_eq(((uint8_t *)dst[i][1].data)[e], want > c[e * src[i][2].strides[0]]);
            }
            for (int k = 0; k < 3; k++)
                free(src[i][k].data);
            free(dst[i][1].data);
            free(was[i]);
        }
    }
}

Test(program, an_element_fills_a_tile)
{
    enum { MOST = 70, BEHIND = 8 };
    const uint8_t one[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (size_t size = 1; size <= sizeof one; size *= 2) {
        for (size_t n = 0; n <= MOST; n++) {
            uint8_t tile[MOST * sizeof one + BEHIND];
            memset(tile, 99, sizeof tile);
            wf_fill_tile(tile, one, size, n);
            for (size_t i = 0; i < n * size; i++) {
                cr_assert_eq(tile[i], one[i % size]);
            }
            for (size_t i = n * size; i < sizeof tile; i++) {
                cr_assert_eq(tile[i], 99);
            }
        }
    }
}
