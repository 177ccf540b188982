# bench/peers/train_step.py -- the training steps of bench/bench_train.c in PyTorch (eager and torch.compile) and JAX, on the CPU.
#
#   train_step.py [seconds [model...]]
#
# Same models, sizes and optimiser; JSON lines of the same form with "peer": torch, torch.compile (forward and backward pass
# compiled) or jax (the whole step is). peak_mb is the growth of the process's resident memory over that of one that has
# imported the framework. first_ms: the first step, with what is compiled for it. A row that takes more than WEFT_PEER_SECONDS
# (900) is ended, and says so.
import os
import resource
import sys
import time

from support import timing

# vocab, dim, layers, heads, context, tied head, batch
MODELS = {"char": (256, 128, 4, 4, 128, False, 16), "gpt2-2": (50257, 768, 2, 12, 64, True, 4),
          "gpt2-4": (50257, 768, 4, 12, 64, True, 4), "gpt2": (50257, 768, 12, 12, 64, True, 4)}
PARTS = ("forward_ms", "backward_ms", "clip_ms", "update_ms")
LIMIT = int(os.environ.get("WEFT_PEER_SECONDS", "900"))


def row(name, threads, peer):
    return {"bench": "train", "case": "step" if name == "char" else name + " step", "peer": peer, "threads": threads}


def resident_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def measure(name, threads, seconds, peer, version, idle, step):
    """step() gives the wall times (ms) of its parts. Three to warm up."""
    times, cpu, end, first = [], 0, None, None
    while end is None or len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        parts = step()
        times.append([1e3 * (time.perf_counter() - begin), *parts])
        first = first or times[0][0]
        if end is None and len(times) == 3:
            times, cpu, end = [], time.process_time(), time.perf_counter() + seconds
    cpu = 1e3 * (time.process_time() - cpu) / len(times)
    whole, *parts = zip(*times)
    ms, (*_, context, _, batch) = timing.middle(whole), MODELS[name]
    timing.line(**row(name, threads, peer), version=version, first_ms=first, ms=ms, best_ms=min(whole), cpu_ms=cpu,
                **{k: timing.middle(v) for k, v in zip(PARTS, parts)}, tokens_per_s=round(1e3 * batch * context / ms),
                peak_mb=resident_mb() - idle, steps=len(times))


# -- PyTorch ----------------------------------------------------------------------------------------------------------------

def torch_model(torch, vocab, dim, layers, heads, context, tied):
    F, nn = torch.nn.functional, torch.nn

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(dim, 3 * dim)
            self.proj = nn.Linear(dim, dim)
            self.register_buffer("mask", torch.triu(torch.ones(context, context), 1).bool(), persistent=False)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = self.qkv(x).view(b, t, 3, heads, c // heads).permute(2, 0, 3, 1, 4)
            if hasattr(F, "scaled_dot_product_attention"):
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                s = (q @ k.transpose(-2, -1)) * (c // heads) ** -0.5
                y = s.masked_fill(self.mask[:t, :t], float("-inf")).softmax(-1) @ v
            return self.proj(y.transpose(1, 2).reshape(b, t, c))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.attn = Attention()
            self.fc, self.proj = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.proj(F.gelu(self.fc(self.ln_2(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(context, dim)
            self.h = nn.ModuleList(Block() for _ in range(layers))
            self.ln_f, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)
            if tied:
                nn.init.normal_(self.wte.weight, 0, 0.02)
                self.head.weight = self.wte.weight

        def forward(self, x):
            x = self.wte(x) + self.wpe.weight
            for block in self.h:
                x = block(x)
            return self.head(self.ln_f(x))

    return Model()


def run_torch(name, threads, seconds, peer):
    import torch
    F = torch.nn.functional
    *sizes, batch = MODELS[name]
    vocab, context = sizes[0], sizes[4]
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    idle = resident_mb()
    model = torch_model(torch, *sizes)
    run = torch.compile(model) if peer == "torch.compile" else model
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    try:
        optim = torch.optim.AdamW(groups, lr=2e-3, fused=True)  # one pass over each parameter: its fastest
    except (RuntimeError, TypeError):  # older ones have it for GPUs only
        optim = torch.optim.AdamW(groups, lr=2e-3)

    def step():
        t = [time.perf_counter()]
        tokens = torch.randint(0, vocab, (batch, context + 1))
        logits = run(tokens[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, vocab), tokens[:, 1:].reshape(-1))
        t.append(time.perf_counter())
        optim.zero_grad(set_to_none=True)
        loss.backward()
        t.append(time.perf_counter())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        t.append(time.perf_counter())
        optim.step()
        loss.item()
        t.append(time.perf_counter())
        return [1e3 * (b - a) for a, b in zip(t, t[1:])]

    measure(name, threads, seconds, peer, torch.__version__, idle, step)


# -- JAX --------------------------------------------------------------------------------------------------------------------

def run_jax(name, threads, seconds):
    import jax
    from support.gpt_jax import training_step
    *sizes, batch = MODELS[name]
    jax.block_until_ready(jax.numpy.zeros(1))
    idle = resident_mb()
    train = training_step(*sizes, rate=2e-3)
    keys = iter(jax.random.split(jax.random.key(4), 10000))

    def step():
        tokens = jax.random.randint(next(keys), (batch, sizes[4] + 1), 0, sizes[0])
        float(train(tokens))
        return []

    measure(name, threads, seconds, "jax", jax.__version__, idle, step)


def main():
    peers = {"torch": "import torch", "torch.compile": "import torch; torch.compile", "jax": "import jax"}
    if sys.argv[1:] == ["--needs"]:
        return not any(timing.have(code) for code in peers.values())
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 8
    if len(sys.argv) > 5 and sys.argv[2] == "--one":
        peer, name, threads = sys.argv[3], sys.argv[4], int(sys.argv[5])
        if peer == "jax":  # it has no setting for the threads of its CPU back end
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
            run_jax(name, threads, seconds)
        else:
            run_torch(name, threads, seconds, peer)
        return 0
    ways = [peer for peer, code in peers.items() if timing.have(code)]
    bad = not ways
    for name in sys.argv[2:] or (["char"] if timing.QUICK else MODELS):
        for threads in (1, 2):
            for peer in ways:
                env = dict(os.environ, JAX_PLATFORMS="cpu", OMP_NUM_THREADS=str(threads))
                bad |= not timing.alone([__file__, str(seconds), "--one", peer, name, str(threads)], LIMIT, env,
                                        row(name, threads, peer))
    return bad


if __name__ == "__main__":
    sys.exit(main())
