/*
 * tests/cuda/test_cuda_ptx.c -- the interpreter of PTX (tests/cuda/ptx): instructions by the manual, what it has to find, and
 * suites of the device on what the real NVRTC makes of their kernels.
 *
 * Instructions and faults are texts of this file, and need no NVRTC. The suites are the programs beside this one, run again
 * with libptx-nvrtc.so as their NVRTC and with memory of its own for each block, so that every access is held to what its
 * operand has (and without the guard against the host, which takes longer the more blocks there are); script/gpu-check runs
 * more of them. Where there is no NVRTC they are skipped.
 *
 * ctest: timeout=900 cost=20
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda/cuda_support.h"

#include "jit/ir/cuda_text.h"
#include "tests/support/effort.h"
#include "tests/support/sanitized.h"

static unsigned blocks = 1;
static const char head[] = ".version 9.0\n.target sm_90\n.address_size 64\n";

/* Runs kernel `k` of a text on a block, or several; the status of waiting for it. */
static int run(const char *text, size_t n, unsigned threads, void *params[])
{
    const unsigned grid[3] = {blocks, 1, 1}, block[3] = {threads, 1, 1};
    wf_cuda_module *m = NULL;
    wf_cuda_fn *f = NULL;
    int status = wf_cuda_module_new(0, text, n, &m, &why);
    if (status == 0) {
        OK(wf_cuda_function(m, "k", &f, &why));
        OK(wf_cuda_launch(f, grid, block, 0, params, &why));
        status = wf_cuda_synchronize(0, &why);
    }
    wf_cuda_module_free(m);
    return status;
}

/* -- instructions -------------------------------------------------------------------------------------------- */
/* Sources are 1, 2, 3 of a width, cut off where it is less; the result is register 0. Predicates are "not 0". */
typedef struct instruction {
    const char *text;
    uint64_t a, b, c, want;
} instruction;

static const instruction instructions[] = {
    /* to the nearest, ties to even, subnormals kept */
    {"add.rn.f32 %r0, %r1, %r2;", 0x3F800000, 0x33800000, 0, 0x3F800000},
    {"add.rn.f32 %r0, %r1, %r2;", 0x3F800001, 0x33800000, 0, 0x3F800002},
    {"add.f32 %r0, %r1, 0f3F800000;", 0x3F800000, 0, 0, 0x40000000},
    {"sub.rn.f32 %r0, %r1, %r2;", 0x3F800000, 0x3F800000, 0, 0},
    {"mul.rn.f32 %r0, %r1, %r2;", 0x00800000, 0x3F000000, 0, 0x00400000},
    {"mul.rn.ftz.f32 %r0, %r1, %r2;", 0x00800000, 0x3F000000, 0, 0},
    {"fma.rn.f32 %r0, %r1, %r2, %r3;", 0x3F800001, 0x3F800001, 0xBF800002, 0x28800000},
    {"div.rn.f32 %r0, %r1, %r2;", 0x3F800000, 0x40400000, 0, 0x3EAAAAAB},
    {"sqrt.rn.f32 %r0, %r1;", 0x40000000, 0, 0, 0x3FB504F3},
    {"rcp.rn.f32 %r0, %r1;", 0x40400000, 0, 0, 0x3EAAAAAB},
    {"add.rn.f64 %rd0, %rd1, %rd2;", 0x3FF0000000000000, 0x3CA0000000000000, 0, 0x3FF0000000000000},
    {"fma.rn.f64 %rd0, %rd1, %rd2, %rd3;", 0x3FF0000000000001, 0x3FF0000000000001,
     0xBFF0000000000002, 0x3970000000000000},
    {"div.rn.f64 %rd0, %rd1, %rd2;", 0x3FF0000000000000, 0x4008000000000000, 0, 0x3FD5555555555555},
    {"neg.f64 %rd0, %rd1;", 0x3FF0000000000000, 0, 0, 0xBFF0000000000000},
    {"copysign.f32 %r0, %r1, %r2;", 0xBF800000, 0x40000000, 0, 0xC0000000},
    {"add.rn.f16 %rs0, %rs1, %rs2;", 0x3C00, 0x1000, 0, 0x3C00},
    {"add.rn.f16 %rs0, %rs1, %rs2;", 0x3C01, 0x1000, 0, 0x3C02},
    {"fma.rn.bf16 %rs0, %rs1, %rs2, %rs3;", 0x3F81, 0x3F81, 0xBF82, 0x3880},
    {"max.NaN.bf16x2 %r0, %r1, %r2;", 0x3F80BF80, 0x40004000, 0, 0x40004000},
    /* extremes: a NaN loses, -0 is less than +0 */
    {"min.f32 %r0, %r1, %r2;", 0x7FC00000, 0x3F800000, 0, 0x3F800000},
    {"min.f32 %r0, %r1, %r2;", 0, 0x80000000, 0, 0x80000000},
    {"max.f32 %r0, %r1, %r2;", 0x80000000, 0, 0, 0},
    {"max.NaN.f32 %r0, %r1, %r2; and.b32 %r0, %r0, 0x7F800000;", 0x7FC00000, 0x3F800000, 0,
     0x7F800000},
    {"min.s16 %rs0, %rs1, %rs2;", 0x8000, 1, 0, 0x8000},
    {"max.u32 %r0, %r1, %r2;", 0x80000000, 1, 0, 0x80000000},
    /* conversions: how they round, what does not fit */
    {"cvt.rzi.s32.f32 %r0, %r1;", 0xC0200000, 0, 0, 0xFFFFFFFE},
    {"cvt.rni.s32.f32 %r0, %r1;", 0x40200000, 0, 0, 2},
    {"cvt.rmi.s32.f32 %r0, %r1;", 0xC0200000, 0, 0, 0xFFFFFFFD},
    {"cvt.rpi.s32.f32 %r0, %r1;", 0x40200000, 0, 0, 3},
    {"cvt.rzi.s32.f32 %r0, %r1;", 0x7FC00000, 0, 0, 0},
    {"cvt.rzi.s64.f32 %rd0, %r1;", 0x7FC00000, 0, 0, 0x8000000000000000},
    {"cvt.rzi.s32.f32 %r0, %r1;", 0x4F32D05E, 0, 0, 0x7FFFFFFF},
    {"cvt.rzi.u32.f32 %r0, %r1;", 0xBF800000, 0, 0, 0},
    {"cvt.rzi.u64.f64 %rd0, %rd1;", 0x43F0000000000000, 0, 0, 0xFFFFFFFFFFFFFFFF},
    {"cvt.rmi.f32.f32 %r0, %r1;", 0xBF000000, 0, 0, 0xBF800000},
    {"cvt.rn.f16.f32 %rs0, %r1;", 0x477FF000, 0, 0, 0x7C00},
    {"cvt.rn.f16.f32 %rs0, %r1;", 0x477FEFFF, 0, 0, 0x7BFF},
    {"cvt.rn.f16.f32 %rs0, %r1;", 0x33000000, 0, 0, 0},
    {"cvt.rn.f16.f32 %rs0, %r1;", 0x33000001, 0, 0, 1},
    {"cvt.rn.f16.f32 %rs0, %r1;", 0x387FFFFF, 0, 0, 0x0400},
    {"cvt.rn.bf16.f32 %rs0, %r1;", 0x3F808000, 0, 0, 0x3F80},
    {"cvt.rn.bf16.f32 %rs0, %r1;", 0x3F818000, 0, 0, 0x3F82},
    {"cvt.rn.bf16.f32 %rs0, %r1;", 0x7F7FFFFF, 0, 0, 0x7F80},
    {"cvt.rn.bf16x2.f32 %r0, %r1, %r2;", 0x3F800000, 0x40000000, 0, 0x3F804000},
    {"cvt.f32.f16 %r0, %rs1;", 1, 0, 0, 0x33800000},
    {"cvt.f32.bf16 %r0, %rs1;", 0xBF80, 0, 0, 0xBF800000},
    {"cvt.rn.f32.s64 %r0, %rd1;", 0x7FFFFFFFFFFFFFFF, 0, 0, 0x5F000000},
    {"cvt.rn.f32.u64 %r0, %rd1;", 0x8000008000000000, 0, 0, 0x5F000000},
    {"cvt.rn.f32.u64 %r0, %rd1;", 0x8000008000000001, 0, 0, 0x5F000001},
    {"cvt.rn.f64.s32 %rd0, %r1;", 0xFFFFFFFF, 0, 0, 0xBFF0000000000000},
    {"cvt.rn.f32.f64 %r0, %rd1;", 0x3FF0000010000000, 0, 0, 0x3F800000},
    {"cvt.rn.f32.f64 %r0, %rd1;", 0x3FF0000010000001, 0, 0, 0x3F800001},
    {"cvt.rz.f32.f64 %r0, %rd1;", 0xBFF000001FFFFFFF, 0, 0, 0xBF800000},
    {"cvt.rp.f32.f64 %r0, %rd1;", 0x3FF0000000000001, 0, 0, 0x3F800001},
    {"cvt.s32.s8 %r0, %r1;", 0x80, 0, 0, 0xFFFFFF80},
    {"cvt.u64.u16 %rd0, %rs1;", 0xFFFF, 0, 0, 0xFFFF},
    {"cvt.s64.s32 %rd0, %r1;", 0x80000000, 0, 0, 0xFFFFFFFF80000000},
    {"cvt.sat.u8.s32 %r0, %r1;", 300, 0, 0, 255},
    {"cvt.sat.u8.s32 %r0, %r1;", 0xFFFFFFFB, 0, 0, 0},
    /* integers */
    {"mul.wide.s32 %rd0, %r1, %r2;", 0xFFFFFFFF, 2, 0, 0xFFFFFFFFFFFFFFFE},
    {"mul.wide.u32 %rd0, %r1, %r2;", 0xFFFFFFFF, 2, 0, 0x1FFFFFFFE},
    {"mul.hi.u32 %r0, %r1, %r2;", 0xFFFFFFFF, 0xFFFFFFFF, 0, 0xFFFFFFFE},
    {"mul.hi.s64 %rd0, %rd1, %rd2;", 0xFFFFFFFFFFFFFFFF, 5, 0, 0xFFFFFFFFFFFFFFFF},
    {"mad.lo.s32 %r0, %r1, %r2, %r3;", 3, 0xFFFFFFFF, 4, 1},
    {"mad.wide.u32 %rd0, %r1, %r2, %rd3;", 0x80000000, 2, 1, 0x100000001},
    {"div.s32 %r0, %r1, %r2;", 0x80000000, 0xFFFFFFFF, 0, 0x80000000},
    {"rem.s64 %rd0, %rd1, %rd2;", 0xFFFFFFFFFFFFFFF9, 3, 0, 0xFFFFFFFFFFFFFFFF},
    {"abs.s32 %r0, %r1;", 0x80000000, 0, 0, 0x80000000},
    {"shl.b32 %r0, %r1, %r2;", 1, 32, 0, 0},
    {"shr.u32 %r0, %r1, %r2;", 0x80000000, 31, 0, 1},
    {"shr.s32 %r0, %r1, %r2;", 0x80000000, 40, 0, 0xFFFFFFFF},
    {"shf.l.wrap.b32 %r0, %r1, %r2, %r3;", 0x11112222, 0x33334444, 40, 0x33444411},
    {"shf.r.clamp.b32 %r0, %r1, %r2, %r3;", 0x11112222, 0x33334444, 40, 0x33334444},
    {"prmt.b32 %r0, %r1, %r2, 0x7604;", 0x03020100, 0x07060504, 0, 0x07060004},
    {"prmt.b32 %r0, %r1, %r2, 0x000B;", 0x83020100, 0, 0, 0x000000FF},
    {"bfe.u32 %r0, %r1, 8, 8;", 0xABCD1234, 0, 0, 0x12},
    {"bfe.s32 %r0, %r1, 8, 8;", 0x00008000, 0, 0, 0xFFFFFF80},
    {"bfe.s32 %r0, %r1, 28, 8;", 0x80000000, 0, 0, 0xFFFFFFF8},
    {"bfi.b32 %r0, %r1, %r2, 4, 8;", 0xFFF, 0, 0, 0xFF0},
    {"popc.b64 %r0, %rd1;", 0x8000000000000001, 0, 0, 2},
    {"clz.b32 %r0, %r1;", 0x00010000, 0, 0, 15},
    {"bfind.u32 %r0, %r1;", 0x00010000, 0, 0, 16},
    {"bfind.shiftamt.u32 %r0, %r1;", 0x00010000, 0, 0, 15},
    {"bfind.s32 %r0, %r1;", 0xFFFFFFFF, 0, 0, 0xFFFFFFFF},
    {"brev.b32 %r0, %r1;", 1, 0, 0, 0x80000000},
    {"lop3.b32 %r0, %r1, %r2, %r3, 0xE8;", 0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA, 0xE8E8E8E8},
    {"add.s16 %rs0, %rs1, %rs2;", 0xFFFF, 2, 0, 1},
    {"mov.b32 %r0, {%rs1, %rs2};", 0x1234, 0x5678, 0, 0x56781234},
    {"mov.b32 {%rs3, %rs0}, %r1;", 0x56781234, 0, 0, 0x5678},
    {"mov.b64 {_, %r0}, %rd1;", 0x1122334455667788, 0, 0, 0x11223344},
    {"selp.b32 %r0, %r1, %r2, %p3;", 7, 8, 1, 7},
    /* comparisons, with and without order */
    {"setp.lt.s32 %p0, %r1, %r2;", 0xFFFFFFFF, 0, 0, 1},
    {"setp.lt.u32 %p0, %r1, %r2;", 0xFFFFFFFF, 0, 0, 0},
    {"setp.lt.f32 %p0, %r1, %r2;", 0x7FC00000, 0, 0, 0},
    {"setp.ltu.f32 %p0, %r1, %r2;", 0x7FC00000, 0, 0, 1},
    {"setp.ne.f32 %p0, %r1, %r2;", 0x7FC00000, 0, 0, 0},
    {"setp.neu.f32 %p0, %r1, %r2;", 0x7FC00000, 0, 0, 1},
    {"setp.nan.f64 %p0, %rd1, %rd2;", 0x7FF8000000000000, 0, 0, 1},
    {"setp.eq.f32 %p0, %r1, %r2;", 0x80000000, 0, 0, 1},
    {"setp.eq.and.s32 %p0|%p2, %r1, %r2, !%p3;", 5, 5, 0, 1},
    {"@%p3 mov.b32 %r0, 5;", 0, 0, 0, 0},
    {"@!%p3 mov.b32 %r0, 5;", 0, 0, 0, 5},
};

static const char *const width_of_result[] = {['d'] = "mov.b64 %rd9, %rd0;",
                                              ['s'] = "cvt.u64.u16 %rd9, %rs0;",
                                              ['0'] = "cvt.u64.u32 %rd9, %r0;",
                                              ['p'] = "selp.b64 %rd9, 1, 0, %p0;"};

/* 'd' of %rd0, 's' of %rs0, '0' of %r0, 'p' of %p0. */
static int kind_of_result(const char *text)
{
    const char *at = strstr(text, "0,");
    at = at ? at : strchr(text, '0');
    at = strstr(text, "%p0") ? strstr(text, "%p0") + 2 : at;
    at = strstr(text, "%rs0}") ? strstr(text, "%rs0}") + 3 : at;
    at = strstr(text, "%r0}") ? strstr(text, "%r0}") + 2 : at;
    return at[-1] == 'r' ? '0' : at[-1];
}

Test(cuda_ptx, instructions)
{
    with_fake(FAKE_LATE, 1);
    const size_t n = sizeof instructions / sizeof *instructions;
    wf_cuda_block *b = wf_cuda_alloc(0, 4 * sizeof(uint64_t), &why);
    cr_assert(b, "%s", why.rule);
    for (size_t i = 0; i < n; i++) {
        const instruction *x = &instructions[i];
        uint64_t words[4] = {x->a, x->b, x->c, 0x5A5A};
        char text[2048];
        void *params[] = {&b->address};
        snprintf(text, sizeof text,
                 "%s.visible .entry k(.param .u64 p)\n{\n"
                 ".reg .pred %%p<4>; .reg .b16 %%rs<4>; .reg .b32 %%r<4>; .reg .b64 %%rd<12>;\n"
                 "ld.param.u64 %%rd8, [p];\ncvta.to.global.u64 %%rd8, %%rd8;\n"
                 "ld.global.v2.u64 {%%rd1, %%rd2}, [%%rd8];\nld.global.u64 %%rd3, [%%rd8+16];\n"
                 "cvt.u32.u64 %%r1, %%rd1; cvt.u32.u64 %%r2, %%rd2; cvt.u32.u64 %%r3, %%rd3;\n"
                 "cvt.u16.u64 %%rs1, %%rd1; cvt.u16.u64 %%rs2, %%rd2; cvt.u16.u64 %%rs3, %%rd3;\n"
                 "setp.ne.s64 %%p3, %%rd3, 0;\nmov.b32 %%r0, 0;\n%s\n%s\n"
                 "st.global.u64 [%%rd8+24], %%rd9;\nret;\n}\n",
                 head, x->text, width_of_result[kind_of_result(x->text)]);
        OK(wf_cuda_upload(0, b->address, words, sizeof words, &why));
        OK(run(text, strlen(text) + 1, 1, params));
        OK(wf_cuda_download(0, words, b->address, sizeof words, &why));
        cr_expect_eq(words[3], x->want, "%s is %#llx, not %#llx", x->text,
                     (unsigned long long)words[3], (unsigned long long)x->want);
    }
    printf("%zu instructions\n", n);
    wf_cuda_free(b);
    close_fake();
}

/* An approximation may be either neighbour of the nearest number, and is each of them for some operands. */
Test(cuda_ptx, approximations)
{
    with_fake(FAKE_LATE, 1);
    enum { N = 256 };
    static const char text[] =
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n"
        ".reg .b32 %r<4>; .reg .b64 %rd<4>;\nld.param.u64 %rd1, [p];\nmov.u32 %r1, %tid.x;\n"
        "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd1, %rd1, %rd2;\nld.global.b32 %r2, [%rd1];\n"
        "rcp.approx.ftz.f32 %r3, %r2;\nst.global.b32 [%rd1], %r3;\nret;\n}\n";
    float x[N];
    int apart[3] = {0};
    wf_cuda_block *b = wf_cuda_alloc(0, sizeof x, &why);
    cr_assert(b, "%s", why.rule);
    void *params[] = {&b->address};
    for (int i = 0; i < N; i++) {
        x[i] = 1 + (float)i / 300;
    }
    OK(wf_cuda_upload(0, b->address, x, sizeof x, &why));
    OK(run(text, sizeof text, N, params));
    OK(wf_cuda_download(0, x, b->address, sizeof x, &why));
    for (int i = 0; i < N; i++) {
        const float nearest = 1 / (1 + (float)i / 300);
        int32_t got, want;
        memcpy(&got, &x[i], 4);
        memcpy(&want, &nearest, 4);
        cr_assert(got - want >= -1 && got - want <= 1);
        apart[got - want + 1]++;
    }
    cr_assert(apart[0] > N / 5 && apart[1] > N / 5 && apart[2] > N / 5);
    wf_cuda_free(b);
    close_fake();
}

/* -- what has to be found ---------------------------------------------------------------------------------------- */
enum { BYTES = 256 };

/* A kernel of `threads` threads on BYTES of memory at %rd1, thread %r1's fourth byte of which is at %rd2; what it says. */
static const char *fault_of(const char *body, unsigned threads, int *status)
{
    static char text[2048];
    setenv("WEFT_CUDA_MEMCHECK", "1", 1);
    with_fake(FAKE_LATE, 1);
    snprintf(
        text, sizeof text,
        "%s.visible .entry k(.param .u64 p)\n{\n.shared .align 16 .b8 s[256];\n"
        ".reg .pred %%p<4>; .reg .b32 %%r<9>; .reg .b64 %%rd<9>;\n"
        "ld.param.u64 %%rd1, [p];\nmov.u32 %%r1, %%tid.x;\nmov.b32 %%r0, 7;\n"
        "mul.wide.u32 %%rd3, %%r1, 4;\nadd.s64 %%rd2, %%rd1, %%rd3;\nmov.b32 %%r2, s;\n"
        "mad.lo.u32 %%r3, %%r1, 4, %%r2;\nxor.b32 %%r4, %%r3, 4;\nsetp.lt.u32 %%p1, %%r1, 16;\n"
        "%s\nret;\n}\n",
        head, body);
    wf_cuda_block *b = wf_cuda_alloc(0, BYTES, &why);
    cr_assert(b, "%s", why.rule);
    void *params[] = {&b->address};
    *status = run(text, strlen(text) + 1, threads, params);
    wf_cuda_free(b);
    return gpu->fault();
}

static void check_found(const char *body, unsigned threads, const char *says)
{
    int status;
    const char *fault = fault_of(body, threads, &status);
    cr_assert_neq(status, 0, "%s was not found", says);
    cr_assert(strstr(fault, says), "not '%s': %s", says, fault);
}

static void check_well(const char *body, unsigned threads)
{
    int status;
    const char *fault = fault_of(body, threads, &status);
    cr_assert(status == 0 && !fault[0], "%d: %s", status, fault);
}

/* A device is broken by a fault, hence a test each. */
#define FOUND(name, body, threads, says)                                                           \
    Test(cuda_ptx, name)                                                                           \
    {                                                                                              \
        check_found(body, threads, says);                                                          \
    }
#define WELL(name, body, threads)                                                                  \
    Test(cuda_ptx, name)                                                                           \
    {                                                                                              \
        check_well(body, threads);                                                                 \
    }

FOUND(behind_the_end, "add.s32 %r5, %r1, 1; st.global.u32 [%rd2+4], %r5;", 64, "nothing is at")
FOUND(half_behind_the_end, "st.global.v2.u32 [%rd1+252], {%r1, %r1};", 1, "8 bytes at")
FOUND(before_the_begin, "ld.global.u32 %r5, [%rd1+-4];", 1, "nothing is at")
FOUND(a_vector_between_vectors, "ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd1+8];", 1,
      "line 17: ld.global.v4.u32")
FOUND(behind_shared_memory, "st.shared.u32 [%r3+4], %r1;", 64, "4 bytes at 0x100 of 256")
FOUND(behind_the_arguments, "ld.param.u64 %rd4, [p+8];", 1, "8 bytes at 0x8 of 8")
FOUND(an_argument_that_is_written, "st.param.u64 [p], %rd1;", 1, "an argument is written")
FOUND(shared_memory_that_is_not, "cvta.to.shared.u64 %rd4, %rd1;", 1, "another space")

#define EXCHANGE(between)                                                                          \
    "st.shared.u32 [%r3], %r1; " between " ld.shared.u32 %r5, [%r4]; st.global.u32 [%rd2], %r5;"
WELL(a_barrier_that_is_there, EXCHANGE("bar.sync 0;"), 64)
WELL(a_barrier_of_the_warp, EXCHANGE("bar.warp.sync -1;"), 64)
FOUND(a_barrier_that_is_missing, EXCHANGE(""), 64,
      "byte 4 of shared memory, which thread 1 wrote, is read")
FOUND(a_shuffle_that_is_no_barrier, EXCHANGE("shfl.sync.idx.b32 %r6, %r1, 0, 31, -1;"), 64,
      "is read")
FOUND(a_barrier_of_another_warp, "xor.b32 %r4, %r3, 128; " EXCHANGE("bar.warp.sync -1;"), 64,
      "which thread 0 read, is written")
FOUND(what_others_read_is_written,
      "ld.shared.u32 %r5, [%r2]; bar.warp.sync -1; setp.eq.s32 %p2, %r1, 0; "
      "@%p2 st.shared.u32 [%r2], %r1;",
      64, "which thread 0 wrote, is read")
WELL(what_others_read_is_written_later,
     "ld.shared.u32 %r5, [%r2]; bar.sync 0; setp.eq.s32 %p2, %r1, 0; "
     "@%p2 st.shared.u32 [%r2], %r1;",
     64)
FOUND(threads_that_write_one_place, "st.global.u32 [%rd1], %r1;", 64,
      "byte 0 of global memory, which thread 0 wrote, is written")
WELL(threads_that_write_the_same, "st.global.u32 [%rd1], %r0;", 64)
FOUND(threads_that_read_what_one_writes, "ld.global.u32 %r5, [%rd1]; st.global.u32 [%rd2], %r1;",
      64, "byte 0 of global memory, which thread 31 read, is written")
WELL(threads_that_write_in_turn,
     "st.global.u32 [%rd2], %r1; bar.sync 0; xor.b64 %rd2, %rd2, 4; st.global.u32 [%rd2], %r1;", 64)
FOUND(what_is_written_is_no_constant, "st.global.u32 [%rd2], %r1; ld.global.nc.u32 %r5, [%rd2];", 1,
      "is read with .nc")
FOUND(threads_that_leave, "@%p1 ret; bar.sync 0;", 64, "not all threads reach")

/* Lanes that stay together, and such as part at every turn. */
Test(cuda_ptx, a_loop_without_end)
{
    setenv("PTX_STEPS", "100000", 1);
    check_found("$L:\nadd.u32 %r5, %r5, 1; bra $L;", 64, "it does not end");
}
Test(cuda_ptx, a_loop_without_end_in_which_lanes_part)
{
    setenv("PTX_STEPS", "100000", 1);
    check_found("$L:\n@%p1 bra $M; add.u32 %r5, %r5, 1;\n$M:\nbra $L;", 64, "it does not end");
}
FOUND(barriers_on_two_lines, "@%p1 bra $A; bar.sync 0; bra $B;\n$A:\nbar.sync 0;\n$B:", 64,
      "while thread 0 is at that of line 19")
FOUND(half_a_shuffle, "@%p1 shfl.sync.down.b32 %r5, %r1, 1, 31, -1;", 32, "that are elsewhere")
FOUND(a_lane_that_takes_no_part, "@%p1 shfl.sync.down.b32 %r5, %r1, 1, 31, 0xFFFF;", 32,
      "lane 16 does not take part")
FOUND(memory_before_the_wait, "ld.global.u32 %r5, [%rd1]; griddepcontrol.wait;", 1,
      "before griddepcontrol.wait")
WELL(memory_behind_the_wait, "griddepcontrol.wait; ld.global.u32 %r5, [%rd1];", 1)
FOUND(an_instruction_that_is_not_known, "dp4a.u32.u32 %r5, %r1, %r1, %r1;", 1,
      "line 17: dp4a.u32.u32: an instruction")
FOUND(a_modifier_that_is_not_known, "add.rz.f32 %r5, %r1, %r1;", 1, "a rounding")
FOUND(a_register_that_is_too_narrow, "add.s64 %r5, %rd1, %rd1;", 1, "a result of 64 bits")

/* A barrier orders nothing between blocks. */
Test(cuda_ptx, blocks_that_read_what_another_writes)
{
    blocks = 2;
    check_found("mov.u32 %r5, %ctaid.x; mad.wide.u32 %rd2, %r5, 128, %rd2; "
                "st.global.u32 [%rd2], %r1; bar.sync 0; "
                "xor.b64 %rd2, %rd2, 128; ld.global.u32 %r5, [%rd2];",
                32, "byte 128 of global memory, which thread 0 read, is written");
}

/* Nor does it where the block that writes has read, too, and passed one of its own. */
Test(cuda_ptx, a_block_that_writes_what_two_read)
{
    blocks = 2;
    check_found("ld.global.u32 %r5, [%rd1]; bar.sync 0; mov.u32 %r6, %ctaid.x; "
                "mad.lo.u32 %r6, %r6, 32, %r1; setp.eq.s32 %p2, %r6, 32; "
                "@%p2 st.global.u32 [%rd1], %r0;",
                32, "byte 0 of global memory, which thread 31 read, is written");
}

/* Lanes of a warp walk a loop as often as each has to, and exchange their sums behind it; those of half a warp, too. */
Test(cuda_ptx, lanes_that_part_and_meet)
{
    enum { THREADS = 48 };
    static const char text[] =
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n"
        ".reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %rd<3>;\nld.param.u64 %rd1, [p];\n"
        "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd1, %rd1, %rd2;\n"
        "rem.u32 %r5, %r1, 5;\nmov.u32 %r6, 0;\nmov.u32 %r2, -1;\n"
        "setp.ge.u32 %p2, %r1, 32;\n@%p2 mov.u32 %r2, 0xFFFF;\n"
        "$L:\nsetp.eq.u32 %p1, %r5, 0;\n@%p1 bra $E;\nadd.u32 %r6, %r6, %r5;\n"
        "add.s32 %r5, %r5, -1;\nbra $L;\n$E:\n"
        "shfl.sync.bfly.b32 %r7, %r6, 1, 31, %r2;\nst.global.u32 [%rd1], %r7;\nret;\n}\n";
    uint32_t got[THREADS];
    with_fake(FAKE_LATE, 1);
    wf_cuda_block *b = wf_cuda_alloc(0, sizeof got, &why);
    cr_assert(b, "%s", why.rule);
    void *params[] = {&b->address};
    OK(run(text, sizeof text, THREADS, params));
    OK(wf_cuda_download(0, got, b->address, sizeof got, &why));
    for (uint32_t i = 0; i < THREADS; i++) {
        const uint32_t n = (i ^ 1) % 5;
        cr_assert_eq(got[i], n * (n + 1) / 2, "thread %u: %u", i, got[i]);
    }
    wf_cuda_free(b);
    close_fake();
}

/* Variables that no value is given, or too few, are 0. */
Test(cuda_ptx, variables_begin_as_zeros)
{
    enum { WORDS = 64, GIVEN = 2 };
    static const char text[] =
        ".version 9.0\n.target sm_90\n.address_size 64\n.global .align 4 .u32 none[32];\n"
        ".global .align 4 .u32 few[32] = {7, 8};\n.visible .entry k(.param .u64 p)\n{\n"
        ".reg .b32 %r<4>; .reg .b64 %rd<5>;\nld.param.u64 %rd1, [p];\nmov.u32 %r1, %tid.x;\n"
        "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd1, %rd1, %rd2;\nmov.b64 %rd3, none;\n"
        "add.s64 %rd3, %rd3, %rd2;\nld.global.u32 %r2, [%rd3];\nst.global.u32 [%rd1], %r2;\n"
        "mov.b64 %rd3, few;\nadd.s64 %rd3, %rd3, %rd2;\nld.global.u32 %r2, [%rd3];\n"
        "st.global.u32 [%rd1+128], %r2;\nret;\n}\n";
    uint32_t got[WORDS];
    mallopt(M_PERTURB, 0x7A); /* memory is no zeros by itself */
    with_fake(FAKE_LATE, 1);
    wf_cuda_block *b = wf_cuda_alloc(0, sizeof got, &why);
    cr_assert(b, "%s", why.rule);
    void *params[] = {&b->address};
    OK(run(text, sizeof text, WORDS / 2, params));
    OK(wf_cuda_download(0, got, b->address, sizeof got, &why));
    for (uint32_t i = 0; i < WORDS; i++) {
        const uint32_t given = i - WORDS / 2;
        cr_assert_eq(got[i], given < GIVEN ? 7 + given : 0, "word %u is %#x", i, got[i]);
    }
    wf_cuda_free(b);
    close_fake();
}

/* -- what NVRTC makes ------------------------------------------------------------------------------------------------ */
static bool has_nvrtc(void)
{
    wf_why no = {0};
    wf_cu_set_library(WEFT_PTX_NVRTC);
    return wf_backend_cuda.available(&no) == 0;
}

/* The PTX of a kernel on BYTES of memory, in image; its size. */
static size_t compile(const char *body, bool contract, wf_blob *image)
{
    const wf_target target = {.arch = "sm_90", .contract = contract};
    wf_text text = {0};
    wf_text_putf(&text, "extern \"C\" __global__ void k(float *x)\n{\n%s}\n", body);
    OK(wf_backend_cuda.compile(&target, &text, image, &why));
    wf_text_free(&text);
    return image->size;
}

/* x[0] = x[0] x[1] + x[2] as the options have it: one rounding or two. */
static uint32_t product_and_sum(bool contract)
{
    const float in[3] = {1.0F + 0x1p-12F, 1.0F + 0x1p-12F, -1.0F - 0x1p-11F};
    uint32_t out;
    wf_blob image = {0};
    wf_cuda_block *b = wf_cuda_alloc(0, BYTES, &why);
    cr_assert(b, "%s", why.rule);
    void *params[] = {&b->address};
    const size_t n = compile("    x[0] = x[0] * x[1] + x[2];\n", contract, &image);
    OK(wf_cuda_upload(0, b->address, in, sizeof in, &why));
    OK(run(image.data, n, 1, params));
    OK(wf_cuda_download(0, &out, b->address, sizeof out, &why));
    wf_cuda_free(b);
    wf_blob_free(&image);
    return out;
}

Test(cuda_ptx, contraction_is_seen)
{
    if (!has_nvrtc()) {
        cr_skip_test("no NVRTC");
    }
    with_fake(FAKE_LATE, 1);
    cr_assert_eq(product_and_sum(false), 0);
    cr_assert_eq(product_and_sum(true), 0x33800000);
    close_fake();
}

/* How the texts were come by that PTX_LIST names, a letter each: compiled or kept. */
static void read_list(const char *list, char *letters, size_t n)
{
    char line[64];
    size_t at = 0;
    FILE *f = fopen(list, "r");
    while (f && at + 1 < n && fgets(line, sizeof line, f)) {
        letters[at++] = strstr(line, "kept") ? 'k' : 'c';
    }
    if (f) {
        fclose(f);
    }
    letters[at] = 0;
}

/* A text is compiled once, but for other options, in another folder, or where others could have put something there. */
Test(cuda_ptx, texts_are_kept)
{
    if (!has_nvrtc()) {
        cr_skip_test("no NVRTC");
    }
    enum { IMAGES = 7 };
    char folder[64], list[80], store[100], command[80], letters[16];
    static const char body[] = "    x[0] = x[0] * x[1] + x[2];\n";
    wf_blob image[IMAGES] = {{0}};
    snprintf(folder, sizeof folder, "%s/weft-ptx-kept-%ld", P_tmpdir, (long)getpid());
    cr_assert_eq(mkdir(folder, 0700), 0);
    setenv("TMPDIR", folder, 1);
    snprintf(list, sizeof list, "%s/list", folder);
    snprintf(store, sizeof store, "%s/weft-shim-%d", folder, (int)getuid());
    setenv("PTX_LIST", list, 1);
    compile(body, false, &image[0]);
    compile(body, false, &image[1]);
    compile(body, true, &image[2]);
    compile("    x[0] = x[0] * x[1] - x[2];\n", false, &image[3]);
    compile(body, true, &image[4]);
    cr_assert_eq(chmod(store, 0777), 0);
    compile(body, false, &image[5]);
    cr_assert_eq(chmod(store, 0700), 0);
    compile(body, false, &image[6]);
    read_list(list, letters, sizeof letters);
    cr_expect_str_eq(letters, "ckcckck");
    static const int same_as[IMAGES] = {0, 0, 2, 3, 2, 0, 0};
    for (int i = 0; i < IMAGES; i++) {
        for (int j = 0; j < i; j++) {
            const bool equal = image[i].size == image[j].size &&
                               memcmp(image[i].data, image[j].data, image[i].size) == 0;
            cr_expect_eq(equal, same_as[i] == same_as[j], "images %d and %d", i, j);
        }
    }
    for (int i = 0; i < 2; i++) {
        const wf_target target = {.arch = "sm_90"};
        wf_blob_free(&image[0]);
        compile("    float y;\n    y = x[0];\n", false, &image[0]);
        cr_expect(strstr(wf_cu_log(), "never used"), "%s", wf_cu_log());
        wf_text wrong = {0};
        wf_blob none = {0};
        wf_text_putf(&wrong, "no source");
        cr_expect_neq(wf_backend_cuda.compile(&target, &wrong, &none, &why), 0);
        cr_expect(strstr(why.rule, "error"), "%s", why.rule);
        wf_blob_free(&none);
        wf_text_free(&wrong);
    }
    for (int i = 0; i < IMAGES; i++) {
        wf_blob_free(&image[i]);
    }
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    cr_assert_eq(system(command), 0);
}

enum { WELL_RUN, RACED, OTHERWISE };

/* In a process of its own, as its device is broken afterwards. */
static int run_apart(const char *text, size_t n)
{
    const pid_t pid = fork();
    int status = 0;
    if (pid == 0) {
        gpu = fake_cuda(FAKE_LATE, 1);
        wf_cuda_block *b = gpu ? wf_cuda_alloc(0, BYTES, &why) : NULL;
        void *params[] = {b ? &b->address : NULL};
        const int ran = b ? run(text, n, 64, params) : -1;
        const bool raced = b && strstr(gpu->fault(), "of shared memory, which thread");
        _exit(ran == 0 ? WELL_RUN : raced ? RACED : OTHERWISE);
    }
    cr_assert(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Every barrier of a reduction through shared memory is needed; without any one of them it is found. */
Test(cuda_ptx, barriers_that_are_taken_out)
{
    if (!has_nvrtc()) {
        cr_skip_test("no NVRTC");
    }
    static const char body[] =
        "    __shared__ float s[64];\n    s[threadIdx.x] = x[threadIdx.x];\n"
        "    for (int h = 32; h > 0; h /= 2) {\n        __syncthreads();\n"
        "        if (threadIdx.x < h)\n            s[threadIdx.x] += s[threadIdx.x + h];\n    }\n"
        "    __syncthreads();\n    x[threadIdx.x] = s[0];\n";
    wf_blob image = {0};
    compile(body, false, &image);
    int barriers = 0, found = 0;
    for (const char *s = image.data; (s = strstr(s, "bar.sync")) != NULL; s++) {
        barriers++;
    }
    cr_assert_geq(barriers, 2);
    for (int out = -1; out < barriers; out++) {
        char *text = strdup(image.data), *s = text;
        for (int i = 0; i <= out; i++) {
            s = strstr(i ? s + 1 : s, "bar.sync");
        }
        if (out >= 0) {
            memset(s, ' ', strcspn(s, ";"));
        }
        const int said = run_apart(text, image.size);
        cr_assert_eq(said, out >= 0 ? RACED : WELL_RUN, "barrier %d: %d", out, said);
        found += out >= 0;
        free(text);
    }
    cr_assert_eq(found, barriers);
    wf_blob_free(&image);
}

/* -- suites -------------------------------------------------------------------------------------------------------- */
/* Runs a program that lies beside this one, with PTX of the real NVRTC for its kernels, of which there are at least `least`. */
static void run_suite(const char *program, const char *filter, const char *settings, int least)
{
    char self[300], command[2000], list[64], letters[4096];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    int kept = 0;
    if (!has_nvrtc()) {
        cr_skip_test("%s: no NVRTC", program);
    }
    cr_assert_gt(n, 0);
    self[n] = 0;
    *strrchr(self, '/') = 0;
    snprintf(list, sizeof list, "%s/weft-ptx-%ld", P_tmpdir, (long)getpid());
    snprintf(command, sizeof command,
             "unset BXFI_MAP; WEFT_NVRTC='%s' WEFT_CUDA_MEMCHECK=1 FAKE_CUDA_GUARD=0 "
             "WEFT_CACHE_SIZE=0 PTX_LIST='%s' "
             "FAKE_NVRTC_TEXTS= %s '%s/%s' -j1 "
             "--filter '%s' 2>&1",
             WEFT_PTX_NVRTC, list, settings, self, program, filter);
    const int status = system(command);
    read_list(list, letters, sizeof letters);
    const int kernels = (int)strlen(letters);
    for (const char *c = letters; *c; c++) {
        kept += *c == 'k';
    }
    unlink(list);
    printf("%s: %d texts of NVRTC executed, of which %d had been compiled before\n", program,
           kernels, kept);
    cr_assert_eq(status, 0, "%s", command);
    cr_assert_geq(kernels, least, "%s compiled %d texts", program, kernels);
}

#define SHARE (UNDER_ASAN ? "WEFT_TEST_EFFORT=10" : "WEFT_TEST_EFFORT=50")
#define NOT_SANITIZED()                                                                            \
    do {                                                                                           \
        if (UNDER_ASAN)                                                                            \
            cr_skip_test("the interpreter, watched, takes minutes");                               \
    } while (0)

/* Of the share that this commit has of them (script/test) a part. */
Test(cuda_ptx, elementwise_rows)
{
    run_suite("test_cuda_ops", "*", UNDER_ASAN ? "WEFT_TEST_EFFORT=10" : "WEFT_TEST_EFFORT=25",
              UNDER_ASAN ? 10 : 30);
}

/* Without max.NaN, without griddepcontrol. */
Test(cuda_ptx, older_devices)
{
    run_suite("test_cuda_ops", "*", "WEFT_TEST_EFFORT=10 FAKE_CUDA_ARCH=75", 10);
    run_suite("test_cuda_ops", "*", "WEFT_TEST_EFFORT=10 FAKE_CUDA_ARCH=80", 10);
}

/* Each commit has others of the suite's; script/gpu-check takes them all. */
Test(cuda_ptx, functions)
{
    enum { SUITE = 300, MANY = UNDER_ASAN ? 3 : 12 };
    char settings[80];
    snprintf(settings, sizeof settings, "WEFT_TEST_GRAPHS=%d WEFT_FUZZ_SEED=%d", (int)MANY,
             (int)(effort_option("WEFT_TEST_TURN", 0) % (SUITE / MANY)) * MANY);
    run_suite("test_cuda_graphs", "*", settings, 30);
}

Test(cuda_ptx, programs)
{
    NOT_SANITIZED();
    run_suite("test_cuda_programs",
              "cuda_programs/"
              "@(short_columns|columns_in_words|long_odd_rows|flat_draws|many_sums*|in_place_of*)",
              SHARE, 20);
}

Test(cuda_ptx, rows)
{
    NOT_SANITIZED();
    run_suite("test_cuda_rows", "cuda_rows/@(products|pooling|bad_indices*|attention_without_keys)",
              SHARE, 20);
}

/* All kernels of training steps: two accesses to a byte are held to a barrier between them. */
Test(cuda_ptx, training)
{
    NOT_SANITIZED();
    run_suite("test_gpu_train", "gpu_train/small_model", "", 20);
}
