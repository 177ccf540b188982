/*
 * eager/kernels/map_i16.inc.c -- elementwise rows on i16 tiles: wf_map_i16_<isa>.
 */
#define WF_T int16_t
#define WF_S i16
#include "eager/kernels/map_int.h"
