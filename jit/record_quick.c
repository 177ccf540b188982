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

/* An op on its way that is not elementwise. */
typedef struct quick {
    wf_trace *t;
    wf_ctx *c;
    wf_op op;
    const wf_attr *attr;
    int nsrc, ndst;
    const weft_tensor *src;
    weft_tensor *dst;
    wf_slot *slot[MOST]; /* NULL: a number, or absent */
    unsigned pins;       /* see let_go */
    uint64_t tracked;    /* not 0: one of them is */
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
        k->tracked |= (s->flags & WF_SLOT_REQUIRES_GRAD) | s->node | s->st->roots;
    }
    return s;
}

/* Results whose storages begin, with their extents to come. NULL: no memory. */
ALWAYS wf_slot *make_virtual(wf_trace *t, int dtype, size_t nbytes, weft_tensor *h)
{
    wf_storage *st = __builtin_expect(t->spare != NULL, 1) ? wf_trace_storage_again(t, nbytes)
                                                           : wf_trace_storage_new(t, nbytes);
    return put_in_slot(t->c, st, dtype, h);
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

/* Operands of an elementwise row. Only ever in registers: functions that are not inline get a copy. */
typedef struct met {
    wf_slot *slot[MOST_SRC]; /* NULL: a number */
    wf_val v[MOST_SRC];      /* of each tensor, as its note says; 0: it has none */
    wf_slot *wide;           /* the tensor of the highest rank, the first of them, ... */
    wf_val first;            /* ... and its value */
    int dtype;               /* that values are in */
    bool numbers, unread;    /* there are some; tensors without a note */
    unsigned pins;           /* see let_go */
    uint64_t tracked;        /* not 0: one of them is */
} met;

/* Operand i, a tensor, pinned. What has a note is a tensor of this segment: the trace has looked at it. */
ALWAYS bool meet(met *k, wf_trace *t, int i, weft_tensor h)
{
    const found f = look_up(t->c, h);
    wf_slot *s = k->slot[i] = f.slot;
    if (__builtin_expect(!s, 0)) {
        return false;
    }
    k->tracked |= (s->flags & WF_SLOT_REQUIRES_GRAD) | s->node | s->st->roots;
    if (__builtin_expect(!f.pinned && wf_trace_is_noted_here(t, s), 1)) {
        k->v[i] = s->seen;
    } else {
        k->pins |= f.pinned << i;
        if (f.pinned && wf_trace_is_noted(t, s)) { /* noted first, kept since */
            k->v[i] = s->seen;
        } else if (!is_plain(s->st, &t->base)) {
            return false;
        } else {
            k->v[i] = wf_trace_kept_value(t, s);
            k->unread |= !k->v[i];
        }
    }
    return !s->ext;
}

/* Operands of one type that the row takes, beside numbers that do not lift it and that it holds. */
ALWAYS bool take(met *k, wf_trace *t, wf_op op, int nsrc, const weft_tensor *src)
{
    const wf_row *row = &wf_rows[op];
    const int conditions = row->kind == WF_KIND_CHOOSE;
    int weak = 0;
    UNROLL
    for (int i = 0; i < MOST_SRC; i++) {
        if (i < nsrc && __builtin_expect(wf_is_scalar(src[i]), 0)) {
            k->numbers = true;
            weak = i < conditions               ? WF_SCALAR_FLOAT + 1
                   : (int)src[i].context > weak ? (int)src[i].context
                                                : weak;
        } else if (i < nsrc) {
            if (!meet(k, t, i, src[i])) {
                return false;
            }
            wf_slot *s = k->slot[i];
            if (i < conditions ? s->dtype != WEFT_BOOL : k->dtype && s->dtype != k->dtype) {
                return false;
            }
            k->dtype = i < conditions ? 0 : s->dtype;
            k->first = !k->wide || s->rank > k->wide->rank ? k->v[i] : k->first;
            k->wide = !k->wide || s->rank > k->wide->rank ? s : k->wide;
        }
    }
    const int kind = wf_dtype_kind(k->dtype);
    return k->dtype && (row->types & WF_BIT(k->dtype)) &&
           (weak == 0 ||
            (weak <= kind && !(kind == WF_SCALAR_INT && wf_numbers_stray(k->dtype, nsrc, src))));
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
ALWAYS bool all_fit(const met *k, const wf_trace *t, int nsrc)
{
    const wf_ins *ins = t->fn->ins;
    UNROLL
    for (int i = 0; i < MOST_SRC; i++) {
        if (i < nsrc && k->slot[i] && k->slot[i] != k->wide) {
            const wf_val v = k->v[i];
            const bool same = k->first && v && ins[v - 1].type == ins[k->first - 1].type;
            if (!same && !fits(k->wide, k->slot[i])) {
                return false;
            }
        }
    }
    return true;
}

/* May writes that are recorded already, to imported memory, have changed an operand? (settle of record.c) */
static bool may_clash(const wf_trace *t, wf_slot *const *slot)
{
    bool import = t->wrapped != 0;
    for (int i = 0; i < MOST_SRC; i++) {
        import |= slot[i] && slot[i]->st->inline_data == WF_STORAGE_EXTERNAL;
    }
    return import;
}

/* A result of the given type with the extents of the widest operand. NULL: there is no memory, or no element, or more than
 * the general way should count. */
ALWAYS wf_slot *make_like(const met *k, wf_trace *t, int dtype, weft_tensor *dst)
{
    static const int64_t most = (int64_t)1 << 40;
    wf_slot *like = k->wide;
    const wf_storage *st = like->st;
    /* all of a storage of this trace, in its order: its bytes are known (strides of extents of 1 may be any) */
    const bool whole = k->first && k->first == st->value && like->dtype == dtype &&
                       atomic_load_explicit(&st->is_virtual, memory_order_relaxed);
    int64_t n = 1;
    for (int i = 0; i < like->rank && !whole; i++) {
        if (like->dims_[i] <= 0 || __builtin_mul_overflow(n, like->dims_[i], &n) || n > most) {
            return NULL;
        }
    }
    wf_slot *r = make_virtual(t, dtype, whole ? st->nbytes : (size_t)n * wf_dtype_size(dtype), dst);
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

/* r has the value. */
ALWAYS void define(wf_trace *t, wf_slot *r, wf_val v)
{
    r->st->value = v;
    r->noted = t->serial; /* nobody else has seen it */
    r->seen_base = r->seen = v;
}

/* Values of the operands, tensors before numbers as ever; then the op. 0 or a status with why filled. */
static int append(wf_trace *t, wf_op op, int nsrc, const weft_tensor *src, const met *k, wf_slot *r,
                  wf_why *why)
{
    wf_val v[MOST_SRC], out;
    for (int i = 0; i < nsrc; i++) {
        v[i] = k->v[i];
        const int rc = k->slot[i] && !v[i] ? wf_trace_value(t, k->slot[i], &v[i], why) : 0;
        if (rc) {
            return rc;
        }
    }
    for (int i = 0; i < nsrc; i++) {
        v[i] = v[i] ? v[i] : wf_fn_scalar(t->fn, (int)src[i].context, src[i].serial);
        if (!v[i]) {
            return wf_fail(why, WEFT_ENOMEM, "out of memory for the trace");
        }
    }
    const int rc = wf_trace_push(t, op, NULL, nsrc, v, 1, &r, &out, why);
    if (!rc) {
        define(t, r, out);
    }
    return rc;
}

/* What is left of an op with the result r: what is not known yet is looked up and appended (last: it is not), and the tape gets it
 * where it is wanted there. The status. */
__attribute__((noinline)) static int finish(wf_trace *t, wf_op op, int nsrc, const weft_tensor *src,
                                            weft_tensor *dst, const met *k, wf_slot *r, bool last)
{
    wf_why why;
    wf_why_clear(&why);
    int rc = last ? 0 : append(t, op, nsrc, src, k, r, &why);
    if (!rc && k->tracked && wf_grad_enabled(t->c)) {
        rc = wf_op_record(t->c, op, NULL, nsrc, k->slot, src, 1, &r, &why);
    }
    if (__builtin_expect(!rc, 1)) {
        return 0;
    }
    const failed f = {t->c, op, nsrc, 1, 1, src, dst, &r};
    return wf_quick_fail(&f, &why);
}

/* The op with all its values known, with the type that the widest operand has. False: it has another, or there is no
 * room. */
ALWAYS bool append_known(met *k, wf_trace *t, wf_op op, int nsrc, const weft_tensor *src,
                         wf_slot *r)
{
    wf_fn *f = t->fn;
    if (k->unread || f->cap - f->n <= MOST_SRC ||
        f->types[f->ins[k->first - 1].type].dtype != r->dtype) {
        return false;
    }
    UNROLL
    for (int i = 0; i < MOST_SRC; i++) {
        if (__builtin_expect(k->numbers, 0) && i < nsrc && !k->slot[i]) {
            k->v[i] = wf_fn_scalar(f, (int)src[i].context, src[i].serial);
            if (!k->v[i]) {
                return false;
            }
        }
    }
    f->ins[f->n] = (wf_ins){.op = (uint8_t)op,
                            .nsrc = (uint16_t)nsrc,
                            .flags = wf_grad_enabled(t->c) ? 0 : WF_INS_NOGRAD,
                            .type = f->ins[k->first - 1].type,
                            .src = {k->v[0], k->v[1], k->v[2]}};
    define(t, r, ++f->n);
    return true;
}

/* False: it is for the general way, and nothing was done. */
ALWAYS bool map(wf_trace *t, wf_op op, int nsrc, const weft_tensor *src, weft_tensor *dst, int *rc)
{
    met k = {.dtype = 0};
    wf_slot *r = NULL;
    /* a result of images that lie channels-last does, too */
    if (take(&k, t, op, nsrc, src) && all_fit(&k, t, nsrc) &&
        !(k.wide->rank == 4 && wf_all_lie_last(nsrc, k.slot, 4, k.wide->dims_)) &&
        !(t->written && may_clash(t, (wf_slot *[]){k.slot[0], k.slot[1], k.slot[2]}))) {
        r = make_like(&k, t, wf_call_output_dtype(op, k.dtype), dst);
    }
    if (__builtin_expect(r != NULL, 1)) {
        const bool last = append_known(&k, t, op, nsrc, src, r);
        *rc = 0;
        if (__builtin_expect(!last || k.tracked, 0)) {
            const met copy = k;
            *rc = finish(t, op, nsrc, src, dst, &copy, r, last);
        }
    }
    if (__builtin_expect(k.pins != 0, 0)) {
        const met copy = k;
        let_go(t->c, copy.slot, nsrc, copy.pins);
    }
    return r != NULL;
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
    if (__builtin_expect(!*rc, 1)) {
        wf_slot_view_made(k->c, k->op, s, r);
    }
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
                     : make_virtual(k->t, out[i].dtype, (size_t)n * wf_dtype_size(out[i].dtype),
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

/* Rows that are not elementwise. */
__attribute__((noinline)) static bool others(wf_trace *t, wf_op op, const wf_attr *attr, int nsrc,
                                             const weft_tensor *src, int ndst, weft_tensor *dst,
                                             int *rc)
{
    const wf_row *is = &wf_rows[op];
    quick k = {.t = t,
               .c = t->c,
               .op = op,
               .attr = attr ? attr : &no_attr,
               .nsrc = nsrc,
               .ndst = ndst,
               .src = src,
               .dst = dst};
    bool done = false;
    if (is->kind == WF_KIND_VIEW) {
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

/* Hot: after a dozen early exits a compiler takes what follows them for code that hardly ever runs, and makes it small. */
__attribute__((hot)) bool wf_trace_quick(wf_recorder *r, wf_op op, const wf_attr *attr, int nsrc,
                                         const weft_tensor *src, int ndst, weft_tensor *dst,
                                         int *rc)
{
    const wf_row *is = &wf_rows[op];
    return !wf_op_is_elementwise(op)
               ? others(wf_trace_of(r), op, attr, nsrc, src, ndst, dst, rc)
               : nsrc == is->min_src && map(wf_trace_of(r), op, nsrc, src, dst, rc);
}

/* -- in place ----------------------------------------------------------------------------------------------------- */

/* A target of the trace's, of type dtype, that no gradient watches: dense, of memory that no other storage has. */
static bool is_target(const wf_trace *t, int dtype, wf_slot *d)
{
    return !d->ext && d->dtype == dtype && is_plain(d->st, &t->base) && !d->st->read_only &&
           d->st->inline_data != WF_STORAGE_EXTERNAL && wf_slot_row_major(d) > 0 &&
           !(wf_grad_enabled(t->c) && wf_slot_watched(d));
}

static bool map_into(met *k, wf_trace *t, wf_op op, int nsrc, const weft_tensor *src, wf_slot *d,
                     int *rc)
{
    if (!take(k, t, op, nsrc, src) || wf_call_output_dtype(op, k->dtype) != k->dtype ||
        !is_target(t, k->dtype, d) || (k->tracked && wf_grad_enabled(t->c)) || t->wrapped ||
        t->owner.function) {
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
    *rc = wf_trace_map(&t->base, op, k->dtype, nsrc, k->slot, src, d, &why);
    if (__builtin_expect(*rc != 0, 0)) {
        return false;
    }
    wf_storage_wrote(d->st, op);
    return true;
}

bool wf_trace_quick_into(wf_recorder *r, wf_op op, int nsrc, const weft_tensor *src,
                         weft_tensor dst, int *rc)
{
    wf_trace *t = wf_trace_of(r);
    if (!wf_op_is_elementwise(op) || nsrc != wf_rows[op].min_src) {
        return false;
    }
    const found f = look_up(t->c, dst);
    if (!f.slot) {
        return false;
    }
    met k = {.dtype = 0};
    const bool done = map_into(&k, t, op, nsrc, src, f.slot, rc);
    if (__builtin_expect(k.pins != 0, 0)) {
        let_go(t->c, k.slot, nsrc, k.pins);
    }
    if (__builtin_expect(f.pinned != 0, 0)) {
        let_go(t->c, &f.slot, 1, f.pinned);
    }
    return done;
}
