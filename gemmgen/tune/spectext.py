"""What the text of a recorded spec says, without parsing it: records of other versions of the language count too."""

from __future__ import annotations


def adds_in_memory(spec: str) -> bool:
    """Whether the text of a spec is of a kernel that adds up in no fixed order. Its comment may speak of it too."""
    lines = (line.partition("#")[0].replace(",", " ").split() for line in spec.splitlines())
    return any(words[:1] == ["use"] and "atomics" in words for words in lines)


def operands_of(spec: str) -> str:
    """The line of a spec's text that says how its operands lie; empty where they lie by rows."""
    lines = (line.partition("#")[0].split() for line in spec.splitlines())
    return next((" ".join(words) for words in lines if words[:1] == ["operands"]), "")
