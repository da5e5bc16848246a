"""``gemmgen gpus``: the table of GPUs, and the one that is here."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmgen.cli import exits, output
from gemmgen.cli.options import Json

if TYPE_CHECKING:
    from gemmgen.runtime.device import Device
    from gemmgen.target import Gpu


def gpus(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One GPU, with every figure's source.", show_default=False)
    ] = None,
    json: Json = False,
) -> int:
    """Show the GPUs gemmgen knows: units, rates, bandwidths and limits, each with its source.

    The GPU of this machine is read from its driver. Examples:

      gemmgen gpus

      gemmgen gpus h200

      gemmgen gpus --json
    """
    from gemmgen.runtime.device import current
    from gemmgen.target import GPUS, gpu

    rows = list(GPUS.values()) if name is None else [gpu(name)]
    here = current()
    if json:
        output.print_json({"here": here and asdict(here), "gpus": [described(row) for row in rows]})
    elif name is None:
        output.result(f"{table(rows)}\n\n{limits_table(rows)}\n\n{this_machine(here)}")
    else:
        output.result(sheet(rows[0]))
    return exits.OK


def described(row: Gpu) -> dict[str, Any]:
    from gemmgen.target import LIMITS_SOURCE

    return {**asdict(row), "sources": dict(row.sources), "limits": asdict(row.limits), "limits_source": LIMITS_SOURCE}


def table(rows: list[Gpu]) -> str:
    """Rates in TFLOP/s, bandwidths in GB/s, L2 in MB."""
    from gemmgen.report.table import format_table
    from gemmgen.text.wrap import wrapped

    headers = [
        "name", "GPU", "arch", "SMs", "MHz", "FP32", "TF32", "BF16", "FP8", "DRAM GB/s", "L2 GB/s", "shared GB/s",
        "L2 MB", "flop/byte",
    ]  # fmt: skip
    cells: list[list[object]] = [
        [
            g.name, g.title, g.arch, str(g.sms), str(g.clock_mhz), str(g.fp32_tflops), _rate(g.tf32_tflops),
            _rate(g.bf16_tflops), _rate(g.fp8_tflops), round(g.dram_gb_s), round(g.l2_gb_s), round(g.shared_gb_s),
            g.l2_bytes >> 20, round(g.ridge, 1),
        ]
        for g in rows
    ]  # fmt: skip
    note = (
        "FP32 to FP8: dense rates in TFLOP/s; flop/byte: DRAM intensity from which float32 can be limited by arithmetic"
    )
    return f"{format_table(headers, cells)}\n{wrapped(note)}"


def _rate(value: float | None) -> str:
    return "-" if value is None else str(value)


def limits_table(rows: list[Gpu]) -> str:
    """The resources of an SM of each architecture."""
    from gemmgen.report.table import format_table

    headers = [
        "arch", "warps", "blocks", "registers", "registers per thread", "register unit", "shared KB",
        "shared KB per block", "shared unit, bytes", "reserved bytes", "FP32 lanes",
    ]  # fmt: skip
    found = {row.arch: row.limits for row in rows}
    cells: list[list[object]] = [
        [
            arch, x.warps, x.blocks, x.registers, x.registers_per_thread, x.register_unit, x.shared_per_sm >> 10,
            x.shared_per_block >> 10, x.shared_unit, x.shared_reserved, x.fp32_lanes,
        ]
        for arch, x in sorted(found.items(), key=lambda item: int(item[0].removeprefix("sm_")))
    ]  # fmt: skip
    return f"resources per SM, and limits per block and thread\n{format_table(headers, cells)}"


def this_machine(here: Device | None) -> str:
    from gemmgen.runtime.device import why_none
    from gemmgen.target import row_of
    from gemmgen.text.wrap import wrapped

    if here is None:
        return wrapped(f"this machine has no usable GPU: {why_none()}")
    row = row_of(here.name)
    known = f"row {row.name} of the table" if row else "not in the table"
    return wrapped(f"this machine has {here.name}, {here.arch}, {here.sms} SMs (from its driver): {known}")


def sheet(g: Gpu) -> str:
    """One GPU: every figure and its source."""
    from gemmgen.report.table import format_table
    from gemmgen.target import FIGURES, LIMITS_SOURCE
    from gemmgen.text.wrap import wrapped

    rows: list[list[object]] = [[name, _text(getattr(g, name)), g.sources[name]] for name in FIGURES]
    return (
        f"{g.name}: {g.title}, {g.arch}\n\n{format_table(['figure', 'value', 'source'], rows)}\n\n"
        f"{limits_table([g])}\n" + wrapped(f"source: {LIMITS_SOURCE}")
    )


def _text(value: object) -> str:
    return "-" if value is None else f"{value:,}"
