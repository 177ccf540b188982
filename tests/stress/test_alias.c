/*
 * tests/stress/test_alias.c -- in-place writes through random views against a model of the memory.
 *
 * The model is a flat array, and for each view the list of flat positions of its elements in row-major
 * order. Every write reads its operands in full before it changes anything, whatever overlaps what; after
 * each one the whole memory is compared. A view that reaches an element twice is refused and changes
 * nothing. The same sequences run inside a traced region, where memory is compared now and then (which
 * breaks the graph) and at its end.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/support.h"

enum { SIZE = 60, VIEWS = 12 };

typedef struct model_view {
    weft_tensor t;
    int rank;
    int64_t dims[3];
    int at[SIZE];
    int n;
} model_view;

static test_rng rng;

static void refresh(model_view *v)
{
    weft_shape s = weft_shape_of(v->t);
    v->rank = (int)s.n;
    v->n = 1;
    for (int i = 0; i < v->rank; i++) {
        v->dims[i] = s.v[i];
        v->n *= (int)s.v[i];
    }
}

/* Flat positions of a view of `from` whose element (i, j, k) is from's element index[n]. */
static void derive(model_view *v, const model_view *from, const int *index)
{
    int at[SIZE];
    refresh(v);
    for (int i = 0; i < v->n; i++) {
        at[i] = from->at[index[i]];
    }
    memcpy(v->at, at, sizeof at);
}

/* A view of `from`: transposed, sliced with any step, reversed or with merged axes. */
static model_view random_view(const model_view *from)
{
    model_view v = *from;
    int index[SIZE], n = 0;
    int axis = from->rank ? (int)test_between(&rng, 0, from->rank - 1) : 0;
    if (from->rank == 0) {
        return v;
    }
    int64_t inner = 1, extent = from->dims[axis], outer;
    for (int i = axis + 1; i < from->rank; i++) {
        inner *= from->dims[i];
    }
    outer = from->n / (extent * inner > 0 ? extent * inner : 1);
    switch (test_next(&rng) % 3) {
    case 0: { /* slice */
        int64_t start = test_between(&rng, 0, extent - 1), step = test_between(&rng, 1, 2);
        int64_t stop = test_between(&rng, start + 1, extent);
        v.t = weft_slice(from->t, axis, start, stop, step);
        for (int64_t o = 0; o < outer; o++) {
            for (int64_t i = start; i < stop; i += step) {
                for (int64_t k = 0; k < inner; k++) {
                    index[n++] = (int)((o * extent + i) * inner + k);
                }
            }
        }
        break;
    }
    case 1: /* reversed */
        v.t = weft_flip(from->t, weft_axes(axis));
        for (int64_t o = 0; o < outer; o++) {
            for (int64_t i = extent - 1; i >= 0; i--) {
                for (int64_t k = 0; k < inner; k++) {
                    index[n++] = (int)((o * extent + i) * inner + k);
                }
            }
        }
        break;
    default: /* the axis comes first */
        v.t = weft_permute(from->t, from->rank == 1   ? weft_axes(0)
                                    : from->rank == 2 ? weft_axes(axis, 1 - axis)
                                    : axis == 0       ? weft_axes(0, 1, 2)
                                    : axis == 1       ? weft_axes(1, 0, 2)
                                                      : weft_axes(2, 0, 1));
        for (int64_t i = 0; i < extent; i++) {
            for (int64_t o = 0; o < outer; o++) {
                for (int64_t k = 0; k < inner; k++) {
                    index[n++] = (int)((o * extent + i) * inner + k);
                }
            }
        }
    }
    cr_assert(weft_ok(v.t), "%s", weft_error_text(v.t));
    derive(&v, from, index);
    cr_assert_eq(v.n, n);
    return v;
}

static bool same_extents(const model_view *a, const model_view *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

/* One write through x, with y (of the same extents) as operand; the model follows. */
static weft_status write_through(const model_view *x, const model_view *y, int32_t *memory)
{
    int32_t old[SIZE];
    weft_status status;
    int32_t c = (int32_t)test_between(&rng, -9, 9);
    uint64_t kind = test_next(&rng) % 5;
    memcpy(old, memory, sizeof old);
    switch (kind) {
    case 0:
        status = weft_fill_(x->t, c);
        break;
    case 1:
        status = weft_copy_(x->t, y->t);
        break;
    case 2:
        status = weft_add_(x->t, y->t);
        break;
    case 3:
        status = weft_mul_(x->t, weft_i(c));
        break;
    default:
        status = weft_sub_(x->t, y->t);
    }
    for (int i = 0; i < x->n; i++) {
        int32_t a = old[x->at[i]], b = old[y->at[i]];
        memory[x->at[i]] = kind == 0   ? c
                           : kind == 1 ? b
                           : kind == 2 ? (int32_t)((uint32_t)a + (uint32_t)b)
                           : kind == 3 ? (int32_t)((uint32_t)a * (uint32_t)c)
                                       : (int32_t)((uint32_t)a - (uint32_t)b);
    }
    return status;
}

/* Sequences of writes to views of one memory; in a region of j if it is given. The memory is made outside the
 * region or, for odd seeds, computed in it; views are made before or in it. */
static void random_writes(weft_jit *j)
{
    int writes = 0, overlapping = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        rng = (test_rng){seed};
        weft_scope sc = weft_scope_begin();
        int32_t memory[SIZE];
        model_view v[VIEWS] = {{.n = SIZE}};
        for (int i = 0; i < SIZE; i++) {
            memory[i] = i;
            v[0].at[i] = i;
        }
        v[0].t = weft_from_data(memory, weft_shape(3, 4, 5), WEFT_I32);
        cr_assert(!j || weft_jit_begin(j) == WEFT_OK);
        if (seed % 2) {
            v[0].t = weft_add(v[0].t, weft_i(0));
        }
        refresh(&v[0]);
        for (int i = 1; i < VIEWS; i++) {
            v[i] = random_view(&v[test_between(&rng, 0, i - 1)]);
        }
        for (int step = 0; step < 60; step++) {
            const model_view *x = &v[test_between(&rng, 0, VIEWS - 1)];
            const model_view *y = &v[test_between(&rng, 0, VIEWS - 1)];
            uint32_t count = weft_write_count(v[0].t);
            y = same_extents(x, y) ? y : x;
            overlapping += y != x && memcmp(x->at, y->at, (size_t)x->n * sizeof(int)) != 0;
            cr_assert_eq(write_through(x, y, memory), WEFT_OK, "%s", weft_last_error());
            cr_assert_gt(weft_write_count(v[0].t), count);
            if (!j || test_next(&rng) % 20 == 0) {
                cr_assert_eq(memcmp(weft_data(v[0].t), memory, sizeof memory), 0,
                             "seed %d, step %d", (int)seed, step);
            }
            writes++;
        }
        cr_assert(!j || weft_jit_end(j) == WEFT_OK, "%s", weft_last_error());
        cr_assert_eq(memcmp(weft_data(v[0].t), memory, sizeof memory), 0, "seed %d", (int)seed);
        for (int i = 0; i < VIEWS; i++) { /* every view reads what was written */
            int32_t got[SIZE];
            cr_assert_eq(weft_to_array(v[i].t, got, v[i].n, WEFT_I32), WEFT_OK);
            for (int k = 0; k < v[i].n; k++) {
                cr_assert_eq(got[k], memory[v[i].at[k]]);
            }
        }
        weft_scope_end(sc);
    }
    cr_assert_gt(writes, 10000);
    cr_assert_gt(overlapping, 500, "only %d writes had another view as operand", overlapping);
}

Test(alias, random_writes)
{
    random_writes(NULL);
}

Test(alias, random_writes_in_traced_regions)
{
    weft_jit *j = weft_jit_trace(.name = "writes", .max_plans = 4);
    random_writes(j);
    weft_jit_stats s;
    weft_jit_get_stats(j, &s);
    cr_assert_eq(s.calls + s.eager, 300);
    cr_assert_gt(s.calls, 64, "only %d regions recorded",
                 (int)s.calls); /* a random half, before it is known what pays */
    cr_assert_gt(s.breaks, s.calls);
    cr_assert_gt(s.evictions, s.calls);
    weft_jit_free(j);
}

Test(alias, an_element_twice)
{
    int32_t memory[6] = {1, 2, 3, 4, 5, 6};
    weft_tensor x = weft_from_data(memory, weft_shape(6), WEFT_I32);
    const weft_tensor twice[] = {
        weft_expand(weft_reshape(x, weft_shape(1, 6)), weft_shape(2, 6)),
        weft_as_strided(x, weft_shape(2, 4), weft_shape(2, 1), 0),
        weft_unfold(x, 0, 3, 1),
    };
    for (int i = 0; i < 3; i++) {
        check_status("a view with an element twice", weft_add_(twice[i], weft_i(1)), WEFT_ESHAPE,
                     "add");
        cr_assert_eq(memcmp(weft_data(x), memory, sizeof memory), 0, "view %d", i);
    }
}
