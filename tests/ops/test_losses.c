/*
 * tests/ops/test_losses.c -- losses with weights, the divergence of Kullback and Leibler, and draws by weights: against sums
 * in long double or, of draws, their laws; eager, traced and at any number of threads with the same bits.
 *
 * ctest: optimised
 */
#include "tests/ops/compositions.h"

/* -- classes ---------------------------------------------------------------------------------------------------- */

enum { ROWS = 5, CLASSES = 4 };

typedef struct class_case {
    weft_reduction reduction;
    double smoothing;
    bool nll, weighted;
    weft_tensor targets;
} class_case;

static weft_tensor call_classes(const void *how, const weft_tensor *in, int n)
{
    const class_case *k = how;
    weft_cross_entropy_args a = {.logits = in[0],
                                 .targets = k->targets,
                                 .reduction = k->reduction,
                                 .label_smoothing = k->smoothing};
    if (n > 1) {
        a.weight = in[1];
    }
    return k->nll ? (weft_nll_loss)(&a) : (weft_cross_entropy)(&a);
}

/* -log p of every class from the logits, or from logarithms that are given. */
static void log_losses(const real *x, bool given_logs, real *minus)
{
    real sum = 0;
    for (int c = 0; c < CLASSES; c++) {
        sum += expl(x[c]);
    }
    for (int c = 0; c < CLASSES; c++) {
        minus[c] = given_logs ? -x[c] : logl(sum) - x[c];
    }
}

static void check_classes(class_case *k, int dtype)
{
    static const int64_t target[ROWS] = {2, -100, 0, 3, 2};
    real x[ROWS * CLASSES], w[CLASSES], each[ROWS], sum = 0, size = 0, share = 0;
    weft_scope sc = weft_scope_begin();
    weft_tensor in[2] = {given(S(ROWS, CLASSES), dtype, false, x),
                         given(S(CLASSES), dtype, false, w)};
    in[1] = weft_abs(in[1]);
    k->targets = weft_from_data(target, S(ROWS), WEFT_I64);
    for (int r = 0; r < ROWS; r++) {
        real minus[CLASSES], all = 0, own = target[r] < 0 ? 0 : 1;
        log_losses(x + CLASSES * r, k->nll, minus);
        for (int c = 0; c < CLASSES; c++) {
            all += minus[c] * (k->weighted ? fabsl(w[c]) : 1);
        }
        own *= !k->weighted || target[r] < 0 ? 1 : fabsl(w[target[r]]);
        real smooth = k->nll ? 0 : k->smoothing;
        each[r] =
            target[r] < 0 ? 0 : (1 - smooth) * own * minus[target[r]] + smooth / CLASSES * all;
        sum += each[r];
        size += fabsl(each[r]) + 1;
        share += own;
    }
    const bool none = k->reduction == WEFT_REDUCE_NONE;
    const real unit = dtype == WEFT_F64 ? 0x1p-53L : dtype == WEFT_F32 ? 0x1p-24L : 0x1p-8L;
    for (int i = 0; i < (none ? ROWS : 1); i++) {
        want[i] = none ? each[i] : k->reduction == WEFT_REDUCE_SUM ? sum : sum / share;
        bound[i] =
            24 * unit * (none ? fabsl(each[i]) + 1 : size); /* roundings of logits, sums, weights */
    }
    judge("class losses", call_classes, k, in, k->weighted ? 2 : 1, (weft_dtype)dtype,
          none ? S(ROWS) : S());
    weft_scope_end(sc);
}

Test(losses, classes_with_weights)
{
    for (int k = 0; k < 3 * 2 * 2 * 2 * COUNT(floats); k++) {
        class_case c = {(weft_reduction)(k % 3), k / 3 % 2 ? 0.3 : 0, k / 6 % 2, k / 12 % 2, {0}};
        check_classes(&c, floats[k / 24]);
    }
}

Test(losses, class_weights_that_do_not_fit)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor x = weft_ones(S(3, 4), WEFT_F32), t = weft_zeros(S(3), WEFT_I64);
    check_error("length", weft_cross_entropy(x, t, .weight = weft_ones(S(3), WEFT_F32)),
                WEFT_ESHAPE, "one element a class");
    check_error("rank", weft_nll_loss(x, t, .weight = weft_ones(S(1, 4), WEFT_F32)), WEFT_ESHAPE,
                "one element a class");
    check_error("type", weft_cross_entropy(x, t, .weight = weft_ones(S(4), WEFT_I64)), WEFT_EDTYPE,
                "the weight is i64");
    check_type("promoted", weft_cross_entropy(x, t, .weight = weft_ones(S(4), WEFT_F64)), WEFT_F64,
               S());
    /* a target that is refused is refused by the loss, with weights and without */
    t = weft_full(S(3), 4, WEFT_I64);
    check_error("target", weft_cross_entropy(x, t, .weight = weft_ones(S(4), WEFT_F32)),
                WEFT_EINDEX, "cross_entropy");
    check_error("target", weft_nll_loss(x, t, .weight = weft_ones(S(4), WEFT_F32)), WEFT_EINDEX,
                "nll_loss");
    /* as a class, a negative index does not count from the end */
    static const int negative[] = {-1, -4, -5};
    for (int k = 0; k < COUNT(negative); k++) {
        t = weft_full(S(3), negative[k], k % 2 ? WEFT_I32 : WEFT_I64);
        check_error("negative", weft_cross_entropy(x, t), WEFT_EINDEX, "cross_entropy");
        check_error("negative", weft_nll_loss(x, t), WEFT_EINDEX, "nll_loss");
        check_error("negative", weft_nll_loss(x, t, .weight = weft_ones(S(4), WEFT_F32)),
                    WEFT_EINDEX, "nll_loss");
    }
    /* of several axes: which one, by its place in the targets as they were given */
    static const int64_t at[] = {0, 2, 1, 3, 1, 7};
    x = weft_ones(S(2, 3, 4), WEFT_F32);
    for (int k = 0; k < 2; k++) {
        t = weft_from_data(at, S(2, 3), WEFT_I64);
        t = k ? weft_cast(t, WEFT_I32) : t;
        check_error("place", weft_cross_entropy(x, t), WEFT_EINDEX, "targets[1,2] is 7");
        check_error("place", weft_nll_loss(x, t), WEFT_EINDEX, "targets[1,2] is 7");
    }
    x = weft_ones(S(4), WEFT_F32);
    t = weft_full(S(), 9, WEFT_I64);
    check_error("place", weft_cross_entropy(x, t), WEFT_EINDEX, "targets is 9");
    check_error("place", weft_nll_loss(x, t), WEFT_EINDEX, "targets is 9");
    weft_scope_end(sc);
}

/* -- two tensors -------------------------------------------------------------------------------------------------- */

typedef weft_tensor (*two)(const weft_loss_args *);
typedef struct pair_case {
    two loss;
    weft_reduction reduction;
    bool log_target, weighted, positive;
} pair_case;

static weft_tensor call_pair(const void *how, const weft_tensor *in, int n)
{
    const pair_case *k = how;
    weft_tensor last = n > 2 ? in[n - 1] : WEFT_NONE;
    return k->loss(&(weft_loss_args){.x = in[0],
                                     .target = in[1],
                                     .reduction = k->reduction,
                                     .weight = k->weighted ? in[2] : WEFT_NONE,
                                     .pos_weight = k->positive ? last : WEFT_NONE,
                                     .log_target = k->log_target});
}

static real pair_loss(const pair_case *k, real x, real t, real p)
{
    if (k->loss == (weft_mse_loss)) {
        return (x - t) * (x - t);
    }
    if (k->loss == (weft_bce_with_logits)) {
        return p * t * log1pl(expl(-x)) + (1 - t) * (x + log1pl(expl(-x)));
    }
    return k->log_target ? expl(t) * (t - x) : t == 0 ? 0 : t * (logl(t) - x);
}

static void check_pair(const pair_case *k, int dtype)
{
    real x[12], t[12], w[12], p[12], sum = 0, size = 0;
    weft_scope sc = weft_scope_begin();
    weft_tensor in[4] = {given(S(3, 4), dtype, true, x), given(S(3, 4), dtype, false, t)};
    int n = 2;
    if (!k->log_target) { /* targets in [0, 2] */
        in[1] = weft_abs(in[1]);
        for (int i = 0; i < 12; i++) {
            t[i] = fabsl(t[i]);
        }
    }
    if (k->weighted) {
        in[n++] = given(S(3, 1), dtype, false, w);
    }
    if (k->positive) {
        in[n++] = given(S(4), dtype, false, p);
    }
    const real unit = dtype == WEFT_F64   ? 0x1p-53L
                      : dtype == WEFT_F32 ? 0x1p-24L
                      : dtype == WEFT_F16 ? 0x1p-11L
                                          : 0x1p-8L;
    const bool none = k->reduction == WEFT_REDUCE_NONE;
    for (int i = 0; i < 12; i++) {
        real y =
            pair_loss(k, x[i], t[i], k->positive ? p[i % 4] : 1) * (k->weighted ? w[i / 4] : 1);
        want[i] = y;
        bound[i] = 12 * unit * 40; /* terms are below 40, and up to ten of them round */
        sum += y;
        size += 40;
    }
    if (!none) {
        want[0] = k->reduction == WEFT_REDUCE_SUM ? sum : sum / 12;
        bound[0] = 12 * unit * (k->reduction == WEFT_REDUCE_SUM ? size : 40);
    }
    judge("pair losses", call_pair, k, in, n, (weft_dtype)dtype, none ? S(3, 4) : S());
    weft_scope_end(sc);
}

Test(losses, pairs_with_weights)
{
    static const two losses[] = {(weft_mse_loss), (weft_bce_with_logits), (weft_kl_div)};
    for (int l = 0; l < 3; l++) {
        for (int k = 0; k < 3 * 2 * 2 * COUNT(floats); k++) {
            if (!effort_walks((uint64_t)(k + l), 5)) /* prime to them */
                continue;
            pair_case c = {losses[l], (weft_reduction)(k % 3), l == 2 && k / 6 % 2, k / 3 % 2,
                           l == 1 && k / 6 % 2};
            check_pair(&c, floats[k / 12]);
        }
    }
}

/* d/dx d/dt of kl_div, in both orders. */
static void check_mixed(double x0, double t0, bool log_target, double expected)
{
    weft_tensor in[2] = {weft_full(S(1), x0, WEFT_F64), weft_full(S(1), t0, WEFT_F64)}, g[2];
    weft_requires_grad_(in[0], true);
    weft_requires_grad_(in[1], true);
    weft_tensor y = weft_kl_div(in[0], in[1], WEFT_REDUCE_SUM, .log_target = log_target);
    cr_assert_eq(weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = in, .n_inputs = 2,
                              .grads = g, .create_graph = true),
                 WEFT_OK, "%s", weft_last_error());
    for (int i = 0; i < 2; i++) {
        weft_tensor mixed;
        cr_assert(isfinite(weft_item_f64(g[i])));
        cr_assert_eq(weft_grad_of(.outputs = &g[i], .n_outputs = 1, .inputs = &in[1 - i],
                                  .n_inputs = 1, .grads = &mixed, .retain_graph = true),
                     WEFT_OK, "%s", weft_last_error());
        cr_assert_eq(weft_item_f64(mixed), expected, "%g %g: %g", x0, t0, weft_item_f64(mixed));
    }
}

/* As PyTorch has them, also where the target is 0; nothing is NaN where a logarithm is infinite and counts for nothing. */
static void check_derivatives_of_divergence(void)
{
    check_mixed(-1.5, 0, false, -1);
    check_mixed(0, 0, false, -1);
    check_mixed(-1.5, 0.5, false, -1);
    check_mixed(-INFINITY, 0, false, 0);
    check_mixed(-1.5, -INFINITY, true, 0);
    check_mixed(-INFINITY, -INFINITY, true, 0);
    check_mixed(-INFINITY, -1000, true, 0);
    check_mixed(-1.5, 0, true, -1);
}

/* A row with an infinite logit is what nll_loss of log_softmax makes of it, and its gradient: NaN, or right where it is -inf. */
Test(losses, infinite_logits)
{
    const float inf = INFINITY;
    const float rows[6][3] = {{inf, 0, 1},  {0, inf, 1},        {inf, inf, 0},
                              {-inf, 0, 1}, {-inf, -inf, -inf}, {NAN, 0, 1}};
    for (int k = 0; k < 6 * 2 * 2; k++) {
        const int64_t class = k % 2;
        weft_scope sc = weft_scope_begin();
        weft_tensor t = weft_from_data(&class, S(1), WEFT_I64), x[2], y[2];
        for (int i = 0; i < 2; i++) {
            x[i] = weft_from_data(rows[k / 4], S(1, 3), WEFT_F32);
            x[i] = weft_cast(x[i], k / 2 % 2 ? WEFT_F64 : WEFT_F32);
            weft_requires_grad_(x[i], true);
            y[i] = i ? weft_nll_loss(weft_log_softmax(x[i], -1), t) : weft_cross_entropy(x[i], t);
            weft_backward(y[i]);
        }
        const double a = weft_item_f64(y[0]), b = weft_item_f64(y[1]);
        cr_assert(isnan(b)   ? isnan(a)
                  : isinf(b) ? a == b
                             : fabs(a - b) < 1e-6,
                  "%d: %g %g", k, a, b);
        cr_assert_eq(
            weft_item_f64(weft_allclose(weft_grad(x[0]), weft_grad(x[1]), .equal_nan = true)), 1,
            "%d", k);
        weft_scope_end(sc);
    }
}

Test(losses, edges_of_pairs)
{
    weft_scope sc = weft_scope_begin();
    /* what has no probability costs nothing, however unlikely the other says it is */
    const double log_q[3] = {-INFINITY, 0, -1}, p[3] = {0, 1, 0},
                 log_p[3] = {-INFINITY, 0, -INFINITY};
    weft_tensor x = weft_from_data(log_q, S(3), WEFT_F64), t = weft_from_data(p, S(3), WEFT_F64),
                lt = weft_from_data(log_p, S(3), WEFT_F64), grad;
    cr_assert_eq(weft_item_f64(weft_kl_div(x, t, WEFT_REDUCE_SUM)), 0);
    cr_assert_eq(weft_item_f64(weft_kl_div(x, lt, WEFT_REDUCE_SUM, .log_target = true)), 0);
    x = weft_from_data(log_q, S(3), WEFT_F64);
    weft_requires_grad_(x, true);
    weft_backward(weft_kl_div(x, t, WEFT_REDUCE_SUM));
    grad = weft_grad(x);
    cr_assert(weft_item_f64(weft_all(weft_equal(grad, weft_neg(t)))) == 1);
    check_derivatives_of_divergence();
    /* an ordinary loss and one with a positive weight of 1 agree where exp overflows */
    const double far[4] = {1000, -1000, 0, 3}, on[4] = {1, 0, 1, 0.25};
    x = weft_from_data(far, S(4), WEFT_F64), t = weft_from_data(on, S(4), WEFT_F64);
    weft_tensor plain = weft_bce_with_logits(x, t, WEFT_REDUCE_NONE),
                one = weft_bce_with_logits(x, t, WEFT_REDUCE_NONE, .pos_weight = weft_f(1));
    cr_assert(weft_item_f64(weft_max(weft_abs(weft_sub(plain, one)))) < 1e-15);
    check_error("a weight that is too large",
                weft_mse_loss(x, t, .weight = weft_ones(S(2, 4), WEFT_F64)), WEFT_ESHAPE,
                "does not broadcast to the shape of the losses");
    check_error("pos_weight", weft_bce_with_logits(x, t, .pos_weight = weft_ones(S(3), WEFT_F64)),
                WEFT_ESHAPE, "pos_weight");
    weft_scope_end(sc);
}

/* Integers and truth values are numbers: what differs from them, and their products, do not wrap. */
Test(losses, pairs_of_integers)
{
    static const two losses[] = {(weft_mse_loss),   (weft_l1_loss),
                                 (weft_huber_loss), (weft_bce_with_logits),
                                 (weft_kl_div),     (weft_binary_cross_entropy)};
    static const double far[4] = {1, 100, 127, 0}, near[4] = {3, 1, 0, 127},
                        truth[4] = {1, 0, 1, 0};
    for (int dtype = WEFT_BOOL; dtype <= WEFT_I64; dtype++) {
        weft_scope sc = weft_scope_begin();
        for (int l = 0; l < COUNT(losses); l++) {
            const bool shares = losses[l] == (weft_binary_cross_entropy);
            const double *x = shares ? truth : far, *t = shares ? truth + 1 : near;
            weft_tensor a = weft_cast(weft_from_data(x, S(3), WEFT_F64), (weft_dtype)dtype);
            weft_tensor b = weft_cast(weft_from_data(t, S(3), WEFT_F64), (weft_dtype)dtype);
            weft_tensor fa = weft_cast(a, WEFT_F32), fb = weft_cast(b, WEFT_F32);
            const pair_case c = {.loss = losses[l], .reduction = WEFT_REDUCE_NONE};
            weft_tensor y = call_pair(&c, (weft_tensor[]){a, b}, 2);
            weft_tensor z = call_pair(&c, (weft_tensor[]){fa, fb}, 2);
            cr_assert(weft_ok(y), "%s", weft_error_text(y));
            cr_assert_eq(weft_dtype_of(y), WEFT_F32);
            cr_expect(weft_item_f64(weft_all(weft_equal(y, z))) == 1, "loss %d of %s: %s", l,
                      weft_dtype_name((weft_dtype)dtype), weft_describe(y));
            y = call_pair(&c, (weft_tensor[]){a, weft_i(1)}, 2);
            z = call_pair(&c, (weft_tensor[]){fa, weft_i(1)}, 2);
            cr_expect(weft_item_f64(weft_all(weft_equal(y, z))) == 1,
                      "loss %d of %s and a number: %s", l, weft_dtype_name((weft_dtype)dtype),
                      weft_describe(y));
        }
        weft_scope_end(sc);
    }
    /* beside f64, integers keep all their digits */
    weft_scope sc = weft_scope_begin();
    const double x = 16777217, t = 0;
    weft_tensor a = weft_cast(weft_from_data(&x, S(), WEFT_F64), WEFT_I64);
    cr_expect(weft_item_f64(weft_l1_loss(a, weft_from_data(&t, S(), WEFT_F64))) == x);
    weft_scope_end(sc);
}

/* -- draws by weights ----------------------------------------------------------------------------------------------- */

/* How often each of `classes` stands in y, i64, which has no other number but -1 (*none). */
static void tally(weft_tensor y, int classes, int *counts, int *none)
{
    const int64_t n = weft_numel(y), *at = weft_data(y);
    memset(counts, 0, (size_t)classes * sizeof *counts);
    *none = 0;
    for (int64_t i = 0; i < n; i++) {
        cr_assert(at[i] >= -1 && at[i] < classes, "class %lld", (long long)at[i]);
        *none += at[i] < 0;
        if (at[i] >= 0) {
            counts[at[i]]++;
        }
    }
}

/* Pearson's statistic of counts against n w / sum(w); classes without weight have no counts. */
static double pearson(const int *counts, const double *w, int classes, double n)
{
    double sum = 0, x = 0;
    for (int c = 0; c < classes; c++) {
        sum += w[c] > 0 ? w[c] : 0;
    }
    for (int c = 0; c < classes; c++) {
        double expected = w[c] > 0 ? n * w[c] / sum : 0;
        cr_assert(expected > 0 || counts[c] == 0, "class %d of weight %g was drawn", c, w[c]);
        x += expected > 0 ? (counts[c] - expected) * (counts[c] - expected) / expected : 0;
    }
    return x;
}

Test(multinomial, follows_the_weights)
{
    enum { N = 200000 };
    const double w[7] = {0, 3, 0.5, -1, 8, NAN, 1.25};
    int counts[7], none;
    weft_generator g = {11, 0};
    for (int d = 0; d < COUNT(floats); d++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor t = weft_cast(weft_from_data(w, S(7), WEFT_F64), (weft_dtype)floats[d]);
        weft_tensor y = weft_multinomial(t, N, .replacement = true, .generator = &g);
        check_type("multinomial", y, WEFT_I64, S(N));
        tally(y, 7, counts, &none);
        cr_assert_eq(none, 0);
        double x = pearson(counts, w, 7, N); /* 3 degrees of freedom: above 21.1 once in 10^4 */
        cr_assert(x < 21.1, "Pearson's statistic %g", x);
        /* one draw for each of many rows */
        y = weft_multinomial(weft_expand(t, S(N, 7)), .generator = &g);
        check_type("a row each", y, WEFT_I64, S(N, 1));
        tally(y, 7, counts, &none);
        x = pearson(counts, w, 7, N);
        cr_assert(x < 21.1, "Pearson's statistic of rows %g", x);
        weft_scope_end(sc);
    }
}

Test(multinomial, without_replacement)
{
    enum { N = 60000 };
    const double w[4] = {1, 2, 0, 5};
    int first[4], second[4] = {0};
    weft_generator g = {5, 0};
    weft_scope sc = weft_scope_begin();
    weft_tensor rows = weft_expand(weft_from_data(w, S(4), WEFT_F64), S(N, 4));
    weft_tensor y = weft_multinomial(rows, 4, .generator = &g);
    check_type("multinomial", y, WEFT_I64, S(N, 4));
    const int64_t *at = weft_data(y);
    memset(first, 0, sizeof first);
    for (int i = 0; i < N; i++) {
        const int64_t *r = at + 4 * i;
        cr_assert(r[3] == -1 && r[0] != r[1] && r[1] != r[2] && r[0] != r[2]);
        cr_assert(r[0] >= 0 && r[1] >= 0 && r[2] >= 0);
        first[r[0]]++;
        second[r[1]] += r[0] == 3;
    }
    double x = pearson(first, w, 4, N); /* 2 degrees of freedom: above 18.4 once in 10^4 */
    cr_assert(x < 18.4, "Pearson's statistic of the first %g", x);
    const double rest[4] = {1, 2, 0, 0};
    x = pearson(second, rest, 4,
                first[3]); /* behind class 3 the others by their weights: 1 degree, 15.1 */
    cr_assert(x < 15.1, "Pearson's statistic of the second %g", x);
    weft_scope_end(sc);
}

/* The smallest numbers there are, and such as have a finite sum but no finite quotients. */
Test(multinomial, weights_of_any_size)
{
    enum { N = 20000 };
    static const double scales[] = {0x1p-1074, 0x1p-1022, 1e-300, 1, 1e300, 0x1p1020};
    const double w[4] = {1, 2, 0, 5}, wide[4] = {0x1p1000, 0x1p-1070, 0, 1};
    int counts[4], none;
    weft_generator g = {23, 0};
    for (int k = 0; k < COUNT(scales); k++) {
        double scaled[4];
        for (int c = 0; c < 4; c++) {
            scaled[c] = w[c] * scales[k];
        }
        weft_scope sc = weft_scope_begin();
        weft_tensor t = weft_from_data(scaled, S(4), WEFT_F64);
        tally(weft_multinomial(t, N, true, .generator = &g), 4, counts, &none);
        double x = pearson(counts, w, 4, N); /* 2 degrees of freedom: above 18.4 once in 10^4 */
        cr_assert(none == 0 && x < 18.4, "weights of %g: Pearson's statistic %g", scales[k], x);
        weft_tensor y = weft_multinomial(weft_expand(t, S(N, 4)), 3, .generator = &g);
        tally(weft_contiguous(weft_select(y, 1, 0)), 4, counts, &none);
        x = pearson(counts, w, 4, N);
        cr_assert(none == 0 && x < 18.4, "first of %g: Pearson's statistic %g", scales[k], x);
        tally(y, 4, counts, &none);
        cr_assert(none == 0 && counts[0] == N && counts[1] == N && counts[3] == N, "%g", scales[k]);
        weft_scope_end(sc);
    }
    /* one after the other, as no chance makes up for what lies between them */
    weft_scope sc = weft_scope_begin();
    weft_tensor y = weft_multinomial(weft_from_data(wide, S(4), WEFT_F64), 4, .generator = &g);
    cr_assert(memcmp(weft_data(y), (int64_t[4]){0, 3, 1, -1}, 32) == 0);
    weft_scope_end(sc);
}

typedef struct draw_case {
    int64_t n;
    bool replacement;
} draw_case;

static weft_tensor call_draw(const void *how, const weft_tensor *in, int n)
{
    const draw_case *k = how;
    weft_generator g = {3, 40};
    (void)n;
    weft_tensor y = weft_multinomial(in[0], k->n, k->replacement, .generator = &g);
    return weft_cast(y, WEFT_F32);
}

static weft_status draw_only(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    (void)n_out;
    out[0] = call_draw(self, in, n_in);
    return weft_error_status(out[0]);
}

Test(multinomial, same_bits_everywhere)
{
    static const int64_t classes[] = {1, 2, 3, 64, 1000};
    static const int threads[] = {1, 2, 3, 7};
    int before = weft_get_num_threads();
    for (int k = 0; k < COUNT(classes) * 2; k++) {
        const int64_t c = classes[k / 2];
        draw_case how = {c < 3 ? c : 3, k % 2};
        weft_scope sc = weft_scope_begin();
        weft_generator g = {(uint64_t)k + 1, 0};
        weft_tensor w = weft_rand(S(2, 5, c), WEFT_F32, .generator = &g), again;
        weft_tensor once = call_draw(&how, &w, 1);
        cr_assert(weft_ok(once), "%s", weft_error_text(once));
        for (int native = 0; native < 2; native++) {
            weft_jit *j =
                weft_jit_trace(draw_only, &how, .synchronous = native, .single_graph = true);
            for (int t = 0; t < COUNT(threads); t += EFFORT_THREAD_STEP) {
                weft_set_num_threads(threads[t]);
                cr_assert_eq(weft_jit_call(j, &w, 1, &again, 1), WEFT_OK, "%s", weft_last_error());
                check_bits("multinomial", again, once);
            }
            weft_jit_free(j);
        }
        weft_scope_end(sc);
    }
    weft_set_num_threads(before);
}

Test(multinomial, edges)
{
    weft_scope sc = weft_scope_begin();
    const float odd[5][3] = {
        {0, 0, 0}, {INFINITY, 1, 1}, {0x1p-149f, 0, 0}, {0, 0x1p127f, 0}, {NAN, -1, 7}};
    static const int64_t want_class[5] = {-1, -1, 0, 1, 2};
    weft_generator g = {1, 0}, saved;
    weft_tensor w = weft_from_data(odd, S(5, 3), WEFT_F32);
    for (int r = 0; r < 2; r++) {
        weft_tensor y = weft_multinomial(w, .replacement = r, .generator = &g);
        cr_assert(memcmp(weft_data(y), want_class, sizeof want_class) == 0);
    }
    /* the generator moves, and its state is the draw */
    saved = g;
    weft_tensor many = weft_rand(S(4, 50), WEFT_F64, .generator = &g), a, b;
    a = weft_multinomial(many, 9, .generator = &g);
    cr_assert(g.offset > saved.offset);
    g = saved;
    many = weft_rand(S(4, 50), WEFT_F64, .generator = &g);
    b = weft_multinomial(many, 9, .generator = &g);
    check_bits("again", b, a);
    check_type("no rows", weft_multinomial(weft_ones(S(0, 3), WEFT_F32), 2), WEFT_I64, S(0, 2));
    cr_assert_not(weft_requires_grad(weft_multinomial(weft_ones(S(3), WEFT_F32))));
    saved = g;
    check_error("rank 0", weft_multinomial(weft_scalar(1, WEFT_F32), .generator = &g), WEFT_ESHAPE,
                "no classes");
    check_error("no classes", weft_multinomial(weft_ones(S(2, 0), WEFT_F32), .generator = &g),
                WEFT_ESHAPE, "no classes");
    check_error("integers", weft_multinomial(weft_ones(S(2), WEFT_I32), .generator = &g),
                WEFT_EDTYPE, "no weights");
    check_error("too many", weft_multinomial(weft_ones(S(2), WEFT_F32), 3, .generator = &g),
                WEFT_EINVALID, ".replacement");
    check_error("less than none", weft_multinomial(weft_ones(S(2), WEFT_F32), -1, .generator = &g),
                WEFT_EINVALID, "-1 draws");
    cr_assert_eq(g.offset, saved.offset);
    weft_scope_end(sc);
}
