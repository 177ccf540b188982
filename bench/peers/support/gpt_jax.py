# bench/peers/support/gpt_jax.py -- a training step of GPT-2's kind in JAX, compiled as a whole: loss, gradients, clipping, AdamW.
#
# As bench_train and bench_gpu: parameters and optimiser f32, read as `dtype`; logits and loss f32.
import jax
import jax.numpy as jnp


def layer_norm(x, weight=1, bias=0):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * weight + bias


def gelu(x):
    return jax.nn.gelu(x, approximate=False)


def parameters(vocab, dim, layers, context, tied):
    keys = iter(jax.random.split(jax.random.key(3), 3 + 4 * layers))

    def drawn(m, n):
        return 0.02 * jax.random.normal(next(keys), (m, n))

    def linear(m, n):
        return {"w": drawn(m, n), "b": jnp.zeros(n)}

    def norm():
        return {"w": jnp.ones(dim), "b": jnp.zeros(dim)}

    p = {"wte": drawn(vocab, dim), "wpe": drawn(context, dim), "ln_f": norm(),
         "h": [{"ln_1": norm(), "ln_2": norm(), "qkv": linear(dim, 3 * dim), "out": linear(dim, dim),
                "fc": linear(dim, 4 * dim), "proj": linear(4 * dim, dim)} for _ in range(layers)]}
    return p if tied else p | {"head": drawn(vocab, dim)}


def loss_of(p, tokens, heads, dtype):
    p = jax.tree.map(lambda t: t.astype(dtype), p)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    b, t = inputs.shape
    dim = p["wte"].shape[1]

    def norm(x, q):
        return layer_norm(x.astype(jnp.float32), q["w"], q["b"]).astype(dtype)

    def linear(x, q):
        return x @ q["w"] + q["b"]

    x = p["wte"][inputs] + p["wpe"][:t]
    for h in p["h"]:
        q, k, v = (y.reshape(b, t, heads, dim // heads) for y in jnp.split(linear(norm(x, h["ln_1"]), h["qkv"]), 3, -1))
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + linear(y.reshape(b, t, dim), h["out"])
        x = x + linear(gelu(linear(norm(x, h["ln_2"]), h["fc"])), h["proj"])
    logits = (norm(x, p["ln_f"]) @ p.get("head", p["wte"]).T).astype(jnp.float32)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1).mean()


def training_step(vocab, dim, layers, heads, context, tied, dtype=jnp.float32, rate=1e-3):
    """A function of tokens (batch, context + 1) that does one step and gives the loss."""

    def step(p, m, v, count, tokens):
        loss, g = jax.value_and_grad(loss_of)(p, tokens, heads, dtype)
        scale = jnp.minimum(1, 1 / (jnp.sqrt(sum((t ** 2).sum() for t in jax.tree.leaves(g))) + 1e-6))
        g = jax.tree.map(lambda t: t * scale, g)
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
        c1, c2 = 1 - 0.9 ** count, 1 - 0.999 ** count
        p = jax.tree.map(lambda w, a, b: w - rate * ((a / c1) / (jnp.sqrt(b / c2) + 1e-8) + (0.1 * w if w.ndim > 1 else 0)),
                         p, m, v)
        return p, m, v, count + 1, loss

    p = parameters(vocab, dim, layers, context, tied)
    state = [p, jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p), jnp.float32(1)]
    compiled = jax.jit(step, donate_argnums=(0, 1, 2))

    def run(tokens):
        *state[:], loss = compiled(*state, tokens)
        return loss
    return run
