/*
 * bench/bench_compile.c -- how long a kernel takes to become native: compiled, from disk, and part by part.
 *
 *   bench_compile [rounds]
 *
 * Groups: a gelu chain, a chain of twenty rows, softmax. "cold" compiles, with a warm process; "first" is the
 * first kernel of the process, which also opens the library; "disk" finds the object of an earlier run.
 * Figures are medians in milliseconds of CPU time; best_ms is the quickest.
 *
 * "strict": what strict arithmetic costs in running time: the same program as weft_jit_args.fast_math has it compiled.
 * Operands lie in the second cache; strict_percent is the time lost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/support/bench.h"
#include "jit/diskcache.h"
#include "jit/kernels.h"
#include "jit/kernels_impl.h"
#include "jit/lower.h"

static int map1(wf_program *p, wf_op op, int a)
{
    return wf_program_map(p, op, WEFT_F32, 1, &a);
}
static int map2(wf_program *p, wf_op op, int a, int b)
{
    const int src[2] = {a, b};
    return wf_program_map(p, op, WEFT_F32, 2, src);
}

/* gelu(x * a + b) * c + r */
static void gelu_chain(wf_program *p)
{
    int v[5];
    for (int i = 0; i < 5; i++)
        v[i] = wf_program_input(p, WEFT_F32);
    const int u = map2(p, WF_OP_ADD, map2(p, WF_OP_MUL, v[0], v[1]), v[2]);
    const int g = map1(p, WF_OP_GELU_TANH, u);
    wf_program_output(p, map2(p, WF_OP_ADD, map2(p, WF_OP_MUL, g, v[3]), v[4]));
}

static void chain_of_20(wf_program *p)
{
    static const wf_op unary[] = {WF_OP_SQUARE, WF_OP_RELU, WF_OP_SIGMOID, WF_OP_ABS, WF_OP_TANH};
    const int x = wf_program_input(p, WEFT_F32), c = wf_program_scalar(p, WEFT_F32);
    int v = x;
    for (int i = 0; i < 20; i++)
        v = i % 4 == 3 ? map1(p, unary[i / 4], v)
            : i % 2    ? map2(p, WF_OP_ADD, v, x)
                       : map2(p, WF_OP_MUL, v, c);
    wf_program_output(p, v);
}

static void softmax(wf_program *p)
{
    const int x = wf_program_input(p, WEFT_F32);
    const int m = wf_program_reduce(p, WF_OP_AMAX, x);
    const int e = map1(p, WF_OP_EXP, map2(p, WF_OP_SUB, x, m));
    wf_program_output(p, map2(p, WF_OP_DIV, e, wf_program_reduce(p, WF_OP_SUM, e)));
}

static const struct {
    const char *name;
    void (*make)(wf_program *p);
} groups[] = {{"gelu_chain", gelu_chain}, {"chain_of_20", chain_of_20}, {"softmax", softmax}};
enum { NGROUPS = sizeof groups / sizeof *groups, MOST = 101 };

/* CPU milliseconds of each part of a compilation. */
typedef struct parts {
    double lower[MOST], render[MOST], compile[MOST], load[MOST], all[MOST];
    size_t text, object;
    uint32_t ins;
} parts;

static void take_apart(const wf_program *p, int i, parts *x)
{
    const wf_target target = {.arch = "host", .width = 0};
    wf_kernel k;
    wf_text text = {0};
    wf_blob object = {0};
    wf_exe *exe = NULL;
    wf_why why = {0};
    const double t0 = bench_now(1);
    int status = wf_lower(p, 0, &k, &why);
    const double t1 = bench_now(1);
    if (status == 0)
        status = wf_backend_cpu.render(&k, &target, &text, &why);
    const double t2 = bench_now(1);
    if (status == 0)
        status = wf_backend_cpu.compile(&target, &text, &object, &why);
    const double t3 = bench_now(1);
    if (status == 0)
        status = wf_backend_cpu.load(&object, k.name, &exe, &why);
    const double t4 = bench_now(1);
    if (status != 0) {
        fprintf(stderr, "bench_compile: %s\n", why.rule);
        exit(1);
    }
    x->lower[i] = (t1 - t0) * 1e3;
    x->render[i] = (t2 - t1) * 1e3;
    x->compile[i] = (t3 - t2) * 1e3;
    x->load[i] = (t4 - t3) * 1e3;
    x->all[i] = (t4 - t0) * 1e3;
    x->text = text.n;
    x->object = object.size;
    wf_backend_cpu.unload(exe);
    wf_text_free(&text);
    wf_blob_free(&object);
    wf_kernel_free(&k);
}

/* CPU milliseconds of a get that finds the object on disk: lower, read, check, load. */
static void from_disk(const wf_program *p, const char *name, int rounds)
{
    static double ms[MOST];
    const wf_jitk_opts sync = {.sync = true};
    wf_jitk_stats before, after;
    wf_jitk_release(wf_jitk_get(p, &sync)); /* compiled, and written */
    wf_jitk_get_stats(&before);
    for (int i = 0; i < rounds; i++) {
        wf_jitk_trim();
        const double start = bench_now(1);
        wf_jitk *k = wf_jitk_get(p, &sync);
        ms[i] = (bench_now(1) - start) * 1e3;
        wf_jitk_release(k);
    }
    wf_jitk_get_stats(&after);
    const double median = bench_median(ms, rounds);
    printf("{\"bench\":\"compile\",\"case\":\"%s\",\"disk_ms\":%.3f,\"best_disk_ms\":%.3f,"
           "\"target_disk_ms\":0.2,"
           "\"found\":%lld}\n",
           name, median, ms[0], (long long)(after.loaded - before.loaded));
}

/* -- strict against fast math --------------------------------------------------------------------------------- */
enum { ROW = 1024, ROWS = 8, OPERANDS = 8 };

typedef struct runnable {
    wf_exe *exe;
    wf_launch launch;
} runnable;

static void run_kernel(void *arg)
{
    const runnable *r = arg;
    wf_backend_cpu.launch(r->exe, &r->launch);
}

enum { STRICT, FAST, WAYS };

/* The kernel of the program, whose arguments are the same either way. */
static wf_exe *build(const wf_program *p, wf_kernel *k)
{
    const wf_target target = {.arch = "host"};
    wf_text text = {0};
    wf_blob object = {0};
    wf_exe *exe = NULL;
    wf_why why = {0};
    if (wf_lower(p, 0, k, &why) != 0 || wf_backend_cpu.render(k, &target, &text, &why) != 0 ||
        wf_backend_cpu.compile(&target, &text, &object, &why) != 0 ||
        wf_backend_cpu.load(&object, k->name, &exe, &why) != 0)
        bench_die(why.rule);
    wf_blob_free(&object);
    wf_text_free(&text);
    return exe;
}

static void strict_line(const wf_program *strict, const char *name)
{
    static float memory[OPERANDS][ROWS * ROW];
    wf_kernel k[WAYS];
    runnable r[WAYS];
    bench_side side[WAYS];
    void *ptr[OPERANDS];
    int64_t size[1 + OPERANDS], error = -1;
    const float c = 0.9F;
    uint64_t scalar[1] = {0};
    memcpy(scalar, &c, sizeof c);
    memset(side, 0, sizeof side);
    for (int i = 0; i < OPERANDS; i++) {
        for (int j = 0; j < ROWS * ROW; j++)
            memory[i][j] = (float)((j * 37 + i) % 401 - 200) / 100.0F;
        ptr[i] = memory[i];
        size[1 + i] = ROW;
    }
    for (int i = 0; i < WAYS; i++) {
        wf_program p = *strict;
        p.fast = i == FAST;
        wf_exe *exe = build(&p, &k[i]);
        r[i] = (runnable){exe, {ptr, size, scalar, 0, k[i].rows ? ROWS : ROWS * ROW, 0}};
        side[i].run = run_kernel;
        side[i].arg = &r[i];
    }
    size[0] = k[STRICT].rows ? ROW : ROWS * ROW;
    if (wf_kernel_nptr(&k[STRICT]) > OPERANDS)
        bench_die("too many operands");
    if (k[STRICT].rows)
        ptr[wf_kernel_nptr(&k[STRICT]) - 1] = &error;
    bench_race(side, WAYS, &(bench_plan){.threads = 1});
    bench_open("compile", name, "strict", "f32", 1);
    bench_number("ns_per_element", side[STRICT].median * 1e9 / (ROWS * ROW));
    bench_number("fast_ns_per_element", side[FAST].median * 1e9 / (ROWS * ROW));
    bench_number("strict_percent", (side[STRICT].median / side[FAST].median - 1) * 100);
    bench_number("target_strict_percent", 10);
    bench_close();
    for (int i = 0; i < WAYS; i++) {
        wf_backend_cpu.unload(r[i].exe);
        wf_kernel_free(&k[i]);
    }
}

/* A cache of this run's own. */
static void own_folder(char *path, size_t n)
{
    snprintf(path, n, "/tmp/weft-bench-%d", (int)getpid());
    if (mkdir(path, 0700) != 0 || setenv("WEFT_CACHE_DIR", path, 1) != 0)
        exit(1);
}

static void drop_folder(const char *path)
{
    char inner[128];
    int64_t files, bytes;
    wf_disk_survey(true, &files, &bytes);
    snprintf(inner, sizeof inner, "%s/weft-1", path);
    rmdir(inner);
    rmdir(path);
}

int main(int argc, char **argv)
{
    static wf_program p;
    static parts x;
    const int asked = argc > 1 ? atoi(argv[1]) : 15, rounds = asked < 1      ? 1
                                                              : asked > MOST ? MOST
                                                                             : asked;
    wf_why why = {0};
    char folder[64];
    own_folder(folder, sizeof folder);
    const double start = bench_now(1);
    if (wf_backend_cpu.available(&why) != 0) {
        fprintf(stderr, "bench_compile: %s\n", why.rule);
        drop_folder(folder);
        return 0;
    }
    printf("{\"bench\":\"compile\",\"case\":\"open the library\",\"ms\":%.3f}\n",
           (bench_now(1) - start) * 1e3);
    for (int g = 0; g < NGROUPS; g++) {
        wf_program_init(&p);
        groups[g].make(&p);
        if (wf_program_finish(&p) != 0)
            return 1;
        for (int i = -1; i < rounds; i++) {
            take_apart(&p, i < 0 ? 0 : i, &x);
            if (i < 0)
                printf("{\"bench\":\"compile\",\"case\":\"%s\",\"first_ms\":%.3f}\n",
                       groups[g].name, x.all[0]);
        }
        const double all = bench_median(x.all, rounds); /* sorts */
        printf("{\"bench\":\"compile\",\"case\":\"%s\",\"ms\":%.3f,\"target_ms\":6,\"lower\":%.3f,"
               "\"render\":%.3f,\"compile\":%.3f,\"load\":%.3f,\"best_ms\":%.3f,\"text_bytes\":%zu,"
               "\"object_bytes\":"
               "%zu}\n",
               groups[g].name, all, bench_median(x.lower, rounds), bench_median(x.render, rounds),
               bench_median(x.compile, rounds), bench_median(x.load, rounds), x.all[0], x.text,
               x.object);
        from_disk(&p, groups[g].name, rounds);
        strict_line(&p, groups[g].name);
    }
    drop_folder(folder);
    return 0;
}
