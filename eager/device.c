/*
 * eager/device.c -- devices by name: where a tensor is, moving it, and why a device cannot be used.
 *
 * Host memory is the only kind so far. What is settled here is what callers see: tensors know their device,
 * operands of one op share it, and asking for a device that is not there is an error that says what is missing.
 */
#include <dlfcn.h>

#include "eager/api.h"
#include "eager/device.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

int wf_device_code(weft_device d)
{
    if (d.kind == WEFT_DEVICE_CPU && d.index == 0) {
        return WF_DEVICE_HOST;
    }
    return d.kind == WEFT_DEVICE_CUDA && d.index >= 0 && d.index < WF_MAX_CUDA ? 1 + d.index : -1;
}

weft_device wf_device_public(int code)
{
    return code == WF_DEVICE_HOST ? (weft_device){WEFT_DEVICE_CPU, 0}
                                  : (weft_device){WEFT_DEVICE_CUDA, code - 1};
}

const char *wf_device_code_name(int code)
{
    static const char *const names[1 + WF_MAX_CUDA] = {
        [0] = "cpu",      [1] = "cuda:0",   [2] = "cuda:1",   [3] = "cuda:2",   [4] = "cuda:3",
        [5] = "cuda:4",   [6] = "cuda:5",   [7] = "cuda:6",   [8] = "cuda:7",   [9] = "cuda:8",
        [10] = "cuda:9",  [11] = "cuda:10", [12] = "cuda:11", [13] = "cuda:12", [14] = "cuda:13",
        [15] = "cuda:14", [16] = "cuda:15"};
    return code >= 0 && code <= WF_MAX_CUDA ? names[code] : "invalid";
}

const char *wf_device_missing(int code)
{
    if (code == WF_DEVICE_HOST) {
        return NULL;
    }
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver) {
        return "the CUDA driver (libcuda.so.1) is not found";
    }
    dlclose(driver);
    return "the CUDA driver is there, but this version of weft runs no ops on it yet";
}

int wf_device_refuse_read(const wf_slot *s, wf_why *why)
{
    int device = wf_slot_device(s);
    if (device == WF_DEVICE_HOST) {
        return 0;
    }
    wf_fail(why, WEFT_EUNSUPPORTED, "the memory is on %s", wf_device_code_name(device));
    wf_hint(why, "copy it first: weft_to(x, WEFT_CPU)");
    return why->code;
}

int wf_device_refuse_operands(int n, wf_slot *const *s, wf_why *why)
{
    int first = -1;
    for (int i = 0; i < n; i++) {
        if (!s[i]) {
            continue;
        }
        first = first < 0 ? i : first;
        if (wf_slot_device(s[i]) != wf_slot_device(s[first])) {
            wf_fail(why, WEFT_EINVALID,
                    "operands are on two devices: operand %d on %s, operand %d on %s", first,
                    wf_device_code_name(wf_slot_device(s[first])), i,
                    wf_device_code_name(wf_slot_device(s[i])));
            wf_hint(why, "move one of them: weft_to(x, device)");
            return why->code;
        }
    }
    if (first < 0 || wf_slot_device(s[first]) == WF_DEVICE_HOST) {
        return 0;
    }
    return wf_fail(why, WEFT_EUNSUPPORTED, "ops do not run on %s yet",
                   wf_device_code_name(wf_slot_device(s[first])));
}

const char *weft_device_name(weft_device device)
{
    return wf_device_code_name(wf_device_code(device));
}

weft_device weft_device_of(weft_tensor t)
{
    wf_arg a;
    return wf_arg_open(&a, "device_of", t) ? wf_device_public(a.device) : (weft_device){-1, 0};
}

weft_tensor(weft_to)(weft_tensor x, weft_device device)
{
    wf_arg a;
    int to = wf_device_code(device);
    if (to < 0) {
        return wf_api_error(
            "to", WEFT_EINVALID,
            "there is no device of kind %d and index %d; use WEFT_CPU or WEFT_CUDA(i), i < %d",
            device.kind, device.index, WF_MAX_CUDA);
    }
    if (!wf_arg_open(&a, "to", x)) {
        return a.error;
    }
    const char *missing = wf_device_missing(to == WF_DEVICE_HOST ? a.device : to);
    if (missing) {
        wf_arg_fail(&a, WEFT_EUNSUPPORTED, "weft_doctor lists what is found",
                    "a tensor on %s cannot go to %s: %s", wf_device_code_name(a.device),
                    wf_device_code_name(to), missing);
        return a.error;
    }
    return wf_is_scalar(x) ? x : wf_api_alias(x, &a.type);
}
