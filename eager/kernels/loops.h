/*
 * eager/kernels/loops.h -- WF_IVDEP, before a loop whose elements do not depend on each other, also where dst is a source.
 *
 * clang makes vectors wherever that is asked for, whatever its flags say of size: the copy for any machine, which is
 * compiled small, does not ask.
 */
#ifndef EAGER_KERNELS_LOOPS_H
#define EAGER_KERNELS_LOOPS_H

#if !defined(__clang__)
#define WF_IVDEP _Pragma("GCC ivdep")
#elif defined(__AVX2__)
/* A loop that does not pay in vectors (rare bodies, integer division, pow in f64) is not an error. */
#pragma clang diagnostic ignored "-Wpass-failed"
#define WF_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define WF_IVDEP
#endif

#endif
