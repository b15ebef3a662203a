"""A page as a tree of values, so that a test can ask what is on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    def all(self, tag: str | None = None, **wanted: str) -> list[Element]:
        """Elements inside, by tag and by attributes; a class counts when it is one of several."""
        return [
            each
            for each in self.inside()
            if (tag is None or each.tag == tag) and all(each.holds(name, value) for name, value in wanted.items())
        ]

    def holds(self, name: str, value: str) -> bool:
        name = name.rstrip("_")
        held = self.attributes.get(name, "")
        return value in held.split() if name == "class" else value == held

    def inside(self) -> Iterator[Element]:
        for child in self.children:
            if isinstance(child, Element):
                yield child
                yield from child.inside()

    def text(self) -> str:
        return " ".join("".join(self._texts()).split())

    def _texts(self) -> Iterator[str]:
        for child in self.children:
            yield from [child] if isinstance(child, str) else child._texts()


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]
        self.comments: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


def read_page(page: str) -> Element:
    """The tree of `page`; it must close what it opens and hold no comment."""
    builder = _Builder()
    builder.feed(page)
    builder.close()
    assert builder.open == [builder.root], f"<{builder.open[-1].tag}> is never closed"
    assert builder.comments == []
    return builder.root


def without_drawings(page: str) -> str:
    """The page without the drawings of its charts: they are as wide as their labels, and hold shapes and text."""
    for drawing in re.findall(r'<svg [^>]*class="static".*?</svg>', page, re.DOTALL):
        assert set(re.findall(r"<([a-zA-Z!?]+)", drawing)) <= {"svg", "g", "path", "text", "tspan", "line", "rect",
                                                              "defs", "clipPath", "a", "title"}  # fmt: skip
        assert not re.search(r"<[^>]*\s(on\w+|style|xlink:href)=", drawing)
        page = page.replace(drawing, "")
    return re.sub(r'<div class="next".*?</div>', "", page, flags=re.DOTALL)  # our own advice, which goes by the factor
