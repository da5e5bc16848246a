"""A lexer for specs, for Pygments: ``gemm`` by name, ``*.gemm`` by file. Its words are the language's table."""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer, bygroups, words
from pygments.token import Comment, Keyword, Name, Number, Punctuation, Text

from gemmgen.ir.types import ELEMENT_TYPES
from gemmgen.spec.model import SETTINGS, TOGGLES

STARTS = tuple(sorted({s.name.split()[0] for s in SETTINGS} - {"kernel"}, key=len, reverse=True))
OPTIONS = tuple({option for t in TOGGLES for option in t.options} | {"in", "accumulate", "row", "col"})


class SpecLexer(RegexLexer):  # type: ignore[misc]
    """Settings are keywords, toggles built-in names, sizes and types as in CUDA."""

    name = "gemmgen spec"
    aliases: ClassVar = ["gemm"]
    filenames: ClassVar = ["*.gemm"]
    url = ""
    tokens: ClassVar = {
        "root": [
            (r"#[^\n]*", Comment.Single),
            (r"^([ \t]*)(kernel)([ \t]+)([^\s#]+)", bygroups(Text, Keyword, Text, Name.Function)),
            (r"^([ \t]*)(tile)([ \t]+)(block|warp|thread)\b", bygroups(Text, Keyword, Text, Keyword)),
            (words(STARTS, prefix=r"^[ \t]*", suffix=r"(?=[\s,#]|$)"), Keyword),
            (words(tuple(ELEMENT_TYPES), prefix=r"\b", suffix=r"\b"), Keyword.Type),
            (words(tuple(t.name for t in TOGGLES), prefix=r"\b", suffix=r"\b"), Name.Builtin),
            (words(OPTIONS, prefix=r"\b", suffix=r"\b"), Keyword.Type),
            (r"\b[0-9]+(x[0-9]+)*\b", Number.Integer),
            (r"[,(){}=]", Punctuation),
            (r"[^\S\n]+|\n", Text),
            (r"[^\s,(){}=#]+", Text),
        ]
    }
