/*
 * weft/dlpack.h -- sharing memory with other libraries through DLPack.
 *
 * The structs below are the interface of DLPack 1.x, field by field (github.com/dmlc/dlpack). If
 * dlpack.h is included before this file, its own types are used.
 */
#ifndef WEFT_DLPACK_H
#define WEFT_DLPACK_H

#include "weft/tensor.h"

#ifndef DLPACK_DLPACK_H_
typedef struct DLPackVersion {
    uint32_t major, minor;
} DLPackVersion;
typedef struct DLDevice {
    int32_t device_type; /* 1 = CPU memory, 2 = a CUDA device's */
    int32_t device_id;
} DLDevice;
typedef struct DLDataType {
    uint8_t code; /* 0 signed, 1 unsigned, 2 float, 4 bfloat, 6 bool */
    uint8_t bits;
    uint16_t lanes;
} DLDataType;
typedef struct DLTensor {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL = row-major */
    uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;
typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags; /* bit 0: read-only, bit 1: the data is a copy */
    DLTensor dl_tensor;
} DLManagedTensorVersioned;
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The tensor's memory as a DLPack 1.0 capsule: no copy, writes are visible both ways. The capsule is the caller's and
 * holds the memory until its deleter is called (any thread, once). Memory of a GPU: after waiting for the device. What is written
 * through it gradients do not see, as with weft_data. Strides are the tensor's, 0 and negative ones (weft_flip) among them, which not
 * every consumer takes: PyTorch 2.9 ends the process at negative ones. weft_contiguous before it helps. NULL on error. */
WEFT_API DLManagedTensorVersioned *weft_to_dlpack(weft_tensor t);
/* The older form, without a read-only flag: refuses read-only memory. */
WEFT_API DLManagedTensor *weft_to_dlpack_unversioned(weft_tensor t);

/* A tensor on the capsule's memory: no copy. On success weft owns the capsule and calls its deleter
 * when the last tensor or view is gone; on failure it stays yours. The tensor is of the innermost scope. Takes memory of the CPU or
 * of a GPU that can be used, one lane, the element types weft has; other devices, types and major versions are WEFT_EUNSUPPORTED. */
WEFT_API weft_tensor weft_from_dlpack(DLManagedTensorVersioned *capsule);
WEFT_API weft_tensor weft_from_dlpack_unversioned(DLManagedTensor *capsule);

#ifdef __cplusplus
}
#endif

#ifndef WEFT_NO_SITES
#define weft_to_dlpack(...)                                                                        \
    WEFT_P_(DLManagedTensorVersioned, WEFT_R_((weft_to_dlpack)(__VA_ARGS__)))
#define weft_to_dlpack_unversioned(...)                                                            \
    WEFT_P_(DLManagedTensor, WEFT_R_((weft_to_dlpack_unversioned)(__VA_ARGS__)))
#define weft_from_dlpack(...) WEFT_T_((weft_from_dlpack)(__VA_ARGS__))
#define weft_from_dlpack_unversioned(...) WEFT_T_((weft_from_dlpack_unversioned)(__VA_ARGS__))
#endif

#endif
