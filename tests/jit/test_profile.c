/*
 * tests/jit/test_profile.c -- the timeline: what is in it, that files are well formed at every moment, that spans nest
 * and add up, and that the bounds hold.
 *
 * ctest: threads
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "eager/env.h"
#include "eager/profile.h"
#include "io/inflate.h"
#include "tests/support/effort.h"
#include "tests/support/support.h"
#include "tests/support/trace_file.h"
#include "weft/weft.h"

static char path[64];

static void setup(void)
{
    snprintf(path, sizeof path, "/tmp/weft-test-profile-%ld.json", (long)getpid());
}

static void setup_zipped(void)
{
    if (!wf_inflate_available())
        cr_skip_test("built without zlib");
    snprintf(path, sizeof path, "/tmp/weft-test-profile-%ld.json.gz", (long)getpid());
}

static void teardown(void)
{
    unlink(path);
}

static trace_file read_trace(void)
{
    trace_file f = trace_file_read(path);
    cr_assert_eq(f.error[0], 0, "%s", f.error);
    cr_assert(trace_file_nests(&f), "the spans of a track overlap");
    return f;
}

static bool inside(const trace_event *e, const trace_event *outer)
{
    return e->tid == outer->tid && e->ts >= outer->ts && e->ts + e->dur <= outer->ts + outer->dur;
}

/* -- eager ---------------------------------------------------------------------------------------------- */

Test(profile, ops, .init = setup, .fini = teardown)
{
    weft_tensor early = weft_zeros(weft_shape(2), WEFT_F32);
    cr_assert_eq(weft_profile_end(), WEFT_EINVALID);
    cr_assert_eq(weft_profile_flush(), WEFT_EINVALID);
    cr_assert_eq(weft_profile_begin(.path = NULL), WEFT_EINVALID);
    cr_assert_eq(weft_profile_begin(.path = "/no/such/folder/trace.json"), WEFT_EIO);
    cr_assert_eq(weft_profile_begin(.path = path), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_profile_begin(.path = path), WEFT_EINVALID);
    weft_profile_range_begin("work");
    weft_tensor x = weft_randn(weft_shape(64, 784), WEFT_F32);
    weft_tensor w = weft_randn(weft_shape(784, 10), WEFT_F32);
    weft_tensor y = weft_add(weft_matmul(x, w), weft_f(0.5));
    weft_add_(y, weft_transpose(weft_transpose(y, 0, 1), 0, 1));
    weft_profile_range_end();
    cr_assert_eq(weft_profile_end(), WEFT_OK);
    weft_relu(early); /* not in it */
    trace_file f = read_trace();
    const trace_event *range = trace_find(&f, "range", "work", 0),
                      *add = trace_find(&f, "op", "add", 0);
    const trace_event *mm = trace_find(&f, "op", "matmul", 0),
                      *in = trace_find(&f, "op", "add_", 0);
    cr_assert(range && add && mm && in);
    cr_assert_str_eq(mm->detail, "f32[64,784] f32[784,10] -> f32[64,10]");
    cr_assert_eq(mm->bytes, 4 * (64 * 784 + 784 * 10 + 64 * 10));
    cr_assert_str_eq(add->detail, "f32[64,10] 0.5 -> f32[64,10]");
    cr_assert_not_null(strstr(mm->site, "test_profile.c:"));
    cr_assert_not_null(strstr(in->site, "test_profile.c:"));
    cr_assert(inside(mm, range) && inside(add, range) && inside(in, range));
    cr_assert_not_null(trace_find(&f, "op", "permute", 1));
    cr_assert_eq(trace_find(&f, "op", "permute", 0)->bytes, 0, "a view moves nothing");
    cr_assert_null(trace_find(&f, "op", "relu", 0));
    cr_assert_eq(f.said_dropped, 0);
    trace_file_free(&f);
}

Test(profile, backward_names_the_forward_call, .init = setup, .fini = teardown)
{
    weft_tensor x = weft_randn(weft_shape(8, 8), WEFT_F32);
    weft_requires_grad_(x, true);
    cr_assert_eq(weft_profile_begin(.path = path), WEFT_OK);
    weft_tensor y = weft_sum(weft_matmul(x, x));
    cr_assert_eq(weft_backward(.loss = y), WEFT_OK);
    cr_assert_eq(weft_profile_end(), WEFT_OK);
    trace_file f = read_trace();
    const trace_event *b = trace_find(&f, "backward", NULL, 0);
    const trace_event *mm = trace_find(&f, "op", "matmul", 0),
                      *g = trace_find(&f, "op", "matmul", 1);
    cr_assert(b && mm && g && inside(g, b) && !inside(mm, b));
    cr_assert_str_eq(g->site, mm->site);
    trace_file_free(&f);
}

/* -- traced --------------------------------------------------------------------------------------------- */

static weft_status chain(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor h = weft_matmul(in[0], in[1]);
    out[0] = weft_gelu(weft_mul(weft_add(h, weft_f(1)), weft_f(2)));
    return WEFT_OK;
}

Test(profile, traced_calls_add_up, .init = setup, .fini = teardown)
{
    weft_tensor x[2] = {weft_randn(weft_shape(128, 128), WEFT_F32),
                        weft_randn(weft_shape(128, 128), WEFT_F32)},
                y;
    weft_jit *j = weft_jit_trace(chain, NULL, .name = "chain", .synchronous = true);
    cr_assert_eq(weft_profile_begin(.path = path), WEFT_OK);
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(weft_jit_call(j, x, 2, &y, 1), WEFT_OK);
    }
    cr_assert_eq(weft_profile_end(), WEFT_OK);
    weft_jit_free(j);
    trace_file f = read_trace();
    cr_assert_eq(trace_count(&f, "call", "chain"), 4);
    cr_assert_eq(trace_count(&f, "plan", "chain"), 1);
    cr_assert_eq(trace_count(&f, "op", NULL), 0, "recording is no running");
    for (int i = 0; i < 4; i++) {
        const trace_event *call = trace_find(&f, "call", "chain", i);
        const trace_event *record = trace_find(&f, "record", "chain", i),
                          *run = trace_find(&f, "run", "chain", i);
        cr_assert(record && run && inside(record, call) && inside(run, call));
        cr_assert_geq(run->ts, record->ts + record->dur);
        int64_t sum = 0, launches = 0;
        for (int k = 0; k < trace_count(&f, "kernel", NULL); k++) {
            const trace_event *e = trace_find(&f, "kernel", NULL, k);
            if (inside(e, run)) {
                sum += e->dur;
                launches++;
            }
        }
        cr_assert_eq(launches, 1, "the chain runs on the product's rows");
        cr_assert(sum > 0 && sum <= run->dur, "%lld of %lld", (long long)sum, (long long)run->dur);
    }
    const trace_event *fused = trace_find(&f, "kernel", NULL, 0);
    cr_assert_not_null(strstr(fused->detail, "matmul add mul gelu"), "%s", fused->detail);
    cr_assert_not_null(strstr(fused->site, "test_profile.c:"), "%s", fused->site);
    cr_assert_eq(fused->bytes, 5 * 4 * 128 * 128);
    trace_file_free(&f);
}

static weft_status reads(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor s = weft_sum(in[0]);
    out[0] = weft_mul(in[0], weft_f(weft_item_f64(s)));
    return WEFT_OK;
}

Test(profile, breaks_and_compilations, .init = setup, .fini = teardown)
{
    weft_tensor x = weft_randn(weft_shape(1000), WEFT_F32), y;
    weft_jit *j = weft_jit_trace(reads, NULL, .name = "reads", .synchronous = true);
    cr_assert_eq(weft_profile_begin(.path = path), WEFT_OK);
    cr_assert_eq(weft_jit_call(j, &x, 1, &y, 1), WEFT_OK);
    cr_assert_eq(weft_jit_begin(j), WEFT_OK);
    weft_exp(weft_neg(x));
    cr_assert_eq(weft_jit_end(j), WEFT_OK);
    cr_assert_eq(weft_profile_end(), WEFT_OK);
    weft_jit_free(j);
    trace_file f = read_trace();
    const trace_event *mark = trace_find(&f, "mark", "break", 0);
    cr_assert(mark && mark->ph == 'i');
    cr_assert_not_null(strstr(mark->detail, "item"), "%s", mark->detail);
    cr_assert_eq(trace_count(&f, "run", "reads"), 3);
    cr_assert_eq(trace_count(&f, "call", "reads"), 2);
    const trace_event *compile = trace_find(&f, "compile", NULL, 0);
    cr_assert(wf_env()->WEFT_JIT == 0 || (compile && *compile->detail));
    trace_file_free(&f);
}

static weft_status pointwise(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_gelu(weft_mul(weft_add(in[0], in[1]), weft_f(2)));
    return WEFT_OK;
}

Test(profile, kernels_have_a_history, .init = setup, .fini = teardown)
{
    static weft_kernel_info k[64];
    weft_tensor x[2] = {weft_randn(weft_shape(64, 64), WEFT_F32),
                        weft_randn(weft_shape(64, 64), WEFT_F32)},
                y;
    weft_jit *j = weft_jit_trace(pointwise, NULL, .name = "pointwise", .synchronous = true);
    cr_assert_eq(weft_profile_begin(.path = path), WEFT_OK);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(weft_jit_call(j, x, 2, &y, 1), WEFT_OK);
    }
    cr_assert_eq(weft_profile_end(), WEFT_OK);
    cr_assert_eq(weft_jit_call(j, x, 2, &y, 1), WEFT_OK); /* not counted */
    int n = weft_kernels(k, 64), mine = 0;
    cr_assert(n >= 1 && n <= 64 && n == weft_kernels(NULL, 0));
    trace_file f = read_trace();
    for (int i = 0; i < n; i++) {
        if (k[i].runs == 0) {
            continue;
        }
        mine++;
        cr_assert(*k[i].name && *k[i].backend && k[i].bytes > 0 && !k[i].pending && k[i].hash);
        cr_assert(k[i].native != (*k[i].reason != 0), "native, or a reason why not");
        cr_assert_eq(k[i].runs, 3);
        int64_t sum = 0;
        const char *name = k[i].native ? k[i].name : "gelu";
        for (int e = 0; e < trace_count(&f, "kernel", name); e++) {
            sum += trace_find(&f, "kernel", name, e)->dur;
        }
        cr_assert_eq(sum, k[i].run_ns);
        char *text = NULL;
        size_t size;
        FILE *out = open_memstream(&text, &size);
        cr_assert_eq(weft_kernel_print(k[i].name, out), WEFT_OK, "%s", weft_last_error());
        fclose(out);
        cr_assert(strstr(text, "fma f32") && strstr(text, "define"), "%s", text);
        free(text);
    }
    cr_assert_eq(mine, 1);
    cr_assert_eq(weft_kernel_print("no such", stdout), WEFT_EINVALID);
    cr_assert_eq(weft_kernel_print(NULL, stdout), WEFT_EINVALID);
    weft_jit_free(j);
    trace_file_free(&f);
}

/* -- threads -------------------------------------------------------------------------------------------- */

enum { THREADS = 4, LOOPS = 200 };

static void *work(void *arg)
{
    const char *name = arg;
    weft_tensor x = weft_ones(weft_shape(16), WEFT_F32);
    for (int i = 0; i < LOOPS; i++) {
        weft_scope s = weft_scope_begin();
        weft_profile_range_begin(name);
        weft_profile_range_begin("inner");
        weft_add(x, x);
        weft_profile_range_end();
        weft_profile_range_end();
        weft_scope_end(s);
    }
    return NULL;
}

Test(profile, threads_have_tracks, .init = setup, .fini = teardown)
{
    static const char *const names[THREADS] = {"one", "two", "three", "four"};
    pthread_t t[THREADS];
    cr_assert_eq(weft_profile_begin(.path = path), WEFT_OK);
    for (int i = 0; i < THREADS; i++) {
        cr_assert_eq(pthread_create(&t[i], NULL, work, (void *)(uintptr_t)names[i]), 0);
    }
    for (int i = 0; i < 20; i++) { /* handing out meanwhile */
        cr_assert_eq(weft_profile_flush(), WEFT_OK);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], NULL);
    }
    weft_profile_stats s;
    cr_assert_eq(weft_profile_end(), WEFT_OK);
    weft_profile_get_stats(&s);
    cr_assert(!s.active && s.dropped == 0);
    trace_file f = read_trace();
    cr_assert_eq(f.said_events, s.events);
    int64_t tids[THREADS];
    for (int i = 0; i < THREADS; i++) {
        cr_assert_eq(trace_count(&f, "range", names[i]), LOOPS, "%s", names[i]);
        tids[i] = trace_find(&f, "range", names[i], 0)->tid;
        for (int k = 0; k < i; k++) {
            cr_assert_neq(tids[i], tids[k]);
        }
        cr_assert_eq(trace_find(&f, "range", names[i], LOOPS - 1)->tid, tids[i]);
    }
    cr_assert_eq(trace_count(&f, "op", "add"), THREADS * LOOPS);
    int named = 0;
    for (int i = 0; i < f.n; i++) {
        named += f.events[i].ph == 'M' && strcmp(f.events[i].name, "thread_name") == 0;
    }
    cr_assert_geq(named, THREADS);
    trace_file_free(&f);
}

/* -- bounds --------------------------------------------------------------------------------------------- */

Test(profile, cap, .init = setup, .fini = teardown)
{
    weft_tensor x = weft_ones(weft_shape(4), WEFT_F32);
    weft_profile_stats s;
    cr_assert_eq(weft_profile_begin(.path = path, .max_events = 100), WEFT_OK);
    for (int i = 0; i < 5000; i++) {
        weft_free(weft_neg(x));
    }
    weft_profile_get_stats(&s);
    cr_assert(s.active && s.events == 100, "%lld", (long long)s.events);
    cr_assert_geq(s.events + s.dropped, 5000);
    cr_assert_eq(weft_profile_end(), WEFT_OK);
    trace_file f = read_trace();
    int kept = 0;
    for (int i = 0; i < f.n; i++) {
        kept += f.events[i].ph == 'X' || f.events[i].ph == 'C';
    }
    cr_assert_eq(kept, 100);
    cr_assert_eq(f.said_events, 100);
    cr_assert_eq(f.said_dropped, s.dropped);
    const trace_event *dropped = trace_find(&f, "profile", NULL, 0);
    cr_assert(dropped && strstr(dropped->name, "dropped"));
    trace_file_free(&f);
    cr_assert_eq(weft_profile_begin(.path = path), WEFT_OK); /* counts begin anew */
    weft_neg(x);
    cr_assert_eq(weft_profile_end(), WEFT_OK);
    f = read_trace();
    cr_assert(f.said_dropped == 0 && trace_count(&f, "op", "neg") == 1);
    trace_file_free(&f);
}

/* Nothing is written beyond the bound but the end of the file, which says what is missing. */
Test(profile, bytes, .init = setup, .fini = teardown)
{
    enum { MOST = 200000, END = 1000 };
    weft_tensor x = weft_ones(weft_shape(4), WEFT_F32);
    weft_profile_stats s;
    struct stat st;
    cr_assert_eq(weft_profile_begin(.path = path, .max_bytes = MOST), WEFT_OK);
    for (int i = 0; i < 20000; i++) {
        weft_free(weft_neg(x));
    }
    cr_assert_eq(weft_profile_end(), WEFT_OK);
    cr_assert_eq(stat(path, &st), 0);
    cr_expect_leq((int64_t)st.st_size, MOST + END);
    cr_expect_geq((int64_t)st.st_size, MOST - END);
    weft_profile_get_stats(&s);
    cr_expect_geq(s.events + s.dropped, 20000);
    trace_file f = read_trace();
    int kept = 0;
    for (int i = 0; i < f.n; i++) {
        kept += f.events[i].ph == 'X' || f.events[i].ph == 'C';
    }
    cr_expect_eq(kept, f.said_events);
    cr_expect_gt(f.said_dropped, 0);
    cr_expect_eq(f.said_dropped, s.dropped);
    trace_file_free(&f);
}

/* A training step of few ops, as programs have them: operands of several shapes, lines, backward passes, memory that changes. */
static void train(int steps)
{
    weft_tensor w[2] = {weft_keep(weft_randn(weft_shape(64, 128), WEFT_F32)),
                        weft_keep(weft_randn(weft_shape(128, 10), WEFT_F32))};
    weft_tensor x = weft_keep(weft_randn(weft_shape(32, 64), WEFT_F32));
    for (int i = 0; i < 2; i++) {
        weft_requires_grad_(w[i], true);
    }
    for (int i = 0; i < steps; i++) {
        const weft_scope s = weft_scope_begin();
        weft_profile_range_begin("step");
        weft_tensor h = weft_gelu(weft_matmul(x, w[0]));
        weft_tensor y = weft_softmax(weft_matmul(h, w[1]), -1);
        cr_assert_eq(weft_backward(.loss = weft_mean(weft_mul(y, y))), WEFT_OK);
        weft_no_grad_begin();
        for (int k = 0; k < 2; k++) {
            weft_sub_(w[k], weft_mul(weft_grad(w[k]), weft_f(0.01)));
            weft_set_grad(w[k], WEFT_NONE);
        }
        weft_no_grad_end();
        weft_profile_range_end();
        weft_scope_end(s);
    }
    weft_free(w[0]), weft_free(w[1]), weft_free(x);
}

/* A million events in 50 MB: what the bound for bytes is by default. */
Test(profile, events_of_a_zipped_file_are_small, .init = setup_zipped, .fini = teardown)
{
    enum { MOST = 50 };
    weft_profile_stats s;
    struct stat st;
    const int steps = (int)effort_of(400);
    cr_assert_eq(weft_profile_begin(.path = path), WEFT_OK);
    train(steps);
    cr_assert_eq(weft_profile_end(), WEFT_OK);
    weft_profile_get_stats(&s);
    cr_assert_geq(s.events, 30 * steps);
    cr_assert_eq(s.dropped, 0);
    cr_assert_eq(stat(path, &st), 0);
    cr_expect_leq((int64_t)st.st_size, MOST * s.events, "%.1f bytes an event",
                  (double)st.st_size / (double)s.events);
    trace_file f = read_trace();
    cr_expect_eq(f.said_events, s.events);
    cr_expect_eq(trace_count(&f, "range", "step"), steps);
    cr_expect_eq(trace_count(&f, "backward", NULL), steps);
    int kept = 0;
    for (int i = 0; i < f.n; i++) {
        kept += f.events[i].ph == 'X' || f.events[i].ph == 'C';
    }
    cr_expect_eq(kept, s.events);
    trace_file_free(&f);
}

/* The bound holds for what is written. */
Test(profile, bytes_of_a_zipped_file, .init = setup_zipped, .fini = teardown)
{
    enum { MOST = 100000, END = 1000 };
    weft_profile_stats s;
    struct stat st;
    cr_assert_eq(weft_profile_begin(.path = path, .max_bytes = MOST), WEFT_OK);
    train(200);
    cr_assert_eq(weft_profile_end(), WEFT_OK);
    cr_assert_eq(stat(path, &st), 0);
    cr_expect_leq((int64_t)st.st_size, MOST + END);
    cr_expect_geq((int64_t)st.st_size, MOST - END);
    weft_profile_get_stats(&s);
    trace_file f = read_trace();
    cr_expect_gt(f.said_dropped, 0);
    cr_expect_eq(f.said_dropped, s.dropped);
    cr_expect_eq(f.said_events, s.events);
    cr_expect_geq(s.events * 50, MOST);
    trace_file_free(&f);
}

/* A disk that becomes full (here: a bound on the size of files) leaves what was written before, whole. */
static void full_disk(void)
{
    enum { MOST = 40000 };
    const weft_tensor x = weft_ones(weft_shape(4), WEFT_F32);
    struct rlimit old;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    const struct rlimit low = {MOST, old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(weft_profile_begin(.path = path), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &low), 0);
    for (int i = 0; i < 40000; i++) {
        weft_free(weft_neg(x));
        if (i == 50) {
            cr_assert_eq(weft_profile_flush(), WEFT_OK, "%s", weft_last_error());
        }
    }
    cr_expect_eq(weft_profile_end(), WEFT_EIO);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    trace_file f = read_trace();
    cr_expect(f.n > 50, "%d events", f.n);
    trace_file_free(&f);
}

Test(profile, full_disk, .init = setup, .fini = teardown)
{
    full_disk();
}

Test(profile, full_disk_zipped, .init = setup_zipped, .fini = teardown)
{
    full_disk();
}

static void count_event(void *user, const weft_profile_event *e)
{
    (void)e;
    ++*(int *)user;
}

/* A full file is no reason for a function to get more events than were asked for. */
Test(profile, bytes_beside_a_function, .init = setup, .fini = teardown)
{
    enum { MOST = 1000 };
    weft_tensor x = weft_ones(weft_shape(4), WEFT_F32);
    weft_profile_stats s;
    int n = 0;
    cr_assert_eq(weft_profile_begin(.path = path, .max_events = MOST, .max_bytes = 10000,
                                    .event = count_event, .user = &n),
                 WEFT_OK);
    for (int i = 0; i < 20000; i++) {
        weft_free(weft_neg(x));
    }
    cr_assert_eq(weft_profile_end(), WEFT_OK);
    cr_expect_eq(n, MOST);
    weft_profile_get_stats(&s);
    cr_expect_geq(s.events + s.dropped, 20000);
    trace_file f = read_trace();
    cr_expect_eq(f.said_dropped, s.dropped);
    trace_file_free(&f);
}

/* -- names ---------------------------------------------------------------------------------------------- */

Test(profile, hostile_names, .init = setup, .fini = teardown)
{
    static const struct {
        const char *name, *want;
    } cases[] = {{"\"},{\"ph\":\"X\"", "\"},{\"ph\":\"X\""},
                 {"back\\slash\\u0041", "back\\slash\\u0041"},
                 {"line\nfeed\ttab\x01\x1f\x7f", "line\nfeed\ttab\x01\x1f\x7f"},
                 {"gr\xc3\xb6\xc3\x9f"
                  "e \xf0\x9f\x98\x80",
                  "gr\xc3\xb6\xc3\x9f"
                  "e \xf0\x9f\x98\x80"},
                 {"over\xc0\xaflong", "over\xef\xbf\xbd\xef\xbf\xbdlong"},
                 {"half \xed\xa0\x80", "half \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                 {"cut \xe2\x82", "cut \xef\xbf\xbd\xef\xbf\xbd"},
                 {"", ""}};
    enum { CASES = sizeof cases / sizeof *cases };
    char long_name[300];
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    cr_assert_eq(weft_profile_begin(.path = path), WEFT_OK);
    for (int i = 0; i < CASES; i++) {
        weft_profile_range_begin(cases[i].name);
        weft_profile_range_end();
    }
    weft_profile_range_begin(long_name);
    weft_profile_range_end();
    weft_profile_range_begin(NULL);
    weft_profile_range_end();
    weft_profile_range_end(); /* one too many */
    for (int i = 0; i < 100; i++) {
        weft_profile_range_begin("deep");
    }
    for (int i = 0; i < 100; i++) {
        weft_profile_range_end();
    }
    cr_assert_eq(weft_profile_end(), WEFT_OK);
    trace_file f = read_trace();
    for (int i = 0; i < CASES; i++) {
        cr_assert_geq(trace_count(&f, "range", cases[i].want), 1, "name %d", i);
    }
    long_name[63] = 0;
    cr_assert_eq(trace_count(&f, "range", long_name), 1);
    cr_assert_eq(trace_count(&f, "range", "deep"), 32);
    trace_file_free(&f);
    cr_assert(!trace_is_json("{\"a\":\"\x01\"}") && !trace_is_json("[1,]") &&
              !trace_is_json("{}x"));
    cr_assert(!trace_is_json("\"\xc0\xaf\"") && !trace_is_json("[01]") && trace_is_json("[1,{}]"));
}

/* -- programs that end early ---------------------------------------------------------------------------- */

static void many_ops(int n)
{
    weft_tensor x = weft_ones(weft_shape(4), WEFT_F32);
    for (int i = 0; i < n; i++) {
        weft_free(weft_neg(x));
    }
}

/* Runs a program that ends as `how` says; the trace it leaves. */
static trace_file end_early(int how)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (weft_profile_begin(.path = path) != WEFT_OK) {
            _exit(9);
        }
        weft_profile_range_begin("never ends");
        many_ops(3000);
        if (how == 0) {
            raise(SIGKILL);
        } else if (how == 1) {
            exit(0);
        }
        _exit(0);
    }
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(!WIFEXITED(status) || WEXITSTATUS(status) == 0);
    return read_trace();
}

static void is_valid_at_every_moment(void)
{
    trace_file f;
    cr_assert_eq(weft_profile_begin(.path = path), WEFT_OK);
    f = read_trace();
    cr_assert_eq(f.n, 1, "the process has a name");
    trace_file_free(&f);
    for (int i = 0; i < 5; i++) {
        many_ops(700);
        f = read_trace();
        trace_file_free(&f);
    }
    pid_t pid = fork(); /* the child has no profile, and does not touch the file */
    if (pid == 0) {
        weft_profile_stats s;
        weft_profile_get_stats(&s);
        many_ops(2000);
        exit(s.active);
    }
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(weft_profile_end(), WEFT_OK);
    f = read_trace();
    cr_assert_eq(trace_count(&f, "op", "neg"), 3500);
    trace_file_free(&f);
}

Test(profile, valid_at_every_moment, .init = setup, .fini = teardown)
{
    is_valid_at_every_moment();
}

Test(profile, valid_at_every_moment_zipped, .init = setup_zipped, .fini = teardown)
{
    is_valid_at_every_moment();
}

/* A profile stays open: with the number of a stream that is closed it would get what the program writes to that. */
Test(profile, keeps_off_the_standard_streams, .init = setup, .fini = teardown)
{
    const pid_t pid = fork();
    if (pid == 0) {
        close(STDERR_FILENO);
        const bool begun = weft_profile_begin(.path = path) == WEFT_OK;
        many_ops(3000);
        const bool away = write(STDERR_FILENO, "a message", 9) < 0;
        many_ops(3000);
        _exit(begun && away && weft_profile_end() == WEFT_OK ? 0 : 1);
    }
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    trace_file f = read_trace();
    cr_assert_eq(trace_count(&f, "op", "neg"), 6000);
    trace_file_free(&f);
}

static void check_programs_that_end_early(void)
{
    trace_file f = end_early(0); /* killed: all but the last batch */
    int n = trace_count(&f, "op", "neg");
    cr_assert(n > 1000 && n < 3000, "%d", n);
    trace_file_free(&f);
    f = end_early(1); /* exits: everything */
    cr_assert_eq(trace_count(&f, "op", "neg"), 3000);
    trace_file_free(&f);
    f = end_early(2);
    cr_assert_gt(trace_count(&f, "op", "neg"), 1000);
    trace_file_free(&f);
}

Test(profile, programs_that_end_early, .init = setup, .fini = teardown)
{
    check_programs_that_end_early();
}

Test(profile, programs_that_end_early_zipped, .init = setup_zipped, .fini = teardown)
{
    check_programs_that_end_early();
}

/* -- other ways in and out ------------------------------------------------------------------------------ */

typedef struct seen {
    int ops, devices, memory;
    int64_t ns;
} seen;

static void receive(void *user, const weft_profile_event *e)
{
    seen *s = user;
    s->ops += e->kind == WEFT_PROFILE_OP && strcmp(e->name, "neg") == 0 &&
              strcmp(e->detail, "f32[4] -> f32[4]") == 0 && e->device == -1;
    s->devices += e->kind == WEFT_PROFILE_DEVICE && e->device == 1 && e->stream == 7;
    s->memory += e->kind == WEFT_PROFILE_MEMORY;
    s->ns += e->duration_ns;
}

/* As a GPU would: a launch on the host, whose times on the device are known when they are collected. */
static int64_t launched;
static uint64_t flow;

static void late(void)
{
    if (launched) {
        wf_prof_device(
            1, 7, launched, 5000,
            &(wf_prof_span){WEFT_PROFILE_DEVICE, .name = "k", .flow = flow, .bytes = 64});
        launched = 0;
    }
}

Test(profile, callback_and_devices, .init = setup, .fini = teardown)
{
    seen s = {0};
    wf_prof_set_collector(late);
    cr_assert_eq(weft_profile_begin(.path = path, .event = receive, .user = &s), WEFT_OK);
    many_ops(10);
    flow = wf_prof_new_flow();
    int64_t start = wf_prof_start();
    wf_prof_end(start, &(wf_prof_span){WEFT_PROFILE_KERNEL, .name = "launch k", .flow = flow});
    launched = wf_prof_clock() + 1000;
    cr_assert_eq(weft_profile_flush(), WEFT_OK);
    cr_assert(s.ops == 10 && s.devices == 1 && s.memory >= 1 && s.ns > 5000);
    many_ops(5);
    cr_assert_eq(weft_profile_end(), WEFT_OK);
    wf_prof_set_collector(NULL);
    cr_assert_eq(s.ops, 15);
    trace_file f = read_trace();
    const trace_event *k = trace_find(&f, "device", "k", 0),
                      *l = trace_find(&f, "kernel", "launch k", 0);
    cr_assert(k && l && k->dur == 5000 && k->tid == 7 && k->pid != l->pid);
    int ends = 0;
    for (int i = 0; i < f.n; i++) {
        const trace_event *e = &f.events[i];
        if (e->ph == 's' || e->ph == 'f') {
            const trace_event *at = e->ph == 's' ? l : k;
            cr_assert(e->id == (int64_t)flow && e->pid == at->pid && e->tid == at->tid &&
                      e->ts == at->ts);
            ends++;
        }
    }
    cr_assert_eq(ends, 2);
    trace_file_free(&f);
    for (int i = 0; i < WEFT_PROFILE_KIND_COUNT; i++) {
        cr_assert_str_neq(weft_profile_kind_name((weft_profile_kind)i), "invalid");
    }
    cr_assert_str_eq(weft_profile_kind_name(WEFT_PROFILE_KIND_COUNT), "invalid");
}
