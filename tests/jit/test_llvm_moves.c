/*
 * tests/jit/test_llvm_moves.c -- LLVM kernels of permute, gather, scatter_add and matmul, at every width and
 * target, in f32 and bf16.
 *
 * Operands have exactly their size on the heap, so that AddressSanitizer sees reads and writes outside.
 *
 * ctest: timeout=600
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager/exec.h"
#include "tests/jit/llvm_support.h"
#include "tests/jit/moves.h"

static const int dtypes[] = {WEFT_F32, WEFT_BF16};

static wf_exe *move_kernel(wf_skeleton skeleton, int dtype, const wf_target *target, wf_kernel *k)
{
    cr_assert_eq(wf_kernel_of_move(k, skeleton, dtype, NULL), 0);
    return llvm_build(k, target);
}

static void drop(wf_exe *e, wf_kernel *k)
{
    wf_backend_cpu.unload(e);
    wf_kernel_free(k);
}

/* Exactly n elements of exactly that size. */
static void *exact(const void *from, size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    memcpy(p, from, bytes);
    return p;
}

/* In two pieces, as two threads would. */
static void launch(const wf_exe *e, void *const *ptr, const int64_t *size, int64_t n)
{
    const wf_launch l = {ptr, size, NULL, 0, n / 3, 0}, m = {ptr, size, NULL, n / 3, n, 0};
    wf_backend_cpu.launch(e, &l);
    wf_backend_cpu.launch(e, &m);
}

static void check_permute(int dtype, const wf_target *target)
{
    /* dims and strides: permutations, broadcasts, rows longer than a vector, steps of two, nothing */
    static const int64_t sizes[][8] = {
        {4, 3, 7, 5, 7, 140, 1, 28},  {1, 1, 60, 7, 0, 0, 1, 0},  {2, 3, 5, 14, 210, 70, 14, 1},
        {1, 3, 2, 70, 0, 70, 210, 1}, {1, 1, 2, 105, 0, 0, 1, 4}, {1, 1, 1, 420, 0, 0, 0, 1},
        {3, 0, 4, 5, 20, 20, 5, 1},   {7, 5, 4, 3, 1, 84, 21, 7},
    };
    wf_kernel k;
    wf_exe *e = move_kernel(WF_SK_PERMUTE, dtype, target, &k);
    const size_t esize = wf_dtype_size(dtype);
    void *all = values_new(dtype, 420, 0), *x = exact(all, 420 * esize);
    for (size_t c = 0; c < sizeof sizes / sizeof *sizes; c++) {
        wf_view in = {.data = x, .dtype = (uint8_t)dtype, .rank = 4};
        wf_view out = {.dtype = (uint8_t)dtype, .rank = 4};
        int64_t n = 1;
        for (int d = 3; d >= 0; d--) {
            in.dims[d] = out.dims[d] = sizes[c][d];
            in.strides[d] = sizes[c][d + 4];
            out.strides[d] = n;
            n *= sizes[c][d];
        }
        void *got = calloc((size_t)n + 1, esize), *want = calloc((size_t)n + 1, esize);
        out.data = want;
        wf_copy(&out, &in);
        void *ptr[2] = {got, x};
        launch(e, ptr, sizes[c], n);
        llvm_compare(got, want, dtype, n + 1, k.name, target);
        free(got);
        free(want);
    }
    free(all);
    free(x);
    drop(e, &k);
}

Test(llvm_moves, permute)
{
    NEED_LLVM();
    for (size_t w = 0; w < LLVM_NWIDTHS; w++)
        for (int d = 0; d < 2; d++)
            check_permute(dtypes[d], &llvm_widths[w]);
}

static void check_gather(int dtype, const wf_target *target, int64_t width)
{
    enum { ROWS = 11, M = 29 };
    wf_kernel k;
    wf_exe *e = move_kernel(WF_SK_GATHER, dtype, target, &k);
    const size_t esize = wf_dtype_size(dtype), row = (size_t)width * esize;
    void *all = values_new(dtype, ROWS * width, 0), *x = exact(all, ROWS * row);
    int64_t *index = malloc(M * sizeof *index), error = -1;
    for (int i = 0; i < M; i++)
        index[i] = (int64_t)(values_hash((uint64_t)i) % ROWS);
    char *want = calloc(M + 1, row), *got = calloc(M + 1, row);
    moves_gather(dtype, want, x, index, M, width);
    void *ptr[4] = {got, x, index, &error};
    const int64_t size[3] = {M, width, ROWS};
    launch(e, ptr, size, M);
    llvm_compare(got, want, dtype, (M + 1) * width, k.name, target);
    cr_assert_eq(error, -1);
    index[20] = ROWS; /* bad ones are reported; their rows are left alone */
    index[7] = -1;
    memset(got + 7 * row, 0x5A, row);
    memset(want + 7 * row, 0x5A, row);
    launch(e, ptr, size, M);
    llvm_compare(got, want, dtype, (M + 1) * width, k.name, target);
    cr_assert_eq(error, 7);
    free(all);
    free(x);
    free(index);
    free(want);
    free(got);
    drop(e, &k);
}

static void check_scatter(int dtype, const wf_target *target, int64_t width)
{
    enum { ROWS = 7, M = 31 };
    wf_kernel k;
    wf_exe *e = move_kernel(WF_SK_SCATTER, dtype, target, &k);
    const size_t esize = wf_dtype_size(dtype), row = (size_t)width * esize;
    void *all = values_ordinary(dtype, M * width, 3), *x = exact(all, M * row);
    int64_t *index = malloc(M * sizeof *index);
    for (int i = 0; i < M; i++) /* one row gets nothing; some indices are outside */
        index[i] = (int64_t)(values_hash((uint64_t)i) % (ROWS + 2)) - 1;
    for (int i = 0; i < M; i++)
        index[i] = index[i] == 4 ? 5 : index[i];
    void *want = calloc(ROWS + 1, row), *got = calloc(ROWS + 1, row);
    moves_scatter(dtype, want, x, index, ROWS, M, width);
    void *ptr[3] = {got, x, index};
    const int64_t size[3] = {ROWS, width, M};
    launch(e, ptr, size, ROWS);
    llvm_compare(got, want, dtype, (ROWS + 1) * width, k.name, target);
    free(all);
    free(x);
    free(index);
    free(want);
    free(got);
    drop(e, &k);
}

Test(llvm_moves, gather_and_scatter)
{
    NEED_LLVM();
    static const int64_t width[] = {13, 1, 64, 130};
    for (size_t w = 0; w < LLVM_NWIDTHS; w++)
        for (int d = 0; d < 2; d++)
            for (int z = 0; z < 4; z++) {
                if (z > 1 && w % 2 != (size_t)z % 2)
                    continue;
                check_gather(dtypes[d], &llvm_widths[w], width[z]);
                check_scatter(dtypes[d], &llvm_widths[w], width[z]);
            }
}

Test(llvm_moves, matmul)
{
    NEED_LLVM();
    static const int64_t shapes[][3] = {{3, 5, 70}, {1, 2, 4096}, {2, 3, 9000}, {4, 4, 1},
                                        {2, 2, 0},  {2, 64, 129}, {3, 67, 64},  {2, 0, 5}};
    for (size_t w = 0; w < LLVM_NWIDTHS; w++)
        for (int d = 0; d < 2; d++) {
            wf_kernel k;
            const int dtype = dtypes[d];
            const size_t esize = wf_dtype_size(dtype);
            wf_exe *e = move_kernel(WF_SK_MATMUL, dtype, &llvm_widths[w], &k);
            for (size_t z = 0; z < sizeof shapes / sizeof *shapes; z++) {
                const int64_t m = shapes[z][0], n = shapes[z][1], l = shapes[z][2];
                void *a = values_ordinary(dtype, m * l, 1), *b = values_ordinary(dtype, l * n, 2);
                void *ea = exact(a, (size_t)(m * l) * esize),
                     *eb = exact(b, (size_t)(l * n) * esize);
                void *got = calloc((size_t)(m * n) + 1, esize);
                void *want = calloc((size_t)(m * n) + 1, esize);
                moves_matmul(dtype, want, a, b, m, n, l);
                void *ptr[3] = {got, ea, eb};
                launch(e, ptr, shapes[z], m);
                llvm_compare(got, want, dtype, m * n + 1, k.name, &llvm_widths[w]);
                free(a);
                free(b);
                free(ea);
                free(eb);
                free(got);
                free(want);
            }
            drop(e, &k);
        }
}
