/*
 * eager/crc32.h -- the sum that zip archives and gzip files carry: CRC-32 of IEEE 802.3, reflected, as in RFC 1952, part 8.
 */
#ifndef EAGER_CRC32_H
#define EAGER_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Of what has the sum `sum` (0: nothing yet) with n more bytes. Any thread. */
uint32_t wf_crc32(uint32_t sum, const void *data, size_t n);

#endif
