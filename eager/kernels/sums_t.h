/*
 * eager/kernels/sums_t.h -- template: canonical sums of values as they lie in memory.
 *
 * The includer defines T (type of the sums), TSFX (its registers), ESIZE (its bytes), S (type in memory),
 * SFX (of the functions), GET(p) (a register of values of type S at p, as T), ONE(v) (a value as T) and
 * NOTHING (-0 in type S), and undefines all but T, TSFX and ESIZE. Instead of GET it may define EVEN(p) and ODD(p): of
 * two registers of values the ones at even and at odd places, which for bf16 are a shift and a mask, no shuffle.
 * They are added as they are and put in order at the end; FIRSTS(p) and LASTS(p), if defined, are the two in order. ONE_BY_ONE: less code, for what is always large.
 *
 * Invariant: the order is that of reduce_canon.h; a missing element is -0, which changes no bits.
 */
#define FN(name) WF_JOIN(name, SFX)
#define V WF_JOIN(wf_vec, TSFX)
#define VMEM WF_JOIN(wf_mem, TSFX)
#define VN (WF_VBYTES / ESIZE)
#define NA (WF_LANES / VN)
#define PUT(p, v) (*(VMEM *)(void *)(p) = (VMEM)(v))

/* Register k of those at p, an even number: in order, or evens and odds of two. */
#if defined(GET)
#define ALONE true /* a register of values is one of sums */
#define VALUES(p, k) GET((p) + (k)*VN)
#define IN_ORDER(v, n)
#define IN_PAIRS(v, n)
#else
#define ALONE false
#define VALUES(p, k) ((k) % 2 ? ODD((p) + ((k)-1) * VN) : EVEN((p) + (k)*VN))
#if VN == 16
#define LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define EVENS 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODDS 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#elif VN == 8
#define LOW 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH 4, 12, 5, 13, 6, 14, 7, 15
#define EVENS 0, 2, 4, 6, 8, 10, 12, 14
#define ODDS 1, 3, 5, 7, 9, 11, 13, 15
#else
#define LOW 0, 4, 1, 5
#define HIGH 2, 6, 3, 7
#define EVENS 0, 2, 4, 6
#define ODDS 1, 3, 5, 7
#endif
#define EACH_PAIR(v, n, first, second)                                                             \
    WF_UNROLL for (int k = 0; k < (n); k += 2)                                                     \
    {                                                                                              \
        const V x0 = (v)[k], x1 = (v)[k + 1];                                                      \
        (v)[k] = __builtin_shufflevector(x0, x1, first);                                           \
        (v)[k + 1] = __builtin_shufflevector(x0, x1, second);                                      \
    }
#define IN_ORDER(v, n) EACH_PAIR(v, n, WF_LIST(LOW), WF_LIST(HIGH))
#define IN_PAIRS(v, n) EACH_PAIR(v, n, WF_LIST(EVENS), WF_LIST(ODDS))
#endif

/* The same in order, where that takes no more instructions. */
#if defined(FIRSTS)
#define PLAIN(p, k) ((k) % 2 ? LASTS((p) + ((k)-1) * VN) : FIRSTS((p) + (k)*VN))
#define PLAIN_IN_ORDER(v, n)
#define PLAIN_IN_PAIRS(v, n)
#else
#define PLAIN(p, k) VALUES(p, k)
#define PLAIN_IN_ORDER(v, n) IN_ORDER(v, n)
#define PLAIN_IN_PAIRS(v, n) IN_PAIRS(v, n)
#endif

/* Rows of halves are too short for hardware to fetch ahead of them: memory is asked for the n values at p. */
#define EACH_LINE(n) for (int k = 0; k < (n); k += 64 / (int)sizeof(S))
#define FETCH(p, n)                                                                                \
    if (sizeof(S) == 2) {                                                                          \
        EACH_LINE(n) __builtin_prefetch((p) + k);                                                  \
    }

/* -- along memory ---------------------------------------------------------------------------------------- */
/* Blocks summed at once: what registers there are for their lanes. */
#if defined(__AVX512F__)
#define AT_ONCE (NA <= 4 ? 4 : 2)
#else
#define AT_ONCE 1
#endif

/* The lanes of one register to its first. */
#if VN == 16
#define FOLD(a) WF_FOLD_16(a, WF_PLUS);
#elif VN == 8
#define FOLD(a) WF_FOLD_8(a, WF_PLUS);
#elif VN == 4
#define FOLD(a) WF_FOLD_4(a, WF_PLUS);
#else
#define FOLD(a) WF_FOLD_2(a, WF_PLUS);
#endif

/* Values [i, n) of a block, fewer than 64, as 64 lanes. */
#if defined(__AVX512F__)
/* Whole registers are stored, since whole registers are loaded: others would have to wait for each other. */
WF_INLINE void FN(pad)(S *few, const S *x, int64_t i, int64_t n)
{
    enum { PER = 64 / sizeof(S) };
    const uint64_t left = ~(uint64_t)0 >> (WF_LANES - (n - i));
    WF_UNROLL for (int k = 0; k < WF_LANES; k += PER)
    {
        const S *from = x + i + k;
        const uint64_t m = left >> k;
        __m512i v;
        if (sizeof(S) == 2) {
            v = _mm512_mask_loadu_epi16(_mm512_set1_epi16(INT16_MIN), (__mmask32)m, from);
        } else if (sizeof(S) == 4) {
            v = _mm512_mask_loadu_epi32(_mm512_set1_epi32(INT32_MIN), (__mmask16)m, from);
        } else {
            v = _mm512_mask_loadu_epi64(_mm512_set1_epi64(INT64_MIN), (__mmask8)m, from);
        }
        _mm512_storeu_si512(few + k, v);
    }
}
#elif defined(__AVX2__)
/* As above; of halves, which no load leaves out one by one, pairs and the last one. (Masks of wf_first, from memory: less text, and
 * up to a quarter slower.) */
static __attribute__((noinline)) void FN(pad)(S *few, const S *x, int64_t i, int64_t n)
{
    enum { PER = 32 / sizeof(S) };
    WF_UNROLL for (int k = 0; k < WF_LANES; k += PER)
    {
        const void *from = x + i + k;
        const int left = (int)(n - i) - k;
        __m256i v;
        if (sizeof(S) == 2) {
            const __m256i place =
                _mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            const __m256i pairs = _mm256_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15);
            v = _mm256_maskload_epi32(from, _mm256_cmpgt_epi32(_mm256_set1_epi32(left), pairs));
            if (left > 0 && left < PER && left % 2) {
                const __m256i last = _mm256_set1_epi16((short)x[n - 1]);
                v = _mm256_blendv_epi8(
                    v, last, _mm256_cmpeq_epi16(_mm256_set1_epi16((short)(left - 1)), place));
            }
            v = _mm256_blendv_epi8(_mm256_set1_epi16(INT16_MIN), v,
                                   _mm256_cmpgt_epi16(_mm256_set1_epi16((short)left), place));
        } else if (sizeof(S) == 4) {
            const __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            const __m256i m = _mm256_cmpgt_epi32(_mm256_set1_epi32(left), place);
            v = _mm256_blendv_epi8(_mm256_set1_epi32(INT32_MIN), _mm256_maskload_epi32(from, m), m);
        } else {
            const __m256i place = _mm256_setr_epi64x(0, 1, 2, 3);
            const __m256i m = _mm256_cmpgt_epi64(_mm256_set1_epi64x(left), place);
            v = _mm256_blendv_epi8(_mm256_set1_epi64x(INT64_MIN), _mm256_maskload_epi64(from, m),
                                   m);
        }
        _mm256_storeu_si256((void *)(few + k), v);
    }
}
#else
static __attribute__((noinline)) void FN(pad)(S *few, const S *x, int64_t i, int64_t n)
{
    memcpy(few, x + i, (size_t)(n - i) * sizeof(S));
    for (int64_t j = n - i; j < WF_LANES; j++) {
        few[j] = NOTHING;
    }
}
#endif

/* `count` blocks of n values, 0 < n <= 4096, x + stride and so on: lanes[r] = the 64 lanes of block r, halved until
 * they fill one register. One loop for all: its end, which a processor foresees badly, comes once. fetch: ask for rows
 * that come later, or, ahead not 0, for what lies that many bytes behind. */
WF_INLINE void FN(lanes)(V *lanes, const S *x, int64_t n, int64_t stride, const int count,
                         const bool fetch, int64_t ahead)
{
    V a[AT_ONCE][NA];
    S few[WF_LANES];
    const int64_t whole = n / WF_LANES * WF_LANES;
    WF_UNROLL for (int r = 0; r < count; r++)
    {
        const S *first = x + r * stride;
        if (whole == 0) {
            FN(pad)(few, first, 0, n);
            first = few;
        }
        WF_UNROLL for (int k = 0; k < NA; k++)
        {
            a[r][k] = VALUES(first, k);
        }
    }
    for (int64_t i = WF_LANES; i < whole; i += WF_LANES) {
        WF_UNROLL for (int r = 0; r < count; r++)
        {
            WF_UNROLL for (int k = 0; k < NA; k++)
            {
                a[r][k] = a[r][k] + VALUES(x + r * stride + i, k);
            }
            if (ahead) {
                FETCH(x + i + ahead / (int64_t)sizeof(S), WF_LANES)
            } else if (fetch) {
                FETCH(x + (r + 4) * stride + i, WF_LANES)
            }
        }
    }
    WF_UNROLL for (int r = 0; r < count; r++)
    {
        if (whole < n && whole > 0) {
            FN(pad)(few, x + r * stride, whole, n);
            WF_UNROLL for (int k = 0; k < NA; k++)
            {
                a[r][k] = a[r][k] + VALUES(few, k);
            }
        }
        IN_ORDER(a[r], NA)
        WF_UNROLL for (int h = NA / 2; h >= 1; h /= 2)
        {
            WF_UNROLL for (int k = 0; k < h; k++)
            {
                a[r][k] = a[r][k] + a[r][k + h];
            }
        }
        lanes[r] = a[r][0];
    }
}

/* out[i] = the sum of block x[i * stride .. + n). ahead: see kernels/reduce.h. */
static void FN(span)(void *outv, const void *xv, int64_t n, int64_t stride, int64_t count,
                     __attribute__((unused)) int64_t ahead)
{
    T *out = outv;
    const S *x = xv;
    int64_t i = 0;
#if VN >= 8 && !defined(ONE_BY_ONE)
    /* AMD's hardware fetches ahead of one block after the other, which requests would only disturb, and much less of
     * four side by side. Those that are asked for ahead are folded one by one, below. */
    const bool alone = AT_ONCE > 1 && wf_amd();
    for (; i + 4 <= count && ahead == 0; i += 4, x += 4 * stride) {
        V v[4];
        for (int r = 0; alone && r < 4; r++) {
            FN(lanes)(v + r, x + r * stride, n, stride, 1, false, 0);
        }
        for (int r = 0; !alone && r < 4; r += AT_ONCE) {
            FN(lanes)(v + r, x + r * stride, n, stride, AT_ONCE, true, 0);
        }
        const V sums = WF_JOIN(wf_fold4, TSFX)(v[0], v[1], v[2], v[3]);
        for (int k = 0; k < 4; k++) {
            out[i + k] = (T)sums[k * (VN / 4)];
        }
    }
#endif
    for (; i < count; i++, x += stride) {
        V a;
        FN(lanes)(&a, x, n, 0, 1, false, sizeof(S) == 2 ? ahead : 0);
        FOLD(a)
        out[i] = (T)a[0];
    }
}

#if defined(PIECES)
/* See kernels/reduce.h. Where a row ends the 64 lanes are the end of it and what comes after it; all others are read as they
 * lie. */
static void FN(pieces)(void *out, const void *x, int64_t c, int64_t inner, int64_t stride,
                       int64_t n)
{
    enum { SIZE = sizeof(S), LANES = WF_LANES * SIZE };
    int64_t size = SIZE;
#if !defined(__AVX512F__)
    __asm__("" : "+r"(size)); /* no copy of the function for each */
#endif
    pieces p = {x, c * SIZE, inner * SIZE, stride * SIZE};
    S few[WF_LANES];
    V a[NA];
    WF_UNROLL for (int k = 0; k < NA; k++)
    {
        a[k] = -(V){0};
    }
    for (int64_t left = n * SIZE, all; left > 0; left -= all) {
        const int64_t row = p.inner - p.c < left ? p.inner - p.c : left;
        const char *from = (const char *)few;
        if (row < LANES) {
            all = bridge(few, &p, left, size);
        } else {
            from = p.x + p.c;
            all = row / LANES * LANES;
            go_on(&p, all);
        }
        for (const char *const end = from + all; from < end; from += LANES) {
            WF_UNROLL for (int k = 0; k < NA; k++)
            {
                a[k] = a[k] + VALUES((const S *)(const void *)from, k);
            }
        }
    }
    /* Those lanes are a block of as many values: its end is that of spans. */
    IN_ORDER(a, NA)
    T lanes[WF_LANES];
    WF_UNROLL for (int k = 0; k < NA; k++)
    {
        PUT(lanes + k * VN, a[k]);
    }
    WF_JOIN(span, TSFX)(out, lanes, WF_LANES, 0, 1, 0);
}
#endif

/* -- across rows ------------------------------------------------------------------------------------------- */
enum { FN(STRIP) = 4 * VN };
typedef struct FN(strip) {
    V v[4];
} FN(strip);

/* Lane l of a strip of columns: rows l, l + 64 ... in sequence. */
WF_INLINE FN(strip) FN(lane)(const S *x, int64_t stride, int64_t rows, int64_t l)
{
    FN(strip) s;
    if (l >= rows) {
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            s.v[k] = -(V){0};
        }
        return s;
    }
    const S *row = x + l * stride;
    WF_UNROLL for (int k = 0; k < 4; k++)
    {
        s.v[k] = VALUES(row, k);
    }
    for (int64_t r = l + WF_LANES; r < rows; r += WF_LANES) {
        row += WF_LANES * stride;
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            s.v[k] = s.v[k] + VALUES(row, k);
        }
    }
    return s;
}
WF_INLINE FN(strip) FN(plus)(FN(strip) a, FN(strip) b)
{
    WF_UNROLL for (int k = 0; k < 4; k++)
    {
        a.v[k] = a.v[k] + b.v[k];
    }
    return a;
}

WF_INLINE FN(strip) FN(pair)(const S *x, int64_t stride, int64_t rows, int64_t l)
{
    FN(strip) s = FN(lane)(x, stride, rows, l);
    return l + 32 < rows ? FN(plus)(s, FN(lane)(x, stride, rows, l + 32)) : s;
}

#if WF_VBYTES > 16 /* SSE2 is not timed */
/* -- of rows that are a lane each ------------------------------------------------------------------------- */
/* Columns of a tile: a page of sums, or half of one (which of the two is not measured with registers of 64 bytes). A Zen 5 gains
 * more by rows in one piece, behind which its hardware goes on with the next ones. */
enum { FN(TILE) = (WF_VBYTES < 64 ? 4096 : 2048) / ESIZE, FN(ROW) = 8192 / ESIZE };

/*
 * The `t`th place of rows that are walked in steps of two registers, of which [0, until), whole fours, are taken in the order
 * 0, 2, 1, 3: a Zen 5 fetches ahead of a load instruction whose last steps were equal, and so behind the end of a short row; in
 * the second cache it reads as fast without (128 KiB in pieces of 2 KiB 0.56 and 0.95 of a plain read's speed).
 */
WF_INLINE int64_t FN(place)(int64_t t, int64_t until)
{
    return t < until ? (t & ~(int64_t)(6 * VN)) | (t >> 1 & 2 * VN) | (t << 1 & 4 * VN) : t;
}

/* Columns [0, n) of the sum of eight rows, first[0] + first[1] and so on, `each` (1 and 2 are the same) of a lane, which `before`, if
 * not NULL, starts; added to the `top` sums on a stack, the last one first: two registers wide, n a multiple of that. ends: put in
 * order. alone: so many of those, known to compilers, and a tree of rows that is not put in order; or -1. */
WF_INLINE void FN(eight)(T *to, const S *const *first, int64_t each, const T *before,
                         const T *stack, int64_t pitch, int64_t top, bool ends, int64_t n,
                         int64_t until, const int64_t alone)
{
    const S *const a = first[0], *const b = first[1], *const c = first[2], *const d = first[3];
    const S *const e = first[4], *const f = first[5], *const g = first[6], *const h = first[7];
    for (int64_t t = 0; t < n; t += 2 * VN) {
        const int64_t i = FN(place)(t, until);
        V v[2];
        if (alone < 0) {
            __asm__("" : "+r"(each)); /* else this would become a loop for each of them */
        }
#define EACH_OF_2 WF_UNROLL for (int k = 0; k < 2; k++)
#define X(row) VALUES(row + i, k)
        if (alone >= 0 || WF_VBYTES == 64 || each <= 2) {
            EACH_OF_2
            {
                v[k] = ((X(a) + X(b)) + (X(c) + X(d))) + ((X(e) + X(f)) + (X(g) + X(h)));
            }
        } else {
            EACH_OF_2
            {
                v[k] = X(a);
            }
            if (before != NULL) {
                EACH_OF_2
                {
                    v[k] = (V) * (const VMEM *)(before + i + k * VN) + v[k];
                }
            }
            EACH_OF_2
            {
                v[k] = ((v[k] + X(b)) + X(c)) + X(d);
            }
            if (each == 4) {
                EACH_OF_2
                {
                    v[k] = v[k] + (((X(e) + X(f)) + X(g)) + X(h));
                }
            } else {
                EACH_OF_2
                {
                    v[k] = (((v[k] + X(e)) + X(f)) + X(g)) + X(h);
                }
            }
        }
#undef X
#undef EACH_OF_2
        for (int64_t p = alone >= 0 ? alone : top; p-- > 0;) {
            const T *const from = stack + p * pitch + i;
            v[0] = (V) * (const VMEM *)from + v[0];
            v[1] = (V) * (const VMEM *)(from + VN) + v[1];
        }
        if (alone < 0 && ends) {
            IN_ORDER(v, 2)
        }
        PUT(to + i, v[0]);
        PUT(to + i + VN, v[1]);
    }
}

/*
 * The tree over rows > 16, cols a multiple of two registers: eight rows at a time along memory, where hardware fetches ahead of
 * eight streams. Where lanes have several rows, 64 apart, those are of four, two or one lane; with registers of 64 bytes, where
 * that is not measured, they have one. Sums are added as they come, so that few wait: eight of 4 KiB would fill most of the first
 * cache.
 */
__attribute__((noinline)) static void FN(flat)(T *out, const S *x, int64_t stride, int64_t rows,
                                               int64_t cols)
{
    static const int8_t reversed[8] = {0, 32, 16, 48, 8, 40, 24, 56};
    const int few = rows <= WF_LANES / 2; /* lanes of the upper half are missing */
    const int64_t deep = WF_VBYTES < 64 ? (rows + WF_LANES - 1) / WF_LANES : 1; /* rows of a lane */
    const int bits = deep == 1 ? 0 : deep == 2 ? 1 : deep <= 4 ? 2 : 3;
    const int64_t each = 1 << bits; /* of them at once */
    const bool zen5 = wf_amd_zen5();
    const int64_t most = zen5 ? FN(ROW) : FN(TILE), tile = cols < most ? cols : most;
    S none[FN(ROW)];
    /* Sums of half a way of the first cache lie in the other half than rows a way apart do; elsewhere than on a Zen 5 what counts is
     * that no load has the last twelve bits of the address of what was just stored, which it would wait for. */
    enum { WAY = 4096 / ESIZE, LINE = 64 / ESIZE, STACK = 7 * (FN(TILE) + LINE) };
    enum { ROWS = 3 * (FN(ROW) + LINE), ROOM = WAY + (STACK > ROWS ? STACK : ROWS) };
    _Alignas(4096) T room[ROOM];
    const bool half = zen5 && tile <= WAY / 2;
    const int64_t pitch = half ? WAY : tile + LINE, away = zen5 ? (half ? WAY / 2 : 0) : WAY / 4;
    T *const parts =
        room + (away ? ((uintptr_t)x / ESIZE + (uintptr_t)away) % WAY / LINE * LINE : 0);
    for (int64_t c = 0; rows % (WF_LANES >> few << bits) != 0 && c < tile; c += 2 * VN) {
        WF_UNROLL for (int k = 0; k < 2 * VN; k++)
        {
            none[c + k] = NOTHING;
        }
    }
    int64_t place[8];
    WF_ROLLED for (int k = 0; k < 8; k++)
    {
        __asm__("" : "+r"(k));
        place[k] = (reversed[k >> bits] >> few) + (k & (each - 1)) * WF_LANES;
    }
    const int64_t sums = 8 >> few << bits;
    for (int64_t at = 0; at < cols; at += tile) {
        const int64_t n = cols - at < tile ? cols - at : tile;
        const int64_t until = zen5 ? n / (8 * VN) * (8 * VN) : 0;
        int64_t top = 0;
        for (int64_t i = 0; i < sums; i++) {
            int64_t l = 0; /* i in reverse */
            WF_ROLLED for (int64_t b = 1; b < sums; b *= 2)
            {
                l = l << 1 | ((i & b) != 0);
            }
            const bool last = i + 1 == sums;
            const int64_t less = __builtin_ctzll(~(uint64_t)i);
            T *const acc = parts + top * pitch;
            T *const stack = acc - less * pitch, *const to = last ? out + at : stack;
            for (int64_t r = 0; r < deep; r += each) {
                const S *first[8];
                WF_ROLLED for (int k = 0; k < 8; k++)
                {
                    const int64_t row = l + r * WF_LANES + place[k];
                    first[k] = row < rows ? x + row * stride + at : none;
                }
                const bool whole = r + each >= deep, ends = whole && last;
                const int64_t add = whole ? less : 0;
                T *const dst = whole ? to : acc;
#define EIGHT(n_alone)                                                                             \
    FN(eight)(dst, first, each, r ? acc : NULL, stack, pitch, add, ends, n, until, n_alone)
                const int64_t alone = each <= 2 && !ends ? add : -1;
                if (alone == 0) {
                    EIGHT(0);
                } else if (alone == 1) {
                    EIGHT(1);
                } else if (alone == 2) {
                    EIGHT(2);
                } else {
                    EIGHT(-1);
                }
#undef EIGHT
            }
            top += 1 - less;
        }
    }
}
#endif

/* out[c] = the sum of column c over the rows of one block, rows <= 4096, cols >= STRIP: the whole tree of
 * the lanes in registers, a strip of columns at a time. */
static void FN(tree)(void *outv, const void *xv, int64_t stride, int64_t rows, int64_t cols)
{
    static const int8_t reversed[8] = {0, 4, 2, 6, 1, 5, 3, 7};
#if WF_VBYTES > 16
    /* Strips of lines are read from end to end, too, if not by AMD's hardware; f16 is bound by its widening. */
    const bool strips =
        ALONE && (sizeof(S) < ESIZE || (VN * ESIZE == 64 && rows > WF_LANES / 2 && !wf_amd()));
    /* Rows that flat would make of these. Of more than the lanes it pays where strips leave the first cache, sooner for rows whose
     * lines share its sets: 512 bytes and multiples apart. */
    const int64_t half = WF_LANES / 2, eight = 8 * WF_LANES,
                  bytes = rows * cols * (int64_t)sizeof(S);
    const int64_t slots = rows <= half           ? half
                          : rows <= WF_LANES     ? WF_LANES
                          : rows <= 2 * WF_LANES ? 2 * WF_LANES
                          : rows <= 4 * WF_LANES ? 4 * WF_LANES
                                                 : (rows + eight - 1) / eight * eight;
    const int64_t worth = stride * (int64_t)sizeof(S) % 512 == 0 ? 1 << 17 : 1 << 19;
    const bool flat = rows <= WF_LANES ? rows * 4 > slots * 3
                                       : WF_VBYTES < 64 && !wf_amd_zen5() &&
                                             cols * (int64_t)sizeof(S) >= 4 * 64 &&
                                             ((rows * 8 >= slots * 7 && bytes >= worth) ||
                                              (rows * 4 >= slots * 3 && bytes >= 2 * worth) ||
                                              (rows * 16 >= slots * 9 && bytes > WF_NEAR_BYTES));
    if (!strips && flat && cols % (2 * VN) == 0) {
        FN(flat)(outv, xv, stride, rows, cols);
        return;
    }
#endif
#define PAIR(j) FN(pair)(x, stride, rows, l + (j))
    for (int64_t at = 0; at < cols; at += FN(STRIP)) {
        const int64_t c = at + FN(STRIP) <= cols ? at : cols - FN(STRIP);
        const S *x = (const S *)xv + c;
        FN(strip) stack[4];
        int top = 0;
        for (int i = 0; i < 8; i++) {
            const int64_t l = reversed[i];
            FN(strip) s = PAIR(0), t = PAIR(8);
            if (l + 16 < rows) {
                s = FN(plus)(s, PAIR(16));
                t = FN(plus)(t, PAIR(24));
            }
            s = FN(plus)(s, t);
            for (int k = i; k & 1; k >>= 1) {
                s = FN(plus)(stack[--top], s);
            }
            stack[top++] = s;
        }
        IN_ORDER(stack[0].v, 4)
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            PUT((T *)outv + c + k * VN, stack[0].v[k]);
        }
    }
#undef PAIR
}

#if defined(__AVX512F__)
/* What rows does, of eight and whole strips: their addresses stay in registers, and missing elements start the sums. */
static void FN(rows8)(T *acc, const void *const *rows, int64_t ncols, bool init)
{
    const S *x[WF_ROWS_AT_ONCE];
    WF_UNROLL for (int r = 0; r < WF_ROWS_AT_ONCE; r++)
    {
        x[r] = rows[r];
    }
    for (int64_t c = 0; c < ncols; c += FN(STRIP)) {
        V v[4];
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            v[k] = init ? -(V){0} : (V)(*(const VMEM *)(acc + c + k * VN));
        }
        PLAIN_IN_PAIRS(v, 4)
        WF_UNROLL for (int r = 0; r < WF_ROWS_AT_ONCE; r++)
        {
            WF_UNROLL for (int k = 0; k < 4; k++)
            {
                v[k] = v[k] + PLAIN(x[r] + c, k);
            }
        }
        PLAIN_IN_ORDER(v, 4)
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            PUT(acc + c + k * VN, v[k]);
        }
    }
}
#endif

/* acc[c] = acc[c] + rows[0][c] + rows[1][c] ... in this order; init: starts at rows[0]. The rows of the next call are
 * `ahead` elements behind these. */
static void FN(rows)(void *accv, const void *const *rows, int64_t nrows, int64_t ncols, int init,
                     int64_t ahead)
{
    T *acc = accv;
#if defined(__AVX512F__)
    const bool is_f16 = ALONE && sizeof(S) < ESIZE; /* 4 % slower so, which nothing explains */
    if (nrows == WF_ROWS_AT_ONCE && ahead == 0 && ncols % FN(STRIP) == 0 && !is_f16) {
        FN(rows8)(acc, rows, ncols, init);
        return;
    }
#endif
    const bool second = ahead != 0 && wf_amd(); /* rows of any type, into the second cache */
    /* Columns behind the last strip are the end of one more, which overlaps it and starts from what those were before. */
    T before[FN(STRIP)];
    const T *from = acc;
    bool overlaps = ncols > FN(STRIP) && ncols % FN(STRIP) != 0;
    int64_t c = 0, behind = 0; /* columns in acc, and of them those that lie before `from` */
    if (overlaps && !init) {
        memcpy(before, acc + ncols - FN(STRIP), sizeof before);
    }
#define ROW(r) ((const S *)rows[r] + c)
again:
    for (; c + FN(STRIP) <= ncols; c += FN(STRIP)) {
        V v[4];
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            v[k] = init ? PLAIN(ROW(0), k) : (V)(*(const VMEM *)(from + (c - behind) + k * VN));
        }
        if (!init) {
            PLAIN_IN_PAIRS(v, 4)
        }
        int64_t r = init ? 1 : 0;
#if defined(__AVX512F__)
        /* A Zen 5 foresees what each load instruction reads: every row has its own. */
        switch (ahead == 0 ? nrows - r : 0) {
#define EACH(n)                                                                                    \
    case n:                                                                                        \
        WF_UNROLL for (int k = 0; k < 4; k++)                                                      \
        {                                                                                          \
            v[k] = v[k] + PLAIN(ROW(nrows - n), k);                                                \
        }                                                                                          \
        __attribute__((fallthrough));
            EACH(8)
            EACH(7)
            EACH(6)
            EACH(5)
            EACH(4)
            EACH(3)
            EACH(2)
            EACH(1)
#undef EACH
        default:
            break;
        }
        r = ahead == 0 ? nrows : r;
#endif
        for (; r < nrows; r++) {
            WF_UNROLL for (int k = 0; k < 4; k++)
            {
                v[k] = v[k] + PLAIN(ROW(r), k);
            }
            if (second) {
                EACH_LINE(FN(STRIP)) __builtin_prefetch(ROW(r) + ahead + k, 0, 2);
            } else if (ahead != 0) {
                FETCH(ROW(r) + ahead, FN(STRIP))
            }
        }
        PLAIN_IN_ORDER(v, 4)
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            PUT(acc + c + k * VN, v[k]);
        }
    }
    if (overlaps) {
        overlaps = false;
        c = ncols - FN(STRIP);
        from = before;
        behind = c;
        goto again;
    }
    for (; c < ncols; c++) {
        T v = init ? ONE(*ROW(0)) : acc[c];
        for (int64_t r = init ? 1 : 0; r < nrows; r++) {
            v = v + ONE(*ROW(r));
        }
        acc[c] = v;
    }
#undef ROW
}

#undef FETCH
#undef EACH_LINE
#undef AT_ONCE
#undef FOLD
#undef PUT
#undef NA
#undef VN
#undef VMEM
#undef V
#undef FN
#undef S
#undef SFX
#undef GET
#undef EVEN
#undef ODD
#undef ALONE
#undef VALUES
#undef IN_ORDER
#undef IN_PAIRS
#undef PLAIN
#undef PLAIN_IN_ORDER
#undef PLAIN_IN_PAIRS
#undef FIRSTS
#undef LASTS
#undef EACH_PAIR
#undef LOW
#undef HIGH
#undef EVENS
#undef ODDS
#undef ONE
#undef NOTHING
