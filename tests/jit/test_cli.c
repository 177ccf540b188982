/*
 * tests/jit/test_cli.c -- the command `weft` as a user runs it: outputs, messages, exit status.
 */
#include <criterion/criterion.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/trace_file.h"
#include "weft/weft.h"

static char folder[] = "/tmp/weft_cli_......";
static char text[65536];

/* Runs `weft ...` in the folder; its exit status, both outputs in text. */
static int __attribute__((format(printf, 1, 2))) weft(const char *format, ...)
{
    char self[4096], command[8192], args[2048];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    cr_assert_gt(n, 0);
    self[n] = 0;
    va_list list;
    va_start(list, format);
    vsnprintf(args, sizeof args, format, list);
    va_end(list);
    snprintf(command, sizeof command, "cd %s && %s/../bin/weft %s 2>&1", folder, dirname(self),
             args);
    FILE *p = popen(command, "r");
    cr_assert_not_null(p);
    size_t size = fread(text, 1, sizeof text - 1, p);
    text[size] = 0;
    int status = pclose(p);
    cr_assert(WIFEXITED(status), "%s", command);
    return WEXITSTATUS(status);
}

static bool says(const char *what)
{
    return strstr(text, what) != NULL;
}

/* Fast math says |x|, strict math infinity where the square overflows. */
static weft_status root_of_square(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                  int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_sqrt(weft_square(in[0]));
    return WEFT_OK;
}

static weft_status forward(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)n_in, (void)n_out;
    out[0] = weft_relu(weft_matmul(in[0], *(weft_tensor *)self));
    out[1] = weft_sum(out[0], .axes = weft_axes(1));
    return WEFT_OK;
}

static void setup(void)
{
    char path[256];
    memset(strchr(folder, '.'), 'X', 6);
    cr_assert_not_null(mkdtemp(folder));
    weft_tensor w = weft_randn(weft_shape(3, 5), WEFT_F32);
    weft_set_name(w, "w");
    weft_tensor x = weft_randn(weft_shape(4, 3), WEFT_F32), y[2];
    static const weft_graph_dim dims[] = {{0, 0, "batch"}};
    weft_graph *g = weft_jit_graph(forward, &w, &x, 1, .n_outputs = 2, .dims = dims, .n_dims = 1);
    cr_assert_not_null(g, "%s", weft_last_error());
    snprintf(path, sizeof path, "%s/m.weft", folder);
    cr_assert_eq(weft_graph_save(g, path), WEFT_OK);
    weft_graph_free(g);
    snprintf(path, sizeof path, "%s/x.npy", folder);
    cr_assert_eq(weft_npy_save(path, x), WEFT_OK);
    snprintf(path, sizeof path, "%s/x.npz", folder);
    weft_named_tensor named = {"input_0", x};
    cr_assert_eq(weft_npz_save(path, &named, 1), WEFT_OK);
    forward(&w, &x, 1, y, 2);
    for (int k = 0; k < 2; k++) {
        snprintf(path, sizeof path, "%s/want_%d.npy", folder, k);
        cr_assert_eq(weft_npy_save(path, y[k]), WEFT_OK);
    }
}

static void teardown(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

static void same_files(const char *out)
{
    for (int k = 0; k < 2; k++) {
        char command[600];
        snprintf(command, sizeof command, "cmp %s/%s/output_%d.npy %s/want_%d.npy", folder, out, k,
                 folder, k);
        cr_assert_eq(system(command), 0);
    }
}

Test(cli, run, .init = setup, .fini = teardown)
{
    cr_assert_eq(weft("run m.weft --input x.npy --output-dir a"), 0, "%s", text);
    same_files("a");
    cr_assert_eq(weft("run m.weft --input input_0=x.npy --output-dir a"), 0, "%s", text);
    cr_assert_eq(weft("run m.weft --input x.npz --output-dir b"), 0, "%s", text);
    same_files("b");
    cr_assert_eq(weft("run m.weft --input x.npy"), 0);
    cr_assert(says("output_0 = ") && says("output_1 = "), "%s", text);
    cr_assert_eq(weft("run m.weft"), 1);
    cr_assert(says("--input input_0="), "%s", text);
    cr_assert_eq(weft("run m.weft --input m.weft"), 1);
    cr_assert_eq(weft("run m.weft --input want_0.npy"), 1);
    cr_assert(says("axis 1"), "%s", text);
    cr_assert_eq(weft("run m.weft --input x.npy --input x.npy"), 1);
    cr_assert_eq(weft("run m.weft --input input_0=x.npy --input input_0=x.npy"), 1);
    cr_assert(says("'input_0' is given twice"), "%s", text);
    cr_assert_eq(weft("run m.weft --input x.npy --input x.npz"), 1);
    cr_assert(says("'input_0' is given twice"), "%s", text);
    cr_assert_eq(weft("run m.weft --input other=x.npy"), 1);
    cr_assert(says("the graph has no input 'other'"), "%s", text);
    cr_assert_eq(weft("run x.npy --input x.npy"), 1);
    char path[256]; /* what numpy.random.rand gives */
    snprintf(path, sizeof path, "%s/f64.npy", folder);
    cr_assert_eq(weft_npy_save(path, weft_zeros(weft_shape(4, 3), WEFT_F64)), WEFT_OK);
    cr_assert_eq(weft("run m.weft --input f64.npy"), 1);
    cr_assert(says("'input_0' is f64, the graph takes f32") && says("astype(\"float32\")"), "%s",
              text);
    cr_assert_eq(weft("run m.weft --input x.npy --output-dir /proc/no"), 1);
}

static weft_status negatives(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    (void)self, (void)n_in;
    for (int i = 0; i < n_out; i++) {
        out[i] = weft_neg(in[i]);
    }
    return WEFT_OK;
}

Test(cli, many_inputs, .init = setup, .fini = teardown)
{
    enum { MANY = 70 };
    static const char given[] = " --input x.npy";
    char path[256], args[MANY * sizeof given + 1] = "";
    weft_tensor x[MANY];
    for (int i = 0; i < MANY; i++) {
        x[i] = weft_zeros(weft_shape(4, 3), WEFT_F32);
        strcat(args, given);
    }
    weft_graph *g = weft_jit_graph(negatives, NULL, x, MANY, MANY);
    cr_assert_not_null(g, "%s", weft_last_error());
    snprintf(path, sizeof path, "%s/many.weft", folder);
    cr_assert_eq(weft_graph_save(g, path), WEFT_OK);
    weft_graph_free(g);
    cr_assert_eq(weft("run many.weft%s --output-dir d", args), 0, "%s", text);
    snprintf(path, sizeof path, "%s/d/output_%d.npy", folder, MANY - 1);
    weft_tensor last = weft_npy_load(path);
    snprintf(path, sizeof path, "%s/x.npy", folder);
    cr_assert_eq(weft_item_f64(weft_sum(weft_add(last, weft_npy_load(path)))), 0);
    cr_assert_eq(weft("run many.weft%s%s", args, given), 1);
    cr_assert(says("'x.npy' is one input too many: the graph takes 70"), "%s", text);
    cr_assert_eq(weft("run many.weft%s", args + strlen(given)), 1);
    cr_assert(says("input 'input_69' is not given"), "%s", text);
}

Test(cli, fast_math_of_a_file, .init = setup, .fini = teardown)
{
    char path[256];
    weft_tensor x = weft_full(weft_shape(3), -2.5e30, WEFT_F32);
    snprintf(path, sizeof path, "%s/big.npy", folder);
    cr_assert_eq(weft_npy_save(path, x), WEFT_OK);
    for (int fast = 0; fast < 2; fast++) {
        weft_graph *g = weft_jit_graph(root_of_square, NULL, &x, 1, .fast_math = fast);
        cr_assert_not_null(g, "%s", weft_last_error());
        snprintf(path, sizeof path, "%s/root.weft", folder);
        cr_assert_eq(weft_graph_save(g, path), WEFT_OK);
        weft_graph_free(g);
        cr_assert_eq(weft("run root.weft --input big.npy"), 0, "%s", text);
        cr_assert(says(fast ? "2.5e+30" : "inf"), "%s", text);
        cr_assert_eq(weft("show root.weft"), 0);
        cr_assert_eq(says(", fast math\n"), fast, "%s", text);
        cr_assert_eq(weft("explain root.weft"), 0);
        cr_assert_eq(says("fast math: "), fast, "%s", text);
    }
}

Test(cli, show_and_time, .init = setup, .fini = teardown)
{
    cr_assert_eq(weft("show m.weft"), 0);
    cr_assert(says("input_0 f32[batch,3]") && says("# weight  w f32[3,5]") && says("matmul"), "%s",
              text);
    cr_assert_eq(weft("show m.weft --dot"), 0);
    cr_assert(says("digraph"));
    cr_assert_eq(weft("show m.weft --svg -o g.svg && head -c 4 g.svg"), 0);
    cr_assert(says("<svg"));
    cr_assert_eq(weft("show m.weft --svg -o /no/g.svg"), 1);
    cr_assert_eq(weft("show m.weft -o ./m.weft"), 1);
    cr_assert(says("-o ./m.weft is the graph itself"));
    cr_assert_eq(weft("show m.weft"), 0, "the graph is lost");
    cr_assert_eq(weft("show m.weft --dot --svg"), 2);
    cr_assert_eq(weft("explain m.weft --dim batch=4"), 0, "%s", text);
    cr_assert(says("matmul") && says("; at test_cli.c:"), "%s", text);
    cr_assert_eq(weft("explain m.weft --dim batch=0"), 0, "%s", text);
    cr_assert(says("EMPTY (") && !says("ROWWISE"), "%s", text);
    cr_assert_eq(weft("profile m.weft --dim batch=0 --runs 4"), 0, "%s", text);
    cr_assert(says("    0% mem  matmul") && says("; at test_cli.c:"), "%s", text);
    cr_assert_eq(weft("explain m.weft"), 1);
    cr_assert(says("--dim batch=SIZE"), "%s", text);
    static const char *const bad[] = {"batch", "batch=", "batch=x", "batch=-1", "batch=4x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_eq(weft("explain m.weft --dim %s", bad[i]), 1);
        cr_assert(says("--dim wants NAME=SIZE"), "%s", text);
    }
    cr_assert_eq(weft("explain m.weft --dim batch=4 --dim batch=5"), 1);
    cr_assert(says("the size of 'batch' is given twice"), "%s", text);
    cr_assert_eq(weft("explain m.weft --dim batch=4 --input x.npy"), 0, "%s", text);
    cr_assert_eq(weft("explain m.weft --dim batch=5 --input x.npy"), 1);
    cr_assert(says("--dim batch=5, but axis 0 of input 'input_0' is 4"), "%s", text);
    cr_assert_eq(weft("explain m.weft --dim batch=4 --dim seq=3"), 1);
    cr_assert(says("--dim seq=3: no input has that symbol"), "%s", text);
}

/* The number behind "name": in the JSON, from `from` on. */
static double number(const char *from, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\": ", name);
    const char *at = strstr(from, key);
    cr_assert_not_null(at, "no %s in %s", name, from);
    return atof(at + strlen(key));
}

Test(cli, profile, .init = setup, .fini = teardown)
{
    cr_assert_eq(weft("profile m.weft --compare --runs 3 --input x.npy"), 0, "%s", text);
    cr_assert(says("whole run") && says("unfused") && says("launches") && says("matmul") &&
                  says("GFLOP/s") && says("EPILOGUE"),
              "%s", text);
    cr_assert_eq(weft("profile m.weft --runs 2 --dim batch=2"), 0, "%s", text);
    cr_assert(says("relu") && !says("unfused"), "%s", text);
    cr_assert_eq(weft("profile m.weft"), 1);
    cr_assert_eq(weft("profile m.weft --dim batch=2 -o /no/file"), 1);
    cr_assert_eq(weft("profile m.weft --input x.npy -o ./x.npy"), 1);
    cr_assert(says("-o ./x.npy is an input"), "%s", text);
    cr_assert_eq(weft("profile m.weft --compare --json --runs 4 --dim batch=64"), 0, "%s", text);
    cr_assert(trace_is_json(text), "%s", text);
    const char *fused = strstr(text, "\"fused\": "), *steps = strstr(text, "\"steps\": ");
    cr_assert(fused && steps);
    double whole = number(fused, "ms"), kernels = number(fused, "kernels_ms");
    double sum = 0, bytes = 0, flops = 0;
    int n = 0;
    for (const char *s = strstr(steps, "{\"step\""); s; s = strstr(s + 1, "{\"step\"")) {
        sum += number(s, "ms");
        bytes += number(s, "read_bytes") + number(s, "write_bytes");
        flops += number(s, "flops");
        n++;
    }
    double rest = number(fused, "launching_ms") + number(fused, "call_ms");
    cr_assert(n == (int)number(fused, "launches") && n >= 1);
    cr_assert_float_eq(sum, kernels, 1e-6 * (n + 1)); /* six digits are written of each */
    cr_assert_float_eq(kernels + rest, whole, 3e-6);
    cr_assert_eq(bytes, number(fused, "bytes"));
    cr_assert_eq(flops, number(fused, "flops"));
    /* matmul 2 m n k, relu, sum */
    cr_assert_eq(flops, 2.0 * 64 * 5 * 3 + 64 * 5 + 64 * 4);
    const char *unfused = strstr(text, "\"unfused\": ");
    cr_assert(unfused && number(fused, "fused_kernels") >= 1);
    cr_assert_eq(number(unfused, "fused_kernels"), 0);
    cr_assert_eq(number(unfused, "launches"), 3);
    cr_assert_eq(number(unfused, "flops"), flops);
    /* x, w and the product; that and its relu; that and the sums */
    cr_assert_eq(number(unfused, "bytes"),
                 4.0 * (64 * 3 + 3 * 5 + 64 * 5 + 64 * 5 * 2 + 64 * 5 + 64));
    cr_assert_geq(number(unfused, "bytes"), bytes);
    cr_assert_float_eq(number(unfused, "kernels_ms") + number(unfused, "launching_ms") +
                           number(unfused, "call_ms"),
                       number(unfused, "ms"), 3e-6);
}

Test(cli, a_timeline, .init = setup, .fini = teardown)
{
    char path[300];
    setenv("WEFT_PROFILE", "trace-%p.json", 1);
    cr_assert_eq(weft("run m.weft --input x.npy && mv trace-*.json t.json"), 0, "%s", text);
    setenv("WEFT_PROFILE", "/no/such/folder/t.json", 1);
    cr_assert_eq(weft("run m.weft --input x.npy"), 0, "%s", text);
    cr_assert(says("WEFT_PROFILE: /no/such/folder/t.json: "), "%s", text);
    unsetenv("WEFT_PROFILE");
    snprintf(path, sizeof path, "%s/t.json", folder);
    trace_file f = trace_file_read(path);
    cr_assert_eq(f.error[0], 0, "%s", f.error);
    int runs = 0, kernels = 0;
    for (int i = 0; i < f.n; i++) {
        runs += strcmp(f.events[i].cat, "run") == 0;
        kernels += strcmp(f.events[i].cat, "kernel") == 0;
    }
    cr_assert(runs == 1 && kernels >= 2, "%d runs, %d kernels", runs, kernels);
    cr_assert(trace_file_nests(&f));
    trace_file_free(&f);
}

/* Of a text its words, a space before and after each; of a manual page without requests, their quotes and backslashes. */
static char *words_of(const char *from, bool page)
{
    char *words = malloc(2 * strlen(from) + 2), *w = words;
    *w++ = ' ';
    for (bool line = true; *from; from++) {
        if (page && line && *from == '.') { /* ".B x": x */
            from += strcspn(from, " \n");
        }
        line = *from == '\n';
        const bool space = !*from || *from == ' ' || line;
        if (space && w[-1] != ' ') {
            *w++ = ' ';
        } else if (!space && !(page && (*from == '\\' || *from == '"'))) {
            *w++ = *from;
        }
        if (!*from) {
            break;
        }
    }
    if (w[-1] != ' ') {
        *w++ = ' ';
    }
    *w = 0;
    return words;
}

/* The manual page says what the command says of itself, word for word. */
Test(cli, the_manual_page, .init = setup, .fini = teardown)
{
    static char source[65536];
    FILE *f = fopen(WEFT_SOURCE_DIR "/docs/weft.1", "r");
    cr_assert_not_null(f);
    source[fread(source, 1, sizeof source - 1, f)] = 0;
    fclose(f);
    char *page = words_of(source, true);
    cr_assert_eq(weft("help"), 0);
    static char commands[sizeof text];
    memcpy(commands, text, sizeof text);
    int met = 0;
    char *rest = NULL;
    for (char *line = strtok_r(commands, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char name[64], summary[256];
        if (strstr(line, "Exit status")) {
            char *words = words_of(line, false);
            cr_expect(strstr(page, words) != NULL, "%s", words);
            free(words);
        } else if (*line == ' ' && sscanf(line, " weft %63s %255[^\n]", name, summary) == 2) {
            met++;
            char both[512];
            snprintf(both, sizeof both, "%s %s.", name, summary);
            cr_assert_eq(weft("help %s", name), 0);
            char *words = words_of(both, false), *says = words_of(text, false);
            cr_expect(strstr(page, words) != NULL, "%s", words);
            cr_expect(strstr(page, says) != NULL, "%s", says);
            free(words);
            free(says);
        }
    }
    cr_assert_gt(met, 5);
    free(page);
}

Test(cli, the_rest, .init = setup, .fini = teardown)
{
    cr_assert_eq(weft("--version"), 0);
    cr_assert(says(weft_version()));
    cr_assert_eq(weft("--help"), 0);
    static const char *const names[] = {"run", "show", "explain", "profile", "doctor", "cache"};
    for (int i = 0; i < 6; i++) {
        cr_assert_eq(weft("--help"), 0);
        cr_assert(says(names[i]));
        cr_assert_eq(weft("%s --help", names[i]), 0);
        cr_assert(says(names[i]));
        cr_assert_eq(weft("help %s", names[i]), 0);
        cr_assert(says(names[i]) && !says("Exit status"), "%s", text);
        cr_assert_eq(weft("%s --no-such-option", names[i]), 2);
        cr_assert(says("--help"));
    }
    cr_assert_eq(weft("doctor"), 0);
    cr_assert(says("instruction set") && says("native kernels"));
    cr_assert_eq(weft("cache"), 0);
    cr_assert_eq(weft("frobnicate"), 2);
    cr_assert_eq(weft(" "), 2);
    cr_assert_eq(weft("run"), 2);
    cr_assert_eq(weft("run a b"), 2);
    cr_assert_eq(weft("profile m.weft --runs 0"), 2);
    cr_assert_eq(weft("doctor > /dev/full"), 1);
    cr_assert_eq(weft("--version > /dev/full"), 1);
    cr_assert_eq(weft("help frobnicate"), 2);
    cr_assert_eq(weft("help run extra"), 2);
    cr_assert(says("'extra' is one argument too many"), "%s", text);
    cr_assert_eq(weft("--version x"), 2);
    cr_assert(says("'x' is one argument too many"), "%s", text);
}
