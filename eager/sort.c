/*
 * eager/sort.c -- sort and topk along one axis.
 *
 * Values become unsigned keys that order like them (NaN greatest, -0 equal to +0; complemented for
 * descending order, which puts NaN first), keys are sorted with their positions, and the values are
 * fetched by position, so that every bit of them survives.
 *
 * Invariants: the order is stable (equal values keep their positions' order, descending too), a row
 * is sorted by one task, and the result depends on nothing but the values.
 */
#include <stdatomic.h>

#include "eager/dense.h"

/* A key and the position it came from; 8 bytes for types up to 4 bytes, 16 for the others. */
typedef struct pair32 {
    uint32_t key, at;
} pair32;
typedef struct pair64 {
    uint64_t key, at;
} pair64;

typedef struct sort_args {
    const wf_view *x;
    wf_view *values, *indices;
    int axis;
    int64_t n, k;         /* extent of the axis, results along it */
    int64_t in, out, pos; /* strides along the axis: operand, values, indices */
    int descending, wide;
    size_t size;
    _Atomic int failed;
} sort_args;

/* -- keys ------------------------------------------------------------------------------------------ */
static inline uint64_t key_of_f64(uint64_t u)
{
    if ((u & INT64_MAX) > 0x7FF0000000000000u) {
        return UINT64_MAX;
    }
    if (u == 0x8000000000000000u) {
        u = 0;
    }
    return u & 0x8000000000000000u ? ~u : u | 0x8000000000000000u;
}

/* Of halves: 16 bits, from `inf` on NaN. Without branches, which loops do by vectors. */
static inline uint32_t key_of_half(uint16_t u, uint16_t inf)
{
    const uint16_t w = u == 0x8000u ? 0 : u;
    const uint16_t order = w ^ (uint16_t)((int16_t)w >> 15 | 0x8000);
    return (u & 0x7FFFu) > inf ? UINT16_MAX : order;
}
enum { INF_F16 = 0x7C00, INF_BF16 = 0x7F80 };

static inline uint32_t key_of_f32(uint32_t u)
{
    const uint32_t w = u == 0x80000000u ? 0 : u;
    const uint32_t order = w ^ ((uint32_t)((int32_t)w >> 31) | 0x80000000u);
    return (u & 0x7FFFFFFFu) > 0x7F800000u ? UINT32_MAX : order;
}

/* Those of n values, `step` bytes apart. */
static void keys32(int dt, const char *in, int64_t step, int64_t n, uint32_t flip, uint32_t *key)
{
#define KEYS(type, of_v)                                                                           \
    for (int64_t i = 0; i < n; i++) {                                                              \
        type v;                                                                                    \
        memcpy(&v, in + i * step, sizeof v);                                                       \
        key[i] = (uint32_t)(of_v) ^ flip;                                                          \
    }                                                                                              \
    return
    const uint32_t sign = 1u << (8 * wf_dtype_size(dt) - 1);
    const uint16_t inf = dt == WEFT_F16 ? INF_F16 : INF_BF16;
    switch (dt) {
    case WEFT_BOOL:
    case WEFT_U8:
        KEYS(uint8_t, v);
    case WEFT_I8:
        KEYS(uint8_t, v ^ sign);
    case WEFT_I16:
        KEYS(uint16_t, v ^ sign);
    case WEFT_I32:
        KEYS(uint32_t, v ^ sign);
    case WEFT_BF16:
    case WEFT_F16:
        KEYS(uint16_t, key_of_half(v, inf));
    default:
        if (step == sizeof(float)) { /* by vectors */
            step = sizeof(float);
            KEYS(uint32_t, key_of_f32(v));
        }
        KEYS(uint32_t, key_of_f32(v));
    }
#undef KEYS
}

static inline uint64_t key64(int dt, const void *p)
{
    if (wf_dtype_size(dt) <= 4) {
        uint32_t key;
        keys32(dt, p, 0, 1, 0, &key);
        return key;
    }
    uint64_t u;
    memcpy(&u, p, 8);
    return dt == WEFT_I64 ? u ^ 0x8000000000000000u : key_of_f64(u);
}

enum { MANY = 4096 /* keys that are counted in two tables */ };
enum { SCAN = 32 /* keys that are looked at together for one to keep */ };

/* -- sorting pairs --------------------------------------------------------------------------------- */
/* Insertion for short rows; else byte-wise radix from the lowest byte, of what keys are above the least of them: numbers of few
 * values have few bytes, whatever their signs. The sorted pairs are in the returned one of the two buffers. */
#define SORT_PAIRS(pair, key_type, bytes)                                                          \
    static void insert_##pair(pair *p, int64_t n)                                                  \
    {                                                                                              \
        for (int64_t i = 1; i < n; i++) {                                                          \
            pair x = p[i];                                                                         \
            int64_t j = i;                                                                         \
            for (; j > 0 && p[j - 1].key > x.key; j--) {                                           \
                p[j] = p[j - 1];                                                                   \
            }                                                                                      \
            p[j] = x;                                                                              \
        }                                                                                          \
    }                                                                                              \
    static pair *radix_##pair(pair *p, pair *other, const key_type *key, int64_t n)                \
    {                                                                                              \
        const int odd = n >= MANY;                                                                 \
        int64_t count[bytes][256];                                                                 \
        key_type least = key[0], most = key[0];                                                    \
        for (int64_t i = 1; i < n; i++) {                                                          \
            least = key[i] < least ? key[i] : least;                                               \
            most = key[i] > most ? key[i] : most;                                                  \
        }                                                                                          \
        most -= least;                                                                             \
        const bool all = most >> (8 * bytes - 8); /* bytes are looked at together */               \
        memset(count, 0, sizeof count);                                                            \
        for (int64_t i = 0; all && i < n; i++) {                                                   \
            _Pragma("GCC unroll 8") for (int b = 0; b < bytes; b++)                                \
            {                                                                                      \
                count[b][((key[i] - least) >> (8 * b)) & 0xFF]++;                                  \
            }                                                                                      \
        }                                                                                          \
        for (int shift = 0; shift == 0 || (shift < 8 * bytes && most >> shift); shift += 8) {      \
            int64_t *const to = count[all ? shift / 8 : 0], at = 0;                                \
            if (!all) { /* every other one in a table of its own: equal bytes wait */              \
                memset(count, 0, 2 * sizeof *count);                                               \
                for (int64_t i = 0; i < n; i++) {                                                  \
                    count[i & odd][((key[i] - least) >> shift) & 0xFF]++;                          \
                }                                                                                  \
            }                                                                                      \
            for (int v = 0; v < 256; v++) {                                                        \
                const int64_t c = to[v] + (all ? 0 : count[1][v]);                                 \
                to[v] = at;                                                                        \
                at += c;                                                                           \
            }                                                                                      \
            if (shift == 0) {                                                                      \
                for (int64_t i = 0; i < n; i++) {                                                  \
                    const key_type k = key[i] - least;                                             \
                    p[to[k & 0xFF]++] = (pair){.key = k, .at = (key_type)i};                       \
                }                                                                                  \
                continue;                                                                          \
            }                                                                                      \
            for (int64_t i = 0; i < n; i++) {                                                      \
                other[to[(p[i].key >> shift) & 0xFF]++] = p[i];                                    \
            }                                                                                      \
            pair *t = p;                                                                           \
            p = other;                                                                             \
            other = t;                                                                             \
        }                                                                                          \
        return p;                                                                                  \
    }                                                                                              \
    /* The k smallest by (key, position) to the front: a heap whose root is the largest kept. */   \
    static inline bool less_##pair(pair a, pair b)                                                 \
    {                                                                                              \
        return a.key < b.key || (a.key == b.key && a.at < b.at);                                   \
    }                                                                                              \
    static void sift_##pair(pair *p, int64_t i, int64_t k)                                         \
    {                                                                                              \
        pair x = p[i];                                                                             \
        for (int64_t c; (c = 2 * i + 1) < k; i = c) {                                              \
            c += c + 1 < k && less_##pair(p[c], p[c + 1]);                                         \
            if (!less_##pair(x, p[c])) {                                                           \
                break;                                                                             \
            }                                                                                      \
            p[i] = p[c];                                                                           \
        }                                                                                          \
        p[i] = x;                                                                                  \
    }                                                                                              \
    static void keep_##pair(pair *p, const key_type *key, int64_t n, int64_t k)                    \
    {                                                                                              \
        for (int64_t i = 0; i < k; i++) {                                                          \
            p[i] = (pair){.key = key[i], .at = (key_type)i};                                       \
        }                                                                                          \
        for (int64_t i = k / 2 - 1; i >= 0; i--) {                                                 \
            sift_##pair(p, i, k);                                                                  \
        }                                                                                          \
        /* Keys come in the order of their positions: of equal ones those that are kept stay. */   \
        for (int64_t i = k; i < n;) {                                                              \
            const int64_t end = n - i < SCAN ? n : i + SCAN;                                       \
            key_type some = 0;                                                                     \
            if (end - i == SCAN) {                                                                 \
                for (int64_t j = 0; j < SCAN; j++) {                                               \
                    some |= (key_type) - (key[i + j] < p[0].key);                                  \
                }                                                                                  \
                if (!some) {                                                                       \
                    i = end;                                                                       \
                    continue;                                                                      \
                }                                                                                  \
            }                                                                                      \
            for (; i < end; i++) {                                                                 \
                if (key[i] < p[0].key) {                                                           \
                    p[0] = (pair){.key = key[i], .at = (key_type)i};                               \
                    sift_##pair(p, 0, k);                                                          \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        for (int64_t m = k - 1; m > 0; m--) { /* heap to ascending order */                        \
            pair t = p[0];                                                                         \
            p[0] = p[m];                                                                           \
            p[m] = t;                                                                              \
            sift_##pair(p, 0, m);                                                                  \
        }                                                                                          \
    }                                                                                              \
    /* Of n keys: p has room for n pairs, and so has `other`. */                                   \
    static pair *order_##pair(pair *p, pair *other, const key_type *key, int64_t n, int64_t k)     \
    {                                                                                              \
        if (k < n && k <= n / 8) {                                                                 \
            keep_##pair(p, key, n, k);                                                             \
            return p;                                                                              \
        }                                                                                          \
        if (n > 48) {                                                                              \
            return radix_##pair(p, other, key, n);                                                 \
        }                                                                                          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            p[i] = (pair){.key = key[i], .at = (key_type)i};                                       \
        }                                                                                          \
        insert_##pair(p, n);                                                                       \
        return p;                                                                                  \
    }
SORT_PAIRS(pair32, uint32_t, 4)
SORT_PAIRS(pair64, uint64_t, 8)
#undef SORT_PAIRS

/* -- rows ------------------------------------------------------------------------------------------ */
/* Row-major index r over the axes other than `axis`, through strides. */
static int64_t row_offset(int64_t r, const sort_args *a, const int64_t *strides)
{
    const int64_t *dims = a->x->dims;
    int64_t off = 0;
    for (int d = a->x->rank - 1; d >= 0; d--) {
        if (d != a->axis) {
            off += r % dims[d] * strides[d];
            r /= dims[d];
        }
    }
    return off;
}

static void store_row(const sort_args *a, const char *in, int64_t r, const void *pairs)
{
    int64_t size = (int64_t)a->size;
    char *out = (char *)a->values->data + row_offset(r, a, a->values->strides) * size;
    int64_t *pos = (int64_t *)a->indices->data + row_offset(r, a, a->indices->strides);
    const int64_t k = a->k, in_step = a->in, out_step = a->out, pos_step = a->pos;
    const bool wide = a->wide;
#define FETCH(type)                                                                                \
    for (int64_t i = 0; i < k; i++) {                                                              \
        const int64_t at = wide ? (int64_t)((const pair64 *)pairs)[i].at                           \
                                : (int64_t)((const pair32 *)pairs)[i].at;                          \
        ((type *)(void *)out)[i * out_step] = ((const type *)(const void *)in)[at * in_step];      \
        pos[i * pos_step] = at;                                                                    \
    }
    WF_BY_SIZE(a->size, FETCH)
#undef FETCH
}

static void sort_rows(void *arg, int64_t begin, int64_t end)
{
    sort_args *a = arg;
    size_t pair = a->wide ? sizeof(pair64) : sizeof(pair32);
    size_t bytes = wf_scratch_bytes(a->n, 2 * pair + pair / 2);
    char *p = bytes ? wf_scratch(bytes) : NULL;
    if (!p) {
        atomic_store(&a->failed, 1);
        return;
    }
    char *other = p + (size_t)a->n * pair;
    void *keys = other + (size_t)a->n * pair;
    int dt = a->x->dtype;
    int64_t size = (int64_t)a->size;
    for (int64_t r = begin; r < end; r++) {
        const char *in = (const char *)a->x->data + row_offset(r, a, a->x->strides) * size;
        const int64_t step = a->in * size;
        if (a->wide) {
            const uint64_t flip = a->descending ? UINT64_MAX : 0;
            uint64_t *key = keys;
            for (int64_t i = 0; i < a->n; i++) {
                key[i] = key64(dt, in + i * step) ^ flip;
            }
            store_row(a, in, r,
                      order_pair64((pair64 *)(void *)p, (pair64 *)(void *)other, key, a->n, a->k));
        } else {
            keys32(dt, in, step, a->n, a->descending ? UINT32_MAX : 0, keys);
            store_row(a, in, r,
                      order_pair32((pair32 *)(void *)p, (pair32 *)(void *)other, keys, a->n, a->k));
        }
    }
    wf_scratch_free(p, bytes);
}

/* SORT and TOPK: topk is the front of the sort, descending unless the smallest are wanted. */
WF_EXEC_DECL(sort)
{
    int axis = (int)e->attr->ints[0];
    const wf_view *x = &e->src[0];
    int64_t total = wf_view_numel(&e->dst[0]);
    if (total == 0) {
        return 0;
    }
    int flag = (e->attr->flags & WF_FLAG_DESCENDING) != 0;
    sort_args a = {.x = x,
                   .values = &e->dst[0],
                   .indices = &e->dst[1],
                   .axis = axis,
                   .n = x->dims[axis],
                   .k = e->dst[0].dims[axis],
                   .in = x->strides[axis],
                   .out = e->dst[0].strides[axis],
                   .pos = e->dst[1].strides[axis],
                   .descending = e->op == WF_OP_TOPK ? !flag : flag,
                   .size = wf_dtype_size(x->dtype)};
    a.wide = a.size == 8 || a.n > UINT32_MAX;
    wf_parallel_for(total / a.k, wf_row_grain(a.n * 8), sort_rows, &a);
    if (atomic_load(&a.failed)) {
        return wf_no_memory(e->why, wf_scratch_bytes(a.n, 5 * sizeof(uint64_t)));
    }
    return 0;
}
