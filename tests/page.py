"""A page of HTML read with the standard parser: its elements, checked for being well nested."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}
SHAPES = {"rect", "circle", "line", "polyline", "path"}


@dataclass
class Element:
    """An element: its name, attributes, and what is in it."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)

    def all(self, name: str = "", cls: str = "") -> Iterator[Element]:
        """Elements below with this name and class, in order."""
        for child in self.children:
            if isinstance(child, Element):
                if name in ("", child.name) and (not cls or cls in child.attributes.get("class", "").split()):
                    yield child
                yield from child.all(name, cls)

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def by_id(self, name: str) -> Element:
        return next(e for e in self.all() if e.attributes.get("id") == name)


class Reader(HTMLParser):
    """Builds the tree; a wrongly nested or unclosed element is an AssertionError."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Element("document")
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"an attribute twice: {tag} {attrs}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SHAPES, f"only shapes of SVG close themselves, not {tag}"
        self._open[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].name == tag, f"</{tag}> closes <{self._open[-1].name}> at {self.getpos()}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)

    def close(self) -> None:
        super().close()
        assert self._open == [self.root], f"not closed: {[e.name for e in self._open]}"


def read(html: str) -> Element:
    reader = Reader()
    reader.feed(html)
    reader.close()
    return reader.root
