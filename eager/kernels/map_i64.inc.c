/*
 * eager/kernels/map_i64.inc.c -- elementwise rows on i64 tiles: wf_map_i64_<isa>.
 */
#define WF_T int64_t
#define WF_S i64
#include "eager/kernels/map_int.h"
