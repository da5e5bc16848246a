"""What a cubin says of itself: registers, threads, shared memory. Needs no GPU and no driver."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from gemmgen.diagnostics import CompileError

# Attributes of .nv.info: format of a record is a byte "how the value is held", a byte "which", then the value.
_REGCOUNT = 0x2F
_FRAME_SIZE = 0x11
_MAX_THREADS = 0x05
_VALUE_HAS_SIZE = 0x04


@dataclass(frozen=True)
class Resources:
    """What one kernel takes.

    ``registers`` a thread; ``spill_bytes`` a thread that the compiler moved from registers to memory; ``shared_bytes``
    a block, static, without the 1 KB that the system reserves from sm_90 on; ``threads`` a block, the launch bound
    (0: none given); ``stack_bytes`` of local memory a thread.
    """

    registers: int
    spill_bytes: int
    shared_bytes: int
    threads: int
    stack_bytes: int = 0

    def to_dict(self) -> dict[str, int]:
        return asdict(self)


def resources(cubin: bytes, name: str, spill_bytes: int = 0) -> Resources:
    """The resources of kernel ``name``. A cubin does not say how much was spilled: that comes from ptxas's log.

    Raises CompileError where the cubin has no such kernel.
    """
    from elftools.elf.elffile import ELFFile

    elf = ELFFile(io.BytesIO(cubin))
    table: Any = elf.get_section_by_name(".symtab")
    symbols: list[Any] = list(table.iter_symbols())
    index = next((i for i, s in enumerate(symbols) if s.name == name and s["st_info"]["type"] == "STT_FUNC"), None)
    if index is None:
        raise CompileError(f"the cubin has no kernel named {name}")
    of_all = {(which, v[0]): v[1] for which, v in _records(_data(elf, ".nv.info")) if len(v) == 2}
    of_kernel = dict(_records(_data(elf, f".nv.info.{name}")))
    shared = elf.get_section_by_name(f".nv.shared.{name}")
    bound = of_kernel.get(_MAX_THREADS, (0,))
    return Resources(
        registers=of_all.get((_REGCOUNT, index), 0),
        spill_bytes=spill_bytes,
        shared_bytes=max(0, (shared["sh_size"] if shared else 0) - _reserved_shared(elf, shared)),
        threads=bound[0],
        stack_bytes=of_all.get((_FRAME_SIZE, index), 0),
    )


def _reserved_shared(elf: Any, shared: Any) -> int:
    """Bytes of the section at the start of a block's shared memory that are the system's: 1 KB from sm_90 on."""
    flags = int(elf.header["e_flags"])
    # Two layouts of the flags: the architecture is in bits 8..15 in newer files and in bits 0..7 in older ones.
    arch = (flags >> 8) & 0xFF if flags & 0xFF in (2, 3, 4) else flags & 0xFF
    return 1024 if arch >= 90 and shared is not None else 0


def _data(elf: Any, section: str) -> bytes:
    found = elf.get_section_by_name(section)
    return bytes(found.data()) if found else b""


def _records(data: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The (attribute, 32-bit words) of an .nv.info section; attributes that hold no words are left out."""
    at = 0
    while at + 4 <= len(data):
        how, which, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if how != _VALUE_HAS_SIZE:
            continue
        yield which, struct.unpack_from(f"<{size // 4}I", data, at)
        at += size
