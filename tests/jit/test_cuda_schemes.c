/*
 * tests/jit/test_cuda_schemes.c -- how programs are launched on a device of 132 processors: the scheme, blocks and threads of the shapes that
 * bench/bench_gpu.c measures, and of a language model's step; which elementwise ones are flat. Nothing is compiled or run.
 */
#include <stdio.h>

#include "jit/gpu/impl.h"
#include "tests/jit/cuda_support.h"
#include "tests/jit/kernel_support.h"
#include "tests/jit/programs.h"

__attribute__((constructor)) static void choose_processors(void)
{
    setenv("FAKE_CUDA_PROCESSORS", "132", 1);
}

/* -- programs, as jit/plan_rows.c and jit/gpu/row_norm.c write them --------------------------------------------- */
static int read_f32(wf_program *p, int dtype)
{
    return wf_program_cast(p, wf_program_input(p, dtype), WEFT_F32);
}

static void write_sum(wf_program *p, int dtype)
{
    const int x = read_f32(p, dtype);
    wf_program_output(p, wf_program_cast(p, wf_program_reduce(p, WF_OP_SUM, x), dtype));
}

/* Sums over rows of g (x - mean) rstd, and of g: mean and rstd step along the rows only. */
static void write_norm_sums(wf_program *p, int dtype)
{
    const int g = read_f32(p, dtype), x = read_f32(p, dtype);
    const int mean = read_f32(p, WEFT_F32), rstd = read_f32(p, WEFT_F32);
    const int xhat = program_map2(p, WF_OP_MUL, program_map2(p, WF_OP_SUB, x, mean), rstd);
    const int gx = program_map2(p, WF_OP_MUL, g, xhat);
    wf_program_output(p, wf_program_cast(p, wf_program_reduce(p, WF_OP_SUM, gx), dtype));
    wf_program_output(p, wf_program_cast(p, wf_program_reduce(p, WF_OP_SUM, g), dtype));
}

/* -- operands ---------------------------------------------------------------------------------------------------- */
/* How an operand walks over the matrix of the case: all of it, one element a row or a column of it. */
typedef enum walks { MATRIX, DOWN, ACROSS } walks;

static wf_view operand(walks w, int dtype, int64_t rows, int64_t cols)
{
    static _Alignas(128) char nowhere[8]; /* which kernel it is depends on where operands begin */
    return (wf_view){.data = nowhere,
                     .dtype = (uint8_t)dtype,
                     .rank = 2,
                     .dims = {rows, cols},
                     .strides = {w == MATRIX ? cols : w == DOWN, w != DOWN}};
}

typedef struct scheme_case {
    const char *name;
    program_maker make;
    int dtype;
    int64_t rows, cols;
    int axis; /* reduced */
    int ndst, nsrc;
    walks dst[3], src[4];
    int dst_dtype[3], src_dtype[4]; /* 0: dtype */
    wf_gpu_way way;
} scheme_case;

static const scheme_case cases[] = {
    /* bench_gpu kernels */
    {"softmax", program_softmax, WEFT_F32, 65536, 1024, 1, 1, 1,
     .way = {WF_CU_WARP, 4224, 128, true}},
    {"layer_norm",
     program_layer_norm,
     WEFT_F32,
     65536,
     1024,
     1,
     3,
     2,
     {MATRIX, DOWN, DOWN},
     {MATRIX, ACROSS},
     .way = {WF_CU_WARP, 4224, 128, true}},
    {"sum, rows",
     write_sum,
     WEFT_F32,
     65536,
     1024,
     1,
     1,
     1,
     {DOWN},
     .way = {WF_CU_WARP, 4096, 256, false}},
    {"sum, columns",
     write_sum,
     WEFT_F32,
     65536,
     1024,
     0,
     1,
     1,
     {ACROSS},
     .way = {WF_CU_SPLIT_OUTER, 4096, 256, false}},
    {"sum of eight",
     write_sum,
     WEFT_F32,
     8,
     1 << 20,
     0,
     1,
     1,
     {ACROSS},
     .way = {WF_CU_COLUMN, 4096, 256, false}},
    {"sum, columns, bf16",
     write_sum,
     WEFT_BF16,
     65536,
     1024,
     0,
     1,
     1,
     {ACROSS},
     .way = {WF_CU_SPLIT_OUTER, 2048, 256, false}},
    /* bench_gpu train: 8 x 1024 tokens of 768, 50257 classes */
    {"layer_norm of tokens",
     program_layer_norm,
     WEFT_F32,
     8192,
     768,
     1,
     3,
     2,
     {MATRIX, DOWN, DOWN},
     {MATRIX, ACROSS},
     .way = {WF_CU_WARP, 512, 256, true}},
    {"layer_norm of tokens, bf16",
     program_layer_norm,
     WEFT_BF16,
     8192,
     768,
     1,
     3,
     2,
     {MATRIX, DOWN, DOWN},
     {MATRIX, ACROSS},
     .dst_dtype = {0, WEFT_F32, WEFT_F32},
     .way = {WF_CU_WARP, 1024, 256, false}},
    {"sums of layer_norm's gradient",
     write_norm_sums,
     WEFT_F32,
     8192,
     768,
     0,
     2,
     4,
     {ACROSS, ACROSS},
     {MATRIX, MATRIX, DOWN, DOWN},
     .way = {WF_CU_SPLIT_OUTER, 384, 256, false}},
    {"sums of layer_norm's gradient, bf16",
     write_norm_sums,
     WEFT_BF16,
     8192,
     768,
     0,
     2,
     4,
     {ACROSS, ACROSS},
     {MATRIX, MATRIX, DOWN, DOWN},
     .src_dtype = {0, 0, WEFT_F32, WEFT_F32},
     .way = {WF_CU_SPLIT_OUTER, 192, 256, false}},
    {"a bias's gradient",
     write_sum,
     WEFT_F32,
     8192,
     3072,
     0,
     1,
     1,
     {ACROSS},
     .way = {WF_CU_SPLIT_OUTER, 1536, 256, false}},
    {"classes", program_softmax, WEFT_F32, 8192, 50257, 1, 1, 1,
     .way = {WF_CU_BLOCK_ROWS, 1056, 256, false}},
    {"a gradient's norm",
     write_sum,
     WEFT_F32,
     1,
     50257 * 768,
     1,
     1,
     1,
     {DOWN},
     .way = {WF_CU_SPLIT, 589, 256, false}},
    {"the loss",
     write_sum,
     WEFT_F32,
     1,
     8192,
     1,
     1,
     1,
     {DOWN},
     .way = {WF_CU_BLOCK_ROWS, 1, 64, false}},
};

static void check_case(const scheme_case *c)
{
    static wf_program p;
    wf_view dst[3], src[4];
    wf_why why = {0};
    wf_gpu_way got;
    uint64_t scalar[2] = {0};
    const void *scalars[2] = {&scalar[0], &scalar[1]};
    wf_program_init(&p);
    c->make(&p, c->dtype);
    cr_assert_eq(wf_program_finish(&p), 0);
    cr_assert(p.noutput == c->ndst && p.ninput == c->nsrc, "%s: %d results of %d operands", c->name,
              p.noutput, p.ninput);
    for (int i = 0; i < c->ndst; i++)
        dst[i] = operand(c->dst[i], c->dst_dtype[i] ? c->dst_dtype[i] : c->dtype, c->rows, c->cols);
    for (int i = 0; i < c->nsrc; i++)
        src[i] = operand(c->src[i], c->src_dtype[i] ? c->src_dtype[i] : c->dtype, c->rows, c->cols);
    const wf_program_args a = {.dst = dst, .src = src, .scalars = scalars, .axes = 1u << c->axis};
    cr_assert_eq(wf_gpu_rows_way(0, &p, &a, &got, &why), 0, "%s: %s", c->name, why.rule);
    cr_expect(got.scheme == c->way.scheme && got.blocks == c->way.blocks &&
                  got.threads == c->way.threads && got.shared == c->way.shared,
              "%s: scheme %d, %lld blocks of %u threads, shared %d; expected %d, %lld of %u, %d",
              c->name, (int)got.scheme, (long long)got.blocks, got.threads, got.shared,
              (int)c->way.scheme, (long long)c->way.blocks, c->way.threads, c->way.shared);
}

Test(cuda_schemes, of_shapes)
{
    NEED_FIBERS();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(&cases[i]);
}

/* -- elementwise ------------------------------------------------------------------------------------------------- */
enum { WHOLE, ROW, COLUMN, ONE, SLICE, TURNED };

typedef struct map_case {
    const char *name;
    int dst, src[2]; /* types */
    int64_t rows, cols;
    int form;    /* of the second source */
    int from[3]; /* elements that operands begin behind a line of memory */
    wf_gpu_map_way way;
} map_case;

/* clang-format off */
static const map_case map_cases[] = {
    {"row, bf16", WEFT_BF16, {WEFT_BF16, WEFT_BF16}, 65533, 1021, ROW, {0, 0, 0},
     {true, false, 8, 2, 8363649, 1078176, 4212}},
    {"row, f32", WEFT_F32, {WEFT_F32, WEFT_F32}, 65533, 1021, ROW, {0, 0, 0},
     {true, false, 4, 2, 16727298, 1078176, 4212}},
    {"rows at vectors", WEFT_BF16, {WEFT_BF16, WEFT_BF16}, 65536, 1024, ROW, {0, 0, 0},
     {false, false, 8, 1, 8388608, 8388608, 4224}},
    {"rows at half a vector", WEFT_F32, {WEFT_F32, WEFT_F32}, 65536, 1022, ROW, {0, 0, 0},
     {false, false, 2, 2, 33488896, 33488896, 4224}},
    {"rows at a quarter", WEFT_BF16, {WEFT_BF16, WEFT_BF16}, 65536, 1022, ROW, {0, 0, 0},
     {true, false, 8, 2, 8372224, 1081276, 4224}},
    {"f64", WEFT_F64, {WEFT_F64, WEFT_F64}, 65533, 1021, ROW, {0, 0, 0},
     {false, false, 1, 2, 66909193, 66909193, 4224}},
    {"column", WEFT_BF16, {WEFT_BF16, WEFT_BF16}, 65533, 1021, COLUMN, {0, 0, 0},
     {true, false, 8, 2, 8363649, 1078176, 4212}},
    {"f32 row of bf16", WEFT_BF16, {WEFT_BF16, WEFT_F32}, 65533, 1021, ROW, {0, 0, 0},
     {true, false, 8, 2, 8363649, 1078176, 4212}},
    {"pixels", WEFT_F32, {WEFT_U8, WEFT_F32}, 1000003, 3, ROW, {0, 0, 0},
     {true, false, 4, 1, 750002, 270336, 1057}},
    {"pixels and a column", WEFT_F32, {WEFT_U8, WEFT_F32}, 1000003, 3, COLUMN, {0, 0, 0},
     {false, false, 1, 4, 3000009, 3000009, 2930}},
    {"odd length, bf16", WEFT_BF16, {WEFT_BF16, WEFT_BF16}, 1, 66909193, WHOLE, {0, 0, 0},
     {true, false, 8, 1, 8363649, 1081344, 4225}},
    {"odd length, f32", WEFT_F32, {WEFT_F32, WEFT_F32}, 1, 66909193, WHOLE, {0, 0, 0},
     {true, false, 4, 1, 16727298, 1081344, 4225}},
    {"all from the second", WEFT_F32, {WEFT_F32, WEFT_F32}, 1, 66909193, WHOLE, {1, 1, 1},
     {true, false, 4, 1, 16727290, 1081344, 4225}},
    {"one from the second", WEFT_F32, {WEFT_F32, WEFT_F32}, 1, 66909193, WHOLE, {0, 0, 1},
     {true, false, 4, 2, 16727298, 1081344, 4225}},
    {"the result from it", WEFT_F32, {WEFT_F32, WEFT_F32}, 1, 66909193, WHOLE, {1, 0, 0},
     {false, false, 1, 4, 66909193, 66909193, 4224}},
    {"a slice", WEFT_BF16, {WEFT_BF16, WEFT_BF16}, 65533, 1021, SLICE, {0, 0, 0},
     {true, false, 8, 2, 8363649, 1078176, 4212}},
    {"turned", WEFT_F32, {WEFT_F32, WEFT_F32}, 8191, 1021, TURNED, {0, 0, 0},
     {false, false, 1, 4, 8363011, 8363011, 4224}},
    {"few", WEFT_BF16, {WEFT_BF16, WEFT_BF16}, 61, 1021, ROW, {0, 0, 0},
     {false, false, 1, 1, 62281, 62281, 244}},
    {"a vocabulary", WEFT_BF16, {WEFT_BF16, WEFT_BF16}, 8192, 50257, ROW, {0, 0, 0},
     {true, false, 8, 2, 51463168, 804112, 3142}},
    {"longer than the device", WEFT_BF16, {WEFT_BF16, WEFT_BF16}, 3, 30000001, ROW, {0, 0, 0},
     {true, false, 8, 1, 11250000, 11250000, 43946}},
    {"over 2^30", WEFT_U8, {WEFT_U8, WEFT_U8}, 33, 36000001, ROW, {0, 0, 0},
     {true, true, 8, 4, 148500004, 36000001, 140626}},
};
/* clang-format on */

static wf_view map_operand(const map_case *c, int form, int dtype, int from)
{
    const int64_t n = c->cols;
    const int64_t strides[][2] = {{n, 1}, {0, 1}, {1, 0}, {0, 0}, {n + 3, 1}, {1, c->rows}};
    wf_view v = {.dtype = (uint8_t)dtype, .rank = 2, .dims = {c->rows, n}};
    v.data = (void *)(uintptr_t)(4096 + from * (int)wf_dtype_size(dtype));
    memcpy(v.strides, strides[form], sizeof strides[form]);
    return v;
}

Test(cuda_schemes, of_maps)
{
    NEED_FIBERS();
    for (size_t i = 0; i < sizeof map_cases / sizeof *map_cases; i++) {
        static wf_program p;
        const map_case *c = &map_cases[i];
        wf_gpu_map_way got;
        wf_why why = {0};
        wf_program_init(&p);
        const int x = read_f32(&p, c->src[0]), y = read_f32(&p, c->src[1]);
        wf_program_output(&p, wf_program_cast(&p, program_map2(&p, WF_OP_ADD, x, y), c->dst));
        cr_assert_eq(wf_program_finish(&p), 0);
        const wf_view dst = map_operand(c, WHOLE, c->dst, c->from[0]);
        const wf_view src[2] = {map_operand(c, WHOLE, c->src[0], c->from[1]),
                                map_operand(c, c->form, c->src[1], c->from[2])};
        const wf_program_args a = {.dst = &dst, .src = src};
        cr_assert_eq(wf_gpu_map_way_of(0, &p, &a, &got, &why), 0, "%s: %s", c->name, why.rule);
        const wf_gpu_map_way *want = &c->way;
        cr_expect(got.flat == want->flat && got.wide == want->wide && got.vector == want->vector &&
                      got.groups == want->groups && got.vectors == want->vectors &&
                      got.step == want->step && got.blocks == want->blocks,
                  "%s: flat %d, wide %d, %d x %d, %lld vectors, %lld apart, %lld blocks", c->name,
                  got.flat, got.wide, got.vector, got.groups, (long long)got.vectors,
                  (long long)got.step, (long long)got.blocks);
    }
}
