"""From text to a checked spec and its kernel IR or CUDA: parse, load, variants, lower, emit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import ArgumentError, Problem, SpecError, one_of, shown
from gemmgen.ir.variant import VARIANTS, WIDEST, Variant, variant_of

if TYPE_CHECKING:
    from pathlib import Path

    from gemmgen.ir.kernel import KernelIR
    from gemmgen.ir.types import DType
    from gemmgen.spec.model import Spec
    from gemmgen.target import Gpu


def parse(text: str, filename: str = "<string>") -> Spec:
    """The spec that ``text`` says. Raises SpecError with every mistake in it; ``filename`` is what errors call it."""
    from gemmgen.spec.parse import parse as parse_text

    if not isinstance(filename, str):
        raise ArgumentError(f"filename is {shown(filename)}; it is the text that errors call the spec by")
    return checked(parse_text(text, filename, fits_some_gpu))


def load(path: str | PathLike[str]) -> Spec:
    """The spec in a file (UTF-8), or the rung of the ladder of that name where there is no such file: ``warptile``.

    Raises SpecError with every mistake in it, or where it cannot be read.
    """
    from gemmgen.spec.parse import load as load_file

    if not isinstance(path, (str, PathLike)):
        raise ArgumentError(f"path is a {type(path).__name__}; it names a file, as 'specs/warptile.gemm' does")
    return checked(load_file(_rung(path) or path, fits_some_gpu))


def _rung(path: str | PathLike[str]) -> Path | None:
    """The file of the rung of that name, where no file has that name itself. Raises SpecError for a name that is none,
    with the nearest."""
    from os.path import lexists

    from gemmgen.spec.ladder import EXAMPLES, ladder_names, ladder_path
    from gemmgen.spec.names import did_you_mean

    if not isinstance(path, str) or not re.fullmatch(r"[A-Za-z0-9_]{1,100}", path) or lexists(path):
        return None
    if path in (*ladder_names(), *EXAMPLES):
        return ladder_path(path)
    message = "cannot read the spec: there is no such file, and no such rung of the ladder"
    raise SpecError([Problem(message, did_you_mean(path, ladder_names()))], path)


def checked(spec: Spec) -> Spec:
    """The spec, where its tiles fit a GPU. Raises SpecError else, with the bytes needed and the limit."""
    problems = _problems(of_type(spec))
    if problems:
        raise SpecError(problems, spec.filename)
    return spec


def of_type(spec: Any) -> Spec:
    """The spec itself. Raises ArgumentError for anything that is none."""
    from gemmgen.spec.model import Spec

    if not isinstance(spec, Spec):
        raise ArgumentError(f"spec is a {type(spec).__name__}; gemmgen.load(path) and gemmgen.parse(text) make one")
    return spec


def fits_some_gpu(spec: Spec) -> bool:
    """Whether a GPU has the registers and the shared memory that a legal spec takes."""
    from gemmgen.tile import SHARED_LIMIT
    from gemmgen.tile.fitting import sums_exceed

    return not sums_exceed(spec, SHARED_LIMIT) and not _problems(spec, hints=False)


def _problems(spec: Spec, hints: bool = True) -> list[Any]:
    from gemmgen.tile import check_resources

    return list(check_resources(spec, hints=hints))


def variants(spec: Spec, **choices: Iterable[Any]) -> Iterator[Spec]:
    """The legal specs among all combinations of the given settings: ``variants(spec, block=[...], thread=[...])``.

    Each choice is a list of values that ``spec.replace`` takes. Combinations that are not legal are left out; a setting
    that does not exist raises SpecError.
    """
    from gemmgen.spec.variants import variants as legal

    return (s for s in legal(of_type(spec), **choices) if fits_some_gpu(s))


def variant_named(variant: str | Variant) -> Variant:
    """The variant "exact", "guarded" or "guarded_unaligned", or of a name that ``explain`` prints. Raises ArgumentError
    for any other name."""
    if isinstance(variant, Variant):
        return variant
    found = variant_of(variant) if isinstance(variant, str) else None
    return found or VARIANTS[one_of("variant", variant, VARIANTS)]


def lower(spec: Spec, variant: str | Variant = "exact") -> KernelIR:
    """The kernel IR of a spec: the program of one thread. Raises SpecError where the spec fits no GPU."""
    from gemmgen.lower import lower as lower_spec

    found = variant_named(variant)
    if isinstance(variant, str) and variant not in VARIANTS:  # its narrow accesses are of one element
        items = {x.name: x.dtype.bytes for x in checked(spec).matrices}
        found = replace(found, align=tuple((x, min(n, items[x]) if n < WIDEST else n) for x, n in found.align))
    return lower_spec(checked(spec), found)


def architecture(arch: str, spec: Spec) -> str:
    """``arch`` if it names one, as sm_90 does, and has what the spec uses. Raises ArgumentError else."""
    from gemmgen.spec.architecture import known_architectures, unknown_architecture

    if not isinstance(arch, str) or re.fullmatch(r"(sm|compute)_[1-9][0-9]{1,2}[af]?", arch) is None:
        raise ArgumentError(f"arch is {arch!r}; it is written as in 'sm_90'; {known_architectures()}")
    if problem := unfit(spec, arch) or unknown_architecture(arch):
        raise ArgumentError(problem)
    return arch


def unfit(spec: Spec, arch: str) -> str | None:
    """Why a spec cannot run on an architecture: its instructions, or what a block takes. None if it can."""
    from gemmgen.spec.architecture import architecture_problem
    from gemmgen.tile import check_resources

    return architecture_problem(spec, arch) or next((p.message for p in check_resources(spec, arch)), None)


def refuse_unfit(spec: Spec, gpu: Gpu) -> None:
    """Raise ArgumentError where a spec cannot run on a GPU, with what it needs and what the GPU is."""
    from gemmgen.spec.architecture import target_problem

    if problem := unfit(spec, gpu.arch) or target_problem(spec, gpu.arch):
        raise ArgumentError(f"{spec.name} does not run on {gpu.title} ({gpu.arch}): {problem}")


def refuse_untimed(spec: Spec) -> None:
    """Raise ArgumentError for a spec with matrices that no kernel is tuned with: all but f32."""
    from gemmgen.ir.types import F32

    if beside := [x.name for x in spec.beside]:
        raise ArgumentError(
            f"the epilogue of {spec.name} takes {', '.join(beside)}; kernels are timed with A, B and C only"
        )
    if other := [f"{x.name} {x.dtype}" for x in spec.matrices if x.dtype != F32]:
        raise ArgumentError(f"{spec.name} takes {', '.join(other)}; kernels are tuned with operands of {F32} only")


def types_timed(specs: Sequence[Spec]) -> tuple[DType, DType, DType]:
    """The types of A, B and C that several kernels are timed with. Raises ArgumentError where they differ, or cannot be
    timed."""
    from gemmgen.ir.types import E4M3, E5M2

    first, *others = [tuple(x.dtype for x in spec.matrices) for spec in specs]
    for spec, types in zip(specs[1:], others, strict=True):
        if types != first:
            told = [" ".join(map(str, x)) for x in (first, types)]
            raise ArgumentError(f"{specs[0].name} takes {told[0]} and {spec.name} {told[1]}; time them apart")
    if first[0] in (E4M3, E5M2):
        raise ArgumentError(f"{specs[0].name} takes {first[0]}, which nothing here is timed with")
    a, b, c = first
    return a, b, c


def emit(spec: Spec, arch: str = "sm_90", variant: str | Variant = "exact") -> str:
    """The CUDA C++ of a spec, the same bytes every time. ``arch`` is the target, sm_90 for example."""
    from gemmgen.cuda.emit import emit_cuda

    architecture(arch, checked(spec))
    return emit_cuda(lower(spec, variant))


def batched(spec: Spec) -> Spec:
    """The spec with ``batched``. Where tma brings its tiles, cp.async does. Raises ArgumentError where that is not
    legal."""
    use = spec.use | {"batched"}
    if spec.has("tma"):
        use = (use - {"tma", "release"}) | {"cpasync"}
    try:
        return checked(spec.replace(use=use))
    except SpecError as error:
        raise ArgumentError(f"{spec.name} cannot compute batches: {error.errors[0].message}") from None
