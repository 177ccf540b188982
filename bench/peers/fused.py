# bench/peers/fused.py -- the cases of bench_fuse in PyTorch (eager and torch.compile) and JAX (jit), on the CPU.
#
#   fused.py [case]
#
# Whichever of the two frameworks this python3 imports. As on the C side: CPU time for one thread, wall clock for more;
# medians of batches after warm-up. "peer" is torch, torch.compile or jax. A row that takes more than WEFT_PEER_SECONDS (240) is
# ended, and says so.
# One thread means one CPU as well: JAX has no setting for the threads of its CPU back end.
import os
import sys

from support import timing

CASES = ("gelu_chain", "chain_of_20", "softmax", "scaled_softmax", "layer_norm", "norm_block", "mlp", "adamw")
WIDTH, DIM = 1024, 256
LIMIT = int(os.environ.get("WEFT_PEER_SECONDS", "240"))  # of a row: torch.compile has hung, and compiles some for minutes


def row(case, large, threads, peer):
    return {"bench": "fuse", "case": case, "size": "large" if large else "L2", "dtype": "f32", "threads": threads,
            "peer": peer}


def report(case, large, threads, peer, run, version):
    us = 1e6 * timing.median_of(run, threads, batch=5e-3, warm_up=10)
    timing.line(**row(case, large, threads, peer), us=us, version=version)


# -- PyTorch ----------------------------------------------------------------------------------------------------------------

def torch_case(torch, case, large):
    """A function without arguments that runs the case once, and what torch.compile may replace in it."""
    F = torch.nn.functional
    rows = 16384 if large else 128
    wide = lambda: torch.randn(rows, WIDTH)
    vector = lambda: torch.randn(WIDTH)
    if case == "gelu_chain":
        a = (wide(), vector(), vector(), wide(), wide())
        return lambda x, s, b, c, r: F.gelu(x * s + b) * c + r, a
    if case == "chain_of_20":
        def chain(x, y):
            for _ in range(5):
                x = torch.clamp_min(x * 0.9 + y, -3) - 0.01
            return x
        return chain, (wide(), wide())
    if case == "softmax":
        return lambda x: torch.softmax(x, -1), (wide(),)
    if case == "scaled_softmax":
        return lambda x, m, c: torch.softmax(x * 0.125 + m, -1) * c, (wide(), wide(), wide())
    if case == "layer_norm":
        return lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b), (wide(), vector(), vector())
    if case == "norm_block":
        def block(x, w, b, r):
            x = x + r
            d = x - x.mean(-1, keepdim=True)
            y = d * torch.rsqrt((d * d).mean(-1, keepdim=True) + 1e-5)
            return F.silu(y * w + b), x
        return block, (wide(), vector(), vector(), wide())
    if case == "mlp":
        rows = 4096 if large else 128
        p = [torch.randn(4 * DIM, DIM) / DIM ** 0.5, torch.randn(4 * DIM),
             torch.randn(DIM, 4 * DIM) / (4 * DIM) ** 0.5, torch.randn(DIM)]
        p = [t.requires_grad_() for t in p]

        def loss(x):
            return (x + F.linear(F.gelu(F.linear(x, p[0], p[1])), p[2], p[3])).square().mean()
        return loss, (torch.randn(rows, DIM), p)
    rows = 512 if large else 8
    p = [torch.randn(rows) if i % 2 else torch.randn(rows * (1 + i % 4) // 2, DIM) for i in range(100)]
    for t in p:
        t.grad = 2 * t
    return torch.optim.AdamW(p, lr=1e-3, foreach=True), ()


def run_torch(case, large, threads, compiled):
    import torch
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    f, args = torch_case(torch, case, large)
    if case == "adamw":
        run = torch.compile(f.step) if compiled else f.step
    elif case == "mlp":
        x, p = args
        g = torch.compile(f) if compiled else f

        def run():
            for t in p:
                t.grad = None
            g(x).backward()
    else:
        g = torch.compile(f) if compiled else f
        with torch.no_grad():
            g(*args)

        def run():
            with torch.no_grad():
                g(*args)
    report(case, large, threads, "torch.compile" if compiled else "torch", run, torch.__version__)


# -- JAX --------------------------------------------------------------------------------------------------------------------

def jax_case(jax, case, large):
    jnp, nn = jax.numpy, jax.nn
    rows = 16384 if large else 128
    keys = iter(jax.random.split(jax.random.PRNGKey(1), 500))
    randn = lambda *shape: jax.random.normal(next(keys), shape, dtype="float32")
    wide = lambda: randn(rows, WIDTH)
    vector = lambda: randn(WIDTH)
    if case == "gelu_chain":
        return (lambda x, s, b, c, r: nn.gelu(x * s + b, approximate=False) * c + r,
                (wide(), vector(), vector(), wide(), wide()))
    if case == "chain_of_20":
        def chain(x, y):
            for _ in range(5):
                x = jnp.maximum(x * 0.9 + y, -3) - 0.01
            return x
        return chain, (wide(), wide())
    if case == "softmax":
        return lambda x: nn.softmax(x, -1), (wide(),)
    if case == "scaled_softmax":
        return lambda x, m, c: nn.softmax(x * 0.125 + m, -1) * c, (wide(), wide(), wide())
    if case in ("layer_norm", "norm_block"):
        def norm(x, w, b):
            d = x - x.mean(-1, keepdims=True)
            return d * jax.lax.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5) * w + b
        if case == "layer_norm":
            return norm, (wide(), vector(), vector())
        return lambda x, w, b, r: (nn.silu(norm(x + r, w, b)), x + r), (wide(), vector(), vector(), wide())
    if case == "mlp":
        rows = 4096 if large else 128
        p = (randn(4 * DIM, DIM) / DIM ** 0.5, randn(4 * DIM), randn(DIM, 4 * DIM) / (4 * DIM) ** 0.5, randn(DIM))

        def loss(p, x):
            h = nn.gelu(x @ p[0].T + p[1], approximate=False)
            return ((x + h @ p[2].T + p[3]) ** 2).mean()
        return jax.value_and_grad(loss), (p, randn(rows, DIM))
    rows = 512 if large else 8
    p = [randn(rows) if i % 2 else randn(rows * (1 + i % 4) // 2, DIM) for i in range(100)]

    def step(p, g, m, v, t):
        def one(p, g, m, v):
            m = 0.9 * m + 0.1 * g
            v = 0.999 * v + 0.001 * g * g
            p = p * (1 - 1e-5) - 1e-3 * (m / (1 - 0.9 ** t)) / (jnp.sqrt(v / (1 - 0.999 ** t)) + 1e-8)
            return p, m, v
        return [one(*a) for a in zip(p, g, m, v)]
    return step, (p, [2 * t for t in p], [0 * t for t in p], [0 * t for t in p], jnp.float32(3))


def run_jax(case, large, threads):
    import jax
    f, args = jax_case(jax, case, large)
    g = jax.jit(f)
    report(case, large, threads, "jax", lambda: jax.block_until_ready(g(*args)), jax.__version__)


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "--one":
        how, case, large, threads = sys.argv[2], sys.argv[3], sys.argv[4] == "1", int(sys.argv[5])
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        if how == "jax":
            run_jax(case, large, threads)
        else:
            run_torch(case, large, threads, how == "torch.compile")
        return 0
    ways = [peer for peer, code in (("torch", "import torch"), ("torch.compile", "import torch; torch.compile"), ("jax", "import jax"))
            if timing.have(code)]
    if sys.argv[1:] == ["--needs"]:
        return not ways
    bad = not ways
    for case in CASES:
        if len(sys.argv) > 1 and case != sys.argv[1]:
            continue
        for large in (0, 1):
            for threads in (1, 2):
                for how in ways:
                    env = dict(os.environ, JAX_PLATFORMS="cpu", OMP_NUM_THREADS=str(threads))
                    arguments = [__file__, "--one", how, case, str(large), str(threads)]
                    bad |= not timing.alone(arguments, LIMIT, env, row(case, large, threads, how))
    return bad


if __name__ == "__main__":
    sys.exit(main())
