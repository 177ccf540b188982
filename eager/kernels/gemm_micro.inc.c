/*
 * eager/kernels/gemm_micro.inc.c -- the built-in matrix product on one thread, compiled per instruction
 * set (WF_ISA = sse2, avx2, avx512).
 *
 * Invariants: k is walked in slices whose length depends on k alone, each slice summed in index order
 * in a register and added to C (f32 scratch for 16-bit storage), so an element's bits do not depend on
 * the block it lies in. fma only where the instruction set has it: bits differ between sets.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "eager/cpu/gemm_impl.h"
#include "eager/kernels/gemm_simd.inc.h"
#include "jit/ir/dtype.h"

/* k slice: a packed panel of B (KC x 2 vectors) must stay in L1. */
enum { KC = 256 };

#define T float
#define V vec_f32
#define VL VL_F32
#define F(name) name##_f32
#define V_FMA FMA_F32
#define V_LOAD LOAD_F32
#define V_STORE STORE_F32
#define V_SET1 SET1_F32
#include "eager/kernels/gemm_tile.inc.h"
#undef T
#undef V
#undef VL
#undef F
#undef V_FMA
#undef V_LOAD
#undef V_STORE
#undef V_SET1

#define T double
#define V vec_f64
#define VL VL_F64
#define F(name) name##_f64
#define V_FMA FMA_F64
#define V_LOAD LOAD_F64
#define V_STORE STORE_F64
#define V_SET1 SET1_F64
#include "eager/kernels/gemm_tile.inc.h"
#undef T
#undef V
#undef VL
#undef F
#undef V_FMA
#undef V_LOAD
#undef V_STORE
#undef V_SET1

static inline float same_f32(float x)
{
    return x;
}
static inline double same_f64(double x)
{
    return x;
}

/*
 * Packing turns a strided matrix [rows][cols] into panels of `width` rows: panel q holds, for each
 * column p, its rows side by side. The last panel is `pad` wide if pad > 0 (zero filled), else as wide
 * as it has rows. Both matrices are packed by this: A as it is, B transposed.
 */
#define DEFINE_PACK(name, S, T, convert)                                                           \
    static void name(const S *src, int64_t rs, int64_t cs, int64_t rows, int64_t cols,             \
                     int64_t width, int pad, T *restrict out)                                      \
    {                                                                                              \
        for (int64_t i = 0; i < rows; i += width) {                                                \
            int64_t w = rows - i < width ? rows - i : width, stride = pad ? width : w;             \
            const S *s = src + i * rs;                                                             \
            if (rs == 1 && w == width) {                                                           \
                for (int64_t p = 0; p < cols; p++)                                                 \
                    for (int64_t r = 0; r < width; r++)                                            \
                        out[p * stride + r] = convert(s[p * cs + r]);                              \
            } else {                                                                               \
                for (int64_t p0 = 0; p0 < cols; p0 += 16) {                                        \
                    int64_t p1 = p0 + 16 < cols ? p0 + 16 : cols;                                  \
                    for (int64_t r = 0; r < w; r++)                                                \
                        for (int64_t p = p0; p < p1; p++)                                          \
                            out[p * stride + r] = convert(s[r * rs + p * cs]);                     \
                    for (int64_t r = w; r < stride; r++)                                           \
                        for (int64_t p = p0; p < p1; p++)                                          \
                            out[p * stride + r] = 0;                                               \
                }                                                                                  \
            }                                                                                      \
            out += cols * stride;                                                                  \
        }                                                                                          \
    }
DEFINE_PACK(pack_any_f32, float, float, same_f32)

static inline void transpose_4x4(const float *s, int64_t rs, float *to, int64_t to_rs)
{
    __m128 a = _mm_loadu_ps(s), b = _mm_loadu_ps(s + rs);
    __m128 c = _mm_loadu_ps(s + 2 * rs), d = _mm_loadu_ps(s + 3 * rs);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + to_rs, b);
    _mm_storeu_ps(to + 2 * to_rs, c);
    _mm_storeu_ps(to + 3 * to_rs, d);
}

/* f32 with contiguous columns, the usual A and a transposed B: full panels by 4 x 4 transposition. */
static void pack_f32(const float *src, int64_t rs, int64_t cs, int64_t rows, int64_t cols,
                     int64_t width, int pad, float *restrict out)
{
    int64_t full = cs == 1 && rs != 1 && width % 4 == 0 ? rows - rows % width : 0;
    for (int64_t i = 0; i < full; i += width, out += width * cols) {
        int64_t p = cols - cols % 4;
        /* A cache line of each row at a time: rows are often a multiple of 4 KiB apart, and then
         * compete for the same few lines of L1. */
        for (int64_t p0 = 0; p0 < p; p0 += 16)
            for (int64_t r = 0; r < width; r += 4)
                for (int64_t q = p0; q < p && q < p0 + 16; q += 4)
                    transpose_4x4(src + (i + r) * rs + q, rs, out + q * width + r, width);
        for (; p < cols; p++)
            for (int64_t r = 0; r < width; r++)
                out[p * width + r] = src[(i + r) * rs + p];
    }
    if (full < rows)
        pack_any_f32(src + full * rs, rs, cs, rows - full, cols, width, pad, out);
}

DEFINE_PACK(pack_f64, double, double, same_f64)
DEFINE_PACK(pack_bf16, uint16_t, float, wf_f32_of_bf16)
DEFINE_PACK(pack_f16, uint16_t, float, wf_f32_of_f16)

static void pack(int dtype, const void *src, int64_t offset, int64_t rs, int64_t cs, int64_t rows,
                 int64_t cols, int64_t width, int pad, void *out)
{
    if (dtype == WEFT_F64)
        pack_f64((const double *)src + offset, rs, cs, rows, cols, width, pad, out);
    else if (dtype == WEFT_F32)
        pack_f32((const float *)src + offset, rs, cs, rows, cols, width, pad, out);
    else if (dtype == WEFT_BF16)
        pack_bf16((const uint16_t *)src + offset, rs, cs, rows, cols, width, pad, out);
    else
        pack_f16((const uint16_t *)src + offset, rs, cs, rows, cols, width, pad, out);
}

static int64_t slice_length(int64_t k)
{
    int64_t slices = (k + KC - 1) / KC;
    return slices > 1 ? (k + slices - 1) / slices : k;
}

static int64_t round_up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

/* Reading B in place pays when few rows of A share the packing; only compute types can. */
static int reads_in_place(const wf_gemm_block *g)
{
    return (g->dtype == WEFT_F32 || g->dtype == WEFT_F64) && g->b_cs == 1 && g->m <= 3 * MR;
}

static int64_t columns_of_tile(int dtype)
{
    return dtype == WEFT_F64 ? 2 * VL_F64 : 2 * VL_F32;
}

typedef struct parts {
    size_t a, b, acc; /* bytes */
} parts;

static parts scratch_parts(const wf_gemm_block *g)
{
    size_t es = g->dtype == WEFT_F64 ? sizeof(double) : sizeof(float);
    size_t kc = (size_t)slice_length(g->k);
    int64_t nr = columns_of_tile(g->dtype);
    size_t columns = (size_t)(reads_in_place(g) ? nr : round_up(g->n, nr));
    int narrow = g->dtype == WEFT_BF16 || g->dtype == WEFT_F16;
    parts s = {.a = ((size_t)g->m * kc * es + 63) & ~(size_t)63,
               .b = (columns * kc * es + 63) & ~(size_t)63,
               .acc = narrow ? (size_t)g->m * (size_t)g->n * es : 0};
    return s;
}

static size_t block_scratch(const wf_gemm_block *g)
{
    parts s = scratch_parts(g);
    return s.a + s.b + s.acc;
}

static void store_narrow(const wf_gemm_block *g, const float *acc)
{
    for (int64_t i = 0; i < g->m; i++) {
        uint16_t *c = (uint16_t *)g->c + i * g->c_rs;
        const float *x = acc + i * g->n;
        if (g->dtype == WEFT_BF16)
            for (int64_t j = 0; j < g->n; j++)
                c[j] = wf_bf16_of_f32(x[j]);
        else
            for (int64_t j = 0; j < g->n; j++)
                c[j] = wf_f16_of_f32(x[j]);
    }
}

static void block_run(const wf_gemm_block *g)
{
    parts s = scratch_parts(g);
    char *pa = g->scratch, *pb = pa + s.a;
    void *acc = s.acc ? (void *)(pb + s.b) : g->c;
    int64_t ldc = s.acc ? g->n : g->c_rs;
    int64_t kc = slice_length(g->k), nr = columns_of_tile(g->dtype);
    int in_place = reads_in_place(g);
    int64_t ragged = g->n % nr, first = in_place ? g->n - ragged : 0;
    for (int64_t k0 = 0; k0 < g->k; k0 += kc) {
        int64_t len = g->k - k0 < kc ? g->k - k0 : kc;
        pack(g->dtype, g->a, k0 * g->a_cs, g->a_rs, g->a_cs, g->m, len, MR, 0, pa);
        if (!in_place || ragged)
            pack(g->dtype, g->b, k0 * g->b_rs + first * g->b_cs, g->b_cs, g->b_rs, g->n - first,
                 len, nr, 1, pb);
        if (g->dtype == WEFT_F64)
            slice_f64(g->m, g->n, len, (const double *)(void *)pa, (const double *)(void *)pb,
                      in_place ? (const double *)g->b + k0 * g->b_rs : NULL, g->b_rs, acc, ldc,
                      g->add || k0 > 0);
        else
            slice_f32(g->m, g->n, len, (const float *)(void *)pa, (const float *)(void *)pb,
                      in_place ? (const float *)g->b + k0 * g->b_rs : NULL, g->b_rs, acc, ldc,
                      g->add || k0 > 0);
    }
    if (s.acc)
        store_narrow(g, acc);
}

const wf_gemm_kernels WF_PASTE(wf_gemm_kernels, WF_ISA) = {.scratch = block_scratch,
                                                           .block = block_run};
