/*
 * tests/support/rows.h -- calling an elementwise row by its opcode, and values that find faults.
 *
 * Shared by the tests that walk over all elementwise rows; the values of a type are its special ones
 * (NaN, infinities, zeros, subnormals, extremes, neighbours of 1, shift counts around the width) and random
 * ones of all magnitudes.
 */
#ifndef TESTS_SUPPORT_ROWS_H
#define TESTS_SUPPORT_ROWS_H

#include "tests/ref/ref.h"
#include "tests/support/support.h"

#define FOR_EACH_ELEMENTWISE(op)                                                                   \
    for (wf_op op = WF_OP_NEG; wf_op_is_elementwise(op); op = (wf_op)(op + 1))

/* The row through its public function. */
weft_tensor row_call(wf_op op, const weft_tensor *x);
/* Its in-place twin on x[0]; false if it has none. */
bool row_write(wf_op op, const weft_tensor *x, weft_status *status);
bool row_is_bool(wf_op op);
/* Operand k's type when the row's values are of dtype: the condition of a choice is bool. */
int row_operand(wf_op op, int k, int dtype);
/* The type values of dtype are computed in and returned as: itself, f32 for integers given to a row of
 * floats, 0 if the row refuses them. By docs/dtypes.md. */
int row_computes(wf_op op, int dtype);
/* The join of docs/dtypes.md. */
int row_join(int a, int b);

enum { ROW_SPECIALS = 64 };
/* Special values of dtype, as elements; returns how many (<= ROW_SPECIALS). most: at most so many. */
int row_specials(int dtype, int most, void *out);
/* A random value of dtype. */
long double row_random(test_rng *r, int dtype);

/* Operands of a row: all combinations of special values, then random ones. n elements each. */
typedef struct row_data {
    int64_t n;
    int dtype[3];
    char *x[3];
} row_data;
row_data row_data_new(wf_op op, int dtype);
void row_data_free(row_data *d);

/* The exact result for element i of d. */
real row_expect(wf_op op, const row_data *d, int64_t i, real *x);

typedef enum row_verdict { ROW_RIGHT, ROW_WRONG, ROW_SKIPPED } row_verdict;
/* Is got, of type result, within the row's budget of want for operands x? *ulp and *allowed: the error
 * and what it may be. Skipped: a term of the row's formula is beyond the range of its type. */
row_verdict row_judge(wf_op op, int result, real want, real got, const real *x, double *ulp,
                      double *allowed);

#endif
