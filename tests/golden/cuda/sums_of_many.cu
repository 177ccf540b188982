WF_EXTERN __global__ void __launch_bounds__(256, 4) kernel_0(const struct wf_words_512 a)
{
    WF_BEGIN
    const long long rows = (long long)a.w[0];
    const long long blocks = (long long)a.w[2];
    const int lane = threadIdx.x % 32;
    const long long warps = (long long)gridDim.x * (blockDim.x / 32), work = blocks;
    const long long mine = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    for (long long turn = 0; turn < work; turn += warps) {
        const int active = turn + mine < work;
        const long long g = active ? turn + mine : work - 1;
        long long r = 0;
        for (int h = 64; h >= 1; h /= 2)
            if (r + h < rows && (long long)a.w[6 + (r + h) * 6] <= g)
                r += h;
        const unsigned int entry = 6 + (unsigned int)r * 6;
        const long long n = (long long)a.w[entry + 1], block = g - (long long)a.w[entry];
        const long long first = block * 4096, count = !active ? 0 : n - first < 4096 ? n - first : 4096;
        unsigned int rest = (unsigned int)r, up;
        const unsigned int r_0 = rest;
        float *const d0 = (float *)a.w[entry + 2];
        const float *const s0 = (const float *)a.w[entry + 4];
        float lo1 = -0.0f, hi1 = lo1;
        {
        int begin = 0;
        const int end = (int)count;
#pragma unroll 1
        for (; begin <= end - 256; begin += 256) {
        const int at = (int)first + begin + lane * 1;
        float xs0[8];
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int e = begin + 32 * u + lane;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        xs0[u] = s0[(int)c_0 * (int)a.w[entry + 5]];
        }
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int e = begin + 32 * u + lane;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const int half = u & 1;
        const unsigned int c_0 = (unsigned int)c;
        const float x0 = xs0[u];
        if (half) {
            hi1 = hi1 + x0;
        } else {
            lo1 = lo1 + x0;
        }
        }
        }
#pragma unroll 1
        for (; begin <= end - 1; begin += 128) {
        const int at = (int)first + begin + lane * 1;
        float xs0[4];
#pragma unroll
        for (int u = 0; u < 4; u++) {
        const int e = begin + 32 * u + lane;
        if (e >= (int)count)
            break;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        xs0[u] = s0[(int)c_0 * (int)a.w[entry + 5]];
        }
#pragma unroll
        for (int u = 0; u < 4; u++) {
        const int e = begin + 32 * u + lane;
        if (e >= (int)count)
            break;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const int half = u & 1;
        const unsigned int c_0 = (unsigned int)c;
        const float x0 = xs0[u];
        if (half) {
            hi1 = hi1 + x0;
        } else {
            lo1 = lo1 + x0;
        }
        }
        }
        }
        lo1 = lo1 + hi1;
#pragma unroll
        for (int h = (32) / 2; h >= 1; h /= 2) {
        const float other = (float)__shfl_down_sync(0xFFFFFFFFu, (float)lo1, h, 32);
        lo1 = lo1 + other;
        }
        lo1 = (float)__shfl_sync(0xFFFFFFFFu, (float)lo1, 0, 32);
        if (active && lane == 0)
            *(float *)((unsigned long long *)a.w[5] + 0 * blocks + g) = lo1;
    }
}
WF_EXTERN __global__ void __launch_bounds__(256, 4) kernel_1(const struct wf_words_512 a)
{
    WF_BEGIN
    const long long rows = (long long)a.w[0];
    const long long all = (long long)a.w[2];
    const int lane = threadIdx.x % 32;
    const long long warps = (long long)gridDim.x * (blockDim.x / 32);
    for (long long r = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32; r < rows; r += warps) {
        const unsigned int entry = 6 + (unsigned int)r * 6;
        const long long n = (long long)a.w[entry + 1], blocks = (n + 4095) / 4096;
        unsigned int rest = (unsigned int)r, up;
        const unsigned int r_0 = rest;
        float *const d0 = (float *)a.w[entry + 2];
        const float *const s0 = (const float *)a.w[entry + 4];
        float t1;
        {
        const unsigned long long *part = (const unsigned long long *)a.w[5] + 0 * all + (long long)a.w[entry];
        float low = -0.0f, high = low, lo1 = low, hi1 = low;
        for (long long super = 0; super < blocks; super += 4096) {
        lo1 = hi1 = -0.0f;
        const long long last = super + 4096 < blocks ? super + 4096 : blocks;
        for (long long i = super + lane, half = 0; i < last; i += 32, half ^= 1) {
        const float value = *(const float *)(part + i);
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
