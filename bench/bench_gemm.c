/*
 * bench/bench_gemm.c -- matrix product and convolution beside raw oneDNN with kept primitives.
 *
 *   bench_gemm [threads, 0: 1 and 2] [only cases that contain this text]
 *
 * The limit ("onednn_us") runs oneDNN's own threading on as many threads, in turns with weft. For
 * convolutions the kept primitive's weights come in plain order, as weft's do, and are reordered inside
 * the timing; "onednn_kept_us" is without. Both read and write channels-last memory, as weft's kernels do inside. "call_us"
 * is weft_conv2d, as programs call it, from NCHW to NCHW, "call_nhwc_us" from channels-last to channels-last.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/support/bench.h"
#include "eager/cpu/gemm.h"
#include "eager/pool.h"
#include "jit/ir/dtype.h"
#include "weft/weft.h"

#if __has_include(<oneapi/dnnl/dnnl.h>) && __has_include(<dlfcn.h>)
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#define HAVE_ONEDNN 1
#endif

static int threads = 1, have_limit;

static void *filled(size_t count, int dtype)
{
    size_t size = wf_dtype_size(dtype);
    void *p = aligned_alloc(64, (count * size + 63) / 64 * 64);
    if (!p)
        exit(1);
    for (size_t i = 0; i < count; i++) {
        float x = (float)(i % 13) * 0.125f - 0.75f;
        if (dtype == WEFT_F32)
            ((float *)p)[i] = x;
        else
            ((uint16_t *)p)[i] = wf_bf16_of_f32(x);
    }
    return p;
}

static void weft_product(void *d)
{
    wf_gemm(d);
}

typedef struct conv_case {
    wf_conv_desc d;
    int kind;
    void *src, *weight, *dst;
} conv_case;

static void weft_conv(void *arg)
{
    conv_case *c = arg;
    if (c->kind == 0)
        wf_conv2d_forward(&c->d, c->src, c->weight, NULL, c->dst);
    else if (c->kind == 1)
        wf_conv2d_backward_data(&c->d, c->dst, c->weight, c->src);
    else
        wf_conv2d_backward_weight(&c->d, c->src, c->dst, c->weight);
}

typedef struct public_case {
    weft_tensor x, weight;
    int64_t stride, padding;
} public_case;

static void public_conv(void *arg)
{
    const public_case *k = arg;
    weft_free(weft_conv2d(k->x, k->weight, .stride = weft_shape(k->stride),
                          .padding = weft_shape(k->padding)));
}

/* The operands of c for weft_conv2d: in NCHW, and channels-last, which its result then is, too. */
static void public_operands(const conv_case *c, public_case out[2])
{
    const wf_conv_desc *d = &c->d;
    const weft_dtype dt = (weft_dtype)d->dtype;
    weft_tensor w = weft_from_blob(c->weight, weft_shape(d->o, d->c, d->kh, d->kw), dt);
    weft_tensor x = weft_from_blob(c->src, weft_shape(d->n, d->c, d->h, d->w), dt);
    weft_tensor nhwc = weft_from_blob(c->src, weft_shape(d->n, d->h, d->w, d->c), dt);
    out[0] = (public_case){x, w, d->stride[0], d->pad[0]};
    out[1] = (public_case){weft_permute(nhwc, weft_axes(0, 3, 1, 2)), w, d->stride[0], d->pad[0]};
    if (!weft_ok(out[0].x) || !weft_ok(out[1].x) || !weft_ok(w))
        bench_die(weft_last_error());
}

#ifdef HAVE_ONEDNN
/* Opened at run time, like the library does, so that the bench builds and links without it. */
#define FUNCTIONS(F)                                                                               \
    F(dnnl_engine_create)                                                                          \
    F(dnnl_stream_create)                                                                          \
    F(dnnl_memory_desc_init_by_strides)                                                            \
    F(dnnl_memory_desc_init_by_tag)                                                                \
    F(dnnl_memory_create)                                                                          \
    F(dnnl_matmul_desc_init)                                                                       \
    F(dnnl_primitive_desc_create)                                                                  \
    F(dnnl_primitive_desc_query_md)                                                                \
    F(dnnl_primitive_desc_destroy)                                                                 \
    F(dnnl_primitive_create)                                                                       \
    F(dnnl_primitive_destroy)                                                                      \
    F(dnnl_memory_destroy)                                                                         \
    F(dnnl_primitive_execute)                                                                      \
    F(dnnl_reorder_primitive_desc_create)                                                          \
    F(dnnl_dilated_convolution_forward_desc_init)                                                  \
    F(dnnl_dilated_convolution_backward_data_desc_init)                                            \
    F(dnnl_dilated_convolution_backward_weights_desc_init)
static struct {
#define F(name) __typeof__(&name) name;
    FUNCTIONS(F)
#undef F
} lib;

static dnnl_engine_t engine;
static dnnl_stream_t stream;

static void (*set_omp_threads)(int);

static int open_onednn(void)
{
    void *library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return 0;
#define F(name)                                                                                    \
    {                                                                                              \
        void *p = dlsym(library, #name);                                                           \
        if (!p)                                                                                    \
            return 0;                                                                              \
        memcpy(&lib.name, &p, sizeof p);                                                           \
    }
    FUNCTIONS(F)
#undef F
    void *p = dlsym(library, "omp_set_num_threads");
    if (!p)
        return 0;
    memcpy(&set_omp_threads, &p, sizeof p);
    return lib.dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success &&
           lib.dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) == dnnl_success;
}

typedef struct kept {
    dnnl_primitive_t before, main, after; /* reorders may be NULL */
    dnnl_exec_arg_t before_args[2], args[3], after_args[2];
} kept;

static void run_kept(void *arg)
{
    kept *k = arg;
    lib.dnnl_primitive_execute(k->main, stream, 3, k->args);
}
static void run_with_reorder(void *arg)
{
    kept *k = arg;
    if (k->before)
        lib.dnnl_primitive_execute(k->before, stream, 2, k->before_args);
    lib.dnnl_primitive_execute(k->main, stream, 3, k->args);
    if (k->after)
        lib.dnnl_primitive_execute(k->after, stream, 2, k->after_args);
}

static dnnl_data_type_t type_of(int dtype)
{
    return dtype == WEFT_F32 ? dnnl_f32 : dnnl_bf16;
}

static int raw_product(const wf_gemm_desc *d, void *c, kept *out)
{
    dnnl_memory_desc_t md[3];
    dnnl_dims_t da = {d->m, d->k}, db = {d->k, d->n}, dc = {d->m, d->n};
    dnnl_dims_t sa = {d->a_rs, d->a_cs}, sb = {d->b_rs, d->b_cs}, sc = {d->n, 1};
    dnnl_data_type_t t = type_of(d->dtype);
    lib.dnnl_memory_desc_init_by_strides(&md[0], 2, da, t, sa);
    lib.dnnl_memory_desc_init_by_strides(&md[1], 2, db, t, sb);
    lib.dnnl_memory_desc_init_by_strides(&md[2], 2, dc, t, sc);
    dnnl_matmul_desc_t op;
    dnnl_primitive_desc_t pd;
    if (lib.dnnl_matmul_desc_init(&op, &md[0], &md[1], NULL, &md[2]) ||
        lib.dnnl_primitive_desc_create(&pd, &op, NULL, engine, NULL) ||
        lib.dnnl_primitive_create(&out->main, pd))
        return 0;
    lib.dnnl_primitive_desc_destroy(pd);
    const int arg[3] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    void *data[3] = {(void *)(uintptr_t)d->a, (void *)(uintptr_t)d->b, c};
    for (int i = 0; i < 3; i++) {
        out->args[i].arg = arg[i];
        lib.dnnl_memory_create(&out->args[i].memory, &md[i], engine, data[i]);
    }
    return 1;
}

static int raw_conv(const conv_case *c, kept *out)
{
    const wf_conv_desc *d = &c->d;
    dnnl_memory_desc_t src, weight, dst, plain;
    dnnl_dims_t ds = {d->n, d->c, d->h, d->w}, dw = {d->o, d->c, d->kh, d->kw};
    dnnl_dims_t dd = {d->n, d->o, d->oh, d->ow}, stride = {d->stride[0], d->stride[1]},
                none = {0, 0};
    dnnl_dims_t before = {d->pad[0], d->pad[1]};
    dnnl_dims_t after = {(d->oh - 1) * d->stride[0] + d->kh - d->h - d->pad[0],
                         (d->ow - 1) * d->stride[1] + d->kw - d->w - d->pad[1]};
    dnnl_data_type_t t = type_of(d->dtype);
    lib.dnnl_memory_desc_init_by_tag(&src, 4, ds, t, dnnl_nhwc);
    lib.dnnl_memory_desc_init_by_tag(&weight, 4, dw, t, dnnl_format_tag_any);
    lib.dnnl_memory_desc_init_by_tag(&plain, 4, dw, t, dnnl_oihw);
    lib.dnnl_memory_desc_init_by_tag(&dst, 4, dd, t, dnnl_nhwc);
    dnnl_convolution_desc_t op;
    dnnl_primitive_desc_t pd, hint;
    if (lib.dnnl_dilated_convolution_forward_desc_init(&op, dnnl_forward_training,
                                                       dnnl_convolution_direct, &src, &weight, NULL,
                                                       &dst, stride, none, before, after) ||
        lib.dnnl_primitive_desc_create(&pd, &op, NULL, engine, NULL))
        return 0;
    hint = pd;
    if (c->kind == 1 &&
        (lib.dnnl_dilated_convolution_backward_data_desc_init(
             &op, dnnl_convolution_direct, &src, &weight, &dst, stride, none, before, after) ||
         lib.dnnl_primitive_desc_create(&pd, &op, NULL, engine, hint)))
        return 0;
    if (c->kind == 2 && (lib.dnnl_dilated_convolution_backward_weights_desc_init(
                             &op, dnnl_convolution_direct, &src, &weight, NULL, &dst, stride, none,
                             before, after) ||
                         lib.dnnl_primitive_desc_create(&pd, &op, NULL, engine, hint)))
        return 0;
    const dnnl_memory_desc_t *blocked = lib.dnnl_primitive_desc_query_md(
        pd, c->kind == 2 ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    dnnl_memory_t memory[4];
    lib.dnnl_memory_create(&memory[0], &src, engine, c->src);
    lib.dnnl_memory_create(&memory[1], blocked, engine, DNNL_MEMORY_ALLOCATE);
    lib.dnnl_memory_create(&memory[2], &dst, engine, c->dst);
    lib.dnnl_memory_create(&memory[3], &plain, engine, c->weight);
    const int arg[3][3] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                           {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
                           {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
    for (int i = 0; i < 3; i++)
        out->args[i] = (dnnl_exec_arg_t){arg[c->kind][i], memory[i]};
    if (lib.dnnl_primitive_create(&out->main, pd))
        return 0;
    dnnl_memory_t from = c->kind == 2 ? memory[1] : memory[3],
                  to = c->kind == 2 ? memory[3] : memory[1];
    dnnl_primitive_t reorder;
    if (lib.dnnl_reorder_primitive_desc_create(&pd, c->kind == 2 ? blocked : &plain, engine,
                                               c->kind == 2 ? &plain : blocked, engine, NULL) ||
        lib.dnnl_primitive_create(&reorder, pd))
        return 0;
    dnnl_exec_arg_t a = {DNNL_ARG_FROM, from}, b = {DNNL_ARG_TO, to};
    out->before = c->kind == 2 ? NULL : reorder;
    out->after = c->kind == 2 ? reorder : NULL;
    out->before_args[0] = out->after_args[0] = a;
    out->before_args[1] = out->after_args[1] = b;
    return 1;
}
#endif

static const char *only = "";

/* oneDNN's idle threads spin for some milliseconds: a turn of several threads outlasts that. */
static void race(bench_side *sides, int count)
{
    const bench_plan one = {.threads = 1, .batch = 2e-3, .rounds = bench_quick() ? 5 : 11};
    const bench_plan more = {
        .threads = threads, .batch = 2e-3, .turn = 15e-3, .rounds = bench_quick() ? 5 : 9};
    bench_race(sides, count, threads == 1 ? &one : &more);
}

static void report(const char *bench, const char *name, int dtype, double gflop,
                   const bench_side *s, int count)
{
    bench_open(bench, name, NULL, wf_dtype_name(dtype), threads);
    bench_number("us", s[0].median * 1e6);
    bench_number("gflops", gflop / s[0].median);
    if (count > 1) {
        bench_number("onednn_us", s[1].median * 1e6);
        bench_number("ratio", bench_ratio(1, 0));
        bench_number("target_ratio", 0.97);
        bench_number("best_ratio", s[1].best / s[0].best);
    }
    if (count > 2) {
        bench_number("onednn_kept_us", s[2].median * 1e6);
        bench_number("ratio_kept", bench_ratio(2, 0));
    }
    for (int i = 3; i < count; i++) {
        bench_number(i == 3 ? "call_us" : "call_nhwc_us", s[i].median * 1e6);
        bench_number(i == 3 ? "ratio_call" : "ratio_call_nhwc", bench_ratio(1, i));
        if (i > 3)
            bench_number("target_ratio_call_nhwc", 0.97);
    }
    bench_close();
}

static void product(int dtype, int64_t m, int64_t n, int64_t k, int transposed)
{
    char name[96];
    snprintf(name, sizeof name, "%ldx%ldx%ld%s", (long)m, (long)n, (long)k,
             transposed ? " B^T" : "");
    if (!strstr(name, only))
        return;
    wf_gemm_desc d = {.dtype = dtype, .m = m, .n = n, .k = k, .batch = 1};
    void *a = filled((size_t)(m * k), dtype), *b = filled((size_t)(k * n), dtype);
    void *c = filled((size_t)(m * n), dtype), *c2 = filled((size_t)(m * n), dtype);
    d.a = a, d.b = b, d.c = c;
    d.a_rs = k, d.a_cs = 1, d.c_rs = n;
    d.b_rs = transposed ? 1 : n, d.b_cs = transposed ? k : 1;
    bench_side s[3] = {{.run = weft_product, .arg = &d}};
    int count = 1;
#ifdef HAVE_ONEDNN
    kept raw = {0};
    if (have_limit && raw_product(&d, c2, &raw))
        s[count++] = (bench_side){.run = run_kept, .arg = &raw};
#endif
    race(s, count);
    report("gemm", name, dtype, 2e-9 * (double)m * (double)n * (double)k, s, count);
    free(a), free(b), free(c), free(c2);
}

static void conv(int dtype, const int64_t *l, int kind)
{
    static const char *const kinds[] = {"forward", "backward-data", "backward-weight"};
    char name[128];
    snprintf(name, sizeof name, "%s n%ld %ldx%ld/%ld %ld->%ld @%ld", kinds[kind], (long)l[0],
             (long)l[4], (long)l[4], (long)l[5], (long)l[1], (long)l[3], (long)l[2]);
    if (!strstr(name, only))
        return;
    conv_case c = {.kind = kind};
    wf_conv_desc *d = &c.d;
    d->dtype = dtype, d->layout = WF_CONV_SRC_NHWC | WF_CONV_DST_NHWC;
    d->n = l[0], d->c = l[1], d->h = d->w = l[2], d->o = l[3], d->kh = d->kw = l[4];
    d->groups = 1;
    for (int i = 0; i < 2; i++)
        d->stride[i] = l[5], d->pad[i] = l[4] / 2, d->dilation[i] = 1;
    d->oh = d->ow = (l[2] + 2 * d->pad[0] - l[4]) / l[5] + 1;
    c.src = filled((size_t)(d->n * d->c * d->h * d->w), dtype);
    c.weight = filled((size_t)(d->o * d->c * d->kh * d->kw), dtype);
    c.dst = filled((size_t)(d->n * d->o * d->oh * d->ow), dtype);
    bench_side s[5] = {{.run = weft_conv, .arg = &c}};
    public_case calls[2];
    int count = 1;
#ifdef HAVE_ONEDNN
    kept raw = {0};
    if (have_limit && raw_conv(&c, &raw)) {
        s[count++] = (bench_side){.run = run_with_reorder, .arg = &raw};
        s[count++] = (bench_side){.run = run_kept, .arg = &raw};
    }
#endif
    const weft_scope scope = weft_scope_begin();
    if (count > 2 && kind == 0) {
        public_operands(&c, calls);
        s[count++] = (bench_side){.run = public_conv, .arg = &calls[0]};
        s[count++] = (bench_side){.run = public_conv, .arg = &calls[1]};
    }
    race(s, count);
    weft_scope_end(scope);
    double terms = (double)(d->n * d->o * d->oh * d->ow) * (double)(d->c * d->kh * d->kw);
    report("conv2d", name, dtype, 2e-9 * terms, s, count);
    free(c.src), free(c.weight), free(c.dst);
}

int main(int argc, char **argv)
{
    static const int64_t shapes[][3] = {
        {1, 1, 1},       {16, 16, 16},    {32, 32, 32},       {64, 64, 64},       {128, 128, 128},
        {256, 256, 256}, {512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}, {1, 1024, 1024},
        {1, 4096, 4096}, {8, 1024, 1024}, {32, 1024, 1024},   {1024, 1024, 32},   {128, 768, 768},
        {1024, 8, 1024}, {4096, 1, 4096}, {64, 64, 4096}};
    /* n, channels in, size, channels out, kernel, stride */
    static const int64_t layers[][6] = {
        {1, 3, 224, 64, 7, 2},   {1, 64, 56, 64, 3, 1},  {1, 128, 28, 128, 3, 1},
        {1, 256, 14, 256, 3, 1}, {1, 512, 7, 512, 3, 1}, {1, 2048, 7, 512, 1, 1},
        {8, 2048, 7, 512, 1, 1}, {8, 64, 56, 256, 1, 1}, {8, 64, 56, 64, 3, 1},
        {8, 256, 14, 256, 3, 1}, {8, 512, 2, 512, 3, 1}, {8, 512, 4, 512, 3, 1},
        {32, 256, 4, 512, 3, 2}};
    static const int dtypes[] = {WEFT_F32, WEFT_BF16};
    const int asked = argc > 1 ? atoi(argv[1]) : 0;
    only = argc > 2 ? argv[2] : "";
#ifdef HAVE_ONEDNN
    have_limit = open_onednn();
#endif
    for (threads = asked ? asked : 1; threads <= (asked ? asked : 2); threads++) {
        if (wf_set_num_threads(threads))
            return 1;
#ifdef HAVE_ONEDNN
        if (have_limit)
            set_omp_threads(threads);
#endif
        for (int t = 0; t < 2; t++) {
            for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
                for (int transposed = 0; transposed < 2; transposed++)
                    product(dtypes[t], shapes[i][0], shapes[i][1], shapes[i][2], transposed);
            for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
                for (int kind = 0; kind < 3; kind++)
                    if (kind != 1 || layers[i][1] > 3)
                        conv(dtypes[t], layers[i], kind);
        }
    }
    fprintf(stderr, "back end: %s\n", wf_gemm_backend_name());
    return 0;
}
