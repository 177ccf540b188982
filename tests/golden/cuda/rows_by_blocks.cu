WF_EXTERN __global__ void __launch_bounds__(512, 2) kernel(const struct wf_words_18 a)
{
    WF_BEGIN
    const long long rows = (long long)a.w[0], n = (long long)a.w[1];
    __shared__ float lanes1[64];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, active = 1;
    for (long long r = blockIdx.x; r < rows; r += gridDim.x) {
        unsigned int rest = (unsigned int)r, up;
        const unsigned int r_0 = rest;
        float *const d0 = (float *)a.w[12] + (int)r_0 * (int)a.w[13];
        const float *const s0 = (const float *)a.w[15] + (int)r_0 * (int)a.w[16];
        float t1 = 0;
        if (threadIdx.x < 64)
            lanes1[threadIdx.x] = wf_f32(0xFF800000u);
        __syncthreads();
        for (long long turn = 0; turn * 4096 < n; turn += warps) {
        const long long block = turn + warp, first = block * 4096, left = n - first;
        const int busy = left > 0, count = left > 4096 ? 4096 : busy ? (int)left : 0;
        float lo1 = wf_f32(0xFF800000u), hi1 = lo1;
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
        xs0[u] = s0[(int)c_0 * (int)a.w[17]];
        }
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int e = begin + 32 * u + lane;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const int half = u & 1;
        const unsigned int c_0 = (unsigned int)c;
        const float x0 = xs0[u];
        if (half) {
            hi1 = wf_max_f32(hi1, x0);
        } else {
            lo1 = wf_max_f32(lo1, x0);
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
        const float x0 = xs0[u];
        if (half) {
            hi1 = wf_max_f32(hi1, x0);
        } else {
            lo1 = wf_max_f32(lo1, x0);
        }
        }
        }
        }
        lo1 = wf_max_f32(lo1, hi1);
#pragma unroll
        for (int h = (32) / 2; h >= 1; h /= 2) {
        const float other = (float)__shfl_down_sync(0xFFFFFFFFu, (float)lo1, h, 32);
        lo1 = wf_max_f32(lo1, other);
        }
        lo1 = (float)__shfl_sync(0xFFFFFFFFu, (float)lo1, 0, 32);
        if (lane == 0 && busy) {
            lanes1[block % 64] = wf_max_f32(lanes1[block % 64], lo1);
        }
        }
        __syncthreads();
        {
        float lo1 = lanes1[lane], hi1 = lanes1[lane + 32];
        lo1 = wf_max_f32(lo1, hi1);
#pragma unroll
        for (int h = (32) / 2; h >= 1; h /= 2) {
        const float other = (float)__shfl_down_sync(0xFFFFFFFFu, (float)lo1, h, 32);
        lo1 = wf_max_f32(lo1, other);
        }
        lo1 = (float)__shfl_sync(0xFFFFFFFFu, (float)lo1, 0, 32);
        t1 = n ? lo1 : 0;
        }
        for (long long turn = 0; turn * 4096 < n; turn += warps) {
        const long long block = turn + warp, first = block * 4096, left = n - first;
        const int busy = left > 0, count = left > 4096 ? 4096 : busy ? (int)left : 0;
        if (active) {
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
        xs0[u] = s0[(int)c_0 * (int)a.w[17]];
        }
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int e = begin + 32 * u + lane;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const int half = u & 1;
        const unsigned int c_0 = (unsigned int)c;
        const float x0 = xs0[u];
        const float v2 = t1 - x0;
        d0[(int)c_0 * (int)a.w[14]] = v2;
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
        const float x0 = xs0[u];
        const float v2 = t1 - x0;
        d0[(int)c_0 * (int)a.w[14]] = v2;
        }
        }
        }
        }
        __syncthreads();
    }
}
