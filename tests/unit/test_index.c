/*
 * tests/unit/test_index.c -- gathers, scatters, one_hot, sort and topk against plain loops.
 *
 * The references add in index order in the compute type, so results are compared bit for bit.
 *
 * ctest: threads optimised
 */
#include "row_case.h"
#include "tests/support/effort.h"

WF_EXEC_DECL(take_along);
WF_EXEC_DECL(index_select);
WF_EXEC_DECL(scatter_add);
WF_EXEC_DECL(index_add);
WF_EXEC_DECL(one_hot);
WF_EXEC_DECL(sort);

enum { TRIALS = 60 };

/* Valid indices into an extent, negative ones among them. */
static tensor random_indices(int rank, const int64_t *dims, int64_t extent, bool strided)
{
    tensor t = make(draw() & 1 ? WEFT_I64 : WEFT_I32, rank, dims, strided);
    int64_t n = wf_view_numel(&t.v);
    for (int64_t i = 0; i < n; i++) {
        put(&t, i, (double)between(-extent, extent - 1));
    }
    return t;
}
static int64_t index_at(const tensor *t, int64_t i, int64_t extent)
{
    int64_t x = (int64_t)get(t, i);
    return x < 0 ? x + extent : x;
}

static void check_index_select(int dt, int rank, const int64_t *dims, int64_t axis, int irank,
                               const int64_t *idims, int mode)
{
    int64_t index[16], to[8];
    tensor src[2] = {random_tensor(dt, rank, dims, mode & 1),
                     random_indices(irank, idims, dims[axis], mode & 2)};
    tensor dst;
    must_run(wf_exec_index_select, WF_OP_INDEX_SELECT, &(wf_attr){INTS(axis)}, 2, src, &dst);
    int64_t n = wf_view_numel(&dst.v);
    cr_assert_eq(dst.v.rank, rank - 1 + irank);
    for (int64_t i = 0; i < n; i++) {
        unravel(i, &dst.v, index);
        memcpy(to, index, (size_t)axis * 8);
        memcpy(to + axis + 1, index + axis + irank, (size_t)(rank - axis - 1) * 8);
        int64_t at_i =
            load(at_index(&src[1].v, index + axis), src[1].v.dtype) < 0
                ? (int64_t)load(at_index(&src[1].v, index + axis), src[1].v.dtype) + dims[axis]
                : (int64_t)load(at_index(&src[1].v, index + axis), src[1].v.dtype);
        to[axis] = at_i;
        cr_assert(memcmp(at(&dst.v, i), at_index(&src[0].v, to), wf_dtype_size(dt)) == 0);
    }
    drop(&src[0]);
    drop(&src[1]);
    drop(&dst);
}

Test(index, index_select)
{
    for (int trial = 0; trial < (int)effort_of(TRIALS) * NTYPES; trial++) {
        int64_t dims[8], idims[8];
        int rank = random_dims(1, 4, dims), irank = random_dims(0, 2, idims);
        int64_t axis = between(0, rank - 1);
        dims[axis] += dims[axis] == 0;
        check_index_select(all_types[trial % NTYPES], rank, dims, axis, irank, idims, trial);
    }
    for (int k = 0; k < 4 * NTYPES; k++) { /* more along the last axis than go together */
        check_index_select(all_types[k / 4], 3, (int64_t[]){3, 5, 40}, 2, 1, (int64_t[]){600}, k);
    }
    check_index_select(WEFT_F32, 2, (int64_t[]){25, 500}, 1, 1, (int64_t[]){300}, 0);
    for (int k = 0; k < 12; k++) { /* slices in one piece: whole half lines, few and many, or not */
        static const int64_t inner[] = {8, 64, 128, 136, 16, 7};
        check_index_select(k & 1 ? WEFT_F32 : WEFT_BF16, 3, (int64_t[]){3, 21, inner[k / 2]}, 1, 1,
                           (int64_t[]){50}, k & 2);
    }
}

/* More of a row than go together; the first rows have no index that counts from the end. alone: rows of one index, which lie as one
 * row does. */
static void check_long_rows(int dt, int64_t axis, int64_t n, bool alone)
{
    const int64_t first = axis ? 5 : 7;
    const int64_t dims[2] = {alone  ? n
                             : axis ? first
                                    : 40,
                             axis ? 50 : n},
                  idims[2] = {alone ? n : first, alone ? 1 : n}, numel = idims[0] * idims[1];
    tensor src[2] = {random_tensor(dt, 2, dims, false), make(WEFT_I64, 2, idims, false)}, dst;
    int64_t *given = src[1].v.data, index[8];
    for (int64_t i = 0; i < numel; i++) {
        given[i] = between(i < (alone ? n / 2 : 2 * n) ? 0 : -dims[axis], dims[axis] - 1);
    }
    must_run(wf_exec_take_along, WF_OP_TAKE_ALONG, &(wf_attr){INTS(axis)}, 2, src, &dst);
    for (int64_t i = 0; i < numel; i++) {
        unravel(i, &dst.v, index);
        index[axis] = index_at(&src[1], i, dims[axis]);
        cr_assert(memcmp(at(&dst.v, i), at_index(&src[0].v, index), wf_dtype_size(dt)) == 0);
    }
    same_at_any_thread_count(wf_exec_take_along, WF_OP_TAKE_ALONG, &(wf_attr){INTS(axis)}, 2, src);
    drop(&dst);
    static const int64_t bad[] = {0, 1, 255, 256, 599};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        const int64_t place = (alone ? 0 : 3 * n) + bad[k] % n, was = given[place];
        char start[64];
        wf_why why;
        given[place] = k % 2 ? dims[axis] : -dims[axis] - 1;
        cr_assert_eq(run_row(wf_exec_take_along, WF_OP_TAKE_ALONG, &(wf_attr){INTS(axis)}, 2, src,
                             &dst, &why),
                     WEFT_EINDEX);
        snprintf(start, sizeof start, "index %" PRId64 " (element %" PRId64 " of", given[place],
                 place);
        cr_assert(strncmp(why.rule, start, strlen(start)) == 0, "%s: %s", start, why.rule);
        given[place] = was;
    }
    drop(&src[0]);
    drop(&src[1]);
}

Test(index, take_along_long_rows)
{
    static const int types[] = {WEFT_U8, WEFT_BF16, WEFT_F32, WEFT_F64};
    static const int64_t lengths[] = {31, 32, 256, 257, 600};
    for (int k = 0; k < 4 * 5 * 2; k++) {
        check_long_rows(types[k % 4], k / 4 % 2, lengths[k / 8], false);
    }
    for (int k = 0; k < 4 * 5; k++) {
        check_long_rows(types[k % 4], 1, lengths[k / 4], true);
    }
}

/* Of some trials: one index for all that lies off the axis, as a view that repeats it or in memory. */
static void repeat_indices(wf_view *v, int axis, int trial)
{
    for (int i = 0; i < v->rank && trial % 4 == 2; i++) {
        v->strides[i] = i == axis ? v->strides[i] : 0;
    }
    const int64_t inner = v->rank > 1 ? v->dims[v->rank - 1] : 1;
    for (int64_t i = 0; trial % 4 == 3 && axis < v->rank - 1 && i < wf_view_numel(v); i++) {
        memcpy(at(v, i), at(v, i / inner * inner), wf_dtype_size(v->dtype));
    }
}

Test(index, take_along)
{
    for (int trial = 0; trial < (int)effort_of(TRIALS) * NTYPES; trial++) {
        int dt = all_types[trial % NTYPES];
        int64_t dims[8], idims[8], index[8];
        int rank = random_dims(1, 4, dims);
        int64_t axis = between(0, rank - 1);
        dims[axis] += dims[axis] == 0;
        for (int i = 0; i < rank; i++) {
            idims[i] = i == axis                        ? between(0, 7)
                       : trial % 4 > 1 || between(0, 2) ? dims[i]
                                                        : between(0, dims[i]);
        }
        tensor src[2] = {random_tensor(dt, rank, dims, trial & 1),
                         random_indices(rank, idims, dims[axis], trial & 2)};
        repeat_indices(&src[1].v, (int)axis, trial);
        tensor dst;
        must_run(wf_exec_take_along, WF_OP_TAKE_ALONG, &(wf_attr){INTS(axis)}, 2, src, &dst);
        int64_t n = wf_view_numel(&dst.v);
        cr_assert_eq(n, wf_view_numel(&src[1].v));
        for (int64_t i = 0; i < n; i++) {
            unravel(i, &dst.v, index);
            index[axis] = index_at(&src[1], i, dims[axis]);
            cr_assert(memcmp(at(&dst.v, i), at_index(&src[0].v, index), wf_dtype_size(dt)) == 0);
        }
        drop(&src[0]);
        drop(&src[1]);
        drop(&dst);
    }
}

/* acc[to] += x in the compute type of dt; finish() rounds once. */
typedef struct sums {
    int dt;
    float *f;
    tensor out;
} sums;
static sums sums_of(const tensor *base)
{
    sums s = {.dt = base->v.dtype, .out = make(base->v.dtype, base->v.rank, base->v.dims, false)};
    int64_t n = wf_view_numel(&base->v);
    s.f = calloc((size_t)n + 1, sizeof *s.f);
    for (int64_t i = 0; i < n; i++) {
        put(&s.out, i, get(base, i));
        s.f[i] = (float)get(base, i);
    }
    return s;
}
static void sums_add(sums *s, const int64_t *index, double x)
{
    char *p = at_index(&s->out.v, index);
    int64_t i = (p - (char *)s->out.v.data) / (int64_t)wf_dtype_size(s->dt);
    if (wf_dtype_compute(s->dt) == WEFT_F32) {
        s->f[i] += (float)x;
        store(p, s->dt, s->f[i]);
    } else {
        store(p, s->dt, load(p, s->dt) + x);
    }
}
static void sums_drop(sums *s)
{
    free(s->f);
    drop(&s->out);
}

static void check_scatter_add(int dt, int rank, const int64_t *dims, int64_t axis,
                              const int64_t *idims, int mode)
{
    int64_t index[8];
    tensor src[3] = {random_tensor(dt, rank, dims, mode & 1),
                     random_indices(rank, idims, dims[axis], mode & 2),
                     random_tensor(dt, rank, idims, mode & 4)};
    repeat_indices(&src[1].v, (int)axis, mode);
    if (wf_dtype_kind(dt) == 1) { /* the reference does not wrap */
        fill_ints(&src[0], 0, 3);
        fill_ints(&src[2], 0, 3);
    }
    tensor dst;
    must_run(wf_exec_scatter_add, WF_OP_SCATTER_ADD, &(wf_attr){INTS(axis)}, 3, src, &dst);
    sums want = sums_of(&src[0]);
    int64_t n = wf_view_numel(&src[1].v);
    for (int64_t i = 0; i < n; i++) {
        unravel(i, &src[1].v, index);
        index[axis] = index_at(&src[1], i, dims[axis]);
        sums_add(&want, index, get(&src[2], i));
    }
    assert_same_bits(&dst, &want.out, "scatter_add");
    for (int i = 0; i < 3; i++) {
        drop(&src[i]);
    }
    drop(&dst);
    sums_drop(&want);
}

Test(index, scatter_add_in_order)
{
    for (int trial = 0; trial < (int)effort_of(TRIALS) * NTYPES; trial++) {
        int64_t dims[8], idims[8];
        int rank = random_dims(1, 4, dims);
        int64_t axis = between(0, rank - 1);
        dims[axis] += dims[axis] == 0;
        for (int i = 0; i < rank; i++) {
            idims[i] = i == axis                        ? between(0, 9)
                       : trial % 4 < 2 && between(0, 2) ? dims[i]
                       : trial % 4 < 2                  ? between(0, dims[i])
                                                        : dims[i];
        }
        check_scatter_add(all_types[1 + trial % (NTYPES - 1)], rank, dims, axis, idims, trial);
    }
    /* Few elements of many halves; in the last two rows they are fewer than those of what they are added to. */
    static const int64_t few[][7] = {/* axis, extents, of the indices */
                                     {2, 3, 50, 320, 3, 40, 5}, {1, 9, 640, 3, 7, 20, 3},
                                     {0, 320, 9, 1, 10, 9, 1},  {0, 640, 7, 3, 20, 7, 3},
                                     {1, 7, 640, 3, 7, 20, 2},  {0, 640, 7, 3, 20, 5, 3}};
    for (int k = 0; k < 8 * (int)(sizeof few / sizeof *few); k++) {
        const int64_t *f = few[k / 8];
        check_scatter_add(k % 2 ? WEFT_BF16 : WEFT_F16, 3, f + 1, f[0], f + 4, k);
    }
}

enum { ALL_TO_THREE = 1 << 20 }; /* of a mode: no other places have indices */
static void check_index_add(int dt, int rank, const int64_t *dims, int64_t axis, int irank,
                            const int64_t *idims, int mode)
{
    int64_t vdims[16], index[16], to[8];
    memcpy(vdims, dims, (size_t)axis * 8);
    memcpy(vdims + axis, idims, (size_t)irank * 8);
    memcpy(vdims + axis + irank, dims + axis + 1, (size_t)(rank - axis - 1) * 8);
    tensor src[3] = {random_tensor(dt, rank, dims, mode & 1),
                     random_indices(irank, idims, dims[axis], mode & 2),
                     random_tensor(dt, rank - 1 + irank, vdims, mode & 4)};
    if (wf_dtype_kind(dt) == 1) {
        fill_ints(&src[0], 0, 3);
        fill_ints(&src[2], 0, 3);
    }
    if (mode & ALL_TO_THREE) {
        fill_ints(&src[1], 0, 3);
    }
    tensor dst;
    must_run(wf_exec_index_add, WF_OP_INDEX_ADD, &(wf_attr){INTS(axis)}, 3, src, &dst);
    sums want = sums_of(&src[0]);
    int64_t n = wf_view_numel(&src[2].v);
    for (int64_t i = 0; i < n; i++) {
        unravel(i, &src[2].v, index);
        memcpy(to, index, (size_t)axis * 8);
        memcpy(to + axis + 1, index + axis + irank, (size_t)(rank - axis - 1) * 8);
        int64_t k = (int64_t)load(at_index(&src[1].v, index + axis), src[1].v.dtype);
        to[axis] = k < 0 ? k + dims[axis] : k;
        sums_add(&want, to, get(&src[2], i));
    }
    assert_same_bits(&dst, &want.out, "index_add");
    same_at_any_thread_count(wf_exec_index_add, WF_OP_INDEX_ADD, &(wf_attr){INTS(axis)}, 3, src);
    for (int i = 0; i < 3; i++) {
        drop(&src[i]);
    }
    drop(&dst);
    sums_drop(&want);
}

Test(index, index_add_in_order)
{
    for (int trial = 0; trial < (int)effort_of(TRIALS) * NTYPES; trial++) {
        int64_t dims[8], idims[8];
        int rank = random_dims(1, 4, dims), irank = random_dims(0, 2, idims);
        int64_t axis = between(0, rank - 1);
        dims[axis] += dims[axis] == 0;
        check_index_add(all_types[1 + trial % (NTYPES - 1)], rank, dims, axis, irank, idims, trial);
    }
    /* An embedding's gradient, split into columns. */
    check_index_add(WEFT_F32, 2, (int64_t[]){50, 200}, 0, 2, (int64_t[]){8, 60}, 0);
    check_index_add(WEFT_BF16, 2, (int64_t[]){50, 136}, 0, 1, (int64_t[]){700}, 7);
    for (int k = 0; k < 8; k++) { /* halves a row at a time, some of them nobody's */
        check_index_add(k % 2 ? WEFT_BF16 : WEFT_F16, 3, (int64_t[]){3, 20, k < 4 ? 40 : 1030}, 1,
                        1, (int64_t[]){k < 6 ? 15 : 0}, 8 + k);
    }
    for (int k = 0; k < 4; k++) { /* few rows, of few elements */
        check_index_add(k % 2 ? WEFT_BF16 : WEFT_F16, 3, (int64_t[]){2, 640, 5}, 1, 1,
                        (int64_t[]){20}, k < 2 ? 3 : ALL_TO_THREE);
    }
    for (int k = 0; k < 16; k++) { /* few elements of many halves; at 33 more than few */
        const int64_t count = k < 12 ? 1000 : k < 14 ? 1 : 33, n = k < 12 ? 40000 + k : 1055;
        check_index_add(k % 2 ? WEFT_BF16 : WEFT_F16, 1, &n, 0, 1, &count,
                        k | (k / 2 % 2 ? ALL_TO_THREE : 0));
    }
    /* Along the last axis: rows by fours and the rest. */
    for (int k = 0; k < 8 * (NTYPES - 1); k++) {
        check_index_add(all_types[1 + k / 8], 3, (int64_t[]){2, 1 + k % 8, 40}, 2, 1,
                        (int64_t[]){600}, k);
    }
}

Test(index, one_hot)
{
    for (int trial = 0; trial < (int)effort_of(TRIALS) * NTYPES; trial++) {
        uint8_t dt = (uint8_t)all_types[trial % NTYPES];
        int64_t dims[8], classes = between(1, 9);
        int rank = random_dims(0, 3, dims);
        tensor src = random_indices(rank, dims, classes, trial & 1), dst;
        must_run(wf_exec_one_hot, WF_OP_ONE_HOT, &(wf_attr){.dtype = dt, DYN(classes)}, 1, &src,
                 &dst);
        int64_t n = wf_view_numel(&dst.v);
        for (int64_t i = 0; i < n; i++) {
            cr_assert_eq(get(&dst, i),
                         index_at(&src, i / classes, classes) == i % classes ? 1.0 : 0.0);
        }
        drop(&src);
        drop(&dst);
    }
}

/* NaN greatest, otherwise by value. */
static bool before(double a, double b)
{
    return isnan(b) ? !isnan(a) : a < b;
}

static void check_sort(const tensor *x, int64_t axis, int64_t k, bool topk, bool flag)
{
    bool descending = topk ? !flag : flag;
    wf_attr attr = {INTS(axis), .flags = flag ? 1 : 0};
    if (topk) {
        attr.n_dyn = 1;
        attr.dyn = &k;
    }
    tensor dst[2];
    must_run(wf_exec_sort, topk ? WF_OP_TOPK : WF_OP_SORT, &attr, 1, x, dst);
    int64_t index[8], rows = wf_view_numel(&x->v), n = x->v.dims[axis];
    rows = n ? rows / n : 0;
    int64_t *order = malloc((size_t)n * 8 + 8);
    wf_view outer = x->v;
    outer.dims[axis] = 1;
    for (int64_t r = 0; r < rows; r++) {
        unravel(r, &outer, index);
        for (int64_t i = 0; i < n; i++) { /* stable insertion sort of positions */
            int64_t j = i;
            index[axis] = i;
            double v = load(at_index(&x->v, index), x->v.dtype);
            for (; j > 0; j--) {
                index[axis] = order[j - 1];
                double u = load(at_index(&x->v, index), x->v.dtype);
                if (!(descending ? before(u, v) : before(v, u))) {
                    break;
                }
                order[j] = order[j - 1];
            }
            order[j] = i;
        }
        for (int64_t i = 0; i < k; i++) {
            index[axis] = i;
            int64_t pos = *(int64_t *)at_index(&dst[1].v, index);
            const void *have = at_index(&dst[0].v, index);
            cr_assert_eq(pos, order[i],
                         "row %" PRId64 ", result %" PRId64 ": position %" PRId64 ", not %" PRId64,
                         r, i, pos, order[i]);
            index[axis] = pos;
            cr_assert(memcmp(have, at_index(&x->v, index), wf_dtype_size(x->v.dtype)) == 0);
        }
    }
    free(order);
    drop(&dst[0]);
    drop(&dst[1]);
}

Test(index, sort_and_topk)
{
    const double special[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1.0, -1.0, 1e-40};
    for (int trial = 0; trial < (int)effort_of(TRIALS) * NTYPES; trial++) {
        int dt = all_types[trial % NTYPES];
        int64_t dims[8];
        int rank = random_dims(1, 3, dims);
        int64_t axis = between(0, rank - 1);
        dims[axis] = trial % 4 ? between(0, 12) : between(40, 300);
        tensor x = random_tensor(dt, rank, dims, trial & 1);
        if (wf_dtype_kind(dt) != 2) {
            fill_ints(&x, dt == WEFT_U8 || dt == WEFT_BOOL ? 0 : -9, dt == WEFT_BOOL ? 1 : 9);
        } else if (trial & 2) {
            for (int64_t i = 0, n = wf_view_numel(&x.v); i < n; i++) {
                put(&x, i, special[between(0, 7)]);
            }
        }
        check_sort(&x, axis, dims[axis], false, trial & 4);
        check_sort(&x, axis, between(0, dims[axis]), true, trial & 4);
        check_sort(&x, axis, dims[axis] / 16, true, trial & 4);
        drop(&x);
    }
    tensor wide = make1(WEFT_I64, 3);
    ((int64_t *)wide.mem)[0] = INT64_MAX;
    ((int64_t *)wide.mem)[1] = INT64_MIN;
    ((int64_t *)wide.mem)[2] = INT64_MAX - 1;
    tensor dst[2];
    must_run(wf_exec_sort, WF_OP_SORT, &(wf_attr){INTS(0)}, 1, &wide, dst);
    cr_assert_eq(((int64_t *)dst[1].mem)[0], 1);
    cr_assert_eq(((int64_t *)dst[1].mem)[1], 2);
    drop(&dst[0]);
    drop(&dst[1]);
    drop(&wide);
}

/* The whole order of a long line: each value once, in order, and of equal ones the earlier first. */
static void check_line(const tensor *x, bool descending)
{
    tensor dst[2];
    must_run(wf_exec_sort, WF_OP_SORT, &(wf_attr){INTS(0), .flags = descending}, 1, x, dst);
    const int64_t n = x->v.dims[0], *at = dst[1].v.data;
    const int64_t size = (int64_t)wf_dtype_size(x->v.dtype);
    const int dt = x->v.dtype;
    char *seen = calloc((size_t)n, 1);
    for (int64_t i = 0; i < n; i++) {
        const char *p = (const char *)x->v.data + at[i] * size;
        cr_assert(at[i] >= 0 && at[i] < n && !seen[at[i]]++, "position %d", (int)at[i]);
        cr_assert(memcmp((const char *)dst[0].v.data + i * size, p, (size_t)size) == 0);
        if (i == 0)
            continue;
        const char *q = (const char *)x->v.data + at[i - 1] * size;
        int64_t a = 0, b = 0; /* of i64 a double is not enough */
        double u = load(q, dt), v = load(p, dt);
        if (dt == WEFT_I64) {
            memcpy(&a, q, 8), memcpy(&b, p, 8);
            u = a > b, v = a < b;
        }
        cr_assert(!(descending ? before(u, v) : before(v, u)), "%s at %d", wf_dtype_name(dt),
                  (int)i);
        cr_assert(before(u, v) || before(v, u) || at[i - 1] < at[i], "%s: equal ones at %d",
                  wf_dtype_name(dt), (int)i);
    }
    free(seen);
    drop(&dst[0]);
    drop(&dst[1]);
}

/* Keys of any number of bytes above the least of them, of one table and of two; every half. */
Test(index, sorts_of_every_range)
{
    static const int types[] = {WEFT_I64, WEFT_I32, WEFT_I16, WEFT_U8, WEFT_F16, WEFT_BF16};
    for (int t = 0; t < (int)(sizeof types / sizeof *types); t++) {
        const int bits = 8 * (int)wf_dtype_size(types[t]);
        for (int range = 0; range <= bits; range += 4)
            for (int64_t n = 60; n < 7000; n += 6013) {
                tensor x = make1(types[t], n);
                const uint64_t from = (uint64_t)between(INT64_MIN / 2, INT64_MAX / 2);
                for (int64_t i = 0; i < n; i++) {
                    const uint64_t v = from + ((uint64_t)between(0, INT64_MAX) &
                                               (((uint64_t)1 << range % 64) - 1));
                    const uint64_t far = range == bits && i % 3 ? ~v : v;
                    memcpy((char *)x.v.data + i * (bits / 8), &far, (size_t)bits / 8);
                }
                check_line(&x, n & 1);
                check_line(&x, range & 4);
                drop(&x);
            }
    }
    for (int t = 4; t < 6; t++) {
        tensor all = make1(types[t], 1 << 16);
        for (int i = 0; i < 1 << 16; i++)
            ((uint16_t *)all.v.data)[i] = (uint16_t)(i * 40503);
        check_line(&all, false);
        check_line(&all, true);
        drop(&all);
    }
}

Test(index, thread_counts)
{
    const int64_t dims[2] = {700, 130};
    tensor src[3] = {random_tensor(WEFT_F32, 2, dims, true), random_indices(2, dims, 130, false),
                     random_tensor(WEFT_F32, 2, dims, false)};
    same_at_any_thread_count(wf_exec_take_along, WF_OP_TAKE_ALONG, &(wf_attr){INTS(1)}, 2, src);
    same_at_any_thread_count(wf_exec_index_select, WF_OP_INDEX_SELECT, &(wf_attr){INTS(0)}, 2, src);
    same_at_any_thread_count(wf_exec_scatter_add, WF_OP_SCATTER_ADD, &(wf_attr){INTS(0)}, 3, src);
    same_at_any_thread_count(wf_exec_scatter_add, WF_OP_SCATTER_ADD, &(wf_attr){INTS(1)}, 3, src);
    same_at_any_thread_count(wf_exec_sort, WF_OP_SORT, &(wf_attr){INTS(0)}, 1, src);
    same_at_any_thread_count(wf_exec_one_hot, WF_OP_ONE_HOT,
                             &(wf_attr){.dtype = WEFT_F16, DYN(130)}, 1, &src[1]);
    for (int i = 0; i < 3; i++) {
        drop(&src[i]);
    }
}

/* Along the last axis pieces of few rows, or of one, are shared, too: their edges lie inside rows and between. */
Test(index, few_long_rows)
{
    static const int64_t dims[][2] = {{1, 40000}, {3, 5000}, {16, 700}, {17, 257}, {40, 1000}};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        const int64_t *d = dims[i], more = 2 * d[1] + 1;
        for (int mode = 0; mode < 4; mode++) {
            check_index_select(mode & 1 ? WEFT_F32 : WEFT_U8, 2, d, 1, 1, &more, mode);
        }
        tensor src[2] = {random_tensor(WEFT_F32, 2, d, false),
                         random_indices(1, &more, d[1], false)};
        same_at_any_thread_count(wf_exec_index_select, WF_OP_INDEX_SELECT, &(wf_attr){INTS(1)}, 2,
                                 src);
        drop(&src[1]);
        src[1] = random_indices(2, d, d[1], false);
        same_at_any_thread_count(wf_exec_take_along, WF_OP_TAKE_ALONG, &(wf_attr){INTS(1)}, 2, src);
        drop(&src[0]);
        drop(&src[1]);
    }
}

/* The sentence names the first bad index in row-major order, at any thread count. */
Test(index, bad_indices)
{
    const int64_t dims[2] = {9, 4}, many = 100000;
    static const int counts[] = {1, 2, 3, 7};
    tensor src[3] = {random_tensor(WEFT_F32, 2, dims, false), random_indices(1, &many, 9, false)};
    put(&src[1], 70000, 9);
    put(&src[1], 70001, -10);
    put(&src[1], 99999, 11);
    tensor dst[2];
    wf_why why;
    for (int c = 0; c < 4; c++) {
        wf_set_num_threads(counts[c]);
        int code = run_row(wf_exec_index_select, WF_OP_INDEX_SELECT, &(wf_attr){INTS(0)}, 2, src,
                           dst, &why);
        cr_assert_eq(code, WEFT_EINDEX);
        cr_assert_str_eq(why.rule,
                         "index 9 (element 70000 of the indices) is outside axis 0 of extent 9");
        cr_assert(strstr(why.hint, "0 to 8"));
    }
    put(&src[1], 70000, -10);
    int code = run_row(wf_exec_one_hot, WF_OP_ONE_HOT, &(wf_attr){DYN(9)}, 1, &src[1], dst, &why);
    cr_assert_eq(code, WEFT_EINDEX);
    cr_assert(strstr(why.rule, "index -10 (element 70000"));
    const int64_t vdims[2] = {many, 4}, none[2] = {0, 4};
    src[2] = random_tensor(WEFT_F32, 2, vdims, false);
    code = run_row(wf_exec_index_add, WF_OP_INDEX_ADD, &(wf_attr){INTS(0)}, 3, src, dst, &why);
    cr_assert_eq(code, WEFT_EINDEX);
    drop(&src[0]);
    src[0] = random_tensor(WEFT_F32, 2, none, false);
    code =
        run_row(wf_exec_index_select, WF_OP_INDEX_SELECT, &(wf_attr){INTS(0)}, 2, src, dst, &why);
    cr_assert_eq(code, WEFT_EINDEX);
    cr_assert(strstr(why.hint, "no index is valid"));
    for (int i = 0; i < 3; i++) {
        drop(&src[i]);
    }
}

/* One bad index among good ones, first and last and at the ends of what is looked at together; what is furthest out, too. */
Test(index, one_bad_index)
{
    static const int64_t counts[] = {1, 2, 255, 256, 257, 511, 512, 600, 16384, 16385, 40000};
    static const int64_t bad[] = {9, -10, INT64_MAX, INT64_MIN, INT64_MAX - 8, INT64_MIN + 9};
    const int64_t nine = 9;
    tensor src[2] = {random_tensor(WEFT_F32, 1, &nine, false)}, dst;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        const int64_t n = counts[c], places[] = {0, n / 2, n - 1, (n - 1) / 256 * 256};
        src[1] = make(WEFT_I64, 1, &n, false);
        int64_t *index = src[1].v.data;
        for (int64_t i = 0; i < n; i++) {
            index[i] = between(-9, 8);
        }
        for (int k = 0; k < 4 * 6; k++) {
            const int64_t at = places[k / 6], was = index[at];
            char start[64];
            wf_why why;
            index[at] = bad[k % 6];
            const int code = run_row(wf_exec_index_select, WF_OP_INDEX_SELECT, &(wf_attr){INTS(0)},
                                     2, src, &dst, &why);
            cr_assert_eq(code, WEFT_EINDEX);
            snprintf(start, sizeof start, "index %" PRId64 " (element %" PRId64 " of", index[at],
                     at);
            cr_assert(strncmp(why.rule, start, strlen(start)) == 0, "%s: %s", start, why.rule);
            index[at] = was;
        }
        must_run(wf_exec_index_select, WF_OP_INDEX_SELECT, &(wf_attr){INTS(0)}, 2, src, &dst);
        drop(&dst);
        drop(&src[1]);
    }
    drop(&src[0]);
}

Test(index, refusals)
{
    wf_type m = TYPE(WEFT_F32, 3, 4), i = TYPE(WEFT_I64, 3, 4), row = TYPE(WEFT_I32, 7);
    wf_attr a0 = {INTS(0)};
    must_refuse(WF_OP_TAKE_ALONG, &a0, 2, (wf_type[]){m, m}, WEFT_EDTYPE,
                "i64 or i32; the second operand is f32");
    must_refuse(WF_OP_TAKE_ALONG, &a0, 2, (wf_type[]){m, row}, WEFT_ESHAPE, "rank 1");
    must_refuse(WF_OP_TAKE_ALONG, &a0, 2, (wf_type[]){m, TYPE(WEFT_I64, 3, 5)}, WEFT_ESHAPE,
                "axis 1");
    must_refuse(WF_OP_TAKE_ALONG, &(wf_attr){INTS(-1)}, 2, (wf_type[]){m, i}, WEFT_ESHAPE,
                "axis -1");
    must_refuse(WF_OP_INDEX_SELECT, &a0, 2, (wf_type[]){m, TYPE(WEFT_U8, 2)}, WEFT_EDTYPE, "u8");
    wf_type deep = {.dtype = WEFT_I64, .rank = 16};
    for (int d = 0; d < 16; d++) {
        deep.dims[d] = 1;
    }
    must_refuse(WF_OP_INDEX_SELECT, &a0, 2, (wf_type[]){m, deep}, WEFT_ESHAPE, "rank 17");
    must_refuse(WF_OP_ONE_HOT, &(wf_attr){DYN(3)}, 1, &deep, WEFT_ESHAPE, "rank 17");
    must_refuse(WF_OP_ONE_HOT, &(wf_attr){DYN(-3)}, 1, &row, WEFT_ESHAPE, "negative");
    must_refuse(WF_OP_SCATTER_ADD, &a0, 3, (wf_type[]){m, i, TYPE(WEFT_F32, 3, 3)}, WEFT_ESHAPE,
                "axis 1");
    must_refuse(WF_OP_SCATTER_ADD, &a0, 3, (wf_type[]){m, i, TYPE(WEFT_F64, 3, 4)}, WEFT_EDTYPE,
                "f64");
    must_refuse(WF_OP_SCATTER_ADD, &a0, 3,
                (wf_type[]){TYPE(WEFT_BOOL, 3, 4), i, TYPE(WEFT_BOOL, 3, 4)}, WEFT_EDTYPE, "bool");
    must_refuse(WF_OP_INDEX_ADD, &a0, 3, (wf_type[]){m, row, TYPE(WEFT_F32, 7, 5)}, WEFT_ESHAPE,
                "axis 1");
    must_refuse(WF_OP_INDEX_ADD, &a0, 3, (wf_type[]){m, row, TYPE(WEFT_F32, 7)}, WEFT_ESHAPE,
                "rank 1");
    must_refuse(WF_OP_SORT, &(wf_attr){INTS(2)}, 1, &m, WEFT_ESHAPE, "axis 2");
    must_refuse(WF_OP_TOPK, &(wf_attr){INTS(1), DYN(5)}, 1, &m, WEFT_ESHAPE, "k is 5");
    must_refuse(WF_OP_TOPK, &(wf_attr){INTS(1), DYN(-1)}, 1, &m, WEFT_ESHAPE, "k is -1");
    must_refuse(WF_OP_TAKE_ALONG, NULL, 2, (wf_type[]){m, i}, WEFT_EINVALID, "attributes");
    must_refuse(WF_OP_TAKE_ALONG, &a0, 1, &m, WEFT_EINVALID, "1 operands given");
}

/* Where one index is repeated for all that lies off the axis, a bad one is named as in the operand that was given. */
Test(index, a_bad_index_that_is_repeated)
{
    static const int64_t dims[2] = {4, 3}, idims[2] = {3, 3};
    tensor src[3] = {random_tensor(WEFT_F32, 2, dims, false), random_indices(2, idims, 4, false),
                     random_tensor(WEFT_F32, 2, idims, false)};
    for (int64_t i = 0; i < 9; i++)
        put(&src[1], i, i < 6 ? 1 : 9);
    for (int view = 0; view < 2; view++) {
        if (view) {
            src[1].v.strides[0] = 3; /* rows of one index, in memory or as a view of it */
            src[1].v.strides[1] = 0;
        }
        tensor dst;
        wf_why why;
        int code =
            run_row(wf_exec_take_along, WF_OP_TAKE_ALONG, &(wf_attr){INTS(0)}, 2, src, &dst, &why);
        cr_assert_eq(code, WEFT_EINDEX);
        cr_assert(strstr(why.rule, "index 9 (element 6 of the indices)"), "%s", why.rule);
        code = run_row(wf_exec_scatter_add, WF_OP_SCATTER_ADD, &(wf_attr){INTS(0)}, 3, src, &dst,
                       &why);
        cr_assert_eq(code, WEFT_EINDEX);
        cr_assert(strstr(why.rule, "index 9 (element 6 of the indices)"), "%s", why.rule);
    }
    for (int i = 0; i < 3; i++)
        drop(&src[i]);
}
