/*
 * tests/jit/test_cuda_nvrtc.c -- the device's kernels compiled by the real NVRTC, many per text: no error, and registers
 * and spills of each. For sm_90, or what WEFT_TEST_ARCHS lists ("sm_80 sm_90 sm_100"); WEFT_TEST_TEXTS names a folder of
 * further texts, *.cu, which the fake NVRTC has collected from other suites.
 *
 * ctest: timeout=900
 */
#include <dirent.h>
#include <stdio.h>

#include "jit/ir/cuda_text.h"
#include "jit/lower.h"
#include "tests/jit/kernel_support.h"
#include "tests/jit/programs.h"
#include "tests/support/effort.h"

static wf_text text;
static int kernels;

/* The kernel gets a name of its own. */
static void rename_kernel(wf_kernel *k)
{
    snprintf(k->name, sizeof k->name, "k%d", kernels++);
}

static void add_map(const wf_program *p, int rank, int vector, bool wide, int inner)
{
    wf_kernel k;
    wf_why why = {0};
    cr_assert_eq(wf_lower_device(p, &k, &why), 0, "%s", why.rule);
    rename_kernel(&k);
    wf_cu_map m = {.k = &k, .wide = wide, .rank = rank, .vector = vector};
    for (int o = 0; o < p->noutput + p->ninput; o++) {
        m.inner[o] = (uint8_t)(o < p->noutput ? 1 : vector > 1 ? (inner + o) % 2 : (inner + o) % 3);
        m.like[o] = (uint8_t)o;
    }
    cr_assert_eq(wf_cu_render_map(&m, &text, &why), 0, "%s", why.rule);
    wf_kernel_free(&k);
}

static void add_rows(const wf_program *p, wf_cu_scheme scheme, bool shared, bool wide, int axes)
{
    wf_kernel k;
    wf_why why = {0};
    cr_assert_eq(wf_lower_device(p, &k, &why), 0, "%s", why.rule);
    rename_kernel(&k);
    const wf_cu_rows r = {&k, scheme, wide, shared && k.rows->nkeep, axes, axes};
    cr_assert_eq(wf_cu_render_rows(&r, &text, &why), 0, "%s", why.rule);
    wf_kernel_free(&k);
}

static int number_before(const char *log, const char *what)
{
    int sum = 0;
    for (const char *s = log; (s = strstr(s, what)) != NULL; s++) {
        const char *d = s;
        while (d > log && d[-1] >= '0' && d[-1] <= '9')
            d--;
        sum += atoi(d);
    }
    return sum;
}

static void compile_for(const char *arch, const char *what, bool tell)
{
    wf_why why = {0};
    wf_blob cubin = {0};
    const wf_target target = {.arch = arch, .width = 0};
    const int status = wf_backend_cuda.compile(&target, &text, &cubin, &why);
    cr_assert_eq(status, 0, "%s for %s: %s\n%s", what, arch, why.rule, wf_cu_log());
    int most = 0, entries = 0;
    for (const char *s = wf_cu_log(); (s = strstr(s, "Used ")) != NULL; s++, entries++)
        most = atoi(s + 5) > most ? atoi(s + 5) : most;
    const int spilled = number_before(wf_cu_log(), " bytes spill stores");
    if (tell || spilled)
        printf("%s for %s: cubin of %zu bytes; of %d kernels in the log at most %d registers, %d "
               "bytes "
               "spilled\n",
               what, arch, cubin.size, entries, most, spilled);
    wf_blob_free(&cubin);
}

/* The text for each architecture that is asked for. */
static void for_archs(const char *what, bool tell)
{
    const char *s = getenv("WEFT_TEST_ARCHS");
    char arch[16];
    int n;
    for (s = s && *s ? s : "sm_90"; sscanf(s, "%15s%n", arch, &n) == 1; s += n)
        compile_for(arch, what, tell);
}

/* Compiles what has been collected. */
static void compile_all(const char *what)
{
    cr_assert(!text.failed);
    FILE *f = getenv("WEFT_DUMP_CUDA") ? fopen(getenv("WEFT_DUMP_CUDA"), "w") : NULL;
    if (f) {
        fputs(text.s, f);
        fclose(f);
    }
    for_archs(what, true);
    wf_text_free(&text);
}

#define NEED_NVRTC()                                                                               \
    do {                                                                                           \
        wf_why why_ = {0};                                                                         \
        wf_cu_set_toolkit(getenv("CUDA_HOME"));                                                    \
        if (wf_backend_cuda.available(&why_) != 0)                                                 \
            cr_skip_test("%s", why_.rule);                                                         \
    } while (0)

Test(cuda_nvrtc, elementwise)
{
    NEED_NVRTC();
    for (int t = 0; t < (int)effort_of(24); t++) {
        static sample s;
        draw(&s, 1 + t % 9);
        add_map(&s.p, 1 + t % 3, t % 2 ? 1 : 4, t % 5 == 0, t);
    }
    compile_all("elementwise");
}

Test(cuda_nvrtc, reductions)
{
    static const program_maker makers[] = {program_softmax, program_layer_norm,
                                           program_cross_entropy, program_everything_reduced};
    NEED_NVRTC();
    for (int m = 0; m < 4; m++)
        for (int scheme = WF_CU_WARP; scheme <= WF_CU_SPLIT_OUTER; scheme++) {
            static wf_program p;
            wf_program_init(&p);
            makers[m](&p, m % 2 ? WEFT_BF16 : WEFT_F32);
            cr_assert_eq(wf_program_finish(&p), 0);
            add_rows(&p, (wf_cu_scheme)scheme, scheme <= WF_CU_BLOCK_ROWS && m % 2 == 0, m == 1,
                     1 + m % 2);
        }
    compile_all("reductions");
}

Test(cuda_nvrtc, random_reductions)
{
    NEED_NVRTC();
    for (int t = 0; t < (int)effort_of(20); t++) {
        static sample s;
        program_draw_rows(&s);
        if (s.p.rows)
            add_rows(&s.p, (wf_cu_scheme)(t % 5), t % 10 < 2, t % 3 == 0, 1 + t % 2);
    }
    compile_all("random reductions");
}

Test(cuda_nvrtc, written_by_hand)
{
    static const struct {
        const char *section;
        int n, type[6];
    } sections[] = {{"check", 0, {0}},
                    {"select", 1, {WEFT_U8, WEFT_I16, WEFT_I32, WEFT_I64}},
                    {"along", 1, {WEFT_I32}},
                    {"index_add", 1, {WEFT_F32, WEFT_BF16, WEFT_F64, WEFT_I64, WEFT_U8}},
                    {"places", 0, {0}},
                    {"index_add_sorted", 1, {WEFT_F32, WEFT_F16, WEFT_I32}},
                    {"scatter_add", 1, {WEFT_F32, WEFT_F16, WEFT_I32}},
                    {"offsets", 0, {0}},
                    {"through", 1, {WEFT_F32, WEFT_F16, WEFT_I32, WEFT_U8}},
                    {"tri", 1, {WEFT_I32}},
                    {"scan", 2, {WEFT_F64, WEFT_I64}},
                    {"arg", 1, {WEFT_F32, WEFT_BF16, WEFT_F64, WEFT_I64, WEFT_BOOL, WEFT_I8}},
                    {"gemm", 2, {WEFT_F32, WEFT_BF16, WEFT_F16, WEFT_F64}},
                    {"conv", 1, {WEFT_F32, WEFT_BF16, WEFT_F16, WEFT_F64}},
                    {"attend", 2, {WEFT_F32, WEFT_F64}},
                    {"dscores", 1, {WEFT_F32, WEFT_F64}},
                    {"flash", 2, {WEFT_F32, WEFT_BF16, WEFT_F16}},
                    {"flash_back", 2, {WEFT_F32, WEFT_BF16, WEFT_F16}},
                    {"transpose", 1, {WEFT_U8, WEFT_I16, WEFT_I32, WEFT_I64}},
                    {"max_pool", 1, {WEFT_F32, WEFT_BF16}},
                    {"avg_pool", 1, {WEFT_F32, WEFT_F16}},
                    {"avg_pool_bwd", 1, {WEFT_F32, WEFT_F64}},
                    {"sort", 1, {WEFT_F32, WEFT_I64, WEFT_BF16}}};
    NEED_NVRTC();
    for (size_t k = 0; k < 2 * sizeof sections / sizeof *sections; k++)
        for (int d = 0; d < 6; d++) {
            const size_t i = k / 2;
            const bool flash = strncmp(sections[i].section, "flash", 5) == 0;
            const int wide = flash ? 1 + (int)(k % 2) : 0;
            if ((d > 0 && !sections[i].type[d]) || (k % 2 && !flash))
                break;
            char name[32];
            wf_why why = {0};
            const uint8_t type = (uint8_t)sections[i].type[d];
            const wf_cu_hand h = {.section = sections[i].section,
                                  .n = sections[i].n,
                                  .dtype = {type, type},
                                  .wide = wide};
            snprintf(name, sizeof name, "k%d", kernels++);
            cr_assert_eq(wf_cu_render_hand(&h, name, &text, &why), 0, "%s", why.rule);
            /* what NVRTC makes of a text does not depend on the sanitizer of the program that asks */
            if ((size_t)kernels % 10 < effort_of(10))
                compile_all(sections[i].section);
            wf_text_free(&text);
        }
}

/* Texts that other suites had compiled by the fake. */
Test(cuda_nvrtc, collected, .timeout = 3600)
{
    const char *folder = getenv("WEFT_TEST_TEXTS");
    DIR *d = folder && *folder ? opendir(folder) : NULL;
    if (!d)
        cr_skip_test("WEFT_TEST_TEXTS names no folder of texts");
    NEED_NVRTC();
    int n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[600], block[4096];
        const char *dot = strrchr(e->d_name, '.');
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        FILE *f = dot && strcmp(dot, ".cu") == 0 ? fopen(path, "r") : NULL;
        for (size_t got; f && (got = fread(block, 1, sizeof block, f)) > 0;)
            wf_text_put(&text, block, got);
        if (!f)
            continue;
        fclose(f);
        for_archs(e->d_name, false);
        wf_text_free(&text);
        text = (wf_text){0};
        n++;
    }
    closedir(d);
    printf("%d texts\n", n);
    cr_assert_gt(n, 0);
}
