"""A product on the GPU, from the caller's arrays to launches.

What to launch was decided by ``gemmgen.launch.plan``; what a plan comes to is kept by the shapes, strides and alignment
of the operands, so that a call that repeats costs a look-up, three addresses and a launch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import ArgumentError
from gemmgen.runtime import memory
from gemmgen.runtime.arrays import HOST, ArrayView, current_stream, empty, stream_pointer, view
from gemmgen.runtime.driver import PER_THREAD_STREAM, is_current, on_device

if TYPE_CHECKING:
    from gemmgen.launch import Copy, LaunchPlan
    from gemmgen.runtime.device import Device
    from gemmgen.runtime.launch import Bound, GpuModule
    from gemmgen.spec.model import Spec
    from gemmgen.tile.variant import Variant

ModuleFor = Callable[["Variant", "Device"], "GpuModule"]

ITEM = 4  # bytes of a float32
_REMEMBERED = 4096  # plans a kernel keeps
_DTYPES = {"f32": "float32"}


@dataclass(frozen=True)
class _Prepared:
    """A plan with its kernels loaded. ``spans`` are the bytes that A, B and C reach before and after their address."""

    launches: tuple[Bound, ...]
    copies: tuple[Copy, ...]
    workspace: int
    spans: tuple[tuple[int, int], ...]


class GpuGemm:
    """Computes ``C = alpha * (A @ B) + beta * C`` by a spec's kernels on the GPU where the operands are.

    ``module_for`` compiles and loads the kernel of a variant. May be called from several threads.
    """

    def __init__(self, spec: Spec, module_for: ModuleFor, variant: Variant | None = None) -> None:
        self.spec = spec
        self.variant = variant
        self._module_for = module_for
        self._lock = threading.Lock()
        self._modules: dict[tuple[Variant, int], GpuModule] = {}
        self._prepared: dict[tuple[Any, ...], _Prepared] = {}

    def __call__(self, A: Any, B: Any, C: Any = None, alpha: float = 1.0, beta: float = 0.0, stream: Any = None) -> Any:
        """C, updated in place, or new and of A's kind where it is None; device arrays, all on one GPU.

        Enqueued on ``stream``, else on the stream that torch or CuPy has current; nothing waits. With C given and
        unit strides it may be captured in a CUDA graph. Raises ArgumentError before anything is launched.
        """
        at = current_stream(A, B, C) if stream is None else stream_pointer(stream)
        a, b = view(A, "A", at), view(B, "B", at)
        if C is None:
            C = self._new(a, b, beta, at)
        c = view(C, "C", at)
        key = (
            a.shape, b.shape, c.shape, a.strides, b.strides, c.strides, a.address & 15, b.address & 15, c.address & 15,
            alpha, beta, a.device, b.device, c.device, a.dtype, b.dtype, c.dtype, c.read_only,
        )  # fmt: skip
        prepared = self._prepared.get(key)
        if prepared is None or _meet(prepared.spans, a.address, b.address, c.address):
            prepared = self._prepare(key, a, b, c, alpha, beta)
        if is_current(a.device):
            self._run(prepared, (a, b, c), at)
        else:
            with on_device(a.device):
                self._run(prepared, (a, b, c), at)
        return C

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
        orders = {"A": self.spec.A.order, "B": self.spec.B.order, "C": self.spec.C.order}
        packed = {x: np.require(v, np.float32, "C" if orders[x] == "row" else "F") for x, v in sides.items()}
        with on_device(device.ordinal):
            starts, total = {}, 0
            for name, values in packed.items():
                starts[name] = total
                total += -(-values.nbytes // 256) * 256
            with memory.workspace(total, at) as base:
                for name, values in packed.items():
                    if name != "C" or beta != 0.0:
                        memory.upload(values, base + starts[name], at)
                a, b, c = (_packed(v, base + starts[x], orders[x], device.ordinal) for x, v in packed.items())
                self._run(self._prepare(None, a, b, c, alpha, beta), (a, b, c), at)
                memory.download(base + starts["C"], packed["C"], at)
        if packed["C"] is not C:
            C[...] = packed["C"]

    def _new(self, a: ArrayView, b: ArrayView, beta: float, stream: int) -> Any:
        if beta != 0.0:
            raise ArgumentError(f"beta is {beta} and C is None: there is no C to add; pass C, or beta=0")
        _two_dimensions(a, "A")
        _two_dimensions(b, "B")
        if a.device == HOST:
            raise ArgumentError("operands must be on one device: A on the host, B on a GPU")
        with on_device(a.device):
            return empty(a, (a.shape[0], b.shape[1]), _DTYPES[self.spec.C.dtype], self.spec.C.order, stream)

    def _prepare(
        self, key: tuple[Any, ...] | None, a: ArrayView, b: ArrayView, c: ArrayView, alpha: float, beta: float
    ) -> _Prepared:
        """The launches of a call, checked. Raises ArgumentError, LaunchError, CompileError."""
        from gemmgen.runtime import device as devices

        views = {"A": a, "B": b, "C": c}
        for name, x in views.items():
            self._check(name, x)
        _one_device(views)
        decided = self._decide(views, alpha, beta, self.variant)
        device = devices.get(a.device)
        launches = tuple(self._module(s.variant, device).bind(s.grid, s.arguments) for s in decided.steps)
        spans = tuple(_span(x) for x in views.values())
        prepared = _Prepared(launches, decided.copies, decided.workspace, spans)
        if key is not None:
            if len(self._prepared) >= _REMEMBERED:
                self._prepared.clear()
            self._prepared[key] = prepared
        return prepared

    def _decide(self, views: dict[str, ArrayView], alpha: float, beta: float, variant: Variant | None) -> LaunchPlan:
        from gemmgen.launch import plan

        return plan(
            self.spec,
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
        wanted = _DTYPES[{"A": self.spec.A, "B": self.spec.B, "C": self.spec.C}[name].dtype]
        if x.dtype != wanted:
            raise ArgumentError(f"{name} has element type {x.dtype}; {self.spec.name} wants {wanted}")

    def _module(self, variant: Variant, device: Device) -> GpuModule:
        with self._lock:
            key = (variant, device.ordinal)
            if key not in self._modules:
                self._modules[key] = self._module_for(variant, device)
            return self._modules[key]

    def _run(self, prepared: _Prepared, views: tuple[ArrayView, ArrayView, ArrayView], stream: int) -> None:
        a, b, c = views
        if not prepared.copies:
            for launch in prepared.launches:
                launch(a.address, b.address, c.address, stream)
            return
        addresses = {"A": a.address, "B": b.address, "C": c.address}
        with memory.workspace(prepared.workspace + 256 * len(prepared.copies), stream) as base:
            for copy in prepared.copies:
                source = a if copy.operand == "A" else b
                order = (self.spec.A if copy.operand == "A" else self.spec.B).order
                strides = (copy.leading, 1) if order == "row" else (1, copy.leading)
                memory.copy_strided(source.address, source.shape, source.strides, base, strides, stream)
                addresses[copy.operand] = base
                base += -(-copy.bytes // 256) * 256
            for launch in prepared.launches:
                launch(addresses["A"], addresses["B"], addresses["C"], stream)


def _packed(values: Any, address: int, order: str, device: int) -> ArrayView:
    """A packed matrix on the device."""
    strides = (values.shape[1], 1) if order == "row" else (1, values.shape[0])
    return ArrayView(address, values.shape, strides, "float32", device, False, "cuda", values)


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


def _span(x: ArrayView) -> tuple[int, int]:
    """The bytes that a matrix reaches: (lowest, one past the highest) from its address; (0, 0) where it is empty."""
    if 0 in x.shape:
        return 0, 0
    reach = [(n - 1) * s * ITEM for n, s in zip(x.shape, x.strides, strict=True)]
    return sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + ITEM


def _meet(spans: tuple[tuple[int, int], ...], a: int, b: int, c: int) -> bool:
    """Whether C's extent meets that of A or of B: then the exact check is asked for again."""
    low, high = c + spans[2][0], c + spans[2][1]
    return (low < a + spans[0][1] and a + spans[0][0] < high) or (low < b + spans[1][1] and b + spans[1][0] < high)
