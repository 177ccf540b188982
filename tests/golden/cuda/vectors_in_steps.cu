WF_EXTERN __global__ void __launch_bounds__(256, 4) kernel_0(const struct wf_words_18 a)
{
    WF_BEGIN
    const long long rows = (long long)a.w[0], n = (long long)a.w[1];
    const long long blocks = (long long)a.w[2];
    const int lane = threadIdx.x % 8;
    const long long warps = (long long)gridDim.x * (blockDim.x / 8), work = rows * blocks;
    const long long mine = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 8;
    for (long long turn = 0; turn < work; turn += warps) {
        const int active = turn + mine < work;
        const long long g = active ? turn + mine : work - 1;
        const long long r = g / blocks, block = g % blocks;
        const long long first = block * 4096, count = !active ? 0 : n - first < 4096 ? n - first : 4096;
        unsigned int rest = (unsigned int)r, up;
        const unsigned int r_0 = rest;
        unsigned short *const d0 = (unsigned short *)a.w[12] + (int)r_0 * (int)a.w[13];
        const unsigned short *const s0 = (const unsigned short *)a.w[15] + (int)r_0 * (int)a.w[16];
        float part2[8];
#pragma unroll
        for (int j = 0; j < 8; j++)
            part2[j] = -0.0f;
        {
        int begin = 0;
        const int end = (int)count;
#pragma unroll 1
        for (; begin <= end - 256; begin += 256) {
        const int at = (int)first + begin + lane * 8;
        const unsigned short *const ps0 = s0 + at;
        struct wf_vec_u32_4 xs0[4];
#pragma unroll
        for (int u = 0; u < 32; u++) {
        const int g = u / 8, j = u % 8, e = begin + 64 * g + lane * 8 + j;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        if (j == 0)
            xs0[g] = *(const struct wf_vec_u32_4 *)(ps0 + 64 * g);
        }
#pragma unroll
        for (int u = 0; u < 32; u++) {
        const int g = u / 8, j = u % 8, e = begin + 64 * g + lane * 8 + j;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        const unsigned short x0 = (unsigned short)(xs0[g].v[j / 2] >> j % 2 * 16);
        const unsigned int v1 = (unsigned int)x0;
        const unsigned int v2 = v1 << 16;
        const float v3 = wf_f32(v2);
        part2[j] = part2[j] + v3;
        }
        }
#pragma unroll 1
        for (; begin <= end - 1; begin += 128) {
        const int left = end - begin - lane * 8;
        const int at = (int)first + begin + lane * 8;
        const unsigned short *const ps0 = s0 + at;
        struct wf_vec_u32_4 xs0[2] = {{{0}}};
#pragma unroll
        for (int u = 0; u < 16; u++) {
        const int g = u / 8, j = u % 8, e = begin + 64 * g + lane * 8 + j;
        const int in = (64 * g + j < left), any = 64 * g < left, all = (64 * g + 8 <= left);
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        if (any && j == 0)
            xs0[g] = *(const struct wf_vec_u32_4 *)(ps0 + 64 * g);
        }
#pragma unroll
        for (int u = 0; u < 16; u++) {
        const int g = u / 8, j = u % 8, e = begin + 64 * g + lane * 8 + j;
        const int in = (64 * g + j < left), any = 64 * g < left, all = (64 * g + 8 <= left);
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        const unsigned short x0 = (unsigned short)(xs0[g].v[j / 2] >> j % 2 * 16);
        const unsigned int v1 = (unsigned int)x0;
        const unsigned int v2 = v1 << 16;
        const float v3 = wf_f32(v2);
        if (in) {
        part2[j] = part2[j] + v3;
        }
        }
        }
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
#pragma unroll
        for (int h = (8) / 2; h >= 1; h /= 2) {
        const float other = (float)__shfl_down_sync(0xFFFFFFFFu, (float)part2[j], h, 8);
        part2[j] = part2[j] + other;
        }
        }
        part2[0] = part2[0] + part2[4];
        part2[1] = part2[1] + part2[5];
        part2[2] = part2[2] + part2[6];
        part2[3] = part2[3] + part2[7];
        part2[0] = part2[0] + part2[2];
        part2[1] = part2[1] + part2[3];
        part2[0] = part2[0] + part2[1];
        float lo2 = part2[0];
        lo2 = (float)__shfl_sync(0xFFFFFFFFu, (float)lo2, 0, 8);
        if (active && lane == 0)
            *(float *)((unsigned long long *)a.w[5] + (0 * rows + r) * blocks + block) = lo2;
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
        const unsigned long long *part = (const unsigned long long *)a.w[5] + (0 * rows + r) * blocks;
        float low = -0.0f, high = low, lo2 = low, hi2 = low;
        for (long long super = 0; super < blocks; super += 4096) {
        lo2 = hi2 = -0.0f;
        const long long last = super + 4096 < blocks ? super + 4096 : blocks;
        for (long long i = super + lane, half = 0; i < last; i += 32, half ^= 1) {
        const float value = *(const float *)(part + i);
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
