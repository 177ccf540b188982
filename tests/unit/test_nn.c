/*
 * tests/unit/test_nn.c -- modules, initialisers, clipping, checkpoints.
 *
 * Initialisers are compared with the moments that their formulas state.
 *
 * ctest: threads
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "weft/weft.h"

#define OK(call) cr_assert_eq(call, WEFT_OK, "%s", weft_last_error())

static weft_module *fresh(uint64_t seed)
{
    weft_manual_seed(seed);
    weft_module *m = weft_module_new(NULL);
    cr_assert(m != NULL);
    return m;
}

/* -- registry ----------------------------------------------------------------------------------------- */

Test(nn, names_are_those_of_pytorch)
{
    weft_module *m = fresh(1);
    weft_nn_linear fc;
    weft_nn_norm ln, rms;
    weft_nn_attention attn;
    weft_nn_batch_norm2d bn;
    weft_nn_conv2d conv;
    weft_nn_embedding wte;
    weft_nn_embedding_init(&wte, m, "wte", 10, 8);
    weft_module_push(m, "h.%d", 0);
    weft_nn_layer_norm_init(&ln, m, "ln_1", 8);
    weft_nn_attention_init(&attn, m, "attn", 8, 2, .causal = true);
    weft_module_pop(m);
    weft_nn_rms_norm_init(&rms, m, "rms", 8);
    weft_nn_conv2d_init(&conv, m, "conv", 3, 4, 5, .padding = 2);
    weft_nn_batch_norm2d_init(&bn, m, "bn", 4);
    weft_nn_linear_init(&fc, m, "fc", 8, 3, .no_bias = true);
    cr_assert_eq(weft_module_status(m), WEFT_OK, "%s", weft_last_error());
    static const char *const names[] = {"wte.weight",
                                        "h.0.ln_1.weight",
                                        "h.0.ln_1.bias",
                                        "h.0.attn.in_proj_weight",
                                        "h.0.attn.in_proj_bias",
                                        "h.0.attn.out_proj.weight",
                                        "h.0.attn.out_proj.bias",
                                        "rms.weight",
                                        "conv.weight",
                                        "conv.bias",
                                        "bn.weight",
                                        "bn.bias",
                                        "bn.running_mean",
                                        "bn.running_var",
                                        "bn.num_batches_tracked",
                                        "fc.weight"};
    cr_assert_eq(weft_module_count(m), (int)(sizeof names / sizeof *names));
    for (int i = 0; i < weft_module_count(m); i++) {
        cr_assert_str_eq(weft_module_at(m, i).name, names[i]);
        cr_assert_eq(weft_module_is_parameter(m, i), i < 12 || i > 14);
        cr_assert_eq(weft_requires_grad(weft_module_at(m, i).tensor), i < 12 || i > 14);
    }
    cr_assert_eq(weft_module_numel(m), 80 + 16 + 192 + 24 + 64 + 8 + 8 + 300 + 4 + 8 + 24);
    cr_assert_eq(weft_module_get(m, "fc.weight").serial, fc.weight.serial);
    cr_assert_eq(weft_error_status(weft_module_get(m, "none")), WEFT_EINVALID);
    weft_module_free(m);
    cr_assert_not(weft_ok(fc.weight), "parameters go with their module");
    weft_memory_stats stats;
    weft_memory_get_stats(&stats);
    cr_assert_eq(stats.kept_tensors, 0);
}

Test(nn, the_first_failure_is_remembered)
{
    weft_module *m = fresh(1);
    weft_nn_linear a, b, c, d;
    cr_assert_eq(weft_nn_linear_init(&a, m, "fc", 2, 2), WEFT_OK);
    cr_assert_eq(weft_nn_linear_init(&b, m, "fc", 2, 2), WEFT_EINVALID);
    cr_assert_not(weft_ok(b.weight));
    cr_assert_not(weft_ok(weft_nn_linear_forward(&b, weft_ones(weft_shape(1, 2), WEFT_F32))));
    cr_assert_eq(weft_nn_linear_init(&c, m, "bad", 0, 2), WEFT_ESHAPE, "its own, with its text");
    cr_assert(strstr(weft_last_error(), "'bad': in is 0"), "%s", weft_last_error());
    cr_assert_eq(weft_nn_linear_init(&d, m, "good", 2, 2), WEFT_OK, "the next one is sound");
    cr_assert_eq(weft_module_status(m), WEFT_EINVALID);
    cr_assert_null(weft_adamw_new(m));
    cr_assert(strstr(weft_last_error(), "adamw_new") && strstr(weft_last_error(), "'fc.weight' is"),
              "it says what failed first: %s", weft_last_error());
    cr_assert_eq(weft_module_count(m), 4);
    weft_module_free(m);
    weft_module_free(NULL);
    cr_assert_eq(weft_module_pop(NULL), WEFT_EINVALID);
    m = fresh(1);
    cr_assert_eq(weft_module_pop(m), WEFT_EINVALID);
    for (int i = 0; i < 16; i++) {
        cr_assert_eq(weft_module_push(m, "a"), WEFT_OK);
    }
    cr_assert_eq(weft_module_push(m, "a"), WEFT_EINVALID);
    cr_assert_eq(weft_module_push(m, "%600d", 1), WEFT_EINVALID);
    cr_assert_neq(weft_nn_linear_init(NULL, m, "x", 1, 1), WEFT_OK);
    cr_assert_neq(weft_nn_linear_init(&a, NULL, "x", 1, 1), WEFT_OK);
    cr_assert_neq((weft_nn_linear_init)(NULL), WEFT_OK);
    cr_assert_not(weft_ok(weft_module_parameter(m, "i", weft_ones(weft_shape(2), WEFT_I32))));
    weft_module_free(m);
}

/* A layer that was never made right gives its init's error, not the result of an op without its parameters. */
#define GIVEN(...) __VA_ARGS__
#define REFUSED(kind, text, x, ...)                                                                \
    do {                                                                                           \
        weft_nn_##kind##_init(__VA_ARGS__);                                                        \
        cr_assert(strstr(weft_last_error(), text), "%s", weft_last_error());                       \
        cr_assert(strstr(weft_last_error(), "nn_" #kind "_init"), "%s", weft_last_error());        \
        cr_assert(strstr(weft_last_error(), "[at "), "%s", weft_last_error());                     \
        weft_reshape(weft_ones(weft_shape(3), WEFT_F32), weft_shape(5)); /* another error */       \
        check_refused(#kind, text, weft_nn_##kind##_forward(&layer.kind, x));                      \
    } while (0)

static void check_refused(const char *kind, const char *text, weft_tensor y)
{
    cr_assert_eq(y.slot, 0, "%s", kind);
    cr_assert(strstr(weft_error_text(y), text), "%s: %s", kind, weft_error_text(y));
    cr_assert(strstr(weft_last_error(), text), "%s: %s", kind, weft_last_error());
}

Test(nn, layers_whose_init_failed_give_its_error)
{
    static union {
        weft_nn_linear linear;
        weft_nn_embedding embedding;
        weft_nn_norm layer_norm, rms_norm, instance_norm;
        weft_nn_group_norm group_norm;
        weft_nn_conv2d conv1d, conv2d;
        weft_nn_conv_transpose conv_transpose1d, conv_transpose2d;
        weft_nn_batch_norm2d batch_norm2d;
        weft_nn_attention attention;
        weft_nn_encoder encoder;
        weft_nn_gates gru_cell;
        weft_nn_recurrent lstm, gru;
    } layer;
    weft_module *m = fresh(1);
    const weft_tensor row = weft_ones(weft_shape(2, 6), WEFT_F32),
                      image = weft_ones(weft_shape(2, 6, 4, 4), WEFT_F32),
                      line = weft_ones(weft_shape(2, 6, 4), WEFT_F32),
                      words = weft_ones(weft_shape(2, 3, 6), WEFT_F32);
    REFUSED(group_norm, "dim is 6 and groups is 4; dim must be a multiple of groups", image,
            &layer.group_norm, m, "gn", 4, 6);
    REFUSED(linear, "nn_linear_init 'fc': in is 0; it must be at least 1", row, &layer.linear, m,
            "fc", 0, 6);
    REFUSED(conv2d, "in is 6 and groups is 4; in must be a multiple of groups", image,
            &layer.conv2d, m, "cv", 6, 6, 3, .groups = 4);
    REFUSED(attention,
            "nn_attention_init 'at': dim is 6 and heads is 4; dim must be a multiple of heads",
            words, &layer.attention, m, "at", 6, 4);
    REFUSED(encoder, "nn_encoder_init 'en.self_attn': dim is 6 and heads is 4",
            GIVEN(words, WEFT_NONE), &layer.encoder, m, "en", 6, 4);
    REFUSED(encoder, "nn_encoder_init 'e2': dropout is 7; it must be in [0, 1]",
            GIVEN(words, WEFT_NONE), &layer.encoder, m, "e2", 6, 2, .dropout = 7);
    REFUSED(lstm, "layers is 9; it must be 1 to 8", GIVEN(words, NULL, NULL), &layer.lstm, m, "ls",
            6, 6, .layers = 9);
    /* names that are taken, prefixes that are refused and modules that are missing */
    char text[600];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 0;
    weft_tensor h = row;
#define EACH(name, why, m)                                                                         \
    REFUSED(linear, why, row, &layer.linear, m, name, 6, 6);                                       \
    REFUSED(embedding, why, weft_zeros(weft_shape(2), WEFT_I64), &layer.embedding, m, name, 6, 6); \
    REFUSED(layer_norm, why, row, &layer.layer_norm, m, name, 6);                                  \
    REFUSED(rms_norm, why, row, &layer.rms_norm, m, name, 6);                                      \
    REFUSED(instance_norm, why, image, &layer.instance_norm, m, name, 6);                          \
    REFUSED(group_norm, why, image, &layer.group_norm, m, name, 2, 6);                             \
    REFUSED(conv1d, why, line, &layer.conv1d, m, name, 6, 6, 3);                                   \
    REFUSED(conv2d, why, image, &layer.conv2d, m, name, 6, 6, 3);                                  \
    REFUSED(conv_transpose1d, why, line, &layer.conv_transpose1d, m, name, 6, 6, 3);               \
    REFUSED(conv_transpose2d, why, image, &layer.conv_transpose2d, m, name, 6, 6, 3);              \
    REFUSED(batch_norm2d, why, image, &layer.batch_norm2d, m, name, 6)
    OK(weft_nn_linear_init(&layer.linear, m, "taken", 6, 6));
    EACH("taken", "'taken.weight' is registered already: f32[6,6] 'taken.weight' (made at ", m);
    EACH(text, "it may be 510", m);
    EACH("x", "_init 'x': the module is NULL", NULL);
#undef EACH
    REFUSED(attention, "it may be 510", words, &layer.attention, m, text, 6, 2);
    REFUSED(encoder, "it may be 510", GIVEN(words, WEFT_NONE), &layer.encoder, m, text, 6, 2);
    REFUSED(lstm, "it may be 510", GIVEN(words, NULL, NULL), &layer.lstm, m, text, 6, 6);
    REFUSED(gru, "it may be 510", GIVEN(words, NULL), &layer.gru, m, text, 6, 6);
    weft_nn_gru_cell_init(&layer.gru_cell, m, text, 6, 6);
    check_refused("gru_cell", "it may be 510", weft_nn_gru_cell_forward(&layer.gru_cell, row, row));
    weft_nn_lstm_cell_init(&layer.gru_cell, m, text, 6, 6);
    check_refused("lstm_cell", "it may be 510",
                  weft_nn_lstm_cell_forward(&layer.gru_cell, row, row, &h));
    check_refused("lstm_cell's c", "it may be 510", h);
    weft_nn_dropout dropout;
    cr_assert_eq(weft_nn_dropout_init(&dropout, m, 2), WEFT_EINVALID);
    cr_assert(strstr(weft_last_error(), "p is 2; it must be in [0, 1]"), "%s", weft_last_error());
    cr_assert_eq(weft_nn_dropout_forward(&dropout, row).slot, 0);
    weft_module_train(m, false);
    cr_assert_eq(weft_nn_dropout_forward(&dropout, row).slot, 0, "at rest, too");
    cr_assert_eq(weft_nn_dropout_init(&dropout, NULL, 0.5), WEFT_EINVALID);
    cr_assert_eq(weft_nn_dropout_forward(&dropout, row).slot, 0);
    weft_module_free(m);
}

/* The first thing that goes wrong is what the error tells of, and nothing is registered after it. */
Test(nn, an_init_stops_at_its_first_failure)
{
    static weft_nn_attention attention;
    static weft_nn_encoder encoder;
    static weft_nn_recurrent lstm;
    weft_module *m = fresh(1);
    weft_nn_linear linear;
    weft_nn_conv2d conv;
    weft_nn_norm norm;
    weft_nn_batch_norm2d batch;
    const weft_tensor row = weft_ones(weft_shape(2, 6), WEFT_F32);
#define FIRST(status, text, call)                                                                  \
    do {                                                                                           \
        const int had = weft_module_count(m);                                                      \
        cr_assert_eq((call), status, "%s", weft_last_error());                                     \
        cr_assert(strstr(weft_last_error(), text), "%s", weft_last_error());                       \
        cr_assert_eq(weft_module_count(m), had, "%s", #call);                                      \
    } while (0)
#define INT ": dtype is i32; parameters are f16, bf16, f32 or f64"
#define BIG ", whose size overflows 64 bits"
    const int64_t big = INT64_C(1) << 40;
    FIRST(WEFT_EDTYPE, "nn_linear_init 'a'" INT,
          weft_nn_linear_init(&linear, m, "a", 6, 6, .dtype = WEFT_I32));
    FIRST(WEFT_EDTYPE, "nn_conv2d_init 'a'" INT,
          weft_nn_conv2d_init(&conv, m, "a", 6, 6, 3, .dtype = WEFT_I32));
    FIRST(WEFT_EDTYPE, "nn_layer_norm_init 'a'" INT,
          weft_nn_layer_norm_init(&norm, m, "a", 6, .dtype = WEFT_I32));
    FIRST(WEFT_EDTYPE, "nn_batch_norm2d_init 'a'" INT,
          weft_nn_batch_norm2d_init(&batch, m, "a", 6, .dtype = WEFT_I32));
    FIRST(WEFT_EDTYPE, "nn_attention_init 'a'" INT,
          weft_nn_attention_init(&attention, m, "a", 6, 2, .dtype = WEFT_I32));
    FIRST(WEFT_EDTYPE, "nn_encoder_init 'a.self_attn'" INT,
          weft_nn_encoder_init(&encoder, m, "a", 6, 2, .dtype = WEFT_I32));
    FIRST(WEFT_EDTYPE, "nn_lstm_init 'a'" INT,
          weft_nn_lstm_init(&lstm, m, "a", 6, 2, .dtype = WEFT_I32));
    FIRST(WEFT_ENOMEM, "nn_linear_init 'b': weight would be f32[1099511627776,1099511627776]" BIG,
          weft_nn_linear_init(&linear, m, "b", big, big));
    weft_reshape(row, weft_shape(5));
    cr_assert_not(weft_ok(weft_nn_linear_forward(&linear, row)));
    cr_assert(strstr(weft_last_error(), "weight would be") && strstr(weft_last_error(), BIG), "%s",
              weft_last_error());
    const weft_shape bare = {.bare_number = (const void *)(intptr_t)3};
    FIRST(WEFT_EINVALID, "nn_conv2d_init 'b': a bare number stands where the kernels belong",
          weft_nn_conv2d_init(&conv, m, "b", 6, 6, .kernels = bare));
    OK(weft_nn_conv2d_init(&conv, m, "stride", 6, 6, 3, .strides = bare));
    const weft_tensor image = weft_ones(weft_shape(1, 6, 4, 4), WEFT_F32);
    cr_assert_eq(weft_error_status(weft_nn_conv2d_forward(&conv, image)), WEFT_EINVALID);
    cr_assert(strstr(weft_last_error(), "a bare number stands where the stride belongs"), "%s",
              weft_last_error());
    FIRST(WEFT_ENOMEM, "nn_conv2d_init 'b': weight would be",
          weft_nn_conv2d_init(&conv, m, "b", big, big, 3));
    FIRST(WEFT_ENOMEM, "nn_lstm_init 'b': weight_ih_l0 would be",
          weft_nn_lstm_init(&lstm, m, "b", big, big));
    FIRST(WEFT_ESHAPE, "nn_layer_norm_init 'b': dim is -1; it must be at least 0",
          weft_nn_layer_norm_init(&norm, m, "b", -1));
    FIRST(WEFT_ESHAPE, "nn_batch_norm2d_init 'b': dim is -6; it must be at least 0",
          weft_nn_batch_norm2d_init(&batch, m, "b", -6));
    OK(weft_nn_linear_init(&linear, m, "c.out_proj", 6, 6));
    OK(weft_nn_linear_init(&linear, m, "c.linear1", 6, 6));
    OK(weft_nn_linear_init(&linear, m, "d", 6, 6, .no_bias = true));
    FIRST(WEFT_EINVALID,
          "nn_linear_init 'd': 'd.weight' is registered already: f32[6,6] 'd.weight'",
          weft_nn_linear_init(&linear, m, "d", 6, 6));
    cr_assert_eq(weft_nn_encoder_init(&encoder, m, "c", 6, 2), WEFT_EINVALID);
    cr_assert(strstr(weft_last_error(), "nn_encoder_init 'c.linear1': 'c.linear1.weight'"), "%s",
              weft_last_error());
    cr_assert_not(weft_ok(weft_nn_layer_norm_forward(&encoder.norm1, row)));
    cr_assert(strstr(weft_last_error(), "'c.linear1.weight'"), "%s", weft_last_error());
    weft_module_free(m);
}
#undef FIRST
#undef INT
#undef BIG

/* One rule a message, which names the argument and its value. */
Test(nn, messages_name_argument_and_value)
{
    weft_module *m = fresh(1);
    weft_nn_linear l;
    OK(weft_nn_linear_init(&l, m, "l", 2, 2));
#define SAYS(call, text)                                                                           \
    do {                                                                                           \
        weft_clear_error();                                                                        \
        (void)(call);                                                                              \
        cr_assert(strstr(weft_last_error(), text), "%s: %s", #call, weft_last_error());            \
    } while (0)
    SAYS(weft_module_clip_grad_norm(m, -1, NULL),
         "clip_grad_norm: max_norm is -1; it must be above 0");
    SAYS(weft_module_clip_grad_norm(NULL, 1, NULL), "clip_grad_norm: the module is NULL");
    SAYS(weft_module_push(NULL, "a"), "module_push: the module is NULL");
    SAYS(weft_module_push(m, NULL), "module_push: the format is NULL");
    SAYS(weft_module_pop(NULL), "module_pop: the module is NULL");
    SAYS(weft_module_get(NULL, "a"), "module_get: the module is NULL");
    SAYS(weft_module_to(NULL, WEFT_CPU), "module_to: the module is NULL");
    SAYS(weft_module_to(m, ((weft_device){7, 0})), "kind 7, index 0 is no device");
    SAYS(weft_sgd_new(m, -2), "sgd_new: lr is -2; it must be above 0");
    SAYS(weft_sgd_new(m, 1, .momentum = -1), "sgd_new: momentum is -1; it must be 0 or above");
    SAYS(weft_sgd_new(m, 1, .nesterov = true), "sgd_new: momentum is 0; it must be above 0");
    SAYS(weft_adam_new(m, .beta1 = 2), "adam_new: beta1 is 2; it must be in [0, 1)");
    SAYS(weft_adamw_new(m, .eps = -1), "adamw_new: eps is -1; it must be 0 or above");
    SAYS(weft_rmsprop_new(m, .alpha = 1), "rmsprop_new: alpha is 1; it must be in [0, 1)");
    SAYS(weft_adagrad_new(m, .lr_decay = -1), "adagrad_new: lr_decay is -1; it must be 0 or above");
    SAYS(weft_lion_new(m, .beta2 = -1), "lion_new: beta2 is -1; it must be in [0, 1)");
    SAYS(weft_optim_set_lr(NULL, 1), "optim_set_lr: the optimiser is NULL");
#undef SAYS
    weft_module_free(m);
}

#undef REFUSED
#undef GIVEN

/* A value belongs to the module from the call on, if there is one. */
Test(nn, values_that_are_not_registered)
{
    weft_module *m = weft_module_new(NULL);
    weft_tensor dead = weft_ones(weft_shape(3), WEFT_F32), none = WEFT_NONE, e;
    OK(weft_free(dead));
    for (int i = 0; i < 3; i++) {
        const weft_tensor value[] = {dead, none, weft_i(3)};
        weft_clear_error();
        e = weft_module_parameter(m, "w", value[i]);
        cr_assert_eq(e.slot, 0);
        cr_assert(strstr(weft_error_text(e), i == 0   ? "'w' is dead"
                                             : i == 1 ? "'w' is the empty"
                                                      : ""),
                  "%d: %s", i, weft_error_text(e));
        cr_assert_neq(weft_last_status(), WEFT_OK, "%d", i);
        cr_assert_str_eq(weft_last_error(), weft_error_text(e));
    }
    cr_assert_eq(weft_module_status(m), WEFT_EHANDLE);
    weft_tensor w = weft_keep(weft_ones(weft_shape(3), WEFT_F32));
    e = weft_module_parameter(NULL, "w", w);
    cr_assert(strstr(weft_error_text(e), "the module is NULL"), "%s", weft_error_text(e));
    cr_assert(weft_ok(w), "there is no module to take it");
    OK(weft_free(w));
    w = weft_ones(weft_shape(3), WEFT_F32);
    cr_assert_not(weft_ok(weft_module_parameter(m, "", w)));
    cr_assert_not(weft_ok(w), "it was the module's");
    weft_module_free(m);
}

/* An optimiser would step it twice, and the module free it twice. */
Test(nn, a_value_is_registered_once)
{
    weft_module *m = weft_module_new(NULL);
    weft_tensor w = weft_module_parameter(m, "wte", weft_ones(weft_shape(3), WEFT_F32));
    cr_assert_not(weft_ok(weft_module_parameter(m, "head", w)));
    cr_assert(strstr(weft_last_error(), "the value of 'head' is registered already, as 'wte'"),
              "%s", weft_last_error());
    cr_assert_not(weft_ok(weft_module_buffer(m, "wte", w)));
    cr_assert_eq(weft_module_status(m), WEFT_EINVALID);
    cr_assert_eq(weft_module_count(m), 1);
    cr_assert(weft_ok(w), "it stays");
    cr_assert_str_eq(weft_name(w), "wte");
    cr_assert_not(weft_ok(weft_module_parameter(NULL, "w", weft_ones(weft_shape(3), WEFT_F32))));
    weft_module_free(m);
    cr_assert_eq(weft_leak_report(NULL), 0);
}

Test(nn, parameters_are_made_where_their_layer_is)
{
    weft_module *m = fresh(1);
    weft_nn_linear fc;
    weft_nn_attention attn;
    char at[512];
    cr_assert_eq(weft_nn_linear_init(&fc, m, "fc", 2, 3), WEFT_OK);
    snprintf(at, sizeof at, "%s:%d", __FILE__, __LINE__ - 1);
    cr_assert_str_eq(weft_site(fc.weight), at);
    cr_assert_str_eq(weft_site(fc.bias), at);
    cr_assert_eq(weft_nn_attention_init(&attn, m, "attn", 8, 2), WEFT_OK);
    snprintf(at, sizeof at, "%s:%d", __FILE__, __LINE__ - 1);
    cr_assert_str_eq(weft_site(attn.in_weight), at);
    cr_assert_str_eq(weft_site(attn.out.weight), at);
    weft_tensor bad = weft_nn_linear_forward(&fc, weft_ones(weft_shape(1, 5), WEFT_F32));
    cr_assert(strstr(weft_error_text(bad), "'fc.weight' (made at"), "%s", weft_error_text(bad));
    weft_module_free(m);
}

/* -- initialisers -------------------------------------------------------------------------------------- */

typedef struct moments {
    double mean, std, low, high;
} moments;

static moments measure(weft_tensor t)
{
    return (moments){weft_item_f64(weft_mean(t, .dtype = WEFT_F64)),
                     weft_item_f64(weft_std(weft_cast(t, WEFT_F64))), weft_item_f64(weft_min(t)),
                     weft_item_f64(weft_max(t))};
}

/* n = 200 * 100 * 9 = 180000 draws: the mean is within 5 standard errors, std within 1 % (its standard error
 * is std / sqrt(2 n) = 0.17 % for a normal distribution, less for a uniform one). */
static void check_moments(const char *what, weft_tensor t, double mean, double std, double bound)
{
    moments m = measure(t);
    cr_assert_lt(fabs(m.mean - mean), 5 * std / sqrt(180000.0), "%s: mean %g", what, m.mean);
    cr_assert_lt(fabs(m.std / std - 1), 0.01, "%s: std %g, want %g", what, m.std, std);
    cr_assert(m.low >= mean - bound && m.high <= mean + bound, "%s: [%g, %g]", what, m.low, m.high);
    cr_assert(isinf(bound) || m.high > mean + 0.99 * bound, "%s: %g is never near", what, bound);
}

Test(nn, initialisers_have_the_moments_of_their_formulas)
{
    weft_tensor t = weft_zeros(weft_shape(200, 100, 3, 3), WEFT_F32);
    double in = 100 * 9, out = 200 * 9, inf = INFINITY;
    weft_generator g = {42, 0};
    cr_assert_eq(weft_init_uniform(t, 1, 3, &g), WEFT_OK);
    check_moments("uniform", t, 2, 2 / sqrt(12), 1);
    cr_assert_eq(weft_init_normal(t, 3, 0.5, &g), WEFT_OK);
    check_moments("normal", t, 3, 0.5, inf);
    cr_assert_eq(weft_init_xavier_uniform(t, 2, &g), WEFT_OK);
    check_moments("xavier_uniform", t, 0, 2 * sqrt(2 / (in + out)), 2 * sqrt(6 / (in + out)));
    cr_assert_eq(weft_init_xavier_normal(t, 1, &g), WEFT_OK);
    check_moments("xavier_normal", t, 0, sqrt(2 / (in + out)), inf);
    cr_assert_eq(weft_init_kaiming_uniform(t, 0, WEFT_FAN_IN, &g), WEFT_OK);
    check_moments("kaiming_uniform", t, 0, sqrt(2 / in), sqrt(6 / in));
    cr_assert_eq(weft_init_kaiming_normal(t, 0.2, WEFT_FAN_OUT, &g), WEFT_OK);
    check_moments("kaiming_normal", t, 0, sqrt(2 / (1.04 * out)), inf);
    /* The normal distribution cut at 2 standard deviations has std 0.87962566103423978. */
    cr_assert_eq(weft_init_trunc_normal(t, 1, 0.1, 0.8, 1.2, &g), WEFT_OK);
    check_moments("trunc_normal", t, 1, 0.087962566103423978, 0.2000001);
    cr_assert_eq(weft_init_constant(t, 7), WEFT_OK);
    moments m = measure(t);
    cr_assert(m.low == 7 && m.high == 7);
}

/* Rows, or columns, are orthogonal and of length gain; of 4096 rotations of the plane, the angles are spread evenly. */
Test(nn, orthogonal_matrices)
{
    static const int64_t extents[][3] = {{5, 5, 1}, {12, 3, 1}, {3, 2, 4}, {1, 7, 1}, {64, 64, 1}};
    weft_generator g = {3, 0};
    for (size_t k = 0; k < sizeof extents / sizeof *extents; k++) {
        const int64_t *e = extents[k];
        weft_tensor t = weft_zeros(weft_shape(e[0], e[1], e[2]), k % 2 ? WEFT_F64 : WEFT_F32);
        cr_assert_eq(weft_init_orthogonal(t, 2, &g), WEFT_OK, "%s", weft_last_error());
        weft_tensor a = weft_reshape(weft_cast(t, WEFT_F64), weft_shape(e[0], -1));
        a = e[0] < e[1] * e[2] ? weft_transpose(a, 0, 1) : a;
        weft_tensor square = weft_matmul(weft_transpose(a, 0, 1), a);
        weft_tensor off = weft_sub(
            square, weft_mul(weft_eye(weft_dim(a, 1), weft_dim(a, 1), 0, WEFT_F64), weft_f(4)));
        cr_assert_lt(weft_item_f64(weft_max(weft_abs(off))), k % 2 ? 1e-14 : 2e-6);
    }
    int quarter[8] = {0};
    weft_tensor t = weft_zeros(weft_shape(2, 2), WEFT_F64);
    for (int i = 0; i < 4096; i++) {
        double v[4];
        cr_assert_eq(weft_init_orthogonal(t, 1, &g), WEFT_OK);
        cr_assert_eq(weft_to_array(t, v, 4, WEFT_F64), WEFT_OK);
        const bool mirror = v[0] * v[3] - v[1] * v[2] < 0;
        quarter[4 * mirror + 2 * (v[0] > 0) + (v[2] > 0)]++;
    }
    for (int i = 0; i < 8; i++) {
        cr_assert(quarter[i] > 400 && quarter[i] < 624, "%d: %d", i, quarter[i]);
    }
    cr_assert_eq(weft_init_orthogonal(weft_zeros(weft_shape(4), WEFT_F32), 1, NULL), WEFT_ESHAPE);
    cr_assert_eq(weft_init_orthogonal(weft_zeros(weft_shape(0, 3), WEFT_F32), 1, NULL), WEFT_OK);
}

Test(nn, initialisers_refuse_what_has_no_meaning)
{
    weft_tensor v = weft_zeros(weft_shape(4), WEFT_F32), i = weft_zeros(weft_shape(4, 4), WEFT_I32);
    cr_assert_eq(weft_init_xavier_uniform(v, 1, NULL), WEFT_ESHAPE);
    cr_assert_eq(weft_init_kaiming_normal(v, 0, WEFT_FAN_IN, NULL), WEFT_ESHAPE);
    cr_assert_eq(weft_init_normal(i, 0, 1, NULL), WEFT_EDTYPE);
    weft_tensor m = weft_zeros(weft_shape(4, 4), WEFT_F32);
    cr_assert_eq(weft_init_kaiming_normal(m, 0, (weft_fan)7, NULL), WEFT_EINVALID);
    cr_assert_eq(weft_init_kaiming_uniform(m, 0, (weft_fan)-1, NULL), WEFT_EINVALID);
    cr_assert_eq(weft_item_f64(weft_max(weft_abs(m))), 0, "a refused initialiser wrote");
    cr_assert_eq(weft_init_normal(v, 0, -1, NULL), WEFT_EINVALID);
    cr_assert_eq(weft_init_uniform(v, 1, 1, NULL), WEFT_EINVALID);
    cr_assert_eq(weft_init_trunc_normal(v, 0, 1, 5, 6, NULL), WEFT_EINVALID);
    cr_assert_eq(weft_init_trunc_normal(v, 0, 0, -1, 1, NULL), WEFT_EINVALID);
    cr_assert_neq(weft_init_normal(WEFT_NONE, 0, 1, NULL), WEFT_OK);
    cr_assert_eq(weft_init_normal(weft_zeros(weft_shape(0, 3), WEFT_F32), 0, 1, NULL), WEFT_OK);
    cr_assert_eq(
        weft_init_kaiming_uniform(weft_zeros(weft_shape(0, 0), WEFT_F32), 0, WEFT_FAN_IN, NULL),
        WEFT_OK);
    cr_assert_eq(weft_init_normal(v, 0, 0, NULL), WEFT_OK);
    cr_assert_eq(weft_item_f64(weft_sum(weft_abs(v))), 0);
}

/* -- layers ---------------------------------------------------------------------------------------------- */

Test(nn, layers_compute_what_their_ops_do)
{
    weft_module *m = fresh(3);
    weft_nn_attention attn;
    weft_nn_attention_init(&attn, m, "attn", 8, 2, .causal = true);
    weft_tensor x = weft_randn(weft_shape(2, 5, 8));
    weft_tensor y = weft_nn_attention_forward(&attn, x);
    cr_assert(weft_ok(y), "%s", weft_error_text(y));
    /* Head by head with softmax and masks. */
    weft_tensor qkv = weft_linear(x, attn.in_weight, attn.in_bias), heads[2];
    for (int h = 0; h < 2; h++) {
        weft_tensor q = weft_narrow(qkv, 2, 4 * h, 4), k = weft_narrow(qkv, 2, 8 + 4 * h, 4);
        weft_tensor v = weft_narrow(qkv, 2, 16 + 4 * h, 4);
        weft_tensor score = weft_mul(weft_matmul(q, weft_transpose(k, 1, 2)), weft_f(0.5));
        weft_tensor later = weft_triu(weft_ones(weft_shape(5, 5), WEFT_F32), 1);
        score = weft_masked_fill(score, weft_greater(later, weft_f(0)), weft_f(-INFINITY));
        heads[h] = weft_matmul(weft_softmax(score, -1), v);
    }
    weft_tensor want = weft_linear(weft_concat(heads, 2, 2), attn.out.weight, attn.out.bias);
    double error = weft_item_f64(weft_max(weft_abs(weft_sub(y, want))));
    cr_assert_lt(error, 1e-5, "%g", error);
    cr_assert_not(weft_ok(weft_nn_attention_forward(&attn, weft_ones(weft_shape(5, 8), WEFT_F32))));
    cr_assert_not(
        weft_ok(weft_nn_attention_forward(&attn, weft_ones(weft_shape(1, 5, 6), WEFT_F32))));
    cr_assert_not(weft_ok(weft_nn_attention_forward(NULL, x)));

    weft_nn_batch_norm2d bn;
    weft_nn_dropout drop;
    weft_nn_batch_norm2d_init(&bn, m, "bn", 3);
    weft_nn_dropout_init(&drop, m, 0.5);
    weft_tensor image = weft_randn(weft_shape(4, 3, 6, 6), .mean = 2);
    weft_tensor normal = weft_nn_batch_norm2d_forward(&bn, image);
    cr_assert_lt(fabs(weft_item_f64(weft_mean(normal))), 1e-5);
    cr_assert_eq(weft_item_i64(bn.batches), 1);
    cr_assert_gt(weft_item_f64(weft_mean(bn.running_mean)), 0.1);
    weft_tensor ones = weft_ones(weft_shape(1000), WEFT_F32);
    double dropped =
        weft_item_f64(weft_mean(weft_equal(weft_nn_dropout_forward(&drop, ones), weft_f(0))));
    cr_assert(dropped > 0.4 && dropped < 0.6, "%g", dropped);
    weft_module_train(m, false);
    cr_assert_eq(weft_item_f64(weft_sum(weft_nn_dropout_forward(&drop, ones))), 1000);
    weft_nn_batch_norm2d_forward(&bn, image);
    cr_assert_eq(weft_item_i64(bn.batches), 1, "evaluation does not count");
    cr_assert_neq(weft_nn_dropout_init(&drop, m, 1.5), WEFT_OK);
    weft_module_free(m);
}

/* Shapes and first weights of a convolution's layer: uniform in +-1/sqrt(fan). */
static void check_spread(weft_tensor t, weft_shape shape, double fan)
{
    const weft_shape s = weft_shape_of(t);
    cr_assert_eq(s.n, shape.n);
    cr_assert_eq(memcmp(s.v, shape.v, (size_t)s.n * sizeof *s.v), 0);
    const double most = weft_item_f64(weft_max(weft_abs(t))), bound = 1 / sqrt(fan);
    cr_assert(most <= bound && most > 0.9 * bound, "%g of %g", most, bound);
}

/* Weights and names as PyTorch's. */
Test(nn, convolutions_and_norms_of_channels)
{
    weft_module *m = fresh(3);
    weft_nn_conv2d line;
    weft_nn_conv_transpose back, plane;
    weft_nn_group_norm group;
    weft_nn_norm instance;
    weft_nn_conv1d_init(&line, m, "line", 6, 40, 3, .groups = 2, .stride = 2, .padding = 1);
    weft_nn_conv_transpose1d_init(&back, m, "back", 40, 6, 4, .groups = 2, .stride = 2,
                                  .padding = 1);
    weft_nn_conv_transpose2d_init(&plane, m, "plane", 6, 8, 3, .stride = 2, .output_padding = 1,
                                  .no_bias = true);
    weft_nn_group_norm_init(&group, m, "group", 5, 40);
    weft_nn_instance_norm_init(&instance, m, "instance", 6);
    cr_assert_eq(weft_module_status(m), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_module_count(m), 9);
    check_spread(line.weight, weft_shape(40, 3, 3), 9);
    check_spread(line.bias, weft_shape(40), 9);
    check_spread(back.weight, weft_shape(40, 3, 4), 12);
    check_spread(plane.weight, weft_shape(6, 8, 3, 3), 72);
    cr_assert_eq(weft_error_status(weft_module_get(m, "plane.bias")), WEFT_EINVALID);
    cr_assert(weft_ok(weft_module_get(m, "instance.weight")));
    weft_tensor x = weft_randn(weft_shape(2, 6, 10), .mean = 3);
    weft_tensor h = weft_nn_conv1d_forward(&line, weft_nn_instance_norm_forward(&instance, x));
    h = weft_nn_group_norm_forward(&group, h);
    cr_assert_lt(fabs(weft_item_f64(weft_mean(h))), 1e-5);
    weft_tensor y = weft_nn_conv_transpose1d_forward(&back, h);
    cr_assert(weft_ok(y), "%s", weft_error_text(y));
    cr_assert_eq(weft_shape_of(y).v[2], 10);
    y = weft_nn_conv_transpose2d_forward(&plane, weft_ones(weft_shape(1, 6, 3, 4), WEFT_F32));
    cr_assert(weft_shape_of(y).v[2] == 8 && weft_shape_of(y).v[3] == 10);
    weft_backward(weft_add(weft_sum(h), weft_sum(y)));
    cr_assert(weft_has_grad(plane.weight) && weft_has_grad(instance.bias));

    /* kernels, strides and paddings that differ by axis: the op with the same numbers */
    weft_nn_conv2d tall;
    OK(weft_nn_conv2d_init(&tall, m, "tall", 4, 6, .kernels = weft_shape(1, 5), .groups = 2,
                           .strides = weft_shape(1, 2), .paddings = weft_shape(0, 2),
                           .dilations = weft_shape(3, 1)));
    check_spread(tall.weight, weft_shape(6, 2, 1, 5), 10);
    const weft_tensor image = weft_randn(weft_shape(2, 4, 5, 9));
    y = weft_nn_conv2d_forward(&tall, image);
    weft_tensor want = weft_conv2d(image, tall.weight, tall.bias, weft_shape(1, 2),
                                   weft_shape(0, 2), weft_shape(3, 1), 2);
    cr_assert(weft_ok(y) && weft_item_f64(weft_max(weft_abs(weft_sub(y, want)))) == 0, "%s",
              weft_last_error());
    OK(weft_nn_conv_transpose2d_init(&plane, m, "wide", 4, 6, .kernels = weft_shape(3, 2),
                                     .stride = 2, .paddings = weft_shape(1, 0),
                                     .output_paddings = weft_shape(0, 1)));
    check_spread(plane.weight, weft_shape(4, 6, 3, 2), 36);
    y = weft_nn_conv_transpose2d_forward(&plane, image);
    want = weft_conv_transpose2d(image, plane.weight, plane.bias, weft_shape(2), weft_shape(1, 0),
                                 weft_shape(0, 1));
    cr_assert(weft_ok(y) && weft_item_f64(weft_max(weft_abs(weft_sub(y, want)))) == 0, "%s",
              weft_last_error());
    cr_assert(weft_shape_of(y).v[2] == 9 && weft_shape_of(y).v[3] == 19);
    cr_assert_eq(weft_nn_conv2d_init(&tall, m, "t", 4, 6, .kernels = weft_shape(1, 5, 2)),
                 WEFT_ESHAPE);
    cr_assert_eq(weft_nn_conv2d_init(&tall, m, "u", 4, 6, .kernels = weft_shape(1, 0)),
                 WEFT_ESHAPE);
    cr_assert_eq(weft_nn_conv1d_init(&line, m, "v", 4, 6, .kernels = weft_shape(1, 3)),
                 WEFT_ESHAPE);
    cr_assert(strstr(weft_last_error(), "one an axis"), "%s", weft_last_error());

    cr_assert_eq(weft_nn_conv1d_init(&line, m, "a", 4, 3, 3, .groups = 2), WEFT_ESHAPE);
    cr_assert(
        strstr(weft_last_error(), "out is 3 and groups is 2; out must be a multiple of groups"),
        "%s", weft_last_error());
    cr_assert_not(weft_ok(weft_nn_conv1d_forward(&line, x)));
    cr_assert_eq(weft_nn_conv_transpose2d_init(&plane, m, "b", 4, 3, 0), WEFT_ESHAPE);
    cr_assert_eq(weft_nn_group_norm_init(&group, m, "c", 4, 6), WEFT_ESHAPE);
    cr_assert_not(weft_ok(weft_nn_group_norm_forward(&group, x)));
    cr_assert_not(weft_ok(weft_nn_group_norm_forward(NULL, x)));
    cr_assert_not(weft_ok(weft_nn_instance_norm_forward(NULL, x)));
    cr_assert_not(weft_ok(weft_nn_conv1d_forward(NULL, x)));
    cr_assert_not(weft_ok(weft_nn_conv_transpose1d_forward(NULL, x)));
    cr_assert_not(weft_ok(weft_nn_conv_transpose2d_forward(NULL, x)));
    weft_module_free(m);
}

/* -- clipping --------------------------------------------------------------------------------------------- */

Test(nn, clipping_scales_by_the_global_norm)
{
    weft_module *m = fresh(1);
    weft_tensor a = weft_module_parameter(m, "a", weft_zeros(weft_shape(2), WEFT_F32));
    weft_tensor b = weft_module_parameter(m, "b", weft_zeros(weft_shape(1), WEFT_F32));
    weft_module_parameter(m, "unused", weft_zeros(weft_shape(1), WEFT_F32));
    double norm = -1;
    cr_assert_eq(weft_module_clip_grad_norm(m, 1, &norm), WEFT_OK);
    cr_assert_eq(norm, 0, "no gradients");
    weft_set_grad(a, weft_from_data((float[]){2, 3}, weft_shape(2), WEFT_F32));
    weft_set_grad(b, weft_from_data((float[]){6}, weft_shape(1), WEFT_F32));
    cr_assert_eq(weft_module_clip_grad_norm(m, 8, &norm), WEFT_OK);
    cr_assert_eq(norm, 7);
    cr_assert_eq(weft_item_f64(weft_grad(b)), 6, "below the limit nothing changes");
    cr_assert_eq(weft_module_clip_grad_norm(m, 3.5, NULL), WEFT_OK);
    cr_assert_lt(fabs(weft_item_f64(weft_grad(b)) - 3), 1e-5);
    cr_assert_eq(weft_module_zero_grad(m), WEFT_OK);
    cr_assert_not(weft_has_grad(a));
    cr_assert_eq(weft_module_clip_grad_norm(m, 0, NULL), WEFT_EINVALID);
    weft_module_free(m);
}

Test(nn, clipping_by_value_holds_every_element)
{
    weft_module *m = fresh(1);
    weft_tensor a = weft_module_parameter(m, "a", weft_zeros(weft_shape(4), WEFT_F32));
    weft_module_parameter(m, "unused", weft_zeros(weft_shape(1), WEFT_F32));
    cr_assert_eq(weft_module_clip_grad_value(m, 1), WEFT_OK);
    weft_set_grad(a, weft_from_data((float[]){-3, 0.25f, 3, NAN}, weft_shape(4), WEFT_F32));
    weft_tensor b = weft_ones(weft_shape(4), WEFT_F32);
    OK(weft_requires_grad_(b, true));
    weft_tensor y = weft_sum(weft_mul(b, weft_grad(a)));
    cr_assert_eq(weft_module_clip_grad_value(m, 0.5), WEFT_OK);
    float g[4];
    cr_assert_eq(weft_to_array(weft_grad(a), g, 4, WEFT_F32), WEFT_OK);
    cr_assert(g[0] == -0.5f && g[1] == 0.25f && g[2] == 0.5f && isnan(g[3]));
    cr_assert_eq(weft_backward(y), WEFT_EGRAD);
    cr_assert(strstr(weft_last_error(), "module_clip_grad_value at "), "%s", weft_last_error());
    cr_assert_eq(weft_module_clip_grad_value(m, 0), WEFT_EINVALID);
    cr_assert_eq(weft_module_clip_grad_value(NULL, 1), WEFT_EINVALID);
    weft_module_free(m);
}

/* -- averages ------------------------------------------------------------------------------------------------ */

static weft_module *averaged(uint64_t seed, weft_dtype dtype)
{
    weft_generator g = {seed, 0};
    weft_module *m = weft_module_new(NULL);
    weft_module_parameter(m, "w", weft_randn(weft_shape(3, 5), dtype, .generator = &g));
    weft_module_parameter(m, "b", weft_randn(weft_shape(7), dtype, .generator = &g));
    weft_module_buffer(m, "mean", weft_randn(weft_shape(2), dtype, .generator = &g));
    weft_module_buffer(m, "count", weft_full(weft_shape(), (double)seed, WEFT_I64));
    return m;
}

Test(nn, averages_follow_their_formula)
{
    weft_module *m = averaged(1, WEFT_F32), *source = averaged(2, WEFT_F32);
    float p[3][15], q[15], got[15];
    for (int i = 0; i < 3; i++) {
        weft_to_array(weft_module_at(m, i).tensor, p[i], weft_numel(weft_module_at(m, i).tensor),
                      WEFT_F32);
    }
    OK(weft_module_lerp(m, source, 0.25));
    for (int i = 0; i < 3; i++) {
        const int64_t n = weft_numel(weft_module_at(m, i).tensor);
        weft_to_array(weft_module_at(source, i).tensor, q, n, WEFT_F32);
        weft_to_array(weft_module_at(m, i).tensor, got, n, WEFT_F32);
        for (int64_t k = 0; k < n; k++) {
            const double want = i < 2 ? p[i][k] + 0.25 * ((double)q[k] - p[i][k]) : q[k];
            cr_assert(i < 2 ? fabs(got[k] - want) < 1e-6 : got[k] == q[k], "%d %g", i, want);
        }
    }
    cr_assert_eq(weft_item_i64(weft_module_get(m, "count")), 2);
    OK(weft_module_lerp(m, m, 0.5));
    OK(weft_module_lerp(m, source, 0));
    OK(weft_module_lerp(m, source, 1));
    for (int i = 0; i < weft_module_count(m); i++) {
        cr_assert(weft_item_f64(weft_all(weft_equal(weft_module_at(m, i).tensor,
                                                    weft_module_at(source, i).tensor))) == 1);
        cr_assert_not(
            weft_shares_memory(weft_module_at(m, i).tensor, weft_module_at(source, i).tensor));
    }
    weft_module *halves = averaged(3, WEFT_BF16);
    OK(weft_module_lerp(m, halves, 0.5)); /* an average in f32 of parameters in bf16 */
    for (int i = 0; i < 2; i++) {
        const int64_t n = weft_numel(weft_module_at(m, i).tensor);
        weft_to_array(weft_module_at(source, i).tensor, p[i], n, WEFT_F32);
        weft_to_array(weft_module_at(halves, i).tensor, q, n, WEFT_F32);
        weft_to_array(weft_module_at(m, i).tensor, got, n, WEFT_F32);
        for (int64_t k = 0; k < n; k++)
            cr_assert(fabs(got[k] - (p[i][k] + 0.5 * ((double)q[k] - p[i][k]))) < 1e-6);
    }
    OK(weft_module_lerp(halves, m, 1));
    for (int i = 0; i < 2; i++) {
        const weft_tensor rounded = weft_cast(weft_module_at(m, i).tensor, WEFT_BF16);
        cr_assert(weft_item_f64(weft_all(weft_equal(weft_module_at(halves, i).tensor, rounded))) ==
                  1);
    }
    weft_module_free(halves);
    weft_module_free(source);
    weft_module_free(m);
}

/* What does not fit is said before anything is written. */
Test(nn, averages_of_other_modules_are_refused)
{
    weft_module *m = averaged(1, WEFT_F32), *source = weft_module_new(NULL);
    weft_module_buffer(source, "count", weft_full(weft_shape(), 9, WEFT_I64));
    weft_module_parameter(source, "b", weft_zeros(weft_shape(7), WEFT_F32));
    weft_module_parameter(source, "w", weft_zeros(weft_shape(3, 5), WEFT_F32));
    const uint32_t writes = weft_write_count(weft_module_get(m, "w"));
#define REFUSES(call, status, text)                                                                \
    do {                                                                                           \
        cr_assert_eq(call, status);                                                                \
        cr_assert(strstr(weft_last_error(), text), "%s", weft_last_error());                       \
    } while (0)
    REFUSES(weft_module_lerp(m, source, 1), WEFT_EINVALID, "the source has no 'mean'");
    weft_module_buffer(source, "mean", weft_zeros(weft_shape(3), WEFT_F32));
    REFUSES(weft_module_lerp(m, source, 1), WEFT_ESHAPE, "'mean' has another shape in the source");
    REFUSES(weft_module_lerp(m, source, 1.5), WEFT_EINVALID, "weight is 1.5");
    REFUSES(weft_module_lerp(m, source, NAN), WEFT_EINVALID, "weight is nan");
    REFUSES(weft_module_lerp(NULL, source, 1), WEFT_EINVALID, "the module is NULL");
    REFUSES(weft_module_lerp(m, NULL, 1), WEFT_EINVALID, "the source is NULL");
    static const float fixed[2] = {1, 2};
    const weft_shape two = weft_shape(2);
    weft_module *a = weft_module_new(NULL), *b = weft_module_new(NULL);
    for (int i = 0; i < 2; i++) {
        weft_module_parameter(i ? b : a, "w", weft_zeros(two, WEFT_F32));
        weft_module_buffer(
            i ? b : a, "fixed",
            weft_from_blob((void *)(uintptr_t)fixed, two, WEFT_F32, .read_only = true));
    }
    const uint32_t before = weft_write_count(weft_module_get(a, "w"));
    REFUSES(weft_module_lerp(a, b, 1), WEFT_EINVALID,
            "the target's memory is read-only; operands: f32[2] 'fixed' (made at ");
    cr_assert_eq(weft_write_count(weft_module_get(a, "w")), before);
    weft_module *wide = weft_module_new(NULL);
    weft_module_parameter(wide, "w", weft_zeros(two, WEFT_F32));
    weft_module_buffer(wide, "fixed", weft_expand(weft_full(weft_shape(1), 1, WEFT_F32), two));
    REFUSES(weft_module_lerp(wide, b, 0.5), WEFT_ESHAPE,
            "several elements of the target share one address; operands: f32[2] 'fixed'");
    cr_assert_eq(weft_write_count(weft_module_get(wide, "w")), 0);
    weft_module_free(wide);
    weft_module_free(a);
    weft_module_free(b);
#undef REFUSES
    cr_assert_eq(weft_write_count(weft_module_get(m, "w")), writes);
    weft_module_free(source);
    weft_module_free(m);
}

/* -- training ------------------------------------------------------------------------------------------------ */

/* Trains a small net from `from` to `to` and returns the bits of all losses, folded. With a path it starts
 * from that checkpoint; what it ends with goes to `save`. */
static uint64_t train(int threads, int from, int to, const char *load, const char *save)
{
    weft_set_num_threads(threads);
    weft_generator g = {7, 0};
    weft_module *m = weft_module_new(&g);
    weft_nn_linear fc1, fc2;
    weft_nn_norm ln;
    weft_nn_dropout drop;
    weft_nn_linear_init(&fc1, m, "fc1", 16, 300);
    weft_nn_layer_norm_init(&ln, m, "ln", 300);
    weft_nn_dropout_init(&drop, m, 0.1);
    weft_nn_linear_init(&fc2, m, "fc2", 300, 4);
    weft_optim *o = weft_adamw_new(m, 1e-2);
    uint64_t hash = 1;
    int64_t state[2] = {0, 0};
    weft_named_tensor extra = {"state", weft_from_blob(state, weft_shape(2), WEFT_I64)};
    if (load) {
        cr_assert_eq(weft_checkpoint_load(load, m, o, &extra, 1), WEFT_OK, "%s", weft_last_error());
        g.offset = (uint64_t)state[0];
        hash = (uint64_t)state[1];
    }
    for (int i = from; i < to; i++) {
        weft_scope s = weft_scope_begin();
        weft_tensor x = weft_randn(weft_shape(64, 16), .generator = &g);
        weft_tensor y = weft_argmax(weft_narrow(x, 1, 0, 4), .axes = weft_axes(1));
        weft_tensor h = weft_gelu(weft_nn_layer_norm_forward(&ln, weft_nn_linear_forward(&fc1, x)));
        h = weft_nn_linear_forward(&fc2, weft_nn_dropout_forward(&drop, h));
        weft_tensor loss = weft_cross_entropy(h, y);
        weft_module_zero_grad(m);
        cr_assert_eq(weft_backward(loss), WEFT_OK, "%s", weft_last_error());
        cr_assert_eq(weft_module_clip_grad_norm(m, 0.5, NULL), WEFT_OK);
        cr_assert_eq(weft_optim_step(o), WEFT_OK);
        float value = (float)weft_item_f64(loss);
        uint32_t bits;
        memcpy(&bits, &value, 4);
        hash = (hash ^ bits) * 0x100000001b3u;
        weft_scope_end(s);
    }
    if (save) {
        state[0] = (int64_t)g.offset;
        state[1] = (int64_t)hash;
        cr_assert_eq(weft_checkpoint_save(save, m, o, &extra, 1), WEFT_OK, "%s", weft_last_error());
    }
    weft_optim_free(o);
    weft_module_free(m);
    return hash;
}

Test(nn, training_has_the_same_bits_at_any_thread_count_and_after_a_checkpoint)
{
    char path[100];
    snprintf(path, sizeof path, "/tmp/weft-test-nn-%ld", (long)getpid());
    uint64_t whole = train(1, 0, 40, NULL, NULL);
    cr_assert_eq(train(2, 0, 40, NULL, NULL), whole);
    cr_assert_eq(train(3, 0, 40, NULL, NULL), whole);
    cr_assert_eq(train(7, 0, 40, NULL, NULL), whole);
    train(2, 0, 17, NULL, path);
    cr_assert_eq(train(1, 17, 40, path, NULL), whole);
    cr_assert_neq(train(1, 0, 39, NULL, NULL), whole);
    unlink(path);
    weft_module *m = fresh(1);
    cr_assert_eq(weft_checkpoint_load(path, m), WEFT_EIO);
    cr_assert_eq(weft_checkpoint_save(NULL, m), WEFT_EINVALID);
    weft_module_free(m);
}
