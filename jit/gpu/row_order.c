/*
 * jit/gpu/row_order.c -- argmax and argmin, running sums and products, sorts.
 *
 * A scan adds in the host's order (docs/reductions.md; f64 for floats, one rounding at the end): lines of more than a part are
 * totals of parts, what each level adds to a part, and outputs. Long rows whose extreme is looked for are split where there are
 * few, and the parts' candidates looked at once more.
 * A sort merges runs; values are fetched by their position, so all their bits survive.
 */
#include "eager/dense.h"
#include "eager/reduce.h"
#include "jit/gpu/impl.h"

/* Extents and strides of the axes that are not among `axes`, innermost first, to w; neighbours that are walked as one are one. How
 * many there are (no more than 15: an axis is among `axes`, or all are). *places: bits of all the bytes between rows. */
static int kept_axes(const wf_view *x, unsigned axes, uint64_t *w, uint64_t *places)
{
    int n = 0;
    *places = wf_gpu_word(x->data);
    for (int i = x->rank - 1; i >= 0; i--) {
        const uint64_t extent = (uint64_t)x->dims[i], stride = (uint64_t)x->strides[i];
        if (axes >> i & 1 || extent == 1)
            continue;
        *places |= stride * wf_dtype_size(x->dtype);
        if (n > 0 && w[2 * n - 2] * w[2 * n - 1] == stride) {
            w[2 * n - 2] *= extent;
        } else {
            w[2 * n] = extent;
            w[2 * n++ + 1] = stride;
        }
    }
    return n;
}

/* h: all but how the n elements of a row are looked at. Neighbours that are adjacent and may be one load are; rows side by side have a
 * thread each, short rows a few, long ones a block where there are few of them. Parts make up for rows that are missing. */
static int arg_of_rows(int ordinal, wf_gpu_hand *h, int64_t n, int each, int beside, wf_why *why)
{
    /* items of a thread before a row has more threads, and of a row that a block may have */
    enum { ITEMS = 8, LONG = 2048 };
    wf_gpu_temps temps = {.ordinal = ordinal};
    const int64_t rows = h->work, items = n / each, processors = wf_gpu_processors(ordinal);
    const bool smallest = h->wide;
    const uint64_t dst = h->w[0];
    int status = 0, log = 0;
    while (!beside && log < 5 && items >> log > ITEMS)
        log++;
    if (log == 5 && items >= LONG && rows < 32 * processors)
        log = 8;
    const int64_t wanted = (log == 8 ? 4 : beside ? 1024 : 0) * processors / rows;
    const int64_t most = log == 8 ? (items >> log) / 4 : items / 16;
    int64_t parts = wanted < most ? wanted : most;
    const int64_t least = (n >> 30) + 1; /* places in a part are 32 bits */
    parts = parts > least ? parts : least;
    const int64_t length = items > 0 ? (items + parts - 1) / parts : 1;
    parts = items > 0 ? (items + length - 1) / length : 1;
    wf_view candidates = {.data = NULL}, values;
    h->wide = 2 * each + smallest;
    h->w[3] = (uint64_t)n;
    h->w[4] = (uint64_t)length;
    if (parts > 1) {
        const int64_t count = rows * parts;
        status = wf_gpu_temp_view(&temps, WEFT_I64, 1, &count, &candidates, why);
        if (status == 0)
            status = wf_gpu_temp_view(&temps, h->type[0], 1, &count, &values, why);
        h->w[0] = wf_gpu_word(candidates.data);
        h->w[38] = status == 0 ? wf_gpu_word(values.data) : 0;
    }
    for (int64_t left = parts; status == 0 && left > 0; left = left > 1) {
        if (left < parts) { /* the candidates */
            log = rows < ITEMS * processors && parts > 128 ? 8 : 5;
            h->wide = 2 + smallest;
            h->w[39] = h->w[0];
            h->w[0] = dst;
            h->w[1] = h->w[38];
            h->w[38] = 0;
            h->w[3] = h->w[4] = (uint64_t)parts;
            h->w[5] = h->w[7] = (uint64_t)rows;
            h->w[6] = h->w[8] = 1;
        }
        h->w[40] = (uint64_t)left;
        h->w[41] = (uint64_t)log;
        h->work = rows * left;
        h->per_block = WF_GPU_THREADS >> log;
        status = wf_gpu_hand_run(ordinal, h, why);
    }
    wf_gpu_drop(&temps);
    return status;
}

/* Rows side by side that are long: blocks have parts of 32 threads' rows, and what they found is looked at once more. Neighbours that a
 * word holds are one thread's where they lie so. */
static int arg_side_by_side(int ordinal, wf_gpu_hand *h, int64_t n, wf_why *why)
{
    enum { STRETCH = 16 }; /* of a warp, at least and in multiples */
    wf_gpu_temps temps = {.ordinal = ordinal};
    const int64_t rows = h->work, size = (int64_t)wf_dtype_size(h->type[0]);
    int64_t each = size < 4 ? 4 / size : 1;
    uint64_t steps = h->w[1] / (uint64_t)size | h->w[5] | h->w[7];
    for (uint64_t i = 1; i < h->w[6]; i++)
        steps |= h->w[8 + 2 * i];
    each = h->w[8] == 1 && steps % (uint64_t)each == 0 ? each : 1;
    const int64_t side = 32 * each, tiles = (rows + side - 1) / side;
    const int64_t blocks = each > 1 ? 4 : 8; /* of a processor */
    const int64_t wanted = blocks * wf_gpu_processors(ordinal) / tiles, most = n / (8 * STRETCH);
    int64_t parts = wanted < most ? wanted : most;
    parts = parts > 1 ? parts : 1;
    const int64_t stretch = (n + 8 * parts - 1) / (8 * parts),
                  length = (stretch + STRETCH - 1) / STRETCH * STRETCH;
    parts = (n + 8 * length - 1) / (8 * length);
    const int64_t count = rows * parts;
    const uint64_t dst = h->w[0];
    wf_view values, firsts;
    int status = wf_gpu_temp_view(&temps, wf_dtype_compute(h->type[0]), 1, &count, &values, why);
    if (status == 0)
        status = wf_gpu_temp_view(&temps, WEFT_I64, 1, &count, &firsts, why);
    if (status == 0) {
        h->section = "arg_across";
        h->wide += 2 * (int)each;
        h->w[0] = h->w[38] = wf_gpu_word(values.data);
        h->w[3] = (uint64_t)n;
        h->w[4] = (uint64_t)length;
        h->w[39] = wf_gpu_word(firsts.data);
        h->w[40] = (uint64_t)parts;
        h->w[41] = (uint64_t)tiles;
        h->work = tiles * parts;
        h->per_block = 1;
        status = wf_gpu_hand_run(ordinal, h, why);
    }
    if (status == 0) {
        h->section = "arg_found";
        h->wide = 2 + h->wide % 2;
        h->w[0] = dst;
        h->per_block = WF_GPU_THREADS / 32;
        h->work = rows;
        status = wf_gpu_hand_run(ordinal, h, why);
    }
    wf_gpu_drop(&temps);
    return status;
}

/* The axes of a row as one; 0: they are none such. */
static bool is_one_axis(const wf_view *x, unsigned axes, int64_t *n, int64_t *step)
{
    *n = *step = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        if (!(axes >> i & 1) || x->dims[i] == 1)
            continue;
        if (*n > 1 && x->strides[i] != *n * *step)
            return false;
        *step = *n > 1 ? *step : x->strides[i];
        *n *= x->dims[i];
    }
    return true;
}

static int arg(int ordinal, wf_exec *e)
{
    wf_gpu_temps temps = {.ordinal = ordinal};
    wf_view x = e->src[0];
    const unsigned axes = wf_red_axes(e->attr, x.rank);
    wf_gpu_hand h = {"arg", 1, {x.dtype}, .wide = e->op == WF_OP_ARGMIN};
    int64_t n, step;
    uint64_t places;
    int each = 1, status = 0;
    if (wf_view_numel(&x) == 0)
        return 0;
    if (!is_one_axis(&x, axes, &n, &step)) {
        status = wf_gpu_dense(&temps, &e->src[0], x.dtype, &x, e->why);
        is_one_axis(&x, axes, &n, &step);
    }
    const int kept = kept_axes(&x, axes, h.w + 7, &places);
    h.work = wf_view_numel(&x) / n;
    /* 16 bytes, or 8 neighbours, where rows begin with them or are long */
    const int size = (int)wf_dtype_size(x.dtype), most = size < 2 ? 8 : 16 / size;
    if (step == 1 && (n >= 32 * most || (n >= most && places % (uint64_t)(most * size) == 0)))
        each = most;
    h.w[0] = wf_gpu_word(e->dst[0].data);
    h.w[1] = wf_gpu_word(x.data);
    h.w[2] = (uint64_t)h.work;
    h.w[5] = (uint64_t)step;
    h.w[6] = (uint64_t)kept;
    const bool beside = step != 1 && kept > 0 && h.w[7] >= 16;
    if (status == 0 && beside && n >= 512)
        status = arg_side_by_side(ordinal, &h, n, e->why);
    else if (status == 0)
        status = arg_of_rows(ordinal, &h, n, each, beside, e->why);
    wf_gpu_drop(&temps);
    return status;
}

enum { TOTALS = 2 };
/* Totals of parts of h's lines, and from them what every level adds, to h's words. */
static int add_levels(int ordinal, wf_gpu_temps *temps, wf_gpu_hand *h, int running, int64_t parts,
                      int64_t lines, wf_why *why)
{
    uint64_t *const word = h->w + 44;
    const uint64_t product = h->wide == 2;
    int status = 0, levels = 0;
    for (int64_t m = parts; status == 0 && (m > 1 || levels == 0); m = (m + 63) / 64) {
        const int64_t values = m * lines;
        wf_view v;
        status = wf_gpu_temp_view(temps, running, 1, &values, &v, why);
        word[levels++] = status ? 0 : wf_gpu_word(v.data);
    }
    h->w[40] = word[0];
    h->wide += TOTALS;
    status = status ? status : wf_gpu_hand_run(ordinal, h, why);
    h->wide -= TOTALS;
    h->w[41] = (uint64_t)levels;
    for (int l = 0, n = 1; status == 0 && l < levels; l += n, parts = (parts + 63) / 64) {
        wf_gpu_hand c = {.section = "carries", .ntype = 1, .type = {running}};
        const bool few = (parts + 63) / 64 * lines <= WF_GPU_THREADS;
        n = few ? levels - l : 1;
        c.work = few ? 1 : (parts + 63) / 64 * lines;
        c.w[0] = (uint64_t)parts;
        c.w[1] = (uint64_t)lines;
        c.w[2] = product;
        c.w[3] = (uint64_t)n;
        memcpy(c.w + 4, word + l, (size_t)(levels - l < n + 1 ? n : n + 1) * sizeof *word);
        status = wf_gpu_hand_run(ordinal, &c, why);
    }
    return status;
}

static int scan(int ordinal, wf_exec *e)
{
    enum { PART = 4096, GROUP = 64, WARP = 512 /* elements that a warp has at a time */ };
    const int axis = (int)e->attr->ints[0], type = e->dst[0].dtype;
    const int running = WF_BIT(type) & WF_DT_F ? WEFT_F64 : WEFT_I64;
    wf_gpu_temps temps = {.ordinal = ordinal};
    wf_view x = e->src[0];
    int64_t inner = 1;
    int status = 0;
    if (wf_view_numel(&x) == 0)
        return 0;
    for (int i = axis + 1; i < x.rank; i++)
        inner *= x.dims[i];
    wf_gpu_hand h = {.section = inner > 1 ? "scan_across" : "scan",
                     .ntype = 3,
                     .type = {x.dtype, type, running},
                     .wide = e->op == WF_OP_CUMPROD ? 2 : 1};
    const int64_t n = x.dims[axis], lines = wf_view_numel(&x) / n;
    const int64_t part = inner > 1 ? GROUP : PART, parts = (n + part - 1) / part;
    if (inner == 1 && lines > 1 && x.strides[axis] >= 8) /* tiles read what lies across */
        status = wf_gpu_dense(&temps, &e->src[0], x.dtype, &x, e->why);
    uint64_t places;
    const int axes = kept_axes(&x, 1u << axis, h.w + 8, &places);
    const bool vector = x.strides[axis] == 1 && n % 4 == 0 &&
                        places % (4 * wf_dtype_size(x.dtype)) == 0 &&
                        wf_gpu_word(e->dst[0].data) % (4 * wf_dtype_size(type)) == 0;
    int log = 0; /* of the warps of a part */
    while (lines * parts < 16 * wf_gpu_processors(ordinal) && log < 3 && WARP << log < n)
        log++;
    h.work = lines * parts;
    h.per_block = inner > 1 ? 0 : WF_GPU_THREADS / 32 >> log;
    h.w[0] = wf_gpu_word(e->dst[0].data);
    h.w[1] = wf_gpu_word(x.data);
    h.w[2] = (uint64_t)lines;
    h.w[3] = (uint64_t)n;
    h.w[4] = (uint64_t)(inner > 1 ? inner : log);
    h.w[5] = (uint64_t)x.strides[axis];
    h.w[6] = (uint64_t)axes;
    h.w[7] = vector;
    h.w[42] = (uint64_t)parts;
    if (status == 0 && parts > 1)
        status = add_levels(ordinal, &temps, &h, running, parts, lines, e->why);
    if (status == 0)
        status = wf_gpu_hand_run(ordinal, &h, e->why);
    wf_gpu_drop(&temps);
    return status;
}

/* v with `axis` last. */
static wf_view axis_last(const wf_view *v, int axis)
{
    wf_view w = *v;
    for (int i = axis; i + 1 < v->rank; i++) {
        w.dims[i] = v->dims[i + 1];
        w.strides[i] = v->strides[i + 1];
    }
    w.dims[v->rank - 1] = v->dims[axis];
    w.strides[v->rank - 1] = v->strides[axis];
    return w;
}

/* 0, 1, 2 ... along the last axis. */
static int number(int ordinal, const wf_view *v, wf_why *why)
{
    wf_program p;
    wf_program_init(&p);
    wf_program_output(&p, wf_program_iota(&p, WEFT_I64));
    if (wf_program_finish(&p) != 0)
        return WEFT_EUNSUPPORTED;
    return wf_gpu_program(ordinal, &p, 0, &(wf_program_args){.dst = v, .axes = 1u << (v->rank - 1)},
                          why);
}

/* Sorts lines of n keys; which of the two buffers has the result. */
static int merge(int ordinal, wf_view key[2], wf_view at[2], bool descending, int *result,
                 wf_why *why)
{
    const int64_t n = key[0].dims[key[0].rank - 1], all = wf_view_numel(&key[0]);
    int status = 0, now = 0;
    for (int64_t run = 1; run < n && status == 0; run *= 2, now ^= 1) {
        wf_gpu_hand h = {"sort", 1, {key[0].dtype}, .work = all};
        const uint64_t words[] = {wf_gpu_word(key[now].data),
                                  wf_gpu_word(at[now].data),
                                  wf_gpu_word(key[now ^ 1].data),
                                  wf_gpu_word(at[now ^ 1].data),
                                  (uint64_t)(all / n),
                                  (uint64_t)n,
                                  (uint64_t)run,
                                  descending};
        memcpy(h.w, words, sizeof words);
        status = wf_gpu_hand_run(ordinal, &h, why);
    }
    *result = now;
    return status;
}

int wf_gpu_sort_keys(int ordinal, wf_view key[2], wf_view at[2], int *now, wf_why *why)
{
    const int status = number(ordinal, &at[0], why);
    return status ? status : merge(ordinal, key, at, false, now, why);
}

static int sort(int ordinal, wf_exec *e)
{
    const int axis = (int)e->attr->ints[0], last = e->src[0].rank - 1;
    const bool flag = (e->attr->flags & WF_FLAG_DESCENDING) != 0;
    const wf_view x = axis_last(&e->src[0], axis);
    wf_gpu_temps temps = {.ordinal = ordinal};
    wf_view key[2], at[2];
    int status = 0, now = 0;
    for (int i = 0; i < 2 && status == 0; i++) {
        status = wf_gpu_temp_view(&temps, x.dtype, x.rank, x.dims, &key[i], e->why);
        if (status == 0)
            status = wf_gpu_temp_view(&temps, WEFT_I64, x.rank, x.dims, &at[i], e->why);
    }
    if (status == 0)
        status = wf_gpu_copy(ordinal, &key[0], &x, e->why);
    if (status == 0)
        status = number(ordinal, &at[0], e->why);
    if (status == 0)
        status = merge(ordinal, key, at, e->op == WF_OP_TOPK ? !flag : flag, &now, e->why);
    for (int i = 0; i < 2 && status == 0; i++) {
        const wf_view to = axis_last(&e->dst[i], axis);
        wf_view from = i ? at[now] : key[now];
        from.dims[last] = to.dims[last];
        status = wf_gpu_copy(ordinal, &to, &from, e->why);
    }
    wf_gpu_drop(&temps);
    return status;
}

/* Positions of random keys in sorted order. */
static int permutation(int ordinal, wf_exec *e)
{
    wf_gpu_temps temps = {.ordinal = ordinal};
    const int64_t n = e->dst[0].dims[0];
    int64_t dyn[5] = {n, e->attr->dyn[1], e->attr->dyn[2], INT64_MIN, INT64_MAX};
    const wf_attr attr = {.n_dyn = 5, .dyn = dyn, .dtype = WEFT_I64};
    wf_view key[2], at[2];
    int status = 0, now = 0;
    for (int i = 0; i < 2 && status == 0; i++) {
        status = wf_gpu_temp_view(&temps, WEFT_I64, 1, &n, &key[i], e->why);
        if (status == 0)
            status = wf_gpu_temp_view(&temps, WEFT_I64, 1, &n, &at[i], e->why);
    }
    wf_exec draw = {.op = WF_OP_RANDINT, .ndst = 1, .dst = key, .attr = &attr, .why = e->why};
    if (status == 0)
        status = wf_gpu_row_create(ordinal, &draw);
    if (status == 0)
        status = wf_gpu_sort_keys(ordinal, key, at, &now, e->why);
    if (status == 0)
        status = wf_gpu_copy(ordinal, &e->dst[0], &at[now], e->why);
    wf_gpu_drop(&temps);
    return status;
}

int wf_gpu_row_order(int ordinal, wf_exec *e)
{
    if (wf_view_numel(&e->dst[0]) == 0)
        return 0;
    if (e->op == WF_OP_RANDPERM)
        return permutation(ordinal, e);
    if (e->op == WF_OP_SORT || e->op == WF_OP_TOPK)
        return sort(ordinal, e);
    if (e->op == WF_OP_CUMSUM || e->op == WF_OP_CUMPROD)
        return scan(ordinal, e);
    return arg(ordinal, e);
}
