"""The body of a kernel as lines of CUDA."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from gemmgen.cuda.idioms import copied, copy_text, declared, product, product_text, reaches, trips
from gemmgen.cuda.layout import INDENT, WIDTH, Line
from gemmgen.cuda.terms import (
    INDEX_TYPES,
    TYPES,
    Env,
    access,
    address,
    declaration,
    expression,
    loaded,
    number,
    reference,
    value,
)
from gemmgen.ir.expr import Const, Expr, value_of
from gemmgen.ir.nodes import (
    Alloc,
    Array,
    Call,
    Compute,
    FBin,
    Fma,
    For,
    If,
    Let,
    LetPointer,
    Load,
    Read,
    Ref,
    Roles,
    Section,
    Stmt,
    Store,
    Sync,
    walk,
)


def memory_of(s: Load | Store) -> Array:
    """The array that an access goes to or comes from, as against the registers on its other side."""
    return (s.src if isinstance(s, Load) else s.dst).array


def is_access(s: Stmt) -> bool:
    """Whether the statement is numbered: a load or store of global or shared memory."""
    return isinstance(s, Load | Store) and memory_of(s).space != "register"


@dataclass
class Printer:
    """Prints statements in order, numbering the accesses as they come.

    ``widths`` is the widest access to each register array, by name; ``taken`` the names of the function's scope.
    """

    widths: Mapping[str, int]
    taken: tuple[str, ...] = ()
    lines: list[Line] = field(default_factory=list)
    accesses: int = 0
    sections: int = 0

    def function(self, body: tuple[Stmt, ...]) -> list[Line]:
        """The lines of a whole kernel's body."""
        self._body(body, 1, {}, Counter((*self.taken, *declared(body))))
        return self.lines

    # --- Lines -----------------------------------------------------------------------------------------------------

    def _put(self, depth: int, code: str, comment: str = "", s: Stmt | None = None, tail: tuple[str, ...] = ()) -> None:
        numbers: tuple[int, ...] = ()
        if s is not None and is_access(s):
            numbers = (self.accesses,)
            self.accesses += 1
        self.lines.append(Line(depth, code, comment, numbers, tail))

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
        if not isinstance(body[0], Alloc) or body[0].init is not None:
            return 0
        if moved := copied(body):
            return self._joined(copy_text(moved, env), body[:3], depth)
        if (factors := product(body)) and len(INDENT * depth + (line := product_text(factors, env)).code) <= WIDTH:
            return self._joined(line, body[:5], depth)
        name = body[0].array.name
        if names[name] > 1:
            last = max(at for at, s in enumerate(body) if at == 0 or reaches(body, at, body[0].array))
            self._put(depth, "{")
            self._scope(body[: last + 1], depth + 1, env)
            self._put(depth, "}")
            return last + 1
        return 2 if self._declared_with_value(body[0], body[1:], depth, env) else 0

    def _joined(self, line: Line, statements: tuple[Stmt, ...], depth: int) -> int:
        """Puts one line that stands for several statements."""
        found = [s for s in statements if is_access(s)]
        numbers = tuple(range(self.accesses, self.accesses + len(found)))
        self.accesses += len(found)
        why = " ".join(s.why for s in statements if isinstance(s, Alloc | Load | Store | Fma) and s.why)
        self.lines.append(Line(depth, line.code, why, numbers, line.tail))
        return len(statements)

    # --- Statements ------------------------------------------------------------------------------------------------

    def _statement(self, s: Stmt, depth: int, env: Env, names: Counter[str]) -> None:
        match s:
            case Let(var, e, why):
                self._put(depth, f"const {INDEX_TYPES[var.dtype]} {var.name} = {expression(e, env)};", why)
            case LetPointer(pointer, why):
                offset = expression(pointer.offset, env)
                start = pointer.base.name if offset == "0" else f"{pointer.base.name} + {offset}"
                self._put(depth, f"{pointer_type(pointer.array)} {pointer.name} = {start};", why)
            case Alloc():
                self._alloc(s, depth)
            case For():
                self._for(s, depth, env, names)
            case If():
                self._if(s, depth, env)
            case Load():
                target = access(s.dst, s.width, env)
                first, *tail = loaded(s, env)
                self._put(depth, f"{target} = {first}{';' if not tail else ''}", s.why, s, tuple(tail))
            case Store():
                self._store(s, depth, env)
            case Fma(acc, a, b, why):
                self._put(depth, f"{reference(acc, env)} += {reference(a, env)} * {reference(b, env)};", why)
            case Compute():
                self._put(depth, f"{assigned(s, env)};", s.why)
            case Call(row, args, why):
                self._put(depth, f"{row.name}({', '.join(argument(a, env) for a in args)});", why)
            case Sync(_, hazard):
                self._put(depth, "__syncthreads();", hazard)
            case Section():
                self._section(s, depth, env, names)
            case Roles():
                self._roles(s, depth, env)
            case _:
                assert_never(s)

    def _alloc(self, s: Alloc, depth: int) -> None:
        text = declaration(s.array, self.widths.get(s.array.name, 1))
        if s.init is None:
            self._put(depth, f"{text};", s.why)
        elif not s.array.shape:
            self._put(depth, f"{text} = {number(s.init)};", s.why)
        elif s.init == 0.0:
            self._put(depth, f"{text} = {{}};", s.why)
        else:
            self._put(depth, f"{text};", s.why)
            pointer = f"reinterpret_cast<{TYPES[s.array.dtype]}*>({s.array.name})"
            count = f"(int)(sizeof({s.array.name}) / sizeof({TYPES[s.array.dtype]}))"
            self._put(depth, f"for (int i = 0; i < {count}; ++i) {pointer}[i] = {number(s.init)};")

    def _declared_with_value(self, s: Alloc, rest: tuple[Stmt, ...], depth: int, env: Env) -> bool:
        """Prints a scalar together with its first value, where that comes next."""
        if s.array.shape or s.init is not None or not rest:
            return False
        first = rest[0]
        match first:
            case Load(dst=Ref(memory=memory)) if memory == s.array:
                text, *tail = loaded(first, env)
            case Compute(dst=Ref(memory=memory), expr=e) if memory == s.array:
                text, tail = value(e, env), []
            case _:
                return False
        kind = "" if any(writes(later, s.array) for later in walk(rest[1:])) else "const "
        code = f"{kind}{declaration(s.array, 1)} = {text}{';' if not tail else ''}"
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
            self.accesses += sum(is_access(inner) for inner in walk(s.body))
        elif count == 1:
            self._once(s, depth, {**env, s.var: s.start}, names)
        else:
            if s.why:
                self._gap()
                self._put(depth, "", s.why)
            if s.unroll is not None:
                self._put(depth, "#pragma unroll" if s.unroll is True else f"#pragma unroll {s.unroll or 1}")
            self._braced(loop_head(s, env), s.body, depth, env)

    def _once(self, s: For, depth: int, env: Env, names: Counter[str]) -> None:
        """A loop that runs once, printed as its body."""
        if s.why:
            self._gap()
            self._put(depth, "", s.why)
        if any(names[name] > 1 for name in declared(s.body)):
            self._put(depth, "{")
            self._scope(s.body, depth + 1, env)
            self._put(depth, "}")
        else:
            self._body(s.body, depth, env, names)

    def _braced(self, head: str, body: tuple[Stmt, ...], depth: int, env: Env) -> None:
        """``head { body }``, on one line where the body is one short statement."""
        before = len(self.lines)
        self._put(depth, head + " {")
        self._scope(body, depth + 1, env)
        inner = self.lines[before + 1 :]
        if len(inner) == 1 and not inner[0].comment and inner[0].code.endswith(";"):
            line = Line(depth, f"{head} {inner[0].code}", "", inner[0].accesses)
            if len(line.whole) <= WIDTH:
                self.lines[before:] = [line]
                return
        self._put(depth, "}")

    def _if(self, s: If, depth: int, env: Env) -> None:
        known = value_of(s.cond)
        taken, other = (s.orelse, s.then) if known == 0 else (s.then, s.orelse)
        head = f"if ({expression(s.cond, env)})"
        if s.why:
            self._put(depth, "", s.why)
        if not other:
            self._braced(head, taken, depth, env)
            return
        self._put(depth, f"{head} {{")
        self._scope(s.then, depth + 1, env)
        self._put(depth, "} else {")
        self._scope(s.orelse, depth + 1, env)
        self._put(depth, "}")

    def _section(self, s: Section, depth: int, env: Env, names: Counter[str]) -> None:
        self._gap()
        heading = s.title
        if depth == 1:
            self.sections += 1
            heading = f"{self.sections}. {s.title}"
        self._put(depth, "", f"{heading}: {s.why}" if s.why else heading)
        self._body(s.body, depth, env, names)

    def _roles(self, s: Roles, depth: int, env: Env) -> None:
        """One branch a role, in order of their warps, which leave no gap between them."""
        if s.why:
            self._put(depth, "", s.why)
        roles = sorted(s.roles, key=lambda role: role.first)
        for at, role in enumerate(roles):
            head = "else" if at == len(roles) - 1 and at else f"if (threadIdx.x < {32 * (role.last + 1)})"
            lead = "} else " if at and head != "else" else "} " if at else ""
            self._put(depth, f"{lead}{head} {{", f"{role.name}: warps {role.first} to {role.last}")
            self._scope(role.body, depth + 1, env)
        self._put(depth, "}")


# --- Pieces of statements -----------------------------------------------------------------------------------------


def loop_head(s: For, env: Env) -> str:
    name = s.var.name
    step = f"++{name}" if s.step == Const(1) else f"{name} += {expression(s.step, env)}"
    start, stop = expression(s.start, env), expression(s.stop, env)
    return f"for ({INDEX_TYPES[s.var.dtype]} {name} = {start}; {name} < {stop}; {step})"


def assigned(s: Compute, env: Env) -> str:
    """``dst = expr``, as ``dst += x`` or ``dst *= x`` where that is what it says."""
    target = reference(s.dst, env)
    match s.expr:
        case FBin(("+" | "*") as op, Read(ref), other) if ref == s.dst:
            return f"{target} {op}= {value(other, env)}"
        case _:
            return f"{target} = {value(s.expr, env)}"


def argument(a: Ref | Expr, env: Env) -> str:
    """An argument of a hardware operation: memory by address, registers and numbers as they are."""
    if isinstance(a, Ref):
        return reference(a, env) if a.array.space == "register" else address(a, env)
    return expression(a, env)


def pointer_type(array: Array) -> str:
    return f"{'const ' if array.const else ''}{TYPES[array.dtype]}*"


def writes(s: Stmt, array: Array) -> bool:
    """Whether a statement may change a register array."""
    match s:
        case Load(dst=dst) | Compute(dst=dst):
            return dst.memory == array
        case Fma(acc=acc):
            return acc.memory == array
        case Call(args=args):
            return any(isinstance(a, Ref) and a.memory == array for a in args)
        case _:
            return False
