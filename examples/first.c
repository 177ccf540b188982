/*
 * examples/first.c -- the first program: fits a line through noisy points by gradient descent.
 */
#include <weft/weft.h>

int main(void)
{
    weft_tensor x = weft_randn(weft_shape(100)), noise = weft_randn(weft_shape(100), .std = 0.1);
    weft_tensor y = weft_add(weft_fma(x, weft_f(3), weft_f(2)), noise); /* y = 3 x + 2 + noise */
    weft_tensor w = weft_zeros(weft_shape(2), WEFT_F32);                /* slope, intercept */
    weft_requires_grad_(w, true);
    for (int step = 0; step < 100; step++) {
        weft_scope scope = weft_scope_begin(); /* what the step makes goes when it ends */
        weft_tensor guess = weft_fma(x, weft_select(w, 0, 0), weft_select(w, 0, 1));
        weft_backward(weft_mse_loss(guess, y));
        weft_no_grad_begin();
        weft_sub_(w, weft_mul(weft_grad(w), weft_f(0.1)));
        weft_no_grad_end();
        weft_set_grad(w, WEFT_NONE);
        weft_scope_end(scope);
    }
    return weft_print(w) == WEFT_OK ? 0 : 1; /* [2.997  1.9941]; else: weft_last_error() */
}
