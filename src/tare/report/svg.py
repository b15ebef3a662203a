"""Drawing: elements, scales, axes and signs, as text that is safe to put into a page.

Colour and line come from classes of the page's one style sheet: the page's policy forbids style attributes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from tare.report.words import safe_text

HUES = 7  # hue-0 is the baseline's; the sheet has this many that colour-blind readers tell apart


@dataclass(frozen=True, slots=True)
class Scale:
    """A line from values to places on the drawing."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low
        share = (value - self.low) / span if span else 0.5
        return self.start + share * (self.end - self.start)

    def held(self, value: float) -> float:
        """The place of `value`, or the nearer end where it lies outside."""
        return self(min(max(value, self.low), self.high))


def tag(element: str, *content: object, **attributes: object) -> Markup:
    """One element; `class_` is class, `text_anchor` is text-anchor, whatever is None is left out."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    inner = Markup().join(piece if isinstance(piece, Markup) else escape(safe_text(piece)) for piece in content)
    return Markup(f"<{element}{written}>{inner}</{element}>")  # safe: every piece of it is escaped above


def picture(name: str, width: float, height: float, title: str, description: str, content: Sequence[Markup]) -> Markup:
    """A whole drawing with its title and description, for readers that do not see it."""
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        *content,
        viewBox=f"0 0 {_number(width)} {_number(height)}",
        width=width,
        height=height,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )


def text(x: float, y: float, content: str, *, anchor: str = "start", class_: str | None = None) -> Markup:
    """A piece of text; `anchor` is start, middle or end."""
    return tag("text", content, x=x, y=y, text_anchor=None if anchor == "start" else anchor, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def box(x: float, y: float, width: float, height: float, class_: str) -> Markup:
    return tag("rect", x=x, y=y, width=max(0.0, width), height=max(0.0, height), class_=class_)


def sign(number: int, x: float, y: float, size: float, class_: str = "") -> Markup:
    """The sign of the n-th level: its shape tells it apart where its colour does not."""
    drawn = _SHAPES[number % len(_SHAPES)](x, y, size)
    return tag("path", d=drawn, class_=f"sign {hue(number)} {class_}".strip())


def hue(number: int) -> str:
    """The class that colours the n-th level; only the first is the baseline's."""
    return f"hue-{0 if number == 0 else 1 + (number - 1) % (HUES - 1)}"


def cross(x: float, y: float, size: float, class_: str) -> Markup:
    return tag("path", d=f"M{_at(x - size, y - size)}L{_at(x + size, y + size)}M{_at(x - size, y + size)}"
               f"L{_at(x + size, y - size)}", class_=class_)  # fmt: skip


def key(content: Markup) -> Markup:
    """A small drawing for a legend."""
    return tag("svg", content, viewBox="0 0 16 16", width=16, height=16, aria_hidden="true", class_="key")


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers between `low` and `high`, about so many."""
    if not high > low:
        return [low]
    rough = (high - low) / max(1, about)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _circle(x: float, y: float, size: float) -> str:
    r = _number(size)
    return f"M{_at(x - size, y)}a{r} {r} 0 1 0 {_number(2 * size)} 0a{r} {r} 0 1 0 {_number(-2 * size)} 0z"


def _square(x: float, y: float, size: float) -> str:
    side = size * 0.9
    return f"M{_at(x - side, y - side)}h{_number(2 * side)}v{_number(2 * side)}h{_number(-2 * side)}z"


def _diamond(x: float, y: float, size: float) -> str:
    wide = size * 1.25
    return f"M{_at(x, y - wide)}L{_at(x + wide, y)}L{_at(x, y + wide)}L{_at(x - wide, y)}z"


def _triangle(x: float, y: float, size: float) -> str:
    wide = size * 1.15
    return f"M{_at(x, y - wide)}L{_at(x + wide, y + wide * 0.8)}L{_at(x - wide, y + wide * 0.8)}z"


def _wedge(x: float, y: float, size: float) -> str:
    wide = size * 1.15
    return f"M{_at(x, y + wide)}L{_at(x + wide, y - wide * 0.8)}L{_at(x - wide, y - wide * 0.8)}z"


_SHAPES = (_circle, _diamond, _square, _triangle, _wedge)


def _at(x: float, y: float) -> str:
    return f"{_number(x)} {_number(y)}"


def _attribute(value: object) -> str:
    return _number(value) if isinstance(value, float) else str(escape(safe_text(value)))


def _number(value: float) -> str:
    """A tenth of a pixel is enough."""
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 0.05 else "0"
