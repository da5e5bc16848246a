"""Kernel IR -> functions over lanes, once a launch.

Each statement becomes a function of the active lanes. One that may block (a wait, or a barrier among roles) returns a
generator; everything else returns None.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import assert_never

from gemmgen.ir.expr import Var
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
    Pinned,
    Roles,
    Section,
    Stmt,
    Store,
    Sync,
    children,
)  # fmt: skip
from gemmgen.isa.counted import work_of
from gemmgen.isa.lane_values import LANE_VALUES
from gemmgen.sim.access import Plain, compute, declared_form, load, store
from gemmgen.sim.calls import Step, Wait, blocks, call
from gemmgen.sim.fma import Loop, fma
from gemmgen.sim.index import Form, add, builtin, combine, form_of, variable
from gemmgen.sim.lanes import Active, narrow, narrow_not
from gemmgen.sim.machine import Machine
from gemmgen.sim.roles import barrier, role_steps

MOST_POINTS = 4096
"""Largest nest of multiply-adds that is run as one outer product."""


@dataclass(frozen=True)
class Block:
    """Statements in order."""

    steps: tuple[Step, ...]
    blocking: bool

    def run(self, active: Active) -> None:
        """Run to the end; nothing in it blocks."""
        for step in self.steps:
            step(active)

    def go(self, active: Active) -> Generator[Wait, None, None]:
        """Run, yielding what is waited for."""
        for step in self.steps:
            waits = step(active)
            if waits is not None:
                yield from waits


class Translator:
    """Translates the statements of one kernel for one machine."""

    def __init__(self, machine: Machine) -> None:
        self.m = machine

    def program(self) -> Block:
        """The whole kernel."""
        m = self.m
        scope = {name: builtin(name) for name in m.batch.builtin}
        scope |= {name: form_of(value.meaning, scope) for name, value in LANE_VALUES.items()}
        scope |= {name: Form(value) for name, value in m.scalars.items()}
        scope["blockDim.x"] = Form(m.ir.threads)
        return self.block(m.ir.body, scope, in_roles=False)

    def block(self, body: tuple[Stmt, ...], scope: dict[str, Form], in_roles: bool) -> Block:
        """The statements of a scope; what they declare ends with it."""
        scope = dict(scope)
        steps = tuple(step for s in body for step in self.statement(s, scope, in_roles))
        return Block(steps, any(_blocking(s, in_roles) for s in body))

    def statement(self, s: Stmt, scope: dict[str, Form], in_roles: bool) -> tuple[Step, ...]:
        """The steps of a statement, with the arithmetic that it is counted for."""
        steps, work = self.steps(s, scope, in_roles), work_of(s)
        if work is None or isinstance(s, Fma):  # which counts a whole nest of loops at once
            return steps
        return (lambda active: self.m.compute(work, active), *steps)

    def steps(self, s: Stmt, scope: dict[str, Form], in_roles: bool) -> tuple[Step, ...]:
        m = self.m
        match s:
            case Let(var, expr):
                scope[var.name] = form_of(expr, scope)
                return ()
            case LetPointer(pointer):
                scope[f"*{pointer.name}"] = declared_form(pointer, scope)
                return ()
            case Alloc(array, init):
                register = m.register(array)
                return (lambda active: register.declare(init, active),)
            case Section(_, body) | Pinned(_, body):
                return tuple(step for inner in body for step in self.statement(inner, scope, in_roles))
            case For():
                return (self.loop(s, scope, in_roles),)
            case If():
                return (self.branch(s, scope, in_roles),)
            case Load():
                return (load(m, s, scope),)
            case Store():
                return (store(m, s, scope),)
            case Fma():
                return (fma(m, (), s, scope),)
            case Compute():
                return (compute(m, s, scope),)
            case Call():
                return (call(m, s, scope),)
            case Sync():
                return (barrier(m, s, in_roles),)
            case Roles(roles):
                bodies = [(r, self.block(r.body, scope, in_roles=True)) for r in roles]
                return (role_steps(m, [(r, b.go) for r, b in bodies]),)
            case _:
                assert_never(s)

    def branch(self, s: If, scope: dict[str, Form], in_roles: bool) -> Step:
        truth = self.m.values.truth(s.cond, scope)
        then, orelse = self.block(s.then, scope, in_roles), self.block(s.orelse, scope, in_roles)

        def go(active: Active) -> Generator[Wait, None, None]:
            holds = truth()
            for body, lanes in ((then, narrow(active, holds)), (orelse, narrow_not(active, holds))):
                if body.steps and (lanes is None or lanes.count):
                    yield from body.go(lanes)

        def run(active: Active) -> None:
            holds = truth()
            for body, lanes in ((then, narrow(active, holds)), (orelse, narrow_not(active, holds))):
                if body.steps and (lanes is None or lanes.count):
                    body.run(lanes)

        return go if then.blocking or orelse.blocking else run

    def loop(self, s: For, scope: dict[str, Form], in_roles: bool) -> Step:
        nest = self.nest(s, scope)
        if nest is not None:
            return nest
        start, stop, step = (form_of(e, scope) for e in (s.start, s.stop, s.step))
        slot = self.m.values.slot()
        if start.terms or stop.terms or step.terms:
            return self.uneven_loop(s, scope, in_roles, slot)
        body = self.block(s.body, scope | {s.var.name: variable(slot)}, in_roles)
        first, last, by = (self.m.values.uniform(f) for f in (start, stop, step))
        env = self.m.values.env

        def go(active: Active) -> Generator[Wait, None, None]:
            for value in range(first(), last(), by()):
                env[slot] = value
                yield from body.go(active)

        def run(active: Active) -> None:
            steps = body.steps
            for value in range(first(), last(), by()):
                env[slot] = value
                for step in steps:
                    step(active)

        return go if body.blocking else run

    def uneven_loop(self, s: For, scope: dict[str, Form], in_roles: bool, slot: int) -> Step:
        """A loop whose bounds differ between blocks: trips are counted, and blocks drop out as they finish."""
        trip = variable(slot)
        value = add(form_of(s.start, scope), combine("*", trip, form_of(s.step, scope)))
        scope = scope | {s.var.name: value}
        body = self.block(s.body, scope, in_roles)
        going = self.m.values.truth(Var(s.var.name).lt(s.stop), scope)
        env = self.m.values.env

        def turns(active: Active) -> Generator[Active, None, None]:
            count = 0
            while True:
                env[slot] = count
                lanes = narrow(active, going())
                if lanes is not None and lanes.count == 0:
                    return
                yield lanes
                count += 1

        def go(active: Active) -> Generator[Wait, None, None]:
            for lanes in turns(active):
                yield from body.go(lanes)

        def run(active: Active) -> None:
            for lanes in turns(active):
                body.run(lanes)

        return go if body.blocking else run

    def nest(self, s: For, scope: dict[str, Form]) -> Plain | None:
        """The loop as one outer product, if it is a nest of constant loops around a multiply-add."""
        loops: list[Loop] = []
        inner: Stmt = s
        points = 1
        while isinstance(inner, For):
            bounds = [form_of(e, scope) for e in (inner.start, inner.stop, inner.step)]
            if not inner.body or not all(f.is_constant for f in bounds):
                return None
            values = range(*(int(f.const) for f in bounds))
            slot = self.m.values.slot()
            scope = scope | {inner.var.name: variable(slot)}
            loops.append((slot, values))
            points *= len(values)
            *named, inner = inner.body
            for let in named:
                if not isinstance(let, Let):
                    return None
                scope[let.var.name] = form_of(let.expr, scope)
        if not isinstance(inner, Fma) or points > MOST_POINTS:
            return None
        return fma(self.m, tuple(loops), inner, scope)


def _blocking(s: Stmt, in_roles: bool) -> bool:
    """Whether a statement may have to wait for other roles."""
    if isinstance(s, Call):
        return blocks(s)
    if isinstance(s, (Sync, Roles)):
        return in_roles and isinstance(s, Sync)
    return any(_blocking(x, in_roles) for body in children(s) for x in body)
