/*
 * tests/jit/test_fuse_counts.c -- how many kernels the functions of a model take, forward and with backward,
 * and that the bits are those of the function called: both tiers, 1 and 3 threads.
 */
/* ctest: timeout=300 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "weft/jit.h"
#include "weft/weft.h"

enum { ROWS = 48, COLS = 80, CALLS = 24 }; /* calls: until a plan has chosen its way */

typedef weft_tensor (*model_fn)(weft_tensor x, const weft_tensor *more);

static weft_tensor softmax(weft_tensor x, const weft_tensor *more)
{
    (void)more;
    return weft_softmax(x, -1);
}
static weft_tensor log_softmax(weft_tensor x, const weft_tensor *more)
{
    (void)more;
    return weft_log_softmax(x, -1);
}
static weft_tensor layer_norm(weft_tensor x, const weft_tensor *more)
{
    return weft_layer_norm(x, more[0], more[1], 1);
}
static weft_tensor rms_norm(weft_tensor x, const weft_tensor *more)
{
    return weft_rms_norm(x, more[0], 1);
}
static weft_tensor cross_entropy(weft_tensor x, const weft_tensor *more)
{
    return weft_cross_entropy(x, more[2], .reduction = WEFT_REDUCE_NONE);
}
static weft_tensor mse(weft_tensor x, const weft_tensor *more)
{
    return weft_mse_loss(x, more[3]);
}
static weft_tensor bce(weft_tensor x, const weft_tensor *more)
{
    return weft_bce_with_logits(x, more[3]);
}

static weft_tensor mean_cross_entropy(weft_tensor x, const weft_tensor *more)
{
    return weft_cross_entropy(x, more[2]);
}

static weft_tensor scaled_cross_entropy(weft_tensor x, const weft_tensor *more)
{
    return weft_cross_entropy(weft_mul(x, weft_f(1.5)), more[2]);
}

static weft_tensor dropout(weft_tensor x, const weft_tensor *more)
{
    weft_manual_seed(9); /* the same numbers at every call */
    return weft_add(weft_dropout(weft_gelu(x), 0.25, .training = true), more[3]);
}
static weft_tensor layer(weft_tensor x, const weft_tensor *more)
{
    return weft_gelu(weft_linear(x, more[4], more[1]));
}

typedef struct model {
    model_fn fn;
    bool train;
    weft_tensor x, more[5], gradient; /* more: weight, bias, classes, targets in [0, 1), a matrix */
} model;

static weft_status run_model(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    model *m = self;
    (void)in, (void)n_in, (void)n_out;
    out[0] = m->fn(m->x, m->more);
    if (!m->train) {
        return weft_error_status(out[0]);
    }
    weft_set_grad(m->x, WEFT_NONE);
    weft_set_grad(m->more[0], WEFT_NONE);
    weft_set_grad(m->more[1], WEFT_NONE);
    return weft_backward(out[0], .gradient = m->gradient);
}

static weft_tensor leaf(weft_tensor t)
{
    cr_assert_eq(weft_requires_grad_(t, true), WEFT_OK, "%s", weft_last_error());
    return t;
}

static void open_model(model *m, model_fn fn)
{
    *m = (model){.fn = fn};
    m->x = leaf(weft_randn(weft_shape(ROWS, COLS), WEFT_F32));
    m->more[0] = leaf(weft_randn(weft_shape(COLS), WEFT_F32));
    m->more[1] = leaf(weft_randn(weft_shape(COLS), WEFT_F32));
    m->more[2] = weft_randint(weft_shape(ROWS), 0, COLS);
    m->more[3] = weft_rand(weft_shape(ROWS, COLS), WEFT_F32);
    m->more[4] = weft_randn(weft_shape(COLS, COLS), WEFT_F32);
    weft_no_grad_begin();
    weft_tensor y = fn(m->x, m->more);
    m->gradient = weft_rank(y) ? weft_randn(weft_shape_of(y), WEFT_F32) : WEFT_NONE;
    weft_no_grad_end();
    cr_assert_neq(y.slot, 0u, "%s", weft_last_error());
}

/* Result and gradients, one after the other; what there is no gradient of is left out. */
static size_t collect(const model *m, weft_tensor y, float *to)
{
    const weft_tensor from[3] = {m->x, m->more[0], m->more[1]};
    size_t n = 0;
    for (int i = -1; i < 3; i++) {
        if (i < 0 || weft_has_grad(from[i])) {
            weft_tensor t = i < 0 ? y : weft_grad(from[i]);
            const void *data = weft_data(t);
            cr_assert_not_null(data, "%s", weft_last_error());
            memcpy(to + n, data, (size_t)weft_numel(t) * sizeof *to);
            n += (size_t)weft_numel(t);
        }
    }
    return n;
}

/* Kernels of the function, which gives its own bits traced. */
static int count_kernels(model *m, const char *name)
{
    static float want[4 * ROWS * COLS], got[4 * ROWS * COLS];
    weft_scope sc = weft_scope_begin();
    weft_tensor y;
    cr_assert_eq(run_model(m, NULL, 0, &y, 1), WEFT_OK, "%s: %s", name, weft_last_error());
    size_t n = collect(m, y, want);
    weft_jit *j = weft_jit_trace(run_model, m, .name = name, .synchronous = true);
    for (int i = 0; i < CALLS; i++) {
        weft_set_num_threads(i % 2 ? 3 : 1);
        cr_assert_eq(weft_jit_call(j, NULL, 0, &y, 1), WEFT_OK, "%s: %s", name, weft_last_error());
        cr_assert_eq(collect(m, y, got), n);
        cr_assert(memcmp(want, got, n * sizeof *got) == 0, "%s, call %d", name, i);
    }
    weft_jit_stats st;
    weft_jit_get_stats(j, &st);
    if (getenv("WEFT_TEST_SHOW")) {
        weft_jit_explain(j, stderr);
    }
    weft_jit_free(j);
    weft_scope_end(sc);
    return (int)st.steps;
}

/* Rows that stay on their eager kernels are counted as well: whichever way was faster holds these. */
Test(fuse_counts, forward_and_backward)
{
    static const struct {
        const char *name;
        model_fn fn;
        int forward, backward;
    } cases[] = {{"softmax", softmax, 1, 1},
                 {"log_softmax", log_softmax, 1, 1},
                 {"layer_norm", layer_norm, 1, 2},
                 {"rms_norm", rms_norm, 1, 2},
                 {"cross_entropy", cross_entropy, 1, 1},
                 {"mean_cross_entropy", mean_cross_entropy, 2, 1},
                 {"scaled_cross_entropy", scaled_cross_entropy, 3, 2},
                 {"mse", mse, 1, 1},
                 {"bce", bce, 1, 1},
                 {"dropout", dropout, 1, 1},
                 {"gelu of a layer", layer, 1, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model m;
        open_model(&m, cases[i].fn);
        int forward = count_kernels(&m, cases[i].name);
        m.train = true;
        int both = count_kernels(&m, cases[i].name);
        cr_expect(forward <= cases[i].forward, "%s forward: %d kernels", cases[i].name, forward);
        cr_expect(both - forward <= cases[i].backward, "%s backward: %d kernels", cases[i].name,
                  both - forward);
    }
}
