# tools/weft-gdb.py -- gdb shows a weft_tensor as its type, name, site and elements.
#
#   (gdb) source PREFIX/share/weft/weft-gdb.py
#   (gdb) print x
#   $1 = f32[2,2] 'w' (made at train.c:31) [[1, 2], [-3, 4]]
#
# Nothing runs in the program: a handle is followed through memory by the offsets that libweft tells
# (weft_debug_layout in eager/ctx.c), so that core files and programs stopped anywhere work. `call weft_describe(x)`
# gives weft's own text where gdb can call functions.
import struct

import gdb
import gdb.printing

FIELDS = ("version contexts chunks chunk_slots slot_size state dtype rank st offset ext meta site dims strides "
          "device is_virtual data name scalar scalar_float absent errors n_errors error_size error_id error_text").split()
# weft_dtype: name, bytes, struct format (bf16: the high half of an f32)
DTYPES = [None, ("bool", 1, "?"), ("u8", 1, "B"), ("i8", 1, "b"), ("i16", 2, "h"), ("i32", 4, "i"), ("i64", 8, "q"),
          ("f16", 2, "e"), ("bf16", 2, None), ("f32", 4, "f"), ("f64", 8, "d")]
SHOWN = 6  # elements of an axis


def read(address, size):
    return bytes(gdb.selected_inferior().read_memory(address, size))


def word(address):
    return struct.unpack("<Q", read(address, 8))[0]


def text(address):
    s = b""
    while address and len(s) < 500 and (c := read(address + len(s), 1)) != b"\0":
        s += c
    return s.decode("utf-8", "replace")


def layout():
    at = int(gdb.parse_and_eval("(unsigned long) &weft_debug_layout"))
    values = dict(zip(FIELDS, struct.unpack("<%dQ" % len(FIELDS), read(at, 8 * len(FIELDS)))))
    if values["version"] != 1:
        raise gdb.error("this script does not fit the library: its layout is version %d" % values["version"])
    values["registry"] = word(int(gdb.parse_and_eval("(unsigned long) &weft_debug_contexts")))
    return values


def element(address, dtype):
    _, size, code = DTYPES[dtype]
    raw = read(address, size)
    value = struct.unpack("<f", b"\0\0" + raw)[0] if code is None else struct.unpack("<" + code, raw)[0]
    return "%.6g" % value if isinstance(value, float) else str(value).lower()


def elements(address, dtype, dims, strides):
    if not dims:
        return element(address, dtype)
    n, step = dims[0], strides[0] * DTYPES[dtype][1]
    parts = [elements(address + i * step, dtype, dims[1:], strides[1:]) for i in range(min(n, SHOWN))]
    return "[" + ", ".join(parts + (["..."] if n > SHOWN else [])) + "]"


def describe(slot, context, serial):
    l = layout()
    thread = word(l["registry"] + 8 * context) if context < l["contexts"] else 0
    if slot == 0 and serial == 0:
        return "empty handle"
    if slot == 0:
        at = word(thread + l["errors"]) + serial % l["n_errors"] * l["error_size"] if thread else 0
        return "error: " + (text(at + l["error_text"]) if at and word(at + l["error_id"]) == serial else "long ago")
    if slot == l["absent"]:
        return "(not given)"
    if slot == l["scalar"]:
        code = "<d" if context == l["scalar_float"] else "<q"
        return "scalar %s" % struct.unpack(code, struct.pack("<Q", serial))[0]
    chunk = word(word(thread + l["chunks"]) + 8 * (slot // l["chunk_slots"])) if thread else 0
    if not chunk:
        return "not a handle"
    at = chunk + slot % l["chunk_slots"] * l["slot_size"]
    state = word(at + l["state"])
    if state >> 18 != serial or state & 1 << 17:
        return "dead handle"
    dtype, rank = read(at + l["dtype"], 1)[0], read(at + l["rank"], 1)[0]
    ext = word(at + l["ext"])
    numbers = "<%dq" % rank
    dims = struct.unpack(numbers, read(ext or at + l["dims"], 8 * rank))
    strides = struct.unpack(numbers, read(ext + 8 * rank if ext else at + l["strides"], 8 * rank))
    out = "%s[%s]" % (DTYPES[dtype][0], ",".join(map(str, dims)))
    meta = word(at + l["meta"])
    name = text(word(meta + l["name"])) if meta else ""
    site = text(word(at + l["site"]))
    out += " '%s'" % name if name else ""
    out += " (made at %s)" % site if site else ""
    storage = word(at + l["st"])
    if read(storage + l["device"], 1) != b"\0":
        return out + " on a device"
    if read(storage + l["is_virtual"], 1) != b"\0":
        return out + ", recorded, not computed yet"
    data = word(storage + l["data"])
    if data == 0 and 0 not in dims:
        return out + ", holds no valid value"
    offset = struct.unpack("<q", read(at + l["offset"], 8))[0]
    return out + " " + elements(data + offset, dtype, dims, strides)


class Tensor:
    def __init__(self, value):
        self.numbers = [int(value[field]) for field in ("slot", "context", "serial")]

    def to_string(self):
        try:
            return describe(*self.numbers)
        except (gdb.error, IndexError, TypeError) as e:
            return "weft_tensor (slot %d, context %d, serial %d: %s)" % (*self.numbers, e)


printers = gdb.printing.RegexpCollectionPrettyPrinter("weft")
printers.add_printer("weft_tensor", "^weft_tensor$", Tensor)
gdb.printing.register_pretty_printer(gdb.current_objfile(), printers, replace=True)
