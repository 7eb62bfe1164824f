"""bstk on PyTorch tensors: the operations of :mod:`bstk` with gradients.

The names and shapes are those of NumPy's side. Every operation is differentiable in each floating argument that asks
for it (once: a gradient of a gradient is refused), takes any strides, works under ``no_grad``, ``autocast`` (products
and attention compute in autocast's type, norms and softmax in the type that comes), checkpointing and, with torch 2.4
or later, ``torch.compile(fullgraph=True)``. Tensors stay on their device; results have the same bits for any number of
threads.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Optional, Union

import torch
from torch import Tensor

from .. import _abi
from .._core import TERM_TENSORS, _mode, check_ndim, pair, whole
from .._layout import Layout
from . import _ops, _register, nn

__all__ = ["Layout", "attention", "dds", "dsd", "layernorm", "nn", "pack", "rmsnorm", "sdd", "softmax", "unpack"]


_now: Any = torch  # what it has differs by version


def _autocast_dtype(device: str) -> Optional[torch.dtype]:
    """The type that autocast asks for on a device, or None where it is off."""
    if hasattr(torch, "get_autocast_dtype"):  # 2.4 and later
        return _now.get_autocast_dtype(device) if _now.is_autocast_enabled(device) else None
    if device == "cuda":
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
    return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None


def _cast(*tensors: Tensor) -> tuple[Tensor, ...]:
    dtype = _autocast_dtype(tensors[0].device.type)
    if dtype is None:
        return tensors
    return tuple(t.to(dtype) if t.dtype in (torch.float32, torch.float16, torch.bfloat16) else t for t in tensors)


def _check(who: str, layout: object, *tensors: tuple[str, Any, int]) -> None:
    """Each tensor comes with its name and the fewest axes that it may have."""
    if not isinstance(layout, Layout):
        raise TypeError(f"{who}: layout is {type(layout).__name__}, expected bstk.Layout")
    for name, t, low in tensors:
        if not isinstance(t, Tensor):
            raise TypeError(f"{who}: {name} is {type(t).__name__}, expected a torch tensor")
        if not low <= t.dim() <= 4:
            check_ndim(who, name, t.dim(), low)
    device = tensors[0][1].device
    if any(t.device != device for _, t, _ in tensors):
        text = ", ".join(f"{name} on {t.device}" for name, t, _ in tensors)
        raise ValueError(f"{who}: {text}, expected one device")


def _matmul(
    who: str, mode: int, layout: Layout, a: Tensor, b: Tensor, trans_a: bool, trans_b: bool, trans_c: bool, alpha: float
) -> Tensor:
    _check(who, layout, ("a", a, 3 if mode == _abi.DSD else 2), ("b", b, 3 if mode == _abi.DDS else 2))
    a, b = _cast(a, b)
    trans = int(bool(trans_a)) | int(bool(trans_b)) << 1 | int(bool(trans_c)) << 2
    result: Tensor = _ops.matmul(a, b, layout._id, mode, trans, float(alpha))
    return result


def sdd(
    layout: Layout,
    a: Tensor,
    b: Tensor,
    trans_a: bool = False,
    trans_b: bool = False,
    trans_c: bool = False,
    alpha: float = 1.0,
) -> Tensor:
    """Sparse = dense . dense: the stored blocks of ``alpha * op(a) @ op(b)``.

    Parameters
    ----------
    layout : bstk.Layout
        Of the result ``[H|1, M/b, N/b]``; with ``trans_c`` of its transpose.
    a : Tensor, ``[M, K]``, ``[H, M, K]`` or ``[Z, H, M, K]``
        float64, float32, float16 or bfloat16, any strides; with ``trans_a`` ``[..., K, M]``.
    b : Tensor, ``[K, N]``, ``[H, K, N]`` or ``[Z, H, K, N]``
        With ``trans_b`` ``[..., N, K]``. H may be a divisor of a's (grouped heads).

    Returns
    -------
    Tensor, ``[nnz, b, b]`` or ``[Z, nnz, b, b]``
        Packed blocks in (head, row, column) order; 0 past a ragged edge.

    Raises
    ------
    ValueError
        Shapes or devices that do not fit, naming the argument.
    TypeError
        Types that do not fit.

    Notes
    -----
    Gradients: ``d_a = dsd(d_c, op(b).T)``, ``d_b = dds(op(a).T, d_c)``; what was shared gets the sum.
    """
    return _matmul("sdd", _abi.SDD, layout, a, b, trans_a, trans_b, trans_c, alpha)


def dsd(
    layout: Layout,
    a: Tensor,
    b: Tensor,
    trans_a: bool = False,
    trans_b: bool = False,
    trans_c: bool = False,
    alpha: float = 1.0,
) -> Tensor:
    """Dense = sparse . dense, with packed a ``[nnz, b, b]`` or ``[Z, nnz, b, b]`` and its layout as stored.

    Parameters, errors: as `sdd`. Returns ``[M, N]``, ``[H, M, N]`` or ``[Z, H, M, N]`` (``trans_c``: ``[..., N, M]``).
    The gradient of a exists at its stored blocks only, in their order.
    """
    return _matmul("dsd", _abi.DSD, layout, a, b, trans_a, trans_b, trans_c, alpha)


def dds(
    layout: Layout,
    a: Tensor,
    b: Tensor,
    trans_a: bool = False,
    trans_b: bool = False,
    trans_c: bool = False,
    alpha: float = 1.0,
) -> Tensor:
    """Dense = dense . sparse, with packed b and its layout as stored. Otherwise as `dsd`."""
    return _matmul("dds", _abi.DDS, layout, a, b, trans_a, trans_b, trans_c, alpha)


def pack(layout: Layout, x: Tensor) -> Tensor:
    """The stored blocks of a dense matrix ``[M, N]``, ``[H, M, N]`` or ``[Z, H, M, N]``, as `sdd` gives them."""
    _check("pack", layout, ("x", x, 2))
    result: Tensor = _ops.convert(x, layout._id, _abi.PACK)
    return result


def unpack(layout: Layout, values: Tensor) -> Tensor:
    """The dense matrix of packed blocks; 0 where no block is stored."""
    _check("unpack", layout, ("values", values, 3))
    result: Tensor = _ops.convert(values, layout._id, _abi.UNPACK)
    return result


_NO_TERMS: tuple[Optional[Tensor], ...] = (None,) * len(TERM_TENSORS)
Pair = Union[None, Tensor, tuple[Tensor, Tensor]]


def _tensors(
    who: str, device: torch.device, terms: tuple[Optional[Tensor], ...], documents: Pair, cu_seqlens: Pair
) -> Sequence[Optional[Tensor]]:
    """The tensors in the order of TERM_TENSORS, as the operators take them."""
    if documents is cu_seqlens is None and all(t is None for t in terms):
        return _NO_TERMS
    for name, given in (("documents", documents), ("cu_seqlens", cu_seqlens)):
        if isinstance(given, tuple) and len(given) != 2:
            raise ValueError(f"{who}: {name} is {len(given)} tensors, expected one or a pair")
    pairs = (given if isinstance(given, tuple) else (given, given) for given in (documents, cu_seqlens))
    order = (*terms, *(t for pair in pairs for t in pair))
    for name, t in zip(TERM_TENSORS, order):
        if t is None:
            continue
        if not isinstance(t, Tensor):
            raise TypeError(f"{who}: {name} is {type(t).__name__}, expected a torch tensor")
        if t.device != device:
            raise ValueError(f"{who}: {name} is on {t.device}, expected {device}")
    return order


def _seed(dropout: float, seed: Union[None, int, tuple[int, int]]) -> Optional[Tensor]:
    if not dropout > 0:
        return None
    if seed is None:  # from torch's generator: manual_seed and checkpointing then give the same places again
        return torch.randint(2**62, (2,), dtype=torch.int64)
    first, second = pair("dropout", "seed", seed if isinstance(seed, (tuple, list)) else (seed, 0))
    return torch.tensor((first, second), dtype=torch.int64)


def _ints(
    who: str,
    causal: bool,
    causal_offset: int,
    bottom_right: bool,
    window: tuple[int, int],
    key_padding_mask_mode: str,
    attn_mask_mode: str,
    want_lse: bool,
) -> tuple[int, ...]:
    left, right = window
    return (
        int(bool(causal)),
        whole(who, "causal_offset", causal_offset),
        int(bool(bottom_right)),
        int(left),
        int(right),
        _mode(who, "key_padding_mask_mode", key_padding_mask_mode),
        _mode(who, "attn_mask_mode", attn_mask_mode),
        int(want_lse),
    )


_cached_ints = functools.lru_cache(maxsize=256)(_ints)


def _integers(*args: Any) -> tuple[int, ...]:
    """`_ints`, made once for equal arguments; torch.compile looks through a cache anyway, with a warning."""
    if _register.HAS_CUSTOM_OPS and _register.is_watched():
        return _ints(*args)
    return _cached_ints(*args)


def softmax(
    layout: Layout,
    x: Tensor,
    scale: float = 1.0,
    causal: bool = False,
    key_padding_mask: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    rel_logits: Optional[Tensor] = None,
    rpe: Optional[Tensor] = None,
    *,
    causal_offset: int = 0,
    bottom_right: bool = False,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[Tensor] = None,
    sinks: Optional[Tensor] = None,
    documents: Pair = None,
    cu_seqlens: Pair = None,
    key_padding_mask_mode: str = "auto",
    attn_mask_mode: str = "auto",
    dropout: float = 0.0,
    seed: Union[None, int, tuple[int, int]] = None,
    return_lse: bool = False,
) -> Union[Tensor, tuple[Tensor, Tensor]]:
    """Softmax of each row over its stored, kept elements; formula and terms as `bstk.softmax`.

    Parameters
    ----------
    layout : bstk.Layout
    x : Tensor, ``[nnz, b, b]`` or ``[Z, nnz, b, b]``
    key_padding_mask, attn_mask, rel_logits, rpe, alibi_slopes, sinks, documents, cu_seqlens : Tensor, optional
        Shapes as in `bstk.softmax`. Boolean masks **keep** where True (``torch.nn.MultiheadAttention`` drops there).
    dropout : float
        On y. Without ``seed`` it is drawn from torch's default generator.
    return_lse : bool
        Also return the rows' log sums; they are differentiable.

    Returns
    -------
    Tensor as x, or (y, lse)

    Notes
    -----
    Differentiable in x, rpe, rel_logits, sinks and in floating masks that are added.
    """
    _check("softmax", layout, ("x", x, 3))
    terms = (rpe, rel_logits, key_padding_mask, attn_mask, alibi_slopes, sinks)
    tensors = _tensors("softmax", x.device, terms, documents, cu_seqlens)
    ints = _integers(
        "softmax",
        causal,
        causal_offset,
        bottom_right,
        pair("softmax", "window", window),
        key_padding_mask_mode,
        attn_mask_mode,
        return_lse,
    )
    y, lse, _ = _ops.softmax(
        x, *tensors, _seed(dropout, seed), layout._id, float(scale), float(softcap or 0.0), float(dropout), ints
    )
    return (y, lse) if return_lse else y


def attention(
    layout: Layout,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: Optional[float] = None,
    causal: bool = False,
    *,
    key_padding_mask: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    rel_logits: Optional[Tensor] = None,
    rpe: Optional[Tensor] = None,
    causal_offset: int = 0,
    bottom_right: bool = False,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[Tensor] = None,
    sinks: Optional[Tensor] = None,
    documents: Pair = None,
    cu_seqlens: Pair = None,
    key_padding_mask_mode: str = "auto",
    attn_mask_mode: str = "auto",
    dropout: float = 0.0,
    seed: Union[None, int, tuple[int, int]] = None,
    return_lse: bool = False,
) -> Union[Tensor, tuple[Tensor, Tensor]]:
    """Block-sparse attention ``softmax(scale * q @ k.T + terms) @ v``; the scores are never stored.

    Parameters
    ----------
    layout : bstk.Layout
        Which blocks of the scores exist, ``[H|1, ceil(M/b), ceil(N/b)]``.
    q : Tensor, ``[M, D]``, ``[H, M, D]`` or ``[Z, H, M, D]``
    k : Tensor, ``[N, D]``, ``[Hkv, N, D]`` or ``[Z, Hkv, N, D]``
        Hkv divides H (grouped heads).
    v : Tensor, ``[..., N, Dv]``
    scale : float, optional
        ``1 / sqrt(D)`` by default.
    causal and the others
        As in `softmax`.

    Returns
    -------
    Tensor ``[..., M, Dv]``, or (o, lse)
        A query that keeps no key gets 0.

    Notes
    -----
    Differentiable in q, k, v, rpe, rel_logits, sinks and floating masks that are added. Memory is O(M * D) forward and
    backward. Deterministic: same bits every run.
    """
    _check("attention", layout, ("q", q, 2), ("k", k, 2), ("v", v, 2))
    q, k, v = _cast(q, k, v)
    terms = (rpe, rel_logits, key_padding_mask, attn_mask, alibi_slopes, sinks)
    tensors = _tensors("attention", q.device, terms, documents, cu_seqlens)
    ints = _integers(
        "attention",
        causal,
        causal_offset,
        bottom_right,
        pair("attention", "window", window),
        key_padding_mask_mode,
        attn_mask_mode,
        return_lse,
    )
    factor = q.shape[-1] ** -0.5 if scale is None else float(scale)
    o, lse = _ops.attention(
        q, k, v, *tensors, _seed(dropout, seed), layout._id, factor, float(softcap or 0.0), float(dropout), ints
    )
    return (o, lse) if return_lse else o


def layernorm(
    layout: Layout, x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, eps: float = 1e-5
) -> Tensor:
    """Layer norm of each row over its stored, kept elements; formula as `bstk.layernorm`.

    x ``[nnz, b, b]`` or ``[Z, nnz, b, b]``; weight and bias ``[N]`` or ``[H, N]``, by column. Differentiable in all.
    """
    _check("layernorm", layout, ("x", x, 3))
    result: Tensor = _ops.norm(x, weight, bias, layout._id, _abi.LAYERNORM, float(eps))[0]
    return result


def rmsnorm(
    layout: Layout, x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, eps: float = 1e-5
) -> Tensor:
    """RMS norm of each row over its stored, kept elements; otherwise as `layernorm`."""
    _check("rmsnorm", layout, ("x", x, 3))
    result: Tensor = _ops.norm(x, weight, bias, layout._id, _abi.RMSNORM, float(eps))[0]
    return result
