/*
 * jit/codegen_cpu/render_kernel.c -- LLVM text of whole kernels: the loops around a body.
 *
 * Every kernel is  void name(ptr %ptr, ptr %size, ptr %scalar, i64 %begin, i64 %end)  with the arrays of
 * wf_launch. One vector body serves the tail too: a short group is copied through zeroed buffers on the
 * stack, so tails cost no second copy of the code and read nothing outside the operands.
 *
 * Sums: `block` adds up to 4096 elements in 64 lanes, `tree` halves 64 lanes; the entry point drives
 * three levels of them, which is enough for 4096^3 elements.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "jit/codegen_cpu/render.h"

enum { LANES = 64 };
#define P(...) wf_text_putf(t, __VA_ARGS__)

int wf_llvm_lanes(const wf_kernel *k, const wf_target *target)
{
    return target->width ? target->width : wf_kernel_bits(k) > 32 ? 32 : 64;
}

static unsigned bytes(wf_kty type)
{
    return (wf_kty_bits(type) + 7) / 8;
}

static bool is_bcast(const wf_kernel *k, int s)
{
    return k->bcast >> s & 1;
}

static wf_kty src_type(const wf_kernel *k, int s)
{
    return (wf_kty)k->body.param_type[s];
}

/* %name := the scalar operand in every lane */
static void spread(wf_text *t, const char *name, wf_kty type, int lanes, const char *scalar)
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

/* Pointers %P0..., scalars and broadcast sources as %x<i> in all lanes; zeroed buffers %buf<i> of
 * `padded` elements for the others. */
static void prologue(wf_text *t, const wf_kernel *k, int lanes, int padded, bool with_dst)
{
    const int ndst = wf_kernel_ndst(k);
    for (int i = with_dst ? 0 : ndst; i < ndst + k->nsrc; i++) {
        P("  %%A%d = getelementptr ptr, ptr %%ptr, i64 %d\n", i, i);
        P("  %%P%d = load ptr, ptr %%A%d\n", i, i);
    }
    for (int i = with_dst ? 0 : ndst; i < ndst + k->nsrc; i++) {
        const wf_kty type = wf_kernel_ptr_type(k, i);
        if (i >= ndst && is_bcast(k, i - ndst)) {
            char name[16], one[16];
            snprintf(name, sizeof name, "x%d", i - ndst);
            snprintf(one, sizeof one, "%%s%d", i - ndst);
            P("  %s = load %s, ptr %%P%d\n", one, wf_ll_type(type, 1).s, i);
            spread(t, name, type, lanes, one);
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
        spread(t, name, type, lanes, one);
    }
}

/* The operands of a body: sources not broadcast are %<prefix>v<i>. */
static void operands(const wf_kernel *k, const char *prefix, wf_ll *param)
{
    for (int i = 0; i < k->nsrc + k->nscalar; i++)
        if (i >= k->nsrc || is_bcast(k, i))
            snprintf(param[i].s, sizeof param[i].s, "%%x%d", i);
        else
            snprintf(param[i].s, sizeof param[i].s, "%%%sv%d", prefix, i);
}

static void copy(wf_text *t, const char *to, const char *from, const char *count, wf_kty type,
                 const char *tag, int i)
{
    P("  %%%s%d = mul i64 %s, %u\n", tag, i, count, bytes(type));
    P("  call void @llvm.memcpy.p0.p0.i64(ptr %s, ptr %s, i64 %%%s%d, i1 false)\n", to, from, tag,
      i);
}

/* -- elementwise ------------------------------------------------------------------------------------ */
/* Body with a rare branch: %y<o> from the short body, or from the whole one if any lane asks. */
static void rare_body(wf_text *t, const wf_kernel *k, int lanes, const wf_ll *param)
{
    const wf_ll truth = wf_ll_type(WF_KT_BOOL, lanes);
    wf_ll_body(t, &k->fast, lanes, "f", param);
    const wf_ll rare = wf_ll_ref(&k->fast, k->fast.rare, lanes, "f", param);
    if (lanes == 1)
        P("  %%any = freeze i1 %s\n", rare.s);
    else
        P("  %%any = call i1 @llvm.vector.reduce.or.v%di1(%s %s)\n", lanes, truth.s, rare.s);
    P("  br i1 %%any, label %%rare, label %%ordinary\nrare:\n");
    wf_ll_body(t, &k->body, lanes, "r", param);
    P("  br label %%chosen\nordinary:\n  br label %%chosen\nchosen:\n");
    for (uint32_t o = 0; o < k->body.nout; o++) {
        const wf_kty type = wf_kernel_ptr_type(k, (int)o);
        P("  %%y%u = phi %s [ %s, %%rare ], [ %s, %%ordinary ]\n", o, wf_ll_type(type, lanes).s,
          wf_ll_ref(&k->body, k->body.out[o], lanes, "r", param).s,
          wf_ll_ref(&k->fast, k->fast.out[o], lanes, "f", param).s);
    }
}

static void header(wf_text *t, const wf_kernel *k)
{
    P("define void @%s(ptr %%ptr, ptr %%size, ptr %%scalar, i64 %%begin, i64 %%end) #0 {\nentry:\n",
      k->name);
}

static void map(wf_text *t, const wf_kernel *k, int lanes)
{
    const int ndst = wf_kernel_ndst(k), n = ndst + k->nsrc;
    wf_ll param[WF_KIR_MAX_PARAM];
    header(t, k);
    prologue(t, k, lanes, lanes, true);
    P("  %%some = icmp slt i64 %%begin, %%end\n  br i1 %%some, label %%loop, label %%done\n"
      "loop:\n  %%i = phi i64 [ %%begin, %%entry ], [ %%inext, %%next ]\n"
      "  %%left = sub i64 %%end, %%i\n  %%full = icmp sge i64 %%left, %d\n",
      lanes);
    for (int i = 0; i < n; i++)
        if (i < ndst || !is_bcast(k, i - ndst))
            P("  %%D%d = getelementptr %s, ptr %%P%d, i64 %%i\n", i,
              wf_ll_type(wf_kernel_ptr_type(k, i), 1).s, i);
    P("  br i1 %%full, label %%body, label %%pad\npad:\n");
    char a[24], b[24];
    for (int i = ndst; i < n && lanes > 1; i++)
        if (!is_bcast(k, i - ndst)) {
            snprintf(a, sizeof a, "%%buf%d", i);
            snprintf(b, sizeof b, "%%D%d", i);
            copy(t, a, b, "%left", src_type(k, i - ndst), "ml", i);
        }
    P("  br label %%body\nbody:\n");
    for (int i = 0; i < n; i++)
        if (i < ndst || !is_bcast(k, i - ndst))
            P("  %%U%d = phi ptr [ %%D%d, %%loop ], [ %%%s%d, %%pad ]\n", i, i,
              lanes > 1 ? "buf" : "D", i);
    for (int i = ndst; i < n; i++)
        if (!is_bcast(k, i - ndst))
            P("  %%bv%d = load %s, ptr %%U%d, align %u\n", i - ndst,
              wf_ll_type(src_type(k, i - ndst), lanes).s, i, bytes(src_type(k, i - ndst)));
    operands(k, "b", param);
    if (k->fast.n)
        rare_body(t, k, lanes, param);
    else
        wf_ll_body(t, &k->body, lanes, "b", param);
    for (int o = 0; o < ndst; o++) {
        const wf_kty type = wf_kernel_ptr_type(k, o);
        wf_ll y = wf_ll_ref(&k->body, k->body.out[o], lanes, "b", param);
        if (k->fast.n)
            snprintf(y.s, sizeof y.s, "%%y%d", o);
        P("  store %s %s, ptr %%U%d, align %u\n", wf_ll_type(type, lanes).s, y.s, o, bytes(type));
    }
    P("  br i1 %%full, label %%next, label %%back\nback:\n");
    for (int o = 0; o < ndst && lanes > 1; o++) {
        snprintf(a, sizeof a, "%%D%d", o);
        snprintf(b, sizeof b, "%%buf%d", o);
        copy(t, a, b, "%left", wf_kernel_ptr_type(k, o), "ms", o);
    }
    P("  br label %%next\nnext:\n  %%inext = add i64 %%i, %d\n"
      "  %%more = icmp slt i64 %%inext, %%end\n  br i1 %%more, label %%loop, label %%done\n"
      "done:\n  ret void\n}\n",
      lanes);
}

/* -- sums ----------------------------------------------------------------------------------------- */
/* Combines LANES / lanes vectors %<pre>0 ... lane by lane down to the scalar %<pre>sum. */
static void tree(wf_text *t, wf_kty type, int lanes, const char *pre, const char *in)
{
    char a[64], b[64], name[48];
    char from[24];
    snprintf(from, sizeof from, "%s", in);
    int step = 0;
    for (int n = LANES / lanes / 2; n >= 1; n /= 2, step++) {
        for (int i = 0; i < n; i++) {
            snprintf(a, sizeof a, "%%%s%d", from, i);
            snprintf(b, sizeof b, "%%%s%d", from, i + n);
            snprintf(name, sizeof name, "%s%c%d", pre, 'a' + step, i);
            wf_ll_add(t, type, lanes, name, a, b);
        }
        snprintf(from, sizeof from, "%s%c", pre, 'a' + step);
    }
    snprintf(a, sizeof a, "%%%s0", from);
    for (int w = lanes / 2; w >= 1; w /= 2) {
        const wf_ll T = wf_ll_type(type, w * 2);
        for (int half = 0; half < 2; half++) {
            P("  %%%s.h%d_%d = shufflevector %s %s, %s poison, <%d x i32> <", pre, w, half, T.s, a,
              T.s, w);
            for (int i = 0; i < w; i++)
                P("%si32 %d", i ? ", " : "", half * w + i);
            P(">\n");
        }
        char h[2][40];
        for (int half = 0; half < 2; half++)
            snprintf(h[half], sizeof h[half], "%%%s.h%d_%d", pre, w, half);
        snprintf(name, sizeof name, "%s.w%d", pre, w);
        if (w == 1) { /* <1 x T> to T */
            for (int half = 0; half < 2; half++) {
                P("  %%%s.e%d = extractelement <1 x %s> %s, i64 0\n", pre, half,
                  wf_ll_type(type, 1).s, h[half]);
                snprintf(h[half], sizeof h[half], "%%%s.e%d", pre, half);
            }
        }
        wf_ll_add(t, type, w, name, h[0], h[1]);
        snprintf(a, sizeof a, "%%%s", name);
    }
    P("  %%%ssum = freeze %s %s\n", pre, wf_ll_type(type, 1).s, a);
}

/* T tree(ptr of 64 lanes) */
static void tree_function(wf_text *t, const wf_kernel *k, wf_kty type, int lanes)
{
    P("define internal %s @%s.tree(ptr %%lane) #0 {\n", wf_ll_type(type, 1).s, k->name);
    for (int i = 0; i < LANES / lanes; i++) {
        P("  %%l%dp = getelementptr %s, ptr %%lane, i64 %d\n", i, wf_ll_type(type, 1).s, i * lanes);
        P("  %%l%d = load %s, ptr %%l%dp, align %u\n", i, wf_ll_type(type, lanes).s, i,
          bytes(type));
    }
    tree(t, type, lanes, "t", "l");
    P("  ret %s %%tsum\n}\n", wf_ll_type(type, 1).s);
}

/* Loads the j-th vector of the group at base pointers %<base><i>, runs the body; the value's name to v. */
static void group_element(wf_text *t, const wf_kernel *k, int lanes, int j, const char *base,
                          const char *tag, wf_ll *v)
{
    wf_ll param[WF_KIR_MAX_PARAM];
    const int ndst = wf_kernel_ndst(k);
    char prefix[24];
    snprintf(prefix, sizeof prefix, "%s%d_", tag, j);
    for (int s = 0; s < k->nsrc; s++)
        if (!is_bcast(k, s)) {
            const wf_kty type = src_type(k, s);
            P("  %%%sp%d = getelementptr %s, ptr %%%s%d, i64 %d\n", prefix, s,
              wf_ll_type(type, 1).s, base, s + ndst, j * lanes);
            P("  %%%sv%d = load %s, ptr %%%sp%d, align %u\n", prefix, s, wf_ll_type(type, lanes).s,
              prefix, s, bytes(type));
        }
    operands(k, prefix, param);
    wf_ll_body(t, &k->body, lanes, prefix, param);
    *v = wf_ll_ref(&k->body, k->body.out[0], lanes, prefix, param);
}

/* T block(ptr, scalar, at, count): elements [at, at + count), 0 < count <= 4096. */
static void block_function(wf_text *t, const wf_kernel *k, wf_kty type, int lanes)
{
    const int ndst = wf_kernel_ndst(k), na = LANES / lanes;
    const wf_ll T = wf_ll_type(type, lanes), S = wf_ll_type(type, 1),
                I = wf_ll_identity(type, lanes);
    wf_ll v;
    char name[24], a[24];
    P("define internal %s @%s.block(ptr %%ptr, ptr %%scalar, i64 %%at, i64 %%count) #0 {\nentry:\n",
      S.s, k->name);
    prologue(t, k, lanes, LANES, false);
    P("  %%whole = and i64 %%count, -64\n  br label %%head\nhead:\n"
      "  %%i = phi i64 [ 0, %%entry ], [ %%inext, %%group ]\n");
    for (int j = 0; j < na; j++)
        P("  %%acc%d = phi %s [ %s, %%entry ], [ %%sum%d, %%group ]\n", j, T.s, I.s, j);
    P("  %%go = icmp slt i64 %%i, %%whole\n  %%pos = add i64 %%at, %%i\n");
    for (int s = 0; s < k->nsrc; s++)
        if (!is_bcast(k, s))
            P("  %%D%d = getelementptr %s, ptr %%P%d, i64 %%pos\n", s + ndst,
              wf_ll_type(src_type(k, s), 1).s, s + ndst);
    P("  br i1 %%go, label %%group, label %%rest\ngroup:\n");
    for (int j = 0; j < na; j++) {
        group_element(t, k, lanes, j, "D", "g", &v);
        snprintf(name, sizeof name, "sum%d", j);
        snprintf(a, sizeof a, "%%acc%d", j);
        wf_ll_add(t, type, lanes, name, a, v.s);
    }
    P("  %%inext = add i64 %%i, 64\n  br label %%head\nrest:\n"
      "  %%left = sub i64 %%count, %%whole\n  %%some = icmp sgt i64 %%left, 0\n"
      "  br i1 %%some, label %%tail, label %%finish\ntail:\n");
    for (int s = 0; s < k->nsrc; s++)
        if (!is_bcast(k, s)) {
            char to[24], from[24];
            snprintf(to, sizeof to, "%%buf%d", s + ndst);
            snprintf(from, sizeof from, "%%D%d", s + ndst);
            copy(t, to, from, "%left", src_type(k, s), "ml", s);
        }
    spread(t, "leftv", WF_KT_I64, lanes, "%left");
    for (int j = 0; j < na; j++) {
        group_element(t, k, lanes, j, "buf", "t", &v);
        P("  %%in%d = icmp sgt %s %%leftv, ", j, wf_ll_type(WF_KT_I64, lanes).s);
        if (lanes > 1)
            P("<");
        for (int l = 0; l < lanes; l++)
            P("%s%s%d", l ? ", " : "", lanes > 1 ? "i64 " : "", j * lanes + l);
        P("%s\n  %%masked%d = select %s %%in%d, %s %s, %s %s\n", lanes > 1 ? ">" : "", j,
          wf_ll_type(WF_KT_BOOL, lanes).s, j, T.s, v.s, T.s, I.s);
        snprintf(name, sizeof name, "tailsum%d", j);
        snprintf(a, sizeof a, "%%acc%d", j);
        char m[24];
        snprintf(m, sizeof m, "%%masked%d", j);
        wf_ll_add(t, type, lanes, name, a, m);
    }
    P("  br label %%finish\nfinish:\n");
    for (int j = 0; j < na; j++)
        P("  %%f%d = phi %s [ %%acc%d, %%rest ], [ %%tailsum%d, %%tail ]\n", j, T.s, j, j);
    tree(t, type, lanes, "t", "f");
    P("  ret %s %%tsum\n}\n", S.s);
}

/* Stores post(%total) through %out. */
static void finish_store(wf_text *t, const wf_kernel *k, int lanes)
{
    const wf_ll total[1] = {{"%total"}};
    const wf_kty type = wf_kernel_ptr_type(k, 0);
    wf_ll_body(t, &k->post, lanes, "q", total);
    P("  store %s %s, ptr %%out, align %u\n", wf_ll_type(type, lanes).s,
      wf_ll_ref(&k->post, k->post.out[0], lanes, "q", total).s, bytes(type));
}

static void sum_inner(wf_text *t, const wf_kernel *k, int lanes)
{
    const wf_kty type = wf_kir_type(&k->body, k->body.out[0]);
    const wf_ll S = wf_ll_type(type, 1), V = wf_ll_type(type, LANES);
    const wf_ll I = wf_ll_identity(type, LANES);
    const char *s = S.s;
    tree_function(t, k, type, lanes);
    block_function(t, k, type, lanes);
    header(t, k);
    P("  %%out0 = load ptr, ptr %%ptr\n"
      "  %%lane2 = alloca [64 x %s], align 64\n  %%lane3 = alloca [64 x %s], align 64\n"
      "  %%np = getelementptr i64, ptr %%size, i64 1\n  %%n = load i64, ptr %%np\n"
      "  %%n1 = add i64 %%n, 4095\n  %%nb = lshr i64 %%n1, 12\n  %%last = sub i64 %%nb, 1\n"
      "  %%some = icmp slt i64 %%begin, %%end\n  br i1 %%some, label %%row, label %%done\n",
      s, s);
    P("row:\n  %%r = phi i64 [ %%begin, %%entry ], [ %%rnext, %%store ]\n"
      "  %%base = mul i64 %%r, %%n\n  %%out = getelementptr %s, ptr %%out0, i64 %%r\n"
      "  %%short = icmp ule i64 %%nb, 1\n  br i1 %%short, label %%single, label %%clear3\n"
      "single:\n  %%none = icmp eq i64 %%n, 0\n  br i1 %%none, label %%store, label %%one\n"
      "one:\n  %%only = call %s @%s.block(ptr %%ptr, ptr %%scalar, i64 %%base, i64 %%n)\n"
      "  br label %%store\n",
      wf_ll_type(wf_kernel_ptr_type(k, 0), 1).s, s, k->name);
    P("clear3:\n  store %s %s, ptr %%lane3, align 64\n  br label %%blocks\n"
      "blocks:\n  %%b = phi i64 [ 0, %%clear3 ], [ %%bnext, %%after ]\n"
      "  %%bin = and i64 %%b, 4095\n  %%first = icmp eq i64 %%bin, 0\n"
      "  br i1 %%first, label %%clear2, label %%add\nclear2:\n"
      "  store %s %s, ptr %%lane2, align 64\n  br label %%add\n"
      "add:\n  %%off = shl i64 %%b, 12\n  %%at = add i64 %%base, %%off\n"
      "  %%rem = sub i64 %%n, %%off\n  %%big = icmp sgt i64 %%rem, 4096\n"
      "  %%cnt = select i1 %%big, i64 4096, i64 %%rem\n"
      "  %%part = call %s @%s.block(ptr %%ptr, ptr %%scalar, i64 %%at, i64 %%cnt)\n"
      "  %%c = and i64 %%b, 63\n  %%lp = getelementptr %s, ptr %%lane2, i64 %%c\n"
      "  %%old = load %s, ptr %%lp\n",
      V.s, I.s, V.s, I.s, s, k->name, s, s);
    wf_ll_add(t, type, 1, "new", "%old", "%part");
    P("  store %s %%new, ptr %%lp\n  %%atlast = icmp eq i64 %%b, %%last\n"
      "  %%atend = icmp eq i64 %%bin, 4095\n  %%flush = or i1 %%atlast, %%atend\n"
      "  br i1 %%flush, label %%super, label %%after\n"
      "super:\n  %%p2 = call %s @%s.tree(ptr %%lane2)\n  %%sb = lshr i64 %%b, 12\n"
      "  %%sc = and i64 %%sb, 63\n  %%lp3 = getelementptr %s, ptr %%lane3, i64 %%sc\n"
      "  %%old3 = load %s, ptr %%lp3\n",
      s, s, k->name, s, s);
    wf_ll_add(t, type, 1, "new3", "%old3", "%p2");
    P("  store %s %%new3, ptr %%lp3\n  br i1 %%atlast, label %%top, label %%after\n"
      "after:\n  %%bnext = add i64 %%b, 1\n  br label %%blocks\n"
      "top:\n  %%p3 = call %s @%s.tree(ptr %%lane3)\n"
      "  %%two = icmp ule i64 %%nb, 4096\n  %%levels = select i1 %%two, %s %%p2, %s %%p3\n"
      "  br label %%store\nstore:\n"
      "  %%total = phi %s [ %s, %%single ], [ %%only, %%one ], [ %%levels, %%top ]\n",
      s, s, k->name, s, s, s, wf_ll_const(type, 1, 0).s);
    finish_store(t, k, 1);
    P("  %%rnext = add i64 %%r, 1\n  %%more = icmp slt i64 %%rnext, %%end\n"
      "  br i1 %%more, label %%row, label %%done\ndone:\n  ret void\n}\n");
}

/* fold(lanes): 64 rows of `lanes` columns to row 0; clear(lanes): rows to the identity. */
static void column_functions(wf_text *t, const wf_kernel *k, wf_kty type, int lanes)
{
    const wf_ll T = wf_ll_type(type, lanes), I = wf_ll_identity(type, lanes);
    P("define internal void @%s.fold(ptr %%lane) #0 {\nentry:\n  br label %%half\n"
      "half:\n  %%h = phi i64 [ 32, %%entry ], [ %%hnext, %%next ]\n  br label %%row\n"
      "row:\n  %%l = phi i64 [ 0, %%half ], [ %%lnext, %%row ]\n  %%m = add i64 %%l, %%h\n"
      "  %%p = getelementptr %s, ptr %%lane, i64 %%l\n  %%q = getelementptr %s, ptr %%lane, i64 "
      "%%m\n  %%a = load %s, ptr %%p, align %u\n  %%b = load %s, ptr %%q, align %u\n",
      k->name, T.s, T.s, T.s, bytes(type), T.s, bytes(type));
    wf_ll_add(t, type, lanes, "s", "%a", "%b");
    P("  store %s %%s, ptr %%p, align %u\n  %%lnext = add i64 %%l, 1\n"
      "  %%more = icmp slt i64 %%lnext, %%h\n  br i1 %%more, label %%row, label %%next\n"
      "next:\n  %%hnext = lshr i64 %%h, 1\n  %%again = icmp sgt i64 %%hnext, 0\n"
      "  br i1 %%again, label %%half, label %%done\ndone:\n  ret void\n}\n",
      T.s, bytes(type));
    P("define internal void @%s.clear(ptr %%lane) #0 {\nentry:\n  br label %%row\n"
      "row:\n  %%l = phi i64 [ 0, %%entry ], [ %%lnext, %%row ]\n"
      "  %%p = getelementptr %s, ptr %%lane, i64 %%l\n  store %s %s, ptr %%p, align %u\n"
      "  %%lnext = add i64 %%l, 1\n  %%more = icmp slt i64 %%lnext, 64\n"
      "  br i1 %%more, label %%row, label %%done\ndone:\n  ret void\n}\n",
      k->name, T.s, T.s, I.s, bytes(type));
    /* lane[c] += row 0 of part */
    P("define internal void @%s.push(ptr %%lane, i64 %%c, ptr %%part) #0 {\n"
      "  %%p = getelementptr %s, ptr %%lane, i64 %%c\n  %%a = load %s, ptr %%p, align %u\n"
      "  %%b = load %s, ptr %%part, align %u\n",
      k->name, T.s, T.s, bytes(type), T.s, bytes(type));
    wf_ll_add(t, type, lanes, "s", "%a", "%b");
    P("  store %s %%s, ptr %%p, align %u\n  ret void\n}\n", T.s, bytes(type));
}

static void sum_outer(wf_text *t, const wf_kernel *k, int lanes)
{
    const wf_kty type = wf_kir_type(&k->body, k->body.out[0]), dst = wf_kernel_ptr_type(k, 0);
    const wf_ll T = wf_ll_type(type, lanes);
    const char *name = k->name;
    wf_ll param[WF_KIR_MAX_PARAM];
    char a[24], b[24];
    column_functions(t, k, type, lanes);
    header(t, k);
    prologue(t, k, lanes, lanes, true);
    for (int i = 1; i <= 3; i++)
        P("  %%lane%d = alloca [64 x %s], align 64\n", i, T.s);
    P("  %%cols = load i64, ptr %%size\n  %%np = getelementptr i64, ptr %%size, i64 1\n"
      "  %%n = load i64, ptr %%np\n  %%n1 = add i64 %%n, 4095\n  %%nb = lshr i64 %%n1, 12\n"
      "  %%some = icmp slt i64 %%begin, %%end\n  br i1 %%some, label %%tile, label %%done\n"
      "tile:\n  %%col = phi i64 [ %%begin, %%entry ], [ %%colnext, %%next ]\n"
      "  %%left = sub i64 %%end, %%col\n  %%full = icmp sge i64 %%left, %d\n"
      "  %%out = getelementptr %s, ptr %%P0, i64 %%col\n"
      "  call void @%s.clear(ptr %%lane1)\n  call void @%s.clear(ptr %%lane2)\n"
      "  call void @%s.clear(ptr %%lane3)\n  %%none = icmp eq i64 %%n, 0\n"
      "  br i1 %%none, label %%store, label %%loop\n",
      lanes, wf_ll_type(dst, 1).s, name, name, name);
    P("loop:\n  %%i = phi i64 [ 0, %%tile ], [ %%inext, %%after ]\n  %%rowat = mul i64 %%i, "
      "%%cols\n"
      "  %%at = add i64 %%rowat, %%col\n");
    for (int s = 0; s < k->nsrc; s++)
        if (!is_bcast(k, s))
            P("  %%D%d = getelementptr %s, ptr %%P%d, i64 %%at\n", s + 1,
              wf_ll_type(src_type(k, s), 1).s, s + 1);
    P("  br i1 %%full, label %%body, label %%pad\npad:\n");
    for (int s = 0; s < k->nsrc && lanes > 1; s++)
        if (!is_bcast(k, s)) {
            snprintf(a, sizeof a, "%%buf%d", s + 1);
            snprintf(b, sizeof b, "%%D%d", s + 1);
            copy(t, a, b, "%left", src_type(k, s), "ml", s);
        }
    P("  br label %%body\nbody:\n");
    for (int s = 0; s < k->nsrc; s++)
        if (!is_bcast(k, s)) {
            P("  %%U%d = phi ptr [ %%D%d, %%loop ], [ %%%s%d, %%pad ]\n", s + 1, s + 1,
              lanes > 1 ? "buf" : "D", s + 1);
        }
    for (int s = 0; s < k->nsrc; s++)
        if (!is_bcast(k, s))
            P("  %%bv%d = load %s, ptr %%U%d, align %u\n", s, wf_ll_type(src_type(k, s), lanes).s,
              s + 1, bytes(src_type(k, s)));
    operands(k, "b", param);
    wf_ll_body(t, &k->body, lanes, "b", param);
    P("  %%l = and i64 %%i, 63\n  %%lp = getelementptr %s, ptr %%lane1, i64 %%l\n"
      "  %%old = load %s, ptr %%lp, align %u\n",
      T.s, T.s, bytes(type));
    wf_ll_add(t, type, lanes, "new", "%old",
              wf_ll_ref(&k->body, k->body.out[0], lanes, "b", param).s);
    P("  store %s %%new, ptr %%lp, align %u\n  %%inext = add i64 %%i, 1\n"
      "  %%low = and i64 %%inext, 4095\n  %%atend = icmp eq i64 %%low, 0\n"
      "  %%atlast = icmp eq i64 %%inext, %%n\n  %%flush = or i1 %%atend, %%atlast\n"
      "  br i1 %%flush, label %%block, label %%after\n"
      "block:\n  %%bi = lshr i64 %%i, 12\n  call void @%s.fold(ptr %%lane1)\n"
      "  %%single = icmp eq i64 %%nb, 1\n  br i1 %%single, label %%store, label %%level2\n"
      "level2:\n  %%c2 = and i64 %%bi, 63\n  call void @%s.push(ptr %%lane2, i64 %%c2, ptr "
      "%%lane1)\n"
      "  call void @%s.clear(ptr %%lane1)\n  %%bplus = add i64 %%bi, 1\n  %%blow = and i64 "
      "%%bplus, 4095\n"
      "  %%bend = icmp eq i64 %%blow, 0\n  %%bflush = or i1 %%bend, %%atlast\n"
      "  br i1 %%bflush, label %%super, label %%after\n",
      T.s, bytes(type), name, name, name);
    P("super:\n  call void @%s.fold(ptr %%lane2)\n  %%two = icmp ule i64 %%nb, 4096\n"
      "  br i1 %%two, label %%store, label %%level3\n"
      "level3:\n  %%si = lshr i64 %%bi, 12\n  %%c3 = and i64 %%si, 63\n"
      "  call void @%s.push(ptr %%lane3, i64 %%c3, ptr %%lane2)\n"
      "  call void @%s.clear(ptr %%lane2)\n  br i1 %%atlast, label %%top, label %%after\n"
      "top:\n  call void @%s.fold(ptr %%lane3)\n  br label %%store\n"
      "after:\n  br label %%loop\n"
      "store:\n  %%from = phi ptr [ null, %%tile ], [ %%lane1, %%block ], [ %%lane2, %%super ], "
      "[ %%lane3, %%top ]\n  br i1 %%none, label %%zero, label %%value\nvalue:\n"
      "  %%loaded = load %s, ptr %%from, align %u\n  br label %%zero\nzero:\n"
      "  %%total = phi %s [ %s, %%store ], [ %%loaded, %%value ]\n",
      name, name, name, name, T.s, bytes(type), T.s, wf_ll_const(type, lanes, 0).s);
    /* columns beyond the end go to the buffer */
    if (lanes > 1) {
        const wf_ll total[1] = {{"%total"}};
        wf_ll_body(t, &k->post, lanes, "q", total);
        P("  %%to = select i1 %%full, ptr %%out, ptr %%buf0\n  store %s %s, ptr %%to, align %u\n"
          "  br i1 %%full, label %%next, label %%back\nback:\n",
          wf_ll_type(dst, lanes).s, wf_ll_ref(&k->post, k->post.out[0], lanes, "q", total).s,
          bytes(dst));
        copy(t, "%out", "%buf0", "%left", dst, "ms", 0);
    } else {
        finish_store(t, k, 1);
    }
    P("  br label %%next\nnext:\n  %%colnext = add i64 %%col, %d\n"
      "  %%more = icmp slt i64 %%colnext, %%end\n  br i1 %%more, label %%tile, label %%done\n"
      "done:\n  ret void\n}\n",
      lanes);
}

int wf_llvm_render(const wf_kernel *k, const wf_target *target, wf_text *t, wf_why *why)
{
    const int lanes = wf_llvm_lanes(k, target);
    if (lanes < 1 || lanes > LANES || (lanes & (lanes - 1)))
        return wf_fail(why, WEFT_EINVALID, "vector width %d is not a power of two up to 64", lanes);
    wf_ll_tables(t, &k->body);
    switch (k->skeleton) {
    case WF_SK_MAP:
        map(t, k, lanes);
        break;
    case WF_SK_SUM_INNER:
        sum_inner(t, k, lanes);
        break;
    case WF_SK_SUM_OUTER:
        sum_outer(t, k, lanes);
        break;
    case WF_SK_PERMUTE:
    case WF_SK_GATHER:
    case WF_SK_SCATTER:
    case WF_SK_MATMUL:
        return wf_fail(why, WEFT_EUNSUPPORTED, "%s has no LLVM kernel", k->name);
    }
    P("attributes #0 = { nounwind \"frame-pointer\"=\"all\" \"prefer-vector-width\"=\"512\" "
      "\"min-legal-vector-width\"=\"512\" }\n");
    return t->failed ? wf_fail(why, WEFT_ENOMEM, "no memory for the text of %s", k->name) : 0;
}
