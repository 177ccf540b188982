/*
 * tests/jit/test_cuda_golden.c -- the CUDA text of one kernel of each kind, compared with tests/golden/cuda/NAME.cu: neither
 * NVRTC nor a device is needed, and a change of the renderer shows as a change of text. WEFT_ACCEPT=1 rewrites the files.
 *
 * From the kernel on, or from what its element types are; the helpers before that are the same for all.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "jit/ir/cuda_text.h"
#include "jit/lower.h"
#include "tests/jit/kernel_support.h"
#include "tests/jit/programs.h"
#include "tests/support/support.h"

static int seen;

static void check_golden(const char *name, const wf_text *text, const char *from)
{
    static char want[1 << 17];
    char path[300];
    cr_assert(!text->failed);
    const char *got = strstr(text->s, from);
    cr_assert(got, "%s: no %s in the text", name, from);
    snprintf(path, sizeof path, "%s/tests/golden/cuda/%s.cu", WEFT_SOURCE_DIR, name);
    if (getenv("WEFT_ACCEPT")) {
        FILE *f = fopen(path, "w");
        cr_assert(f && fputs(got, f) >= 0 && fclose(f) == 0, "%s cannot be written", path);
    }
    FILE *f = fopen(path, "r");
    cr_assert(f, "%s is missing: WEFT_ACCEPT=1 makes it", path);
    want[fread(want, 1, sizeof want - 1, f)] = '\0';
    fclose(f);
    check_text(name, got, want);
    seen++;
}

static wf_kernel lowered(wf_program *p, const char *name)
{
    wf_kernel k;
    wf_why why = {0};
    cr_assert_eq(wf_program_finish(p), 0);
    cr_assert_eq(wf_lower_device(p, &k, &why), 0, "%s", why.rule);
    snprintf(k.name, sizeof k.name, "%s", name); /* without the hash */
    return k;
}

/* relu(x) + y * s: bf16 in vectors, y of one element a row; f32 with 64-bit offsets of any strides; bf16 one by one, y of one
 * row; many runs of the first, in place. */
Test(cuda_golden, maps)
{
    static const char *const name[] = {"map_vectors", "map_strides", "map_groups", "map_many"};
    for (int form = 0; form < 4; form++) {
        const bool wide = form == 1;
        wf_program p;
        wf_text text = {0};
        wf_program_init(&p);
        const int type = wide ? WEFT_F32 : WEFT_BF16;
        const int x = wf_program_cast(&p, wf_program_input(&p, type), WEFT_F32);
        const int y = wf_program_cast(&p, wf_program_input(&p, type), WEFT_F32);
        const int s = wf_program_scalar(&p, WEFT_F32);
        const int r = program_map2(&p, WF_OP_ADD, program_map1(&p, WF_OP_RELU, x),
                                   program_map2(&p, WF_OP_MUL, y, s));
        wf_program_output(&p, wf_program_cast(&p, r, type));
        wf_kernel k = lowered(&p, "kernel");
        const wf_cu_map m = {.k = &k,
                             .wide = wide,
                             .rank = wide ? 3 : 2,
                             .vector = form % 3 ? 1 : 4,
                             .groups = form == 2 ? 4 : 1,
                             .inner = {1, wide ? 2 : 1,
                                       form == 2 ? 1
                                       : wide    ? 2
                                                 : 0},
                             .like = {0, wide ? 1 : 0, 2},
                             .many = form == 3 ? 512 : 0,
                             .alias = {0, form == 3}};
        cr_assert_eq(wf_cu_render_map(&m, &text, NULL), 0);
        check_golden(name[form], &text, "WF_EXTERN __global__");
        wf_text_free(&text);
        wf_kernel_free(&k);
    }
    cr_assert_eq(seen, 4);
}

/* The same in bf16 with vectors along the number of the element: y a row for all, and a thread with two vectors at a time; y of a row each for
 * every index of the first of three axes. */
Test(cuda_golden, flat_maps)
{
    for (int form = 0; form < 2; form++) {
        wf_program p;
        wf_text text = {0};
        wf_program_init(&p);
        const int x = wf_program_cast(&p, wf_program_input(&p, WEFT_BF16), WEFT_F32);
        const int y = wf_program_cast(&p, wf_program_input(&p, WEFT_BF16), WEFT_F32);
        const int r = program_map2(&p, WF_OP_ADD, program_map1(&p, WF_OP_RELU, x), y);
        wf_program_output(&p, wf_program_cast(&p, r, WEFT_BF16));
        wf_kernel k = lowered(&p, "kernel");
        const wf_cu_map m = {.k = &k,
                             .flat = true,
                             .rank = 2 + form,
                             .vector = 8,
                             .groups = 2 - form,
                             .dense = 3,
                             .whole = 3,
                             .still = form ? 0 : 4,
                             .inner = {1, 1, 1},
                             .like = {0, 0, 2}};
        cr_assert_eq(wf_cu_render_map(&m, &text, NULL), 0);
        check_golden(form ? "map_flat_parts" : "map_flat_row", &text, "WF_EXTERN __global__");
        wf_text_free(&text);
        wf_kernel_free(&k);
    }
    cr_assert_eq(seen, 2);
}

/* f64 sums of an element's multiples, side by side: lanes of many leave a processor registers for one block of 256 threads (thirty
 * sums of exponentials spilled 844 bytes under two). */
Test(cuda_golden, bounds_leave_registers_for_lanes)
{
    static const struct {
        int sums, vector, blocks;
    } cases[] = {{2, 1, 2}, {23, 1, 2}, {24, 1, 1}, {30, 1, 1}, {23, 2, 2}, {24, 2, 1}, {12, 4, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_program p;
        wf_text text = {0};
        char want[64];
        wf_program_init(&p);
        const int x = wf_program_input(&p, WEFT_F64);
        int y = x, sum = -1;
        for (int k = 0; k < cases[i].sums; k++) {
            y = wf_program_map(&p, WF_OP_ADD, WEFT_F64, 2, (int[]){y, x});
            const int s = wf_program_reduce(&p, WF_OP_SUM, y);
            sum = k ? wf_program_map(&p, WF_OP_ADD, WEFT_F64, 2, (int[]){sum, s}) : s;
        }
        wf_program_output(&p, sum);
        wf_kernel k = lowered(&p, "kernel");
        wf_cu_rows r = {.k = &k, .scheme = WF_CU_WARP, .nk = 1, .nr = 1};
        take_vectors(&r, cases[i].vector, false);
        cr_assert_eq(wf_cu_render_rows(&r, &text, NULL), 0);
        snprintf(want, sizeof want, "__launch_bounds__(256, %d) kernel(", cases[i].blocks);
        cr_expect(strstr(text.s, want), "%d sums, %d elements at once", cases[i].sums,
                  cases[i].vector);
        wf_text_free(&text);
        wf_kernel_free(&k);
    }
}

/* -x of f16 as f16 and as bf16: conversions are calls, whatever primitives they are for the host. */
Test(cuda_golden, halves)
{
    wf_program p;
    wf_text text = {0};
    wf_program_init(&p);
    const int x = wf_program_cast(&p, wf_program_input(&p, WEFT_F16), WEFT_F32);
    const int r = program_map1(&p, WF_OP_NEG, x);
    wf_program_output(&p, wf_program_cast(&p, r, WEFT_F16));
    wf_program_output(&p, wf_program_cast(&p, r, WEFT_BF16));
    wf_kernel k = lowered(&p, "kernel");
    const wf_cu_map m = {.k = &k, .rank = 1, .vector = 8, .inner = {1, 1, 1}};
    cr_assert_eq(wf_cu_render_map(&m, &text, NULL), 0);
    check_golden("map_halves", &text, "#ifndef WF_CALLS");
    wf_text_free(&text);
    wf_kernel_free(&k);
}

/* bf16 gelu(x + y): its quotient is a call, that of what comes after is divided. */
Test(cuda_golden, gelu)
{
    wf_program p;
    wf_text text = {0};
    wf_program_init(&p);
    const int x = wf_program_cast(&p, wf_program_input(&p, WEFT_BF16), WEFT_F32);
    const int y = wf_program_cast(&p, wf_program_input(&p, WEFT_BF16), WEFT_F32);
    const int g = program_map1(&p, WF_OP_GELU, program_map2(&p, WF_OP_ADD, x, y));
    wf_program_output(&p, wf_program_cast(&p, program_map2(&p, WF_OP_DIV, g, y), WEFT_BF16));
    wf_kernel k = lowered(&p, "kernel");
    const wf_cu_map m = {.k = &k, .rank = 1, .vector = 8, .inner = {1, 1, 1}};
    cr_assert_eq(wf_cu_render_map(&m, &text, NULL), 0);
    check_golden("map_gelu", &text, "WF_EXTERN __global__");
    wf_text_free(&text);
    wf_kernel_free(&k);
}

/* What the device has instead of gelu's division, from each float that rcp.approx may give: the next step's bits. */
Test(cuda_golden, quotients_of_gelu)
{
    union {
        float f;
        uint32_t u;
    } a, y, most = {14.5F}, got, want;
    for (a.u = 0; a.u <= most.u; a.u += 40009)
        for (int off = -2; off <= 2; off++) {
            const float n = a.f * -0.5F, d = a.f + 3.125F;
            y.f = 1.0F / d;
            y.u += (uint32_t)off;
            const float z = fmaf(y.f, fmaf(-d, y.f, 1.0F), y.f), q = n * z;
            got.f = fmaf(a.f, fmaf(fmaf(-d, q, n), z, q), -n);
            want.f = fmaf(a.f, n / d, -n);
            cr_assert_eq(got.u, want.u, "%a, %d", (double)a.f, off);
        }
}

static void add_sum(wf_program *p, int dtype)
{
    const int x = wf_program_cast(p, wf_program_input(p, dtype), WEFT_F32);
    wf_program_output(p, wf_program_cast(p, wf_program_reduce(p, WF_OP_SUM, x), dtype));
}

/* max(x) - x: the totals are read again. */
static void add_centre(wf_program *p, int dtype)
{
    const int x = wf_program_input(p, dtype);
    wf_program_output(p, program_map2(p, WF_OP_SUB, wf_program_reduce(p, WF_OP_AMAX, x), x));
}

Test(cuda_golden, reductions)
{
    static const struct {
        const char *name;
        wf_cu_scheme scheme;
        program_maker make;
        int dtype;
        bool shared, shift;
        int many, vector, across, resident;
    } cases[] = {
        {"rows_by_warps", WF_CU_WARP, add_sum, WEFT_BF16, false, false, 0, 0, 0, 0},
        {"rows_of_vectors", WF_CU_WARP, program_softmax, WEFT_BF16, true, false, 0, 4, 0, 0},
        {"rows_between_vectors", WF_CU_BLOCK_ROWS, add_centre, WEFT_F32, false, true, 0, 4, 0, 0},
        {"rows_in_registers", WF_CU_WARP, program_softmax, WEFT_BF16, false, true, 0, 2, 0, 8},
        {"rows_by_blocks", WF_CU_BLOCK_ROWS, add_centre, WEFT_F32, false, false, 0, 0, 0, 0},
        {"columns", WF_CU_OUTER, add_sum, WEFT_F32, false, false, 0, 0, 0, 0},
        {"rows_in_steps", WF_CU_SPLIT, add_sum, WEFT_F32, false, false, 0, 0, 0, 0},
        {"vectors_in_steps", WF_CU_SPLIT, add_sum, WEFT_BF16, false, false, 0, 8, 0, 0},
        {"columns_in_steps", WF_CU_SPLIT_OUTER, add_sum, WEFT_F32, false, false, 0, 0, 0, 0},
        {"columns_in_words", WF_CU_SPLIT_OUTER, add_sum, WEFT_BF16, false, false, 0, 0, 2, 0},
        {"columns_by_threads", WF_CU_COLUMN, add_sum, WEFT_F32, false, false, 0, 0, 0, 0},
        {"sums_of_many", WF_CU_SPLIT, add_sum, WEFT_F32, false, false, 512, 0, 0, 0},
        {"cross_entropy", WF_CU_WARP, program_cross_entropy, WEFT_F32, false, false, 0, 0, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_program p;
        wf_text text = {0};
        wf_why why = {0};
        wf_program_init(&p);
        cases[i].make(&p, cases[i].dtype);
        wf_kernel k = lowered(&p, "kernel");
        wf_cu_rows r = {.k = &k,
                        .scheme = cases[i].scheme,
                        .shared = cases[i].shared,
                        .nk = !cases[i].many,
                        .nr = 1,
                        .many = cases[i].many,
                        .across = cases[i].across,
                        .resident = cases[i].resident};
        take_vectors(&r, cases[i].vector, cases[i].shift);
        cr_assert_eq(wf_cu_render_rows(&r, &text, &why), 0, "%s", why.rule);
        check_golden(cases[i].name, &text, "WF_EXTERN __global__");
        wf_text_free(&text);
        wf_kernel_free(&k);
    }
    cr_assert_eq(seen, 13);
}

/* Gathers and scatters, transposes, a product with its bias, attention. */
Test(cuda_golden, written_by_hand)
{
    static const struct {
        const char *name, *section, *from;
        int n, type[2], wide;
    } cases[] = {{"gather", "select", "#define T0", 1, {WEFT_I32}, 0},
                 {"scatter", "scatter_add", "#define T0", 1, {WEFT_F16}, 0},
                 {"transpose", "transpose", "#define T0", 2, {WEFT_I16, WEFT_I32}, 0},
                 {"concatenation", "join", "#define T0", 1, {WEFT_I32}, 0},
                 {"product_with_bias", "gemm", "#define T0", 2, {WEFT_BF16, WEFT_BF16}, 0},
                 {"attention", "flash", "#define T0", 2, {WEFT_BF16, WEFT_F32}, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_text text = {0};
        wf_why why = {0};
        const wf_cu_hand h = {.section = cases[i].section,
                              .n = cases[i].n,
                              .dtype = {(uint8_t)cases[i].type[0], (uint8_t)cases[i].type[1]},
                              .wide = cases[i].wide};
        cr_assert_eq(wf_cu_render_hand(&h, "kernel", &text, &why), 0, "%s", why.rule);
        check_golden(cases[i].name, &text, cases[i].from);
        wf_text_free(&text);
    }
    cr_assert_eq(seen, 6);
}
