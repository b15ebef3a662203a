"""What a study needs of this device: engines that run for the length of a run, and probes that measure power."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from tare.base.errors import ObstacleError, StudyError
from tare.base.rulings import Ruling, obstacle
from tare.base.text import say

if TYPE_CHECKING:
    from tare.parts.protocols import Part, Platform
    from tare.studies.model import Study

_COUNTERS = frozenset({"power_rapl", "gpu"})  # of a GPU only newer ones count: an older one may still be told so after
_READ_BY_PERIOD = frozenset({"power_rails"})


def needs_of_study(study: Study) -> AbstractContextManager[None]:
    """What the platforms of a study need on this device: those inside another one have no need of it."""
    beside = [level.stack for level in study.tenancies if level.stack is not None]
    return needs_of(stack[0].name for stack in (*study.platforms, *beside))


@contextmanager
def needs_of(names: Iterable[str]) -> Iterator[None]:
    """Each of these platforms has what it needs (an engine that runs), until the end; says what was done for it."""
    from tare.base.host import LocalHost

    with ExitStack() as stack:
        for name in dict.fromkeys(names):
            if sentence := stack.enter_context(platform(name).for_run(LocalHost())):
                say(sentence)
        yield


def left_overs() -> list[str]:
    """What `stop_left_overs` would stop, in words; nothing is changed."""
    from tare.base.host import LocalHost
    from tare.parts.find import names

    host = LocalHost()
    found = [platform(name).left_by_dead_run(host) for name in names("platforms")]
    return [thing for thing in found if thing]


def stop_left_overs() -> list[str]:
    """Stop what platforms needed in a run that died, unless another run uses it."""
    from tare.base.host import LocalHost
    from tare.parts.find import names

    host = LocalHost()
    said = [platform(name).after_dead_run(host) for name in names("platforms")]
    return [sentence for sentence in said if sentence]


def platform(name: str) -> type[Platform]:
    """The platform of this name."""
    from tare.parts.find import find
    from tare.parts.protocols import Platform

    found = find("platforms", name)
    assert issubclass(found, Platform)
    return found


# Power


def measures_power(study: Study) -> bool:
    """Whether a probe of the study measures power, or may."""
    from tare.analysis.resources.energy import POWER_PROBES
    from tare.parts.find import find

    asked = [choice.name for choice in study.probes]
    return any(name in POWER_PROBES or not _is_ours(find("probes", name)) for name in asked)


def no_power(study: Study) -> list[Ruling]:
    """Nothing if a probe of the study measures power; else which probes would, and what prevents them here."""
    from tare.analysis.resources.energy import POWER_PROBES
    from tare.parts.find import names

    if measures_power(study):
        return []
    here = [name for name in POWER_PROBES if name in names("probes")]
    return list(_how_to_get_power(here, POWER_PROBES))


def too_short(study: Study, duration_s: float) -> list[str]:
    """Why no probe of the study can make an energy of so short a time, in sentences; nothing where one may.

    A sensor has to be read 60 times, a counter has to be read ten times, and ten times what either averages over.
    """
    from tare.analysis.resources.energy import POWER_PROBES

    parts = [choice.samples[0] for choice in study.probes]
    if not all(_is_ours(type(part)) for part in parts):
        return []
    least = {part.part_name(): _least_s(part, study.period_s) for part in parts if part.part_name() in POWER_PROBES}
    if any(duration_s >= seconds for seconds in least.values()):
        return []
    return [f"{name} takes at least {seconds:g} s, not {duration_s:g} s." for name, seconds in least.items()]


def _least_s(probe: Part, period_s: float) -> float:
    """The least time that this probe can make an energy of, if everything goes well."""
    from tare.figures.energy_sources import SENSOR_WINDOW_S
    from tare.figures.thresholds import THRESHOLDS

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


def _how_to_get_power(names: Iterable[str], what: Mapping[str, str]) -> Iterator[Ruling]:
    from tare.base.host import LocalHost
    from tare.parts.find import find

    host = LocalHost()
    for name in names:
        part = find("probes", name)
        try:
            obstacles = part.model_validate(dict(part.example)).obstacles(host)  # type: ignore[attr-defined]
        except StudyError as error:
            obstacles = [obstacle("part.error", str(error))]
        works = "can be used here: add it to `probes`." if not obstacles else " ".join(map(str, obstacles))
        code = obstacles[0].code if obstacles else "energy.no-probe"
        yield Ruling(code, "obstacle", f"probe {name}", f"{name} ({what[name]}): {works}")


def refuse_without_power(study: Study) -> None:
    """A study that compares power or energy is not begun where nothing tells them."""
    if compares_power(study) and (stopped := no_power(study)):
        raise ObstacleError(f"no power probe is enabled in {study.study}, and nothing was run:", stopped)


def compares_power(study: Study) -> bool:
    """Whether what the study compares is power or energy."""
    return (study.compare.metric or "").startswith(("energy", "power"))
