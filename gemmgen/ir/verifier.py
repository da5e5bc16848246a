"""Invariants of the kernel IR, checked between levels: a broken kernel is reported where it was made.

``verify`` raises InvalidKernel with the statement and what is wrong with it. It runs after every lowering where the
environment variable GEMMGEN_VERIFY is 1, as in the tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

from gemmgen.ir.expr import Expr, Var, value_of
from gemmgen.ir.facts import is_uniform, variables
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.memory import Array, Pointer, Ref, shape_of
from gemmgen.ir.nodes import (
    Alloc,
    Call,
    Compute,
    Fma,
    For,
    If,
    Let,
    LetPointer,
    Load,
    MapRef,
    Pinned,
    Role,
    Roles,
    Section,
    Stmt,
    Store,
    Sync,
)
from gemmgen.ir.references import references
from gemmgen.ir.types import VECTOR_BYTES, WARP
from gemmgen.isa.lane_values import LANE_VALUES

if TYPE_CHECKING:
    from gemmgen.isa.table import Instruction, Operand

BUILT_IN = frozenset(
    f"{name}.{axis}" for name in ("threadIdx", "blockIdx", "blockDim", "gridDim") for axis in "xyz"
) | frozenset(LANE_VALUES)


class InvalidKernel(AssertionError):
    """A kernel that breaks an invariant of the IR: a fault of the compiler, never of a spec."""


def enabled() -> bool:
    """Whether kernels are verified as they are made."""
    return os.environ.get("GEMMGEN_VERIFY") == "1"


def verify(ir: KernelIR) -> KernelIR:
    """The kernel itself. Raises InvalidKernel where one of its statements breaks an invariant."""
    problems = list(_kernel(ir))
    if problems:
        raise InvalidKernel(f"{ir.name} ({ir.variant.label}): {problems[0]}" + _more(problems))
    return ir


def _more(problems: list[str]) -> str:
    return f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""


@dataclass
class _Scope:
    """What is declared where a statement stands, and whether all threads of the block get there together."""

    names: set[str]
    arrays: set[Array]
    pointers: set[str] = field(default_factory=set)
    uniform: bool = True
    roles: bool = False

    def inner(self, uniform: bool = True) -> _Scope:
        return _Scope(set(self.names), set(self.arrays), set(self.pointers), self.uniform and uniform, self.roles)


def _kernel(ir: KernelIR) -> Iterator[str]:
    names = {p.name for p in ir.params if p.kind in ("int", "size", "float")} | BUILT_IN
    for x in ir.params:
        if x.kind == "pointer" and x.array is None:
            yield f"parameter {x.name} is a pointer without an array"
    arrays = {p.array for p in ir.params if p.array is not None} | set(ir.shared)
    if ir.threads < 1:
        yield f"{ir.threads} threads in a block"
    for c in ir.constants:
        if not c.text:
            yield f"constant {c.name} has no text"
    yield from _shared(ir)
    yield from _body(ir.body, _Scope(set(names), arrays), ir)


def _shared(ir: KernelIR) -> Iterator[str]:
    names = [a.name for a in ir.shared]
    for a in ir.shared:
        if a.space != "shared" or a.shape is None or prod(shape_of(a)) < 1:
            yield f"{a.name} is no shared array with elements"
        if a.align % a.dtype.bytes:
            yield f"{a.name} is aligned to {a.align} bytes, no multiple of an element's {a.dtype.bytes}"
        for other in a.over:
            if other not in names:
                yield f"{a.name} lies over {other}, which the kernel does not declare"
    if len(set(names)) < len(names):
        yield f"two shared arrays of one name among {', '.join(names)}"


def _body(body: tuple[Stmt, ...], scope: _Scope, ir: KernelIR) -> Iterator[str]:
    for s in body:
        yield from (f"{type(s).__name__}: {what}" for what in _statement(s, scope, ir))
        match s:
            case Section(body=inner):
                yield from _body(inner, scope, ir)  # a heading has no scope of its own
            case For(var, start, stop, step, inner):
                turn = scope.inner(is_uniform(start) and is_uniform(stop) and is_uniform(step))
                turn.names.add(var.name)
                yield from _body(inner, turn, ir)
            case If(cond, then, orelse):
                for branch in (then, orelse):
                    yield from _body(branch, scope.inner(is_uniform(cond)), ir)
            case Pinned(body=inner):
                yield from _body(inner, scope.inner(), ir)
            case Roles(roles=roles):
                yield from _roles(roles, scope, ir)
            case _:
                pass


def _roles(roles: tuple[Role, ...], scope: _Scope, ir: KernelIR) -> Iterator[str]:
    ends = sorted((r.first, r.last) for r in roles)
    if ends and (ends[0][0] != 0 or ends[-1][1] != -(-ir.threads // WARP) - 1):
        yield f"Roles: warps {ends[0][0]} to {ends[-1][1]} of {-(-ir.threads // WARP)}"
    for (_, last), (first, _) in pairwise(ends):
        if first != last + 1:
            yield f"Roles: warp {last + 1} has no role, or two"
    for role in roles:
        part = scope.inner()
        part.roles = True
        yield from _body(role.body, part, ir)


def _statement(s: Stmt, scope: _Scope, ir: KernelIR) -> Iterator[str]:
    """What is wrong with a statement itself; its declarations enter the scope."""
    yield from _values(s, scope)
    for ref in references(s):
        yield from _reference(ref, scope)
    match s:
        case Let(var, _):
            scope.names.add(var.name)
        case LetPointer(pointer, _):
            scope.pointers.add(pointer.name)
        case Alloc(array, _):
            if array.space != "register":
                yield f"{array.name} is declared as a register array, and is {array.space}"
            scope.arrays.add(array)
        case Load(dst, src, width):
            yield from _moved(dst, src, width)
            if dst.array.space != "register" or src.array.space == "register":
                yield f"loads from {src.array.space} to {dst.array.space}"
        case Store(dst, src, width):
            yield from _moved(src, dst, width)
            if src.array.space != "register" or dst.array.space == "register":
                yield f"stores from {src.array.space} to {dst.array.space}"
            if dst.array.const:
                yield f"stores to {dst.array.name}, which is only read"
        case Fma(acc, a, b):
            if not all(x.array.space == "register" and x.array.dtype.floating for x in (acc, a, b)):
                yield "multiplies what is not in floating-point registers"
        case Compute(dst, _):
            if dst.array.space != "register":
                yield f"computes into {dst.array.space} memory"
        case Call(row, args):
            yield from _called(row, args, ir)
        case Sync(_, hazard, scope_of):
            yield from _barrier(hazard, scope_of, scope, ir)
        case _:
            pass


def _barrier(hazard: str, among: str, scope: _Scope, ir: KernelIR) -> Iterator[str]:
    """A barrier is reached by all threads that it counts."""
    if not hazard:
        yield "a barrier without a hazard"
    if not scope.uniform:
        yield "a barrier in a branch that threads of a block take differently"
    if scope.roles:
        yield "a barrier of the whole block in one role"
    if among == "cluster" and value_of(ir.cluster) == 1:
        yield "a barrier of a cluster, and there is none"


def _moved(register: Ref, memory: Ref, width: int) -> Iterator[str]:
    dtype = memory.array.dtype
    if width < 1 or dtype.bytes * width > VECTOR_BYTES:
        yield f"{width} elements of {dtype.bytes} bytes in one access"
    if register.array.dtype != dtype:
        yield f"{register.array.name} is {register.array.dtype}, and {memory.array.name} {dtype}"
    if register.array.space == "register":
        extents = shape_of(register.array)
        if width > 1 and (not extents or extents[-1] % width):
            yield f"{width} elements at once of {register.array.name}{list(extents)}"
    if memory.array.space == "shared" and width > 1 and memory.array.align % (dtype.bytes * width):
        yield f"{dtype.bytes * width} bytes at once of {memory.array.name}, aligned to {memory.array.align}"


def _called(row: Instruction, args: tuple[Ref | Expr | MapRef, ...], ir: KernelIR) -> Iterator[str]:
    maps = {m.name for m in ir.tensor_maps}
    for a in args:
        if isinstance(a, MapRef) and a.name not in maps:
            yield f"tensor map {a.name} is no parameter"
    if len(args) != len(row.operands):
        yield f"{row.name} takes {len(row.operands)} arguments, and has {len(args)}"
    for number, (a, operand) in enumerate(zip(args, row.operands, strict=False)):
        if not _fits(a, operand):
            yield f"argument {number} of {row.name} is to be a {operand.kind}"
    for move in row.moves:
        if move.argument >= len(args):
            yield f"argument {move.argument} is moved, and there are {len(args)}"


def _fits(a: Ref | Expr | MapRef, operand: Operand) -> bool:
    """Whether an argument is what an instruction takes there."""
    match a:
        case MapRef():
            return operand.kind == "map"
        case Ref():
            space = "shared" if operand.kind == "barrier" else operand.kind
            return a.array.space == space and operand.dtype in (None, a.array.dtype)
        case _:
            return operand.kind == "value"


def _reference(ref: Ref, scope: _Scope) -> Iterator[str]:
    memory = ref.memory
    if isinstance(memory, Pointer):
        if memory.name not in scope.pointers:
            yield f"pointer {memory.name} is not declared here"
        if len(ref.index) != 1:
            yield f"pointer {memory.name} has {len(ref.index)} indices"
        return
    if memory not in scope.arrays:
        yield f"{memory.space} array {memory.name} is not declared here"
    rank = 1 if memory.shape is None else len(memory.shape)
    if len(ref.index) != rank:
        yield f"{memory.name} has {rank} dimensions, and {len(ref.index)} indices"
    if memory.shape is not None:
        for extent, i in zip(shape_of(memory), ref.index, strict=False):
            known = value_of(i)
            if known is not None and not 0 <= known < extent:
                yield f"index {known} of {memory.name}, which has {extent}"


def _values(s: Stmt, scope: _Scope) -> Iterator[str]:
    for e in _expressions(s):
        for v in variables(e):
            if isinstance(v, Var) and v.name not in scope.names:
                yield f"{v.name} has no value here"


def _expressions(s: Stmt) -> Iterator[Expr]:
    match s:
        case Let(_, e):
            yield e
        case LetPointer(pointer, _):
            yield pointer.offset
        case For(_, start, stop, step, _):
            yield from (start, stop, step)
        case If(cond, _, _):
            yield cond
        case Load(guard=guard) | Store(guard=guard) if guard is not None:
            yield guard
        case Call(args=args):
            yield from (a for a in args if isinstance(a, Expr))
        case _:
            pass
    for ref in references(s):
        yield from ref.index
