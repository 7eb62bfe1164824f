#!/usr/bin/env python3
"""The command line against dense float64 NumPy: all modes, transpositions, types; softmax and attention with every
term, pack, unpack.

An oracle that shares no line with the C code. Usage: test_dense.py PATH_OF_BSTK
"""
import itertools
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np

BSTK = sys.argv[1]
WORK = pathlib.Path(tempfile.mkdtemp(prefix="bstk-dense-"))
RNG = np.random.default_rng(7)
# Unit roundoff of each type's storage and of its sums.
UNIT = {np.float64: (2.0**-53, 2.0**-53), np.float32: (2.0**-24, 2.0**-24), np.float16: (2.0**-11, 2.0**-24)}
done = 0


def run(*args):
    """Runs bstk; a failure shows the command and its message."""
    result = subprocess.run([BSTK, *map(str, args)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"bstk {' '.join(map(str, args))}: {result.stderr}"
    return result.stdout


def save(name, array):
    path = WORK / name
    np.save(path, array)
    return path


def close(got, want, bound, what):
    """Every element within its bound, and nothing missing."""
    global done
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    error = np.abs(got.astype(np.float64) - want)
    assert np.all(error <= bound), f"{what}: error {error.max()} at {np.argmax(error - bound)}, beyond its bound"
    done += 1


def t(array, flag):
    return np.swapaxes(array, -1, -2) if flag else array


def pack(mask, dense, block):
    """Packed values [Z, nnz, b, b] of dense [Z, H, M, N], which is padded with zeros to whole blocks."""
    z, h, m, n = dense.shape
    rows, cols = mask.shape[-2:]
    whole = np.zeros((z, h, rows * block, cols * block), dense.dtype)
    whole[:, :, :m, :n] = dense
    tiles = whole.reshape(z, h, rows, block, cols, block).swapaxes(3, 4)
    if not mask.any():
        return np.zeros((z, 0, block, block), dense.dtype)
    return np.stack([tiles[:, a, i, j] for a, i, j in np.argwhere(np.broadcast_to(mask, (h, rows, cols)))], 1)


def element_mask(mask, block, m, n):
    return np.kron(mask, np.ones((block, block), bool)).astype(bool)[:, :m, :n]


def matmul_case(mode, ta, tb, tc, dtype, block, m, n, k, heads, shared):
    """One product with its bound: gamma(K) |A||B| + one rounding."""
    u_out, u_acc = UNIT[dtype]
    z = 2
    shape = {"sdd": (m, n), "dsd": (m, k), "dds": (k, n)}[mode]
    stored = shape[::-1] if {"sdd": tc, "dsd": ta, "dds": tb}[mode] else shape
    grid = tuple(-(-s // block) for s in stored)
    mask = RNG.random((1 if shared else heads, *grid)) < 0.5
    layout = save("l.npy", mask[0] if shared else mask.astype(np.int32))
    elements = np.broadcast_to(element_mask(mask, block, *stored), (heads, *stored))
    a = RNG.standard_normal((z, heads, *((k, m) if ta else (m, k)))).astype(dtype)
    b = RNG.standard_normal((z, heads, *((n, k) if tb else (k, n)))).astype(dtype)
    given_a, given_b = a, b
    if mode == "dsd":
        a = np.where(elements, a, dtype(0))
        given_a = pack(mask, a, block)
    if mode == "dds":
        b = np.where(elements, b, dtype(0))
        given_b = pack(mask, b, block)
    left, right = t(a, ta).astype(np.float64), t(b, tb).astype(np.float64)
    want, size = left @ right, np.abs(left) @ np.abs(right)
    bound = 2 * ((k + 2) * u_acc * size + u_out * np.abs(want)) + 1e-7 * (dtype == np.float16)
    if tc:
        want, bound = t(want, True), t(bound, True)
    flags = [f for f, on in (("--trans-a", ta), ("--trans-b", tb), ("--trans-c", tc)) if on]
    run("matmul", mode, "--layout", layout, "--block", block, "--shape", f"{stored[0]},{stored[1]}",
        save("a.npy", given_a), save("b.npy", given_b), "-o", WORK / "c.npy", *flags)
    got = np.load(WORK / "c.npy")
    assert got.dtype == dtype
    if mode == "sdd":
        want, bound = pack(mask, want, block), pack(mask, bound, block)
    close(got, want, bound, f"{mode} ta={ta} tb={tb} tc={tc} {dtype.__name__} b{block} {m}x{n}x{k}")


def softmax_dense(scores, kept, sinks=None):
    """Rows over their kept places and their head's sink; rows that keep nothing are 0 with lse -inf, or the sink."""
    scores = np.where(kept, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    if sinks is not None:
        sinks = sinks[:, None, None].astype(np.float64)
        top = np.maximum(top, sinks)
    e = np.where(kept, np.exp(scores - np.where(np.isfinite(top), top, 0)), 0)
    total = e.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks - top)
    with np.errstate(divide="ignore"):
        lse = np.where(total > 0, np.log(total) + np.where(np.isfinite(top), top, 0), -np.inf)
    return e / np.where(total > 0, total, 1), lse[..., 0]


def score_case(dtype, block, causal, masks):
    """softmax and attention with every term that the command line takes."""
    z, heads, m, n, d, dv = 2, 3, 70, 90, 24, 40
    grid = (-(-m // block), -(-n // block))
    mask = RNG.random((heads, *grid)) < 0.6
    mask[1] = False  # a head without blocks
    mask[0, 0] = False  # a row without
    layout = save("l.npy", mask)
    kept = np.broadcast_to(element_mask(mask, block, m, n), (z, heads, m, n)).copy()
    args, extra = ["--shape", f"{m},{n}"], np.zeros((z, heads, m, n))
    if causal:
        kept &= np.arange(n) <= np.arange(m)[:, None]
        args.append("--causal")
    if masks:
        padding, attn = RNG.random((z, n)) < 0.8, RNG.standard_normal((m, n)).astype(np.float32)
        rel = RNG.standard_normal((z, heads, m, 33)).astype(dtype)
        attn[RNG.random((m, n)) < 0.1] = -np.inf
        kept &= padding[:, None, None, :] & np.isfinite(attn)
        extra += np.where(np.isfinite(attn), attn, 0)
        e = 32 - (np.arange(m)[:, None] - np.arange(n))
        inside = (e >= 0) & (e < 33)
        rows = np.arange(m)[:, None]
        extra += np.where(inside, rel[:, :, rows, np.clip(e, 0, 32)].astype(np.float64), 0)
        args += ["--key-padding", save("kp.npy", padding), "--mask", save("am.npy", attn), "--rel", save("r.npy", rel)]
    tolerance = {np.float64: 1e-13, np.float32: 3e-6, np.float16: 2e-3}[dtype]
    x = RNG.standard_normal((z, heads, m, n)).astype(dtype)
    want, _ = softmax_dense(0.3 * x.astype(np.float64) + extra, kept)
    run("softmax", "--layout", layout, "--block", block, save("x.npy", pack(mask, x, block)), "-o", WORK / "y.npy",
        "--scale", 0.3, *args)
    close(np.load(WORK / "y.npy"), pack(mask, want, block), tolerance, f"softmax {dtype.__name__} {causal} {masks}")
    q, k, v = (RNG.standard_normal((z, h, s, w)).astype(dtype) for h, s, w in ((3, m, d), (1, n, d), (1, n, dv)))
    scores = q.astype(np.float64) @ t(k.astype(np.float64), True) / np.sqrt(d) + extra
    p, lse = softmax_dense(scores, kept)
    run("attention", "--layout", layout, "--block", block, save("q.npy", q), save("k.npy", k), save("v.npy", v),
        "-o", WORK / "o.npy", "--lse", WORK / "lse.npy", *args)
    close(np.load(WORK / "o.npy"), p @ v.astype(np.float64), 4 * tolerance, f"attention {dtype.__name__} {causal}")
    got = np.load(WORK / "lse.npy")
    assert np.array_equal(np.isneginf(got), np.isneginf(lse)), "lse of rows that keep nothing"
    close(np.where(np.isneginf(got), 0, got), np.where(np.isneginf(lse), 0, lse), max(10 * UNIT[dtype][1], 1e-5) * 4,
          "lse")


def philox(counter, key):
    """Philox 4x32-10 of uint64 arrays that hold 32 bits: counter of 4, key of 2; gives 4."""
    low = np.uint64(0xFFFFFFFF)
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (b >> np.uint64(32)) ^ c1 ^ k0, b & low, (a >> np.uint64(32)) ^ c3 ^ k1, a & low
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), -1)


def dropout_dense(z, heads, m, n, p, seed, offset):
    """Factor of each weight: 0 or 1 / (1 - p); word j mod 4 at counter (j / 4, i, z * H + h, offset low)."""
    index = np.indices((z * heads, m, -(-n // 4)), np.uint64)
    half = np.uint64(32)
    seed, offset = np.uint64(seed), np.uint64(offset)
    low = np.uint64(0xFFFFFFFF)
    words = philox((index[2], index[1], index[0], offset & low), (seed & low, (seed >> half) ^ (offset >> half)))
    keep = words.reshape(z, heads, m, -1)[..., :n] >= np.uint64(int(p * 2**32))
    return keep / (1 - p)


def starts(total, parts):
    """Where sequences begin, and the end; an empty one among them."""
    inner = np.sort(RNG.integers(0, total, parts - 2))
    return np.concatenate([[0, 0], inner, [total]])


def terms_case(names, dtype, block, m=70, n=90):
    """softmax and attention, fused and composed, with the terms named."""
    z, heads, d, dv = 2, 4, 24, 40
    mask = RNG.random((heads, -(-m // block), -(-n // block))) < 0.7
    layout = save("l.npy", mask)
    kept = np.broadcast_to(element_mask(mask, block, m, n), (z, heads, m, n)).copy()
    args, rows, cols = ["--shape", f"{m},{n}"], np.arange(m)[:, None], np.arange(n)[None]
    diagonal = rows + np.zeros((1, n), int)
    if "sequences" in names:
        q, k = starts(m, 6), starts(n, 6)
        args += ["--cu-seqlens-q", save("cq.npy", q.astype(np.int32)), "--cu-seqlens-k", save("ck.npy", k)]
        of_row, of_col = (np.searchsorted(c, np.arange(s), "right") - 1 for c, s in ((q, m), (k, n)))
        kept &= of_row[:, None] == of_col
        origin = (k[of_row] - q[of_row])[:, None]  # from a row's index to the column of the same place
        size = (np.diff(k) - np.diff(q))[of_row][:, None]
    else:
        origin, size = 0, n - m
    diagonal = diagonal + origin
    if "bottom-right" in names:
        diagonal = diagonal + size
        args.append("--bottom-right")
    if "offset" in names:
        diagonal = diagonal - 5
        args += ["--causal-offset", -5]
    if "causal" in names:
        kept &= cols <= diagonal
        args.append("--causal")
    if "window" in names:
        kept &= (cols >= diagonal - 20) & (cols <= diagonal + 9)
        args += ["--window", "20,9"]
    if "documents" in names:
        q, k = RNG.integers(-2, 2, (z, m)), RNG.integers(-2, 2, n)
        kept &= q[:, None, :, None] == k
        args += ["--q-documents", save("dq.npy", q), "--k-documents", save("dk.npy", k.astype(np.int32))]
    extra = np.zeros((z, heads, m, n))
    if "alibi" in names:
        slopes = RNG.random((z, heads)).astype(np.float32) / 8
        extra -= slopes.astype(np.float64)[:, :, None, None] * np.abs(diagonal - cols)
        args += ["--alibi", save("al.npy", slopes)]
    if "rel" in names:
        rel = RNG.standard_normal((heads, m, 33)).astype(dtype)
        e = 32 - (rows + origin - cols)
        extra += np.where((e >= 0) & (e < 33), rel[:, rows, np.clip(e, 0, 32)].astype(np.float64), 0)
        args += ["--rel", save("r.npy", rel)]
    if "rpe" in names:
        rpe = RNG.standard_normal((heads, m, n)).astype(dtype)
        extra += rpe.astype(np.float64)
        args += ["--rpe", save("rpe.npy", rpe)]
    sinks = RNG.standard_normal(heads).astype(np.float32) if "sinks" in names else None
    if sinks is not None:
        args += ["--sinks", save("s.npy", sinks)]
    cap = 1.5 if "softcap" in names else None
    if cap:
        args += ["--softcap", cap]
    factor = 1
    if "dropout" in names:
        factor = dropout_dense(z, heads, m, n, 0.3, 2**40 + 7, 2**33 + 5)
        args += ["--dropout", 0.3, "--seed", 2**40 + 7, "--offset", 2**33 + 5]
    what = f"{'+'.join(sorted(names))} {dtype.__name__} b{block} {m}x{n}"
    tolerance = {np.float64: 1e-13, np.float32: 5e-6, np.float16: 2e-3}[dtype]

    def scores(c):
        return (cap * np.tanh(c / cap) if cap else c) + extra

    x = RNG.standard_normal((z, heads, m, n)).astype(dtype)
    p, _ = softmax_dense(scores(0.7 * x.astype(np.float64)), kept, sinks)
    run("softmax", "--layout", layout, "--block", block, save("x.npy", pack(mask, x, block)), "-o", WORK / "y.npy",
        "--saved", WORK / "saved.npy", "--scale", 0.7, *args)
    close(np.load(WORK / "y.npy"), pack(mask, p * factor, block), tolerance, f"softmax {what}")
    close(np.load(WORK / "saved.npy"), pack(mask, p, block), tolerance, f"saved {what}")
    q, k, v = (RNG.standard_normal((z, h, s, w)).astype(dtype) for h, s, w in ((4, m, d), (2, n, d), (2, n, dv)))
    own = np.arange(heads) // 2  # two query heads to one of keys
    k64, v64 = k.astype(np.float64)[:, own], v.astype(np.float64)[:, own]
    p, lse = softmax_dense(scores(q.astype(np.float64) @ t(k64, True) / np.sqrt(d)), kept, sinks)
    for way in ([], ["--composed"]):
        run("attention", "--layout", layout, "--block", block, save("q.npy", q), save("k.npy", k), save("v.npy", v),
            "-o", WORK / "o.npy", "--lse", WORK / "lse.npy", *args, *way)
        close(np.load(WORK / "o.npy"), (p * factor) @ v64, 6 * tolerance, f"attention {way} {what}")
        got = np.load(WORK / "lse.npy")
        assert np.array_equal(np.isneginf(got), np.isneginf(lse)), "lse of rows that keep nothing"
        close(np.where(np.isneginf(got), 0, got), np.where(np.isneginf(lse), 0, lse), max(40 * UNIT[dtype][1], 1e-13),
              f"lse {way} {what}")


def convert_case(dtype, block, order):
    z, heads, m, n = 2, 3, 50, 75
    mask = RNG.random((heads, -(-m // block), -(-n // block))) < 0.5
    x = np.asarray(RNG.standard_normal((z, heads, m, n)).astype(dtype), order=order)
    layout = save("l.npy", mask.astype(np.uint8))
    run("pack", "--layout", layout, "--block", block, "--shape", f"{m},{n}", save("x.npy", x), "-o", WORK / "p.npy")
    close(np.load(WORK / "p.npy"), pack(mask, x, block), 0, "pack")
    run("unpack", "--layout", layout, "--block", block, "--shape", f"{m},{n}", WORK / "p.npy", "-o", WORK / "u.npy")
    close(np.load(WORK / "u.npy"), np.where(element_mask(mask, block, m, n), x, 0), 0, "unpack")


def main():
    flags = list(itertools.product((False, True), repeat=3))
    for mode, (ta, tb, tc), dtype in itertools.product(("sdd", "dsd", "dds"), flags, UNIT):
        matmul_case(mode, ta, tb, tc, dtype, 16, 70, 50, 37, 2, shared=False)
    for mode, block in itertools.product(("sdd", "dsd", "dds"), (8, 24, 32, 64, 128, 256)):
        matmul_case(mode, False, True, False, np.float32, block, 300, 260, 280, 3, shared=block % 16 == 0)
    for dtype, causal, masks in itertools.product(UNIT, (False, True), (False, True)):
        score_case(dtype, 16, causal, masks)
        score_case(dtype, 32, causal, masks)
    terms = ["softcap", "alibi", "sinks", "documents", "sequences", "dropout", "window", "rel", "rpe"]
    for name in terms:
        terms_case({name}, np.float64, 16)
    for moved in (("bottom-right",), ("offset",), ("bottom-right", "offset")):
        for name in ("causal", "window", "alibi"):
            terms_case({name, *moved}, np.float64, 8)
        terms_case({"causal", "window", "alibi", "sequences", *moved}, np.float64, 8, 90, 70)
    for dtype, block in itertools.product(UNIT, (8, 32, 64)):
        for _ in range(3):
            names = {name for name in terms if RNG.random() < 0.5} | {"causal", "bottom-right"}
            terms_case(names, dtype, block, 75, 101)
    for dtype, block, order in itertools.product(UNIT, (8, 16, 64), "CF"):
        convert_case(dtype, block, order)
    shutil.rmtree(WORK)
    print(f"{done} comparisons with dense float64 passed")


if __name__ == "__main__":
    main()
