/*
 * io/graph_file.c -- graphs in files: safetensors, the function as text in the metadata (docs/graph-files.md).
 *
 *   weft.version   "1"
 *   weft.producer  "weft 0.1.0"
 *   weft.graph     the function, as jit/ir/ir_text.c prints it
 *   weft.inputs, weft.weights, weft.outputs   names, one a line, in order
 *   weft.math      "fast", where it was asked for
 *
 * Invariants: what is loaded has passed the safetensors reader, the text's parser (which infers and verifies
 * every instruction) and the checks here: counts agree, names are distinct, every weight is in the file with the
 * type that the function has for it and nothing else is. Nothing is executed by loading.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "io/graph.h"
#include "io/names.h"
#include "io/safetensors.h"
#include "jit/ir/controls.h"

static const char version[] = "1", fast[] = "fast";

/* Names [from, from + n) one a line; malloc'ed. */
static char *join(const weft_graph *g, int from, int n)
{
    size_t size = 1;
    for (int i = 0; i < n; i++) {
        size += strlen(g->names[from + i]) + 1;
    }
    char *text = wf_malloc(size), *p = text;
    for (int i = 0; text && i < n; i++) {
        size_t k = strlen(g->names[from + i]);
        memcpy(p, g->names[from + i], k);
        p += k;
        *p++ = '\n';
    }
    if (text) {
        *p = 0;
    }
    return text;
}

weft_status weft_graph_save(const weft_graph *g, const char *path)
{
    if (!g || !path || !*path) {
        wf_api_null("graph_save", "the graph or the path");
        return WEFT_EINVALID;
    }
    int w = g->n_inputs + g->n_weights;
    char *text = wf_fn_text_bare(g->fn), *inputs = join(g, 0, g->n_inputs);
    char *weights = join(g, g->n_inputs, g->n_weights), *outputs = join(g, w, g->n_outputs);
    weft_named_tensor *t = wf_calloc((size_t)g->n_weights + 1, sizeof *t);
    weft_status s = WEFT_ENOMEM;
    if (text && inputs && weights && outputs && t) {
        weft_metadata meta[] = {{"weft.version", version}, {"weft.producer", g->producer},
                                {"weft.graph", text},      {"weft.inputs", inputs},
                                {"weft.weights", weights}, {"weft.outputs", outputs},
                                {"weft.math", fast}};
        const int n_meta = (int)(sizeof meta / sizeof *meta) - !g->fast_math;
        for (int i = 0; i < g->n_weights; i++) {
            t[i] = (weft_named_tensor){g->names[g->n_inputs + i], g->weights[i]};
        }
        s = wf_st_save_lines(path, t, g->n_weights, meta, n_meta);
    } else {
        wf_api_error("graph_save", WEFT_ENOMEM, "out of memory");
    }
    wf_mfree(text);
    wf_mfree(inputs);
    wf_mfree(weights);
    wf_mfree(outputs);
    wf_mfree(t);
    return s;
}

/* -- loading -------------------------------------------------------------------------------------------- */

static const char no_memory[] = "out of memory";

static weft_graph *reject(weft_graph *g, const char *source, const char *why)
{
    wf_api_error("graph_load", why == no_memory ? WEFT_ENOMEM : WEFT_EIO, "%s: %s", source, why);
    weft_graph_free(g);
    return NULL;
}

/* Splits exactly n lines into names. What is wrong, or NULL. */
static const char *split(const char *text, int n, char **names)
{
    for (int i = 0; i < n; i++) {
        const char *end = text ? strchr(text, '\n') : NULL;
        if (!end || end == text) {
            return "the lists of names do not fit the function's inputs and outputs";
        }
        size_t length = (size_t)(end - text);
        names[i] = wf_malloc(length + 1);
        if (!names[i]) {
            return no_memory;
        }
        memcpy(names[i], text, length);
        names[i][length] = 0;
        if (!wf_graph_good_name(names[i])) {
            return "a name has spaces or control characters, or is longer than 255 bytes";
        }
        text = end + 1;
    }
    return text && !*text ? NULL
                          : "the lists of names do not fit the function's inputs and outputs";
}

static int lines(const char *text)
{
    int n = 0;
    for (; text && *text && n < INT32_MAX; text++) {
        n += *text == '\n';
    }
    return n;
}

static const char *check_distinct(char *const *names, int n)
{
    bool lost;
    const char *twice = wf_names_twice(names, sizeof *names, n, &lost);
    return lost ? no_memory : twice ? "a name occurs twice" : NULL;
}

/* Takes the weights from the file: views of its mapping. */
static const char *take_weights(weft_graph *g, const weft_safetensors *f)
{
    if (weft_safetensors_count(f) != g->n_weights) {
        return "the file has other tensors than the function's weights";
    }
    for (int i = 0; i < g->n_weights; i++) {
        const wf_type *t = wf_fn_type(g->fn, g->fn->inputs[g->n_inputs + i]);
        weft_tensor x = weft_safetensors_get(f, g->names[g->n_inputs + i]);
        weft_shape s = weft_shape_of(x);
        bool same = weft_ok(x) && weft_dtype_of(x) == (weft_dtype)t->dtype && s.n == t->rank;
        for (int k = 0; same && k < t->rank; k++) {
            same = s.v[k] == t->dims[k]; /* a symbol is no extent */
        }
        if (!same && weft_error_status(x) == WEFT_ENOMEM) {
            return no_memory;
        }
        if (!same) {
            return "a weight is missing, or is of another type than the function says";
        }
        g->weights[i] = weft_keep(x);
        if (!weft_ok(g->weights[i])) {
            return no_memory;
        }
    }
    return NULL;
}

/* Symbols are bound by the inputs' extents, so each must be one of them, and what is computed from one cannot be. */
static const char *check_symbols(const weft_graph *g)
{
    for (int i = 0; i < g->n_inputs; i++) {
        const wf_type *t = wf_fn_type(g->fn, g->fn->inputs[i]);
        for (int d = 0; d < t->rank; d++) {
            if (WF_IS_SYM(t->dims[d]) && t->dims[d] >= WF_SYM(g->fn->nsymbols)) {
                return "an extent of an input is computed from a symbol";
            }
        }
    }
    for (uint32_t k = 0; k < g->fn->nsymbols; k++) {
        bool bound = false;
        for (int i = 0; i < g->n_inputs && !bound; i++) {
            const wf_type *t = wf_fn_type(g->fn, g->fn->inputs[i]);
            for (int d = 0; d < t->rank; d++) {
                bound |= t->dims[d] == WF_SYM(k);
            }
        }
        if (!bound) {
            return "a symbol is the extent of no input";
        }
    }
    return NULL;
}

static weft_graph *read_graph(const char *source, const weft_safetensors *f)
{
    const char *v = weft_safetensors_metadata(f, "weft.version");
    const char *text = weft_safetensors_metadata(f, "weft.graph");
    const char *inputs = weft_safetensors_metadata(f, "weft.inputs");
    const char *outputs = weft_safetensors_metadata(f, "weft.outputs");
    const char *weights = weft_safetensors_metadata(f, "weft.weights");
    const char *producer = weft_safetensors_metadata(f, "weft.producer");
    const char *math = weft_safetensors_metadata(f, "weft.math");
    if (!v || !text || !inputs || !outputs || !weights) {
        return reject(NULL, source,
                      "a safetensors file, but not a graph: weft.graph and its companions are "
                      "not in its metadata");
    }
    if (strcmp(v, version) != 0) {
        return reject(NULL, source,
                      "a graph file of another version than 1: a newer weft is needed");
    }
    if (producer && wf_has_controls(producer)) { /* it is printed as it is */
        return reject(NULL, source, "its weft.producer has control characters");
    }
    if (math && strcmp(math, fast) != 0) {
        return reject(NULL, source, "its weft.math is not 'fast': a newer weft is needed");
    }
    wf_why why = {0};
    wf_fn *fn = wf_fn_parse(text, strlen(text), &why);
    if (!fn) {
        wf_raise_status(wf_ctx_get(), "graph_load", 0, NULL, &why);
        return NULL;
    }
    int n_in = lines(inputs), n_out = (int)fn->noutputs, n_weights = lines(weights);
    if (n_in > WF_GRAPH_PORTS || fn->noutputs > WF_GRAPH_PORTS) {
        wf_fn_free(fn);
        wf_api_error("graph_load", WEFT_EIO,
                     "%s: %d inputs and %d outputs: a graph has at most %d each", source, n_in,
                     n_out, WF_GRAPH_PORTS);
        return NULL;
    }
    if (n_out < 1 || (int64_t)n_in + n_weights != fn->ninputs) {
        wf_fn_free(fn);
        return reject(NULL, source,
                      "the lists of names do not fit the function's inputs and outputs");
    }
    weft_graph *g = wf_graph_new("graph_load", fn, n_in, n_out);
    if (!g) {
        return NULL;
    }
    snprintf(g->producer, sizeof g->producer, "%s", producer ? producer : "");
    g->fast_math = math != NULL;
    const char *wrong = split(inputs, n_in, g->names);
    wrong = wrong ? wrong : split(weights, n_weights, g->names + n_in);
    wrong = wrong ? wrong : split(outputs, n_out, g->names + n_in + n_weights);
    wrong = wrong ? wrong : check_distinct(g->names, n_in + n_weights);
    wrong = wrong ? wrong : check_distinct(g->names + n_in + n_weights, n_out);
    wrong = wrong ? wrong : check_symbols(g);
    wrong = wrong ? wrong : take_weights(g, f);
    if (wrong) {
        return reject(g, source, wrong);
    }
    wf_graph_note_names(g);
    return g;
}

static weft_graph *load(const char *source, weft_safetensors *f)
{
    if (!f) {
        return NULL;
    }
    weft_scope scope = weft_scope_begin();
    weft_graph *g = read_graph(source, f);
    weft_scope_end(scope);
    weft_safetensors_close(f);
    return g;
}

weft_graph *weft_graph_load(const char *path)
{
    return load(path, weft_safetensors_open(path));
}

weft_graph *weft_graph_decode(const void *data, size_t size)
{
    return load("memory", weft_safetensors_decode(data, size));
}
