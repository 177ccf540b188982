/*
 * nn/schedule.c -- learning-rate schedules: plain functions of the step.
 *
 * Powers are exact products (wf_power), so that their bits do not depend on a math library.
 */
#include <math.h>

#include "nn/nn.h"

double wf_power(double b, int64_t n)
{
    double r = 1;
    for (; n > 0; n >>= 1, b *= b) {
        if (n & 1) {
            r *= b;
        }
    }
    return r;
}

static int64_t first_or_later(int64_t step)
{
    return step > 0 ? step : 0;
}

/* Where warm-up has come to at a step of it. */
static double rise(int64_t step, int64_t warmup, double peak)
{
    return peak * (double)(step + 1) / (double)warmup;
}

/* How far step is from the end of the warm-up to total, in [0, 1]. */
static double progress(int64_t step, int64_t warmup, int64_t total)
{
    return step >= total ? 1 : (double)(step - warmup) / (double)(total - warmup);
}

double weft_lr_cosine(int64_t step, int64_t warmup, int64_t total, double peak, double floor)
{
    step = first_or_later(step);
    if (step < warmup) {
        return rise(step, warmup, peak);
    }
    double x = progress(step, warmup, total);
    return x == 1 ? floor : floor + (peak - floor) * 0.5 * (1 + cos(3.14159265358979323846 * x));
}

double weft_lr_linear(int64_t step, int64_t warmup, int64_t total, double peak, double floor)
{
    step = first_or_later(step);
    if (step < warmup) {
        return rise(step, warmup, peak);
    }
    double x = progress(step, warmup, total);
    return x == 1 ? floor : peak + (floor - peak) * x;
}

double weft_lr_inverse_sqrt(int64_t step, int64_t warmup, double peak)
{
    step = first_or_later(step);
    if (step < warmup) {
        return rise(step, warmup, peak);
    }
    return peak * sqrt((double)(warmup > 1 ? warmup : 1) / (double)(step + 1));
}

double weft_lr_step(int64_t step, int64_t every, double start, double gamma)
{
    return every > 0 ? start * wf_power(gamma, first_or_later(step) / every) : start;
}

double weft_lr_exponential(int64_t step, double start, double gamma)
{
    return start * wf_power(gamma, step);
}
