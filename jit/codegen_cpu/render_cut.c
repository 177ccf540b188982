/*
 * jit/codegen_cpu/render_cut.c -- LLVM text of kernels over rows at their cut (WF_LAUNCH_PARTS, WF_LAUNCH_TOTALS).
 *
 * A launch with totals goes around the stage of elements, one of parts from behind it to the end of the row. Any other
 * goes straight on.
 */
#include <stdio.h>

#include "jit/codegen_cpu/render_total.h"

#define P(...) wf_text_putf(t, __VA_ARGS__)

void wf_ll_before_cut(wf_text *t)
{
    P("  %%cutbit = and i64 %%flags, %u\n  %%hastotals = icmp ne i64 %%cutbit, 0\n"
      "  br i1 %%hastotals, label %%cutin, label %%cutwork\ncutwork:\n",
      WF_LAUNCH_TOTALS);
}

/* %cut<tag>p<x> := where the row's total x lies. */
static void total_places(wf_text *t, const wf_kernel *k, char tag)
{
    const wf_rows_kernel *r = k->rows;
    const int n = r->ndst + k->nsrc;
    P("  %%cut%ca = getelementptr ptr, ptr %%ptr, i64 %d\n  %%cut%cat = load ptr, ptr %%cut%ca\n"
      "  %%cut%cs = getelementptr i64, ptr %%size, i64 %d\n"
      "  %%cut%cpitch = load i64, ptr %%cut%cs\n",
      tag, n + r->nkeep + 1, tag, tag, tag, n + 1, tag, tag);
    for (int x = 0; x < r->ntotal; x++) {
        const wf_kty type = (wf_kty)r->total_type[x];
        P("  %%cut%cb%d = mul i64 %%cut%cpitch, %d\n"
          "  %%cut%cq%d = getelementptr i8, ptr %%cut%cat, i64 %%cut%cb%d\n"
          "  %%cut%cp%d = getelementptr %s, ptr %%cut%cq%d, i64 %%r\n",
          tag, x, tag, x, tag, x, tag, tag, x, tag, x,
          wf_ll_type(type == WF_KT_BOOL ? WF_KT_U8 : type, 1).s, tag, x);
    }
}

static void store_total(wf_text *t, wf_kty type, int x, const char *from)
{
    if (type == WF_KT_BOOL)
        P("  %%cutz%d = zext i1 %s to i8\n  store i8 %%cutz%d, ptr %%cutop%d\n", x, from, x, x);
    else
        P("  store %s %s, ptr %%cutop%d\n", wf_ll_type(type, 1).s, from, x);
}

/* %cutv<x> */
static void load_total(wf_text *t, wf_kty type, int x)
{
    if (type == WF_KT_BOOL)
        P("  %%cutl%d = load i8, ptr %%cutip%d\n  %%cutv%d = icmp ne i8 %%cutl%d, 0\n", x, x, x, x);
    else
        P("  %%cutv%d = load %s, ptr %%cutip%d\n", x, wf_ll_type(type, 1).s, x);
}

void wf_ll_behind_cut(wf_text *t, const wf_kernel *k, wf_ll *slot)
{
    const wf_rows_kernel *r = k->rows;
    const wf_stage *st = &r->stage[r->cut];
    wf_ll *total[WF_KIR_MAX_OUT];
    int n = 0;
    for (uint32_t o = 0; o < st->body.nout; o++)
        if (st->out[o].kind == WF_PORT_TOTAL)
            total[n++] = &slot[st->out[o].at];
    P("  %%cutflag = and i64 %%flags, %u\n  %%wantparts = icmp ne i64 %%cutflag, 0\n"
      "  br i1 %%wantparts, label %%cutout, label %%cutend\ncutout:\n",
      WF_LAUNCH_PARTS);
    total_places(t, k, 'o');
    for (int x = 0; x < n; x++)
        store_total(t, (wf_kty)r->total_type[x], x, total[x]->s);
    P("  br label %%rowout\ncutend:\n  br label %%cutjoin\ncutin:\n");
    total_places(t, k, 'i');
    for (int x = 0; x < n; x++)
        load_total(t, (wf_kty)r->total_type[x], x);
    P("  br label %%cutjoin\ncutjoin:\n");
    for (int x = 0; x < n; x++) {
        P("  %%cutt%d = phi %s [ %s, %%cutend ], [ %%cutv%d, %%cutin ]\n", x,
          wf_ll_type((wf_kty)r->total_type[x], 1).s, total[x]->s, x);
        snprintf(total[x]->s, sizeof total[x]->s, "%%cutt%d", x);
    }
}
