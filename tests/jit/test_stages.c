/*
 * tests/jit/test_stages.c -- the planner's stages (jit/passes/passes.def) are switched off one at a time, and counted by bisection;
 * no result changes by a bit.
 */
#include <glob.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jit/call_impl.h"
#include "jit/plan_int.h"
#include "tests/jit/corner_support.h"

enum { ROWS = 24, WIDTH = 40 };

/* Something for each stage: chains, a group that waits for its reader, a row to open, three equal groups, a product's rows, a concat. */
FN(all_stages)
{
    const weft_tensor x = in[0], w = in[1];
    const weft_tensor early = weft_mul(x, weft_f(0.5));
    const weft_tensor product = weft_matmul(x, w);
    const weft_tensor h = weft_gelu(weft_add(product, weft_f(1)));
    out[0] = weft_softmax(weft_add(weft_exp(early), h), -1);
    const weft_tensor parts[2] = {weft_tanh(weft_mul(weft_narrow(x, 1, 0, 8), weft_f(3))),
                                  weft_tanh(weft_mul(weft_narrow(w, 1, 0, 8), weft_f(3)))};
    out[1] = weft_concat(parts, 2, 0);
    out[2] = weft_tanh(weft_mul(weft_narrow(w, 1, 8, 8), weft_f(3)));
    return weft_error_status(out[0]);
}

typedef struct outcome {
    int rc;
    int64_t steps, kernels;
    int64_t peak, pieces; /* bytes of the second call; blocks of temporary memory */
    uint64_t bits;        /* of the results */
    char text[6000];
} outcome;

static void run(outcome *o)
{
    weft_jit *j = weft_jit_trace(all_stages, NULL, .name = "all");
    const weft_tensor x =
        weft_sin(weft_reshape(weft_arange(0, ROWS * WIDTH, 1, WEFT_F32), weft_shape(ROWS, WIDTH)));
    const weft_tensor w = weft_cos(
        weft_reshape(weft_arange(0, WIDTH * WIDTH, 1, WEFT_F32), weft_shape(WIDTH, WIDTH)));
    const weft_tensor in[2] = {x, w};
    weft_tensor y[3];
    for (int i = 0; i < 2;
         i++) { /* not so many that ways are measured: which is faster is no matter here */
        weft_memory_stats before, after;
        weft_memory_reset_peak();
        weft_memory_get_stats(&before);
        o->rc = o->rc ? o->rc : (int)weft_jit_call(j, in, 2, y, 3);
        weft_memory_get_stats(&after);
        o->peak = after.peak_bytes - before.live_bytes;
    }
    for (int k = 0; k < 3 && !o->rc; k++) {
        const unsigned char *p = weft_data(weft_contiguous(y[k]));
        for (int64_t i = 0; i < weft_nbytes(y[k]); i++) {
            o->bits = (o->bits ^ p[i]) * UINT64_C(0x100000001B3);
        }
    }
    o->pieces = o->rc ? 0 : j->plans[0].plan->ntemporaries;
    o->steps = stats_of(j).steps;
    o->kernels = stats_of(j).kernels;
    FILE *f = fmemopen(o->text, sizeof o->text - 1, "w");
    if (f) {
        weft_jit_explain(j, f);
        fclose(f);
    }
    weft_jit_free(j);
}

/* In a process of its own, as the environment is read once. */
static outcome under(const char *name, const char *value)
{
    int ends[2];
    outcome o = {.rc = -1};
    cr_assert_eq(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        outcome mine = {.rc = 0};
        setenv(name, value, 1);
        setenv("WEFT_JIT_EAGER", "0", 1);
        setenv("WEFT_JIT", "2", 1);
        run(&mine);
        const char *at = (const char *)&mine;
        for (size_t done = 0; done < sizeof mine;) {
            const ssize_t n = write(ends[1], at + done, sizeof mine - done);
            if (n <= 0) {
                _exit(1);
            }
            done += (size_t)n;
        }
        _exit(0);
    }
    close(ends[1]);
    size_t got = 0;
    for (ssize_t n; got < sizeof o && (n = read(ends[0], (char *)&o + got, sizeof o - got)) > 0;) {
        got += (size_t)n;
    }
    close(ends[0]);
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0 && got == sizeof o && o.rc == 0,
              "%s=%s", name, value);
    return o;
}

Test(stages, are_switched_one_at_a_time)
{
    const outcome all = under("WEFT_PASS", "");
    static const char *const off[] = {
        "-fuse",
        "-sink",
        "-again",
        "-rows",
        "-batch",
        "-epilogue",
        "-inplace",
        "-arena",
        "-parts",
        "-inplace,-arena",
        "-fuse,-sink,-again,-rows,-batch,-epilogue,-inplace,-parts,-arena"};
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        const outcome o = under("WEFT_PASS", off[i]);
        cr_expect_eq(o.bits, all.bits, "%s", off[i]);
        cr_expect_geq(o.steps, all.steps, "%s", off[i]);
    }
    cr_expect(strstr(all.text, ": EPILOGUE ("), "%s", all.text);
    cr_expect_not(strstr(under("WEFT_PASS", "-epilogue").text, "EPILOGUE"));
    const outcome closed = under("WEFT_PASS", "-rows");
    cr_expect(strstr(closed.text, ": PLAIN ("), "%s", closed.text);
    /* each of the three finds what the others left: a row that waits is moved to its reader by -sink and by -again */
    const outcome sink = under("WEFT_PASS", "-sink,-again");
    cr_expect_eq(under("WEFT_PASS", "-sink").steps, all.steps);
    cr_expect_gt(sink.steps, all.steps);
    cr_expect_gt(under("WEFT_PASS", "-fuse,-sink,-again").steps, sink.steps);
    cr_expect_gt(under("WEFT_PASS", "-batch").steps, all.steps);
    cr_expect_gt(under("WEFT_PASS", "-epilogue").steps, all.steps);
    cr_expect(strstr(all.text, ": PART ("), "%s", all.text);
    const outcome whole = under("WEFT_PASS", "-parts");
    cr_expect_gt(whole.steps, all.steps);
    cr_expect_not(strstr(whole.text, ": PART ("));
    /* op by op there are temporaries, which lie in one another's place, and in one block of memory */
    static const char *const apart[] = {"-fuse,-sink,-again,-rows,-epilogue",
                                        "-fuse,-sink,-again,-rows,-epilogue,-inplace",
                                        "-fuse,-sink,-again,-rows,-epilogue,-inplace,-arena"};
    int64_t peak[3], pieces[3];
    for (int i = 0; i < 3; i++) {
        const outcome o = under("WEFT_PASS", apart[i]);
        peak[i] = o.peak;
        pieces[i] = o.pieces;
        cr_expect_eq(o.bits, all.bits, "%s", apart[i]);
    }
    cr_expect_lt(peak[0], peak[1], "%lld, %lld bytes", (long long)peak[0], (long long)peak[1]);
    cr_expect_lt(pieces[1], pieces[2], "%lld, %lld blocks", (long long)pieces[1],
                 (long long)pieces[2]);
}

/* Decisions are counted behind the rewrites of passes: with more of them allowed there are no more steps, from one an op to all. */
Test(stages, are_bisected)
{
    const outcome all = under("WEFT_BISECT", "0");
    int64_t before = INT64_MAX;
    for (int n = 1; n < 64 && before > all.steps; n += 3) {
        char value[16];
        snprintf(value, sizeof value, "%d", n);
        const outcome o = under("WEFT_BISECT", value);
        cr_expect_eq(o.bits, all.bits, "n = %d", n);
        cr_expect_leq(o.steps, before, "n = %d", n);
        cr_expect_geq(o.steps, all.steps, "n = %d", n);
        before = o.steps;
    }
    cr_expect_gt(under("WEFT_BISECT", "1").steps, all.steps);
    cr_expect_eq(before, all.steps);
}

Test(stages, plans_are_dumped)
{
    char folder[TEST_PATH], pattern[96], line[256] = "";
    test_new_folder(folder);
    under("WEFT_DUMP", folder);
    snprintf(pattern, sizeof pattern, "%s/*-all-plan.txt", folder);
    glob_t g;
    cr_assert_eq(glob(pattern, 0, NULL, &g), 0);
    FILE *f = fopen(g.gl_pathv[0], "r");
    cr_assert(f && fgets(line, sizeof line, f));
    cr_assert(strncmp(line, "step 0 ", 7) == 0, "%s", line);
    fclose(f);
    globfree(&g);
    test_drop_folder(folder);
}
