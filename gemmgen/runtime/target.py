"""Which architecture to compile for: pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gemmgen.diagnostics import CompileError

DEFAULT_ARCH = "sm_90"

# A cubin for one of these runs on no other member of its major version, nor the other way round (Tegra's own lines).
ALONE = frozenset({53, 62, 72, 87, 88, 101, 110})


@dataclass(frozen=True)
class Target:
    """What to ask NVRTC for: a ``cubin`` for ``sm_XY``, or ``ptx`` for ``compute_XY`` that the driver finishes."""

    kind: Literal["cubin", "ptx"]
    arch: str


def choose_target(cc: tuple[int, int], supported: Iterable[int]) -> Target:
    """The target for a GPU of compute capability ``cc``, given the architectures NVRTC knows (90 is 9.0).

    A cubin is preferred, since it needs no driver as new as NVRTC: that of the same major version with the highest
    minor version not above the GPU's. Failing that, PTX of the highest architecture below the GPU's. Raises
    CompileError where NVRTC knows only newer architectures.
    """
    device = 10 * cc[0] + cc[1]
    known = sorted(set(supported))
    cubins = [a for a in known if a == device or (_same_line(a, device) and a <= device)]
    if cubins:
        return Target("cubin", f"sm_{cubins[-1]}")
    older = [a for a in known if a < device and a not in ALONE]
    if older:
        return Target("ptx", f"compute_{older[-1]}")
    lowest = f"{known[0] // 10}.{known[0] % 10}" if known else "none"
    raise CompileError(
        f"this GPU has compute capability {cc[0]}.{cc[1]}, and this NVRTC compiles for {lowest} and newer; "
        "use an older NVRTC, or a newer GPU"
    )


def _same_line(arch: int, device: int) -> bool:
    return arch // 10 == device // 10 and arch not in ALONE and device not in ALONE
