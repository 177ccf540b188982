/*
 * weft/io.h -- tensors in files: safetensors; NumPy's .npy and .npz.
 *
 * The format (github.com/huggingface/safetensors, version 0.4 and later): 8 bytes little-endian header
 * size, a JSON header, the tensors' row-major bytes without gaps. What is written here is byte for
 * byte what the reference writes for the same tensors. A file is validated in full before memory is
 * taken by any size it states; a malformed one is WEFT_EIO with the reason. Element types: bool u8 i8
 * i16 i32 i64 f16 bf16 f32 f64. A file may have tensors of the format's others (U16 U32 U64 C64 F8_E4M3 ...):
 * they are listed, and only to take or load one is an error, WEFT_EUNSUPPORTED.
 */
#ifndef WEFT_IO_H
#define WEFT_IO_H

#include "weft/tensor.h"

/* A tensor under a name. Neither is owned by this struct. */
typedef struct weft_named_tensor {
    const char *name; /* UTF-8 */
    weft_tensor tensor;
} weft_named_tensor;

/* A pair of texts in a file's "__metadata__". */
typedef struct weft_metadata {
    const char *key, *value; /* UTF-8 */
} weft_metadata;

#ifdef __cplusplus
extern "C" {
#endif

/* -- saving --------------------------------------------------------------------------------------- */
/* Writes t[0..n) and meta[0..n_meta) to path: first to a temporary file in the same folder, synced,
 * then renamed, so that path holds the old file or the new one and never a part. A link is followed, the mode of a file that
 * is replaced stays, and what is no regular file (a folder, a device, a FIFO, a link to nothing) is refused. Names must be
 * distinct, and not "__metadata__". Views are written as their elements in row-major order. Tensors
 * are stored by descending element size, then by name; metadata by key. WEFT_EIO: the file cannot be written; WEFT_EINVALID: a name
 * (twice, no UTF-8), NULL; WEFT_EHANDLE: a dead tensor. */
WEFT_API weft_status weft_safetensors_save(const char *path, const weft_named_tensor *t, int n,
                                           const weft_metadata *meta WEFT_OR(nullptr),
                                           int n_meta WEFT_OR(0));
/* The same into memory: *data, which the caller frees with free(), and *size; NULL and 0 on failure. */
WEFT_API weft_status weft_safetensors_encode(const weft_named_tensor *t, int n,
                                             const weft_metadata *meta, int n_meta, void **data,
                                             size_t *size);

/* -- reading -------------------------------------------------------------------------------------- */
typedef struct weft_safetensors weft_safetensors;

/* Opens a file by mapping it: nothing is read but the header. The caller's, until weft_safetensors_close. NULL on error:
 * WEFT_EIO (it cannot be read, or is malformed), WEFT_EINVALID (NULL), WEFT_ENOMEM. While it is open, or tensors are taken from
 * it, the file must not be written in place: a process that reads where it was cut gets SIGBUS. To replace it, as a save does,
 * is no harm. */
WEFT_API weft_safetensors *weft_safetensors_open(const char *path);
/* The same on memory, which is copied. Errors likewise. */
WEFT_API weft_safetensors *weft_safetensors_decode(const void *data, size_t size);
/* Closes f. Tensors taken from it keep the mapping alive and stay valid. NULL is ignored. */
WEFT_API void weft_safetensors_close(weft_safetensors *f);

/* Tensors in the order of their bytes. Outside [0, count) the name is "", which lives for ever, and the tensor the empty handle of
 * a WEFT_EINVALID error. A tensor is a read-only view of the mapping in the current scope: no copy (one is made
 * where the file leaves it misaligned for its element type). */
WEFT_API int weft_safetensors_count(const weft_safetensors *f);
WEFT_API const char *weft_safetensors_name(const weft_safetensors *f, int i);
WEFT_API weft_tensor weft_safetensors_at(const weft_safetensors *f, int i);
/* What the header says of it, weft's type or another: "F32", "F8_E4M3"; "" and no axes outside [0, count), which is no error. The
 * text is the library's and stays; the shape is a value. */
WEFT_API const char *weft_safetensors_dtype(const weft_safetensors *f, int i);
WEFT_API weft_shape weft_safetensors_shape(const weft_safetensors *f, int i);
/* A tensor by its name, likewise; the empty handle of a WEFT_EINVALID error if the file has none of that name. Names and types live
 * as long as f. */
WEFT_API weft_tensor weft_safetensors_get(const weft_safetensors *f, const char *name);
/* The text of a metadata key, or NULL. Lives as long as f. */
WEFT_API const char *weft_safetensors_metadata(const weft_safetensors *f, const char *key);

/* -- loading into existing tensors ------------------------------------------------------------------ */
typedef struct weft_load_args {
    const weft_safetensors *file;
    const weft_named_tensor
        *tensors; /* overwritten in place, under no_grad, converted to their dtype */
    int n;
    bool lax;     /* names missing from the file, or in the file only, are no error */
    char *report; /* filled with the names that are missing and those not expected; may be NULL */
    size_t report_size;
    int end_;
} weft_load_args;
/* Copies the file's tensors into those of the same name. Shapes must be equal. Everything is checked
 * first: on error nothing was written. */
WEFT_API weft_status weft_safetensors_load(const weft_load_args *args);

/* -- NumPy ------------------------------------------------------------------------------------------
 * .npy of format 1.0, 2.0 and 3.0, either byte order, C and Fortran order; element types bool u8 i8 i16 i32
 * i64 f16 f32 f64 (NumPy has no bf16: cast first). Written is format 1.0 as numpy.save does it, byte for
 * byte. .npz is a zip of .npy members, as numpy.savez and savez_compressed make it; written is the former. (A build
 * without zlib refuses compressed members, WEFT_EUNSUPPORTED, with what to do.) A file is checked in full before memory is
 * taken by any size it states; a malformed one is WEFT_EIO with the reason. Pickled objects are refused: nothing is
 * executed. */
/* A new tensor of the current scope, on the CPU, with a copy of the elements. WEFT_EIO: it cannot be read, or is malformed;
 * WEFT_EINVALID: NULL; WEFT_ENOMEM. */
WEFT_API weft_tensor weft_npy_load(const char *path);
WEFT_API weft_tensor weft_npy_decode(const void *data, size_t size);
/* As weft_safetensors_save: path holds the old file or the new one. WEFT_EDTYPE for bf16; WEFT_EIO, WEFT_EINVALID, WEFT_EHANDLE as
 * there. */
WEFT_API weft_status weft_npy_save(const char *path, weft_tensor t);
/* Into memory: *data, which the caller frees with free(), and *size; NULL and 0 on failure. Errors likewise, WEFT_ENOMEM. */
WEFT_API weft_status weft_npy_encode(weft_tensor t, void **data, size_t *size);

typedef struct weft_npz weft_npz;
/* The caller's, until weft_npz_close. Members are decoded when they are asked for. NULL on error: WEFT_EIO (it cannot be read,
 * or is malformed), WEFT_EINVALID (NULL), WEFT_ENOMEM. */
WEFT_API weft_npz *weft_npz_open(const char *path);
WEFT_API weft_npz *weft_npz_decode(const void *data, size_t size); /* memory is copied */
WEFT_API void weft_npz_close(weft_npz *z);                         /* NULL is ignored */
/* Members in file order, names without ".npy", which live as long as z. "" and an empty handle outside [0, count). A member is a
 * new tensor of the current scope; WEFT_EIO if it is malformed; by name WEFT_EINVALID if there is none. */
WEFT_API int weft_npz_count(const weft_npz *z);
WEFT_API const char *weft_npz_name(const weft_npz *z, int i);
WEFT_API weft_tensor weft_npz_at(const weft_npz *z, int i);
WEFT_API weft_tensor weft_npz_get(const weft_npz *z, const char *name);
/* Names must be distinct and UTF-8; no slash at the start, no ".." and no control characters in them (WEFT_EINVALID). An archive is
 * at most 2 GiB (WEFT_EUNSUPPORTED). Other errors as weft_npy_save's. */
WEFT_API weft_status weft_npz_save(const char *path, const weft_named_tensor *t, int n);

#ifdef __cplusplus
}
inline weft_status weft_safetensors_load(const weft_safetensors *file,
                                         const weft_named_tensor *tensors, int n, bool lax = false,
                                         char *report = nullptr, size_t report_size = 0)
{
    weft_load_args a = {file, tensors, n, lax, report, report_size, 0};
    return weft_safetensors_load(&a);
}
WEFT_BY_STRUCT_(weft_status, weft_safetensors_load, weft_load_args)
#endif

#define weft_safetensors_load(...)                                                                 \
    WEFT_S_(WEFT_R_((weft_safetensors_load)WEFT_ARGS_(weft_load_args, __VA_ARGS__)))
#ifndef WEFT_NO_SITES
#define weft_safetensors_open(...) WEFT_P_(weft_safetensors, (weft_safetensors_open)(__VA_ARGS__))
#define weft_safetensors_decode(...)                                                               \
    WEFT_P_(weft_safetensors, (weft_safetensors_decode)(__VA_ARGS__))
#define weft_npz_open(...) WEFT_P_(weft_npz, (weft_npz_open)(__VA_ARGS__))
#define weft_npz_decode(...) WEFT_P_(weft_npz, (weft_npz_decode)(__VA_ARGS__))
#define weft_safetensors_save(...) WEFT_S_(WEFT_R_((weft_safetensors_save)(__VA_ARGS__)))
#define weft_safetensors_encode(...) WEFT_S_(WEFT_R_((weft_safetensors_encode)(__VA_ARGS__)))
#define weft_npy_save(...) WEFT_S_(WEFT_R_((weft_npy_save)(__VA_ARGS__)))
#define weft_npy_encode(...) WEFT_S_(WEFT_R_((weft_npy_encode)(__VA_ARGS__)))
#define weft_npz_save(...) WEFT_S_(WEFT_R_((weft_npz_save)(__VA_ARGS__)))
#define weft_safetensors_at(...) WEFT_T_((weft_safetensors_at)(__VA_ARGS__))
#define weft_safetensors_get(...) WEFT_T_((weft_safetensors_get)(__VA_ARGS__))
#define weft_npy_load(...) WEFT_T_((weft_npy_load)(__VA_ARGS__))
#define weft_npy_decode(...) WEFT_T_((weft_npy_decode)(__VA_ARGS__))
#define weft_npz_at(...) WEFT_T_((weft_npz_at)(__VA_ARGS__))
#define weft_npz_get(...) WEFT_T_((weft_npz_get)(__VA_ARGS__))
#endif

#endif
