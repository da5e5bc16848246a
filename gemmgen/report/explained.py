"""An explanation as JSON: what ``gemmgen explain --json`` prints."""

from __future__ import annotations

from typing import Any

from gemmgen.analysis.bottleneck import bottleneck, costs
from gemmgen.analysis.compiled import as_compiled, as_written
from gemmgen.analysis.explain import Explanation
from gemmgen.analysis.recorded import measured
from gemmgen.ir.types import WARP


def explanation_dict(e: Explanation) -> dict[str, Any]:
    """``to_dict`` and what the text adds: expected and measured time, shared loads as written and as compiled, the main
    loop, warnings and the paragraph."""
    loop = e.loop
    written, compiled = as_written(e.counts), as_compiled(e.counts, loop)
    found = measured(e)
    return {
        **e.to_dict(),
        "expected_s": e.bound.total_s,
        "measured": found and {"seconds": found.seconds, "gpu": found.gpu, "commit": found.commit},
        "fma_per_shared_load": e.counts.fma / (WARP * written.requests) if written.requests else None,
        "shared_loads": {
            "written": {"requests": written.requests, "wavefronts": written.wavefronts},
            "compiled": {"requests": compiled.requests, "wavefronts": compiled.wavefronts, "seen": compiled.seen},
        },
        "main_loop": loop.to_dict() if loop else None,
        "copies": dict(e.copies),
        "warnings": list(e.warnings),
        "bottleneck": {**bottleneck(e).to_dict(), "costs_s": costs(e)},
        "paragraph": e.paragraph,
    }
