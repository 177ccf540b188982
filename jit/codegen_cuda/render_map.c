/*
 * jit/codegen_cuda/render_map.c -- elementwise kernels over strided views; see jit/ir/cuda_text.h.
 *
 * A grid-stride loop over groups of neighbours. The number of a group is taken apart axis by axis from the
 * innermost one; divisions by extents are a multiplication and a shift with numbers from the host. Operands of
 * equal strides share their offset. Operands adjacent along the innermost axis are read and written as
 * vectors, others one by one.
 *
 * A thread with little to load has several groups, a grid apart: O, Y and X are their offsets and operands, all loaded before
 * anything is stored. Those past the end are the first one again, which stores what it stored.
 *
 * A kernel of many runs has their words one behind the other in its argument, which is constant memory: no table has to be
 * copied to the device, nor kept until the launch is over, and a captured graph holds it. A block takes a piece of a run, which
 * it finds by bisection of the runs' first pieces.
 */
#include <stdio.h>

#include "jit/codegen_cuda/render.h"

#define P(...) wf_text_putf(t, __VA_ARGS__)

static int ndst_of(const wf_cu_map *m)
{
    return wf_kernel_ndst(m->k);
}

/* Where the groups of a run stand, and behind them its divisors. */
static int groups_word(const wf_cu_map *m)
{
    return m->many ? 1 : 0;
}

int wf_cu_map_strides(const wf_cu_map *m, int op)
{
    return m->like[op] != op ? 0 : m->rank - (m->inner[op] != 2);
}

int wf_cu_map_operand(const wf_cu_map *m, int op)
{
    int at = groups_word(m) + 1 + (m->rank - 1) * WF_CU_DIVISOR;
    for (int o = 0; o < op; o++)
        at += !m->alias[o] + wf_cu_map_strides(m, o);
    return at;
}

int wf_cu_map_scalar(const wf_cu_map *m, int s)
{
    return (m->many ? WF_CU_MANY_HEAD : wf_cu_map_operand(m, ndst_of(m) + m->k->nsrc)) + s;
}

int wf_cu_map_words(const wf_cu_map *m)
{
    return m->many ? m->many : wf_cu_map_scalar(m, m->k->nscalar);
}

int wf_cu_map_sets(const wf_cu_map *m)
{
    enum { WORDS = 128, SETS = 8 };
    const int n = m->k->nscalar, fit = n ? WORDS / n : 0;
    return fit > SETS ? SETS : fit;
}

int wf_cu_map_entry(const wf_cu_map *m)
{
    return wf_cu_map_operand(m, ndst_of(m) + m->k->nsrc);
}

int wf_cu_map_first(const wf_cu_map *m)
{
    return wf_cu_map_scalar(m, wf_cu_map_sets(m) * m->k->nscalar);
}

int wf_cu_map_entries(const wf_cu_map *m)
{
    return (m->many - wf_cu_map_first(m)) / wf_cu_map_entry(m);
}

void wf_cu_words(wf_text *t, int words)
{
    P("#ifndef WF_WORDS_%d\n#define WF_WORDS_%d\n"
      "struct wf_words_%d { unsigned long long w[%d]; };\n#endif\n",
      words, words, words, words);
}

void wf_cu_word(wf_text *t, wf_kty type, const char *base, int word)
{
    if (type == WF_KT_F32)
        P("wf_f32((unsigned int)a.w[%s%d])", base, word);
    else if (type == WF_KT_F64)
        P("wf_f64(a.w[%s%d])", base, word);
    else
        P("(%s)a.w[%s%d]", wf_cu_type(type), base, word);
}

void wf_cu_divide(wf_text *t, bool wide, const char *q, const char *x, const char *base, int word)
{
    if (wide)
        P("        %s = %s / (long long)a.w[%s%d];\n", q, x, base, word);
    else
        P("        %s = (__umulhi(%s, (unsigned int)a.w[%s%d]) + %s) >> (unsigned "
          "int)a.w[%s%d];\n",
          q, x, base, word + 1, x, base, word + 2);
}

/* Before the number of a word of the run. */
static const char *base_of(const wf_cu_map *m)
{
    return m->many ? "entry + " : "";
}

static wf_kty type_of(const wf_cu_map *m, int op)
{
    return wf_kernel_ptr_type(m->k, op);
}

/* No memory: the offset is what the body reads. */
static bool is_drawn(const wf_cu_map *m, int op)
{
    return op >= ndst_of(m) && (m->k->drawn >> (op - ndst_of(m)) & 1);
}

static bool is_vector(const wf_cu_map *m, int op)
{
    return m->vector > 1 && m->inner[op] == 1 && !is_drawn(m, op);
}

void wf_cu_vector_type(wf_text *t, wf_kty type, int n)
{
    const char *name = wf_kty_name(type);
    P("#ifndef WF_VEC_%s_%d\n#define WF_VEC_%s_%d\n"
      "struct __align__(%d) wf_vec_%s_%d { %s v[%d]; };\n#endif\n",
      name, n, name, n, n * (int)(wf_kty_bits(type) / 8), name, n, wf_cu_type(type), n);
}

static void vector_types(const wf_cu_map *m, wf_text *t)
{
    for (int o = 0; o < ndst_of(m) + m->k->nsrc; o++)
        if (is_vector(m, o))
            wf_cu_vector_type(t, type_of(m, o), m->vector);
}

/* Offsets of the group's first element. */
static void offsets(const wf_cu_map *m, wf_text *t)
{
    const char *type = m->wide ? "long long" : "unsigned int", *base = base_of(m);
    P("        %s rest = i, up;\n", type);
    for (int d = m->rank - 1; d >= 1; d--) {
        const int word = groups_word(m) + 1 + (d - 1) * WF_CU_DIVISOR;
        wf_cu_divide(t, m->wide, "up", "rest", base, word);
        P("        const %s i%d = rest - up * (%s)a.w[%s%d];\n        rest = up;\n", type, d, type,
          base, word);
    }
    P("        const %s i0 = rest;\n", type);
    for (int o = 0; o < ndst_of(m) + m->k->nsrc; o++) {
        if (m->like[o] != o)
            continue;
        const int at = wf_cu_map_operand(m, o) + !m->alias[o];
        P("        const %s o%d = 0", m->wide ? "long long" : "int", o);
        for (int d = 0; d < m->rank; d++) {
            if (d == m->rank - 1 && m->inner[o] == 0)
                continue;
            if (d == m->rank - 1 && m->inner[o] == 1)
                P(" + (%s)i%d * %d", m->wide ? "long long" : "int", d, m->vector);
            else
                P(" + (%s)i%d * (%s)a.w[%s%d]", m->wide ? "long long" : "int", d,
                  m->wide ? "long long" : "int", base, at + d);
        }
        P(";\n");
    }
}

static void pointers(const wf_cu_map *m, wf_text *t)
{
    const int ndst = ndst_of(m);
    for (int o = 0; o < ndst + m->k->nsrc; o++) {
        const char *type = wf_cu_type(type_of(m, o)), *constant = o < ndst ? "" : "const ";
        const int at = wf_cu_map_operand(m, m->alias[o] ? m->alias[o] - 1 : o);
        if (is_drawn(m, o)) {
            P("    const long long s%d = (long long)a.w[%s%d];\n", o - ndst, base_of(m), at);
            continue;
        }
        P("    %s%s *%c%d = (%s%s *)a.w[%s%d];\n", constant, type, o < ndst ? 'd' : 's',
          o < ndst ? o : o - ndst, constant, type, base_of(m), at);
    }
    for (int s = 0; s < m->k->nscalar; s++) {
        const wf_kty type = (wf_kty)m->k->body.param_type[m->k->nsrc + s];
        P("    const %s c%d = ", wf_cu_type(type), s);
        wf_cu_word(t, type, m->many ? "set + " : "", wf_cu_map_scalar(m, s));
        P(";\n");
    }
}

/* Is source o loaded once for a group, as it is? */
static bool is_single(const wf_cu_map *m, int o)
{
    return m->inner[o] == 0 || (m->groups > 1 && m->vector == 1 && !is_drawn(m, o));
}

static void results(const wf_cu_map *m, wf_text *t)
{
    for (int o = 0; o < ndst_of(m); o++)
        if (is_vector(m, o))
            P("        struct wf_vec_%s_%d z%d;\n", wf_kty_name(type_of(m, o)), m->vector, o);
}

static void load_group(const wf_cu_map *m, wf_text *t)
{
    const int ndst = ndst_of(m);
    for (int o = ndst; o < ndst + m->k->nsrc; o++) {
        const char *name = wf_kty_name(type_of(m, o));
        const int s = o - ndst;
        if (is_vector(m, o))
            P("        const struct wf_vec_%s_%d y%d = *(const struct wf_vec_%s_%d *)(s%d + "
              "o%d);\n",
              name, m->vector, s, name, m->vector, s, m->like[o]);
        else if (is_single(m, o))
            P(is_drawn(m, o) ? "        const %s x%d = s%d + o%d;\n"
                             : "        const %s x%d = s%d[o%d];\n",
              wf_cu_type(type_of(m, o)), s, s, m->like[o]);
    }
}

enum { DECLARE, SAVE, RESTORE };

/* What a group is after its loads: arrays of it, written or read at u. */
static void each_group(const wf_cu_map *m, wf_text *t, int what)
{
    const int ndst = ndst_of(m);
    for (int o = 0; o < ndst + m->k->nsrc; o++)
        for (int which = 0; which < 2; which++) {
            char type[48];
            const int s = which ? o - ndst : o;
            const char c = which == 0 ? 'o' : is_vector(m, o) ? 'y' : 'x';
            if (which == 0 ? m->like[o] != o : o < ndst || (c == 'x' && !is_single(m, o)))
                continue;
            if (c == 'o')
                snprintf(type, sizeof type, "%s", m->wide ? "long long" : "int");
            else if (c == 'y')
                snprintf(type, sizeof type, "struct wf_vec_%s_%d", wf_kty_name(type_of(m, o)),
                         m->vector);
            else
                snprintf(type, sizeof type, "%s", wf_cu_type(type_of(m, o)));
            const char array = (char)(c - 'a' + 'A');
            if (what == DECLARE)
                P("        %s %c%d[%d];\n", type, array, s, m->groups);
            else if (what == SAVE)
                P("        %c%d[u] = %c%d;\n", array, s, c, s);
            else
                P("        const %s %c%d = %c%d[u];\n", type, c, s, array, s);
        }
}

static void outputs(const wf_cu_map *m, wf_text *t, const wf_kir *body, const char *prefix,
                    const char *const *param)
{
    for (int o = 0; o < ndst_of(m); o++) {
        if (is_vector(m, o)) {
            P("        z%d.v[j] = ", o);
        } else {
            P("        d%d[o%d] = ", o, m->like[o]);
        }
        wf_cu_ref(t, body, body->out[o], prefix, param);
        P(";\n");
    }
}

static void compute(const wf_cu_map *m, wf_text *t, const char *const *param)
{
    const wf_kernel *k = m->k;
    const bool fast = k->fast.n > 0;
    if (fast) {
        wf_cu_body(t, &k->fast, "f", param);
        P("        if (!(");
        wf_cu_ref(t, &k->fast, k->fast.rare, "f", param);
        P(")) {\n");
        outputs(m, t, &k->fast, "f", param);
        P("        } else {\n");
    }
    wf_cu_body(t, &k->body, "v", param);
    outputs(m, t, &k->body, "v", param);
    P("%s", fast ? "        }\n" : "");
}

static void elements(const wf_cu_map *m, wf_text *t)
{
    wf_cu_names names;
    const int ndst = ndst_of(m);
    wf_cu_name_params(m->k, &names);
    if (m->index)
        names.param[m->k->nsrc + m->k->nscalar] = "number";
    if (m->vector > 1)
        P("#pragma unroll\n        for (int j = 0; j < %d; j++) {\n", m->vector);
    for (int o = ndst; o < ndst + m->k->nsrc; o++) {
        if (is_single(m, o))
            continue;
        P("        const %s x%d = ", wf_cu_type(type_of(m, o)), o - ndst);
        if (is_vector(m, o)) {
            P("y%d.v[j];\n", o - ndst);
        } else if (is_drawn(m, o)) {
            P("s%d + o%d%s;\n", o - ndst, m->like[o],
              m->vector > 1 && m->inner[o] == 1 ? " + j" : "");
        } else {
            P("s%d[o%d];\n", o - ndst, m->like[o]);
        }
    }
    if (m->index)
        P("        const long long number = (long long)i * %d%s;\n", m->vector,
          m->vector > 1 ? " + j" : "");
    compute(m, t, names.param);
    if (m->vector > 1)
        P("        }\n");
}

/* What a thread is to do: groups from `first` on, below n, `step` apart. */
static void whole_run(const wf_cu_map *m, wf_text *t)
{
    const char *type = m->wide ? "long long" : "unsigned int";
    pointers(m, t);
    P("    const %s n = (%s)a.w[0], step = (%s)gridDim.x * blockDim.x;\n", type, type, type);
}

/* The block's piece, of run `at`, whose entry is at word e. */
static void piece_of_run(const wf_cu_map *m, wf_text *t)
{
    const int entry = wf_cu_map_entry(m), first = wf_cu_map_first(m);
    int half = 1;
    while (2 * half < wf_cu_map_entries(m))
        half *= 2;
    P("    const unsigned int pieces = (unsigned int)a.w[0], runs = (unsigned int)a.w[1];\n"
      "    for (unsigned int piece = blockIdx.x; piece < pieces; piece += gridDim.x) {\n"
      "    unsigned int at = 0;\n"
      "    for (unsigned int h = %d; h >= 1; h /= 2)\n"
      "        if (at + h < runs && (unsigned int)a.w[%d + (at + h) * %d] <= piece)\n"
      "            at += h;\n"
      "    const unsigned int entry = %d + at * %d, begin = (piece - (unsigned int)a.w[entry]) * "
      "%d;\n",
      half, first, entry, first, entry, WF_CU_PIECE);
    if (m->k->nscalar)
        P("    const unsigned int set = (unsigned int)(a.w[entry] >> 32) * %d;\n", m->k->nscalar);
    pointers(m, t);
    P("    const unsigned int all = (unsigned int)a.w[entry + 1], step = blockDim.x;\n"
      "    const unsigned int n = all - begin < %d ? all : begin + %d;\n",
      WF_CU_PIECE, WF_CU_PIECE);
}

int wf_cu_render_map(const wf_cu_map *m, wf_text *t, wf_why *why)
{
    const int words = wf_cu_map_words(m);
    const char *type = m->wide ? "long long" : "unsigned int";
    char from[80];
    wf_cu_prelude(t, m->k);
    wf_cu_words(t, words);
    vector_types(m, t);
    P("WF_EXTERN __global__ void %s(const struct wf_words_%d a)\n{\n", m->k->name, words);
    if (m->many) {
        piece_of_run(m, t);
        snprintf(from, sizeof from, "begin + threadIdx.x");
    } else {
        whole_run(m, t);
        snprintf(from, sizeof from, "(%s)blockIdx.x * blockDim.x + threadIdx.x", type);
    }
    if (m->groups > 1) {
        P("    for (%s first = %s; first < n; first += %d * step) {\n", type, from, m->groups);
        each_group(m, t, DECLARE);
        P("#pragma unroll\n        for (int u = 0; u < %d; u++) {\n"
          "        const %s i = first + u * step < n ? first + u * step : first;\n",
          m->groups, type);
    } else {
        P("    for (%s i = %s; i < n; i += step) {\n", type, from);
    }
    offsets(m, t);
    load_group(m, t);
    if (m->groups > 1) {
        each_group(m, t, SAVE);
        P("        }\n#pragma unroll\n        for (int u = 0; u < %d; u++) {\n", m->groups);
        each_group(m, t, RESTORE);
    }
    results(m, t);
    elements(m, t);
    for (int o = 0; o < ndst_of(m); o++)
        if (is_vector(m, o)) {
            const char *name = wf_kty_name(type_of(m, o));
            P("        *(struct wf_vec_%s_%d *)(d%d + o%d) = z%d;\n", name, m->vector, o,
              m->like[o], o);
        }
    P("%s", m->groups > 1 ? "        }\n" : "");
    P("%s    }\n}\n", m->many ? "    }\n" : "");
    return t->failed ? wf_fail(why, WEFT_ENOMEM, "no memory for the text of %s", m->k->name) : 0;
}
