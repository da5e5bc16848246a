"""``gemmgen run --syncs`` and ``--without-sync``: what each synchronisation of a kernel is there for."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from gemmgen.cli import exits, output

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec

MOST = 5
"""Faults that are printed."""


def listed(spec: Spec, *, json: bool) -> int:
    """The synchronisation of the exact kernel, numbered in program order."""
    import gemmgen
    from gemmgen.report.cut import named, synchronisation
    from gemmgen.report.table import format_table

    found = [named(s) for s in synchronisation(gemmgen.lower(spec))]
    if json:
        output.print_json([{"number": i, "name": name, "hazard": why} for i, (name, why) in enumerate(found, 1)])
    elif found:
        output.result(format_table(("#", "synchronisation", "hazard"), [[i, *row] for i, row in enumerate(found, 1)]))
    else:
        output.result(f"{spec.name} has no synchronisation")
    return exits.OK


def cut(spec: Spec, number: int, *, json: bool) -> int:
    """Run the kernel in the simulator without one of them; 1 where that gives faults, or a wrong result."""
    import gemmgen
    from gemmgen.report.cut import named, synchronisation, without
    from gemmgen.text.numbers import counted
    from gemmgen.text.wrap import wrapped

    ir = gemmgen.lower(spec)
    found = synchronisation(ir)
    if not 1 <= number <= len(found):
        there = f"it has 1 to {len(found)}" if found else "it has none"
        raise exits.UsageError(f"--without-sync {number}: {there}; `gemmgen run {spec.name} --syncs` lists them")
    name, hazard = named(found[number - 1])
    with output.progress(f"simulating {spec.name} without {name}"):
        done = without(spec, ir, found[number - 1])
    size = "x".join(map(str, done.size))
    if json:
        output.print_json(
            {"kernel": spec.name, "without": {"number": number, "name": name, "hazard": hazard}, "size": done.size}
            | {"right": done.right, "faults": [asdict(f) | {"text": str(f)} for f in done.faults]}
        )
    else:
        why = f" ({hazard})" if hazard else ""
        head = f"{spec.name} {size} on the simulator without {name}, number {number}{why}"
        right = "the result is right" if done.right else "the result is wrong"
        verdict = f"FAIL: {counted(len(done.faults), 'fault')}; {right}" if done.faults else f"no fault; {right}"
        lines = [wrapped(head), verdict, *(wrapped(str(f), first="  ", rest="    ") for f in done.faults[:MOST])]
        output.result("\n".join(lines))
    return exits.FAILED if done.faults or not done.right else exits.OK
