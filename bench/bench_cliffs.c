/*
 * bench/bench_cliffs.c -- is there a cliff: does an op become much slower when an extent grows by one, or when its operand
 * is a view with other strides?
 *
 *   bench_cliffs [only cases that contain this text]
 *
 * Each op runs on n x n operands (or what its case makes of n), beside itself at n + 1 and beside itself on views of the
 * same shape: transposed, every other element of rows twice as long, rows that begin one element into longer ones, rows
 * in reverse. "grown": time a unit of work at n + 1 over that at n; "view": the slowest view's time over that of the
 * contiguous operand, "of" says which. The worst over n are one line. Both shall be at most 2 (Paszke et al. 2019, section
 * 3: complexity is to stay inside, without performance cliffs). All sides of a comparison run in turns.
 */
#include <stdio.h>
#include <string.h>

#include "bench/support/bench.h"
#include "weft/weft.h"

typedef enum layout { CONTIGUOUS, TRANSPOSED, EVERY_OTHER, OFFSET, REVERSED, LAYOUTS } layout;
static const char *const layout_name[LAYOUTS] = {"contiguous", "transposed", "every other",
                                                 "offset by one", "reversed"};

typedef struct problem {
    int64_t n;
    weft_dtype dtype;
    weft_tensor x, y, z, row, col, index, cond;
} problem;

static weft_tensor good(weft_tensor t)
{
    if (!weft_ok(t)) {
        bench_die(weft_last_error());
    }
    return t;
}

/* Normal numbers, integers of 0 to 99. */
static weft_tensor numbers(weft_shape shape, weft_dtype dtype)
{
    static weft_generator g = {7, 0};
    if (dtype == WEFT_F16 || dtype == WEFT_BF16 || dtype == WEFT_F32 || dtype == WEFT_F64) {
        return good(weft_randn(.shape = shape, .dtype = dtype, .generator = &g));
    }
    return good(
        weft_randint(.shape = shape, .low = 0, .high = 100, .dtype = dtype, .generator = &g));
}

/* [rows, cols] that lies in memory as `l` says. */
static weft_tensor laid_out(int64_t rows, int64_t cols, weft_dtype dtype, layout l)
{
    switch (l) {
    case TRANSPOSED:
        return good(weft_transpose(numbers(weft_shape(cols, rows), dtype), 0, 1));
    case EVERY_OTHER:
        return good(weft_slice(numbers(weft_shape(rows, 2 * cols), dtype), 1, 0, WEFT_OMIT, 2));
    case OFFSET:
        return good(weft_narrow(numbers(weft_shape(rows, cols + 3), dtype), 1, 1, cols));
    case REVERSED:
        return good(weft_flip(numbers(weft_shape(rows, cols), dtype), weft_axes(1)));
    case CONTIGUOUS:
    case LAYOUTS:
        break;
    }
    return numbers(weft_shape(rows, cols), dtype);
}

/* -- what the operands are ------------------------------------------------------------------------------------ */
static void square(problem *p, layout l)
{
    const int64_t n = p->n;
    p->x = laid_out(n, n, p->dtype, l);
    p->y = numbers(weft_shape(n, n), p->dtype);
    p->z = numbers(weft_shape(n, n), p->dtype);
    p->row = numbers(weft_shape(n), p->dtype);
    p->col = numbers(weft_shape(n, 1), p->dtype);
    p->index = good(weft_randint(.shape = weft_shape(n), .low = 0, .high = n, .dtype = WEFT_I64));
    p->cond = good(weft_less(numbers(weft_shape(n, n), WEFT_F32), weft_f(0.5)));
}
/* [8, n, 14, 14] images whose channels lie as `l` says, [n, n, 3, 3] filters. */
static void images(problem *p, layout l)
{
    const int64_t n = p->n;
    p->x = good(weft_reshape(laid_out(n, 8 * 196, p->dtype, CONTIGUOUS), weft_shape(n, 8, 14, 14)));
    p->x = l == TRANSPOSED ? good(weft_transpose(p->x, 0, 1))
                           : good(weft_contiguous(weft_transpose(p->x, 0, 1)));
    p->y = numbers(weft_shape(n, n, 3, 3), p->dtype);
    p->row = numbers(weft_shape(n), p->dtype);
}
/* [8, n, 64]: four heads of 16 from one projection, as models lay them, or a copy. */
static void heads(problem *p, layout l)
{
    weft_tensor *out[3] = {&p->x, &p->y, &p->z};
    const weft_tensor all = numbers(weft_shape(2, p->n, 4, 48), p->dtype);
    for (int i = 0; i < 3; i++) {
        *out[i] = good(weft_transpose(weft_narrow(all, 3, 16 * i, 16), 1, 2));
        *out[i] = l == TRANSPOSED ? *out[i] : good(weft_contiguous(*out[i]));
    }
}
/* One head of n elements for 64 positions. */
static void wide_heads(problem *p, layout l)
{
    const int64_t n = p->n;
    p->x = good(weft_reshape(laid_out(256, n, p->dtype, l), weft_shape(4, 64, n)));
    p->y = numbers(weft_shape(4, 64, n), p->dtype);
    p->z = numbers(weft_shape(4, 64, n), p->dtype);
}
/* [16, n, n] matrices. */
static void batched(problem *p, layout l)
{
    const int64_t n = p->n;
    p->x = good(weft_reshape(laid_out(16 * n, n, p->dtype, l == TRANSPOSED ? CONTIGUOUS : l),
                             weft_shape(16, n, n)));
    p->x = l == TRANSPOSED ? good(weft_transpose(p->x, 1, 2)) : p->x;
    p->y = numbers(weft_shape(16, n, n), p->dtype);
}

static double one(double n)
{
    return n;
}
static double two(double n)
{
    return n * n;
}
static double three(double n)
{
    return n * n * n;
}

/* -- the ops -------------------------------------------------------------------------------------------------- */
#define OP(name, expression)                                                                       \
    static weft_tensor name(const problem *p)                                                      \
    {                                                                                              \
        return expression;                                                                         \
    }
OP(op_add, weft_add(p->x, p->y))
OP(op_add_row, weft_add(p->x, p->row))
OP(op_add_col, weft_mul(p->x, p->col))
OP(op_exp, weft_exp(p->x))
OP(op_gelu, weft_gelu(p->x))
OP(op_where, weft_where(p->cond, p->x, p->y))
OP(op_less, weft_less(p->x, p->y))
OP(op_copy, weft_clone(p->x))
OP(op_to_f32, weft_cast(p->x, WEFT_F32))
OP(op_to_bf16, weft_cast(p->x, WEFT_BF16))
OP(op_to_i64, weft_cast(p->x, WEFT_I64))
OP(op_transpose, weft_contiguous(weft_transpose(p->x, 0, 1)))
OP(op_sum, weft_sum(p->x))
OP(op_sum_inner, weft_sum(p->x, .axes = weft_axes(1)))
OP(op_sum_outer, weft_sum(p->x, .axes = weft_axes(0)))
OP(op_max_inner, weft_max(p->x, .axes = weft_axes(1)))
OP(op_max_outer, weft_max(p->x, .axes = weft_axes(0)))
OP(op_argmax, weft_argmax(p->x, .axes = weft_axes(1)))
OP(op_var, weft_var(p->x, .axes = weft_axes(1)))
OP(op_logsumexp, weft_logsumexp(p->x, .axes = weft_axes(1)))
OP(op_any, weft_any(p->cond, .axes = weft_axes(1)))
OP(op_cumsum, weft_cumsum(p->x, 1))
OP(op_cumsum_outer, weft_cumsum(p->x, 0))
OP(op_softmax, weft_softmax(p->x, -1))
OP(op_softmax_outer, weft_softmax(p->x, 0))
OP(op_layer_norm, weft_layer_norm(p->x, .weight = p->row, .bias = p->row))
OP(op_cross_entropy, weft_cross_entropy(p->x, p->index))
OP(op_mse, weft_mse_loss(p->x, p->y))
OP(op_embedding, weft_embedding(p->x, p->index))
OP(op_take_along, weft_take_along(p->x, 1, weft_unsqueeze(p->index, 1)))
OP(op_index_select, weft_index_select(p->x, 1, p->index))
OP(op_index_add, weft_index_add(p->y, 0, p->index, p->x))
OP(op_index_put, weft_index_put(p->y, WEFT_LIST(p->index), p->x, false))
OP(op_concat, weft_concat(WEFT_LIST(p->x, p->y), 0))
OP(op_concat_inner, weft_concat(WEFT_LIST(p->x, p->y), 1))
OP(op_pad, weft_pad(p->x, weft_shape(1, 1), weft_shape(1, 1), 0))
OP(op_roll, weft_roll(p->x, weft_shape(1), weft_axes(1)))
OP(op_tril, weft_tril(p->x, 0))
OP(op_repeat, weft_repeat(p->x, 2, 1))
OP(op_sort, weft_argsort(p->x, -1, false))
OP(op_matmul, weft_matmul(p->x, p->y))
OP(op_matmul_t, weft_matmul(p->y, weft_transpose(p->x, 0, 1)))
OP(op_linear, weft_linear(p->x, p->y, p->row))
OP(op_matvec, weft_matmul(p->x, p->row))
OP(op_bmm, weft_matmul(p->x, p->y))
OP(op_conv, weft_conv2d(p->x, p->y, p->row, .padding = weft_shape(1)))
OP(op_conv_depthwise,
   weft_conv2d(p->x, weft_narrow(p->y, 1, 0, 1), .padding = weft_shape(1), .groups = p->n))
OP(op_max_pool, weft_max_pool2d(p->x, .kernel = weft_shape(2)))
OP(op_avg_pool, weft_avg_pool2d(p->x, .kernel = weft_shape(3), .stride = weft_shape(1),
                                .padding = weft_shape(1)))
OP(op_channel_mean, weft_mean(p->x, .axes = weft_axes(0, 2, 3)))
OP(op_attention, weft_scaled_dot_product_attention(p->x, p->y, p->z, .causal = true))

typedef struct op_case {
    const char *name;
    weft_tensor (*op)(const problem *p);
    void (*make)(problem *p, layout l);
    double (*work)(double n);
    int64_t most;       /* n beyond which an op takes too long here */
    const char *dtypes; /* f: f32, b: bf16, d: f64, h: f16, i: i32, l: i64, u: u8 */
} op_case;

static const op_case op_cases[] = {
    {"add", op_add, square, two, 512, "fbdilu"},
    {"add a row", op_add_row, square, two, 512, "fb"},
    {"mul by a column", op_add_col, square, two, 512, "fb"},
    {"exp", op_exp, square, two, 512, "fbdh"},
    {"gelu", op_gelu, square, two, 512, "fb"},
    {"where", op_where, square, two, 512, "fbi"},
    {"less", op_less, square, two, 512, "fbi"},
    {"copy", op_copy, square, two, 512, "fbdu"},
    {"cast to f32", op_to_f32, square, two, 512, "bhdiu"},
    {"cast to bf16", op_to_bf16, square, two, 512, "fd"},
    {"cast to i64", op_to_i64, square, two, 512, "fi"},
    {"transposed copy", op_transpose, square, two, 512, "fbdu"},
    {"sum of all", op_sum, square, two, 512, "fbdil"},
    {"sum inner", op_sum_inner, square, two, 512, "fbdi"},
    {"sum outer", op_sum_outer, square, two, 512, "fbdi"},
    {"max inner", op_max_inner, square, two, 512, "fbi"},
    {"max outer", op_max_outer, square, two, 512, "fbi"},
    {"argmax", op_argmax, square, two, 512, "fi"},
    {"var", op_var, square, two, 512, "fb"},
    {"logsumexp", op_logsumexp, square, two, 512, "fb"},
    {"any", op_any, square, two, 512, "f"},
    {"cumsum inner", op_cumsum, square, two, 512, "fi"},
    {"cumsum outer", op_cumsum_outer, square, two, 512, "fi"},
    {"softmax", op_softmax, square, two, 512, "fb"},
    {"softmax outer", op_softmax_outer, square, two, 512, "fb"},
    {"layer_norm", op_layer_norm, square, two, 512, "fb"},
    {"cross_entropy", op_cross_entropy, square, two, 512, "fb"},
    {"mse_loss", op_mse, square, two, 512, "fb"},
    {"embedding", op_embedding, square, two, 512, "fb"},
    {"take_along", op_take_along, square, one, 512, "f"},
    {"index_select inner", op_index_select, square, two, 512, "fb"},
    {"index_add", op_index_add, square, two, 512, "fb"},
    {"index_put", op_index_put, square, two, 512, "fb"},
    {"concat", op_concat, square, two, 512, "fb"},
    {"concat inner", op_concat_inner, square, two, 512, "fb"},
    {"pad", op_pad, square, two, 512, "fb"},
    {"roll", op_roll, square, two, 512, "fb"},
    {"tril", op_tril, square, two, 512, "fb"},
    {"repeat", op_repeat, square, two, 512, "fb"},
    {"argsort", op_sort, square, two, 256, "fi"},
    {"matmul", op_matmul, square, three, 512, "fbdhi"},
    {"matmul by a transpose", op_matmul_t, square, three, 512, "fb"},
    {"linear", op_linear, square, three, 512, "fb"},
    {"matrix times vector", op_matvec, square, two, 512, "fbd"},
    {"matmul of 16", op_bmm, batched, three, 128, "fb"},
    {"conv2d 3x3", op_conv, images, two, 128, "fb"},
    {"conv2d depthwise", op_conv_depthwise, images, one, 128, "fb"},
    {"max_pool2d", op_max_pool, images, one, 128, "fb"},
    {"avg_pool2d", op_avg_pool, images, one, 128, "fb"},
    {"mean of channels", op_channel_mean, images, one, 128, "fb"},
    {"attention", op_attention, heads, two, 256, "fb"},
    {"attention, long heads", op_attention, wide_heads, one, 128, "fb"},
};

static weft_dtype dtype_of(char c)
{
    switch (c) {
    case 'b':
        return WEFT_BF16;
    case 'h':
        return WEFT_F16;
    case 'd':
        return WEFT_F64;
    case 'i':
        return WEFT_I32;
    case 'l':
        return WEFT_I64;
    case 'u':
        return WEFT_U8;
    default:
        return WEFT_F32;
    }
}

typedef struct op_run {
    const op_case *c;
    problem p;
} op_run;

static void run_op(void *arg)
{
    const op_run *r = arg;
    const weft_scope s = weft_scope_begin(); /* ops of several calls leave intermediates */
    r->c->op(&r->p);
    weft_scope_end(s);
}

typedef struct worst {
    double times;
    int64_t n;
    layout l;
    double us;
} worst;

static void compare(const op_case *c, weft_dtype dtype, int64_t n, int threads, worst *grown,
                    worst *view)
{
    const weft_scope s = weft_scope_begin();
    op_run runs[LAYOUTS + 1];
    bench_side sides[LAYOUTS + 1];
    layout of[LAYOUTS + 1] = {CONTIGUOUS};
    int count = 0;
    for (int l = CONTIGUOUS; l <= LAYOUTS; l++) {
        /* Images and heads have one other layout. */
        if (l > TRANSPOSED && l < LAYOUTS && (c->make == images || c->make == heads)) {
            continue;
        }
        runs[count] = (op_run){c, {.n = l == LAYOUTS ? n + 1 : n, .dtype = dtype}};
        c->make(&runs[count].p, l == LAYOUTS ? CONTIGUOUS : (layout)l);
        good(c->op(&runs[count].p));
        of[count] = (layout)l;
        sides[count] = (bench_side){.run = run_op, .arg = &runs[count]};
        count++;
    }
    bench_race(sides, count,
               &(bench_plan){.threads = threads, .rounds = bench_quick() ? 5 : 11, .batch = 2e-4});
    for (int i = 1; i < count; i++) {
        const bool more = of[i] == LAYOUTS;
        worst *w = more ? grown : view;
        double times = sides[i].median / sides[0].median;
        if (more) {
            times *= c->work((double)n) / c->work((double)(n + 1));
        }
        if (times > w->times) {
            *w = (worst){times, n, of[i], sides[i].median * 1e6};
        }
    }
    weft_scope_end(s);
}

static void cliff(const op_case *c, weft_dtype dtype, int threads)
{
    static const int64_t sizes[] = {15, 16, 32, 63, 64, 128, 256, 511, 512};
    worst grown = {0}, view = {0};
    weft_set_num_threads(threads);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i] <= c->most) {
            compare(c, dtype, sizes[i], threads, &grown, &view);
        }
    }
    bench_open("cliff", c->name, NULL, weft_dtype_name(dtype), threads);
    bench_number("grown", grown.times);
    bench_number("target_grown", 2);
    bench_number("n", (double)grown.n);
    bench_number("grown_us", grown.us);
    bench_number("view", view.times);
    bench_number("target_view", 2);
    bench_text("of", layout_name[view.l]);
    bench_number("view_n", (double)view.n);
    bench_number("view_us", view.us);
    bench_close();
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < sizeof op_cases / sizeof *op_cases; i++) {
        const op_case *c = &op_cases[i];
        if (!strstr(c->name, only)) {
            continue;
        }
        for (const char *d = c->dtypes; *d; d++) {
            for (int threads = 1; threads <= 2; threads++) {
                cliff(c, dtype_of(*d), threads);
            }
        }
    }
    return 0;
}
