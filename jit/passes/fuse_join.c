/*
 * jit/passes/fuse_join.c -- groups become one: behind the forward pass of fuse.c, which opened them.
 *
 * Backward: a group goes into the first group that reads it, if that one reads it whole: the forward pass cannot see that
 * the operand of a later group was waiting for something else. Then the pairs that are left, by what they save, the largest first:
 * groups that read the same memory (one reading for two), and groups of which one reads what the other makes. Values
 * come before shared operands, as a value saves its writing and its reading.
 *
 * Invariant: groups stay in running order by their numbers. The merged group has the number of the earlier one if all that the
 * later one needs is made before that, of the later one if nobody between them needs the earlier.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/program.h"
#include "jit/passes/cost.h"
#include "jit/passes/fuse_impl.h"
#include "jit/passes/pass.h"

/* -- backward -------------------------------------------------------------------------------------------- */

static uint32_t final_group(wf_fuser *u, uint32_t g)
{
    while (u->g[g].into != g) {
        g = u->g[g].into = u->g[u->g[g].into].into;
    }
    return g;
}

/* Instructions of groups by the roots that they read, as lists: head of root v, which u keeps. */
static bool find_users(wf_fuser *u)
{
    const wf_fn *f = u->f;
    size_t n = 0;
    uint32_t at = 0;
    for (uint32_t k = 0; k < f->n; k++) {
        n += u->s->group_of[k] != WF_NO_GROUP ? f->ins[k].nsrc : 0;
    }
    u->users = malloc((n + 1) * sizeof *u->users);
    u->first_user = malloc((f->n + 1u) * sizeof *u->first_user);
    if (!u->users || !u->first_user) {
        free(u->users);
        free(u->first_user);
        u->users = NULL;
        u->first_user = NULL;
        return false;
    }
    memset(u->first_user, 0xFF, (f->n + 1u) * sizeof *u->first_user);
    for (uint32_t k = 0; k < f->n; k++) {
        const wf_val *src = wf_ins_src(f, &f->ins[k]);
        for (int i = 0; u->s->group_of[k] != WF_NO_GROUP && i < f->ins[k].nsrc; i++) {
            const wf_val root = src[i] ? u->l->map[src[i]].root : 0;
            u->users[at] = (wf_fuser_user){k, u->first_user[root]};
            u->first_user[root] = at++;
        }
    }
    return true;
}

/* Is root v, made by group a or b, wanted outside both? Ends at the first reader outside, so readers within the two groups are
 * all that is gone through. */
static bool is_result_of(wf_fuser *u, wf_val v, uint32_t a, uint32_t b)
{
    bool wanted = u->is_returned[v];
    for (uint32_t i = u->first_user[v]; i != WF_NIL && !wanted; i = u->users[i].next) {
        const uint32_t g = final_group(u, u->s->group_of[u->users[i].k]);
        wanted = g != a && g != b;
    }
    return wanted;
}

/* How many results groups a and b, joined, have from the members of `of`, one of them. */
static uint32_t results_of(wf_fuser *u, uint32_t of, uint32_t a, uint32_t b)
{
    uint32_t count = 0;
    for (uint32_t k = u->g[of].head, m = 0; m < u->g[of].n; k = u->next[k], m++) {
        for (int r = 0; r < wf_rows[u->f->ins[k].op].ndst; r++) {
            const wf_val v = k + 1 + (wf_val)r;
            count += u->l->map[v].root == v && is_result_of(u, v, a, b);
        }
    }
    return count;
}

/* Have groups a and b, joined, no more results than a program? One that reduces cannot be halved afterwards. Costs what the two
 * have of members and readings, whatever the function has: a loop's sums ask this for each. */
static bool has_room(wf_fuser *u, uint32_t a, uint32_t b)
{
    const bool halves = !u->g[a].space.axes && !u->g[b].space.axes;
    if (halves || u->g[a].n + u->g[b].n <= WF_PROGRAM_OUTPUTS) {
        return true;
    }
    return (u->users || find_users(u)) &&
           results_of(u, a, a, b) + results_of(u, b, a, b) <= WF_PROGRAM_OUTPUTS;
}

/* Can all of group a go into the later group b? */
static bool can_merge(wf_fuser *u, uint32_t a, uint32_t b)
{
    wf_open_group *x = &u->g[a], *y = &u->g[b];
    if (wf_fuser_is_cut(u, y->head) || x->passes || y->passes) {
        return false;
    }
    if (y->kind != WF_STEP_MAP || x->space.count != y->space.count ||
        (u->most && x->n + y->n > u->most) || x->scalars + y->scalars > WF_PROGRAM_SCALARS ||
        x->insts + y->insts > WF_PROGRAM_INSTS - WF_PROGRAM_OUTPUTS ||
        x->depth + y->depth > WF_PROGRAM_DEPTH - 2) {
        return false;
    }
    if (x->space.axes && y->space.axes && !wf_same_axes(&x->space, &y->space)) {
        return false;
    }
    if (x->draws + y->draws && !(wf_is_trailing(&x->space) && wf_is_trailing(&y->space))) {
        return false;
    }
    if (!wf_same_dims(&x->space, &y->space) || x->space.axes != y->space.axes) {
        if (!wf_fuser_reshape_group(u, x, &y->space) && !wf_fuser_reshape_group(u, y, &x->space)) {
            return false;
        }
    }
    uint32_t inputs = x->inputs + x->draws + y->draws, streams = 0;
    int64_t saved = WF_LAUNCH;
    for (uint32_t i = y->input; i != WF_NIL; i = u->inputs[i].next) {
        const wf_map_of *m = &u->inputs[i].map;
        uint32_t maker = wf_fuser_made_by(u, m->root);
        bool inside = maker != WF_NIL && final_group(u, maker) == a;
        bool comes = !inside && !wf_fuser_has_input(u, x, m);
        inputs += comes;
        streams += comes && wf_is_stream(u->l, &y->space, m);
        saved += comes ? 0 : wf_fuser_weigh_map(u, m) * (inside ? 2 : 1);
    }
    return inputs <= WF_PROGRAM_INPUTS && !wf_fuser_is_crowded(u, x, streams, saved) &&
           has_room(u, a, b);
}

static void merge(wf_fuser *u, uint32_t a, uint32_t b)
{
    wf_open_group *x = &u->g[a], *y = &u->g[b];
    uint32_t list = y->input;
    y->input = WF_NIL;
    y->inputs = y->streams = 0;
    for (uint32_t i = x->input; i != WF_NIL; i = u->inputs[i].next) {
        wf_map_of m = u->inputs[i].map;
        u->no_memory |= wf_fuser_add_input(u, y, &m) != 0;
    }
    for (uint32_t i = list; i != WF_NIL; i = u->inputs[i].next) {
        wf_map_of m = u->inputs[i].map;
        uint32_t g = wf_fuser_made_by(u, m.root);
        if (g == WF_NIL || final_group(u, g) != a) {
            u->no_memory |= wf_fuser_add_input(u, y, &m) != 0;
        }
    }
    u->next[x->tail] = y->head;
    y->head = x->head;
    y->n += x->n;
    y->insts += x->insts;
    y->scalars += x->scalars;
    y->depth += x->depth;
    y->draws += x->draws;
    x->n = 0;
    x->into = b;
}

typedef struct reading {
    uint32_t k; /* instruction that reads */
    wf_val v;   /* what */
    uint32_t next;
} reading;

/* Readings by producing group, as lists. */
static reading *find_readings(wf_fuser *u, uint32_t *head)
{
    size_t n = 0;
    for (uint32_t k = 0; k < u->f->n; k++) {
        n += u->s->group_of[k] != WF_NO_GROUP ? u->f->ins[k].nsrc : 0;
    }
    reading *r = malloc((n + 1) * sizeof *r);
    uint32_t at = 0;
    for (uint32_t g = 0; r && g < u->ng; g++) {
        head[g] = WF_NIL;
    }
    for (uint32_t k = 0; r && k < u->f->n; k++) {
        const wf_val *src = wf_ins_src(u->f, &u->f->ins[k]);
        for (int a = 0; u->s->group_of[k] != WF_NO_GROUP && a < u->f->ins[k].nsrc; a++) {
            uint32_t g = src[a] ? wf_fuser_made_by(u, src[a]) : WF_NIL;
            if (g != WF_NIL && g != u->s->group_of[k]) {
                r[at] = (reading){k, src[a], head[g]};
                head[g] = at++;
            }
        }
    }
    return r;
}

/* Would k of group b read v of group a inside, were the two one? */
static bool stays_inside(wf_fuser *u, uint32_t a, uint32_t b, uint32_t k, wf_val v)
{
    const wf_iter *x = &u->g[a].space, *y = &u->g[b].space;
    if (u->g[b].kind != WF_STEP_MAP || x->count != y->count) {
        return false;
    }
    const wf_iter *space = x->axes ? x : y;
    const int made = u->s->level[u->l->map[v].root];
    const bool again = made == WF_AT_ROW && wf_level_at(u->l, k, space) == WF_AT_ELEM;
    return !(again && wf_is_long(space) && !u->alone) && wf_reads_inside(u->l, space, k, v, made);
}

static int64_t bytes_of(const wf_fuser *u, wf_val v)
{
    return wf_type_bytes(wf_fn_type(u->f, v));
}

/* Is root v still read behind group g, by another one than `first`? */
static bool is_kept(wf_fuser *u, const uint32_t *head, const reading *r, wf_val v, uint32_t g,
                    uint32_t first)
{
    bool kept = false;
    for (uint32_t i = head[wf_fuser_made_by(u, v)]; i != WF_NIL && !kept; i = r[i].next) {
        const uint32_t to = final_group(u, u->s->group_of[r[i].k]);
        kept = u->l->map[r[i].v].root == v && to > g && to != first;
    }
    return kept;
}

/* Would group g, run within `first`, keep more bytes of what it reads until then than it now makes early? */
static bool waits_dearly(wf_fuser *u, const uint32_t *head, const reading *r, uint32_t g,
                         uint32_t first)
{
    int64_t kept = 0, made = 0;
    for (uint32_t i = u->g[g].input; i != WF_NIL; i = u->inputs[i].next) {
        const wf_val v = u->inputs[i].map.root;
        const bool makes = v && wf_fuser_made_by(u, v) != WF_NIL;
        kept += makes && !is_kept(u, head, r, v, g, first) ? bytes_of(u, v) : 0;
    }
    wf_val last = 0;
    for (uint32_t i = head[g]; i != WF_NIL; i = r[i].next) {
        const wf_val v = u->l->map[r[i].v].root;
        made += v != last ? bytes_of(u, v) : 0;
        last = v;
    }
    return kept > made && first > g + 1;
}

int wf_fuser_sink(wf_fuser *u)
{
    uint32_t *head = malloc((u->ng + 1u) * sizeof *head);
    reading *r = head ? find_readings(u, head) : NULL;
    for (uint32_t g = u->ng; r && g-- > 0;) {
        uint32_t first = WF_NIL;
        bool whole = u->g[g].kind == WF_STEP_MAP;
        for (uint32_t i = head[g]; whole && i != WF_NIL; i = r[i].next) {
            uint32_t to = final_group(u, u->s->group_of[r[i].k]);
            first = to < first ? to : first;
        }
        for (uint32_t i = head[g]; whole && i != WF_NIL; i = r[i].next) {
            whole = final_group(u, u->s->group_of[r[i].k]) != first ||
                    stays_inside(u, g, first, r[i].k, r[i].v);
        }
        const bool dear = whole && first != WF_NIL && u->lean && waits_dearly(u, head, r, g, first);
        for (uint32_t i = head[g]; dear && i != WF_NIL; i = r[i].next) {
            u->s->dear[wf_maker_of(u->l, r[i].v) - 1] = 1;
        }
        if (whole && first != WF_NIL && !dear && can_merge(u, g, first) &&
            wf_stage_may(WF_STAGE_sink)) {
            merge(u, g, first);
        }
    }
    int rc = r ? 0 : WEFT_ENOMEM;
    free(head);
    free(r);
    return rc;
}

/* -- siblings ------------------------------------------------------------------------------------------------ */

/* Groups a and b, a the earlier, read the same memory, or b reads what a makes. */
typedef struct pair {
    int64_t saved;
    uint32_t a, b;
} pair;

static int by_saved(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    return x->saved != y->saved ? (x->saved < y->saved ? 1 : -1)
           : x->b != y->b       ? (x->b < y->b ? -1 : 1)
           : x->a != y->a       ? (x->a < y->a ? -1 : 1)
                                : 0;
}

static uint32_t find_pairs(wf_fuser *u, pair *out)
{
    uint32_t n = 0;
    memset(u->last_reader, 0xFF, (u->f->n + 1u) * sizeof *u->last_reader);
    for (uint32_t g = 0; g < u->ng; g++) {
        for (uint32_t i = u->g[g].n ? u->g[g].input : WF_NIL; i != WF_NIL; i = u->inputs[i].next) {
            const wf_map_of *m = &u->inputs[i].map;
            const uint32_t maker = wf_fuser_made_by(u, m->root), last = u->last_reader[m->root];
            const uint32_t from = maker == WF_NIL ? WF_NIL : final_group(u, maker);
            if (last != WF_NIL && last != g && wf_fuser_has_input(u, &u->g[last], m)) {
                out[n++] = (pair){wf_fuser_weigh_map(u, m), last, g};
            }
            if (from != WF_NIL && from < g && u->g[from].kind == WF_STEP_MAP) {
                out[n++] = (pair){2 * wf_fuser_weigh_map(u, m), from, g};
            }
            u->last_reader[m->root] = g;
        }
    }
    return n;
}

/* The first group that reads what a group makes. */
static void find_first(wf_fuser *u, uint32_t *first)
{
    memset(first, 0xFF, u->ng * sizeof *first);
    for (uint32_t k = 0; k < u->f->n; k++) {
        const wf_val *src = wf_ins_src(u->f, &u->f->ins[k]);
        for (int i = 0; u->s->group_of[k] != WF_NO_GROUP && i < u->f->ins[k].nsrc; i++) {
            const uint32_t maker = src[i] ? wf_fuser_made_by(u, src[i]) : WF_NIL;
            const uint32_t a = maker == WF_NIL ? WF_NIL : final_group(u, maker);
            const uint32_t b = final_group(u, u->s->group_of[k]);
            if (a != WF_NIL && a != b && b < first[a]) {
                first[a] = b;
            }
        }
    }
}

/* Is all that b reads made before a, or by a and read inside? Then b may run where a does. */
static bool may_move_back(wf_fuser *u, uint32_t a, uint32_t b)
{
    bool reads = false;
    for (uint32_t i = u->g[b].input; i != WF_NIL; i = u->inputs[i].next) {
        const uint32_t maker = wf_fuser_made_by(u, u->inputs[i].map.root);
        const uint32_t g = maker == WF_NIL ? WF_NIL : final_group(u, maker);
        if (g != WF_NIL && g > a) {
            return false;
        }
        reads |= g == a;
    }
    for (uint32_t k = u->g[b].head, m = 0; reads && m < u->g[b].n; k = u->next[k], m++) {
        const wf_val *src = wf_ins_src(u->f, &u->f->ins[k]);
        for (int i = 0; i < u->f->ins[k].nsrc; i++) {
            const uint32_t maker = src[i] ? wf_fuser_made_by(u, src[i]) : WF_NIL;
            if (maker != WF_NIL && final_group(u, maker) == a &&
                !stays_inside(u, a, b, k, src[i])) {
                return false;
            }
        }
    }
    return true;
}

/* Merges a and b at the place of one of them. `first` stays at most what it would be: it may forbid, never allow. */
static void merge_at(wf_fuser *u, uint32_t a, uint32_t b, bool forward, uint32_t *first)
{
    const uint32_t least = first[a] < first[b] ? first[a] : first[b];
    merge(u, a, b);
    if (!forward) {
        u->g[a] = u->g[b];
        u->g[a].into = u->g[b].into = a;
        u->g[b].n = 0;
        u->g[b].input = WF_NIL;
        for (uint32_t i = u->g[a].input; i != WF_NIL; i = u->inputs[i].next) {
            const uint32_t maker = wf_fuser_made_by(u, u->inputs[i].map.root);
            const uint32_t g = maker == WF_NIL ? WF_NIL : final_group(u, maker);
            if (g != WF_NIL && first[g] > a) {
                first[g] = a;
            }
        }
    }
    first[forward ? b : a] = least;
}

/* Does no group run between a and b? */
static bool is_beside(const wf_fuser *u, uint32_t a, uint32_t b)
{
    do {
        a++;
    } while (a < b && u->g[a].n == 0);
    return a == b;
}

/* Groups that read the same memory become one, those first that save the most: what forward and backward joined is
 * worth more, so it comes before. */
int wf_fuser_join(wf_fuser *u)
{
    pair *list = malloc((2 * u->ninputs + 1) * sizeof *list);
    uint32_t *first = malloc((u->ng + 1u) * sizeof *first);
    const uint32_t n = list && first ? find_pairs(u, list) : 0;
    if (n) {
        find_first(u, first);
        qsort(list, n, sizeof *list, by_saved);
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t x = final_group(u, list[i].a), y = final_group(u, list[i].b);
        const uint32_t a = x < y ? x : y, b = x < y ? y : x;
        if (a == b || (u->wanted && !is_beside(u, a, b))) {
            continue;
        }
        const bool forward = first[a] > b;
        if ((forward || may_move_back(u, a, b)) && can_merge(u, a, b) &&
            wf_stage_may(WF_STAGE_fuse)) {
            merge_at(u, a, b, forward, first);
        }
    }
    const int rc = list && first ? 0 : WEFT_ENOMEM;
    free(list);
    free(first);
    return rc;
}
