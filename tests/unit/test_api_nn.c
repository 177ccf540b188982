/*
 * tests/unit/test_api_nn.c -- layers and losses: options, defaults and compositions against loops in
 * double; nothing stays behind, no failing allocation does harm.
 *
 * ctest: threads
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "tests/support/support.h"
#include "weft/weft.h"

#define OK(call) cr_assert_eq(call, WEFT_OK, "%s", weft_last_error())
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static void near(const char *what, weft_tensor t, int n, const double *want, double tol)
{
    double got[512];
    cr_assert(weft_ok(t), "%s: %s", what, weft_error_text(t));
    cr_assert(n <= COUNT(got) && weft_numel(t) == n, "%s: %d elements", what, (int)weft_numel(t));
    OK(weft_to_array(t, got, n, WEFT_F64));
    for (int i = 0; i < n; i++) {
        cr_assert(fabs(got[i] - want[i]) <= tol * (1 + fabs(want[i])), "%s[%d] is %.9g, not %.9g",
                  what, i, got[i], want[i]);
    }
}
/* Bit for bit. */
static void same(const char *what, weft_tensor a, weft_tensor b)
{
    const size_t bytes = (size_t)weft_numel(a) * 4;
    void *x = malloc(bytes), *y = malloc(bytes);
    OK(weft_to_array(a, x, weft_numel(a), WEFT_F32));
    OK(weft_to_array(b, y, weft_numel(a), WEFT_F32));
    cr_assert(memcmp(x, y, bytes) == 0, "%s: other bits", what);
    free(x);
    free(y);
}
#define FAILS(call, status)                                                                        \
    do {                                                                                           \
        weft_tensor failed_ = call;                                                                \
        cr_assert_eq(weft_error_status(failed_), status, #call ": %s", weft_error_text(failed_));  \
    } while (0)

/* f64 tensors with known values, so that the compositions are exact to 1e-12. */
static weft_tensor given(double *v, weft_shape s, double seed)
{
    int64_t n = 1;
    for (int i = 0; i < s.n; i++) {
        n *= s.v[i];
    }
    for (int64_t i = 0; i < n; i++) {
        v[i] = sin(seed + 1.7 * (double)i) * 2;
    }
    return weft_from_data(v, s, WEFT_F64);
}

Test(api_nn, norms)
{
    double x[24], w[4], b[4], want[24];
    weft_tensor tx = given(x, weft_shape(6, 4), 1), tw = given(w, weft_shape(4), 2),
                tb = given(b, weft_shape(4), 3);
    for (int r = 0; r < 6; r++) {
        double m = 0, v = 0;
        for (int i = 0; i < 4; i++) {
            m += x[4 * r + i] / 4;
        }
        for (int i = 0; i < 4; i++) {
            v += (x[4 * r + i] - m) * (x[4 * r + i] - m) / 4;
        }
        for (int i = 0; i < 4; i++) {
            want[4 * r + i] = (x[4 * r + i] - m) / sqrt(v + 1e-5) * w[i] + b[i];
        }
    }
    near("layer_norm", weft_layer_norm(tx, tw, tb), 24, want, 1e-12);
    for (int r = 0; r < 6; r++) {
        double q = 0;
        for (int i = 0; i < 4; i++) {
            q += x[4 * r + i] * x[4 * r + i] / 4;
        }
        for (int i = 0; i < 4; i++) {
            want[4 * r + i] = x[4 * r + i] / sqrt(q + 0.5);
        }
    }
    near("rms_norm", weft_rms_norm(tx, .eps = 0.5), 24, want, 1e-12);
    /* all six rows as one: two trailing axes of a rank-2 tensor */
    weft_tensor all = weft_layer_norm(tx, .axes = 2, .eps = WEFT_ZERO);
    cr_assert(fabs(weft_item_f64(weft_mean(all))) < 1e-12);
    cr_assert(fabs(weft_item_f64(weft_var(all)) - 1) < 1e-12);
    FAILS(weft_layer_norm(tx, .axes = 3), WEFT_ESHAPE);
    FAILS(weft_layer_norm(tx, tb, tx), WEFT_ESHAPE);
}

Test(api_nn, batch_norm)
{
    double x[24], want[24], m[3] = {0}, v[3] = {0};
    weft_tensor tx = given(x, weft_shape(2, 3, 4), 1), mean = weft_zeros(weft_shape(3), WEFT_F64),
                var = weft_ones(weft_shape(3), WEFT_F64);
    for (int i = 0; i < 24; i++) {
        m[i / 4 % 3] += x[i] / 8;
    }
    for (int i = 0; i < 24; i++) {
        v[i / 4 % 3] += (x[i] - m[i / 4 % 3]) * (x[i] - m[i / 4 % 3]) / 8;
    }
    for (int i = 0; i < 24; i++) {
        want[i] = (x[i] - m[i / 4 % 3]) / sqrt(v[i / 4 % 3] + 1e-5);
    }
    weft_scope s = weft_scope_begin();
    OK(weft_requires_grad_(tx, true));
    near("training",
         weft_batch_norm(tx, .running_mean = mean, .running_var = var, .training = true), 24, want,
         1e-12);
    near("without running statistics", weft_batch_norm(tx, .training = true), 24, want, 1e-12);
    cr_assert(!weft_requires_grad(mean) && weft_write_count(var) == 1);
    weft_scope_end(s);
    for (int c = 0; c < 3; c++) {
        m[c] = 0.1 * m[c];
        v[c] = 0.9 + 0.1 * v[c] * 8 / 7;
    }
    near("running mean", mean, 3, m, 1e-12);
    near("running variance", var, 3, v, 1e-10);
    for (int i = 0; i < 24; i++) {
        want[i] = (x[i] - m[i / 4 % 3]) / sqrt(v[i / 4 % 3] + 1e-5);
    }
    near("evaluation", weft_batch_norm(tx, .running_mean = mean, .running_var = var), 24, want,
         1e-9);
    FAILS(weft_batch_norm(tx), WEFT_EINVALID);
    FAILS(weft_batch_norm(tx, .running_mean = mean), WEFT_EINVALID);
}

Test(api_nn, products_and_windows)
{
    double x[6], w[8], b[4], y[12];
    weft_tensor tx = given(x, weft_shape(3, 2), 1), tw = given(w, weft_shape(4, 2), 2),
                tb = given(b, weft_shape(4), 3);
    for (int i = 0; i < 12; i++) {
        y[i] = b[i % 4] + x[i / 4 * 2] * w[i % 4 * 2] + x[i / 4 * 2 + 1] * w[i % 4 * 2 + 1];
    }
    near("linear", weft_linear(tx, tw, tb), 12, y, 1e-14);
    weft_tensor mixed = weft_linear(weft_cast(tx, WEFT_F32), tw, tb);
    cr_assert_eq(weft_dtype_of(mixed), WEFT_F64);
    near("linear of f32 and f64", mixed, 12, y, 1e-6);
    near("matmul", weft_add(weft_matmul(tx, weft_transpose(tw, 0, 1)), tb), 12, y, 1e-14);
    FAILS(weft_linear(tx, tx, weft_zeros(weft_shape(4), WEFT_F64)), WEFT_ESHAPE);

    weft_tensor image = weft_reshape(weft_arange(0, 16, 1, WEFT_F32), weft_shape(1, 1, 4, 4)),
                kernel = weft_ones(weft_shape(1, 1, 3, 3), WEFT_F32), where;
    near("conv2d", weft_conv2d(image, kernel), 4, (double[]){45, 54, 81, 90}, 0);
    near("stride and padding",
         weft_conv2d(image, kernel, .stride = weft_shape(2), .padding = weft_shape(1)), 4,
         (double[]){10, 24, 51, 90}, 0);
    near("padding by axis", weft_conv2d(image, kernel, .padding = weft_shape(0, 1)), 8,
         (double[]){27, 45, 54, 39, 51, 81, 90, 63}, 0);
    near("max_pool2d", weft_max_pool2d(image, weft_shape(2), .indices = &where), 4,
         (double[]){5, 7, 13, 15}, 0);
    near("indices", where, 4, (double[]){5, 7, 13, 15}, 0);
    near("avg_pool2d", weft_avg_pool2d(image, weft_shape(2, 4)), 2, (double[]){3.5, 11.5}, 0);
    FAILS(weft_conv2d(image, kernel, .stride = weft_shape(1, 1, 1)), WEFT_EINVALID);
    FAILS(weft_conv2d(image, kernel, .groups = -1), WEFT_ESHAPE);
    FAILS(weft_max_pool2d(image), WEFT_EINVALID);
    FAILS(weft_avg_pool2d(image, weft_shape(2), .indices = &where), WEFT_EINVALID);
}

Test(api_nn, attention_and_softmax)
{
    double q[6], k[10], v[10], want[6];
    weft_tensor tq = given(q, weft_shape(3, 2), 1), tk = given(k, weft_shape(5, 2), 2),
                tv = given(v, weft_shape(5, 2), 3);
    for (int causal = 0; causal < 2; causal++) {
        for (int i = 0; i < 3; i++) {
            double p[5], sum = 0, o[2] = {0, 0};
            for (int j = 0; j < 5; j++) {
                double s = (q[2 * i] * k[2 * j] + q[2 * i + 1] * k[2 * j + 1]) / sqrt(2);
                p[j] = causal && j > i ? 0 : exp(s);
                sum += p[j];
                o[0] += p[j] * v[2 * j];
                o[1] += p[j] * v[2 * j + 1];
            }
            want[2 * i] = o[0] / sum;
            want[2 * i + 1] = o[1] / sum;
        }
        near("attention", weft_scaled_dot_product_attention(tq, tk, tv, .causal = causal), 6, want,
             1e-12);
        weft_tensor mask = weft_tril(weft_ones(weft_shape(3, 5), WEFT_BOOL), causal ? 0 : 5);
        near("attention by mask", weft_scaled_dot_product_attention(tq, tk, tv, mask), 6, want,
             1e-12);
    }
    /* a mask of more batch axes than the scores makes more of them */
    weft_tensor masks = weft_randn(weft_shape(2, 1, 3, 5), WEFT_F64),
                many = weft_scaled_dot_product_attention(tq, tk, tv, masks);
    cr_assert_eq(weft_rank(many), 4, "%s", weft_last_error());
    for (int b = 0; b < 2; b++) {
        weft_tensor one = weft_scaled_dot_product_attention(
            tq, tk, tv, weft_select(weft_select(masks, 0, b), 0, 0));
        check_bits("attention by masks", one, weft_select(weft_select(many, 0, b), 0, 0));
    }
    FAILS(weft_scaled_dot_product_attention(weft_expand(tq, weft_shape(4, 3, 2)), tk, tv,
                                            weft_ones(weft_shape(3, 3, 5), WEFT_BOOL)),
          WEFT_ESHAPE);
    weft_tensor scores = weft_matmul(tq, weft_transpose(tk, 0, 1));
    near("softmax sums", weft_sum(weft_softmax(scores, 0), .axes = weft_axes(0)), 5,
         (double[]){1, 1, 1, 1, 1}, 1e-14);
    weft_tensor both = weft_sub(weft_log(weft_softmax(scores, -1)), weft_log_softmax(scores, 1));
    cr_assert(weft_item_f64(weft_max(weft_abs(both))) < 1e-14);
    FAILS(weft_softmax(scores, 2), WEFT_ESHAPE);
}

Test(api_nn, class_losses)
{
    double x[12], each[4], sum = 0, all = 0;
    weft_tensor tx = given(x, weft_shape(4, 3), 1);
    const int32_t target[4] = {2, -100, 0, 1};
    weft_tensor tt = weft_from_data(target, weft_shape(4), WEFT_I32);
    for (int smooth = 0; smooth < 2; smooth++) {
        double s = smooth ? 0.3 : 0;
        sum = 0;
        for (int r = 0; r < 4; r++) {
            double z = log(exp(x[3 * r]) + exp(x[3 * r + 1]) + exp(x[3 * r + 2])), mean = 0;
            for (int c = 0; c < 3; c++) {
                mean += (z - x[3 * r + c]) / 3;
            }
            each[r] = target[r] < 0 ? 0 : (1 - s) * (z - x[3 * r + target[r]]) + s * mean;
            sum += each[r];
        }
        all = smooth ? all : sum;
        weft_tensor none =
            weft_cross_entropy(tx, tt, .reduction = WEFT_REDUCE_NONE, .label_smoothing = s);
        near("each", none, 4, each, 1e-12);
        near("sum", weft_cross_entropy(tx, tt, WEFT_REDUCE_SUM, .label_smoothing = s), 1, &sum,
             1e-12);
        near("mean", weft_cross_entropy(tx, tt, .label_smoothing = s), 1, (double[]){sum / 3},
             1e-12);
    }
    near("nll", weft_nll_loss(weft_log_softmax(tx, 1), tt), 1, (double[]){all / 3}, 1e-12);
    weft_tensor cube = weft_reshape(tx, weft_shape(2, 2, 3)),
                square = weft_reshape(tt, weft_shape(2, 2));
    near("rank 3", weft_cross_entropy(cube, square), 1, (double[]){all / 3}, 1e-12);
    weft_tensor shaped = weft_cross_entropy(cube, square, WEFT_REDUCE_NONE);
    cr_assert(weft_rank(shaped) == 2 && weft_dim(shaped, 1) == 2);
    weft_tensor some = weft_narrow(tt, 0, 2, 2), rows = weft_narrow(tx, 0, 2, 2);
    near("ignoring 0",
         weft_cross_entropy(rows, some, WEFT_REDUCE_SUM, .ignore_index = WEFT_IGNORE_ZERO), 1,
         (double[]){log(exp(x[9]) + exp(x[10]) + exp(x[11])) - x[10]}, 1e-12);
    FAILS(weft_cross_entropy(tx, tt, .ignore_index = WEFT_IGNORE_NONE), WEFT_EINDEX);
    FAILS(weft_cross_entropy(tx, weft_zeros(weft_shape(3), WEFT_I64)), WEFT_ESHAPE);
    FAILS(weft_cross_entropy(tx, tt, (weft_reduction)9), WEFT_EINVALID);
    FAILS(weft_cross_entropy(tx, tt, .label_smoothing = 2), WEFT_EINVALID);
    weft_tensor half = weft_cross_entropy(weft_cast(tx, WEFT_BF16), tt);
    cr_assert_eq(weft_dtype_of(half),
                 weft_dtype_of(weft_cross_entropy(weft_cast(tx, WEFT_BF16), tt, WEFT_REDUCE_NONE)));
}

/* Statistics of what the caches do not hold are taken some channels at a time: the bits of each channel and all its gradients are those that
 * it has among a few. */
Test(api_nn, batch_norm_of_many_channels)
{
    enum { CHANNELS = 23, FEW = 5 };
    weft_scope s = weft_scope_begin();
    weft_tensor x = weft_randn(weft_shape(4, CHANNELS, 256, 300));
    weft_tensor g = weft_randn(weft_shape(4, CHANNELS, 256, 300));
    weft_tensor w = weft_rand(weft_shape(CHANNELS)), b = weft_rand(weft_shape(CHANNELS));
    cr_assert(weft_numel(x) * 4 > 24 << 20, "small enough for the caches");
    OK(weft_requires_grad_(x, true));
    OK(weft_requires_grad_(w, true));
    OK(weft_requires_grad_(b, true));
    weft_tensor y = weft_batch_norm(x, w, b, .training = true);
    OK(weft_backward(y, g));
    for (int at = 0; at < CHANNELS; at += FEW) {
        const int n = CHANNELS - at < FEW ? CHANNELS - at : FEW;
        weft_scope inner = weft_scope_begin();
        weft_tensor part[3] = {weft_contiguous(weft_narrow(weft_detach(x), 1, at, n)),
                               weft_contiguous(weft_narrow(weft_detach(w), 0, at, n)),
                               weft_contiguous(weft_narrow(weft_detach(b), 0, at, n))};
        const weft_tensor all[3] = {x, w, b};
        for (int i = 0; i < 3; i++) {
            OK(weft_requires_grad_(part[i], true));
        }
        weft_tensor few = weft_batch_norm(part[0], part[1], part[2], .training = true);
        OK(weft_backward(few, weft_contiguous(weft_narrow(g, 1, at, n))));
        same("batch_norm", weft_narrow(weft_detach(y), 1, at, n), weft_detach(few));
        for (int i = 0; i < 3; i++) {
            same("its gradients", weft_narrow(weft_grad(all[i]), i == 0, at, n),
                 weft_grad(part[i]));
        }
        weft_scope_end(inner);
    }
    weft_scope_end(s);
}

Test(api_nn, batch_norm_of_few_and_no_values)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor mean = weft_full(weft_shape(3), 0.25, WEFT_F32),
                var = weft_full(weft_shape(3), 4, WEFT_F32), y;
    /* nothing is learned from nothing */
    y = weft_batch_norm(weft_zeros(weft_shape(0, 3), WEFT_F32), .training = true,
                        .running_mean = mean, .running_var = var);
    cr_assert(weft_ok(y) && weft_numel(y) == 0, "%s", weft_error_text(y));
    near("mean", mean, 3, (double[]){0.25, 0.25, 0.25}, 0);
    near("var", var, 3, (double[]){4, 4, 4}, 0);
    FAILS(weft_batch_norm(weft_ones(weft_shape(1, 3), WEFT_F32), .training = true), WEFT_ESHAPE);
    FAILS(weft_batch_norm(weft_ones(weft_shape(1, 3, 1, 1), WEFT_F32), .training = true),
          WEFT_ESHAPE);
    y = weft_batch_norm(weft_ones(weft_shape(3), WEFT_F32), .training = true);
    cr_assert(strstr(weft_error_text(y), "rank 1"), "%s", weft_error_text(y));
    y = weft_batch_norm(weft_ones(weft_shape(1, 3), WEFT_F32), .running_mean = mean,
                        .running_var = var);
    cr_assert(weft_ok(y), "%s", weft_error_text(y));
    /* the sample variance of values that lie far below eps: 1, 2, 3, 4, 5 in millionths */
    float x[5], want = 0;
    for (int i = 0; i < 5; i++) {
        x[i] = (float)(i + 1) * 1e-6f;
    }
    for (int i = 0; i < 5; i++) {
        want += (x[i] - 3e-6f) * (x[i] - 3e-6f) / 4;
    }
    weft_tensor m1 = weft_zeros(weft_shape(1), WEFT_F32), v1 = weft_zeros(weft_shape(1), WEFT_F32);
    y = weft_batch_norm(weft_from_data(x, weft_shape(5, 1), WEFT_F32), .training = true,
                        .momentum = 1, .running_mean = m1, .running_var = v1);
    cr_assert(weft_ok(y), "%s", weft_error_text(y));
    double got = weft_item_f64(v1);
    cr_assert(fabs(got - (double)want) <= 1e-6 * (double)want, "%g, not %g", got, (double)want);
    weft_scope_end(sc);
}

Test(api_nn, rank_0_along_its_one_axis)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor x = weft_scalar(2.5, WEFT_F64), v, i;
    for (int axis = -1; axis <= 0; axis++) {
        near("cumsum", weft_cumsum(x, axis), 1, (double[]){2.5}, 0);
        near("cumprod", weft_cumprod(x, axis), 1, (double[]){2.5}, 0);
        near("softmax", weft_softmax(x, axis), 1, (double[]){1}, 0);
        near("log_softmax", weft_log_softmax(x, axis), 1, (double[]){0}, 0);
        OK(weft_sort(x, axis, true, &v, &i));
        cr_assert(weft_rank(v) == 0 && weft_item_f64(v) == 2.5 && weft_item_i64(i) == 0);
        cr_assert_eq(weft_rank(weft_argsort(x, axis, false)), 0);
        OK(weft_topk(x, 1, axis, false, &v, NULL));
        cr_assert(weft_rank(v) == 0 && weft_item_f64(v) == 2.5);
        FAILS(weft_softmax(x, 1), WEFT_ESHAPE);
        for (int k = 0; k <= 2; k += 2) { /* an error, not two empty handles under WEFT_OK */
            cr_assert_eq(weft_topk(x, k, axis, false, &v, &i), WEFT_ESHAPE, "%s",
                         weft_last_error());
            cr_assert_eq(weft_error_status(v), WEFT_ESHAPE);
        }
        cr_assert(!weft_ok(v) && !weft_ok(i));
    }
    weft_scope_end(sc);
}

Test(api_nn, losses_of_values)
{
    double x[6], t[6], mse = 0, l1 = 0, hub = 0, bce = 0, logits = 0;
    weft_tensor tx = given(x, weft_shape(2, 3), 1), tt = given(t, weft_shape(2, 3), 5);
    for (int i = 0; i < 6; i++) {
        double d = fabs(x[i] - t[i]), p = 1 / (1 + exp(-x[i])), q = 1 / (1 + exp(-t[i]));
        mse += d * d / 6;
        l1 += d / 6;
        hub += (d < 0.7 ? d * d / 2 : 0.7 * (d - 0.35)) / 6;
        bce -= (q * log(p) + (1 - q) * log(1 - p)) / 6;
        logits -= (q * log(p) + (1 - q) * log1p(-p)) / 6;
    }
    near("mse_loss", weft_mse_loss(tx, tt), 1, &mse, 1e-12);
    near("l1_loss", weft_l1_loss(tx, tt, WEFT_REDUCE_SUM), 1, (double[]){6 * l1}, 1e-12);
    near("huber_loss", weft_huber_loss(tx, tt, .delta = 0.7), 1, &hub, 1e-12);
    near("bce", weft_binary_cross_entropy(weft_sigmoid(tx), weft_sigmoid(tt)), 1, &bce, 1e-12);
    near("bce_with_logits", weft_bce_with_logits(tx, weft_sigmoid(tt)), 1, &logits, 1e-12);
    near("log of 0 is held", weft_binary_cross_entropy(weft_scalar(0, WEFT_F32), weft_f(1)), 1,
         (double[]){100}, 0);
    FAILS(weft_huber_loss(tx, tt, .delta = -1), WEFT_EINVALID);
    FAILS(weft_mse_loss(tx, weft_zeros(weft_shape(4), WEFT_F64)), WEFT_ESHAPE);
}

Test(api_nn, dropout)
{
    weft_generator g = {7, 0}, same = {7, 0};
    weft_tensor x = weft_full(weft_shape(10000), 3, WEFT_F32);
    weft_tensor y = weft_dropout(x, 0.25, true, &g);
    double mean = weft_item_f64(weft_mean(y)), kept = weft_item_f64(weft_count_nonzero(y)) / 10000;
    cr_assert(fabs(kept - 0.75) < 0.02 && fabs(mean - 3) < 0.1, "kept %g, mean %g", kept, mean);
    cr_assert_eq(weft_item_f64(weft_max(y)), 4);
    cr_assert(g.offset > 0);
    weft_tensor again = weft_dropout(x, 0.25, true, &same);
    cr_assert(weft_item_f64(weft_all(weft_equal(y, again))) == 1);
    cr_assert(weft_shares_memory(x, weft_dropout(x, 0.25)));
    cr_assert(weft_shares_memory(x, weft_dropout(x, 0, true)));
    cr_assert_eq(weft_item_f64(weft_sum(weft_dropout(x, 1, true))), 0);
    FAILS(weft_dropout(x, 1.5, true), WEFT_EINVALID);
    FAILS(weft_dropout(weft_zeros(weft_shape(2), WEFT_I32), 0.5, true), WEFT_EDTYPE);
}

/* -- ownership and failures ---------------------------------------------------------------------------- */

static weft_tensor (*const composed[])(weft_tensor x);
static weft_tensor do_tile(weft_tensor x)
{
    return weft_tile(x, weft_shape(2, 3));
}
static weft_tensor do_flip(weft_tensor x)
{
    return weft_flip(x, weft_axes());
}
static weft_tensor do_concat(weft_tensor x)
{
    return weft_stack(WEFT_LIST(x, weft_cast(x, WEFT_F64), weft_f(1)), 0);
}
static weft_tensor do_select(weft_tensor x)
{
    return weft_select(x, 0, 1);
}
static weft_tensor do_selu(weft_tensor x)
{
    return weft_selu(x);
}
static weft_tensor do_huber(weft_tensor x)
{
    return weft_huber_loss(x, weft_f(0.5));
}
static weft_tensor do_entropy(weft_tensor x)
{
    const int64_t t[2] = {0, 2};
    weft_scope s = weft_scope_begin();
    weft_tensor target = weft_from_data(t, weft_shape(2), WEFT_I64);
    return weft_scope_return(s, weft_cross_entropy(x, target));
}
static weft_tensor do_batch(weft_tensor x)
{
    return weft_batch_norm(x, .training = true);
}
static weft_tensor do_dropout(weft_tensor x)
{
    return weft_dropout(x, 0.5, true);
}
static weft_tensor do_topk(weft_tensor x)
{
    weft_tensor v;
    weft_topk(x, 2, 1, false, &v, NULL);
    return v;
}
static weft_tensor do_linear(weft_tensor x)
{
    weft_scope s = weft_scope_begin();
    return weft_scope_return(s, weft_linear(x, weft_cast(x, WEFT_F64), WEFT_NONE));
}
static weft_tensor do_no_axes(weft_tensor x)
{
    return weft_sum(x, .axes = WEFT_NO_AXES);
}
static weft_tensor do_einsum(weft_tensor x)
{
    return weft_einsum("ij,kj,kl,->li", x, x, x, weft_f(2));
}
static weft_tensor do_group_norm(weft_tensor x)
{
    weft_scope s = weft_scope_begin();
    return weft_scope_return(s, weft_group_norm(x, 3, weft_cast(weft_select(x, 0, 0), WEFT_F64)));
}
/* x[2, 3] as an image. */
static weft_tensor do_convolutions(weft_tensor x)
{
    weft_scope s = weft_scope_begin();
    weft_tensor line = weft_reshape(x, weft_shape(1, 2, 3)),
                image = weft_reshape(x, weft_shape(1, 1, 2, 3));
    weft_tensor y = weft_conv1d(line, line, .padding = weft_shape(1));
    y = weft_conv_transpose1d(y, line, .stride = weft_shape(2));
    return weft_scope_return(
        s, weft_add(weft_sum(y),
                    weft_conv_transpose2d(image, image, weft_ones(weft_shape(1), WEFT_F32))));
}
static weft_tensor do_resample(weft_tensor x)
{
    weft_scope s = weft_scope_begin();
    weft_tensor y = weft_reshape(x, weft_shape(1, 1, 2, 3));
    y = weft_interpolate(y, weft_shape(3, 7), .mode = WEFT_LINEAR);
    y = weft_adaptive_avg_pool2d(y, weft_shape(2, 5));
    return weft_scope_return(s, weft_interpolate(y, .scale = 1.5));
}
static weft_tensor do_index_put(weft_tensor x)
{
    const int64_t at[2] = {1, -1};
    weft_scope s = weft_scope_begin();
    weft_tensor i = weft_from_data(at, weft_shape(2), WEFT_I64);
    x = weft_index_put(x, WEFT_LIST(i, i), weft_index_get(x, WEFT_LIST(i, i)), false);
    return weft_scope_return(s, weft_index_put(x, WEFT_LIST(i), weft_i(2), true));
}
static weft_tensor do_pad_mode(weft_tensor x)
{
    return weft_pad_mode(x, weft_shape(1, 0), weft_shape(0, 2), WEFT_PAD_REFLECT);
}
static weft_tensor (*const composed[])(weft_tensor x) = {
    do_tile,     do_flip,       do_select,   do_selu,      do_huber,       do_entropy,
    do_batch,    do_dropout,    do_topk,     do_linear,    do_no_axes,     do_einsum,
    do_resample, do_group_norm, do_pad_mode, do_index_put, do_convolutions};

/* One call leaves one tensor; with the n-th allocation failing it leaves none and says so. */
Test(api_nn, one_result_and_no_leak)
{
    weft_memory_stats base, now;
    weft_tensor x = weft_rand(weft_shape(2, 3), WEFT_F32);
    for (int f = 0; f < COUNT(composed); f++) {
        weft_scope warm = weft_scope_begin();
        cr_assert(weft_ok(composed[f](x)), "%d: %s", f, weft_last_error());
        weft_scope_end(warm);
        weft_memory_get_stats(&base);
        weft_scope s = weft_scope_begin();
        composed[f](x);
        weft_memory_get_stats(&now);
        cr_assert_eq(now.live_tensors, base.live_tensors + 1, "%d leaves %d tensors", f,
                     (int)(now.live_tensors - base.live_tensors));
        weft_scope_end(s);
        int failures = 0;
        for (int n = 1; n < 60; n++) {
            s = weft_scope_begin();
            wf_alloc_fail_after(n, n & 1);
            weft_tensor y = composed[f](x);
            wf_alloc_fail_after(0, 0);
            cr_assert(weft_ok(y) || weft_error_status(y) == WEFT_ENOMEM, "%d: %s", f,
                      weft_error_text(y));
            failures += !weft_ok(y);
            weft_scope_end(s);
            weft_memory_get_stats(&now);
            cr_assert_eq(now.live_tensors, base.live_tensors, "%d, allocation %d", f, n);
            cr_assert_eq(now.live_bytes, base.live_bytes, "%d, allocation %d", f, n);
        }
        cr_assert(failures > 0 || f == 1 || f == 2, "%d never failed", f); /* views of few axes */
        ;
    }
    weft_scope s = weft_scope_begin();
    weft_tensor joined = do_concat(weft_f(0.1));
    near("scalars are weak", joined, 3, (double[]){0.1, 0.1, 1}, 0);
    cr_assert_eq(weft_dtype_of(joined), WEFT_F64);
    weft_scope_end(s);
}

/* NULL wherever a pointer is taken, and the empty handle wherever a tensor is. */
Test(api_nn, nulls)
{
    weft_tensor n = WEFT_NONE, out[2];
#define NULLS(fn) FAILS((fn)(NULL), WEFT_EINVALID)
    NULLS(weft_sum);
    NULLS(weft_prod);
    NULLS(weft_mean);
    NULLS(weft_max);
    NULLS(weft_min);
    NULLS(weft_logsumexp);
    NULLS(weft_any);
    NULLS(weft_all);
    NULLS(weft_count_nonzero);
    NULLS(weft_argmax);
    NULLS(weft_argmin);
    NULLS(weft_var);
    NULLS(weft_std);
    NULLS(weft_norm);
    NULLS(weft_layer_norm);
    NULLS(weft_rms_norm);
    NULLS(weft_batch_norm);
    NULLS(weft_conv2d);
    NULLS(weft_conv1d);
    NULLS(weft_conv_transpose1d);
    NULLS(weft_conv_transpose2d);
    NULLS(weft_group_norm);
    NULLS(weft_instance_norm);
    NULLS(weft_interpolate);
    FAILS((weft_einsum)(NULL, &n, 1), WEFT_EINVALID);
    FAILS((weft_einsum)("i", &n, 1), WEFT_EINVALID);
    NULLS(weft_max_pool2d);
    NULLS(weft_avg_pool2d);
    NULLS(weft_scaled_dot_product_attention);
    NULLS(weft_dropout);
    NULLS(weft_cross_entropy);
    NULLS(weft_nll_loss);
    NULLS(weft_mse_loss);
    NULLS(weft_huber_loss);
    NULLS(weft_bce_with_logits);
    NULLS(weft_kl_div);
    NULLS(weft_rand);
    NULLS(weft_randn);
    NULLS(weft_randint);
    NULLS(weft_bernoulli);
    NULLS(weft_randperm);
    NULLS(weft_multinomial);
    NULLS(weft_from_blob);
    FAILS(weft_concat(NULL, 2, 0), WEFT_EINVALID);
    FAILS(weft_concat(&n, 0, 0), WEFT_EINVALID);
    FAILS(weft_stack(&n, -1, 0), WEFT_EINVALID);
    cr_assert_eq(weft_split(weft_f(1), 0, NULL, 2, out), WEFT_EINVALID);
    cr_assert_eq(weft_chunk(weft_f(1), 0, 2, NULL), WEFT_EINVALID);
    cr_assert_eq(weft_chunk(weft_zeros(weft_shape(3), WEFT_F32), 0, 0, NULL), WEFT_EINVALID);
    FAILS(weft_add(n, n), WEFT_EINVALID);
    FAILS(weft_reshape(n, weft_shape(1)), WEFT_EINVALID);
    FAILS(weft_sum(n), WEFT_EINVALID);
    FAILS(weft_softmax(n, 0), WEFT_EINVALID);
    FAILS(weft_mse_loss(weft_f(1), n), WEFT_EINVALID);
    FAILS(weft_linear(weft_zeros(weft_shape(2), WEFT_F32), n, n), WEFT_EINVALID);
    cr_assert_eq(weft_add_(n, weft_f(1)), WEFT_EINVALID);
    cr_assert_eq(weft_fill_(n, 1), WEFT_EINVALID);
    cr_assert_eq(weft_set_name(n, "x"), WEFT_EINVALID);
    weft_doctor(NULL);
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    weft_doctor(f);
    fclose(f);
    static const char *const facts[] = {"native kernels", "kernels on disk", "instruction set",
                                        "NVRTC", "environment"};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        cr_assert(strstr(text, facts[i]), "no '%s' in\n%s", facts[i], text);
    }
    free(text);
    weft_memory_get_stats(NULL);
    cr_assert_eq(weft_set_num_threads(0), WEFT_EINVALID);
}
