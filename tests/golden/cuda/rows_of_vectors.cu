WF_EXTERN __global__ void __launch_bounds__(256, 4) kernel(const struct wf_words_19 a)
{
    WF_BEGIN
    const long long rows = (long long)a.w[0], n = (long long)a.w[1];
    WF_DYNAMIC(wf_dynamic)
    const int width = 16, lane = (int)(threadIdx.x & (unsigned int)(width - 1));
    const long long groups = (long long)gridDim.x * (blockDim.x / width);
    const long long mine = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / width;
    for (long long begin = 0; begin < rows; begin += groups) {
        const int active = begin + mine < rows;
        const long long r = active ? begin + mine : rows - 1;
        unsigned int rest = (unsigned int)r, up;
        const unsigned int r_0 = rest;
        unsigned short *const d0 = (unsigned short *)a.w[13] + (int)r_0 * (int)a.w[14];
        const unsigned short *const s0 = (const unsigned short *)a.w[16] + (int)r_0 * (int)a.w[17];
        float *const k0 = (float *)((unsigned char *)wf_dynamic + (unsigned int)a.w[12]) + ((long long)(threadIdx.x / width)) * ((n + 3) / 4 * 4);
        float t2 = 0;
        float t5 = 0;
        {
        const int first = 0, count = (int)n;
        float part2[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            part2[j] = wf_f32(0xFF800000u);
        {
        int begin = 0;
        const int end = (int)count;
#pragma unroll 1
        for (; begin <= end - 512; begin += 512) {
        const int at = (int)first + begin + lane * 4;
        const unsigned short *const ps0 = s0 + at;
        struct wf_vec_u32_2 xs0[8];
#pragma unroll
        for (int u = 0; u < 32; u++) {
        const int g = u / 4, j = u % 4, e = begin + 64 * g + lane * 4 + j;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        if (j == 0)
            xs0[g] = *(const struct wf_vec_u32_2 *)(ps0 + 64 * g);
        }
#pragma unroll
        for (int u = 0; u < 32; u++) {
        const int g = u / 4, j = u % 4, e = begin + 64 * g + lane * 4 + j;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        const unsigned short x0 = (unsigned short)(xs0[g].v[j / 2] >> j % 2 * 16);
        const unsigned int v1 = (unsigned int)x0;
        const unsigned int v2 = v1 << 16;
        const float v3 = wf_f32(v2);
        part2[j] = wf_max_f32(part2[j], v3);
        }
        }
#pragma unroll 1
        for (; begin <= end - 1; begin += 256) {
        const int left = end - begin - lane * 4;
        const int at = (int)first + begin + lane * 4;
        const unsigned short *const ps0 = s0 + at;
        struct wf_vec_u32_2 xs0[4] = {{{0}}};
#pragma unroll
        for (int u = 0; u < 16; u++) {
        const int g = u / 4, j = u % 4, e = begin + 64 * g + lane * 4 + j;
        const int in = (64 * g + j < left), any = 64 * g < left, all = (64 * g + 4 <= left);
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        if (any && j == 0)
            xs0[g] = *(const struct wf_vec_u32_2 *)(ps0 + 64 * g);
        }
#pragma unroll
        for (int u = 0; u < 16; u++) {
        const int g = u / 4, j = u % 4, e = begin + 64 * g + lane * 4 + j;
        const int in = (64 * g + j < left), any = 64 * g < left, all = (64 * g + 4 <= left);
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        const unsigned short x0 = (unsigned short)(xs0[g].v[j / 2] >> j % 2 * 16);
        const unsigned int v1 = (unsigned int)x0;
        const unsigned int v2 = v1 << 16;
        const float v3 = wf_f32(v2);
        if (in) {
        part2[j] = wf_max_f32(part2[j], v3);
        }
        }
        }
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int h = (width) / 2; h >= 1; h /= 2) {
        const float other = (float)__shfl_down_sync(0xFFFFFFFFu, (float)part2[j], h, width);
        part2[j] = wf_max_f32(part2[j], other);
        }
        }
        part2[0] = wf_max_f32(part2[0], part2[2]);
        part2[1] = wf_max_f32(part2[1], part2[3]);
        part2[0] = wf_max_f32(part2[0], part2[1]);
        float lo2 = part2[0];
        lo2 = (float)__shfl_sync(0xFFFFFFFFu, (float)lo2, 0, width);
        t2 = n ? lo2 : 0;
        }
        {
        const int first = 0, count = (int)n;
        float part5[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            part5[j] = -0.0f;
        {
        int begin = 0;
        const int end = (int)count;
#pragma unroll 1
        for (; begin <= end - 256; begin += 256) {
        const int at = (int)first + begin + lane * 4;
        const unsigned short *const ps0 = s0 + at;
        float *const pk0 = k0 + at;
        struct wf_vec_f32_4 zk0;
        struct wf_vec_u32_2 xs0[4];
#pragma unroll
        for (int u = 0; u < 16; u++) {
        const int g = u / 4, j = u % 4, e = begin + 64 * g + lane * 4 + j;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        if (j == 0)
            xs0[g] = *(const struct wf_vec_u32_2 *)(ps0 + 64 * g);
        }
#pragma unroll
        for (int u = 0; u < 16; u++) {
        const int g = u / 4, j = u % 4, e = begin + 64 * g + lane * 4 + j;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        const unsigned short x0 = (unsigned short)(xs0[g].v[j / 2] >> j % 2 * 16);
        const unsigned int v2 = (unsigned int)x0;
        const unsigned int v3 = v2 << 16;
        const float v4 = wf_f32(v3);
        const float v5 = v4 - t2;
        const float v6 = fabsf(v5);
        const unsigned char v8 = v6 > wf_f32(0x42D00000u);
        const float v9 = v8 ? wf_f32(0x42D00000u) : v6;
        const float v10 = -v9;
        const float v13 = fmaf(v10, wf_f32(0x3FB8AA3Bu), wf_f32(0x4B4000BEu));
        const float v14 = v13 - wf_f32(0x4B4000BEu);
        const float v16 = fmaf(v14, wf_f32(0xBF317218u), v10);
        const float v18 = v14 * wf_f32(0x3102E308u);
        const float v19 = v16 + v18;
        const float v22 = fmaf(v19, wf_f32(0x3AB559A8u), wf_f32(0x3C091656u));
        const float v24 = fmaf(v19, v22, wf_f32(0x3D2AABCEu));
        const float v26 = fmaf(v19, v24, wf_f32(0x3E2AAA55u));
        const float v28 = fmaf(v19, v26, wf_f32(0x3EFFFFFFu));
        const float v30 = fmaf(v19, v28, wf_f32(0x3F800000u));
        const float v31 = fmaf(v19, v30, wf_f32(0x3F800000u));
        const unsigned int v32 = wf_u32(v13);
        const unsigned int v33 = v32 << 23;
        const float v34 = wf_f32(v33);
        const float v35 = v31 * v34;
        const float v37 = v35 * wf_f32(0x20000000u);
        zk0.v[j] = v37;
        if (j == 3)
            wf_keep_f32_4(pk0 + 64 * g, zk0, 1);
        part5[j] = part5[j] + v37;
        }
        }
#pragma unroll 1
        for (; begin <= end - 1; begin += 128) {
        const int left = end - begin - lane * 4;
        const int at = (int)first + begin + lane * 4;
        const unsigned short *const ps0 = s0 + at;
        float *const pk0 = k0 + at;
        struct wf_vec_f32_4 zk0;
        struct wf_vec_u32_2 xs0[2] = {{{0}}};
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int g = u / 4, j = u % 4, e = begin + 64 * g + lane * 4 + j;
        const int in = (64 * g + j < left), any = 64 * g < left, all = (64 * g + 4 <= left);
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        if (any && j == 0)
            xs0[g] = *(const struct wf_vec_u32_2 *)(ps0 + 64 * g);
        }
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int g = u / 4, j = u % 4, e = begin + 64 * g + lane * 4 + j;
        const int in = (64 * g + j < left), any = 64 * g < left, all = (64 * g + 4 <= left);
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        const unsigned short x0 = (unsigned short)(xs0[g].v[j / 2] >> j % 2 * 16);
        const unsigned int v2 = (unsigned int)x0;
        const unsigned int v3 = v2 << 16;
        const float v4 = wf_f32(v3);
        const float v5 = v4 - t2;
        const float v6 = fabsf(v5);
        const unsigned char v8 = v6 > wf_f32(0x42D00000u);
        const float v9 = v8 ? wf_f32(0x42D00000u) : v6;
        const float v10 = -v9;
        const float v13 = fmaf(v10, wf_f32(0x3FB8AA3Bu), wf_f32(0x4B4000BEu));
        const float v14 = v13 - wf_f32(0x4B4000BEu);
        const float v16 = fmaf(v14, wf_f32(0xBF317218u), v10);
        const float v18 = v14 * wf_f32(0x3102E308u);
        const float v19 = v16 + v18;
        const float v22 = fmaf(v19, wf_f32(0x3AB559A8u), wf_f32(0x3C091656u));
        const float v24 = fmaf(v19, v22, wf_f32(0x3D2AABCEu));
        const float v26 = fmaf(v19, v24, wf_f32(0x3E2AAA55u));
        const float v28 = fmaf(v19, v26, wf_f32(0x3EFFFFFFu));
        const float v30 = fmaf(v19, v28, wf_f32(0x3F800000u));
        const float v31 = fmaf(v19, v30, wf_f32(0x3F800000u));
        const unsigned int v32 = wf_u32(v13);
        const unsigned int v33 = v32 << 23;
        const float v34 = wf_f32(v33);
        const float v35 = v31 * v34;
        const float v37 = v35 * wf_f32(0x20000000u);
        zk0.v[j] = v37;
        if (j == 3)
            wf_keep_f32_4(pk0 + 64 * g, zk0, any);
        if (in) {
        part5[j] = part5[j] + v37;
        }
        }
        }
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int h = (width) / 2; h >= 1; h /= 2) {
        const float other = (float)__shfl_down_sync(0xFFFFFFFFu, (float)part5[j], h, width);
        part5[j] = part5[j] + other;
        }
        }
        part5[0] = part5[0] + part5[2];
        part5[1] = part5[1] + part5[3];
        part5[0] = part5[0] + part5[1];
        float lo5 = part5[0];
        lo5 = (float)__shfl_sync(0xFFFFFFFFu, (float)lo5, 0, width);
        t5 = n ? lo5 : 0;
        }
        {
        const int first = 0, count = (int)n;
        if (active) {
        int begin = 0;
        const int end = (int)count;
        int middle = 1;
        const float reciprocal1 = 1.0f / t5;
        middle &= wf_u32(t5) - 0x30800000u < 0x1E000000u;
#pragma unroll 1
        for (; begin <= end - 256; begin += 256) {
        const int at = (int)first + begin + lane * 4;
        float *const pk0 = k0 + at;
        unsigned short *const pd0 = d0 + at;
        struct wf_vec_u16_4 zd0;
        struct wf_vec_f32_4 ks0[4];
#pragma unroll
        for (int u = 0; u < 16; u++) {
        const int g = u / 4, j = u % 4, e = begin + 64 * g + lane * 4 + j;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        if (j == 0)
            ks0[g] = *(const struct wf_vec_f32_4 *)(pk0 + 64 * g);
        }
        unsigned int low = ~0u, high = 0;
#pragma unroll
        for (int u = 0; u < 16; u++) {
        unsigned int size;
        const int g = u / 4, j = u % 4;
        size = wf_u32(ks0[g].v[j]);
        low = size - 1u < low ? size - 1u : low;
        }
        if (!middle || low < 0x127FFFFFu)
            break;
#pragma unroll
        for (int u = 0; u < 16; u++) {
        const int g = u / 4, j = u % 4, e = begin + 64 * g + lane * 4 + j;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        const float kept0 = ks0[g].v[j];
        const float v2 = wf_over(kept0, t5, reciprocal1);
        const unsigned short v18 = wf_bf16_of_f32(v2);
        zd0.v[j] = v18;
        if (j == 3)
            wf_put_u16_4(pd0 + 64 * g, zd0, 1);
        }
        }
#pragma unroll 1
        for (; begin <= end - 1; begin += 128) {
        const int left = end - begin - lane * 4;
        const int at = (int)first + begin + lane * 4;
        float *const pk0 = k0 + at;
        unsigned short *const pd0 = d0 + at;
        struct wf_vec_u16_4 zd0;
        struct wf_vec_f32_4 ks0[2] = {{{0}}};
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int g = u / 4, j = u % 4, e = begin + 64 * g + lane * 4 + j;
        const int in = (64 * g + j < left), any = 64 * g < left, all = (64 * g + 4 <= left);
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        if (any && j == 0)
            ks0[g] = *(const struct wf_vec_f32_4 *)(pk0 + 64 * g);
        }
        unsigned int low = ~0u, high = 0;
#pragma unroll
        for (int u = 0; u < 8; u++) {
        unsigned int size;
        const int g = u / 4, j = u % 4;
        const int in = (64 * g + j < left);
        size = wf_u32(ks0[g].v[j]);
        size = in ? size : 0x3F800000u;
        low = size - 1u < low ? size - 1u : low;
        }
        const int quick = middle && low >= 0x127FFFFFu;
        if (quick) {
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int g = u / 4, j = u % 4, e = begin + 64 * g + lane * 4 + j;
        const int in = (64 * g + j < left), any = 64 * g < left, all = (64 * g + 4 <= left);
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        const float kept0 = ks0[g].v[j];
        const float v2 = wf_over(kept0, t5, reciprocal1);
        const unsigned short v18 = wf_bf16_of_f32(v2);
        zd0.v[j] = v18;
        if (j == 3)
            wf_put_u16_4(pd0 + 64 * g, zd0, all);
        if (j == 3 && any && !all) {
            if (64 * g + 0 < left && (g > 0 || e - j + 0 >= 0))
                pd0[64 * g + 0] = zd0.v[0];
            if (64 * g + 1 < left && (g > 0 || e - j + 1 >= 0))
                pd0[64 * g + 1] = zd0.v[1];
            if (64 * g + 2 < left && (g > 0 || e - j + 2 >= 0))
                pd0[64 * g + 2] = zd0.v[2];
            if (64 * g + 3 < left && (g > 0 || e - j + 3 >= 0))
                pd0[64 * g + 3] = zd0.v[3];
        }
        }
        } else {
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int g = u / 4, j = u % 4, e = begin + 64 * g + lane * 4 + j;
        const int in = (64 * g + j < left), any = 64 * g < left, all = (64 * g + 4 <= left);
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        const float kept0 = ks0[g].v[j];
        const float v2 = kept0 / t5;
        const unsigned short v18 = wf_bf16_of_f32(v2);
        zd0.v[j] = v18;
        if (j == 3)
            wf_put_u16_4(pd0 + 64 * g, zd0, all);
        if (j == 3 && any && !all) {
            if (64 * g + 0 < left && (g > 0 || e - j + 0 >= 0))
                pd0[64 * g + 0] = zd0.v[0];
            if (64 * g + 1 < left && (g > 0 || e - j + 1 >= 0))
                pd0[64 * g + 1] = zd0.v[1];
            if (64 * g + 2 < left && (g > 0 || e - j + 2 >= 0))
                pd0[64 * g + 2] = zd0.v[2];
            if (64 * g + 3 < left && (g > 0 || e - j + 3 >= 0))
                pd0[64 * g + 3] = zd0.v[3];
        }
        }
        }
        }
        }
        }
    }
}
