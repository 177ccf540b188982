/*
 * eager/cpu/transpose.c -- 2-d transposition in register tiles; SSE2 suffices, it is bound by memory.
 */
#include "eager/cpu/transpose.h"

#include <emmintrin.h>
#include <string.h>

/* 4 x 4 of 4 bytes, as integers so that any bits pass. */
static void tile_4(const uint32_t *in, int64_t in_rs, uint32_t *out, int64_t out_rs)
{
    __m128i a = _mm_loadu_si128((const void *)in), b = _mm_loadu_si128((const void *)(in + in_rs));
    __m128i c = _mm_loadu_si128((const void *)(in + 2 * in_rs));
    __m128i d = _mm_loadu_si128((const void *)(in + 3 * in_rs));
    __m128i ab = _mm_unpacklo_epi32(a, b), cd = _mm_unpacklo_epi32(c, d);
    __m128i ab_hi = _mm_unpackhi_epi32(a, b), cd_hi = _mm_unpackhi_epi32(c, d);
    _mm_storeu_si128((void *)out, _mm_unpacklo_epi64(ab, cd));
    _mm_storeu_si128((void *)(out + out_rs), _mm_unpackhi_epi64(ab, cd));
    _mm_storeu_si128((void *)(out + 2 * out_rs), _mm_unpacklo_epi64(ab_hi, cd_hi));
    _mm_storeu_si128((void *)(out + 3 * out_rs), _mm_unpackhi_epi64(ab_hi, cd_hi));
}

/* 8 x 8 of 2 bytes: three rounds of interleaving row r with row r + 4. */
static void tile_2(const uint16_t *in, int64_t in_rs, uint16_t *out, int64_t out_rs)
{
    __m128i x[8], y[8];
    for (int i = 0; i < 8; i++)
        x[i] = _mm_loadu_si128((const void *)(in + i * in_rs));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) {
            y[2 * i] = _mm_unpacklo_epi16(x[i], x[i + 4]);
            y[2 * i + 1] = _mm_unpackhi_epi16(x[i], x[i + 4]);
        }
        memcpy(x, y, sizeof x);
    }
    for (int i = 0; i < 8; i++)
        _mm_storeu_si128((void *)(out + i * out_rs), x[i]);
}

/* Tiles inside strips of 32 columns, so that lines of `out` are completed while in cache. */
#define DEFINE_TRANSPOSE(name, U, tile, N)                                                         \
    static void name(int64_t rows, int64_t columns, const U *in, int64_t in_rs, U *out,            \
                     int64_t out_rs)                                                               \
    {                                                                                              \
        int64_t full_rows = rows - rows % (N), full_columns = columns - columns % (N);             \
        for (int64_t j0 = 0; j0 < full_columns; j0 += 32) {                                        \
            int64_t j1 = j0 + 32 < full_columns ? j0 + 32 : full_columns;                          \
            for (int64_t i = 0; i < full_rows; i += (N))                                           \
                for (int64_t j = j0; j < j1; j += (N))                                             \
                    tile(in + i * in_rs + j, in_rs, out + j * out_rs + i, out_rs);                 \
        }                                                                                          \
        for (int64_t j = full_columns; j < columns; j++)                                           \
            for (int64_t i = 0; i < full_rows; i++)                                                \
                out[j * out_rs + i] = in[i * in_rs + j];                                           \
        for (int64_t j = 0; j < columns; j++)                                                      \
            for (int64_t i = full_rows; i < rows; i++)                                             \
                out[j * out_rs + i] = in[i * in_rs + j];                                           \
    }
DEFINE_TRANSPOSE(transpose_4, uint32_t, tile_4, 4)
DEFINE_TRANSPOSE(transpose_2, uint16_t, tile_2, 8)

void wf_transpose_2d(size_t size, int64_t rows, int64_t columns, const void *in, int64_t in_rs,
                     void *out, int64_t out_rs)
{
    if (size == 4)
        transpose_4(rows, columns, in, in_rs, out, out_rs);
    else
        transpose_2(rows, columns, in, in_rs, out, out_rs);
}
