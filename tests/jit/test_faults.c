/*
 * tests/jit/test_faults.c -- planted faults: everything the compiler makes, harmed in every way that its verifier knows, and
 * what the verifier says of it.
 *
 * A row is a name, what is harmed, words that the message must hold (the instruction or step first, then the rule) and the
 * harm itself. Every row starts from something whole, which passes. A fault that passes too is a fault of the verifier.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "jit/ir/build.h"
#include "jit/lower.h"
#include "jit/passes/pass.h"
#include "jit/plan_int.h"
#include "tests/jit/programs.h"

#define UNUSED __attribute__((unused))

static bool says(const char *text, const char *what, const char *rule)
{
    return strstr(text, what) && strstr(text, rule);
}

/* A verifier that said rc and why of a planted fault has found it, and said what is harmed and by which rule. */
static void check_fault(const char *name, int rc, const wf_why *why, const char *what,
                        const char *rule)
{
    cr_expect(rc != 0, "%s passed", name);
    cr_expect(rc == 0 || says(why->rule, what, rule), "%s: %s", name, why->rule);
}

static wf_fn *parse(const char *text)
{
    wf_why why = {0};
    wf_fn *f = wf_fn_parse(text, strlen(text), &why);
    cr_assert_not_null(f, "%s\n%s", why.rule, text);
    return f;
}

/* -- functions --------------------------------------------------------------------------------------------------- */

static const char whole[] =
    "fn f symbols(n%4==0, m<=64) {\n"
    "  %1 = input f32[n,4]\n"
    "  %2 = scalar f64 0x1p+1\n"
    "  %3 = mul f32[n,4] %1, %2\n"
    "  %4 = input f32[4]\n"
    "  %5 = add f32[n,4] %3, %4 at \"model.c:14\"\n"
    "  %6 = sum f32[n] %5 ints(1)\n"
    "  %7 = permute f32[4,n] %5 ints(1,0)\n"
    "  %8 = input f32[4,3]\n"
    "  %9 = matmul f32[n,3] %5, %8\n"
    "  %10 = sort f32[n,3] %9 ints(1)\n"
    "  %11 = result i64[n,3] %10 #1\n"
    "  %12 = slice f32[n,2] %9 ints(1) dyn(0,2,1)\n"
    "  %13 = concat f32[n,16] %3, %5, %3, %5 ints(1)\n"
    "  %14 = greater bool[n,4] %3, %5\n"
    "  %15 = where f32[n,4] %14, %3, %5\n"
    "  %16 = cast f16[n,4] %15 dtype(f16)\n"
    "  %17 = layer_norm f32[n,4] %5, %4, _ ints(1) flt(0x1p-10)\n"
    "  %18 = result f32[n] %17 #1\n"
    "  %19 = result f32[n] %17 #2\n"
    "  %20 = scalar bool 1\n"
    "  %21 = vjp f32[n,4] %5, _, %2, _ of(mul,0) dyn(n,4) dtype(f32)\n"
    "  %22 = input f32[5,5]\n"
    "  %23 = input f32[2,2]\n"
    "  %24 = update f32[5,5] %22, %23 dyn(2,2,5,1,6)\n"
    "  %25 = as_strided f32[2,2] %24 ints(2) dyn(2,2,5,1,3)\n"
    "  %26 = reshape f32[25] %24 dyn(25)\n"
    "  %27 = expand f32[3,25] %26 dyn(3,25)\n"
    "  %28 = softmax f32[3,25] %27 ints(1)\n"
    "  %29 = input i64[7]\n"
    "  %30 = index_select f32[7,25] %27, %29 ints(0)\n"
    "  %31 = rand f32[6] dyn(6,7,3) flt(0x0p+0,0x1p+0)\n"
    "  %32 = const f64 0x1p+0\n"
    "  %33 = reshape f32[n/2,8] %5 dyn(n/2,8)\n"
    "  return %6, %7, %11, %12, %13, %16, %17, %21, %25, %28, %30, %31, %6\n"
    "}\n";

static wf_attr *attr_of(wf_fn *f, wf_ins *i)
{
    return &f->attrs[i->attr];
}
static int64_t *ints_of(wf_fn *f, wf_ins *i)
{
    return (int64_t *)(uintptr_t)attr_of(f, i)->ints;
}
static int64_t *dyn_of(wf_fn *f, wf_ins *i)
{
    return (int64_t *)(uintptr_t)attr_of(f, i)->dyn;
}
static uint32_t type_of(wf_fn *f, int dtype, int rank, int64_t a, int64_t b)
{
    return wf_fn_intern_type(f, &(wf_type){(uint8_t)dtype, (uint8_t)rank, {a, b}});
}
/* The extent n+m. */
static int64_t sum_of_symbols(wf_fn *f)
{
    wf_poly p = {.n = 0};
    int64_t v = -1;
    cr_assert(wf_poly_add_symbol(f, &p, false, 1, 0, 1) &&
              wf_poly_add_symbol(f, &p, false, 1, 1, 1) && wf_poly_extent(f, &p, &v));
    return v;
}
static void type_again(wf_fn *f, wf_ins *i)
{
    cr_assert_eq(wf_grow(&f->types, f->ntypes, 1, &f->captypes, sizeof *f->types), 0);
    f->types[f->ntypes] = f->types[i->type];
    i->type = f->ntypes++;
}
static void swap_ins(wf_fn *f, uint32_t a, uint32_t b)
{
    const wf_ins x = f->ins[a - 1];
    f->ins[a - 1] = f->ins[b - 1];
    f->ins[b - 1] = x;
}

/* X(name, instruction (0: the function), words of the rule, harm to f and its instruction i) */
/* clang-format off */
#define FUNCTION_FAULTS(X)                                                                                    \
    X(no_op, 5, "neither a row", i->op = WF_OP_INVALID;)                                                       \
    X(custom_op, 5, "neither a row", i->op = WF_OP_CUSTOM;)                                                    \
    X(op_out_of_range, 5, "neither a row", i->op = 255;)                                                       \
    X(another_arity, 5, "takes 1 to 1 operands, not 2", i->op = WF_OP_EXP;)                                    \
    X(too_few_operands, 5, "operands, not 1", i->nsrc = 1;)                                                    \
    X(no_operands, 9, "operands, not 0", i->nsrc = 0;)                                                         \
    X(operand_too_many, 3, "is not empty", i->src[2] = 1;)                                                     \
    X(operand_behind_count, 6, "is not empty", i->src[1] = 1;)                                                 \
    X(row_of_another_kind, 5, "", i->op = WF_OP_MATMUL;)                                                       \
    X(reduction_for_map, 15, "takes", i->op = WF_OP_SUM;)                                                      \
    X(operand_is_itself, 5, "operand 0 is %5, which is no earlier value", i->src[0] = 5;)                      \
    X(operand_is_later, 6, "no earlier value", i->src[0] = 9;)                                                 \
    X(operand_dangles, 9, "operand 1 is %4000, which is no earlier value", i->src[1] = 4000;)                  \
    X(operand_absent, 5, "operand 1 is absent", i->src[1] = 0;)                                                \
    X(list_outside, 13, "ends outside", i->src[0] = f->nlists - 1;)                                            \
    X(list_far_outside, 13, "ends outside", i->src[0] = UINT32_MAX - 1;)                                       \
    X(list_has_later, 13, "operand 2 is %30", f->lists[i->src[0] + 2] = 30;)                                   \
    X(list_field, 13, "is not empty", i->src[1] = 3;)                                                          \
    X(swapped, 5, "no earlier value", swap_ins(f, 5, 6);)                                                      \
    X(argument_out_of_turn, 3, "argument 1", swap_ins(f, 3, 4);)                                             \
    X(type_out_of_range, 3, "is none of the function's", i->type = f->ntypes;)                                 \
    X(type_far, 1, "is none of the function's", i->type = UINT32_MAX;)                                         \
    X(dtype_of_map, 5, "its operands give f32[n,4]", i->type = type_of(f, WEFT_F64, 2, WF_SYM(0), 4);)         \
    X(shape_of_map, 5, "its operands give f32[n,4]", i->type = type_of(f, WEFT_F32, 2, WF_SYM(0), 5);)         \
    X(rank_of_map, 5, "its operands give f32[n,4]", i->type = type_of(f, WEFT_F32, 1, 4, 0);)                  \
    X(shape_of_sum, 6, "its operands give f32[n]", i->type = type_of(f, WEFT_F32, 2, WF_SYM(0), 1);)           \
    X(shape_of_permute, 7, "its operands give f32[4,n]", i->type = f->ins[4].type;)                            \
    X(shape_of_product, 9, "its operands give f32[n,3]", i->type = f->ins[4].type;)                            \
    X(shape_of_slice, 12, "its operands give f32[n,2]", i->type = f->ins[8].type;)                             \
    X(shape_of_concat, 13, "its operands give f32[n,16]", i->type = f->ins[4].type;)                           \
    X(dtype_of_compare, 14, "its operands give bool[n,4]", i->type = f->ins[4].type;)                          \
    X(dtype_of_choice, 15, "its operands give f32[n,4]", i->type = f->ins[13].type;)                           \
    X(dtype_of_cast, 16, "its operands give f16[n,4]", i->type = f->ins[4].type;)                              \
    X(shape_of_norm, 17, "its operands give f32[n,4]", i->type = f->ins[5].type;)                              \
    X(shape_of_result, 17, "its result 2 is f32[n,4]", f->ins[18].type = f->ins[4].type;)                      \
    X(dtype_of_second_result, 10, "its result 1 is f32[n,3]", f->ins[10].type = f->ins[8].type;)               \
    X(shape_of_vjp, 21, "its operands give", i->type = f->ins[6].type;)                                        \
    X(shape_of_update, 24, "its operands give f32[5,5]", i->type = type_of(f, WEFT_F32, 2, 5, 4);)             \
    X(shape_of_random, 31, "its operands give f32[6]", i->type = type_of(f, WEFT_F32, 1, 7, 0);)               \
    X(shape_of_expand, 27, "its operands give f32[3,25]", i->type = type_of(f, WEFT_F32, 2, 2, 25);)           \
    X(shape_of_gather, 30, "its operands give f32[7,25]", i->type = f->ins[26].type;)                          \
    X(operand_of_wrong_shape, 5, "broadcast", i->src[1] = 1, f->types[f->ins[3].type].dims[0] = 4, i->src[1] = 4, f->ins[3].type = type_of(f, WEFT_F32, 1, 5, 0);) \
    X(condition_is_float, 15, "", i->src[0] = 3;)                                                              \
    X(index_is_float, 30, "", i->src[1] = 26;)                                                                 \
    X(types_do_not_meet, 9, "", i->src[1] = 1;)                                                                \
    X(type_is_there_twice, 4, "is there twice", type_again(f, i);)                                               \
    X(type_changed_in_place, 1, "", f->types[i->type].dims[1] = 7;)                                            \
    X(no_element_type, 1, "is no type", f->types[i->type].dtype = 0;)                                          \
    X(unknown_element_type, 1, "is no type", f->types[i->type].dtype = WEFT_DTYPE_COUNT;)                      \
    X(too_many_axes, 1, "is no type", f->types[i->type].rank = WF_MAX_RANK + 1;)                               \
    X(negative_extent, 1, "neither a size", f->types[i->type].dims[1] = -1;)                                   \
    X(undeclared_symbol, 1, "neither a size", f->types[i->type].dims[0] = WF_SYM(2);)                          \
    X(no_symbol_at_all, 1, "neither a size", f->types[i->type].dims[0] = INT64_MAX;)                           \
    X(another_symbol, 3, "its operands give f32[n,4]", i->type = type_of(f, WEFT_F32, 2, WF_SYM(1), 4);)       \
    X(multiple_of_symbol, 3, "its operands give f32[n,4]", i->type = type_of(f, WEFT_F32, 2, wf_sym(0, 2, 1, 0), 4);) \
    X(sum_of_symbols, 3, "its operands give f32[n,4]", i->type = type_of(f, WEFT_F32, 2, sum_of_symbols(f), 4);) \
    X(sum_that_is_none, 3, "neither a size", i->type = type_of(f, WEFT_F32, 2, sum_of_symbols(f), 4); f->polys->n = 0;) \
    X(symbol_gone, 1, "neither a size", f->nsymbols = 0;)                                                      \
    X(symbol_repeated, 0, "symbol 1", memcpy(f->symbols[1], "n", 2);)                                          \
    X(symbol_without_name, 0, "symbol 0", f->symbols[0][0] = '\0';)                                            \
    X(symbol_without_end, 0, "symbol 0", memset(f->symbols[0], 'x', 32);)                                      \
    X(symbol_without_size, 0, "symbol 1", f->range[1].most = 0;)                                               \
    X(symbol_of_no_multiple, 0, "symbol 0", f->range[0].multiple = 0;)                                         \
    X(symbol_of_negative_multiple, 0, "symbol 0", f->range[0].multiple = -4;)                                  \
    X(symbol_of_large_multiple, 0, "symbol 1", f->range[1].multiple = 1025;)                                   \
    X(symbol_of_negative_remainder, 0, "symbol 0", f->range[0].rest = -1;)                                     \
    X(symbol_of_large_remainder, 0, "symbol 1", f->range[1].rest = 1;)                                         \
    X(symbol_without_multiple_in_range, 0, "symbol 0", f->range[0].least = 5, f->range[0].most = 7;)           \
    X(symbol_of_range_upside_down, 0, "symbol 1", f->range[1].least = 65;)                                     \
    X(symbol_below_zero, 0, "symbol 1", f->range[1].least = -1;)                                               \
    X(quotient_of_any_size, 33, "neither a size", f->range[0].multiple = 1;)                                   \
    X(quotient_of_other_multiple, 33, "neither a size", f->range[0].multiple = 9;)                             \
    X(quotient_too_small, 33, "neither a size", i->type = type_of(f, WEFT_F32, 2, wf_sym(0, 1, 8, 0), 32);)    \
    X(quotient_in_no_lowest_terms, 33, "neither a size", i->type = type_of(f, WEFT_F32, 2, wf_sym(0, 1, 2, 0) + (1 << WF_SYM_BITS), 8);) \
    X(another_quotient, 33, "its operands give f32[n/2,8]", i->type = type_of(f, WEFT_F32, 2, wf_sym(0, 1, 4, 0), 8);) \
    X(quotient_of_another_symbol, 33, "neither a size", i->type = type_of(f, WEFT_F32, 2, wf_sym(1, 1, 2, 0), 8);) \
    X(axis_out_of_range, 6, "axis", ints_of(f, i)[0] = 2;)                                                     \
    X(axis_negative, 6, "axis", ints_of(f, i)[0] = -1;)                                                        \
    X(axis_of_softmax, 28, "axis", ints_of(f, i)[0] = 9;)                                                      \
    X(axis_of_sort, 10, "axis", ints_of(f, i)[0] = 5;)                                                         \
    X(axis_of_concat, 13, "axis", ints_of(f, i)[0] = 3;)                                                       \
    X(axis_of_gather, 30, "axis", ints_of(f, i)[0] = 2;)                                                       \
    X(axes_repeated, 7, "axis", ints_of(f, i)[0] = 0;)                                                         \
    X(axes_missing, 7, "", attr_of(f, i)->n_ints = 1;)                                                         \
    X(attribute_missing, 6, "", i->attr = 0;)                                                                  \
    X(attribute_out_of_range, 6, "attribute", i->attr = f->nattrs;)                                            \
    X(attribute_of_another, 12, "", i->attr = f->ins[5].attr;)                                                 \
    X(attribute_without_list, 6, "attribute", attr_of(f, i)->ints = NULL;)                                     \
    X(slots_without_list, 12, "attribute", attr_of(f, i)->dyn = NULL;)                                         \
    X(numbers_without_list, 17, "attribute", attr_of(f, i)->flt = NULL;)                                       \
    X(slots_missing, 12, "", attr_of(f, i)->n_dyn = 2;)                                                        \
    X(slice_step_zero, 12, "step", dyn_of(f, i)[2] = 0;)                                                       \
    X(norm_of_no_axis, 17, "", attr_of(f, i)->n_ints = 0;)                                                     \
    X(cast_to_nothing, 16, "", attr_of(f, i)->dtype = 0;)                                                      \
    X(cast_to_unknown, 16, "", attr_of(f, i)->dtype = 200;)                                                    \
    X(vjp_of_no_row, 21, "", ints_of(f, i)[0] = 9999;)                                                         \
    X(vjp_of_a_product, 21, "", ints_of(f, i)[0] = WF_OP_MATMUL;)                                              \
    X(vjp_of_third_operand, 21, "", ints_of(f, i)[1] = 2;)                                                     \
    X(vjp_of_another_shape, 21, "", dyn_of(f, i)[1] = 3;)                                                      \
    X(view_outside, 25, "", dyn_of(f, i)[4] = 24;)                                                             \
    X(view_before, 25, "", dyn_of(f, i)[4] = -1;)                                                              \
    X(view_stride_outside, 25, "", dyn_of(f, i)[2] = 100;)                                                     \
    X(update_outside, 24, "", dyn_of(f, i)[4] = 23;)                                                           \
    X(update_of_another_shape, 24, "", dyn_of(f, i)[0] = 3;)                                                   \
    X(update_overlaps_itself, 24, "", dyn_of(f, i)[2] = 0;)                                                    \
    X(update_of_another_type, 24, "", i->src[1] = 29;)                                                         \
    X(reshape_of_another_count, 26, "", dyn_of(f, i)[0] = 24;)                                                 \
    X(expand_of_another_extent, 27, "", dyn_of(f, i)[1] = 26;)                                                 \
    X(random_of_negative_extent, 31, "", dyn_of(f, i)[0] = -6;)                                                \
    X(result_gone, 10, "result 1 does not stand behind it", f->ins[10].op = WF_OP_INPUT;)                      \
    X(result_out_of_order, 17, "result 1 does not stand behind it", swap_ins(f, 18, 19);)                      \
    X(result_number, 10, "result 1 does not stand behind it", f->ins[10].attr = 2;)                            \
    X(result_of_another, 11, "no result of the op above", i->src[0] = 9;)                                      \
    X(result_of_nothing, 15, "no result of the op above", i->op = WF_OP_RESULT, i->nsrc = 1, i->src[1] = i->src[2] = 0;) \
    X(result_with_operands, 11, "has operands", i->nsrc = 2, i->src[1] = 1;)                                   \
    X(result_for_row, 10, "result 1 does not stand", f->n = 10;)                                               \
    X(leaf_with_operand, 4, "has operands", i->nsrc = 1, i->src[0] = 1;)                                       \
    X(slot_out_of_range, 2, "slot is 77", i->attr = 77;)                                                       \
    X(slot_shared, 20, "slot is 0", i->attr = 0;)                                                              \
    X(slot_of_unknown_kind, 2, "kind 3", f->slot_kind[0] = 3;)                                                 \
    X(slot_of_another_kind, 2, "kind 1", f->slot_kind[0] = 1;)                                                 \
    X(slot_of_no_symbol, 0, "no number that can be an extent", (void)wf_fn_size_scalar(f, 3, WF_SYM(9));)      \
    X(slot_with_extents, 2, "is no number of its type", i->type = f->ins[3].type;)                             \
    X(truth_that_is_none, 20, "neither true nor false", f->slots[1] = 2;)                                      \
    X(slots_not_counted, 32, "slot is 2", f->nslots = 2;)                                                      \
    X(slots_too_many, 0, "3 slots", f->nslots = 4;)                                                            \
    X(argument_twice, 4, "argument 0", i->attr = 0;)                                                           \
    X(argument_out_of_range, 29, "argument 9", i->attr = 9;)                                                   \
    X(argument_listed_elsewhere, 4, "argument 1", f->inputs[1] = 1;)                                           \
    X(argument_not_counted, 29, "argument 5", f->ninputs = 5;)                                                 \
    X(unknown_flag, 5, "flags", i->flags = 4;)                                                                 \
    X(unknown_site, 5, "site", i->loc = f->nlocs;)                                                             \
    X(output_of_nothing, 0, "output 0 is %0", f->outputs[0] = 0;)                                              \
    X(output_dangles, 0, "output 3 is %34", f->outputs[3] = 34;)                                               \
    X(function_cut_short, 0, "lists", f->n = 31;)
/* clang-format on */

typedef struct function_fault {
    const char *name;
    uint32_t ins;
    const char *rule;
    void (*plant)(wf_fn *f, wf_ins *i);
} function_fault;

#define PLANT(name, ins, rule, ...)                                                                \
    static void plant_##name(UNUSED wf_fn *f, UNUSED wf_ins *i)                                    \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
FUNCTION_FAULTS(PLANT)
#undef PLANT
#define ROW(name, ins, rule, ...) {#name, ins, rule, plant_##name},
static const function_fault function_faults[] = {FUNCTION_FAULTS(ROW)};
#undef ROW
enum { NFUNCTION = sizeof function_faults / sizeof *function_faults };

Test(faults, of_functions)
{
    wf_why why = {0};
    wf_fn *f = parse(whole);
    cr_assert_eq(wf_fn_verify(f, &why), 0, "%s", why.rule);
    wf_fn_free(f);
    for (int k = 0; k < NFUNCTION; k++) {
        const function_fault *x = &function_faults[k];
        char number[16] = "";
        f = parse(whole);
        if (x->ins) {
            snprintf(number, sizeof number, "%%%u ", x->ins);
        }
        x->plant(f, &f->ins[x->ins ? x->ins - 1 : 0]);
        why = (wf_why){0};
        check_fault(x->name, wf_fn_verify(f, &why), &why, number, x->rule);
        wf_fn_free(f);
    }
    cr_assert_geq(NFUNCTION, 100);
}

/* Whatever becomes of any field of any instruction: the verifier refuses it, or it is a function that prints and parses. */
Test(faults, any_field_of_any_instruction)
{
    static const uint32_t values[] = {0,  1,  2,  3,  4,   5,   7,     9,         12,
                                      30, 31, 32, 33, 100, 255, 65535, UINT32_MAX};
    enum { NVALUES = sizeof values / sizeof *values, FIELDS = 8 };
    int refused = 0, taken = 0;
    wf_fn *count = parse(whole);
    const uint32_t n = count->n;
    wf_fn_free(count);
    for (uint32_t k = 0; k < n * FIELDS * NVALUES; k++) {
        const uint32_t v = values[k % NVALUES], field = k / NVALUES % FIELDS;
        wf_fn *f = parse(whole);
        wf_ins *i = &f->ins[k / NVALUES / FIELDS];
        switch (field) {
        case 0:
            i->op = (uint8_t)v;
            break;
        case 1:
            i->nsrc = (uint16_t)v;
            break;
        case 2:
            i->type = v;
            break;
        case 3:
            i->attr = v;
            break;
        case 4:
            i->flags = (uint8_t)v;
            break;
        default:
            i->src[field - 5] = v;
            break;
        }
        wf_why why = {0};
        if (wf_fn_verify(f, &why) == 0) {
            char *text = wf_fn_text(f);
            wf_fn *g = wf_fn_parse(text, strlen(text), &why);
            cr_expect(g && wf_fn_equal(f, g), "%s\n%s", why.rule, text);
            wf_fn_free(g);
            free(text);
            taken++;
        } else {
            cr_expect(why.rule[0], "no reason");
            refused++;
        }
        wf_fn_free(f);
    }
    cr_expect_gt(refused, 3 * taken, "%d refused, %d taken", refused, taken);
}

/* A pass that takes the slots of one instruction for those of another. */
static uint32_t harmed;
static void mix_up(int pass, wf_fn *f)
{
    if (pass == WF_PASS_fold) {
        f->origin[harmed] = harmed == 1 ? 0 : 4;
    }
}

Test(faults, slots_of_another_instruction)
{
    static const uint32_t with_slots[] = {1, 6, 7};
    wf_fn *f = parse("fn f {\n"
                     "  %1 = input f32[8]\n"
                     "  %2 = scalar f64\n"
                     "  %3 = detach f32[8] %1\n"
                     "  %4 = mul f32[8] %3, %2\n"
                     "  %5 = exp f32[8] %4\n"
                     "  %6 = input f32[8]\n"
                     "  %7 = slice f32[3] %5 ints(0) dyn(2,5,1)\n"
                     "  %8 = full f32[] flt(0x1p-1) dtype(f32)\n"
                     "  %9 = mul f32[3] %7, %8\n"
                     "  return %9, %6\n"
                     "}\n");
    for (int k = 0; k < 3; k++) {
        wf_fn *g = NULL;
        wf_why why = {0};
        wf_pass_opts o = {.verify = true, .spoil = mix_up};
        harmed = with_slots[k] - (k > 0); /* detach is gone */
        cr_expect(wf_pass_all(f, &o, &g, &why) != 0);
        cr_expect(says(why.rule, "pass fold", "its slots come from"), "%s", why.rule);
        wf_fn_free(g);
    }
    wf_fn_free(f);
}

/* -- plans --------------------------------------------------------------------------------------------------------- */

enum { BARE = WF_PLAN_NO_FUSE | WF_PLAN_TIER0, ROWS = WF_PLAN_TIER0 | WF_PLAN_ROWS };
enum { CHAIN, STORED, PAIR, EVEN, SOFTMAX, AFTER, DRAWN, VIEWED, VERSIONS, PARTS, NBASE };

static const struct base {
    const char *text;
    unsigned flags;
    int32_t writes[2];
} bases[NBASE] = {
    [CHAIN] = {"fn a {\n  %1 = input f32[8,16]\n  %2 = input f32[16,16]\n"
               "  %3 = exp f32[8,16] %1 at \"model.c:7\"\n  %4 = matmul f32[8,16] %3, %2\n"
               "  %5 = matmul f32[8,16] %4, %2\n  %6 = add f32[8,16] %3, %5\n"
               "  %7 = softmax f32[8,16] %6 ints(1)\n  return %7, %4\n}\n",
               BARE,
               {-1, -1}},
    [STORED] = {"fn a {\n  %1 = input f32[100]\n  %2 = input f32[100]\n"
                "  %3 = add f32[100] %1, %2\n  %4 = exp f32[100] %3\n"
                "  %5 = mul f32[100] %4, %1\n  return %3, %5\n}\n",
                BARE,
                {0, -1}},
    [PAIR] = {"fn a {\n  %1 = input f32[64]\n  %2 = input f32[64]\n  %3 = input f32[48]\n"
              "  %4 = input f32[48]\n  %5 = scalar f64 0x1p+1\n  %6 = mul f32[64] %1, %5\n"
              "  %7 = add f32[64] %6, %2\n  %8 = mul f32[48] %3, %5\n"
              "  %9 = add f32[48] %8, %4\n  return %7, %9\n}\n",
              WF_PLAN_TIER0,
              {-1, -1}},
    [EVEN] = {"fn a {\n  %1 = input f32[64]\n  %2 = input f32[64]\n  %3 = input f32[64]\n"
              "  %4 = input f32[64]\n  %5 = scalar f64 0x1p+1\n  %6 = mul f32[64] %1, %5\n"
              "  %7 = add f32[64] %6, %2\n  %8 = mul f32[64] %3, %5\n"
              "  %9 = add f32[64] %8, %4\n  return %7, %9\n}\n",
              WF_PLAN_TIER0,
              {-1, -1}},
    [SOFTMAX] = {"fn a {\n  %1 = input f32[40,70]\n  %2 = input f32[70]\n"
                 "  %3 = mul f32[40,70] %1, %2\n  %4 = softmax f32[40,70] %3 ints(1)\n"
                 "  %5 = sum f32[40] %4 ints(1)\n  return %4, %5\n}\n",
                 ROWS,
                 {-1, -1}},
    [AFTER] = {"fn a {\n  %1 = input f32[64,64]\n  %2 = input f32[64,64]\n  %3 = input f32[64]\n"
               "  %4 = linear f32[64,64] %1, %2, %3\n  %5 = gelu f32[64,64] %4\n"
               "  %6 = mul f32[64,64] %5, %1\n  return %6\n}\n",
               WF_PLAN_TIER0,
               {-1, -1}},
    [DRAWN] = {"fn a {\n  %1 = input f32[6,8]\n  %2 = input i64[6]\n"
               "  %3 = rand f32[6,8] dyn(6,8,7,3) flt(0x0p+0,0x1p+0)\n  %4 = mul f32[6,8] %1, %3\n"
               "  %5 = cross_entropy f32[6] %4, %2 dyn(-100) flt(0x0p+0)\n  %6 = result f32[6] %5 "
               "#1\n  return %5\n}\n",
               ROWS,
               {-1, -1}},
    [VIEWED] = {"fn a {\n  %1 = input f32[9,4]\n  %2 = slice f32[3,4] %1 ints(0) dyn(2,5,1)\n"
                "  %3 = exp f32[3,4] %2\n  %4 = update f32[9,4] %1, %3 dyn(3,4,4,1,8)\n"
                "  %5 = sum f32[9] %4 ints(1)\n  return %4, %5\n}\n",
                WF_PLAN_TIER0,
                {-1, -1}},
    [VERSIONS] = {"fn a {\n  %1 = input f32[9,4]\n  %2 = input f32[3,4]\n"
                  "  %3 = update f32[9,4] %1, %2 dyn(3,4,4,1,8)\n  %4 = sum f32[9] %1 ints(1)\n"
                  "  return %3, %4\n}\n",
                  BARE,
                  {-1, -1}},
    [PARTS] = {"fn a {\n  %1 = input f32[6,4]\n  %2 = input f32[6,4]\n  %3 = input f32[6,8]\n"
               "  %4 = mul f32[6,4] %1, %2\n  %5 = exp f32[6,4] %4\n  %6 = neg f32[6,4] %4\n"
               "  %7 = cumsum f32[6,8] %3 ints(1)\n  %8 = concat f32[6,16] %5, %7, %6 ints(1)\n"
               "  %9 = cumsum f32[6,16] %8 ints(1)\n  return %9\n}\n",
               WF_PLAN_TIER0,
               {-1, -1}},
};

/* Of step s: destination or source n as an access, and its buffer. */
static wf_access *dst(wf_plan *p, int s, int n)
{
    return &p->accesses[p->steps[s].access + (uint32_t)n];
}
static wf_access *src(wf_plan *p, int s, int n)
{
    return dst(p, s, p->steps[s].ndst + n);
}
static wf_buffer *buf(wf_plan *p, const wf_access *a)
{
    return &p->buffers[a->buffer];
}
/* a comes to lie where b does. */
static void move_to(wf_buffer *a, const wf_buffer *b)
{
    a->place = b->place;
    a->index = b->index;
    a->slot = b->slot;
    a->offset = b->offset;
}
static void drop_step(wf_plan *p, uint32_t s)
{
    memmove(&p->steps[s], &p->steps[s + 1], (p->nsteps - s - 1) * sizeof *p->steps);
    p->nsteps--;
}
/* Steps s and s + 1 in the other order. */
static void swap_steps(wf_plan *p, uint32_t s)
{
    const wf_plan_step x = p->steps[s];
    const uint32_t first = x.launch, second = p->steps[s + 1].launch;
    p->steps[s] = p->steps[s + 1];
    p->steps[s + 1] = x;
    p->steps[s].launch = first;
    p->steps[s + 1].launch = second;
}
static wf_program *prog(wf_plan *p, int s)
{
    return p->programs[p->steps[s].program].program;
}
static uint32_t scalar_of_kind(const wf_plan *p, int kind)
{
    uint32_t n = 0;
    while (n < p->nscalars && p->scalars[n].kind != kind) {
        n++;
    }
    cr_assert_lt(n, p->nscalars, "no scalar of kind %d", kind);
    return n;
}

/* X(name, plan, words that name what is wrong, words of the rule, harm to p, whose step S it is) */
/* clang-format off */
#define PLAN_FAULTS(X)                                                                                                \
    X(launch_missing, CHAIN, "step 1", "launch 2 behind launch 0", drop_step(p, 1);)                                   \
    X(first_launch_missing, CHAIN, "step 0", "launch 1 behind", drop_step(p, 0);)                                      \
    X(last_launch_missing, CHAIN, "5 launches", "launch 3", p->nsteps--;)                                              \
    X(launch_dropped_and_renumbered, CHAIN, "step 2 group %6 add", "operand 1, %5, is read before",                    \
      drop_step(p, 2); p->steps[2].launch = 2; p->steps[3].launch = 3; p->nlaunches = 4;)                              \
    X(copy_missing, STORED, "output 0, %3", "not in its memory", p->nsteps--; p->nlaunches--;)                         \
    X(producer_after_reader, CHAIN, "step 0 op %4 matmul", "operand 0, %3, is read before", swap_steps(p, 0);)         \
    X(product_after_its_reader, CHAIN, "step 2 group %6 add", "is read before a step makes it", swap_steps(p, 2);)     \
    X(copied_too_early, STORED, "step 3 group %5 mul", "overwritten", swap_steps(p, 2);)                               \
    X(launches_descend, CHAIN, "step 3", "in launch 1 behind launch 2", p->steps[3].launch = 1;)                       \
    X(one_launch_for_both, CHAIN, "step 1 op %4 matmul", "read before a step makes it",                                \
      for (int s = 1; s < 5; s++) p->steps[s].launch--; p->nlaunches--; p->most_steps = 9; p->most_views = 9;)         \
    X(launches_miscounted, CHAIN, "6 launches", "last step is in launch 4", p->nlaunches++;)                           \
    X(step_of_no_kind, CHAIN, "step 1", "is not there", p->steps[1].kind = 7;)                                         \
    X(step_of_no_instruction, CHAIN, "step 1", "is not there", p->steps[1].ins = 4000;)                                \
    X(operands_outside, CHAIN, "step 4", "is not there", p->steps[4].access = p->naccesses;)                           \
    X(scalars_outside, PAIR, "step 1", "is not there", p->steps[1].scalar = p->nscalars;)                              \
    X(members_outside, CHAIN, "step 1", "is not there", p->steps[1].member = p->nmembers;)                             \
    X(checks_outside, DRAWN, "step 0", "is not there", p->steps[0].check = 9;)                                         \
    X(member_dangles, CHAIN, "step 1", "member 0 is %4001", p->members[p->steps[1].member] = 4000;)                    \
    X(no_destination, CHAIN, "step 1", "is not there", p->steps[1].ndst = 0;)                                          \
    X(another_row, CHAIN, "step 1 op %4 matmul", "another instruction", p->steps[1].op = WF_OP_ADD;)                   \
    X(another_instruction, CHAIN, "step 4 op %6 add", "another instruction", p->steps[4].ins = 5;)                     \
    X(operand_dropped, CHAIN, "step 1 op %4 matmul", "another instruction", p->steps[1].nsrc = 1;)                     \
    X(result_elsewhere, CHAIN, "step 1 op %4 matmul", "result 0 goes to %5", dst(p, 1, 0)->buffer = dst(p, 2, 0)->buffer;) \
    X(operand_of_another, CHAIN, "step 2 op %5 matmul", "operand 0 is %4, and is read from %3", src(p, 2, 0)->buffer = dst(p, 0, 0)->buffer;) \
    X(operand_absent, CHAIN, "step 2 op %5 matmul", "operand 1 is %2", src(p, 2, 1)->buffer = WF_BUFFER_ABSENT;)       \
    X(operand_of_no_buffer, CHAIN, "step 2", "which is none", src(p, 2, 1)->buffer = 99;)                              \
    X(operand_of_no_type, CHAIN, "step 2", "which is none", src(p, 2, 1)->dtype = 99;)                                 \
    X(shape_outside, CHAIN, "step 2", "which is none", src(p, 2, 1)->shape = p->nwords;)                               \
    X(too_many_axes, CHAIN, "step 2", "which is none", src(p, 2, 1)->rank = 77;)                                       \
    X(result_without_memory, CHAIN, "step 0", "destination 0 has no memory", dst(p, 0, 0)->buffer = WF_BUFFER_ABSENT;) \
    X(offset_outside, CHAIN, "step 1", "source 0 names elements outside %3", src(p, 1, 0)->offset = 1;)                \
    X(offset_before, CHAIN, "step 1", "names elements outside", src(p, 1, 0)->offset = -1;)                            \
    X(stride_outside, CHAIN, "step 0", "names elements outside", p->words[src(p, 1, 0)->shape + 2] += 16;)              \
    X(extent_outside, CHAIN, "step 0", "names elements outside", p->words[src(p, 0, 0)->shape] += 1;)                  \
    X(start_outside, VIEWED, "step 0", "names elements outside", src(p, 0, 0)->offset += 24;)                          \
    X(start_twice, VIEWED, "step 0", "names elements outside", p->terms[src(p, 0, 0)->term].a = 20;)                   \
    X(start_of_no_slice, VIEWED, "step 0", "offset of source 0 is read from %1", p->terms[src(p, 0, 0)->term].ins = 0;) \
    X(start_of_no_instruction, VIEWED, "step 0", "offset of source 0", p->terms[src(p, 0, 0)->term].ins = 4000;)       \
    X(starts_outside, VIEWED, "step 0", "which is none", src(p, 0, 0)->term = p->nterms;)                              \
    X(buffer_too_small, CHAIN, "buffer", "outside it", buf(p, dst(p, 0, 0))->bytes -= 4;)                              \
    X(buffer_outside, CHAIN, "buffer", "outside it", buf(p, dst(p, 0, 0))->offset = 64;)                               \
    X(buffer_before, CHAIN, "buffer", "outside it", buf(p, dst(p, 0, 0))->offset = -64;)                               \
    X(buffer_nowhere, CHAIN, "buffer", "outside it", buf(p, dst(p, 0, 0))->place = WF_PLACE_NONE;)                     \
    X(buffer_of_no_input, CHAIN, "buffer", "outside it", buf(p, src(p, 0, 0))->index = 2;)                             \
    X(buffer_in_another_slot, CHAIN, "buffer", "outside it", buf(p, dst(p, 1, 0))->slot--;)                            \
    X(buffer_of_no_value, CHAIN, "buffer", "outside it", buf(p, dst(p, 1, 0))->v = 77;)                                \
    X(live_values_overlap, CHAIN, "step 3 group %6 add", "operand 0, %3, is read from memory that step 2 has overwritten", \
      move_to(buf(p, dst(p, 2, 0)), buf(p, dst(p, 0, 0)));)                                                            \
    X(result_elsewhere_at_the_end, CHAIN, "output 0, %7", "not in its memory", move_to(buf(p, dst(p, 4, 0)), buf(p, dst(p, 1, 0)));) \
    X(operand_overwritten, CHAIN, "step 1 op %4 matmul", "in the memory of operand 0, %3, which it still reads",       \
      move_to(buf(p, dst(p, 1, 0)), buf(p, dst(p, 0, 0)));)                                                            \
    X(in_an_input, CHAIN, "step 2 op %5 matmul", "destination 0, %5, lies in argument 1", move_to(buf(p, dst(p, 2, 0)), buf(p, src(p, 2, 1)));) \
    X(captured_too_early, STORED, "step 2 group %5 mul", "operand 0, %1, is read from memory that step 0 has overwritten", \
      move_to(buf(p, dst(p, 0, 0)), buf(p, dst(p, 3, 0)));)                                                            \
    X(made_twice, CHAIN, "step 4 op %7 softmax", "result 0 goes to %6", dst(p, 4, 0)->buffer = dst(p, 3, 0)->buffer;)   \
    X(input_made, STORED, "step 3 copy", "is not a copy", dst(p, 3, 0)->buffer = src(p, 0, 1)->buffer;)                \
    X(copy_of_another, STORED, "step 3 copy", "%3 is not a copy of %4", src(p, 3, 0)->buffer = dst(p, 1, 0)->buffer;)  \
    X(copy_of_another_shape, STORED, "step 3 copy", "is not a copy", p->words[dst(p, 3, 0)->shape] = 50;)              \
    X(two_in_one_place, PAIR, "step 1", "which this launch makes, too",                                                \
      buf(p, dst(p, 1, 0))->place = WF_PLACE_OUTPUT; move_to(buf(p, dst(p, 1, 0)), buf(p, dst(p, 0, 0)));)             \
    X(after_nothing, AFTER, "step 0", "is not there", p->steps[0].after = true;)                                       \
    X(after_another_launch, AFTER, "step 1", "does not stand before it", p->steps[1].launch = 1; p->nlaunches = 2;)    \
    X(after_no_product, AFTER, "step 0", "another instruction", p->steps[0].op = WF_OP_CONV2D;)                        \
    X(old_version_read, VIEWED, "step 2 op %5 sum", "operand 0 is %4, and is read from %1", src(p, 2, 0)->buffer = src(p, 1, 0)->buffer;) \
    X(program_out_of_range, PAIR, "step 0", "program", p->steps[0].program = p->nprograms;)                            \
    X(program_of_more_sources, PAIR, "step 0", "program", p->steps[0].nsrc = 1;)                                       \
    X(program_of_more_scalars, PAIR, "step 0", "program", p->steps[0].nscalar = 0;)                                    \
    X(axes_without_rows, PAIR, "step 0", "program", p->steps[0].axes = 1;)                                             \
    X(axes_outside, SOFTMAX, "step 0", "axes that its space does not have", p->steps[0].axes = 4 | 2;)                 \
    X(other_axes, SOFTMAX, "step 0", "not of the shape", p->steps[0].axes = 1;)                                        \
    X(another_shape, PAIR, "step 0", "not of the shape", src(p, 0, 1)->shape = src(p, 1, 0)->shape;)                   \
    X(another_type, PAIR, "step 0", "not of the shape", src(p, 0, 1)->dtype = WEFT_I32;)                               \
    X(another_rank, SOFTMAX, "step 0", "", src(p, 0, 1)->rank = 1;)                                                    \
    X(drawn_but_not, PAIR, "step 0", "not of the shape", src(p, 0, 1)->buffer = WF_BUFFER_DRAWN;)                      \
    X(not_drawn_but_is, DRAWN, "step 0", "", for (int n = 0; n < p->steps[0].nsrc; n++)                                \
        if (src(p, 0, n)->buffer == WF_BUFFER_DRAWN) src(p, 0, n)->buffer = 0;)                                        \
    X(destination_of_another, EVEN, "step 0 group %7 add", "destination 0 is %9, which no member", dst(p, 0, 0)->buffer = dst(p, 1, 0)->buffer;) \
    X(scalar_of_no_slot, PAIR, "step 0", "scalar 0 is read from %1", p->scalars[0].ins = 0;)                           \
    X(scalar_of_no_instruction, PAIR, "step 0", "scalar 0 is read from %4001", p->scalars[0].ins = 4000;)              \
    X(scalar_of_no_kind, PAIR, "step 0", "as kind 99", p->scalars[0].kind = 99;)                                       \
    X(scalar_of_another_type, PAIR, "step 0", "scalar 0", p->scalars[0].dtype = WEFT_I64;)                             \
    X(scalar_is_no_fill, PAIR, "step 0", "scalar 0", p->scalars[0].kind = WF_SCALAR_FILL;)                             \
    X(seed_of_no_draw, DRAWN, "step 0", "scalar", p->scalars[scalar_of_kind(p, WF_SCALAR_SEED)].ins = 0;)              \
    X(offset_of_another_rank, DRAWN, "step 0", "scalar", p->scalars[scalar_of_kind(p, WF_SCALAR_OFFSET)].n = 1;)       \
    X(check_of_no_loss, DRAWN, "step 0", "check 0", p->checks[0].ins = 0;)                                             \
    X(check_of_no_source, DRAWN, "step 0", "check 0", p->checks[0].source = 30;)                                       \
    X(taken_too_late, CHAIN, "step 0", "is not there in launch 0", p->takes[0].launch = 1;)                            \
    X(result_taken_too_late, CHAIN, "step 1", "is not there in launch 1", p->takes[1].launch = 2;)                     \
    X(not_taken, CHAIN, "step 2", "is not there in launch 2", p->ntakes--;)                                            \
    X(taken_twice, CHAIN, "take 1", "twice", p->takes[1] = p->takes[0];)                                               \
    X(taken_smaller, CHAIN, "take 0", "not as large", p->takes[0].bytes -= 64;)                                        \
    X(taken_out_of_turn, CHAIN, "take 1", "out of turn", p->takes[0].launch = 2;)                                      \
    X(taken_nowhere, CHAIN, "take 0", "slot 77", p->takes[0].slot = 77;)                                               \
    X(given_too_early, CHAIN, "step 4", "is not there in launch 4", p->gives[2].launch = 3;)                           \
    X(input_given_too_early, CHAIN, "step 2", "is not there in launch 2", p->gives[1].launch = 1;)                     \
    X(given_twice, CHAIN, "give 1", "twice", p->gives[1].slot = 0;)                                                    \
    X(given_before_taken, CHAIN, "give 0", "", p->gives[0].slot = 4, p->gives[0].launch = 0, p->takes[0].launch = 1;)  \
    X(result_given, CHAIN, "give 2", "not the run's", p->gives[2].slot = 2;)                                           \
    X(captured_given, STORED, "give 0", "not the run's", p->gives[0].slot = 0;)                                        \
    X(room_for_fewer_operands, CHAIN, "launch 1", "a run has room for", p->most_views = 2;)                            \
    X(room_for_fewer_numbers, PAIR, "launch 0", "a run has room for", p->most_scalars = 1;)                            \
    X(room_for_fewer_steps, PAIR, "launch 0", "a run has room for", p->most_steps = 1;)                                \
    X(part_elsewhere, PARTS, "step 0", "which no member of it makes", dst(p, 0, 0)->offset = 8;)                       \
    X(part_in_other_rows, PARTS, "step 0", "which no member of it makes", p->words[dst(p, 0, 1)->shape + 2] = 15;)     \
    X(part_twice, PARTS, "step 0", "which is there already", dst(p, 0, 1)->offset = 0;)                                \
    X(part_missing, PARTS, "step 2", "before all its parts are made", drop_step(p, 2), p->steps[2].launch = 2,         \
      p->nlaunches = 3;)                                                                                               \
    X(part_too_late, PARTS, "step 2", "before all its parts are made", swap_steps(p, 2);)                              \
    X(part_overwritten, PARTS, "step 2", "whose memory step 1 has overwritten",                                        \
      move_to(buf(p, dst(p, 1, 0)), buf(p, dst(p, 0, 0)));)                                                            \
    X(rest_elsewhere, PARTS, "step 2", "is not a copy of", dst(p, 2, 0)->offset = 5;)                                  \
    X(program_broken, PAIR, "program 0: instruction 1 add", "not there yet", prog(p, 0)->inst[1].src[0] = 77;)
/* clang-format on */

typedef struct plan_fault {
    const char *name;
    int base;
    const char *what, *rule;
    void (*plant)(wf_plan *p);
} plan_fault;

#define PLANT(name, base, what, rule, ...)                                                         \
    static void plan_##name(UNUSED wf_plan *p)                                                     \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
PLAN_FAULTS(PLANT)
#undef PLANT
#define ROW(name, base, what, rule, ...) {#name, base, what, rule, plan_##name},
static const plan_fault plan_faults[] = {PLAN_FAULTS(ROW)};
#undef ROW
enum { NPLAN = sizeof plan_faults / sizeof *plan_faults };

static wf_plan *build(const wf_fn *f, const wf_plan_opts *o)
{
    wf_why why = {0};
    wf_plan *p = wf_plan_build(f, o, &why);
    cr_assert_not_null(p, "%s", why.rule);
    cr_assert_eq(wf_plan_verify(p, wf_plan_fn(p), o, &why), 0, "%s", why.rule);
    return p;
}

Test(faults, of_plans)
{
    for (int k = 0; k < NPLAN; k++) {
        const plan_fault *x = &plan_faults[k];
        const struct base *b = &bases[x->base];
        const wf_plan_opts o = {.flags = b->flags, .writes = b->writes};
        wf_fn *f = parse(b->text);
        wf_plan *p = build(f, &o);
        wf_why why = {0};
        x->plant(p);
        check_fault(x->name, wf_plan_verify(p, wf_plan_fn(p), &o, &why), &why, x->what, x->rule);
        wf_plan_release(p);
        wf_fn_free(f);
    }
    cr_assert_geq(NPLAN, 90);
}

/* What the run of p takes and gives back, if outputs replace inputs. */
static void replace(wf_plan *p, const int32_t *writes)
{
    uint32_t takes = 0, gives = 0;
    for (uint32_t i = 0; i < p->ntakes; i++) {
        const uint32_t k = p->takes[i].slot - p->ninputs;
        p->takes[takes] = p->takes[i];
        takes += k >= p->noutputs || writes[k] < 0;
    }
    for (uint32_t i = 0; i < p->ngives; i++) {
        p->gives[gives] = p->gives[i];
        gives += (int32_t)p->gives[i].slot != writes[0] && (int32_t)p->gives[i].slot != writes[1];
    }
    p->ntakes = takes;
    p->ngives = gives;
}

/* A plan that was built for results of their own, where they are to replace inputs (versions of one storage). */
Test(faults, of_write_backs)
{
    static const struct {
        int base;
        unsigned flags;
        int32_t writes[2];
        const char *what, *rule;
    } bad[] = {
        {STORED, 0, {0, 0}, "output 1 cannot replace input 0", "another does"},
        {STORED, 0, {2, -1}, "output 0 cannot replace input 2", ""},
        {STORED, 0, {-1, 99}, "output 1 cannot replace input 99", ""},
        {CHAIN, 0, {1, -1}, "output 0 cannot replace input 1", "another size"},
        {EVEN,
         0,
         {2, -1},
         "step 0 group %7 add",
         "in the memory of %3, which another step of the launch reads"},
        {EVEN,
         0,
         {-1, 0},
         "step 1 group %9 add",
         "in the memory of %1, which another step of the launch reads"},
        {AFTER,
         0,
         {1, -1},
         "step 0 op %4 linear",
         "in the memory of operand 1, %2, which it still reads"},
        {SOFTMAX,
         WF_PLAN_ALONE,
         {0, -1},
         "step 0 group",
         "in the memory of operand 0, %1, which it still reads"},
        {VERSIONS,
         0,
         {0, -1},
         "step 1 op %4 sum",
         "operand 0, %1, is read from memory that step 0 has overwritten"},
    };
    wf_why why = {0};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        const struct base *b = &bases[bad[k].base];
        wf_fn *f = parse(b->text);
        wf_plan *p = build(f, &(wf_plan_opts){.flags = b->flags});
        const wf_plan_opts o = {.flags = b->flags | bad[k].flags, .writes = bad[k].writes};
        replace(p, bad[k].writes);
        const int rc = wf_plan_verify(p, wf_plan_fn(p), &o, &why);
        cr_expect(rc && says(why.rule, bad[k].what, bad[k].rule), "case %d: %s", (int)k,
                  rc ? why.rule : "passed");
        wf_plan_release(p);
        wf_fn_free(f);
    }
    wf_fn *f = parse(bases[CHAIN].text), *g = parse(bases[SOFTMAX].text);
    wf_plan *p = build(f, &(wf_plan_opts){.flags = BARE});
    g->noutputs = 1;
    cr_expect(wf_plan_verify(p, g, &(wf_plan_opts){0}, &why) &&
                  says(why.rule, "another function", ""),
              "%s", why.rule);
    wf_plan_release(p);
    wf_fn_free(f);
    wf_fn_free(g);
}

/* -- tile programs ---------------------------------------------------------------------------------------------------- */

/* x * y + s, exp of it where it is less than x: six instructions in registers. */
static void program_mapped(wf_program *p)
{
    const int x = wf_program_input(p, WEFT_F32), y = wf_program_input(p, WEFT_F32),
              s = wf_program_scalar(p, WEFT_F32);
    const int m = program_map2(p, WF_OP_ADD, program_map2(p, WF_OP_MUL, x, y), s);
    const int e = program_map1(p, WF_OP_EXP, m), less = program_map2(p, WF_OP_LESS, e, x);
    const int pick[3] = {less, e, m};
    wf_program_output(p, wf_program_map(p, WF_OP_WHERE, WEFT_F32, 3, pick));
    wf_program_output(p, m);
}

/* X(name, program: 0 mapped, 1 softmax, 2 cross entropy; words, harm to p and its instruction i (the one named)) */
/* clang-format off */
#define PROGRAM_FAULTS(X)                                                                                      \
    X(too_many_inputs, 0, -1, "no program", p->ninput = 33;)                                                   \
    X(negative_count, 0, -1, "no program", p->nscalar = -1;)                                                   \
    X(values_miscounted, 0, -1, "no program", p->nvalue++;)                                                    \
    X(no_outputs, 0, -1, "no program", p->noutput = 0;)                                                        \
    X(failed_while_built, 0, -1, "no program", p->failed = true;)                                              \
    X(input_of_another, 0, -1, "input 1", p->input[1] = 0;)                                                    \
    X(input_of_no_value, 0, -1, "input 1", p->input[1] = 400;)                                                 \
    X(input_of_no_type, 0, -1, "input 0", p->type[0] = 0;)                                                     \
    X(input_that_is_one, 0, -1, "input 0", p->level[0] = WF_LEVEL_ONE;)                                        \
    X(scalar_of_another, 0, -1, "scalar 0", p->scalar[0] = 1;)                                                 \
    X(scalar_that_is_elem, 0, -1, "scalar 0", p->level[p->scalar[0]] = WF_LEVEL_ELEM;)                         \
    X(draw_of_no_row, 0, -1, "input 0", p->draw[0].op = WF_OP_ADD;)                                            \
    X(draw_of_no_seed, 0, -1, "input 0", p->draw[0].op = WF_OP_RAND; memset(p->draw[0].scalar, 9, 4);)         \
    X(unknown_kind, 0, 2, "is none", i->kind = 77;)                                                            \
    X(too_many_sources, 0, 2, "is none", i->nsrc = 6;)                                                         \
    X(value_of_another, 0, 2, "not its own", i->value = 0;)                                                    \
    X(value_dangles, 0, 2, "not its own", i->value = 400;)                                                     \
    X(value_of_no_type, 0, 2, "not its own", p->type[i->value] = 99;)                                          \
    X(source_is_itself, 0, 2, "not there yet", i->src[0] = i->value;)                                          \
    X(source_is_later, 0, 1, "not there yet", i->src[0] = p->inst[4].value;)                                   \
    X(source_dangles, 0, 1, "not there yet", i->src[0] = 400;)                                                 \
    X(source_absent, 0, 1, "not there yet", i->src[1] = -1;)                                                   \
    X(read_behind_last, 0, 4, "behind its last reader", p->last[i->src[1]] = 3;)                               \
    X(no_row, 0, 2, "no row", i->op = 400;)                                                                    \
    X(row_without_kernel, 0, 2, "no kernel", i->op = WF_OP_MATMUL;)                                            \
    X(another_arity, 0, 2, "no kernel", i->op = WF_OP_ADD;)                                                    \
    X(no_compute_type, 0, 2, "no kernel", i->compute = WEFT_F16;)                                              \
    X(another_compute_type, 0, 2, "source 0 is f32, and it reads f64", i->compute = WEFT_F64;)                 \
    X(source_of_another_type, 0, 2, "source 0 is bool, and it reads f32", p->type[p->inst[1].value] = WEFT_BOOL, p->inst[1].op = WF_OP_LESS;) \
    X(condition_of_another_type, 0, 4, "source 0 is f32, and it reads bool", i->src[0] = i->src[1];)           \
    X(result_of_another_type, 0, 3, "its result is f32, and it makes bool", p->type[i->value] = WEFT_F32;)     \
    X(vjp_without_kernel, 0, 2, "no kernel", i->kind = WF_INST_VJP;)                                           \
    X(level_too_low, 0, 2, "its level is 0", i->level = WF_LEVEL_ONE;)                                         \
    X(level_of_value, 0, 2, "its level", p->level[i->value] = WF_LEVEL_ONE;)                                   \
    X(row_level_in_a_map, 0, 2, "", i->level = p->level[i->value] = WF_LEVEL_ROW;)                             \
    X(depth_of_value, 0, 2, "its depth 1", p->depth[i->value] = 1;)                                            \
    X(register_out_of_range, 0, 2, "register 40", i->reg = 40;)                                                \
    X(registers_too_narrow, 0, 0, "too narrow", p->width = 2;)                                                 \
    X(registers_too_many, 0, -1, "registers", p->nreg = 300;)                                                  \
    X(registers_too_wide, 0, -1, "registers", p->width = 1 << 20;)                                             \
    X(register_of_its_source, 0, 2, "is given to value", i->reg = p->inst[1].reg;)                             \
    X(register_still_needed, 0, 4, "is given to value", p->inst[3].reg = p->inst[2].reg; p->inst[3].src[0] = p->inst[1].value; p->inst[3].src[1] = 0;) \
    X(register_of_an_output, 0, -1, "is gone when it is written", p->inst[4].reg = p->inst[1].reg; p->inst[4].src[2] = 0; p->last[0] = 4;) \
    X(chain_too_long, 0, 4, "heads a chain", p->chain[4] = 1;)                                                 \
    X(chain_of_no_links, 0, 2, "heads a chain", p->chain[2] = 2;)                                              \
    X(output_dangles, 0, -1, "output 0", p->output[0] = 400;)                                                  \
    X(output_is_an_input, 0, -1, "output 0", p->output[0] = 0;)                                                \
    X(output_level, 0, -1, "output 1", p->output_level[1] = WF_LEVEL_ROW;)                                     \
    X(output_that_is_one, 0, -1, "output 1", p->output_level[1] = WF_LEVEL_ONE;)                               \
    X(output_not_kept, 0, -1, "is gone", p->last[p->output[0]] = 4;)                                           \
    X(reduces_by_no_sum, 1, 0, "not what it is about", i->op = WF_OP_EXP;)                                     \
    X(reduces_by_any, 1, 0, "not what it is about", i->op = WF_OP_ANY;)                                        \
    X(reduces_to_another_type, 1, 0, "not what it is about", p->type[i->value] = WEFT_F64;)                    \
    X(reduces_a_row, 1, 3, "not what it is about", i->src[0] = p->inst[0].value, p->last[p->inst[0].value] = 3;) \
    X(reduces_two, 1, 0, "", i->nsrc = 2;)                                                                     \
    X(total_of_every_element, 1, 0, "its level", p->level[i->value] = WF_LEVEL_ELEM;)                          \
    X(total_of_depth_zero, 1, 0, "depth", p->depth[i->value] = 0;)                                             \
    X(reads_a_total_too_early, 1, 1, "runs in phase 0", i->phase = 0;)                                         \
    X(total_in_another_phase, 1, 3, "runs in phase 2", i->phase = 2;)                                          \
    X(behind_the_last_phase, 1, 4, "phase 9", i->phase = 9;)                                                   \
    X(reads_a_later_phase, 1, 2, "is made in phase 2", p->inst[1].phase = 2;)                                  \
    X(phases_miscounted, 1, 4, "of 2", p->nphase = 2;)                                                         \
    X(rows_denied, 1, 0, "", p->rows = false;)                                                                 \
    X(picks_from_a_value, 2, 6, "not what it is about", i->src[0] = p->inst[1].value, p->last[p->inst[1].value] = 6;) \
    X(picks_by_a_float, 2, 6, "not what it is about", i->src[1] = p->inst[5].value;)                           \
    X(counts_in_truths, 2, 8, "", p->type[i->value] = WEFT_BOOL, i->compute = WEFT_BOOL;)                      \
    X(counts_with_a_source, 2, 8, "not what it is about", i->nsrc = 1, i->src[0] = p->inst[1].value, p->last[p->inst[1].value] = 8;) \
    X(checks_a_number, 2, 15, "not what it is about", i->src[0] = p->inst[5].value, p->last[p->inst[5].value] = 15;) \
    X(check_defines, 2, 15, "not its own", i->value = 3;)
/* clang-format on */

typedef struct program_fault {
    const char *name;
    int base, inst;
    const char *rule;
    void (*plant)(wf_program *p, wf_inst *i);
} program_fault;

#define PLANT(name, base, inst_, rule, ...)                                                        \
    static void program_##name(UNUSED wf_program *p, UNUSED wf_inst *i)                            \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
PROGRAM_FAULTS(PLANT)
#undef PLANT
#define ROW(name, base, inst_, rule, ...) {#name, base, inst_, rule, program_##name},
static const program_fault program_faults[] = {PROGRAM_FAULTS(ROW)};
#undef ROW
enum { NPROGRAM = sizeof program_faults / sizeof *program_faults };

static void make_program(wf_program *p, int base)
{
    wf_why why = {0};
    memset(p, 0, sizeof *p);
    wf_program_init(p);
    if (base == 0) {
        program_mapped(p);
    } else if (base == 1) {
        program_softmax(p, WEFT_F32);
    } else {
        program_cross_entropy(p, WEFT_F32);
    }
    cr_assert_eq(wf_program_finish(p), 0);
    cr_assert_eq(wf_program_verify(p, &why), 0, "%s", why.rule);
}

Test(faults, of_programs)
{
    wf_program *p = malloc(sizeof *p);
    for (int k = 0; k < NPROGRAM; k++) {
        const program_fault *x = &program_faults[k];
        char number[32] = "";
        wf_why why = {0};
        make_program(p, x->base);
        if (x->inst >= 0) {
            snprintf(number, sizeof number, "instruction %d ", x->inst);
        }
        x->plant(p, &p->inst[x->inst < 0 ? 0 : x->inst]);
        check_fault(x->name, wf_program_verify(p, &why), &why, number, x->rule);
    }
    free(p);
    cr_assert_geq(NPROGRAM, 60);
}

/* -- kernel IR ---------------------------------------------------------------------------------------------------------- */

/* The first instruction by a primitive. */
static wf_kinstr *prim(wf_kir *k, int p)
{
    uint32_t n = 0;
    while (n < k->n && k->ins[n].prim != p) {
        n++;
    }
    cr_assert_lt(n, k->n, "no %s", wf_kprim_name((wf_kprim)p));
    return &k->ins[n];
}

/* X(name, the instruction harmed (WF_KP_COUNT: the program), words, harm to k and i): the square root in bf16, rounded */
/* clang-format off */
#define KIR_FAULTS(X)                                                                                          \
    X(no_primitive, SQRT, "no primitive", i->prim = WF_KP_COUNT;)                                              \
    X(no_type, SQRT, "no primitive", i->type = WF_KT_COUNT;)                                                   \
    X(another_arity, SQRT, "as many operands", i->prim = WF_KP_ADD;)                                           \
    X(operands_missing, SQRT, "as many operands", i->nsrc = 0;)                                                \
    X(operand_is_itself, SQRT, "stand before it", i->src[0] = (uint32_t)(i - k->ins);)                         \
    X(operand_is_later, FLT32, "stand before it", i->src[0] = k->n - 1;)                                       \
    X(operand_dangles, SQRT, "stand before it", i->src[0] = 40000;)                                            \
    X(operand_too_many, SQRT, "operand too many", i->src[1] = 1;)                                              \
    X(operand_of_another_type, SQRT, "rule of the primitive", i->src[0] = 0;)                                  \
    X(another_primitive, SQRT, "", i->prim = WF_KP_INOT;)                                                      \
    X(another_type, SQRT, "its type", i->type = WF_KT_F64;)                                                    \
    X(another_type_of_a_choice, SELECT, "its type", i->type = WF_KT_F32;)                                      \
    X(choice_by_a_number, SELECT, "rule of the primitive", i->src[0] = i->src[1];)                             \
    X(shift_by_its_width, SHLK, "rule of the primitive", i->imm = 32;)                                         \
    X(shift_by_much, SHRK, "rule of the primitive", i->imm = UINT64_MAX;)                                      \
    X(cast_to_itself, CAST, "type that is there", i->type = k->ins[i->src[0]].type;)                           \
    X(constant_too_wide, CONST, "its bits", i->imm = UINT64_MAX;)                                              \
    X(parameter_of_no_number, COUNT, "parameter 0", prim(k, WF_KP_PARAM)->imm = 5;)                                                 \
    X(parameter_of_another_type, PARAM, "parameter", i->type = WF_KT_U32;)                                     \
    X(parameter_listed_elsewhere, COUNT, "parameter 0 is %1", k->param[0] = 1;)                                      \
    X(parameters_too_many, COUNT, "no program", k->nparam = 200;)                                             \
    X(lookup_in_no_table, SQRT, "rule of the primitive", i->prim = WF_KP_LOOKUP;)                              \
    X(relaxed_root, SQRT, "relaxed", i->relaxed = 1;)                                                          \
    X(relaxed_integer, SHLK, "relaxed", i->relaxed = 1;)                                                       \
    X(output_dangles, COUNT, "output 0", k->out[0] = 40000;)                                                   \
    X(rare_test_is_a_number, COUNT, "no truth", k->rare = 0;)                                                  \
    X(rare_test_dangles, COUNT, "no truth", k->rare = 40000;)                                                  \
    X(dead_code, COUNT, "canonical", k->out[0] = prim(k, WF_KP_SQRT)->src[0];)                                 \
    X(bytes_between, SQRT, "canonical", i->pad2 = 1;)                                                          \
    X(sticky_error, COUNT, "", k->error = "some error";)
/* clang-format on */

typedef struct kir_fault {
    const char *name;
    int prim;
    const char *rule;
    void (*plant)(wf_kir *k, wf_kinstr *i);
} kir_fault;

#define PLANT(name, which, rule, ...)                                                              \
    static void kir_##name(UNUSED wf_kir *k, UNUSED wf_kinstr *i)                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
KIR_FAULTS(PLANT)
#undef PLANT
#define ROW(name, which, rule, ...) {#name, WF_KP_##which, rule, kir_##name},
static const kir_fault kir_faults[] = {KIR_FAULTS(ROW)};
#undef ROW
enum { NKIR = sizeof kir_faults / sizeof *kir_faults };

Test(faults, of_kernel_ir)
{
    static const uint8_t half = WEFT_BF16;
    for (int n = 0; n < NKIR; n++) {
        const kir_fault *x = &kir_faults[n];
        char number[32] = "";
        wf_kir k;
        wf_why why = {0};
        wf_kir_init(&k);
        cr_assert_eq(wf_kir_row_program(&k, WF_OP_SQRT, WEFT_F32, 1, &half, WEFT_BF16, &why), 0);
        cr_assert_eq(wf_kir_verify(&k, &why), 0, "%s", why.rule);
        wf_kinstr *i = x->prim == WF_KP_COUNT ? NULL : prim(&k, x->prim);
        if (i) {
            snprintf(number, sizeof number, "%%%u ", (unsigned)(i - k.ins));
        }
        x->plant(&k, i);
        check_fault(x->name, wf_kir_verify(&k, &why), &why, number, x->rule);
        wf_kir_free(&k);
    }
}

/* X(name, stage (-1: the kernel), words, harm to the kernel k, its rows r and the stage st): softmax */
/* clang-format off */
#define KERNEL_FAULTS(X)                                                                                       \
    X(too_many_sources, -1, "no kernel", k->nsrc = 33;)                                                        \
    X(no_destinations, -1, "no kernel", r->ndst = 0;)                                                          \
    X(cut_at_no_stage, -1, "no kernel", r->cut = 99;)                                                          \
    X(stages_under_a_map, -1, "stages", k->skeleton = WF_SK_MAP;)                                              \
    X(last_stage_missing, -1, "no stage writes destination 0", wf_kir_free(&r->stage[--r->nstage].body);)      \
    X(reads_no_source, 0, "reads what is not there", st->in[0].at = 7;)                                        \
    X(reads_before_all, 0, "reads what is not there", st->in[0].at = -1;)                                      \
    X(reads_a_destination, 0, "reads what is not there", st->in[0].kind = WF_PORT_DST;)                        \
    X(reads_no_scalar, 0, "reads what is not there", st->in[0].kind = WF_PORT_SCALAR;)                         \
    X(reads_a_slot_too_early, 0, "reads what is not there", st->in[0].kind = WF_PORT_SLOT;)                    \
    X(reads_a_kept_value_too_early, 0, "reads what is not there", st->in[0].kind = WF_PORT_KEEP;)              \
    X(source_of_another_type, 0, "of another type", r->src_type[0] = WF_KT_F64;)                               \
    X(totals_no_slot, 0, "output 0 writes what is not there", st->out[0].at = WF_ROWS_SLOTS;)                  \
    X(totals_by_no_sum, 0, "output 0 writes", st->out[0].op = WF_KP_SQRT;)                                     \
    X(slot_of_another_type, 0, "output 0 writes", r->slot_type[st->out[0].at] = WF_KT_F64;)                    \
    X(writes_a_source, 0, "output 0 writes", st->out[0].kind = WF_PORT_SOURCE;)                                \
    X(body_broken, 0, "stage 0: %", st->body.ins[st->body.n - 1].type = WF_KT_COUNT;)
/* clang-format on */

typedef struct kernel_fault {
    const char *name;
    int stage;
    const char *rule;
    void (*plant)(wf_kernel *k, wf_rows_kernel *r, wf_stage *st);
} kernel_fault;

#define PLANT(name, stage_, rule, ...)                                                             \
    static void kernel_##name(UNUSED wf_kernel *k, UNUSED wf_rows_kernel *r, UNUSED wf_stage *st)  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
KERNEL_FAULTS(PLANT)
#undef PLANT
#define ROW(name, stage_, rule, ...) {#name, stage_, rule, kernel_##name},
static const kernel_fault kernel_faults[] = {KERNEL_FAULTS(ROW)};
#undef ROW
enum { NKERNEL = sizeof kernel_faults / sizeof *kernel_faults };

Test(faults, of_kernels)
{
    wf_program *p = malloc(sizeof *p);
    for (int n = 0; n < NKERNEL; n++) {
        const kernel_fault *x = &kernel_faults[n];
        char number[32] = "";
        wf_kernel k;
        wf_why why = {0};
        make_program(p, 1);
        cr_assert_eq(wf_lower(p, 0, &k, &why), 0, "%s", why.rule);
        cr_assert_eq(wf_kernel_verify(&k, &why), 0, "%s", why.rule);
        if (x->stage >= 0) {
            snprintf(number, sizeof number, "stage %d", x->stage);
        }
        x->plant(&k, k.rows, &k.rows->stage[x->stage < 0 ? 0 : x->stage]);
        check_fault(x->name, wf_kernel_verify(&k, &why), &why, number, x->rule);
        wf_kernel_free(&k);
    }
    make_program(p, 0);
    wf_kernel k;
    wf_why why = {0};
    cr_assert_eq(wf_lower(p, 0, &k, &why), 0, "%s", why.rule);
    cr_assert_eq(wf_kernel_verify(&k, &why), 0, "%s", why.rule);
    k.nscalar++;
    cr_expect(wf_kernel_verify(&k, &why) != 0 && says(why.rule, "parameters", ""), "%s", why.rule);
    wf_kernel_free(&k);
    free(p);
}
