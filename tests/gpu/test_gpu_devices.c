/*
 * tests/gpu/test_gpu_devices.c -- devices of 1 to 200 processors, and sizes around what launches are decided by: the host's bits.
 *
 * Which kernel runs, over how many blocks, and whether a row is cut into parts follows from how many processors there are, from
 * how long rows are and from where they begin. The first cases stand on the far side of each such border; the others draw processors, a shape
 * near a border, an element type, where its elements lie, and a function of them. What a device is like is what the runtime
 * believes of it, so the same cases run on any (script/gpu). WEFT_TEST_EFFORT, WEFT_FUZZ_SEED: more cases, others;
 * WEFT_TEST_CASE=N: case N alone.
 *
 * ctest: timeout=900
 */
#include "tests/gpu/equal.h"
#include "tests/gpu/gpu.h"
#include "tests/support/effort.h"

/* -- numbers ------------------------------------------------------------------------------------------------------ */
static uint64_t state;

static uint64_t bits(void)
{
    state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t z = state;
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static int64_t below(int64_t n)
{
    return (int64_t)(bits() % (uint64_t)n);
}

static int64_t one_of(const int64_t *list, size_t n)
{
    return list[below((int64_t)n)];
}
#define ONE_OF(...)                                                                                \
    one_of((const int64_t[]){__VA_ARGS__}, sizeof(const int64_t[]){__VA_ARGS__} / sizeof(int64_t))

/* -- cases -------------------------------------------------------------------------------------------------------- */
/* How rows lie: one behind the other, side by side, every other element, one for all, a value for each, and between two kept axes. */
typedef enum lie { ALONG, BESIDE, STEPPED, ONE_ROW, ONE_COLUMN, BETWEEN, LIES } lie;

typedef struct device_case {
    int64_t rows, n, first; /* first: elements of memory before */
    lie lies;
    weft_dtype type;
    int64_t processors;
    uint64_t seed;
    weft_device where;
} device_case;

enum { MOST = 8, SMALL = 1 << 17, LARGE = 1 << 20 };
typedef struct results {
    weft_tensor t[MOST];
    int n;
} results;

/* Of rows: what fits registers, shared memory and caches, lanes and blocks of the order, when a row is in parts. */
static int64_t draw_length(int64_t most)
{
    const int64_t near = ONE_OF(1, 2, 3, 8, 16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 1021,
                                1536, 2048, 3072, 4096, 8192, 12160, 12288, 24576, 32768, 40960,
                                65536, 131072, 140000, 262144, 524288);
    const int64_t n = near + (near > 2 ? below(3) - 1 : 0) + (below(4) ? 0 : below(8));
    return n < most ? n : 1 + n % most;
}

/* What is decided by processors: columns that a thread, or a block of 32, has each; rows of a block; threads wanted. */
static int64_t draw_rows(int64_t p, int64_t most)
{
    const int64_t near = ONE_OF(1, 2, 3, 4, 8, 16, 32, 33, 64, p, p, 2 * p, 8 * p, 32 * p, 32 * p,
                                64 * p, 64 * p, 256 * p, 256 * p, 512 * p / 16, 1000, 4096);
    const int64_t n = near + (near > 2 ? below(3) - 1 : 0);
    return n < most ? n : 1 + n % most;
}

static void draw_case(device_case *c)
{
    const bool large = below(8) == 0;
    const int64_t most = large ? LARGE : SMALL;
    c->processors = below(2)   ? ONE_OF(1, 2, 3, 4)
                    : below(2) ? 1 + below(200)
                               : ONE_OF(78, 108, 132, 148);
    if (large || below(2)) {
        c->n = draw_length(most);
        c->rows = draw_rows(c->processors, 1 + most / c->n);
    } else {
        c->rows = draw_rows(c->processors, most);
        c->n = draw_length(1 + most / c->rows);
    }
    c->first = below(3) ? 0 : below(9);
    c->lies = below(2) ? (below(2) ? BESIDE : ALONG) : (lie)below(LIES);
    c->type =
        (weft_dtype)ONE_OF(WEFT_F32, WEFT_F32, WEFT_F32, WEFT_BF16, WEFT_BF16, WEFT_F16, WEFT_F64);
}

/* [rows, n] of elements that are there already; BETWEEN: [a, b, n]. */
static weft_tensor view_of(const device_case *c, weft_tensor flat)
{
    const int64_t a = c->rows % 4 == 0 ? 4 : 1;
    const int64_t count = c->lies == ONE_ROW      ? c->n
                          : c->lies == ONE_COLUMN ? c->rows
                          : c->lies == STEPPED    ? 2 * c->rows * c->n
                                                  : c->rows * c->n;
    weft_tensor v = weft_narrow(flat, 0, c->first, count);
    switch (c->lies) {
    case ALONG:
        return weft_reshape(v, weft_shape(c->rows, c->n));
    case BESIDE:
        return weft_transpose(weft_reshape(v, weft_shape(c->n, c->rows)), 0, 1);
    case STEPPED:
        return weft_slice(weft_reshape(v, weft_shape(c->rows, 2 * c->n)), 1, 0, 2 * c->n, 2);
    case ONE_ROW:
        return weft_expand(v, weft_shape(c->rows, c->n));
    case ONE_COLUMN:
        return weft_expand(weft_reshape(v, weft_shape(c->rows, 1)), weft_shape(c->rows, c->n));
    case BETWEEN:
        return weft_transpose(weft_reshape(v, weft_shape(a, c->n, c->rows / a)), 1, 2);
    case LIES:
        break;
    }
    return v;
}

static weft_tensor draw(const device_case *c, weft_shape s, weft_dtype type, uint64_t number)
{
    weft_generator g = {c->seed, number << 32};
    return weft_to(weft_randn(s, type, .generator = &g), c->where);
}

static weft_tensor rows_of(const device_case *c, uint64_t number)
{
    return view_of(c, draw(c, weft_shape(2 * c->rows * c->n + c->first), c->type, number));
}

static weft_tensor indices(const device_case *c, weft_shape s, int64_t below_, uint64_t number)
{
    weft_generator g = {c->seed, number << 32};
    return weft_to(weft_randint(s, 0, below_, .generator = &g), c->where);
}

static void give(results *r, weft_tensor t)
{
    cr_assert(weft_ok(t), "%s", weft_error_text(t));
    r->t[r->n++] = t;
}

/* y and the gradients of x and others of sum(y g). */
static void give_gradients(const device_case *c, results *r, weft_tensor y, const weft_tensor *of,
                           int n)
{
    int64_t count = weft_numel(y);
    weft_tensor g = weft_reshape(draw(c, weft_shape(count), weft_dtype_of(y), 9), weft_shape_of(y));
    give(r, y);
    cr_assert_eq(weft_backward(y, .gradient = g), WEFT_OK, "%s", weft_last_error());
    for (int i = 0; i < n; i++)
        give(r, weft_grad(of[i]));
}

/* -- functions ---------------------------------------------------------------------------------------------------- */
static void sums(const device_case *c, results *r)
{
    weft_tensor x = rows_of(c, 1);
    give(r, weft_sum(x, .axes = weft_axes(-1)));
    give(r, weft_mean(x));
    give(r, weft_prod(weft_add(weft_mul(x, weft_f(0x1p-10)), weft_f(1)), .axes = weft_axes(-1)));
    give(r, weft_sum(x, .axes = weft_axes(0)));
}

static void extremes(const device_case *c, results *r)
{
    weft_tensor x = weft_round(weft_mul(rows_of(c, 1), weft_f(4)));
    give(r, weft_max(x, .axes = weft_axes(-1)));
    give(r, weft_min(x));
    give(r, weft_any(weft_greater(x, weft_f(11)), .axes = weft_axes(-1)));
    give(r, weft_all(weft_greater(x, weft_f(-12)), .axes = weft_axes(0)));
}

static void places(const device_case *c, results *r)
{
    const bool few = below(2);
    weft_tensor x = rows_of(c, 1);
    x = few ? weft_round(weft_mul(x, weft_f(2))) : x;
    give(r, weft_argmax(x, .axes = weft_axes(-1)));
    give(r, weft_argmin(x, .axes = weft_axes(-1)));
    give(r, weft_argmax(x));
    give(r, weft_argmin(x, .axes = weft_axes(0)));
}

static void moments(const device_case *c, results *r)
{
    weft_tensor x = rows_of(c, 1);
    give(r, weft_var(x, .axes = weft_axes(-1)));
    give(r, weft_std(x, .axes = weft_axes(0)));
    give(r, weft_norm(x, .axes = weft_axes(-1)));
    give(r, weft_norm(x, .order = 1));
    give(r, weft_logsumexp(x, .axes = weft_axes(-1)));
    give(r, weft_logsumexp(x));
}

/* A warp has a line: of that many every block of the planned devices has several turns. */
static void running(const device_case *c, results *r)
{
    enum { LINES = 20001 };
    weft_tensor x = rows_of(c, 1);
    const int64_t lines = weft_dim(x, 0) < LINES ? weft_dim(x, 0) : LINES;
    give(r, weft_cumsum(weft_narrow(x, 0, 0, lines), -1));
    give(r, weft_cumprod(weft_add(weft_mul(x, weft_f(0x1p-10)), weft_f(1)), 0));
}

static void softmaxes(const device_case *c, results *r)
{
    weft_tensor x = rows_of(c, 1), z = rows_of(c, 2);
    weft_requires_grad_(x, true);
    give_gradients(c, r, weft_softmax(x, -1), &x, 1);
    give(r, weft_softmax(z, 0));
    weft_requires_grad_(z, true);
    give_gradients(c, r, weft_log_softmax(z, -1), &z, 1);
}

static void norms(const device_case *c, results *r)
{
    weft_tensor x = rows_of(c, 1), of[3] = {x, draw(c, weft_shape(c->n), c->type, 2),
                                            draw(c, weft_shape(c->n), c->type, 3)};
    const int which = (int)below(3), n = which == 1 ? 2 : which == 2 ? 1 : 3;
    for (int i = 0; i < n; i++)
        weft_requires_grad_(of[i], true);
    give_gradients(c, r,
                   which == 1   ? weft_rms_norm(x, of[1])
                   : which == 2 ? weft_layer_norm(x)
                                : weft_layer_norm(x, of[1], of[2]),
                   of, n);
}

static void groups(const device_case *c, results *r)
{
    enum { CHANNELS = 6 };
    const int64_t inner = 1 + c->n / CHANNELS, samples = 1 + c->rows / 3;
    weft_tensor of[3] = {draw(c, weft_shape(samples, CHANNELS, inner), c->type, 1),
                         draw(c, weft_shape(CHANNELS), c->type, 2),
                         draw(c, weft_shape(CHANNELS), c->type, 3)};
    for (int i = 0; i < 3; i++)
        weft_requires_grad_(of[i], true);
    give_gradients(c, r, weft_group_norm(of[0], ONE_OF(1, 2, 3, 6), of[1], of[2]), of, 3);
}

static void losses(const device_case *c, results *r)
{
    weft_tensor x = rows_of(c, 1);
    const double smooth = below(2) ? 0.1 : 0;
    if (c->lies == BETWEEN)
        x = weft_reshape(x, weft_shape(c->rows, c->n));
    weft_requires_grad_(x, true);
    weft_tensor loss =
        weft_cross_entropy(x, indices(c, weft_shape(c->rows), c->n, 2), .label_smoothing = smooth);
    give(r, loss);
    cr_assert_eq(weft_backward(loss), WEFT_OK, "%s", weft_last_error());
    give(r, weft_grad(x));
}

static void moves(const device_case *c, results *r)
{
    weft_tensor x = rows_of(c, 1);
    give(r, weft_contiguous(weft_transpose(x, 0, -1)));
    give(r, weft_cast(weft_transpose(x, 0, -1), WEFT_F32));
    give(r, weft_concat(WEFT_LIST(x, weft_narrow(x, 0, 0, 1)), 0));
    give(r, weft_flip(x, weft_axes(-1)));
    give(r, weft_roll(x, weft_shape(3), weft_axes(-1)));
}

/* Rows of a table, and what their gradient adds up. */
static void tables(const device_case *c, results *r)
{
    const int64_t many = 1 + below(2 * c->rows < 3000 ? 2 * c->rows : 3000), inner = 1 + c->n % 700;
    weft_tensor w = draw(c, weft_shape(c->rows, inner), c->type, 1),
                at = indices(c, weft_shape(many), c->rows, 2);
    weft_requires_grad_(w, true);
    give_gradients(c, r, weft_embedding(w, at), &w, 1);
    weft_tensor x = weft_detach(w);
    give(r, weft_index_select(x, 1, indices(c, weft_shape(1 + inner / 2), inner, 3)));
    give(r, weft_gather(x, 0, indices(c, weft_shape(many, inner), c->rows, 4)));
    give(r, weft_scatter_add(x, 0, indices(c, weft_shape(many, inner), c->rows, 5),
                             draw(c, weft_shape(many, inner), c->type, 6)));
}

static void orders(const device_case *c, results *r)
{
    weft_tensor x = weft_round(weft_mul(rows_of(c, 1), weft_f(8))), values, at;
    cr_assert_eq(weft_sort(x, -1, below(2), &values, &at), WEFT_OK, "%s", weft_last_error());
    give(r, values);
    give(r, at);
    cr_assert_eq(weft_topk(x, 1 + c->n / 3, -1, below(2), &values, &at), WEFT_OK, "%s",
                 weft_last_error());
    give(r, values);
    give(r, at);
}

static void fills(const device_case *c, results *r)
{
    weft_device before = weft_default_device();
    weft_generator g = {c->seed, 7};
    weft_set_default_device(c->where);
    give(r, weft_rand(weft_shape(c->rows, c->n), c->type, .generator = &g));
    give(r, weft_randn(weft_shape(c->rows, c->n), c->type, .generator = &g));
    give(r, weft_bernoulli(weft_shape(c->rows, c->n), 0.3, .generator = &g));
    give(r, weft_randperm(1 + c->n % 5000, .generator = &g));
    give(r, weft_arange(0, (double)c->n, 1, WEFT_F32));
    weft_set_default_device(before);
}

/* Elements with a row, a column and a value for all. */
static void elements(const device_case *c, results *r)
{
    weft_tensor x = rows_of(c, 1), y = rows_of(c, 2), row = draw(c, weft_shape(c->n), c->type, 3);
    weft_tensor column = draw(c, weft_shape(c->rows, 1), c->type, 4);
    if (c->lies == BETWEEN)
        column = weft_narrow(draw(c, weft_shape(c->rows, 1), c->type, 4), 0, 0, 1);
    give(r, weft_add(x, y));
    give(r, weft_mul(x, row));
    give(r, weft_fma(x, column, row));
    give(r, weft_gelu(weft_mul(y, weft_f(0.7))));
    give(r, weft_where(weft_less(x, column), row, y));
}

/* A softmax with a penalty, of values that nobody needs later: results may take their places. */
static weft_status fused(void *self, const weft_tensor *in, int n, weft_tensor *out, int m)
{
    (void)self, (void)n, (void)m;
    weft_tensor x = weft_mul(in[0], in[1]), e = weft_exp(x);
    weft_tensor y = weft_div(e, weft_sum(e, .axes = weft_axes(-1), .keepdim = true));
    out[0] = weft_neg(x);
    out[1] = y;
    out[2] = weft_mean(weft_square(weft_sub(y, in[0])));
    out[3] = weft_sum(y, .axes = weft_axes(0));
    return weft_error_status(out[3]);
}

static void traced(const device_case *c, results *r)
{
    const weft_tensor in[2] = {rows_of(c, 1), draw(c, weft_shape(c->n), c->type, 2)};
    weft_tensor out[4];
    if (c->where.kind == WEFT_DEVICE_CPU) {
        cr_assert_eq(fused(NULL, in, 2, out, 4), WEFT_OK, "%s", weft_last_error());
        for (int i = 0; i < 4; i++)
            give(r, out[i]);
        return;
    }
    weft_jit *j = weft_jit_trace(fused, NULL, .synchronous = true);
    cr_assert_eq(weft_jit_call(j, in, 2, out, 4), WEFT_OK, "%s", weft_last_error());
    for (int i = 0; i < 4; i++)
        give(r, out[i]);
    weft_jit_free(j);
}

static const struct {
    const char *name;
    void (*f)(const device_case *c, results *r);
} functions[] = {{"sums", sums},       {"extremes", extremes}, {"places", places},
                 {"moments", moments}, {"running", running},   {"softmaxes", softmaxes},
                 {"norms", norms},     {"groups", groups},     {"losses", losses},
                 {"moves", moves},     {"tables", tables},     {"orders", orders},
                 {"fills", fills},     {"elements", elements}, {"traced", traced}};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* -- cases on the far side of a border ------------------------------------------------------------------------------ */
static const struct {
    void (*f)(const device_case *c, results *r);
    const char *name;
    device_case c;
} planned[] = {
#define CASE(f, type, p, rows, n, lies, first)                                                     \
    {                                                                                              \
        f, #f,                                                                                     \
        {                                                                                          \
            rows, n, first, lies, WEFT_##type, p, 0,                                               \
            {                                                                                      \
                0                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }
    /* long rows of few: blocks of them on all processors, threads with 2, 4 and 8 neighbours */
    CASE(sums, F32, 2, 1, 40001, ALONG, 0),
    CASE(moments, F32, 2, 1, 262147, ALONG, 1),
    CASE(sums, BF16, 2, 1, 524292, ALONG, 0),
    CASE(traced, F32, 3, 2, 70001, ALONG, 0),
    CASE(softmaxes, BF16, 132, 3, 32773, ALONG, 3),
    /* more of them than blocks at once: of rows, of parts of rows, of columns */
    CASE(sums, F32, 1, 300, 70, ALONG, 0),
    CASE(sums, F64, 2, 1, 2200000, ALONG, 0),
    CASE(norms, F32, 1, 40, 4200, ALONG, 0),
    CASE(moments, BF16, 1, 41, 20500, BESIDE, 1),
    CASE(extremes, F32, 1, 2100, 300, BESIDE, 0),
    /* kept values in memory, of as many rows as there are blocks at once: long rows, columns of a thread and of eight */
    CASE(softmaxes, F32, 1, 9, 33000, ALONG, 0),
    CASE(softmaxes, F32, 1, 20, 2500, ALONG, 0),
    CASE(softmaxes, BF16, 1, 100, 400, ALONG, 0),
    CASE(losses, F32, 2, 3, 50257, ALONG, 0),
    /* a place among parts that are many, among parts of columns */
    CASE(places, F32, 148, 1, 700001, ALONG, 1),
    CASE(places, BF16, 8, 3, 90001, ALONG, 0),
    CASE(places, BF16, 60, 66, 5000, BESIDE, 0),
    CASE(places, F32, 1, 700, 600, BESIDE, 0),
    CASE(places, F64, 100, 20, 500, BESIDE, 0),
    /* running values of one, two and three levels, of parts that are one block's and that are not */
    CASE(running, F32, 1, 3, 9001, ALONG, 0),
    CASE(running, F32, 132, 1, 266301, ALONG, 0),
    CASE(running, BF16, 4, 262209, 2, ALONG, 0),
    CASE(running, F32, 4, 200, 300, ALONG, 1),
    /* elements: several turns of a thread, several groups at once, flat ones */
    CASE(elements, BF16, 1, 300, 1021, ALONG, 0),
    CASE(elements, F32, 1, 3, 131072, ALONG, 0),
    CASE(elements, BF16, 8, 1, 800003, ALONG, 1),
    /* tiles of every height; places that are sorted and not, a warp for all columns of one */
    CASE(moves, BF16, 1, 1100, 261, ALONG, 0),
    CASE(moves, F32, 132, 1000, 200, ALONG, 1),
    CASE(moves, F64, 2, 4400, 20, BESIDE, 0),
    CASE(tables, F32, 4, 2500, 299, ALONG, 0),
    CASE(tables, BF16, 132, 900, 650, ALONG, 0),
#undef CASE
};
enum { PLANNED = sizeof planned / sizeof *planned };

/* -- both ----------------------------------------------------------------------------------------------------------- */
static void believe(int processors, int major, int driver)
{
    wf_cuda_info *info = (wf_cuda_info *)(uintptr_t)wf_cuda_get_info(0);
    info->processors = processors;
    info->major = major;
    info->driver = driver;
}

static void run_case(uint64_t number)
{
    static const char *const lies[LIES] = {"along",   "beside",     "stepped",
                                           "one row", "one column", "between"};
    const wf_cuda_info real = *wf_cuda_get_info(0);
    const int f = (int)(number % FUNCTIONS);
    const bool plan = number < PLANNED;
    device_case c = planned[plan ? number : 0].c;
    results on[2] = {{.n = 0}, {.n = 0}};
    char what[160];
    state = number * UINT64_C(0xD1342543DE82EF95);
    c.seed = bits();
    if (!plan)
        draw_case(&c);
    /* before 9.0 launches do not begin early, before driver 12.1 arguments are short */
    believe((int)c.processors, below(4) ? real.major : 8, below(4) ? real.driver : 12000);
    snprintf(what, sizeof what, "case %d, %s of %s, %d processors, %d rows of %d, %s, from %d",
             (int)number, plan ? planned[number].name : functions[f].name, weft_dtype_name(c.type),
             (int)c.processors, (int)c.rows, (int)c.n, lies[c.lies], (int)c.first);
    if (getenv("WEFT_TEST_CASE"))
        fprintf(stderr, "%s\n", what);
    const uint64_t drawn = state;
    weft_scope s = weft_scope_begin();
    for (int i = 0; i < 2; i++) {
        c.where = i ? WEFT_CUDA(0) : WEFT_CPU;
        state = drawn;
        (plan ? planned[number].f : functions[f].f)(&c, &on[i]);
    }
    cr_assert_eq(on[0].n, on[1].n);
    for (int i = 0; i < on[0].n; i++) {
        char one[200];
        snprintf(one, sizeof one, "%s: result %d", what, i);
        check_equal(one, on[1].t[i], on[0].t[i]);
    }
    weft_scope_end(s);
    believe(real.processors, real.major, real.driver);
}

/* Every fourth of those that are planned, as they are many (under ASan one in six of them). */
static void run_planned(uint64_t first)
{
    setenv("WEFT_JIT", "2", 0);
    gpu_open(31 + first);
    for (uint64_t i = first; i < PLANNED; i += 4)
        if (effort_walks(i / 4, 6))
            run_case(i);
    gpu_check_races();
}

Test(gpu_devices, far_side_of_borders)
{
    run_planned(0);
}
Test(gpu_devices, far_side_of_more_borders)
{
    run_planned(1);
}
Test(gpu_devices, far_side_of_other_borders)
{
    run_planned(2);
}
Test(gpu_devices, far_side_of_last_borders)
{
    run_planned(3);
}

Test(gpu_devices, both_sides_at_random)
{
    const uint64_t first = effort_option("WEFT_FUZZ_SEED", 0);
    const char *one = getenv("WEFT_TEST_CASE");
    setenv("WEFT_JIT", "2", 0);
    gpu_open(30);
    for (uint64_t i = 0; i < effort_of(FUNCTIONS) && !one; i++)
        run_case((first + 1) * 1000003 + i);
    if (one)
        run_case(effort_option("WEFT_TEST_CASE", 0));
    gpu_check_races();
}

/* -- offsets of 64 bits --------------------------------------------------------------------------------------------- */
enum { FAR_ROWS = 2, FAR_COLUMNS = 100 };

/* Two rows of a tensor of 2^31 elements and some more, `apart` from one another; turned: as columns. */
static void far_functions(weft_tensor t, int64_t apart, bool turned, results *r)
{
    weft_tensor x = weft_as_strided(t, weft_shape(FAR_ROWS, FAR_COLUMNS), weft_shape(apart, 1), 0);
    x = turned ? weft_transpose(x, 0, 1) : x;
    weft_tensor f = weft_cast(x, WEFT_F32), values, at;
    cr_assert_eq(weft_sort(x, 1, false, &values, &at), WEFT_OK, "%s", weft_last_error());
    const weft_tensor all[] = {weft_add(x, x),
                               weft_sum(x, .axes = weft_axes(0)),
                               weft_sum(x, .axes = weft_axes(1)),
                               weft_argmax(x, .axes = weft_axes(1)),
                               weft_cumsum(x, 0),
                               weft_contiguous(weft_transpose(x, 0, 1)),
                               weft_softmax(f, 1),
                               values};
    for (int i = 0; i < MOST; i++)
        give(r, all[i]);
}

/* Needs 2 GiB there and here, and some 10 s of the stand-in: on a device, and where script/gpu-check asks for much. */
Test(gpu_devices, offsets_past_31_bits)
{
    static const int64_t apart[] = {INT32_MAX - FAR_COLUMNS, (int64_t)INT32_MAX + 1};
#ifndef WEFT_GPU_RUNNER
    if (effort_option("WEFT_TEST_EFFORT", 0) < 1000)
        cr_skip_test("takes 4 GiB");
    setenv("FAKE_CUDA_MEMORY", "8000000000", 1);
#endif
    setenv("WEFT_JIT", "2", 0);
    gpu_open(32);
    const int64_t n = apart[1] + 2 * FAR_COLUMNS;
    weft_generator g = {5, 0};
    weft_tensor row = weft_randint(weft_shape(FAR_COLUMNS), 0, 100, .dtype = WEFT_U8,
                                   .generator = &g),
                t[2];
    for (int i = 0; i < 2; i++) {
        const weft_device before = weft_default_device();
        weft_set_default_device(i ? WEFT_CUDA(0) : WEFT_CPU);
        t[i] = weft_zeros(weft_shape(n), WEFT_U8);
        weft_set_default_device(before);
        for (int k = 0; k < 3; k++) {
            const int64_t first = k < 2 ? apart[k] : 0;
            weft_tensor to = weft_narrow(t[i], 0, first, FAR_COLUMNS);
            cr_assert_eq(
                weft_copy_(to, weft_to(weft_add(row, weft_i(k)), i ? WEFT_CUDA(0) : WEFT_CPU)),
                WEFT_OK, "%s", weft_last_error());
        }
    }
    for (int c = 0; c < 4; c++) {
        results on[2] = {{.n = 0}, {.n = 0}};
        for (int i = 0; i < 2; i++)
            far_functions(t[i], apart[c / 2], c % 2, &on[i]);
        for (int k = 0; k < MOST; k++) {
            char what[64];
            snprintf(what, sizeof what, "%lld apart, %d: result %d", (long long)apart[c / 2], c % 2,
                     k);
            check_equal(what, on[1].t[k], on[0].t[k]);
        }
    }
    check_equal("sum of all", weft_sum(t[1]), weft_sum(t[0]));
    check_equal("largest of all", weft_argmax(t[1]), weft_argmax(t[0]));
    gpu_check_races();
}
