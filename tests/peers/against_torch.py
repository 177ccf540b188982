#!/usr/bin/env python3
# tests/peers/against_torch.py -- every op that PyTorch has too, called in both and compared.
#
#   tests/peers/against_torch.py [--traced] [--strided] [library, default build/release/libweft.so] [section...]
#
# A case is one call of weft and one expression of torch on the same tensors. Compared are: refused or not, element type,
# shape, values (any NaN equals any, signs of zero are not looked at) and gradients. Values go through a lattice of
# awkward numbers in every type; shapes have axes of 0 and 1, negative axes and axes out of range; `kinks` are gradients at
# poles, ties and zeros; `second` are gradients of gradients; `programs` are random ones with views and writes in place;
# `optimisers` walk twenty steps; `modules` are layers with torch's weights, `gpt` is a model of them that trains. What differs on purpose is in MEANT, with the
# reason, and for users in docs/from-pytorch.md. The last line counts; status 1 if anything else differs. Needs NumPy and
# PyTorch 2.4 or later; takes about a minute, two with --traced, which runs cases in regions of a trace as native kernels. Under
# --strided every operand is a view of foreign memory: axes in any order, gaps, reversed.
import itertools
import random
import re
import sys

import numpy as np
import torch
import torch.nn.functional as F

import binding
from binding import (C, D, DTYPES, I, L, NONE, ZERO, Adagrad, Adam, Attention, AttentionInit, BatchNorm, BatchNormInit, Close, Conv, ConvInit)
from binding import (ConvTranspose, ConvTransposeInit, CrossEntropy, EncoderInit, GptInit, GroupNorm, GroupNormInit, InstanceNorm, Interpolate)
from binding import (LayerNorm, Loss, Norm, NormInit, Pool, RecurrentInit, Reduce)
from binding import (RmsNorm, RmsProp, Scope, Sgd, Shape, Tensor, Trace, Var, WeftError, args, array, backward, call, get, grad)
from binding import grad_of, op, open_library, operand, put, several, shape, status

Bool = C.c_bool
f32, f64, i64, nan, inf = torch.float32, torch.float64, torch.int64, float("nan"), float("inf")
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, f32, f64]
ALL = [torch.bool, *INTEGERS, *FLOATS]

# (case, difference): regular expressions, searched; why.
MEANT = [
    (
        "",
        "only torch refuses.*(not implemented for|does not support bool|ZeroDivisionError|with a bool tensor|no identity)",
        "weft has the op for more types",
    ),
    ("", "only weft refuses.*(bool operands are not accepted|is bool; this op takes numbers)", "two bools have no arithmetic"),
    ("sign ", r"^\[nan\]", "NaN stays NaN"),
    ("(gelu|gelu_tanh|silu|mish)( |$)", r"^\[-?inf\]", "the limit, where torch has inf * 0"),
    ("(normcdf|gelu|gelu_tanh)( |$)", r"^\[-(20.5|7|3.0)\]", "torch's tail is 0, or has few digits"),
    ("floor_divide ", r"^\[\S*, \S*\] weft -?inf torch nan", "infinite where the quotient is"),
    ("floor_divide", "derivative for aten::floor_divide", "zero almost everywhere"),
    ("(fmod|remainder) ", r"weft \S+ torch nan", "exact, however large the quotient"),
    ("norm .*empty", "only torch refuses", "the norm of nothing is 0"),
    ("(any|all) uint8", "uint8", "bool for every type"),
    ("arg(max|min) bool", "only torch refuses", "for bool, too"),
    ("squeeze", "only weft refuses.*only axes of extent 1", "as NumPy"),
    ("broadcast_to", "only weft refuses.*is negative", "-1 is weft_expand's"),
    ("roll", "only weft refuses.*out of range", "axes are checked when there are no elements, too"),
    ("", "only weft refuses.*for rank 0", "a tensor of rank 0 has no axes to permute"),
    ("concat", "only weft refuses.*has rank", "torch skips tensors of extents [0]"),
    ("pad", "only weft refuses.*is negative", "weft_slice removes"),
    ("(conv1d|conv2d|pool2d|conv_transpose)", "only weft refuses.*has rank [23]", "batches only"),
    ("(group|instance)_norm.*\\b0\\b.*\\)", "only torch refuses.*(IndexError|to be greater than 0)", "of nothing there is nothing to do"),
    ("conv_transpose2d \\(0,", "only weft refuses.*output_padding", "torch does not look at options when there are no images"),
    ("adaptive_avg_pool2d.*\\(0, 2\\)", "only torch refuses.*backward", "torch has no gradient of no windows"),
    ("interpolate \\(1, 2, 3, 4, 5\\) 1.3 [02]", "weft", "torch copies axes that keep their extent, whatever the scale, but in one kernel"),
    ("adaptive_avg_pool2d.*0, 3\\) 1 ", "only weft refuses.*cannot become", "the mean of nothing"),
    ("pad_mode.* [012] 0 0$", "only torch refuses.*non-zero dimensions", "of nothing there is nothing to do"),
    ("conv2d.*0 images", "only weft refuses", "torch does not look at options when there are no images"),
    (r"kink (abs|sign|norm .*)( d0)?$", r"(nan, 2\]|^\[nan\]).*weft nan torch -?0.0", "NaN stays NaN"),
    ("kink (relu|hardswish) d0", r"^\[nan\]", "where a NaN won"),
    ("kink (max|min)(imum)?.* d[01]", "nan", "where a NaN won"),
    ("kink (fmod|remainder).* d[01]", "weft nan", "by 0, or infinite: there is no value"),
    ("kink fmod.* d[01]", r"\[.*(0.001|e-08)\]", "torch's quotient rounds to a whole number that the exact one does not reach"),
    ("kink copysign", r"^\[(nan|-?inf|-?0.0)", "as of |a|, from one side"),
    ("kink xlogy", r"^\[(-?0.0, )?-?0.0\] weft 0.0 torch nan", "zero, as the value"),
    ("kink (cum)?prod", r"torch nan", "running products divide by nothing, products in f64"),
    ("kink norm .*nan", r"torch nan", "zeros take no gradient"),
    ("hardsigmoid second", "is not implemented", "torch has none"),
    ("relu|relu6|hardsigmoid|copysign", "nothing it was computed from", "linear in pieces: there is no second gradient"),
    ("acosh", "nan torch", "no gradient where there is no value"),
    ("hardsigmoid (ordinary )?d0", "", "torch divides by a float"),
    ("program", "torch one of the variables needed", "weft keeps what x.mul_(x) needs, or does not need it"),
    ("program", "torch a view of a leaf", "refused by both"),
]

tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2, f32: 4e-6, f64: 1e-12}
cases, meant, wrong, trace = 0, 0, [], None


def differs(case, text):
    global meant
    if any(re.search(c, case) and re.search(d, text) for c, d, _ in MEANT):
        meant += 1
    else:
        wrong.append(f"{case}: {text}")


def compare(case, ours, theirs, inputs=(), tol=None, size=0.0):
    """size: of terms that cancel, in a sum."""
    if ours.dtype != theirs.dtype:
        differs(case, f"weft {ours.dtype} torch {theirs.dtype}")
    if ours.shape != theirs.shape:
        return differs(case, f"weft {list(ours.shape)} torch {list(theirs.shape)}")
    if not ours.dtype.is_floating_point:
        off = ours != theirs.to(ours.dtype)
    else:
        a, b = ours.double(), theirs.double()
        bound = (tol or tolerance[ours.dtype]) * (b.abs() + size) + 4 * torch.finfo(ours.dtype).tiny
        off = ~((a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= bound))
    for at in off.flatten().nonzero().flatten().tolist():
        where = [x.flatten()[at].item() for x in inputs if x.shape == ours.shape]
        differs(case, f"{where} weft {ours.flatten()[at].item()} torch {theirs.flatten()[at].item()}")


def attempt(call):
    try:
        return call(), None
    except (WeftError, RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, ZeroDivisionError) as e:
        return None, f"{type(e).__name__} {e}".replace("\n", " ")[:300]


def in_region(run):
    """run(), under --traced as a region of a trace, with native kernels."""
    if not trace:
        return run()
    status("jit_begin", C.c_void_p(trace))
    try:
        return run()
    finally:
        status("jit_end", C.c_void_p(trace))


def case(name, ours, theirs, *inputs, gradients=True, tol=None, size=0.0):
    global cases
    cases += 1
    wants = [gradients and x.dtype in (f32, f64) for x in inputs]
    theirs_in = [x.clone().requires_grad_(w) for x, w in zip(inputs, wants)]
    seed = None

    def in_torch():
        nonlocal seed
        y = theirs(*theirs_in)
        if any(wants) and y.requires_grad:
            seed = torch.randn(y.shape, dtype=f64).to(y.dtype)
            y.backward(seed)
        return y

    def in_weft():
        y = ours(*ours_in)
        if seed is not None:
            backward(y, put(seed))
        return y

    with Scope():
        ours_in = [put(x, w) for x, w in zip(inputs, wants)]
        t, torch_refuses = attempt(in_torch)
        w, weft_refuses = attempt(lambda: in_region(in_weft))
        if torch_refuses or weft_refuses:
            if not (torch_refuses and weft_refuses):
                differs(name, f"only {'torch' if torch_refuses else 'weft'} refuses: {torch_refuses or weft_refuses}")
            return
        compare(name, get(w), t.detach(), inputs, tol, size)
        for k, (x, y) in enumerate(zip(ours_in, theirs_in)):
            if wants[k] and y.grad is not None:
                g = grad(x)
                g = torch.zeros_like(y) if g is None else g
                compare(f"{name} d{k}", g, y.grad, inputs, 1e3 * tolerance[g.dtype], size=1.0)


def some(*extents, d=f32):
    if d == torch.bool:
        return torch.rand(extents) > 0.5
    return torch.randn(extents, dtype=f64).to(d) if d.is_floating_point else torch.randint(0 if d == torch.uint8 else -9, 9, extents).to(d)


# -- elementwise ---------------------------------------------------------------------------------------------
UNARY = {n: getattr(torch, n) for n in """neg abs sign square reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin
    acos atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc floor ceil trunc round bitwise_not isnan isinf isfinite signbit
    logical_not""".split()}
UNARY |= {n: getattr(F, n) for n in "gelu silu mish relu relu6 hardsigmoid hardswish selu".split()}
UNARY |= dict(
    log_sigmoid=F.logsigmoid,
    normcdf=torch.special.ndtr,
    gelu_tanh=lambda x: F.gelu(x, approximate="tanh"),
    softplus=lambda x: torch.logaddexp(x, torch.zeros_like(x)),
)
BINARY = {n: getattr(torch, n) for n in """add sub mul div floor_divide remainder fmod pow maximum minimum atan2 hypot copysign logaddexp
    xlogy bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift logical_and logical_or logical_xor""".split()}
BINARY |= dict(equal=torch.eq, not_equal=torch.ne, less=torch.lt, less_equal=torch.le, greater=torch.gt, greater_equal=torch.ge)
LATTICE = [nan, inf, -inf, 0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 1e-30, -1e-30, 1e30, -1e30, 88.5, -88.5, 104, -104, 3.5, 2.5, -2.5]
LATTICE += [1e-3, -1e-3, 6, -3, 3, 20.5, -20.5, 7.25, 1e-8, 0.9999999]


def lattice(d):
    if d.is_floating_point:
        return torch.tensor(LATTICE, dtype=f64).to(d)
    if d == torch.bool:
        return torch.tensor([False, True])
    ends = torch.iinfo(d)
    return torch.tensor(sorted({0, 1, 2, 7, ends.max, ends.min, ends.max - 1, 100, *([-1, -2, -7] if ends.min else [])}), dtype=d)


def pairs(a, b):
    return a.repeat_interleave(len(b)), b.repeat(len(a))


def elementwise():
    wide = [torch.bool, *INTEGERS, f32, f64]  # torch's own f16 and bf16 functions are less exact than the tolerance
    for n, f in UNARY.items():
        for d in wide:
            case(f"{n} {d} ", lambda x: op(n, x), f, lattice(d), gradients=False)
        case(f"{n} ordinary", lambda x: op(n, x), f, torch.tensor([0.1, 0.3, -0.4, 0.7, -0.9], dtype=f64))
    shifts = ("bitwise_left_shift", "bitwise_right_shift")
    for n, f in BINARY.items():
        for a, b in itertools.product(wide, wide):
            x, y = pairs(lattice(a), lattice(b))
            if not b.is_floating_point and not a.is_floating_point:
                if n in shifts:
                    y = y.clamp(0, 6) if b != torch.bool else y
                if n in ("floor_divide", "remainder", "fmod"):  # by 0 is an error there; the least by -1 a signal, once
                    least = 0 if a == torch.bool else torch.iinfo(a).min
                    fit = (y != 0) & ((y != -1) | (x.long() != least))
                    x, y = x[fit], y[fit]
            if n == "pow" and not b.is_floating_point:
                x, y = x[y >= 0], y[y >= 0]
            case(f"{n} {a} {b} ", lambda x, y: op(n, x, y), f, x, y, gradients=False)
        for a, b in itertools.product(ALL, ALL):
            case(f"{n} {a} {b} type", lambda x, y: op(n, x, y), f, torch.ones(3, 1, dtype=a), torch.ones(2, dtype=b), gradients=False)
        case(f"{n} ordinary", lambda x, y: op(n, x, y), f, torch.rand(3, 1, dtype=f64) + 0.1, torch.rand(4, dtype=f64) + 0.2)
        for d, number in itertools.product(ALL, (True, 2, 2.5)):
            case(f"{n} {d} number", lambda x: op(n, x, number), lambda x: f(x, torch.tensor(number)), torch.ones(3, dtype=d), gradients=False)
    for d in (f32, f64, torch.int32):
        a, b, c = some(3, 1, d=d), some(1, 4, d=d), some(d=d)
        case(f"clamp {d}", lambda x, y, z: op("clamp", x, y, z), torch.clamp, a, b, c)
        case(f"addcmul {d}", lambda x, y, z: op("addcmul", x, y, z), torch.addcmul, a, b, c)
        case(f"where {d}", lambda x, y, z: op("where", x, y, z), torch.where, a > 0, b, c)
    case("lerp", lambda x, y, z: op("lerp", x, y, z), torch.lerp, some(3, d=f64), some(3, d=f64), some(3, d=f64))
    for same in (False, True):
        case(
            f"isclose {same}",
            lambda x, y: op("isclose", args(Close, a=x, b=y, equal_nan=same)),
            lambda x, y: torch.isclose(x, y, equal_nan=same),
            *pairs(lattice(f32), lattice(f32)),
            gradients=False,
        )
    for a, b in itertools.product(ALL, ALL):
        x = lattice(a)
        if a.is_floating_point and not b.is_floating_point and b != torch.bool:  # elsewhere what does not fit is undefined
            x = x[x.isfinite() & (x > (-1 if b == torch.uint8 else -128)) & (x < 127)]
        case(f"cast {a} {b}", lambda x: op("cast", x, I(DTYPES[b])), lambda x: x.to(b), x, gradients=False)


# -- reductions ----------------------------------------------------------------------------------------------
SHAPES = [(), (1,), (5,), (0,), (3, 4), (3, 0), (0, 3), (2, 3, 4), (2, 0, 3), (2, 1, 3, 2), (300,), (65, 130)]


def reduce(name, x, axes, keep=False):
    return op(name, args(Reduce, x=x, axes=shape(*axes or ()), keepdim=keep))


def every(x, axes):
    return tuple(range(x.dim())) if axes is None else axes


def product(x, axes, keep):
    if x.dim() == 0:
        return x.prod()
    for axis in sorted((a % x.dim() for a in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


def real(x):
    return x if x.dtype.is_floating_point else x.float()


REDUCTIONS = dict(
    sum=lambda x, a, k: torch.sum(x, a, keepdim=k),
    prod=product,
    mean=lambda x, a, k: torch.mean(real(x), a, keepdim=k),
    max=lambda x, a, k: torch.amax(x, a, keepdim=k),
    min=lambda x, a, k: torch.amin(x, a, keepdim=k),
    logsumexp=lambda x, a, k: torch.logsumexp(x, a, keepdim=k),
    count_nonzero=lambda x, a, k: (x != 0).sum(a, keepdim=k),
    any=lambda x, a, k: torch.any(x, dim=a, keepdim=k) if a else x.bool(),
    all=lambda x, a, k: torch.all(x, dim=a, keepdim=k) if a else x.bool(),
)


def reductions():
    for s, d in itertools.product(SHAPES, ALL):
        sets = [None, *((a,) for a in range(-len(s), len(s))), *([(0, 1), (-1, 0)] if len(s) > 1 else [])]
        x = some(*s, d=d)
        for axes, keep in itertools.product(sets, (False, True)):
            for n, f in REDUCTIONS.items():
                if n != "prod" or x.numel() < 100:
                    case(
                        f"{n} {str(d)[6:]} {s} {axes} {keep}",
                        lambda x: reduce(n, x, axes, keep),
                        lambda x: f(x, every(x, axes), keep),
                        x,
                        size=float(x.numel()),
                    )
            for n in ("argmax", "argmin"):
                if axes is None or len(axes) == 1:
                    case(
                        f"{n} {str(d)[6:]} {s} {axes} {keep}",
                        lambda x: reduce(n, x, axes, keep),
                        lambda x: getattr(torch, n)(x, dim=axes[0] if axes else None, keepdim=keep),
                        x,
                    )
        for axes, c in itertools.product(sets, (0, 1, 2.5)):
            for n in ("var", "std"):
                case(
                    f"{n} {d} {s} {axes} {c}",
                    lambda x: op(n, args(Var, x=x, axes=shape(*axes or ()), correction=c)),
                    lambda x: getattr(torch, n)(real(x), every(x, axes), correction=c),
                    x,
                    gradients=x.numel() > 4,
                    size=1.0,
                )
        for n, axis in itertools.product(("cumsum", "cumprod"), range(-max(1, len(s)), max(1, len(s)))):
            if n == "cumsum" or x.numel() < 100:
                case(f"{n} {d} {s} {axis}", lambda x: op(n, x, I(axis)), lambda x: getattr(torch, n)(x, axis), x, size=100.0)
    for s, order in itertools.product(SHAPES, (2.0, 1.0, 3.0, inf, -inf, 0.0, -1.0, 0.5)):
        for axes in [None, *((a,) for a in range(-len(s), len(s)))]:
            case(
                f"norm {s} {axes} {order}{' empty' if 0 in s else ''}",
                lambda x: op("norm", args(Norm, x=x, axes=shape(*axes or ()), order=order or ZERO)),
                lambda x: torch.linalg.vector_norm(x, order, dim=axes),
                some(*s, d=f64),
            )
    for values in ([1, nan, 2], [inf, -inf, 1], [-inf, -inf], [inf, inf], [2, 2, 1, 2], [0, 3, 0, 2], [nan, nan]):
        for n, f in REDUCTIONS.items():
            case(f"{n} {values}", lambda x: reduce(n, x, None), lambda x: f(x, (0,), False), torch.tensor(values, dtype=f32), gradients=False)
        for n in ("argmax", "argmin"):
            case(f"{n} {values}", lambda x: reduce(n, x, None), getattr(torch, n), torch.tensor(values, dtype=f32), gradients=False)


# -- views and movement --------------------------------------------------------------------------------------
def views():
    for s in [(), (1,), (6,), (2, 3), (1, 3, 1), (2, 3, 4), (0, 3), (2, 1, 3, 2)]:
        x, r = some(*s), len(s)
        one = lambda name, ours, theirs: case(f"{name} {s}", ours, theirs, x)
        for a in range(-r - 1, r + 1):
            one(f"squeeze {a}", lambda x: op("squeeze", x, shape(a)), lambda x: torch.squeeze(x, a))
            one(f"unsqueeze {a}", lambda x: op("unsqueeze", x, I(a)), lambda x: torch.unsqueeze(x, a))
            one(f"flip {a}", lambda x: op("flip", x, shape(a)), lambda x: torch.flip(x, (a,)))
            for b in range(-r - 1, r + 1):
                one(f"flatten {a} {b}", lambda x: op("flatten", x, I(a), I(b)), lambda x: torch.flatten(x, a, b))
                one(f"transpose {a} {b}", lambda x: op("transpose", x, I(a), I(b)), lambda x: torch.transpose(x, a, b))
                for o in (-3, -1, 0, 1, 5):
                    one(f"diagonal {o} {a} {b}", lambda x: op("diagonal", x, L(o), I(a), I(b)), lambda x: torch.diagonal(x, o, a, b))
            for n in (-9, -2, -1, 0, 1, 2, 7):
                one(f"select {a} {n}", lambda x: op("select", x, I(a), L(n)), lambda x: torch.select(x, a, n))
                one(f"repeat {a} {n}", lambda x: op("repeat", x, L(n), I(a)), lambda x: torch.repeat_interleave(x, n, a))
                one(f"roll {a} {n}", lambda x: op("roll", x, shape(n), shape(a)), lambda x: torch.roll(x, (n,), (a,)))
                for m in (-1, 0, 1, 2, 9):
                    one(f"narrow {a} {n} {m}", lambda x: op("narrow", x, I(a), L(n), L(m)), lambda x: torch.narrow(x, a, n, m))
                    for step in (1, 2, -1, -3):
                        if -r <= a < r:
                            where = tuple(slice(n, m, step) if k == a % r else slice(None) for k in range(r))
                            case(
                                f"slice {s} {a} {n}:{m}:{step}",
                                lambda x: op("slice", x, I(a), L(n), L(m), L(step)),
                                lambda x: torch.tensor(x.detach().numpy()[where].copy()),
                                x,
                                gradients=False,
                            )
            for size, step in itertools.product((0, 1, 2, 3, 5), (-1, 0, 1, 2, 3)):
                one(f"unfold {a} {size} {step}", lambda x: op("unfold", x, I(a), L(size), L(step)), lambda x: x.unfold(a, size, step))
        for t in [(), (1,), (-1,), (6,), (3, 2), (-1, 2), (0, -1), (-1, -1), (2, 0), (3, -1, 2), (-2, 3), (2, 3), (4, 3, 2), (2, 2, 3, 2)]:
            one(f"reshape {t}", lambda x: op("reshape", x, shape(*t)), lambda x: torch.reshape(x, t))
            if t != (0, -1):  # which of the two the extent is torch does not say
                one(f"expand {t}", lambda x: op("expand", x, shape(*t)), lambda x: x.expand(t))
            one(f"broadcast_to {t}", lambda x: op("broadcast_to", x, shape(*t)), lambda x: torch.broadcast_to(x, t))
            if min(t, default=0) >= 0:
                one(f"tile {t}", lambda x: op("tile", x, shape(*t)), lambda x: torch.tile(x, t))
        for p in itertools.permutations(range(-1, r)):
            one(f"permute {p[:r]}", lambda x: op("permute", x, shape(*p[:r])), lambda x: torch.permute(x, p[:r]))
        for k, n in itertools.product((-3, -1, 0, 1, 4), ("tril", "triu")):
            one(f"{n} {k}", lambda x: op(n, x, L(k)), lambda x: getattr(torch, n)(x, k))
        for a in range(-r - 2, r + 2):
            for d, e in [(f32, f32), (f32, torch.int32), (torch.uint8, torch.int8), (torch.float16, torch.bfloat16)]:
                both = some(*s, d=d), some(*s, d=e)
                up = torch.promote_types(d, e)
                case(f"concat {s} {a}", lambda x, y: op("concat", array(x, y), I(2), I(a)), lambda x, y: torch.cat([x, y], a), *both)
                case(f"stack {s} {a}", lambda x, y: op("stack", array(x, y), I(2), I(a)), lambda x, y: torch.stack([x.to(up), y.to(up)], a), *both)
        for before, after in ((0, 0), (1, 0), (0, 2), (3, 3), (-1, 0)):
            one(
                f"pad {before} {after}",
                lambda x: op("pad", x, shape(*[before] * r), shape(*[after] * r), D(1.5)),
                lambda x: F.pad(x, [before, after] * r, value=1.5),
            )


# -- indices, order, products --------------------------------------------------------------------------------
def indices():
    for s, d in itertools.product([(5,), (3, 4), (2, 3, 4), (0, 3), (3, 0)], (f32, i64)):
        x, r = some(*s, d=d), len(s)
        for a in range(-r, r):
            n, along = s[a], tuple(4 if k == a % r and s[a] else e for k, e in enumerate(s))
            at, row = torch.randint(0, max(n, 1), along), torch.randint(0, max(n, 1), (along[a],))
            case(f"gather {s} {a}", lambda x: op("gather", x, I(a), put(at)), lambda x: torch.gather(x, a, at), x)
            case(f"index_select {s} {a}", lambda x: op("index_select", x, I(a), put(row)), lambda x: torch.index_select(x, a, row), x)
            values = some(*along, d=d)
            case(f"scatter_add {s} {a}", lambda x, v: op("scatter_add", x, I(a), put(at), v), lambda x, v: torch.scatter_add(x, a, at, v), x, values)
            case(f"index_add {s} {a}", lambda x, v: op("index_add", x, I(a), put(row), v), lambda x, v: torch.index_add(x, a, row, v), x, values)
    for d, s in itertools.product(ALL, [(), (1,), (0,), (17,), (3, 5), (3, 0), (2, 3, 4), (300,)]):
        x = some(*s, d=d)
        if d.is_floating_point and x.numel() > 7:
            x.view(-1)[:5] = torch.tensor([inf, nan, -inf, 1, nan])
        for a, down in itertools.product(range(-max(1, len(s)), max(1, len(s))), (False, True)):
            sort = lambda x: several("sort", 2, x, I(a), Bool(down))
            for k in (0, 1):
                case(
                    f"sort {d} {s} {a} {down} {k}",
                    lambda x: sort(x)[k],
                    lambda x: torch.sort(x, dim=a, descending=down, stable=True)[k],
                    x,
                    gradients=k == 0,
                )
            for k in (1, 3, 100):
                case(
                    f"topk {d} {s} {a} {k}",
                    lambda x: several("topk", 2, x, L(k), I(a), Bool(not down))[0],
                    lambda x: torch.topk(x, k, a, down)[0],
                    x,
                    gradients=x.numel() < 8,
                )  # torch takes either of two NaN
        mask = torch.rand(s) > 0.5
        case(f"masked_select {d} {s}", lambda x: op("masked_select", x, put(mask)), lambda x: torch.masked_select(x, mask), x)
        case(f"nonzero {d} {s}", lambda x: op("nonzero", x), torch.nonzero, x, gradients=False)
        host = x.float().numpy() if d == torch.bfloat16 else x.numpy()
        for k, want in enumerate(np.unique(host, return_inverse=True, return_counts=True)):
            want = torch.tensor(want).to(i64 if k else d).reshape(s if k == 1 else (-1,))
            case(f"unique {d} {s} {k}", lambda x: several("unique", 3, x)[k], lambda x: want, x, gradients=False)
    for left, right in itertools.product(
        [(), (3,), (4, 3), (3, 4), (2, 4, 3), (1, 3, 4), (5, 1, 3, 4), (0, 3), (3, 0)],
        [(), (3,), (4,), (3, 4), (4, 3), (2, 3, 4), (1, 4, 3), (3, 0), (0,)],
    ):
        for d in (f32, f64, torch.int32, i64):
            case(f"matmul {d} {left} {right}", lambda x, y: op("matmul", x, y), torch.matmul, some(*left, d=d), some(*right, d=d), size=4.0)


# -- layers and losses ---------------------------------------------------------------------------------------
def one_or_two(v):
    return Shape() if v is None else shape(*v) if isinstance(v, tuple) else shape(v)


def layers():
    for s, axis in itertools.product([(5,), (3, 4), (2, 0), (0, 3), (2, 3, 4), ()], range(-3, 3)):
        for n in ("softmax", "log_softmax"):
            case(f"{n} {s} {axis}", lambda x: op(n, x, I(axis)), lambda x: getattr(F, n)(x, axis), some(*s, d=f64))
    for values in ([inf, 1], [-inf, 1], [-inf, -inf], [nan, 1], [1000.0, -1000]):
        for n in ("softmax", "log_softmax"):
            case(f"{n} {values}", lambda x: op(n, x, I(0)), lambda x: getattr(F, n)(x, 0), torch.tensor(values), gradients=False)
    for s, k in itertools.product([(4, 6), (2, 3, 4), (0, 4)], (1, 2)):
        tail = s[-k:]
        for n in range(3):
            inputs = [some(*s, d=f64), *(some(*tail, d=f64) for _ in range(n))]
            case(
                f"layer_norm {s} {k} {n}",
                lambda x, w=NONE, b=NONE: op("layer_norm", args(LayerNorm, x=x, weight=w, bias=b, axes=k)),
                lambda x, w=None, b=None: F.layer_norm(x, tail, w, b),
                *inputs,
                size=1.0,
            )
        case(
            f"rms_norm {s} {k}",
            lambda x, w: op("rms_norm", args(RmsNorm, x=x, weight=w, axes=k)),
            lambda x, w: F.rms_norm(x, tail, w, 1e-6),
            some(*s, d=f64),
            some(*tail, d=f64),
            size=1.0,
        )
    for s, training in itertools.product([(4, 3), (4, 3, 5), (2, 3, 4, 4), (0, 3, 2), (1, 3), (1, 3, 2)], (True, False)):
        mean, var, mine = some(3, d=f64), some(3, d=f64).abs() + 0.1, {}

        def ours(x, w, b):
            mine.update(mean=put(mean), var=put(var))
            return op("batch_norm", args(BatchNorm, x=x, weight=w, bias=b, running_mean=mine["mean"], running_var=mine["var"], training=training))

        case(
            f"batch_norm {s} {training}",
            ours,
            lambda x, w, b: F.batch_norm(x, mean.clone(), var.clone(), w, b, training),
            some(*s, d=f64),
            some(3, d=f64),
            some(3, d=f64),
            size=1.0,
        )
    for x, w, groups in [
        ((2, 3, 7, 8), (4, 3, 3, 3), 1),
        ((1, 4, 5, 5), (6, 2, 3, 2), 2),
        ((2, 4, 6, 6), (4, 1, 3, 3), 4),
        ((0, 3, 7, 7), (4, 3, 3, 3), 1),
        ((1, 3, 2, 2), (4, 3, 3, 3), 1),
        ((3, 7, 8), (4, 3, 3, 3), 1),
        ((2, 3, 7, 8), (4, 2, 3, 3), 1),
    ]:
        for stride, padding, dilation in itertools.product((1, 2, (2, 1), 0), (0, 1, (2, 1), -1), (1, 2, 0)):
            case(
                f"conv2d {x} {w} {stride} {padding} {dilation} {x[0]} images",
                lambda x, w, b: op(
                    "conv2d",
                    args(
                        Conv,
                        x=x,
                        weight=w,
                        bias=b,
                        stride=one_or_two(stride),
                        padding=one_or_two(padding),
                        dilation=one_or_two(dilation),
                        groups=groups,
                    ),
                ),
                lambda x, w, b: F.conv2d(x, w, b, stride, padding, dilation, groups),
                some(*x, d=f64),
                some(*w, d=f64),
                some(w[0], d=f64),
                size=9.0,
            )
    for s, k, stride, padding, up in itertools.product(
        [(2, 3, 7, 8), (1, 1, 5, 5), (3, 7, 8)], (1, 2, 3, (2, 3), 9, 0), (None, 1, 2), (0, 1, 2), (False, True)
    ):
        pool = lambda x, **more: args(Pool, x=x, kernel=one_or_two(k), stride=one_or_two(stride), padding=one_or_two(padding), ceil_mode=up, **more)
        for counted in (False, True):
            case(
                f"avg_pool2d {s} {k} {stride} {padding} {up} {counted}",
                lambda x: op("avg_pool2d", pool(x, count_include_pad=counted)),
                lambda x: F.avg_pool2d(x, k, stride, padding, up, counted),
                some(*s, d=f64),
                size=1.0,
            )
        for dilation in (1, 2):
            case(
                f"max_pool2d {s} {k} {stride} {padding} {up} {dilation}",
                lambda x: op("max_pool2d", pool(x, dilation=shape(dilation))),
                lambda x: F.max_pool2d(x, k, stride, padding, dilation, up),
                some(*s, d=f64),
            )
    for q, k, v in [
        ((2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 6)),
        ((4, 8), (5, 8), (5, 8)),
        ((1, 3, 4, 8), (2, 1, 5, 8), (2, 3, 5, 8)),
        ((2, 0, 8), (2, 5, 8), (2, 5, 8)),
        ((2, 3, 100, 8), (2, 3, 130, 8), (2, 3, 130, 8)),
    ]:
        for mask, causal in [(None, False), (None, True), (torch.rand(q[-2], k[-2]) > 0.3, False), (some(q[-2], k[-2], d=f64), False)]:
            case(
                f"attention {q} {k} {causal}",
                lambda a, b, c: op(
                    "scaled_dot_product_attention", args(Attention, q=a, k=b, v=c, causal=causal, mask=NONE if mask is None else put(mask))
                ),
                lambda a, b, c: F.scaled_dot_product_attention(a, b, c, mask, is_causal=causal),
                some(*q, d=f64),
                some(*k, d=f64),
                some(*v, d=f64),
                size=1.0,
            )
    how = ["mean", "sum", "none"]
    for s, red, smooth, ignored in itertools.product([(4, 5), (2, 3, 5), (5,), (0, 5)], range(3), (0.0, 0.1), (-100, 1)):
        targets = torch.randint(0, 5, s[:-1])
        last = lambda x: x.reshape(-1, 5)
        case(
            f"cross_entropy {s} {red} {smooth} {ignored}",
            lambda x: op(
                "cross_entropy", args(CrossEntropy, logits=x, targets=put(targets), reduction=red, ignore_index=ignored, label_smoothing=smooth)
            ),
            lambda x: (lambda y: y.reshape(targets.shape) if red == 2 else y)(
                F.cross_entropy(last(x), targets.reshape(-1), reduction=how[red], ignore_index=ignored, label_smoothing=smooth)
            ),
            some(*s, d=f64),
            size=1.0,
        )
    for s, red, smooth, ignored in itertools.product([(4, 5), (2, 3, 5), (0, 5)], range(3), (0.0, 0.1), (-100, 1)):
        targets = torch.randint(0, 5, s[:-1])
        last = lambda x: x.reshape(-1, 5)
        options = dict(targets=put(targets), reduction=red, ignore_index=ignored)
        theirs = dict(reduction=how[red], ignore_index=ignored)
        shaped = lambda y: y.reshape(targets.shape) if red == 2 else y
        case(
            f"cross_entropy with weights {s} {red} {smooth} {ignored}",
            lambda x, w: op("cross_entropy", args(CrossEntropy, logits=x, label_smoothing=smooth, weight=w, **options)),
            lambda x, w: shaped(F.cross_entropy(last(x), targets.reshape(-1), w, label_smoothing=smooth, **theirs)),
            some(*s, d=f64),
            torch.rand(5, dtype=f64),
            gradients=False,
            size=1.0,
        )
        weight = torch.rand(5, dtype=f64)
        case(
            f"nll_loss with weights {s} {red} {ignored}",
            lambda x: op("nll_loss", args(CrossEntropy, logits=x, weight=put(weight), **options)),
            lambda x: shaped(F.nll_loss(last(x), targets.reshape(-1), weight, **theirs)),
            some(*s, d=f64),
            size=1.0,
        )
    for s, red in itertools.product([(4,), (3, 4), (0,)], range(3)):
        target, weight, positive = (torch.rand(s, dtype=f64) for _ in range(3))
        case(
            f"bce_with_logits with weights {s} {red}",
            lambda x: op("bce_with_logits", args(Loss, x=x, target=put(target), reduction=red, weight=put(weight), pos_weight=put(positive))),
            lambda x: F.binary_cross_entropy_with_logits(x, target, weight, reduction=how[red], pos_weight=positive),
            some(*s, d=f64),
            size=1.0,
        )
        for logs in (False, True):
            case(
                f"kl_div {s} {red} {logs}",
                lambda x: op("kl_div", args(Loss, x=x, target=put(target), reduction=red, log_target=logs)),
                lambda x: F.kl_div(x, target, reduction=how[red], log_target=logs),
                some(*s, d=f64),
                size=1.0,
            )
    for s, red in itertools.product([(4,), (3, 4), (0,), ()], range(3)):
        for n, f in (
            ("mse_loss", F.mse_loss),
            ("l1_loss", F.l1_loss),
            ("huber_loss", F.huber_loss),
            ("binary_cross_entropy", F.binary_cross_entropy),
            ("bce_with_logits", F.binary_cross_entropy_with_logits),
        ):
            target = torch.rand(s, dtype=f64)
            case(
                f"{n} {s} {red}",
                lambda x: op(n, args(Loss, x=x, target=put(target), reduction=red)),
                lambda x: f(x, target, reduction=how[red]),
                torch.rand(s, dtype=f64),
                size=1.0,
            )


# -- ops made of other ops -----------------------------------------------------------------------------------
EQUATIONS = """ij,jk->ik ij,jk ij,kj->ki bij,bjk->bik bhqd,bhkd->bhqk i,j->ij i,i-> ij->ji ij-> ii ii->i iij->j ijk->kij bi,bi->b ij,ij->ij
    i,ij,j-> ab,bc,cd->da ...ij,...jk->...ik ...ij->...ji i...->... ...i,...i->... a...b,b->a... ij...,jk->ik... ,ij->ij Ab,bA aAb->
    ij,ji-> iij,jk->ik abcd,bd->ca ij->k ij->ii i,j->ijk ij,jk->ik->i i.j->ij i..->i ij,,->i 1j->j ...->... ...,... b...i,...io->b...o""".split()


def einsums():
    """The equations above, then random ones: letters repeat, extents of 0 and 1 are among them, some terms have an ellipsis."""
    extents = dict(zip("ijkabcdhqoA", (3, 4, 2, 3, 5, 2, 4, 2, 3, 2, 3)))
    for equation, d in itertools.product(EQUATIONS, (f64, f32, i64)):
        shapes = [[n for c in t.replace("...", "~") for n in ((2, 3) if c == "~" else (extents.get(c, 3),))] for t in equation.split("->")[0].split(",")]
        yield equation, shapes, d
    for _ in range(600):
        sizes = {c: random.choice([0, 1, 2, 3, 4, 5]) if random.random() < 0.1 else random.choice([2, 3, 4]) for c in "abcdAB"}
        under, terms, shapes = random.choices([2, 3], k=random.randint(0, 2)), [], []
        for _ in range(random.randint(1, 4)):
            letters = random.choices("abcdAB", k=random.randint(0, 4))
            mine = {c: 1 if random.random() < 0.1 else sizes[c] for c in letters}
            extents, text = [mine[c] for c in letters], "".join(letters)
            if random.random() < 0.3:
                at, deep = random.randint(0, len(letters)), random.randint(0, len(under))
                extents[at:at] = [1 if random.random() < 0.2 else n for n in under[len(under) - deep :]]
                text = text[:at] + "..." + text[at:]
            terms.append(text)
            shapes.append(extents)
        equation = ",".join(terms)
        if random.random() < 0.7:
            used = sorted(set(equation) - set(",."))
            result = "".join(random.sample(used, random.randint(0, len(used))))
            at = random.randint(0, len(result))
            equation += "->" + result[:at] + ("..." if "." in equation and random.random() < 0.8 else "") + result[at:]
        yield equation, shapes, random.choice([f64, f64, f32, i64])


def compositions():
    random.seed(0)
    for equation, shapes, d in einsums():
        case(
            f"einsum {equation} {shapes} {str(d)[6:]}",
            lambda *x: op("einsum", C.c_char_p(equation.encode()), array(*x), I(len(x))),
            lambda *x: torch.einsum(equation, *x),
            *(some(*s, d=d) for s in shapes),
            size=300.0,
        )
    for s, groups, n in itertools.product([(2, 6, 5), (3, 4), (2, 6, 3, 4), (1, 12, 2, 2, 2), (0, 6, 3), (5,), (2, 6, 0)], (1, 2, 3, 6, 0), range(3)):
        case(
            f"group_norm {s} {groups} {n}",
            lambda x, w=NONE, b=NONE: op("group_norm", args(GroupNorm, x=x, groups=groups, weight=w, bias=b)),
            lambda x, w=None, b=None: F.group_norm(x, groups, w, b),
            *[some(*s, d=f64), *(some(s[-1] if len(s) < 2 else s[1], d=f64) for _ in range(n))],
            size=1.0,
        )
        if groups == 1:
            case(
                f"instance_norm {s} {n}",
                lambda x, w=NONE, b=NONE: op("instance_norm", args(InstanceNorm, x=x, weight=w, bias=b)),
                lambda x, w=None, b=None: F.instance_norm(x, weight=w, bias=b),
                *[some(*s, d=f64), *(some(s[-1] if len(s) < 2 else s[1], d=f64) for _ in range(n))],
                size=1.0,
            )
    for x, w, groups in [
        ((2, 3, 9), (4, 3, 3), 1),
        ((1, 4, 7), (6, 2, 2), 2),
        ((2, 4, 6), (4, 1, 3), 4),
        ((0, 3, 7), (4, 3, 3), 1),
        ((2, 3, 2), (4, 3, 3), 1),
        ((3, 8), (4, 3, 3), 1),
        ((2, 3, 9), (4, 2, 3), 1),
    ]:
        for stride, padding, dilation in itertools.product((1, 2, 3), (0, 1, -1), (1, 2)):
            case(
                f"conv1d {x} {w} {stride} {padding} {dilation} {x[0]} images",
                lambda x, w, b: op(
                    "conv1d",
                    args(Conv, x=x, weight=w, bias=b, stride=shape(stride), padding=shape(padding), dilation=shape(dilation), groups=groups),
                ),
                lambda x, w, b: F.conv1d(x, w, b, stride, padding, dilation, groups),
                some(*x, d=f64),
                some(*w, d=f64),
                some(w[0], d=f64),
                size=9.0,
            )
    for x, w, groups in [
        ((2, 3, 4, 5), (3, 4, 3, 3), 1),
        ((1, 4, 5, 3), (4, 3, 2, 3), 2),
        ((2, 4, 3, 3), (4, 1, 3, 3), 4),
        ((0, 3, 4, 4), (3, 4, 3, 3), 1),
        ((3, 4, 5), (3, 4, 3, 3), 1),
        ((2, 3, 4, 5), (4, 3, 3, 3), 1),
        ((2, 3, 9), (3, 4, 3), 1),
        ((1, 4, 7), (4, 3, 2), 2),
        ((3, 8), (3, 4, 3), 1),
        ((2, 4, 1), (4, 1, 1), 4),
    ]:
        axes = len(w) - 2
        numbers = (1, 2, 3, (2, 1) if axes == 2 else 4)
        for stride, padding, more, dilation in itertools.product(numbers, (0, 1, 2), (0, 1, 2), (1, 2, 3)):
            case(
                f"conv_transpose{axes}d {x} {w} {stride} {padding} {more} {dilation}",
                lambda x, w, b: op(
                    f"conv_transpose{axes}d",
                    args(
                        ConvTranspose,
                        x=x,
                        weight=w,
                        bias=b,
                        stride=one_or_two(stride),
                        padding=shape(padding),
                        output_padding=shape(more),
                        dilation=shape(dilation),
                        groups=groups,
                    ),
                ),
                lambda x, w, b: getattr(F, f"conv_transpose{axes}d")(x, w, b, stride, padding, more, groups, dilation),
                some(*x, d=f64),
                some(*w, d=f64),
                some(w[1] * groups, d=f64),
                size=9.0,
            )
    for s, d in itertools.product([(2, 3, 7, 8), (1, 1, 6, 10), (0, 2, 3, 3), (2, 2, 1, 5), (1, 2, 0, 3), (4, 4)], (f64, f32)):
        for size in (1, 2, 3, (2, 5), (7, 8), (12, 4), 9, (0, 2), (-1, 2)):
            case(
                f"adaptive_avg_pool2d {s} {size} {d}",
                lambda x: op("adaptive_avg_pool2d", x, one_or_two(size)),
                lambda x: F.adaptive_avg_pool2d(x, size),
                some(*s, d=d),
                size=1.0,
            )
    ways = {3: "linear", 4: "bilinear", 5: "trilinear"}
    for s, size in itertools.product(
        [(2, 3, 7), (1, 2, 5, 4), (1, 2, 3, 4, 5), (2, 3, 1, 6), (0, 2, 3), (1, 2, 0, 4), (3, 4)],
        [(3,), (8,), (14,), (5, 9), (1,), (2, 3, 4), (0,), 0.5, 1.0, 1.3, 2.0, 3.7, 1e-3, -1.0],
    ):
        scale = size if isinstance(size, float) else None
        one = dict(scale_factor=scale) if scale else dict(size=size * (len(s) - 2) if len(size) == 1 else size)
        ours = dict(scale=scale) if scale else dict(size=shape(*size))
        for mode, align in ((0, False), (1, False), (2, False), (2, True), (0, True)):
            case(
                f"interpolate {s} {size} {mode} {align}",
                lambda x: op("interpolate", args(Interpolate, x=x, mode=mode, align_corners=align, **ours)),
                lambda x: F.interpolate(
                    x, mode=("nearest", "nearest-exact", ways.get(len(s)))[mode], align_corners=align if mode == 2 or align else None, **one
                ),
                some(*s, d=f64),
                size=1.0,
            )
    for s, mode, (before, after) in itertools.product(
        [(2, 3, 4, 5), (1, 2, 3), (2, 1, 1, 3), (1, 2, 0)], range(3), itertools.product((0, 1, 2, 3, 4, -1), (0, 1, 2, 5))
    ):
        axes = len(s) - 2
        case(
            f"pad_mode {s} {mode} {before} {after}",
            lambda x: op("pad_mode", x, shape(*[0, 0, *[before] * axes]), shape(*[0, 0, *[after] * axes]), I(mode)),
            lambda x: F.pad(x, [before, after] * axes, ("reflect", "replicate", "circular")[mode]),
            some(*s, d=f64),
        )


    for s, picks, more in itertools.product([(4, 5), (3, 4, 2), (6,), (0, 3)], [((3,),), ((2, 1), (3,)), ((4,), (4,)), ((),), ((2, 3), (1, 3), ()), ((0,),)], ((), (1,), (-1,))):
        if len(picks) > len(s) + 1:
            continue
        at = [torch.randint(-n if n else 0, n or 1, p) for p, n in zip(picks, (*s, 3))]
        at[-1] = at[-1] + 9 if more == (1,) else at[-1]
        rest = s[len(at) :]
        width = torch.broadcast_shapes(*picks) + tuple(rest)
        n = f"{s} {picks} {more}"
        case(f"index_get {n}", lambda x: op("index_get", x, array(*map(put, at)), I(len(at))), lambda x: x[tuple(at)], some(*s, d=f64))
        for d, add, wide in itertools.product((f64, i64), (True, False), (True, False)):
            if not add:  # which of several wins is torch's secret
                at = [torch.arange(len(at[0].reshape(-1))).reshape(at[0].shape) % max(s[0], 1), *at[1:]] if len(at) == 1 else at
            places = {tuple(c) for c in torch.stack([(a % max(e, 1)).expand(torch.broadcast_shapes(*picks)).reshape(-1) for a, e in zip(at, (*s, 3))], 1).tolist()}
            alone = len(places) == int(np.prod(torch.broadcast_shapes(*picks)))
            if add or alone:
                case(
                    f"index_put {n} {str(d)[6:]} {add} {wide}",
                    lambda x, v: op("index_put", x, array(*map(put, at)), I(len(at)), v, Bool(add)),
                    lambda x, v: x.index_put(tuple(at), v, add),
                    some(*s, d=d),
                    some(*(width if wide else width[len(width) - len(rest) :]), d=d),
                )


# -- gradients where formulas meet their ends: poles, ties, bounds, zeros, what is not finite ------------------
TIES = [[1, nan, 2], [inf, -inf, 1], [-inf, -inf], [inf, inf, 1], [inf, 1, 2], [2, 2, 1, 2], [0, 3, 0, 2], [0, 3, 2], [0, 0, 0], [1], [0], [inf], [5, 5, 5], [0, nan]]


def kinks():
    numbers = (0.0, 1.0, 2.0, 3.0, -1.0, 0.5, -0.5, 1.5)
    for n, f in UNARY.items():
        case(f"kink {n}", lambda x: op(n, x), f, lattice(f64))
    for n, f in BINARY.items():
        x, y = pairs(lattice(f64), lattice(f64))
        if n.startswith(("bitwise", "floor_divide")):
            continue
        case(f"kink {n}", lambda x, y: op(n, x, y), f, x, y)
        for number in numbers:
            case(f"kink {n} number", lambda x: op(n, x, number), lambda x: f(x, torch.tensor(number, dtype=f64)), lattice(f64))
            case(f"kink {n} of a number", lambda x: op(n, operand(number), x), lambda x: f(torch.tensor(number, dtype=f64), x), lattice(f64))
    for values in TIES:
        x = torch.tensor(values, dtype=f64)
        for n, f in REDUCTIONS.items():
            case(f"kink {n} {values}", lambda x: reduce(n, x, None), lambda x: f(x, (0,), False), x)
        for order in (2.0, 1.0, 3.0, inf, -inf, 0.0, -1.0, 0.5):
            case(f"kink norm {values} {order}", lambda x: op("norm", args(Norm, x=x, order=order or ZERO)), lambda x: torch.linalg.vector_norm(x, order), x)
        for n, c in itertools.product(("var", "std"), (0, 1)):
            case(f"kink {n} {values} {c}", lambda x: op(n, args(Var, x=x, correction=c)), lambda x: getattr(torch, n)(x, correction=c), x)
        for n in ("cumsum", "cumprod"):
            case(f"kink {n} {values}", lambda x: op(n, x, I(0)), lambda x: getattr(torch, n)(x, 0), x)
        for n in ("softmax", "log_softmax"):
            case(f"kink {n} {values}", lambda x: op(n, x, I(0)), lambda x: getattr(F, n)(x, 0), x)
    for n, zeros in itertools.product((31, 33, 100, 1025, 1500), range(3)):
        x = torch.rand(n, dtype=f64) * 0.2 + 0.9
        x[torch.randperm(n)[:zeros]] = 0
        case(f"cumprod {n}, {zeros} zeros", lambda x: op("cumprod", x, I(0)), lambda x: torch.cumprod(x, 0), x, size=10.0)
    for n, d in itertools.product(("mse_loss", "l1_loss", "huber_loss"), INTEGERS):
        x = torch.tensor([1, 100, 5]).to(d)
        case(f"{n} {d}", lambda x, t: op(n, args(Loss, x=x, target=t)), lambda x, t: getattr(F, n)(x.float(), t.float()), x, x.flip(0))


# -- gradients of gradients ----------------------------------------------------------------------------------
def second():
    global cases
    of = lambda n, number: lambda x: op(n, operand(number), x)
    calls = [(n, lambda *x, n=n: op(n, *x), f, 1 if n in UNARY else 2) for n, f in (UNARY | BINARY).items()]
    calls += [(f"{n} of a number", of(n, 2.0), lambda x, f=f: f(torch.tensor(2.0, dtype=f64), x), 1) for n, f in BINARY.items()]
    calls += [("huber_loss", lambda x: op("huber_loss", args(Loss, x=x, target=operand(0.0))), lambda x: F.huber_loss(x, torch.zeros_like(x)), 1)]
    for n, ours_of, f, count in calls:
        for low, high in ((0.1, 0.9), (-4, 4), (1.2, 2.2), (0, 0)):
            if low == high and n != "huber_loss":
                continue
            x = [torch.rand(5, dtype=f64) * (high - low) + low for _ in range(count)]
            theirs = [v.clone().requires_grad_(True) for v in x]
            t, refused = attempt(lambda: f(*theirs))
            if refused or not t.requires_grad:
                continue
            cases += 1
            seeds = [torch.randn(t.shape, dtype=f64), torch.randn(5, dtype=f64)]
            with Scope():

                def both():
                    ours = [put(v, True) for v in x]
                    firsts = torch.autograd.grad(t, theirs, seeds[0], create_graph=True, allow_unused=True)
                    for k, g in enumerate(grad_of(ours_of(*ours), ours, seeds[0], create_graph=True)):
                        if firsts[k] is None:
                            continue
                        compare(f"{n} d{k}", get(g), firsts[k].detach(), x, 1e-9, 1e-3)
                        if firsts[k].requires_grad:
                            want = torch.autograd.grad(firsts[k], theirs, seeds[1], allow_unused=True, retain_graph=True)
                            for j, h in enumerate(grad_of(g, ours, seeds[1])):
                                compare(
                                    f"{n} d{k}d{j}",
                                    get(h) if h.slot else torch.zeros(5, dtype=f64),
                                    torch.zeros(5, dtype=f64) if want[j] is None else want[j],
                                    x,
                                    1e-7,
                                    1e-3,
                                )

                _, refused = attempt(both)
                if refused:
                    differs(f"{n} second", refused)


# -- random programs: views, writes in place, gradients ------------------------------------------------------
def step(values):
    """One random step of both programs; None where this one cannot be made. Returns a new value or (), and its name."""
    t, w = random.choice(values)
    r = t.dim()
    like = lambda: random.choice([v for v in values if v[0].shape == t.shape or v[0].dim() == 0])
    kind = random.choice("unary unary binary binary view view view write write write sum clone gather cat softmax max prod cumsum".split())
    if kind == "unary":
        n = random.choice("tanh sin sigmoid square neg".split())
        return (getattr(torch, n)(t), op(n, w)), n
    if kind == "binary":
        n, (u, v) = random.choice("add sub mul maximum".split()), like()
        return (getattr(torch, n)(t, u), op(n, w, v)), n
    if kind == "write":
        if t.is_leaf or any(e > 1 and s == 0 for e, s in zip(t.shape, t.stride())):
            return None
        n, (u, v) = random.choice(["add_", "mul_", "copy_", "zero_", "sigmoid_"]), like()
        operands = ([u], [v]) if n in ("add_", "mul_", "copy_") else ([], [])
        _, torch_refuses = attempt(lambda: getattr(t, n)(*operands[0]))
        _, weft_refuses = attempt(lambda: status(n, w, *operands[1]))
        if bool(torch_refuses) != bool(weft_refuses):
            raise RuntimeError(f"{n}: torch {torch_refuses} weft {weft_refuses}")
        return ((), n) if not torch_refuses else None
    if kind == "clone":
        return (t.clone(), op("clone", w)), kind
    if r == 0:
        return None
    a = random.randrange(-r, r)
    if kind == "view":
        n = random.choice("select narrow transpose unsqueeze reshape expand".split())
        if n == "select":
            i = random.randrange(-t.shape[a], t.shape[a])
            return (t.select(a, i), op(n, w, I(a), L(i))), n
        if n == "narrow":
            start = random.randrange(t.shape[a])
            length = random.randint(1, t.shape[a] - start)
            return (t.narrow(a, start, length), op(n, w, I(a), L(start), L(length))), n
        if n == "transpose":
            return (t.transpose(a, 0), op(n, w, I(a), I(0))), n
        if n == "unsqueeze":
            return (t.unsqueeze(a), op(n, w, I(a))), n
        if n == "reshape":
            return ((t.reshape(-1), op(n, w, shape(-1))), n) if t.is_contiguous() else None
        return (t.unsqueeze(0).expand(3, *t.shape), op(n, op("unsqueeze", w, I(0)), shape(3, *t.shape))), n
    if kind == "gather":
        at = torch.randint(0, t.shape[-1], (*t.shape[:-1], 3))
        return (t.gather(-1, at), op(kind, w, I(-1), put(at))), kind
    if kind == "cat":
        return (torch.cat([t, t], 0), op("concat", array(w, w), I(2), I(0))), kind
    if kind == "sum":
        return (t.sum(a), reduce(kind, w, (a,))), kind
    if kind in ("max", "prod"):
        return ((t.amax if kind == "max" else t.prod)(-1), reduce(kind, w, (-1,))), kind
    return (getattr(torch, kind)(t, -1), op(kind, w, I(-1))), kind


def program(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    leaves = [torch.randn(random.choice([(4, 6), (3, 4), (2, 3, 4), (6,)]), dtype=f64) for _ in range(2)]
    theirs, ours = [x.clone().requires_grad_(True) for x in leaves], [put(x, True) for x in leaves]
    values = [*zip(theirs, ours), *((t * 1.5, op("mul", w, 1.5)) for t, w in zip(theirs, ours))]
    names = []
    for _ in range(random.randint(3, 14)):
        made = step(values)
        if made:
            names.append(made[1])
            values += [made[0]] if made[0] else []
    name = f"program {seed} {' '.join(names)}"
    for t, w in values:
        compare(name, get(w), t.detach(), (), 1e-9, 1e-3)
    t, w = random.choice(values[2:])
    _, torch_refuses = attempt(lambda: (t * t).sum().backward())
    _, weft_refuses = attempt(lambda: backward(reduce("sum", op("mul", w, w), None)))
    if torch_refuses or weft_refuses:
        if not (torch_refuses and weft_refuses):
            differs(name, f"torch {torch_refuses} weft {weft_refuses}".replace("RuntimeError ", ""))
        return
    for x, t, w in zip(leaves, theirs, ours):
        g = grad(w)
        compare(name + " gradient", torch.zeros_like(x) if g is None else g, torch.zeros_like(x) if t.grad is None else t.grad, (), 1e-7, 1e-3)


def programs():
    global cases
    for seed in range(600):
        cases += 1
        with Scope():
            _, refused = attempt(lambda: program(seed))
            if refused:
                differs(f"program {seed}", refused.replace("RuntimeError ", "torch "))


# -- optimisers ----------------------------------------------------------------------------------------------
def descend(make, theirs, start, clip):
    """The same twenty steps down the same bowls, with gradients clipped or not: both parameters."""
    t = start.clone().requires_grad_(True)
    module = call("module_new", None)
    w = call("module_parameter", module, b"w", put(start))
    ours, theirs = make(module), theirs([t])
    for k in range(1, 21):
        theirs.zero_grad()
        ((t - 1) ** 2 * k).sum().backward()
        status("module_zero_grad", C.c_void_p(module))
        backward(reduce("sum", op("mul", op("square", op("sub", w, 1)), k), None))
        if clip:
            torch.nn.utils.clip_grad_norm_([t], clip)
            status("module_clip_grad_norm", C.c_void_p(module), D(clip), None)
        theirs.step()
        status("optim_step", C.c_void_p(ours))
    got = get(w)
    call("optim_free", ours)
    call("module_free", module)
    return got, t.detach()


def optimisers():
    global cases
    maker = lambda name, kind: lambda **o: lambda m: call(name, C.byref(args(kind, module=m, **o)))
    sgd, adamw, adam = maker("sgd_new", Sgd), maker("adamw_new", Adam), maker("adam_new", Adam)
    rmsprop, adagrad = maker("rmsprop_new", RmsProp), maker("adagrad_new", Adagrad)
    kinds = [
        (sgd(lr=0.1), lambda p: torch.optim.SGD(p, 0.1)),
        (sgd(lr=0.1, momentum=0.9), lambda p: torch.optim.SGD(p, 0.1, 0.9)),
        (
            sgd(lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
            lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.01, nesterov=True),
        ),
        (adamw(lr=0.01), lambda p: torch.optim.AdamW(p, 0.01)),
        (adamw(lr=0.01, weight_decay=ZERO), lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0)),
        (
            adamw(lr=0.01, beta1=0.8, beta2=0.95, eps=1e-6, weight_decay=0.2),
            lambda p: torch.optim.AdamW(p, 0.01, (0.8, 0.95), 1e-6, 0.2),
        ),
        (
            sgd(lr=0.1, momentum=0.9, weight_decay=0.01, dampening=0.3),
            lambda p: torch.optim.SGD(p, 0.1, 0.9, 0.3, 0.01),
        ),
        (adamw(lr=0.01, amsgrad=True), lambda p: torch.optim.AdamW(p, 0.01, amsgrad=True)),
        (adam(), lambda p: torch.optim.Adam(p)),
        (
            adam(lr=0.01, beta1=0.8, beta2=0.9, weight_decay=0.1, amsgrad=True),
            lambda p: torch.optim.Adam(p, 0.01, (0.8, 0.9), weight_decay=0.1, amsgrad=True),
        ),
        (rmsprop(), lambda p: torch.optim.RMSprop(p)),
        (
            rmsprop(lr=0.02, alpha=0.9, weight_decay=0.1, momentum=0.7),
            lambda p: torch.optim.RMSprop(p, 0.02, 0.9, weight_decay=0.1, momentum=0.7),
        ),
        (
            rmsprop(lr=0.002, alpha=0.95, momentum=0.5, centered=True),
            lambda p: torch.optim.RMSprop(p, 0.002, 0.95, momentum=0.5, centered=True),
        ),
        (adagrad(), lambda p: torch.optim.Adagrad(p)),
        (
            adagrad(lr=0.1, lr_decay=0.1, weight_decay=0.1, initial=0.2, eps=1e-6),
            lambda p: torch.optim.Adagrad(p, 0.1, 0.1, 0.1, 0.2, 1e-6),
        ),
    ]
    for (k, (ours, theirs)), d, clip in itertools.product(enumerate(kinds), (f32, f64), (0, 0.5)):
        cases += 1
        with Scope():
            both, refused = attempt(lambda: descend(ours, theirs, some(5, 3, d=d), clip))
            if refused:
                differs(f"optimiser {k} {d} {clip}", refused)
            else:
                compare(f"optimiser {k} {d} {clip}", *both, (), 20 * tolerance[d], size=1.0)


# -- layers with torch's weights ----------------------------------------------------------------------------
def copied(module, state):
    """The tensors of weft's layer `l` by torch's names, with torch's values."""
    if call("module_count", module) != len(state):
        raise WeftError("another number of parameters and buffers")
    ours = {n: call("module_get", module, f"l.{n}".encode()) for n in state}
    call("no_grad_begin")
    for n, p in state.items():
        status("copy_", ours[n], put(p))
    call("no_grad_end")
    return ours


def run_module(theirs, init, kind, forward, x, states, d, **options):
    """A module of each library with torch's weights: results, states and all gradients."""
    module, layer = call("module_new", None), C.create_string_buffer(8192)
    status(init, C.byref(args(kind, layer=C.cast(layer, C.c_void_p), module=module, name=b"l", dtype=DTYPES[d], **options)))
    named, state = dict(theirs.named_parameters()), theirs.state_dict()
    ours = copied(module, state)
    t = [v.clone().requires_grad_(True) for v in (x, *states)]
    w = [put(v, True) for v in (x, *states)]
    y = theirs(*(t[:1] if not states else (t[0], t[1] if len(t) == 2 else (t[1], t[2]))))
    ends = [] if not isinstance(y, tuple) else [y[1]] if torch.is_tensor(y[1]) else list(y[1])
    y = y[0] if isinstance(y, tuple) else y
    boxes = [Tensor.from_buffer_copy(v) for v in w[1:]]
    z = forward(layer, w[0], boxes)
    total, sum_ = y.square().sum(), reduce("sum", op("square", z), None)
    for end, box in zip(ends, boxes):
        total, sum_ = total + end.sin().sum(), op("add", sum_, reduce("sum", op("sin", box), None))
    total.backward()
    backward(sum_)
    pairs = [("y", get(z), y.detach())] + [(f"state {i}", get(b), e.detach()) for i, (b, e) in enumerate(zip(boxes, ends))]
    pairs += [(f"gradient of operand {i}", grad(a), b.grad) for i, (a, b) in enumerate(zip(w, t))]
    pairs += [(f"gradient of {n}", grad(ours[n]), p.grad) for n, p in named.items()]
    pairs += [(n, get(ours[n]), b) for n, b in theirs.named_buffers()]
    call("module_free", module)
    return pairs


def module_cases():
    """(name, torch's module, arguments of run_module)."""
    for axes, groups, bias, stride, d in itertools.product((1, 2), (1, 2), (False, True), (1, 2), (f32, f64)):
        x = some(3, 4, *(9, 7)[:axes], d=d)
        options = dict(input=4, out=6, kernel=3, stride=stride, padding=1, dilation=2, groups=groups, no_bias=not bias)
        name = f"{axes} {groups} {bias} {stride} {d}"
        theirs = (None, torch.nn.Conv1d, torch.nn.Conv2d)[axes](4, 6, 3, stride, 1, 2, groups, bias, dtype=d)
        forward = lambda layer, x, _, axes=axes: op(f"nn_conv{axes}d_forward", layer, x)
        yield f"conv {name}", (theirs, f"nn_conv{axes}d_init", ConvInit, forward, x, [], d), options
        theirs = (None, torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d)[axes](4, 6, 3, stride, 1, 1, groups, bias, 2, dtype=d)
        forward = lambda layer, x, _, axes=axes: op(f"nn_conv_transpose{axes}d_forward", layer, x)
        options = dict(options, output_padding=1)
        yield f"conv_transpose {name}", (theirs, f"nn_conv_transpose{axes}d_init", ConvTransposeInit, forward, x, [], d), options
    for axes, d in itertools.product((0, 1, 2, 3), (f32, f64)):
        x = some(3, 4, *(5, 2, 3)[:axes], d=d)
        for groups in (1, 2):
            forward = lambda layer, x, _: op("nn_group_norm_forward", layer, x)
            options = dict(groups=groups, dim=4)
            yield f"group_norm {axes} {groups} {d}", (torch.nn.GroupNorm(groups, 4, dtype=d), "nn_group_norm_init", GroupNormInit, forward, x, [], d), options
        theirs = (torch.nn.BatchNorm1d, torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)[axes](4, dtype=d)
        forward = lambda layer, x, _: op("nn_batch_norm2d_forward", layer, x)
        yield f"batch_norm {axes} {d}", (theirs, "nn_batch_norm2d_init", BatchNormInit, forward, x, [], d), dict(dim=4)
        if axes:
            theirs = (None, torch.nn.InstanceNorm1d, torch.nn.InstanceNorm2d, torch.nn.InstanceNorm3d)[axes](4, affine=True, dtype=d)
            forward = lambda layer, x, _: op("nn_instance_norm_forward", layer, x)
            yield f"instance_norm {axes} {d}", (theirs, "nn_instance_norm_init", NormInit, forward, x, [], d), dict(dim=4)
    for lstm, levels, both, first, bias, d in itertools.product((0, 1), (1, 3), (False, True), (False, True), (False, True), (f32, f64)):
        theirs = (torch.nn.LSTM if lstm else torch.nn.GRU)(5, 4, levels, bias, first, bidirectional=both, dtype=d)
        h = [some(levels * (1 + both), 3, 4, d=d) for _ in range(1 + lstm)]
        init, run = ("nn_lstm_init", "nn_lstm_forward") if lstm else ("nn_gru_init", "nn_gru_forward")
        forward = lambda layer, x, states, run=run: op(run, layer, x, *map(C.byref, states))
        options = dict(input=5, hidden=4, layers=levels, bidirectional=both, batch_first=first, no_bias=not bias)
        name = f"{init} {levels} {both} {first} {bias} {d}"
        yield name, (theirs, init, RecurrentInit, forward, some(*((3, 7) if first else (7, 3)), 5, d=d), h, d), options
    for norm_first, gelu, d in itertools.product((False, True), (False, True), (f32, f64)):
        theirs = torch.nn.TransformerEncoderLayer(
            8, 2, 12, 0.0, "gelu" if gelu else "relu", batch_first=True, norm_first=norm_first, dtype=d)
        forward = lambda layer, x, _: op("nn_encoder_forward", layer, x, NONE)
        options = dict(dim=8, heads=2, feedforward=12, dropout=ZERO, norm_first=norm_first, gelu=gelu)
        yield f"encoder {norm_first} {gelu} {d}", (theirs, "nn_encoder_init", EncoderInit, forward, some(2, 5, 8, d=d), [], d), options
    class Attend(torch.nn.MultiheadAttention):
        def forward(self, x, memory):
            return super().forward(x, memory, memory)[0]

    for bias, d in itertools.product((False, True), (f32, f64)):
        forward = lambda layer, x, memory: op("nn_attention_attend", layer, x, memory[0], NONE)
        options = dict(dim=8, heads=2, no_bias=not bias)
        theirs = Attend(8, 2, bias=bias, batch_first=True, dtype=d)
        yield f"attend {bias} {d}", (theirs, "nn_attention_init", AttentionInit, forward, some(2, 5, 8, d=d), [some(2, 3, 8, d=d)], d), options


def modules():
    global cases
    for name, given, options in module_cases():
        cases += 1
        with Scope():
            pairs, refused = attempt(lambda: run_module(*given, **options))
            if refused:
                differs(name, refused)
            for what, ours, theirs in pairs or ():
                compare(f"{name} {what}", ours, theirs, (), 40 * tolerance[given[-1]], size=1.0)


# -- a language model ----------------------------------------------------------------------------------------
class Gpt(torch.nn.Module):
    """GPT-2 of torch's own layers, under the names of weft's."""

    class Block(torch.nn.Module):
        def __init__(self, dim, heads, d):
            super().__init__()
            self.ln_1, self.ln_2 = torch.nn.LayerNorm(dim, dtype=d), torch.nn.LayerNorm(dim, dtype=d)
            self.attn = torch.nn.MultiheadAttention(dim, heads, batch_first=True, dtype=d)
            self.fc, self.proj = torch.nn.Linear(dim, 4 * dim, dtype=d), torch.nn.Linear(4 * dim, dim, dtype=d)

        def forward(self, x):
            later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            h = self.ln_1(x)
            x = x + self.attn(h, h, h, attn_mask=later, need_weights=False)[0]
            return x + self.proj(F.gelu(self.fc(self.ln_2(x))))

    def __init__(self, vocab, dim, heads, layers, context, tied, d):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(vocab, dim, dtype=d), torch.nn.Embedding(context, dim, dtype=d)
        self.h = torch.nn.ModuleList(Gpt.Block(dim, heads, d) for _ in range(layers))
        self.ln_f = torch.nn.LayerNorm(dim, dtype=d)
        if not tied:
            self.head = torch.nn.Linear(dim, vocab, bias=False, dtype=d)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.head.weight if hasattr(self, "head") else self.wte.weight)


def train_gpt(tied, d, steps=3):
    """Logits, gradients of the first step, and all parameters after the last."""
    extents = dict(vocab=13, dim=8, heads=2, layers=2, context=7)
    theirs, module, layer = Gpt(*extents.values(), tied, d), call("module_new", None), C.create_string_buffer(65536)
    model = C.cast(layer, C.c_void_p)
    status("nn_gpt_init", C.byref(args(GptInit, layer=model, module=module, name=b"l", dtype=DTYPES[d], tied=tied, **extents)))
    state = dict(theirs.named_parameters())
    ours = copied(module, state)
    # not Adam: the gradient of the keys' bias is zero but for rounding, which it would blow up to whole steps
    walk = call("sgd_new", C.byref(args(Sgd, module=module, lr=0.5, momentum=0.9, weight_decay=0.01)))
    walks = torch.optim.SGD(theirs.parameters(), 0.5, 0.9, weight_decay=0.01)
    pairs = []
    for step in range(steps):
        tokens, targets = torch.randint(0, 13, (2, 6)), torch.randint(0, 13, (12,))
        theirs.zero_grad()
        status("module_zero_grad", C.c_void_p(module))
        y, z = theirs(tokens), op("nn_gpt_forward", model, tokens)
        F.cross_entropy(y.reshape(12, 13), targets).backward()
        z2 = op("reshape", z, shape(12, 13))
        backward(op("cross_entropy", args(CrossEntropy, logits=z2, targets=put(targets))))
        pairs.append((f"logits {step}", get(z), y.detach()))
        pairs += [(f"gradient of {n} {step}", grad(ours[n]), p.grad) for n, p in state.items() if step == 0]
        walks.step()
        status("optim_step", C.c_void_p(walk))
    pairs += [(n, get(ours[n]), p.detach()) for n, p in state.items()]
    call("optim_free", walk)
    call("module_free", module)
    return pairs


def gpt():
    global cases
    for tied, d in itertools.product((False, True), (f32, f64)):
        cases += 1
        with Scope():
            pairs, refused = attempt(lambda: in_region(lambda: train_gpt(tied, d)))
            if refused:
                differs(f"gpt {tied} {d}", refused)
            for what, ours, theirs in pairs or ():
                compare(f"gpt {tied} {d} {what}", ours, theirs, (), 40 * tolerance[d], size=1.0)


SECTIONS = [elementwise, reductions, views, indices, layers, compositions, kinks, second, programs, optimisers, modules, gpt]


def main():
    given = sys.argv[1:]
    chosen = [s for s in SECTIONS if s.__name__ in given] or SECTIONS
    global trace
    open_library(next((g for g in given if g.endswith(".so")), "build/release/libweft.so"))
    if "--traced" in given:
        trace = call("jit_trace", C.byref(args(Trace, name=b"case", synchronous=True)))
    if "--strided" in given:
        binding.awkward = random.Random(0)
    torch.manual_seed(0)
    for section in chosen:
        section()
    for text in wrong[:40]:
        print(text)
    print(f"{cases} cases, {meant} differences that are meant, {len(wrong)} that are not")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
