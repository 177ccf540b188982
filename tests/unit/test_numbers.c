/*
 * tests/unit/test_numbers.c -- numbers beside integer tensors that the tensors' type does not hold: against integers of
 * 64 bits, eager, small (the short way) and large, in place, and in traces.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "weft/weft.h"

enum { LARGE = 70000, SMALL = 6 };

/* Values of a type, its ends among them. */
static weft_tensor values(weft_dtype dt, int64_t n)
{
    static const int64_t u8[SMALL] = {0, 1, 44, 127, 254, 255},
                         i8[SMALL] = {-128, -1, 0, 44, 126, 127};
    weft_tensor t =
        weft_cast(weft_from_data(dt == WEFT_U8 ? u8 : i8, weft_shape(SMALL), WEFT_I64), dt);
    return n == SMALL ? t : weft_slice(weft_tile(t, weft_shape(n / SMALL + 1)), 0, 0, n, 1);
}

typedef weft_tensor (*binary)(weft_tensor, weft_tensor);
typedef struct step {
    binary fn;
    int64_t number;
    bool left; /* the number is the first operand */
} step;

static weft_status traced(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    const step *s = self;
    (void)n_in, (void)n_out;
    weft_tensor v = weft_i(s->number);
    out[0] = s->left ? s->fn(v, in[0]) : s->fn(in[0], v);
    return weft_error_status(out[0]);
}

/* y[i] against want(x[i]). */
static void same(const char *what, weft_tensor x, weft_tensor y, const step *s,
                 int64_t (*want)(int64_t, int64_t))
{
    static int64_t in[LARGE], got[LARGE];
    int64_t n = weft_numel(x);
    cr_assert(weft_ok(y), "%s: %s", what, weft_error_text(y));
    cr_assert_eq(weft_to_array(weft_cast(x, WEFT_I64), in, n, WEFT_I64), WEFT_OK);
    cr_assert_eq(weft_to_array(weft_cast(y, WEFT_I64), got, n, WEFT_I64), WEFT_OK);
    for (int64_t i = 0; i < n; i++) {
        int64_t w = s->left ? want(s->number, in[i]) : want(in[i], s->number);
        cr_assert_eq(got[i], w, "%s of %lld and %lld: %lld, not %lld", what, (long long)in[i],
                     (long long)s->number, (long long)got[i], (long long)w);
    }
}

static void every_way(const char *what, binary fn, int64_t (*want)(int64_t, int64_t), weft_dtype dt,
                      int64_t number, bool left)
{
    step s = {fn, number, left};
    weft_jit *j = weft_jit_trace(traced, &s, .name = what);
    for (int large = 0; large < 2; large++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor x = values(dt, large ? LARGE : SMALL), y;
        traced(&s, &x, 1, &y, 1);
        same(what, x, y, &s, want);
        cr_assert_eq(weft_jit_call(j, &x, 1, &y, 1), WEFT_OK, "%s: %s", what, weft_last_error());
        same(what, x, y, &s, want);
        weft_scope_end(sc);
    }
    weft_jit_free(j);
}

#define WANT(name, expr)                                                                           \
    static int64_t want_##name(int64_t a, int64_t b)                                               \
    {                                                                                              \
        return expr;                                                                               \
    }
WANT(less, a < b)
WANT(less_equal, a <= b)
WANT(greater, a > b)
WANT(greater_equal, a >= b)
WANT(equal, a == b)
WANT(not_equal, a != b)
WANT(logical_and, a &&b)
WANT(logical_xor, !a != !b)
WANT(maximum, a > b ? a : b)
WANT(minimum, a < b ? a : b)

static const int64_t strays[] = {-32769, -300, -256,  -129,      128,       200,
                                 256,    300,  65536, 1LL << 40, INT64_MIN, INT64_MAX};
enum { STRAYS = sizeof strays / sizeof *strays };

static bool holds(weft_dtype dt, int64_t v)
{
    return dt == WEFT_U8 ? v >= 0 && v <= 255 : v >= -128 && v <= 127;
}

#define EVERY_WAY(name, dt, number)                                                                \
    do {                                                                                           \
        every_way(#name, weft_##name, want_##name, dt, number, false);                             \
        every_way(#name, weft_##name, want_##name, dt, number, true);                              \
    } while (0)

Test(numbers, comparisons_are_exact)
{
    for (int t = 0; t < 2; t++) {
        weft_dtype dt = t ? WEFT_I8 : WEFT_U8;
        for (int i = 0; i < STRAYS; i++) {
            EVERY_WAY(less, dt, strays[i]);
            EVERY_WAY(less_equal, dt, strays[i]);
            EVERY_WAY(greater, dt, strays[i]);
            EVERY_WAY(greater_equal, dt, strays[i]);
            EVERY_WAY(equal, dt, strays[i]);
            EVERY_WAY(not_equal, dt, strays[i]);
            EVERY_WAY(logical_and, dt, strays[i]);
            EVERY_WAY(logical_xor, dt, strays[i]);
        }
        EVERY_WAY(equal, dt, -1);
        EVERY_WAY(greater, dt, -1);
    }
}

#define REFUSED(call, ...)                                                                         \
    do {                                                                                           \
        weft_tensor refused_ = call;                                                               \
        static const char *const parts_[] = {__VA_ARGS__};                                         \
        cr_assert_eq(weft_error_status(refused_), WEFT_EINVALID, #call);                           \
        for (size_t k_ = 0; k_ < sizeof parts_ / sizeof *parts_; k_++) {                           \
            cr_assert(strstr(weft_error_text(refused_), parts_[k_]), #call ": %s in %s",           \
                      parts_[k_], weft_error_text(refused_));                                      \
        }                                                                                          \
    } while (0)
#define REFUSED_STATUS(call, part)                                                                 \
    do {                                                                                           \
        cr_assert_eq(call, WEFT_EINVALID, #call);                                                  \
        cr_assert(strstr(weft_last_error(), part), #call ": %s", weft_last_error());               \
    } while (0)

Test(numbers, bounds_become_the_ends_of_the_type)
{
    for (int t = 0; t < 2; t++) {
        weft_dtype dt = t ? WEFT_I8 : WEFT_U8;
        for (int i = 0; i < STRAYS; i++) {
            if (holds(dt, strays[i])) {
                continue;
            }
            if (strays[i] < 0) {
                EVERY_WAY(maximum, dt, strays[i]);
                REFUSED(weft_minimum(values(dt, SMALL), weft_i(strays[i])), "minimum: ");
            } else {
                EVERY_WAY(minimum, dt, strays[i]);
                REFUSED(weft_maximum(weft_i(strays[i]), values(dt, LARGE)), "maximum: ");
            }
        }
    }
    weft_scope sc = weft_scope_begin();
    weft_tensor x = values(WEFT_U8, SMALL), y = weft_clamp(x, weft_i(-5), weft_i(300));
    cr_assert_eq(weft_dtype_of(y), WEFT_U8);
    cr_assert(weft_item_i64(weft_all(weft_equal(x, y))));
    y = weft_clamp(x, weft_i(300), weft_i(100)); /* min(max(x, 300), 100) */
    cr_assert(weft_item_i64(weft_all(weft_equal(y, weft_i(100)))));
    REFUSED(weft_clamp(x, weft_i(256), weft_i(300)), "clamp: ", "u8", "WEFT_I16");
    REFUSED(weft_clamp(x, weft_i(-9), weft_i(-1)), "-9 is outside of u8", "0 to 255");
    cr_assert_eq(weft_clamp_(x, weft_i(-300), weft_i(70000)), WEFT_OK);
    cr_assert(weft_item_i64(weft_all(weft_equal(x, values(WEFT_U8, SMALL)))));
    weft_scope_end(sc);
}

WANT(add_u8, (uint8_t)((uint64_t)a + (uint64_t)b))
WANT(sub_i8, (int8_t)((uint64_t)a - (uint64_t)b))
WANT(mul_u8, (uint8_t)((uint64_t)a *(uint64_t)b))
WANT(and_u8, a &b & 255)
WANT(shift_left_u8, b<0 || b> 7 ? 0 : (uint8_t)(a << b))
WANT(shift_right_i8, b<0 || b> 7 ? (a < 0 ? -1 : 0) : a >> b)

Test(numbers, sums_products_and_bits_wrap)
{
    for (int i = 0; i < STRAYS; i++) {
        every_way("add", weft_add, want_add_u8, WEFT_U8, strays[i], false);
        every_way("sub", weft_sub, want_sub_i8, WEFT_I8, strays[i], true);
        every_way("mul", weft_mul, want_mul_u8, WEFT_U8, strays[i], false);
        every_way("bitwise_and", weft_bitwise_and, want_and_u8, WEFT_U8, strays[i], false);
        every_way("bitwise_left_shift", weft_bitwise_left_shift, want_shift_left_u8, WEFT_U8,
                  strays[i], false);
        every_way("bitwise_right_shift", weft_bitwise_right_shift, want_shift_right_i8, WEFT_I8,
                  strays[i], false);
    }
    every_way("bitwise_and", weft_bitwise_and, want_and_u8, WEFT_U8, -1, false);
}

static weft_status bad_where(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_masked_fill(in[0], weft_less(in[0], weft_i(300)), weft_i(-1));
    return weft_error_status(out[0]);
}

Test(numbers, that_are_written_or_divide_are_refused)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor x = values(WEFT_I8, SMALL), u = values(WEFT_U8, LARGE), b = weft_less(x, weft_i(0)),
                y;
    REFUSED(weft_where(b, x, weft_i(300)), "where: 300 is outside of i8", "-128 to 127",
            "weft_cast(x, WEFT_I16)");
    REFUSED(weft_masked_fill(x, b, weft_i(1LL << 40)), "masked_fill: ", "WEFT_I64", "i8[6]");
    REFUSED(weft_floor_divide(u, weft_i(-1)), "floor_divide: -1 is outside of u8");
    REFUSED(weft_remainder(x, weft_i(128)), "remainder: ");
    REFUSED(weft_fmod(weft_i(256), u), "fmod: ");
    REFUSED(weft_bitwise_right_shift(weft_i(256), u), "bitwise_right_shift: ");
    weft_tensor point = weft_scalar(1, WEFT_U8);
    REFUSED(weft_stack(WEFT_LIST(point, weft_i(300)), 0), "stack: 300 is outside of u8",
            "weft_cast(x, WEFT_I16)");
    REFUSED(weft_stack(WEFT_LIST(weft_i(-1), point), 0), "stack: -1");
    cr_assert_eq(weft_item_i64(weft_sum(weft_stack(WEFT_LIST(point, weft_i(255)), 0))), 256);
    cr_assert_eq(weft_item_i64(weft_sum(weft_stack(WEFT_LIST(weft_i(300), weft_i(1)), 0))), 301);
    REFUSED_STATUS(weft_masked_fill_(x, b, weft_i(300)), "masked_fill_: 300");
    REFUSED_STATUS(weft_copy_(x, weft_i(-129)), "copy_: -129 is outside of i8");
    REFUSED_STATUS(weft_floor_divide_(u, weft_i(256)), "floor_divide_: 256");
    REFUSED_STATUS(weft_fill_(x, 128), "fill_: 128");
    REFUSED_STATUS(weft_fill_(x, NAN), "fill_: ");
    cr_assert(weft_item_i64(weft_all(weft_equal(x, values(WEFT_I8, SMALL)))),
              "written all the same");
    weft_jit *j = weft_jit_trace(bad_where, .name = "bad_where");
    cr_assert_eq(weft_jit_call(j, &u, 1, &y, 1), WEFT_EINVALID);
    cr_assert(strstr(weft_last_error(), "masked_fill: -1 is outside of u8"), "%s",
              weft_last_error());
    weft_jit_free(j);
    weft_scope_end(sc);
}

Test(numbers, that_creation_writes_are_held_or_refused)
{
    weft_scope sc = weft_scope_begin();
    REFUSED(weft_full(weft_shape(2), 300, WEFT_U8), "full: 300 is outside of u8",
            "ask for WEFT_I16");
    REFUSED(weft_full(weft_shape(2), -1, WEFT_U8), "full: -1");
    REFUSED(weft_full(weft_shape(2), INFINITY, WEFT_I64), "full: inf");
    REFUSED(weft_full(weft_shape(2), 9223372036854775808.0, WEFT_I64), "full: ");
    REFUSED(weft_full_like(weft_zeros(weft_shape(2), WEFT_I8), 200), "full_like: 200");
    REFUSED(weft_scalar(NAN, WEFT_I32), "scalar: nan");
    REFUSED(weft_arange(0, 400, 100, WEFT_U8), "arange: 300");
    REFUSED(weft_arange(3, -2, -1, WEFT_U8), "arange: -1");
    REFUSED(weft_linspace(0, 256, 3, WEFT_U8), "linspace: 256");
    REFUSED(weft_randint(weft_shape(3), 0, 300, .dtype = WEFT_U8), "randint: 299 is outside of u8");
    REFUSED(weft_randint(weft_shape(3), -1, 3, .dtype = WEFT_U8), "randint: -1");
    REFUSED(weft_randint(weft_shape(3), 0, 1LL << 40, .dtype = WEFT_I32), "randint: ", "WEFT_I64");
    cr_assert_eq(weft_item_i64(weft_full(weft_shape(1), 255.9, WEFT_U8)), 255);
    cr_assert_eq(weft_item_i64(weft_full(weft_shape(1), -128.9, WEFT_I8)), -128);
    cr_assert_eq(weft_item_i64(weft_full(weft_shape(1), -0x1p63, WEFT_I64)), INT64_MIN);
    cr_assert_eq(weft_item_i64(weft_sum(weft_arange(0, 300, 100, WEFT_U8))), 300);
    cr_assert(weft_ok(weft_randint(weft_shape(3), 0, 256, .dtype = WEFT_U8)));
    cr_assert(weft_ok(weft_randint(weft_shape(3), INT64_MIN, INT64_MAX)));
    /* conversions wrap and saturate as ever */
    cr_assert_eq(weft_item_i64(weft_cast(weft_i(300), WEFT_U8)), 44);
    cr_assert_eq(weft_item_i64(weft_cast(weft_f(300), WEFT_U8)), 255);
    cr_assert_eq(weft_item_i64(weft_cast(weft_scalar(300, WEFT_F32), WEFT_U8)), 255);
    weft_scope_end(sc);
}
