/*
 * tests/jit/test_cuda_programs.c -- programs on the device: the bits of the interpreter, whatever the strides.
 *
 * ctest: timeout=900
 */
#include <stdio.h>

#include "tests/jit/kernel_support.h"

#ifndef WEFT_GPU_RUNNER
#include "tests/cuda/driver/fake.h"
#endif
#include "eager/dense.h"
#include "jit/gpu/impl.h"
#include "jit/lower.h"
#include "tests/jit/cuda_support.h"
#include "tests/jit/programs.h"
#include "tests/support/effort.h"

static const int64_t shapes[][2] = {
    {3, 70},    {5, 64}, {7, 1000}, {1, 4096},  {2, 4097}, {2, 9000}, {40, 129}, {9, 16},    {4, 3},
    {1, 70001}, {33, 1}, {5, 0},    {100, 300}, {700, 37}, {9, 5000}, {0, 7},    {2, 100003}};
enum { NSHAPES = sizeof shapes / sizeof *shapes };

/* Launches as on another device: of one processor, a few, or as many as any has. */
static void draw_processors(void)
{
    wf_cuda_info *info = (wf_cuda_info *)(uintptr_t)wf_cuda_get_info(0);
    const int few = 1 + below(8), many = 1 + below(200);
    const int some[] = {1, few, 4, many};
    info->processors = some[below(4)];
}

/* What is wanted is there. */
static void run_on_device_only(const wf_program *p, operands *o, const char *what)
{
    const wf_program_args device = {
        .dst = o->dst, .src = o->src, .scalars = o->scalar, .axes = o->axes};
    wf_why why = {0};
    cr_assert_eq(device_program(p, &device, &why), 0, "%s: %s", what, why.rule);
    check_outputs(o, p, what, 0);
}

/* By its kernel or instruction by instruction. */
static void run_either_way(const wf_program *p, operands *o, const char *what)
{
    const wf_program_args device = {
        .dst = o->dst, .src = o->src, .scalars = o->scalar, .axes = o->axes};
    const wf_program_args tiles = {
        .dst = o->want, .src = o->src, .scalars = o->scalar, .axes = o->axes};
    wf_why why = {0};
    const int want = wf_program_run_on(p, &tiles);
    const int got = device_program(p, &device, &why);
    cr_assert_eq(got, want, "%s: %d %s", what, got, why.rule);
    if (want == 0)
        check_outputs(o, p, what, 0);
}

static void run_on_device(const wf_program *p, operands *o, const char *what)
{
    wf_gpu_stats before, after;
    wf_gpu_get_stats(&before);
    run_either_way(p, o, what);
    wf_gpu_get_stats(&after);
    cr_assert_eq(after.singles, before.singles, "%s: its kernel was not made: %s", what,
                 wf_cu_log());
}

Test(cuda_programs, random_elementwise)
{
    NEED_FIBERS();
    static const int64_t dims[][2] = {{37, 129}, {64, 64}, {1, 1000}, {5, 8}, {3, 0}, {257, 3}};
    for (int t = 0; t < (int)effort_of(60); t++) {
        static sample s;
        draw_processors();
        draw(&s, 1 + t % 12);
        for (int c = 0; c < 2; c++) {
            operands o;
            make_operands(&o, &s.p, 1 + (t + c) % 2, dims[below(6)] + ((t + c) % 2 == 0), c == 0,
                          t);
            run_on_device(&s.p, &o, "random program");
            drop_operands(&o);
        }
    }
}

/* Large enough that a thread of the fake device has several groups, of every element size: whole vectors, rows of odd length,
 * operands that begin at odd places. In place too: what is stored twice is the same. */
Test(cuda_programs, groups)
{
    NEED_FIBERS();
    static const int64_t dims[][2] = {
        {1, 140001}, {140, 1001}, {70, 2002}, {3, 1 << 18}, {513, 257}};
    static const int types[] = {WEFT_BF16, WEFT_F32, WEFT_U8, WEFT_F64, WEFT_F16};
    for (int d = 0; d < 5; d++)
        for (int z = 0; z < 5; z++) {
            static wf_program p;
            operands o;
            const int type = types[d];
            if (!effort_walks((uint64_t)(d * 5 + z), 3))
                continue;
            wf_program_init(&p);
            const int x = wf_program_input(&p, type), y = wf_program_input(&p, type);
            const int compute = wf_dtype_compute(type);
            int r = wf_program_cast(&p, x, compute);
            r = program_map2(&p, WF_OP_ADD, r, wf_program_cast(&p, y, compute));
            wf_program_output(&p, wf_program_cast(&p, r, type));
            cr_assert_eq(wf_program_finish(&p), 0);
            make_operands(&o, &p, 2, dims[z], true, z);
            o.src[1].strides[0] = z % 2 ? 0 : o.src[1].strides[0]; /* a row for all */
            if (z == 3)
                o.src[1].strides[0] = o.src[1].strides[1] = 0;
            const int64_t size = (int64_t)wf_dtype_size(type);
            if ((d + z) % 3 == 1) {
                o.dst[0].data = (char *)o.dst[0].data + size;
                o.want[0].data = (char *)o.want[0].data + size;
            } else if ((d + z) % 3 == 2) {
                o.src[0].data = (char *)o.src[0].data + size;
            }
            run_on_device(&p, &o, wf_dtype_name(type));
            memcpy(o.dst[0].data, o.src[0].data, (size_t)(dims[z][0] * dims[z][1] * size));
            o.src[0].data = o.dst[0].data;
            run_on_device_only(&p, &o, wf_dtype_name(type));
            drop_operands(&o);
        }
}

/* -- flat kernels ---------------------------------------------------------------------------------------------- */
/* Views of `rank` axes, in the order of their elements, of which each is one (`form` bit d: not along axis d) over the memory of
 * vectors of n elements; `by` elements into it. */
static void lay(wf_view *v, int rank, const int64_t *dims, unsigned form, int by)
{
    int64_t step = 1;
    v->rank = (uint8_t)rank;
    for (int d = rank - 1; d >= 0; d--) {
        v->dims[d] = dims[d];
        v->strides[d] = form >> d & 1 ? 0 : step;
        step *= form >> d & 1 ? 1 : dims[d];
    }
    v->data = (char *)v->data + by * (int)wf_dtype_size(v->dtype);
}

/* Operands of a program of elements over n = dims[0] dims[1] ...; results, and sources but for those of other forms, begin `by`
 * elements into their memory. */
static void lay_operands(operands *o, const wf_program *p, int rank, const int64_t *dims,
                         const unsigned *form, int by, int seed)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= dims[d];
    make_operands(o, p, 1, &n, true, seed);
    for (int k = 0; k < p->noutput; k++) {
        lay(&o->dst[k], rank, dims, 0, by);
        lay(&o->want[k], rank, dims, 0, by);
    }
    for (int k = 0; k < p->ninput; k++)
        lay(&o->src[k], rank, dims, form[k], form[k] && by ? k : by);
}

static bool is_flat(const wf_program *p, const operands *o)
{
    const wf_program_args a = {.dst = o->dst, .src = o->src, .scalars = o->scalar};
    wf_gpu_map_way way;
    wf_why why = {0};
    cr_assert_eq(wf_gpu_map_way_of(0, p, &a, &way, &why), 0, "%s", why.rule);
    return way.flat;
}

typedef struct flat_case {
    int rank;
    int64_t dims[4];
    unsigned form[2]; /* of the second and the third source */
    bool flat;        /* where all begin at vectors, in bf16 */
} flat_case;

static const flat_case flat_cases[] = {
    {1, {70001}, {0, 1}, true},           /* an odd length and a scalar */
    {2, {70, 1021}, {1, 2}, true},        /* a row, a column */
    {2, {70, 1021}, {1, 1}, true},        /* two rows */
    {2, {70, 1022}, {1, 3}, true},        /* a row, a scalar */
    {2, {70, 1024}, {1, 2}, false},       /* rows begin at vectors */
    {2, {300, 257}, {2, 2}, true},        /* two columns */
    {2, {25001, 3}, {1, 1}, true},        /* rows shorter than a vector */
    {2, {25001, 3}, {1, 2}, false},       /* and a column */
    {2, {13, 5407}, {1, 0}, true},        /* rows as long as many vectors */
    {3, {5, 37, 401}, {2, 1}, true},      /* [b, 1, n]; [1, m, n] */
    {3, {5, 37, 401}, {5, 2}, true},      /* [1, m, 1] */
    {3, {41, 57, 31}, {6, 3}, true},      /* [b, 1, 1]; [1, 1, n] */
    {4, {3, 23, 11, 101}, {10, 5}, true}, /* every other axis */
    {4, {7, 11, 9, 103}, {9, 6}, true},   /* the outer and the inner ones */
    {3, {1, 1, 65537}, {0, 7}, true},
};

static const float chain_scalar = 1.5F; /* none of those that make all alike */

static void put_chain(wf_program *p, const int *type)
{
    int x[3];
    wf_program_init(p);
    for (int i = 0; i < 3; i++)
        x[i] = wf_program_cast(p, wf_program_input(p, type[i]), WEFT_F32);
    const int s = wf_program_scalar(p, WEFT_F32);
    const int r = program_map2(p, WF_OP_MUL, x[0], x[1]);
    const int z = program_map2(p, WF_OP_ADD, r, program_map2(p, WF_OP_MUL, x[2], s));
    wf_program_output(p, wf_program_cast(p, z, type[3]));
    cr_assert_eq(wf_program_finish(p), 0);
}

/* Vectors whatever the extents are: what broadcasts along which axes, where operands begin, types side by side, in place. */
Test(cuda_programs, flat)
{
    NEED_FIBERS();
    static const int types[][4] = {{WEFT_BF16, WEFT_BF16, WEFT_BF16, WEFT_BF16},
                                   {WEFT_F32, WEFT_F32, WEFT_F32, WEFT_F32},
                                   {WEFT_U8, WEFT_F32, WEFT_F32, WEFT_F32},
                                   {WEFT_F16, WEFT_F32, WEFT_U8, WEFT_F16},
                                   {WEFT_F32, WEFT_BF16, WEFT_F64, WEFT_U8}};
    int flat = 0, runs = 0;
    for (size_t c = 0; c < sizeof flat_cases / sizeof *flat_cases; c++)
        for (int d = 0; d < 5; d++) {
            static wf_program p;
            const flat_case *f = &flat_cases[c];
            const unsigned form[3] = {0, f->form[0], f->form[1]};
            char what[64];
            if (!effort_walks(c * 5 + (size_t)d, 3))
                continue;
            put_chain(&p, types[d]);
            for (int by = 0; by < 4; by += 1 + (d > 1)) {
                operands o;
                snprintf(what, sizeof what, "flat case %d, types %d, %d in", (int)c, d, by);
                lay_operands(&o, &p, f->rank, f->dims, form, by, (int)c + by);
                o.scalar[0] = &chain_scalar;
                if (by == 3) /* elsewhere than the results */
                    o.src[0].data = (char *)o.src[0].data - wf_dtype_size(types[d][0]);
                const bool it_is = is_flat(&p, &o);
                cr_expect(by > 0 || d > 0 || it_is == f->flat, "%s: %d", what, it_is);
                flat += it_is;
                runs++;
                run_on_device(&p, &o, what);
                if (types[d][0] == types[d][3] && by < 3) {
                    const size_t bytes = (size_t)wf_view_bytes(&o.dst[0]);
                    memcpy(o.dst[0].data, o.src[0].data, bytes);
                    o.src[0].data = o.dst[0].data;
                    run_on_device_only(&p, &o, what);
                }
                drop_operands(&o);
            }
        }
    cr_assert_geq(flat, runs / 2, "%d of %d", flat, runs);
}

/* What is drawn has no memory: in the order of the elements, beside rows and columns. */
Test(cuda_programs, flat_draws)
{
    NEED_FIBERS();
    for (size_t c = 0; c < sizeof flat_cases / sizeof *flat_cases; c++) {
        static wf_program p;
        const flat_case *f = &flat_cases[c];
        const unsigned form[3] = {0, f->form[0], 0};
        static const int64_t seed = 5, number = 70;
        static const double low = -1, high = 3;
        operands o;
        int at[WF_DRAW_SCALARS];
        wf_program_init(&p);
        const int x = wf_program_input(&p, WEFT_F32), y = wf_program_input(&p, WEFT_F32);
        for (int i = 0; i < WF_DRAW_SCALARS; i++)
            at[i] = wf_program_scalar(&p, i < 2 ? WEFT_I64 : WEFT_F64);
        const int drawn = wf_program_draw(&p, c % 2 ? WF_OP_RAND : WF_OP_RANDN, WEFT_F32, at);
        wf_program_output(&p,
                          program_map2(&p, WF_OP_MUL, drawn, program_map2(&p, WF_OP_ADD, x, y)));
        cr_assert_eq(wf_program_finish(&p), 0);
        lay_operands(&o, &p, f->rank, f->dims, form, (int)c % 3, (int)c);
        o.scalar[0] = &seed;
        o.scalar[1] = &number;
        o.scalar[2] = &low;
        o.scalar[3] = &high;
        run_on_device(&p, &o, "flat draws");
        drop_operands(&o);
    }
}

#ifndef WEFT_GPU_RUNNER
/* The text with 64 bits of offsets, of operands that do not need them: every element, in steps that leave most threads several vectors;
 * a row for all, a column, one for each index of the first axis. */
Test(cuda_programs, flat_and_wide)
{
    NEED_FIBERS();
    enum { B = 3, M = 5, N = 20, STEP = M * N, V = 4, HEAD = 3, WORDS = 64 };
    const int64_t dims[3] = {B * 4, M, N}, n = (B * 4 * M * N - HEAD) / V;
    const unsigned form[3] = {0, 5, 2};
    const int types[4] = {WEFT_F32, WEFT_F32, WEFT_F32, WEFT_F32};
    const wf_target target = {.arch = "sm_90"};
    const unsigned grid[3] = {2, 1, 1}, block[3] = {64, 1, 1};
    wf_cu_set_library(WEFT_FAKE_NVRTC);
    for (int groups = 1; groups < 3; groups++) {
        static wf_program p;
        static mirror mem;
        wf_kernel k;
        wf_why why = {0};
        wf_text text = {0};
        wf_blob image = {0};
        wf_cuda_module *module = NULL;
        wf_cuda_fn *fn = NULL;
        uint64_t w[WORDS] = {(uint64_t)n, HEAD, (uint64_t)(B * 4 * M * N - n * V), STEP, V};
        operands o;
        put_chain(&p, types);
        lay_operands(&o, &p, 3, dims, form, 1, groups);
        o.scalar[0] = &chain_scalar;
        const wf_program_args tiles = {.dst = o.want, .src = o.src, .scalars = o.scalar};
        cr_assert_eq(wf_program_run_on(&p, &tiles), 0);
        cr_assert_eq(wf_lower_device(&p, &k, &why), 0, "%s", why.rule);
        const wf_cu_map m = {.k = &k,
                             .wide = true,
                             .flat = true,
                             .rank = 3,
                             .vector = V,
                             .groups = groups,
                             .dense = 3,
                             .whole = 3,
                             .still = 4,
                             .inner = {1, 1, 0, 1},
                             .like = {0, 0, 2, 3}};
        cr_assert_eq(wf_cu_render_map(&m, &text, &why), 0, "%s", why.rule);
        cr_assert_eq(wf_backend_cuda.compile(&target, &text, &image, &why), 0, "%s", why.rule);
        cr_assert_eq(wf_cuda_module_new(0, image.data, image.size, &module, &why), 0);
        cr_assert_eq(wf_cuda_function(module, k.name, &fn, &why), 0, "%s", why.rule);
        memset(&mem, 0, sizeof mem);
        const wf_view *views[4] = {&o.dst[0], &o.src[0], &o.src[1], &o.src[2]};
        /* from a vector on, so that HEAD elements are before the next one */
        for (int i = 0; i < 4; i++)
            mirror_add(&mem, &(wf_view){.data = (char *)views[i]->data - (i < 2 ? 4 : 0),
                                        .dtype = WEFT_F32,
                                        .rank = 1,
                                        .dims = {B * 4 * M * N + 1},
                                        .strides = {1}});
        mirror_upload(&mem);
        for (int d = 1; d < 3; d++)
            w[wf_cu_map_divisor(&m, d)] = (uint64_t)dims[d];
        for (int i = 0; i < 4; i++) {
            uint64_t *at = w + wf_cu_map_operand(&m, i);
            *at = (uint64_t)(uintptr_t)mirror_view(&mem, views[i]).data;
            for (int d = 0; d < wf_cu_map_strides(&m, i); d++)
                at[1 + d] = (uint64_t)views[i]->strides[d];
        }
        w[wf_cu_map_scalar(&m, 0)] = wf_kir_peek(o.scalar[0], WF_KT_F32, 0);
        cr_assert(wf_cu_map_words(&m) <= WORDS);
        cr_assert_eq(wf_cuda_launch(fn, grid, block, 0, (void *[]){w}, &why), 0, "%s", why.rule);
        cr_assert_eq(mirror_download(&mem, &why), 0, "%s", why.rule);
        mirror_check(&mem);
        check_outputs(&o, &p, "flat and wide", 0);
        wf_cuda_module_free(module);
        wf_blob_free(&image);
        wf_text_free(&text);
        wf_kernel_free(&k);
        drop_operands(&o);
    }
}
#endif

/* Random programs over the same spaces, of any types, several results. */
Test(cuda_programs, random_flat)
{
    NEED_FIBERS();
    int flat = 0;
    for (int t = 0; t < (int)effort_of(24); t++) {
        static sample s;
        const flat_case *f = &flat_cases[below(sizeof flat_cases / sizeof *flat_cases)];
        unsigned form[WF_PROGRAM_INPUTS];
        operands o;
        draw_processors();
        draw(&s, 1 + t % 6);
        for (int k = 0; k < s.p.ninput; k++)
            form[k] = below(3) ? 0 : (unsigned)below(1 << f->rank);
        lay_operands(&o, &s.p, f->rank, f->dims, form, below(3), t);
        if (s.p.ninput > 1 && f->rank > 1 && below(4) == 0) /* a slice of every other column */
            o.src[1].strides[f->rank - 1] *= 2;
        flat += is_flat(&s.p, &o);
        run_on_device(&s.p, &o, "random flat program");
        drop_operands(&o);
    }
    cr_assert_geq(flat, (int)effort_of(24) / 4, "%d", flat);
}

/* MOST_RUNS runs of one program, by the tile interpreter and on the device: the same bits. Drops the operands; returns how many
 * launches there were. */
static int64_t run_many(const wf_program *p, operands *o, const char *what)
{
    wf_program_args device[MOST_RUNS];
    wf_cuda_counters before, after;
    wf_why why = {0};
    for (int r = 0; r < MOST_RUNS; r++) {
        device[r] = (wf_program_args){
            .dst = o[r].dst, .src = o[r].src, .scalars = o[r].scalar, .axes = o[r].axes};
        wf_program_args tiles = device[r];
        tiles.dst = o[r].want;
        cr_assert_eq(wf_program_run_on(p, &tiles), 0);
    }
    wf_cuda_get_counters(&before);
    cr_assert_eq(device_programs(p, MOST_RUNS, device, &why), 0, "%s", why.rule);
    wf_cuda_get_counters(&after);
    for (int r = 0; r < MOST_RUNS; r++) {
        check_outputs(&o[r], p, what, 0);
        drop_operands(&o[r]);
    }
    return after.launches - before.launches;
}

/* Runs of one program on other operands, of sizes and strides of their own, some with scalars of their own: each has its bits,
 * however many launches they take. */
Test(cuda_programs, many_runs)
{
    NEED_FIBERS();
    static const int64_t dims[][2] = {{37, 129}, {64, 64}, {1, 1000}, {5, 8},
                                      {3, 0},    {257, 3}, {1, 1},    {700, 40}};
    int64_t launches = 0;
    for (int t = 0; t < (int)effort_of(30); t++) {
        static sample s;
        static operands o[MOST_RUNS];
        draw_processors();
        draw(&s, 1 + t % 5);
        const int rank = 1 + t % 2;
        for (int r = 0; r < MOST_RUNS; r++)
            make_operands(&o[r], &s.p, rank, dims[below(8)], r % 4 != 0, t + r % 3);
        launches += run_many(&s.p, o, "one of many runs");
    }
    cr_assert_lt(launches, (int64_t)effort_of(30) * MOST_RUNS);
}

/* Runs [0, n) of p on memory that lies end to end in x (its inputs), each of a few elements, by the tile interpreter and on the device; how
 * many launches it took. */
static int64_t run_small(const wf_program *p, int n, bool rows, const float *x, float *got,
                         float *want)
{
    enum { EACH = 8, SOURCES = 2, MANY = 1600 };
    static wf_program_args on[MANY];
    static wf_view src[MANY][SOURCES], dst[MANY], to[MANY];
    static const float factors[3] = {1.5F, -2, 0.25F};
    static const void *scalar[3] = {&factors[0], &factors[1], &factors[2]};
    static mirror m;
    wf_cuda_counters before, after;
    wf_why why = {0};
    const int64_t all = (int64_t)MANY * EACH;
    const wf_view whole[2] = {
        wf_view_dense(got, WEFT_F32, 1, &all),
        wf_view_dense((float *)(uintptr_t)x, WEFT_F32, 1, (int64_t[]){all * SOURCES})};
    cr_assert_leq(n, MANY);
    memset(&m, 0, sizeof m);
    for (int i = 0; i < 2; i++)
        mirror_add(&m, &whole[i]);
    mirror_upload(&m);
    for (int i = 0; i < n; i++) {
        const int64_t count = 3 + i % 3 * 2; /* alike: neither one nor vectors */
        for (int k = 0; k < SOURCES; k++)
            src[i][k] = wf_view_dense((float *)(uintptr_t)x + (i * SOURCES + k) * EACH, WEFT_F32, 1,
                                      &count);
        dst[i] = wf_view_dense(want + i * EACH, WEFT_F32, 1, &count);
        dst[i].strides[0] = !rows;
        on[i] = (wf_program_args){
            .dst = &dst[i], .src = src[i], .scalars = &scalar[i / 7 % 3], .axes = rows};
        cr_assert_eq(wf_program_run_on(p, &on[i]), 0);
        to[i] = dst[i];
        to[i].data = got + i * EACH;
        to[i] = mirror_view(&m, &to[i]);
        on[i].dst = &to[i];
        for (int k = 0; k < SOURCES; k++)
            src[i][k] = mirror_view(&m, &src[i][k]);
    }
    wf_cuda_get_counters(&before);
    cr_assert_eq(wf_gpu_programs(0, p, n, on, &why), 0, "%s", why.rule);
    wf_cuda_get_counters(&after);
    cr_assert_eq(mirror_download(&m, &why), 0, "%s", why.rule);
    mirror_check(&m);
    return after.launches - before.launches;
}

/* So many runs that arguments of 128, 512 and 4095 words are full, lack one, or have one more; old drivers take 512. */
Test(cuda_programs, arguments_full_of_runs)
{
    NEED_FIBERS();
    static float x[1600 * 8 * 2], got[1600 * 8], want[1600 * 8];
    static wf_program p;
    static const int room[2][3] = {{23, 100, 817},
                                   {15, 63, 511}}; /* runs of 5 words behind 10, of 8 behind 6 */
    wf_cuda_info *info = (wf_cuda_info *)(uintptr_t)wf_cuda_get_info(0);
    const int driver = info->driver;
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = (float)(int)(values_hash(i) % 2001) * 1e-3F - 1;
    for (int c = 0; c < 2 * 2 * 3 * 4; c++) {
        const int rows = c & 1, old = c >> 1 & 1, by = c / 4 % 4, *of = room[rows];
        const int n = by == 3 ? 2 * of[c / 16] - 1 : of[c / 16] + by - 1,
                  most = of[old || driver < 12010 ? 1 : 2];
        if (n > 1600)
            continue;
        char what[64];
        snprintf(what, sizeof what, "%s of %d, driver %d", rows ? "sums" : "products", n, old);
        wf_program_init(&p);
        int y = wf_program_input(&p, WEFT_F32);
        y = program_map2(&p, WF_OP_MUL, y, wf_program_input(&p, WEFT_F32));
        if (rows)
            y = wf_program_reduce(&p, WF_OP_SUM, y);
        else
            y = program_map2(&p, WF_OP_MUL, y, wf_program_scalar(&p, WEFT_F32));
        wf_program_output(&p, y);
        cr_assert_eq(wf_program_finish(&p), 0);
        memset(got, 0x5A, sizeof got);
        memset(want, 0x5A, sizeof want);
        info->driver = old ? 12000 : driver;
        const int64_t launches = run_small(&p, n, rows, x, got, want);
        cr_assert_eq(memcmp(got, want, sizeof got), 0, "%s", what);
        cr_assert_eq(launches, (n + most - 1) / most * (rows ? 2 : 1), "%s: %d launches", what,
                     (int)launches);
    }
    info->driver = driver;
}

/* The first axis becomes the adjacent one. */
static void turn_view(wf_view *v)
{
    v->strides[0] = 1;
    v->strides[1] = v->dims[0];
}

/* Everything reduced, of operands of one piece, of several, turned, and of none: two launches for what is alike. */
Test(cuda_programs, many_whole_sums)
{
    NEED_FIBERS();
    static const int64_t dims[MOST_RUNS][2] = {{37, 129}, {64, 64},   {1, 1000}, {5, 8},
                                               {3, 0},    {257, 300}, {1, 1},    {700, 4096},
                                               {1, 4097}, {7, 13},    {3, 0},    {33, 31}};
    static const int types[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_BOOL};
    for (int t = 0; t < 4; t++) {
        static wf_program p;
        static operands o[MOST_RUNS];
        wf_program_init(&p);
        program_everything_reduced(&p, types[t]);
        cr_assert_eq(wf_program_finish(&p), 0);
        for (int r = 0; r < MOST_RUNS; r++) {
            make_operands(&o[r], &p, 2, dims[r], true, t + r);
            for (int k = 0; k < p.noutput; k++)
                memset(o[r].dst[k].strides, 0, sizeof o[r].dst[k].strides),
                    memset(o[r].want[k].strides, 0, sizeof o[r].want[k].strides);
            if (r % 6 == 1)
                turn_view(&o[r].src[0]);
            o[r].axes = 3;
        }
        const int64_t launches = run_many(&p, o, "one of many sums");
        cr_assert_leq(launches, 4, "%d launches", (int)launches);
    }
}

/* -- with reductions -------------------------------------------------------------------------------------- */
/* Plain operands turned: the kept axis is the adjacent one, so rows stand side by side. */
static void turn(operands *o, const wf_program *p)
{
    wf_view *views[] = {o->dst, o->want, o->src};
    const int counts[] = {p->noutput, p->noutput, p->ninput};
    for (int g = 0; g < 3; g++)
        for (int i = 0; i < counts[g]; i++) {
            wf_view *v = &views[g][i];
            if (v->strides[1] == 1 && v->strides[0] == v->dims[1])
                turn_view(v);
        }
}

static void check_named(program_maker make, const int *dtypes, int ndtypes)
{
    for (int d = 0; d < ndtypes; d++) {
        static wf_program p;
        wf_program_init(&p);
        make(&p, dtypes[d]);
        cr_assert_eq(wf_program_finish(&p), 0);
        for (int z = 0; z < NSHAPES; z++)
            for (int form = 0; form < 3; form++) {
                char what[64];
                operands o;
                if (!effort_walks((uint64_t)(z * 3 + form + d), 4))
                    continue;
                snprintf(what, sizeof what, "%s, %d x %d", wf_dtype_name(dtypes[d]),
                         (int)shapes[z][0], (int)shapes[z][1]);
                make_operands(&o, &p, 2, shapes[z], form > 0, z);
                if (form == 2)
                    turn(&o, &p);
                o.axes = 2;
                for (int i = 0; i < p.ninput && shapes[z][1] > 0; i++)
                    if (p.type[p.input[i]] == WEFT_I64 && p.level[p.input[i]] == WF_LEVEL_ROW)
                        for (int64_t j = 0; j < 2 * shapes[z][0]; j++)
                            ((int64_t *)o.src[i].data)[j] = j * 7 % shapes[z][1];
                run_on_device(&p, &o, what);
                drop_operands(&o);
            }
    }
}

static const int floats[] = {WEFT_F32, WEFT_BF16};
static const int all[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_I32, WEFT_BOOL};

Test(cuda_programs, softmax)
{
    NEED_FIBERS();
    check_named(program_softmax, floats, 2);
}
Test(cuda_programs, layer_norm)
{
    NEED_FIBERS();
    check_named(program_layer_norm, floats, 2);
}
Test(cuda_programs, cross_entropy)
{
    NEED_FIBERS();
    check_named(program_cross_entropy, floats, 2);
}
Test(cuda_programs, everything_reduced)
{
    NEED_FIBERS();
    check_named(program_everything_reduced, all, 5);
}

/* Rows whose kept values fit into 48 KB of shared memory, but not together with what the kernel declares; and rows of
 * the largest blocks, whose kernel has to state how many threads it is for. */
Test(cuda_programs, long_rows)
{
    NEED_FIBERS();
    static const int64_t lengths[][2] = {{2, 12150}, {2, 12161}, {1, 12200},
                                         {2, 12286}, {2, 12288}, {4, 33000}};
    static wf_program p;
    wf_program_init(&p);
    program_softmax(&p, WEFT_F32);
    cr_assert_eq(wf_program_finish(&p), 0);
    for (int z = 0; z < 6; z++) {
        operands o;
        make_operands(&o, &p, 2, lengths[z], true, z);
        o.axes = 2;
        run_on_device(&p, &o, "long rows");
        drop_operands(&o);
    }
}

/* Long rows that begin within vectors, beside a row that does not begin where they do: what is kept of an element at the border of two
 * blocks is computed by one warp, and is in a vector of another one's elements. */
Test(cuda_programs, long_odd_rows)
{
    NEED_FIBERS();
    static const int64_t lengths[][2] = {{3, 5001}, {5, 20001}, {2, 70001}, {3, 9999}};
    for (int d = 0; d < 3; d++) {
        static wf_program p;
        const int dtype = (const int[]){WEFT_F32, WEFT_BF16, WEFT_F64}[d];
        wf_program_init(&p);
        const int x = wf_program_input(&p, dtype), b = wf_program_input(&p, dtype);
        const int s = program_map2(&p, WF_OP_ADD, x, b);
        const int e = program_map1(
            &p, WF_OP_EXP, program_map2(&p, WF_OP_SUB, s, wf_program_reduce(&p, WF_OP_AMAX, s)));
        wf_program_output(&p, program_map2(&p, WF_OP_DIV, e, wf_program_reduce(&p, WF_OP_SUM, e)));
        cr_assert_eq(wf_program_finish(&p), 0);
        for (int z = 0; z < 4; z++) {
            operands o;
            if (!effort_walks((uint64_t)(d * 4 + z), 3))
                continue;
            make_operands(&o, &p, 2, lengths[z], true, z + 1);
            for (int64_t i = 0; i < 2 * lengths[z][0] * lengths[z][1]; i++) /* exp of none is 0 */
                values_put(o.src[i % 2].data, dtype, i / 2,
                           (double)(values_hash((uint64_t)i) % 2001) * 1e-3 - 1);
            o.src[1].strides[0] = 0;
            o.axes = 2;
            run_on_device(&p, &o, "long odd rows");
            drop_operands(&o);
        }
    }
}

/* Columns of small elements, some of which a thread takes as words: sums, sums that read those, and what is the same for all
 * columns. */
Test(cuda_programs, columns_in_words)
{
    NEED_FIBERS();
    static const int types[] = {WEFT_BF16, WEFT_F16, WEFT_I8, WEFT_U8, WEFT_BOOL};
    static const int64_t dims[][2] = {{8, 100},   {66, 300}, {100, 4200}, {130, 65},
                                      {36, 8300}, {65, 70},  {131, 4200}, {67, 300}};
    for (int d = 0; d < 5; d++) {
        static wf_program p;
        wf_program_init(&p);
        const int x = wf_program_cast(&p, wf_program_input(&p, types[d]), WEFT_F32);
        const int y = program_map2(&p, WF_OP_MUL, x, wf_program_input(&p, WEFT_F32));
        const int sum = wf_program_reduce(&p, WF_OP_SUM, y);
        const int apart = program_map2(&p, WF_OP_SUB, y, sum);
        wf_program_output(&p,
                          wf_program_reduce(&p, WF_OP_SUM, program_map2(&p, WF_OP_MUL, apart, x)));
        wf_program_output(&p, wf_program_cast(&p, wf_program_reduce(&p, WF_OP_AMAX, x), WEFT_F16));
        wf_program_output(&p, sum);
        cr_assert_eq(wf_program_finish(&p), 0);
        for (int z = 0; z < 8; z++) {
            operands o;
            if (!effort_walks((uint64_t)(d * 8 + z), 3))
                continue;
            make_operands(&o, &p, 2, dims[z], true, z);
            turn(&o, &p);
            o.src[1].strides[0] = 0;
            o.src[1].strides[1] = 1;
            o.axes = 2;
            run_on_device(&p, &o, "columns in words");
            drop_operands(&o);
        }
    }
}

/* Short columns, a thread each, enough for the device that it is: sums, and a softmax along them, whose kept values are a column a
 * thread. */
Test(cuda_programs, short_columns)
{
    NEED_FIBERS();
    static const int types[] = {WEFT_F32, WEFT_BF16, WEFT_F64, WEFT_I32, WEFT_BOOL};
    static const int64_t lengths[] = {1, 2, 3, 7, 8, 9, 16, 31, 33, 64};
    for (int d = 0; d < 5; d++)
        for (int z = 0; z < 10; z++)
            for (int softmax = 0; softmax < (d < 2) + 1; softmax++) {
                static wf_program p;
                const int64_t least = 256 * wf_gpu_processors(0);
                const int64_t dims[2] = {least + (z % 2 ? 1 : 476), lengths[z]};
                operands o;
                if (!effort_walks((uint64_t)(d * 10 + z + softmax), 3))
                    continue;
                wf_program_init(&p);
                (softmax ? program_softmax : program_everything_reduced)(&p, types[d]);
                cr_assert_eq(wf_program_finish(&p), 0);
                make_operands(&o, &p, 2, dims, true, z);
                turn(&o, &p);
                o.axes = 2;
                run_on_device(&p, &o, "short columns");
                drop_operands(&o);
            }
}

/* Rows enough for a device of one processor, so that a thread has up to 8 neighbours; that begin at vectors and between them, all
 * operands at equal places or not. */
Test(cuda_programs, rows_of_vectors)
{
    static const program_maker makers[] = {program_softmax, program_layer_norm,
                                           program_cross_entropy};
    static const int64_t dims[][2] = {{64, 1024}, {65, 1021}, {40, 770},  {70, 64},
                                      {33, 2048}, {66, 1028}, {4, 33000}, {3, 40003}};
    setenv("FAKE_CUDA_PROCESSORS", "1", 1);
    NEED_FIBERS();
    for (int m = 0; m < 3; m++)
        for (int d = 0; d < 2; d++) {
            static wf_program p;
            wf_program_init(&p);
            makers[m](&p, floats[d]);
            cr_assert_eq(wf_program_finish(&p), 0);
            for (int z = 0; z < 8; z++) {
                char what[64];
                operands o;
                if (!effort_walks((uint64_t)((m * 2 + d) * 8 + z), 3))
                    continue;
                snprintf(what, sizeof what, "%s, %d, %d x %d", wf_dtype_name(floats[d]), m,
                         (int)dims[z][0], (int)dims[z][1]);
                make_operands(&o, &p, 2, dims[z], true, z);
                o.axes = 2;
                for (int i = 0; i < p.ninput; i++)
                    if (p.type[p.input[i]] == WEFT_I64 && p.level[p.input[i]] == WF_LEVEL_ROW)
                        for (int64_t j = 0; j < dims[z][0]; j++)
                            ((int64_t *)o.src[i].data)[j] = j * 7 % dims[z][1];
                if (z % 3 == 1)
                    o.src[0].data = (char *)o.src[0].data + wf_dtype_size(floats[d]);
                run_on_device(&p, &o, what);
                drop_operands(&o);
            }
        }
}

/* More sums over rows that stand side by side than shared memory has room for; singles would hide a refused kernel. */
Test(cuda_programs, many_sums_side_by_side)
{
    NEED_FIBERS();
    static wf_program p;
    static const int64_t dims[2] = {300, 60};
    wf_gpu_stats before, after;
    operands o;
    wf_program_init(&p);
    const int x = wf_program_input(&p, WEFT_F64);
    int y = x, sum = -1;
    for (int i = 0; i < 30; i++) {
        y = wf_program_map(&p, WF_OP_NEG, WEFT_F64, 1, (int[]){y});
        y = wf_program_map(&p, WF_OP_ADD, WEFT_F64, 2, (int[]){y, x});
        const int s = wf_program_reduce(
            &p, WF_OP_SUM, i % 2 ? y : wf_program_map(&p, WF_OP_EXP, WEFT_F64, 1, (int[]){y}));
        sum = i ? wf_program_map(&p, WF_OP_ADD, WEFT_F64, 2, (int[]){sum, s}) : s;
    }
    wf_program_output(&p, sum);
    cr_assert_eq(wf_program_finish(&p), 0);
    make_operands(&o, &p, 2, dims, true, 1);
    turn(&o, &p);
    o.axes = 2;
    wf_gpu_get_stats(&before);
    run_on_device(&p, &o, "many sums");
    wf_gpu_get_stats(&after);
    cr_assert_eq(after.singles, before.singles);
    drop_operands(&o);
}

#ifndef WEFT_GPU_RUNNER
/* -- without the fused kernel -------------------------------------------------------------------------------- */
/* A program that no other test has. */
static void rare_program(wf_program *p, double constant)
{
    const wf_op ops[4] = {WF_OP_SIN, WF_OP_NEG, WF_OP_EXP, WF_OP_ABS};
    int y = -1;
    wf_program_init(p);
    const int x = wf_program_input(p, WEFT_F32);
    y = wf_program_map(p, WF_OP_ADD, WEFT_F32, 2, (int[]){x, x});
    for (int i = 0, n = (int)constant; i < 4; i++, n /= 4)
        y = wf_program_map(p, ops[n % 4], WEFT_F32, 1, (int[]){y});
    wf_program_output(p, y);
    cr_assert_eq(wf_program_finish(p), 0);
}

/* Runs the program while the next call of `symbol` fails; how often single instructions stood in. */
static int64_t run_failing(int number, const char *symbol, int result)
{
    static const int64_t dims[2] = {33, 17};
    static wf_program p;
    const fake_driver *gpu = fake_cuda(FAKE_LATE, 1);
    wf_gpu_stats before, after;
    operands o;
    rare_program(&p, number);
    make_operands(&o, &p, 2, dims, true, number);
    wf_gpu_get_stats(&before);
    if (symbol)
        gpu->fail(symbol, 1, result);
    run_either_way(&p, &o, symbol ? symbol : "again");
    gpu->fail(NULL, 0, 0);
    wf_gpu_get_stats(&after);
    drop_operands(&o);
    return after.singles - before.singles;
}

Test(cuda_programs, kernels_that_do_not_load)
{
    NEED_FIBERS();
    const fake_driver *gpu = fake_cuda(FAKE_LATE, 1);
    cr_assert_eq(run_failing(1, "cuModuleLoadData", 200), 1);
    const int64_t loads = gpu->calls("cuModuleLoadData");
    cr_assert_eq(run_failing(1, NULL, 0), 1, "it is remembered");
    cr_assert_eq(gpu->calls("cuModuleLoadData"), loads);
    cr_assert_eq(run_failing(2, "cuModuleLoadData", 2), 0,
                 "memory was made and it was tried again");
    cr_assert_eq(run_failing(2, NULL, 0), 0);
}

Test(cuda_programs, kernels_that_do_not_launch)
{
    NEED_FIBERS();
    const fake_driver *gpu = fake_cuda(FAKE_LATE, 1);
    cr_assert_eq(run_failing(3, NULL, 0), 0);
    /* which of the two depends on the device: kernels that may begin early are launched by the latter */
    const char *launch = gpu->calls("cuLaunchKernelEx") ? "cuLaunchKernelEx" : "cuLaunchKernel";
    cr_assert_eq(run_failing(3, launch, 701), 1);
    const int64_t loads = gpu->calls("cuModuleLoadData");
    cr_assert_eq(run_failing(3, NULL, 0), 1, "it is remembered");
    cr_assert_eq(gpu->calls("cuModuleLoadData"), loads);
}

Test(cuda_programs, fused_kernels_are_not_wanted)
{
    setenv("WEFT_JIT", "0", 1);
    NEED_FIBERS();
    cr_assert_eq(run_failing(7, NULL, 0), 1);
}

/* Who asks for it gets the fused kernel at its first run. */
Test(cuda_programs, kernels_that_are_waited_for)
{
    setenv("WEFT_JIT", "1", 1);
    NEED_FIBERS();
    static const int64_t dims[2] = {21, 18};
    static wf_program p;
    for (int wait = 0; wait < 2; wait++) {
        wf_gpu_stats before, after;
        wf_why why = {0};
        operands o;
        rare_program(&p, 20 + wait);
        make_operands(&o, &p, 2, dims, true, 5);
        const wf_program_args device = {
            .dst = o.dst, .src = o.src, .scalars = o.scalar, .axes = o.axes, .wait = wait};
        const wf_program_args tiles = {
            .dst = o.want, .src = o.src, .scalars = o.scalar, .axes = o.axes, .wait = wait};
        wf_gpu_get_stats(&before);
        cr_assert_eq(device_program(&p, &device, &why), 0, "%s", why.rule);
        wf_gpu_get_stats(&after);
        cr_assert_eq(after.singles - before.singles, wait ? 0 : 1);
        cr_assert_eq(wf_program_run_on(&p, &tiles), 0);
        check_outputs(&o, &p, "waited for", 0);
        drop_operands(&o);
        wf_gpu_wait_kernels();
    }
}

/* All operands over eight axes of two indices, each in an order of its own: nothing merges, no strides are shared. */
static void spread(operands *o, const wf_program *p)
{
    wf_view *views[] = {o->dst, o->want, o->src};
    const int counts[] = {p->noutput, p->noutput, p->ninput};
    for (int g = 0; g < 3; g++)
        for (int i = 0; i < counts[g]; i++) {
            wf_view *v = &views[g][i];
            const int which = g < 2 ? i : WF_PROGRAM_OUTPUTS + i, swap = which / 8;
            v->rank = 8;
            for (int d = 0; d < 8; d++) {
                v->dims[d] = 2;
                v->strides[d] = 1 << (d + which) % 8;
            }
            const int64_t first = v->strides[0];
            v->strides[0] = v->strides[swap];
            v->strides[swap] = first;
        }
}

/* Before driver 12.1 the arguments of a kernel have 4096 bytes: what needs more runs instruction by instruction. */
Test(cuda_programs, arguments_that_do_not_fit)
{
    NEED_FIBERS();
    wf_cuda_info *info = (wf_cuda_info *)(uintptr_t)wf_cuda_get_info(0);
    static const int64_t dims[1] = {256};
    static wf_program p;
    wf_program_init(&p);
    int y = wf_program_input(&p, WEFT_F32);
    for (int i = 1; i < WF_PROGRAM_INPUTS; i++) {
        y = wf_program_map(&p, WF_OP_ADD, WEFT_F32, 2, (int[]){y, wf_program_input(&p, WEFT_F32)});
        if (i >= WF_PROGRAM_INPUTS - WF_PROGRAM_OUTPUTS)
            wf_program_output(&p, y);
    }
    cr_assert_eq(wf_program_finish(&p), 0);
    for (int driver = 13000; driver >= 12000; driver -= 1000) {
        wf_gpu_stats before, after;
        operands o;
        info->driver = driver;
        make_operands(&o, &p, 1, dims, true, 5);
        spread(&o, &p);
        wf_gpu_get_stats(&before);
        run_either_way(&p, &o, "many arguments");
        wf_gpu_get_stats(&after);
        cr_assert_eq(after.singles - before.singles, driver == 12000, "driver %d", driver);
        drop_operands(&o);
    }
}

/* -- random ones, and what is in place ---------------------------------------------------------------------- */
Test(cuda_programs, random_reductions)
{
    NEED_FIBERS();
    for (int t = 0; t < (int)effort_of(40); t++) {
        static sample s;
        draw_processors();
        program_draw_rows(&s);
        if (!s.p.rows)
            continue;
        for (int c = 0; c < 3; c++) {
            operands o;
            make_operands(&o, &s.p, 2, shapes[below(NSHAPES)], c > 0, t);
            o.axes = 2;
            if (c == 2)
                turn(&o, &s.p);
            run_on_device(&s.p, &o, "random program with reductions");
            drop_operands(&o);
        }
    }
}

#ifndef WEFT_GPU_RUNNER
/* The texts for tensors of 2^31 elements and more, on those of other tests. */
Test(cuda_programs, offsets_of_64_bits)
{
    setenv("WEFT_STRESS", "wide", 1);
    NEED_FIBERS();
    wf_gpu_map_way way;
    static const int64_t dims[][2] = {{37, 129}, {64, 64}, {257, 3}};
    for (int t = 0; t < 6; t++) {
        static sample s;
        operands o;
        wf_why why = {0};
        draw(&s, 1 + 2 * t);
        make_operands(&o, &s.p, 2, dims[t % 3], t % 2, t);
        const wf_program_args a = {.dst = o.dst, .src = o.src, .scalars = o.scalar};
        cr_assert_eq(wf_gpu_map_way_of(0, &s.p, &a, &way, &why), 0, "%s", why.rule);
        cr_assert(way.wide);
        run_on_device(&s.p, &o, "elements by 64 bits");
        drop_operands(&o);
    }
    check_named(program_softmax, floats, 1);
    check_named(program_everything_reduced, all, 1);
}
#endif

/* A destination in the memory of a source that a later stage still reads. */
Test(cuda_programs, in_place)
{
    NEED_FIBERS();
    static const program_maker makers[] = {program_softmax, program_layer_norm,
                                           program_cross_entropy};
    for (int m = 0; m < 3; m++)
        for (int z = 0; z < NSHAPES; z++) {
            static wf_program p;
            operands o;
            if (!effort_walks((uint64_t)(m * NSHAPES + z), 3))
                continue;
            wf_program_init(&p);
            makers[m](&p, WEFT_F32);
            const int d = wf_program_map(&p, WF_OP_NEG, WEFT_F32, 1, (int[]){p.input[0]});
            wf_program_output(&p, d);
            cr_assert_eq(wf_program_finish(&p), 0);
            make_operands(&o, &p, 2, shapes[z], true, z);
            o.axes = 2;
            if (z % 2)
                turn(&o, &p);
            const size_t bytes = (size_t)(shapes[z][0] * shapes[z][1]) * 4;
            void *x = calloc(bytes + 64, 1);
            const wf_program_args tiles = {
                .dst = o.want, .src = o.src, .scalars = o.scalar, .axes = o.axes};
            const int status = wf_program_run_on(&p, &tiles);
            memcpy(x, o.src[0].data, bytes);
            memset((char *)x + bytes, 0x5A, 64);
            o.src[0].data = o.dst[p.noutput - 1].data = x;
            const wf_program_args device = {
                .dst = o.dst, .src = o.src, .scalars = o.scalar, .axes = o.axes};
            wf_why why = {0};
            cr_assert_eq(device_program(&p, &device, &why), status, "%s", why.rule);
            if (status == 0)
                check_outputs(&o, &p, "in place", 0);
            drop_operands(&o);
            free(x);
        }
}

/* A destination in the memory of a source that its own stage reads, which keeps a value of it for a later one; rows in steps leave
 * threads over. (Rows begin at vectors, and short ones are as many as there are threads for: others read what is overwritten, for nothing.) */
Test(cuda_programs, in_place_of_what_is_kept)
{
    NEED_FIBERS();
    static const int64_t dims[][2] = {{1, 70001}, {2, 100008}, {3, 36864}, {3, 5000},
                                      {64, 304},  {64, 136},   {33, 9000}, {704, 37}};
    for (int d = 0; d < 2; d++) {
        static wf_program p;
        const int dtype = d ? WEFT_BF16 : WEFT_F32;
        wf_program_init(&p);
        const int in = wf_program_input(&p, dtype), x = wf_program_cast(&p, in, WEFT_F32);
        const int e = program_map1(&p, WF_OP_EXP, x);
        const int sum = wf_program_reduce(&p, WF_OP_SUM, e);
        wf_program_output(&p, wf_program_cast(&p, program_map1(&p, WF_OP_NEG, x), dtype));
        wf_program_output(&p, program_map2(&p, WF_OP_DIV, e, sum));
        cr_assert_eq(wf_program_finish(&p), 0);
        for (int z = 0; z < 16; z++) {
            operands o;
            const int64_t *n = dims[z / 2], count = n[0] * n[1];
            if (!effort_walks((uint64_t)(d * 16 + z), 3))
                continue;
            make_operands(&o, &p, 2, n, true, z);
            for (int64_t i = 0; i < count; i++)
                values_put(o.src[0].data, dtype, i,
                           (double)(values_hash((uint64_t)i) % 2001) * 1e-3 - 1);
            if (z % 2)
                turn(&o, &p);
            o.axes = 2;
            const wf_program_args tiles = {
                .dst = o.want, .src = o.src, .scalars = o.scalar, .axes = o.axes};
            cr_assert_eq(wf_program_run_on(&p, &tiles), 0);
            memcpy(o.dst[0].data, o.src[0].data, (size_t)count * wf_dtype_size(dtype));
            o.src[0].data = o.dst[0].data;
            run_on_device_only(&p, &o, "in place of what is kept");
            drop_operands(&o);
        }
    }
}

/* Results in the place of sources of their type, of rows of all lengths, on devices of a few processors. (Not where every two accesses are
 * held to a barrier: threads left over, and vectors over the end of a row, read what goes nowhere.) */
Test(cuda_programs, random_in_place)
{
    NEED_FIBERS();
    static const int64_t dims[][2] = {{3, 70},    {7, 1000},  {2, 4097},  {2, 9000},  {40, 129},
                                      {1, 70001}, {100, 300}, {700, 37},  {9, 5000},  {2, 100003},
                                      {1, 40960}, {33, 4100}, {5, 32768}, {2000, 20}, {300, 64}};
    const char *nvrtc = getenv("WEFT_NVRTC");
    int places = 0;
    if (nvrtc && strstr(nvrtc, "libptx-nvrtc"))
        cr_skip_test("accesses are held to barriers");
    for (int t = 0; t < (int)effort_of(20); t++) {
        static sample s;
        wf_why why = {0};
        operands o;
        uint32_t taken = 0;
        if (t % 4)
            program_draw_rows(&s);
        else
            draw(&s, 6);
        draw_processors();
        make_operands(&o, &s.p, 2, dims[below(15)], true, t);
        o.axes = 2;
        if (below(2))
            turn(&o, &s.p);
        const wf_program_args tiles = {
            .dst = o.want, .src = o.src, .scalars = o.scalar, .axes = o.axes};
        const int want = wf_program_run_on(&s.p, &tiles);
        for (int k = 0; k < s.p.noutput; k++)
            for (int i = 0; i < s.p.ninput; i++) {
                wf_view *d = &o.dst[k], *x = &o.src[i];
                if (d->dtype != x->dtype || taken >> i & 1 || d->data == x->data ||
                    memcmp(d->strides, x->strides, sizeof d->strides) != 0)
                    continue;
                memcpy(d->data, x->data,
                       d->strides[1] ? wf_view_bytes(d)
                                     : (size_t)d->dims[0] * wf_dtype_size(d->dtype));
                x->data = d->data;
                taken |= 1u << i;
                places++;
                break;
            }
        const wf_program_args device = {
            .dst = o.dst, .src = o.src, .scalars = o.scalar, .axes = o.axes};
        cr_assert_eq(device_program(&s.p, &device, &why), want, "%d: %s", t, why.rule);
        if (want == 0)
            check_outputs(&o, &s.p, "random, in place", 0);
        drop_operands(&o);
    }
    cr_assert_gt(places, 0);
}

/* -- while kernels are made --------------------------------------------------------------------------------- */
Test(cuda_programs, one_by_one_until_the_kernel_is_there)
{
    setenv("WEFT_JIT", "1", 1);
    NEED_FIBERS();
    wf_gpu_stats before, after;
    for (int t = 0; t < (int)effort_of(24); t++) {
        static sample s;
        if (t % 2)
            program_draw_rows(&s);
        else
            draw(&s, 6);
        for (int c = 0; c < 3; c++) {
            operands o;
            make_operands(&o, &s.p, 2, shapes[t % 9], c > 0, t);
            o.axes = 2;
            run_either_way(&s.p, &o, c ? "ready or not" : "not ready");
            drop_operands(&o);
        }
    }
    wf_gpu_get_stats(&before);
    cr_assert_gt(before.singles, 0);
    wf_gpu_wait_kernels();
    static wf_program p;
    wf_program_init(&p);
    program_softmax(&p, WEFT_F32);
    cr_assert_eq(wf_program_finish(&p), 0);
    for (int c = 0; c < 2; c++) {
        operands o;
        make_operands(&o, &p, 2, shapes[2], true, 1);
        o.axes = 2;
        run_either_way(&p, &o, "softmax");
        drop_operands(&o);
        wf_gpu_wait_kernels();
    }
    wf_gpu_get_stats(&after);
    cr_assert_eq(after.singles, before.singles + 1, "a kernel that is there was not used");
}
#endif
