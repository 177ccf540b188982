#ifndef WF_CALLS
#define WF_CALLS
WF_DEVICE float wf_gelu_quotient(float n, float d)
{
#ifdef __CUDA_ARCH__
        float y;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(d));
        y = fmaf(y, fmaf(-d, y, 1.0f), y);
        const float q = n * y;
        return fmaf(fmaf(-d, q, n), y, q);
#else
        return n / d;
#endif
}
WF_DEVICE unsigned short wf_bf16_of_f32(float x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        unsigned short r;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
        return r;
#else
        const unsigned int v1 = wf_u32(x);
        const unsigned int v3 = (unsigned int)(v1 & (unsigned int)0x7FFFFFFFu);
        const unsigned char v5 = v3 > (unsigned int)0x7F800000u;
        const unsigned int v6 = v1 >> 16;
        const unsigned int v8 = (unsigned int)(v6 | (unsigned int)0x40u);
        const unsigned int v10 = (unsigned int)((unsigned int)v1 + (unsigned int)(unsigned int)0x7FFFu);
        const unsigned int v12 = (unsigned int)(v6 & (unsigned int)0x1u);
        const unsigned int v13 = (unsigned int)((unsigned int)v10 + (unsigned int)v12);
        const unsigned int v14 = v13 >> 16;
        const unsigned int v15 = v5 ? v8 : v14;
        const unsigned short v16 = (unsigned short)v15;
        return v16;
#endif
}
WF_DEVICE unsigned short wf_f16_of_f32(float x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 530
        unsigned short r;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
        return r;
#else
        const unsigned int v1 = wf_u32(x);
        const unsigned int v3 = (unsigned int)(v1 & (unsigned int)0x80000000u);
        const unsigned int v4 = (unsigned int)(v1 ^ v3);
        const unsigned char v6 = v4 >= (unsigned int)0x47800000u;
        const unsigned char v8 = v4 > (unsigned int)0x7F800000u;
        const unsigned int v11 = v8 ? (unsigned int)0x7E00u : (unsigned int)0x7C00u;
        const unsigned char v13 = v4 < (unsigned int)0x38800000u;
        const float v14 = wf_f32(v4);
        const float v16 = wf_f32((unsigned int)0x3F000000u);
        const float v17 = v14 + v16;
        const unsigned int v18 = wf_u32(v17);
        const unsigned int v19 = (unsigned int)((unsigned int)v18 - (unsigned int)(unsigned int)0x3F000000u);
        const unsigned int v21 = (unsigned int)((unsigned int)v4 + (unsigned int)(unsigned int)0xC8000FFFu);
        const unsigned int v22 = v4 >> 13;
        const unsigned int v24 = (unsigned int)(v22 & (unsigned int)0x1u);
        const unsigned int v25 = (unsigned int)((unsigned int)v21 + (unsigned int)v24);
        const unsigned int v26 = v25 >> 13;
        const unsigned int v27 = v13 ? v19 : v26;
        const unsigned int v28 = v6 ? v11 : v27;
        const unsigned int v29 = v3 >> 16;
        const unsigned int v30 = (unsigned int)(v28 | v29);
        const unsigned short v31 = (unsigned short)v30;
        return v31;
#endif
}
WF_DEVICE float wf_f32_of_f16(unsigned short x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 530
        float r;
        asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
        return r;
#else
        const unsigned int v1 = (unsigned int)x;
        const unsigned int v3 = (unsigned int)(v1 & (unsigned int)0x7FFFu);
        const unsigned int v4 = v3 << 13;
        const unsigned int v6 = (unsigned int)(v4 & (unsigned int)0xF800000u);
        const unsigned char v7 = v6 == (unsigned int)0xF800000u;
        const unsigned int v9 = (unsigned int)((unsigned int)v4 + (unsigned int)(unsigned int)0x38000000u);
        const unsigned int v10 = (unsigned int)((unsigned int)v9 + (unsigned int)(unsigned int)0x38000000u);
        const unsigned char v12 = v6 == (unsigned int)0x0u;
        const unsigned int v14 = (unsigned int)((unsigned int)v9 + (unsigned int)(unsigned int)0x800000u);
        const float v15 = wf_f32(v14);
        const float v17 = wf_f32((unsigned int)0x38800000u);
        const float v18 = v15 - v17;
        const unsigned int v19 = wf_u32(v18);
        const unsigned int v20 = v12 ? v19 : v9;
        const unsigned int v21 = v7 ? v10 : v20;
        const unsigned int v23 = (unsigned int)(v1 & (unsigned int)0x8000u);
        const unsigned int v24 = v23 << 16;
        const unsigned int v25 = (unsigned int)(v21 | v24);
        const float v26 = wf_f32(v25);
        return v26;
#endif
}
WF_DEVICE float wf_bf16_rounded(float x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        float r;
        asm("{.reg .b32 p; cvt.rn.bf16x2.f32 p, %1, %2; mov.b32 %0, p;}" : "=f"(r) : "f"(x), "f"(0.0f));
        return r;
#else
        const unsigned int v1 = wf_u32(x);
        const unsigned int v3 = (unsigned int)(v1 & (unsigned int)0x7FFFFFFFu);
        const unsigned char v5 = v3 > (unsigned int)0x7F800000u;
        const unsigned int v6 = v1 >> 16;
        const unsigned int v8 = (unsigned int)(v6 | (unsigned int)0x40u);
        const unsigned int v10 = (unsigned int)((unsigned int)v1 + (unsigned int)(unsigned int)0x7FFFu);
        const unsigned int v12 = (unsigned int)(v6 & (unsigned int)0x1u);
        const unsigned int v13 = (unsigned int)((unsigned int)v10 + (unsigned int)v12);
        const unsigned int v14 = v13 >> 16;
        const unsigned int v15 = v5 ? v8 : v14;
        const unsigned short v16 = (unsigned short)v15;
        const unsigned int v17 = (unsigned int)v16;
        const unsigned int v18 = v17 << 16;
        const float v19 = wf_f32(v18);
        return v19;
#endif
}
WF_DEVICE float wf_f16_rounded(float x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        float r;
        asm("{.reg .b16 l, h; .reg .b32 p; cvt.rn.f16x2.f32 p, %2, %1; mov.b32 {l, h}, p; cvt.f32.f16 %0, l;}" : "=f"(r) : "f"(x), "f"(0.0f));
        return r;
#else
        const unsigned int v1 = wf_u32(x);
        const unsigned int v3 = (unsigned int)(v1 & (unsigned int)0x80000000u);
        const unsigned int v4 = (unsigned int)(v1 ^ v3);
        const unsigned char v6 = v4 >= (unsigned int)0x47800000u;
        const unsigned char v8 = v4 > (unsigned int)0x7F800000u;
        const unsigned int v11 = v8 ? (unsigned int)0x7E00u : (unsigned int)0x7C00u;
        const unsigned char v13 = v4 < (unsigned int)0x38800000u;
        const float v14 = wf_f32(v4);
        const float v16 = wf_f32((unsigned int)0x3F000000u);
        const float v17 = v14 + v16;
        const unsigned int v18 = wf_u32(v17);
        const unsigned int v19 = (unsigned int)((unsigned int)v18 - (unsigned int)(unsigned int)0x3F000000u);
        const unsigned int v21 = (unsigned int)((unsigned int)v4 + (unsigned int)(unsigned int)0xC8000FFFu);
        const unsigned int v22 = v4 >> 13;
        const unsigned int v24 = (unsigned int)(v22 & (unsigned int)0x1u);
        const unsigned int v25 = (unsigned int)((unsigned int)v21 + (unsigned int)v24);
        const unsigned int v26 = v25 >> 13;
        const unsigned int v27 = v13 ? v19 : v26;
        const unsigned int v28 = v6 ? v11 : v27;
        const unsigned int v29 = v3 >> 16;
        const unsigned int v30 = (unsigned int)(v28 | v29);
        const unsigned short v31 = (unsigned short)v30;
        const unsigned int v32 = (unsigned int)v31;
        const unsigned int v34 = (unsigned int)(v32 & (unsigned int)0x7FFFu);
        const unsigned int v35 = v34 << 13;
        const unsigned int v37 = (unsigned int)(v35 & (unsigned int)0xF800000u);
        const unsigned char v38 = v37 == (unsigned int)0xF800000u;
        const unsigned int v40 = (unsigned int)((unsigned int)v35 + (unsigned int)(unsigned int)0x38000000u);
        const unsigned int v41 = (unsigned int)((unsigned int)v40 + (unsigned int)(unsigned int)0x38000000u);
        const unsigned char v43 = v37 == (unsigned int)0x0u;
        const unsigned int v45 = (unsigned int)((unsigned int)v40 + (unsigned int)(unsigned int)0x800000u);
        const float v46 = wf_f32(v45);
        const float v47 = wf_f32((unsigned int)0x38800000u);
        const float v48 = v46 - v47;
        const unsigned int v49 = wf_u32(v48);
        const unsigned int v50 = v43 ? v49 : v40;
        const unsigned int v51 = v38 ? v41 : v50;
        const unsigned int v53 = (unsigned int)(v32 & (unsigned int)0x8000u);
        const unsigned int v54 = v53 << 16;
        const unsigned int v55 = (unsigned int)(v51 | v54);
        const float v56 = wf_f32(v55);
        return v56;
#endif
}
#endif
#ifndef WF_WORDS_4
#define WF_WORDS_4
struct wf_words_4 { unsigned long long w[4]; };
#endif
#ifndef WF_VEC_u16_8
#define WF_VEC_u16_8
struct __align__(16) wf_vec_u16_8 { unsigned short v[8]; };
#endif
#ifndef WF_VEC_u16_8
#define WF_VEC_u16_8
struct __align__(16) wf_vec_u16_8 { unsigned short v[8]; };
#endif
#ifndef WF_VEC_u32_4
#define WF_VEC_u32_4
struct __align__(16) wf_vec_u32_4 { unsigned int v[4]; };
#endif
WF_EXTERN __global__ void kernel(const struct wf_words_4 a)
{
    WF_BEGIN
    unsigned short *d0 = (unsigned short *)a.w[1];
    unsigned short *d1 = (unsigned short *)a.w[2];
    const unsigned short *s0 = (const unsigned short *)a.w[3];
    const unsigned int n = (unsigned int)a.w[0], step = (unsigned int)gridDim.x * blockDim.x;
    for (unsigned int i = (unsigned int)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        unsigned int rest = i, up;
        const unsigned int i0 = rest;
        const int o0 = 0 + (int)i0 * 8;
        const struct wf_vec_u32_4 y0 = *(const struct wf_vec_u32_4 *)(s0 + o0);
        struct wf_vec_u16_8 z0;
        struct wf_vec_u16_8 z1;
#pragma unroll
        for (int j = 0; j < 8; j++) {
        const unsigned short x0 = (unsigned short)(y0.v[j / 2] >> j % 2 * 16);
        const float v26 = wf_f32_of_f16(x0);
        const float v27 = -v26;
        const unsigned short v57 = wf_f16_of_f32(v27);
        const unsigned short v69 = wf_bf16_of_f32(v27);
        z0.v[j] = v57;
        z1.v[j] = v69;
        }
        *(struct wf_vec_u16_8 *)(d0 + o0) = z0;
        *(struct wf_vec_u16_8 *)(d1 + o0) = z1;
    }
}
