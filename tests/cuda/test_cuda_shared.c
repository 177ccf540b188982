/*
 * tests/cuda/test_cuda_shared.c -- what threads share: a stream, its error words; handles that outlive what they name.
 * ctest: threads
 */
#include "tests/cuda/cuda_support.h"

#include <pthread.h>
#include <stdlib.h>

#include "eager/cuda/stage.h"
#include "tests/support/support.h"
#include "weft/weft.h"

enum { N = 700 };

static wf_cuda_block *block(size_t n)
{
    wf_cuda_block *b = wf_cuda_alloc(0, n, &why);
    cr_assert(b, "%s", why.rule);
    return b;
}

enum { SEEDS = 20 };

/* The fake, late or in random order by turns, and its device. */
static wf_cuda_device *begin(int seed)
{
    with_fake(seed % 2 ? FAKE_RANDOM : FAKE_LATE, (uint64_t)seed);
    wf_cuda_device *d = wf_cuda_enter(0, &why);
    cr_assert(d, "%s", why.rule);
    return d;
}

static wf_cuda_stream *take_stream(wf_cuda_device *d)
{
    wf_cuda_stream *s = wf_cuda_stream_take(d, &why);
    cr_assert(s, "%s", why.rule);
    return s;
}

/* out = b + b, of operands whose use was told before. */
static void add_now(wf_cuda_block *out, wf_cuda_block *b)
{
    int64_t n = N;
    void *params[] = {&out->address, &b->address, &b->address, &n};
    OK(wf_cuda_launch(fake_kernel("add_i32"), one_block, one_block, 0, params, &why));
}

/* Everything is over, in order. */
static void check_order(void)
{
    OK(wf_cuda_synchronize(0, &why));
    cr_assert_eq(gpu->races(), 0, "%s", gpu->first_race());
}

/* out is 7 + 7, and then so. */
static void check_sum(int seed, wf_cuda_block *out)
{
    int32_t got[N];
    OK(wf_cuda_use(out, false, &why));
    OK(wf_cuda_download(0, got, out->address, sizeof got, &why));
    cr_assert(got[0] == 14 && got[N - 1] == 14, "seed %d: %d", seed, got[0]);
    check_order();
}

/* fn(arg) on another thread, from its first line to its last. */
static void on_a_thread(void *(*fn)(void *arg), void *arg)
{
    pthread_t t;
    cr_assert_eq(pthread_create(&t, NULL, fn, arg), 0);
    cr_assert_eq(pthread_join(t, NULL), 0);
}

typedef struct shared {
    wf_cuda_block *b;
    wf_cuda_stream *side;
    int status;
    _Atomic bool done;
} shared;

/* Ops of its own on the default stream, and an event there for the side stream. */
static void *works_beside(void *arg)
{
    shared *s = arg;
    wf_why local = {0};
    wf_cuda_device *d = wf_cuda_enter(0, &local);
    s->status = !d;
    for (int i = 0; i < 3 && !s->status; i++) {
        s->status = run_fill(s->b, N, i);
    }
    if (!s->status) {
        wf_cuda_set_current(d, s->side);
        s->status = run_add(s->b, s->b, s->b, N, true);
        wf_cuda_set_current(d, NULL);
        s->status = s->status ? s->status : run_fill(s->b, N, 1);
    }
    return NULL;
}

/* An op is being prepared on a stream while another thread begins, queues and marks ops of the same stream: its own work
 * is still waited for by whoever reads it elsewhere. */
Test(cuda_shared, ops_of_two_threads_on_one_stream)
{
    for (int seed = 0; seed < SEEDS; seed++) {
        wf_cuda_device *d = begin(seed);
        shared s = {.side = take_stream(d)};
        wf_cuda_block *a = block(N * 4), *out = block(N * 4);
        s.b = block(N * 4);
        wf_cuda_fn *fill = fake_kernel("fill_i32");
        int64_t n = N;
        int32_t seven = 7;
        OK(wf_cuda_use(a, true, &why));
        on_a_thread(works_beside, &s);
        OK(s.status);
        void *params[] = {&a->address, &n, &seven};
        OK(wf_cuda_launch(fill, one_block, one_block, 0, params, &why));
        wf_cuda_set_current(d, s.side);
        OK(run_add(out, a, a, N, true));
        /* Freed while the side stream reads it, and handed out again. */
        wf_cuda_set_current(d, NULL);
        wf_cuda_free(a);
        wf_cuda_block *again = block(N * 4);
        OK(run_fill(again, N, 99));
        check_sum(seed, out);
        wf_cuda_free(again);
        wf_cuda_free(out);
        wf_cuda_free(s.b);
        wf_cuda_stream_give(s.side);
        close_fake();
    }
}

/* Reads b on the default stream, all at once, and has an event recorded there. */
static void *reads_at_once(void *arg)
{
    shared *s = arg;
    wf_why local = {0};
    wf_cuda_device *d = wf_cuda_enter(0, &local);
    wf_cuda_block *out = block(N * 4), *twice = block(N * 4);
    s->status = !d || run_add(out, s->b, s->b, N, true);
    if (!s->status) {
        wf_cuda_set_current(d, s->side);
        s->status = run_add(twice, out, out, N, true);
        wf_cuda_set_current(d, NULL);
    }
    wf_cuda_free(out);
    wf_cuda_free(twice);
    return NULL;
}

/* Two threads read one block on one stream, and the one that began first queues last: who writes it elsewhere waits for
 * both. */
Test(cuda_shared, two_threads_read_one_block_on_one_stream)
{
    for (int seed = 0; seed < SEEDS; seed++) {
        wf_cuda_device *d = begin(seed);
        shared s = {.side = take_stream(d), .b = block(N * 4)};
        wf_cuda_block *out = block(N * 4);
        OK(run_fill(s.b, N, 7));
        OK(wf_cuda_use(s.b, false, &why));
        OK(wf_cuda_use(out, true, &why));
        on_a_thread(reads_at_once, &s);
        OK(s.status);
        add_now(out, s.b);
        wf_cuda_set_current(d, s.side);
        OK(run_fill(s.b, N, 99));
        wf_cuda_set_current(d, NULL);
        check_sum(seed, out);
        wf_cuda_free(out);
        wf_cuda_free(s.b);
        wf_cuda_stream_give(s.side);
        close_fake();
    }
}

enum { CROWD = 9 };
typedef struct crowd {
    wf_cuda_block *b;
    wf_cuda_stream *side[CROWD];
    int status;
} crowd;

/* Reads b on all streams but the default one. */
static void *reads_everywhere(void *arg)
{
    crowd *c = arg;
    wf_why local = {0};
    wf_cuda_device *d = wf_cuda_enter(0, &local);
    wf_cuda_block *out = block(N * 4);
    c->status = !d;
    for (int i = 1; i < CROWD && !c->status; i++) {
        wf_cuda_set_current(d, c->side[i]);
        c->status = run_add(out, c->b, c->b, N, true);
    }
    wf_cuda_set_current(d, NULL);
    wf_cuda_free(out);
    return NULL;
}

/* More streams read a block than it remembers, and the first of them queues last: who writes it waits for all. */
Test(cuda_shared, many_streams_read_one_block)
{
    for (int seed = 0; seed < SEEDS; seed++) {
        wf_cuda_device *d = begin(seed);
        crowd c = {.b = block(N * 4)};
        wf_cuda_block *out = block(N * 4);
        OK(run_fill(c.b, N, 7));
        for (int i = 0; i < CROWD; i++) {
            c.side[i] = take_stream(d);
        }
        wf_cuda_set_current(d, c.side[0]);
        OK(wf_cuda_use(c.b, false, &why));
        OK(wf_cuda_use(out, true, &why));
        on_a_thread(reads_everywhere, &c);
        OK(c.status);
        add_now(out, c.b);
        wf_cuda_set_current(d, NULL);
        if (seed & 2) {
            OK(run_fill(c.b, N, 99));
        } else { /* or who gets its memory */
            wf_cuda_free(c.b);
            c.b = block(N * 4);
            OK(run_fill(c.b, N, 99));
        }
        check_sum(seed, out);
        wf_cuda_free(out);
        wf_cuda_free(c.b);
        for (int i = 0; i < CROWD; i++) {
            wf_cuda_stream_give(c.side[i]);
        }
        close_fake();
    }
}

/* Waits for everything, or reads b on the default stream. */
static void *waits(void *arg)
{
    shared *s = arg;
    s->status = wf_cuda_synchronize(0, &why);
    return NULL;
}
static void *reads(void *arg)
{
    shared *s = arg;
    wf_cuda_block *out = block(N * 4);
    s->status = run_add(out, s->b, s->b, N, true);
    wf_cuda_free(out);
    return NULL;
}

/* A capture gets the stream that somebody worked on: another thread, which comes behind that work meanwhile, is not
 * recorded, and waits for what was queued before. */
Test(cuda_shared, work_before_a_capture_on_its_stream)
{
    for (int seed = 0; seed < SEEDS; seed++) {
        wf_cuda_device *d = begin(seed);
        wf_cuda_stream *side = take_stream(d);
        shared s = {.b = block(N * 4)};
        wf_cuda_block *own = block(N * 4);
        wf_cuda_set_current(d, side);
        OK(run_fill(s.b, N, 7));
        void *word = NULL;
        int64_t bad = 42;
        void *params[] = {&word, &bad};
        OK(wf_cuda_error_word(0, WF_OP_INDEX_SELECT, "here.c:1", 10, NULL, 0, &word, &why));
        OK(seed & 2
               ? 0
               : wf_cuda_launch(fake_kernel("store_i64"), one_block, one_block, 0, params, &why));
        wf_cuda_set_current(d, NULL);
        wf_cuda_stream_give(side);
        wf_cuda_graph *g = NULL;
        OK(wf_cuda_capture_begin(0, &why));
        OK(run_fill(own, N, 5));
        on_a_thread(seed & 2 ? reads : waits, &s);
        cr_assert_eq(s.status, seed & 2 ? 0 : WEFT_EINDEX, "seed %d: %d", seed, s.status);
        OK(wf_cuda_capture_end(0, false, &g, &why));
        OK(wf_cuda_graph_launch(g, &why));
        check_order();
        wf_cuda_graph_free(g);
        wf_cuda_free(own);
        wf_cuda_free(s.b);
        close_fake();
    }
}

/* More uploads than there are stages, on the default stream. */
static void *uploads(void *arg)
{
    shared *s = arg;
    wf_why local = {0};
    size_t n = WF_CUDA_STAGE_BYTES + 64;
    char *bytes = calloc(1, n);
    wf_cuda_block *b = block(n);
    for (int i = 0; i < 40 && !s->status; i++) {
        s->status = wf_cuda_use(b, true, &local) || wf_cuda_upload(0, b->address, bytes, n, &local);
    }
    wf_cuda_free(b);
    free(bytes);
    return NULL;
}

/* The last upload was on a stream that is now a capture's: its stage is given up by what was queued before. */
Test(cuda_shared, uploads_before_a_capture_on_their_stream)
{
    with_fake(FAKE_RANDOM, 6);
    wf_cuda_device *d = wf_cuda_enter(0, &why);
    wf_cuda_stream *side = take_stream(d);
    shared s = {.b = block(64)};
    const char few[64] = {1};
    wf_cuda_set_current(d, side);
    OK(wf_cuda_use(s.b, true, &why));
    OK(wf_cuda_upload(0, s.b->address, few, sizeof few, &why));
    wf_cuda_set_current(d, NULL);
    wf_cuda_stream_give(side);
    wf_cuda_graph *g = NULL;
    OK(wf_cuda_capture_begin(0, &why));
    on_a_thread(uploads, &s);
    OK(wf_cuda_capture_end(0, false, &g, &why));
    OK(s.status);
    OK(wf_cuda_synchronize(0, &why));
    wf_cuda_graph_free(g);
    wf_cuda_free(s.b);
    close_fake();
}

/* Captures of nothing, one after the other. */
static void *captures(void *arg)
{
    shared *s = arg;
    wf_why local = {0};
    for (int i = 0; i < 4000 && !s->status; i++) {
        wf_cuda_graph *g = NULL;
        s->status = wf_cuda_capture_begin(0, &local);
        s->status = s->status ? s->status : wf_cuda_capture_end(0, false, &g, &local);
        wf_cuda_graph_free(g);
    }
    atomic_store(&s->done, true);
    return NULL;
}

/* The stream of a capture is not waited for, whenever the capture begins. */
Test(cuda_shared, waits_while_others_capture)
{
    with_fake(FAKE_RANDOM, 5);
    shared s = {.b = NULL};
    pthread_t t;
    cr_assert_eq(pthread_create(&t, NULL, captures, &s), 0);
    int waited = 0;
    while (!waited && !atomic_load(&s.done)) {
        waited = wf_cuda_synchronize(0, &why);
    }
    cr_assert_eq(pthread_join(t, NULL), 0);
    OK(waited);
    OK(s.status);
    close_fake();
}

/* Much work of the stream, waits for it, and words without end. */
static void *uses_up_words(void *arg)
{
    shared *s = arg;
    int64_t none = -1;
    for (int i = 0; i < 600 && !s->status; i++) {
        void *word = NULL;
        s->status = wf_cuda_use(s->b, true, &why) ||
                    wf_cuda_error_word(0, WF_OP_ADD, "there.c:2", 10, NULL, 0, &word, &why);
        void *params[] = {&word, &none};
        s->status = s->status ||
                    wf_cuda_launch(fake_kernel("store_i64"), one_block, one_block, 0, params, &why);
        s->status = s->status || (i % 40 == 0 && wf_cuda_synchronize(0, &why));
    }
    return NULL;
}

/* Between an op's word and its launch a kernel may be compiled: the word stays its own, however much is done meanwhile. */
Test(cuda_shared, a_word_is_an_ops_own_until_its_kernel_is_over)
{
    with_fake(FAKE_RANDOM, 3);
    shared s = {.b = block(64)};
    wf_cuda_block *own = block(64);
    void *word = NULL;
    int64_t bad = 42;
    OK(wf_cuda_use(own, true, &why));
    OK(wf_cuda_error_word(0, WF_OP_INDEX_SELECT, "here.c:1", 10, NULL, 0, &word, &why));
    void *params[] = {&word, &bad};
    on_a_thread(uses_up_words, &s);
    OK(s.status);
    OK(wf_cuda_synchronize(0, &why));
    OK(wf_cuda_launch(fake_kernel("store_i64"), one_block, one_block, 0, params, &why));
    cr_assert_eq(wf_cuda_synchronize(0, &why), WEFT_EINDEX);
    cr_assert(strstr(why.rule, "42") && strstr(why.rule, "here.c:1"), "%s", why.rule);
    OK(wf_cuda_synchronize(0, &why));
    wf_cuda_free(own);
    wf_cuda_free(s.b);
    close_fake();
}

static void *takes_a_word(void *arg)
{
    shared *s = arg;
    void *word = NULL;
    int64_t none = -1;
    s->status = wf_cuda_use(s->b, true, &why) ||
                wf_cuda_error_word(0, WF_OP_ADD, "gone.c:3", 10, NULL, 0, &word, &why);
    void *params[] = {&word, &none};
    s->status = s->status ||
                wf_cuda_launch(fake_kernel("store_i64"), one_block, one_block, 0, params, &why);
    return NULL;
}

/* Threads that end give the words of their last op back. */
Test(cuda_shared, words_of_threads_that_ended)
{
    with_fake(FAKE_RANDOM, 4);
    shared s = {.b = block(64)};
    cr_assert(fake_kernel("store_i64"));
    for (int i = 0; i < 1300 && !s.status; i++) {
        on_a_thread(takes_a_word, &s);
        s.status = s.status || (i % 50 == 0 && wf_cuda_synchronize(0, &why));
    }
    OK(s.status);
    cr_assert_leq(gpu->alive("host"), 1);
    wf_cuda_free(s.b);
    close_fake();
}

/* A handle names one stream or event for good: freed, it is nobody's, even when the place is taken again. */
Test(cuda_shared, stale_handles_are_nobodys)
{
    with_fake(FAKE_LATE, 1);
    weft_device d = WEFT_CUDA(0);
    weft_stream *s = weft_stream_new(d);
    cr_assert(s && weft_stream_set(d, s) == WEFT_OK);
    cr_assert_eq(weft_stream_current(d), s);
    cr_assert_eq(weft_stream_free(s), WEFT_OK);
    cr_assert_null(weft_stream_current(d), "on the default stream again");
    weft_stream *t = weft_stream_new(d);
    cr_assert(t && t != s);
    cr_assert_eq(weft_stream_free(s), WEFT_EHANDLE);
    cr_assert_eq(weft_stream_set(d, s), WEFT_EHANDLE);
    cr_assert_eq(weft_stream_synchronize(s), WEFT_EHANDLE);
    cr_assert_null(weft_stream_current(d));
    cr_assert_eq(weft_stream_set(d, t), WEFT_OK);
    /* What was current and is given back is not recorded into the graph that gets the place. */
    cr_assert_eq(weft_stream_free(t), WEFT_OK);
    wf_cuda_graph *g = NULL;
    OK(wf_cuda_capture_begin(0, &why));
    cr_assert(wf_cuda_capturing(0));
    OK(wf_cuda_capture_end(0, true, &g, &why));
    cr_assert(!wf_cuda_capturing(0));
    weft_event *e = weft_event_new(d);
    cr_assert(e && weft_event_free(e) == WEFT_OK);
    weft_event *f = weft_event_new(d);
    cr_assert(f && f != e);
    cr_assert_eq(weft_event_record(e), WEFT_EHANDLE);
    cr_assert_eq(weft_event_free(e), WEFT_EHANDLE);
    cr_assert_eq(weft_event_record(f), WEFT_OK);
    cr_assert_eq(weft_event_synchronize(f), WEFT_OK);
    cr_assert_eq(weft_event_free(f), WEFT_OK);
    cr_assert_eq(weft_stream_free((weft_stream *)&why), WEFT_EHANDLE, "no handle at all");
    cr_assert_eq(weft_event_free((weft_event *)&why), WEFT_EHANDLE);
    weft_stream *old = weft_stream_new(d);
    e = weft_event_new(d);
    close_fake();
    with_fake(FAKE_LATE, 1);
    cr_assert_eq(weft_event_record(e), WEFT_EHANDLE, "it went with its device");
    cr_assert_eq(weft_event_free(e), WEFT_OK);
    cr_assert_eq(weft_event_free(e), WEFT_EHANDLE);
    t = weft_stream_new(d);
    cr_assert(t && t != old);
    cr_assert_eq(weft_stream_free(old), WEFT_EHANDLE, "of the device before it was closed");
    cr_assert_eq(weft_stream_free(t), WEFT_OK);
    close_fake();
}
