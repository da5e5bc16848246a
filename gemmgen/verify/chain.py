"""What an epilogue makes of a reference in float64, and of the error that the values before it may have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from gemmgen.api.operands import host_array, real
from gemmgen.isa.epilogue import Entry, chain_of
from gemmgen.launch.beside import refuse_names, refuse_shape

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gemmgen.spec.model import Spec

    Doubles: TypeAlias = "NDArray[np.float64]"


@dataclass(frozen=True)
class Chain:
    """The entries of a spec's epilogue with their operands, each as an array that broadcasts to C's shape."""

    entries: tuple[Entry, ...] = ()
    operands: Mapping[str, Any] | None = None

    def rows(self, part: slice) -> Chain:
        """The same for some rows of C."""
        operands = {name: x if x.shape[0] == 1 else x[part] for name, x in (self.operands or {}).items()}
        return Chain(self.entries, operands)

    def after(self, want: Doubles, error: Doubles) -> tuple[Doubles, Doubles, list[Stored]]:
        """The reference and its error behind all entries, and what is stored on the way."""
        operands, stored = self.operands or {}, list[Stored]()
        for e in self.entries:
            kept = [x.name for x in e.row.operands if x.written and x.name in operands]
            stored += [Stored(name, want, error, operands[name]) for name in kept]
            want, error = e.value(want, operands), e.error(want, error, operands)
        return want, error, stored


@dataclass(frozen=True)
class Stored:
    """What an entry has to store, with its error, and what it did store."""

    name: str
    want: Doubles
    error: Doubles
    got: Any


NO_CHAIN = Chain()


def chain_for(spec: Spec | None, named: Mapping[str, Any], shape: tuple[int, int]) -> Chain:
    """The chain of a spec. What it stores may be left out, and is then not compared. Raises ArgumentError for operands
    that are missing, unknown, or of another shape."""
    if spec is None or not (spec.epilogue or named):
        return NO_CHAIN
    written = {x.name: "not compared" for x in spec.beside if x.written}
    refuse_names({**written, **{name: x for name, x in named.items() if x is not None}}, spec)
    found: dict[str, Any] = {}
    for x in spec.beside:
        if named.get(x.name) is None:
            continue
        values = real(x.name, host_array(x.name, named[x.name]))
        refuse_shape(x, values.shape, *shape)
        found[x.name] = values.reshape({(): (1, 1), ("m",): (-1, 1), ("n",): (1, -1)}.get(x.dims, values.shape))
    return Chain(chain_of(spec.epilogue), found)
