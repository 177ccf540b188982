/*
 * eager/kernels/map_vjp_f32.inc.c -- vjp columns on f32 tiles: wf_vjp_f32_<isa>.
 */
#define WF_T float
#define WF_S f32
#define WF_LANE uint32_t
#define WF_X4_ROWS
#include "eager/kernels/map_vjp.h"
