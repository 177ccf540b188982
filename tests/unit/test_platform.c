/*
 * tests/unit/test_platform.c -- element types, settings, CPU level, thread pool, random fills.
 * The allocator has its own program, test_alloc.c. References here are written independently: halves
 * through double arithmetic, Philox from the paper's definition, distributions by their statistics.
 *
 * ctest: threads reckons
 */
#include <criterion/criterion.h>

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "eager/cpuid.h"
#include "eager/env.h"
#include "eager/pool.h"
#include "eager/rng_core.h"
#include "jit/ir/dict_c.h"
#include "jit/ir/dtype.h"
#include "jit/ir/math_f64.h"
#include "jit/ir/math_f32.h"
#include "jit/ir/philox.h"
#include "tests/support/sanitized.h"

/* Of what is a law of numbers, or of the pool's own loops. */
enum { FEW = UNDER_TSAN || UNDER_ASAN };

/* -- element types ----------------------------------------------------------------------------- */

Test(dtype, names_and_sizes)
{
    static const struct {
        const char *name;
        size_t size;
        int kind;
    } want[] = {{"bool", 1, 0}, {"u8", 1, 1},  {"i8", 1, 1},   {"i16", 2, 1}, {"i32", 4, 1},
                {"i64", 8, 1},  {"f16", 2, 2}, {"bf16", 2, 2}, {"f32", 4, 2}, {"f64", 8, 2}};
    for (int i = 0; i < 10; i++) {
        int dt = wf_dtype_parse(want[i].name, strlen(want[i].name));
        cr_assert_eq(dt, WEFT_BOOL + i);
        cr_assert_str_eq(wf_dtype_name(dt), want[i].name);
        cr_assert_eq(wf_dtype_size(dt), want[i].size);
        cr_assert_eq(wf_dtype_kind(dt), want[i].kind);
        bool half = dt == WEFT_F16 || dt == WEFT_BF16;
        cr_assert_eq(wf_dtype_compute(dt), half ? WEFT_F32 : dt);
    }
    cr_assert_eq(wf_dtype_parse("f3", 2), -1);
    cr_assert_eq(wf_dtype_parse("f32x", 4), -1);
    cr_assert_eq(wf_dtype_parse("f32x", 3), WEFT_F32);
    cr_assert_eq(wf_dtype_parse("?", 1), -1);
    cr_assert_eq(wf_dtype_parse("", 0), -1);
    cr_assert_eq(wf_dtype_size(WF_NDTYPE), 0u);
    cr_assert_eq(wf_dtype_size(-1), 0u);
}

/* Upper triangle of the table in docs/dtypes.md, typed in by hand. */
Test(dtype, promotion)
{
    static const char *const table[10] = {
        "bool u8 i8 i16 i32 i64 f16 bf16 f32 f64",
        "u8 i16 i16 i32 i64 f16 bf16 f32 f64",
        "i8 i16 i32 i64 f16 bf16 f32 f64",
        "i16 i32 i64 f16 bf16 f32 f64",
        "i32 i64 f16 bf16 f32 f64",
        "i64 f16 bf16 f32 f64",
        "f16 f32 f32 f64",
        "bf16 f32 f64",
        "f32 f64",
        "f64",
    };
    for (int a = 0; a < 10; a++) {
        const char *s = table[a];
        for (int b = a; b < 10; b++) {
            size_t n = strcspn(s, " ");
            int want = wf_dtype_parse(s, n);
            s += n + (s[n] == ' ');
            cr_assert_eq(wf_dtype_promote(WEFT_BOOL + a, WEFT_BOOL + b), want, "%d %d", a, b);
            cr_assert_eq(wf_dtype_promote(WEFT_BOOL + b, WEFT_BOOL + a), want, "%d %d", b, a);
        }
        cr_assert_eq(*s, 0);
    }
    for (int a = 0; a < WF_NDTYPE; a++)
        for (int b = 0; b < WF_NDTYPE; b++)
            for (int c = 0; c < WF_NDTYPE; c++)
                cr_assert_eq(wf_dtype_promote(a, wf_dtype_promote(b, c)),
                             wf_dtype_promote(wf_dtype_promote(a, b), c));
}

/* Value of a binary format with `bits` of stored significand and exponents emin..emax. */
static double decode(unsigned h, int bits, int emin)
{
    unsigned ebits = 15u - (unsigned)bits, field = (h >> bits) & ((1u << ebits) - 1);
    double m = h & ((1u << bits) - 1), v;
    if (field == (1u << ebits) - 1)
        v = m != 0 ? (double)NAN : (double)INFINITY;
    else if (field == 0)
        v = ldexp(m, emin - bits);
    else
        v = ldexp(m + ldexp(1, bits), (int)field - 1 + emin - bits);
    return h & 0x8000u ? -v : v;
}

/* x rounded to that format, ties to even. */
static double rounded(double x, int bits, int emin, int emax)
{
    if (x == 0 || isnan(x) || isinf(x))
        return x;
    int e;
    frexp(x, &e);
    e = e - 1 < emin ? emin : e - 1;
    double r = ldexp(nearbyint(ldexp(x, bits - e)), e - bits);
    return fabs(r) >= ldexp(1, emax + 1) ? copysign(INFINITY, x) : r;
}

static bool same(double a, double b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

static void check_halves_of(float x)
{
    double h = decode(wf_f16_of_f32(x), 10, -14), b = decode(wf_bf16_of_f32(x), 7, -126);
    cr_assert(same(h, rounded(x, 10, -14, 15)), "f16 of %a is %a", x, h);
    cr_assert(same(b, rounded(x, 7, -126, 127)), "bf16 of %a is %a", x, b);
}

static float f32_of_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

Test(dtype, halves)
{
    for (unsigned h = 0; h < 65536; h++) {
        cr_assert(same(wf_f32_of_f16((uint16_t)h), decode(h, 10, -14)), "%x", h);
        cr_assert(same(wf_f32_of_bf16((uint16_t)h), decode(h, 7, -126)), "%x", h);
        /* every representable value, every tie, and the neighbours of both */
        uint32_t bits[2], unit[2] = {1u << 12, 1u << 15};
        float f16 = wf_f32_of_f16((uint16_t)h), bf16 = wf_f32_of_bf16((uint16_t)h);
        memcpy(&bits[0], &f16, 4);
        memcpy(&bits[1], &bf16, 4);
        for (int k = 0; k < 2; k++)
            for (uint32_t d = 0; d < 3; d++) {
                check_halves_of(f32_of_bits(bits[k] + d - 1));
                check_halves_of(f32_of_bits(bits[k] + unit[k] + d - 1));
            }
        /* ties of f16's subnormal range: odd multiples of 2^-25 */
        float tie = ldexpf((float)(2 * (h & 2047) + 1), -25);
        check_halves_of(tie);
        check_halves_of(nextafterf(tie, 0));
        check_halves_of(nextafterf(tie, 1));
    }
    for (uint64_t u = 0; u < (uint64_t)1 << 32; u += 1021 * (FEW ? 16 : 1))
        check_halves_of(f32_of_bits((uint32_t)u));
}

/* -- settings and CPU level -------------------------------------------------------------------- */

Test(env, parsing)
{
    setenv("WEFT_DEBUG", "3", 1);
    setenv("WEFT_NUM_THREADS", "2x", 1);
    setenv("WEFT_ALLOC_CAP", "3M", 1);
    setenv("WEFT_STRESS", "order,oom:17,move", 1);
    setenv("WEFT_ISA", "avx2", 1);
    unsetenv("WEFT_PIN");
    const wf_env_values *e = wf_env();
    cr_assert_eq(e->WEFT_DEBUG, 3);
    cr_assert_eq(e->WEFT_NUM_THREADS, 0);
    cr_assert_eq(e->WEFT_ALLOC_CAP, 3 << 20);
    cr_assert_eq(e->WEFT_PIN, 1);
    int64_t n = -1;
    cr_assert(wf_env_stress("oom", &n) && n == 17);
    cr_assert(wf_env_stress("order", &n) && n == 0);
    cr_assert(wf_env_stress("move", NULL));
    cr_assert(!wf_env_stress("mov", NULL) && !wf_env_stress("evict", NULL));
    setenv("WEFT_DEBUG", "5", 1);
    cr_assert_eq(wf_env()->WEFT_DEBUG, 3, "the environment is read once");

    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    wf_env_list(f);
    fclose(f);
    cr_assert(strstr(text, "WEFT_STRESS") && strstr(text, "order,oom:17,move"));
    cr_assert(strstr(text, "not valid"));
    free(text);
    cr_assert(wf_isa() <= WF_ISA_AVX2);
}

Test(cpuid, level)
{
    unsetenv("WEFT_ISA");
    int most = wf_isa();
    cr_assert(most >= WF_ISA_SSE2 && most < WF_NISA);
    cr_assert_eq(wf_set_isa(WF_NISA + 5), most);
    for (int i = 0; i <= most; i++) {
        cr_assert_eq(wf_set_isa(i), i);
        cr_assert_eq(wf_isa(), i);
    }
    cr_assert_eq(wf_set_isa(-3), WF_ISA_SSE2);
    cr_assert_str_eq(wf_isa_name(WF_ISA_AVX512), "avx512");
}

/* -- thread pool ------------------------------------------------------------------------------- */

typedef struct counts {
    int64_t n, grain;
    unsigned char *hits;
    atomic_int bad;
} counts;

static void count_task(void *arg, int64_t begin, int64_t end)
{
    counts *c = arg;
    int64_t want = c->n - begin < c->grain ? c->n : begin + c->grain;
    if (begin % c->grain || end != want)
        atomic_fetch_add(&c->bad, 1);
    for (int64_t i = begin; i < end; i++)
        c->hits[i]++;
}

static void check_range(int64_t n, int64_t grain)
{
    counts c = {.n = n, .grain = grain, .hits = calloc((size_t)n + 1, 1)};
    wf_parallel_for(n, grain, count_task, &c);
    cr_assert_eq(atomic_load(&c.bad), 0);
    for (int64_t i = 0; i < n; i++)
        cr_assert_eq(c.hits[i], 1, "index %ld of %ld by %ld", (long)i, (long)n, (long)grain);
    free(c.hits);
}

Test(pool, every_index_once, .timeout = 120)
{
    static const int threads[] = {1, 2, 3, 7, 2, 1, 7};
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        cr_assert_eq(wf_set_num_threads(threads[t]), 0);
        cr_assert_eq(wf_num_threads(), threads[t]);
        for (int rep = 0; rep < (FEW ? 30 : 300); rep++) {
            check_range(rep * 7 % 100, 1 + rep % 5);
            check_range(1000 + rep, 64);
            if (rep % 100 == 17)
                usleep(300); /* let the workers fall asleep */
        }
        if (threads[t] > 1)
            cr_assert_eq(wf_pool_workers(), threads[t] - 1);
    }
    check_range(0, 5);
    check_range(-1 + 1, 1);
    cr_assert_eq(wf_set_num_threads(0), -1);
    cr_assert_eq(wf_set_num_threads(1025), -1);
    cr_assert_eq(wf_num_threads(), 7);
    wf_pool_shutdown();
    cr_assert_eq(wf_pool_workers(), 0);
    check_range(100, 1);
    cr_assert_eq(wf_pool_workers(), 6);
}

typedef struct sum {
    _Atomic int64_t total;
    int depth;
} sum;

static void nested_task(void *arg, int64_t begin, int64_t end)
{
    sum *s = arg;
    for (int64_t i = begin; i < end; i++) {
        if (s->depth == 0) {
            atomic_fetch_add(&s->total, i);
        } else {
            sum inner = {.depth = s->depth - 1};
            wf_parallel_for(10, 1, nested_task, &inner);
            wf_pool_shutdown(); /* nothing inside a task */
            atomic_fetch_add(&s->total, inner.total);
        }
    }
}

static void *competing_caller(void *arg)
{
    for (int rep = 0; rep < (FEW ? 100 : 2000); rep++) {
        sum s = {0};
        wf_parallel_for(100, 3, nested_task, &s);
        if (s.total != 4950)
            atomic_fetch_add((atomic_int *)arg, 1);
    }
    return NULL;
}

Test(pool, nested_and_concurrent, .timeout = 120)
{
    wf_set_num_threads(3);
    sum s = {.depth = 2};
    wf_parallel_for(10, 1, nested_task, &s);
    cr_assert_eq(s.total, 4500);
    pthread_t callers[3];
    atomic_int bad = 0;
    for (int i = 0; i < 3; i++)
        pthread_create(&callers[i], NULL, competing_caller, &bad);
    for (int rep = 0; rep < 20; rep++) {
        wf_set_num_threads(2 + rep % 3);
        usleep(500);
        if (rep % 7 == 0)
            wf_pool_shutdown();
    }
    for (int i = 0; i < 3; i++)
        pthread_join(callers[i], NULL);
    cr_assert_eq(bad, 0);
}

/* Chunks that can only end once all of them have begun: the workers really run at the same time. */
static void meet(void *arg, int64_t begin, int64_t end)
{
    (void)begin;
    (void)end;
    atomic_fetch_add((atomic_int *)arg, 1);
    while (atomic_load((atomic_int *)arg) < 3)
        sched_yield();
}

Test(pool, workers_take_part, .timeout = 60)
{
    wf_set_num_threads(3);
    for (int rep = 0; rep < 50; rep++) {
        atomic_int here = 0;
        wf_parallel_for(3, 1, meet, &here);
        cr_assert_eq(here, 3);
        if (rep % 5 == 0)
            usleep(2000);
    }
}

/* Who ran the chunks of a job. */
typedef struct crew {
    pthread_t caller;
    atomic_int chunks, others;
} crew;

static void note_crew(void *arg, int64_t begin, int64_t end)
{
    crew *c = arg;
    atomic_fetch_add(&c->chunks, (int)(end - begin));
    if (!pthread_equal(pthread_self(), c->caller)) {
        atomic_fetch_add(&c->others, 1);
        return;
    }
    for (int i = 0; i < 100000 && atomic_load(&c->others) == 0; i++)
        sched_yield();
}

static int allowed_cpus(void)
{
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 2;
}

/* Workers behind a job spin for a while and share small work; asleep, they are left alone. */
Test(pool, small_work_wakes_nobody, .timeout = 120)
{
    int shared = 0;
    wf_pool_shutdown();
    wf_set_num_threads(2);
    cr_assert_eq(wf_pool_awake(), 1);
    for (int rep = 0; rep < 50 || (shared == 0 && rep < 2000); rep++) {
        atomic_int here = 1;
        wf_parallel_for(2, 1, meet, &here);
        crew c = {.caller = pthread_self()};
        if (wf_pool_awake() == 2) {
            wf_parallel_awake(2, 1, note_crew, &c);
            cr_assert_eq(c.chunks, 2);
            shared += c.others;
        }
        cr_assert_leq(wf_pool_awake(), 2);
        if (rep % 10 == 0) {
            for (int i = 0; i < 5000 && wf_pool_awake() > 1; i++)
                usleep(1000);
            cr_assert_eq(wf_pool_awake(), 1);
            cr_assert_eq(wf_awake_grain(100, 10, 1), 100);
            const int64_t before = wf_pool_workers();
            atomic_int none = 2; /* does not wait for the other one */
            wf_parallel_awake(2, 1, meet, &none);
            cr_assert_eq(none, 4);
            cr_assert_eq(wf_pool_awake(), 1);
            cr_assert_eq(wf_pool_workers(), before);
        }
    }
    cr_assert(shared > 0 || allowed_cpus() < 2); /* on one CPU nobody is beside */
    counts c = {.n = 1000, .grain = 7, .hits = calloc(1000, 1)};
    for (int rep = 0; rep < 100; rep++)
        wf_parallel_awake(1000, 7, count_task, &c);
    cr_assert_eq(atomic_load(&c.bad), 0);
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(c.hits[i], 100);
    free(c.hits);
}

/* Jobs that would be shared, `pause` us apart, until somebody is awake; false: nobody was in that many. */
static bool somebody_comes(int jobs, unsigned pause)
{
    for (int i = 0; i < jobs; i++) {
        if (wf_pool_awake() > 1)
            return true;
        wf_awake_grain(100, 10, 1);
        if (pause)
            usleep(pause);
    }
    return false;
}

/* What is worth waking threads for is cut into shares of about one size, all threads' alike where there are few; what is not
 * wakes nobody. */
Test(pool, even_shares)
{
    for (int threads = 1; threads <= 7; threads++) {
        wf_set_num_threads(threads);
        for (int64_t grain = 1; grain <= 40; grain += 3)
            for (int64_t n = 1; n <= 700; n += 1 + n / 50) {
                const int64_t step = n % 2 ? 4 : 1;
                const wf_shares s = wf_even_shares(n, grain, 3, step);
                const int64_t parts = (n + s.grain - 1) / s.grain;
                cr_assert(s.grain == n || s.grain % step == 0);
                cr_assert_eq(s.wakes, 2 * n >= 3 * grain, "%lld of %lld", (long long)n,
                             (long long)grain);
                if (!s.wakes)
                    continue;
                cr_assert_leq(s.grain, 2 * grain + step, "%lld of %lld", (long long)n,
                              (long long)grain);
                cr_assert_geq(s.grain + step, grain / 2 + 1);
                if (step == 1 && n >= 20 * grain)
                    cr_assert_geq(parts, threads);
                const int64_t each = (parts + threads - 1) / threads; /* of the busiest thread */
                if (step == 1 && parts > threads && n < 8 * threads * grain)
                    cr_assert_leq(each * s.grain, n / threads + each + 1, "%lld of %lld",
                                  (long long)n, (long long)grain);
            }
    }
    wf_pool_shutdown();
    wf_set_num_threads(2);
    wf_shares s = wf_even_shares(96, 33, 8, 1);
    cr_assert(s.wakes && s.grain == 48);
    s = wf_even_shares(257, 256, 64, 1);
    cr_assert(!s.wakes && s.grain == 257);
}

/* Small jobs close behind one another start or wake workers for the next ones; single ones and one thread do not. */
Test(pool, small_jobs_in_a_row_call_workers, .timeout = 120)
{
    if (allowed_cpus() < 2) {
        cr_skip_test("one CPU: nobody wakes beside a loop");
    }
    wf_pool_shutdown();
    wf_set_num_threads(1);
    cr_assert_not(somebody_comes(100000, 0));
    cr_assert_eq(wf_pool_workers(), 0);
    wf_set_num_threads(2);
    cr_assert_not(somebody_comes(100, 200));
    cr_assert_eq(wf_pool_workers(), 0);
    for (int rep = 0; rep < 3; rep++) { /* the first starts the worker */
        cr_assert(somebody_comes(50000000, 0), "nobody came");
        cr_assert_eq(wf_pool_workers(), 1);
        for (int i = 0; i < 5000 && wf_pool_awake() > 1; i++)
            usleep(1000);
        cr_assert_eq(wf_pool_awake(), 1);
        cr_assert_not(somebody_comes(100, 200));
    }
}

/* CPUs that this process's workers may run on: one mask for each thread of that name. */
static int worker_masks(cpu_set_t *masks, int most)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *e; tasks && n < most && (e = readdir(tasks));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%.200s/comm", e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
        bool worker = f && fgets(name, sizeof name, f) && strcmp(name, "weft-worker\n") == 0;
        if (f) {
            fclose(f);
        }
        n += worker && sched_getaffinity(atoi(e->d_name), sizeof *masks, &masks[n]) == 0;
    }
    if (tasks) {
        closedir(tasks);
    }
    return n;
}

/* As many threads as CPUs: each worker has a CPU of its own, and none is this thread's. */
static void check_pinning(bool pinned)
{
    cpu_set_t allowed, masks[16], taken;
    sched_getaffinity(0, sizeof allowed, &allowed);
    int cpus = CPU_COUNT(&allowed), n = cpus < 16 ? cpus : 16;
    if (cpus < 2) {
        cr_skip_test("one CPU: nobody is pinned");
    }
    cr_assert_eq(wf_set_num_threads(n), 0);
    check_range(1000, 1);
    cr_assert_eq(worker_masks(masks, 16), n - 1);
    CPU_ZERO(&taken);
    for (int i = 0; i < n - 1; i++) {
        cr_expect_eq(CPU_COUNT(&masks[i]), pinned ? 1 : cpus, "worker %d may use %d CPUs", i,
                     CPU_COUNT(&masks[i]));
        CPU_OR(&taken, &taken, &masks[i]);
    }
    cr_expect_eq(CPU_COUNT(&taken), pinned ? n - 1 : cpus, "workers share a CPU");
    cpu_set_t mine;
    sched_getaffinity(0, sizeof mine, &mine);
    cr_expect_eq(CPU_COUNT(&mine), cpus, "the caller's own CPUs are its business");
}

Test(pool, workers_are_pinned, .timeout = 60)
{
    unsetenv("WEFT_PIN");
    check_pinning(true);
}

Test(pool, workers_are_not_pinned_without, .timeout = 60)
{
    setenv("WEFT_PIN", "0", 1);
    check_pinning(false);
}

/* The workers run before each fork: AddressSanitizer does not lock its allocator for one, so a thread that is
 * still starting, which allocates, would leave the child a lock that nobody holds. */
Test(pool, fork, .timeout = 60, .disabled = UNDER_TSAN)
{
    wf_set_num_threads(3);
    for (int rep = 0; rep < 5; rep++) {
        atomic_int here = 0;
        wf_parallel_for(3, 1, meet, &here);
        check_range(1000, 10);
        pid_t pid = fork();
        cr_assert(pid >= 0);
        if (pid == 0) {
            alarm(30);
            here = 0;
            bool none = wf_pool_workers() == 0;
            wf_parallel_for(3, 1, meet, &here);
            _exit(none && here == 3 && wf_pool_workers() == 2 ? 0 : 1);
        }
        check_range(1000, 10);
        int status;
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void control_bits(void *arg, int64_t begin, int64_t end)
{
    meet(arg, begin, end);
    unsigned now = _mm_getcsr() & WF_MXCSR_CONTROL;
    if (now != WF_MXCSR_DEFAULT)
        atomic_fetch_add((atomic_int *)arg, 100);
}

Test(pool, floating_point_environment, .timeout = 60)
{
    unsigned before = _mm_getcsr();
    unsigned odd = before | 0x8040u | 0x6000u; /* FTZ, DAZ, toward zero */
    _mm_setcsr(odd);
    wf_set_num_threads(3);
    atomic_int here = 0;
    unsigned saved = wf_fpenv_enter();
    volatile float tiny = 0x1p-126f, half = 0.5f;
    cr_assert_eq(tiny * half, 0x1p-127f);
    wf_parallel_for(3, 1, control_bits, &here);
    wf_fpenv_leave(saved);
    unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    cr_assert_eq(here, 3);
    cr_assert_eq(after & WF_MXCSR_CONTROL, odd & WF_MXCSR_CONTROL);
}

/* -- random numbers: bits ---------------------------------------------------------------------- */

/* Philox4x32-10 as the paper defines it. */
static void reference_philox(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4], k[2] = {key[0], key[1]};
    memcpy(c, ctr, sizeof c);
    for (int r = 0; r < 10; r++) {
        uint64_t p0 = (uint64_t)c[0] * 0xD2511F53u, p1 = (uint64_t)c[2] * 0xCD9E8D57u;
        uint32_t n[4] = {(uint32_t)(p1 >> 32) ^ c[1] ^ k[0], (uint32_t)p1,
                         (uint32_t)(p0 >> 32) ^ c[3] ^ k[1], (uint32_t)p0};
        memcpy(c, n, sizeof c);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

/* Word `l` of block `b` of a draw. */
static uint32_t reference_word(uint64_t seed, uint64_t offset, uint64_t b, uint64_t l)
{
    uint64_t ctr = offset + b;
    uint32_t out[4];
    reference_philox((uint32_t[4]){(uint32_t)ctr, (uint32_t)(ctr >> 32), 0, 0},
                     (uint32_t[2]){(uint32_t)seed, (uint32_t)(seed >> 32)}, out);
    return out[l];
}

/* Known answers published with Random123. */
Test(rng, philox_known_answers)
{
    static const uint32_t rows[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    for (int i = 0; i < 3; i++) {
        const uint32_t *r = rows[i];
        uint32_t ours[4], ref[4];
        philox_4x32_10(r[0], r[1], r[2], r[3], r[4], r[5], &ours[0], &ours[1], &ours[2], &ours[3]);
        reference_philox(r, r + 4, ref);
        cr_assert_arr_eq(ours, r + 6, sizeof ours);
        cr_assert_arr_eq(ref, r + 6, sizeof ref);
    }
}

enum { DRAW = 700 };

typedef struct all_kinds {
    float u32[DRAW], n32[DRAW];
    double u64[DRAW], n64[DRAW];
    int64_t ints[DRAW], wide[DRAW];
    uint8_t coin[DRAW];
} all_kinds;

static void fill_all(all_kinds *a, int64_t first, int64_t n, uint64_t seed, uint64_t offset)
{
    wf_fill_uniform_f32(a->u32 + first, first, n, seed, offset);
    wf_fill_uniform_f64(a->u64 + first, first, n, seed, offset);
    wf_fill_normal_f32(a->n32 + first, first, n, seed, offset);
    wf_fill_normal_f64(a->n64 + first, first, n, seed, offset);
    wf_fill_bernoulli(a->coin + first, first, n, seed, offset, 0.3);
    wf_fill_randint(a->ints + first, first, n, seed, offset, -5, 1000);
    wf_fill_randint(a->wide + first, first, n, seed, offset, INT64_MIN, INT64_MAX);
}

/* floor(d * range / 2^128) by schoolbook multiplication of 32-bit digits */
static uint64_t reference_scaled(const uint32_t d[4], uint64_t range)
{
    uint32_t prod[6] = {0};
    for (unsigned j = 0; j < 2; j++) {
        uint64_t carry = 0, digit = (uint32_t)(range >> (32 * j));
        for (unsigned i = 0; i < 4; i++) {
            carry += prod[i + j] + d[i] * digit;
            prod[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        prod[j + 4] = (uint32_t)carry;
    }
    return (uint64_t)prod[5] << 32 | prod[4];
}

static void check_words(const all_kinds *a, uint64_t seed, uint64_t offset)
{
    for (uint64_t i = 0; i < DRAW; i++) {
        uint32_t u = reference_word(seed, offset, i / 4, i % 4), d[4];
        cr_assert_eq(a->u32[i], (double)(u >> 8) / 16777216.0);
        cr_assert_eq(a->coin[i], (double)(u >> 8) / 16777216.0 < 0.3);
        uint64_t lo = reference_word(seed, offset, i / 2, 2 * (i % 2));
        uint64_t hi = reference_word(seed, offset, i / 2, 2 * (i % 2) + 1);
        cr_assert_eq(a->u64[i], ldexp((double)((hi << 32 | lo) >> 11), -53));
        for (unsigned l = 0; l < 4; l++)
            d[l] = reference_word(seed, offset, i, l);
        cr_assert_eq(a->ints[i], -5 + (int64_t)reference_scaled(d, 1005));
        cr_assert_eq(a->wide[i], (int64_t)(reference_scaled(d, UINT64_MAX) + ((uint64_t)1 << 63)));
        const double two_pi = 6.283185307179586476925;
        double radius, turn;
        if (i % 2 == 0) {
            uint32_t v = reference_word(seed, offset, i / 4, i % 4 + 1);
            radius = sqrt(-2 * log(ldexp((u >> 1) | 1, -31)));
            turn = two_pi * ldexp((int32_t)v, -32);
            cr_assert(fabs(a->n32[i] - radius * cos(turn)) < 2e-6);
            cr_assert(fabs(a->n32[i + 1] - radius * sin(turn)) < 2e-6);
            for (unsigned l = 0; l < 4; l++)
                d[l] = reference_word(seed, offset, i / 2, l);
            uint64_t p = (uint64_t)d[1] << 32 | d[0];
            radius = sqrt(-2 * log(ldexp((double)(p >> 1 | 1), -63)));
            turn = two_pi * ldexp((double)(int64_t)((uint64_t)d[3] << 32 | d[2]), -64);
            cr_assert(fabs(a->n64[i] - radius * cos(turn)) < 1e-14);
            cr_assert(fabs(a->n64[i + 1] - radius * sin(turn)) < 1e-14);
        }
    }
}

/* Any cut, any instruction set: the same bits, and those that the definition gives. */
Test(rng, bits_depend_on_the_index_only)
{
    static all_kinds whole, parts;
    static const uint64_t seeds[] = {0, 42, UINT64_MAX};
    static const uint64_t offsets[] = {0, 0xFFFFFFFFu - 60, UINT64_MAX - 100};
    int most = wf_isa();
    for (int k = 0; k < 3; k++) {
        wf_set_isa(most);
        memset(&whole, 0, sizeof whole);
        fill_all(&whole, 0, DRAW, seeds[k], offsets[k]);
        check_words(&whole, seeds[k], offsets[k]);
        for (int isa = 0; isa <= most; isa++) {
            wf_set_isa(isa);
            for (int64_t step = 1; step < DRAW; step = step * 2 + 1) {
                memset(&parts, 0, sizeof parts);
                for (int64_t at = 0; at < DRAW; at += step)
                    fill_all(&parts, at, DRAW - at < step ? DRAW - at : step, seeds[k], offsets[k]);
                cr_assert_arr_eq((char *)&parts, (char *)&whole, sizeof whole, "%s, step %d",
                                 wf_isa_name(isa), (int)step);
            }
        }
    }
    wf_set_isa(most);
    fill_all(&whole, 5, 0, 1, 2);
}

Test(rng, consumed_blocks)
{
    for (uint64_t n = 0; n < 9; n++) {
        cr_assert_eq(wf_rng_blocks(WF_RNG_UNIFORM_F32, n), (n + 3) / 4);
        cr_assert_eq(wf_rng_blocks(WF_RNG_NORMAL_F32, n), (n + 3) / 4);
        cr_assert_eq(wf_rng_blocks(WF_RNG_BERNOULLI, n), (n + 3) / 4);
        cr_assert_eq(wf_rng_blocks(WF_RNG_UNIFORM_F64, n), (n + 1) / 2);
        cr_assert_eq(wf_rng_blocks(WF_RNG_NORMAL_F64, n), (n + 1) / 2);
        cr_assert_eq(wf_rng_blocks(WF_RNG_RANDINT, n), n);
    }
    cr_assert_eq(wf_rng_blocks(WF_RNG_UNIFORM_F32, UINT64_MAX), (uint64_t)1 << 62);
    /* the draw after starts where this one ends */
    float a[8], b[4];
    wf_fill_uniform_f32(a, 0, 8, 9, 100);
    wf_fill_uniform_f32(b, 0, 4, 9, 100 + wf_rng_blocks(WF_RNG_UNIFORM_F32, 4));
    cr_assert_arr_eq(a + 4, b, sizeof b);
}

/* -- random numbers: distributions ------------------------------------------------------------- */

#define SAMPLES (FEW ? 1 << 16 : 1 << 20)

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double normal_cdf(double x)
{
    return 0.5 * erfc(-x * M_SQRT1_2);
}

static double identity(double x)
{
    return x;
}

/* Kolmogorov-Smirnov: sqrt(n) D exceeds 2.2 with a chance of 1.3e-4 if the law holds. */
static void check_ks(double *x, double (*cdf)(double), const char *what)
{
    qsort(x, SAMPLES, sizeof *x, by_value);
    double d = 0;
    for (int i = 0; i < SAMPLES; i++) {
        double f = cdf(x[i]), lo = f - (double)i / SAMPLES, hi = (double)(i + 1) / SAMPLES - f;
        d = fmax(d, fmax(lo, hi));
    }
    cr_assert(d * sqrt(SAMPLES) < 2.2, "%s: %g", what, d * sqrt(SAMPLES));
}

/* Chi-squared of equally likely cells: within 4 deviations of its mean, both ways. */
static void check_chi2(const int *cell, int n, const char *what)
{
    double expect = (double)SAMPLES / n, chi2 = 0;
    for (int i = 0; i < n; i++)
        chi2 += (cell[i] - expect) * (cell[i] - expect) / expect;
    cr_assert(fabs(chi2 - (n - 1)) < 4 * sqrt(2.0 * (n - 1)), "%s: %g of %d", what, chi2, n - 1);
}

Test(rng, uniform_laws, .timeout = 120)
{
    static float f[SAMPLES];
    static double d[SAMPLES];
    static int cell[256], pair[256];
    for (uint64_t seed = 1; seed < 4; seed++) {
        wf_fill_uniform_f32(f, 0, SAMPLES, seed, 0);
        memset(cell, 0, sizeof cell);
        memset(pair, 0, sizeof pair);
        for (int i = 0; i < SAMPLES; i++) {
            cr_assert(f[i] >= 0 && f[i] < 1);
            d[i] = f[i];
            cell[(int)(f[i] * 256)]++;
            pair[(int)(f[i] * 16) * 16 + (int)(f[(i + 1) % SAMPLES] * 16)]++;
        }
        check_chi2(cell, 256, "f32 cells");
        check_chi2(pair, 256, "f32 neighbours");
        check_ks(d, identity, "uniform f32");
        wf_fill_uniform_f64(d, 0, SAMPLES, seed, 0);
        memset(cell, 0, sizeof cell);
        for (int i = 0; i < SAMPLES; i++) {
            cr_assert(d[i] >= 0 && d[i] < 1);
            cell[(int)(ldexp(d[i], 32) - floor(ldexp(d[i], 24)) * 256)]++;
        }
        check_chi2(cell, 256, "f64 middle bits");
        check_ks(d, identity, "uniform f64");
    }
}

Test(rng, normal_laws, .timeout = 120)
{
    static float f[SAMPLES];
    static double d[SAMPLES];
    for (uint64_t seed = 1; seed < 4; seed++) {
        wf_fill_normal_f32(f, 0, SAMPLES, seed, 7);
        double cross = 0;
        for (int i = 0; i < SAMPLES; i++) {
            cr_assert(fabsf(f[i]) < 6.6f);
            d[i] = f[i];
            cross += d[i] * f[i ^ 1];
        }
        cr_assert(fabs(cross) < 4 * sqrt(2.0 * SAMPLES), "halves of a pair are correlated");
        check_ks(d, normal_cdf, "normal f32");
        wf_fill_normal_f64(d, 0, SAMPLES, seed, 7);
        double m1 = 0, m2 = 0, m4 = 0;
        for (int i = 0; i < SAMPLES; i++) {
            m1 += d[i] / SAMPLES;
            m2 += d[i] * d[i] / SAMPLES;
            m4 += pow(d[i], 4) / SAMPLES;
        }
        cr_assert(fabs(m1) < 4 / sqrt(SAMPLES) && fabs(m2 - 1) < 4 * sqrt(2.0 / SAMPLES));
        cr_assert(fabs(m4 - 3) < 4 * sqrt(96.0 / SAMPLES));
        check_ks(d, normal_cdf, "normal f64");
    }
}

Test(rng, discrete_laws, .timeout = 120)
{
    static uint8_t coin[SAMPLES];
    static int64_t x[SAMPLES];
    static int cell[1000];
    static const double p[] = {0.001, 0.25, 0.5, 0.9};
    for (int k = 0; k < 4; k++) {
        wf_fill_bernoulli(coin, 0, SAMPLES, 11, 0, p[k]);
        double ones = 0;
        for (int i = 0; i < SAMPLES; i++) {
            cr_assert(coin[i] <= 1);
            ones += coin[i];
        }
        cr_assert(fabs(ones - p[k] * SAMPLES) < 4 * sqrt(SAMPLES * p[k] * (1 - p[k])));
    }
    static const double edge[] = {0, -1, (double)NAN, 1, 2, (double)INFINITY};
    for (int k = 0; k < 6; k++) {
        wf_fill_bernoulli(coin, 0, 1000, 11, 0, edge[k]);
        for (int i = 0; i < 1000; i++)
            cr_assert_eq(coin[i], k >= 3);
    }
    wf_fill_randint(x, 0, SAMPLES, 5, 0, -500, 500);
    for (int i = 0; i < SAMPLES; i++) {
        cr_assert(x[i] >= -500 && x[i] < 500);
        cell[x[i] + 500]++;
    }
    check_chi2(cell, 1000, "randint");
    /* three quarters of the 64-bit range: a 64-bit draw scaled would favour every third value */
    int64_t high = (int64_t)((uint64_t)1 << 62);
    wf_fill_randint(x, 0, SAMPLES, 6, 0, INT64_MIN, high);
    memset(cell, 0, sizeof cell);
    for (int i = 0; i < SAMPLES; i++) {
        cr_assert(x[i] < high);
        cell[((uint64_t)x[i] + ((uint64_t)1 << 63)) % 3]++;
    }
    check_chi2(cell, 3, "randint, huge range");
    wf_fill_randint(x, 0, 4, 6, 0, 9, 9);
    cr_assert(x[0] == 9 && x[3] == 9);
}
