/*
 * tests/cuda/ptx/parse.h -- what the files share that read a module: its text, the names that are known, the first error.
 *
 * Names are looked up in the scopes that are open, innermost first; registers of "%r<100>" are a range with one entry. An
 * error leaves by a jump and is one line in `error`; whoever called ptx_load gives back what was read so far.
 */
#ifndef TESTS_CUDA_PTX_PARSE_H
#define TESTS_CUDA_PTX_PARSE_H

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda/ptx/machine.h"

enum symbol_kind { A_REGISTER, A_RANGE, A_SHARED, A_DYNAMIC, A_LOCAL, A_DATA, A_PARAM, A_LABEL };
typedef struct symbol {
    char name[200];
    enum symbol_kind kind;
    int scope;
    unsigned bits; /* of a register */
    int64_t at;    /* register, offset, instruction */
    int64_t count; /* of a range */
    unsigned size, align;
    int kernel; /* shared: has a place in this one */
} symbol;

typedef struct parser {
    ptx_module *m;
    ptx_kernel *k;
    const char *s, *token;
    size_t length;
    int line, scope;
    symbol *symbols;
    size_t nsymbol, symbols_room;
    struct {
        int insn;
        char name[64];
    } * jumps;
    size_t njump, jumps_room, insns_room;
    char *error;
    size_t nerror;
    jmp_buf out;
} parser;

/* tokens.c */
_Noreturn void parse_fail(parser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* One more element of an array; the rest of the array may move. */
void *parse_grow(parser *p, void *array, size_t n, size_t *room, size_t size);
/* The next word, number or sign is p->token; "::" belongs to the word that it stands in. False: the end. */
bool parse_next(parser *p);
bool parse_is(const parser *p, const char *what);
/* The first letter of the token to come. */
char parse_peek(parser *p);
/* The next token has to be this one. */
void parse_want(parser *p, const char *what);
/* The letter to come is passed if it is this one. */
bool parse_take(parser *p, char what);
/* Copies the token. */
void parse_name(parser *p, char *to, size_t n);
/* Whole numbers of any base, and bits of floats, as 0f3F800000 and 0d3FF0000000000000. */
uint64_t parse_number(parser *p);
/* Of the token ".f32": T_F32. */
int parse_type(parser *p);
symbol *parse_symbol(parser *p, enum symbol_kind kind);
symbol *parse_find(const parser *p, const char *name);

/* insn.c: one more instruction of the kernel; the one whose opcode, or @, is the token. */
ptx_insn *parse_insn(parser *p);
void parse_instruction(parser *p);

#endif
