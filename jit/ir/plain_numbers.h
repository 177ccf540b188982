/*
 * jit/ir/plain_numbers.h -- numbers as text are those of the C locale, and round to nearest, whatever the program has set.
 *
 * printf and strtod take the decimal point from the thread's locale: under a German one, a graph's file would hold 0x1,8p+0
 * and no program could read it. Everything that writes or reads a fraction stands between the two calls, which change the
 * calling thread only; no function of the program's runs in between.
 */
#ifndef JIT_IR_PLAIN_NUMBERS_H
#define JIT_IR_PLAIN_NUMBERS_H

#include <fenv.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>

typedef struct wf_plain_numbers {
    locale_t locale;
    int rounding;
} wf_plain_numbers;

static inline wf_plain_numbers wf_plain_numbers_begin(void)
{
    /* Of "C" alone newlocale makes nothing: it returns the one there is. */
    const wf_plain_numbers was = {uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0)),
                                  fegetround()};
    if (was.rounding != FE_TONEAREST) {
        fesetround(FE_TONEAREST);
    }
    return was;
}

static inline void wf_plain_numbers_end(wf_plain_numbers was)
{
    uselocale(was.locale);
    if (was.rounding != FE_TONEAREST) {
        fesetround(was.rounding);
    }
}

static inline int __attribute__((format(printf, 3, 0)))
wf_plain_vsnprintf(char *out, size_t size, const char *format, va_list list)
{
    const wf_plain_numbers was = wf_plain_numbers_begin();
    const int n = vsnprintf(out, size, format, list);
    wf_plain_numbers_end(was);
    return n;
}

#endif
