"""Loads that the compiler leaves where they stand."""

from __future__ import annotations

from functools import cache

from gemmgen.ir.memory import Space
from gemmgen.ir.types import U32, DType
from gemmgen.isa.table import VALUE, Instruction, Operand


@cache
def pinned_load(name: str, kind: str, space: Space, dtype: DType, width: int) -> Instruction:
    """Load ``width`` neighbours, of the C type ``kind``: ``(array, bytes)`` of shared memory, ``(p)`` of global.

    It is PTX, since only ``volatile`` text keeps its place, and a volatile float4 is four accesses in C++."""
    count, unit, letter = pinned_registers(dtype, width)
    parts = ["v"] if count == 1 else [f"v.{x}" for x in "xyzw"[:count]]
    into = ", ".join(f"%{i}" for i in range(count))
    registers = into if count == 1 else f"{{{into}}}"
    suffix = "" if count == 1 else f".v{count}"
    shared = space == "shared"
    parameters = f"const {dtype.c}* array, int bytes" if shared else f"const {dtype.c}* p"
    where = '"r"((unsigned int)__cvta_generic_to_shared(array) + bytes)' if shared else '"l"(p)'
    outputs = ", ".join(f'"={letter}"({part})' for part in parts)
    what = f"{dtype.bytes * width} bytes of {space} memory"
    gap = "\n                 " if len(outputs) + len(where) > 70 else ""
    # What a kernel loads so from global memory nobody writes.
    where_from, clobber = (", at a byte offset in an array", ' : "memory"') if shared else ("", "")
    stays = " does not move it"
    ordered = f'\n//{stays}; "memory" keeps it between the stores and barriers around it' if shared else stays
    helper = f"""\
// Loads {what}{where_from}. Volatile, so that the compiler{ordered}.
__device__ __forceinline__ {kind} {name}({parameters})
{{
    {kind} v;
    asm volatile("ld.volatile.{space}{suffix}.{unit} {registers}, [%{count}];"
                 : {outputs}{gap} : {where}{clobber});
    return v;
}}"""
    source = Operand("shared" if shared else "global", "read", dtype)
    return Instruction(name, helper, operands=(source, VALUE) if shared else (source,))


def pinned_registers(dtype: DType, width: int) -> tuple[int, str, str]:
    """Registers of a load of ``width`` elements: how many, their PTX type, and their letter in inline assembly."""
    if not dtype.alias:
        return width, dtype.name, dtype.register
    if width == 1:
        return 1, f"u{dtype.bits}", dtype.register
    return dtype.bytes * width // U32.bytes, U32.name, U32.register
