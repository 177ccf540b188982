/*
 * eager/kernels/map_x4.inc.c -- the rows of map_x4.h four registers at a time. AVX2 has half as many, which
 * hold two.
 */
#if defined(__AVX512F__)
#define WF_REGISTERS 4
#else
#define WF_REGISTERS 2
#endif
#include "eager/kernels/map_x4_rows.h"
