"""The ctypes structures against the C headers: sizes and offsets of every field, and the constants."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from bstk import _abi

ROOT = Path(__file__).resolve().parents[2]
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
VERSION_HEADER = next(
    (
        path
        for folder in (Path(_abi.library_path).parent, ROOT / "build")
        for path in folder.glob("include/bstk/version.h")
    ),
    None,
)

STRUCTS = {
    "bstk_tensor": _abi.Tensor,
    "bstk_score_terms": _abi.Terms,
    "bstk_matmul_desc": _abi.MatmulDesc,
    "bstk_matmul_grad_desc": _abi.MatmulGradDesc,
    "bstk_softmax_desc": _abi.SoftmaxDesc,
    "bstk_softmax_grad_desc": _abi.SoftmaxGradDesc,
    "bstk_attention_desc": _abi.AttentionDesc,
    "bstk_attention_grad_desc": _abi.AttentionGradDesc,
    "bstk_norm_desc": _abi.NormDesc,
    "bstk_norm_grad_desc": _abi.NormGradDesc,
    "bstk_convert_desc": _abi.ConvertDesc,
    "bstk_layout_indices": _abi.LayoutIndices,
    "bstk_layout_opts": _abi.LayoutOpts,
    "bstk_layout_stats": _abi.LayoutStats,
    "bstk_exec": _abi.Exec,
    "bstk_kernel_info": _abi.KernelInfo,
    "bstk_context_opts": _abi.ContextOpts,
}
CONSTANTS = {f"BSTK_{name}": getattr(_abi, name) for name in ("F64", "F32", "F16", "BF16", "BOOL", "U8", "I8", "U16")}
CONSTANTS |= {f"BSTK_{name}": getattr(_abi, name) for name in ("I16", "U32", "I32", "U64", "I64", "SDD", "DSD", "DDS")}
CONSTANTS |= {f"BSTK_{name}": getattr(_abi, name) for name in ("LAYERNORM", "RMSNORM", "PACK", "UNPACK", "CPU", "CUDA")}
CONSTANTS |= {f"BSTK_LAYOUT_{name.upper()}": value for name, value in _abi.LAYOUT_KINDS.items()}
CONSTANTS |= {f"BSTK_MASK_{name.upper()}": value for name, value in _abi.MASK_MODES.items()}


@pytest.mark.skipif(COMPILER is None or VERSION_HEADER is None, reason="needs a C compiler and a build of the library")
def test_structures_are_those_of_the_headers(tmp_path: Path) -> None:
    lines = []
    want = []
    for name, struct in STRUCTS.items():
        lines.append(f'printf("%zu\\n", sizeof({name}));')
        want.append((f"sizeof({name})", ctypes.sizeof(struct)))
        for field, *_ in struct._fields_:
            c_name = "global" if field == "global_" else field
            lines.append(f'printf("%zu\\n", offsetof({name}, {c_name}));')
            want.append((f"{name}.{field}", getattr(struct, field).offset))
    for name, value in CONSTANTS.items():
        lines.append(f'printf("%d\\n", (int){name});')
        want.append((name, value))
    source = tmp_path / "offsets.c"
    source.write_text(
        "#include <bstk/bstk.h>\n#include <stdio.h>\nint main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n"
    )
    program = tmp_path / "offsets"
    includes = ["-I", str(ROOT / "include"), "-I", str(VERSION_HEADER.parents[1])]
    subprocess.run([COMPILER, "-std=c11", *includes, str(source), "-o", str(program)], check=True)
    got = [int(line) for line in subprocess.check_output([program], text=True).split()]
    assert [(name, value) for (name, _), value in zip(want, got)] == want
    assert len(got) == len(want)
