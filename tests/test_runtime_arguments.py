"""The bytes that a launch hands to the driver: configuration, arguments, tensor maps. Needs no GPU."""

from __future__ import annotations

import ctypes
import re
import struct
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from played import GPU

import gemmgen
from gemmgen.cuda.emit import emit_cuda
from gemmgen.diagnostics import LaunchError
from gemmgen.ir.kernel import TensorMap
from gemmgen.ir.nodes import shape_of, size_bytes
from gemmgen.ir.types import ELEMENT_TYPES, F32
from gemmgen.ir.types import Matrix as Operand
from gemmgen.launch import EXACT, Arguments, Launch
from gemmgen.runtime import tensormap
from gemmgen.runtime.launch import check_architecture
from gemmgen.runtime.tensormap import Matrix, maps_of

LIES = {order: Operand("A", ("m", "k"), F32, order) for order in ("row", "col")}

# --- The bytes of the arguments --------------------------------------------------------------------------------------


class _C(ctypes.Structure):
    """The parameters of a kernel, by a C compiler's rules."""

    _fields_ = (
        ("M", ctypes.c_int), ("N", ctypes.c_int), ("K", ctypes.c_int), ("alpha", ctypes.c_float),
        ("A", ctypes.c_void_p), ("lda", ctypes.c_size_t), ("B", ctypes.c_void_p), ("ldb", ctypes.c_size_t),
        ("beta", ctypes.c_float), ("C", ctypes.c_void_p), ("ldc", ctypes.c_size_t),
    )  # fmt: skip


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint),
    )  # fmt: skip


class Driver:
    """cuLaunchKernelEx that notes what it is given, each argument read by its C type."""

    def __init__(self, params: Any) -> None:
        self.types = [dict(_C._fields_).get(p.name, ctypes.c_ubyte * 128) for p in params]
        self.seen: list[dict[str, Any]] = []

    def __call__(self, config: int, handle: int, pointers: int, extra: None) -> int:
        c = _Config.from_address(config)
        at = (ctypes.c_void_p * len(self.types)).from_address(pointers)
        found = [t.from_address(p or 0) for t, p in zip(self.types, at, strict=True)]
        self.seen.append({
            "grid": tuple(c.grid), "block": tuple(c.block), "shared": c.shared, "stream": c.stream, "handle": handle,
            "attributes": (c.attributes, c.count),
            "values": [bytes(v) if isinstance(v, ctypes.Array) else v.value for v in found],
        })  # fmt: skip
        return 0


def module_of(text: str) -> tuple[Any, Driver]:
    """A module whose kernel is on no GPU."""
    from gemmgen.runtime.launch import GpuModule

    module = GpuModule.__new__(GpuModule)
    module.ir = gemmgen.lower(gemmgen.parse(text))
    module.name, module.threads, module.handle = "small", module.ir.threads, 9 << 40
    module.shared_bytes = module.ir.shared_bytes
    driver = Driver(module.ir.params)
    module._launch = driver
    return module, driver


SMALL = "kernel small\ntile block 64x64x8\ntile thread 8x8\nuse smem, transposeA, float4, coalescing\n"
ENGINE = (
    "kernel engine\ntile block 128x128x32\ntile warp 32x128\ntile thread 1x4\nstages 3\n"
    "use coalescing, smem, float4, warptile(m_iter=8, n_iter=4), tma, alongK, smemSwizzle\n"
)
ARGUMENTS = Arguments(128, 192, 64, 0.1, 0, 1 << 33, 16, 7, -2.5, 32, 1 << 34)


def test_g13_scalars_and_addresses_have_the_c_types_of_the_kernel() -> None:
    module, driver = module_of(SMALL)
    bound = module.bind(Launch(EXACT, (3, 2, 1), ARGUMENTS))
    for shift in (0, 64):
        bound((1 << 40) + shift, 5 << 40, 9 << 40, 0, 77)
        seen = driver.seen[-1]
        assert (seen["grid"], seen["block"], seen["shared"]) == ((3, 2, 1), (64, 1, 1), module.shared_bytes)
        assert (seen["stream"], seen["handle"], seen["attributes"]) == (77, 9 << 40, (None, 0))
        assert seen["values"] == [
            128, 192, 64, struct.unpack("f", struct.pack("f", 0.1))[0], (1 << 40) + shift, 1 << 33, (5 << 40) + 64, 7,
            -2.5, (9 << 40) + 128, 1 << 34,
        ]  # fmt: skip


def test_a_launch_may_be_made_by_many_threads_at_once() -> None:
    """No two launches share the bytes of their arguments: each sees the addresses of its own thread."""
    module, driver = module_of(SMALL)
    bound = module.bind(Launch(EXACT, (3, 2, 1), ARGUMENTS))

    def slow(config: int, handle: int, pointers: int, extra: None) -> int:
        time.sleep(0.0005)  # the driver runs without the interpreter's lock
        return driver(config, handle, pointers, extra)

    module._launch = slow

    def work(number: int) -> None:
        for _ in range(20):
            bound(number << 40, number << 40, number << 40, 0, number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(driver.seen) == 160
    for seen in driver.seen:
        number = seen["stream"]
        assert [seen["values"][i] for i in (4, 6, 9)] == [number << 40, (number << 40) + 64, (number << 40) + 128]


def test_a_launch_that_fails_names_the_kernel_and_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    module, _ = module_of(SMALL)
    module._launch = lambda *a: 701
    monkeypatch.setattr("gemmgen.runtime.driver.failure", lambda what, status: LaunchError(f"{what}: {status}"))
    with pytest.raises(LaunchError, match=r"the launch of small with a grid of \(3, 2, 1\): 701"):
        module.bind(Launch(EXACT, (3, 2, 1), ARGUMENTS))(1 << 40, 1 << 40, 1 << 40, 0, 77)


# --- Tensor maps -----------------------------------------------------------------------------------------------------


class Encoder:
    """cuTensorMapEncodeTiled as its documentation has it: what it refuses, and what it is given as the map's bytes."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, out: int, dtype: int, rank: int, address: int, *rest: Any) -> int:
        extents, pitch, box, steps, interleave, swizzle, promotion, fill = rest
        self.calls.append((address, tuple(extents), tuple(pitch), tuple(box), swizzle, promotion))
        assert (dtype, rank, tuple(steps), interleave, fill) == (7, 2, (1, 1), 0, 0)
        row = 4 * box[0]
        good = (
            out % 64 == 0 and address % 16 == 0 and address and all(0 < e <= 1 << 32 for e in extents)
            and pitch[0] % 16 == 0 and pitch[0] < 1 << 40 and all(0 < b <= 256 for b in box) and row % 16 == 0
            and (swizzle == 0 or row <= 16 << swizzle)
        )  # fmt: skip
        if not good:
            return 1
        ctypes.memmove(out, struct.pack("16Q", address, *extents, *pitch, *box, swizzle, *range(9)), 128)
        return 0


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> Encoder:
    found = Encoder()
    monkeypatch.setattr(tensormap, "_encode", lambda: found)
    monkeypatch.setattr("gemmgen.runtime.driver.failure", lambda what, status: LaunchError(f"{what}: {status}"))
    return found


def test_tensor_maps_are_arguments_by_value_at_the_end(encoder: Encoder) -> None:
    module, driver = module_of(ENGINE)
    given = Arguments(256, 384, 96, 1.0, 64, 100, 32, 400, 0.0, 0, 384)
    bound = module.bind(Launch(EXACT, (3, 2, 1), given))
    bound(1 << 40, 2 << 40, 3 << 40, 0, 77)
    a, b = (1 << 40) + 4 * 64, (2 << 40) + 4 * 32
    # The contiguous dimension first: k of A and n of B; a row of A's box is 32 floats, swizzled over its 128 bytes.
    assert encoder.calls == [(a, (96, 256), (400,), (32, 128), 3, 2), (b, (384, 96), (1600,), (128, 32), 0, 3)]
    for bytes_of, call in zip(driver.seen[0]["values"][11:], encoder.calls, strict=True):
        assert struct.unpack("16Q", bytes_of)[:3] == (call[0], *call[1])
    assert driver.seen[0]["values"][4] == a and driver.seen[0]["shared"] > 48 << 10


def test_every_type_of_an_operand_has_a_tensor_map(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, int]] = []
    for name, kind in ELEMENT_TYPES.items():
        monkeypatch.setattr(tensormap, "_encode", lambda name=name: lambda *a: given.append((name, a[1])) or 0)
        Matrix((256, 64), 256 * kind.bytes, (16, 8), 0, kind).encode(1 << 40)
    # CUtensorMapDataType: bytes, float16, float32 and bfloat16
    assert dict(given) == {"f32": 7, "f16": 6, "bf16": 9, "tf32": 7, "e4m3": 0, "e5m2": 0}


def test_a_tensor_map_is_made_once_for_each_address(encoder: Encoder) -> None:
    module, driver = module_of(ENGINE)
    bound = module.bind(Launch(EXACT, (3, 2, 1), Arguments(256, 384, 96, 1.0, 0, 96, 0, 384, 0.0, 0, 384)))
    for i in (0, 1, 0, 1, 1, 0):
        a, b = (1 << 40) + 4096 * i, (2 << 40) + 4096 * i
        bound(a, b, 3 << 40, 0, 77)
        assert [struct.unpack("16Q", m)[0] for m in driver.seen[-1]["values"][11:]] == [a, b]
    assert len(encoder.calls) == 4


def test_tensor_maps_do_not_pile_up(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensormap, "_REMEMBERED", 4)
    maps = maps_of(TensorMap("mapA", "A", (32, 128), 128), LIES["row"], (256, 384, 96), 96)
    for i in range(1, 30):
        assert struct.unpack("16Q", ctypes.string_at(maps.at(i << 20).address, 128))[0] == i << 20
        assert len(maps._made) <= 4


def test_g07_a_matrix_that_is_not_read_has_a_map_of_zeros(encoder: Encoder) -> None:
    maps = maps_of(TensorMap("mapA", "A", (32, 128), 128), LIES["row"], (256, 384, 0), 1)
    assert ctypes.string_at(maps.at(0).address, 128) == bytes(128)
    assert encoder.calls == []


@pytest.mark.parametrize(("operand", "order", "extents"), [
    ("A", "row", (96, 256)), ("A", "col", (256, 96)), ("B", "row", (384, 96)), ("B", "col", (96, 384)),
])  # fmt: skip
def test_a_tensor_map_begins_with_the_contiguous_dimension(
    encoder: Encoder, operand: str, order: str, extents: tuple[int, int]
) -> None:
    maps_of(TensorMap("map", operand, (16, 64), 64), LIES[order], (256, 384, 96), 512).at(1 << 40)
    assert encoder.calls == [(1 << 40, extents, (2048,), (16, 64), 2, 2)]


def test_a_matrix_that_the_engine_cannot_read_is_an_error_with_the_numbers(encoder: Encoder) -> None:
    with pytest.raises(LaunchError, match=r"cuTensorMapEncodeTiled\(0x10000000008, .*pitch=384.*: 1"):
        Matrix((96, 256), 384, (32, 128), 128).encode((1 << 40) + 8)
    with pytest.raises(LaunchError, match="swizzled over 48 bytes"):
        maps_of(TensorMap("mapA", "A", (12, 64), 48), LIES["row"], (256, 384, 96), 96)


def test_an_instruction_that_the_gpu_is_too_old_for_is_named() -> None:
    ir = gemmgen.lower(gemmgen.parse(ENGINE))
    check_architecture(ir, GPU)
    with pytest.raises(LaunchError, match=r"engine uses \w+, which needs compute capability 9.0; Test has 8.6"):
        check_architecture(ir, replace(GPU, cc=(8, 6)))
    check_architecture(gemmgen.lower(gemmgen.parse(SMALL)), replace(GPU, cc=(7, 5)))


# --- Dynamic shared memory -------------------------------------------------------------------------------------------


LARGE = (
    "kernel large\ntile block 128x128x64\ntile thread 8x8\nuse coalescing, smem, transposeA, float4\n",
    "kernel large\ntile block 128x128x16\ntile warp 64x64\ntile thread 8x4\nstages 4\npad_a 4\n"
    "use coalescing, smem, transposeA, float4, warptile, cpasync\n",
    ENGINE,
    ENGINE.replace("stages 3", "stages 5"),
    ENGINE.replace("128x128x32", "64x256x32").replace("32x128", "32x256").replace("n_iter=4", "n_iter=8"),
    "kernel large\ntile block 100x128x72\ntile thread 4x4\nuse smem, float4\n",
)


@pytest.mark.parametrize("variant", ["exact", "guarded", "guarded_unaligned"])
@pytest.mark.parametrize("text", LARGE)
def test_what_is_given_at_launch_is_what_the_text_lays_out(text: str, variant: str) -> None:
    """Every array begins where its alignment wants it, also at each stage of a swizzled tile, none meets another, and
    the last ends where the memory ends. There is no static shared memory beside it, which would push it off."""
    ir = gemmgen.lower(gemmgen.parse(text), variant)
    assert ir.shared_bytes > 48 << 10
    source = emit_cuda(ir)
    assert not re.search(r"^ *__shared__", source, re.MULTILINE)
    (base,) = (int(n) for n in re.findall(r"extern __shared__ __align__\((\d+)\)", source))
    constants = {c.name: c.value for c in ir.constants}
    declared = r"(?:\(\*(\w+)\)[^=;]*|\* (\w+)) =\s+(?:reinterpret_cast<[^;]*>\()?dynamicShared([^;]*?)\)?;"
    starts = {one or other: 4 * eval(f"0 {start}", {}, constants) for one, other, start in re.findall(declared, source)}
    assert set(starts) == {a.name for a in ir.shared}
    arrays = sorted(ir.shared, key=lambda a: starts[a.name])
    end = 0
    for array in arrays:
        assert starts[array.name] == end and end % array.align == 0 and base % array.align == 0
        if array.align == 1024:
            assert size_bytes(array) // shape_of(array)[0] % 1024 == 0
        end += size_bytes(array)
    assert end == ir.shared_bytes
