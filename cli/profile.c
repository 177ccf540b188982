/*
 * cli/profile.c -- the command profile: the table of weft/table.h.
 */
#include <stdlib.h>

#include "cli/cli.h"
#include "weft/table.h"

static weft_status print_table(const void *of, const cli_options *o, FILE *out)
{
    const weft_table *t = of;
    return o->json ? weft_table_json(t, out) : weft_table_print(t, out);
}

static int profile_graph(weft_graph *g, const cli_options *o)
{
    weft_tensor *x;
    int status = cli_read_inputs("profile", g, o, &x);
    if (!status) {
        weft_table *t = weft_table_new(.graph = g, .inputs = x, .n_inputs = weft_graph_inputs(g),
                                       .name = o->file, .runs = o->runs, .fused_only = !o->compare);
        status = t ? cli_output("profile", o, print_table, t) : cli_weft_failed("profile");
        weft_table_free(t);
    }
    free(x);
    return status;
}

int cli_profile(const cli_options *o)
{
    return cli_with_graph("profile", o, profile_graph);
}
