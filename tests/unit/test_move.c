/*
 * tests/unit/test_move.c -- movement, creation and views' inference against index arithmetic.
 *
 * ctest: threads
 */
#include "row_case.h"

WF_EXEC_DECL(concat);
WF_EXEC_DECL(pad);
WF_EXEC_DECL(pad_mode);
WF_EXEC_DECL(pad_mode_bwd);
WF_EXEC_DECL(roll);
WF_EXEC_DECL(tri);
WF_EXEC_DECL(slice_grad);
WF_EXEC_DECL(strided_grad);
WF_EXEC_DECL(update);
WF_EXEC_DECL(full);
WF_EXEC_DECL(arange);
WF_EXEC_DECL(linspace);
WF_EXEC_DECL(eye);
WF_EXEC_DECL(random);

enum { TRIALS = 60 };

static bool same_element(const tensor *a, const void *pa, const void *pb)
{
    return memcmp(pa, pb, wf_dtype_size(a->v.dtype)) == 0;
}

Test(move, concat)
{
    for (int trial = 0; trial < TRIALS * NTYPES; trial++) {
        int dt = all_types[trial % NTYPES];
        int64_t dims[8], index[8];
        int rank = random_dims(1, 4, dims);
        int64_t axis = between(0, rank - 1);
        tensor src[3], dst;
        for (int i = 0; i < 3; i++) {
            dims[axis] = between(0, 4);
            src[i] = random_tensor(dt, rank, dims, trial & 1);
        }
        must_run(wf_exec_concat, WF_OP_CONCAT, &(wf_attr){INTS(axis)}, 3, src, &dst);
        int64_t n = wf_view_numel(&dst.v);
        for (int64_t i = 0; i < n; i++) {
            unravel(i, &dst.v, index);
            int which = 0;
            while (index[axis] >= src[which].v.dims[axis]) {
                index[axis] -= src[which++].v.dims[axis];
            }
            cr_assert(same_element(&dst, at(&dst.v, i), at_index(&src[which].v, index)));
        }
        for (int i = 0; i < 3; i++) {
            drop(&src[i]);
        }
        drop(&dst);
    }
}

Test(move, pad_and_crop)
{
    for (int trial = 0; trial < TRIALS * NTYPES; trial++) {
        int dt = all_types[trial % NTYPES];
        int64_t dims[8], by[16], index[8];
        int rank = random_dims(0, 4, dims);
        for (int i = 0; i < rank; i++) {
            by[2 * i] = between(-8, 9);
            int64_t least = -dims[i] - by[2 * i];
            by[2 * i + 1] = between(least > -8 ? least : -8, least + 12 > 4 ? least + 12 : 4);
        }
        tensor src = random_tensor(dt, rank, dims, trial & 1), dst;
        wf_attr attr = {.n_dyn = (uint8_t)(2 * rank), .dyn = by, FLT(1)};
        must_run(wf_exec_pad, WF_OP_PAD, &attr, 1, &src, &dst);
        int64_t n = wf_view_numel(&dst.v);
        for (int64_t i = 0; i < n; i++) {
            unravel(i, &dst.v, index);
            bool inside = true;
            for (int d = 0; d < rank; d++) {
                index[d] -= by[2 * d];
                inside &= index[d] >= 0 && index[d] < dims[d];
            }
            if (inside) {
                cr_assert(same_element(&dst, at(&dst.v, i), at_index(&src.v, index)));
            } else {
                cr_assert_eq(get(&dst, i), 1.0, "padding holds %g", get(&dst, i));
            }
        }
        drop(&src);
        drop(&dst);
    }
}

/* Where what stands at `at` before, in or behind n elements comes from: reflect, replicate, circular. */
static int64_t stands_for(int mode, int64_t at, int64_t n)
{
    if (mode == 1) {
        return at < 0 ? 0 : at >= n ? n - 1 : at;
    }
    while (at < 0 || at >= n) {
        at = mode == 2 ? at + (at < 0 ? n : -n) : at < 0 ? -at : 2 * n - 2 - at;
    }
    return at;
}

/* The gradient: small whole numbers, so that every order of the sums is exact. */
static void check_unpadded(const wf_attr *attr, const tensor *x, const wf_view *y)
{
    int64_t index[8], n = wf_view_numel(y);
    tensor g = random_tensor(x->v.dtype, y->rank, y->dims, n & 1), dx;
    double *want = calloc((size_t)wf_view_numel(&x->v) + 1, sizeof *want);
    for (int64_t i = 0; i < n; i++) {
        int64_t to = 0;
        put(&g, i, (double)between(-4, 4));
        unravel(i, y, index);
        for (int d = 0; d < y->rank; d++) {
            int64_t e = x->v.dims[d], from = index[d] - attr->dyn[2 * d];
            to = to * e + stands_for((int)attr->ints[0], from, e);
        }
        want[to] += get(&g, i);
    }
    must_run(wf_exec_pad_mode_bwd, WF_OP_PAD_MODE_BWD, attr, 1, &g, &dx);
    for (int64_t i = 0; i < wf_view_numel(&dx.v); i++) {
        cr_assert(get(&dx, i) == want[i], "element %lld is %g, not %g", (long long)i, get(&dx, i),
                  want[i]);
    }
    free(want);
    drop(&g);
    drop(&dx);
}

Test(move, pad_mode)
{
    for (int trial = 0; trial < TRIALS * NTYPES; trial++) {
        int dt = all_types[trial % NTYPES];
        int64_t dims[8], by[16], index[8], mode = trial / NTYPES % 3;
        int rank = random_dims(0, 4, dims);
        for (int i = 0; i < rank; i++) {
            int64_t most = mode == 0 ? dims[i] - 1 : mode == 2 || dims[i] == 0 ? dims[i] : 5;
            by[2 * i] = between(0, 2) && most > 0 ? between(0, most) : 0;
            by[2 * i + 1] = between(0, 2) && most > 0 ? between(0, most) : 0;
        }
        tensor src = random_tensor(dt, rank, dims, trial & 1), dst;
        wf_attr attr = {.n_ints = 1, .ints = &mode, .n_dyn = (uint8_t)(2 * rank), .dyn = by};
        must_run(wf_exec_pad_mode, WF_OP_PAD_MODE, &attr, 1, &src, &dst);
        for (int64_t i = 0; i < wf_view_numel(&dst.v); i++) {
            unravel(i, &dst.v, index);
            for (int d = 0; d < rank; d++) {
                index[d] = stands_for((int)mode, index[d] - by[2 * d], dims[d]);
            }
            cr_assert(same_element(&dst, at(&dst.v, i), at_index(&src.v, index)));
        }
        if (wf_dtype_kind(dt) == 2) {
            check_unpadded(&attr, &src, &dst.v);
        }
        drop(&src);
        drop(&dst);
    }
}

Test(move, roll)
{
    for (int trial = 0; trial < TRIALS * NTYPES; trial++) {
        int dt = all_types[trial % NTYPES];
        int64_t dims[8], shifts[8], axes[8], index[8];
        int rank = random_dims(1, 4, dims), n_axes = 0;
        for (int i = 0; i < rank; i++) {
            if (between(0, 1) || (i == rank - 1 && n_axes == 0)) {
                shifts[n_axes] = between(-20, 20);
                axes[n_axes++] = i;
            }
        }
        tensor src = random_tensor(dt, rank, dims, trial & 1), dst;
        wf_attr attr = {
            .n_ints = (uint8_t)n_axes, .n_dyn = (uint8_t)n_axes, .ints = axes, .dyn = shifts};
        must_run(wf_exec_roll, WF_OP_ROLL, &attr, 1, &src, &dst);
        int64_t n = wf_view_numel(&src.v);
        for (int64_t i = 0; i < n; i++) {
            unravel(i, &src.v, index);
            for (int a = 0; a < n_axes; a++) {
                int64_t m = dims[axes[a]];
                index[axes[a]] = ((index[axes[a]] + shifts[a]) % m + m) % m;
            }
            cr_assert(same_element(&dst, at_index(&dst.v, index), at(&src.v, i)));
        }
        drop(&src);
        drop(&dst);
    }
}

Test(move, triangles)
{
    for (int trial = 0; trial < TRIALS * NTYPES; trial++) {
        int dt = all_types[trial % NTYPES];
        int64_t dims[8], index[8], k = between(-8, 8);
        if (trial % 17 == 0) {
            k = trial & 1 ? INT64_MAX : INT64_MIN;
        }
        int rank = random_dims(2, 4, dims);
        bool upper = between(0, 1);
        tensor src = random_tensor(dt, rank, dims, trial & 1), dst;
        must_run(wf_exec_tri, upper ? WF_OP_TRIU : WF_OP_TRIL, &(wf_attr){DYN(k)}, 1, &src, &dst);
        int64_t n = wf_view_numel(&dst.v);
        for (int64_t i = 0; i < n; i++) {
            unravel(i, &dst.v, index);
            int64_t over = index[rank - 1] - index[rank - 2];
            if (upper ? over >= k : over <= k) {
                cr_assert(same_element(&dst, at(&dst.v, i), at(&src.v, i)));
            } else {
                cr_assert_eq(get(&dst, i), 0.0);
            }
        }
        drop(&src);
        drop(&dst);
    }
}

Test(move, slice_grad)
{
    for (int trial = 0; trial < TRIALS * NTYPES; trial++) {
        int dt = all_types[trial % NTYPES];
        int64_t dims[8], index[8], full = between(1, 9);
        int rank = random_dims(1, 4, dims);
        int64_t axis = between(0, rank - 1), step = between(1, 3), start, stop;
        if (between(0, 1)) {
            start = between(0, full);
            stop = between(start, full);
        } else {
            step = -step;
            start = between(-1, full - 1);
            stop = between(-1, start);
        }
        dims[axis] = (llabs(stop - start) + llabs(step) - 1) / llabs(step);
        tensor src = random_tensor(dt, rank, dims, trial & 1), dst;
        wf_attr attr = {INTS(axis), DYN(start, stop, step, full)};
        must_run(wf_exec_slice_grad, WF_OP_SLICE_GRAD, &attr, 1, &src, &dst);
        cr_assert_eq(dst.v.dims[axis], full);
        int64_t n = wf_view_numel(&dst.v);
        for (int64_t i = 0; i < n; i++) {
            unravel(i, &dst.v, index);
            int64_t k = (index[axis] - start) / step;
            bool hit = (index[axis] - start) % step == 0 && k >= 0 && k < dims[axis];
            index[axis] = k;
            if (hit) {
                cr_assert(same_element(&dst, at(&dst.v, i), at_index(&src.v, index)));
            } else {
                cr_assert_eq(get(&dst, i), 0.0);
            }
        }
        drop(&src);
        drop(&dst);
    }
}

/* Windows of a vector: every element is hit several times; additions in row-major order. */
Test(move, strided_grad_adds_in_order)
{
    for (int trial = 0; trial < TRIALS * NTYPES; trial++) {
        int dt = all_types[trial % NTYPES];
        if (dt == WEFT_BOOL) {
            continue;
        }
        int64_t dims[2] = {between(0, 9), between(0, 5)},
                strides[2] = {between(-2, 2), between(-2, 2)};
        int64_t offset = 30, size = 64;
        tensor src = random_tensor(dt, 2, dims, trial & 1), dst;
        wf_attr attr = {INTS(2), DYN(size / 8, 8, strides[0], strides[1], offset)};
        must_run(wf_exec_strided_grad, WF_OP_STRIDED_GRAD, &attr, 1, &src, &dst);
        tensor want = make1(dt, size);
        float sum[64] = {0};
        memset(want.mem, 0, (size_t)size * wf_dtype_size(dt));
        int64_t n = wf_view_numel(&src.v);
        for (int64_t i = 0; i < n; i++) {
            int64_t to = offset + i / dims[1] * strides[0] + i % dims[1] * strides[1];
            double x = get(&src, i);
            if (wf_dtype_compute(dt) == WEFT_F32) {
                sum[to] += (float)x;
                put(&want, to, sum[to]);
            } else {
                put(&want, to, get(&want, to) + x);
            }
        }
        assert_same_bits(&dst, &want, "strided_grad");
        drop(&src);
        drop(&dst);
        drop(&want);
    }
}

Test(move, update)
{
    for (int trial = 0; trial < TRIALS * NTYPES; trial++) {
        int dt = all_types[trial % NTYPES];
        int64_t base_dims[2] = {6, 7}, dims[2] = {between(0, 4), between(0, 4)};
        tensor src[2] = {random_tensor(dt, 2, base_dims, trial & 1),
                         random_tensor(dt, 2, dims, trial & 2)};
        int64_t s0 = between(0, 1) ? between(3, 6) : 2 * between(0, 1) - 1,
                s1 = 2 * between(0, 1) - 1;
        tensor dst;
        wf_attr attr = {DYN(dims[0], dims[1], s0, s1, 12)};
        must_run(wf_exec_update, WF_OP_UPDATE, &attr, 2, src, &dst);
        tensor want = make(dt, 2, base_dims, false);
        size_t size = wf_dtype_size(dt);
        for (int64_t i = 0; i < 42; i++) {
            memcpy(at(&want.v, i), at(&src[0].v, i), size);
        }
        for (int64_t i = 0; i < dims[0] * dims[1]; i++) {
            memcpy(at(&want.v, 12 + i / dims[1] * s0 + i % dims[1] * s1), at(&src[1].v, i), size);
        }
        assert_same_bits(&dst, &want, "update");
        drop(&src[0]);
        drop(&src[1]);
        drop(&dst);
        drop(&want);
    }
}

Test(move, thread_counts)
{
    const int64_t dims[3] = {70, 90, 110};
    tensor src[2] = {random_tensor(WEFT_F32, 3, dims, true),
                     random_tensor(WEFT_F32, 3, dims, false)};
    same_at_any_thread_count(wf_exec_concat, WF_OP_CONCAT, &(wf_attr){INTS(1)}, 2, src);
    same_at_any_thread_count(wf_exec_pad, WF_OP_PAD, &(wf_attr){DYN(1, 2, -3, 4, 5, 0), FLT(2)}, 1,
                             src);
    const wf_attr ways[] = {{INTS(0), DYN(1, 2, 3, 4, 5, 0)},
                            {INTS(1), DYN(0, 0, 3, 4, 5, 200)},
                            {INTS(2), DYN(0, 0, 0, 0, 7, 90)}};
    for (int k = 0; k < 3; k++) {
        same_at_any_thread_count(wf_exec_pad_mode, WF_OP_PAD_MODE, &ways[k], 1, src);
        const int64_t padded[3] = {dims[0] + (k ? 0 : 3), dims[1] + (k < 2 ? 7 : 0),
                                   dims[2] + (k == 0   ? 5
                                              : k == 1 ? 205
                                                       : 97)};
        tensor g = random_tensor(k == 2 ? WEFT_BF16 : WEFT_F32, 3, padded, false);
        same_at_any_thread_count(wf_exec_pad_mode_bwd, WF_OP_PAD_MODE_BWD, &ways[k], 1, &g);
        drop(&g);
    }
    same_at_any_thread_count(wf_exec_roll, WF_OP_ROLL, &(wf_attr){INTS(0, 2), DYN(5, -7)}, 1, src);
    same_at_any_thread_count(wf_exec_tri, WF_OP_TRIL, &(wf_attr){DYN(3)}, 1, src);
    drop(&src[0]);
    drop(&src[1]);
}

/* -- creation ---------------------------------------------------------------------------------------- */
Test(create, ranges)
{
    for (int t = 1; t < NTYPES; t++) {
        int dt = all_types[t];
        tensor dst;
        must_run(wf_exec_arange, WF_OP_ARANGE, &(wf_attr){.dtype = (uint8_t)dt, DYN(33), FLT(3, 2)},
                 0, NULL, &dst);
        for (int64_t i = 0; i < 33; i++) {
            cr_assert_eq(get(&dst, i), (double)(3 + 2 * i));
        }
        drop(&dst);
        must_run(wf_exec_arange, WF_OP_ARANGE, &(wf_attr){.dtype = (uint8_t)dt, DYN(33, 100, -3)},
                 0, NULL, &dst);
        for (int64_t i = 0; i < 33; i++) {
            cr_assert_eq(get(&dst, i), (double)(100 - 3 * i));
        }
        drop(&dst);
    }
    /* i64 beyond 2^53, and wrapping */
    tensor dst;
    must_run(wf_exec_arange, WF_OP_ARANGE, &(wf_attr){.dtype = WEFT_I64, DYN(3, INT64_MAX - 1, 1)},
             0, NULL, &dst);
    cr_assert_eq(((int64_t *)dst.mem)[1], INT64_MAX);
    cr_assert_eq(((int64_t *)dst.mem)[2], INT64_MIN);
    drop(&dst);
    for (int64_t n = 0; n < 300; n = n * 2 + 1) {
        const double lo = -0.1, hi = 0.7;
        must_run(wf_exec_linspace, WF_OP_LINSPACE,
                 &(wf_attr){.dtype = WEFT_F32, DYN(n), FLT(lo, hi)}, 0, NULL, &dst);
        for (int64_t i = 0; i < n; i++) {
            double want = n == 1 ? lo : lo + (hi - lo) * (double)i / (double)(n - 1);
            cr_assert_float_eq(get(&dst, i), want, 0x1p-24, "linspace %" PRId64, i);
        }
        if (n > 1) {
            cr_assert_eq(get(&dst, 0), (double)(float)lo);
            cr_assert_eq(get(&dst, n - 1), (double)(float)hi);
        }
        drop(&dst);
    }
}

Test(create, full_and_eye)
{
    for (int t = 0; t < NTYPES; t++) {
        uint8_t dt = (uint8_t)all_types[t];
        tensor dst;
        must_run(wf_exec_full, WF_OP_FULL, &(wf_attr){.dtype = dt, DYN(3, 5), FLT(7)}, 0, NULL,
                 &dst);
        cr_assert_eq(dst.v.rank, 2);
        for (int64_t i = 0; i < 15; i++) {
            cr_assert_eq(get(&dst, i), dt == WEFT_BOOL ? 1.0 : 7.0);
        }
        drop(&dst);
        for (int64_t k = -4; k <= 6; k++) {
            must_run(wf_exec_eye, WF_OP_EYE, &(wf_attr){.dtype = dt, DYN(3, 5, k)}, 0, NULL, &dst);
            for (int64_t i = 0; i < 15; i++) {
                cr_assert_eq(get(&dst, i), i % 5 - i / 5 == k ? 1.0 : 0.0);
            }
            drop(&dst);
        }
    }
    tensor dst;
    must_run(wf_exec_full, WF_OP_FULL, &(wf_attr){.dtype = WEFT_I64, DYN(2, INT64_MAX)}, 0, NULL,
             &dst);
    cr_assert_eq(((int64_t *)dst.mem)[1], INT64_MAX);
    drop(&dst);
}

static double mean_of(const tensor *t, double *spread)
{
    int64_t n = wf_view_numel(&t->v);
    double sum = 0, square = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += get(t, i);
        square += get(t, i) * get(t, i);
    }
    *spread = square / (double)n - sum / (double)n * (sum / (double)n);
    return sum / (double)n;
}

/* Means lie within 6 standard errors; the seed is fixed, so this is not a matter of luck. */
Test(create, random)
{
    const int64_t N = 60000;
    const double count = 60000;
    const int floats[4] = {WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};
    double var;
    tensor dst;
    for (int t = 0; t < 4; t++) {
        uint8_t dt = (uint8_t)floats[t];
        double coarse = dt == WEFT_BF16 ? 0x1p-8 : dt == WEFT_F16 ? 0x1p-11 : 0;
        must_run(wf_exec_random, WF_OP_RAND, &(wf_attr){.dtype = dt, DYN(N, 42, 7), FLT(-2, 6)}, 0,
                 NULL, &dst);
        double mean = mean_of(&dst, &var);
        cr_assert_float_eq(mean, 2, 6 * sqrt(64.0 / 12 / count) + 8 * coarse, "uniform mean %g",
                           mean);
        cr_assert_float_eq(var, 64.0 / 12, 0.15, "uniform variance %g", var);
        for (int64_t i = 0; i < N; i++) {
            cr_assert(get(&dst, i) >= -2 && (coarse > 0 ? get(&dst, i) <= 6 : get(&dst, i) < 6));
        }
        drop(&dst);
        must_run(wf_exec_random, WF_OP_RANDN, &(wf_attr){.dtype = dt, DYN(N, 42, 7), FLT(1, 3)}, 0,
                 NULL, &dst);
        mean = mean_of(&dst, &var);
        cr_assert_float_eq(mean, 1, 6 * 3 / sqrt(count) + 8 * coarse, "normal mean %g", mean);
        cr_assert_float_eq(var, 9, 0.4, "normal variance %g", var);
        drop(&dst);
    }
    for (int t = 0; t < NTYPES; t++) {
        uint8_t dt = (uint8_t)all_types[t];
        must_run(wf_exec_random, WF_OP_BERNOULLI, &(wf_attr){.dtype = dt, DYN(N, 1, 0), FLT(0.3)},
                 0, NULL, &dst);
        cr_assert_float_eq(mean_of(&dst, &var), 0.3, 6 * sqrt(0.21 / count));
        drop(&dst);
    }
    /* Rounding would carry half of these draws to the excluded end. */
    must_run(wf_exec_random, WF_OP_RAND,
             &(wf_attr){.dtype = WEFT_F32, DYN(100, 1, 0), FLT(1, 1 + 0x1p-23)}, 0, NULL, &dst);
    for (int64_t i = 0; i < 100; i++) {
        cr_assert_eq(get(&dst, i), 1.0);
    }
    drop(&dst);
    must_run(wf_exec_random, WF_OP_RANDINT, &(wf_attr){.dtype = WEFT_I32, DYN(N, 9, 9, -3, 4)}, 0,
             NULL, &dst);
    int seen[7] = {0};
    for (int64_t i = 0; i < N; i++) {
        cr_assert(get(&dst, i) >= -3 && get(&dst, i) < 4);
        seen[(int)get(&dst, i) + 3]++;
    }
    for (int i = 0; i < 7; i++) {
        cr_assert_float_eq(seen[i], count / 7.0, 6 * sqrt(count / 7.0), "%d was drawn %d times",
                           i - 3, seen[i]);
    }
    drop(&dst);
    same_at_any_thread_count(wf_exec_random, WF_OP_RANDN,
                             &(wf_attr){.dtype = WEFT_F32, DYN(N + 1, 3, 4), FLT(0, 1)}, 0, NULL);
    same_at_any_thread_count(wf_exec_random, WF_OP_RAND,
                             &(wf_attr){.dtype = WEFT_BF16, DYN(N + 1, 3, 4), FLT(0, 1)}, 0, NULL);
    same_at_any_thread_count(wf_exec_random, WF_OP_RANDPERM,
                             &(wf_attr){.dtype = WEFT_I64, DYN(N, 3, 4)}, 0, NULL);
}

Test(create, permutation)
{
    for (int64_t n = 0; n < 3000; n = 3 * n + 1) {
        tensor dst;
        must_run(wf_exec_random, WF_OP_RANDPERM, &(wf_attr){.dtype = WEFT_I32, DYN(n, 5, 0)}, 0,
                 NULL, &dst);
        char seen[3000] = {0};
        int64_t fixed = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t x = (int64_t)get(&dst, i);
            cr_assert(x >= 0 && x < n && !seen[x]);
            seen[x] = 1;
            fixed += x == i;
        }
        cr_assert(n < 40 || fixed < n / 4, "%" PRId64 " of %" PRId64 " in place", fixed, n);
        drop(&dst);
    }
}

/* -- refusals ------------------------------------------------------------------------------------------ */
Test(move, refusals)
{
    const int64_t big = INT64_C(1) << 40;
    wf_type m = TYPE(WEFT_F32, 3, 4), v = TYPE(WEFT_F32, 5), s = {.dtype = WEFT_F32};
    wf_type two[2] = {m, TYPE(WEFT_F32, 3, 5)};
    must_refuse(WF_OP_CONCAT, &(wf_attr){INTS(0)}, 2, two, WEFT_ESHAPE, "axis 1: extent 5");
    must_refuse(WF_OP_CONCAT, &(wf_attr){INTS(2)}, 2, two, WEFT_ESHAPE, "axis 2 does not exist");
    must_refuse(WF_OP_CONCAT, &(wf_attr){INTS(0)}, 0, NULL, WEFT_EINVALID, "operands");
    wf_type mixed[2] = {m, TYPE(WEFT_F64, 3, 4)};
    must_refuse(WF_OP_CONCAT, &(wf_attr){INTS(0)}, 2, mixed, WEFT_EDTYPE,
                "f32 (first operand) against f64");
    wf_type huge[2] = {TYPE(WEFT_F32, INT64_MAX / 4, 1), TYPE(WEFT_F32, INT64_MAX / 4, 1)};
    must_refuse(WF_OP_CONCAT, &(wf_attr){INTS(0)}, 2, huge, WEFT_ENOMEM, "overflow");
    must_refuse(WF_OP_PAD, &(wf_attr){DYN(0, 0, -3, -2), FLT(0)}, 1, &m, WEFT_ESHAPE, "axis 1");
    must_refuse(WF_OP_PAD, &(wf_attr){DYN(0, 0, INT64_MAX, 1), FLT(0)}, 1, &m, WEFT_ENOMEM,
                "overflow");
    must_refuse(WF_OP_PAD, &(wf_attr){DYN(0, 0), FLT(0)}, 1, &m, WEFT_EINVALID, "attributes");
    must_refuse(WF_OP_PAD_MODE, &(wf_attr){INTS(0), DYN(0, 0, 0, 4)}, 1, &m, WEFT_ESHAPE, "axis 1");
    must_refuse(WF_OP_PAD_MODE, &(wf_attr){INTS(3), DYN(0, 0, 0, 1)}, 1, &m, WEFT_EINVALID, "way");
    must_refuse(WF_OP_PAD_MODE_BWD, &(wf_attr){INTS(1), DYN(0, 0, 2, 2)}, 1, &m, WEFT_ESHAPE,
                "axis 1");
    must_refuse(WF_OP_ROLL, &(wf_attr){INTS(1, 1), DYN(1, 1)}, 1, &m, WEFT_ESHAPE, "named twice");
    must_refuse(WF_OP_ROLL, &(wf_attr){INTS(1), DYN(1, 1)}, 1, &m, WEFT_EINVALID,
                "2 shifts for 1 axes");
    must_refuse(WF_OP_TRIL, &(wf_attr){DYN(0)}, 1, &v, WEFT_ESHAPE, "rank 2");
    must_refuse(WF_OP_RESHAPE, &(wf_attr){DYN(5, 2)}, 1, &m, WEFT_ESHAPE, "12 elements");
    must_refuse(WF_OP_RESHAPE, &(wf_attr){DYN(big, big)}, 1, &m, WEFT_ESHAPE, "overflow");
    must_refuse(WF_OP_RESHAPE, &(wf_attr){DYN(-3, -4)}, 1, &m, WEFT_ESHAPE, "negative");
    must_refuse(WF_OP_PERMUTE, &(wf_attr){INTS(0, 0)}, 1, &m, WEFT_ESHAPE, "named twice");
    must_refuse(WF_OP_PERMUTE, &(wf_attr){INTS(0)}, 1, &m, WEFT_ESHAPE, "1 axes given");
    must_refuse(WF_OP_EXPAND, &(wf_attr){DYN(3, 8)}, 1, &m, WEFT_ESHAPE, "extent 4 of axis 1");
    must_refuse(WF_OP_EXPAND, &(wf_attr){DYN(4)}, 1, &m, WEFT_ESHAPE, "rank 2 does not expand");
    must_refuse(WF_OP_SLICE, &(wf_attr){INTS(1), DYN(0, 5, 1)}, 1, &m, WEFT_ESHAPE, "extent 4");
    must_refuse(WF_OP_SLICE, &(wf_attr){INTS(1), DYN(0, 4, 0)}, 1, &m, WEFT_EINVALID, "step 0");
    must_refuse(WF_OP_SLICE, &(wf_attr){INTS(0), DYN(0, 4, 0)}, 1, &s, WEFT_ESHAPE, "rank 0");
    must_refuse(WF_OP_DIAGONAL, &(wf_attr){INTS(1, 1), DYN(0)}, 1, &m, WEFT_ESHAPE, "named twice");
    must_refuse(WF_OP_AS_STRIDED, &(wf_attr){INTS(17), DYN(1)}, 1, &m, WEFT_EINVALID, "rank 17");
    must_refuse(WF_OP_CAST, &(wf_attr){.dtype = 99}, 1, &m, WEFT_EDTYPE, "99");
    must_refuse(WF_OP_UPDATE, &(wf_attr){DYN(3, 4, 4, 1, 1)}, 2, (wf_type[]){m, m}, WEFT_ESHAPE,
                "elements 1 to 12");
    must_refuse(WF_OP_UPDATE, &(wf_attr){DYN(3, 4, INT64_MAX, INT64_MAX, 1)}, 2, (wf_type[]){m, m},
                WEFT_ESHAPE, "overflow");
    must_refuse(WF_OP_STRIDED_GRAD, &(wf_attr){INTS(1), DYN(11, 4, 1, 0)}, 1, &m, WEFT_ESHAPE,
                "elements 0 to 11");
    must_refuse(WF_OP_SLICE_GRAD, &(wf_attr){INTS(0), DYN(0, 2, 1, 9)}, 1, &m, WEFT_ESHAPE,
                "holds 2");
    must_refuse(WF_OP_FULL, &(wf_attr){DYN(big, big), FLT(0)}, 0, NULL, WEFT_ENOMEM, "overflow");
    must_refuse(WF_OP_FULL, &(wf_attr){DYN(0, big, big), FLT(0)}, 0, NULL, WEFT_ENOMEM, "overflow");
    must_refuse(WF_OP_FULL, &(wf_attr){DYN(-1), FLT(0)}, 0, NULL, WEFT_ESHAPE, "negative");
    must_refuse(WF_OP_RANDINT, &(wf_attr){DYN(2, 0, 0, 4, 4)}, 0, NULL, WEFT_EINVALID,
                "no integer");
    must_refuse(WF_OP_RAND, &(wf_attr){.dtype = WEFT_I32, DYN(2, 0, 0), FLT(0, 1)}, 0, NULL,
                WEFT_EDTYPE, "i32");
    must_refuse(WF_OP_BERNOULLI, &(wf_attr){DYN(2, 0, 0), FLT(1.5)}, 0, NULL, WEFT_EINVALID, "1.5");
    must_refuse(WF_OP_ADD, NULL, 2, (wf_type[]){m, v}, WEFT_ESHAPE, "extents 4 and 5 of axis 1");
    must_refuse(WF_OP_EXP, NULL, 1, (wf_type[]){TYPE(WEFT_I32, 3)}, WEFT_EDTYPE, "i32");
    must_refuse(WF_OP_WHERE, NULL, 3, (wf_type[]){m, m, m}, WEFT_EDTYPE, "condition");
    must_refuse((wf_op)9999, NULL, 0, NULL, WEFT_EINVALID, "not a row");
}

Test(move, names_parse_back)
{
    for (int op = WF_OP_INPUT; op < WF_OP_COUNT; op++) {
        const char *name = wf_rows[op].name;
        cr_assert_eq(wf_op_parse(name, strlen(name)), (wf_op)op, "%s", name);
    }
    cr_assert_eq(wf_op_parse("addx", 4), WF_OP_INVALID);
    cr_assert_eq(wf_op_parse("add", 2), WF_OP_INVALID);
}
