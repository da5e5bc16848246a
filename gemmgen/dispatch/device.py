"""For which GPU a kernel is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemmgen.target import Gpu

HOST = -1
SIMULATED_GPU = "h200"
"""For which GPU a kernel is chosen where there is none: the one whose winners ship."""


def here() -> int:
    """The ordinal of this machine's GPU, HOST where there is none."""
    from gemmgen.runtime.device import current

    found = current()
    return HOST if found is None else found.ordinal


def row_of(ordinal: int) -> Gpu:
    """A GPU's rates; for HOST those of the one that is assumed."""
    from gemmgen.runtime import device as devices
    from gemmgen.target import gpu as gpu_named
    from gemmgen.tune.gpu import gpu_of

    return gpu_named(SIMULATED_GPU) if ordinal == HOST else gpu_of(devices.get(ordinal))
