"""The figures of a report: those that the data supports, and no others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from tare.analysis.resources.curves import curve_sections, latency_sections
from tare.analysis.resources.modes import front_sections, power_sections, predicted_sections
from tare.analysis.resources.parts import parts_sections
from tare.analysis.sections import Chart, Section, anchor
from tare.base import rooms
from tare.base.text import safe_text
from tare.report.charts.effects import effects_figure, why_figure
from tare.report.charts.forms import chart_figure
from tare.report.charts.resources import epochs_figure, over_time, violins
from tare.report.charts.trials import trials_figure
from tare.report.evidence import ReportData
from tare.report.figure import Figure
from tare.report.sections import PageSection


def fleet_figure(evidence: ReportData) -> Figure | None:
    """None where no fleet ran it."""
    if evidence.fleet is None:
        return None
    from tare.report.charts.devices import devices_figure  # brings the model of devices: not where there is one device

    return devices_figure(evidence.fleet)


def offered_figures(evidence: ReportData) -> list[Figure]:
    """Those of rooms and of other packages: each offers a function that makes a list of them."""
    return [figure for target in rooms.offers("sections").values() for figure in rooms.load(target)(evidence)]


def figures(evidence: ReportData) -> list[Figure]:
    """In the order in which they are read: what it costs and where, then what it is made of, then the trials."""
    weighing = evidence.weighing
    jobs = evidence.by_job()
    drawn = [
        why_figure(evidence.layers),
        effects_figure(weighing, evidence.level_hrefs, evidence.numbers),
        fleet_figure(evidence),
        *(_of_job(figure, each.job) for each in jobs for figure in _job_figures(each)),
        *_drawn(evidence, [section for answer in evidence.answers for section in answer.sections]),
        *_drawn(evidence, _predicted(evidence)),
        *offered_figures(evidence),
    ]
    return [figure for figure in drawn if figure is not None]


def _job_figures(evidence: ReportData) -> list[Figure]:
    """The figures that compare levels: within one job only."""
    weighing, records = evidence.weighing, evidence.used
    drawn = [
        trials_figure(weighing, evidence.shown, list(evidence.level_hrefs), evidence.numbers),
        *_drawn(evidence, curve_sections(records, weighing.metric, weighing.unit)),
        *_drawn(evidence, latency_sections(records)),
        *_drawn(evidence, parts_sections(weighing, evidence.usable)),
        *_drawn(evidence, front_sections(records, weighing.unit)),
        *_drawn(evidence, power_sections(records, weighing.unit)),
        epochs_figure(evidence),
        *violins(evidence),
        *over_time(evidence),
    ]
    return [figure for figure in drawn if figure is not None]


def _predicted(evidence: ReportData) -> list[Section]:
    if evidence.store is None:
        return []
    return predicted_sections(evidence.used, evidence.store.path, evidence.weighing.unit)


def _drawn(evidence: ReportData, sections: Iterable[Section]) -> list[Figure]:
    """The charts among these sections."""
    made = ((section, section.make()) for section in sections)
    return [
        chart_figure(section.name, section.title, body, evidence.level_hrefs, evidence.weighing.by, evidence.numbers)
        for section, body in made
        if isinstance(body, Chart) and body.table.rows
    ]


def _of_job(figure: Figure, job: str) -> Figure:
    """Named after its job, where there are several."""
    if not job:
        return figure
    return replace(figure, name=anchor(figure.name, job), title=f"{safe_text(job)}: {figure.title}")


# What the page folds together: the name of each group, and how the names of its figures begin.
GROUPS = (
    ("curves", "How it goes with a setting", ("curve-",)),
    ("distributions", "Trials and distributions", ("trials-by-block", "spread-", "devices")),
    ("steps", "What a step and a trial are made of", ("step-parts", "training-parts", "request-parts", "phases")),
    ("loader", "The input pipeline", ("pipeline",)),
    ("tenants", "Tenants", ("tenants",)),
    ("energy", "Energy, and what to choose", ("energy", "time-energy", "time-power-", "predicted-")),
    ("over-time", "Over time", ("over-time-",)),
    ("kernel", "Kernel and storage", ("counters", "page-faults", "write-back", "page-writes", "flushing-layer")),
    ("others", "Other figures", ("",)),
)
ON_FIRST_SCREEN = ("effects", "why")  # the page draws them itself, larger


Shown = TypeVar("Shown", Figure, PageSection)


def in_groups(found: Sequence[Shown]) -> dict[str, list[Shown]]:
    """Anchor of a group -> what belongs there, by its name."""
    left = [each for each in found if each.name not in ON_FIRST_SCREEN]
    groups = {}
    for group, _, begins in GROUPS:
        groups[group] = [each for each in left if each.name.startswith(begins)]
        left = [each for each in left if each not in groups[group]]
    return groups
