"""Builders of layouts: exact 0/1 rules, the same on every platform; pictures are in docs/layouts.md.

``seq`` is the length in elements, or a pair ``(M, N)`` for rectangular matrices; the last blocks may be ragged. ``i``
is the block row and ``j`` the block column; ``causal`` drops every ``j > i``. Counts (``window``, ``global_blocks``,
``random_blocks``) are in blocks.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Sequence
from typing import Any, Optional, Union

from . import _abi
from ._abi import check, lib
from ._core import pair, whole
from ._layout import Layout

__all__ = ["bigbird", "dense", "fixed", "local", "longformer", "random", "strided", "variable"]

Size = Union[int, tuple[int, int]]


def _build(kind: str, seq: Size, block: int, heads: int, **options: Any) -> Layout:
    m, n = pair(kind, "seq", seq if isinstance(seq, (tuple, list)) else (seq, seq))
    block = whole(kind, "block", block, 32)
    if block < 1:
        raise ValueError(f"{kind}: block is {block}, expected a multiple of 8 from 8 to 256")
    if m < 0 or n < 0:
        raise ValueError(f"{kind}: seq is {seq}, expected sizes of 0 or more")
    opts = _abi.desc(
        _abi.LayoutOpts,
        kind=_abi.LAYOUT_KINDS[kind],
        heads=whole(kind, "heads", heads),
        rows=-(-m // block),
        cols=-(-n // block),
        block=block,
        window=-1,
        global_=-1,
        random=-1,
        stride=-1,
        density=-1.0,
        patterns=1,
    )
    opts.shape[0], opts.shape[1] = m, n
    for name, value in options.items():
        if value is not None:
            setattr(opts, name, value)
    out = ctypes.c_void_p()
    check(lib.bstk_layout_build(None, ctypes.byref(opts), ctypes.byref(out)))
    return Layout._from_handle(out)


def _list(values: Optional[Sequence[int]]) -> dict[str, Any]:
    if values is None:
        return {}
    array = (ctypes.c_int64 * len(values))(*[int(value) for value in values])
    return {"windows": ctypes.cast(array, ctypes.POINTER(ctypes.c_int64)), "n_windows": len(values)}


def _pairs(ranges: Optional[Sequence[tuple[int, int]]]) -> dict[str, Any]:
    if ranges is None:
        return {}
    flat = [int(value) for pair in ranges for value in pair]
    array = (ctypes.c_int64 * len(flat))(*flat)
    return {"globals": ctypes.cast(array, ctypes.POINTER(ctypes.c_int64)), "n_globals": len(ranges)}


def dense(seq: Size, block: int = 64, heads: int = 1, causal: bool = False) -> Layout:
    """Every block; with ``causal`` those of the lower triangle."""
    return _build("dense", seq, block, heads, causal=int(causal))


def local(seq: Size, block: int = 64, heads: int = 1, window: int = 3, causal: bool = False) -> Layout:
    """Sliding window: ``|i - j| <= window // 2``."""
    return _build("local", seq, block, heads, window=operator.index(window), causal=int(causal))


def fixed(
    seq: Size,
    block: int = 64,
    heads: int = 1,
    window: int = 4,
    global_blocks: int = 1,
    causal: bool = False,
    horizontal: bool = False,
    patterns: int = 1,
) -> Layout:
    """Windows of ``window`` blocks, the last ``global_blocks`` of each seen by all.

    Parameters
    ----------
    horizontal : bool
        Also global rows; not with ``causal``.
    patterns : int
        Head h uses the global columns of pattern ``h % patterns``.
    """
    return _build(
        "fixed",
        seq,
        block,
        heads,
        window=operator.index(window),
        global_=operator.index(global_blocks),
        causal=int(causal),
        horizontal=int(horizontal),
        patterns=operator.index(patterns),
    )


def variable(
    seq: Size,
    block: int = 64,
    heads: int = 1,
    windows: Optional[Sequence[int]] = None,
    globals: Optional[Sequence[tuple[int, int]]] = None,
    random_blocks: int = 0,
    causal: bool = False,
    horizontal: bool = False,
    seed: int = 0,
) -> Layout:
    """Windows of the sizes in ``windows`` (the last one repeats), global ranges, random blocks in each row.

    Parameters
    ----------
    windows : sequence of int, optional
        ``[4]`` by default.
    globals : sequence of (begin, end), optional
        Block ranges that all see; ``[(0, 1)]`` by default.
    """
    return _build(
        "variable",
        seq,
        block,
        heads,
        **_list(windows),
        **_pairs(globals),
        random=operator.index(random_blocks),
        causal=int(causal),
        horizontal=int(horizontal),
        seed=whole("seed", "seed", seed, 64, False),
    )


def bigbird(
    seq: Size,
    block: int = 64,
    heads: int = 1,
    window: int = 3,
    global_blocks: int = 2,
    random_blocks: int = 3,
    causal: bool = False,
    seed: int = 0,
    global_last: int = 0,
) -> Layout:
    """BigBird: a window, the first ``global_blocks`` (and last ``global_last``) rows and columns, random blocks.

    Examples
    --------
    >>> import bstk
    >>> print(bstk.layouts.bigbird(512, block=64, global_blocks=1, random_blocks=1))
    <bstk.Layout 8 x 8 blocks of 64 (512 x 512), nnz=41, density=0.641>
    ███▀▀▀█▀
    █▀███▄
    █▀ ▀██▄▄
    █   ▀███
    """
    return _build(
        "bigbird",
        seq,
        block,
        heads,
        window=operator.index(window),
        global_=operator.index(global_blocks),
        global_last=operator.index(global_last),
        random=operator.index(random_blocks),
        causal=int(causal),
        seed=whole("seed", "seed", seed, 64, False),
    )


def longformer(
    seq: Size,
    block: int = 64,
    heads: int = 1,
    window: int = 3,
    global_blocks: int = 1,
    globals: Optional[Sequence[tuple[int, int]]] = None,
    causal: bool = False,
) -> Layout:
    """Longformer: a window, and global rows and columns: the first ``global_blocks``, or the ranges in ``globals``."""
    return _build(
        "longformer",
        seq,
        block,
        heads,
        window=operator.index(window),
        global_=operator.index(global_blocks),
        **_pairs(globals),
        causal=int(causal),
    )


def strided(
    seq: Size, block: int = 64, heads: int = 1, window: int = 3, stride: int = 4, causal: bool = False
) -> Layout:
    """A window, and every block with ``(i - j) % stride == 0``."""
    return _build(
        "strided", seq, block, heads, window=operator.index(window), stride=operator.index(stride), causal=int(causal)
    )


def random(
    seq: Size,
    block: int = 64,
    heads: int = 1,
    density: Optional[float] = None,
    random_blocks: Optional[int] = None,
    causal: bool = False,
    seed: int = 0,
) -> Layout:
    """Each block with probability ``density`` (0.1), or ``random_blocks`` blocks in each row."""
    return _build(
        "random",
        seq,
        block,
        heads,
        density=None if density is None else float(density),
        random=None if random_blocks is None else operator.index(random_blocks),
        causal=int(causal),
        seed=whole("seed", "seed", seed, 64, False),
    )
