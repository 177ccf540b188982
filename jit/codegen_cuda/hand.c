/*
 * jit/codegen_cuda/hand.c -- renders a section of kernels.cuh or attention.cuh for element types; see jit/ir/cuda_text.h.
 *
 * How elements are read and written is rendered from kernel IR, like everything else that rounds.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/codegen_cuda/render.h"
#ifdef WF_CU_TEXT_SIZE
#include <zlib.h>
#endif

#define P(...) wf_text_putf(t, __VA_ARGS__)

/* Of the compressed file not its header of 10 bytes, which has the time. */
#ifdef WF_CU_TEXT_SIZE
#define FROM ", 10"
#else
#define FROM ""
#endif
__asm__(".section .rodata\n"
        ".hidden wf_cu_kernels, wf_cu_kernels_end\n.globl wf_cu_kernels, wf_cu_kernels_end\n"
        "wf_cu_kernels:\n.incbin \"" WF_CU_TEXT "\"" FROM "\n"
        "wf_cu_kernels_end:\n.byte 0\n"
        ".previous\n");
extern const char wf_cu_kernels[], wf_cu_kernels_end[];

#ifdef WF_CU_TEXT_SIZE
/* The text, kept while the process lives; empty: there was no memory for it. */
static const char *inflated;

static void inflate_text(void)
{
    char *all = malloc(WF_CU_TEXT_SIZE + 1);
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)wf_cu_kernels,
                  .avail_in = (unsigned)(wf_cu_kernels_end - wf_cu_kernels),
                  .next_out = (unsigned char *)all,
                  .avail_out = WF_CU_TEXT_SIZE};
    const bool opened = all && inflateInit2(&z, -MAX_WBITS) == Z_OK;
    if (opened && inflate(&z, Z_FINISH) == Z_STREAM_END && z.avail_out == 0) {
        all[WF_CU_TEXT_SIZE] = 0;
        inflated = all;
    } else {
        free(all);
        inflated = "";
    }
    if (opened)
        inflateEnd(&z);
}

static const char *sections(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, inflate_text);
    return inflated;
}
#else
static const char *sections(void)
{
    return wf_cu_kernels;
}
#endif

/* kernel: what NAME stands for, or NULL. */
static void section(wf_text *t, const char *name, const char *kernel)
{
    char mark[48];
    snprintf(mark, sizeof mark, "/* == %s */", name);
    const char *begin = strstr(sections(), mark);
    const char *end = begin ? strstr(begin + 6, "/* == ") : NULL;
    const char *at = end && kernel ? strstr(begin, " NAME(") : NULL;
    if (at && at < end) {
        wf_text_put(t, begin, (size_t)(at - begin));
        wf_text_putf(t, " %s", kernel);
        begin = at + strlen(" NAME");
    }
    if (end)
        wf_text_put(t, begin, (size_t)(end - begin));
    else
        t->failed = true;
}

static bool names(const char *section_name, const char *word)
{
    wf_text text = {0};
    section(&text, section_name, NULL);
    const bool found = text.s && memmem(text.s, text.n, word, strlen(word)) != NULL;
    wf_text_free(&text);
    return found;
}

/* WF_DEVICE <to> <name>(<from> x): one value through a small program. */
static int function(wf_text *t, const char *name, wf_kir *k, wf_why *why)
{
    const char *const param[1] = {"x"};
    const int status = wf_kir_finish(k, why);
    if (status == 0) {
        wf_cu_tables(t, k);
        P("#ifndef WF_HAS_%s\n#define WF_HAS_%s\nWF_DEVICE %s %s(%s x)\n{\n", name, name,
          wf_cu_type(wf_kir_type(k, k->out[0])), name, wf_cu_type((wf_kty)k->param_type[0]));
        wf_cu_body(t, k, "v", param);
        P("        return ");
        wf_cu_ref(t, k, k->out[0], "v", param);
        P(";\n}\n#endif\n");
    }
    wf_kir_free(k);
    return status;
}

static wf_kty compute_type(int dtype)
{
    return wf_kir_compute_type(wf_dtype_compute(dtype));
}

/* A function that wf_kir_loads elements of dtype, or stores them, from a type to compute with or to one. */
static int convert(wf_text *t, const char *name, int dtype, wf_kty compute, bool store, wf_why *why)
{
    wf_kir k;
    wf_kir_init(&k);
    const wf_kref x = wf_kir_param(&k, store ? compute : wf_kir_storage(dtype));
    wf_kir_output(&k, store ? wf_kir_store(&k, dtype, x) : wf_kir_load(&k, dtype, compute, x));
    return function(t, name, &k, why);
}

static int element(wf_text *t, int i, int dtype, wf_why *why)
{
    char name[48];
    const char *type = wf_dtype_name(dtype);
    const wf_kty compute = compute_type(dtype);
    int status = 0;
    for (int store = 0; store < 2 && status == 0; store++) {
        snprintf(name, sizeof name, "wf_%s_%s", store ? "store" : "load", type);
        status = convert(t, name, dtype, compute, store, why);
    }
    P("#define T%d %s\n#define C%d %s\n#define S%d %s\n#define LOAD%d wf_load_%s\n#define STORE%d "
      "wf_store_%s\n",
      i, wf_cu_type(wf_kir_storage(dtype)), i, wf_cu_type(compute), i,
      wf_kty_bits(compute) < 32 ? "int" : wf_cu_type(compute), i, type, i, type);
    /* sums and products of integers wrap: in C only unsigned ones do */
    const char *wraps = wf_kty_is_float(compute) ? "" : "(unsigned long long)";
    P("#define ADD%d(x, y) ((C%d)(%s(x) + %s(y)))\n", i, i, wraps, wraps);
    P("#define MUL%d(x, y) ((C%d)(%s(x) * %s(y)))\n", i, i, wraps, wraps);
    if (wf_kty_is_float(compute))
        P("#define FMA%d(x, y, z) fma%s(x, y, z)\n", i, compute == WF_KT_F32 ? "f" : "");
    else
        P("#define FMA%d(x, y, z) ADD%d(MUL%d(x, y), z)\n", i, i, i);
    for (int most = 0; most < 2; most++) { /* NaN if one is */
        const char *op = most ? "max" : "min";
        if (wf_kty_is_float(compute))
            P("#define %s%d(x, y) wf_%s_%s(x, y)\n", most ? "MAX" : "MIN", i, op,
              wf_kty_name(compute));
        else
            P("#define %s%d(x, y) ((x) %c (y) ? (x) : (y))\n", most ? "MAX" : "MIN", i,
              most ? '>' : '<');
    }
    if (dtype == WEFT_BF16 || dtype == WEFT_F16)
        P("#define PAIR%d \"%sx2\"\n", i, type);
    if (dtype == WEFT_BOOL)
        P("#define MASK%d(x) ((x) ? (C0)0 : never)\n", i);
    else
        P("#define MASK%d(x) LOAD%d(x)\n", i, i);
    return status;
}

static int math(wf_text *t, const char *macro, wf_op op, int compute, wf_why *why)
{
    char name[48];
    wf_kir k;
    wf_kir_init(&k);
    const wf_kref x = wf_kir_param(&k, wf_kir_compute_type(compute));
    snprintf(name, sizeof name, "wf_row_%s_%s", wf_rows[op].name, wf_dtype_name(compute));
    wf_kir_output(&k, wf_kir_row(&k, op, compute, 1, &x));
    P("#define %s %s\n", macro, name);
    return function(t, name, &k, why);
}

int wf_cu_render_hand(const wf_cu_hand *h, const char *name, wf_text *t, wf_why *why)
{
    int status = 0;
    wf_cu_helpers(t);
    wf_cu_words(t, names(h->section, "wf_words_512") ? WF_CU_MANY_WORDS : WF_CU_HAND_WORDS);
    for (int i = 0; i < h->n && status == 0; i++)
        status = element(t, i, h->dtype[i], why);
    for (int give = 0; status == 0 && give < 2 && names(h->section, "TAKE("); give++)
        status = convert(t, give ? "GIVE" : "TAKE", h->dtype[give], compute_type(h->dtype[2]), give,
                         why);
    if (status == 0 && names(h->section, "WF_EXP"))
        status = math(t, "WF_EXP", WF_OP_EXP, wf_dtype_compute(h->dtype[0]), why);
    if (status == 0 && names(h->section, "WF_LOG"))
        status = math(t, "WF_LOG", WF_OP_LOG, wf_dtype_compute(h->dtype[0]), why);
    if (status != 0)
        return status;
    P("#define WF_HUGE wf_f32(0x7F800000u)\n");
    section(t, "common", NULL);
    if (h->wide)
        P("#define WF_WIDE %d\n", h->wide);
    static const char *const common[][2] = {
        {"WALK(", "place_common"},       {"wf_quotient(", "place_common"},
        {"TAKE(", "scan_common"},        {"wf_places", "place_common"},
        {"wf_window", "pool_common"},    {"wf_product(", "tile_common"},
        {"wf_multiply(", "tile_common"}, {"wf_places", "flash_common"},
        {"wf_beats(", "arg_common"}};
    const char *last = "";
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (strcmp(last, common[i][1]) != 0 && names(h->section, common[i][0])) {
            last = common[i][1];
            section(t, last, NULL);
        }
    section(t, h->section, name);
    return t->failed ? wf_fail(why, WEFT_EUNSUPPORTED, "no text for %s", name) : 0;
}
