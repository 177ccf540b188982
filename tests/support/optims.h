/*
 * tests/support/optims.h -- an optimiser of every kind: each set of lines that an update can have.
 */
#ifndef TESTS_SUPPORT_OPTIMS_H
#define TESTS_SUPPORT_OPTIMS_H

#include "tests/gpu/runner.h"

#include "weft/nn.h"

/* What the references of tests/unit/test_optim.c read; 0: the rule has none of it. */
typedef struct optim_kind {
    const char *name;
    char rule; /* s: SGD, w: AdamW, a: Adam, r: RMSprop, g: Adagrad, l: Lion */
    double lr, decay, momentum, dampening, beta1, beta2;
    bool nesterov, amsgrad, centered;
    double lr_decay, initial;
} optim_kind;

static const optim_kind optim_kinds[] = {
    {.name = "sgd", .rule = 's', .lr = 0.01},
    {.name = "sgd decay", .rule = 's', .lr = 0.01, .decay = 0.01},
    {.name = "momentum", .rule = 's', .lr = 0.01, .momentum = 0.9},
    {.name = "momentum decay", .rule = 's', .lr = 0.01, .momentum = 0.9, .decay = 0.01},
    {.name = "nesterov", .rule = 's', .lr = 0.01, .momentum = 0.8, .nesterov = true},
    {.name = "nesterov decay",
     .rule = 's',
     .lr = 0.01,
     .momentum = 0.8,
     .nesterov = true,
     .decay = 0.02},
    {.name = "dampening", .rule = 's', .lr = 0.01, .momentum = 0.8, .dampening = 0.3},
    {.name = "dampening decay",
     .rule = 's',
     .lr = 0.01,
     .momentum = 0.8,
     .dampening = 0.3,
     .decay = 0.05},
    {.name = "adamw", .rule = 'w', .lr = 0.02, .beta1 = 0.9, .beta2 = 0.99},
    {.name = "adamw decay", .rule = 'w', .lr = 0.02, .beta1 = 0.9, .beta2 = 0.99, .decay = 0.1},
    {.name = "adamw amsgrad",
     .rule = 'w',
     .lr = 0.02,
     .beta1 = 0.9,
     .beta2 = 0.8,
     .decay = 0.1,
     .amsgrad = true},
    {.name = "adam", .rule = 'a', .lr = 0.02, .beta1 = 0.8, .beta2 = 0.95},
    {.name = "adam decay", .rule = 'a', .lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .decay = 0.1},
    {.name = "amsgrad", .rule = 'a', .lr = 0.02, .beta1 = 0.9, .beta2 = 0.8, .amsgrad = true},
    {.name = "amsgrad decay",
     .rule = 'a',
     .lr = 0.02,
     .beta1 = 0.9,
     .beta2 = 0.8,
     .amsgrad = true,
     .decay = 0.1},
    {.name = "rmsprop", .rule = 'r', .lr = 0.01, .beta2 = 0.95},
    {.name = "rmsprop decay", .rule = 'r', .lr = 0.01, .beta2 = 0.95, .decay = 0.1},
    {.name = "rmsprop momentum", .rule = 'r', .lr = 0.01, .beta2 = 0.95, .momentum = 0.5},
    {.name = "rmsprop momentum decay",
     .rule = 'r',
     .lr = 0.01,
     .beta2 = 0.95,
     .momentum = 0.5,
     .decay = 0.1},
    {.name = "centered", .rule = 'r', .lr = 0.002, .beta2 = 0.99, .centered = true},
    {.name = "centered decay",
     .rule = 'r',
     .lr = 0.002,
     .beta2 = 0.99,
     .centered = true,
     .decay = 0.1},
    {.name = "centered momentum decay",
     .rule = 'r',
     .lr = 0.002,
     .beta2 = 0.99,
     .momentum = 0.5,
     .decay = 0.1,
     .centered = true},
    {.name = "adagrad", .rule = 'g', .lr = 0.05},
    {.name = "adagrad decay",
     .rule = 'g',
     .lr = 0.05,
     .decay = 0.1,
     .lr_decay = 0.02,
     .initial = 0.1},
    {.name = "lion", .rule = 'l', .lr = 0.002, .beta1 = 0.9, .beta2 = 0.99},
    {.name = "lion decay", .rule = 'l', .lr = 0.002, .beta1 = 0.9, .beta2 = 0.99, .decay = 0.1},
};
enum { OPTIM_KINDS = sizeof optim_kinds / sizeof *optim_kinds };

/* Of kind k, as its options say. */
static weft_optim *optim_of(weft_module *m, const optim_kind *k)
{
    const double decay = k->decay > 0 ? k->decay : WEFT_ZERO;
    weft_optim *o = NULL;
    switch (k->rule) {
    case 's':
        o = weft_sgd_new(m, k->lr, k->momentum, k->decay, k->nesterov, .dampening = k->dampening);
        break;
    case 'w':
        o = weft_adamw_new(m, k->lr, k->beta1, k->beta2, .weight_decay = decay,
                           .amsgrad = k->amsgrad);
        break;
    case 'a':
        o = weft_adam_new(m, k->lr, k->beta1, k->beta2, .weight_decay = decay,
                          .amsgrad = k->amsgrad);
        break;
    case 'r':
        o = weft_rmsprop_new(m, k->lr, .alpha = k->beta2, .momentum = k->momentum,
                             .weight_decay = k->decay, .centered = k->centered);
        break;
    case 'g':
        o = weft_adagrad_new(m, k->lr, .lr_decay = k->lr_decay, .weight_decay = k->decay,
                             .initial = k->initial);
        break;
    default:
        o = weft_lion_new(m, k->lr, k->beta1, k->beta2, .weight_decay = k->decay);
    }
    cr_assert(o != NULL, "%s: %s", k->name, weft_last_error());
    return o;
}

#endif
