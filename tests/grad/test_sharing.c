/*
 * tests/grad/test_sharing.c -- autograd where something is shared: a saved value by two ops, a leaf by
 * threads, a node by aliases, a hook by a caller and a remover, a gradient and its own history.
 *
 * ctest: threads
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/tensor.h"
#include "tests/support/support.h"

static weft_tensor leaf(double v)
{
    weft_tensor t = weft_full(weft_shape(2), v, WEFT_F32);
    weft_requires_grad_(t, true);
    return t;
}

static double first(weft_tensor t)
{
    float v[2] = {0};
    return weft_to_array(t, v, 2, WEFT_F32) == WEFT_OK ? (double)v[0] : -12345;
}

static weft_status add_unrecorded(weft_tensor t, double v)
{
    weft_no_grad_begin();
    weft_status status = weft_add_(t, weft_f(v));
    weft_no_grad_end();
    return status;
}

/* Sees gradients: how many, and the sum of their first elements. */
typedef struct seen {
    int calls;
    double sum;
} seen;
static weft_tensor see(void *user, weft_tensor g)
{
    seen *s = user;
    s->calls++;
    s->sum += first(g);
    return WEFT_NONE;
}

/* -- saved values ----------------------------------------------------------------------------------- */

Test(sharing, an_op_saves_the_value_it_read)
{
    weft_scope sc = weft_scope_begin();
    test_baseline before = test_baseline_take();
    weft_scope in = weft_scope_begin();
    weft_tensor x = leaf(2), h = weft_mul(x, weft_f(3));
    weft_tensor old = weft_sum(weft_square(h)); /* reads h at version 0 */
    cr_assert_eq(add_unrecorded(h, 1), WEFT_OK);
    weft_tensor now = weft_sum(weft_square(h)); /* at version 1 */
    cr_assert_eq(add_unrecorded(h, 0), WEFT_OK);
    weft_tensor later = weft_sum(weft_mul(weft_square(h), h)); /* at version 2 */
    cr_assert_eq(weft_backward(later), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(first(weft_grad(x)), 3 * 49 * 3);
    check_status("the older", weft_backward(now), WEFT_EGRAD, "version 1");
    cr_assert(strstr(weft_last_error(), "version 2"), "%s", weft_last_error());
    check_status("the oldest", weft_backward(old), WEFT_EGRAD, "version 0");
    weft_scope_end(in);
    check_baseline("every saved value went", &before);
    weft_scope_end(sc);
}

Test(sharing, a_leaf_written_between_uses_is_one_leaf)
{
    weft_tensor x = leaf(2);
    seen s = {0, 0};
    cr_assert(weft_register_hook(x, see, &s, NULL));
    weft_tensor twice = weft_mul(x, weft_f(2)), old = weft_square(x);
    cr_assert_eq(add_unrecorded(x, 1), WEFT_OK);
    cr_assert_eq(weft_backward(weft_sum(weft_add(twice, weft_square(x)))), WEFT_OK, "%s",
                 weft_last_error());
    cr_assert_eq(first(weft_grad(x)), 2 + 2 * 3);
    cr_assert(s.calls == 1 && s.sum == 8, "%d calls, %g", s.calls, s.sum);
    check_status("the use before the write", weft_backward(weft_sum(old)), WEFT_EGRAD, "version");
}

/* -- a leaf of another thread ------------------------------------------------------------------------- */

typedef struct borrowed {
    weft_tensor w;
    weft_status status;
    int64_t during, after;
} borrowed;

static void *use_twice(void *arg)
{
    borrowed *b = arg;
    weft_scope sc = weft_scope_begin();
    weft_tensor y = weft_add(weft_square(b->w), weft_mul(b->w, weft_f(3)));
    b->during = weft_tape_nodes();
    b->status = weft_backward(weft_sum(weft_mul(y, b->w)));
    weft_scope_end(sc);
    b->after = weft_tape_nodes();
    return NULL;
}

Test(sharing, another_threads_leaf_is_one_node)
{
    weft_tensor w = weft_keep(leaf(2));
    seen s = {0, 0};
    cr_assert(weft_register_hook(w, see, &s, NULL));
    borrowed b = {.w = w};
    pthread_t t;
    pthread_create(&t, NULL, use_twice, &b);
    pthread_join(t, NULL);
    cr_assert_eq(b.status, WEFT_OK);
    cr_assert_eq(b.during, 4, "%lld nodes", (long long)b.during);
    cr_assert_eq(b.after, 0);
    cr_assert_eq(first(weft_grad(w)), 3 * 4 + 2 * 3 * 2); /* d(w^3 + 3 w^2) */
    cr_assert(s.calls == 1 && s.sum == 24, "%d calls, %g", s.calls, s.sum);
    weft_free(w);
}

static void *fail_at_every_allocation(void *arg)
{
    borrowed *b = arg;
    weft_status status = WEFT_ENOMEM;
    for (int n = 1; n <= 60; n++) {
        weft_scope sc = weft_scope_begin();
        wf_alloc_fail_after(n, false);
        status = weft_backward(b->w, .gradient = b->w); /* the root is the borrowed leaf itself */
        wf_alloc_fail_after(0, false);
        weft_scope_end(sc);
        b->during += status == WEFT_ENOMEM;
        b->after += weft_tape_nodes();
    }
    b->status = status;
    return NULL;
}

Test(sharing, a_failed_backward_holds_no_root)
{
    borrowed b = {.w = weft_keep(leaf(2))};
    pthread_t t;
    pthread_create(&t, NULL, fail_at_every_allocation, &b);
    pthread_join(t, NULL);
    cr_assert_eq(b.status, WEFT_OK);
    cr_assert_gt(b.during, 2);
    cr_assert_eq(b.after, 0, "%lld nodes were left", (long long)b.after);
    weft_free(b.w);
}

/* -- aliases of one node -------------------------------------------------------------------------------- */

Test(sharing, hooks_through_every_alias_run)
{
    weft_tensor x = leaf(2);
    cr_assert_eq(weft_backward(weft_sum(weft_mul(weft_square(x), x)), .create_graph = true),
                 WEFT_OK);
    weft_tensor a = weft_grad(x), b = weft_grad(x), g; /* two handles on one recorded result */
    seen s[2] = {{0, 0}, {0, 0}};
    cr_assert(weft_register_hook(a, see, &s[0], NULL));
    uint64_t id = weft_register_hook(b, see, &s[1], NULL);
    cr_assert(id);
    weft_tensor y = weft_sum(weft_mul(a, weft_f(5)));
    for (int i = 1; i <= 2; i++) {
        cr_assert_eq(weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = &x, .n_inputs = 1,
                                  .grads = &g, .retain_graph = true),
                     WEFT_OK, "%s", weft_last_error());
        cr_assert_eq(first(g), 5 * 6 * 2);
        cr_assert(s[0].calls == i && s[1].calls == 1, "%d, %d", s[0].calls, s[1].calls);
        cr_assert_eq(s[1].sum, 5);
        if (i == 1) { /* by whichever alias */
            cr_assert_eq(weft_remove_hook(a, id), WEFT_OK, "%s", weft_last_error());
        }
    }
    weft_set_grad(x, WEFT_NONE);
}

/* -- a gradient that leads to itself ---------------------------------------------------------------------- */

static void differentiable_gradient(weft_tensor x)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor loss = weft_sum(weft_mul(weft_square(x), x));
    cr_assert_eq(weft_backward(loss, .create_graph = true), WEFT_OK, "%s", weft_last_error());
    weft_scope_end(sc);
}

static void *free_it(void *arg)
{
    weft_free(*(weft_tensor *)arg);
    return NULL;
}

Test(sharing, a_gradient_with_history_goes_with_its_leaf)
{
    weft_scope sc = weft_scope_begin();
    test_baseline before = test_baseline_take();
    weft_scope in = weft_scope_begin();
    weft_tensor x = leaf(2), y = leaf(3);
    differentiable_gradient(x);
    differentiable_gradient(y);
    cr_assert(weft_tape_nodes() > 2);
    weft_set_grad(y, weft_mul(weft_grad(x), y)); /* and one through two leaves */
    weft_scope_end(in);
    check_baseline("the scope of the leaves ended", &before);

    x = weft_keep(leaf(2));
    differentiable_gradient(x);
    pthread_t t;
    pthread_create(&t, NULL, free_it, &x);
    pthread_join(t, NULL);
    weft_backward(weft_sum(weft_square(leaf(1)))); /* takes back what the other thread released */
    check_status("freed", weft_free(x), WEFT_EHANDLE, "dead");
    weft_scope_end(sc);
    cr_assert_eq(weft_tape_nodes(), 0, "%lld nodes", (long long)weft_tape_nodes());
}

/* What a deleter does, and what it was told. */
typedef struct deed {
    weft_scope scope;
    weft_tensor owned, kept, variable, other, holder;
    weft_jit *region;
    int runs;
    weft_status ended, freed, assigned, region_ended, region_begun, kept_freed, taken, held;
    double computed;
    bool recorded;
} deed;

static void do_all(void *arg)
{
    deed *d = arg;
    d->runs++;
    d->ended = weft_scope_end(d->scope);
    d->freed = weft_free(d->owned);
    d->assigned = weft_assign(&d->variable, weft_f(1));
    d->region_ended = weft_jit_end(d->region);
    d->region_begun = weft_jit_begin(d->region);
    d->kept_freed = weft_free(d->kept);
    const weft_tensor mine = weft_keep(d->other);
    d->taken = weft_error_status(mine);
    weft_free(mine);
    d->held = weft_assign(&d->holder, d->other);
    weft_free(d->holder);
    weft_scope own = weft_scope_begin();
    const weft_tensor two = weft_mul(leaf(1), weft_f(2));
    d->computed = first(two);
    d->recorded = weft_requires_grad(two);
    weft_free(two);
    weft_scope_end(own);
}

/* A value on memory with a deleter, which the history of what is returned has saved; nothing else has it. */
static weft_tensor saves_blob(float memory[2], weft_tensor w, deed *d)
{
    weft_tensor x = weft_from_blob(memory, weft_shape(2), WEFT_F32, .deleter = do_all, .arg = d);
    const weft_tensor y = weft_mul(x, w);
    weft_free(x);
    return y;
}

/* Memory that goes in the middle of an op, when another thread has freed what saved it, or of a backward: its deleter can free what
 * is kept and compute, but not take the operands of what is going on. */
Test(sharing, deleters_in_the_middle_of_an_op)
{
    enum { OP, LONG_OP, WRITE, BACKWARD, WAYS };
    for (int n = 0; n < 2 * WAYS; n++) {
        const int way = n % WAYS;
        static float memory[2] = {3, 3};
        weft_scope all = weft_scope_begin();
        weft_jit *j = weft_jit_trace(NULL, NULL, .always_record = true);
        deed d = {.kept = weft_keep(weft_ones(weft_shape(5), WEFT_F32)),
                  .holder = weft_keep(weft_ones(weft_shape(1), WEFT_F32)),
                  .region = j};
        const weft_tensor w = weft_keep(leaf(2));
        cr_assert_eq(n / WAYS ? weft_jit_begin(j) : WEFT_OK, WEFT_OK);
        d.scope = weft_scope_begin();
        weft_tensor y = saves_blob(memory, w, &d),
                    a = d.owned = d.other = weft_full(weft_shape(2), 5, WEFT_F32);
        weft_tensor z = d.variable = weft_clone(a);
        if (n /
            WAYS) { /* in a region: it has been computed, so that it saves memory and no recorded value */
            cr_assert_eq(first(y), 6);
        }
        if (way == BACKWARD) {
            cr_assert_eq(weft_backward(weft_sum(y)), WEFT_OK, "%s", weft_last_error());
            cr_expect_eq(first(weft_grad(w)), 3);
        } else {
            y = weft_keep(y);
            pthread_t t;
            pthread_create(&t, NULL, free_it, &y);
            pthread_join(t, NULL);
            cr_assert_eq(d.runs, 0);
            if (way == WRITE) {
                cr_assert_eq(weft_mul_(z, w), WEFT_OK, "%s", weft_last_error());
            } else {
                z = way == OP ? weft_mul(a, w) : weft_cumsum(weft_mul(w, a), 0);
            }
            cr_expect_eq(first(z), 10, "%d: %g, %s", n, first(z), weft_last_error());
        }
        cr_assert_eq(d.runs, 1, "%d: %d runs", n, d.runs);
        cr_expect_eq(d.ended, WEFT_EINVALID);
        cr_expect_eq(d.freed, WEFT_EINVALID);
        cr_expect_eq(d.assigned, WEFT_EINVALID);
        cr_expect_eq(d.taken, WEFT_EINVALID);
        cr_expect_eq(d.held, WEFT_EINVALID);
        cr_expect(weft_ok(d.other));
        cr_expect_eq(d.region_ended, WEFT_EINVALID);
        cr_expect_eq(d.region_begun, WEFT_EINVALID);
        cr_expect_eq(d.kept_freed, WEFT_OK);
        cr_expect_eq(d.computed, 2);
        cr_expect_not(d.recorded);
        weft_clear_error();
        cr_expect_eq(weft_scope_end(d.scope), WEFT_OK, "%s", weft_last_error());
        cr_expect_eq(n / WAYS ? weft_jit_end(j) : WEFT_OK, WEFT_OK, "%s", weft_last_error());
        weft_free(w);
        weft_jit_free(j);
        weft_scope_end(all);
        cr_assert_eq(weft_tape_nodes(), 0);
    }
}

Test(sharing, the_leak_report_names_gradients)
{
    char text[400] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    weft_tensor x = weft_keep(weft_ones(weft_shape(3), WEFT_F32));
    const int line = __LINE__ - 1;
    char made[64];
    weft_requires_grad_(x, true);
    weft_set_name(x, "weight");
    differentiable_gradient(x);
    int64_t nodes = weft_tape_nodes();
    cr_assert_eq(weft_leak_report(f), 2);
    fclose(f);
    cr_assert(strstr(text, "'weight'") && strstr(text, "gradient") && strstr(text, "recorded") &&
                  strstr(text, "weft_set_grad"),
              "%s", text);
    snprintf(made, sizeof made, "test_sharing.c:%d)", line);
    const char *second =
        strchr(text, '\n'); /* the first line is the tensor's, this its gradient's */
    cr_assert(strstr(text, made) && second && strstr(second, "'weight'") && strstr(second, made),
              "not twice %s in %s", made, text);
    cr_assert_eq(weft_set_grad(x, WEFT_NONE), WEFT_OK); /* the way out */
    cr_assert_eq(weft_leak_report(NULL), 1);
    cr_assert(weft_tape_nodes() <= 1 && nodes > 4, "%lld nodes", (long long)weft_tape_nodes());
    weft_free(x);
    cr_assert_eq(weft_leak_report(NULL), 0);
    cr_assert_eq(weft_tape_nodes(), 0);
}

/* A backward whose leaf nobody holds any more does not close the circle again. */
Test(sharing, a_leaf_without_handles_keeps_no_history)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor x = leaf(2), loss = weft_sum(weft_mul(weft_square(x), x));
    weft_free(x);
    cr_assert_eq(weft_backward(loss, .create_graph = true), WEFT_OK, "%s", weft_last_error());
    weft_scope_end(sc);
    cr_assert_eq(weft_tape_nodes(), 0, "%lld nodes", (long long)weft_tape_nodes());
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* -- callbacks ------------------------------------------------------------------------------------------- */

static weft_tensor asked;
static int answers;
static void ask(void *user)
{
    (void)user;
    answers += 1 + weft_has_grad(asked); /* takes the lock that guards gradient and hooks */
}

Test(sharing, callbacks_run_under_no_lock, .timeout = 60)
{
    weft_tensor x = leaf(2);
    asked = x;
    differentiable_gradient(x);
    weft_tensor g = weft_grad(x);
    seen s = {0, 0};
    cr_assert(weft_register_hook(g, see, &s, ask)); /* dies with the gradient's node */
    weft_free(g);
    cr_assert_eq(weft_backward(weft_sum(x)), WEFT_OK); /* replaces the gradient */
    cr_assert_eq(answers, 2);
    cr_assert_eq(first(weft_grad(x)), 13);
}

static pthread_barrier_t barrier;
static _Atomic int let_go;
static weft_tensor slow(void *user, weft_tensor g)
{
    (void)g;
    pthread_barrier_wait(&barrier); /* the other thread removes this hook now */
    pthread_barrier_wait(&barrier);
    *(int *)user = let_go;
    return WEFT_NONE;
}
static void mark(void *user)
{
    (void)user;
    let_go++;
}
static void *run_slow(void *arg)
{
    weft_scope sc = weft_scope_begin();
    weft_backward(weft_sum(weft_square(*(weft_tensor *)arg)));
    weft_scope_end(sc);
    return NULL;
}

Test(sharing, a_running_hook_outlives_its_removal)
{
    weft_tensor x = weft_keep(leaf(1));
    int gone = -1;
    pthread_t t;
    pthread_barrier_init(&barrier, NULL, 2);
    uint64_t id = weft_register_hook(x, slow, &gone, mark);
    pthread_create(&t, NULL, run_slow, &x);
    pthread_barrier_wait(&barrier);
    cr_assert_eq(weft_remove_hook(x, id), WEFT_OK);
    cr_assert_eq(weft_remove_hook(x, id), WEFT_EINVALID);
    pthread_barrier_wait(&barrier);
    pthread_join(t, NULL);
    cr_assert_eq(gone, 0, "released while it ran");
    cr_assert_eq(let_go, 1);
    pthread_barrier_destroy(&barrier);
    weft_free(x);
}

/* -- handles -------------------------------------------------------------------------------------------- */

Test(sharing, forward_products_leave_no_dead_results)
{
    weft_tensor x = leaf(1), z = leaf(1), t = weft_ones(weft_shape(2), WEFT_F32), r[3];
    weft_tensor out[3] = {weft_exp(x), weft_tanh(z), weft_exp(z)};
    weft_status status = WEFT_ENOMEM;
    int failures = 0;
    for (int n = 1; n <= 200; n++) {
        weft_scope sc = weft_scope_begin();
        wf_alloc_fail_after(n, false);
        status = weft_jvp(.outputs = out, .n_outputs = 3, .inputs = &x, .n_inputs = 1,
                          .tangents = &t, .results = r);
        wf_alloc_fail_after(0, false);
        failures += status != WEFT_OK;
        for (int k = 0; k < 3; k++) {
            cr_assert(status == WEFT_OK ? weft_ok(r[k]) : r[k].slot == 0, "%d: result %d", n, k);
        }
        weft_scope_end(sc);
    }
    cr_assert_eq(status, WEFT_OK);
    cr_assert_gt(failures, 10);
}

Test(sharing, a_dead_handle_stamps_nobody)
{
    weft_tensor a = weft_ones(weft_shape(2), WEFT_F32), dead = weft_neg(a);
    weft_free(dead);
    weft_tensor b = (weft_neg)(a); /* takes over the slot */
    cr_assert_eq(b.slot, dead.slot);
    weft_sited("nowhere.c:1", dead);
    cr_assert_str_empty(weft_site(b));
    weft_sited("here.c:1", b);
    cr_assert_str_eq(weft_site(b), "here.c:1");
}

enum { TENSORS = 2000 };
static weft_tensor kept[TENSORS];
static wf_meta *meta[2][TENSORS];
static void *first_use(void *arg)
{
    wf_meta **mine = meta[(intptr_t)arg];
    wf_ctx *c = wf_ctx_get();
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < TENSORS; i++) {
        bool pinned;
        wf_slot *s = wf_pin(c, kept[i], &pinned, NULL);
        mine[i] = wf_slot_meta(s);
        wf_unpin(c, s);
    }
    return NULL;
}

Test(sharing, two_threads_get_one_meta)
{
    pthread_t t[2];
    pthread_barrier_init(&barrier, NULL, 2);
    for (int i = 0; i < TENSORS; i++) {
        kept[i] = weft_keep(weft_ones(weft_shape(1), WEFT_F32));
    }
    for (intptr_t i = 0; i < 2; i++) {
        pthread_create(&t[i], NULL, first_use, (void *)i);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], NULL);
    }
    for (int i = 0; i < TENSORS; i++) {
        cr_assert(meta[0][i] && meta[0][i] == meta[1][i], "tensor %d", i);
        weft_free(kept[i]);
    }
    pthread_barrier_destroy(&barrier);
}
