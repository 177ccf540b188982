/*
 * cli/graph.c -- the commands on graph files: run, show, explain.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

/* -- inputs --------------------------------------------------------------------------------------------- */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static int input_named(const weft_graph *g, const char *name, size_t n)
{
    weft_graph_port p;
    for (int i = 0; i < weft_graph_inputs(g); i++) {
        weft_graph_input(g, i, &p);
        if (strlen(p.name) == n && memcmp(p.name, name, n) == 0) {
            return i;
        }
    }
    return -1;
}

static int no_input(const char *command, const char *file, const char *name, size_t n)
{
    return cli_failed(command, "%s%sthe graph has no input '%.*s' (weft show lists them)", file,
                      *file ? ": " : "", (int)n, name);
}

static int given_twice(const char *command, const weft_graph *g, int i)
{
    weft_graph_port p;
    weft_graph_input(g, i, &p);
    return cli_failed(command, "input '%s' is given twice", p.name);
}

static int read_npz(const char *command, weft_graph *g, const char *path, weft_tensor *x)
{
    weft_npz *z = weft_npz_open(path);
    int status = z ? CLI_OK : cli_weft_failed(command);
    for (int m = 0; m < weft_npz_count(z) && !status; m++) {
        const char *name = weft_npz_name(z, m);
        int i = input_named(g, name, strlen(name));
        if (i < 0) {
            status = no_input(command, path, name, strlen(name));
        } else if (weft_ok(x[i])) {
            status = given_twice(command, g, i);
        } else {
            x[i] = weft_npz_at(z, m);
            status = weft_ok(x[i]) ? CLI_OK : cli_weft_failed(command);
        }
    }
    weft_npz_close(z);
    return status;
}

/* NAME=FILE if NAME is an input, else FILE for the first input that has none yet. */
static int read_input(const char *command, weft_graph *g, const char *text, weft_tensor *x)
{
    const char *equals = strchr(text, '='), *path = text;
    int i = equals ? input_named(g, text, (size_t)(equals - text)) : -1;
    if (i >= 0) {
        path = equals + 1;
    } else if (equals && access(text, F_OK) != 0) { /* no file has such a name, so it is none */
        return no_input(command, "", text, (size_t)(equals - text));
    } else if (ends_with(text, ".npz")) {
        return read_npz(command, g, text, x);
    } else {
        for (i = 0; i < weft_graph_inputs(g) && weft_ok(x[i]); i++) {
        }
    }
    if (i == weft_graph_inputs(g)) {
        return cli_failed(command, "'%s' is one input too many: the graph takes %d", text, i);
    }
    if (weft_ok(x[i])) {
        return given_twice(command, g, i);
    }
    x[i] = weft_npy_load(path);
    return weft_ok(x[i]) ? CLI_OK : cli_weft_failed(command);
}

/* Is text SYMBOL=SIZE? *size: -1 where it is no size. */
static bool is_dim(const char *text, const char *symbol, int64_t *size)
{
    size_t n = strlen(symbol);
    if (strncmp(text, symbol, n) != 0 || text[n] != '=') {
        return false;
    }
    char *end;
    long long v = strtoll(text + n + 1, &end, 10);
    *size = text[n + 1] && !*end && v >= 0 && v < INT32_MAX ? v : -1;
    return true;
}

/* The size that --dim gives a symbol; -1: none. */
static int64_t dim_option(const cli_options *o, const char *symbol)
{
    int64_t size = -1;
    for (int d = 0; d < o->n_dims && !is_dim(o->dims[d], symbol, &size); d++) {
    }
    return size;
}

/* Every --dim has a size, for a symbol that the graph has. */
static int check_dims(const char *command, const weft_graph *g, const cli_options *o)
{
    for (int d = 0; d < o->n_dims; d++) {
        const char *text = o->dims[d];
        const size_t name = strcspn(text, "=");
        bool found = false;
        int64_t size = -1;
        for (int k = 0; k < d; k++) {
            if (strcspn(o->dims[k], "=") == name && strncmp(o->dims[k], text, name) == 0) {
                return cli_failed(command, "the size of '%.*s' is given twice", (int)name, text);
            }
        }
        for (int i = 0; i < weft_graph_inputs(g); i++) {
            weft_graph_port p;
            weft_graph_input(g, i, &p);
            for (int k = 0; k < p.rank && !found; k++) {
                found = p.symbols[k] && is_dim(text, p.symbols[k], &size);
            }
        }
        if (!strchr(text, '=') || (found && size < 0)) {
            return cli_failed(command, "--dim wants NAME=SIZE, a size of 0 or more, not '%s'",
                              text);
        }
        if (!found) {
            return cli_failed(command, "--dim %s: no input has that symbol (weft show lists them)",
                              text);
        }
    }
    return CLI_OK;
}

/* Zeros for an input that no file gives. */
static int zeros(const char *command, const cli_options *o, const weft_graph_port *p,
                 weft_tensor *x)
{
    weft_shape s = weft_shape_from(p->rank, p->dims);
    for (int k = 0; k < p->rank; k++) {
        s.v[k] = p->symbols[k] ? dim_option(o, p->symbols[k]) : s.v[k];
        if (s.v[k] < 0) {
            return cli_failed(command,
                              "how large is '%s'? say --dim %s=SIZE, or give --input %s=X.npy",
                              p->symbols[k], p->symbols[k], p->name);
        }
    }
    *x = weft_zeros(s, p->dtype);
    return weft_ok(*x) ? CLI_OK : cli_weft_failed(command);
}

/* A file's extents are those of --dim, where both are given. */
static int check_extents(const char *command, const cli_options *o, const weft_graph_port *p,
                         weft_tensor x)
{
    for (int k = 0; k < p->rank && k < weft_rank(x); k++) {
        const int64_t size = p->symbols[k] ? dim_option(o, p->symbols[k]) : -1;
        if (size >= 0 && size != weft_dim(x, k)) {
            return cli_failed(command,
                              "--dim %s=%lld, but axis %d of input '%s' is %lld: leave one of the "
                              "two out",
                              p->symbols[k], (long long)size, k, p->name,
                              (long long)weft_dim(x, k));
        }
    }
    return CLI_OK;
}

/* Files that NumPy cannot write (bf16) come in another type. */
static weft_tensor fit(weft_tensor x, weft_dtype dtype)
{
    return dtype == WEFT_BF16 && weft_dtype_of(x) == WEFT_F32 ? weft_cast(x, dtype) : x;
}

/* The type that NumPy calls dtype; of bf16 what its values are written in. */
static const char *numpy_name(weft_dtype dtype)
{
    static const char *const names[WEFT_DTYPE_COUNT] = {
        [WEFT_BOOL] = "bool",   [WEFT_U8] = "uint8",     [WEFT_I8] = "int8",
        [WEFT_I16] = "int16",   [WEFT_I32] = "int32",    [WEFT_I64] = "int64",
        [WEFT_F16] = "float16", [WEFT_BF16] = "float32", [WEFT_F32] = "float32",
        [WEFT_F64] = "float64"};
    return names[dtype];
}

static int move_input(const char *command, const char *name, weft_tensor *x)
{
    weft_device device;
    if (weft_device_from_name(name, &device) == WEFT_OK) {
        *x = weft_to(*x, device);
    }
    return weft_ok(*x) ? CLI_OK : cli_weft_failed(command);
}

weft_tensor *cli_tensors(const char *command, int n)
{
    weft_tensor *x = calloc((size_t)n + 1, sizeof *x);
    if (!x) {
        (void)cli_failed(command, "out of memory");
    }
    for (int i = 0; x && i < n; i++) {
        x[i] = WEFT_NONE;
    }
    return x;
}

static int fill_inputs(const char *command, weft_graph *g, const cli_options *o, weft_tensor *x)
{
    int status = check_dims(command, g, o);
    bool fill = strcmp(command, "run") != 0;
    for (int k = 0; k < o->n_inputs && !status; k++) {
        status = read_input(command, g, o->inputs[k], x);
    }
    for (int i = 0; i < weft_graph_inputs(g) && !status; i++) {
        weft_graph_port p;
        weft_graph_input(g, i, &p);
        if (weft_ok(x[i])) {
            x[i] = fit(x[i], p.dtype);
            if (weft_dtype_of(x[i]) != p.dtype) {
                status = cli_failed(command,
                                    "input '%s' is %s, the graph takes %s: save the array as "
                                    "x.astype(\"%s\")",
                                    p.name, weft_dtype_name(weft_dtype_of(x[i])),
                                    weft_dtype_name(p.dtype), numpy_name(p.dtype));
            } else {
                status = check_extents(command, o, &p, x[i]);
            }
        } else if (fill) {
            status = zeros(command, o, &p, &x[i]);
        } else {
            status = cli_failed(command, "input '%s' is not given: add --input %s=X.npy", p.name,
                                p.name);
        }
        if (!status && o->device) {
            status = move_input(command, o->device, &x[i]);
        }
    }
    return status;
}

int cli_read_inputs(const char *command, weft_graph *g, const cli_options *o, weft_tensor **x)
{
    *x = cli_tensors(command, weft_graph_inputs(g));
    return *x ? fill_inputs(command, g, o, *x) : CLI_FAILED;
}

int cli_with_graph(const char *command, const cli_options *o,
                   int (*work)(weft_graph *g, const cli_options *o))
{
    weft_graph *g = weft_graph_load(o->file);
    if (!g) {
        return cli_weft_failed(command);
    }
    weft_scope scope = weft_scope_begin();
    weft_device device = WEFT_CPU;
    bool there = !o->device || (weft_device_from_name(o->device, &device) == WEFT_OK &&
                                weft_graph_to(g, device) == WEFT_OK);
    int status = there ? work(g, o) : cli_weft_failed(command);
    weft_scope_end(scope);
    weft_graph_free(g);
    return status;
}

static bool is_one_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int cli_output(const char *command, const cli_options *o, cli_print print, const void *of)
{
    if (o->output && is_one_file(o->output, o->file)) {
        return cli_failed(command,
                          "-o %s is the graph itself, which would be lost: name another file",
                          o->output);
    }
    for (int i = 0; o->output && i < o->n_inputs; i++) {
        const char *name = strchr(o->inputs[i], '=');
        if (is_one_file(o->output, o->inputs[i]) || (name && is_one_file(o->output, name + 1))) {
            return cli_failed(command, "-o %s is an input, which would be lost: name another file",
                              o->output);
        }
    }
    FILE *out = o->output ? fopen(o->output, "w") : stdout;
    if (!out) {
        return cli_failed(command, "%s: %s", o->output, strerror(errno));
    }
    bool good = print(of, o, out) == WEFT_OK;
    good &= fflush(out) == 0 && !ferror(out);
    if (out != stdout) {
        good &= fclose(out) == 0;
    }
    return good ? CLI_OK : cli_failed(command, "the output cannot be written");
}

/* -- run ------------------------------------------------------------------------------------------------ */

static int write_output(const char *folder, int i, weft_tensor t)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/output_%d.npy", folder, i);
    if (n < 0 || n >= (int)sizeof path) {
        return cli_failed("run", "the path of --output-dir is too long");
    }
    t = weft_dtype_of(t) == WEFT_BF16 ? weft_cast(t, WEFT_F32) : t;
    return weft_npy_save(path, t) == WEFT_OK ? CLI_OK : cli_weft_failed("run");
}

static int write_outputs(const weft_graph *g, const cli_options *o, const weft_tensor *y)
{
    int status = CLI_OK;
    if (o->output_dir && mkdir(o->output_dir, 0777) != 0 && errno != EEXIST) {
        return cli_failed("run", "%s: %s", o->output_dir, strerror(errno));
    }
    for (int i = 0; i < weft_graph_outputs(g) && !status; i++) {
        weft_graph_port p;
        weft_graph_output(g, i, &p);
        if (o->output_dir) {
            status = write_output(o->output_dir, i, y[i]);
        } else {
            printf("%s = ", p.name);
            status = weft_print(y[i]) == WEFT_OK ? CLI_OK : cli_weft_failed("run");
        }
    }
    return status;
}

static int run_graph(weft_graph *g, const cli_options *o)
{
    const int n = weft_graph_outputs(g);
    weft_tensor *x, *y = cli_tensors("run", n);
    int status = cli_read_inputs("run", g, o, &x);
    status = y ? status : CLI_FAILED;
    if (!status && weft_graph_run(g, x, weft_graph_inputs(g), y, n) != WEFT_OK) {
        status = cli_weft_failed("run");
    }
    status = status ? status : write_outputs(g, o, y);
    free(x);
    free(y);
    return status;
}

int cli_run(const cli_options *o)
{
    return cli_with_graph("run", o, run_graph);
}

/* -- show ----------------------------------------------------------------------------------------------- */

static void print_port(FILE *out, const char *kind, const weft_graph_port *p)
{
    fprintf(out, "# %-7s %s %s[", kind, p->name, weft_dtype_name(p->dtype));
    for (int i = 0; i < p->rank; i++) {
        if (p->symbols[i]) {
            fprintf(out, "%s%s", i ? "," : "", p->symbols[i]);
        } else {
            fprintf(out, "%s%lld", i ? "," : "", (long long)p->dims[i]);
        }
    }
    fputs("]\n", out);
}

static weft_status print_text(const weft_graph *g, FILE *out)
{
    weft_graph_port p;
    fprintf(out, "# made by %s%s\n", weft_graph_producer(g),
            weft_graph_fast_math(g) ? ", fast math" : "");
    for (int i = 0; i < weft_graph_inputs(g); i++) {
        weft_graph_input(g, i, &p);
        print_port(out, "input", &p);
    }
    for (int i = 0; i < weft_graph_weights(g); i++) {
        weft_graph_weight(g, i, &p);
        print_port(out, "weight", &p);
    }
    for (int i = 0; i < weft_graph_outputs(g); i++) {
        weft_graph_output(g, i, &p);
        print_port(out, "output", &p);
    }
    return weft_graph_print(g, out);
}

static weft_status print_graph(const void *of, const cli_options *o, FILE *out)
{
    const weft_graph *g = of;
    return o->dot ? weft_graph_dot(g, out) : o->svg ? weft_graph_svg(g, out) : print_text(g, out);
}

static int show_graph(weft_graph *g, const cli_options *o)
{
    return cli_output("show", o, print_graph, g);
}

int cli_show(const cli_options *o)
{
    return o->dot && o->svg ? cli_usage("show", "--dot or --svg, not both")
                            : cli_with_graph("show", o, show_graph);
}

/* -- explain -------------------------------------------------------------------------------------------- */

static int explain_graph(weft_graph *g, const cli_options *o)
{
    weft_tensor *x;
    int status = cli_read_inputs("explain", g, o, &x);
    if (!status && weft_graph_explain(g, x, weft_graph_inputs(g), stdout) != WEFT_OK) {
        status = cli_weft_failed("explain");
    }
    free(x);
    return status;
}

int cli_explain(const cli_options *o)
{
    return cli_with_graph("explain", o, explain_graph);
}
