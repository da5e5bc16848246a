"""``gemmgen.tune``: the fastest kernel for a shape."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from gemmgen.diagnostics import ArgumentError, flag, one_of, shown, whole_number
from gemmgen.launch import LARGEST
from gemmgen.tune import search as searches
from gemmgen.tune.families import default_specs
from gemmgen.tune.records import Records
from gemmgen.tune.space import Space, ranked, space
from gemmgen.tune.tuner import Options, TuneResult, Tuning, modelled

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec
    from gemmgen.target import Gpu
    from gemmgen.tune.backend import Backend
    from gemmgen.tune.shapes import Shape

RecordsAt = Records | str | os.PathLike[str] | bool | None


def tune(
    spec_or_specs: Spec | Iterable[Spec] | None,
    m: int,
    n: int,
    k: int,
    *,
    choices: Mapping[str, Iterable[Any]] | None = None,
    search: searches.Name = "guided",
    timings: int = 60,
    seed: int = 0,
    warm: bool = False,
    device: Literal["auto", "cuda", "sim"] = "auto",
    gpu: str | Gpu = "h200",
    records: RecordsAt = None,
    jobs: int | None = None,
    backend: Backend | None = None,
    options: Options | None = None,
    progress: Callable[[str], None] | None = None,
    unordered: bool = False,
) -> TuneResult:
    """The fastest kernel for packed float32 matrices of M x N x K, of those that ``spec_or_specs`` allows.

    A spec with ``tune`` lines stands for all their combinations; one without, or None, for a default space for the
    shape, of operands that lie as the spec's (the spec included); several specs for themselves. ``choices`` adds to the
    lines: ``{"stages": (2, 3)}``.
    What breaks a rule, and what the model finds hopeless, is left out; the rest is compiled by ``jobs`` threads (all
    processors) and timed in another process, at most ``timings`` candidates. ``search`` is "guided" (the model, as
    corrected by what was measured), "exhaustive", "random" or "optuna". ``warm`` keeps operands in the L2 cache.
    ``unordered``: the default space also has kernels with ``atomics``, whose results do not repeat bit by bit.

    Candidates that are wrong, hang, cannot be launched or beat the GPU's peak are failed trials. ``records`` is the
    file of results (None: the user's; False: none): what it holds is not measured again. ``device`` "sim" asks the
    model alone, for ``gpu``. Raises LaunchError where there is no GPU, TuneError where nothing survives, ArgumentError.
    """
    shape = _shape(m, n, k)
    one_of("search", search, searches.NAMES)
    warm, unordered = flag("warm", warm), flag("unordered", unordered)
    timings, seed = whole_number("timings", timings, 1), whole_number("seed", seed)
    jobs = None if jobs is None else whole_number("jobs", jobs, 1)
    _refuse_kinds(choices, records, options, progress)
    from gemmgen.api.specs import refuse_untimed

    given, tried = _space(spec_or_specs, shape, choices, unordered)
    one_of("device", device, ("auto", "cuda", "sim"))
    if device == "sim" and backend is None:
        from gemmgen.target import gpu as gpu_named

        row = gpu_named(gpu)
        _refuse_unfit(given, tried, choices, row)
        return modelled(tried, ranked(tried, shape, row), shape, row.title)
    for spec in given:
        refuse_untimed(spec)
    owned = backend is None
    machine = backend or _gpu_backend()
    chosen = options or Options(search, timings, seed, warm, jobs or os.cpu_count() or 1)
    try:
        _refuse_unfit(given, tried, choices, machine.gpu)
        order = ranked(tried, shape, machine.gpu)
        with _records(records) as book:
            tuning = Tuning(tried, order, shape, machine, book, chosen, progress or (lambda text: None))
            if book is not None and book is not records:
                book.warn()
            return tuning.run()
    finally:
        if owned:
            machine.close()


def _refuse_kinds(choices: Any, records: Any, options: Any, progress: Any) -> None:
    """Raise ArgumentError for arguments of the wrong type, before anything is compiled."""
    if not (choices is None or (isinstance(choices, Mapping) and all(map(_is_choice, choices.items())))):
        given = repr(choices) if isinstance(choices, Mapping) else shown(choices)
        raise ArgumentError(f"choices is {given:.200}; it maps settings to values, as {{'stages': (2, 3)}} does")
    if not (records is None or isinstance(records, bool | Records | str | os.PathLike)):
        raise ArgumentError(f"records is {shown(records)}; it is a file's name, None for the user's, or False for none")
    if not (options is None or isinstance(options, Options)):
        raise ArgumentError(f"options is {shown(options)}; it is a gemmgen.tune.tuner.Options, or None")
    if not (progress is None or callable(progress)):
        raise ArgumentError(f"progress is {shown(progress)}; it is a function that takes a line of text, or None")


def _is_choice(item: tuple[Any, Any]) -> bool:
    name, values = item
    return isinstance(name, str) and isinstance(values, Iterable) and not isinstance(values, str | bytes)


def _listed(values: Any) -> tuple[Any, ...]:
    """What a caller lists; nothing where it is no list."""
    try:
        return tuple(values)
    except TypeError:
        return ()


def _gpu_backend() -> Backend:
    from gemmgen.diagnostics import LaunchError
    from gemmgen.runtime import device as devices
    from gemmgen.tune.gpu import GpuBackend

    here = devices.current()
    if here is None:
        raise LaunchError(
            f'tuning times kernels on a GPU, and there is none: {devices.why_none()}; device="sim" (--model on the '
            "command line) chooses by the model alone"
        )
    return GpuBackend(here.ordinal)


def _space(
    given: Any, shape: Shape, choices: Mapping[str, Iterable[Any]] | None, unordered: bool
) -> tuple[Sequence[Spec], Space]:
    """The specs that were given, and what there is to choose from."""
    from gemmgen.spec.model import F32_ROW, Spec

    own: Sequence[Spec]
    specs: Sequence[Spec]
    match given:
        case None:
            own, specs = (), default_specs(shape, unordered=unordered)
        case Spec():
            own, alone = (given,), bool(given.tune or choices)
            alone = alone or any(x.dtype != F32_ROW.dtype for x in (given.A, given.B, given.C))  # the others are f32
            specs = own if alone else (given, *default_specs(shape, given.name, unordered, like=given))
        case _:
            own = specs = _listed(given)
            if not specs or not all(isinstance(s, Spec) for s in specs):
                raise ArgumentError("spec_or_specs is a spec, a list of at least one, or None; gemmgen.load makes one")
    return own, space(specs, choices)


def _refuse_unfit(given: Sequence[Spec], tried: Space, choices: Mapping[str, Iterable[Any]] | None, gpu: Gpu) -> None:
    """Raise ArgumentError where a spec that was given leaves nothing to choose and cannot run on the GPU; or where none
    of the candidates that the given ones allow can."""
    from gemmgen.api.specs import refuse_unfit, unfit

    for spec in given:
        if not spec.tune and not choices:
            refuse_unfit(spec, gpu)
    found = tried.candidates if given else ()
    if found and all(unfit(c.spec, gpu.arch) for c in found):
        refuse_unfit(found[0].spec, gpu)


@contextmanager
def _records(given: RecordsAt) -> Iterator[Records | None]:
    """The file of results, opened where it is not; None where nothing is to be kept."""
    if given is False:
        yield None
    elif isinstance(given, Records):
        yield given
    else:
        with Records(None if given is None or given is True else given) as book:
            book.require_writable()
            yield book


def _shape(*size: Any) -> Shape:
    m, n, k = (whole_number(name, value, 1, LARGEST) for name, value in zip("mnk", size, strict=True))
    return m, n, k
