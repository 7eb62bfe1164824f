"""bstk: block-sparse matrix products, softmax, norms and attention.

NumPy on the CPU here; PyTorch tensors in :mod:`bstk.torch`; code written for ``triton.ops.blocksparse`` or DeepSpeed's
sparse attention in :mod:`bstk.compat`.

>>> import numpy as np, bstk
>>> layout = bstk.layouts.bigbird(1024, block=64, heads=1, window=3, global_blocks=1, random_blocks=2)
>>> q = k = v = np.ones((1024, 64), np.float32)
>>> o = bstk.attention(layout, q, k, v)
"""

from __future__ import annotations

import ctypes as _ctypes

from . import layouts
from ._abi import lib as _lib
from ._core import get_num_threads, set_num_threads
from ._layout import Layout
from ._numpy import attention, dds, dsd, layernorm, pack, rmsnorm, sdd, softmax, unpack

__version__: str = _lib.bstk_version().decode()

__all__ = [
    "Layout",
    "__version__",
    "attention",
    "dds",
    "dsd",
    "get_num_threads",
    "layernorm",
    "layouts",
    "pack",
    "rmsnorm",
    "sdd",
    "set_num_threads",
    "show_config",
    "softmax",
    "unpack",
]


def _config() -> str:
    import platform
    import sys

    from ._abi import library_path

    size = _lib.bstk_build_info(None, 0)
    text = _ctypes.create_string_buffer(size + 1)
    _lib.bstk_build_info(text, size + 1)
    lines = [text.value.decode().rstrip("\n"), f"library: {library_path}", f"python: {platform.python_version()}"]
    for name in ("numpy", "torch", "ml_dtypes", "matplotlib"):
        # Not imported for the question: torch takes seconds.
        module = sys.modules.get(name)
        if module is None:
            from importlib import metadata

            try:
                lines.append(f"{name}: {metadata.version(name)}")
            except metadata.PackageNotFoundError:
                lines.append(f"{name}: not installed")
        else:
            lines.append(f"{name}: {module.__version__}")
    return "\n".join(lines)


def show_config() -> None:
    """Print versions, CPU features, GPU, threads and knobs, what is on and why not: for bug reports."""
    print(_config())
