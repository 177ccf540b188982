/*
 * eager/gzip.c -- gzip members that grow: a piece is a block of fixed codes and an empty stored block, which ends at a whole byte; the
 * last text is a stored block of its own behind the last piece, so that the next piece can be written over it.
 */
#include "eager/gzip.h"

#include <string.h>

enum {
    NEAR = 32768,  /* how far back a repetition may begin */
    LONGEST = 258, /* bytes of one */
    LEAST = 4,
    BREAK = 8, /* bytes that wf_gzip_cut adds, or more */
    END_OF_BLOCK = 256,
    STORED = 0,
    FIXED = 1
};

static uint32_t load32(const char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t load64(const char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* -- bits: the first is the lowest of a byte ------------------------------------------------------------------- */

/* Where bits go. Whole bytes are written at once, and what lies beyond them is written over by the next ones. */
typedef struct writer {
    char *p;
    uint64_t bits;
    unsigned count;
} writer;

/* What is put at once: up to 56 bits. */
typedef struct word {
    uint64_t bits;
    unsigned count;
} word;

static inline writer put(writer w, word v)
{
    w.bits |= v.bits << w.count;
    w.count += v.count;
    memcpy(w.p, &w.bits, sizeof w.bits);
    w.p += w.count / 8;
    w.bits >>= w.count & ~7U;
    w.count &= 7;
    return w;
}

static inline word followed_by(word a, uint64_t bits, unsigned count)
{
    return (word){a.bits | bits << a.count, a.count + count};
}

/* Codes begin with their highest bit. */
static inline word symbol(const wf_gzip *z, unsigned s)
{
    if (s < 144) {
        return (word){z->turned[0x30 + s], 8};
    }
    if (s < 256) { /* nine bits, the first of which is 1 */
        return (word){1U | (unsigned)z->turned[0x90 + s - 144] << 1, 9};
    }
    if (s < 280) {
        return (word){z->turned[s - 256] >> 1, 7};
    }
    return (word){z->turned[0xC0 + s - 280], 8};
}

static inline unsigned log2_of(unsigned n)
{
    return 31 - (unsigned)__builtin_clz(n);
}

/* A repetition of `length` bytes from `back` bytes before. Classes of lengths are four to a power of two, of distances two, and
 * further bits say which of a class. */
static inline word repetition(const wf_gzip *z, unsigned length, unsigned back)
{
    const unsigned l = length - 3, d = back - 1;
    word w;
    if (l < 8) {
        w = symbol(z, 257 + l);
    } else if (length == LONGEST) {
        w = symbol(z, 285);
    } else {
        const unsigned more = log2_of(l) - 2;
        w = followed_by(symbol(z, 257 + 4 * (more + 1) + ((l >> more) & 3)), l & ((1U << more) - 1),
                        more);
    }
    const unsigned more = d < 4 ? 0 : log2_of(d) - 1;
    const unsigned class = d < 4 ? d : 2 * (more + 1) + ((d >> more) & 1);
    w = followed_by(w, z->turned[class] >> 3, 5);
    return followed_by(w, d & ((1U << more) - 1), more);
}

/* -- the sum ------------------------------------------------------------------------------------------------------- */

static void make_tables(wf_gzip *z)
{
    for (unsigned i = 0; i < 256; i++) {
        uint32_t c = i, turned = 0;
        for (int k = 0; k < 8; k++) {
            turned |= (i >> k & 1) << (7 - k);
            c = c >> 1 ^ (c & 1 ? 0xEDB88320u : 0);
        }
        z->table[0][i] = c;
        z->turned[i] = (uint8_t)turned;
    }
    for (int k = 1; k < 8; k++) {
        for (unsigned i = 0; i < 256; i++) {
            const uint32_t c = z->table[k - 1][i];
            z->table[k][i] = c >> 8 ^ z->table[0][c & 255];
        }
    }
}

static uint32_t sum_of(const wf_gzip *z, uint32_t sum, const char *s, size_t n)
{
    uint32_t c = ~sum;
    for (; n >= 8;
         n -= 8,
         s += 8) { /* eight look-ups at once: one at a time, each waits for the one before */
        const uint32_t a = load32(s) ^ c, b = load32(s + 4);
        c = z->table[7][a & 255] ^ z->table[6][a >> 8 & 255] ^ z->table[5][a >> 16 & 255] ^
            z->table[4][a >> 24] ^ z->table[3][b & 255] ^ z->table[2][b >> 8 & 255] ^
            z->table[1][b >> 16 & 255] ^ z->table[0][b >> 24];
    }
    for (; n; n--, s++) {
        c = c >> 8 ^ z->table[0][(c ^ (unsigned char)*s) & 255];
    }
    return ~c;
}

/* -- pieces ---------------------------------------------------------------------------------------------------------- */

void wf_gzip_begin(wf_gzip *z)
{
    static const char header[10] = {0x1F, (char)0x8B, 8, 0, 0,
                                    0,    0,          0, 0, 3}; /* no name, no time, Unix */
    make_tables(z);
    wf_text_put(&z->out, header, sizeof header);
}

static uint32_t *place_of(wf_gzip *z, uint32_t four)
{
    return &z->place[four * 2654435761u >> 20];
}

/* Bytes from a and b on that are the same, the first four among them; b is the later one. */
static size_t same_bytes(const char *a, const char *b, size_t most)
{
    size_t n = LEAST;
    while (n + 8 <= most) {
        const uint64_t other = load64(a + n) ^ load64(b + n);
        if (other) {
            return n + (size_t)__builtin_ctzll(other) / 8;
        }
        n += 8;
    }
    while (n < most && a[n] == b[n]) {
        n++;
    }
    return n;
}

static writer compress(wf_gzip *z, writer w, const char *s, size_t from, size_t to)
{
    enum { STEP = 16 }; /* not each place of a repetition is worth knowing */
    size_t i = from;
    while (i + LEAST <= to) {
        const uint32_t four = load32(s + i);
        uint32_t *place = place_of(z, four);
        const size_t before = *place; /* and 1; 0: nowhere */
        *place = (uint32_t)i + 1;
        if (before == 0 || i + 1 - before > NEAR || load32(s + before - 1) != four) {
            w = put(w, symbol(z, (unsigned char)s[i++]));
            continue;
        }
        const size_t most = to - i < LONGEST ? to - i : LONGEST;
        const size_t n = same_bytes(s + before - 1, s + i, most);
        w = put(w, repetition(z, (unsigned)n, (unsigned)(i + 1 - before)));
        for (size_t k = 1; k < n && i + k + LEAST <= to; k += STEP) {
            *place_of(z, load32(s + i + k)) = (uint32_t)(i + k) + 1;
        }
        i += n;
    }
    while (i < to) {
        w = put(w, symbol(z, (unsigned char)s[i++]));
    }
    return w;
}

bool wf_gzip_add(wf_gzip *z, const char *s, size_t from, size_t to, size_t max)
{
    const size_t n = to - from;
    char *room = wf_text_room(
        &z->out, n + n / 8 + 16); /* nine bits a byte, and what is written beyond the last */
    if (!room) {
        return true; /* whoever writes it sees that it failed */
    }
    writer w = {room, z->bits, z->count};
    if (!z->open) {
        w = put(w, (word){FIXED << 1, 3});
    }
    w = compress(z, w, s, from, to);
    if ((size_t)(w.p - z->out.s) + BREAK > max) {
        return false;
    }
    z->bits = w.bits;
    z->count = w.count;
    z->open = true;
    wf_text_end(&z->out, w.p);
    return true;
}

void wf_gzip_cut(wf_gzip *z, const char *s, size_t n)
{
    char *room = z->open ? wf_text_room(&z->out, BREAK + sizeof(uint64_t)) : NULL;
    if (room) {
        writer w = put((writer){room, z->bits, z->count}, symbol(z, END_OF_BLOCK));
        w = put(w, (word){STORED << 1, 3});
        w = put(w, (word){0, (8 - w.count) % 8});
        w = put(w, (word){0xFFFF0000, 32}); /* no bytes, twice */
        wf_text_end(&z->out, w.p);
    }
    z->bits = 0;
    z->count = 0;
    z->open = false;
    z->sum = sum_of(z, z->sum, s, n);
    z->size += (uint32_t)n;
    memset(z->place, 0, sizeof z->place);
}

void wf_gzip_end(wf_gzip *z, const char *end, size_t n)
{
    const uint16_t count = (uint16_t)n, other = (uint16_t)~count;
    const uint32_t sum = sum_of(z, z->sum, end, n), size = z->size + (uint32_t)n;
    wf_text_put(&z->out, "\1", 1); /* the last block, stored */
    wf_text_put(&z->out, &count, sizeof count);
    wf_text_put(&z->out, &other, sizeof other);
    wf_text_put(&z->out, end, n);
    wf_text_put(&z->out, &sum, sizeof sum);
    wf_text_put(&z->out, &size, sizeof size);
}
