WF_EXTERN __global__ void kernel(const struct wf_words_16 a)
{
    WF_BEGIN
    unsigned short *d0 = (unsigned short *)a.w[11];
    const unsigned short *s0 = (const unsigned short *)a.w[12];
    const unsigned short *s1 = (const unsigned short *)a.w[13];
    typedef unsigned int num;
    typedef int off;
    const num n = (num)a.w[0], head = (num)a.w[1], step = (num)a.w[3];
    const num me = (num)blockIdx.x * blockDim.x + threadIdx.x;
    const num back = (num)gridDim.x * blockDim.x - 1 - me;
    if (back < (num)a.w[2]) {
        const num e = back < head ? back : n * 8 + back;
        unsigned int rest = e, up;
        up = (__umulhi(rest, (unsigned int)a.w[9]) + rest) >> (unsigned int)a.w[10];
        const unsigned int i2 = rest - up * (unsigned int)a.w[8];
        rest = up;
        up = (__umulhi(rest, (unsigned int)a.w[6]) + rest) >> (unsigned int)a.w[7];
        const unsigned int i1 = rest - up * (unsigned int)a.w[5];
        rest = up;
        const unsigned int i0 = rest;
        const int o0 = e;
        const int o2 = 0 + (int)i0 * (int)a.w[14] + (int)i1 * (int)a.w[15] + (int)i2 * 1;
        const unsigned short x0 = s0[o0];
        const unsigned short x1 = s1[o2];
        const unsigned int v2 = (unsigned int)x0;
        const unsigned int v3 = v2 << 16;
        const float v4 = wf_f32(v3);
        const float v6 = wf_max_f32(v4, wf_f32(0x00000000u));
        const unsigned int v7 = (unsigned int)x1;
        const unsigned int v8 = v7 << 16;
        const float v9 = wf_f32(v8);
        const float v10 = v6 + v9;
        const unsigned short v26 = wf_bf16_of_f32(v10);
        d0[o0] = v26;
    }
    if (me >= step || me >= n)
        return;
    off e = (off)(head + me * 8), pace = (off)step * 8;
        unsigned int rest = (num)e, up;
        up = (__umulhi(rest, (unsigned int)a.w[9]) + rest) >> (unsigned int)a.w[10];
        const unsigned int i2 = rest - up * (unsigned int)a.w[8];
        rest = up;
        up = (__umulhi(rest, (unsigned int)a.w[6]) + rest) >> (unsigned int)a.w[7];
        const unsigned int i1 = rest - up * (unsigned int)a.w[5];
        rest = up;
        const unsigned int i0 = rest;
    const off left = (off)((num)a.w[8] - i2);
    num k0 = i0, k1 = i1, k2 = i2;
        k2 = (num)a.w[8] - 1;
        if (++k2 == (num)a.w[8]) {
        k2 = 0;
        if (++k1 == (num)a.w[5]) {
        k1 = 0;
        k0++;
        }}
    const off t2 = 1, g2 = (off)a.w[4] * (off)a.w[14];
    off h2 = 0;
    const off a2 = 0 + (int)i0 * (int)a.w[14] + (int)i1 * (int)a.w[15] + (int)i2 * 1, b2 = left >= 8 ? a2 : 0 + (int)k0 * (int)a.w[14] + (int)k1 * (int)a.w[15] + (int)k2 * 1 - left * t2;
    for (num i = me; i < n; i += step * 1, e += pace * 1) {
        const off o0 = e;
        const struct wf_vec_u32_4 y0 = *(const struct wf_vec_u32_4 *)(s0 + o0);
        struct wf_vec_u16_8 z0;
#pragma unroll
        for (int j = 0; j < 8; j++) {
        const unsigned short x0 = (unsigned short)(y0.v[j / 2] >> j % 2 * 16);
        const unsigned short x1 = s1[(j < left ? a2 : b2) + j * t2 + h2];
        const unsigned int v2 = (unsigned int)x0;
        const unsigned int v3 = v2 << 16;
        const float v4 = wf_f32(v3);
        const float v6 = wf_max_f32(v4, wf_f32(0x00000000u));
        const unsigned int v7 = (unsigned int)x1;
        const unsigned int v8 = v7 << 16;
        const float v9 = wf_f32(v8);
        const float v10 = v6 + v9;
        const unsigned short v26 = wf_bf16_of_f32(v10);
        z0.v[j] = v26;
        }
        *(struct wf_vec_u16_8 *)(d0 + o0) = z0;
        h2 += g2;
    }
}
