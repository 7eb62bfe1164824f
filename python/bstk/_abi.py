"""The C ABI of libbstk as ctypes: structures, constants, prototypes, and statuses turned into exceptions.

The structures repeat ``include/bstk/*.h`` field by field; ``python/tests/test_abi.py`` holds sizes and offsets against
the headers, and a released header only ever appends fields.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["lib", "library_path", "check", "Tensor", "Terms", "Exec"]

MAX_NDIM = 4

F64, F32, F16, BF16, BOOL, U8, I8, U16, I16, U32, I32, U64, I64 = range(1, 14)
SDD, DSD, DDS = 1, 2, 3
LAYERNORM, RMSNORM = 1, 2
PACK, UNPACK = 1, 2
CPU, CUDA = 1, 2
MASK_MODES = {"auto": 0, "add": 1, "mul": 2}
LAYOUT_KINDS = {
    "dense": 1,
    "local": 2,
    "fixed": 3,
    "variable": 4,
    "bigbird": 5,
    "longformer": 6,
    "strided": 7,
    "random": 8,
}


class Device(Structure):
    _fields_ = [("kind", c_int32), ("index", c_int32)]


class Tensor(Structure):
    """``bstk_tensor``: a view of somebody else's memory; shapes and strides count elements."""

    _fields_ = [
        ("data", c_void_p),
        ("dtype", c_int32),
        ("device", Device),
        ("ndim", c_int32),
        ("shape", c_int64 * MAX_NDIM),
        ("stride", c_int64 * MAX_NDIM),
    ]


TensorP = POINTER(Tensor)


class Terms(Structure):
    """``bstk_score_terms``."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("scale", c_double),
        ("causal", c_int32),
        ("causal_offset", c_int64),
        ("rpe", TensorP),
        ("rel_logits", TensorP),
        ("key_padding_mask", TensorP),
        ("attn_mask", TensorP),
        ("key_padding_mode", c_int32),
        ("attn_mode", c_int32),
        ("softcap", c_double),
        ("bottom_right", c_int32),
        ("window_left", c_int64),
        ("window_right", c_int64),
        ("alibi_slopes", TensorP),
        ("sinks", TensorP),
        ("q_documents", TensorP),
        ("k_documents", TensorP),
        ("cu_seqlens_q", TensorP),
        ("cu_seqlens_k", TensorP),
        ("dropout", c_double),
        ("dropout_seed", c_uint64),
        ("dropout_offset", c_uint64),
    ]


class MatmulDesc(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("mode", c_int32),
        ("trans_a", c_int32),
        ("trans_b", c_int32),
        ("trans_c", c_int32),
        ("layout", c_void_p),
        ("a", TensorP),
        ("b", TensorP),
        ("c", TensorP),
        ("kernel", c_char_p),
    ]


class MatmulGradDesc(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("forward", MatmulDesc),
        ("d_c", TensorP),
        ("d_a", TensorP),
        ("d_b", TensorP),
    ]


class SoftmaxDesc(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("layout", c_void_p),
        ("x", TensorP),
        ("y", TensorP),
        ("lse", TensorP),
        ("terms", Terms),
        ("kernel", c_char_p),
        ("saved", TensorP),
    ]


class SoftmaxGradDesc(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("layout", c_void_p),
        ("y", TensorP),
        ("d_y", TensorP),
        ("d_lse", TensorP),
        ("x", TensorP),
        ("lse", TensorP),
        ("terms", Terms),
        ("d_x", TensorP),
        ("d_rpe", TensorP),
        ("d_rel_logits", TensorP),
        ("d_key_padding_mask", TensorP),
        ("d_attn_mask", TensorP),
        ("d_sinks", TensorP),
        ("kernel", c_char_p),
    ]


class AttentionDesc(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("layout", c_void_p),
        ("q", TensorP),
        ("k", TensorP),
        ("v", TensorP),
        ("o", TensorP),
        ("lse", TensorP),
        ("terms", Terms),
        ("kernel", c_char_p),
    ]


class AttentionGradDesc(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("layout", c_void_p),
        ("q", TensorP),
        ("k", TensorP),
        ("v", TensorP),
        ("o", TensorP),
        ("lse", TensorP),
        ("d_o", TensorP),
        ("d_lse", TensorP),
        ("terms", Terms),
        ("d_q", TensorP),
        ("d_k", TensorP),
        ("d_v", TensorP),
        ("d_rpe", TensorP),
        ("d_rel_logits", TensorP),
        ("d_key_padding_mask", TensorP),
        ("d_attn_mask", TensorP),
        ("d_sinks", TensorP),
        ("kernel", c_char_p),
    ]


class NormDesc(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int32),
        ("layout", c_void_p),
        ("x", TensorP),
        ("weight", TensorP),
        ("bias", TensorP),
        ("y", TensorP),
        ("mean", TensorP),
        ("rstd", TensorP),
        ("eps", c_double),
        ("kernel", c_char_p),
    ]


class NormGradDesc(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int32),
        ("layout", c_void_p),
        ("x", TensorP),
        ("weight", TensorP),
        ("mean", TensorP),
        ("rstd", TensorP),
        ("d_y", TensorP),
        ("d_x", TensorP),
        ("d_weight", TensorP),
        ("d_bias", TensorP),
        ("kernel", c_char_p),
    ]


class ConvertDesc(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("direction", c_int32),
        ("layout", c_void_p),
        ("x", TensorP),
        ("y", TensorP),
        ("kernel", c_char_p),
    ]


class LayoutIndices(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("heads", c_int64),
        ("rows", c_int64),
        ("cols", c_int64),
        ("edge", c_int32),
        ("count", c_int64),
        ("head", POINTER(c_int64)),
        ("row", POINTER(c_int64)),
        ("col", POINTER(c_int64)),
        ("row_ptr", POINTER(c_int64)),
    ]


class LayoutOpts(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int32),
        ("heads", c_int64),
        ("rows", c_int64),
        ("cols", c_int64),
        ("block", c_int32),
        ("shape", c_int64 * 2),
        ("causal", c_int32),
        ("window", c_int64),
        ("global_", c_int64),
        ("global_last", c_int64),
        ("random", c_int64),
        ("stride", c_int64),
        ("density", c_double),
        ("seed", c_uint64),
        ("horizontal", c_int32),
        ("patterns", c_int64),
        ("windows", POINTER(c_int64)),
        ("n_windows", c_int64),
        ("globals", POINTER(c_int64)),
        ("n_globals", c_int64),
    ]


class LayoutStats(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("nnz", c_int64),
        ("partial", c_int64),
        ("density", c_double),
        ("row_min", c_int64),
        ("row_max", c_int64),
        ("col_min", c_int64),
        ("col_max", c_int64),
        ("row_median", c_double),
        ("row_mean", c_double),
        ("empty_rows", c_int64),
        ("empty_cols", c_int64),
        ("head_min", c_int64),
        ("head_max", c_int64),
        ("row_imbalance", c_double),
        ("task_imbalance", c_double),
    ]


class Exec(Structure):
    """``bstk_exec``: scratch and stream of one run."""

    _fields_ = [("struct_size", c_size_t), ("scratch", c_void_p), ("scratch_bytes", c_size_t), ("stream", c_void_p)]


class KernelInfo(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("op", c_char_p),
        ("isa", c_char_p),
        ("dtype", c_int32),
        ("packed_dtype", c_int32),
        ("block", c_int32),
        ("available", c_int32),
        ("why_not", c_char_p),
    ]


class ContextOpts(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("alloc", c_void_p),
        ("free", c_void_p),
        ("alloc_user", c_void_p),
        ("log", c_void_p),
        ("log_user", c_void_p),
        ("parallel_for", c_void_p),
        ("parallel_user", c_void_p),
        ("num_threads", c_int32),
        ("max_isa", c_char_p),
        ("log_enabled", c_char_p),
        ("progress", c_void_p),
        ("progress_user", c_void_p),
    ]


def desc(struct: type, **fields: Any) -> Any:
    """A zeroed descriptor with its size and the given fields set."""
    made = struct()
    made.struct_size = ctypes.sizeof(struct)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


# ---- the library ----------------------------------------------------------------------------------------------------


def _load() -> tuple[ctypes.CDLL, str]:
    """libbstk.so: the one that BSTK_LIBRARY names, or beside this file (a wheel), in the build folder of a source tree,
    on the system."""
    here = Path(__file__).resolve().parent
    named = os.environ.get("BSTK_LIBRARY")
    tried = (
        [named] if named else [str(here / "libbstk.so"), str(here.parents[1] / "build" / "libbstk.so"), "libbstk.so.0"]
    )
    errors = []
    for path in tried:
        try:
            return ctypes.CDLL(path), path
        except OSError as error:
            errors.append(str(error))
    raise ImportError("bstk: libbstk.so was not loaded: " + "; ".join(errors))


lib, library_path = _load()

_PLAN_OUT = POINTER(c_void_p)
# name: (result, arguments); a status is c_int32.
_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "bstk_last_error": (c_char_p, []),
    "bstk_status_name": (c_char_p, [c_int32]),
    "bstk_version": (c_char_p, []),
    "bstk_build_info": (c_size_t, [c_char_p, c_size_t]),
    "bstk_context_create": (c_int32, [POINTER(ContextOpts), POINTER(c_void_p)]),
    "bstk_context_release": (None, [c_void_p]),
    "bstk_context_num_threads": (c_int32, [c_void_p]),
    "bstk_layout_from_mask": (c_int32, [c_void_p, TensorP, c_int32, POINTER(c_int64), POINTER(c_void_p)]),
    "bstk_layout_from_dense_mask": (c_int32, [c_void_p, TensorP, c_int32, POINTER(c_void_p)]),
    "bstk_layout_from_indices": (
        c_int32,
        [c_void_p, POINTER(LayoutIndices), c_int32, POINTER(c_int64), POINTER(c_void_p)],
    ),
    "bstk_layout_build": (c_int32, [c_void_p, POINTER(LayoutOpts), POINTER(c_void_p)]),
    "bstk_layout_release": (None, [c_void_p]),
    "bstk_layout_to_mask": (c_int32, [c_void_p, TensorP]),
    "bstk_layout_get_stats": (c_int32, [c_void_p, POINTER(LayoutStats)]),
    "bstk_layout_save": (c_int32, [c_void_p, c_char_p]),
    "bstk_layout_load": (c_int32, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "bstk_layout_parse": (c_int32, [c_void_p, c_char_p, c_size_t, POINTER(c_void_p)]),
    "bstk_layout_partial_mask": (c_void_p, [c_void_p, c_int64]),
    "bstk_layout_density": (c_double, [c_void_p]),
    "bstk_layout_block": (c_int32, [c_void_p]),
    "bstk_plan_release": (None, [c_void_p]),
    "bstk_plan_scratch_bytes": (c_size_t, [c_void_p]),
    "bstk_plan_kernel": (c_char_p, [c_void_p]),
    "bstk_kernel_count": (c_int32, []),
    "bstk_kernel_get": (c_int32, [c_int32, POINTER(KernelInfo)]),
    "bstk_matmul_plan": (c_int32, [c_void_p, POINTER(MatmulDesc), _PLAN_OUT]),
    "bstk_matmul_run": (c_int32, [c_void_p, c_double, TensorP, TensorP, c_double, TensorP, POINTER(Exec)]),
    "bstk_matmul_grad_plan": (c_int32, [c_void_p, POINTER(MatmulGradDesc), _PLAN_OUT]),
    "bstk_matmul_grad_run": (c_int32, [c_void_p, POINTER(MatmulGradDesc), c_double, POINTER(Exec)]),
    "bstk_softmax_plan": (c_int32, [c_void_p, POINTER(SoftmaxDesc), _PLAN_OUT]),
    "bstk_softmax_run": (c_int32, [c_void_p, TensorP, POINTER(Terms), TensorP, TensorP, TensorP, POINTER(Exec)]),
    "bstk_softmax_grad_plan": (c_int32, [c_void_p, POINTER(SoftmaxGradDesc), _PLAN_OUT]),
    "bstk_softmax_grad_run": (c_int32, [c_void_p, POINTER(SoftmaxGradDesc), POINTER(Exec)]),
    "bstk_attention_plan": (c_int32, [c_void_p, POINTER(AttentionDesc), _PLAN_OUT]),
    "bstk_attention_run": (
        c_int32,
        [c_void_p, TensorP, TensorP, TensorP, POINTER(Terms), TensorP, TensorP, POINTER(Exec)],
    ),
    "bstk_attention_grad_plan": (c_int32, [c_void_p, POINTER(AttentionGradDesc), _PLAN_OUT]),
    "bstk_attention_grad_run": (c_int32, [c_void_p, POINTER(AttentionGradDesc), POINTER(Exec)]),
    "bstk_norm_plan": (c_int32, [c_void_p, POINTER(NormDesc), _PLAN_OUT]),
    "bstk_norm_run": (c_int32, [c_void_p, POINTER(NormDesc), POINTER(Exec)]),
    "bstk_norm_grad_plan": (c_int32, [c_void_p, POINTER(NormGradDesc), _PLAN_OUT]),
    "bstk_norm_grad_run": (c_int32, [c_void_p, POINTER(NormGradDesc), POINTER(Exec)]),
    "bstk_convert_plan": (c_int32, [c_void_p, POINTER(ConvertDesc), _PLAN_OUT]),
    "bstk_convert_run": (c_int32, [c_void_p, TensorP, TensorP, POINTER(Exec)]),
}
for _name in ("heads", "rows", "cols", "m", "n", "nnz", "partial_count"):
    _PROTOTYPES[f"bstk_layout_{_name}"] = (c_int64, [c_void_p])
for _name in ("row_ptr", "row_idx", "col_idx", "col_ptr", "col_row_idx", "col_perm"):
    _PROTOTYPES[f"bstk_layout_{_name}"] = (c_void_p, [c_void_p])
for _name, (_result, _arguments) in _PROTOTYPES.items():
    _function = getattr(lib, _name)
    _function.restype = _result
    _function.argtypes = _arguments

# ---- errors ---------------------------------------------------------------------------------------------------------

_EXCEPTIONS: dict[int, type[Exception]] = {
    1: ValueError,  # invalid
    2: TypeError,
    3: NotImplementedError,  # unsupported: a RuntimeError
    4: ValueError,  # not the tensor that the plan was made for
    5: MemoryError,
    6: ValueError,  # a size that does not fit 64 bits
    7: OSError,
    8: ValueError,  # a malformed file
}


def _raise(status: int) -> NoReturn:
    text = (lib.bstk_last_error() or b"").decode("utf-8", "replace")
    raise _EXCEPTIONS.get(status, RuntimeError)(text)


def check(status: int) -> None:
    """Raise the exception of a failed call, with the library's message."""
    if status:
        _raise(status)
