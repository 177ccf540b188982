WF_EXTERN __global__ void __launch_bounds__(512, 2) kernel(const struct wf_words_18 a)
{
    WF_BEGIN
    const long long rows = (long long)a.w[0], n = (long long)a.w[1];
    __shared__ float lanes1[64];
    const int lane = threadIdx.x % 16, warp = threadIdx.x / 16, warps = blockDim.x / 16, active = 1;
    for (long long r = blockIdx.x; r < rows; r += gridDim.x) {
        unsigned int rest = (unsigned int)r, up;
        const unsigned int r_0 = rest;
        float *const d0 = (float *)a.w[12] + (int)r_0 * (int)a.w[13];
        const float *const s0 = (const float *)a.w[15] + (int)r_0 * (int)a.w[16];
        const int shift = (int)((unsigned long long)d0 / 4 & 3);
        float t1 = 0;
        if (threadIdx.x < 64)
            lanes1[threadIdx.x] = wf_f32(0xFF800000u);
        __syncthreads();
        for (long long turn = 0; turn * 4096 < n; turn += warps) {
        const long long block = turn + warp, first = block * 4096, left = n - first;
        const int busy = left > 0, count = left > 4096 ? 4096 : busy ? (int)left : 0;
        float part1[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            part1[j] = wf_f32(0xFF800000u);
        {
        int begin = 0;
        const int end = count > 0 ? (int)count + shift : 0;
#pragma unroll 1
        for (; begin <= end - 1; begin += 256) {
        const int left = end - begin - lane * 4;
        const int at = (int)first + begin + lane * 4;
        const float *const ps0 = s0 + at - shift;
        struct wf_vec_f32_4 xs0[4] = {{{0}}};
#pragma unroll
        for (int u = 0; u < 16; u++) {
        const int g = u / 4, j = u % 4, e = begin + 64 * g + lane * 4 + j - shift;
        const int in = (g > 0 || e >= 0) && (64 * g + j < left), any = 64 * g < left, all = (g > 0 || e >= j) && (64 * g + 4 <= left);
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        if (any && j == 0)
            xs0[g] = *(const struct wf_vec_f32_4 *)(ps0 + 64 * g);
        }
#pragma unroll
        for (int u = 0; u < 16; u++) {
        const int g = u / 4, j = u % 4, e = begin + 64 * g + lane * 4 + j - shift;
        const int in = (g > 0 || e >= 0) && (64 * g + j < left), any = 64 * g < left, all = (g > 0 || e >= j) && (64 * g + 4 <= left);
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        const float x0 = xs0[g].v[j];
        if (in) {
        part1[j] = wf_max_f32(part1[j], x0);
        }
        }
        }
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int h = (16) / 2; h >= 1; h /= 2) {
        const float other = (float)__shfl_down_sync(0xFFFFFFFFu, (float)part1[j], h, 16);
        part1[j] = wf_max_f32(part1[j], other);
        }
        }
        part1[0] = wf_max_f32(part1[0], part1[2]);
        part1[1] = wf_max_f32(part1[1], part1[3]);
        part1[0] = wf_max_f32(part1[0], part1[1]);
        float lo1 = part1[0];
        lo1 = (float)__shfl_sync(0xFFFFFFFFu, (float)lo1, 0, 16);
        if (lane == 0 && busy) {
            lanes1[block % 64] = wf_max_f32(lanes1[block % 64], lo1);
        }
        }
        __syncthreads();
        {
        float part1[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            part1[j] = lanes1[lane * 4 + j];
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int h = (16) / 2; h >= 1; h /= 2) {
        const float other = (float)__shfl_down_sync(0xFFFFFFFFu, (float)part1[j], h, 16);
        part1[j] = wf_max_f32(part1[j], other);
        }
        }
        part1[0] = wf_max_f32(part1[0], part1[2]);
        part1[1] = wf_max_f32(part1[1], part1[3]);
        part1[0] = wf_max_f32(part1[0], part1[1]);
        float lo1 = part1[0];
        lo1 = (float)__shfl_sync(0xFFFFFFFFu, (float)lo1, 0, 16);
        t1 = n ? lo1 : 0;
        }
        for (long long turn = 0; turn * 4096 < n; turn += warps) {
        const long long block = turn + warp, first = block * 4096, left = n - first;
        const int busy = left > 0, count = left > 4096 ? 4096 : busy ? (int)left : 0;
        if (active) {
        int begin = 0;
        const int end = count > 0 ? (int)count + shift : 0;
#pragma unroll 1
        for (; begin <= end - 1; begin += 256) {
        const int left = end - begin - lane * 4;
        const int at = (int)first + begin + lane * 4;
        const float *const ps0 = s0 + at - shift;
        float *const pd0 = d0 + at - shift;
        struct wf_vec_f32_4 zd0;
        struct wf_vec_f32_4 xs0[4] = {{{0}}};
#pragma unroll
        for (int u = 0; u < 16; u++) {
        const int g = u / 4, j = u % 4, e = begin + 64 * g + lane * 4 + j - shift;
        const int in = (g > 0 || e >= 0) && (64 * g + j < left), any = 64 * g < left, all = (g > 0 || e >= j) && (64 * g + 4 <= left);
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        if (any && j == 0)
            xs0[g] = *(const struct wf_vec_f32_4 *)(ps0 + 64 * g);
        }
#pragma unroll
        for (int u = 0; u < 16; u++) {
        const int g = u / 4, j = u % 4, e = begin + 64 * g + lane * 4 + j - shift;
        const int in = (g > 0 || e >= 0) && (64 * g + j < left), any = 64 * g < left, all = (g > 0 || e >= j) && (64 * g + 4 <= left);
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        const float x0 = xs0[g].v[j];
        const float v2 = t1 - x0;
        zd0.v[j] = v2;
        if (j == 3)
            wf_put_f32_4(pd0 + 64 * g, zd0, all);
        if (j == 3 && any && !all) {
            if (64 * g + 0 < left && (g > 0 || e - j + 0 >= 0))
                pd0[64 * g + 0] = zd0.v[0];
            if (64 * g + 1 < left && (g > 0 || e - j + 1 >= 0))
                pd0[64 * g + 1] = zd0.v[1];
            if (64 * g + 2 < left && (g > 0 || e - j + 2 >= 0))
                pd0[64 * g + 2] = zd0.v[2];
            if (64 * g + 3 < left && (g > 0 || e - j + 3 >= 0))
                pd0[64 * g + 3] = zd0.v[3];
        }
        }
        }
        }
        }
        __syncthreads();
    }
}
