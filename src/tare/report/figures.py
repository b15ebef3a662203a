"""The figures of a report: those that the data supports, and no others."""

from __future__ import annotations

from tare.report.charts.bars import phases_figure, step_figure
from tare.report.charts.compute_parts import compute_figures
from tare.report.charts.devices import devices_figure
from tare.report.charts.effects import effects_figure
from tare.report.charts.energy import energy_figure
from tare.report.charts.over_time import over_time
from tare.report.charts.predicted import predicted_figures
from tare.report.charts.scale_up import scale_up
from tare.report.charts.take_aways import claims_figure
from tare.report.charts.time_energy import time_energy_figure
from tare.report.charts.traced import traced_figures
from tare.report.charts.trials import trials_figure
from tare.report.charts.violins import violins
from tare.report.charts.waterfall import why_figure
from tare.report.evidence import Evidence
from tare.report.figure import Figure


def figures(evidence: Evidence) -> list[Figure]:
    """In the order in which they are read: what it costs and where, then what it is made of, then the trials."""
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
        claims_figure(evidence),
        phases_figure(weighing, hrefs),
    ]
    return [figure for figure in drawn if figure is not None]
