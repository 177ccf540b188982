# bench/peers/train_step.py -- the training steps of bench/bench_train.c in PyTorch eager on the CPU.
#
#   train_step.py [seconds [model...]]
#
# Same models, sizes and optimiser; JSON lines of the same form with "peer": "torch". peak_mb is the growth of the
# process's resident memory over that of an idle PyTorch. With a PyTorch that has torch.compile and TORCH_COMPILE=1 set the
# forward and backward pass are compiled ("peer": "torch.compile"). first_ms: the first step.
import json
import os
import resource
import subprocess
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    sys.exit(1)
if sys.argv[1:] == ["--needs"]:
    sys.exit(0)

# vocab, dim, layers, heads, context, tied head, batch
MODELS = {"char": (256, 128, 4, 4, 128, False, 16), "gpt2-2": (50257, 768, 2, 12, 64, True, 4),
          "gpt2-4": (50257, 768, 4, 12, 64, True, 4), "gpt2": (50257, 768, 12, 12, 64, True, 4)}
COMPILE = os.environ.get("TORCH_COMPILE") == "1"


class Attention(nn.Module):
    def __init__(self, dim, heads, context):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.register_buffer("mask", torch.triu(torch.ones(context, context), 1).bool(), persistent=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            s = (q @ k.transpose(-2, -1)) * (c // self.heads) ** -0.5
            y = s.masked_fill(self.mask[:t, :t], float("-inf")).softmax(-1) @ v
        return self.proj(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, dim, heads, context):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads, context)
        self.fc, self.proj = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.proj(F.gelu(self.fc(self.ln_2(x))))


class Model(nn.Module):
    def __init__(self, vocab, dim, layers, heads, context, tied):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(context, dim)
        self.h = nn.ModuleList(Block(dim, heads, context) for _ in range(layers))
        self.ln_f, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)
        if tied:
            nn.init.normal_(self.wte.weight, 0, 0.02)
            self.head.weight = self.wte.weight

    def forward(self, x):
        x = self.wte(x) + self.wpe.weight
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


def resident_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def median(v):
    return sorted(v)[len(v) // 2]


def measure(name, threads, seconds):
    *sizes, batch = MODELS[name]
    vocab, context = sizes[0], sizes[4]
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    idle = resident_mb()
    model = Model(*sizes)
    run = torch.compile(model) if COMPILE else model
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    try:
        optim = torch.optim.AdamW(groups, lr=2e-3, fused=True)  # one pass over each parameter: its fastest
    except (RuntimeError, TypeError):  # older ones have it for GPUs only
        optim = torch.optim.AdamW(groups, lr=2e-3)
    parts = {"forward_ms": [], "backward_ms": [], "clip_ms": [], "update_ms": [], "ms": []}
    end = first = None
    while end is None or len(parts["ms"]) < 5 or time.perf_counter() < end:
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
        for i, k in enumerate(("forward_ms", "backward_ms", "clip_ms", "update_ms")):
            parts[k].append(1e3 * (t[i + 1] - t[i]))
        parts["ms"].append(1e3 * (t[-1] - t[0]))
        first = first or parts["ms"][0]
        if end is None and len(parts["ms"]) == 3:
            parts = {k: [] for k in parts}
            end = time.perf_counter() + seconds
            cpu = time.process_time()
    row = {"bench": "train", "case": "step" if name == "char" else name + " step",
           "peer": "torch.compile" if COMPILE else "torch", "version": torch.__version__, "threads": threads}
    row["first_ms"] = round(first, 2)
    row["best_ms"] = round(min(parts["ms"]), 2)
    row["steps"] = len(parts["ms"])
    row["cpu_ms"] = round(1e3 * (time.process_time() - cpu) / len(parts["ms"]), 2)
    row.update((k, round(median(v), 2)) for k, v in parts.items())
    row["tokens_per_s"] = round(1e3 * batch * context / row["ms"])
    row["peak_mb"] = round(resident_mb() - idle, 1)
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 8
    if len(sys.argv) > 3 and sys.argv[2] == "--one":
        measure(sys.argv[3], int(sys.argv[4]), seconds)
    else:
        quick = os.environ.get("WEFT_BENCH_QUICK")
        for name in sys.argv[2:] or (["char"] if quick else MODELS):
            for threads in (1, 2):  # a process each: resident memory only ever grows
                subprocess.run([sys.executable, __file__, str(seconds), "--one", name, str(threads)], check=True)
