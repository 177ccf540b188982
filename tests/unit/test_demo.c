/*
 * tests/unit/test_demo.c -- the example programs as a user runs them: the language model at small size, its
 * reproducibility, its checkpoints; the two listings of the paper; the first program.
 *
 * ctest: timeout=600
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/sanitized.h"

/* Under ASan few steps: it is about memory, which the first ones touch. */
#if UNDER_ASAN
#define STEPS "8"
#define STOP "4"
#define REPLAYED "6 of 8"
#define LEARN "20"
#else
#define STEPS "20"
#define STOP "10"
#define REPLAYED "18 of 20"
#define LEARN "250"
#endif
#define SMALL "--steps " STEPS " --sample 0 --dim 32 --layers 2 --context 32 --batch 4 "

/* Runs examples/<command> of this build; its output, stderr included, goes to out. Returns the exit status. */
static int run(const char *command, char *out, size_t size)
{
    char self[4000], line[8000];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    cr_assert_gt(n, 0);
    self[n] = 0;
    *strrchr(self, '/') = 0; /* .../tests */
    snprintf(line, sizeof line, "'%s/../examples/'%s 2>&1", self, command);
    FILE *p = popen(line, "r");
    cr_assert(p != NULL);
    size_t used = fread(out, 1, size - 1, p);
    out[used] = 0;
    return pclose(p);
}

static void curve_of(const char *options, char curve[32])
{
    char out[8000], command[1000];
    snprintf(command, sizeof command, "char_lm " SMALL "%s", options);
    cr_assert_eq(run(command, out, sizeof out), 0, "%s", out);
    const char *at = strstr(out, "loss curve ");
    cr_assert(at != NULL, "%s", out);
    snprintf(curve, 32, "%.16s", at + strlen("loss curve "));
}

Test(demo, same_seed_same_bits)
{
    char whole[32], curve[32], path[100], options[300];
    curve_of("--threads 1", whole);
    curve_of("--threads 2", curve);
    cr_assert_str_eq(curve, whole);
    curve_of("--threads 3", curve);
    cr_assert_str_eq(curve, whole);
    curve_of("--threads 7", curve);
    cr_assert_str_eq(curve, whole);
    curve_of("--threads 1 --jit 1", curve);
    cr_assert_str_eq(curve, whole, "a traced step differs from an eager one");
    curve_of("--threads 3 --jit 1", curve);
    cr_assert_str_eq(curve, whole, "a traced step on three threads differs from an eager one");
    curve_of("--threads 2 --jit 2", curve);
    cr_assert_str_eq(curve, whole, "a frozen step differs from an eager one");
    curve_of("--seed 2", curve);
    cr_assert_str_neq(curve, whole);
    snprintf(path, sizeof path, "/tmp/weft-test-demo-%ld", (long)getpid());
    snprintf(options, sizeof options, "--stop " STOP " --threads 1 --save %s", path);
    curve_of(options, curve);
    cr_assert_str_neq(curve, whole);
    snprintf(options, sizeof options, "--threads 2 --resume %s", path);
    curve_of(options, curve);
    cr_assert_str_eq(curve, whole, "a resumed run differs from one that did not stop");
    unlink(path);
}

/* A step that is not frozen still has the right bits, so its count is asserted. */
Test(demo, a_frozen_step_is_recorded_twice)
{
    char out[8000];
    cr_assert_eq(run("char_lm " SMALL "--jit 2", out, sizeof out), 0, "%s", out);
    cr_assert(strstr(out, REPLAYED " calls were replayed"), "%s", out);
}

Test(demo, learns_more_than_letter_frequencies)
{
    char out[20000];
    cr_assert_eq(run("char_lm --steps " LEARN
                     " --sample 40 --dim 64 --layers 2 --context 64 --batch 8",
                     out, sizeof out),
                 0, "%s", out);
    const char *entropy = strstr(out, "entropy "), *loss = strstr(out, "final loss ");
    cr_assert(entropy && loss, "%s", out);
    double e = atof(entropy + strlen("entropy ")), l = atof(loss + strlen("final loss "));
    const char *held = strstr(out, "held out: ");
    cr_assert(e > 2 && e < 4 && held, "%s", out);
    if (UNDER_ASAN)
        return; /* too few steps to learn anything */
    cr_assert(l < 0.9 * e, "loss %g, unigram entropy %g", l, e);
    cr_assert(atof(held + strlen("held out: ")) < 0.95 * e, "%s", out);
}

Test(demo, refuses_what_it_cannot_do)
{
    char out[8000];
    cr_assert_neq(run("char_lm /nonexistent", out, sizeof out), 0);
    cr_assert_neq(run("char_lm --resume /nonexistent", out, sizeof out), 0);
    cr_assert(strstr(out, "/nonexistent") != NULL, "%s", out);
    cr_assert_neq(run("char_lm --unknown", out, sizeof out), 0);
    cr_assert_neq(run("char_lm --layers 1000", out, sizeof out), 0);
    cr_assert_neq(run("char_lm " SMALL "--heads 5", out, sizeof out), 0);
    cr_assert_neq(run("char_lm " SMALL "--batch 0", out, sizeof out), 0);
    cr_assert_neq(run("char_lm " SMALL "--steps 4x", out, sizeof out), 0);
    cr_assert(strstr(out, "usage") != NULL, "%s", out);
}

Test(demo, an_exported_model_runs_in_another_process)
{
    char out[8000], folder[100], command[1000];
    snprintf(folder, sizeof folder, "/tmp/weft-test-export-%ld", (long)getpid());
    snprintf(command, sizeof command, "../examples/char_lm " SMALL "--stop 2 --export %s", folder);
    cr_assert_neq(run(command, out, sizeof out), 0, "there is no such folder yet");
    cr_assert_eq(mkdir(folder, 0700), 0);
    cr_assert_eq(run(command, out, sizeof out), 0, "%s", out);
    snprintf(command, sizeof command,
             "../bin/weft run %s/model.weft --input %s/tokens.npy --output-dir %s && "
             "cmp %s/logits.npy %s/output_0.npy && rm -r %s",
             folder, folder, folder, folder, folder, folder);
    cr_assert_eq(run(command, out, sizeof out), 0, "%s", out);
}

Test(demo, a_traced_function_has_the_bits_of_the_function)
{
    char out[8000];
    cr_assert_eq(run("traced", out, sizeof out), 0, "%s", out);
    cr_assert(strstr(out, "1 plans built"), "%s", out);
}

Test(demo, the_listings_of_the_paper_learn)
{
    char out[8000];
    cr_assert_eq(run("paper_listings", out, sizeof out), 0, "%s", out);
    cr_assert(strstr(out, "listing 1") && strstr(out, "listing 2"), "%s", out);
    const char *called = strstr(out, "loss "), *traced = strstr(out, "listing 1, traced: ");
    cr_assert(called && traced, "%s", out);
    traced = strstr(traced, "loss ");
    cr_assert_eq(memcmp(called, traced, strcspn(called, "\n") + 1), 0, "%s", out);
    cr_assert_eq(run("first", out, sizeof out), 0, "%s", out);
    cr_assert_eq(out[0], '[', "%s", out);
    double slope = atof(out + 1);
    cr_assert(slope > 2.9 && slope < 3.1, "%s", out);
}
