"""Whether a study can be told what the device draws, and what would tell it here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tare.errors import StudyError

if TYPE_CHECKING:
    from tare.parts.protocols import Part
    from tare.study.model import Study


def no_power(study: Study) -> list[str]:
    """Nothing where a probe of the study tells power; else which probes would, and what is in their way here."""
    from tare.analysis.energy.cells import POWER_PROBES
    from tare.parts.find import find, names

    asked = [choice.name for choice in study.probes]
    if any(name in POWER_PROBES or not _is_ours(find("probes", name)) for name in asked):
        return []
    here = [name for name in POWER_PROBES if name in names("probes")]
    return list(_how_to_get_power(here, POWER_PROBES))


def _is_ours(probe: type[Part]) -> bool:
    """Someone else's probe may well tell power; of ours it is known."""
    return probe.__module__.startswith("tare.parts.")


def _how_to_get_power(names: Iterable[str], what: Mapping[str, str]) -> Iterator[str]:
    from tare.host import LocalHost
    from tare.parts.find import find

    host = LocalHost()
    for name in names:
        part = find("probes", name)
        try:
            obstacles = part.model_validate(dict(part.example)).obstacles(host)  # type: ignore[attr-defined]
        except StudyError as error:
            obstacles = [str(error)]
        works = "can be used here: add it to `probes`." if not obstacles else " ".join(obstacles)
        yield f"{name} ({what[name]}): {works}"
