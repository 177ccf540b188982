/*
 * tests/jit/test_cuda_sass.c -- loads in flight in kernels over rows. In the text: no loop counts with an unsigned counter, which would be
 * unrolled with an exit after each load, and groups are gathered before they are computed. In what NVRTC makes of it, where it and
 * cuobjdump are found (in PATH or CUDA_HOME): a group's loads are issued before the first of them is used. And of flat elementwise
 * kernels: what stays is not read in the loop, which has vectors only and divides nothing.
 *
 * ctest: timeout=300
 */
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "jit/ir/cuda_text.h"
#include "jit/lower.h"
#include "tests/jit/kernel_support.h"
#include "tests/jit/programs.h"

static void write_sum(wf_program *p, int dtype)
{
    const int x = wf_program_cast(p, wf_program_input(p, dtype), WEFT_F32);
    wf_program_output(p, wf_program_reduce(p, WF_OP_SUM, x));
}

static const struct {
    const char *name;
    program_maker make;
} makers[] = {{"sum", write_sum},
              {"softmax", program_softmax},
              {"layer_norm", program_layer_norm},
              {"cross_entropy", program_cross_entropy}};
enum { MAKERS = sizeof makers / sizeof *makers };

static void render(int maker, int dtype, wf_cu_scheme scheme, bool wide, int vector, wf_text *text)
{
    static wf_program p;
    wf_kernel k;
    wf_why why = {0};
    wf_program_init(&p);
    makers[maker].make(&p, dtype);
    cr_assert_eq(wf_program_finish(&p), 0);
    cr_assert_eq(wf_lower_device(&p, &k, &why), 0, "%s", why.rule);
    wf_cu_rows r = {.k = &k,
                    .scheme = scheme,
                    .wide = wide,
                    .shared = scheme <= WF_CU_BLOCK_ROWS && k.rows->nkeep,
                    .nk = 1,
                    .nr = 1};
    take_vectors(&r, vector, scheme == WF_CU_BLOCK_ROWS);
    cr_assert_eq(wf_cu_render_rows(&r, text, &why), 0, "%s", why.rule);
    wf_kernel_free(&k);
}

Test(cuda_sass, texts)
{
    int groups = 0;
    for (int m = 0; m < MAKERS; m++)
        for (int scheme = WF_CU_WARP; scheme <= WF_CU_SPLIT_OUTER; scheme++)
            for (int wide = 0; wide < 2; wide++) {
                wf_text text = {0};
                render(m, wide ? WEFT_BF16 : WEFT_F32, (wf_cu_scheme)scheme, wide, 0, &text);
                cr_expect(!strstr(text.s, "for (unsigned"), "%s, scheme %d", makers[m].name,
                          scheme);
                for (const char *s = text.s; (s = strstr(s, "s0[u] = ")) != NULL; s++)
                    groups++;
                wf_text_free(&text);
            }
    cr_expect_geq(groups, MAKERS * 10 * 2, "%d groups", groups);
}

/* -- machine code ---------------------------------------------------------------------------------------------- */
enum { MOST = 20000, LINE = 100 };
static char code[MOST][LINE]; /* instructions; an empty one begins a function */
static unsigned address[MOST];

/* A line of cuobjdump: spaces, the address in a comment, the instruction, a semicolon. */
static int read_code(FILE *f)
{
    char line[400];
    int n = 0;
    while (n < MOST && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, "/*"), *end = at ? strchr(at, ';') : NULL;
        char *rest;
        if (strstr(line, "Function :")) {
            code[n++][0] = '\0';
        } else if (end) {
            address[n] = (unsigned)strtoul(at + 2, &rest, 16);
            if (strncmp(rest, "*/", 2) != 0)
                continue;
            while (isspace((unsigned char)*(rest += rest[0] == '*' ? 2 : 1)))
                ;
            snprintf(code[n++], LINE, "%.*s", (int)(end - rest), rest);
        }
    }
    return n;
}

/* The instruction that a branch goes back to; -1: it is none. */
static int goes_back(int i)
{
    const char *to = strstr(code[i], "BRA") ? strstr(code[i], "0x") : NULL;
    const unsigned goal = to ? (unsigned)strtoul(to, NULL, 16) : 0;
    if (!to || goal >= address[i])
        return -1;
    int j = i;
    while (j > 0 && code[j][0] && address[j] > goal)
        j--;
    return code[j][0] && address[j] == goal ? j : -1;
}

static bool names(const char *instruction, const char *reg)
{
    const size_t n = strlen(reg);
    for (const char *s = instruction; (s = strstr(s, reg)) != NULL; s++)
        if (!isalnum((unsigned char)s[n]) && (s == instruction || !isalnum((unsigned char)s[-1])))
            return true;
    return false;
}

/* Loads from global memory of [begin, end]; *most: issued before the first of them is used. */
static int loads_of(int begin, int end, int *most)
{
    char reg[64][8];
    int loads = 0, n = 0;
    *most = 0;
    for (int i = begin; i <= end; i++) {
        const char *load = strstr(code[i], "LDG");
        if (load) {
            loads++;
            if (n < 64 && sscanf(load, "LDG%*[^ ] %7[R0-9]", reg[n]) == 1)
                n++;
            *most = n > *most ? n : *most;
            continue;
        }
        for (int r = 0; r < n; r++)
            if (names(code[i], reg[r]))
                n = 0;
    }
    return loads;
}

/* Innermost loops with eight loads, which are those over whole groups. */
static int check_loops(const char *name, int n)
{
    int loops = 0, inner = -1; /* the last branch back that was seen */
    for (int i = 0; i < n; i++) {
        const int begin = goes_back(i);
        int most;
        if (begin < 0)
            continue;
        if (begin > inner && loads_of(begin, i, &most) == 8) {
            cr_expect_geq(most, 7, "%s: %d loads in flight of 8 at %x", name, most, address[begin]);
            loops++;
        }
        inner = i;
    }
    return loops;
}

/* Innermost loops that load vectors: each is one load, half of them are issued before one is used; what is stored is stored as vectors. */
static int check_vectors(const char *name, int n)
{
    int loops = 0, inner = -1;
    for (int i = 0; i < n; i++) {
        const int begin = goes_back(i);
        int most, narrow = 0;
        if (begin < 0)
            continue;
        const int loads = begin > inner ? loads_of(begin, i, &most) : 0;
        for (int j = begin; j <= i; j++)
            narrow += !strstr(code[j], ".128") &&
                      (strstr(code[j], "LDG") || strstr(code[j], "STG") || strstr(code[j], "STS"));
        if (loads >= 2 && narrow == 0) {
            cr_expect_geq(most, loads / 2, "%s: %d loads in flight of %d at %x", name, most, loads,
                          address[begin]);
            loops++;
        }
        inner = i;
    }
    return loops;
}

/* "FOLDER/cuobjdump" or "cuobjdump"; NULL: it is not there. */
static const char *find_tool(void)
{
    static char tool[300];
    const char *home = getenv("CUDA_HOME");
    snprintf(tool, sizeof tool, "%s/bin/cuobjdump", home ? home : "");
    if (home && access(tool, X_OK) == 0)
        return tool;
    return system("command -v cuobjdump >/dev/null 2>&1") == 0 ? "cuobjdump" : NULL;
}

/* The machine code of a text: how many instructions of it there are. */
static int read_kernel(const char *tool, const wf_text *text)
{
    const wf_target target = {.arch = "sm_90", .width = 0};
    char path[64], command[400];
    wf_blob cubin = {0};
    wf_why why = {0};
    cr_assert_eq(wf_backend_cuda.compile(&target, text, &cubin, &why), 0, "%s", why.rule);
    snprintf(path, sizeof path, "%s/weft-sass-%ld", P_tmpdir, (long)getpid());
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    cr_assert(fd >= 0 && write(fd, cubin.data, cubin.size) == (ssize_t)cubin.size);
    close(fd);
    wf_blob_free(&cubin);
    snprintf(command, sizeof command, "%s -sass %s", tool, path);
    FILE *f = popen(command, "r");
    cr_assert(f);
    const int n = read_code(f);
    pclose(f);
    unlink(path);
    cr_assert_gt(n, 50, "%s printed %d instructions", tool, n);
    return n;
}

static int check_kernel(const char *tool, int maker, int dtype, wf_cu_scheme scheme, int vector)
{
    char name[80];
    wf_text text = {0};
    render(maker, dtype, scheme, false, vector, &text);
    const int n = read_kernel(tool, &text);
    snprintf(name, sizeof name, "%s, type %d, scheme %d, vectors of %d", makers[maker].name, dtype,
             (int)scheme, vector);
    const int loops = vector ? check_vectors(name, n) : check_loops(name, n);
    cr_expect_gt(loops, 0, "%s: no loop over groups among %d instructions", name, n);
    wf_text_free(&text);
    return loops;
}

Test(cuda_sass, loads_in_flight)
{
    wf_why why = {0};
    int loops = 0;
    const char *tool = find_tool();
    wf_cu_set_toolkit(getenv("CUDA_HOME"));
    if (wf_backend_cuda.available(&why) != 0)
        cr_skip_test("%s", why.rule);
    if (!tool)
        cr_skip_test("cuobjdump is neither in PATH nor in CUDA_HOME");
    for (int m = 0; m < MAKERS; m++)
        for (int scheme = WF_CU_WARP; scheme <= WF_CU_COLUMN; scheme++)
            loops +=
                check_kernel(tool, m, scheme % 2 ? WEFT_BF16 : WEFT_F32, (wf_cu_scheme)scheme, 0);
    for (int m = 0; m < MAKERS; m++)
        for (int scheme = WF_CU_WARP; scheme <= WF_CU_SPLIT; scheme++)
            if (scheme != WF_CU_OUTER)
                loops += check_kernel(tool, m, WEFT_F32, (wf_cu_scheme)scheme, 4);
    printf("%d loops over groups\n", loops);
}

/* The only loop of bf16 x + row: for each vector of eight a load, a store, the upper halves of four words; nothing is divided. */
Test(cuda_sass, flat_maps)
{
    wf_why why = {0};
    const char *tool = find_tool();
    wf_cu_set_toolkit(getenv("CUDA_HOME"));
    if (wf_backend_cuda.available(&why) != 0)
        cr_skip_test("%s", why.rule);
    if (!tool)
        cr_skip_test("cuobjdump is neither in PATH nor in CUDA_HOME");
    for (int groups = 1; groups <= 2; groups++) {
        static wf_program p;
        wf_kernel k;
        wf_text text = {0};
        wf_program_init(&p);
        const int x = wf_program_cast(&p, wf_program_input(&p, WEFT_BF16), WEFT_F32);
        const int y = wf_program_cast(&p, wf_program_input(&p, WEFT_BF16), WEFT_F32);
        wf_program_output(&p, wf_program_cast(&p, program_map2(&p, WF_OP_ADD, x, y), WEFT_BF16));
        cr_assert_eq(wf_program_finish(&p), 0);
        cr_assert_eq(wf_lower_device(&p, &k, &why), 0, "%s", why.rule);
        const wf_cu_map m = {.k = &k,
                             .flat = true,
                             .rank = 2,
                             .vector = 8,
                             .groups = groups,
                             .dense = 3,
                             .whole = 3,
                             .still = 4,
                             .inner = {1, 1, 1},
                             .like = {0, 0, 2}};
        cr_assert_eq(wf_cu_render_map(&m, &text, &why), 0, "%s", why.rule);
        const int n = read_kernel(tool, &text);
        int loops = 0, loads = 0, stores = 0, other = 0, halves = 0;
        for (int i = 0; i < n; i++) {
            const int begin = goes_back(i);
            if (begin < 0 || begin == i) /* the last instruction goes nowhere */
                continue;
            loops++;
            for (int j = begin; j <= i; j++) {
                const bool vector = strstr(code[j], ".128") != NULL;
                loads += vector && strstr(code[j], "LDG");
                stores += vector && strstr(code[j], "STG");
                other += !vector && (strstr(code[j], "LDG") || strstr(code[j], "STG"));
                other += strstr(code[j], "IMAD.HI") || strstr(code[j], "PRMT");
                halves += strstr(code[j], "LOP3") && strstr(code[j], "0xffff0000");
            }
        }
        cr_expect(loops == 1 && loads == groups && stores == groups && other == 0 &&
                      halves == 4 * groups,
                  "%d loops: %d loads, %d stores of vectors, %d upper halves, %d other", loops,
                  loads, stores, halves, other);
        wf_text_free(&text);
        wf_kernel_free(&k);
    }
}
