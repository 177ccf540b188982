/*
 * tests/jit/test_cuda_text.c -- CUDA text: compiled by NVRTC, and executed on the host with the bits of the
 * eager kernels.
 *
 * The same text goes both ways. Programs hold the rows add, mul, where, exp, sigmoid, sum, permute, gather and
 * matmul, forward and backward, in f32 and bf16, and sin and fmod for their rare branches. Operands of a launch
 * lie between unmapped pages, flush with the upper one, so that an access outside is a crash.
 *
 * ctest: timeout=600
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "eager/exec.h"
#include "jit/codegen_cuda/render.h"
#include "tests/jit/shim/fibers.h"
#include "tests/jit/moves.h"
#include "tests/jit/values.h"
#include "tests/support/sanitized.h"

int wf_exec_reduce(wf_exec *e);

enum { MAX_KERNELS = 40 };

typedef struct item {
    wf_kernel k;
    wf_op op;
    int which; /* -1 forward; elementwise kernels only */
    int nsrc;
    uint8_t src[5];
    int dst;
    bool fibers;
    shim_entry entry;
} item;

typedef struct program {
    int dtype, n;
    item items[MAX_KERNELS];
    wf_text text;
    void *library;
    shim_machine **slot;
} program;

static void add_row(program *p, wf_op op, int which)
{
    item *it = &p->items[p->n++];
    const int kind = wf_rows[op].kind;
    it->op = op;
    it->which = which;
    it->nsrc = wf_rows[op].min_src + (which >= 0 ? 2 : 0);
    it->dst = p->dtype;
    memset(it->src, p->dtype, sizeof it->src);
    if (kind == WF_KIND_CHOOSE)
        it->src[which >= 0 ? 1 : 0] = WEFT_BOOL;
    cr_assert_eq(wf_kernel_of_row(&it->k, op, which, wf_dtype_compute(p->dtype), it->nsrc, it->src,
                                  it->dst, NULL),
                 0);
}

/* Renders everything of one dtype into one text. */
static void make_program(program *p, int dtype)
{
    static const wf_op rows[] = {WF_OP_ADD, WF_OP_MUL, WF_OP_WHERE, WF_OP_EXP, WF_OP_SIGMOID};
    static const wf_skeleton moves[] = {WF_SK_PERMUTE, WF_SK_GATHER, WF_SK_SCATTER, WF_SK_MATMUL};
    p->dtype = dtype;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int which = -1; which < wf_rows[rows[r]].min_src; which++)
            if (which < 0 || wf_kir_has_vjp(rows[r], which, wf_dtype_compute(dtype)))
                add_row(p, rows[r], which);
    add_row(p, WF_OP_SIN, -1);
    add_row(p, WF_OP_FMOD, -1);
    for (int s = 0; s < 2; s++)
        cr_assert_eq(wf_kernel_of_sum(&p->items[p->n++].k, s ? WF_SK_SUM_OUTER : WF_SK_SUM_INNER,
                                      dtype, dtype, NULL),
                     0);
    for (size_t m = 0; m < sizeof moves / sizeof *moves; m++)
        cr_assert_eq(wf_kernel_of_move(&p->items[p->n++].k, moves[m], dtype, NULL), 0);
    const wf_target target = {.arch = "sm_90", .width = 0};
    for (int i = 0; i < p->n; i++) {
        const size_t before = p->text.n;
        wf_why why = {0};
        cr_assert_eq(wf_backend_cuda.render(&p->items[i].k, &target, &p->text, &why), 0, "%s",
                     why.rule);
        p->items[i].fibers = strstr(p->text.s + before, "sync") != NULL;
    }
}

static void drop_program(program *p)
{
    for (int i = 0; i < p->n; i++)
        wf_kernel_free(&p->items[i].k);
    wf_text_free(&p->text);
    if (p->library)
        dlclose(p->library);
    memset(p, 0, sizeof *p);
}

/* -- NVRTC ----------------------------------------------------------------------------------------------- */
static void compile_with_nvrtc(int dtype)
{
    static program p;
    wf_why why = {0};
    wf_cu_set_toolkit(getenv("CUDA_HOME"));
    if (wf_backend_cuda.available(&why) != 0)
        cr_skip_test("%s", why.rule);
    make_program(&p, dtype);
    wf_blob cubin = {0};
    const wf_target target = {.arch = "sm_90", .width = 0};
    cr_assert_eq(wf_backend_cuda.compile(&target, &p.text, &cubin, &why), 0, "%s\n%s", why.rule,
                 wf_cu_log());
    cr_assert_gt(cubin.size, 1000u);
    cr_assert_eq(memcmp(cubin.data, "\177ELF", 4), 0);
    int registers = 0, spilled = 0, functions = 0;
    for (const char *s = wf_cu_log(); (s = strstr(s, "Used ")) != NULL; s++, functions++) {
        const int r = atoi(s + 5);
        registers = r > registers ? r : registers;
    }
    for (const char *s = wf_cu_log(); (s = strstr(s, " bytes spill stores")) != NULL; s++) {
        const char *d = s;
        while (d[-1] >= '0' && d[-1] <= '9')
            d--;
        spilled += atoi(d);
    }
    printf("%s: %d kernels, cubin of %zu bytes; of %d kernels in the log at most %d registers, %d "
           "bytes "
           "spilled\n",
           wf_dtype_name(dtype), p.n, cubin.size, functions, registers, spilled);
    cr_assert_eq(functions, p.n, "%s", wf_cu_log());
    cr_assert_eq(spilled, 0, "%s", wf_cu_log());
    wf_blob_free(&cubin);
    drop_program(&p);
}
Test(cuda_text, nvrtc_compiles_f32)
{
    compile_with_nvrtc(WEFT_F32);
}
Test(cuda_text, nvrtc_compiles_bf16)
{
    compile_with_nvrtc(WEFT_BF16);
}

/* -- the host machine ------------------------------------------------------------------------------------ */
/* Builds the program with the host's compiler and loads it. */
static void load_program(program *p)
{
    char folder[64], path[128], command[1024];
    snprintf(folder, sizeof folder, "/tmp/weft-shim-%d-%d", (int)getpid(), p->dtype);
    cr_assert_eq(mkdir(folder, 0700), 0);
    snprintf(path, sizeof path, "%s/k.c", folder);
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f);
    fprintf(f, "#include \"cuda_shim.h\"\n%s", p->text.s);
    for (int i = 0; i < p->n; i++) {
        const wf_kernel *k = &p->items[i].k;
        fprintf(f, "void call_%s(void *const *p, const long long *s)\n{\n    %s(", k->name,
                k->name);
        for (int a = 0; a < wf_kernel_nptr(k); a++)
            fprintf(f, "p[%d], ", a);
        for (int a = 0; a < wf_kernel_nsize(k); a++)
            fprintf(f, "%ss[%d]", a ? ", " : "", a);
        fprintf(f, ");\n}\n");
    }
    cr_assert_eq(fclose(f), 0);
    snprintf(command, sizeof command,
             "cc -std=gnu17 -O1 -w -fPIC -shared -ffp-contract=off -fno-math-errno -fwrapv "
             "-I%s/tests/jit/shim %s/k.c -o %s/k.so -lm 2>%s/log",
             WEFT_SOURCE_DIR, folder, folder, folder);
    const bool have = system("command -v cc >/dev/null 2>&1") == 0;
    const int status = have ? system(command) : 1;
    snprintf(path, sizeof path, "%s/k.so", folder);
    if (status == 0)
        p->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (status != 0 && have) {
        snprintf(command, sizeof command, "head -20 %s/log >&2", folder);
        (void)!system(command);
    }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    (void)!system(command);
    if (!have)
        cr_skip_test("no host C compiler to execute CUDA text with");
    cr_assert_eq(status, 0, "the host's compiler refused the text");
    cr_assert_not_null(p->library, "%s", dlerror());
    void *slot = dlsym(p->library, "shim");
    p->slot = slot;
    for (int i = 0; i < p->n; i++) {
        char name[96];
        snprintf(name, sizeof name, "call_%s", p->items[i].k.name);
        void *symbol = dlsym(p->library, name);
        cr_assert_not_null(symbol, "%s", name);
        memcpy(&p->items[i].entry, &symbol, sizeof symbol);
    }
}

/* Memory between unmapped pages, its end at the upper one. */
typedef struct guarded {
    char *base, *data;
    size_t mapped;
} guarded;

static guarded guard(size_t bytes, const void *from)
{
    const size_t page = 4096, body = (bytes + page - 1) / page * page + page;
    guarded g = {.mapped = body + 2 * page};
    g.base = mmap(NULL, g.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq((void *)g.base, MAP_FAILED);
    cr_assert_eq(mprotect(g.base + page, body, PROT_READ | PROT_WRITE), 0);
    g.data = g.base + page + body - bytes;
    memset(g.base + page, 0x5A, body);
    if (from)
        memcpy(g.data, from, bytes);
    return g;
}
static void unguard(guarded *g)
{
    munmap(g->base, g->mapped);
}

static void launch(const program *p, const item *it, int blocks, int threads, void *const *ptr,
                   const long long *size)
{
    const char *wrong = shim_launch(p->slot, it->entry, it->fibers, blocks, threads, ptr, size);
    cr_assert_null(wrong, "%s: %s", it->k.name, wrong);
}

static void compare(const program *p, const void *got, const void *want, int64_t n,
                    const char *what)
{
    const wf_kty type = wf_kir_storage(p->dtype);
    for (int64_t i = 0; i < n; i++)
        if (!values_same(wf_kir_peek(got, type, i), wf_kir_peek(want, type, i), p->dtype))
            cr_assert_fail("%s, %s, element %lld of %lld: %llx, expected %llx", what,
                           wf_dtype_name(p->dtype), (long long)i, (long long)n,
                           (unsigned long long)wf_kir_peek(got, type, i),
                           (unsigned long long)wf_kir_peek(want, type, i));
}

static wf_view vector(void *v, int dtype, int64_t n)
{
    return (wf_view){.data = v, .dtype = (uint8_t)dtype, .rank = 1, .dims = {n}, .strides = {1}};
}

static void run_map(const program *p, const item *it)
{
    static const long long sizes[] = {0, 1, 31, 63, 64, 65, 2993};
    static const int grids[][2] = {{1, 1}, {1, 32}, {3, 64}, {2, 256}};
    for (size_t z = 0; z < sizeof sizes / sizeof *sizes; z++) {
        const long long n = sizes[z];
        const size_t esize = wf_dtype_size(p->dtype);
        guarded src[5], dst = guard((size_t)n * esize, NULL);
        void *ptr[6] = {dst.data}, *want = calloc((size_t)n + 1, esize);
        wf_view v[5], out = vector(want, p->dtype, n);
        for (int s = 0; s < it->nsrc; s++) {
            void *x = values_new(it->src[s], n, s);
            src[s] = guard((size_t)n * wf_dtype_size(it->src[s]), x);
            ptr[s + 1] = src[s].data;
            v[s] = vector(src[s].data, it->src[s], n);
            free(x);
        }
        const int compute = wf_dtype_compute(p->dtype);
        cr_assert_eq(it->which < 0 ? wf_exec_map(it->op, compute, &out, it->nsrc, v)
                                   : wf_exec_vjp(it->op, it->which, compute, &out, it->nsrc, v),
                     0);
        for (int g = 0; g < 4; g++) {
            memset(dst.data, 0xA5, (size_t)n * esize);
            launch(p, it, grids[g][0], grids[g][1], ptr, &n);
            compare(p, dst.data, want, n, it->k.name);
        }
        for (int s = 0; s < it->nsrc; s++)
            unguard(&src[s]);
        unguard(&dst);
        free(want);
    }
}

/* Whether this build can switch stacks: AddressSanitizer cannot follow them. */
static bool skips_fibers(const item *it)
{
    return UNDER_ASAN && it->fibers;
}

static void run_sum(const program *p, const item *it)
{
    static const long long shapes[][2] = {{1, 100003}, {2, 4097}, {3, 4096}, {2, 4095}, {4, 65},
                                          {3, 64},     {2, 63},   {5, 3},    {33, 1},   {3, 0}};
    const bool inner = it->k.skeleton == WF_SK_SUM_INNER;
    for (size_t z = 0; z < sizeof shapes / sizeof *shapes; z++) {
        const long long kept = shapes[z][0], n = shapes[z][1];
        const size_t esize = wf_dtype_size(p->dtype);
        void *x = values_ordinary(p->dtype, kept * n, (int)z), *want = calloc((size_t)kept, esize);
        guarded src = guard((size_t)(kept * n) * esize, x), dst = guard((size_t)kept * esize, NULL);
        const int64_t axis = inner;
        wf_view in = {.data = src.data, .dtype = (uint8_t)p->dtype, .rank = 2};
        in.dims[0] = inner ? kept : n;
        in.dims[1] = inner ? n : kept;
        in.strides[0] = in.dims[1];
        in.strides[1] = 1;
        wf_view out = vector(want, p->dtype, kept);
        const wf_attr attr = {.dtype = (uint8_t)p->dtype, .n_ints = 1, .ints = &axis};
        wf_why why = {0};
        wf_exec e = {WF_OP_SUM, 1, 1, &in, &out, &attr, &why, NULL, false};
        cr_assert_eq(wf_exec_reduce(&e), 0, "%s", why.rule);
        void *ptr[2] = {dst.data, src.data};
        for (int threads = inner ? 32 : 256; threads <= 256; threads *= 2)
            for (int blocks = 1; blocks <= 3; blocks += 2) {
                memset(dst.data, 0xA5, (size_t)kept * esize);
                launch(p, it, blocks, threads, ptr, shapes[z]);
                compare(p, dst.data, want, kept, it->k.name);
            }
        free(x);
        free(want);
        unguard(&src);
        unguard(&dst);
    }
}

/* The permutation 2 0 3 1 of a 3 x 5 x 4 x 7 block, and (the derivative of a sum) a broadcast. */
static void run_permute(const program *p, const item *it)
{
    static const long long sizes[2][8] = {{4, 3, 7, 5, 7, 140, 1, 28}, {1, 1, 60, 7, 0, 0, 1, 0}};
    const size_t esize = wf_dtype_size(p->dtype);
    void *x = values_new(p->dtype, 420, 0), *want = calloc(420, esize);
    guarded src = guard(420 * esize, x), dst = guard(420 * esize, NULL);
    void *ptr[2] = {dst.data, src.data};
    for (int c = 0; c < 2; c++) {
        wf_view in = {.data = src.data, .dtype = (uint8_t)p->dtype, .rank = 4};
        wf_view out = {.data = want, .dtype = (uint8_t)p->dtype, .rank = 4};
        long long step = 1;
        for (int d = 3; d >= 0; d--) {
            in.dims[d] = out.dims[d] = sizes[c][d];
            in.strides[d] = sizes[c][d + 4];
            out.strides[d] = step;
            step *= sizes[c][d];
        }
        wf_copy(&out, &in);
        launch(p, it, 2, 96, ptr, sizes[c]);
        compare(p, dst.data, want, 420, it->k.name);
    }
    free(x);
    free(want);
    unguard(&src);
    unguard(&dst);
}

static void run_gather(const program *p, const item *it)
{
    enum { ROWS = 11, WIDTH = 13, M = 29 };
    const size_t esize = wf_dtype_size(p->dtype);
    void *x = values_new(p->dtype, ROWS * WIDTH, 0);
    int64_t index[M], error = -1;
    char *want = calloc(M * WIDTH, esize);
    for (int i = 0; i < M; i++)
        index[i] = (int64_t)(values_hash((uint64_t)i) % ROWS);
    moves_gather(p->dtype, want, x, index, M, WIDTH);
    guarded src = guard(ROWS * WIDTH * esize, x), dst = guard(M * WIDTH * esize, NULL);
    guarded ix = guard(sizeof index, index);
    void *ptr[4] = {dst.data, src.data, ix.data, &error};
    const long long size[3] = {M, WIDTH, ROWS};
    launch(p, it, 3, 32, ptr, size);
    compare(p, dst.data, want, M * WIDTH, it->k.name);
    cr_assert_eq(error, -1);
    ((int64_t *)(void *)ix.data)[20] = ROWS; /* bad ones are reported, and nothing is read */
    ((int64_t *)(void *)ix.data)[7] = -1;
    launch(p, it, 3, 32, ptr, size);
    cr_assert_eq(error, 7);
    free(x);
    free(want);
    unguard(&src);
    unguard(&dst);
    unguard(&ix);
}

/* The derivative of gather: parts are added in the order of the index. */
static void run_scatter(const program *p, const item *it)
{
    enum { ROWS = 7, WIDTH = 9, M = 31 };
    const size_t esize = wf_dtype_size(p->dtype);
    void *x = values_ordinary(p->dtype, M * WIDTH, 3), *want = calloc(ROWS * WIDTH, esize);
    int64_t index[M];
    for (int i = 0; i < M; i++)
        index[i] = (int64_t)(values_hash((uint64_t)i) % ROWS);
    moves_scatter(p->dtype, want, x, index, ROWS, M, WIDTH);
    guarded src = guard(M * WIDTH * esize, x), dst = guard(ROWS * WIDTH * esize, NULL);
    guarded ix = guard(sizeof index, index);
    void *ptr[3] = {dst.data, src.data, ix.data};
    const long long size[3] = {ROWS, WIDTH, M};
    launch(p, it, 2, 32, ptr, size);
    compare(p, dst.data, want, ROWS * WIDTH, it->k.name);
    free(x);
    free(want);
    unguard(&src);
    unguard(&dst);
    unguard(&ix);
}

static void run_matmul(const program *p, const item *it)
{
    static const long long shapes[][3] = {
        {3, 5, 70}, {1, 2, 4096}, {2, 3, 9000}, {4, 4, 1}, {2, 2, 0}};
    const size_t esize = wf_dtype_size(p->dtype);
    for (size_t z = 0; z < sizeof shapes / sizeof *shapes; z++) {
        const long long m = shapes[z][0], n = shapes[z][1], k = shapes[z][2];
        void *a = values_ordinary(p->dtype, m * k, 1), *b = values_ordinary(p->dtype, k * n, 2);
        void *want = calloc((size_t)(m * n), esize);
        guarded ga = guard((size_t)(m * k) * esize, a), gb = guard((size_t)(k * n) * esize, b);
        guarded dst = guard((size_t)(m * n) * esize, NULL);
        moves_matmul(p->dtype, want, a, b, m, n, k);
        void *ptr[3] = {dst.data, ga.data, gb.data};
        launch(p, it, 2, 64, ptr, shapes[z]);
        compare(p, dst.data, want, m * n, it->k.name);
        free(a);
        free(b);
        free(want);
        unguard(&ga);
        unguard(&gb);
        unguard(&dst);
    }
}

static void run_program(int dtype)
{
    static program p;
    int left_out = 0;
    make_program(&p, dtype);
    load_program(&p);
    for (int i = 0; i < p.n; i++) {
        const item *it = &p.items[i];
        if (skips_fibers(it)) {
            left_out++;
            continue;
        }
        switch (it->k.skeleton) {
        case WF_SK_MAP:
            run_map(&p, it);
            break;
        case WF_SK_SUM_INNER:
        case WF_SK_SUM_OUTER:
            run_sum(&p, it);
            break;
        case WF_SK_PERMUTE:
            run_permute(&p, it);
            break;
        case WF_SK_GATHER:
            run_gather(&p, it);
            break;
        case WF_SK_SCATTER:
            run_scatter(&p, it);
            break;
        case WF_SK_MATMUL:
            run_matmul(&p, it);
            break;
        case WF_SK_ROW:
            break;
        }
    }
    drop_program(&p);
    if (left_out)
        cr_skip_test(
            "%d kernels with barriers: AddressSanitizer cannot follow fibers; the others pass",
            left_out);
}
Test(cuda_text, host_executes_f32)
{
    run_program(WEFT_F32);
}
Test(cuda_text, host_executes_bf16)
{
    run_program(WEFT_BF16);
}

/* -- the machine itself ------------------------------------------------------------------------------- */
static shim_machine *own_machine;
static void leaves_early(void *const *ptr, const long long *size)
{
    (void)ptr;
    if ((long long)own_machine->self->thread.x < size[0])
        return;
    own_machine->sync(1);
}
static void two_barriers(void *const *ptr, const long long *size)
{
    (void)ptr;
    own_machine->sync((long long)own_machine->self->thread.x < size[0] ? 1 : 2);
}
static void half_warp(void *const *ptr, const long long *size)
{
    float v = 1;
    (void)ptr;
    if ((long long)own_machine->self->thread.x % 32 < size[0])
        own_machine->shuffle(1, 0xFFFFFFFFu, &v, sizeof v, 1, 1, 32);
}

Test(cuda_text, machine_sees_divergence)
{
    static const shim_entry entries[] = {leaves_early, two_barriers, half_warp};
    item fibers = {.fibers = true};
    if (skips_fibers(&fibers))
        cr_skip_test("AddressSanitizer cannot follow fibers");
    for (int e = 0; e < 3; e++) {
        const long long part = 16, none = 0;
        cr_assert_not_null(shim_launch(&own_machine, entries[e], true, 1, 64, NULL, &part), "%d",
                           e);
        cr_assert_null(shim_launch(&own_machine, entries[e], true, 1, 64, NULL, &none), "%d", e);
    }
}

Test(cuda_text, text_of_a_kernel)
{
    const uint8_t src[2] = {WEFT_F32, WEFT_F32};
    const wf_target target = {.arch = "sm_90", .width = 0};
    wf_kernel k;
    wf_text text = {0};
    cr_assert_eq(wf_kernel_of_row(&k, WF_OP_LEAKY_RELU, -1, WEFT_F32, 2, src, WEFT_F32, NULL), 0);
    cr_assert_eq(wf_backend_cuda.render(&k, &target, &text, NULL), 0);
    const char *kernel = strstr(text.s, "WF_EXTERN __global__");
    cr_assert_str_eq(
        kernel,
        "WF_EXTERN __global__ void leaky_relu_f32_f32(float *d0, const float *s0, const float "
        "*s1, long long n)\n"
        "{\n"
        "    WF_BEGIN\n"
        "    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += "
        "(long long)gridDim.x * blockDim.x) {\n"
        "        const float x0 = s0[i];\n"
        "        const float x1 = s1[i];\n"
        "        const unsigned char v3 = x0 > wf_f32(0x00000000u);\n"
        "        const float v4 = x0 * x1;\n"
        "        const float v5 = v3 ? x0 : v4;\n"
        "        d0[i] = v5;\n"
        "    }\n"
        "}\n");
    wf_text_free(&text);
    wf_kernel_free(&k);
}
