"""The operations on NumPy arrays (CPU). Arrays are used where they lie, with any strides; nothing is copied."""

from __future__ import annotations

from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

from . import _abi, _core
from ._core import ScoreTerms, View, check_ndim, make_terms
from ._layout import Layout, layout_view

__all__ = ["attention", "dds", "dsd", "layernorm", "pack", "rmsnorm", "sdd", "softmax", "unpack", "view_of"]

Array = npt.NDArray[Any]

_CODES: dict[Any, int] = {
    np.dtype(np.float64): _abi.F64,
    np.dtype(np.float32): _abi.F32,
    np.dtype(np.float16): _abi.F16,
    np.dtype(np.bool_): _abi.BOOL,
    np.dtype(np.uint8): _abi.U8,
    np.dtype(np.int8): _abi.I8,
    np.dtype(np.uint16): _abi.U16,
    np.dtype(np.int16): _abi.I16,
    np.dtype(np.uint32): _abi.U32,
    np.dtype(np.int32): _abi.I32,
    np.dtype(np.uint64): _abi.U64,
    np.dtype(np.int64): _abi.I64,
}


def _code(who: str, name: str, dtype: np.dtype[Any]) -> int:
    code = _CODES.get(dtype)
    if code is None and dtype.name == "bfloat16":  # of ml_dtypes, where that is installed
        code = _CODES[dtype] = _abi.BF16
    if code is None:
        raise TypeError(
            f"{who}: {name} is {dtype}, expected float64, float32, float16, bfloat16, bool or an integer type"
        )
    return code


def view_of(who: str, name: str, array: Array) -> View:
    """The description of an array; strides that are no multiple of the element make a copy."""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    code = _code(who, name, array.dtype)
    check_ndim(who, name, array.ndim, 0)
    unit = array.itemsize
    strides = array.strides
    for stride in strides:
        if stride % unit:
            array = np.ascontiguousarray(array)
            strides = array.strides
            break
    return View(array.ctypes.data, (code, unit, array.shape, strides, -1), array)


def _input(who: str, name: str, value: npt.ArrayLike) -> tuple[Array, View]:
    array = np.asarray(value)
    return array, view_of(who, name, array)


def _optional(who: str, name: str, value: Optional[npt.ArrayLike]) -> Optional[View]:
    return None if value is None else view_of(who, name, np.asarray(value))


def _output(
    who: str, name: str, out: Optional[Array], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[Array, View]:
    """A new array, or `out` after a check of what only Python knows; the library checks that outputs do not overlap."""
    dtype = dtype.newbyteorder("=")  # inputs of the other byte order are converted, results are native
    if out is None:
        out = np.empty(shape, dtype)
    else:
        if not isinstance(out, np.ndarray):
            raise TypeError(f"{who}: {name} is {type(out).__name__}, expected a NumPy array")
        if out.shape != shape:
            raise ValueError(f"{who}: {name} has shape {out.shape}, expected {shape}")
        if out.dtype != dtype:
            raise TypeError(f"{who}: {name} is {out.dtype}, expected {dtype}")
        if not out.flags.writeable:
            raise ValueError(f"{who}: {name} is read-only")
        if any(stride % out.itemsize for stride in out.strides):
            raise ValueError(f"{who}: strides of {name} are {out.strides} bytes, expected multiples of {out.itemsize}")
    return out, view_of(who, name, out)


def _layout_of(who: str, layout: object) -> Layout:
    if not isinstance(layout, Layout):
        raise TypeError(f"{who}: layout is {type(layout).__name__}, expected bstk.Layout")
    return layout


def _rows_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Of lse, mean and rstd."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


# ---- products --------------------------------------------------------------------------------------------------------


def _matmul(
    who: str,
    mode: int,
    layout: Layout,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    trans_a: bool,
    trans_b: bool,
    trans_c: bool,
    alpha: float,
    beta: float,
    out: Optional[Array],
) -> Array:
    plans, handle = layout_view(_layout_of(who, layout))
    left, a_view = _input(who, "a", a)
    right, b_view = _input(who, "b", b)
    check_ndim(who, "a", left.ndim, 3 if mode == _abi.DSD else 2)
    check_ndim(who, "b", right.ndim, 3 if mode == _abi.DDS else 2)
    if beta != 0 and out is None:
        raise ValueError(f"{who}: beta is {beta}, which needs out")
    trans = (int(bool(trans_a)), int(bool(trans_b)), int(bool(trans_c)))
    shape = layout._geometry.matmul(mode, trans, left.shape, right.shape)
    c, c_view = _output(who, "out", out, shape, (right if mode == _abi.DSD else left).dtype)
    _core.run_matmul(plans, handle, mode, trans, float(alpha), float(beta), a_view, b_view, c_view)
    return c


def sdd(
    layout: Layout,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    trans_a: bool = False,
    trans_b: bool = False,
    trans_c: bool = False,
    alpha: float = 1.0,
    out: Optional[Array] = None,
    beta: float = 0.0,
) -> Array:
    """Sparse = dense . dense: the stored blocks of ``alpha * op(a) @ op(b) + beta * out``.

    Parameters
    ----------
    layout : Layout
        Of the result ``[H|1, M/b, N/b]``; with ``trans_c`` of its transpose.
    a : array_like, ``[M, K]``, ``[H, M, K]`` or ``[Z, H, M, K]``
        float64, float32, float16 or bfloat16 (ml_dtypes), any strides; with ``trans_a`` ``[..., K, M]``.
    b : array_like, ``[K, N]`` and so on
        Of the same type; with ``trans_b`` ``[..., N, K]``. H may be a divisor of a's (grouped heads).
    trans_a, trans_b, trans_c : bool
        The array holds the transpose.
    alpha, beta : float
        As in BLAS; ``beta`` other than 0 needs ``out``.
    out : ndarray, optional
        Where the result goes; of its shape and type, overlaps neither a nor b.

    Returns
    -------
    ndarray, ``[nnz, b, b]`` or ``[Z, nnz, b, b]``
        Packed blocks, in (head, row, column) order; 0 past a ragged edge.

    Raises
    ------
    ValueError
        Shapes that do not fit; the message names the argument, the value and what was expected. `out` is untouched.
    TypeError
        Types that do not fit.

    Examples
    --------
    >>> import numpy as np, bstk
    >>> layout = bstk.layouts.local(128, block=32)
    >>> x = np.ones((128, 8), np.float32)
    >>> bstk.sdd(layout, x, x, trans_b=True).shape
    (10, 32, 32)
    """
    return _matmul("sdd", _abi.SDD, layout, a, b, trans_a, trans_b, trans_c, alpha, beta, out)


def dsd(
    layout: Layout,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    trans_a: bool = False,
    trans_b: bool = False,
    trans_c: bool = False,
    alpha: float = 1.0,
    out: Optional[Array] = None,
    beta: float = 0.0,
) -> Array:
    """Dense = sparse . dense: ``alpha * op(a) @ op(b) + beta * out`` with packed a.

    Parameters
    ----------
    layout : Layout
        Of a as stored: ``[H|1, M/b, K/b]``, with ``trans_a`` ``[H|1, K/b, M/b]``.
    a : array_like, ``[nnz, b, b]`` or ``[Z, nnz, b, b]``
        Packed blocks; of b's type, or float32 beside float16 and bfloat16.
    b : array_like, ``[K, N]``, ``[H, K, N]`` or ``[Z, H, K, N]``
        With ``trans_b`` ``[..., N, K]``.
    trans_a, trans_b, trans_c, alpha, beta, out
        As in `sdd`.

    Returns
    -------
    ndarray, ``[M, N]``, ``[H, M, N]`` or ``[Z, H, M, N]``
        Axes that no argument has are left out; with ``trans_c`` ``[..., N, M]``.

    Raises
    ------
    ValueError, TypeError
        As `sdd`.

    Examples
    --------
    >>> import numpy as np, bstk
    >>> layout = bstk.Layout([[1, 0], [0, 1]], block=16)
    >>> bool((bstk.dsd(layout, np.ones((2, 16, 16)), np.ones((32, 4))) == 16).all())
    True
    """
    return _matmul("dsd", _abi.DSD, layout, a, b, trans_a, trans_b, trans_c, alpha, beta, out)


def dds(
    layout: Layout,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    trans_a: bool = False,
    trans_b: bool = False,
    trans_c: bool = False,
    alpha: float = 1.0,
    out: Optional[Array] = None,
    beta: float = 0.0,
) -> Array:
    """Dense = dense . sparse: ``alpha * op(a) @ op(b) + beta * out`` with packed b.

    Parameters
    ----------
    layout : Layout
        Of b as stored: ``[H|1, K/b, N/b]``, with ``trans_b`` ``[H|1, N/b, K/b]``.
    a : array_like, ``[M, K]``, ``[H, M, K]`` or ``[Z, H, M, K]``
    b : array_like, ``[nnz, b, b]`` or ``[Z, nnz, b, b]``
    trans_a, trans_b, trans_c, alpha, beta, out
        As in `sdd`.

    Returns
    -------
    ndarray
        As `dsd`.

    Raises
    ------
    ValueError, TypeError
        As `sdd`.
    """
    return _matmul("dds", _abi.DDS, layout, a, b, trans_a, trans_b, trans_c, alpha, beta, out)


# ---- copies ----------------------------------------------------------------------------------------------------------


def pack(layout: Layout, x: npt.ArrayLike, out: Optional[Array] = None) -> Array:
    """The stored blocks of a dense matrix.

    Parameters
    ----------
    layout : Layout
    x : array_like, ``[M, N]``, ``[H, M, N]`` or ``[Z, H, M, N]``
        A layout of one head serves any number of heads.

    Returns
    -------
    ndarray, ``[nnz, b, b]`` or ``[Z, nnz, b, b]``; 0 past a ragged edge

    Raises
    ------
    ValueError, TypeError
        As `sdd`.
    """
    plans, handle = layout_view(_layout_of("pack", layout))
    array, view = _input("pack", "x", x)
    check_ndim("pack", "x", array.ndim, 2)
    y, y_view = _output("pack", "out", out, layout._geometry.pack(array.shape), array.dtype)
    _core.run_convert(plans, handle, _abi.PACK, view, y_view)
    return y


def unpack(layout: Layout, values: npt.ArrayLike, out: Optional[Array] = None) -> Array:
    """The dense matrix of packed blocks; 0 where no block is stored. The other way of `pack`.

    Parameters
    ----------
    layout : Layout
    values : array_like, ``[nnz, b, b]`` or ``[Z, nnz, b, b]``

    Returns
    -------
    ndarray, ``[M, N]``, ``[H, M, N]`` or ``[Z, H, M, N]``

    Examples
    --------
    >>> import numpy as np, bstk
    >>> layout = bstk.Layout([[1, 0], [1, 1]], block=8)
    >>> x = np.tril(np.ones((16, 16)))
    >>> bool((bstk.unpack(layout, bstk.pack(layout, x)) == x).all())
    True
    """
    plans, handle = layout_view(_layout_of("unpack", layout))
    array, view = _input("unpack", "values", values)
    check_ndim("unpack", "values", array.ndim, 3)
    y, y_view = _output("unpack", "out", out, layout._geometry.unpack(array.shape), array.dtype)
    _core.run_convert(plans, handle, _abi.UNPACK, view, y_view)
    return y


# ---- scores ----------------------------------------------------------------------------------------------------------


def _pair(who: str, first: str, second: str, given: Any) -> tuple[View, View]:
    """One array for rows and columns, or a pair of them."""
    if isinstance(given, tuple) and len(given) != 2:
        raise ValueError(f"{who}: {first} and {second} come as {len(given)} arrays, expected one or a pair")
    rows, cols = given if isinstance(given, tuple) else (given, given)
    return view_of(who, first, np.asarray(rows)), view_of(who, second, np.asarray(cols))


def _terms(who: str, tensors: dict[str, Any], documents: Any, cu_seqlens: Any, **scalars: Any) -> ScoreTerms:
    views = {name: view_of(who, name, np.asarray(value)) for name, value in tensors.items() if value is not None}
    if documents is not None:
        views["q_documents"], views["k_documents"] = _pair(who, "q_documents", "k_documents", documents)
    if cu_seqlens is not None:
        views["cu_seqlens_q"], views["cu_seqlens_k"] = _pair(who, "cu_seqlens_q", "cu_seqlens_k", cu_seqlens)
    return make_terms(who, views, **scalars)


def softmax(
    layout: Layout,
    x: npt.ArrayLike,
    scale: float = 1.0,
    causal: bool = False,
    key_padding_mask: Optional[npt.ArrayLike] = None,
    attn_mask: Optional[npt.ArrayLike] = None,
    rel_logits: Optional[npt.ArrayLike] = None,
    rpe: Optional[npt.ArrayLike] = None,
    out: Optional[Array] = None,
    *,
    causal_offset: int = 0,
    bottom_right: bool = False,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[npt.ArrayLike] = None,
    sinks: Optional[npt.ArrayLike] = None,
    documents: Any = None,
    cu_seqlens: Any = None,
    key_padding_mask_mode: str = "auto",
    attn_mask_mode: str = "auto",
    dropout: float = 0.0,
    seed: int = 0,
    offset: int = 0,
    return_lse: bool = False,
) -> Union[Array, tuple[Array, Array]]:
    """Softmax of each row over its stored, kept elements.

    With ``c = scale * x`` (or ``softcap * tanh(scale * x / softcap)``)::

        s = c + rpe + rel + key_padding + attn - slope * |diagonal - j|
        y = exp(s - max) / (sum of exp(s - max) over the kept j + exp(sink - max)),  0 elsewhere

    Parameters
    ----------
    layout : Layout
    x : array_like, ``[nnz, b, b]`` or ``[Z, nnz, b, b]``
        float64, float32, float16 or bfloat16.
    scale : float
    causal : bool
        Keep ``j <= i + causal_offset`` only.
    key_padding_mask : array_like, ``[N]`` or ``[Z, N]``
        Boolean and uint8 masks keep where nonzero; floating ones are added and drop where -inf.
    attn_mask : array_like, ``[M, N]``, ``[Z, M, N]`` or ``[Z, H, M, N]``; Z, H and M may be 1
    rel_logits : array_like, ``[M, E]``, ``[H, M, E]`` or ``[Z, H, M, E]``
        Element (i, j) adds column ``E - 1 - (i - j)`` where that exists.
    rpe : array_like, ``[M, N]``, ``[H, M, N]`` or ``[Z, H, M, N]``
        Added.
    out : ndarray, optional
        May be ``x`` itself.
    causal_offset : int
        Moves the diagonal of causal, window and ALiBi.
    bottom_right : bool
        The diagonal ends in the last column: ``i + N - M + causal_offset``.
    window : (int, int)
        Keep ``diagonal - left <= j <= diagonal + right``; -1: no limit.
    softcap : float
        0: none.
    alibi_slopes : array_like, ``[H]`` or ``[Z, H]``
    sinks : array_like, ``[H]``
        A logit that joins the sum of its head's rows only.
    documents : array_like of int32 or int64, ``[M]`` or ``[Z, M]``, or a pair (of rows, of columns)
        Keep only columns of the row's document.
    cu_seqlens : array_like of int32 or int64, ``[S + 1]``, or a pair (of rows, of columns)
        Sequences lie end to end and begin there; pairs of different sequences are dropped.
    key_padding_mask_mode, attn_mask_mode : {'auto', 'add', 'mul'}
        ``'mul'``: 0 drops, anything else keeps, for every type.
    dropout : float
        Probability that an element becomes 0; the others grow by ``1 / (1 - dropout)``.
    seed, offset : int
        Of the dropout (Philox 4x32-10): same numbers, same places.
    return_lse : bool
        Also return the logarithm of each row's sum.

    Returns
    -------
    y : ndarray
        As x. A row that keeps nothing is 0.
    lse : ndarray, ``[H, M]`` or ``[Z, H, M]``, float32 (float64 for float64)
        With ``return_lse``; -inf for a row that keeps nothing.

    Raises
    ------
    ValueError, TypeError
        As `sdd`.
    """
    plans, handle = layout_view(_layout_of("softmax", layout))
    array, view = _input("softmax", "x", x)
    check_ndim("softmax", "x", array.ndim, 3)
    terms = _terms(
        "softmax",
        {
            "rpe": rpe,
            "rel_logits": rel_logits,
            "key_padding_mask": key_padding_mask,
            "attn_mask": attn_mask,
            "alibi_slopes": alibi_slopes,
            "sinks": sinks,
        },
        documents,
        cu_seqlens,
        scale=scale,
        causal=causal,
        causal_offset=causal_offset,
        bottom_right=bottom_right,
        window=window,
        softcap=softcap,
        dropout=dropout,
        seed=(seed, offset),
        key_padding_mode=key_padding_mask_mode,
        attn_mode=attn_mask_mode,
    )
    y, y_view = _output("softmax", "out", out, array.shape, array.dtype)
    if not return_lse:
        _core.run_softmax(plans, handle, terms, view, y_view)
        return y
    shape = layout._geometry.rows_of(array.shape, layout._geometry.packed_heads(array.shape))
    lse = np.empty(shape, _rows_dtype(array.dtype))
    _core.run_softmax(plans, handle, terms, view, y_view, _rows_view("softmax", "lse", lse))
    return y, lse


def _rows_view(who: str, name: str, rows: Array) -> View:
    """[Z, H, M] with its leading axes, which the library wants."""
    return view_of(who, name, rows.reshape((1,) * (3 - rows.ndim) + rows.shape))


def attention(
    layout: Layout,
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    scale: Optional[float] = None,
    causal: bool = False,
    *,
    key_padding_mask: Optional[npt.ArrayLike] = None,
    attn_mask: Optional[npt.ArrayLike] = None,
    rel_logits: Optional[npt.ArrayLike] = None,
    rpe: Optional[npt.ArrayLike] = None,
    causal_offset: int = 0,
    bottom_right: bool = False,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[npt.ArrayLike] = None,
    sinks: Optional[npt.ArrayLike] = None,
    documents: Any = None,
    cu_seqlens: Any = None,
    key_padding_mask_mode: str = "auto",
    attn_mask_mode: str = "auto",
    dropout: float = 0.0,
    seed: int = 0,
    offset: int = 0,
    return_lse: bool = False,
    out: Optional[Array] = None,
) -> Union[Array, tuple[Array, Array]]:
    """Block-sparse attention ``softmax(scale * q @ k.T + terms) @ v``; the scores are never stored.

    Parameters
    ----------
    layout : Layout
        Which blocks of the scores exist, ``[H|1, ceil(M/b), ceil(N/b)]``.
    q : array_like, ``[M, D]``, ``[H, M, D]`` or ``[Z, H, M, D]``
        D from 1 to 256; float64, float32, float16 or bfloat16; any strides.
    k : array_like, ``[N, D]``, ``[Hkv, N, D]`` or ``[Z, Hkv, N, D]``
        Hkv divides H: head h reads ``h // (H / Hkv)``.
    v : array_like, ``[N, Dv]``, ``[Hkv, N, Dv]`` or ``[Z, Hkv, N, Dv]``
    scale : float, optional
        ``1 / sqrt(D)`` by default.
    causal, key_padding_mask, attn_mask, rel_logits, rpe, causal_offset, bottom_right, window, softcap, alibi_slopes, \
sinks, documents, cu_seqlens, key_padding_mask_mode, attn_mask_mode, dropout, seed, offset
        The terms of a score: see `softmax`.
    return_lse : bool
        Also return the logarithm of each row's sum of exponentials.
    out : ndarray, optional

    Returns
    -------
    o : ndarray, ``[M, Dv]``, ``[H, M, Dv]`` or ``[Z, H, M, Dv]``
        A query that keeps no key gets 0.
    lse : ndarray, ``[M]``, ``[H, M]`` or ``[Z, H, M]``, float32 (float64 for float64)
        With ``return_lse``.

    Raises
    ------
    ValueError, TypeError
        As `sdd`.

    Examples
    --------
    >>> import numpy as np, bstk
    >>> layout = bstk.layouts.bigbird(1024, block=64)
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = (rng.standard_normal((1024, 32), dtype=np.float32) for _ in range(3))
    >>> bstk.attention(layout, q, k, v).shape
    (1024, 32)
    """
    who = "attention"
    plans, handle = layout_view(_layout_of(who, layout))
    queries, q_view = _input(who, "q", q)
    keys, k_view = _input(who, "k", k)
    values, v_view = _input(who, "v", v)
    for name, array in (("q", queries), ("k", keys), ("v", values)):
        check_ndim(who, name, array.ndim, 2)
    terms = _terms(
        who,
        {
            "rpe": rpe,
            "rel_logits": rel_logits,
            "key_padding_mask": key_padding_mask,
            "attn_mask": attn_mask,
            "alibi_slopes": alibi_slopes,
            "sinks": sinks,
        },
        documents,
        cu_seqlens,
        scale=scale,
        causal=causal,
        causal_offset=causal_offset,
        bottom_right=bottom_right,
        window=window,
        softcap=softcap,
        dropout=dropout,
        seed=(seed, offset),
        key_padding_mode=key_padding_mask_mode,
        attn_mode=attn_mask_mode,
    )
    shape = layout._geometry.attention(queries.shape, keys.shape, values.shape)
    o, o_view = _output(who, "out", out, shape, queries.dtype)
    if not return_lse:
        _core.run_attention(plans, handle, terms, q_view, k_view, v_view, o_view)
        return o
    lse = np.empty(shape[:-1], _rows_dtype(queries.dtype))
    _core.run_attention(plans, handle, terms, q_view, k_view, v_view, o_view, _rows_view(who, "lse", lse))
    return o, lse


# ---- norms -----------------------------------------------------------------------------------------------------------


def _norm(
    who: str,
    kind: int,
    layout: Layout,
    x: npt.ArrayLike,
    weight: Optional[npt.ArrayLike],
    bias: Optional[npt.ArrayLike],
    eps: float,
    out: Optional[Array],
) -> Array:
    plans, handle = layout_view(_layout_of(who, layout))
    array, view = _input(who, "x", x)
    check_ndim(who, "x", array.ndim, 3)
    y, y_view = _output(who, "out", out, array.shape, array.dtype)
    views = {
        "x": view,
        "weight": _optional(who, "weight", weight),
        "bias": _optional(who, "bias", bias),
        "y": y_view,
    }
    _core.run_norm(plans, handle, kind, float(eps), views)
    return y


def layernorm(
    layout: Layout,
    x: npt.ArrayLike,
    weight: Optional[npt.ArrayLike] = None,
    bias: Optional[npt.ArrayLike] = None,
    eps: float = 1e-5,
    out: Optional[Array] = None,
) -> Array:
    """Layer norm of each row over its stored, kept elements.

    ``y = (x - mean) / sqrt(var + eps) * weight[j] + bias[j]``, mean and (biased) variance over the n kept elements of
    the row; 0 where not kept.

    Parameters
    ----------
    layout : Layout
    x : array_like, ``[nnz, b, b]`` or ``[Z, nnz, b, b]``
    weight, bias : array_like, ``[N]`` or ``[H, N]``, any floating type, optional
        By column.
    eps : float
    out : ndarray, optional
        May be ``x`` itself.

    Returns
    -------
    ndarray
        As x. A row of one element gives its bias; an empty row stores nothing.

    Raises
    ------
    ValueError, TypeError
        As `sdd`.
    """
    return _norm("layernorm", _abi.LAYERNORM, layout, x, weight, bias, eps, out)


def rmsnorm(
    layout: Layout,
    x: npt.ArrayLike,
    weight: Optional[npt.ArrayLike] = None,
    bias: Optional[npt.ArrayLike] = None,
    eps: float = 1e-5,
    out: Optional[Array] = None,
) -> Array:
    """RMS norm: as `layernorm` with mean 0 and the mean of squares in place of the variance."""
    return _norm("rmsnorm", _abi.RMSNORM, layout, x, weight, bias, eps, out)
