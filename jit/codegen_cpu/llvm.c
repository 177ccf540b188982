/*
 * jit/codegen_cpu/llvm.c -- libweft-llvm.so: text to object code, object code to a function.
 *
 * No pass runs before code generation: kernel IR has no common subexpressions, and the object code was the
 * same with early-cse.
 *
 * Invariants
 *  - No flag of this file relaxes floating point: AllowFPOpFusion stays at the C API's default, which
 *    fuses nothing that the text does not; the text has fast-math flags where fast math was asked for.
 *  - Compiling shares nothing between threads but the host's name; loading takes a lock.
 *  - Kernels call nothing but what llvm_calls.c lists, which is defined absolutely: the process's symbols are
 *    never searched.
 */
#include "jit/codegen_cpu/llvm_api.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llvm-c/Core.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Support.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>

#include "jit/codegen_cpu/llvm_calls.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *host_cpu, *host_features, *triple;
static LLVMTargetRef target;
static LLVMOrcLLJITRef jit;
static unsigned serial;

static void initialise(void)
{
    /* Passes that find nothing to do here, a fifth of the time together: strength reduction has loops of one index,
     * and the text computes once what does not vary. Hoisting harms: constants are operands in memory of the
     * instructions that use them, and outside the loop they would take the registers of the body's values. So does
     * the scheduler of machine instructions: where uniform values take most registers it runs a chain for one
     * register after the other, and the legaliser's order, which interleaves them, hides latencies. */
    static const char *const options[] = {
        "weft",
        "-disable-lsr",
        "-disable-machine-licm",
        "-disable-postra-machine-licm",
        "-disable-machine-cse",
        "-disable-machine-sink",
        "-enable-misched=false",
        "-disable-x86-domain-reassignment",
        "-x86-cmov-converter=0",
        /* these change no byte of any kernel that was looked at, and take 2 to 3 % */
        "-disable-machine-dce",
        "-disable-constant-hoisting",
        "-disable-early-taildup",
        "-disable-early-ifcvt",
        "-disable-postra-machine-sink",
        "-disable-post-ra",
        "-disable-x86-lea-opt",
        "-enable-shrink-wrap=false",
        "-fixup-byte-word-insts=false",
        /* what these find is a copy or a split more or less: 2 % each where there are loops in loops */
        "-disable-copyprop",
        "-grow-region-complexity-budget=0",
        /* registers are given from a body's end up: a tenth less of the gelu chain's time, whose values do not fit
         * into 16; of other kernels' up to 2 % more */
        "-greedy-reverse-local-assignment",
    };
    LLVMParseCommandLineOptions((int)(sizeof options / sizeof *options), options, NULL);
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    host_cpu = LLVMGetHostCPUName();
    host_features = LLVMGetHostCPUFeatures();
    triple = LLVMGetDefaultTargetTriple();
    char *message = NULL;
    if (LLVMGetTargetFromTriple(triple, &target, &message))
        LLVMDisposeMessage(message);
}

/* LLVM's own objects live until the process is gone: a destructor that ran at exit, before the core's
 * compiling thread is stopped, would take them from under it. This is the library's __cxa_atexit. This
 * file disposes nothing at exit either: threads may be running kernels until the process is gone. */
int keep_at_exit(void (*destroy)(void *), void *object, void *library) __asm__("__cxa_atexit");
int keep_at_exit(void (*destroy)(void *), void *object, void *library)
{
    (void)destroy;
    (void)object;
    (void)library;
    return 0;
}

static int failed(LLVMErrorRef error, char *err, size_t errn)
{
    if (!error)
        return 0;
    char *message = LLVMGetErrorMessage(error);
    snprintf(err, errn, "%s", message);
    LLVMDisposeErrorMessage(message);
    return -1;
}

static int refused(char *message, char *err, size_t errn)
{
    snprintf(err, errn, "%s", message ? message : "LLVM gave no reason");
    if (message)
        LLVMDisposeMessage(message);
    return -1;
}

/* -- target machines: making one parses the CPU's features, so a few are kept ---------------------------- */
enum { MACHINES = 8 };
static struct kept {
    LLVMTargetMachineRef machine;
    char arch[64];
} kept[MACHINES];

typedef struct cpu {
    const char *name, *features;
    LLVMCodeGenOptLevel level;
    char own[64];
} cpu;

/* What an arch stands for: "host" or a name, "/0" behind it. */
static void read_arch(const char *arch, cpu *c)
{
    const size_t n = strcspn(arch, "/");
    const int host = n == 4 && memcmp(arch, "host", n) == 0;
    snprintf(c->own, sizeof c->own, "%.*s", (int)n, arch);
    c->name = host ? host_cpu : c->own;
    c->features = host ? host_features : "";
    c->level = arch[n] ? LLVMCodeGenLevelNone : LLVMCodeGenLevelLess;
}

static LLVMTargetMachineRef new_machine(const char *arch)
{
    cpu c;
    read_arch(arch, &c);
    return LLVMCreateTargetMachine(target, triple, c.name, c.features, c.level, LLVMRelocPIC,
                                   LLVMCodeModelDefault);
}

static LLVMTargetMachineRef take_machine(const char *arch)
{
    LLVMTargetMachineRef found = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MACHINES && !found; i++)
        if (kept[i].machine && strcmp(kept[i].arch, arch) == 0) {
            found = kept[i].machine;
            kept[i].machine = NULL;
        }
    pthread_mutex_unlock(&lock);
    return found ? found : new_machine(arch);
}

static void return_machine(LLVMTargetMachineRef machine, const char *arch)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MACHINES && machine && strlen(arch) < sizeof kept->arch; i++)
        if (!kept[i].machine) {
            strcpy(kept[i].arch, arch);
            kept[i].machine = machine;
            machine = NULL;
        }
    pthread_mutex_unlock(&lock);
    if (machine)
        LLVMDisposeTargetMachine(machine);
}

static int emit(LLVMTargetMachineRef machine, LLVMModuleRef module, LLVMCodeGenFileType kind,
                void **object, size_t *size, char *err, size_t errn)
{
    char *message = NULL;
    LLVMMemoryBufferRef code = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, kind, &message, &code))
        return refused(message, err, errn);
    *size = LLVMGetBufferSize(code);
    *object = malloc(*size);
    if (*object)
        memcpy(*object, LLVMGetBufferStart(code), *size);
    else
        snprintf(err, errn, "memory is exhausted");
    LLVMDisposeMemoryBuffer(code);
    return *object ? 0 : -1;
}

static int translate(const char *arch, const char *text, size_t n, LLVMCodeGenFileType kind,
                     void **object, size_t *size, char *err, size_t errn)
{
    pthread_once(&once, initialise);
    if (!target)
        return refused(NULL, err, errn);
    LLVMTargetMachineRef machine = take_machine(arch);
    if (!machine)
        return refused(NULL, err, errn);
    LLVMContextRef context = LLVMContextCreate();
    LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(text, n, "kernel");
    LLVMModuleRef module = NULL;
    char *message = NULL;
    int status;
    if (LLVMParseIRInContext(context, buffer, &module, &message)) { /* takes the buffer */
        status = refused(message, err, errn);
    } else {
        LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
        LLVMSetModuleDataLayout(module, layout);
        LLVMDisposeTargetData(layout);
        LLVMSetTarget(module, triple);
        status = emit(machine, module, kind, object, size, err, errn);
        LLVMDisposeModule(module);
    }
    LLVMContextDispose(context);
    return_machine(machine, arch);
    return status;
}

static int compile(const char *arch, const char *text, size_t n, void **object, size_t *size,
                   char *err, size_t errn)
{
    return translate(arch, text, n, LLVMObjectFile, object, size, err, errn);
}

static int assemble(const char *arch, const char *text, size_t n, void **assembly, size_t *size,
                    char *err, size_t errn)
{
    return translate(arch, text, n, LLVMAssemblyFile, assembly, size, err, errn);
}

/* Where an object is loaded. The C API cannot remove a dylib from its session: cleared ones are used again. */
typedef struct place {
    LLVMOrcJITDylibRef dylib;
    struct place *next;
} place;
static place *cleared;

static place *take_place(LLVMOrcExecutionSessionRef session)
{
    place *p = cleared;
    if (p) {
        cleared = p->next;
    } else if ((p = malloc(sizeof *p)) != NULL) {
        char unique[32];
        snprintf(unique, sizeof unique, "k%u", serial++);
        p->dylib = LLVMOrcExecutionSessionCreateBareJITDylib(session, unique);
    }
    return p;
}

static void clear_place(place *p)
{
    LLVMConsumeError(LLVMOrcJITDylibClear(p->dylib));
    LLVMOrcSymbolStringPoolClearDeadEntries(
        LLVMOrcExecutionSessionGetSymbolStringPool(LLVMOrcLLJITGetExecutionSession(jit)));
    p->next = cleared;
    cleared = p;
}

static LLVMErrorRef define_callees(LLVMOrcJITDylibRef dylib)
{
    LLVMOrcCSymbolMapPair pairs[WF_LL_CALLEES];
    for (int i = 0; i < WF_LL_CALLEES; i++) {
        pairs[i].Name = LLVMOrcLLJITMangleAndIntern(jit, wf_ll_callees[i].name);
        pairs[i].Sym.Address = (LLVMOrcExecutorAddress)(size_t)wf_ll_callees[i].address;
        pairs[i].Sym.Flags.GenericFlags = LLVMJITSymbolGenericFlagsExported;
        pairs[i].Sym.Flags.TargetFlags = 0;
    }
    return LLVMOrcJITDylibDefine(dylib, LLVMOrcAbsoluteSymbols(pairs, WF_LL_CALLEES));
}

typedef struct found {
    void *address;
    char *err;
    size_t errn;
} found;

/* LLJIT materialises on the calling thread: this has run when the lookup returns. */
static void on_lookup(LLVMErrorRef error, LLVMOrcCSymbolMapPairs pairs, size_t n, void *context)
{
    found *f = context;
    if (failed(error, f->err, f->errn) == 0 && n == 1)
        f->address = (void *)(size_t)pairs[0].Sym.Address;
}

static int fill(LLVMOrcJITDylibRef dylib, const void *object, size_t size, const char *name,
                void **function, char *err, size_t errn)
{
    if (failed(define_callees(dylib), err, errn))
        return -1;
    LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(object, size, name);
    if (failed(LLVMOrcLLJITAddObjectFile(jit, dylib, buffer), err, errn))
        return -1;
    LLVMOrcCJITDylibSearchOrderElement where = {dylib, LLVMOrcJITDylibLookupFlagsMatchAllSymbols};
    LLVMOrcCLookupSetElement what = {LLVMOrcLLJITMangleAndIntern(jit, name),
                                     LLVMOrcSymbolLookupFlagsRequiredSymbol};
    found result = {NULL, err, errn};
    LLVMOrcExecutionSessionLookup(LLVMOrcLLJITGetExecutionSession(jit), LLVMOrcLookupKindStatic,
                                  &where, 1, &what, 1, on_lookup, &result);
    *function = result.address;
    return result.address ? 0 : -1;
}

static int load_locked(const void *object, size_t size, const char *name, void **handle,
                       void **function, char *err, size_t errn)
{
    if (!jit && failed(LLVMOrcCreateLLJIT(&jit, NULL), err, errn))
        return -1;
    place *p = take_place(LLVMOrcLLJITGetExecutionSession(jit));
    if (!p) {
        snprintf(err, errn, "memory is exhausted");
        return -1;
    }
    *handle = p;
    if (fill(p->dylib, object, size, name, function, err, errn) == 0)
        return 0;
    clear_place(p);
    return -1;
}

static int load(const void *object, size_t size, const char *name, void **handle, void **function,
                char *err, size_t errn)
{
    pthread_once(&once, initialise);
    pthread_mutex_lock(&lock);
    const int status = load_locked(object, size, name, handle, function, err, errn);
    pthread_mutex_unlock(&lock);
    return status;
}

static void unload(void *handle)
{
    pthread_mutex_lock(&lock);
    clear_place(handle);
    pthread_mutex_unlock(&lock);
}

static int describe(const char *arch, char *out, size_t n)
{
    pthread_once(&once, initialise);
    unsigned major, minor, patch;
    cpu c;
    read_arch(arch, &c);
    LLVMGetVersion(&major, &minor, &patch);
    const int wrote = snprintf(out, n, "LLVM %u.%u.%u %s %s %s%s", major, minor, patch, triple,
                               c.name, c.features, arch + strcspn(arch, "/"));
    return wrote > 0 && (size_t)wrote < n ? 0 : -1;
}

static const wf_llvm_api api = {WF_LLVM_ABI, WF_LL_GENERATOR, describe, compile, assemble,
                                load,        unload};

__attribute__((visibility("default"))) const wf_llvm_api *wf_llvm_open(void)
{
    return &api;
}
