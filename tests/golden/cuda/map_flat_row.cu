WF_EXTERN __global__ void kernel(const struct wf_words_12 a)
{
    WF_BEGIN
    unsigned short *d0 = (unsigned short *)a.w[8];
    const unsigned short *s0 = (const unsigned short *)a.w[9];
    const unsigned short *s1 = (const unsigned short *)a.w[10];
    typedef unsigned int num;
    typedef int off;
    const num n = (num)a.w[0], head = (num)a.w[1], step = (num)a.w[3];
    const num me = (num)blockIdx.x * blockDim.x + threadIdx.x;
    const num back = (num)gridDim.x * blockDim.x - 1 - me;
    if (back < (num)a.w[2]) {
        const num e = back < head ? back : n * 8 + back;
        unsigned int rest = e, up;
        up = (__umulhi(rest, (unsigned int)a.w[6]) + rest) >> (unsigned int)a.w[7];
        const unsigned int i1 = rest - up * (unsigned int)a.w[5];
        rest = up;
        const unsigned int i0 = rest;
        const int o0 = e;
        const int o2 = 0 + (int)i0 * (int)a.w[11] + (int)i1 * 1;
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
        up = (__umulhi(rest, (unsigned int)a.w[6]) + rest) >> (unsigned int)a.w[7];
        const unsigned int i1 = rest - up * (unsigned int)a.w[5];
        rest = up;
        const unsigned int i0 = rest;
    unsigned short R1[8];
    num r0 = i0, r1 = i1;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const off o2 = 0 + (int)r0 * (int)a.w[11] + (int)r1 * 1;
        R1[j] = s1[o2];
        if (++r1 == (num)a.w[5]) {
        r1 = 0;
        r0++;
        }
    }
    for (num i = me; i < n; i += step * 2, e += pace * 2) {
        int O0[2];
        struct wf_vec_u32_4 Y0[2];
#pragma unroll
        for (int u = 0; u < 2; u++) {
        const off o0 = e + (i + u * step < n ? u : 0) * pace;
        const struct wf_vec_u32_4 y0 = *(const struct wf_vec_u32_4 *)(s0 + o0);
        O0[u] = o0;
        Y0[u] = y0;
        }
#pragma unroll
        for (int u = 0; u < 2; u++) {
        if (i + u * step >= n)
            break;
        const int o0 = O0[u];
        const struct wf_vec_u32_4 y0 = Y0[u];
        struct wf_vec_u16_8 z0;
#pragma unroll
        for (int j = 0; j < 8; j++) {
        const unsigned short x0 = (unsigned short)(y0.v[j / 2] >> j % 2 * 16);
        const unsigned short x1 = R1[j];
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
        }
    }
}
