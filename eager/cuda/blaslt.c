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

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cuda/blaslt_api.h"
#include "eager/cuda/library.h"
#include "eager/cuda/plans.h"
#include "eager/env.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum { MOST_PLANS = 4096 };
#define WORKSPACE ((uint64_t)32 << 20)

typedef struct key {
    int64_t m, n, k, batch, lda, ldb, ldd, stride_a, stride_b, stride_d;
    int32_t dtype, trans, tf32, bias, align_a, align_b, align_d, dtype_d;
} key;

typedef struct plan {
    wf_cuda_plan base;
    key key;
    blaslt_handle desc, a, b, d; /* a and b: the library's first and second operand */
    blaslt_choice choice;
} plan;
_Static_assert(offsetof(plan, key) == sizeof(wf_cuda_plan), "plans.h");

typedef struct wf_cuda_blas {
    pthread_mutex_t lock;
    blaslt_handle lib;
    wf_cuda_plans plans;
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
    static const char *const names[] = {"libcublasLt.so.12", "libcublasLt.so.13",
                                        "libcublasLt.so.12", "libcublasLt.so"};
    const bool old = wf_cuda_is_before_13();
    char why[WF_CUDA_WHY];
    void *library = wf_cuda_library_open(wf_env()->WEFT_CUBLASLT, "cuBLASLt", names + !old,
                                         sizeof names / sizeof *names - !old, why);
    const char *absent = library ? NULL : why;
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

bool wf_cuda_gemm_is_open(void)
{
    pthread_once(&once, load_once);
    return loaded;
}

int64_t wf_cuda_gemm_plans(void)
{
    return atomic_load(&plans_made);
}

static void drop_plan(wf_cuda_plan *base);

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
        wf_cu->context_set(d->context);
        b = wf_calloc(1, sizeof *b);
        if (b && lt.create(&b->lib) != BLASLT_OK) {
            d->blas_failed = true;
            wf_mfree(b);
            b = NULL;
        }
        if (b) {
            pthread_mutex_init(&b->lock, NULL);
            b->plans = (wf_cuda_plans){.lock = &b->lock,
                                       .size = sizeof(plan),
                                       .key_size = sizeof(key),
                                       .drop = drop_plan,
                                       .most = MOST_PLANS,
                                       .made = &plans_made};
            d->blas = b;
        }
    }
    pthread_mutex_unlock(&d->lock);
    return b;
}

bool wf_cuda_gemm_there(int ordinal)
{
    wf_why ignored = {0};
    wf_cuda_device *d = wf_cuda_reach(ordinal, &ignored);
    return d && open_blas(d);
}

/* -- plans -------------------------------------------------------------------------------------------- */

static void drop_plan(wf_cuda_plan *base)
{
    const plan *p = (const plan *)base;
    if (p->desc) {
        lt.desc_destroy(p->desc);
    }
    blaslt_handle layouts[] = {p->a, p->b, p->d};
    for (int i = 0; i < 3; i++) {
        if (layouts[i]) {
            lt.layout_destroy(layouts[i]);
        }
    }
}

void wf_cuda_blas_close(wf_cuda_device *d)
{
    wf_cuda_blas *b = d->blas;
    if (b) {
        wf_cuda_plans_drop(&b->plans);
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
static bool choose(const wf_cuda_blas *b, plan *p, size_t most)
{
    blaslt_handle pref = NULL;
    const uint64_t workspace = most < WORKSPACE ? most : WORKSPACE;
    /* Never parts rounded to half. Where results have the type that is computed in, parts may as well be added to them in place, one after
     * the other: the sums of long products (a weight's gradient) are then 2 to 12 % faster (H100). */
    const bool half = p->key.dtype == WEFT_F16 || p->key.dtype == WEFT_BF16;
    const uint32_t reduction = half ? BLASLT_REDUCTION_COMPUTE_TYPE : BLASLT_REDUCTION_ANY;
    /* a bias has no promise of its own: a kernel that stores vectors of the result reads vectors of it */
    const int32_t bias = p->key.bias, align_d = p->key.align_d;
    const uint32_t align[4] = {(uint32_t)p->key.align_b, (uint32_t)p->key.align_a,
                               (uint32_t)align_d,
                               (uint32_t)(bias && bias < align_d ? bias : align_d)};
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

/* -- running ------------------------------------------------------------------------------------------ */

typedef struct request {
    wf_cuda_blas *b;
    const wf_cuda_gemm *g;
} request;

/* Lock of b held, as in the next one. */
static bool make(wf_cuda_plan *base, const void *arg, size_t most)
{
    const request *q = arg;
    plan *p = (plan *)base;
    const bool ok = describe(p, q->g->bias) && choose(q->b, p, most);
    p->base.workspace = p->choice.workspace;
    return ok;
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

static int call(wf_cuda_plan *base, const void *arg, void *workspace, wf_cuda_stream *s)
{
    const request *q = arg;
    plan *p = (plan *)base;
    const wf_cuda_gemm *g = q->g;
    const double one64 = 1, zero64 = 0;
    const float one32 = 1, zero32 = 0;
    const void *beta32 = g->add ? &one32 : &zero32, *beta64 = g->add ? &one64 : &zero64;
    bool wide = g->dtype == WEFT_F64;
    int r = g->bias ? lt.desc_set(p->desc, BLASLT_DESC_BIAS, &g->bias, sizeof g->bias) : BLASLT_OK;
    return r != BLASLT_OK
               ? r
               : lt.matmul(q->b->lib, p->desc, wide ? (const void *)&one64 : &one32, g->b, p->a,
                           g->a, p->b, wide ? beta64 : beta32, g->d, p->d, g->d, p->d,
                           &p->choice.algo, workspace, p->choice.workspace, s->handle);
}

static bool refuses(int status)
{
    return status == BLASLT_NOT_SUPPORTED || status == BLASLT_ARCH_MISMATCH;
}

int wf_cuda_gemm_run(int ordinal, const wf_cuda_gemm *g, wf_why *why)
{
    if (g->m == 0 || g->n == 0 || g->batch == 0) {
        return 0;
    }
    if (!supported(g)) {
        return wf_cuda_not_here(why);
    }
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, why) : NULL;
    if (!s) {
        return wf_cuda_code(why);
    }
    wf_cuda_blas *b = open_blas(d);
    const key k = key_of(g);
    const wf_cuda_ask ask = {.what = "cuBLASLt matmul",
                             .remedy = "WEFT_CUBLASLT=none uses the built-in kernels",
                             .key = &k,
                             .arg = &(request){b, g},
                             .make = make,
                             .call = call,
                             .refuses = refuses};
    return b ? wf_cuda_plans_run(&b->plans, &ask, s, why) : wf_cuda_not_here(why);
}
