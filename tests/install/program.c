/* tests/install/program.c -- the outside C program, on installed headers only; also compiled as C99, C11 and
 * C17, pedantically, for the macros that pass options and call sites. */
#include <weft/weft.h>

int main(void)
{
    weft_scope scope = weft_scope_begin();
    weft_tensor x = weft_full(weft_shape(3, 4), 0.5, WEFT_F32);
    weft_tensor y = weft_matmul(weft_add(x, weft_f(1.5)), weft_transpose(x, 0, 1));
    weft_tensor total = weft_sum(y, .axes = weft_axes(0, -1), .dtype = WEFT_F64);
    weft_tensor rows = weft_mean(x, .axes = weft_axes(1), .keepdim = true);
    weft_tensor wrong = weft_matmul(x, x);
    weft_rank(x); /* results that nobody takes are no warning */
    weft_dim(x, 0);
    weft_dtype_of(x);
    int good = weft_item_f64(total) == 36.0 && weft_dim(rows, 1) == 1 && !weft_ok(wrong) &&
               weft_error_status(wrong) == WEFT_ESHAPE;
    printf("weft %s: %g\n%s\n", weft_version(), weft_item_f64(total), weft_error_text(wrong));
    return weft_scope_end(scope) == WEFT_OK && good ? 0 : 1;
}
