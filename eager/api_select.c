/*
 * eager/api_select.c -- ops of weft/ops_array.h that depend on values, and comparisons within a tolerance.
 *
 * nonzero, masked_select and unique have results whose extents follow from the values, so they read them on the host (which
 * breaks a trace and waits for a device) and are no rows: what flows through gradients or runs on a device is made of rows.
 * searchsorted reads host memory, too, but in a trace and on a device it is a few rows for each bit of an index.
 */
#include <math.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/api.h"
#include "eager/device.h"
#include "eager/pool.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

/* -- within a tolerance ------------------------------------------------------------------------------- */

/* Integers, bool and halves are compared as wider floats: their own differences wrap, or round to nothing. */
static int close_type(weft_tensor a, weft_tensor b)
{
    bool weak;
    int both =
        (int)weft_promote((weft_dtype)wf_api_dtype(a, &weak), (weft_dtype)wf_api_dtype(b, &weak));
    return both == WEFT_F16 || both == WEFT_BF16 || both == WEFT_F32 ? WEFT_F32 : WEFT_F64;
}

/* NumPy's: |a - b| <= atol + rtol |b| where b is finite, else a == b. */
static weft_tensor elements_close(const weft_isclose_args *p)
{
    double rtol = wf_option(p->rtol, 1e-5), atol = wf_option(p->atol, 1e-8);
    weft_tensor same = weft_equal(p->a, p->b);
    if (!weft_ok(same)) {
        return same;
    }
    weft_dtype wide = (weft_dtype)close_type(p->a, p->b);
    weft_tensor a = weft_cast(p->a, wide), b = weft_cast(p->b, wide);
    weft_tensor bound = weft_add(weft_mul(weft_abs(b), weft_f(rtol)), weft_f(atol));
    weft_tensor near = weft_less_equal(weft_abs(weft_sub(a, b)), bound);
    near = weft_logical_or(same, weft_logical_and(near, weft_isfinite(b)));
    if (p->equal_nan) {
        weft_tensor nan = weft_isnan(a);
        near = weft_logical_or(near, weft_logical_and(nan, weft_isnan(b)));
    }
    return near;
}

static weft_tensor compare(const char *op, const weft_isclose_args *p, bool whole)
{
    if (!p) {
        return wf_api_null(op, "the options");
    }
    if (!(p->rtol >= 0 && p->atol >= 0)) { /* what is wrong with the operands goes before that */
        wf_arg a, b;
        wf_why why = {0};
        if (!wf_arg_open(&a, op, p->a)) {
            return a.error;
        }
        if (!wf_arg_open(&b, op, p->b)) {
            return b.error;
        }
        if (wf_broadcast(&a.type, &b.type, &why) == 0) {
            wf_fail(&why, WEFT_EINVALID, "rtol is %g, atol is %g", p->rtol, p->atol);
            wf_hint(&why, "tolerances are 0 or more");
        }
        return wf_raise(a.c, op, 2, (weft_tensor[]){p->a, p->b}, &why);
    }
    WF_CALLED(w, op, p->a, p->b);
    weft_scope s = weft_scope_begin();
    weft_no_grad_begin();
    weft_tensor y = elements_close(p);
    if (whole) {
        y = weft_all(y);
    }
    weft_no_grad_end();
    return wf_called_end(&w, weft_scope_return(s, y));
}

weft_tensor(weft_isclose)(const weft_isclose_args *args)
{
    return compare("isclose", args, false);
}

weft_tensor(weft_allclose)(const weft_isclose_args *args)
{
    return compare("allclose", args, true);
}

/* -- where x is not 0 --------------------------------------------------------------------------------- */

/* All elements of t, of its type or as `as`, in memory that is freed with wf_mfree. NULL with *error. */
static void *elements(const char *op, weft_tensor t, weft_dtype as, int64_t *n, weft_tensor *error)
{
    *n = weft_numel(t);
    if (*n < 0) {
        *error = wf_api_last_error();
        return NULL;
    }
    size_t size = weft_dtype_size(as ? as : weft_dtype_of(t));
    void *p = wf_malloc((size_t)*n * size);
    if (!p) {
        *error = wf_api_error(op, WEFT_ENOMEM, "out of memory for a copy of %lld elements",
                              (long long)*n);
    } else if (weft_to_array(t, p, *n, as) != WEFT_OK) {
        *error = wf_api_last_error();
        wf_mfree(p);
        p = NULL;
    }
    return p;
}

static void drop(void *p)
{
    wf_mfree(p);
}

/* A tensor on the device of `like` whose host copy is data, made by wf_malloc and taken. */
static weft_tensor from_host(int64_t *data, weft_shape shape, weft_tensor like)
{
    weft_tensor t = weft_from_blob(data, shape, WEFT_I64, .deleter = drop, .arg = data);
    if (!weft_ok(t)) {
        wf_mfree(data);
        return t;
    }
    weft_device device = weft_device_of(like);
    return device.kind == WEFT_DEVICE_CPU ? t : weft_to(t, device);
}

static int64_t *integers(const char *op, int64_t n, weft_tensor *error)
{
    int64_t *p = wf_malloc((size_t)n * sizeof *p);
    if (!p) {
        *error = wf_api_error(op, WEFT_ENOMEM, "out of memory for %lld indices", (long long)n);
    }
    return p;
}

static int64_t count_true(const bool *mask, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        count += mask[i];
    }
    return count;
}

static weft_tensor nonzero(const char *op, weft_tensor x, const wf_type *type)
{
    weft_tensor error = WEFT_NONE;
    int64_t n, rank = type->rank, at[WF_MAX_RANK] = {0}, *out = NULL;
    bool *mask = elements(op, weft_not_equal(x, weft_i(0)), WEFT_BOOL, &n, &error);
    int64_t count = mask ? count_true(mask, n) : 0;
    if (!mask || !(out = integers(op, count * rank, &error))) {
        wf_mfree(mask);
        return error;
    }
    for (int64_t i = 0, k = 0; i < n; i++) {
        for (int64_t a = 0; mask[i] && a < rank; a++) {
            out[k++] = at[a];
        }
        for (int64_t a = rank; a-- > 0 && ++at[a] == type->dims[a];) {
            at[a] = 0;
        }
    }
    wf_mfree(mask);
    return from_host(out, weft_shape(count, rank), x);
}

weft_tensor(weft_nonzero)(weft_tensor x)
{
    wf_arg a;
    if (!wf_arg_open(&a, "nonzero", x)) {
        return a.error;
    }
    WF_CALLED(w, "nonzero", x);
    weft_scope s = weft_scope_begin();
    return wf_called_end(&w, weft_scope_return(s, nonzero("nonzero", x, &a.type)));
}

/* -- elements under a mask ---------------------------------------------------------------------------- */

static weft_tensor masked_select(weft_tensor x, weft_tensor mask, weft_shape shape)
{
    const char *op = "masked_select";
    weft_tensor error = WEFT_NONE;
    int64_t n, *out = NULL;
    bool *chosen = elements(op, weft_broadcast_to(mask, shape), WEFT_BOOL, &n, &error);
    int64_t count = chosen ? count_true(chosen, n) : 0;
    if (!chosen || !(out = integers(op, count, &error))) {
        wf_mfree(chosen);
        return error;
    }
    for (int64_t i = 0, k = 0; i < n; i++) {
        if (chosen[i]) {
            out[k++] = i;
        }
    }
    wf_mfree(chosen);
    weft_tensor indices = from_host(out, weft_shape(count), x);
    weft_tensor flat = wf_api_reshape(weft_broadcast_to(x, shape), 1, &n);
    return weft_index_select(flat, 0, indices);
}

weft_tensor(weft_masked_select)(weft_tensor x, weft_tensor mask)
{
    wf_arg a, m;
    if (!wf_arg_open(&a, "masked_select", x) || !wf_arg_open(&m, "masked_select", mask)) {
        return weft_ok(x) ? m.error : a.error;
    }
    if (m.type.dtype != WEFT_BOOL) {
        wf_arg_fail(&m, WEFT_EDTYPE, "compare first: weft_greater(x, weft_f(0))",
                    "a mask is bool, not %s", wf_dtype_name(m.type.dtype));
        return m.error;
    }
    wf_why why = {0};
    if (wf_broadcast(&a.type, &m.type, &why)) {
        return wf_raise(a.c, "masked_select", 2, (weft_tensor[]){x, mask}, &why);
    }
    weft_shape shape = weft_shape_from(a.type.rank, a.type.dims);
    WF_CALLED(w, "masked_select", x, mask);
    weft_scope s = weft_scope_begin();
    return wf_called_end(&w, weft_scope_return(s, masked_select(x, mask, shape)));
}

/* -- distinct elements -------------------------------------------------------------------------------- */

/* starts[i]: sorted[i] differs from the one before it. NaN equals NaN here. */
static bool *find_starts(const char *op, weft_tensor sorted, int64_t n, weft_tensor *error)
{
    weft_tensor a = weft_narrow(sorted, 0, 0, n - 1), b = weft_narrow(sorted, 0, 1, n - 1);
    weft_tensor differ = weft_not_equal(a, b);
    if (wf_dtype_kind((int)weft_dtype_of(sorted)) == 2) {
        differ = weft_logical_and(differ, weft_logical_not(weft_isnan(a)));
    }
    int64_t m;
    return elements(op, differ, WEFT_BOOL, &m, error);
}

typedef struct distinct {
    int64_t n, groups;
    bool *starts;    /* n - 1 */
    int64_t *order;  /* n: where sorted elements stood */
    int64_t *first;  /* of each group, among the sorted */
    int64_t *member; /* n: the group of each element */
    int64_t *count;  /* of each group */
} distinct;

/* Sorted elements one after the other. */
static void number_groups(distinct *d)
{
    for (int64_t i = 0; i < d->n; i++) {
        if (i == 0 || d->starts[i - 1]) {
            d->first[d->groups] = i;
            d->count[d->groups++] = 0;
        }
        d->count[d->groups - 1]++;
        d->member[d->order[i]] = d->groups - 1;
    }
}

static void give_error(weft_tensor *const out[3], weft_tensor error)
{
    for (int i = 0; i < 3; i++) {
        if (out[i]) {
            *out[i] = error;
        }
    }
}

/* Hands results to the scope around `scope`, those that are asked for; `error` where nothing was made. */
static weft_status hand_over(weft_scope scope, weft_tensor *const out[3], const weft_tensor made[3],
                             weft_tensor error)
{
    weft_status rc = wf_is_none(error) ? WEFT_OK : weft_error_status(error);
    for (int i = 0; i < 3 && rc == WEFT_OK; i++) {
        rc = out[i] ? weft_error_status(made[i]) : WEFT_OK;
    }
    for (int i = 0; i < 3 && rc == WEFT_OK; i++) {
        if (out[i]) {
            *out[i] = weft_scope_give(scope, made[i]);
        }
    }
    return rc;
}

/* Of elements of one byte: they are counted. */
static weft_status unique_bytes(weft_tensor x, const wf_type *type, weft_scope scope,
                                weft_tensor *const out[3])
{
    enum { VALUES = 256, TABLES = 4 /* equal bytes one after the other would wait */ };
    const int sign = type->dtype == WEFT_I8 ? 0x80 : 0;
    weft_tensor error = WEFT_NONE, made[3] = {WEFT_NONE, WEFT_NONE, WEFT_NONE};
    int64_t seen[TABLES][VALUES] = {{0}}, group[VALUES], groups = 0, n = wf_type_numel(type);
    uint8_t *v = elements("unique", wf_api_reshape(x, 1, &n), (weft_dtype)type->dtype, &n, &error);
    int64_t *value = v ? integers("unique", VALUES, &error) : NULL;
    int64_t *count = value ? integers("unique", VALUES, &error) : NULL;
    int64_t *member = count ? integers("unique", out[1] ? n : 1, &error) : NULL;
    if (member) {
        for (int64_t i = 0; i < n; i++) {
            seen[i % TABLES][v[i]]++;
        }
        for (int k = 0; k < VALUES; k++) {
            const int b = k ^ sign;
            const int64_t times = seen[0][b] + seen[1][b] + seen[2][b] + seen[3][b];
            group[b] = groups;
            if (times > 0) {
                value[groups] = k - sign;
                count[groups++] = times;
            }
        }
        for (int64_t i = 0; out[1] && i < n; i++) {
            member[i] = group[v[i]];
        }
        made[0] = (weft_cast)(from_host(value, weft_shape(groups), x), (weft_dtype)type->dtype);
        made[2] = from_host(count, weft_shape(groups), x);
        if (out[1]) {
            made[1] = from_host(member, weft_shape_from(type->rank, type->dims), x);
        } else {
            wf_mfree(member);
        }
    } else {
        wf_mfree(count);
        wf_mfree(value);
    }
    wf_mfree(v);
    return hand_over(scope, out, made, error);
}

/* Hands the results to the scope around `scope`; what is not asked for is freed. */
static weft_status unique(weft_tensor x, const wf_type *type, weft_scope scope,
                          weft_tensor *const out[3])
{
    const char *op = "unique";
    weft_tensor sorted, order, error = WEFT_NONE, made[3] = {WEFT_NONE, WEFT_NONE, WEFT_NONE};
    int64_t n = wf_type_numel(type), m;
    wf_ctx *c = wf_ctx_get();
    const char *site = wf_take_here(c); /* the reads' behind this */
    weft_status rc = weft_sort(wf_api_reshape(x, 1, &n), 0, false, &sorted, &order);
    if (c) {
        c->here = site;
    }
    if (rc != WEFT_OK) {
        return rc;
    }
    distinct d = {.n = n};
    d.starts = n > 1 ? find_starts(op, sorted, n, &error) : NULL;
    d.order = n <= 1 || d.starts ? elements(op, order, WEFT_I64, &m, &error) : NULL;
    d.first = d.order ? integers(op, n, &error) : NULL;
    d.member = d.first ? integers(op, n, &error) : NULL;
    d.count = d.member ? integers(op, n, &error) : NULL;
    if (d.count) {
        number_groups(&d);
        made[0] = weft_index_select(sorted, 0, from_host(d.first, weft_shape(d.groups), x));
        made[1] = from_host(d.member, weft_shape_from(type->rank, type->dims), x);
        made[2] = from_host(d.count, weft_shape(d.groups), x);
    } else {
        wf_mfree(d.first);
        wf_mfree(d.member);
    }
    wf_mfree(d.starts);
    wf_mfree(d.order);
    return hand_over(scope, out, made, error);
}

weft_status(weft_unique)(weft_tensor x, weft_tensor *values, weft_tensor *inverse,
                         weft_tensor *counts)
{
    wf_arg a;
    weft_tensor *const out[3] = {values, inverse, counts};
    const wf_ctx *c = wf_ctx_get();
    const char *site = c ? c->here : NULL; /* of what is read on the way, too */
    if (!wf_arg_open(&a, "unique", x)) {
        give_error(out, a.error);
        return weft_error_status(a.error);
    }
    WF_CALLED(w, "unique", x);
    weft_scope s = weft_scope_begin();
    weft_no_grad_begin();
    weft_status rc = (wf_dtype_size(a.type.dtype) == 1 ? unique_bytes : unique)(x, &a.type, s, out);
    weft_no_grad_end();
    weft_scope_end(s);
    if (rc != WEFT_OK) {
        give_error(out, wf_api_last_error());
    }
    for (int i = 0; i < 3 && rc == WEFT_OK; i++) {
        wf_site_results(site, out[i], out[i] != NULL);
    }
    return wf_called_done(&w, rc);
}

/* -- binary search ------------------------------------------------------------------------------------ */
enum { SEARCH_GRAIN = 4096 };

/* In place: f64 as their keys. */
static void order_keys(void *elements, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double *at = (double *)elements + i;
        const int64_t key = wf_key_f64(*at);
        memcpy(at, &key, sizeof key);
    }
}

typedef struct searching {
    const int64_t *sorted, *values;
    int64_t n, m, *out; /* m values to each n that are sorted */
    bool right;
} searching;

enum { SIDE_BY_SIDE = 4 };

/* The first of sorted[k][0..n), n > 0, that is not before v[k], or (right) that v[k] is before: without a branch on what is compared,
 * which a processor guesses wrong half of the time, and for several v side by side, since every step waits for the one before. */
__attribute__((always_inline)) static inline void
search_some(int64_t n, const int64_t *const *sorted, const int64_t *v, int64_t *out, bool right)
{
    const int64_t *from[SIDE_BY_SIDE];
#define EACH _Pragma("GCC unroll 4") for (int k = 0; k < SIDE_BY_SIDE; k++)
    EACH
    {
        from[k] = sorted[k];
    }
    for (; n > 1; n -= n / 2) {
        const int64_t half = n / 2;
        EACH
        {
            const int64_t x = from[k][half - 1];
            from[k] += half & -(int64_t)(right ? x <= v[k] : x < v[k]);
        }
    }
    EACH
    {
        out[k] = from[k] - sorted[k] + (int64_t)(right ? *from[k] <= v[k] : *from[k] < v[k]);
    }
#undef EACH
}

static void search_task(void *arg, int64_t begin, int64_t end)
{
    const searching *w = arg;
    int64_t row = begin / w->m, left = w->m - begin % w->m; /* values of this row to come */
    for (int64_t i = begin; i < end; i += SIDE_BY_SIDE) {
        int64_t v[SIDE_BY_SIDE], out[SIDE_BY_SIDE];
        const int64_t *sorted[SIDE_BY_SIDE];
        const int64_t count = end - i < SIDE_BY_SIDE ? end - i : SIDE_BY_SIDE;
        for (int64_t k = 0; k < SIDE_BY_SIDE; k++) {
            v[k] = w->values[i + (k < count ? k : 0)];
            sorted[k] = k < count ? w->sorted + row * w->n : sorted[0];
            if (k < count && --left == 0) {
                row++;
                left = w->m;
            }
        }
        if (w->right) {
            search_some(w->n, sorted, v, out, true);
        } else {
            search_some(w->n, sorted, v, out, false);
        }
        for (int64_t k = 0; k < count; k++) {
            w->out[i + k] = out[k];
        }
    }
}

/* What is compared, and as what: i64, which holds every integer (a number need not fit the tensor's own type), or f64. */
static weft_dtype search_type(weft_tensor pair[2])
{
    if (wf_dtype_kind((int)weft_dtype_of(pair[0])) == 2 ||
        wf_dtype_kind((int)weft_dtype_of(pair[1])) == 2) {
        wf_api_unify(2, pair);
        return WEFT_F64;
    }
    for (int i = 0; i < 2; i++) {
        pair[i] = wf_is_scalar(pair[i]) ? wf_api_scalar(pair[i], WEFT_I64) : pair[i];
    }
    return WEFT_I64;
}

static weft_tensor search(weft_tensor pair[2], int64_t rows, weft_shape shape, bool right)
{
    const char *op = "searchsorted";
    weft_tensor error = WEFT_NONE, sorted = pair[0];
    int64_t n, m, *out = NULL;
    const weft_dtype as = search_type(pair);
    void *s = elements(op, pair[0], as, &n, &error);
    void *v = s ? elements(op, pair[1], as, &m, &error) : NULL;
    if (v && (out = integers(op, m, &error))) {
        if (as == WEFT_F64) {
            order_keys(s, n);
            order_keys(v, m);
        }
        if (n > 0 && m > 0) {
            searching w = {s, v, n / rows, m / rows, out, right};
            wf_parallel_for(m, SEARCH_GRAIN, search_task, &w);
        } else {
            memset(out, 0, (size_t)m * sizeof *out);
        }
    }
    wf_mfree(s);
    wf_mfree(v);
    return out ? from_host(out, shape, sorted) : error;
}

/* Does a stand before b? NaN is above all numbers. */
static weft_tensor is_before(weft_tensor a, weft_tensor b, weft_dtype as)
{
    weft_tensor y = weft_less(a, b);
    if (as != WEFT_F64) {
        return y;
    }
    weft_tensor nan = weft_isnan(b);
    return weft_logical_or(y, weft_logical_and(nan, weft_logical_not(weft_isnan(a))));
}

/* The same without a look at the values: how many of n are before each, bit by bit from the highest. */
static weft_tensor search_unseen(weft_tensor pair[2], int64_t n, weft_shape shape, bool right)
{
    wf_ctx *c = wf_ctx_get();
    const int before = wf_device_enter(c, wf_device_of_handle(c, pair[0]));
    weft_tensor found = weft_zeros(shape, WEFT_I64);
    wf_device_enter(c, before);
    const weft_dtype as = search_type(pair);
    const weft_tensor sorted = weft_cast(pair[0], as);
    const weft_tensor v = weft_cast(pair[1], as), last = weft_i(n);
    int64_t bit = 1;
    while (bit <= n / 2) {
        bit *= 2;
    }
    for (; n > 0 && bit > 0; bit /= 2) {
        const weft_tensor probe = weft_add(found, weft_i(bit));
        const weft_tensor at = weft_sub(weft_minimum(probe, last), weft_i(1));
        const weft_tensor x = weft_rank(sorted) == 1 ? weft_index_select(sorted, 0, at)
                                                     : weft_take_along(sorted, -1, at);
        weft_tensor counts = right ? weft_logical_not(is_before(v, x, as)) : is_before(x, v, as);
        counts = weft_logical_and(counts, weft_less_equal(probe, last));
        found = weft_where(counts, probe, found);
    }
    return found;
}

static weft_tensor not_searched(weft_tensor sorted, weft_tensor values, const char *rule)
{
    const weft_tensor both[2] = {sorted, values};
    wf_why why;
    wf_why_clear(&why);
    wf_fail(&why, WEFT_ESHAPE, "%s", rule);
    wf_hint(&why, "sorted is [n], or [.., n] with values [.., m] of the same leading extents");
    return wf_raise(wf_ctx_get(), "searchsorted", 2, both, &why);
}

/* As dispatch has it, which neither way of searching hands both to: a number is wherever it is needed. */
static weft_tensor searched_elsewhere(weft_tensor sorted, weft_tensor values, int at, int there)
{
    const weft_tensor both[2] = {sorted, values};
    wf_why why;
    wf_why_clear(&why);
    wf_fail(&why, WEFT_EINVALID, "operands are on two devices: operand 0 on %s, operand 1 on %s",
            wf_device_code_name(at), wf_device_code_name(there));
    wf_hint(&why, "move one of them: weft_to(x, device)");
    return wf_raise(wf_ctx_get(), "searchsorted", 2, both, &why);
}

weft_tensor(weft_searchsorted)(weft_tensor sorted, weft_tensor values, bool right)
{
    wf_arg a, v;
    if (!wf_arg_open(&a, "searchsorted", sorted) || !wf_arg_open(&v, "searchsorted", values)) {
        return weft_ok(sorted) ? v.error : a.error;
    }
    const int lead = a.type.rank - 1;
    int64_t rows = 1;
    bool fits = a.type.rank == 1 || a.type.rank == v.type.rank;
    for (int i = 0; i < lead && fits; i++) {
        fits = a.type.dims[i] == v.type.dims[i];
        rows *= a.type.dims[i];
    }
    if (lead < 0 || !fits) {
        return not_searched(sorted, values,
                            lead < 0 ? "what is searched has rank 0"
                                     : "the rows that are searched are not those of "
                                       "the values");
    }
    wf_ctx *c = wf_ctx_get();
    const int at = wf_device_of_handle(c, sorted), there = wf_device_of_handle(c, values);
    if (at != there && (there != WF_DEVICE_HOST || v.type.rank > 0)) {
        return searched_elsewhere(sorted, values, at, there);
    }
    WF_CALLED(w, "searchsorted", sorted, values);
    const weft_shape shape = weft_shape_from(v.type.rank, v.type.dims);
    weft_tensor pair[2] = {sorted, values};
    weft_scope s = weft_scope_begin();
    weft_no_grad_begin();
    weft_tensor y = c->recorder || at != WF_DEVICE_HOST
                        ? search_unseen(pair, a.type.dims[lead], shape, right)
                        : search(pair, rows, shape, right);
    weft_no_grad_end();
    return wf_called_end(&w, weft_scope_return(s, y));
}
