/*
 * eager/api_index.c -- indexing by tensors of several axes at once (weft/ops_array.h).
 *
 * The indices of the first n axes become one index of those axes as one, by rows: index_select of an arange along axis k
 * takes from an index what counts from the end, and refuses what is out of range, in the name of that axis. So reading is
 * index_select, adding index_add.
 *
 * Writing is made of reading, since rows that write in an order of their own would be one more of each kernel: places are
 * counted, the running count says where in the sorted indices the last of each place stands, and its value is taken. The
 * last one in row-major order wins, at any number of threads and on every device, and every bit of it survives. All that
 * takes passes over every place of x; where no trace runs and the memory is the host's, indices are joined and the last ones
 * found by loops, and where no gradient flows either, a copy is written in order, which leaves the same bits.
 */
#include <string.h>

#include "eager/api.h"
#include "eager/call.h"
#include "eager/dense.h"
#include "eager/device.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

/* A call on x with n indices. */
typedef struct places {
    wf_arg a;                  /* x */
    wf_type index;             /* what the indices broadcast to */
    int64_t lines;             /* extents of the first n axes, multiplied */
    int64_t dims[WF_MAX_RANK]; /* [lines, the other axes]: x as it is indexed */
    int rank;
    weft_tensor at; /* one index of 0 .. lines - 1 each */
} places;

static weft_tensor range(int64_t n)
{
    int64_t dyn[3] = {n, 0, 1};
    return wf_op0(WF_OP_ARANGE, &(wf_attr){.dtype = WEFT_I64, .n_dyn = 3, .dyn = dyn});
}

static weft_tensor expanded(weft_tensor x, int rank, const int64_t *dims)
{
    return wf_op1(WF_OP_EXPAND, &(wf_attr){.n_dyn = (uint8_t)rank, .dyn = dims}, x);
}

static bool indices_ok(places *p, const weft_tensor *indices, int n)
{
    wf_arg *a = &p->a;
    if (n < 1 || n > a->type.rank) {
        return wf_arg_fail(a, WEFT_ESHAPE, "give one index tensor for each of the first axes",
                           "%d index tensors are given for %d axes", n, a->type.rank);
    }
    for (int k = 0; k < n; k++) {
        wf_arg b;
        wf_why why = {0};
        if (!wf_arg_open(&b, a->op, indices[k])) {
            a->error = b.error;
            return false;
        }
        if (b.type.dtype != WEFT_I64 && b.type.dtype != WEFT_I32) {
            return wf_arg_fail(a, WEFT_EDTYPE,
                               "indices are i64 or i32; a mask is for weft_masked_select, "
                               "weft_masked_fill and weft_where",
                               "index tensor %d is %s", k, wf_dtype_name(b.type.dtype));
        }
        if (k > 0 && wf_broadcast(&p->index, &b.type, &why)) {
            return wf_arg_fail(a, WEFT_ESHAPE, "index tensors broadcast", "%s", why.rule);
        }
        p->index = k ? p->index : b.type;
    }
    return true;
}

/* x and its indices for `op`. False with p->a.error. */
static bool open_places(places *p, const char *op, weft_tensor x, const weft_tensor *indices, int n)
{
    if (!wf_arg_open(&p->a, op, x)) {
        return false;
    }
    if (n > 0 && !indices) {
        p->a.error = wf_api_null(op, "the array of indices");
        return false;
    }
    if (!indices_ok(p, indices, n)) {
        return false;
    }
    const wf_type *t = &p->a.type;
    p->lines = 1;
    p->rank = 1 + t->rank - n;
    for (int i = 0; i < t->rank; i++) {
        if (i >= n) {
            p->dims[1 + i - n] = t->dims[i];
        } else if (__builtin_mul_overflow(p->lines, t->dims[i], &p->lines)) {
            return wf_arg_fail(&p->a, WEFT_ENOMEM, NULL, "the extents overflow 64 bits");
        }
    }
    if (p->index.rank + t->rank - n > WF_MAX_RANK) {
        return wf_arg_fail(&p->a, WEFT_ESHAPE, NULL, "%d axes meet; 16 is the most",
                           p->index.rank + t->rank - n);
    }
    p->dims[0] = p->lines;
    return true;
}

/* Are operands at hand, and no trace to record how indices are worked with? They are integers: no gradient flows through them. */
static bool at_hand(const places *p)
{
    return p->a.device == WF_DEVICE_HOST && !p->a.c->recorder;
}

/* The index of n axes as one, which a loop works out, or an error. False: nothing was done, and if an index is out of range the
 * rows say so. Smaller ones that broadcast are for the rows, too: those do not expand what they work with. */
static bool join_here(places *p, const weft_tensor *indices, int n)
{
    wf_type t = p->index;
    int64_t *at;
    t.dtype = WEFT_I64;
    const int64_t m = wf_type_numel(&t);
    bool whole = m > 0;
    for (int k = 0; k < n && whole; k++) {
        wf_arg b;
        whole = wf_arg_open(&b, p->a.op, indices[k]) && wf_type_numel(&b.type) == m;
    }
    p->at = at_hand(p) && whole ? wf_api_new(p->a.c, &t, (void **)&at) : WEFT_NONE;
    for (int k = 0; k < n && weft_ok(p->at); k++) {
        const int64_t d = p->a.type.dims[k];
        const weft_tensor index =
            weft_contiguous(expanded((weft_cast)(indices[k], WEFT_I64), t.rank, t.dims));
        if (!weft_ok(index)) {
            p->at = index;
            break;
        }
        const int64_t *v = wf_api_data(index);
        const unsigned range = v ? wf_kernels_now()->range(v, (size_t)m, d) : WF_OUTSIDE;
        if (range & WF_OUTSIDE) {
            return false;
        }
        for (int64_t i = 0; i < m; i++) {
            at[i] = (k ? at[i] * d : 0) + v[i] + (v[i] < 0 ? d : 0);
        }
    }
    return !wf_is_none(p->at);
}

/* The index of n axes as one. Checks run with the rows. As it is: that of one axis may go on counting from the end. */
static void join_indices(places *p, const weft_tensor *indices, int n, bool as_it_is)
{
    if (n == 1 && as_it_is) {
        p->at = indices[0];
        return;
    }
    if (join_here(p, indices, n)) {
        return;
    }
    for (int k = 0; k < n; k++) {
        int64_t d = p->a.type.dims[k], axis = k, shape[WF_MAX_RANK];
        for (int i = 0; i < k; i++) {
            shape[i] = 1;
        }
        shape[k] = d;
        wf_arg b;
        weft_tensor at = wf_api_reshape(range(d), k + 1, shape); /* [1, .., d]: axis k of x */
        weft_tensor index = indices[k];
        const bool open = wf_arg_open(&b, p->a.op, index);
        if (open && k + b.type.rank > WF_MAX_RANK) { /* no axes are left for the 1s before it */
            int64_t all = wf_type_numel(&b.type);
            index = wf_api_reshape(index, 1, &all);
        }
        at = wf_op2(WF_OP_INDEX_SELECT, &(wf_attr){.n_ints = 1, .ints = &axis}, at, index);
        if (open) {
            at = wf_api_reshape(at, b.type.rank, b.type.dims);
        }
        p->at =
            k == 0 ? at : wf_op2(WF_OP_ADD, NULL, wf_op2(WF_OP_MUL, NULL, p->at, weft_i(d)), at);
    }
    p->at = expanded(p->at, p->index.rank, p->index.dims);
}

static weft_tensor take_lines(weft_tensor x, weft_tensor at)
{
    int64_t axis = 0;
    return wf_op2(WF_OP_INDEX_SELECT, &(wf_attr){.n_ints = 1, .ints = &axis}, x, at);
}

weft_tensor(weft_index_get)(weft_tensor x, const weft_tensor *indices, int n)
{
    places p = {.rank = 0};
    if (!open_places(&p, "index_get", x, indices, n)) {
        return p.a.error;
    }
    WF_CALLED(w, "index_get", x, indices[0], n > 1 ? indices[1] : WF_ABSENT);
    weft_scope sc = weft_scope_begin();
    int before = wf_device_enter(p.a.c, p.a.device);
    join_indices(&p, indices, n, true);
    weft_tensor y = take_lines(wf_api_reshape(x, p.rank, p.dims), p.at);
    wf_device_enter(p.a.c, before);
    return wf_called_end(&w, weft_scope_return(sc, y));
}

/* -- writing ---------------------------------------------------------------------------------------------------- */

/* values as [the indices, the other axes of x], of x's type; WEFT_NONE with p->a.error where they do not fit. */
static weft_tensor fitted(places *p, weft_tensor values)
{
    wf_arg b;
    wf_arg *a = &p->a;
    wf_type all = p->index;
    int dt = a->type.dtype;
    for (int i = 1; i < p->rank; i++) {
        all.dims[all.rank++] = p->dims[i];
    }
    if (!wf_arg_open(&b, a->op, values)) {
        a->error = b.error;
        return WEFT_NONE;
    }
    bool number = wf_is_scalar(values);
    int kind = wf_dtype_kind(b.type.dtype);
    if (number ? kind > wf_dtype_kind(dt) : wf_dtype_promote(b.type.dtype, dt) != dt) {
        wf_arg_fail(a, WEFT_EDTYPE, "cast the values, or x, first", "%s cannot take %s values",
                    wf_dtype_name(dt), wf_dtype_name(b.type.dtype));
        return WEFT_NONE;
    }
    if (number) {
        int64_t v = (int64_t)values.serial;
        if (values.context == WF_SCALAR_INT && kind < 2 && wf_dtype_kind(dt) < 2 &&
            !wf_dtype_holds(dt, v)) {
            wf_arg_fail(a, WEFT_EDTYPE, "cast x first", "%s does not hold %lld", wf_dtype_name(dt),
                        (long long)v);
            return WEFT_NONE;
        }
        values = wf_api_scalar(values, dt);
    } else {
        values = (weft_cast)(values, (weft_dtype)dt);
    }
    return expanded(values, all.rank, all.dims);
}

/* For each line, [lines], which of the m values it becomes, the last one of those whose place is there (`at`), and whether one is. */
typedef struct winners {
    weft_tensor source, hit; /* i64, bool */
} winners;

/* False: nothing was done. Else errors are in w. */
static bool find_here(const places *p, weft_tensor at, int64_t m, winners *w)
{
    const wf_type source = {.dtype = WEFT_I64, .rank = 1, .dims = {p->lines}};
    const wf_type hit = {.dtype = WEFT_BOOL, .rank = 1, .dims = {p->lines}};
    int64_t *from;
    uint8_t *is;
    const int64_t *line = at_hand(p) ? wf_api_data(at) : NULL;
    if (!line) {
        return false;
    }
    w->source = wf_api_new(p->a.c, &source, (void **)&from);
    w->hit = wf_api_new(p->a.c, &hit, (void **)&is);
    if (!weft_ok(w->source) || !weft_ok(w->hit)) {
        return !wf_is_none(w->source) && !wf_is_none(w->hit);
    }
    memset(from, 0, (size_t)p->lines * sizeof *from);
    memset(is, 0, (size_t)p->lines);
    for (int64_t k = 0; k < m; k++) {
        from[line[k]] = k;
        is[line[k]] = 1;
    }
    return true;
}

static winners find(const places *p, weft_tensor at, int64_t m)
{
    winners w;
    if (find_here(p, at, m, &w)) {
        return w;
    }
    int64_t axis = 0, zero = 0, one = 1;
    wf_attr along = {.n_ints = 1, .ints = &axis}, none = {.dtype = WEFT_I64, .n_dyn = 2};
    none.dyn = (int64_t[]){p->lines, zero};
    weft_tensor count = wf_op0(WF_OP_FULL, &none);
    none.dyn = (int64_t[]){m, one};
    weft_tensor ones = wf_op0(WF_OP_FULL, &none), sorted[2];
    count = wf_op3(WF_OP_INDEX_ADD, &along, count, at, ones);
    wf_attr scan = {.dtype = WEFT_I64, .n_ints = 1, .ints = &axis};
    weft_tensor last = wf_op2(WF_OP_SUB, NULL, wf_op1(WF_OP_CUMSUM, &scan, count), weft_i(1));
    wf_dispatch(WF_OP_SORT, &along, 1, &at, 2, sorted);
    w.source = take_lines(sorted[1], wf_op2(WF_OP_MAXIMUM, NULL, last, weft_i(0)));
    w.hit = wf_op2(WF_OP_GREATER, NULL, count, weft_i(0));
    return w;
}

/* lines[count] with those of `at` replaced by values[m, ..], the last of each. */
static weft_tensor replace(const places *p, weft_tensor lines, weft_tensor at, weft_tensor values,
                           int64_t m)
{
    int64_t tall[WF_MAX_RANK] = {p->lines};
    const winners w = find(p, at, m);
    for (int i = 1; i < p->rank; i++) {
        tall[i] = 1;
    }
    const weft_tensor hit = wf_api_reshape(w.hit, p->rank, tall);
    return wf_op3(WF_OP_WHERE, NULL, hit, take_lines(values, w.source), lines);
}

/* Do gradients flow through them? */
static bool differentiated(const places *p, weft_tensor lines, weft_tensor values)
{
    return wf_grad_enabled(p->a.c) && (weft_requires_grad(lines) || weft_requires_grad(values));
}

/* The same for those: values that win are added to -0, which is where they go, and the others as -0, so that every bit of the result is
 * one of theirs. What the values get of its gradient is then read where they went, m elements, and not brought together out
 * of all lines. */
static weft_tensor replace_smoothly(const places *p, weft_tensor lines, weft_tensor at,
                                    weft_tensor values, int64_t m)
{
    int64_t axis = 0, tall[WF_MAX_RANK] = {p->lines}, each[WF_MAX_RANK] = {m};
    const winners w = find(p, at, m);
    for (int i = 1; i < p->rank; i++) {
        tall[i] = each[i] = 1;
    }
    const weft_tensor hit = wf_api_reshape(w.hit, p->rank, tall);
    const weft_tensor winner = take_lines(w.source, at);
    weft_tensor wins = wf_op2(WF_OP_EQUAL, NULL, winner, range(m));
    wins = wf_api_reshape(wins, p->rank, each);
    lines = wf_op3(WF_OP_WHERE, NULL, hit, weft_f(-0.0), lines);
    values = wf_op3(WF_OP_WHERE, NULL, wins, values, weft_f(-0.0));
    return wf_op3(WF_OP_INDEX_ADD, &(wf_attr){.n_ints = 1, .ints = &axis}, lines, at, values);
}

enum { SMALL = 4 << 20 }; /* bytes that one thread writes before several could have begun */

/* Are there lines to write, and few enough? */
static bool may_write(const places *p, int64_t m)
{
    int64_t row = (int64_t)wf_dtype_size(p->a.type.dtype), all;
    for (int i = 1; i < p->rank; i++) {
        row *= p->dims[i]; /* those of a tensor: no overflow where there are elements */
    }
    return at_hand(p) && p->lines > 0 && row > 0 && !__builtin_mul_overflow(row, m, &all) &&
           all <= SMALL;
}

#define WRITE(type)                                                                                \
    for (int64_t k = 0; k < m; k++) {                                                              \
        ((type *)to)[line[k]] = ((const type *)from)[k];                                           \
    }
/* As replace. */
static weft_tensor write_lines(weft_tensor lines, weft_tensor at, weft_tensor values, int64_t m)
{
    weft_tensor y = wf_op1(WF_OP_COPY, NULL, lines);
    weft_tensor v = weft_contiguous(values), i = weft_contiguous(at);
    const void *from = wf_api_data(v);
    const int64_t *line = wf_api_data(i);
    void *to = (void *)(uintptr_t)wf_api_data(y); /* nobody else has it yet */
    if (!from || !line || !to) {
        return weft_ok(y) ? weft_ok(v) ? i : v : y;
    }
    const size_t row = (size_t)weft_nbytes(v) / (size_t)m;
    if (row <= 8 && (row & (row - 1)) == 0) {
        WF_BY_SIZE(row, WRITE)
        return y;
    }
    for (int64_t k = 0; k < m; k++) {
        memcpy((char *)to + (size_t)line[k] * row, (const char *)from + (size_t)k * row, row);
    }
    return y;
}

weft_tensor(weft_index_put)(weft_tensor x, const weft_tensor *indices, int n, weft_tensor values,
                            bool accumulate)
{
    places p = {.rank = 0};
    if (!open_places(&p, "index_put", x, indices, n)) {
        return p.a.error;
    }
    WF_CALLED(w, "index_put", x, values, indices[0], n > 1 ? indices[1] : WF_ABSENT);
    weft_scope sc = weft_scope_begin();
    int before = wf_device_enter(p.a.c, p.a.device);
    weft_tensor y = fitted(&p, values);
    if (y.slot == 0) {
        y = y.serial == 0 ? p.a.error : y;
    } else {
        int64_t m = wf_type_numel(&p.index), axis = 0, first = p.dims[0];
        weft_tensor lines = wf_api_reshape(x, p.rank, p.dims);
        const bool smooth = !accumulate && differentiated(&p, lines, y);
        const bool writes = !accumulate && !smooth && m > 0 && may_write(&p, m);
        join_indices(&p, indices, n, accumulate);
        weft_tensor at = wf_api_reshape(p.at, 1, &m);
        p.dims[0] = m;
        y = wf_api_reshape(y, p.rank, p.dims);
        p.dims[0] = first;
        y = m == 0 ? wf_op1(WF_OP_COPY, NULL, lines)
            : accumulate
                ? wf_op3(WF_OP_INDEX_ADD, &(wf_attr){.n_ints = 1, .ints = &axis}, lines, at, y)
            : smooth ? replace_smoothly(&p, lines, at, y, m)
            : writes ? write_lines(lines, at, y, m)
                     : replace(&p, lines, at, y, m);
        y = wf_api_reshape(y, p.a.type.rank, p.a.type.dims);
    }
    wf_device_enter(p.a.c, before);
    return wf_called_end(&w, weft_scope_return(sc, y));
}
