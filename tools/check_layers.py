#!/usr/bin/env python3
"""Holds the include arrows of the library: layout -> plan -> dispatch -> kernel, core below all.

Each folder of src/ may include only what its row allows; a kernel file may not see layouts, contexts or plans.
Usage: tools/check_layers.py [SOURCE_DIR]; prints every include that breaks a rule, exits 1 when there is one.
"""
import pathlib
import re
import sys

# folder (longest prefix wins) -> folders and single files it may include besides itself and the public headers
ALLOWED = {
    "src/core": [],
    "src/layout": ["src/core"],
    "src/plan": ["src/core", "src/layout", "src/ops/*.def"],
    "src/ops": ["src/core", "src/layout", "src/plan"],
    "src/simd": [],
    "src/ops/matmul": ["src/core", "src/layout", "src/plan", "src/simd", "src/ops/operand.h"],
    "src/ops/norm": ["src/core", "src/layout", "src/plan", "src/simd", "src/ops/operand.h"],
    "src/ops/softmax": ["src/core", "src/layout", "src/plan", "src/simd", "src/ops/operand.h"],
    "src/ops/convert": ["src/core", "src/layout", "src/plan", "src/ops/operand.h"],
    "src/ops/attention": ["src/core", "src/layout", "src/plan", "src/simd", "src/ops/operand.h", "src/ops/matmul",
                          "src/ops/softmax"],
    "src/io": [],
    "src/check": ["src/io"],
    "tools/bstk": ["src/io", "src/check"],
}
# Files that hold kernels see pointers and sizes only.
KERNEL = re.compile(r"src/ops/\w+/\w+_(scalar|avx2|avx512|avx512_bf16|neon|vec\w*)\.(c|inc)$")
KERNEL_ALLOWED = re.compile(r"(core/(checked|half|tensor_view)\.h|simd/.*|ops/(\w+)/(\w+_kernel\.h|\w+_vec\.h|\w+\.inc|\w+\.def))$")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def rule_for(path):
    """The ALLOWED row of a source file, or None when its folder has no rule."""
    best = None
    for folder in ALLOWED:
        if path.startswith(folder + "/") and (best is None or len(folder) > len(best)):
            best = folder
    return best


def allowed(target, folder):
    """True when a file of `folder` may include `target` (a path from the project's root)."""
    if target.startswith(folder + "/"):
        return True
    for pattern in ALLOWED[folder]:
        if pattern.endswith("*.def"):
            if target.startswith("src/ops/") and target.endswith(".def"):
                return True
        elif target == pattern or target.startswith(pattern + "/"):
            return True
    return False


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    bad, files = [], 0
    for file in sorted([*root.glob("src/**/*"), *root.glob("tools/bstk/*")]):
        if file.suffix not in {".c", ".h", ".inc", ".def"}:
            continue
        path = file.relative_to(root).as_posix()
        folder = rule_for(path)
        if folder is None:
            bad.append(f"{path}: its folder has no row in tools/check_layers.py")
            continue
        files += 1
        for include in INCLUDE.findall(file.read_text(encoding="utf-8")):
            candidates = [root / "src" / include, file.parent / include, root / include]
            found = next((c.resolve().relative_to(root).as_posix() for c in candidates if c.exists()), None)
            if found is None:
                bad.append(f"{path}: includes {include}, which is not in the tree")
            elif not allowed(found, folder):
                bad.append(f"{path}: includes {found}, which {folder} must not see")
            elif KERNEL.search(path) and not KERNEL_ALLOWED.search(include):
                bad.append(f"{path}: a kernel includes {found}; it sees pointers and sizes only")
    print("\n".join(bad) if bad else f"include arrows hold in {files} files")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
