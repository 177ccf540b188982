WF_EXTERN __global__ void __launch_bounds__(256, 4) kernel(const struct wf_words_19 a)
{
    WF_BEGIN
    const long long rows = (long long)a.w[0], n = (long long)a.w[1];
    const int width = 32, lane = (int)(threadIdx.x & (unsigned int)(width - 1));
    const long long groups = (long long)gridDim.x * (blockDim.x / width);
    const long long mine = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / width;
    for (long long begin = 0; begin < rows; begin += groups) {
        const int active = begin + mine < rows;
        const long long r = active ? begin + mine : rows - 1;
        unsigned int rest = (unsigned int)r, up;
        const unsigned int r_0 = rest;
        unsigned short *const d0 = (unsigned short *)a.w[13] + (int)r_0 * (int)a.w[14];
        const unsigned short *const s0 = (const unsigned short *)a.w[16] + (int)r_0 * (int)a.w[17];
        const int shift = (int)((unsigned long long)d0 / 2 & 1);
        float ks0[8];
        struct wf_vec_u32_1 xs0[4] = {{{0}}};
        float t2 = 0;
        float t5 = 0;
        {
        const int first = 0, count = (int)n;
        float part2[2];
#pragma unroll
        for (int j = 0; j < 2; j++)
            part2[j] = wf_f32(0xFF800000u);
        {
        int begin = 0;
        const int end = count > 0 ? (int)count + shift : 0;
        {
        const int left = end - begin - lane * 2;
        const int at = (int)first + begin + lane * 2;
        const unsigned short *const ps0 = s0 + at - shift;
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int g = u / 2, j = u % 2, e = begin + 64 * g + lane * 2 + j - shift;
        const int in = (g > 0 || e >= 0) && (64 * g + j < left), any = 64 * g < left, all = (g > 0 || e >= j) && (64 * g + 2 <= left);
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        if (any && j == 0)
            xs0[g] = *(const struct wf_vec_u32_1 *)(ps0 + 64 * g);
        }
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int g = u / 2, j = u % 2, e = begin + 64 * g + lane * 2 + j - shift;
        const int in = (g > 0 || e >= 0) && (64 * g + j < left), any = 64 * g < left, all = (g > 0 || e >= j) && (64 * g + 2 <= left);
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
        for (int j = 0; j < 2; j++) {
#pragma unroll
        for (int h = (width) / 2; h >= 1; h /= 2) {
        const float other = (float)__shfl_down_sync(0xFFFFFFFFu, (float)part2[j], h, width);
        part2[j] = wf_max_f32(part2[j], other);
        }
        }
        part2[0] = wf_max_f32(part2[0], part2[1]);
        float lo2 = part2[0];
        lo2 = (float)__shfl_sync(0xFFFFFFFFu, (float)lo2, 0, width);
        t2 = n ? lo2 : 0;
        }
        {
        const int first = 0, count = (int)n;
        float part5[2];
#pragma unroll
        for (int j = 0; j < 2; j++)
            part5[j] = -0.0f;
        {
        int begin = 0;
        const int end = count > 0 ? (int)count + shift : 0;
        {
        const int left = end - begin - lane * 2;
        const int at = (int)first + begin + lane * 2;
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int g = u / 2, j = u % 2, e = begin + 64 * g + lane * 2 + j - shift;
        const int in = (g > 0 || e >= 0) && (64 * g + j < left), any = 64 * g < left, all = (g > 0 || e >= j) && (64 * g + 2 <= left);
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
        ks0[u] = v37;
        if (in) {
        part5[j] = part5[j] + v37;
        }
        }
        }
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
#pragma unroll
        for (int h = (width) / 2; h >= 1; h /= 2) {
        const float other = (float)__shfl_down_sync(0xFFFFFFFFu, (float)part5[j], h, width);
        part5[j] = part5[j] + other;
        }
        }
        part5[0] = part5[0] + part5[1];
        float lo5 = part5[0];
        lo5 = (float)__shfl_sync(0xFFFFFFFFu, (float)lo5, 0, width);
        t5 = n ? lo5 : 0;
        }
        {
        const int first = 0, count = (int)n;
        if (active) {
        int begin = 0;
        const int end = count > 0 ? (int)count + shift : 0;
        int middle = 1;
        const float reciprocal1 = 1.0f / t5;
        middle &= wf_u32(t5) - 0x30800000u < 0x1E000000u;
        {
        const int left = end - begin - lane * 2;
        const int at = (int)first + begin + lane * 2;
        unsigned short *const pd0 = d0 + at - shift;
        struct wf_vec_u16_2 zd0;
        unsigned int low = ~0u, high = 0;
#pragma unroll
        for (int u = 0; u < 8; u++) {
        unsigned int size;
        const int g = u / 2, j = u % 2;
        const int in = (g > 0 || end - left + j >= shift) && (64 * g + j < left);
        size = wf_u32(ks0[u]);
        size = in ? size : 0x3F800000u;
        low = size - 1u < low ? size - 1u : low;
        }
        const int quick = middle && low >= 0x127FFFFFu;
        if (quick) {
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int g = u / 2, j = u % 2, e = begin + 64 * g + lane * 2 + j - shift;
        const int in = (g > 0 || e >= 0) && (64 * g + j < left), any = 64 * g < left, all = (g > 0 || e >= j) && (64 * g + 2 <= left);
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        const float kept0 = ks0[u];
        const float v2 = wf_over(kept0, t5, reciprocal1);
        const unsigned short v18 = wf_bf16_of_f32(v2);
        zd0.v[j] = v18;
        if (j == 1)
            wf_put_u16_2(pd0 + 64 * g, zd0, all);
        if (j == 1 && any && !all) {
            if (64 * g + 0 < left && (g > 0 || e - j + 0 >= 0))
                pd0[64 * g + 0] = zd0.v[0];
            if (64 * g + 1 < left && (g > 0 || e - j + 1 >= 0))
                pd0[64 * g + 1] = zd0.v[1];
        }
        }
        } else {
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int g = u / 2, j = u % 2, e = begin + 64 * g + lane * 2 + j - shift;
        const int in = (g > 0 || e >= 0) && (64 * g + j < left), any = 64 * g < left, all = (g > 0 || e >= j) && (64 * g + 2 <= left);
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        const float kept0 = ks0[u];
        const float v2 = kept0 / t5;
        const unsigned short v18 = wf_bf16_of_f32(v2);
        zd0.v[j] = v18;
        if (j == 1)
            wf_put_u16_2(pd0 + 64 * g, zd0, all);
        if (j == 1 && any && !all) {
            if (64 * g + 0 < left && (g > 0 || e - j + 0 >= 0))
                pd0[64 * g + 0] = zd0.v[0];
            if (64 * g + 1 < left && (g > 0 || e - j + 1 >= 0))
                pd0[64 * g + 1] = zd0.v[1];
        }
        }
        }
        }
        }
        }
    }
}
