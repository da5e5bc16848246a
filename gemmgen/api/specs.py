"""From text to a checked spec and its kernel IR or CUDA: parse, load, variants, lower, emit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import ArgumentError, SpecError
from gemmgen.tile.variant import VARIANTS, Variant

if TYPE_CHECKING:
    from gemmgen.ir.nodes import KernelIR
    from gemmgen.spec.model import Spec


def parse(text: str, filename: str = "<string>") -> Spec:
    """The spec that ``text`` says. Raises SpecError with every mistake in it; ``filename`` is what errors call it."""
    from gemmgen.spec.parse import parse as parse_text

    return checked(parse_text(text, filename, _fits))


def load(path: str | PathLike[str]) -> Spec:
    """The spec in a file (UTF-8). Raises SpecError with every mistake in it, or where it cannot be read."""
    from gemmgen.spec.parse import load as load_file

    if not isinstance(path, (str, PathLike)):
        raise ArgumentError(f"path is a {type(path).__name__}; it names a file, as 'specs/warptile.gemm' does")
    _refuse_name(path)
    return checked(load_file(path, _fits))


def _refuse_name(path: str | PathLike[str]) -> None:
    """Raise SpecError for the name of a rung, which the command line takes, where there is no file of that name."""
    from os.path import exists

    from gemmgen.diagnostics import Problem
    from gemmgen.spec.ladder import ladder_names

    if path in ladder_names() and not exists(path):
        hint = f"'specs/{path}.gemm' is that rung in a checkout, gemmgen.spec.ladder.ladder_path({path!r}) anywhere"
        raise SpecError([Problem(f"load takes the path of a file, and there is none called {path}", hint)], str(path))


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


def _fits(spec: Spec) -> bool:
    from gemmgen.tile import SHARED_LIMIT
    from gemmgen.tile.fitting import sums_exceed

    return not sums_exceed(spec, SHARED_LIMIT) and not _problems(spec, hints=False)


def _problems(spec: Spec, hints: bool = True) -> list[Any]:
    from gemmgen.tile import check_resources

    return list(check_resources(spec, hints))


def variants(spec: Spec, **choices: Iterable[Any]) -> Iterator[Spec]:
    """The legal specs among all combinations of the given settings: ``variants(spec, block=[...], thread=[...])``.

    Each choice is a list of values that ``spec.replace`` takes. Combinations that are not legal are left out; a setting
    that does not exist raises SpecError.
    """
    from gemmgen.spec.variants import variants as legal

    return (s for s in legal(spec, **choices) if _fits(s))


def variant_named(variant: str | Variant) -> Variant:
    """The variant "exact", "guarded" or "guarded_unaligned". Raises ArgumentError for any other name."""
    if isinstance(variant, Variant):
        return variant
    if variant not in VARIANTS:
        raise ArgumentError(f"variant is {variant!r}; it is one of {', '.join(VARIANTS)}")
    return VARIANTS[variant]


def lower(spec: Spec, variant: str | Variant = "exact") -> KernelIR:
    """The kernel IR of a spec: the program of one thread. Raises SpecError where the spec fits no GPU."""
    from gemmgen.lower import lower as lower_spec

    return lower_spec(checked(spec), variant_named(variant))


def architecture(arch: str, spec: Spec) -> str:
    """``arch`` if it names one, as sm_90 does, and has what the spec uses. Raises ArgumentError else."""
    from gemmgen.spec.pipelines import architecture_problem

    if not isinstance(arch, str) or re.fullmatch(r"(sm|compute)_[1-9][0-9]{1,2}[af]?", arch) is None:
        raise ArgumentError(f"arch is {arch!r}; it is written as in 'sm_90'")
    if problem := architecture_problem(spec, arch):
        raise ArgumentError(problem)
    return arch


def emit(spec: Spec, arch: str = "sm_90", variant: str | Variant = "exact") -> str:
    """The CUDA C++ of a spec, the same bytes every time. ``arch`` is the target, sm_90 for example."""
    from gemmgen.cuda.emit import emit_cuda

    architecture(arch, checked(spec))
    return emit_cuda(lower(spec, variant))
