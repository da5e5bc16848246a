"""gemmgen's operators in torch on the GPU: right, traced, captured, and what a call costs the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import gemmgen.torch  # noqa: E402

matmul, linear = torch.ops.gemmgen.matmul, torch.ops.gemmgen.linear
CALLS = 300
HOST_US = 12.0  # of an operator's call beyond that of torch.mm


def random(*shape: int, dtype: Any = torch.float32, transposed: bool = False) -> Any:
    x = torch.randn(shape, dtype=dtype, device="cuda")
    return x.mT.contiguous().mT if transposed else x


@pytest.fixture(autouse=True)
def exact() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(
    "shapes",
    [((200, 300), (300, 260)), ((3, 50, 300), (300, 260)), ((3, 50, 70), (3, 70, 33)), ((0, 8), (8, 4))],
    ids=str,
)
def test_matmul_is_torchs_and_opcheck_agrees(shapes: Any, layout: str, dtype: Any) -> None:
    a, b = (random(*s, dtype=dtype, transposed=t == "t") for s, t in zip(shapes, layout, strict=True))
    got = matmul(a, b)
    assert got.is_contiguous() and got.dtype is dtype
    tolerance = {torch.float32: 1e-4, torch.bfloat16: 2e-1, torch.float16: 2e-2}[dtype]
    torch.testing.assert_close(got.double(), a.double() @ b.double(), rtol=tolerance, atol=tolerance)
    torch.library.opcheck(matmul.default, (a.requires_grad_(), b.requires_grad_()), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_and_its_gradients_are_torchs(activation: str, bias: bool) -> None:
    def operands() -> list[Any]:
        torch.manual_seed(0)
        found = [random(4, 33, 70), random(50, 70), random(50)]
        return [x.requires_grad_() for x in (found if bias else found[:2])]

    mine, theirs = operands(), operands()
    then = {"none": lambda y: y, "relu": torch.relu, "gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu,
            "gelu_tanh": lambda y: torch.nn.functional.gelu(y, approximate="tanh")}[activation]  # fmt: skip
    got, want = linear(*mine, activation=activation), then(torch.nn.functional.linear(*theirs))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    got.square().sum().backward()
    want.square().sum().backward()
    for x, y in zip(mine, theirs, strict=True):
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-3, atol=1e-3)


def mlp(dtype: Any = torch.float32) -> Any:
    torch.manual_seed(0)
    layers = (torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256))
    return torch.nn.Sequential(*layers).to("cuda", dtype)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_whole_and_replayed_as_a_graph(mode: str) -> None:
    torch._dynamo.reset()
    model, plain = gemmgen.torch.replace_linear(mlp()), mlp()
    compiled = torch.compile(model, fullgraph=True, mode=mode)
    with torch.no_grad():
        for _ in range(4):
            x = random(128, 256)
            torch.testing.assert_close(compiled(x), plain(x), rtol=1e-4, atol=1e-4)


def test_trained_under_torch_compile_and_autocast() -> None:
    torch._dynamo.reset()
    model = gemmgen.torch.replace_linear(mlp())
    compiled = torch.compile(model, fullgraph=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = compiled(random(128, 256))
    out.float().square().mean().backward()
    assert out.dtype is torch.bfloat16 and model[0].weight.grad.dtype is torch.float32


def test_captured_in_a_graph() -> None:
    a, b = random(128, 256), random(256, 64)
    matmul(a, b)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = matmul(a, b)
    a.copy_(random(128, 256))
    graph.replay()
    torch.testing.assert_close(out, a @ b, rtol=1e-4, atol=1e-4)


def test_another_stream_is_where_it_runs() -> None:
    a, b = random(512, 512), random(512, 512)
    matmul(a, b)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        out = matmul(a, b)
    torch.cuda.current_stream().wait_stream(stream)
    torch.testing.assert_close(out, a @ b, rtol=1e-4, atol=1e-4)


def test_tensors_of_the_host_and_the_gpu_do_not_mix() -> None:
    with pytest.raises(gemmgen.ArgumentError, match="operands must be on one device: A on cuda:0, B on cpu"):
        matmul(random(4, 4), torch.ones(4, 4))


def host_us(call: Callable[[], Any]) -> float:
    """The median of the host's time per call, in microseconds."""
    found = []
    for _ in range(9):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        found.append((time.perf_counter() - start) / CALLS * 1e6)
    return sorted(found)[4]


def test_host_time_of_a_call() -> None:
    a, b = random(64, 64), random(64, 64)
    parameter = torch.nn.Parameter(random(64, 64))
    with torch.no_grad():
        theirs = host_us(lambda: torch.mm(a, b))
        mine = host_us(lambda: matmul(a, b))
        of_a_layer = host_us(lambda: gemmgen.torch.linear(a, parameter))
    print(f"host: torch.mm {theirs:.1f} us, gemmgen.matmul {mine:.1f} us, linear {of_a_layer:.1f} us")
    assert mine - theirs < HOST_US
