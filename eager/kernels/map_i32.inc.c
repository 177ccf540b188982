/*
 * eager/kernels/map_i32.inc.c -- elementwise rows on i32 tiles: wf_map_i32_<isa>.
 */
#define WF_T int32_t
#define WF_S i32
#include "eager/kernels/map_int.h"
