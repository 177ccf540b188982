/*
 * eager/kernels/gemm_pairs.c -- bf16 products on one thread by the instruction that multiplies pairs of terms (AVX512_BF16);
 * called where wf_bf16_pairs() says so only.
 *
 * A tile is up to 12 rows by 32 columns, its sums in registers: a pair of each row of A, read in place where rows allow,
 * times two vectors of pairs of B, which is packed a panel of 32 columns at a time. The instruction takes subnormal
 * operands and sums as zeros and rounds to nearest; NaN and infinity go where IEEE sums take them.
 *
 * Invariant: k is walked in slices whose length depends on k alone, each added to the sums before in order, so that bits of
 * an element do not depend on the block it lies in.
 */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "eager/cpu/gemm_impl.h"
#include "eager/kernels/kernels.h"
#include "jit/ir/dtype.h"

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Rows and columns of a tile; terms of a slice, a panel of which stays in the second cache beside A. */
enum { ROWS = 12, COLUMNS = 32, SLICE = 2048 };

/* Where a tile's sums come from and go to; rows `rs` elements apart. */
typedef struct place {
    float *sums; /* NULL: neither */
    int64_t sums_rs;
    bool first;  /* the sums begin with zeros */
    uint16_t *c; /* NULL: sums are stored, not rounded */
    int64_t c_rs;
} place;

static inline __attribute__((always_inline)) __m512i pair_of(const uint16_t *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
}

static inline __attribute__((always_inline)) __m512 add_pairs(__m512 sum, __m512i a, __m512i b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

/* How two rows of 32 columns become pairs: first those of columns 0 to 15, then the others. */
static const uint16_t order[2][COLUMNS] = {
#define PAIR(i) i, COLUMNS + i
    {PAIR(0), PAIR(1), PAIR(2), PAIR(3), PAIR(4), PAIR(5), PAIR(6), PAIR(7), PAIR(8), PAIR(9),
     PAIR(10), PAIR(11), PAIR(12), PAIR(13), PAIR(14), PAIR(15)},
    {PAIR(16), PAIR(17), PAIR(18), PAIR(19), PAIR(20), PAIR(21), PAIR(22), PAIR(23), PAIR(24),
     PAIR(25), PAIR(26), PAIR(27), PAIR(28), PAIR(29), PAIR(30), PAIR(31)}
#undef PAIR
};

/* Rows of B with contiguous columns, `columns` (at most 32) of them, as pairs; zeros behind the last row and column. */
static void pack_rows(const uint16_t *b, int64_t rs, int64_t terms, int64_t columns, uint32_t *out)
{
    const __mmask32 mask = columns >= COLUMNS ? ~(__mmask32)0 : ((__mmask32)1 << columns) - 1;
    const __m512i first = _mm512_loadu_si512(order[0]), second = _mm512_loadu_si512(order[1]);
    for (int64_t p = 0; p < terms; p += 2, b += 2 * rs, out += COLUMNS) {
        const __m512i even = _mm512_maskz_loadu_epi16(mask, b);
        const __m512i odd =
            p + 1 < terms ? _mm512_maskz_loadu_epi16(mask, b + rs) : _mm512_setzero_si512();
        _mm512_storeu_si512(out, _mm512_permutex2var_epi16(even, first, odd));
        _mm512_storeu_si512(out + 16, _mm512_permutex2var_epi16(even, second, odd));
    }
}

/* `rows` and `vectors` are known where this is compiled into. plain: NULL, or where B lies, in rows of 32 columns b_rs
 * apart that are to be packed into b: the packing is under the arithmetic. */
static inline __attribute__((always_inline)) void tile(int rows, int vectors, int64_t pairs,
                                                       const uint16_t *a, int64_t rs, uint32_t *b,
                                                       const uint16_t *plain, int64_t b_rs,
                                                       const place *to, int64_t columns)
{
    const __mmask32 mask = columns >= COLUMNS ? ~(__mmask32)0 : ((__mmask32)1 << columns) - 1;
    const __mmask16 half[2] = {(__mmask16)mask, (__mmask16)(mask >> 16)};
    __m512 acc[ROWS][2];
    UNROLL
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++)
            acc[i][v] = to->first
                            ? _mm512_setzero_ps()
                            : _mm512_maskz_loadu_ps(half[v], to->sums + i * to->sums_rs + 16 * v);
    const __m512i first = _mm512_loadu_si512(order[0]), second = _mm512_loadu_si512(order[1]);
    /* Every third row has a pointer, so that a stride known late still fits addressing modes. */
    const uint16_t *a0 = a, *a1 = a + 3 * rs, *a2 = a + 6 * rs, *a3 = a + 9 * rs;
    for (int64_t p = 0; p < pairs; p++) {
        __m512i b0, b1;
        if (plain) {
            const __m512i even = _mm512_loadu_si512(plain), odd = _mm512_loadu_si512(plain + b_rs);
            b0 = _mm512_permutex2var_epi16(even, first, odd);
            b1 = _mm512_permutex2var_epi16(even, second, odd);
            _mm512_storeu_si512(b, b0);
            _mm512_storeu_si512(b + 16, b1);
            plain += 2 * b_rs;
        } else {
            b0 = _mm512_loadu_si512(b);
            b1 = vectors > 1 ? _mm512_loadu_si512(b + 16) : b0;
        }
        UNROLL
        for (int i = 0; i < rows; i++) {
            const uint16_t *group = i < 3 ? a0 : i < 6 ? a1 : i < 9 ? a2 : a3;
            const __m512i x = pair_of(group + i % 3 * rs);
            acc[i][0] = add_pairs(acc[i][0], x, b0);
            if (vectors > 1)
                acc[i][1] = add_pairs(acc[i][1], x, b1);
        }
        a0 += 2, a1 += 2, a2 += 2, a3 += 2;
        b += COLUMNS;
    }
    if (!to->c) {
        UNROLL
        for (int i = 0; i < rows; i++)
            for (int v = 0; v < vectors; v++)
                _mm512_mask_storeu_ps(to->sums + i * to->sums_rs + 16 * v, half[v], acc[i][v]);
        return;
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        uint16_t *c = to->c + i * to->c_rs;
        if (vectors > 1)
            _mm512_mask_storeu_epi16(c, mask, (__m512i)_mm512_cvtne2ps_pbh(acc[i][1], acc[i][0]));
        else
            _mm256_mask_storeu_epi16(c, half[0], (__m256i)_mm512_cvtneps_pbh(acc[i][0]));
    }
}

#define CASE(R)                                                                                    \
    if (rows >= R) {                                                                               \
        if (columns > 16)                                                                          \
            tile(R, 2, pairs, a, rs, b, NULL, 0, to, columns);                                     \
        else                                                                                       \
            tile(R, 1, pairs, a, rs, b, NULL, 0, to, columns);                                     \
        return R;                                                                                  \
    }

/* At most `rows` rows; returns how many. */
static int64_t some_rows(int64_t rows, int64_t pairs, const uint16_t *a, int64_t rs, uint32_t *b,
                         const place *to, int64_t columns)
{
    CASE(12)
    CASE(8)
    CASE(4)
    CASE(2)
    CASE(1)
    return rows;
}

static int64_t slice_length(int64_t k)
{
    const int64_t slices = (k + SLICE - 1) / SLICE;
    return ((k + slices - 1) / slices + 1) & ~(int64_t)1;
}

static bool reads_a_in_place(const wf_gemm_block *g)
{
    return g->a_cs == 1 && g->k % 2 == 0;
}

/* Row stride of a packed A: whole lines, and no power of two. */
static int64_t packed_stride(const wf_gemm_block *g)
{
    return (slice_length(g->k) + 31) / 32 * 32 + 32;
}

typedef struct parts {
    size_t panel, a, sums; /* bytes */
} parts;

static parts parts_of(const wf_gemm_block *g)
{
    const parts s = {
        .panel = (size_t)slice_length(g->k) * COLUMNS * 2,
        .a = reads_a_in_place(g) ? 0 : (size_t)(g->m * packed_stride(g)) * 2,
        .sums = g->wide || g->k <= slice_length(g->k) ? 0 : (size_t)(g->m * g->n) * sizeof(float)};
    return s;
}

static size_t scratch_of(const wf_gemm_block *g)
{
    const parts s = parts_of(g);
    return s.panel + s.a + s.sums;
}

static void pack_a(const wf_gemm_block *g, int64_t k0, int64_t terms, uint16_t *out)
{
    const int64_t stride = packed_stride(g);
    const uint16_t *a = (const uint16_t *)g->a + k0 * g->a_cs;
    const bool turned = g->a_rs == 1 && g->a_cs != 1;
    if (turned)
        wf_kernels_now()->pack[wf_width(WEFT_BF16)](out, stride, a, 1, g->a_cs, (size_t)g->m,
                                                    (size_t)terms);
    for (int64_t i = 0; i < g->m; i++, a += g->a_rs, out += stride) {
        if (g->a_cs == 1)
            memcpy(out, a, (size_t)terms * 2);
        else if (!turned)
            for (int64_t p = 0; p < terms; p++)
                out[p] = a[p * g->a_cs];
        if (terms % 2)
            out[terms] = 0;
    }
}

static void pack_b(const wf_gemm_block *g, int64_t k0, int64_t terms, int64_t j, int64_t columns,
                   void *out)
{
    const uint16_t *b = (const uint16_t *)g->b + k0 * g->b_rs + j * g->b_cs;
    const int64_t depth = (terms + 1) / 2 * 2;
    if (g->b_cs == 1) {
        pack_rows(b, g->b_rs, terms, columns, out);
        return;
    }
    wf_gemm_kernels_avx512.panel(&(wf_gemm_panel){.b = b,
                                                  .b_rs = g->b_rs,
                                                  .b_cs = g->b_cs,
                                                  .k = terms,
                                                  .n = columns,
                                                  .k1 = depth,
                                                  .width = COLUMNS,
                                                  .depth = depth,
                                                  .out = out});
}

static void run(const wf_gemm_block *g)
{
    const parts s = parts_of(g);
    char *panel = g->scratch, *packed = panel + s.panel;
    const int64_t length = slice_length(g->k), stride = s.a ? packed_stride(g) : g->a_rs;
    for (int64_t k0 = 0; k0 < g->k; k0 += length) {
        const int64_t terms = g->k - k0 < length ? g->k - k0 : length, pairs = (terms + 1) / 2;
        const uint16_t *a = (const uint16_t *)g->a + k0;
        if (s.a) {
            a = (const uint16_t *)(const void *)packed;
            pack_a(g, k0, terms, (uint16_t *)(void *)packed);
        }
        for (int64_t j = 0; j < g->n; j += COLUMNS) {
            const int64_t columns = g->n - j < COLUMNS ? g->n - j : COLUMNS;
            uint32_t *b = (uint32_t *)(void *)panel;
            const bool first = g->b_cs == 1 && g->m >= ROWS && columns == COLUMNS && terms % 2 == 0;
            if (!first)
                pack_b(g, k0, terms, j, columns, b);
            for (int64_t i = 0; i < g->m;) {
                place to = {.first = k0 == 0};
                if (g->wide)
                    to.sums = (float *)g->c + i * g->c_rs + j, to.sums_rs = g->c_rs;
                else if (s.sums)
                    to.sums = (float *)(void *)(packed + s.a) + i * g->n + j, to.sums_rs = g->n;
                if (!g->wide && k0 + terms == g->k)
                    to.c = (uint16_t *)g->c + i * g->c_rs + j, to.c_rs = g->c_rs;
                if (i == 0 && first) {
                    tile(ROWS, 2, pairs, a, stride, b, (const uint16_t *)g->b + k0 * g->b_rs + j,
                         g->b_rs, &to, columns);
                    i = ROWS;
                } else
                    i += some_rows(g->m - i, pairs, a + i * stride, stride, b, &to, columns);
            }
        }
    }
}

const wf_gemm_kernels wf_gemm_kernels_pairs = {.scratch = scratch_of, .block = run};
