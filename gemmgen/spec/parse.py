"""Text -> Spec. What a line may start with and how the rest reads is the table in ``gemmgen.spec.model``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, BinaryIO

from gemmgen.diagnostics import MAX_PROBLEMS, ArgumentError, Problem, Source, Span, SpecError, quoted
from gemmgen.spec.check import notes, problems
from gemmgen.spec.draft import INTEGER, Draft, integer_of
from gemmgen.spec.epilogue import read_chain
from gemmgen.spec.lines import Enough, Line, Word, decoded, leading_comment, normalised, read_lines
from gemmgen.spec.model import DTYPES, ORDERS, RENAMED, SETTINGS, TOGGLES, Operand, Spec
from gemmgen.spec.names import did_you_mean, nearest
from gemmgen.spec.setting import Form, Setting
from gemmgen.spec.subject import Subject
from gemmgen.spec.tuning import read_choice

MAX_TEXT = 64 * 1024  # characters or bytes of a spec; a larger file is not one

_SETTINGS = {row.name: row for row in SETTINGS}
_STARTS = list(dict.fromkeys(name.split(" ", 1)[0] for name in _SETTINGS))
_TOGGLES = {t.name: t for t in TOGGLES}
_PLACEHOLDERS: dict[str, Any] = {"name": "kernel", "block": (1, 1, 1)}


Fits = Callable[[Spec], bool]
"""Whether a GPU has what a legal spec needs: no hint leads to one that does not fit."""


def parse(text: str, filename: str = "<string>", fits: Fits = lambda _: True) -> Spec:
    """The spec that ``text`` says. Raises SpecError with every mistake in it, each with line and column."""
    if not isinstance(text, str):
        raise ArgumentError(f"text: given {type(text).__name__}, wanted str")
    if len(text) > MAX_TEXT:
        raise SpecError([_too_long()], filename)
    source = Source(filename, normalised(text))
    draft = Draft(source)
    try:
        for line in read_lines(source, draft.problems):
            _read(draft, line)
    except Enough as enough:
        raise SpecError(sorted(draft.problems, key=_place), filename, _stopped(source, enough.at)) from None
    missing = list(_missing(draft))
    spec = Spec(
        **(_PLACEHOLDERS | draft.values), filename=filename, comment=leading_comment(source.text), spans=draft.spans
    )
    subject = Subject(spec, frozenset(draft.bad), no_bk="BK" not in draft.spans and "BK" not in draft.bad, fits=fits)
    found = sorted([*draft.problems, *problems(subject)], key=_place) + missing
    if found:
        raise SpecError(found, filename)
    return _noted(spec)


def _stopped(source: Source, at: Span) -> str:
    lines = len(source.lines)
    return (
        f"reading stopped at line {at.line} of {lines}, after {MAX_PROBLEMS} errors: {lines - at.line} more lines are "
        "not read"
    )


def load(path: str | os.PathLike[str], fits: Fits = lambda _: True) -> Spec:
    """The spec in a file: UTF-8, with or without a byte order mark, lines ended in any way.

    Raises SpecError, also for a file that cannot be read or is not UTF-8 (with the byte offset).
    """
    filename = os.fspath(path)
    try:
        with open(filename, "rb") as file:
            return read(file, filename, fits)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError([Problem(f"cannot read the spec: {reason}")], filename) from None


def read(file: BinaryIO, filename: str, fits: Fits = lambda _: True) -> Spec:
    """The spec in an open file, which errors call ``filename``. Raises SpecError, and OSError where reading fails."""
    data = file.read(MAX_TEXT + 1)
    if len(data) > MAX_TEXT:
        raise SpecError([_too_long()], filename)
    return parse(decoded(data, filename), filename, fits)


def _too_long() -> Problem:
    return Problem(f"the spec is longer than {MAX_TEXT} bytes", "a spec is about ten lines")


def _noted(spec: Spec) -> Spec:
    found = notes(spec)
    return replace(spec, notes=found) if found else spec


def _place(problem: Problem) -> tuple[int, int]:
    return (problem.span.line, problem.span.column) if problem.span else (0, 0)


# --- One line -----------------------------------------------------------------------------------------------------


def _read(draft: Draft, line: Line) -> None:
    found = _row(draft, line)
    if found is None:
        return
    row, skip = found
    if row.name in draft.spans and row.form != "tune":
        first = draft.spans[row.name].line
        hint = "keep one of the two"
        draft.wrong(line.span, f"{row.name} is given twice, on lines {first} and {line.span.line}", hint)
        draft.spoil(row)
        return
    draft.spans[row.name] = line.span
    items = [line.items[0][skip:], *line.items[1:]]
    before = len(draft.problems)
    if not items[0]:
        draft.wrong(line.span, f"{row.name} needs a value", f"write it like '{_example(row)}'")
    elif row.form in ("toggles", "chain") or not _stray_options(draft, items):
        _READERS[row.form](draft, row, items)
    if len(draft.problems) > before and not (row.form == "sizes" and row.fields[0] in draft.values):
        draft.spoil(row)


def _row(draft: Draft, line: Line) -> tuple[Setting, int] | None:
    """The setting that a line gives, and how many of its words name it."""
    words = line.items[0]
    first = words[0].text
    second = words[1].text if len(words) > 1 else ""
    for name, count in ((first, 1), (f"{first} {second}", 2)):
        if name in _SETTINGS and not any(w.options for w in words[:count]):
            return _SETTINGS[name], count
    group = [name.split(" ", 1)[1] for name in _SETTINGS if name.startswith(f"{first} ")]
    if group:
        taken = f"{first} is followed by {', '.join(group[:-1])} or {group[-1]}"
        if second:
            draft.wrong(words[1].span, f"{taken}, not {quoted(second)}", did_you_mean(second, group))
        else:
            draft.wrong(words[0].span, taken)
        return None
    draft.wrong(words[0].span, f"unknown setting {quoted(first)}", _meant(first))
    return None


def _meant(word: str) -> str:
    """A hint for an unknown setting; one glued to what follows is taken apart."""
    if word in RENAMED:
        return f"the toggle's name is now '{RENAMED[word]}'; write 'use {RENAMED[word]}'"
    glued = next((s for s in _STARTS if word.startswith(s)), None)
    if glued and len(word) <= 60:
        return f"did you mean '{glued} {word[len(glued) :]}'?"
    return did_you_mean(word, _STARTS)


def _stray_options(draft: Draft, items: list[tuple[Word, ...]]) -> bool:
    for word in (w for item in items for w in item if w.options):
        draft.wrong(word.span, f"{quoted(word.text)} takes no options", "take the brackets away")
        return True
    return False


def _example(row: Setting) -> str:
    forms: dict[Form, str] = {
        "name": "mine",
        "sizes": "x".join(("64", "64", "8")[: len(row.parts)]),
        "toggles": "coalescing, smem",
        "operands": "A f32 row, B f32 row, C f32 row, accumulate f32",
        "number": str(row.default),
        "word": row.example,
        "chain": row.example,
        "math": row.example,
        "roles": row.example,
        "tune": "stages in {2, 4}",
    }
    return f"{row.name} {forms[row.form]}"


def _single(draft: Draft, row: Setting, items: list[tuple[Word, ...]]) -> Word | None:
    """The one word of a setting that takes one."""
    extra = items[0][1:] or (items[1] if len(items) > 1 else ())
    if extra:
        hint = f"write it like '{_example(row)}'"
        draft.wrong(extra[0].span, f"{row.name} takes one value; {quoted(extra[0].text)} is one too many", hint)
        return None
    return items[0][0]


def _name(draft: Draft, row: Setting, items: list[tuple[Word, ...]]) -> None:
    if word := _single(draft, row, items):
        draft.spans[row.name] = word.span
        draft.values[row.fields[0]] = word.text


def _word(draft: Draft, row: Setting, items: list[tuple[Word, ...]]) -> None:
    if word := _single(draft, row, items):
        draft.spans[row.name] = word.span
        draft.values[row.fields[0]] = word.text


def _math(draft: Draft, row: Setting, items: list[tuple[Word, ...]]) -> None:
    """``fma``; or ``mma`` and a shape; or besides, behind ``as``, the parts that elements are multiplied in."""
    words = [*items[0], *(items[1] if len(items) > 1 else ())]
    most = 4 if len(words) > 2 and words[2].text == "as" else 2
    if len(words) > most or len(items) > 1:
        hint = f"write it like '{_example(row)}', or 'math fma'"
        draft.wrong(words[-1].span, f"math takes fma, or mma and a shape; {quoted(words[-1].text)} is too much", hint)
        return
    draft.spans[row.name] = words[0].span
    draft.values[row.fields[0]] = " ".join(w.text for w in words)


def _roles(draft: Draft, row: Setting, items: list[tuple[Word, ...]]) -> None:
    """``producer 1, consumers 2``: the warp groups of each role."""
    draft.spans[row.name] = items[0][0].span
    draft.values[row.fields[0]] = ", ".join(" ".join(w.text for w in item) for item in items)


def _number(draft: Draft, row: Setting, items: list[tuple[Word, ...]]) -> None:
    word = _single(draft, row, items)
    if word and (value := integer_of(draft, word.text, word.span, row.name, row.most)) is not None:
        draft.spans[row.name] = word.span
        draft.values[row.fields[0]] = value


def _sizes(draft: Draft, row: Setting, items: list[tuple[Word, ...]]) -> None:
    word = _single(draft, row, items)
    if word is None:
        return
    pieces = word.text.split("x")
    if not all(INTEGER.fullmatch(p) for p in pieces):
        draft.wrong(word.span, f"{quoted(word.text)} is not a size for {row.name}", _size_hint(word.text, row))
        return
    few, many = len(row.parts) - row.optional, len(row.parts)
    if not few <= len(pieces) <= many:
        wanted = " or ".join("x".join(row.parts[:n]) for n in range(few, many + 1))
        counts = " or ".join(str(n) for n in range(few, many + 1))
        draft.wrong(word.span, f"{row.name} takes {counts} numbers, {wanted}, not {len(pieces)}: {quoted(word.text)}")
        return
    draft.spans[row.name] = word.span
    column, sizes = word.span.column, []
    for part, piece in zip(row.parts, pieces, strict=False):
        span = Span(draft.source, word.span.line, column, len(piece))
        draft.spans[part] = span
        value = integer_of(draft, piece, span, part)
        sizes.append(1 if value is None else value)
        draft.bad.update([part] if value is None else [])
        column += len(piece) + 1
    draft.values[row.fields[0]] = tuple(sizes) + (1,) * (many - len(sizes))


def _size_hint(text: str, row: Setting) -> str:
    form = f"write it like '{_example(row)}'"
    if any(c.isdigit() and not c.isascii() for c in text):
        return f"{form}, with the digits 0 to 9"
    if "X" in text:
        return f"{form}, with a small x, not a capital one"
    if "×" in text or "*" in text:
        return f"{form}, with the letter x between the numbers"
    return form


def _toggles(draft: Draft, row: Setting, items: list[tuple[Word, ...]]) -> None:
    use: dict[str, Span] = {}
    for item in items:
        word = item[0]
        if len(item) > 1:
            hint = f"did you mean '{word.text}, {item[1].text}'?"[:80]
            draft.wrong(item[1].span, f"a comma is missing before {quoted(item[1].text)}", hint)
        for part in item:
            _toggle(draft, row, part, use)
    draft.values["use"] = frozenset(use)


def _toggle(draft: Draft, row: Setting, word: Word, use: dict[str, Span]) -> None:
    toggle = _TOGGLES.get(word.text)
    if toggle is None:
        draft.wrong(word.span, f"unknown toggle {quoted(word.text)}", did_you_mean(word.text, _TOGGLES))
        return
    if word.text in use:
        first = use[word.text]
        where = f"columns {first.column} and {word.span.column} of line {first.line}"
        draft.wrong(word.span, f"{word.text} is used twice, at {where}", "keep one of the two")
        return
    use[word.text] = draft.spans[f"{row.name} {word.text}"] = word.span
    for name, value in word.options:
        _option(draft, word, toggle.options, name, value)


def _option(draft: Draft, toggle: Word, known: tuple[str, ...], name: Word, value: Word) -> None:
    if not name.text:
        hint = f"write it like '{toggle.text}({known[0]}=1)'" if known else "take the brackets away"
        draft.wrong(value.span, f"{quoted(value.text)} is a value without a name", hint)
    elif name.text not in known:
        hint = did_you_mean(name.text, known) if known else "take the brackets away"
        draft.wrong(name.span, f"{toggle.text} has no option {quoted(name.text)}", hint)
    elif name.text in draft.spans:
        draft.wrong(name.span, f"{name.text} is given twice on line {name.span.line}", "keep one of the two")
    else:
        draft.spans[name.text] = value.span
        number = integer_of(draft, value.text, value.span, name.text)
        if number is None:
            draft.bad.add(name.text)
        else:
            draft.values[name.text] = number


def _chain(draft: Draft, row: Setting, items: list[tuple[Word, ...]]) -> None:
    entries = read_chain(items, draft.wrong, draft.spans)
    if entries is not None:
        draft.values[row.fields[0]] = entries


def _tune(draft: Draft, row: Setting, items: list[tuple[Word, ...]]) -> None:
    if len(items) > 1:
        draft.wrong(items[1][0].span, "one tune line chooses for one setting", "write a line for each")
        return
    found = read_choice(items[0], draft.wrong)
    if found is None:
        return
    choice, span = found
    key = f"{row.name} {choice[0]}"
    if key in draft.spans:
        where = f"on lines {draft.spans[key].line} and {span.line}"
        draft.wrong(span, f"{key} is given twice, {where}", "put all values into one set")
        return
    draft.spans[key] = span
    draft.values["tune"] = (*draft.values.get("tune", ()), choice)


def _operands(draft: Draft, row: Setting, items: list[tuple[Word, ...]]) -> None:
    for item in items:
        name, words = item[0], item[1:]
        if name.text not in row.fields:
            draft.wrong(name.span, f"unknown operand {quoted(name.text)}", did_you_mean(name.text, row.fields))
        elif f"{row.name} {name.text}" in draft.spans:
            message = f"operand {name.text} is given twice on line {name.span.line}"
            draft.wrong(name.span, message, "keep one of the two")
        else:
            draft.spans[f"{row.name} {name.text}"] = name.span
            _operand(draft, name, words)


def _operand(draft: Draft, name: Word, words: tuple[Word, ...]) -> None:
    """``f32 row``; a word that is left out keeps its default. A type that is none is the checks' to refuse."""
    order = words[-1].text if words and words[-1].text in ORDERS else ""
    types = words[:-1] if order else words
    if not words or len(types) > 1 or (order and name.text == "accumulate"):
        order_too = ("", "") if name.text == "accumulate" else (" and an order", " row")
        hint = f"write it like '{name.text} f32{order_too[1]}'"
        draft.wrong(name.span, f"{name.text} takes a type{order_too[0]}", hint)
        return
    dtype = types[0].text if types else DTYPES[0]
    draft.spans[f"operands {name.text}"] = words[0].span
    draft.values[name.text] = dtype if name.text == "accumulate" else Operand(dtype, order or ORDERS[0])


_READERS: dict[Form, Callable[[Draft, Setting, list[tuple[Word, ...]]], None]] = {
    "name": _name,
    "sizes": _sizes,
    "toggles": _toggles,
    "operands": _operands,
    "number": _number,
    "word": _word,
    "chain": _chain,
    "math": _math,
    "roles": _roles,
    "tune": _tune,
}


def _missing(draft: Draft) -> Iterator[Problem]:
    """Settings that a spec cannot do without; not those that a line in error was perhaps to give."""
    rows = [row for row in SETTINGS if row.required and row.name not in draft.spans]
    unread = {_guess(draft.source.line(p.span.line)) for p in draft.problems if p.span} if rows else set()
    for row in rows:
        draft.spoil(row)
        if row.name.split(" ")[0] not in unread:
            at = next(iter(draft.spans.values()), Span(draft.source, 1, 1))
            yield Problem(f"no '{row.name}' line", f"add one like '{_example(row)}'", at)


def _guess(line: str) -> str:
    """Which setting a line was most likely to give."""
    word = (line.split() or [""])[0]
    return next((start for start in _STARTS if word.startswith(start)), "") or nearest(word, _STARTS)
