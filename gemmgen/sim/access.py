"""Loads, stores and register arithmetic of the IR as functions over lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from gemmgen.ir.expr import Const, Expr
from gemmgen.ir.nodes import Compute, FBin, FCall, FConst, FExpr, Load, Pointer, Read, Ref, Scalar, Store, shape_of
from gemmgen.sim.faults import FaultKind
from gemmgen.sim.index import Form, Scope, add, form_of, scale
from gemmgen.sim.lanes import NOBODY, Active, Data, Truth, narrow
from gemmgen.sim.machine import Machine
from gemmgen.sim.memory import Memory
from gemmgen.sim.registers import SINGLE, Register
from gemmgen.sim.values import Part

Plain = Callable[[Active], None]


@dataclass(frozen=True)
class Element:
    """An element of a register array: which array, and the position as a function of the loop variables."""

    machine: Machine
    register: Register
    at: Callable[[], int]
    key: object
    line: int | None = None

    def check(self, first: int, width: int, active: Active, reads: bool) -> bool:
        """Whether the elements exist, and hold values where they are read; reports what is wrong."""
        r = self.register
        if not r.inside(first, width):
            outside = first if first < 0 else r.elements
            self._fault("out-of-bounds", outside, active, f"{r.name} has {r.elements} elements")
            return False
        if first % width:  # the array's own alignment follows from its accesses
            self._fault("misaligned", first, active, f"not a multiple of the {width} elements that an access moves")
        if reads and not r.full:
            missing = r.missing(range(first, first + width), active)
            if missing is not None:
                self._fault("uninitialized", missing[0], None, "nothing wrote it", missing[1])
        return True

    def read(self, active: Active) -> Data:
        """The element's value in float32, [lanes]."""
        first = self.at()
        fine = self.register.full and self.register.inside(first, 1)
        if not fine and not self.check(first, 1, active, reads=True):
            return np.zeros(self.machine.batch.lanes, SINGLE)
        value: Data = self.register.data[first].astype(SINGLE, copy=False)
        return value

    def _fault(self, kind: FaultKind, element: int, active: Active, other: str, lane: int | None = None) -> None:
        if lane is None:
            lane = 0 if active is None else int(np.argmax(active.array))
        r = self.register
        self.machine.fault(kind, (r.name, id(self.key)), r.name, lane, r.index_of(element), self.line, other)


@dataclass(frozen=True)
class Place:
    """Where an access goes in memory: lane part and common offset, in elements."""

    memory: Memory
    part: Callable[[], Part]
    offset: Callable[[], int]


def linear(ref: Ref, scope: Scope) -> Form:
    """The position of a reference in its array, in elements."""
    match ref.memory:
        case Pointer() as pointer:
            (index,) = ref.index
            return add(pointer_form(pointer, scope), form_of(index, scope))
        case array if array.shape is None:
            (index,) = ref.index
            return form_of(index, scope)
        case array:
            total = Form()
            for extent, index in zip(shape_of(array), ref.index, strict=True):
                total = add(scale(total, extent), form_of(index, scope))
            return total


def pointer_form(pointer: Pointer, scope: Scope) -> Form:
    """A pointer's offset from its array, as it was when the pointer was declared."""
    declared = scope.get(f"*{pointer.name}")
    return declared_form(pointer, scope) if declared is None else declared


def declared_form(pointer: Pointer, scope: Scope) -> Form:
    """A pointer's offset from its array, as of now."""
    offset = form_of(pointer.offset, scope)
    return add(pointer_form(pointer.base, scope), offset) if isinstance(pointer.base, Pointer) else offset


def place(m: Machine, ref: Ref, scope: Scope) -> Place:
    form = linear(ref, scope)
    return Place(m.memory(ref.array.name, ref.array.dtype), m.values.part(form), m.values.uniform(form))


def element(m: Machine, ref: Ref, scope: Scope, key: object, line: int | None = None) -> Element:
    """Raises ValueError where lanes would use different elements: registers cannot be indexed so."""
    form = linear(ref, scope)
    if form.terms:
        raise ValueError(f"{ref.array.name} is in registers, and its index differs between threads")
    return Element(m, m.register(ref.array), m.values.uniform(form), key, line)


def condition(m: Machine, guard: Expr | None, scope: Scope) -> Callable[[], Truth]:
    return m.values.truth(Const(1) if guard is None else guard, scope)


def load(m: Machine, s: Load, scope: Scope) -> Plain:
    """``width`` elements from memory to registers, converted to their type; zeros where the guard is false."""
    width = s.width
    site = m.site("load", s.src.array, width, s.origin)
    src, dst = place(m, s.src, scope), element(m, s.dst, scope, s, site.line)
    guard = condition(m, s.guard, scope) if s.guard is not None else None
    rank = None if s.rank is None else _same_for_all(m, s.rank, scope)
    register = dst.register

    def run(active: Active) -> None:
        first = dst.at()
        if (width > 1 or not register.inside(first, 1)) and not dst.check(first, width, active, reads=False):
            return
        reading = active if guard is None else narrow(active, guard())
        whole = register.whole(active)
        out = register.window(first, width) if whole else np.empty((width, m.batch.lanes), register.dtype)
        if reading is NOBODY:
            out[...] = 0
        else:
            src.memory.read(site, src.part(), src.offset(), reading, active, out, None if rank is None else rank())
        if whole:
            register.define(first, width, active)
        else:
            register.put(first, width, active, out)

    return run


def _same_for_all(m: Machine, e: Expr, scope: Scope) -> Callable[[], int]:
    """An index that all lanes agree on. Raises ValueError where they need not."""
    form = form_of(e, scope)
    if form.terms:
        raise ValueError("lanes read the shared memory of different blocks in one access")
    return m.values.uniform(form)


def store(m: Machine, s: Store, scope: Scope) -> Plain:
    """``width`` elements from registers to memory, rounded to its type, where the guard holds."""
    width = s.width
    site = m.site("store", s.dst.array, width, s.origin)
    if s.dst.array.space == "global":
        m.written(s.dst.array.name)
    dst, src = place(m, s.dst, scope), element(m, s.src, scope, s, site.line)
    guard = condition(m, s.guard, scope) if s.guard is not None else None

    def run(active: Active) -> None:
        writing = active if guard is None else narrow(active, guard())
        if writing is NOBODY:
            return
        first = src.at()
        if src.check(first, width, writing, reads=True):
            dst.memory.write(site, dst.part(), dst.offset(), writing, src.register.window(first, width))

    return run


def compute(m: Machine, s: Compute, scope: Scope) -> Plain:
    """``dst = expr``: in float32, then rounded to the type of ``dst``."""
    dst, value = element(m, s.dst, scope, s), _value(m, s.expr, scope, s)

    def run(active: Active) -> None:
        first = dst.at()
        result = value(active)
        if dst.check(first, 1, active, reads=False):
            dst.register.put(first, 1, active, result)

    return run


def _value(m: Machine, e: FExpr, scope: Scope, key: object) -> Callable[[Active], Data]:
    match e:
        case Read(ref):
            return element(m, ref, scope, key).read
        case Scalar(name):
            return _constant(float(m.scalars[name]))
        case FConst(value):
            return _constant(value)
        case FBin(op, a, b):
            x, y, meaning = _value(m, a, scope, key), _value(m, b, scope, key), _FLOAT[op]
            return lambda active: meaning(x(active), y(active))
        case FCall(function, args):
            given = [_value(m, a, scope, key) for a in args]
            return lambda active: np.asarray(function.meaning(*(g(active) for g in given)), SINGLE)
        case _:
            assert_never(e)


def _constant(value: float) -> Callable[[Active], Data]:
    made = np.full(1, value, SINGLE)
    return lambda active: made


_FLOAT: dict[str, Callable[[Data, Data], Data]] = {"+": np.add, "*": np.multiply, "max": np.fmax}
