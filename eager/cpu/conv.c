/*
 * eager/cpu/conv.c -- entry points of convolution: checks, empty cases, choice of the back end.
 */
#include <stdbool.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cpu/amx.h"
#include "eager/cpu/conv_image.h"
#include "eager/cpu/dnnl.h"
#include "eager/cpu/gemm_impl.h"
#include "eager/cpuid.h"
#include "jit/ir/dtype.h"

/* Sizes that fit together; the entry points below rely on every line of this. */
static int valid(const wf_conv_desc *d)
{
    if (d->dtype < 0 || d->dtype >= WF_NDTYPE || !(WF_DT_F & WF_BIT(d->dtype)) || d->n < 0 ||
        d->c < 0 || d->h < 0 || d->w < 0 || d->o < 0 || d->oh < 0 || d->ow < 0 || d->kh < 0 ||
        d->kw < 0 || d->groups < 1)
        return 0;
    if (d->c % d->groups || d->o % d->groups)
        return 0;
    for (int i = 0; i < 2; i++) {
        if (d->stride[i] < 1 || d->dilation[i] < 1 || d->pad[i] < 0)
            return 0;
        int64_t in = i ? d->w : d->h, kernel = i ? d->kw : d->kh, out = i ? d->ow : d->oh;
        int64_t room = in + 2 * d->pad[i] - d->dilation[i] * (kernel - 1) - 1;
        if (out != 0 && (room < 0 || room / d->stride[i] + 1 != out))
            return 0;
    }
    return 1;
}

static size_t bytes(const wf_conv_desc *d, int64_t a, int64_t b, int64_t c, int64_t e)
{
    return (size_t)(a * b * c * e) * wf_dtype_size(d->dtype);
}

static int no_terms(const wf_conv_desc *d)
{
    return d->c == 0 || d->kh == 0 || d->kw == 0;
}

/* dst := bias or 0, when there is nothing to sum. */
static void fill_bias(const wf_conv_desc *d, const void *bias, char *dst)
{
    size_t size = wf_dtype_size(d->dtype);
    int64_t area = d->oh * d->ow;
    for (int64_t i = 0; i < d->n * d->o * area; i++) {
        int64_t o = d->layout & WF_CONV_DST_NHWC ? i % d->o : i / area % d->o;
        memcpy(dst + (size_t)i * size, (const char *)bias + (size_t)o * size, size);
    }
}

static int is_pointwise(const wf_conv_desc *d)
{
    return d->kh == 1 && d->kw == 1 && d->groups == 1 && d->pad[0] == 0 && d->pad[1] == 0;
}

/* A 1 x 1 kernel that looks at every position once is a matrix product. */
static int is_product(const wf_conv_desc *d)
{
    return is_pointwise(d) && d->stride[0] == 1 && d->stride[1] == 1;
}

/* No pixel is in two windows, and none of these has padding. */
static int is_apart(const wf_conv_desc *d)
{
    return d->groups == 1 && d->pad[0] == 0 && d->pad[1] == 0 &&
           d->dilation[0] * (d->kh - 1) < d->stride[0] &&
           d->dilation[1] * (d->kw - 1) < d->stride[1];
}

/* So many pixels are worth turned weights of so many channels, which oneDNN's f32 products read faster. (n8, Zen 5, over the
 * time with weights as they are: 512 -> 128 @28 .91, 256 -> 64 @56 .97, 128 -> 512 @28 .98, but 64 -> 256 @56 1.2.) */
enum { TURNED_PIXELS = 1024, TURNED_CHANNELS = 128 };

/* Images of so many pixels that have more channels than an order of sums has terms in one go are copied for a product over
 * all pixels, faster than one a sample (f32, n8, Zen 5: 1024 -> 256 @14 the same, 2048 -> 512 @7 .81, its gradient .67). */
enum { FEW_PIXELS = 256 };

/*
 * A 1 x 1 kernel: out := op(weight) * in for `w_out`, `w_in` as strides of the weight. It has one set of bits whatever the
 * layouts: it is the product over all pixels, for which images in NCHW are copied, or where products have one order of their
 * sums, those of the images as they lie, one a sample, or its transpose.
 */
typedef struct pointwise {
    const wf_conv_desc *d;
    int result; /* whether out is the result of d, and not its image */
    int64_t in_c, out_c;
    const void *in, *weight;
    int64_t w_out, w_in;
    void *out;
    const void *bias; /* or NULL */
} pointwise;

static int over_all_pixels(const pointwise *p)
{
    const wf_conv_desc *d = p->d;
    const wf_view x = wf_conv_pixels(d, !p->result, p->in),
                  y = wf_conv_pixels(d, p->result, p->out);
    wf_dense in = {NULL, NULL, 0}, out = {NULL, NULL, 0};
    int rc = wf_conv_dense(&x, d->dtype, &in);
    rc = rc ? rc : wf_conv_room(&y, d->dtype, &out);
    rc = rc ? rc
            : wf_gemm(&(wf_gemm_desc){.dtype = d->dtype,
                                      .m = d->n * d->h * d->w,
                                      .n = p->out_c,
                                      .k = p->in_c,
                                      .batch = 1,
                                      .a = in.data,
                                      .a_rs = p->in_c,
                                      .a_cs = 1,
                                      .b = p->weight,
                                      .b_rs = p->w_in,
                                      .b_cs = p->w_out,
                                      .c = out.data,
                                      .c_rs = p->out_c});
    rc = rc ? rc : wf_conv_store(&y, 3, d->dtype, &out, p->bias);
    wf_dense_free(&in);
    wf_dense_free(&out);
    return rc;
}

static int product(const pointwise *p)
{
    const wf_conv_desc *d = p->d;
    const int64_t area = d->h * d->w, in_c = p->in_c, out_c = p->out_c;
    const unsigned in_last = p->result ? WF_CONV_SRC_NHWC : WF_CONV_DST_NHWC;
    const unsigned out_last = p->result ? WF_CONV_DST_NHWC : WF_CONV_SRC_NHWC;
    const int in_nhwc = area == 1 || (d->layout & in_last),
              whole = in_nhwc && (area == 1 || (d->layout & out_last));
    int rc = WF_GEMM_OK;
    const int out_nhwc = whole || (d->layout & out_last);
    if (in_c > WF_GEMM_SLICE && area <= FEW_PIXELS)
        return over_all_pixels(p);
    wf_gemm_desc g = {.dtype = d->dtype,
                      .one_order = area > 1,
                      .k = in_c,
                      .c = p->out,
                      .bias = p->bias,
                      .bias_rs = !out_nhwc,
                      .bias_cs = out_nhwc,
                      .batch = whole ? 1 : d->n};
    int64_t in_p = in_nhwc ? in_c : 1, in_k = in_nhwc ? 1 : area;
    if (out_nhwc) {
        g.m = whole ? d->n * area : area, g.n = out_c;
        g.a = p->in, g.a_rs = in_p, g.a_cs = in_k, g.a_bs = in_c * area;
        g.b = p->weight, g.b_rs = p->w_in, g.b_cs = p->w_out;
        g.c_rs = out_c;
    } else {
        g.m = out_c, g.n = area;
        g.a = p->weight, g.a_rs = p->w_out, g.a_cs = p->w_in;
        g.b = p->in, g.b_rs = in_k, g.b_cs = in_p, g.b_bs = in_c * area;
        g.c_rs = area;
    }
    g.c_bs = out_c * area;
    wf_dense turned = {NULL, NULL, 0};
    if (out_nhwc && p->w_in == 1 && d->dtype == WEFT_F32 && in_c >= TURNED_CHANNELS &&
        g.m * g.batch >= TURNED_PIXELS) {
        const wf_view w = {.data = (void *)(uintptr_t)p->weight,
                           .dtype = WEFT_F32,
                           .rank = 2,
                           .dims = {in_c, out_c},
                           .strides = {1, p->w_out}};
        rc = wf_conv_dense(&w, d->dtype, &turned);
        g.b = turned.data, g.b_rs = out_c, g.b_cs = 1;
    }
    rc = rc ? rc : wf_gemm(&g);
    wf_dense_free(&turned);
    return rc == WF_GEMM_UNSUPPORTED ? over_all_pixels(p) : rc;
}

/* Elements of an image with its padding that is worth a copy. */
#define MOST_PADDED 0x1p24

/* oneDNN is not asked for windows beyond the image (dnnl_conv.c): of several groups it is asked for those of an image with
 * its padding, and of one group nobody is (conv_columns.c). */
static int is_padded(const wf_conv_desc *d)
{
    const double padded = (double)(d->n * d->c) * ((double)d->h + 2 * (double)d->pad[0]) *
                          ((double)d->w + 2 * (double)d->pad[1]);
    return d->groups > 1 && (d->dtype == WEFT_F32 || d->dtype == WEFT_BF16) && wf_conv_beyond(d) &&
           padded <= MOST_PADDED;
}

enum { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHT };

/* What oneDNN makes of it, with the padding as part of the image where that has to be. Operands as the three entry points
 * have them; the one that is the result is written. */
static int by_dnnl(const wf_conv_desc *d, int kind, const void *src, const void *weight,
                   const void *bias, const void *dst)
{
    if (!wf_dnnl_active())
        return WF_GEMM_UNSUPPORTED;
    if (!is_padded(d))
        return kind == FORWARD ? wf_dnnl_conv_forward(d, src, weight, bias, (void *)(uintptr_t)dst)
               : kind == BACKWARD_DATA
                   ? wf_dnnl_conv_backward_data(d, dst, weight, (void *)(uintptr_t)src)
                   : wf_dnnl_conv_backward_weight(d, src, dst, (void *)(uintptr_t)weight);
    wf_conv_desc p = *d;
    p.h += 2 * d->pad[0], p.w += 2 * d->pad[1];
    p.pad[0] = p.pad[1] = 0;
    p.layout |= WF_CONV_SRC_NHWC; /* what oneDNN would make of it */
    const size_t size = bytes(&p, p.n, p.c, p.h, p.w);
    char *image = wf_scratch(size);
    if (!image)
        return WF_GEMM_NOMEM;
    const wf_view whole = wf_conv_image(d, 0, src);
    const wf_view rows = wf_view_narrow(wf_conv_image(&p, 0, image), 2, d->pad[0], d->h);
    const wf_view part = wf_view_narrow(rows, 3, d->pad[1], d->w);
    if (kind != BACKWARD_DATA) {
        memset(image, 0, size);
        wf_copy(&part, &whole);
    }
    const int rc = by_dnnl(&p, kind, image, weight, bias, dst);
    if (!rc && kind == BACKWARD_DATA)
        wf_copy(&whole, &part);
    wf_scratch_free(image, size);
    return rc;
}

/* Half types that oneDNN has no kernels for (f16; bf16 below AVX-512) are f32 convolutions of copies, rounded once: the
 * built-in kernels take 2 to 10 times as long. Without memory for the copies there is no result: those kernels need less, but
 * bits are not to depend on what is free. */
static int is_made_in_f32(const wf_conv_desc *d)
{
    return wf_dnnl_active() &&
           (d->dtype == WEFT_F16 ||
            (d->dtype == WEFT_BF16 && !wf_dnnl_in_order() && !wf_gemm_amx_active()));
}

/* Operands: src, weight, dst, bias; the one that is the result is written. */
static int convolve(const wf_conv_desc *d, int kind, const void *const operands[4])
{
    const void *src = operands[0], *weight = operands[1], *dst = operands[2];
    return kind == FORWARD ? wf_conv2d_forward(d, src, weight, operands[3], (void *)(uintptr_t)dst)
           : kind == BACKWARD_DATA
               ? wf_conv2d_backward_data(d, dst, weight, (void *)(uintptr_t)src)
               : wf_conv2d_backward_weight(d, src, dst, (void *)(uintptr_t)weight);
}

static int in_f32(const wf_conv_desc *d, int kind, const void *const operands[4])
{
    static const int result_of[] = {[FORWARD] = 2, [BACKWARD_DATA] = 0, [BACKWARD_WEIGHT] = 1};
    const int result = result_of[kind];
    const int64_t counts[4] = {d->n * d->c * d->h * d->w, d->o * (d->c / d->groups) * d->kh * d->kw,
                               d->n * d->o * d->oh * d->ow, d->o};
    wf_conv_desc p = *d;
    p.dtype = WEFT_F32;
    wf_dense x[4] = {{NULL, NULL, 0}};
    wf_view v[4];
    int rc = WF_GEMM_OK;
    for (int i = 0; i < 4 && !rc && operands[i]; i++) {
        v[i] = wf_view_dense((void *)(uintptr_t)operands[i], d->dtype, 1, &counts[i]);
        rc = (i == result ? wf_conv_room : wf_conv_dense)(&v[i], WEFT_F32, &x[i]);
    }
    rc = rc ? rc : convolve(&p, kind, (const void *[]){x[0].data, x[1].data, x[2].data, x[3].data});
    rc = rc ? rc : wf_conv_store(&v[result], 0, WEFT_F32, &x[result], NULL);
    for (int i = 0; i < 4; i++)
        wf_dense_free(&x[i]);
    return rc;
}

/*
 * A 1 x 1 kernel with a stride is one without of the pixels that it sees, brought together. That is faster than oneDNN's
 * convolutions, which bring them together in every task, but for few channels: a pixel is less than a line of the cache. Without
 * oneDNN it always is. (Zen 3, one thread, f32, over the time of oneDNN's, NCHW, NHWC: n1 256 -> 512 @56 forward 0.5, 0.6, gradients
 * of images 1.0, 0.9, of weights 0.8, 0.75; n8 512 -> 1024 @28 1.04, 1.1; 0.93, 0.95; 0.8, 0.7; n8 64 -> 24 @56 0.6, 1.08; 0.9,
 * 1.2; 0.7, 1.05; n8 3 -> 64 @28 0.5, 1.6; 0.35, 1; 1.4, 2.6. Zen 5: n1 1024 -> 2048 @14 0.92, 0.94; 0.29, 0.27; 0.66, 0.61; n8
 * 256 -> 512 @56 0.87, 0.99; 0.94, 0.99; 0.86, 0.87; n8 64 -> 24 @56 0.36, 1.17; 0.85, 1; 0.56, 0.82.)
 *
 * So are windows that lie apart, of long rows: those of a position are a pixel of more channels. (Zen 5, NCHW, NHWC: 3 -> 768
 * 16 x 16 @224 gradients of images f32 0.6, 0.7, bf16 0.08, of weights 0.47, 0.46, bf16 0.34, 0.38; 3 -> 96 4 x 4 of images 0.23,
 * 0.6, of weights 1.3, 2; 192 -> 384 2 x 2 of images 1.3, 1.1; forward f32 1, 1.)
 */
static int is_thinned(const wf_conv_desc *d, int kind, const void *bias)
{
    enum { FEW_CHANNELS = 16, FEW_SUMMED = 64, SHORT_ROW = 4, LONG_ROW = 12 };
    if (!is_apart(d) || is_product(d) || (d->dtype == WEFT_BF16 && wf_gemm_amx_active()))
        return 0;
    if (!is_pointwise(d))
        return kind == BACKWARD_DATA ? d->kw >= SHORT_ROW
                                     : kind == BACKWARD_WEIGHT && d->kw >= LONG_ROW;
    if (!wf_dnnl_active() || d->dtype == WEFT_F64)
        return !bias; /* for which built-in convolutions gather once more */
    const bool wide =
        wf_isa() > WF_ISA_AVX2; /* where a product with a bias is oneDNN's convolution */
    return wf_isa() >= WF_ISA_AVX2 && !(wide && bias) && d->c >= FEW_CHANNELS &&
           (kind != BACKWARD_DATA || (d->dtype != WEFT_F32 && !wide) || d->o >= FEW_SUMMED);
}

/* Of an image what each position of the result sees, in the order of the weights: [n][y][x][c][i][j], or [n][c][i][j][y][x]. */
static wf_view windows(const wf_conv_desc *d, const wf_view *image, int last)
{
    const int64_t *s = image->strides;
    const int64_t axes[5][2] = {{d->oh, d->stride[0] * s[2]},
                                {d->ow, d->stride[1] * s[3]},
                                {d->c, s[1]},
                                {d->kh, d->dilation[0] * s[2]},
                                {d->kw, d->dilation[1] * s[3]}};
    wf_view v = *image;
    v.rank = 6;
    for (int i = 0; i < 5; i++) {
        const int64_t *axis = axes[last ? i : (i + 2) % 5];
        v.dims[i + 1] = axis[0], v.strides[i + 1] = axis[1];
    }
    return v;
}

static int thinned(const wf_conv_desc *d, int kind, const void *const operands[4])
{
    static const uint64_t zero;
    const wf_view image = wf_conv_image(d, 0, operands[0]);
    wf_conv_desc p = *d;
    if (!is_pointwise(d))
        p.layout |= WF_CONV_SRC_NHWC;
    const wf_view v = windows(d, &image, (p.layout & WF_CONV_SRC_NHWC) != 0);
    p.c *= d->kh * d->kw;
    p.h = d->oh, p.w = d->ow;
    p.kh = p.kw = 1;
    p.stride[0] = p.stride[1] = 1;
    wf_dense pixels = {NULL, NULL, 0};
    int rc = (kind == BACKWARD_DATA ? wf_conv_room : wf_conv_dense)(&v, d->dtype, &pixels);
    if (!rc && kind == BACKWARD_DATA)
        wf_fill(&image, &zero);
    rc = rc ? rc
            : convolve(&p, kind,
                       (const void *[]){pixels.data, operands[1], operands[2], operands[3]});
    if (!rc && kind == BACKWARD_DATA)
        rc = wf_conv_store(&v, 0, d->dtype, &pixels, NULL);
    wf_dense_free(&pixels);
    return rc;
}

/* The bias belongs before the rounding. oneDNN's convolutions add it in registers, but have images in NCHW copied both ways:
 * where the kernels make products a bias costs little. (Zen 3, n8 64 -> 256 @56 15.6 ms.) */
static int is_product_with_bias(const wf_conv_desc *d)
{
    return d->dtype == WEFT_F64 ||
           (d->dtype == WEFT_F32 && (!wf_dnnl_active() || wf_isa() == WF_ISA_AVX2));
}

int wf_conv2d_forward(const wf_conv_desc *d, const void *src, const void *weight, const void *bias,
                      void *dst)
{
    if (!valid(d))
        return WF_GEMM_UNSUPPORTED;
    if (!bytes(d, d->n, d->o, d->oh, d->ow))
        return WF_GEMM_OK;
    if (no_terms(d)) {
        if (bias)
            fill_bias(d, bias, dst);
        else
            memset(dst, 0, bytes(d, d->n, d->o, d->oh, d->ow));
        return WF_GEMM_OK;
    }
    if (is_product(d) && (!bias || is_product_with_bias(d)))
        return product(&(pointwise){d, 1, d->c, d->o, src, weight, d->c, 1, dst, bias});
    if (is_thinned(d, FORWARD, bias))
        return thinned(d, FORWARD, (const void *[]){src, weight, dst, bias});
    if (is_made_in_f32(d))
        return in_f32(d, FORWARD, (const void *[]){src, weight, dst, bias});
    int rc = wf_amx_conv_forward(d, src, weight, bias, dst);
    if (rc == WF_GEMM_UNSUPPORTED)
        rc = wf_conv_columns_forward(d, src, weight, bias, dst);
    if (rc == WF_GEMM_UNSUPPORTED)
        rc = wf_conv_line_forward(d, src, weight, bias, dst);
    if (rc == WF_GEMM_UNSUPPORTED)
        rc = by_dnnl(d, FORWARD, src, weight, bias, dst);
    if (rc == WF_GEMM_UNSUPPORTED)
        rc = wf_conv_builtin_forward(d, src, weight, bias, dst);
    if (!rc)
        wf_conv_padding_forward(d, src, weight, bias, dst);
    return rc;
}

/*
 * By oneDNN. It sums over bf16 results in pairs, and an odd one out has the next pixel's first, times zero, or an infinity of its
 * own times one: NaN where there is none. Where an element is not finite all are computed of f32 copies, which no kernel takes in
 * pairs. Depthwise kernels of windows without gaps sum over one result, by itself.
 */
static int images_by_dnnl(const wf_conv_desc *d, const void *ddst, const void *weight, void *dsrc)
{
    const int rc = by_dnnl(d, BACKWARD_DATA, dsrc, weight, NULL, ddst);
    const int alone = d->groups > 1 && d->groups == d->o && d->groups == d->c &&
                      d->dilation[0] == 1 && d->dilation[1] == 1;
    if (rc || d->dtype != WEFT_BF16 || d->o / d->groups % 2 == 0 || alone ||
        wf_kernels_now()->finite(dsrc, (size_t)(d->n * d->c * d->h * d->w)))
        return rc;
    return in_f32(d, BACKWARD_DATA, (const void *[]){dsrc, weight, ddst, NULL});
}

/* A gradient of an image made by what multiplies what lies beyond the result, which oneDNN and columns do not. */
static int inside(const wf_conv_desc *d, const void *ddst, const void *weight, void *dsrc, int rc)
{
    if (!rc)
        wf_conv_padding_backward_data(d, ddst, weight, dsrc);
    return rc;
}

int wf_conv2d_backward_data(const wf_conv_desc *d, const void *ddst, const void *weight, void *dsrc)
{
    if (!valid(d))
        return WF_GEMM_UNSUPPORTED;
    size_t size = bytes(d, d->n, d->c, d->h, d->w);
    if (!size)
        return WF_GEMM_OK;
    if (!bytes(d, d->n, d->o, d->oh, d->ow) || no_terms(d)) {
        memset(dsrc, 0, size);
        return WF_GEMM_OK;
    }
    if (is_product(d))
        return product(&(pointwise){d, 0, d->o, d->c, ddst, weight, 1, d->c, dsrc, NULL});
    if (is_thinned(d, BACKWARD_DATA, NULL))
        return thinned(d, BACKWARD_DATA, (const void *[]){dsrc, weight, ddst, NULL});
    if (is_made_in_f32(d))
        return in_f32(d, BACKWARD_DATA, (const void *[]){dsrc, weight, ddst, NULL});
    int rc = inside(d, ddst, weight, dsrc, wf_amx_conv_backward_data(d, ddst, weight, dsrc));
    if (rc == WF_GEMM_UNSUPPORTED)
        rc = wf_conv_columns_backward_data(d, ddst, weight, dsrc);
    if (rc == WF_GEMM_UNSUPPORTED)
        rc = images_by_dnnl(d, ddst, weight, dsrc);
    return rc == WF_GEMM_UNSUPPORTED
               ? inside(d, ddst, weight, dsrc, wf_conv_builtin_backward_data(d, ddst, weight, dsrc))
               : rc;
}

/* Whether the gradient of a 1 x 1 kernel is a product with few columns and long sums, for which oneDNN 2.6.3's product of
 * bf16 takes longer than its convolution. (Zen 4, one primitive's time over that of the product and of the convolution: n8
 * 64 -> 256 @56 0.85, 0.99, 64 -> 64 @56 0.88, 0.99, 16 -> 96 @56 0.74, 0.99, 64 -> 256 @28 0.89, 0.93; but 64 -> 256 @14
 * 0.89, 0.81 and 128 -> 512 @28 0.99, 0.95.) */
static int is_narrow(const wf_conv_desc *d)
{
    return d->dtype == WEFT_BF16 && d->c <= 64 && d->n * d->h * d->w >= 2048 && is_product(d) &&
           wf_dnnl_active() && wf_bf16_pairs() && !wf_amx();
}

/* The same gradient as one product over all pixels; NCHW operands are copied for it, so that it has one set of bits. */
static int weight_product(const wf_conv_desc *d, const void *src, const void *ddst, void *dweight)
{
    const wf_view x = wf_conv_pixels(d, 0, src), y = wf_conv_pixels(d, 1, ddst);
    wf_dense in = {NULL, NULL, 0}, out = {NULL, NULL, 0};
    int rc = wf_conv_dense(&x, d->dtype, &in);
    rc = rc ? rc : wf_conv_dense(&y, d->dtype, &out);
    rc = rc ? rc
            : wf_gemm(&(wf_gemm_desc){.dtype = d->dtype,
                                      .m = d->o,
                                      .n = d->c,
                                      .k = d->n * d->h * d->w,
                                      .batch = 1,
                                      .a = out.data,
                                      .a_rs = 1,
                                      .a_cs = d->o,
                                      .b = in.data,
                                      .b_rs = d->c,
                                      .b_cs = 1,
                                      .c = dweight,
                                      .c_rs = d->c});
    wf_dense_free(&in);
    wf_dense_free(&out);
    return rc;
}

/*
 * By oneDNN. Sums of bf16 that may have met what fills up rows are made of f32 copies, which no kernel takes in pairs. For a
 * 1 x 1 kernel with a stride jit_bf16_1x1 brings few channels together beyond the end of its own memory: they are brought together here.
 */
static int weights_by_dnnl(const wf_conv_desc *d, const void *src, const void *ddst, void *dweight)
{
    if (d->dtype == WEFT_BF16 && is_pointwise(d) && !is_product(d) && wf_dnnl_active())
        return thinned(d, BACKWARD_WEIGHT, (const void *[]){src, dweight, ddst, NULL});
    const int rc = is_narrow(d) ? wf_dnnl_conv_backward_weight(d, src, ddst, dweight)
                                : by_dnnl(d, BACKWARD_WEIGHT, src, dweight, NULL, ddst);
    return rc == WF_GEMM_UNSUPPORTED && d->dtype == WEFT_BF16 && wf_dnnl_active()
               ? in_f32(d, BACKWARD_WEIGHT, (const void *[]){src, dweight, ddst, NULL})
               : rc;
}

int wf_conv2d_backward_weight(const wf_conv_desc *d, const void *src, const void *ddst,
                              void *dweight)
{
    if (!valid(d))
        return WF_GEMM_UNSUPPORTED;
    size_t size = bytes(d, d->o, d->c / d->groups, d->kh, d->kw);
    if (!size)
        return WF_GEMM_OK;
    if (!bytes(d, d->n, d->oh, d->ow, 1) || !bytes(d, d->h, d->w, 1, 1)) {
        memset(dweight, 0, size);
        return WF_GEMM_OK;
    }
    if (is_narrow(d))
        return weights_by_dnnl(d, src, ddst, dweight);
    if (is_product(d))
        return weight_product(d, src, ddst, dweight);
    if (is_thinned(d, BACKWARD_WEIGHT, NULL)) {
        const int rc =
            wf_conv_line_backward_weight(d, src, ddst, dweight); /* long lines, where they lie */
        return rc == WF_GEMM_UNSUPPORTED
                   ? thinned(d, BACKWARD_WEIGHT, (const void *[]){src, dweight, ddst, NULL})
                   : rc;
    }
    if (is_made_in_f32(d))
        return in_f32(d, BACKWARD_WEIGHT, (const void *[]){src, dweight, ddst, NULL});
    int rc = wf_conv_depthwise_backward_weight(d, src, ddst, dweight);
    if (rc == WF_GEMM_UNSUPPORTED)
        rc = wf_amx_conv_backward_weight(d, src, ddst, dweight);
    if (rc == WF_GEMM_UNSUPPORTED)
        rc = wf_conv_columns_backward_weight(d, src, ddst, dweight);
    if (rc == WF_GEMM_UNSUPPORTED)
        rc = wf_conv_line_backward_weight(d, src, ddst, dweight);
    if (rc == WF_GEMM_UNSUPPORTED)
        rc = weights_by_dnnl(d, src, ddst, dweight);
    if (rc == WF_GEMM_UNSUPPORTED)
        rc = wf_conv_builtin_backward_weight(d, src, ddst, dweight);
    return rc ? rc : wf_conv_padding_backward_weight(d, src, ddst, dweight);
}
