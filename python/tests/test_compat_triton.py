"""bstk.compat.triton.ops.blocksparse: the originals' test matrix written anew, call forms, differences."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from bstk.compat.triton.ops import blocksparse  # noqa: E402


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def spread(layout: torch.Tensor, block: int) -> torch.Tensor:
    return layout.repeat_interleave(block, -2).repeat_interleave(block, -1).bool()


def to_packed(x: torch.Tensor, layout: torch.Tensor, block: int) -> torch.Tensor:
    z, h, m, n = x.shape
    blocks = x.reshape(z, h, m // block, block, n // block, block).transpose(3, 4)
    return torch.stack([blocks[:, int(i), int(r), int(c)] for i, r, c in layout.nonzero()], 1)


def random_layout(heads: int, rows: int, cols: int) -> torch.Tensor:
    layout = torch.randint(0, 2, (heads, rows, cols))
    layout[1, 2, :] = 0
    layout[1, :, 1] = 0
    return layout


@pytest.mark.parametrize("mode", ["sdd", "dsd", "dds"])
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("block", [16, 32, 64])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_matmul(mode: str, trans_a: bool, trans_b: bool, block: int, dtype: Any) -> None:
    z, h, m, n, k = (3 if block == 32 else 1), 2, 512, 384, 256
    a = 0.1 * torch.randn(z, h, *((k, m) if trans_a else (m, k)))
    b = 0.1 * torch.randn(z, h, *((n, k) if trans_b else (k, n)))
    shape = {"sdd": (m, n), "dsd": a.shape[2:], "dds": b.shape[2:]}[mode]
    layout = random_layout(h, shape[0] // block, shape[1] // block)
    kept = spread(layout, block)
    a, b = a.half().to(dtype), b.half().to(dtype)
    d_c = (0.01 * torch.randn(z, h, m, n)).half().to(dtype)
    ref = [t.double().requires_grad_() for t in (a, b)]
    left = torch.where(kept, ref[0], torch.zeros((), dtype=torch.float64)) if mode == "dsd" else ref[0]
    right = torch.where(kept, ref[1], torch.zeros((), dtype=torch.float64)) if mode == "dds" else ref[1]
    want = (left.mT if trans_a else left) @ (right.mT if trans_b else right)
    if mode == "sdd":
        want = torch.where(kept, want, torch.zeros((), dtype=torch.float64))
    want.backward(d_c.double())
    pack = lambda t: to_packed(t, layout, block)  # noqa: E731
    args = [pack(a) if mode == "dsd" else a, pack(b) if mode == "dds" else b]
    args = [t.detach().requires_grad_() for t in args]
    c = blocksparse.matmul(layout, block, mode, device="cpu", trans_a=trans_a, trans_b=trans_b)(*args)
    c.backward(pack(d_c) if mode == "sdd" else d_c)
    u = {torch.float16: 2.0**-11, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}[dtype]
    wanted = [pack(want) if mode == "sdd" else want, *(t.grad for t in ref)]
    got = [c, *(t.grad for t in args)]
    for index, (x, y) in enumerate(zip(got, wanted)):
        y = pack(y) if (index, mode) in ((1, "dsd"), (2, "dds")) else y
        assert x.dtype == dtype and x.shape == y.shape
        assert ((x.double() - y).abs() <= 2 * u * y.abs() + 1e-6).all()


@pytest.mark.parametrize(
    "block,width,is_dense",
    [(16, 256, False), (16, 256, True), (32, 576, False), (32, 576, True), (64, 1871, False), (128, 2511, True)],
)
def test_softmax(block: int, width: int, is_dense: bool) -> None:
    z, h, scale = 1, (1 if is_dense else 2), 0.4  # the references in f64 are what takes the time
    rows = width // block
    n = rows * block
    layout = torch.ones(h, rows, rows, dtype=torch.int64) if is_dense else random_layout(h, rows, rows)
    x = (0.01 * torch.randn(z, h, n, n)).half().float()
    d_y = (0.01 * torch.randn(z, h, n, n)).half().float()
    kept = spread(layout, block) & torch.ones(n, n).tril().bool()
    ref = x.double().requires_grad_()
    scores = (ref * scale).masked_fill(~kept, float("-inf"))
    want = torch.where(kept.any(-1, keepdim=True), scores, torch.zeros((), dtype=torch.float64)).softmax(-1) * kept
    want.backward(d_y.double())
    packed = to_packed(x, layout, block).requires_grad_()
    y = blocksparse.softmax(layout, block, device="cpu", is_dense=is_dense)(packed, scale=scale, is_causal=True)
    y.backward(to_packed(d_y, layout, block))
    assert torch.allclose(y.double(), to_packed(want, layout, block), rtol=1e-5, atol=1e-7)
    assert torch.allclose(packed.grad.double(), to_packed(ref.grad, layout, block), rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("block", [16, 32, 64])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_attention(block: int, dtype: Any) -> None:
    z, h, n, d = 2, 2, 256, 64
    scale = d**-0.5
    layout = torch.ones(h, n // block, n // block).tril().to(torch.int64)
    q, k, v = (torch.randn(z, h, n, d).to(dtype).requires_grad_() for _ in range(3))
    w = blocksparse.matmul(layout, block, "sdd", trans_a=False, trans_b=True, device="cpu")(q, k)
    w = blocksparse.softmax(layout, block, device="cpu")(w, scale=scale, is_causal=True)
    o = blocksparse.matmul(layout, block, "dsd", trans_a=False, trans_b=False, device="cpu")(w, v)
    (o.float() ** 2).mean().backward()
    ref = [t.detach().double().requires_grad_() for t in (q, k, v)]
    scores = (ref[0] @ ref[1].mT * scale).masked_fill(~torch.ones(n, n).tril().bool(), float("-inf"))
    want = scores.softmax(-1) @ ref[2]
    (want**2).mean().backward()
    limit = 2e-2 if dtype == torch.float16 else 1e-5
    assert torch.allclose(o.double(), want, rtol=limit, atol=limit)
    for a, b in zip((q, k, v), ref):
        assert torch.allclose(a.grad.double(), b.grad, rtol=limit, atol=limit * 1e-1)


def test_call_forms_of_1x() -> None:
    layout = torch.ones(2, 2, dtype=torch.bool).tril()
    a = torch.randn(32, 8)
    one = blocksparse.matmul(layout, 16, "sdd", False, True)(a, a)  # trans_a, trans_b by position
    two = blocksparse.matmul(layout[None], 16, "sdd", "cpu", trans_b=True)(a, a)
    assert torch.equal(one, two) and one.shape == (3, 16, 16)
    op = blocksparse.softmax(layout[None].float(), 16)
    rpe = torch.randn(1, 1, 32, 32)
    padding, mask = torch.zeros(1, 32), torch.ones(32, 32).tril()
    padding[0, 0] = float("-inf")
    y = op(one[None], 0.5, rpe, padding, mask, "add", "mul")
    dense = torch.zeros(32, 32)
    for n, (r, c) in enumerate(layout.nonzero()):
        dense[16 * r : 16 * r + 16, 16 * c : 16 * c + 16] = one[n]
    scores = (dense * 0.5 + rpe[0, 0] + padding).masked_fill(mask == 0, float("-inf"))
    want = torch.nan_to_num(scores.softmax(-1))
    assert torch.allclose(y[0], to_packed(want[None, None], layout[None], 16)[0], atol=1e-6)
    again = op(one[None], scale=0.5, rpe=rpe, key_padding_mask=padding, is_causal=True)
    assert torch.allclose(again, y, atol=1e-7)
    assert blocksparse.softmax(layout[None], 16, True) is not None  # 1.0's bench


def test_rel_logits_have_a_gradient() -> None:
    layout = torch.ones(1, 4, 4, dtype=torch.int64)
    x = torch.randn(1, 16, 16, 16)
    rel = torch.randn(1, 1, 64, 64, requires_grad=True)
    y = blocksparse.softmax(layout, 16, device="cpu")(x, scale=1.0, rel_logits=rel, is_causal=True)
    y.square().sum().backward()
    assert rel.grad is not None and rel.grad.abs().sum() > 0


def test_trans_c_and_out() -> None:
    layout = torch.ones(1, 3, 2, dtype=torch.int64)  # of the transpose of C
    a, b = torch.randn(1, 1, 32, 8, requires_grad=True), torch.randn(1, 1, 8, 48)
    c = blocksparse.matmul(layout, 16, "sdd", device="cpu", trans_c=True)(a, b)
    assert torch.allclose(c, to_packed((a @ b).mT, layout, 16), atol=1e-5)
    c.sum().backward()  # wrong and out of bounds in Triton 2.x
    assert torch.allclose(a.grad, b.sum(-1)[:, :, None].expand(a.shape), atol=1e-5)
    out = torch.full((1, 1, 32, 5), float("nan"))
    op = blocksparse.matmul(torch.ones(1, 2, 2), 16, "dsd", device="cpu")
    assert op(torch.ones(1, 4, 16, 16), torch.ones(1, 1, 32, 5), out=out) is out and (out == 32).all()


def test_differences_are_clear() -> None:
    with pytest.raises(NotImplementedError, match="mode is 'ddd'"):
        blocksparse.matmul(torch.ones(1, 1, 1), 16, "ddd", "cpu")
    with pytest.raises(ValueError, match="layout has 1 axes"):
        blocksparse.matmul(torch.ones(4), 16, "sdd", "cpu")
    with pytest.raises(ValueError, match="other values than 0 and 1"):
        blocksparse.softmax(torch.full((1, 1, 1), 2.0), 16)
    with pytest.raises(ValueError, match="is_dense is True"):
        blocksparse.softmax(torch.zeros(1, 2, 2, dtype=torch.int64), 16, "cpu", is_dense=True)
    with pytest.raises(ValueError, match="a is on cpu, but this operation was made for cuda"):
        blocksparse.matmul(torch.ones(1, 1, 1), 16, "sdd", "cuda")(torch.ones(16, 4), torch.ones(4, 16))
    # One head of layout and two of data: Triton computed head 0 only.
    c = blocksparse.matmul(torch.ones(1, 1, 1), 16, "sdd", "cpu")(torch.ones(1, 2, 16, 4), torch.ones(1, 2, 4, 16))
    assert c.shape == (1, 2, 16, 16) and (c == 4).all()
    # A row whose kept places are all dropped: 0, where Triton gave NaN.
    layout = torch.tensor([[[0, 1], [0, 1]]])
    y = blocksparse.softmax(layout, 16, "cpu")(torch.ones(1, 2, 16, 16), is_causal=True)
    assert (y[0, 0] == 0).all() and torch.isfinite(y).all()
    x = torch.randn(1, 2, 16, 16)
    before = x.clone()
    blocksparse.softmax(layout, 16, "cpu")(x)
    assert torch.equal(x, before)
