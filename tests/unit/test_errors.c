/*
 * tests/unit/test_errors.c -- a bad call of every op; the whole message is compared with tests/golden/errors.txt. Those of
 * elementwise rows are made from the rows, and the headers of ops say whether one is missing. Sites are reduced to the file's name: lines move when this file is edited.
 *
 * To accept new messages: WEFT_ACCEPT=1 rewrites the golden file.
 */
#include <criterion/criterion.h>
#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/support.h"
#include "weft/weft.h"

static char *out;
static size_t out_size;
static FILE *sink;

/* Writes a message with "path/test_errors.c:123" as "test_errors.c:N"; calls made of the rows stand in ops.def. */
static void note(const char *call, const char *text)
{
    static const char here[] = "test_errors.c:", rows[] = "ops.def:";
    fprintf(sink, "%s\n    ", call);
    while (*text) {
        const char *at = strstr(text, here), *row = strstr(text, rows), *me = here;
        if (row && (!at || row < at)) {
            at = row;
            me = rows;
        }
        const char *path = at ? at : text + strlen(text);
        while (at && path > text && path[-1] != ' ') {
            path--;
        }
        fprintf(sink, "%.*s", (int)(path - text), text);
        if (!at) {
            break;
        }
        fprintf(sink, "%sN", me);
        text = at + strlen(me);
        while (isdigit((unsigned char)*text)) {
            text++;
        }
    }
    fprintf(sink, "\n");
}

#define BAD(call) bad(#call, call)
static void bad(const char *call, weft_tensor t)
{
    cr_expect(!weft_ok(t), "%s is accepted", call);
    note(call, weft_error_text(t));
}

#define BAD_STATUS(call) bad_status(#call, call)
static void bad_status(const char *call, weft_status status)
{
    cr_expect(status != WEFT_OK, "%s is accepted", call);
    note(call, weft_last_error());
}

static weft_tensor x, y, i, v, img, dead;

/* Shapes that do not broadcast, or a dead operand; in place: a number of higher kind, or a dead target. */
static void elementwise_rows(void)
{
    weft_tensor bit = weft_zeros(weft_shape(2, 3), WEFT_BOOL);
    weft_tensor wide = weft_zeros(weft_shape(3, 5), WEFT_I64);
    weft_tensor whole = weft_zeros(weft_shape(2, 3), WEFT_I64);
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    BAD(weft_##name(dead));                                                                        \
    BAD_STATUS(weft_##name##_(dead));
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    BAD(weft_##name(whole, wide));                                                                 \
    BAD_STATUS(weft_##name##_(whole, weft_f(0.5)));
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    BAD(weft_##name(x, y, weft_f(1)));                                                             \
    BAD_STATUS(weft_##name##_(v, x, x));
#define PREDICATE(NAME, name, types, expr) BAD(weft_##name(dead));
#define COMPARE(NAME, name, types, expr) BAD(weft_##name(x, y));
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b) BAD(weft_##name(bit, x, y));
#include "jit/ir/ops.def"
}

/* Ops of several parts answer in their own name. */
static void compositions(void)
{
    weft_tensor mask = weft_zeros(weft_shape(5), WEFT_BOOL),
                u8 = weft_zeros(weft_shape(2), WEFT_U8);
    weft_tensor pair[2] = {x, y};
    BAD(weft_masked_fill(x, mask, weft_f(0)));
    BAD(weft_masked_fill(x, x, weft_f(0)));
    BAD(weft_masked_fill(u8, weft_b(true), weft_i(300)));
    BAD_STATUS(weft_masked_fill_(x, mask, weft_f(0)));
    BAD_STATUS(weft_zero_(weft_expand(v, weft_shape(2, 3))));
    BAD_STATUS(weft_fill_(u8, -1));
    BAD(weft_embedding(x, i));
    BAD(weft_embedding(x, x));
    BAD(weft_gather(x, 0, i));
    BAD(weft_stack(pair, 2, 0));
    BAD(weft_broadcast_to(x, weft_shape(4, 3)));
    BAD(weft_repeat(x, -1, 0));
    BAD(weft_nll_loss(x, i));
    const weft_tensor first = weft_zeros(weft_shape(2), WEFT_I64);
    BAD(weft_nll_loss(x, weft_neg(weft_ones(weft_shape(2), WEFT_I32))));
    BAD(weft_nll_loss(x, weft_zeros(weft_shape(2), WEFT_F32)));
    BAD(weft_nll_loss(x, weft_zeros(weft_shape(2), WEFT_BOOL)));
    BAD(weft_nll_loss(x, x));
    BAD(weft_nll_loss(x, weft_i(1)));
    BAD(weft_nll_loss(x, dead));
    BAD(weft_nll_loss(x));
    BAD(weft_nll_loss(weft_zeros(weft_shape(2, 3, 5), WEFT_F32),
                      weft_zeros(weft_shape(2, 5), WEFT_I64)));
    BAD(weft_nll_loss(weft_zeros(weft_shape(2, 3), WEFT_I64), first));
    BAD(weft_nll_loss(weft_zeros(weft_shape(2, 0), WEFT_F32), first));
    BAD(weft_nll_loss(x, first, .weight = weft_zeros(weft_shape(2), WEFT_F32)));
    BAD(weft_nll_loss(x, first, .weight = weft_zeros(weft_shape(3), WEFT_I64)));
    BAD(weft_nll_loss(x, first, .reduction = (weft_reduction)9));
    BAD(weft_cross_entropy(x, weft_zeros(weft_shape(2), WEFT_F32)));
    BAD(weft_cross_entropy(x, weft_zeros(weft_shape(2, 3), WEFT_I64)));
    BAD(weft_cross_entropy(weft_zeros(weft_shape(2, 3), WEFT_BOOL), first));
    BAD(weft_cross_entropy(weft_zeros(weft_shape(1, 2, 0), WEFT_F32),
                           weft_zeros(weft_shape(1, 2), WEFT_I64)));
    BAD(weft_cross_entropy(x, first, .weight = dead));
    BAD(weft_cross_entropy(x, first, .label_smoothing = 2));
    BAD(weft_mse_loss(dead, x));
    BAD(weft_mse_loss(x));
    BAD(weft_mse_loss(x, x, .reduction = (weft_reduction)9));
    BAD(weft_bce_with_logits(x, x, .pos_weight = dead));
    BAD(weft_l1_loss(x, y));
    BAD(weft_huber_loss(x, x, .delta = -1));
    BAD(weft_binary_cross_entropy(x, y));
    BAD(weft_bce_with_logits(x, y));
    BAD(weft_bce_with_logits(x, x, .pos_weight = y));
    BAD(weft_kl_div(x, x, .weight = weft_zeros(weft_shape(2, 2, 3), WEFT_F32)));
    BAD(weft_pow(i, weft_i(-1)));
    BAD(weft_ones(weft_shape(1LL << 60, 1LL << 60), WEFT_F32));
    BAD(weft_zeros_like(dead));
    BAD(weft_ones_like(dead));
    BAD(weft_full_like(u8, 256));
    BAD(weft_scalar(-1, WEFT_U8));
}

/* One of each op that is in no other list. */
static void the_others(void)
{
    BAD(weft_prod(x, .axes = weft_axes(2)));
    BAD(weft_min(x, .axes = weft_axes(2)));
    BAD(weft_var(x, .axes = weft_axes(2)));
    BAD(weft_std(x, .axes = weft_axes(2)));
    BAD(weft_norm(x, .axes = weft_axes(2)));
    BAD(weft_logsumexp(x, .axes = weft_axes(2)));
    BAD(weft_any(x, .axes = weft_axes(0, 0)));
    BAD(weft_all(x, .axes = weft_axes(-3)));
    BAD(weft_count_nonzero(x, .axes = weft_axes(2)));
    BAD(weft_argmin(weft_zeros(weft_shape(0), WEFT_F32)));
    BAD(weft_cumprod(x, -3));
    BAD(weft_clone(dead));
    BAD(weft_to(dead, WEFT_CPU));
    BAD(weft_detach(dead));
    BAD(weft_contiguous(dead));
    BAD(weft_channels_last(dead));
    BAD(weft_channels_last(x));
    BAD(weft_unsqueeze(x, 4));
    BAD(weft_flip(x, weft_axes(2)));
    BAD_STATUS(weft_chunk(x, 0, 0, NULL));
    BAD(weft_triu(v, 0));
    BAD(weft_index_add(x, 0, i, x));
    BAD_STATUS(weft_scatter_add_(x, 2, i, x));
    BAD_STATUS(weft_index_add_(x, 0, i, y));
    BAD_STATUS(weft_sort(x, 2, false, NULL, NULL));
    BAD(weft_argsort(x, -3, true));
    BAD(weft_linspace(0, 300, 4, WEFT_U8));
    BAD(weft_eye(-1, 2, 0, WEFT_F32));
    BAD(weft_randn(weft_shape(2), .std = -1));
    BAD(weft_bernoulli(weft_shape(2), .p = 2));
    BAD(weft_randperm(-1));
    BAD(weft_multinomial(x, 4));
    BAD(weft_multinomial(i));
    BAD(weft_log_softmax(i, 0));
    BAD(weft_rms_norm(x, .axes = 3));
    BAD(weft_avg_pool2d(x, weft_shape(2)));
}

static void ops_of_ops(void)
{
    weft_tensor kernel = weft_zeros(weft_shape(2, 3, 3, 3), WEFT_F32),
                line = weft_zeros(weft_shape(1, 2, 8), WEFT_F32);
    BAD(weft_einsum("ij,jk->ik", x, x));
    BAD(weft_einsum("ij,jk->ik", x));
    BAD(weft_einsum("ij->ik", x));
    BAD(weft_einsum("ij->jj", x));
    BAD(weft_einsum("ijk->i", x));
    BAD(weft_einsum("ii", x));
    BAD(weft_einsum("i.j", x));
    BAD(weft_einsum("ij->i->j", x));
    BAD(weft_einsum("...,...", x, y));
    BAD((weft_einsum)("ij", NULL, 1));
    BAD((weft_einsum)("ij", &x, 0));
    BAD(weft_group_norm(img));
    BAD(weft_group_norm(v, 1));
    BAD(weft_group_norm(img, 2, .weight = v));
    BAD(weft_group_norm(weft_i(3), 1));
    BAD(weft_instance_norm(x));
    BAD(weft_conv1d(line, line, .stride = weft_shape(1, 2)));
    BAD(weft_conv1d(img, line));
    BAD(weft_conv1d(line, weft_zeros(weft_shape(3, 2, 9), WEFT_F32)));
    BAD(weft_conv_transpose1d(line, weft_zeros(weft_shape(3, 2, 9), WEFT_F32)));
    BAD(weft_conv_transpose2d(img, kernel, .output_padding = weft_shape(1)));
    BAD(weft_conv_transpose2d(img, kernel, .padding = weft_shape(3)));
    BAD(weft_conv_transpose2d(img, kernel, .stride = weft_shape(-1)));
    BAD(weft_conv_transpose2d(img, kernel, .groups = 3));
    BAD(weft_conv_transpose2d(img, kernel, v, .groups = 2));
    BAD(weft_index_get(x, WEFT_LIST(i)));
    BAD(weft_index_get(x, WEFT_LIST(v)));
    BAD(weft_index_get(v, WEFT_LIST(i, i)));
    BAD(weft_index_put(x, WEFT_LIST(i, i), weft_f(1), false));
    BAD(weft_index_put(x, WEFT_LIST(weft_i(1)), y, false));
    BAD(weft_index_put(i, WEFT_LIST(weft_i(1)), v, true));
    BAD(weft_index_put(x, NULL, 1, v, true));
    BAD(weft_adaptive_avg_pool2d(img, weft_shape(1, 2, 3)));
    BAD(weft_adaptive_avg_pool2d(x, weft_shape(1)));
    BAD(weft_interpolate(img, weft_shape(0)));
    BAD(weft_interpolate(img, weft_shape(2), .scale = 2));
    BAD(weft_interpolate(img, .scale = 1e300));
    BAD(weft_interpolate(img, .scale = -2));
    BAD(weft_interpolate(x, weft_shape(2)));
    BAD(weft_interpolate(img, weft_shape(2), .align_corners = true));
    BAD(weft_interpolate(img, weft_shape(2), .mode = (weft_interpolation)7));
    BAD(weft_pad_mode(x, weft_shape(0, 3), weft_shape(0, 0), WEFT_PAD_REFLECT));
    BAD(weft_pad_mode(x, weft_shape(0, 4), weft_shape(0, 0), WEFT_PAD_CIRCULAR));
    BAD(weft_pad_mode(weft_zeros(weft_shape(0), WEFT_F32), weft_shape(1), weft_shape(0),
                      WEFT_PAD_REPLICATE));
    BAD(weft_pad_mode(x, weft_shape(1), weft_shape(1), WEFT_PAD_REFLECT));
    BAD(weft_pad_mode(x, weft_shape(0, 0), weft_shape(0, -1), WEFT_PAD_REFLECT));
    BAD(weft_pad_mode(x, weft_shape(0, 0), weft_shape(0, 1), (weft_padding)3));
}

static void elementwise_and_in_place(void)
{
    BAD(weft_add(x, y));
    BAD(weft_bitwise_not(weft_b(true)));
    BAD(weft_bitwise_and(x, x));
    BAD(weft_neg(weft_b(true)));
    BAD(weft_where(x, x, x));
    BAD(weft_clamp(x, y, weft_f(1)));
    BAD(weft_mul(WEFT_NONE, x));
    BAD(weft_exp(dead));
    BAD_STATUS(weft_add_(i, weft_f(0.5)));
    BAD_STATUS(weft_add_(v, x));
    BAD_STATUS(weft_fill_(weft_expand(v, weft_shape(2, 3)), 0));
    BAD_STATUS(weft_copy_(v, weft_zeros(weft_shape(4), WEFT_F32)));
}

static void reductions_and_views(void)
{
    BAD(weft_sum(x, .axes = weft_axes(2)));
    BAD(weft_mean(x, .axes = weft_axes(0, 0)));
    BAD(weft_max(weft_zeros(weft_shape(0, 2), WEFT_F32), .axes = weft_axes(0)));
    BAD(weft_argmax(x, .axes = weft_axes(0, 1)));
    BAD(weft_max(x, .dtype = WEFT_F64));
    BAD(weft_cumsum(weft_scalar(1, WEFT_F32), 1));
    BAD(weft_reshape(x, weft_shape(4)));
    BAD(weft_reshape(x, weft_shape(-1, 4)));
    BAD(weft_reshape(x, weft_shape(-2, 3)));
    BAD(weft_flatten(x, 1, 0));
    BAD(weft_squeeze(x, weft_axes(0)));
    BAD(weft_transpose(x, 0, 2));
    BAD(weft_permute(x, weft_axes(0)));
    BAD(weft_expand(x, weft_shape(4, 3)));
    BAD(weft_slice(x, 0, 0, 2, 0));
    BAD(weft_narrow(x, 0, 1, 2));
    BAD(weft_select(x, 1, 3));
    BAD(weft_as_strided(x, weft_shape(3, 3), weft_shape(3, 1), 0));
    BAD(weft_diagonal(x, 0, 1, 1));
    BAD(weft_unfold(x, 1, 4, 1));
    BAD_STATUS(weft_split(x, 0, (const int64_t[]){1, 2}, 2, (weft_tensor[2]){x, x}));
}

static void movement_indexing_creation(void)
{
    static float here[4];
    BAD(weft_concat(WEFT_LIST(x, y), 0));
    BAD(weft_concat(NULL, 3, 0));
    BAD(weft_pad(x, weft_shape(1), weft_shape(1), 0));
    BAD(weft_roll(x, weft_shape(1, 2), weft_axes(0)));
    BAD(weft_tril(v, 0));
    BAD(weft_tile(x, weft_shape(-1)));
    BAD(weft_index_select(x, 0, i));
    BAD(weft_index_select(x, 0, v));
    BAD(weft_take_along(x, 0, i));
    BAD(weft_scatter_add(x, 0, i, x));
    BAD(weft_one_hot(i, 2, WEFT_F32));
    BAD_STATUS(weft_topk(x, 5, 1, false, NULL, NULL));
    BAD(weft_zeros(weft_shape(2, -3), WEFT_F32));
    BAD(weft_full(weft_shape(INT64_MAX, 4), 0, WEFT_F32));
    BAD(weft_arange(0, 1, 0, WEFT_F32));
    BAD(weft_arange(0, 1, 0.5, WEFT_I32));
    BAD(weft_randint(weft_shape(2), 5, 5));
    BAD(weft_rand(weft_shape(2), WEFT_I64));
    BAD(weft_cast(x, (weft_dtype)99));
    BAD(weft_from_data(NULL, weft_shape(2), WEFT_F32));
    BAD(weft_from_blob((char *)here + 1, weft_shape(2), WEFT_F32));
}

static void layers_and_reading(void)
{
    double d;
    float f[2];
    BAD(weft_matmul(x, x));
    BAD(weft_linear(x, y, WEFT_NONE));
    BAD(weft_softmax(x, 2));
    BAD(weft_layer_norm(x, .weight = weft_zeros(weft_shape(2), WEFT_F32)));
    BAD(weft_batch_norm(x));
    BAD(weft_conv2d(img, x));
    BAD(weft_conv2d(img, img, .stride = weft_shape(1, 2, 3)));
    BAD(weft_max_pool2d(img, weft_shape(9)));
    BAD(weft_scaled_dot_product_attention(x, y, y));
    BAD(weft_dropout(x, 2, true));
    BAD(weft_cross_entropy(x, i));
    BAD(weft_mse_loss(x, y));
    BAD_STATUS(weft_item(x, &d));
    BAD_STATUS(weft_to_array(x, f, 2, WEFT_F32));
    BAD_STATUS(weft_free(dead));
    BAD_STATUS(weft_set_num_threads(0));
    weft_scope_end((weft_scope){0, 0, 0});
    note("weft_scope_end of no scope", weft_last_error());
    (void)weft_data(weft_f(1));
    note("weft_data(weft_f(1))", weft_last_error());
    (void)weft_item_f64(x);
    note("weft_item_f64(x)", weft_last_error());
    (void)weft_item_i64(dead);
    note("weft_item_i64(dead)", weft_last_error());
    weft_tensor leaf = weft_zeros(weft_shape(2), WEFT_F32);
    weft_requires_grad_(leaf, true);
    (void)weft_data_mut(leaf);
    note("weft_data_mut(leaf)", weft_last_error());
    (void)weft_dim(x, 5);
    note("weft_dim(x, 5)", weft_last_error());
}

static weft_status reads_a_value(void *self, const weft_tensor *in, int n_in, weft_tensor *result,
                                 int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    result[0] = weft_item_f64(weft_sum(in[0])) > 0 ? in[0] : weft_neg(in[0]);
    return WEFT_OK;
}

/* What a training program calls: every message ends with the caller's line. */
static void gradients_layers_files_graphs(void)
{
    weft_module *m = weft_module_new(NULL);
    weft_nn_linear fc, again;
    weft_tensor one = weft_ones(weft_shape(1, 5), WEFT_F32), y1;
    cr_assert_eq(weft_nn_linear_init(&fc, m, "fc", 3, 4), WEFT_OK);
    BAD_STATUS(weft_nn_linear_init(&again, m, "fc", 3, 4));
    BAD(weft_nn_linear_forward(&again, one));
    BAD(weft_nn_linear_forward(&fc, one));
    BAD(weft_module_get(m, "fc.wieght"));
    BAD_STATUS(weft_requires_grad_(i, true));
    BAD(weft_grad(x));
    BAD_STATUS(weft_set_grad(fc.weight, one));
    BAD_STATUS(weft_remove_hook(fc.weight, 77));
    void *data;
    size_t size;
    cr_assert_eq(
        weft_safetensors_encode(&(weft_named_tensor){"fc.weight", one}, 1, NULL, 0, &data, &size),
        WEFT_OK);
    weft_safetensors *f = weft_safetensors_decode(data, size);
    free(data);
    BAD_STATUS(weft_safetensors_load(f, &(weft_named_tensor){"fc.weight", fc.weight}, 1));
    BAD_STATUS(weft_safetensors_load(f, weft_module_entries(m), 2));
    BAD(weft_safetensors_get(f, "fc.bias"));
    weft_safetensors_close(f);
    cr_expect(!weft_jit_graph(reads_a_value, NULL, &one, 1));
    note("weft_jit_graph(reads_a_value, ...)", weft_last_error());
    weft_jit *j = weft_jit_trace(reads_a_value, .name = "step", .single_graph = true);
    BAD_STATUS(weft_jit_call(j, &one, 1, &y1, 1));
    weft_jit_free(j);
    weft_module_free(m);
}

static void terms_and_values(void)
{
    weft_tensor mask = weft_zeros(weft_shape(2), WEFT_BOOL);
    BAD(weft_index(x, weft_at(0), WEFT_NEW_AXIS, weft_at(3)));
    BAD(weft_index(x, weft_at(0), weft_at(1), weft_at(2)));
    BAD(weft_index(x, WEFT_ELLIPSIS, WEFT_ELLIPSIS));
    BAD(weft_isclose(x, y));
    BAD(weft_isclose(x, x, .rtol = -1));
    BAD(weft_allclose(x, img));
    BAD(weft_nonzero(dead));
    BAD(weft_masked_select(x, x));
    BAD(weft_masked_select(x, mask));
    BAD_STATUS(weft_unique(dead, NULL, NULL, NULL));
    BAD(weft_searchsorted(x, v, false));
    BAD(weft_stack(WEFT_LIST(weft_scalar(1, WEFT_U8), weft_i(300)), 0));
}

/* Every function of these headers that returns a tensor or a status is called badly somewhere above. */
static void every_op_is_there(void)
{
    static const char *const headers[] = {"ops.h", "ops_array.h", "ops_nn.h", "random.h"};
    int seen = 0;
    for (size_t h = 0; h < sizeof headers / sizeof *headers; h++) {
        char path[512], line[512], name[128], call[136];
        snprintf(path, sizeof path, "%s/include/weft/%s", WEFT_SOURCE_DIR, headers[h]);
        FILE *f = fopen(path, "rb");
        cr_assert_not_null(f, "%s", path);
        while (fgets(line, sizeof line, f)) {
            if (sscanf(line, "WEFT_API weft_tensor %127[a-z0-9_](", name) == 1 ||
                sscanf(line, "WEFT_API weft_status %127[a-z0-9_](", name) == 1) {
                snprintf(call, sizeof call, "\n%s(", name);
                cr_expect(strstr(out, call), "no bad call of %s", name);
                seen++;
            }
        }
        fclose(f);
    }
    cr_expect(seen > 200, "only %d functions", seen);
}

Test(errors, golden)
{
    static const char path[] = WEFT_SOURCE_DIR "/tests/golden/errors.txt";
    sink = open_memstream(&out, &out_size);
    x = weft_zeros(weft_shape(2, 3), WEFT_F32);
    y = weft_ones(weft_shape(3, 5), WEFT_F32);
    i = weft_from_data((const int64_t[]){0, 7}, weft_shape(2), WEFT_I64);
    v = weft_ones(weft_shape(3), WEFT_F32);
    img = weft_zeros(weft_shape(1, 2, 4, 4), WEFT_F32);
    weft_set_name(y, "weights");
    dead = weft_zeros(weft_shape(1), WEFT_F32);
    weft_set_name(dead, "gone");
    weft_free(dead);
    elementwise_and_in_place();
    reductions_and_views();
    movement_indexing_creation();
    layers_and_reading();
    gradients_layers_files_graphs();
    elementwise_rows();
    compositions();
    the_others();
    terms_and_values();
    ops_of_ops();
    fclose(sink);
    every_op_is_there();
    check_lines(path, out);
    free(out);
}

/* -- calls that return no tensor ------------------------------------------------------------------------ */

static void stands(const char *call, bool failed, int line)
{
    char site[64];
    snprintf(site, sizeof site, "test_errors.c:%d]", line);
    const char *at = strstr(weft_last_error(), " [at ");
    cr_expect(failed, "%s is accepted", call);
    cr_expect(at && strstr(at, site), "%s: %s", call, weft_last_error());
    cr_expect(at && !strstr(at + 1, " [at "), "%s has one place: %s", call, weft_last_error());
    weft_clear_error();
}
#define STANDS(call, failed) stands(#call, (call)failed, __LINE__)
#define NO_POINTER(call) STANDS(call, == NULL)
#define NO_NUMBER(call) STANDS(call, < 0)
#define NO_STATUS(call) STANDS(call, != WEFT_OK)

Test(errors, calls_that_return_no_tensor_say_where_they_stand)
{
    weft_module *m = weft_module_new(NULL);
    weft_nn_dropout drop;
    weft_device device;
    weft_tensor one = weft_ones(weft_shape(2), WEFT_F32), gone = weft_ones(weft_shape(3), WEFT_F32),
                kept = weft_keep(weft_ones(weft_shape(3), WEFT_F32)), other = gone;
    weft_free(gone);
    NO_POINTER(weft_sgd_new(m, 0));
    NO_POINTER(weft_adam_new(m, .beta1 = 2));
    NO_POINTER(weft_adamw_new(NULL));
    NO_POINTER(weft_rmsprop_new(m, .alpha = 3));
    NO_POINTER(weft_adagrad_new(m, .eps = -1));
    NO_POINTER(weft_lion_new(m, .lr = -1));
    NO_POINTER(weft_safetensors_open("no such file"));
    NO_POINTER(weft_safetensors_decode("x", 1));
    NO_POINTER(weft_npz_open("no such file"));
    NO_POINTER(weft_npz_decode("x", 1));
    NO_POINTER(weft_graph_load("no such file"));
    NO_POINTER(weft_graph_decode("x", 1));
    NO_POINTER(weft_to_dlpack(weft_f(1)));
    NO_POINTER(weft_to_dlpack_unversioned(gone));
    STANDS(weft_register_hook(one, NULL, NULL, NULL), == 0);
    STANDS(weft_register_post_hook(weft_f(1), NULL, NULL, NULL), == 0);
    NO_STATUS(weft_nn_dropout_init(&drop, m, 2));
    NO_STATUS(weft_module_push(m, NULL));
    NO_STATUS(weft_module_pop(m));
    NO_NUMBER(weft_dim(one, 3));
    NO_NUMBER(weft_rank(gone));
    NO_NUMBER(weft_numel(gone));
    NO_NUMBER(weft_nbytes(gone));
    NO_NUMBER(weft_offset(gone));
    STANDS(weft_dtype_of(gone), == WEFT_DTYPE_DEFAULT);
    NO_STATUS(weft_free(gone));
    NO_STATUS(weft_assign(&other, weft_keep(gone)));
    STANDS(weft_keep(gone), .slot == 0);
    NO_STATUS(weft_scope_end((weft_scope){0, 0, 0}));
    STANDS(weft_scope_return(weft_scope_begin(), gone), .slot == 0);
    STANDS(weft_scope_give(weft_scope_begin(), gone), .slot == 0);
    NO_STATUS(weft_set_num_threads(0));
    NO_STATUS(weft_set_default_device(((weft_device){9, 9})));
    NO_STATUS(weft_device_from_name("gpu", &device));
    /* one that is well leaves an error of before alone */
    weft_tensor bad = (weft_matmul)(one, kept);
    cr_expect_eq(weft_dim(one, 0), 2);
    cr_expect(!strstr(weft_error_text(bad), "[at "), "%s", weft_error_text(bad));
    weft_free(kept);
    weft_module_free(m);
}

/* -- handles that have died ------------------------------------------------------------------------------- */

static void tells(weft_tensor t, const char *text)
{
    char want[256];
    snprintf(want, sizeof want, "operands: %s", text);
    weft_tensor r = weft_neg(t);
    cr_expect(strstr(weft_error_text(r), want), "not %s: %s", want, weft_error_text(r));
}

static void *asks(void *of)
{
    const weft_tensor *t = of;
    tells(t[0], "(another thread's);");
    cr_expect(strstr(weft_last_error(), "scope of another thread"), "%s", weft_last_error());
    tells(t[1], "(dead handle);");
    return NULL;
}

Test(errors, dead_handles_tell_what_they_were)
{
    weft_tensor t = weft_ones(weft_shape(2, 3), WEFT_I16);
    weft_free(t);
    tells(t, "(dead handle of i16[2,3] made at ");
    cr_expect(strstr(weft_last_error(), "test_errors.c:"), "%s", weft_last_error());
    weft_tensor next = weft_zeros(weft_shape(4), WEFT_F32); /* takes its place */
    tells(t, "(dead handle);");
    weft_set_name(next, "next");
    weft_scope s = weft_scope_begin();
    weft_tensor inner = weft_scalar(1, WEFT_F64),
                wide = weft_ones(weft_shape(1, 1, 1, 1, 1, 1, 2), WEFT_F32);
    weft_set_name(inner, "inner");
    weft_scope_end(s);
    tells(wide, "(dead handle of f32 of rank 7 made at ");
    weft_zeros(weft_shape(4), WEFT_F32);
    weft_zeros(weft_shape(4), WEFT_F32);
    tells(inner, "(dead handle of f64[] 'inner' made at "); /* names are known for longer */
    cr_expect(strstr(weft_describe(inner), "(dead handle of f64[] 'inner' made at "), "%s",
              weft_describe(inner));
    tells((weft_tensor){next.slot, next.context, next.serial + 7}, "(dead handle);");
    weft_tensor of[2] = {next, weft_keep(weft_ones(weft_shape(2), WEFT_F32))};
    weft_free(of[1]);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, asks, of), 0);
    pthread_join(thread, NULL);
    /* names that outlive the table of them are told in short */
    for (int n = 0; n < 40; n++) {
        weft_tensor many = weft_ones(weft_shape(1), WEFT_F32);
        weft_set_name(many, "many");
        weft_free(many);
    }
    tells(inner, "(dead handle);");
}

Test(errors, numbers_have_no_gradient)
{
    weft_tensor one = weft_f(1), bad = weft_matmul(weft_ones(weft_shape(2, 3), WEFT_F32),
                                                   weft_ones(weft_shape(2, 3), WEFT_F32));
    cr_expect_eq(weft_backward(one), WEFT_EINVALID);
    cr_expect(strstr(weft_last_error(), "scalar 1; numbers have no gradient: hand in a tensor"),
              "%s", weft_last_error());
    cr_expect_eq(weft_requires_grad_(one, true), WEFT_EINVALID);
    cr_expect(strstr(weft_last_error(), "weft_scalar"), "%s", weft_last_error());
    cr_expect_eq(weft_register_hook(one, NULL, NULL, NULL), 0);
    cr_expect(strstr(weft_last_error(), "weft_scalar"), "%s", weft_last_error());
    cr_expect_eq(weft_register_hook(bad, NULL, NULL, NULL), 0);
    cr_expect(strstr(weft_last_error(), "matmul: inner dimensions"), "the first error: %s",
              weft_last_error());
    weft_clear_error();
    cr_expect_eq(weft_remove_hook(bad, 1), WEFT_ESHAPE);
    cr_expect(strstr(weft_last_error(), "matmul: inner dimensions"), "the first error: %s",
              weft_last_error());
}

static void has(const char *call, weft_status got, const char *part)
{
    cr_expect_eq(got, WEFT_ESHAPE, "%s: %s", call, weft_status_name(got));
    cr_expect(strstr(weft_last_error(), part), "%s: %s", call, weft_last_error());
    weft_reshape(weft_arange(0, 6, 1, WEFT_F32), weft_shape(7)); /* another error in between */
}
/* The status of a call that was given an error is that error's; so is what weft_last_error says then. */
#define HAS(call) has(#call, call, "matmul: inner dimensions")

static weft_status same(void *self, const weft_tensor *in, int n_in, weft_tensor *o, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    o[0] = in[0];
    return weft_error_status(in[0]);
}
static weft_status no_back(weft_function_ctx *ctx, void *user, const weft_tensor *g, int n_out,
                           weft_tensor *gi, const bool *needs, int n_in)
{
    (void)ctx, (void)user, (void)g, (void)n_out, (void)gi, (void)needs, (void)n_in;
    return WEFT_OK;
}
static weft_status no_forward(weft_function_ctx *ctx, void *user, const weft_tensor *in, int n_in,
                              weft_tensor *o, int n_out)
{
    (void)ctx, (void)n_out;
    return same(user, in, n_in, o, 1);
}

Test(errors, a_status_has_the_text_of_its_error)
{
    static const weft_function f = {"f", no_forward, no_back, NULL};
    const char *path = "test_errors.never"; /* nothing is written */
    weft_scope scope = weft_scope_begin();
    weft_tensor a = weft_ones(weft_shape(2, 3), WEFT_F32), bad = weft_matmul(a, a), t[2] = {a, a};
    weft_named_tensor named = {"bad", bad};
    weft_module *m = weft_module_new(NULL);
    weft_jit *j = weft_jit_trace(same, NULL);
    double d;
    float host[6];
    weft_requires_grad_(a, true);
    HAS(bad.slot ? WEFT_OK : WEFT_ESHAPE);
    HAS(weft_backward(bad));
    HAS(weft_grad_of(&bad, 1, &a, 1, t));
    cr_expect_str_eq(weft_error_text(t[0]), weft_error_text(bad));
    HAS(weft_jvp(&bad, 1, &a, 1, &a, t));
    cr_expect_str_eq(weft_error_text(t[0]), weft_error_text(bad));
    HAS(weft_set_grad(a, bad));
    HAS(weft_requires_grad_(bad, true));
    HAS(weft_detach(bad).slot ? WEFT_OK : WEFT_ESHAPE);
    HAS(weft_add_(weft_detach(a), bad));
    HAS(weft_add_(bad, a));
    HAS(weft_copy_(bad, a));
    HAS(weft_assign(t, bad));
    HAS(weft_item(bad, &d));
    HAS((weft_item_f64(bad), weft_last_status()));
    HAS((weft_dim(bad, 0), weft_last_status()));
    HAS(weft_to_array(bad, host, 6, WEFT_F32));
    HAS(weft_print(bad));
    HAS(weft_sort(bad, 0, false, &t[0], &t[1]));
    HAS(weft_chunk(bad, 0, 2, t));
    HAS(weft_npy_save(path, bad));
    HAS(weft_npz_save(path, &named, 1));
    HAS(weft_safetensors_save(path, &named, 1, NULL, 0));
    HAS(weft_init_constant(bad, 1));
    HAS(weft_apply(&f, NULL, &bad, 1, t, 1));
    cr_expect_str_eq(weft_error_text(t[0]), weft_error_text(bad));
    HAS(weft_remat(same, NULL, &bad, 1, t, 1));
    HAS(weft_jit_call(j, &bad, 1, t, 1));
    weft_module_parameter(m, "bad", bad);
    HAS(weft_module_status(m));
    /* a text that is forgotten is said to be */
    for (int k = 0; k < 70; k++) {
        weft_matmul(a, weft_ones(weft_shape(7), WEFT_F32));
    }
    weft_clear_error();
    cr_expect_eq(weft_backward(bad), WEFT_EINVALID);
    cr_expect(strstr(weft_last_error(), "older"), "%s", weft_last_error());
    weft_jit_free(j);
    weft_module_free(m);
    weft_scope_end(scope);
    cr_expect_neq(access(path, F_OK), 0);
}

/* A name in a message may be a file's, and the message goes to a terminal. */
Test(errors, no_text_has_control_characters)
{
    weft_named_tensor t = {"a\x1b[31m\nb\x7f\xc2\x9b"
                           "2J \xc2\xa0",
                           weft_ones(weft_shape(2), WEFT_F32)};
    void *data;
    size_t size;
    cr_assert_eq(weft_safetensors_encode(&t, 1, NULL, 0, &data, &size), WEFT_OK);
    weft_safetensors *f = weft_safetensors_decode(data, size);
    weft_tensor none = weft_safetensors_get(f, "x");
    cr_expect(strstr(weft_error_text(none), "'a?[31m?b???2J \xc2\xa0'"), "%s",
              weft_error_text(none));
    weft_safetensors_close(f);
    free(data);
}
