/*
 * io/graph_show.c -- a graph as text, for Graphviz, and as a picture of its own.
 *
 * Both pictures show what runs: a box is a fused kernel with its ops (a cluster, for Graphviz), or an op by itself. Views,
 * weights and numbers have no box; weights are named in the op that reads them.
 */
#include <string.h>

#include "eager/alloc.h"
#include "io/graph_picture.h"
#include "jit/ir/controls.h"

weft_status weft_graph_print(const weft_graph *g, FILE *out)
{
    if (!g || !out) {
        wf_api_null("graph_print", "the graph or the file");
        return WEFT_EINVALID;
    }
    return (weft_status)wf_fn_print(g->fn, out);
}

/* -- what is written in a box -------------------------------------------------------------------------- */

enum { LINE = 56, LINES = 18 }; /* characters; lines of a fused box */

typedef struct label {
    char s[LINE * 4];
    size_t n;
} label;

static void put(label *l, const char *s)
{
    for (; *s && l->n + 1 < sizeof l->s; s++) {
        l->s[l->n++] = *s;
    }
    l->s[l->n] = 0;
}

static void put_type(const wf_picture *p, wf_val v, label *l)
{
    const wf_type *t = wf_picture_type(p, v);
    put(l, wf_dtype_name(t->dtype));
    put(l, "[");
    for (int i = 0; i < t->rank; i++) {
        char number[WF_EXTENT_TEXT];
        put(l, i ? "," : "");
        put(l, wf_extent_text(p->g->fn, t->dims[i], number));
    }
    put(l, "]");
}

/* "linear blocks.0.weight blocks.0.bias": the op, and the weights it reads, through views too. */
static void put_op(const wf_picture *p, uint32_t k, label *l)
{
    const wf_ins *i = &p->fn->ins[k];
    const wf_val *src = wf_ins_src(p->fn, i);
    put(l, wf_rows[i->op].name);
    for (int a = 0; a < i->nsrc; a++) {
        wf_val v = src[a];
        while (v && wf_rows[wf_fn_at(p->fn, v)->op].kind == WF_KIND_VIEW) {
            v = wf_ins_src(p->fn, wf_fn_at(p->fn, v))[0];
        }
        int input = v ? wf_picture_input(p, v) : -1;
        if (input >= p->g->n_inputs) {
            put(l, " ");
            put(l, p->g->names[input]);
        }
    }
}

static const char *port_name(const wf_picture *p, const wf_box *b)
{
    const weft_graph *g = p->g;
    return g->names[b->kind == WF_BOX_INPUT ? b->port : g->n_inputs + g->n_weights + b->port];
}

static wf_val port_value(const wf_picture *p, const wf_box *b)
{
    return b->kind == WF_BOX_INPUT ? p->fn->inputs[b->port] : p->fn->outputs[b->port];
}

static int box_lines(const wf_box *b)
{
    return b->kind != WF_BOX_FUSED ? 2 : 1 + (int)(b->n > LINES ? LINES : b->n);
}

/* Line i of a box. */
static void box_line(const wf_picture *p, const wf_box *b, int i, label *l)
{
    char text[64];
    l->n = 0;
    l->s[0] = 0;
    if (b->kind == WF_BOX_INPUT || b->kind == WF_BOX_OUTPUT) {
        if (i == 0) {
            put(l, port_name(p, b));
        } else {
            put_type(p, port_value(p, b), l);
        }
    } else if (b->kind == WF_BOX_OP) {
        if (i == 0) {
            put_op(p, p->ops[b->first], l);
        } else {
            put_type(p, p->ops[b->first] + 1, l);
        }
    } else if (i == 0) {
        snprintf(text, sizeof text, "one kernel (%s): %u ops", b->title, b->n);
        put(l, text);
    } else if (i == LINES && b->n > LINES) {
        snprintf(text, sizeof text, "and %u more", b->n - LINES + 1);
        put(l, text);
    } else {
        uint32_t k = p->ops[b->first + (uint32_t)i - 1];
        put_op(p, k, l);
        put(l, "  ");
        put_type(p, k + 1, l);
    }
}

/* The text of something that becomes markup: names come from files. */
static void put_escaped(const char *s, bool xml, FILE *out)
{
    for (size_t control = 0; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        control = control > 1 ? control - 1 : wf_control_at(s);
        if (control) {
            fputc('?', out);
        } else if (xml && (c == '<' || c == '>' || c == '&' || c == '"')) {
            fprintf(out, "&#%d;", c);
        } else if (!xml && (c == '"' || c == '\\')) {
            fprintf(out, "\\%c", c);
        } else {
            fputc(c, out);
        }
    }
}

/* -- Graphviz --------------------------------------------------------------------------------------------- */

static void put_dot_box(const wf_picture *p, const wf_box *b, uint32_t number, FILE *out)
{
    label l;
    if (b->kind == WF_BOX_INPUT || b->kind == WF_BOX_OUTPUT) {
        fprintf(out, "  b%u [style=\"rounded,filled\", fillcolor=\"%s\", label=\"", number,
                b->kind == WF_BOX_INPUT ? "#dce9f7" : "#dff2d8");
        put_escaped(port_name(p, b), false, out);
        fputs("\\n", out);
        box_line(p, b, 1, &l);
        put_escaped(l.s, false, out);
        fputs("\"];\n", out);
        return;
    }
    if (b->kind == WF_BOX_FUSED) {
        fprintf(out,
                "  subgraph cluster_%u {\n    style=\"rounded,filled\"; color=\"#c08a00\"; "
                "fillcolor=\"#fff3d6\"; label=\"",
                number);
        box_line(p, b, 0, &l);
        put_escaped(l.s, false, out);
        fputs("\";\n", out);
    }
    for (uint32_t m = b->first; m < b->first + b->n; m++) {
        l.n = 0;
        fprintf(out, "    n%u [label=\"", p->ops[m] + 1);
        put_op(p, p->ops[m], &l);
        put_escaped(l.s, false, out);
        fputs("\\n", out);
        l.n = 0;
        put_type(p, p->ops[m] + 1, &l);
        put_escaped(l.s, false, out);
        fputs("\"];\n", out);
    }
    fputs(b->kind == WF_BOX_FUSED ? "  }\n" : "", out);
}

/* The node of a value: its op's, or its input's box. */
static void put_dot_node(const wf_picture *p, wf_val v, FILE *out)
{
    uint32_t box = p->box_of[v - 1];
    if (p->boxes[box].kind == WF_BOX_INPUT) {
        fprintf(out, "b%u", box);
    } else {
        fprintf(out, "n%u", v);
    }
}

/* From every op to those that read it, inside clusters too. */
static void put_dot_edges(const wf_picture *p, FILE *out)
{
    for (uint32_t b = 0; b < p->nboxes; b++) {
        const wf_box *box = &p->boxes[b];
        wf_val v = box->kind == WF_BOX_OUTPUT ? wf_picture_source(p, p->fn->outputs[box->port]) : 0;
        if (v) {
            fputs("  ", out);
            put_dot_node(p, v, out);
            fprintf(out, " -> b%u;\n", b);
        }
        for (uint32_t m = box->first; m < box->first + box->n; m++) {
            const wf_ins *i = &p->fn->ins[p->ops[m]];
            for (int a = 0; a < i->nsrc; a++) {
                v = wf_picture_source(p, wf_ins_src(p->fn, i)[a]);
                if (v) {
                    fputs("  ", out);
                    put_dot_node(p, v, out);
                    fprintf(out, " -> n%u;\n", p->ops[m] + 1);
                }
            }
        }
    }
}

weft_status weft_graph_dot(const weft_graph *g, FILE *out)
{
    wf_picture p;
    if (!g || !out) {
        wf_api_null("graph_dot", "the graph or the file");
        return WEFT_EINVALID;
    }
    int rc = wf_picture_open(&p, g, "graph_dot");
    if (rc) {
        return (weft_status)rc;
    }
    fputs("digraph g {\n  node [shape=box, fontname=\"sans-serif\", style=filled, "
          "fillcolor=\"#ffffff\"];\n  graph [fontname=\"sans-serif\"];\n",
          out);
    for (uint32_t b = 0; b < p.nboxes; b++) {
        put_dot_box(&p, &p.boxes[b], b, out);
    }
    put_dot_edges(&p, out);
    fputs("}\n", out);
    wf_picture_close(&p);
    return ferror(out) ? WEFT_EIO : WEFT_OK;
}

/* -- a picture of its own --------------------------------------------------------------------------------- */

enum { CHAR_W = 7, LINE_H = 16, MARGIN = 8 };

/* Characters of a line as it is drawn: long ones are cut. UTF-8 counts by its first bytes. */
static int shown(label *l)
{
    int chars = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (((unsigned char)l->s[i] & 0xC0) != 0x80 && chars++ == LINE) {
            l->s[i] = 0;
            put(l, ""); /* room for what says so */
            l->n = i;
            put(l, "...");
            return LINE + 3;
        }
    }
    return chars;
}

static void measure(wf_picture *p)
{
    label l;
    for (uint32_t b = 0; b < p->nboxes; b++) {
        int most = 8;
        for (int i = 0; i < box_lines(&p->boxes[b]); i++) {
            box_line(p, &p->boxes[b], i, &l);
            int chars = shown(&l);
            most = chars > most ? chars : most;
        }
        p->boxes[b].w = most * CHAR_W + 2 * MARGIN;
        p->boxes[b].h = box_lines(&p->boxes[b]) * LINE_H + MARGIN;
    }
}

static void put_svg_flow(const wf_picture *p, const wf_flow *f, FILE *out)
{
    label l = {.n = 0};
    double(*at)[2] = p->points + f->path;
    fprintf(out, "<path d=\"M%.0f %.0f", at[0][0], at[0][1]);
    for (uint32_t i = 1; i < f->n; i++) {
        double half = (at[i][1] - at[i - 1][1]) / 2;
        fprintf(out, "C%.0f %.0f %.0f %.0f %.0f %.0f", at[i - 1][0], at[i - 1][1] + half, at[i][0],
                at[i][1] - half, at[i][0], at[i][1]);
    }
    put_type(p, f->value, &l);
    fputs("\"><title>", out);
    put_escaped(l.s, true, out);
    fputs("</title></path>\n", out);
}

static void put_svg_box(const wf_picture *p, const wf_box *b, FILE *out)
{
    static const char *const fill[] = {[WF_BOX_INPUT] = "#dce9f7",
                                       [WF_BOX_OP] = "#ffffff",
                                       [WF_BOX_FUSED] = "#fff3d6",
                                       [WF_BOX_OUTPUT] = "#dff2d8"};
    label l;
    fprintf(out,
            "<g class=\"%s\"><rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" rx=\"%d\" "
            "fill=\"%s\" stroke=\"%s\"/>\n",
            b->kind == WF_BOX_FUSED ? "fused" : "box", b->x, b->y, b->w, b->h,
            b->kind == WF_BOX_INPUT || b->kind == WF_BOX_OUTPUT ? 12 : 3, fill[b->kind],
            b->kind == WF_BOX_FUSED ? "#c08a00" : "#444");
    for (int i = 0; i < box_lines(b); i++) {
        box_line(p, b, i, &l);
        shown(&l);
        bool head = i == 0;
        fprintf(out, "<text x=\"%.0f\" y=\"%.0f\"%s>",
                b->kind == WF_BOX_FUSED ? b->x + (double)MARGIN : b->x + b->w / 2,
                b->y + (i + 1) * LINE_H,
                b->kind == WF_BOX_FUSED ? head ? " class=\"l h\"" : " class=\"l\""
                : head                  ? " class=\"h\""
                                        : "");
        put_escaped(l.s, true, out);
        fputs("</text>\n", out);
    }
    fputs("</g>\n", out);
}

static void put_svg(const wf_picture *p, FILE *out)
{
    fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 "
        "%.0f "
        "%.0f\" font-family=\"monospace\" "
        "font-size=\"11\">\n<style>text{text-anchor:middle;fill:#444}"
        ".l{text-anchor:start}.h{fill:#000;font-weight:bold}path{fill:none;stroke:#888}"
        "path:hover{stroke:#d00;stroke-width:3}</style>\n<rect width=\"100%%\" height=\"100%%\" "
        "fill=\"#fff\"/>\n",
        p->width, p->height, p->width, p->height);
    for (uint32_t i = 0; i < p->nflows; i++) {
        put_svg_flow(p, &p->flows[i], out);
    }
    for (uint32_t b = 0; b < p->nboxes; b++) {
        put_svg_box(p, &p->boxes[b], out);
    }
    fputs("</svg>\n", out);
}

weft_status weft_graph_svg(const weft_graph *g, FILE *out)
{
    wf_picture p;
    if (!g || !out) {
        wf_api_null("graph_svg", "the graph or the file");
        return WEFT_EINVALID;
    }
    int rc = wf_picture_open(&p, g, "graph_svg");
    if (rc) {
        return (weft_status)rc;
    }
    measure(&p);
    rc = wf_picture_layout(&p);
    if (rc) {
        wf_api_error(
            "graph_svg", rc,
            "out of memory, or too large to be drawn (weft_graph_dot writes it for Graphviz)");
    } else {
        put_svg(&p, out);
        rc = ferror(out) ? WEFT_EIO : 0;
    }
    wf_picture_close(&p);
    return (weft_status)rc;
}
