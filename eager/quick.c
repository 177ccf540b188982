/*
 * eager/quick.c -- the short way of elementwise rows on few elements.
 *
 * A call on a small tensor costs what stands around the kernel: types that are joined, views that are laid out, plans
 * of tiles. The common call needs none of it: operands of one element type that the row takes, row-major, of the same
 * extents; beside them numbers, tensors of one element and rows that repeat. Views, operands that repeat in other ways,
 * halves and choices by a condition go by strips (eager/strips.h). Whatever is not that simple is left to
 * the general way, untouched: so this file raises no error but the lack of memory, and knows no rule that the general
 * way does not know. One body is compiled for one, two and three operands, so that what is known of each stays in
 * registers.
 *
 * Invariants: the same kernel on the same values as the general way, so the same bits; a false answer has changed
 * nothing; operands are pinned while they are read.
 */
#include <string.h>

#include "eager/layout.h"
#include "eager/map.h"
#include "eager/pool.h"
#include "eager/quick_int.h"
#include "eager/strips.h"

enum { REPEAT_BYTES = 1024 /* of an operand whose rows are repeated on the stack */ };

/* What is known of the operands of a call. Only ever in registers: functions that are not inline get a copy. */
typedef struct quick {
    wf_slot *slot[MOST_SRC];
    wf_slot *wide;    /* the tensor of the highest rank, the first of them */
    unsigned pins;    /* see let_go */
    int dtype;        /* of all tensors */
    uint64_t tracked; /* not 0: one of them is */
} quick;

/* Operands of one type that the row takes, beside numbers that do not lift it and that it holds; slot NULL: a number. */
ALWAYS bool take(wf_ctx *c, quick *q, wf_op op, const int nsrc, const weft_tensor *src)
{
    const unsigned types = wf_rows[op].types;
    int weak = 0;
    q->wide = NULL;
    q->pins = 0;
    q->dtype = 0;
    q->tracked = 0;
    q->slot[0] = q->slot[1] = q->slot[2] = NULL;
    UNROLL
    for (int i = 0; i < nsrc; i++) {
        if (__builtin_expect(wf_is_scalar(src[i]), 0)) {
            weak = (int)src[i].context > weak ? (int)src[i].context : weak;
            continue;
        }
        const found f = look_up(c, src[i]);
        wf_slot *s = q->slot[i] = f.slot;
        q->pins |= f.pinned << i;
        if (!s || !is_plain(s->st, NULL) || (q->dtype && q->dtype != s->dtype)) {
            return false;
        }
        q->dtype = s->dtype;
        q->tracked |= (s->flags & WF_SLOT_REQUIRES_GRAD) | s->node | s->st->roots;
        q->wide = !q->wide || s->rank > q->wide->rank ? s : q->wide;
    }
    return q->wide && (types & WF_BIT(q->dtype)) &&
           (weak == 0 ||
            (weak <= wf_dtype_kind(q->dtype) &&
             !(wf_dtype_kind(q->dtype) == 1 && wf_numbers_stray(q->dtype, nsrc, src))));
}

/* Does s have the last extents of `wide`? */
ALWAYS bool is_tail(wf_slot *wide, wf_slot *s)
{
    const int64_t *a = wf_dims(wide) + (wide->rank - s->rank), *b = wf_dims(s);
    for (int i = 0; i < s->rank; i++) {
        if (a[i] != b[i]) {
            return false;
        }
    }
    return true;
}

/* The same extents and strides? */
ALWAYS bool is_same_map(wf_slot *a, wf_slot *b)
{
    const int64_t *d = wf_dims(a), *e = wf_dims(b), *st = wf_strides(a), *bt = wf_strides(b);
    bool same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++) {
        same = d[i] == e[i] && st[i] == bt[i];
    }
    return same;
}

/* The rows of s, m elements, as often as n elements hold them. */
static void repeat(char *tile, wf_slot *s, int64_t m, int64_t n)
{
    const size_t size = wf_dtype_size(s->dtype), all = (size_t)n * size;
    size_t have = (size_t)m * size;
    memcpy(tile, wf_slot_data(s), have);
    while (have < all) {
        const size_t more = have < all - have ? have : all - have;
        memcpy(tile + have, tile, more);
        have += more;
    }
}

/* What a kernel reads. */
typedef struct line {
    const void *at[MOST_SRC];
    unsigned bcast;
    double scalar[MOST_SRC];
} line;

/* A tensor that is not as wide as the result of n elements: one element, or rows that repeat. */
__attribute__((noinline)) static bool spread(line *l, int i, wf_slot *wide, wf_slot *s, int64_t n,
                                             char *tile)
{
    const int64_t m = is_tail(wide, s) ? wf_slot_row_major(s) : -1;
    if (m == n) {
        return true;
    }
    if (wf_slot_numel(s) == 1) {
        l->bcast |= 1u << i;
        return true;
    }
    if (m <= 0 || (size_t)n * wf_dtype_size(s->dtype) > REPEAT_BYTES) {
        return false;
    }
    repeat(tile, s, m, n);
    l->at[i] = tile;
    return true;
}

/* Operands for a result with the n elements of `wide`. */
ALWAYS bool line_up(line *l, const quick *q, const int nsrc, const weft_tensor *src, wf_slot *wide,
                    int64_t n, char (*tile)[REPEAT_BYTES])
{
    l->bcast = 0;
    UNROLL
    for (int i = 0; i < nsrc; i++) {
        wf_slot *s = q->slot[i];
        if (!s) {
            wf_scalar_store(src[i], q->dtype, &l->scalar[i]);
            l->at[i] = &l->scalar[i];
            l->bcast |= n > 1 ? 1u << i : 0;
            continue;
        }
        l->at[i] = wf_slot_data(s);
        if (s != wide && !is_same_map(wide, s) && !spread(l, i, wide, s, n, tile[i])) {
            return false;
        }
    }
    return true;
}

/* The kernel, if one call of it runs n elements. */
ALWAYS wf_map_fn kernel_of(wf_op op, int dtype, int64_t n)
{
    const int ct = wf_ct(dtype);
    return n <= 0 || n > WF_MAP_SMALL || ct < 0 ? NULL : wf_kernels_now()->map[ct][op];
}

ALWAYS void launch(wf_map_fn fn, void *dst, const line *l, int64_t n)
{
    const unsigned mode = wf_fpenv_enter();
    fn(dst, l->at, (size_t)n, l->bcast);
    wf_fpenv_leave(mode);
}

/* -- a new result --------------------------------------------------------------------------------------------- */

int wf_quick_fail(const failed *f, const wf_why *why)
{
    for (int i = 0; i < f->made; i++) {
        wf_slot_destroy(f->c, f->result[i]);
    }
    f->dst[0] = wf_raise(f->c, wf_rows[f->op].name, f->nsrc, f->src, why);
    for (int i = 1; i < f->ndst; i++) {
        f->dst[i] = f->dst[0];
    }
    return why->code;
}

int wf_quick_no_memory(const failed *f, int64_t n)
{
    wf_why why;
    wf_fail(&why, WEFT_ENOMEM, "out of memory for a result of %lld elements", (long long)n);
    wf_hint(&why, "free tensors, end scopes sooner, or call weft_memory_trim");
    return wf_quick_fail(f, &why);
}

/* With the result r. */
__attribute__((noinline, cold)) static int fail(wf_ctx *c, wf_op op, int nsrc,
                                                const weft_tensor *src, wf_slot *r,
                                                weft_tensor *dst, const wf_why *why)
{
    const failed f = {c, op, nsrc, 1, 1, src, dst, &r};
    return wf_quick_fail(&f, why);
}

__attribute__((noinline, cold)) static int
no_memory(wf_ctx *c, wf_op op, int nsrc, const weft_tensor *src, weft_tensor *dst, int64_t n)
{
    const failed f = {c, op, nsrc, 1, 0, src, dst, NULL};
    return wf_quick_no_memory(&f, n);
}

/* The tape gets the op. */
__attribute__((noinline)) static int record(wf_ctx *c, const quick *q, wf_op op,
                                            const wf_attr *attr, int nsrc, const weft_tensor *src,
                                            wf_slot *r, weft_tensor *dst)
{
    wf_why why;
    wf_why_clear(&why);
    if (!wf_op_record(c, op, attr, nsrc, q->slot, src, 1, &r, &why)) {
        return 0;
    }
    return fail(c, op, nsrc, src, r, dst, &why);
}

/* Operands for a result with the n elements of `wide`, which has at most WF_INLINE_RANK axes. False: they are too many, or
 * do not fit. */
static bool lay_out(wf_strips *s, wf_slot *const *slot, wf_slot *wide, int64_t *n)
{
    const int64_t *d = wide->dims_;
    *n = 1;
    for (int i = 1; i <= wide->rank; i++) {
        const int64_t extent = d[wide->rank - i];
        int64_t step[MOST_SRC];
        for (int k = 0; k < s->nsrc; k++) {
            wf_slot *x = slot[k];
            const int at = x ? x->rank - i : -1;
            const int64_t has = at < 0 ? 1 : x->dims_[at];
            if (has != extent && has != 1) {
                return false;
            }
            step[k] = has == 1 ? 0 : x->strides_[at];
        }
        *n *= extent;
        if (*n > s->most || *n < 1 || !wf_strips_axis(s, extent, step)) {
            return false;
        }
    }
    return true;
}

/* Views of the extents of q's widest, or that repeat in it, halves, and what is chosen by a condition: what the general
 * way does with them, without its questions. */
__attribute__((noinline)) static bool run_views(wf_ctx *c, const quick *q, wf_op op,
                                                const wf_attr *attr, int nsrc,
                                                const weft_tensor *src, weft_tensor *dst, int *rc)
{
    wf_slot *const *slot = q->slot;
    double scalar[MOST_SRC];
    wf_strips s;
    int64_t n;
    const int compute = wf_dtype_compute(q->dtype), ct = wf_ct(compute);
    s.fn = ct < 0 ? NULL : wf_kernels_now()->map[ct][op];
    wf_strips_open(&s, nsrc, wf_width(compute));
    if (!s.fn || q->wide->rank > WF_INLINE_RANK || !lay_out(&s, slot, q->wide, &n) ||
        wf_all_lie_last(nsrc, slot, q->wide->rank, wf_dims(q->wide))) {
        return false; /* (the last: so does the result) */
    }
    for (int i = 0; i < nsrc; i++) {
        wf_strips_src *x = &s.src[i];
        x->to = (uint8_t)(i == 0 && wf_rows[op].kind == WF_KIND_CHOOSE ? WEFT_BOOL : compute);
        if (slot[i]) {
            x->data = wf_slot_data(slot[i]);
            x->from = slot[i]->dtype;
        } else {
            wf_scalar_store(src[i], x->to, &scalar[i]);
            x->data = (const char *)&scalar[i];
            x->from = x->to;
        }
    }
    s.to = (uint8_t)wf_call_output_dtype(op, q->dtype);
    s.out = (uint8_t)wf_call_output_dtype(op, compute);
    wf_slot *r = make_shaped(c, s.to, q->wide, n, dst);
    if (__builtin_expect(!r, 0)) {
        *rc = no_memory(c, op, nsrc, src, dst, n);
        return true;
    }
    s.dst = wf_slot_data(r);
    const unsigned mode = wf_fpenv_enter();
    wf_strips_run(&s);
    wf_fpenv_leave(mode);
    *rc = q->tracked && wf_grad_enabled(c) ? record(c, q, op, attr, nsrc, src, r, dst) : 0;
    return true;
}

ALWAYS bool run(wf_ctx *c, wf_op op, const wf_attr *attr, const int nsrc, const weft_tensor *src,
                weft_tensor *dst, int *rc)
{
    char tile[MOST_SRC][REPEAT_BYTES];
    line l;
    quick q;
    const bool taken = take(c, &q, op, nsrc, src);
    const int64_t n = taken ? wf_slot_row_major(q.wide) : 0;
    const wf_map_fn fn = kernel_of(op, q.dtype, n);
    bool done = fn && line_up(&l, &q, nsrc, src, q.wide, n, tile);
    if (__builtin_expect(done, 1)) {
        wf_slot *r = make_as_wide(c, wf_call_output_dtype(op, q.dtype), q.wide, n, dst);
        *rc = 0;
        if (__builtin_expect(r != NULL, 1)) {
            launch(fn, wf_slot_data(r), &l, n);
            if (__builtin_expect(q.tracked != 0, 0) && wf_grad_enabled(c)) {
                const quick copy = q;
                *rc = record(c, &copy, op, attr, nsrc, src, r, dst);
            }
        } else {
            *rc = no_memory(c, op, nsrc, src, dst, n);
        }
    } else if (taken) {
        const quick copy = q;
        done = run_views(c, &copy, op, attr, nsrc, src, dst, rc);
    }
    if (__builtin_expect(q.pins != 0, 0)) {
        const quick copy = q;
        let_go(c, copy.slot, nsrc, copy.pins);
    }
    return done;
}

/* A condition, and two operands of one type. */
__attribute__((noinline)) static bool run_choice(wf_ctx *c, wf_op op, const wf_attr *attr,
                                                 const weft_tensor *src, weft_tensor *dst, int *rc)
{
    quick q;
    const found f = look_up(c, src[0]);
    wf_slot *s = f.slot;
    bool done = take(c, &q, op, 2, src + 1);
    q.slot[2] = q.slot[1];
    q.slot[1] = q.slot[0];
    q.slot[0] = s;
    q.pins = q.pins << 1 | f.pinned;
    done = done && s && s->dtype == WEFT_BOOL && is_plain(s->st, NULL);
    if (done) {
        q.wide = s->rank > q.wide->rank ? s : q.wide;
        done = run_views(c, &q, op, attr, 3, src, dst, rc);
    }
    if (__builtin_expect(q.pins != 0, 0)) {
        let_go(c, q.slot, 3, q.pins);
    }
    return done;
}

bool wf_quick(wf_ctx *c, wf_op op, const wf_attr *attr, int nsrc, const weft_tensor *src,
              weft_tensor *dst, int *rc)
{
    if (__builtin_expect(wf_rows[op].kind == WF_KIND_CHOOSE, 0)) {
        return run_choice(c, op, attr, src, dst, rc);
    }
    return nsrc == 2   ? run(c, op, attr, 2, src, dst, rc)
           : nsrc == 1 ? run(c, op, attr, 1, src, dst, rc)
                       : run(c, op, attr, 3, src, dst, rc);
}

/* -- in place --------------------------------------------------------------------------------------------------- */

/* May the elements of d be replaced without a look at the tape? */
ALWAYS bool is_writable(const wf_ctx *c, const wf_slot *d)
{
    return is_plain(d->st, NULL) && !d->st->read_only &&
           d->st->inline_data != WF_STORAGE_EXTERNAL && !(wf_grad_enabled(c) && wf_slot_watched(d));
}

/* Operand s is the target itself, or has no byte in common with it. */
ALWAYS bool is_apart(wf_slot *d, wf_slot *s)
{
    return s == d || (s->st != d->st && s->st->inline_data != WF_STORAGE_EXTERNAL) ||
           (s->st == d->st && s->offset == d->offset && is_same_map(d, s));
}

ALWAYS bool run_into(wf_ctx *c, wf_op op, const int nsrc, const weft_tensor *src, wf_slot *d)
{
    char tile[MOST_SRC][REPEAT_BYTES];
    line l;
    quick q;
    bool done = take(c, &q, op, nsrc, src) && d->dtype == q.dtype &&
                wf_call_output_dtype(op, q.dtype) == q.dtype && !(q.tracked && wf_grad_enabled(c));
    UNROLL
    for (int i = 0; i < nsrc; i++) {
        wf_slot *s = done ? q.slot[i] : NULL;
        done = done && (!s || (s->rank <= d->rank && is_apart(d, s)));
    }
    const int64_t n = done ? wf_slot_row_major(d) : 0;
    const wf_map_fn fn = kernel_of(op, q.dtype, n);
    done = fn && line_up(&l, &q, nsrc, src, d, n, tile);
    if (done) {
        launch(fn, wf_slot_data(d), &l, n);
        wf_storage_wrote(d->st, op);
    }
    if (__builtin_expect(q.pins != 0, 0)) {
        const quick copy = q;
        let_go(c, copy.slot, nsrc, copy.pins);
    }
    return done;
}

bool wf_quick_into(wf_ctx *c, wf_op op, int nsrc, const weft_tensor *src, weft_tensor dst)
{
    if (wf_rows[op].kind == WF_KIND_CHOOSE) {
        return false;
    }
    const found f = look_up(c, dst);
    wf_slot *d = f.slot;
    if (!d) {
        return false;
    }
    bool done = is_writable(c, d) && (nsrc == 2   ? run_into(c, op, 2, src, d)
                                      : nsrc == 1 ? run_into(c, op, 1, src, d)
                                                  : run_into(c, op, 3, src, d));
    if (__builtin_expect(f.pinned != 0, 0)) {
        let_go(c, &d, 1, f.pinned);
    }
    return done;
}
