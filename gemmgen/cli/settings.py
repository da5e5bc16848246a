"""``--set NAME=VALUE,...``: values of a setting, as typed on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmgen.cli.exits import UsageError

EXAMPLE = "--set stages=2,3"


def divided(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """The settings that the tuner can vary, and those that only change the specs, such as ``A=bf16``."""
    from gemmgen.spec.assign import NAMES
    from gemmgen.spec.tuning import TUNABLE

    fixed = [text for text in texts if text.partition("=")[0].strip() in set(NAMES) - set(TUNABLE)]
    return [text for text in texts if text not in fixed], fixed


def parse_settings(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Every ``--set`` of a command line. Raises UsageError."""
    found: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, values = parse_setting(text)
        if name in found:
            raise UsageError(f"--set {name} is given twice; put all values into one")
        found[name] = values
    return found


def parse_setting(text: str) -> tuple[str, tuple[Any, ...]]:
    """``stages=2,3`` as a choice of ``gemmgen.tune``. Raises UsageError, in words of what was typed."""
    from gemmgen.diagnostics import quoted
    from gemmgen.spec.names import did_you_mean
    from gemmgen.spec.tuning import TUNABLE, value_of, value_problem

    name, equals, values = text.partition("=")
    name = name.strip().removeprefix("tile ").lstrip()
    if not name or not equals:
        raise UsageError(f"--set {quoted(text)} names no setting and its values; write it like {EXAMPLE}")
    if name not in TUNABLE:
        raise UsageError(f"--set: {quoted(name)} is not a setting that can be tuned; {did_you_mean(name, TUNABLE)}")
    like = f"write it like --set {name}={_values_of(name)}"
    found: list[Any] = []
    for word in (part.strip() for part in values.split(",")):
        value = value_of(name, word)
        if not word:
            raise UsageError(f"--set {name}: a value is missing; {like}")
        if value is None:
            raise UsageError(f"--set {name}: {quoted(word)} is not a value of it; {like}")
        if value in found:
            raise UsageError(f"--set {name}: {word} is given twice; give it once")
        if problem := value_problem(name, value):
            raise UsageError(f"--set {name}: {word} {problem}; remove it")
        found.append(value)
    return name, tuple(found)


def _values_of(name: str) -> str:
    """Two values of a setting."""
    from gemmgen.spec.tuning import example

    return example(name).partition("{")[2].rstrip("}").replace(" ", "")
