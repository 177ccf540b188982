/*
 * tests/cuda/driver/api.h -- the entry points' lock, counts and planned failures.
 */
#ifndef TESTS_CUDA_DRIVER_API_H
#define TESTS_CUDA_DRIVER_API_H

#include <stdint.h>

void api_lock(void);
void api_unlock(void);
void api_reset(void);
int64_t api_calls(const char *symbol);
void api_fail(const char *symbol, int64_t n, int result);
const char *api_failed(void);

#endif
