WF_EXTERN __global__ void __launch_bounds__(256, 4) kernel_0(const struct wf_words_18 a)
{
    WF_BEGIN
    const long long rows = (long long)a.w[0], n = (long long)a.w[1];
    __shared__ float lanes2[8][64];
    const long long blocks = (long long)a.w[2];
    const int lane = threadIdx.x % 32;
    const long long keep_step = rows, tiles = (rows + 63) / 64;
    for (long long g = blockIdx.x; g < tiles * blocks * 8; g += gridDim.x) {
        const long long tile = g % tiles, block = g / tiles / 8;
        const int y = (int)(g / tiles % 8);
        const int active = tile * 64 + lane * 2 < rows;
        const long long r = active ? tile * 64 + lane * 2 : rows - 2;
        /* the column whose subtrees the thread joins */
        const int column = (int)(threadIdx.x % 64);
        const long long first = block * 4096, count = !active ? 0 : n - first < 4096 ? n - first : 4096;
        unsigned int rest = (unsigned int)r, up;
        const unsigned int r_0 = rest;
        unsigned short *const d0 = (unsigned short *)a.w[12] + (int)r_0 * (int)a.w[13];
        const unsigned short *const s0 = (const unsigned short *)a.w[15] + (int)r_0 * (int)a.w[16];
        float acc2[2];
        {
        const int j = threadIdx.x / 32;
        /* the j-th leaf of subtree y: six bits of 8 y + j, reversed */
        const int leaf = (j & 1) << 5 | (j & 2) << 3 | (j & 4) << 1 | (y & 1) << 2 | (y & 2) | (y & 4) >> 2;
        for (int v = 0; v < 2; v++)
            acc2[v] = -0.0f;
        {
        int begin = 0;
        const int end = (int)count;
#pragma unroll 1
        for (; begin <= end - 512; begin += 512) {
        unsigned int xs0[8];
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int e = begin + 64 * u + leaf;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const long long kc = (long long)c * keep_step;
        const unsigned int c_0 = (unsigned int)c;
        xs0[u] = *(const unsigned int *)&s0[(int)c_0 * (int)a.w[17]];
        }
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int e = begin + 64 * u + leaf;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const long long kc = (long long)c * keep_step;
#pragma unroll
        for (int v = 0; v < 2; v++) {
        const unsigned int c_0 = (unsigned int)c;
        const unsigned short x0 = (unsigned short)(xs0[u] >> 16 * v);
        const unsigned int v1 = (unsigned int)x0;
        const unsigned int v2 = v1 << 16;
        const float v3 = wf_f32(v2);
        acc2[v] = acc2[v] + v3;
        }
        }
        }
#pragma unroll 1
        for (; begin <= end - 1; begin += 256) {
        unsigned int xs0[4];
#pragma unroll
        for (int u = 0; u < 4; u++) {
        const int e = begin + 64 * u + leaf;
        if (e >= (int)count)
            break;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const long long kc = (long long)c * keep_step;
        const unsigned int c_0 = (unsigned int)c;
        xs0[u] = *(const unsigned int *)&s0[(int)c_0 * (int)a.w[17]];
        }
#pragma unroll
        for (int u = 0; u < 4; u++) {
        const int e = begin + 64 * u + leaf;
        if (e >= (int)count)
            break;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const long long kc = (long long)c * keep_step;
#pragma unroll
        for (int v = 0; v < 2; v++) {
        const unsigned int c_0 = (unsigned int)c;
        const unsigned short x0 = (unsigned short)(xs0[u] >> 16 * v);
        const unsigned int v1 = (unsigned int)x0;
        const unsigned int v2 = v1 << 16;
        const float v3 = wf_f32(v2);
        acc2[v] = acc2[v] + v3;
        }
        }
        }
        }
        }
        for (int v = 0; v < 2; v++)
            lanes2[threadIdx.x / 32][lane * 2 + v] = acc2[v];
        __syncthreads();
        float sum2;
        {
        float q[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            q[i] = lanes2[i][column];
        q[0] = q[0] + q[1];
        q[2] = q[2] + q[3];
        q[4] = q[4] + q[5];
        q[6] = q[6] + q[7];
        q[0] = q[0] + q[2];
        q[4] = q[4] + q[6];
        q[0] = q[0] + q[4];
        sum2 = q[0];
        }
        if (threadIdx.x < 64 && tile * 64 + column < rows)
            *(float *)((unsigned long long *)a.w[5] + ((0 * blocks + block) * 8 + y) * rows + tile * 64 + column) = sum2;
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
        unsigned short *const d0 = (unsigned short *)a.w[12] + (int)r_0 * (int)a.w[13];
        const unsigned short *const s0 = (const unsigned short *)a.w[15] + (int)r_0 * (int)a.w[16];
        float t2;
        {
        const unsigned long long *part = (const unsigned long long *)a.w[5] + 0 * blocks * 8 * rows + r;
        float low = -0.0f, high = low, lo2 = low, hi2 = low;
        for (long long super = 0; super < blocks; super += 4096) {
        lo2 = hi2 = -0.0f;
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
            hi2 = hi2 + value;
        } else {
            lo2 = lo2 + value;
        }
        }
        lo2 = lo2 + hi2;
#pragma unroll
        for (int h = (32) / 2; h >= 1; h /= 2) {
        const float other = (float)__shfl_down_sync(0xFFFFFFFFu, (float)lo2, h, 32);
        lo2 = lo2 + other;
        }
        lo2 = (float)__shfl_sync(0xFFFFFFFFu, (float)lo2, 0, 32);
        if (super / 4096 % 64 == lane) {
        low = low + lo2;
        }
        if (super / 4096 % 64 == lane + 32) {
        high = high + lo2;
        }
        }
        if (blocks > 4096) {
        lo2 = low;
        hi2 = high;
        lo2 = lo2 + hi2;
#pragma unroll
        for (int h = (32) / 2; h >= 1; h /= 2) {
        const float other = (float)__shfl_down_sync(0xFFFFFFFFu, (float)lo2, h, 32);
        lo2 = lo2 + other;
        }
        lo2 = (float)__shfl_sync(0xFFFFFFFFu, (float)lo2, 0, 32);
        }
        t2 = n ? lo2 : 0;
        }
        {
        const unsigned short v16 = wf_bf16_of_f32(t2);
        if (lane == 0)
            d0[0] = v16;
        }
        if (lane == 0)
            *(float *)((unsigned long long *)a.w[4] + 0 * rows + r) = t2;
    }
}
