"""Arrays and streams of any library, described without a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gemmgen.diagnostics import ArgumentError
from gemmgen.runtime import arrays
from gemmgen.runtime.arrays import HOST, current_stream, stream_pointer, to_host, torch_matrices, view

ROOT = Path(__file__).resolve().parent.parent


def test_g14_strides_are_in_elements_and_may_be_anything() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    start = x.__array_interface__["data"][0]
    whole = view(x)
    assert (whole.address, whole.shape, whole.strides, whole.dtype) == (start, (4, 6), (6, 1), "float32")
    assert (whole.device, whole.read_only, whole.kind) == (HOST, False, "numpy")
    assert view(x.T).strides == (1, 6)
    assert view(x[::-1, ::2]).strides == (-6, 2)
    assert view(x[::-1]).address == start + 3 * 24
    assert view(np.broadcast_to(x[0], (5, 6))).strides == (0, 1)
    assert view(np.broadcast_to(x[0], (5, 6))).read_only
    assert view(x[1:, 1:]).address == start + 28


def test_g13_element_types_are_told_apart_byte_order_included() -> None:
    for dtype in ("float64", "int32", "float16", "complex64", "bool"):
        assert view(np.zeros((2, 2), dtype)).dtype == dtype
    assert view(np.zeros((2, 2), ">f4")).dtype == ">f4"


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([[1.0, 2.0]], "A is a list; it must be an array"),
        (None, "A is a NoneType"),
        (3.0, "A is a float"),
        (np.ma.masked_array(np.zeros((2, 2)), mask=True), "A is a masked array"),
        (np.zeros((4,), [("a", "f4"), ("b", "u1")])["a"], r"A has strides of \(5,\) bytes"),
    ],
)
def test_what_is_no_usable_array_is_named(x: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        view(x, "A")


class Tensor:
    """As much of torch.Tensor as is read."""

    def __init__(self, **changes: object) -> None:
        self.requires_grad = False
        self.layout = "strided"
        self.is_cuda = True
        self.dtype = "torch.float32"
        self.shape = (4, 6)
        self.device = SimpleNamespace(type="cuda")
        self.address = 4096
        self.neg = False
        self.gpu = 1
        self.sparse = False
        self.__dict__.update(changes)

    def is_neg(self) -> bool:
        return self.neg

    def is_conj(self) -> bool:
        return False

    def get_device(self) -> int:
        return self.gpu

    def data_ptr(self) -> int:
        if self.sparse:
            raise RuntimeError("no dense memory")
        return self.address

    def stride(self) -> tuple[int, ...]:
        return (8, 1)

    def element_size(self) -> int:
        return 4

    def is_contiguous(self) -> bool:
        return self.shape[1] == 8


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A torch that is imported, with the current stream of GPU 1 at 77."""
    fake = SimpleNamespace(
        Tensor=Tensor, strided="strided", _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 76 + device)
    )
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def test_a_torch_tensor_is_read_by_its_own_attributes(torch: SimpleNamespace) -> None:
    tensor = Tensor()
    found = view(tensor)
    assert found == (4096, (4, 6), (8, 1), "float32", 1, False, "torch", tensor)
    assert view(Tensor(dtype="torch.bfloat16")).dtype == "bfloat16"
    host = view(Tensor(is_cuda=False, device=SimpleNamespace(type="cpu")))
    assert host.device == HOST


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"requires_grad": True}, r"B requires grad.*B\.detach\(\)"),
        ({"layout": "sparse_csr"}, "B is stored as sparse_csr"),
        ({"neg": True}, "B is a view with its sign pending"),
        ({"is_cuda": False, "device": SimpleNamespace(type="mps")}, "B is on"),
        ({"address": 4098}, "B begins at address 0x1002"),
    ],
)
def test_torch_tensors_that_memory_does_not_show(torch: object, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        view(Tensor(**changes), "B")


def test_a_quick_look_tells_calls_apart(torch: SimpleNamespace) -> None:
    found = torch_matrices(Tensor(), Tensor(address=4100), Tensor(address=8192))
    assert found is not None
    key, *rest = found
    assert rest == [1, 4096, 4100, 8192]
    same = torch_matrices(Tensor(address=1 << 40), Tensor(address=(1 << 41) + 4), Tensor(address=1 << 42))
    assert same is not None and same[0] == key and hash(same[0]) == hash(key)
    for i in range(3):
        for other in ({"shape": (5, 6)}, {"shape": (4, 8)}, {"address": 8200}):
            tensors = [Tensor(address=address) for address in (4096, 4100, 8192)]
            tensors[i] = Tensor(**other)
            changed = torch_matrices(*tensors)
            assert changed is not None and changed[0] != key


@pytest.mark.parametrize("position", range(3))
@pytest.mark.parametrize(
    "changes",
    [
        {"requires_grad": True}, {"is_cuda": False}, {"dtype": "torch.float64"}, {"neg": True}, {"gpu": 2},
        {"sparse": True},
    ],
)  # fmt: skip
def test_a_quick_look_leaves_to_a_closer_one_what_is_not_plain(
    torch: SimpleNamespace, changes: dict[str, object], position: int
) -> None:
    tensors = [Tensor(**changes) if i == position else Tensor() for i in range(3)]
    assert torch_matrices(*tensors) is None


def test_a_quick_look_is_for_torchs_own_type_alone(torch: SimpleNamespace) -> None:
    class Own(Tensor):
        pass

    assert torch_matrices(Tensor(), Own(), Tensor()) is None
    assert torch_matrices(Tensor(), np.zeros((4, 6)), Tensor()) is None


def test_the_current_stream_is_that_of_the_callers_library(torch: SimpleNamespace) -> None:
    assert current_stream(Tensor(), None) == 77
    assert current_stream(np.zeros(3), Tensor()) == 77
    assert current_stream(np.zeros(3)) == 1
    public = SimpleNamespace(current_stream=lambda device: SimpleNamespace(cuda_stream=100 + device))
    torch._C, torch.cuda = SimpleNamespace(), public  # a torch without the quick way
    assert current_stream(Tensor()) == 101


def test_streams_of_any_library() -> None:
    assert stream_pointer(5) == 5
    assert stream_pointer(SimpleNamespace(__cuda_stream__=lambda: (0, 6))) == 6
    assert stream_pointer(SimpleNamespace(__cuda_stream__=(0, 7))) == 7
    assert stream_pointer(SimpleNamespace(cuda_stream=8)) == 8
    assert stream_pointer(SimpleNamespace(ptr=9)) == 9
    with pytest.raises(ArgumentError, match="stream is a str"):
        stream_pointer("default")


def test_the_host_reads_its_own_memory() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.shares_memory(to_host(x), x)


def test_reading_host_arrays_imports_no_cuda() -> None:
    code = (
        "import sys, numpy as np\n"
        "from gemmgen.runtime.arrays import view\n"
        "view(np.zeros((2, 2)))\n"
        "assert 'cuda' not in sys.modules and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_contiguous_strides() -> None:
    assert arrays._contiguous((4, 6)) == (6, 1)
    assert arrays._contiguous((2, 3, 5)) == (15, 5, 1)
    assert arrays._contiguous(()) == ()
