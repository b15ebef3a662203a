"""What sets trials apart: the settings that differ between them, without those that only follow from another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_NO_FACTORS = ("probes",)


def varied(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The platform, and what tells these settings apart beyond it.

    `platform.image` of a container is no factor because bare metal has none: it is one if it differs between
    containers of the same platform. The same goes for the fields of a workload.
    """
    seen: dict[str, dict[str, set[str]]] = {"platform": {}}
    for each in settings:
        for name, value in each.items():
            of = str(each.get(name.partition(".")[0], "")) if "." in name else ""
            seen.setdefault(name, {}).setdefault(of, set()).add(str(value))
    return [
        name
        for name, values in seen.items()
        if name == "platform" or (name not in _NO_FACTORS and any(len(of_one) > 1 for of_one in values.values()))
    ]
