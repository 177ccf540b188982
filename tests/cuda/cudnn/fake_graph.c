/*
 * tests/cuda/cudnn/fake_graph.c -- graphs of the fake cuDNN: descriptors kept as they are set, executed one operation at a
 * time, queued in stream order.
 *
 * It knows operations and nothing of attention (a convolution is one operation): every tensor of a graph is an array of doubles, rounded to its type when it
 * is written, so a wrong operation, operand, stride or name shows as wrong numbers or as an error. What has to be
 * set is checked when a descriptor is finalized, the order of operations when a graph is. The first engines it names are
 * ones that must not be taken: one that is not deterministic, one that has no plan, one that wants too much memory; of
 * convolutions also one that sums in fewer bits and, for f32 unless WEFT_TF32 is set, one with tensor cores. The last of a convolution needs no memory.
 *     FAKE_CUDNN_NO_ENGINE=1   no graph has an engine
 *     FAKE_CUDNN_MIXED=0       nor has one with images of other layouts than that of the weights
 *     FAKE_CUDNN_REFUSES=1     executing is refused
 *     FAKE_CUDNN_WORKSPACE=n   bytes that the good engine wants
 */
#include "tests/cuda/cudnn/fake_cudnn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jit/ir/dtype.h"

enum { MOST_ATTRIBUTES = 16, MOST_IDS = 2048, MOST_OPS = 64, MANY = 400 };
enum { NOT_DETERMINISTIC, NO_PLAN, TOO_LARGE, GOOD, ENGINES };
enum { NARROW = ENGINES, TENSOR_CORES, SMALL, CONV_ENGINES };
enum { GRAPH_WORKSPACE = 8000 };

typedef struct attribute {
    int name, kind;
    int64_t n;
    void *bytes;
} attribute;

typedef struct descriptor {
    int kind, nattributes, engine;
    bool conv, finalized, kept; /* a text names it: its contents stay */
    attribute attributes[MOST_ATTRIBUTES];
} descriptor;

typedef struct tensor {
    int64_t id, dims[4], strides[4], n;
    int type;
    bool inside, by_value;
    void *memory;
    float value;
} tensor;

typedef struct op {
    int kind, mode;
    int64_t axis, pad[2], stride[2], dilation[2];
    double beta;
    tensor *x, *b, *t, *y; /* matmul: y = x b; of a convolution y is the result */
} op;

/* A graph with its pointers; a captured one runs it again, so none is given back. */
typedef struct run {
    struct run *next;
    int nops, ntensors;
    bool narrow; /* tensor cores read operands of f32 */
    op ops[MOST_OPS];
    tensor tensors[MOST_IDS / 16];
    double *values[MOST_IDS / 16];
} run;

static long alive, asked;

EXPORT long fake_cudnn_descriptors(void)
{
    return alive;
}

/* How often engines were asked for. */
EXPORT long fake_cudnn_asked(void)
{
    return asked;
}

/* -- descriptors -------------------------------------------------------------------------------------- */

static size_t size_of(int kind)
{
    return kind == DNN_V_BOOL || kind == DNN_V_CHAR           ? 1
           : kind == DNN_V_I64 || kind == DNN_V_POINTER       ? 8
           : kind == DNN_V_F64                                ? 8
           : kind == DNN_V_HANDLE || kind == DNN_V_DESCRIPTOR ? sizeof(void *)
                                                              : sizeof(int);
}

static const attribute *find(const descriptor *d, int name)
{
    for (int i = 0; i < d->nattributes; i++) {
        if (d->attributes[i].name == name) {
            return &d->attributes[i];
        }
    }
    return NULL;
}

static int64_t int_of(const descriptor *d, int name, int64_t otherwise)
{
    const attribute *a = find(d, name);
    int64_t wide = 0;
    int narrow = 0;
    if (!a) {
        return otherwise;
    }
    if (a->kind == DNN_V_BOOL) {
        return *(const char *)a->bytes;
    }
    if (size_of(a->kind) == 8) {
        memcpy(&wide, a->bytes, 8);
        return wide;
    }
    memcpy(&narrow, a->bytes, sizeof narrow);
    return narrow;
}

static descriptor *descriptor_of(const descriptor *d, int name)
{
    const attribute *a = find(d, name);
    descriptor *found = NULL;
    if (a && a->kind == DNN_V_DESCRIPTOR) {
        memcpy(&found, a->bytes, sizeof(void *));
    }
    return found;
}

EXPORT int cudnnBackendCreateDescriptor(int kind, descriptor **d)
{
    PLANNED();
    *d = calloc(1, sizeof **d);
    if (!*d) {
        return INTERNAL;
    }
    (*d)->kind = kind;
    alive++;
    return DNN_OK;
}

EXPORT int cudnnBackendDestroyDescriptor(descriptor *d)
{
    alive--;
    if (d->kept) {
        return DNN_OK;
    }
    for (int i = 0; i < d->nattributes; i++) {
        free(d->attributes[i].bytes);
    }
    free(d);
    return DNN_OK;
}

EXPORT int cudnnBackendSetAttribute(descriptor *d, int name, int kind, int64_t n, const void *v)
{
    PLANNED();
    if (d->finalized || d->nattributes == MOST_ATTRIBUTES || find(d, name) || !v || n < 1) {
        return BAD_PARAM;
    }
    const size_t size = (size_t)n * size_of(kind);
    void *bytes = malloc(size);
    if (!bytes) {
        return INTERNAL;
    }
    memcpy(bytes, v, size);
    d->attributes[d->nattributes++] = (attribute){name, kind, n, bytes};
    return DNN_OK;
}

/* -- what a descriptor needs -------------------------------------------------------------------------- */

static bool has(const descriptor *d, int name, int kind, int64_t n)
{
    const attribute *a = find(d, name);
    return a && a->kind == kind && (n < 0 || a->n == n);
}

static bool has_final(const descriptor *d, int name, int kind)
{
    const descriptor *to = descriptor_of(d, name);
    return to && to->finalized && to->kind == kind;
}

static const int64_t *dims_of(const descriptor *t)
{
    return find(t, DNN_A_TENSOR_DIMS)->bytes;
}

static int64_t count_of(const int64_t *dims)
{
    return dims[0] * dims[1] * dims[2] * dims[3];
}

/* b's extents are y's or 1 */
static bool spreads(const descriptor *b, const descriptor *y)
{
    bool ok = true;
    for (int i = 0; i < 4; i++) {
        ok &= dims_of(b)[i] == dims_of(y)[i] || dims_of(b)[i] == 1;
    }
    return ok;
}

static bool good_tensor(const descriptor *d)
{
    const int64_t *dims = find(d, DNN_A_TENSOR_DIMS) ? dims_of(d) : NULL;
    bool ok = has(d, DNN_A_TENSOR_TYPE, DNN_V_DATA_TYPE, 1) &&
              has(d, DNN_A_TENSOR_ID, DNN_V_I64, 1) && has(d, DNN_A_TENSOR_DIMS, DNN_V_I64, 4) &&
              has(d, DNN_A_TENSOR_STRIDES, DNN_V_I64, 4) &&
              has(d, DNN_A_TENSOR_ALIGNMENT, DNN_V_I64, 1) &&
              !(find(d, DNN_A_TENSOR_VIRTUAL) && find(d, DNN_A_TENSOR_BY_VALUE));
    for (int i = 0; ok && i < 4; i++) {
        const int64_t *strides = find(d, DNN_A_TENSOR_STRIDES)->bytes;
        ok = dims[i] > 0 && strides[i] > 0;
    }
    return ok;
}

static bool good_matmul(const descriptor *d)
{
    if (!has_final(d, DNN_A_OP_MATMUL, DNN_MATMUL) ||
        !has_final(d, DNN_A_OP_MATMUL_A, DNN_TENSOR) ||
        !has_final(d, DNN_A_OP_MATMUL_B, DNN_TENSOR) ||
        !has_final(d, DNN_A_OP_MATMUL_C, DNN_TENSOR)) {
        return false;
    }
    const descriptor *ta = descriptor_of(d, DNN_A_OP_MATMUL_A),
                     *tb = descriptor_of(d, DNN_A_OP_MATMUL_B);
    const int64_t *a = dims_of(ta), *b = dims_of(tb),
                  *c = dims_of(descriptor_of(d, DNN_A_OP_MATMUL_C));
    /* the engines multiply half types on both sides or f32 scores by half types after their rounding */
    return a[3] == b[2] && a[2] == c[2] && b[3] == c[3] && a[0] == c[0] && b[0] == c[0] &&
           a[1] == c[1] && b[1] == c[1];
}

static bool good_pointwise(const descriptor *d)
{
    const descriptor *how = descriptor_of(d, DNN_A_OP_POINTWISE);
    const descriptor *x = descriptor_of(d, DNN_A_OP_POINTWISE_X),
                     *b = descriptor_of(d, DNN_A_OP_POINTWISE_B),
                     *t = descriptor_of(d, DNN_A_OP_POINTWISE_T),
                     *y = descriptor_of(d, DNN_A_OP_POINTWISE_Y);
    if (!how || !how->finalized || !x || !x->finalized || !y || !y->finalized) {
        return false;
    }
    const int64_t mode = int_of(how, DNN_A_POINTWISE_MODE, -1);
    const bool one = mode == DNN_PW_EXP || mode == DNN_PW_LOG || mode == DNN_PW_INDEX;
    return spreads(x, y) && (one ? !b && !t : b && b->finalized && spreads(b, y)) &&
           (mode == DNN_PW_SELECT ? t && t->finalized && spreads(t, y) : !t) &&
           (mode != DNN_PW_INDEX || find(how, DNN_A_POINTWISE_AXIS));
}

static bool good_reduction(const descriptor *d)
{
    return has_final(d, DNN_A_OP_REDUCTION, DNN_REDUCTION) &&
           has_final(d, DNN_A_OP_REDUCTION_X, DNN_TENSOR) &&
           has_final(d, DNN_A_OP_REDUCTION_Y, DNN_TENSOR) &&
           spreads(descriptor_of(d, DNN_A_OP_REDUCTION_Y), descriptor_of(d, DNN_A_OP_REDUCTION_X));
}

static bool good_reshape(const descriptor *d)
{
    return has_final(d, DNN_A_OP_RESHAPE_X, DNN_TENSOR) &&
           has_final(d, DNN_A_OP_RESHAPE_Y, DNN_TENSOR) &&
           count_of(dims_of(descriptor_of(d, DNN_A_OP_RESHAPE_X))) ==
               count_of(dims_of(descriptor_of(d, DNN_A_OP_RESHAPE_Y)));
}

static bool is_conv(int kind)
{
    return kind == DNN_OP_CONV_FORWARD || kind == DNN_OP_CONV_DX || kind == DNN_OP_CONV_DW;
}

static int first_of(int kind)
{
    return kind == DNN_OP_CONV_FORWARD ? DNN_A_OP_CONV_FORWARD
           : kind == DNN_OP_CONV_DX    ? DNN_A_OP_CONV_DX
                                       : DNN_A_OP_CONV_DW;
}

/* The second word of an attribute of two. */
static const int64_t *pair_of(const descriptor *d, int name)
{
    return find(d, name)->bytes;
}

static bool good_how(const descriptor *d)
{
    bool ok = has(d, DNN_A_CONV_TYPE, DNN_V_DATA_TYPE, 1) && int_of(d, DNN_A_CONV_AXES, 0) == 2 &&
              has(d, DNN_A_CONV_MODE, DNN_V_CONV_MODE, 1) &&
              int_of(d, DNN_A_CONV_MODE, -1) == DNN_CROSS_CORRELATION;
    for (int name = DNN_A_CONV_DILATIONS; name < DNN_A_CONV_AXES; name++) {
        ok = ok && has(d, name, DNN_V_I64, 2);
    }
    return ok &&
           memcmp(pair_of(d, DNN_A_CONV_PADS_AFTER), pair_of(d, DNN_A_CONV_PADS_BEFORE), 16) == 0;
}

static double number_of(const descriptor *d, int name)
{
    const attribute *a = find(d, name);
    float narrow = NAN;
    double wide = NAN;
    if (a && a->kind == DNN_V_F64) {
        memcpy(&wide, a->bytes, sizeof wide);
        return wide;
    }
    if (a && a->kind == DNN_V_F32) {
        memcpy(&narrow, a->bytes, sizeof narrow);
    }
    return (double)narrow;
}

/* Extents, groups and types that go together. */
static bool good_conv(const descriptor *d)
{
    const int first = first_of(d->kind);
    if (!has_final(d, first + DNN_CONV_HOW, DNN_CONVOLUTION) ||
        !has_final(d, first + DNN_CONV_W, DNN_TENSOR) ||
        !has_final(d, first + DNN_CONV_X, DNN_TENSOR) ||
        !has_final(d, first + DNN_CONV_Y, DNN_TENSOR)) {
        return false;
    }
    const descriptor *how = descriptor_of(d, first + DNN_CONV_HOW),
                     *tw = descriptor_of(d, first + DNN_CONV_W),
                     *tx = descriptor_of(d, first + DNN_CONV_X),
                     *ty = descriptor_of(d, first + DNN_CONV_Y);
    const int64_t *w = dims_of(tw), *x = dims_of(tx), *y = dims_of(ty),
                  type = int_of(tx, DNN_A_TENSOR_TYPE, -1);
    const bool wide = type == DNN_F64;
    bool ok = type == int_of(tw, DNN_A_TENSOR_TYPE, -2) &&
              type == int_of(ty, DNN_A_TENSOR_TYPE, -2) && x[0] == y[0] && y[1] == w[0] &&
              x[1] % w[1] == 0 && y[1] % (x[1] / w[1]) == 0 &&
              int_of(how, DNN_A_CONV_TYPE, -1) == (wide ? DNN_F64 : DNN_F32) &&
              has(d, first + DNN_CONV_BETA, wide ? DNN_V_F64 : DNN_V_F32, 1) &&
              number_of(d, first + DNN_CONV_ALPHA) == 1;
    for (int i = 0; i < 2; i++) {
        const int64_t reach = pair_of(how, DNN_A_CONV_DILATIONS)[i] * (w[2 + i] - 1) + 1;
        ok &= y[2 + i] == (x[2 + i] + 2 * pair_of(how, DNN_A_CONV_PADS_BEFORE)[i] - reach) /
                                  pair_of(how, DNN_A_CONV_STRIDES)[i] +
                              1;
    }
    return ok;
}

/* Operands of an operation, the written one last. */
static int operands_of(const descriptor *d, descriptor *out[4])
{
    static const int names[][5] = {
        {DNN_OP_POINTWISE, DNN_A_OP_POINTWISE_X, DNN_A_OP_POINTWISE_B, DNN_A_OP_POINTWISE_T,
         DNN_A_OP_POINTWISE_Y},
        {DNN_OP_MATMUL, DNN_A_OP_MATMUL_A, DNN_A_OP_MATMUL_B, 0, DNN_A_OP_MATMUL_C},
        {DNN_OP_REDUCTION, DNN_A_OP_REDUCTION_X, 0, 0, DNN_A_OP_REDUCTION_Y},
        {DNN_OP_RESHAPE, DNN_A_OP_RESHAPE_X, 0, 0, DNN_A_OP_RESHAPE_Y},
        {DNN_OP_CONV_FORWARD, DNN_A_OP_CONV_FORWARD + DNN_CONV_X,
         DNN_A_OP_CONV_FORWARD + DNN_CONV_W, 0, DNN_A_OP_CONV_FORWARD + DNN_CONV_Y},
        {DNN_OP_CONV_DX, DNN_A_OP_CONV_DX + DNN_CONV_Y, DNN_A_OP_CONV_DX + DNN_CONV_W, 0,
         DNN_A_OP_CONV_DX + DNN_CONV_X},
        {DNN_OP_CONV_DW, DNN_A_OP_CONV_DW + DNN_CONV_X, DNN_A_OP_CONV_DW + DNN_CONV_Y, 0,
         DNN_A_OP_CONV_DW + DNN_CONV_W},
    };
    int n = 0;
    for (int k = 0; k < 7; k++) {
        for (int i = 1; i < 5 && names[k][0] == d->kind; i++) {
            descriptor *t = names[k][i] ? descriptor_of(d, names[k][i]) : NULL;
            if (t) {
                out[n++] = t;
            }
        }
    }
    return n;
}

/* Every tensor inside is written once, before it is read; outside ones are written once at most. */
static bool good_graph(const descriptor *d)
{
    const attribute *ops = find(d, DNN_A_GRAPH_OPS);
    static const descriptor *known[MOST_IDS];
    static bool written[MOST_IDS];
    memset(known, 0, sizeof known);
    memset(written, 0, sizeof written);
    if (!ops || ops->n > MOST_OPS || !find(d, DNN_A_GRAPH_HANDLE)) {
        return false;
    }
    for (int64_t i = 0; i < ops->n; i++) {
        const descriptor *o = ((descriptor *const *)ops->bytes)[i];
        descriptor *t[4];
        const int n = operands_of(o, t);
        for (int k = 0; k < n; k++) {
            const int64_t id = int_of(t[k], DNN_A_TENSOR_ID, -1);
            if (!o->finalized || id < 1 || id >= MOST_IDS || (known[id] && known[id] != t[k])) {
                return false;
            }
            known[id] = t[k];
            const bool inside = find(t[k], DNN_A_TENSOR_VIRTUAL);
            if (k < n - 1 ? inside && !written[id] : written[id]) {
                return false;
            }
            written[id] |= k == n - 1;
        }
    }
    return true;
}

/* -- plans as text: the number of a configuration that stays, with all it names, in this process ------------- */

enum { MOST_TEXTS = 256 };
static descriptor *texts[MOST_TEXTS];
static int ntexts;

static void keep(descriptor *d)
{
    for (int i = 0; i < d->nattributes && !d->kept; i++) {
        const attribute *a = &d->attributes[i];
        for (int64_t k = 0; k < a->n && a->kind == DNN_V_DESCRIPTOR; k++) {
            keep(((descriptor *const *)a->bytes)[k]);
        }
    }
    d->kept = true;
}

static int put_text(const descriptor *plan, int64_t room, int64_t *n, char *out)
{
    char text[64];
    descriptor *config = descriptor_of(plan, DNN_A_PLAN_CONFIG);
    int at = 0;
    while (at < ntexts && texts[at] != config) {
        at++;
    }
    *n = 1 + snprintf(text, sizeof text, "{\"fake\":%d,\"process\":%d}", at, (int)getpid());
    if (at == MOST_TEXTS || (room && room < *n)) {
        return BAD_PARAM;
    }
    if (room) {
        keep(config);
        texts[at] = config;
        ntexts += at == ntexts;
        memcpy(out, text, (size_t)*n);
    }
    return DNN_OK;
}

/* The configuration that the plan's text stands for becomes its own. */
static bool take_text(descriptor *plan)
{
    const attribute *a = find(plan, DNN_A_PLAN_JSON);
    int at = -1, process = 0;
    if (a->kind != DNN_V_CHAR || a->n > 63 || ((const char *)a->bytes)[a->n - 1] ||
        sscanf(a->bytes, "{\"fake\":%d,\"process\":%d}", &at, &process) != 2 || at < 0 ||
        at >= ntexts || process != (int)getpid() || find(plan, DNN_A_PLAN_CONFIG)) {
        return false;
    }
    return cudnnBackendSetAttribute(plan, DNN_A_PLAN_CONFIG, DNN_V_DESCRIPTOR, 1, &texts[at]) ==
           DNN_OK;
}

static bool good(descriptor *d)
{
    switch (d->kind) {
    case DNN_TENSOR:
        return good_tensor(d);
    case DNN_MATMUL:
        return int_of(d, DNN_A_MATMUL_TYPE, -1) == DNN_F32;
    case DNN_POINTWISE:
        return find(d, DNN_A_POINTWISE_MODE) && find(d, DNN_A_POINTWISE_TYPE);
    case DNN_REDUCTION:
        return find(d, DNN_A_REDUCTION_MODE) && int_of(d, DNN_A_REDUCTION_TYPE, -1) == DNN_F32;
    case DNN_OP_MATMUL:
        return good_matmul(d);
    case DNN_OP_POINTWISE:
        return good_pointwise(d);
    case DNN_OP_REDUCTION:
        return good_reduction(d);
    case DNN_OP_RESHAPE:
        return good_reshape(d);
    case DNN_CONVOLUTION:
        return good_how(d);
    case DNN_OP_CONV_FORWARD:
    case DNN_OP_CONV_DX:
    case DNN_OP_CONV_DW:
        return good_conv(d);
    case DNN_GRAPH:
        return good_graph(d);
    case DNN_HEURISTIC:
        return has_final(d, DNN_A_HEURISTIC_GRAPH, DNN_GRAPH) && find(d, DNN_A_HEURISTIC_MODE);
    case DNN_PLAN:
        return find(d, DNN_A_PLAN_HANDLE) &&
               (find(d, DNN_A_PLAN_JSON) ? take_text(d)
                                         : has_final(d, DNN_A_PLAN_CONFIG, DNN_CONFIG));
    case DNN_PACK:
        return find(d, DNN_A_PACK_IDS) && find(d, DNN_A_PACK_POINTERS) &&
               find(d, DNN_A_PACK_WORKSPACE) &&
               find(d, DNN_A_PACK_IDS)->n == find(d, DNN_A_PACK_POINTERS)->n;
    }
    return false;
}

EXPORT int cudnnBackendFinalize(descriptor *d)
{
    PLANNED();
    if (d->finalized || !good(d)) {
        return BAD_PARAM;
    }
    if (d->kind == DNN_PLAN && descriptor_of(d, DNN_A_PLAN_CONFIG)->engine == NO_PLAN) {
        return DNN_NOT_SUPPORTED + 1;
    }
    d->finalized = true;
    return DNN_OK;
}

/* The convolution that a graph is; NULL: it is something else. */
static const descriptor *conv_of(const descriptor *graph)
{
    const descriptor *o = *(descriptor *const *)find(graph, DNN_A_GRAPH_OPS)->bytes;
    return is_conv(o->kind) ? o : NULL;
}

/* Does a tensor of a convolution step through its channels last? */
static bool is_last(const descriptor *o, int which)
{
    const descriptor *t = descriptor_of(o, first_of(o->kind) + which);
    const int64_t *strides = find(t, DNN_A_TENSOR_STRIDES)->bytes;
    return strides[1] < strides[3];
}

/* The engines of a graph: what a configuration says of them is in `engine`. */
static int results(const descriptor *d, int64_t room, int64_t *n, descriptor **configs)
{
    static const int of_convs[CONV_ENGINES] = {NOT_DETERMINISTIC, NO_PLAN, TOO_LARGE, NARROW,
                                               TENSOR_CORES,      GOOD,    SMALL};
    const descriptor *conv = conv_of(descriptor_of(d, DNN_A_HEURISTIC_GRAPH));
    const char *mixed = getenv("FAKE_CUDNN_MIXED");
    const bool best = int_of(d, DNN_A_HEURISTIC_MODE, -1) == DNN_HEURISTIC_A;
    const bool many =
        getenv("FAKE_CUDNN_MANY_ENGINES") != NULL; /* of no use; there is no room for all */
    *n = !best || getenv("FAKE_CUDNN_NO_ENGINE") ? 0 : many ? MANY : conv ? CONV_ENGINES : ENGINES;
    if (conv && mixed && mixed[0] == '0' &&
        (is_last(conv, DNN_CONV_X) || is_last(conv, DNN_CONV_Y))) { /* weights are NCHW */
        *n = 0;
    }
    for (int i = 0; i < *n && i < room; i++) {
        configs[i]->engine = many ? NOT_DETERMINISTIC : conv ? of_convs[i] : i;
        configs[i]->finalized = true;
        configs[i]->attributes[0] =
            (attribute){DNN_A_HEURISTIC_GRAPH, DNN_V_DESCRIPTOR, 1, malloc(sizeof(void *))};
        memcpy(configs[i]->attributes[0].bytes, find(d, DNN_A_HEURISTIC_GRAPH)->bytes,
               sizeof(void *));
        configs[i]->nattributes = 1;
    }
    return DNN_OK;
}

EXPORT int cudnnBackendGetAttribute(descriptor *d, int name, int kind, int64_t room, int64_t *n,
                                    void *v)
{
    PLANNED();
    if (!d->finalized) {
        return BAD_PARAM + 4;
    }
    *n = 1;
    if (name == DNN_A_PLAN_JSON && kind == DNN_V_CHAR) {
        return put_text(d, room, n, v);
    }
    if (name == DNN_A_HEURISTIC_RESULTS && kind == DNN_V_DESCRIPTOR) {
        asked++;
        return results(d, room, n, v);
    }
    if (name == DNN_A_CONFIG_ENGINE && kind == DNN_V_DESCRIPTOR) {
        descriptor *engine = *(descriptor **)v;
        engine->engine = d->engine;
        engine->conv = conv_of(descriptor_of(d, DNN_A_HEURISTIC_GRAPH)) != NULL;
        engine->finalized = true;
        return engine->kind == DNN_ENGINE ? DNN_OK : BAD_PARAM;
    }
    if (name == DNN_A_ENGINE_NOTES && kind == DNN_V_NOTE && room >= 2) {
        const bool cores = !d->conv || d->engine == TENSOR_CORES;
        ((int *)v)[0] = cores ? DNN_NOTE_TENSOR_CORE : 9; /* NaN stays NaN */
        ((int *)v)[1] = d->engine == NARROW ? DNN_NOTE_NARROW_SUMS : DNN_NOTE_NONDETERMINISTIC;
        *n = d->engine == NOT_DETERMINISTIC || d->engine == NARROW ? 2 : 1;
        return DNN_OK;
    }
    if (name == DNN_A_PLAN_WORKSPACE && kind == DNN_V_I64) {
        const int engine = descriptor_of(d, DNN_A_PLAN_CONFIG)->engine;
        const char *wanted = getenv("FAKE_CUDNN_WORKSPACE");
        const int64_t size = engine == TOO_LARGE ? INT64_MAX / 2
                             : engine == SMALL   ? 0
                             : wanted            ? strtoll(wanted, NULL, 10)
                                                 : GRAPH_WORKSPACE;
        memcpy(v, &size, sizeof size);
        return DNN_OK;
    }
    return BAD_PARAM;
}

/* -- running ------------------------------------------------------------------------------------------ */

static double rounded(int type, double v)
{
    return type == DNN_F16    ? (double)wf_f32_of_f16(wf_f16_of_f32((float)v))
           : type == DNN_BF16 ? (double)wf_f32_of_bf16(wf_bf16_of_f32((float)v))
           : type == DNN_F32  ? (double)(float)v
                              : v;
}

static int64_t place_of(const tensor *t, int64_t i)
{
    int64_t at = 0;
    for (int d = 3; d >= 0; d--) {
        at += i % t->dims[d] * t->strides[d];
        i /= t->dims[d];
    }
    return at;
}

static double read_at(const tensor *t, int64_t i)
{
    const int64_t at = place_of(t, i);
    if (t->type == DNN_F64) {
        return ((const double *)t->memory)[at];
    }
    if (t->type == DNN_F32) {
        return (double)((const float *)t->memory)[at];
    }
    const uint16_t half = ((const uint16_t *)t->memory)[at];
    return (double)(t->type == DNN_F16 ? wf_f32_of_f16(half) : wf_f32_of_bf16(half));
}

static void write_at(const tensor *t, int64_t i, double v)
{
    const int64_t at = place_of(t, i);
    if (t->type == DNN_F64) {
        ((double *)t->memory)[at] = v;
    } else if (t->type == DNN_F32) {
        ((float *)t->memory)[at] = (float)v;
    } else {
        ((uint16_t *)t->memory)[at] =
            t->type == DNN_F16 ? wf_f16_of_f32((float)v) : wf_bf16_of_f32((float)v);
    }
}

/* Which element of b (extents of t, or 1) meets element i of t. */
static int64_t spread(const tensor *t, const tensor *b, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = 3; d >= 0; d--) {
        at += b->dims[d] == 1 ? 0 : i % t->dims[d] * step;
        i /= t->dims[d];
        step *= b->dims[d];
    }
    return at;
}

static double mapped(const op *o, double x, double b, bool set, int64_t index)
{
    switch (o->mode) {
    case DNN_PW_ADD:
        return x + b;
    case DNN_PW_SUB:
        return x - b;
    case DNN_PW_MUL:
        return x * b;
    case DNN_PW_DIV:
        return x / b;
    case DNN_PW_EXP:
        return exp(x);
    case DNN_PW_LOG:
        return log(x);
    case DNN_PW_GE:
        return x >= b;
    case DNN_PW_INDEX:
        return (double)index;
    case DNN_PW_SELECT:
        return set ? x : b;
    }
    return NAN;
}

static void run_map(const run *r, const op *o, double *y)
{
#define VALUES(t) r->values[(t)-r->tensors]
    for (int64_t i = 0; i < o->y->n; i++) {
        int64_t index = i;
        for (int64_t d = 3; d > o->axis; d--) {
            index /= o->y->dims[d];
        }
        index %= o->y->dims[o->axis];
        const double x = VALUES(o->x)[spread(o->y, o->x, i)];
        const double b = o->b ? VALUES(o->b)[spread(o->y, o->b, i)] : 0;
        y[i] = mapped(o, x, b, o->t && VALUES(o->t)[spread(o->y, o->t, i)] != 0, index);
    }
}

static void run_matmul(const run *r, const op *o, double *y)
{
    const double *a = VALUES(o->x), *b = VALUES(o->b);
    const int64_t m = o->y->dims[2], n = o->y->dims[3], k = o->x->dims[3];
    for (int64_t i = 0; i < o->y->n; i++) {
        const int64_t item = i / (m * n), row = i / n % m, col = i % n;
        y[i] = 0;
        for (int64_t l = 0; l < k; l++) {
            y[i] += a[(item * m + row) * k + l] * b[(item * k + l) * n + col];
        }
    }
}

static void run_reduce(const run *r, const op *o, double *y)
{
    const double *x = VALUES(o->x);
    for (int64_t i = 0; i < o->y->n; i++) {
        y[i] = o->mode == DNN_REDUCE_MAX ? -(double)INFINITY : 0;
    }
    for (int64_t i = 0; i < o->x->n; i++) {
        double *to = &y[spread(o->x, o->y, i)];
        *to = o->mode == DNN_REDUCE_MAX ? fmax(*to, x[i]) : *to + x[i];
    }
}

static double factor(const run *r, double v)
{
    return r->narrow ? vendor_tf32(v) : v;
}

static int64_t number_at(const int64_t *d, int64_t a, int64_t b, int64_t c, int64_t e)
{
    return ((a * d[1] + b) * d[2] + c) * d[3] + e;
}

/* Every product of the convolution once, for whichever of the three it is added to. */
static void run_conv(const run *r, const op *o, double *out)
{
    const bool dx = o->kind == DNN_OP_CONV_DX, dw = o->kind == DNN_OP_CONV_DW;
    const tensor *x = dx ? o->y : o->x, *w = dw ? o->y : o->b, *y = dx ? o->x : dw ? o->b : o->y;
    const int64_t outer = y->dims[1] / (x->dims[1] / w->dims[1]);
    for (int64_t i = 0; i < o->y->n; i++) {
        out[i] = o->beta != 0 ? o->beta * out[i] : 0;
    }
    for (int64_t i = 0; i < y->n * w->dims[1] * w->dims[2] * w->dims[3]; i++) {
        const int64_t kw = i % w->dims[3], kh = i / w->dims[3] % w->dims[2],
                      c = i / w->dims[3] / w->dims[2] % w->dims[1],
                      at = i / w->dims[3] / w->dims[2] / w->dims[1], v = at % y->dims[3],
                      h = at / y->dims[3] % y->dims[2],
                      f = at / y->dims[3] / y->dims[2] % y->dims[1],
                      n = at / y->dims[3] / y->dims[2] / y->dims[1];
        const int64_t p = h * o->stride[0] - o->pad[0] + kh * o->dilation[0],
                      q = v * o->stride[1] - o->pad[1] + kw * o->dilation[1];
        if (p < 0 || q < 0 || p >= x->dims[2] || q >= x->dims[3]) {
            continue;
        }
        const int64_t px = number_at(x->dims, n, f / outer * w->dims[1] + c, p, q),
                      pw = number_at(w->dims, f, c, kh, kw);
        if (dx) {
            out[px] += factor(r, VALUES(y)[at]) * factor(r, VALUES(w)[pw]);
        } else if (dw) {
            out[pw] += factor(r, VALUES(y)[at]) * factor(r, VALUES(x)[px]);
        } else {
            out[at] += factor(r, VALUES(x)[px]) * factor(r, VALUES(w)[pw]);
        }
    }
}

/* The same places of memory, by either's strides. */
static void run_reshape(const run *r, const op *o, double *y)
{
    double *at = calloc((size_t)place_of(o->x, o->x->n - 1) + 1, sizeof *at);
    for (int64_t i = 0; i < o->x->n; i++) {
        at[place_of(o->x, i)] = VALUES(o->x)[i];
    }
    for (int64_t i = 0; i < o->y->n; i++) {
        y[i] = at[place_of(o->y, i)];
    }
    free(at);
}

static void run_graph(void *arg)
{
    run *r = arg;
    for (int i = 0; i < r->ntensors; i++) {
        tensor *t = &r->tensors[i];
        r->values[i] = calloc((size_t)t->n, sizeof(double));
        for (int64_t k = 0; !t->inside && k < t->n; k++) {
            r->values[i][k] = t->by_value ? (double)t->value : read_at(t, k);
        }
    }
    for (int i = 0; i < r->nops; i++) {
        const op *o = &r->ops[i];
        double *y = VALUES(o->y);
        if (o->kind == DNN_OP_MATMUL) {
            run_matmul(r, o, y);
        } else if (o->kind == DNN_OP_REDUCTION) {
            run_reduce(r, o, y);
        } else if (o->kind == DNN_OP_RESHAPE) {
            run_reshape(r, o, y);
        } else if (is_conv(o->kind)) {
            run_conv(r, o, y);
        } else {
            run_map(r, o, y);
        }
        for (int64_t k = 0; k < o->y->n; k++) {
            y[k] = rounded(o->y->type, y[k]);
            if (!o->y->inside) {
                write_at(o->y, k, y[k]);
            }
        }
    }
    for (int i = 0; i < r->ntensors; i++) {
        free(r->values[i]);
    }
#undef VALUES
}

/* The tensor of the run, its pointer from the pack; NULL: it has none, or one that it must not have. */
static tensor *tensor_of(run *r, const descriptor *d, const descriptor *pack)
{
    if (!d) {
        return NULL;
    }
    tensor t = {.id = int_of(d, DNN_A_TENSOR_ID, 0),
                .n = count_of(dims_of(d)),
                .type = (int)int_of(d, DNN_A_TENSOR_TYPE, 0),
                .inside = find(d, DNN_A_TENSOR_VIRTUAL),
                .by_value = find(d, DNN_A_TENSOR_BY_VALUE)};
    memcpy(t.dims, dims_of(d), sizeof t.dims);
    memcpy(t.strides, find(d, DNN_A_TENSOR_STRIDES)->bytes, sizeof t.strides);
    for (int i = 0; i < r->ntensors; i++) {
        if (r->tensors[i].id == t.id) {
            return &r->tensors[i];
        }
    }
    const attribute *ids = find(pack, DNN_A_PACK_IDS);
    for (int64_t i = 0; i < ids->n; i++) {
        if (((const int64_t *)ids->bytes)[i] == t.id) {
            t.memory = ((void *const *)find(pack, DNN_A_PACK_POINTERS)->bytes)[i];
        }
    }
    if (t.by_value && t.memory) {
        t.value = *(const float *)t.memory;
    }
    const bool even = t.by_value || (uintptr_t)t.memory % 16 == 0;
    if (r->ntensors == MOST_IDS / 16 || t.inside == (t.memory != NULL) || !even) {
        r->nops = -1;
        return NULL;
    }
    r->tensors[r->ntensors] = t;
    return &r->tensors[r->ntensors++];
}

static op op_of(run *r, const descriptor *d, const descriptor *pack)
{
    const descriptor *how =
        descriptor_of(d, d->kind == DNN_OP_POINTWISE ? DNN_A_OP_POINTWISE : DNN_A_OP_REDUCTION);
    op o = {.kind = d->kind};
    if (d->kind == DNN_OP_POINTWISE) {
        o.mode = (int)int_of(how, DNN_A_POINTWISE_MODE, 0);
        o.axis = int_of(how, DNN_A_POINTWISE_AXIS, 0);
        o.x = tensor_of(r, descriptor_of(d, DNN_A_OP_POINTWISE_X), pack);
        o.b = tensor_of(r, descriptor_of(d, DNN_A_OP_POINTWISE_B), pack);
        o.t = tensor_of(r, descriptor_of(d, DNN_A_OP_POINTWISE_T), pack);
        o.y = tensor_of(r, descriptor_of(d, DNN_A_OP_POINTWISE_Y), pack);
    } else if (d->kind == DNN_OP_MATMUL) {
        o.x = tensor_of(r, descriptor_of(d, DNN_A_OP_MATMUL_A), pack);
        o.b = tensor_of(r, descriptor_of(d, DNN_A_OP_MATMUL_B), pack);
        o.y = tensor_of(r, descriptor_of(d, DNN_A_OP_MATMUL_C), pack);
    } else if (d->kind == DNN_OP_REDUCTION) {
        o.mode = (int)int_of(how, DNN_A_REDUCTION_MODE, 0);
        o.x = tensor_of(r, descriptor_of(d, DNN_A_OP_REDUCTION_X), pack);
        o.y = tensor_of(r, descriptor_of(d, DNN_A_OP_REDUCTION_Y), pack);
    } else if (is_conv(d->kind)) {
        const int first = first_of(d->kind);
        descriptor *t[4];
        const descriptor *conv = descriptor_of(d, first + DNN_CONV_HOW);
        operands_of(d, t);
        o.x = tensor_of(r, t[0], pack);
        o.b = tensor_of(r, t[1], pack);
        o.y = tensor_of(r, t[2], pack);
        o.beta = number_of(d, first + DNN_CONV_BETA);
        memcpy(o.pad, pair_of(conv, DNN_A_CONV_PADS_BEFORE), sizeof o.pad);
        memcpy(o.stride, pair_of(conv, DNN_A_CONV_STRIDES), sizeof o.stride);
        memcpy(o.dilation, pair_of(conv, DNN_A_CONV_DILATIONS), sizeof o.dilation);
    } else {
        o.x = tensor_of(r, descriptor_of(d, DNN_A_OP_RESHAPE_X), pack);
        o.y = tensor_of(r, descriptor_of(d, DNN_A_OP_RESHAPE_Y), pack);
    }
    return o;
}

EXPORT int cudnnBackendExecute(dnn_handle lib, descriptor *plan, descriptor *pack)
{
    PLANNED();
    if (!plan->finalized || !pack->finalized || plan->kind != DNN_PLAN || pack->kind != DNN_PACK) {
        return BAD_PARAM;
    }
    if (getenv("FAKE_CUDNN_REFUSES")) {
        return DNN_NOT_SUPPORTED + 7; /* ..._SUBLIBRARY and the like */
    }
    const descriptor *config = descriptor_of(plan, DNN_A_PLAN_CONFIG);
    const attribute *ops = find(descriptor_of(config, DNN_A_HEURISTIC_GRAPH), DNN_A_GRAPH_OPS);
    void *workspace = NULL;
    memcpy(&workspace, find(pack, DNN_A_PACK_WORKSPACE)->bytes, sizeof workspace);
    const descriptor *conv = conv_of(descriptor_of(config, DNN_A_HEURISTIC_GRAPH));
    const int64_t type =
        conv ? int_of(descriptor_of(conv, first_of(conv->kind) + DNN_CONV_X), DNN_A_TENSOR_TYPE, -1)
             : -1;
    const bool narrow = config->engine == TENSOR_CORES && type == DNN_F32;
    if (config->engine == SMALL
            ? workspace != NULL
            : !workspace || (narrow ? !getenv("WEFT_TF32")
                                    : config->engine != GOOD && config->engine != TENSOR_CORES)) {
        return BAD_PARAM;
    }
    static run *kept;
    run *r = calloc(1, sizeof *r);
    if (!r) {
        return INTERNAL;
    }
    r->next = kept;
    r->narrow = narrow;
    kept = r;
    for (int64_t i = 0; i < ops->n && r->nops >= 0; i++) {
        const op o = op_of(r, ((descriptor *const *)ops->bytes)[i], pack);
        if (r->nops >= 0) {
            r->ops[r->nops++] = o;
        }
    }
    return r->nops < 0 ? BAD_PARAM : fake_cudnn_queue(lib, run_graph, r);
}
