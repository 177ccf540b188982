WF_EXTERN __global__ void __launch_bounds__(256, 4) kernel_0(const struct wf_words_18 a)
{
    WF_BEGIN
    const long long rows = (long long)a.w[0], n = (long long)a.w[1];
    __shared__ float lanes1[8][32];
    const long long blocks = (long long)a.w[2];
    const int lane = threadIdx.x % 32;
    const long long keep_step = rows, tiles = (rows + 31) / 32;
    for (long long g = blockIdx.x; g < tiles * blocks * 8; g += gridDim.x) {
        const long long tile = g % tiles, block = g / tiles / 8;
        const int y = (int)(g / tiles % 8);
        const int active = tile * 32 + lane < rows;
        const long long r = active ? tile * 32 + lane : rows - 1;
        const long long first = block * 4096, count = !active ? 0 : n - first < 4096 ? n - first : 4096;
        unsigned int rest = (unsigned int)r, up;
        const unsigned int r_0 = rest;
        float *const d0 = (float *)a.w[12] + (int)r_0 * (int)a.w[13];
        const float *const s0 = (const float *)a.w[15] + (int)r_0 * (int)a.w[16];
        float acc1 = 0, one1 = 0, two1 = 0, four1 = 0;
        {
        const int j = threadIdx.x / 32;
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
        if (active && threadIdx.x < 32)
            *(float *)((unsigned long long *)a.w[5] + ((0 * blocks + block) * 8 + y) * rows + r) = sum1;
        __syncthreads();
    }
}
WF_EXTERN __global__ void __launch_bounds__(256, 4) kernel_1(const struct wf_words_18 a)
{
    WF_BEGIN
    const long long rows = (long long)a.w[0], n = (long long)a.w[1];
    const long long blocks = (long long)a.w[2];
    const int lane = threadIdx.x % 32;
    const long long warps = (long long)gridDim.x * (blockDim.x / 32);
    for (long long r = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32; r < rows; r += warps) {
        unsigned int rest = (unsigned int)r, up;
        const unsigned int r_0 = rest;
        float *const d0 = (float *)a.w[12] + (int)r_0 * (int)a.w[13];
        const float *const s0 = (const float *)a.w[15] + (int)r_0 * (int)a.w[16];
        float t1;
        {
        const unsigned long long *part = (const unsigned long long *)a.w[5] + 0 * blocks * 8 * rows + r;
        float low = -0.0f, high = low, lo1 = low, hi1 = low;
        for (long long super = 0; super < blocks; super += 4096) {
        lo1 = hi1 = -0.0f;
        const long long last = super + 4096 < blocks ? super + 4096 : blocks;
        for (long long i = super + lane, half = 0; i < last; i += 32, half ^= 1) {
        float q[8];
#pragma unroll
        for (int k = 0; k < 8; k++)
            q[k] = *(const float *)(part + (i * 8 + k) * rows);
        q[0] = q[0] + q[1];
        q[2] = q[2] + q[3];
        q[4] = q[4] + q[5];
        q[6] = q[6] + q[7];
        q[0] = q[0] + q[2];
        q[4] = q[4] + q[6];
        q[0] = q[0] + q[4];
        const float value = q[0];
        if (half) {
            hi1 = hi1 + value;
        } else {
            lo1 = lo1 + value;
        }
        }
        lo1 = lo1 + hi1;
#pragma unroll
        for (int h = (32) / 2; h >= 1; h /= 2) {
        const float other = (float)__shfl_down_sync(0xFFFFFFFFu, (float)lo1, h, 32);
        lo1 = lo1 + other;
        }
        lo1 = (float)__shfl_sync(0xFFFFFFFFu, (float)lo1, 0, 32);
        if (super / 4096 % 64 == lane) {
        low = low + lo1;
        }
        if (super / 4096 % 64 == lane + 32) {
        high = high + lo1;
        }
        }
        if (blocks > 4096) {
        lo1 = low;
        hi1 = high;
        lo1 = lo1 + hi1;
#pragma unroll
        for (int h = (32) / 2; h >= 1; h /= 2) {
        const float other = (float)__shfl_down_sync(0xFFFFFFFFu, (float)lo1, h, 32);
        lo1 = lo1 + other;
        }
        lo1 = (float)__shfl_sync(0xFFFFFFFFu, (float)lo1, 0, 32);
        }
        t1 = n ? lo1 : 0;
        }
        {
        if (lane == 0)
            d0[0] = t1;
        }
        if (lane == 0)
            *(float *)((unsigned long long *)a.w[4] + 0 * rows + r) = t1;
    }
}
