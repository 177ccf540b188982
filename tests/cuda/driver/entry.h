/*
 * tests/cuda/driver/entry.h -- what the files of exported functions share: entries are counted, locked, and may be told to fail.
 */
#ifndef TESTS_CUDA_DRIVER_ENTRY_H
#define TESTS_CUDA_DRIVER_ENTRY_H

#include "tests/cuda/driver/core.h"

#define EXPORT __attribute__((visibility("default")))

/* What weft does not call, and the fakes of NVIDIA's libraries do. */
#define FAKE_FUNCTIONS(F)                                                                          \
    F(host_function, "cuLaunchHostFunc", (cu_handle stream, cu_host_fn fn, void *arg))

enum entry {
#define F(field, symbol, params) E_##field,
    CU_FUNCTIONS(F) CU_OPTIONAL_FUNCTIONS(F) FAKE_FUNCTIONS(F)
#undef F
        N_ENTRIES
};
/* Locks. Not CU_OK: the call is to return it, unlocked. */
cu_result enter(enum entry e);
/* The same with a context: it must be current, and its device in order. */
cu_result enter_context(enum entry e);
/* The device whose context is current. */
int current_device(void);
/* Unlocks; r. */
cu_result leave(cu_result r);

#define ENTER(e)                                                                                   \
    do {                                                                                           \
        cu_result r_ = enter(E_##e);                                                               \
        if (r_ != CU_OK)                                                                           \
            return r_;                                                                             \
    } while (0)
#define ENTER_CONTEXT(e)                                                                           \
    do {                                                                                           \
        cu_result r_ = enter_context(E_##e);                                                       \
        if (r_ != CU_OK)                                                                           \
            return r_;                                                                             \
    } while (0)

#endif
