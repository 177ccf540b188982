/*
 * eager/kernels/conv_turn.c -- weights of convolutions turned round sixteen rows at a time, into lines of the cache; called
 * where the level in use is AVX-512 only.
 *
 * Sixteen elements of four bytes (or pairs of two) of each row are a square in registers: it is turned by four rounds of
 * shuffles and stored as whole lines, each to its own place. Pairs are formed as they are loaded. Nothing goes by way of
 * memory: what is loaded right after it was stored in other pieces waits for the stores.
 */
#include <immintrin.h>
#include <stdbool.h>

#include "eager/cpu/conv_pack.h"

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Rows and columns of a square. Pairs of sixteen elements that follow each other lie in two registers where runs are no
 * longer than SPAN. */
enum { SIDE = WF_CONV_SIDE, SPAN = 16 };

/* Registers k and k + D of every 2 * D, by the halves that lo and hi take. */
#define ROUND(D, lo, hi)                                                                           \
    UNROLL                                                                                         \
    for (int k = 0; k < SIDE; k++)                                                                 \
        if ((k & D) == 0) {                                                                        \
            const __m512i x = v[k], y = v[k + D];                                                  \
            v[k] = lo(x, y), v[k + D] = hi(x, y);                                                  \
        }
#define EVEN_LANES(x, y) _mm512_shuffle_i32x4(x, y, 0x88)
#define ODD_LANES(x, y) _mm512_shuffle_i32x4(x, y, 0xDD)
/* Where element k of all rows is then: of four neighbours the inner two have changed places. */
#define TURNED(k) (((k)&3) == 1 || ((k)&3) == 2 ? (k) ^ 3 : (k))

static inline __attribute__((always_inline)) void turn(__m512i v[SIDE])
{
    ROUND(1, _mm512_unpacklo_epi32, _mm512_unpackhi_epi32)
    ROUND(2, _mm512_unpacklo_epi64, _mm512_unpackhi_epi64)
    ROUND(4, EVEN_LANES, ODD_LANES)
    ROUND(8, EVEN_LANES, ODD_LANES)
}

static inline __mmask32 first(int64_t n)
{
    return n >= 32 ? ~(__mmask32)0 : n > 0 ? ((__mmask32)1 << n) - 1 : 0;
}

/* Of each position that a square may begin with: where the halves of its pairs are, counted from there. */
static void find_pairs(int64_t area, uint32_t order[SPAN][SIDE])
{
    for (int64_t i = 0; i < area; i++) {
        int64_t position = i, at = 0;
        for (int k = 0; k < SIDE; k++, at++) {
            order[i][k] = (uint32_t)(at | (at + area) << 16);
            if (++position == area)
                position = 0, at += area;
        }
    }
}

/* Sixteen rows. */
static void turn_rows(const wf_conv_turned *t, const char *in, char *out,
                      const uint32_t order[SPAN][SIDE])
{
    const int64_t area = t->area;
    int64_t in_block = 0;
    for (int64_t q = 0, i = 0; q < t->runs;) {
        const int64_t left = (t->runs - q) * area - i;
        int64_t n = left;
        __m512i v[SIDE];
        const char *from = in + 4 * q * area;
        if (t->second == 0) {
            const __mmask16 some = (__mmask16)first(n);
            from += 4 * i;
            UNROLL
            for (int k = 0; k < SIDE; k++, from += t->row) {
                v[k] = _mm512_maskz_loadu_epi32(some, from);
                _mm_prefetch(from + t->ahead, _MM_HINT_T0);
            }
        } else {
            const bool spans = order != NULL;
            __m512i pairs = _mm512_setr_epi32(
                0x200000, 0x210001, 0x220002, 0x230003, 0x240004, 0x250005, 0x260006, 0x270007,
                0x280008, 0x290009, 0x2A000A, 0x2B000B, 0x2C000C, 0x2D000D, 0x2E000E, 0x2F000F);
            __mmask32 low, high;
            int64_t second = t->second;
            if (spans) {
                const int64_t halves = 2 * left + i;
                low = first(halves), high = first(halves - 32);
                second = 64;
                pairs = _mm512_load_si512(order[i]);
            } else {
                n = n < area - i ? n : area - i;
                low = high = first(n < SIDE ? n : SIDE);
            }
            from += 2 * i;
            UNROLL
            for (int k = 0; k < SIDE; k++, from += t->row) {
                v[k] = _mm512_permutex2var_epi16(_mm512_maskz_loadu_epi16(low, from), pairs,
                                                 _mm512_maskz_loadu_epi16(high, from + second));
                _mm_prefetch(from + t->ahead, _MM_HINT_T0);
            }
        }
        char *place[SIDE];
        for (int k = 0; k < SIDE; k++) {
            place[k] = out + i * t->x;
            if (k < n && ++i == area) {
                i = 0, q++;
                out += ++in_block == t->per_block ? t->block - (in_block - 1) * t->run : t->run;
                in_block = in_block == t->per_block ? 0 : in_block;
            }
        }
        turn(v);
        UNROLL
        for (int k = 0; k < SIDE; k++) {
            if (k >= n)
                break;
            _mm512_storeu_si512(place[k], v[TURNED(k)]);
        }
    }
}

void wf_conv_turn(const wf_conv_turned *t)
{
    _Alignas(64) uint32_t order[SPAN][SIDE];
    const bool spans = t->second == 2 * t->area && t->area <= SPAN;
    if (spans)
        find_pairs(t->area, order);
    for (int64_t i = 0; i < t->times; i++)
        turn_rows(t, (const char *)t->in + i * t->in_step, (char *)t->out + i * t->out_step,
                  spans ? order : NULL);
}
