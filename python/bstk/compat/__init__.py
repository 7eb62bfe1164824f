"""Stand-ins for packages that had block-sparse operations: change the import, keep the code.

- :mod:`bstk.compat.triton.ops.blocksparse` for ``triton.ops.blocksparse`` (Triton 1.0 to 3.0)
- :mod:`bstk.compat.deepspeed` for ``deepspeed.ops.sparse_attention``

What differs from the originals is listed in docs/migrating-from-triton.md.
"""
