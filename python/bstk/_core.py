"""What the front ends share: descriptions of tensors, terms of scores, plans and their cache, threads.

A call is: describe every tensor (`View`), look the plan up in the layout's cache by those descriptions, run it on the
addresses. A plan is made once for a set of descriptions; making one costs tens of microseconds, running it a few.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Optional

from . import _abi
from ._abi import Exec, Tensor, Terms, check, lib

PLANS_PER_LAYOUT = 64  # the least recently used one goes first
RUNS_KEPT = 4  # scratch blocks and structures that a plan keeps for its next runs; more runs at once make their own


class View:
    """One tensor of a call: its address, and a hashable description (type, strides' unit, shape, strides, device)."""

    __slots__ = ("ptr", "key", "keep")

    def __init__(self, ptr: int, key: tuple[Any, ...], keep: Any = None) -> None:
        self.ptr = ptr
        self.key = key  # (code, unit, shape, strides, device index or -1 for the CPU)
        self.keep = keep  # an owner of the memory that must outlive the call

    @property
    def stream(self) -> Optional[int]:
        """The CUDA stream that a run belongs to; None on the CPU."""
        return None

    def scratch(self, size: int) -> tuple[Any, int]:
        """Memory for a run beside this tensor: its owner and its address."""
        made = (ctypes.c_char * size)()
        return made, ctypes.addressof(made)


def tensor_of(key: tuple[Any, ...]) -> Tensor:
    """The C structure of a description, without data."""
    code, unit, shape, strides, device = key
    made = Tensor()
    made.dtype = code
    made.device.kind = _abi.CPU if device < 0 else _abi.CUDA
    made.device.index = max(device, 0)
    made.ndim = len(shape)
    for axis, size in enumerate(shape):
        made.shape[axis] = size
        made.stride[axis] = strides[axis] // unit
    return made


def whole(who: str, name: str, value: Any, bits: int = 64, signed: bool = True) -> int:
    """A whole number that fits: ctypes would cut it silently."""
    try:
        made = operator.index(value)
    except TypeError:
        raise TypeError(f"{who}: {name} is {value!r}, expected a whole number") from None
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    if not low <= made <= high:
        raise ValueError(f"{who}: {name} is {made}, expected {low} to {high}")
    return made


def pair(who: str, name: str, value: Any) -> tuple[int, int]:
    """Two whole numbers."""
    try:
        first, second = value
    except (TypeError, ValueError):
        raise ValueError(f"{who}: {name} is {value!r}, expected a pair of whole numbers") from None
    return whole(who, name, first), whole(who, name, second)


def check_ndim(who: str, name: str, ndim: int, low: int, high: int = 4) -> None:
    if not low <= ndim <= high:
        raise ValueError(f"{who}: {name} has {ndim} axes, expected {low} to {high}")


# ---- threads ---------------------------------------------------------------------------------------------------------


class _Context:
    """The context that plans are made under; NULL is the process-wide default of the library."""

    def __init__(self) -> None:
        self.handle: Optional[int] = None
        self.generation = 0
        self._lock = threading.Lock()

    def set_threads(self, count: int) -> None:
        made = ctypes.c_void_p()
        count = whole("set_num_threads", "count", count, 32)
        check(lib.bstk_context_create(ctypes.byref(_abi.desc(_abi.ContextOpts, num_threads=count)), ctypes.byref(made)))
        with self._lock:
            old, self.handle = self.handle, made.value
            self.generation += 1
        if old:
            lib.bstk_context_release(old)  # plans keep their own reference


context = _Context()


def set_num_threads(count: int) -> None:
    """Set how many threads the calls of this process use from now on.

    Parameters
    ----------
    count : int
        1 to 4096; 0 for the default: ``BSTK_NUM_THREADS``, or as many as the process may use CPUs.

    Notes
    -----
    Results have the same bits for any number of threads.
    """
    context.set_threads(count)


def get_num_threads() -> int:
    """Threads that calls use."""
    return int(lib.bstk_context_num_threads(context.handle))


# ---- plans -----------------------------------------------------------------------------------------------------------


class Plan:
    """A plan of the library, with templates of its tensors and scratch that is used again."""

    __slots__ = ("handle", "templates", "scratch_bytes", "_pool", "__weakref__")

    def __init__(self, make: Callable[..., int], desc: Any, templates: tuple[Optional[Tensor], ...]) -> None:
        out = ctypes.c_void_p()
        check(make(context.handle, ctypes.byref(desc), ctypes.byref(out)))
        self.handle = out.value
        self.templates = templates
        self.scratch_bytes = int(lib.bstk_plan_scratch_bytes(self.handle))
        self._pool: list[Run] = []

    def __del__(self) -> None:
        handle, self.handle = getattr(self, "handle", None), None
        if handle and lib is not None:  # None while the interpreter ends
            lib.bstk_plan_release(handle)

    @property
    def kernel(self) -> str:
        return str(lib.bstk_plan_kernel(self.handle).decode())

    def take(self, *views: Optional[View]) -> Run:
        """What one run needs, on the memory of these views (in the order of the templates); give it back after it."""
        first = views[0]
        try:
            # A GPU's scratch comes from the front end's allocator each time: that one knows which stream is through.
            run = Run(self, first) if first is not None and first.stream is not None else self._pool.pop()
        except IndexError:
            run = Run(self, first)
        for tensor, view in zip(run.tensors, views):
            if tensor is not None:
                tensor.data = view.ptr  # type: ignore[union-attr]
        return run

    def give(self, run: Run) -> None:
        if run.exec.stream is None and len(self._pool) < RUNS_KEPT:
            self._pool.append(run)


class Run:
    """Scratch and tensor structures of one run in flight, used again by the next one."""

    __slots__ = ("exec", "scratch", "tensors")

    def __init__(self, plan: Plan, view: Optional[View]) -> None:
        size = plan.scratch_bytes
        self.scratch, address = view.scratch(size) if size and view is not None else (None, None)
        self.exec = Exec(ctypes.sizeof(Exec), address, size, None if view is None else view.stream)
        self.tensors = [None if t is None else Tensor.from_buffer_copy(t) for t in plan.templates]


class PlanCache:
    """Plans by description, at most PLANS_PER_LAYOUT; safe for any number of threads."""

    __slots__ = ("_plans", "_lock")

    def __init__(self) -> None:
        self._plans: OrderedDict[Hashable, Plan] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._plans)

    def clear(self) -> None:
        with self._lock:
            self._plans.clear()

    def get(self, key: Hashable) -> Optional[Plan]:
        with self._lock:
            plan = self._plans.get(key)
            if plan is not None:
                self._plans.move_to_end(key)
            return plan

    def put(self, key: Hashable, plan: Plan) -> Plan:
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > PLANS_PER_LAYOUT:
                self._plans.popitem(last=False)
        return plan


# ---- terms of a score ------------------------------------------------------------------------------------------------

TERM_TENSORS = (
    "rpe",
    "rel_logits",
    "key_padding_mask",
    "attn_mask",
    "alibi_slopes",
    "sinks",
    "q_documents",
    "k_documents",
    "cu_seqlens_q",
    "cu_seqlens_k",
)


def _mode(who: str, name: str, mode: str) -> int:
    try:
        return _abi.MASK_MODES[mode]
    except (KeyError, TypeError):
        raise ValueError(f"{who}: {name} is {mode!r}, expected 'auto', 'add' or 'mul'") from None


class ScoreTerms:
    """Scalars and tensors of ``bstk_score_terms``, described."""

    __slots__ = (
        "who",
        "scale",
        "causal",
        "causal_offset",
        "bottom_right",
        "window",
        "softcap",
        "dropout",
        "seed",
        "modes",
        "tensors",
        "key",
        "_struct",
    )

    def __init__(
        self,
        who: str,
        tensors: Mapping[str, Optional[View]],
        *,
        scale: Optional[float] = None,
        causal: bool = False,
        causal_offset: int = 0,
        bottom_right: bool = False,
        window: tuple[int, int] = (-1, -1),
        softcap: float = 0.0,
        dropout: float = 0.0,
        seed: tuple[int, int] = (0, 0),
        key_padding_mode: str = "auto",
        attn_mode: str = "auto",
    ) -> None:
        self.who = who
        self.scale = float("nan") if scale is None else float(scale)  # NaN stands for the default
        if scale is not None and self.scale != self.scale:
            raise ValueError(f"{who}: scale is nan, expected a number")
        self.causal = int(bool(causal))
        self.causal_offset = whole(who, "causal_offset", causal_offset)
        self.bottom_right = int(bool(bottom_right))
        self.window = pair(who, "window", window)
        self.softcap = float(softcap or 0.0)
        self.dropout = float(dropout)
        self.seed = tuple(whole(who, name, value, 64, False) for name, value in zip(("seed", "offset"), seed))
        self.modes = (
            _mode(who, "key_padding_mask_mode", key_padding_mode),
            _mode(who, "attn_mask_mode", attn_mode),
        )
        self.tensors = {name: view for name, view in tensors.items() if view is not None}
        self._struct: Optional[Terms] = None  # where no tensor is in it
        self.key = (
            self.causal,
            self.causal_offset,
            self.bottom_right,
            self.window,
            self.softcap > 0,
            self.dropout > 0,
            self.modes,
            tuple((name, view.key) for name, view in self.tensors.items()),
        )

    def struct(self) -> Terms:
        """The C structure; its pointers keep what they point to."""
        if self._struct is not None:
            return self._struct
        made = Terms()
        made.struct_size = ctypes.sizeof(Terms)
        made.scale = self.scale
        made.causal = self.causal
        made.causal_offset = self.causal_offset
        made.bottom_right = self.bottom_right
        made.window_left, made.window_right = self.window
        made.softcap = self.softcap
        made.dropout = self.dropout
        made.dropout_seed, made.dropout_offset = self.seed
        made.key_padding_mode, made.attn_mode = self.modes
        for name, view in self.tensors.items():
            tensor = tensor_of(view.key)
            tensor.data = view.ptr
            setattr(made, name, ctypes.pointer(tensor))
        if not self.tensors:
            self._struct = made
        return made


@functools.lru_cache(maxsize=256)
def _plain_terms(who: str, **scalars: Any) -> ScoreTerms:
    return ScoreTerms(who, {}, **scalars)


def make_terms(who: str, tensors: Mapping[str, Optional[View]], **scalars: Any) -> ScoreTerms:
    """`ScoreTerms`; those of numbers alone are made once: that is half of what a small call costs."""
    if tensors or scalars["dropout"]:
        return ScoreTerms(who, tensors, **scalars)
    try:
        return _plain_terms(who, **scalars)
    except TypeError:  # an argument that cannot be hashed: to where it is named
        return ScoreTerms(who, tensors, **scalars)


# ---- runs ------------------------------------------------------------------------------------------------------------
#
# `cache` is the layout's PlanCache, `layout` its handle. Every view that is None is left out.


def _plan(
    cache: PlanCache,
    key: tuple[Any, ...],
    make: Callable[..., int],
    struct: type,
    views: dict[str, Optional[View]],
    fields: dict[str, Any],
    terms: Optional[ScoreTerms] = None,
) -> Plan:
    described = tuple(view.key if view is not None else None for view in views.values())
    full = (key, context.generation, described, None if terms is None else terms.key)
    plan = cache.get(full)
    if plan is not None:
        return plan
    templates = {name: tensor_of(view.key) if view is not None else None for name, view in views.items()}
    desc = _abi.desc(struct, **fields)
    for name, template in templates.items():
        if template is not None:
            setattr(desc, name, ctypes.pointer(template))
    if terms is not None:
        desc.terms = terms.struct()
    return cache.put(full, Plan(make, desc, tuple(templates.values())))


def run_matmul(
    cache: PlanCache,
    layout: int,
    mode: int,
    trans: tuple[int, int, int],
    alpha: float,
    beta: float,
    a: View,
    b: View,
    c: View,
) -> None:
    plan = _plan(
        cache,
        ("matmul", mode, trans),
        lib.bstk_matmul_plan,
        _abi.MatmulDesc,
        {"a": a, "b": b, "c": c},
        {"mode": mode, "trans_a": trans[0], "trans_b": trans[1], "trans_c": trans[2], "layout": layout},
    )
    run = plan.take(a, b, c)
    try:
        t = run.tensors
        check(lib.bstk_matmul_run(plan.handle, alpha, t[0], t[1], beta, t[2], run.exec))
    finally:
        plan.give(run)


def run_matmul_grad(
    cache: PlanCache,
    layout: int,
    mode: int,
    trans: tuple[int, int, int],
    alpha: float,
    a: View,
    b: View,
    d_c: View,
    d_a: Optional[View],
    d_b: Optional[View],
) -> None:
    def build(templates: tuple[Optional[Tensor], ...]) -> Any:
        forward = _abi.desc(
            _abi.MatmulDesc, mode=mode, trans_a=trans[0], trans_b=trans[1], trans_c=trans[2], layout=layout
        )
        made = _abi.desc(_abi.MatmulGradDesc)
        for name, template in zip(("a", "b"), templates):
            setattr(forward, name, ctypes.pointer(template))
        for name, template in zip(("d_c", "d_a", "d_b"), templates[2:]):
            if template is not None:
                setattr(made, name, ctypes.pointer(template))
        made.forward = forward
        return made

    views = (a, b, d_c, d_a, d_b)
    key = (
        "matmul_grad",
        mode,
        trans,
        context.generation,
        tuple(view.key if view is not None else None for view in views),
    )
    plan = cache.get(key)
    if plan is None:
        templates = tuple(tensor_of(view.key) if view is not None else None for view in views)
        plan = cache.put(key, Plan(lib.bstk_matmul_grad_plan, build(templates), templates))
    run = plan.take(*views)
    try:
        check(lib.bstk_matmul_grad_run(plan.handle, ctypes.byref(build(tuple(run.tensors))), alpha, run.exec))
    finally:
        plan.give(run)


def run_convert(cache: PlanCache, layout: int, direction: int, x: View, y: View) -> None:
    plan = _plan(
        cache,
        ("convert", direction),
        lib.bstk_convert_plan,
        _abi.ConvertDesc,
        {"x": x, "y": y},
        {"direction": direction, "layout": layout},
    )
    run = plan.take(x, y)
    try:
        check(lib.bstk_convert_run(plan.handle, run.tensors[0], run.tensors[1], run.exec))
    finally:
        plan.give(run)


def run_softmax(
    cache: PlanCache,
    layout: int,
    terms: ScoreTerms,
    x: View,
    y: View,
    lse: Optional[View] = None,
    saved: Optional[View] = None,
) -> None:
    views = {"x": x, "y": y, "lse": lse, "saved": saved}
    plan = _plan(cache, ("softmax",), lib.bstk_softmax_plan, _abi.SoftmaxDesc, views, {"layout": layout}, terms)
    struct = terms.struct()
    run = plan.take(x, y, lse, saved)
    try:
        t = run.tensors
        check(lib.bstk_softmax_run(plan.handle, t[0], struct, t[1], t[2], t[3], run.exec))
    finally:
        plan.give(run)


def run_attention(
    cache: PlanCache, layout: int, terms: ScoreTerms, q: View, k: View, v: View, o: View, lse: Optional[View] = None
) -> None:
    views = {"q": q, "k": k, "v": v, "o": o, "lse": lse}
    plan = _plan(cache, ("attention",), lib.bstk_attention_plan, _abi.AttentionDesc, views, {"layout": layout}, terms)
    struct = terms.struct()
    run = plan.take(q, k, v, o, lse)
    try:
        t = run.tensors
        check(lib.bstk_attention_run(plan.handle, t[0], t[1], t[2], struct, t[3], t[4], run.exec))
    finally:
        plan.give(run)


def run_by_desc(
    cache: PlanCache,
    key: tuple[Any, ...],
    make: Callable[..., int],
    run: Callable[..., int],
    struct: type,
    views: dict[str, Optional[View]],
    fields: dict[str, Any],
    terms: Optional[ScoreTerms] = None,
) -> None:
    """An op whose run takes the descriptor itself: norms, and all gradients but those of the products."""
    plan = _plan(cache, key, make, struct, views, fields, terms)
    desc = _abi.desc(struct, **fields)
    taken = plan.take(*views.values())
    try:
        for name, tensor in zip(views, taken.tensors):
            if tensor is not None:
                setattr(desc, name, ctypes.pointer(tensor))
        if terms is not None:
            held = terms.struct()  # what the descriptor's copy points to lives by this one
            desc.terms = held
        check(run(plan.handle, ctypes.byref(desc), taken.exec))
    finally:
        plan.give(taken)


def run_softmax_grad(cache: PlanCache, layout: int, terms: ScoreTerms, views: dict[str, Optional[View]]) -> None:
    run_by_desc(
        cache,
        ("softmax_grad",),
        lib.bstk_softmax_grad_plan,
        lib.bstk_softmax_grad_run,
        _abi.SoftmaxGradDesc,
        views,
        {"layout": layout},
        terms,
    )


def run_attention_grad(cache: PlanCache, layout: int, terms: ScoreTerms, views: dict[str, Optional[View]]) -> None:
    run_by_desc(
        cache,
        ("attention_grad",),
        lib.bstk_attention_grad_plan,
        lib.bstk_attention_grad_run,
        _abi.AttentionGradDesc,
        views,
        {"layout": layout},
        terms,
    )


def run_norm(cache: PlanCache, layout: int, kind: int, eps: float, views: dict[str, Optional[View]]) -> None:
    run_by_desc(
        cache,
        ("norm", kind, eps),
        lib.bstk_norm_plan,
        lib.bstk_norm_run,
        _abi.NormDesc,
        views,
        {"layout": layout, "kind": kind, "eps": eps},
    )


def run_norm_grad(cache: PlanCache, layout: int, kind: int, views: dict[str, Optional[View]]) -> None:
    run_by_desc(
        cache,
        ("norm_grad", kind),
        lib.bstk_norm_grad_plan,
        lib.bstk_norm_grad_run,
        _abi.NormGradDesc,
        views,
        {"layout": layout, "kind": kind},
    )


# ---- shapes of results -----------------------------------------------------------------------------------------------


def axis(shape: tuple[int, ...], back: int) -> int:
    """Size of the axis that many from the end; 1 where it is left out."""
    return shape[-back] if len(shape) >= back else 1


class Geometry:
    """The sizes of a layout that shapes are made of."""

    __slots__ = ("heads", "rows", "cols", "block", "nnz", "m", "n")

    def __init__(self, handle: int) -> None:
        self.heads = int(lib.bstk_layout_heads(handle))
        self.rows = int(lib.bstk_layout_rows(handle))
        self.cols = int(lib.bstk_layout_cols(handle))
        self.block = int(lib.bstk_layout_block(handle))
        self.nnz = int(lib.bstk_layout_nnz(handle))
        self.m = int(lib.bstk_layout_m(handle))
        self.n = int(lib.bstk_layout_n(handle))

    def packed_heads(self, shape: tuple[int, ...]) -> int:
        """Heads whose blocks packed values hold."""
        if self.heads > 1:
            return self.heads
        return axis(shape, 3) // self.nnz if self.nnz else 1

    def matmul(self, mode: int, trans: tuple[int, int, int], a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of C; axes that no input has are left out."""
        trans_a, trans_b, trans_c = trans
        z = max(axis(a, 4), axis(b, 4))
        if mode == _abi.SDD:
            copies = max(axis(a, 3), axis(b, 3)) if self.heads == 1 else 1
            full: tuple[int, ...] = (z, copies * self.nnz, self.block, self.block)
            return full if len(a) == 4 or len(b) == 4 else full[1:]
        packed, dense = (a, b) if mode == _abi.DSD else (b, a)
        heads = self.packed_heads(packed)
        if self.heads == 1:
            heads = max(heads, axis(dense, 3))
        if mode == _abi.DSD:
            m, n = (self.n if trans_a else self.m), axis(b, 2 if trans_b else 1)
        else:
            m, n = axis(a, 1 if trans_a else 2), (self.m if trans_b else self.n)
        ndim = 4 if len(packed) == 4 else len(dense)
        if heads > 1:
            ndim = max(ndim, 3)
        return ((z, heads, n, m) if trans_c else (z, heads, m, n))[4 - ndim :]

    def pack(self, x: tuple[int, ...]) -> tuple[int, ...]:
        copies = axis(x, 3) if self.heads == 1 else 1
        full = (axis(x, 4), copies * self.nnz, self.block, self.block)
        return full if len(x) == 4 else full[1:]

    def unpack(self, x: tuple[int, ...]) -> tuple[int, ...]:
        heads = self.packed_heads(x)
        full = (axis(x, 4), heads, self.m, self.n)
        return full if len(x) == 4 else full[1:] if heads > 1 else full[2:]

    def rows_of(self, x: tuple[int, ...], heads: int) -> tuple[int, ...]:
        """Shape [Z, H, M] of lse, mean and rstd, Z left out where x has none."""
        full = (axis(x, 4), heads, self.m)
        return full if len(x) == 4 else full[1:]

    def attention(self, q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]) -> tuple[int, ...]:
        heads = self.heads if self.heads > 1 else axis(q, 3)
        ndim = max(len(q), len(k), len(v))
        if heads > 1:
            ndim = max(ndim, 3)
        return (axis(q, 4), heads, axis(q, 2), axis(v, 1))[4 - ndim :]
