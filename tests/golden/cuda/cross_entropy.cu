WF_EXTERN __global__ void __launch_bounds__(256, 2) kernel(const struct wf_words_24 a)
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
        float *const d0 = (float *)a.w[12] + (int)r_0 * (int)a.w[13];
        float *const d1 = (float *)a.w[15] + (int)r_0 * (int)a.w[16];
        const float *const s0 = (const float *)a.w[18] + (int)r_0 * (int)a.w[19];
        const long long *const s1 = (const long long *)a.w[21] + (int)r_0 * (int)a.w[22];
        long long t1 = 0;
        float t8 = 0;
        float t2 = 0;
        float t5 = 0;
        float t7 = 0;
        {
        const long long x1 = s1[0];
        t1 = x1;
        }
        t8 = 0;
        if ((long long)t1 >= 0 && (long long)t1 < n) {
        const long long c = (long long)t1;
        const unsigned int c_0 = (unsigned int)c;
        t8 = s0[(int)c_0 * (int)a.w[20]];
        }
        {
        const int first = 0, count = (int)n;
        float lo2 = wf_f32(0xFF800000u), hi2 = lo2;
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
        xs0[u] = s0[(int)c_0 * (int)a.w[20]];
        }
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int e = begin + 32 * u + lane;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const int half = u & 1;
        const unsigned int c_0 = (unsigned int)c;
        const float x0 = xs0[u];
        if (half) {
            hi2 = wf_max_f32(hi2, x0);
        } else {
            lo2 = wf_max_f32(lo2, x0);
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
        xs0[u] = s0[(int)c_0 * (int)a.w[20]];
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
            hi2 = wf_max_f32(hi2, x0);
        } else {
            lo2 = wf_max_f32(lo2, x0);
        }
        }
        }
        }
        lo2 = wf_max_f32(lo2, hi2);
#pragma unroll
        for (int h = (width) / 2; h >= 1; h /= 2) {
        const float other = (float)__shfl_down_sync(0xFFFFFFFFu, (float)lo2, h, width);
        lo2 = wf_max_f32(lo2, other);
        }
        lo2 = (float)__shfl_sync(0xFFFFFFFFu, (float)lo2, 0, width);
        t2 = n ? lo2 : 0;
        }
        {
        const int first = 0, count = (int)n;
        float lo5 = -0.0f, hi5 = lo5;
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
        xs0[u] = s0[(int)c_0 * (int)a.w[20]];
        }
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int e = begin + 32 * u + lane;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const int half = u & 1;
        const unsigned int c_0 = (unsigned int)c;
        const float x0 = xs0[u];
        const float v2 = x0 - t2;
        const float v3 = fabsf(v2);
        const unsigned char v5 = v3 > wf_f32(0x42D00000u);
        const float v6 = v5 ? wf_f32(0x42D00000u) : v3;
        const float v7 = -v6;
        const float v10 = fmaf(v7, wf_f32(0x3FB8AA3Bu), wf_f32(0x4B4000BEu));
        const float v11 = v10 - wf_f32(0x4B4000BEu);
        const float v13 = fmaf(v11, wf_f32(0xBF317218u), v7);
        const float v15 = v11 * wf_f32(0x3102E308u);
        const float v16 = v13 + v15;
        const float v19 = fmaf(v16, wf_f32(0x3AB559A8u), wf_f32(0x3C091656u));
        const float v21 = fmaf(v16, v19, wf_f32(0x3D2AABCEu));
        const float v23 = fmaf(v16, v21, wf_f32(0x3E2AAA55u));
        const float v25 = fmaf(v16, v23, wf_f32(0x3EFFFFFFu));
        const float v27 = fmaf(v16, v25, wf_f32(0x3F800000u));
        const float v28 = fmaf(v16, v27, wf_f32(0x3F800000u));
        const unsigned int v29 = wf_u32(v10);
        const unsigned int v30 = v29 << 23;
        const float v31 = wf_f32(v30);
        const float v32 = v28 * v31;
        const float v34 = v32 * wf_f32(0x20000000u);
        if (half) {
            hi5 = hi5 + v34;
        } else {
            lo5 = lo5 + v34;
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
        xs0[u] = s0[(int)c_0 * (int)a.w[20]];
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
        const float v2 = x0 - t2;
        const float v3 = fabsf(v2);
        const unsigned char v5 = v3 > wf_f32(0x42D00000u);
        const float v6 = v5 ? wf_f32(0x42D00000u) : v3;
        const float v7 = -v6;
        const float v10 = fmaf(v7, wf_f32(0x3FB8AA3Bu), wf_f32(0x4B4000BEu));
        const float v11 = v10 - wf_f32(0x4B4000BEu);
        const float v13 = fmaf(v11, wf_f32(0xBF317218u), v7);
        const float v15 = v11 * wf_f32(0x3102E308u);
        const float v16 = v13 + v15;
        const float v19 = fmaf(v16, wf_f32(0x3AB559A8u), wf_f32(0x3C091656u));
        const float v21 = fmaf(v16, v19, wf_f32(0x3D2AABCEu));
        const float v23 = fmaf(v16, v21, wf_f32(0x3E2AAA55u));
        const float v25 = fmaf(v16, v23, wf_f32(0x3EFFFFFFu));
        const float v27 = fmaf(v16, v25, wf_f32(0x3F800000u));
        const float v28 = fmaf(v16, v27, wf_f32(0x3F800000u));
        const unsigned int v29 = wf_u32(v10);
        const unsigned int v30 = v29 << 23;
        const float v31 = wf_f32(v30);
        const float v32 = v28 * v31;
        const float v34 = v32 * wf_f32(0x20000000u);
        if (half) {
            hi5 = hi5 + v34;
        } else {
            lo5 = lo5 + v34;
        }
        }
        }
        }
        lo5 = lo5 + hi5;
#pragma unroll
        for (int h = (width) / 2; h >= 1; h /= 2) {
        const float other = (float)__shfl_down_sync(0xFFFFFFFFu, (float)lo5, h, width);
        lo5 = lo5 + other;
        }
        lo5 = (float)__shfl_sync(0xFFFFFFFFu, (float)lo5, 0, width);
        t5 = n ? lo5 : 0;
        }
        {
        const unsigned char v4 = t5 <= wf_f32(0x00000000u);
        const unsigned char v5 = t5 == wf_f32(0x00000000u);
        const float v7 = -wf_f32(0x7F800000u);
        const float v9 = v5 ? v7 : wf_f32(0x7FC00000u);
        const unsigned char v10 = t5 < wf_f32(0x7F800000u);
        const unsigned char v12 = t5 < wf_f32(0x00800000u);
        const float v14 = t5 * wf_f32(0x4B000000u);
        const float v15 = v12 ? v14 : t5;
        const unsigned int v16 = wf_u32(v15);
        const unsigned int v18 = (unsigned int)((unsigned int)v16 - (unsigned int)(unsigned int)0x3F3504F3u);
        const unsigned int v19 = (unsigned int)((int)v18 >> 23);
        const float v20 = (float)(int)v19;
        const float v22 = v20 - wf_f32(0x41B80000u);
        const float v23 = v12 ? v22 : v20;
        const unsigned int v26 = (unsigned int)(v18 & (unsigned int)0x7FFFFFu);
        const unsigned int v27 = (unsigned int)((unsigned int)v26 + (unsigned int)(unsigned int)0x3F3504F3u);
        const float v28 = wf_f32(v27);
        const float v30 = v28 - wf_f32(0x3F800000u);
        const float v32 = v30 * v30;
        const float v35 = fmaf(v30, wf_f32(0x3D8D44B4u), wf_f32(0xBDF01ADAu));
        const float v37 = fmaf(v30, v35, wf_f32(0x3DF2675Du));
        const float v39 = fmaf(v30, v37, wf_f32(0xBDFDBB03u));
        const float v41 = fmaf(v30, v39, wf_f32(0x3E11A99Cu));
        const float v43 = fmaf(v30, v41, wf_f32(0xBE2AB24Au));
        const float v45 = fmaf(v30, v43, wf_f32(0x3E4CD1E2u));
        const float v47 = fmaf(v30, v45, wf_f32(0xBE7FFFE8u));
        const float v49 = fmaf(v30, v47, wf_f32(0x3EAAAAA4u));
        const float v51 = fmaf(v30, v49, wf_f32(0xBF000000u));
        const float v52 = v32 * v51;
        const float v53 = fmaf(v23, wf_f32(0xB102E308u), v52);
        const float v54 = v30 + v53;
        const float v55 = fmaf(v23, wf_f32(0x3F317218u), v54);
        const float v56 = v10 ? v55 : t5;
        const float v57 = v4 ? v9 : v56;
        const float v58 = t2 + v57;
        const float v59 = v58 - t8;
        const float v60 = fabsf(v58);
        const float v62 = wf_f32((unsigned int)0x7F800000u);
        const unsigned char v63 = v60 < v62;
        const long long v66 = v63 ? (long long)0xFFFFFFFFFFFFFFFFull : (long long)0x0ull;
        t7 = v58;
        if (active && lane == 0)
            d0[0] = v59;
        if (active && lane == 0)
            {
        if (v66 != -1)
            atomicMin((unsigned long long *)a.w[3], (unsigned long long)v66);
        }
        }
        {
        const int first = 0, count = (int)n;
        if (active) {
        int begin = 0;
        const int end = (int)count;
        const long long x1 = s1[0];
#pragma unroll 1
        for (; begin <= end - 256; begin += 256) {
        const int at = (int)first + begin + lane * 1;
        float xs0[8];
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int e = begin + 32 * u + lane;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const unsigned int c_0 = (unsigned int)c;
        xs0[u] = s0[(int)c_0 * (int)a.w[20]];
        }
#pragma unroll
        for (int u = 0; u < 8; u++) {
        const int e = begin + 32 * u + lane;
        const unsigned int c = (unsigned int)first + (unsigned int)e;
        const int half = u & 1;
        const unsigned int c_0 = (unsigned int)c;
        const float x0 = xs0[u];
        const long long number = c;
        const float v4 = x0 - t7;
        const unsigned char v6 = v4 < wf_f32(0xC2D00000u);
        const float v7 = v6 ? wf_f32(0xC2D00000u) : v4;
        const unsigned char v9 = v7 > wf_f32(0x42B20000u);
        const float v10 = v9 ? wf_f32(0x42B20000u) : v7;
        const float v13 = fmaf(v10, wf_f32(0x3FB8AA3Bu), wf_f32(0x4B4000FEu));
        const float v14 = v13 - wf_f32(0x4B4000FEu);
        const float v16 = fmaf(v14, wf_f32(0xBF317218u), v10);
        const float v19 = fmaf(v14, wf_f32(0x3102E308u), wf_f32(0x80000000u));
        const float v20 = v16 + v19;
        const float v23 = fmaf(v20, wf_f32(0x3AB559A8u), wf_f32(0x3C091656u));
        const float v25 = fmaf(v20, v23, wf_f32(0x3D2AABCEu));
        const float v27 = fmaf(v20, v25, wf_f32(0x3E2AAA55u));
        const float v29 = fmaf(v20, v27, wf_f32(0x3EFFFFFFu));
        const float v31 = fmaf(v20, v29, wf_f32(0x3F800000u));
        const float v32 = fmaf(v20, v31, wf_f32(0x3F800000u));
        const unsigned int v33 = wf_u32(v13);
        const unsigned int v34 = v33 >> 1;
        const unsigned int v35 = v34 << 23;
        const float v36 = wf_f32(v35);
        const float v37 = v32 * v36;
        const unsigned int v38 = (unsigned int)((unsigned int)v33 - (unsigned int)v34);
        const unsigned int v39 = v38 << 23;
        const float v40 = wf_f32(v39);
        const float v41 = v37 * v40;
        const unsigned char v42 = number == x1;
        const float v43 = (float)v42;
        const float v44 = v41 - v43;
        d1[(int)c_0 * (int)a.w[17]] = v44;
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
        xs0[u] = s0[(int)c_0 * (int)a.w[20]];
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
        const long long number = c;
        const float v4 = x0 - t7;
        const unsigned char v6 = v4 < wf_f32(0xC2D00000u);
        const float v7 = v6 ? wf_f32(0xC2D00000u) : v4;
        const unsigned char v9 = v7 > wf_f32(0x42B20000u);
        const float v10 = v9 ? wf_f32(0x42B20000u) : v7;
        const float v13 = fmaf(v10, wf_f32(0x3FB8AA3Bu), wf_f32(0x4B4000FEu));
        const float v14 = v13 - wf_f32(0x4B4000FEu);
        const float v16 = fmaf(v14, wf_f32(0xBF317218u), v10);
        const float v19 = fmaf(v14, wf_f32(0x3102E308u), wf_f32(0x80000000u));
        const float v20 = v16 + v19;
        const float v23 = fmaf(v20, wf_f32(0x3AB559A8u), wf_f32(0x3C091656u));
        const float v25 = fmaf(v20, v23, wf_f32(0x3D2AABCEu));
        const float v27 = fmaf(v20, v25, wf_f32(0x3E2AAA55u));
        const float v29 = fmaf(v20, v27, wf_f32(0x3EFFFFFFu));
        const float v31 = fmaf(v20, v29, wf_f32(0x3F800000u));
        const float v32 = fmaf(v20, v31, wf_f32(0x3F800000u));
        const unsigned int v33 = wf_u32(v13);
        const unsigned int v34 = v33 >> 1;
        const unsigned int v35 = v34 << 23;
        const float v36 = wf_f32(v35);
        const float v37 = v32 * v36;
        const unsigned int v38 = (unsigned int)((unsigned int)v33 - (unsigned int)v34);
        const unsigned int v39 = v38 << 23;
        const float v40 = wf_f32(v39);
        const float v41 = v37 * v40;
        const unsigned char v42 = number == x1;
        const float v43 = (float)v42;
        const float v44 = v41 - v43;
        d1[(int)c_0 * (int)a.w[17]] = v44;
        }
        }
        }
        }
    }
}
