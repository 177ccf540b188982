/*
 * nn/schedule.c -- learning-rate schedules: plain functions of the step.
 *
 * Powers are exact products (wf_power), so that their bits do not depend on a math library; nor do any on the caller's rounding.
 */
#include <math.h>

#include "eager/pool.h"
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

/* From one rate to another; step is 0 or later. */
typedef struct schedule {
    int64_t step, warmup, total;
    double from, to;
} schedule;

static int64_t first_or_later(int64_t step)
{
    return step > 0 ? step : 0;
}

/* In warm-up: where it has come to. */
static double rise(const schedule *s)
{
    return s->from * (double)(s->step + 1) / (double)s->warmup;
}

/* How far the step is from the end of the warm-up to total, in [0, 1]. */
static double progress(const schedule *s)
{
    return s->step >= s->total ? 1 : (double)(s->step - s->warmup) / (double)(s->total - s->warmup);
}

static double cosine(const void *arg)
{
    const schedule *s = arg;
    if (s->step < s->warmup) {
        return rise(s);
    }
    const double x = progress(s);
    return x == 1 ? s->to : s->to + (s->from - s->to) * 0.5 * (1 + cos(3.14159265358979323846 * x));
}

static double linear(const void *arg)
{
    const schedule *s = arg;
    if (s->step < s->warmup) {
        return rise(s);
    }
    const double x = progress(s);
    return x == 1 ? s->to : s->from + (s->to - s->from) * x;
}

static double inverse_sqrt(const void *arg)
{
    const schedule *s = arg;
    if (s->step < s->warmup) {
        return rise(s);
    }
    return s->from * sqrt((double)(s->warmup > 1 ? s->warmup : 1) / ((double)s->step + 1));
}

/* from times a power of `to`. */
static double power(const void *arg)
{
    const schedule *s = arg;
    return s->from * wf_power(s->to, s->step);
}

double weft_lr_cosine(int64_t step, int64_t warmup, int64_t total, double peak, double floor)
{
    return wf_plainly(cosine,
                      &(schedule){first_or_later(step), warmup, total, .from = peak, .to = floor});
}

double weft_lr_linear(int64_t step, int64_t warmup, int64_t total, double peak, double floor)
{
    return wf_plainly(linear,
                      &(schedule){first_or_later(step), warmup, total, .from = peak, .to = floor});
}

double weft_lr_inverse_sqrt(int64_t step, int64_t warmup, double peak)
{
    return wf_plainly(inverse_sqrt, &(schedule){first_or_later(step), warmup, .from = peak});
}

double weft_lr_step(int64_t step, int64_t every, double start, double gamma)
{
    return every > 0 ? weft_lr_exponential(first_or_later(step) / every, start, gamma) : start;
}

double weft_lr_exponential(int64_t step, double start, double gamma)
{
    return wf_plainly(power, &(schedule){.step = step, .from = start, .to = gamma});
}
