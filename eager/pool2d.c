/*
 * eager/pool2d.c -- max_pool2d, avg_pool2d and the gradient of the latter.
 *
 * A window is walked in row-major order in the compute type. The maximum is the first one met (its
 * index is h * width + w of the input plane); NaN wins over every number, the first NaN over later
 * ones. The mean is the sum divided by the number of elements in the window: those inside the input,
 * or with count_include_pad those inside the padded input (ceil mode may reach beyond both).
 * The gradient gathers: every input element adds what its windows give, in row-major order of the
 * windows, so tasks never write to the same place. A row of the input takes a row of windows after the other: what they give is
 * divided once, and added column of the window by column, the last one first.
 *
 * Channels-last results are computed a block of channels at a time: every channel sees the same window, so that its walk is
 * one loop around the block's, in the same order of additions and comparisons.
 */
#include "eager/cpuid.h"
#include "eager/dense.h"
#include "eager/kernels/pool.h"
#include "eager/layout.h"

enum { CHANNELS = 64 /* a block */, PIECE = 256 /* columns */, STEP = 8 /* of them, as vectors */ };

/* [lo, hi) of the windows along a side. */
typedef struct span {
    int64_t lo, hi;
} span;

typedef struct pool_args {
    const wf_view *in; /* forward: x; backward: g */
    const wf_view *dst;
    void *out;            /* its data */
    int64_t *index;       /* the second result's, which lies as the first one */
    int64_t h, w, oh, ow; /* input plane, output plane */
    int64_t kernel[2], stride[2], pad[2], dilation[2];
    int64_t c; /* channels */
    bool count_pad,
        adaptive; /* adaptive: oh x ow windows from end to end, kernel and stride do not count */
    span whole;   /* backward, not adaptive: windows of a row that count all their columns */
} pool_args;

/* Where row r of the planes of the result begins. */
static inline int64_t row_of(const pool_args *a, int64_t r)
{
    const wf_view *y = a->dst;
    return wf_offset_of(r / y->dims[2], 2, y->dims, y->strides) + r % y->dims[2] * y->strides[2];
}
/* Channels [c, c + CHANNELS) as far as there are any. */
static inline int64_t block_of(const pool_args *a, int64_t c)
{
    return a->c - c < CHANNELS ? a->c - c : CHANNELS;
}
/* In the input, strided as it is: the address of image r / rows, channel c. */
#define IMAGE(type, v, image, c)                                                                   \
    ((const type *)(v)->data + (image) * (v)->strides[0] + (c) * (v)->strides[1])

/* First and one-past-last kernel position of output o that lies inside [0, n). */
static inline void clip(int64_t o, int64_t n, const pool_args *a, int side, int64_t *start,
                        int64_t *lo, int64_t *hi)
{
    int64_t d = a->dilation[side];
    if (a->adaptive) {
        const int64_t m = side ? a->ow : a->oh;
        *start = o * n / m;
        *lo = 0;
        *hi = ((o + 1) * n + m - 1) / m - *start;
        return;
    }
    *start = o * a->stride[side] - a->pad[side];
    *lo = 0;
    *hi = a->kernel[side];
    if (*start >= 0 && *start < n && (*hi - 1) * d < n - *start) {
        return; /* wholly inside: no divisions */
    }
    *lo = *start < 0 ? (-*start + d - 1) / d : 0;
    int64_t room = (n - *start - 1) / d + 1; /* windows start before n */
    *hi = room < a->kernel[side] ? room : a->kernel[side];
}

static inline float load_f16(uint16_t v)
{
    return wf_f32_of_f16(v);
}
static inline float load_bf16(uint16_t v)
{
    return wf_f32_of_bf16(v);
}
#define SAME(v) (v)

static inline int32_t key_f16(uint16_t v)
{
    return wf_key_f32(wf_f32_of_f16(v));
}
static inline int32_t key_bf16(uint16_t v)
{
    return wf_key_f32(wf_f32_of_bf16(v));
}

#define MAX_ROWS(suffix, type, ordered, key)                                                       \
    static void max_rows_##suffix(void *arg, int64_t begin, int64_t end)                           \
    {                                                                                              \
        const pool_args *a = arg;                                                                  \
        const wf_view *v = a->in;                                                                  \
        const int64_t hs = v->strides[2], ws = v->strides[3], width = a->w;                        \
        const int64_t dh = a->dilation[0], dw = a->dilation[1];                                    \
        for (int64_t r = begin; r < end; r++) {                                                    \
            int64_t plane = r / a->oh, to = row_of(a, r), h0, hlo, hhi;                            \
            const type *in = (const type *)v->data + wf_offset_of(plane, 2, v->dims, v->strides);  \
            clip(r % a->oh, a->h, a, 0, &h0, &hlo, &hhi);                                          \
            for (int64_t o = 0; o < a->ow; o++) {                                                  \
                int64_t w0, wlo, whi;                                                              \
                clip(o, width, a, 1, &w0, &wlo, &whi);                                             \
                int64_t h = h0 + hlo * dh, w = w0 + wlo * dw;                                      \
                int64_t from = h * hs + w * ws, index = h * width + w;                             \
                ordered best = key(in[from]);                                                      \
                for (int64_t i = hlo; i < hhi; i++) {                                              \
                    h = h0 + i * dh;                                                               \
                    for (int64_t j = wlo; j < whi; j++) {                                          \
                        w = w0 + j * dw;                                                           \
                        const int64_t at = h * hs + w * ws, flat = h * width + w;                  \
                        const ordered x = key(in[at]);                                             \
                        const bool take = x > best;                                                \
                        best = take ? x : best;                                                    \
                        from = take ? at : from;                                                   \
                        index = take ? flat : index;                                               \
                    }                                                                              \
                }                                                                                  \
                ((type *)a->out)[to + o * a->dst->strides[3]] = in[from];                          \
                a->index[to + o * a->dst->strides[3]] = index;                                     \
            }                                                                                      \
        }                                                                                          \
    }

/* The kernels that look at channels which follow one another in memory; indices of planes are of 32 bits there. */
static const wf_pool_kernels *pool_kernels(void)
{
    static const wf_pool_kernels *const by_isa[WF_NISA] = {
        [WF_ISA_SSE2] = &wf_pool_kernels_sse2,
        [WF_ISA_AVX2] = &wf_pool_kernels_avx2,
        [WF_ISA_AVX512] = &wf_pool_kernels_avx512,
    };
    return by_isa[wf_isa()];
}

/* The rows of channels-last results of a channels-last input: pixel by pixel, all channels of one. */
static void max_last(const pool_args *a, int64_t begin, int64_t end, wf_pool_max_fn largest,
                     int64_t size)
{
    const wf_view *v = a->in;
    const int64_t dh = a->dilation[0], dw = a->dilation[1];
    /* of a kernel of one row or column the dilation may be any number: nobody takes that step */
    const int64_t down = a->kernel[0] > 1 ? dh : 0, across = a->kernel[1] > 1 ? dw : 0;
    wf_pool_window w = {.down = down * v->strides[2],
                        .across = across * v->strides[3],
                        .index_down = (int32_t)(down * a->w),
                        .index_across = (int32_t)across};
    for (int64_t r = begin; r < end; r++) {
        const char *image = (const char *)v->data + r / a->oh * v->strides[0] * size;
        int64_t h0, w0, lo, hi;
        clip(r % a->oh, a->h, a, 0, &h0, &lo, &hi);
        h0 += lo * dh;
        w.rows = hi - lo;
        for (int64_t o = 0; o < a->ow; o++) {
            const int64_t to = (r * a->ow + o) * a->c;
            clip(o, a->w, a, 1, &w0, &lo, &hi);
            w0 += lo * dw;
            w.cols = hi - lo;
            w.first = (int32_t)(h0 * a->w + w0);
            w.in = image + (h0 * v->strides[2] + w0 * v->strides[3]) * size;
            largest((char *)a->out + to * size, a->index + to, &w, a->c);
        }
    }
}
#define MAX_LAST(suffix, type)                                                                     \
    static void max_last_##suffix(void *arg, int64_t begin, int64_t end)                           \
    {                                                                                              \
        max_last(arg, begin, end, pool_kernels()->suffix, (int64_t)sizeof(type));                  \
    }

#define MAX_BOTH(suffix, type, ordered, key)                                                       \
    MAX_ROWS(suffix, type, ordered, key) MAX_LAST(suffix, type)
MAX_ROWS(u8, uint8_t, int32_t, SAME)
MAX_ROWS(i8, int8_t, int32_t, SAME)
MAX_ROWS(i16, int16_t, int32_t, SAME)
MAX_BOTH(i32, int32_t, int32_t, SAME)
MAX_ROWS(i64, int64_t, int64_t, SAME)
MAX_ROWS(f16, uint16_t, int32_t, key_f16)
MAX_BOTH(bf16, uint16_t, int32_t, key_bf16)
MAX_BOTH(f32, float, int32_t, wf_key_f32)
MAX_BOTH(f64, double, int64_t, wf_key_f64)
#undef MAX_BOTH
#undef MAX_LAST
#undef MAX_ROWS

/* Elements that the mean of window (oh, ow) divides by. */
static inline int64_t window_count(const pool_args *a, int64_t h0, int64_t h_inside, int64_t w0,
                                   int64_t w_inside)
{
    if (!a->count_pad) {
        return h_inside * w_inside;
    }
    int64_t hp = a->h + a->pad[0] - h0, wp = a->w + a->pad[1] - w0;
    return (hp < a->kernel[0] ? hp : a->kernel[0]) * (wp < a->kernel[1] ? wp : a->kernel[1]);
}

/* Windows of n along a side that position `at` of the input is in, padding counted. */
static inline span windows_over(int64_t at, int64_t n, const pool_args *a, int side)
{
    if (a->adaptive) {
        const int64_t len = side ? a->w : a->h;
        return (span){.lo = at * n / len, .hi = ((at + 1) * n + len - 1) / len};
    }
    const int64_t from = at + a->pad[side], past = from / a->stride[side] + 1;
    return (span){.lo = from < a->kernel[side] ? 0 : (from - a->kernel[side]) / a->stride[side] + 1,
                  .hi = past < n ? past : n};
}
/* Elements along a side that the mean of a window counts, which begins at output o; the mean divides by the product of both. */
static inline int64_t side_count(const pool_args *a, int64_t o, int64_t n, int side)
{
    int64_t start, lo, hi;
    clip(o, n, a, side, &start, &lo, &hi);
    const int64_t room = n + a->pad[side] - start;
    return !a->count_pad ? hi - lo : room < a->kernel[side] ? room : a->kernel[side];
}
static inline int64_t count_of(const pool_args *a, int64_t o, int64_t p)
{
    return side_count(a, o, a->h, 0) * side_count(a, p, a->w, 1);
}
/* The windows of a row that count all their columns. */
static span whole_windows(const pool_args *a)
{
    const int64_t pad = a->pad[1], step = a->stride[1];
    const int64_t room = a->w + (a->count_pad ? 2 * pad : pad) - a->kernel[1];
    return (span){.lo = a->count_pad ? 0 : (pad + step - 1) / step,
                  .hi = room < 0 ? 0 : room / step + 1};
}
/* x in [0, most]. */
static inline int64_t bounded(int64_t x, int64_t most)
{
    return x < 0 ? 0 : x < most ? x : most;
}

/* What a row of windows gives to its elements, in each of the types that sums have. */
#define AVG_SHARES(compute)                                                                          \
    /* Gradients of m windows from p on, divided by their numbers of elements. */                    \
    static void divide_##compute(const pool_args *a, int64_t row_count, int64_t p, int64_t m,        \
                                 compute *share)                                                     \
    {                                                                                                \
        const int64_t end = bounded(a->whole.hi - p, m);                                             \
        const compute n = (compute)(row_count * a->kernel[1]);                                       \
        for (int64_t k = 0; k < m; k++) {                                                            \
            if (p + k < a->whole.lo || k >= end) {                                                   \
                share[k] /= (compute)(row_count * side_count(a, p + k, a->w, 1));                    \
                continue;                                                                            \
            }                                                                                        \
            for (; k + STEP <= end; k += STEP) {                                                     \
                for (int i = 0; i < STEP; i++) {                                                     \
                    share[k + i] /= n;                                                               \
                }                                                                                    \
            }                                                                                        \
            for (; k < end; k++) {                                                                   \
                share[k] /= n;                                                                       \
            }                                                                                        \
            k--;                                                                                     \
        }                                                                                            \
    }                                                                                                \
    /* Adds them to `width` elements of a row, the first of which lies `at` behind the first       \
     * window's: of the windows over an element the one whose last columns it is comes first. */ \
    static void add_##compute(const pool_args *a, int64_t at, int64_t m,                             \
                              const compute *restrict share, int64_t width, compute *restrict sum)   \
    {                                                                                                \
        const int64_t s = a->stride[1];                                                              \
        for (int64_t j = a->kernel[1] - 1; j >= 0; j--) {                                            \
            const int64_t first = j - at; /* element of window 0 */                                  \
            int64_t k = first < 0 ? (s - 1 - first) / s : 0;                                         \
            const int64_t end = first < width ? bounded((width - first + s - 1) / s, m) : 0;         \
            for (; s == 1 && k + STEP <= end; k += STEP) {                                           \
                for (int i = 0; i < STEP; i++) {                                                     \
                    sum[first + k + i] += share[k + i];                                              \
                }                                                                                    \
            }                                                                                        \
            for (; k < end; k++) {                                                                   \
                sum[first + k * s] += share[k];                                                      \
            }                                                                                        \
        }                                                                                            \
    }
AVG_SHARES(float)
AVG_SHARES(double)
/* Adaptive windows [p, p + n) of a row: how many columns they have, and which of those of a piece of the row. */
typedef struct even {
    span cols; /* all windows over the piece */
    int64_t p, n;
    int64_t many[PIECE], lo[PIECE], hi[PIECE];
} even;

/* Those from p on, unless they are there. */
static void even_at(const pool_args *a, even *e, int64_t p, int64_t c, int64_t width)
{
    if (e->p == p) {
        return;
    }
    e->p = p;
    e->n = bounded(e->cols.hi - p, PIECE);
    for (int64_t k = 0; k < e->n; k++) {
        int64_t first, none;
        clip(p + k, a->w, a, 1, &first, &none, &e->many[k]);
        e->lo[k] = bounded(first - c, width);
        e->hi[k] = bounded(first + e->many[k] - c, width);
    }
}

#define AVG_ROWS(suffix, type, compute, load, store)                                                     \
    /* Adaptive windows, which are long: of all of them a row, so that sums of several are under way. */ \
    static void avg_even_##suffix(const pool_args *a, int64_t begin, int64_t end)                        \
    {                                                                                                    \
        const wf_view *v = a->in;                                                                        \
        const int64_t hs = v->strides[2], ws = v->strides[3], step = a->dst->strides[3];                 \
        for (int64_t p = 0; p < a->ow; p += PIECE) {                                                     \
            const int64_t m = bounded(a->ow - p, PIECE);                                                 \
            int64_t first[PIECE], many[PIECE], none;                                                     \
            for (int64_t k = 0; k < m; k++) {                                                            \
                clip(p + k, a->w, a, 1, &first[k], &none, &many[k]);                                     \
            }                                                                                            \
            for (int64_t r = begin; r < end; r++) {                                                      \
                const type *in =                                                                         \
                    (const type *)v->data + wf_offset_of(r / a->oh, 2, v->dims, v->strides);             \
                type *out = (type *)a->out + row_of(a, r) + p * step;                                    \
                int64_t h0, h;                                                                           \
                compute sum[PIECE];                                                                      \
                clip(r % a->oh, a->h, a, 0, &h0, &none, &h);                                             \
                for (int64_t k = 0; k < m; k++) {                                                        \
                    sum[k] = 0;                                                                          \
                }                                                                                        \
                for (int64_t i = h0; i < h0 + h; i++) {                                                  \
                    for (int64_t k = 0; k < m; k++) {                                                    \
                        const type *from = in + i * hs + first[k] * ws;                                  \
                        compute s = sum[k];                                                              \
                        for (int64_t j = 0; j < many[k]; j++) {                                          \
                            s += load(from[j * ws]);                                                     \
                        }                                                                                \
                        sum[k] = s;                                                                      \
                    }                                                                                    \
                }                                                                                        \
                for (int64_t k = 0; k < m; k++) {                                                        \
                    out[k * step] = store(sum[k] / (compute)(h * many[k]));                              \
                }                                                                                        \
            }                                                                                            \
        }                                                                                                \
    }                                                                                                    \
    static void avg_rows_##suffix(void *arg, int64_t begin, int64_t end)                                 \
    {                                                                                                    \
        const pool_args *a = arg;                                                                        \
        if (a->adaptive) {                                                                               \
            avg_even_##suffix(a, begin, end);                                                            \
            return;                                                                                      \
        }                                                                                                \
        const wf_view *v = a->in;                                                                        \
        int64_t hs = v->strides[2], ws = v->strides[3];                                                  \
        for (int64_t r = begin; r < end; r++) {                                                          \
            int64_t h0, hlo, hhi;                                                                        \
            const type *in =                                                                             \
                (const type *)v->data + wf_offset_of(r / a->oh, 2, v->dims, v->strides);                 \
            const int64_t to = row_of(a, r), step = a->dst->strides[3];                                  \
            clip(r % a->oh, a->h, a, 0, &h0, &hlo, &hhi);                                                \
            for (int64_t o = 0; o < a->ow; o++) {                                                        \
                int64_t w0, wlo, whi;                                                                    \
                clip(o, a->w, a, 1, &w0, &wlo, &whi);                                                    \
                compute sum = 0;                                                                         \
                for (int64_t i = h0 + hlo; i < h0 + hhi; i++) {                                          \
                    for (int64_t j = w0 + wlo; j < w0 + whi; j++) {                                      \
                        sum += load(in[i * hs + j * ws]);                                                \
                    }                                                                                    \
                }                                                                                        \
                int64_t n = window_count(a, h0, hhi - hlo, w0, whi - wlo);                               \
                ((type *)a->out)[to + o * step] = store(sum / (compute)n);                               \
            }                                                                                            \
        }                                                                                                \
    }                                                                                                    \
    /* Adds to elements of a row what the row of adaptive windows that begins at g gives to them. */     \
    static void spread_##suffix(const pool_args *a, const type *g, int64_t count, const even *e,         \
                                compute *restrict sum)                                                   \
    {                                                                                                    \
        for (int64_t k = 0; k < e->n; k++) {                                                             \
            const compute each =                                                                         \
                load(g[(e->p + k) * a->in->strides[3]]) / (compute)(count * e->many[k]);                 \
            int64_t i = e->lo[k];                                                                        \
            for (; i + STEP <= e->hi[k]; i += STEP) {                                                    \
                for (int q = 0; q < STEP; q++) {                                                         \
                    sum[i + q] += each;                                                                  \
                }                                                                                        \
            }                                                                                            \
            for (; i < e->hi[k]; i++) {                                                                  \
                sum[i] += each;                                                                          \
            }                                                                                            \
        }                                                                                                \
    }                                                                                                    \
    static void spread_all_##suffix(const pool_args *a, const type *g, int64_t o, int64_t c,             \
                                    int64_t width, even *e, compute *sum)                                \
    {                                                                                                    \
        const int64_t count = side_count(a, o, a->h, 0);                                                 \
        g += o * a->in->strides[2];                                                                      \
        for (int64_t p = e->cols.lo; p < e->cols.hi; p += PIECE) {                                       \
            even_at(a, e, p, c, width);                                                                  \
            spread_##suffix(a, g, count, e, sum);                                                        \
        }                                                                                                \
    }                                                                                                    \
    /* Rows with one row of windows over them are all the same, and others begin as those do. */         \
    static void avg_back_even_##suffix(const pool_args *a, int64_t begin, int64_t end)                   \
    {                                                                                                    \
        const wf_view *v = a->in;                                                                        \
        const int64_t step = a->dst->strides[3];                                                         \
        for (int64_t c = 0; c < a->w; c += PIECE) {                                                      \
            const int64_t width = bounded(a->w - c, PIECE);                                              \
            compute first[PIECE], sum[PIECE];                                                            \
            int64_t plane = -1, held = -1;                                                               \
            const type *g = NULL;                                                                        \
            even e = {.p = -1};                                                                          \
            e.cols.lo = windows_over(c, a->ow, a, 1).lo;                                                 \
            e.cols.hi = windows_over(c + width - 1, a->ow, a, 1).hi;                                     \
            for (int64_t r = begin; r < end; r++) {                                                      \
                type *out = (type *)a->out + row_of(a, r) + c * step;                                    \
                const span rows = windows_over(r % a->h, a->oh, a, 0);                                   \
                if (plane != r / a->h) {                                                                 \
                    plane = r / a->h;                                                                    \
                    g = (const type *)v->data + wf_offset_of(plane, 2, v->dims, v->strides);             \
                    held = -1;                                                                           \
                }                                                                                        \
                if (held != rows.lo) {                                                                   \
                    held = rows.lo;                                                                      \
                    memset(first, 0, (size_t)width * sizeof *first);                                     \
                    spread_all_##suffix(a, g, held, c, width, &e, first);                                \
                }                                                                                        \
                const compute *all = first;                                                              \
                if (rows.hi > rows.lo + 1) {                                                             \
                    memcpy(sum, first, (size_t)width * sizeof *sum);                                     \
                    all = sum;                                                                           \
                }                                                                                        \
                for (int64_t o = rows.lo + 1; o < rows.hi; o++) {                                        \
                    spread_all_##suffix(a, g, o, c, width, &e, sum);                                     \
                }                                                                                        \
                int64_t k = 0;                                                                           \
                for (; step == 1 && k + STEP <= width; k += STEP) {                                      \
                    for (int q = 0; q < STEP; q++) {                                                     \
                        out[k + q] = store(all[k + q]);                                                  \
                    }                                                                                    \
                }                                                                                        \
                for (; k < width; k++) {                                                                 \
                    out[k * step] = store(all[k]);                                                       \
                }                                                                                        \
            }                                                                                            \
        }                                                                                                \
    }                                                                                                    \
    /* Rows of the input plane; a->in is the gradient of the output plane. */                            \
    static void avg_back_##suffix(void *arg, int64_t begin, int64_t end)                                 \
    {                                                                                                    \
        const pool_args *a = arg;                                                                        \
        const wf_view *v = a->in;                                                                        \
        if (a->adaptive) {                                                                               \
            avg_back_even_##suffix(a, begin, end);                                                       \
            return;                                                                                      \
        }                                                                                                \
        for (int64_t r = begin; r < end; r++) {                                                          \
            const type *g =                                                                              \
                (const type *)v->data + wf_offset_of(r / a->h, 2, v->dims, v->strides);                  \
            const int64_t to = row_of(a, r), step = a->dst->strides[3];                                  \
            const span rows = windows_over(r % a->h, a->oh, a, 0);                                       \
            for (int64_t c = 0; c < a->w; c += PIECE) {                                                  \
                const int64_t width = bounded(a->w - c, PIECE);                                          \
                const span cols = {windows_over(c, a->ow, a, 1).lo,                                      \
                                   windows_over(c + width - 1, a->ow, a, 1).hi};                         \
                compute sum[PIECE] = {0}, share[PIECE];                                                  \
                for (int64_t o = rows.lo; o < rows.hi; o++) {                                            \
                    const int64_t count = side_count(a, o, a->h, 0);                                     \
                    for (int64_t p = cols.lo; p < cols.hi; p += PIECE) {                                 \
                        const int64_t m = bounded(cols.hi - p, PIECE);                                   \
                        const type *from = g + o * v->strides[2] + p * v->strides[3];                    \
                        for (int64_t k = 0; k < m; k++) {                                                \
                            share[k] = load(from[k * v->strides[3]]);                                    \
                        }                                                                                \
                        divide_##compute(a, count, p, m, share);                                         \
                        add_##compute(a, c + a->pad[1] - p * a->stride[1], m, share, width, sum);        \
                    }                                                                                    \
                }                                                                                        \
                for (int64_t k = 0; k < width; k++) {                                                    \
                    ((type *)a->out)[to + (c + k) * step] = store(sum[k]);                               \
                }                                                                                        \
            }                                                                                            \
        }                                                                                                \
    }

/* Means of a window over its first channels, neighbours, of as many at a time as there are registers for their sums; how many. side: of
 * clip, both sides. */
#define AVG_WIDE(suffix, type)                                                                     \
    typedef type some_##suffix __attribute__((vector_size(16)));                                   \
    static int64_t avg_wide_##suffix(const pool_args *a, const type *in, const int64_t *side,      \
                                     type count, int64_t m, type *out)                             \
    {                                                                                              \
        enum { N = sizeof(some_##suffix) / sizeof(type) };                                         \
        const int64_t hs = a->in->strides[2], ws = a->in->strides[3];                              \
        int64_t k = 0;                                                                             \
        for (; k + 4 * N <= m; k += 4 * N) {                                                       \
            some_##suffix s[4] = {{0}}, x[4];                                                      \
            const type *row = in + k + (side[0] + side[1]) * hs + (side[3] + side[4]) * ws;        \
            for (int64_t h = side[1]; h < side[2]; h++, row += hs) {                               \
                const type *at = row;                                                              \
                for (int64_t w = side[4]; w < side[5]; w++, at += ws) {                            \
                    memcpy(x, at, sizeof x);                                                       \
                    s[0] += x[0], s[1] += x[1], s[2] += x[2], s[3] += x[3];                        \
                }                                                                                  \
            }                                                                                      \
            s[0] /= count, s[1] /= count, s[2] /= count, s[3] /= count;                            \
            memcpy(out + k, s, sizeof s);                                                          \
        }                                                                                          \
        return k;                                                                                  \
    }
AVG_WIDE(f32, float)
AVG_WIDE(f64, double)
#undef AVG_WIDE
/* bf16: none, they are rounded one by one. */
static int64_t avg_wide_bf16(const pool_args *a, const uint16_t *in, const int64_t *side,
                             float count, int64_t m, uint16_t *out)
{
    (void)a, (void)in, (void)side, (void)count, (void)m, (void)out;
    return 0;
}

/* The same of the rows of channels-last results. */
#define AVG_LAST(suffix, type, compute, load, store)                                               \
    static void avg_last_##suffix(void *arg, int64_t begin, int64_t end)                           \
    {                                                                                              \
        const pool_args *a = arg;                                                                  \
        const wf_view *v = a->in;                                                                  \
        const int64_t cs = v->strides[1];                                                          \
        for (int64_t r = begin; r < end; r++) {                                                    \
            int64_t s[6];                                                                          \
            type *out = (type *)a->out + r * a->ow * a->c;                                         \
            clip(r % a->oh, a->h, a, 0, &s[0], &s[1], &s[2]);                                      \
            for (int64_t o = 0; o < a->ow; o++) {                                                  \
                clip(o, a->w, a, 1, &s[3], &s[4], &s[5]);                                          \
                const compute n = (compute)window_count(a, s[0], s[2] - s[1], s[3], s[5] - s[4]);  \
                int64_t c =                                                                        \
                    cs == 1 ? avg_wide_##suffix(a, IMAGE(type, v, r / a->oh, 0), s, n, a->c, out)  \
                            : 0;                                                                   \
                out += c;                                                                          \
                for (; c < a->c; c += CHANNELS) {                                                  \
                    const type *in = IMAGE(type, v, r / a->oh, c);                                 \
                    const int64_t m = block_of(a, c);                                              \
                    compute sum[CHANNELS] = {0};                                                   \
                    for (int64_t i = s[0] + s[1]; i < s[0] + s[2]; i++) {                          \
                        for (int64_t j = s[3] + s[4]; j < s[3] + s[5]; j++) {                      \
                            const type *from = in + i * v->strides[2] + j * v->strides[3];         \
                            int64_t k = 0;                                                         \
                            for (; cs == 1 && k + STEP <= m; k += STEP) {                          \
                                for (int q = 0; q < STEP; q++) {                                   \
                                    sum[k + q] += load(from[k + q]);                               \
                                }                                                                  \
                            }                                                                      \
                            for (; k < m; k++) {                                                   \
                                sum[k] += load(from[k * cs]);                                      \
                            }                                                                      \
                        }                                                                          \
                    }                                                                              \
                    for (int64_t k = 0; k < m; k += STEP, out += STEP) {                           \
                        if (m - k < STEP) {                                                        \
                            for (int q = 0; q < m - k; q++) {                                      \
                                out[q] = store(sum[k + q] / n);                                    \
                            }                                                                      \
                            out += m - k;                                                          \
                            break;                                                                 \
                        }                                                                          \
                        for (int q = 0; q < STEP; q++) {                                           \
                            out[q] = store(sum[k + q] / n);                                        \
                        }                                                                          \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void avg_back_last_##suffix(void *arg, int64_t begin, int64_t end)                      \
    {                                                                                              \
        const pool_args *a = arg;                                                                  \
        const wf_view *v = a->in;                                                                  \
        const int64_t cs = v->strides[1];                                                          \
        for (int64_t r = begin; r < end; r++) {                                                    \
            type *out = (type *)a->out + r * a->w * a->c;                                          \
            span rows = windows_over(r % a->h, a->oh, a, 0);                                       \
            for (int64_t at = 0; at < a->w * a->c; at += block_of(a, at % a->c)) {                 \
                const int64_t c = at % a->c, m = block_of(a, c);                                   \
                const type *g = IMAGE(type, v, r / a->h, c);                                       \
                span cols = windows_over(at / a->c, a->ow, a, 1);                                  \
                if (rows.hi - rows.lo == 1 && cols.hi - cols.lo == 1 && cs == 1 &&                 \
                    m % STEP == 0) {                                                               \
                    const compute n = (compute)count_of(a, rows.lo, cols.lo);                      \
                    g += rows.lo * v->strides[2] + cols.lo * v->strides[3];                        \
                    for (int64_t k = 0; k < m; k += STEP) {                                        \
                        for (int q = 0; q < STEP; q++) {                                           \
                            out[at + k + q] = store((compute)0 + load(g[k + q]) / n);              \
                        }                                                                          \
                    }                                                                              \
                    continue;                                                                      \
                }                                                                                  \
                compute sum[CHANNELS] = {0};                                                       \
                for (int64_t o = rows.lo; o < rows.hi; o++) {                                      \
                    for (int64_t p = cols.lo; p < cols.hi; p++) {                                  \
                        const compute n = (compute)count_of(a, o, p);                              \
                        const type *from = g + o * v->strides[2] + p * v->strides[3];              \
                        int64_t k = 0;                                                             \
                        for (; cs == 1 && k + STEP <= m; k += STEP) {                              \
                            for (int q = 0; q < STEP; q++) {                                       \
                                sum[k + q] += load(from[k + q]) / n;                               \
                            }                                                                      \
                        }                                                                          \
                        for (; k < m; k++) {                                                       \
                            sum[k] += load(from[k * cs]) / n;                                      \
                        }                                                                          \
                    }                                                                              \
                }                                                                                  \
                for (int64_t k = 0; k < m; k++) {                                                  \
                    out[at + k] = store(sum[k]);                                                   \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

#define AVG_BOTH(suffix, type, compute, load, store)                                               \
    AVG_ROWS(suffix, type, compute, load, store) AVG_LAST(suffix, type, compute, load, store)
AVG_ROWS(f16, uint16_t, float, load_f16, wf_f16_of_f32)
AVG_BOTH(bf16, uint16_t, float, load_bf16, wf_bf16_of_f32)
AVG_BOTH(f32, float, float, SAME, SAME)
AVG_BOTH(f64, double, double, SAME, SAME)
#undef AVG_BOTH
#undef AVG_LAST
#undef AVG_ROWS
#undef IMAGE
#undef SAME

static pool_args pool_of(const wf_exec *e, bool dilated)
{
    pool_args a = {
        .in = &e->src[0], .dst = &e->dst[0], .out = e->dst[0].data, .c = e->dst[0].dims[1]};
    a.count_pad = (e->attr->flags & WF_FLAG_COUNT_PAD) != 0;
    a.adaptive = !dilated && (e->attr->flags & WF_FLAG_ADAPTIVE) != 0;
    for (int i = 0; i < 2; i++) {
        a.kernel[i] = e->attr->ints[i];
        a.stride[i] = e->attr->ints[2 + i];
        a.pad[i] = e->attr->ints[4 + i];
        a.dilation[i] = dilated ? e->attr->ints[6 + i] : 1;
    }
    return a;
}

/* Kernels of an element type: results row-major (or of any strides), channels-last (NULL: the other one, of rare types). */
static const wf_task_fn max_of[WF_NDTYPE][2] = {[WEFT_U8] = {max_rows_u8, NULL},
                                                [WEFT_I8] = {max_rows_i8, NULL},
                                                [WEFT_I16] = {max_rows_i16, NULL},
                                                [WEFT_I32] = {max_rows_i32, max_last_i32},
                                                [WEFT_I64] = {max_rows_i64, NULL},
                                                [WEFT_F16] = {max_rows_f16, NULL},
                                                [WEFT_BF16] = {max_rows_bf16, max_last_bf16},
                                                [WEFT_F32] = {max_rows_f32, max_last_f32},
                                                [WEFT_F64] = {max_rows_f64, max_last_f64}};
static const wf_task_fn avg_of[WF_NDTYPE][2] = {[WEFT_F16] = {avg_rows_f16, NULL},
                                                [WEFT_BF16] = {avg_rows_bf16, avg_last_bf16},
                                                [WEFT_F32] = {avg_rows_f32, avg_last_f32},
                                                [WEFT_F64] = {avg_rows_f64, avg_last_f64}};
static const wf_task_fn avg_back_of[WF_NDTYPE][2] = {
    [WEFT_F16] = {avg_back_f16, NULL},
    [WEFT_BF16] = {avg_back_bf16, avg_back_last_bf16},
    [WEFT_F32] = {avg_back_f32, avg_back_last_f32},
    [WEFT_F64] = {avg_back_f64, avg_back_last_f64}};

enum { FEW_ROWS = 16 };

static int64_t pool_grain(const pool_args *a, int64_t width, bool last)
{
    if (a->adaptive) { /* rows share what is known of their windows */
        const int64_t rows = wf_row_grain(a->h / a->oh * a->w * (last ? a->c : 1) * 4);
        return rows < FEW_ROWS ? FEW_ROWS : rows;
    }
    return wf_row_grain(width * a->kernel[0] * a->kernel[1] * 4);
}

/* Rows of the result: of planes, or, channels-last, of pixels with all their channels. */
static void run_rows(const wf_task_fn of[2], bool last, pool_args *a)
{
    const int64_t width = a->dst->dims[3] * (last ? a->c : 1);
    wf_parallel_for(wf_view_numel(a->dst) / width, pool_grain(a, width, last), of[last], a);
}

WF_EXEC_DECL(pool2d)
{
    bool max = e->op == WF_OP_MAX_POOL2D;
    const wf_view *x = &e->src[0];
    wf_view *y = &e->dst[0];
    if (wf_view_numel(y) == 0) {
        return 0;
    }
    pool_args a = pool_of(e, max);
    a.index = max ? e->dst[1].data : NULL;
    a.h = x->dims[2];
    a.w = x->dims[3];
    a.oh = y->dims[2];
    a.ow = y->dims[3];
    const wf_task_fn *of = max ? max_of[x->dtype] : avg_of[x->dtype];
    const bool kernel = a.h * a.w <= INT32_MAX && x->strides[1] == 1;
    const bool last = of[1] && wf_view_lies_last(y) && (!max || kernel);
    run_rows(of, last, &a);
    return 0;
}

WF_EXEC_DECL(avg_pool2d_bwd)
{
    const wf_view *g = &e->src[0];
    wf_view *dx = &e->dst[0];
    if (wf_view_numel(dx) == 0) {
        return 0;
    }
    if (wf_view_numel(g) == 0) { /* no windows */
        static const uint64_t zero;
        wf_fill(dx, &zero);
        return 0;
    }
    pool_args a = pool_of(e, false);
    a.h = dx->dims[2];
    a.w = dx->dims[3];
    a.oh = g->dims[2];
    a.ow = g->dims[3];
    a.whole = a.adaptive ? (span){0, 0} : whole_windows(&a);
    const wf_task_fn *of = avg_back_of[g->dtype];
    run_rows(of, of[1] && wf_view_lies_last(dx), &a);
    return 0;
}
