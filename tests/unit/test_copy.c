/*
 * tests/unit/test_copy.c -- casts of every value, copies between layouts, large ones past the caches, fills.
 *
 * ctest: threads optimised
 */
#include "eager/alloc.h"
#include "eager/kernels/kernels.h"
#include "tests/unit/map_support.h"

/* x rounded to `bits` of precision, least exponent emin (of the last bit), greatest value below 2^top. */
static long double round_to(long double x, int bits, int emin, int top)
{
    int e;
    if (x == 0 || isnan(x) || isinf(x))
        return x;
    (void)frexpl(x, &e);
    const int last = e - bits > emin ? e - bits : emin;
    const long double r = ldexpl(rintl(ldexpl(x, -last)), last);
    return fabsl(r) >= ldexpl(1, top) ? copysignl(INFINITY, x) : r;
}

static bool right_cast(const void *got, int to, const void *from, int from_type)
{
    const long double x = value_of(from, from_type), y = value_of(got, to);
    const bool floating = wf_dtype_kind(from_type) == 2;
    if (to == WEFT_BOOL)
        return y == (x != 0);
    if (wf_dtype_kind(to) == 2) {
        const long double want = to == WEFT_F64    ? round_to(x, 53, -1074, 1024)
                                 : to == WEFT_F32  ? round_to(x, 24, -149, 128)
                                 : to == WEFT_BF16 ? round_to(x, 8, -133, 128)
                                                   : round_to(x, 11, -24, 16);
        return isnan(x) ? isnan(y) : y == want && (y != 0 || !floating || signbit(y) == signbit(x));
    }
    const int width = (int)wf_dtype_size(to) * 8;
    if (!floating) { /* wraps: equal modulo 2^width */
        uint64_t a = (uint64_t)(int64_t)x, b = (uint64_t)(int64_t)y;
        return ((a ^ b) << (64 - width)) == 0;
    }
    const long double lo = to == WEFT_U8 ? 0 : -ldexpl(1, width - 1);
    const long double hi = to == WEFT_U8 ? 255 : ldexpl(1, width - 1) - 1;
    const long double t = truncl(x);
    return y == (isnan(x) ? 0 : t < lo ? lo : t > hi ? hi : t);
}

static void check_casts(const wf_view *src)
{
    const int most = isa_most();
    for (int to = WEFT_BOOL; to < WEFT_DTYPE_COUNT; to++)
        for (int isa = 0; isa <= most; isa++) {
            operand d = make(to, 1, src->dims, CONTIGUOUS);
            wf_set_isa(isa);
            wf_copy(&d.v, src);
            for (int64_t i = 0; i < src->dims[0]; i++)
                if (!right_cast(element(&d.v, i), to, element(src, i), src->dtype))
                    cr_assert_fail("%s to %s, %s: %Lg gave %Lg", wf_dtype_name(src->dtype),
                                   wf_dtype_name(to), wf_isa_name(isa),
                                   value_of(element(src, i), src->dtype),
                                   value_of(element(&d.v, i), to));
            free(d.base);
        }
}

/* Millions of them are compared: no call, which ThreadSanitizer would intercept, and Criterion is told of what differs only. */
static inline bool same_element(const char *a, const char *b, int64_t size)
{
    uint64_t x = 0, y = 0;
    switch (size) {
    case 1:
        return *a == *b;
    case 2:
        memcpy(&x, a, 2);
        memcpy(&y, b, 2);
        break;
    case 4:
        memcpy(&x, a, 4);
        memcpy(&y, b, 4);
        break;
    case 8:
        memcpy(&x, a, 8);
        memcpy(&y, b, 8);
        break;
    default:
        return memcmp(a, b, (size_t)size) == 0;
    }
    return x == y;
}

Test(copy, casts_of_every_small_value)
{
    static const int small[] = {WEFT_BOOL, WEFT_U8, WEFT_I8, WEFT_I16, WEFT_F16, WEFT_BF16};
    for (size_t t = 0; t < sizeof small / sizeof *small; t++) {
        const int64_t n = small[t] == WEFT_BOOL ? 2 : wf_dtype_size(small[t]) == 1 ? 256 : 65536;
        operand s = make(small[t], 1, &n, CONTIGUOUS);
        for (int64_t i = 0; i < n; i++)
            memcpy(element(&s.v, i), &i, wf_dtype_size(small[t]));
        if (THIN > 2 && n > 256) /* no thread takes part in one of these */
            s.v.dims[0] = 4096;
        check_casts(&s.v);
        free(s.base);
    }
}

/* Wide sources: random bits, and the neighbourhoods where f16, bf16 and f32 round or overflow. */
Test(copy, casts_of_wide_values)
{
    static const int wide[] = {WEFT_I32, WEFT_I64, WEFT_F32, WEFT_F64};
    enum { N = 60000 / (THIN * THIN) };
    const int64_t n = N;
    for (int t = 0; t < 4; t++) {
        operand s = make(wide[t], 1, &n, CONTIGUOUS);
        for (int64_t i = 0; i < n; i++) {
            uint64_t bits = rng();
            if (i % 3 == 1 &&
                t < 2) { /* a few high bits, then a few low ones: ties and near ties */
                const int shift = (int)(rng() % 55);
                bits = ((bits & 0xFFF) << shift) + (rng() % 3) - 1;
                bits = rng() & 1 ? bits : 0 - bits;
            } else if (i % 3 == 1) {
                const uint64_t cut = t == 2 ? 0xFFFu << (rng() % 4) : 0xFFFFFFFFFFu << (rng() % 4);
                bits = (bits & ~cut) + (rng() % 3) - 1;
                if (t == 3 && i % 2) /* of a size at which bf16 or f16 have few bits, or none */
                    bits = (bits & ~(0x7FFull << 52)) |
                           ((uint64_t)(rng() & 1 ? 880 : 995) + rng() % 24) << 52;
            } else if (i % 3 == 2 &&
                       t >= 2) { /* of which some are all that integers hold, or nearly */
                const double x = sample();
                put(&bits, wide[t], i % 2 ? x : ldexp(x < 0 ? -1 : 1, (int)(rng() % 66)) + x);
            }
            memcpy(element(&s.v, i), &bits, wf_dtype_size(wide[t]));
        }
        check_casts(&s.v);
        free(s.base);
    }
}

/* Casts that store past the caches have the bits of those that do not, at every width, of whole steps and what is left. */
Test(copy, casts_past_caches)
{
    enum { N = 64 * 37 + 45 };
    _Alignas(64) static char from[N * 8], near[N * 8], past[N * 8 + 8];
    const int most = isa_most();
    int found = 0;
    for (int isa = 0; isa <= most; isa++)
        for (int to = WEFT_BOOL; to < WEFT_DTYPE_COUNT; to++)
            for (int type = WEFT_BOOL; type < WEFT_DTYPE_COUNT; type++) {
                wf_set_isa(isa);
                const wf_kernels *k = wf_kernels_now();
                if (!k->cast_past[to][type])
                    continue;
                for (size_t i = 0; i < sizeof from; i += 8) {
                    const uint64_t bits = rng() | (rng() % 16 ? 0 : 0x7F807F807F807F80u);
                    memcpy(from + i, &bits, 8);
                }
                const size_t bytes = N * wf_dtype_size(to);
                memset(past, 1, sizeof past);
                k->cast[to][type](near, from, N);
                k->cast_past[to][type](past, from, N);
                k->fence();
                cr_assert_eq(memcmp(past, near, bytes), 0, "%s to %s, %s", wf_dtype_name(type),
                             wf_dtype_name(to), wf_isa_name(isa));
                cr_assert_eq(past[bytes], 1);
                found++;
            }
    cr_assert_eq(found, 4 * most, "types of casts past the caches"); /* SSE2 has none */
}

Test(copy, layouts_and_sizes)
{
    static const int64_t shapes[][3] = {{1, 1, 1},     {0, 3, 4},    {2, 64, 64},
                                        {1, 129, 200}, {3, 17, 31},  {67, 5, 33},
                                        {1, 300, 7},   {2, 1, 1000}, {1, 40, 4}};
    static const int types[] = {WEFT_U8, WEFT_BF16, WEFT_F32, WEFT_F64};
    const int most = isa_most();
    for (size_t c = 0; c < sizeof shapes / sizeof *shapes; c++)
        for (int t = 0; t < 4; t++)
            for (int pair = 0; pair < 7 * 4; pair++)
                for (int isa = 0; isa <= most; isa++) {
                    if (((int)c + t + pair + isa) % THIN != 0)
                        continue;
                    operand s = make(types[t], 3, shapes[c], (enum layout)(pair % 7));
                    operand d = make(pair % 5 == 4 ? WEFT_F32 : types[t], 3, shapes[c],
                                     (enum layout)(pair / 7));
                    fill_random(&s);
                    memset(d.base, 0x77, d.bytes);
                    char *untouched = malloc(d.bytes);
                    memset(untouched, 0x77, d.bytes);
                    wf_set_isa(isa);
                    wf_copy(&d.v, &s.v);
                    wf_view shadow = d.v;
                    shadow.data = untouched + ((char *)d.v.data - d.base);
                    for (int64_t i = 0; i < wf_view_numel(&d.v); i++) {
                        cr_assert(
                            right_cast(element(&d.v, i), d.v.dtype, element(&s.v, i), types[t]),
                            "shape %zu, layouts %d, element %lld", c, pair, (long long)i);
                        memcpy(element(&shadow, i), element(&d.v, i), wf_dtype_size(d.v.dtype));
                    }
                    cr_assert_eq(memcmp(untouched, d.base, d.bytes), 0, "wrote between elements");
                    free(untouched);
                    free(s.base);
                    free(d.base);
                }
}

/* A transposed source is turned a band of rows at a time and cast from there, or from the result's own memory. */
Test(copy, transposed_casts)
{
    static const int64_t shapes[][2] = {{66, 700}, {20, 1024}, {130, 70}};
    static const int types[][2] = {{WEFT_U8, WEFT_F32},  {WEFT_BF16, WEFT_F32},
                                   {WEFT_F32, WEFT_F16}, {WEFT_F64, WEFT_F32},
                                   {WEFT_I32, WEFT_F32}, {WEFT_F32, WEFT_I64}};
    const int most = isa_most();
    for (int i = 0; i < 3 * 6 * (most + 1); i++) {
        const int *t = types[i / 3 % 6];
        if (i % THIN != 0)
            continue;
        operand s = make(t[0], 2, shapes[i % 3], TRANSPOSED);
        operand d = make(t[1], 2, shapes[i % 3], CONTIGUOUS);
        fill_random(&s);
        wf_set_isa(i / 18);
        wf_set_num_threads(1 + i % 2);
        wf_copy(&d.v, &s.v);
        for (int64_t k = 0; k < wf_view_numel(&d.v); k++)
            cr_assert(right_cast(element(&d.v, k), t[1], element(&s.v, k), t[0]),
                      "%s to %s, element %lld", wf_dtype_name(t[0]), wf_dtype_name(t[1]),
                      (long long)k);
        free(s.base);
        free(d.base);
    }
}

/* Of more than a second cache may hold, whose rows share its sets, blocks as high as wide (on a Zen 5): whole ones and what is left
 * on either side, by one thread and several, and a few rows at a time where there is no memory for a block. */
Test(copy, transposed_casts_by_blocks)
{
    static const int64_t shapes[][2] = {{640, 417}, {512, 275}, {1152, 230}};
    static const int types[][2] = {
        {WEFT_F32, WEFT_BF16}, {WEFT_F64, WEFT_F32}, {WEFT_I32, WEFT_I64}};
    enum { CASES = 7, WITHOUT_MEMORY = CASES - 1 };
    const int most = isa_most();
    for (int i = 0; i < CASES; i++) {
        const int *t = types[i % 3];
        if (i % THIN != 0 && i != WITHOUT_MEMORY)
            continue;
        operand s = make(t[0], 2, shapes[i % 3], TRANSPOSED);
        operand d = make(t[1], 2, shapes[i % 3], CONTIGUOUS);
        fill_random(&s);
        wf_set_isa(i == 4 && most > 0 ? most - 1 : most);
        wf_set_amd(2);
        wf_set_num_threads(i < 3 ? 1 : 3);
        wf_alloc_fail_after(i == WITHOUT_MEMORY, 1);
        wf_copy(&d.v, &s.v);
        wf_alloc_fail_after(0, 0);
        for (int64_t k = 0; k < wf_view_numel(&d.v); k++)
            if (!right_cast(element(&d.v, k), t[1], element(&s.v, k), t[0]))
                cr_assert_fail("%s to %s, element %lld", wf_dtype_name(t[0]), wf_dtype_name(t[1]),
                               (long long)k);
        free(s.base);
        free(d.base);
    }
}

/* Whole and in several chunks against the same copy taken row by row, which is too small for either and
 * whose values the other tests prove. */
Test(copy, large_and_streaming)
{
    /* the second has rows that start on whole lines */
    static const int64_t shapes[][2] = {{2305, 2049}, {2500, 3008}};
    static const int types[] = {WEFT_F32, WEFT_BF16, WEFT_F64};
    char *row = malloc((size_t)shapes[1][1] * 8);
    cr_assert_not_null(row);
    for (int t = 0; t < 3; t++)
        for (int l = 0; l < 2; l++)
            for (int to = 0; to < 3; to++) {
                if ((6 * t + 2 * to + l) % EFFORT_LIST_STEP != 0)
                    continue;
                const int64_t *dims = shapes[to == 2];
                operand s = make(types[t], 2, dims, l ? TRANSPOSED : CONTIGUOUS);
                operand d = make(to == 1 ? WEFT_F32 : types[t], 2, dims, CONTIGUOUS);
                for (size_t i = 0; i < s.bytes; i += 8) {
                    const uint64_t bits = rng() & 0x3FFF3FFF3FFF3FFFu;
                    memcpy(s.base + i, &bits, s.bytes - i < 8 ? s.bytes - i : 8);
                }
                wf_set_isa(WF_NISA);
                wf_set_num_threads(3);
                wf_copy(&d.v, &s.v);
                const size_t bytes = (size_t)dims[1] * wf_dtype_size(d.v.dtype);
                for (int64_t r = 0; r < dims[0]; r += EFFORT_LIST_STEP) {
                    const int64_t first = r * dims[1], at = first + r % dims[1];
                    wf_view from = {.data = element(&s.v, first),
                                    .dtype = s.v.dtype,
                                    .rank = 1,
                                    .dims = {dims[1]},
                                    .strides = {s.v.strides[1]}};
                    wf_view into = {.data = row,
                                    .dtype = d.v.dtype,
                                    .rank = 1,
                                    .dims = {dims[1]},
                                    .strides = {1}};
                    wf_copy(&into, &from);
                    cr_assert_eq(memcmp(row, element(&d.v, first), bytes), 0,
                                 "type %d layout %d to %d row %lld", t, l, to, (long long)r);
                    cr_assert(right_cast(element(&d.v, at), d.v.dtype, element(&s.v, at), types[t]),
                              "type %d layout %d to %d element %lld", t, l, to, (long long)at);
                }
                free(s.base);
                free(d.base);
            }
    free(row);
}

/* Rows that start on lines, a power of two apart (turned along diagonals) and not, of even and odd numbers of lines; rows that
 * do not. Whole, and in shares of workers that are awake. */
Test(copy, transposes)
{
    static const int64_t shapes[][2] = {{256, 256}, {64, 1024}, {512, 128}, {192, 272},
                                        {131, 250}, {1024, 80}, {240, 176}, {224, 352}};
    static const int types[] = {WEFT_U8, WEFT_BF16, WEFT_F32, WEFT_F64};
    const int most = isa_most();
    for (size_t c = 0; c < sizeof shapes / sizeof *shapes; c++)
        for (int t = 0; t < 4; t++) {
            const int64_t m = shapes[c][0], n = shapes[c][1];
            const int64_t size = (int64_t)wf_dtype_size(types[t]);
            const size_t bytes = (size_t)(m * n * size);
            char *from = aligned_alloc(64, (bytes + 63) / 64 * 64);
            char *to = aligned_alloc(64, (bytes + 63) / 64 * 64);
            cr_assert(from && to);
            const wf_view s = {.data = from,
                               .dtype = (uint8_t)types[t],
                               .rank = 2,
                               .dims = {m, n},
                               .strides = {1, m}};
            wf_view d = s;
            d.data = to;
            d.strides[0] = n;
            d.strides[1] = 1;
            for (size_t i = 0; i < bytes; i++)
                from[i] = (char)rng();
            for (int way = 0; way < 6 * (most + 1); way++) {
                const int isa = way / 6;
                memset(to, 0, bytes);
                wf_set_isa(isa);
                wf_set_amd(way % 3);
                wf_set_num_threads(1 + way % 4);
                wake_workers();
                wf_copy(&d, &s);
                for (int64_t i = 0; i < m; i++)
                    for (int64_t j = 0; j < n; j++)
                        if (!same_element(to + (i * n + j) * size, from + (j * m + i) * size, size))
                            cr_assert_fail("%lld x %lld, type %d, isa %d: (%lld, %lld)",
                                           (long long)m, (long long)n, types[t], isa, (long long)i,
                                           (long long)j);
            }
            free(from);
            free(to);
        }
}

/* Rows and columns of every step, rows of one register and more with what is left of them, rows of which strips are written.
 * The source is exactly as long as it has to be, so that ASan sees a read beside it; what lies between rows of the result
 * stays. */
Test(copy, packs_views)
{
    static const int64_t steps[] = {1, -1, 2, -2, 3},
                         extents[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 63, 64, 100, 257, 513};
    enum { EXTENTS = sizeof extents / sizeof *extents, CASES = 24000 / THIN };
    const int most = isa_most();
    for (int c = 0; c < CASES; c++) {
        const int width = c % 4, isa = c / 4 % (most + 1);
        const int64_t size = (int64_t)1 << width;
        const int64_t m = extents[rng() % EXTENTS], n = extents[rng() % EXTENTS];
        if (m * n > 20000 && c % 50 != 0)
            continue;
        const int64_t near = steps[rng() % 5], extra = (int64_t)(rng() % 3);
        const bool turned = rng() % 2;
        const int64_t apart = (near < 0 ? -near : near) * (turned ? m : n) + extra;
        const int64_t far = rng() % 4 == 0 ? -apart : apart;
        const int64_t s1 = turned ? near : far, s0 = turned ? far : near;
        const int64_t low = (s1 < 0 ? s1 * (m - 1) : 0) + (s0 < 0 ? s0 * (n - 1) : 0);
        const int64_t high = (s1 > 0 ? s1 * (m - 1) : 0) + (s0 > 0 ? s0 * (n - 1) : 0);
        const int64_t ldd = n + (int64_t)(rng() % 3);
        char *from = malloc((size_t)((high - low + 1) * size)),
             *to = malloc((size_t)(m * ldd * size));
        cr_assert(from && to);
        for (int64_t i = 0; i < (high - low + 1) * size; i++)
            from[i] = (char)rng();
        memset(to, 0x77, (size_t)(m * ldd * size));
        wf_set_isa(isa);
        wf_kernels_now()->pack[width](to, ldd, from - low * size, s1, s0, (size_t)m, (size_t)n);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < ldd; j++)
                for (int64_t b = 0; b < size; b++)
                    cr_assert_eq(
                        to[(i * ldd + j) * size + b],
                        j < n ? from[(i * s1 + j * s0 - low) * size + b] : 0x77,
                        "%lld x %lld of %lld bytes, steps %lld, %lld, isa %d: (%lld, %lld)",
                        (long long)m, (long long)n, (long long)size, (long long)s1, (long long)s0,
                        isa, (long long)i, (long long)j);
        free(from);
        free(to);
    }
}

/* The kernels alone, at every instruction set, with and without requests ahead of use: whole squares and what is left of them, rows that lie apart. Nothing is read
 * or written beside the operands. (What goes by way of room has whole lines of both.) */
Test(copy, transposes_past_the_caches)
{
    static const int64_t shapes[][2] = {{128, 128}, {256, 64}, {300, 133}, {97, 40},
                                        {31, 16},   {5, 3},    {700, 130}, {20, 130}};
    const int most = isa_most();
    for (size_t c = 0; c < sizeof shapes / sizeof *shapes; c++)
        for (int width = 0; width < WF_NWIDTH; width++) {
            const int64_t size = 1 << width, m = shapes[c][0], n = shapes[c][1], apart = m + 3;
            const int64_t line = 64 / size, row = (n + line - 1) / line * line + line;
            const size_t read = (size_t)((n - 1) * apart + m) * (size_t)size,
                         written = (size_t)(m * row) * (size_t)size;
            char *from = malloc(read), *to = aligned_alloc(64, written), *want = malloc(written);
            cr_assert(from && to && want);
            for (size_t i = 0; i < read; i++)
                from[i] = (char)rng();
            memset(want, 0x77, written);
            for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < n; j++)
                    memcpy(want + (i * row + j) * size, from + (j * apart + i) * size,
                           (size_t)size);
            for (int i = 0; i < 3 * (most + 1); i++) {
                wf_set_isa(i / 3);
                wf_set_amd(i % 3);
                const wf_kernels *k = wf_kernels_now();
                memset(to, 0x77, written);
                k->pack_nt[width](to, row, from, 1, apart, (size_t)m, (size_t)n);
                k->fence();
                cr_assert_eq(memcmp(to, want, written), 0, "%lld x %lld of %lld bytes, isa %d",
                             (long long)m, (long long)n, (long long)size, i / 3);
                const int64_t rows = m & -line, cols = n & -line;
                const size_t most_room = wf_turn_room(rows, cols, size);
                char *room = malloc(most_room + 1);
                cr_assert_not_null(room);
                room[most_room] = 0x55;
                memset(to, 0x77, written);
                if (k->turn_past[width])
                    k->turn_past[width](to, row, from, apart, (size_t)rows, (size_t)cols, room);
                k->fence();
                for (int64_t r = 0; r < m && k->turn_past[width]; r++)
                    for (int64_t b = 0; b < row * size; b++)
                        cr_assert_eq(to[r * row * size + b],
                                     r < rows && b < cols * size ? want[r * row * size + b] : 0x77,
                                     "by way of room: (%lld, byte %lld) of %lld bytes",
                                     (long long)r, (long long)b, (long long)size);
                cr_assert_eq(room[most_room], 0x55);
                free(room);
            }
            free(from);
            free(to);
            free(want);
        }
}

/* Of many matrices, past the caches, rows that start within lines: whole tiles at a row's end, and parts of them. Then rows that start
 * on lines: whole pages of the source's rows and what is left of them, pieces of the result's and parts of them; and without
 * memory for what lies between the two. */
Test(copy, large_transposes)
{
    enum { WITHIN = 2, CASES = 5 };
    static const int64_t shapes[CASES][2] = {
        {1031, 1536}, {1152, 2731}, {1031, 1536}, {600, 704}, {600, 704}};
    static const int types[] = {WEFT_U8, WEFT_BF16, WEFT_F32, WEFT_F64};
    const int most = isa_most();
    for (int c = 0; c < CASES; c++)
        for (int t = 0; t < 4; t++) {
            if ((4 * c + t) % EFFORT_LIST_STEP != 0)
                continue;
            const int64_t size = (int64_t)wf_dtype_size(types[t]), m = shapes[c][0],
                          n = shapes[c][1];
            const int64_t count = (13 << 20) / (m * n * size) + 1; /* 26 MiB are moved */
            const size_t bytes = (size_t)(count * m * n * size);
            char *from = malloc(bytes), *base = aligned_alloc(64, bytes / 64 * 64 + 128);
            cr_assert(from && base);
            char *to = base + (c < WITHIN ? size : 64);
            const wf_view s = {.data = from,
                               .dtype = (uint8_t)types[t],
                               .rank = 3,
                               .dims = {count, m, n},
                               .strides = {m * n, 1, m}};
            wf_view d = s;
            d.data = to;
            d.strides[1] = n;
            d.strides[2] = 1;
            for (size_t i = 0; i < bytes; i++)
                from[i] = (char)(i * 2654435761u >> 11);
            memset(base, 0x77, bytes / 64 * 64 + 128);
            wf_set_isa(c >= WITHIN ? WF_ISA_AVX2 : (c + t) % 2 ? most : (c + t) / 2 % (most + 1));
            wf_set_num_threads(3);
            wf_alloc_fail_after(c + 1 == CASES, 1);
            wf_copy(&d, &s);
            wf_alloc_fail_after(0, 0);
            for (int64_t b = 0; b < count; b++)
                for (int64_t i = 0; i < m; i++)
                    for (int64_t j = 0; j < n; j++)
                        if (!same_element(to + ((b * m + i) * n + j) * size,
                                          from + ((b * n + j) * m + i) * size, size))
                            cr_assert_fail("%lld bytes: (%lld, %lld, %lld)", (long long)size,
                                           (long long)b, (long long)i, (long long)j);
            for (int64_t i = 0; i < size; i++)
                cr_assert(base[i] == 0x77 && to[(int64_t)bytes + i] == 0x77, "wrote beside");
            free(from);
            free(base);
        }
}

/* What is not finite is found wherever it is, at every instruction set, and nothing else is taken for it. */
Test(copy, finite_bf16)
{
    enum { MOST = 150 };
    static const uint16_t largest[] = {0x7F7F, 0xFF7F}, others[] = {0x7F80, 0xFF80, 0x7F81, 0xFFFF};
    uint16_t x[MOST];
    for (int isa = 0; isa <= isa_most(); isa++) {
        wf_set_isa(isa);
        for (size_t n = 0; n <= MOST; n++) {
            for (size_t i = 0; i < n; i++)
                x[i] = largest[i % 2];
            cr_assert(wf_kernels_now()->finite(x, n), "%zu elements, isa %d", n, isa);
            for (size_t i = 0; i < n; i++) {
                const uint16_t was = x[i];
                x[i] = others[(i + n) % 4];
                cr_assert(!wf_kernels_now()->finite(x, n), "%zu of %zu, isa %d", i, n, isa);
                x[i] = was;
            }
        }
    }
    wf_set_isa(WF_NISA);
}

/* One element everywhere, of every type as every other. */
Test(copy, one_element)
{
    static const int64_t dims[2] = {70, 129};
    for (int from = WEFT_BOOL; from < WEFT_DTYPE_COUNT; from++)
        for (int to = WEFT_BOOL; to < WEFT_DTYPE_COUNT; to++) {
            uint64_t v = 0;
            operand d = make(to, 2, dims, from % 2 ? CONTIGUOUS : TRANSPOSED);
            put(&v, from, 3);
            const wf_view src = {.data = &v, .dtype = (uint8_t)from, .rank = 2, .dims = {70, 129}};
            wf_copy(&d.v, &src);
            for (int64_t i = 0; i < 70 * 129; i++)
                cr_assert(right_cast(element(&d.v, i), to, &v, from), "%s to %s",
                          wf_dtype_name(from), wf_dtype_name(to));
            free(d.base);
        }
}

Test(copy, fill)
{
    static const int64_t dims[3] = {7, 33, 65};
    for (int type = WEFT_BOOL; type < WEFT_DTYPE_COUNT; type++)
        for (int l = CONTIGUOUS; l <= TRANSPOSED; l++) {
            operand d = make(type, 3, dims, (enum layout)l);
            uint64_t v;
            put(&v, type, 3);
            wf_fill(&d.v, &v);
            for (int64_t i = 0; i < wf_view_numel(&d.v); i++)
                cr_assert(same(element(&d.v, i), &v, type));
            free(d.base);
        }
}
