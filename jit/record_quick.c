/*
 * jit/record_quick.c -- the short ways of rows inside a trace.
 *
 * A recorded op has no kernel: it costs what stands around one. Here its operands are looked up once, a value that was
 * read before is taken from the slot's note, and what the result is follows from the operand that is as wide:
 *   elementwise  operands of one type, of the result's extents or rows that repeat, and numbers
 *   views        mapped from slot to slot (eager/quick_rows.c)
 *   other rows   inferred, unless the recording before this one has the same row, of operands of the same types and with
 *                the same attributes, close to where this one has got to: inference is a function of these, so that its
 *                results are known. Nothing is trusted: what is not compared is inferred.
 *   in place     elementwise rows into a tensor of the operands' type that no gradient watches
 *
 * Invariants: what is recorded is what the general way would have recorded; a false answer has recorded nothing, and
 * whatever is not that simple is left to the general way, which says what is wrong with it.
 */
#include <string.h>

#include "eager/layout.h"
#include "eager/quick_int.h"
#include "jit/record_int.h"

static const wf_attr no_attr;

enum { MOST = 8 /* operands */, NEAR = 6 /* instructions, where the same row is looked for */ };

/* An op on its way. */
typedef struct quick {
    wf_trace *t;
    wf_ctx *c;
    wf_op op;
    const wf_attr *attr;
    int nsrc, ndst;
    const weft_tensor *src;
    weft_tensor *dst;
    wf_slot *slot[MOST]; /* NULL: a number, or absent */
    unsigned pins;       /* bit i: pinned; bit i + 8: borrowed */
    uint32_t tracked;    /* not 0: one of them is */
    int wide;  /* of elementwise rows: the operand of the highest rank, the first of them */
    int dtype; /* and the type that values are in */
    wf_val seen[MOST_SRC]; /* of each operand, as its note says; 0: it has none */
} quick;

/* The op has failed after results were made. */
__attribute__((noinline, cold)) static int fail(const quick *k, int made, wf_slot *const *r,
                                                const wf_why *why)
{
    const failed f = {k->c, k->op, k->nsrc, k->ndst, made, k->src, k->dst, r};
    return wf_quick_fail(&f, why);
}

/* The slot of operand i, pinned. */
ALWAYS wf_slot *operand(quick *k, int i)
{
    const found f = look_up(k->c, k->src[i]);
    wf_slot *s = k->slot[i] = f.slot;
    k->pins |= f.pinned << i;
    if (s) {
        k->tracked |= (s->flags & WF_SLOT_REQUIRES_GRAD) | s->node | s->st->root;
    }
    return s;
}

/* Results whose storages begin, with their extents to come. NULL: no memory. */
ALWAYS wf_slot *make_virtual(const quick *k, int dtype, size_t nbytes, weft_tensor *h)
{
    wf_storage *st = __builtin_expect(k->t->spare != NULL, 1) ? wf_trace_storage_again(k->t, nbytes)
                                                              : wf_trace_storage_new(k->t, nbytes);
    return put_in_slot(k->c, st, dtype, h);
}

/* The tape gets the op, if it is wanted there. The status. */
ALWAYS int tape(const quick *k, wf_slot *const *r)
{
    if (!k->tracked || !wf_grad_enabled(k->c)) {
        return 0;
    }
    wf_why why;
    wf_why_clear(&why);
    return wf_op_record(k->c, k->op, k->attr, k->nsrc, k->slot, k->src, k->ndst, r, &why)
               ? fail(k, k->ndst, r, &why)
               : 0;
}

/* -- elementwise ------------------------------------------------------------------------------------------------ */

/* Operands of one type that the row takes, beside numbers that do not lift it and that it holds; which is as wide as the result. What
 * has a note is a tensor of this segment: the trace has looked at it. */
ALWAYS bool take(quick *k, const int nsrc)
{
    const wf_row *row = &wf_rows[k->op];
    const int first = row->kind == WF_KIND_CHOOSE;
    int weak = 0, dtype = 0, rank = -1;
    UNROLL
    for (int i = 0; i < nsrc; i++) {
        k->seen[i] = 0;
        if (__builtin_expect(wf_is_scalar(k->src[i]), 0)) {
            k->slot[i] = NULL;
            weak = i < first                       ? WF_SCALAR_FLOAT + 1
                   : (int)k->src[i].context > weak ? (int)k->src[i].context
                                                   : weak;
            continue;
        }
        wf_slot *s = operand(k, i);
        if (!s || s->ext) {
            return false;
        }
        if (wf_trace_is_noted(k->t, s)) {
            k->seen[i] = s->seen;
        } else if (is_plain(s->st, &k->t->base)) {
            k->seen[i] = wf_trace_kept_value(k->t, s);
        } else {
            return false;
        }
        if (i < first ? s->dtype != WEFT_BOOL : dtype && s->dtype != dtype) {
            return false;
        }
        dtype = i < first ? 0 : s->dtype;
        k->wide = s->rank > rank ? i : k->wide;
        rank = s->rank > rank ? s->rank : rank;
    }
    k->dtype = dtype;
    return dtype && (row->types & WF_BIT(dtype)) &&
           (weak == 0 || (weak <= wf_dtype_kind(dtype) &&
                          !(wf_dtype_kind(dtype) == 1 && wf_numbers_stray(dtype, nsrc, k->src))));
}

/* Are the extents of s the last ones of `wide`, or 1? */
ALWAYS bool fits(wf_slot *wide, wf_slot *s)
{
    const int64_t *a = wide->dims_ + (wide->rank - s->rank);
    for (int i = 0; i < s->rank; i++) {
        if (s->dims_[i] != a[i] && s->dims_[i] != 1) {
            return false;
        }
    }
    return true;
}

/* Do all operands repeat in the widest? Values of one type have the same extents. */
ALWAYS bool all_fit(const quick *k, const int nsrc)
{
    const wf_ins *ins = k->t->fn->ins;
    const wf_val wide = k->seen[k->wide];
    UNROLL
    for (int i = 0; i < nsrc; i++) {
        const wf_val v = k->seen[i];
        const bool same = wide && v && ins[v - 1].type == ins[wide - 1].type;
        if (!same && k->slot[i] && !fits(k->slot[k->wide], k->slot[i])) {
            return false;
        }
    }
    return true;
}

/* May writes that are recorded already, to imported memory, have changed an operand? (settle of record.c) */
ALWAYS bool may_clash(const quick *k, const int nsrc)
{
    const wf_trace *t = k->t;
    bool import = t->wrapped != 0;
    if (__builtin_expect(!t->written, 1)) {
        return false;
    }
    UNROLL
    for (int i = 0; i < nsrc; i++) {
        import |= k->slot[i] && k->slot[i]->st->inline_data == WF_STORAGE_EXTERNAL;
    }
    return import;
}

/* A result of the given type with the extents of operand `wide`; NULL: there is no memory, or no element, or more than
 * the general way should count. */
ALWAYS wf_slot *make_like(const quick *k, int dtype)
{
    static const int64_t most = (int64_t)1 << 40;
    wf_slot *like = k->slot[k->wide];
    const wf_storage *st = like->st;
    const wf_val seen = k->seen[k->wide];
    /* all of a storage of this trace, in its order: its bytes are known (strides of extents of 1 may be any) */
    const bool whole = seen && seen == st->value && like->dtype == dtype &&
                       atomic_load_explicit(&st->is_virtual, memory_order_relaxed);
    int64_t n = 1;
    for (int i = 0; i < like->rank && !whole; i++) {
        if (like->dims_[i] <= 0 || __builtin_mul_overflow(n, like->dims_[i], &n) || n > most) {
            return NULL;
        }
    }
    wf_slot *r =
        make_virtual(k, dtype, whole ? st->nbytes : (size_t)n * wf_dtype_size(dtype), k->dst);
    if (__builtin_expect(!r, 0)) {
        return NULL;
    }
    r->rank = like->rank;
    memcpy(r->dims_, like->dims_, sizeof r->dims_); /* all: their size is known */
    n = 1;
    for (int i = like->rank; i-- > 0;) {
        r->strides_[i] = n;
        n *= like->dims_[i];
    }
    return r;
}

/* Values of the operands, tensors before numbers as ever. 0 or a status with why filled. */
ALWAYS int read(const quick *k, const int nsrc, wf_val *v, wf_why *why)
{
    UNROLL
    for (int i = 0; i < nsrc; i++) {
        v[i] = k->seen[i];
        const int rc = k->slot[i] && !v[i] ? wf_trace_value(k->t, k->slot[i], &v[i], why) : 0;
        if (__builtin_expect(rc != 0, 0)) {
            return rc;
        }
    }
    UNROLL
    for (int i = 0; i < nsrc; i++) {
        if (__builtin_expect(!k->slot[i], 0)) {
            v[i] = wf_fn_scalar(k->t->fn, (int)k->src[i].context, k->src[i].serial);
            if (!v[i]) {
                return wf_fail(why, WEFT_ENOMEM, "out of memory for the trace");
            }
        }
    }
    return 0;
}

/* Appends the op, with the type that the widest operand has. 0: it has another, or there is no room. */
ALWAYS wf_val append(const quick *k, const int nsrc, const wf_val *v, int dtype)
{
    wf_fn *f = k->t->fn;
    const uint32_t type = f->ins[v[k->wide] - 1].type;
    if (__builtin_expect(f->n == f->cap || f->types[type].dtype != dtype, 0)) {
        return 0;
    }
    wf_ins *i = &f->ins[f->n];
    *i = (wf_ins){.op = (uint8_t)k->op,
                  .nsrc = (uint16_t)nsrc,
                  .flags = wf_grad_enabled(k->c) ? 0 : WF_INS_NOGRAD,
                  .type = type,
                  .src = {v[0], nsrc > 1 ? v[1] : 0, nsrc > 2 ? v[2] : 0}};
    return ++f->n;
}

/* r has the value. */
ALWAYS void define(wf_trace *t, wf_slot *r, wf_val v)
{
    r->st->value = v;
    r->noted = t->serial; /* nobody else has seen it */
    r->seen_base = r->seen = v;
}

ALWAYS bool map(quick *k, const int nsrc, int *rc)
{
    wf_why why;
    wf_val v[MOST_SRC], out = 0;
    if (!take(k, nsrc) || !all_fit(k, nsrc) || may_clash(k, nsrc)) {
        return false;
    }
    wf_slot *wide = k->slot[k->wide];
    if (wide->rank == 4 && wf_all_lie_last(nsrc, k->slot, 4, wide->dims_)) {
        return false; /* the result lies so, too */
    }
    const int dtype = wf_call_output_dtype(k->op, k->dtype);
    wf_slot *r = make_like(k, dtype);
    if (__builtin_expect(!r, 0)) {
        return false; /* the general way will not get one, either */
    }
    wf_why_clear(&why);
    *rc = read(k, nsrc, v, &why);
    if (__builtin_expect(!*rc, 1)) {
        out = append(k, nsrc, v, dtype);
        if (__builtin_expect(!out, 0)) {
            *rc = wf_trace_push(k->t, k->op, NULL, nsrc, v, 1, &r, &out, &why);
        }
    }
    if (__builtin_expect(*rc != 0, 0)) {
        *rc = fail(k, 1, &r, &why);
        return true;
    }
    define(k->t, r, out);
    *rc = tape(k, &r);
    return true;
}

/* -- views ------------------------------------------------------------------------------------------------------ */

static bool view(quick *k, int *rc)
{
    wf_quick_map m;
    wf_slot *s = operand(k, 0);
    if (!s || !is_plain(s->st, &k->t->base) || !wf_quick_map_view(&m, k->op, k->attr, s)) {
        return false;
    }
    wf_slot *r = put_view_in_slot(k->c, s, &m, k->dst);
    if (__builtin_expect(!r, 0)) {
        return false;
    }
    wf_why why;
    wf_why_clear(&why);
    *rc = wf_trace_view(&k->t->base, k->op, k->attr, s, r, &why);
    *rc = __builtin_expect(*rc != 0, 0) ? fail(k, 1, &r, &why) : tape(k, &r);
    return true;
}

/* -- every other row ---------------------------------------------------------------------------------------------- */

static bool same_words(const void *a, const void *b, int n)
{
    const uint64_t *x = a, *y = b;
    bool same = true;
    for (int i = 0; i < n && same; i++) { /* few */
        same = x[i] == y[i];
    }
    return same;
}

static bool same_attr(const wf_attr *a, const wf_attr *b)
{
    return a->dtype == b->dtype && a->flags == b->flags && a->n_ints == b->n_ints &&
           a->n_dyn == b->n_dyn && a->n_flt == b->n_flt &&
           same_words(a->ints, b->ints, a->n_ints) && same_words(a->dyn, b->dyn, a->n_dyn) &&
           same_words(a->flt, b->flt, a->n_flt);
}

/* Is instruction i of the recording before of operands of the same types? */
static bool same_operands(const quick *k, const wf_fn *f, const wf_ins *i)
{
    if (i->nsrc != k->nsrc) {
        return false;
    }
    const wf_val *src = wf_ins_src(f, i);
    for (int a = 0; a < k->nsrc; a++) {
        wf_slot *s = k->slot[a];
        const wf_type *t = src[a] ? wf_fn_type(f, src[a]) : NULL;
        if (!s != !t || (s && (t->dtype != s->dtype || !wf_trace_same_extents(t, s)))) {
            return false;
        }
    }
    return true;
}

/* Where the recording before has this row: the SSA number of its first result, 0: it is to be inferred. */
static wf_val foresee(const quick *k)
{
    const wf_fn *f = k->t->before;
    const uint32_t from = k->t->fn->n;
    for (uint32_t n = from; f && n < f->n && n < from + NEAR; n++) {
        const wf_ins *i = &f->ins[n];
        if (i->op == k->op) {
            return same_operands(k, f, i) && same_attr(wf_ins_attr(f, i), k->attr) ? n + 1 : 0;
        }
    }
    return 0;
}

/* Types of the results. */
static bool infer(const quick *k, wf_type *out)
{
    wf_type in[MOST];
    wf_why why;
    const wf_val known = foresee(k);
    if (known) {
        for (int i = 0; i < k->ndst; i++) { /* further results follow the first */
            out[i] = *wf_fn_type(k->t->before, known + (wf_val)i);
        }
        return true;
    }
    wf_why_clear(&why);
    for (int i = 0; i < k->nsrc; i++) {
        if (k->slot[i]) {
            wf_slot_type(k->slot[i], &in[i]);
        } else {
            in[i] = (wf_type){.dtype = WEFT_DTYPE_DEFAULT};
        }
    }
    return wf_infer(k->op, k->attr, k->nsrc, in, out, &why) == 0;
}

static bool row(quick *k, int *rc)
{
    wf_type out[WF_MAX_DST];
    wf_slot *r[WF_MAX_DST];
    wf_why why;
    for (int i = 0; i < k->nsrc; i++) {
        k->slot[i] = NULL;
        if (wf_is_absent(k->src[i])) {
            continue;
        }
        wf_slot *s = operand(k, i);
        if (!s || !is_plain(s->st, &k->t->base)) {
            return false;
        }
    }
    if (!infer(k, out) || wf_row_lies_last(k->op, k->nsrc, k->slot, &out[0])) {
        return false;
    }
    wf_why_clear(&why);
    for (int i = 0; i < k->ndst; i++) {
        const int64_t n = wf_type_numel(&out[i]);
        r[i] = n < 0 ? NULL
                     : make_virtual(k, out[i].dtype, (size_t)n * wf_dtype_size(out[i].dtype),
                                    &k->dst[i]);
        if (__builtin_expect(!r[i] || wf_slot_shape(r[i], out[i].rank, out[i].dims, NULL), 0)) {
            for (int made = i + (r[i] != NULL); made-- > 0;) {
                wf_slot_destroy(k->c, r[made]);
            }
            return false;
        }
    }
    *rc = wf_trace_row(&k->t->base, k->op, k->attr, k->nsrc, k->slot, r, &why);
    *rc = __builtin_expect(*rc != 0, 0) ? fail(k, k->ndst, r, &why) : tape(k, r);
    return true;
}

/* Rows with a way of their own in dispatch: copies to another device. */
static inline bool is_special(wf_op op, const wf_attr *attr)
{
    return op == WF_OP_COPY && attr->n_ints != 0;
}

/* Hot: after a dozen early exits a compiler takes what follows them for code that hardly ever runs, and makes it small. */
__attribute__((hot)) bool wf_trace_quick(wf_recorder *r, wf_op op, const wf_attr *attr, int nsrc,
                                         const weft_tensor *src, int ndst, weft_tensor *dst,
                                         int *rc)
{
    quick k;
    k.t = wf_trace_of(r);
    k.c = k.t->c;
    k.op = op;
    k.attr = attr ? attr : &no_attr;
    k.nsrc = nsrc;
    k.ndst = ndst;
    k.src = src;
    k.dst = dst;
    k.pins = 0;
    k.tracked = 0;
    const wf_row *is = &wf_rows[op];
    bool done = false;
    if (is->kind >= WF_KIND_UNARY && is->kind <= WF_KIND_CHOOSE) {
        if (nsrc == is->min_src) {
            done = nsrc == 2 ? map(&k, 2, rc) : nsrc == 1 ? map(&k, 1, rc) : map(&k, 3, rc);
        }
    } else if (is->kind == WF_KIND_VIEW) {
        done = view(&k, rc);
    } else if (nsrc <= MOST && nsrc >= is->min_src && nsrc <= is->max_src &&
               !is_special(op, k.attr)) {
        done = row(&k, rc);
    }
    if (__builtin_expect(k.pins != 0, 0)) {
        let_go(k.c, k.slot, k.nsrc, k.pins);
    }
    return done;
}

/* -- in place ----------------------------------------------------------------------------------------------------- */

/* A target of the trace's that no gradient watches: dense, of memory that no other storage has. */
static bool is_target(const quick *k, wf_slot *d)
{
    return !d->ext && d->dtype == k->dtype && is_plain(d->st, &k->t->base) && !d->st->read_only &&
           d->st->inline_data != WF_STORAGE_EXTERNAL && wf_slot_row_major(d) > 0 &&
           !(wf_grad_enabled(k->c) && wf_slot_tracked(d));
}

ALWAYS bool map_into(quick *k, const int nsrc, wf_slot *d, int *rc)
{
    if (!take(k, nsrc) || wf_call_output_dtype(k->op, k->dtype) != k->dtype || !is_target(k, d) ||
        (k->tracked && wf_grad_enabled(k->c)) || k->t->wrapped || k->t->owner.function) {
        return false;
    }
    for (int i = 0; i < nsrc; i++) {
        wf_slot *s = k->slot[i];
        if (s && (s->rank > d->rank || !fits(d, s) || s->st->inline_data == WF_STORAGE_EXTERNAL)) {
            return false;
        }
    }
    wf_why why;
    wf_why_clear(&why);
    *rc = wf_trace_map(&k->t->base, k->op, k->dtype, nsrc, k->slot, k->src, d, &why);
    if (__builtin_expect(*rc != 0, 0)) {
        return false;
    }
    wf_storage_wrote(d->st, k->op);
    return true;
}

__attribute__((hot)) bool wf_trace_quick_into(wf_recorder *r, wf_op op, int nsrc,
                                              const weft_tensor *src, weft_tensor dst, int *rc)
{
    quick k;
    const wf_row *is = &wf_rows[op];
    if (is->kind < WF_KIND_UNARY || is->kind > WF_KIND_CHOOSE || nsrc != is->min_src) {
        return false;
    }
    k.t = wf_trace_of(r);
    k.c = k.t->c;
    k.op = op;
    k.attr = &no_attr;
    k.nsrc = 0; /* looked up so far */
    k.ndst = 0;
    k.src = src;
    k.dst = NULL;
    k.pins = 0;
    k.tracked = 0;
    const found f = look_up(k.c, dst);
    if (!f.slot) {
        return false;
    }
    k.nsrc = nsrc;
    const bool done = nsrc == 2   ? map_into(&k, 2, f.slot, rc)
                      : nsrc == 1 ? map_into(&k, 1, f.slot, rc)
                                  : map_into(&k, 3, f.slot, rc);
    if (__builtin_expect(k.pins != 0, 0)) {
        let_go(k.c, k.slot, k.nsrc, k.pins);
    }
    if (__builtin_expect(f.pinned != 0, 0)) {
        let_go(k.c, &f.slot, 1, f.pinned);
    }
    return done;
}
