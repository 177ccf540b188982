#!/usr/bin/env python3
"""Derive the polynomials of jit/ir/math_f32.h and math_f64.h and write them to jit/ir/math_coef.h.

Every polynomial is a minimax fit (Remez exchange, mpmath) of a named function with a weight that
makes the error the one that matters (relative error of the final result). The leading
coefficients are rounded to the working format one at a time and the rest fitted again, so that
the printed polynomial, not an ideal one, has the error given in its comment.

usage: math_coeffs.py [NAME...] [--out FILE]   (without names: all of them)
"""
import sys
from mpmath import mp, mpf, matrix, lu_solve
import mpmath as M

mp.dps = 50


def rnd(c, fmt):
    """Round to binary32 or binary64 (the coefficients are far from both formats' limits)."""
    bits = 24 if fmt == "f32" else 53
    with mp.workprec(bits):
        return +c


def hexf(c, fmt):
    s = float(c).hex()
    mant, exp = s.split("p")
    if "." in mant:
        mant = mant.rstrip("0").rstrip(".")
    return f"{mant}p{int(exp)}" + ("f" if fmt == "f32" else "")


def remez(fv, xs, wv, pv, n):
    """Minimax of (f - sum c_j p_j) w over the grid; returns the coefficients and the error."""
    m = len(xs)
    idx = [round((m - 1) * (1 - float(M.cos(M.pi * i / n))) / 2) for i in range(n + 1)]
    c, err = None, None
    for _ in range(12):
        A, b = matrix(n + 1), matrix(n + 1, 1)
        for i, k in enumerate(idx):
            for j in range(n):
                A[i, j] = pv[j][k] * wv[k]
            A[i, n] = (-1) ** i
            b[i] = fv[k] * wv[k]
        c = lu_solve(A, b)
        e = [(fv[k] - sum(c[j] * pv[j][k] for j in range(n))) * wv[k] for k in range(m)]
        # one extremum per run of equal sign, then the best alternating window of n + 1
        ext, cur = [], 0
        for k in range(1, m):
            if e[k] * e[cur] < 0:
                ext.append(cur)
                cur = k
            elif abs(e[k]) > abs(e[cur]):
                cur = k
        ext.append(cur)
        while len(ext) > n + 1:
            if abs(e[ext[0]]) < abs(e[ext[-1]]):
                ext.pop(0)
            else:
                ext.pop()
        err = max(abs(v) for v in e)
        if len(ext) < n + 1 or ext == idx or err < abs(c[n]) * mpf("1.001"):
            break
        idx = ext
    return [c[j] for j in range(n)], err


def fit(f, w, a, b, n, fmt, keep=4, split=False):
    """Coefficients of sum c_j x^j (j < n) on [a, b], the first `keep` rounded one at a time."""
    a, b = mpf(a), mpf(b)
    m = 24 * n + 40
    xs = [(a + b) / 2 - (b - a) / 2 * M.cos(M.pi * (2 * i + 1) / (2 * m)) for i in range(m)]
    fv, wv = [f(x) for x in xs], [w(x) for x in xs]
    pv = [[x**j for x in xs] for j in range(n)]
    done = []
    for j in range(min(keep, n)):
        c, _ = remez(fv, xs, wv, pv[j:], n - j)
        r = c[0] if split and j == 0 else rnd(c[0], fmt)
        done.append(r)
        fv = [v - r * p for v, p in zip(fv, pv[j])]
    if n > keep:
        c, _ = remez(fv, xs, wv, pv[keep:], n - keep)
        for j, cc in enumerate(c):
            r = cc if split and keep == 0 and j == 0 else rnd(cc, fmt)
            done.append(r)
            fv = [v - r * p for v, p in zip(fv, pv[keep + j])]
    err = max(abs(v * ww) for v, ww in zip(fv, wv))
    return done, err


def cut(g):
    """Evaluate g with guard digits: the fitted functions are differences that cancel near 0."""

    def h(x):
        with mp.workdps(90):
            return g(x)

    return h


def normcdf_h(v, c):
    """normcdf(-a) exp(a^2/2) / d as a function of v = d - 1/2, d = 1 / (1 + c a)."""
    d = v + mpf("0.5")
    a = (1 / d - 1) / c
    return M.exp(a * a / 2) * M.erfc(a / M.sqrt(2)) / 2 / d


def log_gelu_h(c, k):
    """log(2 (1 + k a) normcdf(-a) exp(a^2/2)) / c as a function of c = a/2 / (1 + k a)."""
    a = 2 * c / (1 - 2 * k * c)
    return M.log(M.exp(a * a / 2) * M.erfc(a / M.sqrt(2)) * (1 + k * a)) / c


H = mpf("0.3467")
S2 = M.sqrt(2)
FITS = {}


def add(name, fmt, f, w, a, b, n, keep=0):
    FITS[name] = (fmt, cut(f), cut(w), a, b, n, keep)


for fm, n_exp, n_exp2, n_log in (("f32", 5, 6, 9), ("f64", 11, 12, 0)):
    add(f"exp_{fm}", fm, lambda x: (M.expm1(x) - x) / x**2, lambda x: x**2 / abs(M.expm1(x)),
        -H, H, n_exp, 1)
    add(f"exp2_{fm}", fm, lambda x: M.expm1(x * M.ln(2)) / x, lambda x: x / 2**x,
        "-0.5001", "0.5001", n_exp2, 2)
    if n_log:
        add(f"log_{fm}", fm, lambda x: (M.log1p(x) - x + x * x / 2) / x**3,
            lambda x: x**3 / M.log1p(x), 1 / S2 - 1 - mpf("1e-6"), S2 - 1 + mpf("1e-6"), n_log, 2)
# log2(1 + f) = L f + f^2 P(f) with L = log2 e, and the same of log10
for nm, base in (("log2_f32", 2), ("log10_f32", 10)):
    add(nm, "f32", lambda x, base=base: (M.log1p(x) - x) / x**2 / M.ln(base), lambda x, base=base: x**2 * M.ln(base) / abs(M.log1p(x)),
        1 / S2 - 1 - mpf("1e-6"), S2 - 1 + mpf("1e-6"), 10, 2)
# pow of f32, in f64: log2(1 + f) = f P(f), 2^r = 1 + r P(r)
add("powl_f32", "f64", lambda x: M.log1p(x) / x / M.ln(2), lambda x: x * M.ln(2) / M.log1p(x),
    1 / S2 - 1 - mpf("1e-6"), S2 - 1 + mpf("1e-6"), 12)
add("powx_f32", "f64", lambda x: M.expm1(x * M.ln(2)) / x, lambda x: x / 2**x, "-0.5001", "0.5001", 7)
# sin r = r + r^3 P(z), cos r = 1 - z/2 + z^2 P(z) on |r| <= pi/4, in z = r^2
for fm, n in (("f32", 3), ("f64", 6)):
    Q = (M.pi / 4 + mpf("1e-5"))**2
    add(f"sin_{fm}", fm, lambda z: (M.sin(M.sqrt(z)) - M.sqrt(z)) / M.sqrt(z)**3,
        lambda z: M.sqrt(z)**3 / M.sin(M.sqrt(z)), mpf("1e-9"), Q, n)
    add(f"cos_{fm}", fm, lambda z: (M.cos(M.sqrt(z)) - 1 + z / 2) / z**2,
        lambda z: z**2 / M.cos(M.sqrt(z)), mpf("1e-9"), Q, n)
# erf on [0, ET] as a multiple of its argument; beyond 1 - C 2^n 2^r with erfc(EK + b) = C 2^(b Q(b)), C = erfc(EK) almost
# exact in f32, b Q = n + r, and C 2^r = C + r P(r)
ET, EK = mpf("0.9375"), mpf(241) / 256
EC = rnd(M.erfc(EK), "f32")
add("erfs_f32", "f32", lambda z: M.erf(M.sqrt(z)) / M.sqrt(z) - 1, lambda z: M.sqrt(z) / M.erf(M.sqrt(z)),
    mpf("1e-9"), ET**2, 7, 3)
add("erfl_f32", "f32", lambda b: M.log(M.erfc(EK + b) / M.erfc(EK), 2) / b, lambda b: abs(b) * M.erfc(EK + b) * M.ln(2),
    ET - EK, 4 - EK, 6, 3)
add("erfx_f32", "f32", lambda x: EC * M.expm1(x * M.ln(2)) / x, lambda x: abs(x) / 2**x / EC, "-0.5001", "0.5001", 6, 2)
# atanh(s) = s + s z P(z), z = s^2
add("atanh_f32", "f32", lambda z: (M.atanh(M.sqrt(z)) / M.sqrt(z) - 1) / z, lambda z: z * M.sqrt(z) / M.atanh(M.sqrt(z)),
    mpf("1e-9"), mpf("0.0795"), 4)
NC = mpf("0.25")
add("ncdf_f32", "f32", lambda d: normcdf_h(d, NC), lambda d: 1 / normcdf_h(d, NC), 1 / (1 + NC * 15) - mpf("0.5"),
    mpf("0.5"), 11, 4)
GC = 1 / mpf("3.125")
add("gelu_f32", "f32", lambda c: log_gelu_h(c, GC), abs, mpf("1e-9"), mpf("7.25") / (1 + GC * mpf("14.5")), 9, 2)
# log(1 + f) = 2 s + s R(s^2), s = f / (2 + f): R / s^2
SL = (S2 - 1) / (S2 + 1)
add("logs_f64", "f64", lambda z: (2 * M.atanh(M.sqrt(z)) - 2 * M.sqrt(z)) / M.sqrt(z) / z,
    lambda z: z * M.sqrt(z) / M.atanh(M.sqrt(z)) / 2, mpf("1e-12"), (SL + mpf("1e-6"))**2, 7)
# the same series from s^5 on, for the logarithm to twice the precision
add("logq_f64", "f64", lambda z: (2 * M.atanh(M.sqrt(z)) / M.sqrt(z) - 2 - 2 * z / 3) / z**2,
    lambda z: z**2 * M.sqrt(z) / M.atanh(M.sqrt(z)) / 2, mpf("1e-10"), (SL + mpf("1e-6"))**2, 8)
# erf near 0 and the smooth factor of erfc: erfc(a) = exp(-a^2) G(t) / (1 + 2a), t = (a-k)/(a+k)
add("erfs_f64", "f64", lambda z: M.erf(M.sqrt(z)) / M.sqrt(z) - 1, lambda z: M.sqrt(z) / M.erf(M.sqrt(z)),
    mpf("1e-9"), mpf("1.0"), 13)
CK = mpf("3.75")


def erfc_g(t):
    a = CK * (1 + t) / (1 - t)
    return M.exp(a * a) * M.erfc(a) * (1 + 2 * a)


add("erfc_f64", "f64", erfc_g, lambda t: 1 / erfc_g(t), (mpf("0.5") - CK) / (mpf("0.5") + CK),
    (mpf(28) - CK) / (mpf(28) + CK), 22)


def odd(g):
    """(g(s) / s - 1) / s^2 as a function of z = s^2, for odd g with g'(0) = 1."""
    return lambda z: (g(M.sqrt(z)) / M.sqrt(z) - 1) / z, lambda z: z * M.sqrt(z) / g(M.sqrt(z))


# atan of a ratio of at most 1, for atan and atan2
add("atan_f32", "f32", *odd(M.atan), mpf("1e-9"), mpf(1), 9, 2)
T = mpf("0.3026")
# (exp(2r) - 1) / 2 = r + r^2 P(r)
add("expm1h_f32", "f32", lambda x: (M.expm1(2 * x) / 2 - x) / x**2, lambda x: 2 * x**2 / abs(M.expm1(2 * x)),
    -H / 2, H / 2, 5, 1)
add("tanh_f64", "f64", *odd(M.tanh), mpf("1e-9"), T, 11)
for nm, g, hi, n in (("atan_f64", M.atan, (S2 - 1)**2 + mpf("1e-6"), 11),
                     ("asin_f64", M.asin, mpf("0.25"), 13), ("sinh_f64", M.sinh, mpf(1), 8)):
    add(nm, "f64", *odd(g), mpf("1e-9"), hi, n)


# c_0 in two parts, POLY_name_H and POLY_name_L; POLY_name(z) is then (sum c_j z^j - c_0) / z
SPLIT = {"erfc_f64", "ncdf_f32"}
# the same with c_0 in one part, POLY_name_H
APART = {"gelu_f32"}


def emit(name):
    fmt, f, w, a, b, n, keep = FITS[name]
    split = name in SPLIT
    c, err = fit(f, w, a, b, n, fmt, keep, split)
    k = "KF32" if fmt == "f32" else "KF64"
    out = [f"/* {name}: {n} coefficients on [{float(a):.6g}, {float(b):.6g}], error 2^{float(M.log(err, 2)):.1f} */"]
    if split:
        hi = rnd(c[0], fmt)
        out.append(f"#define POLY_{name}_H {k}({hexf(hi, fmt)})")
        out.append(f"#define POLY_{name}_L {k}({hexf(rnd(c[0] - hi, fmt), fmt)})")
        c = c[1:]
    if name in APART:
        out.append(f"#define POLY_{name}_H {k}({hexf(c[0], fmt)})")
        c = c[1:]
    cs = [f"{k}({hexf(v, fmt)})" for v in c]
    lines = [f"#define POLY_{name}(z)"]
    rows, row = [], "    "
    for piece in ["FMA(z, "] * (len(c) - 1) + [cs[-1]] + [f", {v})" for v in reversed(cs[:-1])]:
        if len(row) + len(piece.rstrip()) > 96:
            rows.append(row.rstrip())
            row = "    "
            piece = piece.lstrip() if not piece.startswith(",") else piece
        row += piece
    rows.append(row.rstrip())
    # a row may not begin with a comma
    for i in range(1, len(rows)):
        if rows[i].lstrip().startswith(","):
            rows[i - 1] += ","
            rows[i] = "    " + rows[i].lstrip()[1:].lstrip()
    text = [lines[0]] + rows
    out += [t.ljust(99) + "\\" for t in text[:-1]] + [text[-1]]
    print(out[0], file=sys.stderr)
    return "\n".join(out) + "\n"


HEAD = """/*
 * jit/ir/math_coef.h -- polynomial coefficients of the math bodies; written by tools/math_coeffs.py.
 *
 * POLY_name(z) evaluates one minimax polynomial by Horner's rule; z must be a plain variable. Where
 * there are POLY_name_H and POLY_name_L the polynomial is H + L + z POLY_name(z), where there is H alone
 * H + z POLY_name(z). The comment gives the fitted interval and the weighted error after rounding the coefficients.
 */
#ifndef JIT_IR_MATH_COEF_H
#define JIT_IR_MATH_COEF_H
/* clang-format off */

"""


def main():
    args = sys.argv[1:]
    out = None
    if "--out" in args:
        i = args.index("--out")
        out = args[i + 1]
        del args[i:i + 2]
    text = "\n".join(emit(n) for n in (args or FITS))
    if out:
        with open(out, "w", encoding="ascii") as fh:
            fh.write(HEAD + text + "\n/* clang-format on */\n#endif\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
