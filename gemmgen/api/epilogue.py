"""``gemmgen.epilogue``: an entry of an epilogue from Python, checked against its own meaning."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import ArgumentError, CompileError, shown
from gemmgen.ir.types import ELEMENT_TYPES
from gemmgen.isa.epilogue import DIMS, OF_C, REGISTERED, ROWS, Error, Input, Kind, Row
from gemmgen.isa.functions import Function, function
from gemmgen.text.numbers import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
TAKEN = frozenset(
    """
    A B C W M N K alpha beta lda ldb ldc ldw x out old acc row col at total part warp lane stage tiles depth threadRow
    threadCol threadResults regM regN As Bs Cs stream
    """.split()  # noqa: SIM905
)
"""Names that the emitted text, or the call of a kernel, uses for something else."""
STEPS = (0.0, 1e-4, -1e-4, 0.05, -0.05, 0.3, -0.3)
"""How far beside the points the slope is tried too."""
TRIED = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 20.0, -20.0, 1e-6, 100.0)
SLACK = 4.0  # times an own bound that text and meaning may differ: each has its own library
HOST_FLAGS = ("-std=c++17", "-O0", "-fPIC", "-shared", "-ffp-contract=off", "-w")


def epilogue(
    name: str,
    *,
    cuda: str,
    numpy: Callable[..., Any],
    operands: Iterable[str] = (),
    doc: str = "",
    lipschitz: float | None = None,
    roundings: float = 8.0,
    flops: int = 8,
) -> None:
    """Add an entry that specs can name: ``epilogue bias -> NAME``.

    ``cuda`` is an expression of the float ``x`` and of the operands' names, or statements that end in ``return``;
    ``numpy`` means the same for arrays, ``numpy(x, *operands)``, in the type of x, float32 or float64. An operand is
    written ``"NAME KIND"``, or ``"NAME KIND TYPE"``: a kind is ``column`` (one element per column of C; also where it
    is left out), ``row``, ``tensor`` (one for all of C) or ``matrix``; a type is C's where it is left out, else
    as ``f32``. A call of the kernel takes each by its name.

    ``lipschitz`` bounds the change of the result by that of x, and is checked around the points that are tried; where
    it is None, ``verify`` finds it around each value.
    The result is taken to be within ``roundings`` units of 2^-24 of itself and of x. ``flops`` is its cost per element.

    The text is compiled by NVRTC and, where there is a C++ compiler, run on the host and compared with ``numpy``.
    To add the same entry again changes nothing. Raises ArgumentError where the name is taken by another one, or the two
    do not agree, and CompileError where the text is not CUDA.
    """
    inputs = tuple(_input(x) for x in operands)
    _refuse_name(name, inputs)
    if not isinstance(cuda, str) or not cuda.strip() or not callable(numpy):
        raise ArgumentError(f"{name}: cuda is text of CUDA C++, and numpy a function of arrays")
    why = doc or f"{name}, as registered from Python."
    text = function(
        name, why, ("x", *(x.name for x in inputs)), cuda.strip().rstrip(";") if "return" not in cuda else cuda, numpy
    )
    row = Row(
        name, doc or cuda.strip(), inputs, function=text, lipschitz=lipschitz,
        error=Error(roundings, roundings), flops=flops,
    )  # fmt: skip
    key = (text.helper, inputs, lipschitz, roundings, flops, getattr(numpy, "__code__", numpy))
    known = REGISTERED.get(name)
    if known is None:
        _check(text, len(inputs), roundings)
        _check_lipschitz(text, [x.name for x in inputs], lipschitz)
    try:
        REGISTERED.add(row, key)
    except ValueError:
        raise ArgumentError(f"{name} is an entry already, with another meaning; choose another name") from None


def _input(text: str) -> Input:
    words = text.split() if isinstance(text, str) else []
    kind: Kind = "column"
    if not 1 <= len(words) <= 3 or not IDENTIFIER.fullmatch(words[0]):
        raise ArgumentError(f"operand {shown(text)} is not 'NAME KIND'; write it like 'slope column'")
    if len(words) > 1:
        found: dict[str, Kind] = {"tensor": "tensor", "row": "row", "column": "column", "matrix": "matrix"}
        if words[1] not in found:
            raise ArgumentError(f"operand {words[0]}: kind {shown(words[1])} is not one of {', '.join(DIMS)}")
        kind = found[words[1]]
    if len(words) > 2 and words[2] not in ELEMENT_TYPES:
        raise ArgumentError(f"operand {words[0]}: type {shown(words[2])} is not one of {', '.join(ELEMENT_TYPES)}")
    return Input(words[0], kind, words[2] if len(words) > 2 else OF_C)


def _refuse_name(name: str, inputs: tuple[Input, ...]) -> None:
    from gemmgen.spec.names import name_problem

    if not isinstance(name, str):
        raise ArgumentError(f"name is {shown(name)}; it is the entry's name in a spec")
    if name in ROWS:
        raise ArgumentError(f"{name} is an entry that comes with gemmgen; choose another name")
    if problem := name_problem(name):
        raise ArgumentError(f"an entry cannot be called {shown(name)}: {problem[0].removeprefix('kernel ')}")
    for x in inputs:
        if x.name in TAKEN or name_problem(x.name):
            raise ArgumentError(
                f"{name}: an operand cannot be called {x.name}, a name that the text uses; choose another"
            )
    if len({x.name for x in inputs}) < len(inputs):
        raise ArgumentError(f"{name} takes an operand of the same name twice")


# --- The text and its meaning -------------------------------------------------------------------------------------


def _check(made: Function, operands: int, roundings: float) -> None:
    """Raise ArgumentError where text and meaning differ, CompileError where the text is no CUDA."""
    import numpy as np

    from gemmgen.ir.types import F32

    values = np.array(np.meshgrid(TRIED, *[TRIED] * min(operands, 2), indexing="ij")).reshape(1 + min(operands, 2), -1)
    given = [row.astype(F32.numpy_dtype) for row in values]
    given += [given[-1]] * (1 + operands - len(given))
    with np.errstate(all="ignore"):
        want = _meant(made, [g.astype(np.float64) for g in given])
        narrow = _meant(made, given)
    _compare(made, "numpy in float32", narrow, want, given, roundings)
    _compile(made)
    got = _on_host(made, given)
    if got is not None:
        _compare(made, "the text", got, want, given, roundings)


def _check_lipschitz(made: Function, operands: Sequence[str], most: float | None) -> None:
    """Raise ArgumentError where the result changes by more than ``lipschitz`` says, between neighbours of the points
    that are tried: ``verify`` would take right results for wrong ones."""
    import numpy as np

    if most is None:
        return
    if isinstance(most, bool) or not isinstance(most, int | float) or not 0 <= most < float("inf"):
        raise ArgumentError(f"{made.name}: lipschitz is {shown(most)}; it is a number, or None")
    xs, worst, where = np.unique([x + step for x in TRIED for step in STEPS]), 0.0, ""
    for tried in product(TRIED, repeat=min(len(operands), 2)):
        beside = [*tried, *[tried[-1]] * (len(operands) - len(tried))] if operands else []
        with np.errstate(all="ignore"):
            y = _meant(made, [xs, *(np.full_like(xs, v) for v in beside)])
            dx, dy = np.diff(xs), np.abs(np.diff(y))
            noise = 8 * np.finfo(np.float64).eps * (np.abs(y[1:]) + np.abs(y[:-1]) + np.abs(xs[1:]))
            steep = np.where(np.isfinite(dy) & (dy > most * dx * (1 + 1e-6) + noise), dy / dx, 0.0)
        i = int(np.argmax(steep))
        if steep[i] > worst:
            at = "".join(f", {name} {value:g}" for name, value in zip(operands, beside, strict=True))
            worst, where = float(steep[i]), f"x {xs[i]:.9g} and {xs[i + 1]:.9g}{at}"
    if worst:
        raise ArgumentError(
            f"{made.name}: lipschitz is {most:g}, and between {where} the result changes {worst:.3g} times as much as "
            "x; give at least that, or leave lipschitz out"
        )


def _meant(made: Function, given: list[Floats]) -> Floats:
    import numpy as np

    try:
        found = np.asarray(made.meaning(*given))
    except Exception as error:  # of the caller's own function
        said = f"numpy, called with {counted(len(given), 'array')}, raised {type(error).__name__}: {error}"
        raise ArgumentError(f"{made.name}: {said}") from error
    if found.shape != given[0].shape:
        raise ArgumentError(f"{made.name}: numpy gave shape {found.shape} for x of shape {given[0].shape}")
    return found


def _compare(made: Function, what: str, got: Floats, want: Floats, given: list[Floats], roundings: float) -> None:
    import numpy as np

    from gemmgen.ir.types import F32

    with np.errstate(all="ignore"):
        scale = np.abs(want) + sum(np.abs(g.astype(np.float64)) for g in given)
        close = np.abs(got.astype(np.float64) - want) <= SLACK * roundings * F32.unit_roundoff * scale + F32.tiny
    # Beyond float32, or where the meaning is not finite, there is nothing to compare.
    wrong = np.flatnonzero(~close & np.isfinite(want) & (np.abs(want) < 1e38) & np.isfinite(got))
    if wrong.size:
        i = int(wrong[0])
        at = ", ".join(f"{float(g[i]):g}" for g in given)
        raise ArgumentError(
            f"{made.name}({at}): {what} gives {float(got[i])!r}, and numpy in float64 {float(want[i])!r}"
        )


def _compile(made: Function) -> None:
    """The text by NVRTC, where it is installed."""
    from gemmgen.runtime.nvrtc import NvrtcMissing, compile_cubin
    from gemmgen.runtime.target import DEFAULT_ARCH

    takes = made.helper.partition("(")[2].partition(")")[0].count("float ")
    call = f"{made.name}({', '.join(f'in[{i}]' for i in range(takes))})"
    text = f'{made.helper}\nextern "C" __global__ void entry(const float* in, float* out) {{ *out = {call}; }}\n'
    try:
        compile_cubin(text, DEFAULT_ARCH, name="entry")
    except NvrtcMissing:
        return
    except CompileError as error:
        raise CompileError(f"{made.name}: {error}") from error


def _on_host(made: Function, given: list[Floats]) -> Floats | None:
    """What the text computes, by the host's C++ compiler; None where there is none, or it knows a function of CUDA not
    that the text calls."""
    import numpy as np

    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        return None
    each = ", ".join(f"in[{i}][e]" for i in range(len(given)))
    text = (
        "#include <cmath>\n#include <algorithm>\nusing std::min; using std::max;\n#define __device__\n"
        f"#define __forceinline__ inline\n{made.helper}\n"
        'extern "C" void run(const float* const* in, float* out, int count)\n'
        f"{{ for (int e = 0; e < count; ++e) out[e] = {made.name}({each}); }}\n"
    )
    with tempfile.TemporaryDirectory() as work:
        source, library = Path(work, "entry.cpp"), Path(work, "entry.so")
        source.write_text(text)
        done = subprocess.run(
            [compiler, *HOST_FLAGS, str(source), "-o", str(library)], capture_output=True, check=False
        )
        if done.returncode:
            return None
        arrays = [np.ascontiguousarray(g) for g in given]
        out = np.empty_like(arrays[0])
        pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        ctypes.CDLL(str(library)).run(pointers, ctypes.c_void_p(out.ctypes.data), ctypes.c_int(out.size))
    return out
