/*
 * eager/map.h -- running a function over tiles of strided, casting operands.
 */
#ifndef EAGER_MAP_H
#define EAGER_MAP_H

#include "eager/kernels/kernels.h"
#include "eager/tile.h"

/* dst[k] and src[k] are contiguous tiles of n elements of the types asked for; bit k of bcast: src[k]
 * is one element. dst[k] may be src[j]. */
typedef void (*wf_tile_fn)(const void *arg, void *const *dst, const void *const *src, size_t n,
                           unsigned bcast);

typedef struct wf_tiles {
    int ndst, nsrc;           /* ndst >= 1; together at most WF_WALK_OPS; nsrc at most 32 */
    const wf_view *dst, *src; /* equal dims; sources may have stride 0 */
    /* Element types of the tiles. A source of type DEFAULT (never the first) is not read; it gets the
     * first one's address. */
    const uint8_t *dst_type, *src_type;
    int64_t tile;  /* most elements of a tile; 0: the engine's choice */
    int64_t grain; /* elements that are worth a chunk */
    bool
        past; /* fn takes WF_PAST_CACHES in bcast (eager/kernels/kernels.h): every destination is on a line */
    /* Bit k: source k is drawn by `draw` (elements first .. first + n - 1, numbered in row-major order) instead of
     * loaded; its view has row-major strides and any address, and the type it is wanted in. */
    uint32_t drawn;
    void (*draw)(const void *arg, int k, void *dst, int64_t first, int64_t n);
    /* NULL, or fn that asks for the tiles behind its own as well; called where no cache holds what is moved. */
    wf_tile_fn ahead;
    int64_t beside;  /* bytes that what runs with it moves */
    bool past_tiles; /* stores may pass the caches by way of tiles whatever the grain */
    bool by_rows;    /* a call of fn costs so little that it may get a row of 64 elements */
    wf_tile_fn fn;
    const void *arg;
} wf_tiles;

void wf_tiles_run(const wf_tiles *t);

/* The bit by which fn is told of that; 0 where so many sources need it for themselves: then it is not told. */
static inline unsigned wf_past_bit(int nsrc)
{
    return nsrc <= 30 ? WF_PAST_CACHES : 0;
}

/* Bytes moved from which on no cache holds them: then stores pass the caches, and tiles ask for the next ones. */
#define WF_STREAM_FROM ((int64_t)24 << 20)

/* Elements of any elementwise row that are run by one call of its kernel. */
enum { WF_MAP_SMALL = 8192 };

#endif
