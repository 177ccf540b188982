/*
 * eager/kernels/copy.inc.c -- moving elements: strided pack and unpack with transposes in registers,
 * streaming copies, and the table wf_kernels_<isa> of everything in this folder that map.c uses.
 *
 * A transpose block takes B columns of the source (contiguous along i) and writes B rows of one register. Elements
 * are bit patterns of 1, 2, 4 or 8 bytes; what they mean does not matter here.
 *
 * Invariant: non-temporal stores are followed by the caller's fence before another thread may read.
 */
#include "eager/cpuid.h"
#include "eager/kernels/kernels.h"
#include "eager/kernels/move.h"
#include "eager/view.h"

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

enum { LINE = 64 }; /* bytes of a cache line */

/* -- register transposes: B x B elements, columns of src ld_s apart, rows of dst ld_d apart ------------ */
/* Loops over registers are unrolled, or the registers would live on the stack. */
#ifdef __OPTIMIZE_SIZE__ /* the copy for any machine */
#define UNROLLED _Pragma("GCC unroll 1")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif
#define ROLLED _Pragma("GCC unroll 1")
/* A lane of 128 bits holds PER = 16 / sizeof(T) neighbours of one source column; a register holds the lanes of columns
 * k, k + PER, k + 2 PER ..., put side by side by loads (shuffles are what limits a transpose). One round of
 * interleaving halves the way to the transpose: after log2(PER) rounds register k holds a row of dst. */
#define ROUND(PER, lo, hi)                                                                         \
    UNROLLED for (int k = 0; k < PER / 2; k++)                                                     \
    {                                                                                              \
        t[2 * k] = lo(r[k], r[k + PER / 2]);                                                       \
        t[2 * k + 1] = hi(r[k], r[k + PER / 2]);                                                   \
    }                                                                                              \
    UNROLLED for (int k = 0; k < PER; k++)                                                         \
    {                                                                                              \
        r[k] = t[k];                                                                               \
    }

/* Moves on to the next row, by an address that the compiler does not foresee: it would keep those of all rows. */
#define NEXT_ROW(p, bytes)                                                                         \
    p += (bytes);                                                                                  \
    __asm__("" : "+r"(p))

/* QUARTERS: UNROLLED where shorter code would be slower, ROLLED where it would not.
 * SIDE blocks side by side, so that whole lines are written (or pairs of them). NEXT(NEXT_T next, to): what is done
 * before a row is written at `to`. */
#define BLOCK_FN(name, T, PER, SIDE, LANES, V, PUT, QUARTERS, ROUNDS, NEXT_T, NEXT)                \
    __attribute__((unused)) static inline void name(T *dst, int64_t ld_d, const T *src,            \
                                                    int64_t ld_s, NEXT_T next)                     \
    {                                                                                              \
        enum { WIDTH = sizeof(V) / sizeof(T) };                                                    \
        const int64_t step = ld_s * (int64_t)sizeof(T), out = ld_d * (int64_t)sizeof(T);           \
        char *to = (char *)dst;                                                                    \
        QUARTERS for (int q = 0; q < (int)(sizeof(V) / 16); q++)                                   \
        {                                                                                          \
            V side[SIDE][PER];                                                                     \
            UNROLLED for (int h = 0; h < SIDE; h++)                                                \
            {                                                                                      \
                const char *from = (const char *)(src + q * PER) + h * WIDTH * step;               \
                V *r = side[h], t[PER];                                                            \
                UNROLLED for (int k = 0; k < PER; k++)                                             \
                {                                                                                  \
                    r[k] = LANES(from, PER * step);                                                \
                    NEXT_ROW(from, step);                                                          \
                }                                                                                  \
                ROUNDS                                                                             \
            }                                                                                      \
            UNROLLED for (int k = 0; k < PER; k++)                                                 \
            {                                                                                      \
                NEXT(next, to);                                                                    \
                UNROLLED for (int h = 0; h < SIDE; h++)                                            \
                {                                                                                  \
                    PUT(to + h * (int)sizeof(V), side[h][k]);                                      \
                }                                                                                  \
                NEXT_ROW(to, out);                                                                 \
            }                                                                                      \
        }                                                                                          \
    }

static inline __m128i lanes128(const char *p, int64_t ld)
{
    (void)ld;
    return _mm_loadu_si128((const void *)p);
}
static inline void put128(void *p, __m128i v)
{
    _mm_storeu_si128(p, v);
}
/* Of rows as far from those written as `ahead` bytes, if not 0, the lines are fetched. */
static inline void fetch_ahead(int64_t ahead, const char *to)
{
    if (ahead)
        __builtin_prefetch(to + ahead, 1);
}
#define ROUND8 ROUND(16, _mm_unpacklo_epi8, _mm_unpackhi_epi8)
#define ROUND16 ROUND(8, _mm_unpacklo_epi16, _mm_unpackhi_epi16)
#define ROUND32 ROUND(4, _mm_unpacklo_epi32, _mm_unpackhi_epi32)
#define ROUND64 ROUND(2, _mm_unpacklo_epi64, _mm_unpackhi_epi64)
BLOCK_FN(little_1, uint8_t, 16, 1, lanes128, __m128i, put128, , ROUND8 ROUND8 ROUND8 ROUND8,
         int64_t, fetch_ahead)
BLOCK_FN(little_2, uint16_t, 8, 1, lanes128, __m128i, put128, , ROUND16 ROUND16 ROUND16, int64_t,
         fetch_ahead)
BLOCK_FN(little_4, uint32_t, 4, 1, lanes128, __m128i, put128, , ROUND32 ROUND32, int64_t,
         fetch_ahead)
BLOCK_FN(little_8, uint64_t, 2, 1, lanes128, __m128i, put128, , ROUND64, int64_t, fetch_ahead)
#undef ROUND8
#undef ROUND16
#undef ROUND32
#undef ROUND64

#if defined(__AVX512F__)
enum { VECTOR = 64, SIDE = 1 };
#define SIDE_PAST 2
typedef __m512i vector;
static inline vector lanes_of(const char *p, int64_t ld)
{
    vector v = _mm512_castsi128_si512(lanes128(p, 0));
    v = _mm512_mask_broadcast_i64x2(v, 0x0C, lanes128(p + ld, 0));
    v = _mm512_mask_broadcast_i64x2(v, 0x30, lanes128(p + 2 * ld, 0));
    return _mm512_mask_broadcast_i64x2(v, 0xC0, lanes128(p + 3 * ld, 0));
}
static inline vector get(const void *p)
{
    return _mm512_loadu_si512(p);
}
static inline void put(void *p, vector v)
{
    _mm512_storeu_si512(p, v);
}
static inline void put_past(void *p, vector v)
{
    _mm512_stream_si512(p, v);
}
/* The first bytes of a register: a mask of them, and memory that is read or written nowhere else. */
static inline __mmask64 first(int64_t bytes)
{
    return _bzhi_u64(~0ull, bytes < 64 ? (unsigned)bytes : 64);
}
static inline vector get_some(__mmask64 which, const void *p)
{
    return _mm512_maskz_loadu_epi8(which, p);
}
static inline void put_some(void *p, __mmask64 which, vector v)
{
    _mm512_mask_storeu_epi8(p, which, v);
}
/* The elements of a register in reverse; `in_lane` turns round the bytes of 16. */
static inline vector reversed(vector v, __m128i in_lane, int size)
{
    typedef int32_t four __attribute__((vector_size(64), may_alias));
    typedef int64_t eight __attribute__((vector_size(64), may_alias));
    if (size == 4)
        return (vector)__builtin_shufflevector((four)v, (four)v, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6,
                                               5, 4, 3, 2, 1, 0);
    if (size == 8)
        return (vector)__builtin_shufflevector((eight)v, (eight)v, 7, 6, 5, 4, 3, 2, 1, 0);
    v = _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(in_lane));
    return _mm512_shuffle_i64x2(v, v, 0x1B);
}
/* A square of a line by a line from halves of lines, two in a register: fewer loads, more shuffles than by lanes, and one load
 * instruction for each row, by which a Zen 5 foresees what comes next. */
#define WHOLE_FN(name, T, PER, ROUNDS, ASKS)                                                       \
    static inline void name(T *dst, int64_t ld_d, const T *src, int64_t ld_s, int64_t to_next,     \
                            int64_t from_next)                                                     \
    {                                                                                              \
        const int64_t step = ld_s * (int64_t)sizeof(T), out = ld_d * (int64_t)sizeof(T);           \
        const __m512i places[2] = {_mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13),                    \
                                   _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15)};                 \
        (void)to_next, (void)from_next;                                                            \
        char *to = (char *)dst;                                                                    \
        ROLLED for (int h = 0; h < 2; h++)                                                         \
        {                                                                                          \
            vector half[2][PER];                                                                   \
            const char *from = (const char *)src + h * 32;                                         \
            UNROLLED for (int g = 0; g < 2; g++)                                                   \
            {                                                                                      \
                vector *r = half[g], t[PER];                                                       \
                UNROLLED for (int k = 0; k < PER; k++)                                             \
                {                                                                                  \
                    if (ASKS && h == 0) {                                                          \
                        __builtin_prefetch(from + from_next);                                      \
                        __builtin_prefetch(from + from_next + 2 * PER * step);                     \
                    }                                                                              \
                    r[k] = _mm512_inserti64x4(                                                     \
                        _mm512_castsi256_si512(_mm256_loadu_si256((const void *)from)),            \
                        _mm256_loadu_si256((const void *)(from + 2 * PER * step)), 1);             \
                    NEXT_ROW(from, step);                                                          \
                }                                                                                  \
                ROUNDS                                                                             \
            }                                                                                      \
            UNROLLED for (int k = 0; k < 2 * PER; k++)                                             \
            {                                                                                      \
                if (ASKS)                                                                          \
                    __builtin_prefetch(to + to_next, 1);                                           \
                put(to, _mm512_permutex2var_epi64(half[0][k % PER], places[k / PER],               \
                                                  half[1][k % PER]));                              \
                NEXT_ROW(to, out);                                                                 \
            }                                                                                      \
        }                                                                                          \
    }
#define ROUND8 ROUND(16, _mm512_unpacklo_epi8, _mm512_unpackhi_epi8)
#define ROUND16 ROUND(8, _mm512_unpacklo_epi16, _mm512_unpackhi_epi16)
#define ROUND32 ROUND(4, _mm512_unpacklo_epi32, _mm512_unpackhi_epi32)
#define ROUND64 ROUND(2, _mm512_unpacklo_epi64, _mm512_unpackhi_epi64)
#elif defined(__AVX2__)
enum { VECTOR = 32, SIDE = 2 };
#define SIDE_PAST 4
typedef __m256i vector;
static inline vector lanes_of(const char *p, int64_t ld)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(lanes128(p, 0)), lanes128(p + ld, 0), 1);
}
static inline vector get(const void *p)
{
    return _mm256_loadu_si256(p);
}
static inline void put(void *p, vector v)
{
    _mm256_storeu_si256(p, v);
}
static inline void put_past(void *p, vector v)
{
    _mm256_stream_si256(p, v);
}
#define ROUND8 ROUND(16, _mm256_unpacklo_epi8, _mm256_unpackhi_epi8)
#define ROUND16 ROUND(8, _mm256_unpacklo_epi16, _mm256_unpackhi_epi16)
#define ROUND32 ROUND(4, _mm256_unpacklo_epi32, _mm256_unpackhi_epi32)
#define ROUND64 ROUND(2, _mm256_unpacklo_epi64, _mm256_unpackhi_epi64)
#else
enum { VECTOR = 16, SIDE = 1 };
typedef __m128i vector;
#define lanes_of lanes128
#define put put128
static inline vector get(const void *p)
{
    return _mm_loadu_si128(p);
}
#define ROUND8 ROUND(16, _mm_unpacklo_epi8, _mm_unpackhi_epi8)
#define ROUND16 ROUND(8, _mm_unpacklo_epi16, _mm_unpackhi_epi16)
#define ROUND32 ROUND(4, _mm_unpacklo_epi32, _mm_unpackhi_epi32)
#define ROUND64 ROUND(2, _mm_unpacklo_epi64, _mm_unpackhi_epi64)
#endif
BLOCK_FN(block_1, uint8_t, 16, SIDE, lanes_of, vector, put, , ROUND8 ROUND8 ROUND8 ROUND8, int64_t,
         fetch_ahead)
BLOCK_FN(block_2, uint16_t, 8, SIDE, lanes_of, vector, put, UNROLLED, ROUND16 ROUND16 ROUND16,
         int64_t, fetch_ahead)
BLOCK_FN(block_4, uint32_t, 4, SIDE, lanes_of, vector, put, UNROLLED, ROUND32 ROUND32, int64_t,
         fetch_ahead)
BLOCK_FN(block_8, uint64_t, 2, SIDE, lanes_of, vector, put, , ROUND64, int64_t, fetch_ahead)

#if defined(__AVX512F__)
enum { HAS_WHOLE = 1 };
WHOLE_FN(whole_2, uint16_t, 8, ROUND16 ROUND16 ROUND16, false)
WHOLE_FN(whole_asking_2, uint16_t, 8, ROUND16 ROUND16 ROUND16, true)
WHOLE_FN(whole_4, uint32_t, 4, ROUND32 ROUND32, false)
WHOLE_FN(whole_8, uint64_t, 2, ROUND64, false)
#else
enum { HAS_WHOLE = 0 };
#define whole_2(d, ldd, s, s0, a, b) ((void)(a), (void)(b))
#define whole_asking_2 whole_2
#define whole_4(d, ldd, s, s0, a, b) ((void)(a), (void)(b))
#define whole_8(d, ldd, s, s0, a, b) ((void)(a), (void)(b))
#endif
#define whole_1(d, ldd, s, s0, a, b) ((void)(a), (void)(b))
#define whole_asking_1 whole_1
#define whole_asking_4 whole_4
#define whole_asking_8 whole_8

#if defined(SIDE_PAST)
/* Past the caches rows of dst are written by pieces, pairs of lines: single ones take twice as long. */
enum { PIECE = SIDE_PAST * VECTOR, PITCH = PIECE + LINE };

/* Rows of src that are copied to scratch, a piece of one for each piece that is written: reads and writes of memory
 * take place at the same time. ahead: bytes to what is asked for into the second cache, where hardware does not foresee so
 * many rows; 0 where it does. */
typedef struct feed {
    const char *from;
    char *to;
    int64_t step, ahead;
} feed;
enum { FEED_AHEAD = 384 };

static inline void feed_piece(feed *f, const char *to)
{
    (void)to;
    if (f->ahead)
        UNROLLED for (int i = 0; i < PIECE; i += LINE)
        {
            __builtin_prefetch(f->from + f->ahead + i, 0, 2);
        }
    UNROLLED for (int i = 0; i < PIECE; i += VECTOR)
    {
        put(f->to + i, get(f->from + i));
    }
    f->to += PITCH;
    NEXT_ROW(f->from, f->step);
}
BLOCK_FN(past_1, uint8_t, 16, SIDE_PAST, lanes_of, vector, put_past, , ROUND8 ROUND8 ROUND8 ROUND8,
         feed *, feed_piece)
BLOCK_FN(past_4, uint32_t, 4, SIDE_PAST, lanes_of, vector, put_past, , ROUND32 ROUND32, feed *,
         feed_piece)
BLOCK_FN(past_8, uint64_t, 2, SIDE_PAST, lanes_of, vector, put_past, ROLLED, ROUND64, feed *,
         feed_piece)

/* Squares of a piece by a piece. While one is written the next one's lines are copied: read where they lie, as many of
 * one set as a square has would drive each other out before their last quarter is read. (The last one is copied
 * twice.) */
#define PAST_SQUARES(T, width)                                                                     \
    static inline void past_squares_##width(T *d, int64_t ldd, const T *s, int64_t s0, int64_t m,  \
                                            int64_t n)                                             \
    {                                                                                              \
        enum { SIZE = sizeof(T), B = VECTOR / SIZE, L = PIECE / SIZE };                            \
        _Alignas(64) char lines[2][L * PITCH];                                                     \
        const bool many = wf_amd();                                                                \
        for (int64_t j = 0; j < n && m > 0; j += L) {                                              \
            feed f = {(const char *)(s + j * s0), lines[0], s0 * SIZE, 0};                         \
            for (int64_t k = 0; k < L; k++)                                                        \
                feed_piece(&f, NULL);                                                              \
            for (int64_t i = 0, at = 0; i < m; i += L, at = 1 - at) {                              \
                f.from = (const char *)(s + (i + L < m ? i + L : i) + j * s0);                     \
                f.to = lines[1 - at];                                                              \
                f.ahead = !many ? 0                                                                \
                          : (m - i - L) * SIZE > FEED_AHEAD                                        \
                              ? FEED_AHEAD                                                         \
                              : FEED_AHEAD + (L * s0 - m) * SIZE; /* the rows behind these */      \
                for (int64_t b = 0; b < L; b += B)                                                 \
                    past_##width(d + (i + b) * ldd + j, ldd,                                       \
                                 (const T *)(const void *)lines[at] + b, PITCH / SIZE, &f);        \
            }                                                                                      \
        }                                                                                          \
    }
PAST_SQUARES(uint8_t, 1)
PAST_SQUARES(uint32_t, 4)
PAST_SQUARES(uint64_t, 8)
#endif

#if defined(__AVX512F__)
BLOCK_FN(past_2, uint16_t, 8, SIDE_PAST, lanes_of, vector, put_past, , ROUND16 ROUND16 ROUND16,
         feed *, feed_piece)
PAST_SQUARES(uint16_t, 2)
/* -- the same on a Zen 5 -- */
/* It reads so many bytes of a row before the next row's (of 32 to 64 rows as fast as from end to end; 128 bytes, or 2 KiB and
 * more, take up to twice as long), and has rows asked for ahead, 8 KiB: the second cache's sets have room for so many if they
 * lie a power of two apart. */
enum { REACH = 512, LEAD = 16 };

/* Lines that are asked for into the second cache, one for each line that is turned: many at once, or beside the stores, would
 * wait for room. */
typedef struct asked {
    const char *at;
    int64_t lines, left, skip; /* of a row: lines, and left of them; bytes to the next row */
} asked;

static inline void ask_line(asked *a, const char *to)
{
    (void)to;
    __builtin_prefetch(a->at, 0, 2);
    a->at += LINE;
    if (--a->left == 0) {
        a->left = a->lines;
        a->at += a->skip;
    }
}
BLOCK_FN(asking_2, uint16_t, 8, SIDE, lanes_of, vector, put, , ROUND16 ROUND16 ROUND16, asked *,
         ask_line)
BLOCK_FN(asking_4, uint32_t, 4, SIDE, lanes_of, vector, put, , ROUND32 ROUND32, asked *, ask_line)
BLOCK_FN(asking_8, uint64_t, 2, SIDE, lanes_of, vector, put, , ROUND64, asked *, ask_line)

/* Rows of `reach` bytes that are copied to scratch, a piece for each piece that is written. */
typedef struct copied {
    const char *from; /* NULL: nothing is */
    char *to;
    int64_t step, reach; /* bytes from row to row, bytes of one */
} copied;

/* `rows` pieces one behind the other, each to its row, past the caches or not. */
static __attribute__((noinline)) void put_pieces(char *to, int64_t out, const char *turned,
                                                 int64_t rows, const copied *c, bool past)
{
    const char *from = c->from;
    char *into = c->to;
    for (int64_t i = 0; i < rows; i += c->reach / PIECE) {
        for (int64_t at = 0; at < c->reach; at += PIECE) {
            UNROLLED for (int k = 0; k < PIECE && from; k += VECTOR)
            {
                put(into + at + k, get(from + at + k));
            }
            UNROLLED for (int k = 0; k < PIECE; k += VECTOR)
            {
                if (past)
                    put_past(to + k, get(turned + k));
                else
                    put(to + k, get(turned + k));
            }
            turned += PIECE;
            to += out;
        }
        from = from ? from + c->step : NULL;
        into += c->reach + LINE;
    }
}

/* rows of n bytes to scratch. */
static __attribute__((noinline)) void gather_rows(char *to, int64_t pitch, const char *from,
                                                  int64_t step, int64_t rows, int64_t n)
{
    for (int64_t k = 0; k < rows; k++, to += pitch, from += step)
        for (int64_t i = 0; i < n; i += VECTOR)
            put(to + i, get(from + i));
}

/* REACH bytes of so many rows as fill a piece of dst. While they are turned, squares of a line by a line in the first cache, the
 * next ones are copied: read where they lie, rows of one set would drive each other out. */
#define FAR_SQUARES(T, width)                                                                      \
    static void far_squares_##width(T *d, int64_t ldd, const T *s, int64_t s0, int64_t m,          \
                                    int64_t n, bool past)                                          \
    {                                                                                              \
        enum { SIZE = sizeof(T), B = LINE / SIZE, L = PIECE / SIZE, V = VECTOR / SIZE };           \
        enum { PITCHED = REACH + LINE, SIDES = REACH / SIZE };                                     \
        enum { ROWS = B * PIECE / REACH }; /* of src, for B of dst */                              \
        _Alignas(64) char lines[2][L * PITCHED];                                                   \
        _Alignas(64) T turned[B * L];                                                              \
        const int64_t step = s0 * SIZE;                                                            \
        for (int64_t j = 0; j < n; j += L) {                                                       \
            const char *const first = (const char *)(s + j * s0);                                  \
            int64_t ahead = L + LEAD; /* row of REACH to ask for */                                \
            gather_rows(lines[0], PITCHED, first, step, L, m < SIDES ? m * SIZE : REACH);          \
            for (int64_t i = 0, at = 0; i < m; i += SIDES, at = 1 - at) {                          \
                const int64_t now = m - i < SIDES ? m - i : SIDES, left = m - i - now;             \
                const char *from = first + (i + now) * SIZE;                                       \
                copied c = {left < SIDES ? NULL : from, lines[1 - at], step, REACH};               \
                for (int64_t b = 0; b < now; b += B, ahead += ROWS) {                              \
                    const T *line = (const T *)(const void *)lines[at] + b;                        \
                    int64_t col = ahead / L * REACH, row = ahead % L;                              \
                    if (col >= m * SIZE) { /* the rows behind these */                             \
                        col -= m * SIZE;                                                           \
                        row += L;                                                                  \
                    }                                                                              \
                    asked a = {first + row * step + col, REACH / LINE, REACH / LINE,               \
                               step - REACH};                                                      \
                    for (int64_t k = 0; k < L; k += SIDE * V)                                      \
                        for (int64_t h = 0; h < B; h += V)                                         \
                            asking_##width(turned + h * L + k, L, line + h + k * PITCHED / SIZE,   \
                                           PITCHED / SIZE, &a);                                    \
                    put_pieces((char *)(d + (i + b) * ldd + j), ldd *SIZE, (const char *)turned,   \
                               B, &c, past);                                                       \
                    c.from = c.from ? c.from + ROWS * step : NULL;                                 \
                    c.to += ROWS * PITCHED;                                                        \
                }                                                                                  \
                if (left > 0 && left < SIDES)                                                      \
                    gather_rows(lines[1 - at], PITCHED, from, step, L, left *SIZE);                \
            }                                                                                      \
        }                                                                                          \
    }
FAR_SQUARES(uint16_t, 2)
FAR_SQUARES(uint32_t, 4)
FAR_SQUARES(uint64_t, 8)
/* bytes gain little by it, and their kernel is long */
#define far_squares_1(d, ldd, s, s0, m, n, past) past_squares_1(d, ldd, s, s0, m, n)
#define BY_PIECES(width, way, d, ldd, s, s0, m, n)                                                 \
    if ((way) == FAR || wf_amd_zen5())                                                             \
        far_squares_##width(d, ldd, s, s0, m, n, (way) == PAST);                                   \
    else                                                                                           \
        past_squares_##width(d, ldd, s, s0, m, n)
#elif defined(__AVX2__)
/* -- the same by eight rows -- */
/*
 * Sixteen rows at most are read as fast as one where they run on for a page (Zen 3: 64 MiB in 2.4 to 2.8 ms; 32 rows 5), and pieces
 * of 512 bytes take half the time of pairs of lines where those lie multiples of 512 bytes apart (2.9 and 5.6 ms, elsewhere 3.0).
 * Between them lie pages of as many rows as make such a piece, turned, in a cache: eight rows, read from end to end, are a column
 * of them, eight elements wide.
 */
#define BY_EIGHT 1
enum { EIGHT = 8 };

#define EIGHTS(T, width, R)                                                                        \
    /* 32 bytes of each. */                                                                        \
    static inline void eight_##width(T *dst, int64_t ldd, const T *src, int64_t s0)                \
    {                                                                                              \
        enum { PER = sizeof(T) / 2, COLS = EIGHT / PER };                                          \
        const int64_t step = s0 * (int64_t)sizeof(T), out = ldd * (int64_t)sizeof(T);              \
        const char *from = (const char *)src;                                                      \
        char *to = (char *)dst;                                                                    \
        vector r[EIGHT], t[EIGHT];                                                                 \
        UNROLLED for (int k = 0; k < EIGHT; k++)                                                   \
        {                                                                                          \
            r[k] = get(from);                                                                      \
            NEXT_ROW(from, step);                                                                  \
        }                                                                                          \
        R R R UNROLLED for (int lane = 0; lane < 2; lane++)                                        \
        {                                                                                          \
            UNROLLED for (int k = 0; k < COLS; k++)                                                \
            {                                                                                      \
                UNROLLED for (int p = 0; p < PER; p++)                                             \
                {                                                                                  \
                    const vector v = r[k * PER + p];                                               \
                    put128(to + 16 * p,                                                            \
                           lane ? _mm256_extracti128_si256(v, 1) : _mm256_castsi256_si128(v));     \
                }                                                                                  \
                NEXT_ROW(to, out);                                                                 \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    /* m: whole lines; n: whole eights. */                                                         \
    static __attribute__((noinline)) void eights_##width(T *d, int64_t ldd, const T *s,            \
                                                         int64_t s0, int64_t m, int64_t n)         \
    {                                                                                              \
        for (int64_t j = 0; j < n; j += EIGHT)                                                     \
            for (int64_t i = 0; i < m; i += VECTOR / (int64_t)sizeof(T))                           \
                eight_##width(d + i * ldd + j, ldd, s + i + j * s0, s0);                           \
    }                                                                                              \
    static void turn_past_##width(void *dst, int64_t ldd, const void *src, int64_t s0, size_t m,   \
                                  size_t n, void *room)                                            \
    {                                                                                              \
        const int64_t size = sizeof(T), wide = EIGHT * size;                                       \
        const int64_t pitch = (int64_t)m * wide + LINE;                                            \
        const int64_t next = wide < VECTOR ? 2 * pitch : wide > VECTOR ? VECTOR : pitch;           \
        const int64_t behind = wide > VECTOR ? pitch - VECTOR : next;                              \
        const char *from = room;                                                                   \
        char *to = dst;                                                                            \
        for (int64_t j = 0; j < (int64_t)n; j += EIGHT)                                            \
            eights_##width((T *)(void *)((char *)room + j / EIGHT * pitch), EIGHT,                 \
                           (const T *)src + j * s0, s0, (int64_t)m, EIGHT);                        \
        for (size_t i = 0; i < m; i++, from += wide, to += ldd * size) {                           \
            const char *p = from;                                                                  \
            for (int64_t at = 0; at < (int64_t)n * size; at += LINE) {                             \
                put_past(to + at, wide < VECTOR ? lanes_of(p, pitch) : get(p));                    \
                p += next;                                                                         \
                put_past(to + at + VECTOR, wide < VECTOR ? lanes_of(p, pitch) : get(p));           \
                p += behind;                                                                       \
            }                                                                                      \
        }                                                                                          \
    }
#define ROUND_8(bits) ROUND(8, _mm256_unpacklo_epi##bits, _mm256_unpackhi_epi##bits)
EIGHTS(uint16_t, 2, ROUND_8(16))
EIGHTS(uint32_t, 4, ROUND_8(32))
EIGHTS(uint64_t, 8, ROUND_8(64))
/* bytes are too few for a register, and halves always go by eights */
#define eights_1(d, ldd, s, s0, m, n) past_squares_1(d, ldd, s, s0, m, n)
#define past_squares_2(d, ldd, s, s0, m, n) eights_2(d, ldd, s, s0, m, n)
#define BY_PIECES(width, way, d, ldd, s, s0, m, n)                                                 \
    if ((way) == FAR)                                                                              \
        eights_##width(d, ldd, s, s0, m, n);                                                       \
    else                                                                                           \
        past_squares_##width(d, ldd, s, s0, m, n)
#else
enum { PIECE = LINE };
#define BY_PIECES(width, way, d, ldd, s, s0, m, n) squares_##width(d, ldd, s, s0, m, n)
#endif

#if !defined(BY_EIGHT)
#define BY_EIGHT 0
#endif

/* How blocks are transposed: both sides in a cache; stored past the caches; read from memory (or a cache that is far off) and stored
 * to one. */
typedef enum way { NEAR_BY, PAST, FAR } way;

#if defined(__AVX512F__)
/* m rows of n bytes, at most 64, where no square fits. Rows of which there are fewer than a lane holds come together first;
 * the last ones of more overlap others. */
static __attribute__((noinline)) void edge_of_bytes(uint8_t *d, int64_t ldd, const uint8_t *s,
                                                    int64_t s0, int64_t m, int64_t n)
{
    enum { PER = 16 };
    const __mmask64 which = first(n);
    _Alignas(VECTOR) uint8_t few[VECTOR * PER];
    int64_t at[VECTOR], step = s0;
    if (m < PER) {
        for (int64_t j = 0; j < n; j++)
            put128(few + j * PER, _mm_maskz_loadu_epi8((__mmask16)first(m), s + j * s0));
        s = few;
        step = PER;
    }
    for (int64_t j = 0; j < (n > 2 * PER ? VECTOR : 2 * PER); j++)
        at[j] = (j < n ? j : n - 1) * step;
    for (int64_t i = 0; i < m; i += PER) {
        const int64_t row = i + PER <= m || m < PER ? i : m - PER;
        const char *from = (const char *)s + row;
        uint8_t *to = d + row * ldd;
        vector r[PER], t[PER];
        UNROLLED for (int k = 0; k < PER; k++)
        {
            vector v = _mm512_castsi128_si512(lanes128(from + at[k], 0));
            if (n > PER)
                v = _mm512_mask_broadcast_i64x2(v, 0x0C, lanes128(from + at[k + PER], 0));
            if (n > 2 * PER) {
                v = _mm512_mask_broadcast_i64x2(v, 0x30, lanes128(from + at[k + 2 * PER], 0));
                v = _mm512_mask_broadcast_i64x2(v, 0xC0, lanes128(from + at[k + 3 * PER], 0));
            }
            r[k] = v;
        }
        ROUND8 ROUND8 ROUND8 ROUND8 UNROLLED for (int k = 0; k < PER; k++)
        {
            if (k < m)
                put_some(to, which, r[k]);
            to += ldd;
        }
    }
}
/* What is left of m rows of n bytes behind squares of the first mb rows and nb columns. */
static inline bool edges_of_bytes(void *dst, int64_t ldd, const void *src, int64_t s0, int64_t m,
                                  int64_t n, int64_t mb, int64_t nb)
{
    enum { PER = 16 };
    uint8_t *d = dst;
    const uint8_t *s = src;
    const int64_t low = m - mb >= PER || m < PER ? mb : m - PER;
    for (int64_t j = nb; j < n; j += VECTOR)
        edge_of_bytes(d + j, ldd, s + j * s0, s0, m, n - j < VECTOR ? n - j : VECTOR);
    for (int64_t j = 0; j < nb && mb < m; j += VECTOR)
        edge_of_bytes(d + low * ldd + j, ldd, s + low + j * s0, s0, m - low, VECTOR);
    return true;
}
#else
static inline bool edges_of_bytes(void *d, int64_t ldd, const void *s, int64_t s0, int64_t m,
                                  int64_t n, int64_t mb, int64_t nb)
{
    return (void)d, (void)ldd, (void)s, (void)s0, (void)m, (void)n, (void)mb, (void)nb, false;
}
#endif

/* -- pack and unpack -------------------------------------------------------------------------------------- */
/* Bytes between rows of which 8 or more squares have lines in one set. */
enum { CROWDED = 512 };
/* What is turned is in the first cache, or will be: nothing is to be asked for. */
enum { NEAR = 32768 };
enum { NEARLY = 8, STRIP = 8 };
/* Of so many bytes rows that do not share sets are walked by fours, too. */
enum { FOURS_MOST = 3 << 17 };
/* Non-temporal stores want rows that start on a line: half a line would be written twice. */
#define ALIGNED_ROWS(T, dst, ldd) (((uintptr_t)(dst) | (uintptr_t)(ldd) * sizeof(T)) % 64 == 0)

/* A square of a line by a line: its first row and column of dst. */
typedef struct square {
    int64_t i, j, from; /* from: where the diagonal that is walked began */
} square;

/* How the squares of a block are walked. */
typedef enum walk { ALONG, DOWN, DIAGONAL, FOURS } walk;

/* The square after s of m rows and n columns: the next one of the same rows, so that lines and pages of dst fill up, the
 * next one of the same columns, so that src is read from end to end, the next one of a diagonal, or the next one of four that
 * are a square themselves: of pairs of lines the second one has been fetched with the first. */
static inline square after(square s, int64_t m, int64_t n, int64_t side, walk w)
{
    if (w == FOURS && (s.i / side % 2 || s.i + side < m)) { /* not in a last row alone */
        const bool right = s.j / side % 2, low = s.i / side % 2, last = s.j + side == n;
        if (low && last)
            return (square){.i = s.i + side < m ? s.i + side : 0};
        s.i += right || last ? (low ? -side : side) : 0;
        s.j += right && !low ? -side : last ? 0 : side;
        return s;
    }
    if (w == ALONG || w == FOURS) {
        s.j += side;
        if (s.j < n)
            return s;
        return (square){.i = s.i + side < m ? s.i + side : 0};
    }
    if (w == DOWN) {
        s.i += side;
        if (s.i < m)
            return s;
        return (square){.j = s.j + side < n ? s.j + side : 0};
    }
    s.i += side;
    s.j = (s.j > 0 ? s.j : n) - side;
    if (s.i < m)
        return s;
    s.from = s.from + side < n ? s.from + side : 0;
    return (square){.i = 0, .j = s.from, .from = s.from};
}

/* -- rows ------------------------------------------------------------------------------------------------- */
#define FORWARD(T, width)                                                                          \
    static inline void forward_##width(T *d, const T *s, int64_t n)                                \
    {                                                                                              \
        if (n * (int64_t)sizeof(T) >= 16)                                                          \
            wf_move(d, s, n *(int64_t)sizeof(T));                                                  \
        else                                                                                       \
            for (int64_t j = 0; j < n; j++)                                                        \
                d[j] = s[j];                                                                       \
    }
#if defined(SIDE_PAST)
/* What turns round the elements of 16 bytes: element `size` bytes wide. */
static inline __m128i turn_round(int size)
{
    return size == 1   ? _mm_set_epi64x(0x0001020304050607, 0x08090A0B0C0D0E0F)
           : size == 2 ? _mm_set_epi64x(0x0100030205040706, 0x09080B0A0D0C0F0E)
           : size == 4 ? _mm_set_epi64x(0x0302010007060504, 0x0B0A09080F0E0D0C)
                       : _mm_set_epi64x(0x0706050403020100, 0x0F0E0D0C0B0A0908);
}
#endif
/* d[j] = s[2 * j], s[-j] and s[j], n of them; nothing but them and what lies between is read. */
#if defined(__AVX512F__)
#define FOUR(i) i, (i) + 2, (i) + 4, (i) + 6
#define EIGHT(i) FOUR(i), FOUR((i) + 8)
#define SIXTEEN(i) EIGHT(i), EIGHT((i) + 16)
#define FOUR_FROM(i) i, (i) + 1, (i) + 2, (i) + 3
#define SIXTEEN_FROM(i) FOUR_FROM(i), FOUR_FROM((i) + 4), FOUR_FROM((i) + 8), FOUR_FROM((i) + 12)
#define THIRTY_TWO(i) SIXTEEN(i), SIXTEEN((i) + 32)
#define EVENS_1 THIRTY_TWO(0), THIRTY_TWO(64)
#define EVENS_2 THIRTY_TWO(0)
#define EVENS_4 SIXTEEN(0)
#define EVENS_8 EIGHT(0)
enum { LONG_ROW = 1024 }; /* bytes of a row that is written by whole lines */
/* n elements from s on, less than a register of them, in reverse. What is masked lies behind the elements: memory that is
 * not mapped takes long to be left alone, and before them is more often such. */
static inline void reverse_few(void *d, const void *s, int64_t n, int size)
{
    const __mmask64 which = first(n * size);
    const char *from = s;
    if (size == 1) {
        const __m128i turn = turn_round(1);
        for (int i = 0; n >= 16 && i < 2; i++) { /* two pieces that overlap */
            const int64_t at = i == 0 ? 0 : n >= 32 ? n - 32 : n - 16;
            const char *p = from + n - at;
            char *to = (char *)d + at;
            if (n >= 32) {
                const __m256i v = _mm256_shuffle_epi8(_mm256_loadu_si256((const void *)(p - 32)),
                                                      _mm256_broadcastsi128_si256(turn));
                _mm256_storeu_si256((void *)to, _mm256_permute2x128_si256(v, v, 1));
            } else {
                put128(to, _mm_shuffle_epi8(lanes128(p - 16, 0), turn));
            }
        }
        if (n < 16)
            _mm_mask_storeu_epi8(
                d, (__mmask16)which,
                _mm_shuffle_epi8(_mm_maskz_loadu_epi8((__mmask16)which, from),
                                 _mm_add_epi8(turn, _mm_set1_epi8((char)(n - 16)))));
        return;
    }
    typedef int16_t two __attribute__((vector_size(64), may_alias));
    typedef int32_t four __attribute__((vector_size(64), may_alias));
    typedef int64_t eight __attribute__((vector_size(64), may_alias));
    const vector v = get_some(which, s);
    if (size == 2) {
        const two count = {SIXTEEN_FROM(0), SIXTEEN_FROM(16)};
        put_some(d, which, _mm512_permutexvar_epi16((vector)((int16_t)(n - 1) - count), v));
    } else if (size == 4) {
        const four count = {SIXTEEN_FROM(0)};
        put_some(d, which, _mm512_permutexvar_epi32((vector)((int32_t)(n - 1) - count), v));
    } else {
        const eight count = {0, 1, 2, 3, 4, 5, 6, 7};
        put_some(d, which, _mm512_permutexvar_epi64((vector)((n - 1) - count), v));
    }
}
#define ROWS(T, width)                                                                             \
    static inline void every_other_##width(T *d, const T *s, int64_t n)                            \
    {                                                                                              \
        enum { V = VECTOR / sizeof(T), SIZE = sizeof(T) };                                         \
        typedef T row __attribute__((vector_size(VECTOR), may_alias));                             \
        int64_t left = n, bytes;                                                                   \
        if (n <= 0)                                                                                \
            return;                                                                                \
        for (; left > V; left -= V, d += V, s += 2 * V)                                            \
            put(d, (vector)__builtin_shufflevector((row)get(s), (row)get(s + V), EVENS_##width));  \
        bytes = (2 * left - 1) * SIZE;                                                             \
        const row low = (row)get_some(first(bytes), s);                                            \
        const row high = (row)get_some(first(bytes > VECTOR ? bytes - VECTOR : 0), s + V);         \
        put_some(d, first(left *SIZE), (vector)__builtin_shufflevector(low, high, EVENS_##width)); \
    }                                                                                              \
    static inline void reverse_##width(T *d, const T *s, int64_t n)                                \
    {                                                                                              \
        enum { V = VECTOR / sizeof(T), SIZE = sizeof(T) };                                         \
        const __m128i in_lane = turn_round(SIZE);                                                  \
        int64_t left = n;                                                                          \
        for (; left >= V; left -= V, d += V, s -= V)                                               \
            put(d, reversed(get(s - V + 1), in_lane, SIZE));                                       \
        if (left > 0)                                                                              \
            reverse_few(d, s - left + 1, left, SIZE);                                              \
    }                                                                                              \
    static inline void forward_##width(T *d, const T *s, int64_t n)                                \
    {                                                                                              \
        int64_t bytes = n * (int64_t)sizeof(T);                                                    \
        char *to = (char *)d;                                                                      \
        const char *from = (const char *)s;                                                        \
        if (bytes >= LONG_ROW) {                                                                   \
            wf_move(d, s, bytes);                                                                  \
            return;                                                                                \
        }                                                                                          \
        if (bytes < VECTOR) {                                                                      \
            put_some(to, first(bytes), get_some(first(bytes), from));                              \
            return;                                                                                \
        }                                                                                          \
        for (int64_t at = 0; at < bytes - VECTOR; at += VECTOR)                                    \
            put(to + at, get(from + at));                                                          \
        put(to + bytes - VECTOR, get(from + bytes - VECTOR));                                      \
    }
#elif defined(SIDE_PAST)
/* Elements of two registers, every other one, in each lane by itself. */
#define EVENS(bits, lanes)                                                                         \
    static inline __m##bits##i evens_1_##bits(__m##bits##i x, __m##bits##i y)                      \
    {                                                                                              \
        const __m##bits##i low = lanes##_set1_epi16(0xFF);                                         \
        return lanes##_packus_epi16(x & low, y & low);                                             \
    }                                                                                              \
    static inline __m##bits##i evens_2_##bits(__m##bits##i x, __m##bits##i y)                      \
    {                                                                                              \
        const __m##bits##i low = lanes##_set1_epi32(0xFFFF);                                       \
        return lanes##_packus_epi32(x & low, y & low);                                             \
    }                                                                                              \
    static inline __m##bits##i evens_4_##bits(__m##bits##i x, __m##bits##i y)                      \
    {                                                                                              \
        return (__m##bits##i)lanes##_shuffle_ps((__m##bits)x, (__m##bits)y, 0x88);                 \
    }                                                                                              \
    static inline __m##bits##i evens_8_##bits(__m##bits##i x, __m##bits##i y)                      \
    {                                                                                              \
        return lanes##_unpacklo_epi64(x, y);                                                       \
    }
EVENS(128, _mm)
EVENS(256, _mm256)
#undef EVENS
/* Lanes are put side by side by loads: what goes from one to the other would be a shuffle more, of those that take longest. Rows
 * in reverse are read from end to end, which hardware foresees better than backwards. Last pieces overlap others; they are no steps
 * of the loops, each of which would then wait for the one before to know where it is. */
#define ROWS(T, width)                                                                             \
    static inline void evens_at_##width(T *d, const T *s)                                          \
    {                                                                                              \
        const char *p = (const char *)s;                                                           \
        put(d, evens_##width##_256(lanes_of(p, 32), lanes_of(p + 16, 32)));                        \
    }                                                                                              \
    static inline void every_other_##width(T *d, const T *s, int64_t n)                            \
    {                                                                                              \
        enum { V = VECTOR / sizeof(T), W = 16 / sizeof(T) };                                       \
        int64_t j = 0;                                                                             \
        for (; j + V < n; j += V)                                                                  \
            evens_at_##width(d + j, s + 2 * j);                                                    \
        if (n > V) {                                                                               \
            j = n - 1;                                                                             \
            evens_at_##width(d + j - V, s + 2 * (j - V));                                          \
        }                                                                                          \
        for (; n > W && j < n - 1; j += W) {                                                       \
            j = j + W < n ? j : n - 1 - W;                                                         \
            const char *p = (const char *)(s + 2 * j);                                             \
            put128(d + j, evens_##width##_128(lanes128(p, 0), lanes128(p + 16, 0)));               \
        }                                                                                          \
        for (; j < n; j++)                                                                         \
            d[j] = s[2 * j];                                                                       \
    }                                                                                              \
    static inline void reverse_at_##width(T *d, const T *s, __m128i in_lane)                       \
    {                                                                                              \
        const char *p = (const char *)(s + 1) - 16;                                                \
        put(d, _mm256_shuffle_epi8(lanes_of(p, -16), _mm256_broadcastsi128_si256(in_lane)));       \
    }                                                                                              \
    static inline void reverse_##width(T *d, const T *s, int64_t n)                                \
    {                                                                                              \
        enum { V = VECTOR / sizeof(T), W = 16 / sizeof(T) };                                       \
        const __m128i in_lane = turn_round(sizeof(T));                                             \
        int64_t j = n;                                                                             \
        for (; j >= V; j -= V)                                                                     \
            reverse_at_##width(d + j - V, s - j + V, in_lane);                                     \
        if (n >= V) {                                                                              \
            j = 0;                                                                                 \
            reverse_at_##width(d, s, in_lane);                                                     \
        }                                                                                          \
        for (; n >= W && j > 0;) {                                                                 \
            j = j > W ? j - W : 0;                                                                 \
            const __m128i v = lanes128((const char *)(s - j - W + 1), 0);                          \
            put128(d + j, _mm_shuffle_epi8(v, in_lane));                                           \
        }                                                                                          \
        for (; j > 0; j--)                                                                         \
            d[j - 1] = s[1 - j];                                                                   \
    }                                                                                              \
    FORWARD(T, width)
#else
#define ROWS(T, width)                                                                             \
    static inline void every_other_##width(T *d, const T *s, int64_t n)                            \
    {                                                                                              \
        for (int64_t j = 0; j < n; j++)                                                            \
            d[j] = s[2 * j];                                                                       \
    }                                                                                              \
    static inline void reverse_##width(T *d, const T *s, int64_t n)                                \
    {                                                                                              \
        for (int64_t j = 0; j < n; j++)                                                            \
            d[j] = s[-j];                                                                          \
    }                                                                                              \
    FORWARD(T, width)
#endif
ROWS(uint8_t, 1)
ROWS(uint16_t, 2)
ROWS(uint32_t, 4)
ROWS(uint64_t, 8)

/* Lines of `count` rows, together: of rows so many bytes apart all are in one set of the first cache, of rows so many elements apart,
 * of any size, 16 or more of a square's lines, which are read by a quarter at a time and would drive each other out: sets have
 * room for 8 or 12. */
enum { ONE_SET = 4096, FEW_SETS = 1024 };
static __attribute__((noinline)) void gather_lines(char *to, const void *from, int64_t step,
                                                   int64_t count)
{
    const char *s = from;
    for (int64_t k = 0; k < count; k++) {
        UNROLLED for (int i = 0; i < LINE; i += VECTOR)
        {
            put(to + i, get(s + i));
        }
        to += LINE;
        s += step;
    }
}

/* Of the next square the lines of dst are fetched: stores wait longer for their lines than loads do. Rows that share
 * sets of the first cache, as those a power of two apart do, are turned along diagonals: all squares of one row or
 * column of squares would need the same few sets. Other rows are read from end to end, unless some start within lines of
 * dst: those are best filled at once. AMD's hardware goes on fetching what lies beyond the last row of a diagonal, for
 * writing: of a block less high than wide, which is a thread's share of a transpose, those are another thread's. (Such blocks, the
 * bands of a sum with a transposed operand among them, are as fast or faster there without asking for lines.) A Zen 5 takes squares
 * of halves of lines, which need no copies of lines a page apart, and instead of a diagonal fours of them; only those of two bytes
 * gain by requests, and not where they fill the second cache. */
#define PACK(T, width)                                                                              \
    static inline void square_##width(T *d, int64_t ldd, const T *s, int64_t s0, int64_t ahead)     \
    {                                                                                               \
        enum { B = VECTOR / sizeof(T), L = LINE / sizeof(T) };                                      \
        for (int64_t i = 0; i < L; i += B)                                                          \
            for (int64_t j = 0; j < L; j += SIDE * B)                                               \
                block_##width(d + i * ldd + j, ldd, s + i + j * s0, s0, j == 0 ? ahead : 0);        \
    }                                                                                               \
    /* A copy for what is rare. */                                                                  \
    static __attribute__((noinline)) void alone_##width(T *d, int64_t ldd, const T *s, int64_t s0)  \
    {                                                                                               \
        square_##width(d, ldd, s, s0, 0);                                                           \
    }                                                                                               \
    static inline void squares_##width(T *d, int64_t ldd, const T *s, int64_t s0, int64_t m,        \
                                       int64_t n)                                                   \
    {                                                                                               \
        enum { L = LINE / sizeof(T), SIZE = sizeof(T) };                                            \
        const uintptr_t apart = (uintptr_t)((ldd | s0) * SIZE);                                     \
        const bool whole = HAS_WHOLE && SIZE > 1 && wf_amd_zen5(),                                  \
                   one_set = s0 * SIZE % ONE_SET == 0;                                              \
        const bool fours = whole && SIZE < 8 && !one_set &&                                         \
                           (m >= n || wf_lines_stay(ldd * SIZE, 2 * L)) &&                          \
                           (apart % CROWDED == 0 || m * n * SIZE <= FOURS_MOST);                    \
        const bool share = (m < n && wf_amd() && !fours) || m * n * SIZE <= NEAR;                   \
        const walk w = ((uintptr_t)d | apart) % LINE || share ? ALONG                               \
                       : fours                                ? FOURS                               \
                       : apart % CROWDED                      ? DOWN                                \
                                                              : DIAGONAL;                                                \
        const bool crowded = s0 % FEW_SETS == 0 && !whole;                                          \
        const bool asks = SIZE == 2 && w == FOURS && m * n * SIZE <= FOURS_MOST;                    \
        _Alignas(64) char lines[L * LINE];                                                          \
        square at = {0}, next;                                                                      \
        for (int64_t left = m / L * (n / L); left > 0; left--, at = next) {                         \
            next = after(at, m, n, L, w);                                                           \
            const T *from = s + at.i + at.j * s0;                                                   \
            if (crowded) {                                                                          \
                gather_lines(lines, from, s0 *SIZE, L);                                             \
                from = (const T *)(const void *)lines;                                              \
            }                                                                                       \
            const int64_t to_next = ((next.i - at.i) * ldd + next.j - at.j) * SIZE;                 \
            const int64_t from_next = (next.i - at.i + (next.j - at.j) * s0) * SIZE;                \
            T *const to = d + at.i * ldd + at.j;                                                    \
            if (whole && asks)                                                                      \
                whole_asking_##width(to, ldd, from, s0, to_next, from_next);                        \
            else if (whole)                                                                         \
                whole_##width(to, ldd, from, s0, 0, 0);                                             \
            else                                                                                    \
                square_##width(to, ldd, from, crowded ? L : s0, share ? 0 : to_next);               \
        }                                                                                           \
    }                                                                                               \
    /* The same by way of strips of a few lines, rows of which are then written from end to end. */ \
    static inline void strips_##width(T *d, int64_t ldd, const T *s, int64_t s0, int64_t m,         \
                                      int64_t n)                                                    \
    {                                                                                               \
        enum { L = LINE / sizeof(T), MOST = STRIP * L, PITCH_OF = MOST + L };                       \
        _Alignas(64) T strip[L * PITCH_OF];                                                         \
        for (int64_t j = 0; j < n; j += MOST) {                                                     \
            const int64_t cols = n - j < MOST ? n - j : MOST;                                       \
            for (int64_t i = 0; i < m; i += L) {                                                    \
                for (int64_t k = 0; k < cols; k += L)                                               \
                    alone_##width(strip + k, PITCH_OF, s + i + (j + k) * s0, s0);                   \
                for (int64_t k = 0; k < L; k++)                                                     \
                    for (int64_t at = 0; at < cols; at += VECTOR / (int64_t)sizeof(T))              \
                        put(d + (i + k) * ldd + j + at, get(strip + k * PITCH_OF + at));            \
            }                                                                                       \
        }                                                                                           \
    }                                                                                               \
    __attribute__((noinline)) static void transpose_##width(                                        \
        T *d, int64_t ldd, const T *s, int64_t s0, size_t m, size_t n, way to)                      \
    {                                                                                               \
        enum { S = 16 / sizeof(T), L = LINE / sizeof(T) };                                          \
        const int64_t side = to == NEAR_BY ? L : PIECE / (int64_t)sizeof(T);                        \
        const int64_t rows = (int64_t)m, cols = (int64_t)n;                                         \
        const int64_t mb = rows / side * side, nb = cols / side * side;                             \
        const uint64_t beyond = (uint64_t)ldd * sizeof(T) % CROWDED;                                \
        const bool strips = beyond != 0 && beyond <= NEARLY;                                        \
        if (to == NEAR_BY)                                                                          \
            (strips ? strips_##width : squares_##width)(d, ldd, s, s0, mb, nb);                     \
        else                                                                                        \
            BY_PIECES(width, to, d, ldd, s, s0, mb, nb);                                            \
        if (sizeof(T) == 1 && edges_of_bytes(d, ldd, s, s0, rows, cols, mb, nb)) {                  \
        } else if (rows >= L && cols >= L) { /* the edges; the last squares overlap others */       \
            for (int64_t i = 0; i < rows; i += L) {                                                 \
                const int64_t at = i + L <= rows ? i : rows - L;                                    \
                for (int64_t j = i + L <= mb ? nb : 0; j < cols; j += L)                            \
                    alone_##width(d + at * ldd + (j + L <= cols ? j : cols - L), ldd,               \
                                  s + at + (j + L <= cols ? j : cols - L) * s0, s0);                \
            }                                                                                       \
        } else if (rows >= S && cols >= S) {                                                        \
            for (int64_t i = 0; i < rows; i += S) {                                                 \
                const int64_t at = i + S <= rows ? i : rows - S;                                    \
                for (int64_t j = 0; j < cols; j += S)                                               \
                    little_##width(d + at * ldd + (j + S <= cols ? j : cols - S), ldd,              \
                                   s + at + (j + S <= cols ? j : cols - S) * s0, s0, 0);            \
            }                                                                                       \
        } else {                                                                                    \
            for (int64_t i = 0; i < rows; i++)                                                      \
                for (int64_t j = 0; j < cols; j++)                                                  \
                    d[i * ldd + j] = s[i + j * s0];                                                 \
        }                                                                                           \
    }                                                                                               \
    /* m rows of n elements, `step` apart in s. */                                                  \
    __attribute__((noinline)) static void rows_##width(                                             \
        T *d, int64_t ldd, const T *s, int64_t apart, int64_t step, int64_t m, int64_t n)           \
    {                                                                                               \
        if (step == 1)                                                                              \
            for (; m > 0; m--, d += ldd, s += apart)                                                \
                forward_##width(d, s, n);                                                           \
        else if (step == 2)                                                                         \
            for (; m > 0; m--, d += ldd, s += apart)                                                \
                every_other_##width(d, s, n);                                                       \
        else if (step == -1)                                                                        \
            for (; m > 0; m--, d += ldd, s += apart)                                                \
                reverse_##width(d, s, n);                                                           \
        else                                                                                        \
            for (; m > 0; m--, d += ldd, s += apart)                                                \
                for (int64_t j = 0; j < n; j++)                                                     \
                    d[j] = s[j * step];                                                             \
    }                                                                                               \
    /* A transpose of elements that are not neighbours either way: pieces of rows of src first. */  \
    __attribute__((noinline)) static void panels_##width(                                           \
        T *d, int64_t ldd, const T *s, int64_t s1, int64_t s0, int64_t m, int64_t n)                \
    {                                                                                               \
        enum { ROWS_OF = 64, COLS_OF = 256 / sizeof(T) };                                           \
        _Alignas(64) T panel[ROWS_OF * COLS_OF];                                                    \
        for (int64_t j = 0; j < n; j += COLS_OF)                                                    \
            for (int64_t i = 0; i < m; i += ROWS_OF) {                                              \
                const int64_t cols = n - j < COLS_OF ? n - j : COLS_OF;                             \
                const int64_t rows = m - i < ROWS_OF ? m - i : ROWS_OF;                             \
                rows_##width(panel, ROWS_OF, s + i * s1 + j * s0, s0, s1, cols, rows);              \
                transpose_##width(d + i * ldd + j, ldd, panel, ROWS_OF, (size_t)rows,               \
                                  (size_t)cols, NEAR_BY);                                           \
            }                                                                                       \
    }                                                                                               \
    static void pack_##width(void *dst, int64_t ldd, const void *src, int64_t s1, int64_t s0,       \
                             size_t m, size_t n)                                                    \
    {                                                                                               \
        enum { FEW = 4 };                                                                           \
        T *d = dst;                                                                                 \
        const T *s = src;                                                                           \
        if (s1 == 1 && s0 != 1) {                                                                   \
            transpose_##width(d, ldd, s, s0, m, n, NEAR_BY);                                        \
        } else if (s0 == 0) {                                                                       \
            for (size_t i = 0; i < m; i++, d += ldd, s += s1) {                                     \
                const T v = n ? *s : 0;                                                             \
                for (size_t j = 0; j < n; j++)                                                      \
                    d[j] = v;                                                                       \
            }                                                                                       \
        } else if (m >= FEW && n >= FEW && s1 != 0 && wf_magnitude(s1) < wf_magnitude(s0)) {        \
            panels_##width(d, ldd, s, s1, s0, (int64_t)m, (int64_t)n);                              \
        } else {                                                                                    \
            rows_##width(d, ldd, s, s1, s0, (int64_t)m, (int64_t)n);                                \
        }                                                                                           \
    }                                                                                               \
    static void pack_nt_##width(void *dst, int64_t ldd, const void *src, int64_t s1, int64_t s0,    \
                                size_t m, size_t n)                                                 \
    {                                                                                               \
        if (s1 == 1 && s0 != 1 && ALIGNED_ROWS(T, dst, ldd) && (sizeof(T) != 2 || !BY_EIGHT))       \
            transpose_##width(dst, ldd, src, s0, m, n, PAST);                                       \
        else if (s0 == 1)                                                                           \
            for (size_t i = 0; i < m; i++)                                                          \
                stream((T *)dst + (int64_t)i * ldd, (const T *)src + (int64_t)i * s1,               \
                       n * sizeof(T));                                                              \
        else                                                                                        \
            pack_##width(dst, ldd, src, s1, s0, m, n);                                              \
    }                                                                                               \
    static void pack_far_##width(void *dst, int64_t ldd, const void *src, int64_t s1, int64_t s0,   \
                                 size_t m, size_t n)                                                \
    {                                                                                               \
        if (s1 == 1 && s0 != 1 && sizeof(T) > 1 && (BY_EIGHT || wf_amd_zen5()))                     \
            transpose_##width(dst, ldd, src, s0, m, n, FAR);                                        \
        else                                                                                        \
            pack_##width(dst, ldd, src, s1, s0, m, n);                                              \
    }                                                                                               \
    static void unpack_##width(void *dst, int64_t s1, int64_t s0, const void *src, size_t m,        \
                               size_t n)                                                            \
    {                                                                                               \
        T *d = dst;                                                                                 \
        const T *s = src;                                                                           \
        if (s0 == 1)                                                                                \
            rows_##width(d, s1, s, (int64_t)n, 1, (int64_t)m, (int64_t)n);                          \
        else                                                                                        \
            for (size_t i = 0; i < m; i++, d += s1, s += n)                                         \
                for (size_t j = 0; j < n; j++)                                                      \
                    d[(int64_t)j * s0] = s[j];                                                      \
    }

static void stream(void *dst, const void *src, size_t bytes)
{
    char *d = dst;
    const char *s = src;
    size_t head = (64 - (uintptr_t)d % 64) % 64;
    if (head > bytes)
        head = bytes;
    if (head)
        memcpy(d, s, head);
    size_t i = head;
    for (; i + 64 <= bytes; i += 64) {
#if defined(__AVX512F__)
        _mm512_stream_si512((void *)(d + i), _mm512_loadu_si512((const void *)(s + i)));
#elif defined(__AVX2__)
        _mm256_stream_si256((void *)(d + i), _mm256_loadu_si256((const void *)(s + i)));
        _mm256_stream_si256((void *)(d + i + 32), _mm256_loadu_si256((const void *)(s + i + 32)));
#else
        for (int k = 0; k < 64; k += 16)
            _mm_stream_si128((void *)(d + i + k), _mm_loadu_si128((const void *)(s + i + k)));
#endif
    }
    if (i < bytes)
        memcpy(d + i, s + i, bytes - i);
}
static void fence(void)
{
    _mm_sfence();
}

/* Of index + extent, or of what lies between that and 2 extent, the highest bit is set where an index is outside. */
static unsigned range(const int64_t *index, size_t n, int64_t extent)
{
    const uint64_t e = (uint64_t)extent;
    uint64_t sign = 0, bits = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t at = (uint64_t)index[i], up = at + e;
        sign |= at;
        bits |= up | (2 * e - 1 - up);
    }
    return (sign >> 63 ? WF_FROM_END : 0u) | (bits >> 63 ? WF_OUTSIDE : 0u);
}

static bool finite(const uint16_t *bf16, size_t n)
{
    int16_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const int16_t size = (int16_t)(bf16[i] & 0x7FFF);
        most = size > most ? size : most;
    }
    return most < 0x7F80;
}

PACK(uint8_t, 1)
PACK(uint16_t, 2)
PACK(uint32_t, 4)
PACK(uint64_t, 8)

static const wf_pack_fn packs[WF_NWIDTH] = {pack_1, pack_2, pack_4, pack_8};
static const wf_pack_fn packs_nt[WF_NWIDTH] = {pack_nt_1, pack_nt_2, pack_nt_4, pack_nt_8};
static const wf_pack_fn packs_far[WF_NWIDTH] = {pack_far_1, pack_far_2, pack_far_4, pack_far_8};
static const wf_unpack_fn unpacks[WF_NWIDTH] = {unpack_1, unpack_2, unpack_4, unpack_8};

/* -- the table ----------------------------------------------------------------------------------------------- */
extern const wf_map_fn WF_SYM(wf_map_u8)[], WF_SYM(wf_map_i8)[], WF_SYM(wf_map_i16)[],
    WF_SYM(wf_map_i32)[], WF_SYM(wf_map_i64)[], WF_SYM(wf_map_f32)[], WF_SYM(wf_map_f64)[];
extern const bool WF_SYM(wf_map_past)[];
void WF_SYM(wf_depthwise_sums)(const wf_depthwise *d);
extern wf_map_fn WF_SYM(wf_map_half)(wf_op op, bool bf16);
extern const wf_map_fn WF_SYM(wf_vjp_f32)[][WF_VJP_MAX], WF_SYM(wf_vjp_f64)[][WF_VJP_MAX];
extern const wf_cast_fn WF_SYM(wf_cast)[][WF_NDTYPE], WF_SYM(wf_cast_past)[][WF_NDTYPE];

const wf_kernels WF_SYM(wf_kernels) = {
    .map = {[WF_CT_U8] = WF_SYM(wf_map_u8),
            [WF_CT_I8] = WF_SYM(wf_map_i8),
            [WF_CT_I16] = WF_SYM(wf_map_i16),
            [WF_CT_I32] = WF_SYM(wf_map_i32),
            [WF_CT_I64] = WF_SYM(wf_map_i64),
            [WF_CT_F32] = WF_SYM(wf_map_f32),
            [WF_CT_F64] = WF_SYM(wf_map_f64)},
    .past = WF_SYM(wf_map_past),
    .half = WF_SYM(wf_map_half),
    .vjp = {WF_SYM(wf_vjp_f32), WF_SYM(wf_vjp_f64)},
    .cast = WF_SYM(wf_cast),
    .cast_past = WF_SYM(wf_cast_past),
    .pack = packs,
    .pack_nt = packs_nt,
    .pack_far = packs_far,
#if BY_EIGHT
    .turn_past = {NULL, turn_past_2, turn_past_4, turn_past_8},
#endif
    .unpack = unpacks,
    .stream = stream,
    .fence = fence,
    .range = range,
    .finite = finite,
    .depthwise = WF_SYM(wf_depthwise_sums),
};
