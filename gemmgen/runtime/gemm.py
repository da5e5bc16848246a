"""A product on the GPU, from the caller's arrays to launches.

What to launch was decided by ``gemmgen.launch.plan``; what a plan comes to is kept by the shapes, strides and alignment
of the operands, so that a call that repeats costs a look-up, three addresses and a launch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import ArgumentError
from gemmgen.ir.variant import GUARDED, GUARDED_UNALIGNED, PADDED
from gemmgen.runtime import copies, memory
from gemmgen.runtime.arrays import (
    HOST,
    ArrayView,
    TorchMatrices,
    current_stream,
    empty,
    stream_pointer,
    torch_matrices,
    torch_new,
    view,
)
from gemmgen.runtime.driver import PER_THREAD_STREAM, is_current, on_device

if TYPE_CHECKING:
    from gemmgen.ir.program import Part, Program
    from gemmgen.ir.variant import Variant
    from gemmgen.launch import Launch, LaunchPlan
    from gemmgen.runtime.copies import Copies
    from gemmgen.runtime.device import Device
    from gemmgen.runtime.launch import Bound, GpuModule
    from gemmgen.spec.model import Spec

ModuleFor = Callable[["Variant", "Part", "Device"], "GpuModule"]

_REMEMBERED = 4096  # plans a kernel keeps


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A plan with its kernels loaded. ``spans`` are the bytes that A, B and C reach before and after their address.

    ``alone`` is the launch where it is all there is to do, with no memory of its own.
    """

    launches: tuple[Bound, ...]
    copies: Copies | None
    workspace: int
    spans: tuple[int, int, int, int, int, int]
    alone: Bound | None


class GpuGemm:
    """Computes ``C = alpha * (A @ B) + beta * C`` by a spec's kernels on the GPU where the operands are.

    ``module_for`` compiles and loads a variant's main kernel, or the one before or after it. May be called from several
    threads.
    """

    def __init__(
        self,
        spec: Spec,
        module_for: ModuleFor,
        variant: Variant | None = None,
        program: Program | None = None,
        *,
        swapped: bool = False,
        compiled: Callable[[Variant], bool] | None = None,
    ) -> None:
        self.spec = spec
        self.program = program
        self.swapped = swapped
        self._compiled = compiled
        self._types = {x.name: x.dtype for x in spec.matrices}
        self._orders = {x.name: x.order for x in spec.matrices}
        self.variant = variant
        self._module_for = module_for
        self._lock = threading.Lock()
        self._modules: dict[tuple[Variant, Part, int], GpuModule] = {}
        self._prepared: dict[tuple[Any, ...], _Prepared] = {}
        self._kept: dict[int, memory.Kept] = {}  # by stream

    def __call__(self, A: Any, B: Any, C: Any = None, alpha: float = 1.0, beta: float = 0.0, stream: Any = None) -> Any:
        """C, updated in place, or new and of A's kind where it is None; device arrays, all on one GPU.

        Enqueued on ``stream``, else on the stream that torch or CuPy has current; nothing waits. With C given and
        unit strides it may be captured in a CUDA graph. Raises ArgumentError before anything is launched.
        """
        at = current_stream(A, B, C) if stream is None else stream_pointer(stream)
        if C is None:
            plain = stream is None and beta == 0.0 and self._new_order == "row"
            C = torch_new(A, B, self._types["C"].numpy) if plain else None
            C = self._new(A, B, beta, at) if C is None else C
        # Looking at operands costs more than anything else here: of torch's own only what tells calls apart is read.
        seen = torch_matrices(A, B, C)
        if seen is None:
            return self._call(A, B, C, alpha, beta, at, None)
        return self.of_torch(seen, A, B, C, alpha, beta, at)

    def of_torch(self, seen: TorchMatrices, A: Any, B: Any, C: Any, alpha: float, beta: float, stream: int) -> Any:
        """The same for torch's own matrices, of which is known what tells calls apart."""
        key, device, a, b, c = seen
        prepared = self._prepared.get((key, alpha, beta))
        if self.swapped:
            a, b = b, a
        if prepared is not None and not _meet(prepared.spans, a, b, c) and is_current(device):
            self._run(prepared, a, b, c, stream)
            return C
        return self._call(A, B, C, alpha, beta, stream, key)

    def _call(self, A: Any, B: Any, C: Any, alpha: float, beta: float, stream: int, key: tuple[Any, ...] | None) -> Any:
        a, b, c = view(A, "A", stream), view(B, "B", stream), view(C, "C", stream)
        if self.swapped:
            _two_dimensions(a, "A")
            _two_dimensions(b, "B")
            _two_dimensions(c, "C")
            a, b, c = b.turned, a.turned, c.turned
        key = key or (
            a.shape, b.shape, c.shape, a.strides, b.strides, c.strides, a.address & 15, b.address & 15, c.address & 15,
            a.device, b.device, c.device, a.dtype, b.dtype, c.dtype, c.read_only,
        )  # fmt: skip
        prepared = self._prepared.get((key, alpha, beta))
        if prepared is None or _meet(prepared.spans, a.address, b.address, c.address):
            prepared = self._prepare((key, alpha, beta), a, b, c, alpha, beta)
        addresses = a.address, b.address, c.address
        if is_current(a.device):
            self._run(prepared, *addresses, stream)
        else:
            with on_device(a.device):
                self._run(prepared, *addresses, stream)
        return C

    def keep_workspace(self, stream: int) -> None:
        """From now on calls on this stream share memory that is kept for it, where they need any of their own.

        It saves an allocation a call, and is what cuBLAS does. What is captured on the stream then uses that memory
        too: two such graphs must not run at the same time.
        """
        self._kept.setdefault(stream, memory.Kept())

    def share_workspace(self, kept: dict[int, memory.Kept]) -> None:
        """Take kept memory from a store, by stream, that other kernels take theirs from too: one at a time uses it."""
        self._kept = kept

    def on_host_arrays(
        self, A: Any, B: Any, C: Any, alpha: float, beta: float, device: Device, stream: Any = None
    ) -> None:
        """The same for NumPy arrays of the spec's types: copied to the GPU, and C back. Waits.

        What is refused on the device is refused here too: a C that is read-only, overlaps, or has other strides.
        """
        import numpy as np

        self._decide({name: view(x, name) for name, x in (("A", A), ("B", B), ("C", C))}, alpha, beta, None)
        at = PER_THREAD_STREAM if stream is None else stream_pointer(stream)
        sides = {"A": A, "B": B, "C": C}
        orders = self._orders
        packed = {
            x: np.require(v, self._types[x].numpy_dtype, "C" if orders[x] == "row" else "F") for x, v in sides.items()
        }
        with on_device(device.ordinal):
            starts, total = {}, 0
            for name, values in packed.items():
                starts[name] = total
                total += -(-values.nbytes // 256) * 256
            with memory.workspace(total, at) as base:
                for name, values in packed.items():
                    if name != "C" or beta != 0.0:
                        memory.upload(values, base + starts[name], at)
                a, b, c = (
                    _packed(v, base + starts[x], orders[x], device.ordinal, self._types[x].numpy)
                    for x, v in packed.items()
                )
                self._run(self._prepare(None, a, b, c, alpha, beta), a.address, b.address, c.address, at)
                memory.download(base + starts["C"], packed["C"], at)
        if packed["C"] is not C:
            C[...] = packed["C"]

    def _new(self, A: Any, B: Any, beta: float, stream: int) -> Any:
        if beta != 0.0:
            raise ArgumentError(f"beta is {beta} and C is None: there is no C to add; pass C, or beta=0")
        a, b = view(A, "A", stream), view(B, "B", stream)
        _two_dimensions(a, "A")
        _two_dimensions(b, "B")
        if a.device == HOST:
            raise ArgumentError("operands must be on one device: A on the host, B on a GPU")
        shape, order = (a.shape[0], b.shape[1]), self._new_order
        if is_current(a.device):
            return empty(a, shape, self._types["C"].numpy, order, stream)
        with on_device(a.device):
            return empty(a, shape, self._types["C"].numpy, order, stream)

    @property
    def _new_order(self) -> str:
        """The order of a new C, as the caller sees it."""
        order = self.spec.C.order
        return order if not self.swapped else "col" if order == "row" else "row"

    def _prepare(
        self, key: tuple[Any, ...] | None, a: ArrayView, b: ArrayView, c: ArrayView, alpha: float, beta: float
    ) -> _Prepared:
        """The launches of a call, checked. Raises ArgumentError, LaunchError, CompileError."""
        from gemmgen.runtime import device as devices

        views = {"A": a, "B": b, "C": c}
        self._refuse(views)
        decided = self._decide(views, alpha, beta, self.variant)
        device = devices.get(a.device)
        launches = tuple(self._module(step, device).bind(step) for step in decided.steps)
        copied = self._copies(decided, views, device)
        workspace = _rounded(decided.partials) + (copied.bytes if copied is not None else 0)
        alone = launches[0] if len(launches) == 1 and not workspace else None
        a_span, b_span, c_span = (_span(x, self._types[name].bytes) for name, x in views.items())
        prepared = _Prepared(launches, copied, workspace, (*a_span, *b_span, *c_span), alone)
        if key is not None:
            if len(self._prepared) >= _REMEMBERED:
                self._prepared.clear()
            self._prepared[key] = prepared
        return prepared

    def _refuse(self, views: dict[str, ArrayView]) -> None:
        """Raise ArgumentError for operands that do not fit, by the names that the caller has for them."""
        said = {"A": views["B"], "B": views["A"], "C": views["C"]} if self.swapped else views
        for name, x in said.items():
            self._check(name, x)
        _one_device(said)
        if self.swapped:
            from gemmgen.launch.overlap import refuse_overlap

            turned = {name: x.turned for name, x in said.items()}
            refuse_overlap(
                {name: (x.shape[0], x.shape[1]) for name, x in turned.items()},
                {name: (x.strides[0], x.strides[1]) for name, x in turned.items()},
                {name: x.address for name, x in turned.items()},
                {name: kind.bytes for name, kind in self._types.items()},
            )

    def _copies(self, decided: LaunchPlan, views: dict[str, ArrayView], device: Device) -> Copies | None:
        if not decided.copies:
            return None
        wanted = {}
        for copy in decided.copies:
            x = views[copy.operand]
            wanted["AB".index(copy.operand)] = copies.dense(
                x.shape, x.strides, self._orders[copy.operand], copy.leading, self._types[copy.operand].bytes
            )
        return copies.Copies(device, wanted)

    def _decide(self, views: dict[str, ArrayView], alpha: float, beta: float, variant: Variant | None) -> LaunchPlan:
        best = self._plan(views, alpha, beta, variant)
        there = self._compiled
        if variant is not None or there is None or all(there(step.variant) for step in best.steps):
            return best
        for other in _widest_last(best):  # a kernel that is there, before one that takes seconds to compile
            if there(other):
                with suppress(ArgumentError):
                    return self._plan(views, alpha, beta, other)
        return best

    def _plan(self, views: dict[str, ArrayView], alpha: float, beta: float, variant: Variant | None) -> LaunchPlan:
        from gemmgen.launch import plan

        return plan(
            self.spec if self.program is None else self.program,
            {name: (x.shape[0], x.shape[1]) for name, x in views.items()},
            {name: (x.strides[0], x.strides[1]) for name, x in views.items()},
            {name: x.address for name, x in views.items()},
            alpha,
            beta,
            writable=not views["C"].read_only,
            variant=variant,
        )

    def _check(self, name: str, x: ArrayView) -> None:
        _two_dimensions(x, name)
        wanted = self._types[name].numpy
        if x.dtype != wanted:
            raise ArgumentError(f"{name} has element type {x.dtype}; {self.spec.name} wants {wanted}")

    def _module(self, step: Launch, device: Device) -> GpuModule:
        with self._lock:
            key = (step.variant, step.kernel, device.ordinal)
            if key not in self._modules:
                self._modules[key] = self._module_for(step.variant, step.kernel, device)
            return self._modules[key]

    def _run(self, prepared: _Prepared, a: int, b: int, c: int, stream: int) -> None:
        """Enqueue a plan for operands at these addresses, in the current context."""
        if prepared.alone is not None:
            prepared.alone(a, b, c, 0, stream)
            return
        if not prepared.workspace:
            for launch in prepared.launches:
                launch(a, b, c, 0, stream)
            return
        kept = self._kept.get(stream)
        if kept is None:
            with memory.workspace(prepared.workspace, stream) as base:
                _run_with(prepared, a, b, c, base, stream)
            return
        with kept.lock:  # the steps of one call follow one another on the stream
            _run_with(prepared, a, b, c, kept.of(prepared.workspace), stream)


def _widest_last(best: LaunchPlan) -> tuple[Variant, ...]:
    """Variants that compute what a plan's does, the nearest to it first."""
    padded = any(step.variant.padded for step in best.steps)
    return (PADDED, GUARDED_UNALIGNED) if padded else (GUARDED, GUARDED_UNALIGNED)


def _run_with(prepared: _Prepared, a: int, b: int, c: int, base: int, stream: int) -> None:
    """The copies to memory from ``base`` on, then the launches, whose own memory comes after the copies'."""
    if prepared.copies is not None:
        a, b = prepared.copies(a, b, base, stream)
        base += prepared.copies.bytes
    for launch in prepared.launches:
        launch(a, b, c, base, stream)


def _rounded(size: int) -> int:
    return -(-size // copies.ALIGN) * copies.ALIGN


def _packed(values: Any, address: int, order: str, device: int, dtype: str) -> ArrayView:
    """A packed matrix on the device."""
    strides = (values.shape[1], 1) if order == "row" else (1, values.shape[0])
    return ArrayView(address, values.shape, strides, dtype, device, False, "cuda", values)


def _one_device(views: dict[str, ArrayView]) -> None:
    devices = {x.device for x in views.values()}
    if len(devices) > 1 or HOST in devices:
        said = ", ".join(
            f"{name} on {'the host' if x.device == HOST else f'GPU {x.device}'}" for name, x in views.items()
        )
        raise ArgumentError(f"operands must be on one device: {said}")


def _two_dimensions(x: ArrayView, name: str) -> None:
    if len(x.shape) != 2:
        raise ArgumentError(f"{name} has {len(x.shape)} dimensions, shape {tuple(x.shape)}; a matrix has 2")


def _span(x: ArrayView, item: int) -> tuple[int, int]:
    """The bytes that a matrix reaches: (lowest, one past the highest) from its address; (0, 0) where it is empty."""
    if 0 in x.shape:
        return 0, 0
    reach = [(n - 1) * s * item for n, s in zip(x.shape, x.strides, strict=True)]
    return sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + item


def _meet(spans: tuple[int, int, int, int, int, int], a: int, b: int, c: int) -> bool:
    """Whether C's extent meets that of A or of B: then the exact check is asked for again."""
    a_low, a_high, b_low, b_high, c_low, c_high = spans
    c_low, c_high = c + c_low, c + c_high
    return (c_low < a + a_high and a + a_low < c_high) or (c_low < b + b_high and b + b_low < c_high)
