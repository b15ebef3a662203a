"""The figures of a report: those that the data supports, and no others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tare.analysis.kernel.model import traced_trials
from tare.report.charts.bars import compute_figures, phases_figure, step_figure
from tare.report.charts.devices import devices_figure
from tare.report.charts.effects import effects_figure, why_figure
from tare.report.charts.energy import energy_figure, predicted_figures, time_energy_figure
from tare.report.charts.evidence import ReportData
from tare.report.charts.kernel import (
    counters_figure,
    faults_figure,
    hot_pages_figure,
    hrefs_of,
    intervals_figure,
    reasons_figure,
)
from tare.report.charts.resources import over_time, violins
from tare.report.charts.scale_up import scale_up
from tare.report.charts.trials import trials_figure
from tare.report.figure import Figure


def traced_figures(evidence: ReportData) -> list[Figure]:
    """None without a store, or where no trial of it was traced."""
    trials = traced_trials(evidence.store) if evidence.store is not None else []
    if not trials or evidence.store is None:
        return []
    from tare.report.charts.nvm import layer_figure  # brings the compiler: not for a store without traces

    hrefs = hrefs_of(trials, evidence.level_hrefs, {each.trial: each.level for each in evidence.shown})
    found = [
        counters_figure(trials, hrefs),
        faults_figure(trials, hrefs),
        reasons_figure(trials, hrefs),
        intervals_figure(trials, hrefs),
        hot_pages_figure(trials),
        layer_figure(evidence.store),
    ]
    return [figure for figure in found if figure is not None]


FigureMaker: TypeAlias = Callable[[ReportData], Figure | None]


def figures(evidence: ReportData, also: Sequence[FigureMaker] = ()) -> list[Figure]:
    """In the order in which they are read: what it costs and where, then what it is made of, then the trials.

    `also` makes figures that this package does not know, such as those of the papers.
    """
    weighing, hrefs = evidence.weighing, evidence.level_hrefs
    margin = max((each.margin for each in weighing.comparisons), default=0.0)
    drawn = [
        why_figure(evidence.records, margin),
        effects_figure(weighing, hrefs),
        devices_figure(evidence),
        trials_figure(weighing, evidence.shown, list(hrefs)),
        *scale_up(evidence),
        step_figure(weighing, hrefs),
        *compute_figures(weighing, hrefs),
        energy_figure(evidence),
        time_energy_figure(evidence),
        *predicted_figures(evidence),
        *violins(evidence),
        *over_time(evidence),
        *traced_figures(evidence),
        *(maker(evidence) for maker in also),
        phases_figure(weighing, hrefs),
    ]
    return [figure for figure in drawn if figure is not None]
