/*
 * nn/module.c -- the registry of a model's parameters and buffers; gradients of all of them.
 *
 * Invariants
 *  - An entry's tensor is kept and owned by the module; its name is a block of its own, so names stay
 *    where they are while the array grows.
 *  - Parameters are leaves that require a gradient. Nothing replaces an entry's handle: optimisers and
 *    loaders write in place and weft_module_to changes the memory under it, so copies in layers stay right.
 */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/dense.h"
#include "eager/device.h"
#include "eager/borrow.h"
#include "nn/nn.h"

enum { MAX_PREFIX = 16, NAME_SIZE = 512 };

struct weft_module {
    weft_named_tensor *entries;
    bool *trained; /* entry i is a parameter */
    int n, cap;
    weft_status status; /* the first failure */
    char *failure;      /* its text, or NULL */
    weft_status latest; /* first failure since the layer that is being made was opened */
    int opened;         /* layers being made, one inside another */
    const char *making; /* the outermost of them: linear, ... */
    const char *site;   /* of the call that makes them, or NULL */
    bool training;
    uint64_t id; /* of this one only, odd */
    weft_generator *generator;
    char prefix[NAME_SIZE]; /* "h.0." */
    size_t prefix_length;
    size_t prefix_ends[MAX_PREFIX]; /* length of the prefix before each push */
    int n_prefix;
};

static weft_status fail(const char *op, weft_status status, const char *text)
{
    wf_api_error(op, (int)status, "%s", text);
    return status;
}

weft_module *weft_module_new(weft_generator *generator)
{
    weft_module *m = wf_calloc(1, sizeof *m);
    if (!m) {
        wf_api_error("module_new", WEFT_ENOMEM, "no memory for a module");
        return NULL;
    }
    static _Atomic uint64_t made;
    m->training = true;
    m->id = 2 * atomic_fetch_add_explicit(&made, 1, memory_order_relaxed) + 1;
    m->generator = generator;
    return m;
}

/* So that sets of modules have sums that differ. */
static uint64_t scramble(uint64_t x)
{
    x *= UINT64_C(0x9E3779B97F4A7C15);
    return (x ^ x >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
}

void weft_module_free(weft_module *m)
{
    if (!m) {
        return;
    }
    weft_module_train(m, true); /* one that is gone is in no mode */
    for (int i = 0; i < m->n; i++) {
        weft_free(m->entries[i].tensor);
        wf_mfree((char *)(uintptr_t)m->entries[i].name);
    }
    wf_mfree(m->entries);
    wf_mfree(m->trained);
    wf_mfree(m->failure);
    wf_mfree(m);
}

weft_status weft_module_status(const weft_module *m)
{
    return m ? m->status : WEFT_EINVALID;
}

weft_generator *wf_module_generator(const weft_module *m)
{
    return m->generator;
}

weft_status wf_module_note(weft_module *m, weft_status status)
{
    if (m && status != WEFT_OK) {
        if (m->status == WEFT_OK) {
            m->status = status;
            m->failure = wf_strdup(weft_last_error());
        }
        m->latest = m->latest == WEFT_OK ? status : m->latest;
    }
    return status;
}

const char *wf_module_failure(const weft_module *m)
{
    return m->failure ? m->failure : "look at the statuses of the init functions";
}

void wf_module_open(weft_module *m, const char *op)
{
    wf_ctx *c = wf_ctx_get();
    if (m->opened++ == 0) {
        m->latest = WEFT_OK;
        m->making = op;
        m->site = c ? c->here : NULL;
    }
    if (c) {
        c->here = NULL;
    }
}

weft_status wf_module_failed(const weft_module *m)
{
    return m->opened ? m->latest : WEFT_OK;
}

const char *wf_module_who(const weft_module *m, char buf[WF_WHO_SIZE])
{
    if (!m->opened) {
        return NULL;
    }
    const int length = (int)m->prefix_length - (m->prefix_length > 0); /* no dot at the end */
    snprintf(buf, WF_WHO_SIZE, "nn_%s_init '%.*s'", m->making, length, m->prefix);
    return buf;
}

weft_status wf_module_close(weft_module *m)
{
    m->site = --m->opened ? m->site : NULL;
    return m->latest;
}

weft_status weft_module_push(weft_module *m, const char *format, ...)
{
    if (!m || !format) {
        return fail("module_push", WEFT_EINVALID, m ? "the format is NULL" : "the module is NULL");
    }
    char who[WF_WHO_SIZE];
    const char *op = m->opened ? wf_module_who(m, who) : "module_push";
    if (m->n_prefix == MAX_PREFIX) {
        wf_api_error(op, WEFT_EINVALID,
                     "prefixes nest %d deep already, '%s'; drop some with weft_module_pop",
                     MAX_PREFIX, m->prefix);
        return wf_module_note(m, WEFT_EINVALID);
    }
    size_t space = NAME_SIZE - m->prefix_length;
    va_list list;
    va_start(list, format);
    int length = vsnprintf(m->prefix + m->prefix_length, space, format, list);
    va_end(list);
    if (length < 0 || (size_t)length + 2 > space) {
        m->prefix[m->prefix_length] = 0;
        wf_api_error(op, WEFT_EINVALID,
                     "the prefix would be %zu bytes long, behind '%.60s%s'; it may be %d",
                     m->prefix_length + (length < 0 ? 0 : (size_t)length), m->prefix,
                     m->prefix_length > 60 ? "..." : "", NAME_SIZE - 2);
        return wf_module_note(m, WEFT_EINVALID);
    }
    m->prefix_ends[m->n_prefix++] = m->prefix_length;
    m->prefix_length += (size_t)length;
    if (length > 0) {
        m->prefix[m->prefix_length++] = '.';
        m->prefix[m->prefix_length] = 0;
    }
    return WEFT_OK;
}

weft_status weft_module_pop(weft_module *m)
{
    if (!m || m->n_prefix == 0) {
        return wf_module_note(m, fail("module_pop", WEFT_EINVALID,
                                      m ? "there is no prefix to drop: every weft_module_push "
                                          "has had its pop already"
                                        : "the module is NULL"));
    }
    m->prefix_length = m->prefix_ends[--m->n_prefix];
    m->prefix[m->prefix_length] = 0;
    return WEFT_OK;
}

static int find(const weft_module *m, const char *name)
{
    for (int i = 0; i < m->n; i++) {
        if (strcmp(m->entries[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* The entry that value is, or -1. */
static int entry_of(const weft_module *m, weft_tensor value)
{
    for (int i = 0; i < m->n; i++) {
        if (wf_same_handle(m->entries[i].tensor, value)) {
            return i;
        }
    }
    return -1;
}

static bool grow(weft_module *m)
{
    if (m->n < m->cap) {
        return true;
    }
    int cap = m->cap ? 2 * m->cap : 32;
    weft_named_tensor *entries = wf_realloc(m->entries, (size_t)cap * sizeof *entries);
    if (!entries) {
        return false;
    }
    m->entries = entries;
    bool *trained = wf_realloc(m->trained, (size_t)cap * sizeof *trained);
    if (!trained) {
        return false;
    }
    m->trained = trained;
    m->cap = cap;
    return true;
}

/* Checks and stores; value stays the caller's on failure. */
static weft_status add(weft_module *m, const char *name, weft_tensor value, bool trained)
{
    char who[WF_WHO_SIZE];
    const char *op = m ? wf_module_who(m, who) : NULL;
    op = op ? op : trained ? "module_parameter" : "module_buffer";
    if (!m || !name || !*name) {
        return fail(op, WEFT_EINVALID,
                    !m      ? "the module is NULL"
                    : !name ? "the name is NULL"
                            : "the name is empty");
    }
    if (wf_is_error(value)) { /* an error has its text already */
        return (weft_status)wf_error_again(wf_ctx_get(), value);
    }
    if (!weft_ok(value)) {
        wf_api_error(op, WEFT_EHANDLE, "the value of '%s' is %s", name,
                     value.slot == 0 ? "the empty handle" : "dead, or another thread's");
        return WEFT_EHANDLE;
    }
    size_t length = m->prefix_length + strlen(name) + 1;
    char *full = wf_malloc(length);
    if (!full || !grow(m)) {
        wf_mfree(full);
        return fail(op, WEFT_ENOMEM, "no memory for another entry");
    }
    memcpy(full, m->prefix, m->prefix_length);
    strcpy(full + m->prefix_length, name);
    weft_status s = WEFT_OK;
    const int same = entry_of(m, value);
    const int taken = find(m, full);
    if (taken >= 0) {
        char there[256];
        wf_describe(wf_ctx_get(), m->entries[taken].tensor, there, sizeof there);
        wf_api_error(op, WEFT_EINVALID,
                     "'%s' is registered already: %s; give it another name, or go under a prefix "
                     "(weft_module_push)",
                     full, there);
        s = WEFT_EINVALID;
    } else if (same >= 0) { /* an optimiser would step it twice */
        wf_api_error(op, WEFT_EINVALID,
                     "the value of '%s' is registered already, as '%s'; layers that share a "
                     "parameter use the one handle",
                     full, m->entries[same].name);
        s = WEFT_EINVALID;
    }
    if (s == WEFT_OK) {
        s = weft_set_name(value, full);
    }
    if (s == WEFT_OK && trained) {
        s = weft_requires_grad_(value, true);
    }
    if (s != WEFT_OK) {
        wf_mfree(full);
        return s;
    }
    if (m->site) {
        weft_sited(m->site, value);
    }
    m->entries[m->n] = (weft_named_tensor){full, weft_keep(value)};
    m->trained[m->n++] = trained;
    return WEFT_OK;
}

static weft_tensor enter(weft_module *m, const char *name, weft_tensor value, bool trained)
{
    weft_status s = add(m, name, value, trained);
    if (s == WEFT_OK) {
        return value;
    }
    wf_module_note(m, s);
    const weft_tensor error = wf_api_last_error(); /* add's */
    if (m && entry_of(m, value) < 0 && weft_ok(value)) {
        weft_free(value);
    }
    return error;
}

weft_tensor weft_module_parameter(weft_module *m, const char *name, weft_tensor value)
{
    return enter(m, name, value, true);
}

weft_tensor weft_module_buffer(weft_module *m, const char *name, weft_tensor value)
{
    return enter(m, name, value, false);
}

int weft_module_count(const weft_module *m)
{
    return m ? m->n : 0;
}

weft_named_tensor weft_module_at(const weft_module *m, int i)
{
    return m && i >= 0 && i < m->n ? m->entries[i] : (weft_named_tensor){"", WEFT_NONE};
}

bool weft_module_is_parameter(const weft_module *m, int i)
{
    return m && i >= 0 && i < m->n && m->trained[i];
}

weft_tensor weft_module_get(const weft_module *m, const char *name)
{
    int i = m && name ? find(m, name) : -1;
    if (i >= 0) {
        return m->entries[i].tensor;
    }
    if (!m || !m->n) {
        return wf_api_error("module_get", WEFT_EINVALID, "the module %s",
                            m ? "is empty; register its parameters first" : "is NULL");
    }
    return wf_api_error(
        "module_get", WEFT_EINVALID,
        "the module has no '%s'; weft_module_at lists its %d entries, the first is '%s'",
        name ? name : "(null)", m->n, m->entries[0].name);
}

const weft_named_tensor *weft_module_entries(const weft_module *m)
{
    return m && m->n ? m->entries : NULL;
}

int64_t weft_module_numel(const weft_module *m)
{
    int64_t total = 0;
    for (int i = 0; m && i < m->n; i++) {
        total += m->trained[i] ? weft_numel(m->entries[i].tensor) : 0;
    }
    return total;
}

void weft_module_train(weft_module *m, bool training)
{
    if (m && m->training != training) {
        m->training = training;
        atomic_fetch_xor_explicit(&wf_modes, scramble(m->id), memory_order_relaxed);
    }
}

bool weft_module_training(const weft_module *m)
{
    return m && m->training;
}

weft_status weft_module_to(weft_module *m, weft_device device)
{
    int code = wf_device_code(device);
    if (!m) {
        return fail("module_to", WEFT_EINVALID, "the module is NULL");
    }
    if (code < 0) {
        wf_api_error("module_to", WEFT_EINVALID,
                     "kind %d, index %d is no device; use WEFT_CPU or WEFT_CUDA(0), ...",
                     (int)device.kind, (int)device.index);
        return WEFT_EINVALID;
    }
    const char *missing = wf_device_missing(code);
    if (missing) {
        wf_api_error("module_to", WEFT_EUNSUPPORTED, "a module cannot go to %s: %s",
                     wf_device_code_name(code), missing);
        return WEFT_EUNSUPPORTED;
    }
    weft_status s = WEFT_OK;
    for (int i = 0; i < m->n && s == WEFT_OK; i++) { /* all of it or nothing */
        s = (weft_status)wf_device_relocatable(m->entries[i].tensor, code);
    }
    for (int i = 0; i < m->n && s == WEFT_OK; i++) {
        s = (weft_status)wf_device_relocate(m->entries[i].tensor, code);
    }
    return s;
}

weft_status weft_module_zero_grad(weft_module *m)
{
    if (!m) {
        return fail("module_zero_grad", WEFT_EINVALID, "the module is NULL");
    }
    weft_status first = WEFT_OK;
    for (int i = 0; i < m->n; i++) {
        if (m->trained[i]) {
            weft_status s = weft_set_grad(m->entries[i].tensor, WEFT_NONE);
            first = first == WEFT_OK ? s : first;
        }
    }
    return first;
}

/* The gradients that there are, in order of registration, into g; how many. */
static int gradients_of(const weft_module *m, weft_tensor *g)
{
    int n = 0;
    for (int i = 0; i < m->n; i++) {
        if (m->trained[i] && weft_has_grad(m->entries[i].tensor)) {
            g[n++] = weft_grad(m->entries[i].tensor);
        }
    }
    return n;
}

weft_status weft_module_clip_grad_norm(weft_module *m, double max_norm, double *norm)
{
    if (!m) {
        return fail("module_clip_grad_norm", WEFT_EINVALID, "the module is NULL");
    }
    if (!(max_norm > 0)) {
        wf_api_error("module_clip_grad_norm", WEFT_EINVALID, "max_norm is %g; it must be above 0",
                     max_norm);
        return WEFT_EINVALID;
    }
    const size_t bytes = (size_t)m->n * sizeof(weft_tensor);
    weft_tensor *g = wf_scratch(bytes);
    if (!g) {
        return fail("module_clip_grad_norm", WEFT_ENOMEM, "no memory");
    }
    wf_ctx *c = wf_ctx_get();
    weft_scope scope = weft_scope_begin();
    weft_no_grad_begin();
    weft_status s = wf_clip(g, gradients_of(m, g), max_norm, norm, c ? c->here : NULL);
    weft_no_grad_end();
    weft_scope_end(scope);
    wf_scratch_free(g, bytes);
    return s;
}

weft_status weft_module_clip_grad_value(weft_module *m, double value)
{
    if (!m) {
        return fail("module_clip_grad_value", WEFT_EINVALID, "the module is NULL");
    }
    if (!(value > 0)) {
        wf_api_error("module_clip_grad_value", WEFT_EINVALID, "value is %g; it must be above 0",
                     value);
        return WEFT_EINVALID;
    }
    wf_ctx *c = wf_ctx_get();
    const char *site = c ? c->here : NULL;
    weft_status s = WEFT_OK;
    weft_no_grad_begin();
    for (int i = 0; i < m->n && s == WEFT_OK; i++) {
        if (m->trained[i] && weft_has_grad(m->entries[i].tensor)) {
            weft_scope scope = weft_scope_begin();
            weft_tensor g = weft_grad(m->entries[i].tensor);
            WF_CALLED_WRITE(w, WF_WRITE_CLIP_VALUE, g);
            s = wf_called_done(&w, weft_clamp_(g, weft_f(-value), weft_f(value)));
            if (s == WEFT_OK) {
                wf_wrote_as(wf_ctx_get(), g, WF_WRITE_CLIP_VALUE, site);
            }
            weft_scope_end(scope);
        }
    }
    weft_no_grad_end();
    return s;
}

/* -- averages ---------------------------------------------------------------------------------------------------------- */

/* The entry of `name`, which is entry `likely` where both modules were built alike; NULL: none. */
static const weft_named_tensor *entry_like(const weft_module *m, const char *name, int likely)
{
    if (likely < m->n && !strcmp(m->entries[likely].name, name)) {
        return &m->entries[likely];
    }
    for (int i = 0; i < m->n; i++) {
        if (!strcmp(m->entries[i].name, name)) {
            return &m->entries[i];
        }
    }
    return NULL;
}

/* Why t is no target, or holds nothing to read. */
static void look_at(wf_ctx *c, weft_tensor t, bool is_written, bool is_read, wf_why *why)
{
    static const char copy[] = "make the module of a copy: weft_clone(x)";
    wf_hold how;
    wf_slot *s = wf_take_hold(c, t, &how);
    if (!s) {
        return;
    }
    const uint64_t broken = atomic_load_explicit(&s->st->broken, memory_order_acquire);
    if (is_written && s->st->read_only) {
        wf_fail(why, WEFT_EINVALID, "the target's memory is read-only");
        wf_hint(why, copy);
    } else if (is_written && !wf_map_is_injective(s->rank, wf_dims(s), wf_strides(s))) {
        wf_fail(why, WEFT_ESHAPE, "several elements of the target share one address");
        wf_hint(why, copy);
    } else if (is_read && broken && broken != WF_ARRIVING) {
        char text[WF_BROKEN_SIZE];
        wf_fail(why, WEFT_EINVALID, "the %s holds no valid value: %s",
                is_written ? "target" : "source", wf_broken_text(s->st, text));
        wf_hint(why, "write it anew (weft_copy_, weft_fill_) before reading it");
    }
    wf_end_hold(c, s, how);
}

/* Before anything is written. */
static weft_status check_pair(const weft_module *m, const weft_module *source, int i, double weight)
{
    static const char op[] = "module_lerp";
    const weft_named_tensor *to = &m->entries[i], *from = entry_like(source, to->name, i);
    if (!from) {
        wf_api_error(op, WEFT_EINVALID, "the source has no '%s'", to->name);
        return WEFT_EINVALID;
    }
    const weft_shape a = weft_shape_of(to->tensor), b = weft_shape_of(from->tensor);
    if (a.n < 0 || b.n < 0) {
        return weft_last_status();
    }
    wf_ctx *c = wf_ctx_get();
    const weft_tensor pair[2] = {to->tensor, from->tensor};
    wf_why why;
    wf_why_clear(&why);
    if (a.n != b.n || memcmp(a.v, b.v, (size_t)a.n * sizeof *a.v) != 0) {
        wf_fail(&why, WEFT_ESHAPE, "'%s' has another shape in the source", to->name);
    } else if (m != source) {
        look_at(c, to->tensor, true, m->trained[i] && weight != 1, &why);
        if (!why.code) {
            look_at(c, from->tensor, false, true, &why);
        }
    }
    if (why.code) {
        return (weft_status)wf_raise_status(c, op, 2, pair, &why);
    }
    const int there = wf_device_of_handle(c, from->tensor);
    if (m->trained[i] && weight != 1 && there != wf_device_of_handle(c, to->tensor)) {
        wf_api_error(op, WEFT_EINVALID,
                     "'%s' is on %s in the source: move one of the two by weft_module_to", to->name,
                     wf_device_code_name(there));
        return WEFT_EINVALID;
    }
    return WEFT_OK;
}

weft_status weft_module_lerp(weft_module *m, const weft_module *source, double weight)
{
    if (!m || !source) {
        return fail("module_lerp", WEFT_EINVALID, m ? "the source is NULL" : "the module is NULL");
    }
    if (!(weight >= 0 && weight <= 1)) {
        wf_api_error("module_lerp", WEFT_EINVALID, "weight is %g; it must be in [0, 1]", weight);
        return WEFT_EINVALID;
    }
    wf_ctx *c = wf_ctx_get();
    const char *site = c ? c->here : NULL;
    weft_status s = WEFT_OK;
    for (int i = 0; i < m->n && s == WEFT_OK; i++) {
        s = check_pair(m, source, i, weight);
    }
    weft_no_grad_begin();
    for (int i = 0; i < m->n && s == WEFT_OK && m != source; i++) {
        const weft_tensor p = m->entries[i].tensor,
                          q = entry_like(source, m->entries[i].name, i)->tensor;
        WF_CALLED_WRITE(w, WF_WRITE_LERP, p, q);
        s = weight == 1 || !m->trained[i] ? weft_copy_(p, q) : weft_lerp_(p, q, weft_f(weight));
        wf_called_done(&w, s);
        if (s == WEFT_OK) {
            wf_wrote_as(wf_ctx_get(), p, WF_WRITE_LERP, site);
        }
    }
    weft_no_grad_end();
    return s;
}
