/*
 * jit/gpu/row_move.c -- rows that place elements, by copies and fills of sub-views as eager/move.c has them.
 */
#include <string.h>

#include "eager/dense.h"
#include "jit/gpu/impl.h"

static const uint64_t zero;

/* -- concatenation ---------------------------------------------------------------------------------------------- */
/* One kernel copies as many small parts as its arguments have room for: a launch instead of a copy for each. */
enum { PART_BYTES = 1 << 16, HEAD_WORDS = 7, MOST_PARTS = (WF_CU_MANY_WORDS - HEAD_WORDS) / 2 };

static bool is_small(const wf_view *dst, const wf_view *part)
{
    return part->dtype == dst->dtype && wf_view_is_contiguous(part) &&
           wf_view_bytes(part) <= PART_BYTES;
}

/* Parts [begin, end), whose columns begin at `at` of the axis. */
static int join(int ordinal, wf_exec *e, int axis, int begin, int end, int64_t at)
{
    uint64_t w[WF_CU_MANY_WORDS] = {0};
    const wf_view *dst = &e->dst[0];
    int64_t rows = 1, inner = 1, columns = 0;
    int n = 0;
    for (int d = 0; d < dst->rank; d++)
        *(d < axis ? &rows : &inner) *= d == axis ? 1 : dst->dims[d];
    for (int i = begin; i < end; i++) {
        if (wf_view_numel(&e->src[i]) == 0)
            continue;
        columns += e->src[i].dims[axis] * inner;
        w[HEAD_WORDS + 2 * n] = wf_gpu_word(e->src[i].data);
        w[HEAD_WORDS + 2 * n++ + 1] = (uint64_t)columns;
    }
    wf_gpu_hand h = {
        "join", 1, {wf_gpu_bits(dst->dtype)}, .work = n ? rows * columns : 0, .many = w};
    w[0] = wf_gpu_word(dst->data) + (uint64_t)(at * inner) * wf_dtype_size(dst->dtype);
    w[1] = (uint64_t)rows;
    w[2] = (uint64_t)(dst->dims[axis] * inner);
    w[3] = (uint64_t)n;
    wf_gpu_divisor(w + 4, columns);
    return wf_gpu_hand_run(ordinal, &h, e->why);
}

static int concat(int ordinal, wf_exec *e)
{
    const int axis = (int)e->attr->ints[0];
    const bool joins = wf_view_is_contiguous(&e->dst[0]);
    int64_t at = 0;
    int status = 0;
    for (int i = 0; i < e->nsrc && status == 0;) {
        int64_t columns = 0;
        int end = i;
        while (joins && end < e->nsrc && end - i < MOST_PARTS && is_small(&e->dst[0], &e->src[end]))
            columns += e->src[end++].dims[axis];
        if (end - i > 1) {
            status = join(ordinal, e, axis, i, end, at);
        } else {
            const wf_view part = wf_view_narrow(e->dst[0], axis, at, e->src[i].dims[axis]);
            status = wf_gpu_copy(ordinal, &part, &e->src[i], e->why);
            columns = e->src[i].dims[axis];
            end = i + 1;
        }
        at += columns;
        i = end;
    }
    return status;
}

static int pad(int ordinal, wf_exec *e)
{
    static const int64_t one = 1;
    wf_view in = e->src[0], region = e->dst[0];
    uint64_t value = 0;
    double given = e->attr->flt[0];
    const wf_view from = wf_view_dense(&given, WEFT_F64, 1, &one);
    const wf_view to = wf_view_dense(&value, region.dtype, 1, &one);
    int status = 0;
    wf_copy(&to, &from); /* on the host */
    for (int i = 0; i < region.rank && status == 0; i++) {
        const int64_t n = region.dims[i], before = e->attr->dyn[2 * i];
        const int64_t lo = before < 0 ? 0 : before < n ? before : n;
        int64_t hi = before + in.dims[i];
        hi = hi < lo ? lo : hi < n ? hi : n;
        const wf_view head = wf_view_narrow(region, i, 0, lo);
        const wf_view tail = wf_view_narrow(region, i, hi, n - hi);
        status = wf_gpu_fill(ordinal, &head, &value, e->why);
        if (status == 0)
            status = wf_gpu_fill(ordinal, &tail, &value, e->why);
        region = wf_view_narrow(region, i, lo, hi - lo);
        in = wf_view_narrow(in, i, hi > lo ? lo - before : 0, hi - lo);
    }
    return status ? status : wf_gpu_copy(ordinal, &region, &in, e->why);
}

/* The middle, then axis by axis, the last one first, what is before and behind it: of the result, where it is by now. */
static int pad_mode(int ordinal, wf_exec *e)
{
    const wf_view *x = &e->src[0];
    const int64_t mode = e->attr->ints[0], *by = e->attr->dyn;
    wf_view inner = e->dst[0];
    for (int i = 0; i < x->rank; i++)
        inner = wf_view_narrow(inner, i, by[2 * i], x->dims[i]);
    int status = wf_gpu_copy(ordinal, &inner, x, e->why);
    for (int i = x->rank; i-- > 0;) {
        wf_view all = e->dst[0];
        const int64_t n = x->dims[i], before = by[2 * i];
        for (int d = 0; d < i; d++)
            all = wf_view_narrow(all, d, by[2 * d], x->dims[d]);
        for (int side = 0; side < 2 && status == 0; side++) {
            const int64_t count = by[2 * i + side], first = side ? n : -before;
            if (count == 0)
                continue;
            const int64_t from = before + wf_padded_from(mode, first, n);
            const wf_view to = wf_view_narrow(all, i, before + first, count);
            wf_view own = wf_view_narrow(all, i, from, 1);
            own.dims[i] = count;
            own.strides[i] *= mode == WF_PAD_REFLECT ? -1 : mode == WF_PAD_CIRCULAR;
            status = wf_gpu_copy(ordinal, &to, &own, e->why);
        }
    }
    return status;
}

enum { MOST_PADDED = 8 }; /* axes of the kernel */

static int pad_mode_bwd(int ordinal, wf_exec *e)
{
    const wf_view *g = &e->src[0], *dx = &e->dst[0];
    wf_gpu_hand h = {.section = "unpad", .ntype = 1, .type = {g->dtype}, .work = wf_view_numel(dx)};
    uint64_t *w = h.w;
    *w++ = wf_gpu_word(dx->data);
    *w++ = wf_gpu_word(g->data);
    *w++ = (uint64_t)h.work;
    *w++ = (uint64_t)e->attr->ints[0];
    uint64_t *rank = w++;
    for (int d = 0; d < dx->rank; d++) {
        const int64_t *by = e->attr->dyn + (int64_t)2 * d;
        const bool plain = (by[0] | by[1]) == 0;
        if (plain && dx->dims[d] == 1)
            continue;
        /* Axes without padding that lie from end to end are one. */
        if (plain && *rank > 0 && (w[-3] | w[-2]) == 0 &&
            w[-1] == (uint64_t)(g->strides[d] * g->dims[d])) {
            w[-4] *= (uint64_t)dx->dims[d];
            w[-1] = (uint64_t)g->strides[d];
            continue;
        }
        if (++*rank > MOST_PADDED)
            return WEFT_EUNSUPPORTED;
        *w++ = (uint64_t)dx->dims[d];
        *w++ = (uint64_t)by[0];
        *w++ = (uint64_t)by[1];
        *w++ = (uint64_t)g->strides[d];
    }
    return wf_gpu_hand_run(ordinal, &h, e->why);
}

static int roll(int ordinal, const wf_exec *e, int k, wf_view dst, wf_view src)
{
    if (k == e->attr->n_ints)
        return wf_gpu_copy(ordinal, &dst, &src, e->why);
    const int axis = (int)e->attr->ints[k];
    const int64_t n = src.dims[axis];
    int64_t shift = e->attr->dyn[k] % n;
    shift += shift < 0 ? n : 0;
    int status = roll(ordinal, e, k + 1, wf_view_narrow(dst, axis, shift, n - shift),
                      wf_view_narrow(src, axis, 0, n - shift));
    if (status == 0 && shift > 0)
        status = roll(ordinal, e, k + 1, wf_view_narrow(dst, axis, 0, shift),
                      wf_view_narrow(src, axis, n - shift, shift));
    return status;
}

static int tri(int ordinal, wf_exec *e)
{
    const wf_view *s = &e->src[0];
    const int status = wf_gpu_copy(ordinal, &e->dst[0], s, e->why);
    wf_gpu_hand h = {"tri", 1, {wf_gpu_bits(s->dtype)}, .work = wf_view_numel(s)};
    if (status != 0)
        return status;
    h.w[0] = wf_gpu_word(e->dst[0].data);
    h.w[1] = (uint64_t)h.work;
    h.w[2] = (uint64_t)s->dims[s->rank - 2];
    h.w[3] = (uint64_t)s->dims[s->rank - 1];
    h.w[4] = (uint64_t)e->attr->dyn[0];
    h.w[5] = e->op == WF_OP_TRIU;
    return wf_gpu_hand_run(ordinal, &h, e->why);
}

static int slice_grad(int ordinal, wf_exec *e)
{
    const int axis = (int)e->attr->ints[0];
    const int64_t start = e->attr->dyn[0], step = e->attr->dyn[2], n = e->src[0].dims[axis];
    int status = wf_gpu_fill(ordinal, &e->dst[0], &zero, e->why);
    if (status == 0 && n > 0) {
        wf_view part = wf_view_narrow(e->dst[0], axis, start, n);
        part.strides[axis] *= step;
        status = wf_gpu_copy(ordinal, &part, &e->src[0], e->why);
    }
    return status;
}

/* Sums start from +0, so what is written is 0 + value. */
static int add_zero(int ordinal, const wf_view *dst, const wf_view *src, wf_why *why)
{
    wf_program p;
    const int compute = wf_dtype_compute(src->dtype);
    wf_program_init(&p);
    int pair[2] = {wf_program_scalar(&p, compute), wf_program_input(&p, src->dtype)};
    pair[1] = wf_program_cast(&p, pair[1], compute);
    wf_program_output(
        &p, wf_program_cast(&p, wf_program_map(&p, WF_OP_ADD, compute, 2, pair), dst->dtype));
    if (wf_program_finish(&p) != 0)
        return WEFT_EUNSUPPORTED;
    const void *scalars[1] = {&zero};
    return wf_gpu_program(ordinal, &p, 0,
                          &(wf_program_args){.dst = dst, .src = src, .scalars = scalars}, why);
}

/* Elements through a map that names some of dst twice: sorted by where they go, so that each place finds its own in
 * their order. last: only the last of them stays. */
static int put_through(int ordinal, wf_exec *e, const wf_view *values, const wf_view *map,
                       int64_t offset, bool last)
{
    const wf_view *dst = &e->dst[0];
    const int64_t n = wf_view_numel(map), places = wf_view_numel(dst);
    wf_gpu_temps temps = {.ordinal = ordinal};
    wf_view dense, key[2], at[2];
    int now = 0, status = wf_gpu_dense(&temps, values, values->dtype, &dense, e->why);
    for (int i = 0; i < 2 && status == 0; i++) {
        status = wf_gpu_temp_view(&temps, WEFT_I64, 1, &n, &key[i], e->why);
        if (status == 0)
            status = wf_gpu_temp_view(&temps, WEFT_I64, 1, &n, &at[i], e->why);
    }
    wf_gpu_hand o = {.section = "offsets", .work = n};
    o.w[0] = status ? 0 : wf_gpu_word(key[0].data);
    o.w[1] = (uint64_t)n;
    o.w[2] = (uint64_t)offset;
    o.w[3] = map->rank;
    for (int d = 0; d < map->rank; d++) {
        o.w[4 + 2 * d] = (uint64_t)map->dims[map->rank - 1 - d];
        o.w[5 + 2 * d] = (uint64_t)map->strides[map->rank - 1 - d];
    }
    if (status == 0)
        status = wf_gpu_hand_run(ordinal, &o, e->why);
    if (status == 0)
        status = wf_gpu_sort_keys(ordinal, key, at, &now, e->why);
    if (status == 0) {
        const int type = last ? wf_gpu_bits(dst->dtype) : dst->dtype;
        wf_gpu_hand h = {.section = "through", .ntype = 1, .type = {type}, .work = places};
        const uint64_t words[] = {wf_gpu_word(dst->data),
                                  wf_gpu_word(dense.data),
                                  wf_gpu_word(key[now].data),
                                  wf_gpu_word(at[now].data),
                                  (uint64_t)n,
                                  last,
                                  (uint64_t)places};
        memcpy(h.w, words, sizeof words);
        status = wf_gpu_hand_run(ordinal, &h, e->why);
    }
    wf_gpu_drop(&temps);
    return status;
}

static int strided_grad(int ordinal, wf_exec *e)
{
    const wf_view *src = &e->src[0];
    const int64_t *strides = e->attr->dyn + e->dst[0].rank;
    wf_view map = {.dtype = e->dst[0].dtype, .rank = src->rank};
    memcpy(map.dims, src->dims, sizeof map.dims);
    memcpy(map.strides, strides, (size_t)src->rank * sizeof *strides);
    map.data = (char *)e->dst[0].data + strides[src->rank] * (int64_t)wf_dtype_size(map.dtype);
    if (src->dtype == WEFT_BOOL)
        return WEFT_EUNSUPPORTED;
    if (!wf_map_is_injective(map.rank, map.dims, map.strides))
        return put_through(ordinal, e, src, &map, strides[src->rank], false);
    const int status = wf_gpu_fill(ordinal, &e->dst[0], &zero, e->why);
    return status ? status : add_zero(ordinal, &map, src, e->why);
}

static int update(int ordinal, wf_exec *e)
{
    const wf_view *value = &e->src[1];
    const int rank = value->rank;
    wf_view map = {.dtype = value->dtype, .rank = value->rank};
    map.data =
        (char *)e->dst[0].data + e->attr->dyn[2 * rank] * (int64_t)wf_dtype_size(value->dtype);
    memcpy(map.dims, value->dims, sizeof map.dims);
    memcpy(map.strides, e->attr->dyn + rank, (size_t)rank * sizeof map.strides[0]);
    const bool in_place = e->dst[0].data == e->src[0].data && wf_view_is_contiguous(&e->src[0]);
    const int status = in_place ? 0 : wf_gpu_copy(ordinal, &e->dst[0], &e->src[0], e->why);
    if (status != 0 || wf_view_numel(value) == 0)
        return status;
    return wf_map_is_injective(rank, map.dims, map.strides)
               ? wf_gpu_copy(ordinal, &map, value, e->why)
               : put_through(ordinal, e, value, &map, e->attr->dyn[2 * rank], true);
}

int wf_gpu_row_move(int ordinal, wf_exec *e)
{
    if (wf_view_numel(&e->dst[0]) == 0)
        return 0;
    if (e->op == WF_OP_CONCAT)
        return concat(ordinal, e);
    if (e->op == WF_OP_PAD)
        return pad(ordinal, e);
    if (e->op == WF_OP_PAD_MODE)
        return pad_mode(ordinal, e);
    if (e->op == WF_OP_PAD_MODE_BWD)
        return pad_mode_bwd(ordinal, e);
    if (e->op == WF_OP_ROLL)
        return roll(ordinal, e, 0, e->dst[0], e->src[0]);
    if (e->op == WF_OP_TRIL || e->op == WF_OP_TRIU)
        return tri(ordinal, e);
    if (e->op == WF_OP_SLICE_GRAD)
        return slice_grad(ordinal, e);
    if (e->op == WF_OP_STRIDED_GRAD)
        return strided_grad(ordinal, e);
    if (e->op == WF_OP_UPDATE)
        return update(ordinal, e);
    return wf_gpu_copy(ordinal, &e->dst[0], &e->src[0], e->why);
}
