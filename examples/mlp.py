"""An MLP block with fused bias and GELU, beside torch's own block: the same numbers, and on a GPU the times of both.

python examples/mlp.py [SIZE]
"""

import sys

import torch

import gemmgen.torch


class Block(torch.nn.Module):
    """Two layers; bias and GELU of the first belong to its product."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.up = gemmgen.torch.Linear(features, hidden, activation="gelu")
        self.down = gemmgen.torch.Linear(hidden, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x))


def torch_block(block: Block) -> torch.nn.Module:
    """torch's own layers with the same weights."""
    up, down = (torch.nn.Linear(*layer.weight.shape[::-1], device=layer.weight.device) for layer in block.children())
    up.load_state_dict(block.up.state_dict())
    down.load_state_dict(block.down.state_dict())
    return torch.nn.Sequential(up, torch.nn.GELU(), down)


def milliseconds(f: torch.nn.Module, x: torch.Tensor) -> float:
    """The median of 20 timed calls."""
    times = []
    for _ in range(25):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        f(x)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times[5:])[10]


@torch.no_grad()
def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else (4096 if torch.cuda.is_available() else 64)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    block = Block(size, size).to(device)
    theirs = torch_block(block)
    x = torch.randn(size, size, device=device)
    torch.testing.assert_close(block(x), theirs(x), rtol=1e-4, atol=1e-4)
    print(f"PASS: {size}x{size} on {device}")
    if device == "cuda":
        mine = torch.compile(block, fullgraph=True, mode="reduce-overhead")
        compiled = torch.compile(theirs, fullgraph=True, mode="reduce-overhead")
        mine_ms, theirs_ms = milliseconds(mine, x), milliseconds(compiled, x)
        print(f"gemmgen {mine_ms:.3f} ms, torch {theirs_ms:.3f} ms: {theirs_ms / mine_ms:.2f} of torch's speed")


if __name__ == "__main__":
    main()
