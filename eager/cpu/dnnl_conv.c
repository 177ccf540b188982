/*
 * eager/cpu/dnnl_conv.c -- convolution by oneDNN primitives on channels-last blocks.
 *
 * A problem is cut, by shape alone, into tasks that are convolutions themselves: forward and backward-data
 * by samples and rows of the result, or by its channels where the weights are larger than the images (and
 * windows moved by several rows), backward-weight by output channels, or samples and output rows (the latter
 * two giving partial sums, added as a tree). Tasks of equal geometry share one variant: its primitive, and,
 * unless each task has weights of its own, the weights in the layout that this primitive likes. NCHW operands are
 * transposed, whole for those that several tasks read, by task for those that one task reads or makes.
 *
 * Invariant: a problem that oneDNN has no good primitive for is refused before anything is written.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cpu/conv_pack.h"
#include "eager/cpu/dnnl.h"
#include "eager/cpu/gemm_impl.h"
#include "eager/kernels/kernels.h"
#include "eager/pool.h"

enum {
    KIND,
    TYPE,
    N,
    G,
    C,
    H,
    W,
    O,
    KH,
    KW,
    OH,
    OW,
    STRIDE_Y,
    STRIDE_X,
    TOP,
    LEFT,
    BOTTOM,
    RIGHT,
    DILATION_Y,
    DILATION_X,
    HAS_BIAS,
    WEIGHT_C, /* channels of the whole weight, of which C / G are used */
    PART_O,   /* REORDER: only the first so many output channels; 0: all */
    PART_C    /* the same for input channels */
};
enum { FORWARD = 16, BACKWARD_DATA, BACKWARD_WEIGHT, REORDER = 32 };

/* Enough tasks for several threads, none smaller than is worth one (multiply-adds). */
enum { TASKS = 8, FEW_TASKS = 4, MAX_VARIANTS = 16 };
/* Channels of shared weights that one task reorders, where there are more, of weights of at least so many bytes. */
enum { MOST_PART = 64, LEAST_PART = 16, LEAST_PARTED = 32 << 10 };
/* Output channels of a gradient whose partial sums one task adds. */
enum { PLACED_O = 32 };
#define MIN_TASK 1.0e6

static int weight_md(const dnnl_functions *f, const int64_t *v, int type, int any, dnnl_md *md)
{
    dnnl_sizes grouped = {v[G], v[O] / v[G], v[C] / v[G], v[KH], v[KW]};
    dnnl_sizes plain = {v[O], v[C], v[KH], v[KW]};
    int64_t area = v[KH] * v[KW], per_o = v[WEIGHT_C] * area;
    dnnl_sizes grouped_strides = {v[O] / v[G] * per_o, per_o, area, v[KW], 1};
    int rank = v[G] > 1 ? 5 : 4;
    const int64_t *dims = v[G] > 1 ? grouped : plain;
    if (any)
        return f->memory_desc_init_by_tag(md, rank, dims, type, DNNL_TAG_ANY);
    return f->memory_desc_init_by_strides(md, rank, dims, type,
                                          v[G] > 1 ? grouped_strides : grouped_strides + 1);
}

static int nhwc_md(const dnnl_functions *f, int64_t n, int64_t c, int64_t h, int64_t w, int type,
                   dnnl_md *md)
{
    dnnl_sizes dims = {n, c, h, w}, strides = {h * w * c, 1, w * c, c};
    return f->memory_desc_init_by_strides(md, 4, dims, type, strides);
}

static bool is_named(const char *impl, const char *start)
{
    return strncmp(impl, start, strlen(start)) == 0;
}

/*
 * What these implementations of 2.6.3 compute wrongly or beside their buffers, found by comparing random problems with
 * sums in double at every instruction set (tests/unit/test_conv.c has some of each). Later versions keep these kernels:
 * none is taken to be right.
 *  - Gradients of bf16 weights, rows dilated and more than 28 columns: wrong sums, reads outside the image.
 *  - The same, fewer columns than the stride: padding is what the scratch memory held, or reads outside the image.
 *  - bf16 with a 1 x 1 filter: an odd number of channels to sum over leaves terms out or takes wrong ones where the
 *    positions come in blocks of 30; five positions overwrite registers that emulate bf16 products without AVX512_BF16.
 *  - Gradients of f32 weights with a 1 x 1 filter and AVX2 or AVX-512: with strides and fewer channels than a vector,
 *    writes past the scratch memory.
 *  - Forward bf16 on AVX512_BF16 (not on matrix units), an odd number of channels: the pair of the last one is the next
 *    pixel's first, times a zero. That is NaN where it is an infinity or NaN, and behind the image it is anything, or a fault.
 */
static bool is_wrong(const int64_t *v, const char *impl)
{
    if (is_named(impl, "jit_bf16:") && v[KIND] == BACKWARD_WEIGHT)
        return (v[DILATION_Y] > 1 && v[OW] > 28) || v[W] < v[STRIDE_X];
    if (is_named(impl, "jit_bf16_1x1:") && v[KIND] != BACKWARD_WEIGHT) {
        int64_t summed = (v[KIND] == FORWARD ? v[C] : v[O]) / v[G];
        return summed % 2 || v[OH] * v[OW] == 5;
    }
    if (is_named(impl, "brgconv") && v[TYPE] == DNNL_BF16 && !strstr(impl, "amx"))
        return v[KIND] == FORWARD && v[C] / v[G] % 2;
    if (is_named(impl, "jit_1x1:avx"))
        return v[KIND] == BACKWARD_WEIGHT &&
               v[C] / v[G] < (is_named(impl, "jit_1x1:avx512") ? 16 : 8) &&
               (v[STRIDE_Y] > 1 || v[STRIDE_X] > 1);
    return false;
}

/* The first implementation of the operation, in oneDNN's order of preference, that is right for v. */
static int choose(const dnnl_functions *f, const int64_t *v, const dnnl_op *op, dnnl_handle hint,
                  dnnl_handle *desc)
{
    dnnl_handle each = NULL;
    int rc = f->primitive_desc_iterator_create(&each, op, NULL, f->engine, hint);
    while (!rc) {
        const char *impl = NULL;
        *desc = f->primitive_desc_iterator_fetch(each);
        if (!*desc) {
            rc = DNNL_OUT_OF_MEMORY;
            break;
        }
        rc = f->primitive_desc_query(*desc, DNNL_QUERY_IMPL_NAME, 0, &impl);
        if (!rc && !is_wrong(v, impl))
            break;
        f->primitive_desc_destroy(*desc);
        *desc = NULL;
        rc = rc ? rc : f->primitive_desc_iterator_next(each);
    }
    if (each)
        f->primitive_desc_iterator_destroy(each);
    return rc;
}

static int describe(const dnnl_functions *f, const wf_dnnl_key *key, dnnl_handle *desc)
{
    const int64_t *v = key->v;
    int type = (int)v[TYPE], kind = (int)v[KIND];
    int weight_type = kind == BACKWARD_WEIGHT ? DNNL_F32 : type;
    dnnl_md src, weight, bias, dst;
    dnnl_op op;
    dnnl_handle hint = NULL;
    dnnl_sizes out_channels = {v[O]}, one = {1};
    int rc = nhwc_md(f, v[N], v[C], v[H], v[W], type, &src);
    rc = rc ? rc : nhwc_md(f, v[N], v[O], v[OH], v[OW], type, &dst);
    rc = rc ? rc : f->memory_desc_init_by_strides(&bias, 1, out_channels, type, one);
    rc = rc ? rc : weight_md(f, v, kind == BACKWARD_DATA ? weight_type : type, 1, &weight);
    dnnl_sizes stride = {v[STRIDE_Y], v[STRIDE_X]};
    dnnl_sizes dilation = {v[DILATION_Y] - 1, v[DILATION_X] - 1};
    dnnl_sizes before = {v[TOP], v[LEFT]}, after = {v[BOTTOM], v[RIGHT]};
    /* Every backward descriptor wants the forward one as a hint. */
    rc = rc ? rc
            : f->dilated_convolution_forward_desc_init(&op, DNNL_FORWARD_TRAINING, DNNL_CONV_DIRECT,
                                                       &src, &weight, v[HAS_BIAS] ? &bias : NULL,
                                                       &dst, stride, dilation, before, after);
    if (!rc && kind == FORWARD)
        return choose(f, v, &op, NULL, desc);
    rc = rc ? rc : f->primitive_desc_create(&hint, &op, NULL, f->engine, NULL);
    if (rc)
        return rc;
    if (kind == BACKWARD_DATA) {
        rc = f->dilated_convolution_backward_data_desc_init(&op, DNNL_CONV_DIRECT, &src, &weight,
                                                            &dst, stride, dilation, before, after);
    } else {
        rc = weight_md(f, v, weight_type, 1, &weight);
        rc = rc ? rc
                : f->dilated_convolution_backward_weights_desc_init(&op, DNNL_CONV_DIRECT, &src,
                                                                    &weight, NULL, &dst, stride,
                                                                    dilation, before, after);
    }
    rc = rc ? rc : choose(f, v, &op, hint, desc);
    f->primitive_desc_destroy(hint);
    return rc;
}

/* Weights between [o][c][kh][kw] and the layout that the convolution of this key chose. */
static int describe_reorder(const dnnl_functions *f, const wf_dnnl_key *key, dnnl_handle *desc)
{
    wf_dnnl_key conv = *key;
    conv.v[KIND] -= REORDER;
    int gradient = conv.v[KIND] == BACKWARD_WEIGHT;
    dnnl_md plain;
    dnnl_handle chosen = NULL;
    int rc = weight_md(f, key->v, (int)key->v[TYPE], 0, &plain);
    rc = rc ? rc : describe(f, &conv, &chosen);
    if (rc)
        return rc;
    const dnnl_md *md = f->primitive_desc_query_md(
        chosen, gradient ? DNNL_QUERY_DIFF_WEIGHTS : DNNL_QUERY_WEIGHTS, 0);
    dnnl_md whole = plain, part;
    if (key->v[PART_O] || key->v[PART_C]) {
        dnnl_sizes from_0 = {0},
                   dims = {key->v[PART_O] ? key->v[PART_O] : key->v[O],
                           key->v[PART_C] ? key->v[PART_C] : key->v[C], key->v[KH], key->v[KW]};
        rc = f->memory_desc_init_submemory(&part, md, dims, from_0);
        rc = rc ? rc : f->memory_desc_init_submemory(&plain, &whole, dims, from_0);
        md = &part;
    }
    rc = rc ? rc
            : f->reorder_primitive_desc_create(desc, gradient ? md : &plain, f->engine,
                                               gradient ? &plain : md, f->engine, NULL);
    f->primitive_desc_destroy(chosen);
    return rc;
}

static const wf_dnnl_recipe forward_recipe = {describe,
                                              3,
                                              {DNNL_SRC, DNNL_WEIGHTS, DNNL_DST},
                                              {DNNL_QUERY_SRC, DNNL_QUERY_WEIGHTS, DNNL_QUERY_DST}};
/* Bias is argument 1 of the list of weights, hence its own query index below. */
static const wf_dnnl_recipe bias_recipe = {
    describe,
    4,
    {DNNL_SRC, DNNL_WEIGHTS, DNNL_DST, DNNL_BIAS},
    {DNNL_QUERY_SRC, DNNL_QUERY_WEIGHTS, DNNL_QUERY_DST, WF_DNNL_QUERY_BIAS}};
static const wf_dnnl_recipe data_recipe = {
    describe,
    3,
    {DNNL_DIFF_SRC, DNNL_WEIGHTS, DNNL_DIFF_DST},
    {DNNL_QUERY_DIFF_SRC, DNNL_QUERY_WEIGHTS, DNNL_QUERY_DIFF_DST}};
static const wf_dnnl_recipe weight_recipe = {
    describe,
    3,
    {DNNL_SRC, DNNL_DIFF_WEIGHTS, DNNL_DIFF_DST},
    {DNNL_QUERY_SRC, DNNL_QUERY_DIFF_WEIGHTS, DNNL_QUERY_DIFF_DST}};
static const wf_dnnl_recipe reorder_recipe = {
    describe_reorder, 2, {DNNL_SRC, DNNL_DST}, {DNNL_QUERY_SRC, DNNL_QUERY_DST}};

typedef struct variant {
    wf_dnnl_key key;
    int64_t c0; /* first channel of the weight used */
    int shared; /* the variant that holds the weights: this one, or the first of the same layout */
    void *weight;
    size_t weight_bytes;
    wf_conv_blocks blocks;  /* o > 0: the layout is packed here, not by a reorder */
    int64_t part_o, part_c; /* > 0: parts of so many output or of so many input channels */
    size_t part_step;       /* bytes from part to part */
} variant;

typedef struct conv_job {
    const wf_conv_desc *d;
    size_t size; /* of an element */
    const wf_dnnl_recipe *recipe;
    const char *src, *dst; /* channels-last where shared, else as given */
    char *out;
    const void *weight, *bias;
    char *nhwc_copy; /* of an operand that all tasks read, or NULL */
    size_t nhwc_bytes;
    int64_t per_n, chunks_n;   /* samples of a task */
    int64_t per_other, others; /* rows, input channels or output channels of a task */
    int by_rows;               /* others are rows of the result; else channels */
    int own_weights; /* a task reorders the weights that only it reads: those of its channels */
    /* Backward weight: output rows of a task and pieces of a sample; a chunk is a piece of a sample where these are more. */
    int64_t per_band, bands;
    variant variants[MAX_VARIANTS];
    int count;
    char *partial; /* backward weight: [chunk][other] blocks of part_bytes */
    size_t part_bytes;
    _Atomic int rc;
} conv_job;

static void fail(conv_job *w, int rc)
{
    atomic_store_explicit(&w->rc, rc, memory_order_relaxed);
}

/* The first row of the output whose window, moved by single rows, has row y of the input or one below it. */
static int64_t rows_behind(const wf_conv_desc *d, int64_t y)
{
    int64_t row = y + d->pad[0] - d->dilation[0] * (d->kh - 1);
    return row > 0 ? row : 0;
}

/* Partial sums of each task of output channels. */
static int64_t partials(const conv_job *w)
{
    return w->chunks_n * w->bands;
}

/* The first output row of a task, and behind its last one. */
static int64_t first_row(const conv_job *w, int kind, int64_t chunk, int64_t other)
{
    return kind == FORWARD && w->by_rows ? other * w->per_other : chunk % w->bands * w->per_band;
}
static int64_t last_row(const conv_job *w, int kind, int64_t chunk, int64_t other)
{
    int64_t rows = w->bands > 1 ? w->per_band : w->d->oh;
    rows = kind == FORWARD && w->by_rows ? w->per_other : rows;
    return wf_least(first_row(w, kind, chunk, other) + rows, w->d->oh);
}

/* The key of the task (chunk of samples, other): what it computes as a convolution of its own. */
static wf_dnnl_key task_key(const conv_job *w, int kind, int64_t chunk, int64_t other)
{
    const wf_conv_desc *d = w->d;
    wf_dnnl_key key = {{0}};
    int64_t *v = key.v, first = other * w->per_other;
    v[KIND] = kind;
    v[TYPE] = d->dtype == WEFT_F32 ? DNNL_F32 : DNNL_BF16;
    v[N] = wf_least(w->per_n, d->n - chunk / w->bands * w->per_n);
    v[G] = d->groups;
    v[C] = kind == BACKWARD_DATA && !w->by_rows ? wf_least(w->per_other, d->c - first) : d->c;
    v[O] = kind != BACKWARD_DATA && !w->by_rows ? wf_least(w->per_other, d->o - first) : d->o;
    v[H] = d->h, v[W] = d->w;
    v[OH] = d->oh, v[OW] = d->ow;
    v[KH] = d->kh, v[KW] = d->kw;
    v[STRIDE_Y] = d->stride[0], v[STRIDE_X] = d->stride[1];
    /* A single row or column is not dilated, whatever was said. */
    v[DILATION_Y] = d->kh > 1 ? d->dilation[0] : 1, v[DILATION_X] = d->kw > 1 ? d->dilation[1] : 1;
    v[TOP] = d->pad[0], v[LEFT] = d->pad[1];
    v[HAS_BIAS] = kind == FORWARD && w->bias;
    v[WEIGHT_C] = d->c / d->groups;
    if (kind == BACKWARD_DATA && w->by_rows) {
        int64_t begin = rows_behind(d, first), end = wf_least(first + w->per_other, d->h);
        v[OH] = wf_least(end + d->pad[0], d->oh) - begin;
        v[TOP] = first + d->pad[0] - begin;
        v[H] = end - first;
    }
    if ((kind == FORWARD && w->by_rows && w->others > 1) || w->bands > 1) {
        int64_t row = first_row(w, kind, chunk, other), begin = row * d->stride[0] - d->pad[0];
        v[OH] = last_row(w, kind, chunk, other) - row;
        v[TOP] = begin < 0 ? -begin : 0;
        begin += v[TOP];
        int64_t end =
            (row + v[OH] - 1) * d->stride[0] - d->pad[0] + d->dilation[0] * (d->kh - 1) + 1;
        v[H] = wf_least(end, d->h) - begin;
    }
    /* Rows and columns behind the last window are not padding, and not negative padding either. */
    int64_t bottom = (v[OH] - 1) * v[STRIDE_Y] + v[DILATION_Y] * (v[KH] - 1) + 1 - v[H] - v[TOP];
    int64_t right = (v[OW] - 1) * v[STRIDE_X] + v[DILATION_X] * (v[KW] - 1) + 1 - v[W] - v[LEFT];
    v[BOTTOM] = bottom > 0 ? bottom : 0;
    v[RIGHT] = right > 0 ? right : 0;
    return key;
}

/* Tasks whose shared weights begin at different channels have variants of their own. */
static int64_t task_channel(const conv_job *w, int kind, int64_t other)
{
    return kind == BACKWARD_DATA && !w->by_rows && !w->own_weights ? other * w->per_other : 0;
}

/* The variant of a task; NULL when there are too many. */
static variant *find_variant(conv_job *w, const wf_dnnl_key *key, int64_t c0, int add)
{
    for (int i = 0; i < w->count; i++)
        if (w->variants[i].c0 == c0 && memcmp(&w->variants[i].key, key, sizeof *key) == 0)
            return &w->variants[i];
    if (!add || w->count == MAX_VARIANTS)
        return NULL;
    w->variants[w->count] = (variant){.key = *key, .c0 = c0, .shared = w->count};
    return &w->variants[w->count++];
}

/* Rows at the border are a variant of their own, yet their weights are laid out like the others'. */
static int share_weight(conv_job *w, variant *v, const wf_dnnl_plan *plan)
{
    const variant *first = &w->variants[0];
    if (v->key.v[KIND] == BACKWARD_WEIGHT || first->c0 != v->c0 || first->key.v[C] != v->key.v[C])
        return 0;
    /* Of the two plans in use the one asked for last stays, the other is newer than any it could oust. */
    const wf_dnnl_plan *other = wf_dnnl_get(&first->key, w->recipe);
    if (!other || !other->primitive || !wf_dnnl_same_layout(plan, other, 1))
        return 0;
    v->shared = 0;
    return 1;
}

/* Whether partial sums of this variant lie like those of the first that has its output channels. */
static int adds_up(const conv_job *w, const variant *v, wf_dnnl_plan *plan)
{
    for (const variant *first = w->variants; first < v; first++) {
        if (first->key.v[O] != v->key.v[O])
            continue;
        const wf_dnnl_plan *other = wf_dnnl_get(&first->key, w->recipe);
        return other && other->primitive && wf_dnnl_same_layout(plan, other, 1);
    }
    return 1;
}

/* The largest part of n channels that is a multiple of `block` and divides them; 0: none. */
static int64_t part_of(int64_t n, int64_t block)
{
    for (int64_t part = MOST_PART; part >= LEAST_PART; part /= 2)
        if (part < n && n % part == 0 && part % block == 0)
            return part;
    return 0;
}

/*
 * Weights that all tasks share are reordered in parts of output channels, or of input channels, where the layout has
 * whole blocks of them: a part is then the same reorder at another address.
 */
static void choose_parts(variant *v, const wf_dnnl_plan *plan, size_t size)
{
    const int64_t *k = v->key.v;
    const dnnl_md *md = wf_dnnl_layout(plan, 1);
    const size_t dense = (size_t)(k[O] * k[C] * k[KH] * k[KW]) * size;
    if (k[G] != 1 || !md || plan->bytes[1] != dense || dense < LEAST_PARTED)
        return;
    dnnl_md_blocked b;
    memcpy(&b, md, sizeof b);
    int64_t block[2] = {1, 1};
    if (b.kind != DNNL_BLOCKED || b.offset)
        return;
    for (int i = 0; i < b.inner_count; i++)
        if (b.inner_axis[i] < 2)
            block[b.inner_axis[i]] *= b.inner[i];
    v->part_o = part_of(k[O], block[0]);
    v->part_c = v->part_o ? 0 : part_of(k[C], block[1]);
    const int64_t blocks = v->part_o ? v->part_o / block[0] : v->part_c / block[1];
    v->part_step = (size_t)(blocks * b.strides[v->part_o ? 0 : 1]) * size;
}

/* Plans every variant on this thread, so that a refusal comes before any result is written. */
static int plan_variants(conv_job *w, int kind)
{
    const wf_conv_desc *d = w->d;
    for (int64_t chunk = 0; chunk < partials(w); chunk++) {
        if (w->bands == 1 && chunk > 0 && chunk < w->chunks_n - 1)
            continue; /* as the first */
        for (int64_t other = 0; other < w->others; other++) {
            wf_dnnl_key key = task_key(w, kind, chunk, other);
            if (key.v[H] < 1)
                return WF_GEMM_UNSUPPORTED; /* rows wholly in the padding */
            int before = w->count;
            variant *v = find_variant(w, &key, task_channel(w, kind, other), 1);
            if (!v)
                return WF_GEMM_UNSUPPORTED;
            if (before == w->count)
                continue;
            wf_dnnl_plan *plan = wf_dnnl_get(&key, w->recipe);
            if (!plan)
                return WF_GEMM_NOMEM;
            if (!plan->primitive)
                return WF_GEMM_UNSUPPORTED;
            v->weight_bytes = plan->bytes[1];
            if (before > 0 && share_weight(w, v, plan))
                continue;
            if (kind != BACKWARD_WEIGHT && !w->own_weights)
                choose_parts(v, plan, w->size);
            if (kind == BACKWARD_WEIGHT && chunk > 0 && !adds_up(w, v, plan))
                return WF_GEMM_UNSUPPORTED;
            const size_t size = kind == BACKWARD_WEIGHT ? sizeof(float) : w->size;
            const dnnl_md *md = wf_dnnl_layout(plan, 1);
            if (md && key.v[G] == 1 && wf_conv_blocks_of(md, size, plan->bytes[1], &v->blocks) &&
                (kind == BACKWARD_WEIGHT ? wf_conv_unpacks(&v->blocks, d->c, d->kh, d->kw)
                                         : wf_conv_packs(&v->blocks, size)))
                continue;
            v->blocks.o = 0;
            key.v[KIND] += REORDER;
            key.v[PART_O] = v->part_o, key.v[PART_C] = v->part_c;
            plan = wf_dnnl_get(&key, &reorder_recipe);
            if (plan && !plan->primitive && v->part_step) {
                v->part_o = v->part_c = 0;
                key.v[PART_O] = key.v[PART_C] = 0;
                plan = wf_dnnl_get(&key, &reorder_recipe);
            }
            if (!plan)
                return WF_GEMM_NOMEM;
            if (!plan->primitive)
                return WF_GEMM_UNSUPPORTED;
        }
    }
    return WF_GEMM_OK;
}

static int64_t reorder_parts(const variant *v)
{
    return v->part_o ? v->key.v[O] / v->part_o : v->part_c ? v->key.v[C] / v->part_c : 1;
}

/* One part of the weights of a variant, which begin at channels (first_o, first_c) of the whole. */
static int reorder_part(const conv_job *w, const variant *v, int64_t first_o, int64_t first_c,
                        int64_t part, void *weight)
{
    wf_dnnl_key key = v->key;
    const int64_t area = key.v[KH] * key.v[KW], row = key.v[WEIGHT_C] * area;
    const int64_t o0 = first_o + part * v->part_o, c0 = first_c + part * v->part_c;
    const char *from = (const char *)w->weight + (size_t)(o0 * row + c0 * area) * w->size;
    char *to = (char *)weight + (size_t)part * v->part_step;
    if (v->blocks.o) {
        wf_conv_pack(&v->blocks, w->size, v->part_o ? v->part_o : key.v[O],
                     v->part_c ? v->part_c : key.v[C], area, from, row, to);
        return WF_GEMM_OK;
    }
    key.v[KIND] += REORDER;
    key.v[PART_O] = v->part_o, key.v[PART_C] = v->part_c;
    wf_dnnl_plan *plan = wf_dnnl_get(&key, &reorder_recipe);
    return plan ? wf_dnnl_run(plan, (void *[]){(char *)(uintptr_t)from, to}) : WF_GEMM_NOMEM;
}

/* Task t of all parts of all variants that have weights of their own. */
static void reorder_task(void *arg, int64_t begin, int64_t end)
{
    conv_job *w = arg;
    int saved = wf_dnnl_enter();
    int64_t first = 0;
    for (int i = 0; i < w->count && first < end; i++) {
        const variant *v = &w->variants[i];
        if (v->shared != i)
            continue;
        int64_t parts = reorder_parts(v);
        for (int64_t t = begin > first ? begin : first; t < end && t < first + parts; t++) {
            int rc = reorder_part(w, v, 0, v->c0, t - first, v->weight);
            if (rc)
                fail(w, rc);
        }
        first += parts;
    }
    wf_dnnl_leave(saved);
}

static int reorder_weights(conv_job *w)
{
    int64_t parts = 0;
    for (int i = 0; i < w->count; i++) {
        variant *v = &w->variants[i];
        if (v->shared != i)
            continue;
        v->weight = wf_scratch(v->weight_bytes);
        if (!v->weight)
            return WF_GEMM_NOMEM;
        parts += reorder_parts(v);
    }
    wf_parallel_for(parts, 1, reorder_task, w);
    return atomic_load_explicit(&w->rc, memory_order_relaxed);
}

/* A channel slice of samples [n0, n1) and positions [p0, p1), between a dense channels-last block and
 * an activation of c channels and `area` positions a sample in either layout. */
static void slice(const conv_job *w, int nhwc, int to_block, char *image, int64_t c, int64_t area,
                  int64_t n0, int64_t n1, int64_t c0, int64_t c1, int64_t p0, int64_t p1,
                  char *block)
{
    int64_t channels = c1 - c0, count = p1 - p0;
    const wf_pack_fn pack = wf_kernels_now()->pack[wf_width(w->d->dtype)];
    for (int64_t n = n0; n < n1; n++, block += (size_t)(channels * count) * w->size) {
        char *at = image + (size_t)(n * c * area + (nhwc ? p0 * c + c0 : c0 * area + p0)) * w->size;
        if (!nhwc && to_block)
            pack(block, channels, at, 1, area, (size_t)count, (size_t)channels);
        else if (!nhwc)
            pack(at, area, block, 1, channels, (size_t)channels, (size_t)count);
        else
            for (int64_t p = 0; p < count; p++) {
                char *row = at + (size_t)(p * c) * w->size;
                char *packed = block + (size_t)(p * channels) * w->size;
                memcpy(to_block ? packed : row, to_block ? row : packed,
                       (size_t)channels * w->size);
            }
    }
}

typedef struct to_nhwc {
    conv_job *w;
    const char *from;
    int64_t c, area, pieces;
} to_nhwc;

enum { PIECE = 1024 };

static void nhwc_task(void *arg, int64_t begin, int64_t end)
{
    to_nhwc *t = arg;
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / t->pieces, p0 = i % t->pieces * PIECE, p1 = wf_least(p0 + PIECE, t->area);
        slice(t->w, 0, 1, (char *)(uintptr_t)t->from, t->c, t->area, n, n + 1, 0, t->c, p0, p1,
              t->w->nhwc_copy + (size_t)((n * t->area + p0) * t->c) * t->w->size);
    }
}

/* *data, an NCHW operand that all tasks read, is replaced by a channels-last copy. */
static int make_nhwc(conv_job *w, const char **data, int64_t c, int64_t area)
{
    w->nhwc_bytes = (size_t)(w->d->n * c * area) * w->size;
    w->nhwc_copy = wf_scratch(w->nhwc_bytes);
    if (!w->nhwc_copy)
        return WF_GEMM_NOMEM;
    to_nhwc t = {w, *data, c, area, (area + PIECE - 1) / PIECE};
    int64_t piece = c * wf_least(area, PIECE);
    wf_parallel_for(w->d->n * t.pieces, piece > 32768 ? 1 : 32768 / piece, nhwc_task, &t);
    *data = w->nhwc_copy;
    return WF_GEMM_OK;
}

/* The latest first. */
static void release(conv_job *w)
{
    if (w->partial)
        wf_scratch_free(w->partial, w->part_bytes * (size_t)(partials(w) * w->others));
    for (int i = w->count; i-- > 0;)
        if (w->variants[i].weight)
            wf_scratch_free(w->variants[i].weight, w->variants[i].weight_bytes);
    if (w->nhwc_copy)
        wf_scratch_free(w->nhwc_copy, w->nhwc_bytes);
}

/*
 * Adds the partial sums of a task of output channels as a tree and puts them in their place: of channels [begin, end) of
 * it where the layout is one that is unpacked here, else of all with the first.
 *
 * Gradients of bf16 weights: the kernels take pixels in pairs, and what fills up a row times an infinity of the image is a NaN in
 * sums that have no such term (jit_bf16 on AVX512_BF16). Where an element is not finite the caller computes all of them by
 * other means. They are looked at as they are rounded: weights of short images are written past the caches.
 */
static int place(conv_job *w, int64_t other, char *base, int64_t count, int64_t begin, int64_t end)
{
    const wf_conv_desc *d = w->d;
    wf_dnnl_key key = task_key(w, BACKWARD_WEIGHT, 0, other);
    const variant *v = find_variant(w, &key, 0, 0);
    int64_t per_o = d->c / d->groups * d->kh * d->kw;
    char *out = w->out + (size_t)(other * w->per_other * per_o) * w->size;
    if (v->blocks.o) {
        wf_conv_partials p = {(const float *)(const void *)base,
                              (int64_t)(w->part_bytes / sizeof(float)), count};
        return wf_conv_unpack(&v->blocks, begin, end, d->c, d->kh, d->kw, &p, d->dtype, out, per_o)
                   ? WF_GEMM_OK
                   : WF_GEMM_UNSUPPORTED;
    }
    if (begin > 0)
        return WF_GEMM_OK;
    size_t elements = v->weight_bytes / sizeof(float);
    for (int64_t gap = 1; gap < count; gap *= 2)
        for (int64_t i = 0; i + gap < count; i += 2 * gap) {
            float *a = (float *)(void *)(base + (size_t)i * w->part_bytes);
            const float *b =
                (const float *)(const void *)(base + (size_t)(i + gap) * w->part_bytes);
            for (size_t x = 0; x < elements; x++)
                a[x] += b[x];
        }
    key.v[KIND] += REORDER;
    wf_dnnl_plan *plan = wf_dnnl_get(&key, &reorder_recipe);
    const int rc = plan ? wf_dnnl_run(plan, (void *[]){base, out}) : WF_GEMM_NOMEM;
    if (!rc && d->dtype == WEFT_BF16 &&
        !wf_kernels_now()->finite((const uint16_t *)(const void *)out, (size_t)(key.v[O] * per_o)))
        return WF_GEMM_UNSUPPORTED;
    return rc;
}

/* A gradient of weights that is no partial sum: put into its place while a cache near by has it. */
static int run_whole(conv_job *w, wf_dnnl_plan *plan, int64_t other, int64_t channels, void *src,
                     void *ddst)
{
    char *sum = wf_scratch(w->part_bytes);
    if (!sum)
        return WF_GEMM_NOMEM;
    int rc = wf_dnnl_run(plan, (void *[]){src, sum, ddst});
    rc = rc ? rc : place(w, other, sum, 1, 0, channels);
    wf_scratch_free(sum, w->part_bytes);
    return rc;
}

/* The side of a task that no other one reads (of a gradient of weights: the gradient of the result) or makes (else): channels
 * [c0, c1) and positions [p0, p1) of samples [n0, n1) of an image of c channels and `area` positions. */
typedef struct task_side {
    char *image, *block; /* block: where that begins, if it is a block already */
    int64_t n0, n1, c0, c1, p0, p1, c, area;
    int nhwc, whole; /* whole: it is one */
} task_side;

/* And *src, *dst: where the task's part of the operands that are read whole begins. v: of the task's key. */
static task_side side_of(const conv_job *w, int kind, int64_t chunk, int64_t other,
                         const int64_t *v, const char **src, const char **dst)
{
    const wf_conv_desc *d = w->d;
    const int src_nhwc = (d->layout & WF_CONV_SRC_NHWC) != 0,
              dst_nhwc = (d->layout & WF_CONV_DST_NHWC) != 0;
    const int64_t in_area = d->h * d->w, out_area = d->oh * d->ow, first = other * w->per_other;
    const int64_t n0 = chunk / w->bands * w->per_n;
    task_side s = {.image = kind == BACKWARD_WEIGHT ? (char *)(uintptr_t)w->dst : w->out,
                   .n0 = n0,
                   .n1 = n0 + v[N],
                   .c1 = d->o,
                   .p1 = out_area,
                   .c = kind == BACKWARD_DATA ? d->c : d->o,
                   .area = kind == BACKWARD_DATA ? in_area : out_area,
                   .nhwc = dst_nhwc,
                   .whole = dst_nhwc};
    *src = w->src + (size_t)(n0 * in_area * d->c) * w->size;
    *dst = w->dst + (size_t)(n0 * out_area * d->o) * w->size;
    if (kind != BACKWARD_DATA) {
        const int64_t row = first_row(w, kind, chunk, other),
                      top = row * d->stride[0] - d->pad[0] + v[TOP];
        s.p0 = row * d->ow, s.p1 = s.p0 + v[OH] * d->ow;
        *src += (size_t)(top * d->w * d->c) * w->size;
    }
    if (kind == FORWARD && !w->by_rows) {
        s.whole = s.nhwc && v[O] == d->o;
        s.c0 = first, s.c1 = first + v[O];
        s.block = w->out + (size_t)(n0 * out_area * d->o) * w->size;
    } else if (kind == FORWARD) {
        s.block = w->out + (size_t)((n0 * out_area + s.p0) * d->o) * w->size;
    } else if (kind == BACKWARD_DATA && w->by_rows) {
        s.nhwc = s.whole = src_nhwc;
        s.p0 = first * d->w, s.p1 = s.p0 + v[H] * d->w, s.c1 = d->c;
        *dst += (size_t)(rows_behind(d, first) * d->ow * d->o) * w->size;
        s.block = w->out + (size_t)((n0 * in_area + s.p0) * d->c) * w->size;
    } else if (kind == BACKWARD_DATA) {
        s.nhwc = src_nhwc, s.whole = s.nhwc && v[C] == d->c;
        s.p1 = in_area, s.c0 = first, s.c1 = first + v[C];
        s.block = w->out + (size_t)(n0 * in_area * d->c) * w->size;
    } else {
        s.whole = s.nhwc && v[O] == d->o;
        s.c0 = first, s.c1 = first + v[O];
        s.block = (char *)(uintptr_t)*dst + (size_t)(s.p0 * d->o) * w->size;
    }
    return s;
}

static void copy_side(const conv_job *w, const task_side *s, int to_block)
{
    slice(w, s->nhwc, to_block, s->image, s->c, s->area, s->n0, s->n1, s->c0, s->c1, s->p0, s->p1,
          s->block);
}

/* The task's weights, reordered for it alone, in own[]. */
static int reorder_own(conv_job *w, const variant *var, int kind, int64_t other, char *own)
{
    const int64_t first = other * w->per_other;
    int rc = own ? WF_GEMM_OK : WF_GEMM_NOMEM;
    for (int64_t part = 0; !rc && part < reorder_parts(var); part++)
        rc = reorder_part(w, var, kind == FORWARD ? first : 0, kind == FORWARD ? 0 : first, part,
                          own);
    return rc;
}

static int run_task(conv_job *w, int kind, int64_t chunk, int64_t other)
{
    wf_dnnl_key key = task_key(w, kind, chunk, other);
    const variant *var = find_variant(w, &key, task_channel(w, kind, other), 0);
    void *weight = w->variants[var->shared].weight, *own = NULL;
    const char *src_at, *dst_at;
    task_side s = side_of(w, kind, chunk, other, key.v, &src_at, &dst_at);
    const size_t bytes = s.whole ? 0 : (size_t)(key.v[N] * (s.p1 - s.p0) * (s.c1 - s.c0)) * w->size;
    if (!s.whole && !(s.block = wf_scratch(bytes)))
        return WF_GEMM_NOMEM;
    if (!s.whole && kind == BACKWARD_WEIGHT)
        copy_side(w, &s, 1);
    int rc = WF_GEMM_OK;
    if (w->own_weights) {
        weight = own = wf_scratch(var->weight_bytes);
        rc = reorder_own(w, var, kind, other, own);
    }
    wf_dnnl_plan *plan = rc ? NULL : wf_dnnl_get(&key, w->recipe);
    rc = rc || plan ? rc : WF_GEMM_NOMEM;
    char *src = (char *)(uintptr_t)src_at, *dst = (char *)(uintptr_t)dst_at;
    char *bias = w->bias ? (char *)(uintptr_t)w->bias + (size_t)s.c0 * w->size : NULL;
    if (!rc && kind == FORWARD)
        rc = wf_dnnl_run(plan, (void *[]){src, weight, s.block, bias});
    else if (!rc && kind == BACKWARD_DATA)
        rc = wf_dnnl_run(plan, (void *[]){s.block, weight, dst});
    else if (!rc && !w->partial)
        rc = run_whole(w, plan, other, key.v[O], src, s.block);
    else if (!rc)
        rc = wf_dnnl_run(
            plan,
            (void *[]){src, w->partial + (size_t)(other * partials(w) + chunk) * w->part_bytes,
                       s.block});
    if (!s.whole && !rc && kind != BACKWARD_WEIGHT)
        copy_side(w, &s, 0);
    if (own)
        wf_scratch_free(own, var->weight_bytes);
    if (!s.whole)
        wf_scratch_free(s.block, bytes);
    return rc;
}

static void run_tasks(conv_job *w, int kind, int64_t begin, int64_t end)
{
    int saved = wf_dnnl_enter();
    for (int64_t i = begin; i < end; i++) {
        int rc = run_task(w, kind, i / w->others, i % w->others);
        if (rc)
            fail(w, rc);
    }
    wf_dnnl_leave(saved);
}
static void forward_task(void *w, int64_t begin, int64_t end)
{
    run_tasks(w, FORWARD, begin, end);
}
static void data_task(void *w, int64_t begin, int64_t end)
{
    run_tasks(w, BACKWARD_DATA, begin, end);
}
static void weight_task(void *w, int64_t begin, int64_t end)
{
    run_tasks(w, BACKWARD_WEIGHT, begin, end);
}

/* Channels of a backward task: 64, but two tasks at least when there are so many. Halves of 64 channels
 * cost one thread 5 to 20 % and save two threads 40 %. */
static int64_t channel_unit(int64_t channels)
{
    return channels >= 128 ? 64 : 32;
}

/* Tasks of rows each read all weights: few tasks where these do not stay in a cache near by. */
static int64_t tasks_for_weights(const conv_job *w)
{
    const wf_conv_desc *d = w->d;
    double bytes =
        (double)d->o * (double)(d->c / d->groups) * (double)(d->kh * d->kw) * (double)w->size;
    return bytes > 1 << 20 ? 2 : bytes > 1 << 19 ? 4 : TASKS;
}

/* Cuts n samples and `length` of the other dimension (pieces of at least `unit`) into tasks. */
static void cut(conv_job *w, int64_t length, int64_t unit)
{
    const wf_conv_desc *d = w->d;
    double sample = (double)d->oh * (double)d->ow * (double)d->o * (double)(d->c / d->groups) *
                    (double)(d->kh * d->kw);
    w->per_n = sample >= MIN_TASK ? 1 : (int64_t)(MIN_TASK / sample) + 1;
    w->per_n = wf_least(w->per_n, d->n);
    if (d->n > 4 * TASKS && w->per_n < d->n / (4 * TASKS))
        w->per_n = d->n / (4 * TASKS);
    /* Each task reads all weights: those beyond a cache near by are read for several samples at a time. (Forward it is the
     * same, and sums of gradients are cut by samples elsewhere.) */
    if (w->recipe == &data_recipe && tasks_for_weights(w) < TASKS && w->per_n < d->n / TASKS)
        w->per_n = d->n / TASKS;
    w->chunks_n = (d->n + w->per_n - 1) / w->per_n;
    int64_t want = (TASKS + w->chunks_n - 1) / w->chunks_n, worth = (int64_t)(sample / MIN_TASK);
    want = wf_least(want, worth < 1 ? 1 : worth);
    want = wf_least(want, length / unit);
    want = w->per_n > 1 || want < 1 ? 1 : want;
    w->per_other = (length + want - 1) / want;
    if (want > 1)
        w->per_other = (w->per_other + unit - 1) / unit * unit;
    w->others = (length + w->per_other - 1) / w->per_other;
}

/*
 * Whether a problem is cut by channels of its result: each task then reads all of the other image and a part of the weights
 * that it reorders into the second cache. Cut by rows, weights are reordered into memory and read by every task.
 */
static int weights_first(const conv_job *w)
{
    const wf_conv_desc *d = w->d;
    double weights = (double)d->o * (double)(d->c * d->kh * d->kw);
    double images = (double)d->n * (double)(d->c * d->h * d->w);
    return d->groups == 1 && d->n < TASKS && weights >= images &&
           weights * (double)(d->n * d->oh * d->ow) >= 2 * MIN_TASK;
}

/* Splits over tasks; operands that all tasks read become channels-last; weights are reordered. */
static int prepare(conv_job *w, int kind)
{
    const wf_conv_desc *d = w->d;
    int saved = wf_dnnl_enter();
    int rc = plan_variants(w, kind);
    wf_dnnl_leave(saved);
    if (rc)
        return rc;
    if (kind != BACKWARD_DATA && !(d->layout & WF_CONV_SRC_NHWC))
        rc = make_nhwc(w, &w->src, d->c, d->h * d->w);
    if (kind == BACKWARD_DATA && !(d->layout & WF_CONV_DST_NHWC))
        rc = make_nhwc(w, &w->dst, d->o, d->oh * d->ow);
    if (rc || kind == BACKWARD_WEIGHT || w->own_weights)
        return rc;
    return reorder_weights(w);
}

static int start(conv_job *w, const wf_conv_desc *d)
{
    if (d->dtype != WEFT_F32 && d->dtype != WEFT_BF16)
        return WF_GEMM_UNSUPPORTED;
    /* With a kernel larger than the image, or windows wholly in the padding, 2.6 has been seen to
     * read beside the image (bf16 gradients of weights). */
    if (wf_conv_beyond(d))
        return WF_GEMM_UNSUPPORTED;
    w->d = d;
    w->size = d->dtype == WEFT_F32 ? 4 : 2;
    w->bands = 1;
    return WF_GEMM_OK;
}

int wf_dnnl_conv_forward(const wf_conv_desc *d, const void *src, const void *weight,
                         const void *bias, void *dst)
{
    conv_job w = {.src = src, .out = dst, .weight = weight, .bias = bias};
    w.recipe = bias ? &bias_recipe : &forward_recipe;
    int rc = start(&w, d);
    if (rc)
        return rc;
    w.dst = dst;
    w.own_weights = d->o >= 128 && weights_first(&w);
    w.by_rows = !w.own_weights;
    if (w.own_weights) {
        w.per_n = d->n, w.chunks_n = 1;
        w.per_other = d->o >= 512 ? 128 : 64;
        w.others = (d->o + w.per_other - 1) / w.per_other;
    } else {
        cut(&w, d->oh, (d->oh + tasks_for_weights(&w) - 1) / tasks_for_weights(&w));
    }
    rc = prepare(&w, FORWARD);
    if (!rc) {
        wf_parallel_for(w.chunks_n * w.others, 1, forward_task, &w);
        rc = atomic_load_explicit(&w.rc, memory_order_relaxed);
    }
    release(&w);
    return rc;
}

int wf_dnnl_conv_backward_data(const wf_conv_desc *d, const void *ddst, const void *weight,
                               void *dsrc)
{
    conv_job w = {.src = dsrc, .dst = ddst, .out = dsrc, .weight = weight, .recipe = &data_recipe};
    int rc = start(&w, d);
    if (rc)
        return rc;
    w.own_weights = d->c >= 128 && weights_first(&w);
    w.by_rows = !w.own_weights && d->stride[0] == 1;
    if (w.own_weights) {
        w.per_n = d->n, w.chunks_n = 1;
        w.per_other = 64;
        w.others = (d->c + w.per_other - 1) / w.per_other;
    } else if (w.by_rows) {
        cut(&w, d->h, (d->h + tasks_for_weights(&w) - 1) / tasks_for_weights(&w));
    } else {
        cut(&w, d->c, d->groups == 1 ? channel_unit(d->c) : d->c);
    }
    rc = prepare(&w, BACKWARD_DATA);
    if (!rc) {
        wf_parallel_for(w.chunks_n * w.others, 1, data_task, &w);
        rc = atomic_load_explicit(&w.rc, memory_order_relaxed);
    }
    release(&w);
    return rc;
}

/* Output channels whose partial sums are placed on their own: whole blocks of every variant. */
static int64_t placed_step(const conv_job *w)
{
    for (int i = 0; i < w->count; i++)
        if (!w->variants[i].blocks.o || PLACED_O % w->variants[i].blocks.o)
            return w->per_other;
    return PLACED_O;
}

static void sum_task(void *arg, int64_t begin, int64_t end)
{
    conv_job *w = arg;
    int saved = wf_dnnl_enter();
    const int64_t step = placed_step(w), pieces = (w->per_other + step - 1) / step;
    for (int64_t i = begin; i < end; i++) {
        int64_t other = i / pieces, from = i % pieces * step;
        int64_t channels = wf_least(w->per_other, w->d->o - other * w->per_other);
        int rc = place(w, other, w->partial + (size_t)(other * partials(w)) * w->part_bytes,
                       partials(w), from, wf_least(from + step, channels));
        if (rc)
            fail(w, rc);
    }
    wf_dnnl_leave(saved);
}

/* Cuts each sample into pieces of rows, as even as can be: a power of two, `most` at most. */
static void cut_rows(conv_job *w, int64_t most)
{
    const wf_conv_desc *d = w->d;
    int64_t bands = 1;
    while (2 * bands <= most && 2 * bands <= d->oh)
        bands *= 2;
    w->per_band = (d->oh + bands - 1) / bands;
    w->bands = (d->oh + w->per_band - 1) / w->per_band;
    /* No piece may be less high than the filter, as no problem that oneDNN is asked may. */
    for (int64_t i = 0; i < w->bands; i++)
        if (task_key(w, BACKWARD_WEIGHT, i, 0).v[H] < d->kh) {
            w->bands = 1;
            return;
        }
}

/*
 * Output channels first: they need no partial sums. Samples only for the tasks still missing. But a task of some output
 * channels copies its part of ddst, and in bf16 transposes the image again: where that is more than partial sums are,
 * samples are cut, or rows where these are few. (Zen 4, one primitive's time over that of tasks, by channels and by rows:
 * 7 x 7 of 3 to 64 channels 0.89 and 0.98, in bf16 0.86 and 1.0. Large partial sums, 256 channels of 14 x 14: four tasks of
 * channels 0.98, eight with halves of the samples 0.95; in bf16 0.92 and 0.88.)
 */
static void cut_sums(conv_job *w, bool rows)
{
    const wf_conv_desc *d = w->d;
    cut(w, d->o, d->groups == 1 ? channel_unit(d->o) : d->o);
    const int64_t unit = channel_unit(d->o);
    int64_t blocks = 1, most = TASKS;
    if (d->groups == 1 && w->per_n == 1) {
        const double terms = (double)(d->o * d->c) * (double)(d->kh * d->kw);
        const double cheap = (double)d->n * (double)d->o * (double)(d->oh * d->ow) / (2 * terms);
        most = cheap < (double)TASKS ? (int64_t)cheap : TASKS;
        blocks = wf_least(TASKS, (d->o + unit - 1) / unit);
        if (most < blocks) {
            const int64_t missing = (FEW_TASKS + blocks - 1) / blocks;
            most = most > missing ? most : missing;
        } else {
            blocks = 1;
            const double worth = terms * (double)(d->oh * d->ow) / MIN_TASK;
            const int64_t pieces = wf_least(most, FEW_TASKS) / d->n;
            if (rows && d->n < FEW_TASKS && d->dilation[0] == 1)
                cut_rows(w, worth < (double)pieces ? (int64_t)worth : pieces);
        }
    }
    w->per_other = (d->o + blocks - 1) / blocks;
    w->per_other = blocks > 1 ? (w->per_other + 15) / 16 * 16 : w->per_other;
    w->others = (d->o + w->per_other - 1) / w->per_other;
    most = wf_least(most, (TASKS + w->others - 1) / w->others);
    const int64_t parts = most < 1 ? 1 : wf_least(most, w->chunks_n);
    w->per_n = (d->n + parts - 1) / parts;
    w->chunks_n = (d->n + w->per_n - 1) / w->per_n;
}

int wf_dnnl_conv_backward_weight(const wf_conv_desc *d, const void *src, const void *ddst,
                                 void *dweight)
{
    conv_job w = {.src = src, .dst = ddst, .out = dweight, .recipe = &weight_recipe};
    int rc = start(&w, d);
    if (rc)
        return rc;
    cut_sums(&w, true);
    rc = prepare(&w, BACKWARD_WEIGHT);
    if (rc == WF_GEMM_UNSUPPORTED && w.bands > 1) {
        release(&w);
        w = (conv_job){.src = src, .dst = ddst, .out = dweight, .recipe = &weight_recipe};
        start(&w, d);
        cut_sums(&w, false);
        rc = prepare(&w, BACKWARD_WEIGHT);
    }
    for (int i = 0; i < w.count && !rc; i++)
        w.part_bytes =
            w.variants[i].weight_bytes > w.part_bytes ? w.variants[i].weight_bytes : w.part_bytes;
    w.part_bytes = (w.part_bytes + 63) & ~(size_t)63;
    if (!rc && partials(&w) > 1) {
        w.partial = wf_scratch(w.part_bytes * (size_t)(partials(&w) * w.others));
        rc = w.partial ? WF_GEMM_OK : WF_GEMM_NOMEM;
    }
    if (!rc) {
        wf_parallel_for(partials(&w) * w.others, 1, weight_task, &w);
        if (w.partial)
            wf_parallel_for(w.others * ((w.per_other + placed_step(&w) - 1) / placed_step(&w)), 1,
                            sum_task, &w);
        rc = atomic_load_explicit(&w.rc, memory_order_relaxed);
    }
    release(&w);
    return rc;
}
