"""Make variants of a spec, verify each, and rank them by their counts.

    python examples/variants.py specs/regblock2d.gemm

The ranking uses shared wavefronts and global sectors from the simulator, so it needs no GPU.
"""

import sys

import numpy as np

import gemmgen

spec = gemmgen.load(sys.argv[1] if len(sys.argv) > 1 else "specs/regblock2d.gemm")
rng = np.random.default_rng(0)
A, B = rng.standard_normal((128, 64), np.float32), rng.standard_normal((64, 128), np.float32)

ranked = []
for variant in gemmgen.variants(
    spec, block=[(64, 64, 8), (128, 64, 8), (128, 128, 8)], thread=[(4, 4), (8, 4), (8, 8)]
):
    run = gemmgen.simulate(variant, A, B)
    check = gemmgen.verify(run.C, A, B, spec=variant)
    if run.faults or not check.ok:
        sys.exit(f"{variant.to_text()}{check}\n" + "\n".join(map(str, run.faults)))
    shared = run.counters["shared"]["load"]["wavefronts"] + run.counters["shared"]["store"]["wavefronts"]
    ranked.append((shared, run.counters["global"]["load"]["sectors"], variant))

print("shared wavefronts  global sectors  block        thread")
for shared, sectors, variant in sorted(ranked, key=lambda r: r[:2]):
    print(f"{shared:17}  {sectors:14}  {'x'.join(map(str, variant.block)):11}  {'x'.join(map(str, variant.thread))}")
