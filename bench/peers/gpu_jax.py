# bench/peers/gpu_jax.py -- the cases of bench_gpu in JAX, compiled by XLA, on the GPU.
#
#   gpu_jax.py [--needs|--smoke]      --needs: only whether JAX is there, as the exit status
#
# JAX has no events: wall-clock times of a batch of calls that end when its last result is there, medians over rounds after
# warm-up; a row takes about half a second. Products of f32 without TF32. --smoke: on whatever device there is, every case once on a few elements, for tests.
import os
import sys
import time

from support import timing

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # other programs are timed on this GPU, too
try:
    import jax
    import jax.numpy as jnp
except ImportError:
    sys.exit(1)
if sys.argv[1:] == ["--needs"]:
    sys.exit(0)
from support.gpt_jax import gelu, layer_norm, training_step

SMOKE = sys.argv[1:] == ["--smoke"]
QUICK = SMOKE or timing.QUICK


def timed(run, calls, seconds=0.5):
    def batch(n):
        start = time.perf_counter()
        for _ in range(n):
            out = run()
        queued = time.perf_counter() - start
        jax.block_until_ready(out)
        return (time.perf_counter() - start) * 1e6, queued * 1e6

    return timing.median_on_device(batch, calls, seconds, SMOKE)


def report(case, size, dtype, us, host, **more):
    timing.line(bench="gpu", case=case, size=size, dtype=dtype, peer="jax", clock="wall", us=us, host_us=host,
                version=jax.__version__, **more)


def size_name(n):
    return "%dMiB" % (n >> 20) if n >> 20 else "%dKiB" % (n >> 10)


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
             ("times a column", lambda x, y, row: x * x[:, :1], 2, floats),
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


def training(dtype, name):
    vocab, dim, layers, heads, context, batch = (32, 16, 1, 2, 8, 2) if SMOKE else (256, 64, 2, 2, 64, 2) if QUICK else (50257, 768, 12, 12, 1024, 8)
    step = training_step(vocab, dim, layers, heads, context, True, dtype)
    tokens = jax.random.randint(jax.random.key(4), (batch, context + 1), 0, vocab)
    us, host = timed(lambda: step(tokens), 1, 2)
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
