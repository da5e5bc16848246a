"""The small named functions above a kernel, only those that it calls."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.cuda.layout import Printed
from gemmgen.cuda.terms import pinned_name
from gemmgen.ir.facts import variables
from gemmgen.ir.lane_values import LANE_VALUES
from gemmgen.ir.nodes import Call, If, KernelIR, Load, Store, Sync, walk
from gemmgen.isa.cluster import CLUSTER_SYNC, cluster_load
from gemmgen.isa.table import Instruction


def helpers(ir: KernelIR) -> Iterator[Printed]:
    """Vector accesses, loads that keep their place, hardware operations; an empty line behind each."""
    writable: set[int] = set()
    readable: set[int] = set()
    pinned: dict[str, Load] = {}
    rows: dict[str, str] = {}
    for s in walk(ir.body):
        match s:
            case Load(pinned=True):
                pinned[pinned_name(s)] = s
                writable.add(s.width)
            case Load(width=width, rank=rank) if rank is not None:
                writable.add(width)
                rows |= _texts(cluster_load(width))
            case Sync(scope="cluster"):
                rows |= _texts(CLUSTER_SYNC)
            case Load(width=width, src=src):
                writable.add(width)
                if src.array.const:
                    readable.add(width)
            case Store(width=width):
                writable.add(width)
            case Call(row=row):
                rows |= _texts(row)
            case If(cond=cond):
                rows |= {LANE_VALUES[v.name].helper: "" for v in variables(cond) if v.name in LANE_VALUES}
            case _:
                pass
    for width in sorted(writable - {1}, reverse=True):
        yield from _text(vector_access(width, width in readable))
    for name in sorted(pinned):
        yield from _text(pinned_load(name, pinned[name].src.array.space, pinned[name].width))
    if any(p.kind == "tensormap" for p in ir.params):
        yield from _text(TENSOR_MAP)
    for helper in rows:
        yield from _text(helper.strip("\n"))


def _texts(row: Instruction) -> dict[str, str]:
    """The texts of a row, but for what CUDA has itself."""
    return {text: text for text in (*row.needs, row.helper) if text}


def _text(text: str) -> Iterator[Printed]:
    yield from map(Printed, text.split("\n"))
    yield Printed("")


TENSOR_MAP = """\
// How a matrix lies in memory, for the hardware that copies tiles of it. Made at launch, used by address.
struct alignas(128) TensorMap { unsigned long long opaque[16]; };"""


def vector_access(width: int, readable: bool) -> str:
    """``as_float4``, and where constant memory is read too, its twin."""
    kind = f"float{width}"
    lines = [f"// {4 * width} bytes in one access: p must be aligned to {4 * width} bytes."]
    for const in ("", "const ") if readable else ("",):
        body = f"{{ return *reinterpret_cast<{const}{kind}*>(p); }}"
        lines.append(f"__device__ __forceinline__ {const}{kind}& as_{kind}({const}float* p) {body}")
    return "\n".join(lines)


def pinned_load(name: str, space: str, width: int) -> str:
    """A load in PTX, since only ``volatile`` text keeps its place, and a volatile float4 is four accesses in C++."""
    kind = "float" if width == 1 else f"float{width}"
    parts = ["v"] if width == 1 else [f"v.{x}" for x in "xyzw"[:width]]
    into = ", ".join(f"%{i}" for i in range(width))
    registers = into if width == 1 else f"{{{into}}}"
    suffix = "" if width == 1 else f".v{width}"
    shared = space == "shared"
    parameters = "const float* array, int bytes" if shared else "const float* p"
    where = '"r"((unsigned int)__cvta_generic_to_shared(array) + bytes)' if shared else '"l"(p)'
    outputs = ", ".join(f'"=f"({part})' for part in parts)
    what = f"{4 * width} bytes of {space} memory"
    gap = "\n                 " if len(outputs) + len(where) > 70 else ""
    return f"""\
// {what}{", that many bytes into an array" if shared else ""}: the compiler moves no volatile load past another.
__device__ __forceinline__ {kind} {name}({parameters})
{{
    {kind} v;
    asm volatile("ld.volatile.{space}{suffix}.f32 {registers}, [%{width}];"
                 : {outputs}{gap} : {where});
    return v;
}}"""
