/*
 * tests/fuzz/test_invalid_calls.c -- 100000 random calls, most of them invalid, over the public functions.
 *
 * Operands are live, dead, kept, another thread's, empty, error values, scalars or random bits; numbers are
 * small, negative or near the ends of int64; pointers may be NULL. Nothing may crash, every failing call
 * gives a status and a message that names the function, and in the end memory is where it was. Huge
 * extents are 2^50 and more, so that no call is merely slow. Seeds are fixed; `script/fuzz calls` makes a million calls of others.
 *
 * ctest: timeout=300
 */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/arguments.h"
#include "tests/fuzz/judge.h"

#define COUNTED(x) (a->flag[0] && (x) < 0 ? NULL : a->list)

static void rows(arguments *a)
{
    wf_op op = (wf_op)test_between(&rng, WF_OP_NEG, WF_OP_LOGICAL_XOR);
    weft_status status = WEFT_OK;
    T(wf_rows[op].name, row_call(op, a->t));
    weft_clear_error();
    if (row_write(op, a->t, &status)) {
        judge(wf_rows[op].name, status, weft_last_error(), a->passes_on);
    }
}

static void reductions(arguments *a)
{
    weft_reduce_args r = {a->t[0], a->s[0], a->flag[0], odd(3) ? a->dtype : WEFT_DTYPE_DEFAULT, 0};
    const weft_reduce_args *p = odd(30) ? NULL : &r;
    weft_var_args v = {a->t[0], a->s[0], a->flag[0], a->d[0], 0};
    weft_norm_args n = {a->t[0], a->s[0], a->flag[0], a->d[0], 0};
    switch (test_next(&rng) % 16) {
    case 0:
        T("sum", (weft_sum)(p));
        break;
    case 1:
        T("prod", (weft_prod)(p));
        break;
    case 2:
        T("mean", (weft_mean)(p));
        break;
    case 3:
        T("max", (weft_max)(p));
        break;
    case 4:
        T("min", (weft_min)(p));
        break;
    case 5:
        T("logsumexp", (weft_logsumexp)(p));
        break;
    case 6:
        T("any", (weft_any)(p));
        break;
    case 7:
        T("all", (weft_all)(p));
        break;
    case 8:
        T("count_nonzero", (weft_count_nonzero)(p));
        break;
    case 9:
        T("argmax", (weft_argmax)(p));
        break;
    case 10:
        T("argmin", (weft_argmin)(p));
        break;
    case 11:
        T("var", (weft_var)(p ? &v : NULL));
        break;
    case 12:
        T("std", (weft_std)(p ? &v : NULL));
        break;
    case 13:
        T("norm", (weft_norm)(p ? &n : NULL));
        break;
    case 14:
        T("cumsum", weft_cumsum(a->t[0], INT(a->i[0])));
        break;
    default:
        T("cumprod", weft_cumprod(a->t[0], INT(a->i[0])));
    }
}

static void values(arguments *a)
{
    weft_index_term terms[LIST];
    weft_tensor out[3] = {WEFT_NONE, WEFT_NONE, WEFT_NONE};
    weft_isclose_args close = {a->t[0], a->t[1], a->d[0], a->d[1], a->flag[0], 0};
    for (int i = 0; i < LIST; i++) {
        terms[i] = (weft_index_term){odd(20) ? INT(integer()) : INT(test_between(&rng, 0, 3)),
                                     integer(), integer(), integer()};
    }
    switch (test_next(&rng) % 7) {
    case 0:
    case 1:
        T("index", (weft_index)(a->t[0], odd(20) ? NULL : terms, INT(test_between(&rng, -1, 4))));
        break;
    case 2:
        T("isclose", (weft_isclose)(odd(20) ? NULL : &close));
        T("allclose", (weft_allclose)(odd(20) ? NULL : &close));
        break;
    case 3:
        T("nonzero", weft_nonzero(a->t[0]));
        break;
    case 4:
        T("masked_select",
          weft_masked_select(a->t[0], odd(2) ? weft_logical_not(live[0]) : a->t[1]));
        break;
    case 5:
        S("unique", weft_unique(a->t[0], odd(4) ? NULL : &out[0], odd(4) ? NULL : &out[1],
                                odd(4) ? NULL : &out[2]));
        break;
    default:
        T("searchsorted", weft_searchsorted(a->t[0], a->t[1], a->flag[0]));
    }
}

static void views(arguments *a)
{
    weft_tensor x = a->t[0];
    weft_tensor out[LIST];
    int64_t sizes[LIST] = {a->i[0], a->i[1], a->i[2], a->i[3], 1, 2, 0, 1};
    switch (test_next(&rng) % 20) {
    case 0:
        T("reshape", weft_reshape(x, a->s[0]));
        break;
    case 1:
        T("flatten", weft_flatten(x, INT(a->i[0]), INT(a->i[1])));
        break;
    case 2:
        T("squeeze", weft_squeeze(x, a->s[0]));
        break;
    case 3:
        T("unsqueeze", weft_unsqueeze(x, INT(a->i[0])));
        break;
    case 4:
        T("transpose", weft_transpose(x, INT(a->i[0]), INT(a->i[1])));
        break;
    case 5:
        T("permute", weft_permute(x, a->s[0]));
        break;
    case 6:
        T("expand", weft_expand(x, a->s[0]));
        break;
    case 7:
        T("broadcast_to", weft_broadcast_to(x, a->s[0]));
        break;
    case 8:
        T("slice", weft_slice(x, INT(a->i[0]), a->i[1], a->i[2], a->i[3]));
        break;
    case 9:
        T("narrow", weft_narrow(x, INT(a->i[0]), a->i[1], a->i[2]));
        break;
    case 10:
        T("select", weft_select(x, INT(a->i[0]), a->i[1]));
        break;
    case 11:
        T("flip", weft_flip(x, a->s[0]));
        break;
    case 12:
        T("as_strided", weft_as_strided(x, a->s[0], a->s[1], a->i[0]));
        break;
    case 13:
        T("diagonal", weft_diagonal(x, a->i[0], INT(a->i[1]), INT(a->i[2])));
        break;
    case 14:
        T("unfold", weft_unfold(x, INT(a->i[0]), a->i[1], a->i[2]));
        break;
    case 15:
        S("split", weft_split(x, INT(a->i[4]), odd(20) ? NULL : sizes, a->n, odd(20) ? NULL : out));
        break;
    case 16:
        S("chunk", weft_chunk(x, INT(a->i[4]), a->n, odd(20) ? NULL : out));
        break;
    case 17:
        T("detach", weft_detach(x));
        break;
    case 18:
        T("contiguous", weft_contiguous(x));
        break;
    default:
        T("cast", weft_cast(x, a->dtype));
    }
}

static void movement(arguments *a)
{
    weft_tensor x = a->t[0], v, i;
    switch (test_next(&rng) % 22) {
    case 0:
        T("concat", weft_concat(odd(20) ? NULL : a->list, a->n, INT(a->i[0])));
        break;
    case 1:
        T("stack", weft_stack(odd(20) ? NULL : a->list, a->n, INT(a->i[0])));
        break;
    case 2:
        T("pad", weft_pad(x, a->s[0], a->s[1], a->d[0]));
        break;
    case 3:
        T("roll", weft_roll(x, a->s[0], a->s[1]));
        break;
    case 4:
        T("tril", weft_tril(x, a->i[0]));
        break;
    case 5:
        T("triu", weft_triu(x, a->i[0]));
        break;
    case 6:
        T("tile", weft_tile(x, a->s[0]));
        break;
    case 7:
        T("repeat", weft_repeat(x, a->i[0], INT(a->i[1])));
        break;
    case 8:
        T("take_along", weft_take_along(x, INT(a->i[0]), a->t[1]));
        break;
    case 9:
        T("gather", weft_gather(x, INT(a->i[0]), a->t[1]));
        break;
    case 10:
        T("index_select", weft_index_select(x, INT(a->i[0]), a->t[1]));
        break;
    case 11:
        T("embedding", weft_embedding(x, a->t[1]));
        break;
    case 12:
        T("scatter_add", weft_scatter_add(x, INT(a->i[0]), a->t[1], a->t[2]));
        break;
    case 13:
        T("index_add", weft_index_add(x, INT(a->i[0]), a->t[1], a->t[2]));
        break;
    case 14:
        T("one_hot", weft_one_hot(x, a->i[0], a->dtype));
        break;
    case 15:
        S("sort", weft_sort(x, INT(a->i[0]), a->flag[0], odd(3) ? NULL : &v, odd(3) ? NULL : &i));
        break;
    case 16:
        T("argsort", weft_argsort(x, INT(a->i[0]), a->flag[0]));
        break;
    case 17:
        S("topk",
          weft_topk(x, a->i[0], INT(a->i[1]), a->flag[0], odd(3) ? NULL : &v, odd(3) ? NULL : &i));
        break;
    case 18:
        T("clone", weft_clone(x));
        break;
    case 19:
        S("scatter_add", weft_scatter_add_(x, INT(a->i[0]), a->t[1], a->t[2]));
        break;
    case 20:
        S("index_add", weft_index_add_(x, INT(a->i[0]), a->t[1], a->t[2]));
        break;
    default:
        S("masked_fill", weft_masked_fill_(x, a->t[1], a->t[2]));
    }
}

static void creation(arguments *a)
{
    static double memory[2048];
    weft_rand_args r = {a->s[0], a->dtype, a->d[0], a->d[1], NULL, 0};
    weft_randn_args n = {a->s[0], a->dtype, a->d[0], a->d[1], NULL, 0};
    weft_randint_args ri = {a->s[0], a->i[0], a->i[1], a->dtype, NULL, 0};
    weft_bernoulli_args b = {a->s[0], a->d[0], a->dtype, NULL, 0};
    weft_randperm_args p = {a->i[0], a->dtype, NULL, 0};
    weft_multinomial_args mn = {a->t[0], a->i[0], a->flag[0], NULL, 0};
    int64_t strides[WEFT_MAX_RANK] = {a->i[0], a->i[1], a->i[2]};
    weft_blob_args m = {odd(10) ? NULL : (char *)memory + odd(10),
                        a->s[0],
                        a->dtype,
                        odd(2) ? NULL : strides,
                        NULL,
                        NULL,
                        a->flag[0],
                        0};
    switch (test_next(&rng) % 18) {
    case 0:
        T("zeros", weft_zeros(a->s[0], a->dtype));
        break;
    case 1:
        T("ones", weft_ones(a->s[0], a->dtype));
        break;
    case 2:
        T("full", weft_full(a->s[0], a->d[0], a->dtype));
        break;
    case 3:
        T("zeros_like", weft_zeros_like(a->t[0]));
        break;
    case 4:
        T("ones_like", weft_ones_like(a->t[0]));
        break;
    case 5:
        T("full_like", weft_full_like(a->t[0], a->d[0]));
        break;
    case 6:
        T("arange", weft_arange(a->d[0], a->d[1], a->d[2], a->dtype));
        break;
    case 7:
        T("linspace", weft_linspace(a->d[0], a->d[1], a->i[0], a->dtype));
        break;
    case 8:
        T("eye", weft_eye(a->i[0], a->i[1], a->i[2], a->dtype));
        break;
    case 9:
        T("scalar", weft_scalar(a->d[0], a->dtype));
        break;
    case 10:
        T("rand", (weft_rand)(odd(20) ? NULL : &r));
        break;
    case 11:
        T("randn", (weft_randn)(odd(20) ? NULL : &n));
        break;
    case 12:
        T("randint", (weft_randint)(odd(20) ? NULL : &ri));
        break;
    case 13:
        T("bernoulli", (weft_bernoulli)(odd(20) ? NULL : &b));
        break;
    case 14:
        T("randperm", (weft_randperm)(odd(20) ? NULL : &p));
        break;
    case 16:
        T("multinomial", (weft_multinomial)(odd(20) ? NULL : &mn));
        break;
    case 15:
        T("from_data", weft_from_data(odd(10) ? NULL : memory, a->s[0], a->dtype));
        break;
    default:
        T("from_blob", (weft_from_blob)(odd(20) ? NULL : &m));
    }
}

static void layers(arguments *a)
{
    weft_tensor x = a->t[0], w = a->t[1], b = odd(2) ? WEFT_NONE : a->t[2], indices;
    weft_layer_norm_args ln = {x, w, b, INT(a->i[0]), a->d[0], 0};
    weft_rms_norm_args rn = {x, w, INT(a->i[0]), a->d[0], 0};
    weft_batch_norm_args bn = {x, w, b, a->t[2], a->t[3], a->flag[0], a->d[0], a->d[1], 0};
    weft_conv2d_args cv = {x, w, b, a->s[0], a->s[1], a->s[2], a->i[0], 0};
    weft_pool2d_args pl = {x,
                           a->s[0],
                           a->s[1],
                           odd(2) ? a->s[2] : (weft_shape){0},
                           (weft_shape){0},
                           a->flag[0],
                           a->flag[1],
                           odd(2) ? &indices : NULL,
                           0};
    weft_attention_args at = {x, w, a->t[2], odd(2) ? WEFT_NONE : a->t[3], a->flag[0], a->d[0], 0};
    weft_dropout_args dr = {x, a->d[0], a->flag[0], NULL, 0};
    weft_cross_entropy_args ce = {x, w, (weft_reduction)test_between(&rng, -1, 4), a->i[0], a->d[0],
                                  b, 0};
    weft_loss_args ls = {x,          w, (weft_reduction)test_between(&rng, -1, 4),
                         a->d[0],    b, odd(2) ? WEFT_NONE : a->t[3],
                         a->flag[0], 0};
    bool null = odd(30);
    switch (test_next(&rng) % 20) {
    case 0:
        T("matmul", weft_matmul(x, w));
        break;
    case 1:
        T("linear", weft_linear(x, w, b));
        break;
    case 2:
        T("softmax", weft_softmax(x, INT(a->i[0])));
        break;
    case 3:
        T("log_softmax", weft_log_softmax(x, INT(a->i[0])));
        break;
    case 4:
        T("layer_norm", (weft_layer_norm)(null ? NULL : &ln));
        break;
    case 5:
        T("rms_norm", (weft_rms_norm)(null ? NULL : &rn));
        break;
    case 6:
        T("batch_norm", (weft_batch_norm)(null ? NULL : &bn));
        break;
    case 7:
    case 8:
        T("conv2d", (weft_conv2d)(null ? NULL : &cv));
        break;
    case 9:
        T("max_pool2d", (weft_max_pool2d)(null ? NULL : &pl));
        break;
    case 10:
        T("avg_pool2d", (weft_avg_pool2d)(null ? NULL : &pl));
        break;
    case 11:
        T("scaled_dot_product_attention", (weft_scaled_dot_product_attention)(null ? NULL : &at));
        break;
    case 12:
        T("dropout", (weft_dropout)(null ? NULL : &dr));
        break;
    case 13:
        T("cross_entropy", (weft_cross_entropy)(null ? NULL : &ce));
        break;
    case 14:
        T("nll_loss", (weft_nll_loss)(null ? NULL : &ce));
        break;
    case 15:
        T("mse_loss", (weft_mse_loss)(null ? NULL : &ls));
        break;
    case 16:
        T("huber_loss", (weft_huber_loss)(null ? NULL : &ls));
        break;
    case 17:
        T("binary_cross_entropy", (weft_binary_cross_entropy)(null ? NULL : &ls));
        break;
    case 18:
        T("kl_div", (weft_kl_div)(null ? NULL : &ls));
        break;
    default:
        T("bce_with_logits", (weft_bce_with_logits)(null ? NULL : &ls));
    }
}

/* Letters, commas and arrows in any order, or (half of the time) an equation. */
static const char *equation(char text[16])
{
    static const char *const sound[] = {"ij,jk->ik",   "ij,jk",   "ii",
                                        "...i,i->...", "i,j->ij", "ij->j"};
    static const char signs[] = "ijkAz,,->. .-...";
    if (odd(2)) {
        return sound[test_next(&rng) % 6];
    }
    int n = (int)(test_next(&rng) % 16);
    for (int i = 0; i < n; i++) {
        text[i] = odd(20) ? (char)test_next(&rng) : signs[test_next(&rng) % 16];
    }
    text[n] = 0;
    return text;
}

static void compositions(arguments *a)
{
    weft_tensor x = a->t[0], w = a->t[1], b = odd(2) ? WEFT_NONE : a->t[2];
    weft_group_norm_args gn = {x, a->i[0], w, b, a->d[0], 0};
    weft_instance_norm_args in = {x, w, b, a->d[0], 0};
    weft_conv2d_args cv = {x, w, b, a->s[0], a->s[1], a->s[2], a->i[0], 0};
    weft_conv_transpose_args ct = {
        x, w, b, a->s[0], a->s[1], odd(2) ? (weft_shape){0} : a->s[2], a->s[2], a->i[0], 0};
    weft_interpolate_args ip = {
        x,          a->s[0], odd(2) ? 0 : a->d[0], (weft_interpolation)test_between(&rng, -1, 3),
        a->flag[0], 0};
    char text[16];
    bool null = odd(30);
    switch (test_next(&rng) % 11) {
    case 9:
        T("index_get", weft_index_get(x, null ? NULL : a->list, INT(test_between(&rng, -1, 4))));
        break;
    case 10:
        T("index_put",
          weft_index_put(x, null ? NULL : a->list, INT(test_between(&rng, -1, 3)), w, a->flag[0]));
        break;
    case 0:
        T("einsum",
          (weft_einsum)(null ? NULL : equation(text), a->list, INT(test_between(&rng, -1, 4))));
        break;
    case 1:
        T("group_norm", (weft_group_norm)(null ? NULL : &gn));
        break;
    case 2:
        T("instance_norm", (weft_instance_norm)(null ? NULL : &in));
        break;
    case 3:
        T("conv1d", (weft_conv1d)(null ? NULL : &cv));
        break;
    case 4:
        T("conv_transpose1d", (weft_conv_transpose1d)(null ? NULL : &ct));
        break;
    case 5:
        T("conv_transpose2d", (weft_conv_transpose2d)(null ? NULL : &ct));
        break;
    case 6:
        T("adaptive_avg_pool2d", weft_adaptive_avg_pool2d(x, a->s[0]));
        break;
    case 7:
        T("interpolate", (weft_interpolate)(null ? NULL : &ip));
        break;
    default:
        T("pad_mode", weft_pad_mode(x, a->s[0], a->s[1], (weft_padding)test_between(&rng, -1, 3)));
    }
}

static weft_tensor no_hook(void *user, weft_tensor grad)
{
    (void)user;
    (void)grad;
    return WEFT_NONE;
}

static weft_status give_ones(void *user, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    (void)user, (void)in, (void)n_in;
    for (int i = 0; i < n_out; i++) {
        out[i] = weft_ones(weft_shape(2), WEFT_F32);
    }
    return weft_error_status(out[0]);
}

static void gradients(arguments *a)
{
    weft_tensor x = a->t[0], y = weft_mul(x, a->t[1]), grads[4];
    weft_backward_args b = {odd(2) ? y : x, odd(2) ? WEFT_NONE : a->t[2], a->flag[0], a->flag[1],
                            0};
    weft_grad_of_args g = {odd(20) ? NULL : &y,
                           INT(test_between(&rng, -1, 1)),
                           odd(20) ? NULL : a->list,
                           INT(test_between(&rng, -1, 4)),
                           odd(20) ? NULL : grads,
                           NULL,
                           a->flag[0],
                           a->flag[1],
                           odd(2),
                           0};
    weft_function none = {0};
    a->passes_on |= !weft_ok(y);
    switch (test_next(&rng) % 12) {
    case 0:
    case 1:
        S("backward", (weft_backward)(odd(20) ? NULL : &b));
        break;
    case 2:
    case 3:
        S("grad_of", (weft_grad_of)(odd(20) ? NULL : &g));
        break;
    case 4:
        T("grad", weft_grad(x));
        break;
    case 5:
        S("set_grad", weft_set_grad(x, a->t[1]));
        break;
    case 6:
        S("retain_grad", weft_retain_grad(x));
        break;
    case 7:
        weft_clear_error();
        if (weft_register_hook(x, odd(2) ? NULL : no_hook, NULL, NULL) == 0) {
            judge("hook", weft_last_status(), weft_last_error(), a->passes_on);
            cr_assert_neq(weft_last_status(), WEFT_OK);
        }
        break;
    case 8:
        S("remove_hook", weft_remove_hook(x, (uint64_t)a->i[0]));
        break;
    case 9:
        S("apply", weft_apply(odd(2) ? NULL : &none, NULL, a->list, a->n, grads, INT(a->i[0])));
        break;
    case 10:
        S("remat", weft_remat(odd(8) ? NULL : give_ones, NULL, a->list, a->n, grads, INT(a->i[0])));
        break;
    default:
        S("gradcheck", (weft_gradcheck)(NULL));
    }
}

static void reading(arguments *a, FILE *sink)
{
    weft_tensor x = a->t[0];
    double value, buffer[64];
    char text[40];
    weft_scope wild = {(uint32_t)test_between(&rng, 0, 5), (uint32_t)test_next(&rng),
                       test_next(&rng)};
    switch (test_next(&rng) % 17) {
    case 0:
        S("item", weft_item(x, odd(10) ? NULL : &value));
        break;
    case 1:
        S("to_array", weft_to_array(x, odd(10) ? NULL : buffer,
                                    odd(4)                ? a->i[0]
                                    : weft_numel(x) <= 64 ? weft_numel(x)
                                                          : -1,
                                    a->dtype));
        break;
    case 2:
        S("print", weft_fprint(odd(10) ? NULL : sink, x));
        break;
    case 3:
        Q(weft_to_string(x, odd(2) ? NULL : text, odd(2) ? 0 : sizeof text));
        break;
    case 4:
        S("set_name", weft_set_name(x, odd(3) ? NULL : "a name of some length, longer than most"));
        break;
    case 5:
        Q(weft_item_f64(x));
        Q(weft_item_i64(x));
        Q(weft_data(x));
        Q(weft_data_mut(x));
        break;
    case 6:
        Q(weft_rank(x));
        Q(weft_shape_of(x));
        Q(weft_dim(x, INT(a->i[0])));
        Q(weft_stride(x, INT(a->i[0])));
        Q(weft_dtype_of(x));
        break;
    case 7:
        Q(weft_numel(x));
        Q(weft_nbytes(x));
        Q(weft_offset(x));
        Q(weft_is_contiguous(x));
        Q(weft_write_count(x));
        Q(weft_shares_memory(x, a->t[1]));
        break;
    case 8:
        Q(weft_name(x));
        Q(weft_site(x));
        Q(weft_error_text(x));
        Q(weft_requires_grad(x));
        Q(weft_is_leaf(x));
        Q(weft_has_grad(x));
        break;
    case 9:
        S("scope_end", weft_scope_end(wild));
        break;
    case 10:
        Q(weft_scope_give(wild, x));
        break;
    case 11:
        S("requires_grad", weft_requires_grad_(x, a->flag[0]));
        break;
    case 12:
        S("fill", weft_fill_(x, a->d[0]));
        break;
    case 13:
        S("copy", weft_copy_(x, a->t[1]));
        break;
    case 14:
        Q(weft_dtype_name(a->dtype));
        Q(weft_dtype_size(a->dtype));
        Q(weft_promote(a->dtype, (weft_dtype)a->i[0]));
        Q(weft_status_name((weft_status)a->i[0]));
        break;
    case 15: {
        weft_clear_error();
        DLManagedTensorVersioned *c = weft_to_dlpack(x);
        if (c) {
            c->deleter(c);
        }
        T("from_dlpack", weft_from_dlpack(NULL));
        break;
    }
    default:
        S("tape_print", weft_tape_print(odd(10) ? NULL : sink, x));
    }
}

/* -- the run ------------------------------------------------------------------------------------------- */

static void one_call(void *sink)
{
    arguments a;
    weft_scope sc = weft_scope_begin();
    draw(&a);
    switch (test_next(&rng) % 9) {
    case 0:
    case 1:
        rows(&a);
        break;
    case 2:
        reductions(&a);
        break;
    case 3:
        odd(3) ? values(&a) : views(&a);
        break;
    case 4:
        movement(&a);
        break;
    case 5:
        creation(&a);
        break;
    case 6:
        odd(3) ? compositions(&a) : layers(&a);
        break;
    case 7:
        gradients(&a);
        break;
    default:
        reading(&a, sink);
    }
    weft_scope_end(sc);
}

Test(invalid_calls, random)
{
    FILE *sink = fopen("/dev/null", "w");
    cr_assert(sink);
    const double times = run_seeds(10, &(calls){.n = 10000, .one = one_call, .user = sink});
    fclose(sink);
    cr_assert_gt((double)failures, 80000 * times, "only %lld calls failed", (long long)failures);
    cr_assert_gt((double)successes, 25000 * times, "only %lld calls passed", (long long)successes);
}

/* The same while they are recorded: what fails then fails with a status and a message, too. */
Test(invalid_calls, recorded)
{
    FILE *sink = fopen("/dev/null", "w");
    cr_assert(sink);
    recorded.one = one_call;
    recorded.user = sink;
    const double times = run_seeds(
        5, &(calls){.n = 1000, .open = open_regions, .one = in_a_trace, .close = close_regions});
    fclose(sink);
    cr_assert_gt((double)failures, 8000 * times, "only %lld calls failed", (long long)failures);
    cr_assert_gt((double)successes, 2000 * times, "only %lld calls passed", (long long)successes);
    cr_assert_gt((double)recorded.refused, 100 * times, "only %lld refused",
                 (long long)recorded.refused);
}

/* Scopes, lifetimes and globals with nothing or nonsense. */
Test(invalid_calls, nothing)
{
    test_baseline before = test_baseline_take();
    weft_memory_get_stats(NULL);
    cr_assert_eq(weft_assign(NULL, weft_f(1)), WEFT_EINVALID);
    cr_assert_eq(weft_set_num_threads(0), WEFT_EINVALID);
    cr_assert_eq(weft_set_num_threads(-5), WEFT_EINVALID);
    cr_assert_eq(weft_set_num_threads(1 << 20), WEFT_EINVALID);
    cr_assert_eq(weft_free(WEFT_NONE), WEFT_OK);
    cr_assert_eq(weft_leak_report(NULL), before.stats.kept_tensors);
    check_error("keep", weft_keep(weft_neg(WEFT_NONE)), WEFT_EINVALID, "neg");
    weft_no_grad_end(); /* one too many */
    cr_assert(weft_is_grad_enabled());
    weft_doctor(NULL);
    check_baseline("nothing", &before);
}
