/*
 * jit/ir/interp.c -- the reference interpreter: scalars, elementwise rows, views, and the walk over a
 * function. interp.h says what it is for.
 */
#include <stdlib.h>
#include <string.h>

#include "jit/ir/interp_int.h"

/* -- programs of one row, made once ------------------------------------------------------------------- */

enum { IN_MAX_SRC = 8 };

typedef struct prog_key {
    uint16_t op;   /* a row, or WF_OP_CAST */
    uint8_t which; /* 0: the row; 1 + i: its derivative by operand i */
    uint8_t compute, dst, nsrc;
    uint8_t src[IN_MAX_SRC];
} prog_key;

struct wf_in_prog {
    wf_in_prog *next;
    prog_key key;
    wf_kir kir;
    uint64_t *scratch;
};

static int make_cast(wf_kir *k, int from, int to, wf_why *why)
{
    wf_kir_init(k);
    wf_kref e = wf_kir_param(k, wf_kir_storage(from));
    wf_kty type = wf_kir_compute_type(wf_dtype_compute(from));
    wf_kir_output(k, wf_kir_store(k, to, wf_kir_load(k, from, type, e)));
    return wf_kir_finish(k, why);
}

static wf_in_prog *make_program(const prog_key *key)
{
    wf_in_prog *p = calloc(1, sizeof *p);
    wf_why why;
    if (!p) {
        return NULL;
    }
    p->key = *key;
    int rc;
    if (key->op == WF_OP_CAST) {
        rc = make_cast(&p->kir, key->src[0], key->dst, &why);
    } else if (key->which) {
        rc = wf_kir_vjp_program(&p->kir, (wf_op)key->op, key->which - 1, key->compute, key->nsrc,
                                key->src, key->dst, &why);
    } else {
        rc = wf_kir_row_program(&p->kir, (wf_op)key->op, key->compute, key->nsrc, key->src,
                                key->dst, &why);
    }
    p->scratch = rc ? NULL : malloc((p->kir.n + 1u) * sizeof *p->scratch);
    if (!p->scratch) {
        wf_kir_free(&p->kir);
        free(p);
        return NULL;
    }
    return p;
}

static const wf_in_prog *program(wf_interp *m, const prog_key *key)
{
    uint32_t h = 2166136261u;
    const uint8_t *bytes = (const uint8_t *)key;
    for (size_t i = 0; i < sizeof *key; i++) {
        h = (h ^ bytes[i]) * 16777619u;
    }
    wf_in_prog **at = &m->progs[(h ^ h >> 15) % WF_IN_BUCKETS], *p = *at;
    while (p && memcmp(&p->key, key, sizeof *key) != 0) {
        p = p->next;
    }
    if (!p && (p = make_program(key))) {
        p->next = *at;
        *at = p;
    }
    m->failed |= !p;
    return p;
}

static uint64_t run_program(const wf_in_prog *p, const uint64_t *params)
{
    uint64_t out = 0;
    if (p) {
        wf_kir_run(&p->kir, p->scratch, params, &out);
    }
    return out;
}

wf_interp *wf_interp_new(wf_primitive primitive)
{
    wf_interp *m = calloc(1, sizeof *m);
    if (m) {
        m->primitive = primitive;
    }
    return m;
}

void wf_interp_free(wf_interp *m)
{
    for (int b = 0; m && b < WF_IN_BUCKETS; b++) {
        for (wf_in_prog *p = m->progs[b], *next; p; p = next) {
            next = p->next;
            wf_kir_free(&p->kir);
            free(p->scratch);
            free(p);
        }
    }
    free(m);
}

/* -- scalars ---------------------------------------------------------------------------------------------- */

uint64_t wf_in_cast(wf_interp *m, int from, int to, uint64_t v)
{
    if (from == to) {
        return v;
    }
    prog_key key = {.op = WF_OP_CAST, .dst = (uint8_t)to, .nsrc = 1, .src = {(uint8_t)from}};
    return run_program(program(m, &key), &v);
}

uint64_t wf_in_num(wf_interp *m, int dtype, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return wf_in_cast(m, WEFT_F64, dtype, bits);
}

uint64_t wf_in_row(wf_interp *m, wf_op op, int compute, uint64_t a, uint64_t b, uint64_t c)
{
    const wf_row *row = &wf_rows[op];
    bool truth = row->kind == WF_KIND_PREDICATE || row->kind == WF_KIND_COMPARE;
    prog_key key = {.op = (uint16_t)op,
                    .compute = (uint8_t)compute,
                    .dst = (uint8_t)(truth ? WEFT_BOOL : (weft_dtype)compute),
                    .nsrc = row->min_src};
    memset(key.src, compute, row->min_src);
    if (row->kind == WF_KIND_CHOOSE) {
        key.src[0] = WEFT_BOOL;
    }
    const uint64_t params[3] = {a, b, c};
    return run_program(program(m, &key), params);
}

int wf_in_compute(int dtype)
{
    return wf_dtype_kind(dtype) == 2 ? wf_dtype_compute(dtype) : (int)WEFT_I64;
}

/* -- indices ---------------------------------------------------------------------------------------------- */

void wf_in_strides(const wf_type *t, int64_t *strides)
{
    int64_t step = 1;
    for (int i = t->rank; i-- > 0;) {
        strides[i] = step;
        step *= t->dims[i];
    }
}

int64_t wf_in_offset(int64_t i, int rank, const int64_t *dims, const int64_t *strides)
{
    int64_t at = 0;
    for (int a = rank; a-- > 0;) {
        at += i % dims[a] * strides[a];
        i /= dims[a];
    }
    return at;
}

/* Strides through which an operand is read at the index of a result it broadcasts to. */
static void broadcast_strides(const wf_type *from, const wf_type *to, int64_t *strides)
{
    int64_t own[WF_MAX_RANK];
    wf_in_strides(from, own);
    for (int i = 0; i < to->rank; i++) {
        int k = i - (to->rank - from->rank);
        strides[i] = k >= 0 && from->dims[k] == to->dims[i] ? own[k] : 0;
    }
}

/* -- elementwise rows --------------------------------------------------------------------------------------- */

/* The program of a row, or of its derivative `which`, at every index of the result; absent operands are 0. */
static void map_elements(wf_in_call *k, wf_op op, int which, int compute)
{
    const wf_type *t = &k->dst[0].type;
    prog_key key = {.op = (uint16_t)op,
                    .which = (uint8_t)which,
                    .compute = (uint8_t)compute,
                    .dst = t->dtype,
                    .nsrc = (uint8_t)k->nsrc};
    int64_t strides[IN_MAX_SRC][WF_MAX_RANK] = {{0}};
    uint64_t params[IN_MAX_SRC] = {0};
    for (int s = 0; s < k->nsrc; s++) {
        key.src[s] = k->src[s].data ? k->src[s].type.dtype : key.compute;
        if (k->src[s].data) {
            broadcast_strides(&k->src[s].type, t, strides[s]);
        }
    }
    const wf_in_prog *p = program(k->m, &key);
    for (int64_t i = 0, n = wf_type_numel(t); i < n && p; i++) {
        for (int s = 0; s < k->nsrc; s++) {
            if (k->src[s].data) {
                params[s] = wf_in_get(&k->src[s], wf_in_offset(i, t->rank, t->dims, strides[s]));
            }
        }
        wf_in_put(&k->dst[0], i, run_program(p, params));
    }
}

static void elementwise(wf_in_call *k)
{
    const wf_array *first = &k->src[wf_rows[k->op].kind == WF_KIND_CHOOSE ? 1 : 0];
    map_elements(k, k->op, 0, wf_dtype_compute(first->type.dtype));
}

static void vjp(wf_in_call *k)
{
    map_elements(k, (wf_op)k->attr->ints[0], 1 + (int)k->attr->ints[1],
                 wf_dtype_compute(k->dst[0].type.dtype));
}

/* -- views, copies, casts ------------------------------------------------------------------------------------ */

/* Where the elements of a view's result lie in its dense operand. */
static int64_t view_map(const wf_in_call *k, int64_t *strides)
{
    const wf_type *in = &k->src[0].type, *out = &k->dst[0].type;
    const int64_t *ints = k->attr->ints, *dyn = k->attr->dyn;
    int64_t own[WF_MAX_RANK];
    wf_in_strides(in, own);
    switch ((int)k->op) {
    case WF_OP_PERMUTE:
        for (int i = 0; i < out->rank; i++) {
            strides[i] = own[ints[i]];
        }
        return 0;
    case WF_OP_EXPAND:
        broadcast_strides(in, out, strides);
        return 0;
    case WF_OP_SLICE:
        memcpy(strides, own, sizeof own);
        strides[ints[0]] *= dyn[2];
        return dyn[0] * own[ints[0]];
    case WF_OP_AS_STRIDED:
        memcpy(strides, dyn + out->rank, out->rank * sizeof *strides);
        return dyn[2 * out->rank];
    case WF_OP_DIAGONAL: {
        int n = 0;
        for (int i = 0; i < in->rank; i++) {
            if (i != ints[0] && i != ints[1]) {
                strides[n++] = own[i];
            }
        }
        strides[n] = own[ints[0]] + own[ints[1]];
        return dyn[0] >= 0 ? dyn[0] * own[ints[1]] : -dyn[0] * own[ints[0]];
    }
    }
    wf_in_strides(out, strides); /* the same elements in the same order */
    return 0;
}

static void view(wf_in_call *k)
{
    const wf_type *t = &k->dst[0].type;
    int64_t strides[WF_MAX_RANK] = {0}, limit = wf_type_numel(&k->src[0].type);
    int64_t base = view_map(k, strides);
    for (int64_t i = 0, n = wf_type_numel(t); i < n && !k->rc; i++) {
        int64_t at = base + wf_in_offset(i, t->rank, t->dims, strides);
        if (at < 0 || at >= limit) {
            k->rc = wf_fail(k->m->why, WEFT_ESHAPE, "the map of %s reaches element %lld of %lld",
                            wf_rows[k->op].name, (long long)at, (long long)limit);
            return;
        }
        wf_in_store(k->m, &k->dst[0], i, k->src[0].type.dtype, wf_in_get(&k->src[0], at));
    }
}

/* -- one row --------------------------------------------------------------------------------------------------- */

static void primitive(wf_in_call *k)
{
    const wf_row *row = &wf_rows[k->op];
    k->rc =
        k->m->primitive
            ? k->m->primitive(k->op, k->attr, k->nsrc, k->src, row->ndst, k->dst, k->m->why)
            : wf_fail(k->m->why, WEFT_EUNSUPPORTED, "%s is a primitive of the runtime", row->name);
}

/* What runs an op; of those that are not here their kind says it. */
/* clang-format off */
static wf_in_fn *const of_op[WF_OP_COUNT] = {
    [WF_OP_ARGMAX] = wf_in_argreduce, [WF_OP_ARGMIN] = wf_in_argreduce,
    [WF_OP_CUMSUM] = wf_in_scan, [WF_OP_CUMPROD] = wf_in_scan,
    [WF_OP_SOFTMAX] = wf_in_softmax, [WF_OP_SOFTMAX_BWD] = wf_in_softmax,
    [WF_OP_LOG_SOFTMAX] = wf_in_softmax, [WF_OP_LOG_SOFTMAX_BWD] = wf_in_softmax,
    [WF_OP_LAYER_NORM] = wf_in_norm, [WF_OP_LAYER_NORM_BWD] = wf_in_norm_bwd,
    [WF_OP_RMS_NORM] = wf_in_norm, [WF_OP_RMS_NORM_BWD] = wf_in_norm_bwd,
    [WF_OP_BATCH_NORM] = wf_in_norm, [WF_OP_BATCH_NORM_BWD] = wf_in_norm_bwd,
    [WF_OP_CROSS_ENTROPY] = wf_in_cross_entropy, [WF_OP_CROSS_ENTROPY_BWD] = wf_in_cross_entropy,
    [WF_OP_COPY] = view, [WF_OP_CAST] = view,
    [WF_OP_CONCAT] = wf_in_concat, [WF_OP_PAD] = wf_in_gather, [WF_OP_ROLL] = wf_in_gather,
    [WF_OP_PAD_MODE] = wf_in_gather, [WF_OP_PAD_MODE_BWD] = wf_in_pad_mode_bwd,
    [WF_OP_TRIL] = wf_in_gather, [WF_OP_TRIU] = wf_in_gather,
    [WF_OP_SLICE_GRAD] = wf_in_write, [WF_OP_UPDATE] = wf_in_write,
    [WF_OP_STRIDED_GRAD] = wf_in_strided_grad,
    [WF_OP_TAKE_ALONG] = wf_in_gather, [WF_OP_INDEX_SELECT] = wf_in_gather,
    [WF_OP_SCATTER_ADD] = wf_in_add_rows, [WF_OP_INDEX_ADD] = wf_in_add_rows,
    [WF_OP_ONE_HOT] = wf_in_one_hot, [WF_OP_SORT] = wf_in_sort, [WF_OP_TOPK] = wf_in_sort,
    [WF_OP_MAX_POOL2D] = wf_in_pool,
    [WF_OP_AVG_POOL2D] = wf_in_pool, [WF_OP_AVG_POOL2D_BWD] = wf_in_avg_pool_bwd,
    [WF_OP_FULL] = wf_in_create, [WF_OP_ARANGE] = wf_in_create,
    [WF_OP_LINSPACE] = wf_in_create, [WF_OP_EYE] = wf_in_create,
    [WF_OP_VJP] = vjp,
};
/* clang-format on */

static wf_in_fn *row_of(wf_op op)
{
    const wf_kind kind = (wf_kind)wf_rows[op].kind;
    return of_op[op]                  ? of_op[op]
           : wf_op_is_elementwise(op) ? elementwise
           : kind == WF_KIND_REDUCE   ? wf_in_reduce
           : kind == WF_KIND_VIEW     ? view
                                      : primitive;
}

int wf_interp_row(wf_interp *m, wf_op op, const wf_attr *attr, int nsrc, const wf_array *src,
                  int ndst, wf_array *dst, wf_why *why)
{
    static const wf_attr none;
    wf_in_call k = {
        .m = m, .op = op, .attr = attr ? attr : &none, .nsrc = nsrc, .src = src, .dst = dst};
    wf_in_fn *run = row_of(op);
    m->failed = false;
    m->why = why;
    if (run != elementwise && run != vjp && run != view && run != primitive) {
        int64_t most = 0;
        for (int i = 0; i < nsrc + ndst; i++) {
            const wf_array *a = i < nsrc ? &src[i] : &dst[i - nsrc];
            const int64_t n = a->data ? wf_type_numel(&a->type) : 0;
            most = n > most ? n : most;
        }
        for (int i = 0; i < WF_IN_LINES; i++) {
            k.line[i] = calloc((size_t)most + 1, sizeof *k.line[i]);
            m->failed |= !k.line[i];
        }
    }
    if (!m->failed) {
        run(&k);
    }
    for (int i = 0; i < WF_IN_LINES; i++) {
        free(k.line[i]);
    }
    return m->failed ? wf_fail(why, WEFT_ENOMEM, "out of memory, or %s has no such form",
                               wf_rows[op].name)
                     : k.rc;
}

/* -- a function -------------------------------------------------------------------------------------------------- */

static uint64_t slot_bits(const wf_fn *f, wf_val v, const wf_fn *now)
{
    const wf_ins *i = wf_fn_at(f, v);
    wf_val from = wf_fn_origin(f, v);
    return now && i->op == WF_OP_SCALAR && from ? now->slots[wf_fn_at(now, from)->attr]
                                                : f->slots[i->attr];
}

/* Scalar operands of an elementwise row take its compute type. */
static void settle_scalars(wf_interp *m, const wf_fn *f, const wf_fn *now, const wf_ins *i,
                           wf_array *src, uint64_t *room)
{
    static const uint8_t own[3] = {WEFT_BOOL, WEFT_I64, WEFT_F64};
    const wf_val *val = wf_ins_src(f, i);
    int first = wf_rows[i->op].kind == WF_KIND_CHOOSE ? 1 : 0, compute = 0;
    for (int s = first; s < i->nsrc; s++) {
        if (!wf_op_is_weak(wf_fn_at(f, val[s])->op)) {
            compute = wf_dtype_compute(src[s].type.dtype);
        }
    }
    for (int s = first; s < i->nsrc && compute; s++) {
        const wf_ins *w = wf_fn_at(f, val[s]);
        if (wf_op_is_weak(w->op)) {
            const uint64_t bits = slot_bits(f, val[s], now), kind = f->slot_kind[w->attr];
            room[s] = wf_in_cast(m, own[kind], compute, kind == 0 ? bits != 0 : bits);
            src[s] = (wf_array){.type = {.dtype = (uint8_t)compute}, .data = &room[s]};
        }
    }
}

static int make_array(wf_array *a, const wf_type *t, wf_why *why)
{
    int64_t n = wf_type_numel(t);
    a->type = *t;
    a->data = n < 0 ? NULL : calloc((size_t)n + 1, wf_dtype_size(t->dtype));
    return a->data ? 0 : wf_fail(why, WEFT_ENOMEM, "out of memory for a value");
}

static int run_ins(wf_interp *m, const wf_fn *f, const wf_fn *now, uint32_t k, wf_array *v,
                   wf_array *src, const void *const *inputs, wf_why *why)
{
    const wf_ins *i = &f->ins[k];
    if (i->op == WF_OP_RESULT) {
        return 0;
    }
    int rc = 0, ndst = i->op < WF_OP_RESULT ? 1 : wf_rows[i->op].ndst;
    for (int r = 0; r < ndst && !rc; r++) {
        rc = make_array(&v[k + 1 + (uint32_t)r], wf_fn_type(f, k + 1 + (uint32_t)r), why);
    }
    if (rc) {
        return rc;
    }
    wf_array *dst = &v[k + 1];
    if (i->op == WF_OP_INPUT) {
        if (wf_type_numel(&dst->type)) {
            memcpy(dst->data, inputs[i->attr], (size_t)wf_type_bytes(&dst->type));
        }
        return 0;
    }
    if (wf_op_is_weak(i->op)) {
        wf_in_put(dst, 0, slot_bits(f, k + 1, now));
        return 0;
    }
    const wf_val *val = wf_ins_src(f, i);
    uint64_t room[3];
    for (int s = 0; s < i->nsrc; s++) {
        src[s] = val[s] ? v[val[s]] : (wf_array){.type = {.dtype = WEFT_DTYPE_DEFAULT}};
    }
    if (wf_op_is_elementwise((wf_op)i->op)) {
        settle_scalars(m, f, now, i, src, room);
    }
    const wf_attr *attr = now ? wf_attr_now(f, k, now) : wf_ins_attr(f, i);
    return wf_interp_row(m, (wf_op)i->op, attr, i->nsrc, src, ndst, dst, why);
}

int wf_interp_run(wf_interp *m, const wf_fn *f, const wf_fn *now, const void *const *inputs,
                  void **out, wf_why *why)
{
    wf_array *v = calloc(f->n + 1u, sizeof *v);
    wf_array *src = malloc(((size_t)wf_fn_most_src(f) + 1) * sizeof *src);
    int rc = v && src ? 0 : wf_fail(why, WEFT_ENOMEM, "out of memory");
    for (uint32_t k = 0; k < f->n && !rc; k++) {
        rc = run_ins(m, f, now, k, v, src, inputs, why);
    }
    for (uint32_t k = 0; k < f->noutputs; k++) {
        const wf_array *from = v ? &v[f->outputs[k]] : NULL;
        wf_array copy = {.data = NULL};
        if (!rc && !(rc = make_array(&copy, &from->type, why))) {
            memcpy(copy.data, from->data, (size_t)wf_type_bytes(&from->type));
        }
        out[k] = copy.data;
    }
    for (uint32_t k = 0; rc && k < f->noutputs; k++) {
        free(out[k]);
        out[k] = NULL;
    }
    for (uint32_t k = 0; v && k <= f->n; k++) {
        free(v[k].data);
    }
    free(v);
    free(src);
    return rc;
}
