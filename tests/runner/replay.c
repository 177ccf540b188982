/*
 * tests/runner/replay.c -- main() of a fuzz target without the fuzzer: feeds it every file of a folder.
 *
 * Fails when the folder is missing or empty, so that a lost corpus is noticed. Whatever else goes wrong is a
 * crash or a sanitizer report.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads the whole file into a block of exactly its size, so that ASan sees a read past its end. */
static uint8_t *read_all(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    uint8_t *data = NULL;
    if (fseek(file, 0, SEEK_END) == 0) {
        long end = ftell(file);
        rewind(file);
        *size = end > 0 ? (size_t)end : 0;
        data = malloc(*size ? *size : 1);
        if (data && fread(data, 1, *size, file) != *size) {
            free(data);
            data = NULL;
        }
    }
    fclose(file);
    return data;
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (!folder) {
        fprintf(stderr, "usage: replay <folder that exists>\n");
        return 2;
    }
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        size_t size = 0;
        uint8_t *data = read_all(path, &size);
        if (!data) {
            fprintf(stderr, "cannot read %s\n", path);
            closedir(folder);
            return 2;
        }
        LLVMFuzzerTestOneInput(data, size);
        free(data);
        count++;
    }
    closedir(folder);
    printf("%d inputs replayed\n", count);
    return count == 0;
}
