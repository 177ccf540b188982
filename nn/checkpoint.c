/*
 * nn/checkpoint.c -- a training run in one safetensors file: parameters, buffers, optimiser state, extras.
 *
 * Invariant: the order of the list does not matter to the file (weft/io.h sorts), so a checkpoint of the
 * same values has the same bytes.
 */
#include <string.h>

#include "eager/alloc.h"
#include "nn/nn.h"

/* Everything a checkpoint holds, as one list to be freed; NULL with an error. */
static weft_named_tensor *list_all(const char *op, const weft_checkpoint_args *a, int *n)
{
    if (!a || !a->path || !a->module || a->n_extra < 0 || (a->n_extra && !a->extra)) {
        wf_api_error(op, WEFT_EINVALID, "the path, the module or the list of extras is NULL");
        return NULL;
    }
    int modules = weft_module_count(a->module), states = weft_optim_state_count(a->optim);
    weft_named_tensor *all =
        wf_malloc(((size_t)modules + (size_t)states + (size_t)a->n_extra + 1) * sizeof *all);
    if (!all) {
        wf_api_error(op, WEFT_ENOMEM, "no memory for the list of tensors");
        return NULL;
    }
    *n = 0;
    for (int i = 0; i < modules; i++) {
        all[(*n)++] = weft_module_at(a->module, i);
    }
    for (int i = 0; i < states; i++) {
        all[(*n)++] = weft_optim_state(a->optim)[i];
    }
    for (int i = 0; i < a->n_extra; i++) {
        all[(*n)++] = a->extra[i];
    }
    return all;
}

weft_status(weft_checkpoint_save)(const weft_checkpoint_args *args)
{
    int n;
    weft_named_tensor *all = list_all("checkpoint_save", args, &n);
    weft_status s = all ? weft_safetensors_save(args->path, all, n, NULL, 0) : weft_last_status();
    wf_mfree(all);
    return s;
}

weft_status(weft_checkpoint_load)(const weft_checkpoint_args *args)
{
    int n;
    wf_called w;
    wf_called_write(&w, WF_WRITE_CHECKPOINT_LOAD, 0, NULL);
    weft_named_tensor *all = list_all("checkpoint_load", args, &n);
    weft_safetensors *file = all ? weft_safetensors_open(args->path) : NULL;
    weft_status s =
        file ? (weft_safetensors_load)(&(weft_load_args){.file = file, .tensors = all, .n = n})
             : weft_last_status();
    weft_safetensors_close(file);
    wf_mfree(all);
    return wf_called_done(&w, s);
}
