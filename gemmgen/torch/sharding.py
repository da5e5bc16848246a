"""How DTensor may shard the operators: tensor parallelism by columns, by rows and by the batch, with no communication
but what their layouts ask for.

Registered when ``torch.distributed.tensor`` is there; ``import gemmgen.torch`` does it.
"""

from __future__ import annotations

from typing import Any

import torch

Sharding = tuple[list[Any], list[Any]]
"""Placements of the outputs, and of each argument (None where it is no tensor)."""


def register() -> bool:
    """Register the rules; False where this torch has no DTensor."""
    if not torch.distributed.is_available():
        return False
    try:
        from torch.distributed.tensor.experimental import register_sharding
    except ImportError:
        return False
    register_sharding(torch.ops.gemmgen.matmul.default)(_matmul)
    register_sharding(torch.ops.gemmgen.linear.default)(_linear)
    return True


def _matmul(a: Any, b: Any, **_: Any) -> list[Sharding]:
    """By rows of A, columns of B, K (partial sums), and each dimension of a batch that no operand broadcasts."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    rank = max(a.ndim, b.ndim)
    whole = Replicate()
    found: list[Sharding] = [
        ([whole], [whole, whole]),
        ([Shard(rank - 2)], [Shard(a.ndim - 2), whole]),
        ([Shard(rank - 1)], [whole, Shard(b.ndim - 1)]),
        ([Partial()], [Shard(a.ndim - 1), Shard(b.ndim - 2)]),
    ]
    for at in range(rank - 2):
        sides = [_batch(x, at, rank) for x in (a, b)]
        if any(side is not None for side in sides):
            found.append(([Shard(at)], [whole if side is None else Shard(side) for side in sides]))
    return found


def _batch(x: Any, at: int, rank: int) -> int | None:
    """An operand's own number of a batch dimension; None where it is broadcast along that."""
    own = at - (rank - x.ndim)
    return own if own >= 0 and x.shape[own] > 1 else None


def _linear(x: Any, weight: Any, bias: Any = None, *, activation: str = "none", **_: Any) -> list[Sharding]:
    """By each dimension of x but the last; by rows of the weight (column parallel); and by its columns (row parallel),
    whose sums are partial, and so is the bias: then no activation can follow."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    whole = Replicate()

    def with_bias(x_and_weight: list[Any], placement: Any) -> list[Any]:
        return x_and_weight if bias is None else [*x_and_weight, placement]

    found: list[Sharding] = [([whole], with_bias([whole, whole], whole))]
    found += [([Shard(at)], with_bias([Shard(at), whole], whole)) for at in range(x.ndim - 1)]
    found.append(([Shard(x.ndim - 1)], with_bias([whole, Shard(0)], Shard(0))))
    if activation == "none":
        found.append(([Partial()], with_bias([Shard(x.ndim - 1), Shard(1)], Partial())))
    return found
