"""``gemmgen lesson``: exercises that check themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gemmgen.cli import exits, output
from gemmgen.cli.options import Json

if TYPE_CHECKING:
    from gemmgen.lesson.rows import Exercise, Race

LARGEST = 100_000
"""Bytes of an answer that are read."""

Number = Annotated[int, typer.Argument(metavar="N", help="Number of an exercise.")]
app = typer.Typer(
    help="Exercises: specs to complete or repair, checked by counts, the model and the simulator. No GPU is needed.",
    epilog="Start with:  gemmgen lesson show 1",
    rich_markup_mode=None,
    add_completion=False,
)


@app.callback(invoke_without_command=True)
def lesson(context: typer.Context) -> int:
    if context.invoked_subcommand is None:
        listed()
    return exits.OK


def listed() -> None:
    """The exercises as a table."""
    from gemmgen.lesson.exercises import EXERCISES
    from gemmgen.text.table import format_table
    from gemmgen.text.wrap import wrapped

    rows = [[i, e.title, e.source] for i, e in enumerate(EXERCISES, 1)]
    output.result(format_table(["exercise", "title", "from"], rows))
    output.result("")
    output.result(wrapped("`gemmgen lesson show N` prints one; `gemmgen lesson check N FILE` checks your answer."))


@app.command("list")
def list_exercises(json: Json = False) -> int:
    """List the exercises."""
    from gemmgen.lesson.exercises import EXERCISES

    if json:
        output.print_json([{"number": i, "title": e.title, "from": e.source} for i, e in enumerate(EXERCISES, 1)])
    else:
        listed()
    return exits.OK


@app.command()
def show(
    number: Number,
    hint: Annotated[int, typer.Option("--hint", count=True, help="The first hint; twice: the second too.")] = 0,
    start: Annotated[bool, typer.Option("--start", help="Only the text to start from, for a file.")] = False,
    solution: Annotated[bool, typer.Option("--solution", help="A solution.")] = False,
) -> int:
    """Print an exercise and the text to start from. Examples:

    gemmgen lesson show 3

    gemmgen lesson show 3 --start > answer.gemm

    gemmgen lesson show 3 --hint --hint
    """
    from gemmgen.lesson.checking import solution_of, start_of
    from gemmgen.text.wrap import wrapped

    exercise = found(number)
    if start:
        output.result(start_of(exercise).rstrip("\n"))
        return exits.OK
    if solution:
        output.result(f"{solution_of(exercise)}\n{wrapped(exercise.why)}")
        return exits.OK
    output.result(f"{number}. {exercise.title} (from {exercise.source})\n\n{wrapped(exercise.text)}\n")
    output.result(start_of(exercise))
    for text in exercise.hints[:hint]:
        output.result(wrapped(f"hint: {text}"))
    if not hint:
        how = f"Write your answer to a file, and check it: gemmgen lesson check {number} answer.gemm"
        output.result(wrapped(f"{how} (hints: --hint, --hint --hint)"))
    return exits.OK


@app.command()
def check(
    number: Number,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Your answer; - for standard input.")],
    json: Json = False,
) -> int:
    """Check an answer: each goal with its number, and a run in the simulator. Exit status 1 where one is not met.
    Example:

    gemmgen lesson check 3 answer.gemm
    """
    from gemmgen.lesson.checking import check as checked
    from gemmgen.text.wrap import wrapped

    exercise = found(number)
    verdict = checked(exercise, text_of(file), file)
    if json:
        points = [{"met": p.met, "text": p.text} for p in verdict.points]
        output.print_json({"exercise": number, "passed": verdict.passed, "points": points})
    else:
        for p in verdict.points:
            output.result(f"{'PASS' if p.met else 'FAIL'}: {p.text}")
        output.result("\n" + wrapped(exercise.why if verdict.passed else f"`gemmgen lesson show {number} --hint`"))
    return exits.OK if verdict.passed else exits.FAILED


def found(number: int) -> Exercise | Race:
    """The exercise of a number. Raises UsageError."""
    from gemmgen.lesson.exercises import EXERCISES

    if not 1 <= number <= len(EXERCISES):
        raise exits.UsageError(f"there is no exercise {number}; they are 1 to {len(EXERCISES)}")
    return EXERCISES[number - 1]


def text_of(file: str) -> str:
    """The text of an answer. Raises UsageError for one that is no text."""
    import sys
    from pathlib import Path

    if file == "-":
        data = sys.stdin.buffer.read(LARGEST + 1)
    else:
        with Path(file).open("rb") as answer:
            data = answer.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise exits.UsageError(f"{file} has over {LARGEST} bytes; an answer is a spec of a few lines")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise exits.UsageError(f"{file} is not UTF-8 text") from None
