/*
 * eager/kernels/map_vjp_rare_f64.inc.c -- vjp columns of rows with a rare branch, ordinary lanes first.
 */
#define WF_T double
#define WF_S f64
#define WF_LANE uint64_t
#define WF_VJP_FAST
#include "eager/kernels/map_vjp.h"
