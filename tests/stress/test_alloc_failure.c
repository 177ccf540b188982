/*
 * tests/stress/test_alloc_failure.c -- programs of every family of calls with their n-th allocation failing,
 * for every n: ops and gradients, and a model that is trained, saved and restored.
 *
 * The failing run ends with WEFT_ENOMEM (or gets by without that allocation and gives the same bits),
 * nothing leaks, and the program gives the same bits afterwards.
 *
 * ctest: serial timeout=300
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "eager/alloc.h"
#include "tests/support/support.h"
#include "weft/nn.h"

enum { MOST = 20 };

typedef struct outcome {
    double value[MOST];
    int n;
} outcome;

/* Leaves the program with the status of the first call that fails. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        weft_status s_ = call;                                                                     \
        if (s_ != WEFT_OK) {                                                                       \
            return s_;                                                                             \
        }                                                                                          \
    } while (0)

/* The sum of t's elements as a double. */
static weft_status note(outcome *o, weft_tensor t)
{
    weft_tensor s = weft_sum(weft_cast(t, WEFT_F64));
    if (!weft_ok(s)) {
        return weft_error_status(s);
    }
    return weft_item(s, &o->value[o->n++]);
}

static weft_status forward(weft_function_ctx *ctx, void *user, const weft_tensor *in, int n_in,
                           weft_tensor *out, int n_out)
{
    (void)user;
    (void)n_out;
    out[0] = weft_square(in[0]);
    return weft_function_save(ctx, in, n_in);
}
static weft_status backward(weft_function_ctx *ctx, void *user, const weft_tensor *grad_out,
                            int n_out, weft_tensor *grad_in, const bool *needs, int n_in)
{
    (void)user;
    (void)n_out;
    (void)n_in;
    if (needs[0]) {
        weft_tensor x = weft_function_saved(ctx, 0);
        grad_in[0] = weft_mul(weft_mul(grad_out[0], weft_f(2)), x);
    }
    return WEFT_OK;
}
static weft_tensor hook(void *user, weft_tensor grad)
{
    (void)user;
    return weft_mul(grad, weft_f(3));
}

static weft_status made_again(void *user, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    const weft_tensor *w = user;
    (void)n_in, (void)n_out;
    weft_tensor h = weft_mul(weft_tanh(in[0]), weft_sum(*w));
    out[0] = (weft_dropout)(&(weft_dropout_args){.x = h, .p = 0.25, .training = true});
    return weft_error_status(out[0]);
}

static weft_status views_and_movement(outcome *o, weft_tensor x)
{
    static const int64_t at[] = {1, 0, 2, -1};
    weft_tensor values, indices, parts[2];
    weft_tensor i = weft_from_data(at, weft_shape(4), WEFT_I64);
    weft_tensor y = weft_add(weft_transpose(x, 0, 1), weft_slice(x, 1, 0, 4, 1));
    TRY(note(o, weft_reshape(y, weft_shape(2, 8))));
    TRY(note(o, weft_index_add(x, 0, i, weft_index_select(x, 0, i))));
    weft_tensor halves = weft_full(weft_shape(128), 0.5, WEFT_BF16);
    TRY(note(o, weft_index_add(halves, 0, i, weft_narrow(halves, 0, 0, 4))));
    TRY(weft_sort(x, 1, false, &values, &indices));
    TRY(note(o, weft_take_along(x, 1, indices)));
    TRY(weft_chunk(x, 0, 2, parts));
    TRY(note(o, weft_concat(parts, 2, 1)));
    TRY(note(o, weft_pad(x, weft_shape(1, 0), weft_shape(0, 2), 1)));
    weft_tensor w = weft_clone(x);
    TRY(weft_add_(weft_transpose(w, 0, 1), w));
    return note(o, w);
}

static weft_status training(outcome *o, weft_tensor x, weft_tensor w)
{
    static const weft_function square = {
        .name = "square", .forward = forward, .backward = backward};
    weft_tensor y;
    TRY(weft_requires_grad_(w, true));
    weft_tensor h = weft_gelu(weft_linear(x, w, WEFT_NONE));
    h = weft_layer_norm(h);
    h = weft_mul(weft_softmax(h, -1), weft_cast(weft_cast(h, WEFT_BF16), WEFT_F32));
    TRY(weft_apply(&square, NULL, &h, 1, &y, 1));
    weft_manual_seed(7);
    TRY(weft_remat(made_again, &w, &y, 1, &y, 1));
    weft_tensor image = weft_reshape(y, weft_shape(1, 1, 4, 4));
    weft_tensor z = weft_max_pool2d(
        weft_conv2d(image, weft_ones(weft_shape(2, 1, 3, 3), WEFT_F32), .padding = weft_shape(1)),
        .kernel = weft_shape(2));
    if (!weft_ok(z)) {
        return weft_error_status(z);
    }
    if (weft_register_hook(z, hook, NULL, NULL) == 0) {
        return weft_last_status();
    }
    TRY(weft_backward(weft_sum(z)));
    TRY(note(o, z));
    TRY(note(o, weft_grad(w)));
    return weft_set_grad(w, WEFT_NONE);
}

/* Writes that gradients follow, and values of aliases that they left out of date. */
static weft_status writes(outcome *o, weft_tensor w)
{
    weft_tensor y = weft_mul(w, w), rows = weft_slice(y, 0, 0, 2, 1);
    TRY(weft_mul_(weft_flip(y, weft_axes(0)), y));
    TRY(weft_add_(rows, weft_tanh(rows)));
    TRY(weft_tanh_(y));
    TRY(weft_backward(weft_sum(weft_mul(y, weft_flip(y, weft_axes(1))))));
    TRY(note(o, y));
    TRY(note(o, weft_grad(w)));
    return weft_set_grad(w, WEFT_NONE);
}

/* Writes through views whose gradients are kept, and through detached ones; constants over all of a value. */
static weft_status kept_and_detached(outcome *o, weft_tensor w)
{
    weft_tensor y = weft_mul(w, w), rows = weft_slice(y, 0, 0, 2, 1), by = WEFT_NONE;
    TRY(weft_retain_grad(y));
    TRY(weft_retain_grad(rows));
    TRY(weft_mul_(rows, weft_f(3)));
    TRY(weft_mul_(weft_transpose(y, 0, 1), w));
    weft_tensor apart = weft_detach(weft_mul(w, weft_f(2))), filled = weft_square(w);
    TRY(weft_mul_(apart, w));
    TRY(weft_fill_(filled, 2));
    weft_tensor loss = weft_add(weft_mul(weft_sum(weft_square(y)), weft_sum(rows)),
                                weft_sum(weft_mul(apart, filled)));
    TRY(weft_grad_of(&loss, 1, &filled, 1, &by, .retain_graph = true));
    TRY(weft_backward(loss));
    TRY(note(o, by));
    TRY(note(o, weft_grad(w)));
    return weft_set_grad(w, WEFT_NONE);
}

static weft_status texts_and_files(outcome *o, weft_tensor x)
{
    char text[200];
    void *data;
    size_t size;
    TRY(weft_set_name(x, "x"));
    if (weft_to_string(x, text, sizeof text) < 0) {
        return weft_last_status();
    }
    weft_named_tensor entry = {"x", x};
    TRY(weft_safetensors_encode(&entry, 1, NULL, 0, &data, &size));
    weft_safetensors *f = weft_safetensors_decode(data, size);
    free(data);
    if (!f) {
        return weft_last_status();
    }
    weft_status status = note(o, weft_safetensors_get(f, "x"));
    weft_safetensors_close(f);
    return status;
}

static weft_status op_program(outcome *o)
{
    float v[16];
    for (int i = 0; i < 16; i++) {
        v[i] = (float)(i * 7 % 11) / 8;
    }
    *o = (outcome){0};
    weft_tensor x = weft_from_data(v, weft_shape(4, 4), WEFT_F32);
    weft_tensor w = weft_add(x, weft_f(0.25));
    TRY(views_and_movement(o, x));
    TRY(training(o, x, w));
    TRY(writes(o, w));
    TRY(kept_and_detached(o, w));
    TRY(texts_and_files(o, x));
    weft_tensor k = weft_keep(weft_exp(x));
    weft_status status = weft_assign(&k, weft_tanh(k));
    status = status == WEFT_OK ? note(o, k) : status;
    weft_status freed = weft_free(k);
    return status == WEFT_OK ? freed : status;
}

/* Compositions of ops, and the gradients of their operands. */
static weft_status composed(outcome *o, weft_tensor x)
{
    TRY(weft_requires_grad_(x, true));
    weft_tensor row = weft_select(x, 0, 1), image = weft_reshape(x, weft_shape(1, 2, 2, 4));
    weft_tensor y = weft_einsum("ij,...kj,ii,k->i...", x, x, x, row);
    TRY(note(o, y));
    weft_tensor z = weft_group_norm(weft_cast(image, WEFT_F16), 1, weft_narrow(row, 0, 0, 2),
                                    weft_narrow(row, 0, 2, 2));
    z = weft_interpolate(z, weft_shape(3, 7), .mode = WEFT_LINEAR);
    z = weft_adaptive_avg_pool2d(z, weft_shape(2, 5));
    z = weft_pad_mode(z, weft_shape(0, 0, 1, 0), weft_shape(0, 0, 0, 2), WEFT_PAD_REFLECT);
    TRY(note(o, z));
    weft_tensor w = weft_reshape(x, weft_shape(2, 2, 4));
    weft_tensor t = weft_conv_transpose1d(w, w, weft_narrow(row, 0, 0, 2), .stride = weft_shape(2),
                                          .output_padding = weft_shape(1));
    t = weft_instance_norm(weft_conv1d(t, w));
    TRY(note(o, t));
    TRY(weft_backward(weft_add(weft_add(weft_sum(y), weft_sum(z)), weft_sum(t))));
    TRY(note(o, weft_grad(x)));
    TRY(note(o, weft_pow(weft_i(3), weft_arange(0, 20, 1, WEFT_I64)))); /* looks at the exponents */
    return weft_set_grad(x, WEFT_NONE);
}

static weft_status composed_program(outcome *o)
{
    *o = (outcome){0};
    return composed(o, weft_reshape(weft_sin(weft_arange(0, 16, 1, WEFT_F32)), weft_shape(4, 4)));
}

/* -- a model, its optimiser, and both in files -------------------------------------------------------- */

typedef struct model {
    weft_module *m;
    weft_optim *optim;
    weft_nn_embedding tokens;
    weft_nn_norm norm;
    weft_nn_attention attention;
    weft_nn_recurrent gru;
    weft_nn_linear head;
    weft_nn_batch_norm2d batch;
    weft_nn_conv2d conv;
    weft_nn_conv_transpose back;
    weft_nn_group_norm group;
} model;

static weft_status model_new(model *a, weft_generator *g)
{
    if (!(a->m = weft_module_new(g))) {
        return weft_last_status();
    }
    TRY(weft_nn_embedding_init(.layer = &a->tokens, .module = a->m, .name = "tokens", .n = 5,
                               .dim = 4));
    TRY(weft_module_push(a->m, "h.%d", 0));
    TRY(weft_nn_layer_norm_init(.layer = &a->norm, .module = a->m, .name = "norm", .dim = 4));
    TRY(weft_nn_attention_init(.layer = &a->attention, .module = a->m, .name = "attention",
                               .dim = 4, .heads = 2, .causal = true));
    TRY(weft_nn_gru_init(.layer = &a->gru, .module = a->m, .name = "gru", .in = 4, .hidden = 2,
                         .bidirectional = true, .batch_first = true));
    TRY(weft_module_pop(a->m));
    TRY(weft_nn_conv2d_init(.layer = &a->conv, .module = a->m, .name = "conv", .in = 1, .out = 2,
                            .kernel = 1));
    TRY(weft_nn_conv_transpose2d_init(.layer = &a->back, .module = a->m, .name = "back", .in = 2,
                                      .out = 2, .kernel = 1));
    TRY(weft_nn_group_norm_init(.layer = &a->group, .module = a->m, .name = "group", .groups = 2,
                                .dim = 2));
    TRY(weft_nn_batch_norm2d_init(.layer = &a->batch, .module = a->m, .name = "batch", .dim = 2));
    TRY(weft_nn_linear_init(.layer = &a->head, .module = a->m, .name = "head", .in = 8, .out = 5));
    a->optim = weft_adamw_new(.module = a->m, .lr = 0.01, .decay_min_rank = 2);
    if (!a->optim) {
        return weft_last_status();
    }
    TRY(weft_optim_group(a->optim, "*.bias", .lr_scale = 0.5));
    return weft_module_status(a->m);
}

static void model_free(model *a)
{
    weft_optim_free(a->optim);
    weft_module_free(a->m);
}

static weft_status model_step(model *a)
{
    static const int64_t text[] = {0, 3, 1, 4, 2, 0};
    weft_tensor x = weft_from_data(text, weft_shape(2, 3), WEFT_I64);
    weft_tensor h = weft_nn_embedding_forward(&a->tokens, x);
    h = weft_nn_attention_forward(&a->attention, weft_nn_layer_norm_forward(&a->norm, h));
    h = weft_nn_gru_forward(&a->gru, h, NULL);
    h = weft_nn_conv2d_forward(&a->conv, weft_reshape(h, weft_shape(2, 1, 3, 4)));
    h = weft_nn_group_norm_forward(&a->group, weft_nn_conv_transpose2d_forward(&a->back, h));
    h = weft_nn_batch_norm2d_forward(&a->batch, h); /* [2, 2, 3, 4] */
    h = weft_reshape(weft_permute(h, weft_axes(0, 2, 1, 3)), weft_shape(6, 8));
    weft_tensor y = weft_nn_linear_forward(&a->head, h);
    TRY(weft_backward(weft_cross_entropy(y, weft_reshape(x, weft_shape(6)))));
    TRY(weft_module_clip_grad_norm(a->m, 0.5, NULL));
    TRY(weft_module_clip_grad_value(a->m, 0.1));
    TRY(weft_optim_step(a->optim));
    return weft_module_zero_grad(a->m);
}

/* One step, saved, another step; the copy starts from the file and makes the other step too. */
static weft_status model_file(outcome *o, model *a, model *b, const char *path)
{
    weft_generator g = {3, 0}, other = {4, 0};
    TRY(model_new(a, &g));
    TRY(model_new(b, &other));
    TRY(model_step(a));
    TRY(weft_checkpoint_save(.path = path, .module = a->m, .optim = a->optim));
    TRY(weft_checkpoint_load(.path = path, .module = b->m, .optim = b->optim));
    TRY(model_step(a));
    TRY(model_step(b));
    TRY(note(o, b->head.weight));
    TRY(note(o, b->batch.running_mean));
    weft_tensor off = weft_max(weft_abs(weft_sub(a->tokens.weight, b->tokens.weight)));
    return note(o, off);
}

static weft_status model_program(outcome *o)
{
    char path[64];
    model a = {0}, b = {0};
    snprintf(path, sizeof path, "/tmp/weft-alloc-failure-%ld.safetensors", (long)getpid());
    *o = (outcome){0};
    weft_status status = model_file(o, &a, &b, path);
    remove(path);
    model_free(&a);
    model_free(&b);
    return status;
}

typedef weft_status (*program_fn)(outcome *o);

static weft_status run(program_fn program, outcome *o)
{
    weft_scope sc = weft_scope_begin();
    weft_status status = program(o);
    /* a scope that could not be opened has nothing to end: its tensors are the outer scope's */
    weft_scope_end(sc);
    return status;
}

/* Was the planned failure met? If not, one of the next n allocations is it. */
static bool met(int64_t n)
{
    bool failed = false;
    for (int64_t i = 0; i < n && !failed; i++) {
        void *p = wf_malloc(16);
        failed = p == NULL;
        wf_mfree(p);
    }
    return !failed;
}

/* every: only each so-many-th allocation is tried. */
static void check_failures(program_fn program, bool forever, int every)
{
    outcome right, o;
    weft_scope outer = weft_scope_begin();
    cr_assert_eq(run(program, &right), WEFT_OK, "%s", weft_last_error());
    run(program, &right);
    test_baseline before = test_baseline_take();
    int64_t failed = 0, n = 1;
    for (bool again = true; again; n += every) {
        weft_scope sc = weft_scope_begin();
        weft_clear_error();
        wf_alloc_fail_after(n, forever);
        weft_status status = run(program, &o);
        again = forever ? status != WEFT_OK : met(n);
        wf_alloc_fail_after(0, 0);
        failed += status != WEFT_OK;
        cr_assert(status == WEFT_OK || status == WEFT_ENOMEM, "allocation %lld: %s: %s",
                  (long long)n, weft_status_name(status), weft_last_error());
        cr_assert(status == WEFT_OK || strlen(weft_last_error()) > 10, "allocation %lld",
                  (long long)n);
        for (int i = 0; status == WEFT_OK && i < right.n; i++) {
            cr_assert_eq(o.value[i], right.value[i], "allocation %lld: value %d is %g, not %g",
                         (long long)n, i, o.value[i], right.value[i]);
        }
        weft_scope_end(sc);
        char what[64];
        snprintf(what, sizeof what, "after the failure of allocation %lld", (long long)n);
        check_baseline(what, &before);
        if (n % 16 == 0) {
            cr_assert_eq(run(program, &o), WEFT_OK, "after allocation %lld: %s", (long long)n,
                         weft_last_error());
            cr_assert_eq(memcmp(&o, &right, sizeof o), 0, "after allocation %lld", (long long)n);
        }
    }
    cr_assert_gt(n, 90, "only %lld allocations", (long long)n);
    cr_assert_gt(failed, 60, "only %lld failures", (long long)failed);
    weft_scope_end(outer);
}

Test(alloc_failure, one)
{
    check_failures(op_program, false, 1);
}

Test(alloc_failure, all_after)
{
    check_failures(op_program, true, 1);
}

Test(alloc_failure, composed_one)
{
    check_failures(composed_program, false, 1);
}

Test(alloc_failure, composed_all_after)
{
    check_failures(composed_program, true, 1);
}

Test(alloc_failure, model_one)
{
    check_failures(model_program, false, 1);
}

Test(alloc_failure, model_all_after)
{
    check_failures(model_program, true, 7);
}

/* A write of all of what lies channels-last takes a node more, which may be the first of a new chunk of the tape. */
Test(alloc_failure, writes_until_the_tape_needs_a_chunk)
{
    enum { WRITES = 2000, ALLOCATIONS = 6 };
    for (int n = 1; n <= ALLOCATIONS; n++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor x = weft_ones(weft_shape(1, 3, 2, 2), WEFT_F32);
        cr_assert_eq(weft_requires_grad_(x, true), WEFT_OK);
        for (int i = 0; i < WRITES; i++) {
            weft_tensor w = weft_channels_last(weft_zeros(weft_shape(1, 3, 2, 2), WEFT_F32));
            if (i % 2) { /* a chunk ends before each of the nodes, and does not die */
                cr_assert(weft_ok(weft_neg(x)));
            }
            cr_assert(weft_is_channels_last(w));
            wf_alloc_fail_after(n, 0);
            const weft_status status = weft_copy_(w, x);
            wf_alloc_fail_after(0, 0);
            cr_assert(status == WEFT_OK || status == WEFT_ENOMEM, "%s", weft_last_error());
        }
        weft_scope_end(sc);
    }
}

/* A gradient that is kept is that of the last value; without memory for its record, there is none. */
Test(alloc_failure, kept_gradients)
{
    enum { ALLOCATIONS = 24 };
    weft_tensor x = weft_ones(weft_shape(2), WEFT_F32);
    int lost = 0, kept = 0;
    cr_assert_eq(weft_requires_grad_(x, true), WEFT_OK);
    for (int n = 1; n <= ALLOCATIONS; n++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor y = weft_mul(x, weft_f(3)), head = weft_narrow(y, 0, 0, 1);
        cr_assert_eq(weft_retain_grad(y), WEFT_OK);
        wf_alloc_fail_after(n, 0);
        const weft_status status = weft_mul_(head, weft_f(5));
        wf_alloc_fail_after(0, 0);
        cr_assert(status == WEFT_OK || status == WEFT_ENOMEM, "%s", weft_last_error());
        cr_assert_eq(weft_backward(weft_sum(head)), WEFT_OK, "%s", weft_last_error());
        double g = 1;
        if (weft_has_grad(y)) {
            cr_assert_eq(weft_item(weft_sum(weft_grad(y)), &g), WEFT_OK);
        }
        cr_assert_eq(g, 1, "allocation %d: %g", n, g);
        kept += weft_has_grad(y);
        lost += !weft_has_grad(y);
        weft_scope_end(sc);
    }
    cr_assert(lost > 0 && kept > lost, "%d kept, %d lost", kept, lost);
}
