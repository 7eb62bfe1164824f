"""Real problems of the predecessors' users (BC-...) that show in Python: modules, masks, types, wrapping, memory."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import bstk

torch = pytest.importorskip("torch")

from torch.utils.checkpoint import checkpoint  # noqa: E402

import bstk.torch as bt  # noqa: E402
from bstk.compat import deepspeed  # noqa: E402


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def dense_attention(q: Any, k: Any, v: Any, kept: Any) -> Any:
    scores = (q.double() @ k.double().mT * q.shape[-1] ** -0.5).masked_fill(~kept, float("-inf"))
    return torch.nan_to_num(scores.softmax(-1)) @ v.double()


def test_bc_031_head_counts_are_named() -> None:
    layout = bstk.layouts.fixed(256, block=16, heads=40, window=8, global_blocks=1, causal=True, patterns=8)
    q = torch.zeros(2, 20, 256, 64)
    with pytest.raises(ValueError, match="20.*40|40.*20"):
        bt.attention(layout, q, q, q)
    shared = bstk.layouts.local(256, block=16)
    assert bt.attention(shared, q, q, q).shape == q.shape


def test_bc_038_same_input_same_output_whatever_was_called_before() -> None:
    module = bt.nn.SparseAttention(64, 2, lambda m, n: bstk.layouts.bigbird((m, n), block=16, seed=0))
    data = {m: torch.randn(1, m, 64) for m in (64, 1024)}
    first = {m: module(x)[0] for m, x in data.items()}
    for m in (64, 1024, 64, 1024):
        assert torch.equal(module(data[m])[0], first[m])


def test_bc_053_masks_of_any_type() -> None:
    layout = bstk.layouts.dense(32, block=16)
    x = torch.randn(4, 16, 16).half()
    keep = torch.rand(32, 32) < 0.7
    want = bt.softmax(layout, x, attn_mask=keep)
    added = torch.zeros(32, 32).masked_fill(~keep, float("-inf"))
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert torch.equal(bt.softmax(layout, x, attn_mask=added.to(dtype)), want)
        assert torch.equal(bt.softmax(layout, x, attn_mask=keep.to(dtype), attn_mask_mode="mul"), want)
    assert torch.equal(bt.softmax(layout, x, attn_mask=keep.to(torch.uint8)), want)
    assert torch.equal(bt.softmax(layout, x, attn_mask=keep.long(), attn_mask_mode="mul"), want)
    with pytest.raises(TypeError, match="attn_mask is int64"):
        bt.softmax(layout, x, attn_mask=keep.long())


def test_bc_054_ones_and_zeros_in_both_modes() -> None:
    layout = bstk.layouts.dense(32, block=16)
    x = torch.randn(4, 16, 16, dtype=torch.float64)
    ones = torch.tril(torch.ones(32, 32, dtype=torch.float64))
    dense = bt.unpack(layout, x)
    added = bt.unpack(layout, bt.softmax(layout, x, attn_mask=ones, attn_mask_mode="add"))
    assert torch.allclose(added, (dense + ones).softmax(-1))
    dropped = bt.unpack(layout, bt.softmax(layout, x, attn_mask=ones, attn_mask_mode="mul"))
    assert torch.allclose(dropped, dense.masked_fill(ones == 0, float("-inf")).softmax(-1))
    for mode in ("add", "mul"):
        assert torch.equal(
            bt.unpack(layout, bt.softmax(layout, x, attn_mask=ones.bool(), attn_mask_mode=mode)), dropped
        )


def test_bc_058_a_shorter_input_takes_its_part() -> None:
    config = deepspeed.LocalSlidingWindowSparsityConfig(2, 16)
    longest = deepspeed.SparseSelfAttention(config, max_seq_length=1024)
    for m in (1024, 512, 64):
        q, k, v = torch.randn(3, 1, 2, m, 32)
        own = deepspeed.SparseSelfAttention(config, max_seq_length=m)
        assert torch.equal(longest(q, k, v), own(q, k, v))


def test_bc_059_documented_masks_work() -> None:
    attend = deepspeed.SparseSelfAttention(deepspeed.BigBirdSparsityConfig(2, 16), max_seq_length=128)
    q, k, v = torch.randn(3, 1, 2, 128, 32)
    mask = torch.ones(128, 128).tril()
    kept = torch.from_numpy(attend.get_layout(128).element_mask.copy()) & mask.bool()
    for given in (mask, mask[None, None], mask.bool()):
        assert torch.allclose(attend(q, k, v, attn_mask=given).double(), dense_attention(q, k, v, kept), atol=1e-5)


def test_bc_077_out_of_other_strides() -> None:
    out = np.full((16, 16), np.nan, "f2").T
    ones = np.ones((1, 16, 16), "f2")
    assert bstk.dsd(bstk.Layout([[1]], 16), ones, ones[0], out=out) is out and (out == 16).all()


@pytest.mark.parametrize("op", ["sdd", "dsd", "dds", "softmax", "attention"])
@pytest.mark.parametrize("how", ["sum", "permute", "slice", "cat"])
def test_bc_079_incoming_gradients(op: str, how: str) -> None:
    layout = bstk.layouts.dense(32, block=16, heads=4)
    q, k, v = (torch.randn(2, 4, 32, 128).half() for _ in range(3))
    packed = torch.randn(2, 16, 16, 16).half()
    inputs = {
        "sdd": [q, k],
        "dsd": [packed, v],
        "dds": [v.mT.contiguous(), packed],
        "softmax": [packed],
        "attention": [q, k, v],
    }[op]
    call = {
        "sdd": lambda a, b: bt.sdd(layout, a, b, trans_b=True),
        "dsd": lambda a, b: bt.dsd(layout, a, b),
        "dds": lambda a, b: bt.dds(layout, a, b),
        "softmax": lambda x: bt.softmax(layout, x),
        "attention": lambda q, k, v: bt.attention(layout, q, k, v),
    }[op]
    weight = torch.randn(call(*inputs).shape).half()
    loss = {
        "sum": lambda c: c.sum(),
        "permute": lambda c: (c.permute(3, 0, 1, 2).contiguous() * weight.permute(3, 0, 1, 2)).sum(),
        "slice": lambda c: c[..., ::2].sum(),
        "cat": lambda c: (torch.cat([c, c], -1).split(c.shape[-1], -1)[1] * weight).sum(),
    }[how]
    given = [t.clone().requires_grad_() for t in inputs]
    out = call(*given)
    (d_out,) = torch.autograd.grad(loss(out), out, retain_graph=True)
    got = torch.autograd.grad(out, given, d_out, retain_graph=True)
    want = torch.autograd.grad(out, given, d_out.contiguous().clone())
    assert all(torch.equal(a, b) for a, b in zip(got, want))


def test_bc_091_gradient_of_the_bias() -> None:
    mask = np.random.default_rng(1).random((2, 4, 4)) < 0.5
    mask[:, :, 0] = True
    layout = bstk.Layout(mask, 16)
    x = torch.randn(4, layout.nnz, 16, 16)
    rpe = torch.randn(2, 64, 64, requires_grad=True)
    y = bt.softmax(layout, x, rpe=rpe)
    weight = torch.randn(y.shape)
    (y * weight).sum().backward()
    dense = (bt.unpack(layout, x) + rpe.detach()).double().requires_grad_()
    kept = torch.from_numpy(layout.element_mask.copy())
    p = dense.masked_fill(~kept, float("-inf")).softmax(-1)
    (p * bt.unpack(layout, weight).double()).sum().backward()
    assert torch.allclose(rpe.grad.double(), dense.grad.sum(0), atol=1e-5) and (rpe.grad[~kept] == 0).all()


def test_bc_092_nothing_is_overwritten() -> None:
    layout = bstk.layouts.dense(64, block=16, heads=2)
    x = torch.randn(1, 32, 16, 16).half().requires_grad_()
    before = x.detach().clone()
    y = bt.softmax(layout, x)
    d_y = torch.randn(y.shape).half()
    kept = d_y.clone()
    first = torch.autograd.grad(y * x, x, d_y, retain_graph=True)[0]
    again = torch.autograd.grad(y * x, x, d_y, retain_graph=True)[0]
    assert torch.equal(x.detach(), before) and torch.equal(d_y, kept) and torch.equal(first, again)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_bc_106_types_through_a_module(dtype: Any) -> None:
    module = bt.nn.SparseAttention(64, 2, bstk.layouts.dense(128, block=16, causal=True), dtype=torch.float32)
    x = torch.randn(1, 128, 64)
    if dtype != torch.float16:  # torch's CPU linear layers have no f16 in old versions
        out, _ = copy.deepcopy(module).to(dtype)(x.to(dtype), is_causal=True)
        assert out.dtype == dtype
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert module(x, is_causal=True)[0].dtype == torch.bfloat16
    q = torch.randn(1, 2, 128, 32).to(dtype).requires_grad_()
    o = bt.attention(bstk.layouts.dense(128, block=16, causal=True), q, q, q, causal=True)
    o.float().sum().backward()
    assert o.dtype == q.dtype == q.grad.dtype


def test_bc_110_integers_are_refused() -> None:
    layout = bstk.layouts.dense((32, 4096), block=16)
    a = np.full((layout.nnz, 16, 16), 127, "i1")
    with pytest.raises(TypeError, match="dsd.*int8"):
        bstk.dsd(layout, a, np.full((4096, 32), 127, "i1"))


def test_bc_114_sparse_is_not_dense() -> None:
    mask = np.zeros((2, 8, 8), bool)
    mask[:, :, 0] = True
    layout = bstk.Layout(mask, 64)
    q, k, v = (torch.randn(1, 2, 512, 64).half() for _ in range(3))
    o = bt.attention(layout, q, k, v).double()
    everything = torch.ones(512, 512, dtype=torch.bool)
    assert (o - dense_attention(q, k, v, everything)).abs().max() > 0.1
    assert (o - dense_attention(q, k, v, torch.from_numpy(layout.element_mask.copy()))).abs().max() < 2e-3
    with pytest.raises(TypeError):
        bt.attention(layout, q, k, v, no_such_argument=1)  # type: ignore[call-arg]


def test_bc_115_axis_order_of_linear() -> None:
    layer = bt.nn.BlockSparseLinear(96, 64, np.ones((2, 3), bool), block=32, bias=False)
    with torch.no_grad():
        layer.values.fill_(1)
    y = layer(torch.ones(5, 96))
    assert y.shape == (5, 64) and (y == 96).all()


class First(torch.nn.Module):
    """The output alone: the tracer takes no None."""

    def __init__(self, module: Any, padding: Any) -> None:
        super().__init__()
        self.module, self.padding = module, padding

    def forward(self, x: Any) -> Any:
        return self.module(x, key_padding_mask=self.padding)[0]


def test_bc_120_every_wrapping_gives_the_same() -> None:
    module = bt.nn.SparseAttention(64, 4, bstk.layouts.bigbird(256, block=16, seed=3)).eval()
    x = torch.randn(2, 256, 64)
    padding = torch.arange(256) >= torch.tensor([[200], [256]])

    def run(m: Any, t: Any) -> Any:
        return m(t, key_padding_mask=padding)[0]

    want = run(module, x)
    again = x.clone().requires_grad_()
    assert torch.equal(checkpoint(lambda t: run(module, t), again), want)
    got: dict[int, Any] = {}
    threads = [threading.Thread(target=lambda i=i: got.update({i: run(module, x)})) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(value, want) for value in got.values()) and len(got) == 4
    assert torch.equal(run(copy.deepcopy(module), x), want)
    assert torch.equal(run(pickle.loads(pickle.dumps(module)), x), want)
    buffer = io.BytesIO()
    torch.save(module.state_dict(), buffer)
    fresh = bt.nn.SparseAttention(64, 4, bstk.layouts.bigbird(256, block=16, seed=3)).eval()
    fresh.load_state_dict(torch.load(io.BytesIO(buffer.getvalue())))
    assert torch.equal(run(fresh, x), want)
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            traced = torch.jit.trace(First(module, padding), x, check_trace=False)
            other = torch.randn(2, 256, 64)
            assert torch.allclose(traced(other), run(module, other), atol=1e-6)


def test_bc_127_memory_is_bounded() -> None:
    module = bt.nn.SparseAttention(16, 2, lambda m, n: bstk.layouts.local((m, n), block=16)).eval()
    for m in np.random.default_rng(0).permutation(40) + 1:
        module(torch.zeros(1, int(m) * 16, 16))
    assert len(module._layouts) == 8
    layout = bstk.layouts.local(64, block=16)
    for d in range(1, 100):
        bstk.attention(layout, *np.zeros((3, 64, d), "f4"))
    assert len(layout._plans) == 64
    layout.clear_cache()
    assert len(layout._plans) == 0
