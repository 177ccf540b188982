/*
 * eager/program_rows.c -- runs programs with ROW values: cuts rows into groups and these into strips.
 *
 * A task takes groups of rows. ROW values of a group are vectors; a phase walks the group in strips and
 * runs its steps on each; values that a later phase reads stay in row buffers meanwhile. So everything a
 * phase reads again is in the first or second cache. Two ways to cut:
 *   straight  strips are whole rows where they are short, and pieces of one row where they are long
 *   turned    strips are [reduced][kept]: kept indices are the vector. For operands whose kept axis is
 *             contiguous (reductions over leading axes) and for rows too short to be vectors.
 * Where there are few groups (turned) or too few rows for the threads (straight), one phase and a long reduced axis,
 * blocks of 4096 are tasks of their own (split), and their results are reduced in the end.
 *
 * Invariants
 *  - Groups and strips are cut by shapes, strides and how many threads there are, and sums follow the canonical order: no
 *    result depends on threads, tiles or layout.
 *  - A destination may be an input's memory: see program_plan.c.
 */
#include <stdatomic.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/pool.h"
#include "eager/program_task.h"
#include "eager/reduce.h"

enum {
    STRIP = 1024,       /* elements that steps run on */
    SHORT_STRIP = 2048, /* of turned strips of whole rows */
    GROUP = 8192,       /* elements of a straight group, about */
    GROUP_ROWS = 64,    /* most rows of a straight group of long rows */
    SHORT_ROWS = 256,   /* most rows of a strip */
    WIDE =
        4096, /* bytes of a turned group: a strip is one column, read where it lies, and pages are read to their end */
    NARROW = 128, /* elements of one at least, where there are few groups for the threads */
    LEAST_PIECE =
        256, /* elements of a strip that is worth a call without being packed with others */
    KEEP = 512 << 10, /* most bytes of row buffers; longer rows are computed again */
    STACK = 48 << 10, /* scratch that needs no allocation */
    SPLIT_GROUPS = 8, /* fewer turned groups are split if they can */
    TASK = 1 << 17,   /* element steps worth a task */
    FAR_TASK =
        1
        << 17 /* elements of one past the caches: it begins with what nobody has asked for, and waits for its stores */
};

/* -- a task ------------------------------------------------------------------------------------------------ */
static void do_phase(wf_row_task *t, int phase, int64_t begin, int64_t end)
{
    const wf_row_run *r = t->r;
    const int64_t last = t->g0 + t->gn;
    t->c1 = end;
    for (t->r0 = t->g0; t->r0 < last; t->r0 += t->rn) {
        t->rn = last - t->r0 < r->rows ? last - t->r0 : r->rows;
        for (t->c0 = begin; t->c0 < end; t->c0 += t->cn) {
            t->cn = end - t->c0 < r->cols ? end - t->c0 : r->cols;
            wf_do_strip(t, phase);
        }
    }
}

static void reduce_nothing(wf_row_task *t)
{
    const wf_program *p = t->r->p;
    for (int i = 0; i < p->ninst; i++) {
        const int v = p->inst[i].value;
        if (p->inst[i].kind == WF_INST_REDUCE) {
            char one[8];
            wf_reduce_nothing(&p->inst[i], one);
            wf_fill_tile(wf_row_slot(t, v), one, wf_dtype_size(p->type[v]), (size_t)t->gn);
            t->at[v] = wf_row_slot(t, v);
        }
    }
}

static void do_group(wf_row_task *t)
{
    const wf_row_plan *plan = &t->r->plan;
    wf_load_rows(t);
    if (t->r->s.n == 0)
        reduce_nothing(t);
    for (int d = 0; d <= plan->depth || d < plan->nphase; d++) {
        if (d <= plan->depth)
            wf_do_row_steps(t, d);
        if (d < plan->nphase)
            do_phase(t, d, 0, t->r->s.n);
    }
    wf_store_rows(t);
}

static void take_group(wf_row_task *t, int64_t g)
{
    const wf_row_run *r = t->r;
    const int64_t in = g % r->per * r->group;
    t->g0 = g / r->per * r->inner + in;
    t->gn = r->inner - in < r->group ? r->inner - in : r->group;
}

/* Scratch and scalars of a task; false if there is no memory. */
static bool open_task(wf_row_task *t, wf_row_run *r, char *stack)
{
    t->r = r;
    t->mem = stack;
    t->end = 0;
    t->nask = 0;
    if (r->bytes > STACK) {
        t->mem = wf_scratch((size_t)r->bytes);
        if (t->mem == NULL) {
            atomic_store_explicit(&r->status, WEFT_ENOMEM, memory_order_relaxed);
            return false;
        }
    }
    for (int k = 0; k < r->p->nscalar; k++)
        t->at[r->p->scalar[k]] = r->a->scalars[k];
    wf_make_code(t);
    memset(t->held, 0, sizeof t->held);
    return true;
}

static void close_task(const wf_row_task *t, const char *stack)
{
    if (t->r->stream)
        t->r->k->fence();
    if (t->mem != stack)
        wf_scratch_free(t->mem, (size_t)t->r->bytes);
}

static void do_groups(void *arg, int64_t begin, int64_t end)
{
    _Alignas(64) char stack[STACK];
    wf_row_task t;
    if (!open_task(&t, arg, stack))
        return;
    take_group(&t, end - 1);
    t.end = t.g0 + t.gn;
    for (int64_t g = begin; g < end; g++) {
        take_group(&t, g);
        do_group(&t);
    }
    close_task(&t, stack);
}

/* -- split runs -------------------------------------------------------------------------------------------- */
static void do_blocks(void *arg, int64_t begin, int64_t end)
{
    _Alignas(64) char stack[STACK];
    wf_row_run *r = arg;
    wf_row_task t;
    if (!open_task(&t, r, stack))
        return;
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i % r->blocks * WF_BLOCK;
        take_group(&t, i / r->blocks);
        wf_load_rows(&t);
        wf_do_row_steps(&t, 0);
        do_phase(&t, 0, first, r->s.n - first < WF_BLOCK ? r->s.n : first + WF_BLOCK);
    }
    close_task(&t, stack);
}

/* What comes after the reductions. */
static void do_results(void *arg, int64_t begin, int64_t end)
{
    _Alignas(64) char stack[STACK];
    wf_row_run *r = arg;
    wf_row_task t;
    if (!open_task(&t, r, stack))
        return;
    for (int64_t g = begin; g < end; g++) {
        take_group(&t, g);
        wf_load_rows(&t);
        wf_do_row_steps(&t, 0);
        for (int i = 0; i < r->p->ninst; i++) {
            const wf_inst *inst = &r->p->inst[i];
            if (inst->kind != WF_INST_REDUCE)
                continue;
            t.at[inst->value] =
                wf_reduce_part(r, inst, 0) + t.g0 * (int64_t)wf_dtype_size(inst->compute);
        }
        for (int d = 1; d <= r->plan.depth; d++)
            wf_do_row_steps(&t, d);
        wf_store_rows(&t);
    }
    close_task(&t, stack);
}

/* Can blocks be tasks, and do they pay? A pick would read inputs again after outputs were written over them. */
static bool can_split(const wf_row_run *r)
{
    bool picks = false;
    for (int i = 0; i < r->p->ninst; i++)
        picks |= r->p->inst[i].kind == WF_INST_PICK;
    if (r->plan.nphase != 1 || r->p->nreduce == 0 || picks)
        return false;
    if (r->turned)
        return r->s.n > WF_BLOCK && r->groups < SPLIT_GROUPS;
    return wf_space_pays_in_blocks(&r->s);
}

static int run_split(wf_row_run *r)
{
    r->blocks = (r->s.n + WF_BLOCK - 1) / WF_BLOCK;
    const size_t bytes = (size_t)(r->plan.nred * r->blocks * r->s.rows) * 8;
    r->parts = wf_scratch(bytes);
    if (r->parts == NULL)
        return WEFT_ENOMEM;
    const int64_t cost = r->group * WF_BLOCK * r->p->ninst, n = r->groups * r->blocks;
    const int64_t share = (n - 1) / wf_num_threads() + 1, task = (TASK + cost - 1) / cost;
    wf_parallel_for(n, share < task ? share : task, do_blocks, r);
    int status = atomic_load_explicit(&r->status, memory_order_relaxed);
    if (status == 0 || status == WEFT_EINDEX) {
        const int s = wf_reduce_parts(r);
        if (s == 0)
            do_results(r, 0, r->groups);
        status = s != 0 ? s : atomic_load_explicit(&r->status, memory_order_relaxed);
    }
    wf_scratch_free(r->parts, bytes);
    return status;
}

/* -- cutting ----------------------------------------------------------------------------------------------- */
/* Is every strip of the operand a contiguous tile? */
static bool lies_in_place(const wf_row_run *r, const wf_operand *o)
{
    if (r->turned)
        return (o->row == 1 || r->s.nk == 0) &&
               (r->cols == 1 || (o->one_col && o->col == r->group && r->inner % r->group == 0));
    if (!o->one_col || (o->col != 1 && r->s.n != 1))
        return false;
    return r->rows == 1 || (o->one_row && o->row == r->s.n);
}

/* The form in which an input can be read in place, or -1. */
static int form_of(const wf_row_run *r, const wf_operand *o)
{
    const bool flat_row = r->turned ? o->row == 0 : o->one_row && o->row == 0;
    const bool flat_col = o->one_col && o->col == 0;
    if (lies_in_place(r, o))
        return WF_FORM_TILE;
    if (r->turned) {
        if (flat_row)
            return flat_col || r->cols == 1 ? (int)WF_FORM_ONE
                   : o->one_col             ? (int)WF_FORM_LINES
                                            : -1;
        return flat_col && o->row == 1 ? (int)WF_FORM_ACROSS : -1;
    }
    if (flat_col)
        return flat_row || r->rows == 1 ? (int)WF_FORM_ONE : o->one_row ? (int)WF_FORM_LINES : -1;
    return flat_row && o->one_col && o->col == 1 ? (int)WF_FORM_ACROSS : -1;
}

static void classify(wf_row_run *r)
{
    const wf_program *p = r->p;
    r->direct = 0;
    for (int k = 0; k < p->noutput; k++)
        if (p->output_level[k] == WF_LEVEL_ELEM && lies_in_place(r, &r->s.op[k]))
            r->direct |= 1u << k;
    for (int j = 0; j < p->ninput; j++) {
        const wf_operand *o = &r->s.op[p->noutput + j];
        const int form = form_of(r, o);
        const bool everywhere = o->one_row && o->row == 0; /* the same for all groups */
        if (p->draw[j].op != WF_OP_INVALID) {
            r->form[j] = WF_FORM_TILE;
            r->way[j] = WF_IN_GATHER;
            continue;
        }
        r->form[j] = (uint8_t)(form < 0 ? WF_FORM_TILE : form);
        r->way[j] = form >= 0                                        ? WF_IN_PLACE
                    : everywhere && r->rows > 1 && r->cols >= r->s.n ? WF_IN_HELD
                                                                     : WF_IN_GATHER;
    }
}

/* Does the operand go on, from row to row, where lines of memory begin? */
static bool is_in_lines(const wf_row_run *r, const wf_operand *o)
{
    enum { LINE = 64 };
    return (uintptr_t)o->data % LINE == 0 && (r->s.rows == 1 || o->row * o->esize % LINE == 0);
}

/* Where more is moved than caches hold, results pass them: those of straight strips in place, by rows that begin where lines of
 * memory do, if no source lies there. Sources are asked for ahead of use where it is easily said where the next strip of one lies. */
static void look_far(wf_row_run *r)
{
    const wf_program *p = r->p;
    int64_t bytes = r->a->beside;
    for (int k = 0; k < p->noutput + p->ninput; k++) {
        const wf_operand *o = &r->s.op[k];
        if (k >= p->noutput && p->draw[k - p->noutput].op != WF_OP_INVALID)
            continue;
        bytes += (o->one_row && o->row == 0 ? 1 : r->s.rows) *
                 (o->one_col && o->col == 0 ? 1 : r->s.n) * o->esize;
    }
    r->ahead = 0;
    r->stream = false;
    if (bytes < WF_STREAM_FROM)
        return;
    r->stream = !r->turned;
    for (int j = 0; j < p->ninput; j++) {
        const wf_operand *o = &r->s.op[p->noutput + j];
        if (p->level[p->input[j]] == WF_LEVEL_ELEM && p->draw[j].op == WF_OP_INVALID &&
            o->one_row && o->one_col && (r->turned ? o->row : o->col) == 1 &&
            (r->turned ? o->col : o->row) != 0)
            r->ahead |= 1u << j;
        for (int k = 0; k < p->noutput; k++)
            r->stream &= o->data != r->s.op[k].data;
    }
    for (int k = 0; k < p->noutput; k++)
        if (p->output_level[k] == WF_LEVEL_ELEM)
            r->stream &= (r->direct >> k & 1) != 0 && is_in_lines(r, &r->s.op[k]);
}

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Operands decide by what is contiguous; short rows are turned in any case. */
static bool choose_turned(const wf_row_run *r)
{
    const wf_space *s = &r->s;
    const int64_t inner = s->nk > 0 ? s->kd[s->nk - 1] : 1;
    int kept = 0, reduced = 0;
    if (s->n <= 1 || inner < 4 || s->n / WF_BLOCK >= WF_BLOCK || wf_program_draws(r->p) != 0)
        return false;
    for (int k = 0; k < r->p->noutput + r->p->ninput; k++) {
        const wf_operand *o = &s->op[k];
        const int64_t row = o->row, col = s->nr > 0 ? o->rs[s->nr - 1] : 0;
        kept += row == 1 && col != 0 && col != 1;
        reduced += col == 1 && row != 0 && row != 1;
    }
    return kept > reduced || (s->n < WF_LANES && inner >= 16);
}

/* Elements of a turned group: the lanes of its sums stay in the second cache. */
/* The largest element that a tile has: of a value, or of an input as it lies in memory. */
static int64_t widest_of(const wf_row_run *r)
{
    int64_t widest = r->p->width;
    for (int j = 0; j < r->p->ninput; j++) {
        const int64_t size = (int64_t)wf_dtype_size(r->p->type[r->p->input[j]]);
        widest = size > widest ? size : widest;
    }
    return widest;
}

static int64_t turned_width(const wf_row_run *r)
{
    const int64_t blocks = r->p->nphase == 1 && r->s.n > WF_BLOCK ? r->s.n / WF_BLOCK : 1;
    const int64_t threads = wf_num_threads();
    int64_t group = WIDE / widest_of(r);
    while (group > NARROW && threads > 1 &&
           r->s.rows / r->inner * ((r->inner + group - 1) / group) * blocks < threads)
        group /= 2;
    return group;
}

static void cut_turned(wf_row_run *r)
{
    const int64_t n = r->s.n;
    r->inner = r->s.kd[r->s.nk - 1];
    int64_t group = turned_width(r);
    if (n <= WF_LANES) { /* one strip */
        r->strip = SHORT_STRIP;
        group = smaller(SHORT_ROWS, SHORT_STRIP / n / 16 * 16);
    }
    r->per = (r->inner + group - 1) / group;
    r->group = smaller(round_up((r->inner + r->per - 1) / r->per, 16), r->inner);
    r->per = (r->inner + r->group - 1) / r->group;
    r->groups = r->s.rows / r->inner * r->per;
    r->rows = r->group;
    r->cols = 1;
    const bool packs = r->group == r->inner || r->group < LEAST_PIECE;
    while (packs && r->cols < WF_LANES && 2 * r->cols * r->group <= r->strip)
        r->cols *= 2;
    if (n * r->group <= r->strip && n <= WF_LANES)
        r->cols = n;
}

static void cut_straight(wf_row_run *r)
{
    const int64_t n = r->s.n > 0 ? r->s.n : 1;
    r->rows = 1;
    r->cols = n;
    if (2 * n <= r->strip) {
        r->rows = smaller(r->strip / n, SHORT_ROWS);
    } else if (n > r->strip && n <= WF_BLOCK) { /* pieces of about one size */
        const int64_t pieces = (n + r->strip - 1) / r->strip;
        r->cols = round_up((n + pieces - 1) / pieces, WF_LANES);
    } else if (n > r->strip) {
        r->cols = r->strip;
    }
    r->group = smaller(GROUP / n, GROUP_ROWS);
    r->group = round_up(r->group < 1 ? 1 : r->group, r->rows);
    r->inner = r->s.rows;
    r->per = r->groups = (r->s.rows + r->group - 1) / r->group;
}

/* Where things lie in a task's scratch. */
static void lay_out(wf_row_run *r)
{
    const wf_row_plan *plan = &r->plan;
    int64_t at = 0;
    r->pitch = r->strip * 8;
    r->row_pitch = round_up(r->group * 8, 64);
    r->lane_pitch = round_up(r->group * r->p->width, 64) * WF_LANES;
    r->reg = at;
    at += plan->nreg * r->pitch;
    r->spread = at;
    at += WF_SPREADS * r->pitch;
    r->load = at;
    for (int j = 0; j < r->p->ninput; j++)
        if (r->p->level[r->p->input[j]] == WF_LEVEL_ELEM && r->way[j] != WF_IN_PLACE)
            at = r->load + (j + 1) * r->pitch;
    r->row = at;
    at += (plan->nslot + r->p->ninput + 2) * r->row_pitch;
    r->canon = round_up(at, 64);
    const bool pieces = r->cols < r->s.n;
    at = r->canon + (pieces && !r->turned ? plan->nred * (int64_t)sizeof(wf_canon) : 0);
    r->lanes = round_up(at, 64);
    at = r->lanes +
         (r->turned && (pieces || r->s.n > WF_LANES) ? 2 * plan->nred * r->lane_pitch : 0);
    r->code = at;
    at += round_up(plan->begin[plan->nphase] *
                       (int64_t)(sizeof(wf_code) + 2 * (sizeof(wf_link) + sizeof(wf_ref))),
                   64);
    r->keep = at;
    at += round_up(plan->keep_bytes * r->group * r->s.n, 64);
    r->bytes = round_up(at, 64);
}

static int begin_run(wf_row_run *r)
{
    const wf_program *p = r->p;
    wf_space_init(&r->s, p, r->a);
    if (r->s.rows == 0)
        return 0;
    r->strip = STRIP;
    r->turned = choose_turned(r);
    if (r->turned)
        cut_turned(r);
    else
        cut_straight(r);
    classify(r);
    look_far(r);
    const uint32_t direct = r->stream ? 0 : r->direct; /* by way of tiles */
    bool fits = wf_row_plan_make(&r->plan, p, r->a, direct, false);
    if (r->plan.keep_bytes * r->group * r->s.n > KEEP)
        fits = wf_row_plan_make(&r->plan, p, r->a, direct, true) ||
               wf_row_plan_make(&r->plan, p, r->a, direct, false);
    lay_out(r);
    for (int i = 0; i < p->ninst; i++)
        r->fn[i] = wf_inst_function(p, &p->inst[i], r->k);
    return fits ? 0 : WEFT_ENOMEM;
}

int wf_program_run_rows(const wf_program *p, const wf_program_args *a)
{
    wf_row_run r = {.p = p, .a = a, .k = wf_kernels_now(), .grid = wf_grid_kernels_now()};
    const int status = begin_run(&r);
    if (status != 0 || r.s.rows == 0)
        return status;
    if (can_split(&r))
        return run_split(&r);
    const int64_t cost = r.group * (r.s.n + 16) * (p->ninst + 2) * (p->heavy ? 4 : 1);
    int64_t grain = (TASK + cost - 1) / cost;
    if (r.stream || r.ahead) {
        const int64_t far = FAR_TASK / (r.group * (r.s.n + 16));
        const int64_t share = r.groups / (4 * (int64_t)wf_num_threads());
        const int64_t most = far < share ? far : share;
        grain = grain > most ? grain : most;
    }
    wf_parallel_for(r.groups, grain, do_groups, &r);
    return atomic_load_explicit(&r.status, memory_order_relaxed);
}
