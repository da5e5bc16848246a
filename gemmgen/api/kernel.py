"""A compiled spec that can be called, on the GPU or on the simulator."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from gemmgen.api.beside import on_host
from gemmgen.api.operands import matrices, on_device, output_for, scalar
from gemmgen.api.specs import architecture, batched, checked
from gemmgen.diagnostics import ArgumentError, LaunchError, SimulationFault, one_of
from gemmgen.launch import EXACT, Variant, as_float32, kernel_of, program_for
from gemmgen.launch.placement import OPERANDS
from gemmgen.spec.effort import slow_to_compile

if TYPE_CHECKING:
    from gemmgen.api.ready import Kept
    from gemmgen.ir.kernel import KernelIR
    from gemmgen.ir.program import Part
    from gemmgen.runtime.arrays import TorchMatrices
    from gemmgen.runtime.cubin import Resources
    from gemmgen.runtime.device import Device as Gpu
    from gemmgen.runtime.gemm import GpuGemm
    from gemmgen.runtime.launch import GpuModule
    from gemmgen.runtime.nvrtc import Compiled
    from gemmgen.spec.model import Spec

Device = Literal["auto", "sim", "cuda"]
DEVICES = ("auto", "sim", "cuda")
PATIENCE = 10.0  # seconds that a call on the simulator may take where nobody asked for the simulator


def compile(spec: Spec, device: Device = "auto", arch: str | None = None) -> Kernel:
    """A kernel that can be called: ``kernel(A, B)``.

    ``device`` "cuda" is the GPU, "sim" the simulator on the host, "auto" the GPU where there is one. ``arch`` is what
    ``kernel.cubin`` is compiled for; by default what the spec says, else the GPU's own, else sm_90. Raises SpecError
    where the spec fits no GPU, ArgumentError where ``arch`` lacks what it uses, LaunchError for "cuda" where there is
    none, CompileError where NVRTC refuses the text.
    """
    return make(checked(spec), device, None if arch is None else architecture(arch, spec))


def make(spec: Spec, device: str, arch: str | None) -> Kernel:
    """The kernel of a checked spec on "auto", "sim" or "cuda"."""
    one_of("device", device, DEVICES)
    arch = arch or spec.arch
    if device == "sim":
        return Kernel(spec, "sim", arch)
    from gemmgen.runtime import device as gpus

    gpu = gpus.required() if device == "cuda" else gpus.current()
    if gpu is None:
        return Kernel(spec, "sim", arch, patience=PATIENCE)
    kernel = Kernel(spec, "cuda", arch or gpu.arch)
    kernel.load(EXACT, "main", gpu)
    return kernel


class Kernel:
    """``kernel(A, B)`` computes A @ B; ``kernel(A, B, C, alpha, beta)`` C = alpha * (A @ B) + beta * C in place.

    ``device`` is "cuda" or "sim", where it runs; ``arch`` what ``cubin`` is compiled for. A ``swapped`` one computes
    C^T = B^T A^T with its spec, of the caller's matrices as they lie; a ``kept`` one is launched without being lowered
    where the cache has it, and says on stderr that it compiles where that takes long. It may be called from several
    threads. Variants for ragged sizes and unaligned rows are compiled when a call first needs them.
    """

    def __init__(
        self,
        spec: Spec,
        device: Literal["sim", "cuda"],
        arch: str | None = None,
        patience: float | None = None,
        *,
        swapped: bool = False,
        kept: bool = False,
    ) -> None:
        from gemmgen.runtime.gemm import GpuGemm

        self.spec = spec
        self.device = device
        self._arch = arch
        self._patience = patience
        self._lock = threading.RLock()
        self._lowered: dict[Variant, KernelIR] = {}
        self._source: str | None = None
        self._compiled: Compiled | None = None
        self._swapped = swapped
        self._kept: Kept | None = None
        if kept:
            from gemmgen.api.ready import Kept

            self._kept = Kept(spec, self.arch)
        known = self._kept
        self._gemm: GpuGemm = GpuGemm(
            spec,
            self.load,
            None,
            known.program if known else None,
            swapped=swapped,
            compiled=known.has if known else None,
        )
        self._batched = spec.has("batched")
        self._sibling: Kernel | None = None

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """As it was made: copies and other processes compile and load for themselves, when they are first called."""
        return _made_again, (self.spec, self.device, self._arch, self._patience, self._swapped, self._kept is not None)

    def __repr__(self) -> str:
        return f"<gemmgen kernel {self.spec.name!r} on {'the GPU' if self.device == 'cuda' else 'the simulator'}>"

    def __str__(self) -> str:
        """Name, where it runs, tiles and threads; registers and spills where it was compiled."""
        from gemmgen.text.numbers import counted

        with self._lock:
            compiled = self._compiled
        spec = self.spec
        tiles = [("block", spec.block), *([("warp", spec.warp)] if spec.warp else []), ("thread", spec.thread)]
        parts = [f"{name} {'x'.join(map(str, tile))}" for name, tile in tiles] + [counted(spec.threads, "thread")]
        if compiled is not None:
            spilled = compiled.resources.spill_bytes
            spills = f"{spilled} bytes per thread spilled" if spilled else "no spills"
            parts += [f"{counted(compiled.resources.registers, 'register')} per thread", spills]
        where = "the GPU" if self.device == "cuda" else "the simulator"
        return f"{spec.name} on {where}, {self.arch}: {', '.join(parts)}"

    def _repr_html_(self) -> str:
        """The line of ``str()``, its spec and its CUDA, which are closed at first. Nothing is compiled for it."""
        from gemmgen.text.html import closed, heading, joined, pre

        texts = closed("Spec", pre(self.spec.to_text())), closed("CUDA", pre(self.source))
        return joined(heading(str(self)), *texts)

    def __call__(
        self, A: Any, B: Any, C: Any = None, alpha: float = 1.0, beta: float = 0.0, stream: Any = None, **named: Any
    ) -> Any:
        """C = alpha * (A @ B) + beta * C, returned as the very ``C`` that was passed, or as a new array.

        ``A`` is (M, K), ``B`` (K, N), ``C`` (M, N), in the spec's element types. C needs stride 1 along its contiguous
        dimension; A and B with other strides are copied first. ``named`` are the operands of the spec's epilogue:
        ``bias`` (N,), ``residual`` (M, N), ``scale_a`` (M,), ``scale_b`` (N,), ``scale`` (1,), and ``aux`` (M, N),
        which is written. Device arrays stay where they are, on ``stream`` or the current one, without waiting; NumPy
        arrays are copied in and out. A ``beta`` other than 0 needs ``C``. Raises ArgumentError naming the operand,
        SimulationFault where a simulated kernel did something illegal.
        """
        alpha, beta = scalar("alpha", alpha), scalar("beta", beta)
        if not self._batched and 3 in (getattr(A, "ndim", 2), getattr(B, "ndim", 2)):
            return self.for_batches()(A, B, C, alpha, beta, stream, **named)
        if self.device == "cuda" and (on_device(A) or on_device(B) or on_device(C)):
            return self._gemm(A, B, C, alpha, beta, stream, named)
        if self.device != "cuda" and stream is not None:
            raise ArgumentError("stream is given, and the simulator has none; leave it out, or use device='cuda'")
        if not self._swapped:
            return self._run_on_host(A, B, C, alpha, beta, stream, named)
        made = self._run_on_host(B.T, A.T, None if C is None else C.T, alpha, beta, stream, named)
        return made.T if C is None else C

    def _run_on_host(
        self, A: Any, B: Any, C: Any, alpha: float, beta: float, stream: Any, named: Mapping[str, Any]
    ) -> Any:
        if self.device == "cuda":
            return self._on_host(A, B, C, alpha, beta, stream, named)
        return self._simulate(A, B, C, alpha, beta, named)

    def of_torch(self, seen: TorchMatrices, A: Any, B: Any, C: Any, alpha: float, beta: float) -> Any:
        """The call on a GPU for torch's own matrices that were looked at already, on torch's current stream."""
        from gemmgen.runtime.arrays import torch_stream

        return self._gemm.of_torch(seen, A, B, C, alpha, beta, torch_stream(seen[1]))

    def for_batches(self) -> Kernel:
        """The kernel of the same spec for batches. Where tma brings its tiles, cp.async does instead."""
        with self._lock:
            if self._sibling is None:
                self._sibling = self.like(batched(self.spec))
            return self._sibling

    def like(self, spec: Spec) -> Kernel:
        """Another spec's kernel, on the same device and for the same architecture."""
        return type(self)(spec, self.device, self._arch, self._patience)

    def keep_workspace(self, stream: int) -> None:
        """Calls on this stream (its handle) share memory that is kept for it, where they need memory of their own.

        It saves an allocation a call. Two graphs captured on that stream then must not run at the same time.
        """
        self._gemm.keep_workspace(stream)

    def _simulate(self, A: Any, B: Any, C: Any, alpha: float, beta: float, named: Mapping[str, Any]) -> Any:
        from gemmgen.api.simulation import estimated_seconds, execute, plan_of

        output = output_for(A, B, self.spec, as_float32(beta)) if C is None else C
        operands = matrices(A, B, output, self.spec) | on_host(named, self.spec)
        program = program_for(self.spec)
        steps = plan_of(program, operands, alpha, beta)
        if self._patience is not None and (seconds := estimated_seconds(steps, self.lowered)) > self._patience:
            m, n, k = *operands["C"].shape[-2:], operands["A"].shape[-1]
            raise ArgumentError(
                f"there is no GPU here, and {m}x{n}x{k} takes the simulator about {seconds:.0f} s; "
                f'compile with device="sim" to wait for it, or take a smaller size'
            )
        result = execute(program, steps, self.lowered, operands)
        if result.faults:
            raise SimulationFault(tuple(result.faults))
        return output

    def lowered(self, variant: Variant = EXACT) -> KernelIR:
        """The kernel IR of a variant, lowered once."""
        from gemmgen.api.specs import lower

        with self._lock:
            if variant not in self._lowered:
                self._lowered[variant] = lower(self.spec, variant)
            return self._lowered[variant]

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants that calls so far have needed, by name: "exact", "guarded", "guarded_unaligned"."""
        with self._lock:
            return tuple(variant.label for variant in self._lowered)

    @property
    def arch(self) -> str:
        """The architecture of ``cubin``, as sm_90."""
        from gemmgen.runtime.target import DEFAULT_ARCH

        return self._arch or DEFAULT_ARCH

    @property
    def source(self) -> str:
        """The CUDA C++ of the exact variant."""
        from gemmgen.cuda.emit import emit_cuda

        with self._lock:
            if self._source is None:
                self._source = emit_cuda(self.lowered())
            return self._source

    @property
    def cubin(self) -> bytes:
        """The exact variant compiled for ``arch``. Needs NVRTC but no GPU. Raises CompileError."""
        return self._compile().cubin

    @property
    def resources(self) -> Resources:
        """What the exact variant takes: ``registers`` and ``spill_bytes`` a thread, ``shared_bytes`` and ``threads`` a
        block. Raises CompileError."""
        ir = self.lowered()
        return replace(self._compile().resources, shared_bytes=ir.shared_bytes, threads=ir.threads)

    def _compile(self) -> Compiled:
        from gemmgen.runtime.nvrtc import compile_cubin

        with self._lock:
            if self._compiled is None:
                self._compiled = compile_cubin(
                    self.source, self.lowered().target(self.arch), name=self.spec.name, slow=slow_to_compile(self.spec)
                )
            return self._compiled

    def load(self, variant: Variant, which: Part, gpu: Gpu) -> GpuModule:
        """A variant's main kernel, or the one before or after it, compiled and loaded on a GPU, anew at each call.

        Raises CompileError, or LaunchError where a block needs more than the GPU has.
        """
        from gemmgen.cuda.emit import emit_cuda
        from gemmgen.runtime.build import compile_for
        from gemmgen.runtime.launch import GpuModule, check_architecture

        if self._kept is not None:
            try:
                return GpuModule(*self._kept.part(variant, which, gpu), gpu)
            except LaunchError as error:
                again = self._kept.anew(variant, which, " ".join(str(error).split()))
                if again is None:
                    raise
                return GpuModule(*again, gpu)
        ir = kernel_of(self.lowered(variant), which)
        check_architecture(ir, gpu)
        slow = slow_to_compile(self.spec)
        built = compile_for(emit_cuda(ir), gpu, name=ir.name, slow=slow, retarget=ir.target)
        return GpuModule(ir, built, gpu)

    def _on_host(self, A: Any, B: Any, C: Any, alpha: float, beta: float, stream: Any, named: Mapping[str, Any]) -> Any:
        from gemmgen.runtime import device as gpus

        output = output_for(A, B, self.spec, as_float32(beta)) if C is None else C
        host, beside = matrices(A, B, output, self.spec), on_host(named, self.spec)
        if host["C"].values.size:
            a, b, c = (host[name].values for name in OPERANDS)
            values = {name: x.values for name, x in beside.items()}
            self._gemm.on_host_arrays(a, b, c, alpha, beta, gpus.required(), stream, values)
        return output


def _made_again(spec: Spec, device: Any, arch: str | None, patience: float | None, *how: bool) -> Kernel:
    return Kernel(spec, device, arch, patience, swapped=how[0], kept=how[1])
