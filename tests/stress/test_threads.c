/*
 * tests/stress/test_threads.c -- many threads that create, keep, hand over, read, write, differentiate and
 * free tensors at once.
 *
 * Every tensor holds one number in all its elements, so whoever has it can check it; kept handles travel
 * through mailboxes, copies of them are read by other threads until their owner frees them, which a reader
 * must see as an error and never as another tensor.
 *
 * ctest: threads timeout=300
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/sanitized.h"
#include "tests/support/support.h"

enum { THREADS = 6, ROUNDS = UNDER_ASAN ? 100 : 300, BOXES = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static weft_tensor box[BOXES]; /* kept handles on their way, each to one taker */
static double number[BOXES];
static struct {
    weft_tensor t; /* a kept handle that others read while its owner frees it */
    double number;
} shared[THREADS];
static _Atomic int wrong, taken, stale, gradients;

static void check(bool ok, const char *what, weft_tensor t)
{
    if (!ok && atomic_fetch_add(&wrong, 1) < 5) {
        fprintf(stderr, "%s: %s\n", what, weft_error_text(t));
    }
}

/* All elements of t are v (its mean is, and its extremes are). */
static bool holds(weft_tensor t, double v)
{
    double low, high;
    return weft_item(weft_min(t), &low) == WEFT_OK && weft_item(weft_max(t), &high) == WEFT_OK &&
           low == v && high == v;
}

static void hand_over(test_rng *r, double v)
{
    weft_tensor mine = weft_keep(weft_full(weft_shape(test_between(r, 1, 400)), v, WEFT_F32));
    int at = (int)test_between(r, 0, BOXES - 1);
    pthread_mutex_lock(&lock);
    weft_tensor got = box[at];
    double expected = number[at];
    box[at] = mine;
    number[at] = v;
    pthread_mutex_unlock(&lock);
    if (got.slot != 0) {
        check(holds(weft_add(got, weft_f(1)), expected + 1), "a tensor handed over", got);
        check(weft_fill_(got, expected + 2) == WEFT_OK && holds(got, expected + 2), "written", got);
        check(weft_free(got) == WEFT_OK, "freed by its taker", got);
        atomic_fetch_add(&taken, 1);
    }
}

/* Reads another thread's kept tensor, which may be freed meanwhile. */
static void peek(test_rng *r)
{
    int at = (int)test_between(r, 0, THREADS - 1);
    pthread_mutex_lock(&lock);
    weft_tensor t = shared[at].t;
    double v = shared[at].number;
    pthread_mutex_unlock(&lock);
    weft_tensor y = weft_mul(t, weft_f(2));
    if (weft_ok(y)) {
        check(holds(y, 2 * v), "a shared tensor", y);
    } else {
        weft_status why = weft_error_status(y);
        check(why == WEFT_EHANDLE || (t.slot == 0 && why == WEFT_EINVALID), "a dead one", y);
        atomic_fetch_add(&stale, 1);
    }
}

static void replace_shared(int me, double v)
{
    weft_tensor fresh = weft_keep(weft_full(weft_shape(50), v, WEFT_F64));
    pthread_mutex_lock(&lock);
    weft_tensor old = shared[me].t;
    shared[me].t = fresh;
    shared[me].number = v;
    pthread_mutex_unlock(&lock);
    weft_free(old); /* readers may hold copies of this handle */
}

/* d(sum((x w)^2))/dx = 2 x w^2 */
static void differentiate(double v)
{
    weft_tensor x = weft_full(weft_shape(30, 20), v, WEFT_F32), w = weft_f(0.5);
    weft_requires_grad_(x, true);
    weft_status status = weft_backward(weft_sum(weft_square(weft_mul(x, w))));
    check(status == WEFT_OK && holds(weft_grad(x), v / 2), "a gradient", weft_grad(x));
    atomic_fetch_add(&gradients, 1);
}

static void *work(void *arg)
{
    int me = (int)(intptr_t)arg;
    test_rng r = {(uint64_t)me + 1};
    for (int i = 0; i < ROUNDS; i++) {
        weft_scope sc = weft_scope_begin();
        double v = (double)(me * ROUNDS + i);
        hand_over(&r, v);
        peek(&r);
        if (i % 3 == 0) {
            replace_shared(me, v);
        }
        if (i % 8 == 0) {
            differentiate(v);
        }
        if (i % 50 == 0) { /* large enough for the pool, which only one caller gets */
            check(holds(weft_add(weft_full(weft_shape(400000), v, WEFT_F32), weft_f(1)), v + 1),
                  "a large tensor", WEFT_NONE);
        }
        weft_scope_end(sc);
    }
    return NULL;
}

Test(threads, hand_over)
{
    pthread_t id[THREADS];
    test_baseline before = test_baseline_take();
    weft_set_num_threads(3);
    for (int i = 0; i < THREADS; i++) {
        cr_assert_eq(pthread_create(&id[i], NULL, work, (void *)(intptr_t)i), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(id[i], NULL);
    }
    for (int i = 0; i < BOXES; i++) {
        cr_assert_eq(weft_free(box[i]), WEFT_OK);
    }
    for (int i = 0; i < THREADS; i++) {
        cr_assert_eq(weft_free(shared[i].t), WEFT_OK);
    }
    cr_assert_eq(wrong, 0, "%d checks failed", wrong);
    cr_assert_gt(taken, THREADS * ROUNDS / 2);
    cr_assert_gt(gradients, THREADS * ROUNDS / 10);
    check_baseline("all threads gone", &before);
}

/* A scope-owned handle is refused on another thread, before and after its thread has ended. */
static weft_tensor lent;
static void *owner(void *arg)
{
    lent = weft_ones(weft_shape(3), WEFT_F32);
    pthread_barrier_wait(arg);
    pthread_barrier_wait(arg);
    return NULL;
}

Test(threads, scope_owned)
{
    pthread_t id;
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    cr_assert_eq(pthread_create(&id, NULL, owner, &barrier), 0);
    pthread_barrier_wait(&barrier);
    check_error("another thread's", weft_neg(lent), WEFT_EHANDLE, "thread");
    cr_assert_eq(weft_free(lent), WEFT_EHANDLE);
    pthread_barrier_wait(&barrier);
    pthread_join(id, NULL);
    check_error("of a thread that is gone", weft_neg(lent), WEFT_EHANDLE, "neg");
    pthread_barrier_destroy(&barrier);
}

/* -- fork -------------------------------------------------------------------------------------------------------- */
static pthread_t starter;
static atomic_bool opened, opened_early;

static void *open_context(void *unused)
{
    double v;
    (void)unused;
    weft_scope scope = weft_scope_begin(); /* opens it; ops wait for the allocator's lock as well */
    atomic_store(&opened, true);
    const weft_tensor t = weft_add(weft_full(weft_shape(1), 1, WEFT_F32), weft_f(2));
    const bool right = weft_item(t, &v) == WEFT_OK && v == 3;
    weft_scope_end(scope);
    return right ? NULL : &starter;
}

/* Runs behind weft's own handler, which was registered later: a thread that starts now waits for the fork. */
static void start_during_fork(void)
{
    if (pthread_create(&starter, NULL, open_context, NULL) != 0)
        abort();
    usleep(100000);
    atomic_store(&opened_early, atomic_load(&opened));
}

/* No thread is inside the registry of contexts when a process forks, so its child can open contexts. */
/* ThreadSanitizer does not follow forks of programs with threads. */
Test(threads, forked_children_open_contexts, .disabled = UNDER_TSAN, .timeout = 60)
{
    void *wrong_value = NULL;
    int status = -1;
    cr_assert_eq(pthread_atfork(start_during_fork, NULL, NULL), 0);
    cr_assert_null(open_context(NULL));
    atomic_store(&opened, false);
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        pthread_t t;
        void *result = &status;
        alarm(30); /* a lock that nobody holds any more ends the child here */
        if (pthread_create(&t, NULL, open_context, NULL) != 0 || pthread_join(t, &result) != 0)
            _exit(2);
        _exit(result != NULL || open_context(NULL) != NULL);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%x", (unsigned)status);
    cr_assert_eq(pthread_join(starter, &wrong_value), 0);
    cr_assert_null(wrong_value);
    cr_assert(atomic_load(&opened));
    cr_assert_not(atomic_load(&opened_early), "a context was opened while the process forked");
}

/* -- kept tensors that their own thread reads while another one frees them ------------------------------------------- */

typedef struct desk {
    weft_tensor t;
    _Atomic int full; /* 1: t is to be freed, 2: nobody frees any more */
    int wait;
} desk;

static void *free_them(void *arg)
{
    desk *d = arg;
    for (unsigned i = 1;; i++) {
        int full;
        while ((full = atomic_load(&d->full)) == 0) {
            sched_yield();
        }
        if (full == 2) {
            return NULL;
        }
        for (unsigned k = 0; k < i * 7 % 64; k++) {
            atomic_load(&d->full);
        }
        check(weft_free(d->t) == WEFT_OK, "freed by another thread", d->t);
        atomic_store(&d->full, 0);
    }
}

Test(threads, own_kept_tensors_freed_by_others)
{
    enum { TENSORS = 3000 };
    const test_baseline before = test_baseline_take();
    static desk d;
    pthread_t other;
    cr_assert_eq(pthread_create(&other, NULL, free_them, &d), 0);
    int reads = 0;
    for (int i = 0; i < TENSORS; i++) {
        weft_scope s = weft_scope_begin();
        const weft_tensor t = weft_keep(weft_full(weft_shape(3, 2), i, WEFT_F32));
        const weft_tensor own = weft_keep(weft_full(weft_shape(3, 2), 1, WEFT_F32));
        weft_free(weft_add(t, own));
        d.t = t;
        atomic_store(&d.full, 1);
        for (;; reads++) {
            const weft_tensor y = i % 3 == 0   ? weft_add(own, t)
                                  : i % 3 == 1 ? weft_transpose(t, 0, 1)
                                               : weft_max(t, .axes = weft_axes(0));
            if (!weft_ok(y)) {
                check(weft_error_status(y) == WEFT_EHANDLE, "the end of it", y);
                break;
            }
            check(holds(y, i + (i % 3 == 0)), "a value while it is freed", y);
            weft_free(y);
        }
        weft_free(own);
        while (atomic_load(&d.full) == 1) {
            sched_yield();
        }
        weft_scope_end(s);
    }
    atomic_store(&d.full, 2);
    pthread_join(other, NULL);
    cr_assert_eq(atomic_load(&wrong), 0, "%d", atomic_load(&wrong));
    cr_assert_gt(reads, TENSORS / 2, "%d", reads);
    check_baseline("lent", &before);
}

/* -- a small stack --------------------------------------------------------------------------------------- */

static weft_status small_step(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] =
        weft_sum(weft_softmax(weft_gelu(weft_mul(in[0], weft_f(0.3))), -1), .axes = weft_axes(0));
    return weft_error_status(out[0]);
}

/* Calls whose kernels keep the most on the stack: views, halves, casts, reductions of every layout, scans, sorts, products of
 * vectors, and what is above them. */
static void *with_little_stack(void *unused)
{
    (void)unused;
    weft_scope s = weft_scope_begin();
    char text[300];
    for (int d = WEFT_I64; d < WEFT_DTYPE_COUNT; d++) {
        const weft_dtype dt = (weft_dtype)d;
        const bool real = dt != WEFT_I64;
        weft_tensor x = weft_cast(weft_randint(weft_shape(70, 90), -9, 9), dt),
                    v = weft_transpose(x, 0, 1);
        weft_tensor wide = weft_cast(weft_randint(weft_shape(3, 20000), -9, 9), dt);
        const weft_tensor made[] = {weft_add(v, weft_flip(v, weft_axes(0))),
                                    weft_where(weft_greater(v, weft_i(0)), v, v),
                                    weft_cast(v, WEFT_F16),
                                    weft_sum(v),
                                    weft_sum(v, weft_axes(0)),
                                    weft_sum(v, weft_axes(1)),
                                    weft_max(wide, weft_axes(1)),
                                    weft_sum(weft_transpose(wide, 0, 1), weft_axes(0)),
                                    weft_argmax(v, weft_axes(0)),
                                    weft_cumsum(v, 0),
                                    weft_cumsum(v, 1),
                                    weft_cumsum(wide, 1),
                                    weft_argsort(v, 0, false),
                                    weft_argsort(wide, 1, false),
                                    weft_concat(WEFT_LIST(v, v), 1)};
        for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
            check(weft_ok(made[i]), "with little stack", made[i]);
        }
        if (real) {
            weft_tensor image = weft_cast(weft_randn(weft_shape(1, 3, 12, 12)), dt),
                        k = weft_cast(weft_randn(weft_shape(4, 3, 3, 3)), dt);
            weft_requires_grad_(x, true);
            weft_requires_grad_(k, true);
            weft_tensor y = weft_matmul(weft_layer_norm(v), weft_softmax(x, -1));
            y = weft_add(weft_mean(y), weft_mean(weft_matmul(weft_select(v, 1, 3), v)));
            y = weft_add(y, weft_var(weft_conv2d(image, k)));
            y = weft_add(y, weft_mean(weft_scaled_dot_product_attention(x, x, x, .causal = true)));
            y = weft_add(y, weft_std(weft_erf(v), weft_axes(0, 1)));
            check(weft_backward(y) == WEFT_OK, weft_last_error(), y);
            check(weft_to_string(weft_grad(x), text, sizeof text) > 0, weft_last_error(), x);
        }
    }
    /* past the caches blocks are turned on their way */
    weft_tensor far = weft_transpose(weft_zeros(weft_shape(4096, 4096), WEFT_BF16), 0, 1);
    check(weft_ok(weft_cast(far, WEFT_F32)), weft_last_error(), far);
    check(weft_ok(weft_add(far, weft_transpose(far, 0, 1))), weft_last_error(), far);
    weft_tensor in = weft_randn(weft_shape(40, 50)), out;
    weft_jit *j = weft_jit_trace(small_step, NULL, .synchronous = true);
    check(weft_jit_call(j, &in, 1, &out, 1) == WEFT_OK, weft_last_error(), out);
    weft_jit_free(j);
    weft_scope_end(s);
    return NULL;
}

/* Sanitizers put more on it. */
Test(threads, with_256_kib_of_stack, .timeout = 60, .disabled = UNDER_TSAN || UNDER_ASAN)
{
    pthread_attr_t a;
    pthread_t small;
    pthread_attr_init(&a);
    cr_assert_eq(pthread_attr_setstacksize(&a, 256 << 10), 0);
    cr_assert_eq(pthread_create(&small, &a, with_little_stack, NULL), 0);
    pthread_join(small, NULL);
    pthread_attr_destroy(&a);
    cr_assert_eq(atomic_load(&wrong), 0);
}
