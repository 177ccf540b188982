/*
 * eager/api_power.c -- powers that are written in other rows: those of integers, by repeated squaring, and of floats to
 * some numbers.
 *
 * Floats have a row of their own, and other rows where the exponent is a number: a square takes 1/28 of the row's time. What
 * is written here is at most 2 ULP off and has the row's special values (IEEE 754-2019, 9.2.1). Integer powers are exact and wrap, as all integer arithmetic here, so they cannot go through it. An
 * exponent that is a number is walked bit by bit on the host (in a trace its bits are numbers of the call, so that a plan
 * holds for all exponents of a length); an exponent tensor takes as many steps as its largest element has bits, or as its type
 * has where nothing is to be read: in a trace and on a device.
 */

#include "eager/api.h"
#include "eager/call.h"
#include "eager/device.h"

static weft_tensor mul(weft_tensor a, weft_tensor b)
{
    return wf_op2(WF_OP_MUL, NULL, a, b);
}

static weft_tensor square(weft_tensor a)
{
    return wf_op1(WF_OP_SQUARE, NULL, a);
}

/* bool 0, integer 1, float 2; more: none, for dispatch to say so */
static int kind_of(weft_tensor t)
{
    bool weak;
    int dt = wf_api_dtype(t, &weak);
    return weak ? (int)t.context : dt == WEFT_DTYPE_DEFAULT ? 3 : wf_dtype_kind(dt);
}

/* The exponent, if it is a number and the power of tensor a is written in other rows; else 0. */
static double other_rows(weft_tensor a, weft_tensor b)
{
    static const double exponents[] = {2, 3, 0.5, -0.5, -1, 4, -2};
    bool weak;
    if (!wf_is_scalar(b) || wf_is_scalar(a)) {
        return 0;
    }
    const int dt = wf_api_dtype(a, &weak);
    if (dt == WEFT_DTYPE_DEFAULT || wf_dtype_kind(dt) != 2) {
        return 0;
    }
    const double e = wf_scalar_f64(b);
    for (size_t i = 0; i < sizeof exponents / sizeof *exponents; i++) {
        if (e == exponents[i]) {
            return e;
        }
    }
    return 0;
}

bool wf_api_power_apart(weft_tensor a, weft_tensor b)
{
    if (other_rows(a, b) != 0) {
        return true;
    }
    int i = kind_of(a), j = kind_of(b);
    return i <= 1 && j <= 1 && i + j > 0; /* two truth values are not numbers */
}

static weft_tensor float_power(weft_tensor a, double e)
{
    bool weak;
    const int dt = wf_api_dtype(a, &weak);
    if ((e == 4 || e == -2) && dt != WEFT_F32 && dt != WEFT_F64) { /* two rows, rounded once */
        return (weft_cast)(float_power((weft_cast)(a, WEFT_F32), e), (weft_dtype)dt);
    }
    if (e <= -1) {
        const weft_tensor r = wf_op1(WF_OP_RECIPROCAL, NULL, a);
        return e == -1 ? r : square(r);
    }
    if (e == 3) {
        return wf_op1(WF_OP_CUBE, NULL, a);
    }
    if (e > 1) {
        return e == 2 ? square(a) : square(square(a));
    }
    return wf_op1(e > 0 ? WF_OP_POW_HALF : WF_OP_POW_MINUS_HALF, NULL, a);
}

/* a^e, e >= 0; at most twice as many products as e has bits. */
static weft_tensor by_number(weft_tensor a, int64_t e)
{
    weft_tensor r = weft_i(1), squared = a;
    for (; e > 1; e >>= 1) {
        r = e & 1 ? mul(squared, r) : r;
        squared = mul(squared, squared);
    }
    return e ? mul(squared, r) : wf_op2(WF_OP_ADD, NULL, mul(a, weft_i(0)), weft_i(1));
}

enum { SHORT = 8 }; /* exponents up to here have a plan each: half of the products */

/* The same in a trace: the bits are operands, and only how many there are is structure. */
static weft_tensor by_bits(weft_tensor a, int64_t e)
{
    weft_tensor r = weft_i(1), squared = a;
    for (; e > 1; e >>= 1) {
        r = mul(wf_op3(WF_OP_WHERE, NULL, weft_b(e & 1), squared, weft_i(1)), r);
        squared = mul(squared, squared);
    }
    return mul(squared, r);
}

/* How many bits the elements of b have below a sign: of what is 0 or less one, which says whether a power of -1 is. */
static int bits_of(weft_tensor b, int all)
{
    wf_ctx *c = wf_ctx_get();
    if (!c || c->recorder || wf_device_of_handle(c, b) != WF_DEVICE_HOST || weft_numel(b) <= 0) {
        return all;
    }
    const weft_reduce_args args = {.x = b};
    const int64_t most = weft_item_i64((weft_max)(&args));
    if (most == INT64_MIN) { /* there was no memory for it, maybe */
        return all;
    }
    return most <= 1 ? 1 : 64 - __builtin_clzll((unsigned long long)most);
}

/* a^b where b >= 0. Below that a whole number is left of a^b only if a is 1 or -1; else 0. */
static weft_tensor by_tensor(weft_tensor a, weft_tensor b, int dtype)
{
    bool has_sign = dtype != WEFT_U8;
    int bits = bits_of(b, 8 * (int)wf_dtype_size(dtype) - has_sign);
    weft_tensor r = weft_i(1), squared = a;
    for (int k = 0; k < bits; k++) {
        weft_tensor bit = wf_op2(WF_OP_SHIFT_RIGHT, NULL, b, weft_i(k));
        bit = wf_op2(WF_OP_NOT_EQUAL, NULL, wf_op2(WF_OP_BITWISE_AND, NULL, bit, weft_i(1)),
                     weft_i(0));
        r = mul(wf_op3(WF_OP_WHERE, NULL, bit, squared, weft_i(1)), r);
        squared = k + 1 < bits ? mul(squared, squared) : squared;
    }
    if (has_sign) {
        /* the bits below the sign say whether b is odd, and so what a power of -1 is: for 1 and -1 r is right */
        weft_tensor big = wf_op2(WF_OP_NOT_EQUAL, NULL, a, weft_i(1));
        big = wf_op2(WF_OP_LOGICAL_AND, NULL, big, wf_op2(WF_OP_NOT_EQUAL, NULL, a, weft_i(-1)));
        weft_tensor gone =
            wf_op2(WF_OP_LOGICAL_AND, NULL, big, wf_op2(WF_OP_LESS, NULL, b, weft_i(0)));
        r = wf_op3(WF_OP_WHERE, NULL, gone, weft_i(0), r);
    }
    return r;
}

static weft_tensor power(weft_tensor a, weft_tensor b)
{
    weft_tensor both[2] = {a, b};
    const double number = other_rows(a, b);
    if (number != 0) {
        return float_power(a, number);
    }
    int64_t e = wf_is_scalar(b) ? (int64_t)b.serial : 0;
    if (e < 0) {
        wf_why why = {0};
        wf_fail(&why, WEFT_EINVALID, "integers have no power of %lld", (long long)e);
        wf_hint(&why, "make one of the two a float");
        return wf_raise(wf_ctx_get(), "pow", 2, (weft_tensor[]){a, b}, &why);
    }
    if (wf_is_scalar(b) && !wf_is_scalar(a) && kind_of(a) == 1) {
        return wf_ctx_get()->recorder && e > SHORT ? by_bits(a, e) : by_number(a, e);
    }
    bool weak;
    wf_api_unify(2, both);
    return by_tensor(both[0], both[1], wf_api_dtype(both[0], &weak));
}

weft_tensor wf_api_power(weft_tensor a, weft_tensor b)
{
    WF_CALLED(w, "pow", a, b);
    weft_scope sc = weft_scope_begin();
    return wf_called_end(&w, weft_scope_return(sc, power(a, b)));
}

weft_status wf_api_power_(weft_tensor x, weft_tensor b)
{
    WF_CALLED_WRITE(w, WF_OP_POW, x, b);
    weft_scope sc = weft_scope_begin();
    const bool number = kind_of(x) == 1 || other_rows(x, b) != 0;
    weft_tensor r = number ? power(x, b) : WEFT_NONE;
    weft_status s = number ? (weft_copy_)(x, r) : WEFT_ESHAPE;
    /* What pow does not accept as operands, or copy_ as a target, the row refuses as well, in its own name. */
    if (s == WEFT_ESHAPE || (s == WEFT_EINVALID && weft_ok(r))) {
        s = (weft_status)wf_dispatch_inplace(WF_OP_POW, NULL, 2, (weft_tensor[]){x, b}, x);
    }
    weft_scope_end(sc);
    return wf_called_done(&w, s);
}
