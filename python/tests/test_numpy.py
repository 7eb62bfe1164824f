"""The operations on NumPy arrays against dense ones in float64: shapes, strides, types, out, errors."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from conftest import dense_softmax, element_mask
from hypothesis import given, settings
from hypothesis import strategies as st

import bstk

UNIT = {np.dtype("f8"): 2.0**-52, np.dtype("f4"): 2.0**-24, np.dtype("f2"): 2.0**-11}


def bound(k: int, magnitude: np.ndarray, want: np.ndarray, dtype: Any) -> np.ndarray:
    """docs/numerics.md section 3: sums in f32 (f64), one rounding to the type."""
    dtype = np.dtype(dtype)
    u = UNIT[dtype] if dtype.itemsize >= 4 else 2.0**-24
    return 2 * ((k + 4) * u * magnitude + UNIT[dtype] * abs(want)) + (2.0**-24 if dtype.itemsize == 2 else 1e-300)


def t(x: np.ndarray, flag: bool) -> np.ndarray:
    """Stored as its transpose where `flag` says so, as a contiguous array."""
    return np.ascontiguousarray(x.swapaxes(-1, -2)) if flag else x


def strided(x: np.ndarray, how: int) -> np.ndarray:
    """The same values with other strides: reversed, with gaps, or as a transposed view."""
    if how == 1:
        return x[..., ::-1].copy()[..., ::-1]
    if how == 2:
        wide = np.full((*x.shape[:-1], x.shape[-1] * 2), np.nan, x.dtype)
        wide[..., ::2] = x
        return wide[..., ::2]
    return x.swapaxes(-1, -2).copy().swapaxes(-1, -2) if how == 3 else x


@given(
    mode=st.sampled_from(["sdd", "dsd", "dds"]),
    block=st.sampled_from([8, 16, 32]),
    sizes=st.tuples(*[st.integers(1, 70)] * 3),
    heads=st.sampled_from([(1, 1), (1, 2), (2, 2)]),
    batch=st.sampled_from([None, 1, 2]),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    dtype=st.sampled_from(["f8", "f4", "f2"]),
    how=st.integers(0, 3),
    seed=st.integers(0, 99),
)
@settings(max_examples=150, deadline=None)
def test_products(mode, block, sizes, heads, batch, flags, dtype, how, seed) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    m, n, k = sizes
    layout_heads, h = heads
    ta, tb, tc = flags
    lead = (h,) if batch is None else (batch, h)
    a = rng.integers(-3, 4, (*lead, m, k)).astype(dtype)
    b = rng.integers(-3, 4, (*lead, k, n)).astype(dtype)
    grid = {"sdd": (n, m) if tc else (m, n), "dsd": (k, m) if ta else (m, k), "dds": (n, k) if tb else (k, n)}[mode]
    mask = rng.random((layout_heads, -(-grid[0] // block), -(-grid[1] // block))) < 0.6
    mask[0, 0, 0] = True  # no block at all cannot tell how many heads share the layout
    layout = bstk.Layout(mask, block, grid)
    kept = np.broadcast_to(element_mask(layout, h), (*lead, *grid))
    if mode == "dsd":
        a = np.where(kept.swapaxes(-1, -2) if ta else kept, a, 0).astype(dtype)
        left: Any = bstk.pack(layout, t(a, ta))
        right: Any = strided(t(b, tb), how)
    elif mode == "dds":
        b = np.where(kept.swapaxes(-1, -2) if tb else kept, b, 0).astype(dtype)
        left, right = strided(t(a, ta), how), bstk.pack(layout, t(b, tb))
    else:
        left, right = strided(t(a, ta), how), t(b, tb)
    c = getattr(bstk, mode)(layout, left, right, ta, tb, tc, alpha=0.5)
    want = t(0.5 * (a.astype("f8") @ b.astype("f8")), tc)
    if mode == "sdd":
        assert c.shape == (*lead[:-1], (h if layout_heads == 1 else 1) * layout.nnz, block, block)
        c, want = bstk.unpack(layout, c).reshape(want.shape), np.where(kept, want, 0)
    assert c.dtype == dtype and c.shape == (want.shape if h > 1 or c.ndim == want.ndim else want.shape[1:])
    assert (c.astype("f8").reshape(want.shape) == want).all()  # small whole numbers: exact in every type


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2"])
def test_products_are_within_their_bound(rng: np.random.Generator, dtype: str) -> None:
    layout = bstk.layouts.bigbird((200, 264), block=32, heads=2)
    a, b = rng.standard_normal((2, 200, 90)).astype(dtype), rng.standard_normal((2, 264, 90)).astype(dtype)
    got = bstk.unpack(layout, bstk.sdd(layout, a, b, trans_b=True)).astype("f8")
    a8, b8 = a.astype("f8"), b.astype("f8").swapaxes(-1, -2)
    want = np.where(element_mask(layout), a8 @ b8, 0)
    assert (abs(got - want) <= bound(90, abs(a8) @ abs(b8), want, dtype)).all()


def test_out_and_beta(rng: np.random.Generator) -> None:
    layout = bstk.Layout([[1, 1], [0, 1]], block=16)
    a, b = rng.standard_normal((3, 16, 16)), rng.standard_normal((32, 5))
    out = np.full((32, 10), np.nan)[:, ::2]
    assert bstk.dsd(layout, a, b, out=out) is out
    want = out.copy()
    bstk.dsd(layout, a, b, out=out, beta=2.0)
    assert np.allclose(out, 3 * want, rtol=1e-14)
    with pytest.raises(ValueError, match="out has shape"):
        bstk.dsd(layout, a, b, out=np.zeros((32, 6)))
    with pytest.raises(TypeError, match="out is float32, expected float64"):
        bstk.dsd(layout, a, b, out=np.zeros((32, 5), "f4"))
    with pytest.raises(ValueError, match="read-only"):
        frozen = np.zeros((32, 5))
        frozen.flags.writeable = False
        bstk.dsd(layout, a, b, out=frozen)
    with pytest.raises(ValueError, match="beta is 2.0, which needs out"):
        bstk.dsd(layout, a, b, beta=2.0)
    with pytest.raises(ValueError, match="overlap"):
        bstk.dsd(layout, a, b, out=b)
    x = rng.standard_normal((3, 16, 16))
    want = bstk.softmax(layout, x)
    assert bstk.softmax(layout, x, out=x) is x and np.array_equal(x, want)


def test_errors_name_argument_value_and_expected() -> None:
    layout = bstk.Layout(np.ones((16, 16), bool), block=64)
    with pytest.raises(ValueError, match="1000.*1024|1024.*1000"):
        bstk.dsd(layout, np.zeros((256, 64, 64)), np.zeros((1000, 4)))
    with pytest.raises(ValueError, match="dsd: a"):
        bstk.dsd(layout, np.zeros((255, 64, 64)), np.zeros((1024, 4)))
    with pytest.raises(ValueError, match="dsd: a has 2 axes, expected 3 to 4"):
        bstk.dsd(layout, np.zeros((1024, 1024)), np.zeros((1024, 4)))
    with pytest.raises(TypeError, match="complex128"):
        bstk.sdd(layout, np.zeros((1024, 4), complex), np.zeros((4, 1024), complex))
    with pytest.raises(TypeError, match="sdd"):
        bstk.sdd(layout, np.zeros((1024, 4), int), np.zeros((4, 1024), int))
    with pytest.raises(TypeError, match="layout is ndarray, expected bstk.Layout"):
        bstk.sdd(np.ones((2, 2)), np.zeros((32, 4)), np.zeros((4, 32)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="5 axes"):
        bstk.sdd(layout, np.zeros((1, 1, 1, 1024, 4)), np.zeros((4, 1024)))
    with pytest.raises(ValueError, match="attn_mask_mode is 'maybe'"):
        bstk.softmax(layout, np.zeros((256, 64, 64)), attn_mask_mode="maybe")
    with pytest.raises(ValueError, match="window"):
        bstk.softmax(layout, np.zeros((256, 64, 64)), window=3)  # type: ignore[arg-type]
    # The predecessor read garbage here (triton issue 4709): a dense matrix where packed blocks are expected.
    small = bstk.Layout(np.ones((1, 4, 2), bool), block=32)
    with pytest.raises(ValueError, match="dds"):
        bstk.dds(small, np.zeros((1, 1, 64, 128)), np.zeros((1, 1, 128, 64)))


def test_softmax_terms(rng: np.random.Generator) -> None:
    layout = bstk.layouts.local(80, block=16, heads=2, window=3)
    x = rng.standard_normal((3, layout.nnz, 16, 16))
    rpe, rel = rng.standard_normal((2, 80, 80)), rng.standard_normal((3, 2, 80, 50))
    padding, mask = rng.random((3, 80)) < 0.8, rng.standard_normal((80, 80))
    mask[rng.random((80, 80)) < 0.2] = -np.inf
    y, lse = bstk.softmax(
        layout, x, 0.3, True, padding, mask, rel, rpe, causal_offset=2, window=(20, -1), softcap=4.0, return_lse=True
    )
    i, j = np.indices((80, 80))
    e = 49 - (i - j)
    inside = (e >= 0) & (e < 50)
    scores = 4 * np.tanh(bstk.unpack(layout, x) * 0.3 / 4) + rpe + mask
    scores = scores + np.where(
        inside, np.take_along_axis(rel, np.broadcast_to(np.clip(e, 0, 49), (3, 2, 80, 80)), -1), 0
    )
    kept = element_mask(layout) & (j <= i + 2) & (j >= i + 2 - 20) & padding[:, None, None] & (mask > -np.inf)
    want, want_lse = dense_softmax(scores, kept)
    assert np.allclose(bstk.unpack(layout, y), want, rtol=1e-12, atol=1e-14)
    assert np.allclose(lse, want_lse, rtol=1e-12)


def test_attention_is_the_three_operations(rng: np.random.Generator) -> None:
    layout = bstk.layouts.bigbird(150, block=16, heads=4)
    q, k, v = (
        rng.standard_normal((2, 4, 150, 24)),
        rng.standard_normal((2, 2, 150, 24)),
        rng.standard_normal((2, 2, 150, 9)),
    )
    slopes, sinks = np.array([0.5, 0.25, 0.125, 0.0625]), rng.standard_normal(4)
    terms: dict[str, Any] = {"causal": True, "alibi_slopes": slopes, "sinks": sinks, "dropout": 0.2, "seed": 7}
    o, lse = bstk.attention(layout, q, k, v, return_lse=True, **terms)
    w, lse2 = bstk.softmax(layout, bstk.sdd(layout, q, k, trans_b=True), 24**-0.5, return_lse=True, **terms)
    assert np.allclose(o, bstk.dsd(layout, w, v), rtol=1e-11, atol=1e-13) and np.allclose(lse, lse2)
    scores = q @ np.repeat(k, 2, 1).swapaxes(-1, -2) / np.sqrt(24)
    kept = element_mask(layout) & np.tri(150, dtype=bool)
    want, _ = dense_softmax(scores, kept)
    plain = bstk.attention(layout, q, k, v, causal=True)
    assert np.allclose(plain, want @ np.repeat(v, 2, 1), rtol=1e-11, atol=1e-13)
    flat = bstk.attention(bstk.layouts.dense(150, 16), q[0, 0], k[0, 0], v[0, 0], causal=True)
    assert flat.shape == (150, 9)


def test_documents_and_sequences(rng: np.random.Generator) -> None:
    layout = bstk.layouts.dense(60, block=16)
    q, k, v = rng.standard_normal((3, 1, 60, 8))
    ids = np.repeat([0, 1, 2], [20, 25, 15]).astype("i4")
    same = bstk.attention(layout, q, k, v, documents=ids)
    lengths = bstk.attention(layout, q, k, v, cu_seqlens=np.array([0, 20, 45, 60], "i8"))
    assert np.array_equal(same, lengths)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(8)
    want, _ = dense_softmax(scores, ids[:, None] == ids[None, :])
    assert np.allclose(same, want @ v, rtol=1e-12)


def test_norms(rng: np.random.Generator) -> None:
    layout = bstk.layouts.bigbird(100, block=16, heads=2)
    dense = rng.standard_normal((3, 2, 100, 100))
    x = bstk.pack(layout, dense)
    weight, bias = rng.standard_normal((2, 100)), rng.standard_normal(100)
    kept = element_mask(layout)
    count = kept.sum(-1, keepdims=True)
    mean = (dense * kept).sum(-1, keepdims=True) / count
    var = (((dense - mean) * kept) ** 2).sum(-1, keepdims=True) / count
    want = ((dense - mean) / np.sqrt(var + 1e-5) * weight[:, None] + bias) * kept
    assert np.allclose(bstk.unpack(layout, bstk.layernorm(layout, x, weight, bias)), want)
    want = dense / np.sqrt((dense**2 * kept).sum(-1, keepdims=True) / count + 1e-5) * kept
    assert np.allclose(bstk.unpack(layout, bstk.rmsnorm(layout, x)), want)


def test_bfloat16() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    layout = bstk.Layout([[1]], block=16)
    a = np.arange(256).reshape(16, 16).astype(ml_dtypes.bfloat16)
    c = bstk.sdd(layout, a, np.eye(16).astype(ml_dtypes.bfloat16))
    assert c.dtype == ml_dtypes.bfloat16 and (c[0] == a).all()


def test_lists_and_broadcast_views() -> None:
    layout = bstk.Layout([[1]], block=8)
    ones = np.broadcast_to(np.float32(1), (8, 8))
    assert (bstk.sdd(layout, ones, ones) == 8).all()
    assert (bstk.sdd(layout, ones.tolist(), ones.tolist()) == 8).all()
    record = np.zeros(8, dtype=[("x", "f4", (8,)), ("pad", "u1")])["x"]
    record[...] = 2
    assert record.strides == (33, 4) and (bstk.sdd(layout, record, ones) == 16).all()


def test_threads_and_same_bits(rng: np.random.Generator) -> None:
    layout = bstk.layouts.bigbird(512, block=32, heads=2)
    q, k, v = rng.standard_normal((3, 2, 2, 512, 16)).astype("f4")
    got = []
    before = bstk.get_num_threads()
    for count in (1, 2, 5):
        bstk.set_num_threads(count)
        assert bstk.get_num_threads() == count
        got.append(bstk.attention(layout, q, k, v, causal=True))
    bstk.set_num_threads(0)
    assert bstk.get_num_threads() == before
    assert all(np.array_equal(got[0], other) for other in got)
    with pytest.raises(ValueError, match="num_threads"):
        bstk.set_num_threads(-1)


def test_many_python_threads_share_one_layout(rng: np.random.Generator) -> None:
    layout = bstk.layouts.local(256, block=16)
    x = rng.standard_normal((256, 32))
    want = bstk.attention(layout, x, x, x)
    wrong: list[str] = []

    def work() -> None:
        for width in (32, 16, 8, 24):
            part = np.ascontiguousarray(x[:, :width])
            if width == 32 and not np.array_equal(bstk.attention(layout, part, part, part), want):
                wrong.append("differs")
            bstk.attention(layout, part, part, part)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_plan_cache_is_bounded() -> None:
    layout = bstk.Layout([[1]], block=16)
    for k in range(1, 200):
        bstk.sdd(layout, np.ones((16, k), "f4"), np.ones((k, 16), "f4"))
    assert len(layout._plans) == 64
