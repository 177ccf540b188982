/*
 * jit/codegen_cpu/llvm_rows.c -- runs the stages of a kernel over rows (llvm_rows.h).
 *
 * The last elements of a row that are no whole group of 64 are a turn of their own. A source's are read where they are, and so is what
 * the next row has behind them; where there is none, in a buffer. Results go through buffers, which are copied behind the last
 * stage. A turn reads lanes of totals in one place and may leave them in another: those that a short one must not see are taken
 * from before it. A sum's blocks of 4096 go to 64 lanes of their own, which are combined when there is more than one: enough for rows
 * of 4096 * 4096 elements.
 *
 * Rows that are many and short go through their stages a few at once.
 *
 * Rows may be short: a row costs as many calls as it has ELEM stages, and what is loaded is not what a narrower store has just written.
 */
#include "jit/codegen_cpu/llvm_rows.h"

#include <string.h>

#include "jit/codegen_cpu/llvm_fold.h"

/* Of what a row takes: written for one row at a time and for several. */
#define INLINED __attribute__((always_inline)) static inline

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

/* A launch as one of the rows sees it that it goes over at once. */
typedef struct rows {
    stage_code *code;
    const wf_llr_head *head;
    const wf_llr_operand *operand;
    void *const *ptr;
    const int64_t *size;
    const uint64_t *scalar;
    uint64_t flags;
    int64_t n, whole; /* elements of a row, of its whole groups */
    bool rests;       /* rows end in a short group */
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
        const wf_llr_folding *f = wf_llr_folding_of((wf_llr_fold)t->fold);
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

/* The steps of a row; runs the stages of the launch, unless another row has done that. */
static void make_steps(rows *x, const wf_llr_stage *s, const rows *other)
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
            if (other)
                memcpy(x->frame.slot, other->frame.slot, sizeof x->frame.slot);
            else
                x->code(x->place, (const int64_t *)(const void *)&x->frame, x->scalar, 0, 1,
                        p->others);
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

INLINED void run_elements(rows *x, step *p)
{
    x->frame.turn = p->last;
    call(x, p->first, 0);
    for (const total *t = p->total, *end = p->end; t < end; t++)
        set_total(x, t, t->by.lanes(t->lanes, t->before, p->seen, p->lanes));
}

/* -- the cut ------------------------------------------------------------------------------------------------------ */
/* The row's totals of the cut to where the launch has them, or from there. */
static void move_totals(rows *x, const step *p, int64_t r)
{
    const wf_llr_head *h = x->head;
    const int64_t pitch = x->size[h->noperand + 1];
    char *at = x->ptr[h->noperand + h->nkeep + 1];
    for (int i = 0; i < p->ntotal; i++)
        if (p->total[i].slot) {
            const size_t bytes = p->total[i].bytes;
            char *there = at + r * (int64_t)bytes;
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

INLINED void run_step(rows *x, step *p, int64_t r)
{
    if (p->kind == ELEMENTS)
        run_elements(x, p);
    else if (p->kind == BLOCKS)
        run_blocks(x, p);
    else if (p->kind == CALL)
        call(x, p->first, 0);
    else
        move_totals(x, p, r);
}

/* Bytes between what is read of a source and what is asked for: a row, but no less than a page, and of rows
 * that the second cache may not hold beside others only that. All rows are one where the stride is 0. */
static int64_t ahead(int64_t stride)
{
    enum { NEAR = 4096, FAR = 128 << 10 };
    return stride == 0 ? 0 : (uint64_t)stride - NEAR > FAR - NEAR ? NEAR : stride;
}

/* An operand that is elsewhere in other rows. */
typedef struct moving {
    int operand;
    int64_t bytes;      /* from a row to the one that takes its place */
    int64_t rest_bytes; /* the same of its last elements: a result's are in a buffer */
} moving;

static void place_row(rows *x, int64_t row, int64_t begin, int64_t end)
{
    for (int i = 0; i < x->head->noperand; i++)
        x->place[i] = (char *)x->ptr[i] + row * x->size[i + 1] * x->operand[i].bytes;
    if (x->rests)
        place_rests(x, begin, end);
}

static inline void move_on(rows *x, const moving *m, const moving *end)
{
    for (const moving *i = m; i < end; i++)
        x->place[i->operand] = (char *)x->place[i->operand] + i->bytes;
    for (const moving *i = m; x->rests && i < end; i++)
        x->rest[i->operand] = (char *)x->rest[i->operand] + i->rest_bytes;
}

static void set_ahead(rows *x)
{
    for (int i = 0; i < x->head->noperand; i++)
        x->frame.ahead[i] = (char *)x->place[i] + ahead(x->size[i + 1] * x->operand[i].bytes);
}

/* Rows r, r + 1, ... are those of x, x + 1, ... up to last. */
INLINED void run_some(rows *x, const rows *last, int64_t r)
{
    for (rows *y = x; x->flags & WF_LAUNCH_STREAM && y < last; y++)
        set_ahead(y);
    for (rows *y = x; x->rests && y < last; y++)
        if (r + (y - x) >= y->open)
            fetch_rests(y);
    for (int64_t s = 0; s < x->nstep; s++)
        for (rows *y = x; y < last; y++)
            run_step(y, &y->step[s], r);
    for (rows *y = x; x->rests && y < last; y++)
        store_rests(y);
}

INLINED void run_rows(rows *x, int most, int64_t begin, int64_t end)
{
    moving moves[WF_KERNEL_MAX_PTR], *m = moves;
    for (int i = 0; i < x->head->noperand; i++) {
        m->operand = i;
        m->bytes = x->size[i + 1] * x->operand[i].bytes * most;
        m->rest_bytes = i < x->head->ndst ? 0 : m->bytes;
        m += m->bytes != 0;
    }
    for (int b = 0; b < most; b++)
        place_row(&x[b], begin + b, begin, end);
    for (int64_t r = begin; r < end; r += most) {
        const rows *last = x + (end - r < most ? end - r : most);
        run_some(x, last, r);
        for (rows *y = x; y < last; y++)
            move_on(y, moves, m);
    }
}

/* 64 elements of an operand, or 64 lanes. */
typedef struct group {
    _Alignas(64) char bytes[LANES];
} group;

/* A kept operand's room for a row. */
static int64_t kept_bytes(int64_t n, const wf_llr_operand *o)
{
    return (n + GROUP - 1) / GROUP * GROUP * o->bytes;
}

enum { AT_ONCE = 4 };

/* Groups that a row has: lanes, and where it ends in a short group buffers. */
static int64_t row_groups(const wf_llr_head *h, bool rests)
{
    return 3 * h->nlanes + (rests ? h->noperand + h->nkeep : 0) + 1;
}

/* Stages of a row wait for one another, and where rows are short for little else: some rows go through each of them before the
 * next one. Every row has its own frame, lanes and buffers for that. Past the caches one row asks for the next one, and rows of half a page are
 * quicker by themselves (512 of a softmax 0.34 -> 0.29 ns an element on a Zen 5). One stage leaves less to wait for, the folding of its
 * totals: that pays where rows are whole groups, and many. */
static int rows_at_once(const wf_llr_head *h, const wf_llr_stage *s, int64_t n, int64_t kept,
                        int64_t count, uint64_t flags)
{
    enum { SHORT = 512, SHORT_FAR = 384, MANY = 16, MANY_SINGLE = 64, MOST_ROOM = 64 << 10 };
    const int64_t longest = flags & WF_LAUNCH_STREAM ? SHORT_FAR : SHORT;
    int passes = 0;
    const int64_t room = row_groups(h, true) * (int64_t)sizeof(group) + kept;
    const bool cut = flags & (WF_LAUNCH_PARTS | WF_LAUNCH_TOTALS);
    if (n > longest || count < MANY || cut || room > MOST_ROOM / AT_ONCE)
        return 1;
    for (int i = 0; i < h->nstage; i++, s = behind(s))
        passes += s->kind == WF_LLR_ELEM;
    const bool single = passes == 1 && count >= MANY_SINGLE && n % GROUP == 0;
    return passes > 1 || single ? AT_ONCE : 1;
}

/* What a launch has room for, of each row that it goes over at once. */
typedef struct room {
    const void **pointer; /* lanes that a turn left, then what is before blocks */
    total *total;
    step *step;
    group *group; /* lanes, then buffers of last elements */
    char *kept;   /* NULL: the launch's own */
} room;

/* x has what is the same in all rows, the rest follows. */
static void open_row(rows *x, const room *m)
{
    const wf_llr_head *head = x->head;
    const int noperand = head->noperand + head->nkeep, nlanes = head->nlanes;
    char *kept = m->kept;
    x->lanes[0] = m->group[0].bytes;
    x->lanes[1] = m->group[nlanes].bytes;
    x->level = m->group[2 * nlanes].bytes;
    x->left = m->pointer;
    x->room = m->pointer + WF_KIR_MAX_OUT;
    x->total = m->total;
    x->step = m->step;
    for (int i = 0; i < nlanes; i++)
        x->left[i] = m->group[i].bytes;
    for (int i = head->noperand; i < noperand; i++) {
        x->place[i] = kept ? kept : x->ptr[i];
        kept += kept ? kept_bytes(x->n, &x->operand[i]) : 0;
    }
    for (int i = 0; i < noperand && x->rests; i++) {
        const int64_t bytes = x->operand[i].bytes;
        x->buffer[i] = m->group[3 * nlanes + i].bytes;
        x->rest[i] = (void *)((uintptr_t)x->buffer[i] - (uintptr_t)(x->whole * bytes));
        if (x->operand[i].use & WF_LLR_READ)
            memset(x->buffer[i], 0, (size_t)(GROUP * bytes));
    }
}

void wf_llr_run(void *const *ptr, const int64_t *size, const uint64_t *scalar, int64_t begin,
                int64_t end, uint64_t flags, stage_code *code, const int16_t *shape)
{
    const wf_llr_head *head = (const wf_llr_head *)(const void *)shape;
    const int noperand = head->noperand + head->nkeep;
    const wf_llr_operand *operand = (const wf_llr_operand *)(const void *)(head + 1);
    const wf_llr_stage *stage = (const wf_llr_stage *)(const void *)(operand + noperand);
    const int64_t n = size[0], whole = n / GROUP * GROUP;
    const bool rests = whole < n || n == 0;
    const int npointer = WF_KIR_MAX_OUT + STARTS * head->ntotal;
    int64_t kept = 0;
    for (int i = head->noperand; i < noperand; i++)
        kept += kept_bytes(n, &operand[i]);
    const int most = rows_at_once(head, stage, n, kept, end - begin, flags);
    const int64_t ngroup = row_groups(head, rests);
    rows x[most];
    const void *pointer[most * npointer];
    total totals[most * (head->ntotal + 1)];
    step steps[most * (head->nstage + 2)]; /* the cut may be two; and one that stays empty */
    group groups[most * ngroup];
    group more[(most - 1) * kept / (int64_t)sizeof(group) + 1];
    for (int b = 0; b < most; b++) {
        rows *y = &x[b];
        y->code = code;
        y->head = head;
        y->operand = operand;
        y->ptr = ptr;
        y->size = size;
        y->scalar = scalar;
        y->flags = flags;
        y->n = n;
        y->whole = whole;
        y->rests = rests;
        y->frame.n = n;
        y->frame.error = ptr[noperand];
        open_row(y, &(room){pointer + (ptrdiff_t)b * npointer,
                            totals + (ptrdiff_t)b * (head->ntotal + 1),
                            steps + (ptrdiff_t)b * (head->nstage + 2), groups + b * ngroup,
                            b ? more->bytes + (b - 1) * kept : NULL});
        make_steps(y, stage, b ? x : NULL);
    }
    if (begin < end && most == 1) /* loops over one are none */
        run_rows(x, 1, begin, end);
    else if (begin < end)
        run_rows(x, AT_ONCE, begin, end);
}
