"""Layouts: ways in and out, queries, errors, pictures, copies."""

from __future__ import annotations

import copy
import pickle
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import bstk


def test_queries() -> None:
    layout = bstk.Layout([[[1, 0, 1], [0, 1, 0]], [[0, 0, 0], [1, 1, 1]]], block=32, shape=(50, 96))
    assert (layout.heads, layout.rows, layout.cols, layout.block, layout.nnz) == (2, 2, 3, 32, 6)
    assert layout.shape == (50, 96) and layout.density == 0.5
    assert layout.row_ptr.tolist() == [0, 2, 3, 3, 6]
    assert layout.row_idx.tolist() == [0, 0, 1, 1, 1, 1] and layout.col_idx.tolist() == [0, 2, 1, 0, 1, 2]
    assert layout.mask.dtype == bool and not layout.mask.flags.writeable
    assert layout.stats()["row_max"] == 3 and layout.stats()["empty_rows"] == 1


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", ">i4"])
def test_any_integer_or_bool_mask(dtype: str) -> None:
    mask = np.array([[1, 0], [1, 1]]).astype(dtype)
    assert bstk.Layout(mask, block=8).mask.astype(int).tolist() == [[[1, 0], [1, 1]]]
    assert bstk.Layout(np.repeat(mask, 3, 1)[:, ::3], block=8).nnz == 3


def test_errors_name_the_argument() -> None:
    with pytest.raises(ValueError, match="2"):
        bstk.Layout([[1, 2]], block=16)
    with pytest.raises(TypeError, match="mask"):
        bstk.Layout([[1.0, 0.0]], block=16)
    with pytest.raises(TypeError, match="mask"):
        bstk.Layout([["a"]], block=16)
    with pytest.raises((ValueError, TypeError)):
        bstk.Layout([[1], [1, 0]], block=16)
    for block in (-16, 0, 1, 4, 12, 264, 512):
        with pytest.raises(ValueError, match="block"):
            bstk.Layout([[1]], block=block)
    with pytest.raises(ValueError, match="shape|rows|M"):
        bstk.Layout([[1]], block=16, shape=(17, 16))
    with pytest.raises(ValueError, match="axes|dimension|mask"):
        bstk.Layout([1, 0], block=16)


@given(
    hnp.arrays(bool, hnp.array_shapes(min_dims=3, max_dims=3, min_side=1, max_side=5)),
    st.sampled_from([8, 16, 24, 256]),
)
@settings(max_examples=60, deadline=None)
def test_round_trips(mask: np.ndarray, block: int) -> None:
    layout = bstk.Layout(mask, block)
    assert np.array_equal(layout.mask, mask) and layout.nnz == mask.sum()
    for other in (
        pickle.loads(pickle.dumps(layout)),
        copy.copy(layout),
        copy.deepcopy(layout),
        bstk.Layout.from_bytes(layout.to_bytes()),
    ):
        assert other == layout and hash(other) == hash(layout)
    h, i, j = np.nonzero(mask)
    grid = mask.shape[1:]
    assert bstk.Layout.from_coo(i, j, grid, block, head=h, heads=len(mask)) == layout


@given(hnp.arrays(bool, hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=40)))
@settings(max_examples=60, deadline=None)
def test_element_masks(kept: np.ndarray) -> None:
    layout = bstk.Layout.from_dense_mask(kept, block=16)
    assert layout.shape == kept.shape
    assert np.array_equal(layout.element_mask[0], kept)
    assert pickle.loads(pickle.dumps(layout)) == layout


def test_scipy() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    dense = np.zeros((64, 96))
    dense[40, 3] = dense[0, 95] = 1
    layout = bstk.Layout.from_scipy(sparse.csr_matrix(dense), block=32)
    assert np.array_equal(layout.element_mask[0], dense != 0)
    bsr = sparse.bsr_matrix(dense, blocksize=(32, 32))
    assert bstk.Layout.from_scipy(bsr, block=32).mask[0].astype(int).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_files(tmp_path: Path) -> None:
    layout = bstk.layouts.bigbird(500, block=32, heads=3)
    layout.save(tmp_path / "x.layout")
    assert bstk.Layout.load(tmp_path / "x.layout") == layout
    with pytest.raises(OSError, match="nothing-here"):
        bstk.Layout.load(tmp_path / "nothing-here")
    data = layout.to_bytes()
    for cut in (0, 10, len(data) - 1):
        with pytest.raises(ValueError):
            bstk.Layout.from_bytes(data[:cut])


def test_builders_are_causal_when_asked() -> None:
    n = 12
    for make in (
        bstk.layouts.dense,
        bstk.layouts.local,
        bstk.layouts.fixed,
        bstk.layouts.variable,
        bstk.layouts.bigbird,
        bstk.layouts.longformer,
        bstk.layouts.strided,
        bstk.layouts.random,
    ):
        mask = make(n * 16, block=16, heads=2, causal=True).mask
        assert not np.triu(mask, 1).any()
    assert bstk.layouts.random(2048, block=16, density=0.3, seed=1) == bstk.layouts.random(
        2048, block=16, density=0.3, seed=1
    )
    assert bstk.layouts.local((100, 50), block=16).shape == (100, 50)


def test_pictures() -> None:
    layout = bstk.Layout(np.eye(4, dtype=bool), block=16)
    assert str(layout).split("\n")[1:] == ["▀▄", "  ▀▄"]
    assert len(str(bstk.layouts.dense(64 * 300, block=64)).split("\n")[1]) <= 64
    png = layout._repr_png_()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", png[16:24])
    start = png.index(b"IDAT")
    size = struct.unpack(">I", png[start - 4 : start])[0]
    assert len(zlib.decompress(png[start + 4 : start + 4 + size])) == height * (width + 1)


def test_plot() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = bstk.layouts.bigbird(1024, block=64).plot()
    assert axes.get_title() == "16 x 16 blocks of 64, density " + f"{bstk.layouts.bigbird(1024, block=64).density:.3g}"


def test_score_is_the_kept_mass(rng: np.random.Generator) -> None:
    layout = bstk.layouts.local(100, block=16, heads=2)
    q, k = rng.standard_normal((2, 3, 2, 100, 8))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(8)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    want = np.where(layout.element_mask, weights, 0).sum(-1).mean((0, 2))
    assert np.allclose(layout.score(q, k), want, rtol=1e-12)
    assert np.allclose(layout.score(q[0], k[0]), np.where(layout.element_mask, weights[0], 0).sum(-1).mean(-1))
