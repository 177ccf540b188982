/*
 * eager/cpu/dnnl_api.h -- the part of oneDNN's 2.x C interface that is used, as a table of functions.
 *
 * Declared here, and not taken from oneDNN's headers, so that one build of weft serves machines with
 * and without it. Descriptors are opaque buffers larger than those of any 2.x release (2.6: 696, 2800
 * and 5976 bytes); of a memory descriptor the blocking is read, nothing else inside them. Numbers are those of the stable 2.x interface; 3.x
 * has no op descriptors, so the loader refuses any other major version.
 */
#ifndef EAGER_CPU_DNNL_API_H
#define EAGER_CPU_DNNL_API_H

#include <stddef.h>
#include <stdint.h>

typedef struct dnnl_object
    *dnnl_handle; /* engine, stream, memory, primitive, descriptor, attributes */

typedef struct dnnl_md {
    _Alignas(8) unsigned char opaque[1024];
} dnnl_md;
/* How a memory descriptor begins, in every 2.x release. */
typedef struct dnnl_md_blocked {
    int rank;
    int64_t dims[12];
    int type;
    int64_t padded[12], padded_offsets[12], offset;
    int kind; /* DNNL_BLOCKED: */
    int64_t strides[12];
    int inner_count;
    int64_t inner[12], inner_axis[12];
} dnnl_md_blocked;
typedef struct dnnl_op {
    _Alignas(16) unsigned char opaque[12288];
} dnnl_op;
typedef int64_t dnnl_sizes[12];
typedef struct dnnl_arg {
    int arg;
    dnnl_handle memory;
} dnnl_arg;
typedef struct dnnl_version_info {
    int major, minor, patch;
    const char *hash;
    unsigned cpu_runtime, gpu_runtime;
} dnnl_version_info;

enum { DNNL_SUCCESS, DNNL_OUT_OF_MEMORY };
enum { DNNL_RUNTIME_SEQUENTIAL = 1, DNNL_RUNTIME_OPENMP = 2 };
enum { DNNL_ISA_AVX512_CORE = 0x27 }; /* bits of an instruction set */
enum { DNNL_CPU = 1, DNNL_IN_ORDER = 1, DNNL_TAG_ANY = 1, DNNL_BLOCKED = 2 };
enum { DNNL_BF16 = 2, DNNL_F32 = 3 };
enum { DNNL_FORWARD_TRAINING = 64, DNNL_CONV_DIRECT = 1 };
enum {
    DNNL_QUERY_IMPL_NAME = 8,
    DNNL_QUERY_SRC = 129,
    DNNL_QUERY_DIFF_SRC = 130,
    DNNL_QUERY_WEIGHTS = 131,
    DNNL_QUERY_DIFF_WEIGHTS = 132,
    DNNL_QUERY_DST = 133,
    DNNL_QUERY_DIFF_DST = 134
};
enum {
    DNNL_SRC = 1,
    DNNL_DST = 17,
    DNNL_WEIGHTS = 33,
    DNNL_BIAS = 41,
    DNNL_DIFF_SRC = 129,
    DNNL_DIFF_DST = 145,
    DNNL_DIFF_WEIGHTS = 161
};

/* F(name, parameters): int dnnl_<name>(parameters), a status. */
#define DNNL_STATUS_FUNCTIONS(F)                                                                   \
    F(engine_create, (dnnl_handle *, int kind, size_t index))                                      \
    F(stream_create, (dnnl_handle *, dnnl_handle engine, unsigned flags))                          \
    F(stream_destroy, (dnnl_handle))                                                               \
    F(memory_desc_init_by_strides,                                                                 \
      (dnnl_md *, int rank, const int64_t *dims, int type, const int64_t *strides))                \
    F(memory_desc_init_by_tag, (dnnl_md *, int rank, const int64_t *dims, int type, int tag))      \
    F(memory_desc_init_submemory,                                                                  \
      (dnnl_md *, const dnnl_md *parent, const int64_t *dims, const int64_t *offsets))             \
    F(memory_create, (dnnl_handle *, const dnnl_md *, dnnl_handle engine, void *data))             \
    F(memory_set_data_handle, (dnnl_handle, void *data))                                           \
    F(memory_get_memory_desc, (dnnl_handle, const dnnl_md **))                                     \
    F(memory_destroy, (dnnl_handle))                                                               \
    F(primitive_desc_create,                                                                       \
      (dnnl_handle *, const dnnl_op *, dnnl_handle attr, dnnl_handle engine, dnnl_handle hint))    \
    F(primitive_desc_iterator_create,                                                              \
      (dnnl_handle *, const dnnl_op *, dnnl_handle attr, dnnl_handle engine, dnnl_handle hint))    \
    F(primitive_desc_iterator_next, (dnnl_handle))                                                 \
    F(primitive_desc_iterator_destroy, (dnnl_handle))                                              \
    F(primitive_desc_query, (dnnl_handle, int what, int index, void *result))                      \
    F(primitive_desc_destroy, (dnnl_handle))                                                       \
    F(primitive_create, (dnnl_handle *, dnnl_handle desc))                                         \
    F(primitive_execute, (dnnl_handle, dnnl_handle stream, int nargs, const dnnl_arg *))           \
    F(primitive_destroy, (dnnl_handle))                                                            \
    F(reorder_primitive_desc_create, (dnnl_handle *, const dnnl_md *from, dnnl_handle,             \
                                      const dnnl_md *to, dnnl_handle, dnnl_handle attr))           \
    F(primitive_attr_create, (dnnl_handle *))                                                      \
    F(primitive_attr_destroy, (dnnl_handle))                                                       \
    F(primitive_attr_set_post_ops, (dnnl_handle, dnnl_handle ops))                                 \
    F(post_ops_create, (dnnl_handle *))                                                            \
    F(post_ops_destroy, (dnnl_handle))                                                             \
    F(post_ops_append_sum, (dnnl_handle, float scale))                                             \
    F(matmul_desc_init,                                                                            \
      (dnnl_op *, const dnnl_md *a, const dnnl_md *b, const dnnl_md *bias, const dnnl_md *c))      \
    F(dilated_convolution_forward_desc_init,                                                       \
      (dnnl_op *, int prop, int alg, const dnnl_md *src, const dnnl_md *weight,                    \
       const dnnl_md *bias, const dnnl_md *dst, const int64_t *stride, const int64_t *dilation,    \
       const int64_t *pad_before, const int64_t *pad_after))                                       \
    F(dilated_convolution_backward_data_desc_init,                                                 \
      (dnnl_op *, int alg, const dnnl_md *dsrc, const dnnl_md *weight, const dnnl_md *ddst,        \
       const int64_t *stride, const int64_t *dilation, const int64_t *pad_before,                  \
       const int64_t *pad_after))                                                                  \
    F(dilated_convolution_backward_weights_desc_init,                                              \
      (dnnl_op *, int alg, const dnnl_md *src, const dnnl_md *dweight, const dnnl_md *dbias,       \
       const dnnl_md *ddst, const int64_t *stride, const int64_t *dilation,                        \
       const int64_t *pad_before, const int64_t *pad_after))

typedef struct dnnl_functions {
#define F(name, params) int(*name) params;
    DNNL_STATUS_FUNCTIONS(F)
#undef F
    const dnnl_version_info *(*version)(void);
    int (*get_effective_cpu_isa)(void);
    dnnl_handle (*primitive_desc_iterator_fetch)(dnnl_handle); /* a descriptor of one's own */
    const dnnl_md *(*primitive_desc_query_md)(dnnl_handle, int what, int index);
    size_t (*memory_desc_get_size)(const dnnl_md *);
    int (*memory_desc_equal)(const dnnl_md *, const dnnl_md *);
    dnnl_handle engine;
} dnnl_functions;

#endif
