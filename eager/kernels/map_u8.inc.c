/*
 * eager/kernels/map_u8.inc.c -- elementwise rows on u8 tiles: wf_map_u8_<isa>.
 */
#define WF_T uint8_t
#define WF_S u8
#include "eager/kernels/map_int.h"
