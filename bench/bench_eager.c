/*
 * bench/bench_eager.c -- the eager runtime through its public functions: what a small call costs, how
 * near large ops come to the memory's speed, what fresh results cost.
 *
 *   bench_eager [only cases that contain this text]
 *
 * "call" lines: nanoseconds an op on one element; what the profiler costs, off and on. "eager" lines: an op on operands of one
 * size beside its limit, the faster of plain and non-temporal copy (for sums: read) that moves as many bytes on as many
 * threads, measured in turns with it. A transcendental or row-wise op whose arithmetic alone (on data in the first cache, less
 * the call) takes longer than the limit is marked "arithmetic"; the target counts for the others. "fresh" lines: new results
 * every iteration beside memory that is used again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/support/bench.h"
#include "eager/exec.h"
#include "eager/profile.h"
#include "weft/weft.h"

static const char *only = "";

static bool wanted(const char *name)
{
    return strstr(name, only) != NULL;
}

static weft_tensor good(weft_tensor t)
{
    if (!weft_ok(t)) {
        bench_die(weft_last_error());
    }
    return t;
}

static weft_tensor normal(weft_shape shape, weft_dtype dtype)
{
    weft_generator g = {7, 0};
    return weft_keep(good(weft_randn(.shape = shape, .dtype = dtype, .generator = &g)));
}

/* -- small calls ---------------------------------------------------------------------------------------------- */
enum { CALLS = 256 };
static weft_tensor one_a, one_b;

static void freed(void *arg)
{
    (void)arg;
    for (int i = 0; i < CALLS; i++) {
        weft_free(weft_add(one_a, one_b));
    }
}
static void bare(void *arg)
{
    (void)arg;
    for (int i = 0; i < CALLS; i++) {
        weft_free((weft_add)(one_a, one_b));
    }
}
static void own_scope(void *arg)
{
    (void)arg;
    for (int i = 0; i < CALLS; i++) {
        const weft_scope s = weft_scope_begin();
        weft_add(one_a, one_b);
        weft_scope_end(s);
    }
}
static void one_scope(void *arg)
{
    (void)arg;
    const weft_scope s = weft_scope_begin();
    for (int i = 0; i < CALLS; i++) {
        weft_add(one_a, one_b);
    }
    weft_scope_end(s);
}
static void in_place(void *arg)
{
    (void)arg;
    for (int i = 0; i < CALLS; i++) {
        weft_add_(one_a, one_b);
    }
}
static void with_scalar(void *arg)
{
    (void)arg;
    for (int i = 0; i < CALLS; i++) {
        weft_free(weft_mul(one_a, weft_f(0.5)));
    }
}
static void broadcast(void *arg)
{
    const weft_tensor *row = arg;
    for (int i = 0; i < CALLS; i++) {
        weft_free(weft_add(row[0], row[1]));
    }
}
static void viewed(void *arg)
{
    for (int i = 0; i < CALLS; i++) {
        weft_free(weft_transpose(*(weft_tensor *)arg, 0, 1));
    }
}
static void summed(void *arg)
{
    for (int i = 0; i < CALLS; i++) {
        weft_free(weft_sum(*(weft_tensor *)arg));
    }
}
static void kept_result(void *arg)
{
    (void)arg;
    for (int i = 0; i < CALLS; i++) {
        weft_free(weft_keep(weft_add(one_a, one_b)));
    }
}
/* A chain of CALLS ops recorded, and dropped or gone backward over. */
static void chain(void *arg)
{
    const bool *backward = arg;
    const weft_scope s = weft_scope_begin();
    weft_tensor y = one_a;
    for (int i = 0; i < CALLS; i++) {
        y = weft_add(y, one_b);
    }
    if (*backward && weft_backward(.loss = y) != WEFT_OK) {
        bench_die(weft_last_error());
    }
    weft_scope_end(s);
}

typedef struct call_case {
    const char *name, *handles;
    void (*run)(void *arg);
    void *arg;
    double target;
} call_case;

/* One line each; the sides of a group run in turns. */
static void calls(const call_case *cases, int count)
{
    bench_side sides[8];
    int used[8], n = 0;
    for (int i = 0; i < count; i++) {
        if (wanted(cases[i].name)) {
            used[n] = i;
            sides[n++] = (bench_side){.run = cases[i].run, .arg = cases[i].arg};
        }
    }
    bench_race(sides, n, &(bench_plan){.threads = 1});
    for (int i = 0; i < n; i++) {
        const call_case *c = &cases[used[i]];
        bench_open("call", c->name, NULL, "f32", 1);
        bench_text("operands", c->handles);
        bench_number("ns", sides[i].median / CALLS * 1e9);
        if (c->target > 0) {
            bench_number("target_ns", c->target);
        }
        bench_number("low_ns", sides[i].low / CALLS * 1e9);
        bench_number("high_ns", sides[i].high / CALLS * 1e9);
        bench_close();
    }
}

static void small_calls(void)
{
    static bool no = false, yes = true;
    weft_set_num_threads(1);
    const weft_scope s = weft_scope_begin();
    one_a = good(weft_randn(.shape = weft_shape(1)));
    one_b = good(weft_zeros(weft_shape(1), WEFT_F32));
    weft_tensor square = good(weft_randn(.shape = weft_shape(4, 4)));
    weft_tensor rows[2] = {square, good(weft_randn(.shape = weft_shape(4)))};
    const call_case plain[] = {
        {"add, freed", "scoped", freed, NULL, 60},
        {"add, freed, no site", "scoped", bare, NULL, 0},
        {"add, a scope each", "scoped", own_scope, NULL, 0},
        {"add, one scope for 256", "scoped", one_scope, NULL, 0},
        {"add, kept and freed", "scoped", kept_result, NULL, 0},
        {"add_ in place", "scoped", in_place, NULL, 0},
        {"mul by a number", "scoped", with_scalar, NULL, 0},
    };
    calls(plain, (int)(sizeof plain / sizeof *plain));
    const call_case more[] = {
        {"add 4x4 + 4, freed", "scoped", broadcast, rows, 0},
        {"transpose view 4x4, freed", "scoped", viewed, &square, 0},
        {"sum 4x4, freed", "scoped", summed, &square, 0},
    };
    calls(more, (int)(sizeof more / sizeof *more));
    weft_requires_grad_(one_a, true);
    const call_case taped[] = {
        {"add, recorded, freed", "scoped", freed, NULL, 150},
        {"chain of 256 adds, recorded", "scoped", chain, &no, 150},
        {"the chain and its backward", "scoped", chain, &yes, 0},
    };
    calls(taped, (int)(sizeof taped / sizeof *taped));
    weft_no_grad_begin();
    const call_case off[] = {{"add, freed, in no_grad", "scoped", freed, NULL, 60}};
    calls(off, 1);
    weft_no_grad_end();
    weft_requires_grad_(one_a, false);
    one_a = weft_keep(one_a);
    one_b = weft_keep(one_b);
    const call_case kept[] = {{"add, freed, kept operands", "kept", freed, NULL, 60}};
    calls(kept, 1);
    weft_requires_grad_(one_a, true);
    const call_case kept_taped[] = {
        {"add, recorded, freed, kept operands", "kept", freed, NULL, 150}};
    calls(kept_taped, 1);
    weft_requires_grad_(one_a, false);
    weft_free(one_a);
    weft_free(one_b);
    weft_scope_end(s);
}

/* -- the profiler ------------------------------------------------------------------------------------------------- */

/* Two places of a call look whether a profile is being taken: dispatch, and where its site is stamped. */
enum { EVENTS = 20000 };

static void empty(void *arg)
{
    (void)arg;
    for (int i = 0; i < CALLS; i++) {
        __asm__ volatile("" ::: "memory");
        __asm__ volatile("" ::: "memory");
    }
}

static void looks(void *arg)
{
    int64_t *taken = arg;
    for (int i = 0; i < CALLS; i++) {
        *taken += wf_prof_is_on();
        __asm__ volatile("" ::: "memory");
        *taken += wf_prof_is_on();
        __asm__ volatile("" ::: "memory");
    }
}

/* Seconds of so many adds; what is written of them while they run is in that. */
static double seconds_of_adds(void)
{
    const double start = bench_now(1);
    for (int i = 0; i < EVENTS / CALLS; i++) {
        freed(NULL);
    }
    return bench_now(1) - start;
}

/* off_percent: what an add of one element pays for it while no profile is taken. event_ns: what one pays for its event, formatted
 * and written to a file; event_gz_ns: to one that is compressed. */
static void profiler(void)
{
    enum { ROUNDS = 5 };
    if (!wanted("profiler")) {
        return;
    }
    int64_t taken = 0;
    double without[ROUNDS], with[2][ROUNDS];
    char path[2][32] = {"/var/tmp/bench_eager......"};
    memset(strchr(path[0], '.'), 'X', 6);
    bench_side sides[] = {{.run = empty}, {.run = looks, .arg = &taken}, {.run = freed}};
    const weft_scope s = weft_scope_begin();
    const int file = mkstemp(path[0]);
    snprintf(path[1], sizeof path[1], "%s.gz", path[0]);
    weft_set_num_threads(1);
    one_a = good(weft_randn(.shape = weft_shape(1)));
    one_b = good(weft_zeros(weft_shape(1), WEFT_F32));
    bench_race(sides, 3, &(bench_plan){.threads = 1});
    for (int i = 0; i < ROUNDS && file >= 0; i++) {
        without[i] = seconds_of_adds();
        for (int k = 0; k < 2; k++) {
            if (weft_profile_begin(.path = path[k]) != WEFT_OK) {
                bench_die(weft_last_error());
            }
            with[k][i] = seconds_of_adds();
            weft_profile_end();
        }
    }
    bench_open("call", "profiler", NULL, "f32", 1);
    bench_number("off_percent", 100 * (sides[1].median - sides[0].median) / sides[2].median);
    bench_number("target_off_percent", 1);
    if (file >= 0 && taken == 0) {
        static const char *const names[][2] = {{"event_ns", "target_event_ns"},
                                               {"event_gz_ns", "target_event_gz_ns"}};
        const double none = bench_median(without, ROUNDS);
        for (int k = 0; k < 2; k++) {
            bench_number(names[k][0],
                         (bench_median(with[k], ROUNDS) - none) / (EVENTS / CALLS * CALLS) * 1e9);
            bench_number(names[k][1], 700);
            unlink(path[k]);
        }
        close(file);
    }
    bench_close();
    weft_scope_end(s);
}

/* -- large ops ------------------------------------------------------------------------------------------------- */
/* x and y lie side by side in `both`, half at the start of `halves`: of limits that read the same memory. */
typedef struct operands {
    weft_tensor both, halves, x, y, half, wide, square, square_t, half_square, half_t, weight, bias;
    int64_t n;
} operands;

static weft_tensor op_add(const operands *o)
{
    return weft_add(o->x, o->y);
}
static weft_tensor op_mul(const operands *o)
{
    return weft_mul(o->x, o->y);
}
static weft_tensor op_exp(const operands *o)
{
    return weft_exp(o->x);
}
static weft_tensor op_tanh(const operands *o)
{
    return weft_tanh(o->x);
}
static weft_tensor op_atan2(const operands *o)
{
    return weft_atan2(o->x, o->y);
}
static weft_tensor op_gelu(const operands *o)
{
    return weft_gelu(o->x);
}
/* A half of each row times the gelu of the other: two ops, which read rows that do not follow each other. */
static weft_tensor op_gelu_half(const operands *o)
{
    const weft_scope s = weft_scope_begin();
    const weft_tensor gate = weft_gelu(weft_narrow(o->both, 1, 512, 512));
    return weft_scope_return(s, weft_mul(weft_narrow(o->both, 1, 0, 512), gate));
}
static weft_tensor op_gelu_tanh(const operands *o)
{
    return weft_gelu_tanh(o->x);
}
static weft_tensor op_to_bf16(const operands *o)
{
    return weft_cast(o->x, WEFT_BF16);
}
static weft_tensor op_to_f32(const operands *o)
{
    return weft_cast(o->half, WEFT_F32);
}
static weft_tensor op_to_f16(const operands *o)
{
    return weft_cast(o->x, WEFT_F16);
}
static weft_tensor op_sum_inner_bf16(const operands *o)
{
    return weft_sum(o->half, .axes = weft_axes(1));
}
static weft_tensor op_sum_outer_bf16(const operands *o)
{
    return weft_sum(o->half, .axes = weft_axes(0));
}
static weft_tensor op_sum_inner_f64(const operands *o)
{
    return weft_sum(o->wide, .axes = weft_axes(1));
}
static weft_tensor op_sum_outer_f64(const operands *o)
{
    return weft_sum(o->wide, .axes = weft_axes(0));
}
static weft_tensor op_sum_inner(const operands *o)
{
    return weft_sum(o->x, .axes = weft_axes(1));
}
static weft_tensor op_sum_outer(const operands *o)
{
    return weft_sum(o->x, .axes = weft_axes(0));
}
static weft_tensor op_sum_all(const operands *o)
{
    return weft_sum(o->x);
}
static weft_tensor op_cumsum_inner(const operands *o)
{
    return weft_cumsum(o->x, 1);
}
static weft_tensor op_cumsum_outer(const operands *o)
{
    return weft_cumsum(o->x, 0);
}
static weft_tensor op_softmax(const operands *o)
{
    return weft_softmax(o->x, -1);
}
static weft_tensor op_layer_norm(const operands *o)
{
    return weft_layer_norm(o->x, .weight = o->weight, .bias = o->bias);
}
static weft_tensor op_transpose(const operands *o)
{
    return weft_contiguous(o->square_t);
}
static weft_tensor op_transpose_bf16(const operands *o)
{
    return weft_contiguous(o->half_t);
}
static weft_tensor op_add_transposed(const operands *o)
{
    return weft_add(o->square, o->square_t);
}
static weft_tensor op_add_transposed_bf16(const operands *o)
{
    return weft_add(o->half_square, o->half_t);
}

typedef struct op_case {
    const char *name;
    weft_tensor (*op)(const operands *o);
    bench_stream_kind limit;
    int bytes; /* moved per element */
    bool math; /* may be bound by its arithmetic: find out */
    double target;
    bool halves; /* reads halves, not both */
} op_case;

static const op_case op_cases[] = {
    {"add", op_add, BENCH_COPY, 12, false, 0.90, false},
    {"mul", op_mul, BENCH_COPY, 12, false, 0.90, false},
    {"exp", op_exp, BENCH_COPY, 8, true, 0.90, false},
    {"tanh", op_tanh, BENCH_COPY, 8, true, 0.90, false},
    {"atan2", op_atan2, BENCH_COPY, 12, true, 0.90, false},
    {"gelu", op_gelu, BENCH_COPY, 8, true, 0.90, false},
    {"gelu_tanh", op_gelu_tanh, BENCH_COPY, 8, true, 0.90, false},
    {"gelu_half", op_gelu_half, BENCH_COPY, 20, true, 0.75, false},
    {"cast_f32_bf16", op_to_bf16, BENCH_COPY, 6, false, 0.90, false},
    {"cast_bf16_f32", op_to_f32, BENCH_COPY, 6, false, 0.90, true},
    {"cast_f32_f16", op_to_f16, BENCH_COPY, 6, false, 0.90, false},
    {"sum_all", op_sum_all, BENCH_READ, 4, false, 0.90, false},
    {"sum_inner", op_sum_inner, BENCH_READ, 4, false, 0.90, false},
    {"sum_outer", op_sum_outer, BENCH_READ, 4, false, 0.75, false},
    {"sum_inner_bf16", op_sum_inner_bf16, BENCH_READ, 2, false, 0.90, true},
    {"sum_outer_bf16", op_sum_outer_bf16, BENCH_READ, 2, false, 0.75, true},
    {"sum_inner_f64", op_sum_inner_f64, BENCH_READ, 4, false, 0.90,
     false}, /* half as many elements */
    {"sum_outer_f64", op_sum_outer_f64, BENCH_READ, 4, false, 0.75, false},
    {"softmax", op_softmax, BENCH_COPY, 8, true, 0.90, false},
    {"cumsum_inner", op_cumsum_inner, BENCH_COPY, 8, true, 0.90, false},
    {"cumsum_outer", op_cumsum_outer, BENCH_COPY, 8, true, 0.90, false},
    {"layer_norm", op_layer_norm, BENCH_COPY, 8, true, 0.90, false},
    {"transpose", op_transpose, BENCH_COPY, 8, false, 0.90, false},
    {"transpose_bf16", op_transpose_bf16, BENCH_COPY, 4, false, 0.90, true},
    {"add_transposed", op_add_transposed, BENCH_COPY, 12, false, 0.90, false},
    {"add_transposed_bf16", op_add_transposed_bf16, BENCH_COPY, 6, false, 0.90, true},
};

typedef struct op_run {
    const op_case *c;
    const operands *o;
} op_run;

static void run_op(void *arg)
{
    const op_run *r = arg;
    weft_free(r->c->op(r->o));
}

/* n elements as rows of 1024, and as a square (or half of one). */
static operands make_operands(int64_t n)
{
    int64_t side = 1;
    while (side * side < n) {
        side *= 2;
    }
    operands o = {.n = n};
    const int64_t high = n / side;
    o.both = normal(weft_shape(n / 512, 1024), WEFT_F32);
    o.halves = weft_keep(good(weft_cast(o.both, WEFT_BF16)));
    o.x = weft_keep(good(weft_narrow(o.both, 0, 0, n / 1024)));
    o.y = weft_keep(good(weft_narrow(o.both, 0, n / 1024, n / 1024)));
    o.half = weft_keep(good(weft_narrow(o.halves, 0, 0, n / 1024)));
    o.wide = normal(weft_shape(n / 2048, 1024), WEFT_F64);
    o.square = weft_keep(good(weft_reshape(o.y, weft_shape(high, side))));
    o.square_t = weft_keep(good(weft_transpose(weft_reshape(o.x, weft_shape(high, side)), 0, 1)));
    o.half_square = weft_keep(good(
        weft_reshape(good(weft_narrow(o.halves, 0, n / 1024, n / 1024)), weft_shape(high, side))));
    o.half_t = weft_keep(good(weft_transpose(weft_reshape(o.half, weft_shape(high, side)), 0, 1)));
    o.weight = normal(weft_shape(1024), WEFT_F32);
    o.bias = normal(weft_shape(1024), WEFT_F32);
    return o;
}
static void free_operands(operands *o)
{
    const weft_tensor t[] = {o->both,   o->halves,   o->x,           o->y,      o->half,   o->wide,
                             o->square, o->square_t, o->half_square, o->half_t, o->weight, o->bias};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        weft_free(t[i]);
    }
}

/* Seconds that the arithmetic of `n` elements takes on `threads` threads: what 2048 more elements cost
 * on data in the first cache. */
static double arithmetic(const op_case *c, const operands *tiny, int64_t n, int threads)
{
    op_run r[2] = {{c, &tiny[0]}, {c, &tiny[1]}};
    bench_side sides[2] = {{.run = run_op, .arg = &r[0]}, {.run = run_op, .arg = &r[1]}};
    weft_set_num_threads(1);
    bench_race(sides, 2, &(bench_plan){.threads = 1, .rounds = 9, .batch = 5e-4});
    const double t = sides[1].median - sides[0].median;
    return (t > 0 ? t : 0) / (double)(tiny[1].n - tiny[0].n) * (double)n / threads;
}

static void large_op(const op_case *c, const operands *o, const operands *tiny, int threads)
{
    if (!wanted(c->name)) {
        return;
    }
    const double moved = (double)o->n * c->bytes;
    const double alone = c->math ? arithmetic(c, tiny, o->n, threads) : 0;
    weft_set_num_threads(threads);
    const weft_scope s = weft_scope_begin();
    op_run r = {c, o};
    bench_side sides[1 + 2 * BENCH_LIMIT_SIDES] = {{.run = run_op, .arg = &r}};
    bench_limit limit, triad;
    int count = 1, triad_at = 0;
    good(c->op(o));
    bench_limit_open(&limit, c->limit, moved, threads, sides, &count);
    const weft_tensor from = c->halves ? o->halves : o->both;
    bench_limit_read(&limit, weft_data_mut(from), (double)weft_numel(from) * (c->halves ? 2 : 4));
    if (c->bytes == 12) {
        triad_at = count;
        bench_limit_open(&triad, BENCH_TRIAD, moved, threads, sides, &count);
    }
    bench_race(sides, count, &(bench_plan){.threads = threads});
    const double gbps = moved / sides[0].median * 1e-9;
    const double most = bench_limit_gbps(&limit, sides, 1, false);
    const bool memory_bound = alone * 1e9 <= moved / most;
    char size[32];
    bench_open("eager", c->name, bench_size_name((double)o->n * 4, size, sizeof size), "f32",
               threads);
    bench_number("us", sides[0].median * 1e6);
    bench_number("gbps", gbps);
    bench_number("limit_gbps", most);
    bench_number("ratio", gbps / most);
    if (memory_bound) {
        bench_number("target_ratio", c->target);
    }
    bench_text("bound", memory_bound ? "memory" : "arithmetic");
    bench_number("target_times_torch", 1);
    bench_number("best_ratio",
                 moved / sides[0].best * 1e-9 / bench_limit_gbps(&limit, sides, 1, true));
    if (triad_at) {
        bench_number("triad_gbps", bench_limit_gbps(&triad, sides, triad_at, false));
        bench_limit_close(&triad);
    }
    bench_number("spread", (sides[0].high - sides[0].low) / sides[0].median);
    bench_close();
    bench_limit_close(&limit);
    weft_scope_end(s);
}

static void large_ops(void)
{
    static const int64_t sizes[] = {64 << 10, 16 << 20};
    operands tiny[2] = {make_operands(2048), make_operands(4096)};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        operands o = make_operands(sizes[i]);
        for (size_t k = 0; k < sizeof op_cases / sizeof *op_cases; k++) {
            for (int threads = 1; threads <= 2; threads++) {
                large_op(&op_cases[k], &o, tiny, threads);
            }
        }
        free_operands(&o);
    }
    free_operands(&tiny[0]);
    free_operands(&tiny[1]);
}

/* -- fresh results ---------------------------------------------------------------------------------------------- */
typedef struct loop {
    weft_tensor x, y, out;
    int64_t n;
} loop;

/* Results dropped by the scope that ends each iteration. */
static void fresh_copy(void *arg)
{
    const loop *l = arg;
    const weft_scope s = weft_scope_begin();
    weft_clone(l->x);
    weft_scope_end(s);
}
static void reused_copy(void *arg)
{
    const loop *l = arg;
    weft_copy_(l->out, l->x);
}
static void fresh_add(void *arg)
{
    const loop *l = arg;
    const weft_scope s = weft_scope_begin();
    weft_add(l->x, l->y);
    weft_scope_end(s);
}
/* The same kernel into memory that was written before. */
static void reused_add(void *arg)
{
    const loop *l = arg;
    wf_view d = {.dtype = WEFT_F32, .rank = 1, .dims = {l->n}, .strides = {1}}, v[2] = {d, d};
    d.data = weft_data_mut(l->out);
    v[0].data = weft_data_mut(l->x);
    v[1].data = weft_data_mut(l->y);
    wf_exec_map(WF_OP_ADD, WEFT_F32, &d, 2, v);
}
/* Three results alive at once, as in a model: exp(x * y) + y. */
static void fresh_three(void *arg)
{
    const loop *l = arg;
    const weft_scope s = weft_scope_begin();
    weft_add(weft_exp(weft_mul(l->x, l->y)), l->y);
    weft_scope_end(s);
}

static double once(void (*run)(void *), void *arg, int threads)
{
    const double t = bench_now(threads);
    run(arg);
    return bench_now(threads) - t;
}

static void fresh_case(const char *name, void (*fresh)(void *), void (*reused)(void *), loop *l,
                       int threads)
{
    char size[32];
    if (!wanted(name)) {
        return;
    }
    weft_memory_trim();
    const double first = once(fresh, l, threads);
    weft_memory_stats before, after;
    weft_memory_get_stats(&before);
    bench_side sides[2] = {{.run = fresh, .arg = l}, {.run = reused, .arg = l}};
    const int count = reused ? 2 : 1;
    bench_race(sides, count, &(bench_plan){.threads = threads});
    weft_memory_get_stats(&after);
    bench_open("fresh", name, bench_size_name((double)l->n * 4, size, sizeof size), "f32", threads);
    bench_number("us", sides[0].median * 1e6);
    if (reused) {
        bench_number("reused_us", sides[1].median * 1e6);
        bench_number("ratio", sides[1].median / sides[0].median);
        bench_number("target_ratio", 0.90);
    }
    bench_number("first_us", first * 1e6);
    bench_number("system_allocations",
                 (double)(after.system_allocations - before.system_allocations));
    bench_close();
}

static void fresh_results(void)
{
    static const int64_t sizes[] = {64 << 10, 1 << 20, 16 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        loop l = {.n = sizes[i]};
        l.x = normal(weft_shape(l.n), WEFT_F32);
        l.y = normal(weft_shape(l.n), WEFT_F32);
        l.out = normal(weft_shape(l.n), WEFT_F32);
        for (int threads = 1; threads <= 2; threads++) {
            weft_set_num_threads(threads);
            fresh_case("copy", fresh_copy, reused_copy, &l, threads);
            fresh_case("add", fresh_add, reused_add, &l, threads);
            fresh_case("exp(x * y) + y", fresh_three, NULL, &l, threads);
        }
        weft_free(l.x);
        weft_free(l.y);
        weft_free(l.out);
    }
}

int main(int argc, char **argv)
{
    only = argc > 1 ? argv[1] : "";
    const weft_scope s = weft_scope_begin();
    small_calls();
    profiler();
    large_ops();
    fresh_results();
    weft_scope_end(s);
    return 0;
}
