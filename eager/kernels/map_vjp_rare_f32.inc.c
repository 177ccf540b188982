/*
 * eager/kernels/map_vjp_rare_f32.inc.c -- vjp columns of rows with a rare branch, ordinary lanes first.
 */
#define WF_T float
#define WF_S f32
#define WF_LANE uint32_t
#define WF_VJP_FAST
#include "eager/kernels/map_vjp.h"
