"""The body of a kernel as lines of CUDA."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from gemmgen.cuda.groups import name_of, reach
from gemmgen.cuda.idioms import assigned, computed, copied, copy_text, declared, product, product_text, trips
from gemmgen.cuda.layout import INDENT, WIDTH, Line
from gemmgen.cuda.pieces import argument, broken, called, loop_head, pointer_type, writes
from gemmgen.cuda.running import offsets, ring
from gemmgen.cuda.terms import (
    INDEX_TYPES,
    Env,
    Moving,
    access,
    as_float,
    assignment,
    declaration,
    expression,
    loaded,
    number,
    reference,
    rounded,
    value,
    zeros,
)
from gemmgen.ir.expr import value_of
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
    Ref,
    Roles,
    Section,
    Stmt,
    Store,
    Sync,
    accesses,
    walk,
)
from gemmgen.ir.types import WARP
from gemmgen.isa.cluster import CLUSTER_SYNC


@dataclass
class Printer:
    """Prints statements in order, numbering the accesses as they come.

    ``widths`` is the widest access to each register array, by name; ``taken`` the names of the function's scope.
    ``inside`` is how many sections the next statement is in: those in no other are numbered. ``again``: the next one is
    behind the beginning of a loop whose turns blocks share, which is the rest of the kernel.
    """

    widths: Mapping[str, int]
    taken: tuple[str, ...] = ()
    lines: list[Line] = field(default_factory=list)
    accesses: int = 0
    moving: Mapping[str, Moving] = field(default_factory=dict)
    again: bool = False
    sections: int = 0
    inside: int = 0

    def function(self, body: tuple[Stmt, ...]) -> list[Line]:
        """The lines of a whole kernel's body."""
        self._body(body, 1, {}, Counter((*self.taken, *declared(body))))
        return self.lines

    # --- Lines -----------------------------------------------------------------------------------------------------

    def _put(self, depth: int, code: str, comment: str = "", s: Stmt | None = None, tail: tuple[str, ...] = ()) -> None:
        numbers = self._numbers(() if s is None else (s,))
        self.lines.append(Line(depth, code, comment, numbers, tail))

    def _numbers(self, statements: Iterable[Stmt]) -> tuple[int, ...]:
        """The next numbers, one for each access of the statements."""
        first = self.accesses
        self.accesses += sum(accesses(s) for s in statements)
        return tuple(range(first, self.accesses))

    def _name(self, depth: int, name: str, kind: str, text: str, comment: str) -> None:
        self.lines.append(Line(depth, f"{kind} {name} =", comment, tail=(f"{text};",), declares=name))

    def _gap(self) -> None:
        """An empty line, unless at the start of a block or after another."""
        if self.lines and (self.lines[-1].code or self.lines[-1].comment) and not self.lines[-1].code.endswith("{"):
            self.lines.append(Line(0))

    def _scope(self, body: tuple[Stmt, ...], depth: int, env: Env) -> None:
        self._body(body, depth, env, Counter(declared(body)))

    def _body(self, body: tuple[Stmt, ...], depth: int, env: Env, names: Counter[str]) -> None:
        at = 0
        while at < len(body):
            if at and isinstance(body[at - 1], Sync):
                self._gap()
            at += self._idiom(body[at:], depth, env, names) or self._one(body[at], depth, env, names)

    def _one(self, s: Stmt, depth: int, env: Env, names: Counter[str]) -> int:
        self._statement(s, depth, env, names)
        return 1

    def _idiom(self, body: tuple[Stmt, ...], depth: int, env: Env, names: Counter[str]) -> int:
        """Prints what reads better as fewer statements; how many that took, 0 for none."""
        first, name = body[0], name_of(body[0])
        fresh = isinstance(first, Alloc) and first.init is None
        if fresh and (moved := copied(body)):
            return self._joined(copy_text(moved, env), body[:3], depth)
        if fresh and (blend := computed(body)):
            return self._joined(Line(0, f"{assigned(blend[1], env)};"), body[:3], depth)
        if name is not None and names[name] > 1:
            return self._apart(body, depth, env)
        if fresh and (factors := product(body)):
            line = product_text(factors, env)
            if len(INDENT * depth + line.code) <= WIDTH:
                return self._joined(line, body[:5], depth)
        return 2 if isinstance(first, Alloc) and self._declared_with_value(first, body[1:], depth, env) else 0

    def _apart(self, body: tuple[Stmt, ...], depth: int, env: Env) -> int:
        """Braces around what needs a name that is declared again in the same scope."""
        held = reach(body)
        self._put(depth, "{")
        self._scope(body[:held], depth + 1, env)
        self._put(depth, "}")
        return held

    def _joined(self, line: Line, statements: tuple[Stmt, ...], depth: int) -> int:
        """Puts one line that stands for several statements."""
        numbers = self._numbers(statements)
        code, *tail = broken(depth, [line.code, *line.tail])
        line = Line(0, code, tail=tuple(tail))
        why = " ".join(s.why for s in statements if isinstance(s, Alloc | Load | Store | Fma | Compute) and s.why)
        self.lines.append(Line(depth, line.code, why, numbers, line.tail))
        return len(statements)

    # --- Statements ------------------------------------------------------------------------------------------------

    def _statement(self, s: Stmt, depth: int, env: Env, names: Counter[str]) -> None:
        match s:
            case Let(var, e, why):
                self._name(depth, var.name, f"const {INDEX_TYPES[var.dtype]}", expression(e, env), why)
            case LetPointer(pointer, why):
                offset = expression(pointer.offset, env)
                start = pointer.base.name if offset == "0" else f"{pointer.base.name} + {offset}"
                self._name(depth, pointer.name, pointer_type(pointer.array), start, why)
            case Alloc():
                self._alloc(s, depth)
            case For():
                self._for(s, depth, env, names)
            case If():
                self._if(s, depth, env, names)
            case Load():
                code, *tail = assignment(access(s.dst, s.width, env), loaded(s, env, self.moving))
                code, *tail = broken(depth, [code, *tail])
                self._put(depth, code, s.why, s, tuple(tail))
            case Store():
                self._store(s, depth, env)
            case Fma(acc, a, b, why, fused):
                x, y, z = reference(acc, env), as_float(a, env), as_float(b, env)
                pieces = [f"{x} =", f"fmaf({y}, {z}, {x});"] if fused else [f"{x} +=", f"{y} * {z};"]
                self._put(depth, pieces[0], why, tail=tuple(pieces[1:]))
            case Compute():
                self._put(depth, f"{assigned(s, env)};", s.why)
            case Call(row, args, why):
                runs = [o.run for o in row.operands] or [1] * len(args)
                code, *tail = called(row.name, [argument(a, env, run) for a, run in zip(args, runs, strict=True)])
                self._put(depth, code, why, s, tuple(tail))
            case Sync(_, hazard, scope):
                self._put(depth, "__syncthreads();" if scope == "block" else f"{CLUSTER_SYNC.name}();", hazard)
            case Section():
                self._section(s, depth, env, names)
            case Pinned():
                self._pinned(s, depth, env)
            case Roles():
                self._roles(s, depth, env)
            case _:
                assert_never(s)

    def _alloc(self, s: Alloc, depth: int) -> None:
        text = declaration(s.array, self.widths.get(s.array.name, 1))
        if s.init is None:
            self._put(depth, f"{text};", s.why)
        elif not s.array.shape:
            self._put(depth, f"{text} = {zeros(s.array.dtype, 1) if s.init == 0 else number(s.init)};", s.why)
        elif s.init == 0.0:
            self._put(depth, f"{text} = {{}};", s.why)
        else:
            self._put(depth, f"{text};", s.why)
            pointer = f"reinterpret_cast<{s.array.dtype.c}*>({s.array.name})"
            count = f"(int)(sizeof({s.array.name}) / sizeof({s.array.dtype.c}))"
            self._put(depth, f"for (int i = 0; i < {count}; ++i) {pointer}[i] = {number(s.init)};")

    def _declared_with_value(self, s: Alloc, rest: tuple[Stmt, ...], depth: int, env: Env) -> bool:
        """Prints a scalar together with its first value, where that comes next."""
        if s.array.shape or s.init is not None or not rest:
            return False
        first = rest[0]
        match first:
            case Load(dst=Ref(memory=memory)) if memory == s.array:
                pieces = loaded(first, env)
            case Compute(dst=Ref(memory=memory), expr=e) if memory == s.array:
                pieces = [rounded(s.array, value(e, env))]
            case _:
                return False
        kind = "" if any(writes(later, s.array) for later in walk(rest[1:])) else "const "
        code, *tail = assignment(kind + declaration(s.array, 1), pieces)
        self._put(depth, code, first.why or s.why, first, tuple(tail))
        return True

    def _store(self, s: Store, depth: int, env: Env) -> None:
        text = f"{access(s.dst, s.width, env)} = {access(s.src, s.width, env)};"
        if s.guard is None:
            self._put(depth, text, s.why, s)
        else:
            self._put(depth, f"if ({expression(s.guard, env)})", s.why, s, (text,))

    # --- Blocks ----------------------------------------------------------------------------------------------------

    def _for(self, s: For, depth: int, env: Env, names: Counter[str]) -> None:
        count = trips(s)
        env = {var: e for var, e in env.items() if var != s.var}
        if count == 0:
            self._skip(s.body)
        elif count == 1:
            if s.why:
                self._gap()
                self._put(depth, "", s.why)
            self._inline(s.body, depth, {**env, s.var: s.start}, names)
        else:
            if s.why:
                self._gap()
                self._put(depth, "", s.why)
            self._loop(s, depth, env)

    def _loop(self, s: For, depth: int, env: Env) -> None:
        """A loop with more than one turn, and what goes with it."""
        kept, turning = offsets(s, self.again), ring(s.body, s.var)
        for x in kept:
            self._name(depth, x.moving.name.name, x.kind, x.begins(env), x.why())
        for let, start in () if turning is None else turning.starts(s.var):
            self._name(depth, let.var.name, INDEX_TYPES[let.var.dtype], expression(start, env), let.why)
        if s.unroll is not None:
            self._put(depth, "#pragma unroll" if s.unroll is True else f"#pragma unroll {s.unroll or 1}")
        before, self.moving = self.moving, {**self.moving, **{x.array.name: x.moving for x in kept}}
        self.again |= s.shared is not None
        steps = [f"{x.moving.name.name} += {expression(x.step, env)}" for x in kept]
        head = loop_head(s, env, steps)
        if turning is None:
            self._braced(head, s.body, depth, env)
        else:
            self._put(depth, head + " {")
            self._scope(tuple(x for x in s.body if x not in turning.lets), depth + 1, env)
            over, then = turning.turn(env)
            self._put(depth + 1, f"if ({over}) {{ {' '.join(then)} }}" if len(then) > 1 else f"if ({over}) {then[0]}")
            self._put(depth, "}")
        self.moving = before

    def _inline(self, body: tuple[Stmt, ...], depth: int, env: Env, names: Counter[str]) -> None:
        """A body without what holds it, in braces where its names are taken."""
        if any(names[name] > 1 for name in declared(body)):
            self._put(depth, "{")
            self._scope(body, depth + 1, env)
            self._put(depth, "}")
        else:
            self._body(body, depth, env, names)

    def _skip(self, body: tuple[Stmt, ...]) -> None:
        """Numbers the accesses of a body that is never run."""
        self.accesses += sum(accesses(s) for s in walk(body))

    def _braced(self, head: str, body: tuple[Stmt, ...], depth: int, env: Env) -> None:
        """``head { body }``, on one line where the body is one short statement."""
        before = len(self.lines)
        self._put(depth, head + " {")
        self._scope(body, depth + 1, env)
        inner = self.lines[before + 1 :]
        if len(inner) == 1 and not inner[0].comment and not inner[0].declares and inner[0].whole.endswith(";"):
            line = Line(depth, f"{head} {inner[0].whole.strip()}", "", inner[0].accesses)
            if len(line.whole) <= WIDTH:
                self.lines[before:] = [line]
                return
        self._put(depth, "}")

    def _if(self, s: If, depth: int, env: Env, names: Counter[str]) -> None:
        known = value_of(s.cond)
        if known is not None:
            for body, runs in ((s.then, known != 0), (s.orelse, known == 0)):
                if runs:
                    self._inline(body, depth, env, names)
                else:
                    self._skip(body)
            return
        if s.why:
            self._gap()
            self._put(depth, "", s.why)
        head = f"if ({expression(s.cond, env)})"
        if not s.orelse:
            self._braced(head, s.then, depth, env)
            return
        self._put(depth, f"{head} {{")
        self._scope(s.then, depth + 1, env)
        self._put(depth, "} else {")
        self._scope(s.orelse, depth + 1, env)
        self._put(depth, "}")

    def _section(self, s: Section, depth: int, env: Env, names: Counter[str]) -> None:
        self._gap()
        heading = f"{s.title}: {s.why}" if s.why else s.title
        if not self.inside:
            self.sections += 1
            heading = f"{self.sections}. {heading}"
        self._put(depth, "", heading)
        for line in s.picture:
            self._put(depth, "", line)
        self.inside += 1
        self._body(s.body, depth, env, names)
        self.inside -= 1

    def _pinned(self, s: Pinned, depth: int, env: Env) -> None:
        """A loop that never repeats, which the compiler cannot know."""
        if s.why:
            self._gap()
            self._put(depth, "", s.why)
        self._put(depth, "#pragma unroll 1")
        self._put(depth, "do {")
        self._scope(s.body, depth + 1, env)
        self._put(depth, f"}} while (M == -1 - {expression(s.tag, env)});", "never: M is not negative")

    def _roles(self, s: Roles, depth: int, env: Env) -> None:
        """One branch a role, in order of their warps, which leave no gap between them."""
        if s.why:
            self._put(depth, "", s.why)
        roles = sorted(s.roles, key=lambda role: role.first)
        for at, role in enumerate(roles):
            head = "else" if at == len(roles) - 1 and at else f"if (threadIdx.x < {WARP * (role.last + 1)})"
            lead = "} else " if at and head != "else" else "} " if at else ""
            self._put(depth, f"{lead}{head} {{", f"{role.name}: warps {role.first} to {role.last}")
            self._scope(role.body, depth + 1, env)
        self._put(depth, "}")
