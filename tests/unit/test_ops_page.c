/*
 * tests/unit/test_ops_page.c -- docs/ops.md says what the library does: the element types of rows that are not elementwise.
 *
 * Those of elementwise rows come from the table (and test_elementwise_rows holds it to them); the others stand in
 * tools/ops_table.c, since their inference is a function. Each is called with every type, and taken or refused.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static weft_tensor x, zeros, image; /* [4,4] and [1,1,4,4] of the type in question; i64 [4,4] */
static weft_dtype type;

static weft_tensor of_status(weft_status s, weft_tensor t)
{
    return s == WEFT_OK ? t : WEFT_NONE;
}
static weft_tensor sorted(void)
{
    weft_tensor v = WEFT_NONE;
    return of_status(weft_sort(x, 0, false, &v, NULL), v);
}
static weft_tensor largest(void)
{
    weft_tensor v = WEFT_NONE;
    return of_status(weft_topk(x, 1, 0, false, &v, NULL), v);
}

#define CALL(name, ...)                                                                            \
    static weft_tensor call_##name(void)                                                           \
    {                                                                                              \
        return __VA_ARGS__;                                                                        \
    }
#define CALLS(X)                                                                                   \
    X(sum, weft_sum(x))                                                                            \
    X(prod, weft_prod(x))                                                                          \
    X(max, weft_max(x))                                                                            \
    X(min, weft_min(x))                                                                            \
    X(mean, weft_mean(x))                                                                          \
    X(var, weft_var(x))                                                                            \
    X(std, weft_std(x))                                                                            \
    X(norm, weft_norm(x))                                                                          \
    X(logsumexp, weft_logsumexp(x))                                                                \
    X(any, weft_any(x))                                                                            \
    X(all, weft_all(x))                                                                            \
    X(count_nonzero, weft_count_nonzero(x))                                                        \
    X(argmax, weft_argmax(x))                                                                      \
    X(argmin, weft_argmin(x))                                                                      \
    X(cumsum, weft_cumsum(x, 0))                                                                   \
    X(cumprod, weft_cumprod(x, 0))                                                                 \
    X(reshape, weft_reshape(x, weft_shape(16)))                                                    \
    X(permute, weft_permute(x, weft_axes(1, 0)))                                                   \
    X(expand, weft_expand(x, weft_shape(2, 4, 4)))                                                 \
    X(slice, weft_slice(x, 0, 1, 2, 1))                                                            \
    X(as_strided, weft_as_strided(x, weft_shape(2), weft_shape(1), 0))                             \
    X(diagonal, weft_diagonal(x, 0, 0, 1))                                                         \
    X(detach, weft_detach(x))                                                                      \
    X(clone, weft_clone(x))                                                                        \
    X(cast, weft_cast(x, WEFT_F32))                                                                \
    X(concat, weft_concat(WEFT_LIST(x, x), 0))                                                     \
    X(pad, weft_pad(x, weft_shape(1, 0), weft_shape(0, 0), 0))                                     \
    X(pad_mode, weft_pad_mode(x, weft_shape(1, 0), weft_shape(0, 0), WEFT_PAD_REFLECT))            \
    X(roll, weft_roll(x, weft_shape(1), weft_axes(0)))                                             \
    X(tril, weft_tril(x, 0))                                                                       \
    X(triu, weft_triu(x, 0))                                                                       \
    X(take_along, weft_take_along(x, 0, zeros))                                                    \
    X(index_select, weft_index_select(x, 0, zeros))                                                \
    X(scatter_add, weft_scatter_add(x, 0, zeros, x))                                               \
    X(index_add, weft_index_add(x, 0, weft_select(zeros, 0, 0), x))                                \
    X(one_hot, weft_one_hot(x, 2, WEFT_F32))                                                       \
    X(sort, sorted())                                                                              \
    X(topk, largest())                                                                             \
    X(full, weft_full(weft_shape(2), 1, type))                                                     \
    X(arange, weft_arange(0, 2, 1, type))                                                          \
    X(linspace, weft_linspace(0, 1, 2, type))                                                      \
    X(eye, weft_eye(2, 2, 0, type))                                                                \
    X(rand, weft_rand(weft_shape(2), type))                                                        \
    X(randn, weft_randn(weft_shape(2), type))                                                      \
    X(randint, weft_randint(weft_shape(2), 0, 2, type))                                            \
    X(bernoulli, weft_bernoulli(weft_shape(2), .dtype = type))                                     \
    X(randperm, weft_randperm(2, type))                                                            \
    X(matmul, weft_matmul(x, x))                                                                   \
    X(linear, weft_linear(x, x, WEFT_NONE))                                                        \
    X(conv2d, weft_conv2d(image, image))                                                           \
    X(scaled_dot_product_attention, weft_scaled_dot_product_attention(image, image, image))        \
    X(softmax, weft_softmax(x, 0))                                                                 \
    X(log_softmax, weft_log_softmax(x, 0))                                                         \
    X(layer_norm, weft_layer_norm(x))                                                              \
    X(rms_norm, weft_rms_norm(x))                                                                  \
    X(batch_norm, weft_batch_norm(image, .training = true))                                        \
    X(max_pool2d, weft_max_pool2d(image, weft_shape(2)))                                           \
    X(avg_pool2d, weft_avg_pool2d(image, weft_shape(2)))                                           \
    X(cross_entropy, weft_cross_entropy(x, weft_select(zeros, 0, 0)))
CALLS(CALL)

static const struct {
    const char *name;
    weft_tensor (*call)(void);
} calls[] = {
#define ENTRY(name, ...) {#name, call_##name},
    CALLS(ENTRY)};

static char *page(void)
{
    FILE *f = fopen(WEFT_SOURCE_DIR "/docs/ops.md", "rb");
    cr_assert_not_null(f);
    char *text = calloc(1, 1 << 20);
    cr_assert_gt(fread(text, 1, (1 << 20) - 1, f), 1000);
    fclose(f);
    return text;
}

/* Cell `n` from 0 of a row's line says yes to dt. */
static bool cell_says_yes(const char *line, int n, int dt)
{
    bool counts = dt == WEFT_I32 || dt == WEFT_I64;
    for (int i = 0; i <= n; i++) {
        line = strchr(line, '|') + 1;
    }
    return strncmp(line, " yes ", 5) == 0 || (counts && strncmp(line, " i32, i64 ", 10) == 0);
}

Test(ops_page, element_types)
{
    char *text = page(), *sections = strstr(text, "\n## Reductions"), head[64];
    cr_assert_not_null(sections);
    for (int k = 0; k < COUNT(calls); k++) {
        snprintf(head, sizeof head, "\n| `%s` |", calls[k].name);
        const char *line = strstr(sections, head);
        cr_assert_not_null(line, "no row of %s", calls[k].name);
        for (int dt = WEFT_BOOL; dt < WEFT_DTYPE_COUNT; dt++) {
            int cell = test_is_float(dt) ? 2 : dt == WEFT_BOOL ? 4 : 3;
            weft_scope sc = weft_scope_begin();
            type = (weft_dtype)dt;
            x = weft_ones(weft_shape(4, 4), type);
            image = weft_ones(weft_shape(1, 1, 4, 4), type);
            zeros = weft_zeros(weft_shape(4, 4), WEFT_I64);
            bool taken = weft_ok(calls[k].call());
            cr_expect_eq(taken, cell_says_yes(line + 1, cell, dt), "%s of %s is %s", calls[k].name,
                         weft_dtype_name(type), taken ? "taken" : "refused");
            weft_scope_end(sc);
        }
    }
    free(text);
}
