/*
 * jit/codegen_cuda/render_map.c -- elementwise kernels over strided views; see jit/ir/cuda_text.h.
 *
 * A grid-stride loop over groups of neighbours. The number of a group is taken apart axis by axis from the
 * innermost one; divisions by extents are a multiplication and a shift with numbers from the host. Operands of
 * equal strides share their offset. Operands adjacent along the innermost axis are read and written as
 * vectors, others one by one.
 *
 * Flat kernels take vectors whatever the extents are: along the number of an element. Operands that lie in that order are vectors, others
 * are read element by element, where a vector goes from one index of the axes before the innermost to the next at most once (`left`
 * elements are before that: a is the offset of an element there, b of one after it). A thread's next vector is a whole number of indices of
 * axis 0 further (the host sees to it), so that all it knows of the other axes stays: there is no division in the loop, and what has no
 * step along axis 0, a row for all, is read once and stays in registers (R). What is before the first vector and behind the last is of the grid's
 * last threads, an element each.
 *
 * Sources of two bytes an element are words of 32 bits: the element in the upper half is one instruction away from f32.
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

static bool has(uint64_t set, int op)
{
    return set >> op & 1;
}

int wf_cu_map_divisor(const wf_cu_map *m, int d)
{
    return (m->flat ? WF_CU_FLAT_HEAD : m->many ? 2 : 1) + (d - 1) * WF_CU_DIVISOR;
}

int wf_cu_map_strides(const wf_cu_map *m, int op)
{
    if (m->like[op] != op || has(m->dense, op) || m->inner[op] == WF_CU_SAME)
        return 0;
    return m->rank - (m->inner[op] != 2);
}

int wf_cu_map_operand(const wf_cu_map *m, int op)
{
    int at = wf_cu_map_divisor(m, m->rank);
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
    return m->vector > 1 && (m->flat ? has(m->whole, op) : m->inner[op] == 1) && !is_drawn(m, op);
}

/* Elements of a vector of words. */
static bool is_words(const wf_cu_map *m, int op)
{
    return op >= ndst_of(m) && is_vector(m, op) && wf_kty_bits(type_of(m, op)) == 16;
}

/* "u32_4": what a vector of the operand consists of. */
static const char *vector_name(const wf_cu_map *m, int op, char name[16])
{
    const bool words = is_words(m, op);
    snprintf(name, 16, "%s_%d", words ? "u32" : wf_kty_name(type_of(m, op)),
             words ? m->vector / 2 : m->vector);
    return name;
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
        if (is_words(m, o))
            wf_cu_vector_type(t, WF_KT_U32, m->vector / 2);
        else if (is_vector(m, o))
            wf_cu_vector_type(t, type_of(m, o), m->vector);
}

static const char *number_type(const wf_cu_map *m)
{
    return m->wide ? "long long" : "unsigned int";
}

static const char *offset_type(const wf_cu_map *m)
{
    return m->wide ? "long long" : "int";
}

/* i0...: the indices of group, or element, `from`. */
static void indices(const wf_cu_map *m, wf_text *t, const char *from)
{
    const char *type = number_type(m), *base = base_of(m);
    P("        %s rest = %s, up;\n", type, from);
    for (int d = m->rank - 1; d >= 1; d--) {
        const int word = wf_cu_map_divisor(m, d);
        wf_cu_divide(t, m->wide, "up", "rest", base, word);
        P("        const %s i%d = rest - up * (%s)a.w[%s%d];\n        rest = up;\n", type, d, type,
          base, word);
    }
    P("        const %s i0 = rest;\n", type);
}

/* Offset of operand o, the lowest of its strides, at indices i0... or, from b0 on, others. */
static void offset(const wf_cu_map *m, wf_text *t, int o, char index)
{
    const char *type = offset_type(m), *base = base_of(m);
    const int at = wf_cu_map_operand(m, o) + !m->alias[o];
    P("0");
    for (int d = 0; d < m->rank && m->inner[o] != WF_CU_SAME; d++) {
        if (d == m->rank - 1 && m->inner[o] == 0)
            continue;
        if (d == m->rank - 1 && m->inner[o] == 1)
            P(" + (%s)%c%d * %d", type, index, d, m->flat ? 1 : m->vector);
        else
            P(" + (%s)%c%d * (%s)a.w[%s%d]", type, index, d, type, base, at + d);
    }
}

/* Offsets of the group's first element. */
static void offsets(const wf_cu_map *m, wf_text *t)
{
    for (int o = 0; o < ndst_of(m) + m->k->nsrc; o++) {
        if (m->like[o] != o)
            continue;
        P("        const %s o%d = ", offset_type(m), o);
        if (has(m->dense, o))
            P("e");
        else
            offset(m, t, o, 'i');
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
    if (m->flat && m->vector > 1)
        return m->inner[o] == WF_CU_SAME;
    return m->inner[o] == 0 || m->inner[o] == WF_CU_SAME ||
           (m->groups > 1 && m->vector == 1 && !is_drawn(m, o));
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
    char buffer[16];
    for (int o = ndst; o < ndst + m->k->nsrc; o++) {
        const char *name = vector_name(m, o, buffer);
        const int s = o - ndst;
        if (is_vector(m, o))
            P("        const struct wf_vec_%s y%d = *(const struct wf_vec_%s *)(s%d + o%d);\n",
              name, s, name, s, m->like[o]);
        else if (is_single(m, o) && !(m->flat && m->vector > 1))
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
            char type[48], name[16];
            const int s = which ? o - ndst : o;
            const char c = which == 0 ? 'o' : is_vector(m, o) ? 'y' : 'x';
            if (which == 0 ? m->like[o] != o : o < ndst || (c == 'x' && !is_single(m, o)))
                continue;
            if (m->flat && (c == 'x' || (c == 'o' && o > 0)))
                continue;
            if (c == 'o')
                snprintf(type, sizeof type, "%s", offset_type(m));
            else if (c == 'y')
                snprintf(type, sizeof type, "struct wf_vec_%s", vector_name(m, o, name));
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

/* What the body reads of source s at an offset. */
static void fetch(const wf_cu_map *m, wf_text *t, int o, const char *at)
{
    P(is_drawn(m, o) ? "s%d + %s" : "s%d[%s]", o - ndst_of(m), at);
}

/* Is operand o of a flat kernel read in the loop by offsets of its own? */
static bool is_fetched(const wf_cu_map *m, int o)
{
    return !has(m->dense | m->still, o) && m->inner[o] != WF_CU_SAME;
}

/* Element j of a source of a flat kernel that is no vector. */
static void flat_element(const wf_cu_map *m, wf_text *t, int o)
{
    const int s = o - ndst_of(m), l = m->like[o];
    char at[80];
    if (has(m->still, o)) {
        P("R%d[j];\n", s);
    } else if (is_fetched(m, o) && m->inner[o] == 0) {
        P("j < left ? p%d : q%d;\n", s, s);
    } else {
        if (is_fetched(m, o))
            snprintf(at, sizeof at, "(j < left ? a%d : b%d) + j * t%d + h%d", l, l, l, l);
        else
            snprintf(at, sizeof at, "o0 + j");
        fetch(m, t, o, at);
        P(";\n");
    }
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
        if (is_words(m, o)) {
            P("(%s)(y%d.v[j / 2] >> j %% 2 * 16);\n", wf_cu_type(type_of(m, o)), o - ndst);
        } else if (is_vector(m, o)) {
            P("y%d.v[j];\n", o - ndst);
        } else if (m->flat && m->vector > 1) {
            flat_element(m, t, o);
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
    const char *type = number_type(m);
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

static void store_group(const wf_cu_map *m, wf_text *t)
{
    for (int o = 0; o < ndst_of(m); o++)
        if (is_vector(m, o)) {
            const char *name = wf_kty_name(type_of(m, o));
            P("        *(struct wf_vec_%s_%d *)(d%d + o%d) = z%d;\n", name, m->vector, o,
              m->like[o], o);
        }
}

/* -- flat kernels ---------------------------------------------------------------------------------------------- */
/* What is no whole vector: an element a thread. */
static void edges(const wf_cu_map *m, wf_text *t)
{
    wf_cu_map one = *m;
    one.vector = one.groups = 1;
    P("    typedef %s num;\n    typedef %s off;\n"
      "    const num n = (num)a.w[0], head = (num)a.w[1], step = (num)a.w[3];\n"
      "    const num me = (num)blockIdx.x * blockDim.x + threadIdx.x;\n"
      "    const num back = (num)gridDim.x * blockDim.x - 1 - me;\n"
      "    if (back < (num)a.w[2]) {\n        const num e = back < head ? back : n * %d + back;\n",
      number_type(m), offset_type(m), m->vector);
    if (m->rank > 1)
        indices(m, t, "e");
    offsets(&one, t);
    load_group(&one, t);
    elements(&one, t);
    P("    }\n    if (me >= step || me >= n)\n        return;\n");
}

/* The indices of the next element, in <index>0... */
static void walk(const wf_cu_map *m, wf_text *t, char index)
{
    for (int d = m->rank - 1; d >= 1; d--)
        P("        if (++%c%d == (num)a.w[%d]) {\n        %c%d = 0;\n", index, d,
          wf_cu_map_divisor(m, d), index, d);
    P("        %c0++;\n        %.*s\n", index, m->rank - 1, "}}}}}}}}}}}}}}}}");
}

static void copy_indices(const wf_cu_map *m, wf_text *t, char index)
{
    P("    num %c0 = i0", index);
    for (int d = 1; d < m->rank; d++)
        P(", %c%d = i%d", index, d, d);
    P(";\n");
}

/* What stays: R, and of one element for all, x. */
static void stays(const wf_cu_map *m, wf_text *t)
{
    const int ndst = ndst_of(m);
    for (int o = ndst; o < ndst + m->k->nsrc; o++)
        if (m->inner[o] == WF_CU_SAME) {
            P("    const %s x%d = ", wf_cu_type(type_of(m, o)), o - ndst);
            fetch(m, t, o, "0");
            P(";\n");
        } else if (has(m->still, o)) {
            P("    %s R%d[%d];\n", wf_cu_type(type_of(m, o)), o - ndst, m->vector);
        }
    if (!m->still)
        return;
    copy_indices(m, t, 'r');
    P("#pragma unroll\n    for (int j = 0; j < %d; j++) {\n", m->vector);
    for (int o = ndst; o < ndst + m->k->nsrc; o++) {
        if (m->like[o] == o && has(m->still, o)) {
            P("        const off o%d = ", o);
            offset(m, t, o, 'r');
            P(";\n");
        }
        if (has(m->still, o)) {
            char at[16];
            snprintf(at, sizeof at, "o%d", m->like[o]);
            P("        R%d[j] = ", o - ndst);
            fetch(m, t, o, at);
            P(";\n");
        }
    }
    walk(m, t, 'r');
    P("    }\n");
}

/* Of what is fetched, at the thread's first vector: offsets a and b, the step from element to element and from turn to turn. */
static void pairs(const wf_cu_map *m, wf_text *t)
{
    const int last = m->rank - 1;
    bool any = false;
    for (int o = 0; o < ndst_of(m) + m->k->nsrc; o++) {
        if (m->like[o] != o || !is_fetched(m, o))
            continue;
        const int at = wf_cu_map_operand(m, o) + 1;
        if (!any) {
            P("    const off left = (off)((num)a.w[%d] - i%d);\n", wf_cu_map_divisor(m, last),
              last);
            copy_indices(m, t, 'k');
            P("        k%d = (num)a.w[%d] - 1;\n", last, wf_cu_map_divisor(m, last));
            walk(m, t, 'k');
        }
        any = true;
        P("    const off t%d = ", o);
        P(m->inner[o] == 2 ? "(off)a.w[%d]" : "%d", m->inner[o] == 2 ? at + last : m->inner[o]);
        P(", g%d = (off)a.w[4] * (off)a.w[%d];\n    off h%d = 0;\n    const off a%d = ", o, at, o,
          o);
        offset(m, t, o, 'i');
        P(", b%d = left >= %d ? a%d : ", o, m->vector, o);
        offset(m, t, o, 'k');
        P(" - left * t%d;\n", o);
    }
}

/* After the loads of vector u of a turn. */
static void fetch_pairs(const wf_cu_map *m, wf_text *t)
{
    const int ndst = ndst_of(m);
    for (int o = ndst; o < ndst + m->k->nsrc; o++) {
        char at[32];
        for (int c = 0; c < 2 && is_fetched(m, o) && m->inner[o] == 0; c++) {
            snprintf(at, sizeof at, "%c%d + h%d", "ab"[c], m -> like[o], m -> like[o]);
            P("        const %s %c%d = ", wf_cu_type(type_of(m, o)), "pq"[c], o - ndst);
            fetch(m, t, o, at);
            P(";\n");
        }
    }
}

static void flat_loop(const wf_cu_map *m, wf_text *t)
{
    const int groups = m->groups > 1 ? m->groups : 1;
    P("    off e = (off)(head + me * %d), pace = (off)step * %d;\n", m->vector, m->vector);
    if (m->rank > 1)
        indices(m, t, "(num)e");
    stays(m, t);
    pairs(m, t);
    P("    for (num i = me; i < n; i += step * %d, e += pace * %d) {\n", groups, groups);
    if (groups > 1) {
        each_group(m, t, DECLARE);
        P("#pragma unroll\n        for (int u = 0; u < %d; u++) {\n"
          "        const off o0 = e + (i + u * step < n ? u : 0) * pace;\n",
          groups);
    } else {
        P("        const off o0 = e;\n");
    }
    load_group(m, t);
    if (groups > 1) {
        each_group(m, t, SAVE);
        P("        }\n#pragma unroll\n        for (int u = 0; u < %d; u++) {\n"
          "        if (i + u * step >= n)\n            break;\n",
          groups);
        each_group(m, t, RESTORE);
    }
    fetch_pairs(m, t);
    results(m, t);
    elements(m, t);
    store_group(m, t);
    for (int o = 0; o < ndst_of(m) + m->k->nsrc; o++)
        if (m->like[o] == o && is_fetched(m, o))
            P("        h%d += g%d;\n", o, o);
    P("%s", groups > 1 ? "        }\n" : "");
}

static void render_loop(const wf_cu_map *m, wf_text *t)
{
    const char *type = number_type(m);
    char from[80];
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
    indices(m, t, "i");
    offsets(m, t);
    load_group(m, t);
    if (m->groups > 1) {
        each_group(m, t, SAVE);
        P("        }\n#pragma unroll\n        for (int u = 0; u < %d; u++) {\n", m->groups);
        each_group(m, t, RESTORE);
    }
    results(m, t);
    elements(m, t);
    store_group(m, t);
    P("%s", m->groups > 1 ? "        }\n" : "");
    P("%s", m->many ? "    }\n" : "");
}

int wf_cu_render_map(const wf_cu_map *m, wf_text *t, wf_why *why)
{
    const int words = wf_cu_map_words(m);
    wf_cu_prelude(t, m->k);
    wf_cu_words(t, words);
    vector_types(m, t);
    P("WF_EXTERN __global__ void %s(const struct wf_words_%d a)\n{\n    WF_BEGIN\n", m->k->name,
      words);
    if (m->flat) {
        pointers(m, t);
        edges(m, t);
        flat_loop(m, t);
    } else {
        render_loop(m, t);
    }
    P("    }\n}\n");
    return t->failed ? wf_fail(why, WEFT_ENOMEM, "no memory for the text of %s", m->k->name) : 0;
}
