"""Writes the seeds of fuzz_ops: python3 fuzz/ops_seeds.py. Bytes as fuzz_ops_make.c reads them."""

import pathlib

FOLDER = pathlib.Path(__file__).parent / "corpus" / "ops"
OPS = "sdd dsd dds softmax layernorm rmsnorm attention pack unpack".split()
F32, F64, F16, BF16, F16_F32, BF16_F32 = range(6)
TA, TB, TC, BWD, CAUSAL, SHARED, ELEMENTS, SPECIAL = (1 << bit for bit in range(8))


def seed(name, op, dtype=F32, block=0, flags=0, z=1, h=1, m=16, n=16, k=16, mask=(0xFF,), more=(), threads=0):
    head = [threads, OPS.index(op), dtype, block, flags, (z - 1) * 4 + h - 1, m, n, k, *mask, 0]
    (FOLDER / name).write_bytes(bytes(head + list(more)))


FOLDER.mkdir(parents=True, exist_ok=True)
for op in OPS:
    seed(f"plain_{op}", op)
    if op not in ("pack", "unpack"):
        seed(f"grad_{op}", op, flags=BWD)
STRIDES = [0, 0, 0, 4, 5, 3]  # of products: scale, two shares, negative, shuffled, spread
for number, op in enumerate(("sdd", "dsd", "dds")):
    seed(f"ragged_{op}", op, BF16, flags=1 << number, m=13, n=9, k=11, mask=(0x0D,), more=STRIDES, threads=2)
    seed(f"mixed_{op}", op, F16_F32 + number % 2, 6, SHARED, 2, 2, 20, 24, 17, mask=(0x07,), more=[3, 4, 0, 6, 1, 2])
seed("grouped_sdd", "sdd", h=4, m=8, n=8, k=5, mask=(0x0F,), more=[2, 0, 2])
seed("empty_dds", "dds", m=0, n=7, k=0, mask=())
seed("masks_softmax", "softmax", F16, 0, ELEMENTS | CAUSAL, 2, 2, 13, 18, 0, (0xFF, 0x5B), [1, 0, 255, 127] + [1] * 40)
seed("terms_attention", "attention", F64, 0, SPECIAL, 1, 2, 16, 16, 5, (0xFF,), [7, 2, 0, 0, 0, 0xCF, 1] + [2] * 30)
seed("terms_grad", "attention", F32, 0, BWD, 1, 2, 16, 16, 5, (0xFF,), [7, 0, 0, 0, 0, 0x8B, 0x80] + [0] * 30)
seed("shared_layernorm", "layernorm", BF16, 9, SHARED, 2, 3, 33, 20, 0, (0x2D,), [1, 2, 5, 0, 1])
seed("refused_block", "pack", block=12, mask=())
seed("refused_heads", "dsd", h=2, more=[0, 0, 3])
seed("refused_shape", "rmsnorm", more=[0, 0xC0, 1, 2])
# Found by the fuzzer: only d_attn_mask tells the heads of a shared layout without blocks.
(FOLDER / "heads_by_mask").write_bytes(bytes.fromhex("1cffff10ff261d00000020204880"))
# Found: factors lost in the underflow beside infinities in the gradients of norms.
(FOLDER / "lost_rmsnorm_f16").write_bytes(bytes.fromhex("0005feb3fefffffffff7fffd"))
(FOLDER / "lost_rmsnorm_f64").write_bytes(bytes.fromhex("76f83576f835f835003136"))
# Found: a dead row that keeps whole blocks, beside NaN in k.
(FOLDER / "dead_row_whole").write_bytes(bytes.fromhex("00060000ff2abf9dffffff00060004ff00"))
