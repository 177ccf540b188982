/*
 * tests/support/asserts.c -- what Criterion does at an assertion that holds: nothing.
 *
 * Its library counts them with a locked addition, for reports that we do not read (script/test counts tests): 5 to 7 ns, which loops over
 * elements do 10^8 times, four fifths of a program's time. One that fails takes its own way (tests/mustfail).
 */
#ifndef WEFT_GPU_RUNNER
#include <criterion/criterion.h>

void cri_asserts_passed_incr(void)
{
}
#else
typedef int no_criterion;
#endif
