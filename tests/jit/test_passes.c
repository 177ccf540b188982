/*
 * tests/jit/test_passes.c -- passes on graph IR: text in, text out; the driver's controls; what is
 * merged and what must stay apart; planted faults.
 */
#include <criterion/criterion.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "jit/passes/cut.h"
#include "jit/passes/oracle.h"
#include "jit/passes/pass.h"

static wf_fn *parse(const char *text)
{
    wf_why why = {0};
    wf_fn *f = wf_fn_parse(text, strlen(text), &why);
    cr_assert_not_null(f, "%s\n%s", why.rule, text);
    return f;
}

static char *read_file(const char *path)
{
    FILE *in = fopen(path, "r");
    char *text = calloc(1, 1 << 16);
    cr_assert(in && text, "%s", path);
    size_t n = fread(text, 1, (1 << 16) - 1, in);
    cr_assert(n > 0 && n < (1 << 16) - 1);
    fclose(in);
    return text;
}

static char *run(const wf_fn *f, const wf_pass_opts *o)
{
    wf_why why = {0};
    wf_fn *g = NULL;
    cr_assert_eq(wf_pass_all(f, o, &g, &why), 0, "%s", why.rule);
    char *text = wf_fn_text(g);
    wf_fn_free(g);
    return text;
}

/* The same files as weft-opt --golden; weft-opt --golden --fix rewrites them. */
static void check_golden(const char *path)
{
    char *text = read_file(path), *line = strchr(text, '\n'), *cut = strstr(text, "\n----\n");
    cr_assert(strncmp(text, "passes: ", 8) == 0 && line && cut, "%s", path);
    *line = '\0';
    *cut = '\0';
    char *plus = strstr(text, "+fast");
    wf_pass_opts o = {.only = text + 8, .verify = true, .fast = plus != NULL};
    if (plus) {
        *plus = '\0';
    }
    wf_fn *f = parse(line + 1);
    char *got = run(f, &o);
    cr_expect_str_eq(got, cut + 6, "%s:\n%s", path, got);
    wf_fn *again = parse(got); /* the form is stable */
    char *twice = run(again, &o);
    cr_expect_str_eq(twice, got, "%s is not stable:\n%s", path, twice);
    free(twice);
    wf_fn_free(again);
    free(got);
    wf_fn_free(f);
    free(text);
}

/* Cuts of random graphs cost what the cheapest of all divisions does. */
Test(passes, cuts_are_least)
{
    enum { NODES = 8, EDGES = 24, GRAPHS = 300 };
    uint64_t seed = 1;
    for (int g = 0; g < GRAPHS; g++) {
        wf_cut c;
        int64_t capacity[EDGES], least = INT64_MAX;
        uint32_t from[EDGES], to[EDGES];
        wf_cut_init(&c);
        for (int n = 2; n < NODES; n++) {
            wf_cut_node(&c);
        }
        for (int e = 0; e < EDGES; e++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            from[e] = (uint32_t)(seed >> 40) % NODES;
            to[e] = (uint32_t)(seed >> 50) % NODES;
            capacity[e] = (int64_t)(seed >> 33) % 10;
            wf_cut_join(&c, from[e], to[e], capacity[e]);
        }
        cr_assert_eq(wf_cut_run(&c), 0);
        for (unsigned side = 0; side < 1u << NODES; side++) {
            int64_t cost = 0;
            for (int e = 0; e < EDGES; e++) {
                cost += (side >> from[e] & 1) == 0 && (side >> to[e] & 1) ? capacity[e] : 0;
            }
            const bool divides = !(side >> WF_CUT_SOURCE & 1) && side >> WF_CUT_SINK & 1;
            least = divides && cost < least ? cost : least;
        }
        cr_assert(!c.side[WF_CUT_SOURCE] && c.side[WF_CUT_SINK]);
        cr_assert_eq(wf_cut_cost(&c), least, "graph %d", g);
        wf_cut_free(&c);
    }
}

Test(passes, text_in_text_out)
{
    glob_t g;
    cr_assert_eq(glob(WEFT_SOURCE_DIR "/tests/jit/ir/*.wir", 0, NULL, &g), 0);
    cr_assert_geq(g.gl_pathc, 7);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        check_golden(g.gl_pathv[i]);
    }
    globfree(&g);
}

static const char chain[] = "fn chain {\n"
                            "  %1 = input f32[4]\n"
                            "  %2 = neg f32[4] %1\n"
                            "  %3 = neg f32[4] %2\n"
                            "  %4 = exp f32[4] %3\n"
                            "  %5 = exp f32[4] %1\n"
                            "  %6 = add f32[4] %4, %5\n"
                            "  return %6\n"
                            "}\n";

Test(passes, bisection_stops_after_the_nth_rewrite)
{
    wf_fn *f = parse(chain);
    static const uint32_t sizes[] = {6, 5, 4, 3, 3};
    for (int64_t n = 0; n < 5; n++) { /* rewrites: neg of neg, merge of exp, then a dead neg */
        wf_pass_opts o = {.bisect = n + 1, .verify = true};
        wf_why why;
        wf_fn *g;
        cr_assert_eq(wf_pass_all(f, &o, &g, &why), 0);
        cr_expect_eq(g->n, sizes[n], "%d: %u", (int)n, g->n);
        wf_fn_free(g);
    }
    wf_fn_free(f);
}

/* A rule that is wrong (a FAST one, asked for) is named by the smallest number of rewrites that shows it. */
Test(passes, bisection_names_the_rewrite_that_changes_bits)
{
    wf_fn *f = parse("fn f {\n"
                     "  %1 = input f32[4]\n"
                     "  %2 = input f32[4]\n"
                     "  %3 = neg f32[4] %1\n"
                     "  %4 = neg f32[4] %3\n"
                     "  %5 = relu f32[4] %4\n"
                     "  %6 = relu f32[4] %5\n"
                     "  %7 = sub f32[4] %1, %2\n"
                     "  %8 = neg f32[4] %7\n"
                     "  %9 = abs f32[4] %6\n"
                     "  %10 = abs f32[4] %9\n"
                     "  %11 = div f32[4] %10, %8\n"
                     "  return %11\n"
                     "}\n");
    float a[4] = {1, 2, 3, 4}, b[4] = {1, 5, 3, 2};
    void *in[2] = {a, b}, *want[1], *got[1];
    wf_interp *m = wf_interp_new(NULL);
    wf_why why;
    cr_assert_eq(wf_interp_run(m, f, NULL, (const void *const *)in, want, &why), 0);
    int culprit = -1;
    for (int64_t n = 0; n < 9 && culprit < 0; n++) {
        uint32_t hits[2][WF_FOLD_COUNT] = {{0}};
        for (int k = 0; k < 2; k++) { /* n - 1 rewrites, and n */
            wf_fn *g;
            wf_pass_opts o = {.bisect = n + k, .fast = true, .hits = hits[k]};
            cr_assert_eq(wf_pass_all(f, &o, &g, &why), 0);
            cr_assert_eq(wf_interp_run(m, g, NULL, (const void *const *)in, got, &why), 0);
            bool differs = wf_oracle_difference(wf_fn_type(f, f->outputs[0]), want[0], got[0]) >= 0;
            for (int r = 0; k == 1 && n > 0 && differs && r < WF_FOLD_COUNT; r++) {
                culprit = hits[1][r] > hits[0][r] ? r : culprit;
            }
            free(got[0]);
            wf_fn_free(g);
        }
    }
    cr_expect_eq(culprit, WF_FOLD_NEG_SUB);
    free(want[0]);
    wf_interp_free(m);
    wf_fn_free(f);
}

Test(passes, toggles_lists_and_mistakes)
{
    wf_fn *f = parse(chain), *g;
    wf_why why = {0};
    wf_pass_stat stats[WF_PASS_COUNT] = {0};
    uint32_t hits[WF_FOLD_COUNT] = {0};
    wf_pass_opts o = {.toggles = "-fold,+order", .stats = stats, .hits = hits};
    cr_assert_eq(wf_pass_all(f, &o, &g, &why), 0);
    cr_expect_eq(g->n, 6);
    wf_fn_free(g);
    cr_expect_eq(stats[WF_PASS_fold].runs, 0);
    cr_expect_eq(stats[WF_PASS_dce].runs, 1);
    cr_expect_eq(stats[WF_PASS_order].runs, 1);
    cr_assert_eq(wf_pass_run("fold", f, &o, &g, &why), 0);
    wf_fn_free(g);
    cr_expect_eq(hits[WF_FOLD_NEG_NEG], 1);
    cr_expect_eq(stats[WF_PASS_fold].rewrites, 2);
    cr_expect_eq(stats[WF_PASS_fold].before, 6);
    cr_expect_eq(stats[WF_PASS_fold].after, 4);
    o = (wf_pass_opts){.toggles = "-nothing"};
    cr_expect_eq(wf_pass_all(f, &o, &g, &why), WEFT_EINVALID);
    cr_expect(strstr(why.rule, "-nothing"), "%s", why.rule);
    o = (wf_pass_opts){.only = "fold,frob"};
    cr_expect_eq(wf_pass_all(f, &o, &g, &why), WEFT_EINVALID);
    cr_expect_eq(wf_pass_run("frob", f, NULL, &g, &why), WEFT_EINVALID);
    o = (wf_pass_opts){.only = ""};
    cr_assert_eq(wf_pass_all(f, &o, &g, &why), 0);
    cr_expect(wf_fn_equal(f, g));
    wf_fn_free(g);
    wf_fn_free(f);
}

/* Instructions know where they come from, through any number of passes. */
Test(passes, origin_leads_to_the_recorded_slots)
{
    wf_fn *f = parse("fn f {\n"
                     "  %1 = scalar f64 0x1p+0\n"
                     "  %2 = input f32[8]\n"
                     "  %3 = scalar f64 0x1p+1\n"
                     "  %4 = detach f32[8] %2\n"
                     "  %5 = mul f32[8] %4, %3\n"
                     "  %6 = slice f32[3] %5 ints(0) dyn(2,5,1)\n"
                     "  %7 = layer_norm f32[3] %6, _, _ ints(1) flt(0x1p-10)\n"
                     "  %8 = result f32[] %7 #1\n"
                     "  %9 = result f32[] %7 #2\n"
                     "  return %7, %9\n"
                     "}\n");
    wf_pass_opts o = {.toggles = "+order", .verify = true};
    wf_fn *g;
    wf_why why;
    cr_assert_eq(wf_pass_all(f, &o, &g, &why), 0);
    cr_assert_eq(g->n, 7);
    int seen = 0;
    for (uint32_t k = 0; k < g->n; k++) {
        const wf_ins *i = &g->ins[k], *from = wf_fn_at(f, wf_fn_origin(g, k + 1));
        cr_expect_eq(i->op, from->op);
        if (i->op == WF_OP_SCALAR) {
            cr_expect_eq(g->slots[i->attr], f->slots[from->attr]);
            seen++;
        }
        if (i->op == WF_OP_SLICE || i->op == WF_OP_LAYER_NORM) {
            cr_expect_eq(wf_attr_now(g, k, f), wf_ins_attr(f, from));
            seen++;
        }
    }
    cr_expect_eq(seen, 3);
    wf_fn_free(g);
    wf_fn_free(f);
}

Test(passes, two_rules_never_have_one_key)
{
    for (int i = 0; i < WF_FOLD_COUNT; i++) {
        const wf_fold_info *a = &wf_fold_rules[i];
        cr_expect(strlen(a->law) > 5 && a->op > WF_OP_RESULT);
        for (int k = 0; k < i; k++) {
            const wf_fold_info *b = &wf_fold_rules[k];
            cr_expect(a->op != b->op || a->left != b->left || a->right != b->right, "%s and %s",
                      a->name, b->name);
        }
    }
}

/* n instructions in a chain, pairs of which are equal. */
static wf_fn *long_chain(uint32_t n)
{
    wf_fn *f = wf_fn_new("long");
    wf_type t = {.dtype = WEFT_F32, .rank = 2, .dims = {8, 8}};
    wf_val x = wf_fn_input(f, &t), y[2];
    wf_why why;
    while (f->n < n) {
        wf_val ab[2] = {x, x};
        cr_assert_eq(wf_fn_append(f, WF_OP_TANH, NULL, 1, &x, &y[0], NULL, &why), 0);
        cr_assert_eq(wf_fn_append(f, WF_OP_TANH, NULL, 1, &x, &y[1], NULL, &why), 0);
        ab[0] = y[1];
        ab[1] = y[0];
        cr_assert_eq(wf_fn_append(f, WF_OP_ADD, NULL, 2, ab, &x, NULL, &why), 0);
    }
    wf_fn_output(f, x);
    return f;
}

Test(passes, long_functions_are_folded)
{
    wf_fn *f = long_chain(100000), *g;
    wf_why why;
    wf_pass_opts o = {.toggles = "+order"};
    cr_assert_eq(wf_pass_all(f, &o, &g, &why), 0);
    cr_expect_eq(g->n, 1 + (f->n - 1) / 3 * 2);
    wf_fn_free(g);
    wf_fn_free(f);
}

/* -- what a pass makes wrongly ------------------------------------------------------------------------------------- */

static int harm; /* which */

static void plant(int pass, wf_fn *f)
{
    wf_ins *last = &f->ins[f->n - 1];
    if (pass != WF_PASS_fold) {
        return;
    }
    switch (harm) {
    case 0: /* an operand that does not exist yet */
        last->src[0] = f->n;
        break;
    case 1: /* of another type than inference gives */
        f->types[last->type].dims[0]++;
        break;
    case 2: /* another row */
        last->op = WF_OP_MATMUL;
        break;
    case 3: /* a result that is no value */
        f->outputs[0] = f->n + 1;
        break;
    case 4: /* too few operands */
        last->nsrc = 1;
        break;
    case 5: /* a result is gone */
        f->noutputs--;
        break;
    default:
        break;
    }
}

Test(passes, a_harmed_function_is_refused_with_the_name_of_its_pass)
{
    enum { HARMS = 6 };
    for (harm = 0; harm <= HARMS; harm++) {
        wf_fn *f = parse(chain), *g = NULL;
        wf_why why = {0};
        wf_pass_opts o = {.verify = true, .spoil = plant};
        const int rc = wf_pass_all(f, &o, &g, &why);
        cr_expect_eq(rc != 0, harm < HARMS, "harm %d", harm);
        cr_expect(rc == 0 || (g == NULL && strstr(why.rule, "pass fold")), "harm %d: %s", harm,
                  why.rule);
        wf_fn_free(g);
        wf_fn_free(f);
    }
}
