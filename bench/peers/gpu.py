# bench/peers/gpu.py -- the cases of bench_gpu in PyTorch, eager and torch.compile, on the GPU.
#
#   gpu.py
#
# bf16 steps by autocast; parameters and optimiser stay f32. As on the C side: times between two events around a batch of calls, medians over rounds after warm-up. TF32 off.
import json
import os
import sys
import time

QUICK = os.environ.get("WEFT_BENCH_QUICK", "0") not in ("", "0")
ROUNDS, WARM_UP = 11, 3


def timed(torch, run, calls):
    device, host = [], []
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for r in range(-WARM_UP, ROUNDS):
        start = time.perf_counter()
        begin.record()
        for _ in range(calls):
            run()
        end.record()
        queued = time.perf_counter() - start
        end.synchronize()
        if r >= 0:
            device.append(begin.elapsed_time(end) * 1e3 / calls)
            host.append(queued * 1e6 / calls)
    return sorted(device)[ROUNDS // 2], sorted(host)[ROUNDS // 2]


def report(torch, case, size, dtype, peer, us, host, **more):
    line = {"bench": "gpu", "case": case, "size": size, "dtype": dtype, "peer": peer, "clock": "device",
            "us": float("%.4g" % us), "host_us": float("%.4g" % host), "version": torch.__version__}
    line.update({k: float("%.4g" % v) for k, v in more.items()})
    print(json.dumps(line), flush=True)


def sizes():
    return (4096, 1024) if QUICK else (65536, 1024)


def chain(v, w):
    import torch
    for _ in range(4):
        v = torch.nn.functional.gelu(v * w + 0.1)
    return v


def kernels(torch):
    F = torch.nn.functional
    rows, columns = sizes()
    x, y, row = (torch.randn(n, columns, device="cuda") for n in (rows, rows, 1))
    size = "%dMiB" % (rows * columns * 4 >> 20)
    bytes_of_x = rows * columns * 4

    cases = (("copy", lambda: y.copy_(x), 2), ("add", lambda: x + y, 3),
             ("chain of 12, traced", lambda: chain(x, row), 2), ("softmax", lambda: torch.softmax(x, -1), 2),
             ("layer_norm", lambda: F.layer_norm(x, (columns,)), 2), ("sum, rows", lambda: x.sum(1), 1),
             ("sum, columns", lambda: x.sum(0), 1), ("transpose", lambda: x.t().contiguous(), 2),
             ("cast to bf16", lambda: x.to(torch.bfloat16), 1.5))
    for name, run, moved in cases:
        us, host = timed(torch, run, 20)
        report(torch, name, size, "f32", "torch", us, host, gbps=moved * bytes_of_x / us * 1e-3)
    one = torch.randn(1, 1, device="cuda")
    us, host = timed(torch, lambda: one + one, 1000)
    report(torch, "add of one element", "4", "f32", "torch", us, host)
    captured(torch, one)


def captured(torch, one):
    """32 launches as a graph."""
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()

    def adds():
        v = one
        for _ in range(32):
            v = v + one
        return v

    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        adds()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        adds()
    us, host = timed(torch, graph.replay, 200)
    report(torch, "captured graph of 32 kernels", "4", "f32", "torch", us, host, us_per_kernel=us / 32)


def products(torch):
    for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16"), (torch.float16, "f16")):
        n = 512 if QUICK else 4096 if name == "f32" else 8192
        a, b = (torch.randn(n, n, device="cuda").to(dtype) for _ in range(2))
        us, host = timed(torch, lambda: a @ b, 5)
        report(torch, "matmul", str(n), name, "torch", us, host, tflops=2 * n ** 3 / us * 1e-6)


def training(torch, halves, compiled):
    """A GPT-2 of the size that bench_gpu trains, with a tied head and no dropout. halves: by autocast to bf16."""
    F, nn = torch.nn.functional, torch.nn
    vocab, dim, layers, heads, context, batch = (256, 64, 2, 2, 64, 2) if QUICK else (50257, 768, 12, 12, 1024, 8)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.fc, self.proj = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = (p.view(b, t, heads, dim // heads).transpose(1, 2) for p in self.qkv(self.ln_1(x)).split(dim, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, dim))
            return x + self.proj(F.gelu(self.fc(self.ln_2(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(context, dim)
            self.h, self.ln_f = nn.ModuleList(Block() for _ in range(layers)), nn.LayerNorm(dim)

        def forward(self, tokens, targets):
            x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
            for block in self.h:
                x = block(x)
            logits = self.ln_f(x) @ self.wte.weight.t()
            return F.cross_entropy(logits.view(-1, vocab), targets.reshape(-1))

    model = Model().cuda()
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    tokens = torch.randint(0, vocab, (batch, context + 1), device="cuda")
    size = "small" if QUICK else "124M"
    peer, forward = ("torch.compile", torch.compile(model)) if compiled else ("torch", model)

    def step():
        adam.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=halves):
            loss = forward(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
    us, host = timed(torch, step, 1)
    name = "training step, traced" if compiled else "training step"
    report(torch, name, size, "bf16" if halves else "f32", peer, us, host, ms=us * 1e-3, tokens_per_s=batch * context / us * 1e6)


def compiled_chain(torch):
    rows, columns = sizes()
    x, row = (torch.randn(n, columns, device="cuda") for n in (rows, 1))
    run = torch.compile(chain)
    us, host = timed(torch, lambda: run(x, row), 20)
    report(torch, "chain of 12, traced", "%dMiB" % (rows * columns * 4 >> 20), "f32", "torch.compile", us, host,
           gbps=2 * rows * columns * 4 / us * 1e-3)


def main():
    import torch
    if not torch.cuda.is_available():
        print("gpu.py: nothing is timed: torch sees no GPU", file=sys.stderr)
        return
    torch.backends.cuda.matmul.allow_tf32 = False
    kernels(torch)
    products(torch)
    training(torch, False, False)
    training(torch, True, False)
    # last: compiling takes a minute, and may be what there is no time for
    for run in (lambda: compiled_chain(torch), lambda: training(torch, True, True), lambda: training(torch, False, True)):
        try:
            run()
        except Exception as e:
            print("gpu.py: torch.compile: %s" % str(e)[:500], file=sys.stderr)


main()
