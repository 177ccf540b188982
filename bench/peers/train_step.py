# bench/peers/train_step.py -- the training step of bench/bench_train.c in PyTorch eager on the CPU.
#
# Same model, sizes and optimiser; JSON lines of the same form with "peer": "torch". peak_mb is the growth of the
# process's resident memory over that of an idle PyTorch. Argument: seconds per thread count (default 8).
import json
import resource
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

DIM, LAYERS, HEADS, CONTEXT, BATCH, VOCAB = 128, 4, 4, 128, 16, 256


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)
        self.register_buffer("mask", torch.triu(torch.ones(CONTEXT, CONTEXT), 1).bool(), persistent=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            s = (q @ k.transpose(-2, -1)) * (c // HEADS) ** -0.5
            y = s.masked_fill(self.mask[:t, :t], float("-inf")).softmax(-1) @ v
        return self.proj(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attn = Attention()
        self.fc, self.proj = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.proj(F.gelu(self.fc(self.ln_2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, DIM), nn.Embedding(CONTEXT, DIM)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, x):
        x = self.wte(x) + self.wpe.weight
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


def resident_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def median(v):
    return sorted(v)[len(v) // 2]


def measure(threads, seconds):
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    idle = resident_mb()
    model = Model()
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optim = torch.optim.AdamW(groups, lr=2e-3)
    parts = {"forward_ms": [], "backward_ms": [], "clip_ms": [], "update_ms": [], "ms": []}
    end = None
    while end is None or len(parts["ms"]) < 8 or time.perf_counter() < end:
        t = [time.perf_counter()]
        tokens = torch.randint(0, VOCAB, (BATCH, CONTEXT + 1))
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), tokens[:, 1:].reshape(-1))
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
        if end is None and len(parts["ms"]) == 3:
            parts = {k: [] for k in parts}
            end = time.perf_counter() + seconds
            cpu = time.process_time()
    row = {"bench": "train", "case": "step", "peer": "torch", "version": torch.__version__, "threads": threads}
    row["best_ms"] = round(min(parts["ms"]), 2)
    row["steps"] = len(parts["ms"])
    row["cpu_ms"] = round(1e3 * (time.process_time() - cpu) / len(parts["ms"]), 2)
    row.update((k, round(median(v), 2)) for k, v in parts.items())
    row["tokens_per_s"] = round(1e3 * BATCH * CONTEXT / row["ms"])
    row["peak_mb"] = round(resident_mb() - idle, 1)
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 8
    if len(sys.argv) > 2:
        measure(int(sys.argv[2]), seconds)
    else:
        for threads in (1, 2):  # a process each: resident memory only ever grows
            subprocess.run([sys.executable, __file__, str(seconds), str(threads)], check=True)
