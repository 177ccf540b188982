/*
 * jit/ir/ir.c -- building functions: arrays, interning, the append recorder.
 *
 * Requirement on whoever edits next: grow an array before anything refers to its new entry, so that a
 * failed allocation leaves the function unchanged.
 */
#include <stdlib.h>
#include <string.h>

#include "jit/ir/infer.h"
#include "jit/ir/ir.h"

bool wf_grow_moves;

/* Under wf_grow_moves: the array to other memory, what is left behind unreadable as what it was. */
static int move_away(void *array, uint32_t n, uint32_t cap, size_t size)
{
    void *old, *p = malloc((size_t)cap * size);
    if (!p) {
        return WEFT_ENOMEM;
    }
    memcpy(&old, array, sizeof old);
    if (n) {
        memcpy(p, old, (size_t)n * size);
    }
    if (old) {
        memset(old, 0xA5, (size_t)cap * size);
    }
    free(old);
    memcpy(array, &p, sizeof p);
    return 0;
}

int wf_grow_now(void *array, uint32_t n, uint32_t more, uint32_t *cap, size_t size)
{
    uint64_t need = (uint64_t)n + more, want = *cap ? *cap : 8;
    if (need <= *cap) {
        return wf_grow_moves ? move_away(array, n, *cap, size) : 0;
    }
    do {
        want *= 2;
    } while (want < need);
    if (want > UINT32_MAX) {
        return WEFT_ENOMEM;
    }
    void *old, *p;
    memcpy(&old, array, sizeof old);
    p = realloc(old, (size_t)want * size);
    if (!p) {
        return WEFT_ENOMEM;
    }
    memcpy(array, &p, sizeof p);
    *cap = (uint32_t)want;
    return wf_grow_moves ? move_away(array, n, *cap, size) : 0; /* realloc may have stayed */
}

/* Attribute lists live in blocks that double up to 64 KiB and go with the function. */
typedef struct wf_block {
    struct wf_block *next;
    size_t used, size;
    int64_t words[];
} wf_block;

static int64_t *reserve_words(wf_fn *f, size_t n)
{
    wf_block *b = f->blocks;
    if (!b || b->size - b->used < n) {
        size_t size = b ? b->size * 2 : 32;
        size = size > 8192 ? 8192 : size;
        size = size < n ? n : size;
        b = malloc(sizeof *b + size * sizeof b->words[0]);
        if (!b) {
            return NULL;
        }
        *b = (wf_block){.next = f->blocks, .size = size};
        f->blocks = b;
    }
    b->used += n;
    return &b->words[b->used - n];
}

wf_fn *wf_fn_new(const char *name)
{
    wf_fn *f = calloc(1, sizeof *f);
    if (!f || wf_grow(&f->attrs, 0, 1, &f->capattrs, sizeof *f->attrs) ||
        wf_grow(&f->locs, 0, 1, &f->caplocs, sizeof *f->locs)) {
        wf_fn_free(f);
        return NULL;
    }
    snprintf(f->name, sizeof f->name, "%s", name && *name ? name : "f");
    memset(&f->attrs[0], 0, sizeof f->attrs[0]);
    f->nattrs = 1;
    f->locs[0] = NULL;
    f->nlocs = 1;
    return f;
}

/* Frees the blocks behind the newest, which is the largest. */
static void trim_blocks(wf_fn *f)
{
    if (!f->blocks) {
        return;
    }
    for (wf_block *b = f->blocks->next, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    f->blocks->next = NULL;
    f->blocks->used = 0;
}

void wf_fn_clear(wf_fn *f)
{
    trim_blocks(f);
    if (f->type_table) {
        memset(f->type_table, 0, (f->type_mask + 1u) * sizeof *f->type_table);
    }
    free(f->origin);
    f->origin = NULL;
    f->caporigin = 0;
    f->n = f->ntypes = f->nlists = f->nsymbols = f->ninputs = f->nslots = f->noutputs = 0;
    f->ncalls = f->nnames = f->nsized = 0;
    f->nattrs = f->nlocs = 1;
    memset(f->number_type, 0, sizeof f->number_type);
    if (f->polys) {
        f->polys->n = 0;
    }
}

void wf_fn_free(wf_fn *f)
{
    if (!f) {
        return;
    }
    for (wf_block *b = f->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(f->origin);
    free(f->ins);
    free(f->types);
    free(f->type_table);
    free(f->attrs);
    free(f->lists);
    free(f->locs);
    free(f->calls);
    free(f->names);
    free(f->symbols);
    free(f->polys ? f->polys->p : NULL);
    free(f->polys);
    free(f->inputs);
    free(f->slots);
    free(f->slot_kind);
    free(f->sized);
    free(f->outputs);
    free(f);
}

static uint32_t hash_type(const wf_type *t)
{
    uint64_t h = (uint64_t)t->dtype << 8 | t->rank;
    for (int i = 0; i < t->rank; i++) {
        h = (h ^ (uint64_t)t->dims[i]) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 29;
    }
    return (uint32_t)(h >> 3);
}

static void enter_type(wf_fn *f, uint32_t index)
{
    uint32_t h = hash_type(&f->types[index]);
    while (f->type_table[h & f->type_mask]) {
        h++;
    }
    f->type_table[h & f->type_mask] = index + 1;
}

/* A table of at most half its entries in use, one more included. */
static int grow_type_table(wf_fn *f)
{
    if (f->type_table && (f->ntypes + 1) * 2 <= f->type_mask + 1) {
        return 0;
    }
    uint32_t size = f->type_table ? (f->type_mask + 1) * 2 : 64;
    uint32_t *t = calloc(size, sizeof *t);
    if (!t) {
        return WEFT_ENOMEM;
    }
    free(f->type_table);
    f->type_table = t;
    f->type_mask = size - 1;
    for (uint32_t i = 0; i < f->ntypes; i++) {
        enter_type(f, i);
    }
    return 0;
}

uint32_t wf_fn_find_type(const wf_fn *f, const wf_type *t)
{
    if (!f->type_table) {
        for (uint32_t i = f->ntypes; i-- > 0;) { /* recent types first: neighbours share them */
            if (wf_type_same(&f->types[i], t)) {
                return i;
            }
        }
        return UINT32_MAX;
    }
    for (uint32_t h = hash_type(t); f->type_table[h & f->type_mask]; h++) {
        uint32_t i = f->type_table[h & f->type_mask] - 1;
        if (wf_type_same(&f->types[i], t)) {
            return i;
        }
    }
    return UINT32_MAX;
}

enum { FEW_TYPES = 8 }; /* a search through so many is as fast as a table */

/* Index of an equal type, appended if new. */
uint32_t wf_fn_intern_type(wf_fn *f, const wf_type *t)
{
    uint32_t i = wf_fn_find_type(f, t);
    if (i != UINT32_MAX) {
        return i;
    }
    if (wf_grow(&f->types, f->ntypes, 1, &f->captypes, sizeof *f->types) ||
        (f->ntypes >= FEW_TYPES && grow_type_table(f))) {
        return UINT32_MAX;
    }
    f->types[f->ntypes] = *t;
    if (f->type_table) {
        enter_type(f, f->ntypes);
    }
    return f->ntypes++;
}

/* Copies an attribute; 0 for the empty one. */
uint32_t wf_fn_intern_attr(wf_fn *f, const wf_attr *a)
{
    size_t words = (size_t)a->n_ints + a->n_dyn + a->n_flt;
    if (words == 0 && a->flags == 0 && a->dtype == 0) {
        return 0;
    }
    if (wf_grow(&f->attrs, f->nattrs, 1, &f->capattrs, sizeof *f->attrs)) {
        return UINT32_MAX;
    }
    wf_attr *c = &f->attrs[f->nattrs];
    *c = *a;
    c->ints = c->dyn = NULL;
    c->flt = NULL;
    if (words) {
        int64_t *block = reserve_words(f, words);
        if (!block) {
            return UINT32_MAX;
        }
        double *flt = (double *)(void *)(block + a->n_ints + a->n_dyn);
        memcpy(block, a->n_ints ? a->ints : block, a->n_ints * sizeof *block);
        memcpy(block + a->n_ints, a->n_dyn ? a->dyn : block, a->n_dyn * sizeof *block);
        memcpy(flt, a->n_flt ? a->flt : flt, a->n_flt * sizeof *flt);
        c->ints = block;
        c->dyn = block + a->n_ints;
        c->flt = flt;
    }
    return f->nattrs++;
}

uint32_t wf_fn_intern_loc(wf_fn *f, const char *loc)
{
    if (!loc) {
        return 0;
    }
    if (f->nlocs > 1 && f->locs[f->nlocs - 1] == loc) {
        return f->nlocs - 1;
    }
    if (wf_grow(&f->locs, f->nlocs, 1, &f->caplocs, sizeof *f->locs)) {
        return 0; /* a lost site is no reason to fail */
    }
    f->locs[f->nlocs] = loc;
    return f->nlocs++;
}

void wf_fn_name_call(wf_fn *f, uint32_t ins, const char *name)
{
    if (name && strcmp(name, wf_rows[f->ins[ins].op].name) != 0 &&
        wf_grow(&f->calls, f->ncalls, 1, &f->capcalls, sizeof *f->calls) == 0) {
        f->calls[f->ncalls++] = (wf_called_as){ins, name};
    }
}

const char *wf_fn_call_name(const wf_fn *f, uint32_t ins)
{
    for (uint32_t k = f->ncalls;
         k-- > 0;) { /* the latest: an instruction before it may have been taken back */
        if (f->calls[k].ins == ins) {
            return f->calls[k].name;
        }
    }
    return wf_rows[f->ins[ins].op].name;
}

const wf_val *wf_ins_src(const wf_fn *f, const wf_ins *i)
{
    return i->nsrc > 3 ? &f->lists[i->src[0]] : i->src;
}

int wf_fn_most_src(const wf_fn *f)
{
    int most = 0;
    for (uint32_t k = 0; k < f->n; k++) {
        most = f->ins[k].nsrc > most ? f->ins[k].nsrc : most;
    }
    return most;
}

const wf_attr *wf_ins_attr(const wf_fn *f, const wf_ins *i)
{
    return &f->attrs[i->op > WF_OP_RESULT ? i->attr : 0];
}

int wf_fn_set_src(wf_fn *f, wf_ins *i, int nsrc, const wf_val *src)
{
    i->nsrc = (uint16_t)nsrc;
    if (nsrc <= 3) {
        for (int s = 0; s < 3; s++) {
            i->src[s] = s < nsrc ? src[s] : 0;
        }
        return 0;
    }
    i->src[0] = f->nlists;
    i->src[1] = i->src[2] = 0;
    for (int s = 0; s < nsrc; s++) {
        if (wf_grow(&f->lists, f->nlists, 1, &f->caplists, sizeof *f->lists)) {
            return WEFT_ENOMEM;
        }
        f->lists[f->nlists++] = src[s];
    }
    return 0;
}

wf_val wf_fn_push(wf_fn *f, const wf_ins *i)
{
    if (f->n == UINT32_MAX - 1 || wf_grow(&f->ins, f->n, 1, &f->cap, sizeof *f->ins)) {
        return 0;
    }
    f->ins[f->n] = *i;
    return ++f->n;
}

static int push_val(wf_val **a, uint32_t *n, uint32_t *cap, wf_val v)
{
    if (wf_grow(a, *n, 1, cap, sizeof **a)) {
        return WEFT_ENOMEM;
    }
    (*a)[(*n)++] = v;
    return 0;
}

wf_val wf_fn_input(wf_fn *f, const wf_type *t)
{
    uint32_t type = wf_fn_intern_type(f, t);
    wf_val v = 0;
    if (type != UINT32_MAX && f->n < UINT32_MAX - 1 &&
        !wf_grow(&f->ins, f->n, 1, &f->cap, sizeof *f->ins)) {
        f->ins[f->n] = (wf_ins){.op = WF_OP_INPUT, .type = type, .attr = f->ninputs};
        v = ++f->n;
    }
    if (v && push_val(&f->inputs, &f->ninputs, &f->capinputs, v)) {
        f->n--;
        return 0;
    }
    return v;
}

void wf_fn_name_input(wf_fn *f, wf_val v, const char *name, size_t n, const char *site)
{
    wf_ins *i = &f->ins[v - 1];
    const uint32_t k = i->attr, more = k < f->nnames ? 0 : k + 1 - f->nnames;
    i->loc = wf_fn_intern_loc(f, site);
    char *own = n ? (char *)reserve_words(f, n / sizeof(int64_t) + 1) : NULL;
    if (!own || wf_grow(&f->names, f->nnames, more, &f->capnames, sizeof *f->names)) {
        return;
    }
    while (f->nnames <= k) {
        f->names[f->nnames++] = NULL;
    }
    memcpy(own, name, n);
    own[n] = '\0';
    f->names[k] = own;
}

const char *wf_fn_input_name(const wf_fn *f, uint32_t k)
{
    return k < f->nnames ? f->names[k] : NULL;
}

/* Index of the type of numbers of a kind; UINT32_MAX: no memory. */
static uint32_t number_type(wf_fn *f, int kind)
{
    static const uint8_t dtypes[3] = {WEFT_BOOL, WEFT_I64, WEFT_F64};
    if (!f->number_type[kind]) {
        const wf_type t = {.dtype = dtypes[kind], .rank = 0};
        f->number_type[kind] = wf_fn_intern_type(f, &t) + 1; /* 0 again without memory */
    }
    return f->number_type[kind] - 1;
}

static wf_val push_number(wf_fn *f, wf_op op, int kind, uint64_t bits)
{
    const uint32_t type = number_type(f, kind);
    bool room = wf_grow(&f->slots, f->nslots, 1, &f->capslots, sizeof *f->slots) == 0 &&
                wf_grow(&f->slot_kind, f->nslots, 1, &f->capkinds, sizeof *f->slot_kind) == 0;
    wf_ins i = {.op = (uint8_t)op, .type = type, .attr = f->nslots};
    wf_val v = type == UINT32_MAX || !room ? 0 : wf_fn_push(f, &i);
    if (v) {
        f->slots[f->nslots] = bits;
        f->slot_kind[f->nslots++] = (uint8_t)kind;
    }
    return v;
}

wf_val wf_fn_scalar(wf_fn *f, int kind, uint64_t bits)
{
    return push_number(f, WF_OP_SCALAR, kind, bits);
}

int wf_fn_size_scalar(wf_fn *f, wf_val v, int64_t extent)
{
    if (wf_grow(&f->sized, f->nsized, 1, &f->capsized, sizeof *f->sized)) {
        return WEFT_ENOMEM;
    }
    f->sized[f->nsized++] = (wf_sized_slot){wf_fn_at(f, v)->attr, extent};
    return 0;
}

int64_t wf_fn_slot_extent(const wf_fn *f, uint32_t slot)
{
    uint32_t lo = 0, hi = f->nsized;
    while (lo < hi) {
        const uint32_t mid = (lo + hi) / 2;
        *(f->sized[mid].slot < slot ? &lo : &hi) = f->sized[mid].slot < slot ? mid + 1 : mid;
    }
    return lo < f->nsized && f->sized[lo].slot == slot ? f->sized[lo].extent : -1;
}

wf_val wf_fn_const(wf_fn *f, int kind, uint64_t bits)
{
    return push_number(f, WF_OP_CONST, kind, bits);
}

int wf_fn_output(wf_fn *f, wf_val v)
{
    return push_val(&f->outputs, &f->noutputs, &f->capoutputs, v);
}

/* Operand types for inference. Scalars are weak: they take the type of the tensors they meet. */
static void operand_types(const wf_fn *f, wf_op op, int nsrc, const wf_val *src, wf_type *t)
{
    int strong = 0, first = wf_rows[op].kind == WF_KIND_CHOOSE ? 1 : 0;
    for (int i = 0; i < nsrc; i++) {
        t[i] = src[i] ? *wf_fn_type(f, src[i]) : (wf_type){.dtype = WEFT_DTYPE_DEFAULT};
        if (i >= first && src[i] && !wf_op_is_weak(wf_fn_at(f, src[i])->op)) {
            strong = t[i].dtype;
        }
    }
    for (int i = first; wf_op_is_elementwise(op) && strong && i < nsrc; i++) {
        if (src[i] && wf_op_is_weak(wf_fn_at(f, src[i])->op)) {
            t[i].dtype = (uint8_t)strong;
        }
    }
}

int wf_infer_sizes(wf_op op, const wf_attr *attr, int nsrc, const wf_type *src, wf_type *dst,
                   wf_why *why)
{
    int rc = wf_infer(op, attr, nsrc, src, dst, why);
    if (!rc && op == WF_OP_AS_STRIDED) {
        rc = wf_check_map(dst->rank, dst->dims, attr->dyn + dst->rank, attr->dyn[2 * dst->rank],
                          wf_type_numel(src), why);
    }
    return rc;
}

int wf_fn_infer(const wf_fn *f, wf_op op, const wf_attr *attr, int nsrc, const wf_val *src,
                wf_type *dst, wf_why *why)
{
    wf_type *t = malloc(((size_t)nsrc + 1) * sizeof *t);
    if (!t) {
        return wf_fail(why, WEFT_ENOMEM, "out of memory");
    }
    operand_types(f, op, nsrc, src, t);
    const int rc = f->nsymbols == 0 ? wf_infer_sizes(op, attr, nsrc, t, dst, why)
                                    : wf_infer_symbolic(f, op, attr, nsrc, t, dst, why);
    free(t);
    return rc;
}

int wf_fn_append(wf_fn *f, wf_op op, const wf_attr *attr, int nsrc, const wf_val *src, wf_val *dst,
                 const char *loc, wf_why *why)
{
    static const wf_attr none;
    const wf_row *row = &wf_rows[op];
    wf_type out[WF_MAX_DST];
    attr = attr ? attr : &none;
    if (op <= WF_OP_RESULT || op >= WF_OP_COUNT) {
        return wf_fail(why, WEFT_EINVALID, "op %d is not a row", (int)op);
    }
    if (!row->max_src && nsrc > WF_MOST_SRC) {
        return wf_too_many(why, op, nsrc);
    }
    if (nsrc < row->min_src || (row->max_src && nsrc > row->max_src)) {
        return wf_fail(why, WEFT_EINVALID, "%s takes %d to %d operands, not %d", row->name,
                       row->min_src, row->max_src, nsrc);
    }
    for (int i = 0; i < nsrc; i++) {
        if (src[i] > f->n || (src[i] == 0 && i < row->min_src)) {
            return wf_fail(why, WEFT_EINVALID, "operand %d of %s is no earlier value", i,
                           row->name);
        }
    }
    int rc = wf_fn_infer(f, op, attr, nsrc, src, out, why);
    if (rc) {
        return rc;
    }
    wf_ins k = {.op = (uint8_t)op, .loc = wf_fn_intern_loc(f, loc)};
    k.attr = wf_fn_intern_attr(f, attr);
    k.type = wf_fn_intern_type(f, &out[0]);
    bool ok = k.attr != UINT32_MAX && k.type != UINT32_MAX;
    ok = ok && wf_fn_set_src(f, &k, nsrc, src) == 0;
    dst[0] = ok ? wf_fn_push(f, &k) : 0;
    for (int i = 1; i < row->ndst && dst[0]; i++) {
        wf_ins r = {
            .op = WF_OP_RESULT, .nsrc = 1, .src = {dst[0]}, .attr = (uint32_t)i, .loc = k.loc};
        r.type = wf_fn_intern_type(f, &out[i]);
        dst[i] = r.type == UINT32_MAX ? 0 : wf_fn_push(f, &r);
        if (!dst[i]) {
            f->n = dst[0] - 1; /* take the whole op back */
            dst[0] = 0;
        }
    }
    return dst[0] ? 0 : wf_fail(why, WEFT_ENOMEM, "out of memory for the recorded function");
}

/* -- equality ---------------------------------------------------------------------------------------- */

static bool same_bytes(const void *a, const void *b, size_t n)
{
    return n == 0 || memcmp(a, b, n) == 0;
}

/* Extents of several symbols are in places of their own in each function. */
static bool same_extents(const wf_fn *f, const int64_t *x, const wf_fn *g, const int64_t *y, int n)
{
    bool same = same_bytes(x, y, (size_t)n * sizeof *x) && !f->nsymbols;
    for (int i = 0; i < n && f->nsymbols; i++) {
        same = wf_sym_same(f, x[i], g, y[i]);
        if (!same) {
            break;
        }
    }
    return same || n == 0;
}

static bool same_type(const wf_fn *f, const wf_type *x, const wf_fn *g, const wf_type *y)
{
    return x->dtype == y->dtype && x->rank == y->rank &&
           same_extents(f, x->dims, g, y->dims, x->rank);
}

static bool same_attr(const wf_fn *f, const wf_attr *a, const wf_fn *g, const wf_attr *b)
{
    return a->dtype == b->dtype && a->flags == b->flags && a->n_ints == b->n_ints &&
           a->n_dyn == b->n_dyn && a->n_flt == b->n_flt &&
           same_bytes(a->ints, b->ints, a->n_ints * sizeof *a->ints) &&
           same_extents(f, a->dyn, g, b->dyn, a->n_dyn) &&
           same_bytes(a->flt, b->flt, a->n_flt * sizeof *a->flt);
}

bool wf_fn_equal(const wf_fn *a, const wf_fn *b)
{
    if (a->n != b->n || a->noutputs != b->noutputs || a->ninputs != b->ninputs ||
        a->nslots != b->nslots || a->nsymbols != b->nsymbols || a->nsized != b->nsized ||
        (a->noutputs && memcmp(a->outputs, b->outputs, a->noutputs * sizeof *a->outputs) != 0)) {
        return false;
    }
    for (uint32_t i = 0; i < a->nsymbols; i++) {
        const wf_range p = a->range[i], q = b->range[i];
        if (strcmp(a->symbols[i], b->symbols[i]) != 0 || p.least != q.least || p.most != q.most ||
            p.multiple != q.multiple || p.rest != q.rest) {
            return false;
        }
    }
    for (uint32_t i = 0; i < a->nsized; i++) {
        if (a->sized[i].slot != b->sized[i].slot ||
            !wf_sym_same(a, a->sized[i].extent, b, b->sized[i].extent)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < a->n; i++) {
        const wf_ins *x = &a->ins[i], *y = &b->ins[i];
        if (x->op != y->op || x->nsrc != y->nsrc || x->flags != y->flags ||
            !same_type(a, &a->types[x->type], b, &b->types[y->type]) ||
            memcmp(wf_ins_src(a, x), wf_ins_src(b, y), x->nsrc * sizeof(wf_val)) != 0) {
            return false;
        }
        bool row = x->op > WF_OP_RESULT;
        if (x->op == WF_OP_CONST &&
            memcmp(&a->slots[x->attr], &b->slots[y->attr], sizeof a->slots[0]) != 0) {
            return false;
        }
        if (row ? !same_attr(a, &a->attrs[x->attr], b, &b->attrs[y->attr]) : x->attr != y->attr) {
            return false;
        }
    }
    return true;
}
