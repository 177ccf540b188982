/*
 * jit/gpu/row_index.c -- gathers and scatters: the rows of eager/index.c on the device.
 *
 * Indices that are not contiguous i64 are copied. A bad one goes to the error word; where the host names the
 * first in row-major order, the device names one of them. Additions happen in index order.
 */
#include "eager/dense.h"
#include "jit/gpu/impl.h"

typedef struct task {
    int ordinal, axis;
    wf_exec *e;
    wf_gpu_temps temps;
    wf_view index;
    void *error;
    int64_t extent;
} task;

static int64_t product(const int64_t *dims, int n)
{
    int64_t p = 1;
    for (int i = 0; i < n; i++)
        p *= dims[i];
    return p;
}

/* src: which operand has the indices. */
static int open(task *t, int src, int64_t extent)
{
    t->extent = extent;
    int status = wf_gpu_dense(&t->temps, &t->e->src[src], WEFT_I64, &t->index, t->e->why);
    if (status == 0)
        status = wf_cuda_error_word(t->ordinal, t->e->op, NULL, extent, t->e->src, t->e->nsrc,
                                    &t->error, t->e->why);
    return status;
}

/* The one stride of axes [begin, end) of v taken together; false: there is none. */
static bool one_stride(const wf_view *v, int begin, int end, int64_t *stride)
{
    bool first = true;
    int64_t expect = 0;
    *stride = 0;
    for (int i = end - 1; i >= begin; i--) {
        if (v->dims[i] == 1)
            continue;
        if (first)
            *stride = v->strides[i];
        else if (v->strides[i] != expect)
            return false;
        first = false;
        expect = v->strides[i] * v->dims[i];
    }
    return true;
}

static int select_slices(task *t)
{
    wf_exec *e = t->e;
    wf_view x = e->src[0];
    int64_t outer = 0, inner = 0;
    int status = open(t, 1, x.dims[t->axis]);
    if (status == 0 &&
        (!one_stride(&x, 0, t->axis, &outer) || !one_stride(&x, t->axis + 1, x.rank, &inner))) {
        status = wf_gpu_dense(&t->temps, &e->src[0], x.dtype, &x, e->why);
        if (status == 0 &&
            x.data == e->src[0].data) /* contiguous already: strides are what they seem */
            status = WEFT_EUNSUPPORTED;
        one_stride(&x, 0, t->axis, &outer);
        one_stride(&x, t->axis + 1, x.rank, &inner);
    }
    const wf_view *dst = &e->dst[0];
    const int64_t size = (int64_t)wf_dtype_size(x.dtype), jump = x.strides[t->axis];
    const int64_t n = wf_view_numel(&t->index);
    const int64_t row = product(x.dims + t->axis + 1, x.rank - t->axis - 1);
    /* neighbours are taken as one element of up to 8 bytes */
    int64_t wide = size;
    const uint64_t places =
        wf_gpu_word(dst->data) | wf_gpu_word(x.data) | (uint64_t)(size * (outer | jump | row));
    while (inner == 1 && wide < 8 && places % (uint64_t)(2 * wide) == 0)
        wide *= 2;
    const int64_t each = wide / size;
    wf_gpu_hand h = {
        "select", 1, {wf_gpu_bits_of(wide)}, .work = (wf_view_numel(dst) / each + 3) / 4};
    const uint64_t words[] = {wf_gpu_word(dst->data),
                              wf_gpu_word(x.data),
                              wf_gpu_word(t->index.data),
                              (uint64_t)(wf_view_numel(dst) / each),
                              (uint64_t)(outer / each),
                              (uint64_t)(jump / each),
                              (uint64_t)inner,
                              (uint64_t)t->extent,
                              wf_gpu_word(t->error)};
    memcpy(h.w, words, sizeof words);
    wf_gpu_divisor(h.w + 9, row / each);
    wf_gpu_divisor(h.w + 12, n);
    return status ? status : wf_gpu_hand_run(t->ordinal, &h, e->why);
}

static int along(task *t)
{
    wf_exec *e = t->e;
    const wf_view *x = &e->src[0], *dst = &e->dst[0];
    const int status = open(t, 1, x->dims[t->axis]);
    wf_gpu_hand h = {"along", 1, {wf_gpu_bits(x->dtype)}, .work = wf_view_numel(dst)};
    const uint64_t words[] = {wf_gpu_word(dst->data),     wf_gpu_word(x->data),
                              wf_gpu_word(t->index.data), (uint64_t)h.work,
                              (uint64_t)t->extent,        (uint64_t)x->strides[t->axis],
                              wf_gpu_word(t->error),      (uint64_t)x->rank};
    memcpy(h.w, words, sizeof words);
    for (int d = 0; d < x->rank; d++) {
        const int axis = x->rank - 1 - d;
        h.w[8 + 2 * d] = (uint64_t)dst->dims[axis];
        h.w[9 + 2 * d] = axis == t->axis ? 0 : (uint64_t)x->strides[axis];
    }
    return status ? status : wf_gpu_hand_run(t->ordinal, &h, e->why);
}

/* Places times indices from which sorting costs less than looking at all of them. */
enum { SORTED_FROM = 1 << 20, WARPS_EACH = 64 /* of a processor */ };

/* The places of the indices in ascending order, and where they stood. */
static int sort_places(task *t, wf_view *key, wf_view *at)
{
    const int64_t n = wf_view_numel(&t->index);
    wf_view keys[2], ats[2];
    int status = 0, now = 0;
    for (int i = 0; i < 2 && status == 0; i++) {
        status = wf_gpu_temp_view(&t->temps, WEFT_I64, 1, &n, &keys[i], t->e->why);
        if (status == 0)
            status = wf_gpu_temp_view(&t->temps, WEFT_I64, 1, &n, &ats[i], t->e->why);
    }
    if (status != 0)
        return status;
    wf_gpu_hand h = {"places", 0, .work = n};
    const uint64_t words[] = {wf_gpu_word(keys[0].data), wf_gpu_word(t->index.data), (uint64_t)n,
                              (uint64_t)t->extent, wf_gpu_word(t->error)};
    memcpy(h.w, words, sizeof words);
    status = wf_gpu_hand_run(t->ordinal, &h, t->e->why);
    if (status == 0)
        status = wf_gpu_sort_keys(t->ordinal, keys, ats, &now, t->e->why);
    *key = keys[now];
    *at = ats[now];
    return status;
}

static int launch_index_add(task *t, const wf_view *acc, const wf_view *values)
{
    const int64_t n = wf_view_numel(&t->index);
    const bool sorted = t->extent > SORTED_FROM / n;
    wf_view key = {.data = NULL}, at = t->index;
    const int status = sorted ? sort_places(t, &key, &at) : 0;
    if (status != 0)
        return status;
    const int64_t outer = product(acc->dims, t->axis);
    const int64_t inner = product(acc->dims + t->axis + 1, acc->rank - t->axis - 1);
    /* a warp has a place; where those are few, a part of its columns */
    const int64_t chunk = sorted ? 128 : 32, chunks = (inner + chunk - 1) / chunk;
    const bool many = sorted && outer * t->extent >= wf_gpu_processors(t->ordinal) * WARPS_EACH;
    const int64_t parts = many ? 1 : chunks;
    wf_gpu_hand h = {sorted ? "index_add_sorted" : "index_add",
                     1,
                     {values->dtype},
                     .per_block = WF_GPU_THREADS / 32};
    const uint64_t words[] = {wf_gpu_word(acc->data),
                              wf_gpu_word(values->data),
                              wf_gpu_word(at.data),
                              (uint64_t)outer,
                              (uint64_t)t->extent,
                              (uint64_t)inner,
                              (uint64_t)n,
                              sorted ? wf_gpu_word(key.data) : wf_gpu_word(t->error)};
    memcpy(h.w, words, sizeof words);
    wf_gpu_divisor(h.w + 8, parts);
    wf_gpu_divisor(h.w + 11, t->extent);
    h.w[14] = (uint64_t)(many ? chunks * chunk : chunk);
    h.work = outer * t->extent * parts;
    return wf_gpu_hand_run(t->ordinal, &h, t->e->why);
}

static int launch_scatter_add(task *t, const wf_view *acc, const wf_view *values)
{
    const int64_t outer = product(values->dims, t->axis);
    const int64_t inner = product(t->index.dims + t->axis + 1, acc->rank - t->axis - 1);
    wf_gpu_hand h = {"scatter_add", 1, {values->dtype}, .work = outer * inner};
    const uint64_t words[] = {
        wf_gpu_word(acc->data), wf_gpu_word(values->data),          wf_gpu_word(t->index.data),
        (uint64_t)outer,        (uint64_t)t->index.dims[t->axis],   (uint64_t)inner,
        (uint64_t)t->extent,    (uint64_t)acc->strides[t->axis],    wf_gpu_word(t->error),
        (uint64_t)t->axis,      (uint64_t)(acc->rank - t->axis - 1)};
    memcpy(h.w, words, sizeof words);
    int n = 0;
    for (int axis = acc->rank - 1; axis >= 0; axis--) {
        if (axis == t->axis)
            continue;
        h.w[11 + 2 * n] = (uint64_t)values->dims[axis];
        h.w[12 + 2 * n++] = (uint64_t)acc->strides[axis];
    }
    return wf_gpu_hand_run(t->ordinal, &h, t->e->why);
}

/* Accumulates in the compute type: in dst itself, or in a temporary that is rounded once. */
static int add(task *t)
{
    wf_exec *e = t->e;
    wf_view *dst = &e->dst[0], acc = *dst, values;
    const int compute = wf_dtype_compute(dst->dtype);
    int status = open(t, 1, e->src[0].dims[t->axis]);
    if (status == 0 && compute != dst->dtype)
        status = wf_gpu_temp_view(&t->temps, compute, dst->rank, dst->dims, &acc, e->why);
    if (status == 0)
        status = wf_gpu_copy(t->ordinal, &acc, &e->src[0], e->why);
    if (status == 0)
        status = wf_gpu_dense(&t->temps, &e->src[2], e->src[2].dtype, &values, e->why);
    if (status == 0 && wf_view_numel(&values) > 0) {
        /* of vectors both are the same, and one of them does not walk all indices in one thread */
        const bool slices = e->op == WF_OP_INDEX_ADD ||
                            (dst->rank == 1 && values.dims[0] == wf_view_numel(&t->index));
        status = slices ? launch_index_add(t, &acc, &values) : launch_scatter_add(t, &acc, &values);
    }
    if (status == 0 && compute != dst->dtype)
        status = wf_gpu_copy(t->ordinal, dst, &acc, e->why);
    return status;
}

/* index == 0, 1, 2 ... along a new last axis; negative ones from the end. */
static int one_hot(task *t)
{
    wf_exec *e = t->e;
    wf_view *dst = &e->dst[0], row = *dst;
    wf_program p;
    const int64_t classes = e->attr->dyn[0], none = 0;
    int status = open(t, 0, classes);
    wf_gpu_hand h = {"check", 0, .work = wf_view_numel(&t->index)};
    const uint64_t words[] = {wf_gpu_word(t->index.data), (uint64_t)h.work, (uint64_t)classes,
                              wf_gpu_word(t->error), (uint64_t)-classes};
    memcpy(h.w, words, sizeof words);
    if (status == 0)
        status = wf_gpu_hand_run(t->ordinal, &h, e->why);
    wf_program_init(&p);
    const int at = wf_program_input_row(&p, WEFT_I64), count = wf_program_scalar(&p, WEFT_I64);
    const int zero = wf_program_scalar(&p, WEFT_I64);
    const int low = wf_program_map(&p, WF_OP_LESS, WEFT_I64, 2, (int[]){at, zero});
    const int wrapped = wf_program_map(&p, WF_OP_ADD, WEFT_I64, 2, (int[]){at, count});
    const int place = wf_program_map(&p, WF_OP_WHERE, WEFT_I64, 3, (int[]){low, wrapped, at});
    const int number = wf_program_iota(&p, WEFT_I64);
    const int hit = wf_program_map(&p, WF_OP_EQUAL, WEFT_I64, 2, (int[]){number, place});
    wf_program_output(&p, wf_program_cast(&p, hit, dst->dtype));
    if (status == 0 && wf_program_finish(&p) != 0)
        status = WEFT_EUNSUPPORTED;
    row.data = t->index.data;
    row.dtype = WEFT_I64;
    for (int i = 0; i < t->index.rank; i++)
        row.strides[i] = t->index.strides[i];
    row.strides[dst->rank - 1] = 0;
    const void *scalars[2] = {&classes, &none};
    const wf_program_args a = {
        .dst = dst, .src = &row, .scalars = scalars, .axes = 1u << (dst->rank - 1)};
    return status ? status : wf_gpu_program(t->ordinal, &p, 0, &a, e->why);
}

int wf_gpu_row_index(int ordinal, wf_exec *e)
{
    task t = {.ordinal = ordinal, .e = e, .temps.ordinal = ordinal};
    int status = WEFT_EUNSUPPORTED;
    if (wf_view_numel(&e->dst[0]) == 0 && e->op != WF_OP_INDEX_SELECT && e->op != WF_OP_TAKE_ALONG)
        return 0;
    t.axis = e->op == WF_OP_ONE_HOT ? 0 : (int)e->attr->ints[0];
    if (e->dst[0].rank > 12)
        return status;
    if (e->op == WF_OP_INDEX_SELECT)
        status = select_slices(&t);
    else if (e->op == WF_OP_TAKE_ALONG)
        status = along(&t);
    else if (e->op == WF_OP_ONE_HOT)
        status = one_hot(&t);
    else
        status = add(&t);
    wf_gpu_drop(&t.temps);
    return status;
}
