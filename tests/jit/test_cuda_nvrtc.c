/*
 * tests/jit/test_cuda_nvrtc.c -- the device's kernels compiled by the real NVRTC, many per text: no error, and registers
 * and spills of each. For sm_90, or what WEFT_TEST_ARCHS lists ("sm_80 sm_90 sm_100"); WEFT_TEST_TEXTS names a folder of
 * further texts, *.cu, which the fake NVRTC has collected from other suites. `collected` has NVRTC's verdict of each of those, under
 * CTest after the suites: the record's (tests/jit/nvrtc_record.h), or else it is compiled; WEFT_TEST_MOST of those on record are, too.
 *
 * ctest: timeout=900
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "jit/gpu/impl.h"
#include "jit/ir/cuda_text.h"
#include "jit/lower.h"
#include "tests/jit/kernel_support.h"
#include "tests/jit/nvrtc_record.h"
#include "tests/jit/programs.h"
#include "tests/support/effort.h"

static wf_text text;
static int kernels;

/* The program's kernel, under a name of its own. */
static wf_kernel lowered(const wf_program *p)
{
    wf_kernel k;
    wf_why why = {0};
    cr_assert_eq(wf_lower_device(p, &k, &why), 0, "%s", why.rule);
    snprintf(k.name, sizeof k.name, "k%d", kernels++);
    return k;
}

static void put_map(wf_kernel *k, wf_cu_map m)
{
    wf_why why = {0};
    m.k = k;
    cr_assert_eq(wf_cu_render_map(&m, &text, &why), 0, "%s", why.rule);
    wf_kernel_free(k);
}

static void put_rows(wf_kernel *k, wf_cu_rows r)
{
    wf_why why = {0};
    r.k = k;
    cr_assert_eq(wf_cu_render_rows(&r, &text, &why), 0, "%s", why.rule);
    wf_kernel_free(k);
}

static void add_map(const wf_program *p, int rank, int vector, int groups, bool wide, int inner)
{
    wf_kernel k = lowered(p);
    wf_cu_map m = {.wide = wide, .rank = rank, .vector = vector, .groups = groups};
    for (int o = 0; o < p->noutput + p->ninput; o++) {
        m.inner[o] = (uint8_t)(o < p->noutput ? 1 : vector > 1 ? (inner + o) % 2 : (inner + o) % 3);
        m.like[o] = (uint8_t)o;
    }
    put_map(&k, m);
}

/* Vectors along the number of the element; sources as they come by `form`: vectors, in order but elsewhere, a row or another part of the
 * inner axes for all, parts of the outer ones, one element. */
static void add_flat(const wf_program *p, int rank, int groups, bool wide, int form)
{
    wf_kernel k = lowered(p);
    wf_cu_map m = {.flat = true, .wide = wide, .rank = rank, .vector = 8, .groups = groups};
    for (int o = 0; o < p->noutput + p->ninput; o++) {
        const int kind = o < p->noutput ? 0 : (form + o) % (rank > 1 ? 6 : 2);
        m.dense |= (uint64_t)(kind < 2) << o;
        m.whole |= (uint64_t)(kind == 0) << o;
        m.still |= (uint64_t)(kind == 2) << o;
        m.inner[o] = (uint8_t)(kind < 3 ? 1 : kind == 3 ? WF_CU_SAME : (kind - 4) * 2);
        m.like[o] = (uint8_t)(kind < 2 ? 0 : o);
        while (kind == 0 && m.vector > 1 &&
               wf_kty_bits(wf_kernel_ptr_type(&k, o)) * (unsigned)m.vector > 128)
            m.vector /= 2;
    }
    put_map(&k, m);
}

/* A kernel of many runs, whose argument is indexed. */
static void add_many(const wf_program *p, int vector, int words)
{
    wf_kernel k = lowered(p);
    wf_cu_map m = {.rank = 1, .vector = vector, .groups = 1, .many = words};
    for (int o = 0; o < p->noutput + p->ninput; o++)
        m.inner[o] = 1;
    put_map(&k, m);
}

/* vector: of elements that are adjacent along the only reduced axis. */
static void add_rows(const wf_program *p, wf_cu_scheme scheme, bool shared, bool wide, int axes,
                     int vector)
{
    wf_kernel k = lowered(p);
    wf_cu_rows r = {.k = &k,
                    .scheme = scheme,
                    .wide = wide,
                    .shared = shared && k.rows->nkeep,
                    .nk = axes,
                    .nr = vector > 1 ? 1 : axes};
    take_vectors(&r, vector, wide);
    put_rows(&k, r);
}

static usage last;
static char figures[RECORD_FIGURES];

static void read_log(const char *log)
{
    cr_assert(figures_of_log(log, figures, sizeof figures), "%s", log);
    if (figures[0])
        cr_assert(add_figures(&last, figures), "%s", figures);
}

static void add_usage(usage *sum, const usage *u)
{
    sum->kernels += u->kernels;
    sum->registers = u->registers > sum->registers ? u->registers : sum->registers;
    sum->spilling += u->spilling;
    sum->local += u->local;
    sum->spilled += u->spilled;
    for (int i = 0; i < 5; i++)
        sum->of[i] += u->of[i];
}

/* The size of the cubin, or -1 with the reason in why. */
static int64_t compile_text(const char *arch, bool contract, const wf_text *of, wf_why *why)
{
    wf_blob cubin = {0};
    const wf_target target = {.arch = arch, .width = 0, .contract = contract};
    last = (usage){0};
    figures[0] = 0;
    wf_cu_set_log(read_log);
    const int status = wf_backend_cuda.compile(&target, of, &cubin, why);
    const int64_t size = status == 0 ? (int64_t)cubin.size : -1;
    wf_blob_free(&cubin);
    return size;
}

static void compile_for(const char *arch, const char *what)
{
    wf_why why = {0};
    const int64_t size = compile_text(arch, false, &text, &why);
    cr_assert_geq(size, 0, "%s for %s: %s\n%s", what, arch, why.rule, wf_cu_log());
    cr_assert_gt(last.kernels, 0, "%s", wf_cu_log());
    printf("%s for %s: cubin of %lld bytes; %d kernels, at most %d registers; %d spill, %lld bytes "
           "in all\n",
           what, arch, (long long)size, last.kernels, last.registers, last.spilling,
           (long long)last.spilled);
}

/* The next of the architectures that are asked for; NULL: there are no more. */
static const char *next_arch(const char **at)
{
    static char arch[16];
    int n = 0;
    if (!*at) {
        const char *all = getenv("WEFT_TEST_ARCHS");
        *at = all && *all ? all : "sm_90";
    }
    if (sscanf(*at, "%15s%n", arch, &n) != 1)
        return NULL;
    *at += n;
    return arch;
}

/* What NVRTC makes of a text does not depend on the sanitizer of the program that asks, under which it takes three times as
 * long: every kernel is rendered, and a share of a share compiled, as one shows what is done with a cubin and a log. */
static bool is_compiled(int kernel)
{
    return (uint64_t)kernel % 40 < effort_of(effort_of(40));
}

/* Of what is compiled among the collected texts, too, in other types and places, one in so many by turns (script/test). */
static bool is_turn(int number, int turns)
{
    const char *turn = getenv("WEFT_TEST_TURN");
    return !turn || number % turns == (int)(strtoull(turn, NULL, 10) % (unsigned)turns);
}

/* Of n random cases the first half or the last, each of which has every form. */
static bool is_in_half(int t, int n)
{
    return n < 2 || is_turn(2 * t / n, 2);
}

/* The text for each architecture. */
static void for_archs(const char *what)
{
    const char *at = NULL;
    for (const char *arch; (arch = next_arch(&at)) != NULL;)
        compile_for(arch, what);
}

/* What is not assembled: the text is one of NVRTC's language. (Of a real architecture it would make a cubin on the way to PTX.) */
static void translate(const char *what)
{
    const char *at = NULL;
    for (const char *arch; (arch = next_arch(&at)) != NULL;) {
        char abstract[32];
        snprintf(abstract, sizeof abstract, "compute_%s", arch + sizeof "sm_" - 1);
        const wf_target target = {.arch = abstract};
        wf_text ptx = {0};
        wf_why why = {0};
        cr_assert_eq(wf_backend_cuda.assemble(&target, &text, &ptx, &why), 0, "%s for %s: %s", what,
                     arch, why.rule);
        wf_text_free(&ptx);
    }
}

/* What becomes of a kernel: a cubin, PTX only, or text only. */
typedef enum fate { RENDERED, TRANSLATED, ASSEMBLED } fate;

/* Attention takes NVRTC seconds a kernel, as many as all others together. Each section has two variants in f32 and in half types,
 * of which f16 and bf16 are a conversion apart: by turns (script/test) one of these four is assembled, and the other variant of
 * the other kind of type translated. Eight turns assemble all. Of other sections, which differ by how an element is read and
 * written, each has one type in three at every turn. `number` of `of`: a section's kernels. */
static fate fate_of(const char *section, int dtype, int variant, int number, int of)
{
    const char *turn = getenv("WEFT_TEST_TURN");
    if (!turn || strncmp(section, "flash", 5) != 0)
        return is_turn(number, of < 3 ? of : 3) ? ASSEMBLED : RENDERED;
    const unsigned long long n = strtoull(turn, NULL, 10);
    const int mine = (int)(n % 4), kind = 2 * (dtype != WEFT_F32) + variant % 2;
    if (dtype == (n / 4 % 2 ? WEFT_BF16 : WEFT_F16))
        return RENDERED;
    return kind == mine ? ASSEMBLED : kind == 3 - mine ? TRANSLATED : RENDERED;
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
    for_archs(what);
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
    const int n = (int)effort_of(24);
    for (int t = 0; t < n; t++) {
        static sample s;
        draw(&s, 1 + t % 9);
        if (is_in_half(t, n))
            add_map(&s.p, 1 + t % 3, t % 2 ? 1 : 4, 1 << t % 4, t % 5 == 0, t);
    }
    compile_all("elementwise");
}

/* What stays for a thread's vectors stays in registers. */
Test(cuda_nvrtc, flat)
{
    NEED_NVRTC();
    const int n = (int)effort_of(24);
    for (int t = 0; t < n; t++) {
        static sample s;
        draw(&s, 1 + t % 5);
        if (is_in_half(t, n))
            add_flat(&s.p, 1 + t % 4, 1 << t % 3, t % 5 == 0, t);
    }
    compile_all("flat");
    cr_assert_eq(last.local, 0);
}

/* Entries of an argument are found by a variable: it has to stay where it is, and not be copied to a thread's own memory. */
Test(cuda_nvrtc, many_runs)
{
    NEED_NVRTC();
    const int n = (int)effort_of(12);
    for (int t = 0; t < n; t++) {
        static sample s;
        draw(&s, 1 + t % 9);
        if (!is_in_half(t, n))
            continue;
        add_many(&s.p, t % 2 ? 1 : 4, t % 3 ? 512 : 4095);
        compile_all("many runs");
        cr_assert_eq(last.local, 0);
    }
    for (int nr = 1; nr <= 2; nr++) {
        static wf_program p;
        wf_program_init(&p);
        program_everything_reduced(&p, WEFT_BF16);
        cr_assert_eq(wf_program_finish(&p), 0);
        wf_kernel k = lowered(&p);
        put_rows(&k, (wf_cu_rows){.scheme = WF_CU_SPLIT, .nr = nr, .many = nr == 1 ? 4095 : 512});
        if (is_compiled(nr)) {
            compile_all("many runs that reduce everything");
            cr_assert_eq(last.local, 0);
        }
        wf_text_free(&text);
    }
}

/* Each scheme and each program at every turn, all pairs in three. */
Test(cuda_nvrtc, reductions)
{
    static const program_maker makers[] = {program_softmax, program_layer_norm,
                                           program_cross_entropy, program_everything_reduced};
    int number = 0;
    NEED_NVRTC();
    for (int m = 0; m < 4; m++)
        for (int scheme = WF_CU_WARP; scheme <= WF_CU_COLUMN; scheme++) {
            static wf_program p;
            wf_program_init(&p);
            makers[m](&p, m % 2 ? WEFT_BF16 : WEFT_F32);
            cr_assert_eq(wf_program_finish(&p), 0);
            const size_t before = text.n;
            const bool compiled = is_turn(scheme + m, 3) && is_compiled(number++);
            add_rows(&p, (wf_cu_scheme)scheme, scheme <= WF_CU_BLOCK_ROWS && m % 2 == 0, m == 1,
                     1 + m % 2, 0);
            for (int v = 2; v <= (m == 1 ? 8 : m == 3 ? 2 : 4); v *= 2)
                if (scheme != WF_CU_OUTER && scheme != WF_CU_SPLIT_OUTER && scheme != WF_CU_COLUMN)
                    add_rows(&p, (wf_cu_scheme)scheme, scheme == WF_CU_WARP, m == 1, 1, v);
            if (!compiled && !text.failed)
                text.s[text.n = before] = 0;
        }
    compile_all("reductions");
}

Test(cuda_nvrtc, random_reductions)
{
    NEED_NVRTC();
    const int n = (int)effort_of(20);
    for (int t = 0; t < n; t++) {
        static sample s;
        program_draw_rows(&s);
        if (s.p.rows && is_in_half(t, n))
            add_rows(&s.p, (wf_cu_scheme)(t % 6), t % 12 < 2, t % 3 == 0, 1 + t % 2, 0);
    }
    compile_all("random reductions");
}

/* What WEFT_DUMP leaves beside a kernel's text. */
Test(cuda_nvrtc, ptx_can_be_read)
{
    NEED_NVRTC();
    static const char source[] = "extern \"C\" __global__ void twice(float *x)\n"
                                 "{\n    x[threadIdx.x] += x[threadIdx.x];\n}\n";
    const wf_target target = {.arch = "sm_90"};
    wf_text in = {0}, ptx = {0};
    wf_why why = {0};
    wf_text_put(&in, source, sizeof source - 1);
    cr_assert_eq(wf_backend_cuda.assemble(&target, &in, &ptx, &why), 0, "%s", why.rule);
    cr_assert(strstr(ptx.s, ".target sm_90") && strstr(ptx.s, ".entry twice("), "%s", ptx.s);
    cr_assert_eq(strlen(ptx.s), ptx.n);
    wf_text_free(&in);
    wf_text_free(&ptx);
    wf_text_put(&in, "no source", 9);
    cr_assert_eq(wf_backend_cuda.assemble(&target, &in, &ptx, &why), WEFT_EUNSUPPORTED);
    cr_assert_eq(ptx.n, 0);
    wf_text_free(&in);
    wf_text_free(&ptx);
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
                    {"unpad", 1, {WEFT_F32, WEFT_F16, WEFT_F64}},
                    {"scan", 3, {WEFT_F64, WEFT_I64}},
                    {"scan_across", 3, {WEFT_F64, WEFT_I64}},
                    {"carries", 1, {WEFT_F64, WEFT_I64}},
                    {"arg", 1, {WEFT_F32, WEFT_BF16, WEFT_F64, WEFT_I64, WEFT_BOOL, WEFT_I8}},
                    {"gemm", 2, {WEFT_F32, WEFT_BF16, WEFT_F16, WEFT_F64}},
                    {"conv", 1, {WEFT_F32, WEFT_BF16, WEFT_F16, WEFT_F64}},
                    {"attend", 2, {WEFT_F32, WEFT_F64}},
                    {"dscores", 1, {WEFT_F32, WEFT_F64}},
                    {"flash", 2, {WEFT_F32, WEFT_BF16, WEFT_F16}},
                    {"flash_back", 2, {WEFT_F32, WEFT_BF16, WEFT_F16}},
                    {"flash_kept", 2, {WEFT_F32, WEFT_BF16, WEFT_F16}},
                    {"transpose", 2, {WEFT_U8, WEFT_I16, WEFT_I32, WEFT_I64}},
                    {"join", 1, {WEFT_U8, WEFT_I16, WEFT_I32, WEFT_I64}},
                    {"max_pool", 1, {WEFT_F32, WEFT_BF16}},
                    {"avg_pool", 1, {WEFT_F32, WEFT_F16}},
                    {"avg_pool_bwd", 1, {WEFT_F32, WEFT_F64}},
                    {"sort", 1, {WEFT_F32, WEFT_I64, WEFT_BF16}}};
    NEED_NVRTC();
    for (size_t k = 0; k < 2 * sizeof sections / sizeof *sections; k++)
        for (int d = 0; d < 6; d++) {
            const size_t i = k / 2;
            const char *const name_of = sections[i].section;
            const bool wide = strncmp(name_of, "flash", 5) == 0 || strncmp(name_of, "scan", 4) == 0,
                       arg = strcmp(name_of, "arg") == 0;
            int types = 1;
            while (types < 6 && sections[i].type[types])
                types++;
            if (d == types || (k % 2 && !wide && !arg))
                break;
            char name[32];
            wf_why why = {0};
            const uint8_t type = (uint8_t)sections[i].type[d];
            const int most = arg ? 16 / (int)wf_dtype_size(type) : 1; /* neighbours */
            const int variant = wide       ? 1 + (int)(k % 2)
                                : !arg     ? 0
                                : k % 2    ? 3
                                : most < 8 ? 2 * most
                                           : 16;
            const bool packed = strcmp(sections[i].section, "transpose") == 0 &&
                                (type == WEFT_U8 || type == WEFT_I16);
            const wf_cu_hand h = {.section = sections[i].section,
                                  .n = sections[i].n,
                                  .dtype = {type, packed ? WEFT_I32 : type, type},
                                  .wide = variant};
            snprintf(name, sizeof name, "k%d", kernels++);
            cr_assert_eq(wf_cu_render_hand(&h, name, &text, &why), 0, "%s", why.rule);
            const fate f = is_compiled(kernels)
                               ? fate_of(name_of, type, variant, (int)(k % 2) * types + d,
                                         wide || arg ? 2 * types : types)
                               : RENDERED;
            if (f == ASSEMBLED)
                compile_all(name_of);
            else if (f == TRANSLATED)
                translate(name_of);
            wf_text_free(&text);
        }
}

/* -- texts that other suites had compiled by the fake -------------------------------------------------------------- */

enum { MOST_TEXTS = 200000 };

typedef struct collected {
    char *name;
    uint64_t hash;        /* the name */
    bool contract;        /* compiled with --fmad=true */
    const char *recorded; /* its figures; NULL: it is not on record */
} collected;
static collected texts[MOST_TEXTS];

static int by_name(const void *a, const void *b)
{
    return strcmp(((const collected *)a)->name, ((const collected *)b)->name);
}

static wf_text read_text(const char *folder, const char *name)
{
    char path[600], block[4096];
    wf_text t = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    cr_assert(f, "%s", path);
    for (size_t got; (got = fread(block, 1, sizeof block, f)) > 0;)
        wf_text_put(&t, block, got);
    fclose(f);
    cr_assert(!t.failed && t.n > 0, "%s", path);
    return t;
}

/* The folder's texts in the order of their names; how many. Each is what it is named by. */
static int list_texts(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;
    cr_assert(d, "%s", folder);
    for (struct dirent *e; (e = readdir(d)) != NULL && n < MOST_TEXTS;) {
        const char *dot = strrchr(e->d_name, '.');
        if (dot && strcmp(dot, ".cu") == 0)
            texts[n++] = (collected){.name = strdup(e->d_name)};
    }
    closedir(d);
    cr_assert_lt(n, MOST_TEXTS);
    qsort(texts, (size_t)n, sizeof *texts, by_name);
    return n;
}

/* Whether the text may be contracted is in the hash that it is named by. */
static void identify_text(collected *c, const char *folder)
{
    wf_text t = read_text(folder, c->name);
    c->hash = strtoull(c->name, NULL, 16);
    c->contract = store_text_hash(t.s, true) == c->hash;
    cr_assert(c->contract || store_text_hash(t.s, false) == c->hash,
              "%s/%s is not named by what is in it", folder, c->name);
    wf_text_free(&t);
}

/* Texts i, i + n, i + 2 n, ... of all, where WEFT_TEST_SHARE="i n" asks for those; how many. */
static int take_share(const char *folder, int n)
{
    const char *share = getenv("WEFT_TEST_SHARE");
    int first = 0, step = 1, kept = 0;
    if (share)
        cr_assert(sscanf(share, "%d %d", &first, &step) == 2 && first >= 0 && step > first, "%s",
                  share);
    for (int i = 0; i < n; i++) {
        if (i % step == first)
            texts[kept++] = texts[i];
        else
            free(texts[i].name);
    }
    cr_assert_gt(kept, 0, "%s has %d texts", folder, n);
    for (int i = 0; i < kept; i++)
        identify_text(&texts[i], folder);
    return kept;
}

/* What WEFT_TEST_RECORD names, or the repository's. */
static const char *record_path(void)
{
    const char *path = getenv("WEFT_TEST_RECORD");
    return path && *path ? path : WEFT_SOURCE_DIR "/tests/golden/cuda/nvrtc.txt";
}

static int find_recorded(const record *r, int n)
{
    int known = 0;
    for (int i = 0; i < n; i++) {
        texts[i].recorded = record_find(r, texts[i].hash);
        known += texts[i].recorded != NULL;
    }
    return known;
}

/* Whether a text that is on record, as `known` are, is compiled all the same: about WEFT_TEST_MOST of them are, chosen by their
 * hashes, others for another WEFT_TEST_TURN (script/test: of each commit). The turn's last four bits say which kernels of
 * test_cuda_ops there are: the others decide here. */
static bool is_compiled_again(const collected *c, int known)
{
    const char *most = getenv("WEFT_TEST_MOST"), *turn = getenv("WEFT_TEST_TURN");
    if (!most || atoi(most) <= 0 || known <= atoi(most))
        return true;
    const uint64_t of = ((uint64_t)known + (uint64_t)atoi(most) - 1) / (uint64_t)atoi(most);
    return (c->hash >> 7) % of == (turn ? strtoull(turn, NULL, 10) / 16 % of : 0);
}

/* "13.0.88" of the NVRTC that is there: it says "13.0", and the whole in the PTX that it makes ("release 13.0, V13.0.88"). Builds of one
 * release make other code. */
static void find_version(const char *arch, char version[16])
{
    const wf_target target = {.arch = arch};
    wf_text kernel = {0}, ptx = {0};
    wf_why why = {0};
    wf_text_putf(&kernel, "extern \"C\" __global__ void nothing() {}");
    cr_assert_eq(wf_backend_cuda.assemble(&target, &kernel, &ptx, &why), 0, "%s", why.rule);
    const char *at = ptx.s ? strstr(ptx.s, ", V") : NULL;
    cr_assert(at && sscanf(at, ", V%15[0-9.]", version) == 1, "%.200s", ptx.s ? ptx.s : "");
    wf_text_free(&kernel);
    wf_text_free(&ptx);
}

/* What a log does not say is no figure. */
Test(cuda_nvrtc, figures_of_logs)
{
#define KERNEL "ptxas info : Compiling entry function 'k' for 'sm_90'\n"
#define FRAME "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    char out[64];
    cr_assert(figures_of_log(KERNEL FRAME "Used 32 registers, 1024 bytes smem\n", out, sizeof out));
    cr_expect_str_eq(out, "32s1024");
    cr_assert(figures_of_log(
        KERNEL FRAME "Used 9 registers\n" KERNEL
                     "16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\nUsed 255 "
                     "registers\n",
        out, sizeof out));
    cr_expect_str_eq(out, "9 255l16p8");
    cr_assert(figures_of_log("", out, sizeof out) && out[0] == 0, "PTX has no log");
    cr_expect(!figures_of_log(KERNEL FRAME, out, sizeof out));
    cr_expect(!figures_of_log(KERNEL FRAME KERNEL FRAME "Used 9 registers\n", out, sizeof out));
    cr_expect(!figures_of_log(KERNEL FRAME "Used 32 registers, 1024 bytes smem\n", out, 7));
#undef KERNEL
#undef FRAME
}

/* What became of the texts. */
typedef struct outcome {
    usage u;
    int bad, known, again, other,
        fresh; /* refused, on record, of these compiled and with other figures, compiled as not on record */
} outcome;

/* A text is compiled; what is refused is named, and what is not as the record has it. NULL: refused. */
static const char *compile_one(const char *arch, const char *folder, const collected *c,
                               bool compare, outcome *o)
{
    wf_why why = {0};
    wf_text one = read_text(folder, c->name);
    const bool made = compile_text(arch, c->contract, &one, &why) >= 0;
    wf_text_free(&one);
    if (!made) {
        printf("%s for %s: %s\n%s\n", c->name, arch, why.rule, wf_cu_log());
        o->bad++;
        return NULL;
    }
    cr_assert_gt(last.kernels, 0, "%s: a text without a kernel", c->name);
    if (compare && c->recorded && strcmp(figures, c->recorded) != 0) {
        printf("%s for %s: NVRTC makes of it \"%s\", the record says \"%s\"\n", c->name, arch,
               figures, c->recorded);
        o->other++;
    }
    return figures;
}

/* By its record or by NVRTC; what spills and is not on record is named. */
static void settle(const char *arch, const char *folder, const collected *c, bool compiled,
                   bool compare, outcome *o, FILE *made)
{
    const char *said = compiled ? compile_one(arch, folder, c, compare, o) : c->recorded;
    usage u = {0};
    o->known += c->recorded != NULL;
    o->again += c->recorded && compiled;
    o->fresh += !c->recorded;
    if (!said)
        return;
    cr_assert(add_figures(&u, said));
    add_usage(&o->u, &u);
    if (u.spilling && !c->recorded)
        printf("%s for %s: %d kernels spill, %lld bytes; at most %d registers\n", c->name, arch,
               u.spilling, (long long)u.spilled, u.registers);
    if (made)
        fprintf(made, "%016" PRIx64 " %s\n", c->hash, said);
}

static void print_usage(const char *arch, int n, const outcome *o)
{
    const usage *u = &o->u;
    printf("%s: %d texts, %d refused; %d kernels, at most %d registers, <=32: %d, <=64: %d, "
           "<=128: %d, "
           "<=168: %d, more: %d; local memory: %d; spill: %d, %lld bytes\n",
           arch, n, o->bad, u->kernels, u->registers, u->of[0], u->of[1], u->of[2], u->of[3],
           u->of[4], u->local, u->spilling, (long long)u->spilled);
}

/* What the record says of texts where no NVRTC can. */
static void look_up_only(const record *r, int n, const char *reason)
{
    outcome o = {0};
    for (int i = 0; i < n; i++)
        if (texts[i].recorded)
            settle(r->arch, "", &texts[i], false, false, &o, NULL);
    if (o.known)
        print_usage(r->arch, o.known, &o);
    printf("record of NVRTC: %d of %d texts are on it, %d are not, and nobody has compiled them\n",
           o.known, n, n - o.known);
    cr_skip_test("%d of %d texts are on record, none is compiled: %s", o.known, n, reason);
}

/* All texts for an architecture. The record is of one; figures are compared where this very NVRTC made them. */
static void settle_all(const char *arch, const char *folder, record *r, int n)
{
    char version[16];
    outcome o = {0};
    find_version(arch, version);
    const bool ours = strcmp(arch, r->arch) == 0, same = strcmp(version, r->version) == 0;
    const int known = ours ? find_recorded(r, n) : find_recorded(&(record){0}, n);
    const char *to = getenv("WEFT_TEST_RECORDED");
    FILE *made = to && *to ? fopen(to, "w") : NULL;
    cr_assert(made || !to || !*to, "%s", to);
    if (made)
        fprintf(made, "# NVRTC %s %s\n", version, arch);
    for (int i = 0; i < n; i++)
        settle(arch, folder, &texts[i], !texts[i].recorded || is_compiled_again(&texts[i], known),
               same, &o, made);
    cr_assert(!made || fclose(made) == 0, "%s", to);
    print_usage(arch, n, &o);
    if (ours)
        printf("record of NVRTC: %d of %d texts are on it, %d of these were compiled again, %d of "
               "them %s; "
               "%d are not on it and were compiled%s\n",
               o.known, n, o.again, same ? o.other : o.again,
               same ? "otherwise than it says" : "by another version, not compared", o.fresh,
               o.fresh ? ": script/gpu-check --record puts them there" : "");
    cr_assert_eq(o.bad, 0, "%d of %d texts are refused for %s", o.bad, n, arch);
    cr_assert_eq(o.other, 0, "%d texts are not what %s says of them", o.other, record_path());
    cr_assert_geq(o.u.kernels, n, "a text without a kernel");
}

static void compile_attention(void *status)
{
    const wf_cu_hand h = {
        .section = "flash_kept", .n = 2, .dtype = {WEFT_F32, WEFT_F32}, .wide = 1};
    wf_why why = {0};
    *(int *)status = wf_cu_render_hand(&h, "attention", &text, &why) ||
                     compile_text("sm_90", false, &text, &why) < 0;
}

enum { NO_NVRTC = 77, EXITS = 8 };

/* A process that ends while its other thread compiles, opens NVRTC or has not begun. */
static void exit_while_compiling(int milliseconds)
{
    static int status;
    wf_why why = {0};
    wf_cu_set_toolkit(getenv("CUDA_HOME"));
    if (milliseconds < 0)
        _exit(wf_backend_cuda.available(&why) ? NO_NVRTC : 0);
    alarm(60);
    if (!wf_gpu_later(compile_attention, &status))
        _exit(1);
    nanosleep(&(struct timespec){0, milliseconds * 1000000L}, NULL);
    exit(0);
}

static int end_of(pid_t pid)
{
    int status = 0;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return status;
}

static pid_t in_process(int milliseconds)
{
    const pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0)
        exit_while_compiling(milliseconds);
    return pid;
}

/* NVRTC's destructors run at exit: what compiles then has to have ended. */
Test(cuda_nvrtc, processes_end_while_kernels_are_made)
{
    pid_t pid[EXITS];
    const int there = end_of(in_process(-1));
    if (WIFEXITED(there) && WEXITSTATUS(there) == NO_NVRTC)
        cr_skip_test("no NVRTC");
    const int step =
        EXITS / (int)effort_of(EXITS) > 1 ? 5 : 1; /* the moment matters little to a sanitizer */
    for (int i = 0; i < EXITS; i += step)
        pid[i] = in_process(i * i * 10);
    for (int i = 0; i < EXITS; i += step) {
        const int status = end_of(pid[i]);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                  "after %d ms: signal %d, status %d", i * i * 10,
                  WIFSIGNALED(status) ? WTERMSIG(status) : 0, WEXITSTATUS(status));
    }
}

/* Every text has NVRTC's verdict: its line in the record, or that of the one which is there. */
Test(cuda_nvrtc, collected, .timeout = 14400)
{
    const char *folder = getenv("WEFT_TEST_TEXTS"), *at = NULL;
    char wrong[800];
    record r;
    wf_why why = {0};
    if (!folder || !*folder)
        cr_skip_test("WEFT_TEST_TEXTS names no folder of texts");
    int n = list_texts(folder);
    if (n == 0)
        cr_skip_test("no text has been collected: none of the GPU's suites has run");
    n = take_share(folder, n);
    cr_assert(record_read(&r, record_path(), wrong, sizeof wrong), "%s", wrong);
    find_recorded(&r, n);
    wf_cu_set_toolkit(getenv("CUDA_HOME"));
    wf_cu_set_library(getenv("WEFT_NVRTC"));
    if (wf_backend_cuda.available(&why) != 0)
        look_up_only(&r, n, why.rule);
    for (const char *arch; (arch = next_arch(&at)) != NULL;)
        settle_all(arch, folder, &r, n);
    for (int i = 0; i < n; i++)
        free(texts[i].name);
    record_free(&r);
}
