/*
 * jit/ir/math_coef.h -- polynomial coefficients of the math bodies; written by tools/math_coeffs.py.
 *
 * POLY_name(z) evaluates one minimax polynomial by Horner's rule; z must be a plain variable. The
 * comment gives the fitted interval and the weighted error after rounding the coefficients.
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

/* sin_f32: 4 coefficients on [1e-09, 2.46743], error 2^-27.3 */
#define POLY_sin_f32(z)                                                                            \
    FMA(z, FMA(z, FMA(z, KF32(0x1.5dc8c6p-19f), KF32(-0x1.9f70eep-13f)), KF32(0x1.110edap-7f)),    \
    KF32(-0x1.55554cp-3f))

/* sin_f64: 9 coefficients on [1e-09, 2.46743], error 2^-61.1 */
#define POLY_sin_f64(z)                                                                            \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF64(-0x1.4f13002d4e20cp-60),          \
    KF64(0x1.89fe37de8a535p-49)), KF64(-0x1.ae4ba6717d046p-41)), KF64(0x1.6123e09e2cfaep-33)),     \
    KF64(-0x1.ae64550a2c21ap-26)), KF64(0x1.71de3a52f390ap-19)), KF64(-0x1.a01a01a0155ap-13)),     \
    KF64(0x1.11111111110cdp-7)), KF64(-0x1.5555555555555p-3))

/* erfs_f32: 7 coefficients on [1e-09, 1], error 2^-29.1 */
#define POLY_erfs_f32(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF32(0x1.4773b4p-14f), KF32(-0x1.a351d6p-11f)),      \
    KF32(0x1.53f22ep-8f)), KF32(-0x1.b7f71ap-6f)), KF32(0x1.ce2ce6p-4f)),                          \
    KF32(-0x1.81273ep-2f)), KF32(0x1.06eba8p-3f))

/* erfl_f32: 7 coefficients on [1, 4], error 2^-29.2 */
#define POLY_erfl_f32(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF32(0x1.18b9ep-12f), KF32(-0x1.15ee72p-8f)),        \
    KF32(0x1.01b48ap-5f)), KF32(-0x1.306fep-3f)), KF32(-0x1.d76e9ep-1f)),                          \
    KF32(-0x1.a03fdep0f)), KF32(-0x1.0ba03cp-11f))

/* ncdf_f32: 10 coefficients on [0.210526, 1], error 2^-26.5 */
#define POLY_ncdf_f32(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, KF32(0x1.196e12p-6f),           \
    KF32(-0x1.0ed28ep-4f)), KF32(0x1.e8fef2p-5f)), KF32(0x1.1cdccep-6f)),                          \
    KF32(0x1.6be918p-6f)), KF32(0x1.4d490ap-4f)), KF32(0x1.2eb432p-4f)), KF32(0x1.857cc2p-4f)),    \
    KF32(0x1.97bde6p-4f)), KF32(0x1.988e34p-4f))

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

/* erfc_f64: 26 coefficients on [-1, 0.75], error 2^-54.3 */
#define POLY_erfc_f64(z)                                                                           \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z,     \
    FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z, FMA(z,            \
    KF64(-0x1.7315b03c8aaf5p-33), KF64(-0x1.0ed78edace06cp-32)), KF64(0x1.1f4c708f19939p-29)),     \
    KF64(0x1.bf8bd46d521a6p-29)), KF64(-0x1.0b28809cf0713p-26)), KF64(-0x1.68f5578ad9a8cp-26)),    \
    KF64(0x1.de001634b5c4bp-24)), KF64(0x1.501091ada1c47p-24)), KF64(-0x1.bb6d157108a3bp-21)),     \
    KF64(0x1.38b8d2aad1f36p-22)), KF64(0x1.7f2d3b78e872ap-18)), KF64(-0x1.78827eded8065p-17)),     \
    KF64(-0x1.995995937a3b2p-16)), KF64(0x1.3be03644d686p-13)), KF64(-0x1.a1df2369aa663p-13)),     \
    KF64(-0x1.8d4a99b129d82p-11)), KF64(0x1.49c67283fa373p-8)), KF64(-0x1.096238852f893p-6)),      \
    KF64(0x1.3079edf688c15p-5)), KF64(-0x1.0fb06dfe4914p-4)), KF64(0x1.7fee004e122e1p-4)),         \
    KF64(-0x1.9ddb23c3e90cfp-4)), KF64(0x1.16ecefcfa53a3p-4)), KF64(0x1.f7f5df66fd7b7p-7)),        \
    KF64(-0x1.1df1ad154a28ep-3)), KF64(0x1.3ba5916e9fd7fp0))

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
