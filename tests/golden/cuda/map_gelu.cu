WF_EXTERN __global__ void kernel(const struct wf_words_4 a)
{
    unsigned short *d0 = (unsigned short *)a.w[1];
    const unsigned short *s0 = (const unsigned short *)a.w[2];
    const unsigned short *s1 = (const unsigned short *)a.w[3];
    const unsigned int n = (unsigned int)a.w[0], step = (unsigned int)gridDim.x * blockDim.x;
    for (unsigned int i = (unsigned int)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        unsigned int rest = i, up;
        const unsigned int i0 = rest;
        const int o0 = 0 + (int)i0 * 8;
        const struct wf_vec_u16_8 y0 = *(const struct wf_vec_u16_8 *)(s0 + o0);
        const struct wf_vec_u16_8 y1 = *(const struct wf_vec_u16_8 *)(s1 + o0);
        struct wf_vec_u16_8 z0;
#pragma unroll
        for (int j = 0; j < 8; j++) {
        const unsigned short x0 = y0.v[j];
        const unsigned short x1 = y1.v[j];
        const unsigned int v2 = (unsigned int)x0;
        const unsigned int v3 = v2 << 16;
        const float v4 = wf_f32(v3);
        const unsigned int v5 = (unsigned int)x1;
        const unsigned int v6 = v5 << 16;
        const float v7 = wf_f32(v6);
        const float v8 = v4 + v7;
        const unsigned char v10 = v8 < wf_f32(0x00000000u);
        const float v12 = v10 ? wf_f32(0x80000000u) : v8;
        const float v13 = fabsf(v8);
        const unsigned char v15 = v13 > wf_f32(0x41680000u);
        const float v16 = v15 ? wf_f32(0x41680000u) : v13;
        const float v18 = v16 * wf_f32(0xBE980000u);
        const float v20 = v16 * wf_f32(0x3F000000u);
        const float v23 = fmaf(v16, wf_f32(0x3E980000u), wf_f32(0x3F800000u));
        const float v24 = wf_gelu_quotient(v20, v23);
        const float v25 = fmaf(v18, v24, v20);
        const float v26 = v25 * v25;
        const float v29 = fmaf(v25, wf_f32(0x3A368AFEu), wf_f32(0xBBC3B935u));
        const float v31 = fmaf(v25, v29, wf_f32(0x3C99ACA4u));
        const float v33 = fmaf(v25, v31, wf_f32(0xBCC664B7u));
        const float v35 = fmaf(v25, v33, wf_f32(0x3C239B5Du));
        const float v37 = fmaf(v25, v35, wf_f32(0xBC7C4A7Cu));
        const float v39 = fmaf(v25, v37, wf_f32(0x3CDBBCBBu));
        const float v41 = fmaf(v25, v39, wf_f32(0x3DA219A4u));
        const float v43 = fmaf(v25, v41, wf_f32(0xBD35F82Eu));
        const float v45 = v20 * v16;
        const float v46 = -v45;
        const float v47 = fmaf(v25, wf_f32(0xBF804231u), v46);
        const float v48 = fmaf(v26, v43, v47);
        const float v51 = fmaf(v48, wf_f32(0x3FB8AA3Bu), wf_f32(0x4B4000FEu));
        const float v52 = v51 - wf_f32(0x4B4000FEu);
        const float v54 = fmaf(v52, wf_f32(0xBF317218u), v46);
        const float v55 = fmaf(v25, wf_f32(0xBF804231u), v54);
        const float v56 = fmaf(v26, v43, v55);
        const float v58 = fmaf(v20, v16, v46);
        const float v59 = -v58;
        const float v60 = fmaf(v52, wf_f32(0x3102E308u), v59);
        const float v61 = v56 + v60;
        const float v62 = v61 * v61;
        const float v65 = fmaf(v61, wf_f32(0x3AB559A8u), wf_f32(0x3C091656u));
        const float v67 = fmaf(v61, v65, wf_f32(0x3D2AABCEu));
        const float v69 = fmaf(v61, v67, wf_f32(0x3E2AAA55u));
        const float v71 = fmaf(v61, v69, wf_f32(0x3EFFFFFFu));
        const float v72 = fmaf(v62, v71, v61);
        const float v73 = fmaf(v25, v72, v25);
        const unsigned int v74 = wf_u32(v51);
        const unsigned int v75 = v74 >> 1;
        const unsigned int v76 = v75 << 23;
        const float v77 = wf_f32(v76);
        const float v78 = v73 * v77;
        const unsigned int v79 = (unsigned int)((unsigned int)v74 - (unsigned int)v75);
        const unsigned int v80 = v79 << 23;
        const float v81 = wf_f32(v80);
        const float v82 = v78 * v81;
        const float v83 = v12 - v82;
        const float v84 = v83 / v7;
        const unsigned short v100 = wf_bf16_of_f32(v84);
        z0.v[j] = v100;
        }
        *(struct wf_vec_u16_8 *)(d0 + o0) = z0;
    }
}
