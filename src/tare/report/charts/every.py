"""The figures of a report: those that the data supports, and no others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from tare.base import rooms
from tare.base.text import in_units, safe_text
from tare.report.charts.bars import compute_figures, phases_figure, step_figure
from tare.report.charts.effects import effects_figure, why_figure
from tare.report.charts.energy import energy_figure, predicted_figures, time_energy_figure
from tare.report.charts.resources import epochs_figure, over_time, violins
from tare.report.charts.trials import trials_figure
from tare.report.charts.varied import latency_figure, scale_up, time_power_figures
from tare.report.evidence import ReportData
from tare.report.figure import Figure


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
        *predicted_figures(evidence),
        *offered_figures(evidence),
    ]
    return [figure for figure in drawn if figure is not None]


def _job_figures(evidence: ReportData) -> list[Figure]:
    """The figures that compare levels: within one job only."""
    weighing, hrefs = evidence.weighing, evidence.level_hrefs
    drawn = [
        trials_figure(weighing, evidence.shown, list(hrefs), evidence.numbers),
        *scale_up(evidence),
        latency_figure(evidence),
        step_figure(evidence),
        *compute_figures(weighing, hrefs),
        energy_figure(evidence),
        time_energy_figure(evidence),
        *time_power_figures(evidence),
        epochs_figure(evidence),
        *violins(evidence),
        *over_time(evidence),
        phases_figure(weighing, hrefs),
    ]
    return [figure for figure in drawn if figure is not None]


def _of_job(figure: Figure, job: str) -> Figure:
    """Named after its job, where there are several."""
    if not job:
        return figure
    name = re.sub(r"[^a-z0-9]+", "-", job.lower()).strip("-")
    return replace(figure, name=f"{figure.name}-{name}", title=f"{safe_text(job)}: {figure.title}")


# What the page folds together: the name of each group, and how the names of its figures begin.
GROUPS = (
    ("curves", "How it goes with a setting", ("curve-",)),
    ("distributions", "Trials and distributions", ("trials-by-block", "spread-", "devices")),
    ("steps", "What a step and a trial are made of", ("step-parts", "training-parts", "request-parts", "phases")),
    ("energy", "Energy, and what to choose", ("energy", "time-energy", "time-power-", "predicted-")),
    ("over-time", "Over time", ("over-time-",)),
    ("kernel", "Kernel and storage", ("counters", "page-faults", "write-back", "page-writes", "flushing-layer")),
    ("others", "Other figures", ("",)),
)
ON_FIRST_SCREEN = ("effects", "why")  # the page draws them itself, larger


def in_groups(found: Sequence[Figure], unit: str) -> list[tuple[str, str, list[Figure]]]:
    """(anchor, title, figures) of each group that has any; `unit`: what a step is for people."""
    left = [figure for figure in found if figure.name not in ON_FIRST_SCREEN]
    groups = []
    for anchor, title, begins in GROUPS:
        held = [figure for figure in left if figure.name.startswith(begins)]
        left = [figure for figure in left if figure not in held]
        if held:
            groups.append((anchor, in_units(title, unit), held))
    return groups
