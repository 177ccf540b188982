/*
 * tests/jit/test_llvm.c -- LLVM kernels: the bits of the eager kernels at every vector width, and the
 * text they are compiled from.
 *
 * Where libweft-llvm is not built, the tests that compile are skipped and say so.
 *
 * ctest: optimised timeout=600
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "eager/exec.h"
#include "jit/codegen_cpu/llvm_api.h"
#include "tests/jit/llvm_support.h"
#include "tests/support/effort.h"

int wf_exec_reduce(wf_exec *e);

typedef struct job {
    wf_op op;
    int which; /* -1: forward */
    int dtype, compute, dst, nsrc;
    uint8_t src[5];
} job;

static job job_of(wf_op op, int which, int dtype)
{
    const int kind = wf_rows[op].kind;
    job j = {.op = op, .which = which, .dtype = dtype, .compute = wf_dtype_compute(dtype)};
    j.nsrc = wf_rows[op].min_src + (which >= 0 ? 2 : 0);
    memset(j.src, dtype, sizeof j.src);
    if (kind == WF_KIND_CHOOSE)
        j.src[which >= 0 ? 1 : 0] = WEFT_BOOL;
    j.dst = kind == WF_KIND_PREDICATE || kind == WF_KIND_COMPARE ? WEFT_BOOL : dtype;
    return j;
}

/* One kernel against eager on n elements; source `bcast` is one element if it is one of them. */
static void check(const job *j, const wf_target *target, const int64_t *sizes, int nsizes,
                  int bcast)
{
    wf_kernel k;
    wf_why why = {0};
    cr_assert_eq(wf_kernel_of_row(&k, j->op, j->which, j->compute, j->nsrc, j->src, j->dst, &why),
                 0, "%s: %s", wf_rows[j->op].name, why.rule);
    if (bcast >= 0)
        k.bcast = 1u << bcast;
    wf_exe *e = llvm_build(&k, target);
    for (int z = 0; z < nsizes; z++) {
        const int64_t n = sizes[z];
        void *ptr[8];
        wf_view v[5];
        char *got = calloc((size_t)n + 2, 8), *want = calloc((size_t)n + 2, 8);
        memset(got, 0x5A, ((size_t)n + 2) * 8);
        ptr[0] = got;
        for (int s = 0; s < j->nsrc; s++) {
            ptr[s + 1] = values_new(j->src[s], n + 1, s);
            v[s] = llvm_vector(ptr[s + 1], j->src[s], n);
            if (s == bcast)
                v[s].strides[0] = 0;
        }
        wf_view out = llvm_vector(want, j->dst, n);
        const int status = j->which < 0
                               ? wf_exec_map(j->op, j->compute, &out, j->nsrc, v)
                               : wf_exec_vjp(j->op, j->which, j->compute, &out, j->nsrc, v);
        cr_assert_eq(status, 0);
        /* in two pieces, as two threads would */
        const wf_launch l = {ptr, &n, NULL, 0, n / 3, 0}, m = {ptr, &n, NULL, n / 3, n, 0};
        wf_backend_cpu.launch(e, &l);
        wf_backend_cpu.launch(e, &m);
        llvm_compare(got, want, j->dst, n, k.name, target);
        for (size_t b = (size_t)n * wf_dtype_size(j->dst); b < ((size_t)n + 2) * 8; b++)
            cr_assert_eq(got[b], 0x5A, "%s wrote past its end", k.name);
        for (int s = 0; s < j->nsrc; s++)
            free(ptr[s + 1]);
        free(got);
        free(want);
    }
    wf_backend_cpu.unload(e);
    wf_kernel_free(&k);
}

static const int64_t all_sizes[] = {0, 1, 2, 3, 63, 64, 65, 4095, 4096, 4097, 100003};
enum { NSIZES = sizeof all_sizes / sizeof *all_sizes };

Test(llvm, milestone_rows_at_every_width)
{
    NEED_LLVM();
    static const wf_op ops[] = {WF_OP_ADD, WF_OP_MUL, WF_OP_WHERE, WF_OP_EXP, WF_OP_SIGMOID};
    for (size_t w = 0; w < LLVM_NWIDTHS; w++)
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
            for (int h = 0; h < 2; h++)
                for (int which = -1; which < wf_rows[ops[o]].min_src; which++) {
                    if ((which >= 0 && !wf_kir_has_vjp(ops[o], which, WEFT_F32)) ||
                        !effort_walks(w + o + (size_t)(h + which + 1), 3))
                        continue;
                    const job j = job_of(ops[o], which, h ? WEFT_BF16 : WEFT_F32);
                    check(&j, &llvm_widths[w], all_sizes, NSIZES, -1);
                }
}

/* Every row in f32 and in one more type of its own, forward, at the width used by default. */
Test(llvm, every_row)
{
    NEED_LLVM();
    static const wf_target target = {.arch = "host", .width = 0};
    static const int64_t sizes[] = {2990};
    int checked = 0;
    for (wf_op op = 1; op < WF_OP_COUNT; op++)
        for (int d = WEFT_DTYPE_DEFAULT + 1; d < WEFT_DTYPE_COUNT; d++) {
            const int compute = wf_dtype_compute(d);
            if (!wf_kir_has_row(op, compute))
                continue;
            const bool wide = compute == WEFT_F32 || compute == WEFT_F64;
            if (d != WEFT_F32 && d != WEFT_F64 &&
                (wide ? (int)op % 5 != d % 5 : d % 2 != (int)op % 2))
                continue;
            checked++;
            if (!effort_walks((uint64_t)checked, 3))
                continue;
            const job j = job_of(op, -1, d);
            check(&j, &target, sizes, 1, -1);
        }
    cr_assert_gt(checked, 180);
}

Test(llvm, every_derivative)
{
    NEED_LLVM();
    static const wf_target target = {.arch = "host", .width = 0};
    static const int64_t sizes[] = {1001};
    int checked = 0;
    for (wf_op op = 1; op < WF_OP_COUNT; op++)
        for (int which = 0; which < 3; which++)
            if (wf_kir_has_vjp(op, which, WEFT_F32) && effort_walks((uint64_t)checked++, 3)) {
                const job j = job_of(op, which, which % 2 ? WEFT_F16 : WEFT_F32);
                check(&j, &target, sizes, 1, -1);
            }
    cr_assert_gt(checked, 80);
}

Test(llvm, broadcast_operands)
{
    NEED_LLVM();
    for (int w = 0; w < LLVM_NWIDTHS; w++)
        for (int s = 0; s < 3; s++) {
            job j = job_of(WF_OP_WHERE, -1, WEFT_BF16);
            check(&j, &llvm_widths[w], all_sizes, 7, s);
            if (s < 2) {
                j = job_of(WF_OP_FMOD, -1, WEFT_F32);
                check(&j, &llvm_widths[w], all_sizes, 7, s);
            }
        }
}

/* A rare lane among ordinary ones, at every place of the vector, in place and past the caches, and many of them. */
static void check_rare(const job *j, const wf_target *target, bool scalar)
{
    enum { N = 64 * 65 + 7, ROOM = 64 * 66 * 8, STEPS = 3 };
    wf_kernel k;
    wf_why why = {0};
    cr_assert_eq(wf_kernel_of_row(&k, j->op, -1, j->compute, j->nsrc, j->src, j->dst, &why), 0);
    cr_assert_gt(k.fast.n, 0, "%s has no rare lanes", k.name);
    k.bcast = scalar ? 1u << (j->nsrc - 1) : 0;
    wf_exe *e = llvm_build(&k, target);
    static const int every[STEPS] = {65, 7, 1};
    for (int step = 0; step < STEPS; step++) {
        char *x = aligned_alloc(64, ROOM), *y = values_ordinary(j->dtype, N, 2),
             *to = aligned_alloc(64, ROOM), *want = calloc(N, 8);
        const int64_t n = N;
        wf_view v[2] = {llvm_vector(x, j->dtype, n), llvm_vector(y, j->dtype, n)};
        v[1].strides[0] = scalar ? 0 : 1;
        for (int i = 0; i < N; i++) {
            const float f = i % every[step] == 0 ? 1.5e30F : 0.25F * (float)(i % 97);
            const double d = i % every[step] == 0 ? 1.5e300 : 0.25 * (i % 97);
            if (j->dtype == WEFT_F64)
                memcpy(x + 8 * i, &d, 8);
            else
                memcpy(x + 4 * i, &f, 4);
        }
        wf_view out = llvm_vector(want, j->dst, n);
        cr_assert_eq(wf_exec_map(j->op, j->compute, &out, j->nsrc, v), 0);
        void *ptr[3] = {to, x, y};
        const wf_launch past = {ptr, &n, NULL, 0, n, WF_LAUNCH_STREAM},
                        l = {ptr, &n, NULL, 0, n, 0};
        wf_backend_cpu.launch(e, &past);
        llvm_compare(to, want, j->dst, n, k.name, target);
        ptr[0] = x;
        wf_backend_cpu.launch(e, &l);
        llvm_compare(x, want, j->dst, n, k.name, target);
        free(x);
        free(y);
        free(to);
        free(want);
    }
    wf_backend_cpu.unload(e);
    wf_kernel_free(&k);
}

/* Operands that end before a page nobody may touch, or begin behind one: every number of elements a last, short group has. */
Test(llvm, nothing_outside_operands)
{
    NEED_LLVM();
    enum { PAGE = 4096, OPERANDS = 3 };
    static const int types[] = {WEFT_I8, WEFT_BF16, WEFT_F32, WEFT_F64};
    static const wf_target targets[] = {
        {.arch = "host"}, {.arch = "x86-64-v3"}, {.arch = "x86-64"}};
    char *page[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) {
        page[i] = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        cr_assert_neq((void *)page[i], MAP_FAILED);
        page[i] += PAGE;
        cr_assert_eq(mprotect(page[i], PAGE, PROT_READ | PROT_WRITE), 0);
    }
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const job j = job_of(WF_OP_ADD, -1, types[t]);
        wf_kernel k;
        wf_why why = {0};
        cr_assert_eq(wf_kernel_of_row(&k, j.op, j.which, j.compute, j.nsrc, j.src, j.dst, &why), 0);
        for (size_t a = 0; a < sizeof targets / sizeof *targets; a++) {
            wf_exe *e = llvm_build(&k, &targets[a]);
            for (int64_t n = 1; n <= 130; n++)
                for (int at_end = 0; at_end < 2; at_end++) {
                    const size_t bytes = (size_t)n * wf_dtype_size(types[t]);
                    void *ptr[OPERANDS];
                    wf_view v[2];
                    char want[130 * 8];
                    for (int i = 0; i < OPERANDS; i++)
                        ptr[i] = page[i] + (at_end ? PAGE - bytes : 0);
                    for (int i = 0; i < 2; i++) {
                        void *x = values_new(types[t], n, i);
                        memcpy(ptr[i + 1], x, bytes);
                        free(x);
                        v[i] = llvm_vector(ptr[i + 1], types[t], n);
                    }
                    memset(page[0], 0x5A, PAGE);
                    const wf_view out = llvm_vector(want, types[t], n);
                    cr_assert_eq(wf_exec_map(j.op, j.compute, &out, 2, v), 0);
                    wf_backend_cpu.launch(e, &(wf_launch){ptr, &n, NULL, 0, n, 0});
                    llvm_compare(ptr[0], want, types[t], n, k.name, &targets[a]);
                    const char *rest = at_end ? page[0] : page[0] + bytes;
                    for (size_t b = 0; b < PAGE - bytes; b++)
                        cr_assert_eq(rest[b], 0x5A, "%s wrote beside its %lld elements", k.name,
                                     (long long)n);
                }
            wf_backend_cpu.unload(e);
        }
        wf_kernel_free(&k);
    }
    for (int i = 0; i < OPERANDS; i++)
        munmap(page[i] - PAGE, 3 * PAGE);
}

Test(llvm, rare_lanes_among_ordinary_ones)
{
    NEED_LLVM();
    for (size_t w = 0; w < LLVM_NWIDTHS; w++)
        for (int i = 0; i < 3; i++) {
            const job j = job_of(i ? WF_OP_FMOD : WF_OP_SIN, -1, WEFT_F32);
            check_rare(&j, &llvm_widths[w], i == 2);
        }
    const wf_target target = {.arch = "host", .width = 0};
    const job j = job_of(WF_OP_COS, -1, WEFT_F64);
    check_rare(&j, &target, false);
}

/* -- sums ---------------------------------------------------------------------------------------------- */
static void eager_sum(const void *x, int dtype, int64_t rows, int64_t cols, int axis, void *out,
                      int out_dtype)
{
    void *p;
    memcpy(&p, &x, sizeof p);
    const int64_t ax = axis;
    wf_view in = {.data = p, .dtype = (uint8_t)dtype, .rank = 2, .dims = {rows, cols}};
    in.strides[0] = cols;
    in.strides[1] = 1;
    wf_view dst = llvm_vector(out, out_dtype, axis ? rows : cols);
    const wf_attr attr = {.dtype = (uint8_t)out_dtype, .n_ints = 1, .ints = &ax};
    wf_why why = {0};
    wf_exec e = {WF_OP_SUM, 1, 1, &in, &dst, &attr, &why, NULL, false};
    cr_assert_eq(wf_exec_reduce(&e), 0, "%s", why.rule);
}

static void check_sum(wf_skeleton skeleton, int dtype, const wf_target *target)
{
    static const int64_t shapes[][2] = {{1, 100003}, {3, 4097}, {5, 4096}, {7, 4095},
                                        {4, 65},     {3, 64},   {2, 63},   {5, 3},
                                        {2, 2},      {70, 1},   {4, 0},    {67, 130}};
    wf_kernel k;
    const int out_dtype = wf_dtype_kind(dtype) == 2 ? dtype : WEFT_I64;
    cr_assert_eq(wf_kernel_of_sum(&k, skeleton, dtype, out_dtype, NULL), 0);
    wf_exe *e = llvm_build(&k, target);
    const bool inner = skeleton == WF_SK_SUM_INNER;
    for (size_t z = 0; z < sizeof shapes / sizeof *shapes; z++) {
        const int64_t kept = shapes[z][0], n = shapes[z][1];
        const int64_t size[2] = {kept, n};
        void *x = values_ordinary(dtype, kept * n, (int)z);
        char *got = calloc((size_t)kept, 8), *want = calloc((size_t)kept, 8);
        void *ptr[2] = {got, x};
        if (inner)
            eager_sum(x, dtype, kept, n, 1, want, out_dtype);
        else
            eager_sum(x, dtype, n, kept, 0, want, out_dtype);
        const wf_launch l = {ptr, size, NULL, 0, kept / 2, 0},
                        m = {ptr, size, NULL, kept / 2, kept, 0};
        wf_backend_cpu.launch(e, &l);
        wf_backend_cpu.launch(e, &m);
        llvm_compare(got, want, out_dtype, kept, k.name, target);
        free(x);
        free(got);
        free(want);
    }
    wf_backend_cpu.unload(e);
    wf_kernel_free(&k);
}

Test(llvm, sums_at_every_width)
{
    NEED_LLVM();
    static const int dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F64, WEFT_F16, WEFT_I32};
    for (size_t w = 0; w < LLVM_NWIDTHS; w++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            if (d > 1 && w % 3 != d % 3)
                continue;
            check_sum(WF_SK_SUM_INNER, dtypes[d], &llvm_widths[w]);
            check_sum(WF_SK_SUM_OUTER, dtypes[d], &llvm_widths[w]);
        }
}

/* -- text ------------------------------------------------------------------------------------------------ */
Test(llvm, text_of_a_kernel)
{
    const job j = job_of(WF_OP_ADD, -1, WEFT_F32);
    const wf_target target = {.arch = "host", .width = 8};
    wf_kernel k;
    wf_text text = {0};
    cr_assert_eq(wf_kernel_of_row(&k, j.op, -1, j.compute, 2, j.src, j.dst, NULL), 0);
    cr_assert_eq(wf_backend_cpu.render(&k, &target, &text, NULL), 0);
    cr_assert_not_null(strstr(text.s, "define void @add_f32_f32(ptr %ptr, ptr %size, ptr %scalar, "
                                      "i64 %begin, i64 %end, i64 %flags) #0 {\n"));
    cr_assert_not_null(strstr(text.s, "  %bv0 = load <8 x float>, ptr %D1, align 4\n"
                                      "  %bv1 = load <8 x float>, ptr %D2, align 4\n"
                                      "  %b2 = fadd <8 x float> %bv0, %bv1\n"));
    cr_assert_not_null(strstr(text.s, "  store <8 x float> %b2, ptr %D0, align 4\n"));
    cr_assert_not_null(
        strstr(text.s, "  store <8 x float> %b2, ptr %D0, align 32, !nontemporal !0\n"));
    cr_assert_null(strstr(text.s, " fast "));
    wf_text_free(&text);
    wf_kernel_free(&k);
}

/* Four registers a value; eight of a CPU with 16 of them for a body that keeps two values at most. */
Test(llvm, vectors_follow_the_registers)
{
    static const struct {
        wf_op op;
        int dtype;
        const char *arch, *type;
    } cases[] = {{WF_OP_ADD, WEFT_F32, "x86-64-v4", "<64 x float>"},
                 {WF_OP_ADD, WEFT_F32, "x86-64-v3", "<64 x float>"},
                 {WF_OP_ADD, WEFT_F32, "x86-64", "<32 x float>"},
                 {WF_OP_GELU_TANH, WEFT_F32, "x86-64-v4", "<64 x float>"},
                 {WF_OP_GELU_TANH, WEFT_F32, "x86-64-v3", "<32 x float>"},
                 {WF_OP_GELU_TANH, WEFT_F32, "x86-64", "<16 x float>"},
                 {WF_OP_EXP, WEFT_F64, "x86-64-v4", "<32 x double>"},
                 {WF_OP_EXP, WEFT_F64, "x86-64-v3", "<16 x double>"},
                 {WF_OP_EXP, WEFT_F64, "x86-64", "<8 x double>"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const wf_target target = {.arch = cases[i].arch, .width = 0};
        const job j = job_of(cases[i].op, -1, cases[i].dtype);
        char load[48];
        wf_kernel k;
        wf_text text = {0};
        cr_assert_eq(wf_kernel_of_row(&k, j.op, -1, j.compute, j.nsrc, j.src, j.dst, NULL), 0);
        cr_assert_eq(wf_backend_cpu.render(&k, &target, &text, NULL), 0);
        snprintf(load, sizeof load, "%%bv0 = load %s, ptr %%D1", cases[i].type);
        cr_assert_not_null(strstr(text.s, load), "%s for %s: %s", k.name, target.arch, load);
        wf_text_free(&text);
        wf_kernel_free(&k);
    }
}

/* What kernels call is in one library, the texts that call it are made in the other. */
Test(llvm, both_libraries_are_of_one_source)
{
    NEED_LLVM();
    const wf_target host = {.arch = "host", .width = 8};
    wf_text text = {0};
    wf_why why = {0};
    cr_assert_eq(wf_backend_cpu.identify(&host, &text, &why), 0, "%s", why.rule);
    void *library = dlopen("libweft-llvm.so.0.1", RTLD_NOW | RTLD_NOLOAD);
    cr_assert_not_null(library, "%s", dlerror());
    const wf_llvm_api *(*entry)(void);
    void *symbol = dlsym(library, "wf_llvm_open");
    memcpy(&entry, &symbol, sizeof entry);
    char want[64];
    snprintf(want, sizeof want, "generator %s, ", entry()->generator);
    cr_assert(strncmp(text.s, want, strlen(want)) == 0, "%s, not %s", text.s, want);
    wf_text_free(&text);
    dlclose(library);
}

Test(llvm, refuses_with_a_reason)
{
    wf_kernel k;
    wf_why why = {0};
    wf_text text = {0};
    const wf_target odd = {.arch = "host", .width = 12}, good = {.arch = "host", .width = 8};
    cr_assert_eq(wf_kernel_of_sum(&k, WF_SK_SUM_INNER, WEFT_F32, WEFT_F32, NULL), 0);
    cr_assert_eq(wf_backend_cpu.render(&k, &odd, &text, &why), WEFT_EINVALID);
    wf_text_free(&text);
    wf_kernel_free(&k);
    NEED_LLVM();
    wf_blob code = {0};
    wf_text_putf(&text, "define void @f() { this is no LLVM }");
    cr_assert_eq(wf_backend_cpu.compile(&good, &text, &code, &why), WEFT_EUNSUPPORTED);
    cr_assert(strlen(why.rule) > 10);
    wf_text_free(&text);
}

/* The most vector values of a MAP's body, %b<n>, that are alive at once in its text. */
static int most_alive(const char *text)
{
    enum { MOST = 512 };
    int first[MOST], last[MOST], line = 0, most = 0;
    memset(first, -1, sizeof first);
    for (const char *s = text; *s; s++) {
        line += *s == '\n';
        if (strncmp(s, "%b", 2) != 0 || s[2] < '0' || s[2] > '9')
            continue;
        const int n = atoi(s + 2);
        cr_assert_lt(n, MOST);
        first[n] = first[n] < 0 ? line : first[n];
        last[n] = line;
    }
    for (int at = 0; at < line; at++) {
        int alive = 0;
        for (int n = 0; n < MOST; n++)
            alive += first[n] >= 0 && first[n] <= at && at < last[n];
        most = alive > most ? alive : most;
    }
    return most;
}

/* 16 registers hold four values of 32 lanes, and all that the body has of four. */
Test(llvm, bodies_keep_few_values_alive)
{
    wf_kernel k;
    wf_why why = {0};
    const uint8_t src[] = {WEFT_F32};
    int alive[2];
    cr_assert_eq(wf_kernel_of_row(&k, WF_OP_GELU_TANH, -1, WEFT_F32, 1, src, WEFT_F32, &why), 0,
                 "%s", why.rule);
    for (int i = 0; i < 2; i++) {
        const wf_target target = {.arch = "x86-64-v3", .width = i ? 32 : 4};
        wf_text text = {0};
        cr_assert_eq(wf_backend_cpu.render(&k, &target, &text, &why), 0, "%s", why.rule);
        alive[i] = most_alive(text.s);
        wf_text_free(&text);
    }
    wf_kernel_free(&k);
    cr_assert(alive[1] <= 7 && alive[0] > alive[1], "%d values alive, %d in the program's order",
              alive[1], alive[0]);
}

/* What runs for rare lanes only is long: it is written for two registers of the widest value, and no vector longer. */
Test(llvm, rare_bodies_are_short_vectors)
{
    static const struct {
        const char *arch;
        int lanes, part;
    } cases[] = {{"x86-64-v4", 32, 16}, {"x86-64-v3", 16, 8}, {"x86-64", 8, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const job j = job_of(WF_OP_SIN, -1, WEFT_F32);
        const wf_target target = {.arch = cases[i].arch, .width = 0};
        wf_kernel k;
        wf_text text = {0};
        char all[16], part[16];
        int count = 0;
        snprintf(all, sizeof all, "<%d x ", cases[i].lanes);
        snprintf(part, sizeof part, "<%d x ", cases[i].part);
        cr_assert_eq(wf_kernel_of_row(&k, j.op, -1, j.compute, 1, j.src, j.dst, NULL), 0);
        cr_assert_eq(wf_backend_cpu.render(&k, &target, &text, NULL), 0);
        for (char *line = strtok(text.s, "\n"); line; line = strtok(NULL, "\n"))
            if (strncmp(line, "  %r", 4) == 0 && line[4] >= '0' && line[4] <= '9') {
                cr_assert_null(strstr(line, all), "%s: %s", cases[i].arch, line);
                count += strstr(line, part) != NULL;
            }
        cr_assert_gt(count, 100);
        wf_text_free(&text);
        wf_kernel_free(&k);
    }
}
