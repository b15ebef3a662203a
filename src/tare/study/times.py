"""Times that a study itself sets: how long, how often. Each has a range, and none goes without its unit."""

from __future__ import annotations

import math
from collections.abc import Callable

from pydantic import TypeAdapter

from tare.measures import Seconds
from tare.parts.protocols import Json

_TIME = TypeAdapter(Seconds)


def time_between(low_s: float, high_s: float, span: str, example: str) -> Callable[[Json], float]:
    """A validator; a number without a unit is refused, because seconds and minutes are equally likely."""

    def convert(value: Json) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            wrong = "has no unit" if math.isfinite(value) else "is not a finite time"
            raise ValueError(f"{{given}} {wrong}; write it like '{example}'")
        negative = isinstance(value, str) and value.lstrip().startswith("-")
        try:
            seconds: float = _TIME.validate_python(value.lstrip()[1:] if negative else value)
        except ValueError:
            raise ValueError(f"{{given}} is not a time; write it like '{example}'") from None
        if negative or not low_s <= seconds <= high_s:
            raise ValueError(f"must be {span}, not {{given}}")
        return seconds

    return convert


def written(seconds: float) -> str:
    """A time as a study file has it, to the last digit."""
    return f"{seconds!r} s"
