"""``gemmgen.matmul``: a product by the kernel that was found fastest for its shape.

Which kernel that is, is decided once for a shape, alignment and device, and remembered with the kernel loaded: a call
that repeats costs a look-up more than calling the kernel itself.
"""

from __future__ import annotations

import sys
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gemmgen.api.operands import scalar
from gemmgen.diagnostics import flag
from gemmgen.dispatch.autotune import budget, capturing
from gemmgen.dispatch.device import HOST, SIMULATED_GPU, here, row_of
from gemmgen.dispatch.fused import Fused, one_product
from gemmgen.dispatch.split import forget_split, split_kernel
from gemmgen.dispatch.tensor import forget_tensor, out_type, tensor_choice, tensor_kernel, tensor_type
from gemmgen.ir.split import SPLITS
from gemmgen.ir.types import ELEMENT_TYPES, F32
from gemmgen.runtime.arrays import torch_matrices

if TYPE_CHECKING:
    from collections.abc import Callable

    from gemmgen.api.kernel import Kernel
    from gemmgen.dispatch.select import Calls, Choice
    from gemmgen.dispatch.shipped import Winner
    from gemmgen.target import Gpu
    from gemmgen.tune.pool import Layout
    from gemmgen.tune.records import Records
    from gemmgen.tune.rows import Machine, Record
    from gemmgen.tune.shapes import Align, Shape

REMEMBERED = 4096
"""Calls whose kernels are remembered."""


def matmul(
    A: Any,
    B: Any,
    C: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    stream: Any = None,
    *,
    out_dtype: Any = None,
    precision: str = "exact",
    unordered: bool = False,
    bias: Any = None,
    residual: Any = None,
    activation: str | None = None,
) -> Any:
    """C = alpha * (A @ B) + beta * C for float32 matrices, by the kernel that suits their shape, alignment and GPU;
    for bfloat16 and float16 ones by tensor cores, C being of the same type or float32 (``out_dtype``).

    ``A`` is (M, K), ``B`` (K, N), ``C`` (M, N), all on one GPU (torch, CuPy, anything with DLPack), or NumPy arrays; C
    is updated in place and returned, or a new array where it is None (then beta is 0). The kernel is one of the user's
    own records (``gemmgen tune``) of exactly this shape under this driver and NVRTC, else a record that ships with
    gemmgen, else the choice of the model of time (see ``choose``); it is compiled at the first call. Transposed views
    are read as they lie. Without a GPU, NumPy arrays are computed on the simulator, by a kernel without asynchronous
    copies, since those take long to simulate, up to its limit of 10 s. Work on a GPU is enqueued on ``stream``, else
    on the current one, without waiting. ``unordered``: the kernel may add up in no fixed order, where that is faster;
    else the result is the same bit by bit at every call. ``precision`` "tf32" multiplies float32 matrices by tensor
    cores, which read 10 bits of each mantissa; "bf16x6" and "tf32x3" multiply them part by part, as exactly as float32
    nearly, on an sm_90. Raises ArgumentError for operands that do not fit.

    With ``bias`` (N,), ``activation`` (an entry of an epilogue, such as "gelu") or ``residual`` (M, N) the result is
    activation(alpha * (A @ B) + beta * C + bias) + residual, in float32 before one rounding, by the same kernel with
    that epilogue; ``out_dtype`` is the type of C, where it is not that of the kernel. A, B and C may be batches,
    (batch, M, K) and so on, computed in one launch; an operand of two dimensions, or a batch of one, is shared by all.
    """
    if type(unordered) is not bool:
        unordered = flag("unordered", unordered)
    fused = bias is not None or residual is not None or activation is not None
    tensor = tensor_type(A, precision)
    if tensor is not None:
        c = None if C is None else one_product(_signature(C, "C"))
        given = _signature(A, "A"), _signature(B, "B")
        batched = any(len(x[0]) > 2 for x in given)
        a, b = (one_product(x) for x in given)
        found = tensor_kernel(tensor, out_type(tensor, out_dtype, C), a, b, c, batched)
        if fused:
            return Fused(bias, residual, activation, out_dtype).run(found, A, B, C, alpha, beta, stream)
        return found(A, B, C, alpha, beta, stream)
    if precision in SPLITS or fused or out_dtype is not None:
        given, c = (_signature(A, "A"), _signature(B, "B")), None if C is None else _signature(C, "C")
        kernel = split_kernel(precision, *given, c) if precision in SPLITS else _kernel(*given, c, unordered, "direct")
        if fused or out_dtype is not None:
            return Fused(bias, residual, activation, out_dtype).run(kernel, A, B, C, alpha, beta, stream)
        return kernel(A, B, C, alpha, beta, stream)
    seen = None if C is None or stream is not None else torch_matrices(A, B, C)
    if seen is None:
        c = None if C is None else _signature(C, "C")
        kernel = _found(_signature(A, "A"), _signature(B, "B"), c, unordered, stream)
        return kernel(A, B, C, alpha, beta, stream)
    key = seen[0], unordered
    known = _SEEN.get(key) or _SEEN.keep(
        key, _found(_signature(A, "A"), _signature(B, "B"), _signature(C, "C"), unordered, stream)
    )
    return known.of_torch(seen, A, B, C, scalar("alpha", alpha), scalar("beta", beta))


class _Seen:
    """The kernels of calls with torch's own matrices, by what ``torch_matrices`` tells them apart by: the operands of a
    call that repeats are looked at once. A cache, as those of the functions below."""

    def __init__(self) -> None:
        self._kernels: dict[tuple[Any, ...], Kernel] = {}
        self.get = self._kernels.get
        self.clear = self._kernels.clear

    def keep(self, key: tuple[Any, ...], kernel: Kernel) -> Kernel:
        if len(self._kernels) >= REMEMBERED:
            self._kernels.clear()
        self._kernels[key] = kernel
        return kernel


_SEEN = _Seen()


def choice_for(
    m: int,
    n: int,
    k: int,
    align: tuple[int, int, int] | None = None,
    unordered: bool = False,
    layout: Layout = "nn",
) -> Choice:
    """What ``matmul`` uses for a shape on this machine's GPU (or for the H200, where there is none), and why.

    ``align`` are the bytes to which rows (or columns) of A, B and C are aligned; left out, those of packed matrices.
    """
    from gemmgen.tune.shapes import packed

    shape = (m, n, k)
    return _choice(shape, align or packed(shape, layout), here(), unordered, layout)


def choose(
    m: int,
    n: int,
    k: int,
    dtype: str = "f32",
    layout: Layout = "nn",
    batch: int = 1,
    align: tuple[int, int, int] | None = None,
    gpu: str | Gpu | None = None,
) -> Choice:
    """The kernel expected to be the fastest for a product of M x N x K: ``.spec``, ``.source``, ``.expected_s``, the
    ``.gpu`` it is for, and the operands that are ``.copied`` to rows first.

    ``layout`` is two letters, of A and B: "n" for a matrix stored by rows, "t" for one stored by columns, such as
    the view ``W.T``; C is stored by rows. ``align`` are the bytes (16, 8 or 4) to which the rows (columns, of a "t")
    of A, B and C are aligned; left out, those of packed matrices. ``gpu`` is a GPU's name; left out, this machine's,
    else the H200. Sizes may be 0. Nothing is compiled. Raises ArgumentError.
    """
    from gemmgen.dispatch.select import checked_align, checked_question
    from gemmgen.dispatch.select import choose as choose_among
    from gemmgen.dispatch.shipped import shipped
    from gemmgen.target import gpu as gpu_named
    from gemmgen.tune.shapes import packed

    shape, layout = checked_question(m, n, k, dtype, layout, batch)
    align = checked_align(align)
    if dtype != F32.name:
        return tensor_choice(ELEMENT_TYPES[dtype], shape, layout, row_of(here()) if gpu is None else gpu_named(gpu))
    if gpu is None:
        return choice_for(*shape, align, False, layout)
    row = gpu_named(gpu)
    found = shipped(row.arch)
    mine = found is not None and row.title.startswith(found.gpu)
    rows = found.rows if found is not None and mine else ()
    return choose_among(shape, align or packed(shape, layout), row, rows, layout=layout)


def _signature(x: Any, name: str) -> tuple[Any, ...]:
    """What the choice depends on, of one operand: its shape, strides in elements, alignment, and device."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return x.shape, x.stride(), x.data_ptr() & 15, x.get_device() if x.is_cuda else HOST
    if type(x).__module__ == "numpy" and hasattr(x, "shape"):
        return x.shape, (*x.shape[-1:], 1), 0, HOST  # copied to the GPU packed, whatever its strides are
    return _described(x, name)


def _described(x: Any, name: str) -> tuple[Any, ...]:
    from gemmgen.api.operands import host_view, on_device
    from gemmgen.runtime.arrays import view

    if not on_device(x):
        shape = host_view(name, x).shape
        return shape, (*shape[-1:], 1), 0, HOST
    found = view(x, name)
    return found.shape, found.strides, found.address & 15, found.device


def _found(a: tuple[Any, ...], b: tuple[Any, ...], c: tuple[Any, ...] | None, unordered: bool, stream: Any) -> Kernel:
    """The kernel, after tuning where that is asked for and the shape is new."""
    seconds = budget()
    if seconds is not None and a[3] != HOST and not capturing(stream):
        _tuned(a, b, c, unordered, seconds)
    return _kernel(a, b, c, unordered)


@lru_cache(maxsize=REMEMBERED)
def _tuned(a: tuple[Any, ...], b: tuple[Any, ...], c: tuple[Any, ...] | None, unordered: bool, seconds: float) -> None:
    """Tune the shape of operands of these descriptions, where it has no record of the user's."""
    from gemmgen.dispatch.autotune import before_first_call
    from gemmgen.runtime import device as devices
    from gemmgen.tune.gpu import gpu_of

    asked = _question(a, b, c)
    if asked is None:
        return
    shape, align, layout, _ = asked
    choice = _choice(shape, align, a[3], unordered, layout)
    if choice.source != "records" and before_first_call(shape, align, layout, a[3], seconds, gpu_of(devices.get(a[3]))):
        for cached in (_kernel, _kernel_of, _choice, _machine, _own, _stale):
            cached.cache_clear()


@lru_cache(maxsize=REMEMBERED)
def _kernel(
    a: tuple[Any, ...], b: tuple[Any, ...], c: tuple[Any, ...] | None, unordered: bool = False, calls: Calls = "any"
) -> Kernel:
    """The kernel for operands of these descriptions. What does not fit together, the kernel itself refuses."""
    if 3 in (len(a[0]), len(b[0])):
        one = _kernel(one_product(a), one_product(b), None if c is None else one_product(c), unordered, "in place")
        return one.for_batches()
    asked = _question(a, b, c)
    if asked is None:
        matrices = len(a[0]) == len(b[0]) == 2 and (c is None or len(c[0]) == 2)
        return _kernel_of((1, 1, 1), (4, 4, 4), a[3] if matrices else HOST, False)
    shape, align, layout, turned = asked
    if turned and calls != "any":
        (n, m, k), (of_b, of_a, of_c) = shape, align
        shape, align, layout, turned = (m, n, k), (of_a, of_b, of_c), _layout(_letter(a), _letter(b)), False
    return _kernel_of(shape, align, a[3], unordered, layout, turned, calls)


def _question(
    a: tuple[Any, ...], b: tuple[Any, ...], c: tuple[Any, ...] | None
) -> tuple[Shape, Align, Layout, bool] | None:
    """What to choose for: shape, alignment and layout; of C^T = B^T A^T, "turned", where C lies by columns. None for
    operands that do not fit together, or a C that no kernel can write."""
    if len(a[0]) != 2 or len(b[0]) != 2 or (c is not None and len(c[0]) != 2):
        return None
    (m, k), n = a[0], b[0][1]
    if b[0][0] != k or (c is not None and tuple(c[0]) != (m, n)):
        return None
    c = c or ((m, n), (n, 1), 0)
    if n > 1 and c[1][1] != 1 and (m == 1 or c[1][0] != 1):
        return None
    host = len(c) > 3 and c[3] == HOST  # its strides are not told, and a vector may have any
    one, other, lies = _letter(a), _letter(b), "n" if host else _letter(c)
    align = _aligned(a, one), _aligned(b, other), _aligned(c, lies)
    if lies == "n":
        return (m, n, k), align, _layout(one, other), False
    flip = {"n": "t", "t": "n"}
    return (n, m, k), (align[1], align[0], align[2]), _layout(flip[other], flip[one]), True


def _layout(a: str, b: str) -> Layout:
    from gemmgen.tune.pool import LAYOUTS

    return next(layout for layout in LAYOUTS if layout == a + b)


def _letter(described: tuple[Any, ...]) -> str:
    """How a matrix lies: "t" by columns, "n" by rows, or by neither, so that it is copied."""
    (rows, columns), strides = described[:2]
    if rows == 1:
        return "n"
    if columns == 1:
        return "t" if strides[0] == 1 else "n"
    return "t" if strides[0] == 1 and strides[1] != 1 and strides[1] >= rows else "n"


def _aligned(described: tuple[Any, ...], letter: str) -> int:
    """Bytes to which the lines of a matrix are aligned; those of its packed copy, where its strides need one."""
    (rows, columns), strides, address = described[:3]
    if letter == "t":
        (rows, columns), strides = (columns, rows), strides[::-1]
    if columns > 1 and strides[1] != 1:
        strides, address = (columns, 1), 0
    leading = F32.bytes * (strides[0] if rows > 1 else columns)
    return next((w for w in (16, 8) if leading % w == 0 and address % w == 0 and F32.bytes * columns % w == 0), 4)


@lru_cache(maxsize=REMEMBERED)
def _kernel_of(
    shape: Shape,
    align: Align,
    device: int,
    unordered: bool,
    layout: Layout = "nn",
    turned: bool = False,
    calls: Calls = "any",
) -> Kernel:
    """``turned``: the shape and layout are those of C^T = B^T A^T, since C lies by columns."""
    from gemmgen.api.kernel import PATIENCE
    from gemmgen.dispatch.select import by_model
    from gemmgen.runtime import device as devices
    from gemmgen.target import gpu as gpu_named

    gpu = devices.current() if device == HOST else devices.get(device)
    if gpu is None:
        return _shared(by_model(shape, align, gpu_named(SIMULATED_GPU), simple=True), "sim", None, PATIENCE, turned)
    choice = _choice(shape, align, gpu.ordinal, unordered, layout, calls)
    return _shared(choice.spec, "cuda", choice.spec.arch or gpu.arch, None, choice.swapped != turned)


def shared_kernel(spec: Any, device: Any, arch: str | None, patience: float | None) -> Kernel:
    """The one kernel of a spec."""
    return _shared(spec, device, arch, patience)


@lru_cache(maxsize=1024)
def _shared(spec: Any, device: Any, arch: str | None, patience: float | None, swapped: bool = False) -> Kernel:
    """One kernel for all shapes that the same spec serves."""
    from gemmgen.api.kernel import Kernel

    return Kernel(spec, device, arch, patience, swapped=swapped, kept=device == "cuda")


@lru_cache(maxsize=REMEMBERED)
def _choice(
    shape: Shape, align: Align, ordinal: int, unordered: bool, layout: Layout = "nn", calls: Calls = "any"
) -> Choice:
    from gemmgen.dispatch.select import choose as choose_among
    from gemmgen.dispatch.shipped import shipped

    row = row_of(ordinal)
    found = shipped(row.arch)
    machine = None if ordinal == HOST else _machine(ordinal)
    own = () if machine is None else _own(machine.gpu, unordered, machine)
    stale = () if machine is None else _stale(machine, unordered)
    return choose_among(shape, align, row, () if found is None else found.rows, own, unordered, stale, layout, calls)


@lru_cache(maxsize=16)
def _machine(ordinal: int) -> Machine | None:
    """What a record must have been measured on to hold for a GPU today; None where there are no records to ask."""
    from gemmgen.runtime import device as devices
    from gemmgen.tune.gpu import machine_of
    from gemmgen.tune.records import default_path

    return machine_of(devices.get(ordinal)) if default_path().is_file() else None


@lru_cache(maxsize=16)
def _own(gpu: str | None, unordered: bool = False, machine: Machine | None = None) -> tuple[Winner, ...]:
    """The user's own records for a GPU, and under the driver and NVRTC of ``machine`` where it is given; read once."""
    if gpu is None:
        return ()
    return _recorded(lambda book: book.best(gpu, unordered=unordered, machine=machine))


@lru_cache(maxsize=16)
def _stale(machine: Machine, unordered: bool = False) -> tuple[Winner, ...]:
    """The user's records for the machine's GPU that were measured under another driver or NVRTC; read once."""
    return _recorded(lambda book: book.stale(machine, unordered=unordered))


def _recorded(wanted: Callable[[Records], list[Record]]) -> tuple[Winner, ...]:
    """Records of the user's file; none where there is no such file. One that cannot be read is warned of, and so are
    its damaged rows."""
    from gemmgen.dispatch.shipped import winners
    from gemmgen.tune.records import READ_WAIT_S, Records, RecordsError, RecordsWarning, default_path

    if not default_path().is_file():
        return ()
    try:
        with Records(write=False, wait_s=READ_WAIT_S) as book:
            found = winners(wanted(book))
            book.warn()
        return found
    except RecordsError as error:
        warnings.warn(f"records are not used: {error}", RecordsWarning, stacklevel=2)
        return ()


def forget() -> None:
    """Choose anew at the next calls, for example after tuning in this process."""
    for cached in (_kernel, _kernel_of, _shared, _choice, _machine, _own, _stale, _tuned):
        cached.cache_clear()
    forget_tensor()
    forget_split()
    _SEEN.clear()
