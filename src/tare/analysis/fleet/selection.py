"""The trials of all devices that are used for a figure, and the questions that are asked of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from tare.analysis.cells import Cells, cells, join, resolve_factor
from tare.analysis.fleet.effects import centres_by_device
from tare.analysis.fleet.outliers import Aside, Twins, twins_in_effect, twins_in_level
from tare.analysis.fleet.random_effects import FEWEST, Centre
from tare.analysis.selection import DEFAULT_BY, Request, fit_for, level_against, pick_metric, request, why_not
from tare.base.declare import Role
from tare.base.errors import StudyError
from tare.records.model import DEVICE, TYPE, Record, TrialRow, grouped, usable_trials

BESIDE = (Role.ENERGY_STEP.metric, Role.POWER.metric)  # told next to the headline, where trials have them
Contrast: TypeAlias = tuple[str, str, str]  # level, against, where


@dataclass(frozen=True)
class Question:
    """One figure of the devices of one type, or one effect on it."""

    metric: str
    what: str  # "" for the figure itself
    twins: Twins
    effect: tuple[str, str] | None = None  # level and against

    @cached_property
    def tested(self) -> list[Aside]:
        return self.twins.tested()


@dataclass(frozen=True)
class FleetSelection:
    """The trials of all devices that are used for one figure, and the effect of each level on each device."""

    metric: str
    label: Cells
    used: Sequence[TrialRow]
    centres: Mapping[Contrast, Mapping[str, Centre]] = field(default_factory=dict)

    @cached_property
    def types(self) -> dict[str, str]:
        return {str(each.device): each.device_type for each in self.used}

    def configurations(self, without: Sequence[str] = ()) -> dict[str, list[TrialRow]]:
        """Trials of the same settings, whatever device they ran on."""
        return grouped((each for each in self.used if each.device not in without), self.label.label)

    def questions(self) -> list[Question]:
        """The figure itself, and each effect on it, for each type."""
        made = []
        for kind in dict.fromkeys(self.types.values()):
            made.append(Question(self.metric, "", twins_in_level(kind, self._values(kind))))
            for (level, against, where), centres in self.centres.items():
                of_kind = {name: centre for name, centre in centres.items() if self.types[name] == kind}
                if len(of_kind) >= FEWEST:
                    what = join(f"the effect of {level} against {against}", where)
                    made.append(Question(self.metric, what, twins_in_effect(kind, of_kind), (level, against)))
        return made

    def _values(self, kind: str) -> dict[str, dict[str, list[float]]]:
        """Configuration -> device of this type -> its values."""
        found = {}
        for where, members in self.configurations().items():
            devices = grouped((each for each in members if each.device_type == kind), lambda each: str(each.device))
            if devices:
                found[where] = {name: [each.metrics[self.metric] for each in its] for name, its in devices.items()}
        return found


def select_for_fleet(seen: Sequence[TrialRow], metric: str, factor: str | None, asked: Request) -> FleetSelection:
    """One usable attempt of each trial; an A/A repeat is the same thing again, and would count a trial twice."""
    by = factor or DEFAULT_BY
    having = [each for each in seen if by in each.settings]
    label = cells(having, by)
    # Device by device: two devices that ran one study apart have trials of the same names.
    devices = grouped(having, lambda each: each.device).values()
    used = [each for its in devices for each in usable_trials(its, fit_for(metric), repeats=False)]
    if factor is None or not used:
        return FleetSelection(metric, label, used)
    base = level_against(having, label, asked.against)
    pairs = dict.fromkeys((label.level(each), label.surroundings(each)) for each in used)
    contrasts = [(level, base, where) for level, where in pairs if level != base]
    return FleetSelection(metric, label, used, {one: centres_by_device(used, label, metric, *one) for one in contrasts})


def factor_of(study: Mapping[str, Any], records: Sequence[Record], by: str | None) -> str | None:
    """Whose effect is told: what was asked for, else what the study compares, else the platforms; None: nothing is."""
    if by in (DEVICE, TYPE):
        raise StudyError("this verb reports on devices: --by names another factor, such as platform.")
    declared = (request(study, records).by, DEFAULT_BY) if by is None else (resolve_factor(records, by),)
    wanted = [name for name in declared if name not in (DEVICE, TYPE)]
    varied = [name for name in wanted if len({str(each.settings.get(name)) for each in records}) > 1]
    return varied[0] if varied else None


def metrics_of(records: Sequence[Record], declared: str | None, asked: Sequence[str]) -> list[str]:
    """The figures to tell of: those that were asked for, else the headline with power and energy beside it."""
    if asked:
        return [pick_metric(records, metric) for metric in asked]
    beside = [name for name in BESIDE if any(not why_not(record, name) for record in records)]
    return list(dict.fromkeys([pick_metric(records, declared), *beside]))
