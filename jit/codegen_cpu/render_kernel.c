/*
 * jit/codegen_cpu/render_kernel.c -- LLVM text of whole kernels: the loops around a body.
 *
 * Every kernel is  void name(ptr %ptr, ptr %size, ptr %scalar, i64 %begin, i64 %end, i64 %flags)  with the
 * fields of wf_launch. One vector body serves the tail too: a short group goes through zeroed buffers on the
 * stack, so tails cost no second copy of the code and read nothing outside the operands. In MAP, wf_tail (llvm_calls.c)
 * makes the buffers and calls the kernel on them; other skeletons copy in place.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "jit/codegen_cpu/render.h"

#define P(...) wf_text_putf(t, __VA_ARGS__)

enum { LONG_BODY = 120, MANY_OPERANDS = 7 };

static bool is_arch(const char *arch, const char *name)
{
    const size_t n = strcspn(arch, "/");
    return strlen(name) == n && memcmp(arch, name, n) == 0;
}

/* Bits of a vector register where there are 16 of them; 0: AVX-512's 32. */
static unsigned few_registers(const char *arch)
{
    if (is_arch(arch, "x86-64"))
        return 128;
    if (is_arch(arch, "x86-64-v3"))
        return 256;
#if defined(__x86_64__)
    if (is_arch(arch, "host") && !__builtin_cpu_supports("x86-64-v4"))
        return __builtin_cpu_supports("x86-64-v3") ? 256 : 128;
#endif
    return 0;
}

/* Are two values that vary the most that a body has to keep at once? A source is read where it is first used. */
static bool keeps_two(const wf_kernel *k, const wf_kir *body)
{
    bool varies[LONG_BODY], live[LONG_BODY] = {false};
    uint32_t first[LONG_BODY];
    int count = 0, most = 0;
    if (body->n > LONG_BODY)
        return false;
    for (uint32_t n = 0; n < body->n; n++) {
        const wf_kinstr *i = &body->ins[n];
        first[n] = UINT32_MAX;
        varies[n] =
            i->prim == WF_KP_PARAM && i->imm < (uint64_t)k->nsrc && !wf_ll_is_bcast(k, (int)i->imm);
        for (int s = 0; s < i->nsrc; s++) {
            varies[n] |= varies[i->src[s]];
            first[i->src[s]] = n < first[i->src[s]] ? n : first[i->src[s]];
        }
    }
    for (uint32_t o = 0; o < body->nout; o++) {
        count += varies[body->out[o]] && !live[body->out[o]];
        live[body->out[o]] = true;
    }
    for (uint32_t n = body->n; n-- > 0;) {
        most = count > most ? count : most;
        count -= live[n] && varies[n] && body->ins[n].prim != WF_KP_PARAM;
        for (int s = 0; s < body->ins[n].nsrc; s++) {
            const wf_kref r = body->ins[n].src[s];
            count += varies[r] && !live[r];
            live[r] = true;
        }
        for (int s = 0; s < body->ins[n].nsrc; s++) {
            const wf_kref r = body->ins[n].src[s];
            const bool read = body->ins[r].prim == WF_KP_PARAM && first[r] == n;
            count -= read && varies[r];
            varies[r] &= !read; /* two operands may be the same */
        }
    }
    return most <= 2;
}

/* 64 lanes are four AVX-512 registers, whose steps hide one another's latency. A long body spills them: pow takes
 * 2.5 times as long to compile as with 32 lanes, for a tenth of its running time. Of many operands (an optimiser's) each
 * is read four lines at a time, which the next vector's loads wait behind: beyond the caches AdamW takes 4 to 16 % longer
 * than in 16 lanes, 1 % less within them.
 * Where there are 16 registers, eight for a value hold two of them: a chain of additions and maxima then takes three
 * quarters of its time in four each. Any other body spills them, and takes twice as long to compile, and longer to run. */
int wf_llvm_lanes(const wf_kernel *k, const wf_target *target)
{
    const bool map = k->skeleton == WF_SK_MAP;
    const unsigned bits = wf_kernel_bits(k), few = few_registers(target->arch);
    if (target->width)
        return target->width;
    if (map && wf_kernel_nptr(k) >= MANY_OPERANDS)
        return 16;
    const unsigned most = bits > 32 || k->body.n > LONG_BODY ? 32 : 64;
    const bool eight = map && keeps_two(k, k->fast.n ? &k->fast : &k->body);
    const unsigned fit = (eight ? 8 : 4) * few / (bits > 8 ? bits : 8);
    return (int)(few && fit < most ? fit : most);
}

unsigned wf_ll_bytes(wf_kty type)
{
    return (wf_kty_bits(type) + 7) / 8;
}

bool wf_ll_is_bcast(const wf_kernel *k, int s)
{
    return k->bcast >> s & 1;
}

wf_kty wf_ll_src_type(const wf_kernel *k, int s)
{
    return (wf_kty)k->body.param_type[s];
}

/* %name := the scalar operand in every lane */
void wf_ll_spread(wf_text *t, const char *name, wf_kty type, int lanes, const char *scalar)
{
    const wf_ll T = wf_ll_type(type, lanes), S = wf_ll_type(type, 1);
    if (lanes == 1) {
        P("  %%%s = freeze %s %s\n", name, S.s, scalar);
        return;
    }
    P("  %%%s.one = insertelement %s poison, %s %s, i64 0\n", name, T.s, S.s, scalar);
    P("  %%%s = shufflevector %s %%%s.one, %s poison, <%d x i32> zeroinitializer\n", name, T.s,
      name, T.s, lanes);
}

void wf_ll_prologue(wf_text *t, const wf_kernel *k, int lanes, int padded, bool with_dst)
{
    const int ndst = wf_kernel_ndst(k);
    for (int i = with_dst ? 0 : ndst; i < ndst + k->nsrc; i++) {
        P("  %%A%d = getelementptr ptr, ptr %%ptr, i64 %d\n", i, i);
        P("  %%P%d = load ptr, ptr %%A%d\n", i, i);
    }
    for (int i = with_dst ? 0 : ndst; i < ndst + k->nsrc; i++) {
        const wf_kty type = wf_kernel_ptr_type(k, i);
        if (i >= ndst && wf_ll_is_bcast(k, i - ndst)) {
            char name[16], one[16];
            snprintf(name, sizeof name, "x%d", i - ndst);
            snprintf(one, sizeof one, "%%s%d", i - ndst);
            P("  %s = load %s, ptr %%P%d\n", one, wf_ll_type(type, 1).s, i);
            wf_ll_spread(t, name, type, lanes, one);
        } else if (padded > 1) {
            P("  %%buf%d = alloca %s, align 64\n  store %s zeroinitializer, ptr %%buf%d\n", i,
              wf_ll_type(type, padded).s, wf_ll_type(type, padded).s, i);
        }
    }
    for (int i = 0; i < k->nscalar; i++) {
        const wf_kty type = (wf_kty)k->body.param_type[k->nsrc + i];
        char name[16], one[16];
        snprintf(name, sizeof name, "x%d", k->nsrc + i);
        snprintf(one, sizeof one, "%%s%d", k->nsrc + i);
        P("  %%C%d = getelementptr i64, ptr %%scalar, i64 %d\n", i, i);
        P("  %s = load %s, ptr %%C%d\n", one, wf_ll_type(type, 1).s, i);
        wf_ll_spread(t, name, type, lanes, one);
    }
}

/* The operands of a body: sources not broadcast are %<prefix>v<i>. */
void wf_ll_operands(const wf_kernel *k, const char *prefix, wf_ll *param)
{
    for (int i = 0; i < k->nsrc + k->nscalar; i++)
        if (i >= k->nsrc || wf_ll_is_bcast(k, i))
            snprintf(param[i].s, sizeof param[i].s, "%%x%d", i);
        else
            snprintf(param[i].s, sizeof param[i].s, "%%%sv%d", prefix, i);
}

void wf_ll_copy(wf_text *t, const char *to, const char *from, const char *count, wf_kty type,
                const char *tag, int i)
{
    P("  %%%s%d = mul i64 %s, %u\n", tag, i, count, wf_ll_bytes(type));
    P("  call void @llvm.memcpy.p0.p0.i64(ptr %s, ptr %s, i64 %%%s%d, i1 false)\n", to, from, tag,
      i);
}

void wf_ll_header(wf_text *t, const wf_kernel *k)
{
    P("define void @%s(ptr %%ptr, ptr %%size, ptr %%scalar, i64 %%begin, i64 %%end, i64 %%flags) "
      "#0 {\nentry:\n",
      k->name);
}

/* -- elementwise ------------------------------------------------------------------------------------ */
/* Where a vector of each operand is: %D<i>, its place, or %U<i>, its buffer where the group is short. */
static void loop_pointers(wf_text *t, const wf_ll_loop *l)
{
    const int ndst = wf_kernel_ndst(l->k), n = ndst + l->k->nsrc;
    char a[24], b[24];
    for (int i = 0; i < n; i++)
        if (i < ndst || !wf_ll_is_bcast(l->k, i - ndst))
            P("  %%D%d = getelementptr %s, ptr %%%c%d, i64 %%i\n", i,
              wf_ll_type(wf_kernel_ptr_type(l->k, i), 1).s, l->base, i);
    if (l->whole) {
        P("  br label %%body\nbody:\n");
        return;
    }
    P("  br i1 %%full, label %%body, label %%pad\npad:\n");
    for (int i = ndst; i < n && l->lanes > 1; i++)
        if (!wf_ll_is_bcast(l->k, i - ndst)) {
            snprintf(a, sizeof a, "%%buf%d", i);
            snprintf(b, sizeof b, "%%D%d", i);
            wf_ll_copy(t, a, b, "%left", wf_ll_src_type(l->k, i - ndst), "ml", i);
        }
    P("  br label %%body\nbody:\n");
    for (int i = 0; i < n; i++)
        if (i < ndst || !wf_ll_is_bcast(l->k, i - ndst))
            P("  %%U%d = phi ptr [ %%D%d, %%loop ], [ %%%s%d, %%pad ]\n", i, i,
              l->lanes > 1 ? "buf" : "D", i);
}

/* Destinations so narrow that a vector of them cannot bypass the caches. */
static bool can_stream(const wf_ll_loop *l)
{
    for (int o = 0; o < wf_kernel_ndst(l->k); o++)
        if ((unsigned)l->lanes * wf_ll_bytes(wf_kernel_ptr_type(l->k, o)) < 16)
            return false;
    return l->stream;
}

/* Asks for what a vector some steps ahead reads: streams of more than a few operands are more than the processor's own
 * prefetching follows, and its stop at the end of each page of 4 KiB. Ahead of the stores, a few lines at a time. */
static void ask_ahead(wf_text *t, const wf_ll_loop *l)
{
    enum { AHEAD = 4096, LINE = 64 };
    const int ndst = wf_kernel_ndst(l->k);
    for (int s = 0; s < l->k->nsrc; s++) {
        const int bytes = l->lanes * (int)wf_ll_bytes(wf_ll_src_type(l->k, s));
        for (int o = 0; o < bytes && !wf_ll_is_bcast(l->k, s); o += LINE)
            P("  %%F%d.%d = getelementptr i8, ptr %%D%d, i64 %d\n"
              "  call void @llvm.prefetch.p0(ptr %%F%d.%d, i32 0, i32 3, i32 1)\n",
              s, o, s + ndst, AHEAD + o, s, o);
    }
}

static void loop_stores(wf_text *t, const wf_ll_loop *l, const wf_ll *y)
{
    const int ndst = wf_kernel_ndst(l->k);
    char a[24], b[24];
    if (can_stream(l)) {
        P("  br i1 %%streams, label %%bypass, label %%plain\nbypass:\n");
        ask_ahead(t, l);
        for (int o = 0; o < ndst; o++) {
            const wf_kty type = wf_kernel_ptr_type(l->k, o);
            const unsigned size = (unsigned)l->lanes * wf_ll_bytes(type);
            P("  store %s %s, ptr %%D%d, align %u, !nontemporal !0\n", wf_ll_type(type, l->lanes).s,
              y[o].s, o, size < 64 ? size : 64);
        }
        P("  br label %%next\nplain:\n");
    }
    for (int o = 0; o < ndst; o++) {
        const wf_kty type = wf_kernel_ptr_type(l->k, o);
        P("  store %s %s, ptr %%%c%d, align %u\n", wf_ll_type(type, l->lanes).s, y[o].s,
          l->whole ? 'D' : 'U', o, wf_ll_bytes(type));
    }
    if (l->whole) {
        P("  br label %%next\n");
        return;
    }
    P("  br i1 %%full, label %%next, label %%back\nback:\n");
    for (int o = 0; o < ndst && l->lanes > 1; o++) {
        snprintf(a, sizeof a, "%%D%d", o);
        snprintf(b, sizeof b, "%%buf%d", o);
        wf_ll_copy(t, a, b, "%left", wf_kernel_ptr_type(l->k, o), "ms", o);
    }
    P("  br label %%next\n");
}

/* The kernel's operands, and the uniform values behind them. */
static void loop_params(const wf_ll_loop *l, const wf_kir *body, const wf_ll *once, wf_ll *param)
{
    wf_ll_operands(l->k, "b", param);
    for (uint32_t p = (uint32_t)(l->k->nsrc + l->k->nscalar); once && p < body->nparam; p++)
        param[p] = once[p];
}

/* The short body; %<prefix>any := does any lane ask for the whole one? */
static void short_body(wf_text *t, const wf_ll_loop *l, int lanes, const char *prefix,
                       const wf_ll *param)
{
    wf_ll_body_in(t, l->fast, lanes, l->registers * (l->lanes / lanes), prefix, param);
    const wf_ll rare = wf_ll_ref(l->fast, l->fast->rare, lanes, prefix, param);
    if (lanes == 1)
        P("  %%%sany = freeze i1 %s\n", prefix, rare.s);
    else
        P("  %%%sany = call i1 @llvm.vector.reduce.or.v%di1(%s %s)\n", prefix, lanes,
          wf_ll_type(WF_KT_BOOL, lanes).s, rare.s);
}

/* Operands of a body that are the same in all lanes, for a part of them: %<prefix>v<p>. Sources have these names. */
static void part_operands(wf_text *t, const wf_ll_loop *l, const wf_kir *body, const char *prefix,
                          wf_ll *param)
{
    for (uint32_t p = 0; p < body->nparam; p++) {
        const wf_ll T = wf_ll_type((wf_kty)body->param_type[p], l->lanes), all = param[p];
        if (p < (uint32_t)l->k->nsrc && !wf_ll_is_bcast(l->k, (int)p)) {
            snprintf(param[p].s, sizeof param[p].s, "%%rv%u", p);
            continue;
        }
        if (l->part == l->lanes)
            continue;
        snprintf(param[p].s, sizeof param[p].s, "%%%sv%u", prefix, p);
        if (l->part == 1)
            P("  %s = extractelement %s %s, i64 0\n", param[p].s, T.s, all.s);
        else
            P("  %s = shufflevector %s %s, %s poison, <%d x i32> zeroinitializer\n", param[p].s,
              T.s, all.s, T.s, l->part);
    }
}

static void part_stores(wf_text *t, const wf_ll_loop *l, const wf_kir *body, const char *prefix,
                        const wf_ll *param)
{
    for (uint32_t o = 0; o < body->nout; o++) {
        const wf_kty type = wf_kernel_ptr_type(l->k, (int)o);
        P("  store %s %s, ptr %%ro%u, align %u\n", wf_ll_type(type, l->part).s,
          wf_ll_ref(body, body->out[o], l->part, prefix, param).s, o, wf_ll_bytes(type));
    }
}

/* What replaces the short body and the stores where a vector has a rare lane: a loop over parts of it, each by the short
 * body, and by the whole one if it is among its lanes. That is long, and would be as many times longer in all lanes. */
static void rare_loop(wf_text *t, const wf_ll_loop *l, wf_ll *param, wf_ll *fast_param)
{
    const int ndst = wf_kernel_ndst(l->k);
    P("rare:\n");
    part_operands(t, l, l->fast, "q", fast_param);
    part_operands(t, l, l->body, "r", param);
    P("  br label %%part\npart:\n  %%rj = phi i64 [ 0, %%rare ], [ %%rnext, %%parted ]\n");
    for (int i = 0; i < ndst + l->k->nsrc; i++) {
        const wf_kty type = wf_kernel_ptr_type(l->k, i);
        if (i < ndst)
            P("  %%ro%d = getelementptr %s, ptr %%D%d, i64 %%rj\n", i, wf_ll_type(type, 1).s, i);
        else if (!wf_ll_is_bcast(l->k, i - ndst))
            P("  %%rp%d = getelementptr %s, ptr %%D%d, i64 %%rj\n"
              "  %%rv%d = load %s, ptr %%rp%d, align %u\n",
              i, wf_ll_type(type, 1).s, i, i - ndst, wf_ll_type(type, l->part).s, i,
              wf_ll_bytes(type));
    }
    short_body(t, l, l->part, "q", fast_param);
    part_stores(t, l, l->fast, "q", fast_param);
    P("  br i1 %%qany, label %%long, label %%parted\nlong:\n");
    wf_ll_body_in(t, l->body, l->part, l->registers * (l->lanes / l->part), "r", param);
    part_stores(t, l, l->body, "r", param);
    P("  br label %%parted\nparted:\n  %%rnext = add i64 %%rj, %d\n"
      "  %%rmore = icmp slt i64 %%rnext, %d\n"
      "  br i1 %%rmore, label %%part, label %%next\n",
      l->part, l->lanes);
}

void wf_ll_map_loop(wf_text *t, const wf_ll_loop *l)
{
    wf_ll param[WF_KIR_MAX_PARAM], fast_param[WF_KIR_MAX_PARAM], y[WF_KIR_MAX_OUT];
    P("  %%some = icmp slt i64 %s, %s\n  br i1 %%some, label %%loop, label %%%s\n"
      "loop:\n  %%i = phi i64 [ %s, %%%s ], [ %%inext, %%next ]\n",
      l->begin, l->end, l->after, l->begin, l->from);
    if (!l->whole)
        P("  %%left = sub i64 %s, %%i\n  %%full = icmp sge i64 %%left, %d\n", l->end, l->lanes);
    loop_pointers(t, l);
    for (int s = 0; s < l->k->nsrc; s++)
        if (!wf_ll_is_bcast(l->k, s))
            P("  %%bv%d = load %s, ptr %%%c%d, align %u\n", s,
              wf_ll_type(wf_ll_src_type(l->k, s), l->lanes).s, l->whole ? 'D' : 'U',
              s + wf_kernel_ndst(l->k), wf_ll_bytes(wf_ll_src_type(l->k, s)));
    loop_params(l, l->body, l->once, param);
    if (l->fast) {
        loop_params(l, l->fast, l->fast_once, fast_param);
        short_body(t, l, l->lanes, "f", fast_param);
        P("  br i1 %%fany, label %%rare, label %%ordinary\nordinary:\n");
    } else {
        wf_ll_body_in(t, l->body, l->lanes, l->registers, "b", param);
    }
    for (uint32_t o = 0; o < l->body->nout; o++)
        y[o] = l->fast ? wf_ll_ref(l->fast, l->fast->out[o], l->lanes, "f", fast_param)
                       : wf_ll_ref(l->body, l->body->out[o], l->lanes, "b", param);
    loop_stores(t, l, y);
    if (l->fast)
        rare_loop(t, l, param, fast_param);
    P("next:\n  %%inext = add i64 %%i, %d\n"
      "  %%more = icmp slt i64 %%inext, %s\n  br i1 %%more, label %%loop, label %%%s\n",
      l->lanes, l->end, l->after);
}

/* What wf_tail is told of the operands. */
static void tail_shape(wf_text *t, const wf_kernel *k)
{
    const int ndst = wf_kernel_ndst(k), n = ndst + k->nsrc;
    P("@%s.shape = private unnamed_addr constant [%d x i8] [i8 %d, i8 %d", k->name, n + 2, n, ndst);
    for (int i = 0; i < n; i++)
        P(", i8 %u",
          i >= ndst && wf_ll_is_bcast(k, i - ndst) ? 0 : wf_ll_bytes(wf_kernel_ptr_type(k, i)));
    P("]\ndeclare void @wf_tail(ptr, ptr, ptr, ptr, ptr, i64, i64, i64)\n");
}

/* Entered from the blocks entry and next: what is left after %whole. */
static void map_tail(wf_text *t, const wf_kernel *k, int lanes)
{
    P("rest:\n  %%short = icmp slt i64 %%whole, %%end\n  br i1 %%short, label %%tail, label "
      "%%done\n"
      "tail:\n  call void @wf_tail(ptr @%s, ptr @%s.shape, ptr %%ptr, ptr %%size, ptr %%scalar, "
      "i64 %%whole, i64 %%end, i64 %d)\n  br label %%done\ndone:\n  ret void\n}\n",
      k->name, k->name, lanes);
}

static int map(wf_text *t, const wf_kernel *k, int lanes, int registers, int part, wf_why *why)
{
    wf_ll once[WF_KIR_MAX_PARAM], fast_once[WF_KIR_MAX_PARAM];
    wf_ll_split whole, fast;
    bool uniform[WF_KIR_MAX_PARAM];
    for (int p = 0; p < WF_KIR_MAX_PARAM; p++)
        uniform[p] = p >= k->nsrc || wf_ll_is_bcast(k, p);
    int status = wf_ll_split_body(&k->body, uniform, &whole, why);
    if (status != 0)
        return status;
    status = wf_ll_split_body(&k->fast, uniform, &fast, why);
    if (status == 0) {
        tail_shape(t, k);
        wf_ll_header(t, k);
        wf_ll_prologue(t, k, lanes, 1, true);
        wf_ll_once(t, &whole, lanes, "h", once);
        wf_ll_once(t, &fast, lanes, "g", fast_once);
        P("  %%sbit = and i64 %%flags, %u\n  %%streams = icmp ne i64 %%sbit, 0\n"
          "  %%count = sub i64 %%end, %%begin\n  %%cut = and i64 %%count, %d\n"
          "  %%whole = add i64 %%begin, %%cut\n",
          WF_LAUNCH_STREAM, -lanes);
        wf_ll_map_loop(t, &(wf_ll_loop){.k = k,
                                        .body = whole.body,
                                        .fast = k->fast.n ? fast.body : NULL,
                                        .once = once,
                                        .fast_once = fast_once,
                                        .lanes = lanes,
                                        .registers = registers,
                                        .part = part,
                                        .base = 'P',
                                        .stream = true,
                                        .whole = true,
                                        .from = "entry",
                                        .begin = "%begin",
                                        .end = "%whole",
                                        .after = "rest"});
        map_tail(t, k, lanes);
        wf_ll_split_free(&fast);
    }
    wf_ll_split_free(&whole);
    return status;
}

/* Lanes of two registers, whose steps hide one another's latency. */
static int part_of(const wf_kernel *k, const wf_target *target, int lanes)
{
    const unsigned few = few_registers(target->arch);
    const int held = (int)(2 * (few ? few : 512) / wf_kernel_bits(k));
    return held < lanes ? held : lanes;
}

/* Values of so many lanes that the CPU's vector registers hold. */
static int values_held(const wf_kernel *k, const wf_target *target, int lanes)
{
    const int few = (int)few_registers(target->arch), bits = (int)wf_kernel_bits(k);
    const int all = few ? 16 * few : 32 * 512, value = lanes * (bits > 8 ? bits : 8);
    return value < all ? all / value : 1;
}

int wf_llvm_render(const wf_kernel *k, const wf_target *target, wf_text *t, wf_why *why)
{
    const int lanes = wf_llvm_lanes(k, target);
    if (lanes < 1 || lanes > WF_LL_LANES || (lanes & (lanes - 1)))
        return wf_fail(why, WEFT_EINVALID, "vector width %d is not a power of two up to 64", lanes);
    int status = 0;
    wf_ll_tables(t, &k->body);
    switch (k->skeleton) {
    case WF_SK_MAP:
        status = map(t, k, lanes, values_held(k, target, lanes), part_of(k, target, lanes), why);
        break;
    case WF_SK_SUM_INNER:
        wf_ll_sum_inner(t, k, lanes);
        break;
    case WF_SK_SUM_OUTER:
        wf_ll_sum_outer(t, k, lanes);
        break;
    case WF_SK_PERMUTE:
        wf_ll_permute(t, k, lanes);
        break;
    case WF_SK_GATHER:
        wf_ll_gather(t, k, lanes);
        break;
    case WF_SK_SCATTER:
        wf_ll_scatter(t, k, lanes);
        break;
    case WF_SK_MATMUL:
        wf_ll_matmul(t, k, lanes);
        break;
    case WF_SK_ROW:
        status = wf_ll_rows(t, k, lanes, values_held(k, target, lanes), why);
        break;
    }
    wf_ll_constants(t);
    P("attributes #0 = { nounwind \"frame-pointer\"=\"all\" \"prefer-vector-width\"=\"512\" "
      "\"min-legal-vector-width\"=\"512\" }\n!0 = !{i32 1}\n");
    if (status != 0)
        return status;
    return t->failed ? wf_fail(why, WEFT_ENOMEM, "no memory for the text of %s", k->name) : 0;
}
