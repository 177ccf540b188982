/*
 * jit/passes/images.h -- what the parts of the pass `layout` share: rows that make images, and the order that each is given.
 *
 * images_order.c decides, images.c makes the function.
 */
#ifndef JIT_PASSES_IMAGES_H
#define JIT_PASSES_IMAGES_H

#include "jit/passes/pass.h"

typedef enum wf_image_kind {
    WF_IMAGE_FIXED, /* a result in rows, or none; reads images as is_indifferent says */
    WF_IMAGE_FREE,  /* convolutions: image and result in any order, either converted inside */
    WF_IMAGE_BOUND, /* batch_norm, pools, their gradients: the result lies as the images do */
    WF_IMAGE_ELEMENTS /* elementwise rows, casts, fused derivatives: likewise, of any number of images */
} wf_image_kind;

/* An instruction. */
typedef struct wf_image_row {
    uint8_t kind;
    bool is_last; /* its image is to lie channels-last */
    bool inside;  /* part of a gradient that is made as one: wf_images_unpool */
    uint32_t node;
} wf_image_row;

/* A value of the function that is given. */
typedef struct wf_image {
    uint32_t uses;
    bool spread;               /* fewer elements in memory than its extents say: it has no order */
    bool wanted;               /* rows that do not convert themselves want it channels-last */
    uint32_t to_last, to_rows; /* nodes: it is read in another order than it is made in */
    wf_val row, memory,
        view; /* in the function being made: as recorded, in its memory's extents, and a view of that as recorded */
} wf_image;

typedef struct wf_images {
    wf_pass *pass;
    const wf_fn *f;
    wf_why *why;
    wf_image_row *at; /* by instruction */
    wf_image *of;     /* by value */
    wf_build b;
    wf_val *src; /* operands of a row being made */
    wf_pass_images told;
} wf_images;

enum { WF_IMAGES_MOST = 5 }; /* that a row reads */

/* Bytes of a value, WF_IMAGES_LARGE at most; 0 where they are not known. */
#define WF_IMAGES_LARGE (INT64_C(1) << 40)
int64_t wf_images_bytes(const wf_type *t);
/* Can value v lie channels-last, and is instruction k a permute by these axes? */
bool wf_images_can_lie(const wf_fn *f, wf_val v);
bool wf_images_permutes(const wf_fn *f, uint32_t k, const int64_t axes[4]);
/* The images that k reads in the order of its result, or that it, a convolution, converts itself; their number. */
int wf_images_of(const wf_images *m, uint32_t k, wf_val v[WF_IMAGES_MOST]);
/* Does k take its images as they lie, and if they are row-major convert them itself? */
bool wf_images_opens(const wf_images *m, uint32_t k);
/* Does k, which is fixed, read images as they lie as well as in rows? */
bool wf_images_indifferent(const wf_fn *f, uint32_t k);
/* Does k take an image that may lie either way, or was recorded channels-last, in the extents of channels-last memory? */
bool wf_images_turns(const wf_images *m, uint32_t k);
/* Is convolution k a product of matrices, with a kernel that looks at every pixel once? */
bool wf_images_product(const wf_fn *f, uint32_t k);
/* What max_pool2d's gradient is of row-major images (autograd/vjp_nn.c): the scatter_add that reshape k is of, and the images that
 * it reads through reshapes; nobody else reads any of it. NULL: k is no such reshape. */
const wf_ins *wf_images_unpool(const wf_images *m, uint32_t k, wf_val image[2]);
/* Fills in what is known of rows and values, and is_last. *any: is it true of one? 0 or a status. */
int wf_images_order(wf_images *m, bool *any);

#endif
