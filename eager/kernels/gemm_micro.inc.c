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
#include "eager/kernels/kernels.h"
#include "eager/view.h"
#include "jit/ir/dtype.h"

/* Rows or columns up to which the other operand is read in place. */
enum { SMALL = 64 };

/*
 * A block of rows of A stays in the second cache while all of B passes by. B is read in place while at most FEW_ROWS of f32
 * share its copies (a panel is copied under the first tile of each block), and A unless MANY_COLUMNS share its own, or
 * more columns than FEW_TILES have where its rows compete for the same lines of the first cache.
 */
#if defined(__AVX512F__)
enum {
    BLOCK_BYTES = 5 << 18,
    BLOCK_ROWS = 1 << 30,
    FEW_ROWS = SMALL,
    MANY_COLUMNS = 1 << 30,
    FEW_TILES = 1,
    TURNS = 0
};
#else
enum {
    BLOCK_BYTES = 144 << 10,
    BLOCK_ROWS = 192,
    FEW_ROWS = 256,
    MANY_COLUMNS = 512,
    FEW_TILES = 6,
    TURNS = MR == 6
};
#endif
/* Columns of a packed B, which every block of rows reads again. */
enum { CHUNK = 2048 };

#if defined(__AVX2__) && !defined(__AVX512F__)
/* to[p * to_rs + r] := s[r * rs + p] for r, p < 8. */
static inline void transpose_8x8(const float *s, int64_t rs, float *to, int64_t to_rs)
{
    WF_ROLLED
    for (int h = 0; h < 2; h++, s += 4, to += 4 * to_rs) {
        __m256 x[4];
        WF_UNROLL
        for (int r = 0; r < 4; r++)
            x[r] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(s + r * rs)),
                                        _mm_loadu_ps(s + (r + 4) * rs), 1);
        const __m256 lo0 = _mm256_unpacklo_ps(x[0], x[1]), hi0 = _mm256_unpackhi_ps(x[0], x[1]);
        const __m256 lo1 = _mm256_unpacklo_ps(x[2], x[3]), hi1 = _mm256_unpackhi_ps(x[2], x[3]);
        _mm256_storeu_ps(to, _mm256_shuffle_ps(lo0, lo1, 0x44));
        _mm256_storeu_ps(to + to_rs, _mm256_shuffle_ps(lo0, lo1, 0xEE));
        _mm256_storeu_ps(to + 2 * to_rs, _mm256_shuffle_ps(hi0, hi1, 0x44));
        _mm256_storeu_ps(to + 3 * to_rs, _mm256_shuffle_ps(hi0, hi1, 0xEE));
    }
}
#endif

/* For what is called in several places and is not to be copied for each. */
#if defined(__clang__)
#define ONCE __attribute__((noinline))
#else
#define ONCE __attribute__((noinline, noclone))
#endif

static ONCE void pack_any_f32(const float *src, int64_t rs, int64_t cs, int64_t rows, int64_t cols,
                              int64_t width, float *restrict out);

#define T float
#define TILE_ALL 1
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
#define TILE_ALL 0
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

/*
 * Packing turns a strided matrix [rows][cols] into panels of `width` rows: panel q holds, for each
 * column p, its rows side by side; the last panel is filled up with zeros. B is packed by this, transposed, and A: as panels
 * as high as a tile where its columns are neighbours (rs == 1), else its rows are brought together, as one panel of their columns.
 */
enum { WHOLE = 2 * sizeof(vec_f32) }; /* bytes of a row of B's panels */
#define DEFINE_PACK(name, T)                                                                       \
    static ONCE void name(const T *src, int64_t rs, int64_t cs, int64_t rows, int64_t cols,        \
                          int64_t width, T *restrict out)                                          \
    {                                                                                              \
        /* Few columns of all panels at a time: rows of neighbours are read as memory likes it. */ \
        for (int64_t p0 = 0; p0 < cols; p0 += 16)                                                  \
            for (int64_t i = 0; i < rows; i += width) {                                            \
                const int64_t w = rows - i < width ? rows - i : width;                             \
                const int64_t n = cols - p0 < 16 ? cols - p0 : 16;                                 \
                const T *s = src + i * rs + p0 * cs;                                               \
                T *to = out + i * cols + p0 * width;                                               \
                for (int64_t p = 0; rs == 1 && p < n; p++, s += cs, to += width) {                 \
                    __builtin_prefetch(s + 16 * cs);                                               \
                    if (w < width && width == WHOLE / (int64_t)sizeof(T))                          \
                        memset(to, 0, WHOLE);                                                      \
                    else if (w < width)                                                            \
                        memset(to + w, 0, (size_t)(width - w) * sizeof(T));                        \
                    if (w == WHOLE / (int64_t)sizeof(T))                                           \
                        memcpy(to, s, WHOLE);                                                      \
                    else if (w > 16)                                                               \
                        memcpy(to, s, (size_t)w * sizeof(T));                                      \
                    else if (w >= 4) {                                                             \
                        for (int64_t r = 0; r + 4 < w; r += 4)                                     \
                            memcpy(to + r, s + r, 4 * sizeof(T));                                  \
                        memcpy(to + w - 4, s + w - 4, 4 * sizeof(T));                              \
                    } else { /* not by a loop, of which compilers make a call */                   \
                        to[0] = s[0];                                                              \
                        if (w > 1)                                                                 \
                            to[1] = s[1];                                                          \
                        if (w > 2)                                                                 \
                            to[2] = s[2];                                                          \
                    }                                                                              \
                }                                                                                  \
                for (int64_t p = 0; rs != 1 && p < n; p++, s += cs, to += width) {                 \
                    for (int64_t r = 0; r < w; r++)                                                \
                        to[r] = s[r * rs];                                                         \
                    if (w < width)                                                                 \
                        memset(to + w, 0, (size_t)(width - w) * sizeof(T));                        \
                }                                                                                  \
            }                                                                                      \
    }
DEFINE_PACK(pack_any_f32, float)

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

#if defined(__AVX512F__)
/* out[p * to_rs + r] := unit p of row r, for r, p < 16; rows are rs bytes apart. */
static void transpose_16x16(const char *s, int64_t rs, float *out, int64_t to_rs)
{
    __m512 q[4][4]; /* [row within a group of 4][group of 4 columns] after the lanes are gathered */
    WF_UNROLL
    for (int r = 0; r < 4; r++) {
        /* Lane g of row[c] holds columns 4c.. of row 4g + r. */
        __m512 a = _mm512_loadu_ps(s + r * rs), b = _mm512_loadu_ps(s + (r + 4) * rs);
        __m512 c = _mm512_loadu_ps(s + (r + 8) * rs), d = _mm512_loadu_ps(s + (r + 12) * rs);
        __m512 ab0 = _mm512_shuffle_f32x4(a, b, 0x44), ab1 = _mm512_shuffle_f32x4(a, b, 0xEE);
        __m512 cd0 = _mm512_shuffle_f32x4(c, d, 0x44), cd1 = _mm512_shuffle_f32x4(c, d, 0xEE);
        q[r][0] = _mm512_shuffle_f32x4(ab0, cd0, 0x88);
        q[r][1] = _mm512_shuffle_f32x4(ab0, cd0, 0xDD);
        q[r][2] = _mm512_shuffle_f32x4(ab1, cd1, 0x88);
        q[r][3] = _mm512_shuffle_f32x4(ab1, cd1, 0xDD);
    }
    WF_UNROLL
    for (int c = 0; c < 4; c++) {
        __m512 lo0 = _mm512_unpacklo_ps(q[0][c], q[1][c]),
               hi0 = _mm512_unpackhi_ps(q[0][c], q[1][c]);
        __m512 lo1 = _mm512_unpacklo_ps(q[2][c], q[3][c]),
               hi1 = _mm512_unpackhi_ps(q[2][c], q[3][c]);
        float *to = out + 4 * c * to_rs;
        _mm512_storeu_ps(to, _mm512_shuffle_ps(lo0, lo1, 0x44));
        _mm512_storeu_ps(to + to_rs, _mm512_shuffle_ps(lo0, lo1, 0xEE));
        _mm512_storeu_ps(to + 2 * to_rs, _mm512_shuffle_ps(hi0, hi1, 0x44));
        _mm512_storeu_ps(to + 3 * to_rs, _mm512_shuffle_ps(hi0, hi1, 0xEE));
    }
}
#endif

/* f32 with contiguous columns, the usual A and a transposed B: by 4 x 4 transposition, where it fills lines by 8 x 8 or 16 x 16. */
static ONCE void pack_f32(const float *src, int64_t rs, int64_t cs, int64_t rows, int64_t cols,
                          int64_t width, float *restrict out)
{
#if defined(__AVX512F__)
    if (rs == 1 && rows < width && width == 2 * VL_F32) {
        /* The one panel of a narrow B, in products of a few rows: its copy takes as long as they do. */
        const __mmask16 low = (__mmask16)((1u << (rows < 16 ? rows : 16)) - 1);
        const __mmask16 high = (__mmask16)(rows < 16 ? 0 : (1u << (rows - 16)) - 1);
        for (int64_t p = 0; p < cols; p++, out += width) {
            _mm512_storeu_ps(out, _mm512_maskz_loadu_ps(low, src + p * cs));
            _mm512_storeu_ps(out + 16, _mm512_maskz_loadu_ps(high, src + p * cs + 16));
        }
        return;
    }
#endif
    if (cs != 1 || rs == 1) {
        pack_any_f32(src, rs, cs, rows, cols, width, out);
        return;
    }
    for (int64_t i = 0; i < rows; i += width) {
        int64_t w = rows - i < width ? rows - i : width, stride = width;
        int64_t r4 = w - w % 4, p4 = cols - cols % 4, p16 = 0;
#if defined(__AVX512F__)
        if (w % 16 == 0 && stride % 16 == 0)
            for (int64_t r = 0; r < w; r += 16)
                for (p16 = 0; p16 + 16 <= cols; p16 += 16)
                    transpose_16x16((const char *)(src + (i + r) * rs + p16), rs * 4,
                                    out + p16 * stride + r, stride);
#elif defined(__AVX2__)
        if (w % 8 == 0)
            for (; p16 + 16 <= cols; p16 += 16)
                for (int64_t r = 0; r < w; r += 8) {
                    for (int64_t q = 0; q < 8; q++) /* the next panel's, beside this one's tiles */
                        __builtin_prefetch(src + (i + r + width + q) * rs + p16, 0, 2);
                    for (int64_t q = p16; q < p16 + 16; q += 8)
                        transpose_8x8(src + (i + r) * rs + q, rs, out + q * stride + r, stride);
                }
#endif
        /* A cache line of each row at a time: rows are often a multiple of 4 KiB apart, and then
         * compete for the same few lines of L1. */
        for (int64_t p0 = p16; p0 < p4; p0 += 16)
            for (int64_t r = 0; r < r4; r += 4)
                for (int64_t q = p0; q < p4 && q < p0 + 16; q += 4)
                    transpose_4x4(src + (i + r) * rs + q, rs, out + q * stride + r, stride);
        for (int64_t p = 0; p < cols; p++) {
            for (int64_t r = p < p4 ? r4 : 0; r < w; r++)
                out[p * stride + r] = src[(i + r) * rs + p];
            for (int64_t r = w; r < stride; r++)
                out[p * stride + r] = 0;
        }
        out += cols * stride;
    }
}

DEFINE_PACK(pack_f64, double)

/* Elements of 16 bits as f32: `outer` rows of `inner`, HALF_PIECE at most, `stride` apart, to rows `to` apart. Elements that are
 * not neighbours but `step` apart are first brought together. */
enum { HALF_PIECE = 4096 };
static ONCE void widen(int dtype, const uint16_t *x, int64_t outer, int64_t inner, int64_t stride,
                       int64_t step, float *out, int64_t to)
{
    if (step != 1) {
        uint16_t together[HALF_PIECE];
        const int64_t most = HALF_PIECE / inner;
        for (int64_t r = 0; r < outer; r += most) {
            const int64_t rows = outer - r < most ? outer - r : most;
            wf_kernels_now()->pack[wf_width(dtype)](together, inner, x + r * stride, stride, step,
                                                    (size_t)rows, (size_t)inner);
            widen(dtype, together, rows, inner, inner, 1, out + r * to, to);
        }
        return;
    }
    for (int64_t r = 0; r < outer; r++, x += stride, out += to) {
        int64_t i = 0;
        if (dtype == WEFT_BF16) {
            for (; i + VL_F32 <= inner; i += VL_F32)
                STORE_F32(out + i, LOAD_BF16(x + i));
            for (; i < inner; i++)
                out[i] = wf_f32_of_bf16(x[i]);
        } else {
            for (; i + VL_F32 <= inner; i += VL_F32)
                STORE_F32(out + i, LOAD_F16(x + i));
            for (; i < inner; i++)
                out[i] = wf_f32_of_f16(x[i]);
        }
    }
}

/* Whether a matrix of 16 bits is read along this stride, not the other one. */
static int lies_along(int64_t stride, int64_t other)
{
    return stride == 1 || (other != 1 && wf_magnitude(stride) <= wf_magnitude(other));
}

/* 16 bits: what does not lie along a panel is widened in pieces that fit in a first cache, and packed from there. */
static void pack_half(int dtype, const uint16_t *src, int64_t rs, int64_t cs, int64_t rows,
                      int64_t cols, int64_t width, float *restrict out)
{
    float piece[HALF_PIECE];
    for (int64_t i = 0; i < rows; i += width, src += width * rs, out += width * cols) {
        const int64_t w = rows - i < width ? rows - i : width;
        if (lies_along(rs, cs)) {
            widen(dtype, src, cols, w, cs, rs, out, width);
            for (int64_t p = 0; w < width && p < cols; p++)
                memset(out + p * width + w, 0, (size_t)(width - w) * sizeof *out);
            continue;
        }
        const int64_t most = HALF_PIECE / w; /* a slice, or a panel's width: 256 at most */
        for (int64_t p = 0; p < cols; p += most) {
            const int64_t n = cols - p < most ? cols - p : most;
            widen(dtype, src + p * cs, w, n, rs, cs, piece, n);
            pack_f32(piece, n, 1, w, n, width, out + p * width);
        }
    }
}

static ONCE void pack(int dtype, const void *src, int64_t offset, int64_t rs, int64_t cs,
                      int64_t rows, int64_t cols, int64_t width, void *out)
{
    if (dtype == WEFT_F64)
        pack_f64((const double *)src + offset, rs, cs, rows, cols, width, out);
    else if (dtype == WEFT_F32)
        pack_f32((const float *)src + offset, rs, cs, rows, cols, width, out);
    else
        pack_half(dtype, (const uint16_t *)src + offset, rs, cs, rows, cols, width, out);
}

static int64_t round_up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

static int is_computed(const wf_gemm_block *g)
{
    return g->dtype == WEFT_F32 || g->dtype == WEFT_F64;
}

/* Reading B in place pays when few rows of A share the packing; only compute types can. */
static int reads_b_in_place(const wf_gemm_block *g)
{
    return is_computed(g) && g->b_cs == 1 && g->m <= (g->dtype == WEFT_F32 ? FEW_ROWS : SMALL);
}

/* Rows so many bytes apart have their lines in the same few places of the first cache. */
enum { CACHE_WAY = 4096 };

static int64_t tile_height(const wf_gemm_block *g, int64_t m, int64_t i)
{
    return g->dtype == WEFT_F64 ? height_f64(m, i) : height_f32(m, i);
}

static int64_t columns_of_tile(int dtype)
{
    return dtype == WEFT_F64 ? 2 * VL_F64 : 2 * VL_F32;
}

/* Likewise A: wherever its rows keep out of each other's way, as the few lines that a tile reads stay in L1; else when
 * few columns of B share its packing. */
static int reads_a_in_place(const wf_gemm_block *g)
{
    const int64_t size = g->dtype == WEFT_F64 ? 8 : 4;
    if (!is_computed(g) || g->a_rs == 0)
        return 0;
    return (g->n <= SMALL && g->m * wf_gemm_slice(g->k) <= SMALL * SMALL) ||
           (g->a_cs == 1 && (g->n <= FEW_TILES * columns_of_tile(g->dtype) ||
                             (g->n < MANY_COLUMNS && g->a_rs * size % CACHE_WAY != 0)));
}

/* f64 whose columns are neighbours is brought together in panels as high as a tile. (f32 has tiles for two columns of A, which read its
 * rows; halves are widened along them.) */
static int packs_tiles(const wf_gemm_block *g)
{
    return g->dtype == WEFT_F64 && lies_along(g->a_rs, g->a_cs);
}

static void pack_tiles(const wf_gemm_block *g, int64_t from, int64_t m, int64_t len, void *out)
{
    const int64_t size = g->dtype == WEFT_F64 ? 8 : 4;
    for (int64_t i = 0, rows, end; i < m; i = end) {
        for (rows = tile_height(g, m, i), end = i + rows;
             end < m && tile_height(g, m, end) == rows;)
            end += rows;
        pack(g->dtype, g->a, from + i * g->a_rs, g->a_rs, g->a_cs, end - i, len, rows,
             (char *)out + i * len * size);
    }
}

/* Distance of rows of A that are brought together else: they keep out of each other's way. */
static int64_t row_of_a(const wf_gemm_block *g)
{
    return round_up(wf_gemm_slice(g->k), 16) + 16;
}

static int64_t rows_at_once(const wf_gemm_block *g)
{
    const int64_t row = wf_gemm_slice(g->k) * (g->dtype == WEFT_F64 ? 8 : 4);
    if (g->m <= BLOCK_ROWS && g->m * row <= BLOCK_BYTES)
        return g->m; /* small products notice a division */
    const int64_t rows = BLOCK_BYTES / row / MR * MR;
    return rows < BLOCK_ROWS ? rows : BLOCK_ROWS;
}

/* A panel of B is packed when its tiles are made, which then find it in the first cache, unless further rows want it, too. */
static int packs_panels(const wf_gemm_block *g)
{
    return !reads_b_in_place(g) && g->m <= rows_at_once(g);
}

/* Sums that are too short for that hide nothing. */
enum { SHORT_SUM = 32 };

/* Panels of a transposed B are packed under the arithmetic of their first tile. */
static int turns_panels(const wf_gemm_block *g)
{
    return TURNS && g->dtype == WEFT_F32 && g->b_rs == 1 && g->m >= MR && g->k >= SHORT_SUM;
}

typedef struct parts {
    size_t a, b, acc; /* bytes */
} parts;

static parts scratch_parts(const wf_gemm_block *g)
{
    size_t es = g->dtype == WEFT_F64 ? sizeof(double) : sizeof(float);
    size_t kc = (size_t)wf_gemm_slice(g->k);
    int64_t nr = columns_of_tile(g->dtype);
    size_t columns = (size_t)(reads_b_in_place(g) ? 2 * nr
                              : packs_panels(g)   ? nr
                                                  : round_up(g->n < CHUNK ? g->n : CHUNK, nr));
    size_t rows = reads_a_in_place(g) ? 0 : (size_t)(rows_at_once(g) * row_of_a(g));
    parts s = {.a = (rows * es + 63) & ~(size_t)63,
               .b = (columns * kc * es + 63) & ~(size_t)63,
               .acc = is_computed(g) || g->wide ? 0 : (size_t)g->m * (size_t)g->n * es};
    return s;
}

static void store_narrow(const wf_gemm_block *g, const float *acc)
{
    const wf_cast_fn cast = wf_kernels_now()->cast[g->dtype][WEFT_F32];
    const int64_t rows = g->c_rs == g->n ? 1 : g->m, cols = g->m / rows * g->n;
    for (int64_t i = 0; i < rows; i++)
        cast((uint16_t *)g->c + i * g->c_rs, acc + i * cols, (size_t)cols);
}

/* Small products of 16-bit types: operands are widened as they lie, and the f32 product then reads them in place. */
static int widens_first(const wf_gemm_block *g)
{
    return (g->dtype == WEFT_BF16 || g->dtype == WEFT_F16) && !g->wide && g->m <= SMALL &&
           g->n <= SMALL && g->k <= SMALL;
}

/* The f32 product of widened copies; its scratch lies behind them and the result. */
static wf_gemm_block widened(const wf_gemm_block *g, float *base)
{
    wf_gemm_block w = *g;
    w.dtype = WEFT_F32;
    w.a = base;
    const int a_rows = lies_along(g->a_cs, g->a_rs), b_rows = lies_along(g->b_cs, g->b_rs);
    w.a_rs = a_rows ? g->k : 1, w.a_cs = a_rows ? 1 : g->m;
    w.b = base + round_up(g->m * g->k, 16);
    w.b_rs = b_rows ? g->n : 1, w.b_cs = b_rows ? 1 : g->k;
    w.c = base + round_up(g->m * g->k, 16) + round_up(g->k * g->n, 16);
    w.c_rs = g->n;
    w.add = 0;
    w.scratch = (float *)w.c + round_up(g->m * g->n, 16);
    return w;
}

static size_t block_scratch(const wf_gemm_block *g)
{
    static float base[1]; /* only strides and sizes of the widened block are used */
    size_t before = 0;
    wf_gemm_block run = *g;
    if (widens_first(g)) {
        run = widened(g, base);
        before = sizeof(float) * (size_t)(round_up(g->m * g->k, 16) + round_up(g->k * g->n, 16) +
                                          round_up(g->m * g->n, 16));
    }
    parts s = scratch_parts(&run);
    return before + s.a + s.b + s.acc;
}

static void block_run(const wf_gemm_block *g);

static void run_widened(const wf_gemm_block *g)
{
    float *base = g->scratch;
    wf_gemm_block w = widened(g, base);
    if (lies_along(g->a_cs, g->a_rs))
        widen(g->dtype, g->a, g->m, g->k, g->a_rs, g->a_cs, base, g->k);
    else
        widen(g->dtype, g->a, g->k, g->m, g->a_cs, g->a_rs, base, g->m);
    if (lies_along(g->b_cs, g->b_rs))
        widen(g->dtype, g->b, g->k, g->n, g->b_rs, g->b_cs, (float *)(uintptr_t)w.b, g->n);
    else
        widen(g->dtype, g->b, g->n, g->k, g->b_cs, g->b_rs, (float *)(uintptr_t)w.b, g->k);
    block_run(&w);
    store_narrow(g, w.c);
}

static void block_run(const wf_gemm_block *g)
{
    if (widens_first(g)) {
        run_widened(g);
        return;
    }
    parts s = scratch_parts(g);
    char *pa = g->scratch, *pb = pa + s.a;
    void *acc = s.acc ? (void *)(pb + s.b) : g->c;
    int64_t ldc = s.acc ? g->n : g->c_rs;
    const int64_t kc = wf_gemm_slice(g->k), nr = columns_of_tile(g->dtype), most = rows_at_once(g);
    const int b_in_place = reads_b_in_place(g), a_in_place = reads_a_in_place(g);
    const int64_t step = packs_panels(g) ? nr : CHUNK;
    const int turns = !b_in_place && turns_panels(g);
    const int tiles = !a_in_place && packs_tiles(g);
    const int64_t a_rs = a_in_place ? g->a_rs : tiles ? 0 : row_of_a(g);
    const int64_t a_cs = a_in_place ? g->a_cs : 1;
    for (int64_t k0 = 0; k0 < g->k; k0 += kc) {
        const int64_t len = g->k - k0 < kc ? g->k - k0 : kc;
        const int add = g->add || k0 > 0;
        for (int64_t j = 0; j < g->n; j += step) {
            const int64_t n = g->n - j < step ? g->n - j : step;
            const int64_t rest = n & (nr - 1); /* behind whole panels */
            const int64_t first = b_in_place ? n - (rest & (nr / 2 - 1) ? rest : 0)
                                  : turns    ? n - rest
                                             : 0;
            const int64_t b_from = k0 * g->b_rs + j * g->b_cs;
            if (first < n)
                pack(g->dtype, g->b, b_from + first * g->b_cs, g->b_cs, g->b_rs, n - first, len, nr,
                     pb + (turns ? (size_t)(first * len) * sizeof(float) : 0));
            for (int64_t i = 0; i < g->m; i += most) {
                const int64_t m = g->m - i < most ? g->m - i : most;
                const int64_t from = i * g->a_rs + k0 * g->a_cs, to = i * ldc + j;
                const int once = step > nr || j == 0;
                const int64_t bias_at = i * g->bias_rs + j * g->bias_cs;
                const void *bias = k0 + len == g->k ? g->bias : NULL;
                if (tiles && once)
                    pack_tiles(g, from, m, len, pa);
                else if (!a_in_place && once)
                    pack(g->dtype, g->a, from, g->a_cs, g->a_rs, len, m, a_rs, pa);
                if (g->dtype == WEFT_F64)
                    slice_f64(m, n, len, a_in_place ? (const double *)g->a + from : (void *)pa,
                              a_rs, a_cs, (double *)(void *)pb,
                              b_in_place ? (const double *)g->b + b_from : NULL, g->b_rs, 0,
                              (double *)acc + to, ldc, add,
                              bias ? (const double *)bias + bias_at : NULL, g);
                else
                    slice_f32(m, n, len, a_in_place ? (const float *)g->a + from : (void *)pa, a_rs,
                              a_cs, (float *)(void *)pb,
                              b_in_place || (turns && i == 0) ? (const float *)g->b + b_from : NULL,
                              turns ? g->b_cs : g->b_rs, turns, (float *)acc + to, ldc, add,
                              bias ? (const float *)bias + bias_at : NULL, g);
            }
        }
    }
    if (s.acc)
        store_narrow(g, acc);
}

/* -- panels for oneDNN --------------------------------------------------------------------------- */

/* 16 columns of pairs [u, end) to row u of `out`; `rs` is the distance of columns in bytes. */
static void pairs_of_columns(const char *b, int64_t rs, int64_t columns, int64_t u, int64_t end,
                             uint32_t *out, int64_t width)
{
#if defined(__AVX512F__)
    for (; columns == 16 && u + 16 <= end; u += 16, out += 16 * width)
        transpose_16x16(b + u * 4, rs, (float *)(void *)out, width);
#endif
    for (int64_t x = u; x < end; x++, out += width)
        for (int64_t j = 0; j < columns; j++)
            memcpy(out + j, b + j * rs + x * 4, 4);
}

/* B with contiguous columns: pairs, units of 4 bytes, are transposed. */
static void panel_of_columns(const wf_gemm_panel *g)
{
    int64_t rs = g->b_cs * 2, begin = g->k0 / 2, w = g->width;
    int64_t end = (g->k1 < g->k ? g->k1 : g->k) / 2, last = g->k1 / 2;
    for (int64_t q = 0; q < g->n; q += w) {
        int64_t columns = g->n - q < w ? g->n - q : w;
        const char *b = (const char *)g->b + q * rs;
        uint32_t *out = (uint32_t *)g->out + q * (g->depth / 2) + begin * w;
        if (columns < w)
            memset(out, 0, (size_t)((last - begin) * w) * 4);
        for (int64_t j = 0; j < columns; j += 16)
            pairs_of_columns(b + j * rs, rs, columns - j < 16 ? columns - j : 16, begin, end,
                             out + j, w);
        for (int64_t u = end; u < last; u++)
            for (int64_t j = 0; j < w; j++) {
                uint16_t odd = 0;
                if (u * 2 < g->k && j < columns)
                    memcpy(&odd, b + j * rs + u * 4, sizeof odd);
                out[(u - begin) * w + j] = odd;
            }
    }
}

/* out[j] := low[j] below high[j]. */
static void interleave(const uint16_t *low, const uint16_t *high, int64_t n, uint32_t *out)
{
    int64_t j = 0;
#if defined(__AVX512F__)
    for (; j + 16 <= n; j += 16) {
        __m512i x =
            _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(low + j)));
        __m512i y =
            _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(high + j)));
        _mm512_storeu_si512(out + j, _mm512_or_si512(x, _mm512_slli_epi32(y, 16)));
    }
#endif
    for (; j < n; j++)
        out[j] = low[j] | (uint32_t)high[j] << 16;
}

/* Any other B, contiguous rows being the fast case: whole rows are read, as memory likes it. */
static void panel_of_rows(const wf_gemm_panel *g)
{
    for (int64_t p = g->k0; p < g->k1; p += 2)
        for (int64_t q = 0; q < g->n; q += g->width) {
            int64_t columns = g->n - q < g->width ? g->n - q : g->width;
            const uint16_t *low = (const uint16_t *)g->b + p * g->b_rs + q * g->b_cs;
            const uint16_t *high = low + g->b_rs;
            uint32_t *out = (uint32_t *)g->out + q * (g->depth / 2) + p / 2 * g->width;
            for (int64_t j = columns; j < g->width; j++)
                out[j] = 0;
            if (p >= g->k)
                memset(out, 0, (size_t)columns * 4);
            else if (p + 1 >= g->k)
                for (int64_t j = 0; j < columns; j++)
                    out[j] = low[j * g->b_cs];
            else if (g->b_cs == 1)
                interleave(low, high, columns, out);
            else
                for (int64_t j = 0; j < columns; j++)
                    out[j] = low[j * g->b_cs] | (uint32_t)high[j * g->b_cs] << 16;
        }
}

static void panel(const wf_gemm_panel *g)
{
    if (g->b_rs == 1 && g->b_cs != 1)
        panel_of_columns(g);
    else
        panel_of_rows(g);
}

const wf_gemm_kernels WF_PASTE(wf_gemm_kernels, WF_ISA) = {
    .scratch = block_scratch, .block = block_run, .panel = panel};
