/*
 * jit/gpu/map.c -- elementwise programs on the device: which kernel, and its arguments.
 *
 * Axes are put in the order of the first destination's strides and merged where every operand steps through
 * both as through one. What is left (rank, who is adjacent, alignment, 32 or 64 bits) chooses the kernel;
 * extents and strides are arguments.
 */
#include <stdlib.h>
#include <string.h>

#include "jit/gpu/impl.h"

enum {
    VECTOR_BYTES = 16,
    VECTOR_MOST = 8,
    TAIL_FROM = 1 << 16,
    GROUPS_MOST = 8,
    GROUPS_TEXT = 1024, /* primitives of all groups of a thread */
    IN_FLIGHT = 32,     /* bytes of a thread */
    RESIDENT = 2048     /* threads of a processor */
};

typedef struct space {
    int rank, nop, ndst;
    int64_t dims[WF_CU_RANK], strides[WF_CU_OPS][WF_CU_RANK];
    uint64_t data[WF_CU_OPS]; /* addresses; of a drawn operand the number of its first element */
    int64_t esize[WF_CU_OPS]; /* bytes, or numbers */
    bool wide;
} space;

static int64_t size_of(int64_t x)
{
    return x < 0 ? -x : x;
}

/* Original axes with more than one index, largest step of the first destination first. */
static int order_axes(const wf_program_args *a, int order[WF_CU_RANK])
{
    const wf_view *v = &a->dst[0];
    int n = 0;
    for (int i = 0; i < v->rank; i++) {
        int at = n;
        if (v->dims[i] == 1)
            continue;
        while (at > 0 && size_of(v->strides[order[at - 1]]) < size_of(v->strides[i])) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
        n++;
    }
    return n;
}

static void make_space(space *s, const wf_program *p, const wf_program_args *a)
{
    int order[WF_CU_RANK];
    const int n = order_axes(a, order);
    s->ndst = p->noutput;
    s->nop = p->noutput + p->ninput;
    s->rank = 0;
    s->wide = false;
    for (int o = 0; o < s->nop; o++) {
        const wf_view *v = o < s->ndst ? &a->dst[o] : &a->src[o - s->ndst];
        const bool drawn = o >= s->ndst && (wf_program_draws(p) >> (o - s->ndst) & 1);
        s->data[o] = drawn ? 0 : wf_gpu_word(v->data);
        s->esize[o] = drawn ? 1 : (int64_t)wf_dtype_size(v->dtype);
        s->wide |= wf_gpu_is_far(v);
    }
    for (int i = 0; i < n; i++) {
        const int64_t dim = a->dst[0].dims[order[i]];
        bool joins = s->rank > 0;
        for (int o = 0; o < s->nop && joins; o++) {
            const wf_view *v = o < s->ndst ? &a->dst[o] : &a->src[o - s->ndst];
            joins = s->strides[o][s->rank - 1] == v->strides[order[i]] * dim;
        }
        s->rank += !joins;
        s->dims[s->rank - 1] = (joins ? s->dims[s->rank - 1] : 1) * dim;
        for (int o = 0; o < s->nop; o++) {
            const wf_view *v = o < s->ndst ? &a->dst[o] : &a->src[o - s->ndst];
            s->strides[o][s->rank - 1] = v->strides[order[i]];
        }
    }
    if (s->rank == 0) {
        s->rank = 1;
        s->dims[0] = 1;
        for (int o = 0; o < s->nop; o++)
            s->strides[o][0] = o < s->ndst;
    }
}

/* Whether operands that are adjacent can be taken v elements at once. */
static bool can_take(const space *s, int64_t inner, int64_t v)
{
    if (inner % v != 0)
        return false;
    for (int o = 0; o < s->nop; o++) {
        if (s->strides[o][s->rank - 1] != 1)
            continue;
        if (s->data[o] % (uint64_t)(v * s->esize[o]) != 0)
            return false;
        for (int d = 0; d < s->rank - 1; d++)
            if (s->strides[o][d] % v != 0)
                return false;
    }
    return true;
}

/* Elements a thread can take at once. */
static int vector_of(const space *s, int64_t inner)
{
    int64_t widest = 1;
    for (int o = 0; o < s->nop; o++) {
        const int64_t step = s->strides[o][s->rank - 1];
        if (step != 1 && (o < s->ndst || step != 0))
            return 1;
        widest = step == 1 && s->esize[o] > widest ? s->esize[o] : widest;
    }
    int64_t v = VECTOR_BYTES / widest;
    v = v > VECTOR_MOST ? VECTOR_MOST : v;
    while (v > 1 && !can_take(s, inner, v))
        v /= 2;
    return (int)v;
}

/* Groups that a thread loads before it stores: where one of them is less than IN_FLIGHT bytes, the device has enough of
 * them to be full without, and the body is not long. */
static int groups_of(int ordinal, const space *s, const wf_gpu_entry *e, int vector, int64_t groups)
{
    const int64_t resident = wf_gpu_processors(ordinal) * RESIDENT;
    int64_t bytes = 0, text = (int64_t)e->kernel.body.n + e->kernel.fast.n;
    int n = 1;
    for (int o = s->ndst; o < s->nop; o++)
        if (!(e->kernel.drawn >> (o - s->ndst) & 1))
            bytes += s->esize[o] * (s->strides[o][s->rank - 1] == 1 ? vector : 1);
    while (bytes > 0 && n < GROUPS_MOST && 2 * n * bytes <= IN_FLIGHT &&
           2 * n * vector * text <= GROUPS_TEXT)
        n *= 2;
    return groups >= n * resident ? n : 1;
}

static void classify(wf_cu_map *m, const space *s)
{
    m->rank = s->rank;
    m->wide = s->wide;
    for (int o = 0; o < s->nop; o++) {
        const int64_t step = s->strides[o][s->rank - 1];
        m->inner[o] = (uint8_t)(step == 0 ? 0 : step == 1 ? 1 : 2);
        int same = 0;
        while (memcmp(s->strides[same], s->strides[o], sizeof(int64_t) * (size_t)s->rank) != 0)
            same++;
        m->like[o] = (uint8_t)same;
    }
}

static int render(const void *arg, const wf_gpu_entry *e, wf_text *out, wf_why *why)
{
    wf_cu_map m = *(const wf_cu_map *)arg;
    m.k = &e->kernel;
    return wf_cu_render_map(&m, out, why);
}

static int run(int ordinal, const wf_gpu_entry *e, const wf_program *p, const space *s, int vector,
               const void *const *scalars, bool later, wf_why *why)
{
    wf_cu_map m = {.k = &e->kernel, .vector = vector};
    uint64_t words[WF_GPU_WORDS];
    unsigned char bytes[WF_GPU_VARIANT] = {'m'};
    classify(&m, s);
    const int nwords = wf_cu_map_words(&m);
    if (nwords > WF_GPU_WORDS || nwords > wf_gpu_most_words(ordinal))
        return wf_fail(why, WEFT_EUNSUPPORTED, "a program of %d operands over %d axes", s->nop,
                       s->rank);
    bytes[1] = (unsigned char)m.rank;
    bytes[2] = (unsigned char)vector;
    int64_t groups = s->dims[s->rank - 1] / vector;
    for (int d = 1; d < s->rank; d++)
        wf_gpu_divisor(words + 1 + (d - 1) * WF_CU_DIVISOR, d == s->rank - 1 ? groups : s->dims[d]);
    for (int d = 0; d < s->rank - 1; d++)
        groups *= s->dims[d];
    words[0] = (uint64_t)groups;
    m.groups = groups_of(ordinal, s, e, vector, groups);
    bytes[3] = (unsigned char)(m.wide | m.groups << 1);
    memcpy(bytes + 4, m.inner, (size_t)s->nop);
    memcpy(bytes + 4 + s->nop, m.like, (size_t)s->nop);
    const wf_gpu_recipe recipe = {render, &m, sizeof m, later, 0};
    const wf_gpu_variant *v = wf_gpu_variant_of(ordinal, e, bytes, 4 + 2 * s->nop, &recipe, why);
    if (!v)
        return why ? why->code : WEFT_EUNSUPPORTED;
    for (int o = 0; o < s->nop; o++) {
        uint64_t *w = words + wf_cu_map_operand(&m, o);
        w[0] = s->data[o];
        for (int d = 0; d < s->rank; d++)
            w[1 + d] = (uint64_t)s->strides[o][d];
        w[s->rank] *= (uint64_t)vector;
        w[1 + s->rank] = (uint64_t)s->strides[o][s->rank - 1];
    }
    for (int i = 0; i < p->nscalar; i++)
        words[wf_cu_map_scalar(&m, i)] =
            wf_kir_peek(scalars[i], wf_kir_storage(p->type[p->scalar[i]]), 0);
    return wf_gpu_start(ordinal,
                        &(wf_gpu_launch){.v = v,
                                         .blocks = wf_gpu_blocks(
                                             ordinal, groups, WF_GPU_THREADS * (int64_t)m.groups),
                                         .threads = WF_GPU_THREADS,
                                         .words = words},
                        why);
}

int wf_gpu_map_program(int ordinal, const wf_program *p, const wf_program_args *a, bool later,
                       wf_why *why)
{
    space s;
    wf_why own = {0};
    why = why ? why : &own;
    if (p->noutput == 0 || wf_view_numel(&a->dst[0]) == 0)
        return 0;
    const wf_gpu_entry *e = wf_gpu_entry_of(p, why);
    if (!e)
        return why->code;
    make_space(&s, p, a);
    const int64_t inner = s.dims[s.rank - 1];
    int vector = vector_of(&s, inner);
    /* a long vector whose length is odd: most of it by vectors, then the rest */
    const int64_t most = inner / VECTOR_MOST * VECTOR_MOST;
    const int wider = s.rank == 1 && inner >= TAIL_FROM ? vector_of(&s, most) : 1;
    if (wider <= vector)
        return run(ordinal, e, p, &s, vector, a->scalars, later, why);
    vector = wider;
    s.dims[0] = most;
    const int status = run(ordinal, e, p, &s, vector, a->scalars, false, why);
    s.dims[0] = inner - most;
    for (int o = 0; o < s.nop; o++)
        s.data[o] += (uint64_t)(most * s.strides[o][0] * s.esize[o]);
    return status ? status : wf_gpu_too_late(run(ordinal, e, p, &s, 1, a->scalars, false, why));
}

int wf_gpu_number_kernel(int ordinal, const wf_gpu_entry *e, const wf_view *dst,
                         const uint64_t *scalars, wf_why *why)
{
    const int64_t n = wf_view_numel(dst);
    wf_cu_map m = {.k = &e->kernel, .index = true, .rank = 1, .vector = 1, .inner = {1}};
    uint64_t words[WF_GPU_WORDS] = {(uint64_t)n};
    m.wide = n >= INT32_MAX;
    const unsigned char bytes[] = {'n', m.wide};
    const wf_gpu_recipe recipe = {render, &m, sizeof m, false, 0};
    const wf_gpu_variant *v = wf_gpu_variant_of(ordinal, e, bytes, sizeof bytes, &recipe, why);
    if (!v)
        return WEFT_EUNSUPPORTED;
    words[wf_cu_map_operand(&m, 0)] = wf_gpu_word(dst->data);
    words[wf_cu_map_operand(&m, 0) + 1] = 1;
    for (int i = 0; i < e->kernel.nscalar; i++)
        words[wf_cu_map_scalar(&m, i)] = scalars[i];
    return wf_gpu_start(ordinal,
                        &(wf_gpu_launch){.v = v,
                                         .blocks = wf_gpu_blocks(ordinal, n, WF_GPU_THREADS),
                                         .threads = WF_GPU_THREADS,
                                         .words = words},
                        why);
}
