/*
 * tests/cuda/test_cuda_attention.c -- attention and its gradient through cuDNN's graphs, on a fake of it that executes them
 * operation by operation; what is not for it goes to our own kernel. The last test asks the real library, where it is
 * found, whether it has engines for the graphs: that takes no GPU.
 *
 * The reference is the CPU's row on the same numbers. Probabilities are rounded to the operands' type here and not there, so
 * results differ by a few roundings of that type.
 */
#include "tests/cuda/cuda_support.h"
#include "tests/cuda/real_dnn.h"

#include <math.h>

#include "eager/alloc.h"
#include "eager/cuda/dnn.h"
#include "eager/cuda/dnn_attention.h"
#include "eager/cuda/library.h"
#include "jit/diskcache.h"
#include "tests/support/support.h"
#include "weft/weft.h"

static void with_dnn(const char *version)
{
    setenv("WEFT_NVRTC", WEFT_FAKE_NVRTC, 1);
    setenv("WEFT_CUDNN", WEFT_FAKE_CUDNN, 1);
    setenv("WEFT_CUBLASLT", "none", 1);
    setenv("FAKE_CUDNN_VERSION", version, 1);
    with_fake(FAKE_LATE, 3);
}

/* A count that the fake keeps. */
static long count_of(const char *symbol)
{
    long (*count)(void) = NULL;
    void *lib = dlopen(WEFT_FAKE_CUDNN, RTLD_NOW | RTLD_LOCAL);
    void *found = lib ? dlsym(lib, symbol) : NULL;
    memcpy(&count, &found, sizeof found);
    cr_assert(count);
    return count();
}

/* How the operands lie. */
enum { PLAIN, HEADS_INSIDE, ODD_PLACE, COLUMNS_APART, SHARED_KEYS };

typedef struct problem {
    int64_t batch, heads, l, s, width, value_width;
    weft_dtype dtype;
    int lies;
    bool causal, masked;
    int rank; /* 0: 4 */
} problem;

enum { MOST = 1 << 14 };

/* Numbers in an array on d, looked at as p says. */
static weft_tensor operand(const problem *p, int64_t rows, int64_t width, uint64_t seed,
                           weft_device d)
{
    static float v[MOST];
    const int64_t b = p->batch, h = p->heads, n = b * h * rows * width;
    const bool shared = p->lies == SHARED_KEYS && seed != 1;
    test_rng r = {seed};
    cr_assert(n < MOST);
    for (int64_t i = 0; i <= n; i++)
        v[i] = (float)test_uniform(&r, -2, 2);
    weft_tensor all =
        weft_to(weft_cast(weft_from_data(v, weft_shape(n + 1), WEFT_F32), p->dtype), d);
    const int64_t first = p->lies == ODD_PLACE;
    weft_tensor t = weft_slice(all, 0, first, (shared ? n / h : n) + first, 1);
    if (p->lies == HEADS_INSIDE)
        return weft_permute(weft_reshape(t, weft_shape(b, rows, h, width)), weft_axes(0, 2, 1, 3));
    if (p->lies == COLUMNS_APART)
        return weft_transpose(weft_reshape(t, weft_shape(b, h, width, rows)), 2, 3);
    if (shared)
        return weft_reshape(t, weft_shape(b, 1, rows, width));
    if (p->rank == 3)
        return weft_reshape(t, weft_shape(b * h, rows, width));
    return weft_reshape(t, p->rank == 5 ? weft_shape(b, 1, h, rows, width)
                                        : weft_shape(b, h, rows, width));
}

typedef struct outcome {
    int64_t n[4];
    float v[4][MOST]; /* the result and the gradients */
} outcome;

/* false: an error value somewhere. */
static bool run(const problem *p, weft_device d, outcome *out)
{
    weft_scope s = weft_scope_begin();
    weft_tensor in[3] = {operand(p, p->l, p->width, 1, d), operand(p, p->s, p->width, 2, d),
                         operand(p, p->s, p->value_width, 3, d)};
    weft_tensor mask = WEFT_NONE;
    if (p->masked)
        mask = weft_to(
            weft_cast(weft_tril(weft_ones(weft_shape(p->l, p->s), WEFT_F32), 2), WEFT_BOOL), d);
    bool ok = true;
    for (int i = 0; i < 3; i++)
        ok &= weft_requires_grad_(in[i], true) == WEFT_OK;
    weft_tensor y = weft_scaled_dot_product_attention(.q = in[0], .k = in[1], .v = in[2],
                                                      .mask = mask, .causal = p->causal);
    weft_tensor g = weft_reshape(
        weft_cast(weft_arange(0, (double)weft_numel(y), 1, WEFT_F32), WEFT_F32), weft_shape(-1));
    g = weft_sub(weft_remainder(g, weft_f(5)), weft_f(2));
    weft_tensor flat = weft_reshape(weft_contiguous(y), weft_shape(-1));
    ok = ok &&
         weft_backward(weft_sum(weft_mul(flat, weft_to(weft_cast(g, p->dtype), d)))) == WEFT_OK;
    for (int i = 0; i < 4 && ok; i++) {
        weft_tensor t = i == 0 ? y : weft_grad(in[i - 1]);
        out->n[i] = weft_numel(t);
        cr_assert(out->n[i] <= MOST);
        ok = weft_to_array(weft_contiguous(t), out->v[i], out->n[i], WEFT_F32) == WEFT_OK;
    }
    weft_scope_end(s);
    return ok;
}

static outcome want, got;

static void compare(const problem *p)
{
    const double unit = p->dtype == WEFT_F16 ? 0x1p-10 : 0x1p-7;
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(want.n[i], got.n[i]);
        double largest = 0;
        for (int64_t k = 0; k < want.n[i]; k++)
            largest = fmax(largest, fabs((double)want.v[i][k]));
        for (int64_t k = 0; k < want.n[i]; k++)
            cr_assert(fabs((double)want.v[i][k] - (double)got.v[i][k]) <= 3 * unit * largest,
                      "l %d s %d, %d [%d]: %g %g", (int)p->l, (int)p->s, i, (int)k,
                      (double)want.v[i][k], (double)got.v[i][k]);
    }
}

static void check(const problem *p)
{
    cr_assert(run(p, WEFT_CPU, &want), "%s", weft_last_error());
    cr_assert(run(p, WEFT_CUDA(0), &got), "%s", weft_last_error());
    compare(p);
}

Test(cuda_attention, forward_and_gradients)
{
    static const problem taken[] = {
        {2, 3, 17, 24, 16, 16, WEFT_BF16, PLAIN, false, false, 0},
        {2, 3, 24, 17, 16, 8, WEFT_F16, PLAIN, true, false, 0},
        {2, 2, 9, 33, 8, 24, WEFT_BF16, HEADS_INSIDE, true, false, 0},
        {1, 2, 1, 20, 8, 8, WEFT_F16, ODD_PLACE, false, false, 0},
        {2, 1, 12, 12, 8, 8, WEFT_F16, COLUMNS_APART, true, false, 0},
        {3, 1, 10, 11, 8, 8, WEFT_BF16, PLAIN, true, false, 3},
        {2, 2, 5, 6, 8, 8, WEFT_BF16, PLAIN, false, false, 5},
    };
    with_dnn("91900");
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        check(&taken[i]);
        cr_assert_eq(wf_cuda_sdpa_plans(), 2 * (int64_t)(i + 1), "case %d went to the library",
                     (int)i);
    }
    wf_cuda_counters before, after;
    wf_cuda_get_counters(&before);
    check(&taken[0]);
    wf_cuda_get_counters(&after);
    cr_assert_eq(wf_cuda_sdpa_plans(), 14, "equal shapes ask the library nothing");
    cr_assert_eq(after.hidden_waits, before.hidden_waits);
    cr_assert_eq(gpu->races(), 0, "%s", gpu->first_race());
}

/* One launch forward, as the library's is one kernel. */
Test(cuda_attention, launches)
{
    static const problem p = {2, 2, 16, 16, 8, 8, WEFT_BF16, HEADS_INSIDE, true, false, 0};
    with_dnn("91900");
    weft_tensor q = operand(&p, p.l, p.width, 1, WEFT_CUDA(0)),
                k = operand(&p, p.s, p.width, 2, WEFT_CUDA(0)),
                v = operand(&p, p.s, p.width, 3, WEFT_CUDA(0));
    wf_cuda_counters before, after;
    wf_cuda_get_counters(&before);
    cr_assert(weft_ok(weft_scaled_dot_product_attention(.q = q, .k = k, .v = v, .causal = true)));
    wf_cuda_get_counters(&after);
    cr_assert_eq(after.launches - before.launches, 1);
}

/* What is never for the library: our own kernels, and the right numbers. */
Test(cuda_attention, what_is_not_for_the_library)
{
    static const problem others[] = {
        {1, 2, 9, 10, 12, 8, WEFT_BF16, PLAIN, false, false, 0},      /* 12 wide */
        {1, 2, 9, 10, 8, 8, WEFT_F32, PLAIN, true, false, 0},         /* f32 */
        {1, 2, 9, 10, 8, 8, WEFT_BF16, PLAIN, false, true, 0},        /* a mask */
        {2, 3, 9, 10, 8, 8, WEFT_BF16, SHARED_KEYS, false, false, 0}, /* keys that heads share */
    };
    with_dnn("91900");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        check(&others[i]);
    cr_assert_eq(wf_cuda_sdpa_plans(), 0);
}

/* Releases with faults are not asked; one whose gradient fails for some lengths is asked for the others. */
Test(cuda_attention, releases)
{
    static const problem p = {1, 2, 9, 10, 8, 8, WEFT_BF16, PLAIN, true, false, 0};
    with_dnn("91001");
    check(&p);
    cr_assert_eq(wf_cuda_sdpa_plans(), 0);
}

Test(cuda_attention, an_older_release)
{
    static const problem p = {1, 1, 9, 10, 8, 8, WEFT_F16, PLAIN, true, false, 0};
    static const problem even = {1, 1, 8, 128, 8, 8, WEFT_F16, PLAIN, true, false, 0};
    with_dnn("90700");
    check(&p);
    cr_assert_eq(wf_cuda_sdpa_plans(), 1, "not the gradient");
    check(&even);
    cr_assert_eq(wf_cuda_sdpa_plans(), 3);
}

Test(cuda_attention, a_library_without_an_engine)
{
    static const problem p = {1, 2, 9, 10, 8, 8, WEFT_BF16, PLAIN, true, false, 0};
    setenv("FAKE_CUDNN_NO_ENGINE", "1", 1);
    with_dnn("91900");
    check(&p);
    cr_assert_eq(wf_cuda_sdpa_plans(), 2, "two refusals");
    cr_assert_eq(count_of("fake_cudnn_descriptors"), 0);
}

/* It says how many engines it has, which may be more than it was asked for. */
Test(cuda_attention, a_library_with_more_engines_than_room)
{
    static const problem p = {1, 2, 9, 10, 8, 8, WEFT_BF16, PLAIN, true, false, 0};
    setenv("FAKE_CUDNN_MANY_ENGINES", "1", 1);
    with_dnn("91900");
    check(&p);
    cr_assert_eq(wf_cuda_sdpa_plans(), 2, "two refusals");
    cr_assert_eq(count_of("fake_cudnn_descriptors"), 0);
}

/* A call that fails while a graph is described: our own kernel; one that fails when it is run: an error value. */
Test(cuda_attention, every_call_of_the_library_failing)
{
    with_dnn("91900");
    int errors = 0;
    long all = 0;
    for (long n = 0, at = 0; n <= all; n += n < 12 || n >= all - 8 ? 1
                                            : all - 8 - n < 59     ? all - 8 - n
                                                                   : 59,
              at++) {
        const problem p = {1, 1, 3 + at, 4 + at, 8, 8, WEFT_BF16, PLAIN, true, false, 0};
        char text[24];
        cr_assert(run(&p, WEFT_CPU, &want));
        const long before = count_of("fake_cudnn_calls");
        snprintf(text, sizeof text, "%ld", n ? before + n : 0);
        setenv("FAKE_CUDNN_FAIL", text, 1);
        const bool ok = run(&p, WEFT_CUDA(0), &got);
        all = n ? all : count_of("fake_cudnn_calls") - before;
        errors += !ok;
        if (ok)
            compare(&p);
    }
    setenv("FAKE_CUDNN_FAIL", "0", 1);
    cr_assert_eq(errors, 0, "another way is taken");
    cr_assert_eq(weft_synchronize(WEFT_CUDA(0)), WEFT_OK);
    cr_assert_eq(gpu->races(), 0, "%s", gpu->first_race());
    const problem p = {1, 1, 3, 4, 8, 8, WEFT_BF16, PLAIN, true, false, 0};
    cr_assert(run(&p, WEFT_CUDA(0), &got));
    const long alive = count_of("fake_cudnn_descriptors");
    cr_assert(run(&p, WEFT_CUDA(0), &got));
    cr_assert_eq(count_of("fake_cudnn_descriptors"), alive, "a call leaves nothing");
}

/* -- plans of earlier processes --------------------------------------------------------------------------- */

/* As another process would find it: nothing planned. */
static void forget_plans(void)
{
    cr_assert_eq(weft_synchronize(WEFT_CUDA(0)), WEFT_OK);
    wf_cuda_dnn_close(wf_cuda_peek(0));
}

static const problem small = {1, 2, 5, 6, 16, 8, WEFT_BF16, PLAIN, true, false, 0};

Test(cuda_attention, plans_are_kept_on_disk)
{
    char folder[] = "/tmp/weft_plans_......", command[80];
    memset(strchr(folder, '.'), 'X', 6);
    cr_assert(mkdtemp(folder));
    setenv("WEFT_CACHE_DIR", folder, 1);
    setenv("WEFT_CACHE_SIZE", "100000000", 1);
    with_dnn("91900");
    check(&small);
    const long asked = count_of("fake_cudnn_asked");
    cr_assert_geq(asked, 2, "forward and backward");
    static outcome first;
    first = got;
    forget_plans();
    check(&small);
    cr_assert_eq(count_of("fake_cudnn_asked"), asked, "both were there");
    cr_assert_eq(memcmp(&first, &got, sizeof got), 0);
    problem other = small;
    other.s = 7;
    check(&other);
    cr_assert_eq(count_of("fake_cudnn_asked"), asked + 2, "another shape is another plan");
    int64_t files, bytes;
    wf_disk_survey(true, &files, &bytes);
    forget_plans();
    check(&small);
    cr_assert_eq(count_of("fake_cudnn_asked"), asked + 4, "nothing is kept any more");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

static struct {
    char identity[2048], text[200];
    size_t nidentity, ntext;
    int puts, gets;
    bool damaged;
} shelf;

static void *get_from_shelf(const void *identity, size_t n, size_t *size)
{
    bool is = n == shelf.nidentity && memcmp(identity, shelf.identity, n) == 0;
    char *text = is ? malloc(shelf.ntext) : NULL;
    if (text) {
        memcpy(text, shelf.text, shelf.ntext);
        text[2] ^= shelf.damaged;
        *size = shelf.ntext;
    }
    shelf.gets += is;
    return text;
}

/* The first. */
static void put_on_shelf(const void *identity, size_t n, const void *object, size_t size)
{
    if (shelf.puts++ == 0) {
        cr_assert(n <= sizeof shelf.identity && size <= sizeof shelf.text);
        memcpy(shelf.identity, identity, shelf.nidentity = n);
        memcpy(shelf.text, object, shelf.ntext = size);
    }
}

/* What the library does not take back is planned anew; the identity names release and device. */
Test(cuda_attention, a_kept_plan_that_the_library_refuses)
{
    static const wf_cuda_store store = {get_from_shelf, put_on_shelf};
    wf_cuda_set_store(&store);
    with_dnn("91900");
    check(&small);
    cr_assert(shelf.puts == 2 && shelf.gets == 0);
    cr_assert_str_eq(shelf.identity, "cuDNN attention 1, 91900, sm_90, 4 processors, driver 13000, "
                                     "Fake GPU 0");
    const long asked = count_of("fake_cudnn_asked"), alive = count_of("fake_cudnn_descriptors");
    forget_plans();
    check(&small);
    cr_assert(shelf.puts == 3 && shelf.gets == 1, "%d, %d", shelf.puts, shelf.gets);
    cr_assert_eq(count_of("fake_cudnn_asked"), asked + 1);
    cr_assert_lt(count_of("fake_cudnn_descriptors"), alive, "a plan from text is one descriptor");
    shelf.damaged = true;
    forget_plans();
    check(&small);
    cr_assert(shelf.puts == 5 && shelf.gets == 2, "%d, %d", shelf.puts, shelf.gets);
    cr_assert_eq(count_of("fake_cudnn_asked"), asked + 3);
    cr_assert_eq(count_of("fake_cudnn_descriptors"), alive, "the refused text left nothing");
    cr_assert_eq(gpu->races(), 0, "%s", gpu->first_race());
}

/* -- the real library ---------------------------------------------------------------------------------------- */

static void lie_dense(wf_cuda_sdpa *a, int which, int64_t rows, int64_t cols)
{
    const int64_t s[4] = {a->heads * rows * cols, rows * cols, cols, 1};
    memcpy(a->strides[which], s, sizeof s);
}

/* The engine's kernel as the plan names it; "": no plan. */
static void plan_of(const dnn_graph_calls *calls, dnn_handle device, bool backward, bool causal,
                    char *name)
{
    wf_dnn_graph g = {.calls = calls};
    wf_cuda_sdpa a = {.backward = backward, .causal = causal, .dtype = WEFT_BF16};
    a.batch = 2;
    a.heads = 4;
    a.l = a.s = 512;
    a.width = a.value_width = 64;
    for (int i = 0; i < WF_CUDA_SDPA_TENSORS; i++)
        lie_dense(&a, i, 512, 64);
    wf_cuda_sdpa_graph(&g, &a);
    cr_assert_eq(g.status, DNN_OK);
    size_t workspace = 0;
    dnn_handle plan = wf_dnn_choose(&g, NULL, device, (size_t)1 << 30, &workspace);
    size_t n = 0, wanted = 0;
    name[0] = 0;
    char *text = plan ? wf_dnn_save(calls, plan, &n) : NULL;
    if (text) {
        const char *at = memmem(text, n, "kernelName\":\"", 13);
        snprintf(name, 64, "%.*s", at && at + 60 < text + n ? 47 : 1, at ? at + 13 : "?");
        wf_dnn_graph again = {.calls = calls}; /* by its text, without the graph */
        cr_assert(wf_dnn_restore(&again, NULL, device, text, n, (size_t)1 << 30, &wanted));
        cr_assert_eq(wanted, workspace);
        wf_dnn_graph_drop(&again);
        cr_assert_null(wf_dnn_restore(&again, NULL, device, text, n / 2, (size_t)1 << 30, &wanted));
        cr_assert(again.n == 0 && again.status == DNN_OK);
        wf_mfree(text);
    }
    wf_dnn_graph_drop(&g);
}

/* The graphs are ones that cuDNN has fused engines for. */
Test(cuda_attention, the_real_library_has_engines)
{
    dnn_graph_calls calls;
    wf_dnn_graph about;
    dnn_handle device = real_dnn_device(&calls, &about, REAL_DNN_H200);
    for (int i = 0; i < 4; i++) {
        char name[64];
        plan_of(&calls, device, i & 1, i & 2, name);
        cr_log_info("%s", name);
        cr_assert(name[0], "%s, %s: no engine", i & 1 ? "gradient" : "forward",
                  i & 2 ? "causal" : "whole");
    }
    wf_dnn_graph_drop(&about);
}
