/*
 * tools/ops_table.c -- prints docs/ops.md (every op with its element types, gradients and error budget) and docs/environment.md.
 *
 *   cc -std=c17 -I. tools/ops_table.c -o ops_table && ./ops_table > docs/ops.md && ./ops_table env > docs/environment.md
 *
 * An expansion of jit/ir/ops.def that needs nothing else, so that script/lint can build it and compare. Rows that are not
 * elementwise name a function for their types; what those functions take stands below, one line for each, and a row
 * whose function has none does not compile. test_ops_doc asks the library whether the lines are true.
 */
#include <stdio.h>
#include <string.h>

/* N: integers that count or index, i32 and i64. */
enum { F = 1, I = 2, B = 4, N = 8, FI = F | I, BI = B | I, ALL = F | I | B };

/* The element types that a row takes: its infer column. */
enum {
    TYPES_reduce = ALL,
    TYPES_scan = ALL,
    TYPES_reshape = ALL,
    TYPES_permute = ALL,
    TYPES_expand = ALL,
    TYPES_slice = ALL,
    TYPES_as_strided = ALL,
    TYPES_diagonal = ALL,
    TYPES_same = ALL,
    TYPES_cast = ALL,
    TYPES_concat = ALL,
    TYPES_pad = ALL,
    TYPES_pad_mode = ALL,
    TYPES_pad_mode_bwd = F,
    TYPES_roll = ALL,
    TYPES_tri = ALL,
    TYPES_slice_grad = ALL,
    TYPES_strided_grad = ALL,
    TYPES_update = ALL,
    TYPES_take_along = ALL,
    TYPES_index_select = ALL,
    TYPES_scatter_add = FI,
    TYPES_index_add = FI,
    TYPES_one_hot = N,
    TYPES_sort = ALL,
    TYPES_topk = ALL,
    TYPES_create = ALL | N,
    TYPES_matmul = FI,
    TYPES_linear = F,
    TYPES_conv2d = F,
    TYPES_conv2d_dx = F,
    TYPES_conv2d_dw = F,
    TYPES_sdpa = F,
    TYPES_sdpa_bwd = F,
    TYPES_rowwise = F,
    TYPES_layer_norm = F,
    TYPES_layer_norm_bwd = F,
    TYPES_rms_norm = F,
    TYPES_rms_norm_bwd = F,
    TYPES_batch_norm = F,
    TYPES_batch_norm_bwd = F,
    TYPES_pool2d = FI, /* unless types_of_row says less, as for creation */
    TYPES_pool2d_bwd = F,
    TYPES_cross_entropy = F,
    TYPES_cross_entropy_bwd = F,
    TYPES_vjp = ALL,
};

static const char *gradient(const char *column)
{
    return strcmp(column, "NODIFF") == 0 ? "no" : strcmp(column, "ZERO") == 0 ? "zero" : "yes";
}

/* Floats, integers, bool: taken, taken after a cast to f32, or refused. */
static void print_types(int types, int casts)
{
    const char *other = casts && (types & F) && !(types & I) ? "to f32" : "";
    printf(" %s | %s | %s |", types & F ? "yes" : "",
           types & I   ? "yes"
           : types & N ? "i32, i64"
                       : other,
           types & B ? "yes" : other);
}

/* One word where all operands agree, else one for each. */
static void print_gradients(const char *const *vjp, int n)
{
    int same = 1;
    for (int i = 1; i < n; i++) {
        same = same && strcmp(gradient(vjp[i]), gradient(vjp[0])) == 0;
    }
    for (int i = 0; i < (same ? 1 : n); i++) {
        printf("%s%s", i ? ", " : " ", gradient(vjp[i]));
    }
    printf(" |");
}

static void print_elementwise(const char *name, int types, const char *result, const char *ulp,
                              const char *const *vjp, int n)
{
    printf("| `%s` |", name);
    print_types(types, 1);
    printf(" %s |", result);
    print_gradients(vjp, n);
    printf(" %s |\n", ulp);
}

/* Rows that share an infer function but not what they take. */
static int types_of_row(const char *name, int types)
{
    static const struct {
        const char *name;
        int types;
    } less[] = {{"rand", F},    {"randn", F},     {"randperm", N},
                {"arange", FI}, {"linspace", FI}, {"avg_pool2d", F}};
    for (size_t i = 0; i < sizeof less / sizeof *less; i++) {
        if (strcmp(less[i].name, name) == 0) {
            return less[i].types;
        }
    }
    return types;
}

static void print_row(const char *name, int types, int lo, int hi, const char *vjp,
                      const char *attributes)
{
    printf("| `%s` | ", name);
    if (hi == 0 && lo > 0) {
        printf("%d or more |", lo);
    } else if (hi > lo) {
        printf("%d to %d |", lo, hi);
    } else {
        printf("%d |", lo);
    }
    print_types(types_of_row(name, types), 0);
    print_gradients(&vjp, 1);
    printf(" %s |\n", attributes);
}

static void print_rows(const char *title, const char *wanted)
{
    printf("\n## %s\n\n| op | operands | floats | integers | bool | gradient | attributes |\n"
           "| --- | --- | --- | --- | --- | --- | --- |\n",
           title);
#define ROW(NAME, name, kind, lo, hi, n_dst, infer, exec, vjp, text)                               \
    if (strcmp(#kind, wanted) == 0) {                                                              \
        print_row(#name, TYPES_##infer, lo, hi, #vjp, text);                                       \
    }
#include "jit/ir/ops.def"
}

/* A '|' would end the cell. */
static void print_cell(const char *text)
{
    for (; *text; text++) {
        printf(*text == '|' ? "\\%c" : "%c", *text);
    }
}

static int print_environment(void)
{
    printf("# Environment variables\n\n"
           "Made by `tools/ops_table.c` from `eager/env.def`; `script/lint --fix` writes it anew. "
           "They are read once, when the "
           "first is needed; `weft doctor` prints them with their values, and says which it does "
           "not understand. Bytes take K, "
           "M or G.\n\n"
           "| variable | value | default | |\n| --- | --- | --- | --- |\n");
#define ENV(name, type, value, help)                                                               \
    printf("| `%s` | %s | %s | ", #name, #type, strcmp(#value, "\"\"") == 0 ? "" : #value);        \
    print_cell(help);                                                                              \
    printf(" |\n");
#include "eager/env.def"
    printf(
        "\n"
        "**Pool threads** (`WEFT_NUM_THREADS`, `WEFT_PIN`). Workers are pinned, each to a CPU of "
        "its own, where there are "
        "no more of them than CPUs beside the caller's; the calling thread is never moved. "
        "`WEFT_PIN=0` suits machines "
        "shared with other programs that pin, and processes that change their own mask later.\n\n"
        "**Instruction sets** (`WEFT_ISA`). Kernels are compiled for SSE2, AVX2 and AVX-512, and "
        "the widest that the CPU "
        "has runs. Narrower ones have the same bits for everything but matrix products, "
        "convolutions and attention.\n\n"
        "**Memory** (`WEFT_ALLOC_CAP`). Counts what is held from the system, cached blocks too: "
        "the cache is given back "
        "before a request is refused, except what other threads have for themselves, free blocks "
        "of up to 64 KiB "
        "(8.3 MiB a thread at most) and kernels' scratch (1 MiB at most), which stays with the "
        "pieces of 2 MiB that it lies in until they end (`weft_shutdown` ends weft's own). A "
        "refused one is `WEFT_ENOMEM`, and `weft_oom_report()` says "
        "who holds what there "
        "is. `weft_memory_set_cap` sets the cap while the program runs, "
        "`weft_memory_set_allocator` functions of the program's own that memory comes from in "
        "place of the system. Blocks of 2 MiB and more are aligned to huge pages, which the kernel "
        "is asked for "
        "(`madvise`; "
        "`/sys/kernel/mm/transparent_hugepage/enabled` decides).\n\n"
        "**oneDNN** (`WEFT_NO_ONEDNN`). Products and convolutions by the built-in kernels, as on a "
        "machine without the "
        "library; their bits may differ from oneDNN's in the last places.\n");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "env") == 0) {
        return print_environment();
    }
    printf("# The op table\n\n"
           "Made by `tools/ops_table.c` from `jit/ir/ops.def`; `script/lint --fix` writes it anew. "
           "Floats are f16, bf16, "
           "f32 and f64; integers u8, i8, i16, i32, i64. \"to f32\": cast to f32 first, and the "
           "result is f32. Which type "
           "operands of several types meet in: [dtypes.md](dtypes.md).\n\n"
           "Gradient: yes (and differentiable again), zero (almost everywhere), no (by nature); in "
           "the order of the "
           "operands where they differ. Rows that are gradients of others say no where a second "
           "derivative is made of "
           "other rows: every op whose gradient is yes has it. ULP: the most that an f32 result is "
           "off; measured: "
           "[ulp.md](ulp.md).\n");
    printf("\n## Elementwise\n\n| op | floats | integers | bool | result | gradient | ULP |\n"
           "| --- | --- | --- | --- | --- | --- | --- |\n");
#define SHOW(name, types, result, ulp, ...)                                                        \
    {                                                                                              \
        static const char *const vjp[] = {__VA_ARGS__};                                            \
        print_elementwise(#name, types, result, ulp, vjp, (int)(sizeof vjp / sizeof *vjp));        \
    }
#define UNARY(NAME, name, types, rare, ulp, expr, vjp) SHOW(name, types, "theirs", #ulp, #vjp)
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    SHOW(name, types, "theirs", #ulp, #vjp_a, #vjp_b)
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    SHOW(name, types, "theirs", #ulp, #vjp_a, #vjp_b, #vjp_c)
#define PREDICATE(NAME, name, types, expr) SHOW(name, types, "bool", "", "NODIFF")
#define COMPARE(NAME, name, types, expr) SHOW(name, types, "bool", "", "NODIFF")
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b)                                              \
    SHOW(name, types, "theirs", "0", "NODIFF", #vjp_a, #vjp_b)
#include "jit/ir/ops.def"
    print_rows("Reductions and scans", "REDUCE");
    print_rows("Views", "VIEW");
    print_rows("Copies and movement", "MOVE");
    print_rows("Indexing and sorting", "INDEX");
    print_rows("Creation", "CREATE");
    print_rows("Products, convolution, attention", "OPAQUE");
    print_rows("Norms, softmax, pooling, losses", "ROWWISE");
    print_rows("Gradients of other rows", "GRAD");
    return 0;
}
