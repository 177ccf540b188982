/*
 * tests/ref/reduce.c -- references of reductions: plain loops over one group in long double.
 *
 * Invariant: NaN propagates through max and min, counts as the extreme for argmax and argmin, and the
 * first of equal elements is found.
 */
#include <math.h>

#include "tests/ref/ref.h"

REF_REDUCE(sum)
{
    (void)option;
    real s = 0;
    for (int64_t i = 0; i < n; i++) {
        s += x[i];
    }
    return s;
}
REF_REDUCE(prod)
{
    (void)option;
    real p = 1;
    for (int64_t i = 0; i < n; i++) {
        p *= x[i];
    }
    return p;
}
/* Index of the extreme element under `sign`. */
static int64_t extreme(const real *x, int64_t n, int sign)
{
    int64_t at = 0;
    for (int64_t i = 1; i < n && !isnan(x[at]); i++) {
        if (isnan(x[i]) || (sign > 0 ? x[i] > x[at] : x[i] < x[at])) {
            at = i;
        }
    }
    return at;
}
REF_REDUCE(argmax)
{
    (void)option;
    return extreme(x, n, 1);
}
REF_REDUCE(argmin)
{
    (void)option;
    return extreme(x, n, -1);
}
REF_REDUCE(max)
{
    (void)option;
    return x[extreme(x, n, 1)];
}
REF_REDUCE(min)
{
    (void)option;
    return x[extreme(x, n, -1)];
}
REF_REDUCE(mean)
{
    return ref_sum(x, n, option) / n;
}
REF_REDUCE(var)
{
    real mean = ref_sum(x, n, 0) / n, s = 0;
    for (int64_t i = 0; i < n; i++) {
        s += (x[i] - mean) * (x[i] - mean);
    }
    return s / (n - (real)option);
}
REF_REDUCE(std)
{
    return sqrtl(ref_var(x, n, option));
}
REF_REDUCE(norm)
{
    real s = 0;
    for (int64_t i = 0; i < n; i++) {
        real a = fabsl(x[i]);
        s = isinf(option) ? fmaxl(s, a) : option == 0 ? s + (a != 0) : s + powl(a, (real)option);
    }
    return isinf(option) || option == 0 ? s : powl(s, 1 / (real)option);
}
REF_REDUCE(logsumexp)
{
    (void)option;
    real m = x[extreme(x, n, 1)], s = 0;
    for (int64_t i = 0; i < n; i++) {
        s += expl(x[i] - m);
    }
    return isinf(m) ? m : m + logl(s);
}
REF_REDUCE(count_nonzero)
{
    (void)option;
    int64_t k = 0;
    for (int64_t i = 0; i < n; i++) {
        k += x[i] != 0;
    }
    return k;
}
REF_REDUCE(any)
{
    return ref_count_nonzero(x, n, option) > 0;
}
REF_REDUCE(all)
{
    return ref_count_nonzero(x, n, option) == n;
}
REF_REDUCE(cumsum)
{
    return ref_sum(x, n, option);
}
REF_REDUCE(cumprod)
{
    return ref_prod(x, n, option);
}
