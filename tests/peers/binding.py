# tests/peers/binding.py -- weft from Python, as far as comparing it with PyTorch needs: tensors go in and come out as
# torch tensors, calls are made by name through ctypes, an error is an exception with weft's text.
#
# Arguments of a call: torch tensors and numbers become operands, integers in I() stay C ints, L() int64_t, D() double;
# shape(...) is a weft_shape, args(Struct, ...) the options of a call that takes a struct.
import ctypes as C

import torch

DTYPES = dict(
    zip(
        [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64],
        range(1, 11),
    )
)
OF_DTYPE = {number: dtype for dtype, number in DTYPES.items()}
ZERO = 2.2250738585072014e-308  # WEFT_ZERO
I, L, D = C.c_int, C.c_int64, C.c_double
lib = None
awkward, lent = None, []  # a random.Random: operands are views of foreign memory, which lives on here


class WeftError(Exception):
    pass


class Tensor(C.Structure):
    _fields_ = [("slot", C.c_uint32), ("context", C.c_uint32), ("serial", C.c_uint64)]


class Shape(C.Structure):
    _fields_ = [("bare_number", C.c_void_p), ("n", C.c_int64), ("v", C.c_int64 * 16)]


def struct(**fields):
    return type("Args", (C.Structure,), {"_fields_": [*fields.items(), ("end_", C.c_int)]})


NONE = Tensor(0, 0, 0)
Blob = struct(data=C.c_void_p, shape=Shape, dtype=I, strides=C.c_void_p, deleter=C.c_void_p, arg=C.c_void_p, read_only=C.c_bool)
Reduce = struct(x=Tensor, axes=Shape, keepdim=C.c_bool, dtype=I)
Var = struct(x=Tensor, axes=Shape, keepdim=C.c_bool, correction=D)
Norm = struct(x=Tensor, axes=Shape, keepdim=C.c_bool, order=D)
Close = struct(a=Tensor, b=Tensor, rtol=D, atol=D, equal_nan=C.c_bool)
LayerNorm = struct(x=Tensor, weight=Tensor, bias=Tensor, axes=I, eps=D)
RmsNorm = struct(x=Tensor, weight=Tensor, axes=I, eps=D)
BatchNorm = struct(x=Tensor, weight=Tensor, bias=Tensor, running_mean=Tensor, running_var=Tensor, training=C.c_bool, momentum=D, eps=D)
Conv = struct(x=Tensor, weight=Tensor, bias=Tensor, stride=Shape, padding=Shape, dilation=Shape, groups=L)
ConvTranspose = struct(x=Tensor, weight=Tensor, bias=Tensor, stride=Shape, padding=Shape, output_padding=Shape, dilation=Shape, groups=L)
GroupNorm = struct(x=Tensor, groups=L, weight=Tensor, bias=Tensor, eps=D)
InstanceNorm = struct(x=Tensor, weight=Tensor, bias=Tensor, eps=D)
Interpolate = struct(x=Tensor, size=Shape, scale=D, mode=I, align_corners=C.c_bool)
Pool = struct(x=Tensor, kernel=Shape, stride=Shape, padding=Shape, dilation=Shape, ceil_mode=C.c_bool, count_include_pad=C.c_bool, indices=C.c_void_p)
Attention = struct(q=Tensor, k=Tensor, v=Tensor, mask=Tensor, causal=C.c_bool, scale=D)
CrossEntropy = struct(logits=Tensor, targets=Tensor, reduction=I, ignore_index=L, label_smoothing=D, weight=Tensor)
Loss = struct(x=Tensor, target=Tensor, reduction=I, delta=D, weight=Tensor, pos_weight=Tensor, log_target=C.c_bool)
Sgd = struct(module=C.c_void_p, lr=D, momentum=D, weight_decay=D, nesterov=C.c_bool, dampening=D, decay_min_rank=I)
Trace = struct(
    fn=C.c_void_p, self=C.c_void_p, name=C.c_char_p, single_graph=C.c_bool, synchronous=C.c_bool, no_fuse=C.c_bool,
    fast_math=C.c_bool, frozen=C.c_bool, verify_every=I, always_record=C.c_bool, max_plans=I, max_frozen=I)
Adam = struct(
    module=C.c_void_p, lr=D, beta1=D, beta2=D, eps=D, weight_decay=D, decay_min_rank=I, amsgrad=C.c_bool)
RmsProp = struct(
    module=C.c_void_p, lr=D, alpha=D, eps=D, weight_decay=D, momentum=D, centered=C.c_bool, decay_min_rank=I)
Adagrad = struct(
    module=C.c_void_p, lr=D, lr_decay=D, weight_decay=D, initial=D, eps=D, decay_min_rank=I)
RecurrentInit = struct(
    layer=C.c_void_p, module=C.c_void_p, name=C.c_char_p, input=L, hidden=L, layers=L, bidirectional=C.c_bool,
    batch_first=C.c_bool, dropout=D, no_bias=C.c_bool, dtype=I)
AttentionInit = struct(
    layer=C.c_void_p, module=C.c_void_p, name=C.c_char_p, dim=L, heads=L, causal=C.c_bool, no_bias=C.c_bool, dtype=I)
NormInit = struct(layer=C.c_void_p, module=C.c_void_p, name=C.c_char_p, dim=L, eps=D, dtype=I)
GroupNormInit = struct(layer=C.c_void_p, module=C.c_void_p, name=C.c_char_p, groups=L, dim=L, eps=D, dtype=I)
BatchNormInit = struct(layer=C.c_void_p, module=C.c_void_p, name=C.c_char_p, dim=L, momentum=D, eps=D, dtype=I)
ConvInit = struct(
    layer=C.c_void_p, module=C.c_void_p, name=C.c_char_p, input=L, out=L, kernel=L, stride=L, padding=L, dilation=L, groups=L,
    no_bias=C.c_bool, dtype=I, kernels=Shape, strides=Shape, paddings=Shape, dilations=Shape)
ConvTransposeInit = struct(
    layer=C.c_void_p, module=C.c_void_p, name=C.c_char_p, input=L, out=L, kernel=L, stride=L, padding=L, output_padding=L,
    dilation=L, groups=L, no_bias=C.c_bool, dtype=I, kernels=Shape, strides=Shape, paddings=Shape, output_paddings=Shape,
    dilations=Shape)
EncoderInit = struct(
    layer=C.c_void_p, module=C.c_void_p, name=C.c_char_p, dim=L, heads=L, feedforward=L, dropout=D, norm_first=C.c_bool,
    gelu=C.c_bool, causal=C.c_bool, eps=D, dtype=I)
GptInit = struct(
    layer=C.c_void_p, module=C.c_void_p, name=C.c_char_p, vocab=L, dim=L, heads=L, layers=L, context=L, dropout=D,
    tied=C.c_bool, eps=D, dtype=I)
Backward = struct(loss=Tensor, gradient=Tensor, retain_graph=C.c_bool, create_graph=C.c_bool)
GradOf = struct(
    outputs=C.POINTER(Tensor),
    n_outputs=I,
    inputs=C.POINTER(Tensor),
    n_inputs=I,
    grads=C.POINTER(Tensor),
    grad_outputs=C.POINTER(Tensor),
    retain_graph=C.c_bool,
    create_graph=C.c_bool,
    allow_unused=C.c_bool,
)


def open_library(path):
    global lib
    lib = C.CDLL(path)
    for name, result, arguments in [
        ("error_text", C.c_char_p, [Tensor]),
        ("last_error", C.c_char_p, []),
        ("shape_of", Shape, [Tensor]),
        ("dtype_of", I, [Tensor]),
        ("to_array", I, [Tensor, C.c_void_p, L, I]),
        ("from_data", Tensor, [C.c_void_p, Shape, I]),
        ("from_blob", Tensor, [C.c_void_p]),
        ("f", Tensor, [D]),
        ("i", Tensor, [L]),
        ("b", Tensor, [C.c_bool]),
        ("requires_grad_", I, [Tensor, C.c_bool]),
        ("grad", Tensor, [Tensor]),
        ("has_grad", C.c_bool, [Tensor]),
        ("scope_begin", Tensor, []),
        ("scope_end", I, [Tensor]),
        ("module_new", C.c_void_p, [C.c_void_p]),
        ("module_free", None, [C.c_void_p]),
        ("module_parameter", Tensor, [C.c_void_p, C.c_char_p, Tensor]),
        ("module_count", I, [C.c_void_p]),
        ("module_get", Tensor, [C.c_void_p, C.c_char_p]),
        ("jit_trace", C.c_void_p, [C.c_void_p]),
        ("sgd_new", C.c_void_p, [C.c_void_p]),
        ("adamw_new", C.c_void_p, [C.c_void_p]),
        ("adam_new", C.c_void_p, [C.c_void_p]),
        ("rmsprop_new", C.c_void_p, [C.c_void_p]),
        ("adagrad_new", C.c_void_p, [C.c_void_p]),
        ("optim_free", None, [C.c_void_p]),
        ("no_grad_begin", None, []),
        ("no_grad_end", None, []),
    ]:
        f = getattr(lib, "weft_" + name)
        f.restype, f.argtypes = result, arguments


def shape(*extents):
    return Shape(None, len(extents), (C.c_int64 * 16)(*extents))


def args(kind, **options):
    return kind(**options)


def checked(t):
    if t.slot == 0:
        raise WeftError(lib.weft_error_text(t).decode())
    return t


def lie_awkwardly(x):
    """A weft tensor of x's values on memory of its own: axes in any order, with gaps, reversed, at any offset."""
    order = list(range(x.dim()))
    awkward.shuffle(order)
    strides, flipped, size, start = [0] * x.dim(), [], 1, awkward.choice([0, 1, 3])
    for a in order:
        step = awkward.choice([1, 1, 2, 3])
        strides[a] = size * step
        size *= max(1, x.shape[a]) * step + awkward.choice([0, 0, 1])
        if awkward.random() < 0.3:
            flipped.append(a)
    memory = torch.zeros(size + start, dtype=x.dtype)
    at = start
    if x.numel():
        memory.as_strided(x.shape, strides, start).copy_(x.flip(flipped))
        for a in flipped:
            at += strides[a] * (x.shape[a] - 1)
            strides[a] = -strides[a]
    lent.append(memory)
    blob = Blob(data=memory.data_ptr() + at * memory.element_size(), shape=shape(*x.shape), dtype=DTYPES[x.dtype])
    blob.strides = C.cast((C.c_int64 * 16)(*strides), C.c_void_p)
    return checked(lib.weft_from_blob(C.byref(blob)))


def put(x, grad=False):
    x = x.detach().contiguous()
    t = lie_awkwardly(x) if awkward else checked(lib.weft_from_data(x.data_ptr() if x.numel() else None, shape(*x.shape), DTYPES[x.dtype]))
    if grad:
        lib.weft_requires_grad_(t, True)
    return t


def get(t):
    s = lib.weft_shape_of(checked(t))
    x = torch.empty(s.v[: s.n], dtype=OF_DTYPE[lib.weft_dtype_of(t)])
    if lib.weft_to_array(t, x.data_ptr() if x.numel() else None, x.numel(), 0):
        raise WeftError(lib.weft_last_error().decode())
    return x


def operand(x):
    if isinstance(x, (bool, int, float)):
        return {bool: lib.weft_b, int: lib.weft_i, float: lib.weft_f}[type(x)](x)
    if isinstance(x, torch.Tensor):
        return put(x)
    if isinstance(x, C.Structure) and not isinstance(x, (Tensor, Shape)):
        return C.byref(x)
    return x


def call(name, *operands):
    """A function of open_library's list, as it is; NULL is an error."""
    result = getattr(lib, "weft_" + name)(*operands)
    if result is None and not name.endswith(("free", "_begin", "_end")):
        raise WeftError(lib.weft_last_error().decode())
    return result


def op(name, *operands):
    f = getattr(lib, "weft_" + name)
    f.restype = Tensor
    return checked(f(*map(operand, operands)))


def status(name, *operands):
    f = getattr(lib, "weft_" + name)
    f.restype = I
    if f(*map(operand, operands)):
        raise WeftError(lib.weft_last_error().decode())


def several(name, n, *operands):
    """A call that stores n tensors through pointers at its end."""
    out = [Tensor() for _ in range(n)]
    status(name, *operands, *map(C.byref, out))
    return out


def array(*tensors):
    return (Tensor * len(tensors))(*tensors)


def backward(loss, gradient=NONE):
    status("backward", args(Backward, loss=loss, gradient=gradient))


def grad(leaf):
    return get(lib.weft_grad(leaf)) if lib.weft_has_grad(leaf) else None


def grad_of(output, inputs, seed, create_graph=False):
    grads = array(*[NONE] * len(inputs))
    status(
        "grad_of",
        args(
            GradOf,
            outputs=array(output),
            n_outputs=1,
            inputs=array(*inputs),
            n_inputs=len(inputs),
            grads=grads,
            grad_outputs=array(put(seed)),
            retain_graph=True,
            create_graph=create_graph,
            allow_unused=True,
        ),
    )
    return list(grads)


class Scope:
    def __enter__(self):
        self.scope = lib.weft_scope_begin()

    def __exit__(self, *_):
        lib.weft_scope_end(self.scope)
