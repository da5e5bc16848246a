"""Text -> lines of words with their places, by the grammar in ``grammar/gemm.lark``.

Each line is parsed alone, so that a mistake in one does not hide those of the others.
"""

from __future__ import annotations

import codecs
import functools
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from gemmgen.diagnostics import MAX_PROBLEMS, Problem, Source, Span, SpecError, quoted
from gemmgen.spec.data import data_folder

MAX_WORDS = 4096
"""Words of a line: more are never meant, and take long to read."""


class Enough(Exception):
    """There are as many problems as are reported: the rest of the text is not read."""

    def __init__(self, at: Span) -> None:
        self.at = at
        super().__init__()


def report(problems: list[Problem], problem: Problem) -> None:
    """Add a problem of the text. Raises Enough where no more are taken."""
    assert problem.span is not None
    if len(problems) >= MAX_PROBLEMS:
        raise Enough(problem.span)
    problems.append(problem)


@dataclass(frozen=True)
class Word:
    """A word, or a set ``{...}`` (then ``members``), with the options in brackets after it."""

    text: str
    span: Span
    options: tuple[tuple[Word, Word], ...] = ()
    members: tuple[tuple[Word, ...], ...] = ()


@dataclass(frozen=True)
class Line:
    """One line that says something: comma-separated items, each of at least one word."""

    span: Span
    items: tuple[tuple[Word, ...], ...]


@functools.cache
def _parser() -> Lark:
    grammar = (data_folder("grammar") / "gemm.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", start="line", maybe_placeholders=False)


def normalised(text: str) -> str:
    """The text with lines ended by \\n and no byte order mark."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def read_lines(source: Source, problems: list[Problem]) -> Iterator[Line]:
    """The lines of a source that hold more than a comment; what cannot be read is added to ``problems``.

    Raises Enough where those are too many.
    """
    for number, text in enumerate(source.text.split("\n"), 1):
        if not text.strip(" \t") or text.lstrip(" \t").startswith("#"):
            continue
        if (words := len(text.replace(",", " ").split())) > MAX_WORDS:
            message = f"the line has {words} words and values, over the limit of {MAX_WORDS}"
            report(problems, Problem(message, "write fewer", Span(source, number, 1)))
            continue
        try:
            tree = _parser().parse(text)
        except UnexpectedInput as error:
            report(problems, _problem(error, source, number, text))
            continue
        items = tuple(tuple(_words(item, source, number)) for item in tree.children if isinstance(item, Tree))
        yield Line(items[0][0].span, items)


def _words(item: Tree[Token], source: Source, number: int) -> Iterator[Word]:
    for node in _trees(item):
        if node.data == "set":
            members = tuple(tuple(_word(t, source, number) for t in _tokens(m)) for m in _trees(node))
            yield Word("{...}", _before(members[0][0].span), members=members)
            continue
        head = _word(_tokens(node)[0], source, number)
        options = tuple(
            _option([_word(token, source, number) for token in _tokens(option)])
            for brackets in _trees(node)
            for option in _trees(brackets)
        )
        yield Word(head.text, head.span, options)


def _option(words: list[Word]) -> tuple[Word, Word]:
    """A name and its value; a value alone has an empty name."""
    return (words[0], words[1]) if len(words) > 1 else (Word("", words[0].span), words[0])


def _trees(node: Tree[Token]) -> list[Tree[Token]]:
    return [c for c in node.children if isinstance(c, Tree)]


def _tokens(node: Tree[Token]) -> list[Token]:
    return [c for c in node.children if isinstance(c, Token)]


def _word(token: Token, source: Source, number: int) -> Word:
    return Word(str(token), Span(source, number, token.column or 1, len(token)))


def _before(span: Span) -> Span:
    return Span(span.source, span.line, max(1, span.column - 1))


def _problem(error: UnexpectedInput, source: Source, number: int, text: str) -> Problem:
    """What the parser found, in words of the language."""
    match error:
        case UnexpectedCharacters():
            where = Span(source, number, error.column)
            return _stray(text[error.column - 1], where)
        case UnexpectedToken(token=token) if token.type != "$END":
            return _unexpected(token, Span(source, number, token.column or 1, len(token)))
        case _:
            code = text.split("#", 1)[0].rstrip(" \t")
            opened = next((pair for pair in ("()", "{}") if code.count(pair[0]) > code.count(pair[1])), "")
            hint = f"a '{opened[1]}' is missing" if opened else "complete it or take the last character away"
            message = f"the line ends where more was to come, after {quoted(code[-1:])}"
            return Problem(message, hint, Span(source, number, max(1, len(code))))


def _stray(c: str, where: Span) -> Problem:
    name = unicodedata.name(c, "a control character")
    message = f"the character U+{ord(c):04X} ({name}) has no meaning here"
    return Problem(message, "use plain spaces between words", where)


def _unexpected(token: Any, where: Span) -> Problem:
    hints = {
        ",": "one comma stands between two items",
        "=": "a setting is written 'stages 1', an option 'warptile(m_iter=1)'",
        "(": "brackets hold the options of the toggle before them, as in 'warptile(m_iter=1)'",
        ")": "brackets hold options, as in 'warptile(m_iter=1)'",
    }
    hint = hints.get(str(token), "look at what stands before it")
    return Problem(f"{quoted(str(token))} is not expected here", hint, where)


def decoded(data: bytes, filename: str) -> str:
    """The text of a file. Raises SpecError with the offset of the first byte that is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        at = error.start
    hint = "save the file as UTF-8"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        hint += "; it looks like UTF-16"
    text = normalised(data.decode("utf-8", errors="replace"))
    before = normalised(data[:at].decode("utf-8"))
    span = Span(Source(filename, text), before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
    raise SpecError([Problem(f"byte {at} (0x{data[at]:02X}) is not UTF-8", hint, span)], filename)


def leading_comment(text: str) -> str:
    """The comment lines before the first setting, without their marks."""
    found: list[str] = []
    for line in text.split("\n"):
        stripped = line.strip(" \t")
        if stripped and not stripped.startswith("#"):
            break
        if stripped:
            found.append(stripped[1:].removeprefix(" "))
    return "\n".join(found)
