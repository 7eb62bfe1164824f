#!/usr/bin/env python3
"""BigBird attention in ten lines: the question of the first thread about block-sparse attention, answered.

How does the paper's picture become code? The picture is a grid of squares. Each square is a *block* of b x b scores, and
the *layout* is the grid as 0 and 1: here a window of three blocks, two global and three random blocks in each row.
How are rows reduced? The softmax runs along each row of *elements* over the blocks that the layout stores, and over
nothing else: an absent block counts as minus infinity.
What does a dense mask inside the blocks do? It drops single elements of stored blocks (padding here); it can never
bring back an absent one.
"""

import numpy as np

import bstk

seq, heads, head_size, block = 1024, 4, 64, 64
rng = np.random.default_rng(0)
q, k, v = rng.standard_normal((3, 1, heads, seq, head_size), dtype=np.float32)

# ---- the ten lines ----
layout = bstk.layouts.bigbird(seq, block=block, heads=heads, window=3, global_blocks=2, random_blocks=3, seed=0)
print(layout)  # the paper's picture, one for each head: random blocks differ
padding = np.ones((1, seq), bool)
padding[:, 1000:] = False  # the last 24 tokens are padding: no query looks at them

o = bstk.attention(layout, q, k, v, key_padding_mask=padding)  # scores are never stored

# The same in the three steps of the first packages, with the scores at hand: [1, nnz, block, block].
scores = bstk.sdd(layout, q, k, trans_b=True)
weights = bstk.softmax(layout, scores, scale=head_size**-0.5, key_padding_mask=padding)
o3 = bstk.dsd(layout, weights, v)
# -----------------------

stored, all_scores = scores.nbytes, heads * seq * seq * 4
print(f"scores stored: {stored / 2**20:.1f} MiB of {all_scores / 2**20:.1f} MiB")
print(f"largest difference of the two ways: {np.abs(o - o3).max():.1e}")

# Against dense attention with everything else masked out, in float64.
kept = np.repeat(np.repeat(layout.mask, block, 1), block, 2) & padding
s = np.where(kept, q.astype(float) @ k.astype(float).swapaxes(-1, -2) * head_size**-0.5, -np.inf)
p = np.exp(s - s.max(-1, keepdims=True))
dense = p / p.sum(-1, keepdims=True) @ v
print(f"largest difference from dense attention under the same mask: {np.abs(o - dense).max():.1e}")
assert np.abs(o - dense).max() < 1e-5 and np.abs(o - o3).max() < 1e-5
