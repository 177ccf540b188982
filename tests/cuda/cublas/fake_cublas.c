/*
 * tests/cuda/cublas/fake_cublas.c -- a cuBLASLt for the fake driver: a plain loop, queued in stream order.
 *
 * Column-major as the real one is, every attribute kept and checked, so that a wrong leading dimension,
 * stride, transpose or operand order, or an alignment that was promised and is not kept, shows as wrong numbers or an error. Products of f32 and half types sum
 * in float, in the order of k, and are asked for so; with TF32 operands of f32 have 10 bits of mantissa. What the environment says:
 *     FAKE_CUBLAS_FAIL=n       the n-th call (fake_cublas_calls counts them) returns "internal error"
 *     FAKE_CUBLAS_REFUSE=1     no algorithm is ever found
 */
#include <math.h>
#include <stdio.h>

#include "eager/cuda/blaslt_api.h"
#include "tests/cuda/vendor.h"

#define EXPORT __attribute__((visibility("default")))
enum { LIBRARY = 1, DESC, LAYOUT, PREF };

struct blaslt_object {
    int kind;
    int compute, scale;
    int32_t trans[2];
    uint32_t epilogue;
    const void *bias;
    int type;
    uint64_t rows, cols;
    int64_t ld, stride;
    int32_t batch;
    uint64_t workspace;
    uint32_t reduction;
    uint32_t align[4]; /* that operands are promised to have: A, B, C, D */
};
typedef struct blaslt_object object;

typedef struct job {
    struct job *next; /* of all: a captured graph runs it again, so none is given back */
    object desc, a, b, d;
    const void *pa, *pb, *bias;
    void *pd;
    double alpha, beta;
} job;

static vendor_launch *launch_host;
static long calls;

EXPORT long fake_cublas_calls(void);
long fake_cublas_calls(void)
{
    return calls;
}

#define PLANNED()                                                                                  \
    do {                                                                                           \
        if (vendor_fails("FAKE_CUBLAS_FAIL", &calls))                                              \
            return BLASLT_INTERNAL_ERROR;                                                          \
    } while (0)

static int make(blaslt_handle *out, object from)
{
    *out = malloc(sizeof **out);
    if (!*out) {
        return BLASLT_ALLOC_FAILED;
    }
    **out = from;
    return BLASLT_OK;
}

static int drop(blaslt_handle h, int kind)
{
    if (!h || h->kind != kind) {
        return BLASLT_INVALID_VALUE;
    }
    h->kind = 0;
    free(h);
    return BLASLT_OK;
}

EXPORT size_t cublasLtGetVersion(void)
{
    return 130002;
}

EXPORT int cublasLtCreate(blaslt_handle *lib)
{
    PLANNED();
    launch_host = vendor_driver();
    return launch_host ? make(lib, (object){.kind = LIBRARY}) : BLASLT_NOT_INITIALIZED;
}
EXPORT int cublasLtDestroy(blaslt_handle lib)
{
    return drop(lib, LIBRARY);
}

EXPORT int cublasLtMatmulDescCreate(blaslt_handle *desc, int compute, int scale)
{
    PLANNED();
    return make(desc, (object){.kind = DESC, .compute = compute, .scale = scale, .epilogue = 1});
}
EXPORT int cublasLtMatmulDescDestroy(blaslt_handle desc)
{
    return drop(desc, DESC);
}

static int set(void *to, size_t want, const void *value, size_t size)
{
    if (want != size) {
        return BLASLT_INVALID_VALUE;
    }
    memcpy(to, value, size);
    return BLASLT_OK;
}

EXPORT int cublasLtMatmulDescSetAttribute(blaslt_handle h, int attribute, const void *value,
                                          size_t size)
{
    PLANNED();
    return !h || h->kind != DESC ? BLASLT_INVALID_VALUE
           : attribute == BLASLT_DESC_TRANS_A || attribute == BLASLT_DESC_TRANS_B
               ? set(&h->trans[attribute - BLASLT_DESC_TRANS_A], 4, value, size)
           : attribute == BLASLT_DESC_EPILOGUE ? set(&h->epilogue, 4, value, size)
           : attribute == BLASLT_DESC_BIAS     ? set(&h->bias, sizeof h->bias, value, size)
                                               : BLASLT_INVALID_VALUE;
}

EXPORT int cublasLtMatrixLayoutCreate(blaslt_handle *layout, int type, uint64_t rows, uint64_t cols,
                                      int64_t ld)
{
    PLANNED();
    object l = {.kind = LAYOUT, .type = type, .rows = rows, .cols = cols, .ld = ld, .batch = 1};
    return ld < (int64_t)rows ? BLASLT_INVALID_VALUE : make(layout, l);
}
EXPORT int cublasLtMatrixLayoutDestroy(blaslt_handle layout)
{
    return drop(layout, LAYOUT);
}
EXPORT int cublasLtMatrixLayoutSetAttribute(blaslt_handle h, int attribute, const void *value,
                                            size_t size)
{
    PLANNED();
    return !h || h->kind != LAYOUT             ? BLASLT_INVALID_VALUE
           : attribute == BLASLT_LAYOUT_BATCH  ? set(&h->batch, 4, value, size)
           : attribute == BLASLT_LAYOUT_STRIDE ? set(&h->stride, 8, value, size)
                                               : BLASLT_INVALID_VALUE;
}

EXPORT int cublasLtMatmulPreferenceCreate(blaslt_handle *pref)
{
    PLANNED();
    return make(pref, (object){.kind = PREF});
}
EXPORT int cublasLtMatmulPreferenceDestroy(blaslt_handle pref)
{
    return drop(pref, PREF);
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(blaslt_handle h, int attribute, const void *value,
                                                size_t size)
{
    PLANNED();
    return !h || h->kind != PREF                ? BLASLT_INVALID_VALUE
           : attribute == BLASLT_PREF_WORKSPACE ? set(&h->workspace, 8, value, size)
           : attribute == BLASLT_PREF_REDUCTION ? set(&h->reduction, 4, value, size)
           : attribute >= BLASLT_PREF_ALIGN_A && attribute < BLASLT_PREF_ALIGN_A + 4
               ? set(&h->align[attribute - BLASLT_PREF_ALIGN_A], 4, value, size)
               : BLASLT_INVALID_VALUE;
}

/* Is what is computed in what this element type may be computed in? */
static int computes(const object *desc, int type)
{
    const int wide = type == BLASLT_F64, tf32 = desc->compute == BLASLT_COMPUTE_TF32;
    return desc->scale == (wide ? BLASLT_F64 : BLASLT_F32) &&
           (tf32 ? type == BLASLT_F32
                 : desc->compute == (wide ? BLASLT_COMPUTE_F64 : BLASLT_COMPUTE_F32));
}

/* Do the shapes fit? */
static int fits(const object *desc, const object *a, const object *b, const object *d)
{
    uint64_t m = desc->trans[0] ? a->cols : a->rows, k = desc->trans[0] ? a->rows : a->cols;
    uint64_t k2 = desc->trans[1] ? b->cols : b->rows, n = desc->trans[1] ? b->rows : b->cols;
    return k == k2 && d->rows == m && d->cols == n && a->batch == b->batch &&
           a->batch == d->batch && a->type == b->type &&
           (a->type == d->type || (d->type == BLASLT_F32 && a->type != BLASLT_F64));
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(blaslt_handle lib, blaslt_handle desc, blaslt_handle a,
                                          blaslt_handle b, blaslt_handle c, blaslt_handle d,
                                          blaslt_handle pref, int wanted, blaslt_choice *choices,
                                          int *n)
{
    PLANNED();
    *n = 0;
    if (!lib || !desc || !a || !b || !c || !d || !pref || wanted < 1 || !fits(desc, a, b, d)) {
        return BLASLT_INVALID_VALUE;
    }
    /* any scheme that is not excluded may be chosen: one that adds in half types would be wrong */
    const bool halves = a->type == BLASLT_F16 || a->type == BLASLT_BF16;
    if (getenv("FAKE_CUBLAS_REFUSE") || !computes(desc, a->type) ||
        pref->reduction != (halves ? BLASLT_REDUCTION_COMPUTE_TYPE : BLASLT_REDUCTION_ANY)) {
        return BLASLT_NOT_SUPPORTED;
    }
    *choices = (blaslt_choice){.workspace = pref->workspace >= 65536 ? 65536 : 0};
    choices->algo.data[0] = 0xF00D;
    memcpy(&choices->algo.data[1], pref->align, sizeof pref->align);
    *n = 1;
    return BLASLT_OK;
}

static float half(uint16_t v)
{
    int e = v >> 10 & 31, f = v & 1023;
    float x = e == 31 ? (f ? NAN : INFINITY)
              : e     ? ldexpf(1024 + (float)f, e - 25)
                      : ldexpf((float)f, -24);
    return v >> 15 ? -x : x;
}
static float bfloat(uint16_t v)
{
    uint32_t w = (uint32_t)v << 16;
    float x;
    memcpy(&x, &w, 4);
    return x;
}
/* The nearest of all, the even one of two that are as near: halves rise with their bits, so it is searched for. */
static uint16_t to_half(float x)
{
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    const float size = fabsf(x);
    uint16_t low = 0,
             high = 0x7C00; /* half(low) <= size < half(high), as if there were one of 65536 */
    if (!(size < 65536))
        return isnan(x) ? 0x7E00 : sign | 0x7C00;
    while (high - low > 1) {
        const uint16_t middle = (uint16_t)((low + high) / 2);
        if (half(middle) <= size)
            low = middle;
        else
            high = middle;
    }
    const float under = size - half(low), over = (high == 0x7C00 ? 65536 : half(high)) - size;
    return sign | (under < over || (under == over && !(low & 1)) ? low : high);
}
static uint16_t to_bfloat(float x)
{
    uint32_t w;
    memcpy(&w, &x, 4);
    return (uint16_t)((w + 0x7FFF + (w >> 16 & 1)) >> 16);
}

static double load(const void *p, int type, int64_t i)
{
    return type == BLASLT_F64   ? ((const double *)p)[i]
           : type == BLASLT_F32 ? (double)((const float *)p)[i]
           : type == BLASLT_F16 ? (double)half(((const uint16_t *)p)[i])
                                : (double)bfloat(((const uint16_t *)p)[i]);
}
static void store(void *p, int type, int64_t i, double v)
{
    if (type == BLASLT_F64) {
        ((double *)p)[i] = v;
    } else if (type == BLASLT_F32) {
        ((float *)p)[i] = (float)v;
    } else {
        ((uint16_t *)p)[i] = type == BLASLT_F16 ? to_half((float)v) : to_bfloat((float)v);
    }
}

/* A row of op(A), or a column of op(B), of matrix z: a product reads each many times. */
static void read_out(double *to, const job *j, int operand, int64_t z, int64_t which, int64_t depth)
{
    const object *m = operand ? &j->b : &j->a;
    const bool along = j->desc.trans[operand] != operand; /* neighbours lie beside each other */
    const void *const p = operand ? j->pb : j->pa;
    for (int64_t i = 0; i < depth; i++)
        to[i] = load(p, m->type, z * m->stride + (along ? i + which * m->ld : which + i * m->ld));
    for (int64_t i = 0; i < depth && j->desc.compute == BLASLT_COMPUTE_TF32; i++)
        to[i] = vendor_tf32(to[i]);
}

static double product(const double *x, const double *y, int64_t depth, bool wide)
{
    double sum = 0;
    float narrow = 0;
    for (int64_t i = 0; i < depth && wide; i++)
        sum += x[i] * y[i];
    for (int64_t i = 0; i < depth && !wide; i++)
        narrow += (float)x[i] * (float)y[i];
    return wide ? sum : (double)narrow;
}

static void run(void *arg)
{
    const job *j = arg;
    const int64_t rows = (int64_t)j->d.rows,
                  depth = (int64_t)(j->desc.trans[0] ? j->a.rows : j->a.cols);
    double *a = malloc(((size_t)(rows + 1) * (size_t)depth + 1) * sizeof *a), *b = a + rows * depth;
    if (!a)
        abort();
    for (int64_t z = 0; z < j->d.batch; z++) {
        for (int64_t row = 0; row < rows; row++)
            read_out(a + row * depth, j, 0, z, row, depth);
        for (int64_t col = 0; col < (int64_t)j->d.cols; col++) {
            read_out(b, j, 1, z, col, depth);
            for (int64_t row = 0; row < rows; row++) {
                int64_t at = z * j->d.stride + row + col * j->d.ld;
                double v = j->alpha * product(a + row * depth, b, depth, j->a.type == BLASLT_F64);
                v += j->beta != 0 ? j->beta * load(j->pd, j->d.type, at) : 0;
                v += j->bias ? load(j->bias, j->d.type, row) : 0;
                store(j->pd, j->d.type, at, v);
            }
        }
    }
    free(a);
}

EXPORT int cublasLtMatmul(blaslt_handle lib, blaslt_handle desc, const void *alpha, const void *a,
                          blaslt_handle layout_a, const void *b, blaslt_handle layout_b,
                          const void *beta, const void *c, blaslt_handle layout_c, void *d,
                          blaslt_handle layout_d, const blaslt_algo *algo, void *workspace,
                          size_t workspace_size, cu_handle stream)
{
    PLANNED();
    if (!lib || !fits(desc, layout_a, layout_b, layout_d) || c != d || layout_c != layout_d ||
        algo->data[0] != 0xF00D || workspace_size != 65536 || !workspace) {
        return BLASLT_INVALID_VALUE;
    }
    const void *const operands[] = {a, b, c, d};
    uint32_t align[4];
    memcpy(align, &algo->data[1], sizeof align);
    bool lie = (uintptr_t)workspace % 256 == 0; /* what releases from 12.9.1 on want */
    for (int i = 0; i < 4; i++) {
        lie &= align[i] && (uintptr_t)operands[i] % align[i] == 0;
    }
    /* the bias is read as wide as D is written: its promise is the one of D */
    lie &= desc->epilogue != BLASLT_EPILOGUE_BIAS || (uintptr_t)desc->bias % align[3] == 0;
    if (!lie) {
        return BLASLT_INVALID_VALUE;
    }
    if ((desc->epilogue == BLASLT_EPILOGUE_BIAS) != (desc->bias != NULL)) {
        return BLASLT_INVALID_VALUE;
    }
    job *j = malloc(sizeof *j);
    static job *kept;
    if (!j) {
        return BLASLT_ALLOC_FAILED;
    }
    bool wide = desc->scale == BLASLT_F64;
    *j = (job){.desc = *desc,
               .a = *layout_a,
               .b = *layout_b,
               .d = *layout_d,
               .pa = a,
               .pb = b,
               .pd = d,
               .bias = desc->epilogue == BLASLT_EPILOGUE_BIAS ? desc->bias : NULL,
               .alpha = wide ? *(const double *)alpha : (double)*(const float *)alpha,
               .beta = wide ? *(const double *)beta : (double)*(const float *)beta};
    j->next = kept;
    kept = j;
    return launch_host(stream, run, j) == CU_OK ? BLASLT_OK : BLASLT_EXECUTION_FAILED;
}
