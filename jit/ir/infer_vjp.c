/*
 * jit/ir/infer_vjp.c -- the types of the fused derivative of an elementwise row.
 *
 * VJP stands for one call of a row's vjp kernel: g, the operands and the result in, the gradient of one
 * operand out, before it is summed to that operand's extents. It computes in the compute type of its
 * result type; operands of other types are converted as they are read, scalar slots too.
 */
#include <string.h>

#include "jit/ir/infer.h"

WF_INFER(vjp)
{
    int code = wf_check_attr(attr, 2, -1, 0, why);
    if (code || (code = wf_check_result_dtype(attr->dtype, why))) {
        return code;
    }
    int64_t row = attr->ints[0], which = attr->ints[1];
    if (row <= WF_OP_RESULT || row >= WF_OP_COUNT || !wf_op_is_elementwise((wf_op)row) ||
        which < 0 || which >= wf_rows[row].min_src || nsrc != wf_rows[row].min_src + 2) {
        return wf_fail(why, WEFT_EINVALID,
                       "op %" PRId64 " with %d operands has no elementwise derivative by operand "
                       "%" PRId64,
                       row, nsrc - 2, which);
    }
    if (!(WF_BIT(attr->dtype) & WF_DT_F)) {
        return wf_fail(why, WEFT_EDTYPE, "a gradient is floating-point, not %s",
                       wf_dtype_name(attr->dtype));
    }
    if ((code = wf_check_dims(&dst[0], attr->dyn, attr->n_dyn, why))) {
        return code;
    }
    dst[0].dtype = attr->dtype;
    for (int i = 0; i < nsrc; i++) {
        wf_type wide = dst[0];
        if (!wf_type_present(&src[i])) {
            continue;
        }
        if ((code = wf_broadcast(&wide, &src[i], why))) {
            return code;
        }
        if (!wf_type_same_dims(&wide, &dst[0])) {
            return wf_fail(why, WEFT_ESHAPE, "the %s operand is larger than the gradient",
                           wf_ordinal(i));
        }
    }
    return 0;
}
