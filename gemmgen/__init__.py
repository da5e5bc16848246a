"""gemmgen: tiled matrix multiplication for NVIDIA GPUs, from a spec of ten lines to CUDA that a person can read.

    import gemmgen
    spec = gemmgen.load("specs/warptile.gemm")
    print(gemmgen.emit(spec))                      # the CUDA C++
    kernel = gemmgen.compile(spec)                 # on the GPU, or on the simulator where there is none
    C = kernel(A, B)

Names are imported when they are first used, so that ``import gemmgen`` itself loads no NumPy and no CUDA.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gemmgen.version import __version__

if TYPE_CHECKING:
    from gemmgen.analysis.explain import Explanation
    from gemmgen.analysis.occupancy import Occupancy, occupancy
    from gemmgen.api.epilogue import epilogue
    from gemmgen.api.explaining import explain
    from gemmgen.api.kernel import Kernel, compile
    from gemmgen.api.simulation import Simulation, simulate
    from gemmgen.api.specs import emit, load, lower, parse, variants
    from gemmgen.diagnostics import (
        ArgumentError,
        CompileError,
        GemmgenError,
        LaunchError,
        SimulationFault,
        SpecError,
        TuneError,
    )
    from gemmgen.dispatch.autotune import autotune
    from gemmgen.dispatch.matmul import choose, matmul
    from gemmgen.export.project import export
    from gemmgen.isa.memory import shared_wavefronts
    from gemmgen.spec.model import Spec
    from gemmgen.tune.tuner import TuneResult
    from gemmgen.tune.tuning import tune
    from gemmgen.verify import Verification, verify

__all__ = [
    "ArgumentError",
    "CompileError",
    "Explanation",
    "GemmgenError",
    "Kernel",
    "LaunchError",
    "Occupancy",
    "Simulation",
    "SimulationFault",
    "Spec",
    "SpecError",
    "TuneError",
    "TuneResult",
    "Verification",
    "__version__",
    "autotune",
    "choose",
    "compile",
    "emit",
    "epilogue",
    "explain",
    "export",
    "load",
    "lower",
    "matmul",
    "occupancy",
    "parse",
    "shared_wavefronts",
    "simulate",
    "tune",
    "variants",
    "verify",
]

_HOME = {
    "gemmgen.analysis.explain": ("Explanation",),
    "gemmgen.analysis.occupancy": ("Occupancy", "occupancy"),
    "gemmgen.api.specs": ("emit", "load", "lower", "parse", "variants"),
    "gemmgen.diagnostics": (
        "ArgumentError",
        "CompileError",
        "GemmgenError",
        "LaunchError",
        "SimulationFault",
        "SpecError",
        "TuneError",
    ),
    "gemmgen.api.epilogue": ("epilogue",),
    "gemmgen.api.explaining": ("explain",),
    "gemmgen.isa.memory": ("shared_wavefronts",),
    "gemmgen.api.kernel": ("Kernel", "compile"),
    "gemmgen.dispatch.autotune": ("autotune",),
    "gemmgen.dispatch.matmul": ("choose", "matmul"),
    "gemmgen.export.project": ("export",),
    "gemmgen.api.simulation": ("Simulation", "simulate"),
    "gemmgen.spec.model": ("Spec",),
    "gemmgen.tune.tuner": ("TuneResult",),
    "gemmgen.tune.tuning": ("tune",),
    "gemmgen.verify": ("Verification", "verify"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


class _Package(ModuleType):
    """The package as a module whose public names are found on first use.

    Some are also names of submodules (``gemmgen.lower``, ``gemmgen.verify``): importing one of those would set the
    attribute to the module, so that ``gemmgen.lower(spec)`` worked or not by the order of imports. The function stays;
    ``from gemmgen.lower import ...`` works as ever.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_MODULE_OF[name]), name)
        super().__setattr__(name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _MODULE_OF and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
