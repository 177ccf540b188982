/*
 * jit/codegen_cuda/render_kernel.c -- CUDA text of whole kernels: the indexing around a body.
 *
 * Sums follow docs/reductions.md. Inner: a warp adds a block of 4096 elements, thread l holding lanes l
 * and l + 32; the first halving is one addition, the others are shuffles; the sums of blocks go to 64
 * lanes in shared memory, each always fed by the same warp and so in order. Outer: 32 columns by 8
 * groups of threads; a group adds the 8 lanes of one subtree, in bit-reversed order.
 *
 * All threads of a block reach every barrier and every shuffle.
 */
#include <stdio.h>
#include <string.h>

#include "jit/codegen_cuda/render.h"

#define P(...) wf_text_putf(t, __VA_ARGS__)

typedef wf_cu_names names;

void wf_cu_name_params(const wf_kernel *k, wf_cu_names *n)
{
    for (int i = 0; i < WF_KIR_MAX_PARAM; i++) {
        snprintf(n->text[i], sizeof n->text[i], i < k->nsrc ? "x%d" : "c%d",
                 i < k->nsrc ? i : i - k->nsrc);
        n->param[i] = n->text[i];
    }
}

static void signature(wf_text *t, const wf_kernel *k, const char *const *sizes)
{
    const int ndst = wf_kernel_ndst(k), n = wf_kernel_nptr(k);
    P("WF_EXTERN __global__ void %s(", k->name);
    for (int i = 0; i < n; i++) {
        const bool source = i >= ndst && i < ndst + k->nsrc;
        if (i < ndst)
            P("%s *d%d", wf_cu_type(wf_kernel_ptr_type(k, i)), i);
        else if (source)
            P("const %s *s%d", wf_cu_type(wf_kernel_ptr_type(k, i)), i - ndst);
        else
            P("%slong long *%s", i == ndst + k->nsrc ? "const " : "",
              i == ndst + k->nsrc ? "index" : "error");
        P(", ");
    }
    for (int i = 0; i < k->nscalar; i++)
        P("%s c%d, ", wf_cu_type((wf_kty)k->body.param_type[k->nsrc + i]), i);
    for (int i = 0; i < wf_kernel_nsize(k); i++)
        P("%slong long %s", i ? ", " : "", sizes[i]);
    P(")\n{\n    WF_BEGIN\n");
}

/* const T x<s> = s<s>[at]; */
static void load(wf_text *t, const wf_kernel *k, int s, const char *at)
{
    P("        const %s x%d = s%d[%s];\n", wf_cu_type((wf_kty)k->body.param_type[s]), s, s,
      k->bcast >> s & 1 ? "0" : at);
}

static void loop(wf_text *t, const char *count)
{
    P("    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < %s; i += (long "
      "long)gridDim.x * blockDim.x) {\n",
      count);
}

/* `name` := the body's value. */
static void value(wf_text *t, const wf_kernel *k, const names *n, const char *name)
{
    wf_cu_body(t, &k->body, "v", n->param);
    P("        %s = ", name);
    wf_cu_ref(t, &k->body, k->body.out[0], "v", n->param);
    P(";\n");
}

/* d0[at] := post(total) */
static void finish(wf_text *t, const wf_kernel *k, const char *total, const char *at)
{
    const char *const param[1] = {total};
    wf_cu_body(t, &k->post, "q", param);
    P("        d0[%s] = ", at);
    wf_cu_ref(t, &k->post, k->post.out[0], "q", param);
    P(";\n");
}

static void outputs(wf_text *t, const wf_kernel *k, const wf_kir *body, const char *prefix,
                    const names *n)
{
    for (int o = 0; o < wf_kernel_ndst(k); o++) {
        P("        d%d[i] = ", o);
        wf_cu_ref(t, body, body->out[o], prefix, n->param);
        P(";\n");
    }
}

static void map(wf_text *t, const wf_kernel *k, const names *n)
{
    static const char *const sizes[] = {"n"};
    signature(t, k, sizes);
    loop(t, "n");
    for (int s = 0; s < k->nsrc; s++)
        load(t, k, s, "i");
    if (k->fast.n) {
        wf_cu_body(t, &k->fast, "f", n->param);
        P("        if (!");
        wf_cu_ref(t, &k->fast, k->fast.rare, "f", n->param);
        P(") {\n");
        outputs(t, k, &k->fast, "f", n);
        P("        continue;\n        }\n");
    }
    wf_cu_body(t, &k->body, "v", n->param);
    outputs(t, k, &k->body, "v", n);
    P("    }\n}\n");
}

static void permute(wf_text *t, const wf_kernel *k, const names *n)
{
    static const char *const sizes[] = {"e0", "e1", "e2", "e3", "t0", "t1", "t2", "t3"};
    signature(t, k, sizes);
    loop(t, "e0 * e1 * e2 * e3");
    P("        const long long i3 = i %% e3, r2 = i / e3, i2 = r2 %% e2, r1 = r2 / e2, i1 = r1 %% "
      "e1, "
      "i0 = r1 / e1;\n");
    load(t, k, 0, "i0 * t0 + i1 * t1 + i2 * t2 + i3 * t3");
    wf_cu_body(t, &k->body, "v", n->param);
    outputs(t, k, &k->body, "v", n);
    P("    }\n}\n");
}

static void gather(wf_text *t, const wf_kernel *k, const names *n)
{
    static const char *const sizes[] = {"m", "width", "rows"};
    signature(t, k, sizes);
    loop(t, "m * width");
    P("        const long long row = index[i / width];\n"
      "        if (row < 0 || row >= rows) {\n"
      "            atomicMin((unsigned long long *)error, (unsigned long long)(i / width));\n"
      "            continue;\n        }\n");
    load(t, k, 0, "row * width + i % width");
    wf_cu_body(t, &k->body, "v", n->param);
    outputs(t, k, &k->body, "v", n);
    P("    }\n}\n");
}

static void scatter(wf_text *t, const wf_kernel *k, const names *n)
{
    static const char *const sizes[] = {"rows", "width", "m"};
    const wf_kty type = wf_kir_type(&k->body, k->body.out[0]);
    signature(t, k, sizes);
    loop(t, "rows * width");
    P("        %s total = 0;\n        for (long long j = 0; j < m; j++) {\n"
      "        if (index[j] != i / width)\n            continue;\n        %s part;\n",
      wf_cu_type(type), wf_cu_type(type));
    load(t, k, 0, "j * width + i % width");
    value(t, k, n, "part");
    P("        total = total + part;\n        }\n");
    finish(t, k, "total", "i");
    P("    }\n}\n");
}

/* -- sums ---------------------------------------------------------------------------------------------- */
static const char *identity(wf_kty type)
{
    return wf_kty_is_float(type) ? "-0.0f" : "0";
}

/* One warp adds elements [first, first + count) of the row at `base` in 64 lanes; lane 0 of the warp
 * has `part`. */
static void warp_block(wf_text *t, const wf_kernel *k, const names *n, const char *type)
{
    P("            %s a = zero, b = zero, part;\n"
      "            for (long long e = lane; e < count; e += 64) {\n        const long long at = "
      "base + "
      "first + e;\n",
      type);
    for (int s = 0; s < k->nsrc; s++)
        load(t, k, s, "at");
    value(t, k, n, "part");
    P("            a = a + part;\n            }\n"
      "            for (long long e = lane + 32; e < count; e += 64) {\n        const long long at "
      "= "
      "base + first + e;\n");
    for (int s = 0; s < k->nsrc; s++)
        load(t, k, s, "at");
    value(t, k, n, "part");
    P("            b = b + part;\n            }\n            part = a + b;\n"
      "            for (int h = 16; h >= 1; h /= 2)\n"
      "                part = part + __shfl_down_sync(0xFFFFFFFFu, part, h);\n");
}

static void sum_inner(wf_text *t, const wf_kernel *k, const names *n)
{
    static const char *const sizes[] = {"rows", "n"};
    const wf_kty kty = wf_kir_type(&k->body, k->body.out[0]);
    const char *type = wf_cu_type(kty);
    signature(t, k, sizes);
    P("    __shared__ %s lanes[2][64];\n    const %s zero = %s;\n"
      "    const int lane = threadIdx.x %% 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;\n"
      "    const long long blocks = (n + 4095) / 4096;\n"
      "    for (long long r = blockIdx.x; r < rows; r += gridDim.x) {\n"
      "        const long long base = r * n;\n        %s total = 0;\n"
      "        if (threadIdx.x < 64)\n            lanes[1][threadIdx.x] = zero;\n"
      "        for (long long super = 0; super * 4096 < blocks; super++) {\n"
      "        __syncthreads();\n"
      "        if (threadIdx.x < 64)\n            lanes[0][threadIdx.x] = zero;\n"
      "        __syncthreads();\n"
      "        for (long long block = super * 4096 + warp; block < blocks && block < (super + 1) * "
      "4096; "
      "block += warps) {\n"
      "            const long long first = block * 4096;\n"
      "            const long long count = n - first < 4096 ? n - first : 4096;\n",
      type, type, identity(kty), type);
    warp_block(t, k, n, type);
    P("            if (lane == 0)\n"
      "                lanes[0][block %% 64] = lanes[0][block %% 64] + part;\n"
      "        }\n        __syncthreads();\n"
      "        if (warp == 0) {\n"
      "            total = lanes[0][lane] + lanes[0][lane + 32];\n"
      "            for (int h = 16; h >= 1; h /= 2)\n"
      "                total = total + __shfl_down_sync(0xFFFFFFFFu, total, h);\n"
      "            if (lane == 0)\n"
      "                lanes[1][super %% 64] = lanes[1][super %% 64] + total;\n"
      "        }\n        }\n        __syncthreads();\n"
      "        if (warp == 0 && blocks > 4096) {\n"
      "            total = lanes[1][lane] + lanes[1][lane + 32];\n"
      "            for (int h = 16; h >= 1; h /= 2)\n"
      "                total = total + __shfl_down_sync(0xFFFFFFFFu, total, h);\n"
      "        }\n        if (threadIdx.x == 0) {\n");
    finish(t, k, "total", "r");
    P("        }\n        __syncthreads();\n    }\n}\n");
}

static void sum_outer(wf_text *t, const wf_kernel *k, const names *n)
{
    static const char *const sizes[] = {"cols", "n"};
    const wf_kty kty = wf_kir_type(&k->body, k->body.out[0]);
    const char *type = wf_cu_type(kty);
    signature(t, k, sizes);
    P("    __shared__ %s part[8][32];\n    __shared__ %s lanes[2][64][32];\n    const %s zero = "
      "%s;\n"
      "    const int x = threadIdx.x %% 32, y = threadIdx.x / 32;\n"
      "    const long long blocks = (n + 4095) / 4096;\n"
      "    for (long long tile = blockIdx.x; tile * 32 < cols; tile += gridDim.x) {\n"
      "        const long long col = tile * 32 + x;\n        %s total = 0;\n"
      "        for (int l = y; l < 64; l += 8)\n            lanes[0][l][x] = lanes[1][l][x] = "
      "zero;\n"
      "        for (long long block = 0; block < blocks; block++) {\n"
      "            const long long first = block * 4096;\n"
      "            const long long last = n < first + 4096 ? n : first + 4096;\n"
      "            %s sub[8], acc;\n"
      "            for (int j = 0; j < 8; j++) {\n"
      "            /* the j-th leaf of subtree y: six bits of 8 y + j, reversed */\n"
      "            const int l = (j & 1) << 5 | (j & 2) << 3 | (j & 4) << 1 | (y & 1) << 2 | (y & "
      "2) | (y & "
      "4) >> 2;\n"
      "            acc = zero;\n"
      "            for (long long row = first + l; row < last && col < cols; row += 64) {\n"
      "        %s value;\n        const long long at = row * cols + col;\n",
      type, type, type, identity(kty), type, type, type);
    for (int s = 0; s < k->nsrc; s++)
        load(t, k, s, "at");
    value(t, k, n, "value");
    P("            acc = acc + value;\n            }\n            sub[j] = acc;\n            }\n"
      "            for (int h = 1; h < 8; h *= 2)\n"
      "                for (int j = 0; j < 8; j += 2 * h)\n"
      "                    sub[j] = sub[j] + sub[j + h];\n"
      "            part[y][x] = sub[0];\n            __syncthreads();\n"
      "            if (y == 0) {\n"
      "                for (int h = 1; h < 8; h *= 2)\n"
      "                    for (int j = 0; j < 8; j += 2 * h)\n"
      "                        part[j][x] = part[j][x] + part[j + h][x];\n"
      "                total = part[0][x];\n"
      "                lanes[0][block %% 64][x] = lanes[0][block %% 64][x] + total;\n"
      "                if (blocks > 1 && (block + 1 == blocks || (block + 1) %% 4096 == 0)) {\n"
      "                    for (int h = 32; h >= 1; h /= 2)\n"
      "                        for (int l = 0; l < h; l++)\n"
      "                            lanes[0][l][x] = lanes[0][l][x] + lanes[0][l + h][x];\n"
      "                    total = lanes[0][0][x];\n"
      "                    const int c = (int)(block / 4096 %% 64);\n"
      "                    lanes[1][c][x] = lanes[1][c][x] + total;\n"
      "                    for (int l = 0; l < 64; l++)\n"
      "                        lanes[0][l][x] = zero;\n"
      "                }\n            }\n            __syncthreads();\n        }\n"
      "        if (y == 0 && blocks > 4096) {\n"
      "            for (int h = 32; h >= 1; h /= 2)\n"
      "                for (int l = 0; l < h; l++)\n"
      "                    lanes[1][l][x] = lanes[1][l][x] + lanes[1][l + h][x];\n"
      "            total = lanes[1][0][x];\n        }\n"
      "        if (y == 0 && col < cols) {\n");
    finish(t, k, "total", "col");
    P("        }\n        __syncthreads();\n    }\n}\n");
}

/* One warp per element of the result: the canonical sum over k, in one level of blocks or two. */
static void matmul(wf_text *t, const wf_kernel *k, const names *n)
{
    static const char *const sizes[] = {"m", "n", "depth"};
    const wf_kty kty = wf_kir_type(&k->body, k->body.out[0]);
    const char *type = wf_cu_type(kty);
    signature(t, k, sizes);
    P("    const %s zero = %s;\n    const int lane = threadIdx.x %% 32;\n"
      "    const long long warps = (long long)gridDim.x * (blockDim.x / 32);\n"
      "    const long long blocks = (depth + 4095) / 4096;\n"
      "    for (long long i = (long long)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < m "
      "* n; i += "
      "warps) {\n"
      "        const long long row = i / n, col = i %% n;\n        %s total = 0, low = zero, high "
      "= zero;\n"
      "        for (long long block = 0; block < blocks; block++) {\n"
      "            const long long first = block * 4096, count = depth - first < 4096 ? depth - "
      "first : "
      "4096;\n            %s a = zero, b = zero, part;\n",
      type, identity(kty), type, type);
    for (int half = 0; half < 2; half++) {
        P("            for (long long e = lane + %d; e < count; e += 64) {\n"
          "        const long long l = first + e;\n",
          half * 32);
        load(t, k, 0, "row * depth + l");
        load(t, k, 1, "l * n + col");
        value(t, k, n, "part");
        P("            %c = %c + part;\n            }\n", 'a' + half, 'a' + half);
    }
    P("            part = a + b;\n            for (int h = 16; h >= 1; h /= 2)\n"
      "                part = part + __shfl_down_sync(0xFFFFFFFFu, part, h);\n"
      "            part = __shfl_sync(0xFFFFFFFFu, part, 0);\n            total = part;\n"
      "            if (block %% 64 == lane)\n                low = low + part;\n"
      "            if (block %% 64 == lane + 32)\n                high = high + part;\n        }\n"
      "        if (blocks > 1) {\n            total = low + high;\n"
      "            for (int h = 16; h >= 1; h /= 2)\n"
      "                total = total + __shfl_down_sync(0xFFFFFFFFu, total, h);\n        }\n"
      "        if (lane == 0) {\n");
    finish(t, k, "total", "i");
    P("        }\n    }\n}\n");
}

int wf_cuda_render(const wf_kernel *k, const wf_target *target, wf_text *t, wf_why *why)
{
    (void)target; /* one text for every architecture */
    names n;
    wf_cu_name_params(k, &n);
    wf_cu_prelude(t, k);
    switch (k->skeleton) {
    case WF_SK_MAP:
        map(t, k, &n);
        break;
    case WF_SK_SUM_INNER:
        sum_inner(t, k, &n);
        break;
    case WF_SK_SUM_OUTER:
        sum_outer(t, k, &n);
        break;
    case WF_SK_PERMUTE:
        permute(t, k, &n);
        break;
    case WF_SK_GATHER:
        gather(t, k, &n);
        break;
    case WF_SK_SCATTER:
        scatter(t, k, &n);
        break;
    case WF_SK_MATMUL:
        matmul(t, k, &n);
        break;
    case WF_SK_ROW:
        return wf_fail(why, WEFT_EUNSUPPORTED, "%s has no CUDA kernel", k->name);
    }
    return t->failed ? wf_fail(why, WEFT_ENOMEM, "no memory for the text of %s", k->name) : 0;
}
