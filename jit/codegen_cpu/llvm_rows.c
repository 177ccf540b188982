/*
 * jit/codegen_cpu/llvm_rows.c -- runs the stages of a kernel over rows (llvm_rows.h).
 *
 * The last elements of a row that are no whole group of 64 are a turn of their own. A source's are read where they are, and so is what
 * the next row has behind them; where there is none, in a buffer. Results go through buffers, which are copied behind the last
 * stage. A turn reads lanes of totals in one place and may leave them in another: those that a short one must not see are taken
 * from before it. A sum's blocks of 4096 go to 64 lanes of their own, which are combined when there is more than one: enough for rows
 * of 4096 * 4096 elements.
 *
 * Rows may be short: a row costs as many calls as it has ELEM stages, and what is loaded is not what a narrower store has just written.
 */
#include "jit/codegen_cpu/llvm_rows.h"

#include <string.h>

#include "jit/codegen_cpu/llvm_fold.h"

enum { GROUP = WF_LLR_GROUP, LANES = WF_LLR_LANES, TURNS = 5 }; /* one ends them */

typedef void stage_code(void *const *ptr, const int64_t *size, const uint64_t *scalar,
                        int64_t begin, int64_t end, uint64_t flags);

/* -- a launch, taken apart ------------------------------------------------------------------------------------- */
/* Where lanes are before a block: in the row's first one, in others. */
enum { FIRST, LATER, STARTS };

/* A total and its folding. */
typedef struct total {
    wf_llr_folding by;
    void *lanes; /* behind the row's last turn, of which some may be as before it */
    const void *before;
    uint64_t sign;  /* bits to change in the value */
    uint64_t *slot; /* NULL: a check */
    size_t bytes;
} total;

typedef enum step_kind { ELEMENTS, BLOCKS, CALL, TOTALS_OUT, TOTALS_IN } step_kind;
typedef struct step {
    step_kind kind;
    int ntotal;
    uint64_t first,
        others; /* stages, as flags: of a row's first call, which may begin with single values, and of the others */
    int64_t blocks;
    int64_t lanes, seen; /* seen: by the last turn of the row */
    total *total, *end;
    const void **start[STARTS];
    wf_llr_turn last[TURNS], full[TURNS]; /* of the last block, of those before it */
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
    bool rests;          /* rows end in a short group */
    char *lanes[2], *level;
    const void **left; /* lanes that a turn has left, of each total */
    const void **room; /* for what is before blocks */
    total *total;      /* and for what is known of totals */
    step *step;
    int nstep;
    int64_t
        open; /* rows from this one on have no others behind them for what is read beyond them */
    wf_llr_frame frame;
    void *place[WF_KERNEL_MAX_PTR]; /* operands in the row */
    void *rest[WF_KERNEL_MAX_PTR];  /* for the last elements, which may be in buffers */
    char *buffer[WF_KERNEL_MAX_PTR];
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

/* The turns for [begin, end) of a row: whole groups where they are, then the last elements, of which a turn that is short leaves
 * its lanes elsewhere. Returns the last one; seen := the lanes that it saw. */
static const wf_llr_turn *make_turns(const rows *x, const wf_llr_stage *s, int64_t begin,
                                     int64_t end, wf_llr_turn *u, int64_t *seen)
{
    const int64_t whole = end < x->whole ? end : x->whole;
    const wf_llr_turn in_row = {x->place, 0, x->left, x->lanes[0],
                                (int64_t)(x->flags & WF_LAUNCH_STREAM)};
    const wf_llr_turn in_rest = {x->rest, 0, x->left, x->lanes[0], 0};
    const wf_llr_turn *first = u;
    *seen = s->lanes;
    if (s->stored && begin + GROUP < whole) { /* the others find lanes where these leave them */
        *u = in_row;
        begin += u++->count = GROUP;
    }
    if (begin < whole) {
        *u = in_row;
        begin += u++->count = whole - begin;
    }
    if (s->ntotal > 0 && s->lanes < end - begin) {
        *u = in_rest;
        begin += u++->count = (end - begin - 1) / s->lanes * s->lanes;
    }
    if (begin < end || u == first) { /* of no elements all lanes are as before */
        *u = in_rest;
        u->to = x->lanes[1];
        *seen = u++->count = end - begin;
    }
    u->place = NULL;
    return u - 1;
}

static void make_elements(rows *x, const wf_llr_stage *s, step *p)
{
    const int64_t most = s->ordered && x->n > WF_LLR_BLOCK ? WF_LLR_BLOCK : x->n;
    p->total = x->total;
    p->ntotal = s->ntotal;
    p->lanes = s->lanes;
    for (int b = 0; b < STARTS; b++, x->room += s->ntotal)
        p->start[b] = x->room;
    p->blocks = most > 0 ? (x->n + most - 1) / most : 1;
    if (p->blocks > 1)
        (void)make_turns(x, s, 0, most, p->full, &p->seen);
    const wf_llr_turn *end = make_turns(x, s, (p->blocks - 1) * most, x->n, p->last, &p->seen);
    p->last->from = p->start[p->blocks > 1 ? LATER : FIRST];
    p->end = p->total + s->ntotal;
    for (int i = 0; i < s->ntotal; i++) {
        const wf_llr_total *t = &totals_of(s)[i];
        const wf_llr_folding *f = &wf_llr_foldings[t->fold];
        p->start[FIRST][i] = f->start;
        p->start[LATER][i] = f->ordered ? f->start : x->left[i];
        *x->total++ = (total){*f,
                              end->to + i * LANES,
                              end->from[i],
                              t->mirrored ? f->sign : 0,
                              t->slot >= 0 ? &x->frame.slot[t->slot] : NULL,
                              bytes_of(t)};
    }
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
        if (p->kind == ELEMENTS) {
            make_elements(x, s, p);
            p->kind = p->blocks > 1 ? BLOCKS : ELEMENTS;
        }
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
static inline void call(rows *x, uint64_t stage, int64_t begin)
{
    x->code(x->place, (const int64_t *)(const void *)&x->frame, x->scalar, begin, 0, stage);
}

static inline void set_total(const rows *x, const total *t, uint64_t bits)
{
    if (t->slot)
        *t->slot = bits ^ t->sign;
    else if (!bits)
        *x->frame.error = 0;
}

static void run_blocks(rows *x, step *p)
{
    for (int64_t b = 0; b < p->blocks; b++) {
        const bool last = b + 1 == p->blocks;
        wf_llr_turn *u = last ? p->last : p->full;
        u->from = p->start[b ? LATER : FIRST];
        x->frame.turn = u;
        call(x, b ? p->others : p->first, b * WF_LLR_BLOCK);
        for (const total *t = p->total; t < p->end; t++) {
            const int64_t at = (t - p->total) * LANES;
            if (!last && !t->by.ordered)
                continue;
            uint64_t bits = last ? t->by.lanes(t->lanes, t->before, p->seen, p->lanes)
                                 : t->by.lanes(x->lanes[0] + at, NULL, p->lanes, p->lanes);
            if (t->by.ordered)
                bits = t->by.block(x->level + at, bits, b, p->blocks);
            if (last)
                set_total(x, t, bits);
        }
    }
}

static void run_elements(rows *x, step *p)
{
    x->frame.turn = p->last;
    call(x, p->first, 0);
    for (const total *t = p->total, *end = p->end; t < end; t++)
        set_total(x, t, t->by.lanes(t->lanes, t->before, p->seen, p->lanes));
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
/* May an operand have elements in a buffer? */
static bool is_moved(const wf_llr_operand *o)
{
    return o->use & (WF_LLR_READ | WF_LLR_WRITTEN);
}

/* The last elements of source i's row, which are no whole group, are in its buffer now. */
static void fetch_rest(rows *x, int i)
{
    const int64_t bytes = x->operand[i].bytes, at = x->whole * bytes;
    memcpy(x->buffer[i], (char *)x->place[i] + at, (size_t)((x->n - x->whole) * bytes));
    x->rest[i] = (void *)((uintptr_t)x->buffer[i] - (uintptr_t)at);
}

static void fetch_rests(rows *x)
{
    for (int i = x->head->ndst; i < x->head->noperand; i++)
        if (is_moved(&x->operand[i]) && x->size[i + 1] != 0)
            fetch_rest(x, i);
}

/* Where the last elements are: a source's in its row, as long as a whole group can be read there; what the lanes behind them come
 * to is nobody's. What is the same in all rows is fetched once. */
static void place_rests(rows *x, int64_t begin, int64_t end)
{
    const wf_llr_head *h = x->head;
    const int64_t beyond = x->whole + GROUP - x->n;
    x->open = x->n > 0 ? end : begin; /* rows of nothing have nothing to read */
    for (int i = h->ndst; i < h->noperand; i++) {
        const int64_t stride = x->size[i + 1];
        x->rest[i] = x->place[i];
        if (!is_moved(&x->operand[i]))
            continue;
        const int64_t open = stride > 0 ? end - (beyond + stride - 1) / stride : begin;
        if (stride == 0)
            fetch_rest(x, i);
        else if (open < x->open)
            x->open = open;
    }
}

/* Results from their buffers. */
static void store_rests(rows *x)
{
    for (int i = 0; i < x->head->ndst; i++) {
        const int64_t bytes = x->operand[i].bytes;
        if (is_moved(&x->operand[i]))
            memcpy((char *)x->place[i] + x->whole * bytes, x->buffer[i],
                   (size_t)((x->n - x->whole) * bytes));
    }
}

static void run_row(rows *x, step *p, const step *end)
{
    if (x->rests && x->r >= x->open)
        fetch_rests(x);
    for (; p < end; p++)
        if (p->kind == ELEMENTS)
            run_elements(x, p);
        else if (p->kind == BLOCKS)
            run_blocks(x, p);
        else if (p->kind == CALL)
            call(x, p->first, 0);
        else
            move_totals(x, p);
    if (x->rests)
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
    if (x->rests)
        place_rests(x, begin, end);
    for (x->r = begin; x->r < end; x->r++) {
        for (int i = 0; x->flags & WF_LAUNCH_STREAM && i < n; i++)
            x->frame.ahead[i] = (char *)x->place[i] + far[i];
        run_row(x, x->step, x->step + x->nstep);
        for (int i = 0; i < n; i++)
            x->place[i] = (char *)x->place[i] + stride[i];
        for (int i = x->head->ndst; x->rests && i < n; i++)
            x->rest[i] = (char *)x->rest[i] + stride[i];
    }
}

/* 64 elements of an operand, or 64 lanes. */
typedef struct group {
    _Alignas(64) char bytes[LANES];
} group;

void wf_llr_run(void *const *ptr, const int64_t *size, const uint64_t *scalar, int64_t begin,
                int64_t end, uint64_t flags, stage_code *code, const int16_t *shape)
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
    x.rests = x.whole < x.n || x.n == 0;
    x.frame.n = x.n;
    x.frame.error = ptr[noperand];
    const void *left[WF_KIR_MAX_OUT], *starts[STARTS * head->ntotal + 1];
    total totals[head->ntotal + 1];
    group room[3 * nlanes + (x.rests ? noperand : 0) + 1];
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
    for (int i = 0; i < noperand && x.rests; i++) {
        x.buffer[i] = room[3 * nlanes + i].bytes;
        x.rest[i] = (void *)((uintptr_t)x.buffer[i] - (uintptr_t)(x.whole * operand[i].bytes));
        if (operand[i].use & WF_LLR_READ)
            memset(x.buffer[i], 0, (size_t)(GROUP * operand[i].bytes));
    }
    step steps[head->nstage + 2]; /* the cut may be two; and one that stays empty */
    x.step = steps;
    make_steps(&x, (const wf_llr_stage *)(const void *)(operand + noperand));
    if (begin < end)
        run_rows(&x, begin, end);
}
