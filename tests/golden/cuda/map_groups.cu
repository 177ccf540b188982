WF_EXTERN __global__ void kernel(const struct wf_words_10 a)
{
    WF_BEGIN
    unsigned short *d0 = (unsigned short *)a.w[4];
    const unsigned short *s0 = (const unsigned short *)a.w[6];
    const unsigned short *s1 = (const unsigned short *)a.w[7];
    const float c0 = wf_f32((unsigned int)a.w[9]);
    const unsigned int n = (unsigned int)a.w[0], step = (unsigned int)gridDim.x * blockDim.x;
    for (unsigned int first = (unsigned int)blockIdx.x * blockDim.x + threadIdx.x; first < n; first += 4 * step) {
        int O0[4];
        unsigned short X0[4];
        int O2[4];
        unsigned short X1[4];
#pragma unroll
        for (int u = 0; u < 4; u++) {
        const unsigned int i = first + u * step < n ? first + u * step : first;
        unsigned int rest = i, up;
        up = (__umulhi(rest, (unsigned int)a.w[2]) + rest) >> (unsigned int)a.w[3];
        const unsigned int i1 = rest - up * (unsigned int)a.w[1];
        rest = up;
        const unsigned int i0 = rest;
        const int o0 = 0 + (int)i0 * (int)a.w[5] + (int)i1 * 1;
        const int o2 = 0 + (int)i0 * (int)a.w[8] + (int)i1 * 1;
        const unsigned short x0 = s0[o0];
        const unsigned short x1 = s1[o2];
        O0[u] = o0;
        X0[u] = x0;
        O2[u] = o2;
        X1[u] = x1;
        }
#pragma unroll
        for (int u = 0; u < 4; u++) {
        const int o0 = O0[u];
        const unsigned short x0 = X0[u];
        const int o2 = O2[u];
        const unsigned short x1 = X1[u];
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
        d0[o0] = v28;
        }
    }
}
