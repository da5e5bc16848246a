"""The exported launcher's planning, built for the host, decides as the launch plan does."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import numpy as np
import pytest
from exporthelp import COMPILER, build_planner, uncompiled

from gemmgen.api.specs import load
from gemmgen.diagnostics import ArgumentError
from gemmgen.export.kernels import Exported
from gemmgen.ir.variant import EXACT, Variant
from gemmgen.launch import Launch, LaunchPlan, Limits, as_float32
from gemmgen.launch.beside import narrowed, places
from gemmgen.launch.placement import OPERANDS, placed
from gemmgen.launch.planning import plan_aligned

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")

FIXTURES = Path(__file__).parent / "fixtures" / "valid"
SPECS = [
    *("naive", "warptile", "tma", "splitk", "skinny", "gemm_bias_gelu", "mma", "wgmma_store", "wgmma_roles"),
    *(
        str(FIXTURES / f"{name}.gemm")
        for name in (
            "pipeline_atomics_early", "pipeline_cluster_columns", "pipeline_cta_swizzle_columns",
            "pipeline_persistent_groups", "pipeline_persistent_adds", "mma_bf16", "mma_e4m3",
            "pipeline_lanes_rows", "types_bf16_split", "types_f16_stagec_larger",
            "types_bf16_tma_columns", "epilogue_chain",
        )
    ),
]  # fmt: skip
CALLS = 500
PARTS = ("first", "main", "then")
Call = tuple[int, tuple[int, int, int], tuple[int, ...], tuple[int, ...], float, float, Limits]
"""Which spec, M N K, leading dimensions and addresses of A, B, C and what its epilogue reads, alpha, beta, limits."""


@pytest.fixture(scope="module")
def exported() -> list[Exported]:
    return uncompiled(load(name) for name in SPECS)


@pytest.fixture(scope="module")
def planner(exported: list[Exported], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_planner(exported, tmp_path_factory.mktemp("planner"))


def asked(planner: Path, calls: list[Call]) -> list[tuple[list[str], list[list[str]]]]:
    """For each call what the program prints of it: the decision, and the launches."""
    lines = [
        " ".join(
            map(
                str,
                (
                    which,
                    *size,
                    *leading[:3],
                    *addresses[:3],
                    f"{alpha:.9g}",
                    f"{beta:.9g}",
                    at.grid_y,
                    at.span,
                    len(leading) - 3,
                    *(x for pair in zip(leading[3:], addresses[3:], strict=True) for x in pair),
                ),
            )
        )
        for which, size, leading, addresses, alpha, beta, at in calls
    ]
    done = subprocess.run([str(planner)], input="\n".join(lines), capture_output=True, text=True, check=True)
    found: list[tuple[list[str], list[list[str]]]] = []
    for line in done.stdout.splitlines():
        kind, *fields = line.split("\t")
        if kind == "call":
            found.append((fields, []))
        else:
            found[-1][1].append(fields)
    assert len(found) == len(calls)
    return found


def drawn(rng: random.Random, exported: list[Exported]) -> Call:
    """A call of any size, whole tiles among them; padded and shifted operands; now and then small limits."""
    which = rng.randrange(len(exported))
    x = exported[which]
    tile = x.program.tile
    whole, even = rng.random() < 0.4, rng.random() < 0.5
    size = [rng.choice((0, 1, 3, 100, 257, 1030, 5000)) for _ in "mnk"]
    if whole:
        size = [rng.choice((1, 2, 5, 40)) * step for step in tile]
    elif even:
        size = [8 * rng.randrange(1, 200) for _ in "mnk"]
    m, n, k = size
    leading, addresses = [], []
    for at, matrix in enumerate(x.program.matrices):
        rows, columns = {"A": (m, k), "B": (k, n), "C": (m, n)}[matrix.name]
        extent = columns if matrix.order == "row" else rows
        leading.append(rng.choice((0, extent + rng.choice((0, 8, 1, 2, 4)))))
        shift = rng.choice((0, 0, 0, 1, 2, 3)) * matrix.dtype.bytes
        addresses.append((at + 1) * (1 << 40) + shift)
    for at, e in enumerate(x.program.beside):
        leading.append(
            0 if e.matrix is None else rng.choice((0, (n if e.order == "row" else m) + rng.choice((0, 8, 1))))
        )
        addresses.append((at + 9) * (1 << 40) + rng.choice((0, 0, 1, 2)) * e.dtype.bytes)
    factor = rng.choice((0.0, 1.0, 1.0, -2.5, 0.1, 3e38))
    limits = rng.choice((Limits(), Limits(), Limits(grid_y=9, span=4096)))
    beta = rng.choice((0.0, 0.0, 1.0, 0.5))
    return which, (m, n, k), tuple(leading), tuple(addresses), factor, beta, limits  # type: ignore[return-value]


def strides_of(x: Exported, size: tuple[int, int, int], leading: tuple[int, ...]) -> list[tuple[int, ...]]:
    m, n, k = size
    found: list[tuple[int, ...]] = []
    for matrix, given in zip(x.program.matrices, leading[:3], strict=True):
        rows, columns = {"A": (m, k), "B": (k, n), "C": (m, n)}[matrix.name]
        extent = columns if matrix.order == "row" else rows
        found.append((given or extent, 1) if matrix.order == "row" else (1, given or extent))
    for e, given in zip(x.program.beside, leading[3:], strict=True):
        pitch = given or (n if e.order == "row" else m)
        found.append((1,) if e.matrix is None else (pitch, 1) if e.order == "row" else (1, pitch))
    return found


def expected(x: Exported, call: Call) -> tuple[str, LaunchPlan] | None:
    """The label of the exported variant that fits, and the plan of it: of two alignments below what accesses need, the
    export has the lower one."""
    _, (m, n, k), leading, addresses, alpha, beta, limits = call
    alpha, beta = as_float32(alpha), as_float32(beta)
    strides = strides_of(x, (m, n, k), leading)
    shapes = {"A": (m, k), "B": (k, n), "C": (m, n)}
    if alpha == 0.0:
        shapes |= {"A": (m, 0), "B": (0, n)}
    narrow = []
    low = tuple(a % 16 for a in addresses)
    beside = places(x.program, (m, n), strides[3:], low[3:])
    for i, name in enumerate(OPERANDS):
        pair = strides[i][0], strides[i][1]
        place = placed(x.program.matrix(name), shapes[name], pair, low[i], padding=False)
        place = narrowed(x.program, place, beside) if name == "C" else place
        narrow += [name] if place.align < x.program.alignment[name] else []
    if m and n and x.program.aligned & set(narrow):
        return None  # gemmgen copies such an operand first
    deep = shapes["A"][1]
    whole = all(extent % step == 0 for extent, step in zip((m, n, deep), x.program.tile, strict=True))
    items = {matrix.name: matrix.dtype.bytes for matrix in x.program.matrices}
    align = tuple((name, items[name] if name in narrow else 16) for name in OPERANDS)
    variant = EXACT if whole and not narrow else Variant(frozenset("mnk"), align)
    labels = {v: label for v, label, _ in x.variants}
    planned = plan_aligned(x.program, (m, n, k), tuple(strides), low, alpha, beta, variant, limits)
    free = plan_aligned(x.program, (m, n, k), tuple(strides), low, alpha, beta, None, limits)
    if free.steps and not free.copies and free.steps[0].variant in labels:
        assert free == planned
    return labels.get(variant, ""), planned


def fields_of(step: Launch, x: Exported, m: int, n: int) -> list[str]:
    """As the program prints a launch; a vector's leading dimension, which no kernel takes, is its length there."""
    given = step.arguments
    extents = [max(1, *({"m": m, "n": n}[d] for d in e.dims)) if e.dims else 1 for e in x.program.beside]
    return [
        str(PARTS.index(step.kernel)),
        " ".join(map(str, step.grid)),
        f"{given.M} {given.N} {given.K}",
        f"{given.alpha!r} {given.beta!r}",
        f"{given.A} {given.B} {given.C}",
        f"{given.lda} {given.ldb} {given.ldc} {given.ldw}",
        f"{int(step.output == 'W')} {int(step.dependent)}",
        "".join(f" {at} {leading or extent}" for (_, at, leading), extent in zip(given.beside, extents, strict=True)),
    ]


def as_decimal(fields: list[str]) -> list[str]:
    """Factors, which the program prints exactly, as Python prints them."""
    factors = " ".join(repr(float(np.float32(float.fromhex(x)))) for x in fields[3].split())
    return [*fields[:3], factors, *fields[4:]]


def test_500_random_calls_are_planned_as_gemmgen_plans_them(planner: Path, exported: list[Exported]) -> None:
    rng = random.Random(15)
    calls = [drawn(rng, exported) for _ in range(CALLS)]
    variants, launches, refused = set(), 0, 0
    for call, (decided, steps) in zip(calls, asked(planner, calls), strict=True):
        wanted = expected(exported[call[0]], call)
        if wanted is None:
            assert decided[0] == "1" and "need 16: pad its rows" in decided[1] and not steps
            refused += 1
            continue
        label, plan = wanted
        assert decided[0] == "0", (call, decided)
        assert [as_decimal(s) for s in steps] == [fields_of(s, exported[call[0]], *call[1][:2]) for s in plan.steps], (
            call
        )
        assert int(decided[3]) == plan.workspace, call
        if plan.steps:
            assert decided[2] == label, call
            variants.add(label)
        launches += len(steps)
    assert {"exact", "guarded", "guarded_unaligned", "guarded_unaligned_A"} <= variants and launches > CALLS and refused


def test_each_exported_variant_is_one_of_the_launch_plan(exported: list[Exported]) -> None:
    for x in exported:
        assert len({label for _, label, _ in x.variants}) == len(x.variants)
        assert all(0 <= n < len(x.kernels) for _, _, (_, n, _) in x.variants)
        assert len({k.name for k in x.kernels}) == len(x.kernels)


@pytest.mark.parametrize(
    ("size", "leading", "addresses", "message"),
    [
        ((-1, 4, 4), (0, 0, 0), (16, 1 << 20, 1 << 30), "M is -1; a size is from 0 to 2147483647"),
        ((4, 4, 1 << 31), (0, 0, 0), (16, 1 << 20, 1 << 30), "K is 2147483648; a size is from 0 to 2147483647"),
        ((4, 4, (1 << 31) - 1), (0, 0, 0), (16, 1 << 50, 1 << 60), "the largest K of one launch is"),
        ((8, 8, 8), (7, 0, 0), (16, 1 << 20, 1 << 30), "lda is 7, and a row of A has 8 elements"),
        ((8, 8, 8), (0, 0, 0), (16, 0, 1 << 30), "B is null"),
        ((8, 8, 8), (0, 0, 0), (16, 1 << 20, (1 << 30) + 2), "C is not aligned to its elements of 4 bytes"),
        ((8, 8, 8), (0, 0, 0), (1 << 20, 1 << 30, (1 << 20) + 64), "C overlaps A in memory"),
    ],
)
def test_bad_arguments_are_refused_with_their_numbers(
    planner: Path,
    size: tuple[int, int, int],
    leading: tuple[int, int, int],
    addresses: tuple[int, int, int],
    message: str,
) -> None:
    warptile = SPECS.index("warptile")
    [(decided, steps)] = asked(planner, [(warptile, size, leading, addresses, 1.0, 0.0, Limits())])
    assert decided[0] == "1" and message in decided[1] and not steps


def test_c_may_lie_beside_an_input_in_the_rows_of_one_buffer(planner: Path, exported: list[Exported]) -> None:
    call: Call = (
        SPECS.index("warptile"),
        (8, 8, 8),
        (16, 16, 16),
        (1 << 20, 1 << 30, (1 << 20) + 32),
        1.0,
        0.0,
        Limits(),
    )
    [(decided, steps)] = asked(planner, [call])
    assert decided[0] == "0" and len(steps) == 1


def test_a_plan_that_no_given_variant_allows_is_refused_by_gemmgen_too(exported: list[Exported]) -> None:
    x = exported[SPECS.index("warptile")]
    with pytest.raises(ArgumentError, match="largest K"):
        plan_aligned(x.program, (4, 4, (1 << 31) - 1), ((1 << 31, 1), (4, 1), (4, 1)), (0, 0, 0), 1.0, 0.0)
