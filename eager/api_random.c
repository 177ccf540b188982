/*
 * eager/api_random.c -- generators and random tensors (weft/random.h).
 *
 * Invariant: a call that succeeds advances its generator by exactly the blocks it may have read; a
 * call that fails leaves it alone.
 */
#include <math.h>
#include <string.h>

#include "eager/api.h"
#include "eager/call.h"
#include "eager/device.h"
#include "eager/rng_core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

weft_generator *weft_default_generator(void)
{
    wf_ctx *c = wf_ctx_get();
    return c ? &c->rng : NULL;
}

void weft_manual_seed(uint64_t seed)
{
    wf_ctx *c = wf_ctx_get();
    if (c) {
        if (c->recorder) {
            c->recorder->never(
                c->recorder,
                "it seeds the thread's generator: seed it before the call, or give rows a "
                ".generator that the caller has seeded");
        }
        c->rng = (weft_generator){seed, 0};
    }
}

/* Does g end with the function that d watches? Then the function makes it again when it runs again. */
static bool is_local(const wf_draws *d, const weft_generator *g)
{
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0), at = (uintptr_t)g;
    return here < at && at < (uintptr_t)d->frame;
}

void wf_tell_draw(const wf_ctx *c, weft_generator *g)
{
    weft_generator *of = g == &c->rng ? NULL : g;
    for (wf_draws *d = c->draws; d; d = d->outer) {
        int i = 0;
        while (i < d->n && d->from[i].of != of) {
            i++;
        }
        if (i < d->n || is_local(d, g)) {
            continue;
        }
        if (i == WF_WATCHED_GENERATORS) {
            d->more = true;
        } else {
            d->from[i].of = of;
            d->from[i].at = *g;
            d->n++;
        }
    }
}

/* Runs a random row: extents, seed, offset and more[n_more] are its integer slots. */
static weft_tensor draw(wf_op op, const weft_shape *shape, weft_dtype dtype, weft_dtype dflt,
                        wf_rng_kind kind, weft_generator *g, const double *flt, int n_flt,
                        const int64_t *more, int n_more)
{
    const char *name = wf_rows[op].name;
    int64_t dyn[WF_MAX_RANK + 4];
    if (!wf_api_shape_ok(name, shape)) {
        return wf_api_last_error();
    }
    if (!wf_api_dtype_ok(dtype)) {
        return wf_api_error(name, WEFT_EDTYPE, "%d is not an element type; use WEFT_F32, ...",
                            (int)dtype);
    }
    const bool named = g != NULL;
    g = g ? g : weft_default_generator();
    if (!g) {
        return wf_raise(NULL, name, 0, NULL, NULL);
    }
    int n = (int)shape->n;
    memcpy(dyn, shape->v, (size_t)n * sizeof *dyn);
    dyn[n] = (int64_t)g->seed;
    dyn[n + 1] = (int64_t)g->offset;
    if (n_more) {
        memcpy(dyn + n + 2, more, (size_t)n_more * sizeof *dyn);
    }
    wf_attr attr = {.dtype = (uint8_t)(dtype ? dtype : dflt),
                    .n_dyn = (uint8_t)(n + 2 + n_more),
                    .dyn = dyn,
                    .n_flt = (uint8_t)n_flt,
                    .flt = flt};
    weft_tensor r = wf_op0(op, &attr);
    if (r.slot != 0) {
        wf_type t = {.dtype = attr.dtype, .rank = (uint8_t)n};
        memcpy(t.dims, shape->v, (size_t)n * sizeof *dyn);
        const uint64_t blocks = wf_rng_blocks(kind, (uint64_t)wf_type_numel(&t));
        wf_ctx *c = wf_ctx_get();
        wf_recorder *recorder = c->recorder;
        wf_tell_draw(c, g);
        if (recorder) {
            recorder->drew(recorder, g, named, blocks);
        }
        g->offset += blocks;
    }
    return r;
}

static wf_rng_kind by_width(weft_dtype dtype, wf_rng_kind f32, wf_rng_kind f64)
{
    return dtype == WEFT_F64 ? f64 : f32;
}

weft_tensor(weft_rand)(const weft_rand_args *args)
{
    if (!args) {
        return wf_api_null("rand", "the argument struct");
    }
    double flt[2] = {args->low, args->low == 0 && args->high == 0 ? 1 : args->high};
    return draw(WF_OP_RAND, &args->shape, args->dtype, WEFT_F32,
                by_width(args->dtype, WF_RNG_UNIFORM_F32, WF_RNG_UNIFORM_F64), args->generator, flt,
                2, NULL, 0);
}

weft_tensor(weft_randn)(const weft_randn_args *args)
{
    if (!args) {
        return wf_api_null("randn", "the argument struct");
    }
    double flt[2] = {args->mean, wf_option(args->std, 1)};
    return draw(WF_OP_RANDN, &args->shape, args->dtype, WEFT_F32,
                by_width(args->dtype, WF_RNG_NORMAL_F32, WF_RNG_NORMAL_F64), args->generator, flt,
                2, NULL, 0);
}

weft_tensor(weft_randint)(const weft_randint_args *args)
{
    if (!args) {
        return wf_api_null("randint", "the argument struct");
    }
    int64_t range[2] = {args->low, args->high};
    int dt = args->dtype ? (int)args->dtype : WEFT_I64;
    if (wf_api_dtype_ok(args->dtype) && wf_dtype_kind(dt) < 2 && range[0] < range[1]) {
        int64_t first = range[0], last = range[1] - 1;
        wf_why why = {0};
        if (!wf_dtype_holds(dt, first) || !wf_dtype_holds(dt, last)) {
            wf_refuse_number(&why, wf_dtype_holds(dt, first) ? last : first, dt, false);
            return wf_raise(wf_ctx_get(), "randint", 0, NULL, &why);
        }
    }
    return draw(WF_OP_RANDINT, &args->shape, args->dtype, WEFT_I64, WF_RNG_RANDINT, args->generator,
                NULL, 0, range, 2);
}

weft_tensor(weft_bernoulli)(const weft_bernoulli_args *args)
{
    if (!args) {
        return wf_api_null("bernoulli", "the argument struct");
    }
    double p = wf_option(args->p, 0.5);
    return draw(WF_OP_BERNOULLI, &args->shape, args->dtype, WEFT_BOOL, WF_RNG_BERNOULLI,
                args->generator, &p, 1, NULL, 0);
}

weft_tensor(weft_randperm)(const weft_randperm_args *args)
{
    if (!args) {
        return wf_api_null("randperm", "the argument struct");
    }
    weft_shape shape = weft_shape_from(1, &args->n);
    return draw(WF_OP_RANDPERM, &shape, args->dtype, WEFT_I64, WF_RNG_RANDINT, args->generator,
                NULL, 0, NULL, 0);
}

/* -- classes by their weights ------------------------------------------------------------------------------ */

/* With replacement a number below the sum of a row's weights falls into one of them. They are scaled to integers first:
 * their running sums are exact and ascend, so a weight of 0 has no room, whatever the rounding. Divided by their sum before
 * that: its inverse may be infinite.
 *
 * Without, every class gets weight / e with e of an exponential distribution of its own, and the n largest are taken: the
 * first is class k with probability weight_k / sum, and so on among the rest (Efraimidis and Spirakis 2006). Compared are
 * logarithms, as quotients of the largest and the smallest weights are infinite or 0. */
enum { WEIGHT_BITS = 52 }; /* of the sum of a row; numbers of [0, 1) have 53 */

static weft_tensor uniform(const wf_arg *a, weft_shape shape, weft_generator *g)
{
    int before = wf_device_enter(a->c, a->device);
    weft_tensor u = weft_rand(shape, WEFT_F64, .generator = g);
    wf_device_enter(a->c, before);
    return u;
}

/* Of each t [.., n], in [0, sum), the first class whose running sum is above: sums [.., c], c >= 1. */
static weft_tensor first_above(weft_tensor sums, weft_tensor t, int64_t classes)
{
    weft_tensor low = weft_mul(t, weft_i(0)), high = weft_add(low, weft_i(classes - 1));
    for (int64_t left = classes; left > 1; left = (left + 1) / 2) {
        weft_tensor mid = weft_bitwise_right_shift(weft_add(low, high), weft_i(1));
        weft_tensor above = weft_greater(weft_take_along(sums, -1, mid), t);
        low = weft_where(above, low, weft_add(mid, weft_i(1)));
        high = weft_where(above, mid, high);
        low = weft_minimum(low, high); /* where they have met */
    }
    return low;
}

static weft_tensor with_replacement(const wf_arg *a, weft_tensor w, weft_shape out,
                                    weft_generator *g)
{
    const int64_t classes = a->type.dims[a->type.rank - 1];
    weft_tensor sum = weft_sum(w, .axes = weft_axes(-1), .keepdim = true);
    weft_tensor part = weft_div(w, sum), unit = weft_f((double)((int64_t)1 << WEIGHT_BITS));
    weft_tensor whole = weft_cast(weft_mul(part, unit), WEFT_I64); /* NaN, of a sum 0 or inf: 0 */
    weft_tensor sums = weft_cumsum(whole, -1);
    weft_tensor last = weft_narrow(sums, -1, classes - 1, 1);
    weft_tensor t = uniform(a, out, g);
    t = weft_cast(weft_mul(t, weft_cast(last, WEFT_F64)), WEFT_I64);
    weft_tensor any = weft_greater(last, weft_i(0));
    return weft_where(any, first_above(sums, t, classes), weft_i(-1));
}

static weft_tensor without_replacement(const wf_arg *a, weft_tensor w, int64_t n, weft_generator *g)
{
    weft_shape shape = weft_shape_from(a->type.rank, a->type.dims);
    weft_tensor e = weft_neg(weft_log1p(weft_neg(uniform(a, shape, g))));
    weft_tensor keys = weft_log(w);
    keys = weft_sub(keys, weft_log(e));
    keys = weft_where(weft_greater(w, weft_f(0)), keys, weft_f(-INFINITY));
    weft_tensor best, at;
    if (weft_topk(keys, n, -1, false, &best, &at) != WEFT_OK) {
        return wf_api_last_error();
    }
    return weft_where(weft_greater(best, weft_f(-INFINITY)), at, weft_i(-1));
}

static bool multinomial_ok(wf_arg *a, const weft_multinomial_args *args, int64_t n)
{
    if (a->type.rank < 1) {
        return wf_arg_fail(a, WEFT_ESHAPE, "classes are the last axis: weights[.., c]",
                           "a scalar has no classes to draw from");
    }
    const int64_t classes = a->type.dims[a->type.rank - 1];
    if (!(WF_BIT(a->type.dtype) & WF_DT_F)) {
        return wf_arg_fail(a, WEFT_EDTYPE, "cast first: weft_cast(weights, WEFT_F32)",
                           "%s elements are no weights", wf_dtype_name(a->type.dtype));
    }
    if (classes < 1) {
        return wf_arg_fail(a, WEFT_ESHAPE, "classes are the last axis: weights[.., c]",
                           "there are no classes to draw from");
    }
    if (n < 1) {
        return wf_arg_fail(a, WEFT_EINVALID, "0, the default, is one", "%lld draws are asked for",
                           (long long)n);
    }
    if (!args->replacement && n > classes) {
        return wf_arg_fail(a, WEFT_EINVALID, ".replacement = true draws a class more than once",
                           "%lld draws of %lld classes are asked for", (long long)n,
                           (long long)classes);
    }
    return true;
}

weft_tensor(weft_multinomial)(const weft_multinomial_args *args)
{
    wf_arg a;
    if (!args) {
        return wf_api_null("multinomial", "the argument struct");
    }
    const int64_t n = args->n == 0 ? 1 : args->n;
    if (!wf_arg_open(&a, "multinomial", args->weights) || !multinomial_ok(&a, args, n)) {
        return a.error;
    }
    weft_generator *g = args->generator ? args->generator : &a.c->rng;
    const weft_generator before = *g;
    weft_shape out = weft_shape_from(a.type.rank, a.type.dims);
    out.v[out.n - 1] = n;
    WF_CALLED(w, "multinomial", args->weights);
    weft_scope s = weft_scope_begin();
    weft_no_grad_begin();
    weft_tensor wide = weft_cast(args->weights, WEFT_F64);
    wide = weft_where(weft_greater(wide, weft_f(0)), wide, weft_f(0)); /* NaN: 0 */
    weft_tensor y = args->replacement || n == 1 ? with_replacement(&a, wide, out, args->generator)
                                                : without_replacement(&a, wide, n, args->generator);
    weft_no_grad_end();
    if (!weft_ok(y)) {
        *g = before;
    }
    return wf_called_end(&w, weft_scope_return(s, y));
}
