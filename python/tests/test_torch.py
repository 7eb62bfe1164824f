"""bstk.torch on CPU tensors: gradients, autograd's corners, autocast, checkpointing, modules, torch.compile."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.autograd import gradcheck, gradgradcheck  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import bstk  # noqa: E402
import bstk.torch as bt  # noqa: E402

COMPILE = hasattr(torch.library, "custom_op")


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def randn(*shape: int, grad: bool = True, dtype: Any = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


def small(heads: int = 1) -> bstk.Layout:
    mask = [[[1, 1, 0], [0, 1, 1]], [[0, 1, 1], [1, 0, 0]]]
    return bstk.Layout(mask[:heads], 8, (13, 20))


# ---- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", range(8))
@pytest.mark.parametrize("mode", ["sdd", "dsd", "dds"])
def test_gradcheck_of_products(mode: str, flags: int) -> None:
    ta, tb, tc = bool(flags & 1), bool(flags & 2), bool(flags & 4)
    layout = small(2)
    m, n, inner = {
        "sdd": (20, 13, 5) if tc else (13, 20, 5),
        "dsd": (20, 5, 13) if ta else (13, 5, 20),
        "dds": (5, 13, 20) if tb else (5, 20, 13),
    }[mode]
    a = randn(layout.nnz, 8, 8) if mode == "dsd" else randn(2, *((inner, m) if ta else (m, inner)))
    b = randn(layout.nnz, 8, 8) if mode == "dds" else randn(2, *((n, inner) if tb else (inner, n)))
    assert gradcheck(lambda a, b: getattr(bt, mode)(layout, a, b, ta, tb, tc, alpha=0.7), (a, b))


def test_gradcheck_of_shared_operands() -> None:
    layout = small()
    assert gradcheck(lambda a, b: bt.sdd(layout, a, b), (randn(2, 2, 13, 3), randn(1, 1, 3, 20)))
    assert gradcheck(lambda a, b: bt.dsd(layout, a, b), (randn(layout.nnz, 8, 8), randn(2, 3, 20, 2)))
    q, k, v = randn(2, 4, 13, 3), randn(1, 2, 20, 3), randn(2, 2, 20, 2)
    assert gradcheck(lambda q, k, v: bt.attention(layout, q, k, v), (q, k, v))


def test_gradcheck_of_softmax_and_its_terms() -> None:
    layout = small(2)
    x = randn(2, layout.nnz, 8, 8)
    rpe, rel, sinks = randn(1, 2, 13, 20), randn(2, 2, 1, 9), randn(2)
    padding, mask = randn(2, 20), randn(13, 20)

    def call(x: Any, rpe: Any, rel: Any, sinks: Any, padding: Any, mask: Any) -> Any:
        return bt.softmax(
            layout,
            x,
            0.5,
            True,
            padding,
            mask,
            rel,
            rpe,
            sinks=sinks,
            softcap=2.0,
            causal_offset=4,
            dropout=0.3,
            seed=1,
            return_lse=True,
        )

    assert gradcheck(call, (x, rpe, rel, sinks, padding, mask))
    assert gradcheck(lambda x: bt.softmax(layout, x), (x,))


def test_gradcheck_of_attention_and_its_terms() -> None:
    layout = small(2)
    q, k, v = randn(2, 2, 13, 3), randn(2, 2, 20, 3), randn(2, 2, 20, 2)
    rpe, rel, sinks, mask = randn(13, 20), randn(2, 13, 30), randn(2), randn(2, 1, 13, 20)

    def call(q: Any, k: Any, v: Any, rpe: Any, rel: Any, sinks: Any, mask: Any) -> Any:
        return bt.attention(
            layout,
            q,
            k,
            v,
            rpe=rpe,
            rel_logits=rel,
            sinks=sinks,
            attn_mask=mask,
            softcap=3.0,
            window=(9, 8),
            dropout=0.2,
            seed=(5, 6),
            return_lse=True,
        )

    assert gradcheck(call, (q, k, v, rpe, rel, sinks, mask))


def test_gradcheck_of_norms_and_copies() -> None:
    layout = small(2)
    x, weight, bias = randn(2, layout.nnz, 8, 8), randn(20), randn(2, 20)
    inside = bt.pack(layout, torch.ones(1, 2, 13, 20, dtype=torch.float64))  # past the edges nothing counts

    assert gradcheck(lambda x, w, b: bt.layernorm(layout, x, w, b), (x, weight, bias))
    assert gradcheck(lambda x, w, b: bt.rmsnorm(layout, x * inside, w, b), (x, weight, bias))
    assert gradcheck(lambda x: bt.pack(layout, x), (randn(2, 2, 13, 20),))
    assert gradcheck(lambda x: bt.unpack(layout, x), (x,))


def test_gradients_of_gradients_are_refused() -> None:
    layout = small()
    x = randn(layout.nnz, 8, 8)
    (d_x,) = torch.autograd.grad(bt.softmax(layout, x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError):
        d_x.sum().backward()
    with pytest.raises(RuntimeError):
        gradgradcheck(lambda x: bt.softmax(layout, x), (x,))


@pytest.mark.parametrize("want", range(1, 8))
def test_any_subset_of_gradients(want: int) -> None:
    layout = bstk.layouts.local(48, block=16)
    data = [torch.randn(2, 48, 8, dtype=torch.float64) for _ in range(3)]
    full = [t.clone().requires_grad_() for t in data]
    bt.attention(layout, *full).square().sum().backward()
    some = [t.clone().requires_grad_(bool(want >> i & 1)) for i, t in enumerate(data)]
    bt.attention(layout, *some).square().sum().backward()
    for i, (a, b) in enumerate(zip(full, some)):
        assert (b.grad is not None) == bool(want >> i & 1)
        if b.grad is not None:
            assert torch.allclose(a.grad, b.grad, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "loss",
    [lambda c: c.sum(), lambda c: c.mean(), lambda c: c[..., ::2].square().sum(), lambda c: c.mT.cumsum(-1).sum()],
)
def test_incoming_gradients_of_any_strides(loss: Any) -> None:
    layout = small()
    a, b = randn(2, 3, 13, 5), randn(2, 3, 5, 20)
    loss(bt.sdd(layout, a, b)).backward()
    a2, b2 = a.detach().clone().requires_grad_(), b.detach().clone().requires_grad_()
    dense = (a2 @ b2).view(2, 3, 13, 20)
    packed = torch.nn.functional.pad(dense, (0, 4, 0, 3)).view(2, 3, 2, 8, 3, 8).transpose(3, 4)
    h, i, j = np.nonzero(layout.mask)
    loss(packed[:, :, i, j].reshape(2, 3 * layout.nnz, 8, 8)).backward()
    assert torch.allclose(a.grad, a2.grad) and torch.allclose(b.grad, b2.grad)


def test_views_as_inputs() -> None:
    layout = bstk.layouts.local(64, block=16)
    base = torch.randn(2, 64, 4, 24, dtype=torch.float64)
    q, k, v = base.transpose(1, 2).requires_grad_(True).chunk(3, dim=-1)  # [Z, H, M, D] views with gaps
    got = bt.attention(layout, q, k, v)
    want = bt.attention(layout, q.contiguous(), k.contiguous(), v.contiguous())
    assert torch.equal(got, want)
    one = torch.randn(1, 1, 64, 8, dtype=torch.float64, requires_grad=True)
    bt.attention(layout, q, one.expand(2, 4, 64, 8), v).sum().backward()
    assert one.grad is not None and one.grad.shape == (1, 1, 64, 8)


# ---- autograd's corners ----------------------------------------------------------------------------------------------


def test_no_grad_inference_mode_and_double_use() -> None:
    layout = small()
    a, b = randn(13, 5), randn(5, 20)
    with torch.no_grad():
        assert not bt.sdd(layout, a, b).requires_grad
    with torch.inference_mode():
        bt.sdd(layout, a, b)
    c = bt.sdd(layout, a, b)
    (c.sum() + (2 * c).sum()).backward(retain_graph=True)
    first = a.grad.clone()
    a.grad = None
    (3 * c).sum().backward()
    assert torch.allclose(first, a.grad)


def test_a_changed_input_is_noticed() -> None:
    layout = small()
    a, b = randn(13, 5), randn(5, 20)
    held = a * 1
    c = bt.sdd(layout, held, b)
    with torch.no_grad():
        held.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        c.sum().backward()


def test_checkpoint_gives_the_same_dropout() -> None:
    layout = bstk.layouts.local(64, block=16)
    x = randn(64, 8)
    w = randn(8, 8)

    def block(x: Any) -> Any:
        y = x @ w
        return bt.attention(layout, y, y, y, dropout=0.5)

    torch.manual_seed(1)
    plain = torch.autograd.grad(block(x).square().sum(), (x, w))
    torch.manual_seed(1)
    checkpoint(block, x).square().sum().backward()
    assert torch.allclose(plain[0], x.grad) and torch.allclose(plain[1], w.grad)


@pytest.mark.parametrize("dtype", [torch.bfloat16])
def test_autocast(dtype: Any) -> None:
    layout = bstk.layouts.local(64, block=16)
    q, k, v = (randn(2, 64, 8, dtype=torch.float32) for _ in range(3))
    with torch.autocast("cpu", dtype=dtype):
        w = bt.sdd(layout, q, k, trans_b=True)
        o = bt.dsd(layout, bt.softmax(layout, w), v)
        fused = bt.attention(layout, q, k, v)
    assert w.dtype == o.dtype == fused.dtype == dtype
    fused.float().sum().backward()
    assert q.grad.dtype == torch.float32


def test_many_threads_at_once() -> None:
    layout = bstk.layouts.local(128, block=16)
    q = torch.randn(128, 8, dtype=torch.float64)
    want = bt.attention(layout, q, q, q)
    wrong = []

    def work() -> None:
        for _ in range(5):
            x = q.clone().requires_grad_()
            o = bt.attention(layout, x, x, x)
            o.sum().backward()
            if not torch.equal(o, want):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_errors() -> None:
    layout = small()
    with pytest.raises(TypeError, match="a is ndarray, expected a torch tensor"):
        bt.sdd(layout, np.zeros((13, 5)), torch.zeros(5, 20))
    with pytest.raises(ValueError, match="sdd"):
        bt.sdd(layout, torch.zeros(13, 5), torch.zeros(6, 20))
    with pytest.raises(TypeError, match="sdd"):
        bt.sdd(layout, torch.zeros(13, 5), torch.zeros(5, 20, dtype=torch.float64))
    with pytest.raises(ValueError, match="expected the CPU or a CUDA device|expected one device"):
        bt.sdd(layout, torch.zeros(13, 5, device="meta"), torch.zeros(5, 20))
    with pytest.raises(NotImplementedError, match="alibi_slopes has no gradient"):
        x = randn(13, 4)
        bt.attention(layout, x, randn(20, 4), randn(20, 4), alibi_slopes=randn(1)).sum().backward()


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_is_right_or_refused() -> None:
    vmap = getattr(getattr(torch, "func", None), "vmap", None)
    if vmap is None:
        pytest.skip("torch has no torch.func.vmap")
    layout, a, b = small(), torch.randn(2, 13, 5), torch.randn(5, 20)
    try:
        got = vmap(lambda a: bt.sdd(layout, a, b))(a)
    except RuntimeError:
        return  # "no batching rule", as far as the wording goes
    assert torch.equal(got, torch.stack([bt.sdd(layout, one, b) for one in a]))


# ---- modules ---------------------------------------------------------------------------------------------------------


def test_sparse_attention_equals_torch_on_a_dense_layout() -> None:
    ours = bt.nn.SparseAttention(32, 4, bstk.layouts.dense(24, block=8))
    theirs = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([p.weight for p in (ours.q_proj, ours.k_proj, ours.v_proj)]))
        theirs.in_proj_bias.copy_(torch.cat([p.bias for p in (ours.q_proj, ours.k_proj, ours.v_proj)]))
        theirs.out_proj.load_state_dict(ours.out_proj.state_dict())
    x = torch.randn(3, 24, 32)
    padding = torch.zeros(3, 24, dtype=torch.bool)
    padding[0, 20:] = True
    future = torch.ones(24, 24).triu(1).bool()
    got, weights = ours(x, x, x, key_padding_mask=padding, attn_mask=future)
    want, _ = theirs(x, x, x, key_padding_mask=padding, attn_mask=future, need_weights=False)
    assert weights is None and torch.allclose(got, want, atol=1e-5)
    causal, _ = ours(x, key_padding_mask=padding, is_causal=True)
    assert torch.allclose(causal, got, atol=1e-6)
    single, _ = ours(x[1])
    assert torch.allclose(single, ours(x)[0][1], atol=1e-6)


def test_sparse_attention_options() -> None:
    module = bt.nn.SparseAttention(
        32,
        4,
        lambda m, n: bstk.layouts.local((m, n), block=16),
        dropout=0.3,
        kdim=8,
        vdim=6,
        batch_first=False,
        num_kv_heads=2,
    )
    out, _ = module(torch.randn(40, 2, 32), torch.randn(50, 2, 8), torch.randn(50, 2, 6))
    assert out.shape == (40, 2, 32)
    out.sum().backward()
    module.eval()
    x = torch.randn(40, 2, 32), torch.randn(50, 2, 8), torch.randn(50, 2, 6)
    assert torch.equal(module(*x)[0], module(*x)[0])
    with pytest.raises(ValueError, match="need_weights"):
        module(*x, need_weights=True)
    with pytest.raises(ValueError, match="embed_dim is 30"):
        bt.nn.SparseAttention(30, 4, small())
    fixed = bt.nn.SparseAttention(8, 1, bstk.layouts.dense(16, block=8))
    with pytest.raises(ValueError, match="the layout is for 16 and 16"):
        fixed(torch.randn(1, 24, 8))


def test_linear_from_a_dense_one() -> None:
    dense = torch.nn.Linear(50, 70)
    whole = bt.nn.BlockSparseLinear.from_linear(dense, density=1.0, block=16)
    x = torch.randn(3, 4, 50)
    assert torch.allclose(whole(x), dense(x), atol=1e-5)
    with torch.no_grad():  # one block is far larger than the others
        dense.weight[16:32, 32:48] *= 100
    pruned = bt.nn.BlockSparseLinear.from_linear(dense, density=0.25, block=16)
    assert pruned.layout.nnz == 5 and pruned.layout.mask[0, 1, 2]
    assert torch.allclose(pruned(x), pruned.to_dense()(x), atol=1e-4)
    kept = torch.from_numpy(np.repeat(np.repeat(pruned.layout.mask[0], 16, 0), 16, 1)[:70, :50].copy())
    assert torch.equal(pruned.to_dense().weight, torch.where(kept, dense.weight, torch.zeros(())))
    with pytest.raises(ValueError, match="density is 0"):
        bt.nn.BlockSparseLinear.from_linear(dense, density=0)
    with pytest.raises(ValueError, match="x has 49 features, expected 50"):
        pruned(torch.randn(2, 49))


def test_linear_trains_and_travels() -> None:
    layer = bt.nn.BlockSparseLinear(40, 24, np.eye(3, 5, dtype=bool), block=8)
    target = torch.nn.Linear(40, 24)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    x = torch.randn(64, 40)
    losses = []
    for _ in range(30):
        loss = (layer(x) - target(x).detach()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x), layer(x)) and other.layout == layer.layout
    buffer = io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    fresh = bt.nn.BlockSparseLinear(40, 24, layer.layout)
    fresh.load_state_dict(torch.load(io.BytesIO(buffer.getvalue())))
    assert torch.equal(fresh(x), layer(x))


def test_layer_norm_module() -> None:
    layout = bstk.layouts.local(48, block=16)
    norm = bt.nn.BlockLayerNorm(layout)
    x = torch.randn(layout.nnz, 16, 16)
    y = bt.unpack(layout, norm(x))
    kept = torch.from_numpy(layout.element_mask[0].copy())
    assert torch.allclose((y * kept).sum(-1), torch.zeros(48), atol=1e-4)
    norm(x).square().sum().backward()
    assert norm.weight.grad.shape == (48,)
    assert bt.nn.BlockLayerNorm(layout, rms=True, bias=False).bias is None


# ---- torch.compile ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not COMPILE, reason="torch has no torch.library.custom_op (2.4)")
def test_compile_in_one_graph() -> None:
    layout = bstk.layouts.local(64, block=16, heads=2)
    linear = bt.nn.BlockSparseLinear(16, 16, np.eye(2, dtype=bool), block=8)

    def model(q: Any, k: Any, v: Any) -> Any:
        w = bt.softmax(layout, bt.sdd(layout, q, k, trans_b=True), 0.25, causal=True)
        w = bt.layernorm(layout, w) + bt.rmsnorm(layout, w)
        return linear(bt.dsd(layout, w, v) + bt.attention(layout, q, k, v, causal=True))

    args = [torch.randn(2, 2, 64, 16, requires_grad=True) for _ in range(3)]
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    want, got = model(*args), compiled(*args)
    assert torch.allclose(want, got, atol=1e-6)
    for a, b in zip(torch.autograd.grad(want.sum(), args), torch.autograd.grad(got.sum(), args)):
        assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.skipif(not COMPILE, reason="torch has no torch.library.custom_op (2.4)")
def test_opcheck() -> None:
    from bstk.torch import _ops

    layout = small()
    a, b = randn(13, 5), randn(5, 20)
    torch.library.opcheck(_ops.matmul.custom, (a, b, layout._id, 1, 0, 1.0))
    q, k, v = randn(1, 1, 13, 4), randn(1, 1, 20, 4), randn(1, 1, 20, 4)
    none = [None] * 11
    torch.library.opcheck(_ops.attention.custom, (q, k, v, *none, layout._id, 0.5, 0.0, 0.0, [0, 0, 0, -1, -1, 0, 0]))


# ---- CUDA, as far as it can be seen without the kernels --------------------------------------------------------------


def test_runs_on_a_gpu_get_its_stream_and_scratch_of_its_own() -> None:
    from bstk import _core
    from bstk.torch import _ops

    layout = bstk.layouts.local(64, block=16)
    x = torch.randn(64, 8)
    bt.attention(layout, x, x, x)
    plan = next(iter(layout._plans._plans.values()))
    assert plan.scratch_bytes > 0

    class Fake(_core.View):
        __slots__ = ()
        stream = 77  # type: ignore[assignment]

        def scratch(self, size: int) -> Any:
            return "owner", 4096 + size

    view = _ops.view("attention", "q", x)
    run = plan.take(Fake(1234, view.key, x), view, view, view)
    assert run.exec.stream == 77 and run.exec.scratch == 4096 + plan.scratch_bytes and run.tensors[0].data == 1234
    kept = len(plan._pool)
    plan.give(run)
    assert len(plan._pool) == kept  # not for the next one: its stream may not be through
    assert plan.take(view, view, view, view).exec.stream is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_is_refused_until_its_kernels_are_in() -> None:
    x = torch.zeros(64, 8, device="cuda")
    with pytest.raises((ValueError, RuntimeError), match="cuda|CUDA|CPU"):
        bt.attention(bstk.layouts.local(64, block=16), x, x, x)
