/*
 * jit/passes/oracle.c -- primitives for the reference interpreter, and equality of bits.
 */
#include "jit/passes/oracle.h"

#include <string.h>

#include "eager/exec.h"
#include "eager/pool.h"

int wf_oracle_primitive(wf_op op, const wf_attr *attr, int nsrc, const wf_array *src, int ndst,
                        wf_array *dst, wf_why *why)
{
    wf_view in[WF_MAX_SRC], out[WF_MAX_DST];
    wf_exec_fn run = wf_exec_of(op);
    if (!run || nsrc > WF_MAX_SRC) {
        return wf_fail(why, WEFT_EUNSUPPORTED, "%s is no primitive", wf_rows[op].name);
    }
    for (int i = 0; i < nsrc; i++) {
        wf_view_of_type(&in[i], &src[i].type, src[i].data);
    }
    for (int i = 0; i < ndst; i++) {
        wf_view_of_type(&out[i], &dst[i].type, dst[i].data);
    }
    wf_exec e = {
        .op = op, .nsrc = nsrc, .ndst = ndst, .src = in, .dst = out, .attr = attr, .why = why};
    unsigned mode = wf_fpenv_enter();
    int rc = run(&e);
    wf_fpenv_leave(mode);
    return rc;
}

/* Both patterns are NaN of a floating-point type. */
static bool both_nan(int dtype, uint64_t a, uint64_t b)
{
    static const uint64_t inf[WEFT_DTYPE_COUNT] = {[WEFT_F16] = 0x7C00,
                                                   [WEFT_BF16] = 0x7F80,
                                                   [WEFT_F32] = 0x7F800000,
                                                   [WEFT_F64] = 0x7FF0000000000000};
    uint64_t sign = UINT64_C(1) << (8 * wf_dtype_size(dtype) - 1);
    return wf_dtype_kind(dtype) == 2 && (a & ~sign) > inf[dtype] && (b & ~sign) > inf[dtype];
}

int64_t wf_oracle_difference(const wf_type *t, const void *a, const void *b)
{
    size_t size = wf_dtype_size(t->dtype);
    int64_t n = wf_type_numel(t);
    for (int64_t i = 0; i < n; i++) {
        uint64_t x = 0, y = 0;
        memcpy(&x, (const char *)a + (size_t)i * size, size);
        memcpy(&y, (const char *)b + (size_t)i * size, size);
        if (x != y && !both_nan(t->dtype, x, y)) {
            return i;
        }
    }
    return -1;
}
