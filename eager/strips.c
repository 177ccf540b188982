/*
 * eager/strips.c -- elementwise rows and copies of few elements, whatever their strides; see strips.h.
 *
 * What a walk (eager/tile.h) finds out takes as long as a kernel on some thousand elements. A small row-major result whose
 * operands two axes describe needs none of it: it is cut into strips of whole rows, which of the result are one run of
 * memory, and so they are of every operand that is row-major, too. Of the others a strip is brought together in scratch,
 * by one call for all of its rows. Where operands differ from that only in where their rows begin or in that a row is one
 * element, rows are long enough to be handed to the kernel one by one, where they lie.
 *
 * Invariants: the same kernel on the same values as a walk, so the same bits; where the result is one of the sources a strip
 * is read before it is written; nothing is allocated, nothing is shared with other threads.
 */
#include "eager/strips.h"

enum {
    STRIP_BYTES =
        16384,         /* of a tile of scratch: all of a strip's stay in the first cache, mostly */
    CAST_BYTES = 8192, /* the same where there are more of them, for what is cast */
    /* Elements of a row that is worth a call where a source is one element for it; and elements and bytes of others. */
    SHORT_ROW = 64,
    LONG_ROW = 128,
    LONG_ROW_BYTES = 512
};

/* Some rows, or some columns of one. */
typedef struct strip {
    const wf_strips *of;
    const wf_kernels *k;
    int64_t r, c, rows, cols;
    int through; /* see find_through */
} strip;

static inline bool is_single(const wf_strips *s, const wf_strips_src *x)
{
    return (x->row == 0 || s->rows == 1) && (x->col == 0 || s->cols == 1);
}
static inline bool is_packed(const wf_strips *s, const wf_strips_src *x)
{
    return (x->col == 1 || s->cols == 1) && (s->rows == 1 || x->row == s->cols);
}

/* Can rows be handed to the kernel where they lie, and is there a source of which a strip could not? */
static bool goes_by_rows(const wf_strips *s)
{
    bool some = false;
    if (!s->fn || s->rows == 1 || s->cols < SHORT_ROW || !wf_same_bits(s->out, s->to)) {
        return false;
    }
    const bool is_long = s->cols >= LONG_ROW && s->cols << wf_width(s->out) >= LONG_ROW_BYTES;
    for (int k = 0; k < s->nsrc; k++) {
        const wf_strips_src *x = &s->src[k];
        if (x->to == WEFT_DTYPE_DEFAULT) {
            continue;
        }
        if (!wf_same_bits(x->from, x->to) || (uint64_t)x->col > 1) {
            return false;
        }
        some |= !is_single(s, x) && (x->col == 0 || (is_long && !is_packed(s, x)));
    }
    return some;
}

static void run_rows(const wf_strips *s)
{
    const void *at[WF_STRIPS_SRC];
    int64_t step[WF_STRIPS_SRC];
    unsigned bcast = 0;
    for (int k = 0; k < s->nsrc; k++) {
        const wf_strips_src *x = &s->src[k];
        const bool read = x->to != WEFT_DTYPE_DEFAULT;
        at[k] = read ? x->data : at[0];
        step[k] = read ? x->row * (int64_t)wf_dtype_size(x->from) : step[0];
        bcast |= read ? (unsigned)(x->col == 0) << k : (bcast & 1) << k;
    }
    char *out = s->dst;
    const int64_t width = s->cols * (int64_t)wf_dtype_size(s->to);
    for (int64_t i = 0; i < s->rows; i++, out += width) {
        s->fn(out, at, (size_t)s->cols, bcast);
        for (int k = 0; k < s->nsrc; k++) {
            at[k] = (const char *)at[k] + step[k];
        }
    }
}

/* Rows and columns of a strip: of transposed operands whole lines are read. */
static void cut(strip *b)
{
    const wf_strips *s = b->of;
    int most = wf_width(s->to), least = 3;
    bool casts = !wf_same_bits(s->out, s->to);
    for (int k = 0; k < s->nsrc; k++) {
        const wf_strips_src *x = &s->src[k];
        const int from = wf_width(x->from), to = wf_width(x->to);
        most = from > most ? from : most;
        most = to > most ? to : most;
        least = from < least ? from : least;
        casts |= !wf_same_bits(x->from, x->to);
    }
    const int64_t room = (casts ? CAST_BYTES : STRIP_BYTES) >> most, line = 64 >> least;
    if (s->rows * s->cols <= room) {
        b->rows = s->rows;
        b->cols = s->cols;
        return;
    }
    b->cols = s->cols < room ? s->cols : room;
    b->rows = b->cols < s->cols ? 1 : room / b->cols;
    b->rows = b->rows > line ? b->rows & -line : b->rows;
}

/* A source of the strip, one behind the other at `tile`, or where it lies. */
static const void *bring(const strip *b, const wf_strips_src *x, void *tile, void *raw)
{
    const wf_strips *s = b->of;
    const char *at = x->data + (b->r * x->row + b->c * x->col) * (int64_t)wf_dtype_size(x->from);
    const bool same = wf_same_bits(x->from, x->to), single = is_single(s, x);
    if (!single && !is_packed(s, x)) {
        void *together = same ? tile : raw;
        b->k->pack[wf_width(x->from)](together, b->cols, at, x->row, x->col, (size_t)b->rows,
                                      (size_t)b->cols);
        at = together;
    }
    if (same) {
        return at;
    }
    b->k->cast[x->to][x->from](tile, at, single ? 1 : (size_t)(b->rows * b->cols));
    return tile;
}

/* The source that can be brought together where the results go, of which every element is then read once more before it is
 * written; -1: there is none. */
static int find_through(const strip *b)
{
    const wf_strips *s = b->of;
    int found = -1;
    for (int k = s->nsrc; k-- > 0;) {
        const wf_strips_src *x = &s->src[k];
        if (x->to == WEFT_DTYPE_DEFAULT) {
            continue;
        }
        if (x->data == s->dst) {
            return -1;
        }
        if (wf_width(x->from) == wf_width(s->to) && !is_single(s, x) && !is_packed(s, x)) {
            found = k;
        }
    }
    return found;
}

static void run_strip(const strip *b)
{
    _Alignas(64) char tile[WF_STRIPS_SRC + 2][STRIP_BYTES];
    const wf_strips *s = b->of;
    const void *at[WF_STRIPS_SRC];
    const size_t n = (size_t)(b->rows * b->cols);
    char *out = s->dst + (b->r * s->cols + b->c) * (int64_t)wf_dtype_size(s->to);
    unsigned bcast = 0;
    for (int k = 0; k < s->nsrc; k++) {
        const wf_strips_src *x = &s->src[k];
        if (x->to == WEFT_DTYPE_DEFAULT) {
            at[k] = at[0];
            bcast |= (bcast & 1) << k;
            continue;
        }
        const bool same = wf_same_bits(x->from, x->to), through = k == b->through;
        at[k] = bring(b, x, through && same ? out : tile[k],
                      through && !same ? out : tile[WF_STRIPS_SRC]);
        bcast |= n > 1 && is_single(s, x) ? 1u << k : 0;
    }
    if (wf_same_bits(s->out, s->to)) {
        s->fn(out, at, n, bcast);
    } else {
        s->fn(tile[WF_STRIPS_SRC + 1], at, n, bcast);
        b->k->cast[s->to][s->out](out, tile[WF_STRIPS_SRC + 1], n);
    }
}

static void copy_strip(const strip *b)
{
    _Alignas(64) char raw[STRIP_BYTES];
    const wf_strips *s = b->of;
    const wf_strips_src *x = &s->src[0];
    const char *at = x->data + (b->r * x->row + b->c * x->col) * (int64_t)wf_dtype_size(x->from);
    char *out = s->dst + (b->r * s->cols + b->c) * (int64_t)wf_dtype_size(s->to);
    const bool moves = wf_same_bits(x->from, s->to);
    b->k->pack[wf_width(x->from)](moves ? out : raw, b->cols, at, x->row, x->col, (size_t)b->rows,
                                  (size_t)b->cols);
    if (!moves) {
        b->k->cast[s->to][x->from](out, raw, (size_t)(b->rows * b->cols));
    }
}

void wf_strips_run(const wf_strips *s)
{
    if (goes_by_rows(s)) {
        run_rows(s);
        return;
    }
    strip b = {.of = s, .k = wf_kernels_now()};
    cut(&b);
    b.through = find_through(&b);
    const int64_t high = b.rows, wide = b.cols;
    for (b.r = 0; b.r < s->rows; b.r += high) {
        b.rows = s->rows - b.r < high ? s->rows - b.r : high;
        for (b.c = 0; b.c < s->cols; b.c += wide) {
            b.cols = s->cols - b.c < wide ? s->cols - b.c : wide;
            (s->fn ? run_strip : copy_strip)(&b);
        }
    }
}

void wf_strips_copy(wf_strips *s, int to, void *dst, int from, const void *src)
{
    s->dst = dst;
    s->to = s->out = (uint8_t)to;
    s->fn = NULL;
    s->src[0].data = src;
    s->src[0].from = s->src[0].to = (uint8_t)from;
    wf_strips_run(s);
}

bool wf_strips_of(wf_strips *s, const wf_view *dst, const wf_view *src)
{
    int64_t n = 1;
    for (int i = dst->rank; i-- > 0;) {
        int64_t step[WF_STRIPS_SRC];
        for (int k = 0; k < s->nsrc; k++) {
            step[k] = src[k].strides[i];
        }
        if ((dst->dims[i] != 1 && dst->strides[i] != n) || !wf_strips_axis(s, dst->dims[i], step)) {
            return false;
        }
        n *= dst->dims[i];
        if (n > s->most) {
            return false;
        }
    }
    return n > 0;
}
