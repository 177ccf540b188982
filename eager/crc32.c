/*
 * eager/crc32.c -- see crc32.h: eight bytes a step, each by a table of its own. Made here, and not taken from zlib, which builds may
 * lack and whose tables are 15 KB of the library (io/raw/sums.c).
 */
#include "eager/crc32.h"

#include <pthread.h>
#include <string.h>

static uint32_t table[8][256]; /* of a byte, and of one that 1 to 7 follow */

static void make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) {
            c = c >> 1 ^ (c & 1 ? 0xEDB88320u : 0);
        }
        table[0][i] = c;
    }
    for (int k = 1; k < 8; k++) {
        for (int i = 0; i < 256; i++) {
            const uint32_t c = table[k - 1][i];
            table[k][i] = c >> 8 ^ table[0][c & 255];
        }
    }
}

uint32_t wf_crc32(uint32_t sum, const void *data, size_t n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const unsigned char *p = data;
    uint32_t c = ~sum;
    pthread_once(&once, make_tables);
    for (; n >= 8; n -= 8, p += 8) {
        uint32_t a, b;
        memcpy(&a, p, sizeof a);
        memcpy(&b, p + 4, sizeof b);
        a ^= c;
        c = table[7][a & 255] ^ table[6][a >> 8 & 255] ^ table[5][a >> 16 & 255] ^
            table[4][a >> 24] ^ table[3][b & 255] ^ table[2][b >> 8 & 255] ^
            table[1][b >> 16 & 255] ^ table[0][b >> 24];
    }
    for (; n; n--, p++) {
        c = c >> 8 ^ table[0][(c ^ *p) & 255];
    }
    return ~c;
}
