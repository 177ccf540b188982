/*
 * tests/support/checks.c -- the checks of support.h.
 *
 * Invariant: a check that fails aborts its test.
 */
#include "tests/gpu/runner.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

void check_ulp(const char *what, int dtype, double allowed, long double want, long double got)
{
    double e = test_ulp(dtype, want, got);
    cr_assert(e <= allowed, "%s: %La (%Lg), exactly %La: %g ULP of %s, %g allowed", what, got, got,
              want, e, weft_dtype_name((weft_dtype)dtype), allowed);
}

/* Row-major elements of t in its own type; the caller frees. */
static char *elements_of(const char *what, weft_tensor t, int64_t *n)
{
    cr_assert(weft_ok(t), "%s: %s", what, weft_error_text(t));
    *n = weft_numel(t);
    char *p = malloc((size_t)weft_nbytes(t) + 1);
    cr_assert(p);
    cr_assert_eq(weft_to_array(t, p, *n, WEFT_DTYPE_DEFAULT), WEFT_OK, "%s: %s", what,
                 weft_last_error());
    return p;
}

void check_type(const char *what, weft_tensor t, weft_dtype dtype, weft_shape shape)
{
    cr_assert(weft_ok(t), "%s: %s", what, weft_error_text(t));
    cr_assert_eq(weft_dtype_of(t), dtype, "%s: %s, not %s", what, weft_dtype_name(weft_dtype_of(t)),
                 weft_dtype_name(dtype));
    weft_shape s = weft_shape_of(t);
    cr_assert_eq(s.n, shape.n, "%s: rank %d, not %d", what, (int)s.n, (int)shape.n);
    for (int i = 0; i < shape.n; i++) {
        cr_assert_eq(s.v[i], shape.v[i], "%s: axis %d is %lld, not %lld", what, i,
                     (long long)s.v[i], (long long)shape.v[i]);
    }
}

void check_bits(const char *what, weft_tensor a, weft_tensor b)
{
    int64_t n, m;
    char *p = elements_of(what, a, &n), *q = elements_of(what, b, &m);
    check_type(what, a, weft_dtype_of(b), weft_shape_of(b));
    int dtype = (int)weft_dtype_of(a);
    size_t size = weft_dtype_size((weft_dtype)dtype);
    const bool differ = memcmp(p, q, (size_t)n * size) != 0; /* if only in what NaN they are */
    for (int64_t i = 0; differ && i < n; i++) {
        const char *x = p + (size_t)i * size, *y = q + (size_t)i * size;
        long double u = test_load(x, dtype), v = test_load(y, dtype);
        cr_assert(memcmp(x, y, size) == 0 || (isnan(u) && isnan(v)),
                  "%s: element %lld is %La (%Lg), not %La (%Lg)", what, (long long)i, u, u, v, v);
    }
    free(p);
    free(q);
}

void check_near(const char *what, weft_tensor t, const long double *want, const long double *bound)
{
    int64_t n;
    char *p = elements_of(what, t, &n);
    int dtype = (int)weft_dtype_of(t);
    size_t size = weft_dtype_size((weft_dtype)dtype);
    for (int64_t i = 0; i < n; i++) {
        long double got = test_load(p + (size_t)i * size, dtype);
        bool same = got == want[i] || (isnan(got) && isnan(want[i]));
        cr_assert(same || fabsl(got - want[i]) <= bound[i],
                  "%s: element %lld is %Lg, exactly %Lg, off by %Lg, %Lg allowed", what,
                  (long long)i, got, want[i], fabsl(got - want[i]), bound[i]);
    }
    free(p);
}

void check_error(const char *what, weft_tensor t, weft_status status, const char *says)
{
    cr_assert(!weft_ok(t), "%s: there is a result", what);
    cr_assert_eq(weft_error_status(t), status, "%s: %s, not %s: %s", what,
                 weft_status_name(weft_error_status(t)), weft_status_name(status),
                 weft_error_text(t));
    cr_assert(strstr(weft_error_text(t), says), "%s: \"%s\" does not say \"%s\"", what,
              weft_error_text(t), says);
}

void check_status(const char *what, weft_status got, weft_status want, const char *says)
{
    cr_assert_eq(got, want, "%s: %s, not %s: %s", what, weft_status_name(got),
                 weft_status_name(want), weft_last_error());
    cr_assert(want == WEFT_OK || strstr(weft_last_error(), says), "%s: \"%s\" does not say \"%s\"",
              what, weft_last_error(), says);
}

void check_text(const char *what, const char *got, const char *golden)
{
    size_t at = 0;
    while (got[at] && got[at] == golden[at]) {
        at++;
    }
    cr_assert(got[at] == golden[at], "%s: differs at character %zu:\n%s\nexpected:\n%s", what, at,
              got, golden);
}

void check_lines(const char *path, const char *got)
{
    if (getenv("WEFT_ACCEPT")) {
        FILE *f = fopen(path, "wb");
        cr_assert(f && fputs(got, f) >= 0 && fclose(f) == 0, "%s cannot be written", path);
    }
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f, "%s is missing: WEFT_ACCEPT=1 makes it", path);
    char want[2048];
    for (int line = 1; fgets(want, sizeof want, f); line++) {
        const char *end = strchr(got, '\n');
        cr_assert_not_null(end, "line %d is missing: %s", line, want);
        const bool same = strncmp(got, want, (size_t)(end - got) + 1) == 0;
        cr_expect(same, "line %d is\n%.*s\nexpected\n%s", line, (int)(end - got), got, want);
        got = end + 1;
    }
    cr_expect(*got == '\0', "more than expected: %s", got);
    fclose(f);
}

void check_gradient(const char *what, weft_check_fn fn, void *user, const weft_tensor *in, int n)
{
    char why[256] = "";
    weft_status st = weft_gradcheck(.fn = fn, .user = user, .inputs = in, .n_in = n, .n_out = 1,
                                    .report = why, .report_size = sizeof why);
    cr_assert_eq(st, WEFT_OK, "%s: %s %s", what, why, weft_last_error());
}

test_baseline test_baseline_take(void)
{
    test_baseline b;
    weft_memory_get_stats(&b.stats);
    b.nodes = weft_tape_nodes();
    return b;
}

void check_baseline(const char *what, const test_baseline *before)
{
    test_baseline now = test_baseline_take();
    cr_assert_eq(now.stats.live_bytes, before->stats.live_bytes, "%s: %lld bytes live, %lld before",
                 what, (long long)now.stats.live_bytes, (long long)before->stats.live_bytes);
    cr_assert_eq(now.stats.live_tensors, before->stats.live_tensors,
                 "%s: %lld tensors live, %lld before", what, (long long)now.stats.live_tensors,
                 (long long)before->stats.live_tensors);
    cr_assert_eq(now.nodes, before->nodes, "%s: %lld tape nodes, %lld before", what,
                 (long long)now.nodes, (long long)before->nodes);
}
