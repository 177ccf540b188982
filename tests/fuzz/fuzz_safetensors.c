/*
 * tests/fuzz/fuzz_safetensors.c -- hostile safetensors: whatever is accepted must be sound, and survive
 * being written and read again.
 */
#include <stdlib.h>
#include <string.h>

#include "weft/weft.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok) {
        abort();
    }
}

/* Reads every byte of every tensor and writes the file anew. */
static void use(weft_safetensors *f)
{
    int n = weft_safetensors_count(f), k = 0;
    weft_named_tensor *t = calloc((size_t)n + 1, sizeof *t);
    require(t != NULL);
    for (int i = 0; i < n; i++) {
        weft_tensor x = weft_safetensors_at(f, i);
        const char *name = weft_safetensors_name(f, i);
        const weft_shape shape = weft_safetensors_shape(f, i);
        require(weft_safetensors_dtype(f, i)[0] != 0);
        if (!weft_ok(x)) { /* bytes that are no bools, or a type that weft has not */
            const weft_status s = weft_error_status(x);
            require(s == WEFT_EIO || s == WEFT_EUNSUPPORTED);
            continue;
        }
        require(shape.n == (int)weft_rank(x));
        const unsigned char *p = weft_data(x);
        unsigned sum = 0;
        for (int64_t b = 0; b < weft_nbytes(x); b++) {
            sum += p[b];
        }
        require(sum <= 255u * (unsigned)weft_nbytes(x));
        require(weft_ok(weft_safetensors_get(f, name)));
        t[k++] = (weft_named_tensor){name, x};
    }
    void *copy;
    size_t size;
    require(weft_safetensors_encode(t, k, NULL, 0, &copy, &size) == WEFT_OK);
    weft_safetensors *again = weft_safetensors_decode(copy, size);
    require(again != NULL && weft_safetensors_count(again) == k);
    for (int i = 0; i < k; i++) {
        weft_tensor x = weft_safetensors_get(again, t[i].name);
        require(weft_ok(x) && weft_dtype_of(x) == weft_dtype_of(t[i].tensor) &&
                weft_nbytes(x) == weft_nbytes(t[i].tensor));
        if (weft_nbytes(x) > 0) {
            require(memcmp(weft_data(x), weft_data(t[i].tensor), (size_t)weft_nbytes(x)) == 0);
        }
    }
    weft_safetensors_close(again);
    free(copy);
    free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_scope scope = weft_scope_begin();
    weft_safetensors *f = weft_safetensors_decode(data, size);
    if (f) {
        use(f);
    }
    weft_safetensors_close(f);
    weft_scope_end(scope);
    return 0;
}
