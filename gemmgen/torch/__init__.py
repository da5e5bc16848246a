"""gemmgen's products as PyTorch operators: ``import gemmgen.torch``.

``torch.ops.gemmgen.matmul`` and ``torch.ops.gemmgen.linear`` work under autograd, autocast, ``torch.compile``,
``torch.export``, vmap, CUDA graphs and DTensor. On the CPU they compute by torch itself.
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("gemmgen.torch needs PyTorch; pip install 'gemmgen[torch]'") from error

from gemmgen.torch.functional import linear, matmul
from gemmgen.torch.layers import Linear, replace_linear
from gemmgen.torch.sharding import register as _register_sharding

__all__ = ["Linear", "linear", "matmul", "replace_linear"]

_register_sharding()
