/*
 * eager/pool2d.c -- max_pool2d, avg_pool2d and the gradient of the latter.
 *
 * A window is walked in row-major order in the compute type. The maximum is the first one met (its
 * index is h * width + w of the input plane); NaN wins over every number, the first NaN over later
 * ones. The mean is the sum divided by the number of elements in the window: those inside the input,
 * or with count_include_pad those inside the padded input (ceil mode may reach beyond both).
 * The gradient gathers: every input element adds what its windows give, in row-major order of the
 * windows, so tasks never write to the same place.
 */
#include "eager/dense.h"

typedef struct pool_args {
    const wf_view *in; /* forward: x; backward: g */
    void *out;
    int64_t *index;
    int64_t h, w, oh, ow; /* input plane, output plane */
    int64_t kernel[2], stride[2], pad[2], dilation[2];
    bool count_pad;
} pool_args;

/* First and one-past-last kernel position of output o that lies inside [0, n). */
static inline void clip(int64_t o, int64_t n, const pool_args *a, int side, int64_t *start,
                        int64_t *lo, int64_t *hi)
{
    int64_t d = a->dilation[side];
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

/* Integers that order like the values, NaN greatest, -0 equal to +0: comparing and selecting them is
 * two cycles where floats would need a chain of compares and masks (or mispredicted branches). */
static inline int32_t key_f32(float x)
{
    const float y = x + 0.0f; /* -0 becomes +0 */
    int32_t u;
    memcpy(&u, &y, sizeof u);
    const int32_t key = u ^ ((u >> 31) & INT32_MAX);
    return y != y ? INT32_MAX : key;
}
static inline int64_t key_f64(double x)
{
    const double y = x + 0.0;
    int64_t u;
    memcpy(&u, &y, sizeof u);
    const int64_t key = u ^ ((u >> 63) & INT64_MAX);
    return y != y ? INT64_MAX : key;
}
static inline int32_t key_f16(uint16_t v)
{
    return key_f32(wf_f32_of_f16(v));
}
static inline int32_t key_bf16(uint16_t v)
{
    return key_f32(wf_f32_of_bf16(v));
}

#define MAX_ROWS(suffix, type, ordered, key)                                                       \
    static void max_rows_##suffix(void *arg, int64_t begin, int64_t end)                           \
    {                                                                                              \
        const pool_args *a = arg;                                                                  \
        const wf_view *v = a->in;                                                                  \
        const int64_t hs = v->strides[2], ws = v->strides[3], width = a->w;                        \
        const int64_t dh = a->dilation[0], dw = a->dilation[1];                                    \
        for (int64_t r = begin; r < end; r++) {                                                    \
            int64_t plane = r / a->oh, h0, hlo, hhi;                                               \
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
                ((type *)a->out)[r * a->ow + o] = in[from];                                        \
                a->index[r * a->ow + o] = index;                                                   \
            }                                                                                      \
        }                                                                                          \
    }
MAX_ROWS(u8, uint8_t, int32_t, SAME)
MAX_ROWS(i8, int8_t, int32_t, SAME)
MAX_ROWS(i16, int16_t, int32_t, SAME)
MAX_ROWS(i32, int32_t, int32_t, SAME)
MAX_ROWS(i64, int64_t, int64_t, SAME)
MAX_ROWS(f16, uint16_t, int32_t, key_f16)
MAX_ROWS(bf16, uint16_t, int32_t, key_bf16)
MAX_ROWS(f32, float, int32_t, key_f32)
MAX_ROWS(f64, double, int64_t, key_f64)
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

#define AVG_ROWS(suffix, type, compute, load, store)                                               \
    static void avg_rows_##suffix(void *arg, int64_t begin, int64_t end)                           \
    {                                                                                              \
        const pool_args *a = arg;                                                                  \
        const wf_view *v = a->in;                                                                  \
        int64_t hs = v->strides[2], ws = v->strides[3];                                            \
        for (int64_t r = begin; r < end; r++) {                                                    \
            int64_t h0, hlo, hhi;                                                                  \
            const type *in =                                                                       \
                (const type *)v->data + wf_offset_of(r / a->oh, 2, v->dims, v->strides);           \
            clip(r % a->oh, a->h, a, 0, &h0, &hlo, &hhi);                                          \
            for (int64_t o = 0; o < a->ow; o++) {                                                  \
                int64_t w0, wlo, whi;                                                              \
                clip(o, a->w, a, 1, &w0, &wlo, &whi);                                              \
                compute sum = 0;                                                                   \
                for (int64_t i = h0 + hlo; i < h0 + hhi; i++) {                                    \
                    for (int64_t j = w0 + wlo; j < w0 + whi; j++) {                                \
                        sum += load(in[i * hs + j * ws]);                                          \
                    }                                                                              \
                }                                                                                  \
                int64_t n = window_count(a, h0, hhi - hlo, w0, whi - wlo);                         \
                ((type *)a->out)[r * a->ow + o] = store(sum / (compute)n);                         \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    /* Rows of the input plane; a->in is the gradient of the output plane. */                      \
    static void avg_back_##suffix(void *arg, int64_t begin, int64_t end)                           \
    {                                                                                              \
        const pool_args *a = arg;                                                                  \
        const wf_view *v = a->in;                                                                  \
        for (int64_t r = begin; r < end; r++) {                                                    \
            const type *g =                                                                        \
                (const type *)v->data + wf_offset_of(r / a->h, 2, v->dims, v->strides);            \
            int64_t top = r % a->h + a->pad[0];                                                    \
            int64_t o_lo = top < a->kernel[0] ? 0 : (top - a->kernel[0]) / a->stride[0] + 1;       \
            int64_t o_hi = top / a->stride[0] + 1 < a->oh ? top / a->stride[0] + 1 : a->oh;        \
            for (int64_t c = 0; c < a->w; c++) {                                                   \
                int64_t left = c + a->pad[1];                                                      \
                int64_t p_lo = left < a->kernel[1] ? 0 : (left - a->kernel[1]) / a->stride[1] + 1; \
                int64_t p_hi = left / a->stride[1] + 1 < a->ow ? left / a->stride[1] + 1 : a->ow;  \
                compute sum = 0;                                                                   \
                for (int64_t o = o_lo; o < o_hi; o++) {                                            \
                    int64_t h0, hlo, hhi;                                                          \
                    clip(o, a->h, a, 0, &h0, &hlo, &hhi);                                          \
                    for (int64_t p = p_lo; p < p_hi; p++) {                                        \
                        int64_t w0, wlo, whi;                                                      \
                        clip(p, a->w, a, 1, &w0, &wlo, &whi);                                      \
                        int64_t n = window_count(a, h0, hhi - hlo, w0, whi - wlo);                 \
                        sum += load(g[o * v->strides[2] + p * v->strides[3]]) / (compute)n;        \
                    }                                                                              \
                }                                                                                  \
                ((type *)a->out)[r * a->w + c] = store(sum);                                       \
            }                                                                                      \
        }                                                                                          \
    }
AVG_ROWS(f16, uint16_t, float, load_f16, wf_f16_of_f32)
AVG_ROWS(bf16, uint16_t, float, load_bf16, wf_bf16_of_f32)
AVG_ROWS(f32, float, float, SAME, SAME)
AVG_ROWS(f64, double, double, SAME, SAME)
#undef AVG_ROWS
#undef SAME

static pool_args pool_of(const wf_exec *e, bool dilated)
{
    pool_args a = {.in = &e->src[0], .out = e->dst[0].data};
    a.count_pad = (e->attr->flags & WF_FLAG_COUNT_PAD) != 0;
    for (int i = 0; i < 2; i++) {
        a.kernel[i] = e->attr->ints[i];
        a.stride[i] = e->attr->ints[2 + i];
        a.pad[i] = e->attr->ints[4 + i];
        a.dilation[i] = dilated ? e->attr->ints[6 + i] : 1;
    }
    return a;
}

static const wf_task_fn max_of[WF_NDTYPE] = {
    [WEFT_U8] = max_rows_u8,     [WEFT_I8] = max_rows_i8,   [WEFT_I16] = max_rows_i16,
    [WEFT_I32] = max_rows_i32,   [WEFT_I64] = max_rows_i64, [WEFT_F16] = max_rows_f16,
    [WEFT_BF16] = max_rows_bf16, [WEFT_F32] = max_rows_f32, [WEFT_F64] = max_rows_f64};
static const wf_task_fn avg_of[WF_NDTYPE] = {[WEFT_F16] = avg_rows_f16,
                                             [WEFT_BF16] = avg_rows_bf16,
                                             [WEFT_F32] = avg_rows_f32,
                                             [WEFT_F64] = avg_rows_f64};
static const wf_task_fn avg_back_of[WF_NDTYPE] = {[WEFT_F16] = avg_back_f16,
                                                  [WEFT_BF16] = avg_back_bf16,
                                                  [WEFT_F32] = avg_back_f32,
                                                  [WEFT_F64] = avg_back_f64};

static int64_t pool_grain(const pool_args *a, int64_t width)
{
    return wf_row_grain(width * a->kernel[0] * a->kernel[1] * 4);
}

WF_EXEC_DECL(pool2d)
{
    bool max = e->op == WF_OP_MAX_POOL2D;
    const wf_view *x = &e->src[0];
    wf_view *y = &e->dst[0];
    int64_t n = wf_view_numel(y);
    if (n == 0) {
        return 0;
    }
    pool_args a = pool_of(e, max);
    a.index = max ? e->dst[1].data : NULL;
    a.h = x->dims[2];
    a.w = x->dims[3];
    a.oh = y->dims[2];
    a.ow = y->dims[3];
    wf_parallel_for(n / a.ow, pool_grain(&a, a.ow), max ? max_of[x->dtype] : avg_of[x->dtype], &a);
    return 0;
}

WF_EXEC_DECL(avg_pool2d_bwd)
{
    const wf_view *g = &e->src[0];
    wf_view *dx = &e->dst[0];
    int64_t n = wf_view_numel(dx);
    if (n == 0) {
        return 0;
    }
    pool_args a = pool_of(e, false);
    a.h = dx->dims[2];
    a.w = dx->dims[3];
    a.oh = g->dims[2];
    a.ow = g->dims[3];
    wf_parallel_for(n / a.w, pool_grain(&a, a.w), avg_back_of[g->dtype], &a);
    return 0;
}
