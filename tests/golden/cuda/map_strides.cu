WF_EXTERN __global__ void kernel(const struct wf_words_19 a)
{
    WF_BEGIN
    float *d0 = (float *)a.w[7];
    const float *s0 = (const float *)a.w[10];
    const float *s1 = (const float *)a.w[14];
    const float c0 = wf_f32((unsigned int)a.w[18]);
    const long long n = (long long)a.w[0], step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        long long rest = i, up;
        up = rest / (long long)a.w[4];
        const long long i2 = rest - up * (long long)a.w[4];
        rest = up;
        up = rest / (long long)a.w[1];
        const long long i1 = rest - up * (long long)a.w[1];
        rest = up;
        const long long i0 = rest;
        const long long o0 = 0 + (long long)i0 * (long long)a.w[8] + (long long)i1 * (long long)a.w[9] + (long long)i2 * 1;
        const long long o1 = 0 + (long long)i0 * (long long)a.w[11] + (long long)i1 * (long long)a.w[12] + (long long)i2 * (long long)a.w[13];
        const long long o2 = 0 + (long long)i0 * (long long)a.w[15] + (long long)i1 * (long long)a.w[16] + (long long)i2 * (long long)a.w[17];
        const float x0 = s0[o1];
        const float x1 = s1[o2];
        const float v4 = wf_max_f32(x0, wf_f32(0x00000000u));
        const float v5 = x1 * c0;
        const float v6 = v4 + v5;
        d0[o0] = v6;
    }
}
