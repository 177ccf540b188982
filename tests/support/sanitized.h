/*
 * tests/support/sanitized.h -- which sanitizer watches this build, the same for gcc and clang.
 *
 * UNDER_ASAN, UNDER_TSAN and UNDER_MSAN are 0 or 1; SYSTEM_BLOCKS where each block is the system's own (eager/alloc.c). UNWATCHED marks a function whose memory no sanitizer follows: a reference
 * that reads and writes what the same thread made, element by element, in the time of which the rest of a test
 * would be lost. Never for what touches the memory of the library while the library runs. gcc inlines no watched
 * function into one that is not, so that all helpers of a hot loop carry the mark. Between ONE_THREAD_BEGIN and
 * ONE_THREAD_END of a program that TSan watches it watches the library alone: functions that no second thread runs, nor beside one.
 */
#ifndef TESTS_SUPPORT_SANITIZED_H
#define TESTS_SUPPORT_SANITIZED_H

#if defined(__has_feature)
#define SANITIZED_FEATURE(x) __has_feature(x)
#else
#define SANITIZED_FEATURE(x) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || SANITIZED_FEATURE(address_sanitizer)
#define UNDER_ASAN 1
#else
#define UNDER_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__) || SANITIZED_FEATURE(thread_sanitizer) || defined(WEFT_UNDER_TSAN)
#define UNDER_TSAN 1
#else
#define UNDER_TSAN 0
#endif

#define UNDER_MSAN SANITIZED_FEATURE(memory_sanitizer)
#define SYSTEM_BLOCKS (UNDER_ASAN || UNDER_MSAN)

#define UNWATCHED                                                                                  \
    __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

#if UNDER_TSAN && defined(__clang__)
#define ONE_THREAD_BEGIN                                                                           \
    _Pragma("clang attribute push(__attribute__((no_sanitize(\"thread\"))), apply_to = function)")
#define ONE_THREAD_END _Pragma("clang attribute pop")
#else
#define ONE_THREAD_BEGIN
#define ONE_THREAD_END
#endif

#endif
