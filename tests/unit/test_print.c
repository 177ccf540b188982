/*
 * tests/unit/test_print.c -- printed tensors against what numpy.array2string gives (precision 4, the
 * exponent rule of NumPy up to 2.2).
 */
#include <criterion/criterion.h>
#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include "eager/alloc.h"
#include "tests/support/other_locale.h"
#include "weft/weft.h"

static void same_text(const char *what, weft_tensor t, const char *want)
{
    char text[4096];
    int64_t n = weft_to_string(t, text, sizeof text);
    cr_assert(n >= 0, "%s: %s", what, weft_last_error());
    cr_expect_str_eq(text, want, "%s:\n%s\nexpected:\n%s", what, text, want);
    cr_expect_eq((size_t)n, strlen(want), "%s: the length", what);
    cr_expect_eq(weft_to_string(t, NULL, 0), n, "%s: the length without a buffer", what);
    cr_expect_eq(weft_to_string(t, text, 5), n, "%s: the length when cut", what);
    cr_expect(strlen(text) == 4 && memcmp(text, want, 4) == 0, "%s: cut to its buffer", what);
}

#define CASE(what, dtype, type, shape, want, ...)                                                  \
    same_text(what, weft_from_data((const type[]){__VA_ARGS__}, shape, dtype), want)

Test(print, floats)
{
    CASE("whole", WEFT_F32, float, weft_shape(3), "[1. 2. 3.] f32[3]", 1, 2, 3);
    CASE("padded fractions", WEFT_F32, float, weft_shape(3), "[ 1.5   2.25 -3.  ] f32[3]", 1.5f,
         2.25f, -3);
    CASE("cut at four digits", WEFT_F64, double, weft_shape(3), "[0.3333 0.6667 3.3333] f64[3]",
         1.0 / 3, 2.0 / 3, 10.0 / 3);
    CASE("halves of exact values", WEFT_F64, double, weft_shape(3), "[0.0013 0.0312 1.0001] f64[3]",
         0.00125, 0.03125, 1.00005);
    CASE("small", WEFT_F32, float, weft_shape(3), "[0.0e+00 2.5e-06 1.0e-05] f32[3]", 0, 2.5e-6f,
         1e-5f);
    CASE("not small", WEFT_F32, float, weft_shape(2), "[0.0001 0.005 ] f32[2]", 1e-4f, 5e-3f);
    CASE("large", WEFT_F64, double, weft_shape(2), "[1.0e+08 1.5e+00] f64[2]", 1e8, 1.5);
    CASE("not large", WEFT_F64, double, weft_shape(2), "[99999999. 99999998.] f64[2]", 99999999.,
         99999998.);
    CASE("wide range", WEFT_F64, double, weft_shape(2), "[1.0005e+03 5.0000e-01] f64[2]", 1000.5,
         0.5);
    CASE("long exponents", WEFT_F64, double, weft_shape(3), "[ 1.e+100  1.e-005 -3.e+000] f64[3]",
         1e100, 1e-5, -3);
    CASE("special", WEFT_F32, float, weft_shape(5), "[ nan  inf -inf  1.5 -0. ] f32[5]", NAN,
         INFINITY, -INFINITY, 1.5f, -0.0f);
    CASE("only special", WEFT_F64, double, weft_shape(2), "[ nan -inf] f64[2]", NAN, -INFINITY);
    CASE("special and scientific", WEFT_F64, double, weft_shape(3), "[   nan 1.e+10    inf] f64[3]",
         NAN, 1e10, INFINITY);
    CASE("shortest digits", WEFT_F32, float, weft_shape(3),
         "[1.0000e-01 2.0000e-01 1.6777e+07] f32[3]", 0.1f, 0.2f, 16777216);
    CASE("f16", WEFT_F16, uint16_t, weft_shape(2), "[65504.   -100.5] f16[2]", 0x7BFF, 0xD648);
    CASE("f16 subnormals", WEFT_F16, uint16_t, weft_shape(2), "[6.e-08 1.e-06] f16[2]", 1, 17);
    CASE("bf16", WEFT_BF16, uint16_t, weft_shape(2), "[ 1.    -0.125] bf16[2]", 0x3F80, 0xBE00);
    CASE("rank 0", WEFT_F64, double, weft_shape(), "3.25 f64[]", 3.25);
}

Test(print, integers_and_bool)
{
    CASE("i32", WEFT_I32, int32_t, weft_shape(2, 2), "[[  1 -20]\n [300   4]] i32[2,2]", 1, -20,
         300, 4);
    CASE("i64", WEFT_I64, int64_t, weft_shape(2),
         "[-9223372036854775808  9223372036854775807] i64[2]", INT64_MIN, INT64_MAX);
    CASE("u8", WEFT_U8, uint8_t, weft_shape(3), "[  0 255   7] u8[3]", 0, 255, 7);
    CASE("bool", WEFT_BOOL, uint8_t, weft_shape(2, 2), "[[ True False]\n [ True  True]] bool[2,2]",
         1, 0, 1, 1);
    CASE("only true", WEFT_BOOL, uint8_t, weft_shape(2), "[ True  True] bool[2]", 1, 1);
    CASE("rank 0", WEFT_I16, int16_t, weft_shape(), "-7 i16[]", -7);
    same_text("scalar", weft_i(-3), "-3 i64[]");
    same_text("bool scalar", weft_b(true), "True bool[]");
    same_text("empty", weft_zeros(weft_shape(2, 0), WEFT_U8), "[] u8[2,0]");
}

Test(print, layout)
{
    weft_tensor r = weft_arange(0, 2000, 1, WEFT_I64);
    same_text("rank 3", weft_reshape(weft_arange(0, 8, 1, WEFT_F32), weft_shape(2, 2, 2)),
              "[[[0. 1.]\n  [2. 3.]]\n\n [[4. 5.]\n  [6. 7.]]] f32[2,2,2]");
    same_text("rank 4", weft_reshape(weft_arange(0, 4, 1, WEFT_I8), weft_shape(2, 1, 2, 1)),
              "[[[[0]\n   [1]]]\n\n\n [[[2]\n   [3]]]] i8[2,1,2,1]");
    same_text("a long row", weft_arange(0, 30, 1, WEFT_I64),
              "[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\n"
              " 24 25 26 27 28 29] i64[30]");
    same_text("long rows", weft_reshape(weft_arange(0, 10, 0.25, WEFT_F32), weft_shape(2, 20)),
              "[[0.   0.25 0.5  0.75 1.   1.25 1.5  1.75 2.   2.25 2.5  2.75 3.   3.25\n"
              "  3.5  3.75 4.   4.25 4.5  4.75]\n"
              " [5.   5.25 5.5  5.75 6.   6.25 6.5  6.75 7.   7.25 7.5  7.75 8.   8.25\n"
              "  8.5  8.75 9.   9.25 9.5  9.75]] f32[2,20]");
    same_text("1000 elements are shown",
              weft_expand(weft_reshape(weft_narrow(r, 0, 0, 1), weft_shape(1)), weft_shape(1)),
              "[0] i64[1]");
    same_text("1001 are not", weft_narrow(r, 0, 0, 1001),
              "[   0    1    2 ...  998  999 1000] i64[1001]");
    same_text("summary of two axes", weft_reshape(r, weft_shape(50, 40)),
              "[[   0    1    2 ...   37   38   39]\n"
              " [  40   41   42 ...   77   78   79]\n"
              " [  80   81   82 ...  117  118  119]\n"
              " ...\n"
              " [1880 1881 1882 ... 1917 1918 1919]\n"
              " [1920 1921 1922 ... 1957 1958 1959]\n"
              " [1960 1961 1962 ... 1997 1998 1999]] i64[50,40]");
    same_text("six are not cut", weft_reshape(weft_narrow(r, 0, 0, 1200), weft_shape(200, 6)),
              "[[   0    1    2    3    4    5]\n"
              " [   6    7    8    9   10   11]\n"
              " [  12   13   14   15   16   17]\n"
              " ...\n"
              " [1182 1183 1184 1185 1186 1187]\n"
              " [1188 1189 1190 1191 1192 1193]\n"
              " [1194 1195 1196 1197 1198 1199]] i64[200,6]");
    same_text(
        "a strided view",
        weft_transpose(
            weft_flip(weft_reshape(weft_arange(0, 6, 1, WEFT_I32), weft_shape(2, 3)), weft_axes(1)),
            0, 1),
        "[[2 5]\n [1 4]\n [0 3]] i32[3,2]");
    weft_tensor p = weft_ones(weft_shape(2), WEFT_F32);
    cr_assert_eq(weft_requires_grad_(p, true), WEFT_OK);
    same_text("a leaf", p, "[1. 1.] f32[2] requires_grad");
    const weft_tensor y = weft_neg(p);
    same_text("a recorded result", y, "[-1. -1.] f32[2] recorded by neg");
    weft_tensor values, places;
    cr_assert_eq(weft_sort(y, 0, false, &values, &places), WEFT_OK);
    same_text("the first of two results", values, "[-1. -1.] f32[2] recorded by sort");
    same_text("a view", weft_narrow(y, 0, 1, 1), "[-1.] f32[1] recorded by slice");
    weft_tensor z = weft_ones(weft_shape(2), WEFT_F32), half = weft_narrow(z, 0, 0, 1);
    cr_assert_eq(weft_mul_(z, p), WEFT_OK);
    same_text("written in place", z, "[1. 1.] f32[2] recorded by mul_");
    same_text("a view of it from before", half, "[1.] f32[1] recorded by mul_");
    same_text("detached", weft_detach(y), "[-1. -1.] f32[2]");
}

static void *print_there(void *y)
{
    same_text("of another thread", *(weft_tensor *)y, "[-1. -1.] f32[2] recorded");
    return NULL;
}

Test(print, what_another_thread_recorded)
{
    weft_tensor p = weft_ones(weft_shape(2), WEFT_F32);
    pthread_t there;
    weft_requires_grad_(p, true);
    weft_tensor y = weft_keep(weft_neg(p));
    cr_assert_eq(pthread_create(&there, NULL, print_there, &y), 0);
    pthread_join(there, NULL);
    weft_free(y);
}

Test(print, to_a_file_and_failures)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    cr_assert_eq(weft_fprint(f, weft_arange(0, 3, 1, WEFT_I8)), WEFT_OK);
    fclose(f);
    cr_assert_str_eq(text, "[0 1 2] i8[3]\n");
    free(text);
    cr_assert_eq(weft_fprint(NULL, weft_i(1)), WEFT_EINVALID);
    cr_assert_eq(weft_to_string(WEFT_NONE, NULL, 0), -1);
    cr_assert_eq(weft_to_string(weft_i(1), NULL, 4), -1);
    weft_tensor bad =
        weft_add(weft_zeros(weft_shape(2), WEFT_F32), weft_zeros(weft_shape(3), WEFT_F32));
    cr_assert_eq(weft_print(bad), WEFT_ESHAPE);
    weft_tensor big = weft_arange(0, 900, 1, WEFT_I64);
    for (int n = 1; n < 4; n++) {
        wf_alloc_fail_after(n, 1);
        int64_t length = weft_to_string(big, NULL, 0);
        wf_alloc_fail_after(0, 0);
        cr_assert_eq(length, -1, "allocation %d fails", n);
        cr_assert_eq(weft_last_status(), WEFT_ENOMEM);
    }
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        setvbuf(full, NULL, _IONBF, 0);
        cr_assert_eq(weft_fprint(full, big), WEFT_EIO);
        fclose(full);
    }
}

/* Text is for programs, too: a locale changes nothing of it, nor a rounding mode, nor where subnormals count as zeros. */
Test(print, whatever_the_program_has_set)
{
    if (!test_set_other_locale()) {
        cr_skip_test("the C library reads no locale made by hand");
    }
    const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(fesetround(modes[i]), 0);
#ifdef __SSE2__
        _mm_setcsr(_mm_getcsr() | 0x8040u); /* FTZ, DAZ */
#endif
        CASE("cut at four digits", WEFT_F64, double, weft_shape(3), "[0.3333 0.6667 3.3333] f64[3]",
             1.0 / 3, 0.66666, 10.0 / 3);
        CASE("exponents", WEFT_F32, float, weft_shape(3),
             "[0.0000e+00 2.5000e-06 1.2346e-05] f32[3]", 0, 2.5e-6f, 1.23456e-5f);
        CASE("subnormal", WEFT_F32, float, weft_shape(), "1.e-40 f32[]", 1e-40f);
        cr_expect_str_eq(weft_describe(weft_f(2.5)), "scalar 2.5");
        weft_tensor wrong[] = {weft_arange(0.5, 9, 0, WEFT_F32),
                               weft_dropout(weft_ones(weft_shape(2), WEFT_F32), .p = 1.5),
                               weft_bernoulli(weft_shape(2), .p = 1.5)};
        cr_expect(strstr(weft_error_text(wrong[0]), " 0.5 "), "%s", weft_error_text(wrong[0]));
        cr_expect(strstr(weft_error_text(wrong[1]), " 1.5 "), "%s", weft_error_text(wrong[1]));
        cr_expect(strstr(weft_error_text(wrong[2]), " 1.5 "), "%s", weft_error_text(wrong[2]));
        cr_expect_eq(fegetround(), modes[i], "the caller's mode was changed");
    }
    fesetround(FE_TONEAREST);
    cr_assert(test_other_locale_is_set(), "the caller's locale was changed");
}

/* What weft_describe says of every kind of handle; that it is no error and computes nothing. */
static weft_status described_in_a_trace(void *self, const weft_tensor *in, int n, weft_tensor *out,
                                        int n_out)
{
    (void)self, (void)n, (void)n_out;
    out[0] = weft_exp(in[0]);
    cr_assert(strstr(weft_describe(out[0]), "recorded, not computed yet"), "%s",
              weft_describe(out[0]));
    return WEFT_OK;
}

Test(print, describe_any_handle)
{
    weft_scope s = weft_scope_begin();
    weft_tensor x = weft_full(weft_shape(2, 2), 1.5, WEFT_F32),
                bad = weft_matmul(x, weft_zeros(weft_shape(3), WEFT_F32));
    weft_set_name(x, "w");
    cr_assert(strstr(weft_describe(x), "f32[2,2] 'w' (made at ") &&
                  strstr(weft_describe(x), "[[1.5 1.5]"),
              "%s", weft_describe(x));
    weft_set_name(
        x, "a name longer than a row of seventy-five columns, which rows of elements start below");
    cr_assert(strstr(weft_describe(x), "\n[[1.5 1.5]\n [1.5 1.5]] f32[2,2]"), "%s",
              weft_describe(x));
    cr_assert_str_eq(weft_describe(weft_f(2.5)), "scalar 2.5");
    cr_assert(strstr(weft_describe(bad), "(empty handle): matmul: "), "%s", weft_describe(bad));
    cr_assert(strstr(weft_describe(WEFT_NONE), "(empty handle)"), "%s", weft_describe(WEFT_NONE));
    char before[1024];
    snprintf(before, sizeof before, "%s", weft_last_error());
    weft_scope_end(s);
    cr_assert(strstr(weft_describe(x), "(dead handle of f32[2,2] 'a name longer than"), "%s",
              weft_describe(x));
    cr_assert_str_eq(weft_last_error(), before);
    weft_jit *j = weft_jit_trace(described_in_a_trace, NULL, .single_graph = true);
    weft_tensor in = weft_ones(weft_shape(3), WEFT_F32), out;
    cr_assert_eq(weft_jit_call(j, &in, 1, &out, 1), WEFT_OK, "%s", weft_last_error());
    weft_jit_free(j);
}

/* Kept, so that it is there when the call that was to compute it has failed. */
static weft_status kept_in_a_trace(void *self, const weft_tensor *in, int n, weft_tensor *out,
                                   int n_out)
{
    (void)n, (void)n_out;
    *(weft_tensor *)self = out[0] = weft_keep(weft_exp(weft_add(in[0], in[0])));
    return WEFT_OK;
}

Test(print, describe_what_a_failed_call_left)
{
    weft_tensor in = weft_ones(weft_shape(300, 500), WEFT_F32), out;
    int broken = 0;
    for (int n = 1; n < 40; n++) {
        weft_tensor left = WEFT_NONE;
        weft_jit *j = weft_jit_trace(kept_in_a_trace, &left, .single_graph = true);
        wf_alloc_fail_after(n, 1);
        const weft_status failed = weft_jit_call(j, &in, 1, &out, 1);
        wf_alloc_fail_after(0, 0);
        if (left.slot) {
            const char *text = weft_describe(left);
            cr_assert_eq(strstr(text, "7.3891") == NULL, failed != WEFT_OK, "%s", text);
            broken += strstr(text, ", holds no valid value: ") != NULL;
            weft_free(left);
        }
        weft_jit_free(j);
    }
    cr_assert_gt(broken, 0);
}
