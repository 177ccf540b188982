/*
 * tests/gpu/runner.h -- Criterion's tests where there is no Criterion: on the machine with the GPU.
 *
 * The tests of this folder and those of tests/jit that script/gpu runs include this header alone. Built by CMake it is Criterion; built by script/gpu, with
 * WEFT_GPU_RUNNER defined, it is the few macros below and tests/gpu/runner.c, which runs every test in a process of its own
 * and prints the same closing line.
 */
#ifndef TESTS_GPU_RUNNER_H
#define TESTS_GPU_RUNNER_H

#ifndef WEFT_GPU_RUNNER
#include <criterion/criterion.h>
#else
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct runner_test {
    const char *suite, *name;
    void (*fn)(void);
    struct runner_test *next;
} runner_test;
void runner_add(runner_test *t);
_Noreturn void runner_fail(const char *file, int line, const char *what, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void runner_note(const char *file, int line, const char *what, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
_Noreturn void runner_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define Test(suite, name)                                                                          \
    static void suite##_##name(void);                                                              \
    __attribute__((constructor)) static void suite##_##name##_add(void)                            \
    {                                                                                              \
        static runner_test t = {#suite, #name, suite##_##name, 0};                                 \
        runner_add(&t);                                                                            \
    }                                                                                              \
    static void suite##_##name(void)
/* The message, if there is one, starts with a string literal. */
#define cr_assert(condition, ...)                                                                  \
    ((condition) ? (void)0 : runner_fail(__FILE__, __LINE__, #condition, " " __VA_ARGS__))
#define cr_assert_fail(...) runner_fail(__FILE__, __LINE__, "failed", " " __VA_ARGS__)
#define cr_assert_eq(a, b, ...) cr_assert((a) == (b), __VA_ARGS__)
#define cr_assert_neq(a, b, ...) cr_assert((a) != (b), __VA_ARGS__)
#define cr_assert_gt(a, b, ...) cr_assert((a) > (b), __VA_ARGS__)
#define cr_assert_geq(a, b, ...) cr_assert((a) >= (b), __VA_ARGS__)
#define cr_assert_lt(a, b, ...) cr_assert((a) < (b), __VA_ARGS__)
#define cr_assert_leq(a, b, ...) cr_assert((a) <= (b), __VA_ARGS__)
#define cr_assert_null(a, ...) cr_assert((a) == NULL, __VA_ARGS__)
#define cr_assert_not_null(a, ...) cr_assert((a) != NULL, __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) cr_assert(strcmp(a, b) == 0, __VA_ARGS__)
/* Goes on; the test has failed. */
#define cr_expect(condition, ...)                                                                  \
    ((condition) ? (void)0 : runner_note(__FILE__, __LINE__, #condition, " " __VA_ARGS__))
#define cr_expect_eq(a, b, ...) cr_expect((a) == (b), __VA_ARGS__)
#define cr_skip_test(...) runner_skip(" " __VA_ARGS__)
#define cr_log_warn(...) (fprintf(stderr, "  " __VA_ARGS__), fputc('\n', stderr))
#endif

#endif
