"""What the design says stands in one place: rules that find, in the source, where it stands elsewhere.

Each rule is a function from a parsed module to what it finds there. They read syntax alone, so that they run on any
checkout. What a rule takes for a find and is none stands in EXCEPTIONS, each with the reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Find:
    """A place that a rule finds: its file inside the checkout, its line, and the source there."""

    file: str
    line: int
    source: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.source}"


@dataclass(frozen=True)
class Module:
    """A parsed file, ``file`` being its path inside the checkout."""

    file: str
    text: str
    tree: ast.Module = field(repr=False)

    @classmethod
    def of(cls, file: str, text: str) -> Module:
        return cls(file, text, ast.parse(text))

    @cached_property
    def prose(self) -> frozenset[int]:
        """The ids of strings that are statements of their own: docstrings."""
        return frozenset(id(n.value) for n in ast.walk(self.tree) if isinstance(n, ast.Expr))

    def find(self, node: ast.AST) -> Find:
        return Find(self.file, getattr(node, "lineno", 0), ast.unparse(node).partition("\n")[0][:100])

    def strings(self) -> Iterator[ast.Constant]:
        """Every string but docstrings, and the fixed parts of f-strings among them."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in self.prose:
                yield node

    def within(self, *folders: str) -> bool:
        return any(self.file.startswith(f"gemmgen/{folder}") for folder in folders)


Rule = Callable[[Module], Iterator[Find]]
TYPES = "ir/types.py"
SIZE_NAMES = ("ITEM", "WORD", "FLOAT_BYTES", "ELEMENT_BYTES")
ARITHMETIC = (ast.Mult, ast.FloorDiv, ast.Div)
WARP_NAMES = re.compile(r"_?(WARP|LANES?)(_SIZE|_LANES|_WIDTH|_THREADS)?")
WAYS = ("plain", "cpasync", "tma")
SHAPED = re.compile(r"(^|\.)(range|arange|zeros|ones|full|empty|reshape)$")
ORDERING = re.compile(r"WAIT|COMMIT|FENCE|MBARRIER|ARRIVE|RELEASE|(?<!A)SYNC|NEXT_KERNEL|EXPECT", re.IGNORECASE)


def four_bytes(m: Module) -> Iterator[Find]:
    """4 as the bytes of an element: ``4 * x``, ``x * 4``, ``x // 4``, ``x / 4``, the same with a name for 4 (ITEM,
    WORD), those names' definitions, and ``4 * NAME`` in emitted text. ``x % 4`` counts elements of an access, and is
    none; nor is 4 times a constant (``4 * MB``, ``[None] * 4``)."""
    if m.within(TYPES):
        return
    for node in ast.walk(m.tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ARITHMETIC):
            other = node.left if _is_four(node.right) else node.right if _is_four(node.left) else None
            four_first = isinstance(node.op, ast.Mult) or other is node.left
            if other is not None and four_first and not _constant(other):
                yield m.find(node)
        elif _defines(node, SIZE_NAMES, 4):
            yield m.find(node)
    for text in m.strings():
        if re.search(r"(?<![\w.])4 \* [A-Z(]", str(text.value)):
            yield m.find(text)


def float32_by_name(m: Module) -> Iterator[Find]:
    """float32 named as a value: ``np.float32``, or the string "float32". Prose in a message is none."""
    if m.within(TYPES):
        return
    for node in ast.walk(m.tree):
        if isinstance(node, ast.Attribute) and node.attr == "float32":
            yield m.find(node)
    for text in m.strings():
        if text.value == "float32":
            yield m.find(text)


def way_as_string(m: Module) -> Iterator[Find]:
    """A way of copying compared as a string: ``== "tma"``, ``!= "plain"``, ``case "cpasync"``. A toggle asked for
    (``"tma" in spec.use``) and an access's memory space (``.space == "tma"``) are none."""
    for node in ast.walk(m.tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            named = any(_string(s) in WAYS for s in sides)
            other = [ast.unparse(s) for s in sides if _string(s) is None]
            if named and not any(re.search(r"\buse\b|space\W*$", o) for o in other):
                yield m.find(node)
        elif isinstance(node, ast.Match) and not ast.unparse(node.subject).endswith("space"):
            for case in node.cases:
                values = [p for p in ast.walk(case.pattern) if isinstance(p, ast.MatchValue)]
                yield from (m.find(p) for p in values if _string(p.value) in WAYS)


def warp_size_defined(m: Module) -> Iterator[Find]:
    """32 given a name that says it is the lanes of a warp."""
    for node in ast.walk(m.tree):
        targets = _targets(node)
        if any(WARP_NAMES.fullmatch(t) for t in targets) and _value(getattr(node, "value", None)) == 32:
            yield m.find(node)


def warp_size_literal(m: Module) -> Iterator[Find]:
    """A bare 32 that is the lanes of a warp: with ``%``, ``//``, ``/`` or ``*``, compared, in the shape of an array,
    or in emitted text (``threadIdx.x % 32``, ``32 * (``, ``== 32``)."""
    if m.within(TYPES):
        return
    for node in ast.walk(m.tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (*ARITHMETIC, ast.Mod)):
            if 32 in (_value(node.left), _value(node.right)):
                yield m.find(node)
        elif isinstance(node, ast.Compare):
            if any(_value(s) == 32 for s in (node.left, *node.comparators)):
                yield m.find(node)
        elif isinstance(node, ast.Call) and SHAPED.search(ast.unparse(node.func)):
            yield from (m.find(node) for a in ast.walk(node) if _value(a) == 32)
    for text in m.strings():
        if re.search(r"threadIdx\.x [%/] 32|(?<![\w.])32 \* \(|== 32\b", str(text.value)):
            yield m.find(text)


def needed_architecture(m: Module) -> Iterator[Find]:
    """A needed architecture stated outside the rows of instructions (isa/) and types: ``arch=90``, a constant or table
    named for architectures or capabilities, a comparison with 75, 80, 86, 89, 90 or 100, or ``(sm_90)`` in a text."""
    if m.within("isa/", TYPES, "target.py"):
        return
    for node in ast.walk(m.tree):
        stated = [v for v in ast.walk(node) if _value(v) in ARCHITECTURES] if isinstance(node, ast.stmt) else []
        if isinstance(node, ast.keyword) and node.arg == "arch" and _value(node.value) in ARCHITECTURES:
            yield Find(m.file, node.value.lineno, ast.unparse(node))
        elif any(re.search("ARCH|CAPAB", t) for t in _targets(node)) and stated:
            yield m.find(node)
        elif isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            asked = [ast.unparse(s) for s in sides if re.search(r"arch|cc$|capab|there", ast.unparse(s))]
            if asked and any(_value(s) in ARCHITECTURES or _pair(s) for s in sides):
                yield m.find(node)
    for text in m.strings():
        if "(sm_90)" in str(text.value):
            yield m.find(text)


ARCHITECTURES = (75, 80, 86, 89, 90, 100)


def spec_after_lowering(m: Module) -> Iterator[Find]:
    """A spec read from the kernel IR (``ir.spec``) anywhere; in ir/, cuda/, sim/ and analysis/ any import of the
    spec's modules; in launch/, a setting read from ``spec``."""
    for node in ast.walk(m.tree):
        if isinstance(node, ast.Attribute) and node.attr == "spec":
            owner = ast.unparse(node.value)
            if re.search(r"(^|\.)(ir|kernel_ir|main|main_ir)$", owner) or re.search(r"\blower\(.*\)$", owner):
                yield m.find(node)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gemmgen.spec"):
            if m.within("ir/", "cuda/", "sim/"):
                yield m.find(node)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "spec" and m.within("launch/", "launch.py"):
            yield m.find(node)


def makes_order(m: Module) -> Iterator[Find]:
    """In lower/: a Sync made, a helper that makes one called, or an instruction named that orders (a wait, commit,
    fence, arrival, expectation, the set-up or release of a barrier). In isa/: a barrier inside the helper of an
    instruction that is not one itself."""
    if m.within("lower/"):
        ordering = {
            alias.asname or alias.name
            for node in ast.walk(m.tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gemmgen.isa")
            for alias in node.names
            if ORDERING.search(alias.name)
        }
        for node in ast.walk(m.tree):
            synced = isinstance(node, ast.Call) and re.search(r"(^|\.)(Sync|sync)$", ast.unparse(node.func))
            if synced or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in ordering):
                yield m.find(node)
    if m.within("isa/"):
        for text in m.strings():
            if "__syncwarp();" in str(text.value) or "__syncthreads();" in str(text.value):
                name = re.search(r"void (\w+)\(", str(text.value))
                yield Find(m.file, text.lineno, f"a barrier inside {name.group(1) if name else 'a helper'}")


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        four_bytes,
        float32_by_name,
        way_as_string,
        warp_size_defined,
        warp_size_literal,
        needed_architecture,
        spec_after_lowering,
        makes_order,
    )
}

EXCEPTIONS: dict[str, dict[tuple[str, str], str]] = {
    "four_bytes": {
        ("runtime/cubin.py", "size // 4"): "words of a section of ELF",
        ("tune/families.py", "-(-k // (4 * parts)) * 4"): "steps along k",
        ("tune/families.py", "-k // (4 * parts)"): "steps along k",
        ("tune/families.py", "4 * parts"): "steps along k",
        ("tune/search.py", "4 * FINALISTS"): "a number of trials",
        ("tune/estimate.py", "4 * b"): "elements of a fragment",
        ("tune/estimate.py", "LAUNCH_S / 4"): "seconds",
        ("tune/estimate.py", "m_iter * tm / 4"): "elements of a fragment",
        ("tune/estimate.py", "n_iter * tn / 4"): "elements of a fragment",
        ("launch/grid.py", "blocks // 4 * 4"): "blocks",
        ("launch/grid.py", "blocks // 4"): "blocks",
        ("launch.py", "blocks // 4 * 4"): "blocks",
        ("launch.py", "blocks // 4"): "blocks",
    },
    "warp_size_literal": {
        ("tune/families.py", "warp[1] // 32"): "columns of a tile",
        ("tune/pool.py", "tile.block[2] == 32"): "steps along k of a tile",
        ("tune/features.py", "2.5e-07 / 32"): "steps along k of a tile",
        ("report/page/words.py", "32 * _sectors(e)"): "bytes of a sector",
        ("report/page/context.py", "32 * sectors"): "bytes of a sector",
        ("report/ladder.py", "32 * moved"): "bytes of a sector",
        ("analysis/paragraph.py", "32 * worst.cost.sectors"): "bytes of a sector",
        ("analysis/compiled.py", "32 * a.width"): "bits of a word",
        ("target.py", "32 * GB"): "bytes of memory",
    },
    "needed_architecture": {
        ("runtime/cubin.py", "arch >= 90"): "shared memory that the system keeps: what a GPU has, not what is needed",
    },
}


def _is_four(node: ast.expr) -> bool:
    return _value(node) == 4 or (isinstance(node, ast.Name) and node.id in SIZE_NAMES)


def _constant(node: ast.expr) -> bool:
    """A number, a list, or a name for a power of 1024."""
    numbers = all(
        isinstance(n, (ast.Constant, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop)) for n in ast.walk(node)
    )
    return numbers or isinstance(node, ast.List) or ast.unparse(node) in ("KB", "MB", "GB")


def _value(node: ast.AST | None) -> object:
    return node.value if isinstance(node, ast.Constant) and not isinstance(node.value, bool) else None


def _string(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _pair(node: ast.expr) -> bool:
    """``(9, 0)``: a compute capability."""
    return isinstance(node, ast.Tuple) and [_value(e) for e in node.elts] in ([8, 0], [8, 9], [9, 0], [7, 5], [10, 0])


def _targets(node: ast.AST) -> list[str]:
    found = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [t.id for t in found if isinstance(t, ast.Name)]


def _defines(node: ast.AST, names: tuple[str, ...], value: int) -> bool:
    return any(t in names for t in _targets(node)) and _value(getattr(node, "value", None)) == value


def modules(checkout: Path) -> list[Module]:
    """Every module of the package in a checkout."""
    paths = sorted((checkout / "gemmgen").rglob("*.py"))
    return [Module.of(p.relative_to(checkout).as_posix(), p.read_text(encoding="utf-8")) for p in paths]


def found(rule: str, of: list[Module]) -> list[Find]:
    """What a rule finds, its exceptions left out."""
    excepted = EXCEPTIONS.get(rule, {})
    finds = sorted((f for m in of for f in RULES[rule](m)), key=lambda f: (f.file, f.line))
    return [f for f in finds if (f.file.removeprefix("gemmgen/"), f.source) not in excepted]
