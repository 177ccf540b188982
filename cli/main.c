/*
 * cli/main.c -- the command `weft`: table of commands, help, options.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

/* clang-format off */
static const cli_command commands[] = {
    {"run", "run a graph on .npy files",
     "weft run FILE [OPTION]...\n\n"
     "Runs a graph file once and prints its outputs.\n\n"
     "  --input X.npy       the next input, in the graph's order\n"
     "  --input NAME=X.npy  the input of that name\n"
     "  --input X.npz       inputs by the names of its members\n"
     "  --output-dir D      outputs go to D/output_0.npy, D/output_1.npy, ... in the\n"
     "                      graph's order; D is made if it is not there; bf16 is\n"
     "                      written as f32\n"
     "  --device cuda       on a GPU; cuda:N for another than the first\n",
     " --input --output-dir --device ", true, cli_run},
    {"show", "print a graph: text, Graphviz, picture",
     "weft show FILE [OPTION]...\n\n"
     "Prints inputs, weights and outputs, then the function as text.\n\n"
     "  --dot   input for Graphviz instead, fused kernels as boxes\n"
     "  --svg   a picture instead, likewise; needs no Graphviz\n"
     "  -o OUT  to that file, not to standard output\n",
     " --dot --svg -o ", true, cli_show},
    {"explain", "say what is fused, and why the rest is not",
     "weft explain FILE [OPTION]...\n\n"
     "Prints the steps that a run takes and a reason for every edge between them that\n"
     "is not fused. Nothing is run. Symbols get their sizes from --dim, or from inputs.\n\n"
     "  --dim NAME=SIZE        the size of a symbol\n"
     "  --input [NAME=]X.npy   an input, as for weft run\n",
     " --input --dim ", true, cli_explain},
    {"profile", "time a graph kernel by kernel, fused against unfused",
     "weft profile FILE [OPTION]...\n\n"
     "Runs the graph and prints for every kernel what it computes, its time, the bytes\n"
     "and floating-point operations counted from the graph, the bytes that fusing\n"
     "saved, and how near it comes to what this machine can do at that size, measured\n"
     "in the same run. Times add up to that of a whole run.\n\n"
     "  --compare              the graph op by op as well, in turns\n"
     "  --runs N               so many runs of each way; default 30\n"
     "  --dim NAME=SIZE        the size of a symbol\n"
     "  --input [NAME=]X.npy   an input, as for weft run; others are zeros\n"
     "  --json                 one JSON object instead of the table\n"
     "  -o OUT                 to that file, not to standard output\n\n"
     "A timeline instead: WEFT_PROFILE=trace.json weft run ...\n",
     " --input --dim --compare --json --runs -o ", true, cli_profile},
    {"doctor", "what this build and machine offer",
     "weft doctor\n\n"
     "Prints the compiler of kernels, instruction set, threads, libraries, GPUs and\n"
     "environment variables that weft found; for what is missing, why, and what stands\n"
     "in for it.\n",
     "", false, cli_doctor},
    {"cache", "compiled kernels on disk",
     "weft cache [--clear]\n\n"
     "Prints the folder of compiled kernels (WEFT_CACHE_DIR), how many there are and\n"
     "their bytes.\n\n"
     "  --clear  removes them; they are compiled again when needed\n",
     " --clear ", false, cli_cache},
};
/* clang-format on */
enum { COMMANDS = sizeof commands / sizeof *commands };

static int WF_PRINTF(2, 0) report(const char *command, const char *format, va_list list, int status)
{
    fprintf(stderr, "weft%s%s: ", command ? " " : "", command ? command : "");
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    if (status == CLI_USAGE) {
        fprintf(stderr, "try: weft %s%s--help\n", command ? command : "", command ? " " : "");
    }
    return status;
}

int cli_usage(const char *command, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int status = report(command, format, list, CLI_USAGE);
    va_end(list);
    return status;
}

int cli_failed(const char *command, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int status = report(command, format, list, CLI_FAILED);
    va_end(list);
    return status;
}

int cli_weft_failed(const char *command)
{
    return cli_failed(command, "%s", weft_last_error());
}

static void help(FILE *out)
{
    fputs("weft: tensors, and graphs of them\n\n", out);
    for (int i = 0; i < COMMANDS; i++) {
        fprintf(out, "  weft %-9s%s\n", commands[i].name, commands[i].summary);
    }
    fputs("\nweft COMMAND --help says more; weft --version. Exit status: 0 done, 1 failed, 2 wrong "
          "command line.\n",
          out);
}

/* A whole number in [1, limit]. */
static bool number(const char *s, long limit, int *out)
{
    char *end;
    long v = strtol(s, &end, 10);
    *out = (int)v;
    return *s && !*end && v >= 1 && v <= limit;
}

/* Takes option argv[*i], and its value if it has one. */
static int take_option(const cli_command *c, char **argv, int argc, int *i, cli_options *o)
{
    const char *name = argv[*i], *value = *i + 1 < argc ? argv[*i + 1] : NULL;
    char spaced[64];
    snprintf(spaced, sizeof spaced, " %s ", name);
    if (!strstr(c->options, spaced)) {
        return cli_usage(c->name, "there is no option '%s'", name);
    }
    bool *flag = strcmp(name, "--dot") == 0       ? &o->dot
                 : strcmp(name, "--svg") == 0     ? &o->svg
                 : strcmp(name, "--compare") == 0 ? &o->compare
                 : strcmp(name, "--json") == 0    ? &o->json
                 : strcmp(name, "--clear") == 0   ? &o->clear
                                                  : NULL;
    if (flag) {
        *flag = true;
        return CLI_OK;
    }
    if (!value) {
        return cli_usage(c->name, "%s wants a value", name);
    }
    ++*i;
    if (strcmp(name, "--input") == 0) {
        o->inputs[o->n_inputs++] = value;
    } else if (strcmp(name, "--dim") == 0) {
        o->dims[o->n_dims++] = value;
    } else if (strcmp(name, "--output-dir") == 0) {
        o->output_dir = value;
    } else if (strcmp(name, "--device") == 0) {
        o->device = value;
    } else if (strcmp(name, "-o") == 0) {
        o->output = value;
    } else if (!number(value, 1000000, &o->runs)) { /* --runs */
        return cli_usage(c->name, "--runs wants a number from 1 to 1000000, not '%s'", value);
    }
    return CLI_OK;
}

/* Arguments into *o, and the command. */
static int take_command(const cli_command *c, int argc, char **argv, cli_options *o)
{
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(c->usage, stdout);
            return CLI_OK;
        }
        if (argv[i][0] == '-' && argv[i][1]) {
            int status = take_option(c, argv, argc, &i, o);
            if (status) {
                return status;
            }
        } else if (!c->needs_file || o->file) {
            return cli_usage(c->name, "'%s' is one argument too many", argv[i]);
        } else {
            o->file = argv[i];
        }
    }
    if (c->needs_file && !o->file) {
        return cli_usage(c->name, "which FILE?");
    }
    return c->run(o);
}

/* status, but that standard output could not be written. */
static int written(const char *command, int status)
{
    const bool failed = fflush(stdout) != 0 || ferror(stdout); /* a full buffer went out before */
    return failed && status == CLI_OK ? cli_failed(command, "standard output cannot be written")
                                      : status;
}

static int run_command(const cli_command *c, int argc, char **argv)
{
    const char **values = calloc(2 * (size_t)argc + 1, sizeof *values);
    if (!values) {
        return cli_failed(c->name, "out of memory");
    }
    cli_options o = {.runs = 30, .inputs = values, .dims = values + argc};
    int status = take_command(c, argc, argv, &o);
    free(values);
    return written(c->name, status);
}

static const cli_command *find(const char *name)
{
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return CLI_USAGE;
    }
    const bool version = strcmp(argv[1], "--version") == 0;
    const bool asked = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
                       strcmp(argv[1], "help") == 0;
    const int most = version ? 2 : 3; /* "weft help run" */
    if ((version || asked) && argc > most) {
        return cli_usage(NULL, "'%s' is one argument too many", argv[most]);
    }
    if (version) {
        printf("weft %s\n", weft_version());
        return written(NULL, CLI_OK);
    }
    if (asked && argc == 2) {
        help(stdout);
        return written(NULL, CLI_OK);
    }
    const char *name = argv[asked ? 2 : 1];
    const cli_command *c = find(name);
    if (c && asked) {
        fputs(c->usage, stdout);
        return written(NULL, CLI_OK);
    }
    return c ? run_command(c, argc - 2, argv + 2)
             : cli_usage(NULL, "there is no command '%s'", name);
}
