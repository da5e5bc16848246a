"""Corrects the model by what was measured: a factor for each value of each setting, by ridge regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Doubles: TypeAlias = "NDArray[np.float64]"

STIFFNESS = 0.05
"""How strongly factors are held at 1: of a squared deviation in the logarithm of a time."""
ADVENTUROUS = 4
"""One choice in this many is for what is least known."""


class Surrogate:
    """Predicts seconds of candidates from the model's seconds and the times measured so far."""

    def __init__(self, values: Sequence[Mapping[str, Any]], modelled: Sequence[float]) -> None:
        import numpy as np

        names = sorted({name for row in values for name in row})
        varied = [n for n in names if len({row.get(n) for row in values}) > 1]
        columns = [(n, v) for n in varied for v in sorted({row.get(n) for row in values}, key=repr)]
        self._base = np.log(np.asarray(modelled, np.float64))
        rows = [[1.0, *(float(row.get(n) == v) for n, v in columns)] for row in values]
        # Last the model's own logarithm: how much of what it says holds.
        centred = self._base - self._base.mean()
        self._features = np.column_stack([np.asarray(rows), centred])

    def predict(self, measured: Mapping[int, float]) -> tuple[Doubles, Doubles]:
        """The logarithm of each candidate's seconds, and how uncertain it is."""
        import numpy as np

        x = self._features
        known = sorted(measured)
        if not known:
            return self._base, np.ones(len(self._base))
        target = np.log([measured[i] for i in known]) - self._base[known]
        middle = float(np.median(target))
        a = x[known]
        normal = a.T @ a + STIFFNESS * np.eye(x.shape[1])
        inverse = np.linalg.inv(normal)
        factors = inverse @ (a.T @ (target - middle))
        doubt = np.einsum("ij,jk,ik->i", x, inverse, x)
        return self._base + middle + x @ factors, np.sqrt(doubt)

    def choose(self, measured: Mapping[int, float], rest: Sequence[int], count: int) -> list[int]:
        """The candidates to measure next, of those in ``rest``."""
        import numpy as np

        log_s, doubt = self.predict(measured)
        spread = float(np.std([np.log(s) for s in measured.values()])) if len(measured) > 1 else 1.0
        by_time = sorted(rest, key=lambda i: (log_s[i], i))
        daring = sorted(rest, key=lambda i: (log_s[i] - spread * doubt[i], i))
        adventures = count // ADVENTUROUS
        chosen = by_time[: count - adventures]
        chosen += [i for i in daring if i not in chosen][:adventures]
        return chosen
