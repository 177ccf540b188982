/*
 * tests/cuda/abi_table.h -- a table of a library's functions, as we declare them, beside the library's own header.
 *
 * Before it stand TABLE(F), with F(field, symbol, params) for each function of ours, RESULT, what they return, and
 * FUNCTIONS(F), with F(field, function) by the names of the header. The compiler compares: -Wcast-function-type refuses
 * types that are not called alike, and a field that FUNCTIONS leaves out is counted. The casts are judged and not
 * evaluated, since the library is not linked.
 */
#ifndef TESTS_CUDA_ABI_TABLE_H
#define TESTS_CUDA_ABI_TABLE_H

#include <stddef.h>

#ifdef __clang__
#pragma GCC diagnostic ignored                                                                     \
    "-Wcast-function-type-strict" /* an enumeration is not an int there */
#else
#pragma GCC diagnostic error "-Wcast-function-type"
#endif

typedef struct table {
#define F(field, symbol, params) RESULT(*field) params;
    TABLE(F)
#undef F
} table;
#define F(field, function) sizeof((__typeof__(((table *)0)->field))(function)),
static const size_t casts[] = {FUNCTIONS(F)};
#undef F
_Static_assert(sizeof casts / sizeof *casts == sizeof(table) / sizeof(void *),
               "a function of the table is not compared");

#endif
