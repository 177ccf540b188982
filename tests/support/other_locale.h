/*
 * tests/support/other_locale.h -- a locale whose decimal point is "\u066b" of two bytes, as that of Pashto, made by hand: machines
 * have few locales installed. It stays set to the end of the process, which a test has for itself.
 */
#ifndef TESTS_SUPPORT_OTHER_LOCALE_H
#define TESTS_SUPPORT_OTHER_LOCALE_H

#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/support.h"

/* Numbers are written its way from now on. */
static inline bool test_other_locale_is_set(void)
{
    char text[16];
    snprintf(text, sizeof text, "%.1f", 1.5);
    return strcmp(text, "1\xd9\xab"
                        "5") == 0;
}

/* False where the C library does not read it: it is glibc's own format (point, separator, grouping, both as wide characters, name of
 * the character set; offsets before them). */
static inline bool test_set_other_locale(void)
{
    static const unsigned char numeric[] = {
        0x14, 0x11, 0x03, 0x20, 6,    0,    0,   0,    32,   0,   0,   0, 35,   0,
        0,    0,    38,   0,    0,    0,    40,  0,    0,    0,   44,  0, 0,    0,
        48,   0,    0,    0,    0xd9, 0xab, 0,   0xd9, 0xac, 0,   3,   0, 0x6b, 0x06,
        0,    0,    0x6c, 0x06, 0,    0,    'U', 'T',  'F',  '-', '8', 0};
    char folder[TEST_PATH], name[TEST_PATH + 8], file[TEST_PATH + 24];
    test_new_folder(folder);
    snprintf(name, sizeof name, "%s/xx_XX", folder);
    snprintf(file, sizeof file, "%s/LC_NUMERIC", name);
    mkdir(name, 0700);
    FILE *f = fopen(file, "wb");
    bool good = f && fwrite(numeric, 1, sizeof numeric, f) == sizeof numeric;
    good = f && fclose(f) == 0 && good;
    setenv("LOCPATH", folder, 1);
    good = good && setlocale(LC_NUMERIC, "xx_XX") && test_other_locale_is_set();
    unlink(file);
    rmdir(name);
    rmdir(folder);
    return good;
}

#endif
