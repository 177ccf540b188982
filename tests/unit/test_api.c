/*
 * tests/unit/test_api.c -- the public functions: memory in and out, views, options and their defaults,
 * compositions against double-precision loops, failures. Kernels have suites of their own.
 *
 * ctest: threads
 */
#include <criterion/criterion.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "eager/alloc.h"
#include "eager/tensor.h"
#include "weft/weft.h"

#define OK(call) cr_assert_eq(call, WEFT_OK, "%s", weft_last_error())
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* t's elements are want[n], to `tol` relative to 1 + |want|. */
static void near(const char *what, weft_tensor t, int n, const double *want, double tol)
{
    double *got = malloc((size_t)(n + 1) * sizeof *got);
    cr_assert(weft_ok(t), "%s: %s", what, weft_error_text(t));
    cr_assert_eq(weft_numel(t), n, "%s: %d elements, %d expected", what, (int)weft_numel(t), n);
    OK(weft_to_array(t, got, n, WEFT_F64));
    for (int i = 0; i < n; i++) {
        bool same = isnan(want[i])
                        ? isnan(got[i])
                        : got[i] == want[i] || fabs(got[i] - want[i]) <= tol * (1 + fabs(want[i]));
        cr_assert(same, "%s[%d] is %.9g, %.9g expected", what, i, got[i], want[i]);
    }
    free(got);
}
#define SAME(t, ...) near(#t, t, COUNT(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__}, 0)

static void has_shape(weft_tensor t, weft_shape s)
{
    weft_shape got = weft_shape_of(t);
    cr_assert_eq(got.n, s.n, "rank %d: %s", (int)got.n, weft_last_error());
    for (int i = 0; i < s.n; i++) {
        cr_assert_eq(got.v[i], s.v[i], "axis %d is %d", i, (int)got.v[i]);
    }
}

static void fails(const char *what, weft_tensor t, weft_status status)
{
    cr_assert(!weft_ok(t), "%s is accepted", what);
    cr_assert_eq(weft_error_status(t), status, "%s: %s", what, weft_error_text(t));
    cr_assert(strlen(weft_error_text(t)) > 10, "%s has no message", what);
}
#define FAILS(call, status) fails(#call, call, status)

static weft_tensor iota(weft_shape s, weft_dtype dt)
{
    int64_t n = 1;
    for (int i = 0; i < s.n; i++) {
        n *= s.v[i];
    }
    return weft_reshape(weft_arange(0, (double)n, 1, dt), s);
}

/* -- headers ------------------------------------------------------------------------------------------- */

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f, "%s", path);
    fseek(f, 0, SEEK_END);
    size_t n = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(n + 1);
    cr_assert_eq(fread(text, 1, n, f), n);
    text[n] = '\0';
    fclose(f);
    return text;
}

static bool is_row(const char *name, size_t n)
{
    wf_op op = wf_op_parse(name, n);
    return op != WF_OP_INVALID && wf_op_is_elementwise(op);
}

/* Prototype, macro and row agree: each function of ops.h has its macro and each macro a function;
 * each elementwise function is a row, or masked_fill, the one composition among them. */
Test(api, prototypes_macros_and_rows)
{
    static const char *const headers[] = {"ops.h", "ops_array.h", "ops_nn.h"};
    char *macros = read_file(WEFT_SOURCE_DIR "/include/weft/ops_sites.h");
    char line[128];
    int functions = 0, defined = 0, elementwise = 0;
    for (int h = 0; h < COUNT(headers); h++) {
        char path[1024];
        snprintf(path, sizeof path, WEFT_SOURCE_DIR "/include/weft/%s", headers[h]);
        char *text = read_file(path), *rows_end = h ? text : strstr(text, "/* -- in place");
        cr_assert_not_null(rows_end);
        for (char *p = text; (p = strstr(p, "\nWEFT_API "));) {
            char *paren = strchr(p, '('), *name = paren;
            while (isalnum((unsigned char)name[-1]) || name[-1] == '_') {
                name--;
            }
            name--;
            int n = (int)(paren - name - 1);
            snprintf(line, sizeof line, "#define %.*s(...)", n, name + 1);
            cr_expect(strstr(macros, line) != NULL, "no macro: %s", line);
            functions++;
            if (h == 0 && p < rows_end) {
                elementwise++;
                bool composed = strncmp(name + 6, "masked_fill(", 12) == 0;
                cr_expect(composed || is_row(name + 6, (size_t)n - 5), "no row: %.*s", n, name + 1);
            }
            p = paren;
        }
        free(text);
    }
    for (char *p = macros; (p = strstr(p, "\n#define weft_")); p++) {
        defined++;
    }
    int rows = 0;
    for (int op = 0; op < WF_OP_COUNT; op++) {
        rows += wf_op_is_elementwise((wf_op)op);
    }
    cr_expect_eq(functions, defined, "%d functions, %d macros", functions, defined);
    cr_expect_eq(elementwise, rows + 1, "%d functions, %d rows", elementwise, rows);
    free(macros);
}

/* Each macro of sites.h is beside a function of core.h or tensor.h. */
Test(api, macros_of_other_functions)
{
    char *text[] = {read_file(WEFT_SOURCE_DIR "/include/weft/core.h"),
                    read_file(WEFT_SOURCE_DIR "/include/weft/tensor.h")};
    char *macros = read_file(WEFT_SOURCE_DIR "/include/weft/sites.h"), name[64], call[72];
    int seen = 0;
    for (char *p = macros; (p = strstr(p, "\n#define weft_")); p++, seen++) {
        cr_assert_eq(sscanf(p, "\n#define %63[a-z0-9_](...)", name), 1);
        snprintf(call, sizeof call, " %s(", name);
        cr_expect(strstr(text[0], call) || strstr(text[1], call), "no function: %s", name);
    }
    cr_expect(seen >= 15, "%d macros", seen);
    free(macros);
    free(text[0]);
    free(text[1]);
}

/* -- memory in and out ----------------------------------------------------------------------------------- */

static int deleted;
static void count_delete(void *arg)
{
    deleted += *(int *)arg;
}

Test(api, blobs)
{
    static int one = 1;
    double data[12];
    for (int i = 0; i < 12; i++) {
        data[i] = i;
    }
    weft_scope s = weft_scope_begin();
    weft_tensor t =
        weft_from_blob(data, weft_shape(3, 4), WEFT_F64, .deleter = count_delete, .arg = &one);
    cr_assert_eq(weft_data(t), data);
    OK(weft_mul_(weft_select(t, 1, 1), weft_f(10)));
    cr_assert(data[5] == 50 && data[4] == 4);
    data[0] = 7;
    SAME(weft_select(t, 1, 0), 7, 4, 8);
    cr_assert_eq(weft_write_count(t), 1);
    cr_assert_eq(weft_data_mut(t), data);
    cr_assert_eq(weft_write_count(t), 2);
    weft_tensor v = weft_keep(weft_slice(t, 0, 1, 2, 1));
    weft_scope_end(s);
    cr_assert_eq(deleted, 0);
    weft_free(v);
    cr_assert_eq(deleted, 1);
    /* any strides, read-only, a large block in no time */
    int64_t back[2] = {-4, 1};
    t = weft_from_blob(data + 8, weft_shape(3, 2), WEFT_F64, .strides = back, .read_only = true);
    SAME(t, 8, 90, 4, 50, 7, 10);
    cr_assert_eq(weft_offset(t), 8);
    cr_assert_eq(weft_add_(t, weft_f(1)), WEFT_EINVALID);
    cr_assert_eq(weft_fill_(t, 1), WEFT_EINVALID);
    cr_assert_null(weft_data_mut(t));
    cr_assert_eq(weft_error_status(weft_from_blob(NULL, weft_shape(1), WEFT_F32)), WEFT_EINVALID);
    /* failures leave the memory to the caller */
    deleted = 0;
    FAILS(weft_from_blob((char *)data + 1, weft_shape(1), WEFT_F64, .deleter = count_delete,
                         .arg = &one),
          WEFT_EINVALID);
    FAILS(weft_from_blob(data, weft_shape(-1), WEFT_F64, .deleter = count_delete, .arg = &one),
          WEFT_ESHAPE);
    FAILS(weft_from_blob(data, weft_shape(INT64_MAX, 2), WEFT_F64), WEFT_ENOMEM);
    FAILS(weft_from_blob(data, weft_shape(1), (weft_dtype)77), WEFT_EDTYPE);
    for (int n = 1; n < 3; n++) {
        wf_alloc_fail_after(n, 1);
        t = weft_from_blob(data, weft_shape(1, 1, 1, 1, 1, 1, 1, 1), WEFT_F64,
                           .deleter = count_delete, .arg = &one);
        wf_alloc_fail_after(0, 0);
        fails("blob without memory", t, WEFT_ENOMEM);
    }
    cr_assert_eq(deleted, 0);
    cr_assert(weft_ok(weft_from_blob(NULL, weft_shape(0, 5), WEFT_F32)));
}

/* The least CPU time of so many imports, in several tries. */
static int64_t time_of_blobs(void *data, int64_t n)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < 40; i++) {
        struct timespec from, to;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        for (int k = 0; k < 100; k++) {
            weft_free(weft_from_blob(data, weft_shape(n), WEFT_U8));
        }
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        const int64_t ns =
            (to.tv_sec - from.tv_sec) * INT64_C(1000000000) + to.tv_nsec - from.tv_nsec;
        least = ns < least ? ns : least;
    }
    return least;
}

/* Memory that must not even be read, and 64 GiB of it: an import touches none, takes no more and no longer than of a byte. */
Test(api, blobs_cost_the_same_at_every_size)
{
    const size_t all = (size_t)1 << 36;
    char *data = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
        cr_skip_test("no 64 GiB of addresses");
    }
    int64_t taken[2];
    for (int i = 0; i < 2; i++) {
        weft_memory_stats before, after;
        weft_memory_get_stats(&before);
        weft_tensor t = weft_from_blob(data, weft_shape(i ? (int64_t)all : 1), WEFT_U8);
        weft_memory_get_stats(&after);
        cr_assert_eq(weft_data(t), data);
        cr_assert_eq(weft_nbytes(t), i ? (int64_t)all : 1);
        taken[i] = after.live_bytes - before.live_bytes;
        cr_assert_leq(after.allocations - before.allocations, 1);
        weft_free(t);
    }
    cr_assert_eq(taken[0], taken[1]);
    const int64_t small = time_of_blobs(data, 1), large = time_of_blobs(data, (int64_t)all);
    cr_assert_lt(large, 3 * small, "%lld ns for 64 GiB, %lld for a byte", (long long)large,
                 (long long)small);
    munmap(data, all);
}

Test(api, reading)
{
    const int32_t ints[4] = {1, -2, 3, 300};
    weft_tensor t = weft_from_data(ints, weft_shape(2, 2), WEFT_I32);
    float f[4];
    uint8_t u[4];
    OK(weft_to_array(weft_transpose(t, 0, 1), f, 4, WEFT_F32));
    cr_assert(f[0] == 1 && f[1] == 3 && f[2] == -2 && f[3] == 300);
    OK(weft_to_array(weft_greater(t, weft_i(0)), u, 4, WEFT_DTYPE_DEFAULT));
    cr_assert(u[0] == 1 && u[1] == 0 && u[2] == 1 && u[3] == 1);
    cr_assert_eq(weft_to_array(t, f, 3, WEFT_F32), WEFT_ESHAPE);
    cr_assert_eq(weft_to_array(t, NULL, 4, WEFT_F32), WEFT_EINVALID);
    cr_assert_eq(weft_to_array(t, f, 4, (weft_dtype)50), WEFT_EDTYPE);
    double d = 0;
    OK(weft_item(weft_select(weft_select(t, 0, 1), 0, 1), &d));
    cr_assert_eq(d, 300);
    cr_assert_eq(weft_item(t, &d), WEFT_ESHAPE);
    cr_assert_eq(weft_item(t, NULL), WEFT_EINVALID);
    cr_assert(isnan(weft_item_f64(t)) && weft_item_i64(t) == INT64_MIN);
    int64_t big = (INT64_C(1) << 62) + 1;
    cr_assert_eq(weft_item_i64(weft_from_data(&big, weft_shape(), WEFT_I64)), big);
    cr_assert_eq(weft_item_i64(weft_scalar(-2.75, WEFT_F32)), -2);
    cr_assert_eq(weft_item_i64(weft_scalar(INFINITY, WEFT_BF16)), INT64_MAX);
    cr_assert_eq(weft_item_i64(weft_scalar(NAN, WEFT_F16)), 0);
    cr_assert(weft_item_f64(weft_f(2.5)) == 2.5 && weft_item_i64(weft_i(-7)) == -7 &&
              weft_item_f64(weft_b(true)) == 1);
    FAILS(weft_from_data(NULL, weft_shape(1), WEFT_F32), WEFT_EINVALID);
    cr_assert_null(weft_data(weft_f(1)));
    cr_assert_null(weft_data(WEFT_NONE));
}

/* weft_full, weft_scalar and weft_fill_ make an integer of a number as weft_cast does, if the type holds it. */
Test(api, numbers_become_integers_as_cast_says)
{
    static const double low[] = {0, 0, -128, -32768, -2147483648.0, -0x1p63},
                        high[] = {0, 255, 127, 32767, 2147483647, 0x1p63};
    static const double values[] = {0,     1.9,  -1.9,  127.5,    128,       200,
                                    255.9, 256,  300,   -129,     32768,     1e10,
                                    -1e10, 1e19, -1e19, INFINITY, -INFINITY, NAN};
    static const weft_dtype types[] = {WEFT_BOOL, WEFT_U8, WEFT_I8, WEFT_I16, WEFT_I32, WEFT_I64};
    for (int d = 0; d < COUNT(types); d++) {
        for (int k = 0; k < COUNT(values); k++) {
            weft_tensor want = weft_cast(weft_scalar(values[k], WEFT_F64), types[d]);
            weft_tensor filled = weft_zeros(weft_shape(), types[d]);
            double whole = trunc(values[k]);
            bool held = d == 0 || (whole >= low[d] && whole <= high[d] && whole < 0x1p63);
            if (!held) {
                FAILS(weft_scalar(values[k], types[d]), WEFT_EINVALID);
                FAILS(weft_full(weft_shape(), values[k], types[d]), WEFT_EINVALID);
                cr_expect_eq(weft_fill_(filled, values[k]), WEFT_EINVALID);
                cr_expect_eq(weft_item_i64(filled), 0);
                continue;
            }
            OK(weft_fill_(filled, values[k]));
            int64_t w = weft_item_i64(want);
            cr_expect_eq(weft_item_i64(weft_scalar(values[k], types[d])), w, "%g", values[k]);
            cr_expect_eq(weft_item_i64(weft_full(weft_shape(), values[k], types[d])), w, "%g",
                         values[k]);
            cr_expect_eq(weft_item_i64(filled), w, "%g as %s", values[k],
                         weft_dtype_name(types[d]));
        }
    }
}

Test(api, queries_names_and_sites)
{
    weft_tensor t = weft_zeros(weft_shape(2, 3, 4), WEFT_F16);
    weft_tensor v = weft_permute(weft_slice(t, 2, 1, 4, 2), weft_axes(2, 0, 1));
    cr_assert(weft_rank(v) == 3 && weft_dim(v, -1) == 3 && weft_stride(v, 0) == 2 &&
              weft_numel(v) == 12 && weft_nbytes(v) == 24 && weft_offset(v) == 1);
    cr_assert(weft_dtype_of(v) == WEFT_F16 && !weft_is_contiguous(v) && weft_is_contiguous(t));
    cr_assert(weft_shares_memory(t, v) && !weft_shares_memory(t, weft_clone(t)));
    weft_tensor import =
        weft_from_dlpack(weft_to_dlpack(v)); /* a block of its own on the same memory */
    cr_assert(weft_shares_memory(import, t) && weft_shares_memory(t, import));
    cr_assert(weft_dim(t, 3) == -1 && weft_last_status() == WEFT_ESHAPE);
    cr_assert(weft_rank(WEFT_NONE) == -1 && weft_numel(WEFT_NONE) == -1 &&
              weft_shape_of(WEFT_NONE).n == -1 && weft_dtype_of(WEFT_NONE) == WEFT_DTYPE_DEFAULT);
    cr_assert(weft_rank(weft_i(3)) == 0 && weft_dtype_of(weft_i(3)) == WEFT_I64);
    cr_assert_str_eq(weft_name(t), "");
    OK(weft_set_name(t, "weights"));
    OK(weft_set_name(t, "bias"));
    cr_assert_str_eq(weft_name(t), "bias");
    const char *here = weft_site(weft_neg(t));
    cr_assert(strstr(here, "test_api.c:") != NULL, "%s", here);
    cr_assert_str_eq(weft_site((weft_neg)(t)), "");
    weft_tensor e = weft_add(t, weft_zeros(weft_shape(5), WEFT_F32));
    cr_assert(strstr(weft_error_text(e), "'bias'") && strstr(weft_error_text(e), "f16[2,3,4]") &&
                  strstr(weft_error_text(e), "test_api.c:"),
              "%s", weft_error_text(e));
    cr_assert_str_eq(weft_error_text(weft_exp(weft_mul(e, e))), weft_error_text(e));
    OK(weft_set_name(t, NULL));
    cr_assert_str_eq(weft_name(t), "");
}

/* -- views ----------------------------------------------------------------------------------------------- */

/* Python's rules, one index at a time: which elements does x[start:stop:step] take? */
static int python_slice(int n, int64_t start, int64_t stop, int step, double *out)
{
    int64_t lo = step > 0 ? 0 : -1, hi = step > 0 ? n : n - 1;
    int64_t b = start == WEFT_OMIT ? (step > 0 ? lo : hi) : start < 0 ? start + n : start;
    int64_t e = stop == WEFT_OMIT ? (step > 0 ? hi : lo) : stop < 0 ? stop + n : stop;
    b = b < lo ? lo : b > hi ? hi : b;
    e = e < lo ? lo : e > hi ? hi : e;
    int count = 0;
    for (int64_t i = b; step > 0 ? i < e : i > e; i += step) {
        out[count++] = (double)i;
    }
    return count;
}

Test(api, slices)
{
    for (int n = 0; n < 6; n++) {
        weft_tensor x = weft_arange(0, n, 1, WEFT_I64);
        for (int s = -8; s <= 8; s++) {
            for (int e = -8; e <= 8; e++) {
                weft_scope sc = weft_scope_begin();
                for (int step = -3; step <= 3; step++) {
                    double want[8];
                    int64_t start = s == 8 ? WEFT_OMIT : s, stop = e == 8 ? WEFT_OMIT : e;
                    if (step) {
                        int count = python_slice(n, start, stop, step, want);
                        near("slice", weft_slice(x, 0, start, stop, step), count, want, 0);
                    }
                }
                weft_scope_end(sc);
            }
        }
        FAILS(weft_slice(x, 0, 0, n, 0), WEFT_EINVALID);
        SAME(weft_slice(weft_arange(0, 3, 1, WEFT_I8), -1, WEFT_OMIT, WEFT_OMIT, INT64_MIN + 1), 2);
        SAME(weft_slice(weft_arange(0, 3, 1, WEFT_I8), 0, INT64_MIN + 1, INT64_MAX, INT64_MAX), 0);
    }
}

Test(api, views_share_memory)
{
    weft_tensor x = iota(weft_shape(2, 3, 4), WEFT_F32);
    weft_memory_stats before, after;
    weft_memory_get_stats(&before);
    weft_tensor v[] = {weft_reshape(x, weft_shape(4, -1)),
                       weft_flatten(x, 0, -1),
                       weft_unsqueeze(x, -1),
                       weft_squeeze(weft_unsqueeze(x, 1), weft_axes(1)),
                       weft_transpose(x, 0, 2),
                       weft_permute(x, weft_axes(1, 2, 0)),
                       weft_expand(weft_unsqueeze(x, 0), weft_shape(5, -1, -1, -1)),
                       weft_slice(x, 2, 3, 0, -1),
                       weft_narrow(x, 1, -2, 2),
                       weft_select(x, 0, -1),
                       weft_flip(x, weft_axes(0, 2)),
                       weft_as_strided(x, weft_shape(3), weft_shape(5), 2),
                       weft_diagonal(x, 1, 1, 2),
                       weft_unfold(x, 2, 2, 1),
                       weft_detach(x),
                       weft_contiguous(x),
                       weft_cast(x, WEFT_F32),
                       weft_broadcast_to(x, weft_shape(2, 2, 3, 4))};
    weft_memory_get_stats(&after);
    cr_assert_eq(after.allocations, before.allocations, "a view allocates");
    for (int i = 0; i < COUNT(v); i++) {
        cr_assert(weft_shares_memory(x, v[i]), "view %d: %s", i, weft_error_text(v[i]));
    }
    SAME(v[9], 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23);
    SAME(v[11], 2, 7, 12);
    SAME(v[12], 1, 6, 11, 13, 18, 23);
    has_shape(v[13], weft_shape(2, 3, 3, 2));
    SAME(weft_select(weft_select(v[13], 0, 1), 0, 2), 20, 21, 21, 22, 22, 23);
    SAME(weft_select(v[10], 1, 0), 15, 14, 13, 12, 3, 2, 1, 0);
    has_shape(v[6], weft_shape(5, 2, 3, 4));
    has_shape(weft_flatten(x, 1, 2), weft_shape(2, 12));
    has_shape(weft_flatten(weft_f(1), 0, -1), weft_shape(1));
    has_shape(weft_squeeze(weft_zeros(weft_shape(1, 3, 1), WEFT_F32), weft_axes()), weft_shape(3));
    weft_tensor part[3];
    OK(weft_split(x, -1, (const int64_t[]){1, 0, 3}, 3, part));
    has_shape(part[1], weft_shape(2, 3, 0));
    OK(weft_fill_(part[2], 9));
    SAME(weft_select(weft_select(x, 0, 1), 0, 2), 20, 9, 9, 9);
    OK(weft_chunk(x, 1, 2, part));
    has_shape(part[0], weft_shape(2, 2, 4));
    has_shape(part[1], weft_shape(2, 1, 4));
    /* a reshape that must copy, rank 0 and 16 */
    cr_assert(!weft_shares_memory(x, weft_flatten(weft_transpose(x, 0, 1), 0, -1)));
    has_shape(weft_reshape(x, weft_shape(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4)),
              weft_shape(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4));
    has_shape(weft_reshape(weft_zeros(weft_shape(0, 4), WEFT_F32), weft_shape(2, 0)),
              weft_shape(2, 0));
}

Test(api, in_place)
{
    weft_tensor x = iota(weft_shape(3, 3), WEFT_F32), alias = weft_transpose(x, 0, 1);
    OK(weft_add_(x, alias)); /* overlapping operand */
    SAME(x, 0, 4, 8, 4, 8, 12, 8, 12, 16);
    OK(weft_copy_(weft_select(x, 0, 0), weft_flip(weft_select(x, 0, 0), weft_axes())));
    SAME(weft_select(x, 0, 0), 8, 4, 0);
    OK(weft_masked_fill_(x, weft_greater(x, weft_f(8)), weft_f(-1)));
    SAME(x, 8, 4, 0, 4, 8, -1, 8, -1, -1);
    OK(weft_clamp_(alias, weft_f(0), weft_f(5)));
    OK(weft_neg_(x));
    OK(weft_lerp_(x, weft_f(0), weft_f(0.5)));
    SAME(x, -2.5, -2, -0.0, -2, -2.5, -0.0, -2.5, -0.0, -0.0);
    cr_assert_eq(weft_write_count(alias), 6);
    weft_tensor i = weft_zeros(weft_shape(2), WEFT_U8);
    OK(weft_fill_(i, 3.9));
    SAME(i, 3, 3);
    cr_assert_eq(weft_add_(i, weft_f(1)), WEFT_EDTYPE);
    cr_assert_eq(weft_copy_(i, weft_zeros(weft_shape(2, 2), WEFT_U8)), WEFT_ESHAPE);
    cr_assert_eq(weft_fill_(weft_expand(i, weft_shape(3, 2)), 1), WEFT_ESHAPE);
    cr_assert_eq(weft_fill_(weft_f(1), 1), WEFT_EINVALID);
    SAME(i, 3, 3);
    OK(weft_zero_(i));
    weft_tensor b = weft_zeros(weft_shape(2), WEFT_BOOL);
    OK(weft_fill_(b, -2));
    SAME(b, 1, 1);
    weft_tensor idx = weft_from_data((const int64_t[]){2, 0, 2}, weft_shape(3), WEFT_I64);
    weft_tensor acc = weft_zeros(weft_shape(3), WEFT_F32);
    OK(weft_scatter_add_(acc, 0, idx, weft_ones(weft_shape(3), WEFT_F32)));
    OK(weft_index_add_(acc, 0, idx, weft_ones(weft_shape(3), WEFT_I32)));
    SAME(acc, 2, 0, 4);
}

/* -- movement, indexing, creation, reductions ---------------------------------------------------------------- */

/* What weft/ops_array.h calls a copy is one where there is nothing to do, too, and can be written to. */
Test(api, copies_have_memory_of_their_own)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor x = weft_arange(0, 3, 1, WEFT_F32), column = weft_reshape(x, weft_shape(3, 1));
    const weft_tensor no_more = weft_zeros(weft_shape(0), WEFT_F32);
    const weft_tensor all = weft_ones(weft_shape(3), WEFT_BOOL);
    for (int traced = 0; traced < 2; traced++) {
        weft_jit *j = weft_jit_trace(NULL, NULL, .always_record = true);
        cr_assert_eq(traced ? weft_jit_begin(j) : WEFT_OK, WEFT_OK);
        const weft_tensor copy[] = {
            weft_repeat(column, 2, 1),
            weft_repeat(column, 1, 0),
            weft_repeat(weft_slice(x, 0, 0, 1, 1), 4, 0),
            weft_tile(column, weft_shape(1, 2)),
            weft_tile(column, weft_shape(2, 1, 1)),
            weft_tile(x, weft_shape(1)),
            weft_tile(x, weft_shape()),
            weft_pad(x, weft_shape(0), weft_shape(0), 0),
            weft_pad_mode(x, weft_shape(0), weft_shape(0), WEFT_PAD_CIRCULAR),
            weft_roll(x, weft_shape(0), weft_axes(0)),
            weft_roll(x, weft_shape(3), weft_axes(0)),
            weft_concat(WEFT_LIST(x), 0),
            weft_concat(WEFT_LIST(x, no_more), 0),
            weft_stack(WEFT_LIST(x), 0),
            weft_tril(column, 0),
            weft_triu(column, -2),
            weft_masked_select(x, all),
            weft_sum(x, WEFT_NO_AXES),
            weft_max(column, weft_axes(1)),
            weft_scatter_add(x, 0, weft_zeros(weft_shape(0), WEFT_I64), no_more),
        };
        for (int k = 0; k < (int)(sizeof copy / sizeof *copy); k++) {
            cr_expect(weft_ok(copy[k]), "%d: %s", k, weft_error_text(copy[k]));
            cr_expect(!weft_shares_memory(x, copy[k]), "%d is a view", k);
            cr_expect_eq(weft_zero_(copy[k]), WEFT_OK, "%d: %s", k, weft_last_error());
        }
        cr_assert_eq(traced ? weft_jit_end(j) : WEFT_OK, WEFT_OK, "%s", weft_last_error());
        SAME(x, 0, 1, 2);
        weft_jit_free(j);
    }
    weft_scope_end(sc);
}

Test(api, movement_and_indexing)
{
    weft_tensor x = iota(weft_shape(2, 3), WEFT_I32), h = weft_ones(weft_shape(1, 3), WEFT_F16);
    weft_tensor c = weft_concat(WEFT_LIST(x, h), 0);
    SAME(c, 0, 1, 2, 3, 4, 5, 1, 1, 1);
    cr_assert_eq(weft_dtype_of(c), WEFT_F16);
    SAME(weft_stack(WEFT_LIST(x, x), -1), 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5);
    SAME(weft_stack(WEFT_LIST(weft_f(1), weft_f(2)), 0), 1, 2);
    weft_tensor many[40];
    for (int i = 0; i < 40; i++) {
        many[i] = weft_full(weft_shape(1), i, WEFT_I64);
    }
    cr_assert_eq(weft_item_i64(weft_sum(weft_concat(many, 40, 0))), 780);
    SAME(weft_pad(x, weft_shape(1, 0), weft_shape(0, 2), 9), 9, 9, 9, 9, 9, 0, 1, 2, 9, 9, 3, 4, 5,
         9, 9);
    SAME(weft_roll(x, weft_shape(1, -4), weft_axes(0, 1)), 4, 5, 3, 1, 2, 0);
    SAME(weft_tril(x, 0), 0, 0, 0, 3, 4, 0);
    SAME(weft_triu(x, 1), 0, 1, 2, 0, 0, 5);
    SAME(weft_tile(x, weft_shape(2)), 0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5);
    SAME(weft_tile(x, weft_shape(2, 1, 1)), 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5);
    has_shape(weft_tile(x, weft_shape(2, 0)), weft_shape(4, 0));
    cr_assert(!weft_shares_memory(x, weft_tile(x, weft_shape(1))));
    SAME(weft_repeat(x, 2, 1), 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5);
    SAME(weft_repeat(x, 2, 0), 0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5);
    weft_tensor i = weft_from_data((const int32_t[]){2, -3}, weft_shape(2, 1), WEFT_I32);
    SAME(weft_take_along(x, 1, i), 2, 3);
    SAME(weft_gather(x, 1, i), 2, 3);
    SAME(weft_index_select(x, -1, i), 2, 0, 5, 3);
    SAME(weft_embedding(x, weft_from_data((const int64_t[]){1, 1}, weft_shape(2), WEFT_I64)), 3, 4,
         5, 3, 4, 5);
    FAILS(weft_embedding(x, weft_i(2)), WEFT_EINDEX);
    SAME(weft_one_hot(weft_from_data((const int64_t[]){1, 0}, weft_shape(2), WEFT_I64), 3,
                      WEFT_DTYPE_DEFAULT),
         0, 1, 0, 1, 0, 0);
    SAME(weft_masked_fill(x, weft_less(x, weft_i(2)), weft_i(7)), 7, 7, 2, 3, 4, 5);
    weft_tensor values, indices,
        y = weft_from_data((const float[]){3, 1, 2}, weft_shape(3), WEFT_F32);
    OK(weft_sort(y, 0, true, &values, &indices));
    SAME(values, 3, 2, 1);
    SAME(indices, 0, 2, 1);
    OK(weft_sort(y, 0, false, NULL, NULL));
    SAME(weft_argsort(y, -1, false), 1, 2, 0);
    OK(weft_topk(y, 2, 0, true, &values, NULL));
    SAME(values, 1, 2);
    cr_assert_eq(weft_topk(y, 4, 0, false, &values, NULL), WEFT_ESHAPE);
    cr_assert(!weft_ok(values));
}

Test(api, creation)
{
    SAME(weft_arange(1, 2, 0.25, WEFT_DTYPE_DEFAULT), 1, 1.25, 1.5, 1.75);
    cr_assert_eq(weft_dtype_of(weft_arange(0, 3, 1, WEFT_DTYPE_DEFAULT)), WEFT_I64);
    SAME(weft_arange(5, 0, -2, WEFT_I16), 5, 3, 1);
    has_shape(weft_arange(3, 0, 1, WEFT_F32), weft_shape(0));
    FAILS(weft_arange(0, 1, 0, WEFT_F32), WEFT_EINVALID);
    FAILS(weft_arange(0, INFINITY, 1, WEFT_F32), WEFT_EINVALID);
    FAILS(weft_arange(NAN, 1, 1, WEFT_F32), WEFT_EINVALID);
    FAILS(weft_arange(0, 1, 0.5, WEFT_I32), WEFT_EDTYPE);
    SAME(weft_linspace(0, 1, 5, WEFT_F64), 0, 0.25, 0.5, 0.75, 1);
    SAME(weft_eye(2, 3, 1, WEFT_BOOL), 0, 1, 0, 0, 0, 1);
    SAME(weft_full(weft_shape(2), 1e18 + 256, WEFT_I64), 1e18 + 256, 1e18 + 256);
    SAME(weft_full(weft_shape(1), -1, WEFT_BOOL), 1);
    SAME(weft_full_like(weft_zeros(weft_shape(2), WEFT_I8), 5), 5, 5);
    cr_assert_eq(weft_dtype_of(weft_ones_like(weft_b(false))), WEFT_BOOL);
    has_shape(weft_zeros_like(iota(weft_shape(2, 1), WEFT_F64)), weft_shape(2, 1));
    FAILS(weft_zeros(weft_shape(-1), WEFT_F32), WEFT_ESHAPE);
    FAILS(weft_zeros(weft_shape(INT64_MAX, INT64_MAX), WEFT_F32), WEFT_ENOMEM);
    FAILS(weft_zeros(weft_shape(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), WEFT_F32),
          WEFT_ESHAPE);
    FAILS(weft_zeros(weft_shape(1), (weft_dtype)-3), WEFT_EDTYPE);
    FAILS(weft_zeros(weft_shape(INT64_C(1) << 50), WEFT_F32), WEFT_ENOMEM);
}

/* Long ranges: each element is one rounding of the formula in f64, whatever block of the work it is in. */
Test(api, long_ranges)
{
    static const int64_t lengths[] = {1, 2, 511, 512, 513, 1023, 1024, 1025, 5000, 70001};
    const double start = -3.7, step = 0.0625 / 3, stop = 911.25;
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        const int64_t n = lengths[k];
        const double apart = n > 1 ? (stop - start) / (double)(n - 1) : 0;
        weft_tensor a = weft_arange(start, start + step * ((double)n - 0.5), step, WEFT_F64),
                    a32 = weft_arange(start, start + step * ((double)n - 0.5), step, WEFT_F32),
                    l = weft_linspace(start, stop, n, WEFT_F64),
                    whole = weft_arange(7, 7 - 3 * (double)n, -3, WEFT_I64),
                    narrow = weft_arange(7, 7 - 3 * (double)n, -3, WEFT_I32);
        cr_assert(weft_numel(a) == n && weft_numel(a32) == n && weft_numel(whole) == n);
        const double *p = weft_data(a), *q = weft_data(l);
        const float *f = weft_data(a32);
        const int64_t *w = weft_data(whole);
        const int32_t *w32 = weft_data(narrow);
        for (int64_t i = 0; i < n; i++) {
            const double v = start + (double)i * step;
            const double from_end = stop - (double)(n - 1 - i) * apart;
            cr_assert(p[i] == v && f[i] == (float)v, "%d of %d", (int)i, (int)n);
            cr_assert(q[i] == (n > 1 && 2 * i >= n ? from_end : start + (double)i * apart),
                      "%d of %d", (int)i, (int)n);
            cr_assert(w[i] == 7 - 3 * i && w32[i] == w[i]);
        }
    }
}

Test(api, reductions)
{
    weft_tensor x = iota(weft_shape(2, 3), WEFT_F32);
    SAME(weft_sum(x), 15);
    SAME(weft_sum(x, .axes = weft_axes(-1)), 3, 12);
    has_shape(weft_sum(x, .axes = weft_axes(1, 0), .keepdim = true), weft_shape(1, 1));
    SAME(weft_sum(x, .axes = WEFT_NO_AXES), 0, 1, 2, 3, 4, 5);
    SAME(weft_sum(x, weft_axes(0), true), 3, 5, 7);
    cr_assert_eq(weft_dtype_of(weft_sum(weft_cast(x, WEFT_U8))), WEFT_I64);
    cr_assert_eq(weft_dtype_of(weft_sum(x, .dtype = WEFT_F64)), WEFT_F64);
    SAME(weft_mean(x, .axes = weft_axes(0)), 1.5, 2.5, 3.5);
    SAME(weft_var(x, .axes = weft_axes(1)), 2.0f / 3, 2.0f / 3);
    SAME(weft_var(x, .axes = weft_axes(1), .correction = 1), 1, 1);
    SAME(weft_max(x, .axes = weft_axes(0)), 3, 4, 5);
    SAME(weft_argmax(x), 5);
    SAME(weft_argmin(x, .axes = weft_axes(1), .keepdim = true), 0, 0);
    FAILS(weft_argmax(x, .axes = weft_axes(0, 1)), WEFT_EINVALID);
    FAILS(weft_argmax(x, .axes = WEFT_NO_AXES), WEFT_EINVALID);
    weft_tensor v = weft_from_data((const float[]){3, 0, -4}, weft_shape(3), WEFT_F32);
    SAME(weft_norm(v), 5);
    SAME(weft_norm(v, .order = 1), 7);
    SAME(weft_norm(v, .order = INFINITY), 4);
    SAME(weft_norm(v, .order = WEFT_ZERO), 2);
    SAME(weft_cumsum(x, 1), 0, 1, 3, 3, 7, 12);
    SAME(weft_count_nonzero(x, .axes = weft_axes(0)), 1, 2, 2);
    FAILS(weft_max(x, .dtype = WEFT_F64), WEFT_EINVALID);
    FAILS(weft_sum(x, .axes = weft_axes(2)), WEFT_ESHAPE);
    FAILS(weft_sum(x, .axes = weft_axes(0, -2)), WEFT_ESHAPE);
    FAILS(weft_max(weft_zeros(weft_shape(0), WEFT_F32)), WEFT_ESHAPE);
}

/* What C makes of weft_sum(x, 1), weft_rand(2, 3): refused. The compiler's part is tests/lint/check_numbers. */
static weft_shape bare(int64_t first, int64_t second)
{
    const void *number = (const void *)(intptr_t)first;
    weft_shape s = {.bare_number = number, .n = second};
    return s;
}

#define BARE(call)                                                                                 \
    do {                                                                                           \
        FAILS(call, WEFT_EINVALID);                                                                \
        cr_assert(strstr(weft_last_error(), "bare number"), "%s", weft_last_error());              \
    } while (0)

Test(api, bare_numbers)
{
    weft_tensor x = weft_ones(weft_shape(1, 1, 4, 4), WEFT_F32);
    BARE(weft_rand(bare(2, 3)));
    BARE(weft_randn(bare(3, 0)));
    BARE(weft_randint(bare(2, 0), 0, 5));
    BARE(weft_bernoulli(bare(5, 0)));
    BARE(weft_sum(x, bare(1, 0)));
    BARE(weft_sum(x, bare(-1, 0)));
    BARE(weft_max(x, bare(-1, 0)));
    BARE(weft_argmax(x, bare(1, 0)));
    BARE(weft_var(x, bare(1, 0)));
    BARE(weft_norm(x, bare(1, 0)));
    BARE(weft_max_pool2d(x, bare(2, 0)));
    BARE(weft_conv2d(x, x, .stride = bare(2, 0)));
    BARE(weft_interpolate(x, bare(2, 0)));
    float memory[3] = {0};
    BARE(weft_from_blob(memory, bare(3, 0)));
    /* an address that nobody set is not taken for one */
    weft_shape sound = weft_shape(2);
    sound.bare_number = (const void *)memory;
    cr_assert(weft_numel(weft_rand(sound)) == 2);
}

/* -- powers of integers ---------------------------------------------------------------------------------------- */

/* a^b by its definition, b times; wraps. */
static int64_t power_of(int64_t a, int64_t b)
{
    uint64_t r = 1;
    for (int64_t i = 0; i < b; i++)
        r *= (uint64_t)a;
    return b >= 0 ? (int64_t)r : a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
}

/* What v is in dtype, seen as an i64. */
static int64_t wrapped(int64_t v, weft_dtype dtype)
{
    return dtype == WEFT_U8    ? (uint8_t)v
           : dtype == WEFT_I8  ? (int8_t)v
           : dtype == WEFT_I16 ? (int16_t)v
           : dtype == WEFT_I32 ? (int32_t)v
                               : v;
}

Test(api, powers_of_integers)
{
    static const weft_dtype types[] = {WEFT_U8, WEFT_I8, WEFT_I16, WEFT_I32, WEFT_I64};
    for (int t = 0; t < COUNT(types); t++) {
        int64_t bases[256], exponents[90], got[256 * 90];
        int na = 0, nb = 0;
        for (int64_t v = -128; v < 128; v++)
            bases[na++] = types[t] == WEFT_U8 ? v + 128 : v;
        for (int64_t v = types[t] == WEFT_U8 ? 0 : -4; v < 70; v++)
            exponents[nb++] = v;
        exponents[nb++] = 127; /* all bits below a sign */
        weft_tensor a = weft_cast(weft_from_data(bases, weft_shape(na, 1), WEFT_I64), types[t]);
        weft_tensor b = weft_cast(weft_from_data(exponents, weft_shape(nb), WEFT_I64), types[t]);
        weft_tensor y = weft_pow(a, b);
        cr_assert_eq(weft_dtype_of(y), types[t], "%s", weft_last_error());
        OK(weft_to_array(y, got, (int64_t)na * nb, WEFT_I64));
        for (int i = 0; i < na; i++)
            for (int k = 0; k < nb; k++)
                cr_assert_eq(got[i * nb + k], wrapped(power_of(bases[i], exponents[k]), types[t]),
                             "%s %d^%d", weft_dtype_name(types[t]), (int)bases[i],
                             (int)exponents[k]);
        for (int k = 0; k < nb; k++) {
            weft_scope sc = weft_scope_begin();
            weft_tensor n = weft_pow(a, weft_i(exponents[k]));
            if (exponents[k] < 0) {
                FAILS(n, WEFT_EINVALID);
                cr_assert(strstr(weft_error_text(n), "no power of -"));
            } else {
                weft_tensor column = weft_narrow(y, 1, k, 1);
                cr_assert_eq(weft_dtype_of(n), types[t]);
                cr_assert_eq(weft_item_i64(weft_all(weft_equal(n, column))), 1, "^%d",
                             (int)exponents[k]);
            }
            weft_scope_end(sc);
        }
    }
    /* exponents of few bits take few steps: none above 0, one bit, a last bit that counts, none at all */
    static const int64_t few[][4] = {{0, 0, 0, 0}, {-3, -2, -1, 0}, {1, 0, -1, 1}, {-7, 4, 7, 8}};
    static const int64_t of[] = {-2, -1, 1, 3};
    for (int k = 0; k < COUNT(few); k++) {
        int64_t got[16];
        weft_tensor y = weft_pow(weft_from_data(of, weft_shape(4, 1), WEFT_I64),
                                 weft_from_data(few[k], weft_shape(4), WEFT_I64));
        OK(weft_to_array(y, got, 16, WEFT_I64));
        for (int i = 0; i < 16; i++)
            cr_assert_eq(got[i], power_of(of[i / 4], few[k][i % 4]), "%d^%d", (int)of[i / 4],
                         (int)few[k][i % 4]);
    }
    const weft_tensor none = weft_zeros(weft_shape(0), WEFT_I32);
    cr_assert_eq(weft_numel(weft_pow(none, none)), 0, "%s", weft_last_error());
    weft_tensor x = weft_cast(iota(weft_shape(2, 3), WEFT_F32), WEFT_I32);
    SAME(weft_pow(weft_i(2), x), 1, 2, 4, 8, 16, 32);
    SAME(weft_pow(x, weft_b(true)), 0, 1, 2, 3, 4, 5);
    cr_assert_eq(weft_dtype_of(weft_pow(x, weft_f(2))), WEFT_F32);
    cr_assert_eq(weft_dtype_of(weft_pow(weft_less(x, weft_i(3)), weft_b(true))), WEFT_F32);
    cr_assert_eq(weft_item_i64(weft_pow(weft_i(3), weft_i(39))), 4052555153018976267);
    cr_assert_eq(weft_dtype_of(weft_pow(x, weft_zeros(weft_shape(3), WEFT_I64))), WEFT_I64);
    OK(weft_pow_(x, weft_i(3)));
    SAME(x, 0, 1, 8, 27, 64, 125);
    cr_assert_neq(weft_pow_(x, weft_zeros(weft_shape(4, 2, 3), WEFT_I32)), WEFT_OK);
    FAILS(weft_pow(x, weft_zeros(weft_shape(4), WEFT_I32)), WEFT_ESHAPE);
    FAILS(weft_pow(weft_i(3), weft_i(-1)), WEFT_EINVALID);
    FAILS(weft_pow(weft_less(x, weft_i(3)), weft_i(-1)), WEFT_EINVALID);
    cr_assert_eq(weft_pow_(weft_i(3), weft_i(2)), WEFT_EINVALID);
    cr_assert(strstr(weft_last_error(), "pow_: the target is a scalar"), "%s", weft_last_error());
}

/* -- powers of floats to numbers that other rows make ---------------------------------------------------------- */

/* Bits behind the point and the least exponent of a type. */
static double last_place(weft_dtype dtype, double v)
{
    const int bits = dtype == WEFT_F32 ? 23 : dtype == WEFT_F64 ? 52 : dtype == WEFT_F16 ? 10 : 7;
    const int least = dtype == WEFT_F64 ? -1022 : dtype == WEFT_F16 ? -14 : -126;
    const int e = v == 0 ? least : ilogb(v) < least ? least : ilogb(v);
    return ldexp(1, e - bits);
}

static double largest(weft_dtype dtype)
{
    return dtype == WEFT_F32   ? 0x1.fffffep127
           : dtype == WEFT_F64 ? 0x1.fffffffffffffp1023
           : dtype == WEFT_F16 ? 65504
                               : 0x1.fep127;
}

Test(api, powers_of_floats_to_numbers)
{
    static const weft_dtype types[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16};
    static const double exponents[] = {2, 3, 0.5, -0.5, -1, 2.5, 4, -2, -2.5};
    enum { N = 600 };
    double x[N] = {0,        -0.0,      INFINITY, -INFINITY, NAN,   1,      -1,
                   0x1p-149, -0x1p-149, 0x1p-20,  -0x1p-20,  1000,  -1000,  0x1p60,
                   -0x1p60,  0x1p-70,   0x1p70,   1e-7,      65504, -65504, 0x1p-126};
    for (int i = 21; i < N; i++)
        x[i] = (i % 3 ? 1 : -1) * ldexp(1 + (double)(i * 7919 % 1024) / 1024, i % 41 - 20);
    for (int t = 0; t < COUNT(types); t++) {
        double in[N], got[N], also[N];
        weft_tensor a = weft_cast(weft_from_data(x, weft_shape(N), WEFT_F64), types[t]);
        OK(weft_to_array(a, in, N, WEFT_F64));
        for (int k = 0; k < COUNT(exponents); k++) {
            const double e = exponents[k];
            weft_tensor y = weft_pow(a, weft_f(e)), z = weft_clone(a);
            cr_assert_eq(weft_dtype_of(y), types[t], "%s", weft_last_error());
            OK(weft_to_array(y, got, N, WEFT_F64));
            OK(weft_pow_(z, e == floor(e) ? weft_i((int64_t)e) : weft_f(e)));
            OK(weft_to_array(z, also, N, WEFT_F64));
            for (int i = 0; i < N; i++) {
                const long double want = powl((long double)in[i], (long double)e);
                const double near = (double)want;
                cr_assert(memcmp(&got[i], &also[i], sizeof *got) == 0 || isnan(got[i]),
                          "pow_ of %g to %g", in[i], e);
                if (isnan(near) || isinf(in[i]) || in[i] == 0) {
                    cr_assert(isnan(near) ? isnan(got[i])
                                          : got[i] == near && signbit(got[i]) == signbit(near),
                              "%s: %g to %g: %g, not %g", weft_dtype_name(types[t]), in[i], e,
                              got[i], near);
                    continue;
                }
                const double step = last_place(types[t], near);
                /* halves are rounded once, at the end, from powers that are better than theirs */
                const double most = types[t] == WEFT_F32 || types[t] == WEFT_F64 ? 2 : 0.51;
                if (fabsl(want) > (long double)largest(types[t]) - 2 * (long double)step)
                    continue; /* near infinity either may be right */
                cr_assert(fabsl((long double)got[i] - want) <= (long double)(most * step),
                          "%s: %a to %g: %a, not %a", weft_dtype_name(types[t]), in[i], e, got[i],
                          near);
            }
        }
    }
    /* derivatives where the row's own are special */
    const double points[] = {4, 0, -0.0, INFINITY, -INFINITY, 0.25};
    const double want[][6] = {{8, 0, 0, INFINITY, -INFINITY, 0.5},
                              {0.25, INFINITY, INFINITY, 0, 0, 1},
                              {-0.0625, -INFINITY, -INFINITY, 0, 0, -16}};
    const double to[] = {2, 0.5, -1};
    for (int k = 0; k < 3; k++) {
        double got[6];
        weft_tensor v = weft_from_data(points, weft_shape(6), WEFT_F64);
        OK(weft_requires_grad_(v, true));
        OK(weft_backward(weft_sum(weft_pow(v, weft_f(to[k])))));
        OK(weft_to_array(weft_grad(v), got, 6, WEFT_F64));
        for (int i = 0; i < 6; i++)
            cr_assert_eq(got[i], want[k][i], "derivative of %g to %g: %g", points[i], to[k],
                         got[i]);
    }
}

/* -- random numbers ---------------------------------------------------------------------------------------------- */

/* np.floor_divide and torch.div(rounding_mode="floor") of the same values. */
Test(api, floor_divide_by_infinity)
{
    static const double a[] = {-1, 1, -1, 1, 0, -0.0, -1e-300, 7, -7},
                        b[] = {INFINITY, INFINITY, -INFINITY, -INFINITY, INFINITY,
                               INFINITY, 1e300,    2,         2},
                        want[] = {-1, 0, 0, -1, 0, -0.0, -1, 3, -4};
    static const weft_dtype types[] = {WEFT_F64, WEFT_F32, WEFT_F16, WEFT_BF16};
    weft_scope s = weft_scope_begin();
    for (int t = 0; t < COUNT(types); t++) {
        int n = t == 0 ? COUNT(a) : 6; /* 1e300 is a number of f64 only */
        double got[COUNT(a)];
        weft_tensor x = weft_cast(weft_from_data(a, weft_shape(n), WEFT_F64), types[t]);
        weft_tensor y = weft_cast(weft_from_data(b, weft_shape(n), WEFT_F64), types[t]);
        weft_tensor q = weft_floor_divide(x, y);
        cr_assert_eq(weft_to_array(q, got, n, WEFT_F64), WEFT_OK, "%s", weft_last_error());
        for (int i = 0; i < n; i++) {
            cr_expect(got[i] == want[i] && !signbit(got[i]) == !signbit(want[i]),
                      "%s: %g // %g is %g", weft_dtype_name(types[t]), a[i], b[i], got[i]);
        }
    }
    weft_scope_end(s);
}

Test(api, generators)
{
    weft_generator g = {42, 0}, saved;
    weft_tensor a = weft_randn(weft_shape(1001), WEFT_F32, .generator = &g);
    saved = g;
    weft_tensor b = weft_rand(weft_shape(77), WEFT_F64, .generator = &g);
    g = saved;
    weft_tensor again = weft_rand(weft_shape(77), WEFT_F64, .generator = &g);
    cr_assert(weft_item_f64(weft_all(weft_equal(b, again))) == 1);
    /* the thread's generator with the same seed makes the same numbers */
    weft_manual_seed(42);
    cr_assert(weft_item_f64(weft_all(weft_equal(a, weft_randn(weft_shape(1001), WEFT_F32)))) == 1);
    cr_assert_eq(weft_default_generator()->offset, saved.offset);
    /* two halves are not one draw twice, and what fails takes nothing */
    weft_tensor c = weft_rand(weft_shape(64), WEFT_F32, .generator = &g),
                d = weft_rand(weft_shape(64), WEFT_F32, .generator = &g);
    cr_assert(weft_item_f64(weft_any(weft_equal(c, d))) == 0);
    saved = g;
    FAILS(weft_rand(weft_shape(2), WEFT_I32, .generator = &g), WEFT_EDTYPE);
    FAILS(weft_rand(weft_shape(2), WEFT_F32, .low = 2, .high = 1, .generator = &g), WEFT_EINVALID);
    /* what would overflow: all numbers would be the lower bound */
    FAILS(weft_rand(weft_shape(2), .low = -3e38, .high = 3e38, .generator = &g), WEFT_EINVALID);
    FAILS(weft_rand(weft_shape(2), .high = INFINITY, .generator = &g), WEFT_EINVALID);
    FAILS(weft_rand(weft_shape(2), .low = NAN, .high = 1, .generator = &g), WEFT_EINVALID);
    FAILS(weft_rand(weft_shape(2), .high = 1e39, .generator = &g), WEFT_EINVALID);
    FAILS(weft_rand(weft_shape(2), WEFT_F16, .high = 65505, .generator = &g), WEFT_EINVALID);
    FAILS(weft_rand(weft_shape(2), WEFT_F64, .low = -1e308, .high = 1e308, .generator = &g),
          WEFT_EINVALID);
    cr_assert(weft_ok(weft_rand(weft_shape(2), WEFT_F16, .low = -65504, .high = 65504)));
    cr_assert(weft_ok(weft_rand(weft_shape(2), WEFT_BF16, .high = 3e38)));
    /* the largest ones, as NumPy prints them: the next float below infinity is what is meant */
    weft_tensor most = weft_rand(weft_shape(100), .high = 3.4028235e38);
    cr_assert(weft_ok(most), "%s", weft_last_error());
    cr_assert(weft_item_f64(weft_all(weft_isfinite(most))) == 1 &&
              weft_item_f64(weft_max(most)) > 1e38);
    cr_assert(weft_ok(weft_rand(weft_shape(2), .low = -3.4028235e38, .high = 0)));
    cr_assert(weft_ok(weft_rand(weft_shape(2), WEFT_BF16, .high = 3.3895314e38)));
    FAILS(weft_rand(weft_shape(2), .high = 3.4028236e38, .generator = &g), WEFT_EINVALID);
    cr_assert(weft_ok(weft_rand(weft_shape(2), WEFT_F64, .low = -8e307, .high = 8e307)));
    FAILS(weft_randint(weft_shape(2), 3, 3, .generator = &g), WEFT_EINVALID);
    FAILS(weft_bernoulli(weft_shape(2), 1.5, .generator = &g), WEFT_EINVALID);
    FAILS(weft_randperm(-1, .generator = &g), WEFT_ESHAPE);
    FAILS(weft_randn(weft_shape(2), WEFT_F32, .std = -1, .generator = &g), WEFT_EINVALID);
    cr_assert(g.offset == saved.offset);
    weft_tensor u = weft_rand(weft_shape(4000), WEFT_F32, .low = -1, .high = 3, .generator = &g);
    cr_assert(weft_item_f64(weft_min(u)) >= -1 && weft_item_f64(weft_max(u)) < 3);
    cr_assert(fabs(weft_item_f64(weft_mean(u)) - 1) < 0.1);
    SAME(weft_randn(weft_shape(2), WEFT_F32, .mean = 3, .std = WEFT_ZERO, .generator = &g), 3, 3);
    weft_tensor r = weft_randint(weft_shape(1000), -2, 3, .generator = &g);
    cr_assert(weft_item_i64(weft_min(r)) == -2 && weft_item_i64(weft_max(r)) == 2);
    SAME(weft_bernoulli(weft_shape(2), WEFT_ZERO, .generator = &g), 0, 0);
    weft_tensor p = weft_randperm(50, .generator = &g), sorted;
    OK(weft_sort(p, 0, false, &sorted, NULL));
    cr_assert(weft_item_f64(weft_all(weft_equal(sorted, weft_arange(0, 50, 1, WEFT_I64)))) == 1);
    cr_assert(weft_item_f64(weft_all(weft_equal(p, sorted))) == 0);
    /* the order of 64-bit keys; of so many some have their upper halves in common */
    saved = g;
    p = weft_randperm(300000, .generator = &g);
    g = saved;
    const weft_tensor keys =
        weft_randint(weft_shape(300000), INT64_MIN, INT64_MAX, .generator = &g);
    cr_assert(weft_item_f64(weft_all(weft_equal(p, weft_argsort(keys, 0, false)))) == 1);
}
