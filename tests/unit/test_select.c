/*
 * tests/unit/test_select.c -- basic indexing, and ops whose results depend on values, against loops over arrays.
 *
 * References are written out here: nested loops over explicit positions, counts by comparison of all pairs.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static weft_tensor iota(weft_shape s, weft_dtype dt)
{
    int64_t n = 1;
    for (int i = 0; i < s.n; i++) {
        n *= s.v[i];
    }
    return weft_reshape(weft_arange(0, (double)n, 1, dt), s);
}

static void is(const char *what, weft_tensor t, weft_shape shape, const double *want)
{
    double got[256];
    weft_shape s = weft_shape_of(t);
    int64_t n = 1;
    cr_assert(weft_ok(t), "%s: %s", what, weft_error_text(t));
    cr_assert_eq(s.n, shape.n, "%s has rank %d", what, (int)s.n);
    for (int i = 0; i < s.n; i++) {
        cr_assert_eq(s.v[i], shape.v[i], "%s: axis %d is %d", what, i, (int)s.v[i]);
        n *= s.v[i];
    }
    cr_assert(n <= COUNT(got) && weft_to_array(t, got, n, WEFT_F64) == WEFT_OK);
    for (int i = 0; i < n; i++) {
        cr_expect(got[i] == want[i] || (isnan(got[i]) && isnan(want[i])), "%s[%d] is %g, not %g",
                  what, i, got[i], want[i]);
    }
}
#define IS(t, shape, ...) is(#t, t, shape, (const double[]){0, __VA_ARGS__} + 1)

/* -- NumPy's basic indexing ------------------------------------------------------------------------------- */

Test(index_terms, as_numpy_has_them)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor x = iota(weft_shape(2, 3, 4), WEFT_I32); /* x[i, j, k] = 12 i + 4 j + k */
    IS(weft_index(x, weft_at(1), weft_at(-1), weft_at(2)), weft_shape(), 22);
    IS(weft_index(x, weft_at(0), weft_span(1, WEFT_OMIT, 1), weft_span(0, 4, 3)), weft_shape(2, 2),
       4, 7, 8, 11);
    IS(weft_index(x, WEFT_ELLIPSIS, weft_at(0)), weft_shape(2, 3), 0, 4, 8, 12, 16, 20);
    IS(weft_index(x, weft_at(1), WEFT_ELLIPSIS, weft_span(WEFT_OMIT, WEFT_OMIT, -3)),
       weft_shape(3, 2), 15, 12, 19, 16, 23, 20);
    IS(weft_index(x, WEFT_NEW_AXIS, weft_at(0), WEFT_EVERY, WEFT_NEW_AXIS, weft_at(1)),
       weft_shape(1, 3, 1), 1, 5, 9);
    IS(weft_index(x, WEFT_EVERY, weft_at(0), WEFT_ELLIPSIS, WEFT_NEW_AXIS, weft_span(3, 9, 1)),
       weft_shape(2, 1, 1), 3, 15);
    IS(weft_index(x, weft_at(1), weft_at(2), WEFT_ELLIPSIS, weft_at(3)), weft_shape(), 23);
    IS(weft_index(x, WEFT_ELLIPSIS, weft_span(2, 1, 1)), weft_shape(2, 3, 0), 0);
    IS(weft_index(weft_i(7), WEFT_NEW_AXIS, WEFT_ELLIPSIS), weft_shape(1), 7);
    IS((weft_index)(weft_select(x, 0, 0), NULL, 0), weft_shape(3, 4), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
       10, 11);
    weft_scope_end(sc);
}

/* Sixteen axes and more terms than that: an axis that goes makes room for one that comes. */
Test(index_terms, at_the_largest_rank)
{
    weft_scope sc = weft_scope_begin();
    weft_shape ones = {.n = 16};
    weft_index_term t[33];
    for (int i = 0; i < 16; i++) {
        ones.v[i] = 1;
        t[2 * i] = WEFT_NEW_AXIS;
        t[2 * i + 1] = weft_at(0);
    }
    weft_tensor x = weft_full(ones, 3, WEFT_F32);
    is("sixteen new axes", (weft_index)(x, t, 32), ones, (const double[]){3});
    t[32] = WEFT_NEW_AXIS;
    check_error("17 axes", (weft_index)(x, t, 33), WEFT_ESHAPE, "rank 17");
    weft_scope_end(sc);
}

static weft_status indexed(void *user, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)user, (void)n_in, (void)n_out;
    out[0] =
        weft_square(weft_index(in[0], weft_at(-1), WEFT_NEW_AXIS, weft_span(2, WEFT_OMIT, -2)));
    return weft_error_status(out[0]);
}

Test(index_terms, are_views_that_gradients_flow_through)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor x = iota(weft_shape(2, 3), WEFT_F64);
    weft_tensor row = weft_index(x, weft_at(1), WEFT_NEW_AXIS);
    cr_assert(weft_shares_memory(x, row) && weft_fill_(row, 9) == WEFT_OK);
    IS(x, weft_shape(2, 3), 0, 1, 2, 9, 9, 9);
    weft_requires_grad_(x, true);
    check_gradient("index", indexed, NULL, &x, 1);
    weft_scope_end(sc);
}

Test(index_terms, refusals)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor x = iota(weft_shape(2, 3), WEFT_F32);
    check_error("element 3", weft_index(x, WEFT_EVERY, weft_at(3)), WEFT_EINDEX,
                "index: index 3 is out of range for axis 1 of 3 elements");
    check_error("three axes", weft_index(x, weft_at(0), weft_at(0), weft_at(0)), WEFT_ESHAPE,
                "3 axes are indexed, but the tensor has 2");
    check_error("two ellipses", weft_index(x, WEFT_ELLIPSIS, WEFT_ELLIPSIS), WEFT_EINVALID,
                "2 ellipses");
    check_error("step 0", weft_index(x, weft_span(0, 1, 0)), WEFT_EINVALID, "the step is 0");
    check_error("no kind", (weft_index)(x, &(weft_index_term){.kind = 9}, 1), WEFT_EINVALID,
                "no kind there is");
    check_error("no array", (weft_index)(x, NULL, 2), WEFT_EINVALID, "NULL");
    check_error("minus one", (weft_index)(x, NULL, -1), WEFT_EINVALID, "-1 terms");
    weft_scope_end(sc);
}

/* -- within a tolerance ----------------------------------------------------------------------------------- */

Test(close, as_numpy_has_it)
{
    const double a[] = {1, 1, 1, 0, 0, INFINITY, INFINITY, -INFINITY, NAN, 1, 1e10, 1e10};
    const double b[] = {1, 1.00000999, 1.0001, 1e-9, 1e-7,       INFINITY,
                        1, INFINITY,   NAN,    NAN,  1.00001e10, 1.0001e10};
    weft_scope sc = weft_scope_begin();
    weft_tensor x = weft_from_data(a, weft_shape(COUNT(a)), WEFT_F64);
    weft_tensor y = weft_from_data(b, weft_shape(COUNT(b)), WEFT_F64);
    IS(weft_isclose(x, y), weft_shape(12), 1, 1, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0);
    IS(weft_isclose(x, y, .equal_nan = true), weft_shape(12), 1, 1, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0);
    IS(weft_isclose(x, y, .rtol = WEFT_ZERO, .atol = WEFT_ZERO), weft_shape(12), 1, 0, 0, 0, 0, 1,
       0, 0, 0, 0, 0, 0);
    IS(weft_isclose(x, y, .rtol = 1, .atol = 2), weft_shape(12), 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1,
       1);
    IS(weft_allclose(x, y), weft_shape(), 0);
    IS(weft_allclose(x, x, .equal_nan = true), weft_shape(), 1);
    /* differences of integers do not wrap, of halves do not vanish */
    weft_tensor u = weft_full(weft_shape(2), 255, WEFT_U8),
                h = weft_full(weft_shape(2), 1, WEFT_F16);
    IS(weft_isclose(u, weft_zeros(weft_shape(2), WEFT_U8)), weft_shape(2), 0, 0);
    IS(weft_isclose(u, weft_i(255)), weft_shape(2), 1, 1);
    IS(weft_isclose(h, weft_f(1.0009765625)), weft_shape(2), 0, 0);
    IS(weft_allclose(weft_f(1), weft_f(1.000001)), weft_shape(), 1);
    check_error("rtol < 0", weft_isclose(x, y, .rtol = -1), WEFT_EINVALID,
                "tolerances are 0 or more");
    check_error("atol NaN", weft_allclose(x, y, .atol = NAN), WEFT_EINVALID,
                "allclose: rtol is 0, atol is nan; operands: f64[12]");
    check_error("shapes", weft_isclose(x, h), WEFT_ESHAPE, "isclose");
    /* what is wrong with the operands goes before the tolerances */
    weft_tensor bad = weft_add(x, weft_ones(weft_shape(5), WEFT_F32));
    check_error("error operand", weft_isclose(bad, x, .rtol = -1), WEFT_ESHAPE, "add");
    check_error("error operand", weft_allclose(x, bad, .rtol = -1), WEFT_ESHAPE, "add");
    check_error("shapes, rtol", weft_isclose(x, weft_ones(weft_shape(5), WEFT_F32), .rtol = -1),
                WEFT_ESHAPE, "isclose");
    weft_scope_end(sc);
}

/* -- what depends on values ------------------------------------------------------------------------------- */

Test(values, nonzero_and_masked_select)
{
    weft_scope sc = weft_scope_begin();
    const float v[] = {0, -0.0f, 2, NAN, 0, 1};
    weft_tensor x = weft_from_data(v, weft_shape(2, 3), WEFT_F32);
    IS(weft_nonzero(x), weft_shape(3, 2), 0, 2, 1, 0, 1, 2);
    IS(weft_nonzero(weft_transpose(x, 0, 1)), weft_shape(3, 2), 0, 1, 2, 0, 2, 1);
    IS(weft_nonzero(weft_zeros(weft_shape(4), WEFT_I8)), weft_shape(0, 1), 0);
    IS(weft_nonzero(weft_zeros(weft_shape(3, 0), WEFT_I8)), weft_shape(0, 2), 0);
    IS(weft_nonzero(weft_i(5)), weft_shape(1, 0), 0);
    IS(weft_masked_select(x, weft_greater(x, weft_f(0))), weft_shape(2), 2, 1);
    weft_tensor rows = weft_greater(weft_arange(0, 2, 1, WEFT_I64), weft_i(0));
    IS(weft_masked_select(x, weft_reshape(rows, weft_shape(2, 1))), weft_shape(3), NAN, 0, 1);
    IS(weft_masked_select(weft_i(7), rows), weft_shape(1), 7);
    check_error("a float mask", weft_masked_select(x, x), WEFT_EDTYPE, "a mask is bool, not f32");
    check_error("shapes", weft_masked_select(x, rows), WEFT_ESHAPE, "extents 3 and 2 of axis 1");
    weft_scope_end(sc);
}

static weft_status chosen(void *mask, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)n_in, (void)n_out;
    out[0] = weft_square(weft_masked_select(in[0], *(weft_tensor *)mask));
    return weft_error_status(out[0]);
}

Test(values, masked_select_has_a_gradient)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor x = weft_add(iota(weft_shape(1, 3), WEFT_F64), weft_f(0.5));
    const bool m[] = {true, false, true, true, false, false};
    weft_tensor mask = weft_from_data(m, weft_shape(2, 3), WEFT_BOOL);
    weft_requires_grad_(x, true);
    check_gradient("masked_select", chosen, &mask, &x, 1);
    weft_scope_end(sc);
}

/* Distinct elements by comparing all pairs. */
static void check_unique(weft_dtype dt, uint64_t seed)
{
    enum { N = 60 };
    test_rng rng = {seed};
    double v[N], values[N], back[N], counts[N];
    for (int i = 0; i < N; i++) {
        v[i] = (double)test_between(&rng, dt == WEFT_I8 ? -9 : 0, dt == WEFT_BOOL ? 1 : 20);
    }
    if (test_is_float((int)dt)) {
        v[3] = v[40] = NAN;
        v[5] = -INFINITY;
    }
    weft_tensor x = weft_cast(weft_from_data(v, weft_shape(6, 10), WEFT_F64), dt), u, inverse,
                count;
    cr_assert_eq(weft_unique(x, &u, &inverse, &count), WEFT_OK, "%s", weft_last_error());
    int64_t n = weft_numel(u);
    cr_assert(weft_dtype_of(u) == dt && weft_dtype_of(inverse) == WEFT_I64);
    check_type("inverse", inverse, WEFT_I64, weft_shape(6, 10));
    cr_assert(weft_to_array(u, values, n, WEFT_F64) == WEFT_OK && weft_numel(count) == n);
    weft_to_array(inverse, back, N, WEFT_F64);
    weft_to_array(count, counts, n, WEFT_F64);
    for (int k = 0; k < n; k++) {
        int same = 0;
        cr_expect(k == 0 || values[k - 1] < values[k] || (isnan(values[k]) && k == n - 1),
                  "not ascending at %d", k);
        for (int i = 0; i < N; i++) {
            same += v[i] == values[k] || (isnan(v[i]) && isnan(values[k]));
        }
        cr_expect_eq(counts[k], same, "%g occurs %d times, not %g", values[k], same, counts[k]);
    }
    for (int i = 0; i < N; i++) {
        double got = values[(int)back[i]];
        cr_expect(got == v[i] || (isnan(got) && isnan(v[i])), "element %d", i);
    }
}

Test(values, unique)
{
    static const weft_dtype types[] = {WEFT_BOOL, WEFT_U8,   WEFT_I8,  WEFT_I16, WEFT_I64,
                                       WEFT_F16,  WEFT_BF16, WEFT_F32, WEFT_F64};
    weft_scope sc = weft_scope_begin();
    for (int t = 0; t < COUNT(types); t++) {
        check_unique(types[t], (uint64_t)t + 1);
    }
    weft_tensor u = WEFT_NONE, c;
    cr_assert_eq(weft_unique(weft_zeros(weft_shape(0, 3), WEFT_F32), &u, NULL, &c), WEFT_OK);
    IS(u, weft_shape(0), 0);
    cr_assert_eq(weft_unique(weft_zeros(weft_shape(0, 3), WEFT_U8), &u, &c, NULL), WEFT_OK);
    IS(u, weft_shape(0), 0);
    cr_assert_eq(weft_numel(c), 0);
    cr_assert_eq(weft_unique(weft_b(true), &u, &c, NULL), WEFT_OK, "%s", weft_last_error());
    IS(u, weft_shape(1), 1);
    cr_assert(weft_rank(c) == 0 && weft_item_i64(c) == 0);
    const uint8_t bytes[] = {255, 0, 7, 255, 7};
    cr_assert_eq(weft_unique(weft_from_data(bytes, weft_shape(5), WEFT_U8), &u, NULL, NULL),
                 WEFT_OK);
    IS(u, weft_shape(3), 0, 7, 255);
    cr_assert_eq(weft_unique(weft_i(4), &u, NULL, &c), WEFT_OK, "%s", weft_last_error());
    IS(u, weft_shape(1), 4);
    IS(c, weft_shape(1), 1);
    cr_assert_eq(weft_unique(weft_ones(weft_shape(3), WEFT_F32), NULL, NULL, NULL), WEFT_OK);
    cr_assert(weft_unique(WEFT_NONE, &u, NULL, &c) != WEFT_OK && !weft_ok(u) && !weft_ok(c));
    weft_scope_end(sc);
}

/* As many values as go side by side, fewer and more, in sequences of every length up to 17. */
static void check_searches(int64_t n, int64_t m)
{
    double s[17], v[17], got[17];
    for (int64_t i = 0; i < n; i++) {
        s[i] = (double)(i / 2 * 2);
    }
    for (int64_t i = 0; i < m; i++) {
        v[i] = (double)((i * 7 + n) % 20 - 1);
    }
    weft_tensor sorted = weft_from_data(s, weft_shape(n), WEFT_F64);
    weft_tensor values = weft_from_data(v, weft_shape(m), WEFT_F64);
    for (int right = 0; right < 2; right++) {
        weft_to_array(weft_searchsorted(sorted, values, right), got, m, WEFT_F64);
        for (int64_t i = 0; i < m; i++) {
            int64_t want = 0;
            while (want < n && (right ? s[want] <= v[i] : s[want] < v[i])) {
                want++;
            }
            cr_assert_eq(got[i], (double)want, "%g among %d", v[i], (int)n);
        }
    }
}

Test(values, searchsorted)
{
    static const double s[] = {-3, 0, 0, 2, 5, NAN}, v[] = {-4, -3, 0, 1, 5, 9, NAN, INFINITY};
    weft_scope sc = weft_scope_begin();
    weft_tensor sorted = weft_from_data(s, weft_shape(6), WEFT_F64);
    weft_tensor values = weft_from_data(v, weft_shape(2, 4), WEFT_F64);
    IS(weft_searchsorted(sorted, values, false), weft_shape(2, 4), 0, 0, 1, 3, 4, 5, 5, 5);
    IS(weft_searchsorted(sorted, values, true), weft_shape(2, 4), 0, 1, 3, 3, 5, 5, 6, 5);
    IS(weft_searchsorted(sorted, weft_i(0), true), weft_shape(), 3);
    weft_tensor large = weft_add(weft_arange(0, 4, 1, WEFT_I64), weft_i((int64_t)1 << 62));
    IS(weft_searchsorted(large, weft_i(((int64_t)1 << 62) + 2), false), weft_shape(), 2);
    weft_tensor bytes = weft_cast(weft_arange(0, 6, 2, WEFT_I64), WEFT_U8); /* 0, 2, 4 */
    IS(weft_searchsorted(bytes, weft_i(258), false), weft_shape(), 3);
    IS(weft_searchsorted(bytes, weft_i(-1), true), weft_shape(), 0);
    IS(weft_searchsorted(bytes, weft_f(2.5), false), weft_shape(), 2);
    IS(weft_searchsorted(weft_zeros(weft_shape(0), WEFT_F32), values, false), weft_shape(2, 4), 0,
       0, 0, 0, 0, 0, 0, 0);
    check_error("other rows", weft_searchsorted(values, sorted, false), WEFT_ESHAPE,
                "not those of");
    check_error("a number", weft_searchsorted(weft_f(1), sorted, false), WEFT_ESHAPE, "rank 0");
    for (int64_t n = 1; n <= 17; n++) {
        check_searches(n, 1 + n % 9);
        check_searches(n, 17);
    }
    weft_scope_end(sc);
}

typedef struct search_case {
    bool right;
} search_case;

static weft_status trace_search(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                int n_out)
{
    const search_case *k = self;
    (void)n_in, (void)n_out;
    out[0] = weft_searchsorted(in[0], in[1], k->right);
    return weft_error_status(out[0]);
}

/* Rows by rows is each row by itself; a trace, which is not broken, finds the same. */
static void check_rows(int64_t rows, int64_t n, int64_t m, weft_dtype dtype)
{
    weft_generator g = {(uint64_t)(rows * 100 + n * 10 + m), 0};
    weft_tensor s, v, got, traced, row[8];
    weft_tensor a = weft_randint(weft_shape(rows, 2, n), 0, 9, dtype, .generator = &g);
    v = weft_randint(weft_shape(rows, 2, m), -1, 10, dtype, .generator = &g);
    if (dtype == WEFT_F32) {
        a = weft_masked_fill(a, weft_equal(a, weft_i(8)), weft_f(NAN));
        v = weft_masked_fill(v, weft_equal(v, weft_i(9)), weft_f(NAN));
    }
    cr_assert_eq(weft_sort(a, -1, false, &s, NULL), WEFT_OK);
    for (int right = 0; right < 2; right++) {
        got = weft_searchsorted(s, v, right);
        for (int64_t r = 0; r < 2 * rows; r++) {
            row[r] = weft_searchsorted(weft_select(weft_flatten(s, 0, 1), 0, r),
                                       weft_select(weft_flatten(v, 0, 1), 0, r), right);
        }
        weft_tensor want = weft_reshape(weft_stack(row, (int)(2 * rows), 0), weft_shape_of(v));
        cr_assert(weft_item_f64(weft_all(weft_equal(got, want))) == 1, "%s", weft_last_error());
        search_case k = {right};
        weft_jit *j = weft_jit_trace(trace_search, &k, .single_graph = true);
        weft_tensor flat[2] = {weft_select(weft_flatten(s, 0, 1), 0, 1), v};
        weft_tensor in[2] = {s, v};
        cr_assert_eq(weft_jit_call(j, in, 2, &traced, 1), WEFT_OK, "%s", weft_last_error());
        cr_assert(weft_item_f64(weft_all(weft_equal(got, traced))) == 1);
        cr_assert_eq(weft_jit_call(j, flat, 2, &traced, 1), WEFT_OK, "%s", weft_last_error());
        want = weft_searchsorted(flat[0], v, right);
        cr_assert(weft_item_f64(weft_all(weft_equal(want, traced))) == 1);
        weft_jit_free(j);
    }
}

Test(values, searchsorted_of_rows)
{
    for (int64_t n = 0; n <= 9; n++) {
        weft_scope sc = weft_scope_begin();
        check_rows(1 + n % 3, n, 1 + n * 3 % 7, n % 2 ? WEFT_F32 : WEFT_I64);
        weft_scope_end(sc);
    }
    weft_scope sc = weft_scope_begin();
    check_rows(4, 17, 21, WEFT_F32);
    weft_tensor none = weft_zeros(weft_shape(0, 3), WEFT_F32);
    IS(weft_searchsorted(none, weft_zeros(weft_shape(0, 2), WEFT_F32), false), weft_shape(0, 2));
    weft_scope_end(sc);
}

/* Results stay what they were, and nothing is left behind. */
static weft_status trace_select(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor y = weft_mul(in[0], weft_f(2));
    out[0] = weft_sum(weft_masked_select(y, weft_greater(y, weft_f(3))));
    return weft_error_status(out[0]);
}

Test(values, in_a_trace_and_without_memory)
{
    test_baseline before = test_baseline_take();
    weft_scope sc = weft_scope_begin();
    weft_tensor x = iota(weft_shape(4), WEFT_F32), y = WEFT_NONE;
    weft_jit *j = weft_jit_trace(trace_select, NULL);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(weft_jit_call(j, &x, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
        IS(y, weft_shape(), 4 + 6);
    }
    weft_jit_free(j);
    weft_scope_end(sc);
    check_baseline("values", &before);
}
