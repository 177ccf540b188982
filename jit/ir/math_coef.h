/*
 * jit/ir/math_coef.h -- polynomial coefficients of the math bodies; written by tools/math_coeffs.py.
 *
 * POLY_name(z) evaluates one minimax polynomial by Horner's rule; z must be a plain variable. Where
 * there are POLY_name_H and POLY_name_L the polynomial is H + L + z POLY_name(z), where there is H alone
 * H + z POLY_name(z). The comment gives the fitted interval and the weighted error after rounding the coefficients.
 */
#ifndef JIT_IR_MATH_COEF_H
#define JIT_IR_MATH_COEF_H
/* clang-format off */

/* exp_f32: 5 coefficients on [-0.3467, 0.3467], error 2^-26.1 */
#define POLY_exp_f32(z)                                                                            \
    FMA(z, FMA(z, FMA(z, FMA(z, KF32(0x1.6ab35p-10f), KF32(0x1.122cacp-7f)),                       \
    KF32(0x1.55579cp-5f)), KF32(0x1.5554aap-3f)), KF32(0x1.fffffep-2f))

/* exp2_f32: 6 coefficients on [-0.5001, 0.5001], error 2^-27.5 */
#define POLY_exp2_f32(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF32(0x1.4bf3dep-13f), KF32(0x1.5fbcep-10f)),               \
    KF32(0x1.3b21bap-7f)), KF32(0x1.c6ada8p-5f)), KF32(0x1.ebfbe6p-3f)), KF32(0x1.62e432p-1f))

/* log_f32: 9 coefficients on [-0.292894, 0.414215], error 2^-29.9 */
#define POLY_log_f32(z)                                                                            \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF32(0x1.1a8968p-4f),                  \
    KF32(-0x1.e035b4p-4f)), KF32(0x1.e4cebap-4f)), KF32(-0x1.fb7606p-4f)),                         \
    KF32(0x1.235338p-3f)), KF32(-0x1.556494p-3f)), KF32(0x1.99a3c4p-3f)),                          \
    KF32(-0x1.ffffdp-3f)), KF32(0x1.555548p-2f))

/* exp_f64: 11 coefficients on [-0.3467, 0.3467], error 2^-59.0 */
#define POLY_exp_f64(z)                                                                            \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z,                          \
    KF64(0x1.201360bae27e5p-29), KF64(0x1.af651deb5544bp-26)), KF64(0x1.27e4845292082p-22)),       \
    KF64(0x1.71ddf4e730286p-19)), KF64(0x1.a01a01c712971p-16)), KF64(0x1.a01a01b1256dep-13)),      \
    KF64(0x1.6c16c16c118afp-10)), KF64(0x1.111111110f3dap-7)), KF64(0x1.555555555555cp-5)),        \
    KF64(0x1.5555555555559p-3)), KF64(0x1p-1))

/* exp2_f64: 12 coefficients on [-0.5001, 0.5001], error 2^-59.3 */
#define POLY_exp2_f64(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z,                   \
    KF64(0x1.f8a4cf01a9237p-36), KF64(0x1.ebdd0761dbb46p-32)), KF64(0x1.e4ad4612009b3p-28)),       \
    KF64(0x1.b52389a410684p-24)), KF64(0x1.62c02a1d01997p-20)), KF64(0x1.ffcbfd261c2e1p-17)),      \
    KF64(0x1.430912f6dc53cp-13)), KF64(0x1.5d87fe7879bfep-10)), KF64(0x1.3b2ab6fba5262p-7)),       \
    KF64(0x1.c6b08d704a1c4p-5)), KF64(0x1.ebfbdff82c58ep-3)), KF64(0x1.62e42fefa39efp-1))

/* log2_f32: 10 coefficients on [-0.292894, 0.414215], error 2^-29.5 */
#define POLY_log2_f32(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF32(0x1.769286p-4f),           \
    KF32(-0x1.52ea8ap-3f)), KF32(0x1.61c7e4p-3f)), KF32(-0x1.6fdadcp-3f)),                         \
    KF32(0x1.a3ef04p-3f)), KF32(-0x1.ec621p-3f)), KF32(0x1.277fc4p-2f)),                           \
    KF32(-0x1.7154d6p-2f)), KF32(0x1.ec7086p-2f)), KF32(-0x1.715476p-1f))

/* log10_f32: 10 coefficients on [-0.292894, 0.414215], error 2^-29.1 */
#define POLY_log10_f32(z)                                                                          \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF32(0x1.266f02p-5f),           \
    KF32(-0x1.c649b4p-5f)), KF32(0x1.a31e42p-5f)), KF32(-0x1.b244fap-5f)),                         \
    KF32(0x1.f97b9cp-5f)), KF32(-0x1.28b68ap-4f)), KF32(0x1.63d484p-4f)),                          \
    KF32(-0x1.bcb69ap-4f)), KF32(0x1.287a6p-3f)), KF32(-0x1.bcb7b2p-3f))

/* powl_f32: 12 coefficients on [-0.292894, 0.414215], error 2^-33.2 */
#define POLY_powl_f32(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z,                   \
    KF64(-0x1.61a54144c7941p-4), KF64(0x1.3d23338752e3dp-3)), KF64(-0x1.4180309384699p-3)),        \
    KF64(0x1.45a32d047eb13p-3)), KF64(-0x1.6eb0369e8ff15p-3)), KF64(0x1.a615bf8adf3fap-3)),        \
    KF64(-0x1.ec8d726a2dcf9p-3)), KF64(0x1.277732fc87e57p-2)), KF64(-0x1.715435f17dcc2p-2)),       \
    KF64(0x1.ec709c0082112p-2)), KF64(-0x1.7154767ba840ep-1)), KF64(0x1.71547652ef973p0))

/* powx_f32: 7 coefficients on [-0.5001, 0.5001], error 2^-32.0 */
#define POLY_powx_f32(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF64(0x1.c045c1a0db71ap-17),                         \
    KF64(0x1.443fb2a4c231dp-13)), KF64(0x1.5dc0582781726p-10)), KF64(0x1.3b2a1bd81e0c5p-7)),       \
    KF64(0x1.c6b05511d46ddp-5)), KF64(0x1.ebfbe045890e9p-3)), KF64(0x1.62e4300ba5fdep-1))

/* sin_f32: 3 coefficients on [1e-09, 0.616866], error 2^-26.9 */
#define POLY_sin_f32(z)                                                                            \
    FMA(z, FMA(z, KF32(-0x1.9943eap-13f), KF32(0x1.11073cp-7f)), KF32(-0x1.555546p-3f))

/* cos_f32: 3 coefficients on [1e-09, 0.616866], error 2^-32.4 */
#define POLY_cos_f32(z)                                                                            \
    FMA(z, FMA(z, KF32(0x1.99eb98p-16f), KF32(-0x1.6c0c34p-10f)), KF32(0x1.55554ap-5f))

/* sin_f64: 6 coefficients on [1e-09, 0.616866], error 2^-56.3 */
#define POLY_sin_f64(z)                                                                            \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF64(0x1.5d8fcb9e1cfeap-33),                                \
    KF64(-0x1.ae5e5a7bfa053p-26)), KF64(0x1.71de3567b616ap-19)), KF64(-0x1.a01a019bfdc9p-13)),     \
    KF64(0x1.111111110f7cfp-7)), KF64(-0x1.5555555555548p-3))

/* cos_f64: 6 coefficients on [1e-09, 0.616866], error 2^-59.7 */
#define POLY_cos_f64(z)                                                                            \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF64(-0x1.8fa494eda67fbp-37),                               \
    KF64(0x1.1ee9d7abd6164p-29)), KF64(-0x1.27e4f7eab8f8cp-22)), KF64(0x1.a01a019c8441dp-16)),     \
    KF64(-0x1.6c16c16c14f91p-10)), KF64(0x1.555555555554bp-5))

/* erfs_f32: 7 coefficients on [1e-09, 0.878906], error 2^-30.0 */
#define POLY_erfs_f32(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF32(0x1.4f8e3cp-14f), KF32(-0x1.a6126cp-11f)),      \
    KF32(0x1.544aa8p-8f)), KF32(-0x1.b8012p-6f)), KF32(0x1.ce2d64p-4f)), KF32(-0x1.81274p-2f)),    \
    KF32(0x1.06eba8p-3f))

/* erfl_f32: 6 coefficients on [-0.00390625, 3.05859], error 2^-29.2 */
#define POLY_erfl_f32(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF32(0x1.1ff4d6p-12f), KF32(-0x1.6a567ap-9f)),              \
    KF32(0x1.ef7866p-7f)), KF32(-0x1.03881cp-4f)), KF32(-0x1.349ce2p0f)),                          \
    KF32(-0x1.d528fcp1f))

/* erfx_f32: 6 coefficients on [-0.5001, 0.5001], error 2^-27.9 */
#define POLY_erfx_f32(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF32(0x1.cadaacp-16f), KF32(0x1.01453ep-12f)),              \
    KF32(0x1.cdacbp-10f)), KF32(0x1.4cf66p-7f)), KF32(0x1.684718p-5f)), KF32(0x1.03e2b6p-3f))

/* atanh_f32: 4 coefficients on [1e-09, 0.0795], error 2^-29.0 */
#define POLY_atanh_f32(z)                                                                          \
    FMA(z, FMA(z, FMA(z, KF32(0x1.0bfc5cp-3f), KF32(0x1.21c4acp-3f)), KF32(0x1.99acdap-3f)),       \
    KF32(0x1.55554p-2f))

/* ncdf_f32: 11 coefficients on [-0.289474, 0.5], error 2^-27.3 */
#define POLY_ncdf_f32_H KF32(0x1.82b4bcp-3f)
#define POLY_ncdf_f32_L KF32(-0x1.af6cccp-29f)
#define POLY_ncdf_f32(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF32(-0x1.2ef774p-7f),          \
    KF32(0x1.ace39cp-6f)), KF32(0x1.6a07b4p-7f)), KF32(-0x1.aae7c6p-5f)),                          \
    KF32(-0x1.c9f0b4p-5f)), KF32(0x1.ee5072p-5f)), KF32(0x1.eec86ap-3f)),                          \
    KF32(0x1.7dfed4p-2f)), KF32(0x1.8c6dbcp-2f)), KF32(0x1.373e3cp-2f))

/* gelu_f32: 9 coefficients on [1e-09, 1.28546], error 2^-25.9 */
#define POLY_gelu_f32_H KF32(-0x1.e95aa6p-1f)
#define POLY_gelu_f32(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF32(-0x1.ad7288p-9f),                        \
    KF32(0x1.196912p-6f)), KF32(-0x1.d273ccp-6f)), KF32(0x1.76f944p-7f)),                          \
    KF32(-0x1.6cc5b2p-7f)), KF32(0x1.355feap-5f)), KF32(0x1.2aa176p-4f)),                          \
    KF32(-0x1.6f6bd2p-4f))

/* logs_f64: 7 coefficients on [1e-12, 0.0294376], error 2^-59.3 */
#define POLY_logs_f64(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF64(0x1.2f02c0c496cdap-3),                          \
    KF64(0x1.39a1ff590f2c2p-3)), KF64(0x1.74663c2d2bf34p-3)), KF64(0x1.c71c52171264dp-3)),         \
    KF64(0x1.24924941dfb6bp-2)), KF64(0x1.999999997feffp-2)), KF64(0x1.5555555555592p-1))

/* logq_f64: 8 coefficients on [1e-10, 0.0294376], error 2^-66.4 */
#define POLY_logq_f64(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF64(0x1.eb0c405a7478ap-4),                   \
    KF64(0x1.de340d9dbe2dap-4)), KF64(0x1.1120b1922091fp-3)), KF64(0x1.3b1362d28c098p-3)),         \
    KF64(0x1.745d1831e13ebp-3)), KF64(0x1.c71c71c581659p-3)), KF64(0x1.249249249302cp-2)),         \
    KF64(0x1.9999999999996p-2))

/* erfs_f64: 13 coefficients on [1e-09, 1], error 2^-56.3 */
#define POLY_erfs_f64(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z,            \
    KF64(0x1.05799993b0241p-34), KF64(-0x1.386ab867d14c2p-30)), KF64(0x1.f7a40ec851be4p-27)),      \
    KF64(-0x1.5f1d36602b712p-23)), KF64(0x1.b9def19047c96p-20)), KF64(-0x1.f4d1df38101d5p-17)),    \
    KF64(0x1.f9a321a10b3c4p-14)), KF64(-0x1.c02db3d8ec6fp-11)), KF64(0x1.565bcd0db029fp-8)),       \
    KF64(-0x1.b82ce3128499bp-6)), KF64(0x1.ce2f21a042b2p-4)), KF64(-0x1.812746b0379e6p-2)),        \
    KF64(0x1.06eba8214db69p-3))

/* erfc_f64: 22 coefficients on [-0.764706, 0.76378], error 2^-56.8 */
#define POLY_erfc_f64_H KF64(0x1.3ccda0b5d5dc2p0)
#define POLY_erfc_f64_L KF64(0x1.cebe274c51cbbp-54)
#define POLY_erfc_f64(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z,     \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF64(-0x1.7dcece2b36057p-29),                 \
    KF64(0x1.a7cfdd905bc86p-26)), KF64(0x1.7a8921f8fd077p-26)), KF64(-0x1.02556081864ddp-22)),     \
    KF64(-0x1.e4adfccd85232p-25)), KF64(0x1.d2923e2395231p-20)), KF64(-0x1.0566b6315da54p-20)),    \
    KF64(-0x1.7fca1301c3244p-17)), KF64(0x1.778b87e06d407p-16)), KF64(0x1.b13f80ca48b48p-15)),     \
    KF64(-0x1.303fa261cb6f9p-12)), KF64(0x1.33fb429deb76bp-12)), KF64(0x1.cc3a0e4d4e5cfp-10)),     \
    KF64(-0x1.3f603c518e5c6p-7)), KF64(0x1.d0b0037d92257p-6)), KF64(-0x1.e0d0fa6d76843p-5)),       \
    KF64(0x1.7a14188a9a5f8p-4)), KF64(-0x1.bda9309a2b1bap-4)), KF64(0x1.510169d0967cap-4)),        \
    KF64(0x1.d5f294815b03fp-9)), KF64(-0x1.1f367683f89a7p-3))

/* atan_f32: 9 coefficients on [1e-09, 1], error 2^-26.9 */
#define POLY_atan_f32(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF32(-0x1.d3315ep-10f),                \
    KF32(0x1.6412dp-7f)), KF32(-0x1.fd715ep-6f)), KF32(0x1.da2584p-5f)),                           \
    KF32(-0x1.580842p-4f)), KF32(0x1.c08c26p-4f)), KF32(-0x1.242084p-3f)),                         \
    KF32(0x1.9991e4p-3f)), KF32(-0x1.55553ep-2f))

/* expm1h_f32: 5 coefficients on [-0.17335, 0.17335], error 2^-26.1 */
#define POLY_expm1h_f32(z)                                                                         \
    FMA(z, FMA(z, FMA(z, FMA(z, KF32(0x1.6ab35p-5f), KF32(0x1.122cacp-3f)),                        \
    KF32(0x1.55579cp-2f)), KF32(0x1.5554aap-1f)), KF32(0x1.fffffep-1f))

/* tanh_f64: 11 coefficients on [1e-09, 0.3026], error 2^-58.7 */
#define POLY_tanh_f64(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z,                          \
    KF64(-0x1.46fdc41379b71p-16), KF64(0x1.5d6cb5a18e09p-14)), KF64(-0x1.e96d29d748545p-13)),      \
    KF64(0x1.34836e56ddf45p-11)), KF64(-0x1.7d8fcc0ad750ep-10)), KF64(0x1.d6d29b0271cp-9)),        \
    KF64(-0x1.226e2f10e2f3ap-7)), KF64(0x1.664f4859552f2p-6)), KF64(-0x1.ba1ba1b97d10ep-5)),       \
    KF64(0x1.1111111110797p-3)), KF64(-0x1.555555555554fp-2))

/* atan_f64: 11 coefficients on [1e-09, 0.171574], error 2^-57.5 */
#define POLY_atan_f64(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z,                          \
    KF64(-0x1.255aef76bc0b5p-6), KF64(0x1.37cdf8f036357p-5)), KF64(-0x1.9ccf6e4978de5p-5)),        \
    KF64(0x1.df0e7c20dd4f2p-5)), KF64(-0x1.10eba87a146b6p-4)), KF64(0x1.3b11178d7c257p-4)),        \
    KF64(-0x1.745cf8c2f890ap-4)), KF64(0x1.c71c70e5096c7p-4)), KF64(-0x1.24924922aa403p-3)),       \
    KF64(0x1.99999999957cbp-3)), KF64(-0x1.555555555553dp-2))

/* asin_f64: 13 coefficients on [1e-09, 0.25], error 2^-59.0 */
#define POLY_asin_f64(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z,            \
    KF64(0x1.0b495b42d725p-5), KF64(-0x1.5806e3971622cp-6)), KF64(0x1.63a3ee6e88444p-6)),          \
    KF64(0x1.e5d9b9f07d5p-9)), KF64(0x1.613ea2ddb4d04p-7)), KF64(0x1.75851ce8bd53bp-7)),           \
    KF64(0x1.ca1f9cb57e50cp-7)), KF64(0x1.1c49ef9fa58f4p-6)), KF64(0x1.6e8bdeeca4142p-6)),         \
    KF64(0x1.f1c71a946bf02p-6)), KF64(0x1.6db6db721423fp-5)), KF64(0x1.333333332e101p-4)),         \
    KF64(0x1.5555555555577p-3))

/* sinh_f64: 8 coefficients on [1e-09, 1], error 2^-56.8 */
#define POLY_sinh_f64(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF64(0x1.9a793a16ffeccp-49),                  \
    KF64(0x1.ae756eb307cp-41)), KF64(0x1.61246afa0640dp-33)), KF64(0x1.ae6456741bccfp-26)),        \
    KF64(0x1.71de3a5573f76p-19)), KF64(0x1.a01a01a019fc1p-13)), KF64(0x1.1111111111111p-7)),       \
    KF64(0x1.5555555555555p-3))

/* clang-format on */
#endif
