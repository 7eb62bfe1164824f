"""``triton.ops.blocksparse``: the classes `matmul` and `softmax`, with the call forms of Triton 1.x and 2.x.

    from bstk.compat.triton.ops import blocksparse      # was: from triton.ops import blocksparse

>>> import torch
>>> from bstk.compat.triton.ops import blocksparse
>>> layout = torch.tensor([[[1, 0], [1, 1]]])
>>> q = k = v = torch.ones(1, 1, 32, 8)
>>> w = blocksparse.matmul(layout, 16, "sdd", device="cpu", trans_b=True)(q, k)
>>> w = blocksparse.softmax(layout, 16, device="cpu")(w, scale=8**-0.5, is_causal=True)
>>> blocksparse.matmul(layout, 16, "dsd", device="cpu")(w, v).shape
torch.Size([1, 1, 32, 8])

Differences from the originals, all in docs/migrating-from-triton.md: nothing is computed in place, rows without kept
elements give 0 and not NaN, rel_logits has a gradient, wrong shapes are errors, and CPU tensors work.
"""

from __future__ import annotations

from typing import Any, Optional, Union

import torch
from torch import Tensor

import bstk.torch as bt
from bstk import Layout

__all__ = ["matmul", "softmax"]

Device = Union[None, str, int, torch.device]


def _layout(who: str, layout: Any, block: int) -> Layout:
    given = torch.as_tensor(layout)
    if given.dim() not in (2, 3):
        raise ValueError(f"{who}: layout has {given.dim()} axes, expected [heads, rows, cols] or [rows, cols]")
    if given.is_floating_point():  # Triton 1.x cast any type to int64
        if not bool(((given == 0) | (given == 1)).all()):
            raise ValueError(f"{who}: layout has other values than 0 and 1")
        given = given.to(torch.uint8)
    return Layout(given, block)


def _device(device: Device) -> Optional[torch.device]:
    if device is None or isinstance(device, bool):
        return None
    return torch.device(device)


def _check_device(who: str, device: Optional[torch.device], **tensors: Any) -> None:
    for name, t in tensors.items():
        if not isinstance(t, Tensor):
            raise TypeError(f"{who}: {name} is {type(t).__name__}, expected a torch tensor")
        if device is None:
            continue
        if t.device.type != device.type or (device.index is not None and t.device.index != device.index):
            raise ValueError(f"{who}: {name} is on {t.device}, but this operation was made for {device}")


class matmul:
    """A product with one block-sparse matrix.

    Parameters
    ----------
    layout : Tensor or array_like of 0 and 1, ``[heads, rows, cols]`` or ``[rows, cols]``
        Of the sparse matrix as stored. One head serves all.
    block : int
        16, 32, 64 or 128 (any multiple of 8 up to 256 on the CPU).
    mode : {'sdd', 'dsd', 'dds'}
    device : device, optional
        Required in 2.x; None (as in 1.x): where the tensors are. In 1.x's positional form
        ``matmul(layout, block, mode, trans_a, trans_b)`` a bool here is trans_a.
    trans_a, trans_b, trans_c : bool
        trans_c with sdd: the layout is that of C's transpose.
    """

    def __init__(
        self,
        layout: Any,
        block: int,
        mode: str,
        device: Union[Device, bool] = None,
        trans_a: bool = False,
        trans_b: bool = False,
        trans_c: bool = False,
    ) -> None:
        if mode not in ("sdd", "dsd", "dds"):
            raise NotImplementedError(f"matmul: mode is {mode!r}, expected 'sdd', 'dsd' or 'dds'")
        if isinstance(device, bool):  # Triton 1.x: (layout, block, mode, trans_a, trans_b)
            trans_a, trans_b = device, trans_a
        self.block, self.mode = block, mode
        self.trans_a, self.trans_b, self.trans_c = trans_a, trans_b, trans_c
        self.device = _device(device)
        self.layout = _layout("matmul", layout, block)

    def __call__(self, a: Tensor, b: Tensor, out: Optional[Tensor] = None) -> Tensor:
        """``op(a) . op(b)``, packed ``[Z, nnz, block, block]`` for sdd, else dense ``[Z, H, M, N]``.

        ``out``, when given, is overwritten and returned.
        """
        _check_device("matmul", self.device, a=a, b=b)
        function = {"sdd": bt.sdd, "dsd": bt.dsd, "dds": bt.dds}[self.mode]
        c = function(self.layout, a, b, self.trans_a, self.trans_b, self.trans_c)
        if out is None:
            return c
        if out.shape != c.shape:
            raise ValueError(f"matmul: out has shape {tuple(out.shape)}, expected {tuple(c.shape)}")
        return out.copy_(c)


class softmax:
    """Softmax of each row over its stored blocks.

    Parameters
    ----------
    layout : Tensor or array_like of 0 and 1, ``[heads, rows, cols]`` or ``[rows, cols]``
    block : int
    device : device, optional
        As in `matmul`; a bool (1.0's ``bench``) is not looked at.
    is_dense : bool
        2.x's promise that the layout is all ones; not needed, and refused when it is not true.
    """

    def __init__(
        self, layout: Any, block: int, device: Union[Device, bool] = None, is_dense: bool = False, bench: bool = False
    ) -> None:
        self.block, self.is_dense = block, is_dense
        self.device = _device(device)
        self.layout = _layout("softmax", layout, block)
        if is_dense and self.layout.density < 1:
            raise ValueError(f"softmax: is_dense is True, but the layout has density {self.layout.density:.3g}")

    def __call__(
        self,
        a: Tensor,
        scale: Any = 1.0,
        rpe: Optional[Tensor] = None,
        key_padding_mask: Optional[Tensor] = None,
        attn_mask: Optional[Tensor] = None,
        key_padding_mask_mode: str = "add",
        attn_mask_mode: str = "add",
        is_causal: bool = False,
        *,
        rel_logits: Optional[Tensor] = None,
    ) -> Tensor:
        """Softmax of packed ``a`` ``[Z, nnz, block, block]``.

        ``scale * a``, then rpe ``[Z, H, M, N]`` or rel_logits ``[Z, H, M, E]``, then key_padding_mask ``[Z, N]`` and
        attn_mask ``[M, N]`` (mode ``'add'``: added; ``'mul'``: 0 drops), then ``is_causal`` drops ``j > i``.
        """
        _check_device("softmax", self.device, a=a)
        y = bt.softmax(
            self.layout,
            a,
            scale=float(scale),
            causal=is_causal,
            key_padding_mask=key_padding_mask,
            attn_mask=attn_mask,
            rel_logits=rel_logits,
            rpe=rpe,
            key_padding_mask_mode=key_padding_mask_mode,
            attn_mask_mode=attn_mask_mode,
        )
        assert isinstance(y, Tensor)
        return y
