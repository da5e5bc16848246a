"""Which kernel to use for a shape that is about to be computed: from what was tuned for it, else by the model of time.

The order is: the user's own record of exactly this shape, layout and alignment; a record of it that ships; the least
modelled time among the kernels of the cover, each run as its operands lie, or after copies of those that lie otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from gemmgen.diagnostics import ArgumentError, GemmgenError, SpecError, one_of, shown, whole_number
from gemmgen.dispatch.shipped import Winner
from gemmgen.launch.launches import LARGEST
from gemmgen.tune.cost import Rates, copied_s
from gemmgen.tune.cover import Cover, cover_for, modelled, rows_of
from gemmgen.tune.families import default_specs, plain_specs
from gemmgen.tune.features import served
from gemmgen.tune.pool import LAYOUTS, Layout
from gemmgen.tune.shapes import Align, Shape
from gemmgen.tune.space import key_of, ranked, refused, space

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec
    from gemmgen.target import Gpu

CLOSE = 1.1
"""Modelled times within this factor of the least do not tell which of two kernels is faster."""
Source = Literal["shipped", "records", "model"]
Calls = Literal["any", "direct", "in place"]
"""How a kernel may be called: with operands swapped too; as the caller has them; and also without copies of them."""
DTYPES = ("f32", "bf16", "f16", "tf32")
"""Element types that are chosen for."""


@dataclass(frozen=True)
class Choice:
    """A spec, where it comes from, and the seconds expected of one product, copies of its operands included.

    ``source`` is "records", "shipped" or "model", after which it is said where constants are another GPU's, scaled.
    ``gpu`` is the GPU it was chosen for. ``swapped``: the kernel is called with B^T, A^T and
    C^T. ``copied`` are the caller's operands that are stored by columns and copied to rows before the kernel runs.
    ``tuned_for`` is the shape of a record. Equality leaves out the seconds and the GPU.
    """

    spec: Spec
    source: str
    tuned_for: Shape | None = None
    expected_s: float | None = field(default=None, compare=False)
    swapped: bool = False
    copied: tuple[str, ...] = ()
    gpu: str = field(default="", compare=False)

    def __str__(self) -> str:
        """What is known of the choice, then the spec."""
        from gemmgen.text.numbers import duration, listed

        expected = "" if self.expected_s is None else f", {duration(self.expected_s)} expected"
        lines = [f"{'for ' if self.gpu else ''}{self.gpu}{expected} (by: {self.source})".lstrip(", ")]
        if self.swapped:
            lines.append("called with B^T, A^T and C^T")
        if self.copied:
            lines.append(f"{listed(self.copied)} copied to rows first")
        return "\n".join([*(f"# {line}" for line in lines), self.spec.to_text(comment=False).rstrip()])


def choose(
    shape: Shape,
    align: Align,
    gpu: Gpu,
    shipped: Sequence[Winner] = (),
    own: Sequence[Winner] = (),
    unordered: bool = False,
    stale: Sequence[Winner] = (),
    layout: Layout = "nn",
    calls: Calls = "any",
) -> Choice:
    """The kernel for a shape: tuned for exactly it, by the user or else as shipped; else the model's.

    A spec that is not legal, or that the GPU cannot run, is passed over; so is one whose results do not repeat bit by
    bit, unless ``unordered`` ones will do. Where the GPU's architecture has no cover, the tuner's model chooses, and
    ``stale`` winners, which were measured under another driver or NVRTC, are its prior (see ``by_model``). Raises
    GemmgenError where even that has nothing to offer.
    """
    mine = sorted((w for w in own if w.shape == shape), key=lambda w: w.seconds or 0.0)
    rows: list[tuple[Winner, Source]] = [*((w, "records") for w in mine), *((w, "shipped") for w in shipped)]
    for winner, source in rows:
        if (winner.shape, winner.align) != (shape, align):
            continue
        spec = legal(winner.spec, gpu)
        swapped = None if spec is None else served(spec, layout)
        if (
            spec is not None
            and swapped is not None
            and (unordered or not spec.unordered)
            and not (swapped and calls != "any")
        ):
            return Choice(spec, source, winner.shape, winner.seconds, swapped, gpu=gpu.title)
    prior = [spec for spec in _specs_for(stale, shape, align, gpu) if unordered or not spec.unordered]
    cover = cover_for(gpu)
    if cover is not None:
        return replace(by_cover(shape, align, layout, cover, prior, calls), gpu=gpu.title)
    spec, seconds = _ranked_first(shape, align, gpu, default_specs(_whole(shape), "matmul", unordered), prior)
    copied = tuple(x for x, letter in zip("AB", layout, strict=True) if letter == "t")
    return Choice(spec, "model", None, seconds + _copies_s(shape, copied, gpu), copied=copied, gpu=gpu.title)


def _specs_for(winners: Sequence[Winner], shape: Shape, align: Align, gpu: Gpu) -> list[Spec]:
    """The legal specs of winners of exactly a shape."""
    found = (legal(w.spec, gpu) for w in winners if (w.shape, w.align) == (shape, align))
    return [spec for spec in found if spec is not None]


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


# --- By the cover -----------------------------------------------------------------------------------------------------


def by_cover(
    shape: Shape, align: Align, layout: Layout, cover: Cover, prior: Sequence[Spec] = (), calls: Calls = "any"
) -> Choice:
    """The kernel of the cover with the least modelled time; of those that are CLOSE to it, one of the ``prior``'s."""
    import numpy as np

    rows = rows_of(layout, cover)
    seconds = modelled(shape, align, rows, cover)
    if calls != "any":
        seconds = np.where(rows.swapped, np.inf, seconds)
    if calls == "in place":
        seconds = seconds * np.where(rows.copied[0] | rows.copied[1], 1e3, 1.0)
    best = int(np.argmin(seconds))
    keys = {key_of(spec) for spec in prior}
    if keys:
        close = np.flatnonzero(seconds <= CLOSE * seconds[best])
        best = next((int(i) for i in close if key_of(cover.specs[int(rows.positions[i])]) in keys), best)
    said = f"model, constants of the {cover.scaled_from} scaled" if cover.scaled_from else "model"
    spec = cover.specs[int(rows.positions[best])]
    copied = tuple(x for x, turned in zip("AB", rows.copied, strict=True) if turned[best])
    return Choice(spec, said, None, float(seconds[best]), bool(rows.swapped[best]), copied)


# --- By the tuner's model: where there is no cover --------------------------------------------------------------------


def by_model(
    shape: Shape,
    align: Align,
    gpu: Gpu,
    *,
    simple: bool = False,
    unordered: bool = False,
    prior: Sequence[Spec] = (),
) -> Spec:
    """The tuner's model's first choice of the default space; ``simple``: of kernels without asynchronous copies, which
    are none of the ``unordered`` ones either. Specs of the ``prior`` are candidates too, and taken where CLOSE.
    """
    specs = plain_specs("matmul") if simple else default_specs(_whole(shape), "matmul", unordered)
    return _ranked_first(shape, align, gpu, specs, prior)[0]


def _whole(shape: Shape) -> Shape:
    """The shape without sizes of 0."""
    return max(shape[0], 1), max(shape[1], 1), max(shape[2], 1)


def _ranked_first(
    shape: Shape, align: Align, gpu: Gpu, specs: Sequence[Spec], prior: Sequence[Spec]
) -> tuple[Spec, float]:
    """The spec with the least modelled time, or one of the ``prior`` that is CLOSE to it, with its seconds."""
    order = ranked(space([*specs, *prior]), _whole(shape), gpu, align)
    if not order.candidates:
        raise GemmgenError(f"no kernel of the default space can run on {gpu.title}")
    limit = CLOSE * order.seconds[0]
    close = {c.key: (c.spec, s) for c, s in zip(order.candidates, order.seconds, strict=True) if s <= limit}
    first = order.candidates[0].spec, order.seconds[0]
    return next((close[key] for key in map(key_of, prior) if key in close), first)


def _copies_s(shape: Shape, copied: Sequence[str], gpu: Gpu) -> float:
    """Seconds of copying operands to rows: each is read once and written once."""
    m, n, k = shape
    rates = Rates()
    sizes = {"A": m * k, "B": k * n}
    scale = gpu.dram_gb_s * 1e9 / rates.dram_byte_s
    scaled = rates.scaled(gpu.sms, 1.0, scale)
    return sum(copied_s(sizes[x], 1, scaled, turned=True) for x in copied)


# --- The public question ----------------------------------------------------------------------------------------------


def checked_align(align: Any) -> Align | None:
    """Bytes of alignment of A, B and C. Raises ArgumentError."""
    if align is None:
        return None
    if isinstance(align, tuple) and len(align) == 3 and all(type(x) is int and x in (4, 8, 16) for x in align):
        return align
    raise ArgumentError(f"align is {shown(align)}; it is three numbers of bytes, of A, B and C, each 4, 8 or 16")


def checked_question(m: Any, n: Any, k: Any, dtype: Any, layout: Any, batch: Any) -> tuple[Shape, Layout]:
    """The shape and layout of a question. Raises ArgumentError."""
    one_of("dtype", dtype, DTYPES)
    one_of("layout", layout, LAYOUTS)
    if whole_number("batch", batch, 1) != 1:
        raise ArgumentError(f"batch is {batch}; kernels for one product are chosen, so leave it out")
    size = tuple(whole_number(name, value, 0, LARGEST) for name, value in zip("mnk", (m, n, k), strict=True))
    return (size[0], size[1], size[2]), layout
