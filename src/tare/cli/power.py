"""Whether a study can be told what the device draws, and what would tell it here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tare.errors import StudyError

if TYPE_CHECKING:
    from tare.parts.protocols import Part
    from tare.study.model import Study


_COUNTERS = frozenset({"power_rapl", "gpu"})  # of a GPU only newer ones count: an older one may still be told so after
_READ_BY_PERIOD = frozenset({"power_rails"})


def tells_power(study: Study) -> bool:
    """Whether a probe of the study tells power, or may."""
    from tare.analysis.energy.cells import POWER_PROBES
    from tare.parts.find import find

    asked = [choice.name for choice in study.probes]
    return any(name in POWER_PROBES or not _is_ours(find("probes", name)) for name in asked)


def no_power(study: Study) -> list[str]:
    """Nothing where a probe of the study tells power; else which probes would, and what is in their way here."""
    from tare.analysis.energy.cells import POWER_PROBES
    from tare.parts.find import names

    if tells_power(study):
        return []
    here = [name for name in POWER_PROBES if name in names("probes")]
    return list(_how_to_get_power(here, POWER_PROBES))


def too_short(study: Study, duration_s: float) -> list[str]:
    """Why no probe of the study can make an energy of so short a time, in sentences; nothing where one may.

    A sensor has to be read 60 times, a counter has to be read ten times, and ten times what either averages over.
    """
    from tare.analysis.energy.cells import POWER_PROBES

    parts = [choice.samples[0] for choice in study.probes]
    if not all(_is_ours(type(part)) for part in parts):
        return []
    least = {part.part_name(): _least_s(part, study.period_s) for part in parts if part.part_name() in POWER_PROBES}
    if any(duration_s >= seconds for seconds in least.values()):
        return []
    return [f"{name} takes at least {seconds:g} s, not {duration_s:g} s." for name, seconds in least.items()]


def _least_s(probe: Part, period_s: float) -> float:
    """The least time that this probe can make an energy of, if everything goes well."""
    from tare.trial.energy_sources import SENSOR_WINDOW_S
    from tare.trial.thresholds import THRESHOLDS

    name = probe.part_name()
    windows_s = THRESHOLDS.energy_windows * SENSOR_WINDOW_S.get(name, 0.0)
    if name in _COUNTERS:
        return max(windows_s, THRESHOLDS.energy_windows * period_s)
    if name in _READ_BY_PERIOD:
        return max(windows_s, THRESHOLDS.energy_samples * float(probe.fields()["period"]))
    return windows_s  # a meter prints as often as it likes


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
