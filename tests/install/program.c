/* tests/install/program.c -- the outside C program: built against an installed weft only. */
#include <weft/core.h>

int main(void)
{
    weft_tensor nothing = WEFT_NONE;
    bool fits = weft_dtype_size(WEFT_F32) == 4 && !weft_ok(nothing);
    printf("weft %s, default threads %d\n", weft_version(), weft_get_num_threads());
    return fits ? 0 : 1;
}
