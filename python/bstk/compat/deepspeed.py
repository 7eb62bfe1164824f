"""``deepspeed.ops.sparse_attention``: the sparsity configurations and `SparseSelfAttention`.

    from bstk.compat.deepspeed import FixedSparsityConfig, SparseSelfAttention

>>> import torch
>>> from bstk.compat.deepspeed import BigBirdSparsityConfig, SparseSelfAttention
>>> attend = SparseSelfAttention(BigBirdSparsityConfig(num_heads=2, block=16), max_seq_length=256)
>>> q = k = v = torch.ones(1, 2, 128, 8)
>>> attend(q, k, v).shape
torch.Size([1, 2, 128, 8])

Differences from DeepSpeed, all in docs/migrating-from-triton.md: any floating type, unidirectional layouts hold no
block above the diagonal, random blocks come from ``seed`` alone, operations are cached by module and not by class.
"""

from __future__ import annotations

from typing import Any, Optional, Union

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

import bstk.torch as bt
from bstk import Layout, layouts

__all__ = [
    "BSLongformerSparsityConfig",
    "BigBirdSparsityConfig",
    "DenseSparsityConfig",
    "FixedSparsityConfig",
    "LocalSlidingWindowSparsityConfig",
    "SparseSelfAttention",
    "SparsityConfig",
    "VariableSparsityConfig",
]


class SparsityConfig:
    """What all configurations share; subclasses say which blocks a head has by `make_layout`.

    Parameters
    ----------
    num_heads : int
    block : int
    different_layout_per_head : bool
        Only where the rule differs by head (random blocks, `FixedSparsityConfig`'s patterns); else head 0's is copied.
    """

    def __init__(self, num_heads: int, block: int = 16, different_layout_per_head: bool = False) -> None:
        if num_heads < 1 or block < 1:
            raise ValueError(f"{type(self).__name__}: num_heads is {num_heads} and block {block}, expected 1 or more")
        self.num_heads, self.block = num_heads, block
        self.different_layout_per_head = different_layout_per_head
        self.num_layout_heads = num_heads if different_layout_per_head else 1

    def setup_layout(self, seq_len: int) -> Tensor:
        """An empty layout ``[num_heads, seq_len / block, seq_len / block]``, int64."""
        if seq_len % self.block:
            raise ValueError(f"{type(self).__name__}: seq_len is {seq_len}, expected a multiple of block {self.block}")
        n = seq_len // self.block
        return torch.zeros((self.num_heads, n, n), dtype=torch.int64)

    def check_and_propagate_first_head_layout(self, layout: Tensor) -> Tensor:
        """Copies head 0 to all heads unless they differ."""
        if not self.different_layout_per_head:
            layout[1:] = layout[0]
        return layout

    def make_layout(self, seq_len: int) -> Tensor:
        """0/1 layout ``[num_heads, n, n]``, int64 on the CPU."""
        layout = self.setup_layout(seq_len)
        made = torch.from_numpy(self._build(seq_len).mask.astype(np.int64))
        layout[: made.shape[0]] = made
        return self.check_and_propagate_first_head_layout(layout)

    def _build(self, seq_len: int) -> Layout:
        raise NotImplementedError(f"{type(self).__name__} has no make_layout of its own")

    def _at_least(self, seq_len: int, **counts: int) -> None:
        n = seq_len // self.block
        for name, count in counts.items():
            if count > n:
                raise ValueError(f"{type(self).__name__}: {name} is {count}, but a row has {n} blocks")


def _attention(who: str, attention: str) -> bool:
    if attention not in ("unidirectional", "bidirectional"):
        raise NotImplementedError(f"{who}: attention is {attention!r}, expected 'unidirectional' or 'bidirectional'")
    return attention == "unidirectional"


def _ranges(who: str, begins: list[int], ends: Optional[list[int]]) -> list[tuple[int, int]]:
    if ends is None:
        return [(begin, begin + 1) for begin in begins]
    if len(begins) != len(ends):
        raise ValueError(f"{who}: {len(begins)} global_block_indices, but {len(ends)} global_block_end_indices")
    for begin, end in zip(begins, ends):
        if begin >= end:
            raise ValueError(f"{who}: global range {begin} to {end} is empty, expected begin < end")
    return list(zip(begins, ends))


class DenseSparsityConfig(SparsityConfig):
    """Every block."""

    def _build(self, seq_len: int) -> Layout:
        return layouts.dense(seq_len, self.block)


class FixedSparsityConfig(SparsityConfig):
    """Windows of ``num_local_blocks``; the last ``num_global_blocks`` of each are seen by all (Sparse Transformer)."""

    def __init__(
        self,
        num_heads: int,
        block: int = 16,
        different_layout_per_head: bool = False,
        num_local_blocks: int = 4,
        num_global_blocks: int = 1,
        attention: str = "bidirectional",
        horizontal_global_attention: bool = False,
        num_different_global_patterns: int = 1,
    ) -> None:
        super().__init__(num_heads, block, different_layout_per_head)
        who = "FixedSparsityConfig"
        if num_global_blocks < 1 or num_local_blocks % num_global_blocks:
            raise ValueError(
                f"{who}: num_local_blocks is {num_local_blocks}, expected a multiple of num_global_blocks "
                f"{num_global_blocks}"
            )
        self.causal = _attention(who, attention)
        if self.causal and horizontal_global_attention:
            raise ValueError(f"{who}: horizontal_global_attention needs attention 'bidirectional'")
        if num_different_global_patterns > 1 and not different_layout_per_head:
            raise ValueError(f"{who}: num_different_global_patterns above 1 needs different_layout_per_head")
        if num_different_global_patterns > num_local_blocks // num_global_blocks:
            raise ValueError(
                f"{who}: num_different_global_patterns is {num_different_global_patterns}, expected at most "
                f"{num_local_blocks // num_global_blocks}"
            )
        self.num_local_blocks, self.num_global_blocks, self.attention = num_local_blocks, num_global_blocks, attention
        self.horizontal_global_attention = horizontal_global_attention
        self.num_different_global_patterns = num_different_global_patterns

    def _build(self, seq_len: int) -> Layout:
        return layouts.fixed(
            seq_len,
            self.block,
            self.num_layout_heads,
            self.num_local_blocks,
            self.num_global_blocks,
            self.causal,
            self.horizontal_global_attention,
            self.num_different_global_patterns,
        )


class VariableSparsityConfig(SparsityConfig):
    """Windows of several sizes, global ranges, random blocks."""

    def __init__(
        self,
        num_heads: int,
        block: int = 16,
        different_layout_per_head: bool = False,
        num_random_blocks: int = 0,
        local_window_blocks: Optional[list[int]] = None,
        global_block_indices: Optional[list[int]] = None,
        global_block_end_indices: Optional[list[int]] = None,
        attention: str = "bidirectional",
        horizontal_global_attention: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(num_heads, block, different_layout_per_head)
        who = "VariableSparsityConfig"
        self.num_random_blocks, self.attention, self.seed = num_random_blocks, attention, seed
        self.local_window_blocks = [4] if local_window_blocks is None else local_window_blocks
        self.global_block_indices = [0] if global_block_indices is None else global_block_indices
        self.global_block_end_indices = global_block_end_indices
        self.globals = _ranges(who, self.global_block_indices, global_block_end_indices)
        self.causal = _attention(who, attention)
        if self.causal and horizontal_global_attention:
            raise ValueError(f"{who}: horizontal_global_attention needs attention 'bidirectional'")
        self.horizontal_global_attention = horizontal_global_attention

    def _build(self, seq_len: int) -> Layout:
        self._at_least(seq_len, num_random_blocks=self.num_random_blocks)
        return layouts.variable(
            seq_len,
            self.block,
            self.num_layout_heads,
            self.local_window_blocks,
            self.globals,
            self.num_random_blocks,
            self.causal,
            self.horizontal_global_attention,
            self.seed,
        )


class BigBirdSparsityConfig(SparsityConfig):
    """A window, global first blocks, random blocks."""

    def __init__(
        self,
        num_heads: int,
        block: int = 16,
        different_layout_per_head: bool = False,
        num_random_blocks: int = 1,
        num_sliding_window_blocks: int = 3,
        num_global_blocks: int = 1,
        attention: str = "bidirectional",
        seed: int = 0,
    ) -> None:
        super().__init__(num_heads, block, different_layout_per_head)
        self.causal = _attention("BigBirdSparsityConfig", attention)
        self.num_random_blocks, self.num_sliding_window_blocks = num_random_blocks, num_sliding_window_blocks
        self.num_global_blocks, self.attention, self.seed = num_global_blocks, attention, seed

    def _build(self, seq_len: int) -> Layout:
        self._at_least(
            seq_len,
            num_random_blocks=self.num_random_blocks,
            num_sliding_window_blocks=self.num_sliding_window_blocks,
            num_global_blocks=self.num_global_blocks,
        )
        return layouts.bigbird(
            seq_len,
            self.block,
            self.num_layout_heads,
            self.num_sliding_window_blocks,
            self.num_global_blocks,
            self.num_random_blocks,
            self.causal,
            self.seed,
        )


class BSLongformerSparsityConfig(SparsityConfig):
    """A window, and global rows and columns."""

    def __init__(
        self,
        num_heads: int,
        block: int = 16,
        different_layout_per_head: bool = False,
        num_sliding_window_blocks: int = 3,
        global_block_indices: Optional[list[int]] = None,
        global_block_end_indices: Optional[list[int]] = None,
        attention: str = "bidirectional",
    ) -> None:
        super().__init__(num_heads, block, different_layout_per_head)
        who = "BSLongformerSparsityConfig"
        self.causal = _attention(who, attention)
        self.num_sliding_window_blocks, self.attention = num_sliding_window_blocks, attention
        self.global_block_indices = [0] if global_block_indices is None else global_block_indices
        self.global_block_end_indices = global_block_end_indices
        self.globals = _ranges(who, self.global_block_indices, global_block_end_indices)

    def _build(self, seq_len: int) -> Layout:
        self._at_least(seq_len, num_sliding_window_blocks=self.num_sliding_window_blocks)
        return layouts.longformer(
            seq_len,
            self.block,
            self.num_layout_heads,
            self.num_sliding_window_blocks,
            globals=self.globals,
            causal=self.causal,
        )


class LocalSlidingWindowSparsityConfig(SparsityConfig):
    """A sliding window: ``num_sliding_window_blocks // 2`` blocks to each side (unidirectional: to the left)."""

    def __init__(
        self,
        num_heads: int,
        block: int = 16,
        num_sliding_window_blocks: int = 3,
        attention: str = "unidirectional",
    ) -> None:
        super().__init__(num_heads, block)
        self.causal = _attention("LocalSlidingWindowSparsityConfig", attention)
        self.num_sliding_window_blocks, self.attention = num_sliding_window_blocks, attention

    def _build(self, seq_len: int) -> Layout:
        self._at_least(seq_len, num_sliding_window_blocks=self.num_sliding_window_blocks)
        return layouts.local(seq_len, self.block, 1, self.num_sliding_window_blocks, self.causal)


class SparseSelfAttention(Module):
    """Attention by a sparsity configuration: ``softmax(q k^T / sqrt(D) + rpe, masks) v``.

    Parameters
    ----------
    sparsity_config : SparsityConfig
        Four heads, dense, by default.
    key_padding_mask_mode, attn_mask_mode : {'add', 'mul'}
        ``'add'``: added to the scores; ``'mul'``: 0 drops.
    max_seq_length : int
        The layout is made for this length once, and cropped for shorter ones, as DeepSpeed does.
    """

    master_layout: Tensor

    def __init__(
        self,
        sparsity_config: Optional[SparsityConfig] = None,
        key_padding_mask_mode: str = "add",
        attn_mask_mode: str = "mul",
        max_seq_length: int = 2048,
    ) -> None:
        super().__init__()
        self.sparsity_config = DenseSparsityConfig(num_heads=4) if sparsity_config is None else sparsity_config
        self.register_buffer("master_layout", self.sparsity_config.make_layout(max_seq_length))
        self.key_padding_mask_mode, self.attn_mask_mode = key_padding_mask_mode, attn_mask_mode
        self._layouts: dict[int, Layout] = {}

    def _load_from_state_dict(self, *args: Any) -> None:
        base: Any = super()
        base._load_from_state_dict(*args)
        self._layouts.clear()  # made from the old master

    def get_layout(self, length: int) -> Layout:
        """The layout of a sequence of that length: the master's upper left corner."""
        block = self.sparsity_config.block
        if length % block:
            raise ValueError(f"SparseSelfAttention: sequence has {length} tokens, expected a multiple of block {block}")
        n = length // block
        if n > self.master_layout.shape[1]:
            raise ValueError(
                f"SparseSelfAttention: sequence has {length} tokens, expected at most max_seq_length "
                f"{self.master_layout.shape[1] * block}"
            )
        if length not in self._layouts:
            mask = self.master_layout[:, :n, :n]
            # One head's index serves all where they are equal.
            same = bool((mask == mask[:1]).all())
            self._layouts[length] = Layout(mask[:1] if same else mask, block)
        return self._layouts[length]

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        rpe: Optional[Tensor] = None,
        key_padding_mask: Optional[Tensor] = None,
        attn_mask: Optional[Tensor] = None,
    ) -> Tensor:
        """Attend.

        Parameters
        ----------
        query, key, value : Tensor, ``[B, heads, L, D]``
            key may also come as ``[B, heads, D, L]``.
        rpe : Tensor, ``[B, heads, L, L]``, optional
        key_padding_mask : Tensor, ``[B, L]`` (or with axes of size 1 between), optional
        attn_mask : Tensor, ``[L, L]`` (or with leading axes of size 1), optional

        Returns
        -------
        Tensor, ``[B, heads, L, D]``
        """
        if key.shape != query.shape and key.transpose(-1, -2).shape == query.shape:
            key = key.transpose(-1, -2)
        if query.shape != key.shape or key.shape != value.shape:
            raise NotImplementedError(
                f"SparseSelfAttention: query, key and value have shapes {tuple(query.shape)}, {tuple(key.shape)} and "
                f"{tuple(value.shape)}, expected one shape (self-attention)"
            )
        batch, heads, length, _ = query.shape
        if heads != self.sparsity_config.num_heads:
            raise ValueError(f"SparseSelfAttention: query has {heads} heads, expected {self.sparsity_config.num_heads}")
        o: Union[Tensor, Any] = bt.attention(
            self.get_layout(length),
            query,
            key,
            value,
            rpe=rpe,
            key_padding_mask=None if key_padding_mask is None else key_padding_mask.reshape(batch, length),
            attn_mask=None if attn_mask is None else attn_mask.reshape(length, length),
            key_padding_mask_mode=self.key_padding_mask_mode,
            attn_mask_mode=self.attn_mask_mode,
        )
        assert isinstance(o, Tensor)
        return o
