/*
 * tests/planted/wrong_llvm.c -- a libweft-llvm.so that compiles something else than what it is given: the real one with a fault.
 *
 * WRONG_LLVM in the environment, looked at for each kernel: "FROM>TO" or "FROM>TO;FROM>TO", pieces of the text and what replaces
 * them, everywhere; empty or not set: nothing is wrong. Programs find this library first where it lies beside them (jit/codegen_cpu/backend.c).
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/codegen_cpu/llvm_api.h"

static const wf_llvm_api *right;

typedef struct piece {
    const char *s;
    size_t n;
} piece;

/* text with every `from` replaced, malloced. */
static char *replaced(piece text, piece from, piece to, size_t *n)
{
    char *out = malloc(text.n * (to.n + 1) + 1), *end = out;
    for (size_t i = 0; out && i < text.n;) {
        const int here = text.n - i >= from.n && memcmp(text.s + i, from.s, from.n) == 0;
        const piece next = here ? to : (piece){text.s + i, 1};
        memcpy(end, next.s, next.n);
        end += next.n;
        i += here ? from.n : 1;
    }
    *n = out ? (size_t)(end - out) : 0;
    return out;
}

static int compile(const char *arch, const char *text, size_t n, void **object, size_t *size,
                   char *err, size_t errn)
{
    const char *fault = getenv("WRONG_LLVM");
    char *wrong = malloc(n);
    if (wrong)
        memcpy(wrong, text, n);
    while (wrong && fault && *fault) {
        const size_t from = strcspn(fault, ">"), to = strcspn(fault + from, ";") - 1;
        char *next =
            replaced((piece){wrong, n}, (piece){fault, from}, (piece){fault + from + 1, to}, &n);
        free(wrong);
        wrong = next;
        fault += from + 1 + to;
        fault += *fault == ';';
    }
    const int status = wrong ? right->compile(arch, wrong, n, object, size, err, errn) : -1;
    if (!wrong)
        snprintf(err, errn, "memory is exhausted");
    free(wrong);
    return status;
}

__attribute__((visibility("default"))) const wf_llvm_api *wf_llvm_open(void)
{
    static wf_llvm_api wrong;
    void *library = dlopen(REAL_LLVM, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "wf_llvm_open") : NULL;
    const wf_llvm_api *(*entry)(void) = NULL;
    if (symbol) {
        memcpy(&entry, &symbol, sizeof entry);
        right = entry();
        wrong = *right;
        wrong.compile = compile;
    }
    return symbol ? &wrong : NULL;
}
