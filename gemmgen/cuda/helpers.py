"""The small named functions above a kernel, only those that it calls."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.cuda.layout import Printed
from gemmgen.cuda.terms import pinned_name, vector_name, vector_type
from gemmgen.ir.facts import variables
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.nodes import Call, Compute, FBin, FCall, FExpr, Fma, If, Load, Store, Sync, walk
from gemmgen.ir.references import reads, references
from gemmgen.ir.types import F32, DType
from gemmgen.isa.cluster import CLUSTER_SYNC, cluster_load
from gemmgen.isa.convert import CONVERSIONS, TYPE_NAMES, from_float, to_float
from gemmgen.isa.lane_values import LANE_VALUES
from gemmgen.isa.loads import pinned_load
from gemmgen.isa.table import Instruction


def helpers(ir: KernelIR) -> Iterator[Printed]:
    """Vector accesses, loads that keep their place, hardware operations; an empty line behind each."""
    writable: set[tuple[DType, int]] = set()
    readable: set[tuple[DType, int]] = set()
    pinned: dict[str, Load] = {}
    rows: dict[str, str] = {}
    for s in walk(ir.body):
        match s:
            case Load(pinned=True):
                pinned[pinned_name(s)] = s
                writable.add((s.src.array.dtype, s.width))
            case Load(width=width, src=src, rank=rank) if rank is not None:
                writable.add((src.array.dtype, width))
                rows |= _texts(cluster_load(width))
            case Sync(scope="cluster"):
                rows |= _texts(CLUSTER_SYNC)
            case Load(width=width, src=src):
                writable.add((src.array.dtype, width))
                if src.array.const:
                    readable.add((src.array.dtype, width))
            case Store(dst=dst, width=width):
                writable.add((dst.array.dtype, width))
            case Call(row=row):
                rows |= _texts(row)
            case Compute(expr=expr):
                rows |= dict.fromkeys(functions(expr), "")
            case If(cond=cond):
                rows |= {LANE_VALUES[v.name].helper: "" for v in variables(cond) if v.name in LANE_VALUES}
            case _:
                pass
    yield from _narrow(ir)
    writable, readable = ({(_in_c(dtype), width) for dtype, width in found} for found in (writable, readable))
    for dtype, width in sorted((x for x in writable if x[1] > 1), key=lambda x: (-x[1], x[0].name)):
        yield from _text(vector_access(dtype, width, (dtype, width) in readable))
    for name in sorted(pinned):
        yield from _text(_pinned(name, pinned[name]).helper)
    if any(p.kind == "tensormap" for p in ir.params):
        yield from _text(TENSOR_MAP)
    for helper in rows:
        yield from _text(helper.strip("\n"))


def _in_c(dtype: DType) -> DType:
    """The type as C knows it: tf32 is float there."""
    return F32 if dtype.c == F32.c else dtype


def _narrow(ir: KernelIR) -> Iterator[Printed]:
    """The names of 16-bit types, and the conversions that the kernel uses."""
    kinds = {ref.array.dtype for s in walk(ir.body) for ref in references(s) if ref.array.dtype.alias}
    for dtype in sorted(kinds, key=str):
        yield from _text(TYPE_NAMES[dtype])
    for name in sorted(conversions(ir)):
        yield from _text(CONVERSIONS[name].strip("\n"))


def conversions(ir: KernelIR) -> set[str]:
    """The names of the conversions that statements make."""
    found: set[str] = set()
    for s in walk(ir.body):
        match s:
            case Fma(a=a, b=b):
                found |= {to_float(a.array.dtype), to_float(b.array.dtype)}
            case Compute(dst=dst, expr=expr):
                found |= {from_float(dst.array.dtype), *(to_float(ref.array.dtype) for ref in reads(expr))}
            case _:
                pass
    return found - {""}


def functions(e: FExpr) -> Iterator[str]:
    """The texts of the functions that an expression calls."""
    match e:
        case FCall(function, args):
            yield function.helper
            for a in args:
                yield from functions(a)
        case FBin(_, a, b):
            yield from functions(a)
            yield from functions(b)
        case _:
            pass


def _texts(row: Instruction) -> dict[str, str]:
    """The texts of a row, but for what CUDA has itself."""
    return {text: text for text in (*row.needs, row.helper) if text}


def _text(text: str) -> Iterator[Printed]:
    yield from map(Printed, text.split("\n"))
    yield Printed("")


TENSOR_MAP = """\
// The layout of a matrix in memory, for the TMA engine. Made at launch; instructions take its address, which
// must be a multiple of 64: alignas.
struct alignas(128) TensorMap { unsigned long long opaque[16]; };"""


def vector_access(dtype: DType, width: int, readable: bool) -> str:
    """``as_float4``, and where constant memory is read too, its twin."""
    name, kind = vector_name(dtype, width), vector_type(dtype, width)
    size = dtype.bytes * width
    lines = [f"// {size} bytes in one access: p must be aligned to {size} bytes."]
    for const in ("", "const ") if readable else ("",):
        body = f"{{ return *reinterpret_cast<{const}{kind}*>(p); }}"
        lines.append(f"__device__ __forceinline__ {const}{kind}& as_{name}({const}{dtype.c}* p) {body}")
    return "\n".join(lines)


def _pinned(name: str, load: Load) -> Instruction:
    """The instruction of a load that keeps its place."""
    dtype, width = load.src.array.dtype, load.width
    kind = dtype.c if width == 1 else vector_type(dtype, width)
    return pinned_load(name, kind, load.src.array.space, dtype, width)
