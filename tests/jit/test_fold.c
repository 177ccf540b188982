/*
 * tests/jit/test_fold.c -- every rule of fold.def is what its class says: both sides run through the
 * reference interpreter on pairs of special values and random ones, in every element type, and on all
 * 65536 values of f16 and bf16 (fewer by WEFT_TEST_EFFORT, evenly) where there is one operand.
 *
 * A rule that never fires fails. So does a FAST rule that changes no bits: it should be EXACT.
 */
#include <criterion/criterion.h>

#include "tests/jit/graph_support.h"
#include "tests/support/effort.h"

enum { PAIRS = 1700, ALL_HALVES = 65536 };

static uint32_t fired[WF_FOLD_COUNT], changed[WF_FOLD_COUNT];
static wf_interp *oracle;

/* Runs f and what folding makes of it. Expects equal bits unless `fast`; counts rules. */
static void compare(const wf_fn *f, void *const *in, bool fast)
{
    uint32_t hits[WF_FOLD_COUNT] = {0}, k;
    wf_why why = {0};
    wf_pass_opts o = {.fast = fast, .hits = hits, .verify = true};
    wf_fn *g = NULL;
    void *want[GRAPH_ARGS], *got[GRAPH_ARGS];
    cr_assert_eq(wf_pass_run("fold", f, &o, &g, &why), 0, "%s", why.rule);
    bool any = false;
    for (int r = 0; r < WF_FOLD_COUNT; r++) {
        any |= hits[r] > 0;
    }
    if (any) {
        oracle = oracle ? oracle : wf_interp_new(wf_oracle_primitive);
        cr_assert_eq(wf_interp_run(oracle, f, NULL, (const void *const *)in, want, &why), 0, "%s",
                     why.rule);
        cr_assert_eq(wf_interp_run(oracle, g, NULL, (const void *const *)in, got, &why), 0, "%s",
                     why.rule);
        int64_t at = graph_difference(f, want, got, &k);
        char *text = at >= 0 && !fast ? wf_fn_text(f) : NULL;
        cr_expect(at < 0 || fast, "element %lld differs\n%s", (long long)at, text ? text : "");
        free(text);
        graph_free(want, f->noutputs);
        graph_free(got, f->noutputs);
        for (int r = 0; r < WF_FOLD_COUNT; r++) {
            fired[r] += hits[r];
            changed[r] += hits[r] && at >= 0;
        }
    }
    wf_fn_free(g);
}

/* -- elementwise rules ----------------------------------------------------------------------------------- */

/* The row's operands are taken from s; 0 where the row does not take their types. */
static wf_val apply(wf_fn *f, wf_op op, int dtype, const wf_val *s)
{
    wf_val dst[WF_MAX_DST], v[3] = {s[0], s[1], s[2]};
    wf_attr a = {.dtype = (uint8_t)(op == WF_OP_CAST ? dtype : 0)};
    wf_why why;
    if (wf_rows[op].kind == WF_KIND_CHOOSE) {
        wf_attr b = {.dtype = WEFT_BOOL};
        if (wf_fn_append(f, WF_OP_CAST, &b, 1, &s[2], &v[0], NULL, &why)) {
            return 0;
        }
        v[1] = s[0];
        v[2] = s[1];
    }
    return wf_fn_append(f, op, &a, wf_rows[op].min_src, v, dst, NULL, &why) ? 0 : dst[0];
}

static const double numbers[] = {1, 0, -0.0, 2};

/* How one case is put together. */
typedef struct shape {
    int dtype, mid, to; /* of operands; casts go through mid */
    int variant;        /* 0 to 3: which const; operands equal or not */
    int64_t n;
    bool halves; /* n values of two bytes, evenly over all of them */
} shape;

static wf_val side(wf_fn *f, const shape *c, int made_by, const wf_val *in, int which)
{
    if (made_by == WF_OP_INVALID) {
        return in[c->variant & 1 ? 0 : which];
    }
    if (made_by == WF_OP_CONST) {
        int kind = wf_dtype_kind(c->dtype) == 2 || c->variant == 2 ? 2 : 1;
        return wf_fn_const(f, kind, wf_slot_bits(kind, numbers[c->variant]));
    }
    wf_val s[3] = {in[which], in[1 - which], in[2]};
    return apply(f, (wf_op)made_by, c->mid, s);
}

static void check_rule(int rule, const shape *c)
{
    const wf_fold_info *r = &wf_fold_rules[rule];
    wf_fn *f = wf_fn_new("rule");
    wf_type t = {.dtype = (uint8_t)c->dtype, .rank = 1, .dims = {c->n}};
    wf_val in[3] = {wf_fn_input(f, &t), wf_fn_input(f, &t), wf_fn_input(f, &t)}, s[3];
    s[0] = side(f, c, r->left, in, 0);
    s[1] = side(f, c, r->right, in, 1);
    s[2] = in[2];
    if (wf_rows[r->op].kind == WF_KIND_CHOOSE && r->left != WF_OP_INVALID) {
        wf_val p = s[0]; /* the condition was made by left */
        s[0] = in[0];
        s[1] = in[1];
        s[2] = p;
    }
    wf_val y = s[0] && s[1] ? apply(f, (wf_op)r->op, c->to, s) : 0;
    if (y && wf_fn_output(f, y) == 0) {
        void *v[3];
        for (int i = 0; i < 3; i++) {
            v[i] = c->halves ? calloc((size_t)c->n, 2) : values_new(c->dtype, c->n, i);
            for (int64_t e = 0; c->halves && e < c->n; e++) {
                ((uint16_t *)v[i])[e] = (uint16_t)(i ? e * 40503 : e * ALL_HALVES / c->n);
            }
        }
        compare(f, v, r->class == WF_FOLD_FAST);
        for (int i = 0; i < 3; i++) {
            free(v[i]);
        }
    }
    wf_fn_free(f);
}

static bool is_structural(const wf_fold_info *r)
{
    int kind = wf_rows[r->op].kind;
    return kind == WF_KIND_VIEW || kind == WF_KIND_REDUCE || r->op == WF_OP_COPY ||
           r->op == WF_OP_UPDATE;
}

Test(fold, elementwise_rules_keep_bits)
{
    for (int rule = 0; rule < WF_FOLD_COUNT; rule++) {
        const wf_fold_info *r = &wf_fold_rules[rule];
        bool casts = r->op == WF_OP_CAST;
        for (int dt = WEFT_BOOL; dt < WEFT_DTYPE_COUNT && !is_structural(r); dt++) {
            for (int k = 0; k < (casts ? 100 : 4); k++) {
                shape c = {.dtype = dt, .variant = k % 4, .n = casts ? 300 : PAIRS};
                c.mid = casts ? WEFT_BOOL + k / 10 : dt;
                c.to = casts ? WEFT_BOOL + k % 10 : dt;
                check_rule(rule, &c);
            }
            bool one =
                wf_rows[r->op].min_src == 1 && (r->left == 0 || wf_rows[r->left].min_src == 1);
            if (one && wf_dtype_size(dt) == 2 && wf_dtype_kind(dt) == 2) {
                shape c = {.dtype = dt, .mid = WEFT_F32, .to = dt, .halves = true};
                c.n = (int64_t)effort_of(ALL_HALVES);
                check_rule(rule, &c);
            }
        }
        if (!is_structural(r)) {
            cr_expect(fired[rule] > 0, "%s never fired", r->name);
            cr_expect(r->class == WF_FOLD_EXACT || changed[rule] > 0, "%s is exact", r->name);
        }
    }
}

/* -- views and reductions ------------------------------------------------------------------------------------ */

static const char *const structural[] = {
    "%2 = reshape T[3,4] %1 dyn(3,4)\n %3 = expand T[3,4] %2 dyn(3,4)\n"
    " %4 = permute T[3,4] %3 ints(0,1)\n %5 = permute T[4,3] %4 ints(1,0)\n return %4, %5",
    "%2 = detach T[3,4] %1\n %3 = clone T[3,4] %2\n %4 = permute T[4,3] %3 ints(1,0)\n return %4",
    "%2 = reshape T[12] %1 dyn(12)\n %3 = reshape T[2,6] %2 dyn(2,6)\n"
    " %4 = reshape T[2,6] %3 dyn(2,6)\n %5 = permute T[6,2] %4 ints(1,0)\n return %5",
    "%2 = reshape T[1,3,4] %1 dyn(1,3,4)\n %3 = expand T[2,3,4] %2 dyn(2,3,4)\n"
    " %4 = expand T[5,2,3,4] %3 dyn(5,2,3,4)\n %5 = expand T[5,2,3,4] %4 dyn(5,2,3,4)\n return %5",
    "%2 = reshape T[2,2,3] %1 dyn(2,2,3)\n %3 = permute T[3,2,2] %2 ints(2,0,1)\n"
    " %4 = permute T[2,3,2] %3 ints(2,0,1)\n %5 = permute T[2,3,2] %4 ints(0,1,2)\n return %5",
    "%2 = slice T[3,4] %1 ints(1) dyn(0,4,1)\n %3 = slice T[3,4] %2 ints(0) dyn(2,-1,-1)\n"
    " %4 = slice T[1,4] %3 ints(0) dyn(2,3,1)\n %5 = slice T[1,4] %4 ints(0) dyn(0,-1,-3)\n"
    " return %3, %5",
    "%2 = as_strided T[2,6] %1 ints(2) dyn(2,6,6,1,0)\n"
    " %3 = as_strided T[6,2] %1 ints(2) dyn(6,2,1,6,0)\n return %2, %3",
    "%2 = input T[12]\n %3 = update T[3,4] %1, %2 dyn(12,1,0)\n"
    " %4 = input T[4,3]\n %5 = update T[3,4] %1, %4 dyn(4,3,1,4,0)\n return %3, %5",
    "%2 = reshape T[1,12,1] %1 dyn(1,12,1)\n %3 = max T[12] %2 ints(0,2)\n"
    " %4 = min T[1,12,1] %2 ints(2) flags(1)\n return %3, %4",
};
static void check_text(const char *body, int dtype)
{
    char text[2048], *out = text;
    out += sprintf(out, "fn f {\n %%1 = input T[3,4]\n ");
    snprintf(out, sizeof text - 64, "%s\n}\n", body);
    char full[4096], *to = full;
    for (const char *p = text; *p; p++) {
        to += *p == 'T' ? sprintf(to, "%s", wf_dtype_name(dtype)) : (*to = *p, 1);
    }
    *to = '\0';
    wf_why why = {0};
    wf_fn *f = wf_fn_parse(full, strlen(full), &why);
    cr_assert_not_null(f, "%s\n%s", why.rule, full);
    void *in[3];
    for (uint32_t k = 0; k < f->ninputs; k++) {
        in[k] = values_new(dtype, 1300, (int)k);
        memmove(in[k], (char *)in[k] + 40 * wf_dtype_size(dtype), 1200 * wf_dtype_size(dtype));
    }
    compare(f, in, false);
    graph_free(in, f->ninputs);
    wf_fn_free(f);
}

Test(fold, structural_rules_keep_bits)
{
    for (int dt = WEFT_BOOL; dt < WEFT_DTYPE_COUNT; dt++) {
        for (size_t i = 0; i < sizeof structural / sizeof *structural; i++) {
            check_text(structural[i], dt);
        }
        if (dt == WEFT_I64 || wf_dtype_kind(dt) == 2) {
            check_text("%2 = reshape T[1,12,1] %1 dyn(1,12,1)\n %3 = sum T[12] %2 ints(0,2)\n"
                       " %4 = sum T[1,12,1] %2 ints(0) flags(1)\n return %3, %4",
                       dt);
        }
    }
    for (int rule = 0; rule < WF_FOLD_COUNT; rule++) {
        if (is_structural(&wf_fold_rules[rule])) {
            cr_expect(fired[rule] > 0, "%s never fired", wf_fold_rules[rule].name);
        }
    }
}
