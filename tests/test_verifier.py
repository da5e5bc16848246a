"""The verifiers between levels accept what the compiler makes, and name what breaks an invariant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from pipelinehelp import PIPELINES, spec_of
from simir import A, C, R, at, get, kernel, put, register, shared, tid

from gemmgen.ir.expr import Const, Var
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.nodes import Alloc, Fma, For, If, Let, Load, Role, Roles, Stmt, Store, Sync, edit
from gemmgen.ir.types import BF16
from gemmgen.ir.variant import VARIANTS
from gemmgen.ir.verifier import InvalidKernel, verify
from gemmgen.lower import lower
from gemmgen.spec.ladder import LADDER, ladder_path
from gemmgen.spec.parse import load
from gemmgen.tile.rewrites import build
from gemmgen.tile.verifier import InvalidProgram
from gemmgen.tile.verifier import verify as verify_program

S = shared("S", 8, 32)
T = tid(64)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", [*LADDER, *PIPELINES])
def test_kernels_that_the_compiler_makes_are_valid(name: str, variant: str) -> None:
    spec = load(ladder_path(name)) if name in LADDER else spec_of(name)
    verify_program(build(spec, VARIANTS[variant]))
    for ir in lower(spec, VARIANTS[variant]).kernels:
        assert verify(ir) is ir


def broken(*body: Stmt) -> KernelIR:
    return replace(kernel(*body, threads=64, arrays=(S,)), params=())


N = Var("N", uniform=True)
BROKEN: dict[str, tuple[KernelIR, str]] = {
    "a barrier in a branch": (broken(If(T.lt(3), (Sync(0, "S: written above"),))), "take differently"),
    "a barrier without a hazard": (broken(Sync(0, "")), "without a hazard"),
    "a barrier in a divergent loop": (
        broken(For(Var("i"), Const(0), T, Const(1), (Sync(0, "S: written above"),))),
        "take differently",
    ),
    "a barrier of a cluster of one": (broken(Sync(0, "sums: read", "cluster")), "there is none"),
    "a barrier of the block in a role": (
        broken(Roles((Role("a", 0, 0, (Sync(0, "S: read"),)), Role("b", 1, 1, ())))),
        "in one role",
    ),
    "a warp without a role": (broken(Roles((Role("a", 0, 0, ()),))), "warps 0 to 0 of 2"),
    "a register that is not declared": (broken(Store(at(S, 0, 0), at(R))), "array r is not declared"),
    "a value that is not there": (broken(Alloc(R), Load(at(R), at(S, 0, N))), "N has no value here"),
    "a value of an inner scope": (
        broken(If(T.lt(3), (Let(N, Const(1)),)), Alloc(R), Load(at(R), at(S, 0, N))),
        "N has no value here",
    ),
    "an index past the end": (broken(*get(at(S, 8, 0))), "index 8 of S, which has 8"),
    "too few indices": (broken(*get(at(S, 0))), "2 dimensions, and 1 indices"),
    "an access that is too wide": (
        broken(Alloc(register("w", 8)), Load(at(register("w", 8), 0), at(S, 0, 0), 8)),
        "8 elements of 4 bytes",
    ),
    "two types in one access": (
        broken(Alloc(replace(R, dtype=BF16)), Load(at(replace(R, dtype=BF16)), at(S, 0, 0))),
        "r is bf16, and S f32",
    ),
    "a store to what is only read": (
        replace(kernel(*put(at(A, 0)), threads=64), params=()),
        "A, which is only read",
    ),
    "a product in memory": (broken(Alloc(R), Fma(at(S, 0, 0), at(R), at(R))), "floating-point registers"),
    "an access beyond its array's alignment": (
        broken(Alloc(register("q", 4)), Load(at(register("q", 4), 0), at(shared("U", 4, align=4), 0), 4)),
        "aligned to 4",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_kernels_are_named(what: str) -> None:
    ir, said = BROKEN[what]
    # Global arrays are parameters; U of the last case is a shared one that is declared.
    extra = tuple(x for x in (shared("U", 4, align=4),) if "alignment" in what)
    ir = replace(ir, shared=(*ir.shared, *extra))
    with pytest.raises(InvalidKernel) as error:
        verify(_with_globals(ir))
    assert said in _all(ir)
    assert "hand" in str(error.value)


def _with_globals(ir: KernelIR) -> KernelIR:
    from gemmgen.ir.kernel import Param

    return replace(ir, params=(*ir.params, *(Param(x.name, "pointer", x) for x in (A, C))))


def _all(ir: KernelIR) -> str:
    from gemmgen.ir import verifier

    return "\n".join(verifier._kernel(_with_globals(ir)))


def test_shared_arrays_lie_over_arrays_that_exist() -> None:
    ir = replace(broken(), shared=(replace(S, over=("gone",)),))
    with pytest.raises(InvalidKernel, match="lies over gone"):
        verify(ir)


def test_every_barrier_moved_into_a_branch_is_found() -> None:
    """Of a real kernel, one barrier after another."""
    ir = lower(load(ladder_path("warptile")))
    for sync in ir.syncs():

        def moved(s: Stmt, sync: Sync = sync) -> tuple[Stmt, ...]:
            return (If(tid(ir.threads).lt(32), (s,)),) if s == sync else (s,)

        with pytest.raises(InvalidKernel, match="take differently"):
            verify(replace(ir, body=edit(ir.body, moved)))


CONTRADICTIONS: dict[str, tuple[Callable, str]] = {  # type: ignore[type-arg]
    "levels": (lambda p: replace(p, block=(p.block[0] * 2, *p.block[1:])), "the levels cover"),
    "stages": (lambda p: replace(p, pipeline=replace(p.pipeline, depth=5)), "stages, and the pipeline 5"),
    "types": (
        lambda p: replace(p, buffers=tuple(replace(b, dtype=BF16) for b in p.buffers)),
        "As is bf16, and A f32",
    ),
    "buffers": (lambda p: replace(p, buffers=p.buffers[:1]), "copies fill"),
    "widths": (lambda p: replace(p, copies=tuple(replace(c, width=3) for c in p.copies)), "3 at a time"),
    "guards": (lambda p: replace(p, output=replace(p.output, guard=frozenset("k"))), "guarded in"),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_contradictory_programs_are_named(what: str) -> None:
    change, said = CONTRADICTIONS[what]
    with pytest.raises(InvalidProgram, match=said):
        verify_program(change(build(load(ladder_path("warptile")), VARIANTS["guarded"])))
