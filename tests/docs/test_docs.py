#!/usr/bin/env python3
"""Runs what the documents show: ```sh and ```python blocks, indented lines `bstk ...`, ```c blocks that have a main.

Each block runs in a fresh folder that looks like the project's root (examples/, bench/ and
build/ are there), shell blocks with
`sh -eu`, C blocks compiled against the build. Relative links of the documents must lead to files that exist.
Usage: test_docs.py SOURCE_DIR BUILD_DIR
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

SOURCE, BUILD = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
COMMAND = re.compile(r"^    (bstk [^\n]*(?:\\\n[^\n]*)*)$", re.M)
PLACEHOLDER = re.compile(r"\b(KIND|FILE|COMMAND|PROBLEM|DIR)\b|\.\.\.|…")  # a synopsis, not a command
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)[^)]*\)")


def execute(kind, text, folder):
    """One block; returns the finished process, or None for a block that is not run."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(BUILD)}
    if kind == "sh":
        return subprocess.run(["sh", "-eu", "-c", text], cwd=folder, env=environment, capture_output=True, text=True,
                              check=False)
    if kind == "python":
        environment |= {"PYTHONPATH": str(SOURCE / "python"), "BSTK_LIBRARY": str(BUILD / "libbstk.so")}
        return subprocess.run([sys.executable, "-c", text], cwd=folder, env=environment, capture_output=True, text=True,
                              check=False)
    if kind == "c" and "int main" in text:
        (folder / "block.c").write_text(text, encoding="utf-8")
        command = (f"cc -std=c11 -Wall -Wextra -Wpedantic -Werror -I{SOURCE}/include -I{BUILD}/include block.c "
                   f"-o block -L{BUILD} -lbstk && ./block")
        return subprocess.run(["sh", "-eu", "-c", command], cwd=folder, env=environment, capture_output=True, text=True,
                              check=False)
    return None


def inputs(folder):
    """The files that the documents' commands take: a mask of elements, weights, a layout with packed values."""
    (folder / "examples").symlink_to(SOURCE / "examples")
    (folder / "build").symlink_to(BUILD)
    (folder / "bench").symlink_to(SOURCE / "bench")
    np.save(folder / "mask.npy", np.arange(512 * 512).reshape(512, 512) % 11 == 0)
    np.save(folder / "l.npy", np.ones((2, 2), np.uint8))
    np.save(folder / "x.npy", np.linspace(-1, 1, 4 * 32 * 32, dtype=np.float32).reshape(4, 32, 32))
    for name in ("w.npy", "b.npy"):
        np.save(folder / name, np.ones(64, np.float32))
    (folder / "weights.smtx").write_text("32, 32, 2\n" + "0 1 " + "2 " * 31 + "\n3 20\n", encoding="utf-8")
    (folder / "weights.mtx").write_text("%%MatrixMarket matrix coordinate pattern general\n32 32 2\n1 4\n2 21\n",
                                        encoding="utf-8")


def main():
    ran, bad = {"sh": 0, "c": 0, "python": 0}, 0
    for document in [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", *sorted((SOURCE / "docs").glob("*.md")),
                     *sorted((SOURCE / "examples").glob("*/README.md")), SOURCE / "bench/results/README.md"]:
        text = document.read_text(encoding="utf-8")
        for target in LINK.findall(text):
            if not (document.parent / target).exists():
                print(f"{document.relative_to(SOURCE)}: link to {target}, which does not exist")
                bad += 1
        commands = "\n".join(c for c in COMMAND.findall(text) if not PLACEHOLDER.search(c))
        blocks = BLOCK.findall(text)
        if commands:
            blocks.append(("sh", f"PATH=$PWD/build:$PATH\n{commands}\n"))
        for kind, block in blocks:
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                inputs(folder)
                result = execute(kind, block, folder)
            if result is None:
                continue
            ran[kind] += 1
            if result.returncode != 0:
                print(f"{document.relative_to(SOURCE)}: a {kind} block failed ({result.returncode}):\n{block}\n"
                      f"{result.stdout[-1000:]}{result.stderr[-2000:]}")
                bad += 1
    # The row that CONTRIBUTING shows has the columns that the registry has.
    rows = [re.search(r"BSTK_KERNEL\(([^)]*)\)", (SOURCE / file).read_text(encoding="utf-8")).group(1).count(",")
            for file in ("CONTRIBUTING.md", "src/plan/registry.h")]
    if rows[0] != rows[1]:
        print(f"CONTRIBUTING.md: its BSTK_KERNEL row has {rows[0] + 1} columns, the registry has {rows[1] + 1}")
        bad += 1
    print(f"{ran['sh']} shell blocks, {ran['c']} C and {ran['python']} Python programs of the documents ran, {bad} failures")
    return 1 if bad or not all(ran.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
