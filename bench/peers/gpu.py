# bench/peers/gpu.py -- the cases of bench_gpu in PyTorch, eager and torch.compile, on the GPU.
#
#   gpu.py [--smoke]
#
# bf16 steps by autocast; parameters and optimiser stay f32. As on the C side: times between two events around a batch of calls,
# medians over rounds after warm-up; a row takes about half a second. TF32 off. --smoke: on the CPU, every case once on a few
# elements, for tests.
import sys
import time

from support import timing

SMOKE = sys.argv[1:] == ["--smoke"]
DEVICE = "cpu" if SMOKE else "cuda"
QUICK = SMOKE or timing.QUICK


class HostClock:
    """An event where there is no GPU."""
    def record(self):
        self.at = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return (end.at - self.at) * 1e3


def timed(torch, run, calls, seconds=0.5):
    begin, end = ((HostClock() if SMOKE else torch.cuda.Event(enable_timing=True)) for _ in range(2))

    def batch(n):
        start = time.perf_counter()
        begin.record()
        for _ in range(n):
            run()
        end.record()
        queued = time.perf_counter() - start
        end.synchronize()
        return begin.elapsed_time(end) * 1e3, queued * 1e6

    return timing.median_on_device(batch, calls, seconds, SMOKE)


def report(torch, case, size, dtype, peer, us, host, **more):
    timing.line(bench="gpu", case=case, size=size, dtype=dtype, peer=peer, clock="device", us=us, host_us=host,
                version=torch.__version__, **more)


def sizes():
    return (8, 64) if SMOKE else (4096, 1024) if QUICK else (65536, 1024)


def size_name(n):
    return "%dMiB" % (n >> 20) if n >> 20 else "%dKiB" % (n >> 10)


def chain(v, w, gelus=False):
    import torch
    F = torch.nn.functional
    for _ in range(4):
        v = (F.gelu if gelus else F.relu)(v * w + 0.1)
    return v


def kernels_on(torch, rows, columns, dtype, name, odd=False):
    F = torch.nn.functional
    if name == "u8":
        x, y, row = (torch.zeros(n, columns, device=DEVICE, dtype=dtype) for n in (rows, rows, 1))
    else:
        x, y, row = (torch.randn(n, columns, device=DEVICE).to(dtype) for n in (rows, rows, 1))
    bytes_of_x = rows * columns * x.element_size()
    size = "%dx%d" % (rows, columns) if odd else size_name(bytes_of_x)
    half = {"f32": ("cast to bf16", torch.bfloat16, 1.5), "bf16": ("cast to f32", torch.float32, 3)}
    cases = [("copy", lambda: y.copy_(x), 2, name == "f32" and not odd), ("add", lambda: x + y, 3, name != "u8"),
             ("times a column", lambda: x * x[:, :1], 2, name != "u8"),
             ("chain of 12, traced", lambda: chain(x, row), 2, name != "u8"),
             ("chain with 4 gelus, traced", lambda: chain(x, row, True), 2, name == "f32" and not odd),
             ("softmax", lambda: torch.softmax(x, -1), 2, name != "u8"),
             ("layer_norm", lambda: F.layer_norm(x, (columns,)), 2, name != "u8"),
             ("sum, rows", lambda: x.sum(1), 1, name != "u8"), ("sum, columns", lambda: x.sum(0), 1, name != "u8"),
             ("transpose", lambda: x.t().contiguous(), 2, True),
             ("cumsum, rows", lambda: x.cumsum(1), 2, name != "u8"),
             ("cumsum, columns", lambda: x.cumsum(0), 2, name != "u8" and not odd),
             ("cumsum, 2^20 elements of a line", lambda: x[:1024].reshape(-1).cumsum(0), 0, name == "f32" and not odd),
             ("argmax, all", lambda: x.flatten().argmax(), 1, name != "u8" and not odd),
             ("argmax, rows", lambda: x.argmax(1), 1, name != "u8"),
             ("argmax, columns", lambda: x.argmax(0), 1, name != "u8" and not odd)]
    if name in half and not odd:
        cases.append((half[name][0], lambda: x.to(half[name][1]), half[name][2], True))
    for case, run, moved, wanted in cases:
        if wanted:
            us, host = timed(torch, run, 20)
            report(torch, case, size, name, "torch", us, host, gbps=moved * bytes_of_x / us * 1e-3)


def kernels(torch):
    rows, columns = sizes()
    kernels_on(torch, rows, columns, torch.float32, "f32")
    kernels_on(torch, rows, columns, torch.bfloat16, "bf16")
    kernels_on(torch, 2 * rows, columns, torch.uint8, "u8")
    kernels_on(torch, rows - 3, columns - 3, torch.float32, "f32", True)
    kernels_on(torch, rows - 3, columns - 3, torch.bfloat16, "bf16", True)


def launches(torch):
    one = torch.randn(1, 1, device=DEVICE)
    us, host = timed(torch, lambda: one + one, 1000)
    report(torch, "add of one element", "4", "f32", "torch", us, host)
    if not SMOKE:
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
        n = 32 if SMOKE else 512 if QUICK else 4096 if name == "f32" else 8192
        a, b = (torch.randn(n, n, device=DEVICE).to(dtype) for _ in range(2))
        us, host = timed(torch, lambda: a @ b, 5)
        report(torch, "matmul", str(n), name, "torch", us, host, tflops=2 * n ** 3 / us * 1e-6)


def differentiated(torch, run, operands, name, size, dtype, flops, more, deterministic=False):
    """Forward, and with gradients, which is `more` times the arithmetic. deterministic: with gradients once more, by what PyTorch calls
    deterministic algorithms, as weft's are."""
    with torch.no_grad():
        us, host = timed(torch, lambda: run(*operands), 10)
    report(torch, name, size, dtype, "torch", us, host, tflops=flops / us * 1e-6)
    for t in operands:
        t.requires_grad_()
    gradient = torch.randn_like(run(*operands))

    def both():
        for t in operands:
            t.grad = None
        run(*operands).backward(gradient)

    for peer in ("torch", "torch, deterministic") if deterministic else ("torch",):
        torch.use_deterministic_algorithms(peer != "torch", warn_only=True)
        us, host = timed(torch, both, 10)
        report(torch, name + ", with gradients", size, dtype, peer, us, host, tflops=more * flops / us * 1e-6)
    torch.use_deterministic_algorithms(False)


def convolutions(torch):
    for c, hw in ((4, 8),) if SMOKE else ((64, 56), (256, 14)):
        for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16"), (torch.float16, "f16")):
            n = 1 if SMOKE else 4 if QUICK else 32
            x, w = (torch.randn(s, device=DEVICE).to(dtype) for s in ((n, c, hw, hw), (c, c, 3, 3)))
            differentiated(torch, lambda x, w: torch.nn.functional.conv2d(x, w, padding=1), (x, w), "convolution 3x3",
                           "%dx%dx%dx%d" % (n, c, hw, hw), name, 2.0 * 9 * n * c * c * hw * hw, 3)


def attention(torch):
    shape = (1, 2, 16, 8) if SMOKE else (2, 16, 256, 64) if QUICK else (8, 16, 2048, 64)
    for dtype, name in ((torch.bfloat16, "bf16"), (torch.float16, "f16")):
        operands = [torch.randn(shape, device=DEVICE).to(dtype) for _ in range(3)]
        differentiated(torch, lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), operands,
                       "attention, causal", "x".join(map(str, shape)), name, 2.0 * shape[0] * shape[1] * shape[2] ** 2 * shape[3], 3.5, deterministic=True)


def first_operations(torch):
    """Those of ResNet-50, as bench_gpu: the stem and three blocks, forward, statistics of the batch."""
    nn = torch.nn

    def conv_norm(i, o, kernel, stride=1):
        return nn.Sequential(nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(o))

    class Block(nn.Module):
        def __init__(self, i):
            super().__init__()
            self.a, self.b, self.c = conv_norm(i, 64, 1), conv_norm(64, 64, 3), conv_norm(64, 256, 1)
            self.skip = conv_norm(i, 256, 1) if i != 256 else nn.Identity()

        def forward(self, x):
            return torch.relu(self.c(torch.relu(self.b(torch.relu(self.a(x))))) + self.skip(x))

    model = nn.Sequential(conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Block(64), Block(256), Block(256)).to(DEVICE)
    batch, extent = (1, 16) if SMOKE else (32, 64) if QUICK else (32, 224)
    images = torch.randn(batch, 3, extent, extent, device=DEVICE)
    us, host = timed(torch, lambda: model(images), 1)
    report(torch, "first operations of ResNet-50", "batch %d" % batch, "f32", "torch", us, host, ms=us * 1e-3,
           host_ms=host * 1e-3, ahead_ratio=us / host)


def training(torch, halves, compiled):
    """A GPT-2 of the size that bench_gpu trains, with a tied head and no dropout. halves: by autocast to bf16."""
    F, nn = torch.nn.functional, torch.nn
    vocab, dim, layers, heads, context, batch = (32, 16, 1, 2, 8, 2) if SMOKE else (256, 64, 2, 2, 64, 2) if QUICK else (50257, 768, 12, 12, 1024, 8)

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

    model = Model().to(DEVICE)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    tokens = torch.randint(0, vocab, (batch, context + 1), device=DEVICE)
    size = "small" if QUICK else "124M"
    peer, forward = ("torch.compile", torch.compile(model)) if compiled else ("torch", model)

    def step():
        adam.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16, enabled=halves):
            loss = forward(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
    us, host = timed(torch, step, 1, 2)
    name = "training step, traced" if compiled else "training step"
    report(torch, name, size, "bf16" if halves else "f32", peer, us, host, ms=us * 1e-3, tokens_per_s=batch * context / us * 1e6)


def compiled_chain(torch, gelus):
    rows, columns = sizes()
    x, row = (torch.randn(n, columns, device=DEVICE) for n in (rows, 1))
    run = torch.compile(chain)
    us, host = timed(torch, lambda: run(x, row, gelus), 20)
    report(torch, "chain with 4 gelus, traced" if gelus else "chain of 12, traced", size_name(rows * columns * 4), "f32",
           "torch.compile", us, host, gbps=2 * rows * columns * 4 / us * 1e-3)


def main():
    import torch
    if not torch.cuda.is_available() and not SMOKE:
        print("gpu.py: nothing is timed: torch sees no GPU", file=sys.stderr)
        return
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    kernels(torch)
    cases = [lambda: launches(torch), lambda: products(torch), lambda: training(torch, False, False), lambda: training(torch, True, False),
             lambda: first_operations(torch), lambda: convolutions(torch), lambda: attention(torch)]
    if not SMOKE:  # last: compiling takes a minute, and may be what there is no time for
        cases += [lambda: compiled_chain(torch, False), lambda: training(torch, True, True), lambda: training(torch, False, True),
                  lambda: compiled_chain(torch, True)]
    for run in cases:
        try:
            run()
        except Exception as e:
            print("gpu.py: %s" % str(e)[:500], file=sys.stderr)


main()
