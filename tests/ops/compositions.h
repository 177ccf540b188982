/*
 * tests/ops/compositions.h -- what tests of ops made of other ops share: operands, sums with what they may be off, and
 * every case again in a trace, with its gradients, at several numbers of threads.
 */
#ifndef TESTS_OPS_COMPOSITIONS_H
#define TESTS_OPS_COMPOSITIONS_H

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/support/effort.h"
#include "tests/support/support.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
#define S(...) weft_shape(__VA_ARGS__)
enum { MOST = 4096 };
typedef long double real;
static const int floats[] = {WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};
static test_rng rng = {20};

static inline int64_t count(weft_shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.n; i++) {
        n *= s.v[i];
    }
    return n;
}

/* Random elements of dtype in v, as a tensor; `odd`: one whose last two axes lie the other way round. */
static inline weft_tensor given(weft_shape s, int dtype, bool odd, real *v)
{
    double memory[MOST];
    int64_t n = count(s), w = s.n > 1 ? s.v[s.n - 1] : 1, h = s.n > 1 ? s.v[s.n - 2] : 1;
    cr_assert_leq(n, MOST);
    for (int64_t i = 0; i < n; i++) {
        double x =
            test_is_float(dtype) ? test_uniform(&rng, -2, 2) : (double)test_between(&rng, -9, 9);
        v[i] = test_is_float(dtype) ? test_round(dtype, x) : x;
    }
    odd = odd && s.n > 1;
    for (int64_t i = 0; i < n; i++) { /* to[.., column, row] = from[.., row, column] */
        int64_t at = odd ? i / (h * w) * (h * w) + i % w * h + i / w % h : i;
        memory[at] = (double)v[i];
    }
    weft_shape lies = s;
    if (odd) {
        lies.v[s.n - 1] = h;
        lies.v[s.n - 2] = w;
    }
    weft_tensor t = weft_cast(weft_from_data(memory, lies, WEFT_F64), (weft_dtype)dtype);
    return odd ? weft_transpose(t, -1, -2) : t;
}

/* -- sums with what they may be off ------------------------------------------------------------------------- */

static real want[MOST], bound[MOST];
static struct {
    real value, size;
    int terms;
} sums[MOST];

static inline void add_term(int64_t at, real x)
{
    cr_assert(at >= 0 && at < MOST);
    sums[at].value += x;
    sums[at].size += fabsl(x);
    sums[at].terms++;
}

/* n sums as wanted elements of dtype; `more`: roundings of each beyond one a term, `halved`: to a half type before the last. */
static inline void want_sums(int64_t n, int dtype, int more, int halved)
{
    real unit = dtype == WEFT_F64 ? 0x1p-53L : test_is_float(dtype) ? 0x1p-24L : 0;
    real half = dtype == WEFT_F16 ? 0x1p-11L : dtype == WEFT_BF16 ? 0x1p-8L : 0;
    for (int64_t i = 0; i < n; i++) {
        want[i] = sums[i].value;
        bound[i] = (unit * (sums[i].terms + more) + half * halved) * sums[i].size;
        bound[i] +=
            dtype == WEFT_F16 || dtype == WEFT_BF16 ? test_place(dtype, want[i]) * 0.501L : 0;
    }
    memset(sums, 0, sizeof sums);
}

/* -- eager, traced, at any number of threads: the same bits, gradients too ----------------------------------- */

typedef weft_tensor (*composed)(const void *how, const weft_tensor *in, int n);
typedef struct way {
    composed f;
    const void *how;
    bool gradients;
} way;

static inline weft_status with_gradients(void *self, const weft_tensor *in, int n_in,
                                         weft_tensor *out, int n_out)
{
    const way *k = self;
    (void)n_out;
    out[0] = k->f(k->how, in, n_in);
    if (!k->gradients || !weft_ok(out[0])) {
        return weft_error_status(out[0]);
    }
    weft_tensor loss = weft_sum(weft_mul(out[0], weft_sin(out[0])));
    return weft_grad_of(.outputs = &loss, .n_outputs = 1, .inputs = in, .n_inputs = n_in,
                        .grads = out + 1);
}

static inline void same_everywhere(const char *what, composed f, const void *how,
                                   const weft_tensor *in, int n)
{
    static const int threads[] = {1, 2, 3, 7};
    way k = {f, how, test_is_float((int)weft_dtype_of(in[0]))};
    weft_tensor leaves[4], first[5], again[5];
    int results = 1 + (k.gradients ? n : 0), before = weft_get_num_threads();
    weft_scope sc = weft_scope_begin();
    for (int i = 0; i < n; i++) {
        leaves[i] = weft_detach(in[i]);
        cr_assert(!k.gradients || weft_requires_grad_(leaves[i], true) == WEFT_OK);
    }
    cr_assert_eq(with_gradients(&k, leaves, n, first, results), WEFT_OK, "%s: %s", what,
                 weft_last_error());
    for (int native = 0; native < 2; native++) {
        weft_jit *j =
            weft_jit_trace(with_gradients, &k, .synchronous = native, .always_record = true);
        for (int t = 0; t < COUNT(threads); t += EFFORT_THREAD_STEP) {
            weft_set_num_threads(threads[t]);
            cr_assert_eq(weft_jit_call(j, leaves, n, again, results), WEFT_OK, "%s: %s", what,
                         weft_last_error());
            for (int i = 0; i < results; i++) {
                check_bits(what, again[i], first[i]);
            }
        }
        weft_jit_free(j);
    }
    weft_set_num_threads(before);
    weft_scope_end(sc);
}

static inline void judge(const char *what, composed f, const void *how, const weft_tensor *in,
                         int n, weft_dtype dtype, weft_shape shape)
{
    weft_tensor y = f(how, in, n);
    check_type(what, y, dtype, shape);
    check_near(what, y, want, bound);
    same_everywhere(what, f, how, in, n);
}

#endif
