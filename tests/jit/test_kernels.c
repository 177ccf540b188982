/*
 * tests/jit/test_kernels.c -- fused groups compiled: the bits of the interpreter at every width, with operands of
 * every form; the cache of kernels; many threads.
 *
 * ctest: threads timeout=900
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "eager/alloc.h"
#include "eager/exec.h"
#include "eager/map.h"
#include "eager/pool.h"
#include "jit/kernels.h"
#include "tests/jit/kernel_support.h"
#include "tests/support/effort.h"

static const wf_target targets[] = {
    {.arch = "host", .width = 0},       {.arch = "host", .width = 1},
    {.arch = "host", .width = 4},       {.arch = "host", .width = 16},
    {.arch = "x86-64-v3", .width = 32}, {.arch = "x86-64", .width = 64}};

Test(kernels, random_programs_at_every_width)
{
    NEED_LLVM();
    static const int64_t flat[][2] = {{1, 0}, {63, 0}, {64, 0}, {1000, 0}, {0, 0}, {70003, 0}};
    static const int64_t square[][2] = {{37, 131}, {300, 3}, {1, 90}, {5, 4100}, {64, 64}};
    for (int t = 0; t < (int)effort_of(70); t++) {
        static sample s;
        operands o;
        draw(&s, 1 + below(12));
        wf_jitk *any = NULL;
        for (int c = 0; c < 6; c++) {
            const int rank = 1 + c % 2;
            make_operands(&o, &s.p, rank,
                          rank == 2 ? square[below(5)] : flat[c == 0 ? 5 : below(5)], c == 0, t);
            wf_jitk_opts opts = {.one = o.one, .target = targets[(t + c) % 6]};
            wf_jitk *k = wf_jitk_get(&s.p, &opts);
            run_both(k, &s.p, &o, opts.target.width);
            wf_jitk_release(any);
            any = k;
            drop_operands(&o);
        }
        wf_jitk_release(any);
    }
}

/* Sources that are turned go by pieces of all operands: whole matrices, rows of one, columns of wide ones, and what is left at each end; beside a
 * row's or a column's elements. The last, of f32 alone, is more than the caches hold. */
Test(kernels, turned_sources)
{
    NEED_LLVM();
    static const int64_t dims[][3] = {{1, 90, 130},  {3, 128, 128}, {1, 300, 1500},
                                      {5, 40, 2050}, {70, 9, 31},   {2, 1030, 1100}};
    static const int types[] = {WEFT_F32, WEFT_BF16, WEFT_F64, WEFT_I32};
    enum { NDIMS = sizeof dims / sizeof *dims };
    for (int z = 0; z < NDIMS * 4; z++) {
        static wf_program p;
        const int64_t *d = dims[z % NDIMS];
        const int type = types[z / NDIMS], compute = type == WEFT_BF16 ? WEFT_F32 : type;
        int v[4], sum;
        operands o;
        if (z % NDIMS == NDIMS - 1 && type != WEFT_F32)
            continue;
        wf_program_init(&p);
        for (int i = 0; i < 4; i++)
            v[i] = wf_program_cast(&p, wf_program_input(&p, type), compute);
        sum = wf_program_map(&p, WF_OP_SUB, compute, 2, (int[]){v[0], v[1]});
        sum = wf_program_map(&p, WF_OP_MUL, compute, 2, (int[]){sum, v[2]});
        wf_program_output(&p, wf_program_cast(&p, sum, type));
        sum = wf_program_map(&p, WF_OP_SUB, compute, 2, (int[]){v[3], sum});
        wf_program_output(&p, wf_program_cast(&p, sum, type));
        cr_assert_eq(wf_program_finish(&p), 0);
        make_operands(&o, &p, 2, (int64_t[]){d[0] * d[1], d[2]}, true, z);
        for (int i = 0; i < 6; i++) {
            wf_view *x = i < 4 ? &o.src[i] : &o.dst[i - 4];
            x->rank = 3;
            memcpy(x->dims, d, 3 * sizeof *d);
            x->strides[0] = d[1] * d[2];
            x->strides[1] = d[2];
            x->strides[2] = 1;
        }
        o.src[1].strides[1] = 1; /* turned, */
        o.src[1].strides[2] = d[1];
        o.src[2].strides[0] = z % 2 ? 0 : o.src[2].strides[0]; /* the first of it for all, */
        o.src[2].strides[1] = z % 3 ? 1 : d[2];
        o.src[2].strides[2] = z % 3 ? d[1] : 1;
        o.src[3].strides[0] = o.src[3].strides[z % 2 + 1] = 0; /* a row or a column */
        o.src[3].strides[2 - z % 2] = 1;
        o.want[0].rank = o.want[1].rank = 3;
        for (int i = 0; i < 2; i++) {
            memcpy(o.want[i].dims, o.dst[i].dims, sizeof o.dst[i].dims);
            memcpy(o.want[i].strides, o.dst[i].strides, sizeof o.dst[i].strides);
        }
        wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.sync = true});
        run_both(k, &p, &o, 0);
        wf_jitk_release(k);
        drop_operands(&o);
    }
}

/* Row-major dims, or their axes in another order, with `gap` elements behind each of the last; all elements of it: returned. */
static int64_t lay_out(wf_view *v, int rank, const int64_t *dims, bool turned, int gap)
{
    int order[WF_MAX_RANK];
    int64_t step = 1 + gap;
    v->rank = (uint8_t)rank;
    memcpy(v->dims, dims, (size_t)rank * sizeof *dims);
    for (int i = 0; i < rank; i++) {
        const int at = turned ? below(i + 1) : i;
        order[i] = order[at];
        order[at] = i;
    }
    for (int i = rank; i-- > 0; step *= dims[order[i]])
        v->strides[order[i]] = step;
    return step;
}

/* Any program on axes in any order, in memory that ends where the operands do; with any number of threads, and without memory for what is
 * turned: tiles pick it then, and the kernel of one step of many has nobody to tell. */
Test(kernels, random_programs_of_turned_operands)
{
    NEED_LLVM();
    static const int threads[] = {1, 2, 3, 7};
    static const int64_t dims[][5] = {{97, 129, 1, 1, 1},
                                      {3, 50, 70, 1, 1},
                                      {5, 1, 41, 60, 1},
                                      {1, 33, 2, 17, 11},
                                      {2, 9, 1200, 1, 1}};
    const int before = wf_num_threads();
    for (int t = 0; t < (int)effort_of(120); t++) {
        static sample s;
        operands o = {0};
        const int64_t *d = dims[t % 5];
        const int rank = t % 5 < 3 ? 3 + t % 2 : 5;
        draw(&s, 1 + below(8));
        int64_t n = 1;
        for (int i = 0; i < rank; i++)
            n *= d[i];
        for (int k = 0; k < s.p.noutput; k++) {
            wf_view *v = &o.dst[k];
            const bool turned = below(4) == 0;
            v->dtype = s.p.type[s.p.output[k]];
            lay_out(v, rank, d, turned, 0);
            o.want[k] = *v;
            v->data = keep_memory(&o, calloc((size_t)n, wf_dtype_size(v->dtype)));
            o.want[k].data = keep_memory(&o, calloc((size_t)n, wf_dtype_size(v->dtype)));
        }
        for (int k = 0; k < s.p.ninput; k++) {
            wf_view *v = &o.src[k];
            v->dtype = s.p.type[s.p.input[k]];
            const int64_t all = lay_out(v, rank, d, below(3) > 0, below(5) == 0);
            const bool in_place = all == n && v->dtype == o.dst[0].dtype && below(3) == 0;
            v->data = keep_memory(&o, values_new(v->dtype, all, t + k));
            if (in_place) {
                o.dst[0] = o.want[0] = *v; /* the first result takes its place */
                o.want[0].data = keep_memory(&o, calloc((size_t)n, wf_dtype_size(v->dtype)));
            } else {
                v->strides[below(rank)] *= below(6) > 0; /* of an axis there may be one element */
            }
        }
        for (int k = 0; k < s.p.nscalar; k++)
            o.scalar[k] = keep_memory(&o, values_new(s.p.type[s.p.scalar[k]], 64, t));
        wf_jitk *k = wf_jitk_get(&s.p, &(wf_jitk_opts){.sync = true});
        weft_set_num_threads(threads[t / 5 % 4]);
        cr_assert_eq(wf_jitk_wait(k), WF_JITK_NATIVE);
        for (int i = 0; i < 2; i++) {
            const wf_program_args a = {
                .dst = i ? o.dst : o.want, .src = o.src, .scalars = o.scalar};
            wf_alloc_fail_after(i && t % 3 == 0, 1);
            cr_assert_eq(i ? wf_jitk_run(k, &a) : wf_program_run_on(&s.p, &a), 0);
            wf_alloc_fail_after(0, 0);
        }
        for (int i = 0; i < s.p.noutput; i++)
            llvm_compare(o.dst[i].data, o.want[i].data, o.dst[i].dtype, n, wf_jitk_name(k),
                         &targets[0]);
        wf_jitk_release(k);
        drop_operands(&o);
    }
    weft_set_num_threads(before);
}

/* Every row in a chain x -> row -> multiply and cast, and with its derivative beside it. */
Test(kernels, every_row_fused)
{
    NEED_LLVM();
    static const int64_t dims[1] = {3001};
    int checked = 0;
    for (wf_op op = 1; op < WF_OP_COUNT; op++)
        for (int d = WEFT_DTYPE_DEFAULT + 1; d < WEFT_DTYPE_COUNT; d++) {
            static wf_program p;
            const int compute = wf_dtype_compute(d);
            if (!wf_kir_has_row(op, compute) || ((int)op + d) % 3 != 0)
                continue;
            if (!effort_walks((uint64_t)checked++, 3))
                continue;
            int src[5];
            operands o;
            wf_program_init(&p);
            for (int k = 0; k < wf_rows[op].min_src; k++)
                src[k] = wf_program_input(&p, d);
            const int y = wf_program_map(&p, op, compute, wf_rows[op].min_src, src);
            const int pair[2] = {wf_program_cast(&p, y, WEFT_F32), wf_program_scalar(&p, WEFT_F32)};
            wf_program_output(&p, wf_program_cast(&p, y, d));
            wf_program_output(&p, wf_program_map(&p, WF_OP_MUL, WEFT_F32, 2, pair));
            if (wf_kir_has_vjp(op, 0, compute)) {
                const int n = wf_rows[op].min_src;
                for (int k = n; k > 0; k--)
                    src[k] = src[k - 1];
                src[n + 1] = y;
                src[0] = pair[0];
                wf_program_output(&p, wf_program_vjp(&p, op, 0, compute, n + 2, src));
            }
            cr_assert_eq(wf_program_finish(&p), 0, "%s", wf_rows[op].name);
            make_operands(&o, &p, 1, dims, true, (int)op);
            wf_jitk *k = wf_jitk_get(&p, NULL);
            run_both(k, &p, &o, 0);
            wf_jitk_release(k);
            drop_operands(&o);
        }
    cr_assert_gt(checked, 100);
}

/* -- the cache --------------------------------------------------------------------------------------------- */
/* x * c + i times: programs that differ in their length. */
static void chain(wf_program *p, int length)
{
    wf_program_init(p);
    int v = wf_program_input(p, WEFT_F32);
    const int c = wf_program_scalar(p, WEFT_F32);
    for (int i = 0; i < length; i++) {
        const int src[2] = {v, c};
        v = wf_program_map(p, i % 2 ? WF_OP_ADD : WF_OP_MUL, WEFT_F32, 2, src);
    }
    wf_program_output(p, v);
    cr_assert_eq(wf_program_finish(p), 0);
}

static wf_jitk_stats stats(void)
{
    wf_jitk_stats s;
    wf_jitk_get_stats(&s);
    return s;
}

Test(kernels, a_hit_is_the_same_kernel_at_every_size)
{
    static wf_program p, q;
    chain(&p, 3);
    chain(&q, 3);
    wf_jitk *first = wf_jitk_get(&p, NULL);
    wf_jitk_wait(first);
    for (int64_t batch = 1; batch <= 512; batch += 73) {
        const int64_t dims[2] = {batch, 33};
        operands o;
        wf_jitk *k = wf_jitk_get(&q, NULL);
        cr_assert_eq(k, first);
        make_operands(&o, &q, 2, dims, true, 0);
        const wf_program_args native = {.dst = o.dst, .src = o.src, .scalars = o.scalar},
                              tiles = {.dst = o.want, .src = o.src, .scalars = o.scalar};
        cr_assert_eq(wf_jitk_run(k, &native), 0);
        cr_assert_eq(wf_program_run_on(&q, &tiles), 0);
        check_outputs(&o, &q, "chain", 0);
        wf_jitk_release(k);
        drop_operands(&o);
    }
    wf_jitk_release(first);
    const wf_jitk_stats s = stats();
    cr_assert_eq(s.misses, 1);
    cr_assert_eq(s.hits, 8);
    cr_assert_eq(s.kernels, 1);
    cr_assert_eq(s.compiled + s.loaded + s.failed, 1);
    const wf_jitk_opts other = {.one = 1};
    wf_jitk_release(wf_jitk_get(&p, &other));
    cr_assert_eq(stats().misses, 2);
}

Test(kernels, eviction_keeps_what_is_held)
{
    static wf_program p;
    enum { N = 30 };
    wf_jitk *held[3];
    for (int i = 0; i < 3; i++) {
        chain(&p, 1 + i);
        held[i] = wf_jitk_get(&p, &(wf_jitk_opts){.sync = true});
    }
    wf_jitk_set_cap(0);
    for (int i = 0; i < N; i++) {
        chain(&p, 4 + i % 7);
        wf_jitk_release(wf_jitk_get(&p, &(wf_jitk_opts){.sync = i % 2 == 0}));
    }
    for (int i = 0; i < 3; i++) {
        const int64_t dims[1] = {1000};
        operands o;
        chain(&p, 1 + i);
        make_operands(&o, &p, 1, dims, true, i);
        const wf_program_args native = {.dst = o.dst, .src = o.src, .scalars = o.scalar},
                              tiles = {.dst = o.want, .src = o.src, .scalars = o.scalar};
        cr_assert_eq(wf_jitk_run(held[i], &native), 0);
        cr_assert_eq(wf_program_run_on(&p, &tiles), 0);
        check_outputs(&o, &p, "held", 0);
        drop_operands(&o);
        wf_jitk *again = wf_jitk_get(&p, NULL);
        cr_assert_eq(again, held[i]);
        wf_jitk_release(again);
        wf_jitk_release(held[i]);
    }
    cr_assert_geq(stats().evicted, N / 2);
    cr_assert_leq(stats().kernels, 10); /* those still pending when they were released */
}

Test(kernels, refusal_has_a_reason_and_tier_0_goes_on)
{
    static wf_program p;
    const int64_t dims[1] = {777};
    operands o;
    chain(&p, 5);
    make_operands(&o, &p, 1, dims, true, 1);
    wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.target = {.arch = "host", .width = 12}});
    cr_assert_eq(wf_jitk_wait(k), WF_JITK_TIER0);
    cr_assert_gt(strlen(wf_jitk_reason(k)), 10u);
    const wf_program_args native = {.dst = o.dst, .src = o.src, .scalars = o.scalar},
                          tiles = {.dst = o.want, .src = o.src, .scalars = o.scalar};
    cr_assert_eq(wf_jitk_run(k, &native), 0);
    cr_assert_eq(wf_program_run_on(&p, &tiles), 0);
    check_outputs(&o, &p, "tier 0", 0);
    cr_assert_eq(stats().failed, 1);
    wf_jitk_release(k);
    drop_operands(&o);
}

/* In place, and so large that stores go past the caches. */
Test(kernels, large_and_in_place)
{
    static wf_program p;
    const int64_t dims[1] = {(4 << 20) + 37};
    chain(&p, 4);
    for (int in_place = 0; in_place < 2; in_place++) {
        operands o;
        make_operands(&o, &p, 1, dims, true, 1);
        void *out = aligned_alloc(64, ((size_t)dims[0] * 4 + 127) / 64 * 64);
        cr_assert_not_null(out);
        memset(out, 0x5A, ((size_t)dims[0] * 4 + 127) / 64 * 64);
        const wf_program_args tiles = {.dst = o.want, .src = o.src, .scalars = o.scalar};
        cr_assert_eq(wf_program_run_on(&p, &tiles), 0);
        o.dst[0].data = out;
        if (in_place) {
            memcpy(out, o.src[0].data, (size_t)dims[0] * 4);
            o.src[0].data = out;
        }
        wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.sync = true});
        const wf_program_args native = {.dst = o.dst, .src = o.src, .scalars = o.scalar};
        cr_assert_eq(wf_jitk_run(k, &native), 0);
        check_outputs(&o, &p, "large", 0);
        wf_jitk_release(k);
        drop_operands(&o);
        free(out);
    }
}

static wf_view matrix(void *data, int dtype, int64_t rows, int64_t cols, int64_t down,
                      int64_t along)
{
    return (wf_view){.data = data,
                     .dtype = (uint8_t)dtype,
                     .rank = 2,
                     .dims = {rows, cols},
                     .strides = {down, along}};
}

/* A row and a column beside a matrix that moves more than caches hold, with results on lines, off them, and in place. */
Test(kernels, large_beside_a_row_and_a_column)
{
    enum { MOST = 40 * 1024 };
    static const int64_t cols[] = {1024, 1000, 2080, 64, 33};
    static float x[MOST], row[MOST], column[MOST];
    static _Alignas(64) float y[MOST + 16], want[MOST];
    static _Alignas(64) uint16_t z[MOST + 32], want_z[MOST];
    static wf_program p;
    NEED_LLVM();
    wf_program_init(&p);
    const int a = wf_program_input(&p, WEFT_F32), b = wf_program_input(&p, WEFT_F32),
              c = wf_program_input(&p, WEFT_F32);
    const int product = wf_program_map(&p, WF_OP_MUL, WEFT_F32, 2, (const int[]){a, b});
    const int sum = wf_program_map(&p, WF_OP_ADD, WEFT_F32, 2, (const int[]){product, c});
    wf_program_output(&p, sum);
    wf_program_output(&p, wf_program_cast(&p, sum, WEFT_BF16));
    cr_assert_eq(wf_program_finish(&p), 0);
    wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.sync = true});
    cr_assert_eq(wf_jitk_wait(k), WF_JITK_NATIVE);
    for (int i = 0; i < 5; i++)
        for (int way = 0; way < 4;
             way++) { /* on lines; the second result, both off them; in place */
            const int64_t n = cols[i], rows = MOST / n;
            for (int j = 0; j < MOST; j++) {
                x[j] = (float)(j % 1009 - 500) * 0.37f;
                row[j] = (float)(j % 13) - 6.5f;
                column[j] = (float)(j % 7) * 0.11f;
            }
            memset(y, 0x5A, sizeof y);
            memset(z, 0x5A, sizeof z);
            float *to = y + (way == 2);
            uint16_t *narrow = z + (way == 1 || way == 2);
            const wf_view src[] = {matrix(x, WEFT_F32, rows, n, n, 1),
                                   matrix(row, WEFT_F32, rows, n, 0, 1),
                                   matrix(column, WEFT_F32, rows, n, 1, 0)};
            const wf_view ref[] = {matrix(want, WEFT_F32, rows, n, n, 1),
                                   matrix(want_z, WEFT_BF16, rows, n, n, 1)};
            cr_assert_eq(wf_program_run_on(&p, &(wf_program_args){.dst = ref, .src = src}), 0);
            if (way == 3)
                to = memcpy(y, x, (size_t)(rows * n) * 4);
            const wf_view in[] = {way == 3 ? matrix(y, WEFT_F32, rows, n, n, 1) : src[0], src[1],
                                  src[2]};
            const wf_view dst[] = {matrix(to, WEFT_F32, rows, n, n, 1),
                                   matrix(narrow, WEFT_BF16, rows, n, n, 1)};
            cr_assert_eq(
                wf_jitk_run(k, &(wf_program_args){.dst = dst, .src = in, .beside = WF_STREAM_FROM}),
                0);
            cr_assert_eq(memcmp(to, want, (size_t)(rows * n) * 4), 0, "%d columns, way %d", (int)n,
                         way);
            cr_assert_eq(memcmp(narrow, want_z, (size_t)(rows * n) * 2), 0, "%d columns, way %d",
                         (int)n, way);
            cr_assert_eq(narrow[rows * n], 0x5A5A);
        }
    wf_jitk_release(k);
}

/* As many sources as a program has, the last ones a row, a column and an element: each has a bit of its own. */
Test(kernels, a_row_and_a_column_are_the_last_of_many)
{
    enum { ROWS = 9, COLS = 1001, MOST = WF_PROGRAM_INPUTS };
    static float x[ROWS * COLS], row[COLS], column[ROWS], y[ROWS * COLS], want[ROWS * COLS];
    const float one = 3;
    static wf_program p;
    NEED_LLVM();
    for (int i = 0; i < ROWS * COLS; i++) {
        x[i] = (float)(i % 1009 - 500) * 0.37f;
        row[i % COLS] = (float)(i % 13) - 6.5f;
        column[i % ROWS] = (float)(i % 7) * 0.11f;
    }
    for (int n = MOST - 3; n <= MOST; n++)
        for (int last = 0; last < 3; last++) {
            wf_view src[MOST];
            int sum = -1;
            wf_program_init(&p);
            for (int k = 0; k < n; k++) {
                const int v = wf_program_input(&p, WEFT_F32);
                sum =
                    k == 0 ? v : wf_program_map(&p, WF_OP_ADD, WEFT_F32, 2, (const int[]){sum, v});
                const int form = k < n - 3 ? 3 : (k + last) % 3;
                src[k] = form == 0   ? matrix(row, WEFT_F32, ROWS, COLS, 0, 1)
                         : form == 1 ? matrix(column, WEFT_F32, ROWS, COLS, 1, 0)
                         : form == 2 ? matrix((void *)(uintptr_t)&one, WEFT_F32, ROWS, COLS, 0, 0)
                                     : matrix(x, WEFT_F32, ROWS, COLS, COLS, 1);
            }
            wf_program_output(&p, sum);
            cr_assert_eq(wf_program_finish(&p), 0);
            wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.sync = true});
            cr_assert_eq(wf_jitk_wait(k), WF_JITK_NATIVE);
            const wf_view dst = matrix(y, WEFT_F32, ROWS, COLS, COLS, 1),
                          ref = matrix(want, WEFT_F32, ROWS, COLS, COLS, 1);
            for (int far = 0; far < 2; far++) {
                cr_assert_eq(wf_program_run_on(&p, &(wf_program_args){.dst = &ref, .src = src}), 0);
                cr_assert_eq(wf_jitk_run(k, &(wf_program_args){.dst = &dst,
                                                               .src = src,
                                                               .beside = far ? WF_STREAM_FROM : 0}),
                             0);
                cr_assert_eq(memcmp(y, want, sizeof y), 0, "%d sources, %d, %d", n, last, far);
            }
            wf_jitk_release(k);
        }
}

/* -- threads ------------------------------------------------------------------------------------------------- */
enum { THREADS = 16, PROGRAMS = 12 };
static wf_program shared[PROGRAMS];

static void *work(void *arg)
{
    const int seed = *(const int *)arg;
    for (int i = 0; i < 40; i++) {
        const int which = (seed * 7 + i * 5) % PROGRAMS;
        float x[333], y[333], want[333], c = 1.5f;
        for (int j = 0; j < 333; j++)
            x[j] = (float)(j - 100) * 0.25f;
        const wf_view src = llvm_vector(x, WEFT_F32, 333), dst = llvm_vector(y, WEFT_F32, 333),
                      ref = llvm_vector(want, WEFT_F32, 333);
        const void *const scalar[1] = {&c};
        const wf_program_args native = {.dst = &dst, .src = &src, .scalars = scalar},
                              tiles = {.dst = &ref, .src = &src, .scalars = scalar};
        wf_jitk *k = wf_jitk_get(&shared[which], &(wf_jitk_opts){.sync = i % 8 == seed % 8});
        cr_assert_not_null(k);
        cr_assert_eq(wf_jitk_run(k, &native), 0);
        cr_assert_eq(wf_program_run_on(&shared[which], &tiles), 0);
        cr_assert_eq(memcmp(y, want, sizeof y), 0);
        if (i % 5 == 0)
            wf_jitk_trim();
        wf_jitk_release(k);
        if (i % 9 == 0)
            wf_jitk_set_cap(i % 2 ? 0 : 1 << 20);
    }
    return NULL;
}

Test(kernels, many_threads_get_run_and_evict)
{
    pthread_t thread[THREADS];
    int seed[THREADS];
    for (int i = 0; i < PROGRAMS; i++)
        chain(&shared[i], 1 + i);
    for (int i = 0; i < THREADS; i++) {
        seed[i] = i;
        cr_assert_eq(pthread_create(&thread[i], NULL, work, &seed[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    const wf_jitk_stats s = stats();
    cr_assert_eq(s.hits + s.misses, THREADS * 40);
    wf_jitk_trim();
}

/* -- processes ------------------------------------------------------------------------------------------------ */
static atomic_bool stop;

/* ThreadSanitizer ends a forked child that starts threads. */
#if UNDER_TSAN
#define NEED_FORK() cr_skip_test("forked children start threads")
#else
#define NEED_FORK() (void)0
#endif

static void *compile_for_ever(void *unused)
{
    static wf_program p;
    (void)unused;
    for (int i = 0; !atomic_load(&stop); i++) {
        chain(&p, 1 + i % 4); /* from disk mostly: half of the time is under the loader's lock */
        wf_jitk_release(wf_jitk_get(&p, &(wf_jitk_opts){.sync = true}));
        wf_jitk_trim();
    }
    return NULL;
}

/* Kernels are kept in a folder of the test's own, which the command removes. */
enum { REMOVES = 96 };
static void keep_on_disk(char command[REMOVES])
{
    char folder[64];
    snprintf(folder, sizeof folder, "/tmp/weft-kernels-%d", (int)getpid());
    snprintf(command, REMOVES, "rm -rf %s", folder);
    setenv("WEFT_CACHE_DIR", folder, 1);
    setenv("WEFT_CACHE_SIZE", "8M", 1);
}

/* Children compile although the parent's threads were compiling, loading and unloading when they came. */
Test(kernels, forked_children_compile)
{
    char command[REMOVES];
    keep_on_disk(command);
    NEED_LLVM();
    NEED_FORK();
    static wf_program p;
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, compile_for_ever, NULL), 0);
    for (int i = 0; i < 40; i++) {
        int status;
        chain(&p, 50 + i);
        wf_jitk_release(wf_jitk_get(&p, NULL));
        usleep((useconds_t)below(6000));
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);
            chain(&p, 100);
            wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.sync = true});
            const int sync = (int)wf_jitk_get_state(k);
            chain(&p, 101);
            k = wf_jitk_get(&p, NULL);
            while (wf_jitk_get_state(k) == WF_JITK_PENDING)
                usleep(100);
            _exit(sync != WF_JITK_NATIVE || wf_jitk_get_state(k) != WF_JITK_NATIVE);
        }
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d: %x", i, (unsigned)status);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    wf_jitk_trim();
    cr_assert_eq(system(command), 0);
}

/* Of the one thread of that name; 0: there is none. */
static unsigned long long blocked_signals(const char *thread)
{
    unsigned long long mask = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *e; tasks && (e = readdir(tasks));) {
        char path[300], line[256];
        bool named = false;
        snprintf(path, sizeof path, "/proc/self/task/%.200s/status", e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
        while (f && fgets(line, sizeof line, f)) {
            char name[64];
            named = named || (sscanf(line, "Name: %63s", name) == 1 && strcmp(name, thread) == 0);
            if (named) {
                (void)sscanf(line, "SigBlk: %llx", &mask);
            }
        }
        if (f) {
            fclose(f);
        }
    }
    if (tasks) {
        closedir(tasks);
    }
    return mask;
}

/* A program that blocks a signal to wait for it is not ended by it through the compiler's thread. */
Test(kernels, the_compiler_takes_faults_and_no_other_signals)
{
    NEED_LLVM();
    static wf_program p;
    chain(&p, 5);
    wf_jitk_release(wf_jitk_get(&p, NULL));
    unsigned long long mask = 0;
    for (int i = 0; i < 5000 && (!mask || (mask >> (SIGSEGV - 1) & 1)); i++) {
        mask = blocked_signals("weft-compiler"); /* it has no name at first, and blocks all */
        usleep(1000);
    }
    for (int s = SIGHUP; s <= SIGSYS; s++) {
        const bool fault = s == SIGSEGV || s == SIGBUS || s == SIGFPE || s == SIGILL ||
                           s == SIGTRAP || s == SIGSYS;
        const bool never = s == SIGKILL || s == SIGSTOP;
        cr_assert(never || (mask >> (s - 1) & 1) == !fault, "signal %d of %llx", s, mask);
    }
}

/* -- first runs: kernels that wait ------------------------------------------------------------------------------ */
enum { HOUR = 3600 };

/* A first run that is not over for an hour, with a pool that leaves the compiler no CPU. */
static void begin_first_run(wf_jitk_first *h)
{
    struct timespec now;
    cr_assert_eq(wf_set_num_threads(wf_pool_cpus()), 0);
    wf_jitk_first_begin(h);
    clock_gettime(CLOCK_MONOTONIC, &now);
    h->since = ((int64_t)now.tv_sec + HOUR) * 1000000000;
}

static wf_jitk *ask(int length)
{
    static wf_program p;
    chain(&p, length);
    return wf_jitk_get(&p, NULL);
}

static void *ask_elsewhere(void *length)
{
    return ask(*(int *)length);
}

/* As a thread that is in no first run asks. */
static wf_jitk *ask_from_another_thread(int length)
{
    pthread_t thread;
    void *k;
    cr_assert_eq(pthread_create(&thread, NULL, ask_elsewhere, &length), 0);
    cr_assert_eq(pthread_join(thread, &k), 0);
    return k;
}

static void wait_until_native(const wf_jitk *k)
{
    while (wf_jitk_get_state(k) == WF_JITK_PENDING)
        usleep(100);
    cr_assert_eq(wf_jitk_get_state(k), WF_JITK_NATIVE);
}

/* Kernels of a first run are compiled behind it; those that another thread asks for, too, or that somebody waits for, at once. */
Test(kernels, a_first_run_is_spared)
{
    setenv("WEFT_CACHE_SIZE", "0", 1);
    NEED_LLVM();
    enum { HELD = 4 };
    wf_jitk *held[HELD];
    wf_jitk_first h;
    begin_first_run(&h);
    for (int i = 0; i < HELD; i++)
        held[i] = ask(10 + i);
    wf_jitk *other = ask_from_another_thread(20); /* behind them in the queue */
    wait_until_native(other);
    for (int i = 0; i < HELD; i++)
        cr_assert_eq(wf_jitk_get_state(held[i]), WF_JITK_PENDING, "%d", i);
    wf_jitk_release(ask(11));
    cr_assert_eq(wf_jitk_get_state(held[1]), WF_JITK_PENDING, "the run itself asks again");
    wf_jitk *both = ask_from_another_thread(12);
    cr_assert_eq(both, held[2]);
    wait_until_native(both);
    cr_assert_eq(wf_jitk_wait(held[3]), WF_JITK_NATIVE);
    cr_assert_eq(wf_jitk_get_state(held[0]), WF_JITK_PENDING);
    wf_jitk_first_end(&h);
    for (int i = 0; i < HELD; i++) {
        wait_until_native(held[i]);
        wf_jitk_release(held[i]);
    }
    wf_jitk_release(other);
    wf_jitk_release(both);
    cr_assert_eq(stats().compiled, HELD + 1);
}

/* One that lasts is not spared for ever, nor one that leaves the compiler a CPU. */
Test(kernels, a_long_first_run_is_not_spared)
{
    setenv("WEFT_CACHE_SIZE", "0", 1);
    NEED_LLVM();
    wf_jitk_first h;
    begin_first_run(&h);
    h.since = 1;
    wf_jitk *k = ask(10);
    wait_until_native(k);
    wf_jitk_release(k);
    k = ask(11); /* it is over for these, too */
    wait_until_native(k);
    wf_jitk_release(k);
    wf_jitk_first_end(&h);
    if (wf_pool_cpus() > 1) {
        begin_first_run(&h);
        wf_jitk_first_end(&h);
        cr_assert_eq(wf_set_num_threads(wf_pool_cpus() - 1), 0);
        wf_jitk_first_begin(&h);
        h.since = INT64_MAX / 2;
        k = ask(12);
        wait_until_native(k);
        wf_jitk_release(k);
        wf_jitk_first_end(&h);
    }
}

/* What an earlier process compiled is native in the first run. */
Test(kernels, a_first_run_finds_kernels_on_disk)
{
    char command[REMOVES];
    keep_on_disk(command);
    NEED_LLVM();
    static wf_program p;
    wf_jitk_first h;
    chain(&p, 30);
    wf_jitk_release(wf_jitk_get(&p, &(wf_jitk_opts){.sync = true}));
    wf_jitk_trim();
    begin_first_run(&h);
    wf_jitk *k = ask(30);
    wait_until_native(k);
    cr_assert_eq(stats().loaded, 1);
    wf_jitk_first_end(&h);
    wf_jitk_release(k);
    cr_assert_eq(system(command), 0);
}

/* A child has none of the threads whose first runs its kernels would wait for. */
Test(kernels, a_forked_child_spares_no_first_run)
{
    setenv("WEFT_CACHE_SIZE", "0", 1);
    NEED_LLVM();
    NEED_FORK();
    wf_jitk_first h;
    int status;
    begin_first_run(&h);
    wf_jitk *held = ask(31);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        wf_jitk_release(ask(32)); /* there is a thread again */
        while (wf_jitk_get_state(held) == WF_JITK_PENDING)
            usleep(100);
        _exit(wf_jitk_get_state(held) != WF_JITK_NATIVE);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%x", (unsigned)status);
    cr_assert_eq(wf_jitk_get_state(held), WF_JITK_PENDING);
    wf_jitk_first_end(&h);
    wait_until_native(held);
    wf_jitk_release(held);
}

static void *run_for_ever(void *unused)
{
    static wf_program p;
    enum { N = 1 << 16 };
    static float x[N], y[N];
    (void)unused;
    chain(&p, 60);
    const float c = 0.5f;
    const wf_view src = llvm_vector(x, WEFT_F32, N), dst = llvm_vector(y, WEFT_F32, N);
    const void *const scalar[1] = {&c};
    const wf_program_args args = {.dst = &dst, .src = &src, .scalars = scalar};
    wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.sync = true});
    while (wf_jitk_run(k, &args) == 0)
        atomic_store(&stop, true);
    return NULL;
}

static void leave_while_running(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_for_ever, NULL) != 0)
        _exit(9);
    while (!atomic_load(&stop))
        usleep(100);
    exit(0);
}

/* Code stays mapped until the process is gone. */
Test(kernels, exit_while_a_thread_runs_a_kernel)
{
    NEED_LLVM();
    NEED_FORK();
    for (int i = 0; i < 8; i++) {
        int status;
        const pid_t child = fork();
        if (child == 0)
            leave_while_running();
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d: %x", i, (unsigned)status);
    }
}

/* The least that is held after one of the cycles at the beginning and at the end of a window: the thread that compiles may be busy
 * with what the last cycle left it. */
static void make_and_drop(int cycles, size_t *before, size_t *after)
{
    enum { SOME = 20 };
    static wf_program p;
    *before = *after = SIZE_MAX;
    for (int i = 0; i < cycles; i++) {
        chain(&p, 1 + i % 4);
        wf_jitk_release(wf_jitk_get(&p, &(wf_jitk_opts){.sync = true}));
        wf_jitk_trim();
        const size_t held = mallinfo2().uordblks;
        if (i < SOME)
            *before = held < *before ? held : *before;
        if (i >= cycles - SOME)
            *after = held < *after ? held : *after;
    }
}

/* Kernels made and dropped again and again leave nothing behind in the compiler's library, once its tables have grown to what
 * they need (10 KB within 500 cycles, and one of them once more by 5 KB at some later time): what leaks 16 bytes a kernel does so
 * in every window, a table grows in one. */
Test(kernels, unloading_gives_everything_back)
{
    NEED_LLVM();
    enum { WARM = 500, CYCLES = 320, WINDOWS = 3 };
    size_t before = 0, after = 1;
    bool flat = false;
    make_and_drop(UNDER_ASAN || UNDER_TSAN ? 40 : WARM, &before,
                  &after); /* there nothing is counted */
    for (int w = 0; w < WINDOWS && !flat; w++) {
        make_and_drop(CYCLES, &before, &after);
        flat = after <= before + (size_t)CYCLES * 15;
    }
    cr_assert(flat, "%zu to %zu", before, after);
}

/* -- tools ----------------------------------------------------------------------------------------------------- */
Test(kernels, perf_and_gdb_see_names)
{
    NEED_LLVM();
    static wf_program p;
    struct descriptor {
        uint32_t version, action;
        void *relevant, *first;
    };
    extern struct descriptor __jit_debug_descriptor;
    char path[64], line[256] = "", want[96];
    setenv("WEFT_PERF", "1", 1);
    setenv("WEFT_GDB", "1", 1);
    chain(&p, 3);
    wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.sync = true});
    cr_assert_eq(wf_jitk_get_state(k), WF_JITK_NATIVE, "%s", wf_jitk_reason(k));
    cr_assert(strncmp(wf_jitk_name(k), "m_mul_add__", 11) == 0, "%s", wf_jitk_name(k));
    snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f);
    cr_assert_not_null(fgets(line, sizeof line, f));
    fclose(f);
    unlink(path);
    snprintf(want, sizeof want, " %s\n", wf_jitk_name(k));
    cr_assert_not_null(strstr(line, want), "%s", line);
    cr_assert_gt(strtoull(strchr(line, ' '), NULL, 16), 50u, "%s", line);
    cr_assert_not_null(__jit_debug_descriptor.first);
    wf_jitk_release(k);
    wf_jitk_trim();
    cr_assert_null(__jit_debug_descriptor.first);
}
