"""``epilogue bias -> gelu``: how the line reads, and which chains are legal.

Its entries are rows of ``isa.epilogue``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import Problem, Span, quoted
from gemmgen.isa.epilogue import EntryError, entry, known_names
from gemmgen.spec.lines import Word
from gemmgen.spec.names import did_you_mean

if TYPE_CHECKING:
    from gemmgen.spec.subject import Subject

ARROW = "->"
MOST_ENTRIES = 16
"""Entries of a chain: more are not meant."""
Wrong = Callable[[Span, str, str], None]


def read_chain(items: list[tuple[Word, ...]], wrong: Wrong, spans: dict[str, Span]) -> tuple[str, ...] | None:
    """The entries of a line, and where each stands ("epilogue 0", ...); None after a mistake."""
    if len(items) > 1:
        wrong(items[1][0].span, "entries of an epilogue are joined with ->, not with a comma", _joined(items))
        return None
    found: list[str] = []
    expected = True
    for word in (piece for whole in items[0] for piece in _pieces(whole)):
        if word.text == ARROW:
            if expected:
                wrong(word.span, "-> joins two entries, and one is missing before it", "write it like 'bias -> gelu'")
                return None
            expected = True
            continue
        if not expected:
            wrong(word.span, f"-> is missing before {quoted(word.text)}", f"write '{found[-1]} -> {word.text}'"[:80])
            return None
        spans[f"epilogue {len(found)}"] = word.span
        found.append(_text(word))
        expected = False
    if expected:
        wrong(
            items[0][-1].span, "the line ends in ->, and an entry is missing behind it", "write it like 'bias -> gelu'"
        )
        return None
    return tuple(map(_canonical, found))


def _joined(items: list[tuple[Word, ...]]) -> str:
    return f"write '{' -> '.join(_text(w) for item in items for w in item if w.text != ARROW)}'"[:80]


def _pieces(word: Word) -> Iterator[Word]:
    """A word that is entries and arrows without spaces between, in pieces; options go with the last."""
    column, parts = word.span.column, word.text.split(ARROW)
    for i, part in enumerate(parts):
        if i:
            yield Word(ARROW, Span(word.span.source, word.span.line, column - len(ARROW), len(ARROW)))
        if part:
            span = Span(word.span.source, word.span.line, column, len(part))
            yield Word(part, span, word.options if i == len(parts) - 1 else ())
        column += len(part) + len(ARROW)


def _text(word: Word) -> str:
    options = ", ".join(f"{name.text}={value.text}" if name.text else value.text for name, value in word.options)
    return f"{word.text}({options})" if options else word.text


def _canonical(text: str) -> str:
    """An entry as it is always written; as it is where it cannot be read, which the checks say."""
    try:
        return entry(_positional(text)).text
    except EntryError:
        return text


def _positional(text: str) -> str:
    """``clamp(lo=0, hi=6)`` as ``clamp(0, 6)``, where the names are those of the row, in order."""
    head, bracket, rest = text.partition("(")
    parts = [p.partition("=") for p in rest.removesuffix(")").split(",")]
    if not bracket or not all(equals for _, equals, _ in parts):
        return text
    from gemmgen.isa.epilogue import row_named

    row = row_named(head.strip())
    names = tuple(name.strip() for name, _, _ in parts)
    if row is None or set(names) != set(row.parameters) or len(names) != len(row.parameters):
        return text
    values = {name.strip(): value.strip() for name, _, value in parts}
    return f"{head}({', '.join(values[p] for p in row.parameters)})"


def settled_chain(value: Any) -> tuple[str, ...]:
    """A chain from Python: text with arrows, or its entries; None for none. Raises TypeError for anything else."""
    if value is None:
        return ()
    entries: Iterable[Any] = value.split(ARROW) if isinstance(value, str) else tuple(value)
    if isinstance(value, str) and not value.strip():
        return ()
    found = []
    for text in entries:
        if not isinstance(text, str):
            raise TypeError(text)
        found.append(_canonical(text.strip()))
    return tuple(found)


def epilogue_problems(s: Subject) -> Iterator[Problem]:
    """Entries that do not exist, that say something twice, or that the rest of a spec leaves no place for."""
    if not s.good("epilogue") or not s.spec.epilogue:
        return
    if len(s.spec.epilogue) > MOST_ENTRIES:
        message = f"the epilogue has {len(s.spec.epilogue)} entries, over the limit of {MOST_ENTRIES}"
        yield Problem(message, "leave some out", s.span("epilogue"))
        return
    seen: dict[str, str] = {}
    for i, text in enumerate(s.spec.epilogue):
        span = s.span(f"epilogue {i}", "epilogue")
        try:
            found = entry(text)
        except EntryError as error:
            hint = error.hint or did_you_mean(text.partition("(")[0], known_names())
            yield Problem(error.message, hint, span)
            continue
        for operand in found.row.operands:
            if operand.name in seen:
                message = f"{found.row.name} takes {operand.name}, and so does {seen[operand.name]} before it"
                yield Problem(message, "keep one of the two", span)
            seen[operand.name] = f"the {found.row.name}"
        if found.row.function is not None and s.good("name") and s.spec.name == found.row.function.name:
            message = f"the kernel and a function of its epilogue are both called {s.spec.name}"
            yield Problem(message, f"name the kernel 'gemm_{s.spec.name}'", s.span("kernel"))
    if s.good("use") and s.spec.has("atomics"):
        message = (
            "atomics adds parts of a sum to C where it lies, and no block ever has the whole value for the epilogue"
        )
        hint = s.leaving("atomics") or "leave atomics out"
        yield Problem(message, f"{hint}; then a second kernel adds up, and applies it", s.span("epilogue"))
