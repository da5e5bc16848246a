"""``gemmgen run``: one spec all the way, from its text to a checked result."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmgen.cli import artifacts, exits, output
from gemmgen.cli.compile import DEFAULT_FOLDER, measured
from gemmgen.cli.files import check_writable, named, write_file
from gemmgen.cli.memory import refuse_too_large
from gemmgen.cli.options import Arch, Device, DeviceOption, Emit, Folder, Json, OneSpec, Set, Size, parse_size
from gemmgen.cli.specs import load_specs
from gemmgen.ir.types import F32

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec
    from gemmgen.verify import Verification

ON_GPU = Size(4096, 4096, 4096)
SIMULATED = Size(257, 255, 257)
"""256 ragged by one, above and below: every edge of a tile is met."""

NPY = "FILE.npy"


@dataclass(frozen=True)
class Operands:
    """The matrices of a run; ``c`` is C as it was before, None where it is not read; ``beside`` what the epilogue reads
    and writes besides."""

    a: Any
    b: Any
    c: Any | None
    beside: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> Size:
        return Size(self.a.shape[0], self.b.shape[1], self.a.shape[1])

    def typed(self, spec: Spec) -> Operands:
        """What was drawn in float32 as the types that a spec has; what is of another type already stays."""
        a, b, c = (_as(x, m.dtype.numpy_dtype) for x, m in zip((self.a, self.b, self.c), spec.matrices, strict=True))
        return replace(self, a=a, b=b, c=c)


def _as(x: Any, dtype: Any) -> Any:
    return x if x is None or x.dtype != F32.numpy_dtype else x.astype(dtype, copy=False)


@dataclass(frozen=True)
class Done:
    """What a run gave. ``variants`` are those of the kernel that ran, none where there was nothing to compute;
    ``seconds`` is the whole call, with copies to and from a GPU."""

    where: str
    variants: tuple[str, ...]
    c: Any
    seconds: float
    verification: Verification


def run(
    spec: OneSpec,
    size: Annotated[
        Size | None,
        typer.Option(
            "--size",
            metavar="MxNxK",
            parser=parse_size,
            help=f"Rows and columns of C, length of the sums; default: {ON_GPU} on a GPU, {SIMULATED} simulated.",
        ),
    ] = None,
    device: DeviceOption = Device.auto,
    alpha: Annotated[float, typer.Option(help="C = alpha * A B + beta * C.")] = 1.0,
    beta: Annotated[float, typer.Option(help="With 0, C is not read.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random operands.")] = 0,
    a: Annotated[str | None, typer.Option("--a", metavar=NPY, help="A from a file, M x K; default: random.")] = None,
    b: Annotated[str | None, typer.Option("--b", metavar=NPY, help="B from a file, K x N; default: random.")] = None,
    c: Annotated[
        str | None, typer.Option("--c", metavar=NPY, help="C before the product, M x N; the file is not changed.")
    ] = None,
    out: Annotated[str | None, typer.Option("--out", metavar=NPY, help="Write the result here.")] = None,
    folder: Folder = DEFAULT_FOLDER,
    arch: Arch = None,
    settings: Set = None,
    syncs: Annotated[
        bool, typer.Option("--syncs", help="List the kernel's barriers, waits and fences, numbered, and exit.")
    ] = False,
    without_sync: Annotated[
        int | None,
        typer.Option(
            "--without-sync", metavar="N", help="Run in the simulator without number N of --syncs, to see its hazard."
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Compile a spec, run it, and check the result against float64.

    Writes the CUDA, prints registers, spills, shared memory and occupancy, multiplies random matrices (or yours) on the
    GPU, or in the simulator where there is none, and verifies every element. Examples:

      gemmgen run specs/warptile.gemm

      gemmgen run warptile --size 1000x1000x1000 --alpha 2 --beta 0.5

      gemmgen run warptile --set block=64x128x16 --set warp=32x64

      gemmgen run warptile --a a.npy --b b.npy --out c.npy

      gemmgen run cpasync --without-sync 2
    """
    import gemmgen
    from gemmgen.api.beside import drawn

    [loaded] = load_specs([spec], settings)
    if syncs or without_sync is not None:
        from gemmgen.cli.syncs import cut, listed

        return listed(loaded, json=json) if without_sync is None else cut(loaded, without_sync, json=json)
    texts = artifacts.texts([loaded], arch)
    artifacts.check_folder(texts, named("--output", folder), Emit.cuda)
    if out is not None:
        check_writable(named("--out", out))
    kernel = gemmgen.compile(loaded, device.value, arch or loaded.arch)
    default = ON_GPU if kernel.device == "cuda" else SIMULATED
    types = {x.name: x.dtype.numpy_dtype for x in loaded.matrices}
    operands = make_operands(size, default, {"A": a, "B": b, "C": c}, seed, beta, types)
    beside = drawn(loaded, operands.size.m, operands.size.n, seed)
    operands = replace(operands.typed(loaded), beside=beside)
    files = artifacts.write([(t, t.source.encode()) for t in texts], Path(folder), Emit.cuda)
    rows, why = measured(texts)
    if rows and not json:
        output.result(f"{artifacts.resource_table(rows)}\n")
    if why:
        output.say(f"no table of resources: {why}")
    done = execute(kernel, operands, alpha, beta)
    if out is not None:
        save(Path(out), done.c)
    if json:
        output.print_json(
            {"kernel": loaded.name, "size": list(operands.size), "device": kernel.device, "where": done.where}
            | {"variants": list(done.variants)}
            | {"seconds": done.seconds, "verification": asdict(done.verification), "files": [str(f) for f in files]}
            | {"resources": [asdict(row) for row in rows], "why_no_resources": why or None}
        )
    else:
        ran = f"the {' and '.join(done.variants)} variant" if done.variants else "nothing to compute"
        output.result(f"{loaded.name} {operands.size} on {done.where}: {ran}\n{done.verification}")
    return exits.OK if done.verification.ok else exits.FAILED


def execute(kernel: Any, operands: Operands, alpha: float, beta: float) -> Done:
    """Run the kernel on the operands and check what it gives. Raises what the kernel raises."""
    import gemmgen

    where = place(kernel.device)
    # As the kernel writes it: a file, or random numbers, may have the other order.
    order = "C" if kernel.spec.C.order == "row" else "F"
    before = None if operands.c is None else operands.c.copy(order=order)
    with output.progress(f"running {kernel.spec.name} {operands.size} on {where}") as shown:
        start = time.perf_counter()
        c = kernel(operands.a, operands.b, before, alpha, beta, **operands.beside)
        seconds, variants = time.perf_counter() - start, kernel.variants
        shown.update("checking against float64")
        verification = gemmgen.verify(
            c, operands.a, operands.b, operands.c, alpha, beta, kernel.spec, **operands.beside
        )
    return Done(where, variants, c, seconds, verification)


def place(device: str) -> str:
    """The device in words."""
    from gemmgen.runtime.device import required, why_none

    if device == "cuda":
        return required().name
    why = why_none()
    return f"the simulator, as {why}" if why else "the simulator"


def make_operands(
    size: Size | None, default: Size, files: dict[str, str | None], seed: int, beta: float, types: dict[str, Any]
) -> Operands:
    """The matrices of a run: from files where they are given, else random normal numbers of the spec's ``types``.

    C is made where beta is not 0. Raises UsageError for a file that cannot be used, or sizes that do not fit.
    """
    import numpy as np

    given = {name: read_array(name, path) for name, path in files.items() if path is not None}
    m, n, k = whole = reconcile(size, default, {name: tuple(array.shape) for name, array in given.items()})
    refuse_too_large(whole)
    random = np.random.default_rng(seed)

    def matrix(name: str, rows: int, columns: int) -> Any:
        drawn = random.standard_normal((rows, columns), dtype=F32.numpy_dtype)
        return given.get(name, drawn.astype(types[name], copy=False))

    a, b = matrix("A", m, k), matrix("B", k, n)
    return Operands(a, b, matrix("C", m, n) if beta != 0.0 or "C" in given else None)


def reconcile(size: Size | None, default: Size, shapes: dict[str, tuple[int, ...]]) -> Size:
    """The size that --size and the files agree on; the default for what none of them says. Raises UsageError."""
    found: dict[str, tuple[int, str]] = {}
    said = [("--size", dict(zip("MNK", size, strict=True)))] if size else []
    for name, shape in shapes.items():
        said.append((name, dict(zip({"A": "MK", "B": "KN", "C": "MN"}[name], shape, strict=True))))
    for source, dims in said:
        for dim, value in dims.items():
            known, by = found.setdefault(dim, (value, source))
            if known != value:
                raise exits.UsageError(f"{dim} is {known} by {by} and {value} by {source}; they must agree")
    whole = dict(zip("MNK", default, strict=True)) | {dim: value for dim, (value, _) in found.items()}
    return Size(whole["M"], whole["N"], whole["K"])


def read_array(name: str, path: str) -> Any:
    """A matrix of a .npy file. Raises UsageError where there is none in it."""
    import numpy as np

    try:
        array = np.load(path, allow_pickle=False)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise exits.UsageError(f"no file {path} for {name}") from None
    except (ValueError, EOFError) as error:
        raise exits.UsageError(f"{path} for {name} is not a .npy file of numbers: {error}") from None
    if not isinstance(array, np.ndarray) or array.ndim != 2:
        what = f"an array of shape {array.shape}" if isinstance(array, np.ndarray) else "several arrays"
        raise exits.UsageError(f"{path} for {name} holds {what}; a matrix has 2 dimensions")
    return array


def save(path: Path, array: Any) -> None:
    """Write a .npy file whole or not at all. Raises OSError."""
    import io

    import numpy as np

    data = io.BytesIO()
    np.save(data, array, allow_pickle=False)
    write_file(path, data.getvalue())
    output.wrote(path)
