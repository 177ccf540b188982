/*
 * cli/profile.c -- the command profile: the table of weft/table.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "weft/table.h"

static int print(const weft_table *t, const cli_options *o)
{
    FILE *out = o->output ? fopen(o->output, "w") : stdout;
    if (!out) {
        return cli_failed("profile", "%s: %s", o->output, strerror(errno));
    }
    bool good = (o->json ? weft_table_json(t, out) : weft_table_print(t, out)) == WEFT_OK;
    good &= fflush(out) == 0 && !ferror(out);
    if (out != stdout) {
        good &= fclose(out) == 0;
    }
    return good ? CLI_OK : cli_failed("profile", "the output cannot be written");
}

static int profile_graph(weft_graph *g, const cli_options *o)
{
    weft_tensor *x;
    int status = cli_read_inputs("profile", g, o, &x);
    if (!status) {
        weft_table *t = weft_table_new(.graph = g, .inputs = x, .n_inputs = weft_graph_inputs(g),
                                       .name = o->file, .runs = o->runs, .fused_only = !o->compare);
        status = t ? print(t, o) : cli_weft_failed("profile");
        weft_table_free(t);
    }
    free(x);
    return status;
}

int cli_profile(const cli_options *o)
{
    return cli_with_graph("profile", o, profile_graph);
}
