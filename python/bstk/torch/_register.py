"""How an operation becomes one of torch's: a custom operator (torch 2.4 and later), else an autograd.Function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_library: Any = torch.library  # what these have differs by version
_compiler: Any = getattr(torch, "compiler", None)
HAS_CUSTOM_OPS = hasattr(_library, "custom_op") and hasattr(_library, "register_autograd")


def operation(
    name: str,
    schema: str,
    compute: Callable[..., Any],
    fake: Callable[..., Any],
    setup: Optional[Callable[..., None]] = None,
    backward: Optional[Callable[..., Any]] = None,
    light: Optional[Callable[..., Any]] = None,
) -> Callable[..., Any]:
    """Register ``bstk::name``.

    Parameters
    ----------
    schema : str
        Arguments and result in torch's words; tensors come first.
    compute : callable
        Takes the arguments by position; returns new tensors.
    fake : callable
        The same with empty results: shapes and types only.
    setup, backward : callable, optional
        As of ``torch.library.register_autograd``; None: no gradient (the gradients themselves have none).
    light : callable, optional
        In place of ``compute`` in eager calls where nothing asks for a gradient.
    """
    eager = compute if backward is None else _function(name, schema, compute, setup, backward, light or compute)
    if not HAS_CUSTOM_OPS:
        return eager
    custom: Any = _library.custom_op(f"bstk::{name}", compute, mutates_args=(), schema=schema)
    custom.register_fake(fake)
    if backward is not None:
        custom.register_autograd(backward, setup_context=setup)

    def call(*args: Any) -> Any:
        # An operator's way through the dispatcher costs more than a small call; whoever watches it still sees it.
        if is_watched() or any(isinstance(arg, Tensor) and type(arg) not in _PLAIN for arg in args):
            return custom(*args)
        return eager(*args)

    call.custom = custom  # type: ignore[attr-defined]
    return call


_PLAIN = (Tensor, torch.nn.Parameter)


def is_watched() -> bool:
    """True under torch.compile, torch.func's transforms and dispatch modes."""
    core: Any = torch._C
    return bool(
        _compiler.is_compiling() or core._are_functorch_transforms_active() or core._len_torch_dispatch_stack() > 0
    )


def _function(
    name: str,
    schema: str,
    compute: Callable[..., Any],
    setup: Optional[Callable[..., None]],
    backward: Callable[..., Any],
    light: Callable[..., Any],
) -> Callable[..., Any]:
    """An autograd.Function that is gone round where nothing asks for a gradient."""

    def forward(ctx: Any, *args: Any) -> Any:
        output = compute(*args)
        if setup is not None:
            setup(ctx, args, output)
        return output

    core: Any = torch._C
    forward_ad: Any = torch.autograd.forward_ad
    once: Any = once_differentiable
    tensors = schema.split(")")[0].count("Tensor")  # the leading arguments
    members = {"forward": staticmethod(forward), "backward": staticmethod(once(backward))}
    function: Any = type(name, (torch.autograd.Function,), members)
    apply: Callable[..., Any] = function.apply

    def call(*args: Any) -> Any:
        if forward_ad._current_level >= 0 and any(
            forward_ad.unpack_dual(arg).tangent is not None for arg in args[:tensors] if arg is not None
        ):
            raise NotImplementedError(f"bstk::{name} has no forward-mode derivative")
        if torch.is_grad_enabled():
            for arg in args[:tensors]:
                if arg is not None and arg.requires_grad:
                    return apply(*args)
        # torch.jit.trace would record empty results only; it does see a Function.
        return apply(*args) if core._get_tracing_state() else light(*args)

    return call
