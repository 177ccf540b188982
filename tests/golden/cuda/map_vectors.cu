WF_EXTERN __global__ void kernel(const struct wf_words_10 a)
{
    WF_BEGIN
    unsigned short *d0 = (unsigned short *)a.w[4];
    const unsigned short *s0 = (const unsigned short *)a.w[6];
    const unsigned short *s1 = (const unsigned short *)a.w[7];
    const float c0 = wf_f32((unsigned int)a.w[9]);
    const unsigned int n = (unsigned int)a.w[0], step = (unsigned int)gridDim.x * blockDim.x;
    for (unsigned int i = (unsigned int)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        unsigned int rest = i, up;
        up = (__umulhi(rest, (unsigned int)a.w[2]) + rest) >> (unsigned int)a.w[3];
        const unsigned int i1 = rest - up * (unsigned int)a.w[1];
        rest = up;
        const unsigned int i0 = rest;
        const int o0 = 0 + (int)i0 * (int)a.w[5] + (int)i1 * 4;
        const int o2 = 0 + (int)i0 * (int)a.w[8];
        const struct wf_vec_u32_2 y0 = *(const struct wf_vec_u32_2 *)(s0 + o0);
        const unsigned short x1 = s1[o2];
        struct wf_vec_u16_4 z0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
        const unsigned short x0 = (unsigned short)(y0.v[j / 2] >> j % 2 * 16);
        const unsigned int v3 = (unsigned int)x0;
        const unsigned int v4 = v3 << 16;
        const float v5 = wf_f32(v4);
        const float v7 = wf_max_f32(v5, wf_f32(0x00000000u));
        const unsigned int v8 = (unsigned int)x1;
        const unsigned int v9 = v8 << 16;
        const float v10 = wf_f32(v9);
        const float v11 = v10 * c0;
        const float v12 = v7 + v11;
        const unsigned short v28 = wf_bf16_of_f32(v12);
        z0.v[j] = v28;
        }
        *(struct wf_vec_u16_4 *)(d0 + o0) = z0;
    }
}
