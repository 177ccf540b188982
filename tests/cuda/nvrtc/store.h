/*
 * tests/cuda/nvrtc/store.h -- what the tests' NVRTCs have made of texts, for whichever program of whichever build asks next.
 *
 * Files of a folder of this user alone, named by hashes of everything that they depend on, and complete as soon as they are there.
 */
#ifndef TESTS_CUDA_NVRTC_STORE_H
#define TESTS_CUDA_NVRTC_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct store_key {
    uint64_t a, b;
} store_key;

store_key store_key_of(int n, const char *const parts[]);
/* What a text that is collected is named by, and its line in the record of NVRTC (tests/jit/nvrtc_record.h): on every machine the same. */
uint64_t store_text_hash(const char *text, bool contract);
/* TMPDIR/weft-shim-UID, which is made where it is not; false: others may write there. */
bool store_folder(char *folder, size_t n);
/* What lies in a file, to be freed; NULL: nothing, or no memory. */
char *store_read(const char *path, size_t *size);
/* At once or not at all. */
bool store_write(const char *path, const char *data, size_t size);

#endif
