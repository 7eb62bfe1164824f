"""What the tests share: dense references in float64; an installed bstk is tested, else the one of the source tree."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # last: an installed package comes first

import numpy as np  # noqa: E402
import pytest  # noqa: E402

import bstk  # noqa: E402


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def element_mask(layout: bstk.Layout, heads: int = 1) -> np.ndarray:
    """Which elements are in stored blocks, bool [H, M, N]; partly kept blocks count whole."""
    b = layout.block
    spread = np.repeat(np.repeat(layout.mask, b, 1), b, 2)[:, : layout.shape[0], : layout.shape[1]]
    return np.broadcast_to(spread, (max(heads, layout.heads), *layout.shape))


def dense_softmax(scores: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Softmax over kept places, rows without any are 0; and the rows' log sums."""
    scores = np.where(kept, scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0, weights / total, 0), (top + np.log(total))[..., 0]
