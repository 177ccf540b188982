/*
 * jit/codegen_cpu/backend_gdb.c -- gdb's interface for compiled code.
 *
 * gdb puts a breakpoint on __jit_debug_register_code and then reads the list at __jit_debug_descriptor: the names
 * and the layout are its own. An entry is a copy of the object in which the section of the code has the address
 * it was loaded at. The library exports weft_* only: gdb finds these names in its symbol table, which a stripped
 * library has not.
 */
#include "jit/codegen_cpu/backend_gdb.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct wf_gdb_entry {
    wf_gdb_entry *next, *prev;
    const char *object;
    uint64_t size;
};

enum { NOTHING, REGISTER, UNREGISTER };

/* As gdb has it. */
struct jit_descriptor {
    uint32_t version, action;
    wf_gdb_entry *relevant, *first;
};
extern struct jit_descriptor __jit_debug_descriptor;
void __jit_debug_register_code(void);

__attribute__((used)) struct jit_descriptor __jit_debug_descriptor = {1, NOTHING, NULL, NULL};
__attribute__((noinline, used)) void __jit_debug_register_code(void)
{
    __asm__ volatile("" ::: "memory");
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Section header i of an object; false if it lies outside. */
static bool section(const wf_blob *object, uint64_t i, Elf64_Shdr *s)
{
    Elf64_Ehdr e;
    if (object->size < sizeof e)
        return false;
    memcpy(&e, object->data, sizeof e);
    if (memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 || i >= e.e_shnum || e.e_shoff > object->size ||
        object->size - e.e_shoff < (i + 1) * sizeof *s)
        return false;
    memcpy(s, (const char *)object->data + e.e_shoff + i * sizeof *s, sizeof *s);
    return s->sh_type == SHT_NOBITS ||
           (s->sh_offset <= object->size && s->sh_size <= object->size - s->sh_offset);
}

bool wf_elf_symbol(const wf_blob *object, const char *name, Elf64_Sym *symbol)
{
    const char *p = object->data;
    const size_t length = strlen(name) + 1;
    Elf64_Shdr table, strings;
    for (uint64_t i = 0; section(object, i, &table); i++) {
        if (table.sh_type != SHT_SYMTAB || !section(object, table.sh_link, &strings))
            continue;
        for (uint64_t s = 0; s + sizeof *symbol <= table.sh_size; s += sizeof *symbol) {
            memcpy(symbol, p + table.sh_offset + s, sizeof *symbol);
            if (symbol->st_name < strings.sh_size && strings.sh_size - symbol->st_name >= length &&
                memcmp(p + strings.sh_offset + symbol->st_name, name, length) == 0)
                return true;
        }
    }
    return false;
}

wf_gdb_entry *wf_gdb_tell(const wf_blob *object, const char *name, const void *function)
{
    Elf64_Sym symbol;
    Elf64_Shdr s;
    Elf64_Ehdr e;
    if (!wf_elf_symbol(object, name, &symbol) || !section(object, symbol.st_shndx, &s))
        return NULL;
    wf_gdb_entry *entry = malloc(sizeof *entry + object->size);
    if (!entry)
        return NULL;
    char *copy = (char *)(entry + 1);
    memcpy(copy, object->data, object->size);
    memcpy(&e, copy, sizeof e);
    s.sh_addr = (uint64_t)(uintptr_t)function - symbol.st_value;
    memcpy(copy + e.e_shoff + symbol.st_shndx * sizeof s, &s, sizeof s);
    entry->object = copy;
    entry->size = object->size;
    entry->prev = NULL;
    pthread_mutex_lock(&lock);
    entry->next = __jit_debug_descriptor.first;
    if (entry->next)
        entry->next->prev = entry;
    __jit_debug_descriptor.first = __jit_debug_descriptor.relevant = entry;
    __jit_debug_descriptor.action = REGISTER;
    __jit_debug_register_code();
    pthread_mutex_unlock(&lock);
    return entry;
}

void wf_gdb_forget(wf_gdb_entry *e)
{
    if (!e)
        return;
    pthread_mutex_lock(&lock);
    *(e->prev ? &e->prev->next : &__jit_debug_descriptor.first) = e->next;
    if (e->next)
        e->next->prev = e->prev;
    __jit_debug_descriptor.relevant = e;
    __jit_debug_descriptor.action = UNREGISTER;
    __jit_debug_register_code();
    pthread_mutex_unlock(&lock);
    free(e);
}
