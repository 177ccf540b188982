/*
 * eager/kernels/map_f64.inc.c -- elementwise rows on f64 tiles: wf_map_f64_<isa>.
 */
#define WF_T double
#define WF_S f64
#define WF_LANE uint64_t
#include "eager/kernels/map_float.h"
