/*
 * jit/gpu/row_flash.c -- attention and its gradient without scores in memory: kernels flash and flash_back of
 * jit/codegen_cuda/attention.cuh.
 *
 * Operands are read in their own type, from any strides. The gradient of an operand that batches share is summed in its
 * kernel, batch after batch in row-major order. Semantics are those of eager/sdpa.c, the order of sums is the device's, the
 * same in every run.
 */
#include "eager/dense.h"
#include "jit/gpu/impl.h"

enum {
    TILE = 64,
    MOST_WIDTH = 128,
    THREADS = 128,
    AXES = 29,
    AXIS_WORDS = 7,
    STEPS = AXIS_WORDS - 1
};
enum { MOST_ROWS = INT32_MAX - 4 * TILE }; /* of queries and of keys: places in them are int */
enum { MOST_AXES = (WF_CU_HAND_WORDS - AXES) / AXIS_WORDS };

typedef struct flash {
    int ordinal, rank;
    wf_exec *e;
    wf_gpu_temps temps;
    wf_view q, k, v, g, mask; /* over the batch of the result */
    bool back, masked, causal;
    int wide; /* columns of TILE that operands have in the kernel */
    int64_t dims[WF_MAX_RANK], l, s, width, value_width;
    void *lse, *delta;
    void *kept; /* tiles of ds, where the gradient of q comes from those that the one of k made */
    int64_t first, before; /* the items of a launch: from `first` on, before `before`; 0: all */
} flash;

/* Axes of the batch that every operand walks as one are one. */
typedef struct axis {
    bool summed;
    int64_t extent, step[STEPS];
} axis;

static uint64_t bits(double v)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

/* Does the gradient dst of an operand lack axis d of the batch? */
static bool lacks(const flash *t, const wf_view *dst, int d)
{
    const int at = dst ? d - (t->rank - dst->rank) : 0;
    return dst && t->dims[d] != 1 && (at < 0 || dst->dims[at] == 1);
}

/* The axes, innermost first; their number, MOST_AXES + 1: too many. v: four operands and the mask, NULL: none. */
static int find_axes(const flash *t, const wf_view *const v[STEPS - 1], const wf_view *dst,
                     axis *out)
{
    int n = 0;
    int64_t rows = t->l;
    for (int d = t->rank - 3; d >= 0; d--) {
        axis a = {lacks(t, dst, d), t->dims[d], {0}};
        for (int k = 0; k < STEPS - 1; k++)
            a.step[k] = v[k] ? v[k]->strides[d] : 0;
        a.step[STEPS - 1] = rows;
        rows *= t->dims[d];
        if (a.extent == 1)
            continue;
        bool joins = n > 0 && out[n - 1].summed == a.summed;
        for (int k = 0; k < STEPS && joins; k++)
            joins = a.step[k] == out[n - 1].step[k] * out[n - 1].extent;
        if (joins)
            out[n - 1].extent *= a.extent;
        else if (n == MOST_AXES)
            return MOST_AXES + 1;
        else
            out[n++] = a;
    }
    return n;
}

/* Words of the axes, summed ones first. false: too many. */
static bool put_axes(const flash *t, const wf_view *const v[STEPS - 1], const wf_view *dst,
                     wf_gpu_hand *h)
{
    axis a[MOST_AXES];
    const int n = find_axes(t, v, dst, a);
    int at = AXES, summed = 0;
    int64_t items[2] = {1, 1};
    for (int pass = 1; pass >= 0 && n <= MOST_AXES; pass--)
        for (int i = 0; i < n; i++) {
            if (a[i].summed != (pass == 1))
                continue;
            items[pass] *= a[i].extent;
            summed += pass;
            h->w[at++] = (uint64_t)a[i].extent;
            for (int k = 0; k < STEPS; k++)
                h->w[at++] = (uint64_t)a[i].step[k];
        }
    h->w[25] = (uint64_t)items[0];
    h->w[26] = (uint64_t)(summed + 16 * (n - summed));
    h->w[27] = (uint64_t)items[1];
    return n <= MOST_AXES;
}

static void put_matrix(const flash *t, wf_gpu_hand *h, int at, const wf_view *v, bool turned)
{
    const int rank = t->rank, row = turned ? rank - 1 : rank - 2,
              col = turned ? rank - 2 : rank - 1;
    h->w[at] = wf_gpu_word(v->data);
    h->w[at + 1] = v->dims[row] == 1 ? 0 : (uint64_t)v->strides[row];
    h->w[at + 2] = v->dims[col] == 1 ? 0 : (uint64_t)v->strides[col];
}

/* Are four neighbours in a row of v one access? */
static bool has_quads(const wf_view *v)
{
    const int last = v->rank - 1;
    bool has = v->strides[last] == 1 && v->dims[last] % 4 == 0 &&
               (uintptr_t)v->data % (4 * wf_dtype_size(v->dtype)) == 0;
    for (int d = 0; d < last; d++)
        has &= v->dims[d] == 1 || v->strides[d] % 4 == 0;
    return has;
}

/* Rows of a block, and the shared memory it takes: as the sections divide it. */
static int block_rows(const flash *t, int wide)
{
    return t->back ? TILE : 2 * TILE / wide;
}

static unsigned shared_bytes(const flash *t, int wide)
{
    const int rows = block_rows(t, wide), apart = TILE * wide + 4;
    const int left = (t->back ? 2 : 1) * rows * apart, right = TILE * (TILE + 4);
    const int part = rows * (TILE / 2 + 4), known = t->back ? 2 * TILE : 0;
    return (unsigned)((size_t)(left + right + part + known) * sizeof(float) +
                      (STEPS + 1) * sizeof(int64_t));
}

static wf_gpu_hand begin(const flash *t, int64_t rows, bool turned)
{
    const int block = block_rows(t, t->wide);
    wf_gpu_hand h = {.section = t->back ? "flash_back" : "flash",
                     .ntype = 2,
                     .type = {t->q.dtype, t->masked ? t->mask.dtype : t->q.dtype},
                     .wide = t->wide,
                     .threads = THREADS,
                     .shared = shared_bytes(t, t->wide),
                     .work = (rows + block - 1) / block,
                     .per_block = 1};
    if (t->masked)
        put_matrix(t, &h, 12, &t->mask, turned);
    h.w[15] = wf_gpu_word(t->lse);
    h.w[16] = wf_gpu_word(t->delta);
    h.w[24] = bits(t->e->attr->flt[0]);
    return h;
}

/* The operands, where these kernels take them. */
static bool open(flash *t, const wf_view *src, const wf_view *out, const wf_view *mask)
{
    wf_exec *e = t->e;
    t->rank = out->rank;
    memcpy(t->dims, out->dims, sizeof t->dims);
    t->q = wf_gpu_over_batch(&src[0], t->rank, t->dims);
    t->k = wf_gpu_over_batch(&src[1], t->rank, t->dims);
    t->v = wf_gpu_over_batch(&src[2], t->rank, t->dims);
    t->masked = mask && mask->data;
    if (t->masked)
        t->mask = wf_gpu_over_batch(mask, t->rank, t->dims);
    t->causal = (e->attr->flags & WF_FLAG_CAUSAL) != 0;
    t->l = t->q.dims[t->rank - 2];
    t->s = t->k.dims[t->rank - 2];
    t->width = t->q.dims[t->rank - 1];
    t->value_width = t->v.dims[t->rank - 1];
    const wf_cuda_info *info = wf_cuda_get_info(t->ordinal);
    const unsigned most = info ? (unsigned)info->shared_per_block : 0;
    /* where a block cannot have the memory of a narrow one's more rows, there is the wide one */
    t->wide = t->width > TILE || t->value_width > TILE || shared_bytes(t, 1) > most ? 2 : 1;
    bool takes = wf_dtype_compute(t->q.dtype) == WEFT_F32 && t->width <= MOST_WIDTH &&
                 shared_bytes(t, t->wide) <= most && t->l <= MOST_ROWS && t->s <= MOST_ROWS &&
                 t->value_width <= MOST_WIDTH && t->k.dtype == t->q.dtype &&
                 t->v.dtype == t->q.dtype;
    for (int i = 0; i < e->ndst; i++)
        takes &= wf_view_is_contiguous(&e->dst[i]);
    return takes;
}

static int forward(flash *t)
{
    wf_exec *e = t->e;
    if (!open(t, e->src, &e->dst[0], e->nsrc > 3 ? &e->src[3] : NULL))
        return WEFT_EUNSUPPORTED;
    t->lse = e->dst[1].data;
    wf_gpu_hand h = begin(t, t->l, false);
    const wf_view *const v[] = {&t->q, &t->k, &t->v, NULL, t->masked ? &t->mask : NULL};
    put_matrix(t, &h, 0, &t->q, false);
    put_matrix(t, &h, 3, &t->k, false);
    put_matrix(t, &h, 6, &t->v, false);
    const uint64_t words[] = {wf_gpu_word(e->dst[0].data),
                              0,
                              (uint64_t)t->l,
                              (uint64_t)t->s,
                              (uint64_t)t->width,
                              (uint64_t)t->value_width,
                              t->causal + 4u * has_quads(&t->q) + 8u * has_quads(&t->k) +
                                  16u * has_quads(&t->v) + 64u * has_quads(&e->dst[0])};
    memcpy(h.w + 17, words, sizeof words);
    if (!put_axes(t, v, NULL, &h))
        return WEFT_EUNSUPPORTED;
    h.work *= (int64_t)h.w[25];
    return wf_gpu_hand_run(t->ordinal, &h, e->why);
}

/* delta := what every row of g and out add up to. */
static int row_dots(flash *t, const wf_view *g, const wf_view *out)
{
    wf_program p;
    int64_t rows = 1, step = 1;
    wf_view dst = *g;
    for (int d = 0; d < g->rank - 1; d++)
        rows *= g->dims[d];
    t->delta = wf_gpu_temp(&t->temps, (size_t)(rows ? rows : 1) * sizeof(float), t->e->why);
    dst.data = t->delta;
    dst.dtype = WEFT_F32;
    dst.strides[g->rank - 1] = 0;
    for (int d = g->rank - 2; d >= 0; d--) {
        dst.strides[d] = step;
        step *= g->dims[d];
    }
    wf_program_init(&p);
    const int x = wf_program_cast(&p, wf_program_input(&p, g->dtype), WEFT_F32);
    const int y = wf_program_cast(&p, wf_program_input(&p, out->dtype), WEFT_F32);
    const int xy = wf_program_map(&p, WF_OP_MUL, WEFT_F32, 2, (int[]){x, y});
    wf_program_output(&p, wf_program_reduce(&p, WF_OP_SUM, xy));
    if (!t->delta || wf_program_finish(&p) != 0)
        return t->delta ? WEFT_EUNSUPPORTED : t->e->why->code;
    const wf_view src[2] = {*g, *out};
    return wf_gpu_program_now(
        t->ordinal, &p, &(wf_program_args){.dst = &dst, .src = src, .axes = 1u << (g->rank - 1)},
        t->e->why);
}

/* One or two gradients of operands that share their batch; that of q from what is kept. */
static int run_back(flash *t, bool keys, const wf_view *one, const wf_view *two)
{
    const int64_t rows = keys ? t->s : t->l, cols = keys ? t->l : t->s;
    wf_gpu_hand h = begin(t, rows, keys);
    if (t->kept && !keys) {
        h.section = "flash_kept";
        h.shared = 2 * TILE * (TILE + 4) * sizeof(float) + (STEPS + 1) * sizeof(int64_t);
    }
    const wf_view *const v[] = {keys ? &t->k : &t->q, keys ? &t->q : &t->k, keys ? &t->v : &t->g,
                                keys ? &t->g : &t->v, t->masked ? &t->mask : NULL};
    for (int i = 0; i < 4; i++)
        put_matrix(t, &h, 3 * i, v[i], false);
    uint64_t words[] = {one ? wf_gpu_word(one->data) : 0,
                        two ? wf_gpu_word(two->data) : 0,
                        (uint64_t)rows,
                        (uint64_t)cols,
                        (uint64_t)t->width,
                        (uint64_t)t->value_width,
                        t->causal + 2u * keys};
    for (int i = 0; i < 4; i++)
        words[6] |= (uint64_t)has_quads(v[i]) << (2 + i);
    words[6] |= (uint64_t)(one && has_quads(one)) << 6 | (uint64_t)(two && has_quads(two)) << 7;
    memcpy(h.w + 17, words, sizeof words);
    if (!put_axes(t, v, one ? one : two, &h))
        return WEFT_EUNSUPPORTED;
    h.w[28] = wf_gpu_word(t->kept);
    if (t->before) {
        h.w[23] |= (uint64_t)t->first << 32;
        h.w[25] = (uint64_t)(t->before - t->first);
    }
    h.work *= (int64_t)h.w[25];
    return wf_gpu_hand_run(t->ordinal, &h, t->e->why);
}

/* -- what one pass keeps for the other ------------------------------------------------------------------------------------------
 * The gradient of q is ds k, and ds is what takes three of the products that are made for it. It is kept from the pass over keys, as many items at a
 * time as fit, where those are enough for the device: 5 products and not 7. */
enum { KEPT_MOST = 256 << 20, KEPT_PART = 128 /* of the device's memory */ };

/* Items at a time; 0: it is not kept. */
static int64_t kept_items(const flash *t, int64_t items, size_t *bytes)
{
    const wf_cuda_info *info = wf_cuda_get_info(t->ordinal);
    const int64_t down = (t->l + TILE - 1) / TILE, across = (t->s + TILE - 1) / TILE;
    const int64_t tiles = t->causal ? down * (down + 1) / 2 : down * across;
    const int64_t each = tiles * TILE * TILE * (int64_t)sizeof(float);
    const int64_t part = info ? info->memory_bytes / KEPT_PART : 0;
    const int64_t most = (part < KEPT_MOST ? part : KEPT_MOST) / (each ? each : 1);
    const int64_t least = down < across ? down : across;
    const int64_t n = most < items ? most : items;
    *bytes = (size_t)(n * each);
    return n < items && n * least < 4 * wf_gpu_processors(t->ordinal) ? 0 : n;
}

/* WEFT_EUNSUPPORTED: not so. */
static int back_by_kept(flash *t)
{
    wf_exec *e = t->e;
    wf_why short_of = {0};
    int64_t items = 1;
    size_t bytes;
    for (int d = 0; d < t->rank - 2; d++)
        items *= t->dims[d];
    const int64_t n = items < INT32_MAX ? kept_items(t, items, &bytes) : 0;
    if (n)
        t->kept = wf_gpu_temp(&t->temps, bytes, &short_of);
    if (!t->kept)
        return WEFT_EUNSUPPORTED;
    int status = 0;
    for (t->first = 0; t->first < items && status == 0; t->first = t->before) {
        t->before = t->first + n < items ? t->first + n : items;
        status = run_back(t, true, &e->dst[1], &e->dst[2]);
        if (status == 0)
            status = wf_gpu_too_late(run_back(t, false, &e->dst[0], NULL));
        if (status != 0 && t->first > 0)
            status = wf_gpu_too_late(status);
    }
    if (status == WEFT_EUNSUPPORTED) {
        t->kept = NULL;
        t->first = t->before = 0;
    }
    return status;
}

static int backward(flash *t)
{
    wf_exec *e = t->e;
    const wf_view *out = &e->src[4], *dk = &e->dst[1], *dv = &e->dst[2];
    wf_view lse;
    if (!open(t, e->src + 1, out, e->nsrc > 6 ? &e->src[6] : NULL))
        return WEFT_EUNSUPPORTED;
    t->g = wf_gpu_over_batch(&e->src[0], t->rank, t->dims);
    int status = wf_gpu_dense(&t->temps, &e->src[5], WEFT_F32, &lse, e->why);
    t->lse = lse.data;
    bool both = t->wide == 1; /* results of one launch */
    for (int d = 0; d < t->rank - 2; d++)
        both &= lacks(t, dk, d) == lacks(t, dv, d);
    if (status == 0)
        status = row_dots(t, &e->src[0], out);
    bool own = both;
    for (int d = 0; d < t->rank - 2; d++)
        own &= !lacks(t, dk, d) && !lacks(t, &e->dst[0], d);
    if (status == 0 && own) {
        status = back_by_kept(t);
        if (status != WEFT_EUNSUPPORTED)
            return status;
        status = 0;
    }
    if (status == 0)
        status = run_back(t, false, &e->dst[0], NULL);
    if (status == 0)
        status = run_back(t, true, dk, both ? dv : NULL);
    return status || both ? status : run_back(t, true, NULL, dv);
}

int wf_gpu_row_flash(int ordinal, wf_exec *e)
{
    flash t = {.ordinal = ordinal, .e = e, .temps.ordinal = ordinal, .back = e->op != WF_OP_SDPA};
    const int status = t.back ? backward(&t) : forward(&t);
    wf_gpu_drop(&t.temps);
    return status;
}
