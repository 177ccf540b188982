/*
 * tests/fuzz/fuzz_npy.c -- hostile .npy and .npz: what is accepted is sound and survives being written and read.
 */
#include <stdlib.h>
#include <string.h>

#include "weft/weft.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(weft_tensor x)
{
    void *copy;
    size_t size;
    if (!weft_ok(x)) {
        return;
    }
    if (weft_npy_encode(x, &copy, &size) != WEFT_OK) {
        abort();
    }
    weft_tensor y = weft_npy_decode(copy, size);
    if (!weft_ok(y) || weft_nbytes(y) != weft_nbytes(x) ||
        (weft_nbytes(x) && memcmp(weft_data(x), weft_data(y), (size_t)weft_nbytes(x)) != 0)) {
        abort();
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_scope scope = weft_scope_begin();
    use(weft_npy_decode(data, size));
    weft_npz *z = weft_npz_decode(data, size);
    for (int i = 0; i < weft_npz_count(z); i++) {
        use(weft_npz_at(z, i));
    }
    weft_npz_close(z);
    weft_scope_end(scope);
    return 0;
}
