/*
 * jit/codegen_cpu/backend_gdb.h -- loaded objects made known to gdb; symbols of object files.
 */
#ifndef JIT_CODEGEN_CPU_BACKEND_GDB_H
#define JIT_CODEGEN_CPU_BACKEND_GDB_H

#include <elf.h>
#include <stdbool.h>

#include "jit/ir/backend.h"

/* The symbol of an object file. False where there is none, or the file is no ELF object. */
bool wf_elf_symbol(const wf_blob *object, const char *name, Elf64_Sym *symbol);

typedef struct wf_gdb_entry wf_gdb_entry;
/* Tells gdb of an object whose function `name` was loaded at `function`; NULL if there is no memory for it.
 * _forget: before the code goes; NULL is ignored. */
wf_gdb_entry *wf_gdb_tell(const wf_blob *object, const char *name, const void *function);
void wf_gdb_forget(wf_gdb_entry *e);

#endif
