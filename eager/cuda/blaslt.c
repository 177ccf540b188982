/*
 * eager/cuda/blaslt.c -- opens cuBLASLt, turns row-major products into its column-major ones, remembers
 * which kernel it chose.
 *
 * A row-major matrix read as a column-major one is its transpose, and d' = b' a': the operands change
 * places and nothing is moved. The bias of a column of d is then one of a row of d', which is the one that
 * the library's epilogue adds.
 *
 * A plan holds descriptors, layouts and the chosen algorithm; it belongs to a device and is found by shape,
 * strides, type and the alignment of the addresses. The library reads descriptors during a call, and the
 * bias's address stands in one, so that calls on a device take turns; a call takes microseconds.
 */
#include "eager/cuda/blaslt.h"

#include <stdio.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cuda/blaslt_api.h"
#include "eager/cuda/device.h"
#include "eager/cuda/library.h"
#include "eager/cuda/timeline.h"
#include "eager/env.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum { BUCKETS = 1024, MOST_PLANS = 4096 };
#define WORKSPACE ((uint64_t)32 << 20)

typedef struct key {
    int64_t m, n, k, batch, lda, ldb, ldd, stride_a, stride_b, stride_d;
    int32_t dtype, trans, tf32, bias, align_a, align_b, align_d, dtype_d;
} key;

typedef struct plan {
    struct plan *next;
    key key;
    blaslt_handle desc, a, b, d; /* a and b: the library's first and second operand */
    blaslt_choice choice;
    bool refused; /* the library has no kernel */
} plan;

typedef struct wf_cuda_blas {
    pthread_mutex_t lock;
    blaslt_handle lib;
    plan *bucket[BUCKETS];
    int n;
} wf_cuda_blas;

static struct {
#define F(field, symbol, params) int(*field) params;
    BLASLT_FUNCTIONS(F)
#undef F
    size_t (*version)(void);
} lt;
static bool loaded;
static char name[320];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic int64_t plans_made;

/* -- the library -------------------------------------------------------------------------------------- */

static void load_once(void)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    void *library =
        wf_cuda_library_open(wf_env()->WEFT_CUBLASLT, names, sizeof names / sizeof *names);
    const char *absent = library ? NULL : "cuBLASLt is not found";
#define F(field, symbol, params)                                                                   \
    if (!absent && !wf_cuda_library_symbol(library, symbol, &lt.field)) {                          \
        absent = symbol " is missing in cuBLASLt";                                                 \
    }
    BLASLT_FUNCTIONS(F)
#undef F
    if (!absent && !wf_cuda_library_symbol(library, "cublasLtGetVersion", &lt.version)) {
        absent = "cublasLtGetVersion is missing in cuBLASLt";
    }
    loaded = !absent;
    size_t v = loaded ? lt.version() : 0;
    if (loaded) {
        snprintf(name, sizeof name, "cuBLASLt %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    } else {
        snprintf(name, sizeof name, "%s", absent);
    }
}

const char *wf_cuda_gemm_name(void)
{
    pthread_once(&once, load_once);
    return name;
}

int64_t wf_cuda_gemm_plans(void)
{
    return atomic_load(&plans_made);
}

/* Lock of the device not held. NULL: the library does not work here. */
static wf_cuda_blas *open_blas(wf_cuda_device *d)
{
    pthread_once(&once, load_once);
    if (!loaded) {
        return NULL;
    }
    pthread_mutex_lock(&d->lock);
    wf_cuda_blas *b = d->blas;
    if (!b && !d->blas_failed) {
        b = wf_calloc(1, sizeof *b);
        if (b && lt.create(&b->lib) != BLASLT_OK) {
            d->blas_failed = true;
            wf_mfree(b);
            b = NULL;
        }
        if (b) {
            pthread_mutex_init(&b->lock, NULL);
            d->blas = b;
        }
    }
    pthread_mutex_unlock(&d->lock);
    return b;
}

/* -- plans -------------------------------------------------------------------------------------------- */

static void drop_plan(plan *p)
{
    if (p->desc) {
        lt.desc_destroy(p->desc);
    }
    blaslt_handle layouts[] = {p->a, p->b, p->d};
    for (int i = 0; i < 3; i++) {
        if (layouts[i]) {
            lt.layout_destroy(layouts[i]);
        }
    }
    wf_mfree(p);
}

static void drop_plans(wf_cuda_blas *b)
{
    for (int i = 0; i < BUCKETS; i++) {
        while (b->bucket[i]) {
            plan *p = b->bucket[i];
            b->bucket[i] = p->next;
            drop_plan(p);
        }
    }
    b->n = 0;
}

void wf_cuda_blas_close(wf_cuda_device *d)
{
    wf_cuda_blas *b = d->blas;
    if (b) {
        drop_plans(b);
        lt.destroy(b->lib);
        pthread_mutex_destroy(&b->lock);
        wf_mfree(b);
        d->blas = NULL;
    }
    d->blas_failed = false;
}

static int32_t alignment(const void *p)
{
    uintptr_t v = (uintptr_t)p;
    uintptr_t low = v & (~v + 1);
    return v == 0 || low > 256 ? 256 : (int32_t)low;
}

static int32_t result_type(const wf_cuda_gemm *g)
{
    return g->dtype_d ? g->dtype_d : g->dtype;
}

static key key_of(const wf_cuda_gemm *g)
{
    bool many = g->batch > 1;
    return (key){.m = g->m,
                 .n = g->n,
                 .k = g->k,
                 .batch = g->batch,
                 .lda = g->lda,
                 .ldb = g->ldb,
                 .ldd = g->ldd,
                 .stride_a = many ? g->stride_a : 0,
                 .stride_b = many ? g->stride_b : 0,
                 .stride_d = many ? g->stride_d : 0,
                 .dtype = g->dtype,
                 .dtype_d = result_type(g),
                 .trans = g->trans_a + 2 * g->trans_b,
                 .tf32 = g->tf32,
                 .bias = g->bias ? alignment(g->bias) : 0,
                 .align_a = alignment(g->a),
                 .align_b = alignment(g->b),
                 .align_d = alignment(g->d)};
}

static unsigned hash(const key *k)
{
    uint64_t words[sizeof *k / 8], h = 0;
    memcpy(words, k, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        h = (h ^ words[i]) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 32;
    }
    return (unsigned)(h % BUCKETS);
}

static int type_of(int dtype)
{
    return dtype == WEFT_F64    ? BLASLT_F64
           : dtype == WEFT_F16  ? BLASLT_F16
           : dtype == WEFT_BF16 ? BLASLT_BF16
                                : BLASLT_F32;
}

/* A layout of `rows` x `cols` column-major. */
static bool layout(blaslt_handle *out, const key *k, int dtype, int64_t rows, int64_t cols,
                   int64_t ld, int64_t stride)
{
    int32_t batch = (int32_t)k->batch;
    bool ok =
        lt.layout_create(out, type_of(dtype), (uint64_t)rows, (uint64_t)cols, ld) == BLASLT_OK;
    if (ok && k->batch > 1) {
        ok = lt.layout_set(*out, BLASLT_LAYOUT_BATCH, &batch, sizeof batch) == BLASLT_OK &&
             lt.layout_set(*out, BLASLT_LAYOUT_STRIDE, &stride, sizeof stride) == BLASLT_OK;
    }
    return ok;
}

static bool describe(plan *p, const void *bias)
{
    const key *k = &p->key;
    int compute = k->dtype == WEFT_F64              ? BLASLT_COMPUTE_F64
                  : k->dtype == WEFT_F32 && k->tf32 ? BLASLT_COMPUTE_TF32
                                                    : BLASLT_COMPUTE_F32;
    int scale = k->dtype == WEFT_F64 ? BLASLT_F64 : BLASLT_F32;
    int32_t first = k->trans & 2 ? BLASLT_T : BLASLT_N, second = k->trans & 1 ? BLASLT_T : BLASLT_N;
    uint32_t epilogue = k->bias ? BLASLT_EPILOGUE_BIAS : BLASLT_EPILOGUE_NONE;
    return lt.desc_create(&p->desc, compute, scale) == BLASLT_OK &&
           lt.desc_set(p->desc, BLASLT_DESC_TRANS_A, &first, sizeof first) == BLASLT_OK &&
           lt.desc_set(p->desc, BLASLT_DESC_TRANS_B, &second, sizeof second) == BLASLT_OK &&
           lt.desc_set(p->desc, BLASLT_DESC_EPILOGUE, &epilogue, sizeof epilogue) == BLASLT_OK &&
           (!bias || lt.desc_set(p->desc, BLASLT_DESC_BIAS, &bias, sizeof bias) == BLASLT_OK) &&
           layout(&p->a, k, k->dtype, first ? k->k : k->n, first ? k->n : k->k, k->ldb,
                  k->stride_b) &&
           layout(&p->b, k, k->dtype, second ? k->m : k->k, second ? k->k : k->m, k->lda,
                  k->stride_a) &&
           layout(&p->d, k, k->dtype_d, k->n, k->m, k->ldd, k->stride_d);
}

/* Asks the library for its best algorithm. */
static bool choose(const wf_cuda_blas *b, plan *p)
{
    blaslt_handle pref = NULL;
    uint64_t workspace = WORKSPACE;
    const uint32_t reduction = BLASLT_REDUCTION_COMPUTE_TYPE; /* never parts rounded to half */
    const uint32_t align[4] = {(uint32_t)p->key.align_b, (uint32_t)p->key.align_a,
                               (uint32_t)p->key.align_d, (uint32_t)p->key.align_d};
    int n = 0;
    bool ok = lt.pref_create(&pref) == BLASLT_OK &&
              lt.pref_set(pref, BLASLT_PREF_WORKSPACE, &workspace, sizeof workspace) == BLASLT_OK &&
              lt.pref_set(pref, BLASLT_PREF_REDUCTION, &reduction, sizeof reduction) == BLASLT_OK;
    for (int i = 0; ok && i < 4; i++) {
        ok = lt.pref_set(pref, BLASLT_PREF_ALIGN_A + i, &align[i], sizeof align[i]) == BLASLT_OK;
    }
    ok = ok && lt.heuristic(b->lib, p->desc, p->a, p->b, p->d, p->d, pref, 1, &p->choice, &n) ==
                   BLASLT_OK;
    if (pref) {
        lt.pref_destroy(pref);
    }
    return ok && n == 1 && p->choice.state == BLASLT_OK;
}

/* Lock of b held. NULL: no host memory. */
static plan *plan_of(wf_cuda_blas *b, const wf_cuda_gemm *g)
{
    key k = key_of(g);
    unsigned h = hash(&k);
    for (plan *p = b->bucket[h]; p; p = p->next) {
        if (memcmp(&p->key, &k, sizeof k) == 0) {
            return p;
        }
    }
    if (b->n == MOST_PLANS) {
        drop_plans(b);
    }
    plan *p = wf_calloc(1, sizeof *p);
    if (p) {
        p->key = k;
        p->refused = !describe(p, g->bias) || !choose(b, p);
        p->next = b->bucket[h];
        b->bucket[h] = p;
        b->n++;
        atomic_fetch_add(&plans_made, 1);
    }
    return p;
}

/* -- running ------------------------------------------------------------------------------------------ */

/* "Not here": the caller goes another way. */
static int not_here(wf_why *why)
{
    if (why) {
        memset(why, 0, sizeof *why);
    }
    return WEFT_EUNSUPPORTED;
}

static bool supported(const wf_cuda_gemm *g)
{
    bool type = g->dtype == WEFT_F32 || g->dtype == WEFT_F64 || g->dtype == WEFT_F16 ||
                g->dtype == WEFT_BF16;
    bool half = g->dtype == WEFT_F16 || g->dtype == WEFT_BF16;
    bool result = result_type(g) == g->dtype || (half && result_type(g) == WEFT_F32 && !g->bias);
    const int64_t most = INT32_MAX;
    return type && result && g->k > 0 && g->m <= most && g->n <= most && g->k <= most &&
           g->batch <= most;
}

/* Lock of b held. A status of the library. */
static int call(wf_cuda_blas *b, plan *p, const wf_cuda_gemm *g, void *workspace, wf_cuda_stream *s)
{
    const double one64 = 1, zero64 = 0;
    const float one32 = 1, zero32 = 0;
    bool wide = g->dtype == WEFT_F64;
    int r = g->bias ? lt.desc_set(p->desc, BLASLT_DESC_BIAS, &g->bias, sizeof g->bias) : BLASLT_OK;
    return r != BLASLT_OK
               ? r
               : lt.matmul(b->lib, p->desc, wide ? (const void *)&one64 : &one32, g->b, p->a, g->a,
                           p->b, wide ? (const void *)&zero64 : &zero32, g->d, p->d, g->d, p->d,
                           &p->choice.algo, workspace, p->choice.workspace, s->handle);
}

static int run(wf_cuda_blas *b, const wf_cuda_gemm *g, wf_cuda_stream *s, wf_why *why)
{
    wf_cuda_block *workspace = NULL;
    int r = BLASLT_NOT_SUPPORTED, code = 0;
    pthread_mutex_lock(&b->lock);
    plan *p = plan_of(b, g);
    if (p && !p->refused && p->choice.workspace) {
        workspace = wf_cuda_alloc(s->device->ordinal, p->choice.workspace, why);
        code = workspace ? 0 : wf_cuda_code(why);
    }
    if (p && !p->refused && !code) {
        wf_cuda_time_begin(s);
        r = call(b, p, g, workspace ? workspace->address : NULL, s);
        p->refused = r == BLASLT_NOT_SUPPORTED || r == BLASLT_ARCH_MISMATCH;
    }
    pthread_mutex_unlock(&b->lock);
    if (!code && r == BLASLT_OK) {
        WF_CUDA_COUNT(launches, 1);
        wf_cuda_queued(s, "cuBLASLt matmul");
    } else if (!code && (r == BLASLT_NOT_SUPPORTED || r == BLASLT_ARCH_MISMATCH)) {
        code = not_here(why);
    } else if (!code) {
        code = wf_fail(why, WEFT_EUNSUPPORTED, "cuBLASLt failed with status %d on cuda:%d", r,
                       s->device->ordinal);
        wf_hint(why, "WEFT_CUBLASLT=none uses the built-in kernels");
    }
    wf_cuda_free(workspace); /* in stream order: behind the product */
    return code;
}

int wf_cuda_gemm_run(int ordinal, const wf_cuda_gemm *g, wf_why *why)
{
    if (g->m == 0 || g->n == 0 || g->batch == 0) {
        return 0;
    }
    if (!supported(g)) {
        return not_here(why);
    }
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, why) : NULL;
    if (!s) {
        return wf_cuda_code(why);
    }
    wf_cuda_blas *b = open_blas(d);
    return b ? run(b, g, s, why) : not_here(why);
}
