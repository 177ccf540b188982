/*
 * jit/record.c -- the hooks that dispatch calls instead of kernels: they append IR; see trace.h.
 *
 * Requirement on whoever edits next: a hook changes the value of a storage only when everything it appends
 * has been appended, so that a failed call leaves values as they were (what it appended is dead code).
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/call.h"
#include "eager/layout.h"
#include "jit/record_int.h"

static const int64_t last_axes[4] = WF_LAST_AXES, first_axes[4] = WF_FIRST_AXES;

/* Extents of s in the order of channels-last memory. */
static void last_dims(wf_slot *s, int64_t *dims)
{
    const int64_t *d = wf_dims(s);
    for (int i = 0; i < 4; i++) {
        dims[i] = d[last_axes[i]];
    }
}

static int no_memory(wf_why *why)
{
    return wf_fail(why, WEFT_ENOMEM, "out of memory for the trace");
}

/* The error that why says is the trace's, too: a function that does not look at it has not computed what it says. */
static int refuse(wf_trace *t, const wf_why *why)
{
    if (!t->refused.code) {
        t->refused = *why;
        t->refusal = t->c->error_next; /* recorded as soon as this returns */
    }
    return why->code;
}

/* -- virtual storages -------------------------------------------------------------------------------------- */

wf_storage *wf_trace_storage(wf_recorder *r, size_t nbytes)
{
    wf_trace *t = wf_trace_of(r);
    return t->spare ? wf_trace_storage_again(t, nbytes) : wf_trace_storage_new(t, nbytes);
}

wf_storage *wf_trace_storage_new(wf_trace *t, size_t nbytes)
{
    wf_storage *st = wf_storage_new_virtual(nbytes, &t->base, (void *)(uintptr_t)t->address);
    if (st) {
        wf_trace_link(t, st);
    }
    return st;
}

void wf_trace_unlink(wf_trace *t, wf_storage *st)
{
    *(st->prev ? &st->prev->next : &t->first) = st->next;
    *(st->next ? &st->next->prev : &t->last) = st->prev;
}

static void storage_dead(wf_recorder *r, wf_storage *st)
{
    wf_trace *t = wf_trace_of(r);
    wf_trace_unlink(t, st);
    st->next = t->spare;
    t->spare = st;
}

void wf_trace_drop_spare(wf_trace *t, int keep)
{
    wf_storage **at = &t->spare;
    while (*at && keep-- > 0) {
        at = &(*at)->next;
    }
    while (*at) {
        wf_storage *st = *at;
        *at = st->next;
        wf_storage_free_header(st);
    }
}

/* A call is sited when it has returned, and so are the calls inside it that have a site of their own: what has none since the last
 * that has one is of this call, a write in place or an op inside a layer too. */
static void stamp(wf_recorder *r, const wf_storage *st, const char *site)
{
    wf_trace *t = wf_trace_of(r);
    wf_fn *f = t->fn;
    if (__builtin_expect(t->unsited != NULL, 0)) {
        wf_trace_tell(t, site);
    }
    const uint32_t loc = wf_fn_intern_loc(f, site);
    for (uint32_t k = f->n; k-- > 0;) {
        wf_ins *i = &f->ins[k];
        if (i->op >= WF_OP_RESULT && i->loc) {
            break;
        }
        if (i->op >= WF_OP_RESULT) { /* an input has the site of its tensor */
            i->loc = loc;
        }
    }
    if (st && st->value && !f->ins[st->value - 1].loc) {
        f->ins[st->value - 1].loc = loc;
    }
}

/* -- storages from outside ---------------------------------------------------------------------------------- */

static uint32_t hash_storage(const wf_storage *st)
{
    return (uint32_t)((uint64_t)(uintptr_t)st * UINT64_C(0x9E3779B97F4A7C15) >> 32);
}

static int grow_outer(wf_trace *t)
{
    wf_outer *room = wf_room(t->outer, t->nouter, &t->capouter, 16, sizeof *room);
    if (!room) {
        return WEFT_ENOMEM;
    }
    t->outer = room;
    if ((t->nouter + 1) * 2 > t->table_cap) {
        uint32_t cap = t->table_cap ? t->table_cap * 2 : 64;
        uint32_t *p = wf_malloc(cap * sizeof *p);
        if (!p) {
            return WEFT_ENOMEM;
        }
        memset(p, 0, cap * sizeof *p);
        wf_mfree(t->table);
        t->table = p;
        t->table_cap = cap;
        for (uint32_t i = 0; i < t->nouter; i++) {
            uint32_t h = hash_storage(t->outer[i].st);
            while (p[h & (cap - 1)]) {
                h++;
            }
            p[h & (cap - 1)] = i + 1;
        }
    }
    return 0;
}

/* Where st is, or the free place for it. */
static uint32_t *find(wf_trace *t, const wf_storage *st)
{
    uint32_t h = hash_storage(st);
    for (;; h++) {
        uint32_t *p = &t->table[h & (t->table_cap - 1)];
        if (*p == 0 || t->outer[*p - 1].st == st) {
            return p;
        }
    }
}

const wf_outer *wf_trace_outer(wf_trace *t, const wf_storage *st)
{
    const uint32_t at = t->nouter ? *find(t, st) : 0;
    return at ? &t->outer[at - 1] : NULL;
}

static bool is_import(const wf_storage *st)
{
    return st->inline_data == WF_STORAGE_EXTERNAL;
}

/* An import may lie over the memory of another storage, imported or ours: a write to one changes the other, which
 * SSA values cannot say. Does st share memory with another captured storage (only written ones are asked about)?
 * Two of our own never do. */
static bool shares_import(const wf_trace *t, const wf_storage *st, bool written_only)
{
    bool import = is_import(st);
    if ((!import && t->wrapped == 0) || (written_only && t->written == 0) ||
        atomic_load_explicit(&st->is_virtual, memory_order_relaxed)) {
        return false;
    }
    for (uint32_t i = 0; i < t->nouter; i++) {
        const wf_outer *o = &t->outer[i];
        if ((import || is_import(o->st)) && (o->written || !written_only) &&
            wf_storage_overlap(o->st, st)) {
            return true;
        }
    }
    return false;
}

/* Where the recording will be seen as text: what the tensor that input v stands for was. */
static void note_input(wf_trace *t, const wf_slot *s, wf_val v)
{
    char *name = t->noted ? wf_meta_name(s->meta, NULL) : NULL;
    if (t->noted) {
        wf_fn_name_input(t->fn, v, name, name ? strlen(name) : 0, s->site);
    }
    wf_mfree(name);
}

static int capture(wf_trace *t, wf_slot *s, uint32_t *place, wf_outer **out, wf_why *why)
{
    wf_type type;
    wf_storage *st = s->st;
    const bool whole = wf_slot_is_whole(s);
    wf_slot_type(s, &type);
    if (!whole && wf_slot_is_whole_last(s) && !t->owner.function) {
        last_dims(s, type.dims);
    } else if (!whole) {
        type.rank = 1;
        type.dims[0] = (int64_t)(st->nbytes / wf_dtype_size(s->dtype));
    }
    wf_outer *o = &t->outer[t->nouter]; /* made where it stays: nothing counts it before the end */
    *o = (wf_outer){.st = st, .broken = st->broken};
    if (t->owner.freezes) {
        o->first = wf_handle_of(t->c, s);
        o->version = atomic_load_explicit(&st->version, memory_order_relaxed);
    }
    if (t->owner.function) {
        o->handle = wf_wrap_view(t->c, st, st->data, type.dtype, type.rank, type.dims, NULL);
        bool lost = !o->handle.slot; /* a weight without its name would be another weight */
        char *name = lost ? NULL : wf_meta_name(s->meta, &lost);
        lost = lost || (name && weft_set_name(o->handle, name) != WEFT_OK);
        wf_mfree(name);
        if (lost) {
            weft_free(o->handle);
            return no_memory(why);
        }
        o->handle = weft_keep(o->handle);
    }
    o->value = wf_fn_input(t->fn, &type);
    if (!o->value) {
        weft_free(o->handle);
        return no_memory(why);
    }
    note_input(t, s, o->value);
    wf_storage_hold(st);
    t->wrapped += is_import(st);
    *out = o;
    *place = ++t->nouter;
    return 0;
}

/* The entry of an ordinary storage, captured now if it is new. */
static int outer_of(wf_trace *t, wf_slot *s, wf_outer **o, wf_why *why)
{
    if ((t->nouter + 1) * 2 > t->table_cap || t->nouter == t->capouter) {
        if (grow_outer(t)) {
            return no_memory(why);
        }
    }
    uint32_t *place = find(t, s->st);
    if (*place) {
        *o = &t->outer[*place - 1];
        if (t->owner.freezes && !wf_trace_is_private(t, s)) {
            const weft_tensor h = wf_handle_of(t->c, s);
            if (!wf_same_handle(h, (*o)->first)) {
                (*o)->mixed = true;
                wf_trace_also(t, s);
            }
        }
        return 0;
    }
    return capture(t, s, place, o, why);
}

/* Before an op that reads src and writes dst: commits if one of them shares imported memory with another storage
 * that the segment wrote, or that it read and dst is to change. */
static int settle(wf_trace *t, int nsrc, wf_slot *const *src, wf_slot *dst, wf_why *why)
{
    bool clash = false;
    if (t->owner.function && dst &&
        !atomic_load_explicit(&dst->st->is_virtual, memory_order_relaxed)) {
        wf_fail(why, WEFT_EUNSUPPORTED,
                "'%s' is recorded as a function, which must not write to tensors from outside",
                t->owner.name);
        wf_hint(why, "use the out-of-place op and return the new value");
        return refuse(t, why);
    }
    if (t->nouter == 0) {
        return 0;
    }
    for (int i = 0; i < nsrc && t->written; i++) {
        clash = clash || (src[i] && shares_import(t, src[i]->st, true));
    }
    clash = clash || (dst && shares_import(t, dst->st, false));
    return clash ? t->base.need(&t->base, NULL, true, "use of memory that an import shares", true,
                                why)
                 : 0;
}

static int storage_value(wf_trace *t, wf_slot *s, wf_val *v, wf_why *why)
{
    if (atomic_load_explicit(&s->st->is_virtual, memory_order_relaxed)) {
        *v = s->st->value;
        return 0;
    }
    wf_outer *o = NULL;
    int rc = outer_of(t, s, &o, why);
    *v = rc ? 0 : o->value;
    return rc;
}

int wf_trace_set_value(wf_trace *t, wf_slot *s, wf_val v, wf_why *why)
{
    if (atomic_load_explicit(&s->st->is_virtual, memory_order_relaxed)) {
        s->st->value = v;
        return 0;
    }
    wf_outer *o = NULL;
    int rc = outer_of(t, s, &o, why);
    if (!rc) {
        o->value = v;
        t->epoch++;
        t->written += !o->written;
        o->written = true;
    }
    return rc;
}

/* -- values of slots ----------------------------------------------------------------------------------------- */

/* Instruction k, just appended, may find a bad index when it runs: then it is the function that the user called which is named. */
static void name_call(const wf_trace *t, wf_op op, uint32_t k)
{
    const bool checks = wf_rows[op].kind == WF_KIND_INDEX || op == WF_OP_CROSS_ENTROPY;
    if (__builtin_expect(checks && t->c->called && t->c->called->name, 0)) {
        wf_fn_name_call(t->fn, k, t->c->called->name);
    }
}

/* Appends an op whose results have the types of the slots dst: dispatch has inferred them. */
int wf_trace_push(wf_trace *t, wf_op op, const wf_attr *attr, int nsrc, const wf_val *src, int ndst,
                  wf_slot *const *dst, wf_val *out, wf_why *why)
{
    wf_fn *f = t->fn;
    wf_ins k = {.op = (uint8_t)op, .flags = wf_grad_enabled(t->c) ? 0 : WF_INS_NOGRAD};
    k.type = UINT32_MAX;
    for (int i = 0; i < nsrc && k.type == UINT32_MAX; i++) {
        const wf_type *type = src[i] ? wf_fn_type(f, src[i]) : NULL;
        if (type && type->dtype == dst[0]->dtype && wf_trace_same_extents(type, dst[0])) {
            k.type = f->ins[src[i] - 1].type;
        }
    }
    uint32_t before = f->n;
    wf_type type;
    if (k.type == UINT32_MAX) {
        wf_slot_type(dst[0], &type);
        k.type = wf_fn_intern_type(f, &type);
    }
    k.attr = attr ? wf_fn_intern_attr(f, attr) : 0;
    bool ok = k.type != UINT32_MAX && k.attr != UINT32_MAX;
    if (ok && nsrc <= 3 && f->n < f->cap) { /* the common case without calls */
        k.nsrc = (uint16_t)nsrc;
        for (int i = 0; i < nsrc; i++) {
            k.src[i] = src[i];
        }
        f->ins[f->n] = k;
        out[0] = ++f->n;
    } else {
        out[0] = ok && wf_fn_set_src(f, &k, nsrc, src) == 0 ? wf_fn_push(f, &k) : 0;
    }
    ok = out[0] != 0;
    for (int i = 1; i < ndst && ok; i++) {
        wf_ins r = {.op = WF_OP_RESULT, .nsrc = 1, .src = {out[0]}, .attr = (uint32_t)i};
        wf_slot_type(dst[i], &type);
        r.type = wf_fn_intern_type(f, &type);
        out[i] = r.type == UINT32_MAX ? 0 : wf_fn_push(f, &r);
        ok = out[i] != 0;
    }
    if (!ok) {
        f->n = before;
        return no_memory(why);
    }
    name_call(t, op, before);
    return 0;
}

/* The same without attributes where there is room, if the result has the type of the first operand. */
static inline bool push_like(wf_trace *t, wf_op op, int nsrc, const wf_val *src, wf_slot *dst,
                             wf_val *out)
{
    wf_fn *f = t->fn;
    const uint32_t index = f->ins[src[0] - 1].type;
    const wf_type *type = &f->types[index];
    if (f->n == f->cap || type->dtype != dst->dtype || !wf_trace_same_extents(type, dst)) {
        return false;
    }
    f->ins[f->n] = (wf_ins){.op = (uint8_t)op,
                            .nsrc = (uint16_t)nsrc,
                            .flags = wf_grad_enabled(t->c) ? 0 : WF_INS_NOGRAD,
                            .type = index,
                            .src = {src[0], nsrc > 1 ? src[1] : 0, nsrc > 2 ? src[2] : 0}};
    *out = ++f->n;
    return true;
}

static int append(wf_trace *t, wf_op op, const wf_attr *attr, int nsrc, const wf_val *src,
                  wf_val *dst, wf_why *why)
{
    uint32_t before = t->fn->n;
    int rc = wf_fn_append(t->fn, op, attr, nsrc, src, dst, NULL, why);
    if (!rc && !wf_grad_enabled(t->c)) {
        t->fn->ins[before].flags |= WF_INS_NOGRAD;
    }
    return rc;
}

static int append1(wf_trace *t, wf_op op, const wf_attr *attr, wf_val *v, wf_why *why)
{
    wf_val src = *v;
    return append(t, op, attr, 1, &src, v, why);
}

/* -- channels-last images: their storages have values in the order of memory, [n, h, w, c] ----------------------- */

/* *v, an operand of an elementwise row on images or an image, with its axes in the order of channels-last memory. */
static int turn(wf_trace *t, wf_val *v, wf_why *why)
{
    static const int64_t flat_axes[3] = {1, 2, 0};
    const wf_ins *i = wf_fn_at(t->fn, *v);
    const wf_type *type = wf_fn_type(t->fn, *v);
    int64_t dims[3];
    wf_attr a = {.n_ints = type->rank, .ints = type->rank == 4 ? last_axes : flat_axes};
    if (i->op == WF_OP_PERMUTE && type->rank == 4 &&
        !memcmp(t->fn->attrs[i->attr].ints, first_axes, sizeof first_axes)) {
        *v = i->src[0]; /* as a result that lies so was made */
        return 0;
    }
    if (type->rank >= 3) {
        return append1(t, WF_OP_PERMUTE, &a, v, why);
    }
    if (type->rank == 0) {
        return 0;
    }
    memcpy(dims, type->dims,
           type->rank * sizeof *dims); /* no channels: they repeat along the new axis */
    dims[type->rank] = 1;
    a = (wf_attr){.n_dyn = (uint8_t)(type->rank + 1), .dyn = dims};
    return append1(t, WF_OP_RESHAPE, &a, v, why);
}

/* Is the value of type `type` the memory of s, which covers it channels-last? */
static bool is_turned(const wf_type *type, wf_slot *s)
{
    int64_t d[4];
    if (type->rank != 4 || type->dtype != s->dtype || !wf_slot_is_whole_last(s)) {
        return false;
    }
    last_dims(s, d);
    return memcmp(d, type->dims, sizeof d) == 0;
}

/* The index map of s on its storage, as attributes of AS_STRIDED and UPDATE. */
static wf_attr map_of(wf_slot *s, const int64_t *rank, int64_t *dyn)
{
    size_t r = s->rank;
    memcpy(dyn, wf_dims(s), r * sizeof *dyn);
    memcpy(dyn + r, wf_strides(s), r * sizeof *dyn);
    dyn[2 * r] = s->offset / (int64_t)wf_dtype_size(s->dtype);
    return (wf_attr){.n_ints = 1, .ints = rank, .n_dyn = (uint8_t)(2 * r + 1), .dyn = dyn};
}

static void note_kept(wf_trace *t, const wf_slot *s, wf_val v)
{
    const uint64_t state = atomic_load_explicit(&s->state, memory_order_relaxed);
    *wf_trace_kept_note(t, s) = (wf_kept_note){.slot = s,
                                               .st = s->st,
                                               .serial = WF_STATE_SERIAL(state),
                                               .noted = t->serial,
                                               .seen_base = wf_trace_base(t, s->st),
                                               .seen = v};
}

int wf_trace_value(wf_trace *t, wf_slot *s, wf_val *v, wf_why *why)
{
    *v = wf_trace_is_noted(t, s) ? s->seen : wf_trace_kept_value(t, s);
    if (*v) {
        return 0;
    }
    wf_val base;
    int rc = storage_value(t, s, &base, why);
    *v = base;
    if (rc) {
        return rc;
    }
    const wf_type *type = wf_fn_type(t->fn, base);
    if (is_turned(type, s)) {
        const wf_attr a = {.n_ints = 4, .ints = first_axes};
        rc = wf_trace_push(t, WF_OP_PERMUTE, &a, 1, &base, 1, &s, v, why);
        if (!rc) {
            wf_trace_note(t, s, *v);
        }
        return rc;
    }
    /* the value's elements are all of the storage's: then the slot is whole */
    if (!(type->dtype == s->dtype && s->offset == 0 && wf_trace_same_extents(type, s) &&
          wf_slot_is_contiguous(s))) {
        bool whole = wf_slot_is_whole(s);
        if (type->dtype != s->dtype) {
            return wf_fail(why, WEFT_EUNSUPPORTED, "memory of %s is read as %s",
                           wf_dtype_name(type->dtype), wf_dtype_name(s->dtype));
        }
        int64_t dyn[2 * WF_MAX_RANK + 1], rank = s->rank;
        wf_attr a = map_of(s, &rank, dyn);
        if (whole) {
            a = (wf_attr){.n_dyn = s->rank, .dyn = dyn};
        }
        rc =
            wf_trace_push(t, whole ? WF_OP_RESHAPE : WF_OP_AS_STRIDED, &a, 1, &base, 1, &s, v, why);
    }
    if (!rc) {
        wf_trace_note(t, s, *v);
        if (*v == base && !wf_trace_is_private(t, s)) {
            note_kept(t, s, base);
        }
    }
    return rc;
}

/* A result on its way through dispatch: whole, and without a value. */
static inline bool is_fresh(const wf_slot *s)
{
    return atomic_load_explicit(&s->st->is_virtual, memory_order_relaxed) && s->st->value == 0;
}

/* The elements of dst, which is fresh, are those of v; turned: which is in the order of channels-last memory, as dst lies. */
static int define(wf_trace *t, wf_slot *dst, wf_val v, bool turned, wf_why *why)
{
    wf_val memory = v;
    const wf_attr a = {.n_ints = 4, .ints = first_axes};
    int rc = turned                   ? append1(t, WF_OP_PERMUTE, &a, &v, why)
             : wf_slot_lies_last(dst) ? turn(t, &memory, why)
                                      : 0;
    if (!rc) {
        dst->st->value = memory;
        wf_trace_note(t, dst, v);
    }
    return rc;
}

/* dst := v, whose extents broadcast to dst's; turned: v is in the order of channels-last memory, as dst lies, which is whole. */
static int assign(wf_trace *t, wf_slot *dst, wf_val v, bool turned, wf_why *why)
{
    const wf_type *type = wf_fn_type(t->fn, v);
    int64_t dims[WF_MAX_RANK];
    int rc = 0;
    if (wf_slot_numel(dst) == 0 && dst->st->nbytes) {
        return 0;
    }
    memcpy(dims, wf_dims(dst), dst->rank * sizeof *dims);
    if (turned) {
        last_dims(dst, dims);
    }
    bool same = type->rank == dst->rank && !memcmp(type->dims, dims, dst->rank * sizeof *dims);
    if (type->dtype != dst->dtype) {
        rc = append1(t, WF_OP_CAST, &(wf_attr){.dtype = dst->dtype}, &v, why);
    }
    if (!rc && !same) {
        rc = append1(t, WF_OP_EXPAND, &(wf_attr){.n_dyn = dst->rank, .dyn = dims}, &v, why);
    }
    bool is_virtual = atomic_load_explicit(&dst->st->is_virtual, memory_order_relaxed);
    if (!rc && !is_virtual &&
        shares_import(t, dst->st, false)) { /* dispatch copies, settle commits */
        return wf_fail(why, WEFT_EUNSUPPORTED,
                       "the target's memory is imported, and both tensors are used here");
    }
    if (!rc && !turned && !wf_slot_is_whole(dst) && wf_slot_is_whole_last(dst)) {
        rc = turn(t, &v, why);
    } else if (!rc && !turned && !wf_slot_is_whole(dst)) {
        int64_t dyn[2 * WF_MAX_RANK + 1], rank = dst->rank;
        wf_attr a = map_of(dst, &rank, dyn);
        wf_val src[2] = {0, v};
        rc = storage_value(t, dst, &src[0], why);
        rc = rc ? rc : append(t, WF_OP_UPDATE, &a, 2, src, &v, why);
    }
    return rc ? rc : wf_trace_set_value(t, dst, v, why);
}

/* -- ops -------------------------------------------------------------------------------------------------- */

/* A scalar as a 0-d tensor of type dt, converted as the elementwise kernels do. */
static int full(wf_trace *t, weft_tensor h, int dt, int rank, const int64_t *dims, wf_val *v,
                wf_why *why)
{
    int64_t dyn[WF_MAX_RANK + 1];
    double d;
    memcpy(&d, &h.serial, sizeof d);
    bool real = h.context == WF_SCALAR_FLOAT;
    for (int i = 0; i < rank; i++) {
        dyn[i] = dims[i];
    }
    dyn[rank] = (int64_t)h.serial;
    wf_attr a = {.dtype = (uint8_t)dt, .n_dyn = (uint8_t)(rank + !real), .dyn = dyn, .flt = &d};
    a.n_flt = real;
    return append(t, WF_OP_FULL, &a, 0, NULL, v, why);
}

/* A scalar operand as a slot; a condition becomes bool. */
static int scalar_slot(wf_trace *t, weft_tensor h, bool condition, wf_val *v, wf_why *why)
{
    uint32_t kind = h.context;
    uint64_t bits = h.serial;
    if (condition && kind != WF_SCALAR_BOOL) {
        bits = wf_slot_f64((int)kind, bits) != 0;
        kind = WF_SCALAR_BOOL;
    }
    *v = wf_fn_scalar(t->fn, (int)kind, bits);
    return *v ? 0 : no_memory(why);
}

/* Operands of an elementwise row in the type they meet in; turned: in the order of channels-last memory. */
static int operands(wf_trace *t, wf_op op, int join, bool turned, int nsrc, wf_slot *const *src,
                    const weft_tensor *handles, wf_val *v, wf_why *why)
{
    int first = wf_rows[op].kind == WF_KIND_CHOOSE ? 1 : 0, rc = 0;
    bool strong = false;
    for (int i = 0; i < nsrc && !rc; i++) {
        int want = i < first ? (int)WEFT_BOOL : join;
        if (!src[i]) {
            continue;
        }
        strong |= i >= first;
        rc = wf_trace_value(t, src[i], &v[i], why);
        rc = !rc && turned ? turn(t, &v[i], why) : rc;
        if (!rc && src[i]->dtype != want) {
            rc = append1(t, WF_OP_CAST, &(wf_attr){.dtype = (uint8_t)want}, &v[i], why);
        }
    }
    for (int i = 0; i < nsrc && !rc; i++) {
        if (src[i]) {
            continue;
        }
        if (i >= first && !strong) { /* nothing else says the type */
            rc = full(t, handles[i], join, 0, NULL, &v[i], why);
            strong = true;
        } else {
            rc = scalar_slot(t, handles[i], i < first, &v[i], why);
        }
    }
    return rc;
}

/* A new result of tensors that need no cast, while nothing from outside has been written: nothing can clash. */
static inline bool is_simple(const wf_trace *t, int join, int nsrc, wf_slot *const *src,
                             const wf_slot *dst)
{
    bool simple = !t->written && is_fresh(dst);
    for (int i = 0; i < nsrc && simple; i++) {
        simple = src[i] && src[i]->dtype == join;
    }
    return simple;
}

/* Is the type of op's result that of dst, which it was checked to fit into? One operand has dst's extents then. */
static bool has_type_of(const wf_trace *t, wf_op op, int join, int nsrc, wf_slot *const *src,
                        const wf_val *v, wf_slot *dst)
{
    bool same = false;
    for (int i = 0; i < nsrc && !same; i++) {
        same = src[i] && wf_trace_same_extents(wf_fn_type(t->fn, v[i]), dst);
    }
    return same && wf_call_output_dtype(op, join) == dst->dtype;
}

int wf_trace_map(wf_recorder *r, wf_op op, int join, int nsrc, wf_slot *const *src,
                 const weft_tensor *handles, wf_slot *dst, wf_why *why)
{
    wf_trace *t = wf_trace_of(r);
    wf_val v[3], out;
    const bool turned = is_fresh(dst) ? wf_slot_lies_last(dst) : wf_slot_is_whole_last(dst);
    if (!turned && is_simple(t, join, nsrc, src, dst)) {
        for (int i = 0; i < nsrc; i++) {
            int rc = wf_trace_read(t, src[i], &v[i], why);
            if (rc) {
                return rc;
            }
        }
        int rc = push_like(t, op, nsrc, v, dst, &out)
                     ? 0
                     : wf_trace_push(t, op, NULL, nsrc, v, 1, &dst, &out, why);
        return rc ? rc : define(t, dst, out, false, why);
    }
    if ((join == WEFT_F16 || join == WEFT_BF16) && dst->dtype != join && dst->dtype != WEFT_BOOL) {
        join = WEFT_F32; /* in place: the kernel rounds once, to the target's type */
    }
    int rc = settle(t, nsrc, src, dst, why);
    rc = rc ? rc : operands(t, op, join, turned, nsrc, src, handles, v, why);
    if (rc) {
        return rc;
    }
    const bool fresh = is_fresh(dst);
    if (!turned && (fresh || has_type_of(t, op, join, nsrc, src, v, dst))) {
        rc = wf_trace_push(t, op, NULL, nsrc, v, 1, &dst, &out, why);
    } else {
        rc = append(t, op, NULL, nsrc, v, &out, why);
    }
    return rc ? rc : fresh ? define(t, dst, out, turned, why) : assign(t, dst, out, turned, why);
}

enum { FEW = 8 };

int wf_trace_row(wf_recorder *r, wf_op op, const wf_attr *attr, int nsrc, wf_slot *const *src,
                 wf_slot *const *dst, wf_why *why)
{
    wf_trace *t = wf_trace_of(r);
    wf_val few[FEW], out[WF_MAX_DST];
    wf_val *v = nsrc > FEW ? wf_scratch((size_t)nsrc * sizeof *v) : few;
    int rc = v ? settle(t, nsrc, src, NULL, why) : no_memory(why);
    for (int i = 0; i < nsrc && !rc; i++) {
        v[i] = 0;
        rc = src[i] ? wf_trace_value(t, src[i], &v[i], why) : 0;
    }
    int ndst = wf_rows[op].ndst;
    const bool turned = !rc && op == WF_OP_CAST && wf_slot_lies_last(dst[0]);
    rc = turned ? turn(t, &v[0], why) : rc;
    rc = rc       ? rc
         : turned ? append(t, op, attr, nsrc, v, out, why)
                  : wf_trace_push(t, op, attr, nsrc, v, ndst, dst, out, why);
    for (int k = 0; k < ndst && !rc; k++) {
        rc = define(t, dst[k], out[k], turned, why);
    }
    if (v != few) {
        wf_scratch_free(v, (size_t)nsrc * sizeof *v);
    }
    return rc;
}

int wf_trace_view(wf_recorder *r, wf_op op, const wf_attr *attr, wf_slot *src, wf_slot *dst,
                  wf_why *why)
{
    wf_trace *t = wf_trace_of(r);
    wf_val v = 0, out;
    if (op == WF_OP_AS_STRIDED) { /* its map is about memory: what reads dst forms it anew */
        const bool asked = t->owner.freezes && !wf_trace_is_private(t, src);
        return asked ? storage_value(t, src, &v, why) : 0;
    }
    int rc = settle(t, 1, &src, NULL, why);
    rc = rc ? rc : wf_trace_value(t, src, &v, why);
    out = v;
    if (!rc && op != WF_OP_DETACH) {
        rc = wf_trace_push(t, op, attr, 1, &v, 1, &dst, &out, why);
    }
    if (!rc && dst->st != src->st) {
        return define(t, dst, out, false, why);
    }
    if (!rc) {
        wf_trace_note(t, dst, out);
    }
    return rc;
}

static int record_copy(wf_recorder *r, wf_slot *dst, wf_slot *src, weft_tensor scalar, wf_why *why)
{
    wf_trace *t = wf_trace_of(r);
    wf_val v;
    int rc = settle(t, 1, &src, dst, why);
    if (rc) {
        return rc;
    }
    if (src) {
        rc = wf_trace_value(t, src, &v, why);
        if (!rc && wf_slot_is_whole(dst) && src->dtype == dst->dtype) {
            rc = append1(t, WF_OP_COPY, NULL, &v, why); /* two storages, two values */
        }
    } else {
        rc = full(t, scalar, wf_dtype_compute(dst->dtype), dst->rank, wf_dims(dst), &v, why);
    }
    return rc ? rc : assign(t, dst, v, false, why);
}

enum { VJP_SRC = 5 }; /* the gradient, three operands, the result */

static int record_vjp(wf_recorder *r, wf_op op, int which, int nsrc, const weft_tensor *src,
                      wf_slot *dst, wf_why *why)
{
    wf_trace *t = wf_trace_of(r);
    wf_val v[VJP_SRC] = {0}, out;
    wf_slot *s[VJP_SRC] = {NULL};
    bool pinned[VJP_SRC] = {false};
    int rc = 0;
    for (int i = 0; i < nsrc && !rc; i++) {
        if (!wf_is_absent(src[i]) && !wf_is_scalar(src[i])) {
            s[i] = wf_pin(t->c, src[i], &pinned[i], why);
            rc = s[i] ? 0 : why->code;
        }
    }
    rc = rc ? rc : settle(t, nsrc, s, NULL, why);
    for (int i = 0; i < nsrc && !rc; i++) {
        if (s[i]) {
            rc = wf_trace_value(t, s[i], &v[i], why);
        } else if (!wf_is_absent(src[i])) {
            rc = scalar_slot(t, src[i], wf_rows[op].kind == WF_KIND_CHOOSE && i == 1, &v[i], why);
        }
    }
    for (int i = 0; i < nsrc; i++) {
        if (pinned[i]) {
            wf_unpin(t->c, s[i]);
        }
    }
    const bool turned = wf_slot_lies_last(dst);
    int64_t ints[2] = {op, which}, dims[4];
    wf_attr a = {
        .n_ints = 2, .ints = ints, .n_dyn = dst->rank, .dyn = wf_dims(dst), .dtype = dst->dtype};
    if (turned) {
        last_dims(dst, dims);
        a.dyn = dims;
    }
    for (int i = 0; i < nsrc && !rc && turned; i++) {
        rc = v[i] ? turn(t, &v[i], why) : 0;
    }
    rc = rc       ? rc
         : turned ? append(t, WF_OP_VJP, &a, nsrc, v, &out, why)
                  : wf_trace_push(t, WF_OP_VJP, &a, nsrc, v, 1, &dst, &out, why);
    return rc ? rc : define(t, dst, out, turned, why);
}

/* -- values that somebody wants now --------------------------------------------------------------------------- */

static bool record_pending(wf_recorder *r, const wf_slot *s)
{
    wf_trace *t = wf_trace_of(r);
    if (atomic_load_explicit(&s->st->is_virtual, memory_order_acquire)) {
        return !wf_storage_is_foreign(s->st, r);
    }
    const uint32_t *place = t->table_cap ? find(t, s->st) : NULL;
    return place && *place && t->outer[*place - 1].written;
}

static int record_need(wf_recorder *r, wf_slot *s, bool write, const char *op, bool later,
                       wf_why *why)
{
    wf_trace *t = wf_trace_of(r);
    const char *site = t->c->here;
    const wf_called *by = t->c->called; /* nonzero, which reads by to_array */
    op = by && by->name ? by->name : op;
    if (t->owner.function && s) {
        wf_fail(why, WEFT_EUNSUPPORTED,
                "%s wants a value while '%s' is recorded as a function%s%s: it would be a constant "
                "of it",
                op, t->owner.name, site ? ", at " : "", site ? site : "");
        wf_hint(why,
                "compute with ops, or read the value before recording and hand it in as a number");
        return refuse(t, why);
    }
    if (s && !atomic_load_explicit(&s->st->is_virtual, memory_order_acquire)) {
        uint32_t *place = t->table_cap ? find(t, s->st) : NULL;
        bool seen = place && *place;
        /* memory as it is, unless recorded ops are to change it, or to read it before the caller writes */
        if (!(seen && (write || t->outer[*place - 1].written)) &&
            !shares_import(t, s->st, !write)) {
            t->peeked = t->follow.now ? t->peeked : op;
            return 0;
        }
    } else if (s && wf_storage_is_foreign(s->st, r)) {
        wf_fail(why, WEFT_EUNSUPPORTED, "it belongs to a running trace of another thread");
        wf_hint(why, "read it after the traced call has returned");
        return why->code;
    }
    if (!s && !t->fn->n && !t->first) {
        return 0;
    }
    if (t->owner.single_graph) {
        wf_fail(why, WEFT_EUNSUPPORTED,
                "%s wants a value in the middle of '%s', which is to be one graph%s%s", op,
                t->owner.name, site ? ", at " : "", site ? site : "");
        wf_hint(why, "return the value and read it outside, or allow breaks (no .single_graph)");
        return refuse(t, why);
    }
    wf_trace_tell(t, NULL);
    t->unsited = op;
    if (site || !later) {
        wf_trace_tell(t, site);
    }
    return wf_trace_commit(t, why);
}

/* A plan runs on one device: what is recorded for the old one comes first. */
static int record_enter(wf_recorder *r, int device, wf_why *why)
{
    wf_trace *t = wf_trace_of(r);
    int rc = 0;
    bool only_inputs = !t->first && t->fn->n == t->nouter;
    for (uint32_t i = 0; i < t->nouter && only_inputs; i++) {
        only_inputs = t->outer[i].st->device == device;
    }
    if (!only_inputs) {
        rc = record_need(r, NULL, true, "an op on another device", true, why);
    }
    if (!rc) {
        wf_trace_set_device(t, device);
    }
    return rc;
}

static void record_close(wf_recorder *r)
{
    wf_trace *t = wf_trace_of(r);
    wf_trace_close(t);
    wf_trace_free(t);
}

const wf_recorder wf_trace_hooks = {
    .storage = wf_trace_storage,
    .map = wf_trace_map,
    .row = wf_trace_row,
    .view = wf_trace_view,
    .copy = record_copy,
    .vjp = record_vjp,
    .lines = wf_trace_lines,
    .need = record_need,
    .pending = record_pending,
    .dead = storage_dead,
    .stamp = stamp,
    .close = record_close,
    .enter = record_enter,
    .live = wf_trace_live,
    .gradient = wf_trace_gradient,
    .never = wf_trace_never,
    .asked = wf_trace_asked,
    .drew = wf_trace_drew,
    .quick = wf_trace_quick,
    .quick_into = wf_trace_quick_into,
};
