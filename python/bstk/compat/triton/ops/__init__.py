"""In place of ``triton.ops``: only ``blocksparse``."""

from . import blocksparse

__all__ = ["blocksparse"]
