/*
 * jit/gpu/map.c -- elementwise programs on the device: which kernel, and its arguments.
 *
 * Axes are put in the order of the first destination's strides and merged where every operand steps through
 * both as through one. What is left (rank, who is adjacent, alignment, 32 or 64 bits) chooses the kernel;
 * extents and strides are arguments.
 *
 * Rows of odd length are no vectors. Where most of the bytes belong to operands in the order of the elements, a kernel is flat
 * (cuda_text.h): vectors along the number of the element, and operands that broadcast are read element by element, once for a
 * thread that steps by whole indices of the first axis. So are long vectors of odd length, or ones that begin between vectors.
 *
 * Runs of one program on other operands share a launch where the kernel is the same but for what it is given: an optimiser's
 * parameters take as many launches as their words take arguments, and not one each.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/env.h"
#include "eager/view.h"
#include "jit/gpu/impl.h"

enum {
    VECTOR_BYTES = 16,
    VECTOR_MOST = 8,
    FLAT_FROM = 1 << 16,
    FLAT_GAIN = 4,               /* times as many neighbours, where something is read one by one */
    FLAT_HELD = 32,              /* elements of a thread that stay */
    FLAT_VECTORS = 4,            /* of a thread, where the device is full without more threads */
    FLAT_NARROW = INT32_MAX / 2, /* offsets of 32 bits, with a turn of the loop beyond the last */
    LINE = 128,
    SECTOR = 32,
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

/* Original axes with more than one index, largest step of the first destination first. */
static int order_axes(const wf_program_args *a, int order[WF_CU_RANK])
{
    const wf_view *v = &a->dst[0];
    int n = 0;
    for (int i = 0; i < v->rank; i++) {
        int at = n;
        if (v->dims[i] == 1)
            continue;
        while (at > 0 && wf_magnitude(v->strides[order[at - 1]]) < wf_magnitude(v->strides[i])) {
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
    s->wide = wf_env_stress("wide", NULL);
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

static bool is_drawn(const space *s, const wf_gpu_entry *e, int o)
{
    return o >= s->ndst && (e->kernel.drawn >> (o - s->ndst) & 1);
}

/* Groups that a thread loads before it stores: where one of them is less than IN_FLIGHT bytes, and the body is not long. Of a
 * flat kernel what stays is not loaded again. */
static int groups_wanted(const wf_cu_map *m, const space *s, const wf_gpu_entry *e)
{
    const int vector = m->vector;
    int64_t bytes = 0, text = (int64_t)e->kernel.body.n + e->kernel.fast.n;
    int n = 1;
    for (int o = s->ndst; o < s->nop; o++)
        if (!is_drawn(s, e, o) && !(m->flat && !(m->whole >> o & 1)))
            bytes += s->esize[o] * (s->strides[o][s->rank - 1] == 1 ? vector : 1);
    while (bytes > 0 && n < GROUPS_MOST && 2 * n * bytes <= IN_FLIGHT &&
           2 * n * vector * text <= GROUPS_TEXT)
        n *= 2;
    return n;
}

/* One where the device would not be full of them. */
static int groups_of(int ordinal, const wf_cu_map *m, const space *s, const wf_gpu_entry *e,
                     int64_t groups)
{
    const int64_t resident = wf_gpu_processors(ordinal) * RESIDENT;
    const int n = groups_wanted(m, s, e);
    return groups >= n * resident ? n : 1;
}

/* -- flat kernels ---------------------------------------------------------------------------------------------- */
static int64_t elements_of(const space *s, int from)
{
    int64_t n = 1;
    for (int d = from; d < s->rank; d++)
        n *= s->dims[d];
    return n;
}

static bool is_dense(const space *s, int o)
{
    bool dense = true;
    for (int d = 0; d < s->rank; d++)
        dense &= s->strides[o][d] == elements_of(s, d + 1);
    return dense;
}

/* Bytes that an operand takes from memory, whole sectors where its elements are apart. */
static int64_t bytes_of(const space *s, int o)
{
    const int64_t step = wf_magnitude(s->strides[o][s->rank - 1]) * s->esize[o];
    int64_t n = step > SECTOR ? SECTOR : step > s->esize[o] ? step : s->esize[o];
    for (int d = 0; d < s->rank; d++)
        n *= s->strides[o][d] ? s->dims[d] : 1;
    return n;
}

/* The first element of dst[0] at a line of memory: vectors begin there. */
static int64_t head_of(const space *s)
{
    return (int64_t)(-s->data[0] % LINE) / s->esize[0];
}

/* Has the operand more than one element? */
static bool moves(const space *s, int o)
{
    bool any = false;
    for (int d = 0; d < s->rank; d++)
        any |= s->strides[o][d] != 0;
    return any;
}

/* Describes a flat kernel in m, which has the vectors of the other; or leaves it. */
static void take_flat(wf_cu_map *m, const space *s, const wf_gpu_entry *e)
{
    const int64_t head = head_of(s);
    int64_t vector = VECTOR_MOST, all = 0, ours = 0, held = 0;
    wf_cu_map f = *m;
    bool fetched = false; /* by offsets of which a vector has two */
    f.flat = true;
    for (int o = 0; o < s->nop; o++) {
        if (is_drawn(s, e, o)) {
            f.dense |= (uint64_t)is_dense(s, o) << o;
            continue;
        }
        all += bytes_of(s, o);
        f.wide |= wf_magnitude(s->dims[0] * s->strides[o][0]) > FLAT_NARROW;
        if (!is_dense(s, o))
            continue;
        f.dense |= UINT64_C(1) << o;
        while (vector * s->esize[o] > VECTOR_BYTES)
            vector /= 2;
    }
    for (int o = 0; o < s->nop; o++) {
        const uint64_t begin = s->data[o] + (uint64_t)(head * s->esize[o]);
        if (f.dense >> o & 1) {
            if (is_drawn(s, e, o) || begin % (uint64_t)(vector * s->esize[o]) != 0)
                continue;
            f.whole |= UINT64_C(1) << o;
            ours += bytes_of(s, o);
        } else if (moves(s, o)) {
            const bool stays = s->strides[o][0] == 0;
            f.still |= (uint64_t)stays << o;
            held += stays;
            fetched |= !stays;
        }
    }
    const uint64_t dsts = (UINT64_C(1) << s->ndst) - 1;
    if ((f.whole & dsts) != dsts || 2 * ours <= all || elements_of(s, 0) < FLAT_FROM ||
        vector < (held || fetched ? FLAT_GAIN : 2) * m->vector || held * vector > FLAT_HELD ||
        (fetched && (s->rank == 1 || s->dims[s->rank - 1] < vector)))
        return;
    f.vector = (int)vector;
    *m = f;
}

/* Vectors from one of a thread's to its next, of n: as many as fill the device, but whole indices of axis 0, and lines where
 * there is a choice. */
static int64_t step_of(int ordinal, const wf_cu_map *m, const space *s, int64_t n)
{
    const int64_t resident = wf_gpu_processors(ordinal) * RESIDENT;
    const int64_t index = elements_of(s, 1), per_block = WF_GPU_THREADS * FLAT_VECTORS;
    int64_t want = wf_gpu_blocks(ordinal, n, per_block) * WF_GPU_THREADS, period = index, lines = 8;
    want = want < resident ? resident : want;
    for (int v = m->vector; v > 1 && period % 2 == 0; v /= 2, lines /= 2)
        period /= 2;
    lines = lines > 0 ? lines : 1;
    period *= period * lines <= 2 * want ? lines : 1;
    return want > period ? want / period * period : period;
}

/* How it is to run: m, and vectors from one of a thread's to its next. */
static wf_gpu_map_way choose(int ordinal, const wf_gpu_entry *e, const space *s, wf_cu_map *m)
{
    wf_gpu_map_way way = {0};
    const int64_t inner = s->dims[s->rank - 1];
    *m = (wf_cu_map){.k = &e->kernel, .vector = vector_of(s, inner)};
    take_flat(m, s, e);
    way.vectors =
        m->flat ? (elements_of(s, 0) - head_of(s)) / m->vector : elements_of(s, 0) / m->vector;
    m->groups = groups_of(ordinal, m, s, e, way.vectors);
    way.step = m->flat ? step_of(ordinal, m, s, way.vectors) : way.vectors;
    way.step = way.step < way.vectors ? way.step : way.vectors;
    while (m->flat && m->groups > 1 && m->groups * way.step > way.vectors)
        m->groups /= 2;
    /* what is no vector has threads, and warps, of its own */
    const int64_t edges = elements_of(s, 0) - way.vectors * m->vector;
    const int64_t threads = edges ? (way.step + 31) / 32 * 32 + edges : way.step;
    way.blocks = m->flat ? (threads + WF_GPU_THREADS - 1) / WF_GPU_THREADS
                         : wf_gpu_blocks(ordinal, way.vectors, WF_GPU_THREADS * (int64_t)m->groups);
    way.flat = m->flat;
    way.wide = m->wide || s->wide;
    way.vector = m->vector;
    way.groups = m->groups;
    return way;
}

/* What the kernel's text depends on, into m and as bytes; how many bytes. */
static int classify(wf_cu_map *m, const space *s, unsigned char bytes[WF_GPU_VARIANT])
{
    m->rank = s->rank;
    m->wide |= s->wide;
    for (int o = 0; o < s->nop; o++) {
        const int64_t step = s->strides[o][s->rank - 1];
        m->inner[o] = (uint8_t)(m->flat && !moves(s, o) ? WF_CU_SAME
                                : step == 0             ? 0
                                : step == 1             ? 1
                                                        : 2);
        int same = 0;
        while (memcmp(s->strides[same], s->strides[o], sizeof(int64_t) * (size_t)s->rank) != 0)
            same++;
        m->like[o] = (uint8_t)same;
        int twin = m->many ? 0 : o;
        while (s->data[twin] != s->data[o])
            twin++;
        m->alias[o] = (uint8_t)(twin < o ? 1 + twin : 0);
    }
    bytes[0] = m->many ? 'M' : m->flat ? 'f' : 'm';
    bytes[1] = (unsigned char)m->rank;
    bytes[2] = (unsigned char)m->vector;
    bytes[3] = (unsigned char)(m->wide | m->groups << 1);
    for (int o = 0; o < s->nop; o++) {
        const int place = (int)(m->dense >> o & 1) | (int)(m->whole >> o & 1) << 1 |
                          (int)(m->still >> o & 1) << 2;
        bytes[4 + o] = (unsigned char)(m->inner[o] | (m->flat ? place : m->alias[o]) << 2);
        bytes[4 + s->nop + o] = m->like[o];
    }
    return 4 + 2 * s->nop;
}

static void put_operands(const wf_cu_map *m, const space *s, uint64_t *operand)
{
    for (int o = 0; o < s->nop; o++) {
        if (!m->alias[o])
            *operand++ = s->data[o];
        for (int d = 0, n = wf_cu_map_strides(m, o); d < n; d++)
            *operand++ = (uint64_t)s->strides[o][d];
    }
}

/* The words of a run that starts at w, which w[at] is word `at` of; its scalars are elsewhere. */
static int64_t fill(const wf_cu_map *m, const space *s, uint64_t *w, int at)
{
    const int64_t groups = elements_of(s, 0) / m->vector;
    for (int d = 1; d < s->rank; d++)
        wf_gpu_divisor(w + wf_cu_map_divisor(m, d),
                       d == s->rank - 1 ? s->dims[d] / m->vector : s->dims[d]);
    w[at] = (uint64_t)groups;
    put_operands(m, s, w + wf_cu_map_operand(m, 0));
    return groups;
}

static void fill_flat(const wf_cu_map *m, const space *s, const wf_gpu_map_way *way, uint64_t *w)
{
    const int64_t head = head_of(s);
    w[0] = (uint64_t)way->vectors;
    w[1] = (uint64_t)head;
    w[2] = (uint64_t)(elements_of(s, 0) - way->vectors * m->vector);
    w[3] = (uint64_t)way->step;
    w[4] = (uint64_t)(way->step * m->vector / elements_of(s, 1));
    for (int d = 1; d < s->rank; d++)
        wf_gpu_divisor(w + wf_cu_map_divisor(m, d), s->dims[d]);
    put_operands(m, s, w + wf_cu_map_operand(m, 0));
}

static void put_scalars(const wf_program *p, const void *const *scalars, uint64_t *w)
{
    for (int i = 0; i < p->nscalar; i++)
        w[i] = wf_kir_peek(scalars[i], wf_kir_storage(p->type[p->scalar[i]]), 0);
}

static int render(const void *arg, const wf_gpu_entry *e, wf_text *out, wf_why *why)
{
    wf_cu_map m = *(const wf_cu_map *)arg;
    m.k = &e->kernel;
    return wf_cu_render_map(&m, out, why);
}

/* The launch that was made is kept, if it is small. */
static void remember(int ordinal, const wf_program *p, const wf_program_args *a, const wf_cu_map *m,
                     const wf_gpu_launch *l)
{
    const int nop = p->noutput + p->ninput, nwords = wf_cu_map_words(m);
    wf_gpu_known k;
    if (p->number == 0 || nop > WF_GPU_KNOWN_OPS || nwords > WF_GPU_KNOWN_WORDS)
        return;
    k.v = l->v;
    k.nlaunch = 1;
    k.ntemp = 0;
    k.nwords = nwords;
    k.scalar = wf_cu_map_scalar(m, 0);
    k.threads = l->threads;
    k.shared = 0;
    k.blocks[0] = l->blocks;
    for (int o = 0; o < nop; o++)
        k.at[o] = (uint8_t)(m->alias[o] ? WF_GPU_NOWHERE : wf_cu_map_operand(m, o));
    memcpy(k.words, l->words, (size_t)nwords * sizeof *k.words);
    wf_gpu_remember(ordinal, p, a, &k);
}

int wf_gpu_map_program(int ordinal, const wf_program *p, const wf_program_args *a, bool later,
                       wf_why *why)
{
    space s;
    wf_cu_map m;
    uint64_t words[WF_GPU_WORDS];
    unsigned char bytes[WF_GPU_VARIANT];
    wf_why own = {0};
    why = why ? why : &own;
    if (p->noutput == 0 || wf_view_numel(&a->dst[0]) == 0)
        return 0;
    const wf_gpu_entry *e = wf_gpu_entry_of(p, why);
    if (!e)
        return why->code;
    make_space(&s, p, a);
    const wf_gpu_map_way way = choose(ordinal, e, &s, &m);
    const int n = classify(&m, &s, bytes), nwords = wf_cu_map_words(&m);
    if (nwords > WF_GPU_WORDS || nwords > wf_gpu_most_words(ordinal))
        return wf_fail(why, WEFT_EUNSUPPORTED, "a program of %d operands over %d axes", s.nop,
                       s.rank);
    const wf_gpu_recipe recipe = {render, &m, sizeof m, later, 0};
    const wf_gpu_variant *v = wf_gpu_variant_of(ordinal, e, bytes, n, &recipe, why);
    if (!v)
        return why->code ? why->code : WEFT_EUNSUPPORTED;
    if (m.flat)
        fill_flat(&m, &s, &way, words);
    else
        fill(&m, &s, words, 0);
    put_scalars(p, a->scalars, words + wf_cu_map_scalar(&m, 0));
    const wf_gpu_launch l = {
        .v = v, .blocks = way.blocks, .threads = WF_GPU_THREADS, .words = words};
    const int status = wf_gpu_start(ordinal, &l, why);
    if (status == 0)
        remember(ordinal, p, a, &m, &l);
    return status;
}

int wf_gpu_map_way_of(int ordinal, const wf_program *p, const wf_program_args *a,
                      wf_gpu_map_way *way, wf_why *why)
{
    space s;
    wf_cu_map m;
    const wf_gpu_entry *e = wf_gpu_entry_of(p, why);
    if (!e)
        return why->code;
    make_space(&s, p, a);
    *way = choose(ordinal, e, &s, &m);
    return 0;
}

/* -- many runs ------------------------------------------------------------------------------------------------ */
enum { KEY = WF_GPU_VARIANT - 2 };

/* What runs of one launch have in common; n 0: it is to run alone. */
typedef struct key {
    uint8_t n;
    unsigned char bytes[KEY];
} key;

typedef struct batch {
    int ordinal;
    const wf_gpu_entry *e;
    const wf_program *p;
    const wf_program_args *a;
    wf_gpu_variant const *v;
    wf_cu_map m;
    space s;
    int n, runs, sets; /* in all; in the launch that is being filled */
    uint64_t pieces;
    uint8_t *done;
    key *keys;
    uint64_t *words;
} batch;

/* The space and the kernel of run i. False: a launch of its own. */
static bool describe(batch *b, int i, int words)
{
    space *s = &b->s;
    if (wf_view_numel(&b->a[i].dst[0]) == 0)
        return false;
    make_space(s, b->p, &b->a[i]);
    const int64_t inner = s->dims[s->rank - 1];
    int vector = vector_of(s, inner);
    if (s->wide || (s->rank == 1 && inner >= FLAT_FROM &&
                    vector_of(s, inner / VECTOR_MOST * VECTOR_MOST) > vector))
        return false;
    if (s->rank == 1 && inner < FLAT_FROM && inner % VECTOR_MOST != 0)
        vector = 1; /* or odd sizes would be in three launches */
    b->m = (wf_cu_map){.k = &b->e->kernel, .vector = vector, .many = words};
    b->m.groups = groups_wanted(&b->m, s, b->e);
    return true;
}

/* How many runs have the key of run `first`. */
static int count_like(const batch *b, int first)
{
    int n = 0;
    for (int i = first; i < b->n; i++)
        n += b->keys[i].n && memcmp(&b->keys[i], &b->keys[first], sizeof(key)) == 0;
    return n;
}

/* Set of the scalars of run i in the launch; -1: there is no room for it. */
static int find_set(batch *b, int i)
{
    uint64_t own[WF_PROGRAM_SCALARS];
    const int n = b->p->nscalar;
    uint64_t *sets = b->words + wf_cu_map_scalar(&b->m, 0);
    put_scalars(b->p, b->a[i].scalars, own);
    int at = 0;
    while (at < b->sets && memcmp(sets + at * n, own, (size_t)n * sizeof *own) != 0)
        at++;
    if (at == b->sets && n > 0) {
        if (at == wf_cu_map_sets(&b->m))
            return -1;
        memcpy(sets + at * n, own, (size_t)n * sizeof *own);
        b->sets++;
    }
    return at;
}

/* Queues what was filled in. */
static int flush(batch *b, wf_why *why)
{
    if (b->runs == 0)
        return 0;
    b->words[0] = b->pieces;
    b->words[1] = (uint64_t)b->runs;
    const int status =
        wf_gpu_start(b->ordinal,
                     &(wf_gpu_launch){.v = b->v,
                                      .blocks = wf_gpu_blocks(b->ordinal, (int64_t)b->pieces, 1),
                                      .threads = WF_GPU_THREADS,
                                      .words = b->words},
                     why);
    wf_gpu_settle(b->done, b->n, status);
    b->runs = b->sets = 0;
    b->pieces = 0;
    return status;
}

/* The launches of all runs with the key of run `first`. */
static int run_alike(batch *b, int first, bool later, wf_why *why)
{
    unsigned char bytes[WF_GPU_VARIANT];
    const key mine = b->keys[first];
    const int runs = count_like(b, first);
    describe(b, first, WF_GPU_MOST_WORDS);
    classify(&b->m, &b->s, bytes);
    const int words =
        wf_gpu_many_words(b->ordinal, wf_cu_map_first(&b->m), wf_cu_map_entry(&b->m), runs);
    b->m.many = words;
    if (runs > 1 && words) {
        memcpy(bytes + mine.n, &(uint16_t){(uint16_t)b->m.many}, 2);
        const wf_gpu_recipe recipe = {render, &b->m, sizeof b->m, later, 0};
        b->v = wf_gpu_variant_of(b->ordinal, b->e, bytes, mine.n + 2, &recipe, why);
    }
    const wf_cu_map m = b->m;
    const int entry = wf_cu_map_entry(&m), room = wf_cu_map_entries(&m);
    uint64_t *entries = b->words + wf_cu_map_first(&m);
    int status = b->v ? 0 : why->code;
    for (int i = first; i < b->n; i++) {
        if (memcmp(&b->keys[i], &mine, sizeof mine) != 0)
            continue;
        b->keys[i].n = 0; /* it has had its turn */
        if (!b->v || status)
            continue;
        int set = b->runs < room ? find_set(b, i) : -1;
        if (set < 0) {
            status = flush(b, why);
            set = status ? 0 : find_set(b, i);
        }
        if (status)
            continue;
        describe(b, i, m.many);
        b->m = m;
        uint64_t *w = entries + (ptrdiff_t)b->runs++ * entry;
        w[0] = b->pieces | (uint64_t)set << 32;
        b->pieces += ((uint64_t)fill(&m, &b->s, w, 1) + WF_CU_PIECE - 1) / WF_CU_PIECE;
        b->done[i] = WF_GPU_FILLED;
    }
    status = status ? status : flush(b, why);
    b->v = NULL;
    return status;
}

int wf_gpu_map_many(int ordinal, const wf_program *p, int n, const wf_program_args *a, bool later,
                    uint8_t *done, wf_why *why)
{
    const size_t bytes =
        sizeof(batch) + WF_GPU_MOST_WORDS * sizeof(uint64_t) + (size_t)n * sizeof(key);
    const wf_gpu_entry *e = p->noutput ? wf_gpu_entry_of(p, why) : NULL;
    batch *b = e ? wf_alloc(bytes) : NULL;
    int status = b ? 0 : WEFT_ENOMEM;
    if (!b)
        return status;
    memset(b, 0, sizeof *b);
    b->ordinal = ordinal;
    b->e = e;
    b->p = p;
    b->a = a;
    b->n = n;
    b->done = done;
    b->words = (uint64_t *)(b + 1);
    b->keys = memset(b->words + WF_GPU_MOST_WORDS, 0, (size_t)n * sizeof(key));
    const bool fits = 4 + 2 * (p->noutput + p->ninput) <= KEY &&
                      (p->nscalar == 0 || wf_cu_map_sets(&(wf_cu_map){.k = &e->kernel}) > 0);
    for (int i = 0; i < n && fits; i++) {
        unsigned char bytes_[WF_GPU_VARIANT];
        if (describe(b, i, WF_GPU_MOST_WORDS)) {
            b->keys[i].n = (uint8_t)classify(&b->m, &b->s, bytes_);
            memcpy(b->keys[i].bytes, bytes_, b->keys[i].n);
        }
    }
    int other = 0;
    for (int i = 0; i < n && status == 0; i++)
        if (b->keys[i].n)
            status = wf_gpu_or_alone(run_alike(b, i, later, why), &other, why);
    wf_free(b, bytes);
    return status ? status : other;
}

int wf_gpu_number_kernel(int ordinal, const wf_gpu_entry *e, const wf_view *dst,
                         const uint64_t *scalars, wf_why *why)
{
    const int64_t n = wf_view_numel(dst);
    wf_cu_map m = {.k = &e->kernel, .index = true, .rank = 1, .vector = 1, .inner = {1}};
    uint64_t words[WF_GPU_WORDS] = {(uint64_t)n};
    m.wide = n >= INT32_MAX || wf_env_stress("wide", NULL);
    const unsigned char bytes[] = {'n', m.wide};
    const wf_gpu_recipe recipe = {render, &m, sizeof m, false, 0};
    const wf_gpu_variant *v = wf_gpu_variant_of(ordinal, e, bytes, sizeof bytes, &recipe, why);
    if (!v)
        return WEFT_EUNSUPPORTED;
    words[wf_cu_map_operand(&m, 0)] = wf_gpu_word(dst->data);
    for (int i = 0; i < e->kernel.nscalar; i++)
        words[wf_cu_map_scalar(&m, i)] = scalars[i];
    return wf_gpu_start(ordinal,
                        &(wf_gpu_launch){.v = v,
                                         .blocks = wf_gpu_blocks(ordinal, n, WF_GPU_THREADS),
                                         .threads = WF_GPU_THREADS,
                                         .words = words},
                        why);
}
