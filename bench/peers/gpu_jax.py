# bench/peers/gpu_jax.py -- the cases of bench_gpu in JAX, compiled by XLA, on the GPU.
#
#   gpu_jax.py [--needs|--smoke]      --needs: only whether JAX is there, as the exit status
#
# JAX has no events: wall-clock times of a batch of calls that end when its last result is there, medians over rounds after
# warm-up; a row takes about half a second. Products of f32 without TF32. --smoke: on whatever device there is, every case once on a few elements, for tests.
import json
import os
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # other programs are timed on this GPU, too
try:
    import jax
    import jax.numpy as jnp
except ImportError:
    sys.exit(1)
if sys.argv[1:] == ["--needs"]:
    sys.exit(0)

SMOKE = sys.argv[1:] == ["--smoke"]
QUICK = SMOKE or os.environ.get("WEFT_BENCH_QUICK", "0") not in ("", "0")
ROUNDS, WARM_UP = (1, 1) if SMOKE else (11, 3)


def timed(run, calls, seconds=0.5):
    """Microseconds of one call: until its result is there, and until it has returned."""
    whole, host = [], []

    def batch(n):
        start = time.perf_counter()
        for _ in range(n):
            out = run()
        queued = time.perf_counter() - start
        jax.block_until_ready(out)
        return (time.perf_counter() - start) * 1e6, queued * 1e6

    batch(1)
    once = max(batch(1)[0], 1)
    calls = 1 if SMOKE else max(1, min(calls, int(seconds * 1e6 / (ROUNDS + WARM_UP) / once)))
    rounds = 1 if SMOKE else max(3, min(ROUNDS, int(seconds * 1e6 / (once * calls)) - WARM_UP))
    for r in range(-WARM_UP, rounds):
        us, queued = batch(calls)
        if r >= 0:
            whole.append(us / calls)
            host.append(queued / calls)
    return sorted(whole)[rounds // 2], sorted(host)[rounds // 2]


def report(case, size, dtype, us, host, **more):
    line = {"bench": "gpu", "case": case, "size": size, "dtype": dtype, "peer": "jax", "clock": "wall",
            "us": float("%.4g" % us), "host_us": float("%.4g" % host), "version": jax.__version__}
    line.update({k: float("%.4g" % v) for k, v in more.items()})
    print(json.dumps(line), flush=True)


def size_name(n):
    return "%dMiB" % (n >> 20) if n >> 20 else "%dKiB" % (n >> 10)


def layer_norm(x, weight=1, bias=0):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * weight + bias


def gelu(x):
    return jax.nn.gelu(x, approximate=False)


def kernels_on(rows, columns, dtype, name, odd=False):
    keys = jax.random.split(jax.random.key(1), 3)
    x, y, row = (jax.random.normal(k, (n, columns)).astype(dtype) for k, n in zip(keys, (rows, rows, 1)))
    bytes_of_x = rows * columns * x.dtype.itemsize
    size = "%dx%d" % (rows, columns) if odd else size_name(bytes_of_x)
    floats, plain = name != "u8", name == "f32" and not odd

    def chain(v, w, last):
        for _ in range(4):
            v = last(v * w + 0.1)
        return v

    cases = (("add", lambda x, y, row: x + y, 3, floats),
             ("chain of 12, traced", lambda x, y, row: chain(x, row, jax.nn.relu), 2, floats),
             ("chain with 4 gelus, traced", lambda x, y, row: chain(x, row, gelu), 2, plain),
             ("softmax", lambda x, y, row: jax.nn.softmax(x, -1), 2, floats), ("layer_norm", lambda x, y, row: layer_norm(x), 2, floats),
             ("sum, rows", lambda x, y, row: x.sum(1), 1, floats), ("sum, columns", lambda x, y, row: x.sum(0), 1, floats),
             ("transpose", lambda x, y, row: x.T.copy(), 2, True), ("cast to bf16", lambda x, y, row: x.astype(jnp.bfloat16), 1.5, plain),
             ("cast to f32", lambda x, y, row: x.astype(jnp.float32), 3, name == "bf16" and not odd))
    for case, fn, moved, wanted in cases:
        if wanted:
            compiled = jax.jit(fn)
            us, host = timed(lambda: compiled(x, y, row), 20)
            report(case, size, name, us, host, gbps=moved * bytes_of_x / us * 1e-3)


def kernels():
    rows, columns = (8, 64) if SMOKE else (4096, 1024) if QUICK else (65536, 1024)
    kernels_on(rows, columns, jnp.float32, "f32")
    kernels_on(rows, columns, jnp.bfloat16, "bf16")
    kernels_on(2 * rows, columns, jnp.uint8, "u8")
    kernels_on(rows - 3, columns - 3, jnp.float32, "f32", True)
    kernels_on(rows - 3, columns - 3, jnp.bfloat16, "bf16", True)


def launches():
    one, add = jnp.ones((1, 1)), jax.jit(lambda a: a + a)
    us, host = timed(lambda: add(one), 1000)
    report("add of one element", "4", "f32", us, host)


def products():
    matmul = jax.jit(lambda a, b: a @ b)
    for dtype, name in ((jnp.float32, "f32"), (jnp.bfloat16, "bf16"), (jnp.float16, "f16")):
        n = 32 if SMOKE else 512 if QUICK else 4096 if name == "f32" else 8192
        a, b = (jax.random.normal(k, (n, n)).astype(dtype) for k in jax.random.split(jax.random.key(2)))
        us, host = timed(lambda: matmul(a, b), 5)
        report("matmul", str(n), name, us, host, tflops=2 * n ** 3 / us * 1e-6)


def differentiated(run, operands, name, size, dtype, flops, more):
    """Forward, and with gradients, which is `more` times the arithmetic."""
    forward = jax.jit(run)
    us, host = timed(lambda: forward(*operands), 10)
    report(name, size, dtype, us, host, tflops=flops / us * 1e-6)
    gradient = jnp.ones_like(forward(*operands))
    both = jax.jit(lambda *o: jax.vjp(run, *o)[1](gradient))
    us, host = timed(lambda: both(*operands), 10)
    report(name + ", with gradients", size, dtype, us, host, tflops=more * flops / us * 1e-6)


def drawn(shapes, dtype):
    return [jax.random.normal(k, s).astype(dtype) for k, s in zip(jax.random.split(jax.random.key(5), len(shapes)), shapes)]


def convolutions():
    for c, hw in ((4, 8),) if SMOKE else ((64, 56), (256, 14)):
        for dtype, name in ((jnp.float32, "f32"), (jnp.bfloat16, "bf16"), (jnp.float16, "f16")):
            n = 1 if SMOKE else 4 if QUICK else 32
            differentiated(lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"), drawn(((n, c, hw, hw), (c, c, 3, 3)), dtype), "convolution 3x3",
                           "%dx%dx%dx%d" % (n, c, hw, hw), name, 2.0 * 9 * n * c * c * hw * hw, 3)


def attention():
    b, h, t, d = (1, 2, 16, 8) if SMOKE else (2, 16, 256, 64) if QUICK else (8, 16, 2048, 64)
    for dtype, name in ((jnp.bfloat16, "bf16"), (jnp.float16, "f16")):
        kind = {} if SMOKE else {"implementation": "cudnn"}
        differentiated(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True, **kind), drawn([(b, t, h, d)] * 3, dtype),
                       "attention, causal", "%dx%dx%dx%d" % (b, h, t, d), name, 2.0 * b * h * t * t * d, 3.5)


def sizes():
    """vocab, dim, layers, heads, context, batch"""
    return (32, 16, 1, 2, 8, 2) if SMOKE else (256, 64, 2, 2, 64, 2) if QUICK else (50257, 768, 12, 12, 1024, 8)


def parameters():
    vocab, dim, layers, _, context, _ = sizes()
    keys = iter(jax.random.split(jax.random.key(3), 2 + 4 * layers))

    def linear(m, n):
        return {"w": 0.02 * jax.random.normal(next(keys), (m, n)), "b": jnp.zeros(n)}

    def norm():
        return {"w": jnp.ones(dim), "b": jnp.zeros(dim)}

    return {"wte": 0.02 * jax.random.normal(next(keys), (vocab, dim)),
            "wpe": 0.02 * jax.random.normal(next(keys), (context, dim)), "ln_f": norm(),
            "h": [{"ln_1": norm(), "ln_2": norm(), "qkv": linear(dim, 3 * dim), "out": linear(dim, dim),
                   "fc": linear(dim, 4 * dim), "proj": linear(4 * dim, dim)} for _ in range(layers)]}


def loss_of(p, tokens, dtype):
    """As bench_gpu: parameters are read as dtype, logits and loss are f32."""
    dim, heads = sizes()[1], sizes()[3]
    p = jax.tree.map(lambda t: t.astype(dtype), p)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    b, t = inputs.shape

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
    logits = (norm(x, p["ln_f"]) @ p["wte"].T).astype(jnp.float32)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1).mean()


def training(dtype, name):
    vocab, _, _, _, context, batch = sizes()

    def step(p, m, v, count, tokens):
        loss, g = jax.value_and_grad(loss_of)(p, tokens, dtype)
        scale = jnp.minimum(1, 1 / (jnp.sqrt(sum((t ** 2).sum() for t in jax.tree.leaves(g))) + 1e-6))
        g = jax.tree.map(lambda t: t * scale, g)
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
        c1, c2 = 1 - 0.9 ** count, 1 - 0.999 ** count
        p = jax.tree.map(lambda w, a, b: w - 1e-3 * ((a / c1) / (jnp.sqrt(b / c2) + 1e-8) + (0.1 * w if w.ndim > 1 else 0)),
                         p, m, v)
        return p, m, v, count + 1, loss

    p = parameters()
    zeros = jax.tree.map(jnp.zeros_like, p)
    state = [p, zeros, jax.tree.map(jnp.zeros_like, p), jnp.float32(1)]
    tokens = jax.random.randint(jax.random.key(4), (batch, context + 1), 0, vocab)
    compiled = jax.jit(step, donate_argnums=(0, 1, 2))

    def run():
        *state[:], loss = compiled(*state, tokens)
        return loss

    us, host = timed(run, 1, 2)
    report("training step, traced", "small" if QUICK else "124M", name, us, host, ms=us * 1e-3,
           tokens_per_s=batch * context / us * 1e6)


def main():
    if jax.default_backend() != "gpu" and not SMOKE:
        print("gpu_jax.py: nothing is timed: JAX sees no GPU", file=sys.stderr)
        return
    jax.config.update("jax_default_matmul_precision", "float32")
    for case in (kernels, launches, products, lambda: training(jnp.float32, "f32"), lambda: training(jnp.bfloat16, "bf16"), convolutions,
                 attention):
        try:
            case()
        except Exception as e:
            print("gpu_jax.py: %s" % str(e)[:500], file=sys.stderr)


main()
