/*
 * tests/jit/test_plan.c -- plans run recorded functions with the bits of the calls they came from.
 */
/* ctest: threads */
#include <pthread.h>
#include <time.h>

#include "eager/pool.h"
#include "jit/plan_int.h"
#include "tests/jit/plan_support.h"
#include "tests/jit/random_fn.h"
#include "tests/support/effort.h"

Test(plan, rows_views_and_scalars)
{
    static const char *const fns[] = {
        "fn a {\n  %1 = input f32[3,5]\n  return %1\n}\n",
        "fn a {\n  %1 = input f32[3,5]\n  %2 = scalar f64\n  %3 = mul f32[3,5] %1, %2\n"
        "  %4 = input f32[5]\n  %5 = add f32[3,5] %3, %4\n  return %5, %3, %1, %5\n}\n",
        "fn a {\n  %1 = input f32[3,5]\n  %2 = permute f32[5,3] %1 ints(1, 0)\n"
        "  %3 = exp f32[5,3] %2\n  %4 = reshape f32[15] %2 dyn(15)\n  %5 = neg f32[15] %4\n"
        "  return %3, %5, %2, %4\n}\n",
        "fn a {\n  %1 = input f32[6,8]\n  %2 = slice f32[3,8] %1 ints(0) dyn(1, 6, 2)\n"
        "  %3 = slice f32[3,4] %2 ints(1) dyn(7, -1, -2)\n  %4 = gelu f32[3,4] %3\n"
        "  %5 = sum f32[3] %4 ints(1)\n  %6 = reshape f32[3,1] %5 dyn(3, 1)\n"
        "  %7 = sub f32[3,4] %3, %6\n  return %7\n}\n",
        "fn a {\n  %1 = input bf16[40,70]\n  %2 = input bf16[70]\n  %3 = mul bf16[40,70] %1, %2\n"
        "  %4 = tanh bf16[40,70] %3\n  %5 = cast f32[40,70] %4 dtype(f32)\n"
        "  %6 = softmax f32[40,70] %5 ints(1)\n  %7 = cast f16[40,70] %6 dtype(f16)\n"
        "  return %4, %7\n}\n",
        "fn a {\n  %1 = input f32[4,4]\n  %2 = diagonal f32[3] %1 ints(0, 1) dyn(-1)\n"
        "  %3 = as_strided f32[2,2] %1 ints(2) dyn(2, 2, 5, 1, 3)\n  %4 = exp f32[3] %2\n"
        "  %5 = exp f32[2,2] %3\n  %6 = update f32[4,4] %1, %5 dyn(2, 2, 4, 1, 5)\n"
        "  return %4, %5, %6\n}\n",
        "fn a {\n  %1 = input f32[2,0,3]\n  %2 = exp f32[2,0,3] %1\n  %3 = sum f32[2,3] %2 "
        "ints(1)\n"
        "  %4 = slice f32[1,0,3] %2 ints(0) dyn(1, 2, 1)\n  %5 = neg f32[1,0,3] %4\n"
        "  return %2, %3, %5\n}\n",
        "fn a {\n  %1 = input f32[]\n  %2 = input f32[7]\n  %3 = full f32[] flt(0x1p-1) "
        "dtype(f32)\n"
        "  %4 = mul f32[7] %2, %3\n  %5 = add f32[7] %4, %1\n  %6 = sin f32[] %1\n"
        "  return %5, %6, %3\n}\n",
        "fn a {\n  %1 = input i64[9]\n  %2 = input f32[3,6]\n"
        "  %3 = index_select f32[9,6] %2, %1 ints(0)\n  %4 = sort f32[9,6] %3 ints(1)\n"
        "  %5 = result i64[9,6] %4 #1\n  %6 = greater bool[9,6] %4, %3\n"
        "  %7 = where f32[9,6] %6, %4, %3\n  return %7, %5\n}\n",
    };
    for (size_t i = 0; i < sizeof fns / sizeof *fns; i++) {
        plan_check_text(fns[i]);
    }
}

/* Outputs that replace inputs: read before they are written, swapped, and updated in place. */
Test(plan, write_backs)
{
    wf_fn *f = plan_parse("fn a {\n  %1 = input f32[100]\n  %2 = input f32[100]\n"
                          "  %3 = add f32[100] %1, %2\n  %4 = exp f32[100] %3\n"
                          "  %5 = mul f32[100] %4, %1\n  return %3, %1, %5\n}\n");
    static const int32_t writes[] = {0, 1, -1};
    wf_why why = {0};
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.writes = writes}, &why);
    cr_assert_not_null(p, "%s", why.rule);
    weft_tensor a = plan_input(f, 0), b = plan_input(f, 1);
    weft_tensor sum = weft_add(a, b), prod = weft_mul(weft_exp(sum), a), old = weft_clone(a);
    wf_view in[2], out[3], want[3];
    plan_view(a, &in[0]);
    plan_view(b, &in[1]);
    plan_view(sum, &want[0]);
    plan_view(old, &want[1]);
    plan_view(prod, &want[2]);
    out[0] = in[0];
    out[1] = in[1];
    out[2].data = NULL;
    wf_plan_args args = {.fn = f, .in = in, .out = out};
    cr_assert_eq(wf_plan_run(p, &args, &why), 0, "%s", why.rule);
    for (int k = 0; k < 3; k++) {
        cr_expect_eq(plan_difference(&want[k], out[k].data), -1, "output %d", k);
    }
    wf_free(out[2].data, 400);
    wf_plan_release(p);
    wf_fn_free(f);
}

/* A step of SGD with momentum on captured tensors, and updates through views, in their own memory. */
Test(plan, updates_run_in_place)
{
    wf_fn *f = plan_parse(
        "fn a {\n  %1 = input f32[64,64]\n  %2 = input f32[64,64]\n  %3 = input f32[64,64]\n"
        "  %4 = scalar f64\n  %5 = scalar f64\n  %6 = mul f32[64,64] %2, %4\n"
        "  %7 = add f32[64,64] %6, %3\n  %8 = mul f32[64,64] %7, %5\n"
        "  %9 = sub f32[64,64] %1, %8\n  %10 = input f32[64,64]\n"
        "  %11 = slice f32[1,64] %10 ints(0) dyn(5, 6, 1)\n  %12 = exp f32[1,64] %11\n"
        "  %13 = update f32[64,64] %10, %12 dyn(1, 64, 64, 1, 320)\n"
        "  %14 = neg f32[1,64] %12\n"
        "  %15 = update f32[64,64] %13, %14 dyn(1, 64, 64, 1, 640)\n  return %7, %9, %15\n}\n");
    static const int32_t writes[] = {1, 0, 3};
    wf_why why = {0};
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.writes = writes}, &why);
    cr_assert_not_null(p, "%s", why.rule);
    wf_plan_info info;
    wf_plan_get_info(p, &info);
    cr_expect_eq(info.steps, 4, "%d steps", info.steps); /* two groups, two updates, no copies */
    cr_expect_leq(info.peak_bytes, 512, "%lld bytes", (long long)info.peak_bytes);
    weft_tensor in[4], want[3];
    wf_view iv[4], ov[3], wv[3];
    for (uint32_t k = 0; k < 4; k++) {
        in[k] = plan_input(f, k);
        plan_view(in[k], &iv[k]);
    }
    cr_assert_eq(wf_fn_run(f, in, NULL, want), 0);
    for (int k = 0; k < 3; k++) {
        plan_view(want[k], &wv[k]);
        ov[k] = iv[writes[k]];
    }
    wf_plan_args args = {.fn = f, .in = iv, .out = ov};
    wf_alloc_stats before, after;
    wf_alloc_get_stats(&before);
    cr_assert_eq(wf_plan_run(p, &args, &why), 0);
    wf_alloc_get_stats(&after);
    cr_expect_leq(after.allocs, before.allocs + 1, "one block a call");
    for (int k = 0; k < 3; k++) {
        cr_expect_eq(plan_difference(&wv[k], ov[k].data), -1, "output %d", k);
    }
    wf_plan_release(p);
    wf_fn_free(f);
}

/* A bad index is reported with its row; results are freed. */
Test(plan, data_dependent_error)
{
    wf_fn *f = plan_parse("fn a {\n  %1 = input f32[3]\n  %2 = input i64[4]\n"
                          "  %3 = index_select f32[4] %1, %2 ints(0)\n  return %3\n}\n");
    wf_why why = {0};
    wf_plan *p = wf_plan_build(f, NULL, &why);
    cr_assert_not_null(p, "%s", why.rule);
    weft_tensor x = plan_input(f, 0);
    int64_t index[4] = {0, 1, 7, 2};
    wf_view in[2] = {{0},
                     {.data = index, .dtype = WEFT_I64, .rank = 1, .dims = {4}, .strides = {1}}};
    wf_view out = {.data = NULL};
    plan_view(x, &in[0]);
    wf_alloc_stats before, after;
    wf_alloc_get_stats(&before);
    wf_plan_args args = {.fn = f, .in = in, .out = &out};
    cr_assert_eq(wf_plan_run(p, &args, &why), WEFT_EINDEX);
    cr_assert_eq(args.failed_op, WF_OP_INDEX_SELECT);
    cr_assert(strstr(why.rule, "7"), "%s", why.rule);
    cr_assert_null(out.data);
    wf_alloc_get_stats(&after);
    cr_assert_eq(before.live_bytes, after.live_bytes);
    wf_plan_release(p);
    wf_fn_free(f);
}

/* Every allocation of building and running may fail. */
Test(plan, no_memory)
{
    wf_fn *f = plan_parse("fn a {\n  %1 = input f32[300]\n  %2 = exp f32[300] %1\n"
                          "  %3 = sum f32[] %2\n  %4 = mul f32[300] %2, %3\n  return %4, %2\n}\n");
    wf_why why = {0};
    wf_plan *p = wf_plan_build(f, NULL, &why);
    weft_tensor x = plan_input(f, 0);
    wf_view in, out[2];
    plan_view(x, &in);
    for (int k = 1;; k++) {
        wf_plan_args args = {.fn = f, .in = &in, .out = out};
        out[0].data = out[1].data = NULL;
        wf_alloc_fail_after(k, 0);
        int rc = wf_plan_run(p, &args, &why);
        wf_alloc_fail_after(0, 0);
        if (rc == 0) {
            wf_free(out[0].data, 1200);
            wf_free(out[1].data, 1200);
            cr_assert(k > 2);
            break;
        }
        cr_assert_eq(rc, WEFT_ENOMEM);
        cr_assert(!out[0].data && !out[1].data);
    }
    wf_plan_release(p);
    wf_fn_free(f);
}

/* Random functions whose outputs replace inputs of their type. */
Test(plan, random_write_backs)
{
    for (uint64_t seed = 0; seed < effort_of(3000); seed++) {
        wf_fn *f = random_function_with(seed + 100000, 4 + (int)(seed % 24), true, false, seed % 2);
        int32_t writes[PLAN_ARGS];
        bool taken[PLAN_ARGS] = {false};
        weft_tensor in[PLAN_ARGS], want[PLAN_ARGS];
        wf_view iv[PLAN_ARGS], ov[PLAN_ARGS], wv[PLAN_ARGS];
        wf_why why = {0};
        weft_scope sc = weft_scope_begin();
        for (uint32_t k = 0; k < f->ninputs; k++) {
            in[k] = plan_input(f, k);
            plan_view(in[k], &iv[k]);
        }
        cr_assert_eq(wf_fn_run(f, in, NULL, want), 0);
        for (uint32_t k = 0; k < f->noutputs; k++) {
            want[k] = weft_clone(want[k]);
            plan_view(want[k], &wv[k]);
            writes[k] = -1;
            ov[k].data = NULL;
            for (uint32_t j = 0; j < f->ninputs && writes[k] < 0; j++) {
                if (!taken[j] &&
                    wf_type_same(wf_fn_type(f, f->outputs[k]), wf_fn_type(f, f->inputs[j]))) {
                    taken[j] = true;
                    writes[k] = (int32_t)j;
                    ov[k] = iv[j];
                }
            }
        }
        wf_plan *p =
            wf_plan_build(f, &(wf_plan_opts){.writes = writes, .flags = WF_PLAN_TIER0}, &why);
        cr_assert_not_null(p, "%s", why.rule);
        wf_plan_args a = {.fn = f, .in = iv, .out = ov};
        cr_assert_eq(wf_plan_run(p, &a, &why), 0, "%s", why.rule);
        for (uint32_t k = 0; k < f->noutputs; k++) {
            int64_t at = plan_difference(&wv[k], ov[k].data);
            if (at >= 0) {
                char *text = wf_fn_text(f);
                wf_plan_explain(p, stderr);
                cr_assert_fail("seed %llu: output %u (writes %d) differs at %lld\n%s",
                               (unsigned long long)seed, k, writes[k], (long long)at, text);
            }
            if (writes[k] < 0) {
                wf_free(ov[k].data, (size_t)wf_view_numel(&ov[k]) * wf_dtype_size(ov[k].dtype));
            }
        }
        wf_plan_release(p);
        wf_fn_free(f);
        weft_scope_end(sc);
    }
}

/* One plan runs recordings whose scalars, fills, eps and slice starts differ. */
Test(plan, slots_come_from_each_recording)
{
    static const char text[] =
        "fn a {\n  %%1 = input f32[8,16]\n  %%2 = scalar f64 %a\n  %%3 = scalar i64 %d\n"
        "  %%4 = mul f32[8,16] %%1, %%2\n  %%5 = add f32[8,16] %%4, %%3\n"
        "  %%6 = slice f32[3,16] %%5 ints(0) dyn(%d, %d, 2)\n"
        "  %%7 = slice f32[3,16] %%1 ints(0) dyn(%d, %d, 1)\n"
        "  %%8 = full f32[16] dyn(16) flt(%a) dtype(f32)\n  %%9 = mul f32[3,16] %%7, %%8\n"
        "  %%10 = add f32[3,16] %%6, %%9\n"
        "  %%11 = layer_norm f32[3,16] %%10, _, _ ints(1) flt(%a)\n"
        "  %%12 = result f32[3] %%11 #1\n  %%13 = result f32[3] %%11 #2\n  return %%11, %%9\n}\n";
    wf_plan *p = NULL;
    wf_why why = {0};
    for (int i = 0; i < 3; i++) {
        char buf[2000];
        snprintf(buf, sizeof buf, text, 0.5 + i, 3 - i, i, i + 6 - (i == 2), i * 2, i * 2 + 3,
                 1.5 - i, 1e-3 * (i + 1));
        wf_fn *f = plan_parse(buf);
        weft_tensor x = plan_input(f, 0), want[2];
        wf_view in, out[2] = {{0}, {0}}, wv;
        plan_view(x, &in);
        cr_assert_eq(wf_fn_run(f, &x, NULL, want), 0);
        p = p ? p : wf_plan_build(f, NULL, &why);
        cr_assert_not_null(p, "%s", why.rule);
        wf_plan_args a = {.fn = f, .in = &in, .out = out};
        cr_assert_eq(wf_plan_run(p, &a, &why), 0, "%s", why.rule);
        for (int k = 0; k < 2; k++) {
            plan_view(want[k], &wv);
            cr_expect_eq(plan_difference(&wv, out[k].data), -1, "recording %d, output %d", i, k);
            wf_free(out[k].data, 3 * 16 * 4);
        }
        wf_fn_free(f);
    }
    wf_plan_release(p);
}

/* -- several threads, and the choice between two ways ------------------------------------------------------ */

typedef struct shared_plan {
    wf_plan *p;
    const wf_fn *f;
    const wf_view *in, *want;
    int bad;
} shared_plan;

static void *run_shared(void *arg)
{
    shared_plan *s = arg;
    for (int i = 0; i < 24; i++) { /* long enough for the trials to end */
        wf_view out[2] = {{.data = NULL}, {.data = NULL}};
        wf_plan_args a = {.fn = s->f, .in = s->in, .out = out};
        wf_why why;
        if (wf_plan_run(s->p, &a, &why)) {
            s->bad++;
            continue;
        }
        for (int k = 0; k < 2; k++) {
            s->bad += plan_difference(&s->want[k], out[k].data) >= 0;
            wf_free(out[k].data, (size_t)wf_view_numel(&out[k]) * 4);
        }
    }
    return NULL;
}

/* Where one thread does all, what others do with its processor does not decide. */
Test(plan, a_choice_counts_the_time_of_one_thread)
{
    enum { AWAY = 30 /* ms */ };
    const int before = wf_num_threads();
    for (int threads = 1; threads <= 2; threads++) {
        for (int device = 0; device < 2; device++) {
            weft_set_num_threads(threads);
            const int64_t start = wf_plan_choice_clock(device);
            nanosleep(&(struct timespec){.tv_nsec = AWAY * 1000000}, NULL);
            const int64_t ms = (wf_plan_choice_clock(device) - start) / 1000000;
            cr_expect(threads == 1 && !device ? ms < AWAY : ms >= AWAY, "%d threads: %lld ms",
                      threads, (long long)ms);
        }
    }
    weft_set_num_threads(before);
}

Test(plan, threads_share_a_plan_while_it_chooses)
{
    wf_fn *f = plan_parse(
        "fn a {\n  %1 = input f32[60,90]\n  %2 = input f32[90]\n  %3 = add f32[60,90] %1, %2\n"
        "  %4 = softmax f32[60,90] %3 ints(1)\n  %5 = mul f32[60,90] %4, %1\n"
        "  %6 = sum f32[60] %5 ints(1) dtype(f32)\n  return %5, %6\n}\n");
    wf_why why;
    weft_tensor in[2], want[2];
    wf_view iv[2], wv[2];
    for (uint32_t k = 0; k < 2; k++) {
        in[k] = plan_input(f, k);
        plan_view(in[k], &iv[k]);
    }
    cr_assert_eq(wf_fn_run(f, in, NULL, want), 0);
    plan_view(want[0], &wv[0]);
    plan_view(want[1], &wv[1]);
    shared_plan s[4];
    pthread_t t[4];
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_TIER0}, &why);
    cr_assert_not_null(p);
    for (int i = 0; i < 4; i++) {
        s[i] = (shared_plan){p, f, iv, wv, 0};
        cr_assert_eq(pthread_create(&t[i], NULL, run_shared, &s[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        cr_expect_eq(s[i].bad, 0);
    }
    cr_expect_neq(atomic_load(&p->choice), WF_CHOICE_TRIAL, "no way was chosen");
    wf_plan_release(p);
    wf_fn_free(f);
}
