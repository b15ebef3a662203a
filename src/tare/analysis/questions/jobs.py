"""Jobs: what is asked to be done. A job is workload x model x data; levels are compared within a job, never across."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.labels import Namer, make_labels, signature
from tare.analysis.work import Settings
from tare.base.declare import before
from tare.records.model import varied


@dataclass(frozen=True, slots=True)
class Place:
    """Where a level belongs: its job, what it is called within it, and its factors in words."""

    job: str  # empty where there is only one
    name: str
    factors: tuple[tuple[str, str], ...] = ()  # (factor, value in words), in the order in which the study has them


def places_of(levels: Mapping[str, Settings], by: str = "") -> dict[str, Place]:
    """Level -> its place. `by` is what the study compares: where that is a model, it makes no other job."""
    several = list(levels.values())
    identity = job_names(several, by)
    factors = [by] if by in varied(several) else []
    for name in varied(several):
        if name not in identity and name not in factors and not _follows(several, name, [*identity, *factors]):
            factors.append(name)
    if len({str(settings.get("platform")) for settings in several}) == 1:
        factors = [name for name in factors if name != "platform"]
    jobs, within = make_labels(several, identity), make_labels(several, factors)
    namer = Namer(several, factors)
    found = {}
    for level, settings in levels.items():
        name = re.sub(r"^bare(?=,|$)", "bare metal", str(within.words(settings)))
        told = tuple((each, namer.setting(each, settings[each])) for each in factors if each in settings)
        found[level] = Place(str(jobs.words(settings)) if identity else "", name or level, told)
    return found


def job_names(several: Sequence[Settings], by: str = "") -> list[str]:
    """The settings that make different jobs of these; none where there is one job, or where jobs are compared."""
    identity = before().saying("job")
    if by in identity:
        return []
    kept: list[str] = []
    for name in identity:  # a data set that follows from the model makes no further job
        if name in varied(several) and not (kept and _follows(several, name, kept)):
            kept.append(name)
    return kept


def _follows(several: Sequence[Settings], name: str, others: Sequence[str]) -> bool:
    """Whether a setting changes only with others: the number of classes with the data set."""
    seen: dict[tuple[str | None, ...], str | None] = {}
    return all(
        seen.setdefault(signature(settings, others), value) == value
        for settings in several
        for (value,) in [signature(settings, [name])]
    )
