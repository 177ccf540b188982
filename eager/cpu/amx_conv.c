/*
 * eager/cpu/amx_conv.c -- convolutions of bf16 on matrix units: forward, and the gradient of the input.
 *
 * With strides of 1 the windows of a zero-padded image, walked row by row over its whole width, are rows of A that
 * overlap: pixel p of the image begins row p, and a tap is an offset common to all rows. So A is the padded image, read
 * where it lies; results of windows that wrap around the image's edge go nowhere. Terms are ordered by blocks of 32
 * channels, within these by tap, within these by channel. The gradient of the input is the same convolution of the
 * padded gradient of the output with the taps turned round and the weights transposed. Padding is multiplied like the
 * rest: an infinite weight gives NaN where its tap meets it (see conv_padding.c).
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/cpu/amx.h"
#include "eager/pool.h"

/* Squares of a task, and tasks that are enough. */
enum { STRIP = 16, TASKS = 8 };
/* Bytes of padded images that are made at a time: they stay in the second cache until they are read. */
#define NEAR ((int64_t)1 << 20)

typedef struct conv {
    wf_amx_job w;
    wf_gemm_desc d;
    int64_t h, w_in;      /* of the image */
    int64_t top, left;    /* padding */
    int64_t wide, pixels; /* of a padded image: a row, all that is read */
    int64_t in, out;      /* channels */
    int64_t taps;
    int64_t samples, first; /* all; of those in work, which are d.batch */
    bool transposed;
    const uint16_t *src, *weight;
    uint16_t *image;
    int32_t *offset;
    int64_t *row_at;
    size_t image_bytes, b_bytes, bias_bytes, offset_bytes, row_bytes;
} conv;

/* Rows of results between those wanted, and the padding, are work for nothing: dilated kernels that reach far
 * beyond the result are for others. */
static bool is_near(int64_t dilation, int64_t kernel, int64_t pad, int64_t out)
{
    const int64_t reach = dilation * (kernel - 1);
    return pad <= reach && reach <= 4 * out + 4;
}

bool wf_amx_conv_fits(const wf_conv_desc *d)
{
    const unsigned last = WF_CONV_SRC_NHWC | WF_CONV_DST_NHWC;
    return wf_gemm_amx_active() && d->dtype == WEFT_BF16 && (d->layout & last) == last &&
           d->groups == 1 && d->kh * d->kw <= WF_AMX_TAPS &&
           is_near(d->dilation[0], d->kh, d->pad[0], d->oh) &&
           is_near(d->dilation[1], d->kw, d->pad[1], d->ow);
}

static bool fits(const wf_conv_desc *d)
{
    return wf_amx_conv_fits(d) && d->stride[0] == 1 && d->stride[1] == 1 &&
           d->c % WF_AMX_SIDE == 0 && d->o % WF_AMX_SIDE == 0 &&
           d->h + 2 * d->pad[0] < (1 << 29) / (d->c + d->o) / (d->w + 2 * d->pad[1]);
}

static void image_task(void *arg, int64_t begin, int64_t end)
{
    const conv *v = arg;
    const int64_t rows = (v->pixels + v->wide - 1) / v->wide;
    for (int64_t t = begin; t < end; t++) {
        const int64_t n = t / rows, y = t % rows - v->top;
        const int64_t length =
            v->pixels - t % rows * v->wide < v->wide ? v->pixels - t % rows * v->wide : v->wide;
        uint16_t *out = v->image + (n * v->pixels + t % rows * v->wide) * v->in;
        const size_t pixel = (size_t)v->in * sizeof *out;
        if (y < 0 || y >= v->h || length < v->wide) {
            memset(out, 0, (size_t)length * pixel);
            continue;
        }
        memset(out, 0, (size_t)v->left * pixel);
        memcpy(out + v->left * v->in, v->src + ((v->first + n) * v->h + y) * v->w_in * v->in,
               (size_t)v->w_in * pixel);
        memset(out + (v->left + v->w_in) * v->in, 0, (size_t)(v->wide - v->left - v->w_in) * pixel);
    }
}

/* Weights of 32 input and 32 output channels of this convolution a task. */
static void weight_task(void *arg, int64_t begin, int64_t end)
{
    const conv *v = arg;
    const int64_t blocks = v->in / WF_AMX_SIDE, c = v->transposed ? v->out : v->in;
    for (int64_t t = begin; t < end; t++) {
        const int64_t q = t / blocks, block = t % blocks;
        const int64_t first_o = (v->transposed ? block : q) * WF_AMX_SIDE;
        const int64_t first_c = (v->transposed ? q : block) * WF_AMX_SIDE;
        wf_amx_pack_taps(v->weight + (first_o * c + first_c) * v->taps, c * v->taps, v->taps,
                         v->transposed, v->w.b + (q * v->w.steps + block * v->taps) * WF_AMX_STEP,
                         WF_AMX_STEP);
    }
}

/* Where steps begin, and where rows of results go. The taps are packed in their order: the gradient reads the image
 * from its last tap on. */
static void make_tables(const conv *v, const wf_conv_desc *d, int64_t rows, int64_t columns)
{
    int32_t *offset = v->offset;
    for (int64_t block = 0; block < v->in / WF_AMX_SIDE; block++)
        for (int64_t t = 0; t < v->taps; t++) {
            const int64_t tap = v->transposed ? v->taps - 1 - t : t;
            const int64_t pixel =
                tap / d->kw * d->dilation[0] * v->wide + tap % d->kw * d->dilation[1];
            *offset++ = (int32_t)((pixel * v->in + block * WF_AMX_SIDE) * 2);
        }
    for (int64_t i = 0; i < v->w.down * WF_AMX_SIDE; i++) {
        const int64_t y = i / v->wide, x = i % v->wide;
        v->row_at[i] = y < rows && x < columns ? (y * columns + x) * v->out : -1;
    }
}

/* rows x columns: of the result. Everything that can fail comes before the first result. */
static int prepare(conv *v, const wf_conv_desc *d, int64_t rows, int64_t columns)
{
    wf_amx_job *w = &v->w;
    v->taps = d->kh * d->kw;
    v->wide = columns + d->dilation[1] * (d->kw - 1);
    v->d.m = (rows - 1) * v->wide + columns;
    v->d.n = v->out;
    v->d.k = v->in * v->taps;
    w->d = &v->d;
    w->steps = v->d.k / WF_AMX_SIDE;
    w->block = (w->steps - 1) / WF_AMX_BLOCK + 1;
    w->block = (w->steps + w->block - 1) / w->block;
    w->down = w->in_place = (v->d.m + WF_AMX_SIDE - 1) / WF_AMX_SIDE;
    w->across = w->group = v->out / WF_AMX_SIDE;
    w->strip = w->down < STRIP ? w->down : STRIP;
    const int64_t others = v->samples * ((w->down - 1) / w->strip + 1);
    if (others < TASKS && w->across > 1) {
        const int64_t groups = TASKS / others < w->across ? TASKS / others : w->across;
        w->group = (w->across + groups - 1) / groups;
    }
    v->pixels = w->down * WF_AMX_SIDE + d->dilation[0] * (d->kh - 1) * v->wide +
                d->dilation[1] * (d->kw - 1);
    const int64_t turns = (v->samples * v->pixels * v->in * 2 - 1) / NEAR + 1;
    v->d.batch = turns < v->samples ? (v->samples + turns - 1) / turns : 1;
    v->image_bytes = (size_t)(v->d.batch * v->pixels * v->in) * 2;
    v->b_bytes = (size_t)(w->across * w->steps * WF_AMX_STEP);
    v->offset_bytes = (size_t)w->steps * sizeof *v->offset;
    v->row_bytes = (size_t)(w->down * WF_AMX_SIDE) * sizeof *v->row_at;
    if (!(v->image = wf_scratch(v->image_bytes)) || !(w->b = wf_scratch(v->b_bytes)) ||
        !(v->offset = wf_scratch(v->offset_bytes)) || !(v->row_at = wf_scratch(v->row_bytes)) ||
        wf_amx_widen_bias(w, &v->bias_bytes))
        return WF_GEMM_NOMEM;
    make_tables(v, d, rows, columns);
    w->offset = v->offset;
    w->row_at = v->row_at;
    v->d.a = v->image;
    v->d.a_rs = v->in;
    v->d.a_cs = 1;
    v->d.a_bs = v->pixels * v->in;
    v->d.c_rs = v->out;
    v->d.c_bs = rows * columns * v->out;
    return WF_GEMM_OK;
}

static int run(conv *v, const wf_conv_desc *d, int64_t rows, int64_t columns)
{
    int rc = prepare(v, d, rows, columns);
    if (!rc)
        wf_parallel_for(v->w.across * (v->in / WF_AMX_SIDE), 32 / v->taps + 1, weight_task, v);
    uint16_t *c = v->d.c;
    for (const int64_t turn = v->d.batch; !rc && v->first < v->samples; v->first += turn) {
        v->d.batch = turn < v->samples - v->first ? turn : v->samples - v->first;
        v->d.c = c + v->first * v->d.c_bs;
        const int64_t lines = v->d.batch * ((v->pixels + v->wide - 1) / v->wide);
        const int64_t line = v->wide * v->in;
        wf_parallel_for(lines, line > 32768 ? 1 : 32768 / line + 1, image_task, v);
        rc = wf_amx_run(&v->w);
    }
    wf_scratch_free(v->w.bias, v->bias_bytes);
    wf_scratch_free(v->row_at, v->row_bytes);
    wf_scratch_free(v->offset, v->offset_bytes);
    wf_scratch_free(v->w.b, v->b_bytes);
    wf_scratch_free(v->image, v->image_bytes);
    return rc;
}

int wf_amx_conv_forward(const wf_conv_desc *d, const void *src, const void *weight,
                        const void *bias, void *dst)
{
    if (!fits(d))
        return WF_GEMM_UNSUPPORTED;
    conv v = {.h = d->h,
              .w_in = d->w,
              .top = d->pad[0],
              .left = d->pad[1],
              .in = d->c,
              .out = d->o,
              .samples = d->n,
              .src = src,
              .weight = weight};
    v.d = (wf_gemm_desc){.dtype = WEFT_BF16, .c = dst, .bias = bias, .bias_cs = 1};
    return run(&v, d, d->oh, d->ow);
}

int wf_amx_conv_backward_data(const wf_conv_desc *d, const void *ddst, const void *weight,
                              void *dsrc)
{
    if (!fits(d))
        return WF_GEMM_UNSUPPORTED;
    conv v = {.h = d->oh,
              .w_in = d->ow,
              .top = d->dilation[0] * (d->kh - 1) - d->pad[0],
              .left = d->dilation[1] * (d->kw - 1) - d->pad[1],
              .in = d->o,
              .out = d->c,
              .samples = d->n,
              .transposed = true,
              .src = ddst,
              .weight = weight};
    v.d = (wf_gemm_desc){.dtype = WEFT_BF16, .c = dsrc};
    return run(&v, d, d->h, d->w);
}
