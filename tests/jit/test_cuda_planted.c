/*
 * tests/jit/test_cuda_planted.c -- what is wrong on purpose is found: barriers that not all threads reach or that are missing, writes behind
 * an operand, loose compiler options, text that does not compile. And the text of two kernels, in full.
 */
#include <signal.h>
#include <stdio.h>

#include "jit/ir/cuda_text.h"
#include "jit/lower.h"
#include "tests/jit/cuda_support.h"
#include "tests/support/sanitized.h"

static const char head[] =
    "#ifdef __cplusplus\n#define WF_EXTERN extern \"C\"\n#else\n#define WF_EXTERN\n#endif\n"
    "#define WF_BEGIN\nstruct words { unsigned long long w[2]; };\n"
    "WF_EXTERN __global__ void planted(const struct words a)\n{\n    WF_BEGIN\n"
    "    unsigned char *p = (unsigned char *)a.w[0];\n    const int n = (int)a.w[1];\n";

static int compile(const char *body, wf_blob *image, wf_why *why)
{
    const wf_target target = {.arch = "sm_90", .width = 0};
    wf_text text = {0};
    wf_text_putf(&text, "%s%s}\n", head, body);
    wf_cu_set_library(WEFT_FAKE_NVRTC);
    const int status = wf_backend_cuda.compile(&target, &text, image, why);
    wf_text_free(&text);
    return status;
}

static unsigned char host[256]; /* the memory, before and after */
static unsigned blocks = 1;

/* Runs the body on memory of n bytes; the status of waiting for it. *torn: it wrote behind them. */
static int run(const char *body, size_t n, bool *torn, wf_why *why)
{
    const wf_view v = {
        .data = host, .dtype = WEFT_U8, .rank = 1, .dims = {(int64_t)n}, .strides = {1}};
    const unsigned grid[3] = {blocks, 1, 1}, block[3] = {64, 1, 1};
    wf_cuda_module *module = NULL;
    wf_cuda_fn *fn = NULL;
    wf_blob image = {0};
    mirror m = {0};
    cr_assert_eq(compile(body, &image, why), 0, "%s", why->rule);
    cr_assert_eq(wf_cuda_module_new(0, image.data, image.size, &module, why), 0, "%s", why->rule);
    cr_assert_eq(wf_cuda_function(module, "planted", &fn, why), 0, "%s", why->rule);
    mirror_add(&m, &v);
    mirror_upload(&m);
    uint64_t words[2] = {(uint64_t)(uintptr_t)mirror_view(&m, &v).data, n};
    void *params[1] = {words};
    const int status = wf_cuda_launch(fn, grid, block, 0, params, why);
    const int late = mirror_download(&m, why);
    *torn = m.torn;
    wf_cuda_module_free(module);
    wf_blob_free(&image);
    return status ? status : late;
}

Test(cuda_planted, all_is_well)
{
    NEED_FIBERS();
    bool torn;
    wf_why why = {0};
    cr_assert_eq(
        run("    if ((int)threadIdx.x < n)\n        p[threadIdx.x] = 1;\n    __syncthreads();\n",
            50, &torn, &why),
        0, "%s", why.rule);
    cr_assert(!torn);
}

/* Each in a test of its own: the device is broken from then on. */
Test(cuda_planted, threads_that_leave)
{
    NEED_FIBERS();
    bool torn;
    wf_why why = {0};
    cr_assert_neq(run("    if ((int)threadIdx.x < n)\n        __syncthreads();\n", 50, &torn, &why),
                  0);
}
Test(cuda_planted, barriers_on_two_lines)
{
    NEED_FIBERS();
    bool torn;
    wf_why why = {0};
    cr_assert_neq(run("    if ((int)threadIdx.x < n) {\n        __syncthreads();\n    } else {\n   "
                      "     __syncthreads();\n    }\n",
                      50, &torn, &why),
                  0);
}
Test(cuda_planted, half_a_shuffle)
{
    NEED_FIBERS();
    bool torn;
    wf_why why = {0};
    cr_assert_neq(run("    if ((int)threadIdx.x < n)\n        p[0] = (unsigned "
                      "char)__shfl_sync(0xFFFFFFFFu, n, 0);\n",
                      50, &torn, &why),
                  0);
}

/* Reads what the thread before it writes: right in ascending order, which nothing promises. */
Test(cuda_planted, a_barrier_that_is_missing)
{
    NEED_FIBERS();
    static const char body[] =
        "    __shared__ int s[64];\n    const int t = (int)threadIdx.x;\n"
        "    s[t] = 1 + (int)blockIdx.x;\n%s"
        "    if (s[t ? t - 1 : 0] != 1 + (int)blockIdx.x)\n        p[t] = (unsigned char)n;\n"
        "    __syncthreads();\n";
    blocks = 8;
    for (int there = 0; there < 2; there++) {
        char text[400];
        bool torn, wrong = false;
        wf_why why = {0};
        snprintf(text, sizeof text, body, there ? "    __syncthreads();\n" : "");
        memset(host, 0, sizeof host);
        cr_assert_eq(run(text, 64, &torn, &why), 0, "%s", why.rule);
        for (int i = 0; i < 64; i++)
            wrong |= host[i] != 0;
        cr_assert_eq(wrong, !there);
    }
}

Test(cuda_planted, write_behind_the_end)
{
    NEED_FIBERS();
    bool torn;
    wf_why why = {0};
    cr_assert_eq(
        run("    if ((int)threadIdx.x <= n)\n        p[threadIdx.x] = 1;\n", 50, &torn, &why), 0,
        "%s", why.rule);
    cr_assert(torn, "a write behind the operand was not seen");
}

#if !UNDER_ASAN /* which reports the fault as its own */
Test(cuda_planted, write_far_behind_the_end, .signal = SIGSEGV)
{
    NEED_FIBERS();
    bool torn;
    wf_why why = {0};
    /* past all memory of the device: a fault, which ends this process */
    cr_assert_neq(run("    *(unsigned char *)(a.w[0] + (1ull << 46)) = 1;\n", 50, &torn, &why), 0);
}
#endif

Test(cuda_planted, text_that_does_not_compile)
{
    wf_blob image = {0};
    wf_why why = {0};
    cr_assert_neq(compile("    this is no program;\n", &image, &why), 0);
    cr_assert(why.rule[0]);
}

/* -- golden text -------------------------------------------------------------------------------------------- */
Test(cuda_planted, text_of_a_map)
{
    wf_program p;
    wf_kernel k;
    wf_text text = {0};
    wf_program_init(&p);
    const int x = wf_program_input(&p, WEFT_F32), y = wf_program_input(&p, WEFT_F32);
    wf_program_output(&p, wf_program_map(&p, WF_OP_ADD, WEFT_F32, 2, (int[]){x, y}));
    cr_assert_eq(wf_program_finish(&p), 0);
    cr_assert_eq(wf_lower(&p, 0, &k, NULL), 0);
    const wf_cu_map m = {.k = &k, .rank = 2, .vector = 4, .inner = {1, 1, 0}, .like = {0, 0, 2}};
    cr_assert_eq(wf_cu_render_map(&m, &text, NULL), 0);
    cr_assert_str_eq(
        strstr(text.s, "WF_EXTERN __global__"),
        "WF_EXTERN __global__ void m_add(const struct wf_words_9 a)\n"
        "{\n    WF_BEGIN\n"
        "    float *d0 = (float *)a.w[4];\n"
        "    const float *s0 = (const float *)a.w[6];\n"
        "    const float *s1 = (const float *)a.w[7];\n"
        "    const unsigned int n = (unsigned int)a.w[0], step = (unsigned int)gridDim.x * "
        "blockDim.x;\n"
        "    for (unsigned int i = (unsigned int)blockIdx.x * blockDim.x + threadIdx.x; i < n; i "
        "+= step) {\n"
        "        unsigned int rest = i, up;\n"
        "        up = (__umulhi(rest, (unsigned int)a.w[2]) + rest) >> (unsigned int)a.w[3];\n"
        "        const unsigned int i1 = rest - up * (unsigned int)a.w[1];\n"
        "        rest = up;\n"
        "        const unsigned int i0 = rest;\n"
        "        const int o0 = 0 + (int)i0 * (int)a.w[5] + (int)i1 * 4;\n"
        "        const int o2 = 0 + (int)i0 * (int)a.w[8];\n"
        "        const struct wf_vec_f32_4 y0 = *(const struct wf_vec_f32_4 *)(s0 + o0);\n"
        "        const float x1 = s1[o2];\n"
        "        struct wf_vec_f32_4 z0;\n"
        "#pragma unroll\n"
        "        for (int j = 0; j < 4; j++) {\n"
        "        const float x0 = y0.v[j];\n"
        "        const float v2 = x0 + x1;\n"
        "        z0.v[j] = v2;\n"
        "        }\n"
        "        *(struct wf_vec_f32_4 *)(d0 + o0) = z0;\n"
        "    }\n"
        "}\n");
    wf_text_free(&text);
    wf_kernel_free(&k);
}
