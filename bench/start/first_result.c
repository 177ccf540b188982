/*
 * bench/start/first_result.c -- the shortest useful program: makes tensors, runs one op, prints the result.
 *
 *   first_result [matmul]     the op is an addition, or a matrix product (which opens oneDNN)
 *
 * Linked to the shared library, as a user's program is; bench_start times it from outside.
 */
#include <string.h>

#include "weft/weft.h"

int main(int argc, char **argv)
{
    static const float data[] = {1, 2, 3, 4};
    const weft_scope s = weft_scope_begin();
    const bool product = argc > 1 && strcmp(argv[1], "matmul") == 0;
    weft_tensor result;
    if (product) {
        const weft_tensor square = weft_ones(weft_shape(256, 256), WEFT_F32);
        result = weft_sum(weft_matmul(square, square));
    } else {
        const weft_tensor a = weft_from_data(data, weft_shape(2, 2), WEFT_F32);
        result = weft_add(a, a);
    }
    const weft_status status = weft_print(result);
    fflush(stdout);
    weft_scope_end(s);
    return status != WEFT_OK;
}
