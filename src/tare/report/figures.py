"""The figures of a report: those that the data supports, and no others."""

from __future__ import annotations

from tare.report.charts import hot_pages
from tare.report.charts.bars import phases_figure, step_figure
from tare.report.charts.effects import effects_figure
from tare.report.charts.over_time import over_time
from tare.report.charts.scale_up import scale_up
from tare.report.charts.trials import trials_figure
from tare.report.charts.violins import violins
from tare.report.charts.waterfall import why_figure
from tare.report.evidence import Evidence
from tare.report.figure import Figure


def figures(evidence: Evidence) -> list[Figure]:
    """Layers, effects, every trial, curves, the parts of a step, spreads, what happened over time, phases."""
    weighing, hrefs = evidence.weighing, evidence.level_hrefs
    margin = max((each.margin for each in weighing.comparisons), default=0.0)
    drawn = [
        why_figure(evidence.records, margin),
        effects_figure(weighing, hrefs),
        trials_figure(weighing, evidence.shown, list(hrefs)),
        *scale_up(evidence),
        step_figure(weighing, hrefs),
        *violins(evidence),
        *over_time(evidence),
        hot_pages.of_report(evidence),
        phases_figure(weighing, hrefs),
    ]
    return [figure for figure in drawn if figure is not None]
