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
 * Channels-last results are computed some registers of channels at a time (kernels/pool.h): every channel sees the same window, so
 * that its walk is one loop around theirs, in the same order of additions and comparisons. Types that are not computed in go through
 * one that is, some images at a time.
 */
#include "eager/alloc.h"
#include "eager/cpuid.h"
#include "eager/dense.h"
#include "eager/kernels/pool.h"
#include "eager/layout.h"

enum { PIECE = 256 /* columns */, STEP = 8 /* of them, as vectors */ };

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

#define SAME(v) (v)

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
MAX_BOTH(i32, int32_t, int32_t, SAME)
MAX_ROWS(i64, int64_t, int64_t, SAME)
MAX_LAST(bf16, uint16_t)
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

#define AVG_ROWS(suffix, type)                                                                           \
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
                type sum[PIECE];                                                                         \
                clip(r % a->oh, a->h, a, 0, &h0, &none, &h);                                             \
                for (int64_t k = 0; k < m; k++) {                                                        \
                    sum[k] = 0;                                                                          \
                }                                                                                        \
                for (int64_t i = h0; i < h0 + h; i++) {                                                  \
                    for (int64_t k = 0; k < m; k++) {                                                    \
                        const type *from = in + i * hs + first[k] * ws;                                  \
                        type s = sum[k];                                                                 \
                        for (int64_t j = 0; j < many[k]; j++) {                                          \
                            s += from[j * ws];                                                           \
                        }                                                                                \
                        sum[k] = s;                                                                      \
                    }                                                                                    \
                }                                                                                        \
                for (int64_t k = 0; k < m; k++) {                                                        \
                    out[k * step] = sum[k] / (type)(h * many[k]);                                        \
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
                type sum = 0;                                                                            \
                for (int64_t i = h0 + hlo; i < h0 + hhi; i++) {                                          \
                    for (int64_t j = w0 + wlo; j < w0 + whi; j++) {                                      \
                        sum += in[i * hs + j * ws];                                                      \
                    }                                                                                    \
                }                                                                                        \
                int64_t n = window_count(a, h0, hhi - hlo, w0, whi - wlo);                               \
                ((type *)a->out)[to + o * step] = sum / (type)n;                                         \
            }                                                                                            \
        }                                                                                                \
    }                                                                                                    \
    /* Adds to elements of a row what the row of adaptive windows that begins at g gives to them. */     \
    static void spread_##suffix(const pool_args *a, const type *g, int64_t count, const even *e,         \
                                type *restrict sum)                                                      \
    {                                                                                                    \
        for (int64_t k = 0; k < e->n; k++) {                                                             \
            const type each = g[(e->p + k) * a->in->strides[3]] / (type)(count * e->many[k]);            \
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
                                    int64_t width, even *e, type *sum)                                   \
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
            type first[PIECE], sum[PIECE];                                                               \
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
                const type *all = first;                                                                 \
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
                        out[k + q] = all[k + q];                                                         \
                    }                                                                                    \
                }                                                                                        \
                for (; k < width; k++) {                                                                 \
                    out[k * step] = all[k];                                                              \
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
                type sum[PIECE] = {0}, share[PIECE];                                                     \
                for (int64_t o = rows.lo; o < rows.hi; o++) {                                            \
                    const int64_t count = side_count(a, o, a->h, 0);                                     \
                    for (int64_t p = cols.lo; p < cols.hi; p += PIECE) {                                 \
                        const int64_t m = bounded(cols.hi - p, PIECE);                                   \
                        const type *from = g + o * v->strides[2] + p * v->strides[3];                    \
                        for (int64_t k = 0; k < m; k++) {                                                \
                            share[k] = from[k * v->strides[3]];                                          \
                        }                                                                                \
                        divide_##type(a, count, p, m, share);                                            \
                        add_##type(a, c + a->pad[1] - p * a->stride[1], m, share, width, sum);           \
                    }                                                                                    \
                }                                                                                        \
                for (int64_t k = 0; k < width; k++) {                                                    \
                    ((type *)a->out)[to + (c + k) * step] = sum[k];                                      \
                }                                                                                        \
            }                                                                                            \
        }                                                                                                \
    }

/* The same of the rows of channels-last results of channels-last operands. */
static void avg_last(const pool_args *a, int64_t begin, int64_t end, wf_pool_avg_fn mean,
                     int64_t size)
{
    const wf_view *v = a->in;
    wf_pool_window w = {.down = v->strides[2], .across = v->strides[3]};
    for (int64_t r = begin; r < end; r++) {
        const char *image = (const char *)v->data + r / a->oh * v->strides[0] * size;
        int64_t h0, w0, hlo, hhi, lo, hi;
        clip(r % a->oh, a->h, a, 0, &h0, &hlo, &hhi);
        w.rows = hhi - hlo;
        for (int64_t o = 0; o < a->ow; o++) {
            clip(o, a->w, a, 1, &w0, &lo, &hi);
            w.cols = hi - lo;
            w.in = image + ((h0 + hlo) * v->strides[2] + (w0 + lo) * v->strides[3]) * size;
            mean((char *)a->out + (r * a->ow + o) * a->c * size, &w,
                 (double)window_count(a, h0, w.rows, w0, w.cols), a->c);
        }
    }
}
/* A row of pixels gets what each window over it gives, window by window. */
static void avg_back_last(const pool_args *a, int64_t begin, int64_t end, wf_pool_spread_fn spread,
                          int64_t size)
{
    const wf_view *v = a->in;
    for (int64_t r = begin; r < end; r++) {
        char *const out = (char *)a->out + r * a->w * a->c * size;
        const char *image = (const char *)v->data + r / a->h * v->strides[0] * size;
        const span rows = windows_over(r % a->h, a->oh, a, 0);
        memset(out, 0, (size_t)(a->w * a->c * size));
        for (int64_t o = rows.lo; o < rows.hi; o++) {
            for (int64_t p = 0; p < a->ow; p++) {
                int64_t w0, lo, hi;
                clip(p, a->w, a, 1, &w0, &lo, &hi);
                spread(out + (w0 + lo) * a->c * size,
                       image + (o * v->strides[2] + p * v->strides[3]) * size,
                       (double)count_of(a, o, p), hi - lo, a->c);
            }
        }
    }
}
#define AVG_LAST(suffix, type)                                                                     \
    static void avg_last_##suffix(void *arg, int64_t begin, int64_t end)                           \
    {                                                                                              \
        avg_last(arg, begin, end, pool_kernels()->avg_##suffix, (int64_t)sizeof(type));            \
    }                                                                                              \
    static void avg_back_last_##suffix(void *arg, int64_t begin, int64_t end)                      \
    {                                                                                              \
        avg_back_last(arg, begin, end, pool_kernels()->spread_##suffix, (int64_t)sizeof(type));    \
    }
AVG_ROWS(f32, float)
AVG_LAST(f32, float)
AVG_ROWS(f64, double)
AVG_LAST(f64, double)
#undef AVG_LAST
#undef AVG_ROWS
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

/* Kernels of an element type: results row-major (or of any strides), channels-last. NULL: those of a wider type serve, and
 * of i64 the first for both. */
static const wf_task_fn max_of[WF_NDTYPE][2] = {[WEFT_I32] = {max_rows_i32, max_last_i32},
                                                [WEFT_I64] = {max_rows_i64, NULL},
                                                [WEFT_BF16] = {NULL, max_last_bf16},
                                                [WEFT_F32] = {max_rows_f32, max_last_f32},
                                                [WEFT_F64] = {max_rows_f64, max_last_f64}};
static const wf_task_fn avg_of[WF_NDTYPE][2] = {
    [WEFT_F32] = {avg_rows_f32, avg_last_f32}, [WEFT_F64] = {avg_rows_f64, avg_last_f64}};
static const wf_task_fn avg_back_of[WF_NDTYPE][2] = {
    [WEFT_F32] = {avg_back_f32, avg_back_last_f32}, [WEFT_F64] = {avg_back_f64, avg_back_last_f64}};

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

/* v[n, c, h, w] on dense memory of `to`: channels-last as it is, or row-major. */
static wf_view dense_of(const wf_view *v, int to, void *data)
{
    wf_view t = wf_view_dense(data, to, 4, v->dims);
    if (wf_view_lies_last(v)) {
        wf_last_strides(v->dims, t.strides);
    }
    return t;
}

/* Runs a row in a type that holds all values of x's, as many images at a time as a cache does: halves are rounded once, at the end,
 * and numbers are the same. */
static int run_wider(wf_exec *e, wf_exec_fn run)
{
    enum { IMAGES = 1 << 17 /* elements */ };
    const wf_view *x = &e->src[0], *y = &e->dst[0];
    const int to = wf_dtype_kind(x->dtype) == 2 ? WEFT_F32 : WEFT_I32;
    const int64_t all = y->dims[0], in = wf_view_numel(x) / all, out = wf_view_numel(y) / all;
    const int64_t some = IMAGES / (in + out) + 1, n = some < all ? some : all;
    const size_t bytes = wf_scratch_bytes((in + out) * n, wf_dtype_size(to));
    char *const data = bytes ? wf_scratch(bytes) : NULL;
    int code = data ? 0 : wf_no_memory(e->why, bytes);
    for (int64_t i = 0; !code && i < all; i += n) {
        wf_view from = *x, dst[2] = {*y, e->ndst > 1 ? e->dst[1] : *y};
        from.dims[0] = dst[0].dims[0] = dst[1].dims[0] = all - i < n ? all - i : n;
        from.data = (char *)from.data + i * x->strides[0] * (int64_t)wf_dtype_size(x->dtype);
        dst[0].data = (char *)dst[0].data + i * out * (int64_t)wf_dtype_size(y->dtype);
        dst[1].data = (char *)dst[1].data + i * out * (int64_t)wf_dtype_size(dst[1].dtype);
        const wf_view wide = dense_of(&from, to, data), narrow = dst[0];
        dst[0] = dense_of(&narrow, to, data + in * n * (int64_t)wf_dtype_size(to));
        wf_copy(&wide, &from);
        wf_exec part = *e;
        part.src = &wide;
        part.dst = dst;
        code = run(&part);
        wf_copy(&narrow, &dst[0]);
    }
    wf_scratch_free(data, bytes);
    return code;
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
    const bool kernel = x->strides[1] == 1 && (!max || a.h * a.w <= INT32_MAX);
    const bool last = wf_view_lies_last(y) && kernel && x->dtype != WEFT_I64;
    if (!of[last]) {
        return run_wider(e, wf_exec_pool2d);
    }
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
    const bool last = wf_view_lies_last(dx) && g->strides[1] == 1;
    if (!of[last]) {
        return run_wider(e, wf_exec_avg_pool2d_bwd);
    }
    run_rows(of, last, &a);
    return 0;
}
