/*
 * eager/kernels/gemm_amx.c -- the inner loops of bf16 products on matrix units; compiled for AMX and
 * AVX-512, and called where wf_amx() says so only.
 *
 * Four tiles accumulate a square of 32 x 32 results, two hold A, two hold B: four products of tiles
 * take 64 cycles, their four loads 32 of another port. The instruction multiplies pairs of terms,
 * takes subnormal operands and sums as zeros, and rounds to nearest; NaN and infinity go where IEEE
 * sums take them.
 *
 * Tile loads are inline assembly to gcc that names no memory: a barrier stands where vectors have
 * written what tiles read, and the other way round.
 */
#include "eager/kernels/gemm_amx.h"

#include <immintrin.h>
#include <string.h>

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define BARRIER() __asm__ volatile("" ::: "memory")

void wf_amx_enter(void)
{
    typedef struct config {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config;
    static const config whole = {
        .palette = 1,
        .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
        .rows = {16, 16, 16, 16, 16, 16, 16, 16},
    };
    _tile_loadconfig(&whole);
}

void wf_amx_leave(void)
{
    _tile_release();
}

static inline __mmask32 first_32(int64_t count)
{
    return count >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << count) - 1;
}

static inline __mmask16 first_16(int64_t count)
{
    return (__mmask16)(count <= 0 ? 0 : first_32(count < 16 ? count : 16));
}

/* Rows [done, end); end may lie past them. */
static inline __attribute__((always_inline)) void round_rows(wf_amx_out *out, int64_t end)
{
    const wf_amx_out o = *out; /* stores of vectors may alias it */
    const __mmask32 mask = first_32(o.columns);
    end = end < o.rows ? end : o.rows;
    out->done = end;
    if (!o.bias && !o.row_at && o.columns >= WF_AMX_SIDE) {
        for (int64_t i = o.done; i < end; i++) {
            const float *x = o.acc + i / 16 * 512 + i % 16 * 16;
            const __m512bh y = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 256), _mm512_loadu_ps(x));
            _mm512_storeu_si512(o.c + i * o.c_rs, (__m512i)y);
        }
        return;
    }
    const __m512 none = _mm512_set1_ps(-0.0f); /* x + -0 is x, also for -0 */
    const __m512 low = o.bias ? _mm512_loadu_ps(o.bias) : none;
    const __m512 high = o.bias ? _mm512_loadu_ps(o.bias + 16) : none;
    for (int64_t i = o.done; i < end; i++) {
        const float *x = o.acc + i / 16 * 512 + i % 16 * 16;
        const __m512bh y = _mm512_cvtne2ps_pbh(_mm512_add_ps(_mm512_loadu_ps(x + 256), high),
                                               _mm512_add_ps(_mm512_loadu_ps(x), low));
        const int64_t at = o.row_at ? o.row_at[i] : i * o.c_rs;
        if (at >= 0)
            _mm512_mask_storeu_epi16(o.c + at, mask, (__m512i)y);
    }
}

void wf_amx_flush(wf_amx_out *out)
{
    round_rows(out, out->rows);
}

/* Tiles 0 to 3 accumulate (row block, column block) 00, 01, 10, 11; 4 and 5 are A, 6 and 7 are B. */
static inline __attribute__((always_inline)) void
square(int two_rows, int two_columns, const wf_amx_rows *a, const int32_t *offset, int64_t steps,
       const char *b, char *acc, int add, wf_amx_out *out)
{
    const char *a0 = a->tile[0], *a1 = a->tile[1];
    const uint16_t *next = out->next;
    const int64_t next_rs = out->c_rs, stride = a->stride, per = (WF_AMX_SIDE + steps - 1) / steps;
    if (add) {
        _tile_loadd(0, acc, 64);
        if (two_columns)
            _tile_loadd(1, acc + WF_AMX_TILE, 64);
        if (two_rows)
            _tile_loadd(2, acc + 2 * WF_AMX_TILE, 64);
        if (two_rows && two_columns)
            _tile_loadd(3, acc + 3 * WF_AMX_TILE, 64);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t s = 0; s < steps; s++, b += WF_AMX_STEP) {
        _tile_loadd(6, b, 64);
        _tile_loadd(4, a0 + offset[s], stride);
        _tile_dpbf16ps(0, 4, 6);
        if (two_columns) {
            _tile_loadd(7, b + WF_AMX_TILE, 64);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (two_rows) {
            _tile_loadd(5, a1 + offset[s], stride);
            _tile_dpbf16ps(2, 5, 6);
            if (two_columns)
                _tile_dpbf16ps(3, 5, 7);
        }
        for (int64_t r = s * per; next && r < s * per + per; r++)
            _mm_prefetch((const void *)(next + r * next_rs), _MM_HINT_ET0);
        if (out->done < out->rows)
            round_rows(out, out->done + per);
    }
    wf_amx_flush(out);
    BARRIER();
    _tile_stored(0, acc, 64);
    if (two_columns)
        _tile_stored(1, acc + WF_AMX_TILE, 64);
    if (two_rows)
        _tile_stored(2, acc + 2 * WF_AMX_TILE, 64);
    if (two_rows && two_columns)
        _tile_stored(3, acc + 3 * WF_AMX_TILE, 64);
}

void wf_amx_square(const wf_amx_rows *a, const int32_t *offset, int64_t steps, const void *b,
                   int64_t columns, float *acc, int add, wf_amx_out *out)
{
    char *to = (char *)(void *)acc;
    BARRIER();
    if (a->tile[1] && columns > 16)
        square(1, 1, a, offset, steps, b, to, add, out);
    else if (a->tile[1])
        square(1, 0, a, offset, steps, b, to, add, out);
    else if (columns > 16)
        square(0, 1, a, offset, steps, b, to, add, out);
    else
        square(0, 0, a, offset, steps, b, to, add, out);
    BARRIER();
}

/* r[i] lane j := r[j] lane i. */
static inline __attribute__((always_inline)) void transpose(__m512i r[16])
{
    __m512i t[16];
    UNROLL
    for (int i = 0; i < 16; i += 4) {
        const __m512i a = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        const __m512i b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
        const __m512i c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]);
        const __m512i d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
        t[i] = _mm512_unpacklo_epi64(a, c);
        t[i + 1] = _mm512_unpackhi_epi64(a, c);
        t[i + 2] = _mm512_unpacklo_epi64(b, d);
        t[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    /* Lane block g of t[4 q + c] holds column 4 g + c of rows 4 q to 4 q + 3. */
    UNROLL
    for (int c = 0; c < 4; c++) {
        const __m512i a = _mm512_shuffle_i32x4(t[c], t[c + 4], 0x88);
        const __m512i b = _mm512_shuffle_i32x4(t[c], t[c + 4], 0xDD);
        const __m512i d = _mm512_shuffle_i32x4(t[c + 8], t[c + 12], 0x88);
        const __m512i e = _mm512_shuffle_i32x4(t[c + 8], t[c + 12], 0xDD);
        r[c] = _mm512_shuffle_i32x4(a, d, 0x88);
        r[c + 8] = _mm512_shuffle_i32x4(a, d, 0xDD);
        r[c + 4] = _mm512_shuffle_i32x4(b, e, 0x88);
        r[c + 12] = _mm512_shuffle_i32x4(b, e, 0xDD);
    }
}

/* 16 lines (`count` of them there) of pairs, `rs` elements apart, to the columns of a tile. */
static inline void pairs_of_lines(const uint16_t *from, int64_t rs, int64_t count, __mmask32 mask,
                                  char *out)
{
    __m512i r[16];
    UNROLL
    for (int i = 0; i < 16; i++)
        r[i] = i < count ? _mm512_maskz_loadu_epi16(mask, from + i * rs) : _mm512_setzero_si512();
    transpose(r);
    UNROLL
    for (int i = 0; i < 16; i++)
        _mm512_storeu_si512(out + 64 * i, r[i]);
}

/* Lines 2 p and 2 p + 1 of `terms` lines, 16 elements of each as pairs. */
static inline __m512i pairs_of_two(const uint16_t *line, int64_t cs, int64_t p, int64_t terms,
                                   __mmask16 mask)
{
    const uint16_t *x = line + 2 * p * cs;
    const __m256i none = _mm256_setzero_si256();
    const __m256i low = 2 * p < terms ? _mm256_maskz_loadu_epi16(mask, x) : none;
    const __m256i high = 2 * p + 1 < terms ? _mm256_maskz_loadu_epi16(mask, x + cs) : none;
    return _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

/* One step, any strides: out[line][term], or [term / 2][line][term % 2] where `paired`. */
static void gather_step(const uint16_t *from, int64_t line, int64_t term, int64_t lines,
                        int64_t terms, int paired, char *out)
{
    uint16_t to[16 * 32] = {0};
    for (int64_t i = 0; i < lines; i++)
        for (int64_t p = 0; p < terms; p++)
            to[paired ? p / 2 * 32 + i * 2 + p % 2 : i * 32 + p] = from[i * line + p * term];
    memcpy(out, to, sizeof to);
}

void wf_amx_pack_rows(const wf_amx_matrix *a, int64_t rows, int64_t k, void *to)
{
    char *out = to;
    for (int64_t p = 0; p < k; p += WF_AMX_SIDE, out += WF_AMX_TILE) {
        const uint16_t *from = a->at + p * a->cs;
        const int64_t terms = k - p < WF_AMX_SIDE ? k - p : WF_AMX_SIDE;
        if (a->cs == 1) {
            const __mmask32 mask = first_32(terms);
            for (int64_t i = 0; i < rows; i++)
                _mm512_storeu_si512(out + 64 * i, _mm512_maskz_loadu_epi16(mask, from + i * a->rs));
        } else if (a->rs == 1) {
            __m512i r[16];
            UNROLL
            for (int i = 0; i < 16; i++)
                r[i] = pairs_of_two(from, a->cs, i, terms, first_16(rows));
            transpose(r);
            UNROLL
            for (int i = 0; i < 16; i++)
                _mm512_storeu_si512(out + 64 * i, r[i]);
        } else {
            gather_step(from, a->rs, a->cs, rows, terms, 0, out);
        }
    }
}

/* Whole lines of 32 columns, two at a time. */
static inline void step_of_rows(const uint16_t *from, int64_t rs, int64_t columns, int64_t terms,
                                char *out)
{
    const __mmask32 mask = first_32(columns);
    const __m512i even =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                         37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i odd = _mm512_add_epi16(even, _mm512_set1_epi16(16));
    for (int64_t p = 0; p < 16; p++) {
        __m512i low = _mm512_setzero_si512(), high = low;
        if (2 * p < terms)
            low = _mm512_maskz_loadu_epi16(mask, from + 2 * p * rs);
        if (2 * p + 1 < terms)
            high = _mm512_maskz_loadu_epi16(mask, from + (2 * p + 1) * rs);
        _mm512_storeu_si512(out + 64 * p, _mm512_permutex2var_epi16(low, even, high));
        _mm512_storeu_si512(out + WF_AMX_TILE + 64 * p, _mm512_permutex2var_epi16(low, odd, high));
    }
}

void wf_amx_pack_columns(const wf_amx_matrix *b, int64_t columns, int64_t k, void *to, int64_t next)
{
    char *out = to;
    for (int64_t p = 0; p < k; p += WF_AMX_SIDE, out += next) {
        const uint16_t *from = b->at + p * b->rs;
        const int64_t terms = k - p < WF_AMX_SIDE ? k - p : WF_AMX_SIDE;
        if (b->cs == 1) {
            step_of_rows(from, b->rs, columns, terms, out);
            continue;
        }
        for (int64_t j = 0; j < WF_AMX_SIDE; j += 16) {
            const int64_t count = columns - j < 16 ? columns - j : 16;
            if (b->rs == 1)
                pairs_of_lines(from + j * b->cs, b->cs, count, first_32(terms), out + 64 * j);
            else
                gather_step(from + j * b->cs, b->cs, b->rs, count < 0 ? 0 : count, terms, 1,
                            out + 64 * j);
        }
    }
}

/* Tap t of 32 channels, for 32 lines of them: lane i is element taps * i + t of a line, which lies in its
 * vector (taps * i + t) / 32. */
static void part_tap(const uint16_t *from, int64_t rs, int64_t taps, int64_t t, uint16_t *out)
{
    const __m512i lane =
        _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13,
                         12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i at = _mm512_add_epi16(_mm512_mullo_epi16(lane, _mm512_set1_epi16((short)taps)),
                                        _mm512_set1_epi16((short)t));
    __mmask32 here[WF_AMX_TAPS];
    for (int64_t v = 0; v < taps; v++)
        here[v] = _mm512_cmpeq_epi16_mask(_mm512_srli_epi16(at, 5), _mm512_set1_epi16((short)v));
    for (int64_t o = 0; o < WF_AMX_SIDE; o++, from += rs) {
        __m512i x = _mm512_setzero_si512();
        for (int64_t v = 0; v < taps; v++)
            x = _mm512_mask_permutexvar_epi16(x, here[v], at, _mm512_loadu_si512(from + 32 * v));
        _mm512_storeu_si512(out + o * WF_AMX_SIDE, x);
    }
}

void wf_amx_pack_taps(const uint16_t *weight, int64_t o_rs, int64_t taps, bool transposed,
                      void *out, int64_t next)
{
    for (int64_t t = 0; t < taps; t++) {
        uint16_t part[WF_AMX_SIDE * WF_AMX_SIDE];
        part_tap(weight, o_rs, taps, t, part);
        const wf_amx_matrix from = {part, transposed ? WF_AMX_SIDE : 1,
                                    transposed ? 1 : WF_AMX_SIDE};
        wf_amx_pack_columns(&from, WF_AMX_SIDE, WF_AMX_SIDE, (char *)out + t * next, WF_AMX_STEP);
    }
}

void wf_amx_pack_pairs(const uint16_t *from, int64_t rs, int64_t columns, int64_t terms,
                       int64_t pairs, void *out)
{
    char *to = out;
    const __mmask32 mask = first_32(columns);
    for (int64_t p = 0; p < pairs; p++, from += 2 * rs, to += WF_AMX_LINE) {
        __m512i low = _mm512_setzero_si512(), high = low;
        if (2 * p < terms)
            low = _mm512_maskz_loadu_epi16(mask, from);
        if (2 * p + 1 < terms)
            high = _mm512_maskz_loadu_epi16(mask, from + rs);
        _mm512_storeu_si512(to, _mm512_unpacklo_epi16(low, high));
        _mm512_storeu_si512(to + 64, _mm512_unpackhi_epi16(low, high));
    }
}

void wf_amx_pairs_square(const char *a, int64_t a_half, const char *b, const int32_t *at,
                         int64_t steps, float *acc, int add)
{
    char *to = (char *)(void *)acc;
    BARRIER();
    if (add) {
        _tile_loadd(0, to, 64);
        _tile_loadd(1, to + WF_AMX_TILE, 64);
        _tile_loadd(2, to + 2 * WF_AMX_TILE, 64);
        _tile_loadd(3, to + 3 * WF_AMX_TILE, 64);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t s = 0; s < steps; s++, a += WF_AMX_TILE) {
        _tile_loadd(6, b + at[s], WF_AMX_LINE);
        _tile_loadd(4, a, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + at[s] + 64, WF_AMX_LINE);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + a_half, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, to, 64);
    _tile_stored(1, to + WF_AMX_TILE, 64);
    _tile_stored(2, to + 2 * WF_AMX_TILE, 64);
    _tile_stored(3, to + 3 * WF_AMX_TILE, 64);
    BARRIER();
}

void wf_amx_join_init(wf_amx_join *j, int64_t taps)
{
    j->taps = taps;
    for (int64_t v = 0; v < taps; v++) {
        for (int64_t t = 0; t < taps; t++)
            j->mask[v][t] = 0;
        for (int64_t i = 0; i < WF_AMX_SIDE; i++) {
            const int64_t at = v * WF_AMX_SIDE + i, column = at / taps;
            j->lane[v][i] =
                (uint16_t)(column / 8 * 4 + column % 4 + (column & 4 ? WF_AMX_SIDE / 2 : 0));
            j->mask[v][at % taps] |= (uint32_t)1 << i;
        }
    }
}

bool wf_amx_join_rows(const wf_amx_join *j, const float *acc, int64_t rows, uint16_t *out,
                      int64_t rs)
{
    __m512i x[WF_AMX_TAPS];
    const __m512i large = _mm512_set1_epi16(0x7F80);
    __mmask32 bad = 0;
    for (int64_t r = 0; r < rows; r++, out += rs) {
        const float *from = acc + r / 16 * 512 + r % 16 * 16;
        for (int64_t t = 0; t < j->taps; t++, from += WF_AMX_SQUARE / 4) {
            x[t] = (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + 256), _mm512_loadu_ps(from));
            bad |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(x[t], large), large);
        }
        for (int64_t v = 0; v < j->taps; v++) {
            const __m512i lane = _mm512_loadu_si512(j->lane[v]);
            __m512i y = _mm512_setzero_si512();
            for (int64_t t = 0; t < j->taps; t++)
                y = _mm512_mask_permutexvar_epi16(y, j->mask[v][t], lane, x[t]);
            _mm512_storeu_si512(out + v * WF_AMX_SIDE, y);
        }
    }
    return !bad;
}
