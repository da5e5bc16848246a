"""Arrays of any library as addresses, shapes and strides, and the stream that a caller works on.

torch and CuPy are read through their own attributes (a microsecond an array), everything else that lives on a GPU
through DLPack or ``__cuda_array_interface__``. Nothing is imported that the caller has not imported.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import Any, Literal

from gemmgen.diagnostics import ArgumentError
from gemmgen.ir.types import BF16, numpy_dtype
from gemmgen.runtime.driver import LEGACY_STREAM
from gemmgen.runtime.memory import DeviceArray, download_view
from gemmgen.runtime.views import HOST as HOST
from gemmgen.runtime.views import ArrayView as ArrayView


def view(x: Any, name: str = "array", stream: int = 0) -> ArrayView:
    """``x`` as it lies in memory. ``stream`` is where it will be used: work of other libraries is ordered before that.

    Raises ArgumentError, naming the operand, for what is no array, requires grad, or cannot be described so.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return _torch(x, name)
    if _is_cupy(x):
        return _cupy(x, name)
    if type(x).__module__ == "numpy" or hasattr(x, "__array_interface__"):
        return _numpy(x, name)
    if isinstance(x, DeviceArray):
        return ArrayView(x.address, x.shape, x.strides, x.dtype, x.device, False, "cuda", x)
    if hasattr(x, "__dlpack__") or hasattr(x, "__cuda_array_interface__"):
        return _foreign(x, name, stream)
    raise ArgumentError(f"{name} is a {type(x).__name__}; it must be an array, such as numpy.ndarray or torch.Tensor")


TorchMatrices = tuple[tuple[Any, ...], int, int, int, int]
"""What ``torch_matrices`` says of a call."""


def torch_matrices(A: Any, B: Any, C: Any) -> TorchMatrices | None:
    """What tells a call with three of torch's own CUDA tensors from others: (key, GPU, addresses of A, B and C).

    Calls with equal keys have operands of the same shapes, strides, type and alignment, all on one GPU. None for
    anything that is to be looked at more closely: other types, gradients, pending signs, several GPUs.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    plain = torch.Tensor
    if type(A) is not plain or type(B) is not plain or type(C) is not plain:
        return None
    device, dtype = A.get_device(), A.dtype
    if (
        A.requires_grad or B.requires_grad or C.requires_grad
        or not (A.is_cuda and B.is_cuda and C.is_cuda)
        or B.get_device() != device or C.get_device() != device
        or B.dtype is not dtype or C.dtype is not dtype
        or A.is_neg() or B.is_neg() or C.is_neg()
    ):  # fmt: skip
        return None
    try:
        a, b, c = A.data_ptr(), B.data_ptr(), C.data_ptr()
        # The strides of a contiguous matrix follow from its shape, and it is cheaper to ask whether it is one.
        key = (
            A.shape, A.is_contiguous() or A.stride(), B.shape, B.is_contiguous() or B.stride(),
            C.shape, C.is_contiguous() or C.stride(), dtype, device, a & 15 | (b & 15) << 4 | (c & 15) << 8,
        )  # fmt: skip
    except RuntimeError:  # no dense memory
        return None
    return key, device, a, b, c


def torch_stream(device: int) -> int:
    """The stream that torch has current on a GPU, where torch is there."""
    return _torch_stream(sys.modules["torch"], device)


def torch_new(A: Any, B: Any, dtype: str) -> Any:
    """A new tensor for A @ B in row order, of the type ``dtype``, where both are torch's own CUDA matrices; else None.

    It may be used on torch's current stream at once.
    """
    torch = sys.modules.get("torch")
    if torch is None or type(A) is not torch.Tensor or type(B) is not torch.Tensor:
        return None
    if not A.is_cuda or A.dim() != 2 or B.dim() != 2 or A.requires_grad:
        return None
    shape = A.shape[0], B.shape[1]
    return A.new_empty(shape) if _torch_dtype(A.dtype) == dtype else A.new_empty(shape, dtype=getattr(torch, dtype))


def stream_pointer(stream: Any) -> int:
    """The handle of a stream of any library, or of an int. Raises ArgumentError for anything else."""
    if isinstance(stream, int):
        return stream
    if (protocol := getattr(stream, "__cuda_stream__", None)) is not None:
        pair = protocol() if callable(protocol) else protocol
        return int(pair[1])
    for attribute in ("cuda_stream", "ptr", "handle"):  # torch, CuPy, others
        if (handle := getattr(stream, attribute, None)) is not None:
            return int(handle)
    raise ArgumentError(f"stream is a {type(stream).__name__}; it must be a CUDA stream, such as torch.cuda.Stream")


def current_stream(*arrays: Any) -> int:
    """The stream on which the caller works with these arrays: that of torch or CuPy, whichever's array comes first.

    Else the legacy default stream, which waits for the others.
    """
    torch = sys.modules.get("torch")
    for x in arrays:
        if torch is not None and isinstance(x, torch.Tensor) and x.is_cuda:
            return _torch_stream(torch, x.get_device())
        if _is_cupy(x):
            return int(sys.modules["cupy"].cuda.get_current_stream(x.device.id).ptr)
    return LEGACY_STREAM


def empty(like: ArrayView, shape: tuple[int, ...], dtype: str, order: str, stream: int) -> Any:
    """A new matrix of the same library and GPU as ``like``, contiguous along rows (order "row") or columns ("col"); or
    a batch of them.

    It may be used on ``stream`` at once. Raises LaunchError where memory runs out.
    """
    match like.kind:
        case "torch":
            return _torch_empty(like, shape, dtype, order, stream)
        case "cupy":
            cupy = sys.modules["cupy"]
            with like.owner.device, _cupy_stream(cupy, stream):
                made = cupy.empty(_laid(shape, order), dtype)
                return made if order == "row" else made.swapaxes(-1, -2)
        case "cuda":
            return DeviceArray.empty(shape, dtype, like.device, order=order)
        case "numpy":
            import numpy as np

            new = np.empty(_laid(shape, order), numpy_dtype(dtype))
            return new if order == "row" else new.swapaxes(-1, -2)


def _laid(shape: tuple[int, ...], order: str) -> tuple[int, ...]:
    """The shape with the contiguous dimension last."""
    return shape if order == "row" else (*shape[:-2], shape[-1], shape[-2])


def to_host(x: Any) -> Any:
    """The values of an array as a NumPy array: its own memory where that is the host's, else a copy.

    The copy waits for the caller's current stream.
    """
    import numpy as np

    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        values = x.detach().cpu()
        if values.dtype is torch.bfloat16:  # which torch gives no NumPy array of
            return values.view(torch.int16).numpy().view(BF16.numpy_dtype)
        return values.numpy()
    if _is_cupy(x):
        return x.get()
    if type(x).__module__ == "numpy" or hasattr(x, "__array_interface__"):
        return np.asarray(x)
    if isinstance(x, DeviceArray):
        return x.numpy()
    found = _foreign(x, "array", LEGACY_STREAM)
    return np.from_dlpack(x) if found.device == HOST else download_view(found)


# --- One library each ------------------------------------------------------------------------------------------------


def _torch(x: Any, name: str) -> ArrayView:
    if x.requires_grad:
        raise ArgumentError(f"{name} requires grad, and a kernel has no gradient; pass {name}.detach()")
    torch = sys.modules["torch"]
    if x.layout is not torch.strided:
        raise ArgumentError(f"{name} is stored as {x.layout}; it must be dense: pass {name}.to_dense()")
    if x.is_neg() or x.is_conj():
        raise ArgumentError(f"{name} is a view with its sign pending; pass {name}.resolve_neg().resolve_conj()")
    device = x.get_device() if x.is_cuda else HOST
    if device == HOST and x.device.type != "cpu":
        raise ArgumentError(f"{name} is on {x.device}; it must be on the host or on a CUDA device")
    address = x.data_ptr()
    if address & (x.element_size() - 1):
        _refuse_odd_address(name, address, x.element_size())
    return ArrayView(address, x.shape, x.stride(), _torch_dtype(x.dtype), device, False, "torch", x)


@functools.cache
def _torch_dtype(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _torch_stream(torch: Any, device: int) -> int:
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # 0.1 microseconds, the public call takes up to 7
    return int(raw(device) if raw is not None else torch.cuda.current_stream(device).cuda_stream)


def _torch_empty(like: ArrayView, shape: tuple[int, ...], dtype: str, order: str, stream: int) -> Any:
    torch = sys.modules["torch"]
    size = _laid(shape, order)
    if stream == _torch_stream(torch, like.device):
        out = torch.empty(size, dtype=getattr(torch, dtype), device=like.owner.device)
    else:  # torch hands out memory that is free on the current stream, so the stream of use must be current
        with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=like.owner.device)):
            out = torch.empty(size, dtype=getattr(torch, dtype), device=like.owner.device)
    return out if order == "row" else out.mT


def _is_cupy(x: Any) -> bool:
    cupy = sys.modules.get("cupy")
    return cupy is not None and hasattr(cupy, "ndarray") and isinstance(x, cupy.ndarray)


class _Handle:
    """A stream's handle as other libraries take it."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def _cupy_stream(cupy: Any, handle: int) -> Any:
    """CuPy's stream of a handle: a context in which CuPy works on it."""
    made = getattr(cupy.cuda.Stream, "from_external", None)  # from CuPy 14 on; before, only the other
    return cupy.cuda.ExternalStream(handle) if made is None else made(_Handle(handle))


def _cupy(x: Any, name: str) -> ArrayView:
    dtype, size = x.dtype, x.itemsize
    strides = _in_elements(name, x.strides, size)
    address = int(x.data.ptr)
    if address % size:
        _refuse_odd_address(name, address, size)
    return ArrayView(address, x.shape, strides, dtype.name, x.device.id, False, "cupy", x)


def _numpy(x: Any, name: str) -> ArrayView:
    import numpy as np

    if isinstance(x, np.ma.MaskedArray):
        raise ArgumentError(f"{name} is a masked array, and a kernel knows no mask; pass {name}.filled(0)")
    values = np.asarray(x)
    dtype = values.dtype.name if values.dtype.isnative else values.dtype.str
    address = int(values.__array_interface__["data"][0])
    strides = _in_elements(name, values.strides, values.itemsize)
    return ArrayView(address, values.shape, strides, dtype, HOST, not values.flags.writeable, "numpy", values)


def _foreign(x: Any, name: str, stream: int) -> ArrayView:
    """An array of another library, by DLPack or ``__cuda_array_interface__``."""
    from cuda.core.utils import StridedMemoryView

    try:
        # A stream handle of 0 is not allowed by DLPack; 1 is the same stream.
        found = StridedMemoryView.from_any_interface(_of_today(x), stream_ptr=stream or LEGACY_STREAM)
    except Exception as e:  # the exporting library's own errors are of any type
        reason = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise ArgumentError(f"{name} of type {type(x).__name__} cannot be read as a device array: {reason}") from e
    if found.dtype is None:
        raise ArgumentError(f"{name} of type {type(x).__name__} has an element type that NumPy does not know")
    shape = tuple(found.shape)
    strides = tuple(found.strides) if found.strides is not None else _contiguous(shape)
    address, size = int(found.ptr), found.dtype.itemsize
    if address % size:
        _refuse_odd_address(name, address, size)
    device = int(found.device_id) if found.is_device_accessible else HOST
    kind: Literal["cuda", "numpy"] = "cuda" if device != HOST else "numpy"
    return ArrayView(address, shape, strides, found.dtype.name, device, bool(found.readonly), kind, (x, found))


@dataclass(frozen=True)
class _Version3:
    """An array that offers an older ``__cuda_array_interface__``, which knows no stream, as one of today."""

    array: Any

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.array.__cuda_array_interface__, "version": 3, "stream": None}


def _of_today(x: Any) -> Any:
    """The array, or what presents it in the version of ``__cuda_array_interface__`` that cuda.core reads."""
    if hasattr(x, "__dlpack__"):
        return x
    offered = getattr(x, "__cuda_array_interface__", None)
    return _Version3(x) if isinstance(offered, dict) and offered.get("version", 0) == 2 else x


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def _in_elements(name: str, strides: tuple[int, ...], size: int) -> tuple[int, ...]:
    if any(s % size for s in strides):
        raise ArgumentError(f"{name} has strides of {strides} bytes, no multiples of its {size}-byte elements")
    return tuple(s // size for s in strides)


def _refuse_odd_address(name: str, address: int, size: int) -> None:
    if address % size:
        raise ArgumentError(f"{name} begins at address {address:#x}, which is no multiple of its {size}-byte elements")
