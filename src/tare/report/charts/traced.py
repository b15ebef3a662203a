"""What traced trials show: counters, page faults, write-backs, hot pages, and what a flushing layer would change."""

from __future__ import annotations

from tare.analysis.kernel.model import traced_trials
from tare.report.charts.event_counters import counters_figure
from tare.report.charts.hot_pages import hot_pages_figure
from tare.report.charts.kernel_tables import hrefs_of
from tare.report.charts.page_faults import faults_figure
from tare.report.charts.write_backs import intervals_figure, reasons_figure
from tare.report.evidence import Evidence
from tare.report.figure import Figure


def traced_figures(evidence: Evidence) -> list[Figure]:
    """None without a store, or where no trial of it was traced."""
    trials = traced_trials(evidence.store) if evidence.store is not None else []
    if not trials or evidence.store is None:
        return []
    from tare.report.charts.flushing import layer_figure  # brings the compiler: not for a store without traces

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
