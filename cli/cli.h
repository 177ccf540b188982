/*
 * cli/cli.h -- what the commands of `weft` share: options, messages, opening graphs and their inputs.
 *
 * Exit status of every command: 0 done, 1 it failed (the reason and a remedy on standard error), 2 the command
 * line is wrong.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "io/graph.h"

enum { CLI_OK, CLI_FAILED, CLI_USAGE };

/* The options of all commands; a command refuses those it does not know. */
typedef struct cli_options {
    const char *file;
    const char **inputs; /* FILE.npy, NAME=FILE.npy or FILE.npz */
    int n_inputs;
    const char **dims; /* NAME=SIZE */
    int n_dims;
    const char *output_dir, *output; /* --output-dir, -o */
    const char *device;              /* --device */
    bool dot, svg, compare, json, clear;
    int runs;
} cli_options;

typedef struct cli_command {
    const char *name, *summary, *usage;
    const char *options; /* names that it takes, with spaces around each */
    bool needs_file;
    int (*run)(const cli_options *o);
} cli_command;

/* Prints "weft NAME: ..." on standard error; returns CLI_USAGE or CLI_FAILED. */
int cli_usage(const char *command, const char *format, ...) WF_PRINTF(2, 3);
int cli_failed(const char *command, const char *format, ...) WF_PRINTF(2, 3);
/* The same with the library's last error. */
int cli_weft_failed(const char *command);

/* n tensors, empty handles, to be freed; at least one. NULL: no memory, which is printed. */
weft_tensor *cli_tensors(const char *command, int n);
/* Inputs of g from the options, as cli_tensors makes them: files, and zeros where only --dim says how large. CLI_OK or an
 * exit status with the message printed; *x is to be freed either way. */
int cli_read_inputs(const char *command, weft_graph *g, const cli_options *o, weft_tensor **x);

/* Loads o->file and hands it to work, in a scope of its own. */
int cli_with_graph(const char *command, const cli_options *o,
                   int (*work)(weft_graph *g, const cli_options *o));

/* What print says of its argument, into the file of -o or to standard output. */
typedef weft_status (*cli_print)(const void *of, const cli_options *o, FILE *out);
int cli_output(const char *command, const cli_options *o, cli_print print, const void *of);

int cli_run(const cli_options *o);
int cli_show(const cli_options *o);
int cli_explain(const cli_options *o);
int cli_profile(const cli_options *o);
int cli_doctor(const cli_options *o);
int cli_cache(const cli_options *o);

#endif
