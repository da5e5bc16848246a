"""An epilogue of one's own: leaky ReLU with a slope for each column of C, behind a bias, in one kernel.

python examples/epilogue.py        # on the GPU, or in the simulator where there is none
"""

import numpy as np

import gemmgen

gemmgen.epilogue(
    "leaky_relu",
    cuda="x < 0.0f ? slope * x : x",
    numpy=lambda x, slope: np.where(x < 0, slope * x, x),
    operands=["slope column"],
)
spec = gemmgen.load("warptile").replace(name="gemm_leaky_relu", epilogue="bias -> leaky_relu")
kernel = gemmgen.compile(spec)

random = np.random.default_rng(0)
A, B = (random.standard_normal(shape, dtype=np.float32) for shape in ((200, 96), (96, 150)))
beside = {"bias": random.standard_normal(150, dtype=np.float32), "slope": np.full(150, 0.1, np.float32)}
print(gemmgen.verify(kernel(A, B, **beside), A, B, spec=spec, **beside))
