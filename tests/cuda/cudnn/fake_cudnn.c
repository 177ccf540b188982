/*
 * tests/cuda/cudnn/fake_cudnn.c -- a cuDNN for the fake driver: plain loops, queued in stream order.
 *
 * Descriptors are kept and compared with each other, so that wrong extents, strides or operands show as
 * wrong numbers or an error. Sums are in double, rounded once. The first algorithms it offers are ones the
 * caller must not take: unsupported, not deterministic, with tensor cores.
 *     FAKE_CUDNN_FAIL=n        the n-th call of the process (fake_cudnn_calls counts them) returns an error
 *     FAKE_CUDNN_VERSION=n     what it says it is, as 91900
 *     FAKE_CUDNN_MIXED=0       it has no algorithm for images of different layouts, or that of the weights beside others
 */
#include "tests/cuda/cudnn/fake_cudnn.h"

#include <math.h>

enum { LIBRARY = 1, TENSOR, FILTER, CONV };
enum { GOOD_ALGO = 5, WORKSPACE = 4096 };

struct dnn_object {
    int kind, type, math, groups;
    int dims[4], strides[4];
    int pad[2], stride[2], dilation[2];
    cu_handle stream;
};
typedef struct dnn_object object;

enum { FORWARD, DX, DW };
typedef struct job {
    struct job *next; /* of all: a captured graph runs it again, so none is given back */
    int what;
    object x, w, y, conv;
    void *px, *pw, *py;
    double alpha, beta;
} job;

static vendor_launch *launch_host;
static long calls;

int fake_cudnn_planned(void)
{
    return vendor_fails("FAKE_CUDNN_FAIL", &calls) ? INTERNAL : DNN_OK;
}

EXPORT long fake_cudnn_calls(void)
{
    return calls;
}

int fake_cudnn_queue(dnn_handle lib, cu_host_fn fn, void *arg)
{
    return launch_host(lib->stream, fn, arg) == CU_OK ? DNN_OK : INTERNAL;
}

static int make(dnn_handle *out, int kind)
{
    *out = calloc(1, sizeof **out);
    if (!*out) {
        return INTERNAL;
    }
    (*out)->kind = kind;
    return DNN_OK;
}
static int drop(dnn_handle h, int kind)
{
    if (!h || h->kind != kind) {
        return BAD_PARAM;
    }
    h->kind = 0;
    free(h);
    return DNN_OK;
}

EXPORT size_t cudnnGetVersion(void)
{
    const char *s = getenv("FAKE_CUDNN_VERSION");
    return s ? (size_t)strtol(s, NULL, 10) : 91900;
}
EXPORT int cudnnCreate(dnn_handle *lib)
{
    PLANNED();
    launch_host = vendor_driver();
    return launch_host ? make(lib, LIBRARY) : INTERNAL;
}
EXPORT int cudnnDestroy(dnn_handle lib)
{
    return drop(lib, LIBRARY);
}
EXPORT int cudnnSetStream(dnn_handle lib, cu_handle stream)
{
    PLANNED();
    lib->stream = stream;
    return DNN_OK;
}
EXPORT int cudnnCreateTensorDescriptor(dnn_handle *t)
{
    PLANNED();
    return make(t, TENSOR);
}
EXPORT int cudnnDestroyTensorDescriptor(dnn_handle t)
{
    return drop(t, TENSOR);
}
EXPORT int cudnnSetTensorNdDescriptor(dnn_handle t, int type, int rank, const int *dims,
                                      const int *strides)
{
    PLANNED();
    if (rank != 4 || t->kind != TENSOR) {
        return BAD_PARAM;
    }
    t->type = type;
    memcpy(t->dims, dims, sizeof t->dims);
    memcpy(t->strides, strides, sizeof t->strides);
    return DNN_OK;
}
EXPORT int cudnnCreateFilterDescriptor(dnn_handle *f)
{
    PLANNED();
    return make(f, FILTER);
}
EXPORT int cudnnDestroyFilterDescriptor(dnn_handle f)
{
    return drop(f, FILTER);
}
EXPORT int cudnnSetFilterNdDescriptor(dnn_handle f, int type, int format, int rank, const int *dims)
{
    PLANNED();
    if (rank != 4 || format != DNN_NCHW || f->kind != FILTER) {
        return BAD_PARAM;
    }
    f->type = type;
    int step = 1;
    for (int i = 3; i >= 0; i--) {
        f->dims[i] = dims[i];
        f->strides[i] = step;
        step *= dims[i];
    }
    return DNN_OK;
}
EXPORT int cudnnCreateConvolutionDescriptor(dnn_handle *c)
{
    PLANNED();
    return make(c, CONV);
}
EXPORT int cudnnDestroyConvolutionDescriptor(dnn_handle c)
{
    return drop(c, CONV);
}
EXPORT int cudnnSetConvolutionNdDescriptor(dnn_handle c, int n, const int *pad, const int *stride,
                                           const int *dilation, int mode, int compute)
{
    PLANNED();
    if (n != 2 || mode != DNN_CROSS_CORRELATION || c->kind != CONV) {
        return BAD_PARAM;
    }
    memcpy(c->pad, pad, sizeof c->pad);
    memcpy(c->stride, stride, sizeof c->stride);
    memcpy(c->dilation, dilation, sizeof c->dilation);
    c->type = compute;
    return DNN_OK;
}
EXPORT int cudnnSetConvolutionGroupCount(dnn_handle c, int groups)
{
    PLANNED();
    c->groups = groups;
    return DNN_OK;
}
EXPORT int cudnnSetConvolutionMathType(dnn_handle c, int math)
{
    PLANNED();
    c->math = math;
    return DNN_OK;
}

static bool fit(const object *x, const object *w, const object *c, const object *y)
{
    bool ok = x->kind == TENSOR && y->kind == TENSOR && w->kind == FILTER && c->kind == CONV &&
              x->type == w->type && x->type == y->type && x->dims[0] == y->dims[0] &&
              y->dims[1] == w->dims[0] && x->dims[1] == w->dims[1] * c->groups;
    for (int i = 0; i < 2; i++) {
        int reach = c->dilation[i] * (w->dims[2 + i] - 1) + 1;
        ok &= y->dims[2 + i] == (x->dims[2 + i] + 2 * c->pad[i] - reach) / c->stride[i] + 1;
    }
    return ok && (c->type == DNN_F64) == (x->type == DNN_F64);
}

/* Does the layout step through the channels last? */
static bool is_last(const object *o)
{
    return o->strides[1] < o->strides[3];
}

static int offer(const object *x, const object *w, const object *c, const object *y, int wanted,
                 int *n, dnn_choice *out)
{
    PLANNED();
    if (!fit(x, w, c, y) || wanted < 4) {
        return BAD_PARAM;
    }
    const char *mixed = getenv("FAKE_CUDNN_MIXED");
    if (mixed && mixed[0] == '0' && (is_last(x) || is_last(y))) { /* weights are NCHW */
        *n = 0;
        return DNN_NOT_SUPPORTED;
    }
    bool fma = x->type == DNN_F32 && c->math == DNN_MATH_FMA;
    /* the library names plain arithmetic either way */
    int math = fma && x->dims[0] % 2 ? DNN_MATH_FMA : DNN_MATH_DEFAULT;
    out[0] = (dnn_choice){1, DNN_NOT_SUPPORTED, 0, 0, DNN_DETERMINISTIC, math, {0}};
    out[1] = (dnn_choice){2, DNN_OK, 0, 0, 0, math, {0}};
    out[2] = (dnn_choice){fma ? 3 : GOOD_ALGO, DNN_OK, 0, WORKSPACE, DNN_DETERMINISTIC, 1, {0}};
    out[3] = (dnn_choice){GOOD_ALGO, DNN_OK, 0, WORKSPACE, DNN_DETERMINISTIC, math, {0}};
    *n = 4;
    return DNN_OK;
}

EXPORT int cudnnGetConvolutionForwardAlgorithm_v7(dnn_handle lib, dnn_handle x, dnn_handle w,
                                                  dnn_handle conv, dnn_handle y, int wanted, int *n,
                                                  dnn_choice *out)
{
    return lib->kind == LIBRARY ? offer(x, w, conv, y, wanted, n, out) : BAD_PARAM;
}
EXPORT int cudnnGetConvolutionBackwardDataAlgorithm_v7(dnn_handle lib, dnn_handle w, dnn_handle y,
                                                       dnn_handle conv, dnn_handle x, int wanted,
                                                       int *n, dnn_choice *out)
{
    return lib->kind == LIBRARY ? offer(x, w, conv, y, wanted, n, out) : BAD_PARAM;
}
EXPORT int cudnnGetConvolutionBackwardFilterAlgorithm_v7(dnn_handle lib, dnn_handle x, dnn_handle y,
                                                         dnn_handle conv, dnn_handle w, int wanted,
                                                         int *n, dnn_choice *out)
{
    return lib->kind == LIBRARY ? offer(x, w, conv, y, wanted, n, out) : BAD_PARAM;
}

static double load(const void *p, int type, int64_t i)
{
    return type == DNN_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}
static void store(void *p, int type, int64_t i, double v)
{
    if (type == DNN_F64) {
        ((double *)p)[i] = v;
    } else {
        ((float *)p)[i] = (float)v;
    }
}

static int64_t at(const object *o, int a, int b, int c, int d)
{
    return (int64_t)a * o->strides[0] + (int64_t)b * o->strides[1] + (int64_t)c * o->strides[2] +
           (int64_t)d * o->strides[3];
}

/* Every product of the convolution once: calls fn with the places of x, w and y. */
static void visit(const job *j, double *sums)
{
    const object *x = &j->x, *w = &j->w, *y = &j->y, *c = &j->conv;
    int per_group = y->dims[1] / c->groups;
    for (int n = 0; n < y->dims[0]; n++)
        for (int o = 0; o < y->dims[1]; o++)
            for (int h = 0; h < y->dims[2]; h++)
                for (int v = 0; v < y->dims[3]; v++)
                    for (int i = 0; i < w->dims[1]; i++)
                        for (int kh = 0; kh < w->dims[2]; kh++)
                            for (int kw = 0; kw < w->dims[3]; kw++) {
                                int r = h * c->stride[0] - c->pad[0] + kh * c->dilation[0];
                                int q = v * c->stride[1] - c->pad[1] + kw * c->dilation[1];
                                if (r < 0 || q < 0 || r >= x->dims[2] || q >= x->dims[3]) {
                                    continue;
                                }
                                int64_t px = at(x, n, o / per_group * w->dims[1] + i, r, q);
                                int64_t pw = at(w, o, i, kh, kw), py = at(y, n, o, h, v);
                                if (j->what == FORWARD) {
                                    sums[py] += load(j->px, x->type, px) * load(j->pw, x->type, pw);
                                } else if (j->what == DX) {
                                    sums[px] += load(j->py, x->type, py) * load(j->pw, x->type, pw);
                                } else {
                                    sums[pw] += load(j->py, x->type, py) * load(j->px, x->type, px);
                                }
                            }
}

static void run(void *arg)
{
    const job *j = arg;
    const object *out = j->what == FORWARD ? &j->y : j->what == DX ? &j->x : &j->w;
    void *p = j->what == FORWARD ? j->py : j->what == DX ? j->px : j->pw;
    int64_t last = at(out, out->dims[0] - 1, out->dims[1] - 1, out->dims[2] - 1, out->dims[3] - 1);
    double *sums = calloc((size_t)last + 1, sizeof *sums);
    visit(j, sums);
    for (int a = 0; a < out->dims[0]; a++)
        for (int b = 0; b < out->dims[1]; b++)
            for (int c = 0; c < out->dims[2]; c++)
                for (int d = 0; d < out->dims[3]; d++) {
                    int64_t k = at(out, a, b, c, d);
                    double was = j->beta != 0 ? j->beta * load(p, out->type, k) : 0;
                    store(p, out->type, k, j->alpha * sums[k] + was);
                }
    free(sums);
}

static int queue(dnn_handle lib, job from, const void *alpha, const void *beta, int algo,
                 const void *workspace, size_t size)
{
    PLANNED();
    bool half = from.x.type != DNN_F32 && from.x.type != DNN_F64;
    if (half || !fit(&from.x, &from.w, &from.conv, &from.y)) {
        return half ? DNN_NOT_SUPPORTED + 7 : BAD_PARAM; /* ..._SUBLIBRARY and the like */
    }
    if (algo != GOOD_ALGO || !workspace || size != WORKSPACE) {
        return BAD_PARAM;
    }
    if (((uintptr_t)from.px | (uintptr_t)from.pw | (uintptr_t)from.py) % 16) {
        return MISALIGNED;
    }
    static job *kept;
    job *j = malloc(sizeof *j);
    if (!j) {
        return INTERNAL;
    }
    bool wide = from.x.type == DNN_F64;
    *j = from;
    j->alpha = wide ? *(const double *)alpha : (double)*(const float *)alpha;
    j->beta = wide ? *(const double *)beta : (double)*(const float *)beta;
    j->next = kept;
    kept = j;
    return fake_cudnn_queue(lib, run, j);
}

EXPORT int cudnnConvolutionForward(dnn_handle lib, const void *alpha, dnn_handle lx, void *x,
                                   dnn_handle lw, void *w, dnn_handle conv, int algo,
                                   void *workspace, size_t size, const void *beta, dnn_handle ly,
                                   void *y)
{
    return queue(lib, (job){NULL, FORWARD, *lx, *lw, *ly, *conv, x, w, y, 0, 0}, alpha, beta, algo,
                 workspace, size);
}
EXPORT int cudnnConvolutionBackwardData(dnn_handle lib, const void *alpha, dnn_handle lw, void *w,
                                        dnn_handle ly, void *y, dnn_handle conv, int algo,
                                        void *workspace, size_t size, const void *beta,
                                        dnn_handle lx, void *x)
{
    return queue(lib, (job){NULL, DX, *lx, *lw, *ly, *conv, x, w, y, 0, 0}, alpha, beta, algo,
                 workspace, size);
}
EXPORT int cudnnConvolutionBackwardFilter(dnn_handle lib, const void *alpha, dnn_handle lx, void *x,
                                          dnn_handle ly, void *y, dnn_handle conv, int algo,
                                          void *workspace, size_t size, const void *beta,
                                          dnn_handle lw, void *w)
{
    return queue(lib, (job){NULL, DW, *lx, *lw, *ly, *conv, x, w, y, 0, 0}, alpha, beta, algo,
                 workspace, size);
}
