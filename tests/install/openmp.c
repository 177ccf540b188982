/* tests/install/openmp.c -- a program with an OpenMP runtime of its own, used before, around and after weft,
 * from every OpenMP thread at once. */
#include <omp.h>
#include <weft/weft.h>

static int sum_in_parallel(void)
{
    int sum = 0;
#pragma omp parallel for reduction(+ : sum) num_threads(2)
    for (int i = 0; i < 1000; i++)
        sum += i;
    return sum;
}

/* The mean of n ones is 1, whatever thread asks; large enough to use weft's pool. */
static int weft_works(void)
{
    weft_scope scope = weft_scope_begin();
    weft_tensor a = weft_full(weft_shape(256, 512), 1.0, WEFT_F32);
    weft_tensor b = weft_matmul(a, weft_transpose(a, 0, 1));
    double mean = weft_item_f64(weft_mean(b));
    return weft_scope_end(scope) == WEFT_OK && mean == 512.0;
}

int main(void)
{
    int good = sum_in_parallel() == 499500 && weft_works();
    int in_parallel = 0;
#pragma omp parallel reduction(+ : in_parallel) num_threads(2)
    in_parallel += weft_works();
    printf("weft %s with OpenMP: %d %d\n", weft_version(), good, in_parallel);
    return good && in_parallel == 2 && sum_in_parallel() == 499500 ? 0 : 1;
}
