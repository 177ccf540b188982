/*
 * eager/env.h -- settings from the environment, read once.
 *
 * Invariants: the first call of any function here reads all variables of env.def, whichever thread
 * makes it; later changes of the environment have no effect. A value that does not parse counts as
 * not given (wf_env_list says so). Nothing here prints unasked or fails.
 */
#ifndef EAGER_ENV_H
#define EAGER_ENV_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { WF_ENV_STR_MAX = 256 };

typedef int64_t wf_env_type_int;
typedef int64_t wf_env_type_bytes;
typedef const char *wf_env_type_str;

/* One field per row, with the variable's own name: wf_env()->WEFT_DEBUG. */
typedef struct wf_env_values {
#define ENV(name, type, dflt, help) wf_env_type_##type name;
#include "eager/env.def"
#undef ENV
} wf_env_values;

const wf_env_values *wf_env(void);

/* Rungs of WEFT_DEBUG: each says what those below it say, too. */
typedef enum wf_debug {
    WF_DEBUG_COMPILE = 1, /* a line a kernel that is made */
    WF_DEBUG_LAUNCH,      /* a line a launch */
    WF_DEBUG_FUSION,      /* plans as they are built: steps, edges, reasons */
    WF_DEBUG_SOURCE,      /* kernels as text: LLVM, CUDA */
    WF_DEBUG_IR,          /* recorded functions, and after each pass that changed them */
    WF_DEBUG_ASM,         /* kernels as assembly */
    WF_DEBUG_PASSES       /* a line a pass, as WEFT_STATS=pass */
} wf_debug;
bool wf_env_debug(wf_debug rung);

/* Whether `mode` is among the comma-separated modes of WEFT_STRESS. *arg receives N of "mode:N", or
 * 0 if there is none; arg may be NULL. */
bool wf_env_stress(const char *mode, int64_t *arg);

/* Writes a table of all variables: name, value in use, default, help. */
void wf_env_list(FILE *out);

#endif
