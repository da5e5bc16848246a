"""A tensor-parallel MLP: the first layer split by columns, the second by rows, computed by gemmgen's operators.

    torchrun --nproc-per-node 2 examples/tensor_parallel.py        on GPUs over NCCL, else on the CPU over gloo

Each process holds half of both weights. The one all-reduce is that of the partial sums behind the second layer. Output
and gradients are compared with those of one process.
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import gemmgen.torch


def block(features: int, hidden: int) -> torch.nn.Module:
    """The same weights in every process."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(features, hidden), torch.nn.GELU(), torch.nn.Linear(hidden, features))


def main() -> None:
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    on_gpu = torch.cuda.device_count() >= count
    device = f"cuda:{rank}" if on_gpu else "cpu"
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    mesh = init_device_mesh("cuda" if on_gpu else "cpu", (count,))

    features, hidden = (1024, 4096) if on_gpu else (64, 256)
    one = block(features, hidden).to(device)
    many = gemmgen.torch.replace_linear(block(features, hidden).to(device))
    parallelize_module(many, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})

    torch.manual_seed(1)
    x = torch.randn(128, features, device=device)
    want, got = one(x), many(x)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)

    want.square().mean().backward()
    got.square().mean().backward()
    for mine, whole in zip(many.parameters(), one.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.full_tensor(), whole.grad, rtol=1e-4, atol=1e-5)
    shards = [tuple(p.to_local().shape) for p in many.parameters()]
    if rank == 0:
        print(f"PASS: {count} processes over {dist.get_backend()}, parameters of one: {shards}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
