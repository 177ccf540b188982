WF_EXTERN __global__ void __launch_bounds__(256, 4) kernel(const struct wf_words_18 a)
{
    WF_BEGIN
    const long long rows = (long long)a.w[0], n = (long long)a.w[1];
    __shared__ float lanes1[8][32];
    const int lane = threadIdx.x % 32, y = threadIdx.x / 32, keep_step = 32;
    for (long long tile = blockIdx.x; tile * 32 < rows; tile += gridDim.x) {
        const int active = tile * 32 + lane < rows;
        const long long r = active ? tile * 32 + lane : rows - 1;
        unsigned int rest = (unsigned int)r, up;
        const unsigned int r_0 = rest;
        float *const d0 = (float *)a.w[12] + (int)r_0 * (int)a.w[13];
        const float *const s0 = (const float *)a.w[15] + (int)r_0 * (int)a.w[16];
        float t1 = 0;
        {
        const long long first = 0, count = n;
        float acc1 = 0, one1 = 0, two1 = 0, four1 = 0;
        for (int j = 0; j < 8; j++) {
        /* the j-th leaf of subtree y: six bits of 8 y + j, reversed */
        const int leaf = (j & 1) << 5 | (j & 2) << 3 | (j & 4) << 1 | (y & 1) << 2 | (y & 2) | (y & 4) >> 2;
        acc1 = -0.0f;
        {
        int begin = 0;
        const int end = (int)count;
#pragma unroll 1
        for (; begin <= end - 512; begin += 512) {
        float xs0[8];
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int e = begin + 64 * u + leaf;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const long long kc = (long long)c * keep_step;
        const unsigned int c_0 = (unsigned int)c;
        xs0[u] = s0[(int)c_0 * (int)a.w[17]];
        }
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int e = begin + 64 * u + leaf;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const long long kc = (long long)c * keep_step;
        const unsigned int c_0 = (unsigned int)c;
        const float x0 = xs0[u];
        acc1 = acc1 + x0;
        }
        }
#pragma unroll 1
        for (; begin <= end - 1; begin += 256) {
        float xs0[4];
#pragma unroll
        for (int u = 0; u < 4; u++) {
        const int e = begin + 64 * u + leaf;
        if (e >= (int)count)
            break;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const long long kc = (long long)c * keep_step;
        const unsigned int c_0 = (unsigned int)c;
        xs0[u] = s0[(int)c_0 * (int)a.w[17]];
        }
#pragma unroll
        for (int u = 0; u < 4; u++) {
        const int e = begin + 64 * u + leaf;
        if (e >= (int)count)
            break;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const long long kc = (long long)c * keep_step;
        const unsigned int c_0 = (unsigned int)c;
        const float x0 = xs0[u];
        acc1 = acc1 + x0;
        }
        }
        }
        if (j & 1) {
        acc1 = one1 + acc1;
        if (j & 2) {
        acc1 = two1 + acc1;
        if (j & 4) {
        acc1 = four1 + acc1;
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
        lanes1[threadIdx.x / 32][lane] = acc1;
        __syncthreads();
        float sum1;
        {
        float q[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            q[i] = lanes1[i][lane];
        q[0] = q[0] + q[1];
        q[2] = q[2] + q[3];
        q[4] = q[4] + q[5];
        q[6] = q[6] + q[7];
        q[0] = q[0] + q[2];
        q[4] = q[4] + q[6];
        q[0] = q[0] + q[4];
        sum1 = q[0];
        }
        t1 = n ? sum1 : 0;
        }
        {
        if (active && y == 0)
            d0[0] = t1;
        }
        __syncthreads();
    }
}
