"""gemmgen's operators in torch, on the CPU: checked by torch's own tools, traced, exported, mapped, replaced."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'gemmgen[torch]')")

from torch.func import vmap  # noqa: E402
from torch.library import opcheck  # noqa: E402

import gemmgen  # noqa: E402
import gemmgen.torch  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
matmul, linear = torch.ops.gemmgen.matmul, torch.ops.gemmgen.linear
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")
SHAPES = [
    ((5, 7), (7, 3)), ((2, 5, 7), (7, 3)), ((2, 5, 7), (2, 7, 3)), ((4, 1, 5, 7), (2, 7, 3)), ((5, 7), (2, 7, 3)),
    ((0, 7), (7, 3)), ((5, 0), (0, 3)), ((1, 5, 7), (1, 7, 1)),
]  # fmt: skip


def random(*shape: int, dtype: Any = torch.float32, transposed: bool = False) -> Any:
    x = torch.randn(shape, dtype=dtype)
    return (x.mT.contiguous().mT if transposed else x).requires_grad_()


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_opcheck_of_matmul(shapes: tuple[tuple[int, ...], tuple[int, ...]], layout: str) -> None:
    """Schema, gradients' registration, and fake results whose shapes and strides are the real ones."""
    a, b = (random(*s, transposed=t == "t") for s, t in zip(shapes, layout, strict=True))
    opcheck(matmul.default, (a, b))
    torch.testing.assert_close(matmul(a, b), a @ b)
    assert matmul(a, b).is_contiguous()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_opcheck_and_gradients_of_linear(activation: str, bias: bool) -> None:
    operands = [random(2, 4, 5, dtype=torch.float64), random(3, 5, dtype=torch.float64)]
    operands += [random(3, dtype=torch.float64)] if bias else []
    opcheck(linear.default, tuple(operands), {"activation": activation})

    def f(*xs: Any) -> Any:
        return linear(*xs, activation=activation)

    assert torch.autograd.gradcheck(f, operands) and torch.autograd.gradgradcheck(f, operands)
    assert torch.autograd.gradcheck(lambda *xs: gemmgen.torch.linear(*xs, activation=activation), operands)


@pytest.mark.parametrize("shapes", SHAPES[:5], ids=str)
def test_gradients_of_matmul(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (random(*s, dtype=torch.float64) for s in shapes)
    assert torch.autograd.gradcheck(matmul, (a, b)) and torch.autograd.gradgradcheck(matmul, (a, b))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_linear_is_torchs_own_with_its_activation(dtype: Any, activation: str) -> None:
    functional = torch.nn.functional
    then = {
        "none": lambda y: y, "relu": functional.relu, "gelu": functional.gelu, "silu": functional.silu,
        "gelu_tanh": lambda y: functional.gelu(y, approximate="tanh"),
    }[activation]  # fmt: skip
    x, w, b = random(6, 5, dtype=dtype), random(3, 5, dtype=dtype), random(3, dtype=dtype)
    got = gemmgen.torch.linear(x, w, b, None if activation == "none" else activation)
    want = then(functional.linear(x, w, b))
    torch.testing.assert_close(got, want)
    mine, theirs = (torch.autograd.grad(y.sum(), (x, w, b)) for y in (got, want))
    torch.testing.assert_close(mine, theirs)


def test_a_layer_on_the_gpu_is_one_call_with_its_epilogue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of operands as they lie: the weight is a transposed view, and no parameter reaches the kernel."""
    from gemmgen.torch import backend

    calls: list[dict[str, Any]] = []

    def product(a: Any, b: Any, out: Any, **epilogue: Any) -> None:
        assert type(b) is torch.Tensor and not (a.requires_grad or b.requires_grad)
        out.copy_(backend.activated(a @ b + epilogue.get("bias", 0), epilogue.get("activation", "none")))
        calls.append({"stride": b.stride(), **epilogue})

    monkeypatch.setattr(backend, "gemmgen_matmul", product)
    x, w, b = random(2, 6, 5), torch.nn.Parameter(random(3, 5)), random(3)
    got = backend.linear_on_gpu(x, w, b, activation="gelu")
    torch.testing.assert_close(got, torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b)))
    torch.testing.assert_close(backend.matmul_on_gpu(x, random(5, 3).new_ones(5, 3)), x @ torch.ones(5, 3))
    assert [c.get("activation") for c in calls] == ["gelu", None] and calls[0]["stride"] == (1, 5)
    assert backend.linear_on_gpu(random(0, 5), w, b).shape == (0, 3) and len(calls) == 2
    for shapes in SHAPES:
        one, other = (random(*s) for s in shapes)
        torch.testing.assert_close(backend.matmul_on_gpu(one, other), one @ other)


# --- Transformations ------------------------------------------------------------------------------------------------


def test_vmap_over_any_operand_and_twice() -> None:
    a, b, many_a, many_b = random(6, 5), random(5, 3), random(4, 6, 5), random(5, 3, 4)
    each = [many_b[:, :, i] for i in range(4)]
    torch.testing.assert_close(vmap(matmul, (0, None))(many_a, b), many_a @ b)
    torch.testing.assert_close(vmap(matmul, (None, 2))(a, many_b), torch.stack([a @ y for y in each]))
    torch.testing.assert_close(
        vmap(matmul, (0, 2))(many_a, many_b), torch.stack([x @ y for x, y in zip(many_a, each, strict=True)])
    )
    torch.testing.assert_close(
        vmap(vmap(matmul, (0, None)), (None, 2))(many_a, many_b), torch.stack([many_a @ y for y in each])
    )


@pytest.mark.parametrize("dims", [(0, None, None), (None, 0, None), (0, 0, 0), (None, 0, 0), (0, None, 0)])
def test_vmap_of_linear(dims: tuple[int | None, ...]) -> None:
    x, w, b = random(4, 2, 5), random(4, 3, 5), random(4, 3)
    given = [t if at == 0 else t[0] for t, at in zip((x, w, b), dims, strict=True)]
    want = [
        torch.nn.functional.linear(*(t[i] if at == 0 else t for t, at in zip(given, dims, strict=True)))
        for i in range(4)
    ]
    torch.testing.assert_close(vmap(linear, dims)(*given), torch.stack(want))


def test_autocast_casts_the_operands_and_not_doubles() -> None:
    a, b = random(6, 5), random(5, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = matmul(a, b)
        assert out.dtype is torch.bfloat16 and matmul(a.double(), b.double()).dtype is torch.float64
        assert gemmgen.torch.linear(a, random(3, 5), random(3)).dtype is torch.bfloat16
    out.sum().backward()
    assert a.grad.dtype is torch.float32


def mlp() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))


def test_compiled_whole_and_once_for_every_size() -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    model, plain = gemmgen.torch.replace_linear(mlp()), mlp()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counter)
    for rows in (3, 5, 9, 33):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x), plain(x))
    compiled(torch.randn(3, 8)).sum().backward()
    assert counter.frame_count == 1 and model[0].weight.grad is not None


def test_compiled_under_autocast() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(gemmgen.torch.replace_linear(mlp()), fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert compiled(torch.randn(3, 8)).dtype is torch.bfloat16


def test_exported_with_any_number_of_rows() -> None:
    model, plain = gemmgen.torch.replace_linear(mlp()), mlp()
    rows = torch.export.Dim("rows")
    program = torch.export.export(model, (torch.randn(3, 8),), dynamic_shapes=({0: rows},))
    assert sum(n.target is linear.default for n in program.graph.nodes) == 2
    x = torch.randn(7, 8)
    torch.testing.assert_close(program.module()(x), plain(x))


# --- Layers ---------------------------------------------------------------------------------------------------------


def test_replaced_layers_keep_their_parameters_hooks_and_names() -> None:
    model = mlp()
    seen: list[Any] = []
    model[0].register_forward_hook(lambda *_: seen.append(1))
    before = copy.deepcopy(model.state_dict())
    weight = model[0].weight
    replaced = gemmgen.torch.replace_linear(model)
    assert replaced is model and type(model[0]) is gemmgen.torch.Linear and model[0].weight is weight
    torch.testing.assert_close(dict(model.state_dict()), dict(before))
    torch.testing.assert_close(model(torch.ones(2, 8)), mlp()(torch.ones(2, 8)))
    assert seen == [1]
    alone = gemmgen.torch.replace_linear(torch.nn.Linear(2, 2))
    assert type(alone) is gemmgen.torch.Linear


def test_subclasses_of_linear_are_left_alone() -> None:
    class Own(torch.nn.Linear):
        pass

    model = torch.nn.Sequential(Own(2, 2), torch.nn.MultiheadAttention(4, 2))
    before = [type(m) for m in model.modules()]
    gemmgen.torch.replace_linear(model)
    assert [type(m) for m in model.modules()] == before


def test_a_layer_with_an_activation_says_so() -> None:
    layer = gemmgen.torch.Linear(8, 4, activation="relu")
    assert "activation=relu" in repr(layer) and (layer(torch.randn(3, 8)) >= 0).all()


# --- What is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: matmul(torch.ones(2, 3), torch.ones(3, 2).double()), "A has type float32 and B float64; convert one"),
        (lambda: matmul(torch.ones(2, 3).int(), torch.ones(3, 2).int()), "A has type int32; float32, float16"),
        (lambda: matmul(torch.ones(3), torch.ones(3, 2)), "A has 1 dimensions; a matrix has 2"),
        (lambda: matmul(torch.ones(2, 3), torch.ones(3, 2, device="meta")), "A on cpu, B on meta"),
        (lambda: matmul(torch.ones(2, 3), torch.ones(3, 2), precision="fast"), "it is one of exact, tf32"),
        (lambda: linear(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 2)), "bias has 2 dimensions; it has 1"),
        (lambda: gemmgen.torch.linear(random(2, 3), random(2, 3), None, "tanh"), "it is one of none, relu"),
        (lambda: linear(torch.ones(2, 3), torch.ones(3)), "x has 2 dimensions and weight 1"),
    ],
)
def test_operands_that_do_not_fit_are_refused(call: Any, message: str) -> None:
    with pytest.raises(gemmgen.ArgumentError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: matmul(torch.ones(2, 3), torch.ones(4, 2)), "A has 3 columns, and B 4 rows"),
        (lambda: linear(torch.ones(2, 3), torch.ones(2, 4)), "x has 3 features, and weight takes 4"),
        (lambda: linear(torch.ones(2, 3), torch.ones(2, 3), torch.ones(3)), "bias has 3 elements, and weight 2 rows"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(call: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        call()


def test_without_torch_the_import_says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None; import gemmgen.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip().endswith("gemmgen.torch needs PyTorch; pip install 'gemmgen[torch]'")


# --- Several processes, and the examples ----------------------------------------------------------------------------


def torchrun(script: Path) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.full
def test_two_processes_compute_what_one_does() -> None:
    """Columns, then rows, over gloo: output and gradients of a tensor-parallel MLP."""
    assert "PASS: 2 processes over gloo" in torchrun(ROOT / "examples" / "tensor_parallel.py")


FULLY_SHARDED = """
import os, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
import gemmgen.torch
dist.init_process_group("gloo")
torch.manual_seed(0)
build = lambda: torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))
torch.manual_seed(0); one = build(); torch.manual_seed(0); many = gemmgen.torch.replace_linear(build())
fully_shard(many, mesh=init_device_mesh("cpu", (2,)))
x = torch.randn(4, 8)
dist.broadcast(x, 0)
want, got = one(x), many(x)
torch.testing.assert_close(got, want)
want.sum().backward(); got.sum().backward()
for mine, whole in zip(many.parameters(), one.parameters()):
    torch.testing.assert_close(mine.grad.full_tensor(), whole.grad)
print("PASS") if dist.get_rank() == 0 else None
dist.destroy_process_group()
"""


@pytest.mark.full
def test_fully_sharded_layers_compute_what_whole_ones_do(tmp_path: Path) -> None:
    (tmp_path / "fsdp.py").write_text(FULLY_SHARDED)
    assert "PASS" in torchrun(tmp_path / "fsdp.py")


@pytest.mark.full
def test_the_example_of_a_block_runs() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "mlp.py")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and done.stdout.startswith("PASS"), done.stderr


def test_the_code_of_the_page_runs() -> None:
    page = (ROOT / "docs" / "torch.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    found: dict[str, Any] = {}
    exec(code, found)
    torch.testing.assert_close(found["y"], torch.nn.functional.gelu(found["x"] @ found["weight"].T + found["bias"]))
    assert found["z"].shape == (8, 64) and type(found["model"][0]) is gemmgen.torch.Linear
