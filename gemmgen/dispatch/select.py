"""Which kernel to use for a shape that is about to be computed: from what was tuned, else by the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from gemmgen.diagnostics import GemmgenError, SpecError
from gemmgen.dispatch.shipped import Winner
from gemmgen.tune.families import default_specs, plain_specs
from gemmgen.tune.shapes import Align, Shape, order_of_nearness
from gemmgen.tune.space import key_of, ranked, refused, space

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec
    from gemmgen.target import Gpu

FAR = 12.0
"""Squared distance (see ``shapes.distance``) beyond which a tuned shape says nothing about another: a factor of 4 in
two of the three sizes and a half, say. Then the model is asked."""
CLOSE = 1.1
"""Modelled times within this factor of the least do not tell which of two kernels is faster."""
Source = Literal["shipped", "records", "model"]


@dataclass(frozen=True)
class Choice:
    """A spec, where it comes from, and the shape it was tuned for (the very one, or the nearest); None by the model."""

    spec: Spec
    source: Source
    tuned_for: Shape | None = None


def choose(
    shape: Shape,
    align: Align,
    gpu: Gpu,
    shipped: Sequence[Winner] = (),
    own: Sequence[Winner] = (),
    unordered: bool = False,
    stale: Sequence[Winner] = (),
) -> Choice:
    """The kernel for a shape: tuned for exactly it, by the user or else as shipped; if none is, for the nearest.

    Nearest are shapes of the same kind by the logarithms of their sizes, of equally near ones the user's own; a spec
    that is not legal, or that the GPU cannot run, is passed over; so is one whose results do not repeat bit by bit,
    unless ``unordered`` ones will do. With nothing near the model chooses, and ``stale`` winners, which were measured
    under another driver or NVRTC, are its prior (see ``by_model``). Raises GemmgenError where even that has nothing to
    offer.
    """
    rows: list[tuple[Winner, Source]] = [*((w, "records") for w in own), *((w, "shipped") for w in shipped)]
    known = [(w.shape, w.align) for w, _ in rows]
    exact = [i for i, place in enumerate(known) if place == (shape, align)]
    near = order_of_nearness(shape, align, known, FAR)
    for i in [*exact, *near]:
        winner, source = rows[i]
        spec = legal(winner.spec, gpu)
        if spec is not None and (unordered or not spec.unordered):
            return Choice(spec, source, winner.shape)
    return Choice(by_model(shape, align, gpu, unordered=unordered, prior=stale), "model")


def legal(text: str, gpu: Gpu) -> Spec | None:
    """The spec of a record, where this gemmgen and the GPU can still make a kernel of it."""
    spec = _parsed(text)
    return spec if spec is not None and refused(spec, gpu) is None else None


@lru_cache(maxsize=512)
def _parsed(text: str) -> Spec | None:
    from gemmgen.api.specs import parse

    try:
        return parse(text)
    except SpecError:
        return None


def by_model(
    shape: Shape,
    align: Align,
    gpu: Gpu,
    *,
    simple: bool = False,
    unordered: bool = False,
    prior: Sequence[Winner] = (),
) -> Spec:
    """The model's first choice of the default space; ``simple``: of kernels without asynchronous copies, which are none
    of the ``unordered`` ones either.

    The ``prior``'s specs for the shape, or for near ones, are candidates too; of candidates that the model cannot tell
    apart (CLOSE), the nearest of the prior's is taken.
    """
    size: Shape = (max(shape[0], 1), max(shape[1], 1), max(shape[2], 1))
    specs = plain_specs("matmul") if simple else default_specs(size, "matmul", unordered)
    believed = [spec for spec in _near_specs(prior, size, align, gpu) if unordered or not spec.unordered]
    order = ranked(space([*specs, *believed]), size, gpu, align)
    if not order.candidates:
        raise GemmgenError(f"no kernel of the default space can run on {gpu.title}")
    limit = CLOSE * order.seconds[0]
    close = {c.key: c.spec for c, s in zip(order.candidates, order.seconds, strict=True) if s <= limit}
    return next((close[key] for key in map(key_of, believed) if key in close), order.candidates[0].spec)


def _near_specs(winners: Sequence[Winner], shape: Shape, align: Align, gpu: Gpu) -> list[Spec]:
    """The legal specs of winners for the shape or for near ones, nearest first."""
    order = order_of_nearness(shape, align, [(w.shape, w.align) for w in winners], FAR)
    return [spec for i in order if (spec := legal(winners[i].spec, gpu)) is not None]
