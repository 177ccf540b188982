/*
 * weft/nn_sequence.h -- layers over sequences: attention, the transformer's encoder layer, GPT, LSTM and GRU. Included by
 * weft/nn.h, which says what holds for every layer.
 */
#ifndef WEFT_NN_SEQUENCE_H
#define WEFT_NN_SEQUENCE_H

#include "weft/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -- attention ------------------------------------------------------------------------------------------ */

/* Attention with `heads` heads of dim / heads: one product makes queries, keys and values. Parameters as
 * torch.nn.MultiheadAttention: in_proj_weight[3 dim, dim] (Xavier uniform), in_proj_bias (0), out_proj.weight,
 * out_proj.bias (0). Vaswani et al. 2017. */
typedef struct weft_nn_attention {
    weft_tensor in_weight, in_bias;
    weft_nn_linear out;
    int64_t heads;
    bool causal;
} weft_nn_attention;
typedef struct weft_nn_attention_args {
    weft_nn_attention *layer;
    weft_module *module;
    const char *name;
    int64_t dim, heads;
    bool causal;
    bool no_bias;
    weft_dtype dtype;
    int end_;
} weft_nn_attention_args;
WEFT_API weft_status weft_nn_attention_init(const weft_nn_attention_args *args);
/* Self-attention of x[batch, time, dim]. */
WEFT_API weft_tensor weft_nn_attention_forward(const weft_nn_attention *layer, weft_tensor x);
/* Of x to memory[batch, length, dim], which keys and values come from; WEFT_NONE: x. mask, if not WEFT_NONE, broadcasts
 * with [batch, heads, time, length]: bool (true takes part), or added to the scores. */
WEFT_API weft_tensor weft_nn_attention_attend(const weft_nn_attention *layer, weft_tensor x,
                                              weft_tensor memory WEFT_OR(WEFT_NONE),
                                              weft_tensor mask WEFT_OR(WEFT_NONE));

/* x[batch, time, dim] + attention, then + linear2(f(linear1)), each normalised after (or, norm_first, before); f is relu or
 * gelu. Parameters and defaults as torch.nn.TransformerEncoderLayer(batch_first=True), but that no dropout is inside of
 * the attention. */
typedef struct weft_nn_encoder {
    weft_nn_attention self_attn;
    weft_nn_linear linear1, linear2;
    weft_nn_norm norm1, norm2;
    weft_nn_dropout dropout;
    bool norm_first, gelu;
} weft_nn_encoder;
typedef struct weft_nn_encoder_args {
    weft_nn_encoder *layer;
    weft_module *module;
    const char *name;
    int64_t dim, heads;
    int64_t feedforward; /* default 2048 */
    double dropout;      /* default 0.1; WEFT_ZERO: 0 */
    bool norm_first, gelu, causal;
    double eps; /* default 1e-5 */
    weft_dtype dtype;
    int end_;
} weft_nn_encoder_args;
WEFT_API weft_status weft_nn_encoder_init(const weft_nn_encoder_args *args);
/* mask: as weft_nn_attention_attend's. */
WEFT_API weft_tensor weft_nn_encoder_forward(const weft_nn_encoder *layer, weft_tensor x,
                                             weft_tensor mask WEFT_OR(WEFT_NONE));

/* GPT-2 (Radford et al. 2019), a decoder-only transformer: integers tokens[batch, time], time <= context, -> logits[batch, time,
 * vocab] of what follows each. Embeddings "wte" of tokens and "wpe" of positions (normal(0, 0.02)), blocks "h.0", "h.1", ...,
 * a norm "ln_f", and a linear "head" without bias or, tied, wte's weight. A block is an encoder layer with norm_first, gelu
 * and causal; its parts are "ln_1", "attn", "ln_2", "fc" [4 dim] and "proj". Dropout, while the module trains: of the sum of the
 * embeddings and in the blocks. Blocks of another net are weft_nn_encoders. */
enum { WEFT_NN_BLOCKS = 48 };
typedef struct weft_nn_gpt {
    weft_nn_embedding wte, wpe;
    weft_nn_encoder h[WEFT_NN_BLOCKS];
    weft_nn_norm ln_f;
    weft_nn_linear head; /* empty if tied */
    weft_nn_dropout dropout;
    int64_t layers;
    bool tied;
} weft_nn_gpt;
typedef struct weft_nn_gpt_args {
    weft_nn_gpt *layer;
    weft_module *module;
    const char *name;
    int64_t vocab, dim, heads, layers, context; /* at most 48 layers */
    double dropout;                             /* default 0 */
    bool tied;
    double eps; /* default 1e-5 */
    weft_dtype dtype;
    int end_;
} weft_nn_gpt_args;
WEFT_API weft_status weft_nn_gpt_init(const weft_nn_gpt_args *args);
WEFT_API weft_tensor weft_nn_gpt_forward(const weft_nn_gpt *layer, weft_tensor tokens);

/* -- recurrent layers -------------------------------------------------------------------------------------
 * Parameters, their names, the order of gates (LSTM: in, forget, cell, out; GRU: reset, update, new) and what they start
 * from (uniform in +-1/sqrt(hidden)) are PyTorch's. A state that is WEFT_NONE is zeros. */

/* One step's weights: weight_ih[gates hidden, in], weight_hh[gates hidden, hidden], bias_ih and bias_hh[gates hidden]. */
typedef struct weft_nn_gates {
    weft_tensor weight_ih, weight_hh, bias_ih, bias_hh;
} weft_nn_gates;
typedef struct weft_nn_cell_args {
    weft_nn_gates *layer;
    weft_module *module;
    const char *name;
    int64_t in, hidden;
    bool no_bias;
    weft_dtype dtype;
    int end_;
} weft_nn_cell_args;
WEFT_API weft_status weft_nn_lstm_cell_init(const weft_nn_cell_args *args);
WEFT_API weft_status weft_nn_gru_cell_init(const weft_nn_cell_args *args);
/* x[batch, in] and the state h, *c [batch, hidden] -> the next h; *c becomes the next c, or the error. */
WEFT_API weft_tensor weft_nn_lstm_cell_forward(const weft_nn_gates *layer, weft_tensor x,
                                               weft_tensor h, weft_tensor *c);
WEFT_API weft_tensor weft_nn_gru_cell_forward(const weft_nn_gates *layer, weft_tensor x,
                                              weft_tensor h);

/* Layers of steps over x[time, batch, in] (batch_first: [batch, time, in]); parameters "weight_ih_l0", ..., those backwards
 * in time "weight_ih_l0_reverse". */
enum { WEFT_NN_LEVELS = 8 };
typedef struct weft_nn_recurrent {
    weft_nn_gates level[2 * WEFT_NN_LEVELS]; /* layer by layer, each forwards, then backwards */
    int64_t in, hidden;
    int layers, ways, gates;
    bool batch_first;
    double dropout;
    const weft_module *module;
} weft_nn_recurrent;
typedef struct weft_nn_recurrent_args {
    weft_nn_recurrent *layer;
    weft_module *module;
    const char *name;
    int64_t in, hidden;
    int64_t layers; /* default 1, at most 8 */
    bool bidirectional, batch_first;
    double dropout; /* of the inputs of all layers but the first, while the module trains */
    bool no_bias;
    weft_dtype dtype;
    int end_;
} weft_nn_recurrent_args;
WEFT_API weft_status weft_nn_lstm_init(const weft_nn_recurrent_args *args);
WEFT_API weft_status weft_nn_gru_init(const weft_nn_recurrent_args *args);
/* The last layer's states of all steps, [time, batch, hidden], twice hidden if bidirectional (batch_first as x). h and c: NULL,
 * or the states [layers * directions, batch, hidden] to start from, which become those at the end (or the error).
 * Backpropagation that is cut off: *h = weft_detach(*h) between calls. */
WEFT_API weft_tensor weft_nn_lstm_forward(const weft_nn_recurrent *layer, weft_tensor x,
                                          weft_tensor *h WEFT_OR(nullptr),
                                          weft_tensor *c WEFT_OR(nullptr));
WEFT_API weft_tensor weft_nn_gru_forward(const weft_nn_recurrent *layer, weft_tensor x,
                                         weft_tensor *h WEFT_OR(nullptr));

#ifdef __cplusplus
}
inline weft_status weft_nn_attention_init(weft_nn_attention *layer, weft_module *module,
                                          const char *name, int64_t dim, int64_t heads,
                                          bool causal = false, bool no_bias = false,
                                          weft_dtype dtype = WEFT_F32)
{
    weft_nn_attention_args a = {layer, module, name, dim, heads, causal, no_bias, dtype, 0};
    return weft_nn_attention_init(&a);
}
inline weft_status weft_nn_encoder_init(weft_nn_encoder *layer, weft_module *module,
                                        const char *name, int64_t dim, int64_t heads,
                                        int64_t feedforward = 0, double dropout = 0,
                                        bool norm_first = false, bool gelu = false,
                                        bool causal = false, double eps = 0,
                                        weft_dtype dtype = WEFT_F32)
{
    weft_nn_encoder_args a = {layer, module, name, dim,   heads, feedforward, dropout, norm_first,
                              gelu,  causal, eps,  dtype, 0};
    return weft_nn_encoder_init(&a);
}
inline weft_status weft_nn_gpt_init(weft_nn_gpt *layer, weft_module *module, const char *name,
                                    int64_t vocab, int64_t dim, int64_t heads, int64_t layers,
                                    int64_t context, double dropout = 0, bool tied = false,
                                    double eps = 0, weft_dtype dtype = WEFT_F32)
{
    weft_nn_gpt_args a = {layer,   module,  name, vocab, dim,   heads, layers,
                          context, dropout, tied, eps,   dtype, 0};
    return weft_nn_gpt_init(&a);
}
#define WEFT_CELL_(call)                                                                           \
    inline weft_status call(weft_nn_gates *layer, weft_module *module, const char *name,           \
                            int64_t in, int64_t hidden, bool no_bias = false,                      \
                            weft_dtype dtype = WEFT_F32)                                           \
    {                                                                                              \
        weft_nn_cell_args a = {layer, module, name, in, hidden, no_bias, dtype, 0};                \
        return call(&a);                                                                           \
    }                                                                                              \
    WEFT_BY_STRUCT_(weft_status, call, weft_nn_cell_args)
WEFT_CELL_(weft_nn_lstm_cell_init)
WEFT_CELL_(weft_nn_gru_cell_init)
#undef WEFT_CELL_
#define WEFT_RECURRENT_(call)                                                                      \
    inline weft_status call(weft_nn_recurrent *layer, weft_module *module, const char *name,       \
                            int64_t in, int64_t hidden, int64_t layers = 0,                        \
                            bool bidirectional = false, bool batch_first = false,                  \
                            double dropout = 0, bool no_bias = false, weft_dtype dtype = WEFT_F32) \
    {                                                                                              \
        weft_nn_recurrent_args a = {layer,         module,      name,    in,      hidden, layers,  \
                                    bidirectional, batch_first, dropout, no_bias, dtype,  0};      \
        return call(&a);                                                                           \
    }                                                                                              \
    WEFT_BY_STRUCT_(weft_status, call, weft_nn_recurrent_args)
WEFT_RECURRENT_(weft_nn_lstm_init)
WEFT_RECURRENT_(weft_nn_gru_init)
#undef WEFT_RECURRENT_
WEFT_BY_STRUCT_(weft_status, weft_nn_attention_init, weft_nn_attention_args)
WEFT_BY_STRUCT_(weft_status, weft_nn_encoder_init, weft_nn_encoder_args)
WEFT_BY_STRUCT_(weft_status, weft_nn_gpt_init, weft_nn_gpt_args)
#endif

/* clang-format off */
#define weft_nn_attention_init(...) WEFT_S_(WEFT_R_((weft_nn_attention_init)WEFT_ARGS_(weft_nn_attention_args, __VA_ARGS__)))
#define weft_nn_encoder_init(...) WEFT_S_(WEFT_R_((weft_nn_encoder_init)WEFT_ARGS_(weft_nn_encoder_args, __VA_ARGS__)))
#define weft_nn_gpt_init(...) WEFT_S_(WEFT_R_((weft_nn_gpt_init)WEFT_ARGS_(weft_nn_gpt_args, __VA_ARGS__)))
#define weft_nn_lstm_cell_init(...) WEFT_S_(WEFT_R_((weft_nn_lstm_cell_init)WEFT_ARGS_(weft_nn_cell_args, __VA_ARGS__)))
#define weft_nn_gru_cell_init(...) WEFT_S_(WEFT_R_((weft_nn_gru_cell_init)WEFT_ARGS_(weft_nn_cell_args, __VA_ARGS__)))
#define weft_nn_lstm_init(...) WEFT_S_(WEFT_R_((weft_nn_lstm_init)WEFT_ARGS_(weft_nn_recurrent_args, __VA_ARGS__)))
#define weft_nn_gru_init(...) WEFT_S_(WEFT_R_((weft_nn_gru_init)WEFT_ARGS_(weft_nn_recurrent_args, __VA_ARGS__)))
#ifndef WEFT_NO_SITES
#define weft_nn_attention_forward(...) WEFT_T_((weft_nn_attention_forward)(__VA_ARGS__))
#define weft_nn_attention_attend(...) WEFT_T_((weft_nn_attention_attend)(__VA_ARGS__))
#define weft_nn_encoder_forward(...) WEFT_T_((weft_nn_encoder_forward)(__VA_ARGS__))
#define weft_nn_gpt_forward(...) WEFT_T_((weft_nn_gpt_forward)(__VA_ARGS__))
#define weft_nn_lstm_cell_forward(...) WEFT_T_((weft_nn_lstm_cell_forward)(__VA_ARGS__))
#define weft_nn_gru_cell_forward(...) WEFT_T_((weft_nn_gru_cell_forward)(__VA_ARGS__))
#define weft_nn_lstm_forward(...) WEFT_T_((weft_nn_lstm_forward)(__VA_ARGS__))
#define weft_nn_gru_forward(...) WEFT_T_((weft_nn_gru_forward)(__VA_ARGS__))
#endif
/* clang-format on */

#endif
