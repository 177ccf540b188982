/*
 * jit/codegen_cpu/llvm_rows.c -- runs the stages of a kernel over rows (llvm_rows.h).
 *
 * The last elements of a row that are no whole group of 64 live in buffers while the row is worked on: its sources are copied there
 * before the first stage, its results from there behind the last one. A stage is called for the whole groups, where they are,
 * and once more for the others, with other places. Lanes of a total that a short group must not see are taken from before: a call
 * reads lanes in one place and may leave them in another. A sum's blocks of 4096 go to 64 lanes of their own, which are combined
 * when there is more than one: enough for rows of 4096 * 4096 elements.
 *
 * Rows may be short: a row costs as many calls as it has ELEM stages, and what is loaded is not what a narrower store has just written.
 */
#include "jit/codegen_cpu/llvm_rows.h"

#include <string.h>

#include "jit/codegen_cpu/llvm_fold.h"

enum { GROUP = WF_LLR_GROUP, LANES = WF_LLR_LANES, TURNS = 4 };

typedef void stage_code(void *const *ptr, const int64_t *size, const uint64_t *scalar,
                        int64_t begin, int64_t end, uint64_t flags);

/* -- a launch, taken apart ------------------------------------------------------------------------------------- */
/* A call: elements of a block, from its first one on. */
typedef struct turn {
    void *const *place;
    char *to;
    int64_t begin, end;
    uint64_t flags;
    bool goes_on; /* from the lanes that the call before it left */
} turn;

/* Where lanes are before a block: in the row's first one, in others. */
enum { FIRST, LATER, STARTS };

/* A total and its folding. */
typedef struct total {
    wf_llr_folding by;
    uint64_t sign;  /* bits to change in the value */
    uint64_t *slot; /* NULL: a check */
    size_t bytes;
} total;

typedef enum step_kind { CALL, ELEMENTS, TOTALS_OUT, TOTALS_IN } step_kind;
typedef struct step {
    step_kind kind;
    uint64_t first,
        others; /* stages, as flags: of a row's first call, which may begin with single values, and of the others */
    const total *total;
    int ntotal;
    const void **start[STARTS];
    int64_t lanes, seen; /* seen: by the last call of the row */
    int64_t blocks;
    turn turn[2 * TURNS]; /* those of blocks with others behind them, then of the last one */
    int nfull, nlast;
} step;

typedef struct rows {
    stage_code *code;
    const wf_llr_head *head;
    const wf_llr_operand *operand;
    void *const *ptr;
    const int64_t *size;
    const uint64_t *scalar;
    uint64_t flags;
    int64_t n, whole, r; /* elements of a row, of its whole groups; the row */
    char *lanes[2], *level;
    const void **left; /* lanes that a call has left, of each total */
    const void **room; /* for what is before blocks */
    total *total;      /* and for what is known of totals */
    step *step;
    int nstep;
    wf_llr_frame frame;
    void *place[WF_KERNEL_MAX_PTR]; /* operands in the row */
    void *rest[WF_KERNEL_MAX_PTR];  /* those of which the last elements are in the buffers */
} rows;

static const wf_llr_total *totals_of(const wf_llr_stage *s)
{
    return (const wf_llr_total *)(const void *)(s + 1);
}

static const wf_llr_stage *behind(const wf_llr_stage *s)
{
    return (const wf_llr_stage *)(const void *)(totals_of(s) + s->ntotal);
}

static uint64_t stage_flags(int number)
{
    return (uint64_t)(number + 1) << WF_LLR_STAGE;
}

static size_t bytes_of(const wf_llr_total *t)
{
    return t->fold >= WF_LLR_OR ? 1 : t->fold < WF_LLR_ADD_F64 ? sizeof(float) : sizeof(double);
}

/* The calls for [begin, end) of a row: whole groups where they are, then the last elements, of which a turn that is short leaves
 * its lanes elsewhere. Returns how many; seen := the lanes that the last one saw. */
static int make_turns(const rows *x, const wf_llr_stage *s, int64_t begin, int64_t end, turn *u,
                      int64_t *seen)
{
    const int64_t base = begin, whole = end < x->whole ? end : x->whole;
    const turn in_row = {x->place, x->lanes[0], 0, 0, x->flags & WF_LAUNCH_STREAM, false};
    const turn in_rest = {x->rest, x->lanes[0], 0, 0, 0, false};
    int n = 0;
    if (s->stored && begin + GROUP < whole) { /* the others find lanes where these leave them */
        u[n++] = in_row;
        u[n - 1].end = begin += GROUP;
    }
    if (begin < whole) {
        u[n++] = in_row;
        u[n - 1].end = begin = whole;
    }
    if (s->ntotal > 0 && s->lanes < end - begin) {
        u[n++] = in_rest;
        u[n - 1].end = begin += (end - begin - 1) / s->lanes * s->lanes;
    }
    *seen = n > 0 ? s->lanes : 0;
    if (begin < end) {
        u[n++] = in_rest;
        u[n - 1].end = end;
        u[n - 1].to = x->lanes[1];
        *seen = end - begin;
    }
    for (int i = 0; i < n; i++) {
        u[i].begin = i ? u[i - 1].end : 0;
        u[i].end -= base;
        u[i].goes_on = i > 0;
    }
    return n;
}

static void make_elements(rows *x, const wf_llr_stage *s, step *p)
{
    const int64_t most = s->ordered && x->n > WF_LLR_BLOCK ? WF_LLR_BLOCK : x->n;
    p->total = x->total;
    p->ntotal = s->ntotal;
    for (int i = 0; i < s->ntotal; i++) {
        const wf_llr_total *t = &totals_of(s)[i];
        const wf_llr_folding *f = &wf_llr_foldings[t->fold];
        *x->total++ = (total){*f, t->mirrored ? f->sign : 0,
                              t->slot >= 0 ? &x->frame.slot[t->slot] : NULL, bytes_of(t)};
    }
    p->lanes = s->lanes;
    for (int b = 0; b < STARTS; b++, x->room += s->ntotal) {
        p->start[b] = x->room;
        for (int i = 0; i < s->ntotal; i++) {
            const wf_llr_folding *f = &p->total[i].by;
            p->start[b][i] = b == FIRST || f->ordered ? f->start : x->left[i];
        }
    }
    p->blocks = most > 0 ? (x->n + most - 1) / most : 1;
    p->nfull = p->blocks > 1 ? make_turns(x, s, 0, most, p->turn, &p->seen) : 0;
    p->nlast = make_turns(x, s, (p->blocks - 1) * most, x->n, p->turn + TURNS, &p->seen);
}

/* The steps of a row; runs the stages of the launch. */
static void make_steps(rows *x, const wf_llr_stage *s)
{
    const bool parts = x->flags & WF_LAUNCH_PARTS, totals = x->flags & WF_LAUNCH_TOTALS;
    int first = 0;
    x->nstep = 0;
    for (int i = 0; i < x->head->nstage; i++, s = behind(s)) {
        const bool cut = i == x->head->cut;
        step *p = &x->step[x->nstep];
        p->first = stage_flags(first);
        p->others = stage_flags(i);
        if (s->kind == WF_LLR_BEFORE)
            continue;
        first = i + 1;
        if (s->kind == WF_LLR_ONCE) {
            x->code(x->place, (const int64_t *)(const void *)&x->frame, x->scalar, 0, 1, p->others);
            continue;
        }
        p->kind = s->kind == WF_LLR_ELEM ? ELEMENTS : CALL;
        if (p->kind == ELEMENTS)
            make_elements(x, s, p);
        x->nstep += !(cut && totals);
        if (cut && (parts || totals)) {
            step *q = &x->step[x->nstep++];
            *q = *p;
            q->kind = parts ? TOTALS_OUT : TOTALS_IN;
        }
        if (cut && parts)
            return;
    }
}

/* -- elements ---------------------------------------------------------------------------------------------------- */
/* The last block's are known to be that here. */
static inline void fold_totals(rows *x, const step *p, int64_t block, bool last)
{
    for (int i = 0; i < p->ntotal; i++) {
        const total *t = &p->total[i];
        if (!last && !t->by.ordered)
            continue;
        uint64_t bits = t->by.lanes(x->frame.to + i * LANES, x->frame.from[i],
                                    last ? p->seen : p->lanes, p->lanes);
        if (t->by.ordered && p->blocks > 1)
            bits = t->by.block(x->level + i * LANES, bits, block, p->blocks);
        bits ^= t->sign;
        if (t->slot)
            *t->slot = bits;
        else if (!bits)
            *x->frame.error = 0;
    }
}

static inline void run_block(rows *x, const step *p, int64_t block, bool last)
{
    const int64_t at = block * WF_LLR_BLOCK;
    const turn *u = last ? p->turn + TURNS : p->turn;
    const turn *end = u + (last ? p->nlast : p->nfull);
    uint64_t stage = block ? p->others : p->first;
    x->frame.to = x->lanes[0]; /* of no elements, too */
    x->frame.from = p->start[block ? LATER : FIRST];
    for (; u < end; u++, stage = p->others) {
        x->frame.to = u->to;
        if (u->goes_on)
            x->frame.from = x->left;
        x->code(u->place, (const int64_t *)(const void *)&x->frame, x->scalar, at + u->begin,
                at + u->end, u->flags | stage);
    }
    fold_totals(x, p, block, last);
}

static void run_elements(rows *x, const step *p)
{
    for (int64_t b = 0; b + 1 < p->blocks; b++)
        run_block(x, p, b, false);
    run_block(x, p, p->blocks - 1, true);
}

/* -- the cut ------------------------------------------------------------------------------------------------------ */
/* The row's totals of the cut to where the launch has them, or from there. */
static void move_totals(rows *x, const step *p)
{
    const wf_llr_head *h = x->head;
    const int64_t pitch = x->size[h->noperand + 1];
    char *at = x->ptr[h->noperand + h->nkeep + 1];
    for (int i = 0; i < p->ntotal; i++)
        if (p->total[i].slot) {
            const size_t bytes = p->total[i].bytes;
            char *there = at + x->r * (int64_t)bytes;
            uint64_t *here = p->total[i].slot;
            if (p->kind == TOTALS_OUT)
                memcpy(there, here, bytes);
            else
                memcpy(here, there, bytes);
            at += pitch;
        }
}

/* -- rows --------------------------------------------------------------------------------------------------------- */
/* Has an operand elements in a buffer? */
static bool is_moved(const wf_llr_operand *o)
{
    return o->use & (WF_LLR_READ | WF_LLR_WRITTEN);
}

/* The last elements of the row, which are no whole group: sources to their buffers. */
static void fetch_rests(rows *x)
{
    const wf_llr_head *h = x->head;
    for (int i = 0; i < h->noperand; i++) {
        const wf_llr_operand *o = &x->operand[i];
        const int64_t at = x->whole * o->bytes;
        if (!is_moved(o))
            x->rest[i] = x->place[i];
        else if (i >= h->ndst)
            memcpy((char *)x->rest[i] + at, (char *)x->place[i] + at,
                   (size_t)((x->n - x->whole) * o->bytes));
    }
}

/* And results from there. */
static void store_rests(rows *x)
{
    for (int i = 0; i < x->head->ndst; i++) {
        const wf_llr_operand *o = &x->operand[i];
        const int64_t at = x->whole * o->bytes;
        if (is_moved(o))
            memcpy((char *)x->place[i] + at, (char *)x->rest[i] + at,
                   (size_t)((x->n - x->whole) * o->bytes));
    }
}

static void run_row(rows *x)
{
    const bool rests = x->whole < x->n;
    if (rests)
        fetch_rests(x);
    for (const step *p = x->step, *end = p + x->nstep; p < end; p++)
        if (p->kind == ELEMENTS)
            run_elements(x, p);
        else if (p->kind == CALL)
            x->code(x->place, (const int64_t *)(const void *)&x->frame, x->scalar, 0, 1, p->first);
        else
            move_totals(x, p);
    if (rests)
        store_rests(x);
}

/* Bytes between what is read of a source and what is asked for: a row, but no less than a page, and of rows
 * that the second cache may not hold beside others only that. All rows are one where the stride is 0. */
static int64_t ahead(int64_t stride)
{
    enum { NEAR = 4096, FAR = 128 << 10 };
    return stride == 0 ? 0 : (uint64_t)stride - NEAR > FAR - NEAR ? NEAR : stride;
}

static void run_rows(rows *x, int64_t begin, int64_t end)
{
    const int n = x->head->noperand;
    int64_t stride[WF_KERNEL_MAX_PTR], far[WF_KERNEL_MAX_PTR];
    for (int i = 0; i < n; i++) {
        stride[i] = x->size[i + 1] * x->operand[i].bytes;
        far[i] = ahead(stride[i]);
        x->place[i] = (char *)x->ptr[i] + begin * stride[i];
    }
    for (x->r = begin; x->r < end; x->r++) {
        for (int i = 0; x->flags & WF_LAUNCH_STREAM && i < n; i++)
            x->frame.ahead[i] = (char *)x->place[i] + far[i];
        run_row(x);
        for (int i = 0; i < n; i++)
            x->place[i] = (char *)x->place[i] + stride[i];
    }
}

/* 64 elements of an operand, or 64 lanes. */
typedef struct group {
    _Alignas(64) char bytes[LANES];
} group;

void wf_llr_run(stage_code *code, const int16_t *shape, void *const *ptr, const int64_t *size,
                const uint64_t *scalar, int64_t begin, int64_t end, uint64_t flags)
{
    const wf_llr_head *head = (const wf_llr_head *)(const void *)shape;
    const int noperand = head->noperand + head->nkeep, nlanes = head->nlanes;
    const wf_llr_operand *operand = (const wf_llr_operand *)(const void *)(head + 1);
    rows x;
    x.code = code;
    x.head = head;
    x.operand = operand;
    x.ptr = ptr;
    x.size = size;
    x.scalar = scalar;
    x.flags = flags;
    x.n = size[0];
    x.whole = x.n / GROUP * GROUP;
    x.frame.n = x.n;
    x.frame.error = ptr[noperand];
    const void *left[WF_KIR_MAX_OUT], *starts[STARTS * head->ntotal + 1];
    total totals[head->ntotal + 1];
    group room[3 * nlanes + (x.whole < x.n ? noperand : 0) + 1];
    x.lanes[0] = room[0].bytes;
    x.lanes[1] = room[nlanes].bytes;
    x.level = room[2 * nlanes].bytes;
    x.left = left;
    x.room = starts;
    x.total = totals;
    for (int i = 0; i < nlanes; i++)
        left[i] = room[i].bytes;
    for (int i = head->noperand; i < noperand; i++)
        x.place[i] = ptr[i];
    for (int i = 0; i < noperand && x.whole < x.n; i++) {
        char *buffer = room[3 * nlanes + i].bytes;
        x.rest[i] = (void *)((uintptr_t)buffer - (uintptr_t)(x.whole * operand[i].bytes));
        if (operand[i].use & WF_LLR_READ)
            memset(buffer, 0, (size_t)(GROUP * operand[i].bytes));
    }
    step steps[head->nstage + 2]; /* the cut may be two; and one that stays empty */
    x.step = steps;
    make_steps(&x, (const wf_llr_stage *)(const void *)(operand + noperand));
    if (begin < end)
        run_rows(&x, begin, end);
}
