"""Modules: block-sparse attention, linear layers and norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Optional, Union

import torch
from torch import Tensor
from torch.nn import Linear, Module, Parameter, init

from .._layout import Layout

__all__ = ["BlockLayerNorm", "BlockSparseLinear", "SparseAttention"]


class SparseAttention(Module):
    """Multi-head attention over a block-sparse layout; arguments as `torch.nn.MultiheadAttention`.

    Parameters
    ----------
    embed_dim, num_heads : int
        ``embed_dim`` is a multiple of ``num_heads``.
    layout : bstk.Layout, or callable (M, N) -> bstk.Layout
        A layout of the lengths that come, or what makes one for them (the last eight are kept), for example
        ``lambda m, n: bstk.layouts.bigbird((m, n), block=64)``.
    dropout : float
        On the attention weights, while training.
    bias : bool
        Of the projections.
    kdim, vdim : int, optional
        Features of key and value; ``embed_dim`` by default.
    batch_first : bool
        True (the default, unlike MultiheadAttention): ``[Z, M, embed_dim]``; False: ``[M, Z, embed_dim]``.
    num_kv_heads : int, optional
        Fewer heads of key and value (grouped heads); divides ``num_heads``.

    Notes
    -----
    ``forward`` returns ``(output, None)``: the weights are never stored. Masks follow torch's module: **True drops**.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        layout: Union[Layout, Callable[[int, int], Layout]],
        dropout: float = 0.0,
        bias: bool = True,
        kdim: Optional[int] = None,
        vdim: Optional[int] = None,
        batch_first: bool = True,
        device: Any = None,
        dtype: Optional[torch.dtype] = None,
        num_kv_heads: Optional[int] = None,
    ) -> None:
        super().__init__()
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"SparseAttention: embed_dim is {embed_dim}, expected a multiple of num_heads {num_heads}")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, float(dropout)
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if self.num_kv_heads < 1 or num_heads % self.num_kv_heads:
            raise ValueError(f"SparseAttention: num_kv_heads is {num_kv_heads}, expected a divisor of {num_heads}")
        self.head_dim = embed_dim // num_heads
        self.batch_first = batch_first
        self.layout = layout
        self._layouts: dict[tuple[int, int], Layout] = {}
        kv = self.head_dim * self.num_kv_heads
        factory = {"device": device, "dtype": dtype}
        self.q_proj = Linear(embed_dim, embed_dim, bias=bias, **factory)
        self.k_proj = Linear(kdim or embed_dim, kv, bias=bias, **factory)
        self.v_proj = Linear(vdim or embed_dim, kv, bias=bias, **factory)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, **factory)
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            init.xavier_uniform_(projection.weight)
            if bias:
                init.zeros_(projection.bias)
        if bias:
            init.zeros_(self.out_proj.bias)

    def layout_for(self, m: int, n: int) -> Layout:
        """The layout of M queries and N keys."""
        if isinstance(self.layout, Layout):
            if self.layout.shape != (m, n):
                raise ValueError(
                    f"SparseAttention: query has {m} tokens and key {n}, but the layout is for "
                    f"{self.layout.shape[0]} and {self.layout.shape[1]}; give a callable to serve many lengths"
                )
            return self.layout
        made = self._layouts.get((m, n))
        if made is None:
            made = self.layout(m, n)
            while len(self._layouts) >= 8:
                self._layouts.pop(next(iter(self._layouts)))
            self._layouts[m, n] = made
        return made

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        z, n, _ = x.shape
        return x.view(z, n, heads, self.head_dim).transpose(1, 2)

    def forward(
        self,
        query: Tensor,
        key: Optional[Tensor] = None,
        value: Optional[Tensor] = None,
        key_padding_mask: Optional[Tensor] = None,
        need_weights: bool = False,
        attn_mask: Optional[Tensor] = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        **terms: Any,
    ) -> tuple[Tensor, None]:
        """Attend.

        Parameters
        ----------
        query, key, value : Tensor, ``[Z, L, E]`` (or ``[L, Z, E]``), or ``[L, E]`` without a batch
            key is query and value is key by default.
        key_padding_mask : Tensor, ``[Z, N]`` or ``[N]``
            Boolean: True drops the key; floating: added.
        need_weights : bool
            Must be False: the weights are never stored.
        attn_mask : Tensor, ``[M, N]``, ``[Z * num_heads, M, N]`` or ``[Z, num_heads, M, N]``
            Boolean: True drops; floating: added.
        is_causal : bool
            Keep ``j <= i``; needs no mask.
        **terms
            Further terms of `bstk.torch.attention`: window, alibi_slopes, rel_logits, sinks, softcap, documents, ...
        """
        from . import attention

        if need_weights:
            raise ValueError("SparseAttention: need_weights is True, but the weights are never stored; expected False")
        key = query if key is None else key
        value = key if value is None else value
        if query.dim() not in (2, 3) or key.dim() != query.dim() or value.dim() != query.dim():
            raise ValueError(
                f"SparseAttention: query, key and value have {query.dim()}, {key.dim()} and {value.dim()} axes, "
                "expected 3, or 2 without a batch"
            )
        batched = query.dim() == 3
        if not batched:
            query, key, value = query[None], key[None], value[None]
        elif not self.batch_first:
            query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
        z, m, n = query.shape[0], query.shape[1], key.shape[1]
        for name, mask in (("key_padding_mask", key_padding_mask), ("attn_mask", attn_mask)):
            if mask is not None and mask.dtype != torch.bool and not mask.is_floating_point():
                raise TypeError(f"SparseAttention: {name} is {mask.dtype}, expected bool or a floating type")
        if key_padding_mask is not None and key_padding_mask.dtype == torch.bool:
            key_padding_mask = ~key_padding_mask
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                attn_mask = ~attn_mask
            if attn_mask.dim() == 3:
                if attn_mask.shape != (z * self.num_heads, m, n):
                    raise ValueError(
                        f"SparseAttention: attn_mask has shape {tuple(attn_mask.shape)}, "
                        f"expected {(z * self.num_heads, m, n)}"
                    )
                attn_mask = attn_mask.view(z, self.num_heads, m, n)
        o: Any = attention(
            self.layout_for(m, n),
            self._heads(self.q_proj(query), self.num_heads),
            self._heads(self.k_proj(key), self.num_kv_heads),
            self._heads(self.v_proj(value), self.num_kv_heads),
            causal=is_causal,
            key_padding_mask=key_padding_mask,
            attn_mask=attn_mask,
            dropout=self.dropout if self.training else 0.0,
            **terms,
        )
        out = self.out_proj(o.transpose(1, 2).reshape(z, m, self.embed_dim))
        if not batched:
            return out[0], None
        return (out if self.batch_first else out.transpose(0, 1)), None

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, layout={self.layout!r}"


class BlockSparseLinear(Module):
    """``y = x @ W.T + bias`` with a block-sparse W ``[out_features, in_features]``; only its stored blocks exist.

    Parameters
    ----------
    in_features, out_features : int
        Need not be multiples of the block.
    mask : array_like or bstk.Layout
        Which blocks of W exist, ``[ceil(out/b), ceil(in/b)]``.
    block : int
        Not looked at when ``mask`` is a layout.
    bias : bool

    Attributes
    ----------
    values : Parameter, ``[nnz, b, b]``
    bias : Parameter, ``[out_features]``, or None
    mask : buffer, bool ``[ceil(out/b), ceil(in/b)]``
        The stored blocks; a state of another layout is refused.
    """

    mask: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        mask: Any,
        block: int = 32,
        bias: bool = True,
        device: Any = None,
        dtype: Optional[torch.dtype] = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        layout = mask if isinstance(mask, Layout) else Layout(mask, block, (out_features, in_features))
        if layout.shape != (out_features, in_features) or layout.heads != 1:
            raise ValueError(
                f"BlockSparseLinear: the layout is {layout.heads} x {layout.shape}, "
                f"expected 1 x {(out_features, in_features)}"
            )
        self.layout = layout
        b = layout.block
        self.values = Parameter(torch.empty(layout.nnz, b, b, device=device, dtype=dtype))
        self.bias = Parameter(torch.empty(out_features, device=device, dtype=dtype)) if bias else None
        # In the state, so that values are never read into blocks of another layout.
        self.register_buffer("mask", torch.from_numpy(layout.mask[0].copy()).to(device=device))
        self.reset_parameters()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        given = state_dict.get(prefix + "mask")
        if given is not None and (given.shape != self.mask.shape or not bool((given == self.mask).all().item())):
            errors = args[-1]
            errors.append(f"{prefix}mask: the state is of another layout")
            return
        base: Any = super()
        base._load_from_state_dict(state_dict, prefix, *args)

    def reset_parameters(self) -> None:
        """As torch.nn.Linear, for the number of inputs that a row has on average."""
        fan_in = max(1.0, self.in_features * self.layout.density)
        bound = 1 / math.sqrt(fan_in)
        with torch.no_grad():
            dense = torch.empty(self.out_features, self.in_features, device=self.values.device, dtype=self.values.dtype)
            self._fill(dense.uniform_(-bound, bound))
            if self.bias is not None:
                self.bias.uniform_(-bound, bound)

    def _fill(self, weight: Tensor) -> None:
        from . import pack

        with torch.no_grad():
            self.values.copy_(pack(self.layout, weight.contiguous()))

    @classmethod
    def from_linear(
        cls, linear: Linear, density: float = 0.5, block: int = 32, mask: Any = None, norm: float = 2.0
    ) -> BlockSparseLinear:
        """Prune a linear layer: keep the blocks of the largest magnitude.

        Parameters
        ----------
        linear : torch.nn.Linear
        density : float
            Share of the blocks to keep, above 0 to 1; at least one.
        block : int
        mask : array_like or bstk.Layout, optional
            Which blocks to keep, in place of ``density``.
        norm : float
            Above 0; a block's magnitude is the p-norm of its weights divided by their number to the power 1/p.
        """
        out_features, in_features = linear.weight.shape
        if mask is None:
            if not 0 < density <= 1:
                raise ValueError(f"BlockSparseLinear: density is {density}, expected above 0 to 1")
            mask = block_magnitudes(linear.weight.detach(), block, norm)
            keep = max(1, round(density * mask.numel()))
            chosen = torch.zeros(mask.numel(), dtype=torch.bool)
            chosen[mask.flatten().sort(descending=True, stable=True).indices[:keep].cpu()] = True
            mask = chosen.view(mask.shape)
        made = cls(
            in_features,
            out_features,
            mask,
            block,
            bias=linear.bias is not None,
            device=linear.weight.device,
            dtype=linear.weight.dtype,
        )
        made._fill(linear.weight.detach())
        if linear.bias is not None and made.bias is not None:
            with torch.no_grad():
                made.bias.copy_(linear.bias)
        return made

    def to_dense(self) -> Linear:
        """A `torch.nn.Linear` with the same weights; 0 where no block is stored."""
        from . import unpack

        made = Linear(
            self.in_features,
            self.out_features,
            bias=self.bias is not None,
            device=self.values.device,
            dtype=self.values.dtype,
        )
        with torch.no_grad():
            made.weight.copy_(unpack(self.layout, self.values))
            if self.bias is not None:
                made.bias.copy_(self.bias)
        return made

    def forward(self, x: Tensor) -> Tensor:
        """x ``[..., in_features]`` gives ``[..., out_features]``."""
        from . import dds

        if x.shape[-1] != self.in_features:
            raise ValueError(f"BlockSparseLinear: x has {x.shape[-1]} features, expected {self.in_features}")
        flat = x.reshape(-1, self.in_features)
        y = dds(self.layout, flat, self.values, trans_b=True)
        if self.bias is not None:
            y = y + self.bias.to(y.dtype)
        return y.view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"block={self.layout.block}, density={self.layout.density:.3g}"
        )


def block_magnitudes(weight: Tensor, block: int, norm: float = 2.0) -> Tensor:
    """Mean p-norm of each block of a matrix, ``[ceil(rows/b), ceil(cols/b)]``; ragged blocks by what they hold."""
    if not 0 < norm < math.inf or block < 1:
        raise ValueError(f"block_magnitudes: norm is {norm} and block {block}, expected norm above 0, block 1 or more")
    rows, cols = weight.shape
    tall, wide = -(-rows // block), -(-cols // block)
    padded = weight.new_zeros(tall * block, wide * block, dtype=torch.float64)
    padded[:rows, :cols] = weight.abs().to(torch.float64) ** norm
    sums = padded.view(tall, block, wide, block).sum((1, 3))
    height = torch.full((tall,), float(block), dtype=torch.float64, device=weight.device)
    width = torch.full((wide,), float(block), dtype=torch.float64, device=weight.device)
    height[-1], width[-1] = rows - (tall - 1) * block, cols - (wide - 1) * block
    magnitudes: Tensor = (sums / (height[:, None] * width)) ** (1 / norm)
    return magnitudes


class BlockLayerNorm(Module):
    """Layer norm (or RMS norm) of each row of packed values over its stored elements.

    Parameters
    ----------
    layout : bstk.Layout
    eps : float
    elementwise_affine : bool
        A weight and a bias for each column.
    bias : bool
    rms : bool
        RMS norm.

    Attributes
    ----------
    weight, bias : Parameter, ``[N]``, or None
    """

    def __init__(
        self,
        layout: Layout,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        rms: bool = False,
        device: Any = None,
        dtype: Optional[torch.dtype] = None,
    ) -> None:
        super().__init__()
        self.layout, self.eps, self.rms = layout, eps, rms
        n = layout.shape[1]
        self.weight = Parameter(torch.ones(n, device=device, dtype=dtype)) if elementwise_affine else None
        self.bias = Parameter(torch.zeros(n, device=device, dtype=dtype)) if elementwise_affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x ``[nnz, b, b]`` or ``[Z, nnz, b, b]``; returns the same shape."""
        from . import layernorm, rmsnorm

        norm = rmsnorm if self.rms else layernorm
        y: Tensor = norm(self.layout, x, self.weight, self.bias, self.eps)
        return y

    def extra_repr(self) -> str:
        return f"layout={self.layout!r}, eps={self.eps}, rms={self.rms}"
