/*
 * weft/sites.h -- call sites of the functions of core.h and tensor.h that leave nothing to stamp but an error: lifetime, what a
 * tensor is, settings. Included by weft/ops.h.
 */
#ifndef WEFT_SITES_H
#define WEFT_SITES_H

#include "weft/tensor.h"

#ifndef WEFT_NO_SITES
#define weft_scope_end(...) WEFT_F_((weft_scope_end)(__VA_ARGS__))
#define weft_scope_return(...) WEFT_E_((weft_scope_return)(__VA_ARGS__))
#define weft_scope_give(...) WEFT_E_((weft_scope_give)(__VA_ARGS__))
#define weft_keep(...) WEFT_E_((weft_keep)(__VA_ARGS__))
#define weft_free(...) WEFT_F_((weft_free)(__VA_ARGS__))
#define weft_assign(...) WEFT_F_((weft_assign)(__VA_ARGS__))
#define weft_rank(...) WEFT_N_(int, (weft_rank)(__VA_ARGS__))
#define weft_dim(...) WEFT_N_(int64_t, (weft_dim)(__VA_ARGS__))
#define weft_numel(...) WEFT_N_(int64_t, (weft_numel)(__VA_ARGS__))
#define weft_nbytes(...) WEFT_N_(int64_t, (weft_nbytes)(__VA_ARGS__))
#define weft_offset(...) WEFT_N_(int64_t, (weft_offset)(__VA_ARGS__))
#define weft_dtype_of(...) WEFT_Z_(weft_dtype, (weft_dtype_of)(__VA_ARGS__))
#define weft_set_num_threads(...) WEFT_F_((weft_set_num_threads)(__VA_ARGS__))
#define weft_set_default_device(...) WEFT_F_((weft_set_default_device)(__VA_ARGS__))
#define weft_memory_set_cap(...) WEFT_F_((weft_memory_set_cap)(__VA_ARGS__))
#define weft_memory_set_allocator(...) WEFT_F_((weft_memory_set_allocator)(__VA_ARGS__))
#define weft_device_from_name(...) WEFT_F_((weft_device_from_name)(__VA_ARGS__))
#endif

#endif
