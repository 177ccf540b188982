// tests/install/program.cpp -- the outside C++ program: options are default parameters.
#include <cstdio>
#include <weft/weft.h>

int main()
{
    weft_scope scope = weft_scope_begin();
    weft_tensor x = weft_full(weft_shape(3, 4), 0.5, WEFT_F32);
    weft_tensor y = weft_matmul(weft_add(x, weft_f(1.5)), weft_to(weft_transpose(x, 0, 1), WEFT_CPU));
    weft_tensor total = weft_sum(y, weft_axes(0, -1), false, WEFT_F64);
    weft_tensor wrong = weft_matmul(x, x);
    bool good = weft_item_f64(total) == 36.0 && weft_error_status(wrong) == WEFT_ESHAPE;
    std::printf("weft %s: %g\n", weft_version(), weft_item_f64(total));
    return weft_scope_end(scope) == WEFT_OK && good ? 0 : 1;
}
