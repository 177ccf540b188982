/*
 * jit/ir/controls.h -- characters that a terminal obeys, in names that files and callers chose.
 */
#ifndef JIT_IR_CONTROLS_H
#define JIT_IR_CONTROLS_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the control character at s: one of ASCII's, or two of U+0080 to U+009F in UTF-8. 0: another character, or the end. */
static inline size_t wf_control_at(const char *s)
{
    const unsigned char c = (unsigned char)s[0];
    if (c == 0xC2) {
        return ((unsigned char)s[1] & 0xE0) == 0x80 ? 2 : 0;
    }
    return (c && c < ' ') || c == 0x7F ? 1 : 0;
}

static inline bool wf_has_controls(const char *s)
{
    while (*s && !wf_control_at(s)) {
        s++;
    }
    return *s != 0;
}

#endif
