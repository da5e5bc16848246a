"""Choose a kernel for a shape: measured on the GPU, modelled elsewhere; then let matmul choose by itself.

python examples/tune.py
"""

from __future__ import annotations

import numpy as np

import gemmgen
from gemmgen.dispatch.matmul import choice_for
from gemmgen.runtime.device import current

SPEC = """
kernel mine
tile block 128x128x16
tile warp 64x64
tile thread 8x4
use coalescing, smem, transposeA, float4, warptile
tune tile block in {64x64x16, 128x64x16, 128x128x16}
tune tile warp in {32x32, 64x64}
tune stages in {1, 2}
tune prefetch in {on, off}
"""


def main() -> None:
    spec = gemmgen.parse(SPEC)
    found = gemmgen.tune(spec, 1000, 1000, 1000, device="sim" if current() is None else "cuda")
    how = f"measured on {found.gpu}" if found.measured else f"modelled for {found.gpu}; nothing was measured"
    print(f"best of {found.combinations}, {how}: {found.best_s * 1e6:.1f} us, {found.gflops:,.0f} GFLOP/s")
    for by, why, count in found.pruning:
        print(f"  {count} left out by the {by}: {why}")
    print(found.best.to_text())

    A, B = (np.random.default_rng(seed).standard_normal((128, 128), dtype=np.float32) for seed in (0, 1))
    C = gemmgen.matmul(A, B)
    print(gemmgen.verify(C, A, B))
    choice = choice_for(4096, 4096, 4096)
    print(f"matmul at 4096^3 on this machine's GPU, or an H200: {choice.source}\n{choice.spec.to_text()}")


if __name__ == "__main__":
    main()
