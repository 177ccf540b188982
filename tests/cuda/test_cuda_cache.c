/*
 * tests/cuda/test_cuda_cache.c -- the caching allocator's books against a recording driver: random traces.
 *
 * The driver here hands out addresses and keeps, for every 512 bytes of them, whether they are mapped,
 * who holds them and which work of another stream has to be over before they are used again.
 * ctest: optimised timeout=300
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cuda/cache.h"
#include "tests/support/effort.h"
#include "tests/support/support.h"

#define MIB ((uint64_t)1 << 20)
#define UNIT ((uint64_t)512)
#define BASE ((uint64_t)1 << 40)
enum { KEYS = 3, STREAMS = 6, DRIVER_OOM = 2 };
enum {
    FIXED,
    EXPANDABLE,
    SINGLE
}; /* how memory is taken: in segments, page by page, each block by itself */

typedef struct unit {
    uint8_t mapped, held,
        given; /* given: back, so that its own stream may be using it until the device is idle */
    int8_t stream; /* of the mark; -1: none */
    int8_t key;
    uint32_t work;
    uint32_t
        idle; /* how often the device had been idle when it was given: use and mark are over when it is again */
} unit;

typedef struct device {
    uint64_t memory, used, space, top,
        apart; /* apart: addresses that are reserved are multiples of it */
    unit *units;
    uint32_t ordered[KEYS][STREAMS];
    uint32_t idles;
    int64_t calls, fail_in; /* fail_in: calls until one fails; 0: none */
} device;

static device dev;

static unit *unit_at(uint64_t address)
{
    cr_assert(address >= BASE && (address - BASE) / UNIT < dev.space / UNIT);
    return &dev.units[(address - BASE) / UNIT];
}

static bool is_marked(const unit *u)
{
    return u->stream >= 0 && u->idle == dev.idles;
}

static bool refuses(void)
{
    dev.calls++;
    return dev.fail_in && --dev.fail_in == 0;
}

static void set_mapped(uint64_t address, uint64_t size, bool on)
{
    unit *u = unit_at(address);
    size = (size + UNIT - 1) / UNIT * UNIT;
    unit_at(address + size - 1);
    for (uint64_t i = 0; i < size / UNIT; i++) {
        cr_assert(u[i].mapped != on && !u[i].held, "mapped twice, or taken away while held");
        cr_assert(on || !u[i].given || u[i].idle != dev.idles,
                  "taken away before its stream's work is over");
        cr_assert(on || !is_marked(&u[i]), "taken away before other streams' work is over");
        u[i] = (unit){.mapped = on, .stream = -1};
    }
    dev.used = on ? dev.used + size : dev.used - size;
}

static int do_reserve(void *self, uint64_t size, uint64_t *address)
{
    (void)self;
    if (refuses() || dev.top + size > dev.space) {
        return DRIVER_OOM;
    }
    *address = BASE + dev.top;
    dev.top += (size + dev.apart - 1) & ~(dev.apart - 1);
    return 0;
}
static void do_unreserve(void *self, uint64_t address, uint64_t size)
{
    (void)self;
    (void)address, (void)size;
}
static int do_map(void *self, uint64_t address, uint64_t size, uint64_t granule)
{
    (void)self;
    cr_assert(address % granule == 0 && size % granule == 0 && size > 0);
    if (refuses() || size > dev.memory - dev.used) {
        return DRIVER_OOM;
    }
    set_mapped(address, size, true);
    return 0;
}
static void do_unmap(void *self, uint64_t address, uint64_t size, uint64_t granule)
{
    (void)self;
    cr_assert(address % granule == 0 && size % granule == 0 && size > 0);
    dev.calls++;
    set_mapped(address, size, false);
}
static int do_segment(void *self, uint64_t size, uint64_t *address)
{
    int code = size > dev.memory - dev.used ? DRIVER_OOM : do_reserve(self, size, address);
    if (!code) {
        set_mapped(*address, size, true);
    }
    return code;
}
static void do_segment_free(void *self, uint64_t address, uint64_t size)
{
    (void)self;
    dev.calls++;
    set_mapped(address, size, false);
}
static void do_idle(void *self)
{
    (void)self;
    dev.idles++;
}
static int do_order(void *self, int key, wf_cache_mark m)
{
    (void)self;
    if (m.work > dev.ordered[key][m.stream]) {
        dev.ordered[key][m.stream] = (uint32_t)m.work;
    }
    return 0;
}

static wf_cache *start(int way, uint64_t memory, uint64_t space)
{
    free(dev.units);
    memset(&dev, 0, sizeof dev);
    dev.memory = memory;
    dev.space = space;
    dev.apart = way == SINGLE ? UNIT : 8 * MIB;
    dev.units = calloc(space / UNIT, sizeof *dev.units);
    wf_cache_driver below = {.reserve = way == EXPANDABLE ? do_reserve : NULL,
                             .unreserve = do_unreserve,
                             .map = do_map,
                             .unmap = do_unmap,
                             .segment = do_segment,
                             .segment_free = do_segment_free,
                             .idle = do_idle,
                             .order = do_order};
    wf_cache_rules rules = {.reserve = (memory + memory / 8 + 8 * MIB - 1) & ~(8 * MIB - 1),
                            .small_granule = 2 * MIB,
                            .large_granule = 8 * MIB,
                            .single = way == SINGLE};
    wf_cache *c = wf_cache_new(&below, &rules);
    cr_assert(c && dev.units);
    return c;
}

/* In random traces every size is always the one or the other, a quarter of them lasts. */
static bool step_lasts(uint64_t size)
{
    return size % 4 == 3;
}

typedef struct held {
    wf_cache_chunk *chunk;
    uint64_t address, size;
    int key;
} held;

/* Takes a chunk and checks every unit of it. 0, or the error. */
static int take(wf_cache *c, int key, uint64_t size, held *out)
{
    wf_cache_chunk *n = NULL;
    int code = wf_cache_alloc(c, key, size, step_lasts(size), &n);
    if (code) {
        cr_assert_null(n);
        return code;
    }
    uint64_t at = wf_cache_address(n), rounded = (size + UNIT - 1) / UNIT * UNIT;
    rounded = rounded ? rounded : UNIT;
    cr_assert_eq(at % UNIT, 0);
    unit *u = unit_at(at);
    for (uint64_t i = 0; i < rounded / UNIT; i++) {
        cr_assert(u[i].mapped && !u[i].held, "overlap or unmapped at %llu", (unsigned long long)i);
        cr_assert(!is_marked(&u[i]) || u[i].work <= dev.ordered[key][u[i].stream],
                  "used again before other streams' work is over");
        cr_assert(!is_marked(&u[i]) || u[i].key == key, "another stream's memory");
        u[i].held = 1;
        u[i].stream = -1;
    }
    *out = (held){n, at, rounded, key};
    return 0;
}

static void give(wf_cache *c, const held *h, int n, const wf_cache_mark *after)
{
    unit *u = unit_at(h->address);
    for (uint64_t i = 0; i < h->size / UNIT; i++) {
        cr_assert(u[i].held);
        u[i].held = 0;
        u[i].key = (int8_t)h->key;
        u[i].stream = n ? (int8_t)after[0].stream : -1;
        u[i].work = n ? (uint32_t)after[0].work : 0;
        u[i].idle = dev.idles;
        u[i].given = 1;
    }
    wf_cache_free(c, h->chunk, n, after);
}

static uint64_t random_size(test_rng *r)
{
    int shift = (int)test_between(r, 0, test_between(r, 0, 5) ? 19 : 22);
    return (uint64_t)test_between(r, 0, (int64_t)1 << shift);
}

typedef struct walk_sum {
    int64_t live, unused, holes;
    uint64_t segment, end;
    int last;
} walk_sum;
static void sum_up(void *arg, int key, uint64_t segment, uint64_t address, uint64_t size, int state)
{
    walk_sum *w = arg;
    (void)key;
    cr_assert(segment != w->segment || address == w->end, "chunks leave a gap or overlap");
    cr_assert(segment != w->segment || state == 1 || state != w->last, "two free neighbours");
    w->segment = segment;
    w->end = address + size;
    w->last = state;
    *(state == 1 ? &w->live : state ? &w->holes : &w->unused) += (int64_t)size;
}

static void check_books(const wf_cache *c)
{
    walk_sum w = {0};
    wf_cache_stats s;
    wf_cache_walk(c, sum_up, &w);
    wf_cache_get_stats(c, &s);
    cr_assert_eq(w.live, s.live_bytes);
    cr_assert_eq(w.live + w.unused, s.reserved_bytes);
    cr_assert_eq((uint64_t)s.reserved_bytes, dev.used);
    cr_assert(s.largest_free <= w.unused);
}

/* cap: on what is held, by turns with none and with half of it; 0: none. */
static void random_trace(int way, uint64_t seed, int steps, uint64_t memory, uint64_t cap)
{
    enum { MOST = 400 };
    static held live[MOST];
    wf_cache *c = start(way, memory, memory * (way == EXPANDABLE ? 8 : 64));
    test_rng r = {seed};
    uint64_t now = 0; /* the cap that was set last */
    int n = 0;
    int64_t refused = 0;
    for (int step = 0; step < steps; step++) {
        if (cap && step % 1000 == 0) {
            now = step / 1000 % 3 ? cap / (uint64_t)(step / 1000 % 3) : 0;
            wf_cache_set_cap(c, (int64_t)now);
        }
        const uint64_t held_before = dev.used;
        bool grow = n < MOST && test_between(&r, 0, 99) < (step / 5000 % 2 ? 35 : 60);
        if (grow || n == 0) {
            int code = take(c, (int)test_between(&r, 0, KEYS - 1), random_size(&r), &live[n]);
            refused += code != 0;
            n += code == 0;
        } else {
            int i = (int)test_between(&r, 0, n - 1);
            wf_cache_mark after = {(int)test_between(&r, KEYS, STREAMS - 1), (uint64_t)step};
            give(c, &live[i], test_between(&r, 0, 9) == 0, &after);
            live[i] = live[--n];
        }
        /* what was held when a lower cap came may stay; no more is taken */
        cr_assert(!now || dev.used <= now || dev.used <= held_before,
                  "%llu bytes under a cap of %llu", (unsigned long long)dev.used,
                  (unsigned long long)now);
        if (step % 20000 == 0) {
            check_books(c);
        }
    }
    check_books(c);
    while (n) {
        give(c, &live[--n], 0, NULL);
    }
    cr_assert(!cap || refused > 0, "the cap refused nothing");
    wf_cache_stats s;
    wf_cache_get_stats(c, &s);
    cr_assert(s.live_bytes == 0 && s.live_chunks == 0 && s.asked_bytes == 0);
    cr_assert_eq(s.allocs, s.frees);
    cr_assert_eq(s.failures, refused);
    wf_cache_trim(c, -1);
    check_books(c);
    cr_assert_eq(dev.used, 0, "all bytes come back");
    wf_cache_delete(c);
}

Test(cuda_cache, random_traces_with_room)
{
    random_trace(EXPANDABLE, 1, (int)effort_of(400000), 512 * MIB, 0);
    random_trace(FIXED, 2, (int)effort_of(300000), 512 * MIB, 0);
    random_trace(SINGLE, 5, (int)effort_of(40000), 512 * MIB, 0);
}

Test(cuda_cache, random_traces_at_the_limit)
{
    random_trace(EXPANDABLE, 3, (int)effort_of(200000), 48 * MIB, 0);
    random_trace(FIXED, 4, (int)effort_of(100000), 64 * MIB, 0);
    random_trace(SINGLE, 6, (int)effort_of(4000), 24 * MIB, 0);
}

Test(cuda_cache, random_traces_under_a_cap)
{
    random_trace(EXPANDABLE, 5, (int)effort_of(100000), 512 * MIB, 96 * MIB);
    random_trace(FIXED, 6, (int)effort_of(100000), 512 * MIB, 96 * MIB);
}

/* What a training step does with memory: parameters and their state stay, the rest comes and goes in an
 * order that is the same every step. */
static void steady(int way, bool vary)
{
    wf_cache *c = start(way, 2048 * MIB, 4800 * MIB);
    static held params[60], acts[300];
    test_rng r = {5};
    for (int i = 0; i < 60; i++) {
        cr_assert_eq(take(c, 0, random_size(&r) * 16, &params[i]), 0);
    }
    int64_t calls = 0;
    wf_cache_stats s = {0};
    for (int step = 0; step < 6; step++) {
        test_rng same = {vary ? (uint64_t)step : 77};
        for (int i = 0; i < 300; i++) {
            cr_assert_eq(take(c, 0, random_size(&same) * (vary ? 24 : 16), &acts[i]), 0);
            if (i % 3 == 2) {
                give(c, &acts[i], 0, NULL);
                acts[i].chunk = NULL;
            }
        }
        for (int i = 299; i >= 0; i--) {
            if (acts[i].chunk) {
                give(c, &acts[i], 0, NULL);
            }
        }
        cr_assert(vary || step == 0 || dev.calls == calls, "a step asks the driver for nothing");
        calls = dev.calls;
    }
    wf_cache_get_stats(c, &s);
    double ratio = (double)s.peak_reserved_bytes / (double)s.peak_bytes;
    cr_assert(ratio < (way == EXPANDABLE ? 1.1 : 1.35), "holds %g times what is needed", ratio);
    for (int i = 0; i < 60; i++) {
        give(c, &params[i], 0, NULL);
    }
    wf_cache_delete(c);
    cr_assert_eq(dev.used, 0);
}

Test(cuda_cache, a_repeated_step_asks_for_nothing)
{
    steady(EXPANDABLE, false);
    steady(FIXED, false);
    steady(EXPANDABLE, true);
}

/* -- steps of models ---------------------------------------------------------------------------------------------
 * What an eager training step asks for, in its order and with its lifetimes: forward, what backward reads is kept; then the
 * gradients of the step before are dropped; backward, gradients of parameters are made and stay until the next step drops
 * them, behind its own forward. In one pool with the rest they lie elsewhere in every step, so that the activations find
 * other room and the pool grows now and then. The driver gives addresses only: sizes are those of the real models. */

enum { MOST_LAYERS = 128, KEPT = 3 };
typedef struct layer {
    int64_t kept[KEPT]; /* elements that backward reads; kept[0] is the result */
    int64_t scratch;    /* of the forward pass */
    int64_t weight, bias;
} layer;
typedef struct model {
    layer at[MOST_LAYERS];
    int n;
} model;
typedef struct replay {
    wf_cache *c;
    wf_cache_chunk *gradient[MOST_LAYERS][2], *kept[MOST_LAYERS][KEPT];
    bool told; /* the books are told what lasts */
} replay;

static int count_map(void *self, uint64_t address, uint64_t size, uint64_t granule)
{
    (void)self, (void)address, (void)size, (void)granule;
    return 0;
}
static void count_unmap(void *self, uint64_t address, uint64_t size, uint64_t granule)
{
    (void)self, (void)address, (void)size, (void)granule;
}
static int next_addresses(void *self, uint64_t size, uint64_t *address)
{
    uint64_t *top = self;
    *address = *top;
    *top += size;
    return 0;
}
static void nothing(void *self)
{
    (void)self;
}

static wf_cache_chunk *get(replay *r, int64_t elements, bool lasts)
{
    wf_cache_chunk *n = NULL;
    if (elements) {
        cr_assert_eq(wf_cache_alloc(r->c, 0, (uint64_t)elements * 4, lasts && r->told, &n), 0);
    }
    return n;
}

static void put(replay *r, wf_cache_chunk **n)
{
    if (*n) {
        wf_cache_free(r->c, *n, 0, NULL);
    }
    *n = NULL;
}

static void forward(replay *r, const model *m)
{
    for (int i = 0; i < m->n; i++) {
        wf_cache_chunk *scratch = get(r, m->at[i].scratch, false);
        for (int k = 0; k < KEPT; k++) {
            r->kept[i][k] = get(r, m->at[i].kept[k], false);
        }
        put(r, &scratch);
    }
}

static void drop_gradients(replay *r, const model *m)
{
    for (int i = 0; i < m->n; i++) {
        put(r, &r->gradient[i][0]);
        put(r, &r->gradient[i][1]);
    }
}

static void backward(replay *r, const model *m)
{
    wf_cache_chunk *g = get(r, m->at[m->n - 1].kept[0], false);
    for (int i = m->n - 1; i >= 0; i--) {
        wf_cache_chunk *scratch = get(r, m->at[i].scratch, false);
        wf_cache_chunk *to = get(r, i ? m->at[i - 1].kept[0] : 0, false);
        r->gradient[i][0] = get(r, m->at[i].weight, true);
        r->gradient[i][1] = get(r, m->at[i].bias, true);
        put(r, &scratch);
        put(r, &g);
        for (int k = 0; k < KEPT; k++) {
            put(r, &r->kept[i][k]);
        }
        g = to;
    }
}

static void add_layer(model *m, layer l)
{
    cr_assert_lt(m->n, MOST_LAYERS);
    m->at[m->n++] = l;
}

/* GPT-2 124M: 12 blocks of 768, 50257 words. */
static model transformer(int64_t tokens)
{
    enum { DIM = 768, VOCAB = 50257, BLOCKS = 12 };
    const int64_t x = tokens * DIM;
    model m = {.n = 0};
    add_layer(&m, (layer){{x}, x, VOCAB * DIM, 1024 * DIM});
    for (int i = 0; i < BLOCKS; i++) {
        add_layer(&m, (layer){{x, tokens, tokens}, 0, DIM, DIM});
        add_layer(&m, (layer){{3 * x}, 0, 3 * DIM * DIM, 3 * DIM});
        add_layer(&m, (layer){{x, tokens * 12}, 0, 0, 0});
        add_layer(&m, (layer){{x}, x, DIM * DIM, DIM});
        add_layer(&m, (layer){{x, tokens, tokens}, 0, DIM, DIM});
        add_layer(&m, (layer){{4 * x}, 0, 4 * DIM * DIM, 4 * DIM});
        add_layer(&m, (layer){{4 * x}, 0, 0, 0});
        add_layer(&m, (layer){{x}, x, 4 * DIM * DIM, DIM});
    }
    add_layer(&m, (layer){{x, tokens, tokens}, 0, DIM, DIM});
    add_layer(&m, (layer){{tokens * VOCAB}, 0, VOCAB * DIM, 0});
    add_layer(&m, (layer){{1, tokens}, 0, 0, 0});
    return m;
}

static model perceptron(int64_t rows)
{
    static const int64_t width[] = {784, 4096, 4096, 2048, 1024, 10};
    model m = {.n = 0};
    for (int i = 0; i < 5; i++) {
        add_layer(&m, (layer){{rows * width[i + 1]}, 0, width[i] * width[i + 1], width[i + 1]});
        add_layer(&m, (layer){{rows * width[i + 1]}, 0, 0, 0});
    }
    return m;
}

/* ResNet-50's four stages of bottlenecks, normalised; a convolution has a workspace. */
static model convnet(int64_t images)
{
    static const int blocks[] = {3, 4, 6, 3};
    model m = {.n = 0};
    int64_t in = 64;
    for (int s = 0; s < 4; s++) {
        const int64_t w = INT64_C(64) << s, area = images * (INT64_C(3136) >> 2 * s);
        for (int b = 0; b < blocks[s]; b++) {
            add_layer(&m, (layer){{w * area, w * area, w}, 3 << 20, in * w, w});
            add_layer(&m, (layer){{w * area, w * area, w}, 5 << 20, 9 * w * w, w});
            add_layer(&m, (layer){{4 * w * area, 4 * w * area, w}, 3 << 20, 4 * w * w, 4 * w});
            in = 4 * w;
        }
    }
    return m;
}

enum { TRAINED = 50 };

/* Trains TRAINED steps, in step i on of[i % n]. The driver's calls behind step `from`; *over: what is held by what is needed. */
static int64_t train(const model *of, int n, bool expandable, bool told, int from, double *over)
{
    uint64_t top = (uint64_t)1 << 40;
    wf_cache_driver below = {.self = &top,
                             .reserve = expandable ? next_addresses : NULL,
                             .unreserve = do_unreserve,
                             .map = count_map,
                             .unmap = count_unmap,
                             .segment = next_addresses,
                             .segment_free = do_unreserve,
                             .idle = nothing,
                             .order = do_order};
    wf_cache_rules rules = {
        .reserve = (uint64_t)90 << 30, .small_granule = 2 * MIB, .large_granule = 8 * MIB};
    replay r = {.c = wf_cache_new(&below, &rules), .told = told};
    wf_cache_chunk *state[MOST_LAYERS][6];
    for (int i = 0; i < of->n; i++) { /* a parameter and two of the optimiser's for each */
        for (int k = 0; k < 6; k++) {
            state[i][k] = get(&r, k < 3 ? of->at[i].weight : of->at[i].bias, false);
        }
    }
    wf_cache_stats s;
    int64_t calls = 0;
    for (int step = 0; step < TRAINED; step++) {
        const model *m = &of[step % n];
        forward(&r, m);
        drop_gradients(&r, m);
        backward(&r, m);
        wf_cache_get_stats(r.c, &s);
        calls = step <= from ? s.driver_allocs : calls;
    }
    *over = (double)s.peak_reserved_bytes / (double)s.peak_bytes;
    drop_gradients(&r, of);
    for (int i = 0; i < of->n; i++) {
        for (int k = 0; k < 6; k++) {
            put(&r, &state[i][k]);
        }
    }
    wf_cache_get_stats(r.c, &s);
    cr_assert_eq(s.live_bytes, 0);
    wf_cache_delete(r.c);
    return s.driver_allocs - calls;
}

/* Models by turns, as batches of different sizes are: each asks for nothing after its first step. Segments of one shape are of
 * no use to another: there only a shape alone. */
static void check_trained(const char *name, const model *of, int n)
{
    for (int expandable = n > 1; expandable < 2; expandable++) {
        double over = 0, before = 0;
        const int64_t calls = train(of, n, expandable, true, n - 1, &over);
        train(of, n, expandable, false, n - 1, &before);
        cr_assert_eq(calls, 0, "%s: %lld driver calls later on", name, (long long)calls);
        cr_assert(over < 1.2, "%s holds %g times what is needed", name, over);
        cr_assert(!expandable || n > 1 || over < before,
                  "%s holds %g times what is needed, in one pool %g", name, over, before);
    }
}

Test(cuda_cache, a_training_step_asks_for_nothing_after_the_first)
{
    for (int64_t batch = 1; batch <= 8; batch++) {
        const model m = transformer(batch * 1024);
        double over;
        check_trained("transformer", &m, 1);
        cr_assert_gt(train(&m, 1, true, false, 0, &over), 0,
                     "the trace has nothing of what this is about");
    }
    const model others[] = {perceptron(512), convnet(32), convnet(64)};
    for (int i = 0; i < 3; i++) {
        check_trained("perceptron or convnet", &others[i], 1);
    }
}

Test(cuda_cache, training_steps_of_several_shapes_ask_for_nothing_after_the_first_of_each)
{
    const model words[] = {transformer(4096), transformer(1000), transformer(8192),
                           transformer(3000)};
    const model images[] = {convnet(20), convnet(32), convnet(7)};
    const model rows[] = {perceptron(512), perceptron(64), perceptron(333)};
    check_trained("transformer", words, 4);
    check_trained("convnet", images, 3);
    check_trained("perceptron", rows, 3);
}

Test(cuda_cache, reuse_in_the_stream_is_immediate_and_splits)
{
    wf_cache *c = start(EXPANDABLE, 64 * MIB, 512 * MIB);
    held a, b, d;
    cr_assert_eq(take(c, 0, 3 * MIB, &a), 0);
    give(c, &a, 0, NULL);
    cr_assert_eq(take(c, 0, 2 * MIB, &b), 0);
    cr_assert_eq(b.address, a.address);
    cr_assert_eq(take(c, 0, MIB + 1, &d), 0);
    cr_assert_eq(d.address, b.address + b.size, "the rest was split off");
    cr_assert_eq(take(c, 1, 2 * MIB, &a), 0);
    cr_assert(a.address < b.address || a.address >= b.address + 64 * MIB, "a pool per stream");
    cr_assert_eq(dev.idles, 0);
    give(c, &a, 0, NULL);
    give(c, &b, 0, NULL);
    give(c, &d, 0, NULL);
    wf_cache_delete(c);
}

Test(cuda_cache, other_streams_are_waited_for_at_reuse_only)
{
    wf_cache *c = start(EXPANDABLE, 64 * MIB, 512 * MIB);
    held a, b;
    wf_cache_stats s;
    cr_assert_eq(take(c, 0, 4096, &a), 0);
    wf_cache_mark after[2] = {{3, 9}, {4, 2}};
    give(c, &a, 2, after);
    wf_cache_get_stats(c, &s);
    cr_assert_eq(s.orders, 0);
    cr_assert_eq(take(c, 0, 4096, &b), 0);
    cr_assert_eq(b.address, a.address);
    cr_assert(dev.ordered[0][3] == 9 && dev.ordered[0][4] == 2);
    give(c, &b, 0, NULL);
    /* More streams than a chunk remembers: those are waited for when it is freed. */
    for (int i = 0; i < WF_CACHE_MARKS + 1; i++) {
        cr_assert_eq(take(c, 0, 4096, &a), 0);
        wf_cache_mark one = {i, 100 + (uint64_t)i};
        wf_cache_free(c, a.chunk, 1, &one);
        unit_at(a.address)[0].held = 0;
        for (uint64_t k = 0; k < 8; k++) {
            unit_at(a.address)[k] = (unit){.mapped = 1, .stream = -1};
        }
    }
    wf_cache_delete(c);
}

Test(cuda_cache, memory_that_is_short_is_found_by_giving_back)
{
    for (int way = FIXED; way <= EXPANDABLE; way++) {
        wf_cache *c = start(way, 64 * MIB, 4096 * MIB);
        held a, b, d;
        wf_cache_stats s;
        cr_assert_eq(take(c, 0, 40 * MIB, &a), 0);
        give(c, &a, 0, NULL);
        cr_assert_eq(take(c, 1, 40 * MIB, &b), 0, "the other stream's memory was given back");
        wf_cache_get_stats(c, &s);
        cr_assert(s.retries == 1 && dev.idles == 1);
        cr_assert_eq(take(c, 0, 40 * MIB, &d), DRIVER_OOM);
        cr_assert_eq(take(c, 0, UINT64_MAX, &d), WF_CACHE_TOO_LARGE);
        give(c, &b, 0, NULL);
        wf_cache_trim(c, -1);
        /* what lasts and what does not: free memory of one is the other's when there is no more, and not before */
        wf_cache_chunk *lasting = NULL;
        cr_assert_eq(wf_cache_alloc(c, 0, 20 * MIB, true, &lasting), 0);
        wf_cache_free(c, lasting, 0, NULL);
        cr_assert_eq(take(c, 0, 20 * MIB, &a), 0);
        wf_cache_get_stats(c, &s);
        cr_assert(s.reserved_bytes >= (int64_t)(40 * MIB));
        const int64_t before = s.retries;
        cr_assert_eq(take(c, 0, 40 * MIB, &b), 0, "the gradients' memory was given back");
        wf_cache_get_stats(c, &s);
        cr_assert_eq(s.retries, before + 1);
        give(c, &a, 0, NULL);
        wf_cache_trim(c, -1);
        cr_assert_eq(take(c, 0, 8 * MIB, &d), 0);
        give(c, &d, 0, NULL);
        give(c, &b, 0, NULL);
        wf_cache_trim(c, -1);
        wf_cache_set_cap(c, 48 * MIB);
        cr_assert_eq(take(c, 0, 50 * MIB, &d), WF_CACHE_CAP);
        cr_assert_eq(take(c, 0, 30 * MIB, &d), 0);
        cr_assert(dev.used <= 48 * MIB);
        give(c, &d, 0, NULL);
        wf_cache_delete(c);
        cr_assert_eq(dev.used, 0);
    }
}

/* Every driver call, and every host allocation, fails once: an error comes back, nothing is lost. */
static bool scenario(wf_cache *c)
{
    held h[40];
    test_rng r = {9};
    bool all = true;
    for (int i = 0; i < 40; i++) {
        h[i].chunk = NULL;
        uint64_t size = i % 5 ? random_size(&r) : (uint64_t)test_between(&r, 2 << 20, 24 << 20);
        all &= take(c, i % KEYS, size, &h[i]) == 0;
        if (i % 4 == 3 && h[i - 1].chunk) {
            give(c, &h[i - 1], 0, NULL);
            h[i - 1].chunk = NULL;
        }
        if (i == 20) {
            wf_cache_trim(c, -1);
        }
    }
    for (int i = 0; i < 40; i++) {
        if (h[i].chunk) {
            give(c, &h[i], 0, NULL);
        }
    }
    check_books(c);
    return all;
}

Test(cuda_cache, every_failure_leaves_the_books_right)
{
    for (int way = FIXED; way <= SINGLE; way++) {
        int64_t survived = 0, n;
        for (n = 1;; n++) {
            wf_cache *c = start(way, 256 * MIB, 8192 * MIB);
            dev.fail_in = n;
            survived += scenario(c);
            bool reached = dev.fail_in == 0;
            wf_cache_delete(c);
            cr_assert_eq(dev.used, 0);
            if (!reached) {
                break;
            }
        }
        /* blocks by themselves leave nothing that could be given back and tried again */
        cr_assert(n > 5 && survived > (way != SINGLE), "%d calls, %d survived", (int)n,
                  (int)survived);
    }
    for (int64_t n = 1; n < 60; n++) {
        wf_cache *c = start(EXPANDABLE, 256 * MIB, 8192 * MIB);
        wf_alloc_fail_after(n, 0);
        scenario(c);
        wf_alloc_fail_after(0, 0);
        wf_cache_delete(c);
        cr_assert_eq(dev.used, 0);
    }
}
