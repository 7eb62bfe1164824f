"""The operations as PyTorch ones: what they compute, their shapes without computing, and their gradients.

Each is written once and registered by `_register.operation`: as a custom operator where torch has
``torch.library.custom_op`` (2.4 and later), so that ``torch.compile`` keeps it in one graph, else as an
``autograd.Function``. A layout travels as its number (`Layout._id`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from .. import _abi, _core
from .._core import ScoreTerms, View, check_ndim, make_terms
from .._layout import layout_by_id
from ._register import operation

_CODES = {
    torch.float64: _abi.F64,
    torch.float32: _abi.F32,
    torch.float16: _abi.F16,
    torch.bfloat16: _abi.BF16,
    torch.bool: _abi.BOOL,
    torch.uint8: _abi.U8,
    torch.int8: _abi.I8,
    torch.int16: _abi.I16,
    torch.int32: _abi.I32,
    torch.int64: _abi.I64,
}


def view(who: str, name: str, t: Tensor) -> View:
    code = _CODES.get(t.dtype)
    if code is None:
        raise TypeError(f"{who}: {name} is {t.dtype}, expected a floating, boolean or integer type")
    if t.layout is not torch.strided:
        raise TypeError(f"{who}: {name} has layout {t.layout}, expected torch.strided")
    shape = t.shape
    if len(shape) > 4:
        check_ndim(who, name, len(shape), 0)
    flags: Any = t  # is_cpu is not in the stubs of old versions; a device's type takes four times as long
    if flags.is_cpu:
        index = -1
    elif t.is_cuda:
        index = t.device.index
    else:
        raise ValueError(f"{who}: {name} is on {t.device}, expected the CPU or a CUDA device")
    if t.is_neg():  # a view that says "negated" without having done it
        t = t.resolve_neg()
    try:
        address = t.data_ptr()
    except RuntimeError as error:
        raise RuntimeError(
            f"{who}: {name} has no memory of its own (vmap, or a wrapped tensor); fold the axis into Z or H"
        ) from error
    key = (code, 1, shape, t.stride(), index)
    return View(address, key, t) if index < 0 else CudaView(address, key, t)


class CudaView(View):
    """A tensor on a GPU: runs go to torch's current stream there, with scratch of torch's allocator."""

    __slots__ = ()

    @property
    def stream(self) -> int:
        return int(torch.cuda.current_stream(self.keep.device).cuda_stream)

    def scratch(self, size: int) -> tuple[Any, int]:
        made = self.keep.new_empty(size, dtype=torch.uint8)
        return made, made.data_ptr()


def _maybe(who: str, name: str, t: Optional[Tensor]) -> Optional[View]:
    return None if t is None else view(who, name, t)


def _rows_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _empty_rows(t: Tensor, shape: Sequence[int]) -> Tensor:
    dtype = _rows_dtype(t.dtype)
    return t.new_empty(shape) if t.dtype == dtype else t.new_empty(shape, dtype=dtype)


def rows_view(who: str, name: str, t: Tensor) -> View:
    """[Z, H, M] of lse, mean and rstd with all its axes, which the library wants."""
    made = view(who, name, t)
    code, unit, shape, strides, device = made.key
    more = 3 - len(shape)
    if more:
        made.key = (code, unit, (1,) * more + tuple(shape), (0,) * more + tuple(strides), device)
    return made


def _trans(flags: int) -> tuple[int, int, int]:
    return flags & 1, flags >> 1 & 1, flags >> 2 & 1


_MODES = {_abi.SDD: "sdd", _abi.DSD: "dsd", _abi.DDS: "dds"}

# ---- products --------------------------------------------------------------------------------------------------------


def _matmul_shape(a: Tensor, b: Tensor, layout: int, mode: int, trans: int) -> tuple[Any, torch.dtype]:
    shape = layout_by_id(layout)._geometry.matmul(mode, _trans(trans), tuple(a.shape), tuple(b.shape))
    return shape, (b if mode == _abi.DSD else a).dtype


def _matmul(a: Tensor, b: Tensor, layout: int, mode: int, trans: int, alpha: float) -> Tensor:
    who, owner = _MODES[mode], layout_by_id(layout)
    a_view, b_view = view(who, "a", a), view(who, "b", b)
    shape, dtype = _matmul_shape(a, b, layout, mode, trans)
    c = torch.empty(shape, dtype=dtype, device=a.device)
    _core.run_matmul(owner._plans, owner._handle, mode, _trans(trans), alpha, 0.0, a_view, b_view, view(who, "c", c))
    return c


def _matmul_fake(a: Tensor, b: Tensor, layout: int, mode: int, trans: int, alpha: float) -> Tensor:
    shape, dtype = _matmul_shape(a, b, layout, mode, trans)
    return torch.empty(shape, dtype=dtype, device=a.device)


def _matmul_grad(
    d_c: Tensor, a: Tensor, b: Tensor, layout: int, mode: int, trans: int, alpha: float, want_a: bool, want_b: bool
) -> list[Tensor]:
    who, owner = _MODES[mode], layout_by_id(layout)
    d_a = torch.empty(a.shape if want_a else (0,), dtype=a.dtype, device=a.device)
    d_b = torch.empty(b.shape if want_b else (0,), dtype=b.dtype, device=b.device)
    _core.run_matmul_grad(
        owner._plans,
        owner._handle,
        mode,
        _trans(trans),
        alpha,
        view(who, "a", a),
        view(who, "b", b),
        view(who, "d_c", d_c),
        view(who, "d_a", d_a) if want_a else None,
        view(who, "d_b", d_b) if want_b else None,
    )
    return [d_a, d_b]


def _matmul_grad_fake(
    d_c: Tensor, a: Tensor, b: Tensor, layout: int, mode: int, trans: int, alpha: float, want_a: bool, want_b: bool
) -> list[Tensor]:
    return [
        torch.empty(a.shape if want_a else (0,), dtype=a.dtype, device=a.device),
        torch.empty(b.shape if want_b else (0,), dtype=b.dtype, device=b.device),
    ]


_MATMUL = "Tensor a, Tensor b, int layout, int mode, int trans, float alpha"
matmul_grad = operation(
    "matmul_grad", f"(Tensor d_c, {_MATMUL}, bool want_a, bool want_b) -> Tensor[]", _matmul_grad, _matmul_grad_fake
)


def _matmul_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(inputs[0], inputs[1])
    ctx.options, ctx.owner = inputs[2:], layout_by_id(inputs[2])  # a number does not keep a layout alive


def _matmul_backward(ctx: Any, d_c: Tensor) -> tuple[Any, ...]:
    a, b = ctx.saved_tensors
    want_a, want_b = ctx.needs_input_grad[:2]
    d_a, d_b = matmul_grad(d_c.to(_matmul_shape(a, b, *ctx.options[:3])[1]), a, b, *ctx.options, want_a, want_b)
    return d_a if want_a else None, d_b if want_b else None, None, None, None, None


matmul = operation("matmul", f"({_MATMUL}) -> Tensor", _matmul, _matmul_fake, _matmul_setup, _matmul_backward)

# ---- copies ----------------------------------------------------------------------------------------------------------


def _convert_shape(x: Tensor, layout: int, direction: int) -> Any:
    geometry = layout_by_id(layout)._geometry
    return (geometry.pack if direction == _abi.PACK else geometry.unpack)(tuple(x.shape))


def _convert(x: Tensor, layout: int, direction: int) -> Tensor:
    who, owner = ("pack", "unpack")[direction - 1], layout_by_id(layout)
    x_view = view(who, "x", x)
    y = torch.empty(_convert_shape(x, layout, direction), dtype=x.dtype, device=x.device)
    _core.run_convert(owner._plans, owner._handle, direction, x_view, view(who, "y", y))
    return y


def _convert_fake(x: Tensor, layout: int, direction: int) -> Tensor:
    return torch.empty(_convert_shape(x, layout, direction), dtype=x.dtype, device=x.device)


def _convert_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.shape, ctx.layout, ctx.direction = inputs[0].shape, inputs[1], inputs[2]
    ctx.owner = layout_by_id(ctx.layout)


def _convert_backward(ctx: Any, d_y: Tensor) -> tuple[Any, ...]:
    d_x = convert(d_y, ctx.layout, _abi.PACK + _abi.UNPACK - ctx.direction)
    if d_x.numel() != ctx.shape.numel():  # no block at all cannot tell how many heads there are
        d_x = d_y.new_zeros(ctx.shape)
    return d_x.reshape(ctx.shape), None, None


convert = operation(
    "convert",
    "(Tensor x, int layout, int direction) -> Tensor",
    _convert,
    _convert_fake,
    _convert_setup,
    _convert_backward,
)

# ---- scores ----------------------------------------------------------------------------------------------------------

_MODE_NAMES = list(_abi.MASK_MODES)
WANT_LSE = 7  # place in `ints`, behind those of the terms

# What softmax and attention share, as the last 16 arguments of their operators: `args` below.
_TENSORS = ", ".join(f"Tensor? {name}" for name in (*_core.TERM_TENSORS, "seed"))
_SCORES = f"{_TENSORS}, int layout, float scale, float softcap, float dropout, int[] ints"


def terms_of(who: str, args: Sequence[Any]) -> ScoreTerms:
    scale, softcap, dropout, ints = args[12:]
    if dropout == 0 and all(t is None for t in args[:10]):
        return _plain_terms(who, scale, softcap, tuple(ints))
    views = {name: view(who, name, t) for name, t in zip(_core.TERM_TENSORS, args) if t is not None}
    return _make_terms(who, views, scale, softcap, dropout, ints, args[10])


def _make_terms(
    who: str,
    views: dict[str, View],
    scale: float,
    softcap: float,
    dropout: float,
    ints: Sequence[int],
    seed: Optional[Tensor],
) -> ScoreTerms:
    causal, causal_offset, bottom_right, left, right, key_padding_mode, attn_mode = ints[:WANT_LSE]
    return make_terms(
        who,
        views,
        scale=scale,
        softcap=softcap,
        dropout=dropout,
        causal=bool(causal),
        causal_offset=causal_offset,
        bottom_right=bool(bottom_right),
        window=(left, right),
        seed=(0, 0) if seed is None else (int(seed[0]) & (2**64 - 1), int(seed[1]) & (2**64 - 1)),
        key_padding_mode=_MODE_NAMES[key_padding_mode],
        attn_mode=_MODE_NAMES[attn_mode],
    )


@functools.lru_cache(maxsize=256)
def _plain_terms(who: str, scale: float, softcap: float, ints: tuple[int, ...]) -> ScoreTerms:
    return _make_terms(who, {}, scale, softcap, 0.0, ints, None)


def _wanted(who: str, args: Sequence[Any], want: Sequence[bool]) -> dict[str, Tensor]:
    """Gradients of terms that are wanted, by the term's name."""
    made = {}
    for name, t, wanted in zip(_core.TERM_TENSORS, args, want):
        if not wanted or t is None:
            continue
        if name == "alibi_slopes":
            raise NotImplementedError(f"{who}: alibi_slopes has no gradient; detach it")
        made[name] = torch.empty(t.shape, dtype=t.dtype, device=t.device)
    return made


def _term_gradients(made: dict[str, Tensor]) -> list[Tensor]:
    """In the order of _core.TERM_TENSORS, empty where not wanted: a custom operator returns tensors only."""
    return [made.get(name, torch.empty(0)) for name in _core.TERM_TENSORS]


def _softmax(x: Tensor, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
    who, owner, dropout = "softmax", layout_by_id(args[11]), args[14]
    terms = terms_of(who, args)
    y, lse, saved = _softmax_fake(x, *args)
    _core.run_softmax(
        owner._plans,
        owner._handle,
        terms,
        view(who, "x", x),
        view(who, "y", y),
        rows_view(who, "lse", lse),
        view(who, "saved", saved) if dropout > 0 else None,
    )
    return y, lse, saved


def _softmax_fake(x: Tensor, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
    geometry, dropout = layout_by_id(args[11])._geometry, args[14]
    rows = geometry.rows_of(tuple(x.shape), geometry.packed_heads(tuple(x.shape)))
    return (
        x.new_empty(x.shape),
        _empty_rows(x, rows),
        x.new_empty(x.shape if dropout > 0 else (0,)),
    )


def _softmax_grad(
    d_y: Tensor, d_lse: Optional[Tensor], x: Tensor, y: Tensor, lse: Tensor, *args_and_want: Any
) -> list[Tensor]:
    *args, want = args_and_want
    who, owner, softcap = "softmax", layout_by_id(args[11]), args[13]
    terms = terms_of(who, args)
    made = _wanted(who, args, want[1:])
    d_x = torch.empty(x.shape if want[0] else (0,), dtype=x.dtype, device=x.device)
    _core.run_softmax_grad(
        owner._plans,
        owner._handle,
        terms,
        {
            "y": view(who, "y", y),
            "d_y": view(who, "d_y", d_y),
            "d_lse": None if d_lse is None else rows_view(who, "d_lse", d_lse),
            "x": view(who, "x", x) if softcap > 0 else None,
            "lse": rows_view(who, "lse", lse) if "sinks" in made else None,
            "d_x": view(who, "d_x", d_x) if want[0] else None,
            **{f"d_{name}": view(who, name, t) for name, t in made.items()},
        },
    )
    return [d_x, *_term_gradients(made)]


def _softmax_grad_fake(
    d_y: Tensor, d_lse: Optional[Tensor], x: Tensor, y: Tensor, lse: Tensor, *args: Any
) -> list[Tensor]:
    want = args[-1]
    return [
        torch.empty(x.shape if want[0] else (0,), dtype=x.dtype, device=x.device),
        *_term_gradients(_wanted("softmax", args, want[1:])),
    ]


softmax_grad = operation(
    "softmax_grad",
    f"(Tensor d_y, Tensor? d_lse, Tensor x, Tensor y, Tensor lse, {_SCORES}, bool[] want) -> Tensor[]",
    _softmax_grad,
    _softmax_grad_fake,
)


def _softmax_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    y, lse, saved = output
    x, softcap, dropout = inputs[0], inputs[14], inputs[15]
    ctx.mark_non_differentiable(saved)
    # x is needed for the softcap's slope only; else its place is taken by y.
    ctx.save_for_backward(x if softcap > 0 else y, saved if dropout > 0 else y, lse, *inputs[1:12])
    ctx.options, ctx.owner = inputs[12:], layout_by_id(inputs[12])
    ctx.set_materialize_grads(False)


def _softmax_backward(ctx: Any, d_y: Optional[Tensor], d_lse: Optional[Tensor], d_saved: Any = None) -> tuple[Any, ...]:
    x, y, lse, *rest = ctx.saved_tensors
    want = list(ctx.needs_input_grad[:11])
    empty = (None,) * 17
    if d_y is None and d_lse is None:
        return empty
    if d_y is None:
        d_y = torch.zeros((), dtype=y.dtype, device=y.device).expand(y.shape)
    made = softmax_grad(d_y.to(y.dtype), d_lse, x, y, lse, *rest, *ctx.options, want)
    return tuple(g if w else None for g, w in zip(made, want)) + empty[11:]


softmax = operation(
    "softmax",
    f"(Tensor x, {_SCORES}) -> (Tensor, Tensor, Tensor)",
    _softmax,
    _softmax_fake,
    _softmax_setup,
    _softmax_backward,
)


def _attention(q: Tensor, k: Tensor, v: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    who, owner = "attention", layout_by_id(args[11])
    terms = terms_of(who, args)
    views = view(who, "q", q), view(who, "k", k), view(who, "v", v)
    o, lse = _attention_fake(q, k, v, *args)
    _core.run_attention(owner._plans, owner._handle, terms, *views, view(who, "o", o), rows_view(who, "lse", lse))
    return o, lse


def _attention_light(q: Tensor, k: Tensor, v: Tensor, *args: Any) -> tuple[Tensor, Optional[Tensor]]:
    """Where nothing asks for a gradient: lse only when the caller wants it."""
    if args[15][WANT_LSE]:
        return _attention(q, k, v, *args)
    owner = layout_by_id(args[11])
    terms = terms_of("attention", args)
    views = view("attention", "q", q), view("attention", "k", k), view("attention", "v", v)
    o = q.new_empty(owner._geometry.attention(q.shape, k.shape, v.shape))
    _core.run_attention(owner._plans, owner._handle, terms, *views, view("attention", "o", o))
    return o, None


def _attention_fake(q: Tensor, k: Tensor, v: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    shape = layout_by_id(args[11])._geometry.attention(tuple(q.shape), tuple(k.shape), tuple(v.shape))
    return (
        q.new_empty(shape),
        _empty_rows(q, shape[:-1]),
    )


def _attention_grad(
    d_o: Tensor,
    d_lse: Optional[Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    *args_and_want: Any,
) -> list[Tensor]:
    *args, want = args_and_want
    who, owner = "attention", layout_by_id(args[11])
    terms = terms_of(who, args)
    made = _wanted(who, args, want[3:])
    grads = [torch.empty(t.shape if w else (0,), dtype=t.dtype, device=t.device) for t, w in zip((q, k, v), want)]
    _core.run_attention_grad(
        owner._plans,
        owner._handle,
        terms,
        {
            "q": view(who, "q", q),
            "k": view(who, "k", k),
            "v": view(who, "v", v),
            "o": view(who, "o", o),
            "lse": rows_view(who, "lse", lse),
            "d_o": view(who, "d_o", d_o),
            "d_lse": None if d_lse is None else rows_view(who, "d_lse", d_lse),
            **{name: view(who, name, g) for name, g, w in zip(("d_q", "d_k", "d_v"), grads, want) if w},
            **{f"d_{name}": view(who, name, t) for name, t in made.items()},
        },
    )
    return [*grads, *_term_gradients(made)]


def _attention_grad_fake(
    d_o: Tensor, d_lse: Optional[Tensor], q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, *args: Any
) -> list[Tensor]:
    want = args[-1]
    grads = [torch.empty(t.shape if w else (0,), dtype=t.dtype, device=t.device) for t, w in zip((q, k, v), want)]
    return [*grads, *_term_gradients(_wanted("attention", args, want[3:]))]


_GRAD = "Tensor d_o, Tensor? d_lse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse"
attention_grad = operation(
    "attention_grad", f"({_GRAD}, {_SCORES}, bool[] want) -> Tensor[]", _attention_grad, _attention_grad_fake
)


def _attention_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    o, lse = output
    ctx.save_for_backward(*inputs[:3], o, lse, *inputs[3:14])
    ctx.options, ctx.owner = inputs[14:], layout_by_id(inputs[14])
    ctx.set_materialize_grads(False)


def _attention_backward(ctx: Any, d_o: Optional[Tensor], d_lse: Optional[Tensor]) -> tuple[Any, ...]:
    q, k, v, o, lse, *rest = ctx.saved_tensors
    want = list(ctx.needs_input_grad[:13])
    empty = (None,) * 19
    if d_o is None and d_lse is None:
        return empty
    if d_o is None:
        d_o = torch.zeros((), dtype=o.dtype, device=o.device).expand(o.shape)
    made = attention_grad(d_o.to(o.dtype), d_lse, q, k, v, o, lse, *rest, *ctx.options, want)
    return tuple(g if w else None for g, w in zip(made, want)) + empty[13:]


attention = operation(
    "attention",
    f"(Tensor q, Tensor k, Tensor v, {_SCORES}) -> (Tensor, Tensor)",
    _attention,
    _attention_fake,
    _attention_setup,
    _attention_backward,
    _attention_light,
)

# ---- norms -----------------------------------------------------------------------------------------------------------

_NORMS = {_abi.LAYERNORM: "layernorm", _abi.RMSNORM: "rmsnorm"}


def _norm_fake(
    x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], layout: int, kind: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    geometry = layout_by_id(layout)._geometry
    rows = geometry.rows_of(tuple(x.shape), geometry.packed_heads(tuple(x.shape)))
    dtype = _rows_dtype(x.dtype)
    return (
        torch.empty(x.shape, dtype=x.dtype, device=x.device),
        torch.empty(rows if kind == _abi.LAYERNORM else (0,), dtype=dtype, device=x.device),
        torch.empty(rows, dtype=dtype, device=x.device),
    )


def _norm(
    x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], layout: int, kind: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    who, owner = _NORMS[kind], layout_by_id(layout)
    views = {"x": view(who, "x", x), "weight": _maybe(who, "weight", weight), "bias": _maybe(who, "bias", bias)}
    y, mean, rstd = _norm_fake(x, weight, bias, layout, kind, eps)
    views["y"] = view(who, "y", y)
    views["mean"] = rows_view(who, "mean", mean) if kind == _abi.LAYERNORM else None
    views["rstd"] = rows_view(who, "rstd", rstd)
    _core.run_norm(owner._plans, owner._handle, kind, eps, views)
    return y, mean, rstd


def _norm_grad_fake(
    d_y: Tensor,
    x: Tensor,
    weight: Optional[Tensor],
    bias: Optional[Tensor],
    mean: Tensor,
    rstd: Tensor,
    layout: int,
    kind: int,
    want: Sequence[bool],
) -> list[Tensor]:
    made = []
    for t, w in zip((x, weight, bias), want):
        made.append(torch.empty(t.shape, dtype=t.dtype, device=t.device) if w and t is not None else torch.empty(0))
    return made


def _norm_grad(
    d_y: Tensor,
    x: Tensor,
    weight: Optional[Tensor],
    bias: Optional[Tensor],
    mean: Tensor,
    rstd: Tensor,
    layout: int,
    kind: int,
    want: Sequence[bool],
) -> list[Tensor]:
    who, owner = _NORMS[kind], layout_by_id(layout)
    made = _norm_grad_fake(d_y, x, weight, bias, mean, rstd, layout, kind, want)
    _core.run_norm_grad(
        owner._plans,
        owner._handle,
        kind,
        {
            "x": view(who, "x", x),
            "weight": _maybe(who, "weight", weight),
            "mean": rows_view(who, "mean", mean) if kind == _abi.LAYERNORM else None,
            "rstd": rows_view(who, "rstd", rstd),
            "d_y": view(who, "d_y", d_y),
            **{name: view(who, name, g) for name, g, w in zip(("d_x", "d_weight", "d_bias"), made, want) if w},
        },
    )
    return made


_NORM_GRAD = "Tensor d_y, Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor rstd"
norm_grad = operation(
    "norm_grad", f"({_NORM_GRAD}, int layout, int kind, bool[] want) -> Tensor[]", _norm_grad, _norm_grad_fake
)


def _norm_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    y, mean, rstd = output
    ctx.mark_non_differentiable(mean, rstd)
    ctx.save_for_backward(*inputs[:3], mean, rstd)
    ctx.layout, ctx.kind, ctx.owner = inputs[3], inputs[4], layout_by_id(inputs[3])


def _norm_backward(ctx: Any, d_y: Tensor, *_: Any) -> tuple[Any, ...]:
    x, weight, bias, mean, rstd = ctx.saved_tensors
    want = list(ctx.needs_input_grad[:3])
    made = norm_grad(d_y.to(x.dtype), x, weight, bias, mean, rstd, ctx.layout, ctx.kind, want)
    return tuple(g if w else None for g, w in zip(made, want)) + (None, None, None)


norm = operation(
    "norm",
    "(Tensor x, Tensor? weight, Tensor? bias, int layout, int kind, float eps) -> (Tensor, Tensor, Tensor)",
    _norm,
    _norm_fake,
    _norm_setup,
    _norm_backward,
)

__all__ = ["attention", "convert", "matmul", "norm", "softmax"]
