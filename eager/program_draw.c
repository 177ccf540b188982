/*
 * eager/program_draw.c -- inputs of programs that are random rows; see wf_program_draw.
 *
 * No memory stands behind such an input: whoever would load a tile of it draws the tile. Element i of a draw
 * depends on seed, offset and i alone (jit/ir/philox.h), so tiles, threads and tiers draw the same numbers
 * as the row's own kernel.
 */
#include <string.h>

#include "eager/draw.h"
#include "eager/program_run.h"

int wf_program_draw(wf_program *p, wf_op op, int dtype, const int *scalar)
{
    const int v = wf_program_input(p, dtype);
    if (v < 0 || dtype != wf_draw_type(op, dtype))
        return -1;
    wf_program_drawn *d = &p->draw[p->ninput - 1];
    d->op = (uint16_t)op;
    for (int i = 0; i < WF_DRAW_SCALARS; i++)
        d->scalar[i] = (int8_t)(-1 - WF_PROGRAM_INPUTS - p->def[scalar[i]]);
    p->heavy = true;
    return v;
}

uint32_t wf_program_draws(const wf_program *p)
{
    uint32_t draws = 0;
    for (int j = 0; j < p->ninput; j++)
        draws |= p->draw[j].op != WF_OP_INVALID ? 1u << j : 0;
    return draws;
}

void wf_program_drawn_row(const wf_program *p, int j, const void *const *scalars, wf_draw *row)
{
    const wf_program_drawn *d = &p->draw[j];
    int64_t number[WF_DRAW_SCALARS];
    *row = (wf_draw){.op = (wf_op)d->op};
    for (int i = 0; i < WF_DRAW_SCALARS; i++)
        memcpy(&number[i], scalars[d->scalar[i]], sizeof number[i]);
    row->seed = (uint64_t)number[0];
    row->offset = (uint64_t)number[1];
    if (row->op == WF_OP_RANDINT) {
        row->low = number[2];
        row->high = number[3];
    } else {
        memcpy(&row->p, &number[2], sizeof row->p);
        memcpy(&row->q, &number[3], sizeof row->q);
    }
}

void wf_program_fill(const wf_program *p, int j, const void *const *scalars, void *dst,
                     int64_t first, int64_t n)
{
    wf_draw row;
    wf_program_drawn_row(p, j, scalars, &row);
    wf_draw_elements(&row, p->type[p->input[j]], dst, first, n);
}
