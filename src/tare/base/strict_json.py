"""JSON as its standard has it: a number that is none (NaN, infinity) is refused on the way in and on the way out."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from tare.base.errors import StoreError


def dump(data: Any) -> bytes:
    """One line of ASCII JSON; every text, also half a surrogate pair, comes back as it was."""
    return json.dumps(data, allow_nan=False, separators=(",", ":"), default=_refuse).encode("ascii")


def load(data: bytes) -> Any:
    """The reverse of `dump`; ValueError where this is not strict JSON."""
    try:
        return json.loads(data, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def without_missing(data: Any, path: str = "") -> tuple[Any, list[str]]:
    """The same data without numbers that are none, and where they were: missing is absent."""
    left_out: list[str] = []

    def walk(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            kept = {key: item for key, item in value.items() if not _is_missing(item)}
            left_out.extend(f"{path}{key}" for key in value if key not in kept)
            return {key: walk(item, f"{path}{key}.") for key, item in kept.items()}
        if isinstance(value, list | tuple):
            # A list keeps its length: the places of its other items mean something.
            left_out.extend(f"{path}{place}" for place, item in enumerate(value) if _is_missing(item))
            return [None if _is_missing(item) else walk(item, f"{path}{place}.") for place, item in enumerate(value)]
        return value

    return walk(data, path), left_out


def _is_missing(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _refuse(value: object) -> NoReturn:
    raise StoreError(f"a {type(value).__name__} is not plain data, so it cannot be kept in a record: {value!r}")


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError(f"{text[:40]} is beyond every number that is kept")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that JSON knows")
