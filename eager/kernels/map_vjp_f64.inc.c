/*
 * eager/kernels/map_vjp_f64.inc.c -- vjp columns on f64 tiles: wf_vjp_f64_<isa>.
 */
#define WF_T double
#define WF_S f64
#define WF_LANE uint64_t
#include "eager/kernels/map_vjp.h"
