/*
 * weft/weft.h -- everything.
 */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

#include "weft/core.h"
#include "weft/tensor.h"
#include "weft/random.h"
#include "weft/ops.h"
#include "weft/grad.h"
#include "weft/jit.h"
#include "weft/graph.h"
#include "weft/dlpack.h"
#include "weft/io.h"
#include "weft/nn.h"
#include "weft/cuda.h"
#include "weft/profile.h"
#include "weft/table.h"

#endif
