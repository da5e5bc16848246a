"""What a caller passed: arrays of the host described without copying, and the checks on types, shapes and scalars."""

from __future__ import annotations

import numbers
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from gemmgen.diagnostics import ArgumentError
from gemmgen.ir.types import BF16, U8
from gemmgen.ir.types import ELEMENT_TYPES as TYPES
from gemmgen.launch.batches import product_shape
from gemmgen.launch.placement import OPERANDS, WIDEST

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gemmgen.ir.types import Matrix as Operand

    Host: TypeAlias = "NDArray[Any]"

_HOST = (1, 3)  # DLPack device types whose memory the host can read: kDLCPU, kDLCUDAHost
PAGE = 256  # what allocations on a device are aligned to, in bytes


class Typed(Protocol):
    """What says how the operands of a product lie: a spec, or a program."""

    @property
    def name(self) -> str: ...
    @property
    def matrices(self) -> tuple[Operand, ...]: ...


def on_device(x: Any) -> bool:
    """Whether an array lies in the memory of a device."""
    cuda = getattr(x, "is_cuda", None)
    if isinstance(cuda, bool):  # torch: faster than asking through DLPack
        return cuda
    kind = getattr(x, "__dlpack_device__", None)
    if kind is not None:
        try:
            return int(kind()[0]) not in _HOST
        except Exception:  # of any type; what it cannot say, __dlpack__ is asked next
            return False
    return hasattr(x, "__cuda_array_interface__")


def refuse_gradients(name: str, x: Any) -> None:
    """Raise ArgumentError for a torch tensor that is part of a graph of gradients: a kernel would cut it unseen."""
    if getattr(x, "requires_grad", False):
        raise ArgumentError(f"{name} requires grad, and a kernel has no gradient; pass {name}.detach()")


def host_view(name: str, x: Any) -> Host:
    """A NumPy array over the same memory as a host array of any library. Raises ArgumentError for anything else."""
    import numpy as np

    refuse_gradients(name, x)
    if isinstance(x, np.ma.MaskedArray):
        raise ArgumentError(f"{name} is a masked array, and a kernel knows no mask; pass {name}.filled(0)")
    if isinstance(x, np.ndarray | np.generic):
        return np.asarray(x)
    if on_device(x):
        raise ArgumentError(
            f"{name} is on a device, and this runs on the host; copy it to the host, or use device='cuda'"
        )
    if not hasattr(x, "__dlpack__"):
        raise ArgumentError(
            f"{name} is a {type(x).__name__}; it must be an array, such as numpy.ndarray or torch.Tensor"
        )
    if str(getattr(x, "dtype", "")) == "torch.bfloat16":  # which torch gives no NumPy array of
        bits = x.view(sys.modules["torch"].int16).numpy()
        same: Host = bits.view(BF16.numpy_dtype)
        return same
    try:
        return np.asarray(x) if hasattr(x, "__array__") else np.from_dlpack(x)
    except Exception as error:  # the exporting library's own errors are of any type
        kind = getattr(x, "dtype", type(x).__name__)
        raise ArgumentError(f"{name} of type {kind} cannot be read by NumPy: {error}") from None


def host_array(name: str, x: Any) -> Host:
    """The values of a host or device array as a NumPy array, copied from a device where it must be."""
    import numpy as np

    if hasattr(x, "detach"):
        x = x.detach()
    if not isinstance(x, np.ndarray) and on_device(x):
        from gemmgen.runtime.arrays import to_host

        x = to_host(x)
    return host_view(name, x)


def native(x: Host) -> Host:
    """The array in the machine's byte order."""
    return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))


def real(name: str, x: Host) -> Host:
    """The array in the machine's byte order. Raises ArgumentError where its elements are no real floating-point
    numbers."""
    if x.dtype.kind != "f" and x.dtype.name not in {t.numpy for t in TYPES.values()}:
        raise ArgumentError(f"{name} has element type {x.dtype}; real floating-point numbers are wanted, as float32")
    return native(x)


def scalar(name: str, value: Any) -> float:
    """A real number as a float, Python's or NumPy's. Raises ArgumentError for anything else."""
    if type(value) is float:
        return value
    if getattr(value, "ndim", None) == 0 and type(value).__module__ == "numpy":
        value = value.item()
    if not isinstance(value, numbers.Real):
        raise ArgumentError(f"{name} is a {type(value).__name__}; it must be a real number")
    try:
        return float(value)
    except OverflowError:
        raise ArgumentError(f"{name} is too large for a float") from None


def shape_of(a: Host, b: Host, c0: Host | None, beta: float) -> tuple[int, int]:
    """The shape of alpha * (A @ B) + beta * C0. Raises ArgumentError where they do not fit."""
    for name, x in (("A", a), ("B", b)) + ((("C0", c0),) if c0 is not None else ()):
        if x.ndim != 2:
            raise ArgumentError(f"{name} has {x.ndim} dimensions; a matrix has 2")
    if a.shape[1] != b.shape[0]:
        raise ArgumentError(f"A is {a.shape[0]}x{a.shape[1]} and B is {b.shape[0]}x{b.shape[1]}: they do not multiply")
    shape = (int(a.shape[0]), int(b.shape[1]))
    if c0 is None and beta != 0.0:
        raise ArgumentError(f"beta is {beta}, which needs C0, the values of C before the call")
    if c0 is not None and c0.shape != shape:
        raise ArgumentError(f"C0 has shape {c0.shape}; A @ B has {shape}")
    return shape


@dataclass(frozen=True)
class Matrix:
    """A host array as a kernel sees it: ``strides`` in elements, ``address`` in bytes. What an epilogue reads may have
    other than two dimensions."""

    values: Host
    strides: tuple[int, ...]
    address: int

    @classmethod
    def of(cls, values: Host) -> Matrix:
        item = values.itemsize
        return cls(values, tuple(s // item for s in values.strides), int(values.__array_interface__["data"][0]))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(n) for n in self.values.shape)

    @property
    def writable(self) -> bool:
        return bool(self.values.flags.writeable)

    def flat(self, offset: int, length: int) -> Host:
        """A view of ``length`` elements of the memory that it lies in, from ``offset`` elements after its first."""
        return _strided(self.values, (offset + length,), (self.values.itemsize,))[offset:]

    @property
    def phase(self) -> int:
        """The address modulo 256 that the matrix would have on a device, where allocations start at a multiple of 256:
        a view starts where it starts in its buffer, whatever the host's allocator did."""
        root = self.values
        while (base := _beneath(root)) is not None:
            root = base
        start = int(root.__array_interface__["data"][0])
        foreign = not root.flags.owndata or start % WIDEST != 0
        return (self.address - (0 if foreign else start)) % PAGE

    def twin(self) -> Matrix:
        """A copy that lies in memory as this one does: the same strides, and the same phase in a buffer of its own."""
        import numpy as np

        if self.values.size == 0:
            return Matrix.of(self.values.copy())
        item = self.values.itemsize
        skip = self.phase // item
        reach = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        buffer = np.empty(skip + reach + 1, self.values.dtype)
        values = _strided(buffer[skip:], self.shape, tuple(s * item for s in self.strides))
        values[...] = self.values
        return Matrix.of(values)


def _strided(x: Host, shape: tuple[int, ...], strides: tuple[int, ...]) -> Host:
    """A view of an array's memory. NumPy cannot describe float8's types there, and is shown bytes instead."""
    import numpy as np

    plain = x.view(U8.numpy_dtype) if x.itemsize == 1 else x
    found: Host = np.lib.stride_tricks.as_strided(plain, shape, strides, writeable=bool(x.flags.writeable))
    return found.view(x.dtype)


def _beneath(view: Host) -> Host | None:
    """The NumPy array that a view was made of; None for one that is no view, or is one of foreign memory."""
    import numpy as np

    base = view.base
    if not isinstance(base, np.ndarray):
        base = getattr(base, "base", None)  # what as_strided puts between the two
    return base if isinstance(base, np.ndarray) else None


def matrix(name: str, x: Any, spec: Typed) -> Matrix:
    """A host array as an operand of a spec's kernel. Raises ArgumentError where its type or shape does not fit."""
    values = host_view(name, x)
    # The byte order stands in the name where it is not the machine's.
    refuse_kind(name, values.shape, values.dtype.name if values.dtype.isnative else values.dtype.str, spec)
    item = values.itemsize
    if any(s % item for n, s in zip(values.shape, values.strides, strict=True) if n > 1):
        if name == "C":
            raise ArgumentError(f"C has strides of {values.strides} bytes, which are no multiples of {item}")
        values = values.copy()
    return Matrix.of(values)


def refuse_kind(name: str, shape: tuple[int, ...], dtype: str, spec: Typed) -> None:
    """Raise ArgumentError where an operand is no matrix, or not of the spec's element type."""
    batched = spec.matrices[2].batch
    if len(shape) != 2 and not (batched and len(shape) == 3):
        or_3 = ", and a batch of them 3" if batched else ""
        raise ArgumentError(f"{name} has {len(shape)} dimensions, shape {tuple(shape)}; a matrix has 2{or_3}")
    wanted = element_type(spec, name)
    if dtype != wanted:
        raise ArgumentError(f"{name} has element type {dtype}; the kernel {spec.name!r} wants {wanted}")


def element_type(spec: Typed, name: str) -> str:
    """The element type of operand "A", "B" or "C", as NumPy names it."""
    return next(x.dtype.numpy for x in spec.matrices if x.name == name)


def matrices(A: Any, B: Any, C: Any, spec: Typed) -> dict[str, Matrix]:
    """The three operands of a product on the host."""
    given = {"A": A, "B": B, "C": C}
    return {name: matrix(name, given[name], spec) for name in OPERANDS}


def output_for(A: Any, B: Any, spec: Typed, beta: float) -> Any:
    """A new C, not set to anything, of A's kind (a torch tensor where A is one) in the spec's type and order.

    Raises ArgumentError where beta asks for a C that was not passed, or A or B is no host matrix of the spec's type.
    """
    import numpy as np

    refuse_beta(beta)
    shape = product_shape(matrix("A", A, spec).shape, matrix("B", B, spec).shape)
    row = spec.matrices[2].order == "row"
    lies = shape if row else (*shape[:-2], *shape[:-3:-1])
    if hasattr(A, "new_empty"):
        made = A.new_empty(lies, dtype=getattr(sys.modules["torch"], element_type(spec, "C")))
        return made if row else made.mT
    found = np.empty(lies, spec.matrices[2].dtype.numpy_dtype)
    return found if row else found.swapaxes(-1, -2)


def refuse_beta(beta: float) -> None:
    """Raise ArgumentError where beta asks for a C that was not passed."""
    if beta != 0.0:
        raise ArgumentError(f"beta is {beta} and C is None: there is no C to add; pass C, or beta=0")
