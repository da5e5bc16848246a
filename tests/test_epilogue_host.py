"""Epilogues as text: every entry and every way to store C, built by the host's compiler and run, against float64."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from epiloguehelp import ENTRIES, operands
from host_cuda import product
from host_cuda.harness import Chosen, HostModule, build, missing
from host_cuda.problem import problem
from pipelinehelp import unaligned

import gemmgen
from gemmgen.ir.kernel import KernelIR
from gemmgen.launch import GUARDED
from gemmgen.lower import lower
from gemmgen.spec.model import Operand, Spec

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

CHAINS = {**{e.partition("(")[0] + e.partition("(")[2][:2].strip("-"): e for e in ENTRIES}, "all": " -> ".join(ENTRIES)}
WAYS: dict[str, dict[str, Any]] = {
    "vectors": {"use": "coalescing smem transposeA float4"},
    "stageC": {"use": "coalescing smem float4 stageC"},
    "split_k": {"use": "coalescing smem float4", "split_k": 3},
    "cluster": {"use": "coalescing smem float4 clusterReduce", "split_k": 2},
    "persistent": {"use": "coalescing smem float4", "persistent": 2},
}
KERNELS = [("vectors", chain, t, "row") for chain in CHAINS for t in ("f32", "bf16")]
KERNELS += [(way, "all", t, order) for way in WAYS for t, order in (("f32", "col"), ("f16", "row"))]


def spec_of(way: str, chain: str, dtype: str, order: str) -> Spec:
    changes = {**WAYS[way], "use": frozenset(WAYS[way]["use"].split())}
    c = Operand(dtype, "row" if order == "row" else "col")
    tiles = {"block": (16, 16, 8), "thread": (4, 4)}
    typed = {"A": Operand(dtype), "B": Operand(dtype), "C": c}
    return gemmgen.load("naive").replace(name="tested", epilogue=CHAINS[chain], **changes, **tiles, **typed)


def lowered(spec: Spec, variant: str) -> KernelIR:
    return lower(spec, GUARDED if variant == "guarded" else unaligned(spec))


def kernels(keys: Iterable[tuple[str, str, str, str]]) -> list[tuple[str, KernelIR]]:
    made = []
    for key in sorted(keys):
        for variant in ("guarded", "guarded_unaligned"):
            ir = lowered(spec_of(*key), variant)
            made.append(("_".join((*key, variant)), ir))
    return made


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory, chosen: Chosen) -> HostModule:
    found = [text for name, ir in kernels(key for (key,) in chosen("key")) for text in product.texts(name, ir)]
    return build(found, tmp_path_factory.mktemp("epilogue"))


@pytest.mark.parametrize("key", KERNELS, ids="-".join)
def test_the_text_stores_what_the_chain_says(module: HostModule, key: tuple[str, str, str, str]) -> None:
    spec = spec_of(*key)
    types = tuple(x.dtype for x in spec.matrices)
    orders = ("row", "row", key[3])
    for variant, pad, (m, n, k), beta in (
        ("guarded", 0, (32, 32, 16), 0.0),
        ("guarded_unaligned", 1, (21, 19, 13), 0.5),
    ):
        ir = lowered(spec, variant)
        p = problem(m, n, k, alpha=0.75, beta=beta, pad=pad, offset=pad, order=orders, dtypes=types)
        beside = operands(spec, m, n, pad=pad)
        product.run(module, "_".join((*key, variant)), ir, p, beside=beside, reverse=bool(pad))
        found = gemmgen.verify(p.c.view, p.a.view, p.b.view, p.before, 0.75, beta, spec, **beside)
        assert found, (variant, str(found))


def test_functions_of_the_text_and_of_numpy_are_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One element at a time, by the text of each function alone: within the error of its row."""
    import subprocess

    from gemmgen.isa.epilogue import entry

    folder = tmp_path_factory.mktemp("functions")
    rows = [entry(e) for e in ENTRIES if entry(e).row.function is not None]
    text = "#include <cmath>\n#define __device__\n#define __forceinline__ inline\n"
    for e in rows:
        assert e.row.function is not None
        numbers = "".join(f", {v}f" for v in e.numbers)
        text += f'{e.row.function.helper}\nextern "C" float call_{e.row.name}(float x) '
        text += f"{{ return {e.row.name}(x{numbers}); }}\n"
    (folder / "f.cpp").write_text(text)
    subprocess.run(["g++", "-shared", "-fPIC", "-O0", "f.cpp", "-o", "f.so"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "f.so"))
    values = np.concatenate([np.linspace(-30, 30, 601), [0.0, -0.0, np.inf, -np.inf, np.nan]]).astype(np.float32)
    for e in rows:
        call = getattr(library, f"call_{e.row.name}")
        call.restype, call.argtypes = ctypes.c_float, [ctypes.c_float]
        got = np.array([call(float(v)) for v in values])
        with np.errstate(all="ignore"):
            want = e.value(values.astype(np.float64), {})
            bound = e.error(values.astype(np.float64), np.zeros(values.shape), {})
        finite = np.isfinite(want)
        assert (abs(got[finite] - want[finite]) <= bound[finite]).all(), e.row.name
        assert (np.isnan(got) == np.isnan(want)).all(), e.row.name
