WF_EXTERN __global__ void __launch_bounds__(256, 4) kernel(const struct wf_words_18 a)
{
    WF_BEGIN
    const long long rows = (long long)a.w[0], n = (long long)a.w[1];
    const int width = (int)a.w[2], lane = (int)(threadIdx.x & (unsigned int)(width - 1));
    const long long groups = (long long)gridDim.x * (blockDim.x / width);
    const long long mine = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / width;
    for (long long begin = 0; begin < rows; begin += groups) {
        const int active = begin + mine < rows;
        const long long r = active ? begin + mine : rows - 1;
        unsigned int rest = (unsigned int)r, up;
        const unsigned int r_0 = rest;
        unsigned short *const d0 = (unsigned short *)a.w[12] + (int)r_0 * (int)a.w[13];
        const unsigned short *const s0 = (const unsigned short *)a.w[15] + (int)r_0 * (int)a.w[16];
        float t2 = 0;
        {
        const int first = 0, count = (int)n;
        float lo2 = -0.0f, hi2 = lo2;
        {
        int begin = 0;
        const int end = (int)count;
#pragma unroll 1
        for (; begin <= end - 256; begin += 256) {
        const int at = (int)first + begin + lane * 1;
        unsigned short xs0[8];
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int e = begin + 32 * u + lane;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        xs0[u] = s0[(int)c_0 * (int)a.w[17]];
        }
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int e = begin + 32 * u + lane;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const int half = u & 1;
        const unsigned int c_0 = (unsigned int)c;
        const unsigned short x0 = xs0[u];
        const unsigned int v1 = (unsigned int)x0;
        const unsigned int v2 = v1 << 16;
        const float v3 = wf_f32(v2);
        if (half) {
            hi2 = hi2 + v3;
        } else {
            lo2 = lo2 + v3;
        }
        }
        }
#pragma unroll 1
        for (; begin <= end - 1; begin += 128) {
        const int at = (int)first + begin + lane * 1;
        unsigned short xs0[4];
#pragma unroll
        for (int u = 0; u < 4; u++) {
        const int e = begin + 32 * u + lane;
        if (e >= (int)count)
            break;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        xs0[u] = s0[(int)c_0 * (int)a.w[17]];
        }
#pragma unroll
        for (int u = 0; u < 4; u++) {
        const int e = begin + 32 * u + lane;
        if (e >= (int)count)
            break;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const int half = u & 1;
        const unsigned int c_0 = (unsigned int)c;
        const unsigned short x0 = xs0[u];
        const unsigned int v1 = (unsigned int)x0;
        const unsigned int v2 = v1 << 16;
        const float v3 = wf_f32(v2);
        if (half) {
            hi2 = hi2 + v3;
        } else {
            lo2 = lo2 + v3;
        }
        }
        }
        }
        lo2 = lo2 + hi2;
#pragma unroll
        for (int h = (width) / 2; h >= 1; h /= 2) {
        const float other = (float)__shfl_down_sync(0xFFFFFFFFu, (float)lo2, h, width);
        lo2 = lo2 + other;
        }
        lo2 = (float)__shfl_sync(0xFFFFFFFFu, (float)lo2, 0, width);
        t2 = n ? lo2 : 0;
        }
        {
        const unsigned short v16 = wf_bf16_of_f32(t2);
        if (active && lane == 0)
            d0[0] = v16;
        }
    }
}
