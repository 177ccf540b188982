/*
 * tests/grad/test_stale.c -- a saved value that was written: the error names the function that wrote and where it was called,
 * of every function that writes. Those of elementwise rows are made from the rows.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/support.h"
#include "weft/weft.h"

/* A value that a derivative reads, seen by a handle that no gradient watches; and the loss. */
typedef struct saved {
    weft_tensor value, loss;
} saved;

static saved save(weft_tensor x)
{
    weft_tensor w = weft_ones_like(x);
    weft_requires_grad_(w, true);
    weft_tensor copy = weft_clone(x); /* saved as an operand of a derivative */
    return (saved){copy, weft_sum(weft_exp(weft_mul(w, copy)))}; /* exp's gradient is dense */
}

/* The error says that `name` at `file`, or from no known place, changed the value. */
static void check(weft_tensor loss, const char *name, const char *file)
{
    char want[128];
    cr_assert_eq(weft_backward(loss), WEFT_EGRAD, "after %s", name);
    const char *e = weft_last_error(), *but = strstr(e, ", but ");
    snprintf(want, sizeof want, ", but %s%s", name, file ? " at " : " changed");
    cr_assert(but && strncmp(but, want, strlen(want)) == 0, "after %s: %s", name, e);
    if (file) {
        const char *at = strstr(but, file), *changed = strstr(but, " changed it to version");
        cr_assert(at && changed && at < changed, "after %s: %s", name, e);
    }
}

#define WRITES(fn, start, call)                                                                    \
    do {                                                                                           \
        saved v = save(start);                                                                     \
        weft_tensor x = v.value;                                                                   \
        (void)x;                                                                                   \
        cr_assert_eq((call), WEFT_OK, "%s: %s", #call, weft_last_error());                         \
        check(v.loss, fn, "test_stale.c:");                                                        \
    } while (0)

static weft_tensor half(void)
{
    return weft_full(weft_shape(2, 3), 0.5, WEFT_F32);
}

static weft_tensor large(void) /* beyond the short ways */
{
    return weft_full(weft_shape(300, 70), 0.5, WEFT_F32);
}

/* -- elementwise rows ------------------------------------------------------------------------------------ */

/* Rows of integers have no derivative that reads one: the others are called. */
static bool is_of_floats(weft_status s)
{
    return s != WEFT_EDTYPE;
}

static int row(const char *name, saved v, weft_status s)
{
    char fn[64];
    if (!is_of_floats(s)) {
        return 0;
    }
    snprintf(fn, sizeof fn, "%s_", name);
    cr_assert_eq(s, WEFT_OK, "%s", weft_last_error());
    check(v.loss, fn, "ops.def:");
    return 1;
}

static int elementwise_rows(weft_tensor like)
{
    int n = 0;
    saved v;
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    v = save(like);                                                                                \
    n += row(#name, v, weft_##name##_(v.value));
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    v = save(like);                                                                                \
    n += row(#name, v, weft_##name##_(v.value, weft_f(0.25)));
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    v = save(like);                                                                                \
    n += row(#name, v, weft_##name##_(v.value, weft_f(0.25), weft_f(0.75)));
#define PREDICATE(NAME, name, types, expr)
#define COMPARE(NAME, name, types, expr)
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b)
#include "jit/ir/ops.def"
    return n;
}

Test(stale, rows_in_place_are_named)
{
    int few = elementwise_rows(half()), many = elementwise_rows(large());
    cr_assert(few > 60 && few == many, "%d and %d rows", few, many);
}

/* -- the others ------------------------------------------------------------------------------------------- */

Test(stale, writes_that_are_no_rows_are_named)
{
    weft_tensor all[2] = {half(), large()};
    for (int i = 0; i < 2; i++) {
        weft_tensor like = all[i];
        WRITES("fill_", like, weft_fill_(x, 2));
        WRITES("zero_", like, weft_zero_(x));
        WRITES("copy_", like, weft_copy_(x, weft_f(1)));
        WRITES("copy_", like, weft_copy_(x, weft_ones_like(x)));
        WRITES("copy_", like, weft_copy_(x, weft_cast(x, WEFT_F16)));
        WRITES("masked_fill_", like, weft_masked_fill_(x, weft_less(x, weft_f(1)), weft_f(0)));
        WRITES("fill_", like, weft_fill_(weft_slice(x, 0, 0, 1, 1), 2));
        WRITES("mul_", like, weft_mul_(weft_transpose(x, 0, 1), weft_f(2)));
        WRITES(
            "index_add_", like,
            weft_index_add_(x, 0, weft_zeros(weft_shape(1), WEFT_I64), weft_slice(x, 0, 0, 1, 1)));
        WRITES("scatter_add_", like,
               weft_scatter_add_(x, 0, weft_zeros(weft_shape(1, 1), WEFT_I64),
                                 weft_ones(weft_shape(1, 1), WEFT_F32)));
        WRITES("pow_", like, weft_pow_(x, weft_f(1.7)));
        WRITES("init_constant", like, weft_init_constant(x, 3));
        WRITES("init_uniform", like, weft_init_uniform(x, 0, 1, NULL));
        WRITES("init_normal", like, weft_init_normal(x, 0, 1, NULL));
        WRITES("init_trunc_normal", like, weft_init_trunc_normal(x, 0, 1, -2, 2, NULL));
        WRITES("init_xavier_uniform", like, weft_init_xavier_uniform(x, 1, NULL));
        WRITES("init_xavier_normal", like, weft_init_xavier_normal(x, 1, NULL));
        WRITES("init_kaiming_uniform", like, weft_init_kaiming_uniform(x, 0, WEFT_FAN_IN, NULL));
        WRITES("init_kaiming_normal", like, weft_init_kaiming_normal(x, 0, WEFT_FAN_OUT, NULL));
        WRITES("init_orthogonal", like, weft_init_orthogonal(x, 1, NULL));
        WRITES("data_mut", like, weft_data_mut(x) ? WEFT_OK : WEFT_EINVALID);
    }
}

/* A recorded value, written while gradients are recorded and while they are not. */
Test(stale, recorded_writes_are_named)
{
    weft_tensor leaf = half();
    weft_requires_grad_(leaf, true);
    for (int off = 0; off < 2; off++) {
#define RECORDED(fn, call)                                                                         \
    do {                                                                                           \
        weft_tensor h = weft_mul(leaf, weft_f(3)), y = weft_sum(weft_square(h));                   \
        if (off) {                                                                                 \
            weft_no_grad_begin();                                                                  \
        }                                                                                          \
        cr_assert_eq((call), WEFT_OK, "%s", weft_last_error());                                    \
        if (off) {                                                                                 \
            weft_no_grad_end();                                                                    \
        }                                                                                          \
        check(y, fn, "test_stale.c:");                                                             \
    } while (0)
        RECORDED("fill_", weft_fill_(h, 2));
        RECORDED("zero_", weft_zero_(h));
        RECORDED("copy_", weft_copy_(h, weft_f(1)));
        RECORDED("copy_", weft_copy_(h, leaf));
        RECORDED("masked_fill_", weft_masked_fill_(h, weft_less(h, weft_f(9)), weft_f(0)));
        RECORDED("add_", weft_add_(h, weft_f(1)));
        RECORDED("exp_", weft_exp_(weft_slice(h, 0, 0, 1, 1)));
        RECORDED("init_normal", weft_init_normal(h, 0, 1, NULL));
    }
}

/* -- calls that write several tensors ---------------------------------------------------------------------- */

enum { LAYERS = 2 };

static weft_module *model(weft_nn_linear *l)
{
    weft_module *m = weft_module_new(NULL);
    for (int i = 0; i < LAYERS; i++) {
        cr_assert_eq(weft_nn_linear_init(&l[i], m, i ? "b" : "a", 3, 3), WEFT_OK);
    }
    return m;
}

static weft_tensor forward(const weft_nn_linear *l)
{
    weft_tensor y = half();
    for (int i = 0; i < LAYERS; i++) {
        y = weft_nn_linear_forward(&l[i], y);
    }
    return weft_sum(y);
}

typedef weft_optim *(*maker)(weft_module *m);
static weft_optim *sgd(weft_module *m)
{
    return weft_sgd_new(m, .lr = 0.1, .momentum = 0.9);
}
static weft_optim *adamw(weft_module *m)
{
    return weft_adamw_new(m);
}

Test(stale, optimiser_steps_are_named)
{
    maker make[2] = {sgd, adamw};
    for (int i = 0; i < 2; i++) {
        weft_nn_linear l[LAYERS];
        weft_module *m = model(l);
        weft_optim *o = make[i](m);
        cr_assert_eq(weft_backward(forward(l)), WEFT_OK);
        weft_tensor before = forward(l);
        cr_assert_eq(weft_optim_step(o), WEFT_OK);
        check(before, "optim_step", "test_stale.c:");

        weft_optim_free(o);
        weft_module_free(m);
    }
}

Test(stale, loads_are_named)
{
    char path[TEST_PATH];
    close(test_new_file(path));
    weft_nn_linear l[LAYERS];
    weft_module *m = model(l);
    cr_assert_eq(weft_checkpoint_save(path, m, NULL), WEFT_OK, "%s", weft_last_error());
    weft_tensor y = forward(l);
    cr_assert_eq(weft_checkpoint_load(path, m, NULL), WEFT_OK, "%s", weft_last_error());
    check(y, "checkpoint_load", "test_stale.c:");
    y = forward(l);
    weft_safetensors *f = weft_safetensors_open(path);
    cr_assert_eq(weft_safetensors_load(f, weft_module_entries(m), weft_module_count(m)), WEFT_OK);
    check(y, "safetensors_load", "test_stale.c:");
    weft_safetensors_close(f);
    weft_module_free(m);
    unlink(path);
}

Test(stale, clipping_is_named)
{
    weft_nn_linear l[LAYERS];
    weft_module *m = model(l);
    cr_assert_eq(weft_backward(forward(l)), WEFT_OK);
    for (int seen = 0; seen < 2; seen++) {
        weft_tensor w = weft_ones(weft_shape(3, 3), WEFT_F32);
        weft_requires_grad_(w, true);
        weft_tensor y = weft_sum(weft_mul(w, weft_grad(l[1].weight)));
        double norm;
        cr_assert_eq(weft_module_clip_grad_norm(m, 1e-3, seen ? &norm : NULL), WEFT_OK);
        check(y, "module_clip_grad_norm", "test_stale.c:");
        cr_assert_eq(weft_mul_(weft_grad(l[0].weight), weft_f(1e6)), WEFT_OK);
    }
    weft_module_free(m);
}

/* A later backward adds to the gradient that somebody uses. */
Test(stale, accumulation_is_named)
{
    weft_tensor x = half(), w = half();
    weft_requires_grad_(x, true);
    weft_requires_grad_(w, true);
    cr_assert_eq(weft_backward(weft_sum(weft_mul(x, weft_f(2)))), WEFT_OK);
    weft_tensor g = weft_grad(x), y = weft_sum(weft_mul(w, g));
    const uint64_t before = (uint64_t)weft_write_count(g);
    cr_assert_eq(weft_backward(weft_sum(weft_mul(x, weft_f(2)))), WEFT_OK);
    if ((uint64_t)weft_write_count(g) != before) {
        check(y, "backward", "test_stale.c:");
    }
}

/* Running statistics move inside a call that returns a tensor: it is named, and no other call's place. */
Test(stale, running_statistics_are_named)
{
    weft_tensor x = weft_randn(weft_shape(8, 3), WEFT_F32),
                mean = weft_zeros(weft_shape(3), WEFT_F32),
                var = weft_ones(weft_shape(3), WEFT_F32);
    weft_tensor w = half();
    weft_requires_grad_(x, true);
    weft_requires_grad_(w, true);
    weft_tensor y = weft_sum(weft_mul(w, mean)), z = weft_sum(weft_mul(w, var));
    cr_assert(
        weft_ok(weft_batch_norm(x, .running_mean = mean, .running_var = var, .training = true)));
    check(y, "batch_norm", NULL);
    check(z, "batch_norm", NULL);
}

/* -- in traces --------------------------------------------------------------------------------------------- */

static weft_status traced(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)n_in, (void)n_out;
    const char *fn = self;
    weft_tensor h = weft_mul(in[0], weft_f(3));
    weft_tensor w = weft_ones_like(h);
    weft_requires_grad_(w, true);
    weft_tensor y = weft_sum(weft_mul(w, h));
    weft_status s = strcmp(fn, "fill_") == 0   ? weft_fill_(h, 1)
                    : strcmp(fn, "zero_") == 0 ? weft_zero_(h)
                    : strcmp(fn, "add_") == 0  ? weft_add_(h, weft_f(1))
                    : strcmp(fn, "copy_") == 0
                        ? weft_copy_(h, in[0])
                        : weft_masked_fill_(h, weft_less(h, weft_f(9)), weft_f(0));
    out[0] = h;
    return s == WEFT_OK ? weft_backward(y) : s;
}

Test(stale, traced_writes_are_named)
{
    static char names[][16] = {"fill_", "zero_", "add_", "copy_", "masked_fill_"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        weft_jit *j = weft_jit_trace(traced, names[i]);
        weft_tensor x = half(), y;
        cr_assert_eq(weft_jit_call(j, &x, 1, &y, 1), WEFT_EGRAD, "%s", names[i]);
        char want[128];
        snprintf(want, sizeof want, ", but %s at ", names[i]);
        cr_assert(strstr(weft_last_error(), want), "%s", weft_last_error());
        weft_jit_free(j);
    }
}

static int written_at;

static weft_status writes_twice(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_status s = weft_add_(in[0], weft_f(1));
    out[0] = weft_square(in[0]);
    written_at = __LINE__ + 1;
    return s ? s : weft_mul_(in[0], weft_f(2));
}

/* A traced call wrote what was saved outside of it: recorded, replayed (when the function does not run), or run as it is. */
Test(stale, writes_of_traced_calls_are_named)
{
    for (int way = 0; way < 3; way++) {
        const int calls = way == 2 ? 2000 : 8;
        weft_jit *j = weft_jit_trace(writes_twice, .frozen = way == 1, .always_record = way < 2,
                                     .verify_every = -1);
        for (int call = 0; call < calls; call++) {
            weft_scope scope = weft_scope_begin();
            saved v = save(half());
            weft_tensor y;
            char want[128];
            cr_assert_eq(weft_jit_call(j, &v.value, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
            cr_assert_eq(weft_backward(v.loss), WEFT_EGRAD);
            snprintf(want, sizeof want, "test_stale.c:%d changed it to version 2", written_at);
            const char *but = strstr(weft_last_error(), ", but mul_ at ");
            cr_assert(but && strstr(but, want), "call %d of way %d: %s", call, way,
                      weft_last_error());
            weft_scope_end(scope);
        }
        weft_jit_stats st;
        weft_jit_get_stats(j, &st);
        cr_assert(way != 1 || st.frozen >= calls / 2, "%d replays", (int)st.frozen);
        cr_assert(way != 2 || st.eager >= calls / 2, "%d calls as they are", (int)st.eager);
        weft_jit_free(j);
    }
}

/* A view of the same elements in another order is not the tensor, nor is one of another type; and what the value's own tensor is
 * called goes before what another of the same is. */
Test(stale, a_view_does_not_lend_its_name)
{
    for (int alike = 0; alike < 2; alike++) {
        weft_tensor dummy = weft_ones(weft_shape(1), WEFT_F32),
                    w = weft_ones(weft_shape(2, 2), WEFT_F32);
        weft_requires_grad_(w, true);
        weft_tensor y = weft_exp(w);
        weft_free(dummy); /* its slot, before y's, is the view's */
        weft_tensor t = alike ? weft_detach(y) : weft_transpose(y, 0, 1);
        cr_assert_lt(t.slot, y.slot);
        weft_set_name(t, "T");
        weft_set_name(y, "Y");
        weft_tensor z = weft_sum(y);
        weft_no_grad_begin(); /* y is still what exp made */
        cr_assert_eq(weft_mul_(y, weft_f(2)), WEFT_OK);
        weft_no_grad_end();
        cr_assert_eq(weft_backward(z), WEFT_EGRAD);
        cr_assert(strstr(weft_last_error(), ", f32[2,2] 'Y' made at "), "%s", weft_last_error());
    }
}

/* A result is named after it was made, when its own derivative has saved it: the name is that of the moment of the error. */
Test(stale, a_result_has_the_name_that_it_was_given_later)
{
    weft_tensor w = half();
    weft_requires_grad_(w, true);
    for (int whole = 0; whole < 2; whole++) {
        weft_tensor y = weft_exp(w), loss = weft_sum(weft_mul(y, y));
        weft_set_name(y, "activations");
        cr_assert_eq(weft_add_(whole ? y : weft_slice(y, 0, 0, 1, 1), weft_f(1)), WEFT_OK);
        cr_assert_eq(weft_backward(loss), WEFT_EGRAD);
        cr_assert(strstr(weft_last_error(), ", f32[2,3] 'activations' made at "), "%s",
                  weft_last_error());
    }
}
