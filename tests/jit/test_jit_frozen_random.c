/*
 * tests/jit/test_jit_frozen_random.c -- frozen calls that draw random numbers: a replay draws what the function would have
 * drawn from the generators as they are then, and moves them as far. Beside each traced function runs the function itself,
 * on equal generators: results and generators agree in every bit, whatever the caller does to the generators between calls.
 *
 * ctest: threads
 */
#include <pthread.h>

#include "tests/gpu/equal.h"
#include "tests/jit/corner_support.h"
#include "tests/support/device_double.h"
#include "weft/weft.h"

enum { ROWS = 65, IN = 33, OUT = 7 };

static void check_generators(const char *what, const weft_generator *a, const weft_generator *b)
{
    cr_assert_eq(a->seed, b->seed, "%s: seed", what);
    cr_assert_eq(a->offset, b->offset, "%s: offset %llu, not %llu", what,
                 (unsigned long long)b->offset, (unsigned long long)a->offset);
}

/* -- training steps ---------------------------------------------------------------------------------------------- */

typedef struct model {
    weft_generator rng; /* the module's */
    weft_module *m;
    weft_nn_linear fc1, fc2;
    weft_nn_dropout drop;
    weft_optim *optim;
    int runs;
} model;

static void model_open(model *k)
{
    *k = (model){.rng = {5, 0}};
    k->m = weft_module_new(&k->rng);
    weft_nn_linear_init(&k->fc1, k->m, "fc1", IN, 70);
    weft_nn_dropout_init(&k->drop, k->m, 0.3);
    weft_nn_linear_init(&k->fc2, k->m, "fc2", 70, OUT);
    OK(weft_module_status(k->m));
    k->optim = weft_adamw_new(k->m, 0.05, .weight_decay = 0.1);
}

static void model_close(model *k)
{
    weft_optim_free(k->optim);
    weft_module_free(k->m);
}

FN(train)
{
    model *k = self;
    k->runs++;
    weft_tensor x = weft_add(
        in[0], weft_mul(weft_randn(weft_shape(ROWS, IN), .generator = &k->rng), weft_f(0.01)));
    weft_tensor h =
        weft_nn_dropout_forward(&k->drop, weft_relu(weft_nn_linear_forward(&k->fc1, x)));
    weft_tensor loss =
        weft_cross_entropy(weft_nn_linear_forward(&k->fc2, h),
                           weft_randint(weft_shape(ROWS), 0, OUT, .generator = &k->rng));
    out[0] = weft_detach(loss);
    weft_status s = weft_module_zero_grad(k->m);
    s = s ? s : weft_requires_grad(loss) ? weft_backward(loss) : WEFT_OK;
    return s ? s : weft_has_grad(k->fc1.weight) ? weft_optim_step(k->optim) : WEFT_OK;
}

static void check_models(model *a, model *b)
{
    for (int i = 0; i < weft_module_count(a->m); i++) {
        const char *name = weft_module_at(a->m, i).name;
        weft_tensor x = weft_module_at(a->m, i).tensor, y = weft_module_at(b->m, i).tensor;
        check_equal(name, x, y);
        cr_assert_eq(weft_has_grad(x), weft_has_grad(y), "%s", name);
        if (weft_has_grad(x)) {
            check_equal(name, weft_grad(x), weft_grad(y));
        }
    }
    check_generators("the module's", &a->rng, &b->rng);
}

/* What the caller does to a generator before call i. */
static void disturb(weft_generator *g, int i)
{
    static weft_generator saved;
    saved = i == 4 ? *g : saved;
    if (i == 6) {
        *g = (weft_generator){17, 3}; /* seeds */
    } else if (i == 8) {
        *g = saved; /* restores */
    } else if (i == 9) {
        g->offset = UINT64_MAX - 5; /* the stream begins anew */
    } else if (i % 3 == 1) {
        weft_free(weft_keep(weft_rand(weft_shape(37), .generator = g)));
    }
}

Test(frozen_random, training_steps_at_every_number_of_threads)
{
    static const int threads[] = {1, 2, 3, 7};
    for (int n = 0; n < 4; n++) {
        model a, b;
        model_open(&a);
        model_open(&b);
        weft_jit *j = weft_jit_trace(train, &b, .frozen = true, .verify_every = n == 3 ? 4 : -1);
        for (int i = 0; i < 14; i++) {
            weft_scope sc = weft_scope_begin();
            weft_generator of_a = a.rng, of_b = b.rng;
            disturb(&of_a, i);
            disturb(&of_b, i);
            a.rng = b.rng = of_a;
            weft_tensor x = weft_randn(weft_shape(ROWS, IN)), want, got;
            OK(weft_set_num_threads(1));
            OK(train(&a, &x, 1, &want, 1));
            OK(weft_set_num_threads(threads[n]));
            OK(weft_jit_call(j, &x, 1, &got, 1));
            check_bits("loss", want, got);
            check_models(&a, &b);
            weft_scope_end(sc);
        }
        const weft_jit_stats s = stats_of(j);
        cr_assert_eq(s.thawed, 0, "%s", reasons(j));
        cr_assert_eq(b.runs + (int)s.frozen, 14);
        cr_assert_geq(s.frozen, n == 3 ? 8 : 11, "%s", reasons(j));
        weft_jit_free(j);
        model_close(&a);
        model_close(&b);
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
    cr_assert_eq(weft_tape_nodes(), 0);
}

/* Modes of modules are state that guards see: dropout draws while its module trains. */
Test(frozen_random, training_and_evaluation_are_replayed_each)
{
    model a, b;
    model_open(&a);
    model_open(&b);
    weft_jit *j = weft_jit_trace(train, &b, .frozen = true, .verify_every = -1);
    for (int i = 0; i < 24; i++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor x = weft_randn(weft_shape(ROWS, IN)), want, got;
        weft_module_train(a.m, i / 4 % 2 == 0);
        weft_module_train(b.m, i / 4 % 2 == 0);
        if (i % 8 == 7) {
            weft_no_grad_begin();
        }
        OK(train(&a, &x, 1, &want, 1));
        OK(weft_jit_call(j, &x, 1, &got, 1));
        if (i % 8 == 7) {
            weft_no_grad_end();
        }
        check_bits("loss", want, got);
        check_models(&a, &b);
        weft_scope_end(sc);
    }
    cr_assert(has_reason(j, "switched between training and evaluation"), "%s", reasons(j));
    cr_assert_geq(stats_of(j).frozen, 10, "%s", reasons(j));
    weft_jit_free(j);
    model_close(&a);
    model_close(&b);
}

/* -- every row, several generators ------------------------------------------------------------------------------- */

typedef struct drawer {
    weft_generator g, h;
    bool conditional, fails;
} drawer;

/* Own and given generators in turns; a draw of nothing; some fused into what reads them, one seen as it is. */
FN(draws)
{
    drawer *d = self;
    const weft_shape n = weft_shape(5, 13);
    weft_tensor x = weft_add(in[0], weft_rand(n, .low = -1, .high = 2, .generator = &d->g));
    x = weft_mul(x, weft_bernoulli(n, 0.4, WEFT_F32));
    x = weft_add(x, weft_randn(n, WEFT_F64, .generator = &d->h));
    x = weft_add(x, weft_randn(n, WEFT_F16, .mean = 2, .generator = &d->g));
    if (!d->conditional || weft_is_grad_enabled()) {
        x = weft_add(x, weft_rand(n, WEFT_F64));
    }
    (void)weft_rand(weft_shape(0, 3), .generator = &d->h);
    weft_tensor all = weft_randint(weft_shape(13), d->fails ? 0 : -9, 14, .generator = &d->h);
    if (d->fails) { /* most of the time: there are 13 */
        x = weft_add(x, weft_index_select(in[0], 1, all));
    }
    out[0] = x;
    out[1] = weft_randperm(13, .generator = &d->g);
    out[2] = all;
    return WEFT_OK;
}

static void draw_both(weft_jit *j, drawer *a, drawer *b, int i)
{
    weft_scope sc = weft_scope_begin();
    weft_generator *own = weft_default_generator(), before, after;
    weft_tensor x = weft_reshape(vector(65, i), weft_shape(5, 13)), want[3], got[3];
    disturb(own, i);
    disturb(&a->g, i + 1);
    b->g = a->g;
    before = *own;
    OK(draws(a, &x, 1, want, 3));
    after = *own;
    *own = before;
    OK(weft_jit_call(j, &x, 1, got, 3));
    check_generators("the thread's", &after, own);
    check_generators("g", &a->g, &b->g);
    check_generators("h", &a->h, &b->h);
    for (int k = 0; k < 3; k++) {
        check_bits("drawn", want[k], got[k]);
    }
    weft_scope_end(sc);
}

Test(frozen_random, several_generators)
{
    for (int conditional = 0; conditional < 2; conditional++) {
        drawer a = {{1, 0}, {1, 0}, conditional, false},
               b = a; /* equal states, not one generator */
        weft_jit *j = weft_jit_trace(draws, &b, .frozen = true, .verify_every = -1);
        for (int i = 0; i < 20; i++) {
            if (i / 3 % 2) {
                weft_no_grad_begin();
            }
            draw_both(j, &a, &b, i);
            if (i / 3 % 2) {
                weft_no_grad_end();
            }
        }
        cr_assert_geq(stats_of(j).frozen, 14, "%s", reasons(j));
        weft_jit_free(j);
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* -- what cannot be replayed --------------------------------------------------------------------------------------- */

enum { SEEDS, SETS, SETS_BETWEEN, SETS_AFTER, SETS_OWN, LOCAL, MANY, SWITCHES };
typedef struct culprit {
    int what;
    weft_generator g, many[9];
    weft_module *m;
    int runs;
} culprit;

FN(misdraws)
{
    culprit *k = self;
    weft_generator local = {3, 0};
    weft_tensor x = in[0];
    k->runs++;
    if (k->what == SEEDS) {
        weft_manual_seed(7);
    } else if (k->what == SETS) {
        k->g.offset = 100;
    } else if (k->what == SETS_OWN) { /* and does not draw from it */
        weft_default_generator()->offset += 3;
    } else if (k->what == SWITCHES) {
        weft_module_train(k->m, k->runs % 2);
    }
    for (int i = 0; i < 9 && k->what == MANY; i++) {
        x = weft_add(x, weft_rand(weft_shape(4), .generator = &k->many[i]));
    }
    x = weft_add(x, weft_rand(weft_shape(4), .generator = k->what == SEEDS   ? NULL
                                                          : k->what == LOCAL ? &local
                                                                             : &k->g));
    if (k->what == SETS_BETWEEN) {
        k->g.seed++;
        x = weft_add(x, weft_rand(weft_shape(4), .generator = &k->g));
    }
    k->g.offset += k->what == SETS_AFTER;
    out[0] = x;
    return WEFT_OK;
}

Test(frozen_random, refusals_have_reasons)
{
    static const char *const says[] = {
        "it seeds the thread's generator",
        "it sets a generator that it draws from",
        "it sets a generator that it draws from",
        "it sets a generator that it draws from",
        "it sets the thread's generator",
        "it draws from a generator that ends with it",
        "it draws from too many generators",
        "it switches a module between training and evaluation",
    };
    for (int what = SEEDS; what <= SWITCHES; what++) {
        culprit a = {.what = what, .g = {9, 0}}, b = a;
        a.m = weft_module_new(NULL);
        b.m = weft_module_new(NULL);
        weft_tensor x = vector(4, 0), want, got;
        weft_jit *j = weft_jit_trace(misdraws, &b, .frozen = true);
        for (int i = 0; i < 6; i++) {
            a.g.offset = b.g.offset += 5; /* drawn from between calls */
            OK(misdraws(&a, &x, 1, &want, 1));
            OK(weft_jit_call(j, &x, 1, &got, 1));
            check_bits("drawn", want, got);
            check_generators("g", &a.g, &b.g);
        }
        cr_assert_eq(stats_of(j).frozen, 0, "case %d", what);
        cr_assert(has_reason(j, says[what]), "case %d: %s", what, reasons(j));
        weft_jit_free(j);
        weft_module_free(a.m);
        weft_module_free(b.m);
    }
}

/* Draws from as many generators as its argument is long, the last ones. */
FN(draws_from_many)
{
    culprit *k = self;
    const int n = (int)weft_numel(in[0]);
    out[0] = in[0];
    for (int i = 0; i < n; i++) {
        out[0] =
            weft_add(out[0], weft_rand(weft_shape(n), .generator = &k->many[n == 5 ? i : 8 - i]));
    }
    return WEFT_OK;
}

/* Those of a call that waits leave room for those of the call that is verified. */
Test(frozen_random, generators_of_a_call_that_waits)
{
    culprit b = {.what = MANY};
    weft_tensor x = vector(5, 0), y = vector(4, 0), got;
    weft_jit *j = weft_jit_trace(draws_from_many, &b, .frozen = true, .always_record = true,
                                 .verify_every = 4);
    for (int i = 0; i < 12; i++) {
        OK(weft_jit_call(j, i == 3 ? &y : &x, 1, &got, 1));
    }
    cr_assert_eq(stats_of(j).verified, 2);
    cr_assert_eq(stats_of(j).thawed, 0, "%s", reasons(j));
    weft_jit_free(j);
}

/* A kernel that fails: the generators are where they would be. */
Test(frozen_random, a_kernel_that_fails)
{
    drawer a = {{1, 0}, {2, 0}, false, true}, b = a;
    weft_jit *j = weft_jit_trace(draws, &b, .frozen = true, .verify_every = -1);
    int failed = 0;
    for (int i = 0; i < 80; i++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor x = weft_reshape(vector(65, 0), weft_shape(5, 13)), want[3], got[3];
        weft_manual_seed((uint64_t)i);
        OK(draws(&a, &x, 1, want, 3));
        const weft_generator after = *weft_default_generator();
        const int64_t replayed = stats_of(j).frozen;
        weft_manual_seed((uint64_t)i);
        const weft_status s = weft_jit_call(j, &x, 1, got, 3);
        cr_assert_eq(s == WEFT_OK, weft_ok(want[0]));
        check_generators("the thread's", &after, weft_default_generator());
        check_generators("g", &a.g, &b.g);
        check_generators("h", &a.h, &b.h);
        if (s == WEFT_OK) {
            check_bits("drawn", want[0], got[0]);
        } else {
            failed += stats_of(j).frozen > replayed;
        }
        weft_scope_end(sc);
    }
    cr_assert_gt(failed, 3, "%s", reasons(j));
    cr_assert_gt(stats_of(j).frozen, failed, "%s", reasons(j));
    weft_jit_free(j);
}

/* -- threads ------------------------------------------------------------------------------------------------------- */

typedef struct caller {
    weft_jit *j;
    weft_generator *named;
    uint64_t seed;
    int64_t replayed;
} caller;

FN(draws_own)
{
    const caller *k = self;
    out[0] = weft_add(in[0], weft_randn(weft_shape(6), .generator = k->named));
    return WEFT_OK;
}

static void call_own(caller *k)
{
    weft_tensor x = vector(6, 1), want, got;
    for (int i = 0; i < 30; i++) {
        weft_scope sc = weft_scope_begin();
        caller plain = {.named = NULL};
        weft_manual_seed(k->seed + (uint64_t)i / 7);
        weft_default_generator()->offset = (uint64_t)i;
        const weft_generator before = *weft_default_generator();
        OK(draws_own(&plain, &x, 1, &want, 1));
        const weft_generator after = *weft_default_generator();
        *weft_default_generator() = before;
        OK(weft_jit_call(k->j, &x, 1, &got, 1));
        check_bits("drawn", want, got);
        check_generators("the thread's", &after, weft_default_generator());
        weft_scope_end(sc);
    }
}

static void *call_in_thread(void *arg)
{
    call_own(arg);
    return NULL;
}

/* Each thread draws from its own generator. */
Test(frozen_random, threads_draw_from_their_own)
{
    caller none = {.named = NULL};
    weft_jit *j = weft_jit_trace(draws_own, &none, .frozen = true, .verify_every = 10);
    caller each[3] = {{.j = j, .seed = 1}, {.j = j, .seed = 100}, {.j = j, .seed = 1000}};
    pthread_t thread[2];
    cr_assert_eq(pthread_create(&thread[0], NULL, call_in_thread, &each[0]), 0);
    cr_assert_eq(pthread_create(&thread[1], NULL, call_in_thread, &each[1]), 0);
    call_own(&each[2]);
    pthread_join(thread[0], NULL);
    pthread_join(thread[1], NULL);
    cr_assert_gt(stats_of(j).frozen, 40, "%s", reasons(j));
    cr_assert_eq(stats_of(j).thawed, 0, "%s", reasons(j));
    weft_jit_free(j);
}

static void *call_elsewhere(void *arg)
{
    caller *k = arg;
    weft_tensor x = vector(6, 1), want, got;
    const weft_generator was = *k->named, here = *weft_default_generator();
    OK(draws_own(k, &x, 1, &want, 1));
    *k->named = was;
    OK(weft_jit_call(k->j, &x, 1, &got, 1));
    check_bits("drawn", want, got);
    check_generators("this thread's", &here, weft_default_generator());
    return NULL;
}

/* One thread's generator given to a function that another calls is that one's, not the caller's own. */
Test(frozen_random, a_generator_of_another_thread)
{
    caller k = {.named = weft_default_generator()};
    weft_jit *j = k.j = weft_jit_trace(draws_own, &k, .frozen = true, .verify_every = -1);
    weft_tensor x = vector(6, 1), got;
    for (int i = 0; i < 5; i++) {
        OK(weft_jit_call(j, &x, 1, &got, 1));
    }
    cr_assert_eq(stats_of(j).frozen, 3, "%s", reasons(j));
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, call_elsewhere, &k), 0);
    pthread_join(thread, NULL);
    cr_assert(has_reason(j, "draws from the generator of another thread"), "%s", reasons(j));
    weft_jit_free(j);
}

/* -- devices --------------------------------------------------------------------------------------------------------- */

Test(frozen_random, on_a_device)
{
    model a, b;
    device_double_install();
    model_open(&a);
    model_open(&b);
    weft_optim_free(b.optim);
    OK(weft_module_to(b.m, WEFT_CUDA(0)));
    b.optim = weft_adamw_new(b.m, 0.05, .weight_decay = 0.1);
    weft_jit *j = weft_jit_trace(train, &b, .frozen = true, .verify_every = -1);
    for (int i = 0; i < 9; i++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor x = weft_randn(weft_shape(ROWS, IN)), there, want, got;
        there = weft_to(x, WEFT_CUDA(0));
        OK(train(&a, &x, 1, &want, 1));
        const weft_device home = weft_default_device();
        OK(weft_set_default_device(WEFT_CUDA(0)));
        OK(weft_jit_call(j, &there, 1, &got, 1));
        OK(weft_set_default_device(home));
        check_equal("loss", want, got);
        check_models(&a, &b);
        weft_scope_end(sc);
    }
    cr_assert_eq(stats_of(j).frozen, 7, "%s", reasons(j));
    weft_jit_free(j);
    model_close(&a);
    model_close(&b);
}
