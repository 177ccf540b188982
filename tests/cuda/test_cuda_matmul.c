/*
 * tests/cuda/test_cuda_matmul.c -- products through cuBLASLt: what it is asked for, on a fake of it.
 */
#include "tests/cuda/cuda_support.h"

#include <dlfcn.h>

#include "eager/cuda/blaslt.h"
#include "tests/support/support.h"

static wf_cuda_block *block(size_t n)
{
    wf_cuda_block *b = wf_cuda_alloc(0, n, &why);
    cr_assert(b, "%s", why.rule);
    return b;
}

static void with_blas(int order)
{
    setenv("WEFT_CUBLASLT", WEFT_FAKE_CUBLAS, 1);
    with_fake(order, 3);
}

/* A matrix of small integers over 8, stored with `ld` elements a row: every type holds them, and their
 * products and sums, exactly. */
static wf_cuda_block *matrix(int dtype, int64_t batch, int64_t rows, int64_t cols, int64_t ld,
                             test_rng *r, double *out)
{
    size_t size = weft_dtype_size((weft_dtype)dtype), n = (size_t)(batch * rows * ld);
    char *host = calloc(n, size);
    for (size_t i = 0; i < n; i++) {
        double v = (double)test_between(r, -4, 4) / 8;
        bool inside = (int64_t)(i % (size_t)ld) < cols;
        test_store(host + i * size, dtype, inside ? v : 1e4);
        out[i] = v;
    }
    wf_cuda_block *b = block(n * size);
    OK(wf_cuda_use(b, true, &why));
    OK(wf_cuda_upload(0, b->address, host, n * size, &why));
    free(host);
    return b;
}

typedef struct sizes {
    int64_t m, n, k, batch, pad;
} sizes;

static void product(int dtype, const sizes *s, bool ta, bool tb, bool bias, test_rng *r)
{
    static double a[20000], b[20000], c[4096];
    size_t size = weft_dtype_size((weft_dtype)dtype);
    int64_t ra = ta ? s->k : s->m, ca = ta ? s->m : s->k, rb = tb ? s->n : s->k,
            cb = tb ? s->k : s->n;
    wf_cuda_gemm g = {.dtype = dtype,
                      .trans_a = ta,
                      .trans_b = tb,
                      .m = s->m,
                      .n = s->n,
                      .k = s->k,
                      .batch = s->batch,
                      .lda = ca + s->pad,
                      .ldb = cb + s->pad,
                      .ldd = s->n + s->pad};
    g.stride_a = ra * g.lda;
    g.stride_b = rb * g.ldb;
    g.stride_d = s->m * g.ldd;
    wf_cuda_block *pa = matrix(dtype, s->batch, ra, ca, g.lda, r, a);
    wf_cuda_block *pb = matrix(dtype, s->batch, rb, cb, g.ldb, r, b);
    wf_cuda_block *pc = matrix(dtype, 1, 1, s->n, s->n, r, c);
    size_t bytes = (size_t)(s->batch * g.stride_d) * size;
    wf_cuda_block *pd = block(bytes);
    g.a = pa->address;
    g.b = pb->address;
    g.d = pd->address;
    g.bias = bias ? pc->address : NULL;
    OK(wf_cuda_use(pa, false, &why));
    OK(wf_cuda_use(pb, false, &why));
    OK(wf_cuda_use(pc, false, &why));
    OK(wf_cuda_use(pd, true, &why));
    OK(wf_cuda_gemm_run(0, &g, &why));
    char *got = malloc(bytes);
    OK(wf_cuda_download(0, got, pd->address, bytes, &why));
    for (int64_t z = 0; z < s->batch; z++)
        for (int64_t i = 0; i < s->m; i++)
            for (int64_t j = 0; j < s->n; j++) {
                double want = bias ? c[j] : 0;
                for (int64_t p = 0; p < s->k; p++) {
                    want += a[z * g.stride_a + (ta ? p * g.lda + i : i * g.lda + p)] *
                            b[z * g.stride_b + (tb ? j * g.ldb + p : p * g.ldb + j)];
                }
                double is =
                    (double)test_load(got + (size_t)(z * g.stride_d + i * g.ldd + j) * size, dtype);
                cr_assert_eq(is, (double)test_round(dtype, want), "%s %d,%d,%d: %g for %g",
                             weft_dtype_name((weft_dtype)dtype), (int)z, (int)i, (int)j, is, want);
            }
    free(got);
    wf_cuda_free(pa);
    wf_cuda_free(pb);
    wf_cuda_free(pc);
    wf_cuda_free(pd);
}

Test(cuda_matmul, every_type_transpose_batch_and_bias)
{
    with_blas(FAKE_LATE);
    cr_assert_str_eq(wf_cuda_gemm_name(), "cuBLASLt 13.0.2");
    const int types[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16};
    const sizes shapes[] = {{5, 7, 3, 1, 0}, {1, 9, 4, 1, 3}, {6, 1, 8, 3, 0}, {4, 3, 2, 2, 5}};
    test_rng r = {1};
    for (int t = 0; t < 4; t++)
        for (int s = 0; s < 4; s++)
            for (int k = 0; k < 8; k++) {
                product(types[t], &shapes[s], k & 1, k & 2, k & 4, &r);
            }
    cr_assert_eq(wf_cuda_gemm_plans(), 4 * 4 * 8);
    for (int k = 0; k < 8; k++) {
        product(WEFT_F32, &shapes[0], k & 1, k & 2, k & 4, &r);
    }
    cr_assert_eq(wf_cuda_gemm_plans(), 4 * 4 * 8, "equal shapes ask the library nothing");
    wf_cuda_counters c;
    wf_cuda_get_counters(&c);
    cr_assert(c.hidden_waits == 0 && c.launches == 4 * 4 * 8 + 8);
    close_fake();
}

/* Views: which strides are taken and which are refused; the result is that of the definition. */
Test(cuda_matmul, strided_views)
{
    with_blas(FAKE_LATE);
    static double a[20000], b[20000];
    test_rng r = {4};
    wf_cuda_block *pa = matrix(WEFT_F16, 1, 1, 2000, 2000, &r, a);
    wf_cuda_block *pb = matrix(WEFT_F16, 1, 1, 2000, 2000, &r, b);
    wf_cuda_block *pc = block(2000 * 4);
    const struct {
        int64_t sa[4], sb[4], sc[4];
        bool taken;
    } cases[] = {
        {{60, 20, 5, 1}, {40, 20, 5, 1}, {32, 16, 4, 1}, false}, /* a's batch axes are not even */
        {{40, 20, 5, 1}, {40, 20, 4, 1}, {32, 16, 4, 1}, true},
        {{40, 20, 1, 4}, {40, 20, 1, 5}, {32, 16, 4, 1}, true},  /* both turned */
        {{80, 40, 7, 1}, {0, 0, 1, 6}, {48, 24, 5, 1}, true},    /* padded; one b for all */
        {{40, 20, 5, 1}, {40, 20, 4, 1}, {32, 16, 1, 4}, false}, /* c turned */
        {{40, 20, 10, 2}, {40, 20, 4, 1}, {32, 16, 4, 1}, false},
        {{40, 20, 0, 1}, {40, 20, 4, 1}, {32, 16, 4, 1}, false},
        {{40, 20, 5, 1}, {40, 20, 4, 1}, {0, 16, 4, 1}, false}, /* results over each other */
    };
    for (size_t t = 0; t < sizeof cases / sizeof *cases; t++) {
        wf_view va = {.data = pa->address, .dtype = WEFT_F16, .rank = 4, .dims = {2, 2, 4, 5}};
        wf_view vb = {.data = pb->address, .dtype = WEFT_F16, .rank = 4, .dims = {2, 2, 5, 4}};
        wf_view vc = {.data = pc->address, .dtype = WEFT_F32, .rank = 4, .dims = {2, 2, 4, 4}};
        memcpy(va.strides, cases[t].sa, sizeof cases[t].sa);
        memcpy(vb.strides, cases[t].sb, sizeof cases[t].sb);
        memcpy(vc.strides, cases[t].sc, sizeof cases[t].sc);
        int code = wf_cuda_gemm_views(0, &vc, &va, &vb, NULL, false, &why);
        cr_assert_eq(code, cases[t].taken ? 0 : WEFT_EUNSUPPORTED, "case %d: %s", (int)t, why.rule);
        float got[2000];
        OK(wf_cuda_download(0, got, pc->address, sizeof got, &why));
        for (int64_t i = 0; cases[t].taken && i < 64; i++) {
            int64_t z = i / 32, y = i / 16 % 2, m = i / 4 % 4, n = i % 4;
            const int64_t *sa = cases[t].sa, *sb = cases[t].sb, *sc = cases[t].sc;
            double want = 0;
            for (int64_t k = 0; k < 5; k++) {
                want += a[z * sa[0] + y * sa[1] + m * sa[2] + k * sa[3]] *
                        b[z * sb[0] + y * sb[1] + k * sb[2] + n * sb[3]];
            }
            cr_assert_eq((double)got[z * sc[0] + y * sc[1] + m * sc[2] + n * sc[3]], want);
        }
    }
    wf_cuda_free(pa);
    wf_cuda_free(pb);
    wf_cuda_free(pc);
    close_fake();
}

Test(cuda_matmul, what_it_cannot_do_is_left_to_others)
{
    with_blas(FAKE_LATE);
    wf_cuda_gemm g = {
        .dtype = WEFT_I32, .m = 2, .n = 2, .k = 2, .batch = 1, .lda = 2, .ldb = 2, .ldd = 2};
    wf_fail(&why, WEFT_EINVALID, "stale");
    cr_assert_eq(wf_cuda_gemm_run(0, &g, &why), WEFT_EUNSUPPORTED);
    cr_assert(why.code == 0 && !why.rule[0]);
    g.dtype = WEFT_F32;
    g.k = 0;
    cr_assert_eq(wf_cuda_gemm_run(0, &g, &why), WEFT_EUNSUPPORTED);
    g.m = 0;
    OK(wf_cuda_gemm_run(0, &g, &why));
    close_fake();
}

/* f32 products of two rows, columns and terms, all in one block, the result `to` bytes behind its begin. */
static wf_cuda_gemm two_by_two(const wf_cuda_block *b, size_t to)
{
    return (wf_cuda_gemm){.dtype = WEFT_F32,
                          .m = 2,
                          .n = 2,
                          .k = 2,
                          .batch = 1,
                          .lda = 2,
                          .ldb = 2,
                          .ldd = 2,
                          .a = b->address,
                          .b = b->address,
                          .d = (char *)b->address + to};
}

Test(cuda_matmul, no_kernel_found)
{
    setenv("FAKE_CUBLAS_REFUSE", "1", 1);
    with_blas(FAKE_LATE);
    wf_cuda_block *b = block(64);
    wf_cuda_gemm g = two_by_two(b, 0);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(wf_cuda_gemm_run(0, &g, &why), WEFT_EUNSUPPORTED);
        cr_assert_eq(why.code, 0);
    }
    cr_assert_eq(wf_cuda_gemm_plans(), 1, "a refusal is remembered");
    wf_cuda_free(b);
    close_fake();
}

Test(cuda_matmul, no_library)
{
    setenv("WEFT_CUBLASLT", "none", 1);
    with_fake(FAKE_LATE, 1);
    wf_cuda_gemm g = {
        .dtype = WEFT_F32, .m = 2, .n = 2, .k = 2, .batch = 1, .lda = 2, .ldb = 2, .ldd = 2};
    cr_assert_eq(wf_cuda_gemm_run(0, &g, &why), WEFT_EUNSUPPORTED);
    cr_assert(why.code == 0 && strstr(wf_cuda_gemm_name(), "not found"));
    close_fake();
}

/* Before a shape has given results another way may be taken; afterwards that would be other bits. */
Test(cuda_matmul, a_product_that_worked_and_fails_is_an_error)
{
    with_blas(FAKE_LATE);
    void *lib = dlopen(WEFT_FAKE_CUBLAS, RTLD_NOW | RTLD_LOCAL);
    long (*calls)(void) = NULL;
    void *symbol = lib ? dlsym(lib, "fake_cublas_calls") : NULL;
    cr_assert(symbol);
    memcpy(&calls, &symbol, sizeof symbol);
    wf_cuda_block *b = block(4096);
    wf_cuda_gemm g = two_by_two(b, 512);
    OK(wf_cuda_gemm_run(0, &g, &why));
    char next[24];
    snprintf(next, sizeof next, "%ld", calls() + 1);
    setenv("FAKE_CUBLAS_FAIL", next, 1);
    cr_assert_eq(wf_cuda_gemm_run(0, &g, &why), WEFT_EUNSUPPORTED);
    cr_assert(strstr(why.rule, "failed with status 14") && strstr(why.hint, "WEFT_CUBLASLT=none"),
              "%s", why.rule);
    OK(wf_cuda_gemm_run(0, &g, &why));
    wf_cuda_free(b);
    close_fake();
}

/* A bias at an address that the result's vectors do not divide. */
Test(cuda_matmul, a_bias_that_lies_crooked)
{
    with_blas(FAKE_LATE);
    wf_cuda_block *b = block(8192);
    wf_cuda_gemm g = {.dtype = WEFT_F16,
                      .m = 8,
                      .n = 8,
                      .k = 8,
                      .batch = 1,
                      .lda = 8,
                      .ldb = 8,
                      .ldd = 8,
                      .a = b->address,
                      .b = (char *)b->address + 1024,
                      .d = (char *)b->address + 2048};
    for (size_t at = 0; at < 32; at += 2) {
        g.bias = (char *)b->address + 4096 + at;
        OK(wf_cuda_gemm_run(0, &g, &why));
    }
    wf_cuda_free(b);
    close_fake();
}

Test(cuda_matmul, every_call_of_the_library_failing)
{
    with_blas(FAKE_LATE);
    int n = 0, bad = 0;
    for (bool met = true; met && n < 100;) {
        char text[16];
        snprintf(text, sizeof text, "%d", ++n);
        setenv("FAKE_CUBLAS_FAIL", text, 1);
        wf_cuda_block *b = block(4096);
        wf_cuda_gemm g = {.dtype = WEFT_F32,
                          .m = 2 + n,
                          .n = 2,
                          .k = 2,
                          .batch = 2,
                          .lda = 2,
                          .ldb = 2,
                          .ldd = 2,
                          .stride_a = 4,
                          .stride_b = 4,
                          .stride_d = 200,
                          .a = b->address,
                          .b = b->address,
                          .d = (char *)b->address + 512,
                          .bias = b->address};
        int64_t before = wf_cuda_gemm_plans();
        int code = wf_cuda_gemm_run(0, &g, &why);
        cr_assert(code == 0 || (code == WEFT_EUNSUPPORTED && why.code == 0), "left to others: %s",
                  why.rule);
        bad += code != 0;
        met = code != 0 || before < 20;
        wf_cuda_free(b);
        OK(wf_cuda_synchronize(0, &why));
    }
    cr_assert(bad > 5, "%d of %d", bad, n);
    wf_cuda_memory m;
    wf_cuda_get_memory(0, &m);
    cr_assert_eq(m.live_blocks, 0);
    close_fake();
}
