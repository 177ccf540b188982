/* tests/install/openmp.c -- a program that has an OpenMP runtime of its own, before and after weft works. */
#include <omp.h>
#include <stdio.h>
#include <weft/core.h>

static int sum_in_parallel(void)
{
    int sum = 0;
#pragma omp parallel for reduction(+ : sum) num_threads(2)
    for (int i = 0; i < 1000; i++)
        sum += i;
    return sum;
}

int main(void)
{
    int before = sum_in_parallel();
    printf("weft %s with OpenMP of %d threads\n", weft_version(), omp_get_max_threads());
    return before == 499500 && sum_in_parallel() == before ? 0 : 1;
}
