/*
 * eager/create.c -- full, arange, linspace, eye and random fills.
 *
 * Ranges are computed element by element in f64 (integers in wrapping i64) from the index, and
 * rounded once to the result's type: no error accumulates and any task may compute any part.
 * Random values of half types are the f32 draw rounded once. Element i of a draw depends on seed,
 * offset, i and the parameters alone.
 */
#include "eager/dense.h"
#include "eager/draw.h"
#include "eager/rng_core.h"

enum { CHUNK = 4096, BUFFER = 512 };

/* A range of a contiguous result, as a view. */
static wf_view range_of(const wf_view *dst, int64_t begin, int64_t n)
{
    char *at = (char *)dst->data + begin * (int64_t)wf_dtype_size(dst->dtype);
    return wf_view_dense(at, dst->dtype, 1, &n);
}

/* Rounds n values of dtype dt into the result from element begin on. */
static void store_range(const wf_view *dst, int64_t begin, int64_t n, void *values, int dt)
{
    wf_view to = range_of(dst, begin, n);
    wf_view from = wf_view_dense(values, dt, 1, &n);
    wf_copy(&to, &from);
}

/* value (f64) or whole (i64) as one element of dtype dt. */
static uint64_t element_of(double value, int64_t whole, bool is_whole, int dt)
{
    uint64_t out = 0;
    wf_cast_small(dt, &out, is_whole ? WEFT_I64 : WEFT_F64,
                  is_whole ? (const void *)&whole : &value, 1);
    return out;
}

WF_EXEC_DECL(full)
{
    wf_view *dst = &e->dst[0];
    const wf_attr *a = e->attr;
    if (wf_view_numel(dst) > 0) {
        bool whole = a->n_flt == 0;
        uint64_t v =
            element_of(whole ? 0 : a->flt[0], whole ? a->dyn[a->n_dyn - 1] : 0, whole, dst->dtype);
        wf_fill(dst, &v);
    }
    return 0;
}

WF_EXEC_DECL(eye)
{
    wf_view *dst = &e->dst[0];
    if (wf_view_numel(dst) == 0) {
        return 0;
    }
    uint64_t zero = 0, one = element_of(1, 0, false, dst->dtype);
    wf_fill(dst, &zero);
    int64_t rows = dst->dims[0], cols = dst->dims[1], k = e->attr->dyn[2];
    if (k >= cols || k <= -rows) {
        return 0;
    }
    int64_t row = k < 0 ? -k : 0, col = k > 0 ? k : 0;
    int64_t n = rows - row < cols - col ? rows - row : cols - col;
    wf_view diagonal = range_of(dst, row * cols + col, n);
    diagonal.strides[0] = cols + 1;
    wf_fill(&diagonal, &one);
    return 0;
}

/* -- ranges ---------------------------------------------------------------------------------------- */
typedef struct range_args {
    const wf_view *dst;
    double start, step, stop;
    int64_t first, stride; /* integer ranges */
    int64_t n;
    bool whole, closed; /* closed: linspace */
} range_args;

/* n elements at, at + 1, ... of a range. Inlined with a number that is known where blocks are whole: these the compiler makes
 * vectors of. Beside at, below 2^53, their numbers are exact. */
#define RANGE_PART static inline __attribute__((always_inline)) void
RANGE_PART from_start(const range_args *a, int64_t at, int n, double *out)
{
    const double begin = (double)at, start = a->start, step = a->step;
    for (int i = 0; i < n; i++) {
        out[i] = start + (begin + (double)i) * step;
    }
}

RANGE_PART from_stop(const range_args *a, int64_t at, int n, double *out)
{
    const double left = (double)(a->n - 1 - at), stop = a->stop, step = a->step;
    for (int i = 0; i < n; i++) {
        out[i] = stop - (left - (double)i) * step;
    }
}

/* Both halves of a closed range count from their own end: both ends are exact and the range is symmetric. */
RANGE_PART range_values(const range_args *a, int64_t at, int n, double *out)
{
    const int64_t half =
        a->closed ? (a->n + 1) / 2 : a->n; /* from there on it counts from the end */
    if (at >= half) {
        from_stop(a, at, n, out);
        return;
    }
    from_start(a, at, n, out);
    for (int64_t i = half; i < at + n; i++) {
        out[i - at] = a->stop - (double)(a->n - 1 - i) * a->step;
    }
}

RANGE_PART range_wholes(const range_args *a, int64_t at, int n, int64_t *out)
{
    const uint64_t stride = (uint64_t)a->stride;
    uint64_t v = (uint64_t)a->first + (uint64_t)at * stride;
    for (int i = 0; i < n; i++, v += stride) {
        out[i] = (int64_t)v;
    }
}

/* The same in as many bits as the result has. */
RANGE_PART range_wholes_32(const range_args *a, int64_t at, int n, uint32_t *out)
{
    const uint32_t stride = (uint32_t)a->stride;
    uint32_t v = (uint32_t)a->first + (uint32_t)at * stride;
    for (int i = 0; i < n; i++, v += stride) {
        out[i] = v;
    }
}

RANGE_PART range_part(const range_args *a, int64_t at, int n, void *out)
{
    if (a->whole) {
        range_wholes(a, at, n, out);
    } else {
        range_values(a, at, n, out);
    }
}
#undef RANGE_PART

/* Of i32 as it lies in memory. */
static void range_task_32(const range_args *a, int64_t begin, int64_t end)
{
    uint32_t *to = (uint32_t *)a->dst->data + begin;
    for (; end - begin >= BUFFER; begin += BUFFER, to += BUFFER) {
        range_wholes_32(a, begin, BUFFER, to);
    }
    range_wholes_32(a, begin, (int)(end - begin), to);
}

static void range_task(void *arg, int64_t begin, int64_t end)
{
    const range_args *a = arg;
    if (a->whole && a->dst->dtype == WEFT_I32) {
        range_task_32(a, begin, end);
        return;
    }
    const int type = a->whole ? WEFT_I64 : WEFT_F64;
    const bool here = a->dst->dtype == type;
    union {
        double f[BUFFER];
        int64_t i[BUFFER];
    } buf;
    for (int64_t at = begin; at < end; at += BUFFER) {
        const int n = (int)(end - at < BUFFER ? end - at : BUFFER);
        void *out = here ? (char *)a->dst->data + at * 8 : (void *)&buf;
        if (n == BUFFER) {
            range_part(a, at, BUFFER, out);
        } else {
            range_part(a, at, n, out);
        }
        if (!here) {
            store_range(a->dst, at, n, &buf, type);
        }
    }
}

WF_EXEC_DECL(arange)
{
    const wf_attr *at = e->attr;
    range_args a = {.dst = &e->dst[0], .n = e->dst[0].dims[0], .whole = at->n_dyn == 3};
    if (a.whole) {
        a.first = at->dyn[1];
        a.stride = at->dyn[2];
    } else {
        a.start = at->flt[0];
        a.step = at->flt[1];
    }
    wf_parallel_for(a.n, CHUNK, range_task, &a);
    return 0;
}

WF_EXEC_DECL(linspace)
{
    range_args a = {.dst = &e->dst[0],
                    .n = e->dst[0].dims[0],
                    .start = e->attr->flt[0],
                    .stop = e->attr->flt[1],
                    .closed = true};
    a.step = a.n > 1 ? (a.stop - a.start) / (double)(a.n - 1) : 0;
    if (a.n == 1) {
        a.stop = a.start;
    }
    wf_parallel_for(a.n, CHUNK, range_task, &a);
    return 0;
}

/* -- random ---------------------------------------------------------------------------------------- */
typedef struct random_args {
    const wf_view *dst;
    wf_draw draw;
} random_args;

/* low + u (high - low), which rounding may carry to high: that value becomes low. */
#define DRAW(suffix, type)                                                                         \
    static void draw_##suffix(const wf_draw *a, type *out, int64_t begin, int64_t n)               \
    {                                                                                              \
        const type p = (type)a->p, q = (type)a->q;                                                 \
        if (a->op == WF_OP_RANDN) {                                                                \
            wf_fill_normal_##suffix(out, begin, n, a->seed, a->offset);                            \
            for (int64_t i = 0; i < n; i++) {                                                      \
                out[i] = p + q * out[i];                                                           \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        wf_fill_uniform_##suffix(out, begin, n, a->seed, a->offset);                               \
        if (p == 0 && q == 1) {                                                                    \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const type v = p + out[i] * (q - p);                                                   \
            out[i] = v < q ? v : p;                                                                \
        }                                                                                          \
    }
DRAW(f32, float)
DRAW(f64, double)
#undef DRAW

int wf_draw_type(wf_op op, int dtype)
{
    return op == WF_OP_BERNOULLI ? (int)WEFT_BOOL
           : op == WF_OP_RANDINT ? (int)WEFT_I64
           : dtype == WEFT_F64   ? (int)WEFT_F64
                                 : (int)WEFT_F32;
}

void wf_draw_elements(const wf_draw *d, int type, void *out, int64_t begin, int64_t n)
{
    if (d->op == WF_OP_BERNOULLI) {
        wf_fill_bernoulli(out, begin, n, d->seed, d->offset, d->p);
    } else if (d->op == WF_OP_RANDINT) {
        wf_fill_randint(out, begin, n, d->seed, d->offset, d->low, d->high);
    } else if (type == WEFT_F64) {
        draw_f64(d, out, begin, n);
    } else {
        draw_f32(d, out, begin, n);
    }
}

static void random_task(void *arg, int64_t begin, int64_t end)
{
    const random_args *a = arg;
    const int dt = a->dst->dtype, type = wf_draw_type(a->draw.op, dt);
    union {
        float f[BUFFER];
        double d[BUFFER];
        int64_t i[BUFFER];
        uint8_t b[BUFFER];
    } buf;
    if (dt == type) {
        char *data = a->dst->data;
        wf_draw_elements(&a->draw, type, data + begin * (int64_t)wf_dtype_size(dt), begin,
                         end - begin);
        return;
    }
    for (int64_t at = begin; at < end; at += BUFFER) {
        int64_t n = end - at < BUFFER ? end - at : BUFFER;
        wf_draw_elements(&a->draw, type, &buf, at, n);
        store_range(a->dst, at, n, &buf, type == WEFT_BOOL ? WEFT_U8 : type);
    }
}

/* -- permutations: the order of random 64-bit keys ---------------------------------------------------------------------- */

/* A key's upper bits with its position in place of the others, as one number. Keys are random, so that numbers are in order
 * but for a few once some more bits of them are than n elements have: two to four passes instead of eight. */
enum {
    DIGIT = 11, /* bits of a pass, at most */
    PASSES = 4, /* at most: half of a word, and some */
    MORE = 5,
    FEW_KEYS = 48 /* in order without passes */
};

typedef struct shuffle {
    const int64_t *keys;
    uint64_t *word, *other;
    uint64_t places; /* mask of a position */
    int64_t n;
    int first, digit, passes; /* the lowest bit that a pass looks at, bits of a pass */
    int64_t count[PASSES][1 << DIGIT];
} shuffle;

static void shuffle_open(shuffle *s, int64_t *room, int64_t n)
{
    const int own = n > 1 ? 64 - __builtin_clzll((uint64_t)(n - 1)) : 1;
    const int bits = own + MORE < 64 - own ? own + MORE : 64 - own;
    s->keys = room;
    s->word = (uint64_t *)room + n;
    s->other = (uint64_t *)room + 2 * n;
    s->n = n;
    s->places = (UINT64_C(1) << own) - 1;
    s->passes = n <= FEW_KEYS ? 0 : (bits + DIGIT - 1) / DIGIT;
    s->digit = s->passes ? (bits + s->passes - 1) / s->passes : 0;
    s->first = s->passes ? 64 - s->passes * s->digit : 63;
}

__attribute__((always_inline)) static inline void words_of(shuffle *s, int passes)
{
    const uint64_t mask = (UINT64_C(1) << s->digit) - 1, places = s->places;
    const int64_t *keys = s->keys, n = s->n;
    const int first = s->first, digit = s->digit;
    uint64_t *word = s->word;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t key = (uint64_t)keys[i] ^ (UINT64_C(1) << 63);
        uint64_t upper; /* of the word: of many elements a pass looks at bits of positions, too */
        word[i] = (key & ~places) | (uint64_t)i;
        upper = word[i] >> first;
        for (int p = 0; p < passes; p++, upper >>= digit) {
            s->count[p][upper & mask]++;
        }
    }
}
/* The words, and how often each digit of theirs occurs. */
static void shuffle_words(shuffle *s)
{
    memset(s->count, 0, (size_t)s->passes * sizeof s->count[0]);
    if (s->passes == 2) {
        words_of(s, 2);
    } else {
        words_of(s, s->passes);
    }
}

static void shuffle_pass(shuffle *s, int p)
{
    int64_t *to = s->count[p], at = 0;
    const uint64_t mask = (UINT64_C(1) << s->digit) - 1;
    const int shift = s->first + p * s->digit;
    const uint64_t *from = s->word;
    uint64_t *other = s->other;
    const int64_t n = s->n;
    for (int64_t v = 0; v <= (int64_t)mask; v++) {
        const int64_t c = to[v];
        to[v] = at;
        at += c;
    }
    for (int64_t i = 0; i < n; i++) {
        const uint64_t x = from[i];
        other[to[x >> shift & mask]++] = x;
    }
    uint64_t *t = s->word;
    s->word = s->other;
    s->other = t;
}

/* Does a belong behind b, which is behind it? Equal keys (chance n^2 / 2^65) keep their order. */
static inline bool is_behind(const shuffle *s, uint64_t a, uint64_t b)
{
    return (a | s->places) != (b | s->places) ? a > b
                                              : s->keys[a & s->places] > s->keys[b & s->places];
}

static void shuffle_run(shuffle *s)
{
    shuffle_words(s);
    for (int p = 0; p < s->passes; p++) {
        shuffle_pass(s, p);
    }
    uint64_t *w = s->word;
    for (int64_t i = 1; i < s->n; i++) {
        const uint64_t x = w[i];
        int64_t j = i;
        for (; j > 0 && is_behind(s, w[j - 1], x); j--) {
            w[j] = w[j - 1];
        }
        w[j] = x;
    }
}

/* Positions of random 64-bit keys in sorted order; equal keys keep theirs. */
static int permutation(wf_exec *e)
{
    wf_view *dst = &e->dst[0];
    int64_t n = dst->dims[0];
    size_t bytes = wf_scratch_bytes(n, 3 * sizeof(int64_t));
    int64_t *room = bytes ? wf_alloc(bytes) : NULL;
    if (!room) {
        return wf_no_memory(e->why, bytes);
    }
    wf_view drawn = wf_view_dense(room, WEFT_I64, 1, &n);
    random_args a = {.dst = &drawn,
                     .draw = {.op = WF_OP_RANDINT,
                              .seed = (uint64_t)e->attr->dyn[1],
                              .offset = (uint64_t)e->attr->dyn[2],
                              .low = INT64_MIN,
                              .high = INT64_MAX}};
    wf_parallel_for(n, CHUNK, random_task, &a);
    shuffle s;
    shuffle_open(&s, room, n);
    shuffle_run(&s);
    const bool straight = dst->dtype == WEFT_I64 && wf_view_is_contiguous(dst);
    uint64_t *to = straight ? (uint64_t *)dst->data : s.word;
    for (int64_t i = 0; i < n; i++) {
        to[i] = s.word[i] & s.places;
    }
    if (!straight) {
        const wf_view order = wf_view_dense(s.word, WEFT_I64, 1, &n);
        wf_copy(dst, &order);
    }
    wf_free(room, bytes);
    return 0;
}

WF_EXEC_DECL(random)
{
    wf_view *dst = &e->dst[0];
    const wf_attr *at = e->attr;
    int rank = dst->rank;
    int64_t n = wf_view_numel(dst);
    if (n == 0) {
        return 0;
    }
    if (e->op == WF_OP_RANDPERM) {
        return permutation(e);
    }
    random_args a = {.dst = dst,
                     .draw = {.op = e->op,
                              .seed = (uint64_t)at->dyn[rank],
                              .offset = (uint64_t)at->dyn[rank + 1]}};
    if (e->op == WF_OP_RANDINT) {
        a.draw.low = at->dyn[rank + 2];
        a.draw.high = at->dyn[rank + 3];
    } else {
        a.draw.p = at->flt[0];
        a.draw.q = e->op == WF_OP_BERNOULLI ? 0 : at->flt[1];
    }
    wf_parallel_for(n, CHUNK, random_task, &a);
    return 0;
}
