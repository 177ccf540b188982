/*
 * eager/kernels/map_i8.inc.c -- elementwise rows on i8 tiles: wf_map_i8_<isa>.
 */
#define WF_T int8_t
#define WF_S i8
#include "eager/kernels/map_int.h"
