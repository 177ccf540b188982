// tests/install/families.cpp -- every family of calls from C++: defaults, options in order, call sites.
//
// The calls are C's, letter for letter, but for options: names there, parameters in the same order here
// (and names in C++20). What fails is printed by line.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <weft/cuda.h>
#include <weft/weft.h>

static int failures;
#define CHECK(condition)                                                                           \
    ((condition) ? (void)0                                                                         \
                 : (void)(failures++, std::printf("%s:%d: %s: %s\n", __FILE__, __LINE__,           \
                                                  #condition, weft_last_error())))

static bool near(weft_tensor t, double want)
{
    return std::fabs(weft_item_f64(t) - want) < 1e-5;
}
static bool has_shape(weft_tensor t, weft_shape want)
{
    weft_shape s = weft_shape_of(t);
    bool same = s.n == want.n;
    for (int i = 0; same && i < s.n; i++) {
        same = s.v[i] == want.v[i];
    }
    return same;
}

static void creation()
{
    CHECK(has_shape(weft_ones(weft_shape(2, 3)), weft_shape(2, 3)));
    CHECK(weft_dtype_of(weft_zeros(weft_shape(2), WEFT_I64)) == WEFT_I64);
    CHECK(weft_numel(weft_arange(0, 5)) == 5 && weft_dtype_of(weft_arange(0, 5)) == WEFT_I64);
    CHECK(near(weft_sum(weft_full(weft_shape(4), 0.5)), 2));
    CHECK(near(weft_sum(weft_eye(3, 3)), 3) && near(weft_sum(weft_linspace(0, 1, 3)), 1.5));
    CHECK(near(weft_scalar(2.5), 2.5) && near(weft_sum(weft_ones_like(weft_eye(2, 2))), 4));
    const float data[] = {1, 2, 3, 4};
    float own[] = {1, 2, 3, 4}, back[4];
    weft_tensor copy = weft_from_data(data, weft_shape(2, 2)), blob = weft_from_blob(own, weft_shape(4));
    CHECK(weft_to_array(copy, back, 4) == WEFT_OK && back[3] == 4);
    own[0] = 7;
    CHECK(near(weft_select(blob, 0, 0), 7) && weft_data(blob) == own);
    const int64_t strides[] = {2};
    weft_tensor locked = weft_from_blob(own, weft_shape(2), WEFT_F32, strides, nullptr, nullptr, true);
    CHECK(near(weft_sum(locked), 10) && weft_zero_(locked) != WEFT_OK);
    weft_manual_seed(1);
    weft_generator g = {1, 0};
    CHECK(weft_ok(weft_rand(weft_shape(3))) && weft_ok(weft_randn(weft_shape(3), WEFT_F64, 0, 2, &g)));
    CHECK(weft_ok(weft_randint(weft_shape(3), 0, 9)) && weft_ok(weft_bernoulli(weft_shape(3))));
    CHECK(near(weft_sum(weft_randperm(4)), 6));
    CHECK(near(weft_sum(weft_multinomial(weft_ones(weft_shape(3)), 3)), 3));
    CHECK(has_shape(weft_multinomial(weft_ones(weft_shape(2, 3)), 5, true), weft_shape(2, 5)));
}

static void array_ops()
{
    weft_tensor x = weft_reshape(weft_arange(0, 6, 1, WEFT_F32), weft_shape(2, 3));
    CHECK(near(weft_sum(x), 15) && has_shape(weft_sum(x, weft_axes(0), true), weft_shape(1, 3)));
    CHECK(near(weft_max(x), 5) && near(weft_min(x), 0) && near(weft_mean(x), 2.5));
    CHECK(near(weft_argmax(x), 5) && near(weft_var(x), 35.0 / 12) && near(weft_norm(x), std::sqrt(55.)));
    CHECK(near(weft_std(x, weft_axes(), false, 1), std::sqrt(3.5)) && near(weft_any(x), 1));
    weft_reduce_args args = {};
    args.x = x;
    CHECK(near(weft_sum(&args), 15) && near(weft_sum(args), 15));
#if __cplusplus >= 202002L
    CHECK(has_shape(weft_sum({.x = x, .keepdim = true}), weft_shape(1, 1)));
#endif
    CHECK(has_shape(weft_flatten(x), weft_shape(6)) && has_shape(weft_flip(x), weft_shape(2, 3)));
    CHECK(has_shape(weft_squeeze(weft_unsqueeze(x, 0)), weft_shape(2, 3)));
    CHECK(near(weft_sum(weft_slice(x, 1, 1)), 12) && near(weft_sum(weft_diagonal(x)), 4));
    CHECK(near(weft_sum(weft_index(x, weft_at(-1), WEFT_ELLIPSIS, weft_span(0, WEFT_OMIT, 2))), 8));
    CHECK(has_shape(weft_index(x, WEFT_EVERY, WEFT_NEW_AXIS), weft_shape(2, 1, 3)));
    CHECK(has_shape(weft_pad(x, weft_shape(0, 1), weft_shape(0, 0)), weft_shape(2, 4)));
    CHECK(has_shape(weft_concat({x, x}), weft_shape(4, 3)));
    CHECK(has_shape(weft_stack(WEFT_LIST(x, x), 1), weft_shape(2, 2, 3)));
    CHECK(near(weft_sum(weft_tril(x)), 0 + 3 + 4) && near(weft_sum(weft_unfold(weft_flatten(x), 0, 2)), 25));
    weft_tensor values, order, parts[2];
    CHECK(weft_sort(x, -1, true, &values, &order) == WEFT_OK && near(weft_select(weft_select(values, 0, 0), 0, 0), 2));
    CHECK(weft_topk(x, 1, -1, false, &values) == WEFT_OK && near(weft_sum(values), 7));
    CHECK(weft_chunk(x, 0, 2, parts) == WEFT_OK && near(weft_sum(parts[1]), 12));
    CHECK(has_shape(weft_argsort(x), weft_shape(2, 3)));
    CHECK(has_shape(weft_one_hot(weft_arange(0, 3), 3), weft_shape(3, 3)));
    CHECK(weft_add_(x, weft_f(1)) == WEFT_OK && near(weft_sum(x), 21));
    CHECK(near(weft_sum(weft_where(weft_greater(x, weft_f(3)), x, weft_i(0))), 15));
}

static void layers_and_losses()
{
    weft_tensor x = weft_ones(weft_shape(2, 3)), y = weft_softmax(x, -1);
    CHECK(near(weft_mse_loss(x, y), 4.0 / 9) && near(weft_l1_loss(x, y, WEFT_REDUCE_SUM), 4));
    CHECK(near(weft_huber_loss(x, y), 2.0 / 9) && near(weft_sum(weft_layer_norm(x)), 0));
    CHECK(near(weft_sum(weft_rms_norm(x)), 6) && near(weft_sum(weft_linear(x, x)), 12));
    CHECK(near(weft_cross_entropy(x, weft_arange(0, 2)), std::log(3.0)));
    CHECK(near(weft_nll_loss(weft_log_softmax(x, -1), weft_arange(0, 2)), std::log(3.0)));
    CHECK(near(weft_kl_div(x, y, WEFT_REDUCE_MEAN, 0, weft_f(0)), 0));
    CHECK(near(weft_bce_with_logits(x, y), -1.0 / 3 + std::log1p(std::exp(1.0))));
    CHECK(weft_ok(weft_binary_cross_entropy(y, y)) && near(weft_sum(weft_dropout(x, 0.5, false)), 6));
    weft_tensor image = weft_ones(weft_shape(1, 1, 4, 4));
    CHECK(has_shape(weft_conv2d(image, weft_ones(weft_shape(1, 1, 2, 2))), weft_shape(1, 1, 3, 3)));
    weft_tensor at = weft_arange(0, 2);
    CHECK(near(weft_sum(weft_index_get(x, {at, at})), 2) && near(weft_sum(weft_index_put(x, {at}, weft_i(5))), 30));
    CHECK(near(weft_einsum("ij,ij->", x, x), 6) && near(weft_sum(weft_einsum("ij->ji", x)), 6));
    CHECK(has_shape(weft_conv1d(weft_ones(weft_shape(1, 1, 4)), weft_ones(weft_shape(2, 1, 2))), weft_shape(1, 2, 3)));
    CHECK(has_shape(weft_conv_transpose1d(weft_ones(weft_shape(1, 1, 4)), weft_ones(weft_shape(1, 2, 2))), weft_shape(1, 2, 5)));
    CHECK(has_shape(weft_conv_transpose2d(image, image, WEFT_NONE, weft_shape(2)), weft_shape(1, 1, 10, 10)));
    CHECK(near(weft_sum(weft_group_norm(image, 1)), 0) && near(weft_sum(weft_instance_norm(image)), 0));
    CHECK(near(weft_sum(weft_adaptive_avg_pool2d(image, weft_shape(3))), 9));
    CHECK(near(weft_sum(weft_interpolate(image, weft_shape(), 2)), 64));
    CHECK(near(weft_sum(weft_interpolate(image, weft_shape(3, 2), 0, WEFT_LINEAR, true)), 6));
    CHECK(near(weft_sum(weft_pad_mode(x, weft_shape(0, 1), weft_shape(0, 0))), 8));
    weft_tensor where;
    CHECK(has_shape(weft_avg_pool2d(image, weft_shape(2)), weft_shape(1, 1, 2, 2)));
    CHECK(weft_ok(weft_max_pool2d(image, weft_shape(2), weft_shape(), weft_shape(), weft_shape(), false, false,
                                  &where)) && weft_ok(where));
    CHECK(weft_ok(weft_batch_norm(image, WEFT_NONE, WEFT_NONE, WEFT_NONE, WEFT_NONE, true)));
    weft_tensor q = weft_ones(weft_shape(1, 2, 4));
    CHECK(near(weft_sum(weft_scaled_dot_product_attention(q, q, q)), 8));
}

static weft_tensor twice(void *, weft_tensor g)
{
    return weft_mul(g, weft_i(2));
}
static weft_status square(void *, const weft_tensor *in, int, weft_tensor *out, int)
{
    return weft_error_status(out[0] = weft_square(in[0]));
}
static void gradients()
{
    weft_tensor x = weft_full(weft_shape(2), 3, WEFT_F64);
    CHECK(weft_requires_grad_(x) == WEFT_OK);
    CHECK(weft_backward(weft_sum(weft_square(x))) == WEFT_OK && near(weft_sum(weft_grad(x)), 12));
    CHECK(weft_set_grad(x, WEFT_NONE) == WEFT_OK && weft_register_hook(x, twice) > 0);
    weft_tensor y = weft_square(x);
    CHECK(weft_backward(y, weft_ones_like(y), true) == WEFT_OK && near(weft_sum(weft_grad(x)), 24));
    weft_tensor z = weft_full(weft_shape(2), 3, WEFT_F64), ones = weft_ones_like(z), dz, tangent;
    weft_requires_grad_(z);
    y = weft_square(z);
    CHECK(weft_grad_of(&y, 1, &z, 1, &dz, &ones, true) == WEFT_OK && near(weft_sum(dz), 12));
    CHECK(weft_jvp(&y, 1, &z, 1, &ones, &tangent) == WEFT_OK && near(weft_sum(tangent), 12));
    CHECK(weft_remat(square, nullptr, &z, 1, &y, 1) == WEFT_OK && weft_backward(weft_sum(y)) == WEFT_OK);
    CHECK(weft_gradcheck(square, nullptr, &z, 1, 1) == WEFT_OK);
    CHECK(weft_gradgradcheck(square, nullptr, &z, 1, 1) == WEFT_OK);
}

static void modules()
{
    weft_module *m = weft_module_new();
    weft_nn_linear linear;
    weft_nn_embedding embedding;
    weft_nn_norm norm, rms;
    weft_nn_conv2d conv;
    weft_nn_conv2d line;
    weft_nn_conv_transpose back, back_line;
    weft_nn_norm instance;
    weft_nn_group_norm group;
    weft_nn_batch_norm2d batch;
    weft_nn_attention attention;
    weft_nn_dropout dropout;
    CHECK(weft_nn_linear_init(&linear, m, "linear", 4, 4) == WEFT_OK);
    CHECK(weft_nn_embedding_init(&embedding, m, "embedding", 5, 4) == WEFT_OK);
    CHECK(weft_nn_layer_norm_init(&norm, m, "norm", 4) == WEFT_OK);
    CHECK(weft_nn_rms_norm_init(&rms, m, "rms", 4) == WEFT_OK);
    CHECK(weft_nn_conv2d_init(&conv, m, "conv", 1, 2, 3, 1, 1) == WEFT_OK);
    CHECK(weft_nn_conv1d_init(&line, m, "line", 1, 2, 3, 1, 1) == WEFT_OK);
    CHECK(weft_nn_conv_transpose2d_init(&back, m, "back", 2, 1, 2, 2) == WEFT_OK);
    CHECK(weft_nn_conv_transpose1d_init(&back_line, m, "back_line", 2, 1, 2, 2) == WEFT_OK);
    CHECK(weft_nn_instance_norm_init(&instance, m, "instance", 2) == WEFT_OK);
    CHECK(weft_nn_group_norm_init(&group, m, "group", 2, 2) == WEFT_OK);
    CHECK(weft_nn_batch_norm2d_init(&batch, m, "batch", 2) == WEFT_OK);
    CHECK(weft_nn_attention_init(&attention, m, "attention", 4, 2, true) == WEFT_OK);
    CHECK(weft_nn_dropout_init(&dropout, m, 0.1) == WEFT_OK);
    CHECK(weft_init_normal(linear.weight, 0, 0.02) == WEFT_OK);
    weft_tensor x = weft_nn_embedding_forward(&embedding, weft_reshape(weft_arange(0, 4), weft_shape(1, 4)));
    x = weft_nn_attention_forward(&attention, weft_nn_layer_norm_forward(&norm, x));
    x = weft_nn_dropout_forward(&dropout, weft_nn_linear_forward(&linear, weft_nn_rms_norm_forward(&rms, x)));
    weft_optim *sgd = weft_sgd_new(m, 0.1), *adamw = weft_adamw_new(m);
    CHECK(sgd && adamw && weft_backward(weft_mean(weft_square(x))) == WEFT_OK);
    CHECK(weft_module_clip_grad_norm(m, 1.0) == WEFT_OK && weft_optim_step(sgd) == WEFT_OK);
    CHECK(weft_module_clip_grad_value(m, 1.0) == WEFT_OK && weft_module_lerp(m, m, 0.5) == WEFT_OK);
    CHECK(weft_init_orthogonal(linear.weight, 1.0) == WEFT_OK);
    CHECK(weft_ok(weft_nn_batch_norm2d_forward(&batch, weft_nn_conv2d_forward(&conv, weft_ones(weft_shape(1, 1, 4, 4))))));
    weft_tensor wide = weft_nn_conv2d_forward(&conv, weft_ones(weft_shape(1, 1, 4, 4)));
    wide = weft_nn_conv_transpose2d_forward(&back, weft_nn_group_norm_forward(&group, wide));
    CHECK(has_shape(wide, weft_shape(1, 1, 8, 8)));
    weft_tensor narrow = weft_nn_conv1d_forward(&line, weft_ones(weft_shape(1, 1, 4)));
    narrow = weft_nn_conv_transpose1d_forward(&back_line, weft_nn_instance_norm_forward(&instance, narrow));
    CHECK(has_shape(narrow, weft_shape(1, 1, 8)));
    char path[256];
    std::snprintf(path, sizeof path, "families-%s.safetensors", weft_version());
    CHECK(weft_checkpoint_save(path, m, adamw) == WEFT_OK && weft_checkpoint_load(path, m, adamw) == WEFT_OK);
    CHECK(weft_safetensors_save(path, weft_module_entries(m), weft_module_count(m)) == WEFT_OK);
    weft_safetensors *f = weft_safetensors_open(path);
    CHECK(weft_safetensors_load(f, weft_module_entries(m), weft_module_count(m)) == WEFT_OK);
    weft_safetensors_close(f);
    std::remove(path);
    void *bytes = nullptr;
    size_t size = 0;
    CHECK(weft_npy_encode(x, &bytes, &size) == WEFT_OK && weft_ok(weft_npy_decode(bytes, size)));
    std::free(bytes);
    weft_nn_recurrent lstm, gru;
    weft_nn_gates cell, gru_cell;
    weft_nn_encoder encoder;
    CHECK(weft_nn_lstm_init(&lstm, m, "lstm", 4, 3, 2, true) == WEFT_OK && weft_nn_gru_init(&gru, m, "gru", 4, 3) == WEFT_OK);
    CHECK(weft_nn_lstm_cell_init(&cell, m, "cell", 4, 3) == WEFT_OK);
    CHECK(weft_nn_gru_cell_init(&gru_cell, m, "gru_cell", 4, 3) == WEFT_OK);
    CHECK(weft_nn_encoder_init(&encoder, m, "encoder", 4, 2, 8, 0.1, true) == WEFT_OK);
    weft_tensor steps = weft_ones(weft_shape(5, 2, 4)), h = WEFT_NONE, c = WEFT_NONE, row = weft_select(steps, 0, 0);
    CHECK(has_shape(weft_nn_lstm_forward(&lstm, steps, &h, &c), weft_shape(5, 2, 6)) && has_shape(c, weft_shape(4, 2, 3)));
    CHECK(has_shape(weft_nn_gru_forward(&gru, steps), weft_shape(5, 2, 3)));
    CHECK(weft_ok(weft_nn_lstm_cell_forward(&cell, row, WEFT_NONE, &(c = WEFT_NONE))));
    CHECK(weft_ok(weft_nn_gru_cell_forward(&gru_cell, row, WEFT_NONE)));
    CHECK(weft_ok(weft_nn_encoder_forward(&encoder, steps)) && weft_ok(weft_nn_attention_attend(&attention, steps, steps)));
    static weft_nn_gpt gpt;
    CHECK(weft_nn_gpt_init(&gpt, m, "gpt", 5, 4, 2, 1, 3, 0.1, true) == WEFT_OK);
    CHECK(has_shape(weft_nn_gpt_forward(&gpt, weft_zeros(weft_shape(2, 3), WEFT_I64)), weft_shape(2, 3, 5)));
    weft_optim *others[] = {weft_adam_new(m, 1e-3), weft_rmsprop_new(m), weft_adagrad_new(m), weft_lion_new(m, 1e-4)};
    CHECK(weft_optim_group(others[0], "*.bias", 0.5, WEFT_ZERO) == WEFT_OK);
    for (weft_optim *o : others) {
        CHECK(o && weft_optim_step(o) == WEFT_OK);
        weft_optim_free(o);
    }
    weft_optim_free(sgd);
    weft_optim_free(adamw);
    weft_module_free(m);
}

static void traces()
{
    weft_tensor x = weft_full(weft_shape(3), 2), y = WEFT_NONE;
    weft_jit *j = weft_jit_trace(square), *frozen = weft_jit_trace(square, nullptr, "f", true, true);
    CHECK(weft_jit_call(j, &x, 1, &y, 1) == WEFT_OK && near(weft_sum(y), 12));
    CHECK(weft_jit_call(frozen, &x, 1, &y, 1) == WEFT_OK && near(weft_sum(y), 12));
    weft_jit_free(j);
    weft_jit_free(frozen);
    weft_graph *g = weft_jit_graph(square, nullptr, &x, 1);
    CHECK(g && weft_graph_run(g, &x, 1, &y, 1) == WEFT_OK && near(weft_sum(y), 12));
    weft_graph_free(g);
    CHECK(weft_profile_begin("no/such/folder/trace.json") == WEFT_EIO);
    CHECK(weft_synchronize(WEFT_CPU) == WEFT_OK);
}

/* A result says where it was made, an error where it arose. */
static void sites()
{
    char here[64];
    weft_tensor x = weft_ones(weft_shape(2, 3)), s = weft_sum(x, weft_axes(0));
    std::snprintf(here, sizeof here, "families.cpp:%d", __LINE__ - 1);
    CHECK(std::strstr(weft_site(x), here) && std::strstr(weft_site(s), here));
    weft_tensor wrong = weft_matmul(x, x);
    std::snprintf(here, sizeof here, "[at %s:%d]", __FILE__, __LINE__ - 1);
    CHECK(weft_error_status(wrong) == WEFT_ESHAPE && std::strstr(weft_error_text(wrong), here));
    weft_status status = weft_backward(x);
    std::snprintf(here, sizeof here, "families.cpp:%d", __LINE__ - 1);
    CHECK(status == WEFT_EGRAD && std::strstr(weft_last_error(), here));
    CHECK(std::strcmp(weft_site((weft_add)(x, x)), "") == 0); /* the bare function */
    // calls that return no tensor: a pointer, a number, an enum, a status
    weft_module *m = weft_module_new();
    weft_optim *o = weft_adam_new(m, 0, 2);
    std::snprintf(here, sizeof here, "families.cpp:%d", __LINE__ - 1);
    CHECK(!o && std::strstr(weft_last_error(), here));
    const int64_t d = weft_dim(x, 9);
    std::snprintf(here, sizeof here, "families.cpp:%d", __LINE__ - 1);
    CHECK(d == -1 && std::strstr(weft_last_error(), here));
    const uint64_t hook = weft_register_hook(x, nullptr);
    std::snprintf(here, sizeof here, "families.cpp:%d", __LINE__ - 1);
    CHECK(hook == 0 && std::strstr(weft_last_error(), here));
    status = weft_module_pop(m);
    std::snprintf(here, sizeof here, "families.cpp:%d", __LINE__ - 1);
    CHECK(status == WEFT_EINVALID && std::strstr(weft_last_error(), here));
    const weft_dtype type = weft_dtype_of(WEFT_NONE);
    std::snprintf(here, sizeof here, "families.cpp:%d", __LINE__ - 1);
    CHECK(type == WEFT_DTYPE_DEFAULT && std::strstr(weft_last_error(), here));
    weft_module_free(m);
}

int main()
{
    weft_scope scope = weft_scope_begin();
    creation();
    array_ops();
    layers_and_losses();
    gradients();
    modules();
    traces();
    sites();
    CHECK(weft_scope_end(scope) == WEFT_OK);
    std::printf("C++ %ld: %d failures\n", static_cast<long>(__cplusplus), failures);
    return failures ? 1 : 0;
}
