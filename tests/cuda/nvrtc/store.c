/* tests/cuda/nvrtc/store.c -- tests/cuda/nvrtc/store.h. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cuda/nvrtc/store.h"

static uint64_t hash_of(const char *s, uint64_t h)
{
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001B3u;
    return h ^ h >> 29;
}

store_key store_key_of(int n, const char *const parts[])
{
    store_key key = {0xCBF29CE484222325u, 0x9E3779B97F4A7C15u};
    for (int i = 0; i < n; i++) {
        key.a = hash_of(parts[i], key.a);
        key.b = hash_of(parts[n - 1 - i], key.b);
    }
    return key;
}

uint64_t store_text_hash(const char *text, bool contract)
{
    return store_key_of(2, (const char *[]){contract ? "--fmad=true" : "--fmad=false", text}).a;
}

bool store_folder(char *folder, size_t n)
{
    struct stat st;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, n, "%s/weft-shim-%d", tmp && tmp[0] ? tmp : "/tmp", (int)getuid());
    mkdir(folder, 0700);
    return lstat(folder, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == getuid() &&
           !(st.st_mode & 077);
}

char *store_read(const char *path, size_t *size)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    char *data = fstat(fd, &st) == 0 && st.st_size > 0 ? malloc((size_t)st.st_size) : NULL;
    if (data && read(fd, data, (size_t)st.st_size) != (ssize_t)st.st_size) {
        free(data);
        data = NULL;
    }
    close(fd);
    *size = data ? (size_t)st.st_size : 0;
    return data;
}

bool store_write(const char *path, const char *data, size_t size)
{
    static _Atomic int serial;
    char own[400];
    snprintf(own, sizeof own, "%s.%d-%d", path, (int)getpid(), serial++);
    FILE *f = fopen(own, "w");
    if (!f)
        return false;
    const bool written = fwrite(data, 1, size, f) == size;
    if (fclose(f) == 0 && written && rename(own, path) == 0)
        return true;
    unlink(own);
    return false;
}
