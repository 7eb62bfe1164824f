"""bstk.compat.deepspeed: the golden pictures of DeepSpeed's rules, its errors, and attention against dense."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from bstk.compat import deepspeed as ds  # noqa: E402


def picture(layout: torch.Tensor, head: int = 0) -> str:
    return "\n".join("".join("#" if x else "." for x in row) for row in layout[head].tolist())


FIXED_BI = "\n".join(["####...#"] * 3 + ["####...#"] + ["...#####"] * 4)
FIXED_UNI = """#.........
##........
###.......
####......
...##.....
...###....
...####...
...#####..
...#...##.
...#...###"""
FIXED_UNI_PATTERN = """#.........
##........
###.......
####......
..#.#.....
..#.##....
..#.###...
..#.####..
..#...#.#.
..#...#.##"""
VARIABLE_UNI = """#.........
##........
###.......
#..#......
#..##.....
#..###....
#....##...
#....###..
#....####.
#....#...#"""
LONGFORMER_UNI = """#.........
##........
.##.......
####......
...##.....
...###....
...#.##...
...#..##..
...#...##.
...#....##"""
LOCAL_UNI = """#.........
##........
.##.......
..##......
...##.....
....##....
.....##...
......##..
.......##.
........##"""


def test_golden_pictures() -> None:
    assert picture(ds.FixedSparsityConfig(1).make_layout(8 * 16)) == FIXED_BI
    uni = {"attention": "unidirectional"}
    assert picture(ds.FixedSparsityConfig(1, **uni).make_layout(160)) == FIXED_UNI
    patterns = ds.FixedSparsityConfig(4, different_layout_per_head=True, num_different_global_patterns=4, **uni)
    assert picture(patterns.make_layout(160), 1) == FIXED_UNI_PATTERN
    variable = ds.VariableSparsityConfig(1, local_window_blocks=[1, 2, 3], global_block_indices=[0, 5], **uni)
    assert picture(variable.make_layout(160)) == VARIABLE_UNI
    assert picture(ds.BSLongformerSparsityConfig(1, global_block_indices=[3], **uni).make_layout(160)) == LONGFORMER_UNI
    assert picture(ds.LocalSlidingWindowSparsityConfig(1).make_layout(160)) == LOCAL_UNI


def test_golden_counts() -> None:
    def count(config: ds.SparsityConfig, blocks: int) -> int:
        return int(config.make_layout(blocks * 16)[0].sum())

    assert count(ds.FixedSparsityConfig(1), 8) == 40
    assert count(ds.FixedSparsityConfig(1, attention="unidirectional"), 10) == 31
    assert count(ds.FixedSparsityConfig(1, num_global_blocks=2, horizontal_global_attention=True), 10) == 92
    assert count(ds.BSLongformerSparsityConfig(1), 10) == 44
    assert count(ds.LocalSlidingWindowSparsityConfig(1, 16, 4, "bidirectional"), 10) == 44
    assert count(ds.DenseSparsityConfig(1), 10) == 100


def test_heads_share_the_first_ones_layout_unless_they_differ() -> None:
    shared = ds.BigBirdSparsityConfig(3).make_layout(256)
    assert shared.dtype == torch.int64 and shared.shape == (3, 16, 16)
    assert (shared == shared[:1]).all()
    apart = ds.BigBirdSparsityConfig(3, different_layout_per_head=True).make_layout(256)
    assert not (apart == apart[:1]).all()


@pytest.mark.parametrize("random_blocks", [0, 1, 2, 4])
def test_bigbird_rule(random_blocks: int) -> None:
    n = 16
    for attention in ("bidirectional", "unidirectional"):
        config = ds.BigBirdSparsityConfig(1, num_random_blocks=random_blocks, attention=attention)
        made = config.make_layout(n * 16)[0].numpy().astype(bool)
        i, j = np.indices((n, n))
        rule = (abs(i - j) <= 1) | (i < 1) | (j < 1)
        if attention == "unidirectional":
            rule &= j <= i
            assert not made[j > i].any()
        assert made[rule].all()
        extra = (made & ~rule).sum(1)
        assert extra.max(initial=0) <= random_blocks


def test_errors_name_the_argument() -> None:
    with pytest.raises(ValueError, match="seq_len is 100, expected a multiple of block 16"):
        ds.DenseSparsityConfig(1).make_layout(100)
    with pytest.raises(ValueError, match="num_local_blocks is 4, expected a multiple of num_global_blocks 3"):
        ds.FixedSparsityConfig(1, num_global_blocks=3)
    with pytest.raises(NotImplementedError, match="attention is 'sideways'"):
        ds.FixedSparsityConfig(1, attention="sideways")
    with pytest.raises(ValueError, match="horizontal_global_attention needs"):
        ds.FixedSparsityConfig(1, attention="unidirectional", horizontal_global_attention=True)
    with pytest.raises(ValueError, match="needs different_layout_per_head"):
        ds.FixedSparsityConfig(1, num_different_global_patterns=2)
    with pytest.raises(ValueError, match="expected at most 4"):
        ds.FixedSparsityConfig(1, different_layout_per_head=True, num_different_global_patterns=5)
    with pytest.raises(ValueError, match="num_random_blocks is 9, but a row has 4 blocks"):
        ds.BigBirdSparsityConfig(1, num_random_blocks=9).make_layout(64)
    with pytest.raises(ValueError, match="2 global_block_indices, but 1 global_block_end_indices"):
        ds.BSLongformerSparsityConfig(1, global_block_indices=[0, 4], global_block_end_indices=[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_attention_against_dense(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    config = ds.BigBirdSparsityConfig(2, num_random_blocks=2)
    attend = ds.SparseSelfAttention(config, max_seq_length=256)
    q, k, v = (torch.randn(3, 2, 128, 16).to(dtype) for _ in range(3))
    padding = torch.zeros(3, 128)
    padding[1, 100:] = float("-inf")
    tril = torch.ones(128, 128).tril()
    o = attend(q, k.transpose(-1, -2), v, key_padding_mask=padding[:, None, None], attn_mask=tril)
    kept = config.make_layout(256)[:, :8, :8].repeat_interleave(16, 1).repeat_interleave(16, 2).bool()
    scores = q.double() @ k.double().transpose(-1, -2) / 4 + padding[:, None, None].double()
    scores = scores.masked_fill(~(kept & tril.bool()), float("-inf"))
    want = scores.softmax(-1) @ v.double()
    assert o.dtype == dtype
    bound = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    assert (o.double() - want).abs().max() < bound


def test_the_layout_is_cropped_from_the_longest() -> None:
    attend = ds.SparseSelfAttention(ds.FixedSparsityConfig(2), max_seq_length=2048)
    assert int(attend.get_layout(160).nnz) == 48  # a layout made for 160 tokens has 56
    with pytest.raises(ValueError, match="expected at most max_seq_length 2048"):
        attend.get_layout(4096)
    assert "master_layout" in attend.state_dict()
