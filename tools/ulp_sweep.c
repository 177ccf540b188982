/*
 * tools/ulp_sweep.c -- measures the error and the speed of jit/ir/math_f32.h and math_f64.h.
 *
 * Unary f32 functions are swept over all 2^32 arguments (or every N-th) against double references;
 * f64 and two-argument functions are sampled: f64 against MPFR, f32 pairs against double.
 *
 * script/ulp builds and runs it.
 *
 * Invariants
 *  - An error is in units of the last place of the format's number nearest the exact result, the
 *    unit of subnormal results being that of the smallest normal ones.
 *  - NaN for a number or the reverse, a wrong infinity and a wrong sign of zero are not errors in
 *    ULP but counted on their own, and any makes the exit status 1.
 */
#include "jit/ir/dict_c.h"

#include "jit/ir/math_f64.h"

#include "jit/ir/math_f32.h"

#include "jit/ir/rowfun.h"

#include "ulp_ref.h"

#include <float.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BLOCK = 4096, MAX_THREADS = 64 };

/* -- rows that are an expression ---------------------------------------------------------------- */

/* Each as a function row_<name>_f32 and _f64; rows of integers are none. */
#define IF_F(...) __VA_ARGS__
#define IF_FI(...) __VA_ARGS__
#define IF_I(...)
#define ROW_FUNCTION(T, name, expr)                                                                \
    static inline __attribute__((unused)) T name(T x)                                              \
    {                                                                                              \
        return expr;                                                                               \
    }
#define K(v) KF32(v)
#define TC(fn, ...) fn##_f32(__VA_ARGS__)
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    IF_##types(ROW_FUNCTION(float, row_##name##_f32, expr))
#include "jit/ir/ops.def"
#undef K
#undef TC
#define K(v) KF64(v)
#define TC(fn, ...) fn##_f64(__VA_ARGS__)
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    IF_##types(ROW_FUNCTION(double, row_##name##_f64, expr))
#include "jit/ir/ops.def"
#undef K
#undef TC

/* -- the functions ----------------------------------------------------------------------------- */

/* name and the range timed (and sampled most) */
/* clang-format off */
#define UNARY(X)                                                                                   \
    X(exp, -20, 20) X(exp2, -20, 20) X(expm1, -20, 20) X(log, 0.01, 100) X(log2, 0.01, 100)        \
    X(log10, 0.01, 100) X(log1p, -0.9, 100) X(sin, -50, 50) X(cos, -50, 50) X(tan, -50, 50)        \
    X(asin, -1, 1) X(acos, -1, 1) X(atan, -10, 10) X(sinh, -20, 20) X(cosh, -20, 20)               \
    X(tanh, -5, 5) X(asinh, -10, 10) X(acosh, 1, 10) X(atanh, -1, 1) X(sigmoid, -10, 10)           \
    X(erf, -4, 4) X(erfc, -4, 10) X(rsqrt, 0.01, 100) X(cbrt, -100, 100) X(normcdf, -10, 10)       \
    X(gelu, -8, 8) X(gelu_tanh, -8, 8) X(softplus, -20, 20) X(log_sigmoid, -20, 20)                \
    X(silu, -10, 10) X(mish, -10, 10)
#define ROWS(X)                                                                                    \
    X(sqrt, 0.01, 100) X(reciprocal, -10, 10) X(relu6, -10, 10) X(hardsigmoid, -5, 5)              \
    X(hardswish, -5, 5) X(selu, -10, 10)
#define BINARY(X) X(atan2, -10, 10) X(pow, 0, 10) X(hypot, -10, 10)
/* clang-format on */
/* timed only: what kernels run when no argument of a block is rare */
#define FAST(X) X(sin, -50, 50) X(cos, -50, 50) X(tan, -50, 50)

/* clang is told to interleave as the compiled kernels do; gcc has no such request */
#ifdef __clang__
#define WIDE _Pragma("clang loop interleave_count(4)")
#else
#define WIDE
#endif
#define LOOP1(name, type)                                                                          \
    __attribute__((noinline)) static void run_##name(const type *restrict x, type *restrict y,     \
                                                     size_t n)                                     \
    {                                                                                              \
        WIDE for (size_t i = 0; i < n; i++) y[i] = name(x[i]);                                     \
    }
#define LOOP2(name, type)                                                                          \
    __attribute__((noinline)) static void run_##name(                                              \
        const type *restrict x, const type *restrict y, type *restrict z, size_t n)                \
    {                                                                                              \
        WIDE for (size_t i = 0; i < n; i++) z[i] = name(x[i], y[i]);                               \
    }
#define X(n, a, b) LOOP1(n##_f32, float) LOOP1(n##_f64, double)
UNARY(X)
#undef X
#define X(n, a, b) LOOP1(row_##n##_f32, float) LOOP1(row_##n##_f64, double)
ROWS(X)
#undef X
#define X(n, a, b) LOOP1(n##_f32_fast, float) LOOP1(n##_f64_fast, double)
FAST(X)
#undef X
#define X(n, a, b) LOOP2(n##_f32, float) LOOP2(n##_f64, double)
BINARY(X)
#undef X

struct fun {
    const char *name;
    double lo, hi;
    double
        term; /* the unit of errors is that of this value at least: terms of the formula cancel */
    void (*f1)(const float *, float *, size_t);
    void (*f2)(const float *, const float *, float *, size_t);
    void (*d1)(const double *, double *, size_t);
    void (*d2)(const double *, const double *, double *, size_t);
    double (*ref1)(double);
    double (*ref2)(double, double);
    mp_unary *mp1;
    mp_binary *mp2;
};

static const struct fun funs[] = {
#define X(n, a, b) {.name = #n "_f32", .lo = a, .hi = b, .f1 = run_##n##_f32, .ref1 = ref_##n},
    UNARY(X)
#undef X
#define TERM_OF_sqrt 0
#define TERM_OF_reciprocal 0
#define TERM_OF_relu6 0
#define TERM_OF_hardsigmoid 0.5
#define TERM_OF_hardswish 0
#define TERM_OF_selu 0
#define X(n, a, b)                                                                                 \
    {.name = #n "_f32",                                                                            \
     .lo = a,                                                                                      \
     .hi = b,                                                                                      \
     .term = TERM_OF_##n,                                                                          \
     .f1 = run_row_##n##_f32,                                                                      \
     .ref1 = ref_##n},
        ROWS(X)
#undef X
#define X(n, a, b) {.name = #n "_f32", .lo = a, .hi = b, .f2 = run_##n##_f32, .ref2 = ref_##n},
            BINARY(X)
#undef X
#define X(n, a, b) {.name = #n "_f32_fast", .lo = a, .hi = b, .f1 = run_##n##_f32_fast},
                FAST(X)
#undef X
#define X(n, a, b) {.name = #n "_f64", .lo = a, .hi = b, .d1 = run_##n##_f64, .mp1 = mp_##n},
                    UNARY(X)
#undef X
#define X(n, a, b)                                                                                 \
    {.name = #n "_f64",                                                                            \
     .lo = a,                                                                                      \
     .hi = b,                                                                                      \
     .term = TERM_OF_##n,                                                                          \
     .d1 = run_row_##n##_f64,                                                                      \
     .mp1 = mp_##n},
                        ROWS(X)
#undef X
#define X(n, a, b) {.name = #n "_f64", .lo = a, .hi = b, .d2 = run_##n##_f64, .mp2 = mp_##n},
                            BINARY(X)
#undef X
#define X(n, a, b) {.name = #n "_f64_fast", .lo = a, .hi = b, .d1 = run_##n##_f64_fast},
                                FAST(X)
#undef X
};
enum { N_FUNS = sizeof funs / sizeof funs[0] };

/* -- errors ------------------------------------------------------------------------------------ */

struct tally {
    uint64_t count, special;
    double max, at, at2, special_at, special_at2;
};

static void merge(struct tally *t, const struct tally *u)
{
    t->count += u->count;
    if (!t->special && u->special) {
        t->special_at = u->special_at;
        t->special_at2 = u->special_at2;
    }
    t->special += u->special;
    if (u->max > t->max) {
        t->max = u->max;
        t->at = u->at;
        t->at2 = u->at2;
    }
}

static void note(struct tally *t, double err, double x, double y)
{
    t->count++;
    if (err < 0) {
        if (!t->special++) {
            t->special_at = x;
            t->special_at2 = y;
        }
    } else if (err > t->max) {
        t->max = err;
        t->at = x;
        t->at2 = y;
    }
}

/* Error of got in ULP of f32 against the nearly exact ref; -1 for a wrong special value. */
static double ulp_f32(float got, double ref)
{
    if (isnan(ref) || isnan(got))
        return isnan(ref) && isnan(got) ? 0 : -1;
    if ((got == 0 || ref == 0) && (!signbit(got) != !signbit(ref) || (ref == 0 && got != 0)))
        return -1;
    if (isinf(ref) || (isinf(got) && (ref > 0) != (got > 0)))
        return (double)got == ref ? 0 : -1;
    uint64_t bits;
    memcpy(&bits, &ref, sizeof bits);
    int e = (int)(bits >> 52 & 2047) - 1023;
    e = (e < -126 ? -126 : e > 127 ? 127 : e) - 23;
    uint64_t sbits = (uint64_t)(1023 - e) << 52; /* 1 / ulp */
    double scale;
    memcpy(&scale, &sbits, sizeof scale);
    if (isinf(got)) /* right from half an ulp above the largest number on */
        return fabs(ref) >= 0x1.ffffffp127 ? 0 : (0x1p128 - fabs(ref)) * scale;
    if (fabs(ref) >= 0x1.ffffffp127)
        return (0x1p128 - fabs((double)got)) * scale;
    return fabs((double)got - ref) * scale;
}

/* The same for f64; scratch is a spare variable. */
static double ulp_f64(double got, const mpfr_t ref, mpfr_t scratch)
{
    if (mpfr_nan_p(ref) || isnan(got))
        return mpfr_nan_p(ref) && isnan(got) ? 0 : -1;
    if ((got == 0 || mpfr_zero_p(ref)) &&
        (!signbit(got) != !mpfr_signbit(ref) || (mpfr_zero_p(ref) && got != 0)))
        return -1;
    if (mpfr_inf_p(ref) || (isinf(got) && (mpfr_sgn(ref) > 0) != (got > 0)))
        return isinf(got) && mpfr_inf_p(ref) && (mpfr_sgn(ref) > 0) == (got > 0) ? 0 : -1;
    if (mpfr_zero_p(ref))
        return 0;
    if (isinf(got) && isinf(mpfr_get_d(ref, MPFR_RNDN)))
        return 0;
    long e = mpfr_get_exp(ref) - 1;
    e = (e < -1022 ? -1022 : e > 1023 ? 1023 : e) - 52;
    if (isinf(got)) {
        mpfr_set_ui_2exp(scratch, 1, 1024, MPFR_RNDN);
        mpfr_setsign(scratch, scratch, got < 0, MPFR_RNDN);
        mpfr_sub(scratch, scratch, ref, MPFR_RNDN);
    } else {
        mpfr_d_sub(scratch, got, ref, MPFR_RNDN);
    }
    mpfr_mul_2si(scratch, scratch, -e, MPFR_RNDN);
    return fabs(mpfr_get_d(scratch, MPFR_RNDN));
}

static int check(const char *what, bool ok)
{
    if (!ok)
        fprintf(stderr, "self-test failed: %s\n", what);
    return !ok;
}

static int self_test(void)
{
    int bad = 0;
    mpfr_t r, s;
    mpfr_inits2(PREC, r, s, (mpfr_ptr)0);
    bad += check("exact", ulp_f32(1.5F, 1.5) == 0);
    bad += check("one ulp above 1", ulp_f32(1.0F + 0x1p-23F, 1.0) == 1);
    bad += check("one ulp below 2", ulp_f32(2.0F - 0x1p-23F, 2.0) == 0.5);
    bad += check("half ulp", ulp_f32(1.0F, 1.0 + 0x1p-24) == 0.5);
    bad += check("subnormal ulp", ulp_f32(0x1p-149F, 0x1p-148) == 1);
    bad += check("underflow to zero", ulp_f32(0.0F, 0x1p-150) == 0.5);
    bad += check("lost sign of underflow", ulp_f32(0.0F, -0x1p-150) < 0);
    bad += check("sign of zero", ulp_f32(-0.0F, 0.0) < 0);
    bad += check("zero for zero", ulp_f32(-0.0F, -0.0) == 0);
    bad += check("subnormal for zero", ulp_f32(0x1p-149F, 0.0) < 0);
    bad += check("nan for number", ulp_f32(NAN, 1.0) < 0);
    bad += check("number for nan", ulp_f32(1.0F, NAN) < 0);
    bad += check("nan for nan", ulp_f32(NAN, NAN) == 0);
    bad += check("inf of the wrong sign", ulp_f32(-INFINITY, 1e300) < 0);
    bad += check("inf for inf", ulp_f32(INFINITY, INFINITY) == 0);
    bad += check("number for inf", ulp_f32(0x1.fffffep127F, INFINITY) < 0);
    bad += check("overflow", ulp_f32(INFINITY, 1e300) == 0);
    bad += check("early inf", ulp_f32(INFINITY, 0x1.fffffcp127) == 2);
    bad += check("late inf", ulp_f32(0x1.fffffep127F, 0x1p128) == 1);
    mpfr_set_d(r, 1.0, MPFR_RNDN);
    bad += check("f64 exact", ulp_f64(1.0, r, s) == 0);
    bad += check("f64 one ulp", ulp_f64(1.0 + 0x1p-52, r, s) == 1);
    bad += check("f64 nan for number", ulp_f64(NAN, r, s) < 0);
    bad += check("f64 inf for number", ulp_f64(-INFINITY, r, s) < 0);
    mpfr_set_d(r, 0x1p-1074, MPFR_RNDN);
    bad += check("f64 subnormal", ulp_f64(0x1p-1073, r, s) == 1);
    bad += check("f64 underflow", ulp_f64(0.0, r, s) == 1);
    bad += check("f64 underflow sign", ulp_f64(-0.0, r, s) < 0);
    mpfr_set_zero(r, -1);
    bad += check("f64 sign of zero", ulp_f64(0.0, r, s) < 0 && ulp_f64(-0.0, r, s) == 0);
    mpfr_set_inf(r, 1);
    bad += check("f64 inf", ulp_f64(INFINITY, r, s) == 0 && ulp_f64(-INFINITY, r, s) < 0);
    mpfr_set_nan(r);
    bad += check("f64 nan", ulp_f64(NAN, r, s) == 0 && ulp_f64(0.0, r, s) < 0);
    mpfr_set_ui_2exp(r, 1, 1024, MPFR_RNDN);
    bad += check("f64 late inf", ulp_f64(0x1.fffffffffffffp1023, r, s) == 1);
    bad += check("f64 overflow", ulp_f64(INFINITY, r, s) == 0);
    mpfr_clears(r, s, (mpfr_ptr)0);
    printf("self-test: %s\n", bad ? "FAILED" : "ok");
    return bad;
}

/* -- arguments --------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static double uniform(uint64_t *state)
{
    return (double)(next_random(state) >> 11) * 0x1p-53;
}

static const double lattice[] = {
    0.0,
    0x1p-1074,
    0x1.fffffffffffffp-1023,
    0x1p-1022,
    0x1p-149,
    0x1p-126,
    0x1p-60,
    0x1p-54,
    0x1p-28,
    0x1p-25,
    0.25,
    0.5,
    0x1.6a09e667f3bcdp-1,
    0.75,
    1.0,
    0x1.6a09e667f3bcdp0,
    1.5,
    2.0,
    3.0,
    4.0,
    5.0,
    0x1.921fb54442d18p-1,
    0x1.921fb54442d18p0,
    0x1.921fb54442d18p1,
    0x1.921fb54442d18p2,
    0x1.2d97c7f3321d2p1,
    10.0,
    16.0,
    28.0,
    37.5,
    40.0,
    0x1.62e42fefa39efp-1,
    0x1.62e42fefa39efp9,
    708.3964185322641,
    709.782712893384,
    745.1332191019411,
    1022.0,
    1024.0,
    1074.0,
    1075.0,
    0x1p17,
    0x1p30,
    0x1p31,
    0x1p52,
    0x1p53,
    0x1p60,
    0x1.921fb54442d18p60,
    6381956970095103.0 * 0x1p797,
    0x1p127,
    0x1.fffffep127,
    0x1p1023,
    0x1.fffffffffffffp1023,
};

/* A structured argument: specials and neighbours, every exponent, or the range of interest. */
static double argument(uint64_t *state, double lo, double hi)
{
    enum { N = sizeof lattice / sizeof lattice[0] };
    uint64_t r = next_random(state);
    double v;
    uint64_t bits;
    switch (r & 7) {
    case 0:
        v = lattice[(r >> 8) % N];
        memcpy(&bits, &v, sizeof bits);
        bits += (r >> 20 & 15) - (bits > 8 ? 8 : 0);
        memcpy(&v, &bits, sizeof v);
        if ((r >> 24 & 63) == 0)
            v = r >> 30 & 1 ? INFINITY : NAN;
        break;
    case 1:
    case 2:
        bits = next_random(state) & 0x7fffffffffffffff;
        memcpy(&v, &bits, sizeof v);
        break;
    case 3:
    case 4:
        bits = (next_random(state) >> 12) | (1023 - 12 + (r >> 8) % 24) << 52;
        memcpy(&v, &bits, sizeof v);
        break;
    default:
        return lo + (hi - lo) * uniform(state);
    }
    return r >> 40 & 1 ? -v : v;
}

/* For pow: an exponent that takes the result anywhere between underflow and overflow. */
static double second(const struct fun *f, uint64_t *state, double x, double limit)
{
    double l = log(fabs(x));
    if (f->ref2 != pow && f->mp2 != mp_pow)
        return next_random(state) & 1 ? argument(state, f->lo, f->hi)
                                      : x * exp2(30 * uniform(state) - 15);
    uint64_t r = next_random(state);
    if ((r & 3) == 0)
        return argument(state, -5, 5);
    if ((r & 3) == 1)
        return trunc(20 * uniform(state) - 10);
    return (2 * uniform(state) - 1) * limit / l;
}

/* -- sweeps ------------------------------------------------------------------------------------ */

struct job {
    const struct fun *f;
    uint64_t begin, end, stride, sample, seed;
    struct tally t;
};

static void *sweep_f32(void *arg)
{
    struct job *j = arg;
    static _Thread_local float x[BLOCK], y[BLOCK];
    for (uint64_t u = j->begin; u < j->end;) {
        size_t n = 0;
        for (; n < BLOCK && u < j->end; n++, u += j->stride)
            x[n] = wf_flt32((uint32_t)u);
        j->f->f1(x, y, n);
        for (size_t i = 0; i < n; i++) {
            double ref = j->f->ref1((double)x[i]);
            double err = ulp_f32(y[i], ref);
            if (j->f->term != 0 && fabs(ref) < j->f->term) /* of a zero, too */
                err = fabs((double)y[i] - ref) / (FLT_EPSILON * j->f->term);
            note(&j->t, err, (double)x[i], 0);
        }
    }
    return NULL;
}

static void *sample_f32_pairs(void *arg)
{
    struct job *j = arg;
    static _Thread_local float x[BLOCK], y[BLOCK], z[BLOCK];
    for (uint64_t done = 0; done < j->sample; done += BLOCK) {
        for (size_t i = 0; i < BLOCK; i++) {
            x[i] = (float)argument(&j->seed, j->f->lo, j->f->hi);
            y[i] = (float)second(j->f, &j->seed, (double)x[i], 105);
        }
        j->f->f2(x, y, z, BLOCK);
        for (size_t i = 0; i < BLOCK; i++)
            note(&j->t, ulp_f32(z[i], j->f->ref2((double)x[i], (double)y[i])), (double)x[i],
                 (double)y[i]);
    }
    return NULL;
}

static void *sample_f64(void *arg)
{
    struct job *j = arg;
    static _Thread_local double x[BLOCK], y[BLOCK], z[BLOCK];
    mpfr_t a, b, r, s;
    mpfr_inits2(PREC, a, b, r, s, (mpfr_ptr)0);
    for (uint64_t done = 0; done < j->sample; done += BLOCK) {
        for (size_t i = 0; i < BLOCK; i++) {
            x[i] = argument(&j->seed, j->f->lo, j->f->hi);
            y[i] = j->f->d2 ? second(j->f, &j->seed, x[i], 746) : 0;
        }
        if (j->f->d1)
            j->f->d1(x, z, BLOCK);
        else
            j->f->d2(x, y, z, BLOCK);
        for (size_t i = 0; i < BLOCK; i++) {
            mpfr_set_d(a, x[i], MPFR_RNDN);
            mpfr_set_d(b, y[i], MPFR_RNDN);
            if (j->f->d1)
                j->f->mp1(r, a);
            else
                j->f->mp2(r, a, b);
            double err = ulp_f64(z[i], r, s);
            if (j->f->term != 0 && fabs(mpfr_get_d(r, MPFR_RNDN)) < j->f->term) {
                mpfr_d_sub(s, z[i], r, MPFR_RNDN);
                err = fabs(mpfr_get_d(s, MPFR_RNDN)) / (DBL_EPSILON * j->f->term);
            }
            note(&j->t, err, x[i], y[i]);
        }
    }
    mpfr_clears(a, b, r, s, (mpfr_ptr)0);
    mpfr_free_cache();
    return NULL;
}

struct options {
    uint64_t stride, sample;
    unsigned threads;
    bool timing;
};

static bool measure(const struct fun *f, const struct options *o, struct tally *t)
{
    struct job jobs[MAX_THREADS];
    pthread_t ids[MAX_THREADS];
    void *(*work)(void *) = f->f1 ? sweep_f32 : f->f2 ? sample_f32_pairs : sample_f64;
    uint64_t part = (UINT64_C(1) << 32) / o->threads / o->stride * o->stride;
    unsigned started = 0;
    for (; started < o->threads; started++) {
        bool last = started + 1 == o->threads;
        jobs[started] = (struct job){.f = f,
                                     .begin = started * part,
                                     .end = last ? UINT64_C(1) << 32 : (started + 1) * part,
                                     .stride = o->stride,
                                     .sample = o->sample / o->threads,
                                     .seed = 0x5eed + started};
        if (pthread_create(&ids[started], NULL, work, &jobs[started]) != 0)
            break;
    }
    for (unsigned i = 0; i < started; i++) {
        pthread_join(ids[i], NULL);
        merge(t, &jobs[i].t);
    }
    return started == o->threads;
}

/* -- timing ------------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ns per element over arrays that fit the second-level cache; median of 15 batches */
static double speed(const struct fun *f)
{
    enum { N = 16384, BATCHES = 15 };
    static float fx[N], fy[N], fz[N];
    static double dx[N], dy[N], dz[N];
    double t[BATCHES];
    uint64_t seed = 1;
    for (size_t i = 0; i < N; i++) {
        dx[i] = f->lo + (f->hi - f->lo) * uniform(&seed);
        dy[i] = f->lo + (f->hi - f->lo) * uniform(&seed);
        fx[i] = (float)dx[i];
        fy[i] = (float)dy[i];
    }
    for (int b = -1; b < BATCHES; b++) {
        double start = now(), end = start;
        size_t n = 0;
        for (; end - start < 4e6; n += N) {
            if (f->f1)
                f->f1(fx, fz, N);
            else if (f->f2)
                f->f2(fx, fy, fz, N);
            else if (f->d1)
                f->d1(dx, dz, N);
            else
                f->d2(dx, dy, dz, N);
            end = now();
        }
        if (b >= 0)
            t[b] = (end - start) / (double)n;
    }
    qsort(t, BATCHES, sizeof t[0], by_value);
    return t[BATCHES / 2];
}

/* -- command line ------------------------------------------------------------------------------ */

static const char usage[] =
    "usage: ulp_sweep [options] [FUNCTION...]      FUNCTION as in exp_f32; _f32 or _f64 for all\n"
    "  --stride N    sweep every N-th f32 argument (default 1: all of them)\n"
    "  --sample N    arguments sampled for f64 and two-argument functions (default 262144)\n"
    "  --threads N   threads (default 1)\n"
    "  --time        measure ns per element instead of errors\n"
    "  --self-test   test the error measure itself\n"
    "  --list        list the functions\n";

static bool wanted(const char *name, int n, char **names)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0 || (names[i][0] == '_' && strstr(name, names[i])))
            return true;
    return n == 0;
}

static int report(const struct options *o, int n, char **names)
{
    bool wrong = false;
    for (int k = 0; k < n; k++) {
        bool known = false;
        for (size_t i = 0; i < N_FUNS; i++)
            known |= wanted(funs[i].name, 1, names + k);
        if (!known) {
            fprintf(stderr, "ulp_sweep: no function is named %s (--list)\n", names[k]);
            return 2;
        }
    }
    if (o->timing)
        printf("| function | ns per element |\n| --- | --- |\n");
    else
        printf("| function | arguments | max ULP | at | special values wrong |\n"
               "| --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < N_FUNS; i++) {
        const struct fun *f = &funs[i];
        if (!wanted(f->name, n, names) || (!o->timing && strstr(f->name, "_fast")))
            continue;
        if (o->timing) {
            printf("| %s | %.3f |\n", f->name, speed(f));
            fflush(stdout);
            continue;
        }
        struct tally t = {0};
        if (!measure(f, o, &t)) {
            fprintf(stderr, "ulp_sweep: cannot start %u threads\n", o->threads);
            return 2;
        }
        printf("| %s | %" PRIu64 " | %.3f | %a", f->name, t.count, t.max, t.at);
        if (f->f2 || f->d2)
            printf(", %a", t.at2);
        printf(" | %" PRIu64, t.special);
        if (t.special)
            printf(" (first at %a, %a)", t.special_at, t.special_at2);
        printf(" |\n");
        fflush(stdout);
        wrong = wrong || t.special;
    }
    return wrong;
}

int main(int argc, char **argv)
{
    struct options o = {.stride = 1, .sample = 262144, .threads = 1};
    int names = 0;
    for (int i = 1; i < argc; i++) {
        uint64_t v = i + 1 < argc ? strtoull(argv[i + 1], NULL, 10) : 0;
        if (strcmp(argv[i], "--self-test") == 0)
            return self_test() ? 1 : 0;
        if (strcmp(argv[i], "--time") == 0) {
            o.timing = true;
        } else if (strcmp(argv[i], "--list") == 0) {
            for (size_t k = 0; k < N_FUNS; k++)
                puts(funs[k].name);
            return 0;
        } else if (strcmp(argv[i], "--stride") == 0 && v > 0) {
            o.stride = v;
            i++;
        } else if (strcmp(argv[i], "--sample") == 0 && v > 0) {
            o.sample = v;
            i++;
        } else if (strcmp(argv[i], "--threads") == 0 && v > 0 && v <= MAX_THREADS) {
            o.threads = (unsigned)v;
            i++;
        } else if (argv[i][0] == '-') {
            fputs(usage, stderr);
            return 2;
        } else {
            argv[1 + names++] = argv[i];
        }
    }
    return report(&o, names, argv + 1);
}
