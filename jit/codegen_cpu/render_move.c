/*
 * jit/codegen_cpu/render_move.c -- LLVM text of the skeletons that follow strides and indices.
 *
 * PERMUTE gathers a vector's elements one by one unless they are neighbours; GATHER runs the loop of MAP
 * on each row it copies; SCATTER finds the rows of an index in order for each tile of columns. [begin,
 * end) counts elements of the result (PERMUTE), its rows (GATHER, SCATTER).
 */
#include <stdio.h>
#include <string.h>

#include "jit/codegen_cpu/render.h"

#define P(...) wf_text_putf(t, __VA_ARGS__)

/* %<name> := size argument i */
static void size(wf_text *t, const char *name, int i)
{
    P("  %%%s.p = getelementptr i64, ptr %%size, i64 %d\n  %%%s = load i64, ptr %%%s.p\n", name, i,
      name, name);
}

/* Body on the vector at %U1, its result through %U0; both may be a buffer. */
static void body_between(wf_text *t, const wf_kernel *k, int lanes)
{
    const wf_kty from = wf_ll_src_type(k, 0), to = wf_kernel_ptr_type(k, 0);
    wf_ll param[WF_KIR_MAX_PARAM];
    P("  %%bv0 = load %s, ptr %%U1, align %u\n", wf_ll_type(from, lanes).s, wf_ll_bytes(from));
    wf_ll_operands(k, "b", param);
    wf_ll_body(t, &k->body, lanes, "b", param);
    P("  store %s %s, ptr %%U0, align %u\n", wf_ll_type(to, lanes).s,
      wf_ll_ref(&k->body, k->body.out[0], lanes, "b", param).s, wf_ll_bytes(to));
}

/* Coordinates %c0..%c3 and offset %off of element %i. */
static void coordinates(wf_text *t)
{
    P("  %%q3 = sdiv i64 %%i, %%d3\n  %%q2 = sdiv i64 %%q3, %%d2\n  %%c0 = sdiv i64 %%q2, %%d1\n"
      "  %%c3 = srem i64 %%i, %%d3\n  %%c2 = srem i64 %%q3, %%d2\n  %%c1 = srem i64 %%q2, %%d1\n"
      "  %%t0 = mul i64 %%c0, %%s0\n  %%t1 = mul i64 %%c1, %%s1\n  %%t2 = mul i64 %%c2, %%s2\n"
      "  %%t3 = mul i64 %%c3, %%s3\n  %%t01 = add i64 %%t0, %%t1\n  %%t23 = add i64 %%t2, %%t3\n"
      "  %%off = add i64 %%t01, %%t23\n");
}

/* Elements %i ... %i + %count of the source to %buf1: an odometer of the three inner dimensions. */
static void fill(wf_text *t, wf_kty type)
{
    const wf_ll S = wf_ll_type(type, 1);
    P("fill:\n  br label %%each\neach:\n  %%e = phi i64 [ 0, %%fill ], [ %%e1, %%each ]\n"
      "  %%o = phi i64 [ %%off, %%fill ], [ %%o1, %%each ]\n"
      "  %%x1 = phi i64 [ %%c1, %%fill ], [ %%y1, %%each ]\n"
      "  %%x2 = phi i64 [ %%c2, %%fill ], [ %%y2, %%each ]\n"
      "  %%x3 = phi i64 [ %%c3, %%fill ], [ %%y3, %%each ]\n"
      "  %%ep = getelementptr %s, ptr %%P1, i64 %%o\n  %%ev = load %s, ptr %%ep\n"
      "  %%eq = getelementptr %s, ptr %%buf1, i64 %%e\n  store %s %%ev, ptr %%eq\n"
      "  %%e1 = add i64 %%e, 1\n",
      S.s, S.s, S.s, S.s);
    /* one step along dimension 3, and a carry into 2, 1 and 0 where a dimension ends */
    P("  %%n3 = add i64 %%x3, 1\n  %%w3 = icmp eq i64 %%n3, %%d3\n"
      "  %%y3 = select i1 %%w3, i64 0, i64 %%n3\n  %%z2 = zext i1 %%w3 to i64\n"
      "  %%n2 = add i64 %%x2, %%z2\n  %%w2 = icmp eq i64 %%n2, %%d2\n"
      "  %%y2 = select i1 %%w2, i64 0, i64 %%n2\n  %%z1 = zext i1 %%w2 to i64\n"
      "  %%n1 = add i64 %%x1, %%z1\n  %%w1 = icmp eq i64 %%n1, %%d1\n"
      "  %%y1 = select i1 %%w1, i64 0, i64 %%n1\n"
      "  %%g3 = select i1 %%w3, i64 %%back3, i64 0\n  %%g2 = select i1 %%w2, i64 %%back2, i64 0\n"
      "  %%g1 = select i1 %%w1, i64 %%back1, i64 0\n  %%h0 = add i64 %%o, %%s3\n"
      "  %%h1 = add i64 %%h0, %%g3\n  %%h2 = add i64 %%h1, %%g2\n  %%o1 = add i64 %%h2, %%g1\n"
      "  %%emore = icmp slt i64 %%e1, %%count\n  br i1 %%emore, label %%each, label %%body\n");
}

void wf_ll_permute(wf_text *t, const wf_kernel *k, int lanes)
{
    const wf_kty from = wf_ll_src_type(k, 0), to = wf_kernel_ptr_type(k, 0);
    const char name[8][3] = {"d0", "d1", "d2", "d3", "s0", "s1", "s2", "s3"};
    wf_ll_header(t, k);
    wf_ll_prologue(t, k, lanes, lanes > 1 ? lanes : 2, true); /* a buffer even for one lane */
    for (int i = 0; i < 8; i++)
        size(t, name[i], i);
    for (int d = 1; d < 4; d++) /* what the end of dimension d adds to the offset */
        P("  %%m%d = mul i64 %%d%d, %%s%d\n  %%back%d = sub i64 %%s%d, %%m%d\n", d, d, d, d, d - 1,
          d);
    P("  %%unit = icmp eq i64 %%s3, 1\n  %%some = icmp slt i64 %%begin, %%end\n"
      "  br i1 %%some, label %%loop, label %%done\n"
      "loop:\n  %%i = phi i64 [ %%begin, %%entry ], [ %%inext, %%next ]\n"
      "  %%left = sub i64 %%end, %%i\n  %%full = icmp sge i64 %%left, %d\n"
      "  %%count = select i1 %%full, i64 %d, i64 %%left\n",
      lanes, lanes);
    coordinates(t);
    P("  %%last = add i64 %%c3, %d\n  %%inrow = icmp sle i64 %%last, %%d3\n"
      "  %%r1 = and i1 %%inrow, %%unit\n  %%run = and i1 %%r1, %%full\n"
      "  %%D0 = getelementptr %s, ptr %%P0, i64 %%i\n  %%D1 = getelementptr %s, ptr %%P1, i64 "
      "%%off\n  br i1 %%run, label %%body, label %%fill\n",
      lanes, wf_ll_type(to, 1).s, wf_ll_type(from, 1).s);
    fill(t, from);
    P("body:\n  %%U1 = phi ptr [ %%D1, %%loop ], [ %%buf1, %%each ]\n"
      "  %%U0 = select i1 %%full, ptr %%D0, ptr %%buf0\n");
    body_between(t, k, lanes);
    P("  br i1 %%full, label %%next, label %%back\nback:\n");
    wf_ll_copy(t, "%D0", "%buf0", "%left", to, "ms", 0);
    P("  br label %%next\nnext:\n  %%inext = add i64 %%i, %d\n"
      "  %%more = icmp slt i64 %%inext, %%end\n  br i1 %%more, label %%loop, label %%done\n"
      "done:\n  ret void\n}\n",
      lanes);
}

void wf_ll_gather(wf_text *t, const wf_kernel *k, int lanes)
{
    const wf_ll to = wf_ll_type(wf_kernel_ptr_type(k, 0), 1);
    const wf_ll from = wf_ll_type(wf_ll_src_type(k, 0), 1);
    wf_ll_header(t, k);
    wf_ll_prologue(t, k, lanes, lanes, true);
    P("  %%ia = getelementptr ptr, ptr %%ptr, i64 2\n  %%index = load ptr, ptr %%ia\n"
      "  %%ea = getelementptr ptr, ptr %%ptr, i64 3\n  %%error = load ptr, ptr %%ea\n");
    size(t, "width", 1);
    size(t, "rows", 2);
    P("  %%any = icmp slt i64 %%begin, %%end\n  br i1 %%any, label %%row, label %%done\n"
      "row:\n  %%r = phi i64 [ %%begin, %%entry ], [ %%rnext, %%after ]\n"
      "  %%ip = getelementptr i64, ptr %%index, i64 %%r\n  %%at = load i64, ptr %%ip\n"
      "  %%inside = icmp ult i64 %%at, %%rows\n  br i1 %%inside, label %%good, label %%bad\n"
      /* the word starts at -1, the greatest: what remains is the least row */
      "bad:\n  %%was = atomicrmw umin ptr %%error, i64 %%r monotonic\n  br label %%after\n"
      "good:\n  %%so = mul i64 %%at, %%width\n  %%do = mul i64 %%r, %%width\n"
      "  %%S0 = getelementptr %s, ptr %%P0, i64 %%do\n"
      "  %%S1 = getelementptr %s, ptr %%P1, i64 %%so\n",
      to.s, from.s);
    wf_ll_map_loop(t, &(wf_ll_loop){.k = k,
                                    .body = &k->body,
                                    .lanes = lanes,
                                    .base = 'S',
                                    .from = "good",
                                    .begin = "0",
                                    .end = "%width",
                                    .after = "after"});
    P("after:\n  %%rnext = add i64 %%r, 1\n  %%again = icmp slt i64 %%rnext, %%end\n"
      "  br i1 %%again, label %%row, label %%done\ndone:\n  ret void\n}\n");
}

void wf_ll_scatter(wf_text *t, const wf_kernel *k, int lanes)
{
    const wf_kty from = wf_ll_src_type(k, 0), to = wf_kernel_ptr_type(k, 0);
    const wf_kty type = wf_kir_type(&k->body, k->body.out[0]);
    const wf_ll T = wf_ll_type(type, lanes), total[1] = {{"%total"}};
    wf_ll param[WF_KIR_MAX_PARAM];
    wf_ll_header(t, k);
    wf_ll_prologue(t, k, lanes, lanes, true);
    P("  %%ia = getelementptr ptr, ptr %%ptr, i64 2\n  %%index = load ptr, ptr %%ia\n");
    size(t, "width", 1);
    size(t, "m", 2);
    P("  %%a0 = icmp slt i64 %%begin, %%end\n  %%a1 = icmp sgt i64 %%width, 0\n"
      "  %%any = and i1 %%a0, %%a1\n  br i1 %%any, label %%row, label %%done\n"
      "row:\n  %%r = phi i64 [ %%begin, %%entry ], [ %%rnext, %%rowend ]\n"
      "  %%do = mul i64 %%r, %%width\n  %%S0 = getelementptr %s, ptr %%P0, i64 %%do\n"
      "  br label %%tile\ntile:\n  %%j = phi i64 [ 0, %%row ], [ %%jnext, %%next ]\n"
      "  %%left = sub i64 %%width, %%j\n  %%full = icmp sge i64 %%left, %d\n"
      "  %%D0 = getelementptr %s, ptr %%S0, i64 %%j\n  br label %%scan\n",
      wf_ll_type(to, 1).s, lanes, wf_ll_type(to, 1).s);
    P("scan:\n  %%i = phi i64 [ 0, %%tile ], [ %%i1, %%nomatch ], [ %%i2, %%body ]\n"
      "  %%total = phi %s [ %s, %%tile ], [ %%total, %%nomatch ], [ %%sum, %%body ]\n"
      "  %%more = icmp slt i64 %%i, %%m\n  br i1 %%more, label %%look, label %%store\n"
      "look:\n  %%ip = getelementptr i64, ptr %%index, i64 %%i\n  %%at = load i64, ptr %%ip\n"
      "  %%mine = icmp eq i64 %%at, %%r\n  br i1 %%mine, label %%match, label %%nomatch\n"
      "nomatch:\n  %%i1 = add i64 %%i, 1\n  br label %%scan\n"
      "match:\n  %%so = mul i64 %%i, %%width\n  %%sj = add i64 %%so, %%j\n"
      "  %%D1 = getelementptr %s, ptr %%P1, i64 %%sj\n"
      "  br i1 %%full, label %%body, label %%pad\npad:\n",
      T.s, wf_ll_const(type, lanes, 0).s, wf_ll_type(from, 1).s);
    if (lanes > 1)
        wf_ll_copy(t, "%buf1", "%D1", "%left", from, "ml", 1);
    P("  br label %%body\nbody:\n  %%U1 = phi ptr [ %%D1, %%match ], [ %%%s1, %%pad ]\n"
      "  %%bv0 = load %s, ptr %%U1, align %u\n",
      lanes > 1 ? "buf" : "D", wf_ll_type(from, lanes).s, wf_ll_bytes(from));
    wf_ll_operands(k, "b", param);
    wf_ll_body(t, &k->body, lanes, "b", param);
    wf_ll_add(t, type, lanes, "sum", "%total",
              wf_ll_ref(&k->body, k->body.out[0], lanes, "b", param).s);
    P("  %%i2 = add i64 %%i, 1\n  br label %%scan\nstore:\n");
    wf_ll_body(t, &k->post, lanes, "q", total);
    P("  %%to = select i1 %%full, ptr %%D0, ptr %%%s0\n  store %s %s, ptr %%to, align %u\n"
      "  br i1 %%full, label %%next, label %%back\nback:\n",
      lanes > 1 ? "buf" : "D", wf_ll_type(to, lanes).s,
      wf_ll_ref(&k->post, k->post.out[0], lanes, "q", total).s, wf_ll_bytes(to));
    if (lanes > 1)
        wf_ll_copy(t, "%D0", "%buf0", "%left", to, "ms", 0);
    P("  br label %%next\nnext:\n  %%jnext = add i64 %%j, %d\n"
      "  %%jmore = icmp slt i64 %%jnext, %%width\n  br i1 %%jmore, label %%tile, label %%rowend\n"
      "rowend:\n  %%rnext = add i64 %%r, 1\n  %%rmore = icmp slt i64 %%rnext, %%end\n"
      "  br i1 %%rmore, label %%row, label %%done\ndone:\n  ret void\n}\n",
      lanes);
}
