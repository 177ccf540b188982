/*
 * tests/jit/test_ir.c -- the graph IR: text round trip, verifier, recorded traces, the tape as text.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "jit/ir/ir.h"
#include "jit/trace.h"
#include "weft/weft.h"

static wf_fn *parse(const char *text, wf_why *why)
{
    memset(why, 0, sizeof *why);
    return wf_fn_parse(text, strlen(text), why);
}

static void round_trip(const wf_fn *f)
{
    wf_why why = {0};
    char *text = wf_fn_text(f);
    cr_assert_not_null(text);
    wf_fn *g = wf_fn_parse(text, strlen(text), &why);
    cr_assert_not_null(g, "%s\n%s", why.rule, text);
    cr_assert(wf_fn_equal(f, g), "%s", text);
    char *again = wf_fn_text(g);
    cr_assert_str_eq(text, again);
    cr_assert_eq(wf_fn_verify(g, &why), 0, "%s", why.rule);
    free(text);
    free(again);
    wf_fn_free(g);
}

/* Cuts ` at "FILE:LINE"` out of a text. */
static void without_sites(char *text)
{
    for (char *at; (at = strstr(text, " at \"")) != NULL;) {
        const char *end = strchr(at + 5, '"') + 1;
        memmove(at, end, strlen(end) + 1);
    }
}

static const char sample[] =
    "fn step symbols(batch, seq) {\n"
    "  %1 = input f32[batch,seq,4]\n"
    "  %2 = scalar f64\n"
    "  %3 = mul f32[batch,seq,4] %1, %2\n"
    "  %4 = max f32[batch,seq,1] %3 ints(2) flags(1)\n"
    "  %5 = sort f32[batch,seq,4] %3 ints(2)\n"
    "  %6 = result i64[batch,seq,4] %5 #1\n"
    "  %7 = expand f32[batch,seq,4] %4 dyn(batch,seq,4)\n"
    "  %8 = input f32[4] \"norm.\\x5cscale\" at \"m.c:3\"\n"
    "  %9 = layer_norm f32[batch,seq,4] %7, %8, _ ints(1) flt(0x1.4f8b588e368f1p-17)\n"
    "  %10 = result f32[batch,seq] %9 #1\n"
    "  %11 = result f32[batch,seq] %9 #2\n"
    "  return %5, %6, %9\n"
    "}\n";

Test(ir, text_prints_and_parses)
{
    wf_why why;
    wf_fn *f = parse(sample, &why);
    cr_assert_not_null(f, "%s", why.rule);
    char *text = wf_fn_text(f);
    cr_assert_str_eq(text, sample);
    free(text);
    round_trip(f);
    wf_fn_free(f);
}

/* Slots keep every bit of a 64-bit integer and of a double, in memory and in text. */
Test(ir, scalar_slots_are_exact)
{
    static const struct {
        int kind;
        uint64_t bits;
        const char *text;
    } v[] = {
        {1, (1u << 31) * (1ull << 31) + 1, "  %1 = scalar i64 4611686018427387905\n"},
        {1, (uint64_t)INT64_MIN, "  %2 = scalar i64 -9223372036854775808\n"},
        {1, 0, "  %3 = scalar i64\n"},
        {0, 1, "  %4 = scalar bool 1\n"},
        {2, 0x8000000000000000u, "  %5 = scalar f64 -0x0p+0\n"},
        {2, 0x0000000000000001u, "  %6 = scalar f64 0x0.0000000000001p-1022\n"},
        {2, 0x7ff0000000000000u, "  %7 = scalar f64 inf\n"},
        {2, 0x3fb999999999999au, "  %8 = scalar f64 0x1.999999999999ap-4\n"},
    };
    enum { N = sizeof v / sizeof *v };
    wf_why why = {0};
    wf_fn *f = wf_fn_new("slots");
    for (int i = 0; i < N; i++) {
        wf_fn_output(f, wf_fn_scalar(f, v[i].kind, v[i].bits));
    }
    char *text = wf_fn_text(f);
    wf_fn *g = wf_fn_parse(text, strlen(text), &why);
    cr_assert_not_null(g, "%s\n%s", why.rule, text);
    for (int i = 0; i < N; i++) {
        cr_assert(strstr(text, v[i].text), "%s not in\n%s", v[i].text, text);
        cr_assert_eq(g->slots[i], v[i].bits, "slot %d", i);
        cr_assert_eq(g->slot_kind[i], v[i].kind);
    }
    round_trip(f);
    free(text);
    wf_fn_free(f);
    wf_fn_free(g);
    cr_assert_null(parse("fn f {\n  %1 = scalar bool 2\n  return %1\n}", &why));
    cr_assert_null(parse("fn f {\n  %1 = scalar i64 0.5\n  return %1\n}", &why));
    cr_assert_null(parse("fn f {\n  %1 = scalar i64 9223372036854775808\n  return %1\n}", &why));
}

Test(ir, numbers_that_are_extents)
{
    static const char text[] = "fn f symbols(n, m%4==0) {\n  %1 = input f32[n,m]\n"
                               "  %2 = scalar f64 [n]\n  %3 = div f32[n,m] %1, %2\n"
                               "  %4 = scalar i64 [n*m-m/4+1]\n  %5 = mul f32[n,m] %3, %4\n"
                               "  %6 = scalar f64 0x1p-1\n  %7 = add f32[n,m] %5, %6\n"
                               "  return %7\n}\n";
    wf_why why = {0};
    wf_fn *f = parse(text, &why), *g = parse(text, &why);
    cr_assert_not_null(f, "%s", why.rule);
    cr_assert(wf_fn_verify(f, &why) == 0 && wf_fn_equal(f, g), "%s", why.rule);
    char *again = wf_fn_text(f);
    cr_assert_str_eq(again, text);
    free(again);
    round_trip(f);
    const int64_t sizes[WF_MAX_SYMBOLS] = {3, 8};
    cr_assert_eq(wf_sym_value(f, wf_fn_slot_extent(f, 0), sizes), 3);
    cr_assert_eq(wf_sym_value(f, wf_fn_slot_extent(f, 1), sizes), 23);
    cr_assert_eq(wf_fn_slot_extent(f, 2), -1);
    g->sized[0].extent = WF_SYM(1);
    cr_assert(!wf_fn_equal(f, g));
    g->sized[1].slot = 0;
    cr_assert_neq(wf_fn_verify(g, &why), 0);
    wf_fn_free(f);
    wf_fn_free(g);
    static const char *const bad[] = {"scalar bool [n]", "const f64 [n]",  "scalar f64 [3]",
                                      "scalar f64 [k]",  "scalar f64 [n",  "scalar f64 [n*n*n]",
                                      "scalar f64 []",   "scalar f64 [-1]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char one[128];
        snprintf(one, sizeof one,
                 "fn f symbols(n) {\n  %%1 = input f32[n]\n  %%2 = %s\n  return %%1\n}", bad[i]);
        cr_assert_null(parse(one, &why), "%s", bad[i]);
    }
    cr_assert_null(parse("fn f {\n  %1 = scalar f64 [n]\n  return %1\n}", &why));
}

/* What an input was, whatever its name holds, and the text without it. */
Test(ir, names_of_inputs_print_and_parse)
{
    static const char text[] =
        "fn f {\n"
        "  %1 = input f32[2] \"layers.0.weight\" at \"model.c:12\"\n"
        "  %2 = input f32[2]\n"
        "  %3 = input f32[2] at \"model.c:14\"\n"
        "  %4 = input f32[2] \"\\x22 at \\x5cx22; \\x0a\\x1b[2J\\x7f \xce\xb1\\xc2\\x9b\xc2\xbb\"\n"
        "  %5 = add f32[2] %1, %4 at \"model.c:15\"\n"
        "  return %5\n"
        "}\n";
    static const char *const refused[] = {
        "\"",       "\"open",        "\"\"",        "\"a\nb\"",  "\"a\tb\"", "\"a\xc2\x9b\"",
        "\"\\n\"",  "\"\\x0\"",      "\"\\x00\"",   "\"\\xZZ\"", "\"\\\"",   "\"a\" \"b\"",
        "\"a\" at", "\"a\" at \"\"", "\"a\" nograd"};
    wf_why why = {0};
    wf_fn *f = wf_fn_new("f");
    const wf_type two = {.dtype = WEFT_F32, .rank = 1, .dims = {2}};
    static const char hostile[] = "\" at \\x22; \n\x1b[2J\x7f \xce\xb1\xc2\x9b\xc2\xbb";
    wf_val in[4], ends[2];
    for (int i = 0; i < 4; i++) {
        in[i] = wf_fn_input(f, &two);
    }
    wf_fn_name_input(f, in[3], hostile, sizeof hostile - 1, NULL);
    wf_fn_name_input(f, in[0], "layers.0.weight and more", 15, "src/of/model.c:12");
    wf_fn_name_input(f, in[2], "", 0, "model.c:14");
    ends[0] = in[0], ends[1] = in[3];
    cr_assert_eq(wf_fn_append(f, WF_OP_ADD, NULL, 2, ends, &in[1], "model.c:15", &why), 0);
    wf_fn_output(f, in[1]);
    char *printed = wf_fn_text(f), *bare = wf_fn_text_bare(f);
    cr_expect_str_eq(printed, text);
    cr_expect(!strstr(bare, "layers") && !strstr(bare, "model.c:12") &&
                  strstr(bare, "model.c:15") && strstr(bare, "input f32[2]\n"),
              "%s", bare);
    wf_fn *g = wf_fn_parse(printed, strlen(printed), &why);
    cr_assert(g && wf_fn_equal(f, g), "%s", why.rule);
    cr_expect_str_eq(wf_fn_input_name(g, 3), hostile);
    cr_expect_null(wf_fn_input_name(g, 1));
    cr_expect_null(wf_fn_input_name(g, 4));
    round_trip(f);
    wf_fn_clear(f);
    cr_expect(wf_fn_input(f, &two) && !wf_fn_input_name(f, 0));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char damaged[128];
        snprintf(damaged, sizeof damaged, "fn f {\n  %%1 = input f32[2] %s\n  return %%1\n}\n",
                 refused[i]);
        cr_expect_null(parse(damaged, &why), "%s", damaged);
    }
    free(printed);
    free(bare);
    wf_fn_free(f);
    wf_fn_free(g);
}

Test(ir, what_was_called_prints_and_parses)
{
    static const char text[] =
        "fn f {\n"
        "  %1 = input f32[2,3]\n"
        "  %2 = input i64[2,1]\n"
        "  %3 = take_along f32[2,1] %1, %2 ints(1) called \"nll_loss\" at \"a.c:7\"\n"
        "  %4 = take_along f32[2,1] %1, %2 ints(1) at \"a.c:8\"\n"
        "  return %3, %4\n"
        "}\n";
    wf_why why = {0};
    wf_fn *f = parse(text, &why);
    cr_assert_not_null(f, "%s", why.rule);
    char *again = wf_fn_text(f);
    cr_assert_str_eq(text, again);
    cr_assert_str_eq(wf_fn_call_name(f, 2), "nll_loss");
    cr_assert_str_eq(wf_fn_call_name(f, 3), "take_along");
    free(again);
    wf_fn_free(f);
}

Test(ir, fused_derivative_rows)
{
    static const char head[] = "fn f {\n"
                               "  %1 = input f32[2,3]\n"
                               "  %2 = scalar f64 0x1p+1\n"
                               "  %3 = vjp f32[2,3] %1, _, %2, _";
    static const char tail[] = " dtype(f32)\n  return %3\n}\n";
    static const char *const attributes[] = {" of(mul,0) dyn(2,3)",  " of(sin,0) dyn(2,3)",
                                             " of(mul,2) dyn(2,3)",  " of(mul,0) dyn(3)",
                                             " of(mul,0) dyn(1,3)",  " of(matmul,0) dyn(2,3)",
                                             " of(none,0) dyn(2,3)", " dyn(2,3)"};
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        char text[256];
        wf_why why;
        snprintf(text, sizeof text, "%s%s%s", head, attributes[i], tail);
        wf_fn *f = parse(text, &why);
        if (i == 0) {
            cr_assert_not_null(f, "%s", why.rule);
            char *again = wf_fn_text(f);
            cr_assert_str_eq(text, again);
            free(again);
            round_trip(f);
        } else {
            cr_expect_null(f, "%s", text);
        }
        wf_fn_free(f);
    }
}

Test(ir, malformed_text_is_refused_with_its_line)
{
    static const char *const bad[][2] = {
        {"", "line 1"},
        {"fn f {\n  %1 = input f32[2\n  return %1\n}", "line 3"},
        {"fn f {\n  %2 = input f32[2]\n  return %2\n}", "the next number"},
        {"fn f {\n  %1 = input f99[2]\n  return %1\n}", "element type"},
        {"fn f {\n  %1 = input f32[-2]\n  return %1\n}", "extent"},
        {"fn f {\n  %1 = input f32[n]\n  return %1\n}", "symbol"},
        {"fn f {\n  %1 = input f32[2]\n  %2 = add f32[2] %1, %3\n  return %2\n}", "earlier value"},
        {"fn f {\n  %1 = input f32[2]\n  %2 = add f32[2] %1\n  return %2\n}", "operands"},
        {"fn f {\n  %1 = input f32[2]\n  %2 = add f32[3] %1, %1\n  return %2\n}", "type"},
        {"fn f {\n  %1 = input f32[2]\n  %2 = frobnicate f32[2] %1\n  return %2\n}", "an op"},
        {"fn f {\n  %1 = input f32[2]\n  %2 = input f32[3]\n  %3 = add f32[2] %1, %2\n  return "
         "%3\n}",
         "broadcast"},
        {"fn f {\n  %1 = input f32[2]\n  %2 = sort f32[2] %1 ints(0)\n  return %2\n}", "result"},
        {"fn f {\n  %1 = input f32[2]\n  %2 = sum f32[] %1 ints(5)\n  return %2\n}", "axis"},
        {"fn f {\n  %1 = input f32[2]\n  %2 = reshape f32[2] %1 dyn(4611686018427387904)\n  return "
         "%2\n}",
         "integer"},
        {"fn f {\n  %1 = input f32[4]\n  %2 = as_strided f32[2] %1 ints(1) dyn(2,1,3)\n  return "
         "%2\n}",
         "reach elements 3 to 4"},
        {"fn f {\n  return %1\n}", "earlier value"},
        {"fn f {\n  return\n} x", "end"},
        {"fn f symbols(a, a) {\n  return\n}", "new symbol"},
        {"fn f symbols(2x) {\n  return\n}", "an integer"},
        {"fn f symbols(2<a) {\n  return\n}", "<="},
        {"fn f symbols(0<=a) {\n  return\n}", "a size and <="},
        {"fn f symbols(3<=a<=2) {\n  return\n}", "at least the smallest"},
        {"fn f symbols(9223372036854775807<=a) {\n  return\n}", "an integer"},
        {"fn f symbols(a%0==0) {\n  return\n}", "an integer of 2 to 1024"},
        {"fn f symbols(a%1==0) {\n  return\n}", "an integer of 2 to 1024"},
        {"fn f symbols(a%-4==0) {\n  return\n}", "an integer of 2 to 1024"},
        {"fn f symbols(a%1025==0) {\n  return\n}", "an integer of 2 to 1024"},
        {"fn f symbols(a%18446744073709551618==0) {\n  return\n}", "an integer of 2 to 1024"},
        {"fn f symbols(a%4=0) {\n  return\n}", "=="},
        {"fn f symbols(a%4==4) {\n  return\n}", "a remainder"},
        {"fn f symbols(3<=a%4==0) {\n  return\n}", ")"},
        {"fn f symbols(a%4==0<=9) {\n  return\n}", ")"},
        {"fn f symbols(a%4==0, a%3==0) {\n  return\n}", "a new symbol"},
        {"fn f symbols(a%4==0, 3<=a) {\n  return\n}", "a new symbol"},
        {"fn f symbols(a, b, a%4==0) {\n  return\n}", "a new symbol"},
        {"fn f symbols(5<=a<=7, a%4==0) {\n  return\n}", "a multiple within the range"},
        {"fn f symbols(a<=3, a%4==0) {\n  return\n}", "a multiple within the range"},
        {"fn f symbols(a) {\n  %1 = input f32[a/2]\n  return\n}", "whose sizes are multiples"},
        {"fn f symbols(a%6==0) {\n  %1 = input f32[a/4]\n  return\n}", "whose sizes are multiples"},
        {"fn f symbols(a%6==0) {\n  %1 = input f32[a/0]\n  return\n}", "an integer of 2 to 1024"},
        {"fn f symbols(a%6==0) {\n  %1 = input f32[a/]\n  return\n}", "an integer of 2 to 1024"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wf_why why;
        wf_fn *f = parse(bad[i][0], &why);
        cr_expect_null(f, "%s", bad[i][0]);
        cr_expect(strstr(why.rule, bad[i][1]), "wanted \"%s\" in \"%s\" for\n%s", bad[i][1],
                  why.rule, bad[i][0]);
        wf_fn_free(f);
    }
}

/* Damaged text: every prefix, and every byte replaced, either parses to something valid or is refused. */
Test(ir, damaged_text_never_crashes)
{
    size_t n = sizeof sample - 1;
    char text[sizeof sample];
    wf_why why;
    for (size_t i = 0; i < n; i++) {
        wf_fn_free(wf_fn_parse(sample, i, &why));
        for (int k = 0; k < 4; k++) {
            memcpy(text, sample, n);
            text[i] = "%9)\0"[k];
            wf_fn *f = wf_fn_parse(text, n, &why);
            cr_assert(!f || wf_fn_verify(f, &why) == 0, "%s", text);
            wf_fn_free(f);
        }
    }
}

Test(ir, verifier_catches_planted_faults)
{
    int caught = 0;
    for (uint32_t k = 0; k < 11; k++) {
        for (int fault = 0; fault < 5; fault++) {
            wf_why why;
            wf_fn *f = parse(sample, &why);
            wf_ins *i = &f->ins[k];
            uint32_t old = f->n;
            switch (fault) {
            case 0:
                i->op = WF_OP_SIN;
                break;
            case 1:
                i->type = f->ntypes + 3;
                break;
            case 2:
                i->src[0] = k + 2;
                i->nsrc = i->nsrc ? i->nsrc : 1;
                break;
            case 3:
                i->type = (i->type + 1) % f->ntypes;
                break;
            default:
                f->outputs[0] = f->n + 1;
                break;
            }
            /* another type for an input is a valid, different function unless a user of it notices */
            int rc = wf_fn_verify(f, &why);
            bool harmless = fault == 3 && (i->op == WF_OP_INPUT || i->op == WF_OP_SCALAR);
            cr_expect(rc != 0 || harmless, "fault %d at %%%u passed", fault, k + 1);
            caught += rc != 0;
            f->n = old;
            wf_fn_free(f);
        }
    }
    cr_assert_geq(caught, 50);
}

/* -- recorded traces -------------------------------------------------------------------------------- */

typedef weft_tensor (*body)(const weft_tensor *in);

static weft_tensor nine_rows(const weft_tensor *in)
{
    static const int64_t rows[] = {1, 0, 2};
    weft_tensor h = weft_matmul(weft_mul(in[0], weft_f(0.5)), in[1]);
    h = weft_add(weft_sigmoid(h), weft_exp(weft_neg(h)));
    h = weft_where(weft_less(h, weft_f(1.5)), h, weft_f(-1));
    h = weft_permute(h, weft_axes(1, 0));
    h = weft_index_select(h, 0, weft_cast(weft_add(in[2], weft_i(0)), WEFT_I64));
    (void)rows;
    return weft_sum(h, .axes = weft_axes(1));
}
static weft_tensor mixed(const weft_tensor *in)
{
    weft_tensor h =
        weft_mul(in[0], weft_cast(in[2], WEFT_F32)); /* integers, halves, weak scalars */
    h = weft_add(weft_cast(h, WEFT_BF16), weft_i(1));
    return weft_softmax(weft_mul(h, weft_cast(in[0], WEFT_F16)), -1);
}

static void check_trace(body f, weft_dtype dt)
{
    static const int64_t idx[] = {2, 0, 1};
    weft_scope sc = weft_scope_begin();
    weft_manual_seed(3);
    weft_tensor in[3] = {weft_cast(weft_randn(weft_shape(4, 3), WEFT_F32), dt),
                         weft_cast(weft_randn(weft_shape(3, 5), WEFT_F32), dt),
                         weft_from_data(idx, weft_shape(3), WEFT_I64)};
    weft_tensor eager = f(in);
    cr_assert(weft_ok(eager), "%s", weft_error_text(eager));
    wf_trace *t = wf_trace_begin("f");
    weft_tensor out = f(in);
    cr_assert(weft_ok(out), "%s", weft_error_text(out));
    double v;
    cr_assert_neq(weft_item(out, &v), WEFT_OK); /* a traced value cannot be read */
    cr_assert_eq(wf_trace_output(t, out), 0);
    weft_tensor *captured, again;
    int n;
    wf_fn *fn = wf_trace_end(t, &captured, &n);
    round_trip(fn);
    cr_assert_eq(wf_fn_run(fn, captured, NULL, &again), 0, "%s", weft_last_error());
    cr_assert_eq(weft_dtype_of(again), weft_dtype_of(eager));
    cr_assert_eq(weft_numel(again), weft_numel(eager));
    cr_assert_arr_eq(weft_data(again), weft_data(eager), (size_t)weft_nbytes(eager));
    for (int i = 0; i < n; i++) {
        weft_free(captured[i]);
    }
    wf_mfree(captured);
    wf_fn_free(fn);
    weft_scope_end(sc);
}

Test(ir, a_recorded_trace_has_the_bits_of_the_calls)
{
    check_trace(nine_rows, WEFT_F32);
    check_trace(nine_rows, WEFT_BF16);
    check_trace(nine_rows, WEFT_F64);
    check_trace(mixed, WEFT_F32);
    weft_memory_stats m;
    weft_memory_get_stats(&m);
    cr_assert_eq(m.kept_tensors, 0);
}

Test(ir, recording_appends_and_never_merges)
{
    weft_tensor x = weft_ones(weft_shape(2), WEFT_F32);
    wf_trace *t = wf_trace_begin("f");
    weft_tensor a = weft_mul(x, weft_f(2)), b = weft_mul(x, weft_f(2));
    wf_trace_output(t, weft_add(a, b));
    weft_no_grad_begin();
    wf_trace_output(t, weft_mul(a, weft_f(1)));
    weft_no_grad_end();
    cr_assert_null(wf_trace_begin("g"));
    cr_assert_neq(weft_add_(x, weft_f(1)), WEFT_OK); /* refused, not silently lost */
    weft_tensor *captured;
    int n;
    wf_fn *f = wf_trace_end(t, &captured, &n);
    cr_assert_eq(n, 1);
    cr_assert_eq(f->nslots, 3);
    char *text = wf_fn_text(f);
    cr_assert(strstr(text, ", %2 at \"test_ir.c:"), "%s", text);
    round_trip(f);
    without_sites(text);
    cr_assert_str_eq(text, "fn f {\n"
                           "  %1 = input f32[2]\n"
                           "  %2 = scalar f64 0x1p+1\n"
                           "  %3 = mul f32[2] %1, %2\n"
                           "  %4 = scalar f64 0x1p+1\n"
                           "  %5 = mul f32[2] %1, %4\n"
                           "  %6 = add f32[2] %3, %5\n"
                           "  %7 = scalar f64 0x1p+0\n"
                           "  %8 = mul f32[2] %3, %7 nograd\n"
                           "  return %6, %8\n"
                           "}\n");
    /* slots are arguments: the same function with other values */
    uint64_t slots[3] = {wf_slot_bits(2, 10), wf_slot_bits(2, 20), wf_slot_bits(2, 3)};
    weft_tensor out[2];
    double v[2];
    cr_assert_eq(wf_fn_run(f, captured, slots, out), 0);
    weft_to_array(out[0], v, 2, WEFT_F64);
    cr_assert_eq(v[0], 30);
    weft_to_array(out[1], v, 2, WEFT_F64);
    cr_assert_eq(v[1], 30);
    free(text);
    wf_fn_free(f);
    weft_free(captured[0]);
    wf_mfree(captured);
}

static char *tape_text(weft_tensor t)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    cr_assert_eq(weft_tape_print(out, t), WEFT_OK, "%s", weft_last_error());
    fclose(out);
    return text;
}

/* The line of text that holds `what` holds `too` as well. */
static void line_has(const char *text, const char *what, const char *too)
{
    const char *at = strstr(text, what);
    cr_assert_not_null(at, "no %s in\n%s", what, text);
    const char *found = strstr(at, too);
    cr_assert(found && found < at + strcspn(at, "\n"), "no %s behind %s in\n%s", too, what, text);
}

Test(ir, the_tape_prints_as_ir)
{
    char here[32];
    weft_tensor x = weft_ones(weft_shape(2, 3), WEFT_F32);
    weft_requires_grad_(x, true);
    weft_set_name(x, "first\nline"); /* stays one remark */
    weft_tensor e = weft_exp(weft_mul(x, weft_f(2))), y = weft_sum(e, .axes = weft_axes(1));
    snprintf(here, sizeof here, "test_ir.c:%d", __LINE__ - 1);
    weft_set_name(e, "grown");
    char *text = tape_text(y);
    wf_why why;
    wf_fn *f = parse(text, &why);
    cr_assert_not_null(f, "%s\n%s", why.rule, text);
    char *bare = wf_fn_text(f);
    cr_assert(strstr(bare, "exp f32[2,3]") && !strchr(bare, ';'), "%s", bare);
    line_has(text, "input f32[2,3]", "; 'first line'");
    line_has(text, "exp f32[2,3]", "; 'grown'");
    line_has(text, "exp f32[2,3]", here);
    line_has(text, "sum f32[2]", "ints(1)");
    line_has(text, "sum f32[2]", here);
    free(bare);
    wf_fn_free(f);
    free(text);
    cr_assert_neq(weft_tape_print(stdout, weft_detach(y)), WEFT_OK);
}

static weft_status three_of_one(weft_function_ctx *c, void *user, const weft_tensor *in, int n_in,
                                weft_tensor *out, int n_out)
{
    (void)c, (void)user, (void)n_in;
    for (int i = 0; i < n_out; i++) {
        out[i] = weft_mul(in[0], weft_f(i + 2));
    }
    return weft_error_status(out[0]);
}

static weft_status first_back(weft_function_ctx *c, void *user, const weft_tensor *g, int n_g,
                              weft_tensor *out, const bool *wanted, int n_out)
{
    (void)c, (void)user, (void)n_g, (void)wanted, (void)n_out;
    out[0] = weft_mul(g[0], weft_f(2));
    return WEFT_OK;
}

/* Results of a program's own function are inputs of the text, each of them. */
Test(ir, results_of_own_functions_on_the_tape)
{
    const weft_function own = {.name = "three", .forward = three_of_one, .backward = first_back};
    weft_tensor x = weft_ones(weft_shape(5, 9), WEFT_F32), y[3];
    weft_requires_grad_(x, true);
    cr_assert_eq(weft_apply(&own, NULL, &x, 1, y, 3), WEFT_OK, "%s", weft_last_error());
    char *last = tape_text(y[2]), *sum = tape_text(weft_sum(weft_square(y[1])));
    wf_why why;
    wf_fn *f = parse(last, &why), *g = parse(sum, &why);
    cr_assert(f && g, "%s\n%s\n%s", why.rule, last, sum);
    cr_assert_eq(wf_fn_type(f, f->outputs[0])->rank, 2);
    cr_assert_eq(wf_fn_at(f, f->outputs[0])->op, WF_OP_INPUT, "%s", last);
    line_has(sum, "square f32[5,9]", "");
    wf_fn_free(f);
    wf_fn_free(g);
    free(last);
    free(sum);
}

/* The node of a constant that a derivative reads is younger than what reads it. */
Test(ir, constants_stand_before_their_readers_on_the_tape)
{
    weft_tensor x = weft_ones(weft_shape(4), WEFT_F32), c = weft_ones(weft_shape(4, 1), WEFT_F32);
    weft_requires_grad_(x, true);
    char *text = tape_text(weft_square(weft_mul(c, x)));
    wf_why why;
    wf_fn *f = parse(text, &why);
    cr_assert_not_null(f, "%s\n%s", why.rule, text);
    char *bare = wf_fn_text(f);
    cr_assert(strstr(bare, "%2 = input f32[4,1]"), "%s", bare);
    cr_assert(strstr(bare, "%3 = mul f32[4,4] %2, %1"), "%s", bare);
    cr_assert(strstr(bare, "%4 = square f32[4,4] %3"), "%s", bare);
    free(bare);
    wf_fn_free(f);
    free(text);
}

/* -- random functions ---------------------------------------------------------------------------------- */

static uint64_t state = 88172645463325252u;
static uint32_t rnd(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 33) % n);
}

Test(ir, random_functions_round_trip)
{
    for (int trial = 0; trial < 300; trial++) {
        wf_fn *f = wf_fn_new("r");
        int symbolic = trial % 3;
        int64_t s0 = 2, s1 = 3;
        if (symbolic) {
            s0 = WF_SYM(wf_fn_symbol(f, "batch", 5));
            s1 = symbolic == 2 ? WF_SYM(wf_fn_symbol(f, "seq", 3)) : 3;
            f->range[1].multiple = trial % 2 ? 6 : 1;
            f->range[1].rest = trial % 4 == 1 ? 5 : 0;
        }
        wf_type t = {.dtype = WEFT_F32, .rank = 2, .dims = {s0, s1}};
        wf_val pool[64];
        uint32_t n = 0;
        pool[n++] = wf_fn_input(f, &t);
        pool[n++] = wf_fn_input(f, &t);
        while (n < 40) {
            wf_op op = (wf_op)(WF_OP_RESULT + 1 + rnd(WF_OP_COUNT - WF_OP_RESULT - 1));
            const wf_row *row = &wf_rows[op];
            int64_t ints[4] = {rnd(2), rnd(2), 1, 0}, dyn[4] = {s0, s1, rnd(3), 1};
            dyn[1] = symbolic == 2 && trial % 2 && rnd(2) ? wf_sym(1, 1, 2, 0) : s1;
            double flt[2] = {0.1 * rnd(9), -1.5};
            wf_attr a = {.n_ints = (uint8_t)rnd(3),
                         .n_dyn = (uint8_t)rnd(4),
                         .n_flt = (uint8_t)rnd(2),
                         .flags = (uint8_t)rnd(2),
                         .ints = ints,
                         .dyn = dyn,
                         .flt = flt};
            wf_val src[3], dst[WF_MAX_DST];
            wf_why why = {0};
            int ns = row->min_src <= 3 ? row->min_src : 3;
            for (int i = 0; i < ns; i++) {
                src[i] = pool[rnd(n)];
            }
            if (wf_fn_append(f, op, &a, ns, src, dst, NULL, &why) == 0) {
                pool[n++] = dst[row->ndst > 1 ? rnd(row->ndst) : 0];
            } else {
                cr_assert(why.code && why.rule[0], "%s failed without a reason", row->name);
            }
        }
        wf_fn_output(f, pool[n - 1]);
        wf_fn_output(f, pool[0]);
        round_trip(f);
        wf_fn_free(f);
    }
}

/* -- extents that are computed from a symbol ------------------------------------------------------------------------ */

/* a k / d + b is of symbol k of f, where its sizes are multiples of d, and of none before it. */
static void check_symbol(wf_fn *f, uint32_t k, int64_t a, int64_t d, int64_t b)
{
    int64_t sizes[WF_MAX_SYMBOLS] = {0};
    const int64_t v = wf_sym(k, a, d, b), over = wf_sym_over(v);
    sizes[k] = 1000003 * d;
    f->nsymbols = k + 1;
    f->range[k].multiple = d;
    cr_assert(wf_is_sym(f, v), "%d n / %d + %d", (int)a, (int)d, (int)b);
    f->range[k].multiple = 1;
    cr_assert_eq(wf_is_sym(f, v), over == 1);
    f->nsymbols = k;
    cr_assert(!wf_is_sym(f, v));
    f->nsymbols = WF_MAX_SYMBOLS;
    cr_assert(wf_sym_of(v) == k && wf_sym_times(v) * d == a * over && wf_sym_plus(v) == b);
    cr_assert_eq(wf_sym_value(f, v, sizes), a * 1000003 + b);
}

Test(ir, extents_of_symbols)
{
    static const int64_t times[] = {1, 2, 3, 1000, (INT64_C(1) << 24) - 1, INT64_C(1) << 24},
                         plus[] = {0, 1, -1, 77, -78, (INT64_C(1) << 23) - 1, -(INT64_C(1) << 23)};
    wf_fn *f = wf_fn_new("f");
    for (uint32_t k = 0; k < WF_MAX_SYMBOLS; k++) {
        cr_assert_eq(wf_fn_symbol(f, &"abcdefghijklmnop"[k], 1), (int)k);
    }
    for (uint32_t k = 0; k < WF_MAX_SYMBOLS; k++) {
        cr_assert_eq(wf_sym(k, 1, 1, 0), WF_SYM(k));
        for (int i = 0; i < 6; i++) {
            for (int j = 0; j < 7; j++) {
                for (int d = 1; d <= 1024; d = 3 * d + 1) {
                    check_symbol(f, k, times[i], d, plus[j]);
                }
            }
        }
    }
    cr_assert(wf_sym(0, 0, 1, 1) < 0 && wf_sym(0, -1, 1, 1) < 0 && wf_sym(0, 1 << 25, 1, 0) < 0);
    cr_assert(wf_sym(0, 1, 1, 1 << 23) < 0 && wf_sym(0, 1, 1, -(1 << 23) - 1) < 0);
    cr_assert(wf_sym(0, 1, 0, 0) < 0 && wf_sym(0, 1, -2, 0) < 0 && wf_sym(0, 1, 1025, 0) < 0);
    cr_assert_eq(wf_sym(3, 6, 4, 1), wf_sym(3, 3, 2, 1)); /* equal extents are equal numbers */
    cr_assert_eq(wf_sym(3, 4096, 2048, 0), wf_sym(3, 2, 1, 0));
    for (uint32_t k = 0; k < WF_MAX_SYMBOLS; k++) {
        f->range[k].multiple = 1024;
    }
    cr_assert(!wf_is_sym(f, INT64_MAX) && !wf_is_sym(f, 7) && !wf_is_sym(f, -1));
    cr_assert(wf_sym(15, (1 << 24) - 1, 1024, -(1 << 23)) < INT64_MAX);
    cr_assert_eq(wf_sym_value(f, wf_sym(0, 1 << 24, 1, 0), &(int64_t){INT64_C(1) << 61}),
                 INT64_MAX);
    wf_fn_free(f);
}

static void check_range(wf_range r)
{
    int64_t last = -1;
    for (int64_t x = 0; x <= r.most; x++) {
        const bool has = x >= r.least && x % r.multiple == r.rest;
        cr_assert_eq(wf_range_has(r, x), has);
        last = has ? x : last;
    }
    for (int64_t x = -3; x < 20; x++) {
        int64_t from = x < 0 ? 0 : x;
        while (from <= r.most && !wf_range_has(r, from)) {
            from++;
        }
        cr_assert_eq(wf_range_from(r, x), from <= r.most ? from : last,
                     "from %d in %d..%d by %d, %d more", (int)x, (int)r.least, (int)r.most,
                     (int)r.multiple, (int)r.rest);
        int64_t below = x < r.most ? x : r.most;
        while (below > 0 && !wf_range_has(r, below)) {
            below--;
        }
        cr_assert_eq(wf_size_below(r, x, NULL, 0), below > 0 ? below : 0);
    }
    cr_assert_eq(wf_range_good(r), last > 0);
}

/* The sizes that a range has, and those next to a size, are the ones that counting gives. */
Test(ir, ranges_of_symbols)
{
    for (int64_t least = 0; least < 9; least++) {
        for (int64_t most = 0; most < 14; most++) {
            for (int64_t by = 1; by < 7; by++) {
                for (int64_t rest = 0; rest < by; rest++) {
                    check_range((wf_range){least, most, by, rest});
                }
            }
        }
    }
    cr_assert(!wf_range_good((wf_range){0, 9, 4, 4}) && !wf_range_good((wf_range){0, 9, 4, -1}));
    const int64_t taken[] = {8, 12};
    cr_assert_eq(wf_size_below((wf_range){0, 13, 4, 0}, 99, taken, 2), 4);
    cr_assert_eq(wf_size_below((wf_range){5, 13, 4, 0}, 99, taken, 2), 0);
    cr_assert_eq(wf_range_from((wf_range){0, INT64_MAX, 1024, 0}, INT64_MAX), INT64_MAX - 1023);
    char text[WF_RANGE_TEXT];
    cr_assert_str_eq(wf_range_text("n", wf_any_size(), text), "n");
    cr_assert_str_eq(wf_range_text("n", (wf_range){0, INT64_MAX, 8, 0}, text), "n%8==0");
    cr_assert_str_eq(wf_range_text("n", (wf_range){3, 64, 8, 0}, text), "3<=n<=64, n%8==0");
    cr_assert_str_eq(wf_range_text("n", (wf_range){0, INT64_MAX, 8, 3}, text), "n%8==3");
    cr_assert_str_eq(wf_range_rule((wf_range){3, 64, 8, 3}, 2, text), "at least 3");
    cr_assert_str_eq(wf_range_rule((wf_range){3, 64, 8, 3}, 67, text), "at most 64");
    cr_assert_str_eq(wf_range_rule((wf_range){3, 64, 8, 3}, 12, text),
                     "3 more than a multiple of 8");
    cr_assert_str_eq(wf_range_rule((wf_range){3, 64, 8, 0}, 12, text), "a multiple of 8");
}

/* Through three points goes what through two may not: 2 n + 1, but no square. */
Test(ir, extents_through_points)
{
    static const int64_t size[3] = {5, 7, 11}, two[3] = {5, 7, 7};
    cr_assert_eq(wf_sym_through(2, 1, size, (int64_t[]){5, 7, 11}), WF_SYM(2));
    cr_assert_eq(wf_sym_through(2, 1, two, (int64_t[]){5, 7, 7}), WF_SYM(2));
    cr_assert_eq(wf_sym_through(2, 1, size, (int64_t[]){11, 15, 23}), wf_sym(2, 2, 1, 1));
    cr_assert_eq(wf_sym_through(2, 1, size, (int64_t[]){-1, 1, 5}), wf_sym(2, 1, 1, -6));
    /* of sizes that are 1 more than a multiple of 4, rounded down: n / 4, 3 n / 2 + 1 */
    static const int64_t fifths[3] = {5, 9, 17};
    cr_assert_eq(wf_sym_through(2, 4, fifths, (int64_t[]){1, 2, 4}), wf_sym(2, 1, 4, 0));
    cr_assert_eq(wf_sym_through(2, 4, fifths, (int64_t[]){8, 14, 26}), wf_sym(2, 3, 2, 1));
    cr_assert_lt(wf_sym_through(2, 2, fifths, (int64_t[]){1, 2, 4}), 0);
    static const int64_t none[][3] = {{25, 49, 121}, {2, 3, 5}, {7, 5, 1}, {4, 4, 4}, {5, 7, 12}};
    for (int i = 0; i < 5; i++) {
        cr_assert_lt(wf_sym_through(2, 1, size, none[i]), 0, "case %d", i);
    }
    cr_assert_lt(wf_sym_through(2, 1, two, (int64_t[]){6, 8, 8}),
                 0); /* two sizes say nothing of it */
    /* quotients, of what is a multiple */
    static const int64_t eights[3] = {56, 24, 88}, half[3] = {30, 14, 46};
    cr_assert_eq(wf_sym_through(0, 8, eights, (int64_t[]){7, 3, 11}), wf_sym(0, 1, 8, 0));
    cr_assert_eq(wf_sym_through(0, 8, eights, half), wf_sym(0, 1, 2, 2));
    cr_assert_eq(wf_sym_through(0, 2, eights, half), wf_sym(0, 1, 2, 2));
    cr_assert_eq(wf_sym_through(0, 8, eights, (int64_t[]){20, 8, 32}), wf_sym(0, 3, 8, -1));
    cr_assert_lt(wf_sym_through(0, 1, eights, half), 0);
    cr_assert_lt(wf_sym_through(0, 4, eights, (int64_t[]){7, 3, 11}), 0);
    cr_assert_lt(wf_sym_through(0, 8, eights, (int64_t[]){7, 3, 12}), 0);
    cr_assert_lt(wf_sym_through(0, 8, eights, (int64_t[]){3, 7, -1}), 0);
    cr_assert_lt(wf_sym_through(0, 8, eights, (int64_t[]){INT64_MIN, INT64_MAX, 0}), 0);
}

/* Of random polynomials: what goes through their points is they, and their text is read as they. */
Test(ir, extents_of_several_symbols)
{
    for (int trial = 0; trial < 400; trial++) {
        wf_fn *f = wf_fn_new("f");
        const int n = 1 + (int)rnd(4);
        wf_points at;
        int64_t x[WF_POINTS], by[5][5] = {{0}}, v;
        wf_poly p = {.plus = (int64_t)rnd(100) - 50};
        for (int k = 0; k < n; k++) {
            wf_fn_symbol(f, &"abcd"[k], 1);
            f->range[k].multiple = trial % 2 ? 1 + rnd(12) : 1;
            f->range[k].rest = trial % 4 == 3 ? rnd((uint32_t)f->range[k].multiple) : 0;
            for (int i = 0; i < WF_POINTS_APART; i++) {
                at.size[i][k] =
                    (1 + 20 * i + 5 * k + (int)rnd(5)) * f->range[k].multiple + f->range[k].rest;
            }
            for (int j = k; j <= n; j++) {
                by[k][j] = rnd(3) ? 0 : (int64_t)rnd(90) - 30;
                cr_assert(wf_poly_add(&p, by[k][j], k, j == n ? WF_NO_SYMBOL : j));
            }
        }
        wf_points_around(f->range, n, &at);
        for (int i = 0; i < at.n; i++) {
            x[i] = p.plus;
            for (int k = 0; k < n; k++) {
                const int64_t t = at.size[i][k] / f->range[k].multiple;
                for (int j = k; j < n; j++) {
                    x[i] += by[k][j] * t * (at.size[i][j] / f->range[j].multiple);
                }
                x[i] += by[k][n] * t;
            }
        }
        const bool good = wf_poly_extent(f, &p, &v) && WF_IS_SYM(v);
        cr_assert_eq(wf_extent_through(f, &at, x), good ? v : -1, "trial %d", trial);
        x[WF_POINTS_APART - 1]++;
        cr_assert_eq(wf_extent_through(f, &at, x), -1, "trial %d", trial);
        if (good) {
            char text[WF_EXTENT_TEXT];
            wf_type t = {.dtype = WEFT_F32, .rank = 1, .dims = {v}};
            cr_assert_gt(strlen(wf_extent_text(f, v, text)), 0);
            for (int i = 0; i < at.n; i++) {
                cr_assert_eq(wf_sym_value(f, v, at.size[i]), x[i] - (i == WF_POINTS_APART - 1));
            }
            wf_fn_output(f, wf_fn_input(f, &t));
            round_trip(f);
        }
        wf_fn_free(f);
    }
}

Test(ir, extents_of_several_symbols_round_trip)
{
    static const char text[] =
        "fn f symbols(n, m, h%4==0, w%4==3) {\n"
        "  %1 = input f32[n]\n"
        "  %2 = input f32[m]\n"
        "  %3 = concat f32[n+m] %1, %2 ints(0)\n"
        "  %4 = concat f32[2*n+m] %1, %3 ints(0)\n"
        "  %5 = slice f32[2*n+m-5] %4 ints(0) dyn(5,2*n+m,1)\n"
        "  %6 = input f32[n,m,3]\n"
        "  %7 = reshape f32[3*n*m] %6 dyn(3*n*m)\n"
        "  %8 = concat f32[3*n*m+n+m] %7, %3 ints(0)\n"
        "  %9 = rand f32[n*n+m-n,5] dyn(n*n+m-n,5,4611686018427387905,7) flt(0x0p+0,0x1p+0)\n"
        "  %10 = rand f32[3*h/2*w/4+3*h/4-3*w/4,5] dyn(3*h/2*w/4+3*h/4-3*w/4,5,7,7) "
        "flt(0x0p+0,0x1p+0)\n"
        "  return %5, %8, %9, %10\n"
        "}\n";
    wf_why why = {0};
    wf_fn *f = wf_fn_parse(text, strlen(text), &why);
    cr_assert_not_null(f, "%s", why.rule);
    round_trip(f);
    char *again = wf_fn_text(f);
    cr_assert_str_eq(again, text);
    free(again);
    wf_fn_free(f);
}

Test(ir, computed_extents_round_trip)
{
    static const char text[] =
        "fn f symbols(n, 3<=rows<=40, t%6==0, 8<=u, u%4==0, v<=4092, v%1023==0) {\n"
        "  %1 = input f32[n,rows]\n"
        "  %2 = slice f32[n-1,rows] %1 ints(0) dyn(1,n,1)\n"
        "  %3 = concat f32[3*n-2,rows] %2, %2, %1 ints(0)\n"
        "  %4 = concat f32[3*n-2,2*rows] %3, %3 ints(1)\n"
        "  %5 = rand f32[2*n+3,3] dyn(2*n+3,3,4611686018427387905,5) flt(0x0p+0,0x1p+0)\n"
        "  %6 = input f32[t,u]\n"
        "  %7 = reshape f32[t/3,3,u/4,4] %6 dyn(t/3,3,u/4,4)\n"
        "  %8 = slice f32[t/3,3,u/4-1,4] %7 ints(2) dyn(1,u/4,1)\n"
        "  %9 = reshape f32[t/2,2,u/4-1,4] %8 dyn(t/2,2,u/4-1,4)\n"
        "  %10 = concat f32[3*t/2,2,u/4-1,4] %9, %9, %9 ints(0)\n"
        "  %11 = rand f32[5*t/6+7,2] dyn(5*t/6+7,2,4611686018427387905,9223372036854775807) "
        "flt(0x0p+0,0x1p+0)\n"
        "  return %4, %5, %10, %11\n"
        "}\n";
    wf_why why = {0};
    wf_fn *f = wf_fn_parse(text, strlen(text), &why);
    cr_assert_not_null(f, "%s", why.rule);
    char *again = wf_fn_text(f);
    cr_assert_str_eq(again, text);
    free(again);
    round_trip(f);
    wf_fn_free(f);
    /* the type must be what the operands give */
    static const char wrong[] = "fn f symbols(n) {\n  %1 = input f32[n]\n"
                                "  %2 = slice f32[n-2] %1 ints(0) dyn(1,n,1)\n  return %2\n}\n";
    cr_assert_null(wf_fn_parse(wrong, strlen(wrong), &why));
}
