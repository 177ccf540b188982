/*
 * weft/random.h -- random numbers from counter-based generators.
 *
 * A generator is the value {seed, offset}: copy it to save it, copy it back to restore it, keep as
 * many as you like. The n-th block of a seed's stream is Philox4x32-10 of (n, seed), so numbers depend
 * on seed, offset and shape only: not on threads or machine. Each op takes a whole number of blocks
 * and advances `offset` by them, so two calls never share a number. A generator is not locked: one
 * thread at a time.
 */
#ifndef WEFT_RANDOM_H
#define WEFT_RANDOM_H

#include "weft/tensor.h"

#ifndef WEFT_ZERO
/* An explicit zero for a floating-point option whose 0 means "the default". */
#define WEFT_ZERO 2.2250738585072014e-308
#endif

typedef struct weft_generator {
    uint64_t seed;
    uint64_t offset;
} weft_generator;

#ifdef __cplusplus
extern "C" {
#endif

/* This thread's generator: used where none is given; it starts as {0, 0}. NULL when memory is
 * exhausted. Valid while the thread lives. */
WEFT_API weft_generator *weft_default_generator(void);
/* The thread's generator := {seed, 0}. */
WEFT_API void weft_manual_seed(uint64_t seed);

/* Results are of the innermost scope, on the thread's default device (a GPU draws the same numbers). Every `generator`
 * defaults to the thread's, every `dtype` to WEFT_F32 unless said otherwise. WEFT_EINVALID: an option out of its domain;
 * WEFT_EDTYPE: a type that is not taken; WEFT_ESHAPE: a negative extent. A call that fails draws nothing. */

/* Uniform in [low, high), floating point: multiples of 2^-24 (f32) or 2^-53 (f64) of the range. f16 and bf16: those of f32, rounded,
 * so that high itself may come. low = high = 0: [0, 1). WEFT_EINVALID: low above high; a bound, or high - low, that the type does not hold. */
typedef struct weft_rand_args {
    weft_shape shape;
    weft_dtype dtype;
    double low, high;
    weft_generator *generator;
    int end_;
} weft_rand_args;
WEFT_API weft_tensor weft_rand(const weft_rand_args *args);

/* Normal with mean `mean` and standard deviation `std` >= 0 (0: 1; WEFT_ZERO: 0), floating point. */
typedef struct weft_randn_args {
    weft_shape shape;
    weft_dtype dtype;
    double mean, std;
    weft_generator *generator;
    int end_;
} weft_randn_args;
WEFT_API weft_tensor weft_randn(const weft_randn_args *args);

/* Uniform integers in [low, high); high > low. dtype: any, default i64; an integer type must hold them all (WEFT_EINVALID). */
typedef struct weft_randint_args {
    weft_shape shape;
    int64_t low, high;
    weft_dtype dtype;
    weft_generator *generator;
    int end_;
} weft_randint_args;
WEFT_API weft_tensor weft_randint(const weft_randint_args *args);

/* 1 with probability p in [0, 1] (0: 0.5; WEFT_ZERO: 0), else 0. dtype: any, default bool. */
typedef struct weft_bernoulli_args {
    weft_shape shape;
    double p;
    weft_dtype dtype;
    weft_generator *generator;
    int end_;
} weft_bernoulli_args;
WEFT_API weft_tensor weft_bernoulli(const weft_bernoulli_args *args);

/* The numbers 0 .. n-1 in random order, n >= 0. dtype: i64 (default) or i32. */
typedef struct weft_randperm_args {
    int64_t n;
    weft_dtype dtype;
    weft_generator *generator;
    int end_;
} weft_randperm_args;
WEFT_API weft_tensor weft_randperm(const weft_randperm_args *args);

/* i64 [.., n]: n classes of each row of weights[.., c], floating point, c >= 1, drawn with probabilities in proportion to its
 * weights, which need not add up to 1, but to a finite number; computed in f64, on the weights' device. Without
 * replacement a class comes once at most and n <= c (WEFT_EINVALID). A weight that is not above 0, NaN among them, is never
 * drawn; -1 stands where nothing is left to draw, as nothing is read to find out. WEFT_EINVALID: n < 0. No gradients. */
typedef struct weft_multinomial_args {
    weft_tensor weights;
    int64_t n;        /* 0: 1 */
    bool replacement; /* a class may come again */
    weft_generator *generator;
    int end_;
} weft_multinomial_args;
WEFT_API weft_tensor weft_multinomial(const weft_multinomial_args *args);

#ifdef __cplusplus
}
#endif

#ifdef __cplusplus
inline weft_tensor weft_rand(weft_shape shape, weft_dtype dtype = WEFT_F32, double low = 0,
                             double high = 0, weft_generator *generator = nullptr)
{
    weft_rand_args a = {shape, dtype, low, high, generator, 0};
    return weft_rand(&a);
}
inline weft_tensor weft_randn(weft_shape shape, weft_dtype dtype = WEFT_F32, double mean = 0,
                              double std = 0, weft_generator *generator = nullptr)
{
    weft_randn_args a = {shape, dtype, mean, std, generator, 0};
    return weft_randn(&a);
}
inline weft_tensor weft_randint(weft_shape shape, int64_t low, int64_t high,
                                weft_dtype dtype = WEFT_I64, weft_generator *generator = nullptr)
{
    weft_randint_args a = {shape, low, high, dtype, generator, 0};
    return weft_randint(&a);
}
inline weft_tensor weft_bernoulli(weft_shape shape, double p = 0, weft_dtype dtype = WEFT_BOOL,
                                  weft_generator *generator = nullptr)
{
    weft_bernoulli_args a = {shape, p, dtype, generator, 0};
    return weft_bernoulli(&a);
}
inline weft_tensor weft_randperm(int64_t n, weft_dtype dtype = WEFT_I64,
                                 weft_generator *generator = nullptr)
{
    weft_randperm_args a = {n, dtype, generator, 0};
    return weft_randperm(&a);
}
inline weft_tensor weft_multinomial(weft_tensor weights, int64_t n = 1, bool replacement = false,
                                    weft_generator *generator = nullptr)
{
    weft_multinomial_args a = {weights, n, replacement, generator, 0};
    return weft_multinomial(&a);
}
WEFT_BY_STRUCT_(weft_tensor, weft_rand, weft_rand_args)
WEFT_BY_STRUCT_(weft_tensor, weft_randn, weft_randn_args)
WEFT_BY_STRUCT_(weft_tensor, weft_randint, weft_randint_args)
WEFT_BY_STRUCT_(weft_tensor, weft_bernoulli, weft_bernoulli_args)
WEFT_BY_STRUCT_(weft_tensor, weft_randperm, weft_randperm_args)
WEFT_BY_STRUCT_(weft_tensor, weft_multinomial, weft_multinomial_args)
#endif

#define weft_rand(...) WEFT_T_((weft_rand)WEFT_ARGS_(weft_rand_args, __VA_ARGS__))
#define weft_randn(...) WEFT_T_((weft_randn)WEFT_ARGS_(weft_randn_args, __VA_ARGS__))
#define weft_randint(...) WEFT_T_((weft_randint)WEFT_ARGS_(weft_randint_args, __VA_ARGS__))
#define weft_bernoulli(...) WEFT_T_((weft_bernoulli)WEFT_ARGS_(weft_bernoulli_args, __VA_ARGS__))
#define weft_randperm(...) WEFT_T_((weft_randperm)WEFT_ARGS_(weft_randperm_args, __VA_ARGS__))
#define weft_multinomial(...)                                                                      \
    WEFT_T_((weft_multinomial)WEFT_ARGS_(weft_multinomial_args, __VA_ARGS__))

#endif
