/*
 * tests/unit/test_conv.c -- convolution and its gradients against direct sums in higher precision,
 * on all back ends.
 *
 * The bound is that of test_gemm.c with k = number of terms of the element: any order of k products
 * and additions in the accumulation type, then one rounding to storage. Where a back end sums parts
 * with filled-in zeros, zeros add no error.
 *
 * ctest: threads optimised
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "eager/cpu/conv_pack.h"
#include "eager/cpu/gemm.h"
#include "eager/cpuid.h"
#include "eager/pool.h"
#include "jit/ir/dtype.h"
#include "tests/support/effort.h"

static uint64_t rng_state = 0x9E3779B97F4A7C15u;

static int64_t between(int64_t lo, int64_t hi)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return lo + (int64_t)(rng_state % (uint64_t)(hi - lo + 1));
}

typedef struct tensor {
    double *x; /* what the stored values are, exactly */
    void *data;
    int64_t count;
    int dtype;
} tensor;

static void put(tensor *t, int64_t i, double v)
{
    if (t->dtype == WEFT_F64)
        ((double *)t->data)[i] = v;
    else if (t->dtype == WEFT_F32)
        ((float *)t->data)[i] = (float)v;
    else
        ((uint16_t *)t->data)[i] =
            t->dtype == WEFT_BF16 ? wf_bf16_of_f32((float)v) : wf_f16_of_f32((float)v);
}

static double get(const tensor *t, int64_t i)
{
    if (t->dtype == WEFT_F64)
        return ((double *)t->data)[i];
    if (t->dtype == WEFT_F32)
        return ((float *)t->data)[i];
    uint16_t h = ((uint16_t *)t->data)[i];
    return t->dtype == WEFT_BF16 ? wf_f32_of_bf16(h) : wf_f32_of_f16(h);
}

/* Memory for a result: what is not written, or written past it, shows. */
static tensor blank(int dtype, int64_t count)
{
    const size_t size = (size_t)(count + 1) * 8;
    return (tensor){.data = memset(malloc(size), 0x5A, size), .count = count, .dtype = dtype};
}

/* What operands are made of, as the type has it: each number is converted once. */
enum { NUMBERS = 2001 };
static const tensor *numbers(int dtype)
{
    static tensor of[WEFT_DTYPE_COUNT];
    tensor *t = &of[dtype];
    if (t->count == 0) {
        *t = blank(dtype, NUMBERS);
        t->x = malloc(NUMBERS * sizeof *t->x);
        for (int64_t k = 0; k < NUMBERS; k++) {
            put(t, k, (double)(k - NUMBERS / 2) / 900.0);
            t->x[k] = get(t, k);
        }
    }
    return t;
}

static tensor make(int dtype, int64_t count)
{
    tensor t = blank(dtype, count);
    const tensor *from = numbers(dtype);
    t.x = malloc((size_t)(count + 1) * sizeof *t.x);
#define FILL(type)                                                                                 \
    for (int64_t i = 0; i < count; i++) {                                                          \
        const int64_t k = between(0, NUMBERS - 1);                                                 \
        ((type *)t.data)[i] = ((const type *)from->data)[k];                                       \
        t.x[i] = from->x[k];                                                                       \
    }
    if (wf_dtype_size(dtype) == 2)
        FILL(uint16_t)
    else if (wf_dtype_size(dtype) == 4)
        FILL(float)
    else
        FILL(double)
#undef FILL
    return t;
}

static void drop(tensor *t)
{
    free(t->x);
    free(t->data);
}

/* Rows and columns change places. */
UNWATCHED static void turn(void *to, const void *from, int64_t rows, int64_t columns, size_t size)
{
#define TURN(type)                                                                                 \
    for (int64_t c = 0; c < columns; c++)                                                          \
        for (int64_t r = 0; r < rows; r++)                                                         \
    ((type *)to)[c * rows + r] = ((const type *)from)[r * columns + c]
    if (size == 2)
        TURN(uint16_t);
    else if (size == 4)
        TURN(uint32_t);
    else
        TURN(uint64_t);
#undef TURN
}

/* The image or the result of d, planes one by one, into d's own layout, or back; size is that of an element. */
UNWATCHED static void reorder(const wf_conv_desc *d, bool dst, bool back, const void *from,
                              void *to, size_t size)
{
    const int64_t channels = dst ? d->o : d->c, area = dst ? d->oh * d->ow : d->h * d->w;
    const int64_t bytes = channels * area * (int64_t)size;
    for (int64_t n = 0; n < d->n; n++) {
        const char *in = (const char *)from + n * bytes;
        char *out = (char *)to + n * bytes;
        if (d->layout & (dst ? WF_CONV_DST_NHWC : WF_CONV_SRC_NHWC))
            turn(out, in, back ? area : channels, back ? channels : area, size);
        else
            memcpy(out, in, (size_t)bytes);
    }
}

typedef struct sums {
    double *sum, *mag, *terms;
} sums;

static double *doubles(int64_t count)
{
    return calloc((size_t)count + 1, sizeof(double));
}

static void sums_drop(sums *s)
{
    free(s->sum);
    free(s->mag);
    free(s->terms);
}

/* Planes of the references are of whole steps, behind their ends are zeros: loops over them are quick without more ado. */
enum { STEP = 8 };

/* sum += b * a, and the magnitudes. */
UNWATCHED static void add_row(double *restrict sum, double *restrict mag, const double *restrict a,
                              double b, int64_t n)
{
    const double size = fabs(b);
    for (int64_t x = 0; x < n; x += STEP)
        for (int k = 0; k < STEP; k++) {
            sum[x + k] += b * a[x + k];
            mag[x + k] += size * fabs(a[x + k]);
        }
}

/* *sum += the products of a and b, and the magnitudes. */
UNWATCHED static void add_products(double *sum, double *mag, const double *restrict a,
                                   const double *restrict b, int64_t n)
{
    double all[STEP] = {0}, sizes[STEP] = {0};
    for (int64_t x = 0; x < n; x += STEP)
        for (int k = 0; k < STEP; k++) {
            const double product = a[x + k] * b[x + k];
            all[k] += product;
            sizes[k] += fabs(product);
        }
    for (int k = 0; k < STEP; k++)
        *sum += all[k], *mag += sizes[k];
}

/* Where each tap of each output lies in a plane of the image, -1 outside it: a row of n, the outputs and what fills it up, per tap. */
UNWATCHED static int64_t *windows(const wf_conv_desc *d, int64_t n)
{
    int64_t *spot = malloc((size_t)(d->kh * d->kw * n + 1) * sizeof *spot), *at = spot;
    for (int64_t i = 0; i < d->kh; i++)
        for (int64_t j = 0; j < d->kw; j++, at += n) {
            int64_t p = 0;
            for (int64_t y = 0; y < d->oh; y++)
                for (int64_t x = 0; x < d->ow; x++, p++) {
                    const int64_t iy = y * d->stride[0] + i * d->dilation[0] - d->pad[0];
                    const int64_t ix = x * d->stride[1] + j * d->dilation[1] - d->pad[1];
                    const bool inside = iy >= 0 && iy < d->h && ix >= 0 && ix < d->w;
                    at[p] = inside ? iy * d->w + ix : -1;
                }
            for (; p < n; p++)
                at[p] = -1;
        }
    return spot;
}

enum { FORWARD, DATA, WEIGHT };

/* How many products each element of a plane of the result (of a kernel, for WEIGHT) is the sum of. */
UNWATCHED static int64_t *terms_of(const wf_conv_desc *d, int what, const int64_t *spot, int64_t n)
{
    const int64_t each = what == FORWARD ? d->c / d->groups
                         : what == DATA  ? d->o / d->groups
                                         : d->n;
    const int64_t count = what == FORWARD ? n : what == DATA ? d->h * d->w : d->kh * d->kw;
    int64_t *terms = calloc((size_t)count + 1, sizeof *terms);
    for (int64_t tap = 0; tap < d->kh * d->kw; tap++)
        for (int64_t p = 0; p < n; p++) {
            const int64_t at = spot[tap * n + p];
            if (at >= 0)
                terms[what == FORWARD ? p : what == DATA ? at : tap] += each;
        }
    return terms;
}

/* An image of the reference, of rows as long as planes are, in d's own layout. */
UNWATCHED static double *own_of(const wf_conv_desc *d, bool dst, const double *planes, int64_t row)
{
    const int64_t count = d->n * (dst ? d->o : d->c), area = dst ? d->oh * d->ow : d->h * d->w;
    double *close = doubles(count * area), *own = doubles(count * area);
    for (int64_t k = 0; k < count; k++)
        memcpy(close + k * area, planes + k * row, (size_t)area * sizeof *close);
    reorder(d, dst, false, close, own, sizeof *own);
    free(close);
    return own;
}

/* All products one by one: of a tap and a channel of a sample, the elements of the image under it make a plane like a result's. */
UNWATCHED static sums reference(const wf_conv_desc *d, int what, const double *src,
                                const double *weight, const double *ddst)
{
    const int64_t cg = d->c / d->groups, og = d->o / d->groups, taps = d->kh * d->kw;
    const int64_t area = d->oh * d->ow, in_area = d->h * d->w, n = (area + STEP - 1) / STEP * STEP;
    const int64_t in_count = d->n * d->c * in_area, out_count = d->n * d->o * n;
    const int64_t count = what == FORWARD ? out_count : what == DATA ? in_count : d->o * cg * taps;
    double *in = doubles(in_count), *out = doubles(out_count);
    double *plane = doubles(n), *sizes = doubles(n);
    if (src)
        reorder(d, false, true, src, in, sizeof *in);
    if (ddst) {
        double *close = doubles(d->n * d->o * area);
        reorder(d, true, true, ddst, close, sizeof *close);
        for (int64_t k = 0; k < d->n * d->o; k++)
            memcpy(out + k * n, close + k * area, (size_t)area * sizeof *out);
        free(close);
    }
    int64_t *spot = windows(d, n), *terms = terms_of(d, what, spot, n);
    sums s = {doubles(count), doubles(count), NULL};
    for (int64_t k = 0; k < d->n * d->c * taps; k++) {
        const int64_t tap = k % taps, channel = k / taps % d->c, sample = k / taps / d->c;
        const int64_t *at = spot + tap * n, first = channel / cg * og;
        const int64_t image = (sample * d->c + channel) * in_area;
        for (int64_t p = 0; p < n; p++)
            plane[p] = what == DATA || at[p] < 0 ? 0 : in[image + at[p]];
        memset(sizes, 0, (size_t)n * sizeof *sizes);
        for (int64_t o = first; o < first + og; o++) {
            const int64_t w = (o * cg + channel % cg) * taps + tap, row = (sample * d->o + o) * n;
            if (what == FORWARD)
                add_row(s.sum + row, s.mag + row, plane, weight[w], n);
            else if (what == DATA)
                add_row(plane, sizes, out + row, weight[w], n);
            else
                add_products(&s.sum[w], &s.mag[w], plane, out + row, n);
        }
        for (int64_t p = 0; p < area && what == DATA; p++)
            if (at[p] >= 0) {
                s.sum[image + at[p]] += plane[p];
                s.mag[image + at[p]] += sizes[p];
            }
    }
    free(in), free(out), free(plane), free(sizes), free(spot);
    /* And of each element how many, all in the order of the result. */
    const int64_t row = what == FORWARD ? n : what == DATA ? in_area : taps;
    double *each = doubles(count);
    for (int64_t k = 0; k < count; k++)
        each[k] = (double)terms[k % row];
    free(terms);
    const sums planes = s;
    s.terms = each;
    if (what != WEIGHT) {
        s = (sums){own_of(d, what == FORWARD, planes.sum, row),
                   own_of(d, what == FORWARD, planes.mag, row),
                   own_of(d, what == FORWARD, each, row)};
        free(planes.sum), free(planes.mag), free(each);
    }
    return s;
}

/* What a result has, exactly. */
UNWATCHED static double *values_of(const tensor *t)
{
    double *x = doubles(t->count);
    for (int64_t i = 0; i < t->count; i++)
        x[i] = get(t, i);
    return x;
}

static void check(const wf_conv_desc *d, const char *what, const tensor *got, const sums *s)
{
    /* The reference itself sums in double: its error joins the bound (it is all of it for f64). */
    double unit = d->dtype == WEFT_F64 ? 0x1p-53 : 0x1p-24;
    double store = d->dtype == WEFT_F16 ? 0x1p-11 : d->dtype == WEFT_BF16 ? 0x1p-8 : 0;
    double tiny = d->dtype == WEFT_F16 ? 0x1p-24 : 0x1p-126;
    double *x = values_of(got);
    for (int64_t i = 0; i < got->count; i++) {
        double u = (unit + 0x1p-53) * (s->terms[i] + 2), gamma = u / (1 - u);
        double bound = gamma * s->mag[i];
        bound += store * (fabs(s->sum[i]) + bound) + tiny;
        if (fabs(x[i] - s->sum[i]) <= bound)
            continue;
        cr_assert_fail(
            "%s %s %s n%ld c%ld %ldx%ld o%ld k%ldx%ld s%ld,%ld p%ld,%ld d%ld,%ld g%ld layout %u: "
            "element %ld is %g, should be %g, bound %g",
            wf_gemm_backend_name(), what, wf_dtype_name(d->dtype), (long)d->n, (long)d->c,
            (long)d->h, (long)d->w, (long)d->o, (long)d->kh, (long)d->kw, (long)d->stride[0],
            (long)d->stride[1], (long)d->pad[0], (long)d->pad[1], (long)d->dilation[0],
            (long)d->dilation[1], (long)d->groups, d->layout, (long)i, x[i], s->sum[i], bound);
    }
    free(x);
    const char *end = (const char *)got->data + (size_t)got->count * 8 + 8;
    for (const char *p = (const char *)got->data + (size_t)got->count * wf_dtype_size(d->dtype);
         p < end; p++)
        if (*p != 0x5A)
            cr_assert_fail("%s wrote past its result", what);
}

static void add_bias(const wf_conv_desc *d, sums *s, const double *bias)
{
    const bool last = d->layout & WF_CONV_DST_NHWC;
    const int64_t area = d->oh * d->ow;
    for (int64_t i = 0; i < d->n * d->o * area; i++) {
        const double b = bias[(last ? i : i / area) % d->o];
        s->sum[i] += b;
        s->mag[i] += fabs(b);
        s->terms[i]++;
    }
}

static void all_three(const wf_conv_desc *d)
{
    int64_t ns = d->n * d->c * d->h * d->w, nd = d->n * d->o * d->oh * d->ow;
    int64_t nw = d->o * (d->c / d->groups) * d->kh * d->kw;
    tensor src = make(d->dtype, ns), w = make(d->dtype, nw), bias = make(d->dtype, d->o);
    tensor dst = blank(d->dtype, nd), ddst = make(d->dtype, nd);
    sums s = reference(d, FORWARD, src.x, w.x, NULL);
    cr_assert_eq(wf_conv2d_forward(d, src.data, w.data, NULL, dst.data), 0);
    check(d, "forward", &dst, &s);
    add_bias(d, &s, bias.x);
    cr_assert_eq(wf_conv2d_forward(d, src.data, w.data, bias.data, dst.data), 0);
    check(d, "forward with a bias", &dst, &s);
    sums_drop(&s);
    cr_assert_eq(wf_conv2d_backward_data(d, ddst.data, w.data, src.data), 0);
    s = reference(d, DATA, NULL, w.x, ddst.x);
    check(d, "backward data", &src, &s);
    sums_drop(&s);
    for (int64_t i = 0; i < ns; i++)
        put(&src, i, src.x[i]);
    cr_assert_eq(wf_conv2d_backward_weight(d, src.data, ddst.data, w.data), 0);
    s = reference(d, WEIGHT, src.x, NULL, ddst.x);
    check(d, "backward weight", &w, &s);
    sums_drop(&s);
    drop(&src), drop(&w), drop(&bias), drop(&dst), drop(&ddst);
}

static int64_t out_size(int64_t in, int64_t k, int64_t stride, int64_t pad, int64_t dilation)
{
    int64_t room = in + 2 * pad - dilation * (k - 1) - 1;
    return room < 0 ? -1 : room / stride + 1;
}

/* d with what a plain convolution has where it says nothing, and the extents of its result. */
static wf_conv_desc completed(wf_conv_desc d)
{
    d.groups = d.groups ? d.groups : 1;
    for (int k = 0; k < 2; k++) {
        d.stride[k] = d.stride[k] ? d.stride[k] : 1;
        d.dilation[k] = d.dilation[k] ? d.dilation[k] : 1;
    }
    d.oh = out_size(d.h, d.kh, d.stride[0], d.pad[0], d.dilation[0]);
    d.ow = out_size(d.w, d.kw, d.stride[1], d.pad[1], d.dilation[1]);
    return d;
}

static wf_conv_desc random_desc(int dtype)
{
    for (;;) {
        wf_conv_desc d = {.dtype = dtype, .layout = (unsigned)between(0, 3), .n = between(1, 3)};
        d.groups = between(0, 2) ? 1 : between(1, 4);
        d.c = d.groups * between(1, 9);
        d.o = d.groups * between(1, 9);
        if (between(0, 5) == 0) /* depthwise */
            d.groups = d.c = d.o = between(1, 35);
        if (between(0, 7) == 0)
            d.c = 16 * d.groups, d.o = 32 * d.groups;
        d.h = between(1, 13);
        d.w = between(1, 13);
        d.kh = between(1, 4);
        d.kw = between(1, 4);
        for (int i = 0; i < 2; i++) {
            d.stride[i] = between(1, 3);
            d.pad[i] = between(0, 3);
            d.dilation[i] = between(0, 2) ? 1 : between(1, 3);
        }
        d = completed(d);
        if (d.oh >= 0 && d.ow >= 0)
            return d;
    }
}

static const int float_types[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16};
/* ThreadSanitizer multiplies the time of the references by 20 to 50 and needs threads, not every type and shape. */
#if UNDER_TSAN
enum { SHAPES = 60, TYPE_STEP = 4 };
#else
enum { SHAPES = 60, TYPE_STEP = 1 };
#endif
static const int backends[] = {WF_GEMM_BUILTIN, WF_GEMM_ONEDNN, WF_GEMM_AUTO};
enum { BACKENDS = sizeof backends / sizeof *backends };

/* AUTO is another back end than the two others in bf16 only: matrix units. */
static bool is_worth(size_t backend, size_t type)
{
    return backends[backend] == WF_GEMM_AUTO ? float_types[type] == WEFT_BF16
                                             : type % TYPE_STEP == 0;
}

Test(conv, random_shapes)
{
    for (size_t b = 0; b < BACKENDS; b++) {
        wf_gemm_set_backend(backends[b]);
        for (size_t t = 0; t < 4; t++)
            for (int i = 0; i < (int)effort_of(SHAPES) && is_worth(b, t); i++) {
                wf_conv_desc d = random_desc(float_types[t]);
                all_three(&d);
            }
    }
}

/* Layers large enough for several blocks, ragged last ones included. */
static const wf_conv_desc layers[] = {
    {.n = 2, .c = 3, .h = 37, .w = 41, .o = 20, .kh = 7, .kw = 7, .stride = {2, 2}, .pad = {3, 3}},
    {.n = 3, .c = 16, .h = 19, .w = 23, .o = 24, .kh = 3, .kw = 3, .stride = {1, 1}, .pad = {1, 1}},
    {.n = 1, .c = 40, .h = 30, .w = 30, .o = 33, .kh = 1, .kw = 1, .stride = {1, 1}, .pad = {0, 0}},
    {.n = 9, .c = 8, .h = 9, .w = 9, .o = 16, .kh = 3, .kw = 3, .stride = {2, 2}, .pad = {1, 1}},
    {.n = 2, .c = 32, .h = 9, .w = 11, .o = 64, .kh = 3, .kw = 3, .stride = {1, 1}, .pad = {1, 1}},
    {.n = 5, .c = 64, .h = 9, .w = 8, .o = 72, .kh = 3, .kw = 3, .stride = {2, 2}, .pad = {1, 1}},
    {.n = 1,
     .c = 96,
     .h = 7,
     .w = 6,
     .o = 32,
     .kh = 5,
     .kw = 3,
     .stride = {1, 1},
     .pad = {2, 0}}, /* more weights than images */
    {.n = 2, .c = 40, .h = 5, .w = 6, .o = 136, .kh = 3, .kw = 3, .stride = {1, 1}, .pad = {1, 1}},
    {.n = 1, .c = 16, .h = 6, .w = 6, .o = 528, .kh = 3, .kw = 3, .stride = {1, 1}, .pad = {1, 1}},
    {.n = 2, .c = 144, .h = 5, .w = 6, .o = 48, .kh = 3, .kw = 3, .stride = {1, 1}, .pad = {1, 1}},
    {.n = 1, .c = 32, .h = 26, .w = 18, .o = 48, .kh = 3, .kw = 3, .stride = {1, 1}, .pad = {0, 1}},
    /* 1 x 1 kernels that see every other pixel: of few channels, of few to sum over for the image's gradient, of more. */
    {.n = 2, .c = 8, .h = 9, .w = 10, .o = 24, .kh = 1, .kw = 1, .stride = {2, 2}, .pad = {0, 0}},
    {.n = 3, .c = 24, .h = 15, .w = 9, .o = 40, .kh = 1, .kw = 1, .stride = {2, 1}, .pad = {0, 0}},
    {.n = 2, .c = 40, .h = 20, .w = 29, .o = 72, .kh = 1, .kw = 1, .stride = {2, 3}, .pad = {0, 0}},
    /* Gradients of weights by pieces of one image; by five samples; a 1 x 1 kernel of few channels at many positions. */
    {.n = 1, .c = 3, .h = 41, .w = 40, .o = 48, .kh = 3, .kw = 3, .stride = {1, 1}, .pad = {1, 1}},
    {.n = 5, .c = 8, .h = 20, .w = 24, .o = 32, .kh = 3, .kw = 3, .stride = {1, 1}, .pad = {1, 1}},
    {.n = 2, .c = 8, .h = 32, .w = 33, .o = 16, .kh = 1, .kw = 1, .stride = {1, 1}, .pad = {0, 0}},
    /* Windows larger than the image, of one group and of several; weights of more than 1 MiB. */
    {.n = 3, .c = 70, .h = 2, .w = 2, .o = 40, .kh = 3, .kw = 3, .stride = {1, 1}, .pad = {1, 1}},
    {.n = 3,
     .c = 32,
     .h = 2,
     .w = 3,
     .o = 64,
     .kh = 3,
     .kw = 4,
     .stride = {1, 2},
     .pad = {1, 2},
     .groups = 16},
    {.n = 1, .c = 96, .h = 4, .w = 4, .o = 320, .kh = 3, .kw = 3, .stride = {2, 2}, .pad = {1, 1}},
    /* Long rows: of many channels, of as many groups, of one channel with the padding on one side longer than the rest. */
    {.n = 2, .c = 32, .h = 1, .w = 530, .o = 20, .kh = 1, .kw = 3, .stride = {1, 2}, .pad = {0, 1}},
    {.n = 2,
     .c = 24,
     .h = 1,
     .w = 262,
     .o = 24,
     .kh = 1,
     .kw = 5,
     .stride = {1, 1},
     .pad = {0, 3},
     .dilation = {1, 2},
     .groups = 24},
    {.n = 3,
     .c = 1,
     .h = 1,
     .w = 800,
     .o = 24,
     .kh = 1,
     .kw = 21,
     .stride = {1, 3},
     .pad = {0, 10}},
    {.n = 2,
     .c = 1,
     .h = 1,
     .w = 330,
     .o = 16,
     .kh = 1,
     .kw = 18,
     .stride = {1, 1},
     .pad = {0, 0},
     .dilation = {1, 4}},
};
enum { LAYERS = sizeof layers / sizeof *layers };

static wf_conv_desc layer(size_t i, int dtype, unsigned layout)
{
    wf_conv_desc d = layers[i];
    d.dtype = dtype;
    d.layout = layout;
    return completed(d);
}

Test(conv, layers)
{
    for (size_t b = 0; b < BACKENDS; b++) {
        wf_gemm_set_backend(backends[b]);
        for (size_t t = 0; t < 4; t++)
            for (size_t i = 0; i < LAYERS && is_worth(b, t); i++) {
                wf_conv_desc d = layer(i, float_types[t], (unsigned)between(0, 3));
                all_three(&d);
            }
    }
}

/* More samples than are added up at once: of images smaller than the kernel, of long rows. */
Test(conv, pieces_of_samples)
{
    static const wf_conv_desc of[] = {
        {.n = 301, .c = 200, .h = 2, .w = 2, .o = 1, .kh = 3, .kw = 3, .pad = {1, 1}},
        {.n = 9, .c = 16, .h = 1, .w = 270, .o = 16, .kh = 1, .kw = 32, .pad = {0, 10}},
        {.n = 41, .c = 1, .h = 1, .w = 300, .o = 16, .kh = 1, .kw = 100, .pad = {0, 30}},
    };
    wf_gemm_set_backend(WF_GEMM_AUTO);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (unsigned layout = 0; layout < 4; layout += 3) {
            wf_conv_desc d = completed(of[i]);
            d.dtype = WEFT_F32, d.layout = layout;
            all_three(&d);
        }
}

/* Channels in whole steps of matrix units, channels last: sizes, borders and dilations of all kinds. */
Test(conv, whole_steps_of_channels)
{
    wf_gemm_set_backend(WF_GEMM_AUTO);
    for (int i = 0; i < (int)effort_of(SHAPES) / TYPE_STEP; i++) {
        wf_conv_desc d = {.dtype = WEFT_BF16, .layout = 3, .n = between(1, 3), .groups = 1};
        d.c = 32 * between(1, 2);
        d.o = 32 * between(1, 2);
        d.kh = between(1, 4);
        d.kw = between(1, 4);
        for (int x = 0; x < 2; x++) {
            d.dilation[x] = between(1, 2);
            d.pad[x] = between(0, 3);
        }
        d.h = (d.kh - 1) * d.dilation[0] + between(1, 9);
        d.w = (d.kw - 1) * d.dilation[1] + between(1, 9);
        d = completed(d);
        all_three(&d);
    }
}

/* Gradients of weights take any stride and any number of channels there. */
static wf_conv_desc units_desc(void)
{
    for (;;) {
        wf_conv_desc d = {.dtype = WEFT_BF16, .layout = 3, .n = between(1, 5), .groups = 1};
        d.c = between(0, 2) ? between(1, 40) : 32 * between(1, 5);
        d.o = between(0, 2) ? between(1, 70) : 32 * between(1, 5);
        d.kh = between(1, 7);
        d.kw = between(1, 7);
        for (int x = 0; x < 2; x++) {
            d.stride[x] = between(1, 3);
            d.dilation[x] = between(0, 2) ? 1 : between(1, 3);
            d.pad[x] = between(0, 3);
        }
        const bool large = between(0, 9) == 0;
        d.h = between(1, large ? 41 : 9);
        d.w = between(1, large ? 75 : 11);
        d = completed(d);
        if (d.oh > 0 && d.ow > 0)
            return d;
    }
}

Test(conv, gradients_of_weights_on_matrix_units)
{
    wf_gemm_set_backend(WF_GEMM_AUTO);
    for (int i = 0; i < (int)effort_of(2 * SHAPES) / TYPE_STEP; i++) {
        const wf_conv_desc d = units_desc();
        tensor src = make(WEFT_BF16, d.n * d.c * d.h * d.w),
               w = blank(WEFT_BF16, d.o * d.c * d.kh * d.kw);
        tensor ddst = make(WEFT_BF16, d.n * d.o * d.oh * d.ow);
        cr_assert_eq(wf_conv2d_backward_weight(&d, src.data, ddst.data, w.data), 0);
        sums s = reference(&d, WEIGHT, src.x, NULL, ddst.x);
        check(&d, "backward weight", &w, &s);
        sums_drop(&s);
        drop(&src), drop(&w), drop(&ddst);
    }
}

/* What oneDNN 2.6.3 computes wrongly on one machine or another (eager/cpu/dnnl_conv.c). CTest also runs this test as if the
 * machine had fewer instructions. */
Test(conv, what_onednn_computes_wrongly)
{
    static const wf_conv_desc problems[] = {
        /* Rows dilated, more than 28 columns: gradient of bf16 weights. */
        {.c = 18, .h = 14, .w = 40, .o = 37, .kh = 3, .kw = 3, .stride = {1, 1}, .pad = {1, 1}},
        {.c = 37, .h = 13, .w = 46, .o = 20, .kh = 4, .kw = 1, .stride = {1, 1}, .pad = {0, 0}},
        {.c = 7, .h = 18, .w = 33, .o = 7, .kh = 3, .kw = 3, .stride = {1, 1}, .groups = 7},
        /* Fewer columns than the stride: the same. */
        {.c = 64, .h = 12, .w = 2, .o = 32, .kh = 2, .kw = 2, .stride = {4, 4}, .pad = {1, 1}},
        {.c = 15, .h = 9, .w = 3, .o = 40, .kh = 3, .kw = 3, .stride = {4, 4}, .pad = {1, 2}},
        /* One tap, an odd number of channels to sum over, positions in thirties: gradient of a bf16 image. */
        {.c = 16, .h = 12, .w = 15, .o = 21, .kh = 1, .kw = 1, .stride = {1, 3}},
        {.c = 97, .h = 8, .w = 15, .o = 7, .kh = 1, .kw = 1, .stride = {4, 1}},
        /* One tap, five positions, no bf16 instructions: forward and gradient of the image. */
        {.c = 96, .h = 1, .w = 5, .o = 120, .kh = 1, .kw = 1, .stride = {1, 1}},
        {.c = 128, .h = 1, .w = 15, .o = 69, .kh = 1, .kw = 1, .stride = {1, 3}},
        /* One tap, strides, channels that do not fill a vector of AVX2 or AVX-512: gradient of f32 weights. */
        {.c = 4, .h = 32, .w = 64, .o = 20, .kh = 1, .kw = 1, .stride = {2, 2}},
        {.c = 1, .h = 15, .w = 44, .o = 79, .kh = 1, .kw = 1, .stride = {1, 4}},
        {.c = 14, .h = 22, .w = 61, .o = 80, .kh = 1, .kw = 1, .stride = {2, 1}},
    };
    wf_gemm_set_backend(WF_GEMM_ONEDNN);
    for (size_t i = 0; i < 2 * sizeof problems / sizeof *problems; i++) {
        wf_conv_desc d = problems[i / 2];
        d.dtype = i % 2 ? WEFT_BF16 : WEFT_F32;
        d.layout = WF_CONV_SRC_NHWC | WF_CONV_DST_NHWC;
        d.n = 2;
        d.dilation[0] = d.stride[0] == 1 && d.kh > 1 ? 3 : 1;
        d = completed(d);
        all_three(&d);
    }
}

/* An odd number of channels: oneDNN 2.6.3 multiplies the pixel behind by zero, and reads behind the image (dnnl_conv.c). */
Test(conv, what_onednn_reads_beside_windows)
{
    static const wf_conv_desc problems[] = {
        {.c = 73, .h = 22, .w = 30, .o = 56, .kh = 6, .kw = 7, .dilation = {4, 4}},
        {.c = 5, .h = 9, .w = 15, .o = 16, .kh = 3, .kw = 3, .dilation = {1, 2}},
        {.c = 3, .h = 8, .w = 11, .o = 128, .kh = 1, .kw = 1, .stride = {2, 2}},
        {.c = 62, .h = 9, .w = 12, .o = 32, .kh = 1, .kw = 3, .stride = {2, 2}, .groups = 2},
    };
    wf_gemm_set_backend(WF_GEMM_ONEDNN);
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        wf_conv_desc d = completed(problems[i]);
        d.dtype = WEFT_BF16;
        d.layout = WF_CONV_SRC_NHWC | WF_CONV_DST_NHWC;
        d.n = 1;
        tensor w = make(WEFT_BF16, d.o * (d.c / d.groups) * d.kh * d.kw);
        tensor dst = blank(WEFT_BF16, d.n * d.o * d.oh * d.ow);
        /* The image and, behind it, an infinity: a pixel more. */
        const int64_t count = d.n * d.c * d.h * d.w;
        tensor src = make(WEFT_BF16, count + d.c);
        for (int64_t e = 0; e < d.c; e++)
            put(&src, count + e, (double)INFINITY);
        const int64_t which = (d.w / 2 * d.h / 2 + 1) * d.c; /* one in it, of a first channel */
        put(&src, which, (double)INFINITY);
        src.x[which] = (double)INFINITY;
        cr_assert_eq(wf_conv2d_forward(&d, src.data, w.data, NULL, dst.data), 0);
        sums s = reference(&d, FORWARD, src.x, w.x, NULL);
        for (int64_t e = 0; e < dst.count; e++) {
            const double x = get(&dst, e), y = s.sum[e];
            cr_assert(isfinite(y) ? fabs(x - y) <= 0x1p-7 * (s.mag[e] + 1)
                      : isnan(y)  ? isnan(x)
                                  : x == y,
                      "problem %zu, element %ld is %g, should be %g", i, (long)e, x, y);
        }
        sums_drop(&s);
        drop(&src), drop(&w), drop(&dst);
    }
}

/* One tap, strides, few channels: oneDNN 2.6.3 brings the pixels of bf16 weights' gradients together beyond the end of what it has
 * allocated (conv.c). What lies there are blocks of the heap, which the C library finds spoilt as it joins them. */
Test(conv, what_onednn_writes_beside_its_memory)
{
    static const wf_conv_desc problems[] = {
        {.n = 4, .c = 7, .h = 4, .w = 34, .o = 6, .stride = {1, 2}},
        {.n = 4, .c = 2, .h = 8, .w = 34, .o = 47, .stride = {2, 2}},
        {.n = 2, .c = 6, .h = 4, .w = 18, .o = 10, .stride = {2, 2}},
        {.n = 1, .c = 8, .h = 3, .w = 26, .o = 37, .stride = {1, 2}},
        {.n = 4, .c = 13, .h = 8, .w = 34, .o = 47, .stride = {2, 2}},
    };
    enum { BLOCKS = 64, BLOCK = 1000 };
    wf_gemm_set_backend(WF_GEMM_ONEDNN);
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        wf_conv_desc d = problems[i];
        d.dtype = WEFT_BF16;
        d.kh = d.kw = 1;
        d.layout = WF_CONV_SRC_NHWC | WF_CONV_DST_NHWC;
        d = completed(d);
        all_three(&d);
        void *block[BLOCKS];
        for (int k = 0; k < BLOCKS; k++)
            block[k] = malloc((size_t)(k + 1) * BLOCK);
        for (int k = 0; k < BLOCKS; k++)
            free(block[k]);
    }
}

/* What fills up rows is no term: an infinity of the image reaches the weights whose windows have it, and no others.
 * (One of the gradient may meet the padding of the image, which is multiplied like the rest.) */
Test(conv, infinities_reach_their_windows_only)
{
    wf_gemm_set_backend(WF_GEMM_AUTO);
    for (int i = 0; i < (int)effort_of(SHAPES) / TYPE_STEP; i++) {
        const wf_conv_desc d = units_desc();
        tensor src = make(WEFT_BF16, d.n * d.c * d.h * d.w),
               w = blank(WEFT_BF16, d.o * d.c * d.kh * d.kw);
        tensor ddst = make(WEFT_BF16, d.n * d.o * d.oh * d.ow);
        const int64_t which = between(0, src.count - 1);
        put(&src, which, (double)INFINITY);
        src.x[which] = (double)INFINITY;
        cr_assert_eq(wf_conv2d_backward_weight(&d, src.data, ddst.data, w.data), 0);
        sums s = reference(&d, WEIGHT, src.x, NULL, ddst.x);
        for (int64_t e = 0; e < w.count; e++) {
            const double x = get(&w, e), y = s.sum[e];
            cr_assert(isfinite(y) ? fabs(x - y) <= 0x1p-7 * (s.mag[e] + 1)
                      : isnan(y)  ? isnan(x)
                                  : x == y,
                      "weight %ld is %g, should be %g", (long)e, x, y);
        }
        sums_drop(&s);
        drop(&src), drop(&w), drop(&ddst);
    }
}

Test(conv, same_bits_at_any_thread_count)
{
    static const int threads[] = {1, 2, 3, 7};
    int before = wf_num_threads();
    for (size_t run = 0; run < (size_t)BACKENDS * LAYERS * 4 * 2; run++) {
        const size_t which = run / BACKENDS % LAYERS, type = run / BACKENDS / LAYERS % 4;
        if (!is_worth(run % BACKENDS, type) || !effort_walks(run / BACKENDS, 3))
            continue;
        wf_gemm_set_backend(backends[run % BACKENDS]);
        wf_conv_desc d =
            layer(which, float_types[type], run / ((size_t)BACKENDS * LAYERS * 4) ? 3 : 0);
        int64_t ns = d.n * d.c * d.h * d.w, nd = d.n * d.o * d.oh * d.ow,
                nw = d.o * d.c * d.kh * d.kw;
        tensor src = make(d.dtype, ns), w = make(d.dtype, nw), ddst = make(d.dtype, nd);
        tensor bias = make(d.dtype, d.o);
        tensor out[4] = {blank(d.dtype, nd), blank(d.dtype, ns), blank(d.dtype, nw),
                         blank(d.dtype, nd)};
        tensor first[4];
        for (size_t t = 0; t < 4; t += EFFORT_THREAD_STEP) {
            wf_set_num_threads(threads[t]);
            cr_assert_eq(wf_conv2d_forward(&d, src.data, w.data, NULL, out[0].data), 0);
            cr_assert_eq(wf_conv2d_backward_data(&d, ddst.data, w.data, out[1].data), 0);
            cr_assert_eq(wf_conv2d_backward_weight(&d, src.data, ddst.data, out[2].data), 0);
            cr_assert_eq(wf_conv2d_forward(&d, src.data, w.data, bias.data, out[3].data), 0);
            for (int x = 0; x < 4; x++) {
                size_t size = (size_t)out[x].count * 8;
                if (t == 0) {
                    first[x] = (tensor){.data = malloc(size)};
                    memcpy(first[x].data, out[x].data, size);
                }
                cr_assert_eq(memcmp(first[x].data, out[x].data, size), 0,
                             "%s %s: result %d of layer %zu differs with %d threads",
                             wf_gemm_backend_name(), wf_dtype_name(d.dtype), x, which, threads[t]);
            }
        }
        for (int x = 0; x < 4; x++)
            drop(&first[x]), drop(&out[x]);
        drop(&bias), drop(&src), drop(&w), drop(&ddst);
    }
    wf_set_num_threads(before);
}

/* All results of d, forward with a bias, too, in each of the four layouts: the bits of the first. */
static void in_any_layout(wf_conv_desc d)
{
    const size_t size = wf_dtype_size(d.dtype);
    int64_t ns = d.n * d.c * d.h * d.w, nd = d.n * d.o * d.oh * d.ow,
            nw = d.o * (d.c / d.groups) * d.kh * d.kw;
    tensor src = make(d.dtype, ns), w = make(d.dtype, nw), ddst = make(d.dtype, nd);
    tensor bias = make(d.dtype, d.o);
    tensor src_own = blank(d.dtype, ns), ddst_own = blank(d.dtype, nd);
    const int64_t counts[4] = {nd, ns, nw, nd};
    tensor out[4], plain[4], first[4];
    for (int x = 0; x < 4; x++) {
        out[x] = blank(d.dtype, counts[x]);
        plain[x] = blank(d.dtype, counts[x]);
        first[x] = blank(d.dtype, counts[x]);
    }
    for (d.layout = 0; d.layout < 4; d.layout++) {
        tensor *got = d.layout == 0 ? first : plain;
        for (int x = 0; x < 4; x++) /* what nobody writes differs */
            memset(out[x].data, 0x60 + (int)d.layout, (size_t)out[x].count * size);
        reorder(&d, false, false, src.data, src_own.data, size);
        reorder(&d, true, false, ddst.data, ddst_own.data, size);
        cr_assert_eq(wf_conv2d_forward(&d, src_own.data, w.data, NULL, out[0].data), 0);
        cr_assert_eq(wf_conv2d_backward_data(&d, ddst_own.data, w.data, out[1].data), 0);
        cr_assert_eq(wf_conv2d_backward_weight(&d, src_own.data, ddst_own.data, out[2].data), 0);
        cr_assert_eq(wf_conv2d_forward(&d, src_own.data, w.data, bias.data, out[3].data), 0);
        reorder(&d, true, true, out[0].data, got[0].data, size);
        reorder(&d, true, true, out[3].data, got[3].data, size);
        reorder(&d, false, true, out[1].data, got[1].data, size);
        memcpy(got[2].data, out[2].data, (size_t)nw * size);
        for (int x = 0; x < 4; x++)
            cr_assert_eq(memcmp(first[x].data, got[x].data, (size_t)out[x].count * size), 0,
                         "%s %s: result %d of n%ld c%ld %ldx%ld o%ld k%ldx%ld s%ld,%ld g%ld "
                         "differs in layout %u",
                         wf_gemm_backend_name(), wf_dtype_name(d.dtype), x, (long)d.n, (long)d.c,
                         (long)d.h, (long)d.w, (long)d.o, (long)d.kh, (long)d.kw, (long)d.stride[0],
                         (long)d.stride[1], (long)d.groups, d.layout);
    }
    for (int x = 0; x < 4; x++)
        drop(&first[x]), drop(&out[x]), drop(&plain[x]);
    drop(&bias), drop(&src), drop(&w), drop(&ddst), drop(&src_own), drop(&ddst_own);
}

Test(conv, same_bits_in_any_layout)
{
    for (size_t run = 0; run < (size_t)BACKENDS * LAYERS * 4; run += EFFORT_LIST_STEP) {
        const size_t which = run / BACKENDS % LAYERS, type = run / BACKENDS / LAYERS;
        if (!is_worth(run % BACKENDS, type) || !effort_walks(run / BACKENDS, 3))
            continue;
        wf_gemm_set_backend(backends[run % BACKENDS]);
        in_any_layout(layer(which, float_types[type], 0));
    }
}

/* What is a matrix product, maybe of every other pixel, may be another one in each layout: of A and B transposed, with a batch,
 * of few rows or few columns. Sizes on both sides of what the ways to multiply change at. */
Test(conv, same_bits_in_any_layout_of_products)
{
    static const int64_t channels[] = {1, 3, 16, 31, 40, 64, 96, 250, 330, 600};
    static const int64_t sides[] = {1, 2, 5, 8, 14, 17, 33};
    for (size_t b = 0; b < BACKENDS; b++) {
        wf_gemm_set_backend(backends[b]);
        for (size_t t = 0; t < 4; t++)
            for (int i = 0; i < (int)effort_of(SHAPES) * 2 && is_worth(b, t);
                 i += EFFORT_LIST_STEP) {
                wf_conv_desc d = {.dtype = float_types[t], .n = between(1, 3), .kh = 1, .kw = 1};
                d.c = channels[between(0, sizeof channels / sizeof *channels - 1)];
                d.o = channels[between(0, sizeof channels / sizeof *channels - 1)];
                d.h = sides[between(0, sizeof sides / sizeof *sides - 1)];
                d.w = sides[between(0, sizeof sides / sizeof *sides - 1)];
                if (i % 3 == 2)
                    d.stride[0] = between(1, 3), d.stride[1] = between(1, 3);
                in_any_layout(completed(d));
            }
    }
}

Test(conv, same_bits_in_any_layout_of_random_shapes)
{
    for (size_t b = 0; b < BACKENDS; b++) {
        wf_gemm_set_backend(backends[b]);
        for (size_t t = 0; t < 4; t++)
            for (int i = 0; i < (int)effort_of(SHAPES) && is_worth(b, t); i++) {
                const wf_conv_desc d = random_desc(float_types[t]);
                if (d.oh > 0 && d.ow > 0)
                    in_any_layout(d);
            }
    }
}

/* Windows that lie apart, with and without pixels between and behind them. */
Test(conv, windows_apart)
{
    for (size_t b = 0; b < BACKENDS; b++) {
        wf_gemm_set_backend(backends[b]);
        for (size_t t = 0; t < 4; t++)
            for (int i = 0; i < (int)effort_of(SHAPES) / 3 && is_worth(b, t); i++) {
                wf_conv_desc d = {.dtype = float_types[t], .n = between(1, 3)};
                d.layout = (unsigned)between(0, 3);
                d.c = between(1, 5);
                d.o = between(0, 3) ? between(1, 40) : 72;
                d.kh = between(1, 6);
                d.kw = between(3, 17);
                for (int x = 0; x < 2; x++) {
                    const int64_t k = x ? d.kw : d.kh;
                    d.dilation[x] = between(0, 3) ? 1 : 2;
                    d.stride[x] = d.dilation[x] * (k - 1) + (between(0, 1) ? 1 : between(0, 3));
                    d.stride[x] = d.stride[x] ? d.stride[x] : 1; /* by one too short, at times */
                    *(x ? &d.w : &d.h) =
                        d.dilation[x] * (k - 1) + 1 + between(0, 3) * d.stride[x] + between(0, 2);
                }
                d = completed(d);
                all_three(&d);
                if (i % 3 == 0)
                    in_any_layout(d);
            }
    }
}

/* A channel a group, filters for which oneDNN has no kernel of its own: channels beside each other in sixteens or fewer, images in
 * several bands and rows longer than a piece, samples for several tasks; any layout and thread count. */
Test(conv, depthwise_gradients_of_weights)
{
    static const int64_t channels[] = {2, 3, 15, 16, 17, 40, 150};
    static const int threads[] = {1, 2, 3, 7};
    const int before = wf_num_threads();
    for (size_t b = 0; b < BACKENDS; b++) {
        wf_gemm_set_backend(backends[b]);
        for (int i = 0; i < (int)effort_of(SHAPES) / TYPE_STEP; i++) {
            wf_conv_desc d = {.dtype = float_types[between(0, 3)]};
            d.n = between(1, i % 8 ? 9 : 2);
            d.layout = (unsigned)between(0, 3);
            d.c = d.o = d.groups = channels[between(0, sizeof channels / sizeof *channels - 1)];
            d.kh = between(1, 7);
            d.kw = i % 16 == 0 ? between(1, 40) : between(1, 9);
            for (int x = 0; x < 2; x++) {
                d.dilation[x] = between(0, 3) ? 1 : between(2, 3);
                d.stride[x] = between(0, 2) ? 1 : between(2, 3);
                d.pad[x] = between(0, x ? d.kw : d.kh);
            }
            d.h = (d.kh - 1) * d.dilation[0] + between(1, 12);
            d.w = (d.kw - 1) * d.dilation[1] + between(1, 12);
            if (i % 8 == 0 && d.c < 20)
                *(i % 16 ? &d.h : &d.w) += between(100, 400);
            d = completed(d);
            tensor src = make(d.dtype, d.n * d.c * d.h * d.w),
                   ddst = make(d.dtype, d.n * d.o * d.oh * d.ow), got[2];
            sums s = reference(&d, WEIGHT, src.x, NULL, ddst.x);
            for (int t = 0; t < 4; t += EFFORT_THREAD_STEP) {
                wf_set_num_threads(threads[t]);
                tensor *w = &got[t > 0];
                *w = blank(d.dtype, d.o * d.kh * d.kw);
                cr_assert_eq(wf_conv2d_backward_weight(&d, src.data, ddst.data, w->data), 0);
                check(&d, "weight", w, &s);
                cr_assert_eq(
                    memcmp(got[0].data, w->data, (size_t)w->count * wf_dtype_size(d.dtype)), 0,
                    "%d threads", threads[t]);
                if (t > 0)
                    drop(w);
            }
            drop(&got[0]), drop(&src), drop(&ddst);
            sums_drop(&s);
            if (i % 4 == 0)
                in_any_layout(d);
        }
    }
    wf_set_num_threads(before);
}

/* Where element (n, c, y, x) of the image, or of the result, of d lies. */
static int64_t place(const wf_conv_desc *d, bool dst, int64_t n, int64_t c, int64_t y, int64_t x)
{
    const int64_t h = dst ? d->oh : d->h, w = dst ? d->ow : d->w, channels = dst ? d->o : d->c;
    return d->layout & (dst ? WF_CONV_DST_NHWC : WF_CONV_SRC_NHWC)
               ? ((n * h + y) * w + x) * channels + c
               : ((n * channels + c) * h + y) * w + x;
}

/* The terms of all elements of a result, and no others: reference() multiplies what fills up its planes. */
UNWATCHED static sums terms_inside(const wf_conv_desc *d, int what, const double *src,
                                   const double *weight, const double *ddst, int64_t count)
{
    const int64_t cg = d->c / d->groups, og = d->o / d->groups, taps = d->kh * d->kw;
    sums s = {doubles(count), doubles(count), NULL};
    for (int64_t k = 0; k < d->n * d->o * cg * taps; k++) {
        const int64_t tap = k % taps, o = k / taps / cg % d->o, c = o / og * cg + k / taps % cg;
        const int64_t n = k / taps / cg / d->o, w = k % (taps * cg * d->o);
        for (int64_t p = 0; p < d->oh * d->ow; p++) {
            const int64_t oy = p / d->ow, ox = p % d->ow;
            const int64_t y = oy * d->stride[0] - d->pad[0] + tap / d->kw * d->dilation[0],
                          x = ox * d->stride[1] - d->pad[1] + tap % d->kw * d->dilation[1];
            if (y < 0 || y >= d->h || x < 0 || x >= d->w)
                continue;
            const int64_t in = place(d, false, n, c, y, x), out = place(d, true, n, o, oy, ox);
            const int64_t at = what == FORWARD ? out : what == DATA ? in : w;
            const double term = what == FORWARD ? src[in] * weight[w]
                                : what == DATA  ? ddst[out] * weight[w]
                                                : src[in] * ddst[out];
            s.sum[at] += term;
            s.mag[at] += fabs(term);
        }
    }
    return s;
}

/* Infinities and NaN as in the sum of an element's own terms, numbers near it; counts both. */
static void check_inside(const wf_conv_desc *d, int what, const tensor *got, const double *src,
                         const double *weight, const double *ddst, int64_t count[2])
{
    static const char *const names[] = {"forward", "backward data", "backward weight"};
    sums s = terms_inside(d, what, src, weight, ddst, got->count);
    for (int64_t e = 0; e < got->count; e++) {
        const double x = get(got, e), y = s.sum[e];
        if (isfinite(y) ? fabs(x - y) <= 0x1p-7 * fabs(y) + 0x1p-12 * s.mag[e] + 1e-3
            : isnan(y)  ? isnan(x)
                        : x == y) {
            count[!isfinite(y)]++;
            continue;
        }
        cr_assert_fail("%s %s %s n%ld c%ld %ldx%ld o%ld k%ldx%ld s%ld,%ld p%ld,%ld d%ld,%ld g%ld "
                       "layout %u: element %ld is %g, should be %g",
                       wf_gemm_backend_name(), names[what], wf_dtype_name(d->dtype), (long)d->n,
                       (long)d->c, (long)d->h, (long)d->w, (long)d->o, (long)d->kh, (long)d->kw,
                       (long)d->stride[0], (long)d->stride[1], (long)d->pad[0], (long)d->pad[1],
                       (long)d->dilation[0], (long)d->dilation[1], (long)d->groups, d->layout,
                       (long)e, x, y);
    }
    sums_drop(&s);
}

/* Puts what is no number into one element, often the first or the last. */
static void spoil(tensor *t)
{
    const double v =
        between(0, 3) ? between(0, 1) ? (double)INFINITY : -(double)INFINITY : (double)NAN;
    const int64_t at = between(0, 2) == 0   ? 0
                       : between(0, 2) == 0 ? t->count - 1
                                            : between(0, t->count - 1);
    put(t, at, v);
    t->x[at] = v;
}

/* An infinity of the gradient that meets padding is no term: elements of the filter that see no infinity have their numbers. */
Test(conv, infinities_beside_the_padding_of_depthwise_gradients)
{
    enum { MOST_CHANNELS = 40 };
    int64_t count[2] = {0};
    for (size_t b = 0; b < BACKENDS; b++) {
        wf_gemm_set_backend(backends[b]);
        for (int t = 0; t < (int)effort_of(SHAPES) / TYPE_STEP; t++) {
            wf_conv_desc d = {.dtype = t % 2 ? WEFT_BF16 : WEFT_F32, .n = between(1, 5)};
            d.layout = (unsigned)between(0, 3);
            d.c = d.o = d.groups = between(2, MOST_CHANNELS);
            d.kh = between(1, 5), d.kw = between(4, 9);
            for (int x = 0; x < 2; x++) {
                d.dilation[x] = between(1, 2);
                d.stride[x] = between(1, 3);
                d.pad[x] = between(1, x ? d.kw : d.kh);
            }
            d.h = (d.kh - 1) * d.dilation[0] + between(1, 12);
            d.w = (d.kw - 1) * d.dilation[1] + between(1, 12);
            if (t % 8 == 0) { /* several pieces of a row */
                d.w += between(300, 900);
                d.c = d.o = d.groups = 2;
            }
            d = completed(d);
            tensor src = make(d.dtype, d.n * d.c * d.h * d.w),
                   w = blank(d.dtype, d.o * d.kh * d.kw),
                   ddst = make(d.dtype, d.n * d.o * d.oh * d.ow);
            for (int x = t % 3 != 0; x < 2; x++) { /* of the image, too, at times */
                tensor *of = x ? &ddst : &src;
                const int64_t at = between(0, 1) ? 0 : between(0, of->count - 1);
                put(of, at, (double)INFINITY);
                of->x[at] = (double)INFINITY;
            }
            cr_assert_eq(wf_conv2d_backward_weight(&d, src.data, ddst.data, w.data), 0);
            check_inside(&d, WEIGHT, &w, src.x, NULL, ddst.x, count);
            drop(&src), drop(&w), drop(&ddst);
        }
    }
    cr_assert(count[0] > 0 && count[1] > 0);
}

/* What is no number, wherever it lies and whatever it meets: a padded position is no term, and neither is what fills up rows. */
Test(conv, infinities_beside_padding)
{
    int64_t count[2] = {0};
    for (size_t b = 0; b < BACKENDS; b++) {
        wf_gemm_set_backend(backends[b]);
        for (size_t t = 0; t < 4; t++)
            for (int i = 0; i < (int)effort_of(2 * SHAPES) && is_worth(b, t); i++) {
                wf_conv_desc d = random_desc(float_types[t]);
                if (i % 8 == 0) {
                    d = completed(layers[(size_t)i / 8 % LAYERS]);
                    d.dtype = float_types[t];
                    d.layout = (unsigned)between(0, 3);
                } else if (i % 8 == 1) { /* one tap, and one more result than pairs */
                    d.groups = d.kh = d.kw = 1;
                    d.pad[0] = d.pad[1] = 0;
                    d.o = 2 * between(0, 40) + 1;
                    d = completed(d);
                }
                const int64_t ns = d.n * d.c * d.h * d.w, nd = d.n * d.o * d.oh * d.ow;
                const int64_t nw = d.o * (d.c / d.groups) * d.kh * d.kw;
                tensor x[3] = {make(d.dtype, nd), make(d.dtype, ns), make(d.dtype, nw)};
                tensor y[3] = {blank(d.dtype, nd), blank(d.dtype, ns), blank(d.dtype, nw)};
                for (int64_t k = between(1, 3); k-- > 0;) {
                    tensor *of = &x[between(0, 2)];
                    if (of->count)
                        spoil(of);
                }
                cr_assert_eq(wf_conv2d_forward(&d, x[1].data, x[2].data, NULL, y[0].data), 0);
                cr_assert_eq(wf_conv2d_backward_data(&d, x[0].data, x[2].data, y[1].data), 0);
                cr_assert_eq(wf_conv2d_backward_weight(&d, x[1].data, x[0].data, y[2].data), 0);
                for (int what = FORWARD; what <= WEIGHT; what++)
                    check_inside(&d, what, &y[what], x[1].x, x[2].x, x[0].x, count);
                for (int k = 0; k < 3; k++)
                    drop(&x[k]), drop(&y[k]);
            }
    }
    cr_assert(count[0] > 0 && count[1] > 0);
}

/* Of one channel and one tap, too, where products are less than the smallest normal number: products of other shapes, of many rows
 * and few columns or past the caches, which could be made elsewhere. */
Test(conv, small_products_of_one_channel_in_any_layout)
{
    static const int64_t sizes[][3] = {{64, 16, 2}, {8, 16, 64}, {300, 3, 2}}; /* n, o, h = w */
    wf_set_isa(WF_NISA);
    const int most = wf_isa();
    for (int isa = 0; isa <= most; isa++)
        for (size_t b = 0; b < BACKENDS; b++)
            for (size_t i = 0; i < 4 * sizeof sizes / sizeof *sizes; i++) {
                const int64_t *size = sizes[i / 4];
                wf_conv_desc d = {.dtype = float_types[i % 4], .n = size[0], .o = size[1], .c = 1};
                d.h = d.w = size[2];
                d.kh = d.kw = 1;
                d = completed(d);
                const int64_t area = d.h * d.w;
                const double tiny = d.dtype == WEFT_F64   ? 1e-162
                                    : d.dtype == WEFT_F16 ? 1e-4
                                                          : 1e-20;
                tensor src = blank(d.dtype, d.n * area), w = blank(d.dtype, d.o), dst[2];
                for (int64_t e = 0; e < src.count + w.count; e++)
                    put(e < src.count ? &src : &w, e < src.count ? e : e - src.count,
                        (double)between(-1000, 1000) * 1e-2 * tiny);
                wf_set_isa(isa);
                wf_gemm_set_backend(backends[b]);
                for (int last = 0; last < 2; last++) {
                    d.layout = last ? WF_CONV_SRC_NHWC | WF_CONV_DST_NHWC : 0;
                    dst[last] = blank(d.dtype, d.n * d.o * area);
                    cr_assert_eq(wf_conv2d_forward(&d, src.data, w.data, NULL, dst[last].data), 0);
                }
                const size_t bytes = (size_t)dst[0].count * wf_dtype_size(d.dtype);
                tensor back = blank(d.dtype, dst[0].count);
                reorder(&d, true, true, dst[1].data, back.data, wf_dtype_size(d.dtype));
                cr_assert_eq(memcmp(dst[0].data, back.data, bytes), 0, "%s, size %zu, isa %d",
                             wf_dtype_name(d.dtype), i / 4, isa);
                drop(&src), drop(&w), drop(&dst[0]), drop(&dst[1]), drop(&back);
            }
    wf_set_isa(WF_NISA);
}

/* Every size that can be zero, one at a time. */
Test(conv, zero_sizes)
{
    for (size_t b = 0; b < BACKENDS; b++) {
        wf_gemm_set_backend(backends[b]);
        for (int z = 0; z < 5; z++) {
            wf_conv_desc d = {.dtype = WEFT_F32, .n = 2, .c = 4, .h = 5, .w = 6, .o = 4, .kh = 3};
            d.kw = 3;
            d.groups = 2;
            d.pad[0] = d.pad[1] = 2;
            int64_t *sizes[] = {&d.n, &d.c, &d.o, &d.h, &d.w};
            *sizes[z] = 0;
            d = completed(d);
            all_three(&d);
        }
    }
}

/* Beside finite weights padding makes no NaN: nothing is summed again, which would take hundreds of times as long. (Of many, one
 * channel is NaN, the last of each sum.) */
Test(conv, nan_of_images_cost_nothing)
{
    enum { TIMES = 5, MOST = 30 };
    wf_gemm_set_backend(WF_GEMM_AUTO);
    wf_conv_desc d = {.dtype = WEFT_F32, .n = 1, .c = 64, .h = 32, .w = 32, .o = 32};
    d.kh = d.kw = 3, d.groups = 1;
    d.stride[0] = d.stride[1] = d.pad[0] = d.pad[1] = d.dilation[0] = d.dilation[1] = 1;
    d = completed(d);
    tensor src = make(d.dtype, d.c * d.h * d.w), w = make(d.dtype, d.o * d.c * 9),
           y = blank(d.dtype, d.o * d.h * d.w);
    double least[2] = {INFINITY, INFINITY};
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < d.h * d.w && k; i++)
            put(&src, (d.c - 1) * d.h * d.w + i, (double)NAN);
        for (int t = 0; t < TIMES; t++) {
            const clock_t from = clock();
            cr_assert_eq(wf_conv2d_forward(&d, src.data, w.data, NULL, y.data), 0);
            least[k] = fmin(least[k], (double)(clock() - from) + 1);
        }
    }
    cr_assert(isnan(get(&y, 0)) && isnan(get(&y, y.count - 1)));
    cr_assert(least[1] < MOST * least[0], "%g us, without NaN %g", least[1], least[0]);
    drop(&src), drop(&w), drop(&y);
}
/* A dilation that the padding takes back: only the middle tap meets the input, and products of extents of the padded
 * image do not fit in 64 bits. */
Test(conv, wide_dilation)
{
    const int64_t far[] = {1000, INT64_C(1) << 33, INT64_C(1) << 58};
    for (size_t b = 0; b < BACKENDS; b++) {
        wf_gemm_set_backend(backends[b]);
        for (size_t i = 0; i < 3; i++) {
            wf_conv_desc d = {.dtype = WEFT_BF16,
                              .layout = WF_CONV_SRC_NHWC | WF_CONV_DST_NHWC,
                              .n = 1,
                              .c = 32,
                              .h = 5,
                              .w = 5,
                              .o = 32,
                              .kh = 3,
                              .kw = 3,
                              .oh = 5,
                              .ow = 5,
                              .stride = {1, 1},
                              .pad = {far[i], far[i]},
                              .dilation = {far[i], far[i]},
                              .groups = 1};
            all_three(&d);
            d.groups = 32;
            all_three(&d);
        }
    }
}

/* Padding larger than any memory is no memory: nothing is copied with it. */
Test(conv, padding_beyond_memory)
{
    static const wf_conv_desc of[] = {{.n = 1,
                                       .c = 2,
                                       .h = 2,
                                       .w = 2,
                                       .o = 2,
                                       .kh = 1,
                                       .kw = 1,
                                       .stride = {INT64_C(1) << 32, INT64_C(1) << 32},
                                       .pad = {INT32_MAX, INT32_MAX},
                                       .groups = 2},
                                      {.n = 2,
                                       .c = 1,
                                       .h = 1,
                                       .w = 300,
                                       .o = 16,
                                       .kh = 1,
                                       .kw = 64,
                                       .stride = {1, INT64_C(1) << 33},
                                       .pad = {0, INT64_C(1) << 40}}};
    wf_gemm_set_backend(WF_GEMM_AUTO);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        wf_conv_desc d = completed(of[i]);
        d.dtype = WEFT_F32;
        all_three(&d);
    }
}

/* Where element (o, c, position) of b lies, in elements. */
static int64_t packed_at(const wf_conv_blocks *b, int64_t o, int64_t c, int64_t position)
{
    const int64_t outer = b->by_c ? o % b->o / b->pair : c % b->c / b->pair;
    const int64_t middle = b->by_c ? c % b->c : o % b->o, last = (b->by_c ? o : c) % b->pair;
    return o / b->o * b->o_stride + c / b->c * b->c_stride + position * b->x_stride +
           (outer * (b->by_c ? b->c : b->o) + middle) * b->pair + last;
}

/* Every layout that is packed here, weights that end where memory does, and no line beside the blocks. */
Test(conv, weights_in_blocks)
{
    enum { O = 64, CHANNELS = 32, WHOLE_C = 37, GUARD = 64 };
    static const int64_t areas[] = {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 25, 49};
    /* block of output channels, of input channels, pairs, input channels innermost, positions outside input channels */
    static const struct {
        int64_t o, c, pair;
        bool by_c, across;
    } layouts[] = {{64, 1, 1, false, true},  {32, 1, 1, false, true}, {16, 16, 1, false, false},
                   {64, 2, 2, false, true},  {32, 2, 2, false, true}, {16, 16, 2, false, false},
                   {16, 16, 1, true, false}, {16, 16, 2, true, false}};
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        for (size_t i = 0; i < sizeof areas / sizeof *areas; i++) {
            const int64_t area = areas[i], block = layouts[l].o * layouts[l].c;
            const int64_t pair = layouts[l].pair, size = 4 / pair, o_step = WHOLE_C * area;
            const bool across = layouts[l].across;
            const wf_conv_blocks b = {.o = layouts[l].o,
                                      .c = layouts[l].c,
                                      .pair = pair,
                                      .by_c = layouts[l].by_c,
                                      .o_stride = layouts[l].o * CHANNELS * area,
                                      .c_stride = across ? block : block * area,
                                      .x_stride = across ? layouts[l].o * CHANNELS : block};
            if (!wf_conv_packs(&b, (size_t)size))
                cr_skip_test("a kernel of AVX-512");
            const int64_t count = (O - 1) * o_step + CHANNELS * area, made = O * CHANNELS * area;
            unsigned char *in = malloc((size_t)(count * size)),
                          *out = malloc((size_t)(made * size) + GUARD);
            for (int64_t k = 0; k < count * size; k++)
                in[k] = (unsigned char)between(0, 255);
            memset(out, 0xA5, (size_t)(made * size) + GUARD);
            wf_conv_pack(&b, (size_t)size, O, CHANNELS, area, in, o_step, out);
            for (int64_t o = 0; o < O; o++)
                for (int64_t c = 0; c < CHANNELS; c++)
                    for (int64_t p = 0; p < area; p++)
                        cr_assert_eq(memcmp(out + packed_at(&b, o, c, p) * size,
                                            in + (o * o_step + c * area + p) * size, (size_t)size),
                                     0, "layout %zu, area %ld: element (%ld, %ld, %ld)", l,
                                     (long)area, (long)o, (long)c, (long)p);
            for (int64_t k = 0; k < GUARD; k++)
                cr_assert_eq(out[made * size + k], 0xA5);
            free(in), free(out);
        }
}

Test(conv, refuses)
{
    wf_conv_desc good = layer(1, WEFT_F32, 0), d = good;
    d.dtype = WEFT_I32;
    cr_assert_eq(wf_conv2d_forward(&d, NULL, NULL, NULL, NULL), WF_GEMM_UNSUPPORTED);
    d = good, d.groups = 3;
    cr_assert_eq(wf_conv2d_backward_data(&d, NULL, NULL, NULL), WF_GEMM_UNSUPPORTED);
    d = good, d.oh++;
    cr_assert_eq(wf_conv2d_backward_weight(&d, NULL, NULL, NULL), WF_GEMM_UNSUPPORTED);
    d = good, d.stride[1] = 0;
    cr_assert_eq(wf_conv2d_forward(&d, NULL, NULL, NULL, NULL), WF_GEMM_UNSUPPORTED);
    d = good, d.dtype = -5;
    cr_assert_eq(wf_conv2d_forward(&d, NULL, NULL, NULL, NULL), WF_GEMM_UNSUPPORTED);
}
