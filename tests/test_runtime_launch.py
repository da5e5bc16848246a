"""Launching, as far as it can be seen without a GPU: limits, argument bytes, what a call comes to."""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from played import GPU

import gemmgen
from gemmgen.diagnostics import ArgumentError, LaunchError
from gemmgen.launch import Launch, Variant
from gemmgen.runtime import gemm as gemms
from gemmgen.runtime.arrays import HOST, ArrayView
from gemmgen.runtime.device import Device
from gemmgen.runtime.frame import Frame
from gemmgen.runtime.gemm import GpuGemm
from gemmgen.runtime.launch import check_resources
from gemmgen.target import gpu

ROOT = Path(__file__).resolve().parent.parent
H200 = gpu("h200").limits


# --- Limits ----------------------------------------------------------------------------------------------------------


def test_g22_c_registers_times_threads_over_the_limit() -> None:
    with pytest.raises(LaunchError) as raised:
        check_resources(H200, threads=512, registers=156)
    text = str(raised.value)
    for number in ("512", "156", "79872", "160", "81920", "65536", "at most 384 threads", "at most 128 registers"):
        assert number in text


def test_g22_d_half_the_threads_fit() -> None:
    check_resources(H200, threads=256, registers=156)


@pytest.mark.parametrize("threads", [32, 96, 128, 256, 384, 512, 768, 1024])
def test_g22_the_advice_is_right(threads: int) -> None:
    """What the message says would fit does fit, and one step more does not."""
    for registers in range(16, 256, 7):
        try:
            check_resources(H200, threads, registers)
        except LaunchError as e:
            found = re.search(r"at most (\d+) threads fit.*at most (\d+) registers", str(e))
            assert found is not None
            fewer, smaller = int(found[1]), int(found[2])
            check_resources(H200, fewer, registers)
            check_resources(H200, threads, smaller)
            with pytest.raises(LaunchError):
                check_resources(H200, fewer + 32, registers)
            with pytest.raises(LaunchError):
                check_resources(H200, threads, smaller + 1)


def test_g22_a_threads_over_the_limit() -> None:
    with pytest.raises(LaunchError, match="4096 threads per block are over the limit of 1024"):
        check_resources(H200, threads=4096, registers=32)


def test_shared_memory_over_the_limit() -> None:
    check_resources(H200, 256, 32, 227 << 10)
    with pytest.raises(LaunchError, match=r"232449 bytes of shared memory, over the limit of 232448"):
        check_resources(H200, 256, 32, (227 << 10) + 1)


# --- No GPU ----------------------------------------------------------------------------------------------------------


def test_no_gpu_is_said_at_once() -> None:
    """Nothing is imported, nothing hangs, and the reason is there to be shown."""
    code = (
        "import sys\n"
        "from gemmgen.runtime import device\n"
        "found = device.current()\n"
        "print(found is None, device.why_none() or 'a GPU')\n"
        "assert 'cuda' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    environment = {"CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.startswith("True ") and "driver" in done.stdout


def test_a_gpu_that_is_required_and_missing() -> None:
    from gemmgen.runtime import device

    if device.current() is not None:
        pytest.skip("there is a GPU here")
    with pytest.raises(LaunchError, match="--device sim"):
        device.required()
    with pytest.raises(LaunchError, match="no GPU number 3"):
        device.get(3)


# --- What a call comes to, with a GPU that only notes it --------------------------------------------------------------


SMALL = "kernel small\ntile block 64x64x8\ntile thread 8x8\nuse smem, transposeA, float4, coalescing\n"


class Recorder:
    """The device: modules that note their launches, memory and copies that note their use."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.loaded: list[Variant] = []

    def module_for(self, variant: Variant, kernel: str, device: Device) -> Any:
        self.loaded.append(variant)
        return FakeModule(self, variant)

    @contextmanager
    def workspace(self, size: int, stream: int) -> Iterator[int]:
        self.events.append(("allocate", size, stream))
        yield 1 << 40
        self.events.append(("free", stream))

    def copier(self, here: Device, far: bool, item: int, split: Any = None) -> Any:
        """The module of copies: notes (elements of a line, of all, from, to) of the one or two of a launch."""

        def start(frame: Frame) -> None:
            blocks, *rest = arguments_of(frame, "IIIIIIiiPPIIIIIiiPP")
            halves = [(half[1], half[0], half[7], half[8]) for half in (rest[:9], rest[9:])]
            self.events.append(("copy", *halves[: 1 + (blocks < frame.grid[0])]))

        return SimpleNamespace(start=start)


def arguments_of(frame: Frame, letters: str) -> list[int]:
    """The arguments in a frame as a driver reads them, by struct's letters."""
    at = ctypes.cast(frame.pointers, ctypes.POINTER(ctypes.c_void_p))
    found = (ctypes.string_at(at[i], struct.calcsize(letter)) for i, letter in enumerate(letters))
    return [struct.unpack(letter, value)[0] for letter, value in zip(letters, found, strict=True)]


class FakeModule:
    def __init__(self, recorder: Recorder, variant: Variant) -> None:
        self.recorder, self.variant = recorder, variant

    def bind(self, step: Launch) -> Any:
        x = step.arguments

        def launch(a: int, b: int, c: int, workspace: int, stream: int) -> None:
            values = (
                x.M, x.N, x.K, x.alpha, a + 4 * x.A, x.lda, b + 4 * x.B, x.ldb, x.beta, c + 4 * x.C, x.ldc
            )  # fmt: skip
            own = (step.kernel, workspace) if workspace else ()
            self.recorder.events.append(("launch", self.variant.label, step.grid, values, stream, *own))

        return launch


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder()
    monkeypatch.setattr(gemms, "view", lambda x, name, stream: x)
    monkeypatch.setattr(gemms, "is_current", lambda ordinal: True)
    monkeypatch.setattr(gemms, "current_stream", lambda *x: 11)
    monkeypatch.setattr(gemms.memory, "workspace", found.workspace)
    monkeypatch.setattr(gemms.copies, "copier", found.copier)
    monkeypatch.setattr("gemmgen.runtime.device.get", lambda ordinal: GPU)
    return found


def matrix(
    address: int, shape: tuple[int, int], strides: tuple[int, int] | None = None, dtype: str = "float32",
    device: int = 0, read_only: bool = False,
) -> ArrayView:  # fmt: skip
    return ArrayView(address, shape, strides or (shape[1], 1), dtype, device, read_only, "torch", None)


@pytest.fixture
def gemm(recorder: Recorder) -> GpuGemm:
    return GpuGemm(gemmgen.parse(SMALL), recorder.module_for)


A, B, C = matrix(1 << 20, (128, 64)), matrix(2 << 20, (64, 192)), matrix(3 << 20, (128, 192))


def test_a_call_is_one_launch_on_the_current_stream(gemm: GpuGemm, recorder: Recorder) -> None:
    assert gemm(A, B, C, 2.0, 3.0) is C
    values = (128, 192, 64, 2.0, 1 << 20, 64, 2 << 20, 192, 3.0, 3 << 20, 192)
    assert recorder.events == [("launch", "exact", (3, 2, 1), values, 11)]
    gemm(A, B, C, 2.0, 3.0, stream=7)
    assert recorder.events[1] == ("launch", "exact", (3, 2, 1), values, 7)


def test_a_plan_is_kept_by_shape_stride_and_alignment(
    gemm: GpuGemm, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[object] = []
    prepare = gemm._prepare
    monkeypatch.setattr(gemm, "_prepare", lambda key, *a: (planned.append(key), prepare(key, *a))[1])
    for i in range(5):  # other buffers, same alignment
        gemm(matrix((1 << 20) + 4096 * i, (128, 64)), B, C)
    assert len(planned) == 1 and len(recorder.loaded) == 1
    assert [e[3][4] for e in recorder.events] == [(1 << 20) + 4096 * i for i in range(5)]
    gemm(matrix((1 << 20) + 4, (128, 64)), B, C)  # misaligned: another kernel
    assert len(planned) == 2 and recorder.events[-1][1] == "guarded_unaligned"
    gemm(A, B, C, alpha=2.0)
    gemm(matrix(1 << 20, (128, 64), (68, 1)), B, C)
    assert len(planned) == 4


def test_g04_alignment_chooses_the_kernel(gemm: GpuGemm, recorder: Recorder) -> None:
    for operands, label in (
        ((A, B, C), "exact"),
        ((matrix((1 << 20) + 4, (128, 64)), B, C), "guarded_unaligned"),
        ((A, matrix((2 << 20) + 8, (64, 192)), C), "guarded_unaligned"),
        ((A, B, matrix((3 << 20) + 12, (128, 192))), "guarded_unaligned"),
        ((matrix(1 << 20, (6, 6)), matrix(2 << 20, (6, 6)), matrix(3 << 20, (6, 6))), "guarded_unaligned"),
        ((matrix(1 << 20, (100, 64)), B, matrix(3 << 20, (100, 192))), "guarded"),
    ):
        gemm(*operands)
        assert recorder.events[-1][1] == label


def test_g14_inputs_of_other_strides_are_copied_in_stream_order(gemm: GpuGemm, recorder: Recorder) -> None:
    transposed = matrix(1 << 20, (128, 64), (1, 128))
    reversed_rows = matrix(2 << 20, (64, 192), (-192, 1))
    gemm(transposed, reversed_rows, C, stream=5)
    kinds = [e[0] for e in recorder.events]
    assert kinds == ["allocate", "copy", "launch", "free"]
    base, second = 1 << 40, (1 << 40) + 128 * 64 * 4
    assert recorder.events[1][1:] == ((64, 128 * 64, 1 << 20, base), (192, 64 * 192, 2 << 20, second))
    launched = recorder.events[2]
    assert (launched[3][4], launched[3][6], launched[4]) == (base, second, 5)
    assert recorder.events[0][1] >= (128 * 64 + 64 * 192) * 4


def test_a_copy_has_lines_of_whole_16_bytes(gemm: GpuGemm, recorder: Recorder) -> None:
    """What lies between them is zero, so that a line may be read to its end."""
    gemm(matrix(1 << 20, (128, 61), (1, 128)), matrix(2 << 20, (61, 192)), C, stream=5)
    assert recorder.events[1] == ("copy", (61, 128 * 64, 1 << 20, 1 << 40))
    assert recorder.events[0] == ("allocate", 128 * 64 * 4, 5) and recorder.events[2][3][5] == 64


def test_partial_sums_lie_in_a_workspace_behind_the_copies(recorder: Recorder) -> None:
    spec = gemmgen.parse(SMALL + "split_k 4\n")
    gemm = GpuGemm(spec, recorder.module_for)
    gemm(A, B, C, 2.0, 3.0, stream=5)
    size = 4 * 128 * 192 * 4
    assert [e[0] for e in recorder.events] == ["allocate", "launch", "launch", "free"]
    assert recorder.events[0][1:] == (size, 5)
    main, then = recorder.events[1:3]
    assert main[2] == (3, 2, 4) and main[5:] == ("main", 1 << 40) and then[5:] == ("then", 1 << 40)
    recorder.events.clear()
    gemm(matrix(1 << 20, (128, 64), (1, 128)), B, C, stream=5)
    assert [e[0] for e in recorder.events] == ["allocate", "copy", "launch", "launch", "free"]
    assert recorder.events[0][1] == size + 128 * 64 * 4
    assert all(e[6] == (1 << 40) + 128 * 64 * 4 for e in recorder.events[2:4])


def test_a_workspace_that_is_kept_is_not_allocated_again(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(gemms.memory.Kept, "of", lambda self, size: (sizes.append(size), 7 << 40)[1])
    gemm = GpuGemm(gemmgen.parse(SMALL + "split_k 4\n"), recorder.module_for)
    gemm.keep_workspace(5)
    gemm.keep_workspace(5)
    for _ in range(3):
        gemm(A, B, C, stream=5)
    assert [e[0] for e in recorder.events] == ["launch"] * 6 and sizes == [4 * 128 * 192 * 4] * 3
    assert all(e[6] == 7 << 40 for e in recorder.events)
    gemm(A, B, C, stream=6)  # another stream
    assert recorder.events[6][0] == "allocate"


def test_a_workspace_that_cannot_grow_stays_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that can leaves the old memory to graphs that were captured with it."""
    made: list[int] = []

    def allocate(shape: tuple[int, int], dtype: str, device: int) -> Any:
        if len(made) == 2:
            raise LaunchError("no more")
        made.append(shape[1])
        return SimpleNamespace(address=len(made) << 20, nbytes=shape[1])

    monkeypatch.setattr(gemms.memory.DeviceArray, "empty", allocate)
    monkeypatch.setattr(gemms.memory, "current_device", lambda: 0)
    kept = gemms.memory.Kept()
    assert [kept.of(size) for size in (4096, 100, 8192, 4096)] == [1 << 20, 1 << 20, 2 << 20, 2 << 20]
    with pytest.raises(LaunchError):
        kept.of(1 << 20)
    assert kept.of(8192) == 2 << 20 and made == [4096, 8192]


def test_an_output_of_other_strides_is_refused(gemm: GpuGemm, recorder: Recorder) -> None:
    with pytest.raises(ArgumentError, match="C"):
        gemm(A, B, matrix(3 << 20, (128, 192), (1, 128)))
    with pytest.raises(ArgumentError, match="C is read-only"):
        gemm(A, B, matrix(3 << 20, (128, 192), read_only=True))
    assert recorder.events == []


def test_an_overlap_is_refused_also_where_the_plan_is_known(gemm: GpuGemm, recorder: Recorder) -> None:
    gemm(A, B, C)
    inside = matrix((3 << 20) + 4096, (128, 64))
    with pytest.raises(ArgumentError, match="C overlaps A"):
        gemm(inside, B, C)
    with pytest.raises(ArgumentError, match="C overlaps B"):
        gemm(A, matrix((3 << 20) - 4096, (64, 192)), C)
    assert len(recorder.events) == 1
    # Columns of one buffer, side by side: their extents meet, their elements do not.
    left, right = matrix(5 << 20, (128, 64), (256, 1)), matrix((5 << 20) + 256, (128, 192), (256, 1))
    gemm(left, B, right)
    gemm(left, B, right)
    assert len(recorder.events) == 3


def test_g13_wrong_types_and_places_are_named(gemm: GpuGemm, recorder: Recorder) -> None:
    for position, name in enumerate("ABC"):
        for dtype in ("float64", "int32", "float16"):
            operands = [A, B, C]
            operands[position] = operands[position]._replace(dtype=dtype)
            with pytest.raises(ArgumentError, match=f"{name} has element type {dtype}; small wants float32"):
                gemm(*operands)
    with pytest.raises(ArgumentError, match="one device: A on GPU 0, B on GPU 1, C on GPU 0"):
        gemm(A, B._replace(device=1), C)
    with pytest.raises(ArgumentError, match="one device: A on GPU 0, B on GPU 0, C on the host"):
        gemm(A, B, C._replace(device=HOST))
    with pytest.raises(ArgumentError, match="one device: A on the host, B on a GPU"):
        gemm(A._replace(device=HOST), B)
    with pytest.raises(ArgumentError, match="A has 1 dimensions"):
        gemm(A._replace(shape=(128,), strides=(1,)), B, C)
    with pytest.raises(ArgumentError, match="A is 128x60 and B is 64x192"):
        gemm(matrix(1 << 20, (128, 60)), B, C)
    assert recorder.events == []


def test_g07_nothing_is_launched_for_no_elements(gemm: GpuGemm, recorder: Recorder) -> None:
    gemm(matrix(0, (0, 64)), B, matrix(0, (0, 192)))
    gemm(A, matrix(0, (64, 0)), matrix(0, (128, 0)))
    assert recorder.events == []
    gemm(matrix(0, (128, 0)), matrix(0, (0, 192)), C, beta=2.0)
    assert recorder.events[0][3][:4] == (128, 192, 0, 0.0) and recorder.events[0][3][8] == 2.0


def test_g28_c_more_row_blocks_than_a_grid_holds_are_several_launches(recorder: Recorder) -> None:
    spec = gemmgen.parse("kernel tall\ntile block 16x16x8\ntile thread 1x1\nuse smem\n")
    gemm = GpuGemm(spec, recorder.module_for)
    m = 1_048_561
    a, b, c = matrix(1 << 40, (m, 8)), matrix(2 << 40, (8, 16)), matrix(3 << 40, (m, 16))
    gemm(a, b, c)
    grids = [e[2] for e in recorder.events]
    assert len(grids) == 2 and all(g[1] <= 65535 for g in grids)
    assert sum(e[3][0] for e in recorder.events) == m
    rows = recorder.events[0][3][0]
    assert recorder.events[1][3][4] == (1 << 40) + rows * 8 * 4
    assert recorder.events[1][3][9] == (3 << 40) + rows * 16 * 4


def test_plans_do_not_pile_up(gemm: GpuGemm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemms, "_REMEMBERED", 10)
    for i in range(50):
        gemm(A, B, C, alpha=float(i))
    assert len(gemm._prepared) <= 10


def test_kernels_are_loaded_once_though_many_threads_ask(gemm: GpuGemm, recorder: Recorder) -> None:
    ready = threading.Barrier(8)

    def work() -> None:
        ready.wait()
        for _ in range(20):
            gemm(A, B, C)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(recorder.loaded) == 1 and len(recorder.events) == 160


def test_numpy_arrays_are_copied_in_and_out(gemm: GpuGemm, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies, against a device whose memory is a dictionary and whose kernel writes 7 everywhere."""
    memory: dict[int, Any] = {}

    @contextmanager
    def nothing(ordinal: int) -> Iterator[None]:
        yield

    monkeypatch.setattr(gemms, "on_device", nothing)
    monkeypatch.setattr(gemms, "view", gemms_view)
    monkeypatch.setattr(gemms.memory, "upload", lambda x, at, stream: memory.update({at: x.copy()}))
    monkeypatch.setattr(gemms.memory, "download", lambda at, out, stream: out.fill(7))
    a, b = np.ones((9, 5), np.float32).T, np.ones((9, 4), np.float32)
    wide = np.zeros((5, 6), np.float32)
    c = wide[:, 1:5]
    gemm.on_host_arrays(a, b, c, 1.0, 2.0, GPU)
    assert (c == 7).all() and (wide[:, 0] == 0).all() and (wide[:, 5] == 0).all()
    assert [x.shape for x in memory.values()] == [(5, 9), (9, 4), (5, 4)]
    assert all(x.flags.c_contiguous and at % 256 == 0 for at, x in memory.items())
    memory.clear()
    gemm.on_host_arrays(a, b, c, 1.0, 0.0, GPU)
    assert len(memory) == 2  # C is not read, so not copied in
    with pytest.raises(ArgumentError, match="C is read-only"):
        gemm.on_host_arrays(a, b, np.broadcast_to(np.float32(0), (5, 4)), 1.0, 0.0, GPU)
    square = np.ones((4, 4), np.float32)
    with pytest.raises(ArgumentError, match="C overlaps A"):
        gemm.on_host_arrays(square, square.copy(), square, 1.0, 0.0, GPU)


def gemms_view(x: Any, name: str, stream: int = 0) -> ArrayView:
    from gemmgen.runtime.arrays import view

    return view(x, name, stream)
