WF_EXTERN __global__ void kernel(const struct wf_words_4 a)
{
    WF_BEGIN
    unsigned short *d0 = (unsigned short *)a.w[1];
    const unsigned short *s0 = (const unsigned short *)a.w[2];
    const unsigned short *s1 = (const unsigned short *)a.w[3];
    const unsigned int n = (unsigned int)a.w[0], step = (unsigned int)gridDim.x * blockDim.x;
    for (unsigned int i = (unsigned int)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        unsigned int rest = i, up;
        const unsigned int i0 = rest;
        const int o0 = 0 + (int)i0 * 8;
        const struct wf_vec_u32_4 y0 = *(const struct wf_vec_u32_4 *)(s0 + o0);
        const struct wf_vec_u32_4 y1 = *(const struct wf_vec_u32_4 *)(s1 + o0);
        struct wf_vec_u16_8 z0;
#pragma unroll
        for (int j = 0; j < 8; j++) {
        const unsigned short x0 = (unsigned short)(y0.v[j / 2] >> j % 2 * 16);
        const unsigned short x1 = (unsigned short)(y1.v[j / 2] >> j % 2 * 16);
        const unsigned int v2 = (unsigned int)x0;
        const unsigned int v3 = v2 << 16;
        const float v4 = wf_f32(v3);
        const unsigned int v5 = (unsigned int)x1;
        const unsigned int v6 = v5 << 16;
        const float v7 = wf_f32(v6);
        const float v8 = v4 + v7;
        const unsigned char v10 = v8 < wf_f32(0x80000000u);
        const float v11 = v10 ? wf_f32(0x80000000u) : v8;
        const float v12 = fabsf(v8);
        const unsigned char v14 = v12 > wf_f32(0x41680000u);
        const float v15 = v14 ? wf_f32(0x41680000u) : v12;
        const float v17 = v15 * wf_f32(0xBF000000u);
        const float v19 = v15 + wf_f32(0x40480000u);
        const float v20 = wf_gelu_quotient(v17, v19);
        const float v21 = -v17;
        const float v22 = fmaf(v15, v20, v21);
        const float v23 = v22 * v22;
        const float v26 = fmaf(v22, wf_f32(0xBB56B944u), wf_f32(0x3C8CB489u));
        const float v28 = fmaf(v22, v26, wf_f32(0xBCE939E6u));
        const float v30 = fmaf(v22, v28, wf_f32(0x3C3B7CA2u));
        const float v32 = fmaf(v22, v30, wf_f32(0xBC3662D9u));
        const float v34 = fmaf(v22, v32, wf_f32(0x3D1AAFF5u));
        const float v36 = fmaf(v22, v34, wf_f32(0x3D9550BBu));
        const float v38 = fmaf(v22, v36, wf_f32(0xBDB7B5E9u));
        const float v41 = v17 * v15;
        const float v42 = fmaf(v22, wf_f32(0xBF73B646u), v41);
        const float v45 = fmaf(v42, wf_f32(0x3FB8AA3Bu), wf_f32(0x4B4000BEu));
        const float v46 = v45 - wf_f32(0x4B4000BEu);
        const float v48 = fmaf(v46, wf_f32(0xBF317218u), v41);
        const float v49 = fmaf(v22, wf_f32(0xBF74AD53u), v48);
        const float v50 = fmaf(v23, v38, v49);
        const float v52 = -v41;
        const float v53 = fmaf(v17, v15, v52);
        const float v54 = fmaf(v46, wf_f32(0x3102E308u), v53);
        const float v55 = v50 + v54;
        const float v56 = v55 * v55;
        const float v59 = fmaf(v55, wf_f32(0x3AB559A8u), wf_f32(0x3C091656u));
        const float v61 = fmaf(v55, v59, wf_f32(0x3D2AABCEu));
        const float v63 = fmaf(v55, v61, wf_f32(0x3E2AAA55u));
        const float v65 = fmaf(v55, v63, wf_f32(0x3EFFFFFFu));
        const float v66 = fmaf(v56, v65, v55);
        const float v67 = fmaf(v22, v66, v22);
        const unsigned int v68 = wf_u32(v45);
        const unsigned int v69 = v68 << 23;
        const float v70 = wf_f32(v69);
        const float v71 = v67 * v70;
        const float v73 = v71 * wf_f32(0x20000000u);
        const float v74 = v11 - v73;
        const float v75 = v74 / v7;
        const unsigned short v91 = wf_bf16_of_f32(v75);
        z0.v[j] = v91;
        }
        *(struct wf_vec_u16_8 *)(d0 + o0) = z0;
    }
}
