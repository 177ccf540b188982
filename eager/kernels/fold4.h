/*
 * eager/kernels/fold4.h -- the lanes of a register folded, and sums of those of four registers side by side.
 *
 * Lanes are added halves to halves, the order of every sum of lanes in these kernels, so the bits are those of one register
 * after the other; side by side a shuffle serves two of them, and none waits for memory.
 */
#ifndef EAGER_KERNELS_FOLD4_H
#define EAGER_KERNELS_FOLD4_H

/* v[i + h] for i < h, the rest arbitrary. */
#define WF_ROT16_8 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7
#define WF_ROT16_4 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11
#define WF_ROT16_2 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13
#define WF_ROT16_1 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14
#define WF_ROT8_4 4, 5, 6, 7, 0, 1, 2, 3
#define WF_ROT8_2 2, 3, 0, 1, 6, 7, 4, 5
#define WF_ROT8_1 1, 0, 3, 2, 5, 4, 7, 6
#define WF_ROT4_2 2, 3, 0, 1
#define WF_ROT4_1 1, 0, 3, 2
#define WF_ROT2_1 1, 0
#define WF_SHUF(v, ...) __builtin_shufflevector(v, v, __VA_ARGS__)

/* One register, halved: v[i] = of(v[i], v[i + h]) for h = N / 2 ... 1. */
#define WF_FOLD_16(v, of)                                                                          \
    v = of(v, WF_SHUF(v, WF_ROT16_8));                                                             \
    v = of(v, WF_SHUF(v, WF_ROT16_4));                                                             \
    v = of(v, WF_SHUF(v, WF_ROT16_2));                                                             \
    v = of(v, WF_SHUF(v, WF_ROT16_1))
#define WF_FOLD_8(v, of)                                                                           \
    v = of(v, WF_SHUF(v, WF_ROT8_4));                                                              \
    v = of(v, WF_SHUF(v, WF_ROT8_2));                                                              \
    v = of(v, WF_SHUF(v, WF_ROT8_1))
#define WF_FOLD_4(v, of)                                                                           \
    v = of(v, WF_SHUF(v, WF_ROT4_2));                                                              \
    v = of(v, WF_SHUF(v, WF_ROT4_1))
#define WF_FOLD_2(v, of) v = of(v, WF_SHUF(v, WF_ROT2_1))
#define WF_PLUS(a, b) ((a) + (b))

/* Four registers of lanes to four sums, in lanes 0, N / 4, N / 2 ... of the result: v[i] + v[i + h] for h = N / 2 ... 1 in each;
 * the halves of a step lie side by side, so that a shuffle serves two registers. */
#define WF_LIST(...) __VA_ARGS__
#define WF_HALVES(a, b, low, high)                                                                 \
    (__builtin_shufflevector(a, b, low) + __builtin_shufflevector(a, b, high))
#define WF_FOLD4_16(name, V)                                                                       \
    __attribute__((always_inline, unused)) static inline V name(V a, V b, V c, V d)                \
    {                                                                                              \
        a = WF_HALVES(a, b, WF_LIST(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),       \
                      WF_LIST(8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));      \
        c = WF_HALVES(c, d, WF_LIST(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),       \
                      WF_LIST(8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));      \
        a = WF_HALVES(a, c, WF_LIST(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27),     \
                      WF_LIST(4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31));        \
        a = a + WF_SHUF(a, WF_ROT16_2);                                                            \
        return a + WF_SHUF(a, WF_ROT16_1);                                                         \
    }
#define WF_FOLD4_8(name, V)                                                                        \
    __attribute__((always_inline, unused)) static inline V name(V a, V b, V c, V d)                \
    {                                                                                              \
        a = WF_HALVES(a, b, WF_LIST(0, 1, 2, 3, 8, 9, 10, 11),                                     \
                      WF_LIST(4, 5, 6, 7, 12, 13, 14, 15));                                        \
        c = WF_HALVES(c, d, WF_LIST(0, 1, 2, 3, 8, 9, 10, 11),                                     \
                      WF_LIST(4, 5, 6, 7, 12, 13, 14, 15));                                        \
        a = WF_HALVES(a, c, WF_LIST(0, 1, 4, 5, 8, 9, 12, 13),                                     \
                      WF_LIST(2, 3, 6, 7, 10, 11, 14, 15));                                        \
        return a + WF_SHUF(a, WF_ROT8_1);                                                          \
    }
#endif
