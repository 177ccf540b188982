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

enum { PART = 1024, WARPS = 32 /* of a processor */ };

/* h: all but what says how many parts the n elements of a row are looked at in. */
static int arg_of_rows(int ordinal, wf_gpu_hand *h, int64_t n, wf_why *why)
{
    wf_gpu_temps temps = {.ordinal = ordinal};
    const int64_t rows = h->work, wanted = wf_gpu_processors(ordinal) * WARPS / rows;
    const uint64_t dst = h->w[0];
    int64_t parts = (n + PART - 1) / PART;
    parts = parts < wanted ? parts : wanted > 1 ? wanted : 1;
    const int64_t length = (n + parts - 1) / parts;
    int status = 0;
    h->w[3] = (uint64_t)n;
    h->w[4] = (uint64_t)length;
    h->w[62] = (uint64_t)(parts = (n + length - 1) / length);
    h->work = rows * parts;
    if (parts > 1) {
        wf_view candidates = {.data = NULL};
        status = wf_gpu_temp_view(&temps, WEFT_I64, 1, &h->work, &candidates, why);
        h->w[0] = wf_gpu_word(candidates.data);
        status = status ? status : wf_gpu_hand_run(ordinal, h, why);
        h->w[39] = h->w[0];
        h->w[0] = dst;
        h->w[3] = h->w[4] = (uint64_t)parts;
        h->w[62] = 1;
        h->work = rows;
    }
    status = status ? status : wf_gpu_hand_run(ordinal, h, why);
    wf_gpu_drop(&temps);
    return status;
}

static int arg(int ordinal, wf_exec *e)
{
    const wf_view *x = &e->src[0];
    const unsigned axes = wf_red_axes(e->attr, x->rank);
    wf_gpu_hand h = {"arg", 1, {x->dtype}, .work = 1, .per_block = WF_GPU_THREADS / 32};
    int64_t n = 1;
    int kept = 0, reduced = 0;
    for (int i = x->rank - 1; i >= 0; i--) {
        const bool is_reduced = axes >> i & 1;
        uint64_t *w = h.w + (is_reduced ? 40 + 2 * reduced : 7 + 2 * kept);
        *(is_reduced ? &n : &h.work) *= x->dims[i];
        if (x->dims[i] == 1)
            continue;
        if (is_reduced ? reduced++ == 11 : kept++ == 16)
            return WEFT_EUNSUPPORTED;
        w[0] = (uint64_t)x->dims[i];
        w[1] = (uint64_t)x->strides[i];
    }
    h.w[0] = wf_gpu_word(e->dst[0].data);
    h.w[1] = wf_gpu_word(x->data);
    h.w[2] = (uint64_t)h.work;
    h.w[5] = e->op == WF_OP_ARGMIN;
    h.w[6] = (uint64_t)kept;
    h.w[63] = (uint64_t)reduced;
    return n == 0 || h.work == 0 ? 0 : arg_of_rows(ordinal, &h, n, e->why);
}

/* Totals of parts of h's lines, and from them what every level adds, to h's words. */
static int add_levels(int ordinal, wf_gpu_temps *temps, wf_gpu_hand *h, int running, int64_t parts,
                      int64_t lines, wf_why *why)
{
    uint64_t *const word = h->w + 44;
    int status = 0, levels = 0;
    for (int64_t m = parts; status == 0 && (m > 1 || levels == 0); m = (m + 63) / 64) {
        const int64_t values = m * lines;
        wf_view v;
        status = wf_gpu_temp_view(temps, running, 1, &values, &v, why);
        word[levels++] = status ? 0 : wf_gpu_word(v.data);
    }
    h->w[40] = word[0];
    status = status ? status : wf_gpu_hand_run(ordinal, h, why);
    h->w[40] = 0;
    h->w[41] = (uint64_t)levels;
    for (int l = 0; status == 0 && l < levels; l++, parts = (parts + 63) / 64) {
        wf_gpu_hand c = {.section = "carries", .ntype = 1, .type = {running}};
        c.work = (parts + 63) / 64 * lines;
        c.w[0] = word[l];
        c.w[1] = l + 1 < levels ? word[l + 1] : 0;
        c.w[2] = (uint64_t)parts;
        c.w[3] = (uint64_t)lines;
        c.w[5] = h->w[5];
        status = wf_gpu_hand_run(ordinal, &c, why);
    }
    return status;
}

static bool is_float(int dtype)
{
    return (WF_BIT(dtype) & WF_DT_F) != 0;
}

static int scan(int ordinal, wf_exec *e)
{
    const wf_view *x = &e->src[0];
    const int axis = (int)e->attr->ints[0], type = e->dst[0].dtype;
    const int running = is_float(type) ? WEFT_F64 : WEFT_I64;
    /* a half would be rounded twice; what is small wraps when it is copied */
    const bool direct = type == running || type == WEFT_F32;
    wf_gpu_temps temps = {.ordinal = ordinal};
    wf_view from = *x, to = e->dst[0];
    int64_t inner = 1;
    int axes = 0, status = 0;
    if (wf_view_numel(x) == 0)
        return 0;
    if (is_float(x->dtype) != is_float(running))
        status = wf_gpu_dense(&temps, x, running, &from, e->why);
    if (status == 0 && !direct)
        status = wf_gpu_temp_view(&temps, running, x->rank, x->dims, &to, e->why);
    wf_gpu_hand h = {.section = "scan", .ntype = 3, .type = {from.dtype, to.dtype, running}};
    for (int i = x->rank - 1; i >= 0; i--) {
        inner *= i > axis ? x->dims[i] : 1;
        if (i == axis)
            continue;
        h.w[8 + 2 * axes] = (uint64_t)x->dims[i];
        h.w[9 + 2 * axes++] = (uint64_t)from.strides[i];
    }
    const int64_t n = x->dims[axis], lines = wf_view_numel(x) / n;
    const int64_t wide = inner > 1 ? 0 : n > 512 ? 8 : 1, part = inner > 1 ? 64 : 4096;
    const int64_t parts = (n + part - 1) / part;
    h.work = lines * parts;
    h.per_block = wide ? WF_GPU_THREADS / 32 / wide : 0;
    h.w[0] = wf_gpu_word(to.data);
    h.w[1] = wf_gpu_word(from.data);
    h.w[2] = (uint64_t)lines;
    h.w[3] = (uint64_t)n;
    h.w[4] = (uint64_t)inner;
    h.w[5] = e->op == WF_OP_CUMPROD;
    h.w[6] = (uint64_t)from.strides[axis];
    h.w[7] = (uint64_t)axes;
    h.w[42] = (uint64_t)wide;
    h.w[43] = (uint64_t)parts;
    if (status == 0 && parts > 1)
        status = add_levels(ordinal, &temps, &h, running, parts, lines, e->why);
    if (status == 0)
        status = wf_gpu_hand_run(ordinal, &h, e->why);
    if (status == 0 && !direct)
        status = wf_gpu_copy(ordinal, &e->dst[0], &to, e->why);
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
