"""`Layout`: which blocks of a block-sparse matrix are stored."""

from __future__ import annotations

import ctypes
import itertools
import os
import secrets
import struct
import tempfile
import weakref
import zlib
from typing import TYPE_CHECKING, Any, Optional, Union

import numpy as np
import numpy.typing as npt

from . import _abi
from ._abi import check, lib
from ._core import Geometry, PlanCache, pair, tensor_of, whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Numbers that no other process has: a graph that was compiled or exported elsewhere must not find another layout.
_numbers = itertools.count(secrets.randbelow(2**61), 2**20 + 7)
_by_id: weakref.WeakValueDictionary[int, Layout] = weakref.WeakValueDictionary()

PathLike = Union[str, "os.PathLike[str]"]


def _int64(values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"layout: indices are {array.dtype}, expected whole numbers")
    return np.ascontiguousarray(array, dtype=np.int64)


def _pointer(values: Optional[npt.NDArray[np.int64]]) -> Any:
    return None if values is None else values.ctypes.data_as(ctypes.POINTER(ctypes.c_int64))


def _shape_arg(shape: Optional[tuple[int, int]]) -> Any:
    if shape is None:
        return None
    return (ctypes.c_int64 * 2)(*pair("layout", "shape", shape))


def _path(path: PathLike) -> bytes:
    made = os.fsencode(path)
    if b"\0" in made:
        raise ValueError("layout: path holds a null byte")
    return made


class Layout:
    """Which blocks of a block-sparse matrix are stored. Immutable; any number of threads may use one.

    Parameters
    ----------
    mask : array_like of bool or integer, ``[H, rows, cols]`` or ``[rows, cols]``
        1 where a block is stored. The first value that is neither 0 nor 1 is named in the error. torch tensors too.
    block : int
        Edge of a block in elements: a multiple of 8 from 8 to 256.
    shape : (int, int), optional
        ``(M, N)`` in elements when the last blocks are ragged: ``ceil(M / block) == rows``. Default: whole blocks.

    Raises
    ------
    ValueError
        A mask with other values or axes, or a block or shape that does not fit.
    TypeError
        A floating mask.

    Notes
    -----
    Packed values are ``[Z, nnz, block, block]``, the blocks in (head, row, column) order. ``print(layout)`` draws it.

    Examples
    --------
    >>> import bstk
    >>> layout = bstk.Layout([[1, 0], [1, 1]], block=16)
    >>> layout.nnz, layout.density, layout.shape
    (3, 0.75, (32, 32))
    """

    __slots__ = ("_handle", "_geometry", "_plans", "_arrays", "_id", "__weakref__")

    def __init__(self, mask: npt.ArrayLike, block: int = 64, shape: Optional[tuple[int, int]] = None) -> None:
        from ._numpy import view_of

        array = _as_mask(mask)
        out = ctypes.c_void_p()
        view = view_of("layout", "mask", array)
        tensor = tensor_of(view.key)
        tensor.data = view.ptr
        check(
            lib.bstk_layout_from_mask(
                None, ctypes.byref(tensor), whole("layout", "block", block, 32), _shape_arg(shape), ctypes.byref(out)
            )
        )
        self._adopt(out)

    def _adopt(self, handle: ctypes.c_void_p) -> None:
        self._handle = int(handle.value or 0)
        self._geometry = Geometry(self._handle)
        self._plans = PlanCache()
        self._arrays: dict[str, Any] = {}
        self._id = next(_numbers) % 2**62  # how a torch operator names it: those take no Python objects
        _by_id[self._id] = self

    @classmethod
    def _from_handle(cls, handle: ctypes.c_void_p) -> Layout:
        made = cls.__new__(cls)
        made._adopt(handle)
        return made

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", 0), 0
        if handle and lib is not None:  # None while the interpreter ends
            lib.bstk_layout_release(handle)

    # ---- other ways in ----------------------------------------------------------------------------------------------

    @classmethod
    def from_dense_mask(cls, mask: npt.ArrayLike, block: int = 64) -> Layout:
        """Layout from a mask of elements: the blocks that hold at least one kept element.

        Of partly kept blocks it remembers which elements are kept: softmax, norms and attention drop the others;
        products, pack and unpack work on whole blocks.

        Parameters
        ----------
        mask : array_like of bool or integer, ``[H, M, N]`` or ``[M, N]``
            Nonzero keeps.
        block : int
            As in `Layout`.

        Examples
        --------
        >>> import numpy as np, bstk
        >>> bstk.Layout.from_dense_mask(np.tri(100, dtype=bool), block=64).mask.astype(int).tolist()
        [[[1, 0], [1, 1]]]
        """
        from ._numpy import view_of

        out = ctypes.c_void_p()
        view = view_of("layout", "mask", _as_mask(mask))
        tensor = tensor_of(view.key)
        tensor.data = view.ptr
        check(
            lib.bstk_layout_from_dense_mask(
                None, ctypes.byref(tensor), whole("layout", "block", block, 32), ctypes.byref(out)
            )
        )
        return cls._from_handle(out)

    @classmethod
    def _from_indices(cls, block: int, shape: Optional[tuple[int, int]], fields: dict[str, Any]) -> Layout:
        out = ctypes.c_void_p()
        keep = {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}
        given = _abi.desc(_abi.LayoutIndices, heads=1)
        for name, value in fields.items():
            setattr(given, name, _pointer(keep[name]) if name in keep else value)
        check(
            lib.bstk_layout_from_indices(
                None, ctypes.byref(given), whole("layout", "block", block, 32), _shape_arg(shape), ctypes.byref(out)
            )
        )
        return cls._from_handle(out)

    @classmethod
    def from_coo(
        cls,
        row: npt.ArrayLike,
        col: npt.ArrayLike,
        grid: tuple[int, int],
        block: int = 64,
        *,
        head: Optional[npt.ArrayLike] = None,
        heads: int = 1,
        edge: Optional[int] = None,
        shape: Optional[tuple[int, int]] = None,
    ) -> Layout:
        """Layout from coordinates.

        Parameters
        ----------
        row, col : array_like of int, ``[count]``
            Of each stored square of ``edge`` x ``edge`` elements, in any order. Duplicates are refused.
        grid : (int, int)
            Rows and columns of squares.
        block : int
            As in `Layout`.
        head : array_like of int, optional
            Head of each entry, with ``heads`` of them.
        edge : int, optional
            ``block`` by default: coordinates of blocks. 1: coordinates of elements; a divisor of ``block`` in general.
        shape : (int, int), optional
            As in `Layout`.
        """
        rows, cols = grid
        r, c = _int64(row), _int64(col)
        if r.shape != c.shape or r.ndim != 1:
            raise ValueError(f"layout: row has shape {r.shape} and col {c.shape}, expected two equal lists")
        fields: dict[str, Any] = {"rows": rows, "cols": cols, "heads": heads, "count": r.size, "row": r, "col": c}
        if head is not None:
            h = _int64(head)
            if h.shape != r.shape:
                raise ValueError(f"layout: head has shape {h.shape}, expected {r.shape} as row")
            fields["head"] = h
        fields["edge"] = int(edge or 0)
        return cls._from_indices(block, shape, fields)

    @classmethod
    def from_csr(
        cls,
        indptr: npt.ArrayLike,
        indices: npt.ArrayLike,
        cols: int,
        block: int = 64,
        *,
        edge: Optional[int] = None,
        shape: Optional[tuple[int, int]] = None,
    ) -> Layout:
        """Layout from the index arrays of CSR (``edge=1``) or BSR (``edge=None``: squares are blocks).

        Parameters
        ----------
        indptr : array_like of int, ``[rows + 1]``
        indices : array_like of int, ``[count]``
            Column of each entry; need not be sorted.
        cols : int
            Columns of squares.
        block, edge, shape
            As in `from_coo`.
        """
        ptr, col = _int64(indptr), _int64(indices)
        if ptr.ndim != 1 or ptr.size < 1 or col.ndim != 1:
            raise ValueError(f"layout: indptr has shape {ptr.shape} and indices {col.shape}, expected two lists")
        return cls._from_indices(
            block,
            shape,
            {
                "rows": ptr.size - 1,
                "cols": cols,
                "count": col.size,
                "row_ptr": ptr,
                "col": col,
                "edge": int(edge or 0),
            },
        )

    @classmethod
    def from_scipy(cls, matrix: Any, block: int = 64) -> Layout:
        """Layout of a SciPy sparse matrix: a BSR one of square blocks of ``block``, or any other by its elements."""
        if getattr(matrix, "format", None) == "bsr" and tuple(matrix.blocksize) == (block, block):
            return cls.from_csr(matrix.indptr, matrix.indices, matrix.shape[1] // block, block)
        csr = matrix.tocsr()
        return cls.from_csr(csr.indptr, csr.indices, csr.shape[1], block, edge=1, shape=csr.shape)

    # ---- files ------------------------------------------------------------------------------------------------------

    def save(self, path: PathLike) -> None:
        """Write the whole layout (block, shape, blocks, element masks) to a file, or nothing.

        The command line reads it: ``bstk info --layout FILE``. An interrupted call leaves no half-written file.
        """
        check(lib.bstk_layout_save(self._handle, _path(path)))

    @classmethod
    def load(cls, path: PathLike) -> Layout:
        """Read what `save` wrote. The file is not trusted: every count and index is checked.

        Raises
        ------
        OSError
            The file cannot be read.
        ValueError
            Its content is malformed.
        """
        out = ctypes.c_void_p()
        check(lib.bstk_layout_load(None, _path(path), ctypes.byref(out)))
        return cls._from_handle(out)

    def to_bytes(self) -> bytes:
        """What `save` writes, as bytes."""
        with tempfile.TemporaryDirectory(prefix="bstk-") as folder:
            path = os.path.join(folder, "layout")
            self.save(path)
            with open(path, "rb") as file:
                return file.read()

    @classmethod
    def from_bytes(cls, data: bytes) -> Layout:
        """The layout that `to_bytes` gave."""
        out = ctypes.c_void_p()
        data = bytes(memoryview(data))
        check(lib.bstk_layout_parse(None, data, len(data), ctypes.byref(out)))
        return cls._from_handle(out)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Layout.from_bytes, (self.to_bytes(),))

    def __copy__(self) -> Layout:
        return self  # immutable

    def __deepcopy__(self, memo: Any) -> Layout:
        return self

    # ---- queries ----------------------------------------------------------------------------------------------------

    @property
    def heads(self) -> int:
        """Heads; a layout of one head serves any number."""
        return self._geometry.heads

    @property
    def rows(self) -> int:
        """Block rows."""
        return self._geometry.rows

    @property
    def cols(self) -> int:
        """Block columns."""
        return self._geometry.cols

    @property
    def block(self) -> int:
        """Edge of a block in elements."""
        return self._geometry.block

    @property
    def nnz(self) -> int:
        """Stored blocks of all heads together."""
        return self._geometry.nnz

    @property
    def shape(self) -> tuple[int, int]:
        """``(M, N)`` in elements."""
        return self._geometry.m, self._geometry.n

    @property
    def density(self) -> float:
        """Stored share of the blocks, 0 to 1; 0 for an empty grid."""
        return float(lib.bstk_layout_density(self._handle))

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        """The mask of blocks, bool ``[H, rows, cols]``, read-only."""
        if "mask" not in self._arrays:
            from ._numpy import view_of

            made = np.zeros((self.heads, self.rows, self.cols), bool)
            view = view_of("layout", "mask", made)
            tensor = tensor_of(view.key)
            tensor.data = view.ptr
            check(lib.bstk_layout_to_mask(self._handle, ctypes.byref(tensor)))
            made.flags.writeable = False
            self._arrays["mask"] = made
        return self._arrays["mask"]  # type: ignore[no-any-return]

    def _index(self, name: str, count: int, dtype: type) -> npt.NDArray[Any]:
        if name not in self._arrays:
            address = getattr(lib, f"bstk_layout_{name}")(self._handle)
            size = count * np.dtype(dtype).itemsize
            made: npt.NDArray[Any] = np.frombuffer(ctypes.string_at(address, size) if size else b"", dtype)
            made.flags.writeable = False
            self._arrays[name] = made
        return self._arrays[name]  # type: ignore[no-any-return]

    @property
    def row_ptr(self) -> npt.NDArray[np.int64]:
        """First block of each block row of each head, int64 ``[H * rows + 1]``."""
        return self._index("row_ptr", self.heads * self.rows + 1, np.int64)

    @property
    def row_idx(self) -> npt.NDArray[np.int32]:
        """Block row of each stored block, int32 ``[nnz]``."""
        return self._index("row_idx", self.nnz, np.int32)

    @property
    def col_idx(self) -> npt.NDArray[np.int32]:
        """Block column of each stored block, int32 ``[nnz]``."""
        return self._index("col_idx", self.nnz, np.int32)

    @property
    def partial_count(self) -> int:
        """Blocks that are only partly kept; 0 unless the layout came from elements."""
        return int(lib.bstk_layout_partial_count(self._handle))

    def partial_mask(self, n: int) -> Optional[npt.NDArray[np.bool_]]:
        """Which elements of block ``n`` are kept, bool ``[block, block]``; None when all are."""
        n = whole("layout", "n", n)
        if not 0 <= n < self.nnz:
            raise ValueError(f"layout: n is {n}, expected 0 to {self.nnz - 1}")
        address = lib.bstk_layout_partial_mask(self._handle, n)
        if not address:
            return None
        made: npt.NDArray[np.uint8] = np.frombuffer(ctypes.string_at(address, self.block**2), np.uint8)
        return made.reshape(self.block, self.block).astype(bool)

    @property
    def element_mask(self) -> npt.NDArray[np.bool_]:
        """Which elements are kept, bool ``[H, M, N]``: the mask of blocks spread out, with the partly kept blocks."""
        b = self.block
        made: npt.NDArray[np.bool_] = np.repeat(np.repeat(self.mask, b, axis=1), b, axis=2)
        if self.partial_count:
            head = np.repeat(np.arange(self.heads * self.rows) // max(self.rows, 1), np.diff(self.row_ptr))
            for n in range(self.nnz):
                kept = self.partial_mask(n)
                if kept is not None:
                    i, j = int(self.row_idx[n]) * b, int(self.col_idx[n]) * b
                    made[head[n], i : i + b, j : j + b] = kept
        return made[:, : self.shape[0], : self.shape[1]]

    def stats(self) -> dict[str, Any]:
        """Counts of blocks by row, column and head, and how evenly the work is cut; see ``bstk layout stats``."""
        made = _abi.desc(_abi.LayoutStats)
        check(lib.bstk_layout_get_stats(self._handle, ctypes.byref(made)))
        return {name: getattr(made, name) for name, _ in _abi.LayoutStats._fields_ if name != "struct_size"}

    def score(self, q: npt.ArrayLike, k: npt.ArrayLike, scale: Optional[float] = None) -> npt.NDArray[np.float64]:
        """Share of the dense attention's weights that the layout keeps, per head: the mean over queries and batches.

        1 means that the layout drops nothing that counts; the dropped share is what block-sparse attention loses.
        Memory is O(M + N): no score is stored.

        Parameters
        ----------
        q : array_like, ``[M, D]``, ``[H, M, D]`` or ``[Z, H, M, D]``
        k : array_like, ``[N, D]``, ``[Hkv, N, D]`` or ``[Z, Hkv, N, D]``
        scale : float, optional
            ``1 / sqrt(D)`` by default.

        Returns
        -------
        ndarray of float64, ``[H]``

        Examples
        --------
        >>> import numpy as np, bstk
        >>> bstk.layouts.dense(32, block=16).score(np.zeros((32, 8)), np.zeros((32, 8)))
        array([1.])
        """
        from ._numpy import attention

        queries, keys = np.asarray(q), np.asarray(k)
        v = np.zeros((*keys.shape[:-1], 1), keys.dtype)
        everything = Layout(np.ones((1, self.rows, self.cols), bool), self.block, self.shape)
        _, kept = attention(self, queries, keys, v, scale=scale, return_lse=True)
        _, whole = attention(
            everything,
            np.broadcast_to(queries, (*kept.shape, queries.shape[-1])),
            keys,
            v,
            scale=scale,
            return_lse=True,
        )
        with np.errstate(invalid="ignore"):
            share = np.exp(kept.astype(np.float64) - whole)
        share = share.reshape(-1, share.shape[-2] if share.ndim > 1 else 1, share.shape[-1])
        return share.mean(axis=(0, 2))  # type: ignore[no-any-return]

    def clear_cache(self) -> None:
        """Drop the plans that calls with this layout have made. They are at most 64, and come back by need."""
        self._plans.clear()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        if self is other:
            return True
        same = (self.block, self.shape, self.heads) == (other.block, other.shape, other.heads)
        if not same or not np.array_equal(self.mask, other.mask):
            return False
        return not (self.partial_count or other.partial_count) or self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash((self.block, self.shape, self.heads, self.nnz))

    # ---- pictures ---------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        m, n = self.shape
        heads = f"heads={self.heads}, " if self.heads > 1 else ""
        grid = f"{heads}{self.rows} x {self.cols} blocks of {self.block} ({m} x {n})"
        return f"<bstk.Layout {grid}, nnz={self.nnz}, density={self.density:.3g}>"

    def __str__(self) -> str:
        return "\n".join([repr(self), *_picture(self.mask)])

    def _repr_png_(self) -> bytes:
        """The layout as a PNG, for notebooks: a dark square is a stored block; heads side by side."""
        mask = self.mask[:16]
        heads, rows, cols = mask.shape
        edge = max(1, min(12, 480 // max(rows, cols, 1)))
        gap = max(2, edge // 2)
        picture = np.full((rows * edge + 2, heads * (cols * edge + 2) + (heads - 1) * gap), 255, np.uint8)
        for h in range(heads):
            x = h * (cols * edge + 2 + gap)
            frame = picture[:, x : x + cols * edge + 2]
            frame[:] = 160
            frame[1:-1, 1:-1] = np.where(np.repeat(np.repeat(mask[h], edge, 0), edge, 1), 40, 240)
        return _png(picture)

    def plot(self, ax: Optional[Axes] = None, head: int = 0) -> Axes:
        """Draw one head with matplotlib, which must be installed; returns the axes."""
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError("bstk: Layout.plot needs matplotlib, which is not installed") from error
        if not 0 <= head < self.heads:
            raise ValueError(f"layout: head is {head}, expected 0 to {self.heads - 1}")
        if ax is None:
            _, ax = plt.subplots()
        ax.imshow(self.mask[head], cmap="Greys", vmin=0, vmax=1, interpolation="nearest", aspect="equal")
        ax.set_xlabel("block column")
        ax.set_ylabel("block row")
        ax.set_title(f"{self.rows} x {self.cols} blocks of {self.block}, density {self.density:.3g}")
        return ax


def _as_mask(mask: npt.ArrayLike) -> npt.NDArray[Any]:
    """A mask as a NumPy array; a tensor on another device is fetched."""
    fetch = getattr(mask, "detach", None)
    if fetch is not None:
        mask = fetch().cpu().numpy()
    array = np.asarray(mask)
    if array.dtype == object:
        raise TypeError("layout: mask is not a rectangular array of 0 and 1")
    return array


def _picture(mask: npt.NDArray[np.bool_], width: int = 64, heads: int = 4) -> list[str]:
    """Lines of half blocks: a character is one block wide and two high; large layouts are reduced, any block shows."""
    lines = []
    for h, blocks in enumerate(mask[:heads]):
        rows, cols = blocks.shape
        edge = max(1, -(-cols // width))
        if not rows or not cols:
            continue
        padded = np.zeros((-(-rows // (2 * edge)) * 2 * edge, -(-cols // edge) * edge), bool)
        padded[:rows, :cols] = blocks
        cells = padded.reshape(padded.shape[0] // edge, edge, -1, edge).any(axis=(1, 3))
        if len(mask) > 1:
            lines.append(f"head {h}:")
        for upper, lower in zip(cells[::2], cells[1::2]):
            lines.append("".join(" ▀▄█"[int(u) + 2 * int(w)] for u, w in zip(upper, lower)).rstrip())
    if len(mask) > heads:
        lines.append(f"... and {len(mask) - heads} more heads")
    return lines


def _png(grey: npt.NDArray[np.uint8]) -> bytes:
    """A grey picture as PNG: signature, header, one zlib stream of rows with filter 0, end."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = grey.shape
    rows = b"".join(b"\0" + row.tobytes() for row in grey)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def layout_by_id(number: int) -> Layout:
    """The living layout of that number."""
    try:
        return _by_id[int(number)]
    except KeyError:
        raise RuntimeError(f"bstk: layout {number} is gone: keep a reference to it as long as it is used") from None


def layout_view(layout: Layout) -> tuple[PlanCache, int]:
    """What a run needs of a layout."""
    return layout._plans, layout._handle


__all__ = ["Layout", "layout_by_id", "layout_view"]
