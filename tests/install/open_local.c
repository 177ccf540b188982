/* tests/install/open_local.c -- opens libweft RTLD_LOCAL, computes with it and closes it, twice, as the host of
 * a plugin does. argv[1] is the library. Its pool threads outlive the dlclose, so the library must too. */
#include <dlfcn.h>
#include <stdio.h>
#include <weft/weft.h>

static int use(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    weft_tensor (*full)(weft_shape, double, weft_dtype);
    weft_tensor (*matmul)(weft_tensor, weft_tensor);
    double (*item)(weft_tensor);
    weft_tensor (*sum)(const weft_reduce_args *);
    *(void **)&full = dlsym(library, "weft_full");
    *(void **)&matmul = dlsym(library, "weft_matmul");
    *(void **)&item = dlsym(library, "weft_item_f64");
    *(void **)&sum = dlsym(library, "weft_sum");
    if (!full || !matmul || !item || !sum)
        return 1;
    weft_shape square = {0};
    square.n = 2;
    square.v[0] = square.v[1] = 512; /* large enough to start the pool */
    weft_tensor a = full(square, 1.0, WEFT_F32);
    weft_reduce_args args = {0};
    args.x = matmul(a, a);
    int bad = item(sum(&args)) != 512.0 * 512.0 * 512.0;
    /* Nothing may leak into the program's own namespace. */
    bad |= dlsym(RTLD_DEFAULT, "weft_version") != NULL;
    return dlclose(library) | bad;
}

int main(int argc, char **argv)
{
    return argc != 2 || use(argv[1]) || use(argv[1]);
}
