/*
 * tests/jit/test_kernels_rows.c -- fused groups with reductions compiled: the bits of the interpreter at every width.
 *
 * ctest: threads optimised timeout=900
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "eager/pool.h"
#include "jit/kernels_impl.h"
#include "jit/lower.h"
#include "tests/jit/programs.h"
#include "tests/support/effort.h"

static const wf_target targets[] = {
    {.arch = "host", .width = 0},       {.arch = "host", .width = 1},
    {.arch = "host", .width = 4},       {.arch = "host", .width = 16},
    {.arch = "x86-64-v3", .width = 32}, {.arch = "x86-64", .width = 64}};
enum { NTARGETS = sizeof targets / sizeof *targets };
static const int64_t shapes[][2] = {{3, 70},   {5, 64},   {7, 1000}, {1, 4096}, {2, 4097},
                                    {2, 9000}, {40, 129}, {9, 16},   {4, 3},    {1, 70001}};
enum { NSHAPES = sizeof shapes / sizeof *shapes };

static void check_named(program_maker make, const int *dtypes, int ndtypes)
{
    for (int d = 0; d < ndtypes; d++) {
        static wf_program p;
        wf_program_init(&p);
        make(&p, dtypes[d]);
        cr_assert_eq(wf_program_finish(&p), 0);
        for (int t = 0; t < NTARGETS; t++) {
            wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.target = targets[t]});
            for (int z = t % EFFORT_LIST_STEP; z < NSHAPES; z += EFFORT_LIST_STEP) {
                operands o;
                if (!effort_walks((uint64_t)(z + t + d), 3))
                    continue;
                make_operands(&o, &p, 2, shapes[z], (z + t) % 2, z);
                o.axes = 2;
                for (int i = 0; i < p.ninput; i++)
                    if (p.type[p.input[i]] == WEFT_I64 && p.level[p.input[i]] == WF_LEVEL_ROW)
                        for (int64_t j = 0; j < 2 * shapes[z][0]; j++)
                            ((int64_t *)o.src[i].data)[j] = j * 7 % shapes[z][1];
                run_both(k, &p, &o, targets[t].width);
                drop_operands(&o);
            }
            wf_jitk_release(k);
        }
    }
}

Test(kernels_rows, named_groups_at_every_width)
{
    NEED_LLVM();
    static const int floats[] = {WEFT_F32, WEFT_BF16};
    static const int all[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_I32, WEFT_BOOL};
    check_named(program_softmax, floats, 2);
    check_named(program_layer_norm, floats, 2);
    check_named(program_cross_entropy, floats, 2);
    check_named(program_everything_reduced, all, 5);
}

/* How often the text has a string. */
static int occurrences(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

/* A group of 64 elements is a loop over its vectors where their body is long, or they are many. */
Test(kernels_rows, bodies_are_written_once)
{
    static wf_program p;
    static const int widths[] = {64, 32, 16, 4};
    int fma[sizeof widths / sizeof *widths];
    wf_program_init(&p);
    program_softmax(&p, WEFT_F32);
    cr_assert_eq(wf_program_finish(&p), 0);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        const wf_target target = {.arch = "host", .width = widths[i]};
        wf_kernel k;
        wf_text text = {0};
        wf_why why = {0};
        cr_assert_eq(wf_lower(&p, 0, &k, &why), 0, "%s", why.rule);
        cr_assert_eq(wf_backend_cpu.render(&k, &target, &text, &why), 0, "%s", why.rule);
        fma[i] = occurrences(text.s, "@llvm.fma.");
        cr_assert(fma[i] > 0 && fma[i] == fma[0], "%d of %d lanes, %d of 64", fma[i], widths[i],
                  fma[0]);
        wf_text_free(&text);
        wf_kernel_free(&k);
    }
}

/* Rows, blocks, buffers and lanes are the driver's: a kernel has a loop for each stage of elements, and no other. */
Test(kernels_rows, loops_are_those_of_stages)
{
    static wf_program p;
    static const program_maker makers[] = {program_softmax, program_layer_norm};
    for (size_t m = 0; m < sizeof makers / sizeof *makers; m++) {
        const wf_target target = {.arch = "host", .width = 32};
        wf_kernel k;
        wf_text text = {0};
        wf_why why = {0};
        int stages = 0;
        wf_program_init(&p);
        makers[m](&p, WEFT_F32);
        cr_assert_eq(wf_program_finish(&p), 0);
        cr_assert_eq(wf_lower(&p, 0, &k, &why), 0, "%s", why.rule);
        cr_assert_eq(wf_backend_cpu.render(&k, &target, &text, &why), 0, "%s", why.rule);
        for (int s = 0; s < k.rows->nstage; s++)
            stages += k.rows->stage[s].kind == WF_ST_ELEM;
        cr_assert(stages > 1);
        cr_expect_eq(occurrences(text.s, " = phi ptr "), stages); /* turns, and their groups */
        cr_expect_eq(occurrences(text.s, " = phi i64 "), 2 * stages);
        cr_expect_eq(occurrences(text.s, " call void @wf_rows("), 1);
        cr_expect_eq(occurrences(text.s, "memcpy"), 0);
        wf_text_free(&text);
        wf_kernel_free(&k);
    }
}

/* Is all that it computes read, as in a plan's programs? */
static bool is_all_read(const wf_program *p)
{
    bool read = true;
    for (int i = 0; i < p->ninst; i++)
        read &= p->inst[i].value < 0 || p->last[p->inst[i].value] >= 0;
    return read;
}

/* What a stage leaves behind for others is read by one. */
static void check_slots(const wf_program *p, bool device)
{
    wf_kernel k;
    wf_why why = {0};
    if ((device ? wf_lower_device(p, &k, &why) : wf_lower(p, 0, &k, &why)) != 0)
        return; /* too many kept values */
    for (int s = 0; s < k.rows->nstage; s++) {
        const wf_stage *st = &k.rows->stage[s];
        const uint32_t nout = st->kind == WF_ST_PICK ? 1 : st->body.nout;
        for (uint32_t o = 0; o < nout; o++) {
            bool read = st->out[o].kind != WF_PORT_SLOT;
            for (int i = s + 1; i < k.rows->nstage && !read; i++) {
                const wf_stage *to = &k.rows->stage[i];
                const uint32_t nin = to->kind == WF_ST_PICK ? 2 : to->body.nparam;
                for (uint32_t n = 0; n < nin; n++)
                    read |= to->in[n].kind == WF_PORT_SLOT && to->in[n].at == st->out[o].at;
            }
            cr_expect(read, "slot %d of stage %d is nobody's", st->out[o].at, s);
        }
    }
    wf_kernel_free(&k);
}

Test(kernels_rows, slots_are_read)
{
    static sample s;
    wf_program_init(&s.p);
    program_cross_entropy(&s.p, WEFT_F32);
    cr_assert_eq(wf_program_finish(&s.p), 0);
    check_slots(&s.p, true);
    check_slots(&s.p, false);
    int seen = 0;
    for (int t = 0; t < 20000 && seen < 200; t++) {
        program_draw_rows(&s);
        if (s.p.rows && is_all_read(&s.p)) {
            check_slots(&s.p, t % 2);
            seen++;
        }
    }
    cr_assert_gt(seen, 50);
}

/* -- random ones ------------------------------------------------------------------------------------------- */
Test(kernels_rows, random_groups)
{
    NEED_LLVM();
    for (int t = 0; t < (int)effort_of(150); t++) {
        static sample s;
        program_draw_rows(&s);
        if (!s.p.rows)
            continue;
        const wf_target *target = &targets[t % NTARGETS];
        wf_jitk *k = wf_jitk_get(&s.p, &(wf_jitk_opts){.target = *target});
        for (int c = 0; c < 3; c++) {
            operands o;
            make_operands(&o, &s.p, 2, shapes[below(NSHAPES)], c == 0, t);
            o.axes = 2;
            run_both(k, &s.p, &o, target->width);
            drop_operands(&o);
        }
        wf_jitk_release(k);
    }
}

/* A destination in the memory of a source that a later stage still reads. */
Test(kernels_rows, in_place)
{
    NEED_LLVM();
    static const program_maker makers[] = {program_softmax, program_layer_norm,
                                           program_cross_entropy};
    for (int m = 0; m < 3; m++)
        for (int z = 0; z < NSHAPES; z++) {
            static wf_program p;
            operands o;
            wf_program_init(&p);
            makers[m](&p, WEFT_F32);
            const int d = wf_program_map(&p, WF_OP_NEG, WEFT_F32, 1, (int[]){p.input[0]});
            wf_program_output(&p, d);
            cr_assert_eq(wf_program_finish(&p), 0);
            make_operands(&o, &p, 2, shapes[z], true, z);
            o.axes = 2;
            const size_t bytes = (size_t)(shapes[z][0] * shapes[z][1]) * 4;
            void *x = malloc(bytes + 64);
            const wf_program_args tiles = {
                .dst = o.want, .src = o.src, .scalars = o.scalar, .axes = o.axes};
            const int status = wf_program_run_on(&p, &tiles);
            memcpy(x, o.src[0].data, bytes);
            memset((char *)x + bytes, 0x5A, 64);
            o.src[0].data = o.dst[p.noutput - 1].data = x;
            wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.sync = true});
            cr_assert_eq(wf_jitk_get_state(k), WF_JITK_NATIVE, "%s", wf_jitk_reason(k));
            const wf_program_args native = {
                .dst = o.dst, .src = o.src, .scalars = o.scalar, .axes = o.axes};
            cr_assert_eq(wf_jitk_run(k, &native), status);
            check_outputs(&o, &p, wf_jitk_name(k), 0);
            wf_jitk_release(k);
            drop_operands(&o);
            free(x);
        }
}

/* Many short rows go through the stages of a kernel a few at once: with what they keep, their last elements, and what is left of
 * the rows behind the last few. 513 elements are no short row. */
static void check_short_rows(program_maker make, int dtype, int turn)
{
    static const int64_t sizes[] = {16, 17, 33, 49, 64, 100, 192, 511, 512, 513};
    static const int64_t counts[] = {15, 16, 19, 21, 70, 67};
    enum { NSIZES = sizeof sizes / sizeof *sizes, NCOUNTS = sizeof counts / sizeof *counts };
    static wf_program p;
    wf_program_init(&p);
    make(&p, dtype);
    cr_assert_eq(wf_program_finish(&p), 0);
    wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.sync = true});
    for (int z = 0; z < NSIZES; z++) {
        operands o;
        make_operands(&o, &p, 2, (int64_t[]){counts[(z + turn) % NCOUNTS], sizes[z]}, z % 2, z);
        o.axes = 2;
        run_both(k, &p, &o, 0);
        drop_operands(&o);
    }
    wf_jitk_release(k);
}

Test(kernels_rows, many_short_rows)
{
    NEED_LLVM();
    static const int types[] = {WEFT_F32, WEFT_BF16, WEFT_F64, WEFT_I32};
    for (int d = 0; d < 4; d++) {
        check_short_rows(program_everything_reduced, types[d], d);
        if (types[d] == WEFT_I32)
            continue;
        check_short_rows(program_softmax, types[d], d + 1);
        check_short_rows(program_layer_norm, types[d], d + 2);
        check_short_rows(program_cross_entropy, types[d], d + 3);
    }
}

/* Rows that lie evenly along the last of two kept axes only: what all heads share, or all rows of one, and gaps behind heads. Launches end with
 * a head, whatever the tasks; short heads (the last two) are packed. */
static void in_heads(wf_view *v, const int64_t *dims, int form)
{
    const int64_t one = v->strides[1], row = v->strides[0] ? dims[2] * one + !one : 0;
    v->rank = 3;
    memcpy(v->dims, dims, 3 * sizeof *dims);
    v->strides[2] = one;
    v->strides[1] = form == 2 ? 0 : row;
    v->strides[0] = form == 1 ? 0 : dims[1] * row + (form == 3 ? 8 : 0);
}

/* All its memory, gaps included, as a column. */
static void flatten_heads(wf_view *v)
{
    v->rank = 2;
    v->dims[0] *= v->strides[0];
    v->dims[1] = 1;
}

static void check_heads(wf_jitk *k, const wf_program *p, operands *o, const int64_t *dims, int form)
{
    for (int i = 0; i < p->ninput; i++)
        in_heads(&o->src[i], dims, form >> 2 * i & 3);
    for (int i = 0; i < p->noutput; i++) {
        in_heads(&o->dst[i], dims, form & 16 ? 3 : 0);
        in_heads(&o->want[i], dims, form & 16 ? 3 : 0);
    }
    wf_program_args a = {.dst = o->want, .src = o->src, .scalars = o->scalar, .axes = 4};
    cr_assert_eq(wf_program_run_on(p, &a), 0);
    a.dst = o->dst;
    cr_assert_eq(wf_jitk_run(k, &a), 0);
    for (int i = 0; i < p->noutput; i++) {
        flatten_heads(&o->dst[i]);
        flatten_heads(&o->want[i]);
    }
    check_outputs(o, p, wf_jitk_name(k), form);
}

Test(kernels_rows, rows_of_heads)
{
    NEED_LLVM();
    static const int64_t dims[][3] = {{3, 70, 40},  {5, 7, 1000}, {2, 300, 130}, {12, 16, 64},
                                      {2, 1, 4097}, {9, 3, 17},   {4, 2, 100}};
    static const int types[] = {WEFT_F32, WEFT_BF16};
    for (int d = 0; d < 2; d++) {
        static wf_program p;
        wf_program_init(&p);
        program_layer_norm(&p, types[d]);
        cr_assert_eq(wf_program_finish(&p), 0);
        wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.sync = true});
        for (size_t z = 0; z < sizeof dims / sizeof *dims; z++)
            for (int form = 0; form < 32; form++) {
                operands o;
                make_operands(&o, &p, 2, (int64_t[]){dims[z][0] * dims[z][1], dims[z][2]}, true,
                              (int)z);
                check_heads(k, &p, &o, dims[z], form);
                drop_operands(&o);
            }
        wf_jitk_release(k);
    }
}

/* Results larger than the caches are stored past them, where their rows are aligned. */
Test(kernels_rows, large_results)
{
    NEED_LLVM();
    enum { HEADS = 3, EACH = 1100, LINE = 64 }; /* rows of a head */
    static const struct {
        int64_t n;
        int shift; /* floats from an aligned address */
        int gap;   /* behind a head: lines, or not even that */
    } cases[] = {{1024, 0, 0}, {1040, 0, 0}, {1000, 0, 0},
                 {1024, 4, 0}, {1024, 0, 8}, {1024, 0, 16}};
    static wf_program p;
    wf_program_init(&p);
    program_softmax(&p, WEFT_F32);
    cr_assert_eq(wf_program_finish(&p), 0);
    cr_assert_eq(p.noutput, 1);
    wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.sync = true});
    cr_assert_eq(wf_jitk_get_state(k), WF_JITK_NATIVE, "%s", wf_jitk_reason(k));
    const float eighth = 0.125F;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const int64_t n = cases[c].n;
        const int64_t head = EACH * n + cases[c].gap;
        const size_t count = (size_t)(HEADS * head), bytes = (count * 4 / LINE + 2) * LINE;
        float *x = aligned_alloc(LINE, bytes), *y = aligned_alloc(LINE, bytes),
              *want = malloc(bytes);
        cr_assert(x && y && want);
        for (size_t i = 0; i < count; i++)
            x[i] = (float)((int)(i * 2654435761U >> 8) % 4001 - 2000) / 300.0F;
        memset(y, 0x5A, bytes);
        memset(want, 0x5A, bytes);
        const wf_view src = {.data = x,
                             .dtype = WEFT_F32,
                             .rank = 3,
                             .dims = {HEADS, EACH, n},
                             .strides = {EACH * n, n, 1}};
        wf_view dst = src;
        const void *const scalar[2] = {&eighth, &eighth};
        dst.data = want;
        dst.strides[0] = head;
        cr_assert_eq(
            wf_program_run_on(
                &p, &(wf_program_args){.dst = &dst, .src = &src, .scalars = scalar, .axes = 4}),
            0);
        dst.data = y + cases[c].shift;
        cr_assert_eq(
            wf_jitk_run(k,
                        &(wf_program_args){.dst = &dst, .src = &src, .scalars = scalar, .axes = 4}),
            0);
        cr_assert(memcmp(dst.data, want, count * 4) == 0, "rows of %lld", (long long)n);
        for (size_t b = ((size_t)cases[c].shift + count) * 4; b < bytes; b++)
            cr_assert_eq(((char *)y)[b], 0x5A);
        free(x);
        free(y);
        free(want);
    }
    wf_jitk_release(k);
}

/* Behind a source's last row is a page that nobody may read; rows are apart, one behind another, or one for all. */
Test(kernels_rows, nothing_is_read_behind_sources)
{
    NEED_LLVM();
    enum { ROWS = 18, PAGE = 4096, MOST = 1024 };
    static const int64_t sizes[] = {16, 17, 63, 65, 100, 127, 1000};
    static wf_program p;
    wf_program_init(&p);
    program_softmax(&p, WEFT_F32);
    cr_assert_eq(wf_program_finish(&p), 0);
    wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.sync = true});
    cr_assert_eq(wf_jitk_get_state(k), WF_JITK_NATIVE, "%s", wf_jitk_reason(k));
    const size_t body = (size_t)ROWS * MOST * 4;
    char *base =
        mmap(NULL, body + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq((void *)base, MAP_FAILED);
    for (size_t i = 0; i < body / 4; i++)
        ((float *)(void *)base)[i] = (float)((int)(i * 2654435761U >> 8) % 4001 - 2000) / 300.0F;
    cr_assert_eq(mprotect(base + body, PAGE, PROT_NONE), 0);
    const float eighth = 0.125F;
    const void *const scalar[2] = {&eighth, &eighth};
    for (size_t z = 0; z < sizeof sizes / sizeof *sizes; z++) {
        const int64_t n = sizes[z], strides[] = {n, n + 5, MOST, 1, 0};
        for (size_t s = 0; s < sizeof strides / sizeof *strides; s++) {
            if (strides[s] < n && strides[s] > 1)
                continue;
            static float got[ROWS * MOST], want[ROWS * MOST];
            const size_t all = (size_t)((ROWS - 1) * strides[s] + n) * 4;
            const wf_view src = {.data = base + body - all,
                                 .dtype = WEFT_F32,
                                 .rank = 2,
                                 .dims = {ROWS, n},
                                 .strides = {strides[s], 1}};
            wf_view dst = src;
            dst.strides[0] = n;
            wf_program_args args = {.dst = &dst, .src = &src, .scalars = scalar, .axes = 2};
            dst.data = want;
            cr_assert_eq(wf_program_run_on(&p, &args), 0);
            dst.data = got;
            cr_assert_eq(wf_jitk_run(k, &args), 0);
            cr_expect(memcmp(got, want, (size_t)(ROWS * n) * 4) == 0, "rows of %lld, %lld apart",
                      (long long)n, (long long)strides[s]);
        }
    }
    munmap(base, body + PAGE);
    wf_jitk_release(k);
}

/* Two rows are work for two threads where they are long, and for one where they are short. */
Test(kernels_rows, two_long_rows)
{
    NEED_LLVM();
    enum { LONG = 100000 };
    static float x[2 * LONG], y[2 * LONG];
    static wf_program p;
    wf_program_init(&p);
    program_softmax(&p, WEFT_F32);
    cr_assert_eq(wf_program_finish(&p), 0);
    wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.sync = true});
    cr_assert_eq(wf_jitk_get_state(k), WF_JITK_NATIVE, "%s", wf_jitk_reason(k));
    wf_set_num_threads(2);
    for (int is_long = 0; is_long < 2; is_long++) {
        const int64_t n = is_long ? LONG : LONG / 10;
        const float eighth = 0.125F;
        const void *const scalar[2] = {&eighth, &eighth};
        const wf_view src = {
            .data = x, .dtype = WEFT_F32, .rank = 2, .dims = {2, n}, .strides = {n, 1}};
        wf_view dst = src;
        dst.data = y;
        wf_pool_shutdown();
        cr_assert_eq(
            wf_jitk_run(k,
                        &(wf_program_args){.dst = &dst, .src = &src, .scalars = scalar, .axes = 2}),
            0);
        cr_assert_eq(wf_pool_workers(), is_long);
    }
    wf_jitk_release(k);
}

/* -- rows that are cut into blocks -------------------------------------------------------------------------- */
static int wide_of(int dtype)
{
    return dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
}

/* Mean squared error, weighted: elements, then one stage of the row. */
static void program_mse(wf_program *p, int dtype)
{
    const int w = wide_of(dtype), a = wf_program_cast(p, wf_program_input(p, dtype), w);
    const int b = wf_program_cast(p, wf_program_input(p, dtype), w), n = wf_program_scalar(p, w);
    const int d = wf_program_map(p, WF_OP_SUB, w, 2, (int[]){a, b});
    const int sum =
        wf_program_reduce(p, WF_OP_SUM, wf_program_map(p, WF_OP_MUL, w, 2, (int[]){d, d}));
    const int mean = wf_program_map(p, WF_OP_DIV, w, 2, (int[]){sum, n});
    wf_program_output(p, wf_program_cast(p, mean, dtype));
}

/* Totals of every kind of a masked tensor that is stored as well, with stages of the row before and behind, and checks in
 * all of them. */
static void program_many_totals(wf_program *p, int dtype)
{
    const int w = wide_of(dtype), x = wf_program_cast(p, wf_program_input(p, dtype), w);
    const int mask = wf_program_input(p, WEFT_BOOL);
    const int own = wf_program_cast(p, wf_program_input_row(p, dtype), w);
    const int n = wf_program_scalar(p, w);
    const int shift = wf_program_map(p, WF_OP_MUL, w, 2, (int[]){own, n});
    const int y =
        wf_program_map(p, WF_OP_WHERE, w, 3,
                       (int[]){mask, x, wf_program_map(p, WF_OP_ADD, w, 2, (int[]){x, shift})});
    const int sum = wf_program_reduce(p, WF_OP_SUM, y), most = wf_program_reduce(p, WF_OP_AMAX, y);
    const int mean = wf_program_map(p, WF_OP_DIV, w, 2, (int[]){sum, n});
    const int spread =
        wf_program_map(p, WF_OP_SUB, w, 2, (int[]){most, wf_program_reduce(p, WF_OP_AMIN, y)});
    const int root = wf_program_map(p, WF_OP_SQRT, w, 1, &spread);
    wf_program_output(p, wf_program_cast(p, y, dtype));
    wf_program_output(p, wf_program_cast(p, mean, dtype));
    wf_program_output(p, wf_program_map(p, WF_OP_ADD, w, 2, (int[]){root, shift}));
    wf_program_output(p, sum);
    wf_program_output(p, wf_program_reduce(p, WF_OP_PROD, y));
    wf_program_output(p, wf_program_reduce(p, WF_OP_SUM, wf_program_cast(p, mask, WEFT_I64)));
    wf_program_output(p, wf_program_reduce(p, WF_OP_ANY, mask));
    wf_program_output(p, wf_program_reduce(p, WF_OP_ALL, mask));
    wf_program_check(p, wf_program_map(p, WF_OP_ISFINITE, w, 1, &own));
    wf_program_check(p, wf_program_map(p, WF_OP_ISFINITE, w, 1, &x));
    wf_program_check(p, wf_program_map(p, WF_OP_ISFINITE, w, 1, &root));
}

/* Totals that later elements need: two phases, which are not cut, and have the same bits. */
static void program_variance(wf_program *p, int dtype)
{
    const int w = wide_of(dtype), x = wf_program_cast(p, wf_program_input(p, dtype), w);
    const int n = wf_program_scalar(p, w), sum = wf_program_reduce(p, WF_OP_SUM, x);
    const int mean = wf_program_map(p, WF_OP_DIV, w, 2, (int[]){sum, n});
    const int d = wf_program_map(p, WF_OP_SUB, w, 2, (int[]){x, mean});
    const int sq =
        wf_program_reduce(p, WF_OP_SUM, wf_program_map(p, WF_OP_MUL, w, 2, (int[]){d, d}));
    wf_program_output(p, wf_program_cast(p, mean, dtype));
    wf_program_output(
        p, wf_program_cast(p, wf_program_map(p, WF_OP_DIV, w, 2, (int[]){sq, n}), dtype));
}

static void spoil_outputs(const operands *o, const wf_program *p)
{
    for (int i = 0; i < p->noutput; i++)
        memset(o->dst[i].data, 0x5A,
               (size_t)wf_view_numel(&o->dst[i]) * wf_dtype_size(o->dst[i].dtype));
}

/* One thread's bits of the interpreter are those of both ways on any number of them. */
static void check_threads(const wf_jitk *k, const wf_program *p, operands *o)
{
    static const int threads[] = {1, 2, 3, 7};
    const wf_program_args want = {
        .dst = o->want, .src = o->src, .scalars = o->scalar, .axes = o->axes};
    const wf_program_args got = {
        .dst = o->dst, .src = o->src, .scalars = o->scalar, .axes = o->axes};
    wf_set_num_threads(1);
    const int status = wf_program_run_on(p, &want);
    for (size_t i = UNDER_TSAN ? 3 : 0; i < sizeof threads / sizeof *threads;
         i += EFFORT_THREAD_STEP)
        for (int native = 0; native < 2; native++) {
            char what[96];
            snprintf(what, sizeof what, "%.60s, %s, %d threads", wf_jitk_name(k),
                     native ? "native" : "tiles", threads[i]);
            wf_set_num_threads(threads[i]);
            spoil_outputs(o, p);
            cr_assert_eq(native ? wf_jitk_run(k, &got) : wf_program_run_on(p, &got), status, "%s",
                         what);
            check_outputs(o, p, what, 0);
        }
}

static const int64_t long_rows[] = {4096, 12287, 12288, 12289, 16384, 20480, 20481, 24640, 70001};
enum { NLONG = sizeof long_rows / sizeof *long_rows };

static void check_cut(program_maker make, int dtype, bool is_cut, bool plain)
{
    static wf_program p;
    wf_program_init(&p);
    make(&p, dtype);
    cr_assert_eq(wf_program_finish(&p), 0);
    for (int t = 0; t < 3; t++) {
        wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.sync = true, .target = targets[t]});
        cr_assert_eq(wf_jitk_get_state(k), WF_JITK_NATIVE, "%s", wf_jitk_reason(k));
        cr_assert_eq(k->rows->cut >= 0, is_cut);
        for (int z = t; z < NLONG + 9; z += UNDER_TSAN ? 6 : 3) {
            const int64_t rows = z < NLONG ? 1 + z % 2 : z - NLONG + 1;
            const int64_t dims[2] = {rows, z < NLONG ? long_rows[z] : 16500};
            operands o;
            make_operands(&o, &p, 2, dims, plain, z);
            o.axes = 2;
            check_threads(k, &p, &o);
            drop_operands(&o);
        }
        wf_jitk_release(k);
    }
}

Test(kernels_rows, cut_rows)
{
    NEED_LLVM();
    static const int floats[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16};
    for (int d = 0; d < 4; d++)
        for (int plain = 0; plain < 2; plain++) {
            check_cut(program_mse, floats[d], true, plain);
            check_cut(program_many_totals, floats[d], true, plain);
            check_cut(program_variance, floats[d], false, plain);
        }
    check_cut(program_everything_reduced, WEFT_I32, true, true);
    check_cut(program_everything_reduced, WEFT_BOOL, true, false);
}

/* A tensor that takes the place of the one it is made from, block by block. */
Test(kernels_rows, cut_rows_in_place)
{
    NEED_LLVM();
    static wf_program p;
    wf_program_init(&p);
    program_many_totals(&p, WEFT_F32);
    cr_assert_eq(wf_program_finish(&p), 0);
    wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.sync = true});
    cr_assert_eq(wf_jitk_get_state(k), WF_JITK_NATIVE, "%s", wf_jitk_reason(k));
    for (int z = 0; z < NLONG; z++) {
        operands o;
        make_operands(&o, &p, 2, (int64_t[]){1, long_rows[z]}, true, z);
        o.axes = 2;
        const size_t bytes = (size_t)long_rows[z] * 4;
        char *x = malloc(bytes + 64);
        wf_program_args run = {.dst = o.want, .src = o.src, .scalars = o.scalar, .axes = o.axes};
        const void *source = o.src[0].data;
        const int status = wf_program_run_on(&p, &run);
        wf_set_num_threads(3);
        run.dst = o.dst;
        o.src[0].data = o.dst[0].data = x;
        for (int native = 0; native < 2; native++) {
            memcpy(x, source, bytes);
            memset(x + bytes, 0x5A, 64);
            cr_assert_eq(native ? wf_jitk_run(k, &run) : wf_program_run_on(&p, &run), status);
            check_outputs(&o, &p, native ? "native" : "tiles", 0);
        }
        drop_operands(&o);
        free(x);
    }
    wf_jitk_release(k);
}

/* A row that is long enough wakes the other thread, by either way. */
Test(kernels_rows, cut_rows_wake)
{
    NEED_LLVM();
    enum { LONG = 262144 };
    static float x[LONG], y[1], n = LONG;
    static wf_program p;
    wf_program_init(&p);
    program_mse(&p, WEFT_F32);
    cr_assert_eq(wf_program_finish(&p), 0);
    wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.sync = true});
    cr_assert_eq(wf_jitk_get_state(k), WF_JITK_NATIVE, "%s", wf_jitk_reason(k));
    const wf_view all = {.data = x, .dtype = WEFT_F32, .rank = 1, .dims = {LONG}, .strides = {1}};
    const wf_view one = {.data = y, .dtype = WEFT_F32, .rank = 1, .dims = {LONG}};
    const wf_program_args run = {.dst = &one,
                                 .src = (const wf_view[]){all, all},
                                 .scalars = (const void *const[]){&n},
                                 .axes = 1};
    for (int threads = 1; threads < 3; threads++)
        for (int native = 0; native < 2; native++) {
            wf_pool_shutdown();
            wf_set_num_threads(threads);
            cr_assert_eq(native ? wf_jitk_run(k, &run) : wf_program_run_on(&p, &run), 0);
            cr_assert_eq(wf_pool_workers(), threads - 1, "native %d", native);
        }
    wf_jitk_release(k);
}
