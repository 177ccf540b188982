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

/* Whether `mode` is among the comma-separated modes of WEFT_STRESS. *arg receives N of "mode:N", or
 * 0 if there is none; arg may be NULL. */
bool wf_env_stress(const char *mode, int64_t *arg);

/* Writes a table of all variables: name, value in use, default, help. */
void wf_env_list(FILE *out);

#endif
