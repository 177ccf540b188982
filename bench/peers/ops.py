#!/usr/bin/env python3
# bench/peers/ops.py -- the cases of bench_eager and bench_gemm in PyTorch, eager, on the CPU.
#
# As on the C side: CPU time for one thread, wall clock for more; medians of
# batches. A line carries the keys that name the row and "torch_..." columns. Memory allocators keep what
# was freed (script/bench sets that up), so that large results cost no page faults, as they cost weft none.
# Started from Python: its part of a small call is in the figure, as it is in every PyTorch program.
# A row that ends the process, or takes more than WEFT_PEER_SECONDS (60), says so, and the rows after it are measured.
import os
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(1)
if sys.argv[1:] == ["--needs"]:
    sys.exit(0)

from support import timing

rows = None
only = ""


def time(run, unit, bench, case, threads, size=None, dtype="f32", per=1, **how):
    """A row: what a call of run() takes, over `per`, in "ns" or "us"."""
    row = {"bench": bench, "case": case, **({"size": size} if size else {}), "dtype": dtype, "threads": threads}
    if only not in case or not rows.next(**row):
        return
    torch.set_num_threads(threads)
    seconds = timing.median_of(run, threads, **how) / per
    timing.line(**row, **{"torch_" + unit: seconds * {"ns": 1e9, "us": 1e6}[unit]})


def size_name(size):
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return "%.4g%s" % (size / scale, unit)
    return "%dB" % size


def calls():
    a, b = torch.randn(1), torch.zeros(1)
    square, row = torch.randn(4, 4), torch.randn(4)

    def chain(backward):
        y = a
        for _ in range(256):
            y = y + b
        if backward:
            y.sum().backward()

    def report(case, run, per=1):
        time(run, "ns", "call", case, 1, per=per)

    with torch.no_grad():
        report("add, freed", lambda: a + b)
        report("add_ in place", lambda: a.add_(b))
        report("mul by a number", lambda: a * 0.5)
        report("add 4x4 + 4, freed", lambda: square + row)
        report("transpose view 4x4, freed", lambda: square.transpose(0, 1))
        report("sum 4x4, freed", lambda: square.sum())
    a.requires_grad_(True)
    report("add, recorded, freed", lambda: a + b)
    report("chain of 256 adds, recorded", lambda: chain(False), 256)
    report("the chain and its backward", lambda: chain(True), 256)
    with torch.no_grad():
        report("add, freed, in no_grad", lambda: a + b)


def large_ops():
    for n in (64 << 10, 16 << 20):
        side = 1
        while side * side < n:
            side *= 2
        x, y = torch.randn(n // 1024, 1024), torch.randn(n // 1024, 1024)
        half, wide = x.bfloat16(), torch.randn(n // 2048, 1024, dtype=torch.float64)
        square, square_t = y.reshape(n // side, side), x.reshape(n // side, side).t()
        half_square = y.bfloat16().reshape(n // side, side)
        half_t = half.reshape(n // side, side).t()
        weight, bias = torch.randn(1024), torch.randn(1024)
        both = torch.randn(n // 512, 1024)
        cases = {
            "add": lambda: x + y,
            "mul": lambda: x * y,
            "exp": lambda: torch.exp(x),
            "tanh": lambda: torch.tanh(x),
            "atan2": lambda: torch.atan2(x, y),
            "gelu": lambda: F.gelu(x),
            "gelu_tanh": lambda: F.gelu(x, approximate="tanh"),
            "gelu_half": lambda: both[:, :512] * F.gelu(both[:, 512:]),
            "cast_f32_bf16": lambda: x.bfloat16(),
            "cast_bf16_f32": lambda: half.float(),
            "cast_f32_f16": lambda: x.half(),
            "sum_all": lambda: x.sum(),
            "sum_inner": lambda: x.sum(1),
            "sum_outer": lambda: x.sum(0),
            "sum_inner_bf16": lambda: half.sum(1),
            "sum_outer_bf16": lambda: half.sum(0),
            "sum_inner_f64": lambda: wide.sum(1),
            "sum_outer_f64": lambda: wide.sum(0),
            "cumsum_inner": lambda: x.cumsum(1),
            "cumsum_outer": lambda: x.cumsum(0),
            "softmax": lambda: F.softmax(x, -1),
            "layer_norm": lambda: F.layer_norm(x, (1024,), weight, bias),
            "transpose": lambda: square_t.contiguous(),
            "transpose_bf16": lambda: half_t.contiguous(),
            "add_transposed": lambda: square + square_t,
            "add_transposed_bf16": lambda: half_square + half_t,
        }
        with torch.no_grad():
            for case, run in cases.items():
                for threads in (1, 2):
                    time(run, "us", "eager", case, threads, size_name(4 * n))


PRODUCTS = ((16, 16, 16), (64, 64, 64), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024),
            (2048, 2048, 2048), (1, 1024, 1024), (1, 4096, 4096), (8, 1024, 1024), (32, 1024, 1024),
            (1024, 1024, 32), (128, 768, 768), (1024, 8, 1024), (4096, 1, 4096), (64, 64, 4096))
# n, channels in, size, channels out, kernel, stride
LAYERS = ((1, 3, 224, 64, 7, 2), (1, 64, 56, 64, 3, 1), (1, 128, 28, 128, 3, 1),
          (1, 256, 14, 256, 3, 1), (1, 512, 7, 512, 3, 1), (1, 2048, 7, 512, 1, 1),
          (8, 2048, 7, 512, 1, 1), (8, 64, 56, 256, 1, 1), (8, 64, 56, 64, 3, 1),
          (8, 256, 14, 256, 3, 1))
TYPES = (("f32", torch.float32), ("bf16", torch.bfloat16))


def products():
    for name, dtype in TYPES:
        for m, n, k in PRODUCTS:
            a = torch.randn(m, k).to(dtype)
            for transposed in (False, True):
                b = torch.randn(n, k).to(dtype).t() if transposed else torch.randn(k, n).to(dtype)
                case = "%dx%dx%d%s" % (m, n, k, " B^T" if transposed else "")
                out = torch.empty(m, n, dtype=dtype)
                for threads in (1, 2):
                    time(lambda: torch.mm(a, b, out=out), "us", "gemm", case, threads, dtype=name, batch=2e-3, rounds=7)


def convolutions():
    for name, dtype in TYPES:
        for n, c, size, o, k, stride in LAYERS:
            x = torch.randn(n, c, size, size).to(dtype).to(memory_format=torch.channels_last)
            w = torch.randn(o, c, k, k).to(dtype).to(memory_format=torch.channels_last)
            case = "forward n%d %dx%d/%d %d->%d @%d" % (n, k, k, stride, c, o, size)
            for threads in (1, 2):
                time(lambda: F.conv2d(x, w, stride=stride, padding=k // 2), "us", "conv2d", case, threads, dtype=name,
                     batch=2e-3, rounds=7)


def main():
    global rows, only
    if sys.argv[1:2] != ["--rows"]:
        limit = int(os.environ.get("WEFT_PEER_SECONDS", "60"))
        return not timing.one_after_another([__file__, "--rows", *(sys.argv[1:2] or [""])], limit, "torch_failed")
    only, rows = sys.argv[2], timing.Rows(*sys.argv[3:5])
    calls()
    large_ops()
    with torch.no_grad():
        products()
        convolutions()
    return 0


if __name__ == "__main__":
    sys.exit(main())
