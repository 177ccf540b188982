/*
 * tests/unit/test_gemm.c -- the matrix product against sums in higher precision, on all back ends.
 *
 * The bound on an element is derived, not tuned: a sum of k products in any order, each product and
 * each addition rounded once, is off by at most k * eps / (1 - k * eps) * sum |a||b|, plus one
 * rounding of the result to its storage type.
 *
 * ctest: threads optimised
 */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cpu/gemm.h"
#include "eager/cpu/gemm_impl.h"
#include "eager/cpuid.h"
#include "eager/pool.h"
#include "jit/ir/dtype.h"
#include "tests/support/effort.h"
#include "tests/support/table.h"

ONE_THREAD_BEGIN

static uint64_t rng_state = 88172645463325252u;

static uint64_t rng(void)
{
    uint64_t x =
        rng_state; /* one access: operands are as many draws, and ThreadSanitizer follows each */
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return rng_state = x;
}

static int64_t between(int64_t lo, int64_t hi)
{
    return lo + (int64_t)(rng() % (uint64_t)(hi - lo + 1));
}

/* Pieces of random numbers as the type has them (tests/support/table.h). */
enum { NUMBERS = 16381 };
static void *new_numbers(int dtype, size_t count)
{
    static double of[WEFT_DTYPE_COUNT][NUMBERS]; /* room for any type */
    static bool known[WEFT_DTYPE_COUNT];
    for (int64_t k = 0; k < NUMBERS && !known[dtype]; k++)
        wf_float_put(of[dtype], dtype, k, (double)between(-1000, 1000) / 700.0);
    known[dtype] = true;
    const size_t size = wf_dtype_size(dtype);
    char *p = malloc(count * size);
    table_take(p, of[dtype], NUMBERS, between(0, NUMBERS - 1), (int64_t)count, size);
    return p;
}

/* Unit roundoff of the accumulation and of the storage; smallest step near zero. */
static double eps_sum(int dtype)
{
    return dtype == WEFT_F64 ? 0x1p-53 : 0x1p-24;
}
static double eps_store(int dtype)
{
    return dtype == WEFT_F16 ? 0x1p-11 : dtype == WEFT_BF16 ? 0x1p-8 : 0;
}
static double tiny(int dtype)
{
    return dtype == WEFT_F64 ? 0x1p-1070 : dtype == WEFT_F16 ? 0x1p-24 : 0x1p-126;
}

typedef struct operands {
    wf_gemm_desc d;
    void *a, *b, *c;
    size_t c_bytes;
} operands;

/* mode bit 0: A transposed, bit 1: B transposed, bit 2: odd strides of A, bit 3: of B, bit 4: A
 * broadcast over the batch, bit 5: B broadcast, bit 6: gap between rows of C */
static operands make(int dtype, int64_t batch, int64_t m, int64_t n, int64_t k, unsigned mode)
{
    int64_t gap_a = mode & 4 ? 3 : 1, gap_b = mode & 8 ? 2 : 1;
    wf_gemm_desc d = {.dtype = dtype, .m = m, .n = n, .k = k, .batch = batch};
    d.a_rs = (mode & 1 ? 1 : k) * gap_a;
    d.a_cs = (mode & 1 ? m : 1) * gap_a;
    d.a_bs = mode & 16 ? 0 : m * k * gap_a;
    d.b_rs = (mode & 2 ? 1 : n) * gap_b;
    d.b_cs = (mode & 2 ? k : 1) * gap_b;
    d.b_bs = mode & 32 ? 0 : n * k * gap_b;
    d.c_rs = n + (mode & 64 ? 5 : 0);
    d.c_bs = m * d.c_rs;
    size_t size = wf_dtype_size(dtype);
    size_t na = (size_t)(batch * m * k * gap_a), nb = (size_t)(batch * n * k * gap_b);
    size_t nc = (size_t)(batch * d.c_bs) + 1;
    operands o = {.a = new_numbers(dtype, na), .b = new_numbers(dtype, nb), .c_bytes = nc * size};
    o.c = malloc(o.c_bytes);
    memset(o.c, 0x5A, o.c_bytes);
    d.a = o.a;
    d.b = o.b;
    d.c = o.c;
    o.d = d;
    return o;
}

static void drop(operands *o)
{
    free(o->a);
    free(o->b);
    free(o->c);
}

/* n elements from `at`, `step` apart, as doubles: of operands, which nobody writes. */
static UNWATCHED void gather(double *out, const void *p, int dtype, int64_t at, int64_t step,
                             int64_t n)
{
    const float *f = p;
    const double *d = p;
    const uint16_t *h = p;
#define GATHER(x)                                                                                  \
    for (int64_t i = 0; i < n; i++, at += step)                                                    \
    out[i] = (double)(x)
    if (dtype == WEFT_F64)
        GATHER(d[at]);
    else if (dtype == WEFT_F32)
        GATHER(f[at]);
    else if (dtype == WEFT_BF16)
        GATHER(wf_f32_of_bf16(h[at]));
    else
        GATHER(wf_f32_of_f16(h[at]));
#undef GATHER
}

/* A sum of n products and that of their magnitudes, each in several parts. Products of types narrower than f64 are exact in double,
 * whose own roundings are 2^-29 of what is allowed to the sum: DOUBLE; so are those of magnitudes of f64, of what they are. */
enum { DOUBLE = 29, LANES = 8, WIDE = 4 };
typedef struct dot {
    long double sum, mag;
} dot;
static UNWATCHED dot dot_of(int dtype, const double *x, const double *y, int64_t n)
{
    double sum[LANES] = {0}, mag[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            const double p = x[i + l] * y[i + l];
            sum[l] += p;
            mag[l] += fabs(p);
        }
    dot d = {0, 0};
    long double a = 0, b = 0, c = 0;
    for (int64_t k = 0; k < i && dtype == WEFT_F64; k += WIDE) {
        d.sum += (long double)x[k] * y[k];
        a += (long double)x[k + 1] * y[k + 1];
        b += (long double)x[k + 2] * y[k + 2];
        c += (long double)x[k + 3] * y[k + 3];
    }
    d.sum += a + b + c;
    for (int l = 0; l < LANES; l++) {
        d.sum += dtype == WEFT_F64 ? 0 : sum[l];
        d.mag += mag[l];
    }
    for (; i < n; i++) {
        d.sum += (long double)x[i] * y[i];
        d.mag += fabsl((long double)x[i] * y[i]);
    }
    return d;
}

static void check(const operands *o, const char *what)
{
    const wf_gemm_desc *d = &o->d;
    const double u = eps_sum(d->dtype) * (double)(d->k + 1);
    const double gamma = u / (1 - u) * (1 + ldexp(1, -DOUBLE));
    double *row = malloc((size_t)(d->k + 1) * sizeof *row);
    double *columns = malloc((size_t)(d->k * d->n + 1) * sizeof *columns);
    for (int64_t s = 0; s < d->batch; s++) {
        for (int64_t j = 0; j < d->n; j++)
            gather(columns + j * d->k, d->b, d->dtype, s * d->b_bs + j * d->b_cs, d->b_rs, d->k);
        for (int64_t i = 0; i < d->m; i++) {
            gather(row, d->a, d->dtype, s * d->a_bs + i * d->a_rs, d->a_cs, d->k);
            for (int64_t j = 0; j < d->n; j++) {
                dot exact = dot_of(d->dtype, row, columns + j * d->k, d->k);
                if (d->bias) {
                    const double x = wf_float_load(d->bias, d->dtype, j * d->bias_cs);
                    exact.sum += x;
                    exact.mag += fabs(x);
                }
                double got = wf_float_load(o->c, d->dtype, s * d->c_bs + i * d->c_rs + j);
                double err = (double)fabsl((long double)got - exact.sum);
                double bound = gamma * (double)exact.mag;
                bound += eps_store(d->dtype) * ((double)fabsl(exact.sum) + bound) + tiny(d->dtype);
                if (err <= bound)
                    continue;
                cr_assert_fail(
                    "%s %s batch %ld m %ld n %ld k %ld at %ld %ld %ld: %g is %g off, bound %g",
                    what, wf_dtype_name(d->dtype), (long)d->batch, (long)d->m, (long)d->n,
                    (long)d->k, (long)s, (long)i, (long)j, got, err, bound);
            }
        }
    }
    free(row);
    free(columns);
}

/* Memory between the rows of C must not be touched. */
static void check_gaps(const operands *o)
{
    const wf_gemm_desc *d = &o->d;
    size_t size = wf_dtype_size(d->dtype);
    for (int64_t r = 0; r < d->batch * d->m; r++) {
        const unsigned char *gap =
            (const unsigned char *)o->c + (size_t)(r * d->c_rs + d->n) * size;
        for (size_t x = 0; x < (size_t)(d->c_rs - d->n) * size; x++)
            if (gap[x] != 0x5A)
                cr_assert_fail("row %ld of C written past its end", (long)r);
    }
}

static const int float_types[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16};
/* ThreadSanitizer multiplies the time of the references by 20 to 50. */
enum { SHAPES = 150, CALLS = 50 };
static const int backends[] = {WF_GEMM_BUILTIN, WF_GEMM_ONEDNN, WF_GEMM_AUTO};
enum { BACKENDS = sizeof backends / sizeof *backends };

/* AUTO is another back end than the two others in bf16 only: matrix units. */
static bool is_another(size_t backend, size_t type)
{
    return backends[backend] != WF_GEMM_AUTO || float_types[type] == WEFT_BF16;
}

static void random_products(int backend, int dtype, int count)
{
    wf_gemm_set_backend(backend);
    for (int t = 0; t < count; t++) {
        int64_t m = between(1, 40), n = between(1, 70), k = between(1, 90), batch = 1;
        switch (rng() % 6) {
        case 0:
            m = 1;
            n = between(1, 300);
            k = between(1, 600);
            break;
        case 1:
            n = 1;
            m = between(1, 300);
            break;
        case 2:
            k = between(250, 800);
            break;
        case 3:
            batch = between(1, 5);
            break;
        case 4:
            m = between(40, 300);
            k = between(1, 40);
            break;
        default:
            break;
        }
        operands o = make(dtype, batch, m, n, k, (unsigned)rng());
        cr_assert_eq(wf_gemm(&o.d), 0);
        check(&o, wf_gemm_backend_name());
        check_gaps(&o);
        drop(&o);
    }
}

Test(gemm, random_shapes)
{
    for (size_t b = 0; b < BACKENDS; b++)
        for (size_t t = 0; t < 4; t++)
            random_products(backends[b], float_types[t],
                            is_another(b, t) ? (int)effort_of(SHAPES) : 1);
}

/* Matrix times vector and dot products: long and short columns, neighbours or not, backwards. */
Test(gemm, vectors)
{
    static const int64_t shapes[][3] = {{1, 1, 9000},  {1, 1, 30},    {1, 1500, 16}, {1500, 1, 16},
                                        {1, 300, 300}, {300, 1, 300}, {1, 5, 9000},  {5, 1, 9000},
                                        {1, 70, 63},   {70, 1, 64},   {1, 1, 1}};
    wf_gemm_set_backend(WF_GEMM_AUTO);
    for (size_t t = 0; t < 4; t++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (unsigned mode = (unsigned)(s + t) % 2; mode < 32; mode += 2) {
                const int64_t *h = shapes[s];
                operands o = make(float_types[t], 1, h[0], h[1], h[2], mode & 15);
                if (mode &
                    16) { /* the last row and column first, and what check() reads likewise */
                    const int64_t size = (int64_t)wf_dtype_size(o.d.dtype);
                    o.d.a = (char *)o.a + ((h[0] - 1) * o.d.a_rs + (h[2] - 1) * o.d.a_cs) * size;
                    o.d.b = (char *)o.b + ((h[2] - 1) * o.d.b_rs + (h[1] - 1) * o.d.b_cs) * size;
                    o.d.a_rs = -o.d.a_rs, o.d.a_cs = -o.d.a_cs;
                    o.d.b_rs = -o.d.b_rs, o.d.b_cs = -o.d.b_cs;
                }
                cr_assert_eq(wf_gemm(&o.d), 0);
                check(&o, "vector");
                check_gaps(&o);
                drop(&o);
            }
}

/* Where nothing adds a bias the product says so and writes nothing. */
Test(gemm, bias_before_the_rounding)
{
    static const int64_t shapes[][3] = {
        {1, 3, 5},    {5, 40, 33}, {70, 50, 600},  {600, 33, 64},   {33, 400, 32}, {1, 300, 100},
        {300, 1, 40}, {1, 1, 70},  {40, 60, 4096}, {520, 300, 200}, {1, 1, 150000}};
    for (size_t b = 0; b < 2 * BACKENDS; b++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (unsigned mode = 0; mode < 4; mode++) {
                const int dtype = b % 2 ? WEFT_F16 : WEFT_BF16;
                wf_gemm_set_backend(backends[b / 2]);
                operands o = make(dtype, 1, shapes[s][0], shapes[s][1], shapes[s][2], mode | 64);
                uint16_t *bias = malloc((size_t)o.d.n * 2 * sizeof *bias);
                for (int64_t j = 0; j < 2 * o.d.n; j++)
                    wf_float_put(bias, dtype, j, (double)between(-1000, 1000) / 50.0);
                o.d.bias = bias;
                o.d.bias_cs = 2;
                const int rc = wf_gemm(&o.d);
                cr_assert(rc == WF_GEMM_OK || (rc == WF_GEMM_UNSUPPORTED && o.d.m > 1));
                if (rc == WF_GEMM_OK)
                    check(&o, "bias");
                else
                    cr_assert(*(const unsigned char *)o.c == 0x5A);
                check_gaps(&o);
                free(bias);
                drop(&o);
            }
}

/* C with a bias is C without one, and one addition to each element: in the tile or behind it, of rows or columns, however it is cut. */
static void one_more_addition(int dtype, const int64_t *h, unsigned mode, int64_t stride, bool rows)
{
    operands o = make(dtype, h[0], h[1], h[2], h[3], mode);
    const int64_t count = rows ? o.d.m : o.d.n, size = (int64_t)wf_dtype_size(dtype);
    char *bias = malloc((size_t)(count * 3 * size)), *plain = malloc(o.c_bytes);
    for (int64_t i = 0; i < count * 3; i++)
        wf_float_put(bias, dtype, i, (double)between(-1000, 1000) / 50.0);
    for (int threads = 1; threads <= 7; threads += threads < 3 ? 1 : 4) {
        wf_set_num_threads(threads);
        o.d.bias = NULL;
        memset(o.c, 0x5A, o.c_bytes);
        cr_assert_eq(wf_gemm(&o.d), WF_GEMM_OK);
        for (int64_t b = 0; b < o.d.batch; b++)
            for (int64_t i = 0; i < o.d.m; i++)
                for (int64_t j = 0; j < o.d.n; j++) {
                    const int64_t at = b * o.d.c_bs + i * o.d.c_rs + j;
                    const int64_t of = (stride < 0 ? count - 1 : 0) + (rows ? i : j) * stride;
                    if (dtype == WEFT_F64)
                        ((double *)o.c)[at] += ((const double *)(const void *)bias)[of];
                    else
                        ((float *)o.c)[at] += ((const float *)(const void *)bias)[of];
                }
        memcpy(plain, o.c, o.c_bytes);
        memset(o.c, 0x5A, o.c_bytes);
        o.d.bias = bias + (stride < 0 ? count - 1 : 0) * size;
        o.d.bias_rs = rows ? stride : 0;
        o.d.bias_cs = rows ? 0 : stride;
        cr_assert_eq(wf_gemm(&o.d), WF_GEMM_OK);
        cr_expect_eq(memcmp(plain, o.c, o.c_bytes), 0,
                     "%s %s, %ld of %ld x %ld x %ld, mode %u, bias of %s %ld apart, %d threads",
                     wf_gemm_backend_name(), wf_dtype_name(dtype), (long)h[0], (long)h[1],
                     (long)h[2], (long)h[3], mode, rows ? "rows" : "columns", (long)stride,
                     threads);
    }
    wf_set_num_threads(1);
    free(bias);
    free(plain);
    drop(&o);
}

Test(gemm, bias_is_one_more_addition)
{
    static const int64_t m[] = {1, 2, 5, 6, 7, 13, 64, 65, 130, 300},
                         n[] = {1, 3, 8, 16, 19, 24, 33, 64, 100, 520},
                         k[] = {0, 1, 3, 31, 64, 256, 257, 300, 700};
    static const int64_t long_sums[][4] = {{1, 40, 50, 4096}, {1, 1, 1, 300000}, {1, 2100, 40, 32}};
    for (size_t b = 0; b < BACKENDS; b++) {
        wf_gemm_set_backend(backends[b]);
        for (int i = 0; i < 8 * (int)effort_of(40); i++) {
            const int64_t h[] = {between(1, 9) / 8 + 1, m[between(0, 9)], n[between(0, 9)],
                                 k[between(0, 8)]};
            one_more_addition(i % 3 ? WEFT_F32 : WEFT_F64, h, (unsigned)between(0, 127),
                              (int64_t[]){1, 0, 2, 1, -1}[i % 5], i / 4 % 2);
        }
        for (int i = 0; i < 6; i++)
            one_more_addition(WEFT_F32, long_sums[i / 2], 0, 1, i % 2);
    }
}

/* Matrices whose elements are not neighbours along a row nor along a column: backwards, every other one, one row or one column for all.
 * Strides of rows and columns of m x n: elements, and how many n and m. */
static const int8_t view_strides[][4] = {{0, 2, 2, 0},  {0, -1, -1, 0}, {0, 1, -1, 0},
                                         {1, 0, 0, -1}, {2, 0, 0, 2},   {0, 0, 1, 0},
                                         {1, 0, 0, 0},  {-2, 0, 0, 2}};
enum { VIEWS = sizeof view_strides / sizeof *view_strides };

/* Such a view of `room`, and its elements in rows. */
static const void *view_of(int dtype, const char *room, size_t which, int64_t m, int64_t n,
                           int64_t *rs, int64_t *cs, char *dense)
{
    const int8_t *v = view_strides[which];
    const int64_t size = (int64_t)wf_dtype_size(dtype);
    *rs = v[0] + v[1] * n, *cs = v[2] + v[3] * m;
    room -= ((*rs < 0 ? (m - 1) * *rs : 0) + (*cs < 0 ? (n - 1) * *cs : 0)) * size;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            memcpy(dense + (i * n + j) * size, room + (i * *rs + j * *cs) * size, (size_t)size);
    return room;
}

static void product_of_views(int dtype, const int64_t *h, size_t va, size_t vb)
{
    operands o = make(dtype, 1, h[0], h[1], h[2], 12), dense = make(dtype, 1, h[0], h[1], h[2], 0);
    o.d.a = view_of(dtype, o.a, va, h[0], h[2], &o.d.a_rs, &o.d.a_cs, dense.a);
    o.d.b = view_of(dtype, o.b, vb, h[2], h[1], &o.d.b_rs, &o.d.b_cs, dense.b);
    cr_assert_eq(wf_gemm(&o.d), 0);
    check(&o, "views");
    cr_assert_eq(wf_gemm(&dense.d), 0);
    const bool other_kernels = dtype == WEFT_BF16 && wf_gemm_pairs_active();
    cr_assert(other_kernels || memcmp(o.c, dense.c, o.c_bytes) == 0,
              "%s, views %zu and %zu, %ld x %ld x %ld: not the bits of dense copies",
              wf_dtype_name(dtype), va, vb, (long)h[0], (long)h[1], (long)h[2]);
    drop(&o);
    drop(&dense);
}

Test(gemm, views)
{
    static const int64_t shapes[][3] = {
        {5, 7, 9}, {64, 64, 64}, {17, 33, 64}, {65, 70, 300}, {200, 35, 257}};
    wf_gemm_set_backend(WF_GEMM_BUILTIN);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t v = s % 2; v < VIEWS * VIEWS; v += effort_of(4) < 4 || s > 2 ? 3 : 1) {
            product_of_views(WEFT_F16, shapes[s], v % VIEWS, v / VIEWS);
            product_of_views(WEFT_BF16, shapes[s], v % VIEWS, v / VIEWS);
            product_of_views(WEFT_F32, shapes[s], v % VIEWS, v / VIEWS);
            product_of_views(WEFT_F64, shapes[s], v % VIEWS, v / VIEWS);
        }
}

/* One row by a matrix that is brought together in several pieces. */
Test(gemm, bias_of_pieces)
{
    static const int64_t shapes[][2] = {{900, 20}, {3000, 100}, {300, 100}, {17, 900}};
    for (size_t b = 0; b < 2 * BACKENDS; b++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (unsigned mode = 0; mode < 16; mode += 2) {
                const int dtype = b % 2 ? WEFT_F16 : WEFT_BF16;
                wf_gemm_set_backend(backends[b / 2]);
                operands o = make(dtype, 1, 1, shapes[s][0], shapes[s][1], mode);
                uint16_t *bias = malloc((size_t)o.d.n * sizeof *bias);
                for (int64_t j = 0; j < o.d.n; j++)
                    wf_float_put(bias, dtype, j, (double)between(-1000, 1000) / 50.0);
                o.d.bias = bias + o.d.n - 1;
                o.d.bias_cs = -1;
                cr_assert_eq(wf_gemm(&o.d), WF_GEMM_OK);
                check(&o, "bias");
                free(bias);
                drop(&o);
            }
}

Test(gemm, empty_and_k_zero)
{
    for (size_t b = 0; b < BACKENDS; b++) {
        wf_gemm_set_backend(backends[b]);
        for (size_t t = 0; t < 4; t++) {
            operands o = make(float_types[t], 2, 5, 7, 0, 64);
            cr_assert_eq(wf_gemm(&o.d), 0);
            check(&o, "k = 0");
            check_gaps(&o);
            drop(&o);
            o = make(float_types[t], 2, 0, 7, 3, 0);
            cr_assert_eq(wf_gemm(&o.d), 0);
            o.d.n = 0;
            o.d.m = 4;
            cr_assert_eq(wf_gemm(&o.d), 0);
            o.d.n = 7;
            o.d.batch = 0;
            cr_assert_eq(wf_gemm(&o.d), 0);
            for (size_t x = 0; x < o.c_bytes; x++)
                cr_assert(((unsigned char *)o.c)[x] == 0x5A);
            drop(&o);
        }
    }
}

Test(gemm, refuses)
{
    wf_gemm_desc d = {.dtype = WEFT_BOOL, .m = 1, .n = 1, .k = 1, .batch = 1};
    cr_assert_eq(wf_gemm(&d), WF_GEMM_UNSUPPORTED);
    d.dtype = 77;
    cr_assert_eq(wf_gemm(&d), WF_GEMM_UNSUPPORTED);
    d.dtype = WEFT_F32;
    d.m = -1;
    cr_assert_eq(wf_gemm(&d), WF_GEMM_UNSUPPORTED);
}

/* inf * 0 is NaN and must reach exactly the row and column of C that contain it. */
Test(gemm, nan_and_inf_propagate)
{
    for (size_t b = 0; b < BACKENDS; b++) {
        wf_gemm_set_backend(backends[b]);
        for (size_t t = 0; t < 4; t++)
            for (unsigned mode = 0; mode < 4; mode++)
                for (int64_t m = 1; m <= 13; m += 4) {
                    int dt = float_types[t];
                    operands o = make(dt, 1, m, 35, 67, mode);
                    wf_gemm_desc *d = &o.d;
                    for (int64_t p = 0; p < d->k; p++)
                        wf_float_put(o.a, dt, p * d->a_cs, 0);
                    wf_float_put(o.b, dt, 3 * d->b_rs + 5 * d->b_cs, INFINITY);
                    wf_float_put(o.b, dt, 66 * d->b_rs + 34 * d->b_cs, NAN);
                    cr_assert_eq(wf_gemm(d), 0);
                    for (int64_t i = 0; i < m; i++)
                        for (int64_t j = 0; j < d->n; j++) {
                            double x = wf_float_load(o.c, dt, i * d->c_rs + j);
                            if (j == 34 || (i == 0 && j == 5))
                                cr_assert(isnan(x), "c[%ld][%ld] = %g", (long)i, (long)j, x);
                            else if (j != 5)
                                cr_assert(i ? isfinite(x) : x == 0);
                            else
                                cr_assert(!isfinite(x));
                        }
                    drop(&o);
                }
    }
}

/* An odd k ends with half a pair of bf16: an infinity in it is multiplied by what it meets, and by no padding. */
Test(gemm, infinity_in_the_last_term)
{
    static const int64_t shapes[][3] = {{24, 24, 35},   {88, 65, 9},    {130, 200, 67},
                                        {300, 300, 67}, {600, 70, 255}, {14, 300, 301}};
    for (size_t b = 0; b < BACKENDS; b++)
        for (size_t t = 0; t < 4; t++)
            for (unsigned variant = 0; variant < 8; variant++)
                for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
                    wf_gemm_set_backend(backends[b]);
                    const int dt = float_types[t];
                    const bool in_a = variant & 4;
                    operands o = make(dt, 1, shapes[s][0], shapes[s][1], shapes[s][2], variant & 3);
                    const wf_gemm_desc *d = &o.d;
                    for (int64_t i = 0; i < d->m * d->k; i++)
                        wf_float_put(o.a, dt, i, 1);
                    for (int64_t i = 0; i < d->k * d->n; i++)
                        wf_float_put(o.b, dt, i, 1);
                    const int64_t last = d->k - 1;
                    wf_float_put(in_a ? o.a : o.b, dt,
                                 in_a ? d->a_rs + last * d->a_cs : last * d->b_rs + d->b_cs,
                                 INFINITY);
                    cr_assert_eq(wf_gemm(d), 0);
                    for (int64_t i = 0; i < d->m; i++)
                        for (int64_t j = 0; j < d->n; j++) {
                            const double x = wf_float_load(o.c, dt, i * d->c_rs + j);
                            cr_assert((in_a ? i : j) == 1 ? x == INFINITY : isfinite(x),
                                      "%s %s variant %u m %ld n %ld k %ld: c[%ld][%ld] = %g",
                                      wf_gemm_backend_name(), wf_dtype_name(dt), variant,
                                      (long)d->m, (long)d->n, (long)d->k, (long)i, (long)j, x);
                        }
                    drop(&o);
                }
}

Test(gemm, same_bits_at_any_thread_count)
{
    static const int64_t shapes[][4] = {
        {1, 1, 700, 900},  {1, 300, 1, 1500},  {1, 257, 301, 129}, {7, 33, 65, 40},
        {1, 64, 65, 1027}, {3, 100, 129, 255}, {1, 8, 1024, 512},  {2, 500, 70, 600},
        {1, 3, 5, 20000},  {40, 8, 8, 64},     {1, 530, 40, 530},  {1, 260, 530, 520},
        {1, 24, 600, 300}, {1, 40, 2000, 40}, /* a transposed B stays as it lies, in two pieces, */
        {1, 60, 130, 300},                    /* and on one thread only */
        {1, 70, 90, 3001}, {1, 1, 1, 600000},  {1, 131, 160, 200}, {1, 1, 3585, 1200},
        {1, 1, 2600, 900},  /* a last column alone in eight pieces; rows of a view */
        {1, 1, 521, 4100}}; /* past a thread's caches for one, not for seven */
    static const int threads[] = {1, 2, 3, 7};
    const size_t turns = effort_option("WEFT_TEST_TURN", 0);
    int before = wf_num_threads();
    for (size_t b = 0; b < BACKENDS; b++) {
        wf_gemm_set_backend(backends[b]);
        for (size_t t = 0; t < 4; t++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes && is_another(b, t); s++)
                for (unsigned mode = 0; mode < 4; mode++) {
                    const int64_t *h = shapes[s];
                    if (!effort_walks(mode + s + t, 2))
                        continue;
                    operands o = make(float_types[t], h[0], h[1], h[2], h[3], mode);
                    void *first = malloc(o.c_bytes);
                    for (size_t c = 0; c < 4; c += EFFORT_THREAD_STEP) {
                        wf_set_num_threads(threads[c]);
                        memset(o.c, 0x5A, o.c_bytes);
                        cr_assert_eq(wf_gemm(&o.d), 0);
                        if (c == 0)
                            memcpy(first, o.c, o.c_bytes);
                        cr_assert_eq(memcmp(first, o.c, o.c_bytes), 0,
                                     "%s %s shape %zu mode %u differs with %d threads",
                                     wf_gemm_backend_name(), wf_dtype_name(float_types[t]), s, mode,
                                     threads[c]);
                    }
                    /* the reference is slow, under sanitizers more so: layouts take turns, two of four here (one, sanitized) and others of
                     * the next back end and, with WEFT_TEST_TURN, of another commit: all of four, as effort_walks leaves those of one
                     * parity, which a step of two would never leave for the other */
                    const size_t turn = (mode + s + t + 2 * b + turns) % 4;
                    if (turn < (effort_of(4) + 1) / 2 && h[1] * h[2] * h[3] < 20000000)
                        check(&o, "cut into blocks");
                    free(first);
                    drop(&o);
                }
    }
    wf_set_num_threads(before);
}

/* x[rows][columns] of elements of `size` bytes as [columns][rows]. */
static void *turned(const void *x, int64_t rows, int64_t columns, size_t size)
{
    char *out = malloc((size_t)(rows * columns) * size);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            memcpy(out + (size_t)(j * rows + i) * size,
                   (const char *)x + (size_t)(i * columns + j) * size, size);
    return out;
}

/* The product of o, all dense and row-major, in each of the ways to write it down: the bits of the first one, or (again) of what
 * o.c holds. False where it is refused. */
static bool every_way(operands *o, bool again)
{
    const wf_gemm_desc *d = &o->d;
    const size_t size = wf_dtype_size(d->dtype), bytes = (size_t)(d->m * d->n) * size;
    void *at = turned(o->a, d->m, d->k, size), *bt = turned(o->b, d->k, d->n, size);
    void *got = malloc(bytes), *first = o->c;
    bool refused = false;
    for (int way = 0; way < 8; way++) {
        const bool swapped = way & 1, a_turned = way & 2, b_turned = way & 4;
        wf_gemm_desc g = *d;
        g.a = a_turned ? at : o->a, g.a_rs = a_turned ? 1 : d->k, g.a_cs = a_turned ? d->m : 1;
        g.b = b_turned ? bt : o->b, g.b_rs = b_turned ? 1 : d->n, g.b_cs = b_turned ? d->k : 1;
        g.c = way == 0 && !again ? first : got;
        if (swapped) {
            const wf_gemm_desc t = g;
            g.m = t.n, g.n = t.m, g.c_rs = g.c_bs = t.m;
            g.a = t.b, g.a_rs = t.b_cs, g.a_cs = t.b_rs;
            g.b = t.a, g.b_rs = t.a_cs, g.b_cs = t.a_rs;
        }
        if (way == 4 && d->m % 2 == 0 && d->m > 2) /* halves of the rows */
            g.batch = 2, g.m /= 2, g.a_bs = g.m * g.a_rs, g.b_bs = 0, g.c_bs = g.m * g.c_rs;
        const int rc = wf_gemm(&g);
        cr_assert(rc == 0 || (rc == WF_GEMM_UNSUPPORTED && (refused || way == 0)));
        refused = rc != 0;
        if (refused)
            continue;
        void *plain = swapped ? turned(got, d->n, d->m, size) : g.c;
        cr_assert_eq(memcmp(first, plain, bytes), 0, "%s %s %ld x %ld x %ld differs when it is %d",
                     wf_gemm_backend_name(), wf_dtype_name(d->dtype), (long)d->m, (long)d->n,
                     (long)d->k, way);
        if (swapped)
            free(plain);
    }
    free(got), free(at), free(bt);
    return !refused;
}

/* The one order of sums: the bits of f32 and f64, beside those of vectors, are those of the built-in kernels on every back end. */
Test(gemm, one_order)
{
    enum { RANDOM_SHAPES = 200 };
    for (size_t t = 0; t < 4; t++)
        for (int i = 0; i < (int)effort_of(RANDOM_SHAPES); i++) {
            const int64_t m = between(1, between(0, 3) ? 80 : 400),
                          n = between(1, between(0, 3) ? 80 : 400);
            operands o = make(float_types[t], 1, m, n, between(1, 700), 0);
            o.d.one_order = 1;
            const bool vector = m == 1 || n == 1,
                       halves = float_types[t] == WEFT_BF16 || float_types[t] == WEFT_F16;
            bool compared = false;
            for (size_t b = 0; b < BACKENDS; b++) {
                wf_gemm_set_backend(backends[b]);
                if (!is_another(b, t) && b > 0)
                    continue;
                const bool done = every_way(&o, compared && !halves);
                cr_assert(done || backends[b] != WF_GEMM_BUILTIN);
                /* all of f32 is the kernels' there */
                cr_assert(done || float_types[t] != WEFT_F32 || wf_isa() != WF_ISA_AVX2);
                compared |= done && !vector;
            }
            drop(&o);
        }
}

static void nothing(void *arg, int64_t begin, int64_t end)
{
    (void)arg, (void)begin, (void)end;
}

/* What wakes nobody is cut where workers happen to be awake: each product comes right behind a job of theirs. */
Test(gemm, same_bits_whoever_is_awake)
{
    static const int64_t shapes[][3] = {{64, 64, 64},  {48, 64, 80},  {70, 65, 60},
                                        {100, 40, 90}, {129, 33, 70}, {20, 300, 30}};
    const int before = wf_num_threads();
    wf_gemm_set_backend(WF_GEMM_AUTO);
    for (size_t t = 0; t < 4; t++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (unsigned mode = 0; mode < 4; mode++) {
                const int64_t *h = shapes[s];
                operands o = make(float_types[t], 1, h[0], h[1], h[2], mode);
                void *first = malloc(o.c_bytes);
                for (int round = 0; round < 20; round++) {
                    wf_set_num_threads(round ? 1 + round % 3 : 1);
                    memset(o.c, 0x5A, o.c_bytes);
                    wf_parallel_for(8, 1, nothing, NULL);
                    cr_assert_eq(wf_gemm(&o.d), 0);
                    if (round == 0)
                        memcpy(first, o.c, o.c_bytes);
                    cr_assert_eq(memcmp(first, o.c, o.c_bytes), 0, "%s shape %zu mode %u round %d",
                                 wf_dtype_name(float_types[t]), s, mode, round);
                }
                check(&o, "shared with the awake");
                free(first);
                drop(&o);
            }
    wf_set_num_threads(before);
}

#define CHECK_INT(U, S, dt)                                                                        \
    do {                                                                                           \
        for (int t = 0; t < 30; t++) {                                                             \
            int64_t m = between(1, 20), n = between(1, 70), k = between(0, 30), batch = 2;         \
            k = t % 10 ? k : between(129, 300); /* more terms than are packed at once */           \
            unsigned mode = (unsigned)rng() & 3;                                                   \
            U *a = malloc((size_t)(batch * m * k + 1) * sizeof *a);                                \
            U *b = malloc((size_t)(n * k + 1) * sizeof *b);                                        \
            U *c = malloc((size_t)(batch * m * n) * sizeof *c);                                    \
            for (int64_t i = 0; i < batch * m * k; i++)                                            \
                a[i] = (U)rng();                                                                   \
            for (int64_t i = 0; i < n * k; i++)                                                    \
                b[i] = (U)rng();                                                                   \
            wf_gemm_desc d = {.dtype = (dt), .m = m, .n = n, .k = k, .batch = batch};              \
            d.a = a, d.b = b, d.c = c;                                                             \
            d.a_rs = mode & 1 ? 1 : k, d.a_cs = mode & 1 ? m : 1, d.a_bs = m * k;                  \
            d.b_rs = mode & 2 ? 1 : n, d.b_cs = mode & 2 ? k : 1;                                  \
            d.c_rs = n, d.c_bs = m * n;                                                            \
            cr_assert_eq(wf_gemm(&d), 0);                                                          \
            for (int64_t s = 0; s < batch; s++)                                                    \
                for (int64_t i = 0; i < m; i++)                                                    \
                    for (int64_t j = 0; j < n; j++) {                                              \
                        U sum = 0;                                                                 \
                        for (int64_t p = 0; p < k; p++)                                            \
                            sum = (U)(sum + (uint64_t)a[s * m * k + i * d.a_rs + p * d.a_cs] *     \
                                                b[p * d.b_rs + j * d.b_cs]);                       \
                        cr_assert(c[(s * m + i) * n + j] == sum, "%s", wf_dtype_name(dt));         \
                    }                                                                              \
            free(a), free(b), free(c);                                                             \
        }                                                                                          \
    } while (0)

ONE_THREAD_END

/* What `done` was called for: rows as they were then, and how often. */
typedef struct finished {
    const wf_gemm_desc *d;
    char *rows;
    _Atomic int *calls; /* of each row */
} finished;

static void note_rows(void *arg, int64_t batch, int64_t row, int64_t count)
{
    const finished *f = arg;
    const int64_t size = (int64_t)wf_dtype_size(f->d->dtype), bytes = f->d->n * size;
    for (int64_t i = row; i < row + count; i++) {
        const int64_t at = batch * f->d->m + i;
        memcpy(f->rows + at * bytes,
               (const char *)f->d->c + (batch * f->d->c_bs + i * f->d->c_rs) * size, (size_t)bytes);
        atomic_fetch_add(&f->calls[at], 1);
    }
}

/* Either for every row once, when it is finished, or for none. */
Test(gemm, finished_rows_are_handed_on)
{
    static const struct {
        int dtype;
        int64_t batch, m, n, k;
        int blocks; /* whole rows in at least so many; 0: not said */
    } cases[] = {{WEFT_F32, 1, 2048, 96, 128, 8}, {WEFT_BF16, 1, 2048, 96, 128, 8},
                 {WEFT_F64, 1, 2048, 96, 128, 8}, {WEFT_F32, 16, 300, 40, 64, 16},
                 {WEFT_F32, 1, 64, 4096, 64, 0},  {WEFT_F32, 1, 4096, 1, 64, 0},
                 {WEFT_F32, 2, 3, 5, 0, 0},       {WEFT_F32, 1, 40, 40, 40, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int threads = 1; threads <= 8; threads++) {
            operands o =
                make(cases[i].dtype, cases[i].batch, cases[i].m, cases[i].n, cases[i].k, 0);
            const int64_t rows = o.d.batch * o.d.m;
            const size_t bytes = (size_t)(rows * o.d.n) * wf_dtype_size(o.d.dtype);
            finished f = {&o.d, malloc(bytes), calloc((size_t)rows, sizeof *f.calls)};
            o.d.done = note_rows;
            o.d.done_arg = &f;
            wf_set_num_threads(threads);
            const int rc = wf_gemm(&o.d);
            cr_assert(rc == WF_GEMM_DONE || rc == WF_GEMM_OK);
            cr_expect(rc == WF_GEMM_DONE || threads > cases[i].blocks, "case %zu, %d threads", i,
                      threads);
            for (int64_t r = 0; r < rows; r++)
                cr_assert_eq(f.calls[r], rc == WF_GEMM_DONE, "case %zu, row %lld", i, (long long)r);
            cr_expect(rc == WF_GEMM_OK || memcmp(f.rows, o.c, bytes) == 0, "case %zu", i);
            free(f.rows);
            free((void *)f.calls);
            drop(&o);
        }
    }
    wf_set_num_threads(1);
}

/* Two threads that meet in `done`. */
typedef struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t met;
    pthread_t first;
    struct timespec end; /* of all waiting */
    bool anyone, both;
} meeting;

static void wait_for_another(void *arg, int64_t batch, int64_t row, int64_t count)
{
    meeting *m = arg;
    (void)batch, (void)row, (void)count;
    pthread_mutex_lock(&m->lock);
    if (!m->anyone) {
        m->anyone = true, m->first = pthread_self();
        clock_gettime(CLOCK_REALTIME, &m->end);
        m->end.tv_sec += 20;
    }
    if (!pthread_equal(m->first, pthread_self()))
        m->both = true, pthread_cond_broadcast(&m->met);
    while (!m->both && pthread_cond_timedwait(&m->met, &m->lock, &m->end) == 0)
        ;
    pthread_mutex_unlock(&m->lock);
}

/* A product with an epilogue is shared: a thread that has finished rows need not wait long for one that does, too. */
Test(gemm, rows_handed_on_are_of_several_threads)
{
    static const int64_t shapes[][4] = {
        {1, 256, 512, 256}, {1, 2048, 96, 128}, {1, 64, 1024, 512}, {16, 96, 64, 128}};
    const int before = wf_num_threads();
    for (size_t b = 0; b < BACKENDS; b++) {
        wf_gemm_set_backend(backends[b]);
        for (size_t t = 0; t < 4; t++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes && is_another(b, t); s++)
                for (int threads = 2; threads <= 3; threads++) {
                    const int64_t *h = shapes[s];
                    operands o = make(float_types[t], h[0], h[1], h[2], h[3], s % 2 ? 0 : 2);
                    meeting m = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                 .met = PTHREAD_COND_INITIALIZER};
                    o.d.done = wait_for_another;
                    o.d.done_arg = &m;
                    wf_set_num_threads(threads);
                    const int rc = wf_gemm(&o.d);
                    cr_assert(rc == WF_GEMM_DONE || rc == WF_GEMM_OK);
                    cr_expect(m.both || rc == WF_GEMM_OK, "%s %s shape %zu, %d threads",
                              wf_gemm_backend_name(), wf_dtype_name(float_types[t]), s, threads);
                    /* turned a panel at a time, for which columns are faster (gemm.c) */
                    const bool by_columns = s == 0 && float_types[t] == WEFT_F32 &&
                                            wf_isa() == WF_ISA_AVX512 && wf_amd();
                    cr_expect(rc == WF_GEMM_DONE || s == 2 || by_columns ||
                                  (threads == 3 && h[0] == 1),
                              "%s %s shape %zu, %d threads: no rows", wf_gemm_backend_name(),
                              wf_dtype_name(float_types[t]), s, threads);
                    drop(&o);
                }
    }
    wf_set_num_threads(before);
}

/* Sums of half types are f32 beside the result: of a part of it, at any number of threads. */
Test(gemm, half_products_need_little_beside)
{
    enum { N = 4096, BESIDE = 40 << 20 /* of 64 MiB for the whole */ };
    for (int threads = 1; threads <= 2; threads++) {
        for (int dtype = WEFT_F16; dtype <= WEFT_BF16; dtype++) {
            operands o = make(dtype, 1, N, N, 4, 0);
            wf_alloc_stats s;
            wf_set_num_threads(threads);
            wf_alloc_reset_peak();
            wf_alloc_get_stats(&s);
            const int64_t before = s.live_bytes;
            cr_assert_eq(wf_gemm(&o.d), WF_GEMM_OK);
            wf_alloc_get_stats(&s);
            cr_expect_leq(s.peak_bytes - before, BESIDE, "type %d, %d threads", dtype, threads);
            drop(&o);
        }
    }
    wf_set_num_threads(1);
}

/* a * b + 0 of every element, rounded once, by whichever way: thin products go elementwise, wider ones by tiles. */
Test(gemm, sums_of_one_term)
{
    static const struct {
        int64_t batch, m, n;
        unsigned mode;
    } cases[] = {{1, 1, 5003, 0},      {1, 5003, 1, 0}, {2, 3, 700, 64 + 8},
                 {3, 700, 7, 64 + 16}, {2, 1, 900, 32}, {1, 40, 101, 64},
                 {2, 33, 65, 4 + 8},   {1, 9, 30, 0},   {1, 800, 701, 8}};
    static const double rare[] = {-0.0, 0, INFINITY, NAN, 0x1p-14, -0x1p-20, 1};
    wf_gemm_set_backend(WF_GEMM_AUTO);
    for (size_t t = 0; t < sizeof float_types / sizeof *float_types; t++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            const int dtype = float_types[t];
            operands o = make(dtype, cases[c].batch, cases[c].m, cases[c].n, 1, cases[c].mode);
            const wf_gemm_desc *d = &o.d;
            for (int64_t i = 0; i < d->m && i < 7; i++)
                wf_float_put(o.a, dtype, i * d->a_rs, rare[(i + 6) % 7]);
            for (int64_t j = 0; j < d->n && j < 7; j++)
                wf_float_put(o.b, dtype, j * d->b_cs, rare[j]);
            cr_assert_eq(wf_gemm(d), WF_GEMM_OK);
            check_gaps(&o);
            for (int64_t r = 0; r < d->batch * d->m * d->n; r++) {
                const int64_t s = r / (d->m * d->n), i = r / d->n % d->m, j = r % d->n;
                const double a = wf_float_load(d->a, dtype, s * d->a_bs + i * d->a_rs),
                             b = wf_float_load(d->b, dtype, s * d->b_bs + j * d->b_cs);
                const double got = wf_float_load(d->c, dtype, s * d->c_bs + i * d->c_rs + j);
                double one[1], want = a * b + 0.0;
                wf_float_put(one, dtype, 0, dtype == WEFT_F64 ? want : (double)(float)want);
                want = wf_float_load(one, dtype, 0);
                cr_assert(isnan(want) ? isnan(got) : memcmp(&want, &got, sizeof got) == 0,
                          "%s: %a * %a is %a, not %a", wf_dtype_name(dtype), a, b, got, want);
            }
            drop(&o);
        }
}

Test(gemm, integers_wrap)
{
    CHECK_INT(uint8_t, int8_t, WEFT_U8);
    CHECK_INT(uint8_t, int8_t, WEFT_I8);
    CHECK_INT(uint16_t, int16_t, WEFT_I16);
    CHECK_INT(uint32_t, int32_t, WEFT_I32);
    CHECK_INT(uint64_t, int64_t, WEFT_I64);
}

static void *caller(void *arg)
{
    operands *o = arg;
    void *first = malloc(o->c_bytes);
    wf_gemm(&o->d);
    memcpy(first, o->c, o->c_bytes);
    intptr_t bad = 0;
    for (int t = 0; t < (int)effort_of(CALLS); t++) {
        memset(o->c, 0x5A, o->c_bytes);
        bad |= wf_gemm(&o->d) != 0;
        bad |= memcmp(first, o->c, o->c_bytes) != 0;
    }
    free(first);
    return (void *)bad;
}

Test(gemm, two_callers)
{
    for (size_t b = 0; b < BACKENDS; b++) {
        wf_gemm_set_backend(backends[b]);
        operands o[2] = {make(WEFT_F32, 1, 130, 140, 150, 64), make(WEFT_BF16, 1, 90, 200, 64, 66)};
        pthread_t id[2];
        for (int t = 0; t < 2; t++)
            cr_assert_eq(pthread_create(&id[t], NULL, caller, &o[t]), 0);
        for (int t = 0; t < 2; t++) {
            void *bad;
            pthread_join(id[t], &bad);
            cr_assert_null(bad);
            check(&o[t], "two callers");
            drop(&o[t]);
        }
    }
}
