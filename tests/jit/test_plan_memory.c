/*
 * tests/jit/test_plan_memory.c -- what a run of a plan holds at each launch, from the plan's own lists, against what lives
 * then, from its steps: no access to memory that is not there, no two values in one place, and little more than what lives.
 */
#include "jit/plan_int.h"
#include "tests/jit/plan_support.h"
#include "tests/jit/random_fn.h"
#include "tests/support/effort.h"

enum { MOST_SLOTS = 4096, MOST_BUFFERS = 8192 };

static int64_t round_up(int64_t n)
{
    return n ? (n + 63) / 64 * 64 : 64;
}

/* Memory of a run in units of 64 bytes, its slots one behind the other. */
typedef struct memory {
    int64_t at[MOST_SLOTS], units[MOST_SLOTS], all;
    uint32_t first[MOST_SLOTS], last[MOST_SLOTS];    /* launches between which a slot is there */
    uint32_t begin[MOST_BUFFERS], end[MOST_BUFFERS]; /* and between which a buffer is accessed */
    bool is_result[MOST_BUFFERS];
} memory;

static memory m;

static bool is_mine(const wf_plan *p, uint32_t slot)
{
    return slot >= p->ninputs + p->noutputs ||
           (slot >= p->ninputs && !(p->writes && p->writes[slot - p->ninputs] >= 0));
}

static void find_slots(const wf_plan *p)
{
    cr_assert_lt(p->ninputs + p->noutputs + p->ntemporaries, (uint32_t)MOST_SLOTS);
    cr_assert_lt(p->nbuffers, (uint32_t)MOST_BUFFERS);
    memset(&m, 0, sizeof m);
    for (uint32_t s = 0; s < MOST_SLOTS; s++) {
        m.first[s] = m.last[s] = UINT32_MAX;
    }
    for (uint32_t i = 0; i < p->ntakes; i++) {
        const wf_take *t = &p->takes[i];
        cr_assert(i == 0 || t->launch >= p->takes[i - 1].launch);
        cr_assert_eq(m.first[t->slot], UINT32_MAX, "taken twice");
        m.first[t->slot] = t->launch;
        m.at[t->slot] = m.all;
        m.units[t->slot] = round_up(t->bytes) / 64;
        m.all += m.units[t->slot];
    }
    for (uint32_t i = 0; i < p->ngives; i++) {
        const wf_give *g = &p->gives[i];
        cr_assert(i == 0 || g->launch >= p->gives[i - 1].launch);
        cr_assert_eq(m.last[g->slot], UINT32_MAX, "given back twice");
        m.last[g->slot] = g->launch;
    }
}

static void find_buffers(const wf_plan *p)
{
    memset(m.begin, 0xFF, sizeof m.begin);
    for (uint32_t s = 0; s < p->nsteps; s++) {
        const wf_access *a = &p->accesses[p->steps[s].access];
        const uint32_t now = p->steps[s].launch;
        for (int i = 0; i < p->steps[s].ndst + p->steps[s].nsrc; i++) {
            const int32_t u = a[i].buffer;
            if (u < 0) {
                continue;
            }
            const uint32_t slot = p->buffers[u].slot;
            m.begin[u] = now < m.begin[u] ? now : m.begin[u];
            m.end[u] = now;
            cr_expect(now <= m.last[slot], "given back before it is read");
            cr_expect(!is_mine(p, slot) || now >= m.first[slot], "not there yet");
        }
    }
    for (uint32_t k = 0; k < p->noutputs; k++) { /* what is written to it last is the result */
        uint32_t final = UINT32_MAX;
        for (uint32_t u = 0; u < p->nbuffers; u++) {
            if (p->buffers[u].slot == p->ninputs + k && m.begin[u] != UINT32_MAX &&
                p->buffers[u].offset == 0 &&
                (final == UINT32_MAX || m.begin[u] >= m.begin[final])) {
                final = u;
            }
        }
        if (final != UINT32_MAX) {
            m.is_result[final] = true;
            m.end[final] = UINT32_MAX;
        }
    }
}

static int64_t held_at(const wf_plan *p, uint32_t launch)
{
    int64_t sum = 0;
    for (uint32_t s = p->ninputs; s < p->ninputs + p->noutputs + p->ntemporaries; s++) {
        sum += m.first[s] <= launch && launch <= m.last[s] ? 64 * m.units[s] : 0;
    }
    return sum;
}

/* Bytes that hold a value at one launch, each counted once. used: by unit, the launch at which its value ends, + 1. */
static int64_t live_at(const wf_plan *p, uint32_t launch, uint32_t *used)
{
    int64_t sum = 0;
    memset(used, 0, ((size_t)m.all + 1) * sizeof *used);
    for (uint32_t u = 0; u < p->nbuffers; u++) {
        const wf_buffer *x = &p->buffers[u];
        if (!is_mine(p, x->slot) || launch < m.begin[u] || launch > m.end[u]) {
            continue;
        }
        const int64_t at = m.at[x->slot] + x->offset / 64;
        const bool no_room = x->bytes == 0 && x->offset / 64 == m.units[x->slot];
        const int64_t n = no_room          ? 0 /* of no elements, at the end */
                          : m.is_result[u] ? m.units[x->slot]
                                           : round_up(x->bytes) / 64;
        cr_assert_leq(x->offset / 64 + n, m.units[x->slot]);
        for (int64_t i = at; i < at + n; i++) {
            /* two values only where one is made in place of the other */
            cr_assert(!used[i] || m.begin[u] == launch || m.end[u] == launch ||
                      used[i] == launch + 1);
            used[i] = m.end[u] == UINT32_MAX ? UINT32_MAX : m.end[u] + 1;
        }
    }
    for (int64_t i = 0; i < m.all; i++) {
        sum += used[i] ? 64 : 0;
    }
    return sum;
}

/* The most held and the most alive; what the plan says of both is right. */
static void measure(const wf_plan *p, int64_t *held, int64_t *live)
{
    wf_plan_info info;
    find_slots(p);
    find_buffers(p);
    uint32_t *used = malloc(((size_t)m.all + 1) * sizeof *used);
    cr_assert_not_null(used);
    *held = *live = 0;
    for (uint32_t s = 0; s <= p->nlaunches; s++) {
        const int64_t h = held_at(p, s), l = live_at(p, s, used);
        cr_expect_leq(l, h);
        *held = h > *held ? h : *held;
        *live = l > *live ? l : *live;
    }
    free(used);
    wf_plan_get_info(p, &info);
    cr_expect_eq(info.peak_bytes, *held);
}

/* The most bytes alive at once where every op runs alone and every value is freed behind its last reader: the
 * least that eager code can do with. */
static int64_t eager_bytes(const wf_fn *f)
{
    wf_layout l;
    wf_why why = {0};
    uint32_t *last = calloc(f->n + 1u, sizeof *last);
    int64_t *bytes = calloc(f->n + 1u, sizeof *bytes), most = 0, sum = 0;
    cr_assert_eq(wf_layout_init(&l, f, false, false, &why), 0);
    for (uint32_t k = 0; k < f->n; k++) {
        const wf_val *src = wf_ins_src(f, &f->ins[k]);
        for (int i = 0; i < f->ins[k].nsrc; i++) {
            last[l.map[src[i]].root] = k;
        }
        const wf_kind kind = (wf_kind)wf_rows[f->ins[k].op].kind;
        bool makes = l.map[k + 1].root == k + 1 &&
                     (kind != WF_KIND_LEAF || f->ins[k].op == WF_OP_RESULT) &&
                     f->ins[k].op != WF_OP_COPY;
        const wf_type *t = wf_fn_type(f, k + 1);
        bytes[k + 1] = makes ? round_up(wf_type_numel(t) * (int64_t)wf_dtype_size(t->dtype)) : 0;
        last[k + 1] = k;
    }
    for (uint32_t o = 0; o < f->noutputs; o++) {
        const wf_ins *i = wf_fn_at(f, f->outputs[o]);
        const wf_val v = i->op == WF_OP_COPY ? i->src[0] : f->outputs[o]; /* eagerly a view */
        last[l.map[v].root] = UINT32_MAX;
    }
    for (uint32_t k = 0; k < f->n; k++) {
        sum = 0;
        for (uint32_t v = 1; v <= k + 1; v++) {
            sum += last[v] >= k ? bytes[v] : 0;
        }
        most = sum > most ? sum : most;
    }
    wf_layout_free(&l);
    free(last);
    free(bytes);
    return most;
}

/* Of each function, not on average. */
Test(plan_memory, a_run_holds_little_more_than_what_lives_at_once)
{
    static const int sizes[] = {12, 60, 60, 200};
    double taken = 0, bound = 0, alone = 0;
    const uint64_t n = effort_of(400);
    /* The second half has concats, in whose memory parts are made: these may take what plan.c's with_more gives. */
    for (uint64_t i = 0; i < 2 * n; i++) {
        const uint64_t seed = i % n;
        const int64_t slack = i < n ? 0 : 64 << 10;
        wf_why why = {0};
        wf_fn *f = random_function_with(seed, sizes[seed / 2 % 4], true, false, i >= n);
        wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = seed % 2 | WF_PLAN_TIER0}, &why);
        cr_assert_not_null(p, "%s", why.rule);
        int64_t held, live, eager = eager_bytes(p->fn);
        measure(p, &held, &live);
        wf_plan_info info;
        wf_plan_get_info(p, &info);
        cr_expect_eq(live, info.bound_bytes, "seed %llu: %lld live, bound %lld",
                     (unsigned long long)seed, (long long)live, (long long)info.bound_bytes);
        cr_expect((double)held <= 1.1 * (double)live, "seed %llu: %lld bytes, %lld live",
                  (unsigned long long)seed, (long long)held, (long long)live);
        bool returned = false; /* an argument, which a plan copies and eager code does not */
        for (uint32_t o = 0; o < f->noutputs; o++)
            returned |= wf_fn_at(p->fn, p->fn->outputs[o])->op == WF_OP_INPUT;
        cr_expect(seed % 2 || returned || eager < 4096 ||
                      (double)held <= 1.1 * (double)eager + (double)slack,
                  "seed %llu: %lld bytes, %lld eagerly", (unsigned long long)seed, (long long)held,
                  (long long)eager);
        taken += returned || i >= n ? 0 : (double)held;
        bound += returned || i >= n ? 0 : (double)live;
        alone += returned || i >= n ? 0 : (double)eager;
        wf_plan_release(p);
        wf_fn_free(f);
    }
    cr_expect_leq(taken, bound * 1.02, "%g of the bound", taken / bound);
    cr_expect_leq(taken, alone * 0.9, "%g of eager code's", taken / alone);
}

/* Where groups would make values early, or keep what is copied to the end, they do not: and say so. */
Test(plan_memory, no_more_than_eager_code)
{
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"fn part {\n %1 = input f32[400,700]\n %2 = erf f32[400,700] %1\n"
         " %3 = slice f32[400,700] %2 ints(0) dyn(399,-1,-1)\n %4 = cos f32[400,700] %1\n"
         " return %3, %4\n}\n",
         NULL},
        {"fn fill {\n %1 = input f32[400,700]\n %2 = full f32[400,700] dyn(400,700) flt(0x1p+1) "
         "dtype(f32)\n %3 = slice f32[400,699] %2 ints(1) dyn(1,700,1)\n"
         " %4 = cos f32[400,700] %1\n return %3, %4\n}\n",
         NULL},
        {"fn early {\n %1 = input f32[400,700]\n %2 = log_sigmoid f32[400,700] %1\n"
         " %3 = cast f64[400,700] %2 dtype(f64)\n %4 = std f32[700] %2 ints(0) flt(0x0p+0)\n"
         " %5 = tanh f64[400,700] %3\n %6 = sin f32[700] %4\n %7 = atan f64[400,700] %5\n"
         " %8 = var f64[1,1] %5 ints(0,1) flt(0x0p+0) flags(1)\n %9 = asinh f64[1,1] %8\n"
         " %10 = relu6 f64[400,700] %7\n"
         " %11 = slice f64[200,700] %10 ints(0) dyn(1,400,2)\n %12 = selu f64[200,700] %11\n"
         " return %12, %6, %9\n}\n",
         "PEAK"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_why why = {0};
        wf_fn *f = plan_parse(cases[i].text);
        wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_TIER0}, &why);
        cr_assert_not_null(p, "%s", why.rule);
        int64_t held, live;
        const int64_t eager = eager_bytes(p->fn);
        measure(p, &held, &live);
        cr_expect((double)held <= 1.02 * (double)eager, "%s: %lld bytes, %lld eagerly", f->name,
                  (long long)held, (long long)eager);
        bool said = !cases[i].reason;
        wf_plan_edge_info e;
        for (uint32_t n = 0; !said && wf_plan_edge_at(p, n, &e); n++) {
            said = strcmp(e.reason, cases[i].reason) == 0;
        }
        cr_expect(said, "%s: no edge is %s", f->name, cases[i].reason);
        plan_check(f, 0, NULL);
        wf_plan_release(p);
        wf_fn_free(f);
    }
}
