/*
 * eager/kernels/rowwise_sums.h -- template: the canonical sums that row kernels are made of.
 *
 * The includer defines T, SFX, ESIZE, OP (+) and IDENTITY (-0).
 */
#define NAME sum
#define EXPR LD(x)
#include "eager/kernels/reduce_canon.h"
#define NAME sum_xy
#define EXPR (LD(x) * LD(y))
#include "eager/kernels/reduce_canon.h"
#define NAME sum_sqdev
#define EXPR ((LD(x) - p) * (LD(x) - p))
#define AHEAD y /* the next row */
#include "eager/kernels/reduce_canon.h"
#define NAME sum_from
#define EXPR (p - LD(x))
#include "eager/kernels/reduce_canon.h"
#define NAME sum_g_xhat
#define EXPR (LD(y) * ((LD(x) - p) * q))
#include "eager/kernels/reduce_canon.h"
#define NAME sum_gw_xhat
#define EXPR ((LD(y) * LD(w)) * ((LD(x) - p) * q))
#include "eager/kernels/reduce_canon.h"
