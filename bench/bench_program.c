/*
 * bench/bench_program.c -- fused groups on the tile interpreter beside the same rows one by one, the
 * fused eager kernels where there are some, and the machine's copy bandwidth.
 *
 *   bench_program [case] [threads] [rows x columns, as 64x768] [any: run the program alone, for a profiler]
 *
 * One JSON line per case, size and thread count: ns_per_element (of the program), and how many times as
 * fast it is as the rows run one after another on warm tensors (over_rows) and as the fused eager kernel
 * (over_fused). of_limit is the share of the bandwidth of a copy of the group's inputs and outputs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/support/bench.h"
#include "eager/alloc.h"
#include "eager/exec.h"
#include "eager/pool.h"
#include "eager/program.h"

WF_EXEC_DECL(reduce);
WF_EXEC_DECL(softmax);
WF_EXEC_DECL(layer_norm);
WF_EXEC_DECL(layer_norm_bwd);
WF_EXEC_DECL(cross_entropy);

enum { MOST = 64 };

/* A program and the rows it stands for. f32 throughout; the values of both are numbered alike. */
typedef struct group {
    wf_program p;
    int64_t rows, n;
    unsigned axes;
    int nvalue, nstep, nin, nout;
    wf_view view[MOST]; /* of every value, full dims */
    int id[MOST], level[MOST];
    struct {
        wf_op op;
        int nsrc, src[3], to;
    } step[MOST];
    int out[4];
    wf_view src[8], dst[4];
    const void *scalars[16];
    int nscalar;
    double moved;
} group;

static wf_view tensor(const group *g, int level)
{
    wf_view v = {.dtype = WEFT_F32, .rank = 2, .dims = {g->rows, g->n}};
    const bool r = level == WF_LEVEL_ELEM || (level == WF_LEVEL_ROW && g->axes == 2);
    const bool c = level == WF_LEVEL_ELEM || (level == WF_LEVEL_ROW && g->axes == 1);
    const int64_t n = (r ? g->rows : 1) * (c ? g->n : 1);
    v.strides[1] = c;
    v.strides[0] = r ? (c ? g->n : 1) : 0;
    v.data = wf_alloc((size_t)n * 4 + 64);
    if (v.data == NULL)
        bench_die("out of memory");
    for (int64_t i = 0; i < n; i++)
        ((float *)v.data)[i] = (float)(i * 7 % 1000) / 500 - 1;
    return v;
}

static int value(group *g, wf_view v, int id, int level)
{
    g->view[g->nvalue] = v;
    g->id[g->nvalue] = id;
    g->level[g->nvalue] = level;
    return g->nvalue++;
}

static int in(group *g)
{
    const wf_view v = tensor(g, WF_LEVEL_ELEM);
    g->moved += (double)(g->rows * g->n) * 4;
    g->src[g->nin++] = v;
    return value(g, v, wf_program_input(&g->p, WEFT_F32), WF_LEVEL_ELEM);
}

/* [n], broadcast over rows. */
static int column(group *g)
{
    wf_view v = tensor(g, WF_LEVEL_ELEM);
    v.strides[0] = 0;
    g->src[g->nin++] = v;
    return value(g, v, wf_program_input(&g->p, WEFT_F32), WF_LEVEL_ELEM);
}

static int row(group *g)
{
    const wf_view v = tensor(g, WF_LEVEL_ROW);
    g->src[g->nin++] = v;
    return value(g, v, wf_program_input_row(&g->p, WEFT_F32), WF_LEVEL_ROW);
}

static int scalar(group *g, double x)
{
    const wf_view v = tensor(g, WF_LEVEL_ONE);
    *(float *)v.data = (float)x;
    g->scalars[g->nscalar++] = v.data;
    return value(g, v, wf_program_scalar(&g->p, WEFT_F32), WF_LEVEL_ONE);
}

static int map(group *g, wf_op op, int a, int b)
{
    const int src[2] = {a, b}, nsrc = b < 0 ? 1 : 2;
    int level = g->level[a], ids[2] = {g->id[a], 0};
    if (b >= 0) {
        level = g->level[b] > level ? g->level[b] : level;
        ids[1] = g->id[b];
    }
    const int v = value(g, tensor(g, level), wf_program_map(&g->p, op, WEFT_F32, nsrc, ids), level);
    g->step[g->nstep].op = op;
    g->step[g->nstep].nsrc = nsrc;
    memcpy(g->step[g->nstep].src, src, sizeof src);
    g->step[g->nstep++].to = v;
    return v;
}
#define M1(op, a) map(g, WF_OP_##op, a, -1)
#define M2(op, a, b) map(g, WF_OP_##op, a, b)

static int reduce(group *g, wf_op op, int a)
{
    const int v =
        value(g, tensor(g, WF_LEVEL_ROW), wf_program_reduce(&g->p, op, g->id[a]), WF_LEVEL_ROW);
    g->step[g->nstep].op = op;
    g->step[g->nstep].nsrc = 1;
    g->step[g->nstep].src[0] = a;
    g->step[g->nstep++].to = v;
    return v;
}
#define R(op, a) reduce(g, WF_OP_##op, a)

static void out(group *g, int a)
{
    const wf_view v = tensor(g, g->level[a]);
    g->moved += g->level[a] == WF_LEVEL_ELEM ? (double)(g->rows * g->n) * 4 : 0;
    wf_program_output(&g->p, g->id[a]);
    g->dst[g->nout++] = v;
}

/* -- the groups -------------------------------------------------------------------------------------------- */
static void softmax(group *g)
{
    const int x = in(g), e = M1(EXP, M2(SUB, x, R(AMAX, x)));
    out(g, M2(DIV, e, R(SUM, e)));
}
static void log_softmax(group *g)
{
    const int x = in(g), d = M2(SUB, x, R(AMAX, x));
    out(g, M2(SUB, d, M1(LOG, R(SUM, M1(EXP, d)))));
}
static void softmax_bwd(group *g)
{
    const int d = in(g), y = in(g);
    out(g, M2(MUL, y, M2(SUB, d, R(SUM, M2(MUL, d, y)))));
}
static void layer_norm(group *g)
{
    const int x = in(g), w = column(g), b = column(g);
    const int n = scalar(g, (double)g->n), eps = scalar(g, 1e-5), one = scalar(g, 1);
    const int mean = M2(DIV, R(SUM, x), n), c = M2(SUB, x, mean);
    const int var = M2(DIV, R(SUM, M2(MUL, c, c)), n);
    const int rstd = M2(DIV, one, M1(SQRT, M2(ADD, var, eps)));
    out(g, M2(ADD, M2(MUL, M2(MUL, c, rstd), w), b));
    out(g, mean);
    out(g, rstd);
}
static void layer_norm_bwd(group *g)
{
    const int d = in(g), x = in(g), w = column(g), mean = row(g), rstd = row(g);
    const int n = scalar(g, (double)g->n);
    const int xhat = M2(MUL, M2(SUB, x, mean), rstd), gw = M2(MUL, d, w);
    const int a = M2(DIV, R(SUM, gw), n), c = M2(DIV, R(SUM, M2(MUL, gw, xhat)), n);
    out(g, M2(MUL, rstd, M2(SUB, M2(SUB, gw, a), M2(MUL, xhat, c))));
}
static void logsumexp(group *g)
{
    const int x = in(g), m = R(AMAX, x);
    out(g, M2(ADD, m, M1(LOG, R(SUM, M1(EXP, M2(SUB, x, m))))));
}
static void gelu_chain(group *g)
{
    const int x = in(g), r = in(g), a = scalar(g, 1.1), b = scalar(g, 0.3), c = scalar(g, 0.7);
    out(g, M2(ADD, M2(MUL, M1(GELU, M2(ADD, M2(MUL, x, a), b)), c), r));
}
static void chain20(group *g)
{
    int x = in(g);
    const int y = in(g), a = scalar(g, 0.99), b = scalar(g, 0.01);
    for (int i = 0; i < 5; i++)
        x = M2(ADD, M2(MUL, M2(SUB, M2(MUL, x, a), b), y), b);
    out(g, x);
}
static void bias_gelu_bwd(group *g) /* the gradient of a bias behind a product with a mask */
{
    const int d = in(g), m = in(g);
    out(g, R(SUM, M2(MUL, d, m)));
}
static void layer_norm_dw(group *g)
{
    const int d = in(g), x = in(g);
    wf_view mv = tensor(g, WF_LEVEL_ELEM), rv = tensor(g, WF_LEVEL_ELEM);
    mv.strides[0] = rv.strides[0] = 1;
    mv.strides[1] = rv.strides[1] = 0;
    g->src[g->nin++] = mv;
    const int mean = value(g, mv, wf_program_input(&g->p, WEFT_F32), WF_LEVEL_ELEM);
    g->src[g->nin++] = rv;
    const int rstd = value(g, rv, wf_program_input(&g->p, WEFT_F32), WF_LEVEL_ELEM);
    out(g, R(SUM, M2(MUL, d, M2(MUL, M2(SUB, x, mean), rstd))));
    out(g, R(SUM, d));
}

/* -- sides -------------------------------------------------------------------------------------------------- */
static void run_program(void *arg)
{
    const group *g = arg;
    const wf_program_args a = {
        .dst = g->dst, .src = g->src, .scalars = g->scalars, .axes = g->axes};
    wf_program_run_on(&g->p, &a);
}

static wf_view at_level(const group *g, wf_view v, int level)
{
    if (level == WF_LEVEL_ELEM)
        return v;
    v.dims[0] = level == WF_LEVEL_ROW && g->axes == 2 ? g->rows : 1;
    v.dims[1] = level == WF_LEVEL_ROW && g->axes == 1 ? g->n : 1;
    v.strides[0] = v.strides[0] ? v.strides[0] : 1;
    v.strides[1] = v.strides[1] ? v.strides[1] : 1;
    return v;
}

static void run_rows(void *arg)
{
    const group *g = arg;
    for (int i = 0; i < g->nstep; i++) {
        const int to = g->step[i].to;
        wf_view src[3], dst = at_level(g, g->view[to], g->level[to]);
        if (wf_rows[g->step[i].op].kind == WF_KIND_REDUCE) {
            const int64_t axis = g->axes == 2 ? 1 : 0;
            const wf_attr attr = {
                .ints = &axis, .n_ints = 1, .flags = WF_FLAG_KEEPDIM, .dtype = WEFT_F32};
            wf_exec e = {.op = g->step[i].op,
                         .nsrc = 1,
                         .ndst = 1,
                         .src = &g->view[g->step[i].src[0]],
                         .dst = &dst,
                         .attr = &attr};
            wf_exec_reduce(&e);
            continue;
        }
        for (int k = 0; k < g->step[i].nsrc; k++)
            src[k] = at_level(g, g->view[g->step[i].src[k]], g->level[to]);
        wf_exec_map(g->step[i].op, WEFT_F32, &dst, g->step[i].nsrc, src);
    }
}

static wf_view plain(const wf_view *v)
{
    wf_view r = *v;
    if (r.strides[0] == 0) { /* [n] */
        r.rank = 1;
        r.dims[0] = r.dims[1];
        r.strides[0] = 1;
    } else if (r.strides[1] == 0) {
        r.rank = 1;
        r.strides[0] = 1;
    }
    return r;
}

static void run_fused(void *arg)
{
    const group *g = arg;
    wf_view src[8], dst[4];
    const int64_t axis = 1;
    const double eps = 1e-5;
    for (int k = 0; k < g->nin; k++)
        src[k] = plain(&g->src[k]);
    for (int k = 0; k < g->nout; k++)
        dst[k] = plain(&g->dst[k]);
    const wf_attr attr = {.ints = &axis, .n_ints = 1, .flt = &eps, .n_flt = 1};
    wf_exec e = {.nsrc = g->nin, .ndst = g->nout, .src = src, .dst = dst, .attr = &attr};
    (void)e;
    wf_exec_fn fn = NULL;
    memcpy(&e.op, &g->step[MOST - 1].op, sizeof e.op);
    if (e.op == WF_OP_LAYER_NORM)
        fn = wf_exec_layer_norm;
    else if (e.op == WF_OP_LOGSUMEXP)
        fn = wf_exec_reduce;
    else
        fn = wf_exec_softmax;
    fn(&e);
}

/* -- cases -------------------------------------------------------------------------------------------------- */
static const struct {
    const char *name;
    void (*build)(group *g);
    unsigned axes;
    wf_op fused;
} cases[] = {
    {"softmax", softmax, 2, WF_OP_SOFTMAX},
    {"log_softmax", log_softmax, 2, WF_OP_LOG_SOFTMAX},
    {"softmax_bwd", softmax_bwd, 2, WF_OP_SOFTMAX_BWD},
    {"layer_norm", layer_norm, 2, WF_OP_LAYER_NORM},
    {"layer_norm_bwd_dx", layer_norm_bwd, 2, WF_OP_INVALID},
    {"logsumexp", logsumexp, 2, WF_OP_LOGSUMEXP},
    {"masked_bias_grad", bias_gelu_bwd, 1, WF_OP_INVALID},
    {"layer_norm_dw", layer_norm_dw, 1, WF_OP_INVALID},
    {"gelu(x*a+b)*c+r", gelu_chain, 0, WF_OP_INVALID},
    {"chain20", chain20, 0, WF_OP_INVALID},
};
static const int64_t shapes[][2] = {{128, 10},   {4096, 10},  {1024, 64},  {64, 768},
                                    {256, 1024}, {8192, 768}, {64, 50257}, {1, 1 << 20}};

static void measure(size_t c, const int64_t *shape, int threads, bool profile)
{
    group *g = calloc(1, sizeof *g);
    if (g == NULL)
        bench_die("out of memory");
    wf_program_init(&g->p);
    g->rows = shape[0];
    g->n = shape[1];
    g->axes = cases[c].axes;
    cases[c].build(g);
    g->step[MOST - 1].op = cases[c].fused;
    if (wf_program_finish(&g->p) != 0)
        bench_die("program");
    wf_set_num_threads(threads);
    if (profile) {
        for (const double end = bench_now(0) + 2; bench_now(0) < end;)
            run_program(g);
        free(g);
        return;
    }
    bench_side sides[8] = {{.run = run_program, .arg = g}, {.run = run_rows, .arg = g}};
    int count = 2;
    if (cases[c].fused != WF_OP_INVALID)
        sides[count++] = (bench_side){.run = run_fused, .arg = g};
    const int first = count;
    bench_limit limit;
    bench_limit_open(&limit, BENCH_COPY, g->moved, threads, sides, &count);
    bench_race(sides, count, &(bench_plan){.threads = threads, .seconds = 3});
    char size[64];
    snprintf(size, sizeof size, "%lldx%lld", (long long)shape[0], (long long)shape[1]);
    bench_open("program", cases[c].name, size, "f32", threads);
    bench_number("ns_per_element", sides[0].median / (double)(g->rows * g->n) * 1e9);
    bench_number("us", sides[0].median * 1e6);
    bench_number("over_rows", sides[1].median / sides[0].median);
    if (cases[c].fused != WF_OP_INVALID)
        bench_number("over_fused", sides[2].median / sides[0].median);
    bench_number("best_ns_per_element", sides[0].best / (double)(g->rows * g->n) * 1e9);
    bench_number("best_over_rows", sides[1].best / sides[0].best);
    if (cases[c].fused != WF_OP_INVALID)
        bench_number("best_over_fused", sides[2].best / sides[0].best);
    bench_number("of_limit",
                 g->moved / sides[0].median * 1e-9 / bench_limit_gbps(&limit, sides, first, false));
    bench_close();
    bench_limit_close(&limit);
    free(g); /* tensors go with the process */
}

/* -- one program over many tensors ------------------------------------------------------------------------- */
enum { TENSORS = 200 };
typedef struct model {
    wf_program p;
    wf_program_args args[TENSORS];
    wf_view src[TENSORS][4], dst[TENSORS][3];
    const void *scalars[8];
    float scalar[8];
} model;

static void run_at_once(void *arg)
{
    const model *m = arg;
    wf_program_run_many(&m->p, TENSORS, m->args);
}
static void run_in_turn(void *arg)
{
    const model *m = arg;
    for (int i = 0; i < TENSORS; i++)
        wf_program_run_on(&m->p, &m->args[i]);
}

/* p, m, v := AdamW(p, g, m, v) */
static void build_adamw(wf_program *p)
{
    int v[4], s[8];
    wf_program_init(p);
    for (int i = 0; i < 4; i++)
        v[i] = wf_program_input(p, WEFT_F32);
    for (int i = 0; i < 8; i++)
        s[i] = wf_program_scalar(p, WEFT_F32);
#define OP2(op, a, b) wf_program_map(p, WF_OP_##op, WEFT_F32, 2, (int[]){a, b})
    const int m = OP2(ADD, OP2(MUL, v[2], s[0]), OP2(MUL, v[1], s[1]));
    const int square = wf_program_map(p, WF_OP_SQUARE, WEFT_F32, 1, &v[1]);
    const int u = OP2(ADD, OP2(MUL, v[3], s[2]), OP2(MUL, square, s[3]));
    const int scaled = OP2(DIV, u, s[4]);
    const int root = wf_program_map(p, WF_OP_SQRT, WEFT_F32, 1, &scaled);
    const int step = OP2(DIV, m, OP2(ADD, root, s[5]));
    wf_program_output(p, OP2(SUB, OP2(MUL, v[0], s[6]), OP2(MUL, step, s[7])));
    wf_program_output(p, m);
    wf_program_output(p, u);
#undef OP2
    if (wf_program_finish(p) != 0)
        bench_die("program");
}

static void measure_adamw(int threads)
{
    model *m = calloc(1, sizeof *m);
    double elements = 0;
    if (m == NULL)
        bench_die("out of memory");
    build_adamw(&m->p);
    for (int i = 0; i < 8; i++) {
        m->scalar[i] = 0.9f;
        m->scalars[i] = &m->scalar[i];
    }
    for (int i = 0; i < TENSORS; i++) {
        const int64_t n = i % 4 == 0 ? 65536 : i % 4 == 1 ? 256 : i % 4 == 2 ? 1024 : 16384;
        const group g = {.rows = 1, .n = n, .axes = 2};
        for (int k = 0; k < 4; k++)
            m->src[i][k] = tensor(&g, WF_LEVEL_ELEM);
        m->dst[i][0] = m->src[i][0];
        m->dst[i][1] = m->src[i][2];
        m->dst[i][2] = m->src[i][3];
        m->args[i] = (wf_program_args){.dst = m->dst[i], .src = m->src[i], .scalars = m->scalars};
        elements += (double)n;
    }
    wf_set_num_threads(threads);
    bench_side sides[2] = {{.run = run_at_once, .arg = m}, {.run = run_in_turn, .arg = m}};
    bench_race(sides, 2, &(bench_plan){.threads = threads, .seconds = 3});
    bench_open("program", "adamw", "200 tensors", "f32", threads);
    bench_number("ns_per_element", sides[0].median / elements * 1e9);
    bench_number("over_in_turn", sides[1].median / sides[0].median);
    bench_number("best_ns_per_element", sides[0].best / elements * 1e9);
    bench_number("best_over_in_turn", sides[1].best / sides[0].best);
    bench_close();
    free(m);
}

static bool asked_for(const char *size, const int64_t *shape)
{
    char name[64];
    snprintf(name, sizeof name, "%lldx%lld", (long long)shape[0], (long long)shape[1]);
    return size == NULL || strcmp(name, size) == 0;
}

int main(int argc, char **argv)
{
    const int only = argc > 2 ? atoi(argv[2]) : 0;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int threads = 1; threads <= 2; threads++)
                if (asked_for(argc > 3 ? argv[3] : NULL, shapes[s]) &&
                    (argc < 2 || !*argv[1] || strcmp(argv[1], cases[c].name) == 0) &&
                    (only == 0 || only == threads))
                    measure(c, shapes[s], threads, argc > 4);
    for (int threads = 1; threads <= 2; threads++)
        if ((argc < 2 || !*argv[1] || strcmp(argv[1], "adamw") == 0) &&
            (only == 0 || only == threads))
            measure_adamw(threads);
    return 0;
}
