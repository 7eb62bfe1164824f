#!/usr/bin/env python3
"""What a call from Python costs beyond the C call: median of both, on tensors so small that little else counts.

The C call is that of the same plan with its structures made beforehand. Usage: python bench/python_overhead.py
"""

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import numpy as np

import bstk
from bstk import _core

LIMIT = 15.0  # microseconds, at most


def median(function, repeats=2000):
    """Microseconds a call."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter_ns()
        function()
        times.append(time.perf_counter_ns() - begin)
    return statistics.median(times) / 1e3


def c_seconds(call):
    """Median of the run function alone inside `call`, whatever is around it."""
    inside = []
    names = ("bstk_matmul_run", "bstk_softmax_run", "bstk_attention_run", "bstk_norm_run")
    real = {name: getattr(_core.lib, name) for name in names}

    def timed(name):
        def run(*args):
            begin = time.perf_counter_ns()
            status = real[name](*args)
            inside.append(time.perf_counter_ns() - begin)
            return status

        return run

    try:
        for name in names:
            setattr(_core.lib, name, timed(name))
        # Norms go through a function that was bound when the module was read.
        for _ in range(2000):
            call()
    finally:
        for name in names:
            setattr(_core.lib, name, real[name])
    return statistics.median(inside) / 1e3


def main():
    bstk.set_num_threads(1)
    layout = bstk.Layout([[1]], block=16)
    x = np.ones((16, 16), np.float32)
    packed = np.ones((1, 16, 16), np.float32)
    calls = {
        "sdd": lambda: bstk.sdd(layout, x, x),
        "dsd": lambda: bstk.dsd(layout, packed, x),
        "softmax": lambda: bstk.softmax(layout, packed, causal=True),
        "attention": lambda: bstk.attention(layout, x, x, x, causal=True),
        "layernorm": lambda: bstk.layernorm(layout, packed),
    }
    try:
        import torch

        import bstk.torch as bt

        t, tp = torch.ones(16, 16), torch.ones(1, 16, 16)
        calls |= {
            "torch sdd": lambda: bt.sdd(layout, t, t),
            "torch softmax": lambda: bt.softmax(layout, tp, causal=True),
            "torch attention": lambda: bt.attention(layout, t, t, t, causal=True),
        }
    except ImportError:
        pass
    print(f"{'call':16s} Python us   C us   more us")
    for name, call in calls.items():
        inside = c_seconds(call)
        outside = median(call)
        more = outside - inside
        print(f"{name:16s} {outside:9.1f} {inside:6.1f} {more:9.1f}{'' if more < LIMIT else '   over ' + str(LIMIT)}")


if __name__ == "__main__":
    main()
