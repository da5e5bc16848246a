"""Measures by what rule a GPU counts the sectors of asynchronous copies, one warp or one box a launch.

    python tests/gpu/sectors.py [FILE]        FILE is generated/h200/sectors.json by default

Copies by cp.async of 4 and 16 bytes at chosen places, and boxes of the TMA engine at chosen corners, under Nsight
Compute. What is written down is what :mod:`gemmgen.isa.memory` must give.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from gemmgen.analysis.counters import parse_ncu  # noqa: E402 - the checkout, wherever this is started
from gemmgen.cli.machine import answer, machine  # noqa: E402
from gemmgen.isa.async_copy import (  # noqa: E402
    MBARRIER_EXPECT,
    MBARRIER_FENCE,
    MBARRIER_INIT,
    MBARRIER_WAIT,
    SHARED_ADDRESS,
    cp_async_or_zero,
    tma_load,
)
from gemmgen.runtime.ncu import profile  # noqa: E402

COPIED = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
FETCHED = "l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum"
OWN = 8
"""Sectors that a warp's kernel loads to know its places and conditions: 32 of each."""
BEFORE = 1 << 20
"""Bytes of the memory before the place that addresses count from."""

HELPERS = [SHARED_ADDRESS, *(cp_async_or_zero(size).helper for size in (4, 16))]
BARRIERS = [row.helper for row in (MBARRIER_INIT, MBARRIER_FENCE, MBARRIER_EXPECT, MBARRIER_WAIT)]
MAP = "struct alignas(64) TensorMap { unsigned char bytes[128]; };\n"


def warp_text(size: int) -> str:
    """A kernel in which each lane copies ``size`` bytes from its place, or zeros."""
    return (
        "\n".join(HELPERS)
        + f"""
extern "C" __global__ void warp{size}(const char* base, const int* places, const int* some)
{{
    __shared__ alignas(128) float to[128];
    const int place = places[threadIdx.x], wanted = some[threadIdx.x];
    cp_async{size}_or_zero(&to[threadIdx.x * 4], (const float*)(base + place), wanted != 0);
    asm volatile("cp.async.wait_all;" ::: "memory");
}}
"""
    )


BOX_TEXT = (
    "\n".join([SHARED_ADDRESS, MAP, *BARRIERS, tma_load().helper])
    + """
extern "C" __global__ void box(const TensorMap* map, int x, int y, int bytes)
{
    extern __shared__ __align__(1024) float to[];
    __shared__ unsigned long long ready;
    mbarrier_init(&ready, 1);
    mbarrier_fence();
    mbarrier_expect(&ready, bytes);
    tma_load(to, map, x, y, &ready);
    mbarrier_wait(&ready, 0);
}
"""
)


def copies() -> list[dict[str, Any]]:
    """Places of the 32 lanes in bytes, None where nothing is to be copied."""
    out: list[dict[str, Any]] = []
    for size in (4, 16):
        lines = [[first + size * lane for lane in range(32)] for first in (0, size, 16, 48, 80, 112)]
        rows = [
            [first + lane % lanes * size + lane // lanes * pitch for lane in range(32)]
            for lanes in (8, 16)
            for first in (0, 16)
            for pitch in (4096, 4112, 4128)
        ]
        parts = [
            [first + size * lane if lane < keep else None for lane in range(32)]
            for keep in (1, 2, 5, 8, 13, 20, 31)
            for first in (0, 16)
        ]
        rng = random.Random(size)
        scattered = [[size * rng.randrange(64) for _ in range(32)] for _ in range(12)]
        holes = [[place if rng.random() < 0.5 else None for place in places] for places in scattered]
        special = [[0] * 32, [64 * lane for lane in range(32)], [None] * 32]
        for places in (*lines, *rows, *parts, *scattered, *holes, *special):
            out.append({"instruction": f"cp.async {size}", "bytes": places})
    return out


def boxes() -> list[dict[str, Any]]:
    """Boxes (elements along, rows), of matrices (elements along, rows) at an address in bytes, modulo 128."""
    sizes = ((32, 1), (32, 8), (32, 128), (16, 8), (8, 8), (36, 4), (64, 8), (128, 2), (128, 32), (256, 8))
    out = [
        {"box": size, "extents": (1024, 1024), "pitch_bytes": pitch, "x": x, "y": y, "address": 0}
        for size in sizes
        for pitch in (4096, 4112)
        for x, y in ((0, 0), (32, 1), (20, 3))
    ]
    out += [
        {"box": size, "extents": (1024, 1024), "pitch_bytes": 4096, "x": 0, "y": 0, "address": address}
        for size in ((32, 8), (128, 8))
        for address in (16, 32, 48, 96)
    ]
    out += [
        {"box": size, "extents": (1024 + more, 1024), "pitch_bytes": 4352, "x": 1024, "y": 0, "address": address}
        for size in ((32, 8), (128, 8))
        for more in (1, 2, 4, 5, 9, 17, 33, 40)
        for address in (0, 16)
    ]
    out += [
        {"box": (128, 8), "extents": (1024, 1024 + more), "pitch_bytes": 4112, "x": 0, "y": 1024, "address": 0}
        for more in (1, 3, 4, 7)
    ]
    return out


def launch_all() -> None:
    """Every launch, in the order of the lists."""
    import ctypes

    import numpy as np

    from gemmgen.runtime import device
    from gemmgen.runtime.driver import LEGACY_STREAM, on_device
    from gemmgen.runtime.launch import Module
    from gemmgen.runtime.memory import DeviceArray
    from gemmgen.runtime.nvrtc import compile_cubin
    from gemmgen.runtime.tensormap import Matrix

    gpu = device.required()
    memory = DeviceArray.empty((1, 8 << 20), "float32", gpu.ordinal)
    base = memory.address + BEFORE
    names = {f"cp.async {size}": (f"warp{size}", warp_text(size), 32, 0) for size in (4, 16)}
    names["box"] = ("box", BOX_TEXT, 1, 32 << 10)
    modules = {
        key: Module(compile_cubin(text, gpu.arch, name=name).cubin, name, threads, shared)
        for key, (name, text, threads, shared) in names.items()
    }
    given = DeviceArray.empty((1, 64), "float32", gpu.ordinal)
    with on_device(gpu.ordinal):
        for c in copies():
            places = [p or 0 for p in c["bytes"]] + [int(p is not None) for p in c["bytes"]]
            given.set(np.array([places], np.int32).view(np.float32))
            values = [("N", base), ("N", given.address), ("N", given.address + 128)]
            modules[c["instruction"]].launch((1, 1, 1), values, LEGACY_STREAM)
        for b in boxes():
            matrix = Matrix(b["extents"], b["pitch_bytes"], b["box"], 0)
            encoded = ctypes.string_at(matrix.encode(base + b["address"]).address, 128)
            given.set(np.frombuffer(encoded + bytes(128), np.float32).reshape(1, 64))
            whole = 4 * b["box"][0] * b["box"][1]
            values = [("N", given.address), ("i", b["x"]), ("i", b["y"]), ("i", whole)]
            modules["box"].launch((1, 1, 1), values, LEGACY_STREAM)
        given.numpy()  # waits


def main(arguments: list[str]) -> int:
    if arguments == ["--launch"]:
        launch_all()
        return 0
    path = Path(arguments[0]) if arguments else ROOT / "generated" / "h200" / "sectors.json"
    text, _ = profile([sys.executable, __file__, "--launch"], [COPIED, FETCHED])
    found = [m.values for m in parse_ncu(text)]
    copied, fetched = copies(), boxes()
    assert len(found) == len(copied) + len(fetched), f"{len(found)} launches were measured"
    for c, values in zip(copied, found, strict=False):
        c["sectors"] = round(values[COPIED]) - OWN
    for b, values in zip(fetched, found[len(copied) :], strict=True):
        b["sectors"] = round(values[FETCHED])
    told = (answer(["ncu", "--version"]) or "").splitlines()
    record = {**machine(), "ncu": told[-1] if told else None, "counters": {"copies": COPIED, "boxes": FETCHED}}
    lines = {key: ",\n".join("  " + json.dumps(row) for row in rows) for key, rows in
             (("copies", copied), ("boxes", fetched))}  # fmt: skip
    head = json.dumps(record, indent=1)[:-2]
    body = ",\n".join(f' "{key}": [\n{rows}\n ]' for key, rows in lines.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{head},\n{body}\n}}\n", encoding="utf-8")
    print(f"{len(found)} launches; wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
