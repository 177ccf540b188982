/*
 * tests/jit/test_cuda_schemes.c -- how programs with reductions are launched on a device of 132 processors: the scheme, blocks and threads
 * of the shapes that bench/bench_gpu.c measures, and of a language model's step. Nothing is compiled or run.
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
    static char nowhere[8];
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
