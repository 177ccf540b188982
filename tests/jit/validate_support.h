/*
 * tests/jit/validate_support.h -- a function whose plans WEFT_VALIDATE looks at, and planted faults of these, for the tests of it on
 * the host and on a device.
 */
#ifndef TESTS_JIT_VALIDATE_SUPPORT_H
#define TESTS_JIT_VALIDATE_SUPPORT_H

#include "jit/plan_int.h"
#include "tests/jit/plan_support.h"

/* To be ended by what is returned: %9 and %6 at least. */
#define VALIDATE_CHAIN                                                                             \
    "fn a {\n  %1 = input f32[40,70]\n  %2 = input f32[70]\n"                                      \
    "  %3 = mul f32[40,70] %1, %2 at \"model.c:3\"\n"                                              \
    "  %4 = tanh f32[40,70] %3 at \"model.c:4\"\n"                                                 \
    "  %5 = softmax f32[40,70] %4 ints(1) at \"model.c:5\"\n"                                      \
    "  %6 = add f32[40,70] %5, %3 at \"model.c:6\"\n"                                              \
    "  %7 = input f32[70,9]\n"                                                                     \
    "  %8 = matmul f32[40,9] %6, %7 at \"model.c:7\"\n"                                            \
    "  %9 = relu f32[40,9] %8 at \"model.c:8\"\n"

static inline wf_plan *validate_build(const wf_fn *f, unsigned flags)
{
    wf_why why = {0};
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = flags}, &why);
    cr_assert_not_null(p, "%s", why.rule);
    p->validates = true;
    return p;
}

/* The step that has the op, and its instruction. */
static inline wf_plan_program *validate_program(const wf_plan *p, wf_op op, wf_inst **inst)
{
    for (uint32_t i = 0; i < p->nprograms; i++) {
        wf_program *g = p->programs[i].program;
        for (int n = 0; n < g->ninst; n++) {
            if (g->inst[n].kind == WF_INST_MAP && g->inst[n].op == op) {
                *inst = &g->inst[n];
                return &p->programs[i];
            }
        }
    }
    cr_assert_fail("no program has %s", wf_rows[op].name);
    return NULL;
}

/* Puts what the second step makes into the memory of what the first made, which still lives. */
static inline void validate_misplace(wf_plan *p)
{
    const wf_buffer *first = &p->buffers[p->accesses[p->steps[0].access].buffer];
    wf_buffer *second = &p->buffers[p->accesses[p->steps[1].access].buffer];
    second->place = first->place;
    second->index = first->index;
    second->slot = first->slot;
    second->offset = first->offset;
}

static inline void validate_says(const wf_why *why, const char *what)
{
    cr_expect(strstr(why->rule, what) || strstr(why->hint, what), "no \"%s\" in: %s; %s", what,
              why->rule, why->hint);
}

#endif
