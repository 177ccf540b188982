// tests/install/program.cpp -- the outside C++ program.
#include <cstring>
#include <weft/core.h>

int main()
{
    weft_tensor nothing = WEFT_NONE;
    const char *name = weft_dtype_name(WEFT_BF16);
    return std::strcmp(name, "bf16") == 0 && !weft_ok(nothing) ? 0 : 1;
}
