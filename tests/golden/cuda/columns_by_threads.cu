WF_EXTERN __global__ void __launch_bounds__(256, 4) kernel(const struct wf_words_18 a)
{
    WF_BEGIN
    const long long rows = (long long)a.w[0], n = (long long)a.w[1];
    const long long mine = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long keep_step = (long long)gridDim.x * blockDim.x;
    const int log = (int)a.w[2], active = 1;
    for (long long r = mine; r < rows; r += keep_step) {
        unsigned int rest = (unsigned int)r, up;
        const unsigned int r_0 = rest;
        float *const d0 = (float *)a.w[12] + (int)r_0 * (int)a.w[13];
        const float *const s0 = (const float *)a.w[15] + (int)r_0 * (int)a.w[16];
        float t1 = 0;
        {
        float acc1 = 0, one1 = 0, two1 = 0, four1 = 0, eight1 = 0, sixteen1 = 0, most1 = 0;
#pragma unroll 1
        for (int begin = 0; begin < 1 << log; begin += 8) {
        float xs0[8];
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int j = begin + u;
        const int e = ((j & 1) << 5 | (j & 2) << 3 | (j & 4) << 1 | (j & 8) >> 1 | (j & 16) >> 3 | (j & 32) >> 5) >> (6 - log);
        if (j >= 1 << log)
            break;
        if (e < (int)n) {
        const unsigned int c = (unsigned int)e;
        const long long kc = (long long)c * keep_step;
        const unsigned int c_0 = (unsigned int)c;
        xs0[u] = s0[(int)c_0 * (int)a.w[17]];
        }
        }
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int j = begin + u;
        const int e = ((j & 1) << 5 | (j & 2) << 3 | (j & 4) << 1 | (j & 8) >> 1 | (j & 16) >> 3 | (j & 32) >> 5) >> (6 - log);
        if (j >= 1 << log)
            break;
        acc1 = -0.0f;
        if (e < (int)n) {
        const unsigned int c = (unsigned int)e;
        const long long kc = (long long)c * keep_step;
        const unsigned int c_0 = (unsigned int)c;
        const float x0 = xs0[u];
        acc1 = acc1 + x0;
        }
        if (j & 1) {
        acc1 = one1 + acc1;
        if (j & 2) {
        acc1 = two1 + acc1;
        if (j & 4) {
        acc1 = four1 + acc1;
        if (j & 8) {
        acc1 = eight1 + acc1;
        if (j & 16) {
        acc1 = sixteen1 + acc1;
        if (j & 32) {
        acc1 = most1 + acc1;
        } else {
        most1 = acc1;
        }
        } else {
        sixteen1 = acc1;
        }
        } else {
        eight1 = acc1;
        }
        } else {
        four1 = acc1;
        }
        } else {
        two1 = acc1;
        }
        } else {
        one1 = acc1;
        }
        }
        }
        t1 = n ? acc1 : 0;
        }
        {
        if (active)
            d0[0] = t1;
        }
    }
}
