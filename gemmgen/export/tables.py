"""The C++ of a spec in an export: the tables that the launcher reads, and what a caller includes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gemmgen.cuda.layout import wrap_comment
from gemmgen.export.kernels import KNOWN, own_names
from gemmgen.launch.placement import OPERANDS
from gemmgen.lower.lines import elements_a_block
from gemmgen.runtime.launch import OPT_IN_ABOVE

if TYPE_CHECKING:
    from gemmgen.export.kernels import Exported, Kernel
    from gemmgen.ir.kernel import Param
    from gemmgen.ir.program import Step

MOST_PARAMETERS = 64
MOST_MAPS = 8
MOST_BESIDE = 8
LINE = 116
"""Characters of a line of embedded bytes."""

_KINDS = {"int": "integer", "size": "size", "float": "real", "pointer": "pointer", "tensormap": "map"}
_SKIPPED = {"never": "never", "beta is 1": "beta_is_1", "K is 0": "k_is_0"}


def source_text(x: Exported, project: str) -> str:
    """``src/NAME.cpp``: the compiled kernels as bytes, and the tables of the spec."""
    lines = [
        f"// Made by gemmgen: {x.name}, compiled for {x.arch}.",
        f"#include <{project}/rt/plan.hpp>",
        "",
        f"namespace {project} {{",
        f"namespace {x.name} {{",
        "",
        f"extern const rt::Spec spec;  // declared in {x.name}.hpp",
        "",
        "namespace {",
        "",
    ]
    for i, kernel in enumerate(x.kernels):
        lines += [*_bytes(f"cubin{i}", kernel.cubin), *(_bytes(f"ptx{i}", kernel.ptx) if kernel.ptx else [])]
        lines += [*_parameters(i, kernel, x), ""]
    lines += [*_kernel_table(x), *_variant_table(x), *_step_table(x.program.steps)]
    lines += [*_beside_table(x), "", "}  // namespace", ""]
    return "\n".join([*lines, *_spec(x), "", f"}}  // namespace {x.name}", f"}}  // namespace {project}", ""])


def _bytes(name: str, data: bytes) -> list[str]:
    """An array of bytes, in lines of numbers."""
    lines, line = [f"alignas(64) const unsigned char {name}[] = {{"], ""
    for number in data:
        piece = f"{number},"
        if len(line) + len(piece) > LINE:
            lines.append(line)
            line = ""
        line += piece
    return [*lines, line, "};"]


def _parameters(i: int, kernel: Kernel, x: Exported) -> list[str]:
    own = own_names(x.program)
    maps = {m.name: at for at, m in enumerate(kernel.ir.tensor_maps)}
    assert len(kernel.ir.params) <= MOST_PARAMETERS and len(maps) <= MOST_MAPS
    rows = [_parameter(p, maps, own) for p in kernel.ir.params]
    lines = [f"const rt::Parameter parameters{i}[] = {{", *rows, "};"]
    if maps:
        boxes = [f"    {{rt::{m.operand}, {{{m.box[0]}, {m.box[1]}}}, {m.swizzle}}}," for m in kernel.ir.tensor_maps]
        lines += [f"const rt::TensorMap maps{i}[] = {{", *boxes, "};"]
    return lines


def _parameter(p: Param, maps: dict[str, int], own: dict[str, tuple[str, int]]) -> str:
    if p.kind == "tensormap":
        source, index = "map", maps[p.name]
    elif p.name in KNOWN:
        source, index = p.name, 0
    else:
        source, index = own[p.name]
    return f"    {{rt::Kind::{_KINDS[p.kind]}, rt::Source::{source}, {index}}},"


def _kernel_table(x: Exported) -> list[str]:
    lines = ["const rt::Kernel kernels[] = {"]
    for i, kernel in enumerate(x.kernels):
        ir = kernel.ir
        shared = ir.shared_bytes if ir.shared_bytes > OPT_IN_ABOVE else 0
        maps = f"maps{i}, {len(ir.tensor_maps)}" if ir.tensor_maps else "nullptr, 0"
        ptx = f"ptx{i}, sizeof ptx{i}" if kernel.ptx else "nullptr, 0"
        lines.append(
            f'    {{"{kernel.name}", {ir.threads}, {shared}, parameters{i}, {len(ir.params)}, {maps}, '
            f"cubin{i}, sizeof cubin{i}, {ptx}}},"
        )
    return [*lines, "};"]


def _variant_table(x: Exported) -> list[str]:
    lines = ["const rt::Variant variants[] = {"]
    for variant, label, numbers in x.variants:
        align = ", ".join(str(variant.bytes(name)) for name in OPERANDS)
        run = elements_a_block(variant, x.program.matrix("C").dtype)
        exact = "false" if variant.guard else "true"
        lines.append(f'    {{"{label}", {exact}, {{{align}}}, {run}, {{{", ".join(map(str, numbers))}}}}},')
    return [*lines, "};"]


def _step_table(steps: Iterable[Step]) -> list[str]:
    rows = [
        f"    {{rt::{s.kernel.upper()}, {_bool(s.grid == 'lines')}, {s.parts}, rt::Skipped::{_SKIPPED[s.skipped]}, "
        f"{_bool(s.early)}}},"
        for s in steps
    ]
    return ["const rt::Step steps[] = {", *rows, "};"]


def _beside_table(x: Exported) -> list[str]:
    if not x.program.beside:
        return []
    assert len(x.program.beside) <= MOST_BESIDE
    rows = [
        f'    {{"{e.name}", "{e.dtype}", {_bool("m" in e.dims)}, {_bool("n" in e.dims)}, {e.dtype.bytes}, '
        f"{_bool(e.written)}}},"
        for e in x.program.beside
    ]
    return ["const rt::Beside beside[] = {", *rows, "};"]


def _spec(x: Exported) -> list[str]:
    p = x.program
    number = "".join(c for c in x.arch if c.isdigit())
    matrices = [
        f"    {{'{m.name}', \"{m.dtype}\", {m.dtype.bytes}, {_bool(m.order == 'row')}, {p.alignment[m.name]}}},"
        for m in (p.matrix(name) for name in OPERANDS)
    ]
    parts = p.workspace.parts if p.workspace is not None else 0
    return [
        "const rt::Spec spec = {",
        f'    "{x.name}", {number}, {_bool(not x.arch[-1].isdigit())}, {{',
        *(f"    {line}" for line in matrices),
        "    },",
        f"    {{{', '.join(map(str, p.tile))}}}, {p.looks_ahead}, {p.persistent}, {p.group}, {parts},",
        f"    steps, {len(p.steps)}, variants, {len(x.variants)}, kernels, {len(x.kernels)},",
        f"    {'beside' if p.beside else 'nullptr'}, {len(p.beside)}}};",
    ]


def header_text(x: Exported, project: str) -> str:
    """``include/PROJECT/NAME.hpp``: what a caller includes."""
    types = ", ".join(pointer_type(x, name) for name in OPERANDS)
    spec = x.spec.to_text(comment=False).splitlines()
    base = f"rt::Arguments<{types}>"
    takes = _own_arguments(x, base) if x.program.beside else [f"using Arguments = {base};"]
    return "\n".join(
        [
            f"// Made by gemmgen: {x.name}, compiled for {x.arch}.",
            "//",
            *(f"//     {line}".rstrip() for line in spec),
            "#pragma once",
            "",
            '#include "rt/launcher.hpp"',
            "",
            f"namespace {project} {{",
            f"namespace {x.name} {{",
            "",
            f"extern const rt::Spec spec;  // src/{x.name}.cpp",
            "",
            *takes,
            "",
            "inline rt::Loaded& loaded()",
            "{",
            "    static rt::Loaded kernels(spec);",
            "    return kernels;",
            "}",
            "",
            "// Loads all kernels now. Without it a call loads those that it needs.",
            "inline rt::Status prepare() { return loaded().all(); }",
            "",
            *_request(x),
            "inline rt::Status workspace_bytes(const Arguments& a, std::size_t& bytes)",
            "{",
            "    return rt::workspace_of(spec, request(a), bytes);",
            "}",
            "",
            *wrap_comment(f"C = {formula(x)}."),
            "// Enqueued on a.stream in the current context; waits for nothing.",
            "inline rt::Status gemm(const Arguments& a)",
            "{",
            "    return rt::run(spec, loaded(), request(a));",
            "}",
            "",
            f"}}  // namespace {x.name}",
            f"}}  // namespace {project}",
            "",
        ]
    )


def pointer_type(x: Exported, name: str) -> str:
    """What a caller's pointer to an operand points to; a type that C++ does not have is void."""
    dtype = x.program.matrix(name).dtype
    return "void" if dtype.alias else dtype.c


def formula(x: Exported) -> str:
    """What a kernel computes, its epilogue included."""
    return " -> ".join(["alpha * (A @ B) + beta * C", *x.spec.epilogue])


def _own_arguments(x: Exported, base: str) -> list[str]:
    """The arguments with the operands of the epilogue, named as its kernels' parameters."""
    members = []
    for e in x.program.beside:
        kind = "void" if e.dtype.alias else e.dtype.c
        members.append(
            f"    {'' if e.written else 'const '}{kind}* {e.name} = nullptr;" + (f"  // {e.why}" if e.why else "")
        )
        if e.matrix is not None:
            members.append(f"    long long {e.matrix.leading} = 0;  // 0: packed")
    return [f"struct Arguments : {base} {{", *members, "};"]


def _request(x: Exported) -> list[str]:
    fills = []
    for i, e in enumerate(x.program.beside):
        fills.append(f"    r.call.beside_address[{i}] = reinterpret_cast<std::uintptr_t>(a.{e.name});")
        if e.matrix is not None:
            fills.append(f"    r.call.beside_leading[{i}] = a.{e.matrix.leading};")
    if not fills:
        return ["inline rt::Request request(const Arguments& a) { return rt::request(a); }", ""]
    return [
        "inline rt::Request request(const Arguments& a)", "{", "    rt::Request r = rt::request(a);", *fills,
        "    return r;", "}", "",
    ]  # fmt: skip


def _bool(value: bool) -> str:
    return "true" if value else "false"
