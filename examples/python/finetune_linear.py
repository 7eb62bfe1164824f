#!/usr/bin/env python3
"""Prune a linear layer to its heaviest blocks, then fine-tune what is left.

A two-layer network learns to tell two interleaved spirals apart; its wide layer is cut to a quarter of its blocks of 16
(`BlockSparseLinear.from_linear`), which costs accuracy, and a short fine-tuning of the stored blocks wins it back.
"""

import torch

import bstk.torch as bt

torch.manual_seed(0)


def spirals(count):
    """Points of two spirals, noisy, and which one each is of."""
    label = torch.arange(count) % 2
    angle = torch.rand(count).sqrt() * 3 * torch.pi
    radius = angle / 10
    turn = angle + torch.pi * label
    points = torch.stack([radius * turn.cos(), radius * turn.sin()], 1) + 0.02 * torch.randn(count, 2)
    return points, label


def train(model, steps, rate):
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        points, label = spirals(512)
        loss = torch.nn.functional.cross_entropy(model(points), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def accuracy(model):
    with torch.no_grad():
        points, label = spirals(4000)
        return float((model(points).argmax(1) == label).float().mean())


model = torch.nn.Sequential(
    torch.nn.Linear(2, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 2)
)
train(model, 600, 3e-3)
print(f"dense:       {sum(p.numel() for p in model.parameters())} parameters, accuracy {accuracy(model):.3f}")

model[2] = bt.nn.BlockSparseLinear.from_linear(model[2], density=0.25, block=16)
pruned = accuracy(model)
print(f"pruned:      {sum(p.numel() for p in model.parameters())} parameters, accuracy {pruned:.3f}")

train(model, 300, 3e-3)
tuned = accuracy(model)
print(f"fine-tuned:  {sum(p.numel() for p in model.parameters())} parameters, accuracy {tuned:.3f}")
print(model[2].layout)

dense_again = model[2].to_dense()  # for a run time without block-sparse products
x = torch.randn(8, 128)
assert torch.allclose(dense_again(x), model[2](x), atol=1e-5)
assert tuned > 0.9 and tuned >= pruned
