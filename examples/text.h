/*
 * examples/text.h -- the text that char_lm.c learns: its bytes as a tensor, its entropy, random windows of it.
 */
#ifndef EXAMPLES_TEXT_H
#define EXAMPLES_TEXT_H

#include <math.h>
#include <stdio.h>

#include <weft/weft.h>

enum { TEXT_VOCAB = 256, TEXT_MOST = 1 << 26 };

/* The file's bytes, at most TEXT_MOST, as an i64 tensor [n]; empty where it cannot be read. *entropy: its unigram entropy in nats, the
 * loss of a model that knows how often each byte occurs and nothing else. */
static inline weft_tensor text_read(const char *file, double *entropy)
{
    static unsigned char bytes[TEXT_MOST];
    FILE *in = fopen(file, "rb");
    size_t n = in ? fread(bytes, 1, TEXT_MOST, in) : 0;
    double count[TEXT_VOCAB] = {0};
    for (size_t i = 0; i < n; i++)
        count[bytes[i]]++;
    *entropy = 0;
    for (int c = 0; c < TEXT_VOCAB; c++)
        *entropy -= count[c] > 0 ? count[c] / (double)n * log(count[c] / (double)n) : 0;
    if (in)
        fclose(in);
    return weft_cast(weft_from_data(bytes, weft_shape((int64_t)n), WEFT_U8), WEFT_I64);
}

/* Random windows of the text [n], n >= length: [rows, length] */
static inline weft_tensor text_windows(weft_tensor text, int64_t rows, int64_t length,
                                       weft_generator *rng)
{
    weft_tensor start =
        weft_randint(weft_shape(rows, 1), 0, weft_numel(text) - length + 1, .generator = rng);
    weft_tensor at = weft_add(start, weft_arange(0, (double)length, 1, WEFT_I64));
    return weft_index_select(text, 0, at);
}

#endif
