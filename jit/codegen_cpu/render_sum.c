/*
 * jit/codegen_cpu/render_sum.c -- LLVM text of sums and of matrix products.
 *
 * Inner: `block` adds up to 4096 elements in 64 lanes, `tree` halves 64 lanes; the entry point drives
 * three levels of them, which is enough for 4096^3 elements. Outer: the same three levels on 64 rows of
 * `lanes` columns. A product is an outer sum for each row of the result: the rows that are added are
 * those of b, each multiplied by one element of a.
 */
#include <stdio.h>
#include <string.h>

#include "jit/codegen_cpu/render.h"

enum { LANES = WF_LL_LANES };
#define P(...) wf_text_putf(t, __VA_ARGS__)

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
          wf_ll_bytes(type));
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
        if (!wf_ll_is_bcast(k, s)) {
            const wf_kty type = wf_ll_src_type(k, s);
            P("  %%%sp%d = getelementptr %s, ptr %%%s%d, i64 %d\n", prefix, s,
              wf_ll_type(type, 1).s, base, s + ndst, j * lanes);
            P("  %%%sv%d = load %s, ptr %%%sp%d, align %u\n", prefix, s, wf_ll_type(type, lanes).s,
              prefix, s, wf_ll_bytes(type));
        }
    wf_ll_operands(k, prefix, param);
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
    wf_ll_prologue(t, k, lanes, LANES, false);
    P("  %%whole = and i64 %%count, -64\n  br label %%head\nhead:\n"
      "  %%i = phi i64 [ 0, %%entry ], [ %%inext, %%group ]\n");
    for (int j = 0; j < na; j++)
        P("  %%acc%d = phi %s [ %s, %%entry ], [ %%sum%d, %%group ]\n", j, T.s, I.s, j);
    P("  %%go = icmp slt i64 %%i, %%whole\n  %%pos = add i64 %%at, %%i\n");
    for (int s = 0; s < k->nsrc; s++)
        if (!wf_ll_is_bcast(k, s))
            P("  %%D%d = getelementptr %s, ptr %%P%d, i64 %%pos\n", s + ndst,
              wf_ll_type(wf_ll_src_type(k, s), 1).s, s + ndst);
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
        if (!wf_ll_is_bcast(k, s)) {
            char to[24], from[24];
            snprintf(to, sizeof to, "%%buf%d", s + ndst);
            snprintf(from, sizeof from, "%%D%d", s + ndst);
            wf_ll_copy(t, to, from, "%left", wf_ll_src_type(k, s), "ml", s);
        }
    wf_ll_spread(t, "leftv", WF_KT_I64, lanes, "%left");
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
      wf_ll_ref(&k->post, k->post.out[0], lanes, "q", total).s, wf_ll_bytes(type));
}

void wf_ll_sum_inner(wf_text *t, const wf_kernel *k, int lanes)
{
    const wf_kty type = wf_kir_type(&k->body, k->body.out[0]);
    const wf_ll S = wf_ll_type(type, 1), V = wf_ll_type(type, LANES);
    const wf_ll I = wf_ll_identity(type, LANES);
    const char *s = S.s;
    tree_function(t, k, type, lanes);
    block_function(t, k, type, lanes);
    wf_ll_header(t, k);
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
      k->name, T.s, T.s, T.s, wf_ll_bytes(type), T.s, wf_ll_bytes(type));
    wf_ll_add(t, type, lanes, "s", "%a", "%b");
    P("  store %s %%s, ptr %%p, align %u\n  %%lnext = add i64 %%l, 1\n"
      "  %%more = icmp slt i64 %%lnext, %%h\n  br i1 %%more, label %%row, label %%next\n"
      "next:\n  %%hnext = lshr i64 %%h, 1\n  %%again = icmp sgt i64 %%hnext, 0\n"
      "  br i1 %%again, label %%half, label %%done\ndone:\n  ret void\n}\n",
      T.s, wf_ll_bytes(type));
    P("define internal void @%s.clear(ptr %%lane) #0 {\nentry:\n  br label %%row\n"
      "row:\n  %%l = phi i64 [ 0, %%entry ], [ %%lnext, %%row ]\n"
      "  %%p = getelementptr %s, ptr %%lane, i64 %%l\n  store %s %s, ptr %%p, align %u\n"
      "  %%lnext = add i64 %%l, 1\n  %%more = icmp slt i64 %%lnext, 64\n"
      "  br i1 %%more, label %%row, label %%done\ndone:\n  ret void\n}\n",
      k->name, T.s, T.s, I.s, wf_ll_bytes(type));
    /* lane[c] += row 0 of part */
    P("define internal void @%s.push(ptr %%lane, i64 %%c, ptr %%part) #0 {\n"
      "  %%p = getelementptr %s, ptr %%lane, i64 %%c\n  %%a = load %s, ptr %%p, align %u\n"
      "  %%b = load %s, ptr %%part, align %u\n",
      k->name, T.s, T.s, wf_ll_bytes(type), T.s, wf_ll_bytes(type));
    wf_ll_add(t, type, lanes, "s", "%a", "%b");
    P("  store %s %%s, ptr %%p, align %u\n  ret void\n}\n", T.s, wf_ll_bytes(type));
}

/* Sizes and the loop over tiles of columns. Sources from `first` on are rows of columns. */
static void columns_entry(wf_text *t, const wf_kernel *k, wf_kty type, int lanes, bool product)
{
    const char *name = k->name;
    const wf_ll T = wf_ll_type(wf_kernel_ptr_type(k, 0), 1);
    if (product)
        P("define internal void @%s.row(ptr %%ptr, ptr %%size, ptr %%scalar, i64 %%r, i64 %%begin, "
          "i64 %%end) #0 {\nentry:\n",
          name);
    else
        wf_ll_header(t, k);
    wf_ll_prologue(t, k, lanes, lanes, true);
    for (int i = 1; i <= 3; i++)
        P("  %%lane%d = alloca [64 x %s], align 64\n", i, wf_ll_type(type, lanes).s);
    P("  %%cp = getelementptr i64, ptr %%size, i64 %d\n  %%cols = load i64, ptr %%cp\n"
      "  %%np = getelementptr i64, ptr %%size, i64 %d\n  %%n = load i64, ptr %%np\n"
      "  %%n1 = add i64 %%n, 4095\n  %%nb = lshr i64 %%n1, 12\n",
      product, product + 1);
    if (product)
        P("  %%before = mul i64 %%r, %%cols\n  %%rowa = mul i64 %%r, %%n\n");
    P("  %%some = icmp slt i64 %%begin, %%end\n  br i1 %%some, label %%tile, label %%done\n"
      "tile:\n  %%col = phi i64 [ %%begin, %%entry ], [ %%colnext, %%next ]\n"
      "  %%left = sub i64 %%end, %%col\n  %%full = icmp sge i64 %%left, %d\n"
      "  %%outat = add i64 %%col, %s\n  %%out = getelementptr %s, ptr %%P0, i64 %%outat\n"
      "  call void @%s.clear(ptr %%lane1)\n  call void @%s.clear(ptr %%lane2)\n"
      "  call void @%s.clear(ptr %%lane3)\n  %%none = icmp eq i64 %%n, 0\n"
      "  br i1 %%none, label %%store, label %%loop\n",
      lanes, product ? "%before" : "0", T.s, name, name, name);
}

/* %bvN: what row %i has of each source in the tile's columns, read where it lies or, of the last tile, in a buffer. */
static void columns_load(wf_text *t, const wf_kernel *k, int lanes, bool product)
{
    const int first = product;
    char a[24], b[24];
    for (int s = first; s < k->nsrc; s++)
        if (!wf_ll_is_bcast(k, s))
            P("  %%D%d = getelementptr %s, ptr %%P%d, i64 %%at\n", s + 1,
              wf_ll_type(wf_ll_src_type(k, s), 1).s, s + 1);
    P("  br i1 %%full, label %%body, label %%pad\npad:\n");
    for (int s = first; s < k->nsrc && lanes > 1; s++)
        if (!wf_ll_is_bcast(k, s)) {
            snprintf(a, sizeof a, "%%buf%d", s + 1);
            snprintf(b, sizeof b, "%%D%d", s + 1);
            wf_ll_copy(t, a, b, "%left", wf_ll_src_type(k, s), "ml", s);
        }
    P("  br label %%body\nbody:\n");
    for (int s = first; s < k->nsrc; s++)
        if (!wf_ll_is_bcast(k, s)) {
            P("  %%U%d = phi ptr [ %%D%d, %%loop ], [ %%%s%d, %%pad ]\n", s + 1, s + 1,
              lanes > 1 ? "buf" : "D", s + 1);
        }
    for (int s = first; s < k->nsrc; s++)
        if (!wf_ll_is_bcast(k, s))
            P("  %%bv%d = load %s, ptr %%U%d, align %u\n", s,
              wf_ll_type(wf_ll_src_type(k, s), lanes).s, s + 1, wf_ll_bytes(wf_ll_src_type(k, s)));
    if (product) {
        const wf_kty a0 = wf_ll_src_type(k, 0);
        P("  %%ai = add i64 %%rowa, %%i\n  %%ap = getelementptr %s, ptr %%P1, i64 %%ai\n"
          "  %%a0 = load %s, ptr %%ap\n",
          wf_ll_type(a0, 1).s, wf_ll_type(a0, 1).s);
        wf_ll_spread(t, "bv0", a0, lanes, "%a0");
    }
}

/* Row %i is in lane i mod 64 of level 1. Behind each block of 4096 rows that level is folded into a lane of level 2, and so is
 * level 2 into level 3 behind 4096 blocks. %total is row 0 of the last level that is folded, 0 without rows. */
static void columns_fold(wf_text *t, wf_kty type, int lanes, const char *name)
{
    const wf_ll T = wf_ll_type(type, lanes);
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
      T.s, wf_ll_bytes(type), name, name, name);
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
      name, name, name, name, T.s, wf_ll_bytes(type), T.s, wf_ll_const(type, lanes, 0).s);
}

/* What follows the sum, and its store; columns beyond the end go to the buffer. */
static void columns_store(wf_text *t, const wf_kernel *k, int lanes)
{
    const wf_kty dst = wf_kernel_ptr_type(k, 0);
    if (lanes > 1) {
        const wf_ll total[1] = {{"%total"}};
        wf_ll_body(t, &k->post, lanes, "q", total);
        P("  %%to = select i1 %%full, ptr %%out, ptr %%buf0\n  store %s %s, ptr %%to, align %u\n"
          "  br i1 %%full, label %%next, label %%back\nback:\n",
          wf_ll_type(dst, lanes).s, wf_ll_ref(&k->post, k->post.out[0], lanes, "q", total).s,
          wf_ll_bytes(dst));
        wf_ll_copy(t, "%out", "%buf0", "%left", dst, "ms", 0);
    } else {
        finish_store(t, k, 1);
    }
}

/* A function that makes columns [begin, end) of the result (of a product: of its row r), `lanes` of them at a time. */
static void columns(wf_text *t, const wf_kernel *k, int lanes, bool product)
{
    const wf_kty type = wf_kir_type(&k->body, k->body.out[0]);
    const wf_ll T = wf_ll_type(type, lanes);
    wf_ll param[WF_KIR_MAX_PARAM];
    column_functions(t, k, type, lanes);
    columns_entry(t, k, type, lanes, product);
    P("loop:\n  %%i = phi i64 [ 0, %%tile ], [ %%inext, %%after ]\n  %%rowat = mul i64 %%i, "
      "%%cols\n"
      "  %%at = add i64 %%rowat, %%col\n");
    columns_load(t, k, lanes, product);
    wf_ll_operands(k, "b", param);
    wf_ll_body(t, &k->body, lanes, "b", param);
    P("  %%l = and i64 %%i, 63\n  %%lp = getelementptr %s, ptr %%lane1, i64 %%l\n"
      "  %%old = load %s, ptr %%lp, align %u\n",
      T.s, T.s, wf_ll_bytes(type));
    wf_ll_add(t, type, lanes, "new", "%old",
              wf_ll_ref(&k->body, k->body.out[0], lanes, "b", param).s);
    columns_fold(t, type, lanes, k->name);
    columns_store(t, k, lanes);
    P("  br label %%next\nnext:\n  %%colnext = add i64 %%col, %d\n"
      "  %%more = icmp slt i64 %%colnext, %%end\n  br i1 %%more, label %%tile, label %%done\n"
      "done:\n  ret void\n}\n",
      lanes);
}

void wf_ll_sum_outer(wf_text *t, const wf_kernel *k, int lanes)
{
    columns(t, k, lanes, false);
}

void wf_ll_matmul(wf_text *t, const wf_kernel *k, int lanes)
{
    columns(t, k, lanes, true);
    wf_ll_header(t, k);
    P("  %%cp = getelementptr i64, ptr %%size, i64 1\n  %%cols = load i64, ptr %%cp\n"
      "  %%some = icmp slt i64 %%begin, %%end\n  br i1 %%some, label %%row, label %%done\n"
      "row:\n  %%r = phi i64 [ %%begin, %%entry ], [ %%rnext, %%row ]\n"
      "  call void @%s.row(ptr %%ptr, ptr %%size, ptr %%scalar, i64 %%r, i64 0, i64 %%cols)\n"
      "  %%rnext = add i64 %%r, 1\n  %%more = icmp slt i64 %%rnext, %%end\n"
      "  br i1 %%more, label %%row, label %%done\ndone:\n  ret void\n}\n",
      k->name);
}
