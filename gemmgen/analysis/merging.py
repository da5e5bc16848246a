"""Scalar shared loads that the compiler joins into wider ones.

Loads of neighbouring words in the turns of an unrolled loop become one instruction of 2 or 4 words where every
lane's first address is aligned to it. The counts of the program as written are then not those of the hardware.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from gemmgen.analysis.accesses import Access, Axis
from gemmgen.analysis.classes import Growth, classify, evaluate, growth, index_values
from gemmgen.ir.expr import Var, lift
from gemmgen.ir.facts import substitute, variables
from gemmgen.ir.nodes import Load
from gemmgen.isa.memory import WORD

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


def merged(access: Access, lanes: Mapping[str, Ints]) -> Access | None:
    """The access as wider loads, or None where it stays as it is. ``lanes`` are the thread numbers."""
    if not isinstance(access.statement, Load) or access.width != 1 or access.element_bytes != WORD:
        return None
    if access.statement.rank is not None:  # it is said in PTX, of one width
        return None
    for axis in reversed(access.axes):
        if not axis.unrolled or growth(access.address, axis.index, {}) != Growth(1, 1):
            continue
        if axis.index in set(variables(access.active)):
            continue
        for width in (4, 2):
            if axis.count % width == 0:
                wider = _joined(access, axis, width)
                if _aligned(wider, width, lanes):
                    return wider
    return None


def _joined(access: Access, axis: Axis, width: int) -> Access:
    index = Var(axis.index.name, 0, axis.count // width - 1, uniform=True)
    address = substitute(access.address, {axis.index: lift(index) * width})
    axes = tuple(Axis(index, axis.count // width, True) if a == axis else a for a in access.axes)
    return replace(access, width=width, address=address, axes=axes)


def _aligned(access: Access, width: int, lanes: Mapping[str, Ints]) -> bool:
    used = set(variables(access.address))
    axes = [a for a in access.axes if a.index in used]
    classes = [classify(a, [access.address], axes, lanes, width) for a in axes]
    address = evaluate(access.address, index_values([(c.index, c.values) for c in classes], lanes))
    return bool((address % width == 0).all())
