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
 */
#include <stdio.h>

#include "jit/codegen_cuda/render.h"

#define P(...) wf_text_putf(t, __VA_ARGS__)

static int ndst_of(const wf_cu_map *m)
{
    return wf_kernel_ndst(m->k);
}

int wf_cu_map_operand(const wf_cu_map *m, int op)
{
    return 1 + (m->rank - 1) * WF_CU_DIVISOR + op * (2 + m->rank);
}

int wf_cu_map_scalar(const wf_cu_map *m, int s)
{
    return wf_cu_map_operand(m, ndst_of(m) + m->k->nsrc) + s;
}

int wf_cu_map_words(const wf_cu_map *m)
{
    return wf_cu_map_scalar(m, m->k->nscalar);
}

void wf_cu_words(wf_text *t, int words)
{
    P("#ifndef WF_WORDS_%d\n#define WF_WORDS_%d\n"
      "struct wf_words_%d { unsigned long long w[%d]; };\n#endif\n",
      words, words, words, words);
}

void wf_cu_word(wf_text *t, wf_kty type, int word)
{
    if (type == WF_KT_F32)
        P("wf_f32((unsigned int)a.w[%d])", word);
    else if (type == WF_KT_F64)
        P("wf_f64(a.w[%d])", word);
    else
        P("(%s)a.w[%d]", wf_cu_type(type), word);
}

void wf_cu_divide(wf_text *t, bool wide, const char *q, const char *x, int word)
{
    if (wide)
        P("        %s = %s / (long long)a.w[%d];\n", q, x, word);
    else
        P("        %s = (__umulhi(%s, (unsigned int)a.w[%d]) + %s) >> (unsigned int)a.w[%d];\n", q,
          x, word + 1, x, word + 2);
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

static void vector_types(const wf_cu_map *m, wf_text *t)
{
    for (int o = 0; o < ndst_of(m) + m->k->nsrc; o++)
        if (is_vector(m, o)) {
            const char *name = wf_kty_name(type_of(m, o));
            P("#ifndef WF_VEC_%s_%d\n#define WF_VEC_%s_%d\n"
              "struct __align__(%d) wf_vec_%s_%d { %s v[%d]; };\n#endif\n",
              name, m->vector, name, m->vector, m->vector * (int)wf_kty_bits(type_of(m, o)) / 8,
              name, m->vector, wf_cu_type(type_of(m, o)), m->vector);
        }
}

/* Offsets of the group's first element. */
static void offsets(const wf_cu_map *m, wf_text *t)
{
    const char *type = m->wide ? "long long" : "unsigned int";
    P("        %s rest = i, up;\n", type);
    for (int d = m->rank - 1; d >= 1; d--) {
        const int word = 1 + (d - 1) * WF_CU_DIVISOR;
        wf_cu_divide(t, m->wide, "up", "rest", word);
        P("        const %s i%d = rest - up * (%s)a.w[%d];\n        rest = up;\n", type, d, type,
          word);
    }
    P("        const %s i0 = rest;\n", type);
    for (int o = 0; o < ndst_of(m) + m->k->nsrc; o++) {
        if (m->like[o] != o)
            continue;
        const int at = wf_cu_map_operand(m, o) + 1;
        P("        const %s o%d = 0", m->wide ? "long long" : "int", o);
        for (int d = 0; d < m->rank; d++) {
            if (d == m->rank - 1 && m->inner[o] == 0)
                continue;
            if (d == m->rank - 1 && m->inner[o] == 1)
                P(" + (%s)i%d * %d", m->wide ? "long long" : "int", d, m->vector);
            else
                P(" + (%s)i%d * (%s)a.w[%d]", m->wide ? "long long" : "int", d,
                  m->wide ? "long long" : "int", at + d);
        }
        P(";\n");
    }
}

static void pointers(const wf_cu_map *m, wf_text *t)
{
    const int ndst = ndst_of(m);
    for (int o = 0; o < ndst + m->k->nsrc; o++) {
        const char *type = wf_cu_type(type_of(m, o)), *constant = o < ndst ? "" : "const ";
        if (is_drawn(m, o)) {
            P("    const long long s%d = (long long)a.w[%d];\n", o - ndst, wf_cu_map_operand(m, o));
            continue;
        }
        P("    %s%s *%c%d = (%s%s *)a.w[%d];\n", constant, type, o < ndst ? 'd' : 's',
          o < ndst ? o : o - ndst, constant, type, wf_cu_map_operand(m, o));
    }
    for (int s = 0; s < m->k->nscalar; s++) {
        const wf_kty type = (wf_kty)m->k->body.param_type[m->k->nsrc + s];
        P("    const %s c%d = ", wf_cu_type(type), s);
        wf_cu_word(t, type, wf_cu_map_scalar(m, s));
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

/* Offset of element j of operand o's group. */
static void element(const wf_cu_map *m, wf_text *t, int o)
{
    P("o%d", m->like[o]);
    if (m->vector > 1 && m->inner[o] == 2)
        P(" + j * (%s)a.w[%d]", m->wide ? "long long" : "int",
          wf_cu_map_operand(m, o) + 1 + m->rank);
}

static void outputs(const wf_cu_map *m, wf_text *t, const wf_kir *body, const char *prefix,
                    const char *const *param)
{
    for (int o = 0; o < ndst_of(m); o++) {
        if (is_vector(m, o)) {
            P("        z%d.v[j] = ", o);
        } else {
            P("        d%d[", o);
            element(m, t, o);
            P("] = ");
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
            P("s%d + ", o - ndst);
            element(m, t, o);
            P("%s;\n", m->vector > 1 && m->inner[o] == 1 ? " + j" : "");
        } else {
            P("s%d[", o - ndst);
            element(m, t, o);
            P("];\n");
        }
    }
    if (m->index)
        P("        const long long number = (long long)i * %d%s;\n", m->vector,
          m->vector > 1 ? " + j" : "");
    compute(m, t, names.param);
    if (m->vector > 1)
        P("        }\n");
}

int wf_cu_render_map(const wf_cu_map *m, wf_text *t, wf_why *why)
{
    const int words = wf_cu_map_words(m);
    const char *type = m->wide ? "long long" : "unsigned int";
    wf_cu_prelude(t, m->k);
    wf_cu_words(t, words);
    vector_types(m, t);
    P("WF_EXTERN __global__ void %s(const struct wf_words_%d a)\n{\n", m->k->name, words);
    pointers(m, t);
    P("    const %s n = (%s)a.w[0], step = (%s)gridDim.x * blockDim.x;\n", type, type, type);
    if (m->groups > 1) {
        P("    for (%s first = (%s)blockIdx.x * blockDim.x + threadIdx.x; first < n; first += %d * "
          "step) {\n",
          type, type, m->groups);
        each_group(m, t, DECLARE);
        P("#pragma unroll\n        for (int u = 0; u < %d; u++) {\n"
          "        const %s i = first + u * step < n ? first + u * step : first;\n",
          m->groups, type);
    } else {
        P("    for (%s i = (%s)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {\n", type,
          type);
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
    P("    }\n}\n");
    return t->failed ? wf_fail(why, WEFT_ENOMEM, "no memory for the text of %s", m->k->name) : 0;
}
