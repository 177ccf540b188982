/*
 * eager/kernels/map_x1.inc.c -- the rows of map_x4.h one register at a time: small tensors and what
 * four registers leave at the end.
 */
#define WF_REGISTERS 1
#include "eager/kernels/map_x4_rows.h"
