/*
 * bench/bench_image.c -- images in row-major and in channels-last memory: rows one by one, their gradients, the block that
 * a residual network repeats, called and traced, and parts of ResNet-50, called and traced: the stem, a bottleneck, and both with a head
 * on top, forward with running statistics and as training steps (gradients and a step of descent).
 *
 *   bench_image [threads, 0: 1 and 2] [only cases that contain this text]
 *
 * "us" is of channels-last images, "rows_us" of row-major ones, in turns; "ratio" is the second over the first. The peer of
 * a layout is the other one: the bits are the same (tests/unit/test_layout.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/support/bench.h"
#include "weft/weft.h"

enum { N = 8, C = 64, SIZE = 56, SIDES = 4 };

static int threads;
static const char *only = "";

/* What all cases read; [1] is channels-last. */
static struct {
    weft_dtype dtype;
    weft_tensor x[2], y[2], weight[2], scale, shift, column;
} of;

static weft_tensor good(weft_tensor t)
{
    if (!weft_ok(t))
        bench_die(weft_error_text(t));
    return t;
}

static weft_tensor relu(weft_tensor x, weft_tensor y)
{
    (void)y;
    return weft_relu(x);
}
static weft_tensor add(weft_tensor x, weft_tensor y)
{
    return weft_add(x, y);
}
static weft_tensor add_bias(weft_tensor x, weft_tensor y)
{
    (void)y;
    return weft_add(x, of.column);
}
static weft_tensor gelu(weft_tensor x, weft_tensor y)
{
    (void)y;
    return weft_gelu(x);
}
static weft_tensor norm(weft_tensor x, weft_tensor y)
{
    (void)y;
    return weft_batch_norm(.x = x, .weight = of.scale, .bias = of.shift, .training = true);
}
static weft_tensor max_pool(weft_tensor x, weft_tensor y)
{
    (void)y;
    return weft_max_pool2d(.x = x, .kernel = weft_shape(3), .stride = weft_shape(2),
                           .padding = weft_shape(1));
}
static weft_tensor avg_pool(weft_tensor x, weft_tensor y)
{
    (void)y;
    return weft_avg_pool2d(.x = x, .kernel = weft_shape(2));
}
static weft_tensor sum_pixels(weft_tensor x, weft_tensor y)
{
    (void)y;
    return weft_sum(x, .axes = weft_axes(0, 2, 3));
}
static weft_tensor sum_all(weft_tensor x, weft_tensor y)
{
    (void)y;
    return weft_sum(x);
}
static weft_tensor convolve(weft_tensor x, int k)
{
    return weft_conv2d(.x = x, .weight = of.weight[k], .padding = weft_shape(1));
}
static weft_tensor conv(weft_tensor x, weft_tensor y)
{
    (void)y;
    return convolve(x, 0);
}
static weft_tensor block(weft_tensor x, weft_tensor y)
{
    const weft_tensor h = weft_relu(norm(convolve(x, 0), y));
    return weft_relu(weft_add(convolve(h, 1), x));
}

typedef struct row {
    const char *name;
    weft_tensor (*fn)(weft_tensor x, weft_tensor y);
} row;

typedef struct side {
    const row *row;
    int last; /* which order */
    weft_jit *traced;
} side;

static void forward(void *arg)
{
    const side *s = arg;
    const weft_scope sc = weft_scope_begin();
    good(s->row->fn(of.x[s->last], of.y[s->last]));
    weft_scope_end(sc);
}

/* Forward and backward; the gradient comes in the order of the image. */
static void backward(void *arg)
{
    const side *s = arg;
    const weft_scope sc = weft_scope_begin();
    const weft_tensor x = weft_detach(of.x[s->last]);
    weft_requires_grad_(x, true);
    const weft_tensor y = good(s->row->fn(x, of.y[s->last]));
    if (weft_backward(y, .gradient = weft_detach(y)))
        bench_die(weft_last_error());
    weft_scope_end(sc);
}

/* -- parts of ResNet-50 (He et al. 2015, "Deep Residual Learning for Image Recognition") ----------------------------- */

enum { LAYERS = 8, CLASSES = 100, EXTENT = 224, TENSORS = 3 * LAYERS + 1 };

/* The stem; a bottleneck with a convolution on its shortcut, the last of the four; one without. */
static const struct {
    int in, out, kernel, stride;
} shape_of[LAYERS] = {{3, 64, 7, 2},   {64, 64, 1, 1},  {64, 64, 3, 1}, {64, 256, 1, 1},
                      {64, 256, 1, 1}, {256, 64, 1, 1}, {64, 64, 3, 1}, {64, 256, 1, 1}};

/* Of each layer weight, scale and shift, then the head's weight; statistics that are not trained. */
static struct {
    weft_tensor param[TENSORS], mean[LAYERS], var[LAYERS];
} net;

static weft_tensor conv_norm(const weft_tensor *p, bool training, int i, weft_tensor x)
{
    const int k = shape_of[i].kernel;
    x = weft_conv2d(.x = x, .weight = p[3 * i], .stride = weft_shape(shape_of[i].stride),
                    .padding = weft_shape(k / 2));
    return weft_batch_norm(.x = x, .weight = p[3 * i + 1], .bias = p[3 * i + 2],
                           .running_mean = net.mean[i], .running_var = net.var[i],
                           .training = training);
}
static weft_tensor stem(const weft_tensor *p, bool training, weft_tensor x)
{
    x = weft_relu(conv_norm(p, training, 0, x));
    return weft_max_pool2d(.x = x, .kernel = weft_shape(3), .stride = weft_shape(2),
                           .padding = weft_shape(1));
}
static weft_tensor bottleneck_at(const weft_tensor *p, bool training, int i, weft_tensor x)
{
    const bool turns = shape_of[i].in != 256;
    const weft_tensor skip = turns ? conv_norm(p, training, i + 3, x) : x;
    weft_tensor h = weft_relu(conv_norm(p, training, i, x));
    h = weft_relu(conv_norm(p, training, i + 1, h));
    return weft_relu(weft_add(conv_norm(p, training, i + 2, h), skip));
}
static weft_tensor bottleneck(const weft_tensor *p, bool training, weft_tensor x)
{
    return bottleneck_at(p, training, 5, x);
}
static weft_tensor network(const weft_tensor *p, bool training, weft_tensor x)
{
    x = bottleneck_at(p, training, 5, bottleneck_at(p, training, 1, stem(p, training, x)));
    return weft_linear(weft_mean(x, .axes = weft_axes(2, 3)), p[TENSORS - 1], WEFT_NONE);
}

typedef struct part {
    const char *name;
    weft_tensor (*fn)(const weft_tensor *p, bool training, weft_tensor x);
    bool trains, wide; /* its images have 256 channels and are a quarter as high */
} part;

/* in[0]: images. A result, or none of a training step. */
static weft_status run_part(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out)
{
    const part *a = self;
    weft_tensor p[TENSORS];
    (void)n_in, (void)n_out;
    if (!a->trains) {
        out[0] = a->fn(net.param, false, in[0]);
        return weft_error_status(out[0]);
    }
    for (int i = 0; i < TENSORS; i++) {
        p[i] = weft_detach(net.param[i]);
        weft_requires_grad_(p[i], true);
    }
    const weft_tensor y = a->fn(p, true, in[0]);
    weft_status s = weft_backward(y, .gradient = weft_detach(y));
    for (int i = 0; i < TENSORS && !s; i++) {
        const weft_tensor g = weft_grad(p[i]);
        if (weft_ok(g))
            s = weft_sub_(net.param[i], weft_mul(weft_cast(g, of.dtype), weft_f(1e-7)));
    }
    out[0] = weft_mean(weft_mul(y, y));
    return s;
}

typedef struct turn {
    part *part;
    weft_tensor image;
    weft_jit *traced; /* or NULL: called */
} turn;

static void take_turn(void *arg)
{
    const turn *t = arg;
    const weft_scope sc = weft_scope_begin();
    weft_tensor out;
    if (t->traced ? weft_jit_call(t->traced, &t->image, 1, &out, 1)
                  : run_part(t->part, &t->image, 1, &out, 1))
        bench_die(weft_last_error());
    weft_scope_end(sc);
}

static void race_part(part *a)
{
    turn t[SIDES];
    bench_side s[SIDES];
    if (!strstr(a->name, only))
        return;
    const weft_scope sc = weft_scope_begin();
    const weft_shape extents =
        a->wide ? weft_shape(N, 256, SIZE, SIZE) : weft_shape(N, 3, EXTENT, EXTENT);
    const weft_tensor x = weft_cast(weft_randn(extents, WEFT_F32), of.dtype);
    weft_jit *j = weft_jit_trace(run_part, a, .synchronous = true);
    for (int i = 0; i < SIDES; i++) {
        t[i] = (turn){a, i % 2 == 0 ? weft_channels_last(x) : x, i < 2 ? NULL : j};
        s[i] = (bench_side){.run = take_turn, .arg = &t[i]};
    }
    const bench_plan plan = {
        .threads = threads, .batch = 1e-3, .rounds = bench_quick() ? 5 : 15, .seconds = 20};
    bench_race(s, SIDES, &plan);
    bench_open("image", a->name, NULL, weft_dtype_name(of.dtype), threads);
    bench_number("us", s[0].median * 1e6);
    bench_number("rows_us", s[1].median * 1e6);
    bench_number("ratio", s[1].median / s[0].median);
    bench_number("traced_us", s[2].median * 1e6);
    bench_number("traced_rows_us", s[3].median * 1e6);
    bench_number("ratio_traced", s[0].median / s[2].median);
    bench_number("ratio_traced_rows", s[1].median / s[3].median);
    bench_close();
    weft_jit_free(j);
    weft_scope_end(sc);
}

static weft_tensor scaled(weft_shape shape, double by)
{
    return weft_keep(weft_cast(weft_mul(weft_randn(shape, WEFT_F32), weft_f(by)), of.dtype));
}

static void race_parts(void)
{
    part parts[] = {{"stem", stem, false, false},
                    {"bottleneck", bottleneck, false, true},
                    {"stem, bottlenecks, head", network, false, false},
                    {"stem, training step", stem, true, false},
                    {"bottleneck, training step", bottleneck, true, true},
                    {"stem, bottlenecks, head, training step", network, true, false}};
    for (int i = 0; i < LAYERS; i++) {
        const int k = shape_of[i].kernel, c = shape_of[i].out;
        net.param[3 * i] = scaled(weft_shape(c, shape_of[i].in, k, k), 0.05);
        net.param[3 * i + 1] = scaled(weft_shape(c), 1);
        net.param[3 * i + 2] = scaled(weft_shape(c), 0.1);
        net.mean[i] = weft_keep(weft_zeros(weft_shape(c), of.dtype));
        net.var[i] = weft_keep(weft_ones(weft_shape(c), of.dtype));
    }
    net.param[TENSORS - 1] = scaled(weft_shape(CLASSES, 256), 0.05);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        race_part(&parts[i]);
    for (int i = 0; i < LAYERS; i++) {
        weft_free(net.mean[i]);
        weft_free(net.var[i]);
    }
    for (int i = 0; i < TENSORS; i++)
        weft_free(net.param[i]);
}

static weft_status traced_block(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = block(in[0], in[1]);
    return weft_error_status(out[0]);
}

static void traced(void *arg)
{
    const side *s = arg;
    const weft_scope sc = weft_scope_begin();
    const weft_tensor in[2] = {of.x[s->last], of.y[s->last]};
    weft_tensor out;
    if (weft_jit_call(s->traced, in, 2, &out, 1))
        bench_die(weft_last_error());
    weft_scope_end(sc);
}

/* Sides: channels-last and row-major, then the same two traced. */
static void race(const char *name, void (*run)(void *), const row *r, weft_jit *j)
{
    side of_side[SIDES];
    bench_side s[SIDES];
    const int count = j ? SIDES : 2;
    if (!strstr(name, only))
        return;
    for (int i = 0; i < count; i++) {
        of_side[i] = (side){.row = r, .last = i % 2 == 0, .traced = j};
        s[i] = (bench_side){.run = i < 2 ? run : traced, .arg = &of_side[i]};
    }
    const bench_plan plan = {.threads = threads, .batch = 2e-3, .rounds = bench_quick() ? 5 : 11};
    bench_race(s, count, &plan);
    bench_open("image", name, NULL, weft_dtype_name(of.dtype), threads);
    bench_number("us", s[0].median * 1e6);
    bench_number("rows_us", s[1].median * 1e6);
    bench_number("ratio", s[1].median / s[0].median);
    if (j) {
        bench_number("traced_us", s[2].median * 1e6);
        bench_number("traced_rows_us", s[3].median * 1e6);
        bench_number("ratio_traced", s[0].median / s[2].median);
    }
    bench_close();
}

static weft_tensor numbers(weft_shape shape)
{
    return weft_keep(weft_cast(weft_randn(shape, WEFT_F32), of.dtype));
}

int main(int argc, char **argv)
{
    static const row rows[] = {{"relu", relu},
                               {"add", add},
                               {"add bias", add_bias},
                               {"gelu", gelu},
                               {"batch_norm", norm},
                               {"max_pool2d 3/2", max_pool},
                               {"avg_pool2d 2", avg_pool},
                               {"conv2d 3x3", conv},
                               {"sum over pixels", sum_pixels},
                               {"sum of all", sum_all}};
    static const row whole = {"conv norm relu conv add relu", block};
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16};
    const int asked = argc > 1 ? atoi(argv[1]) : 0;
    only = argc > 2 ? argv[2] : "";
    for (threads = asked ? asked : 1; threads <= (asked ? asked : 2); threads++) {
        weft_set_num_threads(threads);
        for (int t = 0; t < 2; t++) {
            const weft_scope sc = weft_scope_begin();
            char name[64];
            of.dtype = dtypes[t];
            of.x[0] = numbers(weft_shape(N, C, SIZE, SIZE));
            of.y[0] = numbers(weft_shape(N, C, SIZE, SIZE));
            of.scale = numbers(weft_shape(C));
            of.shift = numbers(weft_shape(C));
            of.column = weft_reshape(of.shift, weft_shape(C, 1, 1));
            for (int i = 0; i < 2; i++)
                of.weight[i] = numbers(weft_shape(C, C, 3, 3));
            of.x[1] = weft_channels_last(of.x[0]);
            of.y[1] = weft_channels_last(of.y[0]);
            for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
                race(rows[i].name, forward, &rows[i], NULL);
                snprintf(name, sizeof name, "%s, with gradient", rows[i].name);
                if (rows[i].fn != sum_all && rows[i].fn != sum_pixels)
                    race(name, backward, &rows[i], NULL);
            }
            weft_jit *j = weft_jit_trace(traced_block, NULL, .synchronous = true);
            race(whole.name, forward, &whole, j);
            race("block, with gradient", backward, &whole, NULL);
            weft_jit_free(j);
            race_parts();
            weft_free(of.x[0]);
            weft_free(of.y[0]);
            weft_free(of.scale);
            weft_free(of.shift);
            for (int i = 0; i < 2; i++)
                weft_free(of.weight[i]);
            weft_scope_end(sc);
        }
    }
    return 0;
}
