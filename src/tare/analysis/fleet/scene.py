"""The trials of a fleet, sorted for one figure, and the questions that each device may be unlike its twins in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from tare.analysis.cells import Cells, baseline_level, cells, join, resolve_factor
from tare.analysis.compare import pick_baseline
from tare.analysis.devices import DEVICE, TYPE
from tare.analysis.fleet.centres import Centre
from tare.analysis.fleet.effects import centres_by_device
from tare.analysis.fleet.gathering import Sighting
from tare.analysis.fleet.random_effects import FEWEST
from tare.analysis.fleet.standings import Twins, twins_in_effect, twins_in_level
from tare.analysis.fleet.unlike import Aside
from tare.analysis.request import DEFAULT_BY, Request, request
from tare.analysis.trials import pick_metric, sort_out, why_not
from tare.errors import StudyError
from tare.records.model import Record

BESIDE = ("energy_step_j", "power_mean_w")  # told next to the headline, where trials have them
Contrast: TypeAlias = tuple[str, str, str]  # level, against, where


@dataclass(frozen=True)
class Question:
    """One figure of the devices of one type, or one effect on it."""

    metric: str
    what: str  # "" for the figure itself
    twins: Twins

    @cached_property
    def tested(self) -> list[Aside]:
        return self.twins.tested()


@dataclass(frozen=True)
class Scene:
    """What is used for one figure."""

    metric: str
    label: Cells
    used: Sequence[Sighting]
    centres: Mapping[Contrast, Mapping[str, Centre]] = field(default_factory=dict)

    @cached_property
    def types(self) -> dict[str, str]:
        return {each.device: each.type for each in self.used}

    def configurations(self, without: Sequence[str] = ()) -> dict[str, list[Sighting]]:
        """Trials of the same settings, whatever device they ran on."""
        found: dict[str, list[Sighting]] = {}
        for each in self.used:
            if each.device not in without:
                found.setdefault(self.label.label(each.record), []).append(each)
        return found

    def questions(self) -> list[Question]:
        """The figure itself, and each effect on it, for each type."""
        made = []
        for kind in dict.fromkeys(self.types.values()):
            made.append(Question(self.metric, "", twins_in_level(kind, self._values(kind))))
            for (level, against, where), centres in self.centres.items():
                of_kind = {name: centre for name, centre in centres.items() if self.types[name] == kind}
                if len(of_kind) >= FEWEST:
                    what = join(f"the effect of {level} against {against}", where)
                    made.append(Question(self.metric, what, twins_in_effect(kind, of_kind)))
        return made

    def _values(self, kind: str) -> dict[str, dict[str, list[float]]]:
        """Configuration -> device of this type -> its values."""
        found: dict[str, dict[str, list[float]]] = {}
        for where, members in self.configurations().items():
            for each in members:
                if each.type == kind:
                    values = found.setdefault(where, {}).setdefault(each.device, [])
                    values.append(each.record.metrics[self.metric])
        return found


def scene(seen: Sequence[Sighting], metric: str, factor: str | None, asked: Request) -> Scene:
    """One usable attempt of each trial; an A/A twin is the same thing again, and would count a trial twice."""
    by = factor or DEFAULT_BY
    having = [each for each in seen if by in each.record.settings]
    records = [each.record for each in having]
    label = cells(records, by)
    used = _used(having, label, metric)
    if factor is None or not used:
        return Scene(metric, label, used)
    known = list(dict.fromkeys(label.level(record) for record in records))
    base = pick_baseline(known, None) if asked.against is None else baseline_level(records, label, asked.against)
    pairs = dict.fromkeys((label.level(each.record), label.surroundings(each.record)) for each in used)
    contrasts = [(level, base, where) for level, where in pairs if level != base]
    return Scene(metric, label, used, {one: centres_by_device(used, label, metric, *one) for one in contrasts})


def _used(having: Sequence[Sighting], label: Cells, metric: str) -> list[Sighting]:
    """Device by device: two devices that ran one study apart have trials of the same names."""
    by_device: dict[str, list[Sighting]] = {}
    for each in having:
        by_device.setdefault(each.device, []).append(each)
    kept: list[Sighting] = []
    for its in by_device.values():
        chosen = {id(record) for record in sort_out([each.record for each in its], label, metric).used}
        kept += [each for each in its if id(each.record) in chosen and not each.record.twin]
    return kept


def factor_of(study: Mapping[str, Any], records: Sequence[Record], by: str | None) -> str | None:
    """Whose effect is told: what was asked for, else what the study compares, else the platforms; None: nothing is."""
    if by in (DEVICE, TYPE):
        raise StudyError("devices are what is told of here: --by names another factor, such as platform.")
    declared = (request(study, records).by, DEFAULT_BY) if by is None else (resolve_factor(records, by),)
    wanted = [name for name in declared if name not in (DEVICE, TYPE)]
    varied = [name for name in wanted if len({str(each.settings.get(name)) for each in records}) > 1]
    return varied[0] if varied else None


def metrics_of(records: Sequence[Record], declared: str | None, asked: Sequence[str]) -> list[str]:
    """The figures to tell of: those that were asked for, else the headline with power and energy beside it."""
    if asked:
        return [pick_metric(records, metric) for metric in asked]
    beside = [name for name in BESIDE if any(why_not(record, name) is None for record in records)]
    return list(dict.fromkeys([pick_metric(records, declared), *beside]))
