"""Kernel IR to CUDA C++: the text that people read, and that NVRTC compiles.

The text is byte-stable: it depends on the IR alone. It needs no header.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gemmgen.cuda.first import explained, signature_words
from gemmgen.cuda.header import launch_text, maps_text
from gemmgen.cuda.helpers import helpers
from gemmgen.cuda.layout import WIDTH, Line, Printed, arranged, mentioned, sanitised, used, wrap_comment
from gemmgen.cuda.pieces import pointer_type
from gemmgen.cuda.shared import shared_parts
from gemmgen.cuda.statements import Printer
from gemmgen.cuda.terms import declaration
from gemmgen.ir.expr import value_of
from gemmgen.ir.kernel import Constant, KernelIR, Param
from gemmgen.ir.memory import STATIC_SHARED_BYTES, declared_apart
from gemmgen.ir.nodes import Load, Store, walk
from gemmgen.ir.reach import global_bytes
from gemmgen.ir.variant import VARIANTS


@dataclass(frozen=True)
class Emitted:
    """CUDA text, and for every access to global or shared memory, in program order, its line (from 1).

    An access that is never reached (in a loop that runs no times) has no line.
    """

    text: str
    lines: Mapping[int, int]


def emit_cuda(ir: KernelIR) -> str:
    """The CUDA C++ of a kernel, ending in a newline."""
    return emit_with_lines(ir).text


def emit_with_lines(ir: KernelIR) -> Emitted:
    """The CUDA C++ of a kernel, and where in it each access is.

    They are numbered from 0 in the order of ``walk(ir.body)``, as many a statement as ``accesses`` says.
    """
    body, names = used(_body(ir))
    above = list(helpers(ir))
    names.update(name for line in above for name in mentioned(line.text))
    rules = (_rule("Helpers: accesses and instructions by name"), _rule("The kernel")) if above else ((), ())
    constants = _constants(ir, names)
    printed = [
        *_header(ir),
        Printed(""),
        *constants,
        *rules[0],
        *above,
        *rules[1],
        *_signature(ir),
        *explained(arranged(body)),
    ]
    printed.append(Printed("}"))
    lines = {number: at for at, line in enumerate(printed, start=1) for number in line.accesses}
    return Emitted("\n".join(line.text for line in printed) + "\n", lines)


# --- Above the kernel ---------------------------------------------------------------------------------------------


def _header(ir: KernelIR) -> Iterator[Printed]:
    """What this is, how to launch it, the spec, what it is about, and how to make it again."""
    for text in wrap_comment(f"{ir.name}, {what(ir)}: {applies_to(ir)}"):
        yield Printed(text)
    yield Printed("//")
    for paragraph in filter(None, (launch_text(ir), maps_text(ir))):
        yield from map(Printed, wrap_comment(paragraph))
    yield Printed("//")
    for line in ir.source.lines:
        lead = "//     "
        text = f"{lead}{sanitised(line)}".rstrip()
        more = f"{lead}{' ' * (len(line) - len(line.partition(' ')[2].lstrip()))}"
        whole = len(text) <= WIDTH
        yield from map(Printed, [text] if whole else textwrap.wrap(text, WIDTH, subsequent_indent=more))
    yield Printed("//")
    for paragraph in (ir.summary, *ir.notes, f"Made by: gemmgen compile {ir.source.file}"):
        for text in wrap_comment(sanitised(paragraph)) if paragraph else ():
            yield Printed(sanitised(text))  # again: a line may now end where the text did not


def what(ir: KernelIR) -> str:
    """Which variant of a kernel it is, or whose work it prepares or finishes."""
    match ir.part:
        case "first":
            return f"the kernel before {ir.main}"
        case "main":
            known = ir.program is None or ir.variant in VARIANTS.values()
            return f"{ir.variant.label if known or ir.program is None else ir.program.named(ir.variant)} variant"
        case "then":
            return f"the second kernel of {ir.main}"


def applies_to(ir: KernelIR) -> str:
    """Which sizes and alignments the kernel is for, in words."""
    exact: dict[int, list[str]] = {}
    for dim, step in zip("mnk", ir.tile, strict=True):
        if dim not in ir.variant.guard and step > 1 and ir.part == "main":
            exact.setdefault(step, []).append(dim.upper())
    sizes = "any M, N, K" if ir.part == "main" else "any M and N"
    if exact:
        (step, dims), *others = exact.items()
        be = "are multiples" if len(dims) > 1 else "is a multiple"
        sizes = "".join([f"{listed(dims)} that {be} of {step}", *(f" and {listed(d)} of {s}" for s, d in others)])
    items = {p.name: p.array.dtype.bytes for p in ir.params if p.array is not None}
    widest = {name: size for name, size in global_bytes(ir).items() if size > items[name]}
    if not widest:
        return f"for {sizes}."
    parts = []
    for size in sorted(set(widest.values()), reverse=True):
        names = sorted(n for n in widest if widest[n] == size)
        parts.append(f"rows of {listed(names)} whose start and length are multiples of {size} bytes")
    return f"for {sizes}, and {', '.join(parts)}."


def listed(names: Sequence[str]) -> str:
    """``A``, ``A and B``, ``A, B and C``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _constants(ir: KernelIR, names: set[str]) -> Iterator[Printed]:
    """Tile sizes with their meaning, then what has to hold between them."""
    lines = [Line(0, f"constexpr int {c.name} = {c.text};", c.why) for c in _referred(ir, names)]
    yield from arranged(lines)
    if lines:
        yield Printed("")
    for assertion in ir.assertions:
        message = assertion.message.replace("\\", "\\\\").replace('"', '\\"')
        whole = f'static_assert({assertion.text}, "{message}");'
        if len(whole) <= WIDTH:
            yield Printed(whole)
        else:
            yield Printed(f"static_assert({assertion.text},")
            yield Printed(f'              "{message}");')
    if ir.assertions:
        yield Printed("")


def _referred(ir: KernelIR, names: set[str]) -> list[Constant]:
    """The constants that something refers to: a product with a 1 is not written, and NVRTC warns of unused names."""
    signature = mentioned(launch_bounds(ir)), mentioned(str(ir.cluster))
    names = names.union(*signature, *(mentioned(a.text) for a in ir.assertions))
    kept: list[Constant] = []
    for constant in reversed(ir.constants):
        if constant.name in names:
            kept.append(constant)
            names.update(mentioned(constant.text))
    return kept[::-1]


# --- The kernel ---------------------------------------------------------------------------------------------------


def _signature(ir: KernelIR) -> Iterator[Printed]:
    maps = any(p.kind == "tensormap" for p in ir.params)
    for paragraph in (_meanings(ir.params), signature_words(ir.min_blocks, maps)):
        yield from map(Printed, wrap_comment(paragraph))
    cluster = "" if value_of(ir.cluster) == 1 else f"__cluster_dims__(1, 1, {ir.cluster}) "
    yield Printed(f'extern "C" __global__ void {cluster}__launch_bounds__({launch_bounds(ir)})')
    line = f"{ir.name}("
    lead = " " * len(line)
    for at, p in enumerate(ir.params):
        piece = parameter(p) + ("," if at + 1 < len(ir.params) else ")")
        if len(line) + len(piece) > WIDTH and line.strip() and not line.endswith("("):
            yield Printed(line.rstrip())
            line = lead
        line += piece + " "
    yield Printed(line.rstrip())
    yield Printed("{")


def _meanings(params: Sequence[Param]) -> str:
    """What the parameters are, in one paragraph; leading dimensions that count alike are said together."""
    found: dict[str, list[str]] = {}
    for p in params:
        if p.why:
            why = re.sub(rf"\b{p.name[2:].upper()}\b", "...", p.why) if p.kind == "size" else p.why
            found.setdefault(why, []).append(p.name)
    parts = []
    for why, names in found.items():
        matrices = ", ".join(name[2:].upper() for name in names)
        parts.append(f"{', '.join(names)}: {why.replace('...', matrices)}")
    return "; ".join(parts)


def _rule(title: str) -> tuple[Printed, ...]:
    """A line across the text with a title in it, and an empty one."""
    return Printed(f"// --- {title} ".ljust(WIDTH, "-")), Printed("")


def launch_bounds(ir: KernelIR) -> str:
    """Threads in a block, and where the kernel asks for that, blocks on a multiprocessor."""
    named = any(c.name == "THREADS" and c.value == ir.threads for c in ir.constants)
    threads = "THREADS" if named else str(ir.threads)
    return threads if ir.min_blocks is None else f"{threads}, {ir.min_blocks}"


def parameter(p: Param) -> str:
    match p.kind:
        case "pointer":
            assert p.array is not None
            return f"{pointer_type(p.array)} {p.name}"
        case "size":
            return f"size_t {p.name}"
        case "tensormap":
            return f"const __grid_constant__ TensorMap {p.name}"
        case "int" | "float":
            return f"{p.kind} {p.name}"


def _body(ir: KernelIR) -> list[Line]:
    widths = vector_widths(ir)
    dynamic = ir.shared_bytes > STATIC_SHARED_BYTES
    apart = declared_apart(ir.shared)
    shared = _static(ir, widths) if apart else list(shared_parts(ir, dynamic))
    taken = (*(p.name for p in ir.params), *(a.name for a in ir.shared), "dynamicShared", "blockShared")
    printer = Printer(widths, taken, shared)
    return printer.function(ir.body)


def _static(ir: KernelIR, widths: Mapping[str, int]) -> list[Line]:
    return [Line(1, f"__shared__ {declaration(a, widths.get(a.name, 1))};") for a in ir.shared]


def vector_widths(ir: KernelIR) -> dict[str, int]:
    """The widest access to each shared and register array, in elements."""
    widths: dict[str, int] = {}
    for s in walk(ir.body):
        if isinstance(s, Load | Store) and s.width > 1:
            for array in (s.dst.array, s.src.array):
                widths[array.name] = max(widths.get(array.name, 1), s.width)
    return widths
