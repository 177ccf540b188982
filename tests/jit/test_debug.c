/*
 * tests/jit/test_debug.c -- the rungs of WEFT_DEBUG: each says its own and what those below it say, and nothing of those above.
 */
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jit/ir/backend.h"
#include "tests/jit/corner_support.h"

FN(chain)
{
    out[0] = weft_softmax(weft_gelu(weft_add(weft_mul(in[0], in[0]), weft_f(1))), -1);
    return weft_error_status(out[0]);
}

/* One minus of a minus, twice one product. */
FN(foldable)
{
    const weft_tensor x = weft_neg(weft_neg(in[0]));
    out[0] = weft_add(weft_mul(x, in[0]), weft_mul(x, in[0]));
    return weft_error_status(out[0]);
}

/* What a program says on stderr under a variable. The environment is read once, so every value has a process. */
static char *said_under(const char *name, const char *value, weft_jit_fn fn)
{
    FILE *f = tmpfile();
    cr_assert_not_null(f);
    const pid_t child = fork();
    if (child == 0) {
        setenv(name, value, 1);
        setenv("WEFT_JIT", "2", 1);
        dup2(fileno(f), STDERR_FILENO);
        weft_jit *j = weft_jit_trace(fn, NULL, .name = "chain");
        const weft_tensor x = weft_ones(weft_shape(20, 30), WEFT_F32);
        weft_tensor y;
        int rc = 0;
        for (int i = 0; i < 3; i++) {
            rc = rc ? rc : (int)weft_jit_call(j, &x, 1, &y, 1);
        }
        weft_jit_free(j);
        _exit(rc);
    }
    test_wait(child);
    const long n = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    cr_assert_geq(n, 0);
    rewind(f);
    char *text = calloc(1, (size_t)n + 1);
    cr_assert(text && fread(text, 1, (size_t)n, f) == (size_t)n);
    fclose(f);
    return text;
}

/* At the end of a test whose other checks have passed: what was not seen without LLVM is told. Such a test asserts: what it
 * merely expected, a skip would hide. */
static void tell_unless_native(void)
{
    wf_why why = {0};
    if (wf_backend_cpu.available(&why) != 0) {
        cr_skip_test("LLVM's part was not seen: %s", why.rule);
    }
}

Test(debug, every_rung_says_its_own)
{
    static const char *const says[] = {"",
                                       "weft: kernel m_mul_add_gelu__",
                                       "weft: launch m_mul_add_gelu__",
                                       "weft: plan of chain: ",
                                       "define void @m_mul_add_gelu__",
                                       "weft: chain as recorded\nfn chain {\n",
                                       "\t.globl\tm_mul_add_gelu__",
                                       "weft: pass fold "};
    enum { RUNGS = sizeof says / sizeof *says };
    char *text[RUNGS];
    for (int level = 0; level < RUNGS; level++) {
        const char value[2] = {(char)('0' + level), '\0'};
        text[level] = said_under("WEFT_DEBUG", value, chain);
    }
    wf_why why;
    const bool native = wf_backend_cpu.available(&why) == 0;
    cr_assert_str_eq(text[0], "");
    for (int level = 1; level < RUNGS; level++) {
        for (int rung = 1; rung < RUNGS; rung++) {
            const bool of_kernels = rung <= 2 || rung == 4 || rung == 6;
            if (native || !of_kernels) {
                cr_assert_eq(strstr(text[level], says[rung]) != NULL, rung <= level,
                             "WEFT_DEBUG=%d, \"%s\"", level, says[rung]);
            }
        }
    }
    cr_assert(strstr(text[2], " GB/s at ") && strstr(text[2], "test_debug.c:"), "%s", text[2]);
    cr_assert(strstr(text[3], "edge %5 gelu -> %6 softmax: UNMEASURED"), "%s", text[3]);
    for (int level = 0; level < RUNGS; level++) {
        free(text[level]);
    }
    tell_unless_native();
}

Test(debug, rules_that_fire_are_counted)
{
    char *text = said_under("WEFT_STATS", "fold", foldable),
         *line = strstr(text, "weft: rule NEG_NEG");
    cr_assert(line, "%s", text);
    cr_expect(strstr(line, " chain ") && strstr(line, " 1 times, 1 in all"), "%s", text);
    line = strstr(text, "weft: rule merge");
    cr_assert(line, "%s", text);
    cr_expect(strstr(line, " 1 times, 1 in all"), "%s", text);
    cr_expect_null(strstr(text, "weft: pass"), "%s", text);
    free(text);
    text = said_under("WEFT_STATS", "pass,fold", foldable);
    cr_expect(strstr(text, "weft: pass fold") && strstr(text, "weft: rule "), "%s", text);
    free(text);
    text = said_under("WEFT_STATS", "pass", foldable);
    cr_expect(strstr(text, "weft: pass fold") && !strstr(text, "weft: rule "), "%s", text);
    free(text);
}

/* A line for each stage and work of a plan, and of a kernel. */
Test(debug, all_stages_are_timed)
{
    static const char *const of_plans[] = {"stage fuse     chain ", "stage sink     chain ",
                                           "stage again    chain ", "stage batch    chain ",
                                           "stage inplace  chain ", "stage arena    chain ",
                                           "work  maps     chain ", "work  programs chain ",
                                           "work  buffers  chain ", "work  finish   chain "},
                             *const of_kernels[] = {"work  lower    m_mul_add_gelu__",
                                                    "work  load     m_mul_add_gelu__"};
    char *text = said_under("WEFT_STATS", "pass", chain);
    for (size_t i = 0; i < sizeof of_plans / sizeof *of_plans; i++) {
        const char *line = strstr(text, of_plans[i]), *ms = line ? strstr(line, " ms\n") : NULL;
        cr_assert(ms && ms == strchr(line, '\n') - 3, "no \"%s\" in\n%s", of_plans[i], text);
    }
    unsigned decisions = 0;
    const char *fuse = strstr(text, of_plans[0]);
    cr_assert(fuse && sscanf(fuse + strlen(of_plans[0]), "%u decisions", &decisions) == 1);
    cr_assert_gt(decisions, 0u);
    wf_why why;
    for (size_t i = 0; i < 2 && wf_backend_cpu.available(&why) == 0; i++) {
        cr_assert(strstr(text, of_kernels[i]), "no \"%s\" in\n%s", of_kernels[i], text);
    }
    free(text);
    tell_unless_native();
}

/* -- WEFT_DUMP ------------------------------------------------------------------------------------------------------ */

/* The one file of a folder that a pattern names, whole. */
static char *whole(const char *folder, const char *pattern)
{
    char path[128];
    glob_t g;
    snprintf(path, sizeof path, "%s/%s", folder, pattern);
    cr_assert_eq(glob(path, 0, NULL, &g), 0, "no %s", path);
    FILE *f = fopen(g.gl_pathv[0], "r");
    char *text = calloc(1, 1 << 20);
    cr_assert(f && text && fread(text, 1, (1 << 20) - 1, f) > 0, "%s", path);
    fclose(f);
    globfree(&g);
    return text;
}

static void holds(const char *folder, const char *pattern, const char *what)
{
    char *text = whole(folder, pattern);
    cr_assert(strstr(text, what), "no \"%s\" in %s:\n%.2000s", what, pattern, text);
    free(text);
}

Test(debug, a_folder_has_every_stage_and_a_page)
{
    char folder[TEST_PATH];
    test_new_folder(folder);
    const pid_t child = fork();
    if (child == 0) {
        setenv("WEFT_DUMP", folder, 1);
        setenv("WEFT_JIT", "2", 1);
        weft_jit *j = weft_jit_trace(foldable, NULL, .name = "../<i>&name"),
                 *k = weft_jit_trace(chain, NULL, .name = "chain");
        const weft_tensor x = weft_ones(weft_shape(20, 30), WEFT_F32);
        weft_set_name(x, "<photo>\n");
        weft_tensor y;
        const int rc = weft_jit_call(j, &x, 1, &y, 1) || weft_jit_call(k, &x, 1, &y, 1);
        weft_jit_free(j);
        weft_jit_free(k);
        _exit(rc);
    }
    test_wait(child);
    holds(folder, "0000-_.__i__name-0-recorded.wir", "neg f32[20,30]");
    holds(folder, "0001-chain-1-fold.wir",
          "fn chain {\n  %1 = input f32[20,30] \"<photo>\\x0a\" at \"test_debug.c:");
    holds(folder, "0001-chain-plan.txt", "step 0 map: %2 mul, %4 add, %5 gelu");
    holds(folder, "0001-chain-plan.dot", "digraph plan {\n");
    holds(folder, "0001-chain-plan.dot", "s0 -> s1 [label=\"%5\"];");
    char *page = whole(folder, "index.html");
    static const char *const parts[] = {"<!DOCTYPE html>",
                                        "<h2>0000 ../&lt;i&gt;&amp;name</h2>",
                                        "input f32[20,30] &quot;&lt;photo&gt;\\x0a&quot; at",
                                        "fold: 6 to 4 instructions, 2 rewrites",
                                        "rules that fired: NEG_NEG 1 merge 1",
                                        "<a href=\"0001-chain-plan.dot\">",
                                        "edge %5 gelu -&gt; %6 softmax: UNMEASURED"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        cr_assert(strstr(page, parts[i]), "no %s in\n%s", parts[i], page);
    }
    cr_assert(!strstr(page, "<script") && !strstr(page, "<i>") && !strstr(page, "http"), "%s",
              page);
    wf_why why;
    if (wf_backend_cpu.available(&why) ==
        0) { /* the plan leads to the kernel, the kernel to its texts */
        const char *link = strstr(page, "<a href=\"#k"),
                   *name = strstr(page, "kernel m_mul_add_gelu__");
        char id[32], file[64];
        cr_assert(link && name, "%s", page);
        snprintf(id, sizeof id, "id=\"%.17s\"", link + 10);
        cr_assert(strstr(page, id), "no %s in\n%s", id, page);
        snprintf(file, sizeof file, "%.24s.ll", name + 7);
        holds(folder, file, "define void @m_mul_add_gelu__");
        cr_assert(strstr(page, file), "%s", page);
        snprintf(file, sizeof file, "%.24s.s", name + 7);
        holds(folder, file, "m_mul_add_gelu__");
    }
    free(page);
    test_drop_folder(folder);
    tell_unless_native();
}

FN(long_chain)
{
    out[0] = in[0];
    for (int i = 0; i < 4000; i++) {
        out[0] = weft_sin(out[0]);
    }
    return weft_error_status(out[0]);
}

/* In a program without stderr a file that is being written does not have its number: what is said then would go into it. A pipe
 * in place of the file holds its writer up until somebody reads. */
Test(debug, dumps_keep_off_the_standard_streams)
{
    char folder[TEST_PATH], path[96], text[4096];
    test_new_folder(folder);
    snprintf(path, sizeof path, "%s/0000-long-0-recorded.wir", folder);
    cr_assert_eq(mkfifo(path, 0600), 0);
    const pid_t child = fork();
    if (child == 0) {
        setenv("WEFT_DUMP", folder, 1);
        close(STDERR_FILENO);
        weft_jit *j = weft_jit_trace(long_chain, NULL, .name = "long");
        const weft_tensor x = weft_ones(weft_shape(2), WEFT_F32);
        weft_tensor y;
        const int rc = (int)weft_jit_call(j, &x, 1, &y, 1);
        weft_jit_free(j);
        _exit(rc);
    }
    const int fd = open(path, O_RDONLY);
    cr_assert_geq(fd, 0);
    struct pollfd is_written = {.fd = fd, .events = POLLIN};
    cr_assert_eq(poll(&is_written, 1, 60000), 1);
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)child, STDERR_FILENO);
    const bool has_number = readlink(path, text, sizeof text) >= 0;
    while (read(fd, text, sizeof text) > 0) {
    }
    close(fd);
    test_wait(child);
    test_drop_folder(folder);
    cr_assert(!has_number, "the file has the number of stderr");
}

Test(debug, a_folder_that_is_not_there_is_told_of)
{
    char *text = said_under("WEFT_DUMP", "/no/such/folder", chain), *at = text;
    int lines = 0;
    for (; (at = strstr(at, "weft: WEFT_DUMP: /no/such/folder: ")); at++) {
        lines++;
    }
    cr_expect_eq(lines, 1, "%s", text); /* once, of many files */
    free(text);
}

static weft_status doctor(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_doctor(stderr);
    out[0] = in[0];
    return WEFT_OK;
}

Test(debug, the_doctor_says_what_means_nothing)
{
    static const char *const cases[][3] = {
        {"WEFT_DUMP", "/no/such/folder", "/no/such/folder: No such file"},
        {"WEFT_DUMP", WEFT_SOURCE_DIR "/CMakeLists.txt", "CMakeLists.txt: Not a directory"},
        {"WEFT_DUMP", "after:fodl", "\"fodl\" is no pass"},
        {"WEFT_DUMP", "after:fuse", "\"fuse\" is no pass, but a stage of planning: after:plan"},
        {"WEFT_STATS", "pass,folds", "\"folds\" means nothing; there are pass fold"},
        {"WEFT_STATS", "pass fold", "\"pass fold\" means nothing"},
        {"WEFT_STATS", "fold,pass:3", "\"pass:3\" means nothing"},
        {"WEFT_ISA", "sse2,avx2", "\"sse2,avx2\" means nothing"},
        {"WEFT_ISA", "sse2:avx", "\"sse2:avx\" means nothing"},
        {"WEFT_STRESS", "oom verify", "\"oom verify\" means nothing"},
        {"WEFT_ISA", "avx3", "\"avx3\" means nothing; there are sse2 avx2 avx512"},
        {"WEFT_STRESS", "move,oomph:3", "\"oomph:3\" means nothing; there are oom verify"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = said_under(cases[i][0], cases[i][1], doctor);
        cr_expect(strstr(text, cases[i][2]), "no %s in\n%s", cases[i][2], text);
        free(text);
    }
    char *text = said_under("WEFT_DUMP", "after:plan", doctor);
    cr_expect_not(strstr(text, "is no pass"), "%s", text);
    free(text);
    text = said_under("WEFT_STRESS", "order:3,verify", doctor);
    cr_expect_not(strstr(text, "means nothing"), "%s", text);
    free(text);
}

static void use_stand_ins(const char *folder)
{
    setenv("WEFT_DUMP", folder, 1);
    setenv("WEFT_JIT", "2", 1);
    setenv("WEFT_CUDA_DRIVER", WEFT_FAKE_CUDA, 1);
    setenv("WEFT_NVRTC", WEFT_FAKE_NVRTC, 1);
    setenv("WEFT_CUBLASLT", "none", 1);
    setenv("WEFT_CUDNN", "none", 1);
}

/* Kernels of a device: the source, PTX and the code, and links to them. */
Test(debug, a_folder_has_kernels_of_devices)
{
    static const char *const kinds[] = {"cu", "ptx", "cubin"};
    char folder[TEST_PATH];
    test_new_folder(folder);
    for (int loaded = 0; loaded < 2; loaded++) { /* compiled, and from the disk cache */
        const pid_t child = fork();
        if (child == 0) {
            use_stand_ins(folder);
            weft_jit *j = weft_jit_trace(chain, NULL, .name = "chain");
            const weft_tensor x = weft_to(weft_ones(weft_shape(20, 30), WEFT_F32), WEFT_CUDA(0));
            weft_tensor y;
            int rc = (int)weft_jit_call(j, &x, 1, &y, 1);
            rc = rc ? rc : !weft_ok(weft_to(y, WEFT_CPU));
            weft_jit_free(j);
            _exit(rc);
        }
        test_wait(child);
        holds(folder, "*mul_add_gelu*.cu", "__global__");
        holds(folder, "*mul_add_gelu*.ptx", "// PTX of the stand-in");
        holds(folder, "*mul_add_gelu*.ptx", "__global__");
        free(whole(folder, "*mul_add_gelu*.cubin"));
        char *page = whole(folder, "index.html"), path[160];
        for (int i = 0; i < 3; i++) {
            glob_t g;
            snprintf(path, sizeof path, "%s/*mul_add_gelu*.%s", folder, kinds[i]);
            cr_assert_eq(glob(path, 0, NULL, &g), 0);
            snprintf(path, sizeof path, "<a href=\"%.140s\">", strrchr(g.gl_pathv[0], '/') + 1);
            cr_expect(strstr(page, path), "no %s in\n%s", path, page);
            remove(g.gl_pathv[0]);
            globfree(&g);
        }
        free(page);
    }
    test_drop_folder(folder);
}

/* A program has several kernels, for dense operands and for others: each in files of its own. */
Test(debug, a_folder_has_all_kernels_of_a_program)
{
    enum { FILES = 8 };
    char folder[TEST_PATH], path[160], name[FILES][80];
    glob_t g;
    test_new_folder(folder);
    const pid_t child = fork();
    if (child == 0) {
        use_stand_ins(folder);
        const weft_tensor x = weft_to(weft_ones(weft_shape(20, 30), WEFT_F32), WEFT_CUDA(0));
        _exit(!weft_ok(weft_to(weft_exp(x), WEFT_CPU)) ||
              !weft_ok(weft_to(weft_exp(weft_transpose(x, 0, 1)), WEFT_CPU)));
    }
    test_wait(child);
    snprintf(path, sizeof path, "%s/*exp*.cu", folder);
    cr_assert_eq(glob(path, 0, NULL, &g), 0);
    const size_t n = g.gl_pathc;
    cr_assert(n >= 2 && n <= FILES, "%zu files", n);
    for (size_t i = 0; i < n; i++) {
        snprintf(name[i], sizeof name[i], "%.79s", strrchr(g.gl_pathv[i], '/') + 1);
    }
    globfree(&g);
    char *page = whole(folder, "index.html"), *first = whole(folder, name[0]);
    for (size_t i = 0; i < n; i++) {
        char *text = whole(folder, name[i]);
        cr_expect(i == 0 || strcmp(text, first) != 0, "%s is what %s is", name[i], name[0]);
        cr_expect_not_null(strstr(text, "__global__"));
        cr_expect_not_null(strstr(page, name[i]), "no %s in\n%s", name[i], page);
        free(text);
    }
    free(first);
    free(page);
    test_drop_folder(folder);
}
