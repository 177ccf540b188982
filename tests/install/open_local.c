/* tests/install/open_local.c -- opens libweft RTLD_LOCAL, uses it and closes it, twice, as a plugin host
 * does. argv[1] is the library. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int use(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    const char *(*version)(void);
    *(void **)&version = dlsym(library, "weft_version");
    int bad = !version || strlen(version()) < 5;
    /* Nothing but weft_* may leak into the program. */
    bad |= dlsym(RTLD_DEFAULT, "weft_version") != NULL;
    return dlclose(library) | bad;
}

int main(int argc, char **argv)
{
    return argc != 2 || use(argv[1]) || use(argv[1]);
}
