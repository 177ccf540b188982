/*
 * tests/jit/test_graph_picture.c -- pictures of graphs: every op in one box, boxes beside one another, lines between
 * them, markup that is well formed whatever names say.
 */
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "io/graph_picture.h"
#include "tests/support/support.h"
#include "weft/weft.h"

static const char hostile[] = "</text><script>\"&\\n\\'";

typedef struct model {
    weft_tensor w[6];
    int kind;
} model;

/* A block with a residual, a reduction and views; a plain chain; wide; nothing but an input. */
static weft_status forward(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    const model *m = self;
    (void)n_in, (void)n_out;
    weft_tensor x = in[0];
    if (m->kind == 0) {
        weft_tensor h = weft_linear(weft_layer_norm(.x = x, .axes = 1), m->w[0], m->w[1]);
        h = weft_mul(weft_sigmoid(h), h);
        out[0] = weft_add(x, weft_linear(h, weft_transpose(m->w[0], 0, 1), WEFT_NONE));
        out[1] = weft_softmax(weft_mul(out[0], weft_f(0.5)), -1);
    } else if (m->kind == 1) {
        out[0] = weft_tanh(weft_exp(weft_neg(weft_mul(x, m->w[2]))));
        out[1] = x;
    } else if (m->kind == 2) {
        weft_tensor all[24];
        for (int i = 0; i < 24; i++) {
            all[i] = weft_matmul(x, m->w[3]);
            all[i] = i % 3 ? weft_cumsum(all[i], 0) : all[i];
        }
        out[0] = weft_concat(all, 24, 1);
        out[1] = weft_sum(.x = all[5], .axes = weft_axes(0));
    } else {
        out[0] = out[1] = x;
    }
    return WEFT_OK;
}

static weft_graph *graph(int kind)
{
    static model m;
    m.kind = kind;
    weft_generator r = {1, 0};
    static const int64_t dims[6][2] = {{32, 16}, {32, 0}, {16, 0}, {16, 16}};
    for (int i = 0; i < 4; i++) {
        m.w[i] = weft_randn(.shape = weft_shape_from(dims[i][1] ? 2 : 1, dims[i]), .generator = &r);
        weft_set_name(m.w[i], i == 0   ? hostile
                              : i == 1 ? "a.name.that.is.a.good.deal.longer.than.any.box.is.wide."
                                         "so.it.has.to.be.cut.somewhere"
                                       : "w");
    }
    weft_tensor x = weft_randn(.shape = weft_shape(8, 16), .generator = &r);
    static const weft_graph_dim batch[] = {{0, 0, "batch"}};
    weft_graph *g = weft_jit_graph(forward, &m, &x, 1, .n_outputs = 2, .dims = batch, .n_dims = 1);
    cr_assert_not_null(g, "%s", weft_last_error());
    return g;
}

static bool apart(const wf_box *a, const wf_box *b)
{
    return a->x + a->w <= b->x || b->x + b->w <= a->x || a->y + a->h <= b->y || b->y + b->h <= a->y;
}

Test(picture, boxes_and_lines)
{
    int fused = 0;
    for (int kind = 0; kind < 4; kind++) {
        weft_graph *g = graph(kind);
        wf_picture p;
        cr_assert_eq(wf_picture_open(&p, g, "test"), 0, "%s", weft_last_error());
        int seen[1000] = {0};
        for (uint32_t b = 0; b < p.nboxes; b++) {
            p.boxes[b].w = 40 + 13 * (b % 5);
            p.boxes[b].h = 20 + 7 * (b % 3);
            fused += p.boxes[b].kind == WF_BOX_FUSED;
            for (uint32_t i = 0; i < p.boxes[b].n; i++) {
                seen[p.ops[p.boxes[b].first + i]]++;
            }
        }
        for (uint32_t k = 0; k < p.fn->n; k++) {
            int what = wf_rows[p.fn->ins[k].op].kind;
            bool box = what != WF_KIND_LEAF && p.box_of[k] != UINT32_MAX;
            cr_assert_eq(seen[k], box, "instruction %u", k);
        }
        cr_assert_eq(wf_picture_layout(&p), 0);
        for (uint32_t a = 0; a < p.nboxes; a++) {
            const wf_box *box = &p.boxes[a];
            cr_assert(box->x >= 0 && box->y >= 0 && box->x + box->w <= p.width &&
                      box->y + box->h <= p.height);
            for (uint32_t b = 0; b < a; b++) {
                cr_assert(apart(box, &p.boxes[b]), "graph %d: boxes %u and %u", kind, a, b);
            }
        }
        for (uint32_t i = 0; i < p.nflows; i++) {
            const wf_flow *f = &p.flows[i];
            const wf_box *from = &p.boxes[f->from], *to = &p.boxes[f->to];
            double(*at)[2] = p.points + f->path;
            cr_assert(f->from < f->to && f->n >= 2 && from->y + from->h < to->y);
            cr_assert_float_eq(at[0][0], from->x + from->w / 2, 1e-6);
            cr_assert_float_eq(at[f->n - 1][0], to->x + to->w / 2, 1e-6);
            cr_assert_float_eq(at[f->n - 1][1], to->y, 1e-6);
            for (uint32_t k = 1; k + 1 < f->n; k++) { /* on its way it meets no box of the layer */
                for (uint32_t b = 0; b < p.nboxes; b++) {
                    const wf_box *box = &p.boxes[b];
                    cr_assert(box->y != at[k][1] || at[k][0] < box->x ||
                              at[k][0] > box->x + box->w);
                }
            }
        }
        wf_picture_close(&p);
        weft_graph_free(g);
    }
    cr_assert_geq(fused, 2, "nothing was fused");
}

static int occurrences(const char *text, const char *what)
{
    int n = 0;
    for (const char *p = strstr(text, what); p; p = strstr(p + 1, what)) {
        n++;
    }
    return n;
}

/* Elements close in order, attributes are quoted, & begins a reference: enough of XML for what is written here. */
static bool is_xml(const char *s)
{
    char open[32][32];
    int depth = 0;
    for (; *s; s++) {
        if (*s == '&' && (s[1] != '#' || !isdigit((unsigned char)s[2]))) {
            return false;
        }
        if (*s == '>' || (unsigned char)*s < 0x20 ? *s != '\n' : *s != '<') {
            if (*s == '>') {
                return false;
            }
            continue;
        }
        if (*s != '<') {
            continue;
        }
        bool closes = s[1] == '/', quoted = false;
        size_t n = 0;
        const char *name = s + 1 + closes;
        while (isalpha((unsigned char)name[n])) {
            n++;
        }
        if (n == 0 || n >= 32) {
            return false;
        }
        const char *end = name + n;
        for (; *end && (quoted || *end != '>'); end++) {
            quoted ^= *end == '"';
            if (*end == '<') {
                return false;
            }
        }
        if (!*end) {
            return false;
        }
        if (closes) {
            if (depth == 0 || strlen(open[--depth]) != n || strncmp(open[depth], name, n) != 0) {
                return false;
            }
        } else if (end[-1] != '/') {
            if (depth == 32) {
                return false;
            }
            snprintf(open[depth++], 32, "%.*s", (int)n, name);
        }
        s = end;
    }
    return depth == 0;
}

Test(picture, markup)
{
    cr_assert(!is_xml("<a><b></a></b>") && !is_xml("<a>&lt</a>") &&
              is_xml("<a x=\"1\"><b/>&#38;</a>"));
    for (int kind = 0; kind < 4; kind++) {
        weft_graph *g = graph(kind);
        char *svg = test_written(g, weft_graph_svg), *dot = test_written(g, weft_graph_dot);
        cr_assert(is_xml(svg), "%s", svg);
        cr_assert_null(strstr(svg, "<script"));
        cr_assert(strncmp(svg, "<svg ", 5) == 0 && strstr(svg, "batch"));
        cr_assert_eq(occurrences(dot, "subgraph cluster_"), occurrences(svg, "class=\"fused\""));
        cr_assert_eq(occurrences(dot, "{"), occurrences(dot, "}"));
        if (kind == 0) {
            cr_assert_geq(occurrences(dot, "subgraph cluster_"), 1);
            cr_assert_not_null(strstr(dot, "</text><script>\\\"&\\\\n\\\\'"), "%s", dot);
            cr_assert_not_null(strstr(svg, "&#60;/text&#62;&#60;script&#62;"), "%s", svg);
            cr_assert_not_null(strstr(svg, "..."));
        }
        free(svg);
        free(dot);
        weft_graph_free(g);
    }
    cr_assert_eq(weft_graph_svg(NULL, stdout), WEFT_EINVALID);
    weft_graph *g = graph(1);
    FILE *full = fopen("/dev/full", "w");
    cr_assert_not_null(full);
    setvbuf(full, NULL, _IONBF, 0);
    cr_assert_eq(weft_graph_svg(g, full), WEFT_EIO);
    fclose(full);
    weft_graph_free(g);
}
