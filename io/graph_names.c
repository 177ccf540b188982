/*
 * io/graph_names.c -- names of a graph's inputs, weights and outputs.
 *
 * Invariant: inputs and weights have distinct names, and outputs, and all are such as a file may hold, so that what is saved loads.
 */
#include <string.h>

#include "eager/alloc.h"
#include "io/graph.h"
#include "io/safetensors.h"
#include "jit/ir/controls.h"
#include "jit/ir/mix.h"

enum { LONGEST = 255, NUMBERED = LONGEST + 24 };

bool wf_graph_good_name(const char *s)
{
    const size_t n = strlen(s);
    return n > 0 && n <= LONGEST && wf_st_good_name(s) && !strchr(s, ' ') && !wf_has_controls(s);
}

/* Names that are in use. */
typedef struct used {
    const char **at; /* by hash; NULL: free */
    size_t mask;
} used;

static bool make_used(used *u, size_t n)
{
    size_t size = 8;
    while (size < 2 * n) {
        size *= 2;
    }
    u->mask = size - 1;
    u->at = wf_calloc(size, sizeof *u->at);
    return u->at != NULL;
}

/* The place of a name, or where it would be. */
static const char **place_in(const used *u, const char *name)
{
    uint64_t h = 0;
    for (const char *p = name; *p; p++) {
        h = wf_mix(h, (unsigned char)*p);
    }
    size_t i = h & u->mask;
    while (u->at[i] && strcmp(u->at[i], name) != 0) {
        i = (i + 1) & u->mask;
    }
    return &u->at[i];
}

/* A name for weight i that nothing has. */
static char *weight_name(const used *u, int i, const char *given)
{
    char text[NUMBERED];
    const bool good = wf_graph_good_name(given);
    snprintf(text, sizeof text, good ? "%.255s" : "%.255s_%d", good ? given : "weight", i);
    for (int k = i; *place_in(u, text); k++) {
        snprintf(text, sizeof text, "%.255s_%d", good ? given : "weight", k);
    }
    return wf_strdup(text);
}

/* Names n inputs or outputs, as given or by their numbers. 0, or an error recorded. */
static int name_given(const char *what, const char *const *given, int n, char **names, used *u)
{
    char text[32];
    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%s_%d", what, i);
        const char *name = given ? given[i] : text;
        if (!name || !wf_graph_good_name(name)) {
            wf_api_error(
                "jit_graph", WEFT_EINVALID,
                "name %d of the %ss is missing, has spaces or control characters, is longer "
                "than %d bytes, not UTF-8, or '__metadata__'",
                i, what, LONGEST);
            return WEFT_EINVALID;
        }
        const char **place = place_in(u, name);
        if (*place) {
            wf_api_error("jit_graph", WEFT_EINVALID, "two %ss are called '%s'", what, name);
            return WEFT_EINVALID;
        }
        names[i] = wf_strdup(name);
        *place = names[i];
        if (!names[i]) {
            wf_api_error("jit_graph", WEFT_ENOMEM, "out of memory for names");
            return WEFT_ENOMEM;
        }
    }
    return 0;
}

static int name_all(weft_graph *g, const weft_graph_args *a, const weft_tensor *captured, used *in,
                    used *out)
{
    char **weights = g->names + g->n_inputs;
    int rc = name_given("input", a->input_names, g->n_inputs, g->names, in);
    for (int i = 0; i < g->n_weights && !rc; i++) {
        weights[i] = weight_name(in, i, weft_name(captured[g->n_inputs + i]));
        if (!weights[i]) {
            wf_api_error("jit_graph", WEFT_ENOMEM, "out of memory for names");
            return WEFT_ENOMEM;
        }
        *place_in(in, weights[i]) = weights[i];
    }
    return rc ? rc
              : name_given("output", a->output_names, g->n_outputs, weights + g->n_weights, out);
}

int wf_graph_name(weft_graph *g, const weft_graph_args *a, const weft_tensor *captured)
{
    used in = {0}, out = {0};
    int rc = WEFT_ENOMEM;
    if (make_used(&in, (size_t)g->n_inputs + (size_t)g->n_weights) &&
        make_used(&out, (size_t)g->n_outputs)) {
        rc = name_all(g, a, captured, &in, &out);
    } else {
        wf_api_error("jit_graph", WEFT_ENOMEM, "out of memory for names");
    }
    wf_mfree(in.at);
    wf_mfree(out.at);
    return rc;
}
