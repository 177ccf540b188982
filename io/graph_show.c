/*
 * io/graph_show.c -- a graph as text, for Graphviz, and as a picture of its own.
 *
 * The picture is layered: an instruction lies one row below the lowest of its operands, the instructions of a row
 * side by side in their order. Weights and numbers are left out; they are named in the box that reads them.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "io/graph.h"

weft_status weft_graph_print(const weft_graph *g, FILE *out)
{
    if (!g || !out) {
        wf_api_null("graph_print", "the graph or the file");
        return WEFT_EINVALID;
    }
    return (weft_status)wf_fn_print(g->fn, out);
}

/* The text of something that becomes markup: names come from files. */
static void put_escaped(const char *s, bool xml, FILE *out)
{
    for (; *s; s++) {
        if (xml && (*s == '<' || *s == '>' || *s == '&' || *s == '"')) {
            fprintf(out, "&#%d;", *s);
        } else if (!xml && (*s == '"' || *s == '\\')) {
            fprintf(out, "\\%c", *s);
        } else {
            fputc(*s, out);
        }
    }
}

static void put_type(const wf_fn *f, wf_val v, bool xml, FILE *out)
{
    const wf_type *t = wf_fn_type(f, v);
    fprintf(out, "%s[", wf_dtype_name(t->dtype));
    for (int i = 0; i < t->rank; i++) {
        fputs(i ? "," : "", out);
        if (WF_IS_SYM(t->dims[i])) {
            put_escaped(f->symbols[t->dims[i] - WF_SYM(0)], xml, out);
        } else {
            fprintf(out, "%lld", (long long)t->dims[i]);
        }
    }
    fputs("]", out);
}

static int input_of(const weft_graph *g, wf_val v)
{
    return wf_fn_at(g->fn, v)->op == WF_OP_INPUT ? (int)wf_fn_at(g->fn, v)->attr : -1;
}

/* Is v a box of its own: an input or a row (not a weight, number or further result)? */
static bool is_box(const weft_graph *g, wf_val v)
{
    const wf_ins *i = wf_fn_at(g->fn, v);
    int k = input_of(g, v);
    return k >= 0 ? k < g->n_inputs : !wf_op_is_weak(i->op) && i->op != WF_OP_RESULT;
}

/* The box that v comes from; 0: none. */
static wf_val box_of(const weft_graph *g, wf_val v)
{
    if (v && wf_fn_at(g->fn, v)->op == WF_OP_RESULT) {
        v = wf_fn_at(g->fn, v)->src[0];
    }
    return v && is_box(g, v) ? v : 0;
}

/* What is written in a box: its name, then the weights it reads. */
static void put_label(const weft_graph *g, wf_val v, bool xml, FILE *out)
{
    const wf_ins *i = wf_fn_at(g->fn, v);
    int k = input_of(g, v);
    if (k >= 0) {
        put_escaped(g->names[k], xml, out);
        return;
    }
    fputs(wf_rows[i->op].name, out);
    const wf_val *s = wf_ins_src(g->fn, i);
    for (int a = 0; a < i->nsrc; a++) {
        k = s[a] ? input_of(g, s[a]) : -1;
        if (k >= g->n_inputs) {
            fputs(" ", out);
            put_escaped(g->names[k], xml, out);
        }
    }
}

weft_status weft_graph_dot(const weft_graph *g, FILE *out)
{
    if (!g || !out) {
        wf_api_null("graph_dot", "the graph or the file");
        return WEFT_EINVALID;
    }
    const wf_fn *f = g->fn;
    fputs("digraph g {\n  node [shape=box, fontname=\"sans-serif\"];\n", out);
    for (wf_val v = 1; v <= f->n; v++) {
        if (!is_box(g, v)) {
            continue;
        }
        fprintf(out, "  n%u [label=\"", v);
        put_label(g, v, false, out);
        fputs("\\n", out);
        put_type(f, v, false, out);
        fprintf(out, "\"%s];\n", input_of(g, v) >= 0 ? ", style=rounded" : "");
        const wf_ins *i = wf_fn_at(f, v);
        const wf_val *s = wf_ins_src(f, i);
        for (int a = 0; a < i->nsrc; a++) {
            if (box_of(g, s[a])) {
                fprintf(out, "  n%u -> n%u;\n", box_of(g, s[a]), v);
            }
        }
    }
    for (int k = 0; k < g->n_outputs; k++) {
        fprintf(out, "  o%d [label=\"", k);
        put_escaped(g->names[g->n_inputs + g->n_weights + k], false, out);
        fputs("\", style=rounded];\n", out);
        if (box_of(g, f->outputs[k])) {
            fprintf(out, "  n%u -> o%d;\n", box_of(g, f->outputs[k]), k);
        }
    }
    fputs("}\n", out);
    return ferror(out) ? WEFT_EIO : WEFT_OK;
}

enum { BOX_W = 220, BOX_H = 40, GAP_X = 20, GAP_Y = 30 };

typedef struct place {
    int row, column;
} place;

/* Rows and columns of the boxes; *columns of the widest row, *rows of all. */
static void lay_out(const weft_graph *g, place *at, int *width, int *rows, int *columns)
{
    const wf_fn *f = g->fn;
    *rows = *columns = 1;
    for (wf_val v = 1; v <= f->n; v++) {
        if (!is_box(g, v)) {
            continue;
        }
        const wf_ins *i = wf_fn_at(f, v);
        const wf_val *s = wf_ins_src(f, i);
        for (int a = 0; a < i->nsrc; a++) {
            wf_val b = box_of(g, s[a]);
            if (b && at[b].row >= at[v].row) {
                at[v].row = at[b].row + 1;
            }
        }
        at[v].column = width[at[v].row]++;
        *rows = at[v].row + 1 > *rows ? at[v].row + 1 : *rows;
        *columns = width[at[v].row] > *columns ? width[at[v].row] : *columns;
    }
}

static void put_box(int x, int y, const char *fill, FILE *out)
{
    fprintf(out,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\" fill=\"%s\" "
            "stroke=\"#444\"/>\n",
            x, y, BOX_W, BOX_H, fill);
}

weft_status weft_graph_svg(const weft_graph *g, FILE *out)
{
    if (!g || !out) {
        wf_api_null("graph_svg", "the graph or the file");
        return WEFT_EINVALID;
    }
    const wf_fn *f = g->fn;
    place *at = wf_calloc((size_t)f->n + 1, sizeof *at);
    int *width = wf_calloc((size_t)f->n + 1, sizeof *width), rows, columns;
    if (!at || !width) {
        wf_mfree(at);
        wf_mfree(width);
        wf_api_error("graph_svg", WEFT_ENOMEM, "out of memory");
        return WEFT_ENOMEM;
    }
    lay_out(g, at, width, &rows, &columns);
    int step_x = BOX_W + GAP_X, step_y = BOX_H + GAP_Y;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"12\" text-anchor=\"middle\">\n",
            columns * step_x + GAP_X, rows * step_y + GAP_Y);
    for (wf_val v = 1; v <= f->n; v++) {
        const wf_ins *i = wf_fn_at(f, v);
        const wf_val *s = wf_ins_src(f, i);
        int x = GAP_X + at[v].column * step_x, y = GAP_Y + at[v].row * step_y;
        for (int a = 0; is_box(g, v) && a < i->nsrc; a++) {
            wf_val b = box_of(g, s[a]);
            if (b) {
                fprintf(out, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#888\"/>\n",
                        GAP_X + at[b].column * step_x + BOX_W / 2,
                        GAP_Y + at[b].row * step_y + BOX_H, x + BOX_W / 2, y);
            }
        }
    }
    for (wf_val v = 1; v <= f->n; v++) {
        if (!is_box(g, v)) {
            continue;
        }
        int x = GAP_X + at[v].column * step_x, y = GAP_Y + at[v].row * step_y;
        bool result = false;
        for (int k = 0; k < g->n_outputs; k++) {
            result |= box_of(g, f->outputs[k]) == v;
        }
        put_box(x, y, input_of(g, v) >= 0 ? "#dce9f7" : result ? "#dff2d8" : "#fff", out);
        fprintf(out, "<text x=\"%d\" y=\"%d\">", x + BOX_W / 2, y + 17);
        put_label(g, v, true, out);
        fprintf(out, "</text><text x=\"%d\" y=\"%d\" fill=\"#555\">", x + BOX_W / 2, y + 33);
        put_type(f, v, true, out);
        fputs("</text>\n", out);
    }
    fputs("</svg>\n", out);
    wf_mfree(at);
    wf_mfree(width);
    return ferror(out) ? WEFT_EIO : WEFT_OK;
}
