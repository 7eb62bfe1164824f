"""In place of ``triton``: only ``triton.ops.blocksparse``."""
