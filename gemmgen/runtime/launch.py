"""Loads a compiled kernel and launches it."""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, Literal, Protocol

from gemmgen.diagnostics import LaunchError
from gemmgen.ir.nodes import Call, Load, walk
from gemmgen.ir.types import WARP
from gemmgen.isa.cluster import CLUSTER_SYNC, cluster_load
from gemmgen.runtime import driver
from gemmgen.runtime.driver import on_device
from gemmgen.runtime.frame import BESIDE, WORKSPACE, A, B, C, Constant, Frame
from gemmgen.runtime.tensormap import Maps, maps_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gemmgen.ir.kernel import KernelIR, Param
    from gemmgen.launch import Launch
    from gemmgen.runtime.build import Built
    from gemmgen.runtime.cubin import Resources
    from gemmgen.runtime.device import Device

OPT_IN_ABOVE = 48 << 10  # bytes of dynamic shared memory that need no permission

REGISTER_UNIT = 256  # registers are handed out to a warp in units of this many

_LETTERS = {"int": "i", "size": "N", "float": "f"}  # struct's letters for the C types of a kernel's parameters
_OPERANDS = {"A": A, "B": B, "C": C}  # any other pointer is to the workspace


class LaunchLimits(Protocol):
    """What a block may take of a GPU, bytes and 32-bit registers: a Device, or the Limits of an architecture."""

    @property
    def threads_per_block(self) -> int: ...
    @property
    def registers_per_block(self) -> int: ...
    @property
    def shared_per_block(self) -> int: ...


def check_resources(limits: LaunchLimits, threads: int, registers: int, shared_bytes: int = 0) -> None:
    """Raise LaunchError where a block cannot run: ``registers`` a thread, ``shared_bytes`` a block.

    The message names the need, the limit, and what would fit.
    """
    if threads > limits.threads_per_block:
        raise LaunchError(f"{threads} threads per block are over the limit of {limits.threads_per_block}")
    warps = -(-threads // WARP)
    a_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    if warps * a_warp > limits.registers_per_block:
        fit = limits.registers_per_block // a_warp * WARP
        most = limits.registers_per_block // warps // REGISTER_UNIT * REGISTER_UNIT // WARP
        raise LaunchError(
            f"{threads} threads x {registers} registers = {threads * registers} registers per block "
            f"({threads} x {a_warp // WARP} = {warps * a_warp} as they are handed out), "
            f"over the limit of {limits.registers_per_block}: "
            f"at most {fit} threads fit with {registers} registers, or {threads} threads with at most {most} registers"
        )
    if shared_bytes > limits.shared_per_block:
        raise LaunchError(
            f"a block needs {shared_bytes} bytes of shared memory, over the limit of {limits.shared_per_block}"
        )


def check_architecture(ir: KernelIR, device: Device) -> None:
    """Raise LaunchError where a kernel has an instruction that a GPU is too old for."""
    rows = [s.row for s in walk(ir.body) if isinstance(s, Call)]
    rows += [CLUSTER_SYNC for s in ir.syncs() if s.scope == "cluster"]
    rows += [cluster_load(s.width) for s in walk(ir.body) if isinstance(s, Load) and s.rank is not None]
    newest = max(rows, key=lambda row: row.arch.min, default=None)
    if newest is not None and newest.arch.min > 10 * device.cc[0] + device.cc[1]:
        raise LaunchError(
            f"{ir.name} uses {newest.name}, which needs compute capability {newest.arch.capability}; "
            f"{device.name} has {device.cc[0]}.{device.cc[1]}"
        )


class Module:
    """A kernel on the GPUs of one architecture, from a cubin (or PTX).

    ``threads`` a block; ``shared_bytes`` of dynamic shared memory a block, over 48 KB opted into on ``device``.
    ``resources``, where known, are checked against the GPU, so that an impossible launch is a typed error.
    Raises LaunchError. May be used from several threads.
    """

    def __init__(
        self,
        code: bytes,
        name: str,
        threads: int,
        shared_bytes: int = 0,
        *,
        resources: Resources | None = None,
        kind: Literal["cubin", "ptx"] = "cubin",
        device: Device | None = None,
    ) -> None:
        from gemmgen.runtime import device as devices

        self.device = device or devices.required()
        self.name, self.threads, self.shared_bytes, self.resources = name, threads, shared_bytes, resources
        if resources is not None:
            check_resources(self.device, threads, resources.registers, resources.shared_bytes + shared_bytes)
        with on_device(self.device.ordinal):
            try:
                load = driver.core().ObjectCode
                self._library = load.from_cubin(code) if kind == "cubin" else load.from_ptx(code)
                self._kernel = self._library.get_kernel(name)
            except Exception as e:  # cuda.core's own type, which is not part of its documented surface
                raise LaunchError(f"{name} cannot be loaded on {self.device.name} ({self.device.arch}): {e}") from e
            self.handle = int(self._kernel.handle)
            if shared_bytes > OPT_IN_ABOVE:
                self._opt_in()
        self._launch = driver.launcher()

    def launch(self, grid: tuple[int, int, int], values: Sequence[Constant], stream: int) -> None:
        """Launch with these arguments on a stream, in the current context. No wait, no allocation: may be captured."""
        frame = Frame(grid, self.threads, self.shared_bytes, values)
        frame.fill(stream)
        self.start(frame)

    def start(self, frame: Frame) -> None:
        """Launch what a frame says, in the current context."""
        status = self._launch(frame.config, self.handle, frame.pointers, None)
        if status != 0:
            raise driver.failure(f"the launch of {self.name} with a grid of {frame.grid}", status)

    def _opt_in(self) -> None:
        """The permission for more than 48 KB."""
        attribute = driver.bindings().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        kernel, device = driver.bindings().CUkernel(self.handle), driver.call("cuCtxGetDevice")
        driver.call("cuKernelSetAttribute", attribute, self.shared_bytes, kernel, device)


class GpuModule(Module):
    """A kernel of a product on one GPU, with its parameters as the IR has them."""

    def __init__(self, ir: KernelIR, built: Built, device: Device) -> None:
        # What is over 48 KB is dynamic in the text, and given at the launch.
        dynamic = ir.shared_bytes if ir.shared_bytes > OPT_IN_ABOVE else 0
        super().__init__(
            built.code, ir.name, ir.threads, dynamic, resources=built.resources, kind=built.kind, device=device
        )
        self.ir = ir

    def bind(self, step: Launch) -> Bound:
        """A launch of this kernel with everything fixed but the addresses."""
        return Bound(self, step)


class Bound:
    """A launch that waits for the addresses of A, B, C and the workspace. May be called from several threads."""

    def __init__(self, module: GpuModule, step: Launch) -> None:
        given = step.arguments
        self.module, self.grid, self.dependent = module, step.grid, step.dependent
        a, b, c = (module.ir.matrix(x).dtype.bytes for x in "ABC")
        self._offsets = a * given.A, b * given.B, c * given.C
        items = {p.name: p.array.dtype.bytes for p in module.ir.params if p.array is not None}
        self._beside = tuple(items.get(name, 0) * at for name, at, _ in given.beside)
        self._arguments = [_argument(p, step) for p in module.ir.params]
        self._maps = tuple(_maps(module.ir, step))
        self._start = module.start
        self._free: list[Frame] = []  # frames that no call is using: taken and put back whole, which threads may do

    def __call__(self, a: int, b: int, c: int, workspace: int, stream: int, *beside: int) -> None:
        """Addresses in bytes of the operands' first elements, those of the epilogue in its order."""
        da, db, dc = self._offsets
        a, b, c = a + da, b + db, c + dc
        try:
            frame = self._free.pop()
        except IndexError:
            module = self.module
            frame = Frame(
                self.grid, module.threads, module.shared_bytes, self._arguments, self.dependent, len(self._beside)
            )
        if beside:
            frame.fill(stream, a, b, c, workspace, *map(add, beside, self._beside))
        else:
            frame.fill(stream, a, b, c, workspace)
        if self._maps and frame.places != (a, b, c):
            self._point(frame, (a, b, c))
        self._start(frame)
        self._free.append(frame)

    def _point(self, frame: Frame, places: tuple[int, int, int]) -> None:
        """The tensor maps of operands at these addresses become the frame's."""
        made = []
        for argument, operand, maps in self._maps:
            made.append(maps.at(places[operand]))
            frame.point(argument, made[-1])
        frame.maps, frame.places = tuple(made), places


def _argument(p: Param, step: Launch) -> Constant | int:
    match p.kind:
        case "pointer" if p.name in (names := [name for name, _, _ in step.arguments.beside]):
            return BESIDE + names.index(p.name)
        case "pointer":
            return WORKSPACE if p.name == "C" and step.output == "W" else _OPERANDS.get(p.name, WORKSPACE)
        case "tensormap":
            return A  # any address: a map is put there before the launch
        case "int" | "size" | "float":
            return _LETTERS[p.kind], step.scalars[p.name]


def _maps(ir: KernelIR, step: Launch) -> list[tuple[int, int, Maps]]:
    """(argument's number, operand's number, maps) of each tensor map of a kernel."""
    given = step.arguments
    size = given.M, given.N, given.K
    leading = {"A": given.lda, "B": given.ldb, "C": given.ldc}
    at = {p.name: i for i, p in enumerate(ir.params)}
    return [
        (at[m.name], _OPERANDS[m.operand], maps_of(m, ir.matrix(m.operand), size, leading[m.operand]))
        for m in ir.tensor_maps
    ]
