"""Whether two places carry the same software, from what each says of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tare.analysis.cells import text
from tare.analysis.parity import flat, rule_for

# What is asked of both: without it nothing is proven.
NEEDED = ("python.version", "libc")


@dataclass(frozen=True, slots=True)
class Line:
    """One fact about the software, on both sides; None where a side does not have it."""

    key: str
    device: str | None
    image: str | None
    matters: bool
    why: str

    @property
    def same(self) -> bool:
        return self.device == self.image

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "same": self.same}


def compared(device: Mapping[str, Any], image: Mapping[str, Any]) -> list[Line]:
    """Every fact of either side: first those that differ and matter, then the other differences, then the rest."""
    left, right = _texts(device), _texts(image)
    lines = [_line(key, left.get(key), right.get(key)) for key in dict.fromkeys((*left, *right))]
    return sorted(lines, key=lambda line: (line.same, not line.matters))


def is_same(lines: Sequence[Line]) -> bool:
    """Whether nothing that matters differs, and both sides have said what they must."""
    said = {line.key for line in lines if line.device is not None and line.image is not None}
    return said.issuperset(NEEDED) and all(line.same or not line.matters for line in lines)


def _texts(facts: Mapping[str, Any]) -> dict[str, str]:
    return {key: text(value) for key, value in flat(facts).items()}


def _line(key: str, device: str | None, image: str | None) -> Line:
    rule = rule_for(key)
    return Line(key, device, image, rule.matters, rule.why)
