"""What a hostile user found: each of these gave a wrong result, or none, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bstk


@pytest.fixture
def layout() -> bstk.Layout:
    return bstk.Layout([[1, 0], [1, 1]], block=8)


def test_other_byte_order(layout: bstk.Layout, rng: np.random.Generator) -> None:
    q = rng.standard_normal((16, 4))
    swapped = q.astype(">f8")
    want = bstk.attention(layout, q, q, q)
    got = bstk.attention(layout, swapped, swapped, swapped)
    assert got.dtype == np.dtype("f8") and np.array_equal(got, want)
    with pytest.raises(TypeError, match="out is >f8"):
        bstk.attention(layout, q, q, q, out=np.zeros((16, 4), ">f8"))


def test_numbers_are_not_cut(layout: bstk.Layout, rng: np.random.Generator, tmp_path: Path) -> None:
    x = rng.standard_normal((3, 8, 8))
    for call in (
        lambda: bstk.Layout([[1]], 2**32 + 8),
        lambda: bstk.Layout([[1]], 8.9),  # type: ignore[arg-type]
        lambda: bstk.set_num_threads(2**32 + 1),
        lambda: bstk.softmax(layout, x, causal=True, causal_offset=2**64),
        lambda: bstk.softmax(layout, x, window=(1.7, 2)),  # type: ignore[arg-type]
        lambda: bstk.softmax(layout, x, window=(3,)),  # type: ignore[arg-type]
        lambda: bstk.softmax(layout, x, scale=float("nan")),
        lambda: bstk.softmax(layout, x, dropout=0.5, seed=2**64),
        lambda: bstk.softmax(layout, x, documents=(x, x, x)),
        lambda: bstk.layouts.dense(10.7, 8),  # type: ignore[arg-type]
        lambda: bstk.layouts.local(64, 8, window=1.5),  # type: ignore[arg-type]
        lambda: bstk.Layout.from_coo([0.7], [0.2], (1, 1), 8),
        lambda: layout.save(f"{tmp_path}/a\0b"),
        lambda: layout.partial_mask(1.5),  # type: ignore[arg-type]
    ):
        with pytest.raises((ValueError, TypeError)):
            call()
    assert not list(tmp_path.iterdir())


def test_empty_grids_print() -> None:
    for empty in (
        bstk.layouts.dense(0, 8),
        bstk.Layout(np.zeros((1, 0, 3), int), 8),
        bstk.Layout(np.zeros((3, 0), int), 8),
    ):
        assert "nnz=0" in str(empty) and empty._repr_png_()


def test_bytes_of_any_kind(layout: bstk.Layout) -> None:
    data = layout.to_bytes()
    assert bstk.Layout.from_bytes(bytearray(data)) == layout == bstk.Layout.from_bytes(memoryview(data))


def test_numbers_of_layouts_are_of_this_process(layout: bstk.Layout) -> None:
    other = bstk.Layout([[1]], 8)
    assert layout._id != other._id and 0 <= layout._id < 2**62


class TestTorch:
    torch: Any = None

    @pytest.fixture(autouse=True)
    def needs_torch(self) -> None:
        self.torch = pytest.importorskip("torch")

    def test_negated_views(self, layout: bstk.Layout) -> None:
        import bstk.torch as bt

        view = (self.torch.ones(16, 16, dtype=self.torch.complex64) * (1 + 1j)).conj().imag
        assert view.is_neg() and bool((bt.pack(layout, view)[0] == -1).all())

    def test_forward_mode_is_refused(self, layout: bstk.Layout) -> None:
        import bstk.torch as bt

        ad = self.torch.autograd.forward_ad
        with ad.dual_level():
            q = ad.make_dual(self.torch.randn(16, 4), self.torch.randn(16, 4))
            with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
                bt.attention(layout, q, q, q)

    def test_no_block_and_two_heads(self) -> None:
        import bstk.torch as bt

        x = self.torch.randn(1, 2, 16, 16, requires_grad=True)
        bt.pack(bstk.Layout([[0, 0], [0, 0]], 8), x).sum().backward()
        assert bool((x.grad == 0).all())

    def test_states_of_another_layout_are_refused(self) -> None:
        from bstk.compat import deepspeed
        from bstk.torch import nn

        one, two = (nn.BlockSparseLinear(16, 16, mask, block=8) for mask in ([[1, 0], [1, 0]], [[0, 1], [0, 1]]))
        with pytest.raises(RuntimeError, match="the state is of another layout"):
            two.load_state_dict(one.state_dict())
        a = deepspeed.SparseSelfAttention(deepspeed.DenseSparsityConfig(1), max_seq_length=64)
        b = deepspeed.SparseSelfAttention(deepspeed.LocalSlidingWindowSparsityConfig(1), max_seq_length=64)
        q = self.torch.randn(1, 1, 64, 8)
        b(q, q, q)
        b.load_state_dict(a.state_dict())
        assert self.torch.equal(a(q, q, q), b(q, q, q))

    def test_unclear_arguments(self, layout: bstk.Layout) -> None:
        import bstk.torch as bt

        module = bt.nn.SparseAttention(8, 1, bstk.layouts.dense(16, block=8))
        x = self.torch.randn(2, 16, 8)
        with pytest.raises(TypeError, match="attn_mask is torch.uint8"):
            module(x, attn_mask=self.torch.ones(16, 16, dtype=self.torch.uint8))
        with pytest.raises(ValueError, match="attn_mask has shape"):
            module(x, attn_mask=self.torch.zeros(3, 16, 16))
        q = self.torch.randn(16, 4)
        for terms in ({"window": (3,)}, {"seed": (1,), "dropout": 0.5}, {"documents": (q,), "cu_seqlens": (q, q, q)}):
            with pytest.raises(ValueError):
                bt.attention(layout, q, q, q, **terms)
        with pytest.raises(ValueError, match="norm"):
            bt.nn.BlockSparseLinear.from_linear(self.torch.nn.Linear(16, 16), block=8, norm=float("inf"))
