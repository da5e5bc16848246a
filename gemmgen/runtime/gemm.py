"""A product on the GPU, from the caller's arrays to launches.

What to launch was decided by ``gemmgen.launch.plan``; what a plan comes to is kept by the shapes, strides and alignment
of the operands, so that a call that repeats costs a look-up, three addresses and a launch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import ArgumentError
from gemmgen.ir.variant import GUARDED, GUARDED_UNALIGNED, PADDED
from gemmgen.launch.batches import product_shape
from gemmgen.launch.beside import refuse_names, refuse_type
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
from gemmgen.runtime.extents import meet, one_device, span_of, two_dimensions
from gemmgen.runtime.prepared import Prepared, any_meet, run_with

if TYPE_CHECKING:
    from gemmgen.ir.program import Part, Program
    from gemmgen.ir.variant import Variant
    from gemmgen.launch import Launch, LaunchPlan
    from gemmgen.runtime.copies import Copies
    from gemmgen.runtime.device import Device
    from gemmgen.runtime.launch import GpuModule
    from gemmgen.spec.model import Spec

ModuleFor = Callable[["Variant", "Part", "Device"], "GpuModule"]

_REMEMBERED = 4096  # plans a kernel keeps
NOTHING: Mapping[str, Any] = MappingProxyType({})


class GpuGemm:
    """Computes ``C = alpha * (A @ B) + beta * C`` and the epilogue by a spec's kernels on the GPU of the operands.

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
        self._beside = spec.beside
        self._batched = spec.has("batched")
        self._types = {x.name: x.dtype for x in spec.operands}
        self._orders = {x.name: x.order for x in spec.operands}
        self.variant = variant
        self._module_for = module_for
        self._lock = threading.Lock()
        self._modules: dict[tuple[Variant, Part, int], GpuModule] = {}
        self._prepared: dict[tuple[Any, ...], Prepared] = {}
        self._kept: dict[int, memory.Kept] = {}  # by stream

    def __call__(
        self,
        A: Any,
        B: Any,
        C: Any = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        stream: Any = None,
        named: Mapping[str, Any] = NOTHING,
    ) -> Any:
        """C, updated in place, or new and of A's kind where it is None; device arrays, all on one GPU.

        Enqueued on ``stream``, else on the stream that torch or CuPy has current; nothing waits. With C given and
        unit strides it may be captured in a CUDA graph. Raises ArgumentError before anything is launched.
        """
        at = current_stream(A, B, C) if stream is None else stream_pointer(stream)
        if C is None:
            plain = stream is None and beta == 0.0 and self._new_order == "row" and not self._batched
            C = torch_new(A, B, self._types["C"].numpy) if plain else None
            C = self._new(A, B, beta, at) if C is None else C
        if named or self._beside:
            refuse_names(named, self.spec)
            return self._call(A, B, C, alpha, beta, at, None, named)
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
        if prepared is not None and not meet(prepared.spans, a, b, c) and is_current(device):
            self._run(prepared, a, b, c, stream)
            return C
        return self._call(A, B, C, alpha, beta, stream, key)

    def _call(
        self,
        A: Any,
        B: Any,
        C: Any,
        alpha: float,
        beta: float,
        stream: int,
        key: tuple[Any, ...] | None,
        named: Mapping[str, Any] = NOTHING,
    ) -> Any:
        a, b, c = view(A, "A", stream), view(B, "B", stream), view(C, "C", stream)
        if self.swapped:
            two_dimensions(a, "A", False)
            two_dimensions(b, "B", False)
            two_dimensions(c, "C", False)
            a, b, c = b.turned, a.turned, c.turned
        key = key or (
            a.shape, b.shape, c.shape, a.strides, b.strides, c.strides, a.address & 15, b.address & 15, c.address & 15,
            a.device, b.device, c.device, a.dtype, b.dtype, c.dtype, c.read_only,
        )  # fmt: skip
        more = {x.name: view(named[x.name], x.name, stream) for x in self._beside}
        if more:
            each = ((x.shape, x.strides, x.address & 15, x.device, x.dtype, x.read_only) for x in more.values())
            key = (key, *each)
        beside = tuple(x.address for x in more.values())
        prepared = self._prepared.get((key, alpha, beta))
        if (
            prepared is None
            or meet(prepared.spans, a.address, b.address, c.address)
            or (more and any_meet(prepared, (a.address, b.address, c.address), beside))
        ):
            prepared = self._prepare((key, alpha, beta), a, b, c, alpha, beta, more)
        addresses = a.address, b.address, c.address
        if is_current(a.device):
            self._run(prepared, *addresses, stream, beside)
        else:
            with on_device(a.device):
                self._run(prepared, *addresses, stream, beside)
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
        self,
        A: Any,
        B: Any,
        C: Any,
        alpha: float,
        beta: float,
        device: Device,
        stream: Any = None,
        beside: Mapping[str, Any] = NOTHING,
    ) -> None:
        """The same for NumPy arrays of the spec's types: copied to the GPU, and what is written back. Waits.

        What is refused on the device is refused here too: a C that is read-only, overlaps, or has other strides.
        """
        import numpy as np

        given = {"A": A, "B": B, "C": C, **beside}
        self._decide({name: view(x, name) for name, x in given.items()}, alpha, beta, None)
        at = PER_THREAD_STREAM if stream is None else stream_pointer(stream)
        orders = self._orders
        written = {"C", *(x.name for x in self._beside if x.written)}
        packed = {x: _in_order(np.asarray(v, self._types[x].numpy_dtype), orders[x]) for x, v in given.items()}
        with on_device(device.ordinal):
            starts, total = {}, 0
            for name, values in packed.items():
                starts[name] = total
                total += -(-values.nbytes // 256) * 256
            with memory.workspace(total, at) as base:
                for name, values in packed.items():
                    if name not in written or (name == "C" and beta != 0.0):
                        memory.upload(values, base + starts[name], at)
                views = {
                    x: _packed(v, base + starts[x], orders[x], device.ordinal, self._types[x].numpy)
                    for x, v in packed.items()
                }
                a, b, c = (views.pop(x) for x in "ABC")
                prepared = self._prepare(None, a, b, c, alpha, beta, views)
                addresses = tuple(x.address for x in views.values())
                self._run(prepared, a.address, b.address, c.address, at, addresses)
                for name in written:
                    memory.download(base + starts[name], packed[name], at)
        for name in written:
            if packed[name] is not given[name]:
                given[name][...] = packed[name]

    def _new(self, A: Any, B: Any, beta: float, stream: int) -> Any:
        if beta != 0.0:
            raise ArgumentError(f"beta is {beta} and C is None: there is no C to add; pass C, or beta=0")
        a, b = view(A, "A", stream), view(B, "B", stream)
        two_dimensions(a, "A", self._batched)
        two_dimensions(b, "B", self._batched)
        if a.device == HOST:
            raise ArgumentError("operands must be on one device: A on the host, B on a GPU")
        shape, order = product_shape(a.shape, b.shape), self._new_order
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
        self,
        key: tuple[Any, ...] | None,
        a: ArrayView,
        b: ArrayView,
        c: ArrayView,
        alpha: float,
        beta: float,
        more: Mapping[str, ArrayView] = NOTHING,
    ) -> Prepared:
        """The launches of a call, checked. Raises ArgumentError, LaunchError, CompileError."""
        from gemmgen.runtime import device as devices

        views = {"A": a, "B": b, "C": c}
        self._refuse(views)
        for operand in self._beside:
            refuse_type(operand, more[operand.name].dtype, self.spec)
        views |= more
        one_device(views)
        decided = self._decide(views, alpha, beta, self.variant)
        device = devices.get(a.device)
        launches = tuple(self._module(step, device).bind(step) for step in decided.steps)
        copied = self._copies(decided, views, device)
        workspace = _rounded(decided.partials) + (copied.bytes if copied is not None else 0)
        alone = launches[0] if len(launches) == 1 and not workspace else None
        a_span, b_span, c_span, *spans = (span_of(x, self._types[name].bytes) for name, x in views.items())
        beside = tuple((x.written, *span) for x, span in zip(self._beside, spans, strict=True))
        prepared = Prepared(launches, copied, workspace, (*a_span, *b_span, *c_span), alone, beside)
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
        if self.swapped:
            from gemmgen.launch import program_for
            from gemmgen.launch.overlap import refuse_overlap

            refuse_overlap(
                program_for(self.spec) if self.program is None else self.program,
                {name: tuple(x.turned.shape) for name, x in said.items()},
                {name: tuple(x.turned.strides) for name, x in said.items()},
                {name: x.address for name, x in said.items()},
            )

    def _copies(self, decided: LaunchPlan, views: dict[str, ArrayView], device: Device) -> Copies | None:
        if not decided.copies:
            return None
        wanted = {}
        for copy in decided.copies:
            x, order = views[copy.operand], self._orders[copy.operand]
            if copy.split is not None:
                order = "row" if copy.operand == "A" else "col"  # along k
            wanted["AB".index(copy.operand)] = copies.dense(
                x.shape, x.strides, order, copy.leading, self._types[copy.operand].bytes, copy.split
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
            {name: tuple(x.shape) for name, x in views.items()},
            {name: tuple(x.strides) for name, x in views.items()},
            {name: x.address for name, x in views.items()},
            alpha,
            beta,
            writable=not views["C"].read_only,
            variant=variant,
        )

    def _check(self, name: str, x: ArrayView) -> None:
        two_dimensions(x, name, self._batched)
        wanted = self._types[name].numpy
        if x.dtype != wanted:
            raise ArgumentError(f"{name} has element type {x.dtype}; {self.spec.name} wants {wanted}")

    def _module(self, step: Launch, device: Device) -> GpuModule:
        with self._lock:
            key = (step.variant, step.kernel, device.ordinal)
            if key not in self._modules:
                self._modules[key] = self._module_for(step.variant, step.kernel, device)
            return self._modules[key]

    def _run(self, prepared: Prepared, a: int, b: int, c: int, stream: int, beside: tuple[int, ...] = ()) -> None:
        """Enqueue a plan for operands at these addresses, in the current context."""
        if prepared.alone is not None:
            prepared.alone(a, b, c, 0, stream, *beside)
            return
        if not prepared.workspace:
            for launch in prepared.launches:
                launch(a, b, c, 0, stream, *beside)
            return
        kept = self._kept.get(stream)
        if kept is None:
            with memory.workspace(prepared.workspace, stream) as base:
                run_with(prepared, a, b, c, base, stream, beside)
            return
        with kept.lock:  # the steps of one call follow one another on the stream
            run_with(prepared, a, b, c, kept.of(prepared.workspace), stream, beside)


def _widest_last(best: LaunchPlan) -> tuple[Variant, ...]:
    """Variants that compute what a plan's does, the nearest to it first."""
    padded = any(step.variant.padded for step in best.steps)
    return (PADDED, GUARDED_UNALIGNED) if padded else (GUARDED, GUARDED_UNALIGNED)


def _rounded(size: int) -> int:
    return -(-size // copies.ALIGN) * copies.ALIGN


def _in_order(values: Any, order: str) -> Any:
    """The array without gaps, each of its matrices in an order; itself where it is so already."""
    import numpy as np

    if order == "row" or values.ndim < 2:
        return np.ascontiguousarray(values).reshape(values.shape)
    turned = np.ascontiguousarray(values.swapaxes(-1, -2))
    return turned.swapaxes(-1, -2)


def _packed(values: Any, address: int, order: str, device: int, dtype: str) -> ArrayView:
    """A packed matrix, or vector, on the device."""
    *batch, m, n = (1, *values.shape) if values.ndim == 1 else values.shape
    one = (n, 1) if order == "row" else (1, m)
    strides = one[1:] if values.ndim == 1 else (*(m * n for _ in batch), *one)
    return ArrayView(address, values.shape, strides, dtype, device, False, "cuda", values)
